//! One record for each response, for logs and counters.

use std::net::SocketAddr;
use std::time::Duration;

use http::{Method, StatusCode};

/// What happened to one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    /// Who asked.
    pub peer: SocketAddr,
    /// The request's method.
    pub method: Method,
    /// The request's target as it was sent: path and query, not decoded.
    pub target: String,
    /// The response's status.
    pub status: StatusCode,
    /// Bytes of the response's body that were handed to the connection.
    pub body_bytes: u64,
    /// True if that was the whole body.
    pub complete: bool,
    /// From the moment at which the request's head was complete to that at which the last byte was
    /// handed to the connection, by [`Clock::measure`](crate::Clock::measure).
    pub duration: Duration,
}
