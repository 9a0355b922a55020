//! One connection: hyper between a patient byte stream and a handler. Enforces limits and timeouts,
//! and stops gracefully.

mod outlet;

use std::cell::Cell;
use std::convert::Infallible;
use std::fmt;
use std::future::{Future, pending, poll_fn};
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Instant;

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
use crate::client_close;
use crate::config::ServerConfig;
use crate::control::Control;
use crate::date::Date;
use crate::head::{self, Fault};
use crate::memory::Memory;
use crate::patient::{Bounds, Patient, Phase};
use crate::refusal::{Owed, Refusable, Refused};
use crate::stop::{Stop, Wait};
use crate::waiting::{Seat, Wanted};
use crate::{Clock, Pending};
use outlet::sink;

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
    /// True while the server should ask clients to close first on every answer.
    is_pressed: Option<Rc<dyn Fn() -> bool>>,
    date: Date,
    http: http1::Builder,
    door: Door,
    bounds: Rc<Bounds>,
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
        let bounds = Rc::new(Bounds::new(&config));
        let (on_access, is_pressed) = Default::default();
        Server { handler, config, clock, stop, on_access, is_pressed, date, http, door, bounds }
    }

    /// Makes the server call `hook` once for each response when it is over.
    pub fn on_access(mut self, hook: impl Fn(&Access) + 'static) -> Self {
        self.on_access = Some(Rc::new(hook));
        self
    }

    /// Makes the server ask clients of HTTP/1.1 to close ([`client_close`]) on every answer while
    /// `is_pressed` returns true, which it does where TIME-WAIT fills up.
    pub fn ask_clients_while(mut self, is_pressed: impl Fn() -> bool + 'static) -> Self {
        self.is_pressed = Some(Rc::new(is_pressed));
        self
    }

    /// Charges connections to `memory`, and refuses them where there is none.
    pub fn with_memory(self, memory: Memory) -> Self {
        let door = Door::new(&self.config, memory);
        Server { door, ..self }
    }

    /// The signal that stops the server: connections finish their responses and close, or are cut.
    pub fn stop(&self) -> &Stop {
        &self.stop
    }

    /// The handler, which answers requests.
    pub fn handler(&self) -> &H {
        &self.handler
    }

    /// Admits a connection of `peer`, which counts against the limits while the admission lives.
    ///
    /// # Errors
    /// If there are too many connections, of all or of that client, or too little memory. The
    /// caller should reset the connection; the server has counted it.
    pub fn admit(&self, peer: SocketAddr) -> Result<Admission, Refusal> {
        self.door.admit(peer.ip(), self.clock.timer.now())
    }

    /// Connections inside, and how many there may be.
    pub fn connections(&self) -> (usize, usize) {
        self.door.connections()
    }

    /// How many connections were refused, and how many reset because their peers took too little.
    pub fn tally(&self) -> Tally {
        self.door.tally()
    }

    /// Serves one connection over a stream whose transport cannot be controlled. See
    /// [`Server::serve_controlled`].
    ///
    /// # Errors
    /// Those of [`Server::serve_controlled`].
    pub async fn serve<I>(self: Rc<Self>, io: I, peer: SocketAddr) -> Result<(), hyper::Error>
    where
        I: Read + Write + Unpin + 'static,
    {
        self.serve_controlled(io, (), peer).await
    }

    /// Serves one connection until it is over. Resets it by `control` if its peer takes too little
    /// of the data that it asked for.
    ///
    /// # Errors
    /// An error of hyper: the peer broke the protocol, a timeout ended, or the stream failed. The
    /// server has answered all that it could.
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
        let sink = sink(control.clone(), phase.clone());
        let visit = Rc::new(Visit::new(self.clone(), phase.clone(), sink, peer));
        let (timer, door) = (self.clock.timer.clone(), self.door.clone());
        let mut waits = Waits {
            seat: self.door.seat(phase.clone(), peer.ip(), now),
            stop: self.stop.wait_requested(),
            is_stopping: false,
            control: control.clone(),
        };
        let io = Patient::new((io, control), timer, phase, self.bounds.clone(), door);
        let mut io = Box::new(Refusable::new(io, visit.owed.clone()));
        let outcome = loop {
            if !poll_fn(|cx| self.poll_asleep(cx, &mut io, &mut waits)).await {
                break Ok(());
            }
            // Boxed: a connection that waits for the next request has no room for it.
            match Box::pin(visit.clone().stay_awake(io, &mut waits)).await {
                Awake::Rests(rested) => io = rested,
                Awake::Over(outcome) => break outcome,
            }
        };
        visit.leave();
        outcome
    }

    /// Waits for the first byte of a request, or another event for hyper; returns true then.
    /// Returns false if the connection is over.
    fn poll_asleep<I, C>(
        &self,
        cx: &mut Context<'_>,
        io: &mut Refusable<Patient<I, C>>,
        waits: &mut Waits<C>,
    ) -> Poll<bool>
    where
        I: Read + Write + Unpin,
        C: Control + Unpin,
    {
        if waits.control.is_closed() {
            return Poll::Ready(false);
        }
        if io.poll_first(cx).is_ready() {
            let has_memory = self.door.may_wake(self.clock.timer.now());
            if !has_memory {
                self.leave(&waits.control, Wanted::Memory);
            }
            return Poll::Ready(has_memory);
        }
        if Pin::new(&mut waits.stop).poll(cx).is_ready() {
            return Poll::Ready(true);
        }
        let wanted = waits.seat.wanted(cx);
        if wanted != Wanted::Nothing {
            self.leave(&waits.control, wanted);
            return Poll::Ready(false);
        }
        Poll::Pending
    }

    /// Closes a connection that waits for its peer, because others need its memory or its place.
    fn leave(&self, control: &impl Control, wanted: Wanted) {
        self.door.count(|tally| match wanted {
            Wanted::Place => tally.closed_for_place += 1,
            _ => tally.closed_for_memory += 1,
        });
        // Data that the peer has not taken would go on waiting for it.
        if control.undelivered_bytes().is_some_and(|bytes| bytes > 0) {
            control.abort();
        }
    }

    /// Closes a connection whose client has said that it closes, and has all its answers. Drops
    /// later data.
    async fn part<I, C>(&self, mut io: Patient<I, C>, phase: Phase, seat: &Seat, cut: Wait)
    where
        I: Read + Write + Unpin,
        C: Control + Unpin,
    {
        phase.on_response(self.clock.timer.now());
        phase.yield_close();
        let mut cut = pin!(cut);
        poll_fn(|cx| {
            if cut.as_mut().poll(cx).is_ready() || seat.is_wanted(cx) {
                return Poll::Ready(());
            }
            Pin::new(&mut io).poll_shutdown(cx).map(|_| ())
        })
        .await;
        self.door.count(|tally| match phase.has_closed() {
            true => tally.client_closes += 1,
            false => tally.client_closes_unended += 1,
        });
    }

    /// Answers a request that hyper refused itself, and writes the record.
    async fn refuse<I, C>(&self, io: Refusable<Patient<I, C>>, refused: Refused, peer: SocketAddr)
    where
        I: Read + Write + Unpin,
        C: Control + Unpin,
    {
        let begin = self.on_access.as_ref().map(|_| (self.clock.measure)());
        let (mut io, date) = (io.inner, self.date.at((self.clock.wall)()));
        let (body_bytes, complete) = refused.answer(&mut io, &date).await;
        self.door.on_response(refused.status, body_bytes);
        if let (Some(hook), Some(begin)) = (&self.on_access, begin) {
            let duration = (self.clock.measure)().saturating_duration_since(begin);
            let Refused { status, method, target } = refused;
            let record = Access::new(peer, method, target);
            hook(&Access { status, body_bytes, complete, duration, ..record });
        }
    }
}

