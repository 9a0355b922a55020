//! Devices in memory: two ends of a wire inside one thread or between two, or one end and a bare
//! [`Wire`] that a simulator holds.
//!
//! Each direction is a bounded ring. A frame whose bytes all lie in its head moves by swapping
//! buffers. Only slices shared with a send buffer are copied (once, as a network card would).
//! Frames that find the ring full stay in the sender's outbox.
//!
//! The rings stand in for a cable, so they keep offload flags: a checksum left to the device counts
//! as known good at the other end, and a large segment arrives as one.

mod threaded;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::rc::Rc;

use lightwait_core::frame::{Frame, RxChecksum, TxChecksum, in_bursts};
use lightwait_core::{Capabilities, Instant, Outbox, RxFrame};

pub use threaded::ThreadedMemory;

use super::{Device, Sink};

/// One end of a wire in memory.
///
/// Frames are handed over where they lie in the ring: a [`Sink`] that calls the other end of the
/// wire panics.
#[derive(Debug)]
pub struct MemoryDevice {
    capabilities: Capabilities,
    incoming: Rc<RefCell<Ring>>,
    outgoing: Rc<RefCell<Ring>>,
}

/// The bare other end of a [`MemoryDevice`]: frames go in and come out one at a time.
#[derive(Debug)]
pub struct Wire {
    to_device: Rc<RefCell<Ring>>,
    from_device: Rc<RefCell<Ring>>,
}

/// A frame on its way through memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryFrame {
    /// The whole frame.
    pub bytes: Vec<u8>,
    /// The validity of its transport checksum.
    pub checksum: RxChecksum,
    /// The payload size of the segments joined in it: [`RxFrame::segment_size`].
    pub segment_size: u16,
}

impl MemoryDevice {
    /// Two devices joined by a wire that holds at most `capacity` frames each way. Both have the
    /// same `capabilities`.
    pub fn pair(capabilities: Capabilities, capacity: usize) -> (MemoryDevice, MemoryDevice) {
        let (there, back) = (Ring::shared(capacity), Ring::shared(capacity));
        let a = MemoryDevice { capabilities, incoming: back.clone(), outgoing: there.clone() };
        (a, MemoryDevice { capabilities, incoming: there, outgoing: back })
    }

    /// A device and the bare other end of its wire, of `capacity` frames each way.
    pub fn with_wire(capabilities: Capabilities, capacity: usize) -> (MemoryDevice, Wire) {
        let (there, back) = (Ring::shared(capacity), Ring::shared(capacity));
        let wire = Wire { to_device: back.clone(), from_device: there.clone() };
        (MemoryDevice { capabilities, incoming: back, outgoing: there }, wire)
    }
}

impl Device for MemoryDevice {
    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    fn receive(&mut self, _now: Instant, budget: usize, sink: &mut Sink<'_>) -> io::Result<usize> {
        let mut ring = self.incoming.borrow_mut();
        let received = ring.waiting.min(budget);
        in_bursts(ring.in_order()[..received].iter().map(MemoryFrame::as_rx), sink);
        ring.pop(received);
        Ok(received)
    }

    fn transmit(&mut self, _now: Instant, outbox: &mut Outbox) -> io::Result<()> {
        let mut ring = self.outgoing.borrow_mut();
        let count = outbox.len().min(ring.room());
        let mut places = ring.push(count);
        outbox.drain(count, |frame| {
            if let Some(place) = places.next() {
                place.carry(frame);
            }
        });
        Ok(())
    }

    fn deadline(&self) -> Option<Instant> {
        (self.incoming.borrow().waiting > 0).then_some(Instant::ZERO)
    }
}

