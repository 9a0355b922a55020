//! A request in the form that it has on the wire: it keeps the connection, or asks the server to
//! close.

use std::fmt::Write;

/// Fields that this module sets: they frame the request or control the connection.
const OURS: [&str; 3] = ["connection", "content-length", "transfer-encoding"];

/// Fields of a request over HTTP/2, at most.
const MOST_FIELDS: usize = 64;

/// The idempotent methods (RFC 9110 §9.2.2).
const IDEMPOTENT: [&str; 6] = ["GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"];

/// A request of HTTP/1.1 in two forms: one that keeps the connection and one that asks the server
/// to close it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    keeping: Vec<u8>,
    closing: Vec<u8>,
    is_head: bool,
    is_idempotent: bool,
}

impl Request {
    /// A request for `target` (a path with its query) of `host` (with the port, if it is not the
    /// scheme's own). `fields` keep their order. A Host or User-Agent among them replaces the
    /// default.
    ///
    /// # Errors
    /// A line that names the part that HTTP does not allow.
    pub fn new(
        method: &str,
        target: &str,
        host: &str,
        fields: &[(String, String)],
        body: &[u8],
    ) -> Result<Request, String> {
        if !is_token(method) {
            return Err(format!("{method:?} is not a method"));
        }
        if target.is_empty() || !target.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(format!("{target:?} is not a path: write other characters as %XX"));
        }
        let mut head = format!("{method} {target} HTTP/1.1\r\n");
        let defaults = [("Host", host), ("User-Agent", AGENT), ("Accept", "*/*")];
        for (name, value) in defaults {
            if !fields.iter().any(|(given, _)| given.eq_ignore_ascii_case(name)) {
                field(&mut head, name, value);
            }
        }
        for (name, value) in fields {
            if !is_token(name) || value.bytes().any(|byte| byte < b' ' && byte != b'\t') {
                return Err(format!("\"{name}: {value}\" is not a header field"));
            }
            if OURS.iter().any(|ours| name.eq_ignore_ascii_case(ours)) {
                return Err(format!("{name} is set by the load itself"));
            }
            field(&mut head, name, value);
        }
        if !body.is_empty() || ["POST", "PUT", "PATCH"].contains(&method) {
            field(&mut head, "Content-Length", &body.len().to_string());
        }
        let whole = |last: &str| [head.as_bytes(), last.as_bytes(), body].concat();
        Ok(Request {
            keeping: whole("\r\n"),
            closing: whole("Connection: close\r\n\r\n"),
            is_head: method == "HEAD",
            is_idempotent: IDEMPOTENT.contains(&method),
        })
    }

    /// The bytes of a request that leaves the connection open.
    pub fn keeping(&self) -> &[u8] {
        &self.keeping
    }

    /// The bytes of a request that asks the server to close the connection after its answer.
    pub fn closing(&self) -> &[u8] {
        &self.closing
    }

    /// The request as HTTP/2 has it, and its body.
    ///
    /// # Errors
    /// A line that names the part that HTTP/2 does not allow.
    pub fn http2(&self, scheme: &'static str) -> Result<(http::Request<()>, &[u8]), String> {
        let mut fields = [httparse::EMPTY_HEADER; MOST_FIELDS];
        let mut read = httparse::Request::new(&mut fields);
        let head = match read.parse(&self.keeping) {
            Ok(httparse::Status::Complete(bytes)) => bytes,
            Ok(httparse::Status::Partial) | Err(_) => {
                return Err(format!("a request over HTTP/2 has {MOST_FIELDS} fields at most"));
            }
        };
        let mut request = http::Request::builder().method(read.method.unwrap_or("GET"));
        let mut authority = "";
        for field in &*read.headers {
            // `:authority` stands for it (RFC 9113 §8.3.1).
            match field.name.eq_ignore_ascii_case("host") {
                true => authority = std::str::from_utf8(field.value).unwrap_or_default(),
                false => request = request.header(field.name, field.value),
            }
        }
        let uri = http::Uri::builder().scheme(scheme).authority(authority);
        let uri = uri.path_and_query(read.path.unwrap_or("/")).build();
        let uri = uri.map_err(|error| format!("the host {authority:?}: {error}"))?;
        let request = request.uri(uri).body(()).map_err(|error| error.to_string())?;
        Ok((request, &self.keeping[head..]))
    }

    /// True if its answer never has a body (RFC 9110 §9.3.2).
    pub fn is_head(&self) -> bool {
        self.is_head
    }

    /// True if two requests have the effect of one (RFC 9110 §9.2.2).
    pub fn is_idempotent(&self) -> bool {
        self.is_idempotent
    }
}

