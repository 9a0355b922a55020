//! A socket as its user sees it: its options, its error, and what sockets of its kind have over a
//! connection, a listener, or a UDP socket of the engine.

pub mod calls;
mod names;
mod stream;

use std::fs::File as NullFile;
use std::net::SocketAddr;
use std::os::fd::{IntoRawFd, RawFd};
use std::time::Duration;

use libc::c_int;
use lightwait_core::tcp::State;
use lightwait_core::{ConnectionId, Host, Instant, ListenerId, UdpId};

use crate::address::Family;
use crate::attempt::Progress;
use crate::datagram::Datagram;
use crate::errno::Errno;
use crate::options::Options;

pub use stream::{Role, Stream};

/// A socket with the state that its user sees.
#[derive(Debug)]
pub struct Socket {
    /// The family of its addresses.
    pub family: Family,
    /// O_NONBLOCK.
    pub nonblocking: bool,
    /// The address that it is bound to.
    pub local: Option<SocketAddr>,
    /// The options that sockets of every kind have.
    pub options: Options,
    /// SO_ERROR: why the connection ended or a datagram did not arrive, until the user has read it.
    pub error: Option<Errno>,
    /// SHUT_RD.
    pub read_shut: bool,
    /// SHUT_WR.
    pub write_shut: bool,
    /// What only sockets of its kind have.
    pub kind: Kind,
}

/// The kind of a socket.
#[derive(Debug)]
pub enum Kind {
    /// SOCK_STREAM.
    Stream(Box<Stream>),
    /// SOCK_DGRAM.
    Datagram(Datagram),
}

/// The source of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// A connection.
    Connection(ConnectionId),
    /// A listener.
    Listener(ListenerId),
    /// A UDP socket.
    Datagrams(UdpId),
}

impl Kind {
    /// SO_TYPE.
    pub(crate) fn number(&self) -> c_int {
        match self {
            Kind::Stream(_) => libc::SOCK_STREAM,
            Kind::Datagram(_) => libc::SOCK_DGRAM,
        }
    }

    /// SO_PROTOCOL.
    pub(crate) fn protocol(&self) -> c_int {
        match self {
            Kind::Stream(_) => libc::IPPROTO_TCP,
            Kind::Datagram(_) => libc::IPPROTO_UDP,
        }
    }
}

impl Socket {
    fn new(family: Family, options: Options, kind: Kind) -> Socket {
        Socket {
            family,
            nonblocking: false,
            local: None,
            options,
            error: None,
            read_shut: false,
            write_shut: false,
            kind,
        }
    }

    /// What it has as a stream.
    ///
    /// # Errors
    /// `error` if it is none.
    pub fn stream(&self, error: Errno) -> Result<&Stream, Errno> {
        match &self.kind {
            Kind::Stream(stream) => Ok(stream),
            Kind::Datagram(_) => Err(error),
        }
    }

    /// What it has as a stream, to be changed.
    ///
    /// # Errors
    /// `error` if it is none.
    pub fn stream_mut(&mut self, error: Errno) -> Result<&mut Stream, Errno> {
        match &mut self.kind {
            Kind::Stream(stream) => Ok(stream),
            Kind::Datagram(_) => Err(error),
        }
    }

    /// True if it carries datagrams.
    pub fn is_datagram(&self) -> bool {
        matches!(self.kind, Kind::Datagram(_))
    }

    /// Its role as a stream.
    pub fn role(&self) -> Option<Role> {
        match &self.kind {
            Kind::Stream(stream) => Some(stream.role),
            Kind::Datagram(_) => None,
        }
    }

    /// Its connection, if it has one, or had.
    pub fn connection(&self) -> Option<ConnectionId> {
        match &self.kind {
            Kind::Stream(stream) => stream.connection(),
            Kind::Datagram(_) => None,
        }
    }

