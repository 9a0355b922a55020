//! Packets with options and extension headers: what is ignored, what is refused, and what its
//! sender hears (RFC 1122 §3.2.1.8, RFC 7126, RFC 8200 §4).

use std::vec::Vec;

use core::net::{IpAddr, Ipv6Addr};

use super::link::{Cable, host};
use crate::time::Duration;
use crate::wire::ip::{self, Packet, protocol};
use crate::wire::ipv6::next_header::{DESTINATION_OPTIONS, FRAGMENT, NONE, ROUTING};
use crate::wire::{checksum, icmpv4, icmpv6};

const ICMPV6: u8 = protocol::ICMPV6;
const US: &str = "fd00::1";
const THEM: &str = "fd00::2";
/// An option that nobody knows, by what its type asks for: to be skipped, that the packet be
/// dropped, that its sender hear of it, and that only if it went to us alone.
const SKIPPED: u8 = 0x1e;
const DROPPED: u8 = 0x5e;
const TOLD: u8 = 0x9e;
const TOLD_BUT_OF_GROUPS: u8 = 0xde;

/// A cable whose addresses are all verified.
fn cable() -> Cable {
    let mut cable = Cable::two();
    cable.pass(Duration::from_secs(2));
    cable.seen.clear();
    cable
}

fn packet(from: &str, to: &str, next: u8, payload: &[u8]) -> Vec<u8> {
    let [from, to]: [IpAddr; 2] = [from, to].map(|address| address.parse().unwrap());
    let mut bytes = Vec::new();
    ip::Header::new(from, to, next, payload.len()).unwrap().emit(&mut bytes);
    bytes.extend_from_slice(payload);
    bytes
}

/// A destination options header with one byte of padding and an option of this type.
fn options(next: u8, kind: u8) -> [u8; 8] {
    [next, 0, 0, kind, 2, 0, 0, 0]
}

/// A message to that address behind such a header.
fn message_behind(kind: u8, to: &str, message: &icmpv6::Message<'_>) -> Vec<u8> {
    let [from, destination]: [Ipv6Addr; 2] = [THEM, to].map(|address| address.parse().unwrap());
    let mut payload = options(ICMPV6, kind).to_vec();
    message.emit(from, destination, &mut payload);
    packet(THEM, to, DESTINATION_OPTIONS, &payload)
}

fn echo_behind(kind: u8, to: &str) -> Vec<u8> {
    let echo = icmpv4::Echo { id: 1, seq: 2, data: &[7; 10] };
    message_behind(kind, to, &icmpv6::Message::EchoRequest(echo))
}

/// What of ICMP, but for neighbour and listener discovery, the first host answers to a packet: the
/// sender's address, type, code, pointer and what is quoted, or comes back.
fn answers(cable: &mut Cable, sent: &[u8]) -> Vec<(IpAddr, u8, u8, u32, Vec<u8>)> {
    cable.inject(sent);
    cable.settle();
    let frames = core::mem::take(&mut cable.seen);
    let ours = frames.iter().filter(|bytes| bytes[6..12] == [2, 0, 0, 0, 0, 1]);
    let packets = ours.filter_map(|bytes| Packet::parse(&bytes[14..]).ok());
    let is_icmp = |packet: &Packet<'_>| match packet.protocol {
        protocol::ICMPV4 => true,
        ICMPV6 => !(130..=143).contains(&packet.payload[0]),
        _ => false,
    };
    let answer = |packet: Packet<'_>| {
        let [kind, code, _, _, a, b, c, d, ref data @ ..] = *packet.payload else { panic!() };
        (packet.source, kind, code, u32::from_be_bytes([a, b, c, d]), data.to_vec())
    };
    packets.filter(is_icmp).map(answer).collect()
}

/// The parameter problem of ICMPv6 about `sent`.
fn problem(code: u8, pointer: u32, sent: &[u8]) -> Vec<(IpAddr, u8, u8, u32, Vec<u8>)> {
    [(US.parse().unwrap(), 4, code, pointer, sent.to_vec())].into()
}

