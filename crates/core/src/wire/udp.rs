//! The UDP header (RFC 768), and its checksum (RFC 1122 §4.1.3.4, RFC 8200 §8.1).
//!
//! ```text
//!   0            2                 4        6          8
//!   source port  destination port  length   checksum   payload
//! ```
//!
//! The length counts the header. A checksum of zero says that there is none, which IPv4 allows and
//! IPv6 does not; a sum that comes out as zero is sent as its other form, all ones.

use alloc::vec::Vec;
use core::net::IpAddr;

use super::checksum::{Sum, pseudo_header, sum};
use super::{Malformed, u16_at};

/// Protocol number of UDP.
pub const PROTOCOL: u8 = 17;

/// Bytes of the header.
pub const HEADER_BYTES: usize = 8;

/// Where the checksum is in the header, in bytes from its start.
pub const CHECKSUM_OFFSET: usize = 6;

/// A datagram that has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram<'a> {
    /// The sender's port; 0 if it takes no answer.
    pub source_port: u16,
    /// The receiver's port.
    pub destination_port: u16,
    /// The data.
    pub payload: &'a [u8],
    /// The header and the data: what the checksum covers.
    bytes: &'a [u8],
}

impl<'a> Datagram<'a> {
    /// The datagram that `bytes`, an IP packet's whole payload, begin with. What lies behind its
    /// length is not its own. The checksum is not looked at: see [`Datagram::is_sound`].
    pub fn parse(bytes: &'a [u8]) -> Result<Datagram<'a>, Malformed> {
        let header = bytes.first_chunk::<HEADER_BYTES>().ok_or(Malformed::UdpLength)?;
        let [a, b, c, d, e, f, ..] = *header;
        let len = usize::from(u16::from_be_bytes([e, f]));
        let bytes = bytes.get(..len).ok_or(Malformed::UdpLength)?;
        let payload = bytes.get(HEADER_BYTES..).ok_or(Malformed::UdpLength)?;
        let destination_port = u16::from_be_bytes([c, d]);
        if destination_port == 0 {
            return Err(Malformed::UdpPort);
        }
        let source_port = u16::from_be_bytes([a, b]);
        Ok(Datagram { source_port, destination_port, payload, bytes })
    }

    /// True if the checksum is right between these addresses, or if there is none and need be none.
    pub fn is_sound(&self, source: IpAddr, destination: IpAddr) -> bool {
        if u16_at(self.bytes, CHECKSUM_OFFSET) == Some(0) {
            return source.is_ipv4();
        }
        let len = self.bytes.len() as u32;
        pseudo_header(source, destination, PROTOCOL, len).then(sum(self.bytes)).is_valid()
    }
}

/// The checksum of a datagram whose pseudo-header, header and data have this sum.
pub(crate) fn checksum_of(total: Sum) -> u16 {
    match total.checksum() {
        0 => 0xffff,
        checksum => checksum,
    }
}

/// A header to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Our port.
    pub source_port: u16,
    /// The receiver's port.
    pub destination_port: u16,
    /// Bytes of the header and the data.
    pub len: u16,
}

impl Header {
    /// The checksum between these addresses over data with this sum.
    pub fn checksum(&self, source: IpAddr, destination: IpAddr, payload: Sum) -> u16 {
        checksum_of(self.pseudo(source, destination).then(sum(&self.bytes(0))).then(payload))
    }

    fn pseudo(&self, source: IpAddr, destination: IpAddr) -> Sum {
        pseudo_header(source, destination, PROTOCOL, self.len.into())
    }

