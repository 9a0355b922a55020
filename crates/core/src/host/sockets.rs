//! The socket calls: RFC 9293 §3.10.1–3.10.6, in the shape that sockets have.

mod closing;
mod listing;
mod sending;

use alloc::sync::Arc;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

pub use listing::{
    ConnectionDetail, HalfOpenInfo, ListenerInfo, LiveConnection, RecordInfo, Socket, SocketPlace,
};

use super::Host;
use super::after_input::{make_ready, publish};
use super::identity::TupleChoice;
use super::parts::Live;
use crate::error::{AcceptError, ConnectError, Error, NoSuchConnection, ReadError};
use crate::event::{ConnectionId, ListenerId, Readiness};
use crate::flow::Tuple;
use crate::tcp::connection::{Blocked, Context, Identity, SynSent};
use crate::tcp::isn::Beginning;
use crate::tcp::slot::{Seat, Slot, SlotFlags, Slots};
use crate::tcp::terms::Terms;
use crate::tcp::{Account, Connection, ConnectionInfo, Delivery, SocketOptions, State};
use crate::time::Instant;

impl Host {
    // ---- listeners

    /// Listens on `local`; the unspecified address stands for all of ours of its version (`[::]`
    /// for both versions). Port 0 picks one. `backlog`: connections that may wait for `accept`.
    pub fn listen(&mut self, local: SocketAddr, backlog: usize) -> Result<ListenerId, Error> {
        self.listen_with(local, backlog, self.default_options())
    }

    /// Listens on `local` as [`Host::listen`] does; the connections that it accepts start with
    /// `options`.
    pub fn listen_with(
        &mut self,
        local: SocketAddr,
        backlog: usize,
        options: SocketOptions,
    ) -> Result<ListenerId, Error> {
        if !local.ip().is_unspecified() && !self.ip.takes_or_will(local.ip()) {
            return Err(Error::AddressNotAvailable);
        }
        let port = match local.port() {
            0 => self.free_listening_port()?,
            port => port,
        };
        let local = SocketAddr::new(local.ip(), port);
        let terms = Terms::announced(&self.config, &options);
        let listener = self.opening.listeners.insert(local, backlog, Arc::new(options), terms);
        listener.ok_or(Error::AddressInUse)
    }

    fn free_listening_port(&mut self) -> Result<u16, Error> {
        let (first, last) = self.config.ephemeral_ports;
        let size = u32::from(last - first) + 1;
        let start = self.opening.rng.below(size);
        // Both terms of the sum are below 2^16.
        let mut ports = (0..size).map(|i| first + ((start + i) % size) as u16);
        ports.find(|port| !self.opening.listeners.has_port(*port)).ok_or(Error::AddressInUse)
    }

    /// Where it listens.
    pub fn listener_address(&self, id: ListenerId) -> Result<SocketAddr, Error> {
        let listener =
            self.opening.listeners.get(id).ok_or(Error::InvalidInput("no such listener"))?;
        Ok(listener.local)
    }

    /// Changes what connections that are accepted from now on start with.
    pub fn set_listener_options(
        &mut self,
        id: ListenerId,
        options: SocketOptions,
    ) -> Result<(), Error> {
        let listener =
            self.opening.listeners.get_mut(id).ok_or(Error::InvalidInput("no such listener"))?;
        listener.terms = Terms::announced(&self.config, &options);
        listener.options = Arc::new(options);
        Ok(())
    }

    /// The oldest established connection not yet accepted, or [`AcceptError::WouldBlock`].
    pub fn accept(&mut self, now: Instant, id: ListenerId) -> Result<ConnectionId, AcceptError> {
        let listener = self
            .opening
            .listeners
            .get_mut(id)
            .ok_or(AcceptError::InvalidInput("no such listener"))?;
        let index = listener.queue.pop_front().ok_or(AcceptError::WouldBlock)?;
        let Some((slot, generation)) = self.slots.named_mut(index) else {
            return Err(AcceptError::InvalidInput("no such connection"));
        };
        let id = ConnectionId { index, generation };
        slot.accepting = None;
        let connection = slot.connection_mut();
        connection.common.notices |= connection.readiness(self.shared.sizing(now));
        if publish(slot, id, &mut self.live.ready, &mut self.events) {
            self.reap(now, index);
        }
        Ok(id)
    }

