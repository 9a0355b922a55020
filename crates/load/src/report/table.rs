//! The report as a table for people.

use std::fmt::Write;
use std::time::Duration;

use super::{PERCENTILES, Report};
use crate::engine::Close;
use crate::recorder::Latencies;
use crate::sources::per_second;

impl Report {
    /// The report for a terminal, some twenty lines.
    pub fn table(&self) -> String {
        let mut text = String::new();
        self.head(&mut text);
        self.idle(&mut text);
        if !self.is_idle_alone() {
            self.counts(&mut text);
            self.latencies(&mut text);
        }
        for warning in self.warnings() {
            line(&mut text, format_args!("Warning: {warning}."));
        }
        text
    }

    fn head(&self, text: &mut String) {
        let Report { setup, outcome, .. } = self;
        line(text, format_args!("{} {} by {}", setup.method, setup.url, setup.stack));
        if let Some(mix) = &setup.mix {
            line(text, format_args!("requests: {mix}"));
        }
        if let [first, ..] = &setup.shares[..] {
            let numbers = setup.shares.iter().map(|share| (share.number() + 1).to_string());
            let numbers = numbers.collect::<Vec<_>>().join(", ");
            let plural = if setup.shares.len() == 1 { "" } else { "s" };
            line(text, format_args!("part{plural} {numbers} of {}", first.of()));
        }
        let loop_kind = match setup.rate {
            Some(rate) => format!("open loop, {} requests/s", per_second(rate)),
            None if setup.connections == 1 => "closed loop, one connection".to_owned(),
            None => format!("closed loop, {} connections", setup.connections),
        };
        let requests = match setup.requests_per_connection {
            Some(1) => "a new connection for each".to_owned(),
            Some(count) => format!("{count} requests a connection"),
            None if self.has_lost_connections() => {
                format!("kept alive in vain: {} were opened", outcome.totals.ended.connections)
            }
            None => "kept alive".to_owned(),
        };
        let closer = match setup.close {
            Close::Server => "the server closes first",
            Close::Client => "the client closes first",
            Close::Swap => "the server closes first, the client takes TIME-WAIT over",
            Close::ClientClose => "the client closes first, by CLIENT_CLOSE",
            Close::Negotiate => "the server closes first, the client holds TIME-WAIT by agreement",
        };
        let batch = match setup.pipeline {
            1 => String::new(),
            count => format!(", {count} at once"),
        };
        let batch = match setup.http2_streams {
            None => batch,
            Some(1) => ", over HTTP/2".to_owned(),
            Some(count) => format!(", over HTTP/2 with {count} at a time"),
        };
        if self.is_idle_alone() {
            line(text, format_args!("no load but idle connections"));
        } else {
            line(text, format_args!("{loop_kind}; {requests}{batch}; {closer}"));
        }
        line(
            text,
            format_args!(
                "source addresses: {}, of {} ports each{}; a 4-tuple rests for {} s",
                setup.addresses,
                setup.ports,
                self.need(),
                setup.rest.as_secs_f64(),
            ),
        );
        let [recorded, warm_up] = [outcome.recorded, outcome.warm_up].map(|t| t.as_secs_f64());
        line(
            text,
            format_args!("recorded for {recorded:.1} s after a warm-up of {warm_up:.1} s\n"),
        );
    }

    /// How many addresses would do, as text: where a closed loop had more, as it takes them before
    /// its rate is known, and where connections were not kept, which took more than there were.
    fn need(&self) -> String {
        let Report { setup, .. } = self;
        let is_new = setup.requests_per_connection.is_some() && setup.rate.is_none();
        match self.addresses_needed() {
            Some(need) if is_new && need < setup.addresses => format!(" (this rate needs {need})"),
            Some(need) if self.has_lost_connections() && need > setup.addresses => {
                format!(" (this rate needs {need})")
            }
            _ => String::new(),
        }
    }

    fn idle(&self, text: &mut String) {
        let idle = &self.outcome.idle;
        if idle.asked > 0 {
            let (held, opening) = (idle.held(), idle.opening.as_secs_f64());
            let name = "idle";
            line(text, format_args!("{name:<12}{held:>14} held      (opened in {opening:.1} s)"));
        }
    }

    /// True if the load has only idle connections.
    fn is_idle_alone(&self) -> bool {
        self.setup.rate.is_none() && self.setup.connections == 0
    }

