//! Look-ups of a burst of segments: memory is waited for twice, not twice a segment.

use lightwait_processor::prefetch;

use super::found::Found;
use super::queue::Spot;
use super::row::Row;
use super::{Class, Shelf, TimeWait};
use crate::tcp::Tuple;
use crate::time::Instant;

/// Look-ups that are read ahead together: about as many misses as a processor has under way.
const BURST: usize = 32;

/// Where the index leads from a hash.
enum Lead<'a, R> {
    /// Nowhere: no record has it.
    Nowhere,
    /// This may be the record.
    At(Spot<'a, R>),
    /// Behind the line.
    Beyond,
}

impl TimeWait {
    /// Fetches what a look-up of `tuple` will read first, or its entering write, without waiting
    /// for it.
    #[inline]
    pub fn read_ahead(&self, hash: u64, tuple: &Tuple) {
        if self.len > 0 {
            let Class { v4, v6, .. } = &self.classes[0];
            if tuple.is_ipv6() { v6.index.prefetch(hash) } else { v4.index.prefetch(hash) }
        }
    }

    /// The records of many tuples, of which `tell` hears in their order: as [`find`](Self::find),
    /// but memory is read for a burst of them at a time, if they are of one IP version.
    #[inline]
    pub fn find_batch<'a>(
        &'a self,
        wanted: &'a [(u64, Tuple)],
        now: Instant,
        mut tell: impl FnMut(Option<Found<'a>>),
    ) {
        let Class { v4, v6, .. } = &self.classes[0];
        for wanted in wanted.chunk_by(|(_, one), (_, next)| one.is_ipv6() == next.is_ipv6()) {
            let is_ipv6 = wanted.first().is_some_and(|(_, tuple)| tuple.is_ipv6());
            for burst in wanted.chunks(BURST) {
                if is_ipv6 {
                    self.find_burst(v6, burst, now, &mut tell);
                } else {
                    self.find_burst(v4, burst, now, &mut tell);
                }
            }
        }
    }

    /// The same of a burst of the version of `shelf`, where the records of far peers are.
    #[inline(always)]
    fn find_burst<'a, R: Row>(
        &'a self,
        shelf: &'a Shelf<R>,
        burst: &'a [(u64, Tuple)],
        now: Instant,
        tell: &mut impl FnMut(Option<Found<'a>>),
    ) {
        let handles = &self.handles;
        for ((hash, tuple), lead) in burst.iter().zip(shelf.leads(burst)) {
            let seen = match &lead {
                Lead::At(spot) => shelf.see_at(spot, tuple, handles),
                _ => None,
            };
            tell(match (seen, lead) {
                (Some(seen), _) => {
                    let ((common, expires_ms), term_ms) = (seen.told(), shelf.term_ms);
                    let found = Found { tuple, common, handles, term_ms, expires_ms };
                    (!found.is_over(now)).then_some(found)
                }
                (None, Lead::Nowhere) if self.near == 0 => None,
                _ => self.find(*hash, tuple, now),
            });
        }
    }
}

impl<R: Row> Shelf<R> {
    /// Where the records of these tuples may be. First the lines of the index are fetched, and when
    /// those are there the records that they lead to.
    #[inline(always)]
    fn leads(&self, burst: &[(u64, Tuple)]) -> [Lead<'_, R>; BURST] {
        let mut lines = [None; BURST];
        for (line, (hash, _)) in lines.iter_mut().zip(burst) {
            *line = self.index.line(*hash);
            line.inspect(|line| prefetch(*line));
        }
        let mut leads = [const { Lead::Nowhere }; BURST];
        for ((lead, line), (hash, _)) in leads.iter_mut().zip(lines).zip(burst) {
            let Some(line) = line else { continue };
            let mut probe = self.index.probe(*hash, line);
            *lead = match self.index.next(&mut probe, self.queue.span()) {
                Some(number) => self.queue.spot(number).map_or(Lead::Beyond, Lead::At),
                None if probe.link == 0 => Lead::Nowhere,
                None => Lead::Beyond,
            };
            if let Lead::At(spot) = lead {
                prefetch(spot.row);
            }
        }
        leads
    }
}
