//! The few frames that these tests send, built by hand to be independent of the stack.

use std::net::Ipv4Addr;

pub(crate) const OUR_MAC: [u8; 6] = [2, 0, 0, 0, 0, 0x42];
pub(crate) const BROADCAST: [u8; 6] = [0xff; 6];

/// Bytes before the transport header: Ethernet and IPv4 without options.
pub(crate) const TRANSPORT: usize = 34;

/// An ARP packet (RFC 826): operation 1 asks, 2 answers.
pub(crate) fn arp(to: [u8; 6], operation: u8, from: Ipv4Addr, target: Ipv4Addr) -> Vec<u8> {
    let mut frame = ethernet(to, 0x0806);
    frame.extend([0, 1, 8, 0, 6, 4, 0, operation]);
    frame.extend(OUR_MAC);
    frame.extend(from.octets());
    frame.extend(to);
    frame.extend(target.octets());
    frame
}

/// An ICMP echo request (RFC 792).
pub(crate) fn echo_request(to: [u8; 6], from: Ipv4Addr, target: Ipv4Addr, data: &[u8]) -> Vec<u8> {
    let mut icmp = vec![8, 0, 0, 0, 0x12, 0x34, 0, 1];
    icmp.extend(data);
    let checksum = !sum(&icmp, 0);
    icmp[2..4].copy_from_slice(&checksum.to_be_bytes());
    ipv4(to, 1, from, target, &icmp)
}

/// A UDP datagram whose checksum field holds the sum of the pseudo-header alone: the rest is left
/// to the device.
pub(crate) fn udp_unfinished(
    to: [u8; 6],
    (from, from_port): (Ipv4Addr, u16),
    (target, target_port): (Ipv4Addr, u16),
    data: &[u8],
) -> Vec<u8> {
    let len = 8 + data.len() as u16;
    let mut pseudo = [from.octets(), target.octets()].concat();
    pseudo.extend([0, 17]);
    pseudo.extend(len.to_be_bytes());
    let mut udp = [from_port, target_port, len, sum(&pseudo, 0)].map(u16::to_be_bytes).concat();
    udp.extend(data);
    ipv4(to, 17, from, target, &udp)
}

/// The Internet checksum's sum, folded and not complemented (RFC 1071).
pub(crate) fn sum(bytes: &[u8], start: u16) -> u16 {
    let mut total = u32::from(start);
    for pair in bytes.chunks(2) {
        total += u32::from(pair[0]) << 8 | u32::from(pair.get(1).copied().unwrap_or(0));
    }
    while total > 0xffff {
        total = (total & 0xffff) + (total >> 16);
    }
    total as u16
}

fn ipv4(to: [u8; 6], protocol: u8, from: Ipv4Addr, target: Ipv4Addr, data: &[u8]) -> Vec<u8> {
    let len = (20 + data.len()) as u16;
    let mut header = vec![0x45, 0];
    header.extend(len.to_be_bytes());
    header.extend([0, 0, 0x40, 0, 64, protocol, 0, 0]);
    header.extend(from.octets());
    header.extend(target.octets());
    let checksum = !sum(&header, 0);
    header[10..12].copy_from_slice(&checksum.to_be_bytes());
    [ethernet(to, 0x0800), header, data.to_vec()].concat()
}

fn ethernet(to: [u8; 6], kind: u16) -> Vec<u8> {
    [&to[..], &OUR_MAC, &kind.to_be_bytes()].concat()
}
