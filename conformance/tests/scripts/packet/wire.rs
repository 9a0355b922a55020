//! Converts packets to bytes and back (RFC 791, 8200, 9293).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{Body, Datagram, ICMPV4, ICMPV6, Segment, TCP, UDP};
use crate::ast::{SumSpec, UdpSpec};

/// The bytes of a packet, all checksums right.
pub(crate) fn encode(datagram: &Datagram) -> Vec<u8> {
    let mut body = match &datagram.body {
        Body::Tcp(segment) => encode_tcp(segment),
        Body::Udp { ports, payload } => encode_udp(*ports, payload),
        Body::Icmp { kind, code, rest } => {
            let mut bytes = vec![*kind, *code, 0, 0];
            bytes.extend(rest);
            bytes
        }
    };
    let checksum_at = match datagram.protocol() {
        TCP => 16,
        UDP => 6,
        _ => 2,
    };
    let pseudo = match datagram.protocol() {
        ICMPV4 => 0,
        protocol => pseudo_header(datagram.source, datagram.destination, protocol, body.len()),
    };
    let mut sum = !fold(pseudo + sum(&body));
    if sum == 0 && datagram.protocol() == UDP {
        // Zero stands for none (RFC 768).
        sum = u16::MAX;
    }
    body[checksum_at..checksum_at + 2].copy_from_slice(&sum.to_be_bytes());
    let mut bytes = ip_header(datagram, body.len());
    bytes.extend(body);
    bytes
}

/// The bytes of a packet with a datagram that may have the faults of `spec`.
pub(crate) fn encode_datagram(datagram: &Datagram, spec: &UdpSpec) -> Vec<u8> {
    let mut bytes = encode(datagram);
    let header_bytes = if datagram.source.is_ipv4() { 20 } else { 40 };
    let body = &mut bytes[header_bytes..];
    if let Some(claimed) = spec.claimed {
        body[4..6].copy_from_slice(&claimed.to_be_bytes());
        // The sum is right, so that the length alone is at fault.
        body[6..8].fill(0);
        let covered = &body[..body.len().min(usize::from(claimed).max(8))];
        let length = usize::from(claimed);
        let pseudo = pseudo_header(datagram.source, datagram.destination, UDP, length);
        let sum = !fold(pseudo + sum(covered));
        body[6..8].copy_from_slice(&sum.to_be_bytes());
    }
    match spec.sum {
        SumSpec::Right => {}
        SumSpec::None => body[6..8].fill(0),
        // Neither 0 nor all ones, whatever it was: the difference is one bit.
        SumSpec::Wrong => body[7] ^= if body[6..8] == [0, 1] { 2 } else { 1 },
    }
    bytes
}

#[expect(clippy::cast_possible_truncation, reason = "a header is at most 60 bytes")]
fn encode_tcp(segment: &Segment) -> Vec<u8> {
    let words = 5 + segment.options.len() / 4;
    let mut bytes = Vec::with_capacity(words * 4 + segment.payload.len());
    bytes.extend(segment.ports.0.to_be_bytes());
    bytes.extend(segment.ports.1.to_be_bytes());
    bytes.extend(segment.seq.to_be_bytes());
    bytes.extend(segment.ack.to_be_bytes());
    bytes.extend(((words as u16) << 12 | segment.flags).to_be_bytes());
    bytes.extend(segment.window.to_be_bytes());
    bytes.extend([0, 0]);
    bytes.extend(segment.urgent.to_be_bytes());
    bytes.extend(&segment.options);
    bytes.extend(&segment.payload);
    bytes
}

#[expect(clippy::cast_possible_truncation, reason = "a datagram is at most 64 KiB")]
fn encode_udp(ports: (u16, u16), payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(8 + payload.len());
    bytes.extend(ports.0.to_be_bytes());
    bytes.extend(ports.1.to_be_bytes());
    bytes.extend((payload.len() as u16 + 8).to_be_bytes());
    bytes.extend([0, 0]);
    bytes.extend(payload);
    bytes
}

/// The IP header of `datagram` before `length` bytes.
#[expect(clippy::cast_possible_truncation, reason = "a datagram is at most 64 KiB")]
pub(super) fn ip_header(datagram: &Datagram, length: usize) -> Vec<u8> {
    match (datagram.source, datagram.destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let mut bytes = vec![0x45, datagram.tos];
            bytes.extend((length as u16 + 20).to_be_bytes());
            let flags = if datagram.dont_fragment { 0x40 } else { 0 };
            bytes.extend([0, 0, flags, 0, datagram.ttl, datagram.protocol(), 0, 0]);
            bytes.extend(source.octets());
            bytes.extend(destination.octets());
            let checksum = !fold(sum(&bytes));
            bytes[10..12].copy_from_slice(&checksum.to_be_bytes());
            bytes
        }
        (source, destination) => {
            let first = 6 << 28 | u32::from(datagram.tos) << 20 | datagram.flow_label;
            let mut bytes = first.to_be_bytes().to_vec();
            bytes.extend((length as u16).to_be_bytes());
            bytes.extend([datagram.protocol(), datagram.ttl]);
            bytes.extend(sixteen(source));
            bytes.extend(sixteen(destination));
            bytes
        }
    }
}

