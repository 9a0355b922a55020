//! The event log, beside tshark's count of a capture of the same connection.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::browser::Page;
use crate::namespace;
use crate::server::{Cable, OURS, Server};
use crate::tools::{self, curl, output};

const DOOR: &str = "127.0.0.1:9100";
/// What the link loses: of both directions.
const LOSSY: &str = "loss=2%,delay=5ms,seed=3";
const BYTES: usize = 1_000_000;
const PORT: u16 = 40_112;

/// The log of one transfer over a link that loses, as the door gives it; and the server's last
/// counters.
fn logged(directory: &Path, capture: &Path) -> (Vec<u8>, Value) {
    fs::write(directory.join("file"), vec![b'x'; BYTES]).unwrap();
    let flags = ["--admin", DOOR, "--fault", LOSSY, "--pcap", capture.to_str().unwrap()];
    let server = Server::on(Cable::best(), directory, &flags);
    let log = thread::scope(|scope| {
        let log = scope.spawn(|| {
            let query = "seconds=12&events=100000&connections=1";
            let url = format!("http://{DOOR}/events?filter=dport+=+:{PORT}&{query}");
            let answer = curl(&url).output().unwrap();
            assert!(answer.status.success());
            answer.stdout
        });
        thread::sleep(Duration::from_millis(300));
        let mut fetch = curl(&format!("http://{}/file", OURS[0]));
        output(fetch.args(["--local-port", &PORT.to_string(), "-o", "/dev/null"]));
        log.join().unwrap()
    });
    let told = server.stop_and_tell();
    let counts = told.lines().find(|line| line.contains(r#""event":"counts""#)).unwrap();
    (log, serde_json::from_str(counts).unwrap())
}

/// The records of a sequence of JSON texts.
fn records(log: &[u8]) -> Vec<Value> {
    let records = log.split(|byte| *byte == 0x1e).skip(1);
    records.map(|record| serde_json::from_slice(record).unwrap()).collect()
}

fn tshark(capture: &Path, filter: &str, field: &str) -> Vec<u64> {
    let mut tshark = tools::command("tshark");
    tshark.arg("-n").arg("-r").arg(capture).args(["-Y", filter, "-T", "fields", "-e", field]);
    output(&mut tshark).lines().map(|line| line.parse().unwrap()).collect()
}

#[test]
fn a_log_has_what_tshark_counts_and_its_losses_show() {
    let test = "events::a_log_has_what_tshark_counts_and_its_losses_show";
    namespace::inside(test, &["tshark", "chromium"], || {
        let directory = tools::directory();
        let capture = directory.path().join("capture.pcapng");
        let (log, counts) = logged(directory.path(), &capture);
        let records = records(&log);
        assert_eq!(records[0]["serialization_format"], "application/qlog+json-seq");
        let named = |name: &str| {
            let name = format!("tcp:{name}");
            records.iter().filter(move |it| it["name"] == *name).collect::<Vec<_>>()
        };
        assert_eq!(named("events_dropped").len(), 0);
        for (name, ours) in [("segment_sent", "srcport"), ("segment_received", "dstport")] {
            let filter = format!("tcp.port == {PORT} && tcp.{ours} == 80");
            let lens = tshark(&capture, &filter, "tcp.len");
            let events = named(name);
            assert_eq!(events.len(), lens.len(), "{name}");
            let logged: u64 = events.iter().map(|it| it["data"]["len"].as_u64().unwrap()).sum();
            assert_eq!(logged, lens.iter().sum::<u64>(), "bytes of {name}");
        }
        // The counters of the whole host, which sent nothing else again.
        let counter = |name: &str| counts["counters"][name].as_u64().unwrap();
        let sent = named("segment_sent");
        let again = sent.iter().filter(|it| it["data"]["retransmission"].is_string()).count();
        assert_eq!(again as u64, counter("retransmits"));
        assert!(again > 5, "{again}");
        let marked = format!(
            "tcp.srcport == 80 && tcp.port == {PORT} && (tcp.analysis.retransmission || \
             tcp.analysis.fast_retransmission || tcp.analysis.spurious_retransmission || \
             tcp.analysis.out_of_order)"
        );
        assert_eq!(tshark(&capture, &marked, "tcp.len").len(), again);
        let begun = named("recovery_state_updated");
        let begun = begun.iter().filter(|it| it["data"]["new"] == "fast_recovery").count();
        assert_eq!(begun as u64, counter("fast_recoveries"));
        assert!(named("loss_detected").iter().any(|it| {
            let detector = it["data"]["detector"].as_str().unwrap();
            detector.starts_with("rack") || detector == "sack_count"
        }));
        draw(directory.path(), &log, &capture, again);
    });
}

/// The program draws the log and the capture, and a browser shows both, in light and in dark.
fn draw(directory: &Path, log: &[u8], capture: &Path, again: usize) {
    let file = directory.join("log.sqlog");
    fs::write(&file, log).unwrap();
    let trace = |file: &Path, flags: &[&str]| {
        let mut trace = tools::command(env!("CARGO_BIN_EXE_lightwait"));
        output(trace.arg("trace").arg(file).args(flags))
    };
    let listed = trace(&file, &["--list"]);
    assert!(listed.contains(&format!("{again} sent again")), "{listed}");
    let text = trace(&file, &["--text"]);
    assert_eq!(text.matches(" again: ").count(), again);
    let port = PORT.to_string();
    for (name, file) in [("log", file.as_path()), ("capture", capture)] {
        let svg = directory.join(format!("{name}.svg"));
        trace(file, &["--connection", &port, "--output", svg.to_str().unwrap()]);
        let mut page = Page::new(1000, 620);
        page.load(&format!("file://{}", svg.display()));
        page.wait_for("document.querySelector('path.again') !== null");
        let light = page.picture();
        page.prefer("dark");
        let dark = page.picture();
        assert!(light.len() > 10_000 && light != dark, "{}", light.len());
        if let Some(kept) = std::env::var_os("LIGHTWAIT_PICTURES") {
            fs::write(Path::new(&kept).join(format!("{name}-light.png")), &light).unwrap();
            fs::write(Path::new(&kept).join(format!("{name}-dark.png")), &dark).unwrap();
            fs::copy(&svg, Path::new(&kept).join(format!("{name}.svg"))).unwrap();
        }
    }
}
