use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::serialization::Deserializer;

use super::*;
use crate::engine::{IdleOutcome, Notes};
use crate::recorder::{Answered, Fault, Faults, Gauges, Recorder, Totals};

const S: Duration = Duration::from_secs(1);

/// Two seconds of warm-up and two recorded, with 100 answers a second and a fault.
pub(super) fn report() -> Report {
    let mut recorder = Recorder::new(S * 2..S * 4);
    for second in 0..4 {
        for number in 0..100 {
            let intended = S * second + Duration::from_millis(number * 10);
            recorder.on_connection(intended, intended, Duration::from_micros(100));
            recorder.on_answer(&Answered {
                intended,
                started: intended,
                ended: intended + Duration::from_millis(1 + number % 10),
                first_byte: Duration::from_micros(500),
                status: if number == 0 { 503 } else { 200 },
                bytes: 1000,
            });
        }
        recorder.on_fault(S * second, S * second + S / 1000, Fault::Timeout);
        recorder.on_second(Gauges { in_flight: 3, time_wait: 100 * u64::from(second + 1) });
    }
    let (totals, seconds, second_latencies) = recorder.into_parts();
    let notes =
        Notes { answered: 396, failed: 8, closed_by_server: 400, asked: 5, ..Notes::default() };
    let notes = Notes { obeyed: 4, ..notes };
    Report {
        setup: Setup {
            url: "http://h/".to_owned(),
            method: "GET".to_owned(),
            mix: None,
            stack: "the kernel's stack".to_owned(),
            rate: Some(100.0),
            connections: 1000,
            requests_per_connection: Some(1),
            pipeline: 1,
            http2_streams: None,
            close: Close::Server,
            addresses: 2,
            ports: 28_232,
            rest: S * 61,
            steady_after: S * 2,
            shares: Vec::new(),
        },
        outcome: Outcome {
            warm_up: S * 2,
            recorded: S * 2,
            totals,
            seconds,
            second_latencies,
            notes,
            idle: idle(),
        },
        cpu_share: 0.25,
        started_at: Some(S * 1_700_000_000),
        together: None,
        threads: 1,
    }
}

fn idle() -> IdleOutcome {
    let (faults, opening) = (Faults::default(), S * 3);
    IdleOutcome { asked: 70, opened: 70, lost: 0, faults, opening }
}

#[test]
fn idle_connections_are_reported_and_those_not_held_are_warned() {
    let mut report = report();
    assert!(report.table().contains("\nidle                    70 held      (opened in 3.0 s)\n"));
    assert_eq!(Report::from_json(&report.json()).unwrap().outcome.idle, idle());
    let idle = &mut report.outcome.idle;
    (idle.opened, idle.lost) = (68, 5);
    idle.faults.count(Fault::Refused, 2);
    let json = report.json();
    assert_eq!((&json["idle"]["held"], &json["idle"]["lost"]), (&63.into(), &5.into()));
    assert_eq!(json["idle"]["errors"], serde_json::json!({"refused": 2}));
    assert_eq!(Report::from_json(&json).unwrap().outcome.idle, report.outcome.idle);
    let warning = "of 70 idle connections 63 were held: 2 could not be opened, the server ended 5";
    assert_eq!(report.warnings(), [warning]);
}

#[test]
fn what_kept_a_load_from_what_was_asked_of_it_is_a_warning() {
    let mut report = report();
    report.outcome.totals.faults.count(Fault::Unfinished, 2);
    assert_eq!(report.warnings(), Vec::<String>::new(), "one in a hundred may be under way");
    report.outcome.totals.faults.count(Fault::Unfinished, 1);
    let text = "the rate was not reached: 205 requests were to start in the recorded part, and 202 \
                ended in it; 3 had no answer at the end";
    assert_eq!(report.warnings(), [text]);
    // As many may be under way as the latency of a server that keeps up makes.
    let quickest = report.outcome.seconds[1];
    report.outcome.seconds[1].median = S / 20;
    assert_eq!(report.warnings(), [text], "other seconds are quicker");
    let slow = |report: &mut Report| report.outcome.seconds.iter_mut().for_each(|s| s.median = S);
    slow(&mut report);
    assert_eq!(report.warnings(), Vec::<String>::new());
    report.outcome.seconds[1] = quickest;
    report.outcome.totals.faults = Faults::default();
    (0..3).for_each(|_| report.outcome.totals.delay.record(Duration::from_millis(4)));
    let [warning] = &report.warnings()[..] else { panic!("{:?}", report.warnings()) };
    assert!(warning.starts_with("requests began late: 1 % of them 4.0 ms or more"), "{warning}");
    report.setup.rate = None;
    assert_eq!(report.warnings(), Vec::<String>::new(), "a closed loop is never late");
}

