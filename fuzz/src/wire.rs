//! The target `wire`: every parser, on arbitrary bytes, on both media.
//!
//! The first byte chooses the parser, and whether the target corrects checksums first. A packet
//! that parses and can be emitted must parse to the same packet again.

use std::net::IpAddr;

use lightwait_core::capture::pcapng::{self, Block, Reader};
use lightwait_core::capture::pretty::Line;
use lightwait_core::frame::Medium;
use lightwait_core::time::Instant;
use lightwait_core::wire::checksum::{append_and_sum, sum};
use lightwait_core::wire::ip::protocol;
use lightwait_core::wire::options::Options;
use lightwait_core::wire::quoted::Quoted;
use lightwait_core::wire::tcp::{Header, Segment};
use lightwait_core::wire::{arp, ethernet, icmpv4, icmpv6, ip, tcp, udp};

use crate::seal::{seal, seal_packet};
use crate::source::Source;

/// Runs the target on one input. With `trace`, prints the line of each frame.
pub fn run(input: &[u8], trace: bool) {
    let mut source = Source::new(input);
    let (choice, sealed) = (source.below(8), source.flag());
    let mut bytes = source.take_all().to_vec();
    match choice {
        0 | 1 => {
            let medium = if choice == 0 { Medium::Ethernet } else { Medium::Ip };
            if sealed {
                seal(medium, &mut bytes);
            }
            frame(medium, &bytes, trace);
        }
        2 => segment(&bytes),
        3 => options(&bytes),
        4 => arp_packet(&bytes),
        5 if sealed => written_capture(&bytes),
        5 => capture(&bytes),
        6 => {
            let _ = Quoted::parse(&bytes).map(|quoted| (quoted.tcp(), quoted.udp()));
        }
        _ => checksums(&bytes),
    }
}

fn frame(medium: Medium, bytes: &[u8], trace: bool) {
    let line = Line { medium, bytes }.to_string();
    assert!(!line.contains('\n'), "more than a line: {line:?}");
    if trace {
        eprintln!("{line}");
    }
    if medium == Medium::Ip {
        return packet(bytes);
    }
    let Ok(view) = ethernet::Frame::parse(bytes) else { return };
    let ethernet::Frame { destination, source, ethertype, payload } = view;
    let mut out = Vec::new();
    ethernet::Header { destination, source, ethertype }.emit(&mut out);
    out.extend_from_slice(payload);
    assert_eq!(out, bytes);
    arp_packet(payload);
    packet(payload);
}

fn arp_packet(bytes: &[u8]) {
    let Ok(view) = arp::Packet::parse(bytes) else { return };
    let mut out = Vec::new();
    view.emit(&mut out);
    assert_eq!(out, bytes[..arp::PACKET_BYTES]);
}

fn packet(bytes: &[u8]) {
    let Ok(view) = ip::Packet::parse(bytes) else { return };
    assert!(view.payload.len() < view.bytes.len() && view.bytes.len() <= bytes.len());
    assert_eq!(view.source.is_ipv4(), view.destination.is_ipv4());
    if view.fragment.is_none() {
        emit_packet(&view);
    }
    match view.protocol {
        protocol::TCP => {
            let _ = tcp::verify_checksum(view.payload, view.source, view.destination);
            segment(view.payload);
        }
        protocol::UDP => datagram(&view),
        protocol::ICMPV4 => icmpv4_message(view.payload),
        protocol::ICMPV6 => icmpv6_message(&view),
        _ => {}
    }
}

/// A packet without its options and extension headers must come back.
fn emit_packet(view: &ip::Packet<'_>) {
    let (source, destination) = (view.source, view.destination);
    let Some(mut header) = ip::Header::new(source, destination, view.protocol, view.payload.len())
    else {
        panic!("what was parsed fits in a packet");
    };
    header.hop_limit = view.hop_limit;
    header.traffic_class = view.traffic_class;
    header.dont_fragment = view.dont_fragment;
    let mut out = Vec::new();
    header.emit(&mut out);
    assert_eq!(out.len(), header.header_len());
    out.extend_from_slice(view.payload);
    assert_eq!(ip::Packet::parse(&out), Ok(ip::Packet { bytes: &out, ..*view }));
}

/// A datagram without what lies behind its length must come back, its checksum right.
fn datagram(packet: &ip::Packet<'_>) {
    let Ok(view) = udp::Datagram::parse(packet.payload) else { return };
    let header = udp::Header {
        source_port: view.source_port,
        destination_port: view.destination_port,
        len: (udp::HEADER_BYTES + view.payload.len()) as u16,
    };
    let (source, destination) = (packet.source, packet.destination);
    let mut out = Vec::new();
    header.emit(header.checksum(source, destination, sum(view.payload)), &mut out);
    out.extend_from_slice(view.payload);
    let again = udp::Datagram::parse(&out).expect("what is emitted is parsed");
    assert!(again.is_sound(source, destination));
    assert_eq!(again.payload, view.payload);
}

