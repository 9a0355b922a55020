//! For comparison: the eager hierarchical timing wheel (Varghese & Lauck 1987), an entry for every
//! timer that is set, moved whenever its deadline moves, in or out.

use alloc::vec::Vec;

use super::slots::Slots;
use super::{Deadlines, TIMERS, Ticks, Timer};
use crate::time::Instant;

/// Connections in a chunk of the deadlines that are filed.
const CHUNK: usize = 256;

/// Entries of all timers, by slot.
#[derive(Debug)]
pub struct Wheel {
    slots: Slots,
    ticks: Ticks,
    /// What each connection's timers are filed under.
    filed: Vec<alloc::boxed::Box<[Deadlines; CHUNK]>>,
}

impl Wheel {
    /// No timer set; deadlines count in whole `ticks`.
    pub fn new(ticks: Ticks) -> Self {
        Wheel { slots: Slots::default(), ticks, filed: Vec::new() }
    }

    /// Connection `index` has these deadlines now.
    pub fn touched(&mut self, index: u32, deadlines: &Deadlines) {
        let (chunk, place) = (index as usize / CHUNK, index as usize % CHUNK);
        while chunk >= self.filed.len() {
            let none = core::array::from_fn(|_| Deadlines::default());
            self.filed.push(alloc::boxed::Box::new(none));
        }
        let filed = &mut self.filed[chunk][place];
        for timer in Timer::ALL {
            let at = deadlines.at(timer);
            if at == filed.at(timer) {
                continue;
            }
            filed.set(timer, at);
            let entry = index * TIMERS as u32 + timer as u32;
            self.slots.remove(entry);
            if at != Instant::FAR_FUTURE {
                self.slots.insert(entry, self.ticks.at_or_after(at));
            }
        }
    }

    /// Connection `index` is gone.
    pub fn forget(&mut self, index: u32) {
        self.touched(index, &Deadlines::default());
    }

    /// A connection of which a timer is due at `now`.
    pub fn due(&mut self, now: Instant) -> Option<u32> {
        let tick = self.ticks.at_or_before(now);
        loop {
            let entry = self.slots.pop(tick)?;
            let (index, timer) = (entry / TIMERS as u32, Timer::ALL[entry as usize % TIMERS]);
            let filed = &mut self.filed[index as usize / CHUNK][index as usize % CHUNK];
            let at = self.ticks.at_or_after(filed.at(timer));
            if at <= tick {
                filed.cancel(timer);
                return Some(index);
            }
            // Down from a coarser level.
            self.slots.insert(entry, at);
        }
    }

    /// When the next slot is reached.
    pub fn deadline(&self) -> Option<Instant> {
        self.slots.next().map(|tick| self.ticks.instant(tick))
    }

    /// Timers set.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// True if none is.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Duration;

    #[test]
    fn every_timer_has_an_entry_that_moves_with_it() {
        let mut wheel = Wheel::new(Ticks::new(Duration::from_millis(1)));
        let mut deadlines = Deadlines::default();
        deadlines.set(Timer::Retransmit, Instant::from_millis(200));
        deadlines.set(Timer::KeepAlive, Instant::from_millis(7_200_000));
        wheel.touched(3, &deadlines);
        assert_eq!(wheel.len(), 2);
        deadlines.set(Timer::Retransmit, Instant::from_millis(300));
        wheel.touched(3, &deadlines);
        assert_eq!(wheel.len(), 2);
        assert_eq!(wheel.due(Instant::from_millis(299)), None);
        assert_eq!(wheel.due(Instant::from_millis(300)), Some(3));
        assert_eq!(wheel.due(Instant::from_millis(300)), None);
        deadlines.cancel(Timer::KeepAlive);
        deadlines.cancel(Timer::Retransmit);
        wheel.touched(3, &deadlines);
        assert!(wheel.is_empty() && wheel.deadline().is_none());
    }

    #[test]
    fn death_takes_all_entries_out() {
        let mut wheel = Wheel::new(Ticks::new(Duration::from_millis(1)));
        let mut deadlines = Deadlines::default();
        deadlines.set(Timer::Persist, Instant::from_millis(5));
        wheel.touched(1000, &deadlines);
        wheel.forget(1000);
        assert!(wheel.is_empty());
    }
}
