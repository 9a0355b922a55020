//! Drivers call [`Shard::turn`]: a thread ([`run`]), or a task of a tokio runtime (`drive`).
//!
//! Shards of one thread, joined by wires in memory, are driven together: in one pass each receives
//! what the others have sent.

#[cfg(feature = "tokio-driver")]
mod tokio;

#[cfg(feature = "tokio-driver")]
pub use self::tokio::drive;

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant as StdInstant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::executor::inbox::Inbox;
use crate::shard::Shard;

/// The default time for which [`run`] looks for work before it sleeps: about the cost of falling
/// asleep and being woken.
pub const SPIN: Duration = Duration::from_micros(10);

/// The rate at which a driver can wake a shard, in Hz. Tokio's timers count in ms. [`run`] waits
/// more finely, but a shard does not know its driver.
pub(crate) const WAKES_HZ: u64 = 1000;

/// Makes [`run`] return, from any thread. Clones are the same switch.
#[derive(Clone, Debug, Default)]
pub struct Stop {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    is_set: AtomicBool,
    sleepers: Mutex<Vec<Arc<Inbox>>>,
}

impl Stop {
    /// A switch that is not set.
    pub fn new() -> Self {
        Stop::default()
    }

    /// Sets the switch, for good.
    pub fn set(&self) {
        self.shared.is_set.store(true, Ordering::Release);
        let sleepers = self.shared.sleepers.lock().unwrap_or_else(PoisonError::into_inner);
        sleepers.iter().for_each(|inbox| inbox.nudge());
    }

    /// True once it is set.
    pub fn is_set(&self) -> bool {
        self.shared.is_set.load(Ordering::Acquire)
    }

    fn rouses(&self, inbox: Arc<Inbox>) {
        let mut sleepers = self.shared.sleepers.lock().unwrap_or_else(PoisonError::into_inner);
        // The inbox has no other owner: its shard is gone.
        sleepers.retain(|known| Arc::strong_count(known) > 1 && !Arc::ptr_eq(known, &inbox));
        sleepers.push(inbox);
    }
}

/// Drives the shards on this thread until `stop` is set or a device fails. Without work it looks
/// for some for the time of `spin` (see [`SPIN`]), then sleeps until a frame, a wake or a deadline.
pub fn run(shards: &mut [Shard], stop: &Stop, spin: Duration) -> io::Result<()> {
    for shard in &*shards {
        stop.rouses(shard.local().executor().inbox().clone());
    }
    let mut idle_since = None;
    while !stop.is_set() {
        let wait = turn_all(shards)?;
        if wait == Some(Duration::ZERO) {
            idle_since = None;
            continue;
        }
        if !spin.is_zero() {
            let idle_since = *idle_since.get_or_insert_with(StdInstant::now);
            if idle_since.elapsed() < spin {
                std::hint::spin_loop();
                continue;
            }
        }
        sleep(shards, wait)?;
        idle_since = None;
    }
    Ok(())
}

/// Gives each shard a turn. Returns how long the shards will be idle: zero if one has work at once,
/// `None` if no deadline is set.
fn turn_all(shards: &mut [Shard]) -> io::Result<Option<Duration>> {
    for shard in &mut *shards {
        let now = shard.local().start_clock().now();
        shard.turn(now);
        if let Some(failure) = shard.take_failure() {
            return Err(failure);
        }
    }
    // Asked again after all have run: a later shard may have sent a frame to an earlier one.
    let wait = |shard: &Shard| {
        let now = shard.local().start_clock().now();
        shard.deadline(now).map(|deadline| deadline.since(now))
    };
    Ok(shards.iter().filter_map(wait).min())
}

/// Sleeps until a frame has come, another thread has woken a task, or `wait` is over.
fn sleep(shards: &[Shard], wait: Option<Duration>) -> io::Result<()> {
    let devices: Vec<_> = shards.iter().map(|shard| (shard, shard.wait_on())).collect();
    let events: Vec<_> =
        shards.iter().map(|shard| shard.local().executor().inbox().event()).collect();
    let mut fds = Vec::with_capacity(2 * shards.len());
    for (shard, device) in &devices {
        if let Some(device) = device {
            let writable = if shard.wants_writable() { PollFlags::OUT } else { PollFlags::empty() };
            fds.push(PollFd::new(device, PollFlags::IN | writable));
        }
    }
    fds.extend(events.iter().map(|event| PollFd::new(event, PollFlags::IN)));
    // A wait too long for the kernel's type is as good as none.
    let timeout = wait.and_then(|wait| Timespec::try_from(wait).ok());
    match poll(&mut fds, timeout.as_ref()) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
