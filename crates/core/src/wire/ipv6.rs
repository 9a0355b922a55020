//! The IPv6 header and the walk through its extension headers (RFC 8200 §3, §4).
//!
//! The walk is bounded: at most [`MAX_EXTENSION_HEADERS`] headers with at most [`MAX_OPTIONS`]
//! options in all (RFC 8504 §5.3 allows such limits). Jumbograms (RFC 2675) are refused.

use alloc::vec::Vec;
use core::net::Ipv6Addr;

use super::ip::packet::{Fragment, Header, Packet};
use super::ip::problem::{Flaw, Problem};
use super::ip::protocol;
use super::{Malformed, tcp, u16_at, u32_at, udp};

/// Bytes of the fixed header.
pub const HEADER_BYTES: usize = 40;

/// Bytes of a fragment header.
pub const FRAGMENT_BYTES: usize = 8;

/// Every link carries packets of this size (RFC 8200 §5).
pub const MIN_MTU: u16 = 1280;

/// Extension headers walked at most.
pub const MAX_EXTENSION_HEADERS: usize = 8;

/// Options walked at most in one packet, padding included.
pub const MAX_OPTIONS: usize = 32;

/// The type of the option that makes a jumbogram.
const JUMBO: u8 = 0xc2;

/// The bits of an option's type that say what a node does that does not know it, and their values
/// (RFC 8200 §4.2). In the last case the sender of a packet to a group hears nothing.
const ACTION: u8 = 0xc0;
const SKIP: u8 = 0x00;
const DISCARD: u8 = 0x40;
const TELL: u8 = 0x80;

/// Where the payload length and the first next header value stand in the fixed header.
const PAYLOAD_LEN_AT: usize = 4;
const NEXT_HEADER_AT: usize = 6;

/// Bytes of an ICMPv6 message at least (RFC 4443 §2.1, and the word that all types have).
const ICMPV6_BYTES: usize = 8;

/// Redirect: the one message of ICMPv6 that is no error and is not answered by one either.
const REDIRECT: u8 = 137;

/// Next header values of extension headers.
pub mod next_header {
    /// Hop-by-hop options.
    pub const HOP_BY_HOP: u8 = 0;
    /// Routing.
    pub const ROUTING: u8 = 43;
    /// Fragment.
    pub const FRAGMENT: u8 = 44;
    /// Nothing follows.
    pub const NONE: u8 = 59;
    /// Destination options.
    pub const DESTINATION_OPTIONS: u8 = 60;
}

/// The packet that `bytes` begin with, its extension headers walked up to the fragment header or
/// the upper layer.
pub fn parse(bytes: &[u8]) -> Result<Packet<'_>, Malformed> {
    let fixed = bytes.first_chunk::<HEADER_BYTES>().ok_or(Malformed::Ipv6Length)?;
    let first = u32::from_be_bytes([fixed[0], fixed[1], fixed[2], fixed[3]]);
    if first >> 28 != 6 {
        return Err(Malformed::IpVersion);
    }
    let payload_len = usize::from(u16::from_be_bytes([fixed[4], fixed[5]]));
    if payload_len == 0 && fixed[6] == next_header::HOP_BY_HOP {
        return Err(Malformed::Ipv6Jumbo);
    }
    let bytes = bytes.get(..HEADER_BYTES + payload_len).ok_or(Malformed::Ipv6PayloadLength)?;
    let address = |at: usize| core::array::from_fn::<u8, 16, _>(|i| fixed[at + i]);
    let upper = Walk::new(bytes, fixed[6]).run()?;
    Ok(Packet {
        source: Ipv6Addr::from(address(8)).into(),
        destination: Ipv6Addr::from(address(24)).into(),
        protocol: upper.protocol,
        hop_limit: fixed[7],
        traffic_class: (first >> 20) as u8,
        dont_fragment: true,
        fragment: upper.fragment,
        payload: &bytes[upper.start..],
        bytes,
    })
}

/// What lies behind the extension headers.
struct Upper {
    protocol: u8,
    fragment: Option<Fragment>,
    /// Where it starts in the packet.
    start: usize,
}

/// A walk through the extension headers.
struct Walk<'a> {
    /// The whole packet.
    bytes: &'a [u8],
    /// Where the next header starts.
    at: usize,
    /// What it is.
    next: u8,
    /// Where that is said.
    next_at: usize,
    options_left: usize,
    /// The byte that is wrong, where the walk fails because of one.
    wrong_at: usize,
}

