//! `lightwait-bench`: runs one bench and prints what it found.
#![forbid(unsafe_code)]
#![deny(clippy::print_stdout, reason = "a closed pipe is no fault: `say_line!` ends the program")]

mod commands;

/// What `memory` counts with.
#[global_allocator]
static ALLOCATOR: lightwait_heap::Counting = lightwait_heap::Counting;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// What things cost, with peers beside us.
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
    /// Short connections: open, ask, answer, close, with others in TIME-WAIT or idle about.
    Connections(commands::connections::Connections),
    /// Requests on connections that stay.
    Pingpong(commands::pingpong::PingPong),
    /// As many bytes one way as one connection carries.
    Bulk(commands::bulk::Bulk),
    /// Bytes that a connection takes when it is idle, in FIN-WAIT-2 or in TIME-WAIT.
    Memory(commands::memory::Memory),
    /// The table of TIME-WAIT records: entering, looking up, expiring.
    TimeWait(commands::time_wait::TimeWait),
    /// All stacks beside one another, in one table.
    Compare(commands::compare::Compare),
    /// Instructions of a connection, a request, a megabyte and a record, and those that are kept.
    Golden(commands::golden::Golden),
}

fn main() -> ExitCode {
    let is_complete = match Arguments::parse().bench {
        Bench::Timers(timers) => timers.run(),
        Bench::Connections(connections) => connections.run(),
        Bench::Pingpong(pingpong) => pingpong.run(),
        Bench::Bulk(bulk) => bulk.run(),
        Bench::Memory(memory) => memory.run(),
        Bench::TimeWait(time_wait) => time_wait.run(),
        Bench::Compare(compare) => compare.run(),
        Bench::Golden(golden) => golden.run(),
    };
    if is_complete { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
