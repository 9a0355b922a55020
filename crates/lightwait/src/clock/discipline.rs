//! Converts cycles to nanoseconds along a line. Its slope is measured against the system's clock
//! again and again, and corrected so that the two clocks never drift apart and ours never goes
//! back.
//!
//! ```text
//!   cycles    the last reading       the rate is due
//!   ────┬─────────┬────────────────────────┬────▶
//!     line      next                    check_at
//!                 ├─── on the line ────────┤
//!   goes back, stands still:           leaps ahead, or it is time:
//!   the system's clock is asked        the system's clock is asked
//! ```
//!
//! The system's clock determines the next line if it differs by no more than drift explains. A
//! counter that is further off has broken its promise. The clock gives it up for good, and returns
//! the system's time from then on, once that has reached the last time returned. A leap stays
//! unnoticed only if it is shorter than the time to the next check, a second at most.
//!
//! The module is pure, so that all of this can be tested in virtual time.

use std::cell::Cell;

/// Time until a rate is measured again, in ns. It doubles after each check up to the longest.
const FIRST_NS: u64 = 10_000_000;
/// The longest time until a rate is measured again, in ns.
const LONGEST_NS: u64 = 1_000_000_000;
/// A difference that drift between two comparisons cannot explain, in ns.
const BOUND_NS: u64 = 50_000_000;
/// If our clock is behind, the bound also grows by a part in a thousand of the time since the last
/// comparison. The clock makes up that difference at once. If our clock were ahead by as much, the
/// correction would take too long.
const BEHIND_PARTS: u64 = 1000;
/// The largest correction: a part in 2000, as in NTP's slewing.
const SLEW_PARTS: i128 = 2000;

/// The two clocks that are compared.
pub(super) trait Sources {
    /// The cycle counter.
    fn cycles(&self) -> u64;
    /// The system's clock, in ns; the system promises that it never goes back.
    fn system_ns(&self) -> u64;

    /// Reads both clocks at one moment: the best of a few tries, since the thread may lose the
    /// processor between the two readings.
    fn both(&self) -> Moment {
        let tries = (0..4).map(|_| {
            let before = self.cycles();
            let system_ns = self.system_ns();
            let width = self.cycles().wrapping_sub(before);
            (width, Moment { cycles: before.wrapping_add(width / 2), system_ns })
        });
        let best = tries.min_by_key(|&(width, _)| width);
        best.map_or(Moment { cycles: 0, system_ns: 0 }, |(_, moment)| moment)
    }
}

/// The readings of both clocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    pub(super) cycles: u64,
    pub(super) system_ns: u64,
}

/// The state of the conversion.
#[derive(Debug)]
pub(super) struct Discipline {
    /// The last reading plus one; no more than `check_at`.
    next: Cell<u64>,
    /// The rate is measured again at or beyond these cycles.
    check_at: Cell<u64>,
    line: Cell<Line>,
    /// The last comparison that was due.
    compared: Cell<Moment>,
    interval_ns: Cell<u64>,
    /// The last time returned, in ns, when the counter was given up.
    given_up: Cell<Option<u64>>,
}

impl Discipline {
    /// Makes the line from two comparisons; `None` if they give no rate.
    pub(super) fn new(first: Moment, second: Moment) -> Option<Discipline> {
        let line = Line { ns: second.system_ns, cycles: second.cycles, rate: rate(first, second)? };
        Some(Discipline {
            next: Cell::new(second.cycles.saturating_add(1)),
            check_at: Cell::new(line.cycles_after(FIRST_NS)),
            line: Cell::new(line),
            compared: Cell::new(first),
            interval_ns: Cell::new(FIRST_NS),
            given_up: Cell::new(None),
        })
    }

    /// The time now, in ns.
    #[inline]
    pub(super) fn read(&self, sources: &impl Sources) -> u64 {
        let (now, next) = (sources.cycles(), self.next.get());
        // One comparison covers both ends: a reading before `next` wraps around to beyond
        // `check_at`.
        if now.wrapping_sub(next) >= self.check_at.get().wrapping_sub(next) {
            return self.check(sources);
        }
        self.next.set(now + 1);
        self.line.get().at(now)
    }

