//! `lightwait load` makes a plan ([`plan`]) of the command line ([`args`]). It runs the load on the
//! kernel's stack ([`kernel`]), on ours ([`ours`]), or on ours in front of the kernel's
//! ([`joined`]), and reports the result.

pub(crate) mod args;
mod joined;
mod kernel;
mod ours;
mod plan;
mod several;
mod target;
mod watch;

use std::fs::{self, File};
use std::io::{self, Write};
use std::mem;
use std::path::PathBuf;
use std::process::ExitCode;

use lightwait_load::engine::{self, Outcome};
use lightwait_load::network::explain;
use lightwait_load::report::Report;
use lightwait_load::tuples::Tuples;
use rustix::process::{Resource, getrlimit};
use tokio::sync::Barrier;

use crate::failure::{Failure, print};
use crate::serve::raise_descriptor_limit;
use crate::serve::signals::{STATUS_INTERRUPTED, Signals};
use crate::zone::Named;
use args::{LoadAction, LoadArgs, MergeArgs, ReportArgs};
use plan::{Carrier, LoadPlan};
use several::Several;
use watch::Watcher;

/// Descriptors that are not connections.
const OTHER_DESCRIPTORS: u32 = 32;

/// Executes the command line. Returns the exit status.
pub(crate) fn load(args: &LoadArgs) -> Result<ExitCode, Failure> {
    match &args.action {
        None => put_on(args),
        Some(LoadAction::Merge(args)) => merge(args),
    }
}

/// Runs the load, and reports the result.
fn put_on(args: &LoadArgs) -> Result<ExitCode, Failure> {
    raise_descriptor_limit();
    let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let descriptors = u32::try_from(descriptors).unwrap_or(u32::MAX);
    let descriptors = descriptors.saturating_sub(OTHER_DESCRIPTORS);
    let mut plan = LoadPlan::new(args, descriptors, 0)?;
    let (shards, cores) = args.shards.plan()?;
    let outputs = Outputs::new(&args.report)?;
    let signals = Signals::install().map_err(Failure::Stack)?;
    if shards > 1 {
        let several = Several { args, descriptors, shards, cores, signals: &signals };
        let Some(report) = several.put_on(plan)? else { return Ok(stopped()) };
        let status = outputs.write(&report)?;
        return Ok(if signals.is_hurry() { signals.exit_code() } else { status });
    }
    let (mut place, mut run) = (0, run_once(&mut plan, &signals));
    // A name may have addresses that do not answer: each has its turn (RFC 8305 in spirit).
    while let Err(Failure::Unreachable(why)) = &run
        && place + 1 < plan.all
    {
        eprintln!("{why}; its next address is tried.");
        place += 1;
        plan = LoadPlan::new(args, descriptors, place)?;
        run = run_once(&mut plan, &signals);
    }
    let (outcome, watcher) = run?;
    let Some(outcome) = outcome else { return Ok(stopped()) };
    let cpu_share = watcher.share();
    let started_at = Some(watcher.started_at());
    let setup = plan.setup;
    let report = Report { setup, outcome, cpu_share, threads: 1, started_at, together: None };
    let status = outputs.write(&report)?;
    Ok(if signals.is_hurry() { signals.exit_code() } else { status })
}

/// A signal came before the load began.
fn stopped() -> ExitCode {
    eprintln!("lightwait: stopped before the load began: there is no report");
    ExitCode::from(STATUS_INTERRUPTED)
}

/// Runs the load of a plan. Nothing comes of it if a signal came before it began.
fn run_once(plan: &mut LoadPlan, signals: &Signals) -> Result<(Option<Outcome>, Watcher), Failure> {
    let tuples = Tuples::new(plan.sources.clone(), plan.ports.clone(), plan.rest, random());
    let watcher = Watcher::new(&plan.engine, &plan.about);
    let outcome = match mem::replace(&mut plan.carrier, Carrier::Kernel) {
        Carrier::Kernel => kernel::run(plan, tuples, signals, &watcher, None),
        Carrier::Device(on) => ours::run(plan, &on, tuples, signals, &watcher),
        Carrier::Joined(joined) => joined::run(plan, &joined, tuples, signals, &watcher, None),
    };
    watcher.end();
    Ok((outcome?, watcher))
}

