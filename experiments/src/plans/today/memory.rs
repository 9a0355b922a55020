//! The memory of a server's TIME-WAITs and idle connections.
//!
//! For our server that is the growth of the process's resident memory. For nginx it is that growth,
//! and the growth of the kernel's slabs for connections. The slabs of an idle connection contain
//! both ends, and half of them count. The kernel's files and their names do not count.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::thread;
use std::time::Duration;

use lightwait_bench::live::{self, Process};
use lightwait_bench::today::servers::{ADDRESS, Kind, SOURCES, Serving};

use super::start;
use crate::ablation::Ablation;
use crate::plan::{Failure, Outcome};
use crate::report::{Report, Table};

/// Connections that are opened and closed: fewer than Linux's limit for TIME-WAIT.
const CLOSED: u64 = 100_000;
/// Connections a second.
const RATE: u64 = 8_000;
/// Connections before the measurement, so that pools have their full size.
const BEFORE: u64 = 8_000;
const IDLE: usize = 10_000;
/// The time without requests before memory is read.
const RESTED: Duration = Duration::from_secs(3);

const WHOLE: Ablation = Ablation { name: "whole", instead: "ours keeps whole blocks" };

pub(super) fn run(report: &mut Report) -> Outcome {
    let mut table =
        Table::new(&["server", "in TIME-WAIT", "bytes of one", "idle", "bytes of one idle"]);
    let mut all = Vec::new();
    for kind in [Kind::Nginx, Kind::Tap] {
        let (count, time_wait) = of_time_wait(report, kind)?;
        let idle = of_idle(report, kind)?;
        let whole = |bytes: f64| format!("{bytes:.0}");
        table.row(&[&kind.name(), &count, &whole(time_wait), &IDLE, &whole(idle)]);
        all.push((count, time_wait));
    }
    report.table("memory", &table)?;
    let [(nginx_count, nginx), (our_count, ours)] = all[..] else { unreachable!("two servers") };
    report.check(
        "both have every connection in TIME-WAIT",
        nginx_count.min(our_count) >= CLOSED,
        format!("{nginx_count} and {our_count} of {CLOSED}"),
    );
    report.claim(
        "a TIME-WAIT of ours takes less than a quarter of the kernel's memory",
        &WHOLE,
        ours < nginx / 4.0,
        format!("{ours:.0} against {nginx:.0} bytes"),
    );
    Ok(())
}

/// The number of connections in TIME-WAIT, and the bytes of each.
fn of_time_wait(report: &Report, kind: Kind) -> Result<(u64, f64), Failure> {
    let is_whole = report.is_ablated(&WHOLE);
    let settings: &[&str] = if is_whole { &["time_wait.state=full"] } else { &[] };
    let mut serving = start(report, kind, settings)?;
    let open = |serving: &Serving, count: u64| {
        let mut load = serving.client(&serving.program);
        load.args(["load", &serving.url("500B"), "--stack", "kernel", "--warm-up", "0"]);
        load.args(["--rate", &RATE.to_string(), "--source", SOURCES]);
        // 250 ms more than whole seconds: all are there, and some besides.
        load.args(["--duration", &format!("{}ms", count * 1000 / RATE + 250)]);
        live::run(&mut load).map(drop)
    };
    open(&serving, BEFORE)?;
    let bytes = |serving: &Serving| -> Result<u64, Failure> {
        let own = live::memory(serving.id(), "VmRSS")?;
        Ok(own + if kind == Kind::Nginx { slabs(&["tw_sock_TCP"])? } else { 0 })
    };
    let [count_before, before] = [serving.time_wait()?, bytes(&serving)?];
    open(&serving, CLOSED)?;
    let [count, after] = [serving.time_wait()?, bytes(&serving)?];
    serving.stop()?;
    let more = count.saturating_sub(count_before).max(1);
    Ok((count, (after as f64 - before as f64) / more as f64))
}

/// The bytes of an idle connection.
fn of_idle(report: &Report, kind: Kind) -> Result<f64, Failure> {
    let serving = start(report, kind, &[])?;
    let bytes = |serving: &Serving| -> Result<f64, Failure> {
        let own = live::memory(serving.id(), "VmRSS")? as f64;
        let kernels = ["TCP", "sock_inode_cache"];
        Ok(own + if kind == Kind::Nginx { slabs(&kernels)? as f64 / 2.0 } else { 0.0 })
    };
    let before = bytes(&serving)?;
    let mut client = serving.client(std::env::current_exe()?);
    client.args(["--idle", ADDRESS, "--count", &IDLE.to_string()]);
    let mut client = Process::start(client.stdin(Stdio::piped()).stdout(Stdio::piped()))?;
    let mut line = String::new();
    BufReader::new(client.0.stdout.take().ok_or("no output")?).read_line(&mut line)?;
    if line != "ready\n" {
        return Err("idle connections could not be opened".into());
    }
    // A connection of ours frees the memory for requests after a second without one.
    thread::sleep(RESTED);
    let after = bytes(&serving)?;
    drop(client.0.stdin.take());
    client.end()?;
    serving.stop()?;
    Ok((after - before) / IDLE as f64)
}

/// Bytes of the objects in use in these caches of the kernel.
fn slabs(names: &[&str]) -> Result<u64, Failure> {
    let text = fs::read_to_string("/proc/slabinfo")?;
    let mut sum = 0;
    for line in text.lines() {
        let mut words = line.split_whitespace();
        if words.next().is_some_and(|name| names.contains(&name)) {
            let mut number = || words.next().and_then(|word| word.parse::<u64>().ok());
            let (active, _, bytes) = (number(), number(), number());
            sum += active.zip(bytes).map_or(0, |(active, bytes)| active * bytes);
        }
    }
    Ok(sum)
}
