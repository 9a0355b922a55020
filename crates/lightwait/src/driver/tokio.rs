//! Drives shards inside a tokio `current_thread` runtime, as one of its tasks.
//!
//! Tokio's own tasks may use the sockets: a write in such a task wakes the driver, and a frame that
//! the driver receives wakes such tasks. (A multi-threaded runtime cannot drive shards: sockets are
//! `!Send`.)

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep};

use super::turn_all;
use crate::device::watch::Watch;
use crate::shard::Shard;

/// Passes over all shards before tokio's other tasks get their turn.
const PASSES: usize = 8;

/// Drives the shards until it is dropped or a device fails. Deadlines are kept to tokio's
/// millisecond.
///
/// ```no_run
/// # async fn example(shard: lightwait::shard::Shard) {
/// let handle = shard.handle();
/// tokio::task::spawn_local(lightwait::driver::drive(vec![shard]));
/// let stream = lightwait::net::TcpStream::connect_on(&handle, "10.9.0.1:80").await;
/// # }
/// ```
///
/// # Panics
///
/// Outside a tokio runtime with I/O and time enabled.
pub async fn drive(mut shards: Vec<Shard>) -> io::Result<Infallible> {
    let watch = |shard: &Shard| shard.wait_on().map(Watch::new).transpose();
    let devices: Vec<_> = shards.iter().map(watch).collect::<Result<_, _>>()?;
    let mut sleep = std::pin::pin!(tokio::time::sleep(Duration::ZERO));
    // Tokio's budget of operations is meant for tokio's tasks. Here many tasks share one, and a
    // turn has budgets of its own.
    tokio::task::coop::unconstrained(poll_fn(|context| {
        poll_drive(&mut shards, &devices, sleep.as_mut(), context)
    }))
    .await
}

fn poll_drive(
    shards: &mut [Shard],
    devices: &[Option<Watch>],
    mut sleep: Pin<&mut Sleep>,
    context: &mut Context<'_>,
) -> Poll<io::Result<Infallible>> {
    for _ in 0..PASSES {
        for (shard, device) in shards.iter().zip(devices) {
            shard.local().set_driver(context.waker());
            if let Some(device) = device {
                // The next turn takes all frames, or reports that it has more to do.
                device.rearm(shard.wants_writable(), context)?;
            }
        }
        match turn_all(shards)? {
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
