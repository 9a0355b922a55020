//! The delay router: checks at intervals release bursts, and polling keeps packets apart. The
//! experiment also measures the packets a second that our router moves.
//!
//! Full packets leave 120 µs apart, as on a link of 100 Mbit/s, and pass a delay of 30 ms between
//! packet sockets. The kernel's receive times behind the router show their distances. A sender that
//! is delayed goes on from there, so that no distance at the input is shorter.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use lightwait::clock::Clock;
use lightwait::device::{AfPacket, Device};
use lightwait_core::{Instant, Outbox};
use lightwait_wan::{Release, Threads};
use serde_json::{Value, json};

use crate::ablation::Ablation;
use crate::chart::{Chart, Mark, Scale};
use crate::plan::{Failure, Outcome};
use crate::report::{Report, Table};
use crate::routed::{
    self, Kind, Routed, ip, lay_cables, routed, routed_by, run_before_others, silence,
};

/// The paper's interval of the interrupt, and its burst.
const INTERRUPT: Duration = Duration::from_millis(10);
const PAPERS_BURST: usize = 84;
/// The distance of full packets of 1500 bytes at 100 Mbit/s, by the paper's count.
const SPACING_NS: u64 = 120_000;
const PACKETS: usize = 16_000;
/// An Ethernet header, and a packet.
const FULL_BYTES: usize = 14 + 1500;
const SMALL_BYTES: usize = 60;
const FLOOD: Duration = Duration::from_secs(3);
/// Runs of each comparison of threads, in turn.
const RUNS: usize = 3;
const GOAL_PACKETS: f64 = 500_000.0;

/// An experimental EtherType (IEEE 802): no stack answers such frames.
const ETHERTYPE: [u8; 2] = [0x88, 0xb5];

/// Fills in a frame that only this experiment understands, with its number.
fn fill(frame: &mut Vec<u8>, number: u32, len: usize) {
    frame.extend([2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2]);
    frame.extend(ETHERTYPE);
    frame.extend(number.to_be_bytes());
    frame.resize(len, 0);
}

/// Sends a frame; waits while the kernel's queue is full.
fn send(device: &mut AfPacket, outbox: &mut Outbox, number: u32, len: usize) -> Outcome {
    if let Some(frame) = outbox.push() {
        fill(&mut frame.head, number, len);
    }
    while !outbox.is_empty() {
        device.transmit(Instant::ZERO, outbox)?;
    }
    Ok(())
}

/// Sends the packets. Returns the time of each.
fn send_spaced(device: &mut AfPacket) -> Result<Vec<Instant>, Failure> {
    let (clock, mut outbox) = (Clock::new(), Outbox::new(1));
    let (mut sent, mut next) = (Vec::with_capacity(PACKETS), clock.now());
    for number in 0..PACKETS as u32 {
        while clock.now() < next {
            std::hint::spin_loop();
        }
        let now = clock.now();
        send(device, &mut outbox, number, FULL_BYTES)?;
        sent.push(now);
        next = now.plus_nanos(SPACING_NS);
    }
    Ok(sent)
}

/// Receives packets until all have come or no more come. Returns each packet's number, and the
/// kernel's receive time.
fn receive_all(
    device: &mut AfPacket,
    is_sent: &AtomicBool,
) -> Result<Vec<(u32, Instant)>, Failure> {
    let (clock, mut all) = (Clock::new(), Vec::with_capacity(PACKETS));
    let mut last = clock.now();
    while all.len() < PACKETS {
        let now = clock.now();
        let before = all.len();
        device.receive(now, usize::MAX, &mut |frames| {
            let ours = frames.iter().filter(|frame| frame.bytes.get(12..14) == Some(&ETHERTYPE));
            all.extend(ours.filter_map(|frame| {
                let number = frame.bytes.get(14..18)?.try_into().ok()?;
                Some((u32::from_be_bytes(number), frame.arrived))
            }));
        })?;
        if all.len() > before || !is_sent.load(Ordering::Relaxed) {
            last = now;
        }
        if now.since(last) > Duration::from_secs(1) {
            break;
        }
        thread::sleep(Duration::from_millis(1));
    }
    Ok(all)
}