const AGENT: &str = concat!("lightwait-load/", env!("CARGO_PKG_VERSION"));

fn field(head: &mut String, name: &str, value: &str) {
    write!(head, "{name}: {value}\r\n").expect("a string takes all");
}

/// True if `text` is a token of RFC 9110 §5.6.2.
fn is_token(text: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !text.is_empty() && text.bytes().all(is_part)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(method: &str, fields: &[(&str, &str)], body: &str) -> Result<Request, String> {
        let fields: Vec<(String, String)> =
            fields.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Request::new(method, "/a?b=c", "h:8080", &fields, body.as_bytes())
    }

    #[test]
    fn the_two_forms_differ_in_the_connection_alone() {
        let request = request("GET", &[], "").unwrap();
        let text = format!(
            "GET /a?b=c HTTP/1.1\r\nHost: h:8080\r\nUser-Agent: {AGENT}\r\nAccept: */*\r\n"
        );
        assert_eq!(String::from_utf8_lossy(request.keeping()), format!("{text}\r\n"));
        let closing = format!("{text}Connection: close\r\n\r\n");
        assert_eq!(String::from_utf8_lossy(request.closing()), closing);
    }

    #[test]
    fn a_body_has_its_length_and_given_fields_replace_ours() {
        let fields = [("host", "other"), ("User-agent", "x"), ("ACCEPT", "y"), ("A", "b\tc")];
        let request = request("POST", &fields, "body").unwrap();
        let text = "POST /a?b=c HTTP/1.1\r\nhost: other\r\nUser-agent: x\r\nACCEPT: y\r\n\
                    A: b\tc\r\nContent-Length: 4\r\n\r\nbody";
        assert_eq!(String::from_utf8_lossy(request.keeping()), text);
        assert!(!request.is_head());
    }

    #[test]
    fn an_empty_body_is_declared_by_its_method_and_head_has_none() {
        let text = |method| {
            String::from_utf8(request(method, &[], "").unwrap().keeping().to_vec()).unwrap()
        };
        assert!(text("PUT").contains("Content-Length: 0\r\n"));
        assert!(!text("HEAD").contains("Content-Length"));
        assert!(request("HEAD", &[], "").unwrap().is_head());
    }

    #[test]
    fn over_http_2_the_host_is_the_authority() {
        let post = request("POST", &[("A", "b"), ("Host", "other:1")], "body").unwrap();
        let (head, body) = post.http2("https").unwrap();
        assert_eq!((head.method().as_str(), body), ("POST", &b"body"[..]));
        assert_eq!(head.uri(), "https://other:1/a?b=c");
        assert!(head.headers()["a"] == "b" && head.headers()["content-length"] == "4");
        assert!(!head.headers().contains_key("host"));
        let odd = request("GET", &[("Host", "a b")], "").unwrap();
        assert!(odd.http2("http").unwrap_err().contains("a b"));
        let many: Vec<_> = (0..MOST_FIELDS).map(|_| ("x", "y")).collect();
        assert!(request("GET", &many, "").unwrap().http2("http").is_err());
    }

    #[test]
    fn what_would_be_another_request_is_refused() {
        for (method, fields, why) in [
            ("GE T", &[][..], "method"),
            ("", &[], "method"),
            ("GET", &[("a", "b\r\nc: d")], "header field"),
            ("GET", &[("a b", "c")], "header field"),
            ("GET", &[("Content-length", "3")], "by the load itself"),
            ("GET", &[("connection", "close")], "by the load itself"),
        ] {
            let error = request(method, fields, "").unwrap_err();
            assert!(error.contains(why), "{error}");
        }
        for target in ["", "/a b", "/ä", "/a\r\n"] {
            assert!(Request::new("GET", target, "h", &[], &[]).is_err(), "{target:?}");
        }
    }
}
