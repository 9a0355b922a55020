//! One connection: hyper between a byte stream with timeouts and a handler. Enforces limits, and
//! stops gracefully.

mod access_log;
mod entry;
mod h1;
pub(crate) mod h2;
pub(crate) mod replay;
pub(crate) mod secured;
mod sink;
pub(crate) mod stop;
pub(crate) mod timeouts;

use std::cell::Cell;
use std::fmt;
use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use http::header::{self, HeaderMap, HeaderValue};
use http::{Request, Response};
use hyper::rt::{Read, Write};
use hyper::server::conn::http1;

use crate::access::Access;
use crate::body::{Body, RequestBody, Sink};
use crate::config::ServerConfig;
use crate::connection::h1::refusal::{RefusingStream, ResponseState};
use crate::connection::stop::{Stop, Tracked, Wait};
use crate::connection::timeouts::{Bounds, Phase, TimeoutStream};
use crate::control::Control;
use crate::date::Date;
use crate::limits::admission::{AdmissionControl, Clients};
use crate::limits::eviction::{EvictionEntry, Wanted};
use crate::limits::memory::Memory;
use crate::{Clock, Pending};
use access_log::AccessLog;
use secured::HttpsPolicy;
use sink::ResponseSink;

/// hyper's least buffer for a request's head.
const LEAST_HEADER_BYTES: usize = 8192;

/// Answers requests.
pub trait Handler: 'static {
    /// The response to a request. `Date` and `Server` are added by the connection.
    fn respond(self: Rc<Self>, request: Request<RequestBody>) -> Pending<Response<Body>>;
}

/// Called once for each response that the peer has, or that was cut short.
type AccessHook = Rc<dyn Fn(Access)>;

/// Serves connections of one shard: hyper, limits, timeouts, and a graceful stop.
pub struct Server<H> {
    handler: Rc<H>,
    config: ServerConfig,
    /// What holds of [`ServerConfig::redirect_to`] and [`ServerConfig::strict_transport`] now.
    https: Cell<HttpsPolicy>,
    clock: Clock,
    stop: Stop,
    on_access: Option<AccessHook>,
    /// True while the server should ask clients to close first on every answer.
    is_pressed: Option<Rc<dyn Fn() -> bool>>,
    date: Date,
    http: http1::Builder,
    admissions: AdmissionControl,
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
            .header_read_timeout(None) // `TimeoutStream` tells waiting from reading.
            .max_buf_size(header_bytes)
            .max_header_size(header_bytes)
            .max_headers(config.max_header_fields);
        let handler = Rc::new(handler);
        let (stop, date) = (Stop::new(), Date::default());
        let admissions = AdmissionControl::new(&config, Memory::boundless(), Clients::default());
        let bounds = Rc::new(Bounds::new(&config));
        let (on_access, is_pressed) = Default::default();
        let https = Cell::new(HttpsPolicy::of(&config));
        Server {
            handler,
            config,
            https,
            clock,
            stop,
            on_access,
            is_pressed,
            date,
            http,
            admissions,
            bounds,
        }
    }

    /// Makes the server call `hook` once for each response, when the peer has acknowledged it or
    /// the connection is over.
    pub fn on_access(mut self, hook: impl Fn(Access) + 'static) -> Self {
        self.on_access = Some(Rc::new(hook));
        self
    }

    /// Makes the server ask clients of HTTP/1.1 to close ([`client_close`](crate::client_close)) on
    /// every answer while `is_pressed` returns true, which it does where TIME-WAIT fills up.
    pub fn ask_clients_while(mut self, is_pressed: impl Fn() -> bool + 'static) -> Self {
        self.is_pressed = Some(Rc::new(is_pressed));
        self
    }

    /// Charges connections to `memory`, and refuses them where there is none.
    pub fn with_memory(self, memory: Memory) -> Self {
        let admissions = AdmissionControl::new(&self.config, memory, self.admissions.clients());
        Server { admissions, ..self }
    }

    /// Counts connections of one client together with the servers that share `clients`. The limit
    /// holds for all of them. One that waits makes room on any server that
    /// [gives places](Server::give_places), for those that [enter](Server::enter).
    pub fn with_clients(self, clients: Clients) -> Self {
        let admissions = AdmissionControl::new(&self.config, self.admissions.memory(), clients);
        Server { admissions, ..self }
    }

    /// The signal that stops the server: connections finish their responses and close, or are cut.
    pub fn stop(&self) -> &Stop {
        &self.stop
    }

    /// The handler, which answers requests.
    pub fn handler(&self) -> &H {
        &self.handler
    }

    /// Serves one connection over a stream whose transport cannot be controlled. See
    /// [`Server::serve_controlled`].
    ///
    /// # Errors
    /// Those of [`Server::serve_controlled`].
    pub fn serve<I>(
        self: Rc<Self>,
        io: I,
        peer: SocketAddr,
    ) -> impl Future<Output = Result<(), hyper::Error>> + use<H, I>
    where
        I: Read + Write + Unpin + 'static,
    {
        self.serve_controlled(io, (), peer)
    }

    /// Serves one connection until it is over. Resets it by `control` if its peer takes too little
    /// of the data that it asked for.
    ///
    /// # Errors
    /// An error of hyper: the peer broke the protocol, a timeout ended, or the stream failed. The
    /// server has answered all that it could.
    pub fn serve_controlled<I, C>(
        self: Rc<Self>,
        io: I,
        control: C,
        peer: SocketAddr,
    ) -> impl Future<Output = Result<(), hyper::Error>> + use<H, I, C>
    where
        I: Read + Write + Unpin + 'static,
        C: Control + Clone + Unpin,
    {
        let phase = Phase::new(self.clock.timer.now());
        self.run((io, control), phase, peer, false)
    }

    /// Serves one connection until it is over. What it is made of is made at once, so that its task
    /// has no room for what that was made from.
    fn run<I, C>(
        self: Rc<Self>,
        (io, control): (I, C),
        phase: Phase,
        peer: SocketAddr,
        is_secured: bool,
    ) -> impl Future<Output = Result<(), hyper::Error>> + use<H, I, C>
    where
        I: Read + Write + Unpin + 'static,
        C: Control + Clone + Unpin,
    {
        let tracked = self.stop.track();
        let now = self.clock.timer.now();
        let sink = Rc::new(ResponseSink::new(control.clone(), phase.clone()));
        let state =
            ConnectionState::new(self.clone(), phase.clone(), sink.clone(), peer, is_secured);
        let (timer, admissions) = (self.clock.timer.clone(), self.admissions.clone());
        let waits = Waits {
            entry: self.admissions.enqueue((phase.clone(), sink), peer.ip(), now),
            stop: self.stop.wait_requested(),
            is_stopping: false,
            control: control.clone(),
        };
        let io = TimeoutStream::new((io, control), timer, phase, self.bounds.clone(), admissions);
        let io = Box::new(RefusingStream::new(io, state.response_state.clone()));
        Rc::new(state).attend(io, waits, tracked)
    }

    /// Closes a connection that waits for its peer, because others need its memory or its place.
    fn leave(&self, phase: &Phase, control: &impl Control, wanted: Wanted) {
        self.admissions.count(|tally| match wanted {
            wanted if wanted.is_place() => tally.closed_for_place += 1,
            _ => tally.closed_for_memory += 1,
        });
        // Data that the peer has not taken would go on waiting for it.
        if control.undelivered_bytes().is_some_and(|bytes| bytes > 0) {
            phase.abort(control);
        }
    }
}