    /// Stops listening; what was not accepted is reset, and half-open handshakes are forgotten.
    pub fn close_listener(&mut self, now: Instant, id: ListenerId) {
        let Some(listener) = self.opening.listeners.remove(id) else { return };
        self.opening.held.forget(id);
        for entry in self.opening.syn_cache.waiting_for(id) {
            self.remove_half_open(entry);
        }
        for index in listener.queue {
            if let Some((slot, generation)) = self.slots.named_mut(index) {
                slot.accepting = None;
                self.leave(now, ConnectionId { index, generation }, true);
            }
        }
    }

    // ---- opening

    /// Opens a connection. An unspecified local address picks one of ours, a local port of 0 an
    /// ephemeral port. The connection becomes writable once it is established; a failure shows as
    /// [`Readiness::CLOSED`], and in [`Host::take_error`].
    pub fn connect(
        &mut self,
        now: Instant,
        local: SocketAddr,
        remote: SocketAddr,
    ) -> Result<ConnectionId, ConnectError> {
        self.open(now, local, remote, None)
    }

    /// Opens a connection as [`Host::connect`] does, with `options` in force from the SYN on.
    pub fn connect_with(
        &mut self,
        now: Instant,
        local: SocketAddr,
        remote: SocketAddr,
        options: SocketOptions,
    ) -> Result<ConnectionId, ConnectError> {
        self.open(now, local, remote, Some(&Arc::new(options)))
    }

    fn open(
        &mut self,
        now: Instant,
        local: SocketAddr,
        remote: SocketAddr,
        options: Option<&Arc<SocketOptions>>,
    ) -> Result<ConnectionId, ConnectError> {
        let ends = match (local, remote) {
            (SocketAddr::V4(local), SocketAddr::V4(remote)) => Tuple::new(
                (IpAddr::V4(*local.ip()), local.port()),
                (IpAddr::V4(*remote.ip()), remote.port()),
            ),
            _ => tuple_between(&local, &remote),
        };
        // RFC 9293 MUST-46, RFC 1122 §3.2.1.3: no group, broadcast or loopback.
        let is_plain = self.ip.is_plain_route(now, &ends);
        if remote.port() == 0 || !(is_plain || self.ip.is_host(remote.ip())) {
            return Err(ConnectError::InvalidInput(why_no_remote(remote)));
        }
        if self.connections() >= self.limits().connections {
            return Err(ConnectError::Limit);
        }
        let mut choice = TupleChoice::of(ends);
        let chosen = if is_plain && local.port() == 0 {
            self.pick_port(now, &mut choice)
        } else {
            self.choose_tuple(now, local, remote, &mut choice)
        };
        if let Err(error) = chosen {
            if error == ConnectError::AddressNotAvailable && local.port() == 0 {
                self.shared.counters.ports_exhausted += 1;
            }
            return Err(error);
        }
        let TupleChoice { tuple, hash, predecessor, is_over } = &choice;
        let Beginning { isn, stamp_offset } = self.choose_isn(now, tuple);
        let iss = predecessor.map_or(isn, |predecessor| isn.max(predecessor.isn_floor()));
        if *is_over {
            self.end_time_wait(*hash, tuple);
        }
        let asks = self.asks(now, tuple, options);
        let mut block = self.take_block();
        let (options, terms) = match options {
            Some(options) => (options, Terms::announced(&self.config, options)),
            None => (&self.opening.options, self.opening.terms),
        };
        let syn = SynSent {
            iss,
            stamp_offset,
            sent_at: now,
            attempts: 0,
            mss: terms.mss(tuple.is_ipv6()),
            offer: self.shared.budget.offer(terms.offer),
            ipv6: tuple.is_ipv6(),
            asks_ecn: self.shared.config.ecn.asks(options.congestion),
            predecessor: *predecessor,
            asks,
        };
        // What follows the handshake is due sooner than the SYN again.
        let expected = now + self.shared.config.rto.floor;
        let identity = Identity { hash: *hash, ports: tuple.ports() };
        block.open(identity, options, syn, now, expected);
        let is_ours = !is_plain && self.ip.is_to_ourselves(tuple);
        let flags = SlotFlags::OURSELVES.only_if(is_ours);
        let flags = flags.with(SlotFlags::REUSE, predecessor.is_some());
        let flags = flags.with(SlotFlags::ASKS, asks.is_some());
        let id = self.add_connection(block, Seat { tuple, flags, accepting: None });
        self.shared.counters.active_opens += 1;
        Ok(id)
    }

