//! Appendix I: in 4.4BSD's integers the mean deviation SD never decays below 3 quarters of a tick,
//! so that the timeout is hardly ever under 3 ticks, at any RTT. With Brakmo and Peterson's larger
//! scale, and on the fine clock, it does decay.

use lightwait_core::rng::Rng;
use lightwait_core::tcp::send::rtt::{Scale, Scaled};

use crate::ablation::Ablation;
use crate::chart::{Chart, Mark};
use crate::plan::Outcome;
use crate::report::{Report, Table};

/// Constant RTTs after one that was three ticks longer.
const STEADY: usize = 40;
/// RTTs of 100 ms at random phases to a tick of 500 ms.
const SAMPLES: usize = 100_000;
/// RTTs at the beginning that are not counted: the first one weighs heavily.
const WARM_UP: usize = 100;
/// The least timeout of 4.4BSD, in ticks.
const LEAST_TICKS: u64 = 2;
pub(crate) const SEED: u64 = 12;

const FIXED_BSD: Ablation =
    Ablation { name: "fixed-bsd", instead: "BSD has Brakmo and Peterson's larger scale" };
const NO_FIXES: Ablation = Ablation { name: "no-fixes", instead: "the fixes keep BSD's own scale" };

/// SD in quarters of a tick, after each of [`STEADY`] equal RTTs.
fn decay(scale: Scale, rtt_ticks: u64) -> Vec<f64> {
    let mut scaled = Scaled::new(scale);
    scaled.on_sample(rtt_ticks);
    scaled.on_sample(rtt_ticks + 3);
    let steady = (0..STEADY).map(|_| {
        scaled.on_sample(rtt_ticks);
        scaled.deviation_quarters() as f64
    });
    steady.collect()
}

/// The frequency of each timeout, in ticks, at an RTT of 100 ms.
fn timeouts(scale: Scale) -> Vec<usize> {
    let mut scaled = Scaled::new(scale);
    let mut rng = Rng::from_seed(SEED);
    let mut counts = vec![0; 10];
    for number in 0..SAMPLES + WARM_UP {
        // A tick falls within 100 ms one time in five.
        scaled.on_sample(u64::from(rng.below(500) < 100));
        if number >= WARM_UP {
            let ticks = scaled.rto().max(LEAST_TICKS) as usize;
            counts[ticks.min(9)] += 1;
        }
    }
    counts
}

/// The scales of BSD, and of BSD with the fixes.
fn scales(report: &Report) -> [Scale; 2] {
    match (report.is_ablated(&FIXED_BSD), report.is_ablated(&NO_FIXES)) {
        (true, _) => [Scale::BrakmoPeterson; 2],
        (_, true) => [Scale::Bsd; 2],
        _ => [Scale::Bsd, Scale::BrakmoPeterson],
    }
}

/// Runs the experiment.
pub(crate) fn run(report: &mut Report) -> Outcome {
    let [bsd, fixed] = scales(report);
    let lines = [
        ("BSD", decay(bsd, 0)),
        ("BSD + Brakmo/Peterson", decay(fixed, 0)),
        ("fine clock (60 ms)", decay(Scale::Bsd, 60)),
    ];
    let mut chart =
        Chart::new("SD after RTTs that do not vary", "equal RTTs since", "SD, quarters of a tick");
    let mut table =
        Table::new(&["estimator", "after 5", "after 10", "after 20", "after 40", "paper"]);
    for (name, line) in &lines {
        let paper = if *name == "BSD" { "never below 3" } else { "–" };
        table.row(&[name, &line[4], &line[9], &line[19], &line[39], &paper]);
        let points = line.iter().enumerate().map(|(n, sd)| (n as f64 + 1.0, *sd)).collect();
        chart.draw(name, Mark::Line, points);
    }
    report.say("SD, in quarters of a tick, after equal RTTs:");
    report.table("decay", &table)?;
    report.picture("decay", &chart)?;
    let last = |n: usize| lines[n].1[STEADY - 1];
    report.claim("BSD's SD is stuck at 3", &FIXED_BSD, last(0) == 3.0, last(0));
    report.claim("with the fixes it decays to 0", &NO_FIXES, last(1) == 0.0, last(1));
    report.say(
        "(On the fine clock SD is stuck at 3 as well: at 3 quarters of a ms, which is nothing.)\n",
    );
    at_100_ms(report)
}

/// Brakmo and Peterson's observation.
fn at_100_ms(report: &mut Report) -> Outcome {
    let [bsd, fixed] = scales(report).map(timeouts);
    let percent = |count: usize| count as f64 * 100.0 / SAMPLES as f64;
    let mut table = Table::new(&["RTO, ticks", "BSD %", "BSD+BP %", "paper, BSD"]);
    for ticks in LEAST_TICKS as usize..=7 {
        let cell = |counts: &[usize]| format!("{:.2}", percent(counts[ticks]));
        let paper = match ticks {
            2 => "almost never",
            3..=5 => "up to 5",
            _ => "–",
        };
        table.row(&[&ticks, &cell(&bsd), &cell(&fixed), &paper]);
    }
    report.say("Timeouts at an RTT of 100 ms, at random phases to a tick of 500 ms:");
    report.table("timeouts", &table)?;
    let under_three = percent(bsd[..3].iter().sum());
    report.claim(
        "BSD's timeout almost never goes below 3 ticks",
        &FIXED_BSD,
        under_three < 1.0,
        format!("{under_three:.2} % of the time"),
    );
    let most = bsd.iter().rposition(|count| *count > 0).unwrap_or_default();
    report.claim(
        "it is as large as 5 ticks",
        &FIXED_BSD,
        percent(bsd[5]) > 1.0,
        format!("{:.1} % of the time 5; {most} at most", percent(bsd[5])),
    );
    let mean = |counts: &[usize]| {
        counts.iter().enumerate().map(|(ticks, count)| ticks * count).sum::<usize>() as f64
            / SAMPLES as f64
    };
    report.claim(
        "the fixes make it smaller",
        &NO_FIXES,
        mean(&fixed) < mean(&bsd),
        format!("{:.2} ticks on average, {:.2} without", mean(&fixed), mean(&bsd)),
    );
    Ok(())
}
