//! Frames with VLAN tags: `lightwait wan` passes them with their tags, and a server takes none of a
//! VLAN.
//!
//! The tagged frames are our own, so that the kernel needs no VLANs; where it has them, two kernels
//! talk in theirs through the router.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use lightwait::device::{AfPacket, Device};
use lightwait_core::Outbox;
use lightwait_core::wire::arp;
use lightwait_core::wire::ethernet::{BROADCAST, Header, Mac, ethertype};

use crate::namespace::{self, Namespace, ip};
use crate::server::{Cable, OURS, Server};
use crate::tools;
use crate::wan::{Wan, alone, lay_cables};

/// A station that the test plays.
const STATION: Mac = [2, 0, 0, 0, 0, 0x99];
const STATIONS_ADDRESS: &str = "10.77.0.9";

/// Tags that make no VLAN: none, and priorities alone. Each is a type and its control bits.
const OUTSIDE: [&[(u16, u16)]; 3] = [&[], &[(0x8100, 0xe000)], &[(0x88a8, 0x2000), (0x8100, 0)]];

/// Tags of a VLAN: a customer's, a provider's, both.
const INSIDE: [&[(u16, u16)]; 3] =
    [&[(0x8100, 0x6007)], &[(0x88a8, 5)], &[(0x88a8, 5), (0x8100, 7)]];

/// Asks who has the server's address, behind these tags.
fn question(tags: &[(u16, u16)]) -> Vec<u8> {
    let mut frame = Vec::new();
    let header = Header { destination: BROADCAST, source: STATION, ethertype: ethertype::ARP };
    header.emit(&mut frame);
    arp::Packet {
        operation: arp::Operation::Request,
        sender_mac: STATION,
        sender: STATIONS_ADDRESS.parse().unwrap(),
        target_mac: [0; 6],
        target: OURS[0].parse().unwrap(),
    }
    .emit(&mut frame);
    let tags = tags.iter().flat_map(|(kind, control)| [kind.to_be_bytes(), control.to_be_bytes()]);
    [&frame[..12], &tags.flatten().collect::<Vec<u8>>(), &frame[12..]].concat()
}

fn send(device: &mut AfPacket, bytes: &[u8]) {
    let mut outbox = Outbox::new(1);
    outbox.push().unwrap().head.extend_from_slice(bytes);
    device.transmit(lightwait_core::Instant::ZERO, &mut outbox).unwrap();
    assert!(outbox.is_empty());
}

/// The first frame within `time` that `wanted` accepts.
fn receive(
    device: &mut AfPacket,
    time: Duration,
    wanted: impl Fn(&[u8]) -> bool,
) -> Option<Vec<u8>> {
    let (begin, mut found) = (Instant::now(), None);
    while found.is_none() && begin.elapsed() < time {
        device
            .receive(lightwait_core::Instant::ZERO, 64, &mut |frames| {
                let mut wanted = frames.iter().map(|frame| frame.bytes).filter(|b| wanted(b));
                found = found.take().or_else(|| wanted.next().map(<[u8]>::to_vec));
            })
            .unwrap();
        std::thread::sleep(Duration::from_millis(1));
    }
    found
}

/// Something for the kernel's counters.
fn touch_kernel() {
    drop(TcpStream::connect("127.0.0.1:1"));
}

/// Sends frames with every kind of tags into one end, and expects each at the other.
fn check_tags(from: &str, to: &str) {
    let [mut from, mut to] = [from, to].map(|name| AfPacket::open(name, true).unwrap());
    let mut passes = |frame: &[u8], time| {
        send(&mut from, frame);
        receive(&mut to, time, |bytes| bytes == frame).is_some()
    };
    // Interfaces that have just come up lose frames.
    let soon = Duration::from_millis(100);
    assert!((0..100).any(|_| passes(&question(&[]), soon)), "frames pass");
    for tags in OUTSIDE.into_iter().chain(INSIDE) {
        assert!(passes(&question(tags), Duration::from_secs(5)), "{tags:x?}");
    }
    // A full frame, and its tag.
    let mut full = question(INSIDE[0]);
    full.resize(14 + 1500 + 4, 7);
    assert!(passes(&full, Duration::from_secs(5)), "a full frame with a tag");
}

#[test]
fn frames_pass_the_router_with_their_tags() {
    let _alone = alone();
    namespace::inside("vlan::frames_pass_the_router_with_their_tags", &[], || {
        touch_kernel();
        lay_cables();
        ip("link set lw3 up");
        let wan = Wan::start(["lw1", "lw2"], &[]);
        check_tags("lw0", "lw3");
        check_tags("lw3", "lw0");
        let report = wan.stop();
        for way in ["a_to_b", "b_to_a"] {
            assert_eq!(report[way]["refused_by_device"], 0, "{report}");
        }
        if namespace::can_make_tap() {
            let wan = Wan::start(["tap:lw4", "tap:lw5"], &[]);
            check_tags("lw4", "lw5");
            wan.stop();
        }
    });
}