    fn choose_tuple(
        &mut self,
        now: Instant,
        local: SocketAddr,
        remote: SocketAddr,
        choice: &mut TupleChoice,
    ) -> Result<(), ConnectError> {
        if local.is_ipv4() != remote.is_ipv4() {
            return Err(ConnectError::InvalidInput(
                "the two addresses are of different IP versions",
            ));
        }
        if local.ip().is_unspecified() && local.port() == 0 {
            let is_found = self.pick_source(now, remote, choice);
            return if is_found { Ok(()) } else { Err(ConnectError::AddressNotAvailable) };
        }
        let address = match local.ip() {
            ip if ip.is_unspecified() => self
                .ip
                .source_for(remote.ip(), &mut self.opening.rng)
                .ok_or(ConnectError::NetworkUnreachable)?,
            ip if self.ip.takes(ip) => ip,
            _ => return Err(ConnectError::AddressNotAvailable),
        };
        choice.tuple = Tuple::new((address, local.port()), (remote.ip(), remote.port()));
        self.take_or_pick(now, choice)
    }

    /// Claims the tuple, or with an ephemeral port of ours if it has none.
    fn take_or_pick(&mut self, now: Instant, choice: &mut TupleChoice) -> Result<(), ConnectError> {
        if choice.tuple.local_port() == 0 {
            return self.pick_port(now, choice);
        }
        if self.ip.shards.elsewhere(&choice.tuple).is_some() {
            // The answers would come to a shard that knows nothing of it.
            return Err(ConnectError::AddressNotAvailable);
        }
        if self.may_take(now, choice) { Ok(()) } else { Err(ConnectError::AddressInUse) }
    }

    // ---- data; to be sent: sockets/sending.rs

    /// Moves received bytes into `out` and returns how many; 0 is the end of the stream (or an
    /// empty `out`); [`ReadError::WouldBlock`] when there is nothing yet.
    pub fn read(
        &mut self,
        now: Instant,
        id: ConnectionId,
        out: &mut [u8],
    ) -> Result<usize, ReadError> {
        let Host { slots, shared, live: Live { ready, .. }, .. } = self;
        let slot = named(slots, id)?;
        let connection = slot.connection_mut();
        let read = connection.read(out, shared.at(now));
        let (taken, is_told) = read?;
        if taken == 0 {
            let error = if out.is_empty() { None } else { connection.take_error() };
            return error.map_or(Ok(0), |error| Err(ReadError::Failed(error)));
        }
        if is_told || connection.may_rest(&shared.config) {
            make_ready(slot, id.index, ready);
        }
        Ok(taken)
    }

    /// Copies received bytes into `out` as [`Host::read`] does, but leaves them in the buffer.
    pub fn peek(&self, id: ConnectionId, out: &mut [u8]) -> Result<usize, ReadError> {
        self.slot(id)?.view().peek(out)
    }

    /// How many bytes, counted from the next to read, lie up to and with the last urgent one
    /// (RFC 9293 MUST-33); `None` if there is no urgent data ahead.
    pub fn urgent_mark(&self, id: ConnectionId) -> Option<u32> {
        let recv = &self.slot(id).ok()?.awake()?.synchronized()?.recv;
        recv.urgent().map(|urgent| urgent.since(recv.read_position()))
    }

    // ---- asking

    /// The calls that are possible at `now`.
    pub fn readiness(&self, now: Instant, id: ConnectionId) -> Readiness {
        let Ok(slot) = self.slot(id) else { return Readiness::CLOSED };
        let cx = self.shared.sizing(now);
        let Some(connection) = slot.awake() else { return slot.view().readiness(cx) };
        let ready = connection.readiness(cx);
        let takes_none = cx.pool.is_scarce() && !connection.has_room_where_scarce(cx);
        if takes_none { ready.without(Readiness::WRITABLE) } else { ready }
    }

