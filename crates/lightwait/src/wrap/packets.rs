//! Undoes offload: completes transport checksums that were left to a device, and cuts large TCP
//! segments and UDP datagrams into packets as a device would.
//!
//! Wrappers use it to see the packets of a real wire. VLAN tags stay before each packet. A frame
//! without TCP or UDP stays as it is.

use lightwait_core::frame::RxChecksum;
use lightwait_core::wire::checksum::{pseudo_header, sum};
use lightwait_core::wire::{ethernet, ip, tcp};
use lightwait_core::{Medium, RxFrame};
use std::net::{IpAddr, SocketAddr};

use super::pcap::Ends;

/// Where TCP's fields are, in bytes from its start (RFC 9293 §3.1).
const TCP_SEQ: usize = 4;
const TCP_FLAGS: usize = 13;
/// Where UDP's fields are, in bytes from its start (RFC 768).
const UDP_LENGTH: usize = 4;
const UDP_CHECKSUM: usize = 6;

/// Hands each packet of `frame` to `sink`, complete. `scratch` is a buffer for reuse.
pub(super) fn for_each_packet(
    medium: Medium,
    frame: RxFrame<'_>,
    scratch: &mut Vec<u8>,
    sink: &mut dyn FnMut(&[u8]),
) {
    let is_complete = frame.checksum == RxChecksum::Unknown && frame.segment_size == 0;
    match Layout::of(medium, frame.bytes) {
        Some(layout) if !is_complete => {
            let size = match frame.segment_size {
                0 => usize::MAX,
                size => usize::from(size),
            };
            layout.cut(frame.bytes, size, scratch, sink);
        }
        _ => sink(frame.bytes),
    }
}

/// Fills in the transport checksum.
pub(super) fn complete_in_place(medium: Medium, bytes: &mut [u8]) {
    if let Some(layout) = Layout::of(medium, bytes) {
        layout.fill_in_checksum(&mut bytes[..layout.end]);
    }
}

/// The ends of a packet of TCP or UDP.
pub(super) fn ends(medium: Medium, bytes: &[u8]) -> Option<Ends> {
    let layout = Layout::of(medium, bytes)?;
    let port = |at: usize| {
        let port = bytes.get(layout.transport + at..)?.first_chunk()?;
        Some(u16::from_be_bytes(*port))
    };
    let from = SocketAddr::new(layout.source, port(0)?);
    Some(Ends { from, to: SocketAddr::new(layout.destination, port(2)?) })
}

/// The frame behind its VLAN tags, as many as the stack looks behind.
pub(crate) fn behind_tags(bytes: &[u8]) -> Option<ethernet::Frame<'_>> {
    let mut frame = ethernet::Frame::parse(bytes).ok()?;
    for _ in 0..ethernet::TAGS_MAX {
        let Some((_, inner)) = frame.behind_tag().ok()? else { break };
        frame = inner;
    }
    Some(frame)
}

/// Offsets in a frame that holds TCP or UDP.
struct Layout {
    ip: usize,
    transport: usize,
    end: usize,
    protocol: u8,
    source: IpAddr,
    destination: IpAddr,
}

impl Layout {
    fn of(medium: Medium, bytes: &[u8]) -> Option<Layout> {
        let ip = match medium {
            Medium::Ip => 0,
            Medium::Ethernet => {
                let frame = behind_tags(bytes)?;
                let is_ip = [ethernet::ethertype::IPV4, ethernet::ethertype::IPV6]
                    .contains(&frame.ethertype);
                is_ip.then_some(bytes.len() - frame.payload.len())?
            }
        };
        let packet = ip::Packet::parse(bytes.get(ip..)?).ok()?;
        let header_len = match packet.protocol {
            ip::protocol::TCP => tcp::MIN_HEADER_BYTES,
            ip::protocol::UDP => UDP_CHECKSUM + 2,
            _ => return None,
        };
        (packet.fragment.is_none() && packet.payload.len() >= header_len).then_some(Layout {
            ip,
            transport: ip + packet.bytes.len() - packet.payload.len(),
            end: ip + packet.bytes.len(),
            protocol: packet.protocol,
            source: packet.source,
            destination: packet.destination,
        })
    }

    /// Hands out segments of at most `size` bytes of payload each; `usize::MAX` gives one segment.
    fn cut(&self, bytes: &[u8], size: usize, out: &mut Vec<u8>, sink: &mut dyn FnMut(&[u8])) {
        let data = match self.protocol {
            ip::protocol::TCP => self.transport + usize::from(bytes[self.transport + 12] >> 4) * 4,
            _ => self.transport + UDP_CHECKSUM + 2,
        };
        let data = data.min(self.end);
        let mut at = data;
        loop {
            let next = at.saturating_add(size).min(self.end);
            out.clear();
            out.extend_from_slice(&bytes[..data]);
            out.extend_from_slice(&bytes[at..next]);
            if (at, next) != (data, self.end) {
                self.adapt_headers(out, at - data, next == self.end);
            }
            self.fill_in_checksum(out);
            sink(out);
            at = next;
            if at >= self.end {
                return;
            }
        }
    }

    /// Adapts the copied headers to the piece that starts `offset` bytes into the payload.
    fn adapt_headers(&self, packet: &mut [u8], offset: usize, is_last: bool) {
        let len = packet.len() - self.ip;
        if self.source.is_ipv4() {
            packet[self.ip + 2..self.ip + 4].copy_from_slice(&(len as u16).to_be_bytes());
            packet[self.ip + 10..self.ip + 12].fill(0);
            let checksum = sum(&packet[self.ip..self.transport]).checksum();
            packet[self.ip + 10..self.ip + 12].copy_from_slice(&checksum.to_be_bytes());
        } else {
            let payload_len = (len - 40) as u16;
            packet[self.ip + 4..self.ip + 6].copy_from_slice(&payload_len.to_be_bytes());
        }
        if self.protocol == ip::protocol::UDP {
            let len = ((packet.len() - self.transport) as u16).to_be_bytes();
            let udp = &mut packet[self.transport..];
            udp[UDP_LENGTH..UDP_LENGTH + 2].copy_from_slice(&len);
            return;
        }
        let tcp = &mut packet[self.transport..];
        let seq = u32::from_be_bytes([tcp[4], tcp[5], tcp[6], tcp[7]]).wrapping_add(offset as u32);
        tcp[TCP_SEQ..TCP_SEQ + 4].copy_from_slice(&seq.to_be_bytes());
        if !is_last {
            tcp[TCP_FLAGS] &= !(tcp::Flags::FIN | tcp::Flags::PSH).0;
        }
        // CWR reports one reduction: only the first segment carries it (RFC 3168 §6.1.2).
        if offset > 0 {
            tcp[TCP_FLAGS] &= !tcp::Flags::CWR.0;
        }
    }

    fn fill_in_checksum(&self, packet: &mut [u8]) {
        let transport = &mut packet[self.transport..];
        let field =
            if self.protocol == ip::protocol::TCP { tcp::CHECKSUM_OFFSET } else { UDP_CHECKSUM };
        transport[field..field + 2].fill(0);
        let len = transport.len() as u32;
        let pseudo = pseudo_header(self.source, self.destination, self.protocol, len);
        let mut checksum = pseudo.then(sum(transport)).checksum();
        if self.protocol == ip::protocol::UDP && checksum == 0 {
            // Zero would mean that there is no checksum (RFC 768).
            checksum = 0xffff;
        }
        transport[field..field + 2].copy_from_slice(&checksum.to_be_bytes());
    }
}

#[cfg(test)]
mod tests;
