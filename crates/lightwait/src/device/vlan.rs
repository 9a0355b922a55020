//! Puts a VLAN tag back into a frame. The kernel takes the outer tag out of a frame that it
//! receives and keeps it beside the frame (packet(7), PACKET_AUXDATA); a second tag stays inside.
//!
//! ```text
//!  room, 4 bytes ┬ virtio header ┬ addresses ┬ ethertype payload    as the kernel hands it over
//!  virtio header ┬ addresses ┬ tag, 4 bytes ──┬ ethertype payload    as it was on the wire
//! ```

use std::ops::Range;

use lightwait_core::wire::ethernet::{TAG_BYTES, ethertype};

use super::virtio;

/// Both hardware addresses, which come before the tag.
const ADDRESSES_BYTES: usize = 12;

/// The tag of a received frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tag {
    /// The tag's ethertype.
    pub(super) kind: u16,
    /// Priority and VLAN.
    pub(super) control: u16,
}

impl Tag {
    /// The tag that the kernel's flags and fields (`struct tpacket_auxdata`) describe, if any.
    pub(super) fn beside(status: u32, control: u16, kind: u16) -> Option<Tag> {
        // Kernels before 3.14 do not tell the type.
        let has_kind = status & libc::TP_STATUS_VLAN_TPID_VALID != 0;
        let kind = if has_kind { kind } else { ethertype::VLAN };
        (status & libc::TP_STATUS_VLAN_VALID != 0).then_some(Tag { kind, control })
    }

    /// Puts the tag into the frame at `place`, which begins with a virtio header of `header_len`
    /// bytes. Returns the frame's new place, which begins [`TAG_BYTES`] earlier. A frame too short
    /// for its addresses stays as it is.
    pub(super) fn put_back(
        self,
        buffer: &mut [u8],
        place: Range<usize>,
        header_len: usize,
    ) -> Range<usize> {
        let moved = header_len + ADDRESSES_BYTES;
        let Some(begin) = place.start.checked_sub(TAG_BYTES).filter(|_| place.len() >= moved)
        else {
            return place;
        };
        buffer.copy_within(place.start..place.start + moved, begin);
        virtio::shift(&mut buffer[begin..begin + header_len], TAG_BYTES as u16);
        let tag = &mut buffer[begin + moved..begin + moved + TAG_BYTES];
        tag[..2].copy_from_slice(&self.kind.to_be_bytes());
        tag[2..].copy_from_slice(&self.control.to_be_bytes());
        begin..place.end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALID: u32 = libc::TP_STATUS_VLAN_VALID;
    const KIND_VALID: u32 = libc::TP_STATUS_VLAN_TPID_VALID;

    #[test]
    fn a_tag_is_beside_a_frame_if_the_kernel_says_so() {
        let tag = |kind, control| Some(Tag { kind, control });
        assert_eq!(Tag::beside(VALID | KIND_VALID, 7, 0x88a8), tag(0x88a8, 7));
        assert_eq!(Tag::beside(VALID | KIND_VALID, 0, 0x8100), tag(0x8100, 0), "a priority tag");
        assert_eq!(Tag::beside(VALID, 7, 0), tag(0x8100, 7), "an old kernel");
        assert_eq!(Tag::beside(KIND_VALID, 7, 0x8100), None);
        assert_eq!(Tag::beside(0, 0, 0), None);
    }

    /// A buffer with room before a frame of the bytes 1, 2, 3 …
    fn frame(header_len: usize, len: usize) -> (Vec<u8>, Range<usize>) {
        let mut buffer = vec![0; TAG_BYTES + header_len];
        buffer.extend((1..=len as u8).collect::<Vec<_>>());
        (buffer, TAG_BYTES..TAG_BYTES + header_len + len)
    }

    #[test]
    fn a_tag_comes_between_the_addresses_and_the_ethertype() {
        let tag = Tag { kind: 0x88a8, control: 0xe123 };
        for header_len in [0, virtio::SHORT_HEADER_LEN] {
            let (mut buffer, place) = frame(header_len, 20);
            let place = tag.put_back(&mut buffer, place, header_len);
            let mut expected: Vec<u8> = (1..=12).collect();
            expected.extend([0x88, 0xa8, 0xe1, 0x23]);
            expected.extend(13..=20);
            assert_eq!(buffer[place][header_len..], expected);
        }
    }

    #[test]
    fn addresses_alone_get_a_tag_and_a_byte_less_does_not() {
        let tag = Tag { kind: 0x8100, control: 1 };
        for (len, more) in [(12, TAG_BYTES), (11, 0), (0, 0)] {
            let (mut buffer, place) = frame(10, len);
            assert_eq!(tag.put_back(&mut buffer, place, 10).len(), 10 + len + more);
        }
    }

    #[test]
    fn the_offsets_in_the_header_move_with_the_bytes() {
        let (mut buffer, place) = frame(virtio::SHORT_HEADER_LEN, 60);
        // An undone checksum, and a segment to cut.
        let header = [1, 1, 54, 0, 0xa8, 5, 34, 0, 16, 0];
        buffer[place.start..place.start + 10].copy_from_slice(&header);
        let place = Tag { kind: 0x8100, control: 1 }.put_back(&mut buffer, place, 10);
        assert_eq!(buffer[place][..10], [1, 1, 58, 0, 0xa8, 5, 38, 0, 16, 0]);
    }
}
