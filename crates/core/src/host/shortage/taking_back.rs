//! Takes back what was written and never sent: what is beyond the buffer's size once the peer has
//! taken nothing for a while, and more where memory is short. Only then are connections reset.

use super::stalled::{Mark, Stage};
use super::{Cause, JUDGED_A_TURN, SPENT_PAGES, Shortage, Verdict, is_short, pages_wanted};
use crate::buffer::PAGE_BYTES;
use crate::error::Error;
use crate::event::{ConnectionId, Readiness};
use crate::host::Host;
use crate::tcp::connection::{Blocked, Connection, Shape, Synchronized};
use crate::time::{Duration, Instant};

/// How long a connection that was asked may take to answer: a turn or two of any driver.
const ANSWER: Duration = Duration::from_millis(10);

impl Synchronized {
    /// Bytes that stay in the send buffer in any case: all that was ever sent, and behind what is
    /// in flight as much as may lie there though the window is closed. The window can be probed,
    /// and there is something to send when it opens.
    fn kept_bytes(&self) -> usize {
        let send = &self.send;
        let sent = send.max.since(send.una) as usize;
        sent.max(send.flight() as usize + (2 * usize::from(send.mss)).max(PAGE_BYTES))
    }

    /// True if something in the send buffer can be taken back.
    fn can_take_back(&self) -> bool {
        !self.send.fin_queued && self.send.buffer.can_cut(self.kept_bytes())
    }
}

impl Host {
    /// Takes back what was written last and never sent, `most` bytes at most, from a connection
    /// that was asked for that ([`Readiness::WANTED_BACK`]). Returns how many bytes it no longer
    /// has: they lay at the end, and whatever is written next follows what was before them. Its
    /// writer hears when the peer has taken so much that there is room again.
    ///
    /// What the send buffer should hold stays, unless others need that too.
    pub fn take_back(&mut self, now: Instant, id: ConnectionId, most: usize) -> usize {
        let mark = self.needed_mark(id);
        if let Some(mark) = mark {
            self.shortage.stalled.push(id.index, Mark { stage: Stage::Last, ..mark });
        }
        let Ok((connection, cx)) = self.connection_and_shared(id) else { return 0 };
        let Connection { common, shape } = connection;
        let Shape::Synchronized(s) = shape else { return 0 };
        let is_asked = s.send.end_asking_back() || mark.is_some();
        if !is_asked || s.send.fin_queued {
            return 0;
        }
        let size = if mark.is_some() {
            0
        } else {
            s.send.capacity(&common.options, cx.sizing(now)) as usize
        };
        let (keep, is_closed) = (s.kept_bytes().max(size), s.send.window == 0);
        let taken = s.send.buffer.cut(keep, most, &mut cx.pool);
        s.send.forget_record_ends();
        let (held, units) = (s.send.buffer.len(), s.send.buffer.units());
        s.send.note_moved(&mut cx.pool);
        if taken > 0 && !common.blocked.is_in_line() {
            common.blocked = Blocked::ForRoom;
        }
        let counters = &mut cx.counters;
        *(if is_closed {
            &mut counters.taken_back_closed_window_bytes
        } else {
            &mut counters.taken_back_slow_bytes
        }) += taken as u64;
        if let Some(mark) = mark {
            self.shortage.stalled.push(id.index, Mark { held, units, stage: Stage::Last, ..mark });
        }
        taken
    }

    /// True if the connection was asked to take back what was never sent, and has not answered.
    pub fn is_wanted_back(&self, id: ConnectionId) -> bool {
        let is_asked = |s: &Synchronized| s.send.is_wanted_back();
        self.needed_mark(id).is_some()
            || self.slots.is_current(id.index, id.generation)
                && self.at_work(id.index).is_some_and(is_asked)
    }

    /// The mark of a connection that was asked because others need what it holds.
    fn needed_mark(&self, id: ConnectionId) -> Option<Mark> {
        let mark = self.shortage.stalled.mark(id.index)?;
        let is_asked = mark.stage == Stage::Asked;
        (is_asked && self.slots.is_current(id.index, id.generation)).then_some(mark)
    }

