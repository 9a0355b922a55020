//! Send buffers and pools at today's scale: many connections at a time, from 1 Mbit/s to 1 Gbit/s
//! and from 5 to 300 ms, small answers beside large ones, and a pool from tiny to ample. A second
//! plan has ten thousand clients and few of the rules. A third adds a share of peers that ask and
//! never read. A fourth has CUBIC in the place of Reno, and few of the rules.
//!
//! Worlds of one seed have the same paths and the same clients under all rules. So the claims are
//! about differences within a seed.

mod world;

use std::fmt::Display;
use std::ops::Range;

use lightwait_core::config::{LossDetection, PageSize, PoolPolicy, SendRule, TcpConfig};

use crate::ablation::Ablation;
use crate::chart::{Chart, Mark, Scale};
use crate::parallel;
use crate::plan::{Failure, Outcome};
use crate::plans::newreno;
use crate::report::{Report, Table};
use crate::statistics::Mean;
use world::{Found, Plan, WATCHED};

const SEEDS: u64 = 4;
const CLIENTS: usize = 2000;
const QUICK_CLIENTS: usize = 200;
/// The few rules among more clients.
const CROWD_SEEDS: u64 = 3;
const CROWD: usize = 10_000;
const QUICK_CROWD: usize = 400;
/// Bytes of the pool for each client.
const POOLS_EACH: [usize; 3] = [2 << 10, 8 << 10, 128 << 10];
/// The share of peers that never read, in `d-stalled`.
const STALLED_PART: f64 = 0.2;

/// A rule for buffers, one for the pool, and the name of the pair.
struct Rules {
    name: &'static str,
    policy: PoolPolicy,
    change: fn(&mut TcpConfig),
}

const LOS_PRIORITY: usize = 0;
const LINUX: usize = 1;
/// Linux's rule with the policy of ours.
const LINUX_PRIORITY: usize = 2;
/// Linux's rule with a low mark.
const LINUX_LOWAT: usize = 9;
/// The first of them are compared among more clients, too, and drawn.
const COMPARED: usize = 3;
const RULES: [Rules; 12] = [
    Rules { name: "LOS, priority", policy: PoolPolicy::Priority, change: los },
    Rules { name: "Linux, line", policy: PoolPolicy::Line, change: |tcp| linux(tcp, None) },
    Rules { name: "Linux, priority", policy: PoolPolicy::Priority, change: |tcp| linux(tcp, None) },
    Rules { name: "LOS, PSC", policy: PoolPolicy::Psc, change: los },
    Rules { name: "LOS, round robin", policy: PoolPolicy::RoundRobin, change: los },
    Rules { name: "LOS, line", policy: PoolPolicy::Line, change: los },
    Rules { name: "round, line", policy: PoolPolicy::Line, change: |_| {} },
    Rules { name: "round, priority", policy: PoolPolicy::Priority, change: |_| {} },
    Rules {
        name: "fixed 256 KiB, line",
        policy: PoolPolicy::Line,
        change: |tcp| (tcp.buffers.send_size, tcp.buffers.send) = (SendRule::Fixed, 256 << 10),
    },
    Rules {
        name: "Linux, lowat 16 KiB, line",
        policy: PoolPolicy::Line,
        change: |tcp| linux(tcp, Some(16 << 10)),
    },
    Rules {
        name: "Linux, lowat 16 KiB, priority",
        policy: PoolPolicy::Priority,
        change: |tcp| linux(tcp, Some(16 << 10)),
    },
    Rules {
        name: "Linux, lowat 128 KiB, line",
        policy: PoolPolicy::Line,
        change: |tcp| linux(tcp, Some(128 << 10)),
    },
];

const LINUXS: Ablation = Ablation { name: "linux", instead: "ours is Linux's rule by the line" };

fn los(tcp: &mut TcpConfig) {
    tcp.buffers.send_size = SendRule::Los;
}

/// Linux lets a send buffer grow to 4 MiB.
fn linux(tcp: &mut TcpConfig, lowat: Option<u32>) {
    (tcp.buffers.send_size, tcp.buffers.send) = (SendRule::Linux, 4 << 20);
    tcp.buffers.send_lowat = lowat;
}

/// The worlds of one pool and one rule, by seed.
#[derive(Clone, Debug)]
struct Cell(Vec<Found>);

impl Cell {
    fn mean(&self, of: impl Fn(&Found) -> f64) -> Mean {
        Mean::of(self.0.iter().map(of))
    }

    /// The ratio to another cell, of worlds of the same seed.
    fn ratio(&self, other: &Cell, of: impl Fn(&Found) -> f64) -> Mean {
        Mean::of_pairs(&self.0, &other.0, |ours, theirs| of(ours) / of(theirs))
    }

