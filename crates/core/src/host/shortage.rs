//! What happens when buffer memory runs short: who waits for pages, who gets the next ones, and
//! which connections are reset so that there are some. The one place for this policy.
//!
//! ```text
//!   write ─ refused by the pool ─▶ line ─ pages came back ─▶ in turn, told that it can write
//!   a timer fired, text is unsent ─▶ stalled ─ a claim was refused ─▶ reset, the longest first
//! ```
//!
//! A connection is *stalled* if the peer acknowledges fewer bytes than
//! [`TcpConfig::stalled_rate`](crate::config::TcpConfig::stalled_rate) allows: a closed window, a
//! window of a byte now and then, or no answer. Stalled connections keep what they hold until
//! others need it, but for orphans: those have
//! [`TcpConfig::orphan_timeout`](crate::config::TcpConfig::orphan_timeout).

mod stalled;

use alloc::collections::VecDeque;

use super::Host;
use super::slot::Slot;
use crate::counters::Counters;
use crate::error::Error;
use crate::event::{ConnectionId, Readiness};
use crate::tcp::Connection;
use crate::tcp::connection::{Blocked, Shape};
use crate::tcp::pool::PagePool;
use crate::tcp::timers::Timer;
use crate::time::{Duration, Instant};
use stalled::{Mark, Stalled};

/// Pages that must be there for each writer that is told it can go on, in a large pool: to be told
/// for every page would cost more than the page is worth.
const TURN_PAGES: usize = 16;

/// Stalled connections that are judged in one turn, at most.
const JUDGED_A_TURN: usize = 256;

/// Places of closed connections in the line, beyond as many as there are connections.
const STALE_MAX: usize = 1024;

/// The line for pages, and those who hold pages and stall.
#[derive(Debug, Default)]
pub(super) struct Shortage {
    line: VecDeque<ConnectionId>,
    stalled: Stalled,
}

/// How a stalled connection holds what it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    ClosedWindow,
    Orphan,
    Slow,
}

impl Cause {
    fn counter(self, counters: &mut Counters) -> &mut u64 {
        match self {
            Cause::ClosedWindow => &mut counters.reset_for_memory_closed_window,
            Cause::Orphan => &mut counters.reset_for_memory_orphan,
            Cause::Slow => &mut counters.reset_for_memory_slow,
        }
    }
}

/// What is to be thought of a connection in the list of stalled ones.
enum Verdict {
    /// It holds nothing any more.
    Clear,
    /// It has made progress since.
    Moves,
    /// It has not.
    Stalled(Cause),
}

impl Shortage {
    /// True if nobody waits in line.
    #[inline]
    pub(super) fn nobody_waits(&self) -> bool {
        self.line.is_empty()
    }

    /// True if one that waits in line can be told to go on.
    pub(super) fn can_serve(&self, pool: &PagePool) -> bool {
        !self.line.is_empty() && pool.available_in_line() >= turn_pages(pool)
    }
}

/// Pages for a turn of one that waits.
fn turn_pages(pool: &PagePool) -> usize {
    (pool.limit() / 64).clamp(1, TURN_PAGES)
}

/// Pages that are to be free once some were short.
fn pages_wanted(pool: &PagePool) -> usize {
    (pool.limit() / 32).max(turn_pages(pool))
}

impl Connection {
    /// True if it holds text that was sent, or could not be, and a timer had to see to it.
    fn seems_stalled(&self) -> bool {
        self.synchronized().is_some_and(|s| {
            let is_waiting = s.probe_due || s.push_due || s.send.rtt.backoff() > 0;
            is_waiting && !s.send.buffer.is_empty()
        })
    }

    /// What to think of it: with `rate` bytes a second acknowledged since `mark` it moves.
    fn progress(&self, now: Instant, mark: Mark, rate: u32) -> Verdict {
        let Some(s) = self.synchronized().filter(|s| !s.send.buffer.is_empty()) else {
            return Verdict::Clear;
        };
        let acked = s.send.una.since(mark.una);
        let expected = now.since(mark.since).as_millis().saturating_mul(u128::from(rate)) / 1000;
        if acked > 0 && u128::from(acked) >= expected {
            Verdict::Moves
        } else if self.orphan {
            Verdict::Stalled(Cause::Orphan)
        } else if s.send.window == 0 {
            Verdict::Stalled(Cause::ClosedWindow)
        } else {
            Verdict::Stalled(Cause::Slow)
        }
    }
}

impl Host {
    // ---- the line

    /// A write took less than there was room for: `rest` is what the pool did not take. If the
    /// writer's turn has come it takes more now; else it waits in line. Returns how many bytes were
    /// taken.
    #[cold]
    pub(super) fn write_rest(&mut self, id: ConnectionId, rest: &[u8]) -> usize {
        let Some(slot) = self.slots.get_mut(id.index) else { return 0 };
        let (connection, pool) = (slot.connection_mut(), &mut self.shared.pool);
        let Shape::Synchronized(s) = &mut connection.shape else { return 0 };
        let mut taken = 0;
        if connection.blocked == Blocked::InTurn {
            taken = pool.in_turn(|pool| s.send.buffer.write(rest, pool));
        }
        if taken < rest.len() {
            self.wait_for_pages(id);
        } else if connection.blocked != Blocked::ForPages {
            connection.blocked = Blocked::ForRoom;
        }
        taken
    }

