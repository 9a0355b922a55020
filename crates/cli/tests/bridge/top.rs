//! `lightwait top`, through the doors of running servers.

use std::process::Output;

use super::ss::{kept, served};
use super::*;

fn top(arguments: &[&str]) -> Output {
    let program = env!("CARGO_BIN_EXE_lightwait");
    Command::new(program).arg("top").args(arguments).output().unwrap()
}

/// Makes requests all the while that `work` takes.
fn under_load<T>(server: &Server, work: impl FnOnce() -> T) -> T {
    let is_over = std::sync::atomic::AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                assert_eq!(server.get("/hello.txt").0, 200);
                thread::sleep(Duration::from_millis(2));
            }
        });
        let done = work();
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
        done
    })
}

#[test]
fn one_screen_shows_rates_and_connections() {
    let directory = site();
    let (server, door) = served(directory.path(), &["--shards", "2"]);
    let _streams = kept(&server, 12);
    let output = under_load(&server, || {
        top(&["--once", "--admin", &door, "-d", "500ms", "--shards", "state", "established"])
    });
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].contains(&format!("{door}  shards 2  over 0.5s")), "{text}");
    assert!(lines[0].ends_with("filter: state established"), "{text}");
    let http: Vec<&str> = lines[1].split_whitespace().collect();
    let rate = http[1].trim_end_matches("/s");
    assert!(http[0] == "http" && rate.parse::<f64>().unwrap() > 10.0, "{text}");
    let rows = lines.iter().filter(|line| line.starts_with("ESTABLISHED"));
    assert!(rows.count() >= 12, "{text}");
    let shards = lines.iter().position(|line| line.starts_with("SHARD")).unwrap();
    assert!(lines[shards + 1].starts_with('0') && lines[shards + 2].starts_with('1'), "{text}");
}

#[test]
fn json_has_rates_that_were_computed_once() {
    let directory = site();
    let (server, door) = served(directory.path(), &[]);
    let _streams = kept(&server, 3);
    let doors = ["--admin", &door, "--admin", "unix:/no/such"];
    let output =
        under_load(&server, || top(&[&doors[..], &["--once", "--json", "-d", "500ms"]].concat()));
    assert_eq!(output.status.code(), Some(1), "a door is missing");
    let object: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let told = &object["doors"][0];
    let rates = &told["rates"];
    let rate = rates["per_second"]["http_responses"].as_f64().unwrap();
    assert_eq!(rates["shards"][0]["per_second"]["http_responses"].as_f64(), Some(rate));
    assert!(rate > 10.0 && rates["seconds"].as_f64().unwrap() >= 0.5, "{rates}");
    let meaning = rates["meanings"]["http_responses"].as_str().unwrap();
    assert_eq!(meaning, "Responses that are over.");
    assert!(told["connections"].as_array().unwrap().len() >= 3);
    assert_eq!(told["connections"][0]["sent_per_second"], 0.0, "it is idle");
    let error = object["doors"][1]["error"].as_str().unwrap();
    assert!(error.contains("no server has its admin door there"), "{error}");
}

#[test]
fn mistakes_are_told_in_a_line() {
    for (arguments, status, part) in [
        (&["--admin", "127.0.0.1:9"][..], 2, "--once prints one screen, --json lines"),
        (&["--once", "--admin", "127.0.0.1:9"], 1, "no server has its admin door there"),
        (&["--once", "-d", "10ms"], 2, "give 100ms to 1m"),
        (&["--once", "-d", "61s"], 2, "give 100ms to 1m"),
        (&["--once", "--sort", "name"], 2, "rate, rtt, retransmits"),
        (&["--once", "--limit", "0"], 2, "0"),
        (&["--once", "port", "80"], 2, "\"port\": give a test such as dst"),
    ] {
        let output = top(arguments);
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(
            output.status.code() == Some(status) && text.contains(part),
            "{arguments:?}: {text}"
        );
    }
}