impl Wire {
    /// Hands a frame to the device. Returns false and does nothing if its ring is full.
    pub fn inject(&mut self, frame: RxFrame<'_>) -> bool {
        let mut ring = self.to_device.borrow_mut();
        let count = ring.room().min(1);
        let Some(place) = ring.push(count).next() else { return false };
        place.bytes.clear();
        place.bytes.extend_from_slice(frame.bytes);
        (place.checksum, place.segment_size) = (frame.checksum, frame.segment_size);
        true
    }

    /// The oldest frame that the device has sent. Give its buffer back with [`Wire::recycle`].
    pub fn drain(&mut self) -> Option<MemoryFrame> {
        let mut ring = self.from_device.borrow_mut();
        ring.waiting = ring.waiting.checked_sub(1)?;
        ring.frames.pop_front()
    }

    /// Gives a drained frame's buffer back for reuse.
    pub fn recycle(&mut self, frame: MemoryFrame) {
        let mut ring = self.from_device.borrow_mut();
        if ring.frames.len() < ring.capacity {
            ring.frames.push_back(frame);
        }
    }
}

impl MemoryFrame {
    /// The frame as a device hands it over.
    pub fn as_rx(&self) -> RxFrame<'_> {
        let &MemoryFrame { checksum, segment_size, .. } = self;
        RxFrame { checksum, segment_size, ..RxFrame::plain(&self.bytes) }
    }

    /// Takes the bytes out of a frame to transmit and leaves it another buffer in exchange.
    fn carry(&mut self, frame: &mut Frame) {
        std::mem::swap(&mut self.bytes, &mut frame.head);
        for slice in &frame.tail {
            self.bytes.extend_from_slice(slice);
        }
        self.checksum = match frame.checksum {
            TxChecksum::Complete => RxChecksum::Unknown,
            TxChecksum::Partial { .. } => RxChecksum::Good,
        };
        self.segment_size = frame.segmentation.map_or(0, |s| s.size);
    }
}

/// One direction of a wire, with the buffers that have passed through it.
#[derive(Debug)]
struct Ring {
    /// The `waiting` frames on their way, oldest first, and behind them places whose buffers are
    /// used again.
    frames: VecDeque<MemoryFrame>,
    waiting: usize,
    capacity: usize,
}

impl Ring {
    fn new(capacity: usize) -> Ring {
        Ring { frames: VecDeque::new(), waiting: 0, capacity: capacity.max(1) }
    }

    fn shared(capacity: usize) -> Rc<RefCell<Ring>> {
        Rc::new(RefCell::new(Ring::new(capacity)))
    }

    fn room(&self) -> usize {
        self.capacity - self.waiting
    }

    /// The places for `count` more frames. They still hold earlier frames, for the caller to
    /// overwrite.
    fn push(&mut self, count: usize) -> impl Iterator<Item = &mut MemoryFrame> {
        let begin = self.waiting;
        self.waiting += count;
        if self.waiting > self.frames.len() {
            self.frames.resize_with(self.waiting, MemoryFrame::default);
        }
        let waiting = self.waiting;
        self.in_order()[begin..waiting].iter_mut()
    }

    /// All places, oldest first. They hardly ever wrap around the deque's end; if they do, they are
    /// moved.
    fn in_order(&mut self) -> &mut [MemoryFrame] {
        self.frames.make_contiguous()
    }

