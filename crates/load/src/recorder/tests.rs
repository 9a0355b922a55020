//! The record of made events.

use super::*;

const MS: Duration = Duration::from_millis(1);

fn answer(intended_ms: u32, latency_ms: u32) -> Answered {
    let intended = MS * intended_ms;
    Answered {
        intended,
        started: intended + MS * latency_ms / 4,
        ended: intended + MS * latency_ms,
        first_byte: MS * latency_ms / 2,
        status: 200,
        bytes: 100,
    }
}

fn is_near(latency: Duration, ms: u32) -> bool {
    latency.abs_diff(MS * ms) <= MS * ms / 1000
}

#[test]
fn requests_due_outside_the_record_count_in_their_second_alone() {
    let mut recorder = Recorder::new(MS * 1000..MS * 2000);
    for intended in [999, 1000, 1999, 2000] {
        recorder.on_answer(&answer(intended, 5));
        recorder.on_fault(MS * intended, MS * 2500, Fault::Reset);
    }
    // The timer of the first second's end is late: each event is in its own second all the same.
    let second = recorder.on_second(Gauges { in_flight: 7, time_wait: 9 });
    assert_eq!((second.answered, second.failed, second.bytes), (0, 0, 0));
    assert_eq!((second.in_flight, second.time_wait), (7, 9));
    let rest = [(); 2].map(|()| recorder.on_second(Gauges::default()));
    assert_eq!(rest.map(|one| (one.answered, one.failed, one.bytes)), [(2, 0, 200), (2, 4, 200)]);
    recorder.on_answer(&answer(1000, 5));
    assert_eq!(recorder.on_second(Gauges::default()).answered, 1, "too late for its own");
    let totals = recorder.totals();
    assert_eq!((totals.answered, totals.failed(), totals.bytes), (3, 2, 300));
    assert_eq!(totals.total.len(), 3);
}

#[test]
fn rates_count_what_ended_in_the_recorded_part() {
    let mut recorder = Recorder::new(MS * 1000..MS * 2000);
    // Carried over from the warm-up, in the midst, and carried out of the recorded part.
    for (intended, latency) in [(900, 99), (900, 100), (1500, 5), (1990, 9), (1990, 10)] {
        recorder.on_connection(MS * intended, MS * (intended + latency), MS);
        recorder.on_answer(&answer(intended, latency));
        recorder.on_fault(MS * intended, MS * (intended + latency), Fault::Reset);
    }
    recorder.on_answer(&Answered { status: 404, ..answer(1500, 5) });
    let totals = recorder.totals();
    let ended = Ended { answered: 3, failed: 4, connections: 3, bytes: 400 };
    assert_eq!((totals.ended, totals.answered, totals.connections), (ended, 3, 3));
    recorder.cut(MS * 1995);
    recorder.on_answer(&answer(1990, 5));
    recorder.on_answer(&answer(1990, 4));
    assert_eq!(recorder.totals().ended.answered, 4);
}