    /// Others have need of what the connection in slot `index` holds: it is asked to take back what
    /// was never sent, and to give back what it holds to be written; it is reset only after all
    /// others were asked. Once FIN is queued its user can write no more.
    pub(super) fn ask_back(&mut self, index: u32, mark: Mark, cause: Cause) {
        let can_write = self.at_work(index).is_some_and(|s| !s.send.fin_queued);
        if cause == Cause::Orphan || !can_write {
            self.shortage.stalled.push(index, Mark { stage: Stage::Last, ..mark });
            return;
        }
        // What it borrows is free only once all who share it have let go.
        let frees = |s: &Synchronized| s.send.buffer.charged_bytes().saturating_sub(s.kept_bytes());
        self.shortage.asked_bytes += self.at_work(index).map_or(0, frees);
        self.shortage.stalled.push(index, Mark { stage: Stage::Asked, ..mark });
        self.shared.counters.asked_back_for_memory += 1;
        let Some((slot, generation)) = self.slots.named_mut(index) else { return };
        slot.connection_mut().notices |= Readiness::WANTED_BACK;
        self.tell_notices(ConnectionId { index, generation });
    }

    /// True if as much was asked back as is to be free, and not all have answered.
    pub(super) fn has_asked_enough(&self) -> bool {
        let (pool, Shortage { stalled, asked_bytes, .. }) = (&self.shared.pool, &self.shortage);
        !stalled.all_have_answered() && *asked_bytes >= pages_wanted(pool) * pool.page_bytes()
    }

    /// Resets connections that could give back no more, those that were asked first, until enough
    /// pages are free; none as long as one that was asked may answer. Those that hold next to
    /// nothing go last, and only for newcomers or if they hold most of the memory together: large
    /// windows over a quick link ask for more than any pool has, for ever.
    pub(super) fn reset_last(&mut self, now: Instant) {
        for _ in 0..JUDGED_A_TURN {
            let first = self.shortage.stalled.first_to_go();
            let Some((index, mark)) = first.filter(|_| is_short(&self.shared.pool)) else { break };
            if !self.shortage.stalled.all_have_answered() {
                self.shortage.holds_off_since.get_or_insert(now);
            }
            if self.goes_at(mark).is_none_or(|at| now < at) {
                return;
            }
            match self.verdict(now, index, mark, self.memory_is_crowded()) {
                Verdict::Clear => self.shortage.stalled.remove(index),
                Verdict::Moves => self.list_stalled(now, index),
                Verdict::Stalled(cause) if self.has_more_again(index, mark) => {
                    self.ask_back(index, mark, cause);
                }
                Verdict::Stalled(_) if mark.stage != Stage::Spent && self.is_spent(index) => {
                    self.shortage.stalled.push(index, Mark { stage: Stage::Spent, ..mark });
                }
                Verdict::Stalled(cause) => self.reset_for_memory(now, index, cause),
            }
        }
        self.shortage.holds_off_since = None;
    }

    /// True if the connection in slot `index` was given more since it answered.
    fn has_more_again(&self, index: u32, mark: Mark) -> bool {
        let s = self.at_work(index);
        let has_more = |s: &Synchronized| s.send.buffer.len() > mark.held && s.can_take_back();
        mark.stage != Stage::Asked && s.is_some_and(has_more)
    }

    /// True if the connection in slot `index` holds next to nothing.
    fn is_spent(&self, index: u32) -> bool {
        let pool = &self.shared.pool;
        self.at_work(index).is_some_and(|s| s.send.buffer.pages(pool) <= SPENT_PAGES)
    }

    /// When the connection with that mark, which is to make room, is reset.
    pub(super) fn goes_at(&self, mark: Mark) -> Option<Instant> {
        let held_off = self.shortage.holds_off_since.map(|since| since + ANSWER);
        self.reset_at(mark).map(|at| held_off.into_iter().fold(at, Instant::max))
    }

    /// Others have need of what the connection in slot `index` holds.
    fn reset_for_memory(&mut self, now: Instant, index: u32, cause: Cause) {
        *cause.counter(&mut self.shared.counters) += 1;
        self.reset(now, index, Error::Limit(cause.text()));
    }
}
