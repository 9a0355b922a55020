//! The memory that a socket of AF_XDP shares with the kernel: frames, and four rings that say whose
//! each frame is.
//!
//! ```text
//!            fill ──────►          ──────► received
//!   chunks for arrivals    kernel                    sink, then fill again
//!            send ──────►          ──────► sent
//!   chunks for departures                            free again
//! ```
//!
//! The frames lie in chunks of one size, a frame in one chunk or, if it is larger, in several. One
//! half of the chunks goes around the upper way, the other half the lower one. A chunk belongs to
//! the kernel from when it is in `fill` or `send` until it comes out of `received` or `sent`. So
//! each ring has room for all chunks of its half, but not always at once: the kernel may hand over
//! a chunk a moment before it says that its place in the ring before is free.
//!
//! Before a frame that is to be sent its chunk has metadata: the checksum that is left to do
//! (Linux, Documentation/networking/xsk-tx-metadata.rst).
//!
//! Only this module of AF_XDP's needs `unsafe`, beside an ioctl: it reads and writes memory that
//! the kernel maps.
#![allow(unsafe_code, reason = "rings and frames lie in memory that the kernel shares")]

use std::marker::PhantomData;
use std::mem::{align_of, size_of};
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::slice;
use std::sync::atomic::{AtomicU32, Ordering};

use lightwait_core::RxFrame;
use lightwait_core::frame::{Frame, TxChecksum, in_bursts};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};
use rustix::net::sockopt;
use rustix::net::xdp::{
    XDP_PGOFF_RX_RING, XDP_PGOFF_TX_RING, XDP_UMEM_PGOFF_COMPLETION_RING, XDP_UMEM_PGOFF_FILL_RING,
    XdpDesc, XdpDescOptions, XdpRingFlags, XdpRingOffset, XdpUmemReg, XdpUmemRegFlags,
};

/// Chunks each way, a power of two: how many frames may wait to be received, or to be sent.
const CHUNKS: u32 = 2048;

/// Chunks of a frame, at most: a packet of the kernel's has 17 parts (MAX_SKB_FRAGS).
pub(super) const PARTS_MAX: u32 = 16;

/// Bytes of `struct xsk_tx_metadata` (linux/if_xdp.h): flags, csum_start, csum_offset, a time.
const METADATA_LEN: u32 = 24;
/// XDP_UMEM_TX_METADATA_LEN: a length of metadata is given.
const HAS_METADATA_LEN: u32 = 1 << 2;
/// XDP_TX_METADATA: metadata lies before the frame.
const HAS_METADATA: XdpDescOptions = XdpDescOptions::from_bits_retain(1 << 1);
/// XDP_TXMD_FLAGS_CHECKSUM: the metadata has the place of a checksum to complete.
const COMPLETES: u64 = 1 << 1;

/// What became of a frame that was to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pushed {
    /// It is the kernel's once [`Rings::submit`] is called.
    Taken,
    /// It takes more chunks than a frame may have.
    TooLarge,
    /// All chunks are on their way.
    Full,
}

/// How frames lie in chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    /// Bytes of a chunk, a power of two.
    pub(super) chunk_len: u32,
    /// A frame may take several.
    pub(super) is_split: bool,
}

/// A frame that has arrived.
#[derive(Debug)]
enum Arrived {
    /// It lies in one chunk.
    Whole(XdpDesc),
    /// It lay in several, and was joined to that place.
    Joined(Range<usize>),
}

/// Frames and rings of one socket.
#[derive(Debug)]
pub(super) struct Rings {
    frames: Area,
    layout: Layout,
    /// Bytes of metadata before a frame to send; 0 if the kernel knows none (before Linux 6.8).
    metadata_len: u32,
    fill: Producer<u64>,
    received: Consumer<XdpDesc>,
    send: Producer<XdpDesc>,
    sent: Consumer<u64>,
    /// Chunks for departures that are ours.
    free: Vec<u64>,
    /// The frames being handed over.
    arrived: Vec<Arrived>,
    joined: Vec<u8>,
}