/// The events beside its peer's that a connection waits for.
struct Waits<C> {
    seat: Seat,
    /// A stop; after that, a cut.
    stop: Wait,
    is_stopping: bool,
    control: C,
}

/// The outcome of a connection's awake time.
enum Awake<T> {
    /// It waits for the next request, and has for a while.
    Rests(T),
    Over(Result<(), hyper::Error>),
}

/// One connection, as its requests see it.
struct Visit<H> {
    server: Rc<Server<H>>,
    phase: Phase,
    owed: Owed,
    sink: Rc<dyn Sink>,
    peer: SocketAddr,
    /// How many requests have come.
    served: Cell<u64>,
    /// The client has said that it closes.
    has_parted: Cell<bool>,
    /// The client was asked to close first.
    is_asked: Cell<bool>,
}

impl<H: Handler> Visit<H> {
    fn new(server: Rc<Server<H>>, phase: Phase, sink: Rc<dyn Sink>, peer: SocketAddr) -> Visit<H> {
        let (owed, served, has_parted, is_asked) = Default::default();
        Visit { server, phase, owed, sink, peer, served, has_parted, is_asked }
    }

    /// Answers requests until none has come for a while. All of hyper's memory is held within.
    async fn stay_awake<I, C>(
        self: Rc<Self>,
        io: Box<Refusable<Patient<I, C>>>,
        waits: &mut Waits<C>,
    ) -> Awake<Box<Refusable<Patient<I, C>>>>
    where
        I: Read + Write + Unpin + 'static,
        C: Control + Unpin,
    {
        let Visit { server, phase, owed, peer, .. } = &*self;
        let _charge = server.door.charge_awake();
        waits.seat.set_awake(true);
        let service = service_fn(|request| self.clone().answer(request));
        let mut connection = server.http.serve_connection(io, service);
        let outcome = poll_fn(|cx| {
            while Pin::new(&mut waits.stop).poll(cx).is_ready() {
                if waits.is_stopping {
                    // The connection is cut: unfinished responses end, and their records say so.
                    waits.control.abort();
                    return Poll::Ready(Some(Ok(())));
                }
                waits.is_stopping = true;
                Pin::new(&mut connection).graceful_shutdown();
                waits.stop = server.stop.wait_cut();
            }
            // Hyper does not look at a connection while it waits for a body.
            if waits.control.is_closed() {
                return Poll::Ready(Some(Ok(())));
            }
            let outcome = Pin::new(&mut connection).poll(cx);
            if self.has_parted.get() && owed.is_settled() {
                return Poll::Ready(Some(Ok(())));
            }
            let wanted = if outcome.is_pending() { waits.seat.wanted(cx) } else { Wanted::Nothing };
            if wanted == Wanted::Memory && phase.may_rest() && owed.is_settled() {
                return Poll::Ready(None);
            }
            if wanted != Wanted::Nothing {
                server.leave(&waits.control, wanted);
                return Poll::Ready(Some(Ok(())));
            }
            if phase.is_busy() {
                waits.control.wake_when_closed(cx);
            }
            let rests = outcome.is_pending() && phase.takes_rest() && owed.is_settled();
            if rests { Poll::Ready(None) } else { outcome.map(Some) }
        })
        .await;
        waits.seat.set_awake(false);
        let Some(outcome) = outcome else {
            server.door.count(|tally| tally.rests += 1);
            let mut parts = connection.into_parts();
            parts.io.rest(&parts.read_buf);
            return Awake::Rests(parts.io);
        };
        // Boxed: both are rare, and every connection would have room for them.
        if self.has_parted.get() && outcome.is_ok() {
            let io = connection.into_parts().io.inner;
            Box::pin(server.part(io, phase.clone(), &waits.seat, server.stop.wait_cut())).await;
        } else if let Some(status) = owed.refused() {
            let mut parts = connection.into_parts();
            if parts.io.read_as_1_1(&parts.read_buf) {
                return Awake::Rests(parts.io);
            }
            let refused = Refused::new(status, &parts.read_buf);
            Box::pin(server.refuse(*parts.io, refused, *peer)).await;
        }
        Awake::Over(outcome)
    }

