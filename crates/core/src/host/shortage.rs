//! What happens when buffer memory runs short: which connections wait for pages, which one gets the
//! next page, and which are reset to free some. This is the one place for it: `policy` has the
//! orders in which connections wait, `line` the waiting, `shares` what each may hold.
//!
//! ```text
//!   write ─ refused by the pool ─▶ line ─ pages came back ─▶ in turn, told that it can write
//!           (those that hold no page stand in a line of their own, and come first)
//!   a timer fired, text is unsent ─▶ stalled ─ a claim was refused ─▶ asked to take back what was
//!           never sent ─ that of all was not enough ─▶ reset, those first that were asked first
//!           (those that hold next to nothing only for writers that hold no page)
//! ```
//!
//! What was never sent, and can be had again (from a file), is no reason to reset a connection: its
//! user takes it back ([`Host::take_back`]) and writes it again once the peer takes data.
//!
//! A connection is *stalled* if the peer acknowledges fewer bytes than
//! [`StallConfig::rate`](crate::config::StallConfig::rate) allows, and less than half
//! of what is held for it: a closed window, a window of a byte now and then, or no answer. Stalled
//! connections keep what they hold until others need it, but for orphans: those have
//! [`TimeoutConfig::orphan`](crate::config::TimeoutConfig::orphan).
//!
//! Where there is no room for more connections, a peer must take sixteen times as much: else those
//! just above the rate, as many as there is memory for, would keep all others out.

mod line;
mod policy;
mod shares;
pub(super) mod stalled;
mod taking_back;

use super::Host;
use crate::buffer::PagePool;
use crate::config::PoolConfig;
use crate::counters::Counters;
use crate::error::Error;
use crate::tcp::Connection;
use crate::tcp::connection::Synchronized;
use crate::tcp::slot::Slot;
use crate::tcp::timers::Timer;
use crate::time::{Duration, Instant};
pub use line::PoolInfo;
use line::{Waiting, turn_pages};
use shares::Shares;
pub(super) use shares::{options, pool};
use stalled::{Mark, Stage, Stalled};

/// How much more a peer must take where there is no room for more connections, and none that waits
/// for a request can go: 16,000 bytes a second by default.
const CROWDED: u32 = 16;

/// Where newcomers find no room, or others have waited for memory as long, a connection whose
/// peer's window is closed is stalled after so small a part of
/// [`StallConfig::after`](crate::config::StallConfig::after): 188 ms by default. As many peers as
/// come in that time have to find room, for newcomers to find some.
const CROWDED_PATIENCE: u32 = 16;

/// Pages of a connection that holds next to nothing, at most: what is in flight and waits to be
/// sent on a slow path. Its reset would make room for those alone that hold nothing.
const SPENT_PAGES: usize = 4;

/// Stalled connections that are judged in one turn, at most.
const JUDGED_A_TURN: usize = 256;

/// The time between two looks for connections that hold text and are in no list. A look may miss
/// the processor's caches at every slot, and a busy host has tens of thousands of turns a second.
const PATROL_EVERY: Duration = Duration::from_micros(500);

/// Slots in one look: half a million a second.
const PATROLLED: u32 = 256;

/// Slots in one look where memory is scarce and not yet short: the connections that stall must be
/// known before it is short.
const PATROLLED_AHEAD: u32 = 64;

/// The line for pages, and the connections that hold pages and stall.
#[derive(Debug)]
pub(super) struct Shortage {
    waiting: Waiting,
    shares: Shares,
    /// Since when others could hold no more elsewhere, though they would.
    elsewhere_since: Option<Instant>,
    /// Since when those that are to go hold most of the memory; counted from a wait on.
    laden_since: Option<Instant>,
    stalled: Stalled,
    /// Bytes that were asked back last.
    asked_bytes: usize,
    /// Since when no connection was reset, because some may still answer.
    holds_off_since: Option<Instant>,
    /// The next slot to look at for connections that stall and that no timer tells of, and the time
    /// of the next look.
    patrol: u32,
    patrol_at: Instant,
    round: Round,
}

