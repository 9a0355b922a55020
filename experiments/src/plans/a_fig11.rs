//! Fig. 11: an event for T measurement ticks fires after more than T and less than T + X + 1 of
//! them, where X of them are a scheduling tick. Both bounds are tight. The two clocks need not tick
//! together.

use lightwait_core::Instant;

use super::firing::Clocks;
use crate::ablation::Ablation;
use crate::chart::{Chart, Mark};
use crate::plan::Outcome;
use crate::report::{Report, Table};

/// Phases of a measurement tick that are tried; the first is the last ns before the tick.
const PHASES: u64 = 20;
const TICK_NS: u64 = 1_000_000;

const NO_ROUNDING: Ablation = Ablation {
    name: "no-rounding",
    instead: "the timer is set for T ticks after the time that was read, and not for one more",
};

/// The least and the greatest time until the event, in measurement ticks, at any phase of the
/// clocks to each other and to the event.
fn range(t: u64, x: u64, rounds: bool) -> (f64, f64) {
    let phase_ns = |phase: u64| (TICK_NS * phase / PHASES).min(TICK_NS - 1);
    let (mut least, mut most) = (f64::INFINITY, 0.0f64);
    for skew in 0..=PHASES {
        let skew_ns = phase_ns(skew);
        let clocks = Clocks { measure_ns: TICK_NS, schedule_ns: x * TICK_NS, skew_ns };
        for (tick, phase) in (0..x).flat_map(|tick| (0..=PHASES).map(move |phase| (tick, phase))) {
            let now = Instant::from_nanos((10 * x + tick) * TICK_NS + phase_ns(phase));
            let actual = match rounds {
                true => clocks.fires(now, t),
                false => clocks.fires_without_rounding(now, t),
            };
            let actual = actual.as_nanos() as f64 / TICK_NS as f64;
            (least, most) = (least.min(actual), most.max(actual));
        }
    }
    (least, most)
}

/// Runs the experiment.
pub(crate) fn run(report: &mut Report) -> Outcome {
    let mut table = Table::new(&["T", "X", "least", "bound", "most", "bound T+X+1", "paper"]);
    let rounds = !report.is_ablated(&NO_ROUNDING);
    let (mut within, mut tight) = (true, true);
    let mut lines = [Vec::new(), Vec::new(), Vec::new(), Vec::new()];
    for (t, x) in [(1, 2), (0, 1), (1, 1), (5, 1), (3, 7), (10, 10), (150, 500)] {
        let (least, most) = range(t, x, rounds);
        let (low, high) = (t as f64, (t + x + 1) as f64);
        let paper = if (t, x) == (1, 2) { "over 1, under 4" } else { "–" };
        table.row(&[&t, &x, &format!("{least:.6}"), &low, &format!("{most:.6}"), &high, &paper]);
        within &= low < least && most < high;
        tight &= least - low < 0.01 && high - most < 0.01;
        if (t, x) == (1, 2) {
            report.value("fig11_least", least);
            report.value("fig11_most", most);
        }
    }
    for t in 0..=12 {
        let (least, most) = range(t, 2, rounds);
        let values = [least, most, t as f64, (t + 3) as f64];
        for (line, value) in lines.iter_mut().zip(values) {
            line.push((t as f64, value));
        }
    }
    report.say("The paper's examples are T = 1 and X = 2: just over 1, and just under 4.");
    report.table("bounds", &table)?;
    report.claim(
        "T < actual < T + X + 1, at every phase of the clocks",
        &NO_ROUNDING,
        within,
        "all of the above",
    );
    report.claim(
        "neither bound could be tighter",
        &NO_ROUNDING,
        tight,
        "both are met to a hundredth of a tick",
    );
    let mut chart = Chart::new("Fig. 11's bounds, X = 2", "T, measurement ticks", "actual, ticks");
    let [least, most, low, high] = lines;
    chart.draw("least", Mark::Points, least);
    chart.draw("most", Mark::Points, most);
    chart.draw("T", Mark::Dashed, low);
    chart.draw("T + X + 1", Mark::Dashed, high);
    report.picture("bounds", &chart)
}