#[test]
fn many_failures_and_time_waits_that_linux_cuts_are_warnings() {
    let mut report = report();
    report.outcome.notes.kernel_overflow = 7;
    let warnings = report.warnings();
    assert!(warnings[0].contains("Linux ended 7 TIME-WAITs"), "{warnings:?}");
    assert_eq!(report.json()["steady_state"], false);
    assert_eq!(Report::from_json(&report.json()).unwrap().outcome.notes.kernel_overflow, 7);
    report.outcome.notes.kernel_overflow = 0;
    report.outcome.totals.statuses.insert(404, 20);
    report.outcome.totals.ended.failed += 20;
    assert_eq!(report.warnings(), ["24 of 222 requests failed: see statuses and errors"]);
}

#[test]
fn seconds_of_grace_are_told_from_recorded_ones() {
    let mut report = report();
    report.outcome.recorded = S * 3 / 2;
    report.outcome.seconds.push(Default::default());
    let csv = report.csv();
    let phases: Vec<_> = csv.lines().skip(1).map(|row| row.split(',').nth(1).unwrap()).collect();
    assert_eq!(phases, ["warm_up", "warm_up", "recorded", "recorded", "grace"]);
}

#[test]
fn of_nothing_there_is_no_latency() {
    let mut report = report();
    report.outcome.totals = Totals::default();
    assert_eq!(report.json()["latency_ns"]["total"]["p99"], serde_json::Value::Null);
    let table = report.table();
    let row = table.lines().find(|line| line.starts_with("total ")).unwrap();
    assert_eq!(row.split_whitespace().skip(1).collect::<Vec<_>>(), ["-"; 7]);
    assert_eq!(Report::from_json(&report.json()).unwrap().outcome.totals, Totals::default());
}

#[test]
fn the_json_has_rates_over_the_recorded_part_and_names_for_all() {
    let json = report().json();
    for (key, value) in [
        ("schema", "lightwait-load/1".into()),
        ("mode", "open".into()),
        ("requests_answered", 198.into()),
        ("requests_failed", 4.into()),
        ("requests_per_second", 99.0.into()),
        ("connections_per_second", 100.0.into()),
        ("bytes_per_second", 100_000.0.into()),
        ("steady_state", true.into()),
        ("close", "server".into()),
        ("closed_by_server", 400.into()),
        ("asked", 5.into()),
        ("obeyed", 4.into()),
        ("client_closes", 0.into()),
        ("warnings", serde_json::json!([])),
        ("statuses", serde_json::json!({"200": 198, "503": 2})),
        ("errors", serde_json::json!({"timeout": 2})),
        ("sources", serde_json::json!({"addresses": 2, "ports": 28232, "rest_s": 61.0})),
    ] {
        assert_eq!(json[key], value, "{key}");
    }
    assert_eq!(json["seconds"].as_array().unwrap().len(), 4);
    assert_eq!(json["seconds"][3]["time_wait"], 400);
    let total = &json["latency_ns"]["total"];
    assert_eq!(total["count"], 202, "those too that were not answered in time");
    assert!((5_000_000..5_010_000).contains(&total["p50"].as_u64().unwrap()), "{total}");
}

#[test]
fn a_report_of_before_there_were_ways_to_close_is_read() {
    let mut json = report().json();
    for key in [
        "answered_in_all",
        "failed_in_all",
        "client_closes",
        "asked",
        "obeyed",
        "swapped",
        "agreed",
        "held",
    ] {
        json.as_object_mut().unwrap().remove(key).unwrap();
    }
    json.as_object_mut().unwrap().remove("idle").unwrap();
    let outcome = Report::from_json(&json).unwrap().outcome;
    assert_eq!(outcome.notes, Notes { closed_by_server: 400, ..Notes::default() });
    assert_eq!(outcome.idle, IdleOutcome::default());
}

