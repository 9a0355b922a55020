//! §4.3: the cost of a lock pair without contention, which a stack without locks saves. In the
//! paper it is 150 ns and 1.8 % of a processor at 122 070 reads or writes a second, six times the
//! cost of its buckets.
//!
//! The pair is timed like the paper's: one after the other, each on a lock of its own, against the
//! same store without a lock. The request is timed likewise. In a stack both come with a segment's
//! work, behind which a processor hides part of their cost. The remaining cost is reported as well,
//! and may be in the opposite order. Times are therefore reported as found; the claims are about
//! instructions.

use std::hint::black_box;
use std::sync::Mutex;
use std::time::Instant;

use lightwait_bench::instructions;
use lightwait_bench::sample::median;

use super::b_fig3::{self, ONLY_DIST, REQUESTS};
use super::queueing::{Way, overheads, overheads_behind_work};
use crate::ablation::Ablation;
use crate::chart::{Chart, Mark};
use crate::plan::Outcome;
use crate::report::{Report, Table};

const PAPER_NS: f64 = 150.0;
const PAPER_BUCKETS_NS: f64 = 34.0;
/// Reads or writes of 1 KiB a second at 1 Gbit/s.
const OPERATIONS: f64 = 1e9 / 8.0 / 1024.0;
/// Locks, and rounds; the median of the rounds counts.
const LOCKS: usize = 256;
const ROUNDS: usize = 4001;

const NO_LOCK: Ablation = Ablation { name: "no-lock", instead: "the flag is behind no lock" };

/// ns of locking and unlocking, beyond the store under the lock.
fn lock_pair_ns() -> f64 {
    let locks: Vec<Mutex<u32>> = (0..LOCKS).map(|_| Mutex::new(0)).collect();
    let mut words = vec![0u32; LOCKS];
    let mut round = || {
        let clock = Instant::now();
        for lock in black_box(&locks) {
            if let Ok(mut word) = lock.lock() {
                *word = word.wrapping_add(1);
            }
        }
        let locked = clock.elapsed().as_nanos() as f64;
        let clock = Instant::now();
        for word in black_box(&mut words) {
            *black_box(&mut *word) = word.wrapping_add(1);
        }
        (locked - clock.elapsed().as_nanos() as f64) / LOCKS as f64
    };
    median(&mut (0..ROUNDS).map(|_| round()).collect::<Vec<f64>>())
}

/// The share of a processor for a lock pair an operation, and for the requests of ACKs.
fn percents(lock_ns: f64, request_ns: f64) -> [f64; 2] {
    [lock_ns * OPERATIONS / 1e7, request_ns * REQUESTS / 1e7]
}

/// Runs the experiment.
pub(crate) fn run(report: &mut Report) -> Outcome {
    let (alone, behind) = (overheads(), overheads_behind_work());
    let at = |ns: &[f64], way: Way| ns[way as usize];
    let hidden_pair = at(&behind, Way::Locked) - at(&behind, Way::Flag);
    let pair = [lock_pair_ns(), hidden_pair];
    let less_flag = |ns: &[f64]| at(ns, Way::Request) - at(ns, Way::Flag);
    let rows = [
        ("lock and unlock, uncontended", pair, OPERATIONS, "150, 1.8"),
        ("buckets less flag", [&alone, &behind].map(|ns| less_flag(ns)), REQUESTS, "34, 0.29"),
        (
            "a request with buckets, timers told",
            [&alone, &behind].map(|ns| at(ns, Way::Buckets)),
            REQUESTS,
            "–",
        ),
    ];
    let mut table = Table::new(&[
        "",
        "ns",
        "% of a processor at 1 Gbit/s",
        "ns behind a segment's work",
        "% behind it",
        "paper: ns, %",
    ]);
    for (name, ns, rate, paper) in rows {
        let [[ns, percent], [behind, percent_behind]] =
            ns.map(|ns| [format!("{ns:.2}"), format!("{:.3}", ns * rate / 1e7)]);
        table.row(&[&name, &ns, &percent, &behind, &percent_behind, &paper]);
    }
    report.table("locks", &table)?;
    report.value("lock_pair_ns", pair[0]);
    report.say(format!(
        "A lock pair for each of {OPERATIONS:.0} operations a second, a request for each of \
         {REQUESTS:.0} segments.\n"
    ));
    for (place, name) in ["one after the other", "behind a segment's work"].iter().enumerate() {
        let [saved, paid] = percents(pair[place], rows[2].1[place]);
        report.observe(
            &format!("a lock pair costs more than buckets, timers told, {name}"),
            saved > paid,
            format!("{saved:.3} % against {paid:.3} % (paper: 1.8 and 0.29, six times)"),
        );
    }
    claim_instructions(report);
    let mut chart =
        Chart::of_categories("A lock pair and a bucket", &["lock pair", "buckets"], "ns");
    chart.draw("today", Mark::Bars, vec![(0.0, pair[0]), (1.0, at(&alone, Way::Buckets))]);
    chart.draw("paper", Mark::Points, vec![(0.0, PAPER_NS), (1.0, PAPER_BUCKETS_NS)]);
    report.picture("locks", &chart)
}

/// Claims about a lock pair and buckets, each without the flag that it guards or replaces.
fn claim_instructions(report: &mut Report) {
    if !instructions::are_those_of_dist() {
        return report.say(ONLY_DIST);
    }
    let locked = if report.is_ablated(&NO_LOCK) { Way::Flag } else { Way::Locked };
    let names = [Way::Flag, Way::Request, locked].map(|way| Way::ALL[way as usize].1);
    let counts = names.iter().map(|name| b_fig3::count(name)).collect::<Result<Vec<f64>, _>>();
    match counts {
        Ok(counts) => {
            let [pair, buckets] = [counts[2] - counts[0], counts[1] - counts[0]];
            report.claim(
                "a lock pair takes more instructions than buckets",
                &NO_LOCK,
                pair > buckets && buckets > 0.0,
                format!("{pair:.0} and {buckets:.0}, each more than a flag alone"),
            );
        }
        // Where every check must run, a missing tool is a failure.
        Err(why) => {
            report.check("instructions are counted", std::env::var_os("CI").is_none(), why);
        }
    }
}
