//! Cuts a packet in flight into fragments, which come in any order; some overlap, or never arrive.

use std::net::IpAddr;

use lightwait_core::frame::{Medium, RxChecksum};
use lightwait_core::wire::ethernet;
use lightwait_core::wire::ip::Packet;

use super::{Flight, World};
use crate::seal::seal_packet;
use crate::source::Source;

impl World {
    pub(super) fn fragment(&mut self, source: &mut Source<'_>) {
        let index = source.below(self.cable.len());
        let Some(flight) = self.cable.remove(index) else { return };
        let link_len = if self.medium == Medium::Ethernet { ethernet::HEADER_BYTES } else { 0 };
        let Some(bytes) = flight.bytes.get(link_len..) else { return };
        let id = u32::from(source.u8());
        let size = source.pick(&[256, 8, 512, 1024, 1200]);
        let Some(mut pieces) = pieces(bytes, size, id) else { return self.arrive(&flight) };
        let what = source.u8();
        let other = source.below(pieces.len());
        match what & 7 {
            1 => pieces.reverse(),
            2 => pieces.swap(0, other),
            3 => drop(pieces.remove(other)),
            4 => pieces.push(pieces[other].clone()),
            5 => {
                // Cut elsewhere, the pieces overlap, or meet those of another packet.
                self.ledger.honest = false;
                pieces.extend(self::pieces(bytes, size + 8, id).unwrap_or_default());
            }
            _ => {}
        }
        for piece in pieces.iter().take(300) {
            let mut bytes = flight.bytes[..link_len].to_vec();
            bytes.extend_from_slice(piece);
            let checksum = RxChecksum::Unknown;
            self.arrive(&Flight { to: flight.to, bytes, checksum, segment_size: 0 });
        }
    }
}

/// The packet, cut into fragments of `size` bytes of payload; `None` if it is not a packet, or is a
/// fragment already.
fn pieces(bytes: &[u8], size: usize, id: u32) -> Option<Vec<Vec<u8>>> {
    let packet = Packet::parse(bytes).ok().filter(|packet| packet.fragment.is_none())?;
    let start = packet.bytes.len() - packet.payload.len();
    if start != if packet.source.is_ipv4() { 20 } else { 40 } {
        return None;
    }
    let count = packet.payload.len().div_ceil(size);
    let piece = |n: usize| {
        let payload = &packet.payload[n * size..packet.payload.len().min((n + 1) * size)];
        let offset_and_more = (n * size) as u16 | u16::from(n + 1 < count);
        let mut out = packet.bytes[..start].to_vec();
        match packet.source {
            IpAddr::V4(_) => {
                let len = (start + payload.len()) as u16;
                let field = offset_and_more.rotate_right(3);
                out[2..4].copy_from_slice(&len.to_be_bytes());
                out[4..6].copy_from_slice(&(id as u16).to_be_bytes());
                out[6..8].copy_from_slice(&field.to_be_bytes());
            }
            IpAddr::V6(_) => {
                let next = std::mem::replace(&mut out[6], 44);
                out[4..6].copy_from_slice(&(payload.len() as u16 + 8).to_be_bytes());
                out.extend_from_slice(&[next, 0]);
                out.extend_from_slice(&offset_and_more.to_be_bytes());
                out.extend_from_slice(&id.to_be_bytes());
            }
        }
        out.extend_from_slice(payload);
        seal_packet(&mut out);
        out
    };
    (count > 0).then(|| (0..count).map(piece).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pieces_of_a_packet_hold_all_of_it() {
        for (a, b) in [("10.0.0.1", "10.0.0.2"), ("fd00::1", "fd00::2")] {
            let payload: Vec<u8> = (0..100).collect();
            let (a, b) = (a.parse().unwrap(), b.parse().unwrap());
            let whole = crate::seal::packet(a, b, 99, 64, &payload).unwrap();
            let pieces = pieces(&whole, 32, 7).unwrap();
            assert_eq!(pieces.len(), 4);
            let mut found = Vec::new();
            for (n, piece) in pieces.iter().enumerate() {
                let packet = Packet::parse(piece).unwrap();
                let fragment = packet.fragment.unwrap();
                assert_eq!((fragment.id, fragment.more), (7, n < 3));
                assert_eq!(usize::from(fragment.offset), found.len());
                found.extend_from_slice(packet.payload);
            }
            assert_eq!(found, payload);
        }
    }
}
