//! A request's line in a form of the user's, with the variables of nginx's `log_format`.

use std::fmt::Write as _;
use std::str::FromStr;
use std::time::{Duration, SystemTime};

use lightwait_http::Access;
use lightwait_http::date::Utc;

use super::access::{date, escape};

/// What a line consists of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Format {
    parts: Vec<Part>,
    escaping: Escaping,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(String),
    Variable(Variable),
}

/// What is done to the values of variables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Escaping {
    /// Quotes, backslashes and what is no printable ASCII become `\xXX`; nothing becomes `-`.
    Usual,
    /// As in JSON's strings; nothing stays nothing.
    Json,
}

/// Names and meanings, in the order of the alphabet.
const VARIABLES: [(&str, Variable); 25] = [
    ("args", Variable::Args),
    ("body_bytes_sent", Variable::BodyBytes),
    ("first_byte_time", Variable::FirstByte),
    ("host", Variable::Host),
    ("http_host", Variable::HttpHost),
    ("http_referer", Variable::Referer),
    ("http_user_agent", Variable::UserAgent),
    ("is_args", Variable::IsArgs),
    ("msec", Variable::Msec),
    ("query_string", Variable::Args),
    ("remote_addr", Variable::RemoteAddress),
    ("remote_port", Variable::RemotePort),
    ("remote_user", Variable::RemoteUser),
    ("request", Variable::Request),
    ("request_completion", Variable::Completion),
    ("request_method", Variable::Method),
    ("request_time", Variable::RequestTime),
    ("request_uri", Variable::Uri),
    ("retransmits", Variable::Retransmits),
    ("server_protocol", Variable::Protocol),
    ("status", Variable::Status),
    ("tcpinfo_rtt", Variable::Rtt),
    ("time_iso8601", Variable::TimeIso),
    ("time_local", Variable::TimeLocal),
    ("uri", Variable::Path),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Variable {
    Args,
    BodyBytes,
    FirstByte,
    Host,
    HttpHost,
    Referer,
    UserAgent,
    IsArgs,
    Msec,
    RemoteAddress,
    RemotePort,
    RemoteUser,
    Request,
    Completion,
    Method,
    RequestTime,
    Uri,
    Retransmits,
    Protocol,
    Status,
    Rtt,
    TimeIso,
    TimeLocal,
    Path,
}

/// The longest format, in bytes.
const LONGEST: usize = 4096;

impl FromStr for Format {
    type Err = String;

    /// Reads `$name`, `${name}` and text; `escape=json` may stand before all.
    fn from_str(format: &str) -> Result<Format, String> {
        if format.len() > LONGEST {
            return Err(format!("a format has at most {LONGEST} bytes"));
        }
        let modes = [("escape=json ", Escaping::Json), ("escape=default ", Escaping::Usual)];
        let found = modes.iter().find(|(prefix, _)| format.starts_with(prefix));
        let (skipped, escaping) =
            found.map_or((0, Escaping::Usual), |(prefix, escaping)| (prefix.len(), *escaping));
        let (mut parts, mut text, mut at) = (Vec::new(), String::new(), skipped);
        while let Some(next) = format[at..].chars().next() {
            if next.is_control() {
                return Err(format!("character {}: a line has no {next:?}", place(format, at)));
            }
            if next != '$' {
                text.push(next);
                at += next.len_utf8();
                continue;
            }
            let (name, end) = name(format, at)?;
            let known = VARIABLES.iter().find(|(known, _)| *known == name);
            let (_, variable) = known.ok_or_else(|| unknown(format, at, name))?;
            if !text.is_empty() {
                parts.push(Part::Text(std::mem::take(&mut text)));
            }
            parts.push(Part::Variable(*variable));
            at = end;
        }
        if !text.is_empty() {
            parts.push(Part::Text(text));
        }
        Ok(Format { parts, escaping })
    }
}

/// The name behind the `$` at `at`, and where what follows begins.
fn name(format: &str, at: usize) -> Result<(&str, usize), String> {
    let rest = &format[at + 1..];
    let is_braced = rest.starts_with('{');
    let begin = at + 1 + usize::from(is_braced);
    let is_of_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let len = format[begin..].find(|c| !is_of_name(c)).unwrap_or(format.len() - begin);
    let (name, end) = (&format[begin..begin + len], begin + len);
    let place = place(format, at);
    if is_braced && !format[end..].starts_with('}') {
        return Err(format!("character {place}: ${{{name} is not closed by a brace"));
    }
    if name.is_empty() {
        return Err(format!("character {place}: the name of a variable follows $"));
    }
    Ok((name, end + usize::from(is_braced)))
}

/// The number of the character that begins at byte `at`, counted from 1.
fn place(format: &str, at: usize) -> usize {
    format[..at].chars().count() + 1
}

fn unknown(format: &str, at: usize, name: &str) -> String {
    let place = place(format, at);
    let alike = VARIABLES.iter().map(|(known, _)| (strsim::jaro_winkler(known, name), known));
    let nearest = alike.max_by(|one, other| one.0.total_cmp(&other.0));
    match nearest {
        Some((likeness, nearest)) if likeness > 0.75 => {
            format!("character {place}: there is no ${name}; did you mean ${nearest}?")
        }
        _ => {
            let all: Vec<_> = VARIABLES.iter().map(|(known, _)| format!("${known}")).collect();
            format!("character {place}: there is no ${name}; there are {}", all.join(", "))
        }
    }
}

impl Format {
    /// The line of a request whose response ended at `ended`.
    pub(super) fn line(&self, ended: SystemTime, access: &Access) -> String {
        let (mut line, mut value) = (String::new(), Vec::new());
        for part in &self.parts {
            match part {
                Part::Text(text) => line.push_str(text),
                Part::Variable(variable) => {
                    value.clear();
                    variable.write(ended, access, &mut value);
                    self.put(&value, &mut line);
                }
            }
        }
        line
    }

    fn put(&self, value: &[u8], line: &mut String) {
        match self.escaping {
            Escaping::Usual if value.is_empty() => line.push('-'),
            Escaping::Usual => escape(line, value),
            Escaping::Json => {
                let quoted = serde_json::Value::from(String::from_utf8_lossy(value)).to_string();
                line.push_str(&quoted[1..quoted.len() - 1]);
            }
        }
    }
}

impl Variable {
    fn write(self, ended: SystemTime, access: &Access, out: &mut Vec<u8>) {
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = match self {
            Variable::BodyBytes => write!(text, "{}", access.body_bytes),
            Variable::FirstByte => seconds(access.first_byte, &mut text),
            Variable::RequestTime => seconds(Some(access.duration), &mut text),
            Variable::Msec => seconds(ended.duration_since(SystemTime::UNIX_EPOCH).ok(), &mut text),
            Variable::RemoteAddress => write!(text, "{}", access.peer.ip()),
            Variable::RemotePort => write!(text, "{}", access.peer.port()),
            Variable::Status => write!(text, "{}", access.status.as_u16()),
            Variable::Retransmits => {
                access.retransmits.map_or(Ok(()), |count| write!(text, "{count}"))
            }
            Variable::Rtt => {
                access.srtt.map_or(Ok(()), |srtt| write!(text, "{}", srtt.as_micros()))
            }
            Variable::TimeIso => {
                let utc = || Utc::of(ended);
                write!(text, "{}T{}+00:00", utc().date(), utc().clock())
            }
            Variable::TimeLocal => {
                date(ended, &mut text);
                Ok(())
            }
            other => return out.extend_from_slice(other.of_request(access)),
        };
        out.extend_from_slice(text.as_bytes());
    }

    /// What the request says itself; nothing where it does not.
    fn of_request(self, access: &Access) -> &[u8] {
        let request = &access.request;
        let target = request.target().unwrap_or_default();
        let question = target.iter().position(|byte| *byte == b'?');
        let field = |field: &'_ Option<String>| field.as_deref().unwrap_or_default().len();
        match self {
            Variable::Request => request.as_bytes(),
            Variable::Method => request.method().unwrap_or_default().as_bytes(),
            Variable::Protocol => request.version().unwrap_or_default().as_bytes(),
            Variable::Uri => target,
            Variable::Path => &target[..question.unwrap_or(target.len())],
            Variable::Args => question.map_or(&[], |at| &target[at + 1..]),
            Variable::IsArgs if question.is_some_and(|at| at + 1 < target.len()) => b"?",
            Variable::HttpHost => access.host.as_deref().unwrap_or_default().as_bytes(),
            Variable::Host => without_port(access.host.as_deref().unwrap_or_default()).as_bytes(),
            Variable::Referer if field(&access.referer) > 0 => text(&access.referer),
            Variable::UserAgent if field(&access.user_agent) > 0 => text(&access.user_agent),
            Variable::Completion if access.complete => b"OK",
            Variable::RemoteUser => access.user.as_deref().unwrap_or_default().as_bytes(),
            _ => b"",
        }
    }
}

fn text(field: &Option<String>) -> &[u8] {
    field.as_deref().unwrap_or_default().as_bytes()
}

/// A host without the port behind it; an IPv6 address keeps its brackets.
fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|it| it.is_ascii_digit()) => name,
        _ => host,
    }
}

