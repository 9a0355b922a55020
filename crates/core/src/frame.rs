//! Frames between the host and a device, with their offload facts.
//!
//! A received frame is borrowed for the length of one call. A frame to transmit is `head`, bytes
//! that the host wrote, followed by `tail`, slices of send buffers that are shared and not copied.
//! A frame whose checksum the host must compute has its payload copied into the head, and so has a
//! short one; a long one whose checksum is left to the device refers to the buffers.

use alloc::vec::Vec;
use bytes::Bytes;
use core::ops::Deref;

use crate::buffer::CountedPage;
use crate::time::Instant;
use crate::wire::checksum::sum;

/// The first header of a device's frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Medium {
    /// An Ethernet II header (RFC 894).
    Ethernet,
    /// An IPv4 or IPv6 header, told apart by the version field.
    Ip,
}

/// The capabilities of a device, declared once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// The first header of its frames.
    pub medium: Medium,
    /// The largest IP packet it carries, in bytes.
    pub mtu: u16,
    /// It completes the TCP or UDP checksum of frames marked [`TxChecksum::Partial`].
    pub checksum: bool,
    /// The largest IP packet it takes to cut into segments itself; 0 if it cannot.
    pub segmentation: u32,
    /// The largest IP packet with UDP that it takes to cut into datagrams itself; 0 if it cannot.
    pub datagrams: u32,
}

impl Capabilities {
    /// A plain device: no offload at all.
    pub const fn plain(medium: Medium, mtu: u16) -> Self {
        Capabilities { medium, mtu, checksum: false, segmentation: 0, datagrams: 0 }
    }
}

/// The state of a received frame's TCP or UDP checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum RxChecksum {
    /// Nothing: verify it.
    #[default]
    Unknown,
    /// The device has verified it, or its sender on this machine has left it undone.
    Good,
}

/// A frame that has arrived, borrowed from the device.
#[derive(Clone, Copy, Debug)]
pub struct RxFrame<'a> {
    /// The whole frame, from its link header (or IP header, by the medium) on.
    pub bytes: &'a [u8],
    /// The state of its transport checksum.
    pub checksum: RxChecksum,
    /// The payload size of the TCP segments, or UDP datagrams, that were joined into this one; 0 if
    /// it is a single one. ACK decisions count segments of this size.
    pub segment_size: u16,
    /// When the device got the frame, if it knows that for each frame; else
    /// [`Instant::FAR_FUTURE`]. Only the time between two frames counts, so that it may be off by
    /// as much for all of them. Packet pair needs it ([`crate::tcp::send::pair`]): a turn has one
    /// time for all its frames.
    pub arrived: Instant,
}

impl<'a> RxFrame<'a> {
    /// A received frame with its bytes and no other fact.
    pub fn plain(bytes: &'a [u8]) -> Self {
        let (checksum, segment_size) = (RxChecksum::Unknown, 0);
        RxFrame { bytes, checksum, segment_size, arrived: Instant::FAR_FUTURE }
    }
}

/// Frames that a host takes in at a time, at most: more than a processor can wait for memory for,
/// and so few that its first cache has room for what they lead to.
pub const BURST: usize = 32;

/// Hands `frames` to `sink` in their order, [`BURST`] at a time.
pub fn in_bursts<'a>(
    frames: impl IntoIterator<Item = RxFrame<'a>>,
    mut sink: impl FnMut(&[RxFrame<'a>]),
) {
    let mut frames = frames.into_iter();
    let Some(first) = frames.next() else { return };
    let Some(second) = frames.next() else {
        // No room is made for others: one by itself is frequent.
        return sink(&[first]);
    };
    let (mut burst, mut len) = ([first; BURST], 2);
    burst[1] = second;
    frames.for_each(|frame| {
        if len == BURST {
            sink(&burst);
            len = 0;
        }
        burst[len] = frame;
        len += 1;
    });
    sink(&burst[..len]);
}

/// The part of a frame's transport checksum that is left to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum TxChecksum {
    /// Nothing: it is complete, or there is none.
    #[default]
    Complete,
    /// The field holds the folded sum of the pseudo-header, not complemented: sum the frame from
    /// `start` to its end and store the complement at `start + offset` (as virtio's csum_start and
    /// csum_offset).
    Partial {
        /// Where the transport header starts, in bytes from the start of the frame.
        start: u16,
        /// Where the checksum field is, in bytes from `start`.
        offset: u16,
    },
}

/// How the device is to cut a large frame into segments, or datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segmentation {
    /// Payload bytes in each segment, or datagram, but the last.
    pub size: u16,
    /// Bytes of link, IP and TCP or UDP header, repeated before each.
    pub header_len: u16,
    /// IPv6 if true, else IPv4.
    pub ipv6: bool,
    /// Datagrams of UDP if true, else segments of TCP.
    pub datagrams: bool,
}

/// A piece of a send buffer, shared with a frame for as long as the frame lives.
#[derive(Clone, Debug)]
pub enum Slice {
    /// Bytes `start..end` of a pool page.
    Page {
        /// The page.
        page: CountedPage,
        /// The first byte.
        start: u16,
        /// One past the last byte.
        end: u16,
    },
    /// The application's own bytes.
    Bytes(Bytes),
}

