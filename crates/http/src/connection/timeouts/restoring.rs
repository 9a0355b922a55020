//! Gives memory back that the transport wants, and writes taken-back data again
//! ([`Record`](crate::connection::replay::Record)).

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use hyper::rt::Write;

use super::TimeoutStream;
use crate::control::Control;

impl<I, C: Control> TimeoutStream<I, C> {
    /// Written bytes that the peer has not taken, in the transport or taken back from it.
    pub(super) fn undelivered(&self) -> Option<usize> {
        self.control.undelivered_bytes().map(|bytes| bytes + self.phase.taken_back())
    }

    /// Drops data from the record that the peer has taken.
    pub(super) fn forget_delivered(&self) {
        let mut record = self.phase.record_mut();
        let undelivered = || self.control.undelivered_bytes().unwrap_or(0);
        if record.as_mut().is_some_and(|record| record.forget(undelivered())) {
            *record = None;
        }
    }

    /// Holds back the first of these slices, if they can be read again. Returns how many bytes;
    /// `None` if none.
    pub(super) fn hold_back<'a>(&self, slices: impl Iterator<Item = &'a [u8]>) -> Option<usize> {
        let mut record = self.phase.record_mut();
        let record = record.as_mut()?;
        let held = slices.take_while(|bytes| bytes.is_empty() || record.hold_back(bytes));
        let held: usize = held.map(<[u8]>::len).sum();
        (held > 0).then_some(held)
    }

    /// Notes that the transport took the first `taken` bytes of these slices.
    pub(super) fn note_written<'a>(
        &self,
        slices: impl Iterator<Item = &'a [u8]>,
        mut taken: usize,
    ) {
        let Some(record) = &mut *self.phase.record_mut() else { return };
        for slice in slices {
            let bytes = &slice[..slice.len().min(taken)];
            record.on_written(bytes);
            taken -= bytes.len();
        }
    }

    /// Has the transport adopt the first of these slices, as far as they are whole chunks. Returns
    /// how many bytes it did.
    pub(super) fn pass_on(&self, slices: &[IoSlice<'_>]) -> usize {
        let mut record = self.phase.record_mut();
        let Some(record) = record.as_mut() else { return 0 };
        let adopted = slices.iter().take_while(|slice| record.pass_on(slice, &self.control));
        adopted.map(|slice| slice.len()).sum()
    }

    /// These slices before the first that the transport may adopt, if it is not the first.
    pub(super) fn before_chunk<'a, 'b>(&self, slices: &'b [IoSlice<'a>]) -> &'b [IoSlice<'a>] {
        let record = self.phase.record_mut();
        let is_chunk = |slice: &IoSlice<'_>| record.as_ref().is_some_and(|r| r.is_whole(slice));
        match slices.iter().position(is_chunk) {
            Some(count @ 1..) => &slices[..count],
            _ => slices,
        }
    }

    /// Returns the outcome for bytes that cannot be written while data is held back.
    pub(super) fn judge_held_back<'a>(
        &mut self,
        cx: &mut Context<'_>,
        slices: impl Iterator<Item = &'a [u8]>,
    ) -> Poll<io::Result<usize>> {
        let undelivered = self.undelivered();
        let outcome = match self.hold_back(slices) {
            Some(held) => {
                // The body drops what it has read ahead.
                cx.waker().wake_by_ref();
                Poll::Ready(Ok(held))
            }
            None => Poll::Pending,
        };
        self.judge_write(cx, outcome, undelivered)
    }
}

impl<I: Write + Unpin, C: Control> TimeoutStream<I, C> {
    /// Gives memory back that the transport wants, from written data that can be read again. Ready
    /// once the transport has all of it again, which needs a peer that takes data.
    pub(super) fn poll_restored(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let TimeoutStream { phase, control, inner, .. } = self;
        let Some(record) = &mut *phase.record_mut() else { return Poll::Ready(Ok(())) };
        if control.is_wanted_back() {
            record.take_back(control);
        }
        while record.is_held_back() {
            if let Some(reading) = record.reading() {
                let outcome = ready!(reading.as_mut().poll(cx));
                record.on_read(outcome.inspect_err(|_| phase.abort(control))?);
            } else if record.read().is_empty() {
                ready!(control.poll_taken(cx, record.kept()));
                if record.taken_back() == 0 {
                    record.let_go();
                    // The body of the response goes on.
                    cx.waker().wake_by_ref();
                    break;
                }
                let room = ready!(control.poll_room(cx));
                record.read_next(room);
            } else {
                match ready!(Pin::new(&mut *inner).poll_write(cx, record.read()))? {
                    0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                    bytes => record.on_written_again(bytes),
                }
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl<I, C: Control> Drop for TimeoutStream<I, C> {
    fn drop(&mut self) {
        // Taken-back data is not sent any more, and the end of the stream must not hide that.
        let mut record = self.phase.record_mut();
        if record.take().is_some_and(|record| record.taken_back() > 0) {
            self.phase.abort(&self.control);
        }
    }
}
