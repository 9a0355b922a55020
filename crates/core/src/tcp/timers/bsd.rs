//! The schemes of 4.4BSD and of Aron & Druschel 1999: every connection in one list, scanned by two
//! ticks for all of them.
//!
//! ```text
//!   scan          every 200 ms   the delayed-ACK flag of every block       (fasttimeo)
//!                 every 500 ms   every counter of every block, minus one   (slowtimeo)
//!   ordered_list  blocks in TIME-WAIT go to the tail, so that the tail is sorted by expiry: the
//!                 fast scan stops at the first of them, the slow one at the first not yet due
//! ```
//!
//! Counters are *decremented*, as BSD did, not deadlines compared: a timer set for k ticks fires at
//! the k-th tick after it is set, so after anything from (k - 1) to k ticks. (Comparing would be a
//! tick late, and Figs. 5 and 12 of the paper would not hold.) Setting a timer is a store.
//!
//! That a part of the first tick is over already is for the estimator to allow for, and those that
//! count in slow ticks do: theirs is never less than two (TCPTV_MIN). So their timeouts, and other
//! times of whole ticks, stay as many ticks as they are. A timeout found on a finer clock has no
//! such margin: 260 ms counted as one tick could be over at once, and what is merely on its way be
//! sent again. It gets as many ticks as it takes for the last to come no earlier than asked for,
//! and as in 4.4BSD no retransmission gets less than two. Probes of a closed window are spaced like
//! retransmissions, here as there, and are bounded as those are; 4.4BSD's least of 5 s for them
//! (TCPTV_PERSMIN) is not taken over, as a stall that long is nothing to compare with.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::{Deadlines, TIMERS, Timer};
use crate::time::{Duration, Instant, as_nanos};

/// PR_FASTHZ and PR_SLOWHZ: 5 and 2 a second.
const FAST_NS: u64 = 200_000_000;
const SLOW_NS: u64 = 500_000_000;
/// TCPTV_MIN: slow ticks until a retransmission, at least.
const RETRANSMIT_MIN: u32 = 2;

const NONE: u32 = u32::MAX;
/// Blocks in a chunk; chunks are never moved.
const CHUNK: usize = 256;

/// What the scheme keeps in a connection's control block.
#[derive(Clone, Copy, Debug)]
struct Block {
    next: u32,
    previous: u32,
    listed: bool,
    /// Slow ticks left, by timer; 0: not set. Of the delayed ACK: 1 is its flag.
    counters: [u32; TIMERS],
    /// What each counter was made from.
    filed: Deadlines,
    /// In TIME-WAIT: slow ticks left (`scan`), or the slow tick at which it is over
    /// (`ordered_list`); 0: not in it.
    time_wait: u64,
}

/// What is due on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fired {
    /// One of its timers.
    Timer(Timer),
    /// Its TIME-WAIT is over; it is listed no more.
    TimeWait,
}

