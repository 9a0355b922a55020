//! Admits connections and responses, within limits: on all connections, on those of one client, and
//! on responses in flight. Counts what it refuses.

mod clients;

use std::cell::Cell;
use std::fmt;
use std::net::IpAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use http::StatusCode;
use hyper::rt::Timer;

use crate::Pending;
use crate::config::ServerConfig;
use crate::connection::h2::Http2;
use crate::connection::timeouts::Phase;
use crate::limits::eviction::{Answers, EvictionEntry, EvictionQueue, Given};
use crate::limits::memory::{Charge, ConnectionRoom, Memory};
use crate::tls::Tls;
use crate::within::within;
pub use clients::Clients;

/// Bits of an IPv6 address that tell one client from another. A site has at least a /64 (RFC 6177),
/// so a client could use a new address for each connection.
const CLIENT_BITS_V6: u32 = 64;

/// Why a connection was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// All connections together are at their limit.
    Connections,
    /// The client's connections are at their limit.
    Client,
    /// There is no memory for more, and no connection that waits for its peer can give some.
    Memory,
}

/// How a connection comes in.
pub enum Entry {
    /// It is in.
    Inside(Admission),
    /// Its client is at its limit, and none of its connections here waits. The other servers that
    /// share the [`Clients`] are asked for a place; the future tells within a second.
    Asks(Pending<Result<Admission, Refusal>>),
    /// It must be reset.
    Refused(Refusal),
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Entry::Inside(admission) => f.debug_tuple("Inside").field(admission).finish(),
            Entry::Asks(_) => f.write_str("Asks"),
            Entry::Refused(refusal) => f.debug_tuple("Refused").field(refusal).finish(),
        }
    }
}

/// Counts of refusals, and of closes by either end, since the server began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Responses that are over, by the class of their status: 1xx to 5xx.
    pub responses: [u64; 5],
    /// Bytes of their bodies that were handed to connections.
    pub body_bytes: u64,
    /// Connections refused, because there were too many.
    pub refused_connections: u64,
    /// Connections refused, because there were too many of one client.
    pub refused_client_connections: u64,
    /// Connections refused, because there was no memory for them.
    pub refused_for_memory: u64,
    /// Connections that freed what only requests need, since no request came.
    pub rests: u64,
    /// Connections that waited for their peers, closed because others needed the memory.
    pub closed_for_memory: u64,
    /// Connections that waited for a request longest, or whose peers took nothing of an answer,
    /// closed because a limit was reached and others came.
    pub closed_for_place: u64,
    /// Requests answered with 503, because too many responses were in flight.
    pub refused_responses: u64,
    /// Connections closed, because no request came.
    pub timed_out_idle: u64,
    /// Connections closed, because the head of a request was not complete in time.
    pub timed_out_heads: u64,
    /// Connections closed, because the body of a request stalled.
    pub timed_out_bodies: u64,
    /// Connections reset, because the peer took nothing of what was written.
    pub reset_stalled: u64,
    /// Connections reset, because the peer took too little of it.
    pub reset_slow: u64,
    /// CLIENT_CLOSE requests obeyed: the client closed first.
    pub client_closes: u64,
    /// CLIENT_CLOSE requests whose clients did not close within the grace, so that we closed first,
    /// or reset the connection.
    pub client_closes_unended: u64,
    /// Connections whose clients were asked to close first.
    pub asked: u64,
    /// Connections whose clients obeyed that request.
    pub asked_obeyed: u64,
    /// Connections whose clients did not: the grace ended, the server needed the memory, or the
    /// client reset the connection.
    pub asked_unheeded: u64,
    /// CLIENT_CLOSE requests that are not well formed, answered with 400.
    pub client_closes_refused: u64,
}

/// Memory of a connection for its whole life: the task, and the stack's record. The bench's test
/// `http_memory` checks it.
const RESTING_BYTES: usize = 2 << 10;

/// Memory of a connection beside that while it has requests: hyper's two buffers of 8 KiB, its
/// state (2 KiB), and the request in progress (1 KiB). Measured at the allocator, by heaptrack; two
/// thirds of it are resident until all of it has been written once.
const AWAKE_BYTES: usize = 19 << 10;

/// Memory of a connection beside its buffers, while it has requests: a new one has, as a rule.
pub const CONNECTION_BYTES: usize = RESTING_BYTES + AWAKE_BYTES;

/// Memory of a session of TLS for the connection's whole life: its keys, rustls's state, the
/// records in either direction. The test `a_session_takes_what_is_charged` measures it.
pub const TLS_BYTES: usize = 12 << 10;

