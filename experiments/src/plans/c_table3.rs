//! Table 3: WebSTONE's clients, 8 on each of 4 workstations, request files of 500 bytes, in virtual
//! time. The server has as many blocks as the paper's: it could bear at most 60 connections a
//! second (§2.2), each for 2·MSL = 60 s, so that it had 3600.
//!
//! Only the delay of the link is invented. With it, 32 clients without rest have as many
//! connections as the paper's modified systems served, 224 a second; there the hosts were as slow.
//! All else is a result: segments, blocks, TIME-WAIT. Without a free block a SYN is lost, which
//! limits the server to 60 connections a second. The paper's failed altogether: in SunOS the
//! buffers of data came from the same mbufs. Requests and answers are the experiment's own, and as
//! long as HTTP's. With CLIENT_CLOSE the client's last request is followed by another that needs no
//! answer, and by its FIN.

use std::ops::Range;
use std::time::Duration;

use lightwait_bench::memory::{self, State};
use lightwait_bench::stacks::{Ip, Variant, Which};
use lightwait_netem::LinkConfig;

use crate::ablation::Ablation;
use crate::chart::{Chart, Mark, Scale};
use crate::plan::Outcome;
use crate::plans::busy::lan::Time;
use crate::plans::busy::web::Plan;
use crate::plans::busy::webstone::{Keeping, Run, Seen, cell, stat};
use crate::plans::busy::{PAPER_BLOCK_BYTES, System};
use crate::report::{Report, Table};
use crate::statistics::mean_and_deviation;

const SEEDS: u64 = 10;
const TIME_WAIT: Duration = Duration::from_secs(60);
/// The rate that the paper's server could bear, and the blocks that it had for that.
const PAPER_RATE: f64 = 60.0;
const POOL: usize = 3600;
/// A listener has a block, too.
const BLOCKS: usize = POOL + 1;
/// Many more blocks than any run needs.
const UNBOUNDED: usize = 20_000;
const HOSTS: usize = 4;
const CLIENTS: usize = 8;
const FILE_BYTES: u32 = 500;
/// Passages of the link until a client may begin again: SYN; SYN, ACK; request; answer with FIN.
const PASSAGES: u32 = 4;
/// The delay varies by up to this part of it.
const JITTER: u32 = 5;
/// Rates around the limit of the pool.
const AROUND: [f64; 4] = [50.0, 58.0, 62.0, 70.0];

/// The paper's row: throughput in Mb/s, connections a second, TCB memory in KB.
const OFFERED: f64 = 223.8;

const UNBOUNDED_POOL: Ablation =
    Ablation { name: "unbounded", instead: "the server has room for 20,000 blocks" };
const NOT_MOVED: Ablation =
    Ablation { name: "not-moved", instead: "TIME-WAIT stays at the server in every system" };
const NO_RECORDS: Ablation =
    Ablation { name: "no-records", instead: "our records are whole blocks" };
const HALF: Ablation =
    Ablation { name: "half-wait", instead: "TIME-WAIT lasts for half of 2·MSL" };

fn run(system: System, keeping: Keeping, rate: f64, seed: u64) -> Run {
    let passage = Duration::from_secs_f64((HOSTS * CLIENTS) as f64 / rate) / PASSAGES;
    let jitter = passage / JITTER;
    let plan = Plan {
        hosts: HOSTS,
        clients: CLIENTS,
        files: vec![(FILE_BYTES, 1)],
        seed,
        ..Plan::default()
    };
    Run {
        system,
        keeping,
        time: Time::Made,
        time_wait: TIME_WAIT,
        link: LinkConfig {
            delay: passage - jitter / 2,
            jitter,
            seed: 1000 * seed,
            ..LinkConfig::default()
        },
        plan,
        warm_up: TIME_WAIT + Duration::from_secs(1),
        measured: TIME_WAIT,
    }
}

/// Runs with every seed.
fn of_seeds(
    seeds: &Range<u64>,
    (system, keeping): (System, Keeping),
    time_wait: Duration,
    rate: f64,
) -> Vec<Seen> {
    let of = |seed| Run { time_wait, ..run(system, keeping, rate, seed) };
    seeds.clone().map(|seed| of(seed).see()).collect()
}

/// Bytes of a record in TIME-WAIT, all in, by the allocator's count.
fn record_bytes() -> Result<f64, String> {
    let plan = memory::Plan {
        state: State::TimeWait,
        count: (OFFERED * TIME_WAIT.as_secs_f64()) as usize,
        ip: Ip::V4,
        variant: Variant::Default,
    };
    let outcome = Which::Lightwait.memory(&plan).ok_or("no memory of its own")?;
    Ok(outcome.bytes)
}

