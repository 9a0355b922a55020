//! The bodies of responses and requests. A response's body may be bytes, a stream, or pieces of a
//! file, which it reads in chunks.
//!
//! A file's body reads one chunk ahead of the connection: while the connection writes one chunk,
//! the body reads the next, and never more than one. If the connection says how much it wants, the
//! body reads that much, once there is room for some. Where memory is scarce it reads less, and
//! nothing ahead; where there is none it waits. Its length is exact, so the response has a
//! `Content-Length`. A file that shrinks meanwhile fails the body, and the connection with it. So
//! does a file that changes in place, if its version is known: no client receives parts of two
//! versions as one file.

use std::cell::Cell;
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::ops::Range;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use hyper::body::Incoming;

use crate::Pending;
use crate::again::{Origin, Versioned};
use crate::memory::{Charge, Memory};
use crate::patient::Phase;
use crate::source::{FileSource, Metadata};

/// The body of a response.
pub struct Body {
    content: Content,
    /// Bytes handed over.
    sent: u64,
    /// Nothing follows.
    ended: bool,
    /// Called when the body is over or dropped.
    report: Option<Report>,
}

enum Content {
    Memory(Bytes),
    File(Box<dyn Paced>),
    Stream(Pin<Box<dyn HttpBody<Data = Bytes, Error = io::Error>>>),
}

/// The transport of a response, as a body that reads from a source sees it.
pub(crate) trait Sink {
    /// How many bytes it would accept now. While that is none, the calling task is woken when it is
    /// some.
    fn poll_room(&self, cx: &mut Context<'_>) -> Poll<usize>;

    /// Bytes that the next read should return; `None`: as many as fit a chunk.
    fn read_size(&self) -> Option<usize>;

    /// Reports how long a read takes, and whether more follows after the next write.
    fn set_supply(&self, read_time: Duration, more: bool);

    /// True while the body should read no more: memory was given back, and the peer takes nothing.
    /// The calling task is woken when that is over.
    fn is_held_back(&self) -> bool;

    /// `bytes` are written next: the file has them at `offset`, and they can be read again.
    fn hand_over(&self, bytes: &Bytes, origin: &Rc<dyn Origin>, offset: u64);
}

/// A body that can read as fast as its transport accepts data.
trait Paced: HttpBody<Data = Bytes, Error = io::Error> + Unpin {
    /// Where memory is scarce, the body reads no more than the transport accepts. If the transport
    /// says how much it wants, the body reads that much.
    fn set_sink(&mut self, sink: Rc<dyn Sink>);
}

/// Called once, when a body is over, with the bytes handed over and whether that was all.
type Report = Box<dyn FnOnce(u64, bool)>;

impl Body {
    /// No bytes at all.
    pub fn empty() -> Self {
        Body::from(Bytes::new())
    }

    /// A body that is made as it is sent. Its size hint must be exact for a `Content-Length`.
    pub fn stream(body: impl HttpBody<Data = Bytes, Error = io::Error> + 'static) -> Self {
        Body { content: Content::Stream(Box::pin(body)), sent: 0, ended: false, report: None }
    }

    /// A file.
    pub(crate) fn file<S: FileSource>(body: FileBody<S>) -> Self {
        Body { content: Content::File(Box::new(body)), sent: 0, ended: false, report: None }
    }

    /// Makes a file's body follow `sink`, and starts its first read.
    pub(crate) fn paced(mut self, sink: &Rc<dyn Sink>) -> Self {
        if let Content::File(body) = &mut self.content {
            body.set_sink(sink.clone());
        }
        self
    }

    /// Makes the body call `report` when it is dropped.
    pub(crate) fn reporting(mut self, report: impl FnOnce(u64, bool) + 'static) -> Self {
        self.report = Some(Box::new(report));
        self
    }
}

impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Self {
        Body { content: Content::Memory(bytes), sent: 0, ended: false, report: None }
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Body").field("sent", &self.sent).finish_non_exhaustive()
    }
}

impl HttpBody for Body {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let this = self.get_mut();
        let frame = match &mut this.content {
            Content::Memory(bytes) if bytes.is_empty() => None,
            Content::Memory(bytes) => Some(Ok(Frame::data(std::mem::take(bytes)))),
            Content::File(body) => ready!(Pin::new(body).poll_frame(cx)),
            Content::Stream(stream) => ready!(stream.as_mut().poll_frame(cx)),
        };
        if let Some(Ok(frame)) = &frame {
            this.sent += frame.data_ref().map_or(0, Bytes::len) as u64;
        }
        this.ended |= frame.is_none();
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        match &self.content {
            Content::Memory(bytes) => bytes.is_empty(),
            Content::File(body) => body.is_end_stream(),
            Content::Stream(stream) => stream.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            Content::Memory(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Content::File(body) => body.size_hint(),
            Content::Stream(stream) => stream.size_hint(),
        }
    }
}

