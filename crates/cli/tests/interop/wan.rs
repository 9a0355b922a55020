//! `lightwait wan` between the kernel's TCP and a server of ours: what passes, how long it takes,
//! and what the report says of it.
//!
//! ```text
//!  kernel: lw0 ═ lw1 (A) ─ wan ─ (B) lw2 ═ lw3: our server
//! ```

use std::io::{BufRead, BufReader, Read};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use lightwait::device::{AfPacket, Device};
use lightwait_core::Outbox;
use serde_json::Value;

use crate::namespace::{self, ip};
use crate::server::{OURS, Server, URLS, reach};
use crate::tools::{self, curl, output};

/// What a machine that is busy with other tests may add to a round trip.
const SLACK: Duration = Duration::from_millis(25);

/// Keeps these tests from running at the same time: a router takes a whole processor.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A router in a process of its own.
pub(crate) struct Wan {
    process: Child,
    stderr: BufReader<ChildStderr>,
}

impl Wan {
    /// Starts one, and waits until frames pass.
    pub(crate) fn start(devices: [&str; 2], flags: &[&str]) -> Wan {
        let mut process = Command::new(env!("CARGO_BIN_EXE_lightwait"))
            .arg("wan")
            .args(devices)
            .args(flags)
            .arg("--json")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stderr = BufReader::new(process.stderr.take().unwrap());
        let mut all = String::new();
        while !all.contains("Routing") {
            assert!(stderr.read_line(&mut all).unwrap() > 0, "it ended: {all}");
        }
        Wan { process, stderr }
    }

    fn signal(&self, signal: &str) {
        let id = self.process.id().to_string();
        assert!(Command::new("kill").args(["-s", signal, &id]).status().unwrap().success());
    }

    /// Stops it as a user does; its report.
    pub(crate) fn stop(mut self) -> Value {
        self.signal("INT");
        let mut text = String::new();
        self.process.stdout.take().unwrap().read_to_string(&mut text).unwrap();
        let status = self.process.wait().unwrap();
        assert!(status.success(), "{status}: {text}");
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
    }
}

