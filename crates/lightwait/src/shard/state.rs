//! The state that a shard shares with its sockets and tasks, all of them on one thread.

use std::cell::{Cell, Ref, RefCell, RefMut};
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Waker};
use std::time::Instant as StdInstant;

use lightwait_core::buffer::{ConnectionRoom, Level};
use lightwait_core::{ConnectionId, Host, Instant, ListenerId, UdpId};

use super::memory::Budget;
use super::timers::Timers;
use super::waiters::{Waiter, WaiterTable};
use crate::clock::Clock;
use crate::executor::Executor;
use crate::executor::inbox::Inbox;
use crate::observe::Observer;

thread_local! {
    /// The shard whose turn runs on this thread.
    static CURRENT: RefCell<Option<Rc<Local>>> = const { RefCell::new(None) };
}

/// The next shard's number, unique in the process.
static NEXT_SHARD: AtomicU64 = AtomicU64::new(0);

/// Knows the addresses of hosts by their names.
pub(super) type Resolver = Rc<dyn Fn(&str) -> Option<IpAddr>>;

/// A shard's host, tasks and deadlines.
pub(crate) struct Local {
    shard: u64,
    host: RefCell<Host>,
    waiters: RefCell<WaiterTable>,
    timers: RefCell<Timers>,
    executor: Executor,
    /// The time of the turn that runs, or of the last one.
    turn_time: Cell<Instant>,
    /// Converts the shard's time to the standard library's.
    clock: Clock,
    /// Real time drives the shard: calls between two turns read the clock, instead of the last
    /// turn's time.
    is_clock_driven: Cell<bool>,
    is_in_turn: Cell<bool>,
    /// The caller of the turns makes the time.
    is_in_made_time: Cell<bool>,
    /// Knows hosts by name, in place of the system.
    resolver: RefCell<Option<Resolver>>,
    /// The driver's waker, for a call between two turns that leaves work.
    driver: RefCell<Option<Waker>>,
    memory: RefCell<Budget>,
    /// A buffer for reads into room that is not initialised.
    scratch: RefCell<Vec<u8>>,
    is_observed: Cell<bool>,
    observer: RefCell<Option<Box<Observer>>>,
}

impl Local {
    pub(crate) fn new(host: Host, clock: Clock) -> Rc<Local> {
        let shard = NEXT_SHARD.fetch_add(1, Ordering::Relaxed);
        Rc::new(Local {
            shard,
            host: RefCell::new(host),
            waiters: RefCell::default(),
            timers: RefCell::default(),
            executor: Executor::new(Arc::new(Inbox::default())),
            turn_time: Cell::new(Instant::ZERO),
            clock,
            is_clock_driven: Cell::new(false),
            is_in_turn: Cell::new(false),
            is_in_made_time: Cell::new(false),
            resolver: RefCell::default(),
            driver: RefCell::default(),
            memory: RefCell::default(),
            scratch: RefCell::default(),
            is_observed: Cell::new(false),
            observer: RefCell::default(),
        })
    }

    pub(crate) fn shard(&self) -> u64 {
        self.shard
    }

    pub(crate) fn executor(&self) -> &Executor {
        &self.executor
    }

