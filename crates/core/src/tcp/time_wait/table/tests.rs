//! The table of TIME-WAIT records: each promise with its twin, and a naive model beside it.

use super::*;
use crate::counters::Counters;
use crate::flow::Seq;
use crate::tcp::time_wait::Holding;
use core::cell::Cell;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use proptest::prelude::*;
use row::Scale;
use std::collections::{BTreeMap, BTreeSet};
use std::vec::Vec;

mod bounds;
mod sweeps;

const TERM: Duration = Duration::from_secs(60);
const NEAR: [Duration; 3] = [TERM, Duration::from_secs(5), Duration::from_millis(700)];
/// Told in units of 2, 32 and 1024 ms.
const LONG: [Duration; 3] =
    [Duration::from_secs(140), Duration::from_secs(3600), Duration::from_secs(86_400)];

struct Fixture {
    table: TimeWait,
    hasher: TupleHasher,
    counters: Counters,
    now: Instant,
}

fn tuple(number: u32) -> Tuple {
    tuple_of([10, 0, 0, 1], 80, number)
}

fn tuple_of(local: [u8; 4], local_port: u16, number: u32) -> Tuple {
    let remote = IpAddr::V4(Ipv4Addr::from_bits(0x0b00_0000 + (number >> 14)));
    Tuple::new((local.into(), local_port), (remote, 1024 + (number & 0x3fff) as u16))
}

fn tuple6(number: u32) -> Tuple {
    let local = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1);
    let remote = Ipv6Addr::new(0xfd00, 1, 2, 3, 4, 5, 6, (number >> 14) as u16);
    Tuple::new((local.into(), 80), (remote.into(), 1024 + (number & 0x3fff) as u16))
}

/// The tuple of `number`, among numbers that are of IPv6 in `sixes` of four cases.
fn tuple_among(sixes: u32, number: u32) -> Tuple {
    if number % 4 < sixes { tuple6(number) } else { tuple(number) }
}

fn final_state(number: u32) -> FinalState {
    FinalState {
        snd_nxt: Seq(number.wrapping_mul(0x9e37_79b9)),
        rcv_nxt: Seq(number ^ 0x8000_0000),
        stamp: (!number.is_multiple_of(3)).then_some(number.wrapping_neg()),
        stamp_offset: None,
        window: (number % 7) as u16 * 100,
        holding: if number.is_multiple_of(5) { Holding::Swapped } else { Holding::Closer },
        ack_due: false,
    }
}

impl Fixture {
    fn new(limit: usize) -> Self {
        Fixture::with([TERM; 3], limit)
    }

    fn with(terms: [Duration; 3], limit: usize) -> Self {
        Fixture::keyed(7, terms, limit)
    }

    fn keyed(key: u8, terms: [Duration; 3], limit: usize) -> Self {
        let hasher = TupleHasher::new(&[key; 32]);
        let table = TimeWait::new(terms, limit, hasher.clone());
        let now = Instant::from_millis(1000);
        Fixture { table, hasher, counters: Counters::default(), now }
    }

    fn enter_as(&mut self, tuple: Tuple, number: u32, distance: Distance) {
        let (hash, final_state) = (self.hasher.hash(&tuple), final_state(number));
        if self.table.remove(hash, &tuple) {
            self.counters.time_wait_reused += 1;
        }
        self.counters.time_wait_entered += 1;
        let evicted = self.table.enter(hash, &tuple, &final_state, distance, self.now);
        self.counters.time_wait_evicted += evicted;
    }

    fn enter(&mut self, number: u32) {
        self.enter_as(tuple(number), number, Distance::Far);
    }

    fn find_as(&self, tuple: &Tuple) -> Option<Record> {
        self.table.find(self.hasher.hash(tuple), tuple, self.now).map(|found| found.record())
    }

    fn find(&self, number: u32) -> Option<Record> {
        self.find_as(&tuple(number))
    }

    fn remove_as(&mut self, tuple: &Tuple) -> bool {
        self.table.remove(self.hasher.hash(tuple), tuple)
    }

