//! A socket as its user sees it: its role, options, error and byte counts, over a connection or a
//! listener of the engine.

pub mod calls;

use std::fs::File as NullFile;
use std::net::SocketAddr;
use std::os::fd::{IntoRawFd, RawFd};

use libc::c_int;
use lightwait_core::tcp::{Account, State};
use lightwait_core::{ConnectionId, Host, Instant, ListenerId, Readiness};

use crate::address::Family;
use crate::errno::Errno;
use crate::options::Options;

/// The role of a socket.
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

/// A socket with the state that its user sees.
#[derive(Debug)]
pub struct Socket {
    /// The family of its addresses.
    pub family: Family,
    /// O_NONBLOCK.
    pub nonblocking: bool,
    /// Its role.
    pub role: Role,
    /// The address that it is bound to.
    pub local: Option<SocketAddr>,
    /// Its options.
    pub options: Options,
    /// SO_ERROR: why the connection ended, until the user has read it.
    pub error: Option<Errno>,
    /// SHUT_RD.
    pub read_shut: bool,
    /// SHUT_WR.
    pub write_shut: bool,
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

/// The source of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// A connection.
    Connection(ConnectionId),
    /// A listener.
    Listener(ListenerId),
}

impl Socket {
    fn new(family: Family, options: Options) -> Socket {
        Socket {
            family,
            nonblocking: false,
            role: Role::Idle,
            local: None,
            options,
            error: None,
            read_shut: false,
            write_shut: false,
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

    /// True if `source` is this socket's connection or listener.
    pub fn is(&self, source: Source) -> bool {
        match source {
            Source::Connection(id) => self.connection() == Some(id),
            Source::Listener(id) => self.role == Role::Listening(id),
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

    /// Notes how its connection stands, after something has happened.
    pub fn look(&mut self, host: &mut Host, now: Instant) {
        self.refresh(host, now);
        let account = self.connection().and_then(|id| host.account(now, id));
        self.account = account.or(self.account);
    }

    /// Takes from the engine why the connection has ended.
    pub fn refresh(&mut self, host: &mut Host, now: Instant) {
        let Some(id) = self.connection() else { return };
        if self.is_over {
            return;
        }
        if !host.readiness(now, id).contains(Readiness::CLOSED) {
            self.was_half_closed = host.state(id) == State::CloseWait;
            return;
        }
        self.is_over = true;
        let reason = host.take_error(id).map(Errno::from);
        // A reset after the peer's FIN: the peer would not read what we could still write.
        let breaks_pipe = self.was_half_closed && self.options.reset_breaks_pipe();
        let reason = match reason {
            Some(Errno::ECONNRESET) if breaks_pipe => Some(Errno::EPIPE),
            reason => reason,
        };
        self.error = self.error.or(reason);
    }

    /// Leaves its connection, to begin anew.
    fn disconnect(&mut self, host: &mut Host, now: Instant) {
        match self.role {
            Role::Idle => {}
            Role::Listening(id) => host.close_listener(now, id),
            Role::Connecting(id) | Role::Connected(id) => host.abort(now, id),
        }
        *self = Socket {
            nonblocking: self.nonblocking,
            local: self.local,
            ..Socket::new(self.family, self.options.clone())
        };
    }

    /// Notes that its user has closed it.
    pub fn end(&self, host: &mut Host, now: Instant) {
        match self.role {
            Role::Idle => {}
            Role::Listening(id) => host.close_listener(now, id),
            Role::Connecting(id) | Role::Connected(id) => host.close(now, id),
        }
    }

    /// The values of SO_RCVBUF and SO_SNDBUF.
    pub(crate) fn buffer_sizes(&self, host: &Host) -> [c_int; 2] {
        let info = self.connection().and_then(|id| host.info(id).ok());
        self.options.buffer_sizes(info.map_or(0, |info| info.mss_bytes.into()))
    }

    /// Applies its options to its connection, or to those that it accepts later.
    pub fn apply_options(&self, host: &mut Host, now: Instant) {
        let options = self.options.engine();
        // A connection that is gone has no options.
        let _gone = match self.role {
            Role::Idle => Ok(()),
            Role::Listening(id) => host.set_listener_options(id, options),
            Role::Connecting(id) | Role::Connected(id) => host.set_options(now, id, options),
        };
    }
}

/// A file descriptor that the kernel knows: the caller closes them behind our back.
pub(crate) fn open_descriptor() -> Result<RawFd, Errno> {
    match NullFile::options().read(true).write(true).open("/dev/null") {
        Ok(file) => Ok(file.into_raw_fd()),
        Err(error) => Err(Errno(error.raw_os_error().unwrap_or(libc::EMFILE))),
    }
}