impl Deref for Slice {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match self {
            Slice::Page { page, start, end } => {
                &page.bytes()[usize::from(*start)..usize::from(*end)]
            }
            Slice::Bytes(bytes) => bytes,
        }
    }
}

/// A frame to transmit.
#[derive(Clone, Debug, Default)]
pub struct Frame {
    /// Bytes written by the host: the headers, and the payload if it was copied.
    pub head: Vec<u8>,
    /// Payload shared with the send buffer; follows the head on the wire.
    pub tail: Vec<Slice>,
    /// The part of the transport checksum that is left to do.
    pub checksum: TxChecksum,
    /// How to cut it, if it is larger than the MTU.
    pub segmentation: Option<Segmentation>,
}

impl Frame {
    /// Bytes in the whole frame.
    pub fn len(&self) -> usize {
        self.head.len() + self.tail.iter().map(|s| s.len()).sum::<usize>()
    }

    /// True if there are no bytes in it.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Appends the whole frame's bytes to `out`.
    pub fn copy_to(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.head);
        for slice in &self.tail {
            out.extend_from_slice(slice);
        }
    }

    /// Appends the whole frame's bytes to `out`, its transport checksum completed as by a device,
    /// but not cut.
    pub fn complete_to(&self, out: &mut Vec<u8>) {
        let begin = out.len();
        self.copy_to(out);
        let TxChecksum::Partial { start, offset } = self.checksum else { return };
        // The field holds the pseudo-header's sum, so it is summed with all the rest.
        let Some(covered) = out.get_mut(begin + usize::from(start)..) else { return };
        let value = sum(covered).checksum();
        if let Some(field) = covered.get_mut(usize::from(offset)..usize::from(offset) + 2) {
            field.copy_from_slice(&value.to_be_bytes());
        }
    }

    fn reset(&mut self) {
        self.head.clear();
        if !self.tail.is_empty() {
            self.tail.clear();
        }
        self.checksum = TxChecksum::Complete;
        self.segmentation = None;
    }
}

/// A device's transmit batch: at most `capacity` frames, filled by
/// [`Host::emit`](crate::Host::emit) and taken from the front by the device. What the device does
/// not take stays for the next turn. Frames are written where they lie and their buffers are
/// reused, so a turn in steady state allocates and moves nothing.
#[derive(Debug)]
pub struct Outbox {
    /// `len` frames from `first` on wait, around the end if need be; the others are empty.
    ring: Vec<Frame>,
    first: usize,
    len: usize,
    /// Frames that were taken out and given back.
    spare: Vec<Frame>,
    capacity: usize,
}

impl Outbox {
    /// An empty batch of at most `capacity` frames (at least one).
    pub fn new(capacity: usize) -> Self {
        let capacity = capacity.max(1);
        Outbox { ring: Vec::new(), first: 0, len: 0, spare: Vec::new(), capacity }
    }

    /// How many more frames it takes.
    pub fn room(&self) -> usize {
        self.capacity - self.len
    }

    /// Frames waiting for the device.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if no frame waits.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds an empty frame at the end and returns it to be written, or `None` when full.
    #[inline(always)]
    pub fn push(&mut self) -> Option<&mut Frame> {
        if self.len == self.ring.len() && !self.grow() {
            return None;
        }
        let place = self.place(self.len);
        let frame = self.ring.get_mut(place)?;
        self.len += 1;
        if frame.head.capacity() == 0
            && let Some(spare) = self.spare.pop()
        {
            *frame = spare;
        }
        Some(frame)
    }

    /// Takes back the frame last pushed, unsent.
    pub fn unpush(&mut self) {
        let Some(last) = self.len.checked_sub(1) else { return };
        let place = self.place(last);
        self.ring[place].reset();
        self.len = last;
    }

    /// The frames waiting, oldest first.
    pub fn frames(&self) -> impl Iterator<Item = &Frame> {
        // The ring's end, and then what is around it: no place is asked for by its number.
        let (around, behind) = self.ring.split_at(self.first);
        let (first, others) = parts(self.len, behind.len());
        behind[..first].iter().chain(&around[..others])
    }

    /// The oldest frame.
    pub fn front(&self) -> Option<&Frame> {
        if self.is_empty() { None } else { self.ring.get(self.first) }
    }

    /// Hands the `count` oldest frames to `send`, and drops them: they were sent. A device may
    /// exchange buffers with them instead of copying their bytes; what it leaves is used again.
    pub fn drain(&mut self, count: usize, mut send: impl FnMut(&mut Frame)) {
        let count = count.min(self.len);
        let (around, behind) = self.ring.split_at_mut(self.first);
        let (first, others) = parts(count, behind.len());
        for part in [&mut behind[..first], &mut around[..others]] {
            for frame in part {
                send(frame);
                frame.reset();
            }
        }
        self.advance(count);
    }