/// How many there may be.
#[derive(Clone, Copy, Debug)]
struct Limits {
    connections: usize,
    client_connections: usize,
    responses: usize,
}

impl Limits {
    fn of(config: &ServerConfig) -> Limits {
        Limits {
            connections: config.max_connections,
            client_connections: config.max_client_connections,
            responses: config.max_responses,
        }
    }
}

/// The limits and the counts.
#[derive(Debug)]
struct Inside {
    connections: Cell<usize>,
    clients: Clients,
    /// Connections for which other servers are asked.
    asking: Cell<usize>,
    responses: Cell<usize>,
    tally: Cell<Tally>,
    /// Apart, as a connection without TLS does not copy it.
    tls: Cell<Tls>,
    http2: Cell<Http2>,
    waiting: EvictionQueue,
    limits: Cell<Limits>,
    memory: Memory,
}

/// The admission control of a server. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct AdmissionControl {
    inside: Rc<Inside>,
}

impl AdmissionControl {
    pub(crate) fn new(config: &ServerConfig, memory: Memory, clients: Clients) -> AdmissionControl {
        let (connections, asking, responses, waiting) = Default::default();
        let (tally, tls, http2) = Default::default();
        let inside = Inside {
            connections,
            clients,
            asking,
            responses,
            tally,
            tls,
            http2,
            waiting,
            limits: Cell::new(Limits::of(config)),
            memory,
        };
        AdmissionControl { inside: Rc::new(inside) }
    }

    /// Admits a connection of `peer`, for as long as the guard lives.
    pub(crate) fn admit(&self, peer: IpAddr, now: Instant) -> Result<Admission, Refusal> {
        let admitted = self.try_admit(client_of(peer), CONNECTION_BYTES, now);
        admitted.map_err(|refusal| self.refuse(refusal))
    }

    /// Admits a connection of `peer` that uses so many bytes at first. Where it has no place here,
    /// the servers of other shards are asked.
    pub(crate) fn enter(&self, peer: IpAddr, bytes: usize, timer: &Rc<dyn Timer>) -> Entry {
        let client = client_of(peer);
        match (self.try_admit(client, bytes, timer.now()), client) {
            (Ok(admission), _) => Entry::Inside(admission),
            (Err(Refusal::Client), Some(client)) if self.may_ask() => {
                let asking = Asking::begin(self.inside.clone());
                let later = self.clone().enter_later(client, bytes, timer.clone(), asking);
                Entry::Asks(Box::pin(later))
            }
            (Err(refusal), _) => Entry::Refused(self.refuse(refusal)),
        }
    }

    fn try_admit(
        &self,
        client: Option<IpAddr>,
        bytes: usize,
        now: Instant,
    ) -> Result<Admission, Refusal> {
        let most = client.map_or(Some(0), |client| self.most_of(client, now));
        let most = most.ok_or(Refusal::Client)?;
        self.has_room(bytes, now)?;
        // Another shard may have admitted one of this client's meanwhile.
        if client.is_some_and(|client| !self.inside.clients.enter(client, most)) {
            return Err(Refusal::Client);
        }
        Ok(self.inside(client))
    }

    fn may_ask(&self) -> bool {
        self.inside.asking.get() < ASKING_MAX && self.inside.clients.are_shared()
    }

    /// Asks the other servers for a connection of this client's that waits, and comes in when that
    /// has closed.
    async fn enter_later(
        self,
        client: IpAddr,
        bytes: usize,
        timer: Rc<dyn Timer>,
        _asking: Asking,
    ) -> Result<Admission, Refusal> {
        let (clients, most) = (&self.inside.clients, self.limits().client_connections);
        let entering = async {
            let is_granted = clients.ask(client).await.is_ok();
            if is_granted {
                clients.enter_later(client, most).await;
            }
            is_granted
        };
        if within(&*timer, ASKING_PATIENCE, entering).await != Some(true) {
            return Err(self.refuse(Refusal::Client));
        }
        if let Err(refusal) = self.has_room(bytes, timer.now()) {
            clients.leave(client);
            return Err(self.refuse(refusal));
        }
        Ok(self.inside(Some(client)))
    }

    /// Gives up connections that wait here, for clients that come to other servers which share the
    /// clients. Never returns: the server can be asked while the future lives.
    pub(crate) async fn give_places(&self, timer: Rc<dyn Timer>) {
        let Inside { clients, waiting, .. } = &*self.inside;
        let mut asks = clients.join();
        while let Some(ask) = asks.recv().await {
            match waiting.evict_for_other_server(ask.client, timer.now()) {
                true => ask.grant(),
                false => clients.pass(ask),
            }
        }
    }

