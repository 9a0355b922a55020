//! Writes a log.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lightwait::observe::{
    Again, ConnectionLog, Detector, Direction, Event, Log, Parameters, Segment, TimerChange,
    Trigger, What,
};
use lightwait_core::tcp::send::recovery::Mode;
use lightwait_core::tcp::timers::Timer;
use serde_json::{Map, Value, json};

use super::{EVENT_SCHEMA, FILE_SCHEMA, MEDIA_TYPE, NAMESPACE, SEPARATOR};

/// Writes what the shards of a host have seen, in order of time. `version`: of the program.
///
/// # Errors
/// Those of `out`.
pub fn write(logs: &[Log], version: &str, out: &mut impl Write) -> io::Result<()> {
    let reference = logs.iter().filter_map(first_at).min().unwrap_or(UNIX_EPOCH);
    let left_out: u64 = logs.iter().map(|log| log.left_out).sum();
    let epoch = reference.duration_since(UNIX_EPOCH).unwrap_or_default();
    record(
        out,
        &json!({
            "file_schema": FILE_SCHEMA,
            "serialization_format": MEDIA_TYPE,
            "title": "TCP connections of a lightwait host",
            "trace": {
                "vantage_point": { "name": format!("lightwait {version}"), "type": "unknown" },
                "event_schemas": [EVENT_SCHEMA],
                "common_fields": {
                    "time_format": "relative_to_epoch",
                    "reference_time": {
                        "clock_type": "monotonic",
                        "epoch": "unknown",
                        "wall_clock_time": rfc_3339(epoch),
                    },
                },
                "connections_left_out": left_out,
            },
        }),
    )?;
    let mut all: Vec<(Duration, Item<'_>)> = Vec::new();
    for log in logs {
        let zero = log.zero.duration_since(UNIX_EPOCH).unwrap_or_default();
        for connection in &log.connections {
            let mut before = Parameters::default();
            for (place, event) in connection.events.iter().enumerate() {
                let at = (zero + Duration::from_nanos(event.at.as_nanos())).saturating_sub(epoch);
                let base = if let What::Parameters(now) = event.what {
                    Some(std::mem::replace(&mut before, now))
                } else {
                    None
                };
                all.push((at, Item { connection, event, base, is_first: place == 0 }));
            }
        }
    }
    // Stable: what happened at one time stays in order.
    all.sort_by_key(|(at, _)| *at);
    for (at, item) in all {
        item.write(at, out)?;
    }
    Ok(())
}

/// The wall-clock time of the first event.
fn first_at(log: &Log) -> Option<SystemTime> {
    let first = log.connections.iter().filter_map(|it| it.events.front()).map(|it| it.at).min()?;
    Some(log.zero + Duration::from_nanos(first.as_nanos()))
}

/// An event, and what there must be known to tell it.
struct Item<'a> {
    connection: &'a ConnectionLog,
    event: &'a Event,
    /// The parameters before, where it tells such.
    base: Option<Parameters>,
    is_first: bool,
}

impl Item<'_> {
    fn write(&self, at: Duration, out: &mut impl Write) -> io::Result<()> {
        let ms = at.as_nanos() as f64 / 1e6;
        let ConnectionLog { local, remote, dropped, .. } = self.connection;
        let group = format!("{local}-{remote}");
        let mut tell = |name: &str, data: Value| {
            let name = format!("{NAMESPACE}{name}");
            record(out, &json!({ "time": ms, "name": name, "group_id": group, "data": data }))
        };
        if self.is_first && *dropped > 0 {
            tell("events_dropped", json!({ "count": dropped }))?;
        }
        let (name, data) = self.data((*local, *remote));
        tell(name, data)
    }

    /// The event's name and its fields.
    fn data(&self, (local, remote): (SocketAddr, SocketAddr)) -> (&'static str, Value) {
        match self.event.what {
            What::Opened { state, is_old } => (
                "connection_opened",
                json!({
                    "local": local, "remote": remote, "state": state.name(), "existed": is_old,
                }),
            ),
            What::State { old, new, by } => (
                "connection_state_updated",
                caused(
                    by,
                    json!({
                        "old": old.name(), "new": new.name(),
                    }),
                ),
            ),
            What::Closed { state, by } => {
                ("connection_closed", caused(by, json!({ "state": state.name() })))
            }
            What::Segment(segment) => {
                let is_sent = segment.direction == Direction::Outbound;
                let name = if is_sent { "segment_sent" } else { "segment_received" };
                (name, of_segment(&segment))
            }
            What::Parameters(now) => {
                let before = self.base.unwrap_or_default();
                ("parameters_updated", of_parameters(&before, &now))
            }
            What::Recovery { old, new, by } => (
                "recovery_state_updated",
                caused(
                    by,
                    json!({
                        "old": recovery(old), "new": recovery(new),
                    }),
                ),
            ),
            What::Undone => ("recovery_undone", json!({})),
            What::Lost { bytes, by } => {
                ("loss_detected", json!({ "bytes": bytes, "detector": detector(by) }))
            }
            What::Timer { timer, change } => ("timer_updated", self.of_timer(timer, change)),
            What::PeerWindow { bytes } => {
                ("peer_window_updated", json!({ "bytes": bytes, "closed": bytes == 0 }))
            }
            What::OurWindow { bytes } => {
                ("local_window_updated", json!({ "bytes": bytes, "closed": bytes == 0 }))
            }
            What::Writer { waits, buffered } => {
                ("writer_updated", json!({ "blocked": waits, "buffered_bytes": buffered }))
            }
        }
    }

    fn of_timer(&self, timer: Timer, change: TimerChange) -> Value {
        let timer = timer_name(timer);
        match change {
            TimerChange::Set(at) => {
                let delta = at.since(self.event.at).as_nanos() as f64 / 1e6;
                json!({ "timer": timer, "event_type": "set", "delta": delta })
            }
            TimerChange::Fired => json!({ "timer": timer, "event_type": "fired" }),
            TimerChange::Cancelled => json!({ "timer": timer, "event_type": "cancelled" }),
        }
    }
}

