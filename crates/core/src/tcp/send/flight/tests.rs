//! `Flight` against a list that has an entry for each byte.

use super::many::RECORDS_MAX;
use super::*;
use crate::tcp::send::rack::Evidence;
use proptest::prelude::*;
use std::vec::Vec;

fn at(ms: u64) -> Instant {
    Instant::from_millis(ms)
}

fn echo(ms: u32) -> Evidence {
    Evidence { echo: Some(ms), ..Evidence::default() }
}

/// An ACK that says so, of which nothing is asked.
fn news(evidence: Evidence) -> News {
    News::new(evidence, Instant::ZERO, 0, Seq(0))
}

fn sack(flight: &mut Flight, start: u32, end: u32) -> u32 {
    flight.on_sacked(UNA, (Seq(start), Seq(end)), &mut news(Evidence::default()))
}

const UNA: Seq = Seq(0);

/// Segments of 100 bytes that left at these milliseconds, one each.
fn flight(times: &[u64]) -> Flight {
    let mut flight = Flight::default();
    for (i, &ms) in times.iter().enumerate() {
        flight.on_sent(UNA, UNA + 100 * (i as u32 + 1), at(ms));
    }
    flight
}

fn records(flight: &Flight) -> usize {
    match flight {
        Flight::Empty => 0,
        Flight::One(_) => 1,
        Flight::Many(many) => many.len(),
    }
}

#[test]
fn the_newest_byte_acknowledged_gives_the_sample() {
    let mut flight = flight(&[0, 5]);
    assert_eq!(flight.on_ack(Seq(200), &mut news(Evidence::default())).sent, Some(at(5)));
    assert!(flight.owns_nothing());
}

#[test]
fn a_segment_sent_again_gives_none_unless_the_echo_tells_which() {
    for again in [100, 200] {
        let sample = |evidence| {
            let mut flight = flight(&[0, 0]);
            flight.on_sent_again(UNA, (Seq(0), Seq(again)), at(50), false);
            flight.on_ack(Seq(200), &mut news(evidence)).sent
        };
        assert_eq!(sample(Evidence::default()), None, "Karn's rule");
        assert_eq!(sample(echo(49)), None, "the first one arrived");
        assert_eq!(sample(echo(50)), Some(at(50)));
    }
}

#[test]
fn a_range_that_was_sacked_before_gives_no_sample() {
    let mut flight = flight(&[0, 5]);
    sack(&mut flight, 100, 200);
    assert_eq!(flight.on_ack(Seq(200), &mut news(echo(90))), Taken { sent: None, known: 100 });
}

#[test]
fn what_leaves_at_once_or_is_sacked_in_a_row_is_one_record() {
    let mut flight = flight(&[1; 50]);
    assert!(matches!(flight, Flight::One(_)), "no memory but its own");
    for i in (10..40).rev() {
        sack(&mut flight, 100 * i, 100 * i + 100);
    }
    assert_eq!((records(&flight), flight.sacked()), (3, 3000));
    flight.lose(UNA, (UNA, Seq(1000)), UNA);
    for i in 0..10 {
        flight.on_sent_again(UNA, (Seq(100 * i), Seq(100 * i + 100)), at(9), false);
    }
    assert_eq!((records(&flight), flight.lost(UNA), flight.resent(UNA)), (3, 0, 1000));
}

#[test]
fn what_left_before_the_latest_delivery_is_lost_once_it_is_late() {
    // A segment each at 1 to 5 ms; the third has arrived.
    let mut flight = flight(&[1, 2, 3, 4, 5]);
    sack(&mut flight, 200, 300);
    let latest = Departure { at: at(3), end: Seq(300) };
    let mut judge = |now_ms| flight.lose_late(UNA, latest, 10_000_000, at(now_ms));
    assert_eq!(judge(10), at(11), "the first");
    assert_eq!(judge(11), at(12), "the second");
    assert_eq!(judge(12), Instant::FAR_FUTURE, "the others left later");
    assert_eq!(flight.next_lost(UNA, 1000), Some((UNA, 200)));
}

