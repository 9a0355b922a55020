//! A byte stream over TLS. It makes the handshake within its first read.

use std::fmt;
use std::io::{self, BufRead, IoSlice, Write as _};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use hyper::rt::{Read, ReadBuf, ReadBufCursor, Timer, Write};
use rustls::{Error, HandshakeKind, ServerConfig, ServerConnection};

use super::sealed::Told;
use super::{HTTP2, Sealed};
use crate::connection::timeouts::Phase;
use crate::control::Control;
use crate::limits::admission::AdmissionControl;

/// Text in one record, at most (RFC 8446 §5.1).
const RECORD_BYTES: usize = 1 << 14;
/// What a record adds to its text, at most (TLS 1.2 with AES-GCM).
const RECORD_OVERHEAD: usize = 29;
/// Text that waits for more, or for a flush, to share a record with: short answers, and what is
/// left of a frame of HTTP/2 behind a record's worth of it.
const HELD_BYTES: usize = 1 << 10;
/// Slices that go into one record with it.
const SLICES: usize = 8;
/// A record has this much text though the transport has no room for all of it, if there is so much.
const LEAST_BYTES: usize = 1 << 10;

/// Why a handshake was ended here.
const UNFINISHED: &str = "it was not complete in time, or others needed its place";

/// Handshakes, since the server began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tls {
    /// Handshakes that were completed.
    pub handshakes: u64,
    /// Of them, those that took a session up again by its ticket.
    pub resumed: u64,
    /// Handshakes that failed: what came first was no TLS.
    pub failed_not_tls: u64,
    /// Handshakes that failed: the client has no version, cipher or protocol of ours.
    pub failed_nothing_shared: u64,
    /// Handshakes that failed: the client refused, for example the certificate.
    pub failed_refused: u64,
    /// Handshakes that failed: the client broke the protocol.
    pub failed_broken: u64,
    /// Handshakes that the client left, or whose connection failed.
    pub failed_left: u64,
    /// Handshakes that took too long, or were ended because others needed the place or the memory.
    pub failed_unfinished: u64,
}

/// How far it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Handshake,
    Open,
    /// We have said that nothing follows.
    Closed,
    Failed,
}

/// A byte stream over TLS, as the server's end.
pub(crate) struct Secured<I, C> {
    io: I,
    control: C,
    session: ServerConnection,
    step: Step,
    phase: Phase,
    timer: Rc<dyn Timer>,
    admissions: AdmissionControl,
    told: Rc<Told>,
    /// Text that is not in a record yet.
    held: Vec<u8>,
}

impl<I, C: Control + Clone> Secured<I, C> {
    /// The stream, which has yet to make its handshake, and the control over it.
    pub(crate) fn new(
        (io, control): (I, C),
        config: Arc<ServerConfig>,
        phase: Phase,
        timer: Rc<dyn Timer>,
        admissions: AdmissionControl,
    ) -> Result<(Self, Sealed<C>), Error> {
        let session = ServerConnection::new(config)?;
        let told = Rc::default();
        let sealed = Sealed::new(control.clone(), Rc::clone(&told));
        let step = Step::Handshake;
        let held = Vec::new();
        phase.on_handshake(timer.now());
        Ok((Secured { io, control, session, step, phase, timer, admissions, told, held }, sealed))
    }
}

impl<I, C> Secured<I, C> {
    /// Fails the handshake, if it is not complete, and counts that.
    fn fail_handshake(&mut self, why: impl fmt::Display, count: impl FnOnce(&mut Tls)) {
        if self.step == Step::Handshake {
            self.admissions.count_tls(count);
            *self.told.failure.borrow_mut() = Some(why.to_string());
            self.step = Step::Failed;
        }
    }

    /// The handshake is complete.
    fn open(&mut self) {
        self.step = Step::Open;
        let is_resumed = self.session.handshake_kind() == Some(HandshakeKind::Resumed);
        self.admissions.count_tls(|tls| {
            tls.handshakes += 1;
            tls.resumed += u64::from(is_resumed);
        });
        self.phase.on_secured(self.timer.now(), self.session.alpn_protocol() == Some(HTTP2));
    }
}

