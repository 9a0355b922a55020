//! One connection: hyper between a patient byte stream and a handler.

use std::cell::Cell;
use std::convert::Infallible;
use std::fmt;
use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use http::header::{self, HeaderMap, HeaderValue};
use http::{Request, Response, StatusCode, Version};
use http_body::Body as _;
use hyper::body::Incoming;
use hyper::rt::{Read, Write};
use hyper::server::conn::http1;
use hyper::service::service_fn;

use crate::access::Access;
use crate::admission::{Admission, Door, InFlight, Refusal, Tally};
use crate::answer::page;
use crate::body::{Body, RequestBody, Sink};
use crate::config::ServerConfig;
use crate::control::Control;
use crate::date::Date;
use crate::memory::Memory;
use crate::patient::{Patient, Phase};
use crate::refusal::{Owed, Refusable, Refused};
use crate::stop::Stop;
use crate::{Clock, Pending};

/// hyper's least buffer for a request's head.
const LEAST_HEADER_BYTES: usize = 8192;

/// Answers requests.
pub trait Handler: 'static {
    /// The response to a request. `Date` and `Server` are added by the connection.
    fn respond(self: Rc<Self>, request: Request<RequestBody>) -> Pending<Response<Body>>;
}

/// Called once for each response that is over, whole or not.
type AccessHook = Rc<dyn Fn(&Access)>;

/// Serves connections of one shard: hyper, limits, timeouts, and a graceful stop.
pub struct Server<H> {
    handler: Rc<H>,
    config: ServerConfig,
    clock: Clock,
    stop: Stop,
    on_access: Option<AccessHook>,
    date: Date,
    http: http1::Builder,
    door: Door,
}

impl<H> fmt::Debug for Server<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("config", &self.config).finish_non_exhaustive()
    }
}

impl<H: Handler> Server<H> {
    /// A server that hands requests to `handler`.
    pub fn new(handler: H, config: ServerConfig, clock: Clock) -> Self {
        let header_bytes = config.max_header_bytes.max(LEAST_HEADER_BYTES);
        // `pipeline_flush` stays off: with it hyper buffers without bound and swallows its own 400
        // and 431. Answers written in one turn leave in shared frames anyway.
        let mut http = http1::Builder::new();
        http.half_close(true) // Who has asked and closed their half still wants the answer.
            .auto_date_header(false) // Ours comes from our clock.
            .header_read_timeout(None) // `Patient` tells waiting for a request from reading one.
            .max_buf_size(header_bytes)
            .max_header_size(header_bytes)
            .max_headers(config.max_header_fields);
        let handler = Rc::new(handler);
        let (stop, date) = (Stop::new(), Date::default());
        let door = Door::new(&config, Memory::boundless());
        Server { handler, config, clock, stop, on_access: None, date, http, door }
    }

    /// The same server, which calls `hook` once for each response when it is over.
    pub fn on_access(mut self, hook: impl Fn(&Access) + 'static) -> Self {
        self.on_access = Some(Rc::new(hook));
        self
    }

    /// The same server, whose connections are charged to `memory`, and refused where there is none.
    pub fn with_memory(self, memory: Memory) -> Self {
        let door = Door::new(&self.config, memory);
        Server { door, ..self }
    }

    /// The signal that stops it: connections finish what they answer, and close; or they are cut.
    pub fn stop(&self) -> &Stop {
        &self.stop
    }

    /// Lets a connection of `peer` in, which counts against the limits while the admission lives.
    ///
    /// # Errors
    /// There are too many, of all or of that client, or for the memory: the connection should be
    /// reset. It is counted.
    pub fn admit(&self, peer: SocketAddr) -> Result<Admission, Refusal> {
        self.door.admit(peer.ip(), self.clock.timer.now())
    }

    /// How many were not let in, and how many were reset because they took too little.
    pub fn tally(&self) -> Tally {
        self.door.tally()
    }