#[test]
fn a_retransmission_is_lost_like_anything_else() {
    let mut flight = flight(&[1; 10]);
    sack(&mut flight, 300, 400);
    let latest = Departure { at: at(1), end: Seq(400) };
    flight.lose_late(UNA, latest, 0, at(5));
    assert_eq!(flight.lost(UNA), 300);
    for (i, ms) in [6, 7, 8].into_iter().enumerate() {
        let start = Seq(100 * i as u32);
        flight.on_sent_again(UNA, (start, start + 100), at(ms), false);
    }
    // The second of the three arrives, and then the third.
    sack(&mut flight, 100, 200);
    let latest = Departure { at: at(7), end: Seq(200) };
    assert_eq!(flight.lose_late(UNA, latest, 2_000_000, at(7)), at(8));
    flight.lose_late(UNA, latest, 2_000_000, at(8));
    assert_eq!(flight.next_lost(UNA, 1000), Some((UNA, 100)), "without a timeout");
    assert_eq!(flight.resent(UNA), 100, "the third may arrive yet");
}

#[test]
fn a_lone_range_is_lost_as_one_and_once() {
    let all = (UNA, Seq(300));
    let mut flight = flight(&[4; 3]);
    assert_eq!(flight.lose(UNA, all, UNA), 300);
    assert_eq!(flight.lose(UNA, all, UNA), 0, "it is lost already");
    assert_eq!(flight.take_first_lost(), Some(at(4)));
    flight.on_sent_again(UNA, all, at(9), true);
    assert_eq!(flight.resent(UNA), 300);
    assert_eq!((flight.lose(UNA, all, Seq(300)), flight.lost(UNA)), (0, 0), "on suspicion");
    assert_eq!(flight.take_first_lost(), None);
    assert!(matches!(flight, Flight::One(_)), "no memory but its own");
}

#[test]
fn a_lone_range_is_late_from_its_moment_on() {
    let latest = Departure { at: at(2), end: Seq(400) };
    let late = |ms| {
        let mut flight = flight(&[1; 3]);
        (flight.lose_late(UNA, latest, 10_000_000, at(ms)), flight.lost(UNA))
    };
    assert_eq!(late(10), (at(11), 0));
    assert_eq!([11, 12].map(late), [(Instant::FAR_FUTURE, 300); 2]);
    let old = |ms| {
        let mut flight = flight(&[1; 3]);
        flight.lose_old(10_000_000, at(ms));
        flight.lost(UNA)
    };
    assert_eq!([10, 11, 12].map(old), [0, 300, 300]);
}

#[test]
fn what_is_held_and_not_acknowledged_is_reneged() {
    let mut flight = flight(&[1, 2]);
    sack(&mut flight, 100, 200);
    assert!(!flight.is_reneged(), "there is a hole below it");
    sack(&mut flight, 0, 100);
    assert!(flight.is_reneged());
}

#[test]
fn nothing_in_flight_is_nothing_sent_again() {
    let mut flight = Flight::default();
    flight.on_sent_again(UNA, (UNA, Seq(100)), at(1), false);
    assert!(flight.owns_nothing());
}

#[test]
fn a_lone_range_is_divided_only_if_a_part_of_it_is_late() {
    let whole = (UNA, Seq(300));
    let judge = |again: bool, ms, end| {
        let mut flight = flight(&[1, 1, 1]);
        if again {
            flight.on_sent_again(UNA, whole, at(6), false);
        }
        let latest = Departure { at: at(ms), end: Seq(end) };
        flight.lose_late(UNA, latest, 0, at(20));
        (flight.lost(UNA), matches!(flight, Flight::One(_)))
    };
    assert_eq!(judge(true, 6, 100), (100, false), "sent again with what has arrived");
    assert_eq!(judge(true, 6, 300), (300, true));
    assert_eq!(judge(true, 7, 100), (300, true), "what left later has arrived");
    assert_eq!(judge(true, 5, 100), (0, true), "what left before");
    assert_eq!(judge(false, 1, 100), (0, true), "sent once");
}

