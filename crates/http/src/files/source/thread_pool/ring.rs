//! Reads by io_uring's two queues, with buffers that the ring owns: the only file of this crate
//! with `unsafe`.
//!
//! The kernel writes into a buffer from the submission of a read until its completion. So [`Ring`]
//! takes buffer and file by value, keeps them in a slot, and gives them back with the completion
//! and never before: no other code can touch or free them meanwhile. A ring that is dropped with
//! reads in progress waits for them.
#![allow(unsafe_code, reason = "what is submitted must live until it is completed")]

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use io_uring::{IoUring, opcode, squeue, types};

use super::{OpenFile, ReadBuffer};

/// Reads in progress, at most; one more is for the bell.
const DEPTH: u32 = 128;

/// Names the bell among completions.
const BELL: u64 = u64::MAX;

/// The reads that the kernel has in progress. For one thread.
pub(super) struct Ring<T> {
    ring: IoUring,
    slots: Vec<Option<Read<T>>>,
    free: Vec<usize>,
    /// The bell: readable when there is a new read to submit; and the buffer for its count.
    bell: (Arc<OwnedFd>, Box<[u8; 8]>),
    /// The bell is being read.
    is_armed: bool,
}

/// A read of a file into a buffer, and its owner.
pub(super) struct Read<T> {
    pub(super) file: Arc<OpenFile>,
    /// The offset in the file of the buffer's first byte.
    pub(super) offset: u64,
    pub(super) buffer: ReadBuffer,
    /// Bytes of the buffer that are filled.
    pub(super) filled: usize,
    pub(super) owner: T,
}

/// A read that is over for now, and how many bytes it returned.
pub(super) type Done<T> = (Read<T>, io::Result<usize>);

impl<T> Ring<T> {
    /// A ring for this thread, which that bell wakes.
    ///
    /// # Errors
    /// If the kernel does not permit one.
    pub(super) fn new(bell: Arc<OwnedFd>) -> io::Result<Ring<T>> {
        let entries = DEPTH + 1;
        let ring = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .build(entries)
            .or_else(|_| IoUring::new(entries))?;
        let depth = DEPTH as usize;
        Ok(Ring {
            ring,
            slots: (0..depth).map(|_| None).collect(),
            free: (0..depth).collect(),
            bell: (bell, Box::default()),
            is_armed: false,
        })
    }

    /// True if another read may be submitted.
    pub(super) fn has_room(&self) -> bool {
        !self.free.is_empty()
    }

    /// True if no read is in progress.
    pub(super) fn is_idle(&self) -> bool {
        self.free.len() == self.slots.len()
    }

    /// Begins a read of the part of the buffer that is not filled.
    ///
    /// # Panics
    /// If there is no free slot, or the buffer is full.
    pub(super) fn begin(&mut self, read: Read<T>) {
        let slot = self.free.pop().expect("room for a read");
        let read = self.slots[slot].insert(read);
        let rest = &mut read.buffer[read.filled..];
        assert!(!rest.is_empty(), "a read of something");
        let length = u32::try_from(rest.len()).unwrap_or(u32::MAX);
        let file = types::Fd(read.file.file.as_raw_fd());
        let entry = opcode::Read::new(file, rest.as_mut_ptr(), length)
            .offset(read.offset + read.filled as u64)
            .build()
            .user_data(slot as u64);
        self.push(&entry);
    }

    /// Submits the reads that were begun, and waits until one is done or the bell rings. Hands
    /// finished reads to `sink`.
    pub(super) fn wait(&mut self, mut sink: impl FnMut(Done<T>)) -> io::Result<()> {
        if !self.is_armed {
            self.arm();
        }
        self.submit_and_wait()?;
        while let Some(completion) = self.ring.completion().next() {
            if completion.user_data() == BELL {
                self.is_armed = false;
                continue;
            }
            let slot = completion.user_data() as usize;
            let read = self.slots[slot].take().expect("a read that was begun");
            self.free.push(slot);
            let result = completion.result();
            let bytes = usize::try_from(result);
            sink((read, bytes.map_err(|_| io::Error::from_raw_os_error(-result))));
        }
        Ok(())
    }

    fn arm(&mut self) {
        let (bell, count) = &mut self.bell;
        let entry = opcode::Read::new(types::Fd(bell.as_raw_fd()), count.as_mut_ptr(), 8)
            .build()
            .user_data(BELL);
        self.push(&entry);
        self.is_armed = true;
    }

    fn submit_and_wait(&mut self) -> io::Result<()> {
        match self.ring.submit_and_wait(1) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => Err(error),
            _ => Ok(()),
        }
    }

    fn push(&mut self, entry: &squeue::Entry) {
        // SAFETY: the file and the buffer that the entry names are owned by `self`: in a slot that
        // is emptied only when the kernel has completed the read, or as the bell, whose box and
        // descriptor are never replaced. Neither is touched meanwhile, a buffer's bytes do not move
        // with it, and `drop` waits for all that was submitted.
        let pushed = unsafe { self.ring.submission().push(entry) };
        // There are as many entries as slots, and one for the bell.
        pushed.expect("room in the queue");
    }
}

impl<T> Drop for Ring<T> {
    fn drop(&mut self) {
        // The bell's read must end as well: it is rung.
        if self.is_armed {
            let _ = rustix::io::write(&*self.bell.0, &1u64.to_ne_bytes());
        }
        while self.is_armed || !self.is_idle() {
            if self.submit_and_wait().is_err() {
                // Losing memory is better than letting the kernel write into memory that is used
                // again.
                std::mem::forget(std::mem::take(&mut self.slots));
                std::mem::forget(std::mem::take(&mut self.bell.1));
                return;
            }
            while let Some(completion) = self.ring.completion().next() {
                match completion.user_data() {
                    BELL => self.is_armed = false,
                    slot => {
                        self.slots[slot as usize] = None;
                        self.free.push(slot as usize);
                    }
                }
            }
        }
    }
}