impl<'a> Walk<'a> {
    fn new(bytes: &'a [u8], next: u8) -> Self {
        let (next_at, options_left) = (NEXT_HEADER_AT, MAX_OPTIONS);
        Walk { bytes, at: HEADER_BYTES, next, next_at, options_left, wrong_at: 0 }
    }

    fn run(&mut self) -> Result<Upper, Malformed> {
        for place in 0..=MAX_EXTENSION_HEADERS {
            match self.next {
                next_header::HOP_BY_HOP if place > 0 => {
                    self.wrong_at = self.next_at;
                    return Err(Malformed::Ipv6ExtensionOrder);
                }
                next_header::HOP_BY_HOP | next_header::DESTINATION_OPTIONS => self.options()?,
                next_header::ROUTING => self.routing()?,
                next_header::FRAGMENT => {
                    let fragment = self.fragment()?;
                    if let Some(Fragment { offset, .. }) = fragment {
                        if offset == 0 {
                            self.check_first()?;
                        }
                        return Ok(Upper { protocol: self.next, fragment, start: self.at });
                    }
                }
                protocol => return Ok(Upper { protocol, fragment: None, start: self.at }),
            }
        }
        Err(Malformed::Ipv6ExtensionLimit)
    }

    /// The header at hand, whole, whose second byte gives its length; the walk moves behind it.
    fn take_header(&mut self) -> Result<&'a [u8], Malformed> {
        let short = Malformed::Ipv6Extension;
        let rest = &self.bytes[self.at..];
        let [next, len, ..] = *rest else { return Err(short) };
        let header = rest.get(..8 + 8 * usize::from(len)).ok_or(short)?;
        (self.next, self.next_at) = (next, self.at);
        self.at += header.len();
        Ok(header)
    }

    /// Hop-by-hop or destination options: we know none but padding and the router alert
    /// (RFC 2711), which says nothing to a host; the rest is treated as its type asks.
    fn options(&mut self) -> Result<(), Malformed> {
        let mut rest = &self.take_header()?[2..];
        while let Some((&kind, after)) = rest.split_first() {
            let kind_at = self.at - rest.len();
            let limit = Malformed::Ipv6ExtensionLimit;
            self.options_left = self.options_left.checked_sub(1).ok_or(limit)?;
            if kind == 0 {
                rest = after; // Pad1 is the one option without a length.
                continue;
            }
            let short = Malformed::Ipv6Extension;
            let len = usize::from(*after.first().ok_or(short)?);
            rest = after.get(1 + len..).ok_or(short)?;
            if kind & ACTION != SKIP {
                self.wrong_at = kind_at;
                let is_jumbo = kind == JUMBO;
                return Err(if is_jumbo { Malformed::Ipv6Jumbo } else { Malformed::Ipv6Option });
            }
        }
        Ok(())
    }

    /// A routing header with nothing left to visit is ignored, whatever its type.
    fn routing(&mut self) -> Result<(), Malformed> {
        let header_at = self.at;
        if self.take_header()?[3] == 0 {
            return Ok(());
        }
        self.wrong_at = header_at + 2;
        Err(Malformed::Ipv6Routing)
    }

    /// A fragment header; `None` if it makes the whole packet its only fragment (RFC 6946).
    fn fragment(&mut self) -> Result<Option<Fragment>, Malformed> {
        let short = Malformed::Ipv6Extension;
        let header = self.bytes.get(self.at..self.at + 8).ok_or(short)?;
        let place = u16_at(header, 2).ok_or(short)?;
        let id = u32_at(header, 4).ok_or(short)?;
        (self.next, self.next_at) = (header[0], self.at);
        self.wrong_at = self.at + 2;
        self.at += header.len();
        let fragment = Fragment { id, offset: place & !7, more: place & 1 == 1 };
        if place & !6 == 0 {
            return Ok(None);
        }
        let len = self.bytes.len() - self.at;
        fragment.check(len, 0).map(Some)
    }

    /// A first fragment holds all headers, the upper layer's too (RFC 8200 §4.5, RFC 7112 §5).
    fn check_first(&self) -> Result<(), Malformed> {
        let cut = Malformed::Ipv6FirstFragment;
        let (upper, at) = upper_layer(self.bytes, self.at, self.next).ok_or(cut)?;
        let header_bytes = match upper {
            protocol::TCP => tcp::MIN_HEADER_BYTES,
            protocol::UDP => udp::HEADER_BYTES,
            protocol::ICMPV6 => ICMPV6_BYTES,
            _ => 0,
        };
        if self.bytes.len() < at + header_bytes { Err(cut) } else { Ok(()) }
    }
}

