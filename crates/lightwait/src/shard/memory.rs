//! The part of a shard's memory budget that applications hold beside the stack. They count the
//! bytes that they hold, wait while nothing is left, and give memory back when it is scarce.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use lightwait_core::Host;
use lightwait_core::buffer::{ConnectionRoom, Level};

use super::Handle;
use super::state::Local;
use super::waiters::Waiter;

/// Pages that must be free for each waiting task that is woken.
const PAGES_EACH: usize = 8;

/// An application's part of the memory for buffers (`limits.pages`). The application asks before it
/// holds more, and waits while nothing is left.
#[derive(Clone)]
pub struct Memory {
    local: Rc<Local>,
    held: Arc<AtomicUsize>,
    by_connections: Arc<AtomicUsize>,
}

impl Memory {
    pub(super) fn new(local: Rc<Local>) -> Memory {
        let (held, by_connections) = (Arc::default(), Arc::default());
        let mut budget = local.memory();
        budget.held.push(Arc::clone(&held));
        budget.by_connections.push(Arc::clone(&by_connections));
        drop(budget);
        Memory { local, held, by_connections }
    }

    /// Bytes that the application uses for each connection during its life. They count like held
    /// bytes, but not towards the half that applications may hold.
    pub fn by_connections(&self) -> &Arc<AtomicUsize> {
        &self.by_connections
    }

    /// Whether there is room for one more connection, for which the application needs `bytes`.
    pub fn room_for_connection(&self, bytes: usize) -> ConnectionRoom {
        self.local.room_for_connection(bytes)
    }

    /// Sets whether new connections arrive with little room while no idle connection can be closed
    /// for them. While that is so, the host resets connections whose peers stall or are slow.
    pub fn set_crowded(&self, is_crowded: bool) {
        self.local.set_crowded(is_crowded);
    }

    /// Bytes that the application holds. The application counts them, on any thread.
    pub fn held(&self) -> &Arc<AtomicUsize> {
        &self.held
    }

    /// Bytes of the whole budget.
    pub fn bytes(&self) -> usize {
        let pool = self.local.host().pool_info();
        pool.limit.saturating_mul(pool.page_bytes)
    }

    /// How much of the budget is used up, by all together.
    pub fn level(&self) -> Level {
        self.local.memory_level()
    }

    /// True while the application may hold more: applications hold no more than half of what
    /// senders may, or a quarter while connections wait for pages.
    pub fn has_room(&self) -> bool {
        self.local.has_memory()
    }

    /// Calls `give_back` in each turn in which memory is scarce or a task waits for some. It should
    /// give back all memory that is not needed now.
    pub fn when_scarce(&self, give_back: Rc<dyn Fn()>) {
        self.local.memory().give_back.push(give_back);
    }

    /// The number of tasks that wait until more may be held.
    pub fn waiting(&self) -> usize {
        self.local.memory().waiting.len()
    }

    /// Resolves when more may be held. The future that was polled first is woken first; a dropped
    /// future has left the queue.
    pub fn room(&self) -> Room {
        Room { local: self.local.clone(), number: None }
    }
}

/// Waits until more memory may be held.
pub struct Room {
    local: Rc<Local>,
    /// Its number in the queue, once it waits.
    number: Option<u64>,
}

impl Future for Room {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.local.has_memory() {
            return Poll::Ready(());
        }
        let waiter = self.local.executor().waiter(context.waker());
        let (number, before) = self.local.memory().wait(self.number, waiter);
        self.number = Some(number);
        drop(before);
        Poll::Pending
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        // Dropped with nothing borrowed: a waker may call anything.
        let waiter = self.number.and_then(|number| self.local.memory().waiting.remove(&number));
        drop(waiter);
    }
}

impl fmt::Debug for Room {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Room").field("number", &self.number).finish_non_exhaustive()
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").field("held", &self.held).finish_non_exhaustive()
    }
}

impl Handle {
    /// A part of this shard's memory for buffers; it holds nothing yet.
    pub fn memory(&self) -> Memory {
        Memory::new(self.local.clone())
    }
}

/// The memory that applications hold, and the tasks that wait to hold more.
#[derive(Default)]
pub(crate) struct Budget {
    held: Vec<Arc<AtomicUsize>>,
    by_connections: Vec<Arc<AtomicUsize>>,
    /// Waiting tasks, by the number that each drew when it came.
    waiting: BTreeMap<u64, Waiter>,
    next_number: u64,
    /// The applications' functions that give back unneeded memory.
    give_back: Vec<Rc<dyn Fn()>>,
}

impl Budget {
    /// Reports the applications' memory to `host`.
    pub(super) fn charge(&self, host: &mut Host) {
        if !self.held.is_empty() {
            let sum =
                |all: &[Arc<AtomicUsize>]| all.iter().map(|a| a.load(Ordering::Relaxed)).sum();
            host.set_memory_elsewhere(sum(&self.held));
            host.set_memory_by_connections(sum(&self.by_connections));
        }
    }

    /// Lets `waiter` wait at `number`, or at a new one. Returns its number, and the waiter that was
    /// there before.
    fn wait(&mut self, number: Option<u64>, waiter: Waiter) -> (u64, Option<Waiter>) {
        let number = number.unwrap_or(self.next_number);
        self.next_number = self.next_number.max(number + 1);
        (number, self.waiting.insert(number, waiter))
    }

    /// The applications' functions that give back unneeded memory.
    pub(super) fn givers(&self) -> &[Rc<dyn Fn()>] {
        &self.give_back
    }

    /// True if a task waits.
    pub(super) fn is_waited_for(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Takes the tasks to be woken, as many as `host` has memory for.
    pub(super) fn due(&mut self, host: &Host) -> impl Iterator<Item = Waiter> {
        let has_room = host.has_room_elsewhere();
        let count = if has_room { (host.pages_free() / PAGES_EACH).max(1) } else { 0 };
        std::iter::from_fn(|| self.waiting.pop_first().map(|(_, waiter)| waiter)).take(count)
    }
}