#[test]
fn the_number_of_records_is_bounded() {
    let count = RECORDS_MAX as u32 + 10;
    let mut flight = Flight::default();
    for i in 1..=count {
        flight.on_sent(UNA, Seq(i * 10), at(u64::from(i)));
    }
    assert_eq!(records(&flight), RECORDS_MAX);
    // Every second byte: within a record nothing counts any more.
    let sacked: u32 = (1..count * 5).map(|i| sack(&mut flight, i * 2, i * 2 + 1)).sum();
    assert_eq!((sacked, records(&flight)), (0, RECORDS_MAX));
    // But whole ones do, and make room.
    assert_eq!(sack(&mut flight, 5, 1005), 990);
    assert_eq!(records(&flight), RECORDS_MAX - 98);
    assert_eq!(
        flight.on_ack(Seq(count * 10), &mut news(Evidence::default())).sent,
        Some(at(count.into()))
    );
}

#[test]
fn a_hole_is_lost_under_three_ranges_or_more_than_two_segments() {
    let mut flight = flight(&[0; 10]);
    sack(&mut flight, 300, 400);
    sack(&mut flight, 500, 600);
    assert_eq!(flight.lost_edge(100), None, "two segments in two ranges");
    sack(&mut flight, 600, 601);
    assert_eq!(flight.lost_edge(100), Some(Seq(300)), "more than two segments' bytes");
    sack(&mut flight, 800, 801);
    assert_eq!(flight.lost_edge(100), Some(Seq(300)), "three ranges");
}

/// Two of three holes are lost: [0, 200) and [400, 600).
fn with_holes() -> Flight {
    let mut flight = flight(&[0; 10]);
    sack(&mut flight, 200, 400);
    sack(&mut flight, 600, 900);
    assert_eq!(flight.out_of_network(UNA), 500);
    assert_eq!(flight.lose(UNA, (UNA, Seq(600)), UNA), 400);
    flight
}

#[test]
fn holes_are_sent_again_in_order_up_to_the_lost_edge() {
    let mut flight = with_holes();
    let mut sent = Vec::new();
    while let Some((start, len)) = flight.next_lost(UNA, 100) {
        sent.push((start.0, len));
        flight.on_sent_again(UNA, (start, start + len), at(1), false);
    }
    assert_eq!(sent, [(0, 100), (100, 100), (400, 100), (500, 100)]);
}

#[test]
fn the_pipe_counts_what_was_sent_again_and_what_was_never_lost() {
    let mut flight = with_holes();
    assert_eq!(1000 - flight.out_of_network(UNA), 100);
    flight.on_sent_again(UNA, (Seq(0), Seq(100)), at(1), false);
    assert_eq!(1000 - flight.out_of_network(UNA), 200);
    flight.on_sent_again(UNA, (Seq(900), Seq(1000)), at(1), true);
    assert_eq!(1000 - flight.out_of_network(UNA), 300, "what was not lost is there twice");
}

/// A byte of the model.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Byte {
    at: Instant,
    fate: Fate,
    again: bool,
}

/// What happens, at a time of its own.
#[derive(Clone, Debug)]
enum Step {
    Send(u32),
    Ack(u32),
    Sack(u32, u32),
    Lose(u32, u32),
    Resend(bool),
    Late(u32),
    ForgetSacked,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (1u32..40).prop_map(Step::Send),
        2 => (1u32..60).prop_map(Step::Ack),
        4 => (0u32..200, 1u32..30).prop_map(|(from, len)| Step::Sack(from, len)),
        2 => (0u32..200, 1u32..60).prop_map(|(from, len)| Step::Lose(from, len)),
        3 => any::<bool>().prop_map(Step::Resend),
        3 => (0u32..8).prop_map(Step::Late),
        1 => Just(Step::ForgetSacked),
    ]
}

/// The model: a byte each, from `una` on.
struct Model {
    una: Seq,
    bytes: Vec<Byte>,
}

impl Model {
    fn count(&self, is_it: impl Fn(&Byte) -> bool) -> u32 {
        self.bytes.iter().filter(|byte| is_it(byte)).count() as u32
    }