fn sixteen(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

/// A packet that the stack sent; None for a protocol that no script speaks of.
///
/// # Errors
///
/// The fault of the packet: truncated, fragmented, or with a wrong checksum.
pub(crate) fn decode(bytes: &[u8]) -> Result<Option<Datagram>, String> {
    match bytes.first().map(|byte| byte >> 4) {
        Some(4) => decode_v4(bytes),
        Some(6) => decode_v6(bytes),
        Some(other) => Err(format!("unsupported IP version {other}")),
        None => Err("IP header overflows packet".into()),
    }
}

pub(super) fn half(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn decode_v4(bytes: &[u8]) -> Result<Option<Datagram>, String> {
    let header_bytes = usize::from(bytes[0] & 15) * 4;
    if header_bytes < 20 {
        return Err("IP header too short".into());
    }
    if header_bytes > bytes.len() {
        return Err("full IP header overflows packet".into());
    }
    let total = usize::from(half(bytes, 2));
    if total > bytes.len() || total < header_bytes {
        return Err("IP payload overflows packet".into());
    }
    if half(bytes, 6) & 0x3fff != 0 {
        return Err("a fragment".into());
    }
    if fold(sum(&bytes[..header_bytes])) != u16::MAX {
        return Err("bad IP checksum".into());
    }
    let address = |at: usize| {
        IpAddr::V4(Ipv4Addr::new(bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]))
    };
    let frame = Datagram {
        source: address(12),
        destination: address(16),
        tos: bytes[1],
        ttl: bytes[8],
        flow_label: 0,
        dont_fragment: half(bytes, 6) & 0x4000 != 0,
        header_bytes,
        body: Body::Icmp { kind: 0, code: 0, rest: Vec::new() },
    };
    decode_body(frame, bytes[9], &bytes[header_bytes..total])
}

fn decode_v6(bytes: &[u8]) -> Result<Option<Datagram>, String> {
    if bytes.len() < 40 {
        return Err("IPv6 header overflows packet".into());
    }
    let total = 40 + usize::from(half(bytes, 4));
    if total > bytes.len() {
        return Err("IPv6 payload overflows packet".into());
    }
    let first = u32::from(half(bytes, 0)) << 16 | u32::from(half(bytes, 2));
    let address = |at: usize| {
        let mut octets = [0; 16];
        octets.copy_from_slice(&bytes[at..at + 16]);
        IpAddr::V6(Ipv6Addr::from(octets))
    };
    let frame = Datagram {
        source: address(8),
        destination: address(24),
        tos: u8::try_from(first >> 20 & 0xff).unwrap_or(0),
        ttl: bytes[7],
        flow_label: first & 0xf_ffff,
        dont_fragment: false,
        header_bytes: 40,
        body: Body::Icmp { kind: 0, code: 0, rest: Vec::new() },
    };
    decode_body(frame, bytes[6], &bytes[40..total])
}

fn decode_body(
    mut frame: Datagram,
    protocol: u8,
    bytes: &[u8],
) -> Result<Option<Datagram>, String> {
    let shortest = match protocol {
        TCP => 20,
        UDP | ICMPV4 | ICMPV6 => 8,
        _ => return Ok(None),
    };
    if bytes.len() < shortest {
        return Err(format!("truncated header of protocol {protocol}"));
    }
    frame.body = match protocol {
        TCP => Body::Tcp(decode_tcp(bytes)?),
        UDP => {
            if usize::from(half(bytes, 4)) != bytes.len() {
                return Err("UDP length is not that of the packet".into());
            }
            if half(bytes, 6) == 0 {
                return Err("UDP without a checksum".into());
            }
            Body::Udp { ports: (half(bytes, 0), half(bytes, 2)), payload: bytes[8..].to_vec() }
        }
        _ => Body::Icmp { kind: bytes[0], code: bytes[1], rest: bytes[4..].to_vec() },
    };
    let pseudo = match protocol {
        ICMPV4 => 0,
        _ => pseudo_header(frame.source, frame.destination, protocol, bytes.len()),
    };
    if fold(pseudo + sum(bytes)) != u16::MAX {
        return Err(format!("bad checksum of protocol {protocol}"));
    }
    Ok(Some(frame))
}

fn decode_tcp(bytes: &[u8]) -> Result<Segment, String> {
    let header_bytes = usize::from(bytes[12] >> 4) * 4;
    if header_bytes < 20 {
        return Err("TCP data offset too small".into());
    }
    if header_bytes > bytes.len() {
        return Err("TCP data offset too big".into());
    }
    Ok(Segment {
        ports: (half(bytes, 0), half(bytes, 2)),
        seq: super::word(bytes, 4),
        ack: super::word(bytes, 8),
        flags: half(bytes, 12) & 0xfff,
        window: half(bytes, 14),
        urgent: half(bytes, 18),
        options: bytes[20..header_bytes].to_vec(),
        payload: bytes[header_bytes..].to_vec(),
    })
}

/// The sum of the pseudo-header.
#[expect(clippy::cast_possible_truncation, reason = "a datagram is at most 64 KiB")]
fn pseudo_header(source: IpAddr, destination: IpAddr, protocol: u8, length: usize) -> u64 {
    let addresses = match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            sum(&source.octets()) + sum(&destination.octets())
        }
        (source, destination) => sum(&sixteen(source)) + sum(&sixteen(destination)),
    };
    addresses + u64::from(protocol) + u64::from(length as u32)
}

/// The checksum of an IPv4 header whose own field is zero.
pub(super) fn header_sum(header: &[u8]) -> u16 {
    !fold(sum(header))
}

/// The sum of half-words (RFC 1071), not yet folded.
fn sum(bytes: &[u8]) -> u64 {
    let pairs = bytes.chunks(2);
    pairs.map(|pair| u64::from(pair[0]) << 8 | u64::from(pair.get(1).copied().unwrap_or(0))).sum()
}

fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    u16::try_from(sum).unwrap_or(0)
}