impl Rings {
    /// Gives the socket its memory, and the chunks for arrivals to the kernel.
    pub(super) fn new(socket: BorrowedFd<'_>, layout: Layout) -> rustix::io::Result<Rings> {
        let chunk_len = layout.chunk_len;
        let frames = Area::anonymous(2 * CHUNKS as usize * chunk_len as usize)?;
        let metadata_len = register(socket, &frames, chunk_len)?;
        sockopt::set_xdp_umem_fill_ring_size(socket, CHUNKS)?;
        sockopt::set_xdp_umem_completion_ring_size(socket, CHUNKS)?;
        sockopt::set_xdp_rx_ring_size(socket, CHUNKS)?;
        sockopt::set_xdp_tx_ring_size(socket, CHUNKS)?;
        let offsets = sockopt::xdp_mmap_offsets(socket)?;
        let mut rings = Rings {
            frames,
            layout,
            metadata_len,
            fill: Producer(Ring::map(socket, XDP_UMEM_PGOFF_FILL_RING, offsets.fr)?),
            received: Consumer(Ring::map(socket, XDP_PGOFF_RX_RING, offsets.rx)?),
            send: Producer(Ring::map(socket, XDP_PGOFF_TX_RING, offsets.tx)?),
            sent: Consumer(Ring::map(socket, XDP_UMEM_PGOFF_COMPLETION_RING, offsets.cr)?),
            free: (CHUNKS..2 * CHUNKS).map(|chunk| u64::from(chunk * chunk_len)).collect(),
            arrived: Vec::new(),
            joined: Vec::new(),
        };
        (0..CHUNKS).for_each(|chunk| rings.fill.push(u64::from(chunk * chunk_len)));
        rings.fill.submit();
        Ok(rings)
    }

    /// True if the kernel knows metadata: where it copies frames it completes their checksums.
    pub(super) fn has_metadata(&self) -> bool {
        self.metadata_len > 0
    }

