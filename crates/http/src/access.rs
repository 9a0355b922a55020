//! The record of one response, for logs and counters. The server makes one for each response, when
//! it is over.

use std::net::SocketAddr;
use std::time::Duration;

use http::{Method, StatusCode};

/// One request and its outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    /// The client's address.
    pub peer: SocketAddr,
    /// The request's method; `-` if its head could not be read.
    pub method: Method,
    /// The request's target as the client sent it: path and query, not decoded. If the server
    /// refused the head (400, 414, 431), the beginning of the target, escaped, or `-`.
    pub target: String,
    /// The response's status.
    pub status: StatusCode,
    /// Bytes of the response's body that were handed to the connection.
    pub body_bytes: u64,
    /// True if those bytes were the whole body.
    pub complete: bool,
    /// The time from the last byte of the request's head to the last byte handed to the connection,
    /// by [`Clock::measure`](crate::Clock::measure).
    pub duration: Duration,
}
