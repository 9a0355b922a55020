//! `lightwait load`: what was typed ([`args`]) becomes a plan ([`plan`]), which is put on the
//! kernel's stack ([`kernel`]) or on ours ([`ours`]) and reported.

pub(crate) mod args;
mod kernel;
mod ours;
mod plan;
mod target;
mod watch;

use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use lightwait_load::engine::Outcome;
use lightwait_load::report::Report;
use lightwait_load::tuples::Tuples;
use rustix::process::{Resource, getrlimit};

use crate::failure::Failure;
use crate::serve::raise_descriptor_limit;
use crate::serve::signals::Signals;
use args::LoadArgs;
use plan::LoadPlan;
use watch::Watcher;

/// Descriptors that are not connections.
const OTHER_DESCRIPTORS: u32 = 32;

/// Puts the load on, and reports. Returns the status to end with.
pub(crate) fn load(args: &LoadArgs) -> Result<ExitCode, Failure> {
    raise_descriptor_limit();
    let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let descriptors = u32::try_from(descriptors).unwrap_or(u32::MAX);
    let mut plan = LoadPlan::new(args, descriptors.saturating_sub(OTHER_DESCRIPTORS))?;
    let [csv, html] = [create(plan.csv.as_ref())?, create(plan.html.as_ref())?];
    let signals = Signals::install().map_err(Failure::Stack)?;
    eprintln!("{}.", plan.about_sources);
    let tuples = Tuples::new(plan.sources.clone(), plan.ports.clone(), plan.rest, random());
    let watcher = Watcher::new(&plan.engine);
    let outcome = match plan.ours.take() {
        None => kernel::run(&plan, tuples, &signals, &watcher)?,
        Some(on) => ours::run(&mut plan, &on, tuples, &signals, &watcher)?,
    };
    watcher.end();
    let Some(outcome) = outcome else { return Ok(ExitCode::SUCCESS) };
    let report = report(plan.setup.clone(), outcome, &watcher);
    for (file, text) in [(csv, Report::csv as fn(&Report) -> String), (html, Report::html)] {
        if let Some((path, mut file)) = file {
            let written = file.write_all(text(&report).as_bytes());
            written.map_err(|error| Failure::Output(path, error))?;
        }
    }
    let text = if plan.json { format!("{:#}\n", report.json()) } else { report.table() };
    // A closed output is the reader's choice.
    let _ = io::stdout().write_all(text.as_bytes());
    Ok(judge(&plan, &report))
}

fn report(setup: lightwait_load::report::Setup, outcome: Outcome, watcher: &Watcher) -> Report {
    let cpu_share = watcher.share(outcome.warm_up);
    Report { setup, outcome, cpu_share }
}

/// A file for a report: before the load, not after it, it turns out that it cannot be written.
fn create(path: Option<&PathBuf>) -> Result<Option<(PathBuf, File)>, Failure> {
    let Some(path) = path else { return Ok(None) };
    let file = File::create(path).map_err(|error| Failure::Output(path.clone(), error))?;
    Ok(Some((path.clone(), file)))
}

/// Compares a report with the thresholds.
fn judge(plan: &LoadPlan, report: &Report) -> ExitCode {
    let totals = &report.outcome.totals;
    let mut status = ExitCode::SUCCESS;
    if let Some(most) = plan.max_error_rate
        && totals.failure_rate() > most
    {
        let rate = totals.failure_rate() * 100.0;
        eprintln!("lightwait: {rate:.3} % of the requests failed: more than {:.3} %", most * 100.0);
        status = ExitCode::FAILURE;
    }
    let p99 = totals.total.percentile(99.0);
    if let Some(most) = plan.max_p99
        && (p99 > most || totals.total.is_empty())
    {
        eprintln!("lightwait: the 99th percentile is {p99:?}: more than {most:?}, or of nothing");
        status = ExitCode::FAILURE;
    }
    status
}

/// What the first connection met, for people.
fn refused(plan: &LoadPlan, error: &io::Error) -> Failure {
    use io::ErrorKind as Kind;
    let (to, url) = (plan.engine.to, &plan.setup.url);
    let why = match error.kind() {
        Kind::ConnectionRefused => {
            format!("connection refused: nobody listens on {to}; start the server, or see the port")
        }
        Kind::TimedOut => format!("{to} does not answer; see whether packets come through: `ping`"),
        Kind::AddrInUse => "all source addresses and ports that were tried are in use".to_owned(),
        _ => format!("no connection to {to}: {error}"),
    };
    Failure::Load(format!("{url}: {why}"))
}

/// A number that nobody foresees; 0 if the system has none.
fn random() -> u64 {
    let bytes = lightwait::stack::secret().ok().and_then(|secret| secret.first_chunk().copied());
    bytes.map_or(0, u64::from_be_bytes)
}
