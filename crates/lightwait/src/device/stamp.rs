//! Arrival times of frames, from the kernel's receive times. The kernel uses the wall clock, and
//! the stack a clock that is never set. Both clocks are read at each receive.

use std::time::Duration;

use lightwait_core::Instant;
use rustix::time::{ClockId, clock_gettime};

/// Readings are kept for this long at least, and for twice as long at most where they are frequent.
/// Two clocks of a millionth part's accuracy drift apart by some ns meanwhile.
const WINDOW: Duration = Duration::from_millis(10);

/// Readings that a window has at least: something else may have the processor during one of them.
const READINGS: u32 = 16;

/// A receive time is believed if it is no farther than this from the time of the turn. The kernel
/// hands frames over sooner than that. A receive time beyond it comes from before or after a
/// setting of the wall clock.
const FAR: Duration = Duration::from_secs(1);

/// How far the stack's clock is ahead of the wall clock.
///
/// The wall clock is read after the turn's time. What passes between the two, if something else has
/// the processor, makes the difference smaller than it is. The greatest difference of a while is
/// therefore the best one. A smaller one would make frames arrive before the kernel got them.
///
/// If the wall clock is set forward, the old difference is too great for a while, and frames seem
/// to come later than the turn. If it is set back, the new difference counts at once.
#[derive(Debug, Default)]
pub(super) struct Stamps {
    /// The greatest difference of this window and of the one before it, in ns.
    ahead_ns: [Option<i64>; 2],
    began: Instant,
    readings: u32,
}

impl Stamps {
    /// Reads the wall clock, just after `now`.
    pub(super) fn look(&mut self, now: Instant) {
        let wall = clock_gettime(ClockId::Realtime);
        self.note(now, wall.tv_sec.wrapping_mul(1_000_000_000).wrapping_add(wall.tv_nsec));
    }

    /// The wall clock stood at `wall_ns`, just after `now`.
    fn note(&mut self, now: Instant, wall_ns: i64) {
        if self.readings >= READINGS && now >= self.began + WINDOW {
            self.ahead_ns = [None, self.ahead_ns[0]];
            (self.began, self.readings) = (now, 0);
        }
        let ahead_ns = (now.as_nanos() as i64).wrapping_sub(wall_ns);
        self.ahead_ns[0] = self.ahead_ns[0].max(Some(ahead_ns));
        self.readings += 1;
    }

    /// The arrival time of a frame that the kernel received at `wall_ns` and that a turn at `now`
    /// hands over. It is later than `now` if the frame came since. `None` after the wall clock was
    /// set.
    pub(super) fn arrived(&self, now: Instant, wall_ns: u64) -> Option<Instant> {
        let ahead_ns = self.ahead_ns[0].max(self.ahead_ns[1])?;
        let arrived_ns = i64::try_from(wall_ns).ok()?.checked_add(ahead_ns)?;
        let arrived = Instant::from_nanos(u64::try_from(arrived_ns).ok()?);
        (now - FAR..=now + FAR).contains(&arrived).then_some(arrived)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WALL: i64 = 1_700_000_000_000_000_000;
    const MS: i64 = 1_000_000;

    fn at(ns: i64) -> Instant {
        Instant::from_millis(100_000).plus_nanos(ns as u64)
    }

    /// Readings 1 µs apart from `from_ns` to `to_ns`, of a wall clock that was set by `set_ns`.
    fn note(stamps: &mut Stamps, from_ns: i64, to_ns: i64, set_ns: i64) {
        for ns in (from_ns..to_ns).step_by(1000) {
            stamps.note(at(ns), WALL + ns + set_ns);
        }
    }

    fn arrived(stamps: &Stamps, now_ns: i64, wall_ns: i64) -> Option<Instant> {
        stamps.arrived(at(now_ns), (WALL + wall_ns) as u64)
    }

    #[test]
    fn frames_of_one_turn_are_as_far_apart_as_the_kernel_got_them() {
        let mut stamps = Stamps::default();
        assert_eq!(arrived(&stamps, 0, 0), None, "the clocks were never read");
        note(&mut stamps, 0, 1000, 0);
        assert_eq!(arrived(&stamps, 0, 0), Some(at(0)));
        assert_eq!(arrived(&stamps, 0, 1200), Some(at(1200)), "after the turn's time was read");
        assert_eq!(arrived(&stamps, 5 * MS, 2400), Some(at(2400)), "some turns later");
    }

    #[test]
    fn a_processor_lost_between_the_clocks_makes_no_frame_early() {
        let mut stamps = Stamps::default();
        stamps.note(at(0), WALL + 8 * MS);
        note(&mut stamps, 8 * MS, 8 * MS + 3000, 0);
        stamps.note(at(8 * MS + 3000), WALL + 12 * MS);
        assert_eq!(arrived(&stamps, 9 * MS, 9 * MS), Some(at(9 * MS)), "lost in one window");
        note(&mut stamps, 12 * MS, 13 * MS, 0);
        stamps.note(at(40 * MS), WALL + 48 * MS);
        assert_eq!(arrived(&stamps, 40 * MS, 48 * MS), Some(at(48 * MS)), "lost later");
        for turn in 0..i64::from(READINGS) - 1 {
            stamps.note(at((50 + 20 * turn) * MS), WALL + (58 + 20 * turn) * MS);
        }
        assert_eq!(arrived(&stamps, 400 * MS, 400 * MS), Some(at(400 * MS)), "often, one by one");
    }

    #[test]
    fn a_wall_clock_that_is_set_makes_no_frame_come_early() {
        for set_ns in [5 * MS, -5 * MS, 3_600_000 * MS, -3_600_000 * MS] {
            let mut stamps = Stamps::default();
            note(&mut stamps, 0, 30 * MS, 0);
            let mut late = 0;
            for ns in (30 * MS..60 * MS).step_by(1000) {
                note(&mut stamps, ns, ns + 1000, set_ns);
                let found = arrived(&stamps, ns, ns + set_ns).unwrap_or(Instant::FAR_FUTURE);
                assert!(found >= at(ns), "{set_ns} {ns}");
                late += i64::from(found > at(ns));
            }
            assert!(late <= 20_001, "{set_ns}: {late} turns");
            assert!(set_ns > 0 || late == 0, "set back, it counts at once");
        }
    }
}
