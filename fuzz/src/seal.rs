//! Corrects the checksums of a frame, so that the host does not drop all of a fuzzer's frames for
//! them.

use std::net::IpAddr;

use lightwait_core::frame::Medium;
use lightwait_core::wire::checksum::{Sum, pseudo_header, sum};
use lightwait_core::wire::ethernet::{self, ethertype};
use lightwait_core::wire::ip::{Packet, protocol};
use lightwait_core::wire::{tcp, udp};

/// Corrects every checksum in `frame` that it can find: that of the IPv4 header, and that of TCP,
/// UDP or ICMP behind the IP headers. Leaves bytes alone that are not a packet.
pub fn seal(medium: Medium, frame: &mut [u8]) {
    let packet = match medium {
        Medium::Ip => frame,
        Medium::Ethernet => {
            let Ok(link) = ethernet::Frame::parse(frame) else { return };
            if !matches!(link.ethertype, ethertype::IPV4 | ethertype::IPV6) {
                return;
            }
            &mut frame[ethernet::HEADER_BYTES..]
        }
    };
    seal_packet(packet);
}

/// Corrects the checksums of an IP packet, without a link header.
pub fn seal_packet(packet: &mut [u8]) {
    seal_ipv4_header(packet);
    let Ok(view) = Packet::parse(packet) else { return };
    if view.fragment.is_some() {
        return;
    }
    let (offset, pseudo) = match view.protocol {
        protocol::TCP => (tcp::CHECKSUM_OFFSET, true),
        protocol::UDP => (udp::CHECKSUM_OFFSET, true),
        protocol::ICMPV4 => (2, false),
        protocol::ICMPV6 => (2, true),
        _ => return,
    };
    let start = view.bytes.len() - view.payload.len();
    let end = view.bytes.len();
    let mut total = Sum::ZERO;
    if pseudo {
        total = pseudo_header(view.source, view.destination, view.protocol, (end - start) as u32);
    }
    let payload = &mut packet[start..end];
    if let Some(field) = payload.get_mut(offset..offset + 2) {
        field.fill(0);
        let checksum = total.then(sum(payload)).checksum();
        payload[offset..offset + 2].copy_from_slice(&checksum.to_be_bytes());
    }
}

fn seal_ipv4_header(packet: &mut [u8]) {
    let header_len = match packet.first() {
        Some(first) if first >> 4 == 4 => usize::from(first & 0x0f) * 4,
        _ => return,
    };
    if header_len < 20 || packet.len() < header_len {
        return;
    }
    packet[10..12].fill(0);
    let checksum = sum(&packet[..header_len]).checksum();
    packet[10..12].copy_from_slice(&checksum.to_be_bytes());
}

/// A whole IP packet around `payload`, with correct checksums; `None` if it is too long, or if its
/// addresses differ in version.
pub fn packet(
    source: IpAddr,
    destination: IpAddr,
    protocol: u8,
    hop_limit: u8,
    payload: &[u8],
) -> Option<Vec<u8>> {
    use lightwait_core::wire::ip::Header;
    let mut header = Header::new(source, destination, protocol, payload.len())?;
    header.hop_limit = hop_limit;
    let mut bytes = Vec::with_capacity(header.header_len() + payload.len());
    header.emit(&mut bytes);
    bytes.extend_from_slice(payload);
    seal_packet(&mut bytes);
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use lightwait_core::wire::{icmpv4, icmpv6};

    #[test]
    fn a_sealed_segment_verifies_and_a_changed_one_does_not() {
        for (a, b) in [("10.0.0.1", "10.0.0.2"), ("fd00::1", "fd00::2")] {
            let (a, b) = (a.parse().unwrap(), b.parse().unwrap());
            let mut bytes = packet(a, b, protocol::TCP, 64, &[0x50; 25]).unwrap();
            let verify =
                |bytes: &[u8]| tcp::verify_checksum(Packet::parse(bytes).unwrap().payload, a, b);
            assert!(verify(&bytes));
            *bytes.last_mut().unwrap() ^= 1;
            assert!(!verify(&bytes));
        }
    }

    #[test]
    fn sealed_messages_of_both_icmps_verify() {
        let (a, b) = ("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap());
        let bytes = packet(a, b, protocol::ICMPV4, 64, &[8, 0, 9, 9, 0, 0, 0, 0, 1]).unwrap();
        assert!(icmpv4::Message::parse(Packet::parse(&bytes).unwrap().payload).is_ok());
        let (a, b) = ("fd00::1".parse().unwrap(), "fd00::2".parse().unwrap());
        let bytes = packet(a, b, protocol::ICMPV6, 64, &[128, 0, 9, 9, 0, 0, 0, 0, 1]).unwrap();
        assert!(icmpv6::Message::parse(&Packet::parse(&bytes).unwrap()).is_ok());
    }
}
