//! A stack on a thread of its own, and the handle on it.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::task::Waker;
use std::thread;

use lightwait_core::tcp::{Keepalive, SocketOptions};
use lightwait_core::{Config, Host, Instant, Readiness};

use super::crossing::{locked, stack_ended};
use super::ledger::Ledger;
use super::pump;
use super::waiting::{Waitable, Waiters, Waiting};
use crate::answer::{Answer, Answerer, answer};
use crate::device::Device;
use crate::driver::{self, Descriptor, Driven, SPIN, Stop};
use crate::shard::{Handle, Memory, Peers, Seat, Shard};

/// The process's default stack.
static DEFAULT: Mutex<Option<StackHandle>> = Mutex::new(None);

/// A handle on a stack that runs on a thread of its own ([`Stack::spawn`]). Clones are handles on
/// the same stack.
///
/// The thread ends by [`StackHandle::shutdown`], by a failure of the device, or when the last
/// handle and the last socket are dropped and their connections have closed. From then on every
/// call on a socket of the stack fails with `ConnectionAborted`, those that wait as well.
///
/// [`Stack::spawn`]: crate::Stack::spawn
#[derive(Clone)]
pub struct StackHandle {
    inner: Arc<Inner>,
}

struct Inner {
    peers: Peers,
    defaults: Defaults,
    ledger: Arc<Ledger>,
    stop: Stop,
    is_orphan: Arc<AtomicBool>,
    end: Arc<End>,
    thread: Mutex<Option<thread::JoinHandle<io::Result<()>>>>,
}

/// What sockets know of their host without asking it.
#[derive(Clone, Debug)]
pub(super) struct Defaults {
    address: IpAddr,
    pub(super) addresses: Vec<IpAddr>,
    pub(super) options: SocketOptions,
    pub(super) keepalive: Keepalive,
    pub(super) receive_max: u32,
    pub(super) hop_limit: u8,
    pub(super) quick_acks: bool,
}

impl StackHandle {
    /// The stack's first address.
    pub fn address(&self) -> IpAddr {
        self.inner.defaults.address
    }

    /// Makes this the stack of sockets that are given none, in the whole process:
    /// [`TcpListener::bind`](super::TcpListener::bind), as tokio has it. It replaces an earlier
    /// one, and keeps the stack alive.
    pub fn set_default(&self) {
        let before = locked(&DEFAULT).replace(self.clone());
        drop(before);
    }

    /// The process's default stack.
    ///
    /// # Errors
    /// `NotConnected` if there is none.
    pub fn default_stack() -> io::Result<StackHandle> {
        locked(&DEFAULT).clone().ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::NotConnected,
                "there is no default stack: call `set_default` on the handle of a stack that was \
                 spawned, or give the handle (`bind_on`, `connect_on`)",
            )
        })
    }

    /// Gives `look` the host, on the stack's thread: its counters, addresses and tables.
    ///
    /// # Errors
    /// `ConnectionAborted` if the stack has ended.
    pub async fn with_host<R: Send + 'static>(
        &self,
        look: impl FnOnce(&Host) -> R + Send + 'static,
    ) -> io::Result<R> {
        self.ask(move |shard| shard.with_host(look)).await.ok_or_else(stack_ended)
    }

    /// Ends the stack as it is: its connections are gone, and their peers are not told. To close
    /// them in order, drop the sockets, and wait by [`StackHandle::join`].
    pub fn shutdown(&self) {
        self.inner.stop.set();
    }

    /// Waits until the stack has ended.
    ///
    /// # Errors
    /// The failure that ended it: its interface was deleted, say.
    pub async fn ended(&self) -> io::Result<()> {
        let end = &*self.inner.end;
        Waiting::new(end, Readiness::READABLE).ready().await;
        let failure = end.failure.get();
        failure.map_or(Ok(()), |(kind, text)| Err(io::Error::new(*kind, text.clone())))
    }

    /// Gives this handle up, and blocks until the stack has ended.
    ///
    /// # Errors
    /// The failure that ended it, for the first caller; later ones only wait for the first.
    ///
    /// # Panics
    /// A panic of the stack's thread goes on here.
    pub fn join(self) -> io::Result<()> {
        let thread = locked(&self.inner.thread).take();
        drop(self);
        thread.map_or(Ok(()), |thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)))
    }

    pub(super) fn ledger(&self) -> &Arc<Ledger> {
        &self.inner.ledger
    }

    pub(super) fn defaults(&self) -> &Defaults {
        &self.inner.defaults
    }

    /// Asks the shard, in its next turn. There is no answer once the stack has ended.
    pub(super) fn ask<R: Send + 'static>(
        &self,
        ask: impl FnOnce(&Handle) -> R + Send + 'static,
    ) -> Answer<R> {
        let (answerer, wanted) = answer();
        self.inner.peers.call(0, move |shard| answerer.give(ask(shard)));
        wanted
    }
}

impl fmt::Debug for StackHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StackHandle").field("address", &self.address()).finish_non_exhaustive()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.is_orphan.store(true, Ordering::Release);
        // A turn, which sees it.
        self.peers.call(0, |_| ());
    }
}

/// Starts a stack on a thread of its own.
///
/// # Errors
/// Those of [`Shard::new`]; or the system starts no thread.
pub(crate) fn spawn(
    config: Config,
    device: Box<dyn Device + Send>,
    address: IpAddr,
) -> io::Result<StackHandle> {
    let (answerer, begun) = answer();
    let thread = thread::Builder::new().name(format!("stack {address}"));
    let thread = thread.spawn(move || live(config, device, answerer))?;
    let stack = begun.wait().unwrap_or_else(|| Err(stack_ended()))?;
    *locked(&stack.inner.thread) = Some(thread);
    Ok(stack)
}