    /// Drops the oldest frame: it was sent. Its buffers are kept for reuse.
    pub fn pop(&mut self) {
        if let Some(frame) = self.ring.get_mut(self.first)
            && self.len > 0
        {
            frame.reset();
            self.advance(1);
        }
    }

    /// Takes the oldest frame out, buffers and all; give them back with [`Outbox::recycle`].
    pub fn take(&mut self) -> Option<Frame> {
        if self.is_empty() {
            return None;
        }
        let frame = core::mem::take(self.ring.get_mut(self.first)?);
        self.advance(1);
        Some(frame)
    }

    /// Gives a frame's buffers back for reuse.
    pub fn recycle(&mut self, mut frame: Frame) {
        frame.reset();
        if self.spare.len() < self.capacity {
            self.spare.push(frame);
        }
    }

    /// Drops every frame.
    pub fn clear(&mut self) {
        self.drain(self.len, |_| ());
    }

    /// The place in the ring of the frame that has `ahead` others before it.
    fn place(&self, ahead: usize) -> usize {
        let place = self.first + ahead;
        if place < self.ring.len() { place } else { place - self.ring.len() }
    }

    /// The `count` oldest frames are gone. Where no other waits the next is written in the first
    /// place again: the fewer buffers take turns, the likelier they are in the cache.
    fn advance(&mut self, count: usize) {
        self.len -= count;
        self.first = if self.len == 0 { 0 } else { self.place(count) };
    }

    /// Makes a full ring larger; false if it is as large as it may be.
    fn grow(&mut self) -> bool {
        let len = (2 * self.ring.len()).clamp(1, self.capacity);
        let grows = len > self.ring.len();
        if grows {
            self.ring.rotate_left(self.first);
            self.first = 0;
            self.ring.resize_with(len, Frame::default);
        }
        grows
    }
}

/// How many of `count` frames lie before the ring's end, where there is room for `behind`, and how
/// many wrap around it.
fn parts(count: usize, behind: usize) -> (usize, usize) {
    let first = count.min(behind);
    (first, count - first)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::VecDeque;

    #[test]
    fn bursts_are_in_order_and_none_is_empty_or_too_long() {
        let bytes: Vec<u8> = (0..100).collect();
        for len in [0, 1, 2, 31, 32, 33, 34, 64, 65, 100] {
            let mut lens = Vec::new();
            let mut seen = Vec::new();
            in_bursts(bytes[..len].chunks(1).map(RxFrame::plain), |burst| {
                lens.push(burst.len());
                seen.extend(burst.iter().map(|frame| frame.bytes[0]));
            });
            assert_eq!(seen, bytes[..len]);
            assert_eq!(lens.len(), len.div_ceil(BURST));
            assert!(lens.iter().all(|len| (1..=BURST).contains(len)), "{lens:?}");
        }
    }

    #[test]
    fn the_outbox_refuses_the_frame_beyond_its_capacity() {
        let mut outbox = Outbox::new(2);
        outbox.push().unwrap().head.push(1);
        outbox.push().unwrap().head.push(2);
        assert!(outbox.push().is_none());
        outbox.pop();
        assert_eq!(outbox.room(), 1);
        assert_eq!(outbox.front().unwrap().head, [2]);
        assert!(outbox.push().unwrap().is_empty(), "a reused frame is empty");
    }

    #[test]
    fn frames_leave_in_order_however_they_are_pushed_and_taken() {
        let mut outbox = Outbox::new(7);
        let mut waiting = VecDeque::new();
        let mut out = Vec::new();
        for step in 0..4000u32 {
            match step.wrapping_mul(0x9e37_79b9) >> 29 {
                0..4 => match outbox.push() {
                    Some(frame) => {
                        assert!(frame.is_empty());
                        frame.head.extend_from_slice(&step.to_be_bytes());
                        waiting.push_back(step);
                    }
                    None => assert_eq!(waiting.len(), 7),
                },
                4 => {
                    outbox.unpush();
                    waiting.pop_back();
                }
                5 => {
                    outbox.pop();
                    waiting.pop_front();
                }
                6 => {
                    let count = step as usize % 4;
                    let mut sent = Vec::new();
                    outbox.drain(count, |frame| sent.push(core::mem::take(&mut frame.head)));
                    let wanted = waiting.drain(..count.min(waiting.len()));
                    assert!(sent.into_iter().eq(wanted.map(u32::to_be_bytes)));
                }
                _ => match outbox.take() {
                    Some(frame) => {
                        assert_eq!(frame.head, waiting.pop_front().unwrap().to_be_bytes());
                        out.push(frame);
                        out.drain(..out.len() / 3).for_each(|frame| outbox.recycle(frame));
                    }
                    None => assert!(waiting.is_empty()),
                },
            }
            assert_eq!((outbox.len(), outbox.room()), (waiting.len(), 7 - waiting.len()));
            let frames = outbox.frames().map(|frame| &frame.head[..]);
            assert!(frames.eq(waiting.iter().map(|step| step.to_be_bytes())));
            assert_eq!(outbox.front().is_some(), !waiting.is_empty());
        }
        outbox.clear();
        assert!(outbox.is_empty() && outbox.front().is_none());
    }
}
