//! The bodies of responses and requests. A response's body may be bytes, a stream, or pieces of a
//! file, which it reads in chunks.
//!
//! A file's body reads one chunk ahead of the connection: while the connection writes one chunk,
//! the body reads the next, and never more than one. If the connection says how much it wants
//! (Cohen & Cohen 2002 §3), the body reads that much, once there is room for some:
//!
//! ```text
//!   file  ──▶  being read, read  ──▶  handed over, not written  ──▶  send buffer
//!              └───────────── as much as is wanted ───────────┘
//! ```
//!
//! If the source makes it wait, that is in two chunks or more, so that a read is under way while
//! another chunk is written. A source that has the bytes at hand needs no reading ahead.
//!
//! Where memory is scarce the body reads less, and nothing ahead; where there is none it waits. Its
//! length is exact, so the response has a `Content-Length`. A file that shrinks meanwhile fails the
//! body, and the connection with it. So does a file that changes in place: no client receives
//! parts of two versions as one file. Of a file that grows the body is what it had in the
//! beginning.

mod buffers;
mod kept;
mod read_time;
mod reading;

use std::cell::Cell;
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::ops::Range;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use hyper::body::Incoming;

use crate::Pending;
use crate::connection::replay::{Origin, Versioned};
use crate::connection::timeouts::Phase;
use crate::files::source::{FileSource, Metadata};

pub(crate) use buffers::{Block, Buffers, Chunk, WeakBlock};
pub(crate) use read_time::ReadTime;
pub(crate) use reading::{Shared, SharedRead};

use kept::Kept;
use reading::Reading;

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
    /// In memory, and kept there: many responses share them.
    Kept(Kept),
    File(Box<dyn Paced>),
    Stream(Pin<Box<dyn HttpBody<Data = Bytes, Error = io::Error>>>),
}