    fn remove(&mut self, number: u32) -> bool {
        self.remove_as(&tuple(number))
    }

    fn restart_as(&mut self, tuple: &Tuple) {
        self.table.restart(self.hasher.hash(tuple), tuple, None, self.now);
    }

    fn restart(&mut self, number: u32) {
        self.restart_as(&tuple(number));
    }

    fn pass(&mut self, time: Duration) {
        self.now = self.now + time;
        self.counters.time_wait_expired += self.table.on_time(self.now);
    }

    /// One turn when it asks for one, and no second at the same time: that would be spinning.
    fn turn(&mut self) {
        if self.table.deadline().is_some_and(|at| at <= self.now) {
            self.pass(Duration::ZERO);
        }
        let deadline = self.table.deadline();
        assert!(deadline.is_none_or(|at| at > self.now), "{deadline:?} at {:?}", self.now);
    }

    /// Records that have had their time and are still there.
    fn over(&self) -> usize {
        self.table.iter().filter(|record| record.expires <= self.now).count()
    }

    /// The queues are made shorter as soon as there are so many dead rows more than living ones.
    fn keep_dead(&mut self, dead_max: u32) {
        each_record_set!(&mut self.table.classes, records => records.dead_max = dead_max);
    }

    /// What the queues keep account of is so.
    fn check_queues(&mut self) {
        let mut live = 0;
        each_record_set!(&mut self.table.classes, records => {
            records.queue.check();
            assert!(records.queue.span().len < records.index.span_max());
            live += records.live as usize;
        });
        assert_eq!(live, self.table.len());
        assert_eq!(self.walked(), live, "a walk sees each once");
    }

    /// Records that a walk sees.
    fn walked(&self) -> usize {
        let mut count = 0;
        for set in 0..TimeWait::SETS {
            let mut number = Some(self.table.first_number(set));
            while let Some(at) = number {
                let (found, following) = self.table.look_at(set, at);
                count += usize::from(found.is_some());
                number = following;
            }
        }
        count
    }

    /// Handles in use, and those that the records there are need.
    fn handles(&self) -> (usize, usize) {
        let records = self.table.iter();
        let needed: BTreeSet<_> = records.map(|r| (r.tuple.local_ip(), r.window)).collect();
        (self.table.handles.len(), needed.len())
    }
}

#[test]
fn a_record_lasts_its_time_and_not_longer() {
    let mut fixture = Fixture::new(10);
    fixture.enter(1);
    fixture.pass(Duration::from_millis(59_999));
    assert!(fixture.find(1).is_some());
    fixture.pass(Duration::from_millis(1));
    assert!(fixture.find(1).is_none());
    assert_eq!((fixture.table.len(), fixture.counters.time_wait_expired), (0, 1));
}

#[test]
fn a_look_up_judges_by_the_record_s_own_expiry() {
    let mut fixture = Fixture::new(10);
    fixture.enter(1);
    fixture.now = fixture.now + TERM;
    assert!(fixture.find(1).is_none(), "nobody has told the table what time it is");
    assert_eq!(fixture.table.len(), 1);
}

#[test]
fn what_went_in_comes_out() {
    let mut fixture = Fixture::new(1000);
    for number in 0..100 {
        for tuple in [tuple(number), tuple6(number)] {
            fixture.enter_as(tuple, number, Distance::Far);
            let expected = Record::new(tuple, &final_state(number), fixture.now, TERM);
            assert_eq!(fixture.find_as(&tuple), Some(expected));
        }
    }
    assert_eq!(fixture.table.iter().count(), 200);
    let others = [
        tuple_of([10, 0, 0, 2], 80, 5),
        tuple_of([10, 0, 0, 1], 81, 5),
        tuple_of([10, 0, 0, 1], 80, 5 + (1 << 14)),
        tuple_of([10, 0, 0, 1], 80, 105),
    ];
    assert!(others.iter().all(|other| fixture.find_as(other).is_none()));
}

