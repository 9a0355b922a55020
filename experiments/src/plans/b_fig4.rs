//! Fig. 4 and §4.2: the cost of the periodic walk over all connections, against buckets, whose cost
//! does not depend on their number. In the paper the walk costs more from about 4000 connections
//! on, and the shorter the period, the earlier. The paper gives no time for a connection (145 ns,
//! derived), and does not count waking up.
//!
//! There are two walks, both measured by the processor time of the thread:
//!
//! - *The engine's*: a host under 4.4BSD's timers runs its fast tick over idle connections, opened
//!   by the real handshake and each with a keepalive timer. It needs no lock, and the connections
//!   lie in memory in the order in which they were opened.
//! - *The paper's*: structures in a list, with a lock and a flag each, scattered in memory like
//!   connections that come and go. The paper measured this.
//!
//! Buckets are also reported by the paper's definition, the cost beyond setting a flag. On a
//! processor where that difference is zero there is no crossing by that definition.

use std::hint::black_box;
use std::sync::Mutex;

use lightwait_bench::sample::{median, processor_time};
use lightwait_bench::timers::idle_host;
use lightwait_core::config::Scheme;
use lightwait_core::rng::Rng;

use super::b_fig3::REQUESTS;
use super::queueing::{Way, overheads};
use crate::ablation::Ablation;
use crate::chart::{Chart, Mark, Scale};
use crate::plan::{Failure, Outcome};
use crate::report::{Report, Table};

const COUNTS: [usize; 10] = [30, 100, 300, 1000, 3000, 10_000, 30_000, 100_000, 300_000, 1_000_000];
const PERIODS_MS: [f64; 5] = [200.0, 100.0, 50.0, 20.0, 10.0];
/// Derived from the paper's crossing: 34 ns a request against a walk every 200 ms.
const PAPER_NS: f64 = 145.0;
const PAPER_BUCKETS_PERCENT: f64 = 0.29;
const PAPER_CROSSING: f64 = 4000.0;
/// Connections walked in all for each count, so that small counts are walked often.
const WALKED: usize = 6_000_000;
/// The engine's ticks: 200 ms, and 500 ms, which is not measured.
const FAST_MS: u128 = 200;
const SLOW_MS: u128 = 500;

const FEW: Ablation =
    Ablation { name: "few", instead: "each walk is over 30 connections, however many there are" };

/// The number of measured walks over `count` connections.
fn walks(count: usize) -> usize {
    (WALKED / count).clamp(5, 4001)
}

/// The processor time of `run`, in ns.
fn took_ns(run: impl FnOnce()) -> f64 {
    let begin = processor_time();
    run();
    processor_time().saturating_sub(begin).as_nanos() as f64
}

/// The time of a reading of the processor time.
fn nothing_ns() -> f64 {
    median(&mut (0..10_001).map(|_| took_ns(|| ())).collect::<Vec<f64>>())
}

/// ns of the engine's fast tick over `count` idle connections: the median of many.
fn tick_ns(count: usize) -> f64 {
    let (mut host, _) = idle_host(Scheme::Scan, count);
    let mut took = Vec::new();
    while took.len() < walks(count) {
        let now = host.deadline().expect("ticks as long as there are connections");
        let ms = u128::from(now.as_nanos()) / 1_000_000;
        let ns = took_ns(|| host.on_time(now));
        if ms.is_multiple_of(FAST_MS) && !ms.is_multiple_of(SLOW_MS) {
            took.push(ns);
        }
    }
    assert_eq!(host.connections(), count, "all of them are there");
    median(&mut took) - nothing_ns()
}

/// The seed of the order in memory.
pub(crate) const SEED: u64 = 4;

/// A connection in a list: the size of a control block of 4.4BSD's.
struct Block {
    delayed_ack: Mutex<bool>,
    next: u32,
    _rest: [u64; 70],
}

/// Blocks in a list in random order of memory, as when connections come and go.
fn blocks(count: usize) -> Vec<Block> {
    let mut rng = Rng::from_seed(SEED);
    let mut order: Vec<u32> = (0..count as u32).collect();
    for place in (1..count).rev() {
        order.swap(place, rng.below(place as u32 + 1) as usize);
    }
    let mut next = vec![u32::MAX; count];
    for pair in order.windows(2) {
        next[pair[0] as usize] = pair[1];
    }
    // The walk begins with block 0, at any place in the list.
    if let (Some(&last), Some(&first)) = (order.last(), order.first()) {
        next[last as usize] = first;
    }
    let block = |next| Block { delayed_ack: Mutex::new(false), next, _rest: black_box([0; 70]) };
    next.into_iter().map(block).collect()
}

