//! A load on several cores: a thread for each, with its part of the rate and of the connections,
//! and one report.
//!
//! The threads begin together. On a device each has a shard of our stack, and uses the 4-tuples
//! that its shard owns; on the kernel's stack it has addresses or ports of its own.

use std::io;
use std::mem;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use lightwait::shards::{self, Cores, Seat};
use lightwait_core::flow::{Steering, Tuple};
use lightwait_load::report::Report;
use lightwait_load::share::Share;
use lightwait_load::tuples::Tuples;
use tokio::sync::Barrier;

use super::args::LoadArgs;
use super::ours::{self, With};
use super::plan::{Carrier, LoadPlan};
use super::watch::Watcher;
use super::{joined, kernel, random};
use crate::failure::Failure;
use crate::log::{Form, Log, Outputs};
use crate::serve::device::Queue;
use crate::serve::signals::Signals;

/// A load and its threads.
pub(super) struct Several<'a> {
    pub(super) args: &'a LoadArgs,
    /// How many files the process may have open for connections.
    pub(super) descriptors: u32,
    pub(super) shards: u16,
    pub(super) cores: Cores,
    pub(super) signals: &'a Signals,
}

impl Several<'_> {
    /// Runs the load. `None` if a signal came before it began.
    pub(super) fn put_on(&self, mut whole: LoadPlan) -> Result<Option<Report>, Failure> {
        // Standard output is for the report.
        let outputs = Outputs::new(io::stderr(), io::stderr());
        let (log, writer) = Log::start(Form::COMBINED, outputs).map_err(Failure::Stack)?;
        let reports = self.run(&mut whole, &log);
        drop(log);
        writer.finish();
        let reports = reports?;
        if reports.len() < usize::from(self.shards) {
            return Ok(None);
        }
        // The first one's watcher has measured the whole process.
        let cpu_share = reports[0].cpu_share;
        let mut report = Report::merge(reports).map_err(Failure::Load)?;
        report.setup.shares = self.args.part.into_iter().collect();
        if let Carrier::Device(_) = whole.carrier {
            (report.setup.addresses, report.setup.ports) =
                (whole.setup.addresses, whole.setup.ports);
        }
        Ok(Some(Report { cpu_share, threads: self.shards, ..report }))
    }

    fn run(&self, whole: &mut LoadPlan, log: &Log) -> Result<Vec<Report>, Failure> {
        let carrier = mem::replace(&mut whole.carrier, Carrier::Kernel);
        let queues = match &carrier {
            Carrier::Device(on) => {
                let queues = ours::queues(whole, on, self.shards, log)?;
                queues.into_iter().map(Some).collect()
            }
            Carrier::Kernel | Carrier::Joined(_) => (0..self.shards).map(|_| None).collect(),
        };
        whole.carrier = carrier;
        let all = Whole {
            start: Arc::new(Barrier::new(self.shards.into())),
            sources: whole.sources.clone(),
            ports: whole.ports.clone(),
            first: random(),
            about: matches!(whole.carrier, Carrier::Device(_)).then(|| whole.about.clone()),
            log,
        };
        let reports = Mutex::new(Vec::new());
        let work = |seat: Seat, queue: Option<Queue>| {
            let index = seat.member().index;
            if let Some(report) = self.run_part(seat, queue, &all)? {
                let mut reports = reports.lock().unwrap_or_else(PoisonError::into_inner);
                reports.push((index, report));
            }
            Ok::<_, Failure>(())
        };
        shards::threads(queues, self.cores, work, || self.signals.cut())?;
        let mut reports = reports.into_inner().unwrap_or_else(PoisonError::into_inner);
        reports.sort_unstable_by_key(|(index, _)| *index);
        Ok(reports.into_iter().map(|(_, report)| report).collect())
    }

    /// Runs one thread's part.
    fn run_part(
        &self,
        seat: Seat,
        queue: Option<Queue>,
        whole: &Whole<'_>,
    ) -> Result<Option<Report>, Failure> {
        let index = seat.member().index;
        let descriptors = self.descriptors / u32::from(self.shards);
        let mut plan = LoadPlan::new(&self.args_of(index), descriptors, 0)?;
        let about = whole.about.clone().unwrap_or_else(|| format!("Each thread: {}", plan.about));
        let watcher = Watcher::new(&plan.engine, &about);
        let watcher = if index == 0 { watcher.of(self.shards) } else { watcher.silent() };
        let (signals, start) = (self.signals, whole.start.clone());
        let outcome = match (mem::replace(&mut plan.carrier, Carrier::Kernel), queue) {
            (Carrier::Device(_), Some(queue)) => {
                let tuples = whole.tuples_of(index, &queue, &plan);
                let (start, log) = (Some(start), whole.log);
                let with = With { tuples, signals, watcher: &watcher, log, start };
                ours::run_on(&mut plan, queue, Some(seat), with)
            }
            (carrier, _) => {
                let tuples =
                    Tuples::new(plan.sources.clone(), plan.ports.clone(), plan.rest, random());
                let start = Some(&*start);
                if let Carrier::Joined(joined) = carrier {
                    joined::run(&plan, &joined, tuples, signals, &watcher, start)
                } else {
                    kernel::run(&plan, tuples, signals, &watcher, start)
                }
            }
        };
        watcher.end();
        let Some(outcome) = outcome? else { return Ok(None) };
        let (cpu_share, started_at) = (watcher.share(), Some(watcher.started_at()));
        let setup = plan.setup;
        Ok(Some(Report { setup, outcome, cpu_share, threads: 1, started_at, together: None }))
    }

    /// The command line of a thread: its part of this process's part.
    fn args_of(&self, index: u16) -> LoadArgs {
        let (index, shards) = (u32::from(index), u32::from(self.shards));
        let whole = self.args.part.unwrap_or(Share::ALL);
        let part = Share::new(whole.number() * shards + index, whole.of() * shards);
        LoadArgs { part, ..self.args.clone() }
    }
}

/// What the threads have together.
struct Whole<'a> {
    start: Arc<Barrier>,
    sources: lightwait_load::sources::Sources,
    ports: std::ops::RangeInclusive<u16>,
    /// The place of the first 4-tuple.
    first: u64,
    /// A line about the addresses, where all threads have the same.
    about: Option<String>,
    log: &'a Log,
}

impl Whole<'_> {
    /// The 4-tuples whose answers come to that shard.
    fn tuples_of(&self, index: u16, queue: &Queue, plan: &LoadPlan) -> Tuples {
        let all = Tuples::new(self.sources.clone(), self.ports.clone(), plan.rest, self.first);
        let (steering, to): (Steering, SocketAddr) = (queue.steering(), plan.engine.to);
        all.owned(move |from| {
            let ends = Tuple::new((from.ip(), from.port()), (to.ip(), to.port()));
            steering.owner(&ends) == index
        })
    }
}
