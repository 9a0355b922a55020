//! Faults in a request's head that hyper does not see: its host, in the field or in the target, and
//! the coding of its body.
//!
//! A body whose end two programs see at different places lets a request hide in it (request
//! smuggling, RFC 9112 §11.2). So what is doubtful is refused, and the connection closes. If there
//! is a length beside a transfer coding, hyper goes by the coding and closes, as §6.3 allows.

use std::str::FromStr;

use http::header::{self, HeaderMap};
use http::uri::Authority;
use http::{Method, Request, StatusCode, Uri, Version};

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) status: StatusCode,
    pub(crate) detail: &'static str,
    /// Where the request ends is doubtful: nothing behind it may be taken for a request.
    pub(crate) closes: bool,
}

impl Fault {
    fn bad(detail: &'static str) -> Fault {
        Fault { status: StatusCode::BAD_REQUEST, detail, closes: false }
    }

    fn of_framing(status: StatusCode, detail: &'static str) -> Fault {
        Fault { status, detail, closes: true }
    }
}

/// The first fault in a request's head.
pub(crate) fn fault<B>(request: &Request<B>) -> Option<Fault> {
    framing_fault(request.headers(), request.version())
        .or_else(|| host_fault(request))
        .or_else(|| target_fault(request.method(), request.uri()))
}

/// The host and port that a request is for: its target's, or else those of `Host` (RFC 9110 §7.2).
pub(crate) fn authority(target: &Uri, headers: &HeaderMap) -> Option<Authority> {
    let named = || headers.get(header::HOST)?.to_str().ok()?.parse().ok();
    target.authority().cloned().or_else(named)
}

/// The fault in what says where the body ends (RFC 9112 §6.1, §6.3, §7).
fn framing_fault(headers: &HeaderMap, version: Version) -> Option<Fault> {
    let mut codings = Vec::new();
    for field in headers.get_all(header::TRANSFER_ENCODING) {
        let text = field.to_str().unwrap_or("?");
        codings.extend(text.split(',').map(str::trim).filter(|coding| !coding.is_empty()));
    }
    if codings.is_empty() {
        let is_named = headers.contains_key(header::TRANSFER_ENCODING);
        let detail = "The transfer coding has no name.";
        return is_named.then(|| Fault::of_framing(StatusCode::BAD_REQUEST, detail));
    }
    let of_framing = |detail| Some(Fault::of_framing(StatusCode::BAD_REQUEST, detail));
    if version < Version::HTTP_11 {
        return of_framing("HTTP/1.0 has no transfer codings.");
    }
    let is_chunked = |coding: &&str| coding.eq_ignore_ascii_case("chunked");
    let (last, others) = codings.split_last()?;
    if !is_chunked(last) {
        return of_framing("The body is not chunked last.");
    }
    if others.iter().any(is_chunked) {
        return of_framing("The body is chunked more than once.");
    }
    let detail = "The body has a transfer coding that this server does not know.";
    (!others.is_empty()).then(|| Fault::of_framing(StatusCode::NOT_IMPLEMENTED, detail))
}

/// The fault in `Host`: HTTP/1.1 wants exactly one, and each names a host (RFC 9112 §3.2).
fn host_fault<B>(request: &Request<B>) -> Option<Fault> {
    let mut hosts = request.headers().get_all(header::HOST).iter();
    let Some(host) = hosts.next() else {
        // In HTTP/2 the target has it, as a rule (RFC 9113 §8.3.1).
        let is_in_target =
            request.version() == Version::HTTP_2 && request.uri().authority().is_some();
        let is_wanted = request.version() >= Version::HTTP_11 && !is_in_target;
        return is_wanted.then(|| Fault::bad("The request names no host."));
    };
    if hosts.next().is_some() {
        return Some(Fault::bad("The request names more than one host."));
    }
    // Which of two hosts is meant is doubtful (RFC 9113 §8.3.1). In HTTP/1 the target goes before
    // the field (RFC 9112 §3.2.2).
    let meant = request.uri().authority().filter(|_| request.version() == Version::HTTP_2);
    let port = if request.uri().scheme_str() == Some("https") { ":443" } else { ":80" };
    let is_same = |meant: &Authority| {
        let named = host.to_str().unwrap_or_default();
        let [meant, named] =
            [meant.as_str(), named].map(|text| text.strip_suffix(port).unwrap_or(text));
        meant.eq_ignore_ascii_case(named)
    };
    if meant.is_some_and(|meant| !is_same(meant)) {
        return Some(Fault::bad("The request's host is not that of its authority."));
    }
    // A target without an authority has an empty one.
    let is_valid = host.is_empty() || is_authority(host.as_bytes());
    (!is_valid).then(|| Fault::bad("The request's host is no host."))
}

/// The fault in a target that is more than a path: the URL of a client that takes the server for a
/// proxy, or a CONNECT's authority (RFC 9112 §3.2). Its authority stands in for `Host`, and has no
/// name of a user in it (RFC 9110 §4.2.4). What is behind `https` came through a gateway, if at all
/// (RFC 9110 §7.4).
fn target_fault(method: &Method, target: &Uri) -> Option<Fault> {
    let authority = target.authority()?;
    let detail = match target.scheme_str() {
        None if method != Method::CONNECT => "The request's target is no path.",
        Some(scheme) if !matches!(scheme, "http" | "https") => {
            "The request's target has a scheme that this server does not know."
        }
        _ if !is_authority(authority.as_str().as_bytes()) => {
            "The host of the request's target is no host."
        }
        _ => return None,
    };
    Some(Fault::bad(detail))
}

/// True if these bytes are `uri-host [ ":" port ]` (RFC 3986 §3.2.2, §3.2.3), and the port one that
/// there is.
fn is_authority(bytes: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(bytes) else { return false };
    let (host, port) = match text.strip_prefix('[') {
        Some(literal) => match literal.split_once(']') {
            Some((address, "")) => return is_ip_literal(address),
            Some((address, rest)) if is_ip_literal(address) => ("x", rest.strip_prefix(':')),
            _ => return false,
        },
        None => match text.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, Some("")),
        },
    };
    is_name(host) && port.is_some_and(is_port)
}

/// True for digits that number a port, or none.
fn is_port(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
        && (text.is_empty() || text.parse::<u16>().is_ok())
}

/// True for an IPv6 address, or one of a later version: what stands in brackets.
fn is_ip_literal(text: &str) -> bool {
    let is_future = |rest: &str| {
        let Some((version, address)) = rest.split_once('.') else { return false };
        !version.is_empty()
            && version.bytes().all(|byte| byte.is_ascii_hexdigit())
            && !address.is_empty()
            && address.bytes().all(|byte| byte == b':' || is_name_byte(byte))
    };
    std::net::Ipv6Addr::from_str(text).is_ok()
        || text.strip_prefix(['v', 'V']).is_some_and(is_future)
}

/// True for a registered name or an IPv4 address: bytes that need no encoding, and encoded ones.
fn is_name(text: &str) -> bool {
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        let is_digit = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_hexdigit());
        let is_fine = match byte {
            b'%' => is_digit(bytes.next()) && is_digit(bytes.next()),
            byte => is_name_byte(byte),
        };
        if !is_fine {
            return false;
        }
    }
    !text.is_empty()
}

/// RFC 3986's unreserved characters and sub-delimiters.
fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=".contains(&byte)
}

#[cfg(test)]
mod tests;
