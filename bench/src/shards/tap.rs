//! Over a TAP with a queue for each shard: clients on the kernel's TCP, on threads of their own for
//! each shard, in a network namespace that vanishes with the bench.
//!
//! A write to a TAP ends in the receiver's TCP, so that this work counts for the server. So does
//! the time for which a shard without work looks for some before it sleeps.

mod kernel;

use std::io;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use lightwait::device::{Device, Tap, TapConfig};
use lightwait::rt;
use lightwait::shard::Shard;
use lightwait::shards::{self, Cores, Seat};
use lightwait_core::Config;
use lightwait_core::flow::Steering;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use tokio::sync::Barrier;

use super::server::Served;
use super::sources::{self, CLIENT, SOURCES};
use super::{Outcome, Part, Plan};
use crate::live::{Failure, Namespace};

/// Time between two looks at how far the clients are.
const LOOK: Duration = Duration::from_millis(5);
/// Time for the last connections to close.
const CLOSING: Duration = Duration::from_millis(20);

/// A namespace in which TAPs can be made and steered.
#[derive(Debug)]
pub struct Network(Namespace);

impl Network {
    /// Makes a namespace, and tries a TAP in it.
    ///
    /// # Errors
    /// If the rights to make or to steer a TAP are missing. The text says which.
    pub fn new() -> Result<Network, Failure> {
        let network = Network(Namespace::new()?);
        network.0.ip(&format!("route add local {SOURCES} dev lo"))?;
        network.inside(|| open(&Steering::new(&[0; 32], 2)).map(drop))?;
        Ok(network)
    }

    /// Runs the plan.
    ///
    /// # Errors
    /// If a TAP cannot be made, or a client's request fails.
    pub fn run(&self, plan: &Plan) -> Result<Outcome, Failure> {
        self.inside(|| measure(plan))
    }

    /// Calls `act` on a thread in the namespace, where the threads that it starts are, too.
    fn inside<T: Send>(&self, act: impl FnOnce() -> io::Result<T> + Send) -> Result<T, Failure> {
        let namespace = self.0.file()?;
        let all = || {
            move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
            act()
        };
        let ended = thread::scope(|scope| scope.spawn(all).join());
        Ok(ended.unwrap_or_else(|panic| resume_unwind(panic))?)
    }
}

/// Opens a TAP with a queue for each shard, steered.
fn open(steering: &Steering) -> io::Result<Vec<Tap>> {
    let mut config = TapConfig::new("lw0");
    config.host_addresses = vec![sources::on_link(CLIENT, 24)];
    let queues = Tap::open_queues(&config, steering.shards().into())?;
    if queues.len() > 1 {
        queues[0].steer(steering)?;
    }
    Ok(queues)
}

/// What the threads of a measurement tell one another.
struct Progress {
    /// Clients that have not yet had an answer on each connection. The windows begin after that.
    openings: AtomicU16,
    /// Windows that are not over. Clients go on until all are.
    windows: AtomicU16,
    /// Clients that have not ended. Shards serve until all have.
    clients: AtomicU16,
}

/// One thing less.
struct Countdown<'a>(&'a AtomicU16);

impl Drop for Countdown<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Release);
    }
}

fn measure(plan: &Plan) -> io::Result<Outcome> {
    let secret = lightwait::stack::secret()?;
    let steering = Steering::new(&secret, plan.shards);
    let queues = open(&steering)?;
    let mut host = super::host(queues[0].capabilities(), plan.shards, secret);
    host.gateways = vec![IpAddr::V4(CLIENT)];
    let threads = plan.threads.max(1);
    let clients = || AtomicU16::new(plan.shards * threads);
    let windows = AtomicU16::new(plan.shards);
    let progress = Arc::new(Progress { openings: clients(), windows, clients: clients() });
    let (served, asked) = thread::scope(|scope| {
        let (steering, progress) = (&steering, &progress);
        let client = |number| scope.spawn(move || ask(plan, steering, number, progress));
        let clients: Vec<_> = (0..plan.shards * threads).map(client).collect();
        let served = serve(queues, &host, plan, progress);
        // After a failure the windows are over as well.
        progress.windows.store(0, Ordering::Release);
        let asked = clients.into_iter().map(thread::ScopedJoinHandle::join);
        let asked = asked.map(|client| client.unwrap_or_else(|panic| resume_unwind(panic)));
        (served, asked.collect::<io::Result<Vec<_>>>())
    });
    // Clients fail as well if the server did.
    let (mut parts, asked) = (served?, asked?);
    for (part, clients) in parts.iter_mut().zip(asked.chunks(threads.into())) {
        part.asked = clients.iter().map(|(asked, _)| asked).sum();
        part.answered = clients.iter().map(|(_, answered)| answered).sum();
    }
    Ok(Outcome { parts })
}