#[test]
fn many_are_found_at_once_as_each_is_by_itself() {
    let mut fixture = Fixture::with(NEAR, 10_000);
    for number in 0..2000 {
        fixture.enter_as(tuple(number), number, Distance::ALL[number as usize % 3]);
        fixture.enter_as(tuple6(number), number, Distance::Far);
    }
    // Of both versions, some there, some over and some never there; and no whole burst at the end.
    let wanted: Vec<(u64, Tuple)> = (0..3001)
        .map(|number| if number % 4 == 0 { tuple6(number) } else { tuple(number) })
        .map(|tuple| (fixture.hasher.hash(&tuple), tuple))
        .collect();
    let count = |fixture: &Fixture| {
        let Fixture { table, now, .. } = fixture;
        let mut found = Vec::new();
        table.find_batch(&wanted, *now, |one| found.push(one.map(|one| one.record())));
        let alone: Vec<_> = wanted.iter().map(|(_, tuple)| fixture.find_as(tuple)).collect();
        assert_eq!(found, alone);
        found.iter().flatten().count()
    };
    assert_eq!(count(&fixture), 2000, "of peers at any distance");
    fixture.now = fixture.now + NEAR[1];
    assert_eq!(count(&fixture), 500 + 2000 / 4, "every fourth of IPv6, a third of the others");
    Fixture::new(1).table.find_batch(&wanted, fixture.now, |one| assert!(one.is_none()));
    // Where there are records of the other version alone.
    let mut others = Fixture::new(9);
    others.enter_as(tuple6(1), 1, Distance::Far);
    let [four, six] = [tuple(1), tuple6(1)].map(|tuple| (others.hasher.hash(&tuple), tuple));
    let mut found = Vec::new();
    others.table.find_batch(&[four, six], others.now, |record| found.push(record.is_some()));
    assert_eq!(found, [false, true]);
}

#[test]
fn many_are_found_at_once_wherever_the_index_has_them() {
    let of = |number: u32| if number % 4 == 1 { tuple6(number) } else { tuple(number) };
    // Far peers alone, and peers at any distance.
    for distances in [1, 3] {
        let mut fixture = Fixture::new(10_000);
        for number in 0..10_000 {
            fixture.enter_as(of(number), number, Distance::ALL[number as usize % distances]);
        }
        let wanted = (0..10_000).map(of).map(|tuple| (fixture.hasher.hash(&tuple), tuple));
        let (wanted, mut found): (Vec<_>, _) = (wanted.collect(), 0);
        fixture.table.find_batch(&wanted, fixture.now, |one| found += usize::from(one.is_some()));
        assert_eq!(found, 10_000, "also what lies behind a full line");
    }
}

#[test]
fn a_mark_stays_until_it_is_taken_back() {
    let mut fixture = Fixture::new(10);
    fixture.enter(1);
    let hash = fixture.hasher.hash(&tuple(1));
    fixture.table.mark(hash, &tuple(1), true);
    assert!(fixture.find(1).unwrap().is_marked);
    fixture.restart(1);
    assert!(fixture.find(1).unwrap().is_marked);
    fixture.table.mark(hash, &tuple(1), false);
    assert!(!fixture.find(1).unwrap().is_marked);
}

#[test]
fn near_peers_have_their_own_durations() {
    let mut fixture = Fixture::with(NEAR, 10);
    for (number, distance) in (0..).zip(Distance::ALL) {
        fixture.enter_as(tuple(number), number, distance);
    }
    let held = |fixture: &Fixture| [0, 1, 2].map(|number| fixture.find(number).is_some());
    fixture.pass(Duration::from_millis(699));
    assert_eq!((held(&fixture), fixture.table.len()), ([true; 3], 3));
    fixture.pass(Duration::from_millis(1));
    assert_eq!((held(&fixture), fixture.table.len()), ([true, true, false], 2));
    fixture.pass(Duration::from_millis(4300));
    assert_eq!((held(&fixture), fixture.table.len()), ([true, false, false], 1));
    fixture.pass(Duration::from_millis(54_999));
    assert_eq!(fixture.table.len(), 1);
    fixture.pass(Duration::from_millis(1));
    assert_eq!((held(&fixture), fixture.table.len()), ([false; 3], 0));
}

