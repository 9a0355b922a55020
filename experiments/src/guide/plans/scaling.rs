//! What window scaling is worth as a round trip gets longer. No figure: RFC 7323 §1.1 says why.

use lightwait_core::time::Duration;
use lightwait_netem::{LinkConfig, Loss, Rate};
use lightwait_sim::Bulk;

use crate::ablation::Ablation;
use crate::chart::Chart;
use crate::parallel;
use crate::plan::{Failure, Outcome};
use crate::report::Report;
use crate::statistics::Mean;

const SEEDS: u64 = 20;
/// Delays each way, in ms.
const DELAYS: [u64; 4] = [1, 5, 20, 50];
const LENGTH: Duration = Duration::from_secs(30);

const UNSCALED: Ablation = Ablation { name: "unscaled", instead: "no column has window scaling" };
const FAR: Ablation = Ablation { name: "far", instead: "the shortest round trip is 100 ms, too" };

/// The rate of a transfer in Mbit/s.
fn rate(scaling: bool, delay_ms: u64, seed: u64) -> Result<f64, Failure> {
    let link = |seed, loss| LinkConfig {
        rate: Rate::BitsPerSecond(20_000_000),
        delay: Duration::from_millis(delay_ms),
        loss,
        seed,
        ..LinkConfig::default()
    };
    let (forth, back) = (Loss::Uniform(0.0001), Loss::None);
    let mut bulk = Bulk::new(link(2 * seed, forth), link(2 * seed + 1, back), 256 << 10);
    bulk.tcp.window_scaling = scaling;
    let bytes = bulk.run(1, LENGTH)?[0];
    Ok(bytes as f64 * 8.0 / 1e6 / LENGTH.as_secs_f64())
}

/// Runs the experiment.
pub(crate) fn run(report: &mut Report) -> Outcome {
    let seeds = report.seeds(SEEDS);
    let scales = !report.is_ablated(&UNSCALED);
    let least = if report.is_ablated(&FAR) { 50 } else { 0 };
    let mut rows = Vec::new();
    for delay in DELAYS.map(|delay| delay.max(least)) {
        let rates = |scaling| {
            let rate = |number| rate(scaling, delay, seeds.start + number as u64);
            parallel::map((seeds.end - seeds.start) as usize, rate)
        };
        rows.push((delay as f64, vec![Mean::of(rates(scales)?), Mean::of(rates(false)?)]));
    }
    let chart = Chart::new("A transfer with window scaling and without", "delay, ms", "Mbit/s");
    report.means("rates", "delay, ms", &["with", "without"], &rows, chart)?;
    let (short, long) = (&rows[0].1, &rows[DELAYS.len() - 1].1);
    report.claim(
        "with window scaling a transfer over a round trip of 100 ms is faster",
        &UNSCALED,
        long[0].least() > long[1].most(),
        format!("{} and {} Mbit/s", long[0], long[1]),
    );
    report.claim(
        "over one of 2 ms it makes no difference of one in a hundred",
        &FAR,
        (short[0].mean / short[1].mean - 1.0).abs() < 0.01,
        format!("{} and {} Mbit/s", short[0], short[1]),
    );
    Ok(())
}
