//! How records leave a record set: at its front, when their time is over or to make room.

use super::queue::{Front, Located};
use super::row::Row;
use super::{Finder, Handles, NUMBERS_MAX, RecordSet};
use crate::flow::TupleHasher;
use crate::time::Instant;

/// Records moved at most at a time, when the queue is made shorter.
const MOVES: u32 = 16;
/// Rows looked at for them at most.
const LOOKS: u32 = 256;
/// Lines of the index joined at most at a time, and one for four records that expire.
const JOINS: u32 = 8;

impl<R: Row> RecordSet<R> {
    /// The record at the front goes; returns when it would have expired.
    pub(super) fn drop_front(
        &mut self,
        now: Instant,
        handles: &mut Handles,
        hasher: &TupleHasher,
    ) -> Option<u64> {
        let Front::Passed { number, expires_ms } = self.queue.pass(now.as_millis(), true) else {
            return None;
        };
        self.let_go(number, handles);
        self.tidy(JOINS, Finder { handles, hasher });
        Some(expires_ms)
    }

    /// A record that was passed is no more.
    fn let_go(&mut self, number: u32, handles: &mut Handles) {
        if let Some(seen) = self.queue.row(number) {
            handles.give_back(seen.row.common().handle());
        }
        self.live -= 1;
        self.queue.release(number);
    }

    /// Queues again what was passed and has time left.
    fn requeue(&mut self, number: u32, expires_ms: u64, finder: Finder<'_>) {
        let Some(Located { row, .. }) = self.queue.row(number) else { return };
        let (row, hash) = (*row, finder.hash(row));
        // First, for the new row may need a new block, and the old block may be the last.
        self.queue.release(number);
        let new = self.queue.push(row, expires_ms);
        let span = self.queue.span();
        // The old number is past now, and so that of the index's entry is found by itself.
        self.index.replace(hash, number, new, span.first);
    }

    /// Drops what is due, about `share` records at most, which it takes from that; how many.
    pub(super) fn on_time(
        &mut self,
        now: Instant,
        share: &mut usize,
        handles: &mut Handles,
        hasher: &TupleHasher,
    ) -> usize {
        if self.queue.is_empty() {
            return 0;
        }
        let now_ms = now.as_millis();
        let mut expired = 0;
        while *share > 0 {
            let due = self.queue.pass_due(now_ms, |row| handles.give_back(row.common().handle()));
            self.live -= due;
            expired += due as usize;
            *share = share.saturating_sub(due as usize + 1);
            self.tidy(JOINS + due / 4, Finder { handles, hasher });
            // Records that are due in the next block, or late, are queued again.
            let Front::Passed { number, expires_ms } = self.queue.pass(now_ms, false) else {
                break;
            };
            if expires_ms > now_ms {
                self.requeue(number, expires_ms, Finder { handles, hasher });
            } else {
                self.let_go(number, handles);
                expired += 1;
            }
        }
        expired
    }

    /// Queue and index follow what has become fewer, the index by so many lines at most. What is
    /// empty is kept while it is small: where one comes as one goes, the next needs it at once.
    pub(super) fn tidy(&mut self, joins: u32, finder: Finder<'_>) {
        if self.is_long() {
            self.shorten(finder);
        }
        if !self.queue.is_empty() {
            self.index.shrink(self.live, self.queue.span(), joins);
        } else if !self.queue.is_small() || !self.index.is_small() {
            self.queue.clear();
            self.index.clear();
        }
    }

    /// True if there are too many dead records, or numbers of such, or these are being made fewer.
    pub(super) fn is_long(&self) -> bool {
        let (rows, numbers) = (self.queue.rows(), self.queue.span().len);
        // No more records live than `LIMIT_MAX`.
        let twice = 2 * self.live;
        rows > twice + self.dead_max || numbers > twice + NUMBERS_MAX || self.queue.is_sweeping()
    }

    /// Dead records take up room until the front has passed them. If there are too many of them,
    /// those that live are moved together, some at a time.
    pub(super) fn shorten(&mut self, finder: Finder<'_>) {
        let RecordSet { queue, index, .. } = self;
        debug_assert!(queue.span().len < index.span_max());
        let first = queue.span().first;
        queue.sweep(LOOKS, MOVES, |row, old, new| {
            index.replace(finder.hash(row), old, new, first);
        });
    }
}
