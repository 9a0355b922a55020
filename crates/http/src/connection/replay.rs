//! Reads file data again that was written already. Because of that the transport may give memory
//! back while the peer takes nothing.
//!
//! ```text
//!   handed over ─▶ written to the transport ─▶ peer takes nothing: taken back, from the end on
//!        a chunk       stretch of the stream         │
//!                      = stretch of a file           └─ the peer takes data: read again, written
//! ```
//!
//! While data is held back, hyper may still write file data that it has: that is held back as well.
//! The body reads no more meanwhile.
//!
//! A write is recognised as file data by its address in memory: hyper writes a chunk as the body
//! handed it over. A write that is not recognised stays in the transport. So nothing depends on how
//! a response is framed.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::rc::Rc;

use bytes::{Buf, Bytes};

use crate::Pending;
use crate::body::{Buffers, Chunk, Opening};
use crate::control::Control;
use crate::files::source::FileSource;

/// Bytes to read again at a time, at most: memory may still be short.
const READ_BYTES: usize = 16 << 10;

/// Stretches in the record, at most. Older ones cannot be taken back.
const STRETCHES_MAX: usize = 64;

/// The file that some written bytes came from.
pub(crate) trait Origin {
    /// Reads `length` bytes from `offset` on. Fails if the file is seen
    /// to have changed since the first read.
    fn read(&self, offset: u64, length: usize) -> Pending<io::Result<Bytes>>;
}

/// A file of which any change can be detected.
pub(crate) struct Versioned<S: FileSource> {
    pub(crate) opening: Rc<Opening<S>>,
    pub(crate) buffers: Buffers,
}

impl<S: FileSource> Origin for Versioned<S> {
    fn read(&self, offset: u64, length: usize) -> Pending<io::Result<Bytes>> {
        let (buffer, charge) = self.buffers.take(length);
        let opening = self.opening.clone();
        let buffers = self.buffers.clone();
        let reading = opening.source.read_at(&opening.handle, offset, buffer);
        Box::pin(async move {
            let buffer = reading.await?;
            if buffer.len() != length {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            opening.check()?;
            Ok(buffers.lend((buffer, charge)).bytes)
        })
    }
}

/// A stretch of the stream that equals a stretch of a file.
struct Stretch {
    /// Where it begins in the stream.
    at: u64,
    length: u64,
    origin: Rc<dyn Origin>,
    /// Where it begins in the file.
    offset: u64,
}

impl Stretch {
    fn end(&self) -> u64 {
        self.at + self.length
    }
}

/// The written data of one connection that can be read again. Positions in its stream count from
/// the start of the record.
#[derive(Default)]
pub(crate) struct Record {
    /// Chunks that were handed over and are not all written, with their places in their files.
    handed: VecDeque<(Chunk, Rc<dyn Origin>, u64)>,
    stretches: VecDeque<Stretch>,
    /// Bytes written in all.
    written: u64,
    /// Bytes at the end of them that are not in the transport: taken back, or never written.
    taken_back: u64,
    /// While data is held back: the undelivered bytes in the transport at that moment.
    kept: Option<usize>,
    /// The data being read again, and the data already read.
    reading: Option<Pending<io::Result<Bytes>>>,
    read: Bytes,
}

impl Record {
    /// `chunk` of a file, from `offset` on, will be written next, behind those before.
    pub(crate) fn hand_over(&mut self, chunk: Chunk, origin: &Rc<dyn Origin>, offset: u64) {
        self.handed.push_back((chunk, origin.clone(), offset));
    }

    /// The response is written: chunks that are not recognised by now will never be.
    pub(crate) fn on_request(&mut self) {
        self.handed.clear();
    }

    /// The transport took `bytes`.
    pub(crate) fn on_written(&mut self, bytes: &[u8]) {
        if !self.note(bytes) {
            self.written += bytes.len() as u64;
        }
    }

    /// Holds back `bytes` that are about to be written, if they can be read again.
    pub(crate) fn hold_back(&mut self, bytes: &[u8]) -> bool {
        let is_held = self.note(bytes);
        self.taken_back += if is_held { bytes.len() as u64 } else { 0 };
        is_held
    }

    /// The chunk that is written next, if `bytes` are all of it.
    fn whole(&self, bytes: &[u8]) -> Option<&Chunk> {
        let (chunk, ..) = self.handed.front()?;
        std::ptr::eq(&*chunk.bytes, bytes).then_some(chunk)
    }

    /// True if `bytes` are the chunk that is written next, whole: the transport may adopt it.
    pub(crate) fn is_whole(&self, bytes: &[u8]) -> bool {
        self.whole(bytes).is_some()
    }