    /// A connection that has a place; its client has counted it.
    fn inside(&self, client: Option<IpAddr>) -> Admission {
        let inside = self.inside.clone();
        inside.connections.set(inside.connections.get() + 1);
        let charge = self.charge_connection(RESTING_BYTES);
        Admission { inside, client, _charge: charge }
    }

    fn refuse(&self, refusal: Refusal) -> Refusal {
        self.count(|tally| match refusal {
            Refusal::Connections => tally.refused_connections += 1,
            Refusal::Client => tally.refused_client_connections += 1,
            Refusal::Memory => tally.refused_for_memory += 1,
        });
        refusal
    }

    /// A place and so many bytes for one more connection, or the one that lacks.
    fn has_room(&self, bytes: usize, now: Instant) -> Result<(), Refusal> {
        if !self.has_place(now) {
            return Err(Refusal::Connections);
        }
        let has_memory = self.has_memory(now, bytes);
        if has_memory { Ok(()) } else { Err(Refusal::Memory) }
    }

    /// True if there is a place for one more connection: one that waits for a request makes room
    /// for it, where the limit is reached.
    fn has_place(&self, now: Instant) -> bool {
        let Inside { connections, waiting, .. } = &*self.inside;
        let (held, leaving) = (connections.get(), waiting.leaving(None));
        let most = self.limits().connections;
        is_below(most, held, leaving) || {
            held < most.saturating_add(LEAVING_MAX) && waiting.evict_for_place(None, now)
        }
    }

    /// How many connections `client` may have now, one more and those on their way out among them;
    /// `None` if it has as many. Where its limit is reached one of its own makes room that waits on
    /// this shard. How many of its connections are on their way out on other shards is not known
    /// here: it is the place that was made which lets the new one in.
    fn most_of(&self, client: IpAddr, now: Instant) -> Option<usize> {
        let Inside { clients, waiting, .. } = &*self.inside;
        let limit = self.limits().client_connections;
        let (held, leaving) = (clients.held(client), waiting.leaving(Some(client)));
        if is_below(limit, held, leaving) {
            return Some(limit.saturating_add(leaving.min(LEAVING_MAX)));
        }
        let most = limit.saturating_add(LEAVING_MAX);
        (held < most && waiting.evict_for_place(Some(client), now)).then_some(most)
    }

    /// True if a connection may use the memory that requests need.
    pub(crate) fn may_wake(&self, now: Instant) -> bool {
        self.has_memory(now, AWAKE_BYTES)
    }

    /// True if there is memory for `bytes` of a connection. Where memory is short, connections that
    /// wait for their peers give some back.
    fn has_memory(&self, now: Instant, bytes: usize) -> bool {
        let room = self.inside.memory.room_for_connection(bytes);
        if room == ConnectionRoom::Enough {
            return true;
        }
        let makes_room = self.evict(now, bytes);
        self.inside.memory.set_crowded(!makes_room);
        room == ConnectionRoom::Little || makes_room
    }

    /// Makes connections that wait for their peers rest or close, until they free that many bytes.
    /// False if too few of them wait.
    pub(crate) fn evict(&self, now: Instant, bytes: usize) -> bool {
        let mut given = 0;
        while given < bytes {
            match self.inside.waiting.evict_for_memory(now) {
                Some(Given::Awake) => given += AWAKE_BYTES,
                Some(Given::Resting) => given += RESTING_BYTES,
                Some(Given::Both) => given += CONNECTION_BYTES,
                None => return false,
            }
        }
        true
    }

    /// Charges the memory that a connection uses while it has requests.
    pub(crate) fn charge_awake(&self) -> Charge {
        self.charge_connection(AWAKE_BYTES)
    }

    /// Charges bytes that a connection uses from now on until it is over.
    pub(crate) fn charge_connection(&self, bytes: usize) -> Charge {
        self.inside.memory.charge_connection(bytes)
    }

    /// Enters a connection into the queue, which may ask the connection to close.
    pub(crate) fn enqueue(
        &self,
        of: (Phase, Rc<dyn Answers>),
        peer: IpAddr,
        now: Instant,
    ) -> EvictionEntry {
        self.inside.waiting.enter(of, client_of(peer), now)
    }

