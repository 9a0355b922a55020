//! Drivers run what is [`Driven`], such as a [`Shard`]: on a thread ([`run`]), or as a task of a
//! tokio runtime (`drive`).
//!
//! What one driver runs is driven together: in one pass each has its turn, and receives what the
//! others have sent.
//!
//! A thing of one's own runs beside shards. This one stops the driver after three ticks:
//!
//! ```
//! use std::{io, time::Duration};
//! use lightwait::{clock::Clock, driver::{self, Driven, SPIN, Stop}};
//! use lightwait_core::Instant;
//!
//! struct Ticker {
//!     clock: Clock,
//!     next: Instant,
//!     ticks: u32,
//!     stop: Stop,
//! }
//!
//! impl Driven for Ticker {
//!     fn now(&self) -> Instant {
//!         self.clock.now()
//!     }
//!     fn turn(&mut self, now: Instant) -> io::Result<()> {
//!         while self.next <= now {
//!             self.next = self.next + Duration::from_millis(5);
//!             self.ticks += 1;
//!         }
//!         if self.ticks >= 3 {
//!             self.stop.set();
//!         }
//!         Ok(())
//!     }
//!     fn deadline(&self, _now: Instant) -> Option<Instant> {
//!         Some(self.next)
//!     }
//! }
//!
//! # fn main() -> io::Result<()> {
//! let (server, client) = lightwait::Stack::memory()?;
//! let (clock, stop) = (Clock::new(), Stop::new());
//! let ticker = Ticker { next: clock.now(), clock, ticks: 0, stop: stop.clone() };
//! let (server, client) = (server.into_shard(), client.into_shard());
//! let mut all: [Box<dyn Driven>; 3] = [Box::new(server), Box::new(client), Box::new(ticker)];
//! driver::run(&mut all, &stop, SPIN)
//! # }
//! ```

mod sleeper;
#[cfg(feature = "tokio-driver")]
mod tokio;

#[cfg(feature = "tokio-driver")]
pub use self::tokio::drive;

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::Waker;
use std::time::{Duration, Instant as StdInstant};

use lightwait_core::Instant;

#[cfg(doc)]
use crate::shard::Shard;
use sleeper::Sleeper;

/// Something that a driver runs. It has work at once, by time, when a descriptor is ready, or when
/// someone wakes it.
///
/// A list of different things is one of `Box<dyn Driven>`.
pub trait Driven {
    /// The time by its own clock. From the first call on, real time drives it.
    fn now(&self) -> Instant;

    /// Does the work that there is, as if it took no time. Never waits.
    ///
    /// # Errors
    /// If it cannot go on. The driver then returns the error.
    fn turn(&mut self, now: Instant) -> io::Result<()>;

    /// The time of its next turn. `now` (or earlier) means at once, `None` means that only a
    /// descriptor or a wake brings work. The driver asks after everything has had its turn: another
    /// turn may have brought work.
    fn deadline(&self, now: Instant) -> Option<Instant>;

    /// Calls `visit` with each descriptor that brings work: always the same ones, in one order. A
    /// turn takes all that has come there, or the deadline says that there is more.
    fn descriptors<'a>(&'a self, visit: &mut dyn FnMut(Descriptor<'a>)) {
        let _ = visit;
    }

    /// Keeps `waker` in place of an earlier one. It must be woken when another thread, or a call
    /// between two turns, brings work.
    fn set_waker(&mut self, waker: &Waker) {
        let _ = waker;
    }
}

/// A descriptor that brings work.
#[derive(Clone, Copy, Debug)]
pub struct Descriptor<'a> {
    /// The driver waits until it is readable.
    pub fd: BorrowedFd<'a>,
    /// The driver waits until it is writable, too.
    pub wants_writable: bool,
}

impl<D: Driven + ?Sized> Driven for Box<D> {
    fn now(&self) -> Instant {
        (**self).now()
    }
    fn turn(&mut self, now: Instant) -> io::Result<()> {
        (**self).turn(now)
    }
    fn deadline(&self, now: Instant) -> Option<Instant> {
        (**self).deadline(now)
    }
    fn descriptors<'a>(&'a self, visit: &mut dyn FnMut(Descriptor<'a>)) {
        (**self).descriptors(visit);
    }
    fn set_waker(&mut self, waker: &Waker) {
        (**self).set_waker(waker);
    }
}

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
    sleepers: Mutex<Vec<Weak<Sleeper>>>,
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
        sleepers.iter().filter_map(Weak::upgrade).for_each(|sleeper| sleeper.rouse());
    }

    /// True once it is set.
    pub fn is_set(&self) -> bool {
        self.shared.is_set.load(Ordering::Acquire)
    }

    fn rouses(&self, sleeper: &Arc<Sleeper>) {
        let mut sleepers = self.shared.sleepers.lock().unwrap_or_else(PoisonError::into_inner);
        sleepers.retain(|known| known.strong_count() > 0);
        sleepers.push(Arc::downgrade(sleeper));
    }
}

/// Drives `all` on this thread until `stop` is set or one of them fails. Without work it looks for
/// some for the time of `spin` (see [`SPIN`]), then sleeps until a descriptor is ready, a wake or a
/// deadline.
///
/// # Errors
/// The failure of the first that fails, or the kernel has no file descriptor left.
pub fn run<D: Driven>(all: &mut [D], stop: &Stop, spin: Duration) -> io::Result<()> {
    let sleeper = Sleeper::new()?;
    stop.rouses(&sleeper);
    all.iter_mut().for_each(|driven| driven.set_waker(&Waker::from(sleeper.clone())));
    let mut idle_since = None;
    while !stop.is_set() {
        let wait = turn_all(all)?;
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
        sleeper.sleep(all, wait)?;
        idle_since = None;
    }
    Ok(())
}

/// Gives each a turn. Returns how long all will be idle: zero if one has work at once, `None` if
/// none has a deadline.
fn turn_all<D: Driven>(all: &mut [D]) -> io::Result<Option<Duration>> {
    for driven in &mut *all {
        driven.turn(driven.now())?;
    }
    // Asked after all have run: a later one may have sent a frame to an earlier one.
    let wait = |driven: &D| {
        let now = driven.now();
        driven.deadline(now).map(|deadline| deadline.since(now))
    };
    Ok(all.iter().filter_map(wait).min())
}
