//! The schemes of 4.4BSD and of Aron & Druschel 1999: every connection in one list, scanned by two
//! ticks for all of them.
//!
//! ```text
//!   scan          every 200 ms   the delayed-ACK flag of every block       (fasttimeo)
//!                 every 500 ms   every counter of every block, minus one   (slowtimeo),
//!                 in TIME-WAIT as well, which is one of the counters
//!   ordered_list  blocks in TIME-WAIT go to the tail, so that the tail is sorted by expiry: the
//!                 fast scan stops at the first of them, the slow one at the first not yet due
//! ```
//!
//! The papers know one length of TIME-WAIT. Where peers that are near have shorter ones, each
//! length has a tail of its own, so that none waits behind one that lasts longer.
//!
//! In TIME-WAIT there are blocks only with
//! [`TimeWaitState::Full`](crate::config::TimeWaitState::Full), as in the papers; else what is left
//! of such a connection is a record in a table of its own, which neither tick sees.
//!
//! Counters are *decremented*, as BSD did, not deadlines compared: a timer set for k ticks fires at
//! the k-th tick after it is set, so after anything from (k - 1) to k ticks. (Comparing would be a
//! tick late, and Figs. 5 and 12 of the paper would not hold.)
//!
//! Setting a timer is a store, as it was: the counters lie in the connection, in [`Filed`], and
//! only those of timers that were set anew are written. Cancelling is not even that: a counter
//! that runs out finds no deadline any more. The list is beside the connections, so that a scan
//! stops at a block in TIME-WAIT without a look at the block.
//!
//! A part of the first tick is over already. Estimators that count in slow ticks allow for that:
//! their timeout is never less than two ticks (TCPTV_MIN). Their timeouts, and other times of whole
//! ticks, stay as many ticks as they are. A timeout found on a finer clock has no
//! such margin: 260 ms counted as one tick could be over at once, and what is merely on its way be
//! sent again. It gets as many ticks as it takes for the last to come no earlier than asked for,
//! and as in 4.4BSD no retransmission gets less than two. Probes of a closed window are spaced like
//! retransmissions, here as there, and are bounded as those are; 4.4BSD's least of 5 s for them
//! (TCPTV_PERSMIN) is not taken over, as a stall that long is nothing to compare with.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

mod counters;

use super::{Deadlines, Filed, TimeWaitTerm, Timer, TimerSet};
use crate::time::{Instant, as_nanos};

/// PR_FASTHZ and PR_SLOWHZ: 5 and 2 a second.
const FAST_NS: u64 = 200_000_000;
const SLOW_NS: u64 = 500_000_000;
/// TCPTV_MIN: slow ticks until a retransmission, at least.
const RETRANSMIT_MIN: u64 = 2;

/// Links from here on are the end of a list, and say which: they lie beyond every connection's
/// number.
const END: u32 = 1 << 31;
/// The backward link of a connection that is in no list.
const UNLISTED: u32 = u32::MAX;
/// The list of all that are not in a tail.
const MAIN: u32 = END;
/// Links in a chunk; chunks are never moved.
const CHUNK: usize = 256;
/// Blocks that are fetched ahead of the one that is counted down: a far block takes as long to come
/// as some ten near ones take to count.
const AHEAD: usize = 12;

/// A connection's place in its list.
#[derive(Clone, Copy, Debug)]
struct Link {
    next: u32,
    previous: u32,
    /// In a tail: the slow tick at which TIME-WAIT is over.
    over_at: u64,
}

/// A list of connections.
#[derive(Clone, Copy, Debug)]
struct List {
    /// In a tail: slow ticks for which each of it is in TIME-WAIT.
    ticks: u64,
    head: u32,
    tail: u32,
}

impl List {
    /// The list whose end is `end`.
    fn new(end: u32, ticks: u64) -> Self {
        List { ticks, head: end, tail: end }
    }
}

/// A tick that a scan brings to every connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tick {
    /// The tick of 200 ms.
    Fast,
    /// The tick of 500 ms, and how many there have been.
    Slow(u64),
}

/// The connections' blocks, which a scan counts down one after the other.
pub trait Blocks {
    /// Has connection `index` count down by the tick; whose time has come.
    fn count_down(&mut self, index: u32, tick: Tick) -> TimerSet;
    /// Connection `index` is counted down soon: its block may be fetched from memory meanwhile.
    fn prefetch(&self, _index: u32) {}
}

impl<F: FnMut(u32, Tick) -> TimerSet> Blocks for F {
    fn count_down(&mut self, index: u32, tick: Tick) -> TimerSet {
        self(index, tick)
    }
}

/// What is due on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fired {
    /// One of its timers.
    Timer(Timer),
    /// Its TIME-WAIT is over; it is listed no more.
    TimeWait,
}

