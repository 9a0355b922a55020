//! The IPv4 header (RFC 791 §3.1). Options are ignored (RFC 1122 §3.2.1.8), but for source routes:
//! a packet that has one is refused. RFC 1122 asks a host to answer along the route; since anybody
//! can name a route, RFC 7126 §4.3 and §4.4 advise to drop the packet.

use alloc::vec::Vec;
use core::net::Ipv4Addr;

use super::checksum::{sum, sum_of};
use super::ip::packet::{Fragment, Header, Packet};
use super::ip::problem::{Flaw, Problem};
use super::ip::protocol;
use super::{Malformed, checksum};

/// Bytes of a header without options.
pub(crate) const MIN_HEADER_BYTES: usize = 20;

/// Don't fragment, in the 16 bits of flags and offset.
const DF: u16 = 0x4000;
/// More fragments.
const MF: u16 = 0x2000;
/// The fragment's offset, in units of 8 bytes.
const OFFSET: u16 = 0x1fff;

/// The options of one byte: the end of all, and none.
const END: u8 = 0;
const NOP: u8 = 1;
/// Loose and strict source route.
const SOURCE_ROUTES: [u8; 2] = [131, 137];

/// The packet that `bytes` begin with: lengths and header checksum are right (RFC 1122 §3.2.1.2).
pub(crate) fn parse(bytes: &[u8]) -> Result<Packet<'_>, Malformed> {
    let fixed = bytes.first_chunk::<MIN_HEADER_BYTES>().ok_or(Malformed::Ipv4Length)?;
    if fixed[0] >> 4 != 4 {
        return Err(Malformed::IpVersion);
    }
    let header_len = usize::from(fixed[0] & 0x0f) * 4;
    if header_len < MIN_HEADER_BYTES {
        return Err(Malformed::Ipv4HeaderLength);
    }
    let header = bytes.get(..header_len).ok_or(Malformed::Ipv4HeaderLength)?;
    let sound = match header {
        _ if header_len == MIN_HEADER_BYTES => sum_of(fixed).is_valid(),
        header => sum(header).is_valid(),
    };
    if !sound {
        return Err(Malformed::Ipv4Checksum);
    }
    check_options(&header[MIN_HEADER_BYTES..]).map_err(|wrong| wrong.reason)?;
    let field = |at: usize| u16::from_be_bytes([fixed[at], fixed[at + 1]]);
    let bytes = bytes.get(..usize::from(field(2))).ok_or(Malformed::Ipv4TotalLength)?;
    let payload = bytes.get(header_len..).ok_or(Malformed::Ipv4TotalLength)?;
    let flags = field(6);
    let fragment =
        Fragment { id: u32::from(field(4)), offset: (flags & OFFSET) * 8, more: flags & MF != 0 };
    let [.., s0, s1, s2, s3, d0, d1, d2, d3] = *fixed;
    Ok(Packet {
        source: Ipv4Addr::new(s0, s1, s2, s3).into(),
        destination: Ipv4Addr::new(d0, d1, d2, d3).into(),
        protocol: fixed[9],
        hop_limit: fixed[8],
        traffic_class: fixed[1],
        dont_fragment: flags & DF != 0,
        fragment: if flags & (MF | OFFSET) == 0 {
            None
        } else {
            Some(fragment.check(payload.len(), header_len)?)
        },
        payload,
        bytes,
    })
}

/// A wrong option.
struct WrongOption {
    reason: Malformed,
    /// The byte that is wrong, counted from the first option.
    at: usize,
    /// It is a source route that does not end here.
    goes_on: bool,
}

/// Looks for an option for which the packet is to be refused.
fn check_options(options: &[u8]) -> Result<(), WrongOption> {
    let mut at = 0;
    while let Some(&kind) = options.get(at).filter(|kind| **kind != END) {
        if kind == NOP {
            at += 1;
            continue;
        }
        let option = options.get(at + 1).and_then(|len| options.get(at..at + usize::from(*len)));
        let is_route = SOURCE_ROUTES.contains(&kind);
        // A source route has a pointer as well.
        let least = if is_route { 3 } else { 2 };
        let Some(option) = option.filter(|option| option.len() >= least) else {
            let at = (at + 1).min(options.len() - 1);
            return Err(WrongOption { reason: Malformed::Ipv4Option, at, goes_on: false });
        };
        if is_route {
            // The pointer counts from 1, and lies beyond the option where the route ends.
            let goes_on = usize::from(option[2]) <= option.len();
            return Err(WrongOption { reason: Malformed::Ipv4SourceRoute, at, goes_on });
        }
        at += option.len();
    }
    Ok(())
}

/// What the sender of the packet is to hear of its options.
pub(super) fn problem(bytes: &[u8]) -> Option<Problem<'_>> {
    let fixed = bytes.first_chunk::<MIN_HEADER_BYTES>()?;
    let header = bytes.get(..usize::from(fixed[0] & 0x0f) * 4)?;
    let wrong = check_options(header.get(MIN_HEADER_BYTES..)?).err()?;
    let field = |at: usize| u16::from_be_bytes([fixed[at], fixed[at + 1]]);
    let packet = bytes.get(..usize::from(field(2)))?;
    let payload = packet.get(header.len()..)?;
    let carries_error =
        fixed[9] == protocol::ICMPV4 && payload.first().is_none_or(|kind| is_error(*kind));
    if !sum(header).is_valid() || field(6) & OFFSET != 0 || carries_error {
        return None;
    }
    let flaw = match wrong.reason {
        Malformed::Ipv4SourceRoute if wrong.goes_on => Flaw::SourceRoute,
        Malformed::Ipv4SourceRoute => return None,
        _ => Flaw::Field { code: 0, pointer: (MIN_HEADER_BYTES + wrong.at) as u16 },
    };
    let [.., s0, s1, s2, s3, d0, d1, d2, d3] = *fixed;
    let source = Ipv4Addr::new(s0, s1, s2, s3).into();
    let destination = Ipv4Addr::new(d0, d1, d2, d3).into();
    Some(Problem { source, destination, flaw, of_groups: false, packet })
}

/// True unless a message of ICMP of this type asks for something, or answers that (RFC 1122
/// §3.2.2).
fn is_error(kind: u8) -> bool {
    // Echo, timestamp, information and address mask, each asked and answered; router discovery.
    !matches!(kind, 0 | 8..=10 | 13..=18)
}

/// Appends what `header` says, between these addresses.
pub(super) fn emit(header: &Header, source: Ipv4Addr, destination: Ipv4Addr, out: &mut Vec<u8>) {
    let total_len = header.payload_len() + MIN_HEADER_BYTES as u16;
    let flags = if header.dont_fragment { DF } else { 0 };
    let (identification, flags) = match header.fragment {
        None => (header.identification, flags),
        Some(Fragment { id, offset, more }) => {
            (id as u16, flags | (offset / 8) | if more { MF } else { 0 })
        }
    };
    let octets = |a: u8, b: u8| u32::from(a) << 24 | u32::from(b) << 16;
    let mut words = [
        octets(0x45, header.traffic_class) | u32::from(total_len),
        u32::from(identification) << 16 | u32::from(flags),
        octets(header.hop_limit, header.protocol),
        source.to_bits(),
        destination.to_bits(),
    ];
    words[2] |= u32::from(checksum::of_words(&words));
    let mut fixed = [0; MIN_HEADER_BYTES];
    for (bytes, word) in fixed.as_chunks_mut::<4>().0.iter_mut().zip(words) {
        *bytes = word.to_be_bytes();
    }
    out.extend_from_slice(&fixed);
}

#[cfg(test)]
pub(crate) mod tests;
