//! The byte stream beneath hyper's HTTP/2, which looks at the frames that pass.

use std::cell::RefCell;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use hyper::rt::{Read, ReadBuf, ReadBufCursor, Write};

use super::streams::Streams;
use crate::connection::h1::refusal::RefusingStream;
use crate::connection::h2::frames::{Cause, Framing, Ledger};
use crate::connection::timeouts::TimeoutStream;
use crate::control::Control;

/// Bytes read at a time: what [`TimeoutStream`] reads.
const READ_BYTES: usize = 8192;

/// A byte stream with timeouts that counts frames.
pub(super) struct Metered<I, C: Control> {
    io: Box<RefusingStream<TimeoutStream<I, C>>>,
    /// Bytes that were read before hyper asked for them.
    first: Vec<u8>,
    read: Framing,
    written: Framing,
    ledger: Ledger,
    is_flushed: bool,
    /// A flush has failed, which hyper learns when it reads or writes next.
    failed: Option<io::Error>,
    streams: Rc<Streams>,
}

impl<I, C: Control> Metered<I, C> {
    pub(super) fn new(
        mut io: Box<RefusingStream<TimeoutStream<I, C>>>,
        streams: Rc<Streams>,
    ) -> Self {
        Metered {
            // What failed then fails again.
            first: io.take_first(),
            io,
            read: Framing::of_client(),
            written: Framing::default(),
            ledger: Ledger::new(),
            is_flushed: true,
            failed: None,
            streams,
        }
    }

    /// So many requests were answered until now.
    pub(super) fn on_answered(&mut self, answered: u64) {
        self.ledger.on_answered(answered);
    }

    /// True if the transport has all that was written.
    pub(super) fn is_flushed(&self) -> bool {
        self.is_flushed
    }

    /// What the client has no more credit for, if it has none.
    pub(super) fn flood(&self) -> Option<Cause> {
        self.ledger.flood()
    }

    /// See [`Ledger::heads_refused`].
    pub(super) fn heads_refused(&self, begun_answers: u64) -> u64 {
        self.ledger.heads_refused(begun_answers)
    }

    /// See [`Ledger::last_stream`].
    pub(super) fn last_stream(&self) -> u32 {
        self.ledger.last_stream()
    }

    /// True if a frame may be written that says that the connection ends.
    pub(super) fn may_say_goodbye(&self) -> bool {
        self.written.is_between() && !self.ledger.has_ended()
    }

    pub(super) fn into_inner(self) -> Box<RefusingStream<TimeoutStream<I, C>>> {
        self.io
    }

    /// Looks at what came.
    fn on_read(&mut self, bytes: &[u8]) -> io::Result<()> {
        let ledger = &mut self.ledger;
        self.read.feed(bytes, |frame| ledger.on_read(frame));
        self.streams.on_read(self.read.is_between() && !ledger.is_in_head());
        self.judge()
    }

    /// Fails once the client has no credit left.
    fn judge(&mut self) -> io::Result<()> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        match self.ledger.flood() {
            Some(_) if !self.ledger.has_ended() => {
                Err(io::Error::other("the client asks for too much and takes too little"))
            }
            _ => Ok(()),
        }
    }

    fn on_written<'a>(&mut self, slices: impl Iterator<Item = &'a [u8]>, mut taken: usize) {
        self.is_flushed = false;
        for slice in slices {
            let bytes = &slice[..slice.len().min(taken)];
            taken -= bytes.len();
            let ledger = &mut self.ledger;
            self.written.feed(bytes, |frame| ledger.on_written(frame));
        }
    }
}

impl<I: Read + Write + Unpin, C: Control + Unpin> Metered<I, C> {
    fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        mut out: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        self.judge()?;
        if !self.first.is_empty() {
            let taken = self.first.len().min(out.remaining());
            let rest = self.first.split_off(taken);
            let first = std::mem::replace(&mut self.first, rest);
            out.put_slice(&first);
            return Poll::Ready(self.on_read(&first));
        }
        let mut bytes = [MaybeUninit::uninit(); READ_BYTES];
        let room = out.remaining().min(READ_BYTES);
        let mut buffer = ReadBuf::uninit(&mut bytes[..room]);
        ready!(Pin::new(&mut self.io.inner).poll_read(cx, buffer.unfilled()))?;
        self.on_read(buffer.filled())?;
        out.put_slice(buffer.filled());
        Poll::Ready(Ok(()))
    }

    fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if let Some(error) = self.failed.take() {
            return Poll::Ready(Err(error));
        }
        let taken = ready!(Pin::new(&mut self.io.inner).poll_write_vectored(cx, slices))?;
        self.on_written(slices.iter().map(|slice| &**slice), taken);
        Poll::Ready(Ok(taken))
    }

    /// Flushes what hyper has written, once it has no more for now. h2 flushes after each frame,
    /// and the next would begin a record of its own.
    pub(super) fn flush(&mut self, cx: &mut Context<'_>) {
        match Pin::new(&mut self.io.inner).poll_flush(cx) {
            Poll::Ready(Ok(())) => self.is_flushed = true,
            Poll::Ready(Err(error)) => {
                self.failed = Some(error);
                cx.waker().wake_by_ref();
            }
            Poll::Pending => {}
        }
    }
}

/// hyper's share of the byte stream.
pub(super) struct Wire<I, C: Control>(pub(super) Rc<RefCell<Metered<I, C>>>);

impl<I: Read + Write + Unpin, C: Control + Unpin> Read for Wire<I, C> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        out: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        self.0.borrow_mut().poll_read(cx, out)
    }
}

impl<I: Read + Write + Unpin, C: Control + Unpin> Write for Wire<I, C> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.0.borrow_mut().poll_write(cx, &[IoSlice::new(bytes)])
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.0.borrow_mut().poll_write(cx, slices)
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Done once for all frames ([`Metered::flush`]).
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut wire = self.0.borrow_mut();
        Pin::new(&mut wire.io.inner).poll_shutdown(cx)
    }
}
