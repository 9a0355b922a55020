//! The rules of TIME-WAIT, each with its twin.

use super::*;
use crate::tcp::connection::{Residue, Tuple};
use crate::time::Duration;
use crate::wire::options::{Options, Timestamps};
use core::net::{IpAddr, Ipv4Addr};

const HASH: u64 = 42;

struct Fixture {
    table: TimeWait,
    challenges: Challenges,
    counters: Counters,
    now: Instant,
}

fn tuple(port: u16) -> Tuple {
    Tuple {
        local: IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)),
        local_port: 80,
        remote: IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2)),
        remote_port: port,
    }
}

fn residue(stamp: Option<u32>) -> Residue {
    Residue { snd_nxt: Seq(1000), rcv_nxt: Seq(5000), stamp, window: 100, ack_due: false }
}

fn segment(flags: Flags, seq: u32, ack: u32, stamp: Option<u32>) -> Segment<'static> {
    Segment {
        source_port: 1,
        destination_port: 80,
        seq: Seq(seq),
        ack: Seq(ack),
        flags,
        window: 1,
        urgent: 0,
        options: Options {
            timestamps: stamp.map(|value| Timestamps { value, echo: 0 }),
            ..Options::default()
        },
        payload: &[],
    }
}

impl Fixture {
    fn new(stamp: Option<u32>, limit: usize) -> Self {
        let mut fixture = Fixture {
            table: TimeWait::new(Duration::from_secs(60), limit),
            challenges: Challenges::new(1000, 1),
            counters: Counters::default(),
            now: Instant::from_millis(1000),
        };
        fixture.enter(1, stamp);
        fixture
    }

    fn enter(&mut self, port: u16, stamp: Option<u32>) {
        let (now, counters) = (self.now, &mut self.counters);
        self.table.enter(HASH + u64::from(port), tuple(port), &residue(stamp), now, counters);
    }

    fn find(&self, port: u16) -> Option<Record> {
        self.table.find(HASH + u64::from(port), &tuple(port), self.now)
    }

    fn hear(&mut self, segment: &Segment<'_>) -> Verdict {
        let record = self.find(1).expect("the record is there");
        self.table.on_segment(
            HASH + 1,
            record,
            segment,
            self.now,
            &mut self.challenges,
            &mut self.counters,
        )
    }

    fn pass(&mut self, time: Duration) {
        self.now = self.now + time;
        self.table.on_time(self.now, &mut self.counters);
    }
}

#[test]
fn a_record_lasts_its_time_and_not_longer() {
    let mut fixture = Fixture::new(None, 10);
    fixture.pass(Duration::from_millis(59_999));
    assert!(fixture.find(1).is_some());
    fixture.pass(Duration::from_millis(1));
    assert!(fixture.find(1).is_none());
    assert_eq!((fixture.table.len(), fixture.counters.time_wait_expired), (0, 1));
}

#[test]
fn a_reset_is_ignored_unless_it_is_the_swap_s() {
    let mut fixture = Fixture::new(None, 10);
    for (flags, seq, ack) in [
        (Flags::RST, 5000, 0),
        (Flags::RST | Flags::ACK, 5001, 1000),
        (Flags::RST | Flags::ACK, 5000, 999),
    ] {
        assert_eq!(fixture.hear(&segment(flags, seq, ack, None)), Verdict::Ignore);
    }
    let swap = segment(Flags::RST | Flags::ACK, 5000, 1000, None);
    assert_eq!(fixture.hear(&swap), Verdict::Ended);
    assert!(fixture.find(1).is_none());
}

#[test]
fn a_syn_is_judged_by_rfc_6191() {
    let reopen = Verdict::Reopen(Seq(1000) + ISN_STEP);
    let table = [
        // (old stamp, new stamp, SEG.SEQ, accepted)
        (Some(700), Some(701), 1, true),
        (Some(700), Some(700), 5000, true),
        (Some(700), Some(700), 4999, false),
        (Some(700), Some(699), 9000, false),
        (None, None, 5000, true),
        (None, None, 4999, false),
        (None, Some(1), 1, true),
        (Some(700), None, 5000, true),
        (Some(700), None, 4999, false),
        // Newer and older across the wrap of the clock.
        (Some(u32::MAX), Some(0), 1, true),
        (Some(0), Some(u32::MAX), 9000, false),
    ];
    for (old, new, seq, accepted) in table {
        let mut fixture = Fixture::new(old, 10);
        let verdict = fixture.hear(&segment(Flags::SYN, seq, 0, new));
        let expected = if accepted { reopen } else { Verdict::Acknowledge };
        assert_eq!(verdict, expected, "old {old:?}, new {new:?}, seq {seq}");
        let record = fixture.find(1).expect("the record stays until the handshake completes");
        assert_eq!(record.is_marked, accepted);
    }
}