/// Control blocks in one list, and the two ticks.
#[derive(Debug)]
pub struct Bsd {
    /// TIME-WAIT at the tail.
    ordered: bool,
    /// Retransmission timeouts are times by a clock finer than the ticks.
    fine: bool,
    blocks: Vec<Box<[Block; CHUNK]>>,
    head: u32,
    tail: u32,
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
        let (blocks, due) = (Vec::new(), VecDeque::new());
        Bsd { ordered, fine: false, blocks, head: NONE, tail: NONE, len: 0, fast: 0, slow: 0, due }
    }

    /// Whether retransmission timeouts are times by a clock finer than the slow ticks: such do not
    /// fire early.
    pub fn set_fine(&mut self, fine: bool) {
        self.fine = fine;
    }

    /// Connection `index` has these deadlines at `now`.
    pub fn touched(&mut self, index: u32, deadlines: &Deadlines, now: Instant) {
        if self.get(index).is_none_or(|block| !block.listed) {
            if deadlines.earliest() == Instant::FAR_FUTURE {
                return;
            }
            self.list_first(index);
        }
        for timer in Timer::ALL {
            let at = deadlines.at(timer);
            if at == self.block(index).filed.at(timer) {
                continue;
            }
            let count = match timer {
                _ if at == Instant::FAR_FUTURE => 0,
                Timer::DelayedAck => 1,
                _ => self.ticks_until(timer, at, now),
            };
            let block = self.block(index);
            block.filed.set(timer, at);
            block.counters[timer as usize] = count;
        }
    }

    /// Slow ticks from `now` on until `timer`, set for `at`, fires.
    fn ticks_until(&self, timer: Timer, at: Instant, now: Instant) -> u32 {
        let wait = at.since(now);
        let whole = as_nanos(wait).is_multiple_of(SLOW_NS);
        let (counted, least) = match timer {
            // A count of ticks even if it was set a moment before `now`.
            Timer::Retransmit => (!self.fine, RETRANSMIT_MIN),
            Timer::Persist => (!self.fine && whole, 1),
            _ => (whole, 1),
        };
        let ticks = if counted {
            slow_ticks(wait)
        } else {
            let ticks = at.as_nanos().div_ceil(SLOW_NS).saturating_sub(self.slow);
            ticks.min(u32::MAX.into()) as u32
        };
        ticks.max(least)
    }

    /// Connection `index` is gone.
    pub fn forget(&mut self, index: u32) {
        if self.get(index).is_some_and(|block| block.listed) {
            self.unlist(index);
        }
    }

    /// Connection `index` enters TIME-WAIT, or restarts it, for `duration`: no other timer runs.
    pub fn enter_time_wait(&mut self, index: u32, duration: Duration) {
        self.forget(index);
        if self.ordered {
            self.list_last(index);
        } else {
            self.list_first(index);
        }
        let ticks = u64::from(slow_ticks(duration));
        let over = if self.ordered { self.slow + ticks } else { ticks };
        self.block(index).time_wait = over;
    }

    /// Something that is due at `now`.
    pub fn due(&mut self, now: Instant) -> Option<(u32, Fired)> {
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
                self.scan_fast();
            } else {
                self.slow += 1;
                self.scan_slow();
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

    /// Connections listed.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The fast tick: delayed ACKs. Public so that the scan alone can be measured.
    pub fn scan_fast(&mut self) {
        let mut index = self.head;
        while index != NONE {
            let ordered = self.ordered;
            let block = self.block(index);
            if ordered && block.time_wait > 0 {
                return;
            }
            let next = block.next;
            if core::mem::take(&mut block.counters[Timer::DelayedAck as usize]) > 0 {
                self.due.push_back((index, Fired::Timer(Timer::DelayedAck)));
            }
            index = next;
        }
    }

    /// The slow tick: everything else. Public so that the scan alone can be measured.
    pub fn scan_slow(&mut self) {
        let (ordered, tick) = (self.ordered, self.slow);
        let mut index = self.head;
        while index != NONE {
            let block = self.block(index);
            let next = block.next;
            if block.time_wait > 0 {
                if ordered && block.time_wait > tick {
                    return;
                }
                block.time_wait -= u64::from(!ordered);
                if ordered || block.time_wait == 0 {
                    self.unlist(index);
                    self.due.push_back((index, Fired::TimeWait));
                }
                index = next;
                continue;
            }
            for timer in Timer::ALL.into_iter().filter(|timer| *timer != Timer::DelayedAck) {
                let counter = &mut self.block(index).counters[timer as usize];
                if *counter > 0 {
                    *counter -= 1;
                    if *counter == 0 {
                        self.due.push_back((index, Fired::Timer(timer)));
                    }
                }
            }
            index = next;
        }
    }

    fn list_first(&mut self, index: u32) {
        let head = core::mem::replace(&mut self.head, index);
        self.link(index, NONE, head);
    }

    fn list_last(&mut self, index: u32) {
        let tail = core::mem::replace(&mut self.tail, index);
        self.link(index, tail, NONE);
    }

    fn link(&mut self, index: u32, previous: u32, next: u32) {
        while index as usize / CHUNK >= self.blocks.len() {
            self.blocks.push(Box::new(core::array::from_fn(|_| UNLISTED)));
        }
        *self.block(index) = Block { next, previous, listed: true, ..UNLISTED };
        match previous {
            NONE => self.head = index,
            previous => self.block(previous).next = index,
        }
        match next {
            NONE => self.tail = index,
            next => self.block(next).previous = index,
        }
        self.len += 1;
    }

    fn unlist(&mut self, index: u32) {
        let Block { next, previous, .. } = core::mem::replace(self.block(index), UNLISTED);
        match previous {
            NONE => self.head = next,
            previous => self.block(previous).next = next,
        }
        match next {
            NONE => self.tail = previous,
            next => self.block(next).previous = previous,
        }
        self.len -= 1;
    }

    fn get(&self, index: u32) -> Option<&Block> {
        Some(&self.blocks.get(index as usize / CHUNK)?[index as usize % CHUNK])
    }

    fn block(&mut self, index: u32) -> &mut Block {
        &mut self.blocks[index as usize / CHUNK][index as usize % CHUNK]
    }
}

const UNLISTED: Block = Block {
    next: NONE,
    previous: NONE,
    listed: false,
    counters: [0; TIMERS],
    filed: Deadlines::NONE,
    time_wait: 0,
};

/// A time in slow ticks, one at least.
fn slow_ticks(duration: Duration) -> u32 {
    as_nanos(duration).div_ceil(SLOW_NS).clamp(1, u32::MAX.into()) as u32
}

#[cfg(test)]
mod tests;
