//! Time for a shard's tasks: sleeps in nanoseconds on the shard's own deadlines; with the feature
//! `hyper` its timer as well. In virtual time they sleep virtually.

#[cfg(feature = "hyper")]
mod hyper;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant as StdInstant};

use lightwait_core::Instant;

use crate::shard::local::{self, Local};
use crate::shard::timers::TimerKey;

#[cfg(feature = "hyper")]
pub use self::hyper::Timer;

/// Sleeps for that long. Nanoseconds count; how late it wakes is up to whoever drives the shard.
///
/// # Panics
///
/// If no shard is current.
pub fn sleep(duration: Duration) -> Sleep {
    Sleep::new(local::current().now() + duration)
}

/// Sleeps until then.
pub fn sleep_until(deadline: Instant) -> Sleep {
    Sleep::new(deadline)
}

/// What time it is at this very moment, by the shard's measurement clock. `Timer` and
/// [`Handle::now`](crate::shard::Handle::now) tell the time at which the turn began, since that
/// costs nothing. In made time both are the same.
///
/// # Panics
///
/// If no shard is current.
pub fn measure() -> StdInstant {
    let local = local::current();
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

/// The time was over before the future.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Elapsed;

impl fmt::Display for Elapsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("deadline has elapsed")
    }
}

impl std::error::Error for Elapsed {}

/// Lets the other tasks of the shard run, once.
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

/// Sleeps until a deadline. It belongs to the shard whose task first polls it; it holds a name and
/// no reference, so that it may be `Send` where a trait asks for that.
#[derive(Debug)]
pub struct Sleep {
    deadline: Instant,
    /// The shard, and what it calls the deadline, once polled.
    registered: Option<(u64, TimerKey)>,
}

impl Sleep {
    fn new(deadline: Instant) -> Self {
        Sleep { deadline, registered: None }
    }

    /// When it ends.
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
        self.poll_on(&local::current(), context)
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        // Dropped outside its shard's turn it stays till its deadline, and then wakes nobody.
        if self.registered.is_some()
            && let Some(local) = local::try_current()
        {
            self.unregister(&local);
        }
    }
}