#[test]
fn the_table_reports_unusual_closings_and_no_others() {
    assert!(report().table().contains("\nclosings    asked for: 5, obeyed: 4\n"));
    let mut usual = report();
    usual.outcome.notes = Notes { closed_by_server: 400, ..Notes::default() };
    assert!(!usual.table().contains("closings"));
}

#[test]
fn every_key_of_the_json_is_described() {
    let page = include_str!("../../../../docs/load-report.md");
    let json = report().json();
    let latency = &json["latency_ns"]["total"];
    for object in [&json, latency, &json["seconds"][0], &json["sources"], &json["latency_ns"]] {
        for key in object.as_object().unwrap().keys() {
            assert!(page.contains(&format!("`{key}`")), "docs/load-report.md: nothing of {key}");
        }
    }
}

#[test]
fn the_histograms_in_the_json_are_whole() {
    let report = report();
    let json = report.json();
    let text = json["latency_ns"]["total"]["histogram_v2"].as_str().unwrap();
    let bytes = STANDARD.decode(text).unwrap();
    let longest = report.outcome.totals.total.min_mean_max()[2].as_nanos() as u64;
    let histogram = Deserializer::new().deserialize::<u64, _>(&mut &bytes[..]).unwrap();
    assert_eq!((histogram.len(), histogram.max()), (202, longest));
}

#[test]
fn the_csv_has_a_line_for_every_second_with_its_phase() {
    let csv = report().csv();
    let lines: Vec<&str> = csv.lines().collect();
    assert_eq!(lines.len(), 5);
    let columns = lines[0].split(',').count();
    assert!(lines.iter().all(|line| line.split(',').count() == columns), "{csv}");
    assert!(lines[2].starts_with("2,warm_up,99,2,100,100000,3,200,"), "{csv}");
    assert!(lines[3].starts_with("3,recorded,99,2,100,100000,3,300,"), "{csv}");
}

#[test]
fn connections_that_were_not_kept_are_told_with_what_they_take() {
    let mut kept = report();
    kept.setup.requests_per_connection = None;
    (kept.setup.addresses, kept.setup.rate, kept.setup.connections) = (1, None, 10);
    (kept.setup.steady_after, kept.outcome.warm_up) = (Duration::ZERO, Duration::ZERO);
    // 1000 connections a second, each of which rests for 61 s, and ten that are held.
    kept.outcome.totals.ended.connections = 2000;
    let table = kept.table();
    for part in [
        "closed loop, 10 connections; kept alive in vain: 2000 were opened; the server",
        "source addresses: 1, of 28232 ports each (this rate needs 3); a 4-tuple",
        "connections were not kept: 2000 were opened for 202 requests; that rate needs 3 source \
         addresses, of which there were 1",
        "not the steady state: recorded after 0.0 s, where TIME-WAIT takes 61 s to fill",
    ] {
        assert!(table.contains(part), "{part} in {table}");
    }
    assert!(!kept.is_steady());
    // As many as were to be kept, or one for every eleventh request.
    for (connections, answered) in [(10, 200), (18, 196)] {
        let ended = &mut kept.outcome.totals.ended;
        (ended.connections, ended.answered, ended.failed) = (connections, answered, 2);
        assert!(kept.table().contains("10 connections; kept alive; the server"));
        assert!(kept.is_steady() && !kept.table().contains("not kept"));
    }
}

#[test]
fn the_table_says_what_was_done_and_what_came_of_it() {
    let table = report().table();
    for part in [
        "GET http://h/ by the kernel's stack",
        "open loop, 100 requests/s; a new connection for each; the server closes first",
        "source addresses: 2, of 28232 ports each",
        "recorded for 2.0 s after a warm-up of 2.0 s",
        "198 answered",
        "99.0 /s",
        "200: 198, 503: 2",
        "timeout: 2",
        "25 % of a processor",
        "99.99 %",
        "first byte",
    ] {
        assert!(table.contains(part), "{part}: {table}");
    }
    assert!(!table.contains("Warning"), "{table}");
}