#[test]
fn an_unknown_option_is_treated_as_its_type_asks() {
    let mut cable = cable();
    let replies = answers(&mut cable, &echo_behind(SKIPPED, US));
    assert_eq!(replies.len(), 1);
    assert_eq!((replies[0].1, &replies[0].4[..]), (129, &[7; 10][..]), "an echo reply");
    assert!(answers(&mut cable, &echo_behind(DROPPED, US)).is_empty());
    for kind in [TOLD, TOLD_BUT_OF_GROUPS] {
        let sent = echo_behind(kind, US);
        assert_eq!(answers(&mut cable, &sent), problem(2, 43, &sent));
    }
    let counters = cable.hosts[0].counters();
    assert_eq!((counters.header_problems, counters.frames_malformed), (2, 3));
}

#[test]
fn an_unknown_option_to_a_group_is_told_of_if_its_type_asks() {
    let mut cable = cable();
    let sent = echo_behind(TOLD, "ff02::1");
    assert_eq!(answers(&mut cable, &sent), problem(2, 43, &sent));
    assert!(answers(&mut cable, &echo_behind(TOLD_BUT_OF_GROUPS, "ff02::1")).is_empty());
    // Nor is one to a group that we do not listen to, or another's address.
    assert!(answers(&mut cable, &echo_behind(TOLD, "ff02::1234")).is_empty());
    assert!(answers(&mut cable, &echo_behind(TOLD, "fd00::9")).is_empty());
}

#[test]
fn no_error_and_nobody_is_told_of_a_problem() {
    let mut cable = cable();
    let unreachable = icmpv6::Message::Unreachable { code: 4, quoted: &[0; 48] };
    assert!(answers(&mut cable, &message_behind(TOLD, US, &unreachable)).is_empty());
    for from in ["::", "ff02::1", US] {
        let mut sent = echo_behind(TOLD, US);
        sent[8..24].copy_from_slice(&from.parse::<Ipv6Addr>().unwrap().octets());
        assert!(answers(&mut cable, &sent).is_empty(), "{from}");
    }
    assert_eq!(cable.hosts[0].counters().header_problems, 0);
}

#[test]
fn problems_are_told_within_the_limit_on_answers() {
    let mut configs = [host(&["fd00::1/64"], 1), host(&["fd00::2/64"], 2)];
    configs[0].limits.replies_per_second = 3;
    let mut cable = Cable::new(configs.into());
    cable.pass(Duration::from_secs(2));
    cable.seen.clear();
    let sent = echo_behind(TOLD, US);
    let told: usize = (0..5).map(|_| answers(&mut cable, &sent).len()).sum();
    let counters = cable.hosts[0].counters();
    assert_eq!((told, counters.header_problems, counters.replies_suppressed), (3, 3, 2));
}

#[test]
fn a_bad_extension_header_is_pointed_at() {
    let mut cable = cable();
    // A routing header that names a way on, by its type.
    let sent = packet(THEM, US, ROUTING, &[6, 0, 9, 1, 0, 0, 0, 0]);
    assert_eq!(answers(&mut cable, &sent), problem(0, 42, &sent));
    // Hop-by-hop options behind others.
    let sent = packet(THEM, US, DESTINATION_OPTIONS, &[options(0, 1), options(6, 1)].concat());
    assert_eq!(answers(&mut cable, &sent), problem(1, 40, &sent));
    // A fragment, not the last, of 9 bytes: by the payload length. One that reaches too far: by
    // its offset.
    let sent = packet(THEM, US, FRAGMENT, &[&[17, 0, 0, 1, 0, 0, 0, 1][..], &[0; 9]].concat());
    assert_eq!(answers(&mut cable, &sent), problem(0, 4, &sent));
    let far = [17, 0, 0xff, 0xf8, 0, 0, 0, 1];
    let sent = packet(THEM, US, FRAGMENT, &[&far[..], &[0; 8]].concat());
    assert_eq!(answers(&mut cable, &sent), problem(0, 42, &sent));
    // A first fragment that ends within the header of TCP.
    let sent = packet(THEM, US, FRAGMENT, &[&[6, 0, 0, 1, 0, 0, 0, 1][..], &[0; 16]].concat());
    assert_eq!(answers(&mut cable, &sent), problem(3, 0, &sent));
    // A protocol that we do not speak, behind options; and nothing, which needs none.
    let sent = packet(THEM, US, DESTINATION_OPTIONS, &options(200, SKIPPED));
    assert_eq!(answers(&mut cable, &sent), problem(1, 40, &sent));
    let sent = packet(THEM, US, DESTINATION_OPTIONS, &options(NONE, SKIPPED));
    assert!(answers(&mut cable, &sent).is_empty());
}

