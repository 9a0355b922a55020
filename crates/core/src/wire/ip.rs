//! IP packets of both versions, seen alike.
//!
//! The two headers are read by `ipv4` and [`ipv6`]; what a host wants to know of them is the same
//! and stands here.

pub(in crate::wire) mod packet;
pub(crate) mod problem;
pub mod protocol;

use alloc::vec::Vec;
use core::net::IpAddr;

use super::{Malformed, ipv4, ipv6};
pub use packet::Fragment;
use packet::MAX_BYTES;
pub use packet::{Header, Packet};
use problem::Problem;

/// The hop limit of what we send (IANA's default TTL).
pub(crate) const DEFAULT_HOP_LIMIT: u8 = 64;

impl<'a> Packet<'a> {
    /// The packet that `bytes` begin with.
    pub fn parse(bytes: &'a [u8]) -> Result<Packet<'a>, Malformed> {
        match bytes.first().map(|first| first >> 4) {
            Some(4) => ipv4::parse(bytes),
            Some(6) => ipv6::parse(bytes),
            _ => Err(Malformed::IpVersion),
        }
    }
}

impl Header {
    /// A header before `payload_len` bytes, with our hop limit, no traffic class, and DF. `None` if
    /// the addresses are of two versions, or the packet would be longer than its length field can
    /// say.
    pub fn new(
        source: IpAddr,
        destination: IpAddr,
        protocol: u8,
        payload_len: usize,
    ) -> Option<Header> {
        let header_in_length = if source.is_ipv4() { ipv4::MIN_HEADER_BYTES } else { 0 };
        let fits = payload_len <= MAX_BYTES - header_in_length;
        (source.is_ipv4() == destination.is_ipv4() && fits).then_some(Header {
            source,
            destination,
            payload_len: payload_len as u16,
            protocol,
            hop_limit: DEFAULT_HOP_LIMIT,
            traffic_class: 0,
            dont_fragment: true,
            identification: 0,
            flow_label: 0,
            fragment: None,
        })
    }

    /// Bytes that follow the header.
    pub fn payload_len(&self) -> u16 {
        self.payload_len
    }

    /// Bytes that [`Header::emit`] appends.
    pub fn header_len(&self) -> usize {
        let is_fragment = self.fragment.is_some() && self.source.is_ipv6();
        header_len(self.source) + if is_fragment { ipv6::FRAGMENT_BYTES } else { 0 }
    }

    /// Appends the header, its own checksum (of IPv4) filled in.
    pub fn emit(&self, out: &mut Vec<u8>) {
        match (self.source, self.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                ipv4::emit(self, source, destination, out);
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                ipv6::emit(self, source, destination, out);
            }
            _ => unreachable!("`new` takes addresses of one version only"),
        }
    }
}

/// The problem of the packet that `bytes` begin with, if it is refused for one that its sender is
/// to hear of. An ICMP error is never answered, nor is a fragment of IPv4 other than the first.
pub(crate) fn problem(bytes: &[u8]) -> Option<Problem<'_>> {
    match bytes.first()? >> 4 {
        4 => ipv4::problem(bytes),
        6 => ipv6::problem(bytes),
        _ => None,
    }
}

/// Where the next header value of the upper layer stands in a sound IPv6 packet.
pub(crate) fn next_header_at(packet: &[u8]) -> usize {
    ipv6::next_header_at(packet)
}

/// Bytes of an IPv4 header without options.
pub(crate) const MIN_IPV4_HEADER_BYTES: usize = ipv4::MIN_HEADER_BYTES;

