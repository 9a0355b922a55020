//! Fig. 12, every cell: the RTO of each estimator for the paper's RTTs, and the time at which it
//! fires.
//!
//! The RTTs are the paper's. The coarse ones are input as well, since they cannot be derived from
//! the phases. The phase of each row, the time to the next tick of 500 ms, is read from the
//! timeouts with Brakmo and Peterson's fixes, so that these 12 prove nothing. The 24 timeouts of
//! the other two then follow by rule, and two of the paper's cells break that rule.

use lightwait_core::Instant;
use lightwait_core::config::{Estimator, TcpConfig};
use lightwait_core::tcp::send::rtt::{Bounds, Rtt};
use lightwait_core::time::Duration;

use super::firing::{self, Clocks, SLOW_MS};
use crate::ablation::Ablation;
use crate::chart::{Chart, Mark};
use crate::plan::Outcome;
use crate::plans::newreno;
use crate::report::{Report, Table};

/// The unit of 4.4BSD's timeouts.
const TICK_MS: u64 = SLOW_MS;
/// The paper measured with the cycle counter, reported in ms, and fired at BSD's slow tick.
const FRAMEWORK: Clocks =
    Clocks { measure_ns: 1_000_000, schedule_ns: SLOW_MS * 1_000_000, skew_ns: 0 };

/// A row of Fig. 12.
struct Row {
    /// RTT in ticks of 500 ms.
    coarse: u64,
    /// RTO of BSD, in ticks, and the timeout in ms.
    bsd: (u64, u64),
    /// RTO and timeout of BSD with Brakmo and Peterson's fixes.
    fixed: (u64, u64),
    /// RTT in ms.
    fine: u64,
    /// RTO and timeout on the fine clock, both in ms.
    ours: (u64, u64),
}

const fn row(coarse: u64, bsd: (u64, u64), fixed: (u64, u64), fine: u64, ours: (u64, u64)) -> Row {
    Row { coarse, bsd, fixed, fine, ours }
}

const FIG_12: [Row; 12] = [
    row(0, (3, 1375), (3, 1375), 60, (183, 375)),
    row(0, (3, 1314), (3, 1314), 150, (253, 314)),
    row(1, (5, 2254), (3, 1254), 60, (218, 254)),
    row(0, (4, 1193), (3, 1193), 60, (190, 193)),
    row(0, (3, 1133), (3, 1133), 61, (167, 633)),
    row(0, (3, 1073), (3, 1073), 60, (150, 573)),
    row(0, (3, 1012), (3, 1012), 61, (135, 512)),
    row(0, (3, 1452), (3, 1452), 60, (123, 452)),
    row(0, (3, 1391), (3, 1391), 60, (114, 391)),
    row(0, (3, 1330), (2, 830), 61, (105, 330)),
    row(0, (3, 1269), (2, 769), 60, (99, 269)),
    row(1, (5, 2209), (3, 1209), 61, (93, 145)),
];

/// The cells that break the paper's own rule: row from 1, column, and the value by the rule.
const CONTRADICTORY: [(usize, &str, u64); 2] = [(4, "BSD", 1693), (12, "fine", 209)];

/// One of the engine's estimators.
struct Estimate {
    config: TcpConfig,
    rtt: Rtt,
}

impl Estimate {
    fn new(estimator: Estimator) -> Estimate {
        let config = newreno().with(|tcp| {
            (tcp.rto.estimator, tcp.rto.floor) = (estimator, Duration::ZERO);
        });
        Estimate { rtt: Rtt::new(&Bounds::new(&config)), config }
    }

    /// The RTO in ms, after a segment that left at `sent` was acknowledged at `now`.
    fn sample(&mut self, sent: Instant, now: Instant) -> u64 {
        self.rtt.on_sample(sent, now, 1);
        self.rtt.rto(&self.config).as_millis() as u64
    }
}

/// The paper's number and ours; marked if the paper's breaks its own rule.
fn cell(paper: u64, ours: u64) -> String {
    if paper == ours { format!("{ours}") } else { format!("{ours} (paper: {paper} *)") }
}

/// The results of a row: RTO and timeout of each estimator, both in ms.
struct Found {
    bsd: (u64, u64),
    fixed: (u64, u64),
    fine: (u64, u64),
}

const NO_FIXES: Ablation =
    Ablation { name: "no-fixes", instead: "BSD's own integers in place of Brakmo and Peterson's" };
const SCANNED: Ablation =
    Ablation { name: "scanned", instead: "the fine clock's timeouts fire by BSD's scan, too" };

fn compute(has_fixes: bool, is_scanned: bool) -> Vec<Found> {
    let mut bsd = Estimate::new(Estimator::Bsd);
    let fixes = if has_fixes { Estimator::BsdBrakmoPeterson } else { Estimator::Bsd };
    let mut fixed = Estimate::new(fixes);
    let mut fine = Estimate::new(Estimator::Fine);
    let mut found = Vec::new();
    for (number, row) in FIG_12.iter().enumerate() {
        let phase = (row.fixed.1 - (row.fixed.0 - 1) * TICK_MS) % TICK_MS;
        let now_ms = 100 * TICK_MS * (number as u64 + 1) - phase;
        let now = Instant::from_millis(now_ms);
        // That many ticks came between the sending and the acknowledgement.
        let sent = Instant::from_millis((now_ms / TICK_MS + 1 - row.coarse) * TICK_MS - 1);
        let sent = sent.min(now);
        let bsd_rto = bsd.sample(sent, now);
        let fixed_rto = fixed.sample(sent, now);
        let fine_rto = fine.sample(now - Duration::from_millis(row.fine), now);
        let by_scan =
            |rto_ms| firing::by_scan(now, Duration::from_millis(rto_ms)).as_millis() as u64;
        found.push(Found {
            bsd: (bsd_rto / TICK_MS, by_scan(bsd_rto)),
            fixed: (fixed_rto / TICK_MS, by_scan(fixed_rto)),
            fine: match is_scanned {
                true => (fine_rto, by_scan(fine_rto)),
                false => (fine_rto, FRAMEWORK.fires(now, fine_rto).as_millis() as u64),
            },
        });
    }
    found
}