/// A round through the list for closed windows: what it did not come to in one turn, it comes to
/// in the next.
#[derive(Clone, Copy, Debug)]
struct Round {
    /// The slot that it has come to; `None`: it begins again.
    at: Option<u32>,
    /// It goes on no sooner.
    not_before: Instant,
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

    /// The words that the connection's user hears.
    fn text(self) -> &'static str {
        match self {
            Cause::ClosedWindow | Cause::Orphan => "memory: the peer takes no data",
            Cause::Slow => "memory: the peer takes too little data",
        }
    }
}

/// The judgement of a connection in the list of stalled ones.
enum Verdict {
    /// It holds nothing any more.
    Clear,
    /// It has made progress since.
    Moves,
    /// It has not.
    Stalled(Cause),
}

impl Shortage {
    /// An empty line, by the policy of that configuration.
    pub(super) fn new(config: &PoolConfig) -> Self {
        Shortage {
            waiting: Waiting::new(config),
            shares: Shares::new(config),
            elsewhere_since: None,
            laden_since: None,
            stalled: Stalled::default(),
            asked_bytes: 0,
            holds_off_since: None,
            patrol: 0,
            patrol_at: Instant::ZERO,
            round: Round { at: None, not_before: Instant::ZERO },
        }
    }

    /// True if no connection waits in line.
    pub(super) fn nobody_waits(&self) -> bool {
        self.waiting.is_empty()
    }

    /// True if a writer that waits in line can go on.
    pub(super) fn can_serve(&self, pool: &PagePool) -> bool {
        self.waiting.can_serve(pool)
    }

    /// When the longest wait for memory began that the reset of a connection in that stage would
    /// end, in line or elsewhere; `None` if there is none.
    fn waits_since(&self, stage: Stage) -> Option<Instant> {
        if stage == Stage::Spent {
            return self.waiting.newcomers_since();
        }
        self.waiting.since().into_iter().chain(self.elsewhere_since).min()
    }
}

/// Pages that are to be free once some were short.
fn pages_wanted(pool: &PagePool) -> usize {
    (pool.limit() / 32).max(turn_pages(pool))
}

/// True if connections that stall should go.
fn is_short(pool: &PagePool) -> bool {
    pool.available_in_line() < pages_wanted(pool)
        || pool.is_short_for_newcomers()
        || pool.is_short_elsewhere()
}

impl Synchronized {
    /// True if the peer allows less than two segments more.
    fn has_narrow_window(&self) -> bool {
        self.send.window_edge().distance(self.send.nxt) < 2 * i32::from(self.send.mss)
    }

    /// True if it holds text, and the peer allows none of it.
    fn has_closed_window(&self) -> bool {
        self.send.window == 0 && !self.send.buffer.is_empty()
    }
}

impl Connection {
    /// True if it holds text that was sent, or could not be, and a timer had to see to it.
    fn seems_stalled(&self) -> bool {
        self.synchronized().is_some_and(|s| {
            let is_waiting = s.probe_due || s.push_due || s.send.rtt.backoff() > 0;
            is_waiting && !s.send.buffer.is_empty()
        })
    }