/// Runs the clients of the thread `number`: a part of its shard's connections, at least one.
/// Returns how many requests were sent and how many were answered.
fn ask(
    plan: &Plan,
    steering: &Steering,
    number: u16,
    progress: &Progress,
) -> io::Result<(u64, u64)> {
    let _ended = Countdown(&progress.clients);
    let threads = plan.threads.max(1);
    let (index, thread) = (number / threads, usize::from(number % threads));
    let threads = usize::from(threads);
    let ends = sources::owned_by(steering.clone(), index).skip(thread).step_by(threads);
    let whole = plan.workload.connections();
    let connections = whole / threads + usize::from(thread < whole % threads);
    let mut client = kernel::Client::new(plan.workload, connections.max(1), ends);
    {
        let _opened = Countdown(&progress.openings);
        client.begin()?;
    }
    client.go_on(|| progress.windows.load(Ordering::Acquire) == 0)
}

/// Serves until all clients have ended. Returns the shards' parts.
fn serve(
    queues: Vec<Tap>,
    host: &Config,
    plan: &Plan,
    progress: &Arc<Progress>,
) -> io::Result<Vec<Part>> {
    let parts = Arc::new(Mutex::new(vec![Part::default(); plan.shards.into()]));
    let end = Arc::new(Barrier::new(plan.shards.into()));
    let begin = |seat: Seat, queue: Tap| {
        let member = seat.member();
        let shard = Shard::new(host.member(member), Box::new(queue))?.seated(seat);
        let handle = shard.handle();
        let served = Served::start(&handle, plan.workload)?;
        let (plan, parts, end, progress) = (*plan, parts.clone(), end.clone(), progress.clone());
        let main = async move {
            let window = {
                let _over = Countdown(&progress.windows);
                while progress.openings.load(Ordering::Acquire) > 0 {
                    rt::sleep(LOOK).await;
                }
                served.window(&plan).await
            };
            while progress.clients.load(Ordering::Acquire) > 0 {
                rt::sleep(LOOK).await;
            }
            rt::sleep(CLOSING).await;
            let part = handle.with_host(|host| Part::of(window, host));
            parts.lock().unwrap_or_else(PoisonError::into_inner)[usize::from(member.index)] = part;
            // A queue that closes changes the numbers of the others.
            end.wait().await;
        };
        Ok::<_, io::Error>((shard, main))
    };
    shards::run(queues, Cores::Pinned, begin)?;
    let parts = parts.lock().unwrap_or_else(PoisonError::into_inner).clone();
    Ok(parts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shards::Workload;

    #[test]
    fn every_shard_answers_kernels_and_hands_nothing_over() {
        let network = match Network::new() {
            Ok(network) => network,
            Err(why) => return eprintln!("skipped: {why}"),
        };
        for workload in Workload::ALL {
            let time = Duration::from_millis(30);
            let plan = Plan { shards: 2, workload, threads: 3, warm_up: time, window: time };
            let outcome = network.run(&plan).unwrap();
            assert_eq!(outcome.parts.len(), 2);
            for part in &outcome.parts {
                assert!(part.asked >= workload.connections() as u64, "{workload:?}: {part:?}");
                assert_eq!(part.asked, part.answered, "{workload:?}");
                assert!(part.window.processor <= part.window.elapsed, "{part:?}");
            }
            assert_eq!((outcome.handed_over(), outcome.lost()), (0, 0), "{workload:?}");
        }
    }
}