/// Runs the experiment.
pub(crate) fn run(report: &mut Report) -> Outcome {
    let found = compute(!report.is_ablated(&NO_FIXES), report.is_ablated(&SCANNED));
    let mut table = Table::new(&[
        "row",
        "RTT",
        "RTO BSD",
        "actual ms",
        "RTO BSD+BP",
        "actual ms (BP)",
        "RTT ms",
        "RTO fine ms",
        "actual ms (fine)",
    ]);
    for (number, (row, found)) in FIG_12.iter().zip(&found).enumerate() {
        table.row(&[
            &(number + 1),
            &row.coarse,
            &cell(row.bsd.0, found.bsd.0),
            &cell(row.bsd.1, found.bsd.1),
            &cell(row.fixed.0, found.fixed.0),
            &cell(row.fixed.1, found.fixed.1),
            &row.fine,
            &cell(row.ours.0, found.fine.0),
            &cell(row.ours.1, found.fine.1),
        ]);
    }
    report.table("fig12", &table)?;
    report.say(
        "* disagrees with the paper's own rule: a timer of k ticks fires at the k-th tick after it \
         is set,\n  the fine one at the first tick at or after its due time.\n",
    );
    claims(report, &found);
    report.picture("fig12", &chart(&found))
}

fn claims(report: &mut Report, found: &[Found]) {
    let both = || FIG_12.iter().zip(found);
    let equal = both().map(|(row, found)| {
        usize::from(row.bsd.0 == found.bsd.0)
            + usize::from(row.fixed.0 == found.fixed.0)
            + usize::from(row.ours.0 == found.fine.0)
    });
    let equal: usize = equal.sum();
    report.claim(
        "all three RTO columns are the paper's",
        &NO_FIXES,
        equal == 36,
        format!("{equal} of 36"),
    );
    // Cells with the fixes are left out: the phases are read from them, so that they always agree.
    let differ = both().enumerate().flat_map(|(number, (row, found))| {
        let columns = [("BSD", row.bsd.1, found.bsd.1), ("fine", row.ours.1, found.fine.1)];
        let differ = columns.into_iter().filter(|(_, paper, ours)| paper != ours);
        differ.map(move |(column, _, ours)| (number + 1, column, ours))
    });
    let differ: Vec<(usize, &str, u64)> = differ.collect();
    report.claim(
        "the timeouts of BSD and of the fine clock are the paper's but for the two contradictory \
         cells, which follow the rule",
        &SCANNED,
        differ == CONTRADICTORY,
        format!(
            "{} of 24 are; the others: {differ:?}; 12 more, with the fixes, tell the phases",
            24 - differ.len()
        ),
    );
    let ratio = |of: fn(&Found) -> u64| {
        let ratios = found.iter().map(|found| of(found) as f64 / found.fine.1 as f64);
        ratios.fold(0.0, f64::max)
    };
    let (bsd, fixed) = (ratio(|found| found.bsd.1), ratio(|found| found.fixed.1));
    report.value("tighter_than_bsd", bsd);
    report.value("tighter_than_bsd_with_fixes", fixed);
    report.say("The paper says up to 15x and 8x; both rest on the contradictory 145 ms of row 12.");
    let tenth = |value: f64| (value * 10.0).round();
    let text = format!("{bsd:.1}x and {fixed:.1}x");
    let holds = tenth(bsd) == 106.0 && tenth(fixed) == 62.0;
    report.claim("by the rule up to 10.6x and 6.2x tighter", &SCANNED, holds, text);
}

fn chart(found: &[Found]) -> Chart {
    let mut chart = Chart::new("Timeouts of Fig. 12, by the rule", "row", "actual timeout, ms");
    let line = |of: fn(&Found) -> u64| {
        let values = found.iter().map(of).enumerate();
        values.map(|(number, ms)| (number as f64 + 1.0, ms as f64)).collect::<Vec<_>>()
    };
    chart.draw("BSD", Mark::Steps, line(|found| found.bsd.1));
    chart.draw("BSD + Brakmo/Peterson", Mark::Steps, line(|found| found.fixed.1));
    chart.draw("fine clock", Mark::Steps, line(|found| found.fine.1));
    let paper = |of: fn(&Row) -> u64| {
        let rows = FIG_12.iter().map(of).enumerate();
        rows.map(|(number, ms)| (number as f64 + 1.0, ms as f64)).collect::<Vec<_>>()
    };
    chart.draw("paper, BSD", Mark::Points, paper(|row| row.bsd.1));
    chart.draw("paper, with fixes", Mark::Points, paper(|row| row.fixed.1));
    chart.draw("paper, fine", Mark::Points, paper(|row| row.ours.1));
    chart
}