    /// The error that ended the connection, once.
    pub fn take_error(&mut self, id: ConnectionId) -> Option<Error> {
        let (connection, _) = self.connection_and_shared(id).ok()?;
        connection.take_error()
    }

    /// The error that keeps the connection from going on and may pass, if there is one: of ICMP, or
    /// [`Error::TimedOut`] after three retransmissions in vain (RFC 9293 MUST-47, SHLD-9, SHLD-25).
    /// It ends nothing; an acknowledgement that goes on ends it.
    pub fn soft_error(&self, id: ConnectionId) -> Option<Error> {
        self.slot(id).ok()?.awake()?.soft_error()
    }

    /// The state; CLOSED for a name that is dead.
    pub fn state(&self, id: ConnectionId) -> State {
        self.slot(id).map_or(State::Closed, Slot::state)
    }

    /// Our end.
    pub fn local_address(&self, id: ConnectionId) -> Result<SocketAddr, Error> {
        Ok(self.slot(id)?.tuple.local())
    }

    /// The peer's end.
    pub fn peer_address(&self, id: ConnectionId) -> Result<SocketAddr, Error> {
        Ok(self.slot(id)?.tuple.remote())
    }

    /// The options in force.
    pub fn options(&self, id: ConnectionId) -> Result<SocketOptions, Error> {
        Ok(*self.slot(id)?.view().options)
    }

    /// Changes the options; what they allow to be sent leaves with the next `emit`.
    pub fn set_options(
        &mut self,
        now: Instant,
        id: ConnectionId,
        options: SocketOptions,
    ) -> Result<(), Error> {
        let (slot, shared) = self.slot_and_shared(id)?;
        let before = slot.set_options(options);
        let connection = slot.connection_mut();
        if before.send_size != options.send_size
            && (connection.blocked == Blocked::No || connection.blocked.is_on_source())
        {
            let has_more = connection.synchronized().is_some_and(|s| s.send.has_more_to_come());
            connection.blocked = Blocked::free(options.send_size, has_more);
        }
        if options.accounting != before.accounting
            && let Some(s) = connection.synchronized_mut()
        {
            s.send.set_accounting(options.accounting, now);
        }
        let pacing = |options: &SocketOptions| (options.pacing, options.max_pacing_rate);
        let pacing_changed = pacing(&options) != pacing(&before);
        let keepalive_changed = before.keepalive != options.keepalive;
        if options.nodelay
            && !before.nodelay
            && let Some(s) = connection.synchronized_mut()
        {
            // What waited for more leaves, corked or not.
            s.push_due = s.send.data_end() != s.send.nxt;
        }
        if options.congestion != before.congestion
            && let Some(s) = connection.synchronized_mut()
        {
            s.send.switch_congestion(options.congestion);
            if let Some(ecn) = s.ecn.as_mut().filter(|_| s.send.congestion.echo().is_some()) {
                // From here on DCTCP tells of marks.
                ecn.echo = false;
            }
        }
        if (pacing_changed || options.congestion != before.congestion)
            && let Some(s) = connection.synchronized_mut()
        {
            s.send.set_pacing(now, &options);
        }
        if let Some(bytes) = options.receive_buffer_bytes
            && before.receive_buffer_bytes != Some(bytes)
            && let Some(s) = connection.synchronized_mut()
        {
            s.recv.window.fix(bytes, s.recv.nxt, &mut shared.budget);
        }
        if keepalive_changed && connection.synchronized().is_some() {
            connection.start_keepalive(now);
        }
        self.after_input(now, id.index);
        Ok(())
    }

    /// Acknowledges the next segments at once, and what is owed now (`on`), or delays from here on,
    /// as if the connection's start were over.
    pub fn set_quick_ack(&mut self, now: Instant, id: ConnectionId, on: bool) -> Result<(), Error> {
        let (connection, shared) = self.connection_and_shared(id)?;
        let quick = if on { shared.config.ack.quick.max(1) } else { 0 };
        if let Some(s) = connection.synchronized_mut() {
            s.recv.ack.set_quick(quick);
        }
        self.after_input(now, id.index);
        Ok(())
    }