    /// The writer of that connection waits in line.
    #[cold]
    pub(super) fn wait_for_pages(&mut self, id: ConnectionId) {
        let Some(slot) = self.slots.get_mut(id.index) else { return };
        let blocked = &mut slot.connection_mut().blocked;
        if core::mem::replace(blocked, Blocked::ForPages) == Blocked::ForPages {
            return;
        }
        self.shared.counters.writes_short_of_pages += 1;
        let Host { slots, shortage, .. } = self;
        if shortage.line.len() > slots.len() + STALE_MAX {
            shortage.line.retain(|id| slots.is_current(id.index, id.generation));
        }
        shortage.line.push_back(id);
        self.shared.pool.keep_line(true);
    }

    /// Pages were short: makes some free, and tells those at the front of the line.
    #[cold]
    pub(super) fn ease_shortage(&mut self, now: Instant) {
        self.reset_stalled(now);
        self.serve_line();
    }

    /// Tells as many as there are pages for that they can write.
    fn serve_line(&mut self) {
        let turn = turn_pages(&self.shared.pool);
        let mut free = self.shared.pool.available_in_line();
        while free >= turn
            && let Some(id) = self.shortage.line.pop_front()
        {
            let is_current = self.slots.is_current(id.index, id.generation);
            let Some(slot) = self.slots.get_mut(id.index).filter(|_| is_current) else { continue };
            let connection = slot.connection_mut();
            if connection.blocked == Blocked::ForPages {
                connection.blocked = Blocked::InTurn;
                connection.notices |= Readiness::WRITABLE;
                free -= turn;
                self.tell_notices(id);
            }
        }
        self.shared.pool.keep_line(!self.shortage.line.is_empty());
    }

    // ---- those who stall

    /// A timer of the connection in slot `index` has fired: it may be one that stalls.
    #[inline]
    pub(super) fn note_stall(&mut self, now: Instant, index: u32) {
        let Some(slot) = self.slots.get_mut(index) else { return };
        if slot.awake().is_some_and(Connection::seems_stalled)
            && self.shortage.stalled.mark(index).is_none()
        {
            self.list_stalled(now, index);
        }
    }

    /// Its progress counts from now on.
    #[cold]
    fn list_stalled(&mut self, now: Instant, index: u32) {
        let connection = self.slots.get(index).and_then(Slot::awake);
        if let Some(s) = connection.and_then(Connection::synchronized) {
            self.shortage.stalled.push(index, Mark { since: now, una: s.send.una });
        }
    }

    /// The connection in slot `index` is over.
    #[inline]
    pub(super) fn forget_stall(&mut self, index: u32) {
        if !self.shortage.stalled.is_empty() {
            self.shortage.stalled.remove(index);
        }
    }

    /// Resets connections, those that have stalled longest first, until enough pages are free.
    fn reset_stalled(&mut self, now: Instant) {
        let wanted = pages_wanted(&self.shared.pool);
        for _ in 0..JUDGED_A_TURN {
            if self.shared.pool.available_in_line() >= wanted {
                self.shared.pool.forget_refusal();
                return;
            }
            let Some((index, mark)) = self.shortage.stalled.first() else { break };
            if now.since(mark.since) < self.shared.config.stalled_after {
                break;
            }
            match self.verdict(now, index, mark) {
                Verdict::Clear => self.shortage.stalled.remove(index),
                Verdict::Moves => self.list_stalled(now, index),
                Verdict::Stalled(cause) => {
                    *cause.counter(&mut self.shared.counters) += 1;
                    self.reset(now, index, Error::Limit("memory: the peer takes no data"));
                }
            }
        }
        if self.shortage.nobody_waits() {
            self.shared.pool.forget_refusal();
        }
    }

    fn verdict(&self, now: Instant, index: u32, mark: Mark) -> Verdict {
        let rate = self.shared.config.stalled_rate;
        let connection = self.slots.get(index).and_then(Slot::awake);
        connection.map_or(Verdict::Clear, |c| c.progress(now, mark, rate))
    }

    fn reset(&mut self, now: Instant, index: u32, error: Error) {
        self.shortage.stalled.remove(index);
        self.change(now, index, |connection, cx| connection.abort(error, cx));
        self.retire(index);
    }

    /// When a connection can be judged of whose pages others have need.
    pub(super) fn shortage_deadline(&self) -> Option<Instant> {
        if self.shortage.nobody_waits() {
            return None;
        }
        let (_, mark) = self.shortage.stalled.first()?;
        Some(mark.since + self.shared.config.stalled_after)
    }

    // ---- orphans

    /// How long a connection without a user may go on holding text on which nothing moves.
    pub(super) fn orphan_patience(&self) -> Duration {
        let patience = self.shared.config.orphan_timeout;
        if self.shared.pool.is_scarce() { patience / 4 } else { patience }
    }

    /// The patience with an orphan may be over. Returns true if it was reset.
    pub(super) fn judge_orphan(&mut self, now: Instant, index: u32) -> bool {
        let patience = self.orphan_patience();
        let mark = self.shortage.stalled.mark(index);
        // One that no timer has seen to has moved until now, or seemed to.
        let verdict = mark.map_or(Verdict::Moves, |mark| self.verdict(now, index, mark));
        let over_at = mark.map_or(now, |mark| mark.since) + patience;
        let again = match verdict {
            Verdict::Clear => return false,
            Verdict::Stalled(_) if over_at <= now => {
                self.shared.counters.orphans_timed_out += 1;
                self.reset(now, index, Error::TimedOut);
                return true;
            }
            Verdict::Stalled(_) => over_at,
            Verdict::Moves => {
                self.list_stalled(now, index);
                now + patience
            }
        };
        if let Some(slot) = self.slots.get_mut(index) {
            slot.connection_mut().deadlines.set(Timer::Lifetime, again);
        }
        false
    }
}
