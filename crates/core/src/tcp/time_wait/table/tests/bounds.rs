//! What the table costs: memory, growth, attackers.

use super::*;
use crate::tcp::time_wait::table::index::Span;

/// Bytes of rows, lines and half lines for which there is memory.
pub(super) fn bytes(table: &TimeWait) -> usize {
    let of = |rows: usize, row: usize, (lines, halves): (usize, usize)| {
        rows * row + lines * 64 + halves * 32
    };
    let class = &table.classes[0];
    of(class.v4.queue.capacity(), 24, class.v4.index.sizes())
        + of(class.v6.queue.capacity(), 36, class.v6.index.sizes())
}

const COUNT: u32 = if cfg!(debug_assertions) { 400_000 } else { 4_000_000 };

/// The largest number of bytes a record takes at any count from a hundred thousand on, while
/// filling and while draining.
fn largest(tuple: impl Fn(u32) -> Tuple) -> (f64, f64) {
    let mut fixture = Fixture::new(COUNT as usize);
    let (mut filling, mut draining) = (0.0f64, 0.0f64);
    for number in 0..COUNT {
        fixture.enter_as(tuple(number), number, Distance::Far);
        if number.is_multiple_of(10) {
            fixture.now = fixture.now + Duration::from_millis(1);
        }
        let len = fixture.table.len();
        if len >= 100_000 && len.is_multiple_of(997) {
            filling = filling.max(bytes(&fixture.table) as f64 / len as f64);
        }
    }
    while fixture.table.len() >= 100_000 {
        let len = fixture.table.len() as f64;
        draining = draining.max(bytes(&fixture.table) as f64 / len);
        fixture.pass(Duration::from_millis(50));
    }
    while !fixture.table.is_empty() {
        fixture.pass(Duration::from_secs(10));
    }
    assert_eq!(bytes(&fixture.table), 0, "an empty table holds nothing");
    (filling, draining)
}

#[test]
fn an_ipv4_record_takes_under_32_bytes_and_an_ipv6_one_under_46() {
    let (filling, draining) = largest(tuple);
    assert!(filling <= 31.5, "{filling} bytes while filling");
    assert!(draining <= 2.0 * filling, "{draining} bytes while draining, {filling} before");
    let (filling, draining) = largest(tuple6);
    assert!(filling <= 45.5, "{filling} bytes while filling");
    assert!(draining <= 2.0 * filling, "{draining} bytes while draining, {filling} before");
}

/// However many there are, one that enters moves those of a line, and asks for memory as for a few
/// of the blocks that all of it comes in: the index is never put elsewhere as a whole.
#[test]
fn no_new_record_moves_many_or_takes_much_memory_at_once() {
    let (mut index, rehashed) = (Index::new(COUNT as usize), Cell::new(0));
    let hash = |number: u32| u64::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15).swap_bytes();
    let mut most = 0;
    for number in 0..COUNT {
        rehashed.set(0);
        if index.is_due() {
            index.keep_up(number, Span { first: 0, len: number }, |number| {
                rehashed.set(rehashed.get() + 1);
                Some(hash(number))
            });
        }
        index.insert(hash(number), number, Span { first: 0, len: number + 1 });
        most = most.max(rehashed.get());
    }
    assert!((10..=64).contains(&most), "{most} records in another line");

    let mut fixture = Fixture::new(COUNT as usize);
    let (mut before, mut most) = (0, 0);
    for number in 0..100_000 {
        fixture.enter(number);
        let after = bytes(&fixture.table);
        most = most.max(after.saturating_sub(before));
        before = after;
    }
    assert!(most <= 48 << 10, "{most} bytes of {before}");
}

/// Where as many enter as expire, nothing that has lain behind a full line stays behind.
#[test]
fn what_turns_over_takes_no_more_bytes_than_what_came_first() {
    const RESIDENT: u32 = 100_000;
    // Most lines are not split yet, and overflow often.
    let mut fixture = Fixture::new(2 * RESIDENT as usize);
    let mut halves = 0;
    for number in 0..10 * RESIDENT {
        fixture.enter(number);
        if number.is_multiple_of(5) {
            fixture.pass(TERM * 5 / RESIDENT);
        }
        if number == 3 * RESIDENT {
            halves = fixture.table.classes[0].v4.index.sizes().1;
        }
    }
    let len = fixture.table.len();
    assert!(len.abs_diff(RESIDENT as usize) < 1000, "{len} records");
    let each = bytes(&fixture.table) as f64 / len as f64;
    assert!(each <= 32.5, "{each} bytes");
    let at_last = fixture.table.classes[0].v4.index.sizes().1;
    assert!(at_last <= halves + 512, "{at_last} half lines, {halves} before");
}

