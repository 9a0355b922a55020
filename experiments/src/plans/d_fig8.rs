//! Many connections, fast and slow, on one pool of buffers, by each policy. One set of worlds makes
//! two figures, and the paper's statements on fairness.

use std::ops::{Range, RangeInclusive};
use std::sync::{Arc, Mutex};

use lightwait_core::config::{Limits, PageSize, PoolPolicy, SendRule, TcpConfig};
use lightwait_core::rng::Rng;
use lightwait_core::time::Duration;

use crate::ablation::Ablation;
use crate::chart::Chart;
use crate::parallel;
use crate::plan::{Failure, Outcome};
use crate::plans::paths::Way;
use crate::plans::transfers::{self, Found, Load, SEGMENT};
use crate::report::{Report, Table};
use crate::statistics::Mean;

const SEEDS: u64 = 50;
/// Buffers in the pool, each of a segment.
const POOLS: [usize; 8] = [20, 50, 75, 100, 150, 200, 350, 500];
const QUICK_POOLS: [usize; 5] = [20, 50, 100, 350, 500];
/// The pool in the paper's text.
const SPOKEN_OF: usize = 350;
const FAST_BITS: u64 = 1_000_000;
const SLOW_BITS: u64 = 100_000;
const ROUND_TRIP: Duration = Duration::from_millis(150);
const LOSS: f64 = 0.01;
const READ_TIME: Duration = Duration::from_millis(50);
const CLIENTS: usize = 100;
const TRANSFERS: usize = 50;
const AT_ONCE: usize = 10;
const BYTES: u64 = 500 * SEGMENT;
/// The paper does not give p; `d-priority` sweeps it.
const PRIORITY_CAP: u8 = 8;

