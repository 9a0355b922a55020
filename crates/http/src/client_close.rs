//! CLIENT_CLOSE: the client closes the connection, and says so (Faber, Touch & Yue 1999). The
//! end that closes first holds TIME-WAIT. `docs/client-close.md` is the specification.
//!
//! ```text
//!   client                               server
//!     GET, GET ─────────────────────────▶
//!     ◀──────────────── answer, answer ──
//!     CLIENT_CLOSE, FIN ────────────────▶  all answers are written: no reply
//!     ◀──────────────────────────── FIN ──
//!   TIME-WAIT                            CLOSED
//! ```
//!
//! A server asks its client to do so by the connection option `client-close`.

use std::io;

use http::header::{self, HeaderMap, HeaderValue};
use http::{Method, Request, Version};
use http_body::Body;

use crate::head;

/// The method. Methods are case-sensitive (RFC 9110 §9.1).
pub const METHOD: &str = "CLIENT_CLOSE";

/// The connection option that asks a client to close first. It has no field of its own
/// (RFC 9110 §7.6.1).
pub const OPTION: &str = "client-close";

/// The request that says that the client closes. `host` is the `Host` of its other requests.
///
/// # Panics
/// If `host` has a control character, which would make other fields of it.
pub fn request(host: &str) -> Vec<u8> {
    assert!(!host.bytes().any(|byte| byte.is_ascii_control()), "{host:?} is no host");
    format!("{METHOD} * HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").into_bytes()
}

/// True if the fields of an answer ask the client to close first.
pub fn is_asked_for(fields: &HeaderMap) -> bool {
    has_option(fields, OPTION)
}

/// True if the method is CLIENT_CLOSE, whether the request is well formed or not.
pub(crate) fn is_method(method: &Method) -> bool {
    method.as_str() == METHOD
}

/// True if a request is a well-formed CLIENT_CLOSE: the connection is over, and the server sends no
/// response.
pub(crate) fn is_obeyed<B: Body>(request: &Request<B>) -> bool {
    is_method(request.method()) && fault(request).is_none()
}

/// The error in a CLIENT_CLOSE request. The rules keep it from disguising another request: nothing
/// belongs to it behind its head, and an intermediary does not forward it unchanged.
pub(crate) fn fault<B: Body>(request: &Request<B>) -> Option<&'static str> {
    let fields = request.headers();
    let has_length = fields.contains_key(header::CONTENT_LENGTH);
    let is_framed = has_length || fields.contains_key(header::TRANSFER_ENCODING);
    if request.version() != Version::HTTP_11 {
        Some("CLIENT_CLOSE is of HTTP/1.1.")
    } else if request.uri() != "*" {
        Some("The target of CLIENT_CLOSE is *.")
    } else if is_framed || !request.body().is_end_stream() {
        Some("CLIENT_CLOSE has no body.")
    } else if !has_option(fields, "close") {
        // An intermediary removes it, and our connection to it is not the client's to close.
        Some("CLIENT_CLOSE is sent with Connection: close.")
    } else {
        head::fault(request).map(|fault| fault.detail)
    }
}

/// True if a failed read has nevertheless reached the peer's end: a TLS peer that closes without
/// close_notify.
pub(crate) fn is_end(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::UnexpectedEof
}

/// True if `Connection` has that option (RFC 9110 §7.6.1).
pub(crate) fn has_option(fields: &HeaderMap, option: &str) -> bool {
    let is_option = |value: &HeaderValue| {
        let options = value.as_bytes().split(|byte| *byte == b',');
        options.map(<[u8]>::trim_ascii).any(|one| one.eq_ignore_ascii_case(option.as_bytes()))
    };
    fields.get_all(header::CONNECTION).iter().any(is_option)
}

#[cfg(test)]
mod tests;