#[test]
fn a_restarted_record_lasts_its_time_and_a_511th_at_most() {
    let mut fixture = Fixture::new(10);
    fixture.enter(1);
    fixture.pass(Duration::from_secs(31));
    fixture.restart(1);
    fixture.pass(Duration::from_millis(59_999));
    assert!(fixture.find(1).is_some());
    fixture.pass(TERM / 511);
    assert!(fixture.find(1).is_none());
    assert_eq!(fixture.table.len(), 0);
}

#[test]
fn restarts_move_nothing_and_the_others_expire_as_before() {
    let mut fixture = Fixture::new(10);
    for number in 0..3 {
        fixture.enter(number);
        fixture.pass(Duration::from_secs(1));
    }
    for _ in 0..1000 {
        fixture.pass(Duration::from_millis(1));
        fixture.restart(1);
    }
    assert_eq!(fixture.table.classes[0].v4.queue.span().len, 3);
    fixture.pass(Duration::from_secs(58));
    assert_eq!([0, 1, 2].map(|n| fixture.find(n).is_some()), [false, true, false]);
    assert_eq!(fixture.table.len(), 1);
    fixture.pass(Duration::from_millis(2030));
    assert_eq!(fixture.table.len(), 0);
}

#[test]
fn a_full_table_drops_its_oldest() {
    let mut fixture = Fixture::new(2);
    for number in [1, 2] {
        fixture.enter(number);
        fixture.pass(Duration::from_secs(1));
    }
    assert_eq!(fixture.counters.time_wait_evicted, 0);
    fixture.enter(3);
    assert_eq!(fixture.counters.time_wait_evicted, 1);
    assert_eq!([1, 2, 3].map(|n| fixture.find(n).is_some()), [false, true, true]);
    fixture.enter_as(tuple6(4), 4, Distance::Far);
    assert_eq!([1, 2, 3].map(|n| fixture.find(n).is_some()), [false, false, true]);
    let mut none = Fixture::new(0);
    none.enter(1);
    assert_eq!((none.table.len(), none.counters.time_wait_evicted), (0, 1));
}

/// Whatever their durations and IP versions: neither the first to expire nor the first record set.
#[test]
fn a_full_table_drops_what_entered_first() {
    let record_sets = |n: u32| {
        let tuple = if n.is_multiple_of(2) { tuple(n) } else { tuple6(n) };
        (Distance::ALL[n as usize / 2], tuple)
    };
    for order in [[0, 1, 2, 3, 4, 5], [5, 4, 3, 2, 1, 0], [2, 5, 0, 3, 4, 1]] {
        let mut fixture = Fixture::with(NEAR, 6);
        for number in order {
            let (distance, tuple) = record_sets(number);
            fixture.enter_as(tuple, number, distance);
            fixture.pass(Duration::from_millis(50));
        }
        for (gone, number) in order.into_iter().zip(10..) {
            assert!(
                fixture.find_as(&record_sets(gone).1).is_some(),
                "{order:?}: {gone} goes early"
            );
            fixture.enter(number);
            assert!(fixture.find_as(&record_sets(gone).1).is_none(), "{order:?}: {gone} stays");
        }
        assert_eq!((fixture.table.len(), fixture.counters.time_wait_evicted), (6, 6));
    }
}

#[test]
fn a_tuple_that_closes_again_has_one_record() {
    let mut fixture = Fixture::new(10);
    fixture.enter(1);
    fixture.pass(Duration::from_secs(30));
    fixture.enter(1);
    assert_eq!((fixture.table.len(), fixture.counters.time_wait_reused), (1, 1));
    fixture.pass(Duration::from_secs(30));
    assert!(fixture.find(1).is_some());
    fixture.pass(Duration::from_secs(30));
    assert_eq!(fixture.table.len(), 0);
}

#[test]
fn more_of_our_addresses_than_handles_are_not_kept_but_counted() {
    let mut fixture = Fixture::new(1 << 20);
    for number in 0..66_000 {
        let local = (0x0a40_0000u32 + number).to_be_bytes();
        fixture.enter_as(tuple_of(local, 80, 1), 1, Distance::Far);
    }
    assert_eq!((fixture.table.len(), fixture.counters.time_wait_evicted), (65_536, 464));
}

