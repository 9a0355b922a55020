//! Fig. 13: a timeout of 150 ms, checked every 500 ms. The framework fires at the first check after
//! it is due. BSD counts in checks and takes two at least, so that it fires later: after more than
//! one period of the checks, and two at most. Its estimator gives the number of checks, on a path
//! so short that the result is the least. The paper's words, an upper bound of 500 ms for the
//! framework, are loose: the bound is T + X + 1.

use lightwait_core::Instant;
use lightwait_core::config::Estimator;
use lightwait_core::tcp::send::rtt::{Bounds, Rtt};
use lightwait_core::time::Duration;

use super::firing::{Clocks, SLOW_MS, by_scan};
use crate::ablation::Ablation;
use crate::chart::{Chart, Mark};
use crate::plan::Outcome;
use crate::plans::newreno;
use crate::report::{Report, Table};

/// T: the desired timeout, in measurement ticks of 1 ms.
const DESIRED_MS: u64 = 150;
const CLOCKS: Clocks =
    Clocks { measure_ns: 1_000_000, schedule_ns: SLOW_MS * 1_000_000, skew_ns: 0 };
/// Phases to the check.
const PHASES: u64 = 2000;
/// RTTs after which an estimator's deviation has decayed.
const SAMPLES: u64 = 100;

const SCANNED: Ablation =
    Ablation { name: "scanned", instead: "the framework's timer fires by BSD's scan, too" };
const SLOW: Ablation =
    Ablation { name: "slow-checks", instead: "the framework checks once in two seconds" };
const NO_FIXES: Ablation =
    Ablation { name: "no-fixes", instead: "BSD's estimator without Brakmo and Peterson's fixes" };

/// BSD's least timeout: its estimator's result on a path of no length. It has Brakmo and Peterson's
/// fixes, since without them the deviation does not decay far enough.
fn least_timeout(estimator: Estimator) -> Duration {
    let config = newreno().with(|tcp| {
        (tcp.rto.estimator, tcp.rto.floor) = (estimator, Duration::ZERO);
    });
    let mut rtt = Rtt::new(&Bounds::new(&config));
    for number in 1..=SAMPLES {
        let now = Instant::from_millis(SLOW_MS * number);
        rtt.on_sample(now, now, 1);
    }
    rtt.rto(&config)
}

/// At each phase: the time since a check, and the timeouts of the framework and of BSD, all in ms.
fn phases(report: &Report, least: Duration) -> Vec<(f64, f64, f64)> {
    let (is_scanned, is_slow) = (report.is_ablated(&SCANNED), report.is_ablated(&SLOW));
    let schedule_ns = CLOCKS.schedule_ns * if is_slow { 4 } else { 1 };
    let clocks = Clocks { schedule_ns, ..CLOCKS };
    let ms = |time: Duration| time.as_secs_f64() * 1000.0;
    let phases = (0..PHASES).map(|number| {
        let into = Duration::from_nanos(SLOW_MS * 1_000_000 * number / PHASES);
        let now = Instant::from_millis(100 * SLOW_MS) + into;
        let framework = match is_scanned {
            true => by_scan(now, Duration::from_millis(DESIRED_MS)),
            false => clocks.fires(now, DESIRED_MS),
        };
        (ms(into), ms(framework), ms(by_scan(now, least)))
    });
    phases.collect()
}

/// Runs the experiment.
pub(crate) fn run(report: &mut Report) -> Outcome {
    let least = least_timeout(match report.is_ablated(&NO_FIXES) {
        true => Estimator::Bsd,
        false => Estimator::BsdBrakmoPeterson,
    });
    let all = phases(report, least);
    let range = |of: fn(&(f64, f64, f64)) -> f64| {
        let values = all.iter().map(of);
        (values.clone().fold(f64::INFINITY, f64::min), values.fold(0.0, f64::max))
    };
    let mean = |of: fn(&(f64, f64, f64)) -> f64| all.iter().map(of).sum::<f64>() / PHASES as f64;
    let (framework, bsd) = (range(|phase| phase.1), range(|phase| phase.2));
    let bound = (DESIRED_MS + SLOW_MS + 1) as f64;
    let mut table = Table::new(&["", "least ms", "mean ms", "most ms", "paper", "bound ms"]);
    let cell = |value: f64| format!("{value:.1}");
    table.row(&[
        &"framework",
        &cell(framework.0),
        &cell(mean(|phase| phase.1)),
        &cell(framework.1),
        &"at most 500 (loose)",
        &format!("{DESIRED_MS} to {bound}"),
    ]);
    table.row(&[
        &format!("BSD, {} ticks", least.as_millis() as u64 / SLOW_MS),
        &cell(bsd.0),
        &cell(mean(|phase| phase.2)),
        &cell(bsd.1),
        &"500 at least",
        &"500 to 1000",
    ]);
    report.table("timeouts", &table)?;
    report.claim(
        "the framework keeps T < actual < T + X + 1",
        &SCANNED,
        DESIRED_MS as f64 <= framework.0 && framework.1 < bound,
        format!("{:.1} to {:.1} ms", framework.0, framework.1),
    );
    let (slow, phase) = (SLOW_MS as f64, SLOW_MS as f64 / PHASES as f64);
    let meets = |found: f64, bound: f64| (found - bound).abs() <= phase;
    report.claim(
        "BSD takes more than 500 and at most 1000 ms, and both bounds are met",
        &NO_FIXES,
        slow < bsd.0 && bsd.1 <= 2.0 * slow && meets(bsd.0, slow) && meets(bsd.1, 2.0 * slow),
        format!("{:.2} to {:.2} ms, to a phase of {phase} ms", bsd.0, bsd.1),
    );
    let sooner = all.iter().all(|(_, framework, bsd)| framework <= bsd);
    let strictly = all.iter().filter(|(_, framework, bsd)| framework < bsd).count();
    report.claim(
        "the framework is never later than BSD",
        &SLOW,
        sooner,
        format!("and sooner at {strictly} of {PHASES} phases"),
    );
    let mut chart = Chart::new(
        "A timeout of 150 ms checked every 500 ms",
        "set so long after a check, ms",
        "ms",
    );
    let line = |of: fn(&(f64, f64, f64)) -> f64| all.iter().map(|p| (p.0, of(p))).collect();
    chart.draw("BSD, least", Mark::Line, line(|phase| phase.2));
    chart.draw("framework", Mark::Line, line(|phase| phase.1));
    chart.draw("desired", Mark::Dashed, line(|_| DESIRED_MS as f64));
    report.picture("timeouts", &chart)
}