/// Bytes of the header that we send to and from addresses of this version.
pub const fn header_len(address: IpAddr) -> usize {
    match address {
        IpAddr::V4(_) => ipv4::MIN_HEADER_BYTES,
        IpAddr::V6(_) => ipv6::HEADER_BYTES,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn any_pair() -> impl Strategy<Value = (IpAddr, IpAddr)> {
        prop_oneof![
            any::<([u8; 4], [u8; 4])>().prop_map(|(a, b)| (a.into(), b.into())),
            any::<([u8; 16], [u8; 16])>().prop_map(|(a, b)| (a.into(), b.into())),
        ]
    }

    #[test]
    fn the_longest_packet_has_a_header_and_one_longer_has_none() {
        let (a, b): (IpAddr, IpAddr) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
        assert!(Header::new(a, b, 6, 65_515).is_some());
        assert!(Header::new(a, b, 6, 65_516).is_none());
        let c: IpAddr = "fd00::1".parse().unwrap();
        assert!(Header::new(c, c, 6, 65_535).is_some());
        assert!(Header::new(c, c, 6, 65_536).is_none());
        assert!(Header::new(a, c, 6, 0).is_none(), "two versions");
    }

    #[test]
    fn other_versions_are_malformed() {
        assert_eq!(Packet::parse(&[]), Err(Malformed::IpVersion));
        assert_eq!(Packet::parse(&[0x50; 60]), Err(Malformed::IpVersion));
    }

    proptest! {
        #[test]
        fn what_is_emitted_is_parsed(
            pair in any_pair(), octets: (u8, u8), dont_fragment: bool, identification: u16,
            flow_label in 0u32..1 << 20, payload in vec(any::<u8>(), 0..64), padding in 0usize..8,
        ) {
            let header = Header {
                hop_limit: octets.0,
                traffic_class: octets.1,
                dont_fragment,
                identification,
                flow_label,
                ..Header::new(pair.0, pair.1, 6, payload.len()).unwrap()
            };
            let mut bytes = Vec::new();
            header.emit(&mut bytes);
            prop_assert_eq!(bytes.len(), header.header_len());
            bytes.extend_from_slice(&payload);
            let len = bytes.len();
            bytes.resize(len + padding, 0xee);
            let packet = Packet::parse(&bytes).unwrap();
            let expected = Packet {
                source: pair.0,
                destination: pair.1,
                protocol: 6,
                hop_limit: octets.0,
                traffic_class: octets.1,
                dont_fragment: dont_fragment || pair.0.is_ipv6(),
                fragment: None,
                payload: &payload,
                bytes: &bytes[..len],
            };
            prop_assert_eq!(packet, expected);
        }

        #[test]
        fn a_fragment_is_parsed_where_it_belongs(
            pair in any_pair(), id: u32, place in 0u16..8000, more: bool,
            payload in vec(any::<u8>(), 8..64),
        ) {
            let payload = &payload[..payload.len() & !7];
            let fragment = Fragment { id, offset: place * 8, more };
            let mut header = Header::new(pair.0, pair.1, 17, payload.len()).unwrap();
            (header.dont_fragment, header.fragment) = (false, Some(fragment));
            let mut bytes = Vec::new();
            header.emit(&mut bytes);
            prop_assert_eq!(bytes.len(), header.header_len());
            bytes.extend_from_slice(payload);
            let packet = Packet::parse(&bytes).unwrap();
            let is_whole = place == 0 && !more;
            let id = if pair.0.is_ipv4() { id & 0xffff } else { id };
            let expected = (!is_whole).then_some(Fragment { id, ..fragment });
            prop_assert_eq!((packet.protocol, packet.fragment), (17, expected));
            prop_assert_eq!(packet.payload, payload);
        }

        #[test]
        fn a_problem_is_told_of_what_is_malformed_alone(
            mut bytes in vec(any::<u8>(), 0..200), six: bool, options in 5u8..16,
        ) {
            if let Some(first) = bytes.first_mut() {
                *first = if six { 0x60 } else { 0x40 | options };
            }
            ipv4::tests::seal_if_long(&mut bytes);
            if let Some(problem) = problem(&bytes) {
                prop_assert!(Packet::parse(&bytes).is_err());
                prop_assert!(bytes.starts_with(problem.packet));
                if let problem::Flaw::Field { pointer, .. } = problem.flaw {
                    prop_assert!(usize::from(pointer) < problem.packet.len());
                }
            }
        }

        #[test]
        fn any_bytes_are_a_packet_or_malformed(mut bytes in vec(any::<u8>(), 0..200), six: bool) {
            if let Some(first) = bytes.first_mut() {
                *first = if six { 0x60 } else { 0x45 };
            }
            if let Ok(packet) = Packet::parse(&bytes) {
                prop_assert!(packet.payload.len() < packet.bytes.len());
                prop_assert_eq!(packet.source.is_ipv6(), six);
            }
        }
    }
}
