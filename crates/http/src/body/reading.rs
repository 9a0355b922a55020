//! A read of a file's body: its bytes are for this body alone, or others share them.

use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use bytes::Bytes;

use super::Opening;
use super::buffers::{Buffers, Chunk};
use crate::Pending;
use crate::files::source::FileSource;

/// The parts of a file that its readers share.
pub(crate) trait Shared {
    /// `most` bytes from `offset` on, or fewer, but some. `None`: the body should read for itself.
    fn read(&self, offset: u64, most: usize) -> Option<SharedRead>;
}

/// A read whose bytes are shared.
pub(crate) enum SharedRead {
    /// They are in memory.
    Here(Bytes),
    /// So many are being read.
    Coming(usize, Pending<io::Result<Bytes>>),
}

/// A chunk that is being read, or was.
pub(super) struct Reading {
    pub(super) offset: u64,
    pub(super) length: usize,
    outcome: Pending<io::Result<Chunk>>,
    pub(super) done: Option<io::Result<Chunk>>,
    /// When it began, if the time is needed.
    pub(super) begun: Option<Instant>,
    /// The body waits for it.
    pub(super) is_awaited: bool,
}

impl Reading {
    /// A read of `length` bytes from `offset` on, for one body. It fails if the file ends before.
    pub(super) fn alone<S: FileSource>(
        opening: &Rc<Opening<S>>,
        buffers: &Buffers,
        (offset, length): (u64, usize),
        begun: Option<Instant>,
    ) -> Reading {
        let (buffer, charge) = buffers.take(length);
        let reading = opening.source.read_at(&opening.handle, offset, buffer);
        let buffers = buffers.clone();
        let outcome = Box::pin(async move {
            let buffer = reading.await?;
            if buffer.len() != length {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            Ok(buffers.lend((buffer, charge)))
        });
        Reading { offset, length, outcome, done: None, begun, is_awaited: false }
    }

    /// A read from `offset` on that others share.
    pub(super) fn shared(offset: u64, read: SharedRead, begun: Option<Instant>) -> Reading {
        let (length, outcome, done) = match read {
            SharedRead::Here(bytes) => {
                let nothing: Pending<_> = Box::pin(std::future::pending());
                (bytes.len(), nothing, Some(Ok(Chunk::shared(bytes))))
            }
            SharedRead::Coming(length, bytes) => {
                let outcome: Pending<_> = Box::pin(async move { bytes.await.map(Chunk::shared) });
                (length, outcome, None)
            }
        };
        Reading { offset, length, outcome, done, begun, is_awaited: false }
    }

    /// Ready once the read is done.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.done.is_none() {
            self.done = Some(ready!(self.outcome.as_mut().poll(cx)));
        }
        Poll::Ready(())
    }
}
