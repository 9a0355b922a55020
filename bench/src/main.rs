//! `lightwait-bench` runs one bench and prints its result.
#![forbid(unsafe_code)]
#![deny(clippy::print_stdout, reason = "a closed pipe is no fault: `say_line!` ends the program")]

mod commands;

/// The allocator that `memory` counts with.
#[global_allocator]
static ALLOCATOR: lightwait_heap::Counting = lightwait_heap::Counting;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Measure costs, with other stacks beside ours
#[derive(Debug, Parser)]
#[command(name = "lightwait-bench", version)]
struct Arguments {
    #[command(subcommand)]
    bench: Bench,
}

#[derive(Debug, Subcommand)]
enum Bench {
    /// Timers of connections: set, cancel, re-arm by an ACK, expiry, a turn with nothing due.
    Timers(commands::timers::Timers),
    /// Short connections: open, request, answer, close, with others in TIME-WAIT or idle
    Connections(commands::connections::Connections),
    /// Requests on connections that stay
    Pingpong(commands::pingpong::PingPong),
    /// UDP datagrams one way, in bursts
    Datagrams(commands::datagrams::Datagrams),
    /// Bulk data one way on one connection
    Bulk(commands::bulk::Bulk),
    /// Bytes of a connection that is idle, in FIN-WAIT-2 or in TIME-WAIT
    Memory(commands::memory::Memory),
    /// How long those who look at sockets hold a host up, with many connections
    Look(commands::look::Look),
    /// The table of TIME-WAIT records: entering, looking up, expiring.
    TimeWait(commands::time_wait::TimeWait),
    /// The pool of pages: instructions of a grant and a release, alone and while many wait.
    Pool(commands::pool::Pool),
    /// An ACK with a SACK block, among ten thousand segments in flight.
    Sack(commands::sack::Sack),
    /// One host of several shards: its rates by the number of shards
    #[cfg(target_os = "linux")]
    Shards(commands::shards::Shards),
    /// All stacks beside one another, in one table.
    Compare(commands::compare::Compare),
    /// Instructions of a connection, a request, a megabyte and a record, compared to the kept
    /// counts
    Golden(commands::golden::Golden),
    /// Long files for many clients, beside nginx and the limit of a TAP; takes root and wrk
    #[cfg(target_os = "linux")]
    Today(commands::today::Today),
    /// What it costs a server to be watched; takes root, wrk and curl
    #[cfg(target_os = "linux")]
    Watched(commands::watched::Watched),
    /// Answers requests with ready-made segments over a TAP, for `today`
    #[cfg(target_os = "linux")]
    #[command(hide = true)]
    TapLimit(commands::today::TapLimit),
}

fn main() -> ExitCode {
    let is_complete = match Arguments::parse().bench {
        Bench::Timers(timers) => timers.run(),
        Bench::Connections(connections) => connections.run(),
        Bench::Pingpong(pingpong) => pingpong.run(),
        Bench::Datagrams(datagrams) => datagrams.run(),
        Bench::Bulk(bulk) => bulk.run(),
        Bench::Memory(memory) => memory.run(),
        Bench::Look(look) => look.run(),
        Bench::TimeWait(time_wait) => time_wait.run(),
        Bench::Pool(pool) => pool.run(),
        Bench::Sack(sack) => sack.run(),
        #[cfg(target_os = "linux")]
        Bench::Shards(shards) => shards.run(),
        Bench::Compare(compare) => compare.run(),
        Bench::Golden(golden) => golden.run(),
        #[cfg(target_os = "linux")]
        Bench::Today(today) => today.run(),
        #[cfg(target_os = "linux")]
        Bench::Watched(watched) => watched.run(),
        #[cfg(target_os = "linux")]
        Bench::TapLimit(limit) => limit.run(),
    };
    if is_complete { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