fn record(out: &mut impl Write, value: &Value) -> io::Result<()> {
    out.write_all(&[SEPARATOR])?;
    serde_json::to_writer(&mut *out, value)?;
    out.write_all(b"\n")
}

fn caused(by: Trigger, mut data: Value) -> Value {
    data["trigger"] = match by {
        Trigger::Segment => "segment".into(),
        Trigger::Timer(timer) => format!("{}_timer", timer_name(timer)).into(),
        Trigger::Application => "application".into(),
    };
    data
}

fn of_segment(it: &Segment) -> Value {
    let mut data = json!({
        "seq": it.seq, "len": it.len, "flags": it.flags.to_string(), "window": it.window,
    });
    if let Some(ack) = it.ack {
        data["ack"] = ack.into();
    }
    if !it.sack.is_empty() {
        let blocks = it.sack.iter().map(|block| json!([block.start.0, block.end.0]));
        data["sack"] = blocks.collect();
    }
    if let Some((value, echo)) = it.stamps {
        data["timestamps"] = json!({ "value": value, "echo": echo });
    }
    if it.packets > 1 {
        data["segments"] = it.packets.into();
    }
    if let Some(again) = it.again {
        data["retransmission"] = reason(again).into();
    }
    data
}

/// The parameters that have changed.
fn of_parameters(before: &Parameters, now: &Parameters) -> Value {
    let mut changed = Map::new();
    let (was, is) = (table(before), table(now));
    for ((name, was), (_, is)) in was.into_iter().zip(is) {
        if was != is {
            changed.insert(name.to_owned(), is);
        }
    }
    Value::Object(changed)
}

fn table(it: &Parameters) -> [(&'static str, Value); 12] {
    let ms = |time: lightwait_core::time::Duration| Value::from(time.as_nanos() as f64 / 1e6);
    [
        ("congestion_window", it.cwnd.into()),
        ("ssthresh", it.ssthresh.into()),
        ("smoothed_rtt", ms(it.srtt)),
        ("min_rtt", ms(it.min_rtt)),
        ("latest_rtt", ms(it.latest_rtt)),
        ("rtt_variance", ms(it.rttvar)),
        ("rto", ms(it.rto)),
        ("pacing_bytes_per_second", it.pacing_rate.into()),
        ("bytes_in_flight", it.in_flight.into()),
        ("sacked_bytes", it.sacked.into()),
        ("lost_bytes", it.lost.into()),
        ("peer_window", it.peer_window.into()),
    ]
}

fn recovery(mode: Mode) -> &'static str {
    match mode {
        Mode::Open => "open",
        Mode::Fast => "fast_recovery",
        Mode::Timeout => "timeout",
    }
}

fn detector(by: Detector) -> &'static str {
    match by {
        Detector::Rack => "rack",
        Detector::RackTimer => "rack_timer",
        Detector::Sack => "sack_count",
        Detector::DuplicateAcks => "duplicate_acks",
        Detector::Timeout => "timeout",
        Detector::Other => "other",
    }
}

fn reason(again: Again) -> &'static str {
    match again {
        Again::FastRecovery => "fast_recovery",
        Again::Timeout => "timeout",
        Again::LossProbe => "loss_probe",
        Again::Handshake => "handshake",
        Again::WindowProbe => "window_probe",
        Again::Other => "other",
    }
}

fn timer_name(timer: Timer) -> &'static str {
    match timer {
        Timer::Retransmit => "retransmission",
        Timer::DelayedAck => "delayed_ack",
        Timer::Persist => "persist",
        Timer::KeepAlive => "keepalive",
        Timer::FinWait2 => "fin_wait_2",
        Timer::Lifetime => "lifetime",
        Timer::Rest => "rest",
    }
}

/// A time after 1970 in UTC, to the millisecond (RFC 3339), by the days of the Gregorian calendar.
fn rfc_3339(since: Duration) -> String {
    let (days, left) = (since.as_secs() / 86_400, since.as_secs() % 86_400);
    let (hour, minute, second) = (left / 3600, left / 60 % 60, left % 60);
    // Years begin with March: a leap day is a year's last.
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let date = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = era * 400 + year + u64::from(month <= 2);
    let ms = since.subsec_millis();
    format!("{year:04}-{month:02}-{date:02}T{hour:02}:{minute:02}:{second:02}.{ms:03}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_dates_of_the_calendar() {
        // `date -u -d @N +%FT%TZ` says the same.
        for (seconds, date) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400, "2000-02-29T00:00:00.000Z"),
            (1_709_251_199, "2024-02-29T23:59:59.000Z"),
            (4_102_444_800, "2100-01-01T00:00:00.000Z"),
        ] {
            assert_eq!(rfc_3339(Duration::from_secs(seconds)), date);
        }
    }
}