/// An attacker that knows the key can choose tuples that all lie in one line. Under any other key
/// they are spread as if chosen at random.
#[test]
fn tuples_chosen_against_one_key_do_not_collide_under_another() {
    const CHOSEN: usize = 2000;
    let known = Fixture::keyed(8, [TERM; 3], CHOSEN).hasher;
    // Of so many lines as two thousand records need, eight bits choose one.
    let meets = |tuple: &Tuple| known.hash(tuple).trailing_zeros() >= 8;
    let chosen: Vec<Tuple> = (0..).map(tuple).filter(meets).take(CHOSEN).collect();
    let ordinary: Vec<Tuple> = (0..CHOSEN as u32).map(tuple).collect();
    let fullest = |key: u8, tuples: &[Tuple]| {
        let mut fixture = Fixture::keyed(key, [TERM; 3], CHOSEN);
        for (number, tuple) in (0..).zip(tuples) {
            fixture.enter_as(*tuple, number, Distance::Far);
        }
        let records = &mut fixture.table.classes[0].v4;
        records.index.fullest(records.queue.span())
    };
    assert_eq!(fullest(8, &chosen), CHOSEN, "all in one line");
    for key in 9..19 {
        let (chosen, ordinary) = (fullest(key, &chosen), fullest(key, &ordinary));
        assert!(chosen < 2 * ordinary, "{chosen} in the fullest line, ordinarily {ordinary}");
    }
}

#[test]
fn a_tuple_opened_again_and_again_does_not_make_the_table_grow() {
    let mut fixture = Fixture::new(1 << 20);
    for number in 0..1000 {
        fixture.enter(number);
    }
    let mut most = 0;
    for round in 0..1_000_000u32 {
        if round.is_multiple_of(20) {
            fixture.now = fixture.now + Duration::from_millis(1);
        }
        fixture.enter(5000);
        assert!(fixture.remove(5000));
        most = most.max(bytes(&fixture.table));
    }
    let rows = 2 * 1000 + DEAD_MAX + 2 * 1024;
    assert!(most < 24 * rows as usize + (1 << 14), "{most} bytes for a thousand records");
    let all = (0..1000).all(|number| fixture.find(number).is_some());
    assert!(all, "nobody else's TIME-WAIT is cut short");
    fixture.pass(Duration::from_secs(12));
    assert_eq!(fixture.table.len(), 0, "nor is it longer, but for a rounding");
}

/// One in a few hundred stays: blocks are hardly ever dead as a whole.
#[test]
fn records_that_mostly_end_early_do_not_keep_the_memory_of_all() {
    let mut fixture = Fixture::new(1 << 20);
    for number in 0..600_000u32 {
        if number.is_multiple_of(50) {
            fixture.now = fixture.now + Duration::from_millis(1);
        }
        fixture.enter(number);
        if !number.is_multiple_of(300) {
            assert!(fixture.remove(number));
        }
    }
    assert_eq!(fixture.table.len(), 2000);
    let rows = fixture.table.classes[0].v4.queue.rows();
    assert!(rows <= 2 * 2000 + DEAD_MAX + 1024, "{rows} rows");
    assert!((0..2000).all(|number| fixture.find(300 * number).is_some()));
}

/// Most end early, so that the rest are moved; when the table is full, the oldest of them goes all
/// the same.
#[test]
fn a_full_table_drops_its_oldest_when_it_was_moved() {
    const LIMIT: u32 = 1000;
    let mut fixture = Fixture::new(LIMIT as usize);
    for number in 0..5 * LIMIT {
        fixture.pass(Duration::from_millis(40));
        // The newest is opened and ends again and again, and leaves many behind that are dead.
        for _ in 0..20 {
            fixture.enter(number);
        }
        if number.is_multiple_of(50) {
            let youngest = (number + 1).saturating_sub(LIMIT)..=number;
            let mut gone = youngest.filter(|number| fixture.find(*number).is_none());
            assert_eq!(gone.next(), None, "of {number}");
        }
    }
    assert_eq!(fixture.counters.time_wait_evicted, 4 * u64::from(LIMIT));
    assert_eq!(fixture.table.len(), LIMIT as usize);
}