#[test]
fn a_marked_record_is_taken_up_again_when_the_syn_was_an_old_one() {
    let mut fixture = Fixture::new(None, 10);
    fixture.hear(&segment(Flags::SYN, 6000, 0, None));
    fixture.table.unmark(HASH + 1, &tuple(1));
    assert!(!fixture.find(1).unwrap().is_marked);
}

#[test]
fn only_the_fin_itself_restarts() {
    let mut fixture = Fixture::new(None, 10);
    fixture.pass(Duration::from_secs(30));
    for seq in [4998, 5000, 9000] {
        fixture.hear(&segment(Flags::FIN | Flags::ACK, seq, 1000, None));
    }
    assert_eq!(fixture.counters.time_wait_restarted, 0);
    fixture.pass(Duration::from_secs(1));
    let fin = segment(Flags::FIN | Flags::ACK, 4999, 1000, None);
    assert_eq!(fixture.hear(&fin), Verdict::Acknowledge);
    fixture.pass(Duration::from_millis(59_999));
    assert!(fixture.find(1).is_some());
    fixture.pass(Duration::from_millis(1));
    assert!(fixture.find(1).is_none());
    assert_eq!(fixture.table.len(), 0);
}

#[test]
fn repeated_fins_do_not_make_the_table_grow() {
    let mut fixture = Fixture::new(None, 10);
    for _ in 0..1000 {
        fixture.pass(Duration::from_millis(1));
        fixture.hear(&segment(Flags::FIN, 4999, 0, None));
    }
    assert_eq!(fixture.table.queue_len(), 1);
}

#[test]
fn answers_die_out() {
    let mut fixture = Fixture::new(None, 10);
    let ack = segment(Flags::ACK, 4000, 1000, None);
    let answers = (0..100).filter(|_| fixture.hear(&ack) == Verdict::Acknowledge).count();
    assert_eq!(answers, 4);
}

#[test]
fn a_full_table_drops_its_oldest() {
    let mut fixture = Fixture::new(None, 2);
    fixture.now = fixture.now + Duration::from_secs(1);
    fixture.enter(2, None);
    assert_eq!(fixture.counters.time_wait_evicted, 0);
    fixture.enter(3, None);
    assert_eq!(fixture.counters.time_wait_evicted, 1);
    assert!(fixture.find(1).is_none());
    assert!(fixture.find(2).is_some() && fixture.find(3).is_some());
}

#[test]
fn a_tuple_that_closes_again_has_one_record() {
    let mut fixture = Fixture::new(None, 10);
    fixture.pass(Duration::from_secs(30));
    fixture.enter(1, None);
    assert_eq!(fixture.table.len(), 1);
    fixture.pass(Duration::from_secs(30));
    assert!(fixture.find(1).is_some(), "the older entry in the queue is stale");
    fixture.pass(Duration::from_secs(30));
    assert_eq!(fixture.table.len(), 0);
}

#[test]
fn a_tuple_opened_again_and_again_does_not_make_the_queue_grow() {
    let mut fixture = Fixture::new(None, 10);
    for _ in 0..100_000 {
        fixture.now = fixture.now + Duration::from_micros(100);
        fixture.enter(1, None);
        fixture.table.remove(HASH + 1, &tuple(1));
    }
    assert!(fixture.table.queue_len() < 2000, "{}", fixture.table.queue_len());
    fixture.enter(1, None);
    assert!(fixture.find(1).is_some());
    fixture.pass(Duration::from_secs(61));
    assert_eq!((fixture.table.len(), fixture.table.queue_len()), (0, 0));
}

#[test]
fn what_is_acceptable_is_ignored_unless_it_acknowledges_what_was_never_sent() {
    let mut fixture = Fixture::new(None, 10);
    for (flags, seq, ack) in [
        (Flags::ACK, 5000, 1000),
        (Flags::ACK | Flags::FIN, 5099, 1000),
        (Flags::EMPTY, 5000, 0),
        (Flags::PSH, 5000, 0),
    ] {
        assert_eq!(fixture.hear(&segment(flags, seq, ack, None)), Verdict::Ignore);
    }
    for (flags, seq, ack) in
        [(Flags::ACK, 5000, 1001), (Flags::ACK | Flags::FIN, 5100, 1000), (Flags::EMPTY, 4999, 0)]
    {
        assert_eq!(fixture.hear(&segment(flags, seq, ack, None)), Verdict::Acknowledge);
    }
}

#[test]
fn an_old_timestamp_is_answered_and_restarts_nothing() {
    let mut fixture = Fixture::new(Some(700), 10);
    let fin = |stamp| segment(Flags::FIN | Flags::ACK, 4999, 1000, Some(stamp));
    assert_eq!(fixture.hear(&fin(699)), Verdict::Acknowledge);
    assert_eq!(fixture.counters.time_wait_restarted, 0);
    assert_eq!(fixture.hear(&fin(700)), Verdict::Acknowledge);
    assert_eq!(fixture.counters.time_wait_restarted, 1);
}
