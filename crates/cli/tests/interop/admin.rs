//! The admin door, and those who read it: promtool, Prometheus, and tshark's count of a capture.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::browser::Page;
use crate::namespace;
use crate::server::{Cable, OURS, Server};
use crate::tools::{self, curl, output};

const DOOR: &str = "127.0.0.1:9100";
const REQUESTS: usize = 50;

/// A server on a device with a door, and requests that were answered.
fn served(directory: &Path, flags: &[&str]) -> Server {
    fs::write(directory.join("file"), vec![b'x'; 100_000]).unwrap();
    let server = Server::on(Cable::best(), directory, &[&["--admin", DOOR], flags].concat());
    for _ in 0..REQUESTS {
        output(&mut curl(&format!("http://{}/file", OURS[0])));
    }
    server
}

fn metrics() -> String {
    output(&mut curl(&format!("http://{DOOR}/metrics")))
}

/// The sum of a metric over all shards.
fn sum(metrics: &str, name: &str) -> u64 {
    let lines = metrics.lines().filter(|line| line.split('{').next() == Some(name));
    lines.map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap()).sum()
}

/// A process that ends with the test.
struct Ends(Child);

impl Drop for Ends {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn promtool_finds_no_fault_in_the_metrics() {
    let test = "admin::promtool_finds_no_fault_in_the_metrics";
    namespace::inside(test, &["promtool"], || {
        let directory = tools::directory();
        let server = served(directory.path(), &["--shards", "2"]);
        let path = directory.path().join("metrics");
        let told = metrics();
        fs::write(&path, &told).unwrap();
        let handshakes = sum(&told, "lightwait_handshake_seconds_count");
        assert_eq!(handshakes, sum(&told, "lightwait_established_total"));
        assert!(handshakes >= REQUESTS as u64, "{told}");
        let mut promtool = tools::command("promtool");
        promtool.args(["check", "metrics"]).stdin(fs::File::open(&path).unwrap());
        output(&mut promtool);
        server.stop();
    });
}

#[test]
fn alerts_fire_when_they_should_and_every_panel_is_a_query() {
    if !tools::are_there(&["promtool"]) {
        return;
    }
    let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy");
    let promtool = |check: &str, path: &Path| {
        output(tools::command("promtool").args([check, "rules"]).arg(path))
    };
    let rules = deploy.join("prometheus/lightwait.rules.yml");
    promtool("check", &rules);
    let tests = deploy.join("prometheus/lightwait.rules.test.yml");
    promtool("test", &tests);
    // Each alert has a test.
    let (rules, tests) = (fs::read_to_string(rules).unwrap(), fs::read_to_string(tests).unwrap());
    let alerts: Vec<&str> =
        rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    for alert in &alerts {
        assert!(tests.contains(&format!("alertname: {alert}\n")), "{alert} has no test");
    }
    assert!(alerts.len() > 10);
    // What Grafana puts into queries, as it might.
    let dashboard = fs::read_to_string(deploy.join("grafana/lightwait.json")).unwrap();
    let dashboard = dashboard.replace("$__rate_interval", "5m").replace("$instance", ".*");
    let dashboard: Value = serde_json::from_str(&dashboard).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = panels.iter().filter_map(|panel| panel["targets"].as_array()).flatten();
    let rules: Vec<Value> = targets
        .enumerate()
        .map(|(number, it)| json!({ "record": format!("panel:{number}"), "expr": it["expr"] }))
        .collect();
    assert!(rules.len() > 50);
    let directory = tools::directory();
    let path = directory.path().join("panels.yml");
    // JSON is YAML.
    let group = json!({ "groups": [{ "name": "panels", "rules": rules }] });
    fs::write(&path, group.to_string()).unwrap();
    promtool("check", &path);
}

#[test]
fn prometheus_scrapes_the_door() {
    let test = "admin::prometheus_scrapes_the_door";
    namespace::inside(test, &["prometheus"], || {
        const API: &str = "127.0.0.1:9090";
        let directory = tools::directory();
        let server = served(directory.path(), &["--shards", "2"]);
        let config = directory.path().join("prometheus.yml");
        let scrape = format!(
            "scrape_configs:\n- job_name: lightwait\n  scrape_interval: 1s\n  static_configs:\n  - \
             targets: ['{DOOR}']\n"
        );
        fs::write(&config, scrape).unwrap();
        let mut prometheus = tools::command("prometheus");
        prometheus
            .arg(format!("--config.file={}", config.display()))
            .arg(format!("--storage.tsdb.path={}", directory.path().join("data").display()))
            .arg(format!("--web.listen-address={API}"))
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let _prometheus = Ends(prometheus.spawn().unwrap());
        let query = format!("http://{API}/api/v1/query?query=sum(lightwait_http_responses_total)");
        let end = Instant::now() + Duration::from_secs(60);
        let found = loop {
            let answer = curl(&query).output().unwrap();
            let answer: Value = serde_json::from_slice(&answer.stdout).unwrap_or_default();
            let value = &answer["data"]["result"][0]["value"][1];
            if let Some(value) = value.as_str() {
                break value.to_owned();
            }
            assert!(Instant::now() < end, "Prometheus has nothing: {answer}");
            thread::sleep(Duration::from_millis(200));
        };
        assert_eq!(
            found.parse::<u64>().unwrap(),
            sum(&metrics(), "lightwait_http_responses_total")
        );
        server.stop();
    });
}

#[test]
fn counters_are_those_of_a_capture() {
    let test = "admin::counters_are_those_of_a_capture";
    namespace::inside(test, &["tshark"], || {
        let directory = tools::directory();
        let path = directory.path().join("capture.pcapng");
        let server = served(directory.path(), &["--pcap", path.to_str().unwrap()]);
        // The last ACKs have come.
        thread::sleep(Duration::from_millis(500));
        let told = server.stop_and_tell();
        let counts = told.lines().find(|line| line.contains(r#""event":"counts""#)).unwrap();
        let counts: Value = serde_json::from_str(counts).unwrap();
        let captured = |filter: &str| {
            let mut tshark = tools::command("tshark");
            tshark.arg("-n").arg("-r").arg(&path).args(["-Y", filter, "-T", "fields"]);
            output(tshark.args(["-e", "frame.number"])).lines().count() as u64
        };
        let counter = |name: &str| counts["counters"][name].as_u64().unwrap();
        // The kernel may say something to the link between the counters and the end.
        let (all, counted) = (captured("frame"), counter("frames_in") + counter("frames_out"));
        assert!((counted..counted + 3).contains(&all), "{counted} of {all}");
        let segments = |side: &str| {
            let [ipv4, ipv6] = OURS;
            format!("tcp && (ip.{side} == {ipv4} || ipv6.{side} == {ipv6})")
        };
        assert_eq!(counter("segments_out"), captured(&segments("src")));
        assert_eq!(counter("segments_in"), captured(&segments("dst")));
    });
}

/// The mean of a histogram of the server, between two scrapes, in ms, and how many there were.
fn mean_ms(before: &str, after: &str, name: &str) -> (f64, u64) {
    let counted = |text: &str| sum(text, &format!("lightwait_{name}_count"));
    let seconds = |text: &str| {
        let name = format!("lightwait_{name}_sum");
        let lines = text.lines().filter(|line| line.split('{').next() == Some(&*name));
        lines.map(|line| line.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap()).sum::<f64>()
    };
    let count = counted(after) - counted(before);
    ((seconds(after) - seconds(before)) * 1e3 / count as f64, count)
}

/// Both measure round trips of 200 ms, beside which a busy machine is quick. The server measures
/// from its answers to their acknowledgements, the load from its SYNs and requests to the answers.
#[test]
fn histograms_are_those_of_a_load() {
    let test = "admin::histograms_are_those_of_a_load";
    namespace::inside(test, &[], || {
        let directory = tools::directory();
        let server = served(directory.path(), &["--shards", "2", "--fault", "delay=100ms"]);
        fs::write(directory.path().join("short"), [b'x'; 500]).unwrap();
        let before = metrics();
        let mut load = tools::command(env!("CARGO_BIN_EXE_lightwait"));
        load.args(["load", &format!("http://{}/short", OURS[0]), "--stack", "kernel", "--json"]);
        load.args(["--rate", "50", "--warm-up", "0", "--duration", "4s"]);
        let told: Value = serde_json::from_str(&output(&mut load)).unwrap();
        assert_eq!(told["requests_answered"], 200, "{told}");
        // The last acknowledgements have come.
        thread::sleep(Duration::from_secs(1));
        let after = metrics();
        for (ours, theirs) in [("handshake_seconds", "connect"), ("response_seconds", "first_byte")]
        {
            let (mean, count) = mean_ms(&before, &after, ours);
            let of_load = told["latency_ns"][theirs]["mean"].as_f64().unwrap() / 1e6;
            // A load tries the server once before it begins.
            assert_eq!(count, 1 + 200, "{ours}");
            assert!(
                (mean / of_load - 1.0).abs() < 0.1,
                "{ours}: {mean} ms, {theirs}: {of_load} ms"
            );
            assert!(mean >= 200.0, "{ours}: {mean} ms");
        }
        server.stop();
    });
}

#[test]
fn a_browser_shows_the_live_page_and_a_connection() {
    let test = "admin::a_browser_shows_the_live_page_and_a_connection";
    namespace::inside(test, &["chromium"], || {
        let directory = tools::directory();
        let server = served(directory.path(), &["--shards", "2"]);
        // Clients that stay; one of them takes nothing of what it asked for.
        let mut streams: Vec<TcpStream> =
            (0..12).map(|_| TcpStream::connect((OURS[0], 80)).unwrap()).collect();
        // More than the kernel takes in its stead.
        tools::write_file(&directory.path().join("large"), 32);
        for (number, stream) in streams.iter_mut().enumerate() {
            let name = if number == 0 { "large" } else { "file" };
            let request = format!("GET /{name} HTTP/1.1\r\nHost: h\r\n\r\n");
            stream.write_all(request.as_bytes()).unwrap();
        }
        for stream in &mut streams[1..] {
            let mut answer = vec![0; 100_000];
            stream.read_exact(&mut answer).unwrap();
        }
        let mut page = Page::new(1280, 1500);
        page.load(&format!("http://{DOOR}/"));
        // Rates, and what was found of sockets.
        page.wait_for("/, 2 shards, over 1\\.\\d s/.test(document.body?.innerText)");
        page.wait_for("document.querySelector('#stalled tr[tabindex]') !== null");
        let text = page.evaluate("document.body.innerText");
        let text = text.as_str().unwrap();
        for part in
            ["ESTABLISHED\n12", "LISTEN", "0-6 s", "to send", "Policy priority", "loss probes"]
        {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert_eq!(page.evaluate("document.getElementById('trouble').textContent"), "");
        let stalled = page.evaluate("document.querySelectorAll('#stalled tr[tabindex]').length");
        assert_eq!(stalled, 1, "{text}");
        assert_eq!(page.evaluate("document.querySelectorAll('#slowest tr[tabindex]').length"), 12);
        let light = page.picture();
        page.prefer("dark");
        let dark = page.picture();
        assert!(light.len() > 50_000 && dark != light, "{}", light.len());
        if let Some(kept) = std::env::var_os("LIGHTWAIT_PICTURES") {
            fs::write(Path::new(&kept).join("admin-light.png"), &light).unwrap();
            fs::write(Path::new(&kept).join("admin-dark.png"), &dark).unwrap();
        }
        // A click shows what the stack knows of that connection.
        let peer = streams[0].local_addr().unwrap().to_string();
        page.evaluate("document.querySelector('#stalled tr[tabindex]').click()");
        page.wait_for("document.getElementById('details').open");
        let shown = page.evaluate("document.getElementById('details').innerText");
        let shown = shown.as_str().unwrap();
        for part in [&*format!("{}:80 to {peer}", OURS[0]), "cwnd_bytes", "srtt_us", "retransmits"]
        {
            assert!(shown.contains(part), "{part}: {shown}");
        }
        if let Some(kept) = std::env::var_os("LIGHTWAIT_PICTURES") {
            fs::write(Path::new(&kept).join("admin-details.png"), page.picture()).unwrap();
        }
        // What the policy of the page forbids does not run.
        page.evaluate(
            "document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=\"window.ran=1\">')",
        );
        thread::sleep(Duration::from_millis(200));
        assert_eq!(page.evaluate("window.ran === undefined"), true);
        drop(streams);
        server.stop();
    });
}