    /// The state of the handshake, connection or record between these two ends; CLOSED if there is
    /// none. A record whose time is over counts until it is dropped.
    pub fn state_between(&self, local: SocketAddr, remote: SocketAddr) -> State {
        let tuple = Tuple::new((local.ip(), local.port()), (remote.ip(), remote.port()));
        let hash = self.live.hasher.hash(&tuple);
        match self.find(hash, &tuple) {
            Some(number) => self.slots.get(number).map_or(State::SynReceived, Slot::state),
            None if self.closed.fin_wait_2.records().get(hash, &tuple).is_some() => State::FinWait2,
            None if self.time_wait_record(hash, &tuple).is_some() => State::TimeWait,
            None => State::Closed,
        }
    }

    /// Bytes written that the peer has not acknowledged; none for a name that is dead.
    pub fn unacknowledged_bytes(&self, id: ConnectionId) -> usize {
        let awake = self.slot(id).ok().and_then(Slot::awake);
        awake.and_then(Connection::synchronized).map_or(0, |s| s.send.buffer.len())
    }

    /// What the peer has of the data written, also after the connection's end; `None` for a name
    /// that is dead.
    pub fn delivery(&self, id: ConnectionId) -> Option<Delivery> {
        self.slot(id).ok().map(|slot| slot.view().delivery())
    }

    /// The connection's state for its user.
    pub fn info(&self, id: ConnectionId) -> Result<ConnectionInfo, Error> {
        Ok(self.info_of(self.slot(id)?))
    }

    fn info_of(&self, slot: &Slot) -> ConnectionInfo {
        let path_mtu_bytes = self.ip.path_mtu(slot.tuple.remote_ip());
        ConnectionInfo { path_mtu_bytes, ..slot.view().info(&self.shared.config) }
    }

    /// What was counted of the connection by `now`; `None` unless its socket asks for that
    /// ([`SocketOptions::accounting`]), and after its end.
    pub fn account(&self, now: Instant, id: ConnectionId) -> Option<Account> {
        self.slot(id).ok()?.view().synchronized()?.send.account(now)
    }

    /// The options that a new connection starts with.
    pub fn default_options(&self) -> SocketOptions {
        *self.opening.options
    }

    fn slot(&self, id: ConnectionId) -> Result<&Slot, NoSuchConnection> {
        let (slot, generation) = self.slots.named(id.index).ok_or(NoSuchConnection)?;
        if generation == id.generation && !slot.is_orphan() {
            Ok(slot)
        } else {
            Err(NoSuchConnection)
        }
    }

    pub(super) fn connection_and_shared(
        &mut self,
        id: ConnectionId,
    ) -> Result<(&mut Connection, &mut Context), NoSuchConnection> {
        self.slot_and_shared(id).map(|(slot, shared)| (slot.connection_mut(), shared))
    }

    fn slot_and_shared(
        &mut self,
        id: ConnectionId,
    ) -> Result<(&mut Slot, &mut Context), NoSuchConnection> {
        Ok((named(&mut self.slots, id)?, &mut self.shared))
    }
}

/// The slot of that name.
fn named(slots: &mut Slots, id: ConnectionId) -> Result<&mut Slot, NoSuchConnection> {
    match slots.named_mut(id.index) {
        Some((slot, generation)) if generation == id.generation && !slot.is_orphan() => Ok(slot),
        _ => Err(NoSuchConnection),
    }
}

/// What lies between two ends of any version.
fn tuple_between(local: &SocketAddr, remote: &SocketAddr) -> Tuple {
    Tuple::new((local.ip(), local.port()), (remote.ip(), remote.port()))
}

/// The unspecified address and port of the version of `remote`: pass it to [`Host::connect`] to
/// leave the choice to the host.
pub fn any_local(remote: &SocketAddr) -> SocketAddr {
    match remote {
        SocketAddr::V4(_) => SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0),
        SocketAddr::V6(_) => SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), 0),
    }
}

/// Why no connection goes to that remote end.
fn why_no_remote(remote: SocketAddr) -> &'static str {
    match remote.ip() {
        _ if remote.port() == 0 => "the remote port is 0",
        ip if ip.is_loopback() => "the remote address is loopback, which this stack cannot reach",
        ip if ip.is_unspecified() => "the remote address is unspecified",
        _ => "the remote address is a group's or a broadcast",
    }
}
