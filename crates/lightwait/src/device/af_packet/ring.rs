//! Frames that the kernel puts where we find them without a system call: the receive ring of a
//! packet socket (PACKET_RX_RING, TPACKET_V2; Linux, Documentation/networking/packet_mmap.rst).
//!
//! ```text
//!  slot:  header (tpacket2_hdr) ┬ address ┬ virtio header ┬ frame
//!         status ≠ 0: ours                                └ tp_mac, for tp_snaplen bytes
//! ```
//!
//! The kernel fills one slot after another and sets its status last. We read it, clear the status,
//! and go on with the next. A frame longer than a slot waits whole at the socket, in order, and its
//! slot says so (PACKET_COPY_THRESH).
#![allow(unsafe_code, reason = "the kernel shares the ring's memory")]

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::slice;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::net::sockopt;

use super::socket;
use crate::device::packet_fd::{Read, Reader};
use crate::device::vlan::Tag;

/// Bytes of a slot: a frame of an MTU of 1500, with all that lies before it.
const SLOT_LEN: usize = 2048;

/// Frames that may wait.
const SLOTS: usize = 4096;

/// Slots that lie together in the kernel's memory.
const SLOTS_PER_BLOCK: usize = 32;

const RING_LEN: usize = SLOTS * SLOT_LEN;

/// The receive ring of one socket.
#[derive(Debug)]
pub(super) struct Ring {
    /// The slots: [`RING_LEN`] bytes.
    base: NonNull<u8>,
    /// The slot that the kernel fills next, or has filled first.
    next: usize,
    /// Another process has emptied the ring so far, and `next` is not known before a frame comes.
    is_lost: bool,
    /// Bytes of virtio header before each frame.
    header_len: usize,
}

// SAFETY: nothing else refers to the mapping, which any thread may read and write.
unsafe impl Send for Ring {}

impl Ring {
    /// Gives the socket a ring, which has all that it receives from here on.
    pub(super) fn new(socket: &OwnedFd, header_len: usize) -> io::Result<Ring> {
        socket::set_ring(socket.as_fd(), Some(&request()))?;
        // Without the mapping nobody would see what comes.
        Ring::map(socket, header_len).inspect_err(|_| drop(socket::set_ring(socket.as_fd(), None)))
    }

    /// The ring that another process has given the socket, by [`Ring::new`] of this very version.
    /// Only one of both may read at a time.
    pub(super) fn shared(socket: &OwnedFd, header_len: usize) -> io::Result<Ring> {
        let mut ring = Ring::map(socket, header_len)?;
        ring.is_lost = true;
        Ok(ring)
    }

    fn map(socket: &OwnedFd, header_len: usize) -> io::Result<Ring> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        // SAFETY: without an address the mapping takes the place of no other.
        let base = unsafe { mmap(std::ptr::null_mut(), RING_LEN, access, flags, socket, 0) };
        let base = base.and_then(|base| NonNull::new(base.cast()).ok_or(Errno::NOMEM));
        Ok(Ring { base: base?, next: 0, is_lost: false, header_len })
    }

    /// Finds the slot that the kernel has filled first: one behind one that is empty. False if all
    /// are empty. If all are full, frames come in another order than they came in.
    fn find_next(&mut self) -> bool {
        let is_full =
            |slot: usize| self.status_of(slot).load(Ordering::Acquire) & libc::TP_STATUS_USER != 0;
        let is_first = |slot: usize| is_full(slot) && !is_full((slot + SLOTS - 1) % SLOTS);
        let found = (0..SLOTS).find(|slot| is_first(*slot)).or(is_full(0).then_some(0));
        self.is_lost = found.is_none();
        self.next = found.unwrap_or(0);
        !self.is_lost
    }

    /// The status of the next slot.
    fn status(&self) -> &AtomicU32 {
        self.status_of(self.next)
    }

    fn status_of(&self, slot: usize) -> &AtomicU32 {
        debug_assert!(slot < SLOTS);
        // SAFETY: `slot` is less than SLOTS, so that the slot lies in the mapping, which lives as
        // long as the borrow. It begins with its status, which both sides access as a whole; a slot
        // is aligned to its length.
        unsafe { self.base.add(slot * SLOT_LEN).cast().as_ref() }
    }

    /// The header and the bytes of the next slot.
    ///
    /// # Safety
    /// The slot is ours by its status, read with `Acquire`, and stays so during the borrow.
    unsafe fn slot(&self) -> (libc::tpacket2_hdr, &[u8]) {
        // SAFETY: the slot lies in the mapping. The kernel does not write there meanwhile, as the
        // caller promises, and it begins with a header, of which every bit pattern is valid.
        unsafe {
            let slot = self.base.add(self.next * SLOT_LEN);
            (slot.cast().read(), slice::from_raw_parts(slot.as_ptr(), SLOT_LEN))
        }
    }
}