/// Merges reports.
fn merge(args: &MergeArgs) -> Result<ExitCode, Failure> {
    let outputs = Outputs::new(&args.report)?;
    let reports = args.files.iter().map(|path| {
        let wrong = |why: String| Failure::Load(format!("{}: {why}", path.display()));
        let text = fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
        let json = serde_json::from_str(&text);
        let json = json.map_err(|error| wrong(format!("not JSON: {error}")))?;
        Report::from_json(&json).map_err(|why| wrong(format!("not a report: {why}")))
    });
    let reports = reports.collect::<Result<Vec<_>, _>>()?;
    let merged = Report::merge(reports.clone()).map_err(|why| {
        let file = args.files[misfit(&reports)].display();
        Failure::Load(format!("{file}: not a part of one load with the files before it: {why}"))
    });
    outputs.write(&merged?)
}

/// The number of the first report that cannot be merged with those before it.
fn misfit(reports: &[Report]) -> usize {
    let counts: Vec<usize> = (1..reports.len()).collect();
    counts.partition_point(|count| Report::merge(reports[..*count].to_vec()).is_ok())
}

/// The destinations of a report.
struct Outputs<'a> {
    args: &'a ReportArgs,
    csv: Option<(PathBuf, File)>,
    html: Option<(PathBuf, File)>,
}

impl Outputs<'_> {
    /// Opens the files before the load, so that one that cannot be written fails early. What is in
    /// them stays until there is a report.
    fn new(args: &ReportArgs) -> Result<Outputs<'_>, Failure> {
        if args.csv.is_some() && args.csv == args.html {
            return Err(Failure::Usage("--csv and --html name one file".to_owned()));
        }
        let create = |path: &Option<PathBuf>| -> Result<_, Failure> {
            let Some(path) = path else { return Ok(None) };
            let file = File::options().write(true).create(true).truncate(false).open(path);
            let file = file.map_err(|error| Failure::Output(path.clone(), error))?;
            Ok(Some((path.clone(), file)))
        };
        Ok(Outputs { args, csv: create(&args.csv)?, html: create(&args.html)? })
    }

    /// Writes the report. Returns the exit status, by the thresholds.
    fn write(self, report: &Report) -> Result<ExitCode, Failure> {
        let files = [(self.csv, Report::csv as fn(&Report) -> String), (self.html, Report::html)];
        for (file, text) in files {
            if let Some((path, mut file)) = file {
                let written = empty(&file).and_then(|()| file.write_all(text(report).as_bytes()));
                written.map_err(|error| Failure::Output(path, error))?;
            }
        }
        let is_json = self.args.json;
        let text = if is_json { format!("{:#}\n", report.json()) } else { report.table() };
        print(&text)?;
        Ok(judge(self.args, report))
    }
}

/// Empties a file. A pipe or a device has no length.
fn empty(file: &File) -> io::Result<()> {
    if file.metadata()?.is_file() { file.set_len(0) } else { Ok(()) }
}

