//! What sweeps must not do: lose anything, keep anything, or put it out of its order.

use super::bounds::bytes;
use super::*;

/// One that comes and goes, so many times a ms for so many ms, and whatever is due.
fn churn(fixture: &mut Fixture, per_ms: u32, ms: u32) {
    for _ in 0..ms {
        for _ in 0..per_ms {
            fixture.enter(5_000_000);
            fixture.remove(5_000_000);
        }
        fixture.pass(Duration::from_millis(1));
        // Two thousand are more than a turn's share.
        let due = |fixture: &Fixture| fixture.table.deadline().is_some_and(|at| at <= fixture.now);
        for _ in 0..2 {
            if due(fixture) {
                fixture.pass(Duration::ZERO);
            }
        }
        fixture.turn();
    }
    fixture.check_queues();
}

/// Of 20,000 the oldest 2,000, which entered within 2 s; they are restarted after 30 s.
fn group_restarted(limit: usize) -> Fixture {
    let mut fixture = Fixture::new(limit);
    fixture.keep_dead(100);
    for number in 0..20_000 {
        fixture.enter(number);
        if number < 2_000 || number.is_multiple_of(2) {
            fixture.pass(Duration::from_millis(1));
        }
    }
    fixture.pass(Duration::from_secs(30));
    (0..2_000).for_each(|number| fixture.restart(number));
    fixture
}

fn all_are_there(fixture: &Fixture, numbers: core::ops::Range<u32>) -> bool {
    numbers.into_iter().all(|number| fixture.find(number).is_some())
}

#[test]
fn records_restarted_again_and_again_block_none_and_are_kept() {
    let mut fixture = group_restarted(30_000);
    churn(&mut fixture, 10, 20_000);
    assert!(all_are_there(&fixture, 0..20_000));
    // The others' time is over, one after the other.
    for _ in 0..3 {
        (0..2_000).for_each(|number| fixture.restart(number));
        churn(&mut fixture, 10, 20_000);
        assert_eq!(fixture.over(), 0);
        assert!(all_are_there(&fixture, 0..2_000));
    }
    assert_eq!(fixture.table.len(), 2_000);
}

#[test]
fn a_full_table_lets_nobody_go_while_the_time_of_others_is_over() {
    let fixture = group_restarted(15_000);
    assert_eq!(fixture.counters.time_wait_evicted, 5_000, "the oldest");
    assert!(!all_are_there(&fixture, 4_999..5_000) && all_are_there(&fixture, 5_000..20_000));
    let mut fixture = group_restarted(30_000);
    churn(&mut fixture, 10, 32_000);
    (0..28_000).for_each(|number| fixture.enter(6_000_000 + number));
    assert_eq!(fixture.counters.time_wait_evicted, 0);
    assert!(all_are_there(&fixture, 0..2_000), "they were restarted 32 s ago");
}

/// Rounded up once, and not each time it is moved.
#[test]
fn however_often_one_is_moved_it_lasts_no_longer() {
    for term in [TERM, Duration::from_secs(3600)] {
        let mut fixture = Fixture::with([term; 3], 1 << 20);
        fixture.keep_dead(0);
        for number in 0..100 {
            fixture.enter(number);
            fixture.pass(term / 200);
        }
        let ends = |fixture: &Fixture| (0..100).map(|n| Some(fixture.find(n)?.expires)).collect();
        let before: Vec<Option<Instant>> = ends(&fixture);
        let (mut sweeps, mut was_sweeping) = (0, false);
        for _ in 0..100 {
            for _ in 0..1000 {
                fixture.enter(5000);
                fixture.remove(5000);
                let is_sweeping = fixture.table.classes[0].v4.queue.is_sweeping();
                sweeps += u32::from(is_sweeping && !was_sweeping);
                was_sweeping = is_sweeping;
            }
            fixture.pass(term / 400);
            fixture.turn();
        }
        assert!(sweeps > 100, "{sweeps} sweeps");
        let step = Duration::from_millis(Scale::new(term.as_millis() as u64).step_ms());
        for (before, after) in before.into_iter().zip(ends(&fixture)) {
            let late = before.zip(after).map(|(before, after)| after.since(before));
            assert!(late.is_some_and(|late| late <= step), "{late:?}");
        }
        fixture.pass(term);
        fixture.turn();
        assert_eq!(fixture.table.len(), 0);
    }
}

