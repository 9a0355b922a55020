//! The line of a request: Combined, which every reader of access logs knows, with fields of our own
//! behind it if they are asked for; or an object.

use std::cell::RefCell;
use std::fmt::Write;
use std::time::SystemTime;

use lightwait_http::Access;
use lightwait_http::date::Utc;
use serde_json::{Value, json};

/// Bytes of a usual line.
const LINE_BYTES: usize = 320;

/// `address - user [time] "request" status bytes "referer" "user-agent"`. The time is the
/// request's, as in Apache's logs; the response ended at `ended`. With `has_fields` `host="…"
/// port=… ms=… srtt_ms=… retransmits=…` follow, and `cut` if the client does not have all of it.
pub(super) fn line(ended: SystemTime, access: &Access, has_fields: bool) -> String {
    let begun = ended.checked_sub(access.duration).unwrap_or(ended);
    // Mostly enough: a line that grows is copied several times.
    let mut line = String::with_capacity(LINE_BYTES);
    let _ = write!(line, "{} - ", access.peer.ip());
    escape(&mut line, access.user.as_deref().unwrap_or("-").as_bytes());
    line.push_str(" [");
    date(begun, &mut line);
    line.push_str("] \"");
    let request = access.request.as_bytes();
    escape(&mut line, if request.is_empty() { b"-" } else { request });
    let (status, bytes) = (access.status.as_u16(), access.body_bytes);
    let _ = write!(line, "\" {status} {bytes}");
    quote(&mut line, " ", access.referer.as_deref());
    quote(&mut line, " ", access.user_agent.as_deref());
    if has_fields {
        quote(&mut line, " host=", access.host.as_deref());
        let ms = access.duration.as_secs_f64() * 1e3;
        let _ = write!(line, " port={} ms={ms:.3}", access.peer.port());
        if let (Some(srtt), Some(retransmits)) = (access.srtt, access.retransmits) {
            let srtt = srtt.as_secs_f64() * 1e3;
            let _ = write!(line, " srtt_ms={srtt:.3} retransmits={retransmits}");
        }
        line.push_str(if access.complete { "" } else { " cut" });
    }
    line
}

thread_local! {
    /// The last date that was written, and its second: it costs as much as the rest of a line.
    static DATE: RefCell<(Option<u64>, String)> = const { RefCell::new((None, String::new())) };
}

/// Appends the date of a log's line.
pub(super) fn date(time: SystemTime, line: &mut String) {
    let second = time.duration_since(SystemTime::UNIX_EPOCH).ok().map(|since| since.as_secs());
    DATE.with_borrow_mut(|(last, text)| {
        if second.is_none() || *last != second {
            (*last, *text) = (second, Utc::of(time).in_log());
        }
        line.push_str(text);
    });
}

/// An object for programs. The request is there as it came, and in parts, as far as it has them. A
/// byte that is no UTF-8 becomes U+FFFD, as JSON is text.
pub(super) fn object(access: &Access) -> Value {
    let request = &access.request;
    let us = |time: std::time::Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    json!({
        "event": "access",
        "peer": access.peer.to_string(),
        "user": access.user,
        "request": String::from_utf8_lossy(request.as_bytes()),
        "method": request.method(),
        "target": request.target().map(String::from_utf8_lossy),
        "version": request.version(),
        "host": access.host,
        "referer": access.referer,
        "user_agent": access.user_agent,
        "status": access.status.as_u16(),
        "body_bytes": access.body_bytes,
        "complete": access.complete,
        "duration_us": us(access.duration),
        "srtt_us": access.srtt.map(us),
        "retransmits": access.retransmits,
    })
}

/// Appends a field in quotes; `-` if there is none.
fn quote(line: &mut String, before: &str, text: Option<&str>) {
    line.push_str(before);
    line.push('"');
    escape(line, text.unwrap_or("-").as_bytes());
    line.push('"');
}