    /// As [`Server::serve_controlled`], over a stream of whose transport nothing is known.
    ///
    /// # Errors
    /// As there.
    pub async fn serve<I>(self: Rc<Self>, io: I, peer: SocketAddr) -> Result<(), hyper::Error>
    where
        I: Read + Write + Unpin + 'static,
    {
        self.serve_controlled(io, (), peer).await
    }

    /// Serves one connection until it is over. A peer that takes too little of what it asked for is
    /// reset by `control`.
    ///
    /// # Errors
    /// What hyper says: the peer broke the protocol, a timeout, or the stream failed. Whatever
    /// could be answered has been.
    pub async fn serve_controlled<I, C>(
        self: Rc<Self>,
        io: I,
        control: C,
        peer: SocketAddr,
    ) -> Result<(), hyper::Error>
    where
        I: Read + Write + Unpin + 'static,
        C: Control + Clone + Unpin,
    {
        let _tracked = self.stop.track();
        let now = self.clock.timer.now();
        let phase = Phase::new(now);
        let seat = self.door.seat(phase.clone(), now);
        let cut = control.clone();
        let sink = sink(control.clone(), phase.clone());
        let io = Patient::new(
            (io, control),
            self.clock.timer.clone(),
            phase.clone(),
            &self.config,
            self.door.clone(),
        );
        let owed = Owed::default();
        let io = Refusable::new(io, owed.clone());
        let served = Rc::new(Cell::new(0));
        let service = service_fn(|request| {
            served.set(served.get() + 1);
            let last = self.config.max_requests.is_some_and(|most| served.get() >= most);
            let (server, phase, owed) = (self.clone(), phase.clone(), owed.clone());
            let exchange = Exchange { server, phase, owed, sink: sink.clone(), peer, last };
            async move { Ok::<_, Infallible>(exchange.run(request).await) }
        });
        let mut connection = self.http.serve_connection(io, service);
        let mut stop = pin!(self.stop.wait_requested());
        let mut stopping = false;
        let outcome = poll_fn(|cx| {
            while stop.as_mut().poll(cx).is_ready() {
                if stopping {
                    // Cut short: what is unfinished goes, and says so in its record.
                    cut.abort();
                    return Poll::Ready(Ok(()));
                }
                stopping = true;
                Pin::new(&mut connection).graceful_shutdown();
                stop.set(self.stop.wait_cut());
            }
            // Hyper does not look at a connection while it waits for a body.
            if cut.is_closed() {
                return Poll::Ready(Ok(()));
            }
            let outcome = Pin::new(&mut connection).poll(cx);
            if outcome.is_pending() && seat.is_wanted(cx) {
                self.leave(&cut);
                return Poll::Ready(Ok(()));
            }
            if phase.is_busy() {
                cut.wake_when_closed(cx);
            }
            outcome
        })
        .await;
        if let Some(status) = owed.refused() {
            let parts = connection.into_parts();
            let refused = Refused::new(status, &parts.read_buf);
            // Boxed: it is rare, and every connection would have room for it.
            Box::pin(self.refuse(parts.io, refused, peer)).await;
        }
        outcome
    }

    /// A connection that waits for its peer goes, because others need its memory.
    fn leave(&self, control: &impl Control) {
        self.door.count(|tally| tally.closed_for_memory += 1);
        // What the peer has not taken of an answer would go on waiting for it.
        if control.undelivered_bytes().is_some_and(|bytes| bytes > 0) {
            control.abort();
        }
    }

    /// Answers what hyper did not hand to the handler, and writes the record.
    async fn refuse<I, C>(&self, io: Refusable<Patient<I, C>>, refused: Refused, peer: SocketAddr)
    where
        I: Read + Write + Unpin,
        C: Control + Unpin,
    {
        let begin = self.on_access.as_ref().map(|_| (self.clock.measure)());
        let (mut io, date) = (io.inner, self.date.at((self.clock.wall)()));
        let (body_bytes, complete) = refused.answer(&mut io, &date).await;
        if let (Some(hook), Some(begin)) = (&self.on_access, begin) {
            let duration = (self.clock.measure)().saturating_duration_since(begin);
            let Refused { status, method, target } = refused;
            hook(&Access { peer, method, target, status, body_bytes, complete, duration });
        }
    }
}