/// The transport of a response, as a body that reads from a source sees it.
pub(crate) trait Sink {
    /// How many bytes it would accept now. While that is none, the calling task is woken when it is
    /// some.
    fn poll_room(&self, cx: &mut Context<'_>) -> Poll<usize>;

    /// Bytes that reads should return until the next is written; `None`: as many as fit a chunk.
    fn read_size(&self) -> Option<usize>;

    /// Reports how long a read takes, and whether more follows after the next write.
    fn set_supply(&self, read_time: Duration, more: bool);

    /// True while the body should read no more: memory was given back, and the peer takes nothing.
    /// The calling task is woken when that is over.
    fn is_held_back(&self) -> bool;

    /// `chunk` is written next: the file has it at `offset`, and it can be read again.
    fn hand_over(&self, chunk: Chunk, origin: &Rc<dyn Origin>, offset: u64);
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

    /// Bytes that are kept in memory, which the transport may share.
    pub(crate) fn kept(bytes: Bytes) -> Self {
        Body { content: Content::Kept(Kept::new(bytes)), sent: 0, ended: false, report: None }
    }

    /// A file.
    pub(crate) fn file<S: FileSource>(body: FileBody<S>) -> Self {
        Body { content: Content::File(Box::new(body)), sent: 0, ended: false, report: None }
    }

    /// Makes a file's body follow `sink`, and starts its first read.
    pub(crate) fn paced(mut self, sink: &Rc<dyn Sink>) -> Self {
        match &mut self.content {
            Content::File(body) => body.set_sink(sink.clone()),
            Content::Kept(kept) => kept.set_sink(sink.clone()),
            Content::Memory(_) | Content::Stream(_) => {}
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
            Content::Kept(kept) => kept.take().map(|bytes| Ok(Frame::data(bytes))),
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
            Content::Kept(kept) => kept.bytes().is_empty(),
            Content::File(body) => body.is_end_stream(),
            Content::Stream(stream) => stream.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            Content::Memory(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Content::Kept(kept) => SizeHint::with_exact(kept.bytes().len() as u64),
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
    /// The version that the file must still have when the last byte is read.
    pub(crate) version: Metadata,
    /// Any change gives the file other times. Without that, one within a granule of the file
    /// system's clock is not seen, so nothing of the file may be kept or read twice.
    pub(crate) is_settled: bool,
    /// Counts files that changed.
    pub(crate) changed: Rc<Cell<u64>>,
}

impl<S: FileSource> Opening<S> {
    /// Fails if the bytes that the file had when it was opened have changed, as far as that can be
    /// detected. A file that grew counts as having them still: it is a log, as a rule, and what the
    /// head promised is there.
    pub(crate) fn check(&self) -> io::Result<()> {
        let version = &self.version;
        let is_same = |now: Metadata| version.has_bytes_of(&now) || version.has_grown_to(&now);
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
    /// The part of the file that other responses have in memory.
    blocks: Option<Box<dyn Shared>>,
    /// Some of it was read for this body alone since the version was checked.
    is_unchecked: bool,
    /// The file for reading data again, if any change of it can be detected.
    origin: Option<Rc<dyn Origin>>,
    pieces: VecDeque<Piece>,
    /// Bytes not yet handed over.
    left: u64,
    /// The chunks being read, in their order. All are of the first piece.
    reading: VecDeque<Reading>,
    chunk_bytes: usize,
    buffers: Buffers,
    /// It waits for memory.
    waiting: Option<Pending<()>>,
    /// Some of the file was read, or is being read.
    has_begun: bool,
    /// The source did not have the bytes of the last read at hand.
    is_cold: bool,
    /// The body waited for a read: the next may take as long.
    has_waited: bool,
    sink: Option<Rc<dyn Sink>>,
    read_time: Rc<ReadTime>,
}

/// Bytes read at a time where memory is scarce.
const SCARCE_CHUNK_BYTES: usize = 8 << 10;

/// Bytes that a body reads first, whether there is memory or not, so that small files are served
/// however much other responses hold.
const FIRST_CHUNK_BYTES: usize = 4 << 10;

/// The part of the memory that one body has for what is read and not written, at most.
const AHEAD_PART: usize = 16;

impl<S: FileSource> FileBody<S> {
    /// A body of these pieces, read in chunks of at most `chunk_bytes`. The first read starts once
    /// it has a sink, or is polled.
    pub(crate) fn new(
        opening: Rc<Opening<S>>,
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
            opening,
            blocks: None,
            is_unchecked: false,
            origin: None,
            pieces,
            left,
            reading: VecDeque::new(),
            chunk_bytes,
            buffers,
            waiting: None,
            has_begun: false,
            is_cold: false,
            has_waited: false,
            sink: None,
            read_time,
        }
    }

    /// Makes the body take what it can from `blocks`.
    pub(crate) fn sharing(self, blocks: Box<dyn Shared>) -> Self {
        FileBody { blocks: Some(blocks), ..self }
    }

    /// Starts the first read, with as many bytes as the sink wants.
    fn begin(&mut self) {
        if !self.buffers.memory.is_scarce() {
            self.read_next(self.wanted().unwrap_or(usize::MAX));
        }
    }

    /// Bytes that the sink wants from reads until its next write, if it says so.
    fn wanted(&self) -> Option<usize> {
        let wanted = self.sink.as_ref()?.read_size()?;
        Some(wanted.min(self.buffers.memory.bytes() / AHEAD_PART))
    }

    /// Bytes of one read, where that many are wanted.
    fn chunk_of(&self, wanted: usize) -> usize {
        let part = if self.is_cold { wanted / 2 } else { wanted };
        part.max(FIRST_CHUNK_BYTES).min(self.chunk_bytes)
    }

    /// Bytes for the next read, once there is room for some.
    fn poll_wanted(&self, cx: &mut Context<'_>) -> Poll<usize> {
        let Some(sink) = &self.sink else { return Poll::Ready(usize::MAX) };
        let is_scarce = self.buffers.memory.is_scarce();
        if !is_scarce && self.wanted().is_none() {
            return Poll::Ready(usize::MAX);
        }
        if !self.has_begun {
            let wanted = if is_scarce { None } else { self.wanted() };
            return Poll::Ready(wanted.unwrap_or(FIRST_CHUNK_BYTES));
        }
        let room = ready!(sink.poll_room(cx));
        Poll::Ready(self.chunk_of(self.wanted().unwrap_or(room)))
    }

    /// Reports a read that is done to the sink, before its bytes are handed over.
    fn tell_supply(&self, read: &Reading) {
        let (Some(sink), Some(begun)) = (&self.sink, read.begun) else { return };
        if self.has_waited {
            self.read_time.on_read(begun, read.is_awaited);
        }
        // What is at hand takes no time. What one read of this response took, the next may take.
        let read_time = if self.has_waited { self.read_time.get() } else { Duration::ZERO };
        sink.set_supply(read_time, self.left > read.length as u64);
    }

    /// True if nothing of the file is left to be read.
    fn has_read_all(&self) -> bool {
        !self.pieces.iter().any(|piece| matches!(piece, Piece::File(range) if !range.is_empty()))
    }

    /// Drops what was read ahead; the body reads it again later.
    fn read_later(&mut self) {
        if let (Some(first), Some(Piece::File(range))) =
            (self.reading.front(), self.pieces.front_mut())
        {
            range.start = first.offset;
            self.reading.clear();
        }
    }

    /// Starts to read the next chunk, of `most` bytes at most. Returns how many; `None` if the next
    /// piece is not of the file.
    fn read_next(&mut self, most: usize) -> Option<usize> {
        let is_scarce = self.buffers.memory.is_scarce();
        let most = most.min(if is_scarce { SCARCE_CHUNK_BYTES } else { usize::MAX });
        let most = most.min(self.chunk_bytes);
        let begun = self.wanted().map(|_| self.read_time.now());
        self.has_begun = true;
        while let Some(Piece::File(range)) = self.pieces.front_mut() {
            let length = (range.end - range.start).min(most as u64) as usize;
            if length == 0 && !self.reading.is_empty() {
                break;
            }
            if length == 0 {
                self.pieces.pop_front();
                continue;
            }
            let offset = range.start;
            let shared = self.blocks.as_ref().and_then(|blocks| blocks.read(offset, length));
            self.is_unchecked |= shared.is_none();
            let mut read = match shared {
                Some(shared) => Reading::shared(offset, shared, begun),
                None => Reading::alone(&self.opening, &self.buffers, (offset, length), begun),
            };
            let length = read.length;
            range.start += length as u64;
            self.is_cold = read.poll(&mut Context::from_waker(Waker::noop())).is_pending();
            self.reading.push_back(read);
            return Some(length);
        }
        None
    }

    /// Starts to read what the sink will want meanwhile, beside the `handed` bytes that it takes
    /// next, as long as the source does not have it at hand.
    fn read_ahead(&mut self, handed: usize) {
        let Some(wanted) = self.wanted() else { return };
        let mut ahead = handed + self.reading.iter().map(|read| read.length).sum::<usize>();
        while self.is_cold && !self.buffers.memory.is_scarce() {
            let (chunk, left) = (self.chunk_of(wanted), wanted.saturating_sub(ahead));
            // Nothing is gained by reads of a few bytes.
            let read =
                if left < chunk.div_ceil(2) { None } else { self.read_next(left.min(chunk)) };
            let Some(length) = read else { break };
            ahead += length;
        }
    }

    /// Waits for the next chunk. `None`: the next piece is not of the file.
    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        let Some(first) = self.reading.front_mut() else { return Poll::Ready(None) };
        if first.poll(cx).is_pending() {
            (first.is_awaited, self.has_waited) = (true, true);
            self.read_ahead(0);
            return Poll::Pending;
        }
        Poll::Ready(self.reading.pop_front().map(|read| self.end_read(read)))
    }

    /// The bytes of a read that is done.
    fn end_read(&mut self, mut read: Reading) -> io::Result<Bytes> {
        let chunk = read.done.take().expect("only a read that is done ends")?;
        if self.is_unchecked && self.reading.is_empty() && self.has_read_all() {
            self.opening.check()?;
        }
        self.tell_supply(&read);
        let bytes = chunk.bytes.clone();
        if let (Some(sink), Some(origin)) = (&self.sink, &self.origin) {
            sink.hand_over(chunk, origin, read.offset);
        }
        Ok(bytes)
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
        if this.reading.is_empty() && matches!(this.pieces.front(), Some(Piece::File(_))) {
            let most = ready!(this.poll_wanted(cx));
            let has_memory = this.buffers.memory.poll_room(cx, &mut this.waiting).is_ready();
            if !has_memory && this.has_begun {
                return Poll::Pending;
            }
            this.read_next(if has_memory { most } else { FIRST_CHUNK_BYTES });
        }
        let bytes = match ready!(this.poll_chunk(cx)) {
            Some(bytes) => bytes?,
            None => match this.pieces.pop_front() {
                Some(Piece::Text(bytes)) => bytes,
                // Whenever the next piece is of the file, it is being read.
                Some(Piece::File(_)) | None => return Poll::Ready(None),
            },
        };
        // A sink that says what it wants is asked again once it has room, or else the source would
        // make it wait.
        if this.wanted().is_some() {
            this.read_ahead(bytes.len());
        } else if !this.buffers.memory.is_scarce() && this.reading.is_empty() {
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
        if self.opening.is_settled {
            let (opening, buffers) = (self.opening.clone(), self.buffers.clone());
            self.origin = Some(Rc::new(Versioned { opening, buffers }));
        }
        self.begin();
    }
}

/// The body of a request.
#[derive(Debug)]
pub struct RequestBody {
    incoming: Option<Incoming>,
    phase: Option<Phase>,
    waits: Option<Waits>,
    is_secured: bool,
}

/// Told whether the body waits for the client, whenever it is asked for more.
pub(crate) struct Waits(pub(crate) Box<dyn Fn(bool)>);

impl fmt::Debug for Waits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waits").finish_non_exhaustive()
    }
}

impl RequestBody {
    /// No bytes at all, of a request that nobody on the way can read.
    pub fn empty() -> Self {
        RequestBody { incoming: None, phase: None, waits: None, is_secured: true }
    }

    /// True if the request came over TLS.
    pub fn is_secured(&self) -> bool {
        self.is_secured
    }

    /// The body of a request, which tells `phase` when it ends.
    pub(crate) fn new(incoming: Incoming, phase: Phase, is_secured: bool) -> Self {
        RequestBody { incoming: Some(incoming), phase: Some(phase), waits: None, is_secured }
    }

    /// The body of a request on a stream of its own.
    pub(crate) fn of_stream(incoming: Incoming, waits: Waits, is_secured: bool) -> Self {
        RequestBody { incoming: Some(incoming), phase: None, waits: Some(waits), is_secured }
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
        let polled = Pin::new(&mut *incoming).poll_frame(cx);
        if let Some(Waits(tell)) = &this.waits {
            tell(polled.is_pending());
        }
        let frame = ready!(polled);
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