    /// The time now, after a comparison of both clocks.
    fn check(&self, sources: &impl Sources) -> u64 {
        if let Some(told) = self.given_up.get() {
            return self.tell_system(told, sources.system_ns());
        }
        let (moment, line) = (sources.both(), self.line.get());
        let told = line.at(self.next.get() - 1);
        let error = i128::from(moment.system_ns) - line.extended(moment.cycles);
        let passed_ns = moment.system_ns.saturating_sub(line.ns);
        let most = BOUND_NS + if error > 0 { passed_ns / BEHIND_PARTS } else { 0 };
        if error.unsigned_abs() > most.into() {
            // No reading is on the line any more.
            self.check_at.set(self.next.get());
            return self.tell_system(told, moment.system_ns);
        }
        if moment.cycles < self.next.get() {
            return told;
        }
        if moment.cycles >= self.check_at.get() {
            self.correct(moment, error);
        }
        self.next.set(moment.cycles.saturating_add(1));
        self.line.get().at(moment.cycles)
    }

    fn tell_system(&self, told: u64, system_ns: u64) -> u64 {
        let now = told.max(system_ns);
        self.given_up.set(Some(now));
        now
    }

    /// Measures the rate anew. The new line approaches the system's time, which is `error` ahead of
    /// ours, so that the error is gone when the next comparison is due.
    fn correct(&self, moment: Moment, error: i128) {
        let line = self.line.get();
        let measured = rate(self.compared.replace(moment), moment).unwrap_or(line.rate);
        let interval_ns = (self.interval_ns.get() * 2).min(LONGEST_NS);
        let interval = i128::from(interval_ns);
        let lean = error.clamp(-interval / SLEW_PARTS, interval / SLEW_PARTS);
        let leaning = i128::from(measured) * (interval + lean) / interval;
        let rate = u64::try_from(leaning).unwrap_or(measured).max(1);
        let ours = line.at(moment.cycles);
        let is_far_behind = error > BOUND_NS.into();
        let ns = if is_far_behind { moment.system_ns } else { ours };
        let line = Line { ns, cycles: moment.cycles, rate };
        self.line.set(line);
        self.interval_ns.set(interval_ns);
        self.check_at.set(line.cycles_after(interval_ns));
    }

    /// True until the counter is given up.
    pub(super) fn counts_cycles(&self) -> bool {
        self.given_up.get().is_none()
    }

    /// Cycles a second, by the last measurement.
    pub(super) fn cycles_per_second(&self) -> u64 {
        self.line.get().cycles_in(1_000_000_000)
    }
}

/// Time as a function of the counter.
#[derive(Clone, Copy, Debug)]
struct Line {
    /// The time at `cycles`.
    ns: u64,
    cycles: u64,
    /// ns a cycle, in units of 2^-32.
    rate: u64,
}

impl Line {
    /// The time at `cycles`, which is on the line.
    #[inline]
    fn at(self, cycles: u64) -> u64 {
        let passed = u128::from(cycles.wrapping_sub(self.cycles)) * u128::from(self.rate);
        self.ns.wrapping_add((passed >> 32) as u64)
    }

    /// The time at any `cycles`, before or beyond the line as well.
    fn extended(self, cycles: u64) -> i128 {
        let passed = i128::from(cycles) - i128::from(self.cycles);
        i128::from(self.ns) + (passed.saturating_mul(self.rate.into()) >> 32)
    }

    fn cycles_in(self, ns: u64) -> u64 {
        ((u128::from(ns) << 32) / u128::from(self.rate.max(1))).min(u64::MAX.into()) as u64
    }

    /// The cycles at which `ns` have passed since the line's start, one cycle later at least.
    fn cycles_after(self, ns: u64) -> u64 {
        self.cycles.saturating_add(self.cycles_in(ns).max(1))
    }
}

/// ns a cycle between two comparisons, in units of 2^-32.
fn rate(from: Moment, to: Moment) -> Option<u64> {
    let cycles = to.cycles.checked_sub(from.cycles)?;
    let ns = to.system_ns.checked_sub(from.system_ns)?;
    let rate = (u128::from(ns) << 32).checked_div(cycles.into())?;
    u64::try_from(rate).ok().filter(|rate| *rate > 0)
}

#[cfg(test)]
mod tests;
