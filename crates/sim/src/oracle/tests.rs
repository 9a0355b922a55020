//! For each rule, a conversation that keeps it, and a variant that breaks it.

use super::*;
use lightwait_core::flow::Seq;
use lightwait_core::wire::options::Options;
use lightwait_core::wire::{checksum, ethernet, ip, tcp};
use std::net::{IpAddr, Ipv4Addr};

const A: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
const B: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));

/// A segment to send: side, flags, seq, ack, window, payload bytes.
struct Piece(Side, Flags, u32, u32, u16, usize);

fn frame(piece: &Piece, shift: Option<u8>) -> Vec<u8> {
    let Piece(side, flags, seq, ack, window, len) = *piece;
    let ((source, source_port), (destination, destination_port)) = match side {
        Side::A => ((A, 1000), (B, 80)),
        Side::B => ((B, 80), (A, 1000)),
    };
    let window_scale = if flags.contains(Flags::SYN) { shift } else { None };
    let header = tcp::Header {
        source_port,
        destination_port,
        seq: Seq(seq),
        ack: Seq(ack),
        flags,
        window,
        urgent: 0,
        options: Options { window_scale, ..Options::default() },
    };
    let mut segment = Vec::new();
    header.emit(&mut segment);
    segment.resize(segment.len() + len, 7);
    let payload = checksum::sum(&segment[header.header_len()..]);
    let sum = tcp::checksum(source, destination, &segment[..header.header_len()], payload, len);
    segment[tcp::CHECKSUM_OFFSET..tcp::CHECKSUM_OFFSET + 2].copy_from_slice(&sum.to_be_bytes());
    let mut bytes = Vec::new();
    let link = ethernet::Header { destination: [2; 6], source: [4; 6], ethertype: ethertype::IPV4 };
    link.emit(&mut bytes);
    ip::Header::new(source, destination, protocol::TCP, segment.len()).unwrap().emit(&mut bytes);
    bytes.extend_from_slice(&segment);
    bytes
}

/// Sends and delivers each piece in turn. Returns the first broken rule.
fn broken(shift: Option<u8>, pieces: &[Piece]) -> Option<String> {
    let mut oracle = Oracle::default();
    for piece in pieces {
        let bytes = frame(piece, shift);
        oracle.on_sent(Instant::ZERO, piece.0, &bytes);
        oracle.on_delivered(piece.0.other(), &bytes);
    }
    assert_eq!(oracle.segments(), pieces.len() as u64);
    oracle.broken().map(str::to_owned)
}

const SYN: Flags = Flags::SYN;
const ACK: Flags = Flags::ACK;
const SYN_ACK: Flags = Flags(Flags::SYN.0 | Flags::ACK.0);
const FIN_ACK: Flags = Flags(Flags::FIN.0 | Flags::ACK.0);

/// Runs a handshake (A's numbers from 100, B's from 500; B's window 10), then `rest`.
fn after_handshake(rest: Vec<Piece>) -> Option<String> {
    let mut pieces = vec![
        Piece(Side::A, SYN, 100, 0, 1000, 0),
        Piece(Side::B, SYN_ACK, 500, 101, 10, 0),
        Piece(Side::A, ACK, 101, 501, 1000, 0),
    ];
    pieces.extend(rest);
    broken(None, &pieces)
}

#[track_caller]
fn keeps(rest: Vec<Piece>) {
    assert_eq!(after_handshake(rest), None);
}

#[track_caller]
fn breaks(rule: &str, rest: Vec<Piece>) {
    let text = after_handshake(rest).unwrap_or_else(|| panic!("nothing found: {rule}"));
    assert!(text.contains(rule), "{text}");
}

#[test]
fn data_up_to_the_edge_and_not_a_byte_more() {
    keeps(vec![Piece(Side::A, ACK, 101, 501, 1000, 10)]);
    breaks("beyond the edge", vec![Piece(Side::A, ACK, 101, 501, 1000, 11)]);
    let full = || Piece(Side::A, ACK, 101, 501, 1000, 10);
    // One byte beyond a full window is a probe; two are not.
    keeps(vec![full(), Piece(Side::A, ACK, 111, 501, 1000, 1)]);
    breaks("beyond the edge", vec![full(), Piece(Side::A, ACK, 111, 501, 1000, 2)]);
    // A retransmission is always allowed.
    keeps(vec![full(), Piece(Side::A, ACK, 101, 501, 1000, 10)]);
}