/// Connections in one list, with or without tails, and the two ticks.
#[derive(Debug)]
pub struct Bsd {
    /// TIME-WAIT in tails.
    ordered: bool,
    /// Retransmission timeouts are times by a clock finer than the ticks.
    fine: bool,
    links: Vec<Box<[Link; CHUNK]>>,
    /// [`MAIN`], and a tail for each length of TIME-WAIT that there has been: the configuration
    /// has three at most.
    lists: Vec<List>,
    len: usize,
    /// The ticks that have been handled.
    fast: u64,
    slow: u64,
    due: VecDeque<(u32, Fired)>,
}

impl Bsd {
    /// No connection. `ordered`: Aron & Druschel's list; else 4.4BSD's. Timeouts are taken for
    /// counts of slow ticks.
    pub fn new(ordered: bool) -> Self {
        let (links, lists) = (Vec::new(), vec![List::new(MAIN, 0)]);
        let due = VecDeque::new();
        Bsd { ordered, fine: false, links, lists, len: 0, fast: 0, slow: 0, due }
    }

    /// Whether retransmission timeouts are times by a clock finer than the slow ticks: such do not
    /// fire early.
    pub(crate) fn set_fine(&mut self, fine: bool) {
        self.fine = fine;
    }

    /// Connection `index` has these deadlines at `now`.
    pub fn touched(
        &mut self,
        index: u32,
        filed: &mut Filed,
        deadlines: &mut Deadlines,
        now: Instant,
    ) {
        let news = match deadlines.take_news() {
            Some(news) => news,
            None => self.begin(index, filed, deadlines),
        };
        for timer in news {
            filed.set_counter(timer, self.count(timer, deadlines.at(timer), now));
        }
    }

    /// A connection that has not been counted for, or not since its deadlines were cleared: lists
    /// it, and returns which timers it has. One that has none need not be listed yet.
    fn begin(&mut self, index: u32, filed: &mut Filed, deadlines: &mut Deadlines) -> TimerSet {
        filed.clear_counters();
        let mut set = TimerSet::EMPTY;
        Timer::COUNTED
            .into_iter()
            .filter(|timer| deadlines.is_set(*timer))
            .for_each(|timer| set.insert(timer));
        if deadlines.earliest() == Instant::FAR_FUTURE {
            deadlines.clear();
        } else if !self.is_listed(index) {
            self.list_first(index);
        }
        set
    }

    /// Ticks from `now` on until `timer`, set for `at`, fires; 0 if it is not set.
    fn count(&self, timer: Timer, at: Instant, now: Instant) -> u64 {
        match timer {
            _ if at == Instant::FAR_FUTURE => 0,
            Timer::DelayedAck => 1,
            _ => self.ticks_until(timer, at, now),
        }
    }

    /// Slow ticks from `now` on until `timer`, set for `at`, fires.
    fn ticks_until(&self, timer: Timer, at: Instant, now: Instant) -> u64 {
        let wait = at.nanos_since(now);
        let ticks = slow_ticks(wait);
        let is_whole = ticks * SLOW_NS == wait;
        let (is_count, least) = match timer {
            // A count of ticks even if it was set a moment before `now`.
            Timer::Retransmit => (!self.fine, RETRANSMIT_MIN),
            Timer::Persist => (!self.fine && is_whole, 1),
            _ => (is_whole, 1),
        };
        if is_count {
            return ticks.max(least);
        }
        // As many as come until then.
        slow_ticks(at.as_nanos()).saturating_sub(self.slow).max(least)
    }

    /// Connection `index` is gone.
    pub fn forget(&mut self, index: u32) {
        if self.is_listed(index) {
            self.unlist(index);
        }
    }

    /// Connection `index` enters TIME-WAIT, or restarts it, as [`Timer::Lifetime`] tells: no other
    /// timer runs.
    pub fn enter_time_wait(
        &mut self,
        index: u32,
        filed: &mut Filed,
        deadlines: &mut Deadlines,
        time: TimeWaitTerm,
    ) {
        if !self.ordered {
            return self.touched(index, filed, deadlines, time.now);
        }
        self.forget(index);
        let ticks = slow_ticks(as_nanos(time.duration)).max(1);
        let end = self.tail_of(ticks);
        self.list_last(index, end);
        self.link(index).over_at = self.slow + ticks;
    }

    /// The end of the tail for those that are in TIME-WAIT for so many ticks.
    fn tail_of(&mut self, ticks: u64) -> u32 {
        // No tail is of no tick, so that the first list is none.
        let place = self.lists.iter().position(|list| list.ticks == ticks);
        let place = place.unwrap_or(self.lists.len());
        let end = END + place as u32;
        if place == self.lists.len() {
            self.lists.push(List::new(end, ticks));
        }
        end
    }

    /// Something that is due at `now`, after the ticks until then have been brought to `blocks`.
    pub(crate) fn due(&mut self, now: Instant, blocks: &mut impl Blocks) -> Option<(u32, Fired)> {
        while self.due.is_empty() {
            let (fast_at, slow_at) = ((self.fast + 1) * FAST_NS, (self.slow + 1) * SLOW_NS);
            if fast_at.min(slow_at) > now.as_nanos() {
                return None;
            }
            if self.len == 0 {
                self.fast = now.as_nanos() / FAST_NS;
                self.slow = now.as_nanos() / SLOW_NS;
            } else if fast_at <= slow_at {
                self.fast += 1;
                self.scan_fast(blocks);
            } else {
                self.slow += 1;
                self.scan_slow(blocks);
            }
        }
        self.due.pop_front()
    }

