//! One request on a stream, and its answer's body.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use http::header::{self, HeaderMap};
use http::{Request, Response, StatusCode};
use http_body::{Body as HttpBody, Frame, SizeHint};
use hyper::body::Incoming;

use super::streams::{Progress, Streams};
use crate::access::Access;
use crate::answer::{page, refuse_head, too_many};
use crate::body::{Body, Chunk, RequestBody, Sink, Waits};
use crate::connection::access_log::Entry;
use crate::connection::replay::Origin;
use crate::connection::{ConnectionState, Handler};
use crate::head;
use crate::limits::admission::InFlight;
use crate::limits::memory::Charge;

/// Memory of a stream: h2's record of it, the task, the request's fields.
const STREAM_BYTES: usize = 6 << 10;
/// Bytes that a stream's answer is read by, at least and at most: a frame, and what leaves room for
/// other streams in memory.
const LEAST_READ: usize = 16 << 10;
const MOST_READ: usize = 64 << 10;
/// What a field counts beside its name and value (RFC 9113 §6.5.2).
const FIELD_BYTES: usize = 32;

/// A request on a stream. It is over when the last share of it is dropped: its body, and what of
/// the body is with h2.
struct Stream<H: Handler> {
    state: Rc<ConnectionState<H>>,
    streams: Rc<Streams>,
    progress: Rc<Progress>,
    status: Cell<StatusCode>,
    entry: RefCell<Option<Entry>>,
    /// How many bytes the body handed over, and whether they were all.
    over: Cell<Option<(u64, bool)>>,
    in_flight: Option<InFlight>,
    _charge: Charge,
}

impl<H: Handler> ConnectionState<H> {
    /// Answers a request on a stream of its own.
    pub(super) fn answer_stream(
        self: Rc<Self>,
        streams: &Rc<Streams>,
        request: Request<Incoming>,
    ) -> impl Future<Output = Result<Response<StreamBody>, Infallible>> + use<H> {
        let ConnectionState { server, log, .. } = &*self;
        server.admissions.count_http2(|http2| http2.requests += 1);
        let entry = log.as_ref().map(|log| log.begin_stream(Access::of(log.peer, &request, None)));
        let stream = Rc::new(Stream {
            progress: streams.on_request(),
            streams: streams.clone(),
            status: Cell::default(),
            entry: RefCell::new(entry),
            over: Cell::default(),
            in_flight: server.admissions.begin_response(),
            _charge: server.admissions.charge_connection(STREAM_BYTES),
            state: self,
        });
        async move { Ok(Stream::answer(stream, request).await) }
    }
}

impl<H: Handler> Stream<H> {
    async fn answer(self: Rc<Self>, request: Request<Incoming>) -> Response<StreamBody> {
        let server = &self.state.server;
        let redirected = match self.state.is_secured {
            true => None,
            false => server.https.get().redirect(&request),
        };
        let mut response = if let Some(why) = self.excess(request.headers()) {
            server.admissions.count_http2(|http2| http2.heads_refused += 1);
            page(request.headers(), StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, why)
        } else if let Some(fault) = head::fault(&request) {
            refuse_head(request.headers(), fault)
        } else if self.in_flight.is_none() {
            too_many(request.headers())
        } else if let Some(response) = redirected {
            response
        } else {
            let request = request
                .map(|body| RequestBody::of_stream(body, self.waits(), self.state.is_secured));
            server.handler.clone().respond(request).await
        };
        // It says what becomes of an HTTP/1 connection (RFC 9113 §8.2.2).
        response.headers_mut().remove(header::CONNECTION);
        self.state.sign(response.headers_mut());
        self.status.set(response.status());
        if let Some(entry) = &mut *self.entry.borrow_mut() {
            entry.on_stream_head(&response);
        }
        response.map(|body| self.follow(body))
    }

    /// Notes since when the request's body waits for the client.
    fn waits(&self) -> Waits {
        let (streams, progress) = (self.streams.clone(), self.progress.clone());
        Waits(Box::new(move |waits| progress.set_waits_for_body(waits, streams.now())))
    }