#[test]
fn an_unknown_option_is_found_once_its_fragments_are_together() {
    let mut cable = cable();
    let headers = [options(17, TOLD), [7; 8]].concat();
    let first = [&[DESTINATION_OPTIONS, 0, 0, 1, 0, 0, 0, 1][..], &headers].concat();
    assert!(answers(&mut cable, &packet(THEM, US, FRAGMENT, &first)).is_empty());
    let last = [&[DESTINATION_OPTIONS, 0, 0, 16, 0, 0, 0, 1][..], &[7; 8]].concat();
    let whole = packet(THEM, US, DESTINATION_OPTIONS, &[&headers[..], &[7; 8]].concat());
    let told = answers(&mut cable, &packet(THEM, US, FRAGMENT, &last));
    assert_eq!(told, problem(2, 43, &whole));
}

/// An echo request from 10.0.0.2 to 10.0.0.1 with these IP options.
fn echo_with(options: &[u8]) -> Vec<u8> {
    let mut payload = options.to_vec();
    let echo = icmpv4::Echo { id: 1, seq: 2, data: &[7; 10] };
    icmpv4::Message::EchoRequest(echo).emit(&mut payload);
    let mut bytes = packet("10.0.0.2", "10.0.0.1", protocol::ICMPV4, &payload);
    let header_len = 20 + options.len();
    bytes[0] = 0x40 | (header_len / 4) as u8;
    bytes[10..12].fill(0);
    let value = checksum::sum(&bytes[..header_len]).checksum();
    bytes[10..12].copy_from_slice(&value.to_be_bytes());
    bytes
}

#[test]
fn options_of_ipv4_are_ignored_but_for_source_routes() {
    let mut cable = cable();
    // A record of the route, a time stamp, a router alert, and one that nobody knows.
    let known = [7, 7, 4, 0, 0, 0, 0, 68, 8, 5, 0, 0, 0, 0, 0, 148, 4, 0, 0, 0];
    for options in [&known[..], &[99, 4, 1, 2]] {
        let replies = answers(&mut cable, &echo_with(options));
        assert_eq!(replies.len(), 1);
        assert_eq!((replies[0].1, &replies[0].4[..]), (0, &[7; 10][..]), "an echo reply");
    }
    for kind in [131, 137] {
        // It goes on to 10.0.0.9: "source route failed".
        let sent = echo_with(&[kind, 7, 4, 10, 0, 0, 9, 0]);
        let told = answers(&mut cable, &sent);
        let expected = ("10.0.0.1".parse().unwrap(), 3, 5, 0, sent);
        assert_eq!(told, [expected]);
        // It ends here, and nothing is answered along it.
        assert!(answers(&mut cable, &echo_with(&[kind, 7, 8, 10, 0, 0, 9, 0])).is_empty());
    }
    let sent = echo_with(&[1, 99, 9, 0]);
    let expected = ("10.0.0.1".parse().unwrap(), 12, 0, 22 << 24, sent.clone());
    assert_eq!(answers(&mut cable, &sent), [expected]);
    assert_eq!(cable.hosts[0].counters().header_problems, 3);
}
