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
use super::manager::Manager;
use super::reload::Reload;
use super::secure::Expiries;
use super::takeover::Takeover;
use crate::counts::{Counter, Counts};
use crate::log::{Log, Losses, Record};

/// How long a turn may take before the other shards report it.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long the others have to stop once connections are cut.
const LAST_CALL: Duration = Duration::from_secs(1);
/// The round of the counters at the end.
pub(super) const LAST_ROUND: u32 = u32::MAX;
/// How often they look.
const LOOK: Duration = Duration::from_millis(500);

/// All shards of a server.
pub(super) struct Crew {
    pub(super) clients: Clients,
    /// Where the admin door is.
    pub(super) admin: Option<AdminAddress>,
    /// The configuration file, if there is one.
    pub(super) reload: Option<Reload>,
    pub(super) manager: Arc<Manager>,
    /// The takeover, if there may be one.
    pub(super) takeover: Option<Arc<Takeover>>,
    log: Log,
    counts: Gather<Vec<Counts>>,
    stopping: Gather<usize>,
    stopped: Gather<usize>,
    /// Where shards that have stopped wait for the others.
    end: Barrier,
    pub(super) health: Arc<Health>,
    /// What the admin door and the takeover ask each shard, until that takes it.
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
        let health = Health { log: Some(log.losses()), ..Health::default() };
        Crew {
            clients: Clients::default(),
            admin,
            reload: None,
            takeover: None,
            manager: Arc::new(Manager::new(shards)),
            log,
            counts: Gather::new(shards),
            stopping: Gather::new(shards),
            stopped: Gather::new(shards),
            end: Barrier::new(all),
            health: Arc::new(health),
            questions: Mutex::new(questions.into_iter().map(Some).collect()),
        }
    }

    /// A crew whose shards follow that configuration file.
    pub(super) fn with_file(self, reload: Option<Reload>) -> Crew {
        Crew { reload, ..self }
    }

    /// A crew that another process may take over from.
    pub(super) fn with_takeover(self, takeover: Option<Arc<Takeover>>) -> Crew {
        Crew { takeover, ..self }
    }

    /// True once another process serves.
    pub(super) fn is_given(&self) -> bool {
        self.takeover.as_ref().is_some_and(|takeover| takeover.is_given())
    }

    /// What the admin door and the takeover ask this shard, if there is either.
    pub(super) fn questions(&self, member: Member) -> Option<Receiver<Question>> {
        let mut all = self.questions.lock().unwrap_or_else(PoisonError::into_inner);
        all.get_mut(usize::from(member.index))?.take()
    }

    /// A shard tells the counters of its stacks, in the round that a signal began or in the
    /// [last](LAST_ROUND): the last one's telling logs the sums.
    pub(super) fn tell(&self, member: Member, round: u32, counts: Vec<Counts>) {
        let Some(all) = self.counts.add(member.index, round, counts) else { return };
        let mut shards = all.into_iter();
        let mut sums = shards.next().unwrap_or_default();
        for shard in shards {
            sums.iter_mut().zip(&shard).for_each(|(sum, counts)| sum.merge(counts));
        }
        if let Some(first) = sums.first_mut() {
            first.add(&self.health.counters());
        }
        for counts in sums {
            self.log.write(Record::Counts(Box::new(counts)));
        }
    }

    /// A shard stops, with so many connections.
    pub(super) fn stopping(&self, member: Member, connections: usize) {
        self.health.is_stopping.store(true, Ordering::Relaxed);
        if let Some(all) = self.stopping.add(member.index, 0, connections) {
            // Else the service goes on, in the process that the manager knows by now.
            if !self.is_given() {
                self.manager.stopping();
            }
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
    pub(super) fn stopped(&self, member: Member, unfinished: usize) {
        if let Some(all) = self.stopped.add(member.index, 0, unfinished) {
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
    /// Lines of the log that are lost.
    log: Option<Losses>,
    /// When its certificates expire.
    pub(super) expiries: Expiries,
    /// Tells those who accept on the kernel's stack that another process does now.
    pub(super) given: Arc<tokio::sync::Notify>,
}

impl Health {
    /// Turns of any shard that took too long.
    fn stalls(&self) -> Counter {
        const MEANING: &str = "Times that a shard was busy with one thing for two seconds.";
        Counter::of("shard_stalls", self.stalls.load(Ordering::Relaxed), MEANING)
    }

    /// What is counted for the program, and not for a shard.
    pub(super) fn counters(&self) -> [Counter; 2] {
        const MEANING: &str = "Lines of the log, also of requests, that were lost: its output was \
                               too slow, or failed.";
        let lost = self.log.as_ref().map_or(0, Losses::lines);
        [self.stalls(), Counter::of("log_lines_lost", lost, MEANING)]
    }

    /// True once a shard has begun to stop.
    pub(super) fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Relaxed)
    }
}

/// Collects something of every shard, round by round.
struct Gather<T> {
    state: Mutex<Round<T>>,
}

/// What was collected in a round.
struct Round<T> {
    number: u32,
    slots: Vec<Option<T>>,
}

impl<T> Gather<T> {
    fn new(shards: u16) -> Gather<T> {
        let slots = (0..shards).map(|_| None).collect();
        Gather { state: Mutex::new(Round { number: 0, slots }) }
    }

    /// Adds what a shard has in a round. Returns everything once the last one has. A later round
    /// ends those before: a shard that was busy meanwhile has nothing to say of them.
    fn add(&self, shard: u16, number: u32, one: T) -> Option<Vec<T>> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if number < state.number {
            return None;
        }
        if number > state.number {
            state.number = number;
            state.slots.iter_mut().for_each(|slot| *slot = None);
        }
        state.slots[usize::from(shard)] = Some(one);
        if state.slots.iter().any(Option::is_none) {
            return None;
        }
        state.slots.iter_mut().map(Option::take).collect()
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
        let (log, _writer) = Log::start(crate::log::Form::JSON, outputs).unwrap();
        let crew = Crew::new(2, log, Vec::new(), None);
        let never = std::future::pending;
        tokio::join!(crew.all_stopped(never()), crew.all_stopped(never()));
        let patience = Duration::from_millis(20);
        let alone = tokio::time::timeout(patience, crew.all_stopped(never()));
        assert!(alone.await.is_err());
    }

    #[test]
    fn a_round_has_each_shard_once() {
        let gather = Gather::new(3);
        assert_eq!((gather.add(1, 1, 'a'), gather.add(0, 1, 'b')), (None, None));
        assert_eq!(gather.add(1, 1, 'c'), None, "the same shard again");
        assert_eq!(gather.add(2, 1, 'd'), Some(vec!['b', 'c', 'd']));
        // A shard was stuck and has missed a round.
        assert_eq!((gather.add(0, 2, 'a'), gather.add(1, 2, 'b')), (None, None));
        assert_eq!((gather.add(0, 3, 'e'), gather.add(2, 3, 'f')), (None, None));
        assert_eq!(gather.add(1, 2, 'b'), None, "too late");
        assert_eq!(gather.add(1, 3, 'g'), Some(vec!['e', 'g', 'f']));
    }
}
