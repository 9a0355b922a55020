use super::*;
use lightwait_core::flow::Seq;
use lightwait_core::wire::options::Options;
use lightwait_core::wire::tcp::{Flags, Segment, verify_checksum};

const PAYLOAD: usize = 4000;

/// A TCP segment of `PAYLOAD` bytes with FIN, PSH and CWR, its checksum undone.
fn large(medium: Medium, source: &str, destination: &str) -> Vec<u8> {
    let (source, destination) = (source.parse().unwrap(), destination.parse().unwrap());
    let header = tcp::Header {
        source_port: 80,
        destination_port: 9000,
        seq: Seq(u32::MAX - 999),
        ack: Seq(7),
        flags: Flags::ACK | Flags::PSH | Flags::FIN | Flags::CWR,
        window: 1000,
        urgent: 0,
        options: Options::default(),
    };
    let mut bytes = Vec::new();
    if medium == Medium::Ethernet {
        let ethertype = match source {
            IpAddr::V4(_) => ethernet::ethertype::IPV4,
            IpAddr::V6(_) => ethernet::ethertype::IPV6,
        };
        ethernet::Header { destination: [2; 6], source: [4; 6], ethertype }.emit(&mut bytes);
    }
    let len = header.header_len() + PAYLOAD;
    ip::Header::new(source, destination, ip::protocol::TCP, len).unwrap().emit(&mut bytes);
    header.emit(&mut bytes);
    bytes.extend((0..PAYLOAD).map(|i| (i / 7) as u8));
    bytes
}

fn packets(medium: Medium, frame: RxFrame<'_>) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for_each_packet(medium, frame, &mut Vec::new(), &mut |packet| all.push(packet.to_vec()));
    all
}

fn check_pieces(medium: Medium, source: &str, destination: &str) {
    let bytes = large(medium, source, destination);
    let frame =
        RxFrame { checksum: RxChecksum::Good, segment_size: 1448, ..RxFrame::plain(&bytes) };
    let packets = packets(medium, frame);
    let ip_start = if medium == Medium::Ethernet { ethernet::HEADER_BYTES } else { 0 };
    let mut payload = Vec::new();
    for (n, packet) in packets.iter().enumerate() {
        assert_eq!(packet[..ip_start], bytes[..ip_start]);
        let ip = ip::Packet::parse(&packet[ip_start..]).unwrap();
        assert!(verify_checksum(ip.payload, ip.source, ip.destination));
        let segment = Segment::parse(ip.payload).unwrap();
        assert_eq!(segment.seq, Seq(u32::MAX - 999) + payload.len() as u32);
        let flags = match n {
            0 => Flags::ACK | Flags::CWR,
            1 => Flags::ACK,
            _ => Flags::ACK | Flags::PSH | Flags::FIN,
        };
        assert_eq!(segment.flags, flags);
        payload.extend_from_slice(segment.payload);
    }
    assert_eq!(packets.len(), 3);
    assert_eq!(payload, bytes[bytes.len() - PAYLOAD..]);
}

#[test]
fn a_large_segment_is_cut_into_right_packets() {
    check_pieces(Medium::Ip, "10.0.0.1", "10.0.0.2");
    check_pieces(Medium::Ethernet, "10.0.0.1", "10.0.0.2");
    check_pieces(Medium::Ethernet, "fd00::1", "fd00::2");
}

/// The frame with a provider's tag and a customer's.
fn tagged(bytes: &[u8]) -> Vec<u8> {
    [&bytes[..12], &[0x88, 0xa8, 0, 5, 0x81, 0, 0xe0, 7], &bytes[12..]].concat()
}

#[test]
fn a_large_segment_behind_tags_is_cut_behind_them() {
    for [source, destination] in [["10.0.0.1", "10.0.0.2"], ["fd00::1", "fd00::2"]] {
        let bytes = large(Medium::Ethernet, source, destination);
        let frame = |bytes| RxFrame {
            checksum: RxChecksum::Good,
            segment_size: 1448,
            ..RxFrame::plain(bytes)
        };
        let plain = packets(Medium::Ethernet, frame(&bytes));
        let expected: Vec<_> = plain.iter().map(|packet| tagged(packet)).collect();
        assert_eq!(expected.len(), 3);
        assert_eq!(packets(Medium::Ethernet, frame(&tagged(&bytes))), expected);
    }
}

#[test]
fn a_large_datagram_is_cut_into_datagrams_of_the_size() {
    for [source, destination] in [["10.0.0.1", "10.0.0.2"], ["fd00::1", "fd00::2"]] {
        let [from, to]: [IpAddr; 2] = [source, destination].map(|ip| ip.parse().unwrap());
        let payload: Vec<u8> = (0..2500).map(|i| (i / 7) as u8).collect();
        let mut bytes = Vec::new();
        let len = 8 + payload.len();
        ip::Header::new(from, to, ip::protocol::UDP, len).unwrap().emit(&mut bytes);
        bytes.extend([0, 9, 0, 80]);
        bytes.extend((len as u16).to_be_bytes());
        bytes.extend([0, 0]);
        bytes.extend(&payload);
        let frame =
            RxFrame { checksum: RxChecksum::Good, segment_size: 1000, ..RxFrame::plain(&bytes) };
        let mut joined = Vec::new();
        let packets = packets(Medium::Ip, frame);
        let lengths = packets.iter().map(|packet| {
            let ip = ip::Packet::parse(packet).unwrap();
            let len = u16::from_be_bytes([ip.payload[4], ip.payload[5]]);
            assert_eq!(usize::from(len), ip.payload.len());
            let pseudo = pseudo_header(from, to, ip::protocol::UDP, len.into());
            assert_eq!(pseudo.then(sum(ip.payload)).checksum(), 0);
            joined.extend_from_slice(&ip.payload[8..]);
            len
        });
        assert_eq!(lengths.collect::<Vec<_>>(), [1008, 1008, 508]);
        assert_eq!(joined, payload);
    }
}

#[test]
fn a_frame_that_is_complete_stays_as_it_is() {
    let bytes = large(Medium::Ip, "10.0.0.1", "10.0.0.2");
    assert_eq!(packets(Medium::Ip, RxFrame::plain(&bytes)), [bytes]);
}

#[test]
fn no_frame_however_cut_off_makes_it_panic() {
    let bytes = large(Medium::Ethernet, "10.0.0.1", "10.0.0.2");
    for len in 0..200 {
        let frame = RxFrame {
            checksum: RxChecksum::Good,
            segment_size: 1,
            ..RxFrame::plain(&bytes[..len])
        };
        assert_eq!(packets(Medium::Ethernet, frame), [&bytes[..len]]);
    }
}

#[test]
fn a_data_offset_beyond_the_packet_does_not_make_it_panic() {
    let mut bytes = large(Medium::Ip, "10.0.0.1", "10.0.0.2");
    bytes.truncate(44);
    bytes[3] = 44;
    bytes[10..12].fill(0);
    let checksum = sum(&bytes[..20]).checksum();
    bytes[10..12].copy_from_slice(&checksum.to_be_bytes());
    bytes[32] = 0xf0;
    let frame = RxFrame { checksum: RxChecksum::Good, segment_size: 1, ..RxFrame::plain(&bytes) };
    assert_eq!(packets(Medium::Ip, frame).len(), 1);
}
