//! Frames through a file descriptor, with or without a virtio header before each. TAP and packet
//! sockets share this code. A frame takes one system call each way; a receive ring saves that of
//! the frames that come.

use std::fmt;
use std::io::{self, IoSlice};
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use lightwait_core::frame::{BURST, Frame, RxChecksum, in_bursts};
use lightwait_core::wire::ethernet::{HEADER_BYTES, TAG_BYTES, TAGS_MAX};
use lightwait_core::{Instant, Outbox, RxFrame};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;

use super::stamp::Stamps;
use super::vlan::Tag;
use super::{Counters, Sink, virtio};

/// Bytes of an Ethernet header with two tags.
const LINK_LEN: usize = HEADER_BYTES + TAGS_MAX * TAG_BYTES;

/// Room for the largest frame: virtio header, Ethernet header with tags, the largest IP packet.
const LARGEST_LEN: usize = virtio::HEADER_LEN + LINK_LEN + 65_535;

/// Each frame of a burst is read to a multiple of this. A tag is put back before it.
const ALIGNMENT: usize = 64;

/// Room for a burst of ordinary frames, and the largest frame behind them.
const BUFFER_LEN: usize = ALIGNMENT + BURST * 2048 + LARGEST_LEN;

/// Slices in one system call at most, header and head included (UIO_MAXIOV is 1024).
const MAX_SLICES: usize = 1024;

/// A frame that was read, with what the kernel keeps beside it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Read {
    /// Its length in the buffer, with its virtio header.
    pub(super) len: usize,
    /// Its receive time by the kernel's wall clock, in ns.
    pub(super) wall_ns: Option<u64>,
    /// The tag that the kernel has taken out of it.
    pub(super) tag: Option<Tag>,
    /// Its transport checksum is verified, or was left undone on this machine.
    pub(super) is_known_good: bool,
}

/// Reads frames, one a call.
pub(super) trait Reader: fmt::Debug + Send {
    /// Reads the next frame to the start of `buffer`. Fails with EAGAIN if none waits.
    fn read(&mut self, fd: BorrowedFd<'_>, buffer: &mut [u8]) -> rustix::io::Result<Read>;

    /// A reader for another handle on the descriptor; nothing if there can be one reader alone.
    fn another(&self) -> Option<Box<dyn Reader>>;
}

/// Reads with read(2), which returns nothing beside the frame.
#[derive(Debug)]
struct Plain;

impl Reader for Plain {
    fn read(&mut self, fd: BorrowedFd<'_>, buffer: &mut [u8]) -> rustix::io::Result<Read> {
        rustix::io::read(fd, buffer).map(|len| Read { len, ..Read::default() })
    }

    fn another(&self) -> Option<Box<dyn Reader>> {
        Some(Box::new(Plain))
    }
}

/// A frame in the buffer.
#[derive(Debug)]
struct Arrived {
    place: Range<usize>,
    at: Instant,
    is_known_good: bool,
}

/// A descriptor from which frames are read, and to which they are written.
#[derive(Debug)]
pub(super) struct PacketFd {
    fd: OwnedFd,
    reader: Box<dyn Reader>,
    /// Both clocks, if `reader` returns receive times.
    stamps: Option<Stamps>,
    /// Bytes of virtio header before each frame: 12, 10, or 0.
    header_len: usize,
    buffer: Box<[u8]>,
    /// The frames being handed over.
    arrived: Vec<Arrived>,
    /// The descriptor took no more: wait until it is writable.
    full: bool,
    /// The kernel has said that the interface is down.
    trouble: bool,
    counters: Counters,
}

/// The kernel's answer to a frame.
enum Sent {
    Taken,
    Dropped,
    Full,
}

impl PacketFd {
    /// Frames alone: nothing is known beside them.
    pub(super) fn new(fd: OwnedFd, header_len: usize) -> io::Result<PacketFd> {
        fcntl_setfl(&fd, fcntl_getfl(&fd)? | OFlags::NONBLOCK)?;
        let buffer = vec![0; BUFFER_LEN].into_boxed_slice();
        let (arrived, counters) = (Vec::with_capacity(BURST), Counters::default());
        let (reader, stamps): (Box<dyn Reader>, _) = (Box::new(Plain), None);
        let (full, trouble) = (false, false);
        Ok(PacketFd { fd, reader, stamps, header_len, buffer, arrived, full, trouble, counters })
    }

    /// Frames with what `reader` returns beside them.
    pub(super) fn described(self, reader: Box<dyn Reader>) -> PacketFd {
        PacketFd { reader, stamps: Some(Stamps::default()), ..self }
    }

    /// Another handle on the descriptor, which has moved nothing yet.
    pub(super) fn try_clone(&self) -> io::Result<PacketFd> {
        let mut other = PacketFd::new(self.fd.try_clone()?, self.header_len)?;
        other.reader = self.reader.another().ok_or_else(|| {
            let text = "a receive ring has one handle: give it up (with_receive_buffer)";
            io::Error::new(io::ErrorKind::Unsupported, text)
        })?;
        other.stamps = self.stamps.as_ref().map(|_| Stamps::default());
        Ok(other)
    }

    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    pub(super) fn is_full(&self) -> bool {
        self.full
    }

    /// True if the kernel has reported, since the last call, that the interface is down.
    pub(super) fn take_trouble(&mut self) -> bool {
        std::mem::take(&mut self.trouble)
    }