    fn sum(&self, of: impl Fn(&Found) -> u64) -> u64 {
        self.0.iter().map(of).sum()
    }

    /// A quantile of the times of small requests.
    fn quantile(&self, part: f64) -> Time {
        Time(self.mean(|found| found.quantile_ms(part)))
    }
}

/// A time in ms; infinite if it is in any of the worlds.
struct Time(Mean);

impl Display for Time {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.0.mean.is_finite() {
            write!(f, "{:.0}", self.0)
        } else {
            write!(f, "> {}", WATCHED.as_millis())
        }
    }
}

fn goodput(found: &Found) -> f64 {
    found.goodput_mbit
}

fn held(found: &Found) -> f64 {
    found.held_mib
}

fn answers(found: &Found) -> f64 {
    found.answers as f64
}

/// Our ratio to the one of `row` that has most.
fn of_best(row: &[Cell], of: fn(&Found) -> f64) -> Mean {
    let most = row.iter().max_by(|one, other| one.mean(of).mean.total_cmp(&other.mean(of).mean));
    row[LOS_PRIORITY].ratio(most.expect("a rule"), of)
}

/// The clients, and the rules under which they are tried.
#[derive(Clone)]
struct Sweep {
    clients: usize,
    seeds: Range<u64>,
    rules: usize,
    stalled_part: f64,
    /// TCP before the rules change it.
    tcp: fn() -> TcpConfig,
}

/// Reno, with the recovery of the other results.
fn reno_by_count() -> TcpConfig {
    newreno().with(|tcp| tcp.congestion.detection = LossDetection::Count)
}

impl Sweep {
    /// All rules, and the usual number of clients.
    fn usual(report: &mut Report, stalled_part: f64) -> Sweep {
        let clients = if report.is_quick() { QUICK_CLIENTS } else { CLIENTS };
        let (seeds, rules) = (report.seeds(SEEDS), RULES.len());
        Sweep { clients, seeds, rules, stalled_part, tcp: reno_by_count }
    }

    /// The few rules that are compared, among so many clients.
    fn few(report: &mut Report, clients: [usize; 2], tcp: fn() -> TcpConfig) -> Sweep {
        let clients = clients[usize::from(report.is_quick())];
        let seeds = report.seeds(CROWD_SEEDS);
        Sweep { clients, seeds, rules: COMPARED, stalled_part: 0.0, tcp }
    }

    /// The results by pool and rules.
    fn run(&self, report: &mut Report) -> Result<Vec<Vec<Cell>>, Failure> {
        let seeds = self.seeds.clone().count();
        report.say(format!("\n{} clients, {seeds} seeds", self.clients));
        let of_pool = self.rules * seeds;
        let is_linuxs = report.is_ablated(&LINUXS);
        let found = parallel::map(POOLS_EACH.len() * of_pool, |number| {
            let (pool_each, number) = (POOLS_EACH[number / of_pool], number % of_pool);
            let rules = match number / seeds {
                LOS_PRIORITY if is_linuxs => &RULES[LINUX],
                number => &RULES[number],
            };
            let mut tcp = (self.tcp)();
            (rules.change)(&mut tcp);
            tcp.pool.policy = rules.policy;
            let Sweep { clients, stalled_part, .. } = *self;
            let page = PageSize::Auto;
            let plan = Plan { clients, pool_each, stalled_part, counts_all: false, page, tcp };
            world::run(&plan, self.seeds.start + (number % seeds) as u64)
        })?;
        let cells: Vec<Cell> = found.chunks(seeds).map(|worlds| Cell(worlds.to_vec())).collect();
        let grid: Vec<Vec<Cell>> = cells.chunks(self.rules).map(<[Cell]>::to_vec).collect();
        self.show(report, &grid)?;
        Ok(grid)
    }

    fn show(&self, report: &mut Report, grid: &[Vec<Cell>]) -> Outcome {
        let mut table = Table::new(&[
            "pool KiB",
            "rules",
            "goodput Mbit/s",
            "10 KB answers",
            "median ms",
            "p99 ms",
            "unanswered",
            "held MiB",
            "failed",
        ]);
        for (pool, row) in POOLS_EACH.iter().zip(grid) {
            for (rules, cell) in RULES.iter().zip(row) {
                table.row(&[
                    &(pool >> 10),
                    &rules.name,
                    &format!("{:.0}", cell.mean(goodput)),
                    &format!("{:.0}", cell.mean(answers)),
                    &cell.quantile(0.5),
                    &cell.quantile(0.99),
                    &format!("{:.1}", cell.mean(|found| found.unanswered() as f64)),
                    &format!("{:.1}", cell.mean(held)),
                    &cell.sum(|found| found.failed),
                ]);
            }
        }
        report.table("today", &table)?;
        let title = format!("{} clients on one pool", self.clients);
        let mut chart = Chart::new(&title, "KiB of the pool a client", "Mbit/s")
            .scales(Scale::Logarithmic, Scale::Linear);
        for (number, rules) in RULES[..COMPARED].iter().enumerate() {
            let at = POOLS_EACH.iter().map(|bytes| (bytes >> 10) as f64);
            let means = grid.iter().map(|row| row[number].mean(goodput));
            chart.draw_means(rules.name, Mark::Line, at.zip(means));
        }
        report.picture("today", &chart)
    }
}

