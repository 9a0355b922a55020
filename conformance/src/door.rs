//! The door: a [`World`] under one mutex, entered from two threads.
//!
//! The rules by which time moves:
//!
//! - `gettimeofday` moves it by a microsecond a call, `usleep` by its argument, and
//!   `netdev_receive` from deadline to deadline until a packet leaves.
//! - A thread in a call that blocks sleeps on a condition variable. Before time moves, every
//!   sleeper has looked at the world as it is; one that wakes with a result *holds* time until it
//!   has read the clock, so that it learns exactly when its call ended.
//! - No other thread moves time for the thread that opened the door. When one of that thread's own
//!   calls blocks, it moves time itself.

use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};
use std::time::Duration;

use lightwait_core::Instant;

use crate::attempt::{Attempt, Progress};
use crate::errno::Errno;
use crate::world::World;

/// How far [`Door::receive`], or a blocking call of the thread that opened the door, moves time at
/// most before it gives up.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// Real time after which a thread that was woken and never read the clock holds it no longer.
const HOLD_AT_MOST: Duration = Duration::from_secs(2);

/// One microsecond: what reading the clock costs.
const TICK: Duration = Duration::from_micros(1);

/// One instance of the stack.
#[derive(Debug)]
pub struct Door {
    inside: Mutex<Inside>,
    /// The world has changed: sleepers look again.
    changed: Condvar,
    /// A sleeper has looked, or a holder has read the clock.
    settled: Condvar,
    /// The thread that opened the door.
    driver: ThreadId,
    /// The path of the socket that reports the state of its sockets.
    state_path: Option<PathBuf>,
}

#[derive(Debug)]
struct Inside {
    world: World,
    sleepers: Vec<Sleeper>,
    /// Threads that woke with a result and have not read the clock yet.
    holders: Vec<ThreadId>,
    /// Counts the changes that sleepers must look at.
    epoch: u64,
}

/// A thread in a call that blocks.
#[derive(Debug)]
struct Sleeper {
    thread: ThreadId,
    /// The epoch that it has looked at.
    seen: u64,
    /// When it wants to be woken at the latest.
    until: Option<Instant>,
}

type Guard<'a> = MutexGuard<'a, Inside>;

impl Inside {
    /// True if another thread has to look, or to read the clock, before `me` may move time.
    fn is_unsettled(&self, me: ThreadId) -> bool {
        self.sleepers.iter().any(|sleeper| sleeper.seen != self.epoch)
            || self.holders.iter().any(|holder| *holder != me)
    }

    /// The time of the next event that needs no call.
    fn deadline(&self) -> Option<Instant> {
        let sleepers = self.sleepers.iter().filter_map(|sleeper| sleeper.until);
        sleepers.chain(self.world.deadline()).min()
    }
}

impl Door {
    /// Opens a door to `world`; the calling thread is the one that moves time. A socket at
    /// `state_path` reports the state of the door's sockets.
    pub fn new(world: World, state_path: Option<PathBuf>) -> Door {
        Door {
            inside: Mutex::new(Inside {
                world,
                sleepers: Vec::new(),
                holders: Vec::new(),
                epoch: 0,
            }),
            changed: Condvar::new(),
            settled: Condvar::new(),
            driver: thread::current().id(),
            state_path,
        }
    }

    /// The path of the socket that reports the state of its sockets.
    pub fn state_path(&self) -> Option<&Path> {
        self.state_path.as_deref()
    }

    // ---- calls

    /// Makes a call: tries `attempt` now, and again whenever the world has changed, until it is
    /// done. It blocks if the attempt asks to wait.
    ///
    /// # Errors
    /// Those of the attempt; `EINTR` if the thread that opened the door has waited for 120 s of
    /// virtual time.
    pub fn call<T>(&self, mut attempt: impl FnMut(&mut World) -> Attempt<T>) -> Result<T, Errno> {
        let me = thread::current().id();
        let mut inside = self.enter(me);
        let give_up = inside.world.now() + PATIENCE;
        let mut slept = false;
        loop {
            let outcome = attempt(&mut inside.world);
            let until = match outcome {
                Ok(Progress::Wait(until)) => until,
                Ok(Progress::Done(value)) => {
                    self.end_call(&mut inside, me, slept);
                    return Ok(value);
                }
                Err(error) => {
                    self.end_call(&mut inside, me, slept);
                    return Err(error);
                }
            };
            if inside.world.pump() {
                self.note_change(&mut inside);
            }
            if me != self.driver {
                inside = self.sleep(inside, me, until);
                slept = true;
                continue;
            }
            if inside.world.now() >= give_up {
                return Err(Errno::EINTR);
            }
            let limit = until.map_or(give_up, |until| until.min(give_up));
            inside = self.step(inside, me, limit);
        }
    }

