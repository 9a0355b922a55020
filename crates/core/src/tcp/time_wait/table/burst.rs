//! Look-ups of a burst of segments: memory is waited for twice, not twice a segment.

use core::hint::black_box;

use super::handles::Handles;
use super::row::Row;
use super::{Class, Shelf, TimeWait};
use crate::tcp::Tuple;
use crate::tcp::time_wait::Record;
use crate::time::Instant;

/// Look-ups that are read ahead together: about as many misses as a processor has under way.
const BURST: usize = 32;

/// What the index says of a tuple at first sight.
#[derive(Clone, Copy)]
enum Glance {
    /// There is no record of it.
    Nothing,
    /// This may be the number of its record.
    At(u32),
    /// It may be behind the line.
    Beyond,
}

impl TimeWait {
    /// Fetches what a look-up of `tuple` will read first, without waiting for it.
    #[inline]
    pub fn read_ahead(&self, hash: u64, tuple: &Tuple) {
        if self.len > 0 {
            let Class { v4, v6 } = &self.classes[0];
            if tuple.is_ipv6() { v6.index.prefetch(hash) } else { v4.index.prefetch(hash) }
        }
    }

    /// Where the records of these tuples are, at first sight. First the lines of the index are
    /// read, and when those are there the records that they lead to.
    #[inline]
    fn glance(&self, burst: &[(u64, Tuple)]) -> [Glance; BURST] {
        let mut glances = [Glance::Nothing; BURST];
        let Class { v4, v6 } = &self.classes[0];
        if self.len == 0 {
            return glances;
        }
        for (hash, tuple) in burst {
            let index = if tuple.is_ipv6() { &v6.index } else { &v4.index };
            black_box(index.link(*hash));
        }
        for (glance, (hash, tuple)) in glances.iter_mut().zip(burst) {
            *glance = if tuple.is_ipv6() { v6.glance(*hash) } else { v4.glance(*hash) };
        }
        glances
    }

    /// The records of many tuples, of which `tell` hears in their order: as [`find`](Self::find),
    /// but memory is read for a burst of them at a time.
    #[inline]
    pub fn find_batch(
        &self,
        wanted: &[(u64, Tuple)],
        now: Instant,
        mut tell: impl FnMut(Option<Record>),
    ) {
        for burst in wanted.chunks(BURST) {
            let glances = self.glance(burst);
            for ((hash, tuple), glance) in burst.iter().zip(glances) {
                tell(self.find_at(glance, *hash, tuple, now));
            }
        }
    }

    /// As [`find`](Self::find), after a glance at the farthest class.
    #[inline]
    fn find_at(&self, glance: Glance, hash: u64, tuple: &Tuple, now: Instant) -> Option<Record> {
        let Class { v4, v6 } = &self.classes[0];
        match glance {
            Glance::Nothing if self.near == 0 => None,
            Glance::At(number) if self.near == 0 => {
                let found = if tuple.is_ipv6() {
                    v6.record_at(number, tuple, &self.handles, Some(now))
                } else {
                    v4.record_at(number, tuple, &self.handles, Some(now))
                };
                found.unwrap_or_else(|| self.find(hash, tuple, now))
            }
            _ => self.find(hash, tuple, now),
        }
    }
}

impl<R: Row> Shelf<R> {
    /// Where the first record is that may have this hash; its row is read ahead.
    #[inline(always)]
    fn glance(&self, hash: u64) -> Glance {
        if self.index.is_empty() {
            return Glance::Nothing;
        }
        let mut probe = self.index.probe(hash);
        match self.index.next(&mut probe, self.queue.span()) {
            Some(number) => {
                black_box(self.queue.row(number).map(|seen| seen.row.common().ports()));
                Glance::At(number)
            }
            None if probe.link == 0 => Glance::Nothing,
            None => Glance::Beyond,
        }
    }

    /// What [`record`](Self::record) says if the record of that number is that of `tuple`.
    #[inline(always)]
    fn record_at(
        &self,
        number: u32,
        tuple: &Tuple,
        handles: &Handles,
        now: Option<Instant>,
    ) -> Option<Option<Record>> {
        let seen = self.see(number, tuple, handles)?;
        Some(self.judge(tuple, &seen, handles, now))
    }
}
