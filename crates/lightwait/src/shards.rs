//! One host on several cores: a shard on a thread of its own for each.
//!
//! Each shard has a queue of the device, or a device of its own, and owns the connections that
//! [`Steering`](lightwait_core::flow::Steering) gives it. Nothing is shared on the way of a
//! segment that comes to its owner.
//!
//! ```
//! use std::io;
//! use lightwait::device::MemoryDevice;
//! use lightwait::local::TcpListener;
//! use lightwait::shard::Shard;
//! use lightwait::shards::{self, Cores};
//! use lightwait_core::{Capabilities, Config, Medium};
//!
//! # fn main() -> io::Result<()> {
//! let wire = Capabilities::plain(Medium::Ip, 1500);
//! let host = Config::new(wire, "10.9.0.2/24".parse().unwrap(), lightwait::stack::secret()?);
//! // A program has the queues of a device here: `Tap::open_queues`.
//! let parts = vec![(); 2];
//! shards::run(parts, Cores::Any, |seat, ()| {
//!     let (queue, _) = MemoryDevice::pair(wire, 64);
//!     let shard = Shard::new(host.member(seat.member()), Box::new(queue))?.seated(seat);
//!     let listener = TcpListener::bind_on(&shard.handle(), "0.0.0.0:80")?;
//!     let main = async move {
//!         // `listener.accept()` returns the connections of this shard.
//!         drop(listener);
//!     };
//!     Ok::<_, io::Error>((shard, main))
//! })
//! # }
//! ```

use std::future::Future;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Mutex, PoisonError};
use std::thread;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::driver::Stop;
use crate::shard::Shard;
pub use crate::shard::{Peers, Seat, Watch};
use crate::stack::run_main;

/// The cores that the threads of shards may use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cores {
    /// Each shard keeps to a core of its own, as far as the process has as many. Its memory is then
    /// of its core's node, since a shard is the first to touch what it uses.
    #[default]
    Pinned,
    /// The kernel chooses.
    Any,
}

/// The number of cores that this process may use.
///
/// # Errors
/// If the kernel does not say.
pub fn available_cores() -> io::Result<u16> {
    Ok(sched_getaffinity(None)?.count().try_into().unwrap_or(u16::MAX))
}

/// Runs a shard on a thread of its own for each of `parts`, such as the queues of a device, until
/// the main task of each has ended. `begin` is called on the thread, with the shard's place and its
/// part. It returns the shard, seated, and its main task.
///
/// # Errors
/// The first failure of a shard, of its beginning, or of the kernel's. The other shards then stop
/// as they are.
///
/// # Panics
/// A panic of a shard stops the others, and goes on here. So does one of its main task; what other
/// tasks do is as [`Handle::contain_panics`](crate::shard::Handle::contain_panics) says.
pub fn run<P, F, E>(
    parts: Vec<P>,
    cores: Cores,
    begin: impl Fn(Seat, P) -> Result<(Shard, F), E> + Sync,
) -> Result<(), E>
where
    P: Send,
    F: Future<Output = ()> + 'static,
    E: From<io::Error> + Send,
{
    let stops: Vec<Stop> = parts.iter().map(|_| Stop::new()).collect();
    let work = |seat: Seat, part: P| {
        let stop = &stops[usize::from(seat.member().index)];
        drive(begin(seat, part)?, stop)
    };
    threads(parts, cores, work, || stops.iter().for_each(Stop::set))
}

