//! The report: the router's counters, and the accuracy of the delays.

use std::fmt::Write;
use std::time::Duration;

use lightwait_netem::Counters;
use serde_json::{Value, json};

use crate::FlowSnapshot;
use crate::router::{Release, Snapshot, Threads, WaySnapshot};

/// The report warns if more than one packet in a hundred, and ten at least, leave later than this.
/// It is about the time of a full packet at 100 Mbit/s.
pub const LATE: Duration = Duration::from_micros(100);

/// Fewer late packets say little: something else had the processor once.
const FEW: u64 = 10;

/// The report of a router.
#[derive(Clone, Debug)]
pub struct Report {
    /// The names of the devices A and B.
    pub devices: [String; 2],
    /// The way in which packets were released.
    pub release: Release,
    /// The router's threads.
    pub threads: Threads,
    /// Each direction, in the order of [`crate::Way::ALL`].
    pub ways: [WayReport; 2],
    /// The counters.
    pub snapshot: Snapshot,
}

/// The configuration of a direction.
#[derive(Clone, Debug)]
pub struct WayReport {
    /// A description of its first link; the snapshot has the changes.
    pub link: String,
}

impl Report {
    /// Warnings that cast doubt on measurements through the router; empty if it kept up.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        for (number, way) in self.snapshot.ways.iter().enumerate() {
            let [from, to] = [&self.devices[number], &self.devices[1 - number]];
            let p99 = way.lateness.percentile(99.0);
            let are_many = p99 > LATE && way.lateness.later_than(LATE) >= FEW;
            if self.release == Release::Polling && are_many {
                warnings.push(format!(
                    "{from} to {to}: one packet in a hundred left more than {} late: this machine \
                     cannot keep up, or others use its processor",
                    shown(p99)
                ));
            }
            match way.missed {
                None => warnings.push(format!(
                    "{from}: the kernel does not tell what it dropped there: the interface is \
                     gone, or in another network namespace"
                )),
                Some(0) => {}
                Some(missed) => warnings.push(format!(
                    "{from}: the kernel dropped {missed} frames before they could be taken in: \
                     this machine cannot keep up"
                )),
            }
            if let Some(refused) = way.refused.filter(|refused| *refused > 0) {
                warnings.push(format!(
                    "{to}: the kernel refused {refused} frames: larger than its MTU, its queue \
                     full, or the interface down"
                ));
            }
            if way.counters.in_flight_overflowed > 0 {
                let dropped = way.counters.in_flight_overflowed;
                warnings.push(format!(
                    "{from} to {to}: {dropped} packets dropped for want of memory: give the link a \
                     rate and a queue, or less delay"
                ));
            }
        }
        warnings
    }

    /// The report as text for people.
    pub fn text(&self) -> String {
        let mut text = format!(
            "{:.1} s; packets released {}{}; longest time between two looks {}\n",
            self.snapshot.elapsed.as_secs_f64(),
            released(self.release),
            if self.threads == Threads::OneEach { " on two threads" } else { "" },
            shown(self.snapshot.longest_turn),
        );
        for (number, (way, about)) in self.snapshot.ways.iter().zip(&self.ways).enumerate() {
            let link = or_perfect(&about.link);
            let [from, to] = [&self.devices[number], &self.devices[1 - number]];
            let changes = match way.changes.len() {
                0 => String::new(),
                1 => ", then changed once".to_owned(),
                n => format!(", then changed {n} times"),
            };
            let _ = writeln!(text, "\n{from} → {to}: {link}{changes}");
            way_text(way, &about.link, &mut text);
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
            "threads": self.threads.count(),
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

/// The counts of a link: pairs of name and number.
fn counted(counters: &Counters) -> [(&'static str, u64); 13] {
    [
        ("packets_in", counters.pushed),
        ("bytes_in", counters.pushed_bytes),
        ("packets_out", counters.delivered),
        ("bytes_out", counters.delivered_bytes),
        ("dropped_queue_full", counters.overflowed),
        ("dropped_codel", counters.codel_dropped),
        ("dropped_memory", counters.in_flight_overflowed),
        ("dropped_too_long", counters.too_long),
        ("marked", counters.marked),
        ("lost", counters.lost),
        ("reordered", counters.reordered),
        ("duplicated", counters.duplicated),
        ("corrupted", counters.corrupted),
    ]
}

/// All numbers of a direction, as far as they are known.
fn numbers(way: &WaySnapshot) -> impl Iterator<Item = (&'static str, Option<u64>)> {
    let counted = counted(&way.counters).into_iter().map(|(name, number)| (name, Some(number)));
    counted.chain([
        ("in_flight", Some(way.in_flight as u64)),
        ("missed_by_device", way.missed),
        ("refused_by_device", way.refused),
    ])
}

/// The time from one change of a link to the next.
struct Phase<'a> {
    from: Duration,
    link: &'a str,
    /// The link's counts of that time.
    counted: [(&'static str, u64); 13],
}

/// The phases of a direction that began as `first`.
fn phases<'a>(way: &'a WaySnapshot, first: &'a str) -> Vec<Phase<'a>> {
    let begins = way.changes.iter().map(|change| (change.at, &*change.link, change.before));
    let begins: Vec<_> =
        [(Duration::ZERO, first, Counters::default())].into_iter().chain(begins).collect();
    let ends = begins[1..].iter().map(|(_, _, counters)| *counters).chain([way.counters]);
    let phase = |(&(from, link, ref before), end): (&(Duration, &'a str, Counters), Counters)| {
        let mut counted = counted(&end);
        let before = self::counted(before);
        counted.iter_mut().zip(before).for_each(|((_, now), (_, before))| *now -= before);
        Phase { from, link, counted }
    };
    begins.iter().zip(ends).map(phase).collect()
}

fn way_text(way: &WaySnapshot, first: &str, text: &mut String) {
    for (name, number) in numbers(way) {
        let _ = match number {
            Some(0) => Ok(()),
            Some(number) => writeln!(text, "  {name:<20} {number}"),
            None => writeln!(text, "  {name:<20} not known"),
        };
    }
    let most = way.counters.most_queued_bytes;
    if most > 0 {
        let _ = writeln!(text, "  {:<20} {most} bytes at most", "queue");
    }
    if let Some(late) = lateness(way) {
        let [median, p99, max] = late.map(shown);
        let _ = writeln!(text, "  {:<20} median {median}, 99th {p99}, max {max}", "left late by");
    }
    flows_text(&way.flows, text);
    if way.changes.is_empty() {
        return;
    }
    for Phase { from, link, counted } in phases(way, first) {
        let from = format!("from {} s", from.as_secs_f64());
        let _ = writeln!(text, "  {from:<20} {}", or_perfect(link));
        let numbers: Vec<String> = counted
            .iter()
            .filter(|(name, number)| *number > 0 && !name.starts_with("bytes"))
            .map(|(name, number)| format!("{name} {number}"))
            .collect();
        let numbers = if numbers.is_empty() { "no packet".to_owned() } else { numbers.join(", ") };
        let _ = writeln!(text, "  {:<20} {numbers}", "");
    }
}

/// Flows that the text shows; the JSON has all.
const SHOWN_FLOWS: usize = 20;

fn flows_text(flows: &[FlowSnapshot], text: &mut String) {
    if flows.is_empty() {
        return;
    }
    let _ = writeln!(
        text,
        "  {:>9}  {:>9}  {:>8}  {:>27}  flow",
        "Mbit/s", "packets", "lost", "delay: median, 99th, max"
    );
    for flow in flows.iter().take(SHOWN_FLOWS) {
        let [rate, delay] = [
            format!("{:.3}", flow.bits_per_second / 1e6),
            flow.delay.map_or_else(String::new, |delay| delay.map(shown).join(", ")),
        ];
        let FlowSnapshot { flow, packets_out, lost, .. } = flow;
        let _ = writeln!(text, "  {rate:>9}  {packets_out:>9}  {lost:>8}  {delay:>27}  {flow}");
    }
    if flows.len() > SHOWN_FLOWS {
        let _ = writeln!(text, "  and {} more (--json)", flows.len() - SHOWN_FLOWS);
    }
}

fn flow_json(flow: &FlowSnapshot) -> Value {
    let delay = flow.delay.map_or([None; 3], |delay| delay.map(|time| Some(micros(time))));
    json!({
        "flow": flow.flow,
        "packets_in": flow.packets_in,
        "bytes_in": flow.bytes_in,
        "packets_out": flow.packets_out,
        "bytes_out": flow.bytes_out,
        "lost": flow.lost,
        "bits_per_second": flow.bits_per_second,
        "delay_us": { "median": delay[0], "p99": delay[1], "max": delay[2] },
    })
}

/// A link's description for people.
fn or_perfect(link: &str) -> &str {
    if link.is_empty() { "a perfect link" } else { link }
}

/// The median, the 99th percentile and the maximum of lateness. `None` without packets: zero would
/// be the best possible value.
fn lateness(way: &WaySnapshot) -> Option<[Duration; 3]> {
    let late = &way.lateness;
    let all = [late.percentile(50.0), late.percentile(99.0), late.max()];
    (late.packets() > 0).then_some(all)
}

fn way_json(way: &WaySnapshot, first: &str) -> Value {
    let late = lateness(way).map_or([None; 3], |late| late.map(|time| Some(micros(time))));
    let phases = phases(way, first).into_iter().map(|Phase { from, link, counted }| {
        let mut phase = json!({"from_s": from.as_secs_f64(), "link": link});
        counted.iter().for_each(|(name, number)| phase[*name] = json!(number));
        phase
    });
    let mut all = json!({
        "link": first,
        "phases": phases.collect::<Vec<_>>(),
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
    if !way.flows.is_empty() {
        all["flows"] = way.flows.iter().map(flow_json).collect();
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
mod tests;
