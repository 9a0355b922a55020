use crate::capture::pretty::*;
use crate::flow::Seq;
use crate::wire::ethernet;
use crate::wire::ip::Header as IpHeader;
use crate::wire::options::{SackBlock, Timestamps};
use crate::wire::tcp::Header as TcpHeader;
use alloc::string::String;
use alloc::vec::Vec;
use proptest::collection::vec;
use proptest::prelude::*;
use std::format;
use std::string::ToString;

fn line(bytes: &[u8]) -> String {
    Line { medium: Medium::Ip, bytes }.to_string()
}

fn ip(source: &str, destination: &str, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let (source, destination) = (source.parse().unwrap(), destination.parse().unwrap());
    let mut bytes = Vec::new();
    IpHeader::new(source, destination, protocol, payload.len()).unwrap().emit(&mut bytes);
    bytes.extend_from_slice(payload);
    bytes
}

fn segment(flags: Flags, options: Options, payload: &[u8]) -> Vec<u8> {
    let header = TcpHeader {
        source_port: 1234,
        destination_port: 80,
        seq: Seq(1),
        ack: Seq(77),
        flags,
        window: 65535,
        urgent: 3,
        options,
    };
    let mut bytes = Vec::new();
    header.emit(&mut bytes);
    bytes.extend_from_slice(payload);
    bytes
}

#[test]
fn segments_read_like_tcpdump() {
    let mut options = Options {
        mss: Some(1460),
        sack_permitted: true,
        timestamps: Some(Timestamps { value: 7, echo: 0 }),
        window_scale: Some(7),
        ..Options::default()
    };
    let syn = ip("10.0.0.1", "10.0.0.2", 6, &segment(Flags::SYN, options, b""));
    assert_eq!(
        line(&syn),
        "10.0.0.1:1234 > 10.0.0.2:80: S 1:1(0) win 65535 \
         <mss 1460,sackOK,TS val 7 ecr 0,wscale 7>"
    );
    options = Options::default();
    options.sack.push(SackBlock { start: Seq(5), end: Seq(9) });
    options.experimental.push(253, &[0xab, 0x0c]);
    let data = segment(Flags::PSH | Flags::ACK | Flags::URG, options, b"hello");
    assert_eq!(
        line(&ip("fd00::1", "fd00::2", 6, &data)),
        "[fd00::1]:1234 > [fd00::2]:80: PU. 1:6(5) ack 77 win 65535 urg 3 \
         <sack 5:9,exp-253 ab0c>"
    );
    let ack = segment(Flags::ACK, Options::default(), b"");
    assert_eq!(
        line(&ip("10.0.0.1", "10.0.0.2", 6, &ack)),
        "10.0.0.1:1234 > 10.0.0.2:80: . ack 77 win 65535"
    );
}

#[test]
fn other_packets_have_their_lines() {
    assert_eq!(
        line(&ip("10.0.0.1", "10.0.0.2", 17, &[0, 53, 1, 0, 0, 9, 0, 0, 7])),
        "10.0.0.1:53 > 10.0.0.2:256: UDP, 1 bytes"
    );
    assert_eq!(
        line(&ip("10.0.0.1", "10.0.0.2", 47, &[0; 9])),
        "10.0.0.1 > 10.0.0.2: protocol 47, 9 bytes"
    );
    let mut echo = Vec::new();
    icmpv4::Message::EchoRequest(Echo { id: 1, seq: 2, data: b"xyz" }).emit(&mut echo);
    assert_eq!(
        line(&ip("10.0.0.1", "10.0.0.2", 1, &echo)),
        "10.0.0.1 > 10.0.0.2: ICMP echo request, id 1, seq 2, 3 bytes"
    );
    let about = ip("10.0.0.2", "10.0.0.1", 6, &segment(Flags::ACK, Options::default(), b""));
    let mut error = Vec::new();
    icmpv4::Message::Unreachable { code: 4, next_hop_mtu: 1400, quoted: &about }.emit(&mut error);
    assert_eq!(
        line(&ip("10.0.0.9", "10.0.0.2", 1, &error)),
        "10.0.0.9 > 10.0.0.2: ICMP unreachable (code 4) mtu 1400, \
         about 10.0.0.2:1234 > 10.0.0.1:80 at 1"
    );
    let solicit = ndp::Message::NeighbourSolicit {
        target: "fe80::2".parse().unwrap(),
        link_layer: Some([2, 0, 0, 0, 0, 0xff]),
        nonce: None,
    };
    let (from, to) = ("fe80::1".parse().unwrap(), "fe80::2".parse().unwrap());
    let mut bytes = Vec::new();
    assert!(icmpv6::Message::Ndp(solicit).emit_packet(from, to, &mut bytes));
    assert_eq!(line(&bytes), "fe80::1 > fe80::2: ICMP6 who has fe80::2, from 02:00:00:00:00:ff");
    let fragment = crate::wire::ipv4::tests::fragment(0x1f, 8, true, &[0; 16]);
    assert_eq!(line(&fragment), "10.0.0.1 > 10.0.0.2: fragment 0x1f 8:16+");
}

