//! The checker finds what it should, and nothing else: each good capture has a bad twin.

use super::*;
use lightwait_core::Instant;
use lightwait_core::capture::pcapng;
use lightwait_core::wire::checksum::sum;
use lightwait_core::wire::options::Options;

const US: &str = "10.0.0.2:80";
const PEER: &str = "10.0.0.1:4000";

/// A segment of a script: who sends it, flags, first number, text bytes, acknowledgement, window.
type Line = (&'static str, Flags, u32, usize, u32, u16);

const SYN_ACK: Flags = Flags(Flags::SYN.0 | Flags::ACK.0);

/// The peer allows 10 << 2 bytes from 5001 on; we allow 20 << 2 from 901 on.
const HANDSHAKE: [Line; 3] = [
    (PEER, Flags::SYN, 900, 0, 0, 50),
    (US, SYN_ACK, 5000, 0, 901, 80),
    (PEER, Flags::ACK, 901, 0, 5001, 10),
];

fn packet(line: &Line) -> Vec<u8> {
    let (sender, flags, seq, len, ack, window) = *line;
    let receiver = if sender == US { PEER } else { US };
    let [from, to]: [SocketAddr; 2] = [sender, receiver].map(|end| end.parse().unwrap());
    let is_syn = flags.contains(Flags::SYN);
    let header = tcp::Header {
        source_port: from.port(),
        destination_port: to.port(),
        seq: Seq(seq),
        ack: Seq(ack),
        flags,
        window,
        urgent: 0,
        options: Options { window_scale: is_syn.then_some(2), ..Options::default() },
    };
    let mut segment = Vec::new();
    header.emit(&mut segment);
    let text = vec![7; len];
    let checksum = tcp::checksum(from.ip(), to.ip(), &segment, sum(&text), len);
    segment[tcp::CHECKSUM_OFFSET..tcp::CHECKSUM_OFFSET + 2]
        .copy_from_slice(&checksum.to_be_bytes());
    segment.extend(text);
    let mut packet = Vec::new();
    ip::Header::new(from.ip(), to.ip(), tcp::PROTOCOL, segment.len()).unwrap().emit(&mut packet);
    packet.extend(segment);
    packet
}

fn capture<'a>(frames: impl IntoIterator<Item = (bool, &'a [u8])>) -> Vec<u8> {
    let mut file = Vec::new();
    pcapng::section(&mut file);
    pcapng::interface(Medium::Ip, "t", &mut file);
    for (ours, bytes) in frames {
        let direction = if ours { Direction::Outbound } else { Direction::Inbound };
        pcapng::packet(0, Instant::ZERO, Some(direction), bytes, &mut file);
    }
    file
}

/// What the checker says of the handshake followed by these.
fn audited(lines: &[Line]) -> Findings {
    let packets: Vec<_> =
        HANDSHAKE.iter().chain(lines).map(|line| (line.0 == US, packet(line))).collect();
    audit(&capture(packets.iter().map(|(ours, bytes)| (*ours, bytes.as_slice()))))
}

fn passes(lines: &[Line]) {
    assert_eq!(audited(lines).faults, Vec::<String>::new());
}

fn fails(lines: &[Line], why: &str) {
    let faults = audited(lines).faults;
    assert!(faults.len() == 1 && faults[0].contains(why), "{faults:?}");
}

#[test]
fn text_up_to_the_windows_edge_passes_and_a_byte_more_does_not() {
    passes(&[(US, Flags::ACK, 5001, 40, 901, 20)]);
    fails(&[(US, Flags::ACK, 5001, 41, 901, 20)], "beyond the window's edge 5041");
    passes(&[(PEER, Flags::ACK, 901, 80, 5001, 10)]);
    fails(&[(PEER, Flags::ACK, 901, 81, 5001, 10)], "beyond the window's edge 981");
}

#[test]
fn a_probe_of_one_byte_passes_and_one_of_two_does_not() {
    let full = (US, Flags::ACK, 5001, 40, 901, 20);
    passes(&[full, (US, Flags::ACK, 5041, 1, 901, 20)]);
    fails(&[full, (US, Flags::ACK, 5041, 2, 901, 20)], "beyond");
}

#[test]
fn an_edge_once_advertised_stays_for_the_sender() {
    let shrunk = (PEER, Flags::ACK, 901, 0, 5001, 0);
    passes(&[shrunk, (US, Flags::ACK, 5001, 40, 901, 20)]);
}

#[test]
fn we_may_not_shrink_a_window() {
    passes(&[(US, Flags::ACK, 5001, 0, 901, 20), (US, Flags::ACK, 5001, 0, 901, 20)]);
    fails(&[(US, Flags::ACK, 5001, 0, 901, 20), (US, Flags::ACK, 5001, 0, 901, 19)], "shrinks");
}

#[test]
fn nobody_may_acknowledge_what_was_never_sent() {
    passes(&[(US, Flags::ACK, 5001, 10, 901, 20), (PEER, Flags::ACK, 901, 0, 5011, 10)]);
    fails(&[(PEER, Flags::ACK, 901, 0, 5002, 10)], "acknowledges more than 5001");
}

#[test]
fn what_we_send_has_no_gaps_and_what_arrives_may() {
    fails(&[(US, Flags::ACK, 5002, 1, 901, 20)], "a gap after 5001");
    passes(&[(PEER, Flags::ACK, 902, 1, 5001, 10)]);
}

#[test]
fn a_flipped_bit_is_found_wherever_it_is() {
    let good = packet(&(US, SYN_ACK, 5000, 3, 901, 80));
    assert!(audit(&capture([(true, &good[..])])).faults.is_empty());
    // Not in the first byte, which may make it a good packet of the other IP version.
    for bit in 8..good.len() * 8 {
        let mut bad = good.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(audit(&capture([(true, &bad[..])])).faults.len(), 1, "bit {bit}");
    }
}

#[test]
fn text_is_counted_once() {
    let text = (US, Flags::ACK, 5001, 30, 901, 20);
    let found = audited(&[text, text, (US, Flags::ACK, 5021, 20, 901, 20)]);
    assert_eq!((found.text_bytes, found.repeated_segments), (40, 2));
    assert_eq!((found.connections, found.segments), (1, 6));
}
