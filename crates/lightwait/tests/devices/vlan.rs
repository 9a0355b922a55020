//! Frames with VLAN tags between packet sockets: the kernel takes the outer tag out of each.

use std::net::IpAddr;
use std::time::{Duration, Instant as Moment};

use lightwait::device::{AfPacket, Device};
use lightwait::wrap::Plain;
use lightwait_core::flow::Seq;
use lightwait_core::frame::{Segmentation, TxChecksum};
use lightwait_core::wire::options::Options;
use lightwait_core::wire::{ip, tcp};
use lightwait_core::{Instant, Outbox, RxFrame};

use crate::frames::{BROADCAST, OUR_MAC, arp};
use crate::namespace::{inside, ip as ip_command};
use crate::{KERNEL, OURS, receive, receive_within, send};

/// Tags, each a type and its control bits: none; a VLAN; a priority alone; a provider's VLAN; a
/// provider's and a customer's; two priorities.
const TAGS: [&[(u16, u16)]; 6] = [
    &[],
    &[(0x8100, 0x2007)],
    &[(0x8100, 0xe000)],
    &[(0x88a8, 5)],
    &[(0x88a8, 0x6005), (0x8100, 7)],
    &[(0x8100, 0), (0x8100, 0)],
];

/// An experimental ethertype (IEEE 802): no stack answers such frames.
const ETHERTYPE: [u8; 2] = [0x88, 0xb5];

fn tagged(frame: &[u8], tags: &[(u16, u16)]) -> Vec<u8> {
    let tags = tags.iter().flat_map(|(kind, control)| [kind.to_be_bytes(), control.to_be_bytes()]);
    [&frame[..12], &tags.flatten().collect::<Vec<u8>>(), &frame[12..]].concat()
}

/// A frame of no protocol, of so many bytes without tags.
fn frame(len: usize) -> Vec<u8> {
    let mut bytes = [&BROADCAST[..], &OUR_MAC, &ETHERTYPE].concat();
    bytes.extend((bytes.len()..len).map(|i| (i * 7) as u8));
    bytes
}

/// Both ends of a cable, once frames pass: an interface that has just come up loses some.
fn sockets(offload: bool) -> [AfPacket; 2] {
    let [mut from, mut to] = ["lw0", "lw1"].map(|name| AfPacket::open(name, offload).unwrap());
    let mut probe = frame(60);
    probe[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 9]);
    let mut passes = || {
        send(&mut from, &probe, TxChecksum::Complete);
        receive_within(Duration::from_millis(100), &mut to, |bytes| bytes == probe).is_some()
    };
    assert!((0..50).any(|_| passes()), "frames pass");
    [from, to]
}

/// True for frames that come from us.
fn is_ours(bytes: &[u8]) -> bool {
    bytes[6..12] == OUR_MAC
}

#[test]
fn frames_arrive_with_their_tags() {
    inside("vlan::frames_arrive_with_their_tags", || {
        ip_command("link add lw0 type veth peer name lw1");
        for offload in [true, false] {
            let [mut from, mut to] = sockets(offload);
            let question = arp(BROADCAST, 1, OURS, KERNEL);
            for tags in TAGS {
                for whole in [&question, &frame(60), &frame(1000)] {
                    let sent = tagged(whole, tags);
                    send(&mut from, &sent, TxChecksum::Complete);
                    assert_eq!(receive(&mut to, is_ours).bytes, sent, "{tags:x?}");
                }
            }
            assert_eq!((from.counters().transmit_errors, to.counters().receive_errors), (0, 0));
        }
    });
}

#[test]
fn a_full_frame_passes_with_a_tag_and_with_two_given_the_mtu() {
    let test = "vlan::a_full_frame_passes_with_a_tag_and_with_two_given_the_mtu";
    inside(test, || {
        ip_command("link add lw0 type veth peer name lw1");
        for (mtu, kinds) in [(1500, 0..3), (1508, 0..TAGS.len())] {
            for interface in ["lw0", "lw1"] {
                ip_command(&format!("link set {interface} mtu {mtu}"));
            }
            let [mut from, mut to] = sockets(true);
            for tags in &TAGS[kinds] {
                let sent = tagged(&frame(1514), tags);
                send(&mut from, &sent, TxChecksum::Complete);
                assert_eq!(receive(&mut to, is_ours).bytes, sent, "{mtu} {tags:x?}");
            }
            // A byte more, and the kernel does not take it.
            let refused = from.counters().transmit_errors;
            send(&mut from, &frame(14 + mtu + 5), TxChecksum::Complete);
            assert_eq!(from.counters().transmit_errors, refused + 1);
        }
    });
}

