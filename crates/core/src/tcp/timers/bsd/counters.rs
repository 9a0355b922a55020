//! A tick counter of 16 bits for each timer, beside the connection's deadlines; 0: not set.
//!
//! 4.4BSD's were shorts as well. Here a word of them is counted down at once: the highest bit of
//! each is never set, so that adding 2^15 - 1 to every one of them carries into it from those that
//! are not zero, and into none beside.

use lightwait_processor::prefetch;

use super::{Filed, SLOW_NS, Tick};
use crate::tcp::timers::{Deadlines, Timer, TimerSet};
use crate::time::Instant;

/// The most that a counter holds: 4.5 hours. A longer time is counted on when that is over, to
/// the tick at or after its deadline.
const MOST: u64 = (1 << 15) - 1;
/// The highest bit of each counter in a word.
const HIGHEST: u64 = 0x8000_8000_8000_8000;

/// One of each of [`Timer::COUNTED`].
type Counters = [u16; Timer::COUNTED.len()];

impl Filed {
    /// No timer is counted.
    pub(super) fn clear_counters(&mut self) {
        self.0 = Counters::default();
    }

    /// Counts so many ticks until `timer` fires; 0: it does not.
    pub(super) fn set_counter(&mut self, timer: Timer, ticks: u64) {
        // A longer time has two ticks left at least when the counter runs out.
        if let Some(counter) = Timer::COUNTED.into_iter().position(|it| it == timer) {
            self.0[counter] = if ticks > MOST { MOST - 1 } else { ticks } as u16;
        }
    }

    /// Fetches it from memory, without waiting for it.
    pub fn prefetch(&self) {
        prefetch(self);
    }

    /// Counts down by a tick. Returns the timers whose time has come, and which are still set.
    pub fn count_down(&mut self, tick: Tick, deadlines: &Deadlines) -> TimerSet {
        let mut fired = TimerSet::EMPTY;
        // In the order of `Timer::COUNTED`.
        let [retransmit, ack, persist, keepalive, fin_wait_2, lifetime] = self.0;
        match tick {
            Tick::Fast => {
                if ack != 0 && deadlines.is_set(Timer::DelayedAck) {
                    fired.insert(Timer::DelayedAck);
                }
                self.0 = [retransmit, 0, persist, keepalive, fin_wait_2, lifetime];
            }
            Tick::Slow(tick) => {
                let slow = [retransmit, persist, keepalive, fin_wait_2];
                let ([a, b, c, d], over) = count_down(slow);
                self.0 = [a, ack, b, c, d, lifetime.saturating_sub(1)];
                if over || lifetime == 1 {
                    let from = [retransmit, 0, persist, keepalive, fin_wait_2, lifetime];
                    fired = self.run_out(from, tick, deadlines);
                }
            }
        }
        fired
    }

    /// The timers that fire, of the counters that stood at one.
    fn run_out(&mut self, from: Counters, tick: u64, deadlines: &Deadlines) -> TimerSet {
        let mut fired = TimerSet::EMPTY;
        let counted = Timer::COUNTED.into_iter().zip(from);
        for timer in counted.filter_map(|(timer, ticks)| (ticks == 1).then_some(timer)) {
            // A whole tick and more is left only of what no counter holds, or is not set.
            match deadlines.at(timer) {
                Instant::FAR_FUTURE => {}
                at => match at.as_nanos().div_ceil(SLOW_NS).saturating_sub(tick) {
                    0 | 1 => fired.insert(timer),
                    left => self.set_counter(timer, left),
                },
            }
        }
        fired
    }
}

/// All counters that are not zero less one; true if that makes one zero.
fn count_down(counters: [u16; 4]) -> ([u16; 4], bool) {
    let [a, b, c, d] = counters.map(u64::from);
    let word = a | b << 16 | c << 32 | d << 48;
    let counting = (word + !HIGHEST) & HIGHEST;
    let left = word - (counting >> 15);
    let over = counting & !(left + !HIGHEST);
    ([left, left >> 16, left >> 32, left >> 48].map(|lane| lane as u16), over != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Against each by itself.
        #[test]
        fn four_counters_in_a_word_count_down_like_each_by_itself(
            counters in proptest::array::uniform4(prop_oneof![0u16..3, 0..=MOST as u16])
        ) {
            let left = counters.map(|counter| counter.saturating_sub(1));
            prop_assert_eq!(count_down(counters), (left, counters.contains(&1)));
        }
    }
}
