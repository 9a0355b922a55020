//! Our addresses among those of others: found again after a restart, refused where somebody has
//! them, defended, and gone with their interface.

use std::net::{Ipv6Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use lightwait::device::{AfPacket, Device};
use lightwait_core::Outbox;
use lightwait_core::wire::ethernet::{Header, Mac, ethertype};
use lightwait_core::wire::{arp, icmpv6, ndp};

use crate::namespace::{self, Namespace, ip};
use crate::server::{Cable, KERNELS, OURS, Server, URLS};
use crate::tools::{self, command, curl};

/// How soon a neighbour finds us again: three tries of the kernel's to connect.
const SOON: Duration = Duration::from_secs(5);

/// A namespace beside the test's, which is the neighbour.
struct Beside(Namespace);

impl Beside {
    /// Makes one in which interface `lw0` is ours; `lw1` at the other end is the neighbour's.
    fn new() -> Beside {
        let beside = Namespace::new();
        Cable::PacketSocket.prepare();
        beside.take("lw0");
        beside.ip("link set lw0 up");
        Beside(beside)
    }

    /// Our server, with more flags.
    fn server(&self, flags: &[&str]) -> Command {
        let mut serve = self.0.command(env!("CARGO_BIN_EXE_lightwait"));
        serve.args(["serve", "--af-packet", "lw0"]).args(flags);
        serve
    }
}

const BOTH: [&str; 4] = ["--ip", "10.77.0.2/24", "--ip", "fd77::2/64"];

/// Both addresses and more flags.
fn both(flags: &[&'static str]) -> Vec<&'static str> {
    [&BOTH, flags].concat()
}

/// How long it takes until somebody answers there.
fn first_answer(address: &str) -> Duration {
    let address = SocketAddr::new(address.parse().unwrap(), 80);
    let begin = Instant::now();
    while TcpStream::connect_timeout(&address, Duration::from_millis(250)).is_err() {
        assert!(begin.elapsed() < Duration::from_secs(60), "{address} does not answer");
        thread::sleep(Duration::from_millis(10));
    }
    begin.elapsed()
}

/// What a neighbour's cache says of us.
fn lladdr(address: &str) -> String {
    let shown = tools::output(command("ip").args(["neigh", "show", address]));
    let mut words = shown.split_whitespace();
    words.find(|word| *word == "lladdr").expect("we are known");
    words.next().unwrap().to_owned()
}

/// Restarts a server whose neighbour knows it, and returns how long it takes until that finds it
/// again by each version, and the hardware addresses before and after.
fn restart(first: &[&'static str], second: &[&'static str]) -> ([Duration; 2], [String; 2]) {
    let directory = tools::directory();
    let beside = Beside::new();
    let server = Server::start(&mut beside.server(&both(first)), directory.path());
    OURS.iter().for_each(|address| {
        first_answer(address);
    });
    let before = lladdr(OURS[0]);
    server.stop();
    // Both at once: what one needs is not the other's gain. The time to start counts.
    let (server, times) = thread::scope(|scope| {
        let waiting = OURS.map(|address| scope.spawn(move || first_answer(address)));
        let server = Server::start(&mut beside.server(&both(second)), directory.path());
        (server, waiting.map(|thread| thread.join().unwrap()))
    });
    let after = lladdr(OURS[0]);
    server.stop();
    (times, [before, after])
}

/// Longer than announcing takes.
const ANNOUNCED: Duration = Duration::from_secs(3);

/// What announcements of our addresses look like to tshark.
const ANNOUNCEMENTS: [&str; 2] = [
    "arp.opcode == 1 && arp.src.proto_ipv4 == 10.77.0.2 && arp.dst.proto_ipv4 == 10.77.0.2",
    "icmpv6.type == 136 && icmpv6.nd.na.target_address == fd77::2 && ipv6.dst == ff02::1",
];

/// The packets of a capture for which the filter holds, one a line.
fn tshark(capture: &Path, filter: &str) -> String {
    let mut tshark = command("tshark");
    tools::output(tshark.arg("-n").arg("-r").arg(capture).args(["-Y", filter]))
}

const COMMANDS: [&str; 2] = ["nsenter", "unshare"];

#[test]
fn neighbours_find_a_server_that_was_started_again() {
    let test = "addresses::neighbours_find_a_server_that_was_started_again";
    namespace::inside(test, &COMMANDS, || {
        let (times, [before, after]) = restart(&["--probe", "200ms"], &["--probe", "200ms"]);
        eprintln!("first answers {times:?} after a restart");
        assert_eq!(before, after);
        assert!(times.iter().all(|time| *time < SOON), "{times:?}");
    });
}

#[test]
fn a_server_started_again_serves_within_a_second_and_a_half() {
    let test = "addresses::a_server_started_again_serves_within_a_second_and_a_half";
    namespace::inside(test, &COMMANDS, || {
        // As long as it probes without being told otherwise.
        let (times, _) = restart(&["--probe", "0s"], &[]);
        eprintln!("first answers {times:?} with the default of --probe");
        let [earliest, latest] = [times.iter().min().unwrap(), times.iter().max().unwrap()];
        assert!(*latest < Duration::from_millis(1500), "{times:?}");
        assert!(*earliest > Duration::from_millis(500), "it did ask");
    });
}

#[test]
fn neighbours_follow_a_server_that_has_another_hardware_address() {
    let test = "addresses::neighbours_follow_a_server_that_has_another_hardware_address";
    namespace::inside(test, &COMMANDS, || {
        let first = ["--probe", "0s", "--mac", "02:00:00:00:00:aa"];
        let second = ["--probe", "0s", "--mac", "02:00:00:00:00:bb"];
        let (times, [before, after]) = restart(&first, &second);
        eprintln!("first answers {times:?} with another hardware address");
        assert_eq!([&before[..], &after], [first[3], second[3]]);
        assert!(times.iter().all(|time| *time < SOON), "{times:?}");
    });
}

/// Runs a server that must end by itself within the time of its probes.
fn run(serve: &mut Command, directory: &Path) -> Output {
    serve.arg("--quiet").arg(directory).output().unwrap()
}

/// The one line of a failure, status 1.
fn failure(output: &Output) -> &str {
    let text = std::str::from_utf8(&output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert_eq!(text.trim_end().lines().count(), 1, "{text}");
    text
}

#[test]
fn an_address_that_the_kernel_has_is_refused_at_once() {
    let test = "addresses::an_address_that_the_kernel_has_is_refused_at_once";
    namespace::inside(test, &COMMANDS, || {
        let directory = tools::directory();
        let beside = Beside::new();
        for address in ["10.77.0.2/24", "fd77::2/64"] {
            for interface in ["lw0", "lo"] {
                beside.0.ip(&format!("addr add {address} dev {interface}"));
                let begin = Instant::now();
                let output = run(&mut beside.server(&["--ip", address]), directory.path());
                let text = failure(&output);
                assert!(begin.elapsed() < Duration::from_secs(3), "nobody was asked");
                let advice = format!("`sudo ip addr del {address} dev {interface}`");
                assert!(text.contains(&advice), "{text}");
                beside.0.ip(&format!("addr del {address} dev {interface}"));
            }
        }
        // Nor may a TAP's other end have one: nobody would reach the stack.
        beside.0.ip("addr add 10.78.0.1/24 dev lo");
        let mut tap = beside.0.command(env!("CARGO_BIN_EXE_lightwait"));
        tap.args(["serve", "--tap", "lw9", "--ip", "10.78.0.3/24"]);
        let output = run(&mut tap, directory.path());
        let text = failure(&output);
        assert!(text.contains("--host-ip 10.78.0.1/24: ") && text.contains(" on lo "), "{text}");
        let serve = &mut beside.server(&both(&["--probe", "100ms"]));
        let server = Server::start(serve, directory.path());
        OURS.iter().for_each(|address| {
            first_answer(address);
        });
        server.stop();
    });
}

#[test]
fn an_address_that_a_neighbour_has_is_refused_before_serving() {
    let test = "addresses::an_address_that_a_neighbour_has_is_refused_before_serving";
    namespace::inside(test, &COMMANDS, || {
        let directory = tools::directory();
        let beside = Beside::new();
        ip("link set lw1 address 02:00:00:00:00:77");
        for taken in ["10.77.0.2/24", "fd77::2/64"] {
            ip(&format!("addr add {taken} dev lw1 nodad"));
            for flags in [&["--probe", "200ms"][..], &[]] {
                // The other address is free, and does not help.
                let output = run(&mut beside.server(&both(flags)), directory.path());
                let text = failure(&output);
                let address = taken.split('/').next().unwrap();
                assert!(text.contains(&format!("--ip {address}: ")), "{text}");
                assert!(text.contains("02:00:00:00:00:77"), "{text}");
                let log = String::from_utf8_lossy(&output.stdout).into_owned();
                assert!(log.contains("Probing") && !log.contains("Serving"), "{log}");
            }
            ip(&format!("addr del {taken} dev lw1"));
        }
        let serve = &mut beside.server(&both(&["--probe", "100ms"]));
        let server = Server::start(serve, directory.path());
        OURS.iter().for_each(|address| {
            first_answer(address);
        });
        server.stop();
    });
}

#[test]
fn a_neighbour_that_claims_our_address_is_answered_and_reported() {
    let test = "addresses::a_neighbour_that_claims_our_address_is_answered_and_reported";
    namespace::inside(test, &["nsenter", "unshare", "tshark"], || {
        let directory = tools::directory();
        let capture = directory.path().join("capture.pcapng");
        let beside = Beside::new();
        let mut serve = beside.server(&both(&["--probe", "100ms"]));
        let serve = serve.arg("--pcap").arg(&capture);
        let mut server = Server::start(serve, directory.path());
        OURS.iter().for_each(|address| {
            first_answer(address);
        });
        // The kernel says where its addresses are when its hardware address changes.
        for knob in ["ipv4/conf/lw1/arp_notify", "ipv6/conf/lw1/ndisc_notify"] {
            std::fs::write(format!("/proc/sys/net/{knob}"), "1").unwrap();
        }
        ip("addr add 10.77.0.2/24 dev lw1");
        ip("addr add fd77::2/64 dev lw1 nodad");
        thread::sleep(ANNOUNCED);
        ip("link set lw1 address 02:00:00:00:00:77");
        let mut told = [server.event("address_conflict"), server.event("address_conflict")];
        told.sort_by_key(|event| event["address"].to_string());
        for (event, address) in told.iter().zip(OURS) {
            assert_eq!(event["address"], address);
            assert_eq!(event["claimant"], "02:00:00:00:00:77");
            assert_eq!(event["kept"], true);
        }
        ip("addr del 10.77.0.2/24 dev lw1");
        ip("addr del fd77::2/64 dev lw1");
        server.stop();
        // Two announcements when it began, and one in its defence.
        for said in ANNOUNCEMENTS {
            let ours = format!("eth.src != 02:00:00:00:00:77 && {said}");
            let lines = tshark(&capture, &ours);
            assert_eq!(lines.lines().count(), 3, "{said}:\n{lines}");
        }
    });
}

/// Frames to a server that say its neighbour is elsewhere: an ARP reply and a neighbour
/// advertisement that nobody has asked for.
fn lies(server: Mac) -> [Vec<u8>; 2] {
    let link = |ethertype| {
        let mut frame = Vec::new();
        Header { destination: server, source: NOWHERE, ethertype }.emit(&mut frame);
        frame
    };
    let (mut over_arp, mut over_ndp) = (link(ethertype::ARP), link(ethertype::IPV6));
    arp::Packet {
        operation: arp::Operation::Reply,
        sender_mac: NOWHERE,
        sender: KERNELS[0].parse().unwrap(),
        target_mac: server,
        target: OURS[0].parse().unwrap(),
    }
    .emit(&mut over_arp);
    let [neighbour, ours]: [Ipv6Addr; 2] = [KERNELS[1], OURS[1]].map(|ip| ip.parse().unwrap());
    icmpv6::Message::Ndp(ndp::Message::NeighbourAdvertisement {
        target: neighbour,
        link_layer: Some(NOWHERE),
        router: false,
        solicited: true,
        overrides: true,
    })
    .emit_packet(neighbour, ours, &mut over_ndp);
    [over_arp, over_ndp]
}

/// Nobody's hardware address.
const NOWHERE: Mac = [2, 0, 0, 0, 0, 0x66];

#[test]
fn a_neighbour_that_is_said_to_be_elsewhere_is_still_answered() {
    let test = "addresses::a_neighbour_that_is_said_to_be_elsewhere_is_still_answered";
    namespace::inside(test, &COMMANDS, || {
        let directory = tools::directory();
        let beside = Beside::new();
        let mut serve = beside.server(&both(&["--probe", "0s", "--mac", "02:00:00:00:00:aa"]));
        let server = Server::start(&mut serve, directory.path());
        OURS.iter().for_each(|address| {
            first_answer(address);
        });
        let mut cable = AfPacket::open("lw1", false).unwrap();
        let mut outbox = Outbox::new(8);
        for lie in [lies([2, 0, 0, 0, 0, 0xaa]), lies([2, 0, 0, 0, 0, 0xaa])].concat() {
            outbox.push().unwrap().head.extend_from_slice(&lie);
        }
        cable.transmit(lightwait_core::Instant::ZERO, &mut outbox).unwrap();
        assert!(outbox.is_empty() && cable.counters().transmitted == 4);
        for address in OURS {
            let time = first_answer(address);
            assert!(time < Duration::from_secs(2), "{address}: {time:?}");
        }
        server.stop();
    });
}

/// A server whose interface is deleted under it: what it says at its end.
fn deleted_under(cable: Cable) -> String {
    let directory = tools::directory();
    cable.prepare();
    let mut serve = Command::new(env!("CARGO_BIN_EXE_lightwait"));
    serve.arg("serve").args(cable.flags()).args(BOTH).stderr(Stdio::piped());
    let server = Server::start(&mut serve, directory.path());
    tools::output(&mut curl(URLS[0]));
    ip("link del lw0");
    let output = server.end();
    assert_eq!(output.status.code(), Some(1));
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn a_server_whose_interface_is_deleted_says_so() {
    let test = "addresses::a_server_whose_interface_is_deleted_says_so";
    namespace::inside(test, &["curl"], || {
        let mut cables = vec![(Cable::PacketSocket, "the interface `lw0` is gone")];
        if namespace::can_make_tap() {
            cables.push((Cable::Tap, "the TAP `lw0` is gone"));
        }
        for (cable, wanted) in cables {
            let text = deleted_under(cable);
            assert!(text.contains(wanted), "{text}");
        }
    });
}

#[test]
fn a_server_reports_its_interface_down_and_resumes_when_up() {
    let test = "addresses::a_server_reports_its_interface_down_and_resumes_when_up";
    namespace::inside(test, &["curl", "tshark"], || {
        let directory = tools::directory();
        let capture = directory.path().join("capture.pcapng");
        let flags = ["--pcap", capture.to_str().unwrap()];
        let mut server = Server::on(Cable::PacketSocket, directory.path(), &flags);
        thread::sleep(ANNOUNCED);
        ip("link set lw0 down");
        let told = |server: &mut Server| server.event("trouble")["text"].to_string();
        assert!(told(&mut server).contains("lw0 is down"));
        ip("link set lw0 up");
        assert!(told(&mut server).contains("lw0 is up again"));
        tools::output(&mut curl(URLS[0]));
        thread::sleep(ANNOUNCED);
        server.stop();
        // Thrice when it began, and thrice again.
        let probes = "arp.opcode == 1 && arp.src.proto_ipv4 == 0.0.0.0";
        assert_eq!(tshark(&capture, probes).lines().count(), 6);
        // Twice when it began, and twice again.
        for said in ANNOUNCEMENTS {
            assert_eq!(tshark(&capture, said).lines().count(), 4, "{said}");
        }
    });
}
