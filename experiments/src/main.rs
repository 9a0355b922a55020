//! `lightwait-experiments`: figures of Aron & Druschel 1999 (3, 4, 5, 7, 9, 11, 12, 13), of Mansley
//! 2004 (3 and 4) and of Faber, Touch & Yue 1999 (4 to 7, Tables 2 to 4), run again, and what their
//! text says besides. `README.md` beside this says which, how long each takes, and which are not.
//!
//! Each experiment is a plan that cites its paper and figure. It prints the paper's numbers and
//! ours side by side, writes data and pictures under `target/experiments/<id>/`, and checks
//! *claims*: the program exits with 1 when one does not hold, or when what an experiment finds in
//! virtual time is not what is known (`expected/`).
#![forbid(unsafe_code)]
#![deny(clippy::print_stdout, reason = "a closed pipe is no fault: `say_line!` ends the program")]

mod chart;
mod expected;
mod live;
mod network;
mod plan;
mod plans;
mod report;
mod routed;

use lightwait_bench::say_line;
use std::net::SocketAddr;
use std::process::ExitCode;

use clap::Parser;

use plan::{PLANS, Plan};
use report::Report;

/// What the memory of TIME-WAIT is counted with.
#[global_allocator]
static ALLOCATOR: lightwait_heap::Counting = lightwait_heap::Counting;

/// Runs the papers' experiments.
#[derive(Debug, Parser)]
#[command(name = "lightwait-experiments", version)]
struct Arguments {
    /// Which experiments; `all`, `cheap` (those that take seconds), or `list`.
    #[arg(required_unless_present_any = ["section", "idle"])]
    ids: Vec<String>,
    /// Write what was found to `expected/`, with which later runs are compared.
    #[arg(long)]
    bless: bool,
    /// Run what `b-fig3` measures, and let callgrind count this section.
    #[arg(long, hide = true)]
    section: Option<String>,
    /// Print what an experiment with real packets measures: it runs in a network namespace.
    #[arg(long, hide = true)]
    live: bool,
    /// Be the client that `today` needs: keep connections to a server, so many.
    #[arg(long, hide = true, requires = "count")]
    idle: Option<SocketAddr>,
    #[arg(long, hide = true)]
    count: Option<usize>,
}

fn main() -> ExitCode {
    let Arguments { ids, bless, section, live, idle, count } = Arguments::parse();
    if let (Some(address), Some(count)) = (idle, count) {
        return match plans::today::idle(address, count) {
            Ok(()) => ExitCode::SUCCESS,
            Err(why) => {
                eprintln!("{why}");
                ExitCode::FAILURE
            }
        };
    }
    if let Some(section) = &section {
        lightwait_bench::instructions::choose(section);
        plans::b_fig3::sections();
        return ExitCode::SUCCESS;
    }
    if live {
        return print_live(&ids);
    }
    if ids.iter().any(|id| id == "list") {
        for plan in PLANS {
            say_line!("{:<16} {} ({})", plan.id, plan.title, plan.source);
        }
        return ExitCode::SUCCESS;
    }
    let is_of = |id: &str, plan: &Plan| id == plan.id || id == "all" || id == "cheap" && plan.cheap;
    if let Some(id) = ids.iter().find(|id| !PLANS.iter().any(|plan| is_of(id, plan))) {
        eprintln!("there is no experiment {id}; `list` names them");
        return ExitCode::from(2);
    }
    let is_chosen = |plan: &&Plan| ids.iter().any(|id| is_of(id, plan));
    let chosen: Vec<&Plan> = PLANS.iter().filter(is_chosen).collect();
    let failed: Vec<&str> =
        chosen.iter().filter(|plan| !run(plan, bless)).map(|plan| plan.id).collect();
    if failed.is_empty() {
        return ExitCode::SUCCESS;
    }
    eprintln!("claims that do not hold, or results that differ: {}", failed.join(", "));
    ExitCode::FAILURE
}

/// Prints what an experiment measures with real packets, as JSON.
fn print_live(ids: &[String]) -> ExitCode {
    let id = ids.first().map_or("", String::as_str);
    let measured = match id {
        "a-delay-router" => plans::a_delay_router::measure(),
        "a-packet-pair-live" => plans::a_packet_pair_live::measure(),
        _ => Err(format!("no experiment {id} measures with real packets").into()),
    };
    match measured {
        Ok(value) => {
            say_line!("{value}");
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("{id}: {why}");
            ExitCode::FAILURE
        }
    }
}

/// Runs one experiment; true if all its claims hold, and it finds what it is known to find.
fn run(plan: &Plan, bless: bool) -> bool {
    say_line!("\n{} — {}\n{}\n", plan.id, plan.title, plan.source);
    let outcome = Report::new(plan).and_then(|mut report| {
        (plan.run)(&mut report)?;
        report.finish(bless)
    });
    outcome.unwrap_or_else(|why| {
        eprintln!("{}: {why}", plan.id);
        false
    })
}