    pub(crate) fn host(&self) -> Ref<'_, Host> {
        self.host.borrow()
    }

    /// Borrows the host mutably. Call [`Local::touch`] after a call that leaves work.
    pub(crate) fn host_mut(&self) -> RefMut<'_, Host> {
        self.host.borrow_mut()
    }

    /// True if there is an [`observer`](Self::observer).
    pub(super) fn is_observed(&self) -> bool {
        self.is_observed.get()
    }

    /// What looks at the host between its inputs.
    pub(super) fn observer(&self) -> RefMut<'_, Option<Box<Observer>>> {
        self.observer.borrow_mut()
    }

    /// Puts another in its place, and returns the last one.
    pub(super) fn set_observer(&self, observer: Option<Observer>) -> Option<Box<Observer>> {
        self.is_observed.set(observer.is_some());
        std::mem::replace(&mut *self.observer(), observer.map(Box::new))
    }

    pub(crate) fn timers(&self) -> RefMut<'_, Timers> {
        self.timers.borrow_mut()
    }

    pub(crate) fn scratch(&self) -> RefMut<'_, Vec<u8>> {
        self.scratch.borrow_mut()
    }

    pub(crate) fn memory(&self) -> RefMut<'_, Budget> {
        self.memory.borrow_mut()
    }

    /// The used part of the memory for buffers, including what applications hold.
    pub(crate) fn memory_level(&self) -> Level {
        let mut host = self.host_mut();
        self.memory.borrow().charge(&mut host);
        host.memory_level()
    }

    /// True if applications may hold more of it.
    pub(crate) fn has_memory(&self) -> bool {
        let mut host = self.host_mut();
        self.memory.borrow().charge(&mut host);
        host.has_room_elsewhere()
    }

    /// Whether there is room for one more connection.
    pub(crate) fn room_for_connection(&self, bytes: usize) -> ConnectionRoom {
        let mut host = self.host_mut();
        self.memory.borrow().charge(&mut host);
        host.room_for_connection(bytes)
    }

    /// Sets whether new connections arrive with little room while no idle connection can be closed.
    pub(crate) fn set_crowded(&self, is_crowded: bool) {
        self.host_mut().set_crowded(is_crowded);
    }

    /// True if a task waits for memory and some is free.
    pub(super) fn owes_memory(&self) -> bool {
        self.memory.borrow().is_waited_for() && self.has_memory()
    }

    /// Has applications give back unneeded memory, if memory is scarce or a task waits for some.
    fn reclaim_memory(&self) {
        let (has_givers, is_waited_for) = {
            let budget = self.memory.borrow();
            (!budget.givers().is_empty(), budget.is_waited_for())
        };
        if has_givers && (is_waited_for || self.memory_level() > Level::Plenty) {
            // Called with nothing borrowed: dropping may call anything.
            let givers = self.memory.borrow().givers().to_vec();
            givers.iter().for_each(|give_back| give_back());
        }
    }

    /// Wakes tasks that wait for memory, as far as some is free. Returns the wakers of other tasks
    /// than this shard's.
    fn wake_for_memory(&self) -> Vec<Waker> {
        let mut others = Vec::new();
        self.host_mut().want_memory_elsewhere(self.memory.borrow().is_waited_for());
        if self.owes_memory() {
            let host = self.host();
            let due: Vec<Waiter> = self.memory.borrow_mut().due(&host).collect();
            for waiter in due {
                match waiter {
                    Waiter::Task(task) => self.executor.enqueue(task),
                    Waiter::Other(waker) => others.push(waker),
                }
            }
        }
        others
    }

    /// The time for a call that is made now.
    #[inline]
    pub(crate) fn now(&self) -> Instant {
        if self.is_clock_driven.get() && !self.is_in_turn.get() {
            self.clock.now()
        } else {
            self.turn_time.get()
        }
    }

    /// The time at this very moment, even within a turn.
    pub(crate) fn measure(&self) -> Instant {
        if self.is_clock_driven.get() { self.clock.now() } else { self.turn_time.get() }
    }

    /// Converts an instant of this shard's time to the standard library's.
    pub(crate) fn to_std(&self, instant: Instant) -> StdInstant {
        self.clock.to_std(instant).unwrap_or_else(StdInstant::now)
    }

    /// Converts an instant of the standard library to this shard's time.
    #[cfg(feature = "hyper")]
    pub(crate) fn at_std(&self, instant: StdInstant) -> Instant {
        self.clock.at_std(instant)
    }

    /// The moment at which its clock began.
    pub(crate) fn origin(&self) -> StdInstant {
        self.clock.origin()
    }

    /// Starts the clock by which real time drives the shard from now on.
    pub(crate) fn start_clock(&self) -> Clock {
        self.is_clock_driven.set(true);
        self.clock.clone()
    }

    /// True if the caller of the turns makes the time.
    pub(crate) fn is_in_made_time(&self) -> bool {
        self.is_in_made_time.get()
    }

    pub(super) fn set_resolver(&self, resolver: Resolver) {
        *self.resolver.borrow_mut() = Some(resolver);
    }

    /// The host of that name, as the shard's own resolver knows it; `None` if it has none.
    pub(crate) fn resolve(&self, name: &str) -> Option<Option<IpAddr>> {
        let resolver = self.resolver.borrow().clone();
        resolver.map(|resolver| resolver(name))
    }

    pub(super) fn set_in_made_time(&self) {
        self.is_in_made_time.set(true);
    }

    pub(crate) fn set_driver(&self, waker: &Waker) {
        *self.driver.borrow_mut() = Some(waker.clone());
        self.executor.inbox().set_driver(waker);
    }

    /// A call left work: if no turn runs now, the next one should come soon.
    #[inline]
    pub(crate) fn touch(&self) {
        if !self.is_in_turn.get() {
            self.wake_driver();
        }
    }

    fn wake_driver(&self) {
        if let Some(driver) = self.driver.borrow_mut().take() {
            driver.wake();
        }
    }

    /// Lets the task of `context` wait for data to read on that connection.
    pub(crate) fn wait_readable(&self, id: ConnectionId, context: &Context<'_>) {
        let waiter = self.executor.waiter(context.waker());
        self.waiters.borrow_mut().readers(id).add(waiter);
    }

    /// True if a task waits for data to read on that connection.
    pub(crate) fn is_awaited(&self, id: ConnectionId) -> bool {
        self.waiters.borrow_mut().readers(id).is_any()
    }

    /// Lets the task of `context` wait for room to write on that connection.
    pub(crate) fn wait_writable(&self, id: ConnectionId, context: &Context<'_>) {
        let waiter = self.executor.waiter(context.waker());
        self.waiters.borrow_mut().writers(id).add(waiter);
    }

    /// Lets the task of `context` wait for a connection to accept.
    pub(crate) fn wait_acceptable(&self, id: ListenerId, context: &Context<'_>) {
        let waiter = self.executor.waiter(context.waker());
        self.waiters.borrow_mut().acceptors(id).add(waiter);
    }

    /// Lets the task of `context` wait for a datagram on that socket.
    pub(crate) fn wait_udp_readable(&self, id: UdpId, context: &Context<'_>) {
        let waiter = self.executor.waiter(context.waker());
        self.waiters.borrow_mut().udp(id).readers.add(waiter);
    }

    /// Lets the task of `context` wait for room to send on that socket.
    pub(crate) fn wait_udp_writable(&self, id: UdpId, context: &Context<'_>) {
        let waiter = self.executor.waiter(context.waker());
        self.waiters.borrow_mut().udp(id).writers.add(waiter);
    }

    /// The user of a UDP socket has closed it and no longer waits.
    pub(crate) fn forget_udp(&self, id: UdpId) {
        *self.waiters.borrow_mut().udp(id) = Default::default();
    }

    /// Lets the task of `context` wait for a datagram that no socket hears.
    pub(crate) fn wait_flows(&self, context: &Context<'_>) {
        let waiter = self.executor.waiter(context.waker());
        self.waiters.borrow_mut().flows().add(waiter);
    }

    /// Lets the task of `context` wait for news of our addresses.
    pub(crate) fn wait_addresses(&self, context: &Context<'_>) {
        let waiter = self.executor.waiter(context.waker());
        self.waiters.borrow_mut().addresses().add(waiter);
    }

    /// The user of a connection has closed it and no longer waits.
    pub(crate) fn forget(&self, id: ConnectionId) {
        self.waiters.borrow_mut().forget(id);
    }

    /// A listener is gone: wakes the tasks that wait for it.
    pub(crate) fn wake_acceptors(&self, id: ListenerId) {
        let mut acceptors = self.waiters.borrow_mut().acceptors(id).take();
        acceptors.wake(|waiter| self.executor.wake(waiter));
    }

    /// Wakes the tasks that wait for the host's events.
    pub(super) fn wake_waiters(&self) {
        self.reclaim_memory();
        self.wake_for_memory().into_iter().for_each(Waker::wake);
        loop {
            let others = self.ready_waiters();
            if others.is_empty() {
                return;
            }
            // With nothing borrowed: wakers may call anything.
            others.into_iter().for_each(Waker::wake);
        }
    }

    /// Wakes the waiting tasks of this shard, and returns the other waiting tasks' wakers.
    fn ready_waiters(&self) -> Vec<Waker> {
        let mut others = Vec::new();
        let (mut host, mut waiters) = (self.host.borrow_mut(), self.waiters.borrow_mut());
        while let Some(event) = host.event() {
            waiters.wake(event, |waiter| match waiter {
                Waiter::Task(task) => self.executor.enqueue(task),
                Waiter::Other(waker) => others.push(waker),
            });
        }
        others
    }

    /// Wakes the tasks whose deadline has come.
    pub(crate) fn wake_sleepers(&self, now: Instant) {
        loop {
            // The borrow ends before the waker runs.
            let due = self.timers.borrow_mut().pop(now);
            match due {
                Some(waker) => waker.wake(),
                None => return,
            }
        }
    }

    /// Makes this shard the thread's current one until the guard is dropped.
    pub(crate) fn enter(self: &Rc<Self>) -> Entered {
        let before = CURRENT.with(|current| current.replace(Some(self.clone())));
        Entered { before }
    }

    pub(super) fn begin_turn(&self, now: Instant) {
        self.turn_time.set(now);
        self.is_in_turn.set(true);
        self.memory.borrow().charge(&mut self.host_mut());
    }

    /// Moves time on without a turn.
    #[cfg(test)]
    pub(crate) fn set_time(&self, now: Instant) {
        self.turn_time.set(now);
    }

    pub(super) fn end_turn(&self) {
        self.is_in_turn.set(false);
    }
}

/// While it lives, a shard is the thread's current one.
pub(crate) struct Entered {
    before: Option<Rc<Local>>,
}

impl Drop for Entered {
    fn drop(&mut self) {
        let before = self.before.take();
        // Taken out before it is dropped: the drop may free a shard.
        let entered = CURRENT.with(|current| current.replace(before));
        drop(entered);
    }
}

/// The current shard.
///
/// # Panics
///
/// If there is none.
pub(crate) fn current() -> Rc<Local> {
    try_current().expect(
        "no shard is current: call this in a task of a shard, or use the form that takes a Handle",
    )
}

pub(crate) fn try_current() -> Option<Rc<Local>> {
    CURRENT.try_with(|current| current.borrow().clone()).ok().flatten()
}

/// Calls `f` with the current shard, if there is one.
pub(crate) fn with_current<R>(f: impl Fn(Option<&Local>) -> R) -> R {
    CURRENT.try_with(|current| f(current.borrow().as_deref())).unwrap_or_else(|_| f(None))
}
