//! For comparison: the eager hierarchical timing wheel (Varghese & Lauck 1987), an entry for every
//! timer that is set, moved whenever its deadline moves, in or out.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::slots::{Position, Slots};
use super::{Deadlines, TIMERS, Ticks, Timer};
use crate::time::Instant;

/// Connections in a chunk of filings.
const CHUNK: usize = 256;

/// Entries of all timers, by slot.
#[derive(Debug)]
pub struct Wheel {
    slots: Slots,
    ticks: Ticks,
    filings: Vec<Box<[Filing; CHUNK]>>,
}

/// What a connection's timers are filed under, and where.
#[derive(Clone, Copy, Debug)]
struct Filing {
    at: [Instant; TIMERS],
    places: [Position; TIMERS],
}

const UNFILED: Filing =
    Filing { at: [Instant::FAR_FUTURE; TIMERS], places: [Position::NOWHERE; TIMERS] };

impl Wheel {
    /// No timer set; deadlines count in whole `ticks`.
    pub fn new(ticks: Ticks) -> Self {
        Wheel { slots: Slots::default(), ticks, filings: Vec::new() }
    }

    /// Connection `index` has these deadlines now.
    pub fn touched(&mut self, index: u32, deadlines: &Deadlines) {
        let (chunk, within) = (index as usize / CHUNK, index as usize % CHUNK);
        while chunk >= self.filings.len() {
            self.grow();
        }
        let filing = &mut self.filings[chunk][within];
        for timer in Timer::ALL {
            let at = deadlines.at(timer);
            if at == filing.at[timer as usize] {
                continue;
            }
            filing.at[timer as usize] = at;
            let entry = index * TIMERS as u32 + timer as u32;
            let place = &mut filing.places[timer as usize];
            if *place != Position::NOWHERE {
                self.slots.remove(entry, *place);
                *place = Position::NOWHERE;
            }
            if at != Instant::FAR_FUTURE {
                (*place, _) = self.slots.insert(entry, self.ticks.at_or_after(at));
            }
        }
    }

    /// Apart, as it needs room on the stack.
    fn grow(&mut self) {
        self.filings.push(Box::new([UNFILED; CHUNK]));
    }

    /// Connection `index` is gone.
    pub fn forget(&mut self, index: u32) {
        self.touched(index, &Deadlines::NONE);
    }

    /// A connection with a timer that is due at `now`.
    pub fn due(&mut self, now: Instant) -> Option<u32> {
        while self.deadline().is_some_and(|at| at <= now) {
            let entry = self.slots.pop()?;
            let (index, timer) = (entry / TIMERS as u32, Timer::ALL[entry as usize % TIMERS]);
            let filing = &mut self.filings[index as usize / CHUNK][index as usize % CHUNK];
            let place = &mut filing.places[timer as usize];
            let tick = self.ticks.at_or_after(filing.at[timer as usize]);
            if self.ticks.instant(tick) <= now {
                *place = Position::NOWHERE;
                filing.at[timer as usize] = Instant::FAR_FUTURE;
                return Some(index);
            }
            // Down from a coarser level.
            (*place, _) = self.slots.insert(entry, tick);
        }
        self.slots.advance(self.ticks.at_or_before(now));
        None
    }

    /// When the next slot is reached.
    pub fn deadline(&self) -> Option<Instant> {
        self.slots.next().map(|tick| self.ticks.instant(tick))
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
        assert_eq!(wheel.slots.len(), 2);
        deadlines.set(Timer::Retransmit, Instant::from_millis(300));
        wheel.touched(3, &deadlines);
        assert_eq!(wheel.slots.len(), 2);
        assert_eq!(wheel.due(Instant::from_millis(299)), None);
        assert_eq!(wheel.due(Instant::from_millis(300)), Some(3));
        assert_eq!(wheel.due(Instant::from_millis(300)), None);
        deadlines.cancel(Timer::KeepAlive);
        deadlines.cancel(Timer::Retransmit);
        wheel.touched(3, &deadlines);
        assert!(wheel.slots.len() == 0 && wheel.deadline().is_none());
    }

    #[test]
    fn death_takes_all_entries_out() {
        let mut wheel = Wheel::new(Ticks::new(Duration::from_millis(1)));
        let mut deadlines = Deadlines::default();
        deadlines.set(Timer::Persist, Instant::from_millis(5));
        wheel.touched(1000, &deadlines);
        wheel.forget(1000);
        assert!(wheel.slots.len() == 0);
    }
}
