//! What a link reads in a frame: the flow that it belongs to, and its ECN field (RFC 3168 §5). An
//! Ethernet frame with up to two VLAN tags; everything else has neither.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
/// Tags of 802.1Q and 802.1ad.
const TAGS: [u16; 2] = [0x8100, 0x88a8];

/// The MAC addresses of a frame.
const ADDRESS_BYTES: usize = 12;
const IPV4_BYTES: usize = 20;
const IPV6_BYTES: usize = 40;

const TCP: u8 = 6;
const UDP: u8 = 17;

/// The packets of one conversation in one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Flow {
    /// The sender; port 0 in a fragment, and in what is neither TCP nor UDP.
    pub source: SocketAddr,
    /// The receiver, likewise.
    pub destination: SocketAddr,
    /// The protocol above IP, by its number.
    pub protocol: u8,
}

impl Flow {
    /// The flow of an Ethernet frame; `None` if it carries no IP packet.
    pub fn of(frame: &[u8]) -> Option<Flow> {
        match ip_packet(frame)? {
            (IPV4, at) => of_ipv4(frame.get(at..)?),
            (_, at) => of_ipv6(frame.get(at..)?),
        }
    }
}

impl fmt::Display for Flow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ends = [self.source, self.destination];
        match self.protocol {
            TCP => write!(f, "tcp {} > {}", ends[0], ends[1]),
            UDP => write!(f, "udp {} > {}", ends[0], ends[1]),
            other => write!(f, "ip-{other} {} > {}", ends[0].ip(), ends[1].ip()),
        }
    }
}

/// The length of the IP packet in a frame; 0 if it carries none.
pub(crate) fn packet_len(frame: &[u8]) -> usize {
    ip_packet(frame).map_or(0, |(_, at)| frame.len().saturating_sub(at))
}

/// Sets Congestion Experienced in a frame whose ends use ECN. False if they do not.
pub(crate) fn mark(frame: &mut [u8]) -> bool {
    match ip_packet(frame) {
        Some((IPV4, at)) => frame.get_mut(at..).is_some_and(mark_ipv4),
        Some((_, at)) => frame.get_mut(at..).is_some_and(mark_ipv6),
        None => false,
    }
}

/// The type of the IP packet in a frame, and where it begins.
fn ip_packet(frame: &[u8]) -> Option<(u16, usize)> {
    let mut at = ADDRESS_BYTES;
    for _ in 0..3 {
        let kind = word(frame, at)?;
        if kind == IPV4 || kind == IPV6 {
            return Some((kind, at + 2));
        }
        if !TAGS.contains(&kind) {
            return None;
        }
        at += 4;
    }
    None
}

fn word(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().copied().map(u16::from_be_bytes)
}

fn of_ipv4(packet: &[u8]) -> Option<Flow> {
    let head: &[u8; IPV4_BYTES] = packet.first_chunk()?;
    let address = |at: usize| {
        let bytes = [head[at], head[at + 1], head[at + 2], head[at + 3]];
        IpAddr::V4(Ipv4Addr::from(bytes))
    };
    let is_fragment = word(head, 6)? & 0x3fff != 0;
    let segment = if is_fragment { &[] } else { packet.get(usize::from(head[0] & 0xf) * 4..)? };
    Some(flow((address(12), address(16)), head[9], segment))
}

fn of_ipv6(packet: &[u8]) -> Option<Flow> {
    let head: &[u8; IPV6_BYTES] = packet.first_chunk()?;
    let address = |at: usize| {
        let bytes: [u8; 16] = *head[at..].first_chunk()?;
        Some(IpAddr::V6(Ipv6Addr::from(bytes)))
    };
    Some(flow((address(8)?, address(24)?), head[6], &packet[IPV6_BYTES..]))
}

fn flow((source, destination): (IpAddr, IpAddr), protocol: u8, segment: &[u8]) -> Flow {
    let has_ports = [TCP, UDP].contains(&protocol);
    let port = |at| word(segment, at).filter(|_| has_ports).unwrap_or(0);
    let [source, destination] = [(source, port(0)), (destination, port(2))].map(SocketAddr::from);
    Flow { source, destination, protocol }
}

/// ECT(0), ECT(1) and CE have one of these bits.
const ECN_IPV4: u8 = 0b11;
const ECN_IPV6: u8 = 0b11 << 4;

fn mark_ipv4(packet: &mut [u8]) -> bool {
    let (Some(before), Some(sum)) = (word(packet, 0), word(packet, 10)) else { return false };
    if packet[1] & ECN_IPV4 == 0 {
        return false;
    }
    packet[1] |= ECN_IPV4;
    let after = before | u16::from(ECN_IPV4);
    // RFC 1624 §3, equation 3.
    let new = u32::from(!sum) + u32::from(!before) + u32::from(after);
    let folded = (new & 0xffff) + (new >> 16);
    let folded = (folded & 0xffff) + (folded >> 16);
    packet[10..12].copy_from_slice(&(!(folded as u16)).to_be_bytes());
    true
}