/// A host on which now and then one closes does not build the table anew each time.
#[test]
fn what_comes_and_goes_singly_finds_the_table_as_it_was() {
    let mut fixture = Fixture::new(1 << 20);
    let (mut kept, mut most) = (0, 0);
    for number in 0..10_000 {
        fixture.enter(number);
        fixture.pass(TERM);
        assert!(fixture.table.is_empty() && fixture.table.deadline().is_none());
        kept += u32::from(fixture.table.classes[0].v4.index.sizes().0 > 0);
        most = most.max(bytes(&fixture.table));
    }
    assert!(kept > 9_000, "{kept} times");
    assert!(most <= 128 * 24 + 16 * 64, "{most} bytes of none");
    // Each of them so much later that no block holds two.
    assert_eq!(fixture.table.classes[0].v4.queue.rows(), 1);
}

#[test]
fn the_deadline_is_the_oldest_record_s_and_is_met() {
    let mut fixture = Fixture::with(NEAR, 100);
    assert_eq!(fixture.table.deadline(), None);
    for number in 0..30 {
        fixture.enter_as(tuple(number), number, Distance::ALL[number as usize % 3]);
        fixture.now = fixture.now + Duration::from_millis(7);
    }
    for number in [0, 4, 11] {
        fixture.remove(number);
    }
    fixture.restart(9);
    let mut wakes = 0;
    while let Some(deadline) = fixture.table.deadline() {
        fixture.now = fixture.now.max(deadline);
        fixture.counters.time_wait_expired += fixture.table.on_time(fixture.now);
        assert!(fixture.table.deadline().is_none_or(|next| next > fixture.now), "it would spin");
        wakes += 1;
    }
    assert_eq!(fixture.table.len(), 0);
    assert!(wakes <= 31, "{wakes}");
    assert_eq!(fixture.counters.time_wait_expired, 27);
}

/// The oldest is not the one that is at the front any more, or what is at the front is dead.
#[test]
fn a_record_that_goes_early_leaves_no_table_due_for_ever() {
    for gone in 0..4 {
        let mut fixture = Fixture::new(100);
        for number in 0..4 {
            fixture.enter(number);
            fixture.now = fixture.now + Duration::from_secs(2);
        }
        fixture.pass(TERM - Duration::from_secs(8));
        assert_eq!(fixture.table.len(), 3, "the first has gone by itself");
        fixture.remove(gone);
        let mut turns = 0;
        while let Some(deadline) = fixture.table.deadline() {
            fixture.now = fixture.now.max(deadline);
            fixture.turn();
            turns += 1;
        }
        assert!(turns <= 3, "{turns} turns when {gone} has gone");
    }
}

/// All that live lie before all that are dead, whose blocks have been given back: there is no other
/// place for them than anew where those were.
#[test]
fn numbers_do_not_run_out_where_the_newest_comes_and_goes() {
    const LIMIT: u32 = 50_000;
    let mut fixture = Fixture::new(LIMIT as usize);
    let (mut most, mut round) = (0, 0);
    for number in (0..LIMIT).chain([LIMIT - 1].repeat(12 * LIMIT as usize)) {
        fixture.enter(number);
        round += 1;
        if round % 100 == 0 {
            fixture.now = fixture.now + Duration::from_millis(1);
        }
        most = most.max(fixture.table.classes[0].v4.queue.span().len);
    }
    assert!(most > 2 * LIMIT + NUMBERS_MAX, "{most} numbers: nothing was moved");
    assert!(most < LIMIT * 21 / 8 + (1 << 17), "{most} numbers");
    assert!((0..LIMIT).all(|number| fixture.find(number).is_some()));
}

/// Records are moved while others enter, end early, are restarted and expire.
#[test]
fn what_is_moved_stays_what_it_was_and_lasts_its_time() {
    const NUMBERS: u32 = 30_000;
    let mut fixture = Fixture::new(1 << 20);
    let mut until = std::vec![Instant::ZERO; NUMBERS as usize];
    let (mut state, mut swept) = (1u64, 0);
    for round in 0..300_000u32 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let number = (state >> 33) as u32 % NUMBERS;
        let ends = &mut until[number as usize];
        match state >> 60 {
            0..=8 => {
                fixture.enter(number);
                *ends = fixture.now + TERM;
            }
            9..=13 => {
                fixture.remove(number);
                *ends = Instant::ZERO;
            }
            _ if *ends > fixture.now => {
                fixture.restart(number);
                *ends = fixture.now + TERM;
            }
            _ => {}
        }
        swept += u32::from(fixture.table.classes[0].v4.queue.is_sweeping());
        fixture.pass(Duration::from_micros(300));
        if round.is_multiple_of(40_000) {
            for (number, ends) in (0..).zip(&until) {
                let found = fixture.find(number);
                let right = found.is_none_or(|found| {
                    let expected =
                        Record::new(tuple(number), &final_state(number), fixture.now, TERM);
                    let Record { entered, expires, .. } = found;
                    Record { entered, expires, ..expected } == found && *ends > Instant::ZERO
                });
                assert!(right && found.is_some() >= (*ends > fixture.now), "{number}: {found:?}");
            }
        }
    }
    assert!(swept > 1_000, "{swept} rounds in which something was moved");
    let (used, needed) = fixture.handles();
    assert_eq!(used, needed);
    fixture.now = fixture.now + TERM + Duration::from_secs(2);
    while fixture.table.deadline().is_some_and(|at| at <= fixture.now) {
        fixture.pass(Duration::ZERO);
    }
    assert_eq!((fixture.table.len(), bytes(&fixture.table)), (0, 0));
}