/// The twin of the one above: whichever way records go, their handles go with the last of them.
#[test]
fn no_handle_is_left_of_records_that_are_gone() {
    // As many as fill some blocks, and some more.
    const COUNT: u32 = 1000;
    type Way = fn(&mut Fixture, u32);
    let ways: [(&str, Way); 4] = [
        ("expiry of all at once", |fixture, _| fixture.pass(TERM)),
        ("removal", |fixture, number| assert!(fixture.remove(number))),
        ("eviction", |fixture, number| fixture.enter_as(tuple6(number), 0, Distance::Far)),
        ("expiry of those that were restarted", |fixture, number| {
            if number == 0 {
                fixture.pass(TERM / 2);
                (0..COUNT).for_each(|number| fixture.restart(number));
            }
            fixture.pass(TERM);
        }),
    ];
    for (what, way) in ways {
        let mut fixture = Fixture::new(COUNT as usize);
        (0..COUNT).for_each(|number| fixture.enter(number));
        assert_eq!(fixture.handles(), (7, 7), "{what}");
        (0..COUNT).for_each(|number| way(&mut fixture, number));
        let left = usize::from(what == "eviction");
        assert_eq!(fixture.handles(), (left, left), "{what}");
        assert!(fixture.table.iter().all(|record| record.tuple.is_ipv6()), "{what}");
        fixture.pass(2 * TERM);
        assert_eq!((fixture.table.len(), fixture.table.handles.len()), (0, 0), "{what}");
    }
}

// ---- a naive model

/// What the table must do, in the simplest way.
struct Model {
    records: BTreeMap<u32, (Record, usize)>,
    terms: [Duration; 3],
    /// How many in four are of IPv6.
    sixes: u32,
}

impl Model {
    /// Everything that the table says of `number` is so.
    fn check(&self, fixture: &Fixture, number: u32, now: Instant) -> Result<(), TestCaseError> {
        let found = fixture.find_as(&tuple_among(self.sixes, number));
        let Some((expected, class)) = self.records.get(&number) else {
            prop_assert_eq!(found, None);
            return Ok(());
        };
        // A restart rounds up, whenever the record is moved.
        let term = self.terms[*class];
        let slack = 2 * Duration::from_millis(Scale::new(term.as_millis() as u64).step_ms() + 1);
        if let Some(found) = found {
            prop_assert!(found.expires >= expected.expires);
            prop_assert!(found.expires <= expected.expires + slack);
            prop_assert_eq!(found.entered.as_millis(), (found.expires - term).as_millis());
            let (entered, expires) = (expected.entered, expected.expires);
            prop_assert_eq!(Record { entered, expires, ..found }, *expected);
            prop_assert!(found.expires > now);
        } else {
            prop_assert!(expected.expires <= now);
        }
        Ok(())
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Enter(u32, usize),
    Remove(u32),
    Mark(u32, bool),
    Restart(u32),
    Pass(u64),
}

fn step(tuples: u32) -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..tuples, 0usize..3).prop_map(|(number, class)| Step::Enter(number, class)),
        2 => (0..tuples).prop_map(Step::Remove),
        1 => (0..tuples, any::<bool>()).prop_map(|(number, mark)| Step::Mark(number, mark)),
        2 => (0..tuples).prop_map(Step::Restart),
        2 => (0u64..3000).prop_map(Step::Pass),
        1 => (0u64..70_000).prop_map(Step::Pass),
    ]
}

/// Records whose handles are counted after every step.
const FEW: usize = 8;