/// Seconds with three digits behind the point, as nginx writes them.
fn seconds(time: Option<Duration>, text: &mut String) -> std::fmt::Result {
    time.map_or(Ok(()), |time| write!(text, "{}.{:03}", time.as_secs(), time.subsec_millis()))
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;

    fn access() -> Access {
        Access {
            host: Some("example.org:8080".to_owned()),
            user_agent: Some("é \"x\"".to_owned()),
            body_bytes: 12,
            complete: true,
            duration: Duration::from_micros(1_001_500),
            srtt: Some(Duration::from_micros(250)),
            ..Access::new(SocketAddr::from(([192, 0, 2, 1], 5)), "GET /a?b=1 HTTP/1.1".into())
        }
    }

    fn line(format: &str) -> String {
        let ended = SystemTime::UNIX_EPOCH + Duration::from_millis(3_661_250);
        format.parse::<Format>().unwrap().line(ended, &access())
    }

    #[test]
    fn nginx_s_combined_is_what_it_writes() {
        let combined = "$remote_addr - $remote_user [$time_local] \"$request\" $status \
                        $body_bytes_sent \"$http_referer\" \"$http_user_agent\" $request_time";
        let told = "192.0.2.1 - - [01/Jan/1970:01:01:01 +0000] \"GET /a?b=1 HTTP/1.1\" 200 12 \
                    \"-\" \"\\xC3\\xA9 \\x22x\\x22\" 1.001";
        assert_eq!(line(combined), told);
    }

    #[test]
    fn every_variable_has_a_value_and_the_names_are_sorted() {
        assert!(VARIABLES.is_sorted_by_key(|(name, _)| *name));
        for (name, value) in [
            ("args", "b=1"),
            ("query_string", "b=1"),
            ("is_args", "?"),
            ("uri", "/a"),
            ("request_uri", "/a?b=1"),
            ("request_method", "GET"),
            ("server_protocol", "HTTP/1.1"),
            ("host", "example.org"),
            ("http_host", "example.org:8080"),
            ("remote_port", "5"),
            ("request_completion", "OK"),
            ("msec", "3661.250"),
            ("time_iso8601", "1970-01-01T01:01:01+00:00"),
            ("tcpinfo_rtt", "250"),
            ("retransmits", "-"),
            ("first_byte_time", "-"),
        ] {
            assert_eq!(line(&format!("<${name}>")), format!("<{value}>"), "{name}");
            assert_eq!(line(&format!("${{{name}}}x")), format!("{value}x"), "{name}");
        }
        assert_eq!(without_port("[::1]:80"), "[::1]");
        assert_eq!(without_port("[::1]"), "[::1]");
    }

    #[test]
    fn json_is_escaped_as_such() {
        let told = line(r#"escape=json {"agent":"$http_user_agent","referer":"$http_referer"}"#);
        let value: serde_json::Value = serde_json::from_str(&told).unwrap();
        assert_eq!((&value["agent"], &value["referer"]), (&"é \"x\"".into(), &"".into()));
    }

    #[test]
    fn what_is_wrong_is_told_with_its_place() {
        let fault = |format: &str| format.parse::<Format>().unwrap_err();
        let near = "character 3: there is no $remote_adr; did you mean $remote_addr?";
        assert_eq!(fault("é $remote_adr"), near);
        assert!(fault("$zzz").starts_with("character 1: there is no $zzz; there are $args, "));
        assert_eq!(fault("a $"), "character 3: the name of a variable follows $");
        assert!(fault("${status").starts_with("character 1: ${status is not closed"));
        assert!(fault("$status\n").starts_with("character 8: a line has no '\\n'"));
        assert!("x".repeat(LONGEST).parse::<Format>().is_ok());
        assert!("x".repeat(LONGEST + 1).parse::<Format>().is_err());
    }
}