/// A policy, the time between PSC's scans, and its name in the table. PSC's buffers ignore the read
/// time.
type Arm = (PoolPolicy, Duration, &'static str);
/// The default.
const SCAN: Duration = Duration::from_millis(50);
const ARMS: [Arm; 5] = [
    (PoolPolicy::Naive, SCAN, "naive"),
    (PoolPolicy::RoundRobin, SCAN, "RR"),
    (PoolPolicy::Priority, SCAN, "PQ"),
    (PoolPolicy::Psc, SCAN, "PSC"),
    (PoolPolicy::Psc, Duration::from_secs(1), "PSC, scans of 1 s"),
];
const NAIVE: usize = 0;
const RR: usize = 1;
const PQ: usize = 2;
const PSC: usize = 3;
const PSC_RARE: usize = 4;

/// Pools in which each connection gets some buffers, and few get what they need.
const TIGHT: RangeInclusive<usize> = 50..=150;

const NO_NEED: Ablation =
    Ablation { name: "no-need", instead: "PQ's cap is 1: what a connection needs does not count" };
const NO_NEWCOMERS: Ablation = Ablation {
    name: "no-newcomers",
    instead: "under PQ one that holds nothing counts as one that holds a buffer, not for p + 1",
};
const NEWCOMERS_FIRST: Ablation =
    Ablation { name: "newcomers-first", instead: "one that holds nothing is served before all" };
const NO_SHARES: Ablation =
    Ablation { name: "no-shares", instead: "PSC never scans, so that nobody has a share" };
const AS_PQ: Ablation = Ablation { name: "as-pq", instead: "PSC is PQ" };
const HALF_NAIVE: Ablation =
    Ablation { name: "half-naive", instead: "naive's buffer is half of its part of the pool" };
const GREEDY: Ablation = Ablation {
    name: "greedy",
    instead: "RR's and PQ's buffers are twice the window, and never less than they were",
};
const UNEVEN: Ablation =
    Ablation { name: "uneven", instead: "every other path is slower than its kind, by four times" };
const SCARCE: Ablation =
    Ablation { name: "scarce", instead: "each pool has a tenth of its buffers" };
const ABLATIONS: [&Ablation; 9] = [
    &NO_NEED,
    &NO_NEWCOMERS,
    &NEWCOMERS_FIRST,
    &NO_SHARES,
    &AS_PQ,
    &HALF_NAIVE,
    &GREEDY,
    &UNEVEN,
    &SCARCE,
];

/// The ablation that the worlds run with, if any.
#[derive(Clone, Copy, Debug, Default)]
struct Bent(Option<&'static Ablation>);

impl Bent {
    fn of(report: &Report) -> Bent {
        Bent(ABLATIONS.into_iter().find(|ablation| report.is_ablated(ablation)))
    }

    fn is(self, ablation: &Ablation) -> bool {
        self.name() == Some(ablation.name)
    }

    fn name(self) -> Option<&'static str> {
        self.0.map(|ablation| ablation.name)
    }
}

/// The results with one pool and one policy, over all seeds.
#[derive(Clone, Copy, Debug)]
struct Point {
    /// Mean rates of transfers, in kbit/s.
    fast: Mean,
    slow: Mean,
    /// Buffers in use.
    used: Mean,
    /// Jain's index of the rates of each kind.
    fast_jain: Mean,
    slow_jain: Mean,
    /// How long a connection waited for its first buffer, in ms.
    first_wait: Mean,
}

/// The results by pool and policy.
struct Grid {
    pools: Vec<usize>,
    points: Vec<Vec<Point>>,
}

impl Grid {
    /// The results with tight pools.
    fn tight(&self) -> impl Iterator<Item = &[Point]> {
        let rows = self.pools.iter().zip(&self.points);
        rows.filter(|(pool, _)| TIGHT.contains(pool)).map(|(_, row)| row.as_slice())
    }

    fn of_pool(&self, pool: usize) -> &[Point] {
        let place = self.pools.iter().position(|size| *size == pool);
        &self.points[place.expect("a pool of the sweep")]
    }
}

/// The results so far in this process, with their seeds, pools and ablation.
static FOUND: Mutex<Option<(Asked, Arc<Grid>)>> = Mutex::new(None);
type Asked = (Range<u64>, Vec<usize>, Option<&'static str>);

fn grid(report: &mut Report) -> Result<Arc<Grid>, Failure> {
    report.say(
        "100 clients, half of them at 1 Mbit/s and half at 0.1, each on a path of its own of 150 \
         ms that\nloses 1 %; 50 transfers of 250 KB, ten at a time; a read takes 50 ms; a buffer \
         is a segment of 512 B.\nNaive: a fixed buffer of a tenth of the pool. RR, PQ: LOS. PSC: \
         LOS without read times.",
    );
    let (seeds, quick) = (report.seeds(SEEDS), report.is_quick());
    let pools = if quick { QUICK_POOLS.to_vec() } else { POOLS.to_vec() };
    let bent = Bent::of(report);
    let asked = (seeds.clone(), pools.clone(), bent.name());
    let mut found = FOUND.lock().map_err(|_| "a figure before this one has failed")?;
    if let Some((_, grid)) = found.as_ref().filter(|(of, _)| *of == asked) {
        return Ok(grid.clone());
    }
    let points = parallel::map(pools.len() * ARMS.len(), |number| {
        let (pool, arm) = (pools[number / ARMS.len()], ARMS[number % ARMS.len()]);
        point(pool, (arm, bent), PRIORITY_CAP, seeds.clone())
    })?;
    let points = points.chunks(ARMS.len()).map(<[Point]>::to_vec).collect();
    let grid = Arc::new(Grid { pools, points });
    *found = Some((asked, grid.clone()));
    Ok(grid)
}

/// A random half of either kind of client, in random order.
fn order(seed: u64) -> Vec<usize> {
    let mut rng = Rng::from_seed(seed);
    let mut shuffled = |from: usize, to: usize| {
        let mut clients: Vec<usize> = (from..to).collect();
        for last in (1..clients.len()).rev() {
            clients.swap(last, rng.below(last as u32 + 1) as usize);
        }
        clients
    };
    let half = CLIENTS / 2;
    let fast = shuffled(0, half);
    let slow = shuffled(half, CLIENTS);
    let chosen: Vec<usize> =
        fast.into_iter().take(TRANSFERS / 2).chain(slow.into_iter().take(TRANSFERS / 2)).collect();
    let places = shuffled(0, TRANSFERS);
    places.into_iter().map(|place| chosen[place]).collect()
}

fn tcp(pool: usize, ((policy, scan, _), bent): (Arm, Bent), cap: u8) -> TcpConfig {
    transfers::tcp().with(|tcp| {
        tcp.pool.policy = policy;
        tcp.pool.scan = if bent.is(&NO_SHARES) { Duration::from_secs(36_000) } else { scan };
        tcp.pool.priority_cap = if bent.is(&NO_NEED) { 1 } else { cap };
        tcp.pool.priority_of_none = !bent.is(&NO_NEWCOMERS);
        tcp.pool.most_connections = AT_ONCE as u32;
        // As in the paper: a new connection queues with all others, or has its priority.
        tcp.pool.newcomers_first = bent.is(&NEWCOMERS_FIRST);
        // No connection is reset there, however slow a pool of a few buffers makes it.
        tcp.stall.after = Duration::from_secs(3600);
        let is_greedy = bent.is(&GREEDY) && policy != PoolPolicy::Psc;
        tcp.buffers.send_size = if is_greedy { SendRule::Linux } else { SendRule::Los };
        if policy == PoolPolicy::Naive {
            let part = if bent.is(&HALF_NAIVE) { 2 * AT_ONCE } else { AT_ONCE };
            tcp.buffers.send_size = SendRule::Fixed;
            tcp.buffers.send = (pool / part).max(1) as u32 * SEGMENT as u32;
        }
    })
}

fn point(
    pool: usize,
    (mut arm, bent): (Arm, Bent),
    cap: u8,
    seeds: Range<u64>,
) -> Result<Point, Failure> {
    let way = |number: usize| {
        let rate_bits = if number < CLIENTS / 2 { FAST_BITS } else { SLOW_BITS };
        let slower = if bent.is(&UNEVEN) && number % 2 == 1 { 4 } else { 1 };
        Way { rate_bits: rate_bits / slower, round_trip: ROUND_TRIP, loss: LOSS }
    };
    if bent.is(&AS_PQ) && arm.0 == PoolPolicy::Psc {
        arm.0 = PoolPolicy::Priority;
    }
    let pool = if bent.is(&SCARCE) { (pool / 10).max(AT_ONCE) } else { pool };
    let fixed = arm.0 == PoolPolicy::Naive;
    let limits = Limits { pages: pool, page: PageSize::Segment, ..Limits::default() };
    let one = |seed| {
        let load = Load {
            ways: (0..CLIENTS).map(way).collect(),
            order: order(seed),
            at_once: AT_ONCE,
            bytes: BYTES,
            read_time: READ_TIME,
            // PSC's buffers ignore it themselves.
            told_read_time: READ_TIME,
            block: fixed.then_some(16 * SEGMENT),
        };
        transfers::run(&load, tcp(pool, (arm, bent), cap), limits.clone(), seed)
    };
    let worlds = seeds.map(one).collect::<Result<Vec<Found>, _>>()?;
    let mean = |of: &dyn Fn(&Found) -> f64| Mean::of(worlds.iter().map(of));
    Ok(Point {
        fast: mean(&|world| average(&rates(world, true))),
        slow: mean(&|world| average(&rates(world, false))),
        used: mean(&|world| world.mean_pages),
        fast_jain: mean(&|world| jain(&rates(world, true))),
        slow_jain: mean(&|world| jain(&rates(world, false))),
        first_wait: mean(&|world| {
            let waits: Vec<f64> = world.transfers.iter().map(|one| one.first_wait_ms).collect();
            average(&waits)
        }),
    })
}

/// Rates of the transfers of one kind, in kbit/s.
fn rates(world: &Found, fast: bool) -> Vec<f64> {
    let of_kind = world.transfers.iter().filter(|one| (one.way < CLIENTS / 2) == fast);
    of_kind.map(|one| (BYTES * 8) as f64 / one.seconds / 1000.0).collect()
}

fn average(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// 1 where all are equal.
fn jain(values: &[f64]) -> f64 {
    let sum: f64 = values.iter().sum();
    let squares: f64 = values.iter().map(|value| value * value).sum();
    sum * sum / (values.len() as f64 * squares)
}

/// A table and a picture of one value.
fn show(
    report: &mut Report,
    grid: &Grid,
    name: &str,
    label: &str,
    of: fn(&Point) -> Mean,
) -> Outcome {
    let chart = Chart::new("Ten connections at a time on one pool", "pool, segments", label);
    let rows = grid.pools.iter().zip(&grid.points);
    let rows = rows.map(|(pool, row)| (*pool as f64, row.iter().map(of).collect()));
    let rows: Vec<(f64, Vec<Mean>)> = rows.collect();
    report.say(label);
    report.means(name, "pool", &ARMS.map(|(.., name)| name), &rows, chart)
}

/// Figure 8.
pub(crate) fn bandwidth(report: &mut Report) -> Outcome {
    let grid = grid(report)?;
    show(report, &grid, "fast", "kbit/s of a fast connection, mean", |point| point.fast)?;
    show(report, &grid, "slow", "kbit/s of a slow connection, mean", |point| point.slow)?;
    let of_best = |row: &Vec<Point>| {
        row[PQ].fast.mean / row.iter().map(|point| point.fast.mean).fold(0.0, f64::max)
    };
    let some = || grid.pools.iter().zip(&grid.points).filter(|(pool, _)| **pool >= 5 * AT_ONCE);
    let worst = some().map(|(_, row)| of_best(row)).fold(1.0, f64::min);
    report.claim(
        "PQ is best for fast connections from five buffers a connection on, within 2 %",
        &NO_NEED,
        worst >= 0.98,
        format!("at worst {worst:.3} of the best"),
    );
    report.observe(
        "… and with fewer, as in the paper",
        of_best(&grid.points[0]) >= 0.98,
        format!("with {} segments {:.3} of the best", grid.pools[0], of_best(&grid.points[0])),
    );
    let first = &grid.points[0];
    report.claim(
        "RR is worse than naive where the pool is tiny",
        &HALF_NAIVE,
        first[RR].fast.mean < first[NAIVE].fast.mean,
        format!(
            "with {} segments {:.0} and {:.0} kbit/s",
            grid.pools[0], first[RR].fast.mean, first[NAIVE].fast.mean
        ),
    );
    let last = &grid.points[grid.points.len() - 1];
    report.claim(
        "PQ and RR are equal where it is large",
        &SCARCE,
        (last[PQ].fast.mean / last[RR].fast.mean - 1.0).abs() < 0.02,
        format!("{:.0} and {:.0} kbit/s", last[PQ].fast.mean, last[RR].fast.mean),
    );
    psc(report, &grid);
    let full = last.iter().map(|point| point.slow.mean).fold(0.0, f64::max);
    let reasonable = || grid.pools.iter().zip(&grid.points).filter(|(pool, _)| **pool >= 100);
    let least = reasonable().flat_map(|(_, row)| row.iter().map(|point| point.slow.mean / full));
    let least = least.fold(1.0, f64::min);
    report.claim(
        "slow connections have all their bandwidth under every policy, from 100 segments on",
        &SCARCE,
        least > 0.93,
        format!("{:.1} % of it at least", least * 100.0),
    );
    Ok(())
}

/// §5, on fast connections.
fn psc(report: &mut Report, grid: &Grid) {
    let of_tight = |of: fn(&[Point]) -> bool| grid.tight().all(of);
    let a_tight = grid.of_pool(*TIGHT.start());
    report.claim(
        "PSC needs a larger pool: where it is tight fast connections have less than under PQ",
        &AS_PQ,
        of_tight(|row| row[PSC].fast.most() < row[PQ].fast.least()),
        format!("with 50 segments {} and {} kbit/s", a_tight[PSC].fast, a_tight[PQ].fast),
    );
    report.claim(
        "but more than under RR: nobody takes what is beyond his share",
        &NO_SHARES,
        of_tight(|row| row[PSC].fast.least() > row[RR].fast.most()),
        format!("with 50 segments {} kbit/s under RR", a_tight[RR].fast),
    );
    report.claim(
        "a scan a second gives PSC within a twentieth of the same",
        &NO_SHARES,
        of_tight(|row| {
            let rare = row[PSC_RARE].fast.mean;
            rare > 0.95 * row[PSC].fast.mean && rare > 1.05 * row[RR].fast.mean
        }),
        format!("with 50 segments {} kbit/s", a_tight[PSC_RARE].fast),
    );
}

/// Figure 9.
pub(crate) fn usage(report: &mut Report) -> Outcome {
    let grid = grid(report)?;
    show(report, &grid, "used", "buffers in use, mean", |point| point.used)?;
    let row = grid.of_pool(SPOKEN_OF);
    let (naive, pq) = (row[NAIVE], row[PQ]);
    report.claim(
        "with 350 segments naive holds much more than PQ, for less fast bandwidth",
        &HALF_NAIVE,
        naive.used.mean > 1.4 * pq.used.mean && naive.fast.mean <= pq.fast.mean,
        format!(
            "{:.2} times as much, for {:.1} % less (paper: 2 times, 4 %)",
            naive.used.mean / pq.used.mean,
            (1.0 - naive.fast.mean / pq.fast.mean) * 100.0
        ),
    );
    let last = &grid.points[grid.points.len() - 1];
    let grows = |policy: usize| last[policy].used.mean / row[policy].used.mean;
    report.claim(
        "PQ and RR never hold more than they need: a larger pool changes nothing; naive holds more",
        &GREEDY,
        grows(PQ) < 1.05 && grows(RR) < 1.05 && grows(NAIVE) > 1.2,
        format!(
            "from 350 to 500 segments {:.2}, {:.2} and {:.2} times as much",
            grows(PQ),
            grows(RR),
            grows(NAIVE)
        ),
    );
    Ok(())
}

/// The statements of §4 on fairness, and on new connections.
pub(crate) fn fairness(report: &mut Report) -> Outcome {
    let grid = grid(report)?;
    show(report, &grid, "fast_jain", "Jain's index of fast connections", |p| p.fast_jain)?;
    show(report, &grid, "slow_jain", "Jain's index of slow connections", |p| p.slow_jain)?;
    show(report, &grid, "first_wait", "ms until the first buffer, mean", |p| p.first_wait)?;
    let points = || grid.points.iter().flatten();
    let least = |p: &Point| p.fast_jain.least().min(p.slow_jain.least());
    let papers = || grid.points.iter().flat_map(|row| &row[..=PQ]).map(least);
    let lowest = papers().fold(1.0, f64::min);
    report.claim(
        "naive, RR and PQ are nearly 90 % fair within each kind, or more",
        &UNEVEN,
        lowest > 0.87,
        format!("{lowest:.3} at least, by the interval's end"),
    );
    report.observe(
        "… and more than 90 %, as in the paper",
        lowest > 0.9,
        format!("{:.3} at least, PSC's too", points().map(least).fold(1.0, f64::min)),
    );
    let first = &grid.points[0];
    report.claim(
        "who is new waits longest for a first buffer under RR where the pool is tiny",
        &NEWCOMERS_FIRST,
        first[RR].first_wait.mean > first[NAIVE].first_wait.mean
            && first[RR].first_wait.mean > first[PQ].first_wait.mean,
        format!(
            "{:.0} ms, under PQ {:.0}, under naive {:.0}",
            first[RR].first_wait.mean, first[PQ].first_wait.mean, first[NAIVE].first_wait.mean
        ),
    );
    first_buffers(report, &grid);
    Ok(())
}

/// Who waits how long for a first buffer, and what that buys.
fn first_buffers(report: &mut Report, grid: &Grid) {
    let first = &grid.points[0];
    report.claim(
        "p + 1 is what lets a newcomer begin under PQ where the pool is tiny",
        &NO_NEWCOMERS,
        first[PQ].first_wait.most() < 100.0,
        format!("with {} segments after {} ms", grid.pools[0], first[PQ].first_wait),
    );
    let row = grid.of_pool(*TIGHT.start());
    report.claim(
        "PSC's shares leave a newcomer its first buffer where the pool is tight",
        &NO_SHARES,
        row[PSC].first_wait.most() < 0.1 * row[RR].first_wait.least(),
        format!(
            "with 50 segments after {} ms, under RR {}",
            row[PSC].first_wait, row[RR].first_wait
        ),
    );
}

/// The cap of the priority, which the paper does not give.
pub(crate) fn caps(report: &mut Report) -> Outcome {
    const CAPS: [u8; 5] = [1, 2, 4, 8, 14];
    const SIZES: [usize; 2] = [40, 100];
    let seeds = report.seeds(20);
    let bent = Bent::of(report);
    let points = parallel::map(CAPS.len() * SIZES.len(), |number| {
        let (pool, cap) = (SIZES[number % SIZES.len()], CAPS[number / SIZES.len()]);
        let bent = if cap == CAPS[CAPS.len() - 1] { Bent::default() } else { bent };
        point(pool, (ARMS[PQ], bent), cap, seeds.clone())
    })?;
    let mut table = Table::new(&["p", "pool", "fast kbit/s", "slow kbit/s", "first buffer ms"]);
    for (number, point) in points.iter().enumerate() {
        table.row(&[
            &CAPS[number / SIZES.len()],
            &SIZES[number % SIZES.len()],
            &point.fast.to_string(),
            &point.slow.to_string(),
            &point.first_wait.to_string(),
        ]);
    }
    report.table("caps", &table)?;
    let fast = |cap: u8, pool: usize| {
        let place = CAPS.iter().position(|known| *known == cap).unwrap_or_default();
        points[place * SIZES.len() + pool].fast.mean
    };
    let each = |holds: &dyn Fn(usize) -> bool| (0..SIZES.len()).all(holds);
    report.claim(
        "with a cap of 1 need does not count: fast connections lose a fifth",
        &NO_NEED,
        each(&|pool| fast(1, pool) < 0.8 * fast(8, pool)),
        format!("{:.2} and {:.2} of it", fast(1, 0) / fast(8, 0), fast(1, 1) / fast(8, 1)),
    );
    report.claim(
        "from 8 on the cap changes nothing",
        &NO_NEED,
        each(&|pool| (fast(14, pool) / fast(8, pool) - 1.0).abs() < 0.02),
        format!("{:.3} and {:.3} times", fast(14, 0) / fast(8, 0), fast(14, 1) / fast(8, 1)),
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_world_has_as_many_of_either_kind() {
        let clients = order(7);
        assert_eq!(clients.len(), TRANSFERS);
        assert_eq!(clients.iter().filter(|client| **client < CLIENTS / 2).count(), TRANSFERS / 2);
        assert!(clients != order(8));
    }

    #[test]
    fn the_index_is_one_for_equal_shares_and_less_for_one_owner() {
        assert!((jain(&[3.0, 3.0, 3.0]) - 1.0).abs() < 1e-12);
        assert!((jain(&[9.0, 0.0, 0.0]) - 1.0 / 3.0).abs() < 1e-12);
    }
}