fn segment(bytes: &[u8]) {
    let Ok(view) = Segment::parse(bytes) else { return };
    let header = Header {
        source_port: view.source_port,
        destination_port: view.destination_port,
        seq: view.seq,
        ack: view.ack,
        flags: view.flags,
        window: view.window,
        urgent: view.urgent,
        options: view.options,
    };
    let mut out = Vec::new();
    header.emit(&mut out);
    assert_eq!(out.len(), header.header_len());
    let addresses: [IpAddr; 2] = [[10, 0, 0, 1].into(), [10, 0, 0, 2].into()];
    let payload = sum(view.payload);
    let checksum = tcp::checksum(addresses[0], addresses[1], &out, payload, view.payload.len());
    out[tcp::CHECKSUM_OFFSET..][..2].copy_from_slice(&checksum.to_be_bytes());
    out.extend_from_slice(view.payload);
    assert!(tcp::verify_checksum(&out, addresses[0], addresses[1]));
    let again = Segment::parse(&out).expect("what is emitted is parsed");
    let options = kept(&view.options);
    assert_eq!(again, Segment { options, ..view });
}

/// The options that are emitted: SACK blocks give way to the others.
fn kept(options: &Options) -> Options {
    let mut kept = *options;
    kept.sack = lightwait_core::wire::options::SackBlocks::EMPTY;
    for block in options.sack.iter().take(options.sack_room()) {
        kept.sack.push(block);
    }
    kept
}

fn options(bytes: &[u8]) {
    let Ok(options) = Options::parse(bytes) else { return };
    let mut out = Vec::new();
    options.emit(&mut out);
    assert_eq!(out.len(), options.len());
    assert!(out.len() <= lightwait_core::wire::options::MAX_OPTIONS_BYTES);
    assert_eq!(Options::parse(&out), Ok(kept(&options)));
}

fn icmpv4_message(bytes: &[u8]) {
    let Ok(message) = icmpv4::Message::parse(bytes) else { return };
    let mut out = Vec::new();
    message.emit(&mut out);
    let again = icmpv4::Message::parse(&out).expect("what is emitted is parsed");
    let cut = matches!(
        message,
        icmpv4::Message::Unreachable { quoted, .. }
        | icmpv4::Message::TimeExceeded { quoted, .. }
        | icmpv4::Message::ParameterProblem { quoted, .. }
            if quoted.len() > icmpv4::MAX_QUOTED_BYTES
    );
    assert!(cut || again == message, "{message:?} came back as {again:?}");
    let mut twice = Vec::new();
    again.emit(&mut twice);
    assert_eq!(out, twice);
}

fn icmpv6_message(view: &ip::Packet<'_>) {
    let (IpAddr::V6(source), IpAddr::V6(destination)) = (view.source, view.destination) else {
        return;
    };
    let Ok(message) = icmpv6::Message::parse(view) else { return };
    // Listener discovery sends only whole packets.
    if matches!(message, icmpv6::Message::Mld(_)) {
        return;
    }
    let mut out = Vec::new();
    message.emit(source, destination, &mut out);
    let again = icmpv6::Message::parse(&ip::Packet { payload: &out, ..*view });
    let again = again.expect("what is emitted is parsed");
    let cut = view.payload.len() > 8 + icmpv6::MAX_QUOTED_BYTES;
    assert!(cut || again == message, "{message:?} came back as {again:?}");
    let mut twice = Vec::new();
    again.emit(source, destination, &mut twice);
    assert_eq!(out, twice);
}

fn capture(bytes: &[u8]) {
    let mut blocks = 0;
    for block in Reader::new(bytes) {
        blocks += 1;
        assert!(blocks <= bytes.len() / 12 + 1, "more blocks than there is room for");
        let Ok(Block::Packet { interface, time, direction, bytes, .. }) = block else { continue };
        let mut out = Vec::new();
        pcapng::packet(interface, time, direction, bytes, &mut out);
        let original_len = bytes.len() as u32;
        let expected = Block::Packet { interface, time, direction, original_len, bytes };
        assert_eq!(Reader::new(&out).next(), Some(Ok(expected)));
    }
}

/// Checks that written bytes parse to the same value.
fn written_capture(bytes: &[u8]) {
    let mut source = Source::new(bytes);
    let medium = if source.flag() { Medium::Ethernet } else { Medium::Ip };
    let direction =
        source.pick(&[None, Some(pcapng::Direction::Inbound), Some(pcapng::Direction::Outbound)]);
    let time = Instant::from_nanos(u64::from(source.u32()) << source.below(32));
    let name_len = source.below(256);
    let name = String::from_utf8_lossy(source.take(name_len)).into_owned();
    let frame = source.take_all();
    let mut out = Vec::new();
    pcapng::section(&mut out);
    pcapng::interface(medium, &name, &mut out);
    pcapng::packet(0, time, direction, frame, &mut out);
    let original_len = frame.len() as u32;
    let expected = [
        Block::Section,
        Block::Interface { medium: Some(medium) },
        Block::Packet { interface: 0, time, direction, original_len, bytes: frame },
    ];
    let read: Result<Vec<Block<'_>>, _> = Reader::new(&out).collect();
    assert_eq!(read.as_deref(), Ok(&expected[..]));
}

fn checksums(bytes: &[u8]) {
    let mut source = Source::new(bytes);
    let at = source.below(bytes.len() + 1);
    let (a, b) = bytes.split_at(at);
    let mut out = Vec::new();
    let copied = append_and_sum(&mut out, bytes);
    assert_eq!(out, bytes);
    assert_eq!(copied.fold(), sum(a).then(sum(b)).fold());
    seal_packet(&mut out);
    let sealed = out.clone();
    seal_packet(&mut out);
    assert_eq!(out, sealed, "sealing twice changes nothing");
}