    /// Removes the `count` oldest frames. If no other frame waits, the next frame takes the first
    /// place again: the fewer buffers are in use, the likelier they are in the cache.
    fn pop(&mut self, count: usize) {
        self.waiting -= count;
        if self.waiting > 0 {
            self.frames.rotate_left(count);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lightwait_core::Medium;
    use lightwait_core::frame::{Segmentation, Slice};

    const NOW: Instant = Instant::ZERO;

    fn plain() -> Capabilities {
        Capabilities::plain(Medium::Ip, 1500)
    }

    fn push(outbox: &mut Outbox, bytes: &[u8]) {
        outbox.push().unwrap().head.extend_from_slice(bytes);
    }

    fn receive_all(device: &mut MemoryDevice) -> Vec<MemoryFrame> {
        let mut got = Vec::new();
        let copy = |frame: &RxFrame<'_>| MemoryFrame {
            bytes: frame.bytes.to_vec(),
            checksum: frame.checksum,
            segment_size: frame.segment_size,
        };
        let mut sink = |frames: &[RxFrame<'_>]| got.extend(frames.iter().map(copy));
        device.receive(NOW, usize::MAX, &mut sink).unwrap();
        got
    }

    #[test]
    fn frames_cross_in_order_and_keep_their_offload_facts() {
        let (mut a, mut b) = MemoryDevice::pair(plain(), 8);
        let mut outbox = Outbox::new(8);
        push(&mut outbox, b"first");
        let large = outbox.push().unwrap();
        large.head.extend_from_slice(b"head ");
        large.tail.push(Slice::Bytes(bytes::Bytes::from_static(b"tail")));
        large.checksum = TxChecksum::Partial { start: 20, offset: 16 };
        large.segmentation =
            Some(Segmentation { size: 4, header_len: 5, ipv6: false, datagrams: false });
        assert_eq!(b.deadline(), None);
        a.transmit(NOW, &mut outbox).unwrap();
        assert!(outbox.is_empty());
        assert_eq!(b.deadline(), Some(NOW), "frames wait: at once");
        let got = receive_all(&mut b);
        assert_eq!(got[0].bytes, b"first");
        assert_eq!((got[0].checksum, got[0].segment_size), (RxChecksum::Unknown, 0));
        assert_eq!(got[1].bytes, b"head tail");
        assert_eq!((got[1].checksum, got[1].segment_size), (RxChecksum::Good, 4));
        assert!(receive_all(&mut a).is_empty(), "nothing came the other way");
    }

    #[test]
    fn a_full_ring_leaves_the_rest_in_the_outbox() {
        let (mut a, mut b) = MemoryDevice::pair(plain(), 2);
        let mut outbox = Outbox::new(8);
        push(&mut outbox, b"1");
        push(&mut outbox, b"2");
        a.transmit(NOW, &mut outbox).unwrap();
        assert_eq!(outbox.len(), 0);
        push(&mut outbox, b"3");
        a.transmit(NOW, &mut outbox).unwrap();
        assert_eq!(outbox.len(), 1);
        assert_eq!(b.receive(NOW, 1, &mut |_| ()).unwrap(), 1);
        a.transmit(NOW, &mut outbox).unwrap();
        assert_eq!((outbox.len(), receive_all(&mut b).len()), (0, 2));
    }

    #[test]
    fn a_frame_without_tail_moves_by_swapping_buffers() {
        let (mut a, mut wire) = MemoryDevice::with_wire(plain(), 2);
        let mut outbox = Outbox::new(2);
        push(&mut outbox, &[7; 1000]);
        let place = outbox.front().unwrap().head.as_ptr();
        a.transmit(NOW, &mut outbox).unwrap();
        let frame = wire.drain().unwrap();
        assert_eq!(frame.bytes.as_ptr(), place);
        wire.recycle(frame);
        // The buffer comes back with the next frame taken.
        push(&mut outbox, b"x");
        a.transmit(NOW, &mut outbox).unwrap();
        assert_eq!(outbox.push().unwrap().head.as_ptr(), place);
    }

    #[test]
    fn the_bare_end_takes_its_capacity_and_not_one_more() {
        let (mut device, mut wire) = MemoryDevice::with_wire(plain(), 2);
        assert!(wire.inject(RxFrame::plain(b"1")));
        assert!(wire.inject(RxFrame::plain(b"2")));
        assert!(!wire.inject(RxFrame::plain(b"3")));
        let got = receive_all(&mut device);
        assert_eq!(got.iter().map(|f| &f.bytes[..]).collect::<Vec<_>>(), [b"1", b"2"]);
        assert!(wire.inject(RxFrame::plain(b"3")));
    }
}