    /// Has the transport adopt the chunk that `bytes` are, if they are one.
    pub(crate) fn pass_on(&mut self, bytes: &[u8], transport: &impl Control) -> bool {
        let Some(chunk) = self.whole(bytes) else { return false };
        let is_taken = match &chunk.charge {
            Some(_) => transport.adopt(&chunk.bytes),
            None => transport.borrow(&chunk.bytes),
        };
        if !is_taken {
            return false;
        }
        if let Some(charge) = &chunk.charge {
            charge.pass_on(bytes.len());
        }
        self.on_written(bytes);
        true
    }

    /// Counts `bytes` as the next in the stream, if they are a file's. Returns whether they are.
    fn note(&mut self, bytes: &[u8]) -> bool {
        let at = self.written;
        let Some((Chunk { bytes: chunk, .. }, origin, offset)) = self.handed.front() else {
            return false;
        };
        let within = bytes.as_ptr().addr().wrapping_sub(chunk.as_ptr().addr());
        if bytes.is_empty() || within >= chunk.len() {
            return false;
        }
        self.written += bytes.len() as u64;
        let (offset, length) = (offset + within as u64, bytes.len() as u64);
        let is_next = |last: &Stretch| {
            last.end() == at
                && last.offset + last.length == offset
                && Rc::ptr_eq(&last.origin, origin)
        };
        match self.stretches.back_mut() {
            Some(last) if is_next(last) => last.length += length,
            _ => self.stretches.push_back(Stretch { at, length, origin: origin.clone(), offset }),
        }
        if self.stretches.len() > STRETCHES_MAX {
            self.stretches.pop_front();
        }
        if within + bytes.len() == chunk.len() {
            self.handed.pop_front();
        }
        true
    }

    /// Bytes that are not in the transport and must be written again.
    pub(crate) fn taken_back(&self) -> usize {
        self.taken_back as usize
    }

    /// Drops the data that the peer has taken, given the undelivered bytes in the transport. True
    /// if none is left.
    pub(crate) fn forget(&mut self, undelivered: usize) -> bool {
        let delivered = (self.written - self.taken_back).saturating_sub(undelivered as u64);
        while self.stretches.front().is_some_and(|first| first.end() <= delivered) {
            self.stretches.pop_front();
        }
        self.stretches.is_empty() && self.handed.is_empty() && !self.is_held_back()
    }

    /// True while some written data is not in the transport and the peer must take data before that
    /// changes.
    pub(crate) fn is_held_back(&self) -> bool {
        self.kept.is_some()
    }

    /// Gives memory back: the transport drops unsent data that can be read again, from the end on.
    /// Later writes are held back.
    pub(crate) fn take_back(&mut self, transport: &impl Control) {
        let end = self.written - self.taken_back;
        let mut begin = end;
        for stretch in self.stretches.iter().rev() {
            if stretch.end() < begin {
                break;
            }
            begin = begin.min(stretch.at);
        }
        self.taken_back += transport.take_back((end - begin) as usize) as u64;
        self.kept = transport.undelivered_bytes();
        (self.reading, self.read) = Default::default();
    }

    /// The undelivered bytes in the transport when it last gave memory back.
    pub(crate) fn kept(&self) -> usize {
        self.kept.unwrap_or(0)
    }

    /// Nothing is held back any more.
    pub(crate) fn let_go(&mut self) {
        self.kept = None;
    }

    /// The data that was read and is written next.
    pub(crate) fn read(&self) -> &Bytes {
        &self.read
    }

    /// The transport has accepted that many bytes of it again.
    pub(crate) fn on_written_again(&mut self, bytes: usize) {
        self.read.advance(bytes);
        self.taken_back -= bytes as u64;
    }

    /// Begins to read the data that is written next, `most` bytes of it at most.
    pub(crate) fn read_next(&mut self, most: usize) -> &mut Pending<io::Result<Bytes>> {
        let at = self.written - self.taken_back;
        self.reading.get_or_insert_with(|| {
            let holds = |stretch: &&Stretch| stretch.at <= at && at < stretch.end();
            let Some(stretch) = self.stretches.iter().find(holds) else {
                return Box::pin(std::future::ready(Err(io::ErrorKind::NotFound.into())));
            };
            let length = (stretch.end() - at).min(most.clamp(1, READ_BYTES) as u64);
            stretch.origin.read(stretch.offset + (at - stretch.at), length as usize)
        })
    }

    /// The read in progress, if there is one.
    pub(crate) fn reading(&mut self) -> Option<&mut Pending<io::Result<Bytes>>> {
        self.reading.as_mut()
    }

    /// The read is done.
    pub(crate) fn on_read(&mut self, bytes: Bytes) {
        (self.reading, self.read) = (None, bytes);
    }
}

impl fmt::Debug for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Record");
        debug.field("written", &self.written).field("taken_back", &self.taken_back);
        debug.finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
