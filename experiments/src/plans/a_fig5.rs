//! Fig. 5: a timer of k ticks fires at the k-th tick after it is set. A value of 2 ticks of 500 ms
//! is therefore a timeout of any length between 0.5 and 1 s.

use lightwait_core::Instant;
use lightwait_core::time::Duration;

use super::firing::{Clocks, SLOW_MS, by_scan};
use crate::ablation::Ablation;
use crate::chart::{Chart, Mark};
use crate::plan::Outcome;
use crate::report::{Report, Table};

/// Phases to the tick.
const PHASES: u64 = 1000;

const FINE: Ablation =
    Ablation { name: "fine-tick", instead: "the timer is in the framework, on ticks of 1 ms" };
const FINE_CLOCKS: Clocks = Clocks { measure_ns: 1_000_000, schedule_ns: 1_000_000, skew_ns: 0 };

/// Timeouts in ms of a timer of `ticks`, at every phase to the tick.
fn timeouts(ticks: u64, is_fine: bool) -> Vec<f64> {
    let phase = |number| {
        let into_ns = SLOW_MS * 1_000_000 * number / PHASES;
        let now = Instant::from_millis(100 * SLOW_MS) + Duration::from_nanos(into_ns);
        let timeout = match is_fine {
            true => FINE_CLOCKS.fires(now, ticks * SLOW_MS),
            false => by_scan(now, Duration::from_millis(ticks * SLOW_MS)),
        };
        timeout.as_secs_f64() * 1000.0
    };
    (0..PHASES).map(phase).collect()
}

/// Runs the experiment.
pub(crate) fn run(report: &mut Report) -> Outcome {
    let mut table = Table::new(&["ticks", "least ms", "most ms", "paper"]);
    let mut chart =
        Chart::new("When a timer of k ticks fires", "actual timeout, ms", "part of all");
    let mut holds = true;
    for ticks in 2..=5 {
        let mut all = timeouts(ticks, report.is_ablated(&FINE));
        all.sort_by(f64::total_cmp);
        let (least, most) = (all[0], all[all.len() - 1]);
        let (low, high) = ((ticks - 1) * SLOW_MS, ticks * SLOW_MS);
        table.row(&[
            &ticks,
            &format!("{least:.1}"),
            &format!("{most:.1}"),
            &format!("{low} to {high}"),
        ]);
        // The whole range, and nothing else: both ends occur, within one phase.
        let step = SLOW_MS as f64 / PHASES as f64;
        holds &= least > low as f64 && least < low as f64 + 1.5 * step && most == high as f64;
        let points = all.iter().enumerate().map(|(n, ms)| (*ms, n as f64 / PHASES as f64));
        chart.draw(&format!("{ticks} ticks"), Mark::Steps, points.collect());
    }
    report.table("timeouts", &table)?;
    report.claim("k ticks are between (k - 1) and k times 500 ms", &FINE, holds, "at every phase");
    report.picture("timeouts", &chart)
}
