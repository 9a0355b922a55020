//! Looks records up for a burst of segments: it waits for memory twice in all, not twice a segment.

use lightwait_processor::prefetch;

use super::found::RecordRef;
use super::queue::Location;
use super::row::Row;
use super::{Class, RecordSet, TimeWait};
use crate::flow::Tuple;
use crate::time::Instant;

/// Look-ups that are read ahead together: about as many misses as a processor has under way.
const BURST: usize = 32;

/// What the index leads to for a tuple.
struct Lead<'a, R> {
    /// The place of the record, if it is the tuple's.
    location: Option<Location<'a, R>>,
    /// Not 0 if there may be a record elsewhere.
    others: u32,
}

impl TimeWait {
    /// Fetches what a look-up of `tuple` will read first, or its entering write, without waiting
    /// for it.
    pub fn prefetch(&self, hash: u64, tuple: &Tuple) {
        if self.len > 0 {
            let Class { v4, v6, .. } = &self.classes[0];
            if tuple.is_ipv6() { v6.index.prefetch(hash) } else { v4.index.prefetch(hash) }
        }
    }

    /// Finds the records of many tuples, as [`find`](Self::find) does, and passes them to `tell` in
    /// their order. Memory is read for a burst of them at a time, as far as they are of one IP
    /// version.
    pub fn find_batch<'a>(
        &'a self,
        wanted: &'a [(u64, Tuple)],
        now: Instant,
        mut tell: impl FnMut(Option<RecordRef<'a>>),
    ) {
        let Class { v4, v6, .. } = &self.classes[0];
        for burst in wanted.chunks(BURST) {
            if burst.first().is_some_and(|(_, tuple)| tuple.is_ipv6()) {
                self.find_burst(v6, burst, now, &mut tell);
            } else {
                self.find_burst(v4, burst, now, &mut tell);
            }
        }
    }

    /// Finds the records of one burst. Most tuples are of the version of `records`, which holds the
    /// records of far peers.
    fn find_burst<'a, R: Row>(
        &'a self,
        records: &'a RecordSet<R>,
        burst: &'a [(u64, Tuple)],
        now: Instant,
        tell: &mut impl FnMut(Option<RecordRef<'a>>),
    ) {
        let handles = &self.handles;
        let mut leads = [const { Lead { location: None, others: u32::MAX } }; BURST];
        records.lead(burst, &mut leads);
        for (lead, (hash, tuple)) in leads.iter().zip(burst) {
            let seen = lead
                .location
                .as_ref()
                .and_then(|location| records.see_at(location, tuple, handles));
            tell(match seen {
                Some(seen) => {
                    Some(records.found(tuple, seen, handles)).filter(|found| !found.is_over(now))
                }
                None if lead.location.is_none() && lead.others == 0 && self.near == 0 => None,
                None => self.find(*hash, tuple, now),
            });
        }
    }
}

impl<R: Row> RecordSet<R> {
    /// First the lines of the index are fetched, and when those are there the records that they
    /// lead to.
    fn lead<'a>(&'a self, burst: &[(u64, Tuple)], leads: &mut [Lead<'a, R>; BURST]) {
        let mut lines = [None; BURST];
        for (line, (hash, tuple)) in lines.iter_mut().zip(burst) {
            if tuple.is_ipv6() == R::IPV6 {
                *line = self.index.line(*hash);
                line.inspect(|line| prefetch(*line));
            }
        }
        for ((lead, line), (hash, _)) in leads.iter_mut().zip(&lines).zip(burst) {
            let Some(line) = line else { continue };
            let mut probe = self.index.probe(*hash, line);
            let first = self.index.next(&mut probe, self.queue.span());
            lead.location = first.and_then(|number| self.queue.location(number));
            lead.others = probe.matches | probe.link;
            if let Some(location) = &lead.location {
                prefetch(location.row);
            }
        }
    }
}