    /// Lets a response begin, for as long as the guard lives; `None` if too many are in flight.
    pub(crate) fn begin_response(&self) -> Option<InFlight> {
        let inside = &self.inside;
        if inside.responses.get() >= self.limits().responses {
            self.count(|tally| tally.refused_responses += 1);
            return None;
        }
        inside.responses.set(inside.responses.get() + 1);
        Some(InFlight(inside.clone()))
    }

    /// Counts a response that is over.
    pub(crate) fn on_response(&self, status: StatusCode, body_bytes: u64) {
        let class = usize::from(status.as_u16() / 100).clamp(1, 5) - 1;
        self.count(|tally| {
            tally.responses[class] += 1;
            tally.body_bytes += body_bytes;
        });
    }

    fn limits(&self) -> Limits {
        self.inside.limits.get()
    }

    /// Holds from now on to the limits of `config`. Connections that wait close until there are as
    /// few as may be; others stay until they wait.
    pub(crate) fn set_limits(&self, config: &ServerConfig, now: Instant) {
        let Inside { limits, connections, waiting, .. } = &*self.inside;
        limits.set(Limits::of(config));
        let left = || connections.get().saturating_sub(waiting.leaving(None));
        while left() > config.max_connections && waiting.evict_for_place(None, now) {}
    }

    pub(crate) fn clients(&self) -> Clients {
        self.inside.clients.clone()
    }

    pub(crate) fn memory(&self) -> Memory {
        self.inside.memory.clone()
    }

    /// Connections inside, and how many there may be.
    pub(crate) fn connections(&self) -> (usize, usize) {
        (self.inside.connections.get(), self.limits().connections)
    }

    pub(crate) fn tally(&self) -> Tally {
        self.inside.tally.get()
    }

    pub(crate) fn tls(&self) -> Tls {
        self.inside.tls.get()
    }

    pub(crate) fn count_tls(&self, count: impl FnOnce(&mut Tls)) {
        let mut tls = self.inside.tls.get();
        count(&mut tls);
        self.inside.tls.set(tls);
    }

    pub(crate) fn http2(&self) -> Http2 {
        self.inside.http2.get()
    }

    pub(crate) fn count_http2(&self, count: impl FnOnce(&mut Http2)) {
        let mut http2 = self.inside.http2.get();
        count(&mut http2);
        self.inside.http2.set(http2);
    }

    pub(crate) fn count(&self, count: impl FnOnce(&mut Tally)) {
        let mut tally = self.inside.tally.get();
        count(&mut tally);
        self.inside.tally.set(tally);
    }
}

/// Connections that may be on their way out beside as many as the limit: each ends in the same
/// turn, unless its request comes at that moment.
const LEAVING_MAX: usize = 64;

/// Connections of one shard for which other servers are asked at most.
const ASKING_MAX: usize = 64;
/// How long those may take: a shard that is busy answers between two turns, and a connection that
/// waits closes in one.
const ASKING_PATIENCE: Duration = Duration::from_secs(1);

/// A connection for which other servers are asked.
struct Asking(Rc<Inside>);

impl Asking {
    fn begin(inside: Rc<Inside>) -> Asking {
        inside.asking.set(inside.asking.get() + 1);
        Asking(inside)
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        self.0.asking.set(self.0.asking.get() - 1);
    }
}

/// True if so many connections, of which some are on their way out, are fewer than the limit.
fn is_below(limit: usize, held: usize, leaving: usize) -> bool {
    held.saturating_sub(leaving) < limit && held < limit.saturating_add(LEAVING_MAX)
}

/// The client that a connection counts against; `None` for the loopback.
fn client_of(peer: IpAddr) -> Option<IpAddr> {
    match peer.to_canonical() {
        peer if peer.is_loopback() => None,
        IpAddr::V6(v6) => {
            let mask = u128::MAX << (128 - CLIENT_BITS_V6);
            Some(IpAddr::from((u128::from(v6) & mask).to_be_bytes()))
        }
        v4 @ IpAddr::V4(_) => Some(v4),
    }
}

/// An admitted connection.
#[derive(Debug)]
pub struct Admission {
    inside: Rc<Inside>,
    client: Option<IpAddr>,
    _charge: Charge,
}

impl Drop for Admission {
    fn drop(&mut self) {
        let inside = &self.inside;
        inside.connections.set(inside.connections.get() - 1);
        if let Some(client) = self.client {
            inside.clients.leave(client);
        }
    }
}

/// A response in flight.
#[derive(Debug)]
pub(crate) struct InFlight(Rc<Inside>);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.responses.set(self.0.responses.get() - 1);
    }
}

#[cfg(test)]
mod tests;
