//! Admits connections and responses, within limits: on all connections, on those of one client, and
//! on responses in flight. Counts what it refuses.

use std::cell::Cell;
use std::collections::HashMap;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use http::StatusCode;

use crate::config::ServerConfig;
use crate::connection::http2::Http2;
use crate::memory::{Charge, ConnectionRoom, Memory};
use crate::patient::Phase;
use crate::tls::Tls;
use crate::waiting::{Answers, Given, Seat, WaitingRoom};

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

/// The connections of each client. Clones share them: the servers of several shards, which are one
/// to their clients.
#[derive(Clone, Debug, Default)]
pub struct Clients {
    /// By the client's hash. Two shards seldom meet at one lock, which a connection takes twice.
    parts: Arc<[Mutex<HashMap<IpAddr, usize>>; CLIENT_PARTS]>,
}

const CLIENT_PARTS: usize = 32;

impl Clients {
    fn part(&self, client: IpAddr) -> MutexGuard<'_, HashMap<IpAddr, usize>> {
        let bits = match client {
            IpAddr::V4(v4) => u64::from(v4.to_bits()),
            // The lower half is no client's own.
            IpAddr::V6(v6) => (v6.to_bits() >> 64) as u64,
        };
        let part = bits.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 59;
        // A panic under a lock leaves nothing half-done.
        self.parts[part as usize % CLIENT_PARTS].lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn held(&self, client: IpAddr) -> usize {
        self.part(client).get(&client).copied().unwrap_or(0)
    }

    /// Counts one more connection; false if the client has as many as `most`.
    fn enter(&self, client: IpAddr, most: usize) -> bool {
        let mut part = self.part(client);
        let connections = part.entry(client).or_default();
        let is_below = *connections < most;
        *connections += usize::from(is_below);
        is_below
    }

    fn leave(&self, client: IpAddr) {
        let mut part = self.part(client);
        if let Some(connections) = part.get_mut(&client) {
            *connections -= 1;
            if *connections == 0 {
                part.remove(&client);
            }
        }
    }

    #[cfg(test)]
    fn is_empty(&self) -> bool {
        self.parts.iter().all(|part| part.lock().expect("nobody panics").is_empty())
    }
}

/// The limits and the counts.
#[derive(Debug)]
struct Inside {
    connections: Cell<usize>,
    clients: Clients,
    responses: Cell<usize>,
    tally: Cell<Tally>,
    /// Apart, as a connection without TLS does not copy it.
    tls: Cell<Tls>,
    http2: Cell<Http2>,
    waiting: WaitingRoom,
    max_connections: usize,
    max_client_connections: usize,
    max_responses: usize,
    memory: Memory,
}

/// The admission control of a server. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Door {
    inside: Rc<Inside>,
}

impl Door {
    pub(crate) fn new(config: &ServerConfig, memory: Memory, clients: Clients) -> Door {
        let (connections, responses, waiting) = Default::default();
        let (tally, tls, http2) = Default::default();
        let inside = Inside {
            connections,
            clients,
            responses,
            tally,
            tls,
            http2,
            waiting,
            max_connections: config.max_connections,
            max_client_connections: config.max_client_connections,
            max_responses: config.max_responses,
            memory,
        };
        Door { inside: Rc::new(inside) }
    }

    /// Admits a connection of `peer`, for as long as the guard lives.
    pub(crate) fn admit(&self, peer: IpAddr, now: Instant) -> Result<Admission, Refusal> {
        self.admit_with(peer, CONNECTION_BYTES, now)
    }

    /// Admits a connection of `peer` that uses so many bytes at first.
    pub(crate) fn admit_with(
        &self,
        peer: IpAddr,
        bytes: usize,
        now: Instant,
    ) -> Result<Admission, Refusal> {
        let inside = &self.inside;
        let client = client_of(peer);
        let Some(most) = client.map_or(Some(0), |client| self.most_of(client, now)) else {
            self.count(|tally| tally.refused_client_connections += 1);
            return Err(Refusal::Client);
        };
        if !self.has_place(now) {
            self.count(|tally| tally.refused_connections += 1);
            return Err(Refusal::Connections);
        }
        if !self.has_memory(now, bytes) {
            self.count(|tally| tally.refused_for_memory += 1);
            return Err(Refusal::Memory);
        }
        // Another shard may have admitted one of this client's meanwhile.
        if client.is_some_and(|client| !inside.clients.enter(client, most)) {
            self.count(|tally| tally.refused_client_connections += 1);
            return Err(Refusal::Client);
        }
        inside.connections.set(inside.connections.get() + 1);
        let charge = self.charge_connection(RESTING_BYTES);
        Ok(Admission { inside: inside.clone(), client, _charge: charge })
    }

    /// True if there is a place for one more connection: one that waits for a request makes room
    /// for it, where the limit is reached.
    fn has_place(&self, now: Instant) -> bool {
        let Inside { connections, waiting, max_connections, .. } = &*self.inside;
        let (held, leaving) = (connections.get(), waiting.leaving(None));
        is_below(*max_connections, held, leaving) || {
            held < max_connections.saturating_add(LEAVING_MAX) && waiting.give_up_a_place(None, now)
        }
    }

    /// How many connections `client` may have now, one more and those on their way out among them;
    /// `None` if it has as many. Where its limit is reached one of its own makes room. How many of
    /// its connections are on their way out on other shards is not known here: it is the place that
    /// was made which lets the new one in.
    fn most_of(&self, client: IpAddr, now: Instant) -> Option<usize> {
        let Inside { clients, waiting, max_client_connections: limit, .. } = &*self.inside;
        let (held, leaving) = (clients.held(client), waiting.leaving(Some(client)));
        if is_below(*limit, held, leaving) {
            return Some(limit.saturating_add(leaving.min(LEAVING_MAX)));
        }
        let most = limit.saturating_add(LEAVING_MAX);
        (held < most && waiting.give_up_a_place(Some(client), now)).then_some(most)
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
        let makes_room = self.send_away(now, bytes);
        self.inside.memory.set_crowded(!makes_room);
        room == ConnectionRoom::Little || makes_room
    }

    /// Makes connections that wait for their peers rest or close, until they free that many bytes.
    /// False if too few of them wait.
    pub(crate) fn send_away(&self, now: Instant, bytes: usize) -> bool {
        let mut given = 0;
        while given < bytes {
            match self.inside.waiting.send_one_away(now) {
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

    /// A place for a connection in the waiting room, which may ask the connection to close.
    pub(crate) fn seat(&self, of: (Phase, Rc<dyn Answers>), peer: IpAddr, now: Instant) -> Seat {
        self.inside.waiting.enter(of, client_of(peer), now)
    }

    /// Lets a response begin, for as long as the guard lives; `None` if too many are in flight.
    pub(crate) fn begin_response(&self) -> Option<InFlight> {
        let inside = &self.inside;
        if inside.responses.get() >= self.inside.max_responses {
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

    pub(crate) fn clients(&self) -> Clients {
        self.inside.clients.clone()
    }

    pub(crate) fn memory(&self) -> Memory {
        self.inside.memory.clone()
    }

    /// Connections inside, and how many there may be.
    pub(crate) fn connections(&self) -> (usize, usize) {
        (self.inside.connections.get(), self.inside.max_connections)
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
