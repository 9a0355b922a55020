use std::time::Duration;

use serde_json::Value;

use crate::engine::Outcome;
use crate::recorder::{Answered, Fault, Gauges, Recorder};
use crate::report::Report;
use crate::report::tests::report;
use crate::share::Share;

const S: Duration = Duration::from_secs(1);

/// The result of a load with the requests that `is_its` selects.
fn outcome(is_its: impl Fn(u32) -> bool) -> Outcome {
    let mut recorder = Recorder::new(S * 2..S * 4);
    for number in (0..4000).filter(|number| is_its(*number)) {
        let intended = S * number / 1000;
        while recorder.seconds() < intended.as_secs() {
            recorder.on_second(Gauges { in_flight: 0, time_wait: 0 });
        }
        recorder.on_connection(intended, intended, S * number / 100_000);
        recorder.on_answer(&Answered {
            intended,
            started: intended + S * (number % 50) / 9_000,
            ended: intended + S * (1 + number % 977) / 3_000,
            first_byte: S * (number % 31) / 10_000,
            status: if number % 13 == 0 { 503 } else { 200 },
            bytes: u64::from(number),
        });
        if number % 7 == 0 {
            let fault = if number % 2 == 0 { Fault::Reset } else { Fault::Timeout };
            recorder.on_fault(intended, intended + S, fault);
        }
    }
    recorder.on_second(Gauges::default());
    let (totals, seconds, second_latencies) = recorder.into_parts();
    Outcome { totals, seconds, second_latencies, ..report().outcome }
}

/// A report of one share, through JSON.
fn part(number: u32, of: u32) -> Report {
    let mut part = report();
    part.outcome = outcome(|request| request % of == number);
    part.setup.rate = Some(25.0);
    part.setup.shares = vec![Share::new(number, of).unwrap()];
    let text = part.json().to_string();
    let read = Report::from_json(&serde_json::from_str(&text).unwrap()).unwrap();
    assert_eq!((&read.setup, &read.outcome), (&part.setup, &part.outcome), "nothing is lost");
    read
}

#[test]
fn the_parts_together_are_what_one_process_would_have_reported() {
    let whole = Report { outcome: outcome(|_| true), ..report() };
    let mut merged = Report::merge((0..4).map(|number| part(number, 4)).collect()).unwrap();
    assert_eq!(merged.warnings(), whole.warnings());
    assert_eq!(merged.outcome.totals, whole.outcome.totals);
    assert_eq!(merged.outcome.seconds, whole.outcome.seconds);
    assert_eq!(merged.outcome.second_latencies, whole.outcome.second_latencies);
    assert_eq!((merged.setup.rate, merged.setup.addresses), (Some(100.0), 8));
    assert_eq!(merged.outcome.notes.closed_by_server, 1600);
    assert!(merged.table().contains("parts 1, 2, 3, 4 of 4"), "{}", merged.table());
    // A merged report can be merged again.
    merged.setup.shares.truncate(2);
    let json = merged.json();
    assert_eq!(json["parts"], serde_json::json!(["1/4", "2/4"]));
    let rest = [part(2, 4), part(3, 4)];
    let again = Report::from_json(&json).unwrap();
    assert!(Report::merge([vec![again], rest.into()].concat()).is_ok());
}

#[test]
fn parts_that_ran_one_after_the_other_do_not_add_up_their_rates() {
    let late = |number, seconds: f64| {
        let mut part = part(number, 4);
        part.started_at = part.started_at.map(|start| start + Duration::from_secs_f64(seconds));
        part
    };
    let rate = late(0, 0.0).rate() + late(1, 0.0).rate();
    let together = Report::merge(vec![late(0, 0.0), late(1, 0.05)]).unwrap();
    assert!((together.rate() / rate - 1.0).abs() < 0.03, "{} {rate}", together.rate());
    assert_eq!(
        together.warnings().len(),
        2,
        "failures, and missing parts: {:?}",
        together.warnings()
    );
    // Each records from its second 2 to 4.
    let apart = Report::merge(vec![late(1, 3.0), late(0, 0.0)]).unwrap();
    assert_eq!((apart.outcome.recorded, apart.together), (S * 5, Some(Duration::ZERO)));
    assert!((apart.rate() / rate - 0.4).abs() < 0.01, "{} {rate}", apart.rate());
    let told = "the parts did not run together: all of them for 0.0 s of 5.0 s";
    assert!(apart.warnings().iter().any(|line| line.starts_with(told)), "{:?}", apart.warnings());
    assert_eq!(apart.outcome.seconds.len(), 7);
    assert_eq!(apart.outcome.seconds[1], late(0, 0.0).outcome.seconds[1]);
    assert_eq!(apart.outcome.seconds[5], late(1, 0.0).outcome.seconds[2]);
    // It stays so when the rest is merged.
    let read = Report::from_json(&apart.json()).unwrap();
    let all = Report::merge(vec![read, late(2, 0.0), late(3, 3.0)]).unwrap();
    assert_eq!((all.outcome.recorded, all.together), (S * 5, Some(Duration::ZERO)));
    let day = 24.0 * 3600.0 + 1.0;
    let error = Report::merge(vec![late(0, 0.0), late(1, day)]).unwrap_err();
    assert!(error.contains("more than a day"), "{error}");
}

#[test]
fn a_part_of_another_load_is_refused_and_a_missing_one_reported() {
    let merge = |reports: &[Report]| Report::merge(reports.to_vec()).map(|_| ());
    let refused = |reports: &[Report]| merge(reports).unwrap_err();
    assert!(refused(&[]).contains("no report"));
    assert!(refused(&[part(0, 4), part(0, 4)]).contains("part 1/4 comes twice"));
    assert_eq!(refused(&[report(), report()]), "one report comes twice");
    assert!(refused(&[part(0, 4), part(1, 3)]).contains("different numbers"));
    assert!(refused(&[report(), part(1, 3)]).contains("a whole load"));
    let mut other = part(1, 4);
    other.setup.url = "http://other/".to_owned();
    assert!(refused(&[part(0, 4), other]).contains("url differs"));
    let mut other = part(1, 4);
    other.outcome.warm_up = S;
    assert!(refused(&[part(0, 4), other]).contains("warm_up_s differs"));
    let two = Report::merge(vec![part(3, 4), part(0, 4)]).unwrap();
    let warnings = two.warnings();
    assert!(warnings[1].contains("2/4, 3/4 are missing"), "{warnings:?}");
}

#[test]
fn json_that_is_no_report_is_refused_by_the_key() {
    let json = report().json();
    let without = |pointer: &str| {
        let mut json = json.clone();
        *json.pointer_mut(pointer).unwrap() = Value::Bool(true);
        Report::from_json(&json).unwrap_err()
    };
    for (pointer, why) in [
        ("/schema", "schema"),
        ("/url", "url"),
        ("/rate_asked", "rate_asked"),
        ("/sources/ports", "ports"),
        ("/latency_ns/connect", "connect"),
        ("/latency_ns/total/histogram_v2", "histogram_v2"),
        ("/seconds/1/answered", "answered"),
        ("/statuses/503", "statuses"),
        ("/parts", "parts"),
    ] {
        assert!(without(pointer).contains(why), "{pointer}: {}", without(pointer));
    }
    assert!(Report::from_json(&json).is_ok());
}
