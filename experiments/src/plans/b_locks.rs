//! §4.3: a lock pair that nobody contends for, and what a stack saves that needs none: 150 ns and
//! 1.8 % of a processor at 122 070 reads or writes a second in the paper, six times what its
//! buckets cost.

use super::b_fig3::REQUESTS;
use super::queueing::{Way, overheads};
use crate::chart::{Chart, Mark};
use crate::plan::Outcome;
use crate::report::{Report, Table};

const PAPER_NS: f64 = 150.0;
const PAPER_BUCKETS_NS: f64 = 34.0;
/// Reads or writes of 1 KiB a second at 1 Gbit/s.
const OPERATIONS: f64 = 1e9 / 8.0 / 1024.0;

/// Runs it.
pub(crate) fn run(report: &mut Report) -> Outcome {
    let ns = overheads();
    let (lock, buckets) =
        (ns[Way::Locked as usize] - ns[Way::Flag as usize], ns[Way::Buckets as usize]);
    let percent = |ns: f64, rate: f64| ns * rate / 1e7;
    let mut table = Table::new(&["", "ns", "% of a processor at 1 Gbit/s", "paper ns", "paper %"]);
    let cell = |value: f64| format!("{value:.3}");
    table.row(&[
        &"lock and unlock, uncontended",
        &format!("{lock:.2}"),
        &cell(percent(lock, OPERATIONS)),
        &PAPER_NS,
        &1.8,
    ]);
    table.row(&[&"none", &0, &cell(0.0), &0, &0]);
    table.row(&[
        &"a request with buckets, timers told",
        &format!("{buckets:.2}"),
        &cell(percent(buckets, REQUESTS)),
        &PAPER_BUCKETS_NS,
        &0.29,
    ]);
    report.table("locks", &table)?;
    report.value("lock_pair_ns", lock);
    report.say(format!(
        "A lock pair for each of {OPERATIONS:.0} operations a second, a request for each of \
         {REQUESTS:.0} segments."
    ));
    let (saved, paid) = (percent(lock, OPERATIONS), percent(buckets, REQUESTS));
    report.claim(
        "what is saved by needing no lock exceeds what buckets cost",
        saved > paid,
        format!("{saved:.3} % against {paid:.3} % (paper: six times)"),
    );
    let mut chart = Chart::new("A lock pair and a bucket", "paper, today", "ns");
    chart.draw("lock pair", Mark::Points, vec![(1.0, PAPER_NS), (2.0, lock)]);
    chart.draw("buckets", Mark::Points, vec![(1.0, PAPER_BUCKETS_NS), (2.0, buckets)]);
    report.picture("locks", &chart)
}