#[test]
fn latency_counts_from_the_intended_start_and_delay_is_apart() {
    let mut recorder = Recorder::new(Duration::ZERO..MS * 9000);
    recorder.on_connection(MS * 10, MS * 13, MS * 3);
    recorder.on_connection(MS * 9000, MS * 9004, MS * 4);
    recorder.on_answer(&answer(10, 4000));
    let totals = recorder.totals();
    assert!(is_near(totals.total.percentile(100.0), 4000));
    assert!(is_near(totals.delay.percentile(50.0), 1000));
    assert!(is_near(totals.first_byte.percentile(50.0), 2000));
    assert!(is_near(totals.connect.percentile(50.0), 3) && totals.connect.len() == 1);
    assert_eq!(totals.connections, 1);
    let seconds = [(); 10].map(|()| recorder.on_second(Gauges::default()).connections);
    assert_eq!(seconds, [1, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
}

#[test]
fn a_status_of_400_or_more_is_a_failure_with_a_latency() {
    let mut recorder = Recorder::new(Duration::ZERO..MS * 9000);
    for status in [200, 304, 399, 400, 503] {
        recorder.on_answer(&Answered { status, ..answer(10, 4) });
    }
    let totals = recorder.totals();
    assert_eq!((totals.answered, totals.failed(), totals.total.len()), (3, 2, 5));
    assert_eq!(totals.failure_rate(), 0.4);
    assert_eq!(Totals::default().failure_rate(), 0.0);
}

#[test]
fn a_request_that_got_no_answer_in_time_has_waited_so_long() {
    let mut recorder = Recorder::new(Duration::ZERO..MS * 9000);
    (0..98).for_each(|_| recorder.on_answer(&answer(10, 4)));
    recorder.on_fault(MS * 10, MS * 2010, Fault::Timeout);
    recorder.on_fault(MS * 10, MS * 5010, Fault::Unfinished);
    recorder.on_fault(MS * 10, MS * 11, Fault::Refused);
    let totals = recorder.totals();
    assert_eq!((totals.answered, totals.failed(), totals.total.len()), (98, 3, 100));
    assert!(is_near(totals.total.percentile(98.0), 4));
    assert!(is_near(totals.total.percentile(99.0), 2000));
    assert!(is_near(totals.total.percentile(100.0), 5000));
    let seconds = [(); 6].map(|()| recorder.on_second(Gauges::default()));
    let longest = seconds[5].longest;
    assert!(longest > MS * 4900, "{longest:?}");
}

#[test]
fn a_missing_answer_is_behind_the_percentile_of_all() {
    let mut recorder = Recorder::new(Duration::ZERO..MS * 9000);
    assert_eq!(recorder.totals().p99_of_all(), None);
    (0..95).for_each(|_| recorder.on_answer(&answer(10, 4)));
    (0..4).for_each(|_| recorder.on_answer(&answer(10, 8)));
    recorder.on_fault(MS * 10, MS * 11, Fault::Refused);
    assert!(is_near(recorder.totals().p99_of_all().unwrap(), 8), "rank 99 of 100");
    let before = recorder.totals().total.percentile(99.0);
    recorder.on_fault(MS * 10, MS * 11, Fault::Refused);
    assert_eq!(recorder.totals().p99_of_all(), None, "two of 101 are missing");
    assert_eq!(recorder.totals().total.percentile(99.0), before, "refusals take no time");
    (0..150).for_each(|_| recorder.on_answer(&answer(10, 4)));
    recorder.on_answer(&Answered { status: 503, ..answer(10, 4) });
    assert!(is_near(recorder.totals().p99_of_all().unwrap(), 8), "rank 250 of 252");
}

#[test]
fn each_second_has_the_latencies_of_its_own() {
    let mut recorder = Recorder::new(Duration::ZERO..MS * 9000);
    (1..=100).for_each(|ms| recorder.on_answer(&answer(0, ms)));
    let first = recorder.on_second(Gauges::default());
    recorder.on_answer(&answer(0, 7));
    let other = recorder.on_second(Gauges::default());
    let near = |latency: Duration, ms: u32| latency.abs_diff(MS * ms) <= MS * ms / 100;
    assert!(near(first.median, 50) && near(first.p99, 99) && near(first.longest, 100));
    assert!(near(other.median, 7) && near(other.longest, 7));
    let empty = recorder.on_second(Gauges::default());
    assert_eq!(empty, Second::default());
}

#[test]
fn a_load_cut_short_records_up_to_the_cut() {
    let mut recorder = Recorder::new(MS * 1000..MS * 9000);
    recorder.cut(MS * 5000);
    recorder.on_answer(&answer(4999, 1));
    recorder.on_answer(&answer(5000, 1));
    recorder.cut(MS * 7000);
    assert_eq!((recorder.totals().answered, recorder.recorded().end), (1, MS * 5000));
}

#[test]
fn the_sum_of_two_loads_is_as_if_one_recorder_had_seen_both() {
    let new = || Recorder::new(Duration::ZERO..MS * 9000);
    let (mut one, mut other, mut both) = (new(), new(), new());
    for ms in 1..500 {
        let answer = Answered { status: if ms % 7 == 0 { 503 } else { 200 }, ..answer(ms, ms * 3) };
        let part = if ms % 2 == 0 { &mut one } else { &mut other };
        part.on_answer(&answer);
        part.on_connection(MS * ms, MS * ms * 3, MS * ms * 2);
        both.on_connection(MS * ms, MS * ms * 3, MS * ms * 2);
        part.on_fault(MS * ms, MS * ms * 4, Fault::Timeout);
        both.on_answer(&answer);
        both.on_fault(MS * ms, MS * ms * 4, Fault::Timeout);
    }
    let mut sum = one.totals().clone();
    sum.add(other.totals());
    assert_eq!(&sum, both.totals());
}