impl Drop for Body {
    fn drop(&mut self) {
        if let Some(report) = self.report.take() {
            report(self.sent, self.ended || self.is_end_stream());
        }
    }
}

/// A part of a response's body.
#[derive(Debug)]
pub(crate) enum Piece {
    /// Bytes in memory: what stands between the parts of a multipart body.
    Text(Bytes),
    /// Bytes of the file.
    File(Range<u64>),
}

/// An open file, and the version that a body expects.
pub(crate) struct Opening<S: FileSource> {
    pub(crate) source: Rc<S>,
    pub(crate) handle: S::Handle,
    /// The version that the file must still have when the last byte is read, where a change can be
    /// detected.
    pub(crate) version: Option<Metadata>,
    /// Counts files that changed.
    pub(crate) changed: Rc<Cell<u64>>,
}

impl<S: FileSource> Opening<S> {
    /// Fails if the file has changed since it was opened, as far as that can be detected.
    pub(crate) fn check(&self) -> io::Result<()> {
        let Some(version) = &self.version else { return Ok(()) };
        let is_same = |now: Metadata| version.has_bytes_of(&now);
        if self.source.metadata(&self.handle).is_ok_and(is_same) {
            return Ok(());
        }
        self.changed.set(self.changed.get() + 1);
        Err(io::Error::other("the file has changed"))
    }
}

/// A body made of pieces of one file.
pub(crate) struct FileBody<S: FileSource> {
    opening: Rc<Opening<S>>,
    /// The file for reading data again, if a change of it can be detected.
    origin: Option<Rc<dyn Origin>>,
    pieces: VecDeque<Piece>,
    /// Bytes not yet handed over.
    left: u64,
    /// The chunk being read.
    reading: Option<Reading>,
    chunk_bytes: usize,
    buffers: Buffers,
    /// It waits for memory.
    waiting: Option<Pending<()>>,
    /// Some of the file was read, or is being read.
    has_begun: bool,
    sink: Option<Rc<dyn Sink>>,
    read_time: Rc<ReadTime>,
}

/// A chunk that is being read.
struct Reading {
    offset: u64,
    length: usize,
    charge: Charge,
    outcome: Pending<io::Result<Vec<u8>>>,
    /// When it began, if the time is needed.
    begun: Option<Instant>,
}

/// How long reads of one source take, smoothed: ReadTime of Cohen & Cohen 2002.
pub(crate) struct ReadTime {
    clock: Rc<dyn Fn() -> Instant>,
    smoothed: Cell<Option<Duration>>,
}

impl ReadTime {
    /// Not known yet, by that clock.
    pub(crate) fn new(clock: Rc<dyn Fn() -> Instant>) -> Self {
        ReadTime { clock, smoothed: Cell::new(None) }
    }

    /// Adds a read that has just ended. A new sample counts an eighth, as for RTTs (RFC 6298 §2.3).
    fn on_read(&self, begun: Instant) {
        let taken = (self.clock)().saturating_duration_since(begun);
        let smoothed = self.smoothed.get().map_or(taken, |smoothed| (smoothed * 7 + taken) / 8);
        self.smoothed.set(Some(smoothed));
    }

    /// Zero before the first.
    fn get(&self) -> Duration {
        self.smoothed.get().unwrap_or_default()
    }
}

impl fmt::Debug for ReadTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ReadTime").field(&self.smoothed.get()).finish()
    }
}

/// Bytes read at a time where memory is scarce.
const SCARCE_CHUNK_BYTES: usize = 8 << 10;

/// Bytes that a body reads first, whether there is memory or not, so that small files are served
/// however much other responses hold.
const FIRST_CHUNK_BYTES: usize = 4 << 10;

impl<S: FileSource> FileBody<S> {
    /// A body of these pieces, read in chunks of at most `chunk_bytes`. The first read starts once
    /// it has a sink, or is polled.
    pub(crate) fn new(
        opening: Opening<S>,
        pieces: impl IntoIterator<Item = Piece>,
        chunk_bytes: usize,
        buffers: Buffers,
        read_time: Rc<ReadTime>,
    ) -> Self {
        let pieces: VecDeque<Piece> = pieces.into_iter().collect();
        let length = |piece: &Piece| match piece {
            Piece::Text(bytes) => bytes.len() as u64,
            Piece::File(range) => range.end - range.start,
        };
        let left = pieces.iter().map(length).sum();
        let chunk_bytes = chunk_bytes.max(1);
        FileBody {
            opening: Rc::new(opening),
            origin: None,
            pieces,
            left,
            reading: None,
            chunk_bytes,
            buffers,
            waiting: None,
            has_begun: false,
            sink: None,
            read_time,
        }
    }