/// Walks over all blocks and reads each flag behind its lock. Returns the number of flags set.
fn walk(blocks: &[Block]) -> usize {
    let (mut found, mut index) = (0, 0);
    for _ in 0..blocks.len() {
        let block = &blocks[index];
        if let Ok(mut flag) = block.delayed_ack.lock() {
            found += usize::from(std::mem::take(&mut *flag));
        }
        index = block.next as usize;
    }
    found
}

/// ns of the paper's walk over `count` structures: the median of many.
fn walk_ns(count: usize) -> f64 {
    let blocks = blocks(count);
    black_box(walk(&blocks));
    let once = || {
        black_box(walk(black_box(&blocks)));
    };
    let time = |_| took_ns(once);
    median(&mut (0..walks(count)).map(time).collect::<Vec<f64>>()) - nothing_ns()
}

/// The number of connections for which a walk takes `ns`, interpolated; `None` if it never takes
/// that long, or `ns` is zero.
fn crossing(walks: &[(f64, f64)], ns: f64) -> Option<f64> {
    if ns <= 0.0 {
        return None;
    }
    let (n, t) = walks[0];
    if ns < t {
        return Some(n * ns / t);
    }
    let pair = walks.windows(2).find(|pair| pair[0].1 <= ns && ns < pair[1].1)?;
    let [(n0, t0), (n1, t1)] = [pair[0], pair[1]];
    Some(n0 + (n1 - n0) * (ns - t0) / (t1 - t0))
}

/// A share of a processor in %, marked if it is above 100.
fn share(percent: f64) -> String {
    format!("{percent:.5}{}", if percent > 100.0 { " (*)" } else { "" })
}

/// Runs the experiment.
pub(crate) fn run(report: &mut Report) -> Outcome {
    let few = report.is_ablated(&FEW).then_some(COUNTS[0]);
    let of = |walk: fn(usize) -> f64| {
        COUNTS.map(|count| (count as f64, walk(few.unwrap_or(count)))).to_vec()
    };
    let (ticks, walks) = (of(tick_ns), of(walk_ns));
    let ns = overheads();
    // The share of a processor that all requests take, in total and by the paper's definition.
    let asked_ns = ns[Way::Buckets as usize];
    let less_flag_ns = ns[Way::Request as usize] - ns[Way::Flag as usize];
    let percent = |ns: f64| ns * REQUESTS / 1e7;
    let mut table = Table::new(&[
        "connections",
        "engine's tick µs",
        "ns each",
        "CPU %, 200 ms",
        "paper's walk µs",
        "ns each (list)",
        "paper µs",
    ]);
    for ((count, tick), (_, walk)) in ticks.iter().zip(&walks) {
        table.row(&[
            count,
            &format!("{:.3}", tick / 1000.0),
            &format!("{:.1}", tick / count),
            &share(tick / 200e6 * 100.0),
            &format!("{:.3}", walk / 1000.0),
            &format!("{:.1}", walk / count),
            &format!("{:.3}", PAPER_NS * count / 1000.0),
        ]);
    }
    report.table("walks", &table)?;
    report.say("(*) more than a processor has: such a walk is not over when the next is due.");
    report.say(format!(
        "Buckets at 1 Gbit/s, timers told: {asked_ns:.2} ns a request, {:.4} %; by the paper's \
         definition, less a flag: {less_flag_ns:.2} ns, {:.4} % (paper: 34 ns, \
         {PAPER_BUCKETS_PERCENT} %)\n",
        percent(asked_ns),
        percent(less_flag_ns),
    ));
    let lines = [&ticks, &walks].map(|walks| (walks, [asked_ns, less_flag_ns].map(percent)));
    let crossings = report_crossings(report, &lines)?;
    claims(report, &ticks, &crossings);
    report.observe(
        "the same by the paper's definition, buckets less flag",
        less_flag_ns > 0.0,
        match crossings.first().and_then(|row| row[1]) {
            Some(count) => format!("from {count:.0} at 200 ms"),
            None => format!("buckets take {less_flag_ns:.2} ns more than a flag: no crossing"),
        },
    );
    pictures(report, &ticks, percent(asked_ns))
}

