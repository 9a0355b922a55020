//! A graceful stop: responses finish, connections end, and the last counters are logged.

use std::time::Duration;

use lightwait::executor::JoinHandle;
use lightwait::shard::Handle;
use lightwait_core::Host;
use lightwait_http::Tally;

use super::entrance::Service;
use super::signals::Signals;
use super::{Stacks, claim, closed, crew, memory, suspect};

/// How long responses may take to finish after the first signal.
const GRACE: Duration = Duration::from_secs(30);
/// How long connections that were cut may take to end: a turn or two.
const CUT_PATIENCE: Duration = Duration::from_millis(200);
/// How often a stop checks whether the last connections have closed.
const DRAIN_POLL: Duration = Duration::from_millis(5);
/// How long a stop waits for FINs once no data is on its way any more.
const FIN_PATIENCE: Duration = Duration::from_millis(500);
/// How long connections may wait for their next request once another process serves.
const PARTING: Duration = Duration::from_secs(5);
/// How long that process takes to hear of the last records.
const LAST_REPORT: Duration = Duration::from_millis(50);

/// The tasks and stacks that a graceful stop ends.
pub(super) struct Stopping {
    /// The tasks that accept connections on the kernel's stack.
    pub(super) fronts: Vec<JoinHandle<()>>,
    /// The tasks that accept connections and those that watch the stack.
    pub(super) tasks: Vec<JoinHandle<()>>,
    /// The stacks whose connections must be over before the stop ends.
    pub(super) stacks: Stacks,
    pub(super) service: Service,
}

impl Stopping {
    /// Adds a stack to the stop: it waits for the stack's connections, and watches the stack until
    /// then.
    pub(super) fn watch(&mut self, stack: &Handle, name: &str) {
        // The first is the server's.
        let server = self.stacks.all.is_empty().then(|| self.service.server.clone());
        let kept = server.clone();
        let tally = move || server.as_ref().map_or_else(Tally::default, |server| server.tally());
        let full = closed::watch(stack.clone(), tally, self.service.log.clone());
        let conflicts = claim::watch(stack.clone(), self.service.log.clone());
        let faults = suspect::watch(stack.clone(), self.stacks.member, self.service.log.clone());
        self.tasks.extend([stack.spawn_local(full), stack.spawn_local(conflicts)]);
        self.tasks.push(stack.spawn_local(faults));
        let kept = move || kept.as_ref().map_or(0, |server| server.handler().cache_tally().bytes);
        self.tasks.push(stack.spawn_local(memory::watch(stack.clone(), kept)));
        self.stacks.all.push((name.to_owned(), stack.clone()));
    }

    /// Lets responses finish and written data arrive; `hurry` cuts both short. Logs the counters at
    /// the end in either case.
    pub(super) async fn run(self, signals: &Signals) {
        self.fronts.iter().for_each(JoinHandle::abort);
        if self.stacks.crew.is_given() {
            self.part(signals).await;
        }
        // Dropping a listener resets the connections that were not accepted.
        self.tasks.iter().for_each(JoinHandle::abort);
        let stop = self.service.server.stop();
        self.stacks.crew.stopping(self.stacks.member, stop.tracked());
        stop.request();
        // From here on, memory is held only for responses in flight.
        self.service.server.handler().set_cache_bytes(0);
        let finished = async {
            stop.finished().await;
            self.drained().await;
        };
        let is_finished = tokio::select! {
            within = lightwait::rt::timeout(GRACE, finished) => within.is_ok(),
            () = signals.hurry() => false,
        };
        // Their access records come before the last lines.
        stop.cut();
        let _ = lightwait::rt::timeout(CUT_PATIENCE, stop.finished()).await;
        let unfinished = if is_finished { 0 } else { self.cut_short().await };
        if self.stacks.crew.is_given() {
            // The process that has taken over hears what is left of the last ones.
            lightwait::rt::sleep(LAST_REPORT).await;
        }
        self.stacks.tell(crew::LAST_ROUND);
        self.stacks.crew.stopped(self.stacks.member, unfinished);
        self.stacks.crew.all_stopped(signals.hurry()).await;
    }

    /// Another process serves: connections that were begun are accepted, and each answer closes its
    /// own. A client that waits longer than that with its next request finds a closed connection.
    async fn part(&self, signals: &Signals) {
        self.service.server.handler().part();
        let ended = async {
            let stop = self.service.server.stop();
            while stop.tracked() + self.stacks.sum(Host::half_open) > 0 {
                lightwait::rt::sleep(DRAIN_POLL).await;
            }
        };
        tokio::select! {
            _ = lightwait::rt::timeout(PARTING, ended) => {}
            () = signals.hurry() => {}
        }
    }

    /// Connections whose clients lack some of an answer, after the cut.
    async fn cut_short(&self) -> usize {
        // The stacks give back the memory of those that were cut.
        lightwait::rt::sleep(DRAIN_POLL).await;
        let stop = self.service.server.stop();
        // The tasks of some ended before. Only the stacks know of them, and not how many there are.
        let is_undelivered = self.stacks.sum(Host::pages_in_use) > 0;
        (stop.cut_short() + stop.tracked()).max(is_undelivered.into())
    }

    /// Waits until the peers have acknowledged all written data, and for their FINs. It does not
    /// wait long for the FIN of a peer that keeps its half open.
    async fn drained(&self) {
        let mut patience = FIN_PATIENCE;
        while !patience.is_zero() && self.stacks.sum(Host::connections) > 0 {
            lightwait::rt::sleep(DRAIN_POLL).await;
            if self.stacks.sum(Host::pages_in_use) == 0 && !self.stacks.crew.is_given() {
                patience = patience.saturating_sub(DRAIN_POLL);
            }
        }
    }
}
