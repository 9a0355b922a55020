//! `/metrics`: the counters and levels of every stack of every shard, and how long responses and
//! round trips took, as Prometheus reads them.

use std::fmt::{self, Write as _};
use std::time::Duration;

use lightwait_http::Access;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder};
use prometheus_client::encoding::{prometheus_text, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

use crate::counts::{Counter, Counts};
use crate::serve::secure::Expiry;

/// The beginning of every name.
const PREFIX: &str = "lightwait";

/// What the levels of a stack are.
const LEVELS: [(&str, &str); 7] = [
    ("http_connections", "Connections of the HTTP server."),
    ("connections", "Connections of the stack."),
    ("syn_cache", "Half-open connections."),
    ("time_wait", "Records of TIME-WAIT."),
    ("fin_wait_2", "Records of FIN-WAIT-2: closed here, and not yet by the peer."),
    ("pages", "Pages of buffers in use."),
    ("receive_window_bytes", "Bytes that receive windows promise to peers."),
];

/// What the histograms of a shard's [`Times`] are.
const TIMES: [(&str, &str); 6] = [
    (
        "response_seconds",
        "Time from the end of a request's head to the acknowledgement of its response.",
    ),
    (
        "round_trip_seconds",
        "Smoothed round-trip time of the connection at the end of each response.",
    ),
    ("response_retransmits", "Segments retransmitted on the connection during each response."),
    (
        "first_byte_seconds",
        "Time from the end of a request's head until the head of its response was made.",
    ),
    (
        "handshake_seconds",
        "Time from our SYN, ACK to its acknowledgement, where neither was repeated or a cookie.",
    ),
    (
        "connection_retransmits",
        "Segments retransmitted on each connection with a request, up to its last response.",
    ),
];

/// The form in which the metrics are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// Prometheus' own, of version 0.0.4.
    Prometheus,
    /// OpenMetrics 1.0, where the scraper asks for it.
    OpenMetrics,
}

impl Form {
    /// The form that a request's `Accept` asks for.
    pub(super) fn accepted(accept: &str) -> Form {
        let is_open = accept.contains("application/openmetrics-text");
        if is_open { Form::OpenMetrics } else { Form::Prometheus }
    }