/// The distances of packets behind the router, in ns, and their differences from the distances at
/// the sender.
fn spaced(release: Release) -> Result<Value, Failure> {
    let Routed { found, snapshot, .. } =
        routed(Kind::Sockets, ["delay=30ms", ""], release, || {
            let mut sender = AfPacket::open("lw0", true)?;
            let mut receiver = AfPacket::open("lw3", true)?;
            let is_sent = AtomicBool::new(false);
            thread::scope(|scope| {
                let sending = scope.spawn(|| {
                    let sent = send_spaced(&mut sender).map_err(|error| error.to_string());
                    is_sent.store(true, Ordering::Relaxed);
                    sent
                });
                let received = receive_all(&mut receiver, &is_sent)?;
                let sent = sending.join().map_err(|_| "the sender panicked")??;
                Ok((sent, received))
            })
        })?;
    let (sent, received): (Vec<Instant>, Vec<(u32, Instant)>) = found;
    let (mut gaps, mut errors) = (Vec::new(), Vec::new());
    for pair in received.windows(2) {
        let [(first, one), (second, other)] = pair else { continue };
        // Only neighbours: packets between others were lost.
        if *second == first + 1 {
            let gap = other.nanos_since(*one);
            let input = sent[*second as usize].nanos_since(sent[*first as usize]);
            gaps.push(gap);
            errors.push(gap.abs_diff(input));
        }
    }
    let late = &snapshot.ways[0].lateness;
    let us = |percent| late.percentile(percent).as_nanos() as f64 / 1000.0;
    Ok(json!({
        "received": received.len(),
        "gaps_ns": gaps,
        "errors_ns": errors,
        "late_us": [us(50.0), us(99.0), late.max().as_nanos() as f64 / 1000.0],
    }))
}

/// Sends small packets from an interface, as fast as possible.
fn send_flood(interface: &str) -> Outcome {
    silence(interface)?;
    let (mut device, mut outbox) = (AfPacket::open(interface, true)?, Outbox::new(1));
    let end = std::time::Instant::now() + FLOOD;
    while std::time::Instant::now() < end {
        for number in 0..64 {
            send(&mut device, &mut outbox, number, SMALL_BYTES)?;
        }
    }
    Ok(())
}

/// Sends small packets one way, as fast as possible. Returns the packets that leave in a second,
/// and in a second of the router's processor time.
fn flooded(kind: Kind, from: &str) -> Result<Value, Failure> {
    let Routed { snapshot, processor, .. } =
        routed(kind, ["delay=1ms", ""], Release::Polling, || send_flood(from))?;
    let way = &snapshot.ways[0];
    let out = way.counters.delivered as f64;
    Ok(json!({
        "packets_per_second": out / FLOOD.as_secs_f64(),
        "packets_per_processor_second": out / processor.as_secs_f64(),
        "missed": way.missed,
        "late_p99_us": way.lateness.percentile(99.0).as_nanos() as f64 / 1000.0,
    }))
}

/// Sends small packets both ways, a sender each, through a router with so many threads. Returns
/// what leaves of both ways together, and how late in the worse one. A second of processor time is
/// that of one thread.
fn flooded_both_ways(kind: Kind, from: [&str; 2], threads: Threads) -> Result<Value, Failure> {
    let links = ["delay=1ms", "delay=1ms"];
    let Routed { snapshot, processor, .. } =
        routed_by(threads, kind, links, Release::Polling, || {
            thread::scope(|scope| {
                let flood =
                    |interface| move || send_flood(interface).map_err(|why| why.to_string());
                let senders = from.map(|interface| scope.spawn(flood(interface)));
                for sender in senders {
                    sender.join().map_err(|_| "a sender panicked")??;
                }
                Ok(())
            })
        })?;
    let out = snapshot.ways.each_ref().map(|way| way.counters.delivered as f64);
    let both = out[0] + out[1];
    let of_thread = if threads == Threads::One { both } else { out[1] };
    let missed: u64 = snapshot.ways.iter().filter_map(|way| way.missed).sum();
    let late = |percent| {
        let late = snapshot.ways.iter().map(|way| way.lateness.percentile(percent));
        late.max().map_or(0.0, |late| late.as_nanos() as f64 / 1000.0)
    };
    Ok(json!({
        "threads": threads.count(),
        "packets_per_second": both / FLOOD.as_secs_f64(),
        "packets_per_processor_second": of_thread / processor.as_secs_f64(),
        "missed": missed,
        "late_median_us": late(50.0),
        "late_p99_us": late(99.0),
    }))
}

/// How late full packets leave that are sent 120 µs apart, one way, with so many threads.
fn late_beside_nothing(threads: Threads) -> Result<Value, Failure> {
    let Routed { snapshot, .. } =
        routed_by(threads, Kind::Sockets, ["delay=30ms", ""], Release::Polling, || {
            send_spaced(&mut AfPacket::open("lw0", true)?).map(drop)
        })?;
    let late = &snapshot.ways[0].lateness;
    let us = |percent| late.percentile(percent).as_nanos() as f64 / 1000.0;
    Ok(json!([us(50.0), us(99.0), late.max().as_nanos() as f64 / 1000.0]))
}