impl Drop for Wan {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Both cables of veth, with the kernel's addresses on `lw0`.
pub(crate) fn lay_cables() {
    // The router's ends hear questions for addresses of the kernel's that are not theirs.
    std::fs::write("/proc/sys/net/ipv4/conf/all/arp_ignore", "1").unwrap();
    ip("link add lw0 type veth peer name lw1");
    ip("link add lw2 type veth peer name lw3");
    give_addresses("lw0");
}

fn give_addresses(interface: &str) {
    ip(&format!("addr add 10.77.0.1/24 dev {interface}"));
    ip(&format!("addr add fd77::1/64 dev {interface} nodad"));
    ip(&format!("link set {interface} up"));
}

/// Serves `directory` behind the router, reachable at [`URLS`].
pub(crate) fn serve(directory: &Path) -> Server {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lightwait"));
    command.args(["serve", "--af-packet", "lw3", "--probe", "0s"]);
    command.args(["--ip", "10.77.0.2/24", "--ip", "fd77::2/64"]);
    let server = Server::start(&mut command, directory);
    OURS.iter().for_each(|ours| reach(ours, 80));
    server
}

/// The shortest of some times that it takes to open a connection: a round trip.
fn round_trip(ours: &str) -> Duration {
    let address = SocketAddr::new(ours.parse().unwrap(), 80);
    let open = |_| {
        let begin = Instant::now();
        TcpStream::connect_timeout(&address, Duration::from_secs(5)).unwrap();
        begin.elapsed()
    };
    (0..10).map(open).min().unwrap()
}

/// A round trip of 2 · 30 ms, and what it takes the machine besides. ARP, and over IPv6 neighbour
/// discovery, have passed before.
fn check_round_trips() {
    for ours in OURS {
        let took = round_trip(ours);
        eprintln!("a round trip to {ours} takes {took:?}");
        let most = Duration::from_millis(60) + SLACK;
        assert!((Duration::from_millis(60)..most).contains(&took), "{ours}: {took:?}");
    }
}

#[test]
fn a_round_trip_takes_twice_the_delay_between_packet_sockets() {
    let test = "wan::a_round_trip_takes_twice_the_delay_between_packet_sockets";
    let _alone = alone();
    namespace::inside(test, &[], || {
        lay_cables();
        for threads in ["1", "2"] {
            let flags = ["--delay", "30ms", "--threads", threads];
            let wan = Wan::start(["lw1", "lw2"], &flags);
            let directory = tools::directory();
            let server = serve(directory.path());
            check_round_trips();
            server.stop();
            let report = wan.stop();
            assert_eq!(report["threads"].to_string(), threads);
            for way in ["a_to_b", "b_to_a"] {
                assert_eq!(report[way]["link"], "delay=30ms");
                assert!(report[way]["packets_out"].as_u64().unwrap() > 40, "{report}");
                // The machine may be busy. It is far below the delay all the same.
                assert!(report[way]["late_us"]["median"].as_f64().unwrap() < 5000.0, "{report}");
            }
        }
    });
}

#[test]
fn a_round_trip_takes_twice_the_delay_between_taps() {
    let test = "wan::a_round_trip_takes_twice_the_delay_between_taps";
    let _alone = alone();
    namespace::inside(test, &[], || {
        if !namespace::can_make_tap() {
            return;
        }
        let flags = ["--delay", "30ms", "--threads", "2"];
        let wan = Wan::start(["tap:lw0", "tap:lw3"], &flags);
        give_addresses("lw0");
        let directory = tools::directory();
        let server = serve(directory.path());
        check_round_trips();
        server.stop();
        wan.stop();
    });
}

#[test]
fn a_file_arrives_whole_at_the_rate_through_losses_in_packets() {
    let test = "wan::a_file_arrives_whole_at_the_rate_through_losses_in_packets";
    let _alone = alone();
    namespace::inside(test, &["curl", "tshark"], || {
        lay_cables();
        let directory = tools::directory();
        let captures = ["a.pcapng", "b.pcapng"].map(|name| directory.path().join(name));
        let [a, b] = captures.each_ref().map(|path| path.to_str().unwrap());
        let down = "rate=40Mbit,delay=2ms,queue=256KiB,loss=0.5%,seed=3";
        let flags = ["--delay", "2ms", "--b-to-a", down, "--pcap-a", a, "--pcap-b", b];
        let wan = Wan::start(["lw1", "lw2"], &[&flags[..], &["--threads", "2"]].concat());
        let site = tools::directory();
        tools::write_file(&site.path().join("file"), 8);
        let expected = tools::sha256_of_file(&site.path().join("file"));
        let server = serve(site.path());
        for url in URLS {
            let begin = Instant::now();
            let got = tools::sha256_of_output(&mut curl(&format!("{url}/file")));
            let took = begin.elapsed().as_secs_f64();
            assert_eq!(got, expected);
            let mbit = f64::from(8 << 20) * 8e-6 / took;
            eprintln!("{mbit:.1} Mbit/s of 40");
            // Headers take 4 to 6 %, losses more.
            assert!((8.0..39.0).contains(&mbit), "{mbit}");
        }
        server.stop();
        let report = wan.stop();
        let down = &report["b_to_a"];
        assert!(down["lost"].as_u64().unwrap() > 10, "{report}");
        assert_eq!(report["a_to_b"]["lost"], 0, "{report}");
        assert!(down["most_queued_bytes"].as_u64().unwrap() <= 256 << 10, "{report}");
        for (path, least) in captures.iter().zip([5000, 5500]) {
            let frames = |filter: &str| {
                let mut tshark = tools::command("tshark");
                let listed = output(tshark.arg("-n").arg("-r").arg(path).args(["-Y", filter]));
                listed.lines().count()
            };
            // Our server and the kernel hand over large segments: the router has packets.
            assert_eq!(frames("frame.len > 1514"), 0, "{}", path.display());
            assert!(frames("tcp.len > 1000") > least, "{}", path.display());
            // Both handles on a device write to its file: both ways are in it.
            assert!(frames("tcp.dstport == 80") > 100, "{}", path.display());
        }
    });
}

/// A download beside requests on connections of their own, through FQ-CoDel: what each flow of the
/// answers' direction got.
#[test]
fn each_flow_is_told_what_it_got_of_its_own_queue() {
    let test = "wan::each_flow_is_told_what_it_got_of_its_own_queue";
    let _alone = alone();
    namespace::inside(test, &["curl"], || {
        lay_cables();
        let down = "rate=20Mbit,delay=5ms,queue=400packets,codel=5ms:100ms,fq=1024";
        let wan = Wan::start(["lw1", "lw2"], &["--flows", "--delay", "5ms", "--b-to-a", down]);
        let site = tools::directory();
        tools::write_file(&site.path().join("long"), 8);
        std::fs::write(site.path().join("short"), b"short").unwrap();
        let server = serve(site.path());
        let mut download = curl(&format!("{}/long", URLS[0]));
        let download = std::thread::spawn(move || tools::sha256_of_output(&mut download));
        std::thread::sleep(Duration::from_millis(500));
        for _ in 0..20 {
            output(&mut curl(&format!("{}/short", URLS[0])));
        }
        download.join().unwrap();
        server.stop();
        let report = wan.stop();
        let flows = report["b_to_a"]["flows"].as_array().unwrap();
        let number = |flow: &Value, key: &str| flow[key].as_f64().unwrap();
        let long = &flows[0];
        assert!(long["flow"].as_str().unwrap().starts_with("tcp 10.77.0.2:80 > 10.77.0.1:"));
        assert!((10e6..20.5e6).contains(&number(long, "bits_per_second")), "{long}");
        let lost: f64 = flows.iter().map(|flow| number(flow, "lost")).sum();
        let dropped = ["dropped_codel", "dropped_queue_full", "lost"];
        let told: f64 = dropped.map(|key| number(&report["b_to_a"], key)).into_iter().sum();
        assert_eq!(lost, told, "{report}");
        let short: Vec<&Value> = flows
            .iter()
            .filter(|flow| (400.0..4000.0).contains(&number(flow, "bytes_out")))
            .collect();
        assert!(short.len() >= 20, "{report}");
        let mut longest: Vec<f64> = Vec::new();
        for flow in short {
            longest.push(number(&flow["delay_us"], "max"));
            assert_eq!(number(flow, "lost"), 0.0, "{flow}");
        }
        longest.sort_by(f64::total_cmp);
        // A full frame of the download takes 0.6 ms. A router that is held up finds packets late.
        assert!(longest[longest.len() / 2] < 7000.0, "{longest:?}");
    });
}

#[test]
fn a_step_changes_the_delay_of_a_router_that_runs() {
    let test = "wan::a_step_changes_the_delay_of_a_router_that_runs";
    let _alone = alone();
    namespace::inside(test, &[], || {
        lay_cables();
        let directory = tools::directory();
        let steps = directory.path().join("steps.toml");
        std::fs::write(&steps, "[[step]]\nat = '5s'\nb-to-a = 'delay=80ms'\n").unwrap();
        let steps = steps.to_str().unwrap();
        let flags = ["--delay", "10ms", "--steps", steps, "--threads", "2"];
        let begin = Instant::now();
        let wan = Wan::start(["lw1", "lw2"], &flags);
        let server = serve(directory.path());
        let before = round_trip(OURS[0]);
        assert!(begin.elapsed() < Duration::from_secs(5), "too slow to look before the step");
        std::thread::sleep(Duration::from_millis(5100).saturating_sub(begin.elapsed()));
        let after = round_trip(OURS[0]);
        let ms = |ms| Duration::from_millis(ms);
        assert!((ms(20)..ms(20) + SLACK).contains(&before), "{before:?}");
        assert!((ms(90)..ms(90) + SLACK).contains(&after), "{after:?}");
        server.stop();
        let report = wan.stop();
        assert_eq!(report["a_to_b"]["phases"].as_array().unwrap().len(), 1, "{report}");
        let back = &report["b_to_a"];
        let [first, second] = [0, 1].map(|n| &back["phases"][n]);
        assert_eq!((&first["from_s"], &first["link"]), (&0.0.into(), &"delay=10ms".into()));
        assert_eq!((&second["from_s"], &second["link"]), (&5.0.into(), &"delay=80ms".into()));
        let [all, one, other] =
            [back, first, second].map(|told| told["packets_out"].as_u64().unwrap());
        assert!(one > 0 && other > 0 && one + other == all, "{report}");
    });
}

/// Sends so many frames of 60 bytes on that interface, of a protocol that nobody has.
fn flood(interface: &str, count: usize) {
    let mut device = AfPacket::open(interface, true).unwrap();
    let frame = [&[2; 12][..], &[0x88, 0xb5], &[0; 46]].concat();
    let mut outbox = Outbox::new(1);
    for _ in 0..count {
        outbox.push().unwrap().head.extend_from_slice(&frame);
        while !outbox.is_empty() {
            device.transmit(lightwait_core::Instant::ZERO, &mut outbox).unwrap();
        }
    }
}

#[test]
fn a_router_that_was_held_up_has_a_short_row_before_it() {
    let test = "wan::a_router_that_was_held_up_has_a_short_row_before_it";
    let _alone = alone();
    namespace::inside(test, &[], || {
        // Something for the kernel's counters.
        drop(TcpStream::connect("127.0.0.1:1"));
        lay_cables();
        for threads in ["1", "2"] {
            let wan = Wan::start(["lw1", "lw2"], &["--threads", threads]);
            std::thread::sleep(Duration::from_millis(300));
            wan.signal("STOP");
            flood("lw0", 20_000);
            wan.signal("CONT");
            std::thread::sleep(Duration::from_millis(500));
            let report = wan.stop();
            let way = &report["a_to_b"];
            let [taken, missed] =
                ["packets_in", "missed_by_device"].map(|key| way[key].as_u64().unwrap());
            // 2 MiB of 768 bytes each, by the kernel's count; some by the kernel's own stack.
            assert!((100..4000).contains(&taken) && missed > 10_000, "{report}");
            assert!(report["warnings"].to_string().contains("the kernel dropped"), "{report}");
        }
    });
}

#[test]
fn a_device_that_goes_ends_both_directions_with_a_report() {
    let test = "wan::a_device_that_goes_ends_both_directions_with_a_report";
    let _alone = alone();
    namespace::inside(test, &[], || {
        // Something for the kernel's counters.
        drop(TcpStream::connect("127.0.0.1:1"));
        for threads in ["1", "2"] {
            lay_cables();
            let mut wan = Wan::start(["lw1", "lw2"], &["--threads", threads]);
            ip("link set lw3 up");
            flood("lw0", 10);
            std::thread::sleep(Duration::from_millis(100));
            ip("link del lw3");
            let status = wan.process.wait().unwrap();
            let (mut report, mut told) = (String::new(), String::new());
            wan.process.stdout.take().unwrap().read_to_string(&mut report).unwrap();
            wan.stderr.read_to_string(&mut told).unwrap();
            assert_eq!(status.code(), Some(1), "{told}");
            assert_eq!(told.matches("the interface `lw2` is gone").count(), 1, "{told}");
            let report: Value = serde_json::from_str(&report).unwrap();
            assert!(report["a_to_b"]["packets_out"].as_u64().unwrap() >= 10, "{report}");
            ip("link del lw0");
        }
    });
}

#[test]
fn a_device_that_is_not_there_is_named() {
    let test = "wan::a_device_that_is_not_there_is_named";
    let _alone = alone();
    namespace::inside(test, &[], || {
        lay_cables();
        let wan = |devices: [&str; 2]| {
            let mut wan = Command::new(env!("CARGO_BIN_EXE_lightwait"));
            let output = wan.arg("wan").args(devices).args(["--duration", "1s"]).output().unwrap();
            (output.status.code(), String::from_utf8(output.stderr).unwrap())
        };
        let (status, text) = wan(["lw1", "nothing"]);
        assert_eq!(status, Some(1), "{text}");
        assert!(text.starts_with("lightwait: nothing: no network interface `nothing`"), "{text}");
        let (status, text) = wan(["lw1", "lw1"]);
        assert_eq!(status, Some(2), "{text}");
        let (status, _) = wan(["lw1", "lw2"]);
        assert_eq!(status, Some(0), "a second is over");
        // Something for the kernel's counters.
        drop(TcpStream::connect("127.0.0.1:1"));
    });
}

#[test]
fn an_interface_without_a_carrier_is_warned_of() {
    let test = "wan::an_interface_without_a_carrier_is_warned_of";
    let _alone = alone();
    namespace::inside(test, &[], || {
        // Something for the kernel's counters.
        drop(TcpStream::connect("127.0.0.1:1"));
        ip("link add lw0 type veth peer name lw1");
        ip("link add lw2 type veth peer name lw3");
        ip("link set lw3 up");
        let program = |arguments: &str| {
            let mut program = Command::new(env!("CARGO_BIN_EXE_lightwait"));
            program.args(arguments.split(' '));
            program
        };
        let warning = |interface| format!("{interface} has no carrier");
        let routed = program("wan lw1 lw2 --duration 1s").output().unwrap();
        let text = String::from_utf8(routed.stderr).unwrap();
        assert!(text.contains(&warning("lw1")) && !text.contains(&warning("lw2")), "{text}");
        // The router has brought up `lw1`, and `lw0` is still down.
        let mut serve = program("serve . --af-packet lw1 --ip 10.77.0.2/24 --probe 0s");
        let mut serving = serve.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(serving.stdout.take().unwrap()).read_line(&mut line).unwrap();
        serving.kill().unwrap();
        serving.wait().unwrap();
        assert!(line.contains(&warning("lw1")), "{line}");
    });
}
