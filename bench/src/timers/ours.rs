//! Our schemes, driven as the host drives them.

use lightwait_core::Instant;
use lightwait_core::config::Scheme as Which;
use lightwait_core::tcp::timers::{Ticks, Timer, TimerSet, Timers};
use lightwait_core::time::Duration;

use super::connection::Connection;
use super::scheme::{Scheme, When};

/// The tick of the scheduling clock: the default.
const TICK: Duration = Duration::from_millis(1);

/// Timers as in the host; `WHICH` indexes [`SCHEMES`].
#[derive(Debug)]
pub(super) struct Ours<const WHICH: usize> {
    timers: Timers,
    ticks: Ticks,
    /// As in the host: the connections with due timers, sorted before the timers run.
    due: Vec<u32>,
}

/// All of our schemes.
pub(super) const SCHEMES: [Which; 4] =
    [Which::Inline, Which::Wheel, Which::Scan, Which::OrderedList];

impl<const WHICH: usize> Scheme for Ours<WHICH> {
    type Key = ();
    const TICKS: bool = matches!(SCHEMES[WHICH], Which::Scan | Which::OrderedList);

    fn new(now: Instant) -> Self {
        let ticks = Ticks::new(TICK);
        let mut timers = Timers::new(SCHEMES[WHICH], ticks);
        assert_eq!(timers.due(now, &mut |_, _| TimerSet::EMPTY), None, "nothing is set");
        Ours { timers, ticks, due: Vec::new() }
    }

    fn birth(&mut self, index: u32, connection: &mut Connection<()>, when: When) {
        self.set(index, connection, when);
    }

    #[inline(always)]
    fn set(&mut self, index: u32, connection: &mut Connection<()>, when: When) {
        connection.deadlines.set(Timer::Retransmit, when.at);
        let Connection { filed, deadlines, .. } = connection;
        self.timers.touched(index, filed, deadlines, when.now);
    }

    #[inline(always)]
    fn cancel(&mut self, index: u32, connection: &mut Connection<()>) {
        connection.deadlines.cancel(Timer::Retransmit);
        // A timer that is set needs no reading of the clock.
        let Connection { filed, deadlines, .. } = connection;
        self.timers.touched(index, filed, deadlines, Instant::ZERO);
    }

    #[inline(always)]
    fn rearm(&mut self, index: u32, connection: &mut Connection<()>, when: When) {
        self.set(index, connection, when);
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
        if !self.timers.has_due(now) {
            return;
        }
        let tick = self.ticks.instant(self.ticks.at_or_before(now));
        loop {
            let mut count = |index: u32, tick| {
                let connection = &mut connections[index as usize];
                connection.filed.count_down(tick, &connection.deadlines)
            };
            let Some((index, fired)) = self.timers.due(now, &mut count) else { break };
            self.due.push(index);
            if let Some(timer) = fired {
                connections[index as usize].deadlines.set(timer, tick);
            }
        }
        self.due.sort_unstable();
        self.due.dedup();
        for &index in &self.due {
            let Connection { filed, deadlines, .. } = &mut connections[index as usize];
            self.timers.take_out(filed);
            deadlines.tighten();
        }
        for &index in &self.due {
            let connection = &mut connections[index as usize];
            if connection.deadlines.may_be_due(tick) {
                if connection.deadlines.take_due(Timer::Retransmit, tick) {
                    fire(index, connection);
                }
                connection.deadlines.tighten();
            }
            let Connection { filed, deadlines, .. } = connection;
            self.timers.touched(index, filed, deadlines, now);
        }
        self.due.clear();
    }
}