/// Runs `work` on a thread of its own for each of `parts`, with the place of its shard, and waits
/// for all. [`run`] is this for threads that drive a shard and nothing else.
///
/// # Errors
/// The first failure of `work`, or of the kernel's. `stop` is then called, and should end the
/// others.
///
/// # Panics
/// A panic of `work` goes on here, once `stop` was called and the others have ended.
pub fn threads<P: Send, E: From<io::Error> + Send>(
    parts: Vec<P>,
    cores: Cores,
    work: impl Fn(Seat, P) -> Result<(), E> + Sync,
    stop: impl Fn() + Sync,
) -> Result<(), E> {
    let count = u16::try_from(parts.len()).unwrap_or(u16::MAX);
    let own = match cores {
        Cores::Pinned => cores_in_turn(count)?,
        Cores::Any => Vec::new(),
    };
    let failure = Mutex::new(None);
    let fail = |error: E| {
        failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        stop();
    };
    let (work, stop, fail) = (&work, &stop, &fail);
    let panic = thread::scope(|scope| {
        let mut threads = Vec::new();
        for (seat, part) in Seat::all(count).into_iter().zip(parts) {
            let index = seat.member().index;
            let core = own.get(usize::from(index)).copied();
            let all = move || {
                let outcome = catch_unwind(AssertUnwindSafe(|| {
                    core.map_or(Ok(()), pin)?;
                    work(seat, part)
                }));
                match outcome {
                    Ok(outcome) => outcome.unwrap_or_else(fail),
                    Err(panic) => {
                        stop();
                        resume_unwind(panic);
                    }
                }
            };
            match thread::Builder::new().name(format!("shard {index}")).spawn_scoped(scope, all) {
                Ok(thread) => threads.push(thread),
                Err(error) => fail(error.into()),
            }
        }
        // Every one is waited for, also behind one that has panicked.
        let ends: Vec<_> = threads.into_iter().map(thread::ScopedJoinHandle::join).collect();
        ends.into_iter().find_map(Result::err)
    });
    if let Some(panic) = panic {
        resume_unwind(panic);
    }
    let failure = failure.lock().unwrap_or_else(PoisonError::into_inner).take();
    failure.map_or(Ok(()), Err)
}

/// Drives a shard until its main task has ended, or `stop` is set.
fn drive<F, E>((shard, main): (Shard, F), stop: &Stop) -> Result<(), E>
where
    F: Future<Output = ()> + 'static,
    E: From<io::Error>,
{
    run_main(&mut [shard], stop, main)?;
    Ok(())
}

/// A core for each shard, those that this process may use in turn.
fn cores_in_turn(count: u16) -> io::Result<Vec<usize>> {
    let allowed = sched_getaffinity(None)?;
    let all: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core)).collect();
    Ok(all.iter().copied().cycle().take(count.into()).collect())
}

fn pin(core: usize) -> io::Result<()> {
    let mut set = CpuSet::new();
    set.set(core);
    Ok(sched_setaffinity(None, &set)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    use lightwait_core::{Capabilities, Config, Medium};

    use crate::device::MemoryDevice;
    use crate::rt;

    const WIRE: Capabilities = Capabilities::plain(Medium::Ip, 1500);

    fn shard(seat: Seat) -> io::Result<Shard> {
        let host = Config::new(WIRE, "10.9.0.2/24".parse().unwrap(), [7; 32]);
        let (queue, _) = MemoryDevice::pair(WIRE, 4);
        Ok(Shard::new(host.member(seat.member()), Box::new(queue))?.seated(seat))
    }

    #[test]
    fn each_shard_has_a_thread_and_is_called_by_the_others() {
        let calls = Arc::new(AtomicU64::new(0));
        let counted = calls.clone();
        run(vec![(); 3], Cores::Pinned, move |seat, ()| {
            let (index, peers, calls) = (seat.member().index, seat.peers(), counted.clone());
            let main = async move {
                let called = calls.clone();
                let next = (index + 1) % peers.count();
                peers.call(next, move |handle| {
                    assert_eq!(handle.with_host(|host| host.config().member.index), next);
                    called.fetch_add(1 << (8 * next), Ordering::Relaxed);
                });
                while calls.load(Ordering::Relaxed) != 0x01_01_01 {
                    rt::sleep(Duration::from_millis(1)).await;
                }
            };
            Ok::<_, io::Error>((shard(seat)?, main))
        })
        .unwrap();
        assert_eq!(calls.load(Ordering::Relaxed), 0x01_01_01);
    }

    #[test]
    fn a_failure_of_one_ends_the_others_and_is_returned() {
        let outcome = run(vec![(); 3], Cores::Any, |seat, ()| {
            if seat.member().index == 1 {
                return Err(io::Error::other("no queue"));
            }
            Ok((shard(seat)?, std::future::pending()))
        });
        assert_eq!(outcome.unwrap_err().to_string(), "no queue");
    }

    #[test]
    #[should_panic(expected = "a shard's bug")]
    fn a_panic_of_one_ends_the_others_and_goes_on() {
        let _ = run(vec![(); 3], Cores::Any, |seat, ()| {
            let index = seat.member().index;
            let main = async move {
                assert_ne!(index, 2, "a shard's bug");
                std::future::pending::<()>().await;
            };
            Ok::<_, io::Error>((shard(seat)?, main))
        });
    }
}
