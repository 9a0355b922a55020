//! The bound of the timer framework (Aron & Druschel 1999, §3 and Fig. 11), held by the schemes
//! that fire at the ticks of the scheduling clock.
//!
//! ```text
//!   measurement     │  │  │  │  │  │  │  │  │  │  │  │  │      X of these
//!   scheduling      │           │           │           │      to one of these
//!                      s        s+T+1 ──────▶ fires here
//! ```
//!
//! A timer set at measurement tick s for T ticks and one more fires at the first scheduling tick at
//! which the measurement clock shows s + T + 1 or more. The time that really passes is between T
//! and T + X + 1 measurement ticks, whatever the phases. (The one more makes up for the part of a
//! tick that was over when s was read; a timer set for D ticks has asked for T = D - 1.)

use proptest::prelude::*;

use super::{Deadlines, Filed, Ticks, Timer, Timers};
use crate::config::Scheme;
use crate::time::{Duration, Instant};

/// Real time is in thousandths of a measurement tick.
const FINE: u64 = 1000;

/// A timer of the framework.
#[derive(Clone, Copy, Debug)]
struct Case {
    scheme: Scheme,
    /// Measurement ticks.
    t: u64,
    /// Measurement ticks to one of the scheduling clock.
    x: u64,
    /// When it is set.
    at: u64,
    /// How long after a measurement tick those of the scheduling clock come; less than [`FINE`].
    skew: u64,
}

impl Case {
    /// After what real time it fires.
    fn actual(self) -> u64 {
        let read = |real: u64| Instant::from_nanos(real / FINE * FINE);
        let mut timers = Timers::new(self.scheme, Ticks::new(Duration::from_nanos(self.x * FINE)));
        let (mut filed, mut deadlines) = (Filed::default(), Deadlines::default());
        // Every scheduling tick till now has been.
        assert_eq!(timers.due(read(self.at), &mut |_, _| unreachable!()), None);
        let due = read(self.at).plus_nanos((self.t + 1) * FINE);
        deadlines.set(Timer::Retransmit, due);
        timers.touched(0, &mut filed, &mut deadlines, read(self.at));
        loop {
            let real = timers.deadline().expect("it is set").as_nanos() + self.skew;
            let told = read(real);
            while timers.due(told, &mut |_, _| unreachable!()).is_some() {
                timers.take_out(&mut filed);
                if deadlines.take_due(Timer::Retransmit, told) {
                    return real - self.at;
                }
                // Reached early.
                deadlines.tighten();
                timers.touched(0, &mut filed, &mut deadlines, told);
            }
        }
    }
}

const SCHEMES: [Scheme; 2] = [Scheme::Inline, Scheme::Wheel];

/// Fig. 11, T = 1 and X = 2: just over 1 tick in the best case.
#[test]
fn figure_11_the_earliest() {
    for scheme in SCHEMES {
        let case = Case { scheme, t: 1, x: 2, at: 3 * FINE - 1, skew: 0 };
        assert_eq!(case.actual(), FINE + 1, "set at the end of tick 2, fires when tick 4 begins");
    }
}

/// Fig. 11, T = 1 and X = 2: just under 4 in the worst.
#[test]
fn figure_11_the_latest() {
    for scheme in SCHEMES {
        let case = Case { scheme, t: 1, x: 2, at: FINE, skew: FINE - 1 };
        assert_eq!(case.actual(), 4 * FINE - 1, "one thousandth short of T + X + 1");
    }
}

/// Neither bound could be tighter, for the least and the largest X.
#[test]
fn both_bounds_are_met_but_for_a_thousandth_of_a_tick() {
    for (scheme, x) in SCHEMES.into_iter().flat_map(|scheme| [(scheme, 1), (scheme, 1_000_000)]) {
        for t in [0, 1, x, 3 * x + 7] {
            // A scheduling tick comes in T + 1 ticks.
            let tick = (t / x + 2) * x;
            let first = Case { scheme, t, x, at: (tick - t) * FINE - 1, skew: 0 };
            assert_eq!(first.actual(), t * FINE + 1, "{first:?}");
            // One has just come when T + 1 have passed.
            let last = Case { scheme, t, x, at: (tick - t) * FINE, skew: FINE - 1 };
            assert_eq!(last.actual(), (t + x + 1) * FINE - 1, "{last:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, ..ProptestConfig::default() })]
    /// T < actual < T + X + 1, for every T, every X and every phase.
    #[test]
    fn what_really_passes_lies_between_the_bounds(
        scheme in proptest::sample::select(SCHEMES.to_vec()),
        t in prop_oneof![0u64..10, 0u64..100_000, 0u64..10_000_000, 0u64..10_000_000_000],
        x in prop_oneof![Just(1), 1u64..4, 1u64..1000, 1u64..=1_000_000, Just(1_000_000)],
        at in 0u64..10_000_000_000,
        skew in prop_oneof![Just(0), 0..FINE, Just(FINE - 1)],
    ) {
        let case = Case { scheme, t, x, at, skew };
        let passed = case.actual();
        prop_assert!(t * FINE < passed, "{passed}");
        prop_assert!(passed < (t + x + 1) * FINE, "{passed}");
    }
}