fn set_up(report: &Report) {
    report.say(
        "Clients at 1 Mbit/s to 1 Gbit/s and 5 to 300 ms, 0.05 % lost; each asks, on a new \
         connection,\nfor 10 KB (nine times in ten) or 1 MB, and rests for a second; a read takes \
         5 ms. The pool is\ngiven for each client; ± is the 95 % confidence interval over the \
         seeds. Times and unanswered are\nof requests for 10 KB in the first 4 s of the measured \
         8; what has no answer at the end, or\nfails, counts as longer than any other.",
    );
}

/// The plan in which all clients read.
pub(crate) fn run(report: &mut Report) -> Outcome {
    set_up(report);
    let sweep = Sweep::usual(report, 0.0);
    let grid = sweep.run(report)?;
    judge(report, &grid);
    Ok(())
}

/// The plan of fewer rules and more clients.
pub(crate) fn crowd(report: &mut Report) -> Outcome {
    set_up(report);
    let grid = Sweep::few(report, [CROWD, QUICK_CROWD], reno_by_count).run(report)?;
    judge(report, &grid);
    Ok(())
}

/// The plan of fewer rules, by CUBIC and with losses found by time.
pub(crate) fn by_cubic(report: &mut Report) -> Outcome {
    set_up(report);
    let grid = Sweep::few(report, [CLIENTS, QUICK_CLIENTS], TcpConfig::default).run(report)?;
    judge(report, &grid);
    Ok(())
}

/// Ours beside all others that were tried.
fn judge(report: &mut Report, grid: &[Vec<Cell>]) {
    let parts: Vec<Mean> = grid.iter().map(|row| of_best(row, goodput)).collect();
    let [tiny, middle, ample] = grid else { unreachable!("a row for each pool") };
    report.claim(
        "LOS and priority have at least 0.95 of the best goodput with every pool",
        &LINUXS,
        parts.iter().all(|part| part.mean >= 0.95),
        format!("{} of the best", list(&parts)),
    );
    let share = ample[LOS_PRIORITY].ratio(&ample[LINUX], held);
    report.claim(
        "and hold less than Linux's rule does, with an ample pool",
        &LINUXS,
        share.mean < 0.9 && share.most() < 1.0,
        format!("{share:.2} of it"),
    );
    report.observe(
        "… no more than half",
        share.most() <= 0.5,
        format!("{share:.2} of it; `d-held` tells of what"),
    );
    let by_line = middle[LOS_PRIORITY].ratio(&middle[LINUX], goodput);
    report.claim(
        "where the pool is short LOS and priority carry a third more than Linux's rule by the line",
        &LINUXS,
        by_line.mean > 1.33 && by_line.least() > 1.0,
        format!("{by_line} times as much with 8 KiB a client"),
    );
    let by_priority = middle[LOS_PRIORITY].ratio(&middle[LINUX_PRIORITY], goodput);
    report.observe(
        "… and more than Linux's rule by priority: the gain is not the policy's alone",
        by_priority.least() > 1.0,
        format!("{by_priority:.3} times as much"),
    );
    let slower = tiny[LOS_PRIORITY].ratio(&tiny[LINUX], |found| found.quantile_ms(0.99));
    report.observe(
        "small answers are as fast as by Linux's rule and the line where the pool is tiny (p99)",
        slower.least() <= 1.0,
        format!("{} ms and {} ms", tiny[LOS_PRIORITY].quantile(0.99), tiny[LINUX].quantile(0.99)),
    );
}

