//! Records that come from another host's table, with what is left of their time.

use super::row::Row;
use super::{Distance, Lent, RecordSet, TimeWait, ceil_ms};
use crate::flow::Tuple;
use crate::tcp::connection::FinalState;
use crate::time::Instant;

impl TimeWait {
    /// Notes a record of another table, as [`TimeWait::enter`] does, that goes at `expires`: or
    /// earlier, when one that enters now would. Of several the one that goes first comes first, and
    /// before all that have entered here; else it goes when the one before it does.
    pub(crate) fn adopt(
        &mut self,
        (hash, tuple): (u64, &Tuple),
        final_state: &FinalState,
        distance: Distance,
        now: Instant,
        expires: Instant,
    ) -> u64 {
        debug_assert!(!self.holds(hash, tuple), "{tuple:?} has a record");
        let evicted = if self.len >= self.limit { self.make_room(now) } else { 0 };
        if self.limit == 0 {
            return 1;
        }
        let TimeWait { classes, handles, hasher, .. } = self;
        let class = &mut classes[distance as usize];
        let times = (now, expires);
        let expires_ms = if tuple.is_ipv6() {
            class.v6.adopt((hash, tuple), final_state, times, Lent { handles, hasher })
        } else {
            class.v4.adopt((hash, tuple), final_state, times, Lent { handles, hasher })
        };
        let Some(expires_ms) = expires_ms else { return evicted + 1 };
        self.earliest_ms = self.earliest_ms.min(expires_ms);
        self.len += 1;
        self.near += u64::from(distance != Distance::Far);
        evicted
    }
}

impl<R: Row> RecordSet<R> {
    fn adopt(
        &mut self,
        ends: (u64, &Tuple),
        final_state: &FinalState,
        (now, expires): (Instant, Instant),
        Lent { handles, hasher }: Lent<'_>,
    ) -> Option<u64> {
        if self.index.is_due() {
            self.keep_up(super::Finder { handles, hasher });
        }
        let longest_ms = ceil_ms(now).saturating_add(self.term_ms);
        // Expiry walks from the front: nobody waits for one that goes before those ahead of it.
        let least_ms = self.queue.last_ms();
        let expires_ms = ceil_ms(expires).max(least_ms).min(longest_ms);
        self.keep(ends, final_state, expires_ms, handles)
    }
}
