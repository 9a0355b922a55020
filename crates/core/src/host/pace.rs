//! The shard's schedule of paced connections: an entry for each that waits for its next burst, by
//! time. Apart from the timers, whose ticks are longer than the time between two bursts.

use alloc::collections::BinaryHeap;
use core::cmp::Reverse;

use super::Host;
use crate::time::Instant;

/// The entries. One whose connection is gone wakes up the next in its slot, which then has nothing
/// to send.
#[derive(Debug, Default)]
pub(super) struct Paces(BinaryHeap<Reverse<(Instant, u32)>>);

impl Paces {
    /// The connection in slot `index` waits until `at`.
    pub(super) fn push(&mut self, at: Instant, index: u32) {
        self.0.push(Reverse((at, index)));
    }

    /// True if there is one for slot `index`. It looks through all of them.
    pub(super) fn has(&self, index: u32) -> bool {
        self.0.iter().any(|Reverse((_, other))| *other == index)
    }

    /// How many entries there are.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// When the first burst is due.
    pub(super) fn first(&self) -> Option<Instant> {
        self.0.peek().map(|Reverse((at, _))| *at)
    }

    /// The slot of a connection whose burst is due at `now`.
    fn pop(&mut self, now: Instant) -> Option<u32> {
        self.first().filter(|at| *at <= now)?;
        self.0.pop().map(|Reverse((_, index))| index)
    }
}

impl Host {
    /// The connections whose next burst is due send it.
    pub(super) fn on_paces(&mut self, now: Instant) {
        while let Some(index) = self.live.paces.pop(now) {
            let Some(slot) = self.slots.get_mut(index) else { continue };
            let Some(connection) = slot.awake_mut() else { continue };
            if let Some(s) = connection.synchronized_mut() {
                s.send.on_pace();
                self.make_ready(index);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_is_first_and_none_before_its_time() {
        let at = Instant::from_millis;
        let mut paces = Paces::default();
        for (ms, index) in [(3, 0), (1, 1), (2, 2), (2, 1)] {
            paces.push(at(ms), index);
        }
        assert_eq!((paces.first(), paces.pop(at(0))), (Some(at(1)), None));
        let due: alloc::vec::Vec<u32> = core::iter::from_fn(|| paces.pop(at(2))).collect();
        assert_eq!((due, paces.first()), (alloc::vec![1, 1, 2], Some(at(3))));
    }
}