    fn counts(&self, text: &mut String) {
        let totals = &self.outcome.totals;
        let ended = &totals.ended;
        let row = |text: &mut String, name: &str, count: u64, what: &str, ended: u64| {
            let rate = self.per_second(ended);
            line(text, format_args!("{name:<12}{count:>14} {what:<9}{rate:>14.1} /s"));
        };
        row(text, "requests", totals.answered, "answered", ended.answered);
        row(text, "", totals.failed(), "failed", ended.failed);
        row(text, "connections", totals.connections, "opened", ended.connections);
        row(text, "bytes", totals.bytes, "received", ended.bytes);
        let list =
            |items: Vec<String>| if items.is_empty() { "none".into() } else { items.join(", ") };
        let statuses = totals.statuses.iter().map(|(status, count)| format!("{status}: {count}"));
        let faults =
            totals.faults.iter().map(|(fault, count)| format!("{}: {count}", fault.name()));
        line(text, format_args!("{:<12}{}", "statuses", list(statuses.collect())));
        line(text, format_args!("{:<12}{}", "errors", list(faults.collect())));
        let notes = &self.outcome.notes;
        let closings = [
            ("by CLIENT_CLOSE", notes.client_closes),
            ("asked for", notes.asked),
            ("obeyed", notes.obeyed),
            ("swapped", notes.swapped),
            ("agreed", notes.agreed),
        ];
        let closings = closings.iter().filter(|(_, count)| *count > 0);
        let closings: Vec<_> = closings.map(|(what, count)| format!("{what}: {count}")).collect();
        if !closings.is_empty() {
            line(text, format_args!("{:<12}{}", "closings", closings.join(", ")));
        }
        let share = self.cpu_share * 100.0;
        let each = self.cpu_per_request().map_or_else(String::new, |time| {
            format!(", {:.1} us a request", time.as_secs_f64() * 1e6)
        });
        let cpu =
            format_args!("{:<12}{share:.0} % of a processor, by the load itself{each}\n", "CPU");
        line(text, cpu);
    }

    fn latencies(&self, text: &mut String) {
        let totals = &self.outcome.totals;
        write!(text, "{:<12}", "latency").expect("a string takes all");
        for percent in PERCENTILES {
            write!(text, "{:>10}", format!("{percent} %")).expect("a string takes all");
        }
        line(text, format_args!("{:>10}{:>10}", "longest", "mean"));
        for (name, latencies) in [
            ("connect", &totals.connect),
            ("TLS full", &totals.handshake),
            ("TLS resumed", &totals.resumed),
            ("first byte", &totals.first_byte),
            ("total", &totals.total),
            ("start delay", &totals.delay),
        ] {
            if !latencies.is_empty() || !name.starts_with("TLS") {
                row(text, name, latencies);
            }
        }
    }
}

fn row(text: &mut String, name: &str, latencies: &Latencies) {
    let [_, mean, longest] = latencies.min_mean_max();
    let percentiles = PERCENTILES.map(|percent| latencies.percentile(percent));
    write!(text, "{name:<12}").expect("a string takes all");
    for latency in percentiles.into_iter().chain([longest, mean]) {
        let cell = if latencies.is_empty() { "-".to_owned() } else { shown(latency) };
        write!(text, "{cell:>10}").expect("a string takes all");
    }
    text.push('\n');
}

fn line(text: &mut String, arguments: std::fmt::Arguments<'_>) {
    writeln!(text, "{arguments}").expect("a string takes all");
}

/// Three digits and a unit.
fn shown(latency: Duration) -> String {
    let micros = latency.as_secs_f64() * 1e6;
    let (value, unit) = match micros {
        _ if micros < 1e3 => (micros, "us"),
        _ if micros < 1e6 => (micros / 1e3, "ms"),
        _ => (micros / 1e6, "s"),
    };
    let digits = if value < 10.0 { 2 } else { usize::from(value < 100.0) };
    format!("{value:.digits$} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_latency_has_three_digits_and_a_unit() {
        for (micros, wanted) in [
            (0, "0.00 us"),
            (7, "7.00 us"),
            (42, "42.0 us"),
            (999, "999 us"),
            (1_000, "1.00 ms"),
            (12_345, "12.3 ms"),
            (999_900, "1000 ms"),
            (61_000_000, "61.0 s"),
        ] {
            assert_eq!(shown(Duration::from_micros(micros)), wanted);
        }
    }
}
