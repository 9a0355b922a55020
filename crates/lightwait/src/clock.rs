//! The measurement clock of a shard.
//!
//! A shard reads its clock once a batch, not once a packet, and passes the instant down; nothing
//! below the shard reads a clock. The clock is the processor's cycle counter, calibrated at the
//! start and compared with the system's clock from time to time (Aron & Druschel 1999, §3; Mansley
//! 2004, §3: no system call to read the time). It is the system's clock where the counter cannot be
//! trusted, and from the moment at which the counter proves wrong.

mod cycles;
mod discipline;

use std::rc::Rc;
use std::time::Instant as StdInstant;

use discipline::{Discipline, Sources};
use lightwait_core::Instant;
use lightwait_core::time::{Duration, as_nanos};
use rustix::time::{ClockId, clock_getres};

/// Duration of the first calibration. Later comparisons improve the rate.
const CALIBRATION: Duration = Duration::from_millis(1);

/// The clock returns ns, so its resolution is no finer than this.
const FINEST_HZ: u64 = 1_000_000_000;

/// A monotonic clock whose origin is the moment of its creation, unless another is given. Clones
/// are the same clock.
///
/// This is the measurement service of Aron & Druschel's timer framework. [`Clock::now`] returns the
/// time, and [`Clock::measure_resolution`] its resolution.
#[derive(Clone, Debug)]
pub struct Clock {
    origin: StdInstant,
    /// The cycle counter, if it could be trusted at the start.
    counter: Option<Rc<Discipline>>,
    /// Upper bound of the rate at which the reading changes, in Hz.
    resolution_hz: u64,
}

impl Clock {
    /// A clock that stands at [`Instant::ZERO`] now. Takes a millisecond to calibrate.
    #[allow(clippy::new_without_default, reason = "a default has no side effect; this reads time")]
    pub fn new() -> Self {
        Clock::on_counter(cycles::trusted())
    }

    /// A clock of another thread that stands at [`Instant::ZERO`] when this one does
    /// ([`Clock::origin`]). Both follow the system's clock, and may be microseconds apart.
    pub fn with_origin(origin: StdInstant) -> Self {
        Clock::on(origin, cycles::trusted())
    }

    /// Uses the cycle counter if it `is_trusted`, from now on.
    fn on_counter(is_trusted: bool) -> Self {
        Clock::on(StdInstant::now(), is_trusted)
    }

    /// Uses the cycle counter if it `is_trusted` and can be calibrated, else the system's clock.
    fn on(origin: StdInstant, is_trusted: bool) -> Self {
        let calibrated = is_trusted.then(|| calibrate(&origin)).flatten();
        let Some(discipline) = calibrated else {
            return Clock { origin, ..Clock::of_system() };
        };
        let resolution_hz = discipline.cycles_per_second().clamp(1, FINEST_HZ);
        Clock { origin, counter: Some(Rc::new(discipline)), resolution_hz }
    }

    /// A clock that reads the system's clock and stands at [`Instant::ZERO`] now.
    pub fn of_system() -> Self {
        let tick = clock_getres(ClockId::Monotonic);
        let tick_ns = Duration::try_from(tick).map_or(1, as_nanos).clamp(1, FINEST_HZ);
        Clock { origin: StdInstant::now(), counter: None, resolution_hz: FINEST_HZ / tick_ns }
    }

    /// True if the clock reads the cycle counter, and not the system's clock.
    pub fn counts_cycles(&self) -> bool {
        self.counter.as_ref().is_some_and(|discipline| discipline.counts_cycles())
    }

    /// The moment at which the clock stood at [`Instant::ZERO`].
    pub fn origin(&self) -> StdInstant {
        self.origin
    }

    /// The time now, in nanoseconds since the origin.
    pub fn now(&self) -> Instant {
        let ns = match &self.counter {
            Some(discipline) => discipline.read(&self.origin),
            None => self.origin.system_ns(),
        };
        Instant::from_nanos(ns)
    }

    /// The resolution in Hz: the cycle counter's calibrated rate, or the resolution of the system's
    /// clock. It is 1 GHz at most, since the clock returns ns.
    pub fn measure_resolution(&self) -> u64 {
        self.resolution_hz
    }

