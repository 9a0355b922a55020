//! Raw IP packets: the runner writes, reads and compares them.
//!
//! Nothing here comes from the engine: the judge must not share the engine's mistakes. Scripts also
//! ask for packets that the engine's own writer refuses to make.

mod check;
mod fragment;
mod icmp;
mod show;
mod wire;

use std::net::{IpAddr, SocketAddr};

pub(crate) use check::{Expectation, StampTolerance, check, check_ends, check_fragment};
pub(crate) use fragment::{Fragment, cut, join};
pub(crate) use icmp::{check_quote, quote};
pub(crate) use show::show;
pub(crate) use wire::{decode, encode, encode_datagram};

use crate::ast::{BodySpec, Direction, PacketSpec, TosSpec};

/// TCP header flags, and the reserved bits above them.
pub(crate) mod flag {
    pub(crate) const FIN: u16 = 1;
    pub(crate) const SYN: u16 = 2;
    pub(crate) const RST: u16 = 4;
    pub(crate) const PSH: u16 = 8;
    pub(crate) const ACK: u16 = 16;
    pub(crate) const URG: u16 = 32;
    pub(crate) const ECE: u16 = 64;
    pub(crate) const CWR: u16 = 128;
    pub(crate) const AE: u16 = 256;
    pub(crate) const RESERVED: u16 = 0xe00;
}

/// Protocol numbers.
pub(crate) const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;
pub(crate) const ICMPV4: u8 = 1;
pub(crate) const ICMPV6: u8 = 58;

/// An IP packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Datagram {
    pub(crate) source: IpAddr,
    pub(crate) destination: IpAddr,
    pub(crate) tos: u8,
    /// TTL or hop limit.
    pub(crate) ttl: u8,
    /// IPv6 alone.
    pub(crate) flow_label: u32,
    /// IPv4's DF.
    pub(crate) dont_fragment: bool,
    /// The IP header's length; options themselves are not kept.
    pub(crate) header_bytes: usize,
    pub(crate) body: Body,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Body {
    Tcp(Segment),
    Udp {
        ports: (u16, u16),
        payload: Vec<u8>,
    },
    /// Type, code, and all behind the checksum.
    Icmp {
        kind: u8,
        code: u8,
        rest: Vec<u8>,
    },
}

/// A TCP segment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Segment {
    /// Source and destination.
    pub(crate) ports: (u16, u16),
    pub(crate) seq: u32,
    pub(crate) ack: u32,
    pub(crate) flags: u16,
    pub(crate) window: u16,
    pub(crate) urgent: u16,
    /// A multiple of four bytes.
    pub(crate) options: Vec<u8>,
    pub(crate) payload: Vec<u8>,
}

impl Segment {
    pub(crate) fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }
}

/// The addresses and ports of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tuple {
    pub(crate) source: SocketAddr,
    pub(crate) destination: SocketAddr,
}

impl Datagram {
    pub(crate) fn tuple(&self) -> Tuple {
        let ports = match &self.body {
            Body::Tcp(segment) => segment.ports,
            Body::Udp { ports, .. } => *ports,
            Body::Icmp { .. } => (0, 0),
        };
        Tuple {
            source: SocketAddr::new(self.source, ports.0),
            destination: SocketAddr::new(self.destination, ports.1),
        }
    }

    pub(crate) fn protocol(&self) -> u8 {
        match (&self.body, self.source) {
            (Body::Tcp(_), _) => TCP,
            (Body::Udp { .. }, _) => UDP,
            (Body::Icmp { .. }, IpAddr::V4(_)) => ICMPV4,
            (Body::Icmp { .. }, IpAddr::V6(_)) => ICMPV6,
        }
    }

    pub(crate) fn segment(&self) -> Option<&Segment> {
        match &self.body {
            Body::Tcp(segment) => Some(segment),
            _ => None,
        }
    }

    pub(crate) fn segment_mut(&mut self) -> Option<&mut Segment> {
        match &mut self.body {
            Body::Tcp(segment) => Some(segment),
            _ => None,
        }
    }

    /// The payload of TCP or UDP.
    pub(crate) fn payload(&self) -> &[u8] {
        match &self.body {
            Body::Tcp(segment) => &segment.payload,
            Body::Udp { payload, .. } => payload,
            Body::Icmp { .. } => &[],
        }
    }
}