/// A segment of so many bytes of text behind a tag, its checksum undone.
fn large(text: usize, tags: &[(u16, u16)]) -> (Vec<u8>, usize) {
    let [source, destination]: [IpAddr; 2] = [OURS.into(), KERNEL.into()];
    let header = tcp::Header {
        source_port: 80,
        destination_port: 9000,
        seq: Seq(1),
        ack: Seq(7),
        flags: tcp::Flags::ACK,
        window: 1000,
        urgent: 0,
        options: Options::default(),
    };
    let mut bytes = [&BROADCAST[..], &OUR_MAC, &[8, 0]].concat();
    let len = header.header_len() + text;
    ip::Header::new(source, destination, ip::protocol::TCP, len).unwrap().emit(&mut bytes);
    let transport = bytes.len();
    header.emit(&mut bytes);
    let pseudo = lightwait_core::wire::checksum::pseudo_header(
        source,
        destination,
        ip::protocol::TCP,
        len as u32,
    );
    let at = transport + tcp::CHECKSUM_OFFSET;
    bytes[at..at + 2].copy_from_slice(&(!pseudo.checksum()).to_be_bytes());
    bytes.extend((0..text).map(|i| (i / 7) as u8));
    (tagged(&bytes, tags), transport + 4 * tags.len())
}

/// As many packets of ours, in order.
fn packets(device: &mut dyn Device, count: usize) -> Vec<Vec<u8>> {
    let (mut all, end) = (Vec::new(), Moment::now() + Duration::from_secs(10));
    while all.len() < count && Moment::now() < end {
        let mut keep = |frames: &[RxFrame<'_>]| {
            let ours = frames.iter().map(|frame| frame.bytes).filter(|bytes| is_ours(bytes));
            all.extend(ours.map(<[u8]>::to_vec));
        };
        device.receive(Instant::ZERO, 64, &mut keep).unwrap();
    }
    assert_eq!(all.len(), count);
    all
}

#[test]
fn a_large_segment_behind_a_tag_arrives_whole_or_in_packets() {
    let test = "vlan::a_large_segment_behind_a_tag_arrives_whole_or_in_packets";
    inside(test, || {
        ip_command("link add lw0 type veth peer name lw1");
        let [mut from, mut to] = sockets(true);
        let mut plain = Plain::new(AfPacket::open("lw1", true).unwrap());
        for tags in [&TAGS[0], &TAGS[1], &TAGS[4]] {
            let (sent, transport) = large(4000, tags);
            let mut outbox = Outbox::new(1);
            let frame = outbox.push().unwrap();
            frame.head.extend_from_slice(&sent);
            frame.checksum = TxChecksum::Partial { start: transport as u16, offset: 16 };
            let header_len = transport as u16 + 20;
            frame.segmentation =
                Some(Segmentation { size: 1448, header_len, ipv6: false, datagrams: false });
            from.transmit(Instant::ZERO, &mut outbox).unwrap();
            assert_eq!((outbox.len(), from.counters().transmit_errors), (0, 0), "{tags:x?}");

            let whole = receive(&mut to, is_ours);
            assert_eq!((whole.bytes.len(), whole.segment_size), (sent.len(), 1448), "{tags:x?}");
            assert_eq!(whole.bytes, sent);

            let mut text = Vec::new();
            for (packet, len) in packets(&mut plain, 3).iter().zip([1448, 1448, 1104]) {
                let ip = transport - 20;
                assert_eq!(packet[..ip], sent[..ip], "its tags");
                let parsed = ip::Packet::parse(&packet[ip..]).unwrap();
                let (from, to) = (parsed.source, parsed.destination);
                assert!(tcp::verify_checksum(parsed.payload, from, to), "{tags:x?}");
                assert_eq!(parsed.payload.len(), 20 + len);
                text.extend_from_slice(&parsed.payload[20..]);
            }
            assert_eq!(text, sent[transport + 20..]);
        }
    });
}