impl<I: Read + Write + Unpin, C: Control> Secured<I, C> {
    /// Hands all records of the session to the transport.
    fn send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.send_records(cx))?;
        if self.held.is_empty() {
            self.told.on_all_sent();
        }
        Poll::Ready(Ok(()))
    }

    fn send_records(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.session.wants_write() {
            match self.session.write_tls(&mut Pipe { io: &mut self.io, cx }) {
                Ok(0) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Ok(bytes) => self.told.on_sent(bytes),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Poll::Pending,
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Reads some records. Returns how many bytes they have; 0 at the end.
    fn receive(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let bytes = match self.session.read_tls(&mut Pipe { io: &mut self.io, cx }) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Poll::Pending,
            outcome => outcome?,
        };
        if let Err(error) = self.session.process_new_packets() {
            // The alert that says why goes out if there is room.
            let _ = self.send(cx);
            self.fail_handshake(&error, |tls| *cause(&error, tls) += 1);
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, error)));
        }
        Poll::Ready(Ok(bytes))
    }

    fn poll_handshake(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            let is_shaking = self.session.is_handshaking();
            // What follows the handshake, tickets, need not be taken now.
            let sent = self.send(cx);
            if let Poll::Ready(Err(error)) = sent {
                self.fail_handshake(&error, |tls| tls.failed_left += 1);
                return Poll::Ready(Err(error));
            }
            if !is_shaking {
                self.open();
                return Poll::Ready(Ok(()));
            }
            ready!(sent)?;
            let received = ready!(self.receive(cx));
            if !matches!(received, Ok(1..)) {
                self.fail_handshake("the client has left", |tls| tls.failed_left += 1);
                let left = || Err(io::ErrorKind::UnexpectedEof.into());
                return Poll::Ready(received.and_then(|_| left()));
            }
        }
    }

    /// Takes as much of these slices as the transport has room for, a record at most.
    fn poll_take(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.step != Step::Open {
            return Poll::Ready(Err(io::ErrorKind::NotConnected.into()));
        }
        ready!(self.send(cx))?;
        let total: usize = slices.iter().map(|slice| slice.len()).sum();
        let held_len = self.held.len();
        if held_len + total <= HELD_BYTES {
            slices.iter().for_each(|slice| self.held.extend_from_slice(slice));
            self.told.pending.set(self.held.len());
            return Poll::Ready(Ok(total));
        }
        let room = ready!(self.control.poll_room(cx)).saturating_sub(RECORD_OVERHEAD);
        let most = room.clamp(LEAST_BYTES, RECORD_BYTES);
        let taken = self.seal(slices, most)? - held_len;
        if let Poll::Ready(Err(error)) = self.send(cx) {
            return Poll::Ready(Err(error));
        }
        Poll::Ready(Ok(taken))
    }

    /// Makes a record of what is held and of these slices, with so many bytes at most, which are
    /// more than are held. Returns how many it has.
    fn seal(&mut self, slices: &[IoSlice<'_>], most: usize) -> io::Result<usize> {
        let held = std::mem::take(&mut self.held);
        let mut all = [IoSlice::new(&[]); SLICES];
        all[0] = IoSlice::new(&held);
        let count = slices.len().min(SLICES - 1);
        all[1..=count].copy_from_slice(&slices[..count]);
        self.session.set_buffer_limit(Some(most));
        let taken = self.session.writer().write_vectored(&all[..=count])?;
        self.told.pending.set(taken);
        Ok(taken)
    }

    /// Hands everything to the transport, with what was held.
    fn send_all(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.held.is_empty() && self.step == Step::Open {
            ready!(self.send_records(cx))?;
            self.seal(&[], RECORD_BYTES)?;
        }
        self.send(cx)
    }
}

/// The count of such a failure.
fn cause<'a>(error: &Error, tls: &'a mut Tls) -> &'a mut u64 {
    match error {
        Error::InvalidMessage(_) => &mut tls.failed_not_tls,
        Error::PeerIncompatible(_) | Error::NoApplicationProtocol => &mut tls.failed_nothing_shared,
        Error::AlertReceived(_) => &mut tls.failed_refused,
        _ => &mut tls.failed_broken,
    }
}

impl<I, C> Drop for Secured<I, C> {
    fn drop(&mut self) {
        self.fail_handshake(UNFINISHED, |tls| tls.failed_unfinished += 1);
    }
}

impl<I: Read + Write + Unpin, C: Control + Unpin> Read for Secured<I, C> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut out: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        match this.step {
            Step::Handshake => ready!(this.poll_handshake(cx))?,
            Step::Failed => return Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
            Step::Open | Step::Closed => {}
        }
        loop {
            let mut reader = this.session.reader();
            match reader.fill_buf() {
                Ok(chunk) => {
                    let taken = chunk.len().min(out.remaining());
                    out.put_slice(&chunk[..taken]);
                    reader.consume(taken);
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // The peer has closed without a word. What it asked for says itself where it ends.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    return Poll::Ready(Ok(()));
                }
                Err(error) => return Poll::Ready(Err(error)),
            }
            let received = this.receive(cx);
            // An answer to what came, such as a new key.
            if let Poll::Ready(Err(error)) = this.send(cx) {
                return Poll::Ready(Err(error));
            }
            ready!(received)?;
        }
    }
}

impl<I: Read + Write + Unpin, C: Control + Unpin> Write for Secured<I, C> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.get_mut().poll_take(cx, &[IoSlice::new(bytes)])
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.get_mut().poll_take(cx, slices)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.send_all(cx))?;
        Pin::new(&mut this.io).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        // Whoever closes now waits for the handshake no longer.
        this.fail_handshake(UNFINISHED, |tls| tls.failed_unfinished += 1);
        if this.step == Step::Open {
            ready!(this.send_all(cx))?;
            this.session.send_close_notify();
            this.step = Step::Closed;
        }
        if this.step == Step::Closed {
            ready!(this.send(cx))?;
        }
        Pin::new(&mut this.io).poll_shutdown(cx)
    }
}

/// The transport, as rustls reads and writes it: what would wait fails.
struct Pipe<'a, 'b, I> {
    io: &'a mut I,
    cx: &'a mut Context<'b>,
}

fn now<T>(outcome: Poll<io::Result<T>>) -> io::Result<T> {
    match outcome {
        Poll::Ready(outcome) => outcome,
        Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
    }
}

impl<I: Read + Unpin> io::Read for Pipe<'_, '_, I> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let mut buffer = ReadBuf::new(bytes);
        now(Pin::new(&mut *self.io).poll_read(self.cx, buffer.unfilled()))?;
        Ok(buffer.filled().len())
    }
}

impl<I: Write + Unpin> io::Write for Pipe<'_, '_, I> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        now(Pin::new(&mut *self.io).poll_write(self.cx, bytes))
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        now(Pin::new(&mut *self.io).poll_write_vectored(self.cx, slices))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
