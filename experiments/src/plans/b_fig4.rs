//! Fig. 4 and §4.2: what the periodic walk over all connections costs, a lock and a flag for each
//! as in the paper, against buckets, whose cost does not depend on how many there are. In the paper
//! the walk is the dearer from about 4000 connections on, and the shorter the period, the sooner;
//! it says neither how long a connection takes (derived: 145 ns) nor counts waking up.

use std::hint::black_box;
use std::sync::Mutex;
use std::time::Instant as Clock;

use lightwait_bench::sample::median;
use lightwait_core::rng::Rng;

use super::b_fig3::REQUESTS;
use super::queueing::{Way, overheads};
use crate::chart::{Chart, Mark, Scale};
use crate::plan::{Failure, Outcome};
use crate::report::{Report, Table};

const COUNTS: [usize; 13] =
    [1, 3, 10, 30, 100, 300, 1000, 3000, 10_000, 30_000, 100_000, 300_000, 1_000_000];
const PERIODS_MS: [f64; 5] = [200.0, 100.0, 50.0, 20.0, 10.0];
/// Derived from the paper's crossing: 34 ns a request against a walk every 200 ms.
const PAPER_NS: f64 = 145.0;
const PAPER_BUCKETS_PERCENT: f64 = 0.29;
const PAPER_CROSSING: f64 = 4000.0;
/// Connections walked in all for each count, so that small ones are measured often.
const WALKED: usize = 6_000_000;

/// A connection in a list: as large as a control block of 4.4BSD's, scattered as they are.
struct Block {
    delayed_ack: Mutex<bool>,
    next: u32,
    _rest: [u64; 70],
}

/// Blocks in a list that leads through memory in random order, as connections come and go.
fn blocks(count: usize) -> Vec<Block> {
    let mut rng = Rng::from_seed(4);
    let mut order: Vec<u32> = (0..count as u32).collect();
    for place in (1..count).rev() {
        order.swap(place, rng.below(place as u32 + 1) as usize);
    }
    let mut next = vec![u32::MAX; count];
    for pair in order.windows(2) {
        next[pair[0] as usize] = pair[1];
    }
    // The walk begins with the first block, wherever the list began.
    if let (Some(&last), Some(&first)) = (order.last(), order.first()) {
        next[last as usize] = first;
    }
    let block = |next| Block { delayed_ack: Mutex::new(false), next, _rest: black_box([0; 70]) };
    next.into_iter().map(block).collect()
}

/// Walks over all blocks and looks at each flag behind its lock; the flags that were set.
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

/// ns a walk over `count` connections takes: the median of many.
fn walk_ns(count: usize) -> f64 {
    let blocks = blocks(count);
    let walks = (WALKED / count).clamp(5, 20_001);
    // Small walks are shorter than what reading the clock takes: some together.
    let together = (1000 / count).max(1);
    black_box(walk(&blocks));
    let time = |_| {
        let clock = Clock::now();
        for _ in 0..together {
            black_box(walk(black_box(&blocks)));
        }
        clock.elapsed().as_nanos() as f64 / together as f64
    };
    median(&mut (0..(walks / together).max(5)).map(time).collect::<Vec<f64>>())
}

/// For how many connections a walk takes as long as `ns`, between the counts that were measured;
/// none if it never takes so long.
fn crossing(walks: &[(f64, f64)], ns: f64) -> Option<f64> {
    let (n, t) = walks[0];
    if ns < t {
        return Some(n * ns / t);
    }
    let pair = walks.windows(2).find(|pair| pair[0].1 <= ns && ns < pair[1].1)?;
    let [(n0, t0), (n1, t1)] = [pair[0], pair[1]];
    Some(n0 + (n1 - n0) * (ns - t0) / (t1 - t0))
}

/// A share of a processor in %, marked if it is more than there is.
fn share(percent: f64) -> String {
    format!("{percent:.5}{}", if percent > 100.0 { " (*)" } else { "" })
}

/// Runs it.
pub(crate) fn run(report: &mut Report) -> Outcome {
    let walks: Vec<(f64, f64)> =
        COUNTS.iter().map(|count| (*count as f64, walk_ns(*count))).collect();
    let buckets_ns = overheads()[Way::Buckets as usize];
    // How much of a processor all requests are: as a whole, since not every one shows what they
    // take more than a flag.
    let buckets_percent = buckets_ns * REQUESTS / 1e7;
    let mut table =
        Table::new(&["connections", "walk µs", "ns a connection", "CPU %, 200 ms", "paper µs"]);
    for (count, ns) in &walks {
        table.row(&[
            count,
            &format!("{:.3}", ns / 1000.0),
            &format!("{:.1}", ns / count),
            &share(ns / 200e6 * 100.0),
            &format!("{:.3}", PAPER_NS * count / 1000.0),
        ]);
    }
    report.table("walks", &table)?;
    report.say("(*) more than a processor has: such a walk is not over when the next is due.");
    report.say(format!(
        "Buckets at 1 Gbit/s: {buckets_ns:.2} ns a request, {buckets_percent:.4} % (paper: 34 ns \
         more than a flag, {PAPER_BUCKETS_PERCENT} %)\n"
    ));
    let crossings = report_crossings(report, &walks, buckets_percent)?;
    let (first, last) = (walks[0].1, walks[walks.len() - 1].1);
    report.claim(
        "a walk costs more the more connections there are",
        walks.windows(2).all(|pair| pair[0].1 < pair[1].1),
        format!("{first:.0} ns for one, {:.1} ms for a million", last / 1e6),
    );
    let known: Vec<f64> = crossings.into_iter().flatten().collect();
    let found = match known.first() {
        Some(count) => format!("from {count:.0} at 200 ms (paper: about {PAPER_CROSSING})"),
        None => "never".to_owned(),
    };
    let all = known.len() == PERIODS_MS.len();
    report.claim("from some number of connections on it is dearer than buckets", all, found);
    report.claim(
        "the shorter the period, the sooner",
        all && known.windows(2).all(|pair| pair[1] < pair[0]),
        known.iter().map(|count| format!("{count:.0}")).collect::<Vec<_>>().join(", "),
    );
    pictures(report, &walks, buckets_percent)
}

/// Where the lines cross, for each period.
fn report_crossings(
    report: &mut Report,
    walks: &[(f64, f64)],
    buckets_percent: f64,
) -> Result<Vec<Option<f64>>, Failure> {
    let mut table = Table::new(&["period ms", "crossing, connections", "paper, by 145 ns each"]);
    let mut crossings = Vec::new();
    for period_ms in PERIODS_MS {
        let at = crossing(walks, buckets_percent / 100.0 * period_ms * 1e6);
        let cell = at.map_or("–".to_owned(), |n| format!("{n:.0}"));
        let paper = PAPER_BUCKETS_PERCENT / 100.0 * period_ms * 1e6 / PAPER_NS;
        table.row(&[&period_ms, &cell, &format!("{paper:.0}")]);
        crossings.push(at);
    }
    report.table("crossings", &table)?;
    Ok(crossings)
}

/// The figure's two panels.
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
    // What is above is no share of a processor: the walk cannot keep up.
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
