//! The table of TIME-WAIT records.

use super::*;
use crate::tcp::Seq;

const HASH: u64 = 42;

struct Fixture {
    table: TimeWait,
    counters: Counters,
    now: Instant,
}

fn tuple(port: u16) -> Tuple {
    Tuple::new(([10, 0, 0, 1].into(), 80), ([10, 0, 0, 2].into(), port))
}

const RESIDUE: Residue = Residue {
    snd_nxt: Seq(1000),
    rcv_nxt: Seq(5000),
    stamp: None,
    window: 100,
    is_holder: false,
    ack_due: false,
};

impl Fixture {
    fn new(limit: usize) -> Self {
        let mut fixture = Fixture {
            table: TimeWait::new(Duration::from_secs(60), limit),
            counters: Counters::default(),
            now: Instant::from_millis(1000),
        };
        fixture.enter(1);
        fixture
    }

    fn enter(&mut self, port: u16) {
        let (now, counters) = (self.now, &mut self.counters);
        self.table.enter(HASH + u64::from(port), tuple(port), &RESIDUE, now, counters);
    }

    fn find(&self, port: u16) -> Option<Record> {
        self.table.find(HASH + u64::from(port), &tuple(port), self.now)
    }

    fn pass(&mut self, time: Duration) {
        self.now = self.now + time;
        self.table.on_time(self.now, &mut self.counters);
    }
}

#[test]
fn a_record_lasts_its_time_and_not_longer() {
    let mut fixture = Fixture::new(10);
    fixture.pass(Duration::from_millis(59_999));
    assert!(fixture.find(1).is_some());
    fixture.pass(Duration::from_millis(1));
    assert!(fixture.find(1).is_none());
    assert_eq!((fixture.table.len(), fixture.counters.time_wait_expired), (0, 1));
}

#[test]
fn a_mark_stays_until_it_is_taken_back() {
    let mut fixture = Fixture::new(10);
    fixture.table.mark(HASH + 1, &tuple(1), true);
    assert!(fixture.find(1).unwrap().is_marked);
    fixture.table.mark(HASH + 1, &tuple(1), false);
    assert!(!fixture.find(1).unwrap().is_marked);
}

#[test]
fn a_restarted_record_lasts_its_time_again() {
    let mut fixture = Fixture::new(10);
    fixture.pass(Duration::from_secs(31));
    let now = fixture.now;
    fixture.table.restart(HASH + 1, &tuple(1), now);
    fixture.pass(Duration::from_millis(59_999));
    assert!(fixture.find(1).is_some());
    fixture.pass(Duration::from_millis(1));
    assert!(fixture.find(1).is_none());
    assert_eq!(fixture.table.len(), 0);
}

#[test]
fn restarts_do_not_make_the_table_grow() {
    let mut fixture = Fixture::new(10);
    for _ in 0..1000 {
        fixture.pass(Duration::from_millis(1));
        let now = fixture.now;
        fixture.table.restart(HASH + 1, &tuple(1), now);
    }
    assert_eq!(fixture.table.queue_len(), 1);
}

#[test]
fn a_full_table_drops_its_oldest() {
    let mut fixture = Fixture::new(2);
    fixture.now = fixture.now + Duration::from_secs(1);
    fixture.enter(2);
    assert_eq!(fixture.counters.time_wait_evicted, 0);
    fixture.enter(3);
    assert_eq!(fixture.counters.time_wait_evicted, 1);
    assert!(fixture.find(1).is_none());
    assert!(fixture.find(2).is_some() && fixture.find(3).is_some());
}

#[test]
fn a_tuple_that_closes_again_has_one_record() {
    let mut fixture = Fixture::new(10);
    fixture.pass(Duration::from_secs(30));
    fixture.enter(1);
    assert_eq!(fixture.table.len(), 1);
    fixture.pass(Duration::from_secs(30));
    assert!(fixture.find(1).is_some(), "the older entry in the queue is stale");
    fixture.pass(Duration::from_secs(30));
    assert_eq!(fixture.table.len(), 0);
}

#[test]
fn a_tuple_opened_again_and_again_does_not_make_the_queue_grow() {
    let mut fixture = Fixture::new(10);
    for _ in 0..100_000 {
        fixture.now = fixture.now + Duration::from_micros(100);
        fixture.enter(1);
        fixture.table.remove(HASH + 1, &tuple(1));
    }
    assert!(fixture.table.queue_len() < 2000, "{}", fixture.table.queue_len());
    fixture.enter(1);
    assert!(fixture.find(1).is_some());
    fixture.pass(Duration::from_secs(61));
    assert_eq!((fixture.table.len(), fixture.table.queue_len()), (0, 0));
}