    /// Hands at most `most` frames that have arrived to `sink`, oldest first, and gives their
    /// chunks back to the kernel. Returns their number.
    pub(super) fn receive(&mut self, most: usize, sink: impl FnMut(&[RxFrame<'_>])) -> usize {
        let chunks = self.look(most);
        if chunks == 0 {
            // A stack that polls leaves the counters in the kernel's cache.
            return 0;
        }
        let frame = |arrived: &Arrived| match arrived {
            Arrived::Whole(place) => RxFrame::plain(self.frames.bytes(place.addr, place.len)),
            Arrived::Joined(place) => RxFrame::plain(&self.joined[place.clone()]),
        };
        in_bursts(self.arrived.iter().map(frame), sink);
        for ahead in 0..chunks {
            let chunk = self.chunk_of(self.received.peek(ahead).addr);
            self.fill.push(chunk);
        }
        self.received.release(chunks);
        self.fill.submit();
        self.arrived.len()
    }

    /// Notes at most `most` frames that have arrived whole, and joins those that lie in several
    /// chunks. Returns the number of their chunks.
    fn look(&mut self, most: usize) -> u32 {
        self.arrived.clear();
        self.joined.clear();
        let (mut taken, mut begin) = (0, 0);
        // All that is taken must find room where it goes next.
        for ahead in 0..self.received.ready().min(self.fill.room()) {
            if self.arrived.len() >= most {
                break;
            }
            let place = self.received.peek(ahead);
            let is_last = !place.options.contains(XdpDescOptions::XDP_PKT_CONTD);
            if is_last && taken == ahead {
                self.arrived.push(Arrived::Whole(place));
            } else {
                self.joined.extend_from_slice(self.frames.bytes(place.addr, place.len));
                if !is_last {
                    continue;
                }
                self.arrived.push(Arrived::Joined(begin..self.joined.len()));
                begin = self.joined.len();
            }
            taken = ahead + 1;
        }
        taken
    }

    /// Copies a frame to chunks, for the kernel to send.
    pub(super) fn push(&mut self, frame: &Frame) -> Pushed {
        let room = self.layout.chunk_len - self.metadata_len;
        let mut rest = frame.len() as u32;
        let chunks = rest.div_ceil(room);
        if chunks > if self.layout.is_split { PARTS_MAX } else { 1 } {
            return Pushed::TooLarge;
        }
        if self.free.len() < chunks as usize {
            self.reclaim();
        }
        let Some(first) = self.free.len().checked_sub(chunks as usize) else { return Pushed::Full };
        if self.send.room() < chunks {
            return Pushed::Full;
        }
        let mut options = self.tell(self.free[first], frame.checksum);
        let mut bytes = Bytes::of(frame);
        for chunk in self.free.drain(first..) {
            let (addr, len) = (chunk + u64::from(self.metadata_len), rest.min(room));
            bytes.fill(self.frames.bytes_mut(addr, len));
            rest -= len;
            if rest > 0 {
                options |= XdpDescOptions::XDP_PKT_CONTD;
            }
            self.send.push(XdpDesc { addr, len, options });
            options = XdpDescOptions::empty();
        }
        Pushed::Taken
    }

    /// Writes the metadata of a frame that begins in `chunk`, if it needs some.
    fn tell(&mut self, chunk: u64, checksum: TxChecksum) -> XdpDescOptions {
        let TxChecksum::Partial { start, offset } = checksum else {
            return XdpDescOptions::empty();
        };
        let to = self.frames.bytes_mut(chunk, self.metadata_len);
        to[..8].copy_from_slice(&COMPLETES.to_ne_bytes());
        to[8..10].copy_from_slice(&start.to_ne_bytes());
        to[10..12].copy_from_slice(&offset.to_ne_bytes());
        HAS_METADATA
    }

    /// Where the chunk begins that `addr` lies in.
    fn chunk_of(&self, addr: u64) -> u64 {
        addr & !u64::from(self.layout.chunk_len - 1)
    }

    /// Gives the frames that were pushed to the kernel.
    pub(super) fn submit(&mut self) {
        self.send.submit();
    }

    /// Frames that the kernel has not begun to send.
    pub(super) fn unsent(&self) -> u32 {
        self.send.waiting()
    }

    /// True if the kernel must be called for it to send.
    pub(super) fn send_needs_call(&self) -> bool {
        self.send.0.needs_call()
    }

    /// True if the kernel must be called for it to receive: it had run out of chunks.
    pub(super) fn fill_needs_call(&self) -> bool {
        self.fill.0.needs_call()
    }

    /// Takes back the chunks of frames that were sent.
    fn reclaim(&mut self) {
        let count = self.sent.ready();
        for ahead in 0..count {
            let chunk = self.chunk_of(self.sent.peek(ahead));
            self.free.push(chunk);
        }
        self.sent.release(count);
    }
}

/// Gives the socket the memory of frames. Returns the bytes of metadata that the kernel takes.
fn register(socket: BorrowedFd<'_>, frames: &Area, chunk_len: u32) -> rustix::io::Result<u32> {
    let with = |flags, tx_metadata_len| {
        let memory = XdpUmemReg {
            addr: frames.base.as_ptr() as u64,
            len: frames.len as u64,
            chunk_size: chunk_len,
            headroom: 0,
            flags: XdpUmemRegFlags::from_bits_retain(flags),
            tx_metadata_len,
        };
        sockopt::set_xdp_umem_reg(socket, memory).map(|()| tx_metadata_len)
    };
    match with(HAS_METADATA_LEN, METADATA_LEN) {
        Err(Errno::INVAL) => with(0, 0),
        result => result,
    }
}

/// The bytes of a frame that were not copied yet.
struct Bytes<'a, T> {
    part: &'a [u8],
    parts: T,
}

impl<'a> Bytes<'a, ()> {
    fn of(frame: &'a Frame) -> Bytes<'a, impl Iterator<Item = &'a [u8]>> {
        Bytes { part: &frame.head, parts: frame.tail.iter().map(|part| &part[..]) }
    }
}

impl<'a, T: Iterator<Item = &'a [u8]>> Bytes<'a, T> {
    /// Copies the next ones, of which there are enough.
    fn fill(&mut self, mut to: &mut [u8]) {
        while !to.is_empty() {
            let (here, rest) = to.split_at_mut(self.part.len().min(to.len()));
            let (copied, left) = self.part.split_at(here.len());
            here.copy_from_slice(copied);
            (to, self.part) = (rest, left);
            if self.part.is_empty() {
                self.part = self.parts.next().unwrap_or_default();
            }
        }
    }
}

/// A ring into which we write.
#[derive(Debug)]
struct Producer<T>(Ring<T>);

impl<T: Copy> Producer<T> {
    /// Writes an entry, for which there is [room](Producer::room).
    fn push(&mut self, entry: T) {
        self.0.write(self.0.next, entry);
        self.0.next = self.0.next.wrapping_add(1);
    }

    fn submit(&mut self) {
        // The entries are written before the kernel sees that they are there.
        self.0.index(self.0.offsets.producer).store(self.0.next, Ordering::Release);
    }

    /// How many entries more there is room for.
    fn room(&self) -> u32 {
        CHUNKS.saturating_sub(self.waiting())
    }

    /// Entries that the kernel has not taken.
    fn waiting(&self) -> u32 {
        // It has read the entries that it has taken before we write over them.
        let taken = self.0.index(self.0.offsets.consumer).load(Ordering::Acquire);
        self.0.next.wrapping_sub(taken)
    }
}

/// A ring from which we read.
#[derive(Debug)]
struct Consumer<T>(Ring<T>);