    /// Appends the header with this checksum.
    pub fn emit(&self, checksum: u16, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.bytes(checksum));
    }

    fn bytes(&self, checksum: u16) -> [u8; HEADER_BYTES] {
        let ports = u64::from(self.source_port) << 48 | u64::from(self.destination_port) << 32;
        (ports | u64::from(self.len) << 16 | u64::from(checksum)).to_be_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn ends(ipv6: bool) -> (IpAddr, IpAddr) {
        if ipv6 {
            ("fd00::1".parse().unwrap(), "fd00::2".parse().unwrap())
        } else {
            ([10, 0, 0, 1].into(), [10, 0, 0, 2].into())
        }
    }

    fn datagram(
        ports: (u16, u16),
        payload: &[u8],
        (source, destination): (IpAddr, IpAddr),
    ) -> Vec<u8> {
        let len = (HEADER_BYTES + payload.len()) as u16;
        let header = Header { source_port: ports.0, destination_port: ports.1, len };
        let mut bytes = Vec::new();
        header.emit(header.checksum(source, destination, sum(payload)), &mut bytes);
        bytes.extend_from_slice(payload);
        bytes
    }

    #[test]
    fn a_length_beyond_the_packet_or_below_the_header_is_malformed() {
        let good = datagram((1, 2), &[7; 5], ends(false));
        assert_eq!(Datagram::parse(&good).unwrap().payload, [7; 5]);
        assert_eq!(Datagram::parse(&good[..12]), Err(Malformed::UdpLength));
        assert_eq!(Datagram::parse(&good[..7]), Err(Malformed::UdpLength));
        let mut short = good.clone();
        short[5] = 8;
        assert_eq!(Datagram::parse(&short).unwrap().payload, []);
        short[5] = 7;
        assert_eq!(Datagram::parse(&short), Err(Malformed::UdpLength));
    }

    #[test]
    fn no_datagram_goes_to_port_zero_and_one_may_come_from_there() {
        let bytes = datagram((0, 2), &[], ends(false));
        assert_eq!(Datagram::parse(&bytes).unwrap().source_port, 0);
        let bytes = datagram((1, 0), &[], ends(false));
        assert_eq!(Datagram::parse(&bytes), Err(Malformed::UdpPort));
    }

    #[test]
    fn no_checksum_is_sound_over_ipv4_alone() {
        for ipv6 in [false, true] {
            let (source, destination) = ends(ipv6);
            let mut bytes = datagram((1, 2), &[1, 2, 3], ends(ipv6));
            bytes[CHECKSUM_OFFSET..][..2].fill(0);
            let is_sound = Datagram::parse(&bytes).unwrap().is_sound(source, destination);
            assert_eq!(is_sound, !ipv6);
        }
    }

    #[test]
    fn a_sum_of_zero_is_sent_as_ones() {
        let (source, destination) = ends(false);
        let header = Header { source_port: 1, destination_port: 2, len: 10 };
        // The data that make the sum all ones, whose complement is zero.
        let without = header.checksum(source, destination, Sum::ZERO);
        let payload = without.to_be_bytes();
        assert_eq!(header.checksum(source, destination, sum(&payload)), 0xffff);
        let bytes = datagram((1, 2), &payload, ends(false));
        assert!(Datagram::parse(&bytes).unwrap().is_sound(source, destination));
    }

    proptest! {
        #[test]
        fn what_is_emitted_is_parsed_and_any_bit_flipped_is_not_sound(
            ports: (u16, u16), payload in vec(any::<u8>(), 0..100), padding in 0usize..5,
            ipv6: bool, flip in any::<prop::sample::Index>(), bit in 0u8..8,
        ) {
            let (source, destination) = ends(ipv6);
            let ports = (ports.0, ports.1.max(1));
            let mut bytes = datagram(ports, &payload, (source, destination));
            let len = bytes.len();
            bytes.resize(len + padding, 0xee);
            let view = Datagram::parse(&bytes).unwrap();
            prop_assert_eq!((view.source_port, view.destination_port), ports);
            prop_assert_eq!(view.payload, &payload[..]);
            prop_assert!(view.is_sound(source, destination));
            let at = flip.index(len);
            bytes[at] ^= 1 << bit;
            // A flipped length is another datagram, and a flipped checksum may say that there is
            // none.
            let is_length = (4..6).contains(&at);
            let has_none = bytes[6..8] == [0, 0];
            if let Ok(view) = Datagram::parse(&bytes) {
                prop_assert!(is_length || has_none || !view.is_sound(source, destination));
            }
        }
    }
}
