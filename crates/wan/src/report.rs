//! The report: the router's counters, and the accuracy of the delays.

use std::fmt::Write;
use std::time::Duration;

use serde_json::{Value, json};

use crate::router::{Release, Snapshot, WaySnapshot};

/// The report warns if more than one packet in a hundred leaves later than this. It is about the
/// time of a full packet at 100 Mbit/s.
pub const LATE: Duration = Duration::from_micros(100);

/// The report of a router.
#[derive(Clone, Debug)]
pub struct Report {
    /// The names of the devices A and B.
    pub devices: [String; 2],
    /// The way in which packets were released.
    pub release: Release,
    /// Each direction, in the order of [`crate::Way::ALL`].
    pub ways: [WayReport; 2],
    /// The counters.
    pub snapshot: Snapshot,
}

/// The configuration of a direction.
#[derive(Clone, Debug)]
pub struct WayReport {
    /// A description of its first link.
    pub link: String,
}

impl Report {
    /// Warnings that cast doubt on measurements through the router; empty if it kept up.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        for (number, way) in self.snapshot.ways.iter().enumerate() {
            let [from, to] = [&self.devices[number], &self.devices[1 - number]];
            let p99 = way.lateness.percentile(99.0);
            if self.release == Release::Polling && p99 > LATE {
                warnings.push(format!(
                    "{from} to {to}: one packet in a hundred left more than {} late: this machine \
                     cannot keep up, or others use its processor",
                    shown(p99)
                ));
            }
            if way.missed > 0 {
                let missed = way.missed;
                warnings.push(format!(
                    "{from}: the kernel dropped {missed} frames before they could be taken in: \
                     this machine cannot keep up"
                ));
            }
            if way.refused > 0 {
                let refused = way.refused;
                warnings.push(format!(
                    "{to}: the kernel refused {refused} frames: larger than its MTU, its queue \
                     full, or the interface down"
                ));
            }
            if way.counters.in_flight_overflowed > 0 {
                let dropped = way.counters.in_flight_overflowed;
                warnings.push(format!(
                    "{from} to {to}: {dropped} packets dropped for want of memory: give the link a \
                     queue (--queue)"
                ));
            }
        }
        warnings
    }

    /// The report as text for people.
    pub fn text(&self) -> String {
        let mut text = format!(
            "{:.1} s; packets released {}; longest time between two looks {}\n",
            self.snapshot.elapsed.as_secs_f64(),
            released(self.release),
            shown(self.snapshot.longest_turn),
        );
        for (number, (way, about)) in self.snapshot.ways.iter().zip(&self.ways).enumerate() {
            let link = if about.link.is_empty() { "a perfect link" } else { &about.link };
            let [from, to] = [&self.devices[number], &self.devices[1 - number]];
            let _ = writeln!(text, "\n{from} → {to}: {link}");
            way_text(way, &mut text);
        }
        for warning in self.warnings() {
            let _ = writeln!(text, "\nwarning: {warning}");
        }
        text
    }

    /// The report as JSON for programs.
    pub fn json(&self) -> Value {
        let [there, back] = [0, 1].map(|n| way_json(&self.snapshot.ways[n], &self.ways[n].link));
        let warnings = self.warnings();
        json!({
            "schema": "lightwait-wan/1",
            "a": self.devices[0],
            "b": self.devices[1],
            "duration_s": self.snapshot.elapsed.as_secs_f64(),
            "release": released(self.release),
            "longest_turn_us": micros(self.snapshot.longest_turn),
            "a_to_b": there,
            "b_to_a": back,
            "keeps_up": warnings.is_empty(),
            "warnings": warnings,
        })
    }
}

fn released(release: Release) -> String {
    match release {
        Release::Polling => "by polling".to_owned(),
        Release::Every(interval) => format!("every {interval:?}"),
    }
}