    /// Asks the client to close first.
    fn ask(&self) {
        self.phase.yield_close();
        if !self.is_asked.replace(true) {
            self.server.door.count(|tally| tally.asked += 1);
        }
    }

    /// Notes, at the end of the connection, whether the client did as it was asked.
    fn leave(&self) {
        if self.is_asked.get() {
            self.server.door.count(|tally| match self.phase.has_closed() {
                true => tally.asked_obeyed += 1,
                false => tally.asked_unheeded += 1,
            });
        }
    }

    /// Answers a request. A CLIENT_CLOSE gets no answer, so that hyper reads no more. It is marked
    /// at once: hyper asks for an answer only when those before are written.
    fn answer(
        self: Rc<Self>,
        request: Request<Incoming>,
    ) -> impl Future<Output = Result<Response<Body>, Infallible>> {
        self.has_parted.set(client_close::is_obeyed(&request));
        self.served.set(self.served.get() + 1);
        let most = self.server.config.max_requests;
        let last = most.is_some_and(|most| self.served.get() >= most);
        async move {
            if self.has_parted.get() {
                return pending().await;
            }
            Ok(Exchange { visit: self, last }.run(request).await)
        }
    }
}

/// One request and its response.
struct Exchange<H> {
    visit: Rc<Visit<H>>,
    /// The connection accepts no request after this one.
    last: bool,
}