    /// Starts the first read, with as many bytes as the sink wants.
    fn begin(&mut self) {
        if !self.buffers.memory.is_scarce() {
            self.read_next(self.read_size().unwrap_or(usize::MAX));
        }
    }

    /// Bytes that the sink wants from the next read, if it says so.
    fn read_size(&self) -> Option<usize> {
        self.sink.as_ref()?.read_size()
    }

    /// Bytes for the next read, once there is room for some.
    fn poll_wanted(&self, cx: &mut Context<'_>) -> Poll<usize> {
        let Some(sink) = &self.sink else { return Poll::Ready(usize::MAX) };
        let is_scarce = self.buffers.memory.is_scarce();
        if !is_scarce && self.read_size().is_none() {
            return Poll::Ready(usize::MAX);
        }
        if !self.has_begun {
            let wanted = if is_scarce { None } else { self.read_size() };
            return Poll::Ready(wanted.unwrap_or(FIRST_CHUNK_BYTES));
        }
        let room = ready!(sink.poll_room(cx));
        Poll::Ready(self.read_size().unwrap_or(room).max(FIRST_CHUNK_BYTES))
    }

    /// Ends a read; the body hands over the bytes in `brought` next.
    fn tell_supply(&self, begun: Option<Instant>, brought: usize) {
        let (Some(sink), Some(begun)) = (&self.sink, begun) else { return };
        self.read_time.on_read(begun);
        sink.set_supply(self.read_time.get(), self.left > brought as u64);
    }

    /// True if nothing of the file is left to be read.
    fn has_read_all(&self) -> bool {
        !self.pieces.iter().any(|piece| matches!(piece, Piece::File(range) if !range.is_empty()))
    }

    /// Drops what was read ahead; the body reads it again later.
    fn read_later(&mut self) {
        if let (Some(reading), Some(Piece::File(range))) =
            (self.reading.take(), self.pieces.front_mut())
        {
            range.start = reading.offset;
        }
    }

    /// Starts to read the next chunk, of `most` bytes, if the next piece is of the file and no read
    /// is in progress.
    fn read_next(&mut self, most: usize) {
        let is_scarce = self.buffers.memory.is_scarce();
        let most = most.min(if is_scarce { SCARCE_CHUNK_BYTES } else { usize::MAX });
        let most = most.min(self.chunk_bytes);
        let begun = self.read_size().map(|_| (self.read_time.clock)());
        self.has_begun = true;
        while self.reading.is_none()
            && let Some(Piece::File(range)) = self.pieces.front_mut()
        {
            let length = (range.end - range.start).min(most as u64) as usize;
            if length == 0 {
                self.pieces.pop_front();
                continue;
            }
            let (buffer, charge) = self.buffers.take(length);
            let Opening { source, handle, .. } = &*self.opening;
            let offset = range.start;
            let outcome = source.read_at(handle, offset, buffer);
            range.start += length as u64;
            self.reading = Some(Reading { offset, length, charge, outcome, begun });
        }
    }
}