    /// True if `source` is this socket's connection, listener or UDP socket.
    pub fn is(&self, source: Source) -> bool {
        match (&self.kind, source) {
            (Kind::Stream(stream), Source::Connection(id)) => stream.connection() == Some(id),
            (Kind::Stream(stream), Source::Listener(id)) => stream.role == Role::Listening(id),
            (Kind::Datagram(socket), Source::Datagrams(id)) => socket.id() == Some(id),
            _ => false,
        }
    }

    /// The state of its connection; CLOSED without one.
    pub fn state(&self, host: &Host) -> State {
        match &self.kind {
            Kind::Stream(stream) => stream.state(host),
            Kind::Datagram(_) => State::Closed,
        }
    }

    /// True if its connection is over: reset, timed out, or closed on both sides.
    pub fn is_over(&self) -> bool {
        matches!(&self.kind, Kind::Stream(stream) if stream.is_over())
    }

    /// Notes how its connection stands, after something has happened.
    pub fn look(&mut self, host: &mut Host, now: Instant) {
        self.refresh(host, now);
        if let Kind::Stream(stream) = &mut self.kind {
            stream.note_account(host, now);
        }
    }

    /// Takes from the engine why the connection has ended, or why a datagram did not arrive.
    pub fn refresh(&mut self, host: &mut Host, now: Instant) {
        match &mut self.kind {
            Kind::Stream(stream) => self.error = self.error.or(stream.refresh(host, now)),
            // As in Linux, the last error counts.
            Kind::Datagram(socket) => self.error = socket.take_error(host).or(self.error),
        }
    }

    /// Leaves its connection, or its peer, to begin anew.
    pub(crate) fn disconnect(&mut self, host: &mut Host, now: Instant) {
        match &mut self.kind {
            Kind::Stream(stream) => {
                let fresh = stream.disconnect(host, now);
                *self = Socket {
                    nonblocking: self.nonblocking,
                    local: self.local,
                    ..Socket::new(self.family, self.options.clone(), Kind::Stream(Box::new(fresh)))
                };
            }
            Kind::Datagram(socket) => socket.disconnect(host, now, self.local.is_some()),
        }
    }

    /// How a call on it waits: for `limit` at most, whose end is kept in `until` between attempts.
    /// `None` if it must not, or has waited as long.
    pub(crate) fn wait<T>(
        &self,
        flags: c_int,
        now: Instant,
        limit: Option<Duration>,
        until: &mut Option<Instant>,
    ) -> Option<Progress<T>> {
        if self.nonblocking || flags & libc::MSG_DONTWAIT != 0 {
            return None;
        }
        let until = limit.map(|limit| *until.get_or_insert(now + limit));
        until.is_none_or(|until| now < until).then_some(Progress::Wait(until))
    }

    /// Notes that its user has closed it.
    pub fn end(&self, host: &mut Host, now: Instant) {
        match &self.kind {
            Kind::Stream(stream) => stream.end(host, now),
            Kind::Datagram(socket) => socket.end(host),
        }
    }

    /// The values of SO_RCVBUF and SO_SNDBUF.
    pub(crate) fn buffer_sizes(&self, host: &Host) -> [c_int; 2] {
        let info = self.connection().and_then(|id| host.info(id).ok());
        self.options.buffer_sizes(info.map_or(0, |info| info.mss_bytes.into()))
    }

    /// Applies its options to what it has of the engine, or to the connections that it accepts
    /// later.
    pub fn apply_options(&self, host: &mut Host, now: Instant) {
        match &self.kind {
            Kind::Stream(stream) => stream.apply_options(&self.options, host, now),
            Kind::Datagram(socket) => socket.apply_options(&self.options, host),
        }
    }
}

/// A file descriptor that the kernel knows: the caller closes them behind our back.
pub(crate) fn open_descriptor() -> Result<RawFd, Errno> {
    match NullFile::options().read(true).write(true).open("/dev/null") {
        Ok(file) => Ok(file.into_raw_fd()),
        Err(error) => Err(Errno(error.raw_os_error().unwrap_or(libc::EMFILE))),
    }
}
