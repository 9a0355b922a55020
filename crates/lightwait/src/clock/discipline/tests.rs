use super::*;

/// A world that controls a counter of 3 GHz and the system's clock.
#[derive(Default)]
struct World {
    /// True time.
    ns: Cell<u64>,
    /// The error of the counter's rate, in parts in a billion.
    off_ppb: Cell<i64>,
    /// Added to the counter.
    leap_cycles: Cell<i64>,
    /// The counter stands still here.
    stands_at: Cell<Option<u64>>,
    /// Added to the system's clock.
    step_ns: Cell<i64>,
    /// Added to the system's clock at every second comparison.
    noise_ns: Cell<u64>,
    /// Readings of the system's clock.
    comparisons: Cell<u64>,
}

impl Sources for World {
    fn cycles(&self) -> u64 {
        let exact = i128::from(self.ns.get()) * 3;
        let counted = exact + exact * i128::from(self.off_ppb.get()) / 1_000_000_000;
        let shown = u64::try_from(counted + i128::from(self.leap_cycles.get())).unwrap();
        self.stands_at.get().unwrap_or(shown)
    }

    fn system_ns(&self) -> u64 {
        // A comparison reads the clock four times.
        let asked = self.comparisons.replace(self.comparisons.get() + 1);
        let noise_ns = if (asked / 4).is_multiple_of(2) { self.noise_ns.get() } else { 0 };
        self.ns.get().checked_add_signed(self.step_ns.get()).unwrap() + noise_ns
    }
}

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;
const HOUR: i64 = 3_600 * SECOND as i64;

/// A world, its clock, and the last time that the clock returned.
struct Run {
    world: World,
    clock: Discipline,
    told: u64,
}

impl Run {
    /// Calibrated over the first millisecond of `world`.
    fn new(world: World) -> Run {
        let first = world.both();
        world.ns.set(MS);
        let clock = Discipline::new(first, world.both()).unwrap();
        Run { world, clock, told: 0 }
    }

    /// An hour after the start, 10 s after the calibration.
    fn usual() -> Run {
        let world = World::default();
        world.ns.set(3_600 * SECOND);
        let first = world.both();
        world.ns.set(world.ns.get() + MS);
        let clock = Discipline::new(first, world.both()).unwrap();
        let mut run = Run { world, clock, told: 0 };
        run.goes_on(10 * SECOND);
        assert!(run.error_ns() < 100 && run.clock.counts_cycles());
        run
    }

    /// Reads the clock, which must not go back.
    fn read(&mut self) -> u64 {
        let now = self.clock.read(&self.world);
        assert!(now >= self.told, "from {} back to {now}", self.told);
        self.told = now;
        now
    }

    /// The difference between the clock and the system's.
    fn error_ns(&mut self) -> u64 {
        let system_ns = self.world.ns.get().checked_add_signed(self.world.step_ns.get()).unwrap();
        self.read().abs_diff(system_ns)
    }

    /// Reads the clock about every ms for that long, and returns the worst error.
    fn goes_on(&mut self, ns: u64) -> u64 {
        let (begin, mut worst) = (self.world.ns.get(), 0);
        for passed in (0..ns).step_by(999_983) {
            self.world.ns.set(begin + passed);
            worst = worst.max(self.error_ns());
        }
        worst
    }

    /// Checks that the clock reads the system's clock exactly, and not the counter.
    fn is_on_the_systems(&mut self) {
        assert!(!self.clock.counts_cycles());
        self.world.stands_at.set(Some(7));
        assert_eq!(self.goes_on(10 * SECOND), 0);
    }
}

#[test]
fn drift_is_found_and_bounded() {
    for off_ppb in [0, 1_000, -1_000, 200_000, -200_000] {
        // Calibrated at the counter's real rate, and at another.
        let mut run = Run::new(World { off_ppb: Cell::new(off_ppb), ..World::default() });
        run.goes_on(SECOND);
        let worst = run.goes_on(60 * SECOND);
        assert!(worst < 100, "{off_ppb} ppb: {worst} ns");
        let mut run = Run::usual();
        run.world.off_ppb.set(off_ppb);
        // The counter goes on from its present reading.
        let gained = run.world.cycles() as i64 - run.world.ns.get() as i64 * 3;
        run.world.leap_cycles.set(-gained);
        let most = off_ppb.unsigned_abs() * 2 + 100;
        let worst = run.goes_on(4 * SECOND);
        assert!(worst < most, "{off_ppb} ppb, at first: {worst} ns");
        let worst = run.goes_on(60 * SECOND);
        assert!(worst < 100 && run.clock.counts_cycles(), "{off_ppb} ppb: {worst} ns");
    }
}

#[test]
fn a_bad_calibration_is_made_good_by_a_few_comparisons() {
    // The calibration took the counter for one a hundredth slower.
    let world = World { off_ppb: Cell::new(10_000_000), ..World::default() };
    let first = world.both();
    world.ns.set(MS);
    let late = Moment { system_ns: MS + MS / 100, ..world.both() };
    let mut run = Run { world, clock: Discipline::new(first, late).unwrap(), told: 0 };
    run.world.comparisons.set(0);
    run.goes_on(10 * SECOND);
    assert!(run.error_ns() < 1_000);
    // After 10, 30, 70, ... ms at first, and once a second later.
    let comparisons = run.world.comparisons.get() / 4;
    assert!((10..=20).contains(&comparisons), "{comparisons} comparisons");
}