impl<T: Copy> Consumer<T> {
    /// Entries that the kernel has written.
    fn ready(&self) -> u32 {
        // They are written before the kernel says that they are there.
        let written = self.0.index(self.0.offsets.producer).load(Ordering::Acquire);
        written.wrapping_sub(self.0.next).min(CHUNKS)
    }

    /// An entry of those that are ready.
    fn peek(&self, ahead: u32) -> T {
        self.0.read(self.0.next.wrapping_add(ahead))
    }

    fn release(&mut self, count: u32) {
        self.0.next = self.0.next.wrapping_add(count);
        // The entries are read before the kernel writes over them.
        self.0.index(self.0.offsets.consumer).store(self.0.next, Ordering::Release);
    }
}

/// Where the parts of a ring are in its area, in bytes.
#[derive(Clone, Copy, Debug)]
struct Offsets {
    producer: usize,
    consumer: usize,
    flags: usize,
    entries: usize,
}

/// A ring: entries, and two counters, of which one is ours to write.
#[derive(Debug)]
struct Ring<T> {
    area: Area,
    offsets: Offsets,
    /// The counter that is ours, with what was not told to the kernel yet.
    next: u32,
    entries: PhantomData<T>,
}

impl<T: Copy> Ring<T> {
    fn map(
        socket: BorrowedFd<'_>,
        place: u64,
        offsets: XdpRingOffset,
    ) -> rustix::io::Result<Ring<T>> {
        let offsets = Offsets {
            producer: offsets.producer as usize,
            consumer: offsets.consumer as usize,
            // Before Linux 5.4.
            flags: offsets.flags.ok_or(Errno::OPNOTSUPP)? as usize,
            entries: offsets.desc as usize,
        };
        let len = offsets.entries + CHUNKS as usize * size_of::<T>();
        let area = Area::of_socket(socket, len, place)?;
        for at in [offsets.producer, offsets.consumer, offsets.flags] {
            assert!(at + 4 <= len && at % 4 == 0, "the kernel's offsets lie in its ring");
        }
        assert!(offsets.entries.is_multiple_of(align_of::<T>()), "entries are aligned");
        Ok(Ring { area, offsets, next: 0, entries: PhantomData })
    }

    fn index(&self, at: usize) -> &AtomicU32 {
        // SAFETY: `at` is one of the offsets that `map` has checked: four bytes within the area,
        // aligned, which the kernel, too, touches as an atomic word alone.
        unsafe { AtomicU32::from_ptr(self.area.base.as_ptr().add(at).cast()) }
    }

    fn needs_call(&self) -> bool {
        let flags = self.index(self.offsets.flags).load(Ordering::Relaxed);
        flags & XdpRingFlags::XDP_RING_NEED_WAKEUP.bits() != 0
    }

    fn entry(&self, number: u32) -> *mut T {
        let at = self.offsets.entries + (number % CHUNKS) as usize * size_of::<T>();
        // SAFETY: the area has room for `CHUNKS` entries from `offsets.entries` on.
        unsafe { self.area.base.as_ptr().add(at).cast() }
    }

    fn read(&self, number: u32) -> T {
        // SAFETY: the entry lies in the area, aligned, and is plain C data, for which any bytes are
        // valid. The kernel does not write it before we have released it.
        unsafe { self.entry(number).read() }
    }

    fn write(&mut self, number: u32, entry: T) {
        // SAFETY: the entry lies in the area, aligned. The kernel does not read it before we have
        // submitted it.
        unsafe { self.entry(number).write(entry) }
    }
}

/// Memory that is mapped.
#[derive(Debug)]
struct Area {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: the memory belongs to the area alone, and to no thread.
unsafe impl Send for Area {}

impl Area {
    /// Memory of zeros.
    fn anonymous(len: usize) -> rustix::io::Result<Area> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: without an address the mapping takes the place of no other.
        let base = unsafe { mmap_anonymous(std::ptr::null_mut(), len, access, MapFlags::PRIVATE) }?;
        Ok(Area { base: NonNull::new(base.cast()).ok_or(Errno::NOMEM)?, len })
    }

    /// What a socket has at `place`.
    fn of_socket(socket: BorrowedFd<'_>, len: usize, place: u64) -> rustix::io::Result<Area> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        // SAFETY: without an address the mapping takes the place of no other.
        let base = unsafe { mmap(std::ptr::null_mut(), len, access, flags, socket, place) }?;
        Ok(Area { base: NonNull::new(base.cast()).ok_or(Errno::NOMEM)?, len })
    }

