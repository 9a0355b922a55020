//! Arrival times of frames, from the kernel's receive times. The kernel uses the wall clock, and
//! the stack a clock that is never set. Only the difference between two receive times is taken
//! over.

use std::time::Duration;

use lightwait_core::Instant;

/// A receive time is believed if it is no farther than this from the time of the turn. The kernel
/// hands frames over sooner than that. A receive time beyond it comes from before or after a
/// setting of the wall clock, or the two clocks have drifted apart.
const FAR: Duration = Duration::from_secs(1);

/// A moment at which both clocks were read.
#[derive(Debug, Default)]
pub(super) struct Stamps {
    anchor: Option<(Instant, u64)>,
}

impl Stamps {
    /// The arrival time of a frame that the kernel received at `wall_ns` and that a turn at `now`
    /// hands over. It is as far from the frame before it as the kernel's receive times are. It may
    /// be somewhat later than `now`, which was read earlier. It is `now` after the wall clock was
    /// set.
    pub(super) fn arrived(&mut self, now: Instant, wall_ns: u64) -> Instant {
        let (at, anchor_ns) = *self.anchor.get_or_insert((now, wall_ns));
        let arrived = match wall_ns.checked_sub(anchor_ns) {
            Some(later) => at.plus_nanos(later),
            None => at - Duration::from_nanos(anchor_ns - wall_ns),
        };
        if (now - FAR..=now + FAR).contains(&arrived) {
            return arrived;
        }
        self.anchor = Some((now, wall_ns));
        now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ns: u64) -> Instant {
        Instant::from_millis(100_000) + Duration::from_nanos(ns)
    }

    #[test]
    fn frames_of_one_turn_are_as_far_apart_as_the_kernel_got_them() {
        let (mut stamps, wall) = (Stamps::default(), 1_700_000_000_000_000_000);
        assert_eq!(stamps.arrived(at(0), wall), at(0));
        assert_eq!(stamps.arrived(at(0), wall + 1200), at(1200), "after the turn's time was read");
        assert_eq!(stamps.arrived(at(5_000_000), wall + 2400), at(2400), "some turns later");
        assert_eq!(stamps.arrived(at(5_000_000), wall - 100), at(0) - Duration::from_nanos(100));
    }

    #[test]
    fn a_clock_that_is_set_counts_from_there() {
        let (mut stamps, wall) = (Stamps::default(), 1_700_000_000_000_000_000);
        for set in [wall, wall + 3_600_000_000_000, 5, wall] {
            assert_eq!(stamps.arrived(at(1000), set), at(1000));
            assert_eq!(stamps.arrived(at(1000), set + 700), at(1700));
        }
    }
}