#[test]
fn a_closed_loop_is_told_how_many_addresses_its_rate_needs() {
    let mut report = report();
    (report.setup.rate, report.setup.connections) = (None, 1);
    report.setup.addresses = 116;
    report.setup.ports = 1000;
    // 100 connections/s · 61 s, and one in use, of 1000 ports each.
    assert!(report.table().contains("116, of 1000 ports each (this rate needs 7);"));
    report.setup.addresses = 7;
    assert!(report.table().contains("7, of 1000 ports each; a 4-tuple"));
    report.setup.addresses = 116;
    report.setup.rate = Some(100.0);
    assert!(!report.table().contains("needs"), "an open loop has what it needs");
}

#[test]
fn what_makes_the_numbers_doubtful_is_said() {
    let mut report = report();
    assert!(report.warnings().is_empty());
    report.setup.steady_after = S * 2 + Duration::from_nanos(1);
    report.cpu_share = 0.81;
    (report.outcome.notes.tuple_waits, report.outcome.notes.tuples_taken) = (5, 7);
    let warnings = report.warnings();
    for (warning, part) in warnings.iter().zip(["not the steady", "81 %", "926", "in use: 7,"]) {
        assert!(warning.contains(part), "{warning}");
    }
    assert_eq!((warnings.len(), report.is_steady()), (4, false));
    assert_eq!(report.table().matches("Warning: ").count(), 4);
    (report.cpu_share, report.threads) = (1.61, 2);
    assert!(report.warnings()[1].contains("80 % of a processor in each thread"));
    (report.cpu_share, report.threads) = (0.8, 1);
    assert_eq!(report.warnings().len(), 3);
    report.setup.rest = Duration::ZERO;
    assert!(report.warnings()[1].contains("did not rest"));
    report.setup.requests_per_connection = None;
    assert_eq!(report.warnings().len(), 3);
}

/// Reads XML to its end: the text of each element by its name. Panics where a tag is not closed.
fn elements(page: &str) -> Vec<(String, String)> {
    let (mut open, mut found) = (Vec::new(), Vec::new());
    for piece in page.split('<').skip(1) {
        let (tag, text) = piece.split_once('>').expect("each tag ends");
        assert!(!tag.contains('"') || tag.matches('"').count() % 2 == 0, "{tag}");
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop().as_deref(), Some(name), "{tag}");
        } else if !tag.starts_with('!') {
            let name = tag.split([' ', '/']).next().unwrap().to_owned();
            found.push((name.clone(), format!("{tag}>{text}")));
            if !tag.ends_with('/') {
                open.push(name);
            }
        }
    }
    assert!(open.is_empty(), "{open:?} not closed");
    found
}

#[test]
fn the_page_is_well_formed_and_complete_with_its_charts() {
    let mut report = report();
    report.setup.url = "http://h/?a=\"<b>\"&c".to_owned();
    let page = report.html();
    let elements = elements(&page);
    let of = |name: &str| -> Vec<&str> {
        let named = elements.iter().filter(|(element, _)| element == name);
        named.map(|(_, text)| text.as_str()).collect()
    };
    assert_eq!((of("svg").len(), of("b").len(), of("script").len()), (3, 0, 0));
    assert!(of("h1")[0].ends_with("GET http://h/?a=&quot;&lt;b&gt;&quot;&amp;c"), "{page}");
    for link in ["src=", "href=", "url(", "@import"] {
        assert!(!page.contains(link), "{link}");
    }
    let points: Vec<usize> = of("polyline")
        .iter()
        .map(|line| line.split_once("points=").unwrap().1.matches(',').count())
        .collect();
    // Four seconds of three lines, and the distributions of three latencies.
    assert_eq!(points, [4, 4, 4, 69, 69, 69]);
    assert_eq!(of("rect").len(), 2, "the warm-up is shaded over time");
}

#[test]
fn a_page_of_nothing_is_still_one() {
    let mut report = report();
    report.outcome.totals = crate::recorder::Totals::default();
    report.outcome.seconds.clear();
    let page = report.html();
    elements(&page);
    assert!(!page.contains("NaN") && !page.contains("inf"), "{page}");
}
