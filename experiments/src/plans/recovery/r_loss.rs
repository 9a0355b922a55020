//! Goodput where packets are lost at random, one by one and in bursts.

use std::time::Duration;

use super::rates::{Extent, Point, Runs};
use super::site::{Links, Site};
use super::{CONTROLLERS, NO_MODEL, NOT_EVERYWHERE, Sender, open_goal};
use crate::plan::Outcome;
use crate::report::Report;

const SEEDS: u64 = 10;
const QUICK_SEEDS: u64 = 1;
/// The whole size takes about five hours: where 2 % are lost, a file of 50 MB would take minutes.
const WHOLE: Extent = Extent { file_bytes: 50_000_000, limit: Duration::from_secs(10) };
const QUICK: Extent = Extent { file_bytes: 50_000_000, limit: Duration::from_secs(3) };
/// Rates in Mbit/s with round trips in ms: each of both axes around 50 Mbit/s and 40 ms.
const PATHS: [(u32, u32); 6] = [(20, 40), (50, 10), (50, 40), (50, 100), (50, 200), (100, 40)];
/// The path of the goals in Mbit/s.
const MEASURED: (u32, u32) = (50, 40);
/// What is lost. The bursts lose one packet in a hundred: three in a row in the mean.
const LOSSES: [&str; 6] = ["0%", "0.1%", "0.5%", "1%", "2%", "gilbert:0.34%:33%"];
const QUICK_LOSSES: [&str; 3] = ["0%", "0.1%", "1%"];
/// BBR's goals at the measured path: the loss, and Mbit/s.
const BBR: [(&str, f64); 2] = [("0.1%", 43.0), ("1%", 36.0)];
/// What it carries there with 1 % lost, with every seed, in Mbit/s: six times what CUBIC does.
const BBR_LEAST: f64 = 30.0;
/// NewReno's goodput there at commit f01566cd, in Mbit/s.
const BEFORE: [(&str, f64); 3] = [("0%", 40.1), ("0.1%", 11.8), ("1%", 2.8)];

fn point((mbit, rtt_ms): (u32, u32), loss: &str) -> Point {
    let links = Links::new(rtt_ms, &format!("{mbit}Mbit"), "256KiB", &format!("loss={loss}"));
    Point { name: name((mbit, rtt_ms), loss), links }
}

fn name((mbit, rtt_ms): (u32, u32), loss: &str) -> String {
    format!("{mbit} Mbit/s {rtt_ms} ms {loss}")
}

/// Runs the experiment.
pub(crate) fn run(report: &mut Report) -> Outcome {
    let is_quick = report.is_quick();
    let seeds = report.seeds(if is_quick { QUICK_SEEDS } else { SEEDS });
    let (paths, losses) = match is_quick {
        true => (vec![MEASURED], &QUICK_LOSSES[..]),
        false => (PATHS.to_vec(), &LOSSES[..]),
    };
    let points = paths.iter().flat_map(|path| losses.iter().map(|loss| point(*path, loss)));
    let extent = if is_quick { QUICK } else { WHOLE };
    let mut site = Site::lay(report, &[extent.file_bytes])?;
    let points = match report.is_ablated(&NO_MODEL) {
        true => {
            site.model = "cubic";
            (vec![point(MEASURED, "1%")], vec![Sender::Ours("bbr")])
        }
        false => (points.collect(), Sender::all()),
    };
    let runs = Runs::measure(report, &site, points, seeds, extent)?;
    runs.show(report)?;
    judge_beside_linux(report, &runs);
    judge_bbr(report, &runs);
    judge_reno(report, &runs);
    Ok(())
}

fn judge_beside_linux(report: &mut Report, runs: &Runs) {
    for name in CONTROLLERS {
        let (point, ratio) = runs.worst(name);
        open_goal(
            report,
            NOT_EVERYWHERE,
            &format!("{name}: ours carries as much as Linux with {name}, or more, at each point"),
            ratio.median >= 1.0,
            format!("{ratio} times at {}", point.name),
        );
    }
}

fn judge_bbr(report: &mut Report, runs: &Runs) {
    for (loss, least) in BBR {
        let Some(place) = runs.place(&name(MEASURED, loss)) else { continue };
        let [ours, linux] =
            [Sender::Ours("bbr"), Sender::Linux("bbr")].map(|one| runs.mbit(place, one));
        open_goal(
            report,
            "a probe for bandwidth that meets a loss gives up a part of it",
            &format!("bbr: ours carries {least} of 50 Mbit/s or more with {loss} lost"),
            ours.least >= least,
            format!("{ours:.1}; Linux {linux:.1}"),
        );
    }
    let Some(place) = runs.place(&name(MEASURED, "1%")) else { return };
    let ours = runs.mbit(place, Sender::Ours("bbr"));
    report.claim(
        &format!("bbr: with 1 % lost ours carries {BBR_LEAST} of 50 Mbit/s or more"),
        &NO_MODEL,
        ours.least >= BBR_LEAST,
        format!("{ours:.1}"),
    );
}

/// Ours by NewReno beside what it was before.
fn judge_reno(report: &mut Report, runs: &Runs) {
    for (loss, before) in BEFORE {
        let Some(place) = runs.place(&name(MEASURED, loss)) else { continue };
        let mbit = runs.mbit(place, Sender::Ours("reno"));
        report.observe(
            &format!("reno: ours carries what it did with {loss} lost ({before}), within a tenth"),
            mbit.median >= 0.9 * before,
            format!("{mbit:.1} Mbit/s"),
        );
    }
}