/// The packet that a script describes, between `source` and `destination`, in the script's own
/// numbers.
///
/// # Errors
///
/// An ICMP message that does not exist in this version of IP, or a packet that no IP header can
/// describe.
pub(crate) fn build(
    spec: &PacketSpec,
    source: IpAddr,
    destination: IpAddr,
) -> Result<Datagram, String> {
    let body = match &spec.body {
        BodySpec::Tcp(tcp) => Body::Tcp(Segment {
            ports: tcp.ports,
            seq: tcp.seq,
            ack: tcp.ack,
            flags: tcp.flags,
            window: tcp.window.unwrap_or(0),
            urgent: tcp.urgent,
            options: tcp.options.as_ref().map_or_else(Vec::new, |options| options.bytes.clone()),
            payload: vec![0; usize::from(tcp.length)],
        }),
        BodySpec::Udp(udp) => {
            Body::Udp { ports: udp.ports, payload: pattern(usize::from(udp.length)) }
        }
        BodySpec::Icmp(icmp) => icmp::build(icmp, source, destination)?,
    };
    let header_bytes = if source.is_ipv4() { 20 } else { 40 };
    // Only IPv4 counts its header.
    let most = match (&body, source) {
        (Body::Udp { .. }, IpAddr::V4(_)) => 65_535,
        (Body::Udp { .. }, IpAddr::V6(_)) => header_bytes + 65_535,
        _ => 64_000,
    };
    if body.payload_bytes() + header_bytes > most {
        return Err("segment too large".into());
    }
    let tos = match spec.ip.tos {
        TosSpec::Ecn(value) | TosSpec::Whole(value) => value,
        TosSpec::Unchecked | TosSpec::Ect01 => 0,
    };
    // An injected packet must live to the end of its way. The field is not compared in an expected
    // one.
    let ttl = spec.ip.ttl.unwrap_or(if spec.direction == Direction::Inbound { 255 } else { 0 });
    let flow_label = spec.ip.flow_label;
    let dont_fragment = spec.ip.dont_fragment.unwrap_or(false);
    Ok(Datagram { source, destination, tos, ttl, flow_label, dont_fragment, header_bytes, body })
}

/// The bytes of a datagram of that length: no byte is like its neighbours, so that none may be
/// missing or in another's place. The original sends zeros both ways.
#[expect(clippy::cast_possible_truncation, reason = "of no more than 250")]
pub(crate) fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at % 251) as u8 + 1).collect()
}

impl Body {
    fn payload_bytes(&self) -> usize {
        match self {
            Body::Tcp(segment) => 20 + segment.options.len() + segment.payload.len(),
            Body::Udp { payload, .. } => 8 + payload.len(),
            Body::Icmp { rest, .. } => 4 + rest.len(),
        }
    }
}

/// One TCP option: its kind and its place with kind and length.
pub(crate) type OptionPlace = (u8, std::ops::Range<usize>);

/// The options of a header, in order.
///
/// # Errors
///
/// A kind or a length that packetdrill does not know, with the options before it.
pub(crate) fn options(bytes: &[u8]) -> (Vec<OptionPlace>, Option<String>) {
    let mut places = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let kind = bytes[at];
        let length = match option_length(kind, bytes.get(at + 1).copied(), bytes.len() - at) {
            Ok(length) => length,
            Err(error) => {
                places.push((kind, at..bytes.len()));
                return (places, Some(error));
            }
        };
        places.push((kind, at..at + length));
        at += length;
    }
    (places, None)
}

/// The length of an option with `room` bytes from its kind to the header's end.
fn option_length(kind: u8, length: Option<u8>, room: usize) -> Result<usize, String> {
    let expected = match kind {
        0 | 1 => return Ok(1),
        2 => 4,
        3 => 3,
        4 => 2,
        8 => 10,
        5 | 19 | 34 | 254 => 0,
        _ => return Err(format!("unexpected TCP option kind: {kind}")),
    };
    let length = usize::from(length.ok_or("TCP option length byte extends too far")?);
    if length < 2 {
        return Err("TCP option with length byte is too short".into());
    }
    if length > room {
        return Err("TCP option data extends too far".into());
    }
    if expected != 0 && length != expected {
        return Err(format!("bad TCP option length: was {length} but expected {expected}"));
    }
    Ok(length)
}

/// The place of the timestamp option's value; its echo is four bytes behind.
pub(crate) fn timestamp_place(bytes: &[u8]) -> Option<usize> {
    let (places, _) = options(bytes);
    places.into_iter().find(|(kind, _)| *kind == 8).map(|(_, place)| place.start + 2)
}

/// A number of a header, big-endian.
pub(crate) fn word(bytes: &[u8], at: usize) -> u32 {
    let mut four = [0; 4];
    four.copy_from_slice(&bytes[at..at + 4]);
    u32::from_be_bytes(four)
}

/// Add `offset` to every edge of every SACK block.
pub(crate) fn shift_sack(bytes: &mut [u8], offset: u32) -> Result<(), String> {
    let (places, error) = options(bytes);
    for (_, place) in places.into_iter().filter(|(kind, _)| *kind == 5) {
        let blocks = place.start + 2..place.end;
        if blocks.len() % 8 != 0 {
            return Err("a SACK option that is not a number of blocks".into());
        }
        for at in blocks.step_by(4) {
            let edge = word(bytes, at).wrapping_add(offset);
            bytes[at..at + 4].copy_from_slice(&edge.to_be_bytes());
        }
    }
    error.map_or(Ok(()), Err)
}
