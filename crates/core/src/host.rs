//! One IP host: interfaces, neighbours, routes, demultiplexing, listeners and connections.

pub mod address;
pub mod isn;
pub mod keyed;
pub mod limiter;
pub mod port;
pub mod syn_cookie;

use alloc::vec::Vec;
use bytes::Bytes;
use core::net::{IpAddr, Ipv4Addr, SocketAddr};

use crate::config::Config;
use crate::error::Error;
use crate::event::{ConnectionId, Event, ListenerId, Readiness};
use crate::frame::{Outbox, RxFrame};
use crate::tcp::{ConnectionInfo, SocketOptions};
use crate::time::Instant;

/// A whole host.
pub struct Host {
    _config: Config,
}

#[allow(unused_variables, clippy::todo, clippy::needless_pass_by_value, missing_docs)]
impl Host {
    /// A host as configured, or why the configuration makes none.
    pub fn new(config: Config) -> Result<Host, Error> {
        Ok(Host { _config: config })
    }

    // ---- inputs: frames and time. None of them sends anything: `emit` does.

    /// A frame has arrived.
    pub fn on_frame(&mut self, now: Instant, frame: RxFrame<'_>) {
        todo!()
    }
    /// Time has passed: whatever was due by `now` is marked.
    pub fn on_time(&mut self, now: Instant) {
        todo!()
    }

    // ---- output

    /// Sends what every dirty connection and every pending reply should, while `outbox` has room.
    pub fn emit(&mut self, now: Instant, outbox: &mut Outbox) {
        todo!()
    }
    /// True if `emit` has something to do at once (the last one ran out of room or budget, or an
    /// input came since).
    pub fn wants_emit(&self) -> bool {
        todo!()
    }
    /// When time alone will next have work; `None`: never.
    pub fn deadline(&self) -> Option<Instant> {
        todo!()
    }
    /// The next thing the shard should know, oldest first. Ready bits of one connection are merged.
    pub fn event(&mut self) -> Option<Event> {
        todo!()
    }

    // ---- listeners

    /// Listens on `local`; the unspecified address stands for all of ours, of its IP version
    /// (`[::]` for both versions). Port 0 picks one. `backlog`: connections waiting for accept.
    pub fn listen(&mut self, local: SocketAddr, backlog: usize) -> Result<ListenerId, Error> {
        todo!()
    }
    pub fn listener_address(&self, id: ListenerId) -> Result<SocketAddr, Error> {
        todo!()
    }
    /// The oldest established connection not yet accepted, or `WouldBlock`.
    pub fn accept(&mut self, now: Instant, id: ListenerId) -> Result<ConnectionId, Error> {
        todo!()
    }
    /// Stops listening; what was not accepted is reset.
    pub fn close_listener(&mut self, now: Instant, id: ListenerId) {
        todo!()
    }

    // ---- connections

    /// Opens a connection. An unspecified local address picks one of ours, a local port of 0 an
    /// ephemeral port. The connection becomes writable once it is established; a failure shows as
    /// `CLOSED`, and in the next call's error.
    pub fn connect(
        &mut self,
        now: Instant,
        local: SocketAddr,
        remote: SocketAddr,
    ) -> Result<ConnectionId, Error> {
        todo!()
    }
    /// Copies as much of `data` as the send buffer takes and returns how much; `WouldBlock` when
    /// it takes nothing.
    pub fn write(&mut self, now: Instant, id: ConnectionId, data: &[u8]) -> Result<usize, Error> {
        todo!()
    }
    /// As `write`, but the send buffer shares the bytes.
    pub fn write_bytes(
        &mut self,
        now: Instant,
        id: ConnectionId,
        data: &Bytes,
    ) -> Result<usize, Error> {
        todo!()
    }
    /// Moves received bytes into `out` and returns how many; 0 is the end of the stream (or an
    /// empty `out`); `WouldBlock` when there is nothing yet.
    pub fn read(&mut self, now: Instant, id: ConnectionId, out: &mut [u8]) -> Result<usize, Error> {
        todo!()
    }
    /// As `read`, but the bytes stay.
    pub fn peek(&self, id: ConnectionId, out: &mut [u8]) -> Result<usize, Error> {
        todo!()
    }
    /// Sends FIN after what was written; reading goes on.
    pub fn shutdown_write(&mut self, now: Instant, id: ConnectionId) -> Result<(), Error> {
        todo!()
    }
    /// The user is done with the connection: it closes in the background (with unread data, or
    /// linger zero, by RST). The id is dead afterwards.
    pub fn close(&mut self, now: Instant, id: ConnectionId) {
        todo!()
    }
    /// Resets the connection. The id is dead afterwards.
    pub fn abort(&mut self, now: Instant, id: ConnectionId) {
        todo!()
    }
    /// What is possible now.
    pub fn readiness(&self, id: ConnectionId) -> Readiness {
        todo!()
    }
    /// The error that ended the connection, once.
    pub fn take_error(&mut self, id: ConnectionId) -> Option<Error> {
        todo!()
    }
    pub fn local_address(&self, id: ConnectionId) -> Result<SocketAddr, Error> {
        todo!()
    }
    pub fn peer_address(&self, id: ConnectionId) -> Result<SocketAddr, Error> {
        todo!()
    }
    pub fn options(&self, id: ConnectionId) -> Result<SocketOptions, Error> {
        todo!()
    }
    pub fn set_options(
        &mut self,
        now: Instant,
        id: ConnectionId,
        options: SocketOptions,
    ) -> Result<(), Error> {
        todo!()
    }
    pub fn info(&self, id: ConnectionId) -> Result<ConnectionInfo, Error> {
        todo!()
    }

    // ---- the host

    /// Live connections, with a user or without (TIME-WAIT apart).
    pub fn connections(&self) -> usize {
        todo!()
    }
    /// Pages of buffer memory in use.
    pub fn pages_in_use(&self) -> usize {
        todo!()
    }
    /// TIME-WAIT records.
    pub fn time_wait_len(&self) -> usize {
        todo!()
    }
    /// Our addresses, configured and learnt.
    pub fn addresses(&self) -> Vec<IpAddr> {
        alloc::vec![IpAddr::V4(Ipv4Addr::LOCALHOST)]
    }
}
