//! Many connections, fast and slow, on one pool of buffers, by each policy. One set of worlds makes
//! two figures, and the paper's statements on fairness.

use std::ops::Range;
use std::sync::{Arc, Mutex};

use lightwait_core::config::{Limits, PageSize, PoolPolicy, SendRule, TcpConfig};
use lightwait_core::rng::Rng;
use lightwait_core::time::Duration;

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

/// Policies, by their names in the table. PSC's buffers ignore the read time.
const POLICIES: [(PoolPolicy, &str); 4] = [
    (PoolPolicy::Naive, "naive"),
    (PoolPolicy::RoundRobin, "RR"),
    (PoolPolicy::Priority, "PQ"),
    (PoolPolicy::Psc, "PSC"),
];
const NAIVE: usize = 0;
const RR: usize = 1;
const PQ: usize = 2;

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
    fn of_pool(&self, pool: usize) -> &[Point] {
        let place = self.pools.iter().position(|size| *size == pool);
        &self.points[place.expect("a pool of the sweep")]
    }
}

/// The results so far in this process, with their seeds and pools.
static FOUND: Mutex<Option<(Range<u64>, Arc<Grid>)>> = Mutex::new(None);

fn grid(report: &mut Report) -> Result<Arc<Grid>, Failure> {
    report.say(
        "100 clients, half of them at 1 Mbit/s and half at 0.1, each on a path of its own of 150 \
         ms that\nloses 1 %; 50 transfers of 250 KB, ten at a time; a read takes 50 ms; a buffer \
         is a segment of 512 B.\nNaive: a fixed buffer of a tenth of the pool. RR, PQ: LOS. PSC: \
         LOS without read times.",
    );
    let (seeds, quick) = (report.seeds(SEEDS), report.is_quick());
    let pools = if quick { QUICK_POOLS.to_vec() } else { POOLS.to_vec() };
    let mut found = FOUND.lock().map_err(|_| "a figure before this one has failed")?;
    if let Some((_, grid)) = found.as_ref().filter(|(of, grid)| *of == seeds && grid.pools == pools)
    {
        return Ok(grid.clone());
    }
    let points = parallel::map(pools.len() * POLICIES.len(), |number| {
        let policy = POLICIES[number % POLICIES.len()].0;
        point(pools[number / POLICIES.len()], policy, PRIORITY_CAP, seeds.clone())
    })?;
    let points = points.chunks(POLICIES.len()).map(<[Point]>::to_vec).collect();
    let grid = Arc::new(Grid { pools, points });
    *found = Some((seeds, grid.clone()));
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

fn tcp(pool: usize, policy: PoolPolicy, cap: u8) -> TcpConfig {
    transfers::tcp().with(|tcp| {
        tcp.pool.policy = policy;
        tcp.pool.priority_cap = cap;
        tcp.pool.most_connections = AT_ONCE as u32;
        // As in the paper: a new connection queues with all others, or has its priority.
        tcp.pool.newcomers_first = false;
        // No connection is reset there, however slow a pool of a few buffers makes it.
        tcp.stall.after = Duration::from_secs(3600);
        tcp.buffers.send_size = SendRule::Los;
        if policy == PoolPolicy::Naive {
            tcp.buffers.send_size = SendRule::Fixed;
            tcp.buffers.send = (pool / AT_ONCE) as u32 * SEGMENT as u32;
        }
    })
}

fn point(pool: usize, policy: PoolPolicy, cap: u8, seeds: Range<u64>) -> Result<Point, Failure> {
    let way = |number: usize| Way {
        rate_bits: if number < CLIENTS / 2 { FAST_BITS } else { SLOW_BITS },
        round_trip: ROUND_TRIP,
        loss: LOSS,
    };
    let fixed = policy == PoolPolicy::Naive;
    let told_read_time = if policy == PoolPolicy::Psc { Duration::ZERO } else { READ_TIME };
    let limits = Limits { pages: pool, page: PageSize::Segment, ..Limits::default() };
    let one = |seed| {
        let load = Load {
            ways: (0..CLIENTS).map(way).collect(),
            order: order(seed),
            at_once: AT_ONCE,
            bytes: BYTES,
            read_time: READ_TIME,
            told_read_time,
            block: fixed.then_some(16 * SEGMENT),
        };
        transfers::run(&load, tcp(pool, policy, cap), limits.clone(), seed)
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
    report.means(name, "pool", &POLICIES.map(|(_, name)| name), &rows, chart)
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
    report.claim_alone(
        "PQ is best for fast connections from five buffers a connection on, within 2 %",
        worst >= 0.98,
        format!("at worst {worst:.3} of the best"),
    );
    report.observe(
        "… and with fewer, as in the paper",
        of_best(&grid.points[0]) >= 0.98,
        format!("with {} segments {:.3} of the best", grid.pools[0], of_best(&grid.points[0])),
    );
    let first = &grid.points[0];
    report.claim_alone(
        "RR is worse than naive where the pool is tiny",
        first[RR].fast.mean < first[NAIVE].fast.mean,
        format!(
            "with {} segments {:.0} and {:.0} kbit/s",
            grid.pools[0], first[RR].fast.mean, first[NAIVE].fast.mean
        ),
    );
    let last = &grid.points[grid.points.len() - 1];
    report.claim_alone(
        "PQ and RR are equal where it is large",
        (last[PQ].fast.mean / last[RR].fast.mean - 1.0).abs() < 0.02,
        format!("{:.0} and {:.0} kbit/s", last[PQ].fast.mean, last[RR].fast.mean),
    );
    let full = last.iter().map(|point| point.slow.mean).fold(0.0, f64::max);
    let reasonable = || grid.pools.iter().zip(&grid.points).filter(|(pool, _)| **pool >= 100);
    let least = reasonable().flat_map(|(_, row)| row.iter().map(|point| point.slow.mean / full));
    let least = least.fold(1.0, f64::min);
    report.claim_alone(
        "slow connections have all their bandwidth under every policy, from 100 segments on",
        least > 0.93,
        format!("{:.1} % of it at least", least * 100.0),
    );
    Ok(())
}

/// Figure 9.
pub(crate) fn usage(report: &mut Report) -> Outcome {
    let grid = grid(report)?;
    show(report, &grid, "used", "buffers in use, mean", |point| point.used)?;
    let row = grid.of_pool(SPOKEN_OF);
    let (naive, pq) = (row[NAIVE], row[PQ]);
    report.claim_alone(
        "with 350 segments naive holds much more than PQ, for less fast bandwidth",
        naive.used.mean > 1.4 * pq.used.mean && naive.fast.mean <= pq.fast.mean,
        format!(
            "{:.2} times as much, for {:.1} % less (paper: 2 times, 4 %)",
            naive.used.mean / pq.used.mean,
            (1.0 - naive.fast.mean / pq.fast.mean) * 100.0
        ),
    );
    let last = &grid.points[grid.points.len() - 1];
    let grows = |policy: usize| last[policy].used.mean / row[policy].used.mean;
    report.claim_alone(
        "PQ and RR never hold more than they need: a larger pool changes nothing; naive holds more",
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
    let least = points().map(|p| p.fast_jain.mean.min(p.slow_jain.mean)).fold(1.0, f64::min);
    let papers =
        |row: &Vec<Point>| row[..=PQ].iter().all(|p| p.fast_jain.mean.min(p.slow_jain.mean) > 0.9);
    report.claim_alone(
        "naive, RR and PQ are more than 90 % fair within each kind",
        grid.points.iter().all(papers),
        format!("{least:.3} at least, PSC's too"),
    );
    let first = &grid.points[0];
    report.claim_alone(
        "who is new waits longest for a first buffer under RR where the pool is tiny",
        first[RR].first_wait.mean > first[NAIVE].first_wait.mean
            && first[RR].first_wait.mean > first[PQ].first_wait.mean,
        format!(
            "{:.0} ms, under PQ {:.0}, under naive {:.0}",
            first[RR].first_wait.mean, first[PQ].first_wait.mean, first[NAIVE].first_wait.mean
        ),
    );
    Ok(())
}

/// The cap of the priority, which the paper does not give.
pub(crate) fn caps(report: &mut Report) -> Outcome {
    const CAPS: [u8; 5] = [1, 2, 4, 8, 14];
    const SIZES: [usize; 2] = [40, 100];
    let seeds = report.seeds(20);
    let points = parallel::map(CAPS.len() * SIZES.len(), |number| {
        let (pool, cap) = (SIZES[number % SIZES.len()], CAPS[number / SIZES.len()]);
        point(pool, PoolPolicy::Priority, cap, seeds.clone())
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
    report.claim_alone(
        "with a cap of 1 need does not count: fast connections lose a fifth",
        each(&|pool| fast(1, pool) < 0.8 * fast(8, pool)),
        format!("{:.2} and {:.2} of it", fast(1, 0) / fast(8, 0), fast(1, 1) / fast(8, 1)),
    );
    report.claim_alone(
        "from 8 on the cap changes nothing",
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
