//! The header that TAP and packet sockets put before each frame to carry offload flags both ways:
//! `struct virtio_net_hdr` (virtio 1.3 §5.1.6; linux/virtio_net.h), in the machine's byte order.
//!
//! ```text
//!  0     1          2         4          6            8             10            12
//!  flags gso_type   hdr_len   gso_size   csum_start   csum_offset   num_buffers
//! ```
//!
//! TAP is configured for all 12 bytes; packet sockets use the first 10.

use lightwait_core::RxFrame;
use lightwait_core::frame::{Frame, RxChecksum, TxChecksum};

/// Bytes of the header with `num_buffers`.
pub(crate) const HEADER_LEN: usize = 12;
/// Bytes of the header without it.
pub(crate) const SHORT_HEADER_LEN: usize = 10;

const FLAG_NEEDS_CHECKSUM: u8 = 1;
const FLAG_DATA_VALID: u8 = 2;
const GSO_NONE: u8 = 0;
const GSO_TCPV4: u8 = 1;
const GSO_TCPV6: u8 = 4;
/// A datagram of UDP to cut into several, each of the segment size.
const GSO_UDP_L4: u8 = 5;
/// May accompany any of these: the segment carries a congestion mark.
const GSO_ECN: u8 = 0x80;

/// The header of a frame to transmit.
pub(crate) fn encode(frame: &Frame) -> [u8; HEADER_LEN] {
    let mut header = [0; HEADER_LEN];
    let mut put = |at: usize, value: u16| {
        header[at..at + 2].copy_from_slice(&value.to_ne_bytes());
    };
    if let TxChecksum::Partial { start, offset } = frame.checksum {
        put(6, start);
        put(8, offset);
    }
    if let Some(segmentation) = frame.segmentation {
        put(2, segmentation.header_len);
        put(4, segmentation.size);
        header[1] = match (segmentation.datagrams, segmentation.ipv6) {
            (true, _) => GSO_UDP_L4,
            (false, true) => GSO_TCPV6,
            (false, false) => GSO_TCPV4,
        };
    }
    if matches!(frame.checksum, TxChecksum::Partial { .. }) {
        header[0] = FLAG_NEEDS_CHECKSUM;
    }
    header
}

/// A received frame behind a header of `header_len` bytes: 10, 12, or 0 for none. `None` if `bytes`
/// is shorter than the header.
pub(crate) fn decode(bytes: &[u8], header_len: usize) -> Option<RxFrame<'_>> {
    let (header, bytes) = bytes.split_at_checked(header_len)?;
    if header_len < SHORT_HEADER_LEN {
        return Some(RxFrame::plain(bytes));
    }
    // NEEDS_CHECKSUM: a sender on this machine has left the sum undone; nothing can have damaged
    // the frame since. DATA_VALID: the kernel or its device has verified it.
    let known_good = header[0] & (FLAG_NEEDS_CHECKSUM | FLAG_DATA_VALID) != 0;
    let segment_size = match header[1] & !GSO_ECN {
        GSO_TCPV4 | GSO_TCPV6 | GSO_UDP_L4 => u16::from_ne_bytes([header[4], header[5]]),
        _ => GSO_NONE.into(),
    };
    let checksum = if known_good { RxChecksum::Good } else { RxChecksum::Unknown };
    Some(RxFrame { checksum, segment_size, ..RxFrame::plain(bytes) })
}

/// Moves the header's offsets by as many bytes as were put into the frame before its packet. A
/// header of no bytes has none.
pub(crate) fn shift(header: &mut [u8], bytes: u16) {
    let [flags, kind] = [0, 1].map(|at| header.get(at).copied().unwrap_or_default());
    let mut add = |at: usize| {
        if let Some(field) = header.get_mut(at..at + 2) {
            let offset = u16::from_ne_bytes([field[0], field[1]]).saturating_add(bytes);
            field.copy_from_slice(&offset.to_ne_bytes());
        }
    };
    if kind != GSO_NONE {
        add(2);
    }
    if flags & FLAG_NEEDS_CHECKSUM != 0 {
        add(6);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lightwait_core::frame::Segmentation;

    fn words(header: &[u8]) -> Vec<u16> {
        header[2..].chunks(2).map(|c| u16::from_ne_bytes([c[0], c[1]])).collect()
    }

    #[test]
    fn a_plain_frame_has_a_header_of_zeros() {
        assert_eq!(encode(&Frame::default()), [0; 12]);
    }

    #[test]
    fn checksum_and_segmentation_are_told_to_the_kernel() {
        let mut frame = Frame {
            checksum: TxChecksum::Partial { start: 34, offset: 16 },
            segmentation: Some(Segmentation {
                size: 1448,
                header_len: 66,
                ipv6: false,
                datagrams: false,
            }),
            ..Frame::default()
        };
        let header = encode(&frame);
        assert_eq!(header[..2], [FLAG_NEEDS_CHECKSUM, GSO_TCPV4]);
        assert_eq!(words(&header), [66, 1448, 34, 16, 0]);
        frame.segmentation =
            Some(Segmentation { size: 1428, header_len: 86, ipv6: true, datagrams: false });
        assert_eq!(encode(&frame)[1], GSO_TCPV6);
        let datagrams = Segmentation { size: 1200, header_len: 62, ipv6: true, datagrams: true };
        frame.segmentation = Some(datagrams);
        assert_eq!(encode(&frame)[1], GSO_UDP_L4);
    }

    #[test]
    fn offload_facts_of_a_received_frame_are_understood() {
        let mut bytes = [0u8; 13];
        bytes[12] = 9;
        let frame = decode(&bytes, 12).unwrap();
        assert_eq!((frame.bytes, frame.checksum), (&[9u8][..], RxChecksum::Unknown));
        for flag in [FLAG_NEEDS_CHECKSUM, FLAG_DATA_VALID] {
            bytes[0] = flag;
            assert_eq!(decode(&bytes, 12).unwrap().checksum, RxChecksum::Good);
        }
        bytes[4..6].copy_from_slice(&1448u16.to_ne_bytes());
        assert_eq!(decode(&bytes, 12).unwrap().segment_size, 0, "no segmentation type");
        for kind in [GSO_TCPV4, GSO_TCPV6, GSO_TCPV4 | GSO_ECN, GSO_UDP_L4] {
            bytes[1] = kind;
            assert_eq!(decode(&bytes, 12).unwrap().segment_size, 1448);
        }
    }

    #[test]
    fn offsets_that_are_in_use_move_and_others_stay() {
        for (flags, kind, moved) in [
            (0, GSO_NONE, [0, 0]),
            (FLAG_DATA_VALID, GSO_NONE, [0, 0]),
            (FLAG_NEEDS_CHECKSUM, GSO_NONE, [0, 4]),
            (FLAG_NEEDS_CHECKSUM, GSO_TCPV6, [4, 4]),
        ] {
            let mut header = [0; 10];
            header[..2].copy_from_slice(&[flags, kind]);
            shift(&mut header, 4);
            assert_eq!(words(&header), [moved[0], 0, moved[1], 0]);
        }
        shift(&mut [], 4);
    }

    #[test]
    fn a_frame_shorter_than_its_header_is_none() {
        assert!(decode(&[0; 10], 10).unwrap().bytes.is_empty());
        assert!(decode(&[0; 9], 10).is_none());
        assert_eq!(decode(&[1, 2], 0).unwrap().bytes, [1, 2]);
    }
}
