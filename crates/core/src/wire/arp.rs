//! ARP for IPv4 over Ethernet (RFC 826; probes and announcements RFC 5227).

use alloc::vec::Vec;
use core::net::Ipv4Addr;

use super::ethernet::Mac;
use super::{Malformed, u16_at};

/// Bytes of a packet.
pub const PACKET_BYTES: usize = 28;

/// Hardware type Ethernet, protocol type IPv4, and the lengths of their addresses.
const ETHERNET_AND_IPV4: [u8; 6] = [0, 1, 0x08, 0x00, 6, 4];

/// The purpose of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Asks for the host with the target's protocol address.
    Request,
    /// The sender has.
    Reply,
}

/// A packet, arrived or to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Its purpose.
    pub operation: Operation,
    /// The sender's hardware address.
    pub sender_mac: Mac,
    /// The sender's IP address; unspecified in a probe (RFC 5227 §1.1).
    pub sender: Ipv4Addr,
    /// The target's hardware address; zero in a request.
    pub target_mac: Mac,
    /// The target's IP address.
    pub target: Ipv4Addr,
}

impl Packet {
    /// The packet that `bytes` begin with; what follows is padding.
    pub fn parse(bytes: &[u8]) -> Result<Packet, Malformed> {
        let bytes = bytes.first_chunk::<PACKET_BYTES>().ok_or(Malformed::ArpLength)?;
        let operation = match u16_at(bytes, 6) {
            Some(1) => Operation::Request,
            Some(2) => Operation::Reply,
            _ => return Err(Malformed::ArpKind),
        };
        if bytes[..6] != ETHERNET_AND_IPV4 {
            return Err(Malformed::ArpKind);
        }
        let mac = |at: usize| core::array::from_fn(|i| bytes[at + i]);
        let address =
            |at: usize| Ipv4Addr::from(core::array::from_fn::<u8, 4, _>(|i| bytes[at + i]));
        Ok(Packet {
            operation,
            sender_mac: mac(8),
            sender: address(14),
            target_mac: mac(18),
            target: address(24),
        })
    }

    /// Appends the packet, [`PACKET_BYTES`] long.
    pub fn emit(&self, out: &mut Vec<u8>) {
        let operation: u16 = match self.operation {
            Operation::Request => 1,
            Operation::Reply => 2,
        };
        out.extend_from_slice(&ETHERNET_AND_IPV4);
        out.extend_from_slice(&operation.to_be_bytes());
        out.extend_from_slice(&self.sender_mac);
        out.extend_from_slice(&self.sender.octets());
        out.extend_from_slice(&self.target_mac);
        out.extend_from_slice(&self.target.octets());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const REQUEST: [u8; 28] =
        [0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 1, 10, 0, 0, 1, 0, 0, 0, 0, 0, 0, 10, 0, 0, 2];

    #[test]
    fn a_request_is_read_field_by_field() {
        let packet = Packet::parse(&REQUEST).unwrap();
        assert_eq!(packet.operation, Operation::Request);
        assert_eq!(packet.sender_mac, [2, 0, 0, 0, 0, 1]);
        assert_eq!(packet.sender, Ipv4Addr::new(10, 0, 0, 1));
        assert_eq!(packet.target_mac, [0; 6]);
        assert_eq!(packet.target, Ipv4Addr::new(10, 0, 0, 2));
    }

    #[test]
    fn short_packets_and_other_kinds_are_malformed() {
        assert_eq!(Packet::parse(&REQUEST[..27]), Err(Malformed::ArpLength));
        for at in 0..6 {
            let mut other = REQUEST;
            other[at] ^= 1;
            assert_eq!(Packet::parse(&other), Err(Malformed::ArpKind), "byte {at}");
        }
        for operation in [0, 3] {
            let mut other = REQUEST;
            other[7] = operation;
            assert_eq!(Packet::parse(&other), Err(Malformed::ArpKind));
        }
    }

    proptest! {
        #[test]
        fn what_is_emitted_is_parsed(
            reply: bool, macs: ([u8; 6], [u8; 6]), addresses: ([u8; 4], [u8; 4]),
        ) {
            let packet = Packet {
                operation: if reply { Operation::Reply } else { Operation::Request },
                sender_mac: macs.0,
                sender: addresses.0.into(),
                target_mac: macs.1,
                target: addresses.1.into(),
            };
            let mut bytes = Vec::new();
            packet.emit(&mut bytes);
            prop_assert_eq!(bytes.len(), PACKET_BYTES);
            bytes.resize(46, 0);
            prop_assert_eq!(Packet::parse(&bytes), Ok(packet));
        }
    }
}