/// What the router reports of a full frame with two tags that it got from a cable with room for it.
fn refused_at(mtu: u32) -> bool {
    ip(&format!("link set lw2 mtu {mtu}"));
    let wan = Wan::start(["lw1", "lw2"], &[]);
    let [mut from, mut to] = ["lw0", "lw3"].map(|name| AfPacket::open(name, true).unwrap());
    let mut frame = question(INSIDE[2]);
    frame.resize(14 + 1500 + 8, 7);
    send(&mut from, &frame);
    let passed = receive(&mut to, Duration::from_secs(2), |bytes| bytes == frame).is_some();
    let report = wan.stop();
    let refused = report["a_to_b"]["refused_by_device"] == 1;
    assert!(passed != refused, "{report}");
    assert_eq!(report["warnings"].to_string().contains("MTU"), refused, "{report}");
    refused
}

#[test]
fn a_full_frame_with_two_tags_needs_the_mtu_for_them() {
    let _alone = alone();
    namespace::inside("vlan::a_full_frame_with_two_tags_needs_the_mtu_for_them", &[], || {
        touch_kernel();
        lay_cables();
        ["lw0", "lw1", "lw3"].into_iter().for_each(|end| ip(&format!("link set {end} mtu 1508")));
        ["lw1", "lw2", "lw3"].into_iter().for_each(|end| ip(&format!("link set {end} up")));
        std::thread::sleep(Duration::from_millis(500));
        assert!(!refused_at(1508));
        assert!(refused_at(1500));
    });
}

#[test]
fn a_server_takes_no_frame_of_a_vlan_and_counts_it() {
    namespace::inside("vlan::a_server_takes_no_frame_of_a_vlan_and_counts_it", &[], || {
        let directory = tools::directory();
        let server = Server::on(Cable::PacketSocket, directory.path(), &[]);
        let mut cable = AfPacket::open("lw1", true).unwrap();
        let mut answers = |tags, time| {
            send(&mut cable, &question(tags));
            let answer = receive(&mut cable, time, |b| b[..6] == STATION);
            answer.is_some_and(|answer| answer[12..14] == ethertype::ARP.to_be_bytes())
        };
        for tags in OUTSIDE {
            assert!(answers(tags, Duration::from_secs(5)), "{tags:x?}");
        }
        for tags in INSIDE {
            assert!(!answers(tags, Duration::from_millis(500)), "{tags:x?}");
        }
        assert!(answers(&[], Duration::from_secs(5)), "it still serves");
        let text = server.stop_and_tell();
        let events = text.lines().map(serde_json::from_str::<serde_json::Value>);
        let counts = events.map(Result::unwrap).find(|event| event["event"] == "counts").unwrap();
        assert_eq!(counts["counters"]["vlan_unknown"], 3, "{counts}");
    });
}

/// Makes interfaces over `base`, each over the one before, of these kinds. Returns the last one's
/// name; `None` if this kernel has no such kind.
fn stacked(ip: impl Fn(&[&str]) -> bool, base: &str, kinds: &[&str]) -> Option<String> {
    let mut name = base.to_owned();
    for (number, kind) in kinds.iter().enumerate() {
        let upper = format!("{base}v{number}");
        let words = ["link", "add", "link", &name, "name", &upper, "type", "vlan"];
        if !ip(&[&words[..], &kind.split(' ').collect::<Vec<_>>()].concat()) {
            return None;
        }
        ip(&["link", "set", &upper, "up"]);
        name = upper;
    }
    Some(name)
}

/// Two kernels, each behind a cable of the router's, with addresses of their own on interfaces of
/// these kinds. The far one refuses a connection: its answer has come. False if this kernel has no
/// such kind.
fn kernels_talk(kinds: &[&str]) -> bool {
    let far = Namespace::new();
    lay_cables();
    far.take("lw3");
    far.ip("link set lw3 up");
    let near = |words: &[&str]| tools::command("ip").args(words).status().unwrap().success();
    let there = |words: &[&str]| far.command("ip").args(words).status().unwrap().success();
    let upper = stacked(near, "lw0", kinds).zip(stacked(there, "lw3", kinds));
    if let Some((here, beyond)) = &upper {
        ip(&format!("addr add 10.88.0.1/24 dev {here}"));
        far.ip(&format!("addr add 10.88.0.2/24 dev {beyond}"));
        let wan = Wan::start(["lw1", "lw2"], &[]);
        let to = SocketAddr::from(([10, 88, 0, 2], 9));
        let open = || TcpStream::connect_timeout(&to, Duration::from_secs(1)).unwrap_err().kind();
        assert!((0..10).any(|_| open() == ErrorKind::ConnectionRefused), "{kinds:?}");
        wan.stop();
    }
    ["lw0", "lw2"].into_iter().for_each(|end| ip(&format!("link del {end}")));
    upper.is_some()
}

#[test]
fn kernels_talk_in_their_vlans_through_the_router() {
    let _alone = alone();
    let test = "vlan::kernels_talk_in_their_vlans_through_the_router";
    namespace::inside(test, &["nsenter"], || {
        touch_kernel();
        assert!(kernels_talk(&[]), "without a VLAN");
        for kinds in [&["id 7"][..], &["id 0"], &["proto 802.1ad id 5"], &["id 5", "id 7"]] {
            if !kernels_talk(kinds) {
                eprintln!("left out: {kinds:?}: this kernel has no VLANs (8021q)");
                return;
            }
        }
    });
}
