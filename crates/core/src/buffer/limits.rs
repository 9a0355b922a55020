//! What may be in use, by purpose, out of a limit that may move.

use super::PagePool;

/// What is for holders elsewhere of what senders may have, though senders wait in line: so much of
/// it is one in.
const PART_ELSEWHERE: usize = 4;

/// Pools of fewer pages than this keep no reserve: an eighth of them would be next to nothing.
pub(super) const RESERVED_FROM: usize = 64;

/// What may be in use once a page is given, by purpose, of so many units, if connections take
/// nothing.
pub(super) fn shares_of(limit: usize, per_page: usize) -> [usize; 3] {
    let sixteenth = if limit / per_page < RESERVED_FROM { 0 } else { limit / 16 };
    [limit - 2 * sixteenth, limit - sixteenth, limit]
}

/// How many are in use where less than a quarter of `limit` is left, with so many set aside.
pub(super) fn scarce_from(limit: usize, set_aside: usize) -> usize {
    (limit - limit / 4 + 1).saturating_sub(set_aside)
}

impl PagePool {
    /// Pages that there may be.
    pub fn limit(&self) -> usize {
        self.limit / self.per_page
    }

    /// Pages that everybody can still take: connections for as long as they live, and senders that
    /// hold pages and wait for no other.
    pub(crate) fn left_to_all(&self) -> usize {
        let senders = self.more.saturating_sub(self.in_use);
        senders.min(self.left_for_connections()) / self.per_page
    }

    /// Lets there be so many pages from now on.
    pub(crate) fn set_limit(&mut self, pages: usize) {
        self.limit = pages.saturating_mul(self.per_page);
        self.shares = shares_of(self.limit, self.per_page);
        self.set_aside_for_connections();
        self.shed_excess();
    }

    /// Sets memory aside for connections, by the memory that they take, and finds the limits.
    pub(super) fn set_aside_for_connections(&mut self) {
        let units = self.by_connections;
        self.set_aside = if units == 0 { 0 } else { units.max(self.limit / 4) };
        self.scarce_from = scarce_from(self.limit, self.set_aside);
        self.set_limits();
    }

    /// Notes whether senders wait in line for pages: while some do, a sender that holds pages and
    /// has not waited gets no more.
    pub fn keep_line(&mut self, waits: bool) {
        if waits != self.has_line {
            self.has_line = waits;
            self.set_limits();
        }
    }

    /// Finds what may be in use once a page is given, by purpose.
    pub(super) fn set_limits(&mut self) {
        let [more, first, received] = self.shares.map(|share| share.saturating_sub(self.set_aside));
        self.for_senders = more;
        let kept = if self.elsewhere_is_wanted {
            self.part_elsewhere().saturating_sub(self.elsewhere)
        } else {
            0
        };
        self.more = more - kept;
        // What is on its way into pages has more than its half: it has to find some.
        let first = if self.elsewhere > more / 2 { received } else { first };
        let waits_with_others = self.has_line && self.has_one_line;
        self.limits = [
            if self.has_line { 0 } else { self.more },
            if waits_with_others { 0 } else { first },
            received,
        ];
    }

    /// Units that are for holders elsewhere, though senders wait.
    pub(super) fn part_elsewhere(&self) -> usize {
        self.for_senders / PART_ELSEWHERE
    }
}