#[test]
fn windows_are_scaled_when_both_offered() {
    let pieces = |bytes| {
        [
            Piece(Side::A, SYN, 100, 0, 1000, 0),
            Piece(Side::B, SYN_ACK, 500, 101, 10, 0),
            Piece(Side::A, ACK, 101, 501, 1000, 10),
            Piece(Side::B, ACK, 501, 111, 10, 0),
            Piece(Side::A, ACK, 111, 501, 1000, bytes),
        ]
    };
    assert_eq!(broken(Some(3), &pieces(80)), None);
    assert!(broken(Some(3), &pieces(81)).unwrap().contains("beyond the edge"));
    assert!(broken(None, &pieces(11)).unwrap().contains("beyond the edge"));
}

#[test]
fn no_holes_and_nothing_before_the_syn() {
    keeps(vec![Piece(Side::A, ACK, 100, 501, 1000, 1)]);
    breaks("outside its sequence space", vec![Piece(Side::A, ACK, 99, 501, 1000, 1)]);
    breaks("outside its sequence space", vec![Piece(Side::A, ACK, 102, 501, 1000, 1)]);
}

#[test]
fn only_what_has_arrived_is_acknowledged() {
    let data = || Piece(Side::A, ACK, 101, 501, 1000, 5);
    keeps(vec![data(), Piece(Side::B, ACK, 501, 106, 10, 0)]);
    breaks("has not arrived", vec![data(), Piece(Side::B, ACK, 501, 107, 10, 0)]);
    // The segment is sent, and lost.
    let mut oracle = Oracle::default();
    let pieces = [Piece(Side::A, SYN, 100, 0, 1000, 0), Piece(Side::B, SYN_ACK, 500, 101, 10, 0)];
    oracle.on_sent(Instant::ZERO, Side::A, &frame(&pieces[0], None));
    oracle.on_sent(Instant::ZERO, Side::B, &frame(&pieces[1], None));
    assert!(oracle.broken().unwrap().contains("has not arrived"));
}

#[test]
fn acknowledgements_and_edges_never_go_back() {
    let data = || Piece(Side::A, ACK, 101, 501, 1000, 5);
    keeps(vec![data(), Piece(Side::B, ACK, 501, 106, 5, 0)]);
    breaks("edge back", vec![data(), Piece(Side::B, ACK, 501, 106, 4, 0)]);
    let acked = Piece(Side::B, ACK, 501, 106, 20, 0);
    breaks("acknowledgement back", vec![data(), acked, Piece(Side::B, ACK, 501, 105, 21, 0)]);
}

#[test]
fn nothing_follows_a_fin() {
    let fin = || Piece(Side::A, FIN_ACK, 101, 501, 1000, 2);
    keeps(vec![fin(), fin(), Piece(Side::A, ACK, 104, 501, 1000, 0)]);
    breaks("beyond its FIN", vec![fin(), Piece(Side::A, ACK, 103, 501, 1000, 2)]);
    breaks("moves its FIN", vec![fin(), Piece(Side::A, FIN_ACK, 101, 501, 1000, 1)]);
    let data = Piece(Side::A, ACK, 101, 501, 1000, 5);
    breaks("before data", vec![data, Piece(Side::A, FIN_ACK, 101, 501, 1000, 1)]);
}

#[test]
fn what_is_sent_is_well_formed() {
    let mut oracle = Oracle::default();
    let mut bytes = frame(&Piece(Side::A, SYN, 100, 0, 1000, 0), None);
    oracle.on_delivered(Side::B, &bytes);
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    // Damage on the way is the wire's fault, and damage at the start the sender's.
    oracle.on_delivered(Side::B, &bytes);
    assert_eq!(oracle.broken(), None);
    oracle.on_sent(Instant::ZERO, Side::A, &bytes);
    assert!(oracle.broken().unwrap().contains("malformed"));
}
