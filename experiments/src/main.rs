//! `lightwait-experiments` repeats figures and statements of Aron & Druschel 1999, Mansley 2004,
//! Faber, Touch & Yue 1999 and Cohen & Cohen 2002. `README.md` beside this lists them, with their
//! times, and those that are left out.
//!
//! Each experiment is a plan that cites its paper and figure. It prints the paper's numbers and
//! ours side by side, writes data and charts under `target/experiments/<id>/`, and checks *claims*.
//! The program exits with 1 if a claim does not hold, or if the result of an experiment in virtual
//! time differs from the known one (`expected/`).
#![forbid(unsafe_code)]
#![deny(clippy::print_stdout, reason = "a closed pipe is no fault: `say_line!` ends the program")]

mod ablation;
mod chart;
mod expected;
#[cfg(test)]
mod guide;
mod network;
mod page;
mod parallel;
mod plan;
mod plans;
mod report;
mod routed;
mod statistics;
mod verdicts;

use lightwait_bench::say_line;
use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

use ablation::Whole;
use plan::{PLANS, Plan};
use report::{Report, Work};

/// The allocator that counts the memory of TIME-WAIT.
#[global_allocator]
static ALLOCATOR: lightwait_heap::Counting = lightwait_heap::Counting;

/// Run the papers' experiments
#[derive(Debug, Parser)]
#[command(name = "lightwait-experiments", version)]
struct Arguments {
    /// The experiments: their names; `a-all`, `b-all` and so on for a paper's; `cheap` for those
    /// that take seconds; `all`, or `list`. `table` writes README's table of the
    /// stored results. `ablate` before them runs each also without what its
    /// claims are about, and fails for a claim that holds all the same
    #[arg(required_unless_present_any = ["section", "idle"])]
    ids: Vec<String>,
    /// Write the results to `expected/`, with which later runs are compared, and beside them what
    /// has changed and this reason
    #[arg(long, value_name = "WHY", conflicts_with_all = ["seeds", "quick"],
        value_parser = clap::builder::NonEmptyStringValueParser::new())]
    bless: Option<String>,
    /// The directory of the results: a subdirectory for each experiment, and `report.html` over all
    /// of them [default: target/experiments]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Average over so many seeds, in experiments that average over more than a few. The results
    /// are then not compared with `expected/`
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(2..))]
    seeds: Option<u64>,
    /// Begin with seeds that are so much higher, or that are `drawn`: then it says how much. The
    /// results are then not compared with `expected/`
    #[arg(long, value_name = "N", default_value = "0", conflicts_with = "bless",
        value_parser = offset)]
    offset: u64,
    /// Average over a tenth of the seeds, and sweep fewer values
    #[arg(long)]
    quick: bool,
    /// Run the operations of `b-fig3` or `d-cost`, and let callgrind count this section
    #[arg(long, hide = true)]
    section: Option<String>,
    /// Print the measurements of an experiment with real packets, from a network namespace
    #[arg(long, hide = true)]
    live: bool,
    /// Without what this ablation takes away
    #[arg(long, hide = true, requires = "live")]
    ablated: Option<String>,
    /// Be the client that `today` needs: keep so many connections to a server
    #[arg(long, hide = true, requires = "count")]
    idle: Option<SocketAddr>,
    #[arg(long, hide = true)]
    count: Option<usize>,
}

/// An offset of seeds, or one drawn anew. A drawn one is told, so that its run can be repeated.
fn offset(text: &str) -> Result<u64, String> {
    if text == "drawn" {
        let drawn = 1 + RandomState::new().hash_one(()) % OFFSETS;
        say_line!("--offset {drawn}");
        return Ok(drawn);
    }
    let number = text.parse::<u64>().ok().filter(|offset| *offset <= OFFSETS);
    number.ok_or_else(|| format!("a number up to {OFFSETS}, or `drawn`"))
}

/// Offsets of seeds at most.
const OFFSETS: u64 = (1 << 31) - 1;

fn main() -> ExitCode {
    let Arguments { ids, bless, out, seeds, offset, quick, section, live, ablated, idle, count } =
        Arguments::parse();
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
        return run_section(&ids, section);
    }
    if live {
        return print_live(&ids, ablated.as_deref());
    }
    let (ablates, ids) = match ids.split_first() {
        Some((first, rest)) if first == "ablate" => (true, rest.to_vec()),
        _ => (false, ids),
    };
    if ids.iter().any(|id| id == "list") {
        for plan in PLANS {
            say_line!("{:<16} {} ({})", plan.id, plan.title, plan.source);
        }
        return ExitCode::SUCCESS;
    }
    if ids == ["table"] {
        return match verdicts::write() {
            Ok(()) => ExitCode::SUCCESS,
            Err(why) => {
                eprintln!("README.md: {why}");
                ExitCode::FAILURE
            }
        };
    }
    let is_of = |id: &str, plan: &Plan| {
        let family = id.strip_suffix("-all").filter(|family| !family.is_empty());
        id == plan.id
            || id == "all"
            || id == "cheap" && plan.cheap
            || family.is_some_and(|family| plan.id.split('-').next() == Some(family))
    };
    if let Some(id) = ids.iter().find(|id| !PLANS.iter().any(|plan| is_of(id, plan))) {
        eprintln!("there is no experiment {id}; `list` names them");
        return ExitCode::from(2);
    }
    let is_chosen = |plan: &&Plan| ids.iter().any(|id| is_of(id, plan));
    let chosen: Vec<&Plan> = PLANS.iter().filter(is_chosen).collect();
    let out = out.unwrap_or_else(report::usual_directory);
    let work = Work { out, seeds, offset, quick, bless, ablated: None };
    if ablates {
        return ablation::run_all(&chosen, &work, run);
    }
    let failed: Vec<&str> =
        chosen.iter().filter(|plan| !run(plan, &work).0).map(|plan| plan.id).collect();
    if let Err(why) = page::write(&work.out) {
        eprintln!("report.html: {why}");
        return ExitCode::FAILURE;
    }
    if failed.is_empty() {
        return ExitCode::SUCCESS;
    }
    eprintln!("claims that do not hold, or results that differ: {}", failed.join(", "));
    ExitCode::FAILURE
}

/// Runs a section of an experiment, for callgrind.
fn run_section(ids: &[String], section: &str) -> ExitCode {
    if ids.iter().any(|id| id == "d-cost") {
        if let Err(why) = plans::d_cost::sections(section) {
            eprintln!("{section}: {why}");
            return ExitCode::FAILURE;
        }
    } else {
        plans::b_fig3::sections();
    }
    ExitCode::SUCCESS
}

/// Prints the measurements of an experiment with real packets, as JSON.
fn print_live(ids: &[String], ablated: Option<&str>) -> ExitCode {
    let id = ids.first().map_or("", String::as_str);
    let measured = match id {
        "a-delay-router" => plans::a_delay_router::measure(),
        "a-fig12-live" => plans::a_fig12_live::measure(),
        "b-fig2" => plans::b_fig2::measure(),
        "a-packet-pair-live" => plans::a_packet_pair_live::measure(ablated),
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

/// Runs one experiment. Returns true if all its claims hold and its results are the known ones; and
/// its claims.
fn run(plan: &Plan, work: &Work) -> Whole {
    say_line!("\n{} — {}\n{}\n", plan.id, plan.title, plan.source);
    let outcome = Report::new(plan, work).and_then(|mut report| {
        (plan.run)(&mut report)?;
        report.finish()
    });
    outcome.unwrap_or_else(|why| {
        eprintln!("{}: {why}", plan.id);
        (false, Vec::new())
    })
}