/// Runs the experiment.
pub(crate) fn run_all(report: &mut Report) -> Outcome {
    let seeds = report.seeds(SEEDS);
    let record = record_bytes()?.ceil();
    let pool_bytes = POOL as f64 * PAPER_BLOCK_BYTES;
    let records = (pool_bytes / record) as usize;
    let blocks = if report.is_ablated(&UNBOUNDED_POOL) { UNBOUNDED } else { BLOCKS };
    let blocks = Keeping::List(blocks);
    let moved = |system| if report.is_ablated(&NOT_MOVED) { System::Unmodified } else { system };
    let kept = if report.is_ablated(&NO_RECORDS) { blocks } else { Keeping::Records(records) };
    let time_wait = if report.is_ablated(&HALF) { TIME_WAIT / 2 } else { TIME_WAIT };
    let rows = [
        ("unmodified", "fails, fails, fails", System::Unmodified, blocks),
        ("TCP (swap)", "1.14, 223.8, 16.1", moved(System::Swapped), blocks),
        ("negotiated", "not implemented", moved(System::Negotiated), blocks),
        ("HTTP (client closes)", "1.14, 222.4, 16.1", moved(System::ClientCloses), blocks),
        ("unmodified, unbounded", "–", System::Unmodified, Keeping::List(UNBOUNDED)),
        ("unmodified, our records", "–", System::Unmodified, kept),
    ];
    let head = [
        "system",
        "Mb/s",
        "conn/s",
        "blocks",
        "KB of 256 B",
        "SYNs refused",
        "first at s",
        "longest s",
        "paper: Mb/s, conn/s, KB",
    ];
    let mut table = Table::new(&head);
    let mut found = Vec::new();
    for (name, paper, system, keeping) in rows {
        let seen = of_seeds(&seeds, (system, keeping), time_wait, OFFERED);
        let first = seen.iter().filter_map(|seen| seen.refused_at).collect::<Vec<f64>>();
        let first =
            if first.is_empty() { "–".into() } else { cell(mean_and_deviation(&first), 1) };
        table.row(&[
            &name,
            &cell(stat(&seen, |seen| seen.bits / 1e6), 3),
            &cell(stat(&seen, |seen| seen.connections), 1),
            &cell(stat(&seen, |seen| seen.blocks), 1),
            &cell(stat(&seen, Seen::block_kilobytes), 1),
            &cell(stat(&seen, |seen| seen.refused as f64), 0),
            &first,
            &cell(stat(&seen, |seen| seen.longest), 2),
            &paper,
        ]);
        found.push(seen);
    }
    report.table("table3", &table)?;
    claims(report, &found, record);
    around_the_bound(report, blocks, &seeds)
}

fn claims(report: &mut Report, found: &[Vec<Seen>], record: f64) {
    let [unmodified, swapped, negotiated, http, unbounded, records] = found else { return };
    let most = stat(unmodified, |seen| seen.connections).0;
    let first = stat(unmodified, |seen| seen.refused_at.unwrap_or(f64::INFINITY)).0;
    report.claim(
        "memory-bounded, the unmodified system runs out of blocks, and is held to 60 a second",
        &UNBOUNDED_POOL,
        unmodified.iter().all(|seen| seen.refused > 0 && seen.longest > 10.0)
            && most <= PAPER_RATE * 1.05,
        format!(
            "after {first:.1} s; {most:.1} a second of {OFFERED} (the paper's fails altogether)"
        ),
    );
    let moved =
        [("TCP (swap)", swapped), ("negotiated", negotiated), ("HTTP (client closes)", http)];
    for (name, seen) in moved {
        let rate = stat(seen, |seen| seen.connections).0;
        report.claim(
            &format!("{name} is not"),
            &NOT_MOVED,
            seen.iter().all(|seen| seen.refused + seen.failed == 0)
                && (rate / OFFERED - 1.0).abs() < 0.05,
            format!("{rate:.1} a second, none refused (paper: 223.8)"),
        );
        let factor = stat(unbounded, |seen| seen.blocks).0 / stat(seen, |seen| seen.blocks).0;
        report.claim(
            &format!("{name} takes less than a thirtieth of the memory"),
            &NOT_MOVED,
            factor >= 30.0,
            format!("{factor:.0} times less than unmodified, had it room"),
        );
    }
    let whole = records.iter().all(|seen| seen.refused + seen.failed + seen.evicted == 0);
    let blocks = stat(records, |seen| seen.waiting).0;
    report.claim(
        "nor is the unmodified system that keeps our records in the same memory",
        &NO_RECORDS,
        whole,
        format!("{blocks:.0} records of {record} bytes: {:.0} KB of 922", blocks * record / 1e3),
    );
    let ratio = stat(unbounded, |seen| seen.left);
    report.claim(
        "server memory = bytes · rate · 2·MSL",
        &HALF,
        (ratio.0 - 1.0).abs() < 0.01,
        format!("{} times as many blocks in TIME-WAIT as ended in 2·MSL", cell(ratio, 4)),
    );
}

/// The case of 60 connections a second: rates below and above the limit of the pool.
fn around_the_bound(report: &mut Report, blocks: Keeping, seeds: &Range<u64>) -> Outcome {
    let head =
        ["offered conn/s", "conn/s", "blocks", "TIME-WAIT of those ended in 2·MSL", "SYNs refused"];
    let mut table = Table::new(&head);
    let mut refused = Vec::new();
    let mut served = Vec::new();
    for rate in AROUND {
        let seen = of_seeds(seeds, (System::Unmodified, blocks), TIME_WAIT, rate);
        table.row(&[
            &rate,
            &cell(stat(&seen, |seen| seen.connections), 2),
            &cell(stat(&seen, |seen| seen.blocks), 0),
            &cell(stat(&seen, |seen| seen.left), 3),
            &cell(stat(&seen, |seen| seen.refused as f64), 1),
        ]);
        served.push((rate, stat(&seen, |seen| seen.connections).0));
        refused.push(seen.iter().filter(|seen| seen.refused > 0).count());
    }
    report.say(format!("{POOL} blocks, 2·MSL of {} s, unmodified", TIME_WAIT.as_secs()));
    report.table("bound", &table)?;
    let mut chart = Chart::new("3600 blocks, unmodified", "offered conn/s", "conn/s")
        .scales(Scale::Linear, Scale::Linear);
    chart.draw("served", Mark::Line, served);
    chart.draw("offered", Mark::Dashed, AROUND.map(|rate| (rate, rate)).into());
    report.picture("bound", &chart)?;
    report.claim(
        "the bound is at 60 a second",
        &UNBOUNDED_POOL,
        refused == [0, 0, seeds.clone().count(), seeds.clone().count()],
        format!("runs of ten in which SYNs were refused at {AROUND:?}: {refused:?}"),
    );
    Ok(())
}
