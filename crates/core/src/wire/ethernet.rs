//! Ethernet II frames (RFC 894; multicast addresses RFC 1112 §6.4 and RFC 2464 §7), and the tags
//! that put a frame into a VLAN (IEEE 802.1Q §9.3):
//!
//! ```text
//!  addresses ┬ type of tag, 2 ┬ priority 3 bits, drop 1 bit, VLAN 12 bits ┬ ethertype payload
//! ```

use alloc::vec::Vec;
use core::net::{Ipv4Addr, Ipv6Addr};

use super::{Malformed, u16_at};

/// A hardware address.
pub type Mac = [u8; 6];

/// Bytes of a header.
pub const HEADER_BYTES: usize = 14;

/// Bytes of a VLAN tag.
pub const TAG_BYTES: usize = 4;

/// Tags of a frame that are looked behind, at most: a provider's and a customer's.
pub const TAGS_MAX: usize = 2;

/// All hosts on the link.
pub const BROADCAST: Mac = [0xff; 6];

/// The protocol that a frame carries, as IANA numbers it.
pub mod ethertype {
    /// An IPv4 packet.
    pub const IPV4: u16 = 0x0800;
    /// An ARP packet.
    pub const ARP: u16 = 0x0806;
    /// An IPv6 packet.
    pub const IPV6: u16 = 0x86dd;
    /// A VLAN tag (IEEE 802.1Q), and behind it the type of what it tags.
    pub const VLAN: u16 = 0x8100;
    /// A provider's VLAN tag (IEEE 802.1ad).
    pub(crate) const PROVIDER_VLAN: u16 = 0x88a8;

    /// True if a VLAN tag follows.
    pub(crate) const fn is_vlan(ethertype: u16) -> bool {
        matches!(ethertype, VLAN | PROVIDER_VLAN)
    }
}

/// A frame that has arrived. Its payload may be padded: the layer above knows its own length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// The receiver.
    pub destination: Mac,
    /// The sender.
    pub source: Mac,
    /// The protocol that it carries: see [`ethertype`].
    pub ethertype: u16,
    /// The bytes behind the header.
    pub payload: &'a [u8],
}

impl<'a> Frame<'a> {
    /// The frame that `bytes` hold.
    pub fn parse(bytes: &'a [u8]) -> Result<Frame<'a>, Malformed> {
        let (header, payload) =
            bytes.split_first_chunk::<HEADER_BYTES>().ok_or(Malformed::EthernetLength)?;
        let [d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5, ..] = *header;
        Ok(Frame {
            destination: [d0, d1, d2, d3, d4, d5],
            source: [s0, s1, s2, s3, s4, s5],
            ethertype: u16_at(header, 12).ok_or(Malformed::EthernetLength)?,
            payload,
        })
    }

    /// The frame behind its first VLAN tag, and the number of that VLAN: 0 if the tag gives a
    /// priority alone. `None` if there is no tag.
    pub fn behind_tag(self) -> Result<Option<(u16, Frame<'a>)>, Malformed> {
        if !ethertype::is_vlan(self.ethertype) {
            return Ok(None);
        }
        let (tag, payload) =
            self.payload.split_first_chunk::<TAG_BYTES>().ok_or(Malformed::EthernetLength)?;
        let [control @ .., e0, e1] = *tag;
        let ethertype = u16::from_be_bytes([e0, e1]);
        Ok(Some((u16::from_be_bytes(control) & 0x0fff, Frame { ethertype, payload, ..self })))
    }

    /// The frame without its tags if they give it a priority alone, [`TAGS_MAX`] at most. `None` if
    /// it belongs to a VLAN, or has more tags.
    pub(crate) fn outside_vlans(self) -> Result<Option<Frame<'a>>, Malformed> {
        let mut frame = self;
        for _ in 0..TAGS_MAX {
            match frame.behind_tag()? {
                Some((0, inner)) => frame = inner,
                Some(_) => return Ok(None),
                None => return Ok(Some(frame)),
            }
        }
        Ok((!ethertype::is_vlan(frame.ethertype)).then_some(frame))
    }
}

/// A header to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The receiver.
    pub destination: Mac,
    /// The sender.
    pub source: Mac,
    /// The protocol that follows: see [`ethertype`].
    pub ethertype: u16,
}

