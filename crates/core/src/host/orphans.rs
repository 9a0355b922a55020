//! The limit on orphans. Where another user leaves and there are too many, the orphan goes on which
//! nothing has moved for longest: peers that take nothing shall not cost others the end of their
//! answers.
//!
//! ```text
//!   left while there were half as many as the limit ─▶ back of the list
//!   front, one too many ─ its peer has acknowledged something since ─▶ back of the list
//!                       └ nothing ─▶ reset
//! ```
//!
//! Below half the limit none is listed: most orphans are gone a round trip later, and pay nothing.

use super::Host;
use super::shortage::stalled::{Mark, Stage};
use crate::error::Error;
use crate::flow::Seq;
use crate::tcp::Connection;
use crate::tcp::slot::Slot;
use crate::time::Instant;

/// Orphans that get a second chance for one that goes, at most.
const SPARED: usize = 64;

impl Host {
    /// True if the whole orphans are at least half as many as the limit on them.
    pub(super) fn are_orphans_many(&self) -> bool {
        self.whole_orphans() >= self.config.limits.orphans.div_ceil(2)
    }

    /// The user of the connection in slot `index` has left it. Resets an orphan if there are too
    /// many.
    pub(super) fn bound_orphans(&mut self, now: Instant, index: u32) {
        if !self.are_orphans_many() {
            return;
        }
        self.list_orphan(now, index);
        if self.whole_orphans() <= self.config.limits.orphans {
            return;
        }
        for _ in 0..SPARED {
            match self.live.listed_orphans.first() {
                Some((first, mark)) if self.orphan_mark(now, first).una != mark.una => {
                    self.list_orphan(now, first);
                }
                _ => break,
            }
        }
        if let Some((first, _)) = self.live.listed_orphans.first() {
            self.shared.counters.orphans_over_limit += 1;
            self.change(now, first, |orphan, cx| {
                orphan.abort(Error::Limit("orphans: nothing moves"), cx);
            });
            self.retire(first);
        }
    }

    fn list_orphan(&mut self, now: Instant, index: u32) {
        let mark = self.orphan_mark(now, index);
        self.live.listed_orphans.push(index, mark);
    }

    /// What the peer of the orphan in slot `index` has acknowledged.
    fn orphan_mark(&self, now: Instant, index: u32) -> Mark {
        let connection = self.slots.get(index).and_then(Slot::awake);
        let una = connection.and_then(Connection::synchronized).map_or(Seq(0), |s| s.send.una);
        Mark { since: now, una, held: 0, units: 0, stage: Stage::Listed }
    }

    /// The connection in slot `index` is over.
    pub(super) fn forget_orphan(&mut self, index: u32) {
        if !self.live.listed_orphans.is_empty() {
            self.live.listed_orphans.remove(index);
        }
    }
}