/// The clock is not read for ten hours after a calibration that was a part in 10,000 off.
#[test]
fn a_long_sleep_is_no_leap_of_a_slow_counter() {
    for (off_ppb, stays) in [(-100_000, true), (100_000, false)] {
        let mut run = Run::new(World::default());
        run.world.off_ppb.set(off_ppb);
        run.world.ns.set(10 * HOUR as u64);
        run.read();
        assert_eq!(run.clock.counts_cycles(), stays);
        run.goes_on(5 * SECOND);
        assert!(run.error_ns() < 100 && run.clock.counts_cycles() == stays, "{off_ppb}");
    }
}

#[test]
fn noise_of_the_comparison_stays_noise() {
    let world = World { off_ppb: Cell::new(50_000), ..World::default() };
    world.noise_ns.set(200);
    let mut run = Run::new(world);
    run.goes_on(SECOND);
    let worst = run.goes_on(60 * SECOND);
    assert!(worst < 2_000, "{worst} ns");
}

#[test]
fn a_counter_that_begins_anew_is_given_up() {
    let mut run = Run::usual();
    run.world.leap_cycles.set(-(run.world.cycles() as i64));
    assert!(run.goes_on(10 * SECOND) < 100);
    run.is_on_the_systems();
}

#[test]
fn a_counter_that_leaps_ahead_is_given_up() {
    let mut run = Run::usual();
    run.world.leap_cycles.set(3 * HOUR);
    assert!(run.goes_on(10 * SECOND) < 100);
    run.is_on_the_systems();
}

/// The leap stays within the readings without a comparison. The next comparison finds it, and the
/// clock then stands until real time has caught up.
#[test]
fn a_counter_that_leaps_a_little_is_given_up_within_a_second() {
    let mut run = Run::usual();
    let leap = 60 * MS;
    run.world.leap_cycles.set(3 * leap as i64);
    assert!(run.goes_on(2 * SECOND) <= leap + 100);
    run.is_on_the_systems();
}

#[test]
fn a_counter_that_stands_still_is_given_up() {
    let mut run = Run::usual();
    run.world.stands_at.set(Some(run.world.cycles()));
    assert!(run.goes_on(10 * SECOND) <= BOUND_NS + MS);
    run.is_on_the_systems();
}

/// This happens when a thread moves to a processor whose counter is a little behind.
#[test]
fn a_counter_that_goes_back_a_little_is_waited_for() {
    let mut run = Run::usual();
    for back in 1..=100 {
        run.world.leap_cycles.set(-1_000 * back);
        let before = run.told;
        assert_eq!(run.read(), before);
        assert!(run.goes_on(10 * MS) < 100_000);
    }
    run.goes_on(10 * SECOND);
    assert!(run.error_ns() < 100 && run.clock.counts_cycles());
}

/// This happens after a sleep of the machine in which the counter stood.
#[test]
fn a_systems_clock_that_steps_ahead_is_followed() {
    let mut run = Run::usual();
    run.world.step_ns.set(HOUR);
    // The next comparison finds it.
    run.goes_on(SECOND);
    assert!(run.error_ns() < 100);
    run.is_on_the_systems();
}

/// The system promises that this never happens. If it happens, our clock still does not go back.
#[test]
fn a_systems_clock_that_steps_back_is_waited_for() {
    let mut run = Run::usual();
    run.goes_on(SECOND / 2);
    run.world.step_ns.set(-2 * SECOND as i64);
    run.goes_on(5 * SECOND);
    run.is_on_the_systems();
    run.world.step_ns.set(-4 * SECOND as i64);
    let told = run.told;
    assert!(run.read() == told && run.goes_on(5 * SECOND) <= 2 * SECOND);
}

#[test]
fn what_is_less_than_a_leap_is_leant_to() {
    for step_ns in [100_000, -100_000] {
        let mut run = Run::usual();
        run.world.step_ns.set(step_ns);
        run.goes_on(3 * SECOND);
        let before = run.told;
        assert!(run.error_ns() < 100_000 && run.clock.counts_cycles());
        run.goes_on(10 * SECOND);
        assert!(run.error_ns() < 100 && run.clock.counts_cycles());
        let passed = run.told - before;
        assert!(passed.abs_diff(10 * SECOND) < 10 * SECOND / 1_000, "{passed}");
    }
}

#[test]
fn the_rate_is_told_in_cycles_a_second() {
    for (cycles, hz) in [(3_000_000, 3_000_000_000_u64), (25_000, 25_000_000)] {
        let moment = |cycles, system_ns| Moment { cycles, system_ns };
        let clock = Discipline::new(moment(0, 0), moment(cycles, MS)).unwrap();
        assert!(clock.cycles_per_second().abs_diff(hz) < 10, "{}", clock.cycles_per_second());
    }
}

#[test]
fn two_comparisons_that_tell_no_rate_make_no_clock() {
    let from = |cycles, system_ns| {
        let moment = |cycles, system_ns| Moment { cycles, system_ns };
        Discipline::new(moment(cycles, system_ns), moment(5, 10))
    };
    assert!(from(5, 0).is_none() && from(9, 0).is_none() && from(0, 10).is_none());
    assert!(from(0, 0).is_some());
}
