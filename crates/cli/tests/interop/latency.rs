//! The latencies that `lightwait load` reports, against those that tshark sees on the wire: from
//! the first SYN of a connection to the last byte of its answer.

use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::namespace;
use crate::server::{Cable, Server, URLS};
use crate::tools::{self, output};
use crate::wan::{Wan, alone, lay_cables, serve};

const COMMANDS: &[&str] = &["tshark", "dumpcap", "nice"];
/// Loads that are tried. In one of them the told latency must fit the wire.
const TRIES: usize = 10;

/// What dumpcap, which tshark starts, sees of an interface.
struct Watcher(Child);

impl Watcher {
    fn start(interface: &str, file: &Path) -> Watcher {
        let mut dumpcap = tools::command("dumpcap");
        dumpcap.args(["-q", "-i", interface, "-f", "tcp port 80", "-w"]).arg(file);
        let mut process = dumpcap.stderr(Stdio::piped()).spawn().unwrap();
        let mut stderr = BufReader::new(process.stderr.take().unwrap());
        let mut all = String::new();
        while !all.contains("File:") {
            assert!(stderr.read_line(&mut all).unwrap() > 0, "it ended: {all}");
        }
        // It goes on to write there.
        std::thread::spawn(move || std::io::copy(&mut stderr, &mut std::io::sink()));
        Watcher(process)
    }

    fn stop(mut self) {
        // What came last lies in a block of the kernel's ring, which is handed over when it is full
        // or a second old.
        std::thread::sleep(Duration::from_millis(1500));
        let id = self.0.id().to_string();
        assert!(Command::new("kill").args(["-s", "INT", &id]).status().unwrap().success());
        assert!(self.0.wait().unwrap().success());
    }
}

/// From the first SYN of each connection to the last byte from the server, in ms, in order.
fn seen_by_tshark(capture: &Path) -> Vec<f64> {
    let mut tshark = tools::command("tshark");
    tshark.arg("-n").arg("-r").arg(capture).args(["-T", "fields"]);
    for field in ["tcp.stream", "frame.time_epoch", "tcp.len", "tcp.srcport"] {
        tshark.args(["-e", field]);
    }
    let mut connections: HashMap<String, (f64, f64)> = HashMap::new();
    for line in output(&mut tshark).lines() {
        let [stream, time, len, port] = line.split('\t').collect::<Vec<_>>()[..] else {
            panic!("{line}")
        };
        let time: f64 = time.parse().unwrap();
        let times = connections.entry(stream.to_owned()).or_insert((time, time));
        if port == "80" && len != "0" {
            times.1 = time;
        }
    }
    // The load looks first whether anybody is there, and asks nothing.
    let took = connections.into_values().map(|(begin, end)| (end - begin) * 1000.0);
    let mut took: Vec<f64> = took.filter(|ms| *ms > 0.0).collect();
    took.sort_by(f64::total_cmp);
    took
}

/// The median and the 99th percentile of a load's latencies, in ms.
#[derive(Debug)]
struct Times {
    told: [f64; 2],
    seen: [f64; 2],
}

/// A load on `url`, each request on a connection of its own: the latencies that it tells, and those
/// seen on `interface`.
fn load(url: &str, interface: &str) -> Times {
    let directory = tools::directory();
    let capture = directory.path().join("load.pcapng");
    let watcher = Watcher::start(interface, &capture);
    // Other tests take the processor, too.
    let mut load = tools::command("nice");
    load.args(["-n", "-20", env!("CARGO_BIN_EXE_lightwait"), "load", url, "--json"]);
    let text = output(load.args(["--rate", "200", "--duration", "2s", "--warm-up", "0"]));
    watcher.stop();
    let report: Value = serde_json::from_str(&text).unwrap();
    let seen = seen_by_tshark(&capture);
    assert_eq!((seen.len(), &report["requests_answered"]), (400, &Value::from(400)));
    let total = &report["latency_ns"]["total"];
    let told = ["p50", "p99"].map(|part| total[part].as_f64().unwrap() / 1e6);
    Times { told, seen: [seen[199], seen[395]] }
}

/// Fails if no load out of some tells times that are as long as those on the wire, or longer by at
/// most this part of them and these ms. A machine with other work delays a load and not the wire.
fn is_told_truly(url: &str, interface: &str, part: f64, ms: [f64; 2]) {
    let mut all = Vec::new();
    for _ in 0..TRIES {
        let times = load(url, interface);
        // A load tells three digits.
        let is_true =
            |((told, seen), ms)| (0.999 * seen..=(1.0 + part) * seen + ms).contains(&told);
        if times.told.into_iter().zip(times.seen).zip(ms).all(is_true) {
            return;
        }
        all.push(times);
    }
    panic!("{all:#?}");
}

fn site() -> tempfile::TempDir {
    let directory = tools::directory();
    std::fs::write(directory.path().join("small"), [b'x'; 500]).unwrap();
    directory
}

/// Over a router with that delay each way. A request takes two round trips.
fn over_a_router(delay: &str, part: f64, ms: [f64; 2]) {
    lay_cables();
    let wan = Wan::start(["lw1", "lw2"], &["--delay", delay]);
    let directory = site();
    let server = serve(directory.path());
    is_told_truly(&format!("{}/small", URLS[0]), "lw0", part, ms);
    server.stop();
    wan.stop();
}

#[test]
fn over_long_round_trips_it_is_what_tshark_sees_to_one_percent() {
    let test = "latency::over_long_round_trips_it_is_what_tshark_sees_to_one_percent";
    let _alone = alone();
    namespace::inside(test, COMMANDS, || over_a_router("30ms", 0.01, [0.0; 2]));
}

#[test]
fn over_short_round_trips_it_is_later_by_under_a_millisecond() {
    let test = "latency::over_short_round_trips_it_is_later_by_under_a_millisecond";
    let _alone = alone();
    namespace::inside(test, COMMANDS, || over_a_router("1ms", 0.01, [0.2, 0.8]));
}

#[test]
fn without_a_router_it_is_later_by_a_part_of_a_millisecond() {
    let test = "latency::without_a_router_it_is_later_by_a_part_of_a_millisecond";
    let _alone = alone();
    namespace::inside(test, COMMANDS, || {
        let directory = site();
        let server = Server::on(Cable::PacketSocket, directory.path(), &[]);
        is_told_truly(&format!("{}/small", URLS[0]), "lw1", 0.01, [0.2, 0.8]);
        server.stop();
    });
}