/// Pairs of name and number.
fn numbers(way: &WaySnapshot) -> [(&'static str, u64); 14] {
    let counters = &way.counters;
    [
        ("packets_in", counters.pushed),
        ("bytes_in", counters.pushed_bytes),
        ("packets_out", counters.delivered),
        ("bytes_out", counters.delivered_bytes),
        ("in_flight", way.in_flight as u64),
        ("dropped_queue_full", counters.overflowed),
        ("dropped_codel", counters.codel_dropped),
        ("dropped_memory", counters.in_flight_overflowed),
        ("lost", counters.lost),
        ("reordered", counters.reordered),
        ("duplicated", counters.duplicated),
        ("corrupted", counters.corrupted),
        ("missed_by_device", way.missed),
        ("refused_by_device", way.refused),
    ]
}

fn way_text(way: &WaySnapshot, text: &mut String) {
    for (name, number) in numbers(way).iter().filter(|(_, number)| *number > 0) {
        let _ = writeln!(text, "  {name:<20} {number}");
    }
    let most = way.counters.most_queued_bytes;
    if most > 0 {
        let _ = writeln!(text, "  {:<20} {most} bytes at most", "queue");
    }
    let Some(late) = lateness(way) else { return };
    let [median, p99, max] = late.map(shown);
    let _ = writeln!(text, "  {:<20} median {median}, 99th {p99}, max {max}", "left late by");
}

/// The median, the 99th percentile and the maximum of lateness. `None` without packets: zero would
/// be the best possible value.
fn lateness(way: &WaySnapshot) -> Option<[Duration; 3]> {
    let late = &way.lateness;
    let all = [late.percentile(50.0), late.percentile(99.0), late.max()];
    (late.packets() > 0).then_some(all)
}

fn way_json(way: &WaySnapshot, link: &str) -> Value {
    let late = lateness(way).map_or([None; 3], |late| late.map(|time| Some(micros(time))));
    let mut all = json!({
        "link": link,
        "most_queued_bytes": way.counters.most_queued_bytes,
        "late_us": {
            "median": late[0],
            "p99": late[1],
            "max": late[2],
        },
    });
    for (name, number) in numbers(way) {
        all[name] = json!(number);
    }
    all
}

fn micros(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1000.0
}

/// A time to a tenth of its unit.
fn shown(time: Duration) -> String {
    let us = micros(time);
    if us < 1000.0 { format!("{us:.1} µs") } else { format!("{:.1} ms", us / 1000.0) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Lateness;
    use lightwait_netem::Counters;

    fn report(change: impl FnOnce(&mut WaySnapshot)) -> Report {
        let way = WaySnapshot {
            counters: Counters { pushed: 1000, delivered: 990, lost: 10, ..Counters::default() },
            in_flight: 0,
            lateness: Lateness::new(),
            missed: 0,
            refused: 0,
        };
        let mut ways = [way.clone(), way];
        change(&mut ways[0]);
        Report {
            devices: ["tap:lw0".to_owned(), "eth1".to_owned()],
            release: Release::Polling,
            ways: ["loss=1%", ""].map(|link| WayReport { link: link.to_owned() }),
            snapshot: Snapshot {
                elapsed: Duration::from_millis(2500),
                ways,
                longest_turn: Duration::from_micros(30),
            },
        }
    }

    fn late(way: &mut WaySnapshot, packets: u64, us: u64) {
        (0..packets).for_each(|_| way.lateness.record(us * 1000));
    }

    #[test]
    fn a_router_that_keeps_up_warns_of_nothing() {
        let good = report(|way| {
            late(way, 990, 3);
            late(way, 10, 5000);
        });
        assert_eq!(good.warnings(), Vec::<String>::new());
        assert_eq!(good.json()["keeps_up"], true);
        let bad = report(|way| {
            late(way, 980, 3);
            late(way, 20, 5000);
        });
        assert!(bad.warnings()[0].contains("tap:lw0 to eth1: one packet in a hundred"));
        assert_eq!(bad.json()["keeps_up"], false);
        let interrupt = Release::Every(Duration::from_millis(10));
        assert!(
            Report { release: interrupt, ..bad }.warnings().is_empty(),
            "it is meant to be late"
        );
    }

    #[test]
    fn what_the_devices_lost_is_told_with_their_names() {
        let missed = report(|way| way.missed = 5).warnings();
        assert!(missed[0].starts_with("tap:lw0: the kernel dropped 5 frames"), "{missed:?}");
        let refused = report(|way| way.refused = 6).warnings();
        assert!(refused[0].starts_with("eth1: the kernel refused 6 frames"), "{refused:?}");
    }

    #[test]
    fn text_and_json_tell_the_same() {
        let report = report(|way| late(way, 10, 25));
        let (text, json) = (report.text(), report.json());
        for line in ["tap:lw0 → eth1: loss=1%", "eth1 → tap:lw0: a perfect link", "median 25.0 µs"]
        {
            assert!(text.contains(line), "{text}");
        }
        assert_eq!(json["a_to_b"]["lost"], 10);
        assert_eq!(json["a_to_b"]["link"], "loss=1%");
        let median = json["a_to_b"]["late_us"]["median"].as_f64().unwrap();
        assert!((median - 25.0).abs() < 0.1);
        assert_eq!(
            (&json["b_to_a"]["packets_in"], &json["duration_s"]),
            (&json!(1000), &json!(2.5))
        );
    }
}