impl<H: Handler> Exchange<H> {
    async fn run(self, request: Request<Incoming>) -> Response<Body> {
        let Visit { server, phase, owed, peer, .. } = &*self.visit;
        owed.on_request();
        phase.on_request(server.clock.timer.now(), !request.body().is_end_stream());
        let mut record = server.on_access.is_some().then(|| Unfinished {
            begin: (server.clock.measure)(),
            access: Access::of(*peer, &request),
        });
        let end = End::of(&request, self.last);
        let in_flight = server.door.begin_response();
        let mut response = if let Some(why) = self.parting_fault(&request) {
            let mut response = page(request.headers(), StatusCode::BAD_REQUEST, why);
            let close = HeaderValue::from_static("close");
            response.headers_mut().insert(header::CONNECTION, close);
            response
        } else if let Some(fault) = head::fault(&request) {
            refuse_head(request.headers(), fault)
        } else if in_flight.is_none() {
            too_many(request.headers())
        } else {
            let request = request.map(|body| RequestBody::new(body, phase.clone()));
            server.handler.clone().respond(request).await
        };
        self.complete_head(&mut response, end);
        if let Some(record) = &mut record {
            record.access.status = response.status();
        }
        let status = response.status();
        response.map(|body| self.follow(body, status, record, in_flight))
    }

    /// The error in a CLIENT_CLOSE that the server does not obey. Counts it.
    fn parting_fault(&self, request: &Request<Incoming>) -> Option<&'static str> {
        if !client_close::is_method(request.method()) {
            return None;
        }
        self.visit.server.door.count(|tally| tally.client_closes_refused += 1);
        client_close::fault(request)
    }

    /// Fields that every response has.
    fn complete_head(&self, response: &mut Response<Body>, end: End) {
        let headers = response.headers_mut();
        let Server { date, clock, config, stop, is_pressed, .. } = &*self.visit.server;
        let date = date.at((clock.wall)());
        headers.entry(header::DATE).or_insert(date);
        headers.entry(header::SERVER).or_insert(HeaderValue::from_static("lightwait"));
        if self.last {
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        let closes =
            end.closes || stop.is_requested() || client_close::has_option(headers, "close");
        let is_pressed = || is_pressed.as_ref().is_some_and(|is_pressed| is_pressed());
        if end.may_ask && (config.ask_client && closes || is_pressed()) {
            let option = HeaderValue::from_static(client_close::OPTION);
            headers.append(header::CONNECTION, option);
            self.visit.ask();
        }
    }

    /// A body that, when over, moves the connection on and writes the record.
    fn follow(
        self,
        body: Body,
        status: StatusCode,
        record: Option<Unfinished>,
        in_flight: Option<InFlight>,
    ) -> Body {
        let visit = self.visit;
        let sink = visit.sink.clone();
        body.paced(&sink).reporting(move |body_bytes, complete| {
            drop(in_flight);
            let Visit { server, phase, owed, .. } = &*visit;
            server.door.on_response(status, body_bytes);
            owed.on_response();
            phase.on_response(server.clock.timer.now());
            if let (Some(hook), Some(record)) = (&server.on_access, record) {
                let now = (server.clock.measure)();
                let duration = now.saturating_duration_since(record.begin);
                hook(&Access { body_bytes, complete, duration, ..record.access });
            }
        })
    }
}

/// Which end may close after an answer.
#[derive(Clone, Copy)]
struct End {
    /// The server would close.
    closes: bool,
    /// The server may ask the client to close. A client before HTTP/1.1 waits for our FIN, which
    /// may end the answer.
    may_ask: bool,
}

impl End {
    /// The close after the answer to that request; `is_last`: the connection has no other request
    /// after it.
    fn of(request: &Request<Incoming>, is_last: bool) -> End {
        End {
            closes: is_last || client_close::has_option(request.headers(), "close"),
            may_ask: request.version() == Version::HTTP_11
                && !client_close::is_method(request.method()),
        }
    }
}

/// The answer to a request whose head has a fault.
fn refuse_head(asked: &HeaderMap, fault: Fault) -> Response<Body> {
    let mut response = page(asked, fault.status, fault.detail);
    if fault.closes {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// The answer when too many responses are in flight.
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

#[cfg(test)]
mod tests;
