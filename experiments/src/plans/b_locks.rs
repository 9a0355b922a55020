//! §4.3: a lock pair that nobody contends for, and what a stack saves that needs none: 150 ns and
//! 1.8 % of a processor at 122 070 reads or writes a second in the paper, six times what its
//! buckets cost.
//!
//! The pair is timed as the paper did, one after the other, each on a lock of its own, against the
//! same store without a lock; and so is the request. Behind a segment's work some processors hide
//! both nearly whole, which is said beside it.

use std::hint::black_box;
use std::sync::Mutex;
use std::time::Instant;

use lightwait_bench::sample::median;

use super::b_fig3::REQUESTS;
use super::queueing::{Way, overheads, overheads_behind_work};
use crate::chart::{Chart, Mark};
use crate::plan::Outcome;
use crate::report::{Report, Table};

const PAPER_NS: f64 = 150.0;
const PAPER_BUCKETS_NS: f64 = 34.0;
/// Reads or writes of 1 KiB a second at 1 Gbit/s.
const OPERATIONS: f64 = 1e9 / 8.0 / 1024.0;
/// Locks, and rounds of which the median counts.
const LOCKS: usize = 256;
const ROUNDS: usize = 4001;

/// ns of locking and unlocking, beyond the store that is done under the lock.
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

/// Runs it.
pub(crate) fn run(report: &mut Report) -> Outcome {
    let (lock, buckets) = (lock_pair_ns(), overheads()[Way::Buckets as usize]);
    let behind = overheads_behind_work();
    let hidden = behind[Way::Locked as usize] - behind[Way::Flag as usize];
    let percent = |ns: f64, rate: f64| ns * rate / 1e7;
    let mut table = Table::new(&["", "ns", "% of a processor at 1 Gbit/s", "paper ns", "paper %"]);
    let cell = |value: f64| format!("{value:.3}");
    table.row(&[
        &"lock and unlock, uncontended",
        &format!("{lock:.2}"),
        &cell(percent(lock, OPERATIONS)),
        &PAPER_NS,
        &1.8,
    ]);
    table.row(&[&"none", &0, &cell(0.0), &0, &0]);
    table.row(&[
        &"a request with buckets, timers told",
        &format!("{buckets:.2}"),
        &cell(percent(buckets, REQUESTS)),
        &PAPER_BUCKETS_NS,
        &0.29,
    ]);
    report.table("locks", &table)?;
    report.value("lock_pair_ns", lock);
    report.say(format!(
        "A lock pair for each of {OPERATIONS:.0} operations a second, a request for each of \
         {REQUESTS:.0} segments. Behind a segment's work the pair adds {hidden:.2} ns, the request \
         {:.2} ns.",
        behind[Way::Buckets as usize]
    ));
    let (saved, paid) = (percent(lock, OPERATIONS), percent(buckets, REQUESTS));
    report.claim(
        "what is saved by needing no lock exceeds what buckets cost",
        saved > paid,
        format!("{saved:.3} % against {paid:.3} % (paper: six times)"),
    );
    let mut chart =
        Chart::of_categories("A lock pair and a bucket", &["lock pair", "buckets"], "ns");
    chart.draw("today", Mark::Bars, vec![(0.0, lock), (1.0, buckets)]);
    chart.draw("paper", Mark::Points, vec![(0.0, PAPER_NS), (1.0, PAPER_BUCKETS_NS)]);
    report.picture("locks", &chart)
}
