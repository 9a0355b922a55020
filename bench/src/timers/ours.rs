//! Our schemes, driven as the host drives them.

use lightwait_core::Instant;
use lightwait_core::tcp::timers::{Filed, Scheme as Which, Ticks, Timer, Timers};
use lightwait_core::time::Duration;

use super::connection::Connection;
use super::scheme::Scheme;

/// The tick of the scheduling clock: the default's.
const TICK: Duration = Duration::from_millis(1);

/// Timers as in the host; `WHICH` indexes [`SCHEMES`].
#[derive(Debug)]
pub(super) struct Ours<const WHICH: usize> {
    timers: Timers,
    ticks: Ticks,
    /// As in the host: whose timers are due, sorted before they are run.
    due: Vec<u32>,
}

/// Those of ours that there are.
pub(super) const SCHEMES: [Which; 2] = [Which::Inline, Which::Wheel];

impl<const WHICH: usize> Scheme for Ours<WHICH> {
    type Key = ();

    fn new(now: Instant) -> Self {
        let ticks = Ticks::new(TICK);
        let mut timers = Timers::new(SCHEMES[WHICH], ticks);
        assert_eq!(timers.due(now), None, "nothing is set");
        Ours { timers, ticks, due: Vec::new() }
    }

    fn birth(&mut self, index: u32, connection: &mut Connection<()>, at: Instant) {
        self.set(index, connection, at);
    }

    #[inline(always)]
    fn set(&mut self, index: u32, connection: &mut Connection<()>, at: Instant) {
        connection.deadlines.set(Timer::Retransmit, at);
        self.timers.touched(index, &mut connection.filed, &connection.deadlines);
    }

    #[inline(always)]
    fn cancel(&mut self, index: u32, connection: &mut Connection<()>) {
        connection.deadlines.cancel(Timer::Retransmit);
        self.timers.touched(index, &mut connection.filed, &connection.deadlines);
    }

    #[inline(always)]
    fn rearm(&mut self, index: u32, connection: &mut Connection<()>, at: Instant) {
        self.set(index, connection, at);
    }

    fn death(&mut self, index: u32, connection: &mut Connection<()>) {
        self.timers.forget(index, &mut connection.filed);
        connection.deadlines.clear();
    }

    fn turn(
        &mut self,
        now: Instant,
        connections: &mut [Connection<()>],
        mut fire: impl FnMut(u32, &mut Connection<()>),
    ) {
        if self.timers.deadline().is_none_or(|at| at > now) {
            return;
        }
        while let Some(index) = self.timers.due(now) {
            connections[index as usize].filed = Filed::default();
            self.due.push(index);
        }
        self.due.sort_unstable();
        self.due.dedup();
        let tick = self.ticks.instant(self.ticks.at_or_before(now));
        for &index in &self.due {
            let connection = &mut connections[index as usize];
            if connection.deadlines.take_due(Timer::Retransmit, tick) {
                fire(index, connection);
            }
            self.timers.touched(index, &mut connection.filed, &connection.deadlines);
        }
        self.due.clear();
    }
}
