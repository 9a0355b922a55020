//! Figs. 3 and 9, memory: the bytes of connections in TIME-WAIT at the server, with the whole
//! control block, as in 4.4BSD, and as records. The allocator counts all of them, while short
//! connections end.

use lightwait_bench::memory::{self, Plan, State};
use lightwait_bench::stacks::{Ip, Variant, Which};
use lightwait_core::config::{Scheme, TimeWaitState};

use crate::ablation::Ablation;
use crate::plan::Outcome;
use crate::report::{Report, Table};

/// Connections in TIME-WAIT at the peak of the conventional benchmark, of the modified one, and
/// today.
const COUNTS: [usize; 3] = [11_928, 48_048, 1_000_000];
/// The paper's whole kernel, in MB: Fig. 3's two columns.
const PAPER_MB: [&str; 3] = ["9", "32 → 5", "–"];
const FULL: Variant = Variant::Keeping(Scheme::OrderedList, TimeWaitState::Full);

const NO_RECORDS: Ablation = Ablation {
    name: "no-records",
    instead: "TIME-WAIT keeps the whole control block on both sides of the comparison",
};

fn bytes(which: Which, variant: Variant, count: usize) -> Result<memory::Outcome, String> {
    let outcome = which.memory(&Plan { state: State::TimeWait, count, ip: Ip::V4, variant });
    outcome.ok_or_else(|| format!("{}: no memory of its own", which.name()))
}

/// Runs the experiment.
pub(crate) fn run(report: &mut Report) -> Outcome {
    let mut table = Table::new(&[
        "TIME-WAIT",
        "full B each",
        "compact B each",
        "full MB",
        "compact MB",
        "factor",
        "paper MB",
    ]);
    for (count, paper) in COUNTS.into_iter().zip(PAPER_MB) {
        let full = bytes(Which::LightwaitFull, FULL, count)?;
        let compact = match report.is_ablated(&NO_RECORDS) {
            true => full,
            false => bytes(Which::Lightwait, Variant::Default, count)?,
        };
        let megabytes = |each: f64| format!("{:.2}", each * count as f64 / 1e6);
        let factor = full.bytes / compact.bytes;
        table.row(&[
            &count,
            &format!("{:.1}", full.bytes),
            &format!("{:.1}", compact.bytes),
            &megabytes(full.bytes),
            &megabytes(compact.bytes),
            &format!("{factor:.1}"),
            &paper,
        ]);
        report.claim(
            &format!("records take less than a sixth of control blocks ({count})"),
            &NO_RECORDS,
            factor > 6.0,
            format!("{factor:.1} times; the paper: more than 6, of the whole kernel"),
        );
        report.claim(
            &format!("a record takes less than the paper's 40 bytes, all in ({count})"),
            &NO_RECORDS,
            compact.most.unwrap_or(compact.bytes) < 40.0,
            compact.heap_in_words(),
        );
    }
    report.table("memory", &table)
}