#[test]
fn frames_of_ethernet_are_looked_into() {
    let source = [2, 0, 0, 0, 0, 1];
    let header = |ethertype| ethernet::Header { destination: [0xff; 6], source, ethertype };
    let shown = |ethertype, payload: &[u8]| {
        let mut bytes = Vec::new();
        header(ethertype).emit(&mut bytes);
        bytes.extend_from_slice(payload);
        Line { medium: Medium::Ethernet, bytes: &bytes }.to_string()
    };
    let mut packet = arp::Packet {
        operation: arp::Operation::Request,
        sender_mac: source,
        sender: "10.0.0.1".parse().unwrap(),
        target_mac: [0; 6],
        target: "10.0.0.2".parse().unwrap(),
    };
    let emitted = |packet: &arp::Packet| {
        let mut bytes = Vec::new();
        packet.emit(&mut bytes);
        bytes
    };
    assert_eq!(shown(ethertype::ARP, &emitted(&packet)), "ARP who-has 10.0.0.2 tell 10.0.0.1");
    packet.operation = arp::Operation::Reply;
    let reply = "ARP 10.0.0.1 is-at 02:00:00:00:00:01";
    assert_eq!(shown(ethertype::ARP, &emitted(&packet)), reply);
    assert_eq!(
        shown(0x88cc, &[0; 4]),
        "02:00:00:00:00:01 > ff:ff:ff:ff:ff:ff: ethertype 0x88cc, 4 bytes"
    );
    let inner = ip("10.0.0.1", "10.0.0.2", 47, &[]);
    assert_eq!(shown(ethertype::IPV4, &inner), line(&inner));
    let mut tagged = [0xe0, 5, 0x81, 0, 0, 7, 8, 0].to_vec();
    tagged.extend_from_slice(&inner);
    let behind_tags = format!("vlan 5 vlan 7 {}", line(&inner));
    assert_eq!(shown(ethertype::PROVIDER_VLAN, &tagged), behind_tags);
    assert_eq!(shown(ethertype::ARP, &[]), "malformed: arp: packet too short (14 bytes)");
}

#[test]
fn what_cannot_be_read_is_said_to_be_malformed() {
    assert_eq!(line(&[]), "malformed: ip: unknown version (0 bytes)");
    let short = ip("10.0.0.1", "10.0.0.2", 6, &[0; 19]);
    assert_eq!(line(&short), "malformed: tcp: segment too short (39 bytes)");
}

proptest! {
    #[test]
    fn any_bytes_have_one_line(
        bytes in vec(any::<u8>(), 0..120), protocol in prop::sample::select(&[1u8, 6, 17, 58][..]),
        six: bool, framed in 0..4,
    ) {
        let (a, b) = if six { ("fe80::1", "fe80::2") } else { ("10.0.0.1", "10.0.0.2") };
        let (medium, bytes) = match framed {
            0 => (Medium::Ethernet, bytes),
            1 => (Medium::Ip, bytes),
            _ => (Medium::Ip, ip(a, b, protocol, &bytes)),
        };
        let line = format!("{}", Line { medium, bytes: &bytes });
        prop_assert!(!line.is_empty() && !line.contains('\n'));
    }
}
