//! Ours alone on the paths of `r-loss` and `r-reorder`, in virtual time: the same on every machine.

use lightwait_core::config::{Algorithm, LossDetection};
use lightwait_core::time::Duration;
use lightwait_netem::{LinkConfig, Loss, QueueLimit, Rate};
use lightwait_sim::Bulk;

use crate::ablation::Ablation;
use crate::parallel;
use crate::plan::{Failure, Outcome};
use crate::report::{Report, Table};

use super::median::Median;
use super::open_goal;

const SEEDS: u64 = 10;
const LENGTH: Duration = Duration::from_secs(10);
const BUFFER: u32 = 4 << 20;
const LINK_BITS: u64 = 50_000_000;
const LINK_MBIT: f64 = 50.0;
const RTT_MS: u64 = 40;
/// With Ethernet's MTU and timestamps.
const MSS_BITS: f64 = 1448.0 * 8.0;

const NEARER: Ablation =
    Ablation { name: "nearer", instead: "the round trip is half of what the law is told" };
const COUNTED: Ablation = Ablation {
    name: "counted",
    instead: "three segments sacked make a loss (RFC 6675), however late they are",
};

/// The link of the data.
fn link(seed: u64) -> LinkConfig {
    LinkConfig {
        rate: Rate::BitsPerSecond(LINK_BITS),
        delay: Duration::from_millis(RTT_MS / 2),
        queue: QueueLimit::Bytes(256 << 10),
        seed: 2 * seed,
        ..LinkConfig::default()
    }
}

/// How our sender finds losses.
#[derive(Clone, Copy)]
enum Finds {
    /// Without SACK, by duplicate ACKs.
    Duplicates,
    /// By RFC 6675's count.
    Counting,
    /// By time.
    Rack,
}

/// Goodput in Mbit/s of a transfer whose data takes that link.
fn rate(forth: LinkConfig, finds: Finds) -> Result<f64, Failure> {
    let back = LinkConfig {
        rate: Rate::Unlimited,
        queue: QueueLimit::Unlimited,
        loss: Loss::None,
        reorder: 0.0,
        seed: forth.seed + 1,
        ..forth.clone()
    };
    let mut bulk = Bulk::new(forth, back, BUFFER);
    bulk.tcp.sack = !matches!(finds, Finds::Duplicates);
    bulk.tcp.congestion.algorithm = Algorithm::Reno;
    bulk.tcp.congestion.detection = match finds {
        Finds::Duplicates | Finds::Counting => LossDetection::Count,
        Finds::Rack => LossDetection::Rack,
    };
    Ok(bulk.run(1, LENGTH)?[0] as f64 * 8.0 / 1e6 / LENGTH.as_secs_f64())
}

/// The rates with each seed.
fn rates(
    seeds: &std::ops::Range<u64>,
    link: impl Fn(u64) -> LinkConfig + Sync,
    finds: Finds,
) -> Result<Vec<f64>, Failure> {
    let one = |number: usize| rate(link(seeds.start + number as u64), finds);
    parallel::map((seeds.end - seeds.start) as usize, one)
}

