//! Cuts the large segments that the engine hands to a device into packets, as a device would.
//!
//! The engine sets PSH at the end of each unit that it hands over. Only a device that cuts receives
//! whole bursts, so the door can be such a device.

use lightwait_core::Frame;
use lightwait_core::frame::Segmentation;
use lightwait_core::wire::checksum::{pseudo_header, sum};
use lightwait_core::wire::ip::protocol;
use lightwait_core::wire::tcp::{CHECKSUM_OFFSET, Flags};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Offsets in an IPv4 header (RFC 791 §3.1) and in an IPv6 header (RFC 8200 §3).
const IPV4_LEN: usize = 2;
const IPV4_CHECKSUM: usize = 10;
const IPV4_ADDRESSES: usize = 12;
const IPV6_HEADER: usize = 40;
const IPV6_LEN: usize = 4;
const IPV6_ADDRESSES: usize = 8;

/// Offsets in a TCP header (RFC 9293 §3.1).
const TCP_SEQ: usize = 4;
const TCP_FLAGS: usize = 13;

/// The packets that `frame` stands for, complete.
pub fn packets(frame: &Frame) -> Vec<Vec<u8>> {
    let mut whole = Vec::with_capacity(frame.len());
    frame.complete_to(&mut whole);
    match frame.segmentation {
        None => vec![whole],
        Some(how) => cut(&whole, how),
    }
}

fn cut(whole: &[u8], how: Segmentation) -> Vec<Vec<u8>> {
    let Some((header, text)) = whole.split_at_checked(how.header_len.into()) else {
        return vec![whole.to_vec()];
    };
    let size = usize::from(how.size).max(1);
    let last = text.len().div_ceil(size).saturating_sub(1);
    let pieces = text.chunks(size).enumerate();
    let packet = |(i, piece): (usize, &[u8])| {
        let mut packet = [header, piece].concat();
        adapt(&mut packet, i * size, i == last, how.ipv6);
        packet
    };
    pieces.map(packet).collect()
}

/// Makes the copied headers those of the piece that begins `offset` bytes into the text.
fn adapt(packet: &mut [u8], offset: usize, is_last: bool, ipv6: bool) {
    let len = packet.len();
    let (ip, source, destination) = if ipv6 {
        let address = |at: usize| {
            let mut octets = [0; 16];
            octets.copy_from_slice(&packet[at..at + 16]);
            IpAddr::V6(Ipv6Addr::from(octets))
        };
        let (source, destination) = (address(IPV6_ADDRESSES), address(IPV6_ADDRESSES + 16));
        put(packet, IPV6_LEN, (len - IPV6_HEADER) as u16);
        (IPV6_HEADER, source, destination)
    } else {
        let address = |at: usize| {
            let octets = [packet[at], packet[at + 1], packet[at + 2], packet[at + 3]];
            IpAddr::V4(Ipv4Addr::from(octets))
        };
        let (source, destination) = (address(IPV4_ADDRESSES), address(IPV4_ADDRESSES + 4));
        let header_len = usize::from(packet[0] & 0x0f) * 4;
        put(packet, IPV4_LEN, len as u16);
        put(packet, IPV4_CHECKSUM, 0);
        let checksum = sum(&packet[..header_len]).checksum();
        put(packet, IPV4_CHECKSUM, checksum);
        (header_len, source, destination)
    };
    let tcp = &mut packet[ip..];
    let seq = [tcp[TCP_SEQ], tcp[TCP_SEQ + 1], tcp[TCP_SEQ + 2], tcp[TCP_SEQ + 3]];
    let seq = u32::from_be_bytes(seq).wrapping_add(offset as u32);
    tcp[TCP_SEQ..TCP_SEQ + 4].copy_from_slice(&seq.to_be_bytes());
    if !is_last {
        tcp[TCP_FLAGS] &= !(Flags::FIN | Flags::PSH).0;
    }
    put(tcp, CHECKSUM_OFFSET, 0);
    let pseudo = pseudo_header(source, destination, protocol::TCP, tcp.len() as u32);
    let checksum = pseudo.then(sum(tcp)).checksum();
    put(tcp, CHECKSUM_OFFSET, checksum);
}

fn put(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}