    /// What is too much in a head, if something is.
    fn excess(&self, fields: &HeaderMap) -> Option<&'static str> {
        let config = &self.state.server.config;
        let bytes = fields.iter().map(|(name, value)| name.as_str().len() + value.len());
        let bytes = bytes.sum::<usize>() + fields.len() * FIELD_BYTES;
        let is_long = bytes > config.max_header_bytes || fields.len() > config.max_header_fields;
        is_long.then_some("The request's head is too long, or has too many fields.")
    }

    fn follow(self: Rc<Self>, body: Body) -> StreamBody {
        let portion = Portion { sink: self.state.sink.clone(), streams: self.streams.clone() };
        let sink: Rc<dyn Sink> = Rc::new(portion);
        let stream = self.clone();
        let body = body.paced(&sink).reporting(move |handed, complete| {
            stream.over.set(Some((handed, complete)));
        });
        self.streams.on_answer();
        // From here on the peer decides.
        self.progress.set_waits_for_us(false);
        let progress = self.progress.clone();
        StreamBody { body, stream: self, progress }
    }
}

impl<H: Handler> Drop for Stream<H> {
    fn drop(&mut self) {
        let ConnectionState { server, log, .. } = &*self.state;
        let taken = self.progress.taken();
        let is_whole = self.over.get() == Some((taken, true));
        // One that was taken back before it had an answer has none to count.
        if self.over.get().is_some() {
            server.admissions.on_response(self.status.get(), taken);
            if let (Some(log), Some(entry)) = (log, self.entry.take()) {
                log.on_over(entry, taken, is_whole);
            }
        }
        self.streams.on_end(is_whole);
    }
}

/// The body of an answer on a stream.
pub(super) struct StreamBody {
    body: Body,
    stream: Rc<dyn Any>,
    progress: Rc<Progress>,
}

impl HttpBody for StreamBody {
    type Data = Portioned;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Portioned>>>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.body).poll_frame(cx);
        this.progress.set_waits_for_us(polled.is_pending());
        let frame = ready!(polled);
        Poll::Ready(frame.map(|frame| {
            Ok(frame?.map_data(|bytes| Portioned {
                bytes,
                progress: this.progress.clone(),
                _stream: this.stream.clone(),
            }))
        }))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A part of a body, which tells how much of it the connection takes.
pub(super) struct Portioned {
    bytes: Bytes,
    progress: Rc<Progress>,
    _stream: Rc<dyn Any>,
}

impl Buf for Portioned {
    fn remaining(&self) -> usize {
        self.bytes.remaining()
    }

    fn chunk(&self) -> &[u8] {
        self.bytes.chunk()
    }

    fn advance(&mut self, count: usize) {
        self.progress.on_taken(count);
        self.bytes.advance(count);
    }
}

/// The transport as the body of one of several streams sees it: each has a part.
struct Portion {
    sink: Rc<dyn Sink>,
    streams: Rc<Streams>,
}

impl Portion {
    fn bytes(&self) -> usize {
        let all = self.sink.read_size().unwrap_or(MOST_READ);
        (all / self.streams.open().max(1)).clamp(LEAST_READ, MOST_READ)
    }
}

impl Sink for Portion {
    /// h2 asks for a part of the body once the last one is written, or may be.
    fn poll_room(&self, _cx: &mut Context<'_>) -> Poll<usize> {
        Poll::Ready(self.bytes())
    }

    fn read_size(&self) -> Option<usize> {
        Some(self.bytes())
    }

    fn set_supply(&self, read_time: Duration, more: bool) {
        self.sink.set_supply(read_time, more || self.streams.open() > 1);
    }

    fn is_held_back(&self) -> bool {
        false
    }

    fn hand_over(&self, chunk: Chunk, origin: &Rc<dyn Origin>, offset: u64) {
        // Frames stand between the parts of a file: it is not given back.
        let _ = (chunk, origin, offset);
    }
}