/// Runs the experiment with loss.
pub(crate) fn loss(report: &mut Report) -> Outcome {
    let seeds = report.seeds(SEEDS);
    let delay = Duration::from_millis(RTT_MS / if report.is_ablated(&NEARER) { 4 } else { 2 });
    let bursts = Loss::GilbertElliott {
        good_to_bad: 0.0034,
        bad_to_good: 0.33,
        loss_in_bad: 1.0,
        loss_in_good: 0.0,
    };
    let losses = [
        ("none", Loss::None),
        ("0.1%", Loss::Uniform(0.001)),
        ("1%", Loss::Uniform(0.01)),
        ("2%", Loss::Uniform(0.02)),
        ("1% in bursts", bursts),
    ];
    let mut table = Table::new(&["lost", "Mbit/s", "Mbit/s without SACK", "times"]);
    let mut found = Vec::new();
    for (name, loss) in losses {
        let lossy = |seed| LinkConfig { loss, delay, ..link(seed) };
        let [with, without] =
            [rates(&seeds, lossy, Finds::Rack)?, rates(&seeds, lossy, Finds::Duplicates)?];
        let ratio = Median::of_ratios(&with, &without);
        let [with, without] = [with, without].map(Median::of);
        table.row(&[&name, &with, &without, &ratio]);
        found.push((with, ratio));
    }
    report.table("rates", &table)?;
    let [none, _, one, two, bursts] = &found[..] else { unreachable!("five losses") };
    let of_law = [(one.0, 0.01), (two.0, 0.02)].map(|(mbit, lost)| mbit.median / law_mbit(lost));
    report.claim(
        "with 1 and 2 % lost NewReno carries MSS / (RTT · √p), within a third",
        &NEARER,
        of_law.iter().all(|times| (2.0 / 3.0..4.0 / 3.0).contains(times)),
        format!("{:.2} and {:.2} times", of_law[0], of_law[1]),
    );
    for (what, (_, times)) in [("only the queue's end loses", none), ("bursts are lost", bursts)] {
        report.observe(
            &format!("where {what}, SACK makes ten seconds faster by a twentieth"),
            times.least > 1.05,
            format!("{times} times"),
        );
    }
    Ok(())
}

/// Goodput in Mbit/s by the law of Mathis et al. 1997 (§2): its constant is 0.87 where each second
/// segment is acknowledged, and 1.22 where each one is. We take 1.
fn law_mbit(lost: f64) -> f64 {
    MSS_BITS / 1e6 / (RTT_MS as f64 / 1e3) / lost.sqrt()
}

/// Runs the experiment with packets that are late.
pub(crate) fn reorder(report: &mut Report) -> Outcome {
    let seeds = report.seeds(SEEDS);
    let finds = if report.is_ablated(&COUNTED) { Finds::Counting } else { Finds::Rack };
    let late = |seed, ms| LinkConfig {
        reorder: 0.05,
        reorder_delay: Duration::from_millis(ms),
        ..link(seed)
    };
    let overtaken = |seed| LinkConfig { reorder: 0.05, reorder_distance: Some(5), ..link(seed) };
    let in_order = Median::of(rates(&seeds, link, finds)?);
    let by_five = Median::of(rates(&seeds, overtaken, finds)?);
    let mut table = Table::new(&["5 % late", "Mbit/s"]);
    table.row(&[&"none is late", &in_order]);
    table.row(&[&"behind 5 others", &by_five]);
    let mut by_time = Vec::new();
    for ms in [1, 3, 10, RTT_MS] {
        let mbit = Median::of(rates(&seeds, |seed| late(seed, ms), finds)?);
        table.row(&[&format!("{ms} ms"), &mbit]);
        by_time.push((ms, mbit));
    }
    report.table("rates", &table)?;
    report.claim(
        "packets that five others overtake cost nothing: within 5 % of all in order",
        &COUNTED,
        by_five.least > 0.95 * in_order.median,
        format!("{by_five} against {in_order} Mbit/s"),
    );
    let (longest, sooner) = by_time.split_last().expect("some are late");
    let within = |(_, mbit): &(u64, Median)| mbit.median >= 0.95 * in_order.median;
    let told: Vec<String> = sooner.iter().map(|(ms, mbit)| format!("{ms} ms: {mbit}")).collect();
    report.claim(
        "packets late by up to a quarter of a round trip cost less than 5 % of all in order",
        &COUNTED,
        sooner.iter().all(within),
        told.join("; "),
    );
    open_goal(
        report,
        "the reordering window is a round trip at most (RFC 8985 §6.2), and the queue adds to that",
        "so do packets that are late by a whole round trip",
        within(longest),
        format!("{} of {LINK_MBIT} Mbit/s; in order {in_order}", longest.1),
    );
    Ok(())
}