/// The plan in which some clients never read.
pub(crate) fn stalled(report: &mut Report) -> Outcome {
    set_up(report);
    report
        .say(format!("{:.0} % of the clients ask for 1 MB and never read.", STALLED_PART * 100.0));
    let grid = Sweep::usual(report, STALLED_PART).run(report)?;
    let parts: Vec<Mean> = grid.iter().map(|row| of_best(row, answers)).collect();
    report.claim(
        "LOS and priority answer at least 0.95 as many small requests as any, with every pool",
        &LINUXS,
        parts.iter().all(|part| part.mean >= 0.95),
        list(&parts),
    );
    let failed = |cell: &Cell| {
        let failed = cell.sum(|found| found.failed);
        failed as f64 * 1000.0 / (failed + cell.sum(|found| found.answers)) as f64
    };
    let most = grid.iter().map(|row| failed(&row[LOS_PRIORITY])).fold(0.0, f64::max);
    // No rule has failures: a claim would say nothing of ours.
    report.check(
        "and of those who read less than one in a thousand fails",
        most < 1.0,
        format!("{most:.2} of a thousand small answers at most"),
    );
    let ample = &grid[grid.len() - 1];
    let least = ample.iter().map(|cell| cell.mean(held).mean).fold(f64::INFINITY, f64::min);
    report.observe(
        "and hold no more than any, with an ample pool",
        ample[LOS_PRIORITY].mean(held).mean <= least,
        format!("{:.1} MiB, the least is {least:.1}", ample[LOS_PRIORITY].mean(held)),
    );
    Ok(())
}

/// The rules whose memory `d-held` takes apart, with the pool's pages.
const HELD: [(usize, PageSize, &str); 4] = [
    (LOS_PRIORITY, PageSize::Auto, "LOS"),
    (LOS_PRIORITY, PageSize::Segment, "LOS, pages of 512 bytes"),
    (LINUX, PageSize::Auto, "Linux"),
    (LINUX_LOWAT, PageSize::Auto, "Linux, lowat 16 KiB"),
];
/// Their places there.
const HELD_LOS: usize = 0;
const HELD_FINE: usize = 1;
const HELD_LINUX: usize = 2;

const LARGE_PAGES: Ablation =
    Ablation { name: "large-pages", instead: "all pages are of 1 to 16 KiB" };

/// What the memory of an ample pool is made of.
pub(crate) fn held_parts(report: &mut Report) -> Outcome {
    report.say(
        "MiB of an ample pool, as in d-today: in flight, not sent yet, and the rest of pages.",
    );
    let clients = if report.is_quick() { QUICK_CLIENTS } else { CLIENTS };
    let (seeds, is_large) = (report.seeds(SEEDS), report.is_ablated(&LARGE_PAGES));
    let count = seeds.clone().count();
    let found = parallel::map(HELD.len() * count, |number| {
        let (rules, page, _) = HELD[number / count];
        let page = if is_large { PageSize::Auto } else { page };
        let rules = &RULES[rules];
        let mut tcp = reno_by_count();
        (rules.change)(&mut tcp);
        tcp.pool.policy = rules.policy;
        let pool_each = POOLS_EACH[POOLS_EACH.len() - 1];
        let plan = Plan { clients, pool_each, stalled_part: 0.0, counts_all: true, page, tcp };
        world::run(&plan, seeds.start + (number % count) as u64)
    })?;
    let cells: Vec<Cell> = found.chunks(count).map(|worlds| Cell(worlds.to_vec())).collect();
    let mut table =
        Table::new(&["rules", "held MiB", "in flight", "not sent", "rest", "goodput Mbit/s"]);
    for ((_, _, name), cell) in HELD.iter().zip(&cells) {
        let rest = |found: &Found| found.held_mib - found.in_flight_mib - found.unsent_mib;
        table.row(&[
            name,
            &format!("{:.1}", cell.mean(held)),
            &format!("{:.1}", cell.mean(|found| found.in_flight_mib)),
            &format!("{:.1}", cell.mean(|found| found.unsent_mib)),
            &format!("{:.1}", cell.mean(rest)),
            &format!("{:.0}", cell.mean(goodput)),
        ]);
    }
    report.table("held", &table)?;
    let share = |of: usize| cells[of].ratio(&cells[HELD_LINUX], held);
    let (ours, fine) = (share(HELD_LOS), share(HELD_FINE));
    report.claim(
        "LOS in pages of 512 bytes holds less of what Linux's rule does than in ours",
        &LARGE_PAGES,
        fine.most() < ours.least(),
        format!("{fine} and {ours} of it"),
    );
    report.observe("… no more than half", fine.most() <= 0.5, format!("{fine}"));
    let part = |of: fn(&Found) -> f64| cells[HELD_LOS].mean(|found| of(found) / found.held_mib);
    let (sent, unsent) = (part(|found| found.in_flight_mib), part(|found| found.unsent_mib));
    report.observe(
        "of what LOS holds more than half is in flight",
        sent.least() > 0.5,
        format!("{sent} of it; {unsent} is not sent yet, and the rest is of pages"),
    );
    Ok(())
}

fn list(means: &[Mean]) -> String {
    means.iter().map(|mean| format!("{mean:.3}")).collect::<Vec<_>>().join(", ")
}
