//! Time for a shard's tasks: [`sleep`], [`timeout`] and [`interval`] in nanoseconds on the shard's
//! own deadlines; with the feature `hyper`, its timer as well. In virtual time they sleep
//! virtually. Tokio's own need a tokio runtime, and panic without one.

#[cfg(feature = "hyper")]
mod hyper;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant as StdInstant};

use lightwait_core::Instant;

use crate::shard::state::{self, Local};
use crate::shard::timers::TimerKey;

#[cfg(feature = "hyper")]
pub use self::hyper::Timer;

/// Sleeps for that long. The deadline is exact to the ns; the driver decides how late it wakes.
///
/// # Panics
///
/// If no shard is current.
pub fn sleep(duration: Duration) -> Sleep {
    Sleep::new(state::current().now() + duration)
}

/// Sleeps until that instant.
pub fn sleep_until(deadline: Instant) -> Sleep {
    Sleep::new(deadline)
}

/// The time at this very moment, by the shard's measurement clock. `Timer` and
/// [`Handle::now`](crate::shard::Handle::now) return the time at which the turn began, since that
/// costs nothing. In virtual time both are equal.
///
/// # Panics
///
/// If no shard is current.
pub fn measure() -> StdInstant {
    let local = state::current();
    local.to_std(local.measure())
}

/// Waits for `future`, but not longer than `duration`.
///
/// # Panics
///
/// If no shard is current.
pub async fn timeout<F: Future>(duration: Duration, future: F) -> Result<F::Output, Elapsed> {
    let mut sleep = sleep(duration);
    let mut future = std::pin::pin!(future);
    std::future::poll_fn(|context| match future.as_mut().poll(context) {
        Poll::Ready(output) => Poll::Ready(Ok(output)),
        Poll::Pending => Pin::new(&mut sleep).poll(context).map(|()| Err(Elapsed)),
    })
    .await
}

/// The time ran out before the future ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Elapsed;

impl fmt::Display for Elapsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("deadline has elapsed")
    }
}

impl std::error::Error for Elapsed {}

/// Ticks each `period`, the first time at once. A tick that is late, because the task was busy, is
/// followed by the next at its own time.
///
/// # Panics
///
/// If no shard is current, or `period` is zero.
pub fn interval(period: Duration) -> Interval {
    assert!(!period.is_zero(), "a period of zero would never let other tasks run");
    Interval { next: state::current().now(), period }
}

/// See [`interval`].
#[derive(Debug)]
pub struct Interval {
    next: Instant,
    period: Duration,
}

impl Interval {
    /// Waits for the next tick, and returns the time at which it was due. If it is dropped before,
    /// the tick is still to come.
    pub async fn tick(&mut self) -> Instant {
        sleep_until(self.next).await;
        let due = self.next;
        self.next = due + self.period;
        due
    }

    /// The time between two ticks.
    pub fn period(&self) -> Duration {
        self.period
    }
}

/// Lets the shard's other tasks run, once.
pub async fn yield_now() {
    let mut has_yielded = false;
    std::future::poll_fn(|context| {
        if has_yielded {
            return Poll::Ready(());
        }
        has_yielded = true;
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Sleeps until a deadline. It belongs to the shard whose task polls it first. It holds the shard's
/// number and no reference, so that it is `Send` where a trait requires that.
#[derive(Debug)]
pub struct Sleep {
    deadline: Instant,
    /// The shard's number and the deadline's key, once polled.
    registered: Option<(u64, TimerKey)>,
}

impl Sleep {
    fn new(deadline: Instant) -> Self {
        Sleep { deadline, registered: None }
    }

    /// The deadline.
    pub fn deadline(&self) -> Instant {
        self.deadline
    }

    fn poll_on(&mut self, local: &Local, context: &Context<'_>) -> Poll<()> {
        if self.deadline <= local.now() {
            self.unregister(local);
            return Poll::Ready(());
        }
        match self.registered {
            Some((shard, key)) => {
                assert_eq!(shard, local.shard(), "a sleep stays with its shard");
                local.timers().set_waker(key, context.waker());
            }
            None => {
                let key = local.timers().add(self.deadline, context.waker().clone());
                self.registered = Some((local.shard(), key));
            }
        }
        Poll::Pending
    }

    fn unregister(&mut self, local: &Local) {
        if let Some((shard, key)) = self.registered.take()
            && shard == local.shard()
        {
            let waker = local.timers().remove(key);
            drop(waker);
        }
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        self.poll_on(&state::current(), context)
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        // If it is dropped outside its shard's turn, the entry stays until its deadline, which
        // wakes no live task.
        if self.registered.is_some()
            && let Some(local) = state::try_current()
        {
            self.unregister(&local);
        }
    }
}
