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
//! The frames lie in chunks of one size. One half of the chunks goes around the upper way, the
//! other half the lower one. A chunk belongs to the kernel from when it is in `fill` or `send`
//! until it comes out of `received` or `sent`. So each ring has room for all chunks of its half.
//!
//! Only this module of AF_XDP's needs `unsafe`, beside an ioctl: it reads and writes memory that
//! the kernel maps.
#![allow(unsafe_code, reason = "rings and frames lie in memory that the kernel shares")]

use std::marker::PhantomData;
use std::mem::{align_of, size_of};
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::slice;
use std::sync::atomic::{AtomicU32, Ordering};

use lightwait_core::RxFrame;
use lightwait_core::frame::{Frame, in_bursts};
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};
use rustix::net::sockopt;
use rustix::net::xdp::{
    XDP_PGOFF_RX_RING, XDP_PGOFF_TX_RING, XDP_UMEM_PGOFF_COMPLETION_RING, XDP_UMEM_PGOFF_FILL_RING,
    XdpDesc, XdpDescOptions, XdpRingFlags, XdpRingOffset, XdpUmemReg, XdpUmemRegFlags,
};

/// Chunks each way, a power of two: how many frames may wait to be received, or to be sent.
const CHUNKS: u32 = 2048;

/// What became of a frame that was to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pushed {
    /// It is the kernel's once [`Rings::submit`] is called.
    Taken,
    /// It is larger than a chunk.
    TooLarge,
    /// All chunks are on their way.
    Full,
}

/// Frames and rings of one socket.
#[derive(Debug)]
pub(super) struct Rings {
    frames: Area,
    /// Bytes of a chunk, a power of two.
    chunk_len: u32,
    fill: Producer<u64>,
    received: Consumer<XdpDesc>,
    send: Producer<XdpDesc>,
    sent: Consumer<u64>,
    /// Chunks for departures that are ours.
    free: Vec<u64>,
}

impl Rings {
    /// Gives the socket its memory, with chunks of that length, and the chunks for arrivals to the
    /// kernel.
    pub(super) fn new(socket: BorrowedFd<'_>, chunk_len: u32) -> rustix::io::Result<Rings> {
        let frames = Area::anonymous(2 * CHUNKS as usize * chunk_len as usize)?;
        let memory = XdpUmemReg {
            addr: frames.base.as_ptr() as u64,
            len: frames.len as u64,
            chunk_size: chunk_len,
            headroom: 0,
            flags: XdpUmemRegFlags::empty(),
            tx_metadata_len: 0,
        };
        sockopt::set_xdp_umem_reg(socket, memory)?;
        sockopt::set_xdp_umem_fill_ring_size(socket, CHUNKS)?;
        sockopt::set_xdp_umem_completion_ring_size(socket, CHUNKS)?;
        sockopt::set_xdp_rx_ring_size(socket, CHUNKS)?;
        sockopt::set_xdp_tx_ring_size(socket, CHUNKS)?;
        let offsets = sockopt::xdp_mmap_offsets(socket)?;
        let mut rings = Rings {
            frames,
            chunk_len,
            fill: Producer(Ring::map(socket, XDP_UMEM_PGOFF_FILL_RING, offsets.fr)?),
            received: Consumer(Ring::map(socket, XDP_PGOFF_RX_RING, offsets.rx)?),
            send: Producer(Ring::map(socket, XDP_PGOFF_TX_RING, offsets.tx)?),
            sent: Consumer(Ring::map(socket, XDP_UMEM_PGOFF_COMPLETION_RING, offsets.cr)?),
            free: (CHUNKS..2 * CHUNKS).map(|chunk| u64::from(chunk * chunk_len)).collect(),
        };
        (0..CHUNKS).for_each(|chunk| rings.fill.push(u64::from(chunk * chunk_len)));
        rings.fill.submit();
        Ok(rings)
    }

    /// Hands at most `most` frames that have arrived to `sink`, oldest first, and gives their
    /// chunks back to the kernel. Returns their number.
    pub(super) fn receive(&mut self, most: usize, sink: impl FnMut(&[RxFrame<'_>])) -> usize {
        let count = self.received.ready().min(most.try_into().unwrap_or(u32::MAX));
        if count == 0 {
            // A stack that polls leaves the counters in the kernel's cache.
            return 0;
        }
        let arrived = |ahead| {
            let place = self.received.peek(ahead);
            RxFrame::plain(self.frames.bytes(place.addr, place.len))
        };
        in_bursts((0..count).map(arrived), sink);
        for ahead in 0..count {
            let chunk = self.received.peek(ahead).addr & !u64::from(self.chunk_len - 1);
            self.fill.push(chunk);
        }
        self.received.release(count);
        self.fill.submit();
        count as usize
    }

    /// Copies a frame to a chunk, for the kernel to send.
    pub(super) fn push(&mut self, frame: &Frame) -> Pushed {
        let len = frame.len();
        if len > self.chunk_len as usize {
            return Pushed::TooLarge;
        }
        if self.free.is_empty() {
            self.reclaim();
        }
        let Some(chunk) = self.free.pop() else { return Pushed::Full };
        let mut to = self.frames.bytes_mut(chunk, len as u32);
        let tail = frame.tail.iter().map(|part| &part[..]);
        for part in std::iter::once(&frame.head[..]).chain(tail) {
            let (here, rest) = to.split_at_mut(part.len());
            here.copy_from_slice(part);
            to = rest;
        }
        let options = XdpDescOptions::empty();
        self.send.push(XdpDesc { addr: chunk, len: len as u32, options });
        Pushed::Taken
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
        self.free.extend((0..count).map(|ahead| self.sent.peek(ahead)));
        self.sent.release(count);
    }
}

/// A ring into which we write.
#[derive(Debug)]
struct Producer<T>(Ring<T>);

impl<T: Copy> Producer<T> {
    /// Writes an entry, for which there is room: a ring has as many entries as there are chunks.
    fn push(&mut self, entry: T) {
        assert!(self.waiting() < CHUNKS, "a chunk is in one ring at a time");
        self.0.write(self.0.next, entry);
        self.0.next = self.0.next.wrapping_add(1);
    }

    fn submit(&mut self) {
        // The entries are written before the kernel sees that they are there.
        self.0.index(self.0.offsets.producer).store(self.0.next, Ordering::Release);
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
            flags: offsets.flags.ok_or(rustix::io::Errno::OPNOTSUPP)? as usize,
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
        Ok(Area { base: NonNull::new(base.cast()).ok_or(rustix::io::Errno::NOMEM)?, len })
    }

    /// What a socket has at `place`.
    fn of_socket(socket: BorrowedFd<'_>, len: usize, place: u64) -> rustix::io::Result<Area> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        // SAFETY: without an address the mapping takes the place of no other.
        let base = unsafe { mmap(std::ptr::null_mut(), len, access, flags, socket, place) }?;
        Ok(Area { base: NonNull::new(base.cast()).ok_or(rustix::io::Errno::NOMEM)?, len })
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
