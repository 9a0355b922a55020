//! The timer framework of Aron & Druschel 1999, §3: two services where BSD has one tick.
//!
//! *Measuring* tells how late it is, as finely as the platform can; *scheduling* lets something
//! happen later, as often as the platform likes to be woken. Each tells its resolution when asked.
//!
//! ```text
//!   measure_time    │  │  │  │  │  │  │  │  │  │  │  │  │      X of these
//!   scheduling      │           │           │           │      to one of these
//!                      s        s+T+1 ──────▶ fires here
//! ```
//!
//! An event scheduled at measurement tick s for T ticks fires at the first scheduling tick at which
//! the measurement clock shows s + T + 1 or more. So what really passes lies between T and
//! T + X + 1 measurement ticks, whatever the phases, where X is the ratio of the resolutions. (BSD
//! gives anything from (T - 1)·G to T·G for a tick of G.)

use alloc::collections::BTreeMap;

/// The measurement service.
pub trait MeasureClock {
    /// Ticks since an origin of the platform's choice.
    fn measure_time(&self) -> u64;
    /// Ticks a second, in Hz.
    fn measure_resolution(&self) -> u64;
}

/// The scheduling service for events of type `E`.
pub trait ScheduleClock<E> {
    /// Lets `event` happen when more than `ticks` of the measurement clock have passed.
    fn schedule_event(&mut self, ticks: u64, event: E) -> EventId;
    /// How often it looks for what is due, in Hz.
    fn schedule_resolution(&self) -> u64;
    /// The event will not happen: gives it back, or `None` if it has happened already.
    fn cancel_event(&mut self, id: EventId) -> Option<E>;
}

/// Names a scheduled event; never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EventId {
    due: u64,
    number: u64,
}

/// A clock that its owner moves: for tests, for experiments, and for virtual time.
#[derive(Clone, Copy, Debug)]
pub struct ManualClock {
    ticks: u64,
    resolution_hz: u64,
}

impl ManualClock {
    /// At tick 0, with `resolution_hz` ticks a second.
    pub fn new(resolution_hz: u64) -> Self {
        ManualClock { ticks: 0, resolution_hz }
    }

    /// It is tick `ticks` now; a clock does not go back.
    pub fn set(&mut self, ticks: u64) {
        self.ticks = self.ticks.max(ticks);
    }
}

impl MeasureClock for ManualClock {
    fn measure_time(&self) -> u64 {
        self.ticks
    }

    fn measure_resolution(&self) -> u64 {
        self.resolution_hz
    }
}

/// Both services: events over a measurement clock, looked at when the platform says so.
#[derive(Debug)]
pub struct Schedule<C, E> {
    clock: C,
    resolution_hz: u64,
    /// In order of time.
    events: BTreeMap<EventId, E>,
    scheduled: u64,
}

impl<C: MeasureClock, E> Schedule<C, E> {
    /// Nothing scheduled; the platform promises to call [`Schedule::on_tick`] `resolution_hz` times
    /// a second.
    pub fn new(clock: C, resolution_hz: u64) -> Self {
        Schedule { clock, resolution_hz, events: BTreeMap::new(), scheduled: 0 }
    }

    /// The measurement clock.
    pub fn clock(&self) -> &C {
        &self.clock
    }

    /// The measurement clock, to be moved.
    pub fn clock_mut(&mut self) -> &mut C {
        &mut self.clock
    }

    /// A scheduling tick: an event that is due, oldest first; call until there is none.
    pub fn on_tick(&mut self) -> Option<E> {
        let first = self.events.first_entry()?;
        (first.key().due <= self.clock.measure_time()).then(|| first.remove())
    }

    /// Events that have not happened.
    pub fn len(&self) -> usize {
        self.events.len()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }
}

impl<C: MeasureClock, E> ScheduleClock<E> for Schedule<C, E> {
    fn schedule_event(&mut self, ticks: u64, event: E) -> EventId {
        let due = self.clock.measure_time().saturating_add(ticks).saturating_add(1);
        let id = EventId { due, number: self.scheduled };
        self.scheduled += 1;
        self.events.insert(id, event);
        id
    }

    fn schedule_resolution(&self) -> u64 {
        self.resolution_hz
    }

    fn cancel_event(&mut self, id: EventId) -> Option<E> {
        self.events.remove(&id)
    }
}

/// Measurement ticks to a scheduling tick, at least: the paper's X.
pub fn ratio<C: MeasureClock, E>(schedule: &Schedule<C, E>) -> u64 {
    let measure = schedule.clock.measure_resolution();
    measure.div_ceil(schedule.resolution_hz.max(1))
}

#[cfg(test)]
mod tests;