/// Numbers are spent on blocks that stay nearly empty, but not more than there are.
#[test]
fn few_records_of_long_terms_are_all_there() {
    for (secs, limit) in [(131, 1), (600, 100), (3600, 1000), (7200, 10_000), (28_800, 1 << 20)] {
        let term = Duration::from_secs(secs);
        for between in [secs * 1000 / 900, 4200, 4 * secs] {
            let mut fixture = Fixture::with([term; 3], limit);
            let mut most = 0;
            for number in 0..3 * (secs * 1000 / between) as u32 {
                fixture.enter(number);
                fixture.pass(Duration::from_millis(between));
                most = most.max(fixture.table.classes[0].v4.queue.span().len);
                if number.is_multiple_of(97) {
                    let there = (number.saturating_sub(10_000)..=number).rev();
                    let found = there.take_while(|number| fixture.find(*number).is_some());
                    assert_eq!(found.count(), fixture.table.len(), "of {number}, {secs} s");
                }
            }
            assert!(most <= 40 << 10, "{most} numbers at once, {secs} s, each {between} ms");
        }
    }
}

/// As many as that end at once, of both versions, keep no connection waiting for all of them: a
/// turn drops its share and a block, and says that more are due.
#[test]
fn a_burst_that_expires_at_once_goes_in_shares_with_its_memory() {
    let mut fixture = Fixture::new(2 * COUNT as usize);
    for number in 0..COUNT {
        fixture.enter(number);
        fixture.enter_as(tuple6(number), number, Distance::Far);
    }
    let all = 2 * COUNT as usize;
    let filled = bytes(&fixture.table) as f64 / all as f64;
    fixture.now = fixture.now + TERM;
    let mut turns = 0;
    while let Some(deadline) = fixture.table.deadline() {
        assert!(deadline <= fixture.now, "the rest stays due");
        assert!(fixture.find(0).is_none() && fixture.find(COUNT - 1).is_none());
        let dropped = fixture.table.on_time(fixture.now) as usize;
        assert!((1..=2048).contains(&dropped), "{dropped} in turn {turns}");
        turns += 1;
        let (left, bytes) = (fixture.table.len(), bytes(&fixture.table) as f64);
        assert!(bytes <= 2.0 * filled * left.max(100_000) as f64, "{bytes} of {left}");
    }
    assert!(turns >= all / 2048, "{turns} turns");
    assert_eq!((fixture.table.len(), bytes(&fixture.table)), (0, 0));
}

#[test]
fn a_turn_queues_no_more_than_its_share_again() {
    let mut fixture = Fixture::new(10_000);
    (0..5000).for_each(|number| fixture.enter(number));
    fixture.now = fixture.now + TERM / 2;
    (0..5000).for_each(|number| fixture.restart(number));
    fixture.now = fixture.now + TERM / 2;
    let first = |fixture: &Fixture| fixture.table.classes[0].v4.queue.span().first;
    let before = first(&fixture);
    assert_eq!(fixture.table.on_time(fixture.now), 0);
    let moved = first(&fixture).wrapping_sub(before) as usize;
    assert!((1..=SHARE).contains(&moved), "{moved}");
}

#[test]
fn a_record_past_its_time_that_makes_room_expired_not_evicted() {
    for (wait, evicted) in [(TERM, 0), (TERM - Duration::from_millis(1), 1)] {
        let mut fixture = Fixture::new(3);
        (0..3).for_each(|number| fixture.enter(number));
        fixture.now = fixture.now + wait;
        fixture.enter(3);
        assert_eq!(fixture.counters.time_wait_evicted, evicted);
        fixture.pass(Duration::from_secs(1));
        assert_eq!(fixture.counters.time_wait_expired, 3 - evicted);
        assert_eq!(fixture.table.len(), 1);
    }
}
