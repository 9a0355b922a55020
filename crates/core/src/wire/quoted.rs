//! The packet that an ICMP error quotes: the beginning of one that we sent, as it looked to the
//! host that complains (RFC 792, RFC 4443 §3). All of it is hearsay until it is checked against a
//! connection (RFC 5927 §4).

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{Malformed, ipv4, ipv6, u16_at, u32_at};
use crate::flow::Seq;

/// The beginning of a packet of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quoted<'a> {
    /// Our address, if it is true.
    pub source: IpAddr,
    /// The receiver of the packet.
    pub destination: IpAddr,
    /// The protocol that it carried; [`next_header::FRAGMENT`](super::ipv6::next_header::FRAGMENT)
    /// of a fragment other than the first. The only extension header that we send is a fragment's,
    /// so no other is walked.
    pub protocol: u8,
    /// The length that the whole packet had, in bytes: for RFC 1191's plateaus.
    pub packet_len: u32,
    /// The quoted part of its payload: at least 8 bytes.
    pub payload: &'a [u8],
}

impl<'a> Quoted<'a> {
    /// The packet quoted in `bytes`, what follows the first 8 bytes of an ICMP error.
    pub fn parse(bytes: &'a [u8]) -> Result<Quoted<'a>, Malformed> {
        let quoted = match bytes.first().map(|first| first >> 4) {
            Some(4) => Self::parse_ipv4(bytes),
            Some(6) => Self::parse_ipv6(bytes),
            _ => Err(Malformed::IpVersion),
        }?;
        if quoted.payload.len() < 8 { Err(Malformed::QuotedLength) } else { Ok(quoted) }
    }

    fn parse_ipv4(bytes: &'a [u8]) -> Result<Quoted<'a>, Malformed> {
        let fixed =
            bytes.first_chunk::<{ ipv4::MIN_HEADER_BYTES }>().ok_or(Malformed::QuotedLength)?;
        let header_len = usize::from(fixed[0] & 0x0f) * 4;
        if header_len < ipv4::MIN_HEADER_BYTES {
            return Err(Malformed::Ipv4HeaderLength);
        }
        let is_first = u16::from_be_bytes([fixed[6], fixed[7]]) & 0x1fff == 0;
        let [.., s0, s1, s2, s3, d0, d1, d2, d3] = *fixed;
        Ok(Quoted {
            source: Ipv4Addr::new(s0, s1, s2, s3).into(),
            destination: Ipv4Addr::new(d0, d1, d2, d3).into(),
            protocol: if is_first { fixed[9] } else { ipv6::next_header::FRAGMENT },
            packet_len: u32::from(u16::from_be_bytes([fixed[2], fixed[3]])),
            payload: bytes.get(header_len..).ok_or(Malformed::QuotedLength)?,
        })
    }

    fn parse_ipv6(bytes: &'a [u8]) -> Result<Quoted<'a>, Malformed> {
        let (fixed, payload) =
            bytes.split_first_chunk::<{ ipv6::HEADER_BYTES }>().ok_or(Malformed::QuotedLength)?;
        let address = |at: usize| core::array::from_fn::<u8, 16, _>(|i| fixed[at + i]);
        let payload_len = u16::from_be_bytes([fixed[4], fixed[5]]);
        let (protocol, payload) = match (fixed[6], payload.split_first_chunk()) {
            (ipv6::next_header::FRAGMENT, Some((header, rest))) => behind_fragment(header, rest),
            (protocol, _) => (protocol, payload),
        };
        Ok(Quoted {
            source: Ipv6Addr::from(address(8)).into(),
            destination: Ipv6Addr::from(address(24)).into(),
            protocol,
            packet_len: u32::from(payload_len) + ipv6::HEADER_BYTES as u32,
            payload,
        })
    }

    /// The ports, ours first, if the packet was a UDP datagram.
    pub fn udp(&self) -> Option<(u16, u16)> {
        if self.protocol != super::udp::PROTOCOL {
            return None;
        }
        Some((u16_at(self.payload, 0)?, u16_at(self.payload, 2)?))
    }

    /// The fields in the quoted 8 bytes if the packet was a TCP segment.
    pub fn tcp(&self) -> Option<QuotedTcp> {
        if self.protocol != super::tcp::PROTOCOL {
            return None;
        }
        Some(QuotedTcp {
            source_port: u16_at(self.payload, 0)?,
            destination_port: u16_at(self.payload, 2)?,
            seq: Seq(u32_at(self.payload, 4)?),
        })
    }
}

/// The protocol and the payload behind a fragment header of IPv6.
fn behind_fragment<'a>(header: &[u8; ipv6::FRAGMENT_BYTES], rest: &'a [u8]) -> (u8, &'a [u8]) {
    let is_first = u16::from_be_bytes([header[2], header[3]]) & !7 == 0;
    (if is_first { header[0] } else { ipv6::next_header::FRAGMENT }, rest)
}

/// The first 8 bytes of a TCP segment of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuotedTcp {
    /// Our port.
    pub source_port: u16,
    /// The peer's port.
    pub destination_port: u16,
    /// SEG.SEQ: believed only between SND.UNA and SND.NXT (RFC 5927 §4.1).
    pub seq: Seq,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::ip::{Fragment, Header};
    use alloc::vec::Vec;

    fn packet(source: &str, destination: &str, protocol: u8) -> Vec<u8> {
        let mut bytes = Vec::new();
        let (source, destination) = (source.parse().unwrap(), destination.parse().unwrap());
        Header::new(source, destination, protocol, 1000).unwrap().emit(&mut bytes);
        bytes.extend_from_slice(&[0, 80, 0x12, 0x34, 0, 0, 1, 0]);
        bytes
    }

    #[test]
    fn eight_bytes_of_a_segment_are_enough_and_seven_are_not() {
        for (source, destination) in [("10.0.0.1", "10.0.0.2"), ("fd00::1", "fd00::2")] {
            let bytes = packet(source, destination, 6);
            let quoted = Quoted::parse(&bytes).unwrap();
            assert_eq!(quoted.source, source.parse::<IpAddr>().unwrap());
            assert_eq!(quoted.destination, destination.parse::<IpAddr>().unwrap());
            assert_eq!(quoted.packet_len as usize, bytes.len() - 8 + 1000);
            let tcp = QuotedTcp { source_port: 80, destination_port: 0x1234, seq: Seq(256) };
            assert_eq!(quoted.tcp(), Some(tcp));
            let cut = Quoted::parse(&bytes[..bytes.len() - 1]);
            assert_eq!(cut, Err(Malformed::QuotedLength));
            let header = Quoted::parse(&bytes[..bytes.len() - 9]);
            assert_eq!(header, Err(Malformed::QuotedLength));
        }
    }

    #[test]
    fn the_first_fragment_says_what_it_carries_and_others_do_not() {
        for (source, destination) in [("10.0.0.1", "10.0.0.2"), ("fd00::1", "fd00::2")] {
            for (offset, ports) in [(0, Some((80, 0x1234))), (8, None)] {
                let (source, destination) = (source.parse().unwrap(), destination.parse().unwrap());
                let mut header = Header::new(source, destination, 17, 1000).unwrap();
                header.fragment = Some(Fragment { id: 7, offset, more: true });
                let mut bytes = Vec::new();
                header.emit(&mut bytes);
                bytes.extend_from_slice(&[0, 80, 0x12, 0x34, 0, 0, 1, 0]);
                let quoted = Quoted::parse(&bytes).unwrap();
                assert_eq!(quoted.udp(), ports);
                assert_eq!(quoted.tcp(), None);
                assert_eq!(quoted.packet_len as usize, header.header_len() + 1000);
            }
        }
    }

    #[test]
    fn what_is_not_tcp_says_nothing_about_tcp() {
        assert_eq!(Quoted::parse(&packet("10.0.0.1", "10.0.0.2", 17)).unwrap().tcp(), None);
        assert_eq!(Quoted::parse(&[]), Err(Malformed::IpVersion));
        let mut bytes = packet("10.0.0.1", "10.0.0.2", 6);
        bytes[0] = 0x44;
        assert_eq!(Quoted::parse(&bytes), Err(Malformed::Ipv4HeaderLength));
    }
}
