//! The record of one response, for logs and counters. The server makes one for each response, when
//! it is over.

use std::net::SocketAddr;
use std::time::Duration;

use http::header::{self, HeaderName};
use http::{Method, Request, StatusCode, Version};

/// One request and its outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    /// The client's address.
    pub peer: SocketAddr,
    /// The request's method; `-` if its head could not be read.
    pub method: Method,
    /// The request's target as the client sent it, not decoded: mostly path and query, but a URL of
    /// a client that takes the server for a proxy (RFC 9112 §3.2). If the server refused the head
    /// (400, 414, 431), the beginning of the target, escaped, or `-`.
    pub target: String,
    /// The request's version; HTTP/1.1 if its head could not be read.
    pub version: Version,
    /// `Host`, `Referer` and `User-Agent`, if the request has them and they are text.
    pub host: Option<String>,
    /// See `host`.
    pub referer: Option<String>,
    /// See `host`.
    pub user_agent: Option<String>,
    /// The response's status.
    pub status: StatusCode,
    /// Bytes of the response's body that the peer has acknowledged; over a transport that cannot
    /// tell ([`Control::delivery`](crate::Control::delivery)), those that it has taken.
    pub body_bytes: u64,
    /// True if the peer has the whole response.
    pub complete: bool,
    /// The time from the last byte of the request's head to the acknowledgement of the response's
    /// last byte, or to the end of the connection, by [`Clock::measure`](crate::Clock::measure).
    pub duration: Duration,
    /// Smoothed round-trip time at the end, if the transport can tell.
    pub srtt: Option<Duration>,
    /// Segments retransmitted meanwhile, if the transport can tell.
    pub retransmits: Option<u64>,
}

impl Access {
    /// The record of a request whose head has just been read.
    pub(crate) fn of<B>(peer: SocketAddr, request: &Request<B>) -> Access {
        let field = |name: HeaderName| {
            let value = request.headers().get(name)?;
            Some(String::from_utf8_lossy(value.as_bytes()).into_owned())
        };
        Access {
            version: request.version(),
            host: field(header::HOST),
            referer: field(header::REFERER),
            user_agent: field(header::USER_AGENT),
            ..Access::new(peer, request.method().clone(), request.uri().to_string())
        }
    }

    /// Bytes of its texts.
    pub(crate) fn text_bytes(&self) -> usize {
        let fields = [&self.host, &self.referer, &self.user_agent];
        let fields = fields.iter().filter_map(|field| field.as_ref());
        self.target.len() + fields.map(String::len).sum::<usize>()
    }

    /// A record with the address, the method and the target alone.
    pub fn new(peer: SocketAddr, method: Method, target: String) -> Access {
        Access {
            peer,
            method,
            target,
            version: Version::HTTP_11,
            host: None,
            referer: None,
            user_agent: None,
            status: StatusCode::OK,
            srtt: None,
            retransmits: None,
            body_bytes: 0,
            complete: false,
            duration: Duration::ZERO,
        }
    }
}