    pub(super) fn counters(&self) -> Counters {
        self.counters
    }

    pub(super) fn receive(
        &mut self,
        now: Instant,
        budget: usize,
        sink: &mut Sink<'_>,
    ) -> io::Result<usize> {
        if let Some(stamps) = &mut self.stamps {
            stamps.look(now);
        }
        let mut received = 0;
        while received < budget {
            let result = self.read_burst(now, budget - received);
            received += self.arrived.len();
            self.hand_over(sink);
            if !result? {
                break;
            }
        }
        Ok(received)
    }

    /// Reads as many frames as the buffer has room for, `most` at most. True if more may wait.
    fn read_burst(&mut self, now: Instant, most: usize) -> io::Result<bool> {
        self.arrived.clear();
        let mut begin = ALIGNMENT;
        while self.arrived.len() < most.min(BURST) && begin + LARGEST_LEN <= BUFFER_LEN {
            match self.reader.read(self.fd.as_fd(), &mut self.buffer[begin..]) {
                Ok(read) => {
                    let end = begin + read.len;
                    self.note(now, begin..end, read);
                    // With room for a tag before the next frame.
                    begin = (end + TAG_BYTES).next_multiple_of(ALIGNMENT);
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(false),
                // The kernel had a frame whose offloads the virtio header cannot tell, and has
                // dropped it. Without its header it counts as too short.
                Err(Errno::INVAL) if self.header_len > 0 => {
                    self.note(now, begin..begin, Read::default());
                }
                // A packet socket reports once that its interface went down; it may come back.
                Err(Errno::NETDOWN) => {
                    self.trouble = true;
                    return Ok(false);
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(true)
    }

    /// Notes the frame that was read to `place`, in its form on the wire.
    fn note(&mut self, now: Instant, place: Range<usize>, read: Read) {
        let place = match read.tag {
            Some(tag) => tag.put_back(&mut self.buffer, place, self.header_len),
            None => place,
        };
        let at = self.stamps.as_ref().zip(read.wall_ns);
        let at = at.and_then(|(stamps, ns)| stamps.arrived(now, ns));
        let at = at.unwrap_or(Instant::FAR_FUTURE);
        self.arrived.push(Arrived { place, at, is_known_good: read.is_known_good });
    }

    fn hand_over(&mut self, sink: &mut Sink<'_>) {
        let (buffer, header_len) = (&self.buffer, self.header_len);
        let decode = |arrived: &Arrived| {
            let mut frame = virtio::decode(&buffer[arrived.place.clone()], header_len)?;
            if arrived.is_known_good {
                frame.checksum = RxChecksum::Good;
            }
            Some(RxFrame { arrived: arrived.at, ..frame })
        };
        let mut received = 0;
        in_bursts(self.arrived.iter().filter_map(decode), |frames| {
            received += frames.len() as u64;
            sink(frames);
        });
        self.counters.received += received;
        self.counters.receive_errors += self.arrived.len() as u64 - received;
    }

    pub(super) fn transmit(&mut self, outbox: &mut Outbox) -> io::Result<()> {
        self.full = false;
        while let Some(frame) = outbox.front() {
            match self.send(frame)? {
                Sent::Taken => self.counters.transmitted += 1,
                Sent::Dropped => self.counters.transmit_errors += 1,
                Sent::Full => {
                    self.full = true;
                    break;
                }
            }
            outbox.pop();
        }
        Ok(())
    }

    fn send(&mut self, frame: &Frame) -> io::Result<Sent> {
        let header = virtio::encode(frame);
        let mut joined = Vec::new();
        let mut slices = [IoSlice::new(&[]); 16];
        slices[0] = IoSlice::new(&header[..self.header_len]);
        slices[1] = IoSlice::new(&frame.head);
        let count = frame.tail.len() + 2;
        // Most frames have few slices and need no allocation.
        let result = if let Some(few) = slices.get_mut(..count) {
            for (slice, part) in few[2..].iter_mut().zip(&frame.tail) {
                *slice = IoSlice::new(part);
            }
            self.write(few)
        } else if count <= MAX_SLICES {
            let tail = frame.tail.iter().map(|part| IoSlice::new(part));
            self.write(&slices[..2].iter().copied().chain(tail).collect::<Vec<_>>())
        } else {
            frame.copy_to(&mut joined);
            self.write(&[slices[0], IoSlice::new(&joined)])
        };
        match result {
            Ok(_) => Ok(Sent::Taken),
            Err(Errno::AGAIN) => Ok(Sent::Full),
            // The interface of a TAP or of a packet socket is down.
            Err(Errno::IO | Errno::NETDOWN) => {
                self.trouble = true;
                Ok(Sent::Dropped)
            }
            // The kernel's queue is full, or it refuses this frame. TCP sees a lost frame; the
            // other frames go on.
            Err(
                Errno::NOBUFS | Errno::NOMEM | Errno::INVAL | Errno::MSGSIZE | Errno::OPNOTSUPP,
            ) => Ok(Sent::Dropped),
            Err(error) => Err(error.into()),
        }
    }

    fn write(&self, slices: &[IoSlice<'_>]) -> rustix::io::Result<usize> {
        rustix::io::retry_on_intr(|| rustix::io::writev(&self.fd, slices))
    }
}