    /// The bytes at `at`; none if they do not lie in the area. The caller's are those of a chunk
    /// that has come out of a ring.
    fn bytes(&self, at: u64, len: u32) -> &[u8] {
        let (at, len) = (at as usize, len as usize);
        if at.checked_add(len).is_none_or(|end| end > self.len) {
            return &[];
        }
        // SAFETY: the bytes lie in the area, which lives as long as the borrow. They are of a chunk
        // that is ours: the kernel does not write there until it is in a ring again, for which the
        // borrow must have ended.
        unsafe { slice::from_raw_parts(self.base.as_ptr().add(at), len) }
    }

    /// The same, to write.
    fn bytes_mut(&mut self, at: u64, len: u32) -> &mut [u8] {
        let (at, len) = (at as usize, len as usize);
        assert!(at + len <= self.len, "a chunk lies in the area");
        // SAFETY: as for `bytes`; and nothing else refers to the area while it is borrowed so.
        unsafe { slice::from_raw_parts_mut(self.base.as_ptr().add(at), len) }
    }
}

impl Drop for Area {
    fn drop(&mut self) {
        // SAFETY: the area is one whole mapping, and nothing refers to it any more. The kernel
        // keeps pages of its own that it still needs.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACES: Offsets = Offsets { producer: 0, consumer: 64, flags: 128, entries: 192 };
    const CHUNK_LEN: u32 = 2048;

    /// Rings of which the test is the kernel.
    fn rings(is_split: bool) -> Rings {
        fn ring<T: Copy>() -> Ring<T> {
            let len = PLACES.entries + CHUNKS as usize * size_of::<T>();
            let area = Area::anonymous(len).unwrap();
            Ring { area, offsets: PLACES, next: 0, entries: PhantomData }
        }
        let chunks = |from: u32| (from..from + CHUNKS).map(|chunk| u64::from(chunk * CHUNK_LEN));
        let mut rings = Rings {
            frames: Area::anonymous(2 * CHUNKS as usize * CHUNK_LEN as usize).unwrap(),
            layout: Layout { chunk_len: CHUNK_LEN, is_split },
            metadata_len: 0,
            fill: Producer(ring()),
            received: Consumer(ring()),
            send: Producer(ring()),
            sent: Consumer(ring()),
            free: chunks(CHUNKS).collect(),
            arrived: Vec::new(),
            joined: Vec::new(),
        };
        chunks(0).for_each(|chunk| rings.fill.push(chunk));
        rings.fill.submit();
        rings
    }

    fn tell<T: Copy>(ring: &Ring<T>, place: usize, count: u32) {
        ring.index(place).store(count, Ordering::Release);
    }

    #[test]
    fn arrivals_wait_for_room_where_their_chunks_go_next() {
        let mut rings = rings(true);
        let place =
            |chunk: u32, options| XdpDesc { addr: u64::from(chunk * CHUNK_LEN), len: 100, options };
        // Two frames of a chunk each, and one of two.
        let [last, not_last] = [XdpDescOptions::empty(), XdpDescOptions::XDP_PKT_CONTD];
        for (chunk, options) in [(0, last), (1, last), (2, not_last), (3, last)] {
            rings.received.0.write(chunk, place(chunk, options));
        }
        tell(&rings.received.0, PLACES.producer, 4);
        // The kernel has handed over four chunks, and says that it has taken fewer.
        for (taken, frames) in [(0, 0), (1, 1), (3, 1), (4, 1)] {
            tell(&rings.fill.0, PLACES.consumer, taken);
            assert_eq!(rings.receive(usize::MAX, |_| ()), frames, "{taken}");
            assert!(rings.fill.waiting() <= CHUNKS);
        }
        assert_eq!(rings.fill.waiting(), CHUNKS, "none is lost");
    }

    #[test]
    fn departures_wait_for_room_in_their_ring() {
        let mut rings = rings(false);
        let frame = Frame { head: vec![7; 100], ..Frame::default() };
        for number in 0..CHUNKS {
            assert_eq!(rings.push(&frame), Pushed::Taken);
            rings.sent.0.write(number, u64::from((CHUNKS + number) * CHUNK_LEN));
        }
        rings.submit();
        assert_eq!(rings.push(&frame), Pushed::Full, "no chunk is left");
        // One was sent, and its place in the ring is not free yet.
        tell(&rings.sent.0, PLACES.producer, 1);
        assert_eq!(rings.push(&frame), Pushed::Full);
        tell(&rings.send.0, PLACES.consumer, 1);
        assert_eq!(rings.push(&frame), Pushed::Taken);
        assert_eq!(rings.push(&frame), Pushed::Full);
    }
}
