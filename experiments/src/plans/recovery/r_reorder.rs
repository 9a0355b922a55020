//! Packets that arrive late and none that is lost: whoever takes reordering for loss halves its
//! window for nothing (RFC 8985 §1, RFC 3522).

use std::time::Duration;

use super::rates::{Extent, Point, Runs};
use super::site::{Links, Site};
use super::{COUNTED, COUNTING, Sender, open_goal};
use crate::plan::Outcome;
use crate::report::Report;

const SEEDS: u64 = 10;
const QUICK_SEEDS: u64 = 1;
/// What a link of 200 Mbit/s carries of data in full segments with timestamps, and what of it
/// goodput should be.
const PAYLOAD_MBIT: f64 = 200.0 * 1448.0 / 1514.0;
const FULL: f64 = 0.95;
const RTT_MS: u32 = 20;
/// A file of 60 MB takes 2.5 s at the link's rate.
const WHOLE: Extent = Extent { file_bytes: 60_000_000, limit: Duration::from_secs(12) };
const QUICK: Extent = Extent { file_bytes: 60_000_000, limit: Duration::from_secs(4) };
/// Parts of packets that are late, in percent, and by how much. The last is one round trip.
const LATE_PERCENT: [f64; 4] = [0.5, 5.0, 20.0, 50.0];
const LATE_MS: [u32; 4] = [1, 3, 10, 20];
/// Where the goal is told in Mbit/s: 5 % late by 3 ms.
const MEASURED: (f64, u32) = (5.0, 3);
const LEAST_MBIT: f64 = 180.0;
/// The part of the payload that each controller carries with 5 % late by 3 ms, with room.
const CARRIED: f64 = 0.9;
const WITHOUT_ROOM: &str = "met by some runs, without room to spare";

fn point(percent: f64, late_ms: u32) -> Point {
    let name = format!("{percent}% by {late_ms} ms");
    let reorder = format!("reorder={percent}%:{late_ms}ms");
    Point { name, links: Links::new(RTT_MS, "200Mbit", "1MiB", &reorder) }
}

/// Runs the experiment.
pub(crate) fn run(report: &mut Report) -> Outcome {
    let is_quick = report.is_quick();
    let seeds = report.seeds(if is_quick { QUICK_SEEDS } else { SEEDS });
    let in_order =
        Point { name: "in order".to_owned(), links: Links::new(RTT_MS, "200Mbit", "1MiB", "") };
    let late: Vec<(f64, u32)> = if is_quick {
        vec![(0.5, 3), MEASURED]
    } else {
        LATE_PERCENT.iter().flat_map(|percent| LATE_MS.map(|ms| (*percent, ms))).collect()
    };
    let points = std::iter::once(in_order.clone())
        .chain(late.iter().map(|(percent, ms)| point(*percent, *ms)));
    let extent = if is_quick { QUICK } else { WHOLE };
    let mut site = Site::lay(report, &[extent.file_bytes])?;
    let (points, senders) = match report.is_ablated(&COUNTED) {
        true => {
            site.flags = COUNTING;
            (vec![in_order, point(MEASURED.0, MEASURED.1)], Sender::ours())
        }
        false => (points.collect(), Sender::all()),
    };
    let runs = Runs::measure(report, &site, (points, senders), seeds, extent)?;
    runs.show(report)?;
    judge(report, &runs);
    judge_measured(report, &runs);
    Ok(())
}

fn judge(report: &mut Report, runs: &Runs) {
    for sender in runs.senders.iter().copied() {
        let full = |place: usize| runs.mbit(place, sender).median >= FULL * PAYLOAD_MBIT;
        let name = sender.name();
        if !sender.is_ours() {
            let least = runs.least(sender, 1);
            report.observe(
                &format!(
                    "{name}: goodput is 95 % of what the link carries wherever packets are late"
                ),
                (1..runs.points.len()).all(full),
                least,
            );
            continue;
        }
        report.observe(
            &format!("{name}: goodput is 95 % of what the link carries where all are in order"),
            full(0),
            format!("{:.1} Mbit/s", runs.mbit(0, sender)),
        );
        open_goal(
            report,
            WITHOUT_ROOM,
            &format!("{name}: goodput is 95 % of what the link carries wherever packets are late"),
            (1..runs.points.len()).all(full),
            runs.least(sender, 1),
        );
    }
}

/// Where 5 % are late by 3 ms.
fn judge_measured(report: &mut Report, runs: &Runs) {
    let Some(place) = runs.place(&point(MEASURED.0, MEASURED.1).name) else { return };
    for sender in Sender::ours() {
        let (mbit, name) = (runs.mbit(place, sender), sender.name());
        open_goal(
            report,
            WITHOUT_ROOM,
            &format!("{name}: with 5 % late by 3 ms goodput is {LEAST_MBIT} Mbit/s or more"),
            mbit.least >= LEAST_MBIT,
            format!("{mbit:.1}"),
        );
        let least = CARRIED * PAYLOAD_MBIT;
        report.claim(
            &format!("{name}: with 5 % late by 3 ms goodput is {least:.0} Mbit/s or more"),
            &COUNTED,
            mbit.least >= least,
            format!("{mbit:.1}"),
        );
    }
}
