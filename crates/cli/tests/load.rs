//! `lightwait load` on the kernel's stack, or on ours joined to it, against servers on the
//! loopback.

use std::collections::HashSet;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

/// A server on a port of the kernel's choice, in threads of this process.
struct Server {
    url: String,
    /// Whoever has connected.
    peers: Arc<Mutex<Vec<SocketAddr>>>,
}

impl Server {
    /// Answers each request with that, after a pause, and closes if it was asked to.
    fn start(answer: &'static str, pause: Duration) -> Server {
        Server::of(move |stream| serve(stream, answer, pause))
    }

    /// Serves each connection that way.
    fn of(serve: impl Fn(TcpStream) + Clone + Send + 'static) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let peers = Arc::new(Mutex::new(Vec::new()));
        let seen = peers.clone();
        // It ends with the test's process.
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                seen.lock().unwrap().push(stream.peer_addr().unwrap());
                let serve = serve.clone();
                thread::spawn(move || serve(stream));
            }
        });
        Server { url, peers }
    }
}

fn serve(mut stream: TcpStream, answer: &str, pause: Duration) {
    let mut request = vec![0; 16 << 10];
    while let Ok(len @ 1..) = stream.read(&mut request) {
        thread::sleep(pause);
        let closes = String::from_utf8_lossy(&request[..len]).contains("Connection: close");
        if stream.write_all(answer.as_bytes()).is_err() || closes {
            return;
        }
    }
}

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
const UNAVAILABLE: &str = "HTTP/1.1 503 Unavailable\r\nContent-Length: 0\r\n\r\n";