    /// Converts an instant of the standard library to this clock.
    pub fn at_std(&self, instant: StdInstant) -> Instant {
        Instant::ZERO + instant.saturating_duration_since(self.origin)
    }

    /// Converts an instant of this clock to the standard library's; `None` if it is out of range.
    pub fn to_std(&self, instant: Instant) -> Option<StdInstant> {
        self.origin.checked_add(Duration::from_nanos(instant.as_nanos()))
    }
}

/// The processor's counter, and the system's time since that instant.
impl Sources for StdInstant {
    #[inline]
    fn cycles(&self) -> u64 {
        cycles::read()
    }

    fn system_ns(&self) -> u64 {
        as_nanos(self.elapsed())
    }
}

fn calibrate(origin: &StdInstant) -> Option<Discipline> {
    let first = origin.both();
    let until = StdInstant::now() + CALIBRATION;
    while StdInstant::now() < until {
        std::hint::spin_loop();
    }
    Discipline::new(first, origin.both())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Difference between `clock` and the system's clock after `wait`, in ns.
    fn error_after(clock: &Clock, wait: Duration) -> u64 {
        std::thread::sleep(wait);
        // The best of several tries: the thread may lose the processor between two readings.
        let tries = (0..20).map(|_| {
            let before = as_nanos(clock.origin.elapsed());
            let ours = clock.now().as_nanos();
            let after = as_nanos(clock.origin.elapsed());
            ours.saturating_sub(after) + before.saturating_sub(ours)
        });
        tries.min().unwrap_or(u64::MAX)
    }

    #[test]
    fn the_clock_goes_with_the_systems() {
        for clock in [Clock::new(), Clock::of_system()] {
            for _ in 0..20 {
                let error = error_after(&clock, Duration::from_millis(5));
                assert!(error < 100_000, "{error} ns");
            }
        }
    }

    #[test]
    fn clocks_of_one_origin_tell_the_same_time_on_any_thread() {
        let ours = Clock::new();
        std::thread::sleep(Duration::from_millis(5));
        let origin = ours.origin();
        let theirs =
            std::thread::spawn(move || error_after(&Clock::with_origin(origin), CALIBRATION));
        let errors = [theirs.join().unwrap(), error_after(&ours, CALIBRATION)];
        assert!(errors.iter().all(|error| *error < 100_000), "{errors:?} ns");
    }

    #[test]
    fn a_counter_that_is_not_trusted_is_not_read() {
        let clock = Clock::on_counter(false);
        assert!(clock.counter.is_none() && !clock.counts_cycles());
        assert_eq!(clock.measure_resolution(), Clock::of_system().measure_resolution());
        assert_eq!(Clock::new().counts_cycles(), cycles::trusted());
    }

    #[test]
    fn it_tells_the_resolution_of_what_it_reads() {
        let system = Clock::of_system();
        let tick = Duration::try_from(clock_getres(ClockId::Monotonic)).unwrap();
        assert_eq!(system.measure_resolution(), FINEST_HZ / as_nanos(tick));
        let clock = Clock::new();
        let wanted = clock.counter.as_ref().map_or(system.measure_resolution(), |discipline| {
            discipline.cycles_per_second().min(FINEST_HZ)
        });
        assert!(clock.measure_resolution().abs_diff(wanted) < wanted / 100);
    }

    #[test]
    fn it_never_goes_back() {
        let clock = Clock::new();
        let mut last = clock.now();
        let until = StdInstant::now() + Duration::from_millis(50);
        while StdInstant::now() < until {
            let now = clock.now();
            assert!(now >= last);
            last = now;
        }
    }

    #[test]
    fn instants_have_names_in_both_clocks() {
        let clock = Clock::new();
        let second = clock.now();
        let named = clock.to_std(second).unwrap();
        assert_eq!(clock.at_std(named), second);
    }

    /// The cost of a reading, without a system call; run by hand: times on shared machines drift.
    #[test]
    #[ignore = "a measurement"]
    fn what_a_reading_costs() {
        for clock in [Clock::new(), Clock::of_system()] {
            let start = StdInstant::now();
            for _ in 0..10_000_000 {
                std::hint::black_box(clock.now());
            }
            println!("cycles {}: {:?}", clock.counts_cycles(), start.elapsed() / 10_000_000);
        }
    }
}