/// `sixes` in four of the tuples are of IPv6; numbers of rows begin at `start`, and so many dead
/// ones more than living ones are kept.
fn run(
    steps: &[Step],
    terms: [Duration; 3],
    sixes: u32,
    start: u32,
    dead_max: u32,
) -> Result<(), TestCaseError> {
    let tuple = |number| tuple_among(sixes, number);
    let mut fixture = Fixture::with(terms, 1 << 20);
    fixture.keep_dead(dead_max);
    for class in &mut fixture.table.classes {
        class.v4.queue.start_at(start);
        class.v6.queue.start_at(start);
    }
    let mut model = Model { records: BTreeMap::new(), terms, sixes };
    for step in steps {
        let now = fixture.now;
        let touched = match *step {
            Step::Enter(number, class) => {
                fixture.enter_as(tuple(number), number, Distance::ALL[class]);
                let record = Record::new(tuple(number), &final_state(number), now, terms[class]);
                model.records.insert(number, (record, class));
                number
            }
            Step::Remove(number) => {
                let is_there = fixture.find_as(&tuple(number)).is_some();
                prop_assert!(fixture.remove_as(&tuple(number)) >= is_there);
                model.records.remove(&number);
                number
            }
            Step::Mark(number, is_marked) => {
                let tuple = tuple(number);
                fixture.table.mark(fixture.hasher.hash(&tuple), &tuple, is_marked);
                if let Some((record, _)) = model.records.get_mut(&number) {
                    record.is_marked = is_marked;
                }
                number
            }
            Step::Restart(number) => {
                fixture.restart_as(&tuple(number));
                if let Some((record, class)) = model.records.get_mut(&number) {
                    record.entered = now;
                    record.expires = now + terms[*class];
                }
                number
            }
            Step::Pass(ms) => {
                let pace = if terms == LONG { 20 } else { 1 };
                fixture.pass(Duration::from_millis(ms * pace));
                // Whatever the table no longer finds has had its time.
                let numbers: Vec<u32> = model.records.keys().copied().collect();
                for number in numbers {
                    model.check(&fixture, number, fixture.now)?;
                    if fixture.find_as(&tuple(number)).is_none() {
                        model.records.remove(&number);
                    }
                }
                fixture.turn();
                fixture.check_queues();
                continue;
            }
        };
        model.check(&fixture, touched, now)?;
        fixture.turn();
        fixture.check_queues();
        if fixture.table.len() <= FEW {
            let (used, needed) = fixture.handles();
            prop_assert_eq!(used, needed);
        }
    }
    let (used, needed) = fixture.handles();
    prop_assert_eq!(used, needed);
    let counters = &fixture.counters;
    let gone = counters.time_wait_expired + counters.time_wait_reused;
    prop_assert!(gone + fixture.table.len() as u64 <= counters.time_wait_entered);
    fixture.pass(terms.into_iter().max().unwrap_or_default() * 2 + Duration::from_secs(1));
    prop_assert_eq!(fixture.table.len(), 0);
    prop_assert_eq!(fixture.table.handles.len(), 0);
    Ok(())
}

/// The last record of a chunk kept those behind it waiting, which have gone meanwhile: it is queued
/// again in a new chunk.
#[test]
fn a_record_that_is_queued_again_in_a_new_chunk_stays() {
    for blocks in [63, 127, 191] {
        // Each is alone in its block.
        let alone = [Step::Enter(0, 0), Step::Pass(4096)].repeat(blocks);
        let last = [Step::Enter(330, 0), Step::Pass(9967), Step::Restart(330), Step::Pass(45_937)];
        for sixes in [0, 4] {
            run(&[&alone[..], &last].concat(), [TERM; 3], sixes, 0, DEAD_MAX).unwrap();
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn the_table_does_as_the_model(
        few in proptest::collection::vec(step(8), 1..300),
        many in proptest::collection::vec(step(3000), 1..3000),
        terms in proptest::sample::select(&[[TERM; 3], NEAR, LONG]),
        // All of one version, or both, in record sets that run at their own pace.
        sixes in 0u32..=4,
        start in prop_oneof![Just(0u32), Just(u32::MAX - 5000), any::<u32>()],
        dead_max in prop_oneof![Just(0u32), Just(100), Just(DEAD_MAX)],
    ) {
        run(&few, terms, sixes, start, dead_max)?;
        run(&many, terms, sixes, start, dead_max)?;
    }
}
