//! A long round trip with loss: a satellite's.

use std::time::Duration;

use super::rates::{Extent, Point, Runs};
use super::site::{Links, Site};
use super::{NO_MODEL, Sender, open_goal};
use crate::plan::Outcome;
use crate::report::Report;

const SEEDS: u64 = 10;
const QUICK_SEEDS: u64 = 2;
const RTT_MS: u32 = 600;
/// What a round trip carries at 50 Mbit/s: 3.75 MB.
const QUEUE: &str = "3750KB";
const WHOLE: Extent = Extent { file_bytes: 100_000_000, limit: Duration::from_secs(60) };
const QUICK: Extent = Extent { file_bytes: 100_000_000, limit: Duration::from_secs(12) };

/// Runs the experiment.
pub(crate) fn run(report: &mut Report) -> Outcome {
    let is_quick = report.is_quick();
    let seeds = report.seeds(if is_quick { QUICK_SEEDS } else { SEEDS });
    let points = ["0%", "1%"].map(|loss| Point {
        name: format!("50 Mbit/s {RTT_MS} ms {loss}"),
        links: Links::new(RTT_MS, "50Mbit", QUEUE, &format!("loss={loss}")),
    });
    let extent = if is_quick { QUICK } else { WHOLE };
    let mut site = Site::lay(report, &[extent.file_bytes])?;
    let points = match report.is_ablated(&NO_MODEL) {
        true => {
            site.model = "cubic";
            (points[1..].to_vec(), vec![Sender::Ours("bbr"), Sender::Linux("cubic")])
        }
        false => (points.to_vec(), Sender::all()),
    };
    let runs = Runs::measure(report, &site, points, seeds, extent)?;
    runs.show(report)?;
    judge_model(report, &runs);
    for ours in runs.senders.iter().copied().filter(|sender| sender.is_ours()) {
        for linux in ["cubic", "bbr"].map(Sender::Linux) {
            for (place, point) in runs.points.iter().enumerate() {
                let ratio = runs.ratio(place, ours, linux);
                open_goal(
                    report,
                    "no quiet run yet",
                    &format!(
                        "{}: {} carries no less than {}",
                        point.name,
                        ours.name(),
                        linux.name()
                    ),
                    ratio.median >= 1.0,
                    format!("{ratio} times"),
                );
            }
        }
    }
    Ok(())
}

/// By BBR beside CUBIC, with loss.
fn judge_model(report: &mut Report, runs: &Runs) {
    let place = runs.points.len() - 1;
    let times = runs.ratio(place, Sender::Ours("bbr"), Sender::Linux("cubic"));
    report.claim(
        "with 1 % lost ours by BBR carries twice what Linux does by CUBIC, or more",
        &NO_MODEL,
        times.least >= 2.0,
        format!("{times} times"),
    );
}