    /// A range within what is in flight, from offsets that may lie beyond.
    fn range(&self, from: u32, len: u32) -> (Seq, Seq) {
        let end = self.bytes.len() as u32;
        let from = from.min(end);
        (self.una + from, self.una + (from + len).min(end))
    }

    fn slice(&mut self, (start, end): (Seq, Seq)) -> &mut [Byte] {
        &mut self.bytes[start.since(self.una) as usize..end.since(self.una) as usize]
    }

    fn ack(&mut self, by: u32, evidence: Evidence) -> Taken {
        let gone: Vec<Byte> = self.bytes.drain(..by as usize).collect();
        self.una += by;
        let known = gone.iter().filter(|byte| byte.fate == Fate::Sacked).count() as u32;
        let tells = |byte: &&Byte| byte.at != Instant::FAR_FUTURE;
        let newest = gone.last().filter(tells).map(|byte| byte.at);
        let again = gone.iter().rfind(|byte| byte.again && tells(byte)).map(|byte| byte.at);
        let sent = match (newest, again) {
            (Some(_), Some(at)) => (evidence.shows(at) == Some(true)).then_some(at),
            (newest, _) => newest,
        };
        Taken { sent, known }
    }

    fn first_run(&self, is_it: impl Fn(&Byte) -> bool) -> Option<(u32, u32)> {
        let start = self.bytes.iter().position(&is_it)?;
        let len = self.bytes[start..].iter().take_while(|byte| is_it(byte)).count();
        Some((start as u32, len as u32))
    }

    /// RFC 8985 §6.2, step 5, from its text, a byte a segment.
    fn lose_late(&mut self, latest: Departure, wait_ns: u64, now: Instant) -> Instant {
        let mut next = Instant::FAR_FUTURE;
        for (i, byte) in self.bytes.iter_mut().enumerate() {
            let departure = Departure { at: byte.at, end: self.una + i as u32 + 1 };
            let is_out = matches!(byte.fate, Fate::InFlight | Fate::Twice);
            if !is_out || !departure.is_before(latest) {
                continue;
            }
            let due = byte.at.plus_nanos(wait_ns);
            if due <= now {
                byte.fate = Fate::Lost;
            } else {
                next = next.min(due);
            }
        }
        next
    }

    /// RFC 6675 §4 IsLost, from its text: the end of the highest byte that is lost by it.
    fn lost_edge(&self, mss: u32) -> Option<Seq> {
        let is_sacked = |i: usize| self.bytes[i].fate == Fate::Sacked;
        let (mut ranges, mut bytes) = (0, 0);
        for i in (0..self.bytes.len()).rev().filter(|i| is_sacked(*i)) {
            bytes += 1;
            let begins = i == 0 || !is_sacked(i - 1);
            ranges += u32::from(begins);
            if begins && (ranges >= 3 || bytes > 2 * mss) {
                return Some(self.una + i as u32);
            }
        }
        None
    }
}