    pub(super) fn content_type(self) -> &'static str {
        match self {
            Form::Prometheus => prometheus_text::CONTENT_TYPE,
            Form::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// What a shard's responses and connections took. It hears of them at their handshakes, at the ends
/// of responses, and at their ends: a segment costs nothing. Clones are the same.
#[derive(Clone, Debug)]
pub(in crate::serve) struct Times {
    response: Histogram,
    round_trip: Histogram,
    retransmits: Histogram,
    first_byte: Histogram,
    handshake: Histogram,
    of_connection: Histogram,
}

impl Times {
    pub(in crate::serve) fn new() -> Times {
        // 16 µs to 67 s, by factors of four: a histogram has 12 buckets for each shard.
        let seconds = || Histogram::new(exponential_buckets(16e-6, 4.0, 12));
        let segments = || Histogram::new([0.0, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0]);
        Times {
            response: seconds(),
            round_trip: seconds(),
            retransmits: segments(),
            first_byte: seconds(),
            handshake: seconds(),
            of_connection: segments(),
        }
    }

    /// Notes a response that is over.
    pub(in crate::serve) fn note(&self, access: &Access) {
        self.response.observe(access.duration.as_secs_f64());
        if let Some(srtt) = access.srtt.filter(|srtt| *srtt > Duration::ZERO) {
            self.round_trip.observe(srtt.as_secs_f64());
        }
        if let Some(count) = access.retransmits {
            self.retransmits.observe(count as f64);
        }
        if let Some(first_byte) = access.first_byte {
            self.first_byte.observe(first_byte.as_secs_f64());
        }
    }

    /// Notes a connection that was accepted: its first round trip is that of the handshake.
    pub(in crate::serve) fn note_handshake(&self, round_trip: Duration) {
        if round_trip > Duration::ZERO {
            self.handshake.observe(round_trip.as_secs_f64());
        }
    }

    /// Notes a connection that is over, and had so many segments retransmitted.
    pub(in crate::serve) fn note_end(&self, retransmits: u64) {
        self.of_connection.observe(retransmits as f64);
    }

    /// Those of [`TIMES`].
    fn all(&self) -> [&Histogram; TIMES.len()] {
        [
            &self.response,
            &self.round_trip,
            &self.retransmits,
            &self.first_byte,
            &self.handshake,
            &self.of_connection,
        ]
    }
}

/// What a shard says of itself.
#[derive(Clone, Debug)]
pub(super) struct Report {
    /// The counts of each stack.
    pub(super) counts: Vec<Counts>,
    /// Those of its server.
    pub(super) times: Option<Times>,
}

/// Writes the metrics of all shards; `None` is a shard that did not answer.
pub(super) fn write(
    shards: Vec<Option<Report>>,
    whole: &[Counter],
    expiries: Vec<Expiry>,
    form: Form,
) -> String {
    let mut registry = Registry::with_prefix(PREFIX);
    let version = Info::new([("version", env!("LIGHTWAIT_VERSION"))]);
    // The crate ends this text with a full stop.
    registry.register("build", "The program", version);
    registry.register_collector(Box::new(Scrape { shards, whole: whole.to_vec(), expiries }));
    let mut text = String::new();
    let written = match form {
        Form::Prometheus => prometheus_text::encode(&mut text, &registry),
        Form::OpenMetrics => text::encode(&mut text, &registry),
    };
    written.expect("a string takes whatever is written");
    text
}

/// The names of a value: its shard, and its stack if the shard has several.
type Labels = [(&'static str, String); 2];

/// All numbers of one moment.
#[derive(Debug)]
struct Scrape {
    shards: Vec<Option<Report>>,
    /// What is counted for the program.
    whole: Vec<Counter>,
    expiries: Vec<Expiry>,
}

impl Scrape {
    /// When each certificate expires.
    fn expiries(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let meaning = "When the certificate in a file expires, in seconds since 1970.";
        let mut metric = gauge(encoder, "certificate_expiry_seconds", meaning)?;
        for Expiry { file, at } in &self.expiries {
            let labels = [("file", file.display().to_string())];
            ConstGauge::new(*at).encode(metric.encode_family(&labels)?)?;
        }
        Ok(())
    }

    /// The counts of every stack, with their labels.
    fn stacks(&self) -> impl Iterator<Item = (Labels, &Counts)> {
        self.shards.iter().enumerate().flat_map(|(shard, report)| {
            let counts = report.iter().flat_map(|report| &report.counts);
            counts.map(move |it| ([("shard", shard.to_string()), ("stack", it.stack.clone())], it))
        })
    }

    fn levels(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        for (level, meaning) in LEVELS {
            let found = || {
                self.stacks().filter_map(|(labels, counts)| {
                    let found = counts.levels.iter().find(|(name, ..)| *name == level);
                    found.map(|(_, held, limit)| (labels, *held, *limit))
                })
            };
            let limit_name = format!("{level}_limit");
            let limit_meaning = format!("The limit of {PREFIX}_{level}.");
            let mut levels = gauge(encoder, level, meaning)?;
            for (labels, held, _) in found() {
                ConstGauge::new(held as f64).encode(levels.encode_family(&labels)?)?;
            }
            let mut limits = gauge(encoder, &limit_name, &limit_meaning)?;
            for (labels, _, limit) in found() {
                ConstGauge::new(limit as f64).encode(limits.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }

    fn counters(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        // Every stack has those of its host, and the first of a shard the server's as well.
        let mut known: Vec<&Counter> = Vec::new();
        for (_, counts) in self.stacks() {
            for counter in &counts.counters {
                if !known.iter().any(|other| other.name == counter.name) {
                    known.push(counter);
                }
            }
        }
        for &&Counter { name, meaning, is_level, .. } in &known {
            let meaning = plain(meaning);
            let kind = if is_level { MetricType::Gauge } else { MetricType::Counter };
            let mut metric = encoder.encode_descriptor(name, &meaning, None, kind)?;
            for (labels, counts) in self.stacks() {
                let Some(it) = counts.counters.iter().find(|it| it.name == name) else { continue };
                let family = metric.encode_family(&labels)?;
                if is_level {
                    ConstGauge::new(it.value as f64).encode(family)?;
                } else {
                    ConstCounter::new(it.value).encode(family)?;
                }
            }
        }
        Ok(())
    }

    fn malformed(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let meaning = "Frames dropped because they made no sense, by reason.";
        let mut metric =
            encoder.encode_descriptor("malformed", meaning, None, MetricType::Counter)?;
        for ([shard, stack], counts) in self.stacks() {
            for (reason, count) in &counts.malformed {
                let labels = [shard.clone(), stack.clone(), ("reason", (*reason).to_owned())];
                ConstCounter::new(*count).encode(metric.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }

    fn times(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        for (index, (name, meaning)) in TIMES.into_iter().enumerate() {
            let mut metric =
                encoder.encode_descriptor(name, meaning, None, MetricType::Histogram)?;
            for (shard, report) in self.shards.iter().enumerate() {
                let times = report.as_ref().and_then(|report| report.times.as_ref());
                let Some(times) = times else { continue };
                times.all()[index]
                    .encode(metric.encode_family(&[("shard", shard.to_string())])?)?;
            }
        }
        Ok(())
    }
}

impl Collector for Scrape {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let encoder = &mut encoder;
        let mut up = gauge(encoder, "shard_up", "1 if the shard answered within a second.")?;
        for (shard, report) in self.shards.iter().enumerate() {
            let labels = [("shard", shard.to_string())];
            ConstGauge::new(i64::from(report.is_some())).encode(up.encode_family(&labels)?)?;
        }
        for Counter { name, meaning, value, .. } in &self.whole {
            let counter = encoder.encode_descriptor(name, meaning, None, MetricType::Counter)?;
            ConstCounter::new(*value).encode(counter)?;
        }
        self.expiries(encoder)?;
        self.levels(encoder)?;
        self.counters(encoder)?;
        self.malformed(encoder)?;
        self.times(encoder)
    }
}

fn gauge<'a>(
    encoder: &'a mut DescriptorEncoder<'_>,
    name: &'a str,
    meaning: &str,
) -> Result<MetricEncoder<'a>, fmt::Error> {
    encoder.encode_descriptor(name, meaning, None, MetricType::Gauge)
}

/// A documentation's text in one line, without its Markdown.
pub(super) fn plain(markdown: &str) -> String {
    let mut text = String::new();
    let mut rest = markdown;
    while let Some((before, after)) = rest.split_once('[') {
        text.push_str(before);
        rest = after;
        let Some((shown, behind)) = after.split_once(']') else { break };
        text.push_str(shown);
        rest = match behind.strip_prefix('(').and_then(|target| target.split_once(')')) {
            Some((_, behind)) => behind,
            None => behind,
        };
    }
    text.push_str(rest);
    let mut line = String::new();
    for word in text.split_whitespace() {
        let space = if line.is_empty() { "" } else { " " };
        // Writing to a string does not fail.
        let _ = write!(line, "{space}{}", word.replace('`', ""));
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use lightwait_core::{Capabilities, Config, Host, Medium};

    fn report() -> Report {
        let device = Capabilities::plain(Medium::Ip, 1500);
        let config = Config::new(device, "10.0.0.1/24".parse().unwrap(), [7; 32]);
        let counts = Counts::of("TAP \"lw0\"", &Host::new(config).unwrap());
        Report { counts: vec![counts], times: Some(Times::new()) }
    }

    fn expiries() -> Vec<Expiry> {
        vec![Expiry { file: "a.pem".into(), at: 2_000_000_000 }]
    }

    fn stalls() -> [Counter; 1] {
        [Counter::of("shard_stalls", 3, "Stalls.")]
    }

    #[test]
    fn documentation_is_told_as_plain_text() {
        for (markdown, text) in [
            ("Plain text.", "Plain text."),
            (
                " Dropped\n ([`UdpOptions::x`](crate::udp::UdpOptions::x)).",
                "Dropped (UdpOptions::x).",
            ),
            (" By `reason` in [`crate::Host::malformed`].", "By reason in crate::Host::malformed."),
            ("One [bracket.", "One bracket."),
        ] {
            assert_eq!(plain(markdown), text.trim(), "{markdown}");
        }
    }

    #[test]
    fn every_metric_is_described_once_and_labelled() {
        for form in [Form::Prometheus, Form::OpenMetrics] {
            let text =
                write(vec![Some(report()), None, Some(report())], &stalls(), expiries(), form);
            let mut names: Vec<&str> =
                text.lines().filter_map(|line| line.strip_prefix("# TYPE ")).collect();
            let count = names.len();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), count, "each once");
            for help in text.lines().filter_map(|line| line.strip_prefix("# HELP ")) {
                let (name, meaning) = help.split_once(' ').unwrap();
                // An operator knows no Rust.
                let is_plain = !meaning.contains(['`', '[']) && !meaning.contains("::");
                assert!(meaning.len() > 3 && is_plain, "{name}: {meaning}");
            }
            let has = |line: &str| assert!(text.lines().any(|it| it == line), "{line}\n{text}");
            has(r#"lightwait_shard_up{shard="0"} 1"#);
            has(r#"lightwait_shard_up{shard="1"} 0"#);
            has("lightwait_shard_stalls_total 3");
            has(r#"lightwait_frames_in_total{shard="2",stack="TAP \"lw0\""} 0"#);
            has(r#"lightwait_response_seconds_count{shard="0"} 0"#);
        }
    }

    #[test]
    fn a_response_is_noted_with_what_its_transport_knows() {
        let times = Times::new();
        let line = lightwait_http::RequestLine::from("GET / HTTP/1.1".to_owned());
        let mut access = Access::new("10.0.0.2:1".parse().unwrap(), line);
        access.duration = Duration::from_millis(5);
        times.note(&access);
        access.srtt = Some(Duration::from_millis(1));
        access.retransmits = Some(2);
        access.first_byte = Some(Duration::from_micros(40));
        times.note(&access);
        // A SYN, ACK that was repeated gives no sample, and neither does a cookie.
        times.note_handshake(Duration::ZERO);
        times.note_handshake(Duration::from_millis(30));
        times.note_end(0);
        times.note_end(7);
        let report = Report { counts: Vec::new(), times: Some(times) };
        let text = write(vec![Some(report)], &stalls(), expiries(), Form::Prometheus);
        let expiry = "lightwait_certificate_expiry_seconds{file=\"a.pem\"} 2000000000";
        assert!(text.contains(expiry), "{text}");
        for (name, count) in [
            ("response_seconds", 2),
            ("round_trip_seconds", 1),
            ("response_retransmits", 1),
            ("first_byte_seconds", 1),
            ("handshake_seconds", 1),
            ("connection_retransmits", 2),
        ] {
            let line = format!("lightwait_{name}_count{{shard=\"0\"}} {count}");
            assert!(text.lines().any(|it| it == line), "{line}\n{text}");
        }
    }
}
