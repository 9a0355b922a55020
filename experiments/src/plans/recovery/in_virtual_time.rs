//! Ours alone on the paths of `r-loss`, `r-reorder` and `r-delay`, in virtual time: the same on
//! every machine.

use lightwait_core::config::{Algorithm, Ecn, LossDetection};
use lightwait_core::time::{Duration, Instant};
use lightwait_netem::{CodelConfig, FairConfig, LinkConfig, Loss, MarkFrom, QueueLimit, Rate};
use lightwait_sim::Bulk;

use crate::ablation::Ablation;
use crate::parallel;
use crate::plan::{Failure, Outcome};
use crate::report::{Report, Table};
use crate::statistics::quantile;

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

/// The most goodput that the link can carry.
const FULL_MBIT: f64 = LINK_MBIT * 1448.0 / 1514.0;
const DELAY_SEEDS: u64 = 5;
/// The queue from which packets are marked, and the end of slow start.
const STEP: Duration = Duration::from_millis(5);
const FROM: Instant = Instant::from_millis(2_000);

const NEARER: Ablation =
    Ablation { name: "nearer", instead: "the round trip is half of what the law is told" };
const COUNTED: Ablation = Ablation {
    name: "counted",
    instead: "three segments sacked make a loss (RFC 6675), however late they are",
};

const NO_MODEL: Ablation = Ablation { name: "no-model", instead: "CUBIC in the place of BBR" };
const NOT_IN_PART: Ablation =
    Ablation { name: "not-in-part", instead: "CUBIC by the same marks in the place of DCTCP" };
const TAIL_DROP: Ablation =
    Ablation { name: "tail-drop", instead: "CoDel's queue drops where it is full, as FIFO" };

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

/// How our sender finds losses, and what it does then.
#[derive(Clone, Copy)]
enum Sender {
    /// Without SACK, by duplicate ACKs; Reno.
    Duplicates,
    /// By RFC 6675's count; Reno.
    Counting,
    /// By time.
    Rack(Algorithm),
}

/// The transfer of a sender whose data takes that link.
fn bulk(forth: LinkConfig, sender: Sender) -> Bulk {
    let back = LinkConfig {
        delay: forth.delay,
        seed: forth.seed + 1,
        in_flight_limit_bytes: forth.in_flight_limit_bytes,
        ..LinkConfig::default()
    };
    let mut bulk = Bulk::new(forth, back, BUFFER);
    bulk.tcp.sack = !matches!(sender, Sender::Duplicates);
    (bulk.tcp.congestion.detection, bulk.tcp.congestion.algorithm) = match sender {
        Sender::Duplicates | Sender::Counting => (LossDetection::Count, Algorithm::Reno),
        Sender::Rack(algorithm) => (LossDetection::Rack, algorithm),
    };
    bulk
}

/// Goodput in Mbit/s.
fn rate(forth: LinkConfig, sender: Sender) -> Result<f64, Failure> {
    Ok(bulk(forth, sender).run(1, LENGTH)?[0] as f64 * 8.0 / 1e6 / LENGTH.as_secs_f64())
}