/// Compares a report with the thresholds, and says which it misses.
fn judge(args: &ReportArgs, report: &Report) -> ExitCode {
    let why = why_in_vain(report);
    let misses: Vec<String> = why.into_iter().chain(misses(args, report)).collect();
    for miss in &misses {
        eprintln!("lightwait: {miss}");
    }
    if misses.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The thresholds that a report misses, a line each. One that cannot be judged counts as missed: a
/// load that was to show something has not shown it.
fn misses(args: &ReportArgs, report: &Report) -> Vec<String> {
    let Report { setup, outcome, .. } = report;
    let totals = &outcome.totals;
    let requests = totals.answered + totals.failed();
    let is_idle_alone = setup.rate.is_none() && setup.connections == 0;
    // Idle connections are judged whenever they were held.
    let has_rate = requests > 0 || is_idle_alone;
    let is_asked = args.max_p99.is_some() || args.max_error_rate.is_some() && !has_rate;
    if requests == 0 && is_asked {
        return vec!["nothing was recorded: the thresholds cannot be judged".to_owned()];
    }
    let mut misses = Vec::new();
    if let Some(most) = args.max_error_rate {
        let idle = &outcome.idle;
        let lost = (idle.asked - idle.held()) as f64 / idle.asked.max(1) as f64;
        for (part, what) in [(totals.failure_rate(), "requests"), (lost, "idle connections")] {
            if part > most {
                let (part, most) = (part * 100.0, most * 100.0);
                misses.push(format!("{part:.3} % of the {what} failed: more than {most:.3} %"));
            }
        }
    }
    if let Some(most) = args.max_p99 {
        match totals.p99_of_all() {
            Some(p99) if p99 <= most => {}
            Some(p99) => misses.push(format!("the 99th percentile is {p99:?}: more than {most:?}")),
            None => misses.push(format!(
                "the 99th percentile is more than {most:?}: of {requests} requests {} got no \
                 answer",
                totals.faults.sum(),
            )),
        }
    }
    misses
}

/// Why no request succeeded, if there were some. A closed loop always has requests, if only ones
/// that wait for a 4-tuple.
fn why_in_vain(report: &Report) -> Option<String> {
    let Report { setup, outcome, .. } = report;
    let notes = &outcome.notes;
    if outcome.recorded.is_zero() && notes.answered == 0 && notes.failed > 0 {
        let failed = notes.failed;
        return Some(format!("stopped in the warm-up, where all {failed} requests failed"));
    }
    let is_closed = setup.rate.is_none() && setup.connections > 0 && !outcome.recorded.is_zero();
    let statuses = &outcome.totals.statuses;
    if outcome.totals.failed() == 0 && !is_closed || statuses.range(..400).next().is_some() {
        return None;
    }
    let most = statuses.iter().max_by_key(|(_, count)| **count);
    Some(match most {
        None => "no request was answered".to_owned(),
        Some((status, _)) => format!("no request succeeded; most were answered by {status}"),
    })
}

/// The error of the first connection, for users.
fn refused(plan: &LoadPlan, error: &io::Error) -> Failure {
    use io::ErrorKind as Kind;
    let (to, url) = (Named(plan.engine.to), &plan.setup.url);
    if let Some(why) = explain(error) {
        return Failure::Load(format!("{url}: {why}"));
    }
    let why = match error.kind() {
        Kind::ConnectionRefused => {
            format!("connection refused: nobody listens on {to}; start the server, or see the port")
        }
        Kind::TimedOut => format!("{to} does not answer; see whether packets come through: `ping`"),
        Kind::AddrInUse => "all source addresses and ports that were tried are in use".to_owned(),
        _ => format!("no connection to {to}: {error}"),
    };
    Failure::Unreachable(format!("{url}: {why}"))
}

/// Waits until all threads of a load are ready. False if a signal came before.
async fn together(start: Option<&Barrier>, signals: &Signals) -> bool {
    let Some(start) = start else { return true };
    tokio::select! {
        _ = start.wait() => true,
        () = signals.stop() => false,
    }
}

/// Resolves with the first signal, and says then what the load waits for; the second ends the wait.
fn stop(
    signals: &Signals,
    plan: &engine::Plan,
    watcher: &Watcher,
) -> impl Future<Output = ()> + 'static {
    let (signals, grace, watcher) = (signals.clone(), plan.stop_grace, watcher.clone());
    async move {
        signals.stop().await;
        watcher.say(&format!(
            "Stopping: pending requests get {} s; a second signal ends the wait.",
            grace.as_secs_f64(),
        ));
    }
}

/// An unpredictable number; 0 if the system has no randomness.
fn random() -> u64 {
    let bytes = lightwait::stack::secret().ok().and_then(|secret| secret.first_chunk().copied());
    bytes.map_or(0, u64::from_be_bytes)
}