proptest! {
    #[test]
    fn agrees_with_a_list_of_bytes(
        base: u32,
        steps in proptest::collection::vec(step(), 1..60),
    ) {
        let (mut flight, mut model) =
            (Flight::default(), Model { una: Seq(base), bytes: Vec::new() });
        // The latest delivery: when it left, and how far after the beginning it ends.
        let key = |departure: Departure| (departure.at, departure.end.since(Seq(base)));
        let mut latest = None;
        for (i, step) in steps.into_iter().enumerate() {
            // Some things happen at the same time.
            let (now, una) = (at(i as u64 / 2), model.una);
            match step {
                Step::Send(len) => {
                    let byte = Byte { at: now, fate: Fate::InFlight, again: false };
                    model.bytes.extend((0..len).map(|_| byte));
                    flight.on_sent(una, una + model.bytes.len() as u32, now);
                }
                Step::Ack(by) => {
                    let by = by.min(model.bytes.len() as u32);
                    if by == 0 {
                        continue;
                    }
                    let evidence = echo(i as u32 / 3);
                    let mut heard = News::new(evidence, now, 0, una);
                    let taken = flight.on_ack(una + by, &mut heard);
                    latest = latest.max(heard.latest.map(key));
                    prop_assert_eq!(taken, model.ack(by, evidence));
                }
                Step::Sack(from, len) => {
                    let (start, end) = model.range(from, len);
                    let before = model.count(|byte| byte.fate == Fate::Sacked);
                    let (at, fate, again) = (Instant::FAR_FUTURE, Fate::Sacked, false);
                    model.slice((start, end)).fill(Byte { at, fate, again });
                    let news = model.count(|byte| byte.fate == Fate::Sacked) - before;
                    let mut heard = News::new(Evidence::default(), now, 0, una);
                    prop_assert_eq!(flight.on_sacked(una, (start, end), &mut heard), news);
                    latest = latest.max(heard.latest.map(key));
                }
                Step::Lose(from, len) => {
                    let (start, end) = model.range(from, len);
                    let mut lost = 0;
                    for byte in model.slice((start, end)) {
                        if matches!(byte.fate, Fate::InFlight | Fate::Twice) {
                            byte.fate = Fate::Lost;
                            lost += 1;
                        }
                    }
                    prop_assert_eq!(flight.lose(una, (start, end), start), lost);
                }
                Step::Resend(twice) => {
                    let Some((start, len)) = flight.next_lost(una, 25) else { continue };
                    let fate = if twice { Fate::Twice } else { Fate::InFlight };
                    model.slice((start, start + len)).fill(Byte { at: now, fate, again: true });
                    flight.on_sent_again(una, (start, start + len), now, twice);
                }
                Step::Late(wait_ms) => {
                    let Some((at, after)) = latest else { continue };
                    let newest = Departure { at, end: Seq(base) + after };
                    let wait_ns = u64::from(wait_ms) * 1_000_000;
                    let next = model.lose_late(newest, wait_ns, now);
                    prop_assert_eq!(flight.lose_late(una, newest, wait_ns, now), next);
                }
                Step::ForgetSacked => {
                    for byte in &mut model.bytes {
                        if byte.fate == Fate::Sacked {
                            (byte.fate, byte.again) = (Fate::InFlight, true);
                        }
                    }
                    flight.forget_sacked();
                }
            }
            compare(&flight, &model);
        }
    }
}

fn compare(flight: &Flight, model: &Model) {
    if let Flight::Many(many) = flight {
        many.check();
    }
    let of = |fate| model.count(|byte| byte.fate == fate);
    assert_eq!(flight.sacked(), of(Fate::Sacked));
    assert_eq!(flight.lost(model.una), of(Fate::Lost));
    let twice = of(Fate::Twice);
    assert_eq!(
        flight.out_of_network(model.una),
        (of(Fate::Sacked) + of(Fate::Lost)).saturating_sub(twice)
    );
    let is_on_its_way = |byte: &Byte| matches!(byte.fate, Fate::InFlight | Fate::Twice);
    assert_eq!(flight.resent(model.una), model.count(|byte| byte.again && is_on_its_way(byte)));
    assert_eq!(flight.oldest(), model.bytes.first().map(|byte| byte.at));
    assert_eq!(flight.owns_nothing(), model.bytes.is_empty());
    let lost = model.first_run(|byte| byte.fate == Fate::Lost);
    assert_eq!(
        flight.next_lost(model.una, 25),
        lost.map(|(start, len)| (model.una + start, len.min(25)))
    );
    let hole = model.first_run(|byte| byte.fate != Fate::Sacked);
    let end = model.una + model.bytes.len() as u32;
    let hole = hole.map(|(start, len)| (model.una + start, model.una + start + len));
    assert_eq!(flight.next_hole(model.una, end), hole);
    let highest = model.bytes.iter().rposition(|byte| byte.fate == Fate::Sacked);
    assert_eq!(flight.highest_sacked(), highest.map(|i| model.una + i as u32 + 1));
    assert_eq!(flight.lost_edge(7), model.lost_edge(7));
}
