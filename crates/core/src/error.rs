//! What can go wrong with a connection or a call.

use core::fmt;

/// A failure of a call or of a connection.
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
    /// Another listener or connection has that address and port, or TIME-WAIT: of a connection
    /// that was to take its place, if the peer cannot be told from before (RFC 6191 §2).
    AddressInUse,
    /// The address is not one of ours.
    AddressNotAvailable,
    /// The call needs a connection in a state that has one.
    NotConnected,
    /// The write side was shut down.
    BrokenPipe,
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
            Error::InvalidInput(what) => return write!(f, "invalid input: {what}"),
            Error::Limit(which) => return write!(f, "limit reached: {which}"),
        };
        f.write_str(text)
    }
}

impl core::error::Error for Error {}
