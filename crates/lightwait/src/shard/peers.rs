//! A shard's place among the shards of one host: rings to and from each of them, and a bell.
//!
//! ```text
//!   shard 0 ──ring──▶ shard 1      a ring for each ordered pair, of one producer and one consumer:
//!           ◀──ring──              no lock, and a store to push
//!   after a turn that has pushed, the receiver's bell is rung: it wakes a shard that sleeps
//! ```
//!
//! A ring that is full loses what is pushed: a shard that is busy never holds up another.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;

use lightwait_core::config::Member;
use lightwait_core::ip::shards::Message;
use lightwait_core::{Host, Instant};
use rtrb::{Consumer, Producer, RingBuffer};

use super::Handle;

/// Messages on their way from one shard to another, at most: some turns' frames.
const RING: usize = 1024;

/// A call that another thread wants made on a shard.
type Errand = Box<dyn FnOnce(&Handle) + Send>;

/// What other threads may touch of a shard.
#[derive(Default)]
struct Bell {
    /// There may be messages or errands since the shard last looked.
    is_rung: AtomicBool,
    inside: Mutex<Inside>,
    /// The number of turns begun and ended: odd while one runs.
    turns: AtomicU64,
}

#[derive(Default)]
struct Inside {
    driver: Option<Waker>,
    errands: Vec<Errand>,
    /// The shard has ended: nobody takes errands any more.
    has_ended: bool,
}

impl Bell {
    fn ring(&self) {
        if self.is_rung.swap(true, Ordering::AcqRel) {
            return;
        }
        let driver = self.inside().driver.clone();
        if let Some(driver) = driver {
            driver.wake();
        }
    }

    /// The lock. A panic under it leaves nothing half-done.
    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A shard's place among the shards of one host. [`Shard::seated`](super::Shard::seated) takes it.
pub struct Seat {
    member: Member,
    /// By the index of the other; none to itself.
    to: Vec<Option<Producer<Message>>>,
    from: Vec<Option<Consumer<Message>>>,
    /// Those that were sent something in this turn, a bit each.
    owed: u64,
    bells: Arc<[Bell]>,
}

impl Seat {
    /// The places of `count` shards, in order of their indices.
    ///
    /// # Panics
    /// If there are none, or more than [`SHARDS_MAX`](lightwait_core::config::SHARDS_MAX).
    pub fn all(count: u16) -> Vec<Seat> {
        assert!((1..=lightwait_core::config::SHARDS_MAX).contains(&count), "{count} shards");
        let bells: Arc<[Bell]> = (0..count).map(|_| Bell::default()).collect();
        let mut seats: Vec<Seat> = (0..count)
            .map(|index| Seat {
                member: Member { index, of: count },
                to: Vec::new(),
                from: (0..count).map(|_| None).collect(),
                owed: 0,
                bells: bells.clone(),
            })
            .collect();
        for one in 0..usize::from(count) {
            for other in 0..usize::from(count) {
                let (to, from) = RingBuffer::new(RING);
                let is_other = one != other;
                seats[one].to.push(is_other.then_some(to));
                seats[other].from[one] = is_other.then_some(from);
            }
        }
        seats
    }

    /// Which shard it is, and of how many: for [`Config::member`](lightwait_core::Config::member).
    pub fn member(&self) -> Member {
        self.member
    }

    /// The shards of this host, for any thread.
    pub fn peers(&self) -> Peers {
        Peers { bells: self.bells.clone() }
    }

    fn bell(&self) -> &Bell {
        &self.bells[usize::from(self.member.index)]
    }

    /// True if messages or errands have come.
    pub(super) fn has_mail(&self) -> bool {
        self.bell().is_rung.load(Ordering::Acquire)
    }

    /// Hands all that has come from other shards to `host`, and returns the errands.
    pub(super) fn receive(&mut self, now: Instant, host: &mut Host) -> Vec<Errand> {
        self.receive_by(|from, message| host.on_message(now, from, message))
    }

    /// Hands it to `take`, each with the index of its sender.
    pub(super) fn receive_by(&mut self, mut take: impl FnMut(u16, Message)) -> Vec<Errand> {
        if !self.has_mail() {
            return Vec::new();
        }
        // Before the rings are read: what comes later rings again. A store would not do, since it
        // may come to pass after the reads.
        self.bell().is_rung.swap(false, Ordering::AcqRel);
        for (from, ring) in self.from.iter_mut().enumerate() {
            let Some(ring) = ring else { continue };
            for _ in 0..ring.slots() {
                let Ok(message) = ring.pop() else { break };
                take(from as u16, message);
            }
        }
        std::mem::take(&mut self.bell().inside().errands)
    }

    /// Sends what `host` has to tell the others.
    pub(super) fn send(&mut self, host: &mut Host) {
        while let Some((to, message)) = host.message() {
            let Some(Some(ring)) = self.to.get_mut(usize::from(to)) else { continue };
            match ring.push(message) {
                Ok(()) => self.owed |= 1 << to,
                Err(rtrb::PushError::Full(message)) => host.on_message_lost(to, &message),
            }
        }
        while self.owed != 0 {
            let to = self.owed.trailing_zeros();
            self.owed &= self.owed - 1;
            self.bells[to as usize].ring();
        }
    }

