//! From cycles to nanoseconds: a rate that is measured against the system's clock again and again,
//! and corrected so that the two never drift apart and ours never goes back. Pure, so that drift
//! can be tested in virtual time.

/// How long a rate holds at first, in ns, until it is measured again; it doubles up to the longest.
const FIRST_NS: u64 = 10_000_000;
/// How long a rate holds at most.
const LONGEST_NS: u64 = 1_000_000_000;
/// What is behind by more was not drift: the machine slept, and the clock jumps forward.
const JUMP_NS: i64 = 50_000_000;
/// Most of a correction: a part in 2000, as NTP slews.
const SLEW_PARTS: i128 = 2000;

/// The state of the conversion.
#[derive(Clone, Copy, Debug)]
pub(super) struct Discipline {
    /// Ours at `cycles`, in ns.
    ns: u64,
    cycles: u64,
    /// ns a cycle, in units of 2^-32.
    rate: u64,
    /// The last comparison: cycles and the system's ns.
    compared: (u64, u64),
    /// At or beyond these cycles the rate is to be measured again.
    pub(super) check_at: u64,
    interval_ns: u64,
}

impl Discipline {
    /// From two comparisons, each of cycles and the system's ns; `None` if they tell no rate.
    pub(super) fn new(first: (u64, u64), second: (u64, u64)) -> Option<Discipline> {
        let rate = rate(first, second)?;
        let mut discipline = Discipline {
            ns: second.1,
            cycles: second.0,
            rate,
            compared: first,
            check_at: 0,
            interval_ns: FIRST_NS,
        };
        discipline.check_at = second.0 + discipline.cycles_in(FIRST_NS);
        Some(discipline)
    }

    /// The time at `cycles`, in ns.
    #[inline]
    pub(super) fn at(&self, cycles: u64) -> u64 {
        let passed = u128::from(cycles.saturating_sub(self.cycles)) * u128::from(self.rate);
        self.ns + (passed >> 32) as u64
    }

    /// At `cycles` the system's clock said `system_ns`: measures the rate anew, and leans towards
    /// the system's time so that the error is gone when the next comparison is due.
    pub(super) fn compare(&mut self, cycles: u64, system_ns: u64) {
        let ours = self.at(cycles);
        let error = system_ns.wrapping_sub(ours) as i64;
        let jumped = error.unsigned_abs() > JUMP_NS.unsigned_abs();
        let measured = rate(self.compared, (cycles, system_ns)).filter(|_| !jumped);
        let measured = measured.unwrap_or(self.rate);
        self.compared = (cycles, system_ns);
        self.cycles = cycles;
        self.interval_ns = (self.interval_ns * 2).min(LONGEST_NS);
        self.ns = if error > JUMP_NS { system_ns } else { ours };
        let wanted = if error > JUMP_NS { 0 } else { i128::from(error) };
        let interval = i128::from(self.interval_ns);
        let lean = wanted.clamp(-interval / SLEW_PARTS, interval / SLEW_PARTS);
        let rate = i128::from(measured) * (interval + lean) / interval;
        self.rate = u64::try_from(rate).unwrap_or(measured).max(1);
        self.check_at = cycles + self.cycles_in(self.interval_ns);
    }

    /// Cycles a second, as measured last.
    pub(super) fn cycles_per_second(&self) -> u64 {
        self.cycles_in(1_000_000_000)
    }

    fn cycles_in(&self, ns: u64) -> u64 {
        ((u128::from(ns) << 32) / u128::from(self.rate.max(1))).min(u64::MAX.into()) as u64
    }
}

/// ns a cycle in units of 2^-32, between two comparisons.
fn rate(from: (u64, u64), to: (u64, u64)) -> Option<u64> {
    let (cycles, ns) = (to.0.checked_sub(from.0)?, to.1.checked_sub(from.1)?);
    let rate = (u128::from(ns) << 32).checked_div(cycles.into())?;
    u64::try_from(rate).ok().filter(|rate| *rate > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A counter of 3 GHz whose true rate is off by so many parts in a billion after calibration,
    /// read for `seconds`; the worst error against the system, in ns, after the first second.
    fn worst_error(off_ppb: i64, noise_ns: u64, seconds: u64) -> u64 {
        let cycles = |ns: u64| {
            let exact = i128::from(ns) * 3;
            (exact + exact * i128::from(off_ppb) / 1_000_000_000) as u64
        };
        // Calibrated over a millisecond, with all of the noise against it.
        let first = (cycles(0), noise_ns);
        let mut clock = Discipline::new(first, (cycles(1_000_000), 1_000_000)).unwrap();
        let (mut worst, mut last, mut even) = (0, 0, false);
        for ns in (1_000_000..seconds * 1_000_000_000).step_by(999_983) {
            let now = cycles(ns);
            if now >= clock.check_at {
                even = !even;
                clock.compare(now, ns + if even { noise_ns } else { 0 });
            }
            let ours = clock.at(now);
            assert!(ours >= last, "it went back");
            last = ours;
            if ns > 1_000_000_000 {
                worst = worst.max(ours.abs_diff(ns));
            }
        }
        worst
    }

    #[test]
    fn drift_is_found_and_bounded() {
        for off_ppb in [0, 1_000, -1_000, 200_000, -200_000] {
            let worst = worst_error(off_ppb, 0, 60);
            assert!(worst < 100, "{off_ppb} ppb: {worst} ns");
        }
    }

    #[test]
    fn noise_of_the_comparison_stays_noise() {
        let worst = worst_error(50_000, 200, 60);
        assert!(worst < 2_000, "{worst} ns");
    }

    #[test]
    fn a_sleep_of_the_machine_is_jumped_over_and_a_step_back_is_waited_for() {
        let mut clock = Discipline::new((0, 0), (3_000_000, 1_000_000)).unwrap();
        clock.compare(30_000_000, 5_000_000_000);
        assert_eq!(clock.at(30_000_000), 5_000_000_000);
        // The system says less than we did: we slow down, and never go back.
        let before = clock.at(60_000_000);
        clock.compare(60_000_000, before - 100_000);
        let after = clock.at(60_000_001);
        assert!(after >= before);
        let passed = clock.at(3_060_000_000) - before;
        assert!((900_000_000..1_000_000_000).contains(&passed), "{passed}");
    }

    #[test]
    fn the_rate_is_told_in_cycles_a_second() {
        for (cycles, hz) in [(3_000_000, 3_000_000_000_u64), (25_000, 25_000_000)] {
            let clock = Discipline::new((0, 0), (cycles, 1_000_000)).unwrap();
            assert!(clock.cycles_per_second().abs_diff(hz) < 10, "{}", clock.cycles_per_second());
        }
    }

    #[test]
    fn two_comparisons_that_tell_no_rate_make_no_clock() {
        assert!(Discipline::new((5, 0), (5, 10)).is_none());
        assert!(Discipline::new((9, 0), (5, 10)).is_none());
        assert!(Discipline::new((0, 10), (5, 10)).is_none());
    }
}
