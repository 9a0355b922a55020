//! One host on several cores: a shard on a thread of its own for each.
//!
//! Each shard has a queue of the device, or a device of its own, and owns the connections that
//! [`Steering`](lightwait_core::flow::Steering) gives it. Nothing is shared on the way of a
//! segment that comes to its owner.
//!
//! ```
//! use std::io;
//! use lightwait::device::MemoryDevice;
//! use lightwait::net::TcpListener;
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
//!     let listener = TcpListener::bind_on(&shard.handle(), ([0, 0, 0, 0], 80))?;
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
    let count = u16::try_from(parts.len()).unwrap_or(u16::MAX);
    let seats = Seat::all(count);
    let stops: Vec<Stop> = seats.iter().map(|_| Stop::new()).collect();
    let own = match cores {
        Cores::Pinned => cores_in_turn(count)?,
        Cores::Any => Vec::new(),
    };
    let failure = Mutex::new(None);
    let fail = |error: E| {
        failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        stops.iter().for_each(Stop::set);
    };
    thread::scope(|scope| -> Result<(), E> {
        let mut threads = Vec::new();
        for ((seat, part), stop) in seats.into_iter().zip(parts).zip(&stops) {
            let index = seat.member().index;
            let (begin, fail, stops) = (&begin, &fail, &stops);
            let core = own.get(usize::from(index)).copied();
            let work = move || {
                let outcome = catch_unwind(AssertUnwindSafe(|| {
                    if let Some(core) = core {
                        pin(core)?;
                    }
                    drive(begin(seat, part)?, stop)
                }));
                match outcome {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) => fail(error),
                    Err(panic) => {
                        stops.iter().for_each(Stop::set);
                        resume_unwind(panic);
                    }
                }
            };
            let named = thread::Builder::new().name(format!("shard {index}"));
            match named.spawn_scoped(scope, work) {
                Ok(thread) => threads.push(thread),
                Err(error) => {
                    stops.iter().for_each(Stop::set);
                    return Err(error.into());
                }
            }
        }
        let ends: Vec<_> = threads.into_iter().map(thread::ScopedJoinHandle::join).collect();
        if let Some(panic) = ends.into_iter().find_map(Result::err) {
            resume_unwind(panic);
        }
        Ok(())
    })?;
    failure.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
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