impl<S: FileSource> HttpBody for FileBody<S> {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let this = self.get_mut();
        if this.sink.as_ref().is_some_and(|sink| sink.is_held_back()) {
            this.read_later();
            return Poll::Pending;
        }
        if this.reading.is_none() && matches!(this.pieces.front(), Some(Piece::File(_))) {
            let most = ready!(this.poll_wanted(cx));
            let has_memory = this.buffers.memory.poll_room(cx, &mut this.waiting).is_ready();
            if !has_memory && this.has_begun {
                return Poll::Pending;
            }
            this.read_next(if has_memory { most } else { FIRST_CHUNK_BYTES });
        }
        let outcome = match &mut this.reading {
            Some(reading) => Some(ready!(reading.outcome.as_mut().poll(cx))),
            None => None,
        };
        let bytes = match (outcome, this.reading.take()) {
            (Some(Ok(buffer)), Some(reading)) if buffer.len() == reading.length => {
                if this.has_read_all()
                    && let Err(changed) = this.opening.check()
                {
                    return Poll::Ready(Some(Err(changed)));
                }
                this.tell_supply(reading.begun, reading.length);
                let bytes = this.buffers.lend((buffer, reading.charge));
                if let (Some(sink), Some(origin)) = (&this.sink, &this.origin) {
                    sink.hand_over(&bytes, origin, reading.offset);
                }
                bytes
            }
            (Some(Ok(_)), _) => return Poll::Ready(Some(Err(io::ErrorKind::UnexpectedEof.into()))),
            (Some(Err(e)), _) => return Poll::Ready(Some(Err(e))),
            (None, _) => match this.pieces.pop_front() {
                Some(Piece::Text(bytes)) => bytes,
                // Whenever the next piece is of the file, it is being read.
                Some(Piece::File(_)) | None => return Poll::Ready(None),
            },
        };
        // A sink that says what it wants is asked again once it has room.
        if !this.buffers.memory.is_scarce() && this.read_size().is_none() {
            this.read_next(usize::MAX);
        }
        this.left -= bytes.len() as u64;
        Poll::Ready(Some(Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

impl<S: FileSource> Unpin for FileBody<S> {}

impl<S: FileSource> Paced for FileBody<S> {
    fn set_sink(&mut self, sink: Rc<dyn Sink>) {
        self.sink = Some(sink);
        if self.opening.version.is_some() {
            let (opening, buffers) = (self.opening.clone(), self.buffers.clone());
            self.origin = Some(Rc::new(Versioned { opening, buffers }));
        }
        self.begin();
    }
}

/// Chunks that come back when the connection has written them. In the steady state they need no
/// allocation and no clearing.
#[derive(Clone, Debug)]
pub(crate) struct Buffers {
    spare: Arc<Mutex<Vec<Vec<u8>>>>,
    pub(crate) memory: Memory,
}

/// Chunks kept for reuse, at most.
const SPARE_BUFFERS: usize = 64;

/// Bytes of spare chunks that may always be kept; beyond it, no more than responses hold.
const SPARE_BYTES: usize = 1 << 20;

impl Buffers {
    pub(crate) fn new(memory: Memory) -> Self {
        Buffers { spare: Arc::default(), memory }
    }

    /// A buffer of exactly `length` bytes, charged to the memory; what is in them is arbitrary.
    pub(crate) fn take(&self, length: usize) -> (Vec<u8>, Charge) {
        let mut spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        // A much longer buffer would be charged for bytes that it does not need.
        let fits = |buffer: &Vec<u8>| buffer.capacity() / 2 <= length;
        let mut buffer = if spare.last().is_some_and(fits) { spare.pop() } else { None }
            .unwrap_or_else(|| Vec::with_capacity(length));
        drop(spare);
        buffer.resize(length, 0);
        let charge = self.memory.charge(buffer.capacity());
        (buffer, charge)
    }

    /// Shared bytes, charged to the memory until the last share is dropped.
    pub(crate) fn keep(&self, buffer: Vec<u8>) -> Bytes {
        let charge = self.memory.charge(buffer.capacity());
        Bytes::from_owner(Kept { buffer, _charge: charge })
    }

    /// The buffer as shared bytes; it comes back when the last share is dropped.
    pub(crate) fn lend(&self, (buffer, charge): (Vec<u8>, Charge)) -> Bytes {
        Bytes::from_owner(Lent { buffer, spare: self.spare.clone(), charge })
    }
}

/// A buffer that is freed when dropped.
struct Kept {
    buffer: Vec<u8>,
    _charge: Charge,
}

impl AsRef<[u8]> for Kept {
    fn as_ref(&self) -> &[u8] {
        &self.buffer
    }
}

/// A buffer that goes home when dropped.
struct Lent {
    buffer: Vec<u8>,
    spare: Arc<Mutex<Vec<Vec<u8>>>>,
    charge: Charge,
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.buffer
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let mut spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        if spare.len() < SPARE_BUFFERS {
            spare.push(std::mem::take(&mut self.buffer));
        }
        let most = self.charge.total().max(SPARE_BYTES);
        let mut kept: usize = spare.iter().map(Vec::capacity).sum();
        while kept > most
            && let Some(buffer) = spare.pop()
        {
            kept -= buffer.capacity();
        }
    }
}

/// The body of a request.
#[derive(Debug)]
pub struct RequestBody {
    incoming: Option<Incoming>,
    phase: Option<Phase>,
}

impl RequestBody {
    /// No bytes at all.
    pub fn empty() -> Self {
        RequestBody { incoming: None, phase: None }
    }

    /// The body of a request, which tells `phase` when it ends.
    pub(crate) fn new(incoming: Incoming, phase: Phase) -> Self {
        RequestBody { incoming: Some(incoming), phase: Some(phase) }
    }

    fn on_end(&self) {
        if let Some(phase) = &self.phase {
            phase.on_body_end();
        }
    }
}

impl HttpBody for RequestBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let this = self.get_mut();
        let Some(incoming) = &mut this.incoming else { return Poll::Ready(None) };
        let frame = ready!(Pin::new(&mut *incoming).poll_frame(cx));
        if frame.is_none() || incoming.is_end_stream() {
            this.on_end();
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.as_ref().is_none_or(HttpBody::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.as_ref().map_or(SizeHint::with_exact(0), HttpBody::size_hint)
    }
}

#[cfg(test)]
mod tests;
