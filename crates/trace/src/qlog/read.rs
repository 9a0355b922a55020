//! Reads a log: a sequence of JSON texts, or one text that contains all traces.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::Value;

use super::{NAMESPACE, SEPARATOR};
use crate::trace::{Entry, Fact, Kind, Segment, Trace};

/// Why a file is no log that can be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// The record, counted from 1; 0: the file as a whole.
    pub record: usize,
    /// What is wrong.
    pub what: String,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.record {
            0 => f.write_str(&self.what),
            record => write!(f, "record {record}: {}", self.what),
        }
    }
}

impl std::error::Error for Error {}

/// The connections of a log, in the order in which they appear. Events of other namespaces are
/// left out.
///
/// # Errors
/// If it is no qlog, or an event lacks what it must have.
pub fn read(bytes: &[u8]) -> Result<Vec<Trace>, Error> {
    let mut traces = Traces::default();
    if bytes.first() == Some(&SEPARATOR) {
        let records = bytes.split(|byte| *byte == SEPARATOR).skip(1);
        for (place, record) in records.enumerate() {
            let fault = |what: String| Error { record: place + 1, what };
            let value: Value =
                serde_json::from_slice(record).map_err(|error| fault(error.to_string()))?;
            if place == 0 {
                check_head(&value).map_err(fault)?;
            } else {
                traces.take(&value, None).map_err(fault)?;
            }
        }
        return Ok(traces.list);
    }
    let fault = |what: String| Error { record: 0, what };
    let value: Value = serde_json::from_slice(bytes)
        .map_err(|error| fault(format!("neither qlog nor pcapng: {error}")))?;
    check_head(&value).map_err(fault)?;
    let contained = value["traces"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut count = 0;
    for trace in contained {
        let group = trace["common_fields"]["group_id"].as_str();
        for event in trace["events"].as_array().map(Vec::as_slice).unwrap_or_default() {
            count += 1;
            traces.take(event, group).map_err(|what| Error { record: count, what })?;
        }
    }
    Ok(traces.list)
}

fn check_head(value: &Value) -> Result<(), String> {
    let schema = value["file_schema"].as_str().unwrap_or_default();
    let version = value["qlog_version"].as_str().unwrap_or_default();
    if schema.starts_with("urn:ietf:params:qlog:file:") || !version.is_empty() {
        return Ok(());
    }
    Err("no qlog: there is no file_schema".to_owned())
}

#[derive(Default)]
struct Traces {
    list: Vec<Trace>,
    places: BTreeMap<String, usize>,
}

impl Traces {
    fn take(&mut self, event: &Value, group: Option<&str>) -> Result<(), String> {
        let ms = event["time"].as_f64().ok_or("an event without a time")?;
        let name = event["name"].as_str().ok_or("an event without a name")?;
        let Some(name) = name.strip_prefix(NAMESPACE) else { return Ok(()) };
        let group = event["group_id"].as_str().or(group).unwrap_or("?");
        let data = event["data"].as_object().ok_or("an event without data")?;
        let kind = match name {
            "segment_sent" => Kind::Segment(segment(&event["data"], true)?),
            "segment_received" => Kind::Segment(segment(&event["data"], false)?),
            _ => {
                let fields = data.iter().map(|(key, value)| (shown(key), text(value)));
                Kind::Fact(Fact { name: shown(name), fields: fields.collect() })
            }
        };
        let place = *self.places.entry(group.to_owned()).or_insert_with(|| {
            self.list.push(Trace { name: shown(group), entries: Vec::new() });
            self.list.len() - 1
        });
        self.list[place].entries.push(Entry { ms, kind });
        Ok(())
    }
}

fn segment(data: &Value, is_sent: bool) -> Result<Segment, String> {
    let number = |key: &str| data[key].as_u64().and_then(|it| u32::try_from(it).ok());
    let must = |key: &str| number(key).ok_or_else(|| format!("a segment without {key}"));
    let block = |it: &Value| {
        let end = |place: usize| it[place].as_u64().and_then(|it| u32::try_from(it).ok());
        Some((end(0)?, end(1)?))
    };
    let sack = data["sack"].as_array().map(Vec::as_slice).unwrap_or_default();
    let sack = sack.iter().map(block).collect::<Option<_>>();
    Ok(Segment {
        is_sent,
        seq: must("seq")?,
        ack: number("ack"),
        len: must("len")?,
        flags: shown(data["flags"].as_str().unwrap_or_default()),
        window: must("window")?,
        sack: sack.ok_or("a SACK block is no pair of numbers")?,
        segments: number("segments").unwrap_or(1),
        again: data["retransmission"].as_str().map(shown),
    })
}

fn text(value: &Value) -> String {
    match value {
        Value::String(text) => shown(text),
        other => shown(&other.to_string()),
    }
}

/// A text of the file as a terminal may have it: a stranger's log must not command it.
fn shown(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for it in text.chars() {
        if it.is_control() {
            out.extend(it.escape_default());
        } else {
            out.push(it);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_say_the_same() {
        let event = r#"{"time":1.5,"name":"tcp:segment_sent","group_id":"a-b","data":
            {"seq":7,"len":3,"flags":"P.","window":9,"ack":4,"sack":[[1,2]]}}"#;
        let other = r#"{"time":2,"name":"quic:packet_sent","data":{}}"#;
        let head = r#"{"file_schema":"urn:ietf:params:qlog:file:sequential"}"#;
        let sequence = format!("\u{1e}{head}\n\u{1e}{event}\n\u{1e}{other}\n");
        let contained = format!(
            r#"{{"file_schema":"urn:ietf:params:qlog:file:contained",
            "traces":[{{"events":[{event},{other}]}}]}}"#
        );
        let read_of = |text: &str| read(text.as_bytes()).unwrap();
        assert_eq!(read_of(&sequence), read_of(&contained));
        let traces = read_of(&sequence);
        let (ms, segment) = traces[0].segments().next().unwrap();
        assert_eq!((ms, segment.seq, segment.sack.as_slice()), (1.5, 7, &[(1, 2)][..]));
        assert_eq!((traces.len(), traces[0].entries.len()), (1, 1));
    }

    #[test]
    fn no_text_of_a_stranger_commands_a_terminal() {
        // ESC, BEL, a line's end and the C1 CSI, which is one character too, in each text.
        let evil = r"\u001b]0;x\u0007\n\u009b2J\u007f";
        let head = r#"{"file_schema":"urn:ietf:params:qlog:file:sequential"}"#;
        let segment = format!(
            r#"{{"time":1,"name":"tcp:segment_sent","group_id":"g{evil}","data":
            {{"seq":7,"len":3,"flags":"P{evil}","window":9,"retransmission":"r{evil}"}}}}"#
        );
        let fact = format!(
            r#"{{"time":1,"name":"tcp:n{evil}","group_id":"g{evil}","data":
            {{"k{evil}":"v{evil}","list":["{evil}"]}}}}"#
        );
        let log = format!("\u{1e}{head}\n\u{1e}{segment}\n\u{1e}{fact}\n");
        let traces = read(log.as_bytes()).unwrap();
        assert_eq!(traces[0].name, r"g\u{1b}]0;x\u{7}\n\u{9b}2J\u{7f}");
        assert_eq!((traces.len(), traces[0].entries.len()), (1, 2));
        let text = crate::timeline(&traces[0]);
        assert_eq!(text.lines().count(), 3, "{text:?}");
        assert!(!text.contains(|it: char| it.is_control() && it != '\n'), "{text:?}");
    }

    #[test]
    fn what_is_no_log_says_where_it_is_wrong() {
        let head = "\u{1e}{\"file_schema\":\"urn:ietf:params:qlog:file:sequential\"}\n";
        for (text, what) in [
            ("", "neither qlog nor pcapng: EOF"),
            ("{}", "no qlog: there is no file_schema"),
            ("\u{1e}{}", "record 1: no qlog"),
            (&format!("{head}\u{1e}{{"), "record 2: EOF"),
            (&format!("{head}\u{1e}{{\"name\":\"x\"}}"), "record 2: an event without a time"),
            (
                &format!(
                    "{head}\u{1e}{{\"time\":1,\"name\":\"tcp:segment_sent\",\"data\":\
                     {{\"seq\":-1}}}}"
                ),
                "record 2: a segment without seq",
            ),
        ] {
            let error = read(text.as_bytes()).unwrap_err().to_string();
            assert!(error.starts_with(what), "{text}: {error}");
        }
    }
}