fn mark_ipv6(packet: &mut [u8]) -> bool {
    let uses = packet.get(1).is_some_and(|byte| byte & ECN_IPV6 != 0);
    if uses {
        packet[1] |= ECN_IPV6;
    }
    uses
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::string::ToString;
    use std::vec::Vec;

    /// An IPv4 frame of TCP from that port, with that ECN field and that many bytes of text.
    pub(crate) fn ipv4(port: u16, ecn: u8, text: usize) -> Vec<u8> {
        let mut packet = Vec::from([0x45, ecn, 0, 0, 0, 0, 0x40, 0, 64, TCP, 0, 0]);
        packet.extend([10, 0, 0, 1, 10, 0, 0, 2]);
        let length = 40 + text as u16;
        packet[2..4].copy_from_slice(&length.to_be_bytes());
        let sum = !checksum(&packet);
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
        packet.extend(port.to_be_bytes());
        packet.extend(80u16.to_be_bytes());
        packet.extend(core::iter::repeat_n(0, 16 + text));
        framed(&[IPV4], &packet)
    }

    fn framed(types: &[u16], packet: &[u8]) -> Vec<u8> {
        let mut frame = Vec::from([2; ADDRESS_BYTES]);
        for (at, kind) in types.iter().enumerate() {
            frame.extend(kind.to_be_bytes());
            if at + 1 < types.len() {
                frame.extend([0, 7]);
            }
        }
        frame.extend(packet);
        frame
    }

    /// The sum of RFC 1071 over a header: all ones if it is right.
    fn checksum(head: &[u8]) -> u16 {
        let sum: u32 = head.chunks(2).map(|two| u32::from(word(two, 0).unwrap())).sum();
        let sum = (sum & 0xffff) + (sum >> 16);
        ((sum & 0xffff) + (sum >> 16)) as u16
    }

    fn ipv6(ecn: u8) -> Vec<u8> {
        let mut packet = Vec::from([0x60, ecn << 4 | 3, 9, 9, 0, 8, UDP, 64]);
        packet.extend([0xfd; 16]);
        packet.extend([0xfe; 16]);
        packet.extend([0x1f, 0x90, 0, 53, 0, 8, 0, 0]);
        packet
    }

    #[test]
    fn a_flow_has_both_ends_and_the_protocol() {
        let text = |frame: &[u8]| Flow::of(frame).map(|flow| flow.to_string());
        let plain = ipv4(4000, 0, 3);
        assert_eq!(text(&plain).as_deref(), Some("tcp 10.0.0.1:4000 > 10.0.0.2:80"));
        for tags in [&[TAGS[0], IPV4][..], &[TAGS[1], TAGS[0], IPV4]] {
            assert_eq!(text(&framed(tags, &plain[14..])), text(&plain));
        }
        assert_eq!(text(&framed(&[TAGS[0]; 3], &plain[14..])), None, "three tags");
        let six = framed(&[IPV6], &ipv6(0));
        assert!(text(&six).unwrap().starts_with("udp [fdfd:"));
        assert!(text(&six).unwrap().ends_with("]:53"));
        let mut fragment = plain.clone();
        fragment[14 + 7] = 1;
        assert_eq!(text(&fragment).as_deref(), Some("tcp 10.0.0.1:0 > 10.0.0.2:0"));
        let mut ping = plain;
        ping[14 + 9] = 1;
        assert_eq!(text(&ping).as_deref(), Some("ip-1 10.0.0.1 > 10.0.0.2"));
        assert_eq!(text(&framed(&[0x0806], &[0; 28])), None, "ARP");
    }

    #[test]
    fn ends_that_use_ecn_are_marked_and_the_checksum_stays_right() {
        for (ecn, is_marked) in [(0, false), (1, true), (2, true), (3, true)] {
            let mut four = ipv4(4000, 0xb8 | ecn, 0);
            let before = four.clone();
            assert_eq!(mark(&mut four), is_marked, "{ecn}");
            assert_eq!(checksum(&four[14..34]), 0xffff);
            assert_eq!(four[15], 0xb8 | if is_marked { 3 } else { 0 });
            assert_eq!(four[34..], before[34..]);
            let mut six = framed(&[IPV6], &ipv6(ecn));
            assert_eq!(mark(&mut six), is_marked);
            assert_eq!(six[15], (if is_marked { 3 } else { 0 }) << 4 | 3);
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_flow_or_none(mut bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let before = Flow::of(&bytes);
            let length = bytes.len();
            mark(&mut bytes);
            prop_assert_eq!((Flow::of(&bytes), bytes.len()), (before, length));
        }

        #[test]
        fn a_frame_cut_short_is_a_flow_or_none(port: u16, cut in 0usize..60, tos: u8) {
            let mut frame = ipv4(port, tos, 6);
            frame.truncate(cut);
            mark(&mut frame);
            prop_assert!(Flow::of(&frame).is_none_or(|flow| flow.protocol == TCP));
        }
    }
}