    /// A call that looks or changes and never blocks.
    ///
    /// # Errors
    /// Those of `attempt`.
    pub fn call_now<T>(
        &self,
        attempt: impl FnOnce(&mut World) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        let me = thread::current().id();
        let mut inside = self.enter(me);
        let outcome = attempt(&mut inside.world);
        self.end_call(&mut inside, me, false);
        outcome
    }

    /// Looks at the world without being one of its threads.
    pub fn look<T>(&self, look: impl FnOnce(&World) -> T) -> T {
        look(&self.lock().world)
    }

    fn lock(&self) -> Guard<'_> {
        // A panic in a call leaves a world that is still worth looking at.
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A call of a thread that holds time ends the hold.
    fn enter(&self, me: ThreadId) -> Guard<'_> {
        let mut inside = self.lock();
        if inside.holders.contains(&me) {
            inside.holders.retain(|holder| *holder != me);
            self.settled.notify_all();
        }
        inside
    }

    fn end_call(&self, inside: &mut Guard<'_>, me: ThreadId, slept: bool) {
        inside.world.pump();
        if slept {
            inside.sleepers.retain(|sleeper| sleeper.thread != me);
            inside.holders.push(me);
            self.settled.notify_all();
        }
        self.note_change(inside);
    }

    fn note_change(&self, inside: &mut Guard<'_>) {
        inside.epoch += 1;
        self.changed.notify_all();
    }

    /// Sleeps until the world has changed or it is `until`.
    fn sleep<'a>(&self, mut inside: Guard<'a>, me: ThreadId, until: Option<Instant>) -> Guard<'a> {
        let seen = inside.epoch;
        inside.sleepers.retain(|sleeper| sleeper.thread != me);
        inside.sleepers.push(Sleeper { thread: me, seen, until });
        self.settled.notify_all();
        let changed = self.changed.wait_while(inside, |inside| inside.epoch == seen);
        changed.unwrap_or_else(PoisonError::into_inner)
    }

    // ---- time

    /// Returns the time, which costs a microsecond.
    pub fn time(&self) -> Instant {
        let me = thread::current().id();
        let inside = self.enter(me);
        // The time is known only now: other threads may have moved it meanwhile, and no two calls
        // may see the same.
        let inside = self.settle(inside, me);
        let until = inside.world.now() + TICK;
        self.advance(inside, me, until).world.now()
    }

    /// Lets `duration` pass.
    pub fn pass(&self, duration: Duration) {
        let me = thread::current().id();
        let inside = self.enter(me);
        let until = inside.world.now() + duration;
        drop(self.advance(inside, me, until));
    }

    /// A packet arrives: a whole IP packet.
    pub fn send(&self, packet: &[u8]) {
        let me = thread::current().id();
        let inside = self.enter(me);
        // Threads that woke see the world as it was before this packet.
        let mut inside = self.settle(inside, me);
        inside.world.on_packet(packet);
        self.end_call(&mut inside, me, false);
    }

    /// The next packet that leaves, and when it left. Time moves until there is one, for
    /// [`PATIENCE`] at most; then `None`.
    pub fn receive(&self) -> Option<(Vec<u8>, Instant)> {
        let me = thread::current().id();
        let mut inside = self.enter(me);
        let give_up = inside.world.now() + PATIENCE;
        loop {
            if let Some(departure) = inside.world.take_departure() {
                return Some(departure);
            }
            if inside.world.now() >= give_up {
                return None;
            }
            inside = self.step(inside, me, give_up);
        }
    }

    /// Moves time to `until`, through every deadline on the way, in order.
    fn advance<'a>(&self, mut inside: Guard<'a>, me: ThreadId, until: Instant) -> Guard<'a> {
        loop {
            inside = self.settle(inside, me);
            if inside.world.now() >= until {
                return inside;
            }
            inside = self.step(inside, me, until);
        }
    }

    /// Moves time to the next deadline, or to `limit` if that comes first.
    fn step<'a>(&self, inside: Guard<'a>, me: ThreadId, limit: Instant) -> Guard<'a> {
        let mut inside = self.settle(inside, me);
        let now = inside.world.now();
        // Due work is done already; it must not keep time from moving.
        let next = inside.deadline().map_or(limit, |next| next.max(now + TICK)).min(limit);
        let has_changed = inside.world.pass_to(next);
        let is_due = |sleeper: &Sleeper| sleeper.until.is_some_and(|until| until <= next);
        if has_changed || inside.sleepers.iter().any(is_due) {
            self.note_change(&mut inside);
        }
        inside
    }

    /// Waits until every sleeper has looked at the world, and those that have woken have read the
    /// clock.
    fn settle<'a>(&self, inside: Guard<'a>, me: ThreadId) -> Guard<'a> {
        let settled =
            self.settled.wait_timeout_while(inside, HOLD_AT_MOST, |inside| inside.is_unsettled(me));
        let (mut inside, timeout) = settled.unwrap_or_else(PoisonError::into_inner);
        if timeout.timed_out() {
            inside.holders.clear();
        }
        inside
    }
}
