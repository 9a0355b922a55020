//! What the shards of one server have together: they log as one, and count as one.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lightwait::rt;
use lightwait::shards::Peers;
use lightwait_core::config::Member;
use lightwait_http::Clients;
use tokio::sync::Barrier;
use tokio::sync::mpsc::Receiver;

use super::admin::{AdminAddress, Question};
use crate::counts::{Counter, Counts};
use crate::log::{Log, Record};

/// How long a turn may take before the other shards report it.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long the others have to stop once connections are cut.
const LAST_CALL: Duration = Duration::from_secs(1);
/// How often they look.
const LOOK: Duration = Duration::from_millis(500);

/// All shards of a server.
pub(super) struct Crew {
    pub(super) clients: Clients,
    /// Where the admin door is.
    pub(super) admin: Option<AdminAddress>,
    log: Log,
    counts: Gather<Vec<Counts>>,
    stopping: Gather<usize>,
    stopped: Gather<usize>,
    /// Where shards that have stopped wait for the others.
    end: Barrier,
    pub(super) health: Arc<Health>,
    /// What the admin door asks each shard, until that takes it.
    questions: Mutex<Vec<Option<Receiver<Question>>>>,
}

impl Crew {
    pub(super) fn new(
        shards: u16,
        log: Log,
        questions: Vec<Receiver<Question>>,
        admin: Option<AdminAddress>,
    ) -> Crew {
        let all = usize::from(shards);
        Crew {
            clients: Clients::default(),
            admin,
            log,
            counts: Gather::new(all),
            stopping: Gather::new(all),
            stopped: Gather::new(all),
            end: Barrier::new(all),
            health: Arc::default(),
            questions: Mutex::new(questions.into_iter().map(Some).collect()),
        }
    }

    /// What the admin door asks this shard, if there is a door.
    pub(super) fn questions(&self, member: Member) -> Option<Receiver<Question>> {
        let mut all = self.questions.lock().unwrap_or_else(PoisonError::into_inner);
        all.get_mut(usize::from(member.index))?.take()
    }

    /// A shard tells the counters of its stacks: the last one's telling logs the sums.
    pub(super) fn tell(&self, counts: Vec<Counts>) {
        let Some(all) = self.counts.add(counts) else { return };
        let mut shards = all.into_iter();
        let mut sums = shards.next().unwrap_or_default();
        for shard in shards {
            sums.iter_mut().zip(&shard).for_each(|(sum, counts)| sum.merge(counts));
        }
        if let Some(first) = sums.first_mut() {
            first.add(&[self.health.stalls()]);
        }
        for counts in sums {
            self.log.write(Record::Counts(Box::new(counts)));
        }
    }

    /// A shard stops, with so many connections.
    pub(super) fn stopping(&self, connections: usize) {
        self.health.is_stopping.store(true, Ordering::Relaxed);
        if let Some(all) = self.stopping.add(connections) {
            self.log.write(Record::Stopping { connections: all.iter().sum() });
        }
    }

    /// Waits until every shard has stopped, or `hurry` and a little time more: a shard that has
    /// failed does not come. Until then a shard that is done must go on, since it may speak for the
    /// host, and a queue that closes changes the numbers of others.
    pub(super) async fn all_stopped(&self, hurry: impl Future<Output = ()>) {
        tokio::select! {
            _ = self.end.wait() => {}
            () = async { hurry.await; rt::sleep(LAST_CALL).await } => {}
        }
    }

    /// A shard has stopped; so many connections were cut short.
    pub(super) fn stopped(&self, unfinished: usize) {
        if let Some(all) = self.stopped.add(unfinished) {
            self.log.write(Record::Stopped { unfinished: all.iter().sum() });
        }
    }
}

/// How the shards are, for those who outlive them.
#[derive(Debug, Default)]
pub(super) struct Health {
    /// Turns that took longer than patience.
    stalls: AtomicU64,
    is_stopping: AtomicBool,
}

impl Health {
    /// Turns of any shard that took too long.
    pub(super) fn stalls(&self) -> Counter {
        const MEANING: &str = "Times that a shard was busy with one thing for two seconds.";
        Counter::of("shard_stalls", self.stalls.load(Ordering::Relaxed), MEANING)
    }

    /// True once a shard has begun to stop.
    pub(super) fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Relaxed)
    }
}

/// Collects something of every shard.
struct Gather<T> {
    all: usize,
    so_far: Mutex<Vec<T>>,
}

impl<T> Gather<T> {
    fn new(all: usize) -> Gather<T> {
        Gather { all, so_far: Mutex::new(Vec::new()) }
    }

    /// Adds what a shard has. Returns everything once the last one has.
    fn add(&self, one: T) -> Option<Vec<T>> {
        let mut so_far = self.so_far.lock().unwrap_or_else(PoisonError::into_inner);
        so_far.push(one);
        (so_far.len() >= self.all).then(|| std::mem::take(&mut *so_far))
    }
}

/// Logs and counts when the next shard is stuck in a turn, until the task is aborted.
pub(super) async fn watch(member: Member, peers: Peers, crew: Arc<Crew>) {
    let (mut watch, next) = (peers.watch(), (member.index + 1) % member.of);
    let handle = lightwait::shard::Handle::current();
    loop {
        rt::sleep(LOOK).await;
        for (index, long) in watch.stalled(handle.now(), PATIENCE) {
            if index == next {
                let text = format!(
                    "Shard {index} has been busy with one thing for {:.1} s: its clients wait.",
                    long.as_secs_f64()
                );
                crew.health.stalls.fetch_add(1, Ordering::Relaxed);
                crew.log.write(Record::Trouble { text });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_shard_waits_for_the_others_or_a_cut() {
        let outputs = crate::log::Outputs::new(std::io::sink(), std::io::sink());
        let (log, _writer) = Log::start(crate::log::Form::Json, outputs).unwrap();
        let crew = Crew::new(2, log, Vec::new(), None);
        let never = std::future::pending;
        tokio::join!(crew.all_stopped(never()), crew.all_stopped(never()));
        let patience = Duration::from_millis(20);
        let alone = tokio::time::timeout(patience, crew.all_stopped(never()));
        assert!(alone.await.is_err());
    }

    #[test]
    fn the_last_shard_gets_what_all_have_told() {
        let gather = Gather::new(3);
        assert_eq!((gather.add(1), gather.add(2)), (None, None));
        assert_eq!(gather.add(3), Some(vec![1, 2, 3]));
        assert_eq!(gather.add(4), None, "the next round");
    }
}