/// Appends `text` as nginx does: no byte of it ends the field or the line.
pub(super) fn escape(line: &mut String, text: &[u8]) {
    let is_special = |byte: &u8| matches!(byte, b'"' | b'\\' | ..b' ' | 0x7f..);
    let mut rest = text;
    while let Some(at) = rest.iter().position(is_special) {
        line.push_str(&String::from_utf8_lossy(&rest[..at]));
        let _ = write!(line, "\\x{:02X}", rest[at]);
        rest = &rest[at + 1..];
    }
    line.push_str(&String::from_utf8_lossy(rest));
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::time::Duration;

    use lightwait_load::trace::{Line, Trace};

    use super::*;

    fn access() -> Access {
        Access {
            host: Some("example.org".to_owned()),
            referer: Some("http://a/\"\n\\".to_owned()),
            user_agent: Some("é [x] 1.0".to_owned()),
            body_bytes: 12,
            complete: true,
            duration: Duration::from_micros(1500),
            srtt: Some(Duration::from_micros(250)),
            retransmits: Some(3),
            ..of("GET /a?\"b HTTP/1.1")
        }
    }

    fn of(request: &str) -> Access {
        Access::new(SocketAddr::from(([192, 0, 2, 1], 5)), request.into())
    }

    #[test]
    fn a_line_is_combined_with_fields_behind_if_asked_for() {
        let ended = SystemTime::UNIX_EPOCH + Duration::from_secs(3_662);
        let text = line(ended, &access(), false);
        let combined = "192.0.2.1 - - [01/Jan/1970:01:01:01 +0000] \
                        \"GET /a?\\x22b HTTP/1.1\" 200 12 \"http://a/\\x22\\x0A\\x5C\" \"\\xC3\\xA9 [x] 1.0\"";
        assert_eq!(text, combined);
        let user = Access { user: Some("ann\"b".to_owned()), ..access() };
        assert!(line(ended, &user, false).starts_with("192.0.2.1 - ann\\x22b ["));
        let fields = line(ended, &access(), true);
        assert_eq!(
            fields,
            format!("{combined} host=\"example.org\" port=5 ms=1.500 srtt_ms=0.250 retransmits=3")
        );
        let bare = Access::new(SocketAddr::from(([0; 16], 5)), "PUT / HTTP/1.1".into());
        let text = line(ended, &bare, true);
        let rest = "\"PUT / HTTP/1.1\" 200 0 \"-\" \"-\" host=\"-\" port=5 ms=0.000 cut";
        assert_eq!(text, format!(":: - - [01/Jan/1970:01:01:02 +0000] {rest}"));
    }

    /// Requests as they come, what Combined has between its quotes, and what JSON has.
    const REQUESTS: [(&str, &str, [Option<&str>; 3]); 9] = [
        ("GET /a HTTP/1.2", "GET /a HTTP/1.2", [Some("GET"), Some("/a"), Some("HTTP/1.2")]),
        ("GET /a HTTP/3.0", "GET /a HTTP/3.0", [Some("GET"), Some("/a"), Some("HTTP/3.0")]),
        ("PRI * HTTP/2.0", "PRI * HTTP/2.0", [Some("PRI"), Some("*"), Some("HTTP/2.0")]),
        ("GET  /a HTTP/1.1", "GET  /a HTTP/1.1", [Some("GET"), Some("/a"), Some("HTTP/1.1")]),
        (
            "GET /a\rb HTTP/1.1",
            "GET /a\\x0Db HTTP/1.1",
            [Some("GET"), Some("/a\rb"), Some("HTTP/1.1")],
        ),
        ("GET /a\\x0Db", "GET /a\\x5Cx0Db", [Some("GET"), Some("/a\\x0Db"), None]),
        ("GET /é", "GET /\\xC3\\xA9", [Some("GET"), Some("/é"), None]),
        ("\u{16}\u{3}", "\\x16\\x03", [None; 3]),
        ("", "-", [None; 3]),
    ];

    #[test]
    fn a_request_is_written_as_it_came_and_escaped_once() {
        for (request, combined, parts) in REQUESTS {
            let text = line(SystemTime::UNIX_EPOCH, &of(request), false);
            assert_eq!(text.split('"').nth(1), Some(combined), "{request:?}");
            let object: Value = object(&of(request)).to_string().parse().unwrap();
            assert_eq!(object["request"], request);
            let found = ["method", "target", "version"].map(|part| object[part].as_str());
            assert_eq!(found, parts, "{request:?}");
        }
    }

    #[test]
    fn the_load_generator_leaves_out_what_is_no_request() {
        for (request, _, [.., version]) in REQUESTS {
            let text = line(SystemTime::now(), &of(request), false);
            let mut read = Vec::new();
            let trace = Trace::read(text.as_bytes(), |line| {
                read.push((line.method.clone(), line.target.clone()));
                Err(String::new())
            });
            assert_eq!(trace.unwrap().skipped, 1);
            let words: Vec<&str> = request.split(' ').collect();
            let is_request = words.len() == 3 || words.len() == 2 && version.is_none();
            assert_eq!(read.len(), usize::from(is_request), "{request:?}");
            if let [(method, target)] = &read[..] {
                assert_eq!([method, target], [words[0], words[1]]);
            }
        }
    }

    #[test]
    fn the_load_generator_reads_each_line() {
        let mut read = Vec::new();
        for has_fields in [false, true] {
            let text = line(SystemTime::now(), &access(), has_fields);
            let trace = Trace::read(text.as_bytes(), |line| {
                read.push(line.clone());
                Err(String::new())
            });
            assert_eq!(trace.unwrap().skipped, 1, "by the maker, not by the reader");
        }
        let field = |name: &str, text: &str| (name.to_owned(), text.to_owned());
        let access = access();
        let fields = [("Referer", access.referer), ("User-Agent", access.user_agent)];
        let fields = fields.map(|(name, text)| field(name, &text.unwrap()));
        let line = Line { method: "GET".into(), target: "/a?\"b".into(), fields: fields.into() };
        assert_eq!(read, [line.clone(), line]);
    }

    #[test]
    fn an_object_has_what_combined_has_and_more() {
        let object = object(&access());
        assert_eq!(object["peer"], "192.0.2.1:5");
        assert_eq!(object["target"], "/a?\"b");
        assert_eq!(object["version"], "HTTP/1.1");
        assert_eq!(object["user_agent"], "é [x] 1.0");
        assert_eq!(object["host"], "example.org");
        assert_eq!((&object["status"], &object["duration_us"]), (&json!(200), &json!(1500)));
        assert_eq!((&object["srtt_us"], &object["retransmits"]), (&json!(250), &json!(3)));
        assert!(!object.to_string().contains('\n'));
    }
}