/// The events beside its peer's that a connection waits for.
struct Waits<C> {
    entry: EvictionEntry,
    /// A stop; after that, a cut.
    stop: Wait,
    is_stopping: bool,
    control: C,
}

impl<C> Waits<C> {
    /// Ready once the server cuts its connections. Calls `on_stop` when it only stops.
    fn poll_cut(
        &mut self,
        cx: &mut Context<'_>,
        stop: &Stop,
        mut on_stop: impl FnMut(),
    ) -> Poll<()> {
        while Pin::new(&mut self.stop).poll(cx).is_ready() {
            if self.is_stopping {
                return Poll::Ready(());
            }
            self.is_stopping = true;
            self.stop = stop.wait_cut();
            on_stop();
        }
        Poll::Pending
    }
}

/// The outcome of a connection's awake time.
enum Awake<T> {
    /// It waits for the next request, and has for a while.
    Rests(T),
    Over(T, Result<(), hyper::Error>),
}

/// One connection, as its requests see it.
struct ConnectionState<H> {
    server: Rc<Server<H>>,
    phase: Phase,
    response_state: ResponseState,
    sink: Rc<dyn Sink>,
    /// Its records, if the server writes some.
    log: Option<Box<AccessLog>>,
    /// How many requests have come.
    served: Cell<u64>,
    /// Nobody on the way can read or change it.
    is_secured: bool,
    /// The client has said that it closes.
    has_parted: Cell<bool>,
    /// The client was asked to close first.
    is_asked: Cell<bool>,
    /// A stop cut the connection while the client lacked some of an answer.
    is_cut_short: Cell<bool>,
}

impl<H: Handler> ConnectionState<H> {
    fn new<C: Control>(
        server: Rc<Server<H>>,
        phase: Phase,
        sink: Rc<ResponseSink<C>>,
        peer: SocketAddr,
        is_secured: bool,
    ) -> ConnectionState<H> {
        let (response_state, served, has_parted, is_asked, is_cut_short) = Default::default();
        let log = server.on_access.as_ref().map(|hook| {
            let (measure, admissions) = (server.clock.measure.clone(), server.admissions.clone());
            let wire = sink.clone();
            Box::new(AccessLog::new(hook.clone(), peer, measure, wire, phase.clone(), admissions))
        });
        let sink = sink;
        ConnectionState {
            server,
            phase,
            response_state,
            sink,
            log,
            served,
            is_secured,
            has_parted,
            is_asked,
            is_cut_short,
        }
    }