impl Reader for Ring {
    fn read(&mut self, socket: BorrowedFd<'_>, buffer: &mut [u8]) -> rustix::io::Result<Read> {
        let is_found = !self.is_lost || self.find_next();
        let status = self.status().load(Ordering::Acquire);
        if !is_found || status & libc::TP_STATUS_USER == 0 {
            // That the interface went down waits at the socket.
            return Err(sockopt::socket_error(socket)?.err().unwrap_or(Errno::AGAIN));
        }
        // SAFETY: the status says that the slot is ours, until it is cleared below.
        let (header, bytes) = unsafe { self.slot() };
        let read = take(&header, bytes, self.header_len, buffer);
        self.status().store(libc::TP_STATUS_KERNEL, Ordering::Release);
        self.next = (self.next + 1) % SLOTS;
        if status & libc::TP_STATUS_COPY != 0 {
            return socket::read_described(socket, buffer);
        }
        Ok(read)
    }

    fn another(&self) -> Option<Box<dyn Reader>> {
        None
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: the ring is one whole mapping, and nothing refers to it any more.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), RING_LEN) };
    }
}

/// Copies the frame of a slot, its virtio header first. A frame that is not whole is none: it has
/// no bytes, and counts as too short.
fn take(header: &libc::tpacket2_hdr, slot: &[u8], header_len: usize, buffer: &mut [u8]) -> Read {
    let len = header_len + header.tp_snaplen as usize;
    let begin = usize::from(header.tp_mac).checked_sub(header_len);
    let is_whole = header.tp_snaplen == header.tp_len;
    let bytes = begin.and_then(|begin| slot.get(begin..begin + len)).filter(|_| is_whole);
    let Some((bytes, room)) = bytes.zip(buffer.get_mut(..len)) else { return Read::default() };
    room.copy_from_slice(bytes);
    let good = libc::TP_STATUS_CSUMNOTREADY | libc::TP_STATUS_CSUM_VALID;
    let (seconds, nanos) = (u64::from(header.tp_sec), u64::from(header.tp_nsec));
    Read {
        len,
        wall_ns: Some(seconds * 1_000_000_000 + nanos),
        tag: Tag::beside(header.tp_status, header.tp_vlan_tci, header.tp_vlan_tpid),
        is_known_good: header.tp_status & good != 0,
    }
}

fn request() -> libc::tpacket_req {
    libc::tpacket_req {
        tp_block_size: (SLOTS_PER_BLOCK * SLOT_LEN) as libc::c_uint,
        tp_block_nr: (SLOTS / SLOTS_PER_BLOCK) as libc::c_uint,
        tp_frame_size: SLOT_LEN as libc::c_uint,
        tp_frame_nr: SLOTS as libc::c_uint,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(mac: u16, snaplen: u32, len: u32) -> libc::tpacket2_hdr {
        libc::tpacket2_hdr {
            tp_status: libc::TP_STATUS_USER | libc::TP_STATUS_CSUM_VALID,
            tp_len: len,
            tp_snaplen: snaplen,
            tp_mac: mac,
            tp_net: 0,
            tp_sec: 3,
            tp_nsec: 4,
            tp_vlan_tci: 0,
            tp_vlan_tpid: 0,
            tp_padding: [0; 4],
        }
    }

    #[test]
    fn a_frame_is_taken_with_its_virtio_header_and_time() {
        let mut slot = [0; SLOT_LEN];
        slot[90..103].copy_from_slice(b"-virtio-frame");
        let mut buffer = [0; 64];
        let read = take(&header(98, 5, 5), &slot, 8, &mut buffer);
        assert_eq!((read.len, &buffer[..read.len]), (13, &b"-virtio-frame"[..]));
        assert_eq!((read.wall_ns, read.tag, read.is_known_good), (Some(3_000_000_004), None, true));
    }

    #[test]
    fn a_frame_that_is_cut_or_lies_outside_its_slot_is_none() {
        let (slot, mut buffer) = ([0; SLOT_LEN], [0; 4096]);
        for header in [header(98, 5, 6), header(7, 5, 5), header(2040, 9, 9)] {
            assert_eq!(take(&header, &slot, 10, &mut buffer).len, 0);
        }
    }
}
