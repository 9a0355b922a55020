//! Fragments of packets (RFC 791 §3.2, RFC 8200 §4.5).

use super::wire::half;

/// The next header of IPv6 that says that a packet is a fragment, and its length.
const FRAGMENT: u8 = 44;
const FRAGMENT_BYTES: usize = 8;

/// A fragment that the stack has sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fragment {
    /// The IP header, as that of a packet that is whole.
    header: Vec<u8>,
    id: u32,
    /// Where its payload begins in that of the packet.
    offset: usize,
    pub(crate) more: bool,
    payload: Vec<u8>,
}

impl Fragment {
    /// The fragment that `bytes` are, if they are one.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        match bytes.first()? >> 4 {
            4 if bytes.len() >= 20 && half(bytes, 6) & 0x3fff != 0 => {
                let field = half(bytes, 6);
                let mut header = bytes[..20].to_vec();
                header[6..8].copy_from_slice(&(field & 0xc000).to_be_bytes());
                Some(Self {
                    header,
                    id: half(bytes, 4).into(),
                    offset: usize::from(field & 0x1fff) * 8,
                    more: field & 0x2000 != 0,
                    payload: bytes[20..].to_vec(),
                })
            }
            6 if bytes.len() >= 48 && bytes[6] == FRAGMENT => {
                let mut header = bytes[..40].to_vec();
                header[6] = bytes[40];
                Some(Self {
                    header,
                    id: super::word(bytes, 44),
                    offset: usize::from(half(bytes, 42) & !7),
                    more: half(bytes, 42) & 1 != 0,
                    payload: bytes[48..].to_vec(),
                })
            }
            _ => None,
        }
    }
}

/// The packet that `fragments` make up. Each carries `size` bytes; the last may carry fewer.
///
/// # Errors
///
/// When they are not the fragments of one packet, in order.
pub(crate) fn join(fragments: &[Fragment], size: u16) -> Result<Vec<u8>, String> {
    let first = fragments.first().ok_or("no fragments")?;
    let mut payload: Vec<u8> = Vec::new();
    for fragment in fragments {
        if fragment.id != first.id {
            return Err("fragments of two packets".into());
        }
        if fragment.offset != payload.len() {
            let (at, wanted) = (fragment.offset, payload.len());
            return Err(format!("fragment at {at}, expected one at {wanted}"));
        }
        if fragment.more && fragment.payload.len() != usize::from(size) {
            let found = fragment.payload.len();
            return Err(format!("fragment of {found} bytes, expected {size}"));
        }
        payload.extend(&fragment.payload);
    }
    let mut packet = first.header.clone();
    let is_v4 = packet[0] >> 4 == 4;
    let length = payload.len() + if is_v4 { packet.len() } else { 0 };
    let length = u16::try_from(length).map_err(|_| "fragments of too large a packet")?;
    let at = if is_v4 { 2 } else { 4 };
    packet[at..at + 2].copy_from_slice(&length.to_be_bytes());
    if is_v4 {
        packet[10..12].fill(0);
        let sum = super::wire::header_sum(&packet);
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
    }
    packet.extend(payload);
    Ok(packet)
}

/// The fragments of a packet, in order, each but the last with `size` bytes; `id` tells them from
/// those of others.
#[expect(clippy::cast_possible_truncation, reason = "a packet is at most 64 KiB")]
pub(crate) fn cut(packet: &[u8], size: u16, id: u16) -> Vec<Vec<u8>> {
    let is_v4 = packet[0] >> 4 == 4;
    let (header, payload) = packet.split_at(if is_v4 { 20 } else { 40 });
    let size = usize::from(size);
    let last = payload.len().saturating_sub(1) / size;
    let pieces = payload.chunks(size).enumerate();
    let fragment = |(index, piece): (usize, &[u8])| {
        let (offset, more) = (index * size, index < last);
        let mut bytes = header.to_vec();
        if is_v4 {
            bytes[2..4].copy_from_slice(&((20 + piece.len()) as u16).to_be_bytes());
            bytes[4..6].copy_from_slice(&id.to_be_bytes());
            let field = (offset / 8) as u16 | if more { 0x2000 } else { 0 };
            bytes[6..8].copy_from_slice(&field.to_be_bytes());
            bytes[10..12].fill(0);
            let sum = super::wire::header_sum(&bytes);
            bytes[10..12].copy_from_slice(&sum.to_be_bytes());
        } else {
            bytes[4..6].copy_from_slice(&((FRAGMENT_BYTES + piece.len()) as u16).to_be_bytes());
            let next = std::mem::replace(&mut bytes[6], FRAGMENT);
            bytes.extend([next, 0]);
            bytes.extend((offset as u16 | u16::from(more)).to_be_bytes());
            bytes.extend(u32::from(id).to_be_bytes());
        }
        bytes.extend(piece);
        bytes
    };
    pieces.map(fragment).collect()
}