impl Header {
    /// Appends the header, [`HEADER_BYTES`] long.
    pub fn emit(&self, out: &mut Vec<u8>) {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..6].copy_from_slice(&self.destination);
        bytes[6..12].copy_from_slice(&self.source);
        bytes[12..].copy_from_slice(&self.ethertype.to_be_bytes());
        out.extend_from_slice(&bytes);
    }
}

/// True for multicast and broadcast addresses: the group bit is set.
pub(crate) const fn is_group(address: Mac) -> bool {
    address[0] & 1 == 1
}

/// Where packets to an IPv4 multicast group go (RFC 1112 §6.4).
pub(crate) const fn ipv4_group(group: Ipv4Addr) -> Mac {
    let [_, b, c, d] = group.octets();
    [0x01, 0x00, 0x5e, b & 0x7f, c, d]
}

/// Where packets to an IPv6 multicast group go (RFC 2464 §7).
pub(crate) const fn ipv6_group(group: Ipv6Addr) -> Mac {
    let [.., a, b, c, d] = group.octets();
    [0x33, 0x33, a, b, c, d]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_comes_back_and_a_byte_less_is_malformed() {
        let header = Header {
            destination: BROADCAST,
            source: [2, 0, 0, 0, 0, 1],
            ethertype: ethertype::ARP,
        };
        let mut bytes = Vec::new();
        header.emit(&mut bytes);
        assert_eq!(bytes.len(), HEADER_BYTES);
        bytes.push(9);
        let Frame { destination, source, ethertype, payload } = Frame::parse(&bytes).unwrap();
        assert_eq!(Header { destination, source, ethertype }, header);
        assert_eq!(payload, [9]);
        assert!(Frame::parse(&bytes[..14]).unwrap().payload.is_empty());
        assert_eq!(Frame::parse(&bytes[..13]), Err(Malformed::EthernetLength));
    }

    /// A frame with these tags, each a type and its control bits, around one byte of IPv4.
    fn tagged(tags: &[(u16, u16)]) -> Vec<u8> {
        let mut bytes = [2; 12].to_vec();
        for (kind, control) in tags {
            bytes.extend(kind.to_be_bytes());
            bytes.extend(control.to_be_bytes());
        }
        bytes.extend([8, 0, 0x45]);
        bytes
    }

    #[test]
    fn a_priority_tag_is_no_vlan_and_any_other_is() {
        let (q, ad) = (ethertype::VLAN, ethertype::PROVIDER_VLAN);
        let outside = |tags: &[_]| {
            let bytes = tagged(tags);
            let frame = Frame::parse(&bytes).unwrap().outside_vlans().unwrap();
            frame.map(|frame| (frame.ethertype, frame.payload.to_vec()))
        };
        let inner = Some((ethertype::IPV4, [0x45].to_vec()));
        for none in [&[][..], &[(q, 0)], &[(ad, 0xf000)], &[(ad, 0), (q, 0xe000)]] {
            assert_eq!(outside(none), inner, "{none:?}");
        }
        for some in [&[(q, 1)][..], &[(q, 0xffff)], &[(ad, 5), (q, 0)], &[(q, 0), (q, 7)]] {
            assert_eq!(outside(some), None, "{some:?}");
        }
        assert_eq!(outside(&[(q, 0); TAGS_MAX + 1]), None, "one tag more than are looked behind");
    }

    #[test]
    fn a_tag_that_is_cut_off_is_malformed() {
        let bytes = tagged(&[(ethertype::VLAN, 0)]);
        for len in HEADER_BYTES..HEADER_BYTES + TAG_BYTES {
            let frame = Frame::parse(&bytes[..len]).unwrap();
            assert_eq!(frame.outside_vlans(), Err(Malformed::EthernetLength), "{len}");
        }
        let whole = Frame::parse(&bytes[..HEADER_BYTES + TAG_BYTES]).unwrap();
        assert_eq!(whole.behind_tag().unwrap().map(|(vlan, _)| vlan), Some(0));
    }

    #[test]
    fn groups_have_their_hardware_addresses() {
        let v4 = ipv4_group(Ipv4Addr::new(239, 129, 2, 3));
        assert_eq!(v4, [0x01, 0x00, 0x5e, 0x01, 2, 3]);
        let v6 = ipv6_group(Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff12, 0x3456));
        assert_eq!(v6, [0x33, 0x33, 0xff, 0x12, 0x34, 0x56]);
        assert!(is_group(v4) && is_group(v6) && is_group(BROADCAST));
        assert!(!is_group([2, 0, 0, 0, 0, 1]));
    }
}
