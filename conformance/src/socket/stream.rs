//! What a socket has as a stream: its role over a connection or a listener, and its byte counts.

use lightwait_core::tcp::{Account, SocketOptions, State};
use lightwait_core::{ConnectionId, Host, Instant, ListenerId, Readiness};

use crate::errno::Errno;
use crate::options::{Options, TcpOptions};

/// The role of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// New, or disconnected.
    Idle,
    /// In LISTEN.
    Listening(ListenerId),
    /// Its `connect` has not returned success yet.
    Connecting(ConnectionId),
    /// Connected, or it has been.
    Connected(ConnectionId),
}

/// What only a stream has.
#[derive(Debug)]
pub struct Stream {
    /// Its role.
    pub role: Role,
    /// The options that streams alone have.
    pub options: TcpOptions,
    /// The backlog: connections that may wait for `accept`.
    pub backlog: u32,
    /// Bytes that its user has read.
    pub bytes_read: u64,
    /// Bytes that its user has written.
    pub bytes_written: u64,
    /// What was counted of its connection, and last before its end.
    pub account: Option<Account>,
    /// The peer's FIN has come while we had sent none.
    was_half_closed: bool,
    /// The reason for the end has been taken from the engine.
    is_over: bool,
}

impl Stream {
    pub(super) fn new(role: Role, options: TcpOptions) -> Stream {
        Stream {
            role,
            options,
            backlog: 0,
            bytes_read: 0,
            bytes_written: 0,
            account: None,
            was_half_closed: false,
            is_over: false,
        }
    }

    /// Its connection, if it has one, or had.
    pub fn connection(&self) -> Option<ConnectionId> {
        match self.role {
            Role::Connecting(id) | Role::Connected(id) => Some(id),
            Role::Idle | Role::Listening(_) => None,
        }
    }

    /// Its state; CLOSED without a connection.
    pub fn state(&self, host: &Host) -> State {
        match self.role {
            Role::Listening(_) => State::Listen,
            Role::Idle => State::Closed,
            Role::Connecting(id) | Role::Connected(id) => host.state(id),
        }
    }

    /// True if its connection is over: reset, timed out, or closed on both sides.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    pub(super) fn note_account(&mut self, host: &Host, now: Instant) {
        let account = self.connection().and_then(|id| host.account(now, id));
        self.account = account.or(self.account);
    }

    /// Takes from the engine why its connection has ended, if it has.
    pub(super) fn refresh(&mut self, host: &mut Host, now: Instant) -> Option<Errno> {
        let id = self.connection().filter(|_| !self.is_over)?;
        if !host.readiness(now, id).contains(Readiness::CLOSED) {
            self.was_half_closed = host.state(id) == State::CloseWait;
            return None;
        }
        self.is_over = true;
        let reason = host.take_error(id).map(Errno::from);
        // A reset after the peer's FIN: the peer would not read what we could still write.
        let breaks_pipe = self.was_half_closed && self.options.reset_breaks_pipe();
        match reason {
            Some(Errno::ECONNRESET) if breaks_pipe => Some(Errno::EPIPE),
            reason => reason,
        }
    }

    /// Aborts its connection. Returns what takes its place.
    pub(super) fn disconnect(&self, host: &mut Host, now: Instant) -> Stream {
        match self.role {
            Role::Idle => {}
            Role::Listening(id) => host.close_listener(now, id),
            Role::Connecting(id) | Role::Connected(id) => host.abort(now, id),
        }
        Stream::new(Role::Idle, self.options.clone())
    }

    /// Notes that its user has closed it.
    pub(super) fn end(&self, host: &mut Host, now: Instant) {
        match self.role {
            Role::Idle => {}
            Role::Listening(id) => host.close_listener(now, id),
            Role::Connecting(id) | Role::Connected(id) => host.close(now, id),
        }
    }

    /// Applies its options to its connection, or to those that it accepts later.
    pub(super) fn apply_options(&self, shared: &Options, host: &mut Host, now: Instant) {
        let options = self.options.engine(shared);
        // A connection that is gone has no options.
        let _gone = match self.role {
            Role::Idle => Ok(()),
            Role::Listening(id) => host.set_listener_options(id, options),
            Role::Connecting(id) | Role::Connected(id) => host.set_options(now, id, options),
        };
    }

    /// MSG_MORE: corks until the write after it.
    pub(crate) fn hold_back(&self, shared: &Options, host: &mut Host, now: Instant) {
        let Some(id) = self.connection() else { return };
        let corked = SocketOptions { cork: true, ..self.options.engine(shared) };
        // A connection that is gone has no options.
        let _gone = host.set_options(now, id, corked);
    }
}