/// The rates with each seed.
fn rates(
    seeds: &std::ops::Range<u64>,
    link: impl Fn(u64) -> LinkConfig + Sync,
    sender: Sender,
) -> Result<Vec<f64>, Failure> {
    let one = |number: usize| rate(link(seeds.start + number as u64), sender);
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
    let model = if report.is_ablated(&NO_MODEL) { Algorithm::Cubic } else { Algorithm::Bbr };
    let mut table = Table::new(&["lost", "Reno", "without SACK", "times", "CUBIC", "BBR"]);
    let mut found = Vec::new();
    for (name, loss) in losses {
        let lossy = |seed| LinkConfig { loss, delay, ..link(seed) };
        let by = |sender| rates(&seeds, lossy, sender);
        let [with, without] = [by(Sender::Rack(Algorithm::Reno))?, by(Sender::Duplicates)?];
        let ratio = Median::of_ratios(&with, &without);
        let [cubic, bbr] = [by(Sender::Rack(Algorithm::Cubic))?, by(Sender::Rack(model))?];
        let [with, without, cubic, bbr] = [with, without, cubic, bbr].map(Median::of);
        table.row(&[&name, &with, &without, &ratio, &cubic, &bbr]);
        found.push((with, ratio, bbr));
    }
    report.table("rates", &table)?;
    let [none, tenth, one, two, bursts] = &found[..] else { unreachable!("five losses") };
    let of_law = [(one.0, 0.01), (two.0, 0.02)].map(|(mbit, lost)| mbit.median / law_mbit(lost));
    report.claim(
        "with 1 and 2 % lost NewReno carries MSS / (RTT · √p), within a third",
        &NEARER,
        of_law.iter().all(|times| (2.0 / 3.0..4.0 / 3.0).contains(times)),
        format!("{:.2} and {:.2} times", of_law[0], of_law[1]),
    );
    for (what, (_, times, _)) in [("only the queue's end loses", none), ("bursts are lost", bursts)]
    {
        report.observe(
            &format!("where {what}, SACK makes ten seconds faster by a twentieth"),
            times.least > 1.05,
            format!("{times} times"),
        );
    }
    let of_none = |(.., bbr): &(Median, Median, Median)| bbr.median / none.2.median;
    report.claim(
        "BBR carries nine tenths with 0.1 % lost, and two thirds with 1 %, of what it does without",
        &NO_MODEL,
        of_none(tenth) > 0.9 && of_none(one) > 2.0 / 3.0,
        format!("{:.2} and {:.2} of it", of_none(tenth), of_none(one)),
    );
    for (lost, (.., bbr), least) in [("0.1 %", tenth, 43.0), ("1 %", one, 36.0)] {
        open_goal(
            report,
            "a probe for bandwidth that meets a loss gives up a part of it",
            &format!("with {lost} lost BBR carries {least} of {LINK_MBIT} Mbit/s or more"),
            bbr.median >= least,
            format!("{bbr} Mbit/s"),
        );
    }
    Ok(())
}

/// Goodput in Mbit/s by the law of Mathis et al. 1997 (§2): its constant is 0.87 where each second
/// segment is acknowledged, and 1.22 where each one is. We take 1.
fn law_mbit(lost: f64) -> f64 {
    MSS_BITS / 1e6 / (RTT_MS as f64 / 1e3) / lost.sqrt()
}

/// Runs the experiment with what manages the queue.
pub(crate) fn delay(report: &mut Report) -> Outcome {
    let seeds = report.seeds(DELAY_SEEDS);
    let codel = Some(CodelConfig::default()).filter(|_| !report.is_ablated(&TAIL_DROP));
    let fifo = LinkConfig { queue: QueueLimit::Bytes(1 << 20), ..link(0) };
    let queues = [
        ("FIFO", fifo.clone()),
        ("CoDel", LinkConfig { codel, ..fifo.clone() }),
        ("FQ-CoDel", LinkConfig { codel, fair: Some(FairConfig::default()), ..fifo.clone() }),
        ("step mark", LinkConfig { mark: Some(MarkFrom::Wait(STEP)), ..fifo }),
    ];
    let by_part = match report.is_ablated(&NOT_IN_PART) {
        true => Algorithm::Cubic,
        false => Algorithm::Dctcp,
    };
    let model = if report.is_ablated(&NO_MODEL) { Algorithm::Cubic } else { Algorithm::Bbr };
    let controllers = [("CUBIC", Algorithm::Cubic), ("BBR", model), ("DCTCP", by_part)];
    let mut table = Table::new(&["queue", "controller", "Mbit/s", "wait ms, mean", "wait ms, p99"]);
    let mut all = Vec::new();
    for (queue, link) in &queues {
        for (name, algorithm) in controllers {
            let one = |number: usize| waits(link, algorithm, seeds.start + number as u64);
            let found = parallel::map((seeds.end - seeds.start) as usize, one)?;
            let of = |value: fn(&Waits) -> f64| Median::of(found.iter().map(value));
            let [mbit, mean, most] =
                [of(|one| one.mbit), of(|one| one.mean_ms), of(|one| one.most_ms)];
            table.row(&[queue, &name, &mbit, &mean, &most]);
            all.push((mbit, mean, most));
        }
    }
    report.table("waits", &table)?;
    let [cubic, bbr, _, by_codel, ..] = &all[..] else { unreachable!("twelve cases") };
    let (by_marks, in_part) = (&all[9], &all[11]);
    report.claim(
        "behind CoDel CUBIC's packets wait a tenth of what they do behind FIFO, at most",
        &TAIL_DROP,
        by_codel.1.median < cubic.1.median / 10.0,
        format!("{} against {} ms", by_codel.1, cubic.1),
    );
    report.claim(
        "behind FIFO BBR's packets wait a tenth as long as CUBIC's, at most",
        &NO_MODEL,
        bbr.1.median < cubic.1.median / 10.0,
        format!("{} against {} ms", bbr.1, cubic.1),
    );
    let least = 0.95 * FULL_MBIT;
    report.claim(
        "where a step marks, DCTCP carries 95 % of what the link can, and the queue is at the step",
        &NOT_IN_PART,
        in_part.0.median > least && in_part.2.median < 2e3 * STEP.as_secs_f64(),
        format!(
            "{} of {FULL_MBIT:.2} Mbit/s, p99 {} ms; CUBIC by the marks {} Mbit/s",
            in_part.0, in_part.2, by_marks.0
        ),
    );
    Ok(())
}

