//! Runs a load on a stack of ours, on a device.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::sync::Arc;

use lightwait::driver::{self, Stop};
use lightwait::shard::Handle;
use lightwait::shards::Seat;
use lightwait_core::Host;
use lightwait_core::address::Cidr;
use lightwait_load::engine::{self, Outcome};
use lightwait_load::network::{Network, OurStack, Secured};
use lightwait_load::tuples::Tuples;
use tokio::sync::Barrier;

use super::plan::LoadPlan;
use super::watch::Watcher;
use super::{refused, stop, together};
use crate::failure::Failure;
use crate::log::{Form, Log, Outputs};
use crate::plan::{Knobs, Stack};
use crate::serve::claim;
use crate::serve::device::{Queue, open_queues};
use crate::serve::signals::Signals;

/// Runs the load to its end, or to a signal. `None` if a signal came before it began.
pub(super) fn run(
    plan: &mut LoadPlan,
    on: &(Stack, Knobs),
    tuples: Tuples,
    signals: &Signals,
    watcher: &Watcher,
) -> Result<Option<Outcome>, Failure> {
    // Standard output is for the report.
    let outputs = Outputs::new(io::stderr(), io::stderr());
    let (log, writer) = Log::start(Form::COMBINED, outputs).map_err(Failure::Stack)?;
    let outcome = run_logged(plan, on, tuples, signals, watcher, &log);
    drop(log);
    writer.finish();
    outcome
}

fn run_logged(
    plan: &mut LoadPlan,
    on: &(Stack, Knobs),
    tuples: Tuples,
    signals: &Signals,
    watcher: &Watcher,
    log: &Log,
) -> Result<Option<Outcome>, Failure> {
    let mut queues = queues(plan, on, 1, log)?;
    let queue = queues.pop().expect("one shard has one queue");
    let with = With { tuples, signals, watcher, log, start: None };
    run_on(plan, queue, None, with)
}

/// Opens the device, with a queue for each of so many shards.
pub(super) fn queues(
    plan: &LoadPlan,
    (stack, knobs): &(Stack, Knobs),
    shards: u16,
    log: &Log,
) -> Result<Vec<Queue>, Failure> {
    let Stack::Device { addresses, .. } = stack else { unreachable!("a load runs on a device") };
    let is_ours = |range: &Cidr| addresses.iter().any(|ours| ours.address() == range.address());
    let ranges: Vec<Cidr> = plan.sources.prefixes().filter(|range| !is_ours(range)).collect();
    open_queues(stack, knobs, &ranges, shards, None, log)
}

/// What a shard runs its load with.
pub(super) struct With<'a> {
    pub(super) tuples: Tuples,
    pub(super) signals: &'a Signals,
    pub(super) watcher: &'a Watcher,
    pub(super) log: &'a Log,
    /// Where the shards wait for each other before they begin.
    pub(super) start: Option<Arc<Barrier>>,
}

/// Runs the load on a shard on that queue.
pub(super) fn run_on(
    plan: &mut LoadPlan,
    queue: Queue,
    seat: Option<Seat>,
    With { tuples, signals, watcher, log, start }: With<'_>,
) -> Result<Option<Outcome>, Failure> {
    plan.setup.stack = format!("our stack, {}", queue.name);
    let shard = queue.shard(seat, |device, _| device)?;
    let handle = shard.handle();
    let mut shards = [shard];
    if !claim::wait(&mut shards, &handle, signals, log)? {
        return Ok(None);
    }
    let (stop, result) = (Stop::new(), Rc::new(RefCell::new(None)));
    handle.spawn_local({
        let (stop, result, watcher) = (stop.clone(), result.clone(), watcher.clone());
        let (engine, tls, signals) = (plan.engine.clone(), plan.tls.clone(), signals.clone());
        let stack = handle.clone();
        async move {
            let network = OurStack::current();
            let outcome = match tls {
                None => probed(network, &stack, engine, tuples, &signals, watcher, start).await,
                Some(tls) => {
                    let network = Secured::new(network, tls);
                    probed(network, &stack, engine, tuples, &signals, watcher, start).await
                }
            };
            *result.borrow_mut() = Some(outcome);
            stop.set();
        }
    });
    driver::run(&mut shards, &stop, driver::SPIN).map_err(Failure::Stack)?;
    let outcome = result.borrow_mut().take().expect("the switch is set behind it");
    outcome.map_err(|error| refused(plan, &error))
}

async fn probed<N: Network>(
    network: N,
    stack: &Handle,
    engine: engine::Plan,
    mut tuples: Tuples,
    signals: &Signals,
    watcher: Watcher,
    start: Option<Arc<Barrier>>,
) -> io::Result<Option<Outcome>> {
    tokio::select! {
        () = signals.stop() => return Ok(None),
        probed = engine::probe(&network, &engine, &mut tuples) => probed?,
    }
    if !together(start.as_deref(), signals).await {
        return Ok(None);
    }
    watcher.begin();
    Ok(Some(counted(network, stack, engine, tuples, signals, watcher).await))
}

/// Runs the load, and notes what `stack` counts meanwhile. The probe before it is not counted.
pub(super) async fn counted<N: Network>(
    network: N,
    stack: &Handle,
    engine: engine::Plan,
    tuples: Tuples,
    signals: &Signals,
    watcher: Watcher,
) -> Outcome {
    let stop = stop(signals, &engine, &watcher);
    let on_progress = move |progress: &_| watcher.on_progress(progress);
    let count = |host: &Host| {
        let counters = host.counters();
        (counters.time_wait_swapped, counters.negotiation_agreed)
    };
    let before = stack.with_host(count);
    let load = engine::run(network, engine, tuples, stop, || signals.hurry(), on_progress);
    let mut outcome = load.await;
    let after = stack.with_host(count);
    outcome.notes.swapped = after.0 - before.0;
    outcome.notes.agreed = after.1 - before.1;
    outcome.notes.held = stack.with_host(Host::time_wait_len) as u64;
    outcome
}
