//! What can go wrong with a connection or a call.
//!
//! The calls whose callers act on a failure have an error of their own, which says all that can go
//! wrong with them: [`ConnectError`], [`AcceptError`], [`ReadError`], [`WriteError`]. Each becomes
//! an [`Error`], which says what can go wrong at all.

use core::fmt;

/// Any failure of a call or of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Error {
    /// Nothing can be done now; an [`Event`](crate::Event) will tell when.
    WouldBlock,
    /// The peer answered our SYN with RST (RFC 9293 §3.10.7.3).
    ConnectionRefused,
    /// The peer reset the connection (RFC 9293 §3.10.7.4, second step).
    ConnectionReset,
    /// We reset the connection ourselves: an abort, linger zero, or a limit reached.
    ConnectionAborted,
    /// No answer in time: establishment, retransmission, user or keepalive timeout.
    TimedOut,
    /// No route, or the neighbour does not answer, or ICMP says so (RFC 1122 §4.2.3.9).
    HostUnreachable,
    /// There is no route to that network.
    NetworkUnreachable,
    /// Another listener or connection has that address and port, or TIME-WAIT holds it: a new
    /// connection was to take its place, and the peer's new segments could not be told from its old
    /// ones (RFC 6191 §2).
    AddressInUse,
    /// The address is not one of ours.
    AddressNotAvailable,
    /// The call needs a connection in a state that has one, or a UDP socket with a remote end.
    NotConnected,
    /// The write side was shut down.
    BrokenPipe,
    /// The datagram is longer than a packet can carry, or than the path does and it may not be cut.
    MessageTooLong,
    /// The destination is a broadcast address, and the socket may not send there.
    PermissionDenied,
    /// The id names nothing, or the argument makes no sense; the text says which.
    InvalidInput(&'static str),
    /// A limit was reached; the text names it.
    Limit(&'static str),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Error::WouldBlock => "operation would block",
            Error::ConnectionRefused => "connection refused",
            Error::ConnectionReset => "connection reset by peer",
            Error::ConnectionAborted => "connection aborted",
            Error::TimedOut => "connection timed out",
            Error::HostUnreachable => "host unreachable",
            Error::NetworkUnreachable => "network unreachable",
            Error::AddressInUse => "address in use",
            Error::AddressNotAvailable => "address not available",
            Error::NotConnected => "not connected",
            Error::BrokenPipe => "broken pipe: the write side is shut down",
            Error::MessageTooLong => "message too long",
            Error::PermissionDenied => "permission denied: the socket may not send to a broadcast",
            Error::InvalidInput(what) => return write!(f, "invalid input: {what}"),
            Error::Limit(which) => return write!(f, "limit reached: {which}"),
        };
        f.write_str(text)
    }
}

impl core::error::Error for Error {}

/// Why a connection is not opened. Why one fails that is, is an [`Error`] of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ConnectError {
    /// The addresses make no sense; the text says why.
    InvalidInput(&'static str),
    /// There are as many connections as may be.
    Limit,
    /// The local address is not one of ours, or has no free port.
    AddressNotAvailable,
    /// Another connection has these addresses and ports, or TIME-WAIT.
    AddressInUse,
    /// No address of ours leads there.
    NetworkUnreachable,
}

/// Why no connection is accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AcceptError {
    /// None waits; an [`Event`](crate::Event) will tell when.
    WouldBlock,
    /// The id names no listener, or what waited is gone; the text says which.
    InvalidInput(&'static str),
}

/// Why nothing is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReadError {
    /// There is nothing yet; an [`Event`](crate::Event) will tell when.
    WouldBlock,
    /// The id names no connection.
    NoSuchConnection,
    /// The connection has failed, and all that came before was read.
    Failed(Error),
}

/// Why nothing is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WriteError {
    /// There is no room yet; an [`Event`](crate::Event) will tell when.
    WouldBlock,
    /// The id names no connection.
    NoSuchConnection,
    /// The write side was shut down, or the connection is over.
    BrokenPipe,
    /// The connection has failed.
    Failed(Error),
}

/// The id names no connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NoSuchConnection;

impl From<ConnectError> for Error {
    fn from(error: ConnectError) -> Error {
        match error {
            ConnectError::InvalidInput(what) => Error::InvalidInput(what),
            ConnectError::Limit => Error::Limit("connections"),
            ConnectError::AddressNotAvailable => Error::AddressNotAvailable,
            ConnectError::AddressInUse => Error::AddressInUse,
            ConnectError::NetworkUnreachable => Error::NetworkUnreachable,
        }
    }
}

impl From<AcceptError> for Error {
    fn from(error: AcceptError) -> Error {
        match error {
            AcceptError::WouldBlock => Error::WouldBlock,
            AcceptError::InvalidInput(what) => Error::InvalidInput(what),
        }
    }
}

impl From<ReadError> for Error {
    fn from(error: ReadError) -> Error {
        match error {
            ReadError::WouldBlock => Error::WouldBlock,
            ReadError::NoSuchConnection => NoSuchConnection.into(),
            ReadError::Failed(error) => error,
        }
    }
}

impl From<WriteError> for Error {
    fn from(error: WriteError) -> Error {
        match error {
            WriteError::WouldBlock => Error::WouldBlock,
            WriteError::NoSuchConnection => NoSuchConnection.into(),
            WriteError::BrokenPipe => Error::BrokenPipe,
            WriteError::Failed(error) => error,
        }
    }
}

impl From<NoSuchConnection> for Error {
    fn from(_: NoSuchConnection) -> Error {
        Error::InvalidInput("no such connection")
    }
}

impl From<NoSuchConnection> for ReadError {
    fn from(_: NoSuchConnection) -> ReadError {
        ReadError::NoSuchConnection
    }
}

impl From<NoSuchConnection> for WriteError {
    fn from(_: NoSuchConnection) -> WriteError {
        WriteError::NoSuchConnection
    }
}

/// Each says what the [`Error`] says that it becomes.
macro_rules! says_as_error {
    ($($name:ident),*) => {$(
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                Error::from(*self).fmt(f)
            }
        }

        impl core::error::Error for $name {}
    )*};
}

says_as_error!(ConnectError, AcceptError, ReadError, WriteError);