/// Compares one thread with two: in turn, since others may use the machine.
fn by_threads(taps: Option<Kind>) -> Result<Value, Failure> {
    let (mut floods, mut late) = (Vec::new(), Vec::new());
    for _ in 0..RUNS {
        for threads in [Threads::One, Threads::OneEach] {
            if let Some(taps) = taps {
                let mut found = flooded_both_ways(taps, ["lw4", "lw5"], threads)?;
                found["between"] = "TAP".into();
                floods.push(found);
            }
            let mut found = flooded_both_ways(Kind::Sockets, ["lw0", "lw3"], threads)?;
            found["between"] = "packet socket".into();
            floods.push(found);
            let us = late_beside_nothing(threads)?;
            late.push(json!({ "threads": floods.last().map(|f| f["threads"].clone()), "us": us }));
        }
    }
    Ok(json!({ "floods": floods, "late": late }))
}

/// Measures, in a namespace.
pub(crate) fn measure() -> Result<Value, Failure> {
    run_before_others();
    lay_cables()?;
    let polling = spaced(Release::Polling)?;
    let interrupt = spaced(Release::Every(INTERRUPT))?;
    let sockets = flooded(Kind::Sockets, "lw0")?;
    // An ordinary user cannot make a TAP.
    let taps = match ip("tuntap add dev lw4 mode tap") {
        Ok(()) => {
            ip("tuntap add dev lw5 mode tap")?;
            silence("lw5")?;
            Some(Kind::Taps("lw4", "lw5"))
        }
        Err(_) => None,
    };
    let by_threads = by_threads(taps)?;
    let taps = taps.map(|taps| flooded(taps, "lw4")).transpose()?;
    Ok(json!({
        "polling": polling,
        "interrupt": interrupt,
        "throughput": { "TAP": taps, "packet socket": sockets },
        "by_threads": by_threads,
    }))
}

const POLLING: Ablation = Ablation { name: "polling", instead: "both routers poll" };
const BY_CLOCK: Ablation = Ablation { name: "by-clock", instead: "both routers check every 10 ms" };

/// A list of numbers, sorted.
fn sorted(value: &Value) -> Vec<f64> {
    let mut all: Vec<f64> =
        value.as_array().into_iter().flatten().filter_map(Value::as_f64).collect();
    all.sort_by(f64::total_cmp);
    all
}

fn percentile(sorted: &[f64], percent: f64) -> f64 {
    let place = (percent / 100.0 * sorted.len() as f64) as usize;
    sorted.get(place.min(sorted.len().saturating_sub(1))).copied().unwrap_or(f64::NAN)
}

/// The sizes of bursts, in which packets are closer than half the distance at the sender; sorted.
fn bursts(gaps: &Value) -> Vec<f64> {
    let (mut bursts, mut size) = (Vec::new(), 1.0);
    for gap in gaps.as_array().into_iter().flatten().filter_map(Value::as_u64) {
        if gap < SPACING_NS / 2 {
            size += 1.0;
        } else {
            bursts.push(std::mem::replace(&mut size, 1.0));
        }
    }
    bursts.push(size);
    bursts.sort_by(f64::total_cmp);
    bursts
}

/// Runs the experiment.
pub(crate) fn run(report: &mut Report) -> Outcome {
    let found = routed::measured("a-delay-router", None)?;
    let ways = [("polling", &found["polling"]), ("every 10 ms", &found["interrupt"])];
    let mut table = Table::new(&[
        "release",
        "received",
        "burst, median",
        "burst, most",
        "gap error, median µs",
        "gap error, 99th µs",
        "late, median µs",
        "late, 99th µs",
        "late, max µs",
    ]);
    let mut rows = Vec::new();
    for (name, way) in ways {
        let (bursts, errors) = (bursts(&way["gaps_ns"]), sorted(&way["errors_ns"]));
        let [typical, most] = [50.0, 100.0].map(|percent| percentile(&bursts, percent));
        let [median, p99] = [50.0, 99.0].map(|percent| percentile(&errors, percent) / 1000.0);
        let late = [0, 1, 2].map(|n| format!("{:.1}", way["late_us"][n].as_f64().unwrap_or(0.0)));
        let [median_text, p99_text] = [median, p99].map(|us| format!("{us:.1}"));
        let [l0, l1, l2] = &late;
        let cells: [&dyn std::fmt::Display; 9] =
            [&name, &way["received"], &typical, &most, &median_text, &p99_text, l0, l1, l2];
        table.row(&cells);
        rows.push((typical, most, median, p99));
    }
    report.say("Full packets, sent 120 µs apart, through a delay of 30 ms:");
    report.table("spacing", &table)?;
    // Without a way, the measurement of the other one stands in.
    let polling = rows[usize::from(report.is_ablated(&BY_CLOCK))];
    let interrupt = rows[usize::from(!report.is_ablated(&POLLING))];
    let least = (PAPERS_BURST - 4) as f64;
    report.claim(
        "a check every 10 ms releases up to 84 full packets of 100 Mbit/s at once",
        &POLLING,
        (least..=PAPERS_BURST as f64).contains(&interrupt.0),
        format!("{} at a time at the median, {} at most", interrupt.0, interrupt.1),
    );
    report.claim(
        "polling keeps packets apart",
        &BY_CLOCK,
        polling.0 == 1.0 && polling.2 < SPACING_NS as f64 / 10_000.0,
        format!("one at a time at the median; distances are kept to {:.1} µs", polling.2),
    );
    report.observe(
        "… of 99 in 100 to a tenth of their distance",
        polling.3 < SPACING_NS as f64 / 10_000.0,
        format!("to {:.1} µs; {} back to back at most", polling.3, polling.1),
    );
    throughput(report, &found["throughput"])?;
    threads(report, &found["by_threads"])?;
    report.picture("spacing", &chart(&found))
}