/// What a walk costs, and from how many connections on it is dearer.
fn claims(report: &mut Report, ticks: &[(f64, f64)], crossings: &[[Option<f64>; 4]]) {
    let (first, last) = (ticks[0].1, ticks[ticks.len() - 1].1);
    report.claim(
        "a walk costs more the more connections there are",
        &FEW,
        ticks.windows(2).all(|pair| pair[0].1 < pair[1].1),
        format!("{first:.0} ns for {}, {:.1} ms for a million", COUNTS[0], last / 1e6),
    );
    let known: Vec<f64> = crossings.iter().filter_map(|row| row[0]).collect();
    let found = match known.first() {
        Some(count) => format!("from {count:.0} at 200 ms (paper: about {PAPER_CROSSING})"),
        None => "never".to_owned(),
    };
    let all = known.len() == PERIODS_MS.len();
    let claim = "from some number of connections on it is dearer than buckets";
    report.claim(claim, &FEW, all, found);
    report.claim(
        "the shorter the period, the sooner",
        &FEW,
        all && known.windows(2).all(|pair| pair[1] < pair[0]),
        known.iter().map(|count| format!("{count:.0}")).collect::<Vec<_>>().join(", "),
    );
}

/// Walks by the number of connections, and the share of a processor that buckets take by either
/// definition.
type Lines<'a> = (&'a Vec<(f64, f64)>, [f64; 2]);

/// Reports the crossings for each period: the engine's tick and then the paper's walk, each with
/// the total cost of buckets and their cost beyond a flag.
fn report_crossings(
    report: &mut Report,
    lines: &[Lines<'_>; 2],
) -> Result<Vec<[Option<f64>; 4]>, Failure> {
    let mut table = Table::new(&[
        "period ms",
        "engine's tick, connections",
        "… buckets less flag",
        "paper's walk, structures",
        "… less flag",
        "paper, by 145 ns each",
    ]);
    let mut crossings = Vec::new();
    for period_ms in PERIODS_MS {
        let of = |(walks, percent): &Lines<'_>, way: usize| {
            crossing(walks, percent[way] / 100.0 * period_ms * 1e6)
        };
        let row = [of(&lines[0], 0), of(&lines[0], 1), of(&lines[1], 0), of(&lines[1], 1)];
        let cells = row.map(|at| at.map_or("–".to_owned(), |n| format!("{n:.0}")));
        let paper = PAPER_BUCKETS_PERCENT / 100.0 * period_ms * 1e6 / PAPER_NS;
        let paper = format!("{paper:.0}");
        table.row(&[&period_ms, &cells[0], &cells[1], &cells[2], &cells[3], &paper]);
        crossings.push(row);
    }
    report.table("crossings", &table)?;
    Ok(crossings)
}

/// Draws the figure's two panels.
fn pictures(report: &Report, walks: &[(f64, f64)], buckets_percent: f64) -> Outcome {
    let logarithmic = |chart: Chart| chart.scales(Scale::Logarithmic, Scale::Logarithmic);
    let mut time = logarithmic(Chart::new("(a) Time to walk the list", "connections", "µs"));
    let scaled = |factor: f64| walks.iter().map(|(n, ns)| (*n, ns * factor)).collect::<Vec<_>>();
    let paper = |factor: f64| walks.iter().map(|(n, _)| (*n, PAPER_NS * n * factor)).collect();
    time.draw("ours", Mark::Line, scaled(1e-3));
    time.draw("paper, 145 ns each", Mark::Dashed, paper(1e-3));
    report.picture("time", &time)?;
    let mut late = Vec::new();
    let mut cpu = logarithmic(Chart::new("(b) Processor time", "connections", "%"));
    // Values above are no share of a processor: the walk cannot keep up.
    let level = |percent: f64| walks.iter().map(|(n, _)| (*n, percent)).collect::<Vec<_>>();
    for period_ms in PERIODS_MS {
        let shares = scaled(1e-4 / period_ms);
        let (kept, missed) = shares.into_iter().partition(|(_, percent)| *percent <= 100.0);
        cpu.draw(&format!("walk, {period_ms} ms"), Mark::Line, kept);
        late.extend::<Vec<_>>(missed);
    }
    cpu.draw("cannot keep up", Mark::Points, late);
    cpu.draw("one whole processor", Mark::Dashed, level(100.0));
    cpu.draw("buckets, 1 Gbit/s", Mark::Dashed, level(buckets_percent));
    cpu.draw("paper: walk, 200 ms", Mark::Dashed, paper(1e-4 / 200.0));
    let name = format!("paper: buckets, {PAPER_BUCKETS_PERCENT} %");
    cpu.draw(&name, Mark::Dashed, level(PAPER_BUCKETS_PERCENT));
    report.picture("cpu", &cpu)
}