    /// What to think of it: with `rate` bytes a second acknowledged since `mark`, or half of what
    /// it held, it moves. Where it is `crowded`, one that its peer's window holds up, and that has
    /// been given more since, has to keep a higher rate.
    fn progress(&self, now: Instant, mark: Mark, rate: u32, crowded: bool) -> Verdict {
        let Some(s) = self.synchronized().filter(|s| !s.send.buffer.is_empty()) else {
            return Verdict::Clear;
        };
        // One with an open window may be slow because there are no pages for it.
        let crowded = crowded && s.has_narrow_window();
        let rate = if crowded { rate.saturating_mul(CROWDED) } else { rate };
        let acked = s.send.una.since(mark.una);
        let at_rate = now.since(mark.since).as_millis().saturating_mul(u128::from(rate)) / 1000;
        // Half of all is much, however little that is: what is left is soon gone.
        let is_refilled = acked as usize >= mark.held;
        let expected =
            if crowded && is_refilled { at_rate } else { at_rate.min(mark.held as u128 / 2) };
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
    /// Pages were short: makes some free, and tells those at the front of the line.
    pub(super) fn ease_shortage(&mut self, now: Instant) {
        let waits_elsewhere = self.shared.pool.is_short_elsewhere();
        let since = self.shortage.elsewhere_since.unwrap_or(now);
        self.shortage.elsewhere_since = waits_elsewhere.then_some(since);
        let since = self.shortage.laden_since.unwrap_or(now);
        self.shortage.laden_since = self.those_to_go_hold_most().then_some(since);
        self.reclaim(now);
        self.serve_line(now);
        self.scan_shares(now);
    }

    // ---- connections that stall

    /// A timer of the connection in slot `index` has fired: it may be one that stalls.
    pub(super) fn note_stall(&mut self, now: Instant, index: u32) {
        let Some(slot) = self.slots.get_mut(index) else { return };
        if slot.awake().is_some_and(Connection::seems_stalled)
            && self.shortage.stalled.mark(index).is_none()
        {
            self.list_stalled(now, index);
        }
    }

    /// Its progress counts from now on.
    fn list_stalled(&mut self, now: Instant, index: u32) {
        if let Some(s) = self.at_work(index) {
            let (una, buffer) = (s.send.una, &s.send.buffer);
            let (held, units) = (buffer.len(), buffer.units());
            let mark = Mark { since: now, una, held, units, stage: Stage::Listed };
            self.shortage.stalled.push(index, mark);
        }
    }

    /// The connection in slot `index` is over.
    pub(super) fn forget_stall(&mut self, index: u32) {
        if !self.shortage.stalled.is_empty() {
            self.shortage.stalled.remove(index);
        }
        self.forget_orphan(index);
    }

    /// Has connections give back pages, those that have stalled longest first, until enough are
    /// free.
    fn reclaim(&mut self, now: Instant) {
        if self.shortage.stalled.all_have_answered() {
            (self.shortage.asked_bytes, self.shortage.holds_off_since) = (0, None);
        }
        for _ in 0..JUDGED_A_TURN {
            if !is_short(&self.shared.pool) {
                self.shared.pool.forget_refusal();
                return;
            }
            if self.has_asked_enough() {
                break;
            }
            let Some((index, mark)) = self.shortage.stalled.first() else { break };
            if now.since(mark.since) < self.shared.config.stall.after {
                break;
            }
            match self.verdict(now, index, mark, self.memory_is_crowded()) {
                Verdict::Clear => self.shortage.stalled.remove(index),
                Verdict::Moves => self.list_stalled(now, index),
                Verdict::Stalled(cause) => self.ask_back(index, mark, cause),
            }
        }
        self.patrol(now, PATROLLED, |s| !s.send.buffer.is_empty());
        self.reclaim_closed(now);
        self.reset_last(now);
        // The connections whose answer is awaited are looked at again.
        if self.shortage.nobody_waits() && self.shortage.stalled.all_have_answered() {
            self.shared.pool.forget_refusal();
        }
    }

    /// Reclaims pages from connections whose windows are closed, though they have stalled for a
    /// short time only: a request harms none. While newcomers find no room, or a wait for memory
    /// has lasted as long, they are reset as soon. Else as many peers as come within
    /// [`StallConfig::after`](crate::config::StallConfig::after) would keep all others out.
    fn reclaim_closed(&mut self, now: Instant) {
        if now < self.shortage.round.not_before {
            return;
        }
        let patience = self.closed_patience();
        for _ in 0..JUDGED_A_TURN {
            if !is_short(&self.shared.pool) || self.has_asked_enough() {
                return;
            }
            let Shortage { stalled, round, .. } = &mut self.shortage;
            let here = round.at.and_then(|at| Some((at, stalled.mark(at)?)));
            let here = here.filter(|(_, mark)| mark.stage == Stage::Listed);
            let Some((index, mark)) = here.or_else(|| stalled.first()) else { return };
            if now.since(mark.since) < patience {
                // All behind it came later.
                *round = Round { at: None, not_before: mark.since + patience };
                return;
            }
            let next = stalled.after(index).map(|(next, _)| next);
            *round = Round { at: next, not_before: now };
            if next.is_none() {
                round.not_before = now + patience;
            }
            self.judge_closed(now, index, mark);
            if next.is_none() {
                return;
            }
        }
    }

    /// True if stalled connections that can take nothing back hold most of the memory. Then the
    /// others share what is left, and that may be next to nothing, though none of them waits for
    /// long at a time.
    fn those_to_go_hold_most(&self) -> bool {
        let Host { shortage, shared, slots, .. } = self;
        let (connections, units) = shortage.stalled.to_go();
        let their_own = shared.pool.units_of_connections(connections, slots.len());
        shared.pool.is_most(units + their_own)
    }

    /// When a connection with that mark, which is to make room, may be reset: not before newcomers
    /// find no room, or for a while a connection has waited for memory or those that are to go have
    /// held most of it.
    fn reset_at(&self, mark: Mark) -> Option<Instant> {
        let patience = self.closed_patience();
        let Shortage { laden_since, .. } = &self.shortage;
        let pressed = match self.shared.pool.is_short_for_newcomers() {
            true => Some(Instant::ZERO),
            false => {
                let waits_since = self.shortage.waits_since(mark.stage);
                let since = waits_since.into_iter().chain(*laden_since).min();
                since.map(|since| since + patience)
            }
        };
        pressed.map(|from| from.max(mark.since + patience))
    }

    /// The connection in slot `index` is to make room if its window is closed and it has taken too
    /// little since `mark`. Others have until they are judged by their rate.
    fn judge_closed(&mut self, now: Instant, index: u32, mark: Mark) {
        match self.verdict(now, index, mark, true) {
            Verdict::Clear => self.shortage.stalled.remove(index),
            Verdict::Moves => self.list_stalled(now, index),
            Verdict::Stalled(cause) => {
                if self.at_work(index).is_some_and(Synchronized::has_closed_window) {
                    self.ask_back(index, mark, cause);
                }
            }
        }
    }

    /// How long a window may be closed where newcomers find no room.
    fn closed_patience(&self) -> Duration {
        self.shared.config.stall.after / CROWDED_PATIENCE
    }

    /// No connection waits for memory. Where it is scarce, finds out which connections stall before
    /// it is short.
    pub(super) fn no_shortage(&mut self, now: Instant) {
        self.shortage.elsewhere_since = None;
        if self.shortage.laden_since.is_some() && !self.those_to_go_hold_most() {
            self.shortage.laden_since = None;
        }
        if self.shared.pool.is_scarce() {
            self.patrol(now, PATROLLED_AHEAD, Synchronized::has_closed_window);
        }
    }

    /// Looks at so many slots, and adds those to the list that may stall, though no timer of theirs
    /// has fired: a peer that acknowledges a byte now and then keeps every timer from firing.
    fn patrol(&mut self, now: Instant, slots: u32, may_stall: fn(&Synchronized) -> bool) {
        if now < self.shortage.patrol_at {
            return;
        }
        self.shortage.patrol_at = now + PATROL_EVERY;
        let end = self.slots.end();
        for _ in 0..slots.min(end) {
            let index = self.shortage.patrol % end;
            self.shortage.patrol = index + 1;
            let Some(s) = self.at_work(index).filter(|s| may_stall(s)) else { continue };
            let has_refilled =
                |mark: Mark| mark.stage == Stage::Spent && s.send.buffer.len() > mark.held;
            if self.shortage.stalled.mark(index).is_none_or(has_refilled) {
                self.list_stalled(now, index);
            }
        }
    }

    /// True if those that are slow should go as well.
    fn memory_is_crowded(&self) -> bool {
        self.shared.pool.is_crowded() || self.shared.pool.is_short_elsewhere()
    }

    /// What to think of the connection in slot `index`, where it is `crowded` or not.
    fn verdict(&self, now: Instant, index: u32, mark: Mark, crowded: bool) -> Verdict {
        let rate = self.shared.config.stall.rate;
        let connection = self.slots.get(index).and_then(Slot::awake);
        connection.map_or(Verdict::Clear, |c| c.progress(now, mark, rate, crowded))
    }

    /// The connection in slot `index`, if it is synchronized and does not rest.
    fn at_work(&self, index: u32) -> Option<&Synchronized> {
        self.slots.get(index).and_then(Slot::awake).and_then(Connection::synchronized)
    }

    fn reset(&mut self, now: Instant, index: u32, error: Error) {
        self.shortage.stalled.remove(index);
        self.shared.pool.expect_end_of_connection(self.slots.len());
        self.change(now, index, |connection, cx| connection.abort(error, cx));
        self.retire(index);
    }

    /// When a promise ends, or a connection can be judged of whose pages others have need.
    pub(super) fn shortage_deadline(&self) -> Option<Instant> {
        let Shortage { waiting, stalled, round, .. } = &self.shortage;
        let pool = &self.shared.pool;
        // Without any of these nothing is done about it, either.
        let waits_for_answer = pool.was_refused() && !stalled.all_have_answered();
        if self.shortage.nobody_waits() && !pool.is_short_elsewhere() && !waits_for_answer {
            return None;
        }
        let promise = waiting.promised_until();
        let can_ask = is_short(pool) && !self.has_asked_enough();
        let judged = stalled.first().filter(|_| can_ask).map(|(_, mark)| {
            let by_rate = mark.since + self.shared.config.stall.after;
            (mark.since + self.closed_patience()).max(round.not_before).min(by_rate)
        });
        let to_go = stalled.first_to_go().filter(|_| is_short(pool));
        let to_go = to_go.and_then(|(_, mark)| self.goes_at(mark));
        promise.into_iter().chain(judged).chain(to_go).min()
    }

    // ---- orphans

    /// How long a connection without a user may go on holding text that the peer does not take.
    pub(super) fn orphan_patience(&self) -> Duration {
        self.if_scarce(self.shared.config.timeout.orphan)
    }

    /// How long the connection without a user in slot `index` may hold text that the peer does not
    /// take. What is in flight and not acknowledged at all may be lost on the way: such a
    /// connection has as long as any. (R2 of RFC 9293 SHLD-11 is 100 s at least; 30 s are four
    /// retransmissions on a path that loses much.)
    fn patience_with(&self, index: u32, mark: Option<Mark>) -> Duration {
        let s = self.at_work(index);
        let has_moved = |s: &Synchronized| mark.is_some_and(|mark| mark.una != s.send.una);
        let is_silent = s.is_some_and(|s| s.send.flight() > 0 && !has_moved(s));
        let config = &self.shared.config;
        self.if_scarce(if is_silent { config.timeout.user } else { config.timeout.orphan })
    }

    /// A quarter of `patience` where memory is scarce.
    fn if_scarce(&self, patience: Duration) -> Duration {
        if self.shared.pool.is_scarce() { patience / 4 } else { patience }
    }

    /// True if as much as a segment holds was acknowledged since `mark`: half an MSS, since options
    /// take their part.
    fn has_acked_segment(&self, index: u32, mark: Mark) -> bool {
        let s = self.at_work(index);
        s.is_some_and(|s| {
            !s.send.buffer.is_empty() && s.send.una.since(mark.una) >= u32::from(s.send.mss) / 2
        })
    }

    /// The patience with an orphan may be over. Returns true if it was reset.
    pub(super) fn judge_orphan(&mut self, now: Instant, index: u32) -> bool {
        let mark = self.shortage.stalled.mark(index);
        let patience = self.patience_with(index, mark);
        // One that no timer has seen to has moved until now, or seemed to.
        let verdict = match mark {
            // A segment is enough where no connection needs the memory: the path may lose most of
            // them.
            Some(mark) if self.has_acked_segment(index, mark) => Verdict::Moves,
            Some(mark) => self.verdict(now, index, mark, self.memory_is_crowded()),
            None => Verdict::Moves,
        };
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
