//! The record of one response, for logs and counters. The server makes one for each response, when
//! it is over.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use http::header::{self, HeaderName};
use http::{Method, Request, StatusCode, Version};

/// One request and its outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    /// The client's address.
    pub peer: SocketAddr,
    /// Whose password the request gave, if it needed one.
    pub user: Option<String>,
    /// The request's first line.
    pub request: RequestLine,
    /// The host and port that were asked for, by the target or else by `Host` (RFC 9112 §3.2.2).
    pub host: Option<String>,
    /// `Referer`, if the request has one.
    pub referer: Option<String>,
    /// `User-Agent`, if the request has one.
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
    /// The time from the last byte of the request's head until the head of the response was made,
    /// and its first byte could leave; `None` if the server refused the head of the request.
    pub first_byte: Option<Duration>,
    /// Smoothed round-trip time at the end, if the transport can tell.
    pub srtt: Option<Duration>,
    /// Segments retransmitted meanwhile, if the transport can tell.
    pub retransmits: Option<u64>,
}

impl Access {
    /// The record of a request whose head has just been read. `minor`: its version was HTTP/1.x
    /// with that digit, and was read as HTTP/1.1.
    pub(crate) fn of<B>(peer: SocketAddr, request: &Request<B>, minor: Option<u8>) -> Access {
        let field = |name: HeaderName| {
            let value = request.headers().get(name)?;
            Some(String::from_utf8_lossy(value.as_bytes()).into_owned())
        };
        let (method, target, version) = (request.method(), request.uri(), request.version());
        // HTTP/2 has the host apart (RFC 9113 §8.3.1).
        let is_path = version == Version::HTTP_2 || target.authority().is_none();
        let path = target.path_and_query().filter(|_| is_path);
        let mut line = RequestLine::from(match (path, version) {
            (Some(path), Version::HTTP_11) => {
                [method.as_str(), " ", path.as_str(), " HTTP/1.1"].concat()
            }
            (Some(path), _) => format!("{method} {path} {version:?}"),
            (None, _) => format!("{method} {target} {version:?}"),
        });
        line.restore(minor);
        let authority = target.authority().map(|authority| authority.as_str().to_owned());
        Access {
            host: authority.or_else(|| field(header::HOST)),
            referer: field(header::REFERER),
            user_agent: field(header::USER_AGENT),
            ..Access::new(peer, line)
        }
    }

    /// Bytes of its texts.
    pub(crate) fn text_bytes(&self) -> usize {
        let fields = [&self.user, &self.host, &self.referer, &self.user_agent];
        let fields = fields.iter().filter_map(|field| field.as_ref());
        self.request.0.len() + fields.map(String::len).sum::<usize>()
    }

    /// A record with the address and the request's first line alone.
    pub fn new(peer: SocketAddr, request: RequestLine) -> Access {
        Access {
            peer,
            user: None,
            request,
            host: None,
            referer: None,
            user_agent: None,
            status: StatusCode::OK,
            srtt: None,
            retransmits: None,
            body_bytes: 0,
            complete: false,
            duration: Duration::ZERO,
            first_byte: None,
        }
    }
}

/// A request's first line as the client sent it, not decoded. Its target is mostly path and query,
/// but a URL of a client that takes the server for a proxy (RFC 9112 §3.2); a fragment is left out.
/// If the server refused the head (400, 414, 431, 505), the line may be anything: it has no more
/// than its first 256 bytes, and ends in `...` if there were more. It is empty where hyper had
/// dropped the head before it refused it, on a connection with requests before.
#[derive(Clone, PartialEq, Eq)]
pub struct RequestLine(Vec<u8>);

/// Bytes of a refused request's line in its record, at most.
const REFUSED_BYTES: usize = 256;

impl RequestLine {
    /// The line of a request that is refused.
    pub(crate) fn refused(line: &[u8]) -> RequestLine {
        match line.get(..REFUSED_BYTES) {
            Some(begin) if begin.len() < line.len() => RequestLine([begin, b"..."].concat()),
            _ => RequestLine(line.to_owned()),
        }
    }