fn start(arguments: &[&str]) -> Child {
    Command::new(env!("CARGO_BIN_EXE_lightwait"))
        .arg("load")
        .args(arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

fn load(arguments: &[&str]) -> Output {
    start(arguments).wait_with_output().unwrap()
}

/// The report of a load that must have ended well.
fn report(arguments: &[&str]) -> Value {
    let output = load(&[arguments, &["--json"]].concat());
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// How a load that must have failed did so.
fn failure(arguments: &[&str]) -> (i32, String) {
    let output = load(arguments);
    (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn an_open_loop_keeps_its_rate_and_takes_the_addresses_for_it() {
    let server = Server::start(OK, Duration::ZERO);
    let ports = "20000-20024";
    let flags = ["--rate", "100", "--warm-up", "0", "-d", "2s", "--ports", ports];
    let report = report(&[&[&*server.url], &flags[..]].concat());
    assert_eq!(report["requests_answered"], 200, "{report}");
    assert_eq!(report["requests_failed"], 0);
    assert_eq!(report["steady_state"], false);
    // ceil(100/s · (65 s + 11 s) / 25 ports)
    assert_eq!(report["sources"]["addresses"], 304);
    assert_eq!(report["closed_by_server"], 200);
    let peers = server.peers.lock().unwrap();
    // One more for the first look.
    assert_eq!(peers.len(), 201);
    assert_eq!(peers.iter().collect::<HashSet<_>>().len(), 201, "each from an end of its own");
    let addresses: HashSet<_> = peers.iter().map(SocketAddr::ip).collect();
    assert_eq!(addresses.len(), 201, "in round robin");
    assert!(peers.iter().all(|peer| (20_000..=20_024).contains(&peer.port())));
}

#[test]
fn a_slow_server_is_not_charged_for_a_lack_of_4_tuples() {
    let server = Server::start(OK, Duration::from_millis(300));
    // Without their lifetime, 40 connections/s that rest for 6 s take all of 240 ports.
    let flags = ["--rate", "40", "--time-wait", "1s", "-d", "3s", "--ports", "21000-21239"];
    let room = report(&[&[&*server.url], &flags[..]].concat());
    assert_eq!((&room["sources"]["addresses"], &room["tuple_waits"]), (&3.into(), &0.into()));
    let p50 = room["latency_ns"]["total"]["p50"].as_u64().unwrap();
    assert!((300_000_000..350_000_000).contains(&p50), "{room}");
}

#[test]
fn a_closed_loop_has_so_many_connections_and_says_who_closed() {
    let server = Server::start(OK, Duration::from_millis(5));
    let flags = ["-c", "4", "--warm-up", "0", "-d", "2s", "--close", "client"];
    let short = report(&[&[&*server.url], &flags[..]].concat());
    let answered = short["requests_answered"].as_u64().unwrap();
    assert!((400..=1600).contains(&answered), "{short}");
    assert!(short["closed_by_client"].as_u64().unwrap() >= answered);
    assert_eq!(short["closed_by_server"], 0);
    let median = |what: &str| short["latency_ns"][what]["p50"].as_u64().unwrap();
    assert!(median("start_delay") < median("connect"), "nothing waits to begin: {short}");
    let kept = report(&[&server.url, "-c", "4", "--keep-alive", "-d", "1s"]);
    assert_eq!(kept["steady_state"], true);
    assert_eq!(kept["connections_opened"], 4, "{kept}");
}

#[test]
fn kept_connections_take_every_port_but_that_of_the_first_look() {
    let server = Server::start(OK, Duration::from_millis(5));
    let flags = ["-c", "4", "--keep-alive", "-d", "1s", "--ports", "20100-20103"];
    let report = report(&[&[&*server.url], &flags[..]].concat());
    assert_eq!(report["sources"]["addresses"], 2, "{report}");
    assert_eq!((&report["connections_opened"], &report["tuple_waits"]), (&4.into(), &0.into()));
    assert_eq!(report["requests_failed"], 0, "{report}");
}

#[test]
fn a_slow_server_shows_in_the_latencies_and_the_thresholds() {
    let server = Server::start(OK, Duration::from_millis(50));
    let flags = ["--rate", "40", "--warm-up", "0", "-d", "1s"];
    let all = [&[&*server.url], &flags[..]].concat();
    let report = report(&[&all[..], &["--max-p99", "5s", "--max-error-rate", "0"]].concat());
    let total = &report["latency_ns"]["total"];
    assert!(total["p50"].as_u64().unwrap() >= 50_000_000, "{report}");
    assert!(report["latency_ns"]["first_byte"]["p50"].as_u64() <= total["p50"].as_u64());
    let (status, text) = failure(&[&all[..], &["--max-p99", "40ms"]].concat());
    assert!(status == 1 && text.contains("99th percentile"), "{text}");
    let failing = Server::start(UNAVAILABLE, Duration::ZERO);
    let all = [&[&*failing.url], &flags[..]].concat();
    let (status, text) = failure(&[&all[..], &["--max-error-rate", "99%"]].concat());
    assert!(status == 1 && text.contains("100.000 % of the requests failed"), "{text}");
    // A rate that allows every request to fail does not make a success of it.
    let (status, text) = failure(&[&all[..], &["--max-error-rate", "1"]].concat());
    assert!(status == 1 && text.contains("most were answered by 503"), "{text}");
    assert!(!text.contains("% of the requests failed"), "{text}");
}

#[test]
fn missing_answers_are_longer_than_any_threshold() {
    let begin = Instant::now();
    let server = Server::of(move |stream| {
        if begin.elapsed() < Duration::from_millis(700) {
            serve(stream, OK, Duration::ZERO);
        }
    });
    let flags = ["--rate", "50", "--warm-up", "0", "-d", "2s", "--max-p99", "10s"];
    let (status, text) = failure(&[&[&*server.url], &flags[..]].concat());
    assert!(status == 1 && text.contains("is more than 10s: of 100 requests"), "{text}");
}

#[test]
fn a_load_without_any_answer_has_failed() {
    let nothing = Server::of(drop);
    for load in [["--rate", "20"], ["-c", "2"]] {
        let flags = ["--warm-up", "0", "-d", "1s"];
        let (status, text) = failure(&[&[&*nothing.url], &load[..], &flags].concat());
        assert!(status == 1 && text.contains("no request was answered"), "{text}");
    }
    let failing = Server::start(UNAVAILABLE, Duration::ZERO);
    let (status, text) = failure(&[&failing.url, "-c", "1", "--warm-up", "0", "-d", "1s"]);
    assert!(status == 1 && text.contains("no request succeeded"), "{text}");
    // An idle connection makes no request here.
    report(&[&failing.url, "--idle", "1", "--idle-silent", "-d", "1s"]);
}

#[test]
fn a_log_is_replayed_at_its_times_and_bad_lines_are_reported() {
    let server = Server::start(OK, Duration::ZERO);
    let line = |second, request: &str| {
        format!("::1 - - [01/Jan/2026:00:00:0{second} +0000] \"{request}\" 200 5\n")
    };
    let log =
        line(0, "GET /a HTTP/1.1").repeat(10) + "?\n" + &line(5, "GET /b HTTP/1.1").repeat(20);
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&file, log).unwrap();
    let path = file.path().to_str().unwrap();
    let flags = ["--trace", path, "--trace-speed", "2", "--warm-up", "0", "--json"];
    let output = load(&[&[&*server.url], &flags[..]].concat());
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(told.contains("lines that are no requests: 1; line 11:"), "{told}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&report["requests_answered"], &report["recorded_s"]), (&30.into(), &3.0.into()));
    let answered = |second: usize| report["seconds"][second]["answered"].as_u64().unwrap();
    assert_eq!([0, 1, 2].map(answered), [10, 0, 20], "{report}");
    assert!(report["mix"].as_str().unwrap().contains("2 times as fast"), "{report}");
}

#[test]
fn an_interrupt_ends_a_load_with_what_it_has() {
    let server = Server::start(OK, Duration::ZERO);
    let load = start(&[&server.url, "--rate", "50", "--warm-up", "0", "-d", "60s", "--json"]);
    while server.peers.lock().unwrap().len() < 60 {
        thread::sleep(Duration::from_millis(10));
    }
    interrupt(&load);
    let output = load.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let answered = report["requests_answered"].as_u64().unwrap();
    let recorded = report["recorded_s"].as_f64().unwrap();
    assert!((59..3000).contains(&answered) && recorded < 60.0, "{report}");
    assert_eq!(report["requests_failed"], 0);
}

#[test]
fn a_load_that_only_failed_before_it_is_stopped_has_failed() {
    let flags = ["-c", "2", "--warm-up", "60s", "--timeout", "60s"];
    // Errors alone, answers of 503 alone, no answer yet, and answers.
    for (server, code) in [
        (Server::of(drop), 1),
        (Server::start(UNAVAILABLE, Duration::ZERO), 1),
        (Server::start(OK, Duration::from_secs(60)), 0),
        (Server::start(OK, Duration::ZERO), 0),
    ] {
        let load = start(&[&[&*server.url], &flags[..]].concat());
        // One more for the first look.
        while server.peers.lock().unwrap().len() < 3 {
            thread::sleep(Duration::from_millis(10));
        }
        thread::sleep(Duration::from_millis(300));
        interrupt(&load);
        let output = load.wait_with_output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{text}");
        assert_eq!(
            text.matches("lightwait: stopped in the warm-up, where all ").count() as i32,
            code
        );
    }
}

#[test]
fn a_threshold_is_missed_where_nothing_was_recorded() {
    let server = Server::start(OK, Duration::ZERO);
    let flags = [&*server.url, "-c", "2", "--warm-up", "60s"];
    let nothing = "lightwait: nothing was recorded: the thresholds cannot be judged\n";
    let (p99, errors) = (["--max-p99", "5s"], ["--max-error-rate", "100%"]);
    for (thresholds, code) in
        [(&[][..], 0), (&p99[..], 1), (&errors[..], 1), (&[p99, errors].concat()[..], 1)]
    {
        let seen = server.peers.lock().unwrap().len();
        let load = start(&[&flags[..], thresholds].concat());
        while server.peers.lock().unwrap().len() < seen + 10 {
            thread::sleep(Duration::from_millis(10));
        }
        interrupt(&load);
        let output = load.wait_with_output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{thresholds:?}: {text}");
        let lines = text.matches(nothing).count();
        assert_eq!(lines, usize::from(code == 1), "{thresholds:?}: {text}");
        assert!(!text.contains("of 0 requests"), "{text}");
    }
}

/// Sends SIGINT.
fn interrupt(load: &Child) {
    let id = load.id().to_string();
    assert!(Command::new("kill").args(["-s", "INT", &id]).status().unwrap().success());
}

#[test]
fn a_second_interrupt_ends_a_load_at_once_with_what_it_has() {
    let server = Server::start(OK, Duration::from_secs(60));
    for stack in [&["--stack", "kernel"], &JOINED[..]] {
        server.peers.lock().unwrap().clear();
        let flags = ["-c", "3", "--warm-up", "0", "-d", "60s", "--timeout", "60s", "--json"];
        let mut load = start(&[&[&*server.url], &flags[..], stack].concat());
        // One more for the first look.
        while server.peers.lock().unwrap().len() < 4 {
            thread::sleep(Duration::from_millis(10));
        }
        interrupt(&load);
        thread::sleep(Duration::from_millis(300));
        assert!(load.try_wait().unwrap().is_none(), "pending requests get some time");
        let begin = Instant::now();
        interrupt(&load);
        let output = load.wait_with_output().unwrap();
        assert!(begin.elapsed() < Duration::from_secs(2), "{:?}", begin.elapsed());
        assert_eq!(output.status.code(), Some(130), "{output:?}");
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(report["errors"]["unfinished"], 3, "{report}");
    }
}

#[test]
fn a_load_that_is_stopped_before_it_begins_has_no_report() {
    // The backlog takes the connection, but no one speaks TLS.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://{}/", silent.local_addr().unwrap());
    let load = start(&[&url, "--insecure", "-c", "1", "--json"]);
    let _connection = silent.accept().unwrap();
    interrupt(&load);
    let output = load.wait_with_output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("stopped before the load began: there is no report"), "{text}");
    assert_eq!((output.status.code(), output.stdout.len()), (Some(130), 0));
}

#[test]
fn a_report_of_another_load_is_named_when_reports_are_merged() {
    let server = Server::start(OK, Duration::ZERO);
    let directory = tempfile::tempdir().unwrap();
    let paths = ["1/3", "2/3", "3/3"].map(|part| {
        let path = directory.path().join(part.replace('/', "-"));
        // The second part is of another load.
        let url = if part == "2/3" { format!("{}other", server.url) } else { server.url.clone() };
        let flags = ["--rate", "30", "-d", "1s", "--warm-up", "0", "--part", part];
        let report = report(&[&[&*url], &flags[..]].concat());
        std::fs::write(&path, report.to_string()).unwrap();
        path.to_str().unwrap().to_owned()
    });
    let [first, second, third] = paths.each_ref().map(String::as_str);
    let (status, text) = failure(&["merge", first, third, second]);
    assert_eq!(status, 1, "{text}");
    assert!(text.starts_with(&format!("lightwait: {second}: not a part")), "{text}");
    assert!(text.ends_with("url differs\n"), "{text}");
    let (_, text) = failure(&["merge", first, second, third]);
    assert!(text.starts_with(&format!("lightwait: {second}: not a part")), "{text}");
}

#[test]
fn the_rates_of_merged_reports_are_over_what_the_help_says() {
    let server = Server::start(OK, Duration::ZERO);
    let help = String::from_utf8(load(&["merge", "--help"]).stdout).unwrap();
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(help.contains("from the first part's beginning to the last one's end"), "{help}");
    let directory = tempfile::tempdir().unwrap();
    let paths = ["1/2", "2/2"].map(|part| {
        // Each in its turn: together they take twice as long.
        let flags = ["--rate", "40", "-d", "1s", "--warm-up", "0", "--part", part];
        let path = directory.path().join(&part[..1]);
        let one = report(&[&[&*server.url], &flags[..]].concat());
        std::fs::write(&path, one.to_string()).unwrap();
        path.to_str().unwrap().to_owned()
    });
    let both = report(&["merge", &paths[0], &paths[1]]);
    let recorded = both["recorded_s"].as_f64().unwrap();
    assert!(recorded >= 2.0 && both["requests_per_second"].as_f64() <= Some(20.0), "{both}");
}

#[test]
fn the_csv_has_a_line_a_second_and_the_table_is_for_people() {
    let server = Server::start(OK, Duration::ZERO);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("seconds.csv");
    let path = path.to_str().unwrap();
    let page = directory.path().join("report.html");
    let flags = ["--rate", "20", "--warm-up", "1s", "-d", "2s", "--csv", path];
    let html = ["--html", page.to_str().unwrap()];
    let output = load(&[&[&*server.url], &flags[..], &html].concat());
    assert!(std::fs::read_to_string(&page).unwrap().contains("<svg"));
    let table = String::from_utf8(output.stdout).unwrap();
    assert!(table.contains("40 answered") && table.contains("not the steady state"), "{table}");
    let csv = std::fs::read_to_string(path).unwrap();
    let phases = |phase: &str| csv.lines().filter(|line| line.contains(phase)).count();
    assert_eq!(phases(",warm_up,"), 1, "{csv}");
    assert_eq!(phases(",recorded,"), 2, "{csv}");
}

#[test]
fn a_load_that_does_not_begin_leaves_earlier_reports_alone() {
    let directory = tempfile::tempdir().unwrap();
    let paths = ["a.csv", "a.html"].map(|name| directory.path().join(name));
    let earlier = "x".repeat(100_000);
    paths.iter().for_each(|path| std::fs::write(path, &earlier).unwrap());
    let [csv, html] = paths.each_ref().map(|path| path.to_str().unwrap());
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let flags = ["--rate", "5", "--warm-up", "0", "-d", "1s", "--csv", csv, "--html", html];
    failure(&[&[&*format!("http://{nobody}/")], &flags[..]].concat());
    assert!(paths.iter().all(|path| std::fs::read_to_string(path).unwrap() == earlier));
    let server = Server::start(OK, Duration::ZERO);
    report(&[&[&*server.url], &flags[..]].concat());
    assert!(paths.iter().all(|path| !std::fs::read_to_string(path).unwrap().contains("xxx")));
}

#[test]
fn who_cannot_be_asked_is_named_and_nothing_is_put_on_him() {
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let url = format!("http://{nobody}/");
    let (status, text) = failure(&[&url, "--rate", "5"]);
    assert!(status == 1 && text.contains("connection refused: nobody listens"), "{text}");
    let (status, text) = failure(&["http://no-such-host.invalid/", "--rate", "5"]);
    assert!(status == 1 && text.contains("no-such-host.invalid"), "{text}");
    let (status, text) = failure(&[&url, "--rate", "5", "--source", "198.51.100.1"]);
    assert!(
        status == 1 && text.contains("`sudo ip route add local 198.51.100.1/32 dev lo`"),
        "{text}"
    );
    let (status, text) = failure(&[&url, "--rate", "5", "--csv", "/no/such/file"]);
    assert!(status == 1 && text.contains("/no/such/file: cannot be written"), "{text}");
    let mut load = Command::new(env!("CARGO_BIN_EXE_lightwait"));
    load.args(["load", "https://127.0.0.1:1/", "-c", "1"]).env("SSL_CERT_FILE", "/no/such");
    // Without a look at the file, the system's authorities would be trusted in its place.
    let output = load.env("SSL_CERT_DIR", "/etc/ssl/certs").output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("SSL_CERT_FILE: ") && text.contains("/no/such"), "{text}");
    let (status, text) = failure(&[&url, "--rat", "5"]);
    assert!(status == 2 && text.contains("`lightwait load --help`"), "{text}");
}

/// On our stack, without a device.
const JOINED: [&str; 2] = ["--stack", "lightwait"];

#[test]
fn our_joined_stack_asks_from_the_kernels_sources_and_ports() {
    let server = Server::start(OK, Duration::ZERO);
    let flags = ["--rate", "100", "--warm-up", "0", "-d", "2s", "--ports", "20000-20024"];
    let report = report(&[&[&*server.url], &JOINED[..], &flags].concat());
    assert_eq!(report["stack"], "our stack, joined in memory to the kernel's");
    assert_eq!(
        (&report["requests_answered"], &report["requests_failed"]),
        (&200.into(), &0.into())
    );
    assert_eq!(report["sources"]["addresses"], 304);
    let peers = server.peers.lock().unwrap();
    // One more for the first look.
    assert_eq!(peers.iter().collect::<HashSet<_>>().len(), 201, "each from an end of its own");
    let is_asked_for = |peer: &SocketAddr| {
        peer.ip().to_string().starts_with("127.0.") && (20_000..=20_024).contains(&peer.port())
    };
    assert!(peers.iter().all(is_asked_for), "{peers:?}");
}

#[test]
fn our_stack_without_a_device_hears_kernel_fins_and_resets() {
    let (ended, ends) = std::sync::mpsc::channel();
    // The answer ends with the stream; the other direction stays open until the load closes.
    let half = Server::of(move |mut stream| {
        let _ = stream.read(&mut [0; 4096]);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhello");
        stream.shutdown(Shutdown::Write).unwrap();
        let _ = ended.send(stream.read(&mut [0; 1]).map_err(|error| error.kind()));
    });
    let flags = [&JOINED[..], &["--rate", "50", "--warm-up", "0", "-d", "1s"]].concat();
    let all = report(&[&[&*half.url], &flags[..]].concat());
    assert_eq!((&all["requests_answered"], &all["requests_failed"]), (&50.into(), &0.into()));
    assert_eq!(all["closed_by_server"], 50);
    assert!(ends.try_iter().take(50).all(|end| end == Ok(0)), "each heard the load's end");
    // Dropped with the request unread, the kernel's socket is reset.
    let resets = Server::of(|stream| {
        let _ = stream.peek(&mut [0; 1]);
    });
    let output = load(&[&[&*resets.url], &flags[..], &["--json"]].concat());
    let all: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&all["requests_answered"], &all["errors"]["reset"]),
        (&0.into(), &50.into()),
        "{all}"
    );
}

#[test]
fn time_wait_is_swapped_and_negotiated_without_a_device() {
    let server = Server::start(OK, Duration::ZERO);
    let flags = ["--rate", "50", "--warm-up", "0", "-d", "1s"];
    for (close, counter) in [("swap", "swapped"), ("negotiate", "agreed")] {
        let all = [&[&*server.url], &JOINED[..], &flags, &["--close", close]].concat();
        let report = report(&all);
        assert_eq!(report["requests_answered"], 50, "{report}");
        assert_eq!(report[counter], 50, "{close}: {report}");
        // The probe's is one more, if it has closed.
        assert!(report["held"].as_u64() >= Some(50), "{close}: {report}");
    }
}

#[test]
fn an_unreachable_target_is_named_as_on_the_kernels_stack() {
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let url = format!("http://{nobody}/");
    let with = |flags: &[&str]| failure(&[&[&*url, "--rate", "5"], &JOINED[..], flags].concat());
    let (status, text) = with(&[]);
    assert!(status == 1 && text.contains("connection refused: nobody listens"), "{text}");
    let (status, text) = with(&["--source", "198.51.100.1"]);
    assert!(status == 1 && text.contains("`sudo ip route add local 198.51.100.1/32"), "{text}");
    let (status, text) = with(&["--gateway", "10.0.0.1"]);
    assert!(status == 2 && text.contains("--gateway needs a device: give --tap NAME"), "{text}");
}

#[test]
fn idle_connections_are_held_beside_a_load_or_alone() {
    let server = Server::start(OK, Duration::ZERO);
    for stack in [&["--stack", "kernel"], &JOINED[..]] {
        let flags = ["--idle", "40", "-d", "1s"];
        let alone = report(&[&[&*server.url], &flags[..], stack].concat());
        assert_eq!(alone["idle"]["held"], 40, "{alone}");
        assert_eq!((&alone["requests_answered"], &alone["warm_up_s"]), (&0.into(), &0.0.into()));
        let flags = ["--idle", "20", "-d", "1s", "--rate", "50", "--keep-alive"];
        let beside = report(&[&[&*server.url], &flags[..], stack].concat());
        assert_eq!(
            (&beside["idle"]["held"], &beside["requests_answered"]),
            (&20.into(), &50.into())
        );
    }
}

#[test]
fn idle_connections_that_the_server_ends_fail_a_threshold() {
    let server = Server::of(|mut stream| {
        let _ = stream.read(&mut [0; 1000]);
        let _ = stream.write_all(OK.as_bytes());
        thread::sleep(Duration::from_millis(300));
    });
    let flags = ["--idle", "10", "-d", "1s"];
    let lost = report(&[&[&*server.url], &flags[..]].concat());
    assert_eq!((&lost["idle"]["opened"], &lost["idle"]["lost"]), (&10.into(), &10.into()));
    let warning = "of 10 idle connections 0 were held: 0 could not be opened, the server ended 10";
    assert_eq!(lost["warnings"], serde_json::json!([warning]));
    let most = [&*server.url, "--idle", "10", "-d", "1s", "--max-error-rate", "50%"];
    let (status, text) = failure(&most);
    assert!(status == 1 && text.contains("100.000 % of the idle connections failed"), "{text}");
    let (status, text) = failure(&[&server.url, "--rate", "5", "--idle-silent"]);
    assert!(status == 2 && text.contains("--idle"), "{text}");
}
