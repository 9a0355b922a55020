//! The report as JSON, by the schema in `docs/load-report.md`.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use super::Report;
use crate::engine::{Close, IdleOutcome, Notes};
use crate::recorder::{Faults, Latencies, Second, SecondLatencies};

/// The name and version of the schema. A version may gain keys, but loses none.
pub(super) const SCHEMA: &str = "lightwait-load/1";

/// The end that closes first.
fn close(close: Close) -> &'static str {
    match close {
        Close::Server => "server",
        Close::Client => "client",
        Close::Swap => "swap",
        Close::ClientClose => "client-close",
        Close::Negotiate => "negotiate",
    }
}

impl Report {
    /// The report as one object.
    pub fn json(&self) -> Value {
        let Report { setup, outcome, cpu_share, threads, started_at, together } = self;
        let (totals, notes) = (&outcome.totals, &outcome.notes);
        let statuses: Map<String, Value> =
            totals.statuses.iter().map(|(status, n)| (status.to_string(), (*n).into())).collect();
        let seconds = outcome.seconds.iter().zip(&outcome.second_latencies);
        let parts = setup.shares.iter();
        let parts: Vec<String> =
            parts.map(|share| format!("{}/{}", share.number() + 1, share.of())).collect();
        let mut report = json!({
            "schema": SCHEMA,
            "url": setup.url,
            "method": setup.method,
            "mix": setup.mix,
            "parts": parts,
            "stack": setup.stack,
            "mode": if setup.rate.is_some() { "open" } else { "closed" },
            "rate_asked": setup.rate,
            "connections_most": setup.connections,
            "requests_per_connection": setup.requests_per_connection,
            "pipeline": setup.pipeline,
            "http2_streams": setup.http2_streams,
            "close": close(setup.close),
            "sources": {
                "addresses": setup.addresses,
                "ports": setup.ports,
                "rest_s": setup.rest.as_secs_f64(),
            },
            "started_at": started_at.map(|time| time.as_secs_f64()),
            "warm_up_s": outcome.warm_up.as_secs_f64(),
            "recorded_s": outcome.recorded.as_secs_f64(),
            "together_s": together.map(|time| time.as_secs_f64()),
            "steady_after_s": setup.steady_after.as_secs_f64(),
            "steady_state": self.is_steady(),
            "requests_answered": totals.answered,
            "requests_failed": totals.failed(),
            "failure_rate": totals.failure_rate(),
            "requests_per_second": self.rate(),
            "connections_opened": totals.connections,
            "connections_per_second": self.per_second(totals.ended.connections),
            "bytes": totals.bytes,
            "bytes_per_second": self.per_second(totals.ended.bytes),
            "ended": {
                "answered": totals.ended.answered,
                "failed": totals.ended.failed,
                "connections": totals.ended.connections,
                "bytes": totals.ended.bytes,
            },
            "statuses": statuses,
            "errors": errors(&totals.faults),
            "latency_ns": {
                "connect": latencies(&totals.connect),
                "handshake": latencies(&totals.handshake),
                "resumed": latencies(&totals.resumed),
                "first_byte": latencies(&totals.first_byte),
                "total": latencies(&totals.total),
                "start_delay": latencies(&totals.delay),
            },
            "idle": idle(&outcome.idle),
            "cpu_share": cpu_share,
            "threads": threads,
            "cpu_us_per_request": self.cpu_per_request().map(|time| time.as_secs_f64() * 1e6),
            "warnings": self.warnings(),
            "seconds": seconds.map(second).collect::<Vec<_>>(),
        });
        if let (Value::Object(report), Value::Object(counts)) = (&mut report, counts(notes)) {
            report.extend(counts);
        }
        report
    }
}

fn errors(faults: &Faults) -> Map<String, Value> {
    faults.iter().map(|(fault, count)| (fault.name().to_owned(), count.into())).collect()
}

fn idle(idle: &IdleOutcome) -> Value {
    json!({
        "asked": idle.asked,
        "opened": idle.opened,
        "lost": idle.lost,
        "held": idle.held(),
        "errors": errors(&idle.faults),
        "opening_s": idle.opening.as_secs_f64(),
    })
}

fn counts(notes: &Notes) -> Value {
    json!({
        "answered_in_all": notes.answered,
        "failed_in_all": notes.failed,
        "closed_by_server": notes.closed_by_server,
        "closed_by_client": notes.closed_by_client,
        "closed_by_reset": notes.closed_by_reset,
        "tuple_waits": notes.tuple_waits,
        "tuples_taken": notes.tuples_taken,
        "kernel_overflow": notes.kernel_overflow,
        "reopened": notes.reopened,
        "client_closes": notes.client_closes,
        "asked": notes.asked,
        "obeyed": notes.obeyed,
        "swapped": notes.swapped,
        "agreed": notes.agreed,
        "held": notes.held,
    })
}

fn latencies(latencies: &Latencies) -> Value {
    // Without answers there is no latency; zero would be the best possible value.
    let shown = |latency: Duration| (!latencies.is_empty()).then_some(latency.as_nanos() as u64);
    let [min, mean, max] = latencies.min_mean_max().map(shown);
    let at = |percent| shown(latencies.percentile(percent));
    json!({
        "count": latencies.len(),
        "min": min,
        "mean": mean,
        "p50": at(50.0),
        "p90": at(90.0),
        "p99": at(99.0),
        "p99_9": at(99.9),
        "p99_99": at(99.99),
        "max": max,
        "histogram_v2": STANDARD.encode(latencies.encoded()),
    })
}

fn second((second, latencies): (&Second, &SecondLatencies)) -> Value {
    json!({
        "answered": second.answered,
        "failed": second.failed,
        "connections": second.connections,
        "bytes": second.bytes,
        "in_flight": second.in_flight,
        "time_wait": second.time_wait,
        "median_ns": second.median.as_nanos() as u64,
        "p99_ns": second.p99.as_nanos() as u64,
        "longest_ns": second.longest.as_nanos() as u64,
        "histogram_v2": STANDARD.encode(latencies.encoded()),
    })
}
