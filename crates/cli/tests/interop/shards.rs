//! A server of several shards against the kernel's clients: every shard serves at one address, and
//! what a device steers wrongly is handed over.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::capture::{Link, check};
use crate::namespace::{self, Namespace};
use crate::server::{Cable, OURS, Server, reach};
use crate::tools;

const REQUEST: &[u8] = b"GET /file HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
const CLIENTS: usize = 120;
const SHARDS: &[&str] = &["--shards", "3", "--pin", "no"];

fn site() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("file"), vec![b'x'; 100_000]).unwrap();
    directory
}

/// Opens connections to each address at once. Each gets the whole file.
fn download(addresses: &[&str]) {
    for ours in addresses {
        let connect = |_| TcpStream::connect((*ours, 80)).unwrap();
        let mut clients: Vec<TcpStream> = (0..CLIENTS).map(connect).collect();
        for client in &mut clients {
            client.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            client.write_all(REQUEST).unwrap();
        }
        for mut client in clients {
            let mut answer = Vec::new();
            client.read_to_end(&mut answer).unwrap();
            assert!(answer.ends_with(&[b'x'; 100_000]), "{} bytes from {ours}", answer.len());
        }
    }
}

/// The counters at the end, which are those of all shards together.
fn counts_of(server: Server) -> Value {
    let text = server.stop_and_tell();
    let mut counts = text.lines().filter(|line| line.contains(r#""event":"counts""#));
    let all = serde_json::from_str(counts.next().expect("the counters")).unwrap();
    assert!(counts.next().is_none(), "one set of counters: {text}");
    assert_eq!(text.matches(r#""event":"stopped""#).count(), 1, "{text}");
    all
}

fn serve_on(cable: Cable) {
    let directory = site();
    let server = Server::on(cable, directory.path(), SHARDS);
    download(&OURS);
    let all = counts_of(server);
    let counted = |name: &str| all["counters"][name].as_u64().unwrap();
    assert_eq!(counted("http_responses_2xx"), 2 * CLIENTS as u64);
    assert_eq!(counted("handed_over"), counted("taken_over"));
    assert_eq!((counted("messages_lost"), counted("timeouts")), (0, 0));
    // Root may tell the kernel which shard owns a connection; the kernel's own hash knows nothing
    // of it.
    if namespace::has_root() {
        // The kernel may greet an interface that comes up before it knows the rule.
        assert!(counted("handed_over") < 4, "{}", counted("handed_over"));
    } else {
        assert!(counted("handed_over") > CLIENTS as u64);
    }
}

#[test]
fn shards_on_a_tap_serve_at_one_address() {
    let test = "shards::shards_on_a_tap_serve_at_one_address";
    namespace::inside(test, &[], || {
        if namespace::can_make_tap() {
            serve_on(Cable::Tap);
        }
    });
}

#[test]
fn shards_on_a_tun_serve_at_one_address() {
    let test = "shards::shards_on_a_tun_serve_at_one_address";
    namespace::inside(test, &[], || {
        if namespace::can_make_tap() {
            serve_on(Cable::Tun);
        }
    });
}

#[test]
fn shards_on_packet_sockets_serve_at_one_address() {
    let test = "shards::shards_on_packet_sockets_serve_at_one_address";
    namespace::inside(test, &[], || serve_on(Cable::PacketSocket));
}

/// Frames of a capture for which the filter holds: the number of the interface, and the stream.
fn frames(capture: &Path, filter: &str) -> Vec<(usize, usize)> {
    let mut tshark = tools::command("tshark");
    tshark.arg("-n").arg("-r").arg(capture).args(["-Y", filter, "-T", "fields"]);
    let text = tools::output(tshark.args(["-e", "frame.interface_id", "-e", "tcp.stream"]));
    let number = |text: &str| text.parse().unwrap();
    let pair = |line: &str| {
        let (interface, stream) = line.split_once('\t').unwrap();
        (number(interface), number(stream))
    };
    text.lines().map(pair).collect()
}

#[test]
fn a_capture_of_a_tun_has_packets_without_a_link_header() {
    let test = "shards::a_capture_of_a_tun_has_packets_without_a_link_header";
    namespace::inside(test, &["tshark"], || {
        if !namespace::can_make_tap() {
            return;
        }
        let directory = site();
        let path = directory.path().join("capture.pcapng");
        let flags = ["--shards", "2", "--pcap", path.to_str().unwrap()];
        let server = Server::on(Cable::Tun, directory.path(), &flags);
        download(&OURS);
        server.stop();
        let all = frames(&path, "tcp");
        assert!(all.len() > 2 * CLIENTS && all.iter().any(|(interface, _)| *interface == 1));
        assert_eq!(frames(&path, "eth"), []);
    });
}

#[test]
fn a_capture_of_two_shards_has_the_handshakes_of_both() {
    let test = "shards::a_capture_of_two_shards_has_the_handshakes_of_both";
    namespace::inside(test, &["tshark"], || {
        let directory = site();
        let path = directory.path().join("capture.pcapng");
        let flags = ["--shards", "2", "--pcap", path.to_str().unwrap()];
        let server = Server::on(Cable::best(), directory.path(), &flags);
        download(&OURS);
        server.stop();
        // Nothing is lost. But a segment that is handed over may come behind the connection's end,
        // and is reset. And some of so many clients acknowledge a tail late.
        let found = check(&path, Link::Bad);
        // Each address was reached before.
        let all = 2 * CLIENTS + OURS.len();
        assert!(found.connections >= all, "{found:?}");
        let streams = |filter: &str| -> BTreeSet<usize> {
            frames(&path, filter).into_iter().map(|(_, stream)| stream).collect()
        };
        // The kernel's SYN, our answer, and what acknowledges it.
        let syns = streams("tcp.flags.syn == 1 && tcp.flags.ack == 0");
        let answers = "tcp.flags.syn == 1 && tcp.flags.ack == 1";
        assert!(syns.len() >= all, "{} of {all}", syns.len());
        assert_eq!((&syns, &syns), (&streams(answers), &streams("tcp.flags == 0x10")));
        // A shard answers what it owns.
        for shard in 0..2 {
            let owned = frames(&path, answers).iter().filter(|(by, _)| *by == shard).count();
            assert!(owned > CLIENTS / 2, "shard {shard} answered {owned}");
        }
    });
}

#[test]
fn shards_of_the_bridge_are_captured_in_one_file() {
    let test = "shards::shards_of_the_bridge_are_captured_in_one_file";
    namespace::inside(test, &["tshark"], || {
        let directory = site();
        let path = directory.path().join("capture.pcapng");
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_lightwait"));
        command.args(["serve", "--listen", "127.0.0.1:0", "--shards", "2"]);
        let server = Server::start(command.arg("--pcap").arg(&path), directory.path());
        for _ in 0..40 {
            let mut client = TcpStream::connect(server.address()).unwrap();
            client.write_all(REQUEST).unwrap();
            let mut answer = Vec::new();
            client.read_to_end(&mut answer).unwrap();
            assert!(answer.ends_with(&[b'x'; 100_000]), "{} bytes", answer.len());
        }
        server.stop();
        let answers = frames(&path, "tcp.flags.syn == 1 && tcp.flags.ack == 1");
        let of = |shard| answers.iter().filter(|(by, _)| *by == shard).count();
        let (one, other) = (of(0), of(1));
        assert!(one > 0 && other > 0 && one + other == 40, "{one} and {other}");
    });
}

#[test]
fn each_shard_has_a_link_and_its_lines_are_whole() {
    let test = "shards::each_shard_has_a_link_and_its_lines_are_whole";
    namespace::inside(test, &[], || {
        let directory = site();
        let flags = ["--shards", "2", "--trace", "--fault", "delay=30ms"];
        let server = Server::on(Cable::best(), directory.path(), &flags);
        let mut ports = BTreeSet::new();
        for _ in 0..40 {
            let begin = Instant::now();
            let client = TcpStream::connect((OURS[0], 80)).unwrap();
            let took = begin.elapsed();
            // Each way takes 30 ms of the clock that a turn has read, which may be a little old.
            assert!(took >= Duration::from_millis(55), "answered after {took:?}");
            ports.insert(client.local_addr().unwrap().port());
        }
        let text = server.stop_and_tell();
        let mut answered = [BTreeSet::new(), BTreeSet::new()];
        for line in text.lines() {
            let event: Value = serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"));
            if event["event"] != "frame" {
                continue;
            }
            let shard = event["shard"].as_u64().unwrap() as usize;
            let told = event["line"].as_str().unwrap();
            // `0.001250 out 10.77.0.2:80 > 10.77.0.1:41500: S. …`
            if let Some((head, _)) = told.split_once(": S. ") {
                let port: u16 = head.rsplit(':').next().unwrap().parse().unwrap();
                assert!(told.contains(" out "), "{told}");
                answered[shard].insert(port);
            }
        }
        let [one, other] = &answered;
        assert!(one.is_disjoint(other) && !one.is_empty() && !other.is_empty(), "{answered:?}");
        assert!(ports.iter().all(|port| one.contains(port) || other.contains(port)));
    });
}

/// A namespace at the far end of a veth whose near end is `lw0`.
fn far_end(options: &str) -> Namespace {
    namespace::ip(&format!("link add lw0 {options} type veth peer name lw1 {options}"));
    let far = Namespace::new();
    far.take("lw1");
    for (address, more) in [("10.77.0.1/24", ""), ("fd77::1/64", " nodad")] {
        far.ip(&format!("addr add {address} dev lw1{more}"));
    }
    far.ip("link set lw1 up");
    namespace::ip("link set lw0 up");
    far
}

/// A server of three shards at 10.77.0.2.
fn start(device: [&str; 2], directory: &std::path::Path) -> Server {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_lightwait"));
    command.arg("serve").args(device).args(["--probe", "100ms"]).args(SHARDS);
    Server::start(command.args(["--ip", "10.77.0.2/24"]), directory)
}

/// The far end fetches the file again and again.
fn fetch_from(far: &Namespace, server: Server) {
    for _ in 0..20 {
        let curl = ["-s", "-m", "20", "http://10.77.0.2/file"];
        assert_eq!(far.command("curl").args(curl).output().unwrap().stdout.len(), 100_000);
    }
    assert_eq!(counts_of(server)["counters"]["http_responses_2xx"], 20);
    // The namespace's own check needs a segment of its kernel's.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    reach("127.0.0.1", listener.local_addr().unwrap().port());
}

#[test]
fn shards_on_af_xdp_leave_the_kernel_its_own() {
    let test = "shards::shards_on_af_xdp_leave_the_kernel_its_own";
    namespace::inside(test, &["ethtool", "ping"], || {
        if !namespace::has_root() {
            // Something for the kernel's counters.
            drop(TcpStream::connect("127.0.0.1:1"));
            return;
        }
        let far = far_end("numrxqueues 3 numtxqueues 3");
        // The peer's segments come with their checksums undone otherwise, and XDP tells nothing.
        let ethtool = ["-K", "lw1", "tx", "off", "tso", "off", "gso", "off"];
        assert!(far.command("ethtool").args(ethtool).output().unwrap().status.success());
        namespace::ip("addr add 10.77.0.9/24 dev lw0");
        let directory = site();
        let server = start(["--afxdp", "lw0"], directory.path());
        let ping = far.command("ping").args(["-c", "1", "-W", "5", "10.77.0.9"]).status().unwrap();
        assert!(ping.success(), "the kernel's own address on the interface");
        fetch_from(&far, server);
    });
}

#[test]
fn shards_on_a_macvtap_serve_at_one_address() {
    let test = "shards::shards_on_a_macvtap_serve_at_one_address";
    namespace::inside(test, &[], || {
        if !namespace::can_make_tap() {
            return;
        }
        let far = far_end("numrxqueues 1");
        // The number of its file is one that no other namespace has.
        let number = 200_000 + std::process::id();
        namespace::ip(&format!(
            "link add link lw0 name mv0 index {number} type macvtap mode bridge"
        ));
        if !std::path::Path::new(&format!("/dev/tap{number}")).exists() {
            eprintln!("skipped: no file of the macvtap, since /dev is no devtmpfs");
            return;
        }
        let directory = site();
        fetch_from(&far, start(["--macvtap", "mv0"], directory.path()));
    });
}

#[test]
fn a_load_of_several_shards_is_one_load() {
    let test = "shards::a_load_of_several_shards_is_one_load";
    namespace::inside(test, &["nsenter", "unshare"], || {
        if !namespace::can_make_tap() {
            return;
        }
        // The server is reached over the TAP, which is there before the load opens it.
        namespace::ip("tuntap add dev lw0 mode tap multi_queue");
        namespace::ip("addr add 10.77.0.1/24 dev lw0");
        namespace::ip("link set lw0 up");
        let directory = site();
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_lightwait"));
        command.args(["serve", "--listen", "0.0.0.0:8080", "--max-client-connections", "9000"]);
        let server = Server::start(&mut command, directory.path());
        let ours = ["--tap", "lw0", "--ip", "10.77.0.2/24"];
        for device in [&ours[..], &[]] {
            let mut load = std::process::Command::new(env!("CARGO_BIN_EXE_lightwait"));
            load.args(["load", "http://10.77.0.1:8080/file", "--json", "--rate", "300"]);
            load.args(["-d", "2s", "--warm-up", "0s"]).args(SHARDS).args(device);
            let output = load.output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            let report: Value = serde_json::from_slice(&output.stdout).unwrap();
            assert_eq!((&report["threads"], &report["failed_in_all"]), (&3.into(), &0.into()));
            assert_eq!(report["rate_asked"], 300.0);
            assert_eq!(report["answered_in_all"], 600);
        }
        server.stop();
    });
}