/// Whole blocks are given back, and the time steps of a restart reach no further than they must.
#[test]
fn blocks_that_are_taken_back_are_in_order_and_tell_all_times() {
    const EACH: u32 = 1024;
    let term = Duration::from_millis(64 * 2044 / 2);
    let mut fixture = Fixture::with([term; 3], 1 << 20);
    for number in 0..9 * EACH {
        fixture.enter(number);
        fixture.pass(Duration::from_millis(1));
    }
    let mut ends: Vec<Instant> = (0..9 * EACH).map(|n| fixture.find(n).unwrap().expires).collect();
    // Each as late as it can be in its place.
    let stays =
        |number: &u32| *number >= 8 * EACH || *number < 4 * EACH && number.is_multiple_of(4);
    for number in (0..EACH).filter(stays) {
        fixture.pass(Duration::from_millis(1));
        fixture.restart(number);
        ends[number as usize] = fixture.now + term;
    }
    fixture.keep_dead(0);
    for number in (0..9 * EACH).rev().filter(|number| !stays(number)) {
        fixture.remove(number);
        fixture.check_queues();
    }
    assert!(fixture.table.classes[0].v4.queue.span().len < 6 * EACH, "it was made shorter");
    churn(&mut fixture, 1, 100);
    for number in (0..9 * EACH).filter(stays) {
        let record = fixture.find(number).unwrap();
        let expected = Record::new(tuple(number), &final_state(number), record.entered, term);
        assert_eq!(Record { expires: expected.expires, ..record }, expected);
        let end = ends[number as usize];
        assert!(record.expires >= end && record.expires.since(end) <= Duration::from_millis(64));
    }
    assert_eq!(fixture.table.len() as u32, 2 * EACH);
}

/// The last block is dead as a whole, and full, when a sweep that began there ends.
#[test]
fn a_sweep_leaves_nothing_behind_it() {
    let mut fixture = Fixture::new(1 << 20);
    const FIRST: u32 = 65_523;
    (0..FIRST).for_each(|number| fixture.enter(number));
    fixture.pass(Duration::from_secs(1));
    (FIRST..FIRST + 6).for_each(|number| fixture.enter(number));
    fixture.pass(Duration::from_millis(59_500));
    while fixture.table.deadline().is_some_and(|at| at <= fixture.now) {
        fixture.pass(Duration::ZERO);
    }
    assert_eq!(fixture.table.len(), 6);
    for _ in 0..65_536 {
        fixture.enter(5_000_000);
        fixture.remove(5_000_000);
    }
    (FIRST + 3..FIRST + 6).for_each(|number| assert!(fixture.remove(number)));
    fixture.check_queues();
    fixture.pass(Duration::from_millis(500));
    fixture.check_queues();
    fixture.pass(Duration::from_secs(1));
    assert!(fixture.table.is_empty() && bytes(&fixture.table) <= 1024, "a few lines");
}

/// As long as time can be told.
#[test]
fn a_term_without_end_is_one_of_many_years() {
    let mut fixture = Fixture::with([Duration::MAX; 3], 10);
    fixture.enter(1);
    assert!(
        fixture
            .table
            .deadline()
            .is_some_and(|at| at.since(fixture.now) > 60 * 365 * 24 * 60 * TERM)
    );
    fixture.restart(1);
    fixture.turn();
    assert!(fixture.find(1).is_some());
}

/// Records are not compared by when a dead one entered, either.
#[test]
fn a_full_table_drops_the_oldest_even_behind_the_dead() {
    let mut fixture = Fixture::new(3);
    fixture.enter(1);
    for number in [2, 3] {
        fixture.pass(Duration::from_secs(5));
        fixture.enter_as(tuple6(number), number, Distance::Far);
    }
    fixture.remove(1);
    fixture.pass(Duration::from_secs(30));
    fixture.enter(4);
    fixture.enter(5);
    let sixes = [2, 3].map(|number| fixture.find_as(&tuple6(number)).is_some());
    assert_eq!((sixes, fixture.find(4).is_some()), ([false, true], true));
}