    /// Undoes that a version with the digit `minor` was read as HTTP/1.1.
    pub(crate) fn restore(&mut self, minor: Option<u8>) {
        if let (Some(minor), [.., b'.', digit]) = (minor, &mut *self.0) {
            *digit = b'0' + minor;
        }
    }

    /// The line, without its end.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The method, if the line begins with one.
    pub fn method(&self) -> Option<&str> {
        let word = self.0.split(|byte| *byte == b' ').next()?;
        Method::from_bytes(word).is_ok().then(|| std::str::from_utf8(word).ok())?
    }

    /// The target, if there is one: what stands between the method and the version.
    pub fn target(&self) -> Option<&[u8]> {
        let rest = &self.0[self.method()?.len()..];
        let rest = &rest[..rest.len() - self.version().map_or(0, str::len)];
        let target = rest.trim_ascii();
        (!target.is_empty()).then_some(target)
    }

    /// The version, as `HTTP/1.1`, if the line ends with one.
    pub fn version(&self) -> Option<&str> {
        let at = self.0.iter().rposition(|byte| *byte == b' ')?;
        let word = std::str::from_utf8(&self.0[at + 1..]).ok()?;
        let is_version =
            matches!(word.strip_prefix("HTTP/")?.as_bytes(), [b'0'..=b'9', b'.', b'0'..=b'9']);
        is_version.then_some(word)
    }
}

impl From<String> for RequestLine {
    fn from(line: String) -> RequestLine {
        RequestLine(line.into_bytes())
    }
}

impl From<&str> for RequestLine {
    fn from(line: &str) -> RequestLine {
        RequestLine(line.into())
    }
}

impl fmt::Debug for RequestLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", String::from_utf8_lossy(&self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The method, the target and the version of a line.
    fn parts(line: &str) -> [Option<String>; 3] {
        let line = RequestLine::from(line);
        let target = line.target().map(|target| String::from_utf8(target.to_owned()).unwrap());
        [line.method().map(str::to_owned), target, line.version().map(str::to_owned)]
    }

    #[test]
    fn a_line_has_a_method_a_target_and_a_version_as_far_as_it_goes() {
        let of = |parts: [&str; 3]| parts.map(|part| (!part.is_empty()).then(|| part.to_owned()));
        for (line, wanted) in [
            ("GET /a?b HTTP/1.1", ["GET", "/a?b", "HTTP/1.1"]),
            ("GET  /a HTTP/1.1", ["GET", "/a", "HTTP/1.1"]),
            ("GET /a  HTTP/1.1", ["GET", "/a", "HTTP/1.1"]),
            ("GET /a b HTTP/1.1", ["GET", "/a b", "HTTP/1.1"]),
            ("PRI * HTTP/2.0", ["PRI", "*", "HTTP/2.0"]),
            ("GET /a", ["GET", "/a", ""]),
            ("GET /a HTTP/11", ["GET", "/a HTTP/11", ""]),
            ("GET", ["GET", "", ""]),
            ("GET HTTP/1.1", ["GET", "", "HTTP/1.1"]),
            ("- /a HTTP/1.1", ["-", "/a", "HTTP/1.1"]),
            ("\u{16}\u{3} x", ["", "", ""]),
            (" /a HTTP/1.1", ["", "", "HTTP/1.1"]),
            ("", ["", "", ""]),
        ] {
            assert_eq!(parts(line), of(wanted), "{line:?}");
        }
    }

    #[test]
    fn a_refused_line_is_whole_up_to_256_bytes_and_not_one_more() {
        let line = |bytes: usize| RequestLine::refused(&b"x".repeat(bytes));
        assert_eq!(line(256).as_bytes(), b"x".repeat(256));
        assert_eq!(line(257).as_bytes(), [&b"x".repeat(256)[..], b"..."].concat());
    }

    #[test]
    fn a_minor_version_that_was_read_as_another_is_restored() {
        let restored = |line: &str, minor| {
            let mut line = RequestLine::from(line);
            line.restore(minor);
            line
        };
        assert_eq!(restored("GET / HTTP/1.1", Some(2)), "GET / HTTP/1.2".into());
        assert_eq!(restored("GET / HTTP/1.1", None), "GET / HTTP/1.1".into());
        assert_eq!(restored("GET /xxx", Some(2)), "GET /xxx".into());
    }
}
