//! Drives shards, or anything else, inside a tokio `current_thread` runtime, as one of its tasks.
//!
//! Tokio's own tasks may use the sockets: a write in such a task wakes the driver, and a frame that
//! the driver receives wakes such tasks. (A multi-threaded runtime cannot drive shards, which stay
//! on their thread; it has the sockets of [`net`](crate::net).)

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep};

use super::{Driven, turn_all};
use crate::device::watch::Watch;

/// Passes over everything before tokio's other tasks get their turn.
const PASSES: usize = 8;

/// Drives `all` until it is dropped or one of them fails, such as a shard's device. Deadlines are
/// kept to tokio's millisecond.
///
/// ```no_run
/// # async fn example(shard: lightwait::shard::Shard) {
/// let handle = shard.handle();
/// tokio::task::spawn_local(lightwait::driver::drive(vec![shard]));
/// let stream = lightwait::local::TcpStream::connect_on(&handle, "10.9.0.1:80").await;
/// # }
/// ```
///
/// # Panics
///
/// Outside a tokio runtime with I/O and time enabled.
pub async fn drive<D: Driven>(mut all: Vec<D>) -> io::Result<Infallible> {
    let mut watches = watch_all(&all)?;
    let mut sleep = std::pin::pin!(tokio::time::sleep(Duration::ZERO));
    // Tokio's budget of operations is meant for tokio's tasks. Here many tasks share one, and a
    // turn has budgets of its own.
    tokio::task::coop::unconstrained(poll_fn(|context| {
        poll_drive(&mut all, &mut watches, sleep.as_mut(), context)
    }))
    .await
}

/// Watches all descriptors, in order.
fn watch_all<D: Driven>(all: &[D]) -> io::Result<Vec<Watch>> {
    let mut watches = Vec::new();
    for driven in all {
        driven.descriptors(&mut |descriptor| watches.push(Watch::new(descriptor.fd)));
    }
    watches.into_iter().collect()
}

fn poll_drive<D: Driven>(
    all: &mut [D],
    watches: &mut [Watch],
    mut sleep: Pin<&mut Sleep>,
    context: &mut Context<'_>,
) -> Poll<io::Result<Infallible>> {
    for _ in 0..PASSES {
        let (mut watches, mut armed) = (watches.iter_mut(), Ok(()));
        for driven in &mut *all {
            driven.set_waker(context.waker());
            driven.descriptors(&mut |descriptor| {
                // The next turn takes all that is there, or reports that it has more to do.
                if let Some(watch) = watches.next().filter(|_| armed.is_ok()) {
                    armed = watch.rearm(descriptor.wants_writable, context);
                }
            });
        }
        armed?;
        match turn_all(all)? {
            Some(Duration::ZERO) => continue,
            Some(wait) => sleep.as_mut().reset(Instant::now() + wait),
            None => return Poll::Pending,
        }
        if sleep.as_mut().poll(context).is_pending() {
            return Poll::Pending;
        }
    }
    context.waker().wake_by_ref();
    Poll::Pending
}
