use super::*;
use proptest::prelude::*;

/// Real time, in thousandths of a measurement tick.
const FINE: u64 = 1000;

/// Schedules an event for `t` ticks at real time `at`, and returns after what real time it fires,
/// when scheduling ticks come every `x` measurement ticks, the first at `phase`.
fn actual(t: u64, x: u64, at: u64, phase: u64) -> u64 {
    let mut schedule = Schedule::new(ManualClock::new(x), 1);
    assert_eq!(ratio(&schedule), x);
    schedule.clock_mut().set(at / FINE);
    schedule.schedule_event(t, ());
    let step = x * FINE;
    let first = phase + at.saturating_sub(phase).div_ceil(step) * step;
    // From the first scheduling tick on; but what cannot be due before T has passed is skipped.
    let mut tick = first + (t * FINE).saturating_sub(step) / step * step;
    loop {
        schedule.clock_mut().set(tick / FINE);
        if schedule.on_tick().is_some() {
            return tick - at;
        }
        tick += step;
    }
}

/// Fig. 11, T = 1 and X = 2: just over 1 tick in the best case.
#[test]
fn figure_11_the_earliest() {
    let at = 2 * FINE + FINE - 1;
    let passed = actual(1, 2, at, 0);
    assert_eq!(passed, FINE + 1, "asked for at the end of tick 2, fires when tick 4 begins");
}

/// Fig. 11, T = 1 and X = 2: just under 4 in the worst.
#[test]
fn figure_11_the_latest() {
    let passed = actual(1, 2, FINE, 999);
    assert_eq!(passed, 4 * FINE - 1, "one thousandth short of T + X + 1");
}

#[test]
fn a_cancelled_event_does_not_happen_and_is_given_back_once() {
    let mut schedule = Schedule::new(ManualClock::new(1000), 100);
    let (first, second) = (schedule.schedule_event(5, 'a'), schedule.schedule_event(5, 'b'));
    assert_eq!((schedule.schedule_resolution(), schedule.len()), (100, 2));
    assert_eq!(schedule.cancel_event(first), Some('a'));
    assert_eq!(schedule.cancel_event(first), None);
    schedule.clock_mut().set(5);
    assert_eq!(schedule.on_tick(), None, "T + 1 have not passed");
    schedule.clock_mut().set(6);
    assert_eq!(schedule.on_tick(), Some('b'));
    assert_eq!(schedule.cancel_event(second), None);
    assert!(schedule.is_empty());
}

#[test]
fn events_of_one_tick_happen_in_order_of_their_times() {
    let mut schedule = Schedule::new(ManualClock::new(1000), 1);
    for (ticks, name) in [(300, 'c'), (100, 'a'), (200, 'b'), (300, 'd')] {
        schedule.schedule_event(ticks, name);
    }
    schedule.clock_mut().set(1000);
    let order: std::string::String = core::iter::from_fn(|| schedule.on_tick()).collect();
    assert_eq!(order, "abcd");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]
    /// T < actual < T + X + 1, for every T, every X and every phase.
    #[test]
    fn what_really_passes_lies_between_the_bounds(
        t in prop_oneof![0u64..10, 0u64..100_000, 0u64..10_000_000],
        x in prop_oneof![1u64..4, 1u64..1000, 1u64..=1_000_000],
        at in 0u64..10_000_000_000,
        phase: u64,
    ) {
        let passed = actual(t, x, at, phase % (x * FINE));
        prop_assert!(t * FINE < passed, "{passed}");
        prop_assert!(passed < (t + x + 1) * FINE, "{passed}");
    }
}