    /// When the next tick is; `None` with no connection.
    pub fn deadline(&self) -> Option<Instant> {
        if !self.due.is_empty() {
            return Some(Instant::ZERO);
        }
        let next = ((self.fast + 1) * FAST_NS).min((self.slow + 1) * SLOW_NS);
        (self.len > 0).then(|| Instant::from_nanos(next))
    }

    /// The fast tick: delayed ACKs. Public so that the scan alone can be measured.
    pub fn scan_fast(&mut self, blocks: &mut impl Blocks) {
        self.scan(Tick::Fast, blocks);
    }

    /// The slow tick: everything else. Public so that the scan alone can be measured.
    pub fn scan_slow(&mut self, blocks: &mut impl Blocks) {
        let tick = self.slow;
        self.scan(Tick::Slow(tick), blocks);
        for tail in 1..self.lists.len() {
            while let first = self.lists[tail].head
                && first < END
                && self.link(first).over_at <= tick
            {
                self.unlist(first);
                self.due.push_back((first, Fired::TimeWait));
            }
        }
    }

    /// Brings `tick` to every connection that is in no tail.
    fn scan(&mut self, tick: Tick, blocks: &mut impl Blocks) {
        let (mut index, mut ahead) = (self.lists[0].head, self.first_ahead(blocks));
        while index < END {
            let next = self.link(index).next;
            ahead = self.next_ahead(ahead, blocks);
            self.fire(index, blocks.count_down(index, tick));
            index = next;
        }
    }

    /// Fetches the first blocks that a scan counts down; which one is the next to be fetched.
    fn first_ahead(&mut self, blocks: &impl Blocks) -> u32 {
        (0..AHEAD).fold(self.lists[0].head, |ahead, _| self.next_ahead(ahead, blocks))
    }

    /// Fetches block `ahead`, if the list has not ended; the one after it.
    fn next_ahead(&mut self, ahead: u32, blocks: &impl Blocks) -> u32 {
        if ahead >= END {
            return ahead;
        }
        blocks.prefetch(ahead);
        self.link(ahead).next
    }

    fn fire(&mut self, index: u32, timers: TimerSet) {
        self.due.extend(timers.map(|timer| (index, Fired::Timer(timer))));
    }

    fn is_listed(&self, index: u32) -> bool {
        let link =
            self.links.get(index as usize / CHUNK).map(|links| links[index as usize % CHUNK]);
        link.is_some_and(|link| link.previous != UNLISTED)
    }

    /// Connection `index` is the first of those that are in no tail.
    fn list_first(&mut self, index: u32) {
        let head = self.lists[0].head;
        self.list(index, MAIN, head);
    }

    /// Connection `index` is the last of the list that ends with `end`.
    fn list_last(&mut self, index: u32, end: u32) {
        let last = self.lists[(end - END) as usize].tail;
        self.list(index, last, end);
    }

    fn list(&mut self, index: u32, previous: u32, next: u32) {
        while index as usize / CHUNK >= self.links.len() {
            self.grow();
        }
        *self.link(index) = Link { next, previous, over_at: 0 };
        *self.next_of(previous) = index;
        *self.previous_of(next) = index;
        self.len += 1;
    }

    fn unlist(&mut self, index: u32) {
        let link = self.link(index);
        let (next, previous) = (link.next, core::mem::replace(&mut link.previous, UNLISTED));
        *self.next_of(previous) = next;
        *self.previous_of(next) = previous;
        self.len -= 1;
    }

    /// What follows `at`, a connection or the end of a list, before which its head comes.
    fn next_of(&mut self, at: u32) -> &mut u32 {
        if at < END { &mut self.link(at).next } else { &mut self.lists[(at - END) as usize].head }
    }

    /// What precedes `at`, a connection or the end of a list.
    fn previous_of(&mut self, at: u32) -> &mut u32 {
        if at < END {
            &mut self.link(at).previous
        } else {
            &mut self.lists[(at - END) as usize].tail
        }
    }

    /// Apart, as it needs room on the stack.
    fn grow(&mut self) {
        let unlisted = Link { next: MAIN, previous: UNLISTED, over_at: 0 };
        self.links.push(Box::new([unlisted; CHUNK]));
    }

    fn link(&mut self, index: u32) -> &mut Link {
        &mut self.links[index as usize / CHUNK][index as usize % CHUNK]
    }
}

/// A time in slow ticks, the last one begun.
fn slow_ticks(ns: u64) -> u64 {
    ns.saturating_add(SLOW_NS - 1) / SLOW_NS
}

#[cfg(test)]
mod tests;
