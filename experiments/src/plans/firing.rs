//! The time at which a timer fires, as a function of the time at which it was set: under 4.4BSD's
//! slow tick and in the papers' framework.

use lightwait_core::Instant;
use lightwait_core::config::Scheme;
use lightwait_core::tcp::timers::{Deadlines, Filed, Ticks, Timer, TimerSet, Timers};
use lightwait_core::time::Duration;

/// A tick of 4.4BSD's slow timer, in ms.
pub(super) const SLOW_MS: u64 = 500;

/// The time from `now` until a timer for `rto` fires under 4.4BSD's slow tick.
pub(super) fn by_scan(now: Instant, rto: Duration) -> Duration {
    let mut timers = Timers::new(Scheme::Scan, Ticks::new(Duration::from_millis(1)));
    let (mut filed, mut deadlines) = (Filed::default(), Deadlines::default());
    // Every tick until now has passed without a timer.
    assert_eq!(timers.due(now, &mut |_, _| TimerSet::EMPTY), None, "nothing is set");
    deadlines.set(Timer::Retransmit, now + rto);
    timers.touched(0, &mut filed, &mut deadlines, now);
    loop {
        let tick = timers.deadline().expect("the timer is set");
        if timers.due(tick, &mut |_, tick| filed.count_down(tick, &deadlines)).is_some() {
            return tick.since(now);
        }
    }
}

/// The two clocks of the framework; all in ns.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clocks {
    /// A tick of the measurement clock.
    pub(super) measure_ns: u64,
    /// A tick of the scheduling clock.
    pub(super) schedule_ns: u64,
    /// The time from a tick of the measurement clock to the next one of the scheduling clock.
    pub(super) skew_ns: u64,
}

impl Clocks {
    /// The time from `now` until an event for `ticks` of the measurement clock fires. It is a timer
    /// in the default scheme, set for one more tick, since part of a tick had passed when the clock
    /// was read.
    pub(super) fn fires(self, now: Instant, ticks: u64) -> Duration {
        self.fires_without_rounding(now, ticks + 1)
    }

    /// As [`Clocks::fires`], but the timer is set for just so many ticks after the time that was
    /// read.
    pub(super) fn fires_without_rounding(self, now: Instant, ticks: u64) -> Duration {
        let read =
            |at: Instant| Instant::from_nanos(at.as_nanos() / self.measure_ns * self.measure_ns);
        let schedule = Ticks::new(Duration::from_nanos(self.schedule_ns));
        let mut timers = Timers::new(Scheme::Inline, schedule);
        let (mut filed, mut deadlines) = (Filed::default(), Deadlines::default());
        // Every tick until now has passed without a timer.
        assert_eq!(timers.due(read(now), &mut |_, _| TimerSet::EMPTY), None, "nothing is set");
        let due = read(now).plus_nanos(ticks * self.measure_ns);
        deadlines.set(Timer::Retransmit, due);
        timers.touched(0, &mut filed, &mut deadlines, read(now));
        loop {
            let at = timers.deadline().expect("the timer is set").plus_nanos(self.skew_ns);
            while timers.due(read(at), &mut |_, _| TimerSet::EMPTY).is_some() {
                timers.take_out(&mut filed);
                if deadlines.take_due(Timer::Retransmit, read(at)) {
                    return at.since(now);
                }
                // The timer's slot may come before its deadline.
                deadlines.tighten();
                timers.touched(0, &mut filed, &mut deadlines, read(at));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timer_of_k_ticks_fires_at_the_kth_and_a_fine_one_when_due() {
        let set_at = |before_ms: u64| Instant::from_millis(1_000 - before_ms);
        let ms = Duration::from_millis;
        assert_eq!(by_scan(set_at(375), ms(3 * SLOW_MS)), ms(1375));
        assert_eq!(by_scan(set_at(12), ms(2 * SLOW_MS)), ms(512));
        let clocks = Clocks { measure_ns: 1_000_000, schedule_ns: 500_000_000, skew_ns: 0 };
        assert_eq!(clocks.fires(set_at(193), 190), ms(193));
        assert_eq!(clocks.fires(set_at(133), 167), ms(633));
    }
}