/// The life of the stack's thread.
fn live(
    config: Config,
    device: Box<dyn Device + Send>,
    begun: Answerer<io::Result<StackHandle>>,
) -> io::Result<()> {
    let shard = match Shard::new(config, device) {
        Ok(shard) => shard,
        Err(error) => {
            begun.give(Err(error));
            return Ok(());
        }
    };
    shard.handle().contain_panics(true);
    let (served, stack) = serve(shard);
    let (stop, end) = (served.stop().clone(), served.end.0.clone());
    begun.give(Ok(stack));
    let mut served = [served];
    let lived = catch_unwind(AssertUnwindSafe(|| driver::run(&mut served, &stop, SPIN)));
    if lived.is_err() {
        let _ = end.failure.set((io::ErrorKind::Other, "the stack's thread panicked".to_owned()));
    }
    let dropped = catch_unwind(AssertUnwindSafe(|| drop(served)));
    dropped.and(lived).unwrap_or_else(|panic| resume_unwind(panic))
}

/// Serves sockets of any thread from a shard, and returns what drives it, and the handle for them.
/// [`Stack::spawn`](crate::Stack::spawn) does this on a new thread. By hand it is for a thread that
/// has other work, or a driver of one's own: run the first until [`ServedShard::stop`] is set.
///
/// # Panics
/// If the shard is one of several of a host.
pub fn serve(shard: Shard) -> (ServedShard, StackHandle) {
    let seat = Seat::all(1).pop().expect("the place of one");
    let peers = seat.peers();
    let shard = shard.seated(seat);
    let defaults = shard.handle().with_host(Defaults::of);
    let memory = shard.handle().memory();
    let ledger = Ledger::new(&memory);
    let inner = Inner {
        peers,
        defaults,
        ledger: ledger.clone(),
        stop: Stop::new(),
        is_orphan: Arc::default(),
        end: Arc::default(),
        thread: Mutex::default(),
    };
    let (stop, is_orphan) = (inner.stop.clone(), inner.is_orphan.clone());
    let end = SetAtEnd(inner.end.clone());
    let served = ServedShard { shard, memory, ledger, stop, is_orphan, end };
    (served, StackHandle { inner: Arc::new(inner) })
}

/// A shard whose sockets are on other threads. They are woken at the end of a turn, all together.
/// Dropping it ends the stack.
#[derive(Debug)]
pub struct ServedShard {
    shard: Shard,
    /// The part of its memory that sockets hold on the way.
    memory: Memory,
    ledger: Arc<Ledger>,
    stop: Stop,
    /// Nobody has a handle or a socket any more.
    is_orphan: Arc<AtomicBool>,
    /// Dropped behind the shard, whose tasks tell their sockets.
    end: SetAtEnd,
}

impl ServedShard {
    /// Set by [`StackHandle::shutdown`], and when nobody needs the stack any more.
    pub fn stop(&self) -> &Stop {
        &self.stop
    }
}

impl Driven for ServedShard {
    fn now(&self) -> Instant {
        self.shard.now()
    }

    fn turn(&mut self, now: Instant) -> io::Result<()> {
        Driven::turn(&mut self.shard, now).inspect_err(|error| {
            let _ = self.end.0.failure.set((error.kind(), error.to_string()));
        })?;
        self.ledger.set_short(!self.memory.has_room());
        pump::wake_all();
        if self.is_orphan.load(Ordering::Acquire) {
            let handle = self.shard.handle();
            // Datagrams of sockets that were dropped still leave.
            let is_idle = |host: &Host| host.connections() == 0 && !host.wants_emit();
            if handle.tasks() == 0 && handle.with_host(is_idle) {
                self.stop.set();
            }
        }
        Ok(())
    }

    fn deadline(&self, now: Instant) -> Option<Instant> {
        Driven::deadline(&self.shard, now)
    }

    fn descriptors<'a>(&'a self, visit: &mut dyn FnMut(Descriptor<'a>)) {
        self.shard.descriptors(visit);
    }

    fn set_waker(&mut self, waker: &Waker) {
        self.shard.set_waker(waker);
    }
}

/// Whether the stack's thread has ended, and by which failure.
#[derive(Debug, Default)]
struct End {
    state: Mutex<(bool, Waiters)>,
    failure: OnceLock<(io::ErrorKind, String)>,
}

impl Waitable for End {
    fn look<R>(&self, look: impl FnOnce(Readiness, u64, &mut Waiters) -> R) -> R {
        let (has_ended, waiters) = &mut *locked(&self.state);
        let readiness = if *has_ended { Readiness::CLOSED } else { Readiness::EMPTY };
        look(readiness, 0, waiters)
    }
}

/// Tells of the end when it is dropped: a panic is one, too.
#[derive(Debug)]
struct SetAtEnd(Arc<End>);

impl Drop for SetAtEnd {
    fn drop(&mut self) {
        pump::wake_all();
        let mut woken = Vec::new();
        let mut state = locked(&self.0.state);
        state.0 = true;
        state.1.take(Readiness::READABLE, &mut woken);
        // With nothing locked: a waker may call anything.
        drop(state);
        woken.into_iter().for_each(Waker::wake);
    }
}

impl Defaults {
    fn of(host: &Host) -> Defaults {
        let config = host.config();
        let configured = config.addresses.first().map(|first| first.address());
        Defaults {
            address: configured.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED)),
            addresses: host.addresses(),
            options: host.default_options(),
            keepalive: Keepalive::by_default(&config.tcp),
            receive_max: config.tcp.buffers.receive_max,
            hop_limit: config.hop_limit,
            quick_acks: config.tcp.ack.quick > 0,
        }
    }
}