fn throughput(report: &mut Report, found: &Value) -> Outcome {
    let mut table = Table::new(&[
        "between",
        "packets/s",
        "packets/s of processor time",
        "missed",
        "late, 99th µs",
    ]);
    for name in ["TAP", "packet socket"] {
        let row = &found[name];
        if row.is_null() {
            report.say("No TAP can be made here: as root it can.");
            continue;
        }
        let whole = |key: &str| format!("{:.0}", row[key].as_f64().unwrap_or(0.0));
        table.row(&[
            &name,
            &whole("packets_per_second"),
            &whole("packets_per_processor_second"),
            &row["missed"],
            &whole("late_p99_us"),
        ]);
    }
    report.say("Frames of 60 bytes, one way, as many as one sender has:");
    report.table("throughput", &table)?;
    let rate = found["TAP"]["packets_per_processor_second"].as_f64().unwrap_or(0.0);
    report.observe(
        "500 000 packets a second go one way over TAP on one core",
        rate >= GOAL_PACKETS,
        format!("{rate:.0} a second of processor time"),
    );
    Ok(())
}

fn threads(report: &mut Report, found: &Value) -> Outcome {
    let all = |key: &str| found[key].as_array().cloned().unwrap_or_default();
    let whole = |value: &Value| format!("{:.0}", value.as_f64().unwrap_or(0.0));
    let mut table = Table::new(&[
        "between",
        "threads",
        "packets/s, both ways",
        "packets/s of a thread's time",
        "missed",
        "late, median µs",
        "late, 99th µs",
    ]);
    for flood in all("floods") {
        table.row(&[
            &flood["between"].as_str().unwrap_or_default(),
            &flood["threads"],
            &whole(&flood["packets_per_second"]),
            &whole(&flood["packets_per_processor_second"]),
            &flood["missed"],
            &whole(&flood["late_median_us"]),
            &whole(&flood["late_p99_us"]),
        ]);
    }
    report.say("Frames of 60 bytes, both ways, as many as a sender for each has:");
    report.table("threads", &table)?;
    let mut table = Table::new(&["threads", "late, median µs", "late, 99th µs", "late, max µs"]);
    for late in all("late") {
        let [median, p99, most] =
            [0, 1, 2].map(|n| format!("{:.1}", late["us"][n].as_f64().unwrap_or(0.0)));
        table.row(&[&late["threads"], &median, &p99, &most]);
    }
    report.say("Full packets, sent 120 µs apart, one way:");
    report.table("threads-late", &table)
}

fn chart(found: &Value) -> Chart {
    let mut chart = Chart::new("Distances behind the router", "share of packets", "distance, µs")
        .scales(Scale::Linear, Scale::Logarithmic);
    for (name, key) in [("polling", "polling"), ("every 10 ms", "interrupt")] {
        let gaps = sorted(&found[key]["gaps_ns"]);
        let points = (0..=200).map(|n| {
            let share = f64::from(n) / 200.0;
            (share, percentile(&gaps, share * 100.0) / 1000.0)
        });
        chart.draw(name, Mark::Line, points.collect());
    }
    let sent = SPACING_NS as f64 / 1000.0;
    chart.draw("as sent", Mark::Dashed, vec![(0.0, sent), (1.0, sent)]);
    chart
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_what_comes_closer_than_half_the_distance() {
        let gaps = json!([120_000, 1000, 2000, 59_999, 60_000, 120_000, 500]);
        assert_eq!(bursts(&gaps), [1.0, 1.0, 2.0, 4.0]);
        assert_eq!(bursts(&json!([])), [1.0]);
    }

    #[test]
    fn percentiles_are_of_the_sorted_list() {
        let all = sorted(&json!([3, 1, 2, 4]));
        assert_eq!([0.0, 50.0, 100.0].map(|percent| percentile(&all, percent)), [1.0, 3.0, 4.0]);
    }
}