/// What responses are written to.
fn sink(transport: impl Control, phase: Phase) -> Rc<dyn Sink> {
    Rc::new(Outlet { transport, phase })
}

/// The transport of responses, of which the phase remembers whether one waits for room.
struct Outlet<C> {
    transport: C,
    phase: Phase,
}

impl<C: Control> Sink for Outlet<C> {
    fn poll_room(&self, cx: &mut Context<'_>) -> Poll<usize> {
        let room = self.transport.poll_room(cx);
        self.phase.set_waits_for_room(room.is_pending());
        room
    }

    fn read_size(&self) -> Option<usize> {
        self.transport.read_size()
    }

    fn set_supply(&self, read_time: Duration, more: bool) {
        self.transport.set_supply(read_time, more);
    }
}

/// One request and its response.
struct Exchange<H> {
    server: Rc<Server<H>>,
    phase: Phase,
    owed: Owed,
    sink: Rc<dyn Sink>,
    peer: SocketAddr,
    /// No request after this one.
    last: bool,
}

impl<H: Handler> Exchange<H> {
    async fn run(self, request: Request<Incoming>) -> Response<Body> {
        self.owed.on_request();
        self.phase.on_request(self.server.clock.timer.now(), !request.body().is_end_stream());
        let mut record = self.server.on_access.is_some().then(|| Unfinished {
            begin: (self.server.clock.measure)(),
            access: Access {
                peer: self.peer,
                method: request.method().clone(),
                target: request.uri().to_string(),
                status: StatusCode::OK,
                body_bytes: 0,
                complete: false,
                duration: Duration::ZERO,
            },
        });
        let in_flight = self.server.door.begin_response();
        let mut response = if let Some(why) = bad_host(&request) {
            page(request.headers(), StatusCode::BAD_REQUEST, why)
        } else if in_flight.is_none() {
            too_many(request.headers())
        } else {
            let request = request.map(|body| RequestBody::new(body, self.phase.clone()));
            self.server.handler.clone().respond(request).await
        };
        self.complete_head(&mut response);
        if let Some(record) = &mut record {
            record.access.status = response.status();
        }
        response.map(|body| self.follow(body, record, in_flight))
    }

    /// Fields that every response has.
    fn complete_head(&self, response: &mut Response<Body>) {
        let headers = response.headers_mut();
        let date = self.server.date.at((self.server.clock.wall)());
        headers.entry(header::DATE).or_insert(date);
        headers.entry(header::SERVER).or_insert(HeaderValue::from_static("lightwait"));
        if self.last {
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
    }

    /// A body that, when over, moves the connection on and writes the record.
    fn follow(self, body: Body, record: Option<Unfinished>, in_flight: Option<InFlight>) -> Body {
        body.paced(&self.sink).reporting(move |body_bytes, complete| {
            drop(in_flight);
            self.owed.on_response();
            self.phase.on_response(self.server.clock.timer.now());
            if let (Some(hook), Some(record)) = (&self.server.on_access, record) {
                let now = (self.server.clock.measure)();
                let duration = now.saturating_duration_since(record.begin);
                hook(&Access { body_bytes, complete, duration, ..record.access });
            }
        })
    }
}

/// There are as many responses in flight as there may be.
fn too_many(asked: &HeaderMap) -> Response<Body> {
    let detail = "Too many answers are under way: try again in a moment.";
    let mut response = page(asked, StatusCode::SERVICE_UNAVAILABLE, detail);
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    response
}

/// The record of a response that is not over.
struct Unfinished {
    begin: Instant,
    access: Access,
}

/// What is wrong with a request's `Host`: HTTP/1.1 wants exactly one (RFC 9112 §3.2).
fn bad_host(request: &Request<Incoming>) -> Option<&'static str> {
    let hosts = request.headers().get_all(header::HOST).iter().count();
    match hosts {
        0 if request.version() >= Version::HTTP_11 => Some("The request names no host."),
        0 | 1 => None,
        _ => Some("The request names more than one host."),
    }
}

#[cfg(test)]
mod tests;
