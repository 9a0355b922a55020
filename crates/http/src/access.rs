//! One record for each response, for logs and counters.

use std::net::SocketAddr;
use std::time::Duration;

use http::{Method, StatusCode};

/// What happened to one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    /// Who asked.
    pub peer: SocketAddr,
    /// The request's method; `-` if its head could not be read.
    pub method: Method,
    /// The request's target as it was sent: path and query, not decoded. Of a request that was
    /// refused for its head (400, 414, 431) the beginning, escaped, or `-`.
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