/// As when peers reset them, and none enters or expires meanwhile.
#[test]
fn memory_goes_with_those_that_are_removed() {
    for tuple in [tuple as fn(u32) -> Tuple, tuple6] {
        let mut fixture = Fixture::new(1 << 20);
        for number in 0..200_000 {
            fixture.enter_as(tuple(number), number, Distance::Far);
            if number.is_multiple_of(20) {
                fixture.pass(Duration::from_millis(1));
            }
        }
        let filled = bytes(&fixture.table) as f64 / 200_000.0;
        let mut most = 0.0f64;
        for number in (0..200_000).filter(|number| number % 10 != 0) {
            assert!(fixture.remove_as(&tuple(number)));
            let len = fixture.table.len() as f64;
            most = most.max(bytes(&fixture.table) as f64 / len);
        }
        assert!(most <= 2.0 * filled + 10.0, "{most} bytes each, {filled} before");
        fixture.check_queues();
        assert!((0..20_000).all(|number| fixture.find_as(&tuple(10 * number)).is_some()));
        (0..20_000).for_each(|number| assert!(fixture.remove_as(&tuple(10 * number))));
        assert_eq!(bytes(&fixture.table), 0, "nothing is left");
    }
}

/// Within a record set it is by its place, and so it is among record sets.
#[test]
fn that_one_was_restarted_does_not_make_it_younger() {
    let mut fixture = Fixture::new(2);
    fixture.enter(1);
    fixture.pass(Duration::from_secs(10));
    fixture.enter_as(tuple6(2), 2, Distance::Far);
    fixture.pass(Duration::from_secs(20));
    fixture.restart(1);
    fixture.enter_as(tuple6(3), 3, Distance::Far);
    let sixes = [2, 3].map(|number| fixture.find_as(&tuple6(number)).is_some());
    assert_eq!((sixes, fixture.find(1).is_some()), ([true, true], false));
}

/// What was found at `base_ms` after it was told that it is `at_ms`.
fn told(row: &mut Row4, at_ms: u64, base_ms: u64, scale: Scale, in_order: bool) -> Option<u64> {
    let common = row.common_mut();
    let is_told = if in_order {
        common.expire_in_order(at_ms, base_ms, scale)
    } else {
        common.expire_out_of_order(at_ms, true, base_ms, scale)
    };
    is_told.then(|| common.expires_ms(base_ms, scale).expect("it is not dead"))
}

proptest! {
    /// Whatever block tells it again.
    #[test]
    fn what_was_rounded_stays_what_it_is(
        term_ms in prop_oneof![1u64..1000, 1000u64..200_000, 200_000u64..40_000_000_000],
        now_ms in 0u64..1 << 40,
        // Of the term, in 1000.
        [first, second, third] in proptest::array::uniform3(0u64..1000),
        [some, more] in any::<[bool; 2]>(),
    ) {
        let scale = Scale::new(term_ms);
        let base = |part: u64| scale.base(now_ms + term_ms * part / 1000);
        let mut row = Row4::new(&tuple(1), Common::new(&final_state(1), tuple(1).ports(), 0));
        let at_ms = base(first) + term_ms * third / 32_000;
        let unit = told(&mut row, at_ms, base(first), scale, true).unwrap();
        prop_assert!(unit >= at_ms && unit - at_ms <= scale.step_ms());
        // Out of the order, and in any other block that reaches so far: a term beyond its base, and
        // not one and a rounded part of another.
        prop_assume!(unit <= base(second) + term_ms);
        let step = told(&mut row, unit, base(second), scale, false).unwrap();
        prop_assert!(step >= unit && step - unit < scale.step_ms());
        for steps in 0..1100 {
            let at_ms = base(first) + term_ms + steps * scale.step_ms();
            let found = told(&mut row, at_ms, base(first), scale, false);
            prop_assert!(found.is_none_or(|found| found >= at_ms));
            prop_assert!(steps > 0 || found.is_some());
        }
        for (part, in_order) in [(first, some), (third, more), (second, some)] {
            let again = told(&mut row, step, base(part), scale, in_order);
            prop_assert!(again == Some(step) || in_order && again.is_none());
            let again = told(&mut row, unit, base(part), scale, true);
            prop_assert!(again.is_none_or(|again| again == unit));
        }
    }
}