/// What one download got, and how long its packets waited.
struct Waits {
    mbit: f64,
    mean_ms: f64,
    most_ms: f64,
}

/// One download over that link, after its first two seconds. Each seed has a round trip of its own:
/// nothing else here is random.
fn waits(link: &LinkConfig, algorithm: Algorithm, seed: u64) -> Result<Waits, Failure> {
    let delay = link.delay + Duration::from_micros(100 * seed);
    let mut bulk = bulk(LinkConfig { delay, ..link.clone() }, Sender::Rack(algorithm));
    // Congestion alone holds the sender back.
    bulk.tcp.buffers.receive = bulk.tcp.buffers.receive_max;
    bulk.tcp.ecn = if link.mark.is_some() { Ecn::Active } else { Ecn::Off };
    let mut seen = bulk.sender_during(LENGTH)?;
    seen.retain(|info| info.last_heard >= FROM);
    let [first, .., last] = &seen[..] else { return Err("nothing was sent".into()) };
    let bits = (last.acknowledged_bytes - first.acknowledged_bytes) as f64 * 8.0;
    let mbit = bits / 1e6 / last.last_heard.since(first.last_heard).as_secs_f64();
    let wait = |rtt: Duration| (rtt.as_secs_f64() - 2.0 * delay.as_secs_f64()) * 1e3;
    let mut waits: Vec<f64> = seen.iter().map(|info| wait(info.latest_rtt)).collect();
    waits.sort_by(f64::total_cmp);
    let mean_ms = waits.iter().sum::<f64>() / waits.len() as f64;
    Ok(Waits { mbit, mean_ms, most_ms: quantile(&waits, 0.99) })
}

/// Runs the experiment with packets that are late.
pub(crate) fn reorder(report: &mut Report) -> Outcome {
    let seeds = report.seeds(SEEDS);
    let sender = match report.is_ablated(&COUNTED) {
        true => Sender::Counting,
        false => Sender::Rack(Algorithm::Reno),
    };
    let late = |seed, ms| LinkConfig {
        reorder: 0.05,
        reorder_delay: Duration::from_millis(ms),
        ..link(seed)
    };
    let overtaken = |seed| LinkConfig { reorder: 0.05, reorder_distance: Some(5), ..link(seed) };
    let in_order = Median::of(rates(&seeds, link, sender)?);
    let by_five = Median::of(rates(&seeds, overtaken, sender)?);
    let mut table = Table::new(&["5 % late", "Mbit/s"]);
    table.row(&[&"none is late", &in_order]);
    table.row(&[&"behind 5 others", &by_five]);
    let mut by_time = Vec::new();
    for ms in [1, 3, 10, RTT_MS] {
        let mbit = Median::of(rates(&seeds, |seed| late(seed, ms), sender)?);
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