/// Where the next header value of the upper layer stands in a sound packet.
pub(super) fn next_header_at(packet: &[u8]) -> usize {
    let mut walk = Walk::new(packet, packet.get(NEXT_HEADER_AT).copied().unwrap_or_default());
    match walk.run() {
        Ok(_) => walk.next_at,
        Err(_) => NEXT_HEADER_AT,
    }
}

/// What the sender of the packet is to hear of its extension headers.
pub(super) fn problem(bytes: &[u8]) -> Option<Problem<'_>> {
    let fixed = bytes.first_chunk::<HEADER_BYTES>()?;
    let payload_len = usize::from(u16_at(fixed, PAYLOAD_LEN_AT)?);
    let packet = bytes.get(..HEADER_BYTES + payload_len)?;
    let mut walk = Walk::new(packet, fixed[NEXT_HEADER_AT]);
    let (code, at) = match walk.run().err()? {
        // A jumbogram's option is one that we do not know.
        Malformed::Ipv6Option | Malformed::Ipv6Jumbo => (2, walk.wrong_at),
        Malformed::Ipv6ExtensionOrder => (1, walk.wrong_at),
        Malformed::Ipv6Routing | Malformed::FragmentEnd => (0, walk.wrong_at),
        Malformed::FragmentLength => (0, PAYLOAD_LEN_AT),
        Malformed::Ipv6FirstFragment => (3, 0),
        _ => return None,
    };
    let action = packet.get(at)? & ACTION;
    if code == 2 && action == DISCARD || carries_error(packet, fixed[NEXT_HEADER_AT]) {
        return None;
    }
    let address = |at: usize| core::array::from_fn::<u8, 16, _>(|i| fixed[at + i]);
    Some(Problem {
        source: Ipv6Addr::from(address(8)).into(),
        destination: Ipv6Addr::from(address(24)).into(),
        flaw: Flaw::Field { code, pointer: at as u16 },
        of_groups: code == 2 && action == TELL,
        packet,
    })
}

/// True if the packet carries an ICMPv6 error or a redirect, or may do so (RFC 4443 §2.4e).
fn carries_error(packet: &[u8], next: u8) -> bool {
    match upper_layer(packet, HEADER_BYTES, next) {
        Some((protocol::ICMPV6, at)) => {
            packet.get(at).is_none_or(|kind| *kind < 128 || *kind == REDIRECT)
        }
        upper => upper.is_none(),
    }
}

/// The protocol of the upper layer, and where it starts, whatever the extension headers from `at`
/// on say. `None` if the packet ends before, or there are too many of them. A later fragment has
/// none: what it is a piece of, only the first one says.
fn upper_layer(packet: &[u8], mut at: usize, mut next: u8) -> Option<(u8, usize)> {
    for _ in 0..=MAX_EXTENSION_HEADERS {
        let header = packet.get(at..)?;
        let len = match next {
            next_header::FRAGMENT if u16_at(header, 2)? & !7 != 0 => {
                return Some((next_header::NONE, at));
            }
            next_header::FRAGMENT => FRAGMENT_BYTES,
            next_header::HOP_BY_HOP | next_header::ROUTING | next_header::DESTINATION_OPTIONS => {
                8 + 8 * usize::from(*header.get(1)?)
            }
            upper => return Some((upper, at)),
        };
        (next, at) = (*header.first()?, at + len);
    }
    None
}

/// Appends what `header` says, between these addresses.
pub(super) fn emit(header: &Header, source: Ipv6Addr, destination: Ipv6Addr, out: &mut Vec<u8>) {
    let first = 6 << 28 | u32::from(header.traffic_class) << 20 | header.flow_label & 0x000f_ffff;
    let mut fixed = [0; HEADER_BYTES];
    let (next, extension) = match header.fragment {
        None => (header.protocol, 0),
        Some(_) => (next_header::FRAGMENT, FRAGMENT_BYTES as u16),
    };
    fixed[0..4].copy_from_slice(&first.to_be_bytes());
    fixed[4..6].copy_from_slice(&header.payload_len().saturating_add(extension).to_be_bytes());
    fixed[6] = next;
    fixed[7] = header.hop_limit;
    fixed[8..24].copy_from_slice(&source.octets());
    fixed[24..40].copy_from_slice(&destination.octets());
    out.extend_from_slice(&fixed);
    if let Some(Fragment { id, offset, more }) = header.fragment {
        let place = offset & !7 | u16::from(more);
        out.extend_from_slice(&[header.protocol, 0]);
        out.extend_from_slice(&place.to_be_bytes());
        out.extend_from_slice(&id.to_be_bytes());
    }
}

#[cfg(test)]
pub(crate) mod tests;