    pub(super) fn set_driver(&self, waker: &Waker) {
        self.bell().inside().driver = Some(waker.clone());
    }

    /// Notes that a turn begins or ends.
    pub(super) fn note_turn(&self) {
        // Nobody else writes it.
        let turns = &self.bell().turns;
        turns.store(turns.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut inside = self.bell().inside();
        inside.has_ended = true;
        let errands = std::mem::take(&mut inside.errands);
        inside.driver = None;
        // Dropped with nothing locked: the drop may call anything.
        drop(inside);
        drop(errands);
    }
}

impl fmt::Debug for Seat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Seat").field("member", &self.member).finish_non_exhaustive()
    }
}

/// The shards of one host, for any thread. Cheap to clone.
#[derive(Clone)]
pub struct Peers {
    bells: Arc<[Bell]>,
}

impl Peers {
    /// How many there are.
    pub fn count(&self) -> u16 {
        self.bells.len() as u16
    }

    /// Calls `errand` in the next turn of the shard with that index. It is dropped if there is no
    /// such shard, or that has ended.
    pub fn call(&self, index: u16, errand: impl FnOnce(&Handle) + Send + 'static) {
        let Some(bell) = self.bells.get(usize::from(index)) else { return };
        let mut inside = bell.inside();
        if inside.has_ended {
            // Dropped with nothing locked: the drop may call anything.
            drop(inside);
            return;
        }
        inside.errands.push(Box::new(errand));
        drop(inside);
        bell.ring();
    }

    /// Calls `errand` in the next turn of every shard.
    pub fn call_all(&self, errand: impl Fn(&Handle) + Clone + Send + 'static) {
        for index in 0..self.count() {
            let errand = errand.clone();
            self.call(index, move |handle| errand(handle));
        }
    }

    /// A watch over the turns of all shards.
    pub fn watch(&self) -> Watch {
        Watch { peers: self.clone(), seen: vec![Seen::default(); self.bells.len()] }
    }
}

impl fmt::Debug for Peers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Peers").field("count", &self.count()).finish()
    }
}

/// Finds shards whose turn does not end: a task in it never yields, or waits for the kernel.
#[derive(Clone, Debug)]
pub struct Watch {
    peers: Peers,
    seen: Vec<Seen>,
}

/// A shard's turns when they were last looked at.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    turns: u64,
    since: Option<Instant>,
}

impl Watch {
    /// The shards that are in one turn since `patience` ago or longer, as far as earlier calls have
    /// seen, and since when. Each is returned once a turn.
    pub fn stalled(&mut self, now: Instant, patience: Duration) -> Vec<(u16, Duration)> {
        let mut stalled = Vec::new();
        for (index, (bell, seen)) in self.peers.bells.iter().zip(&mut self.seen).enumerate() {
            let turns = bell.turns.load(Ordering::Relaxed);
            if turns != seen.turns || turns % 2 == 0 {
                *seen = Seen { turns, since: Some(now) };
                continue;
            }
            let long = seen.since.map(|since| now.since(since)).filter(|long| *long >= patience);
            if let Some(long) = long {
                seen.since = None;
                stalled.push((index as u16, long));
            }
        }
        stalled
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_that_does_not_end_is_reported_once() {
        let seats = Seat::all(2);
        let mut watch = seats[0].peers().watch();
        let second = Duration::from_secs(1);
        let at = |seconds: u64| Instant::from_millis(1000 * seconds);
        seats[1].note_turn();
        assert_eq!(watch.stalled(at(1), second), []);
        assert_eq!(watch.stalled(at(3), second), [(1, second * 2)]);
        assert_eq!(watch.stalled(at(5), second), [], "once a turn");
        seats[1].note_turn();
        assert_eq!(watch.stalled(at(6), second), []);
        assert_eq!(watch.stalled(at(9), second), [], "it sleeps");
        seats[1].note_turn();
        assert_eq!(watch.stalled(at(10), second), []);
        assert_eq!(watch.stalled(at(12), second), [(1, second * 2)], "the next turn");
    }

    #[test]
    fn errands_of_a_shard_that_has_ended_are_dropped() {
        let mut seats = Seat::all(2);
        let (peers, errand) = (seats[0].peers(), Arc::new(()));
        let call = |index: u16| {
            let kept = errand.clone();
            peers.call(index, move |_| drop(kept));
        };
        call(1);
        call(2);
        assert_eq!(Arc::strong_count(&errand), 2, "no such shard");
        seats.pop();
        assert_eq!(Arc::strong_count(&errand), 1, "it had not been called");
        call(1);
        assert_eq!(Arc::strong_count(&errand), 1);
        call(0);
        assert_eq!(Arc::strong_count(&errand), 2, "the other lives");
    }

    #[test]
    #[should_panic(expected = "0 shards")]
    fn a_host_has_a_shard() {
        Seat::all(0);
    }
}