    /// Serves the connection until it is over.
    async fn attend<I, C>(
        self: Rc<Self>,
        mut io: Box<RefusingStream<TimeoutStream<I, C>>>,
        mut waits: Waits<C>,
        _tracked: Tracked,
    ) -> Result<(), hyper::Error>
    where
        I: Read + Write + Unpin + 'static,
        C: Control + Unpin,
    {
        let outcome = loop {
            if !poll_fn(|cx| self.poll_rest(cx, &mut io, &mut waits)).await {
                break Ok(());
            }
            // Boxed: a connection that waits for the next request has no room for it.
            let awake = match self.phase.is_http2() {
                false => Box::pin(self.clone().serve_h1(io, &mut waits)).await,
                true => Box::pin(self.clone().serve_h2(io, &mut waits)).await,
            };
            match awake {
                Awake::Rests(rested) => io = rested,
                Awake::Over(over, outcome) => {
                    io = over;
                    break outcome;
                }
            }
        };
        poll_fn(|cx| self.poll_delivered(cx, &mut io.inner, &mut waits)).await;
        self.leave();
        outcome
    }

    /// Waits for the first byte of a request, or another event for hyper; returns true then.
    /// Returns false if the connection is over. Logs what is
    /// acknowledged meanwhile.
    fn poll_rest<I, C>(
        &self,
        cx: &mut Context<'_>,
        io: &mut RefusingStream<TimeoutStream<I, C>>,
        waits: &mut Waits<C>,
    ) -> Poll<bool>
    where
        I: Read + Write + Unpin,
        C: Control + Unpin,
    {
        let server = &self.server;
        self.poll_log(cx);
        if waits.control.is_closed() {
            return Poll::Ready(false);
        }
        if io.poll_first(cx).is_ready() {
            let has_memory = server.admissions.may_wake(server.clock.timer.now());
            if !has_memory {
                server.leave(&self.phase, &waits.control, Wanted::Memory);
            }
            return Poll::Ready(has_memory);
        }
        if Pin::new(&mut waits.stop).poll(cx).is_ready() {
            return Poll::Ready(true);
        }
        let wanted = waits.entry.wanted(cx);
        if wanted != Wanted::Nothing {
            server.leave(&self.phase, &waits.control, wanted);
            return Poll::Ready(false);
        }
        Poll::Pending
    }

    /// Writes the records of responses that the peer has acknowledged.
    fn poll_log(&self, cx: &mut Context<'_>) {
        if let Some(log) = &self.log {
            log.poll(cx, self.response_state.is_settled());
        }
    }

    /// Waits until the peer has acknowledged its responses: until then the connection keeps its
    /// place, and counts against its client. Where others need what it has, it goes at once.
    /// Writes the records that are left.
    fn poll_delivered<I, C>(
        &self,
        cx: &mut Context<'_>,
        io: &mut TimeoutStream<I, C>,
        waits: &mut Waits<C>,
    ) -> Poll<()>
    where
        C: Control + Unpin,
    {
        self.poll_log(cx);
        let is_delivered = match &self.log {
            Some(log) => log.is_empty() || log.has_all(),
            None => waits.control.poll_acknowledged(cx).is_ready(),
        };
        let is_over = is_delivered || waits.control.is_closed() || self.is_wanted(cx, waits);
        if !is_over && io.poll_timeouts(cx).is_pending() {
            ready!(waits.poll_cut(cx, &self.server.stop, || {}));
            self.is_cut_short.set(true);
        }
        if let Some(log) = &self.log {
            log.finish();
        }
        Poll::Ready(())
    }

    /// True if others need the memory of a connection that has said all, or its place. Where it is
    /// the memory, its peer may still take the answer: the stack needs no task for that.
    fn is_wanted<C: Control>(&self, cx: &mut Context<'_>, waits: &Waits<C>) -> bool {
        let wanted = waits.entry.wanted(cx);
        if wanted.is_place() {
            self.server.leave(&self.phase, &waits.control, wanted);
        }
        wanted != Wanted::Nothing
    }

    /// Adds the fields that every response has, whatever the connection speaks.
    fn sign(&self, headers: &mut HeaderMap) {
        let Server { date, clock, https, .. } = &*self.server;
        let date = date.at((clock.wall)());
        headers.entry(header::DATE).or_insert(date);
        headers.entry(header::SERVER).or_insert(HeaderValue::from_static("lightwait"));
        if self.is_secured {
            https.get().say_strict_transport(headers);
        }
    }

    /// Asks the client to close first.
    fn ask(&self) {
        self.phase.yield_close();
        if !self.is_asked.replace(true) {
            self.server.admissions.count(|tally| tally.asked += 1);
        }
    }

    /// Notes, at the end of the connection, whether the client did as it was asked, and whether it
    /// has its answers.
    fn leave(&self) {
        if self.is_cut_short.get() {
            self.server.stop.on_cut_short();
        }
        if self.is_asked.get() {
            self.server.admissions.count(|tally| match self.phase.has_closed() {
                true => tally.asked_obeyed += 1,
                false => tally.asked_unheeded += 1,
            });
        }
    }
}

#[cfg(test)]
mod tests;
