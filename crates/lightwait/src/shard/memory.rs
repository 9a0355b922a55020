//! The budget of a shard's memory, for those who hold some of it beside the stack.

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
use super::local::Local;
use super::waiters::Waiter;

/// Pages that must be free for each of those who are woken because there are some.
const PAGES_EACH: usize = 8;

/// A part of what buffers may take (`limits.pages`), held by somebody else. Whoever wants to hold
/// more asks first, and waits while there is nothing left.
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

    /// Bytes that connections of its user take as long as they live: counted like those held, but
    /// no part of the half that others may hold.
    pub fn by_connections(&self) -> &Arc<AtomicUsize> {
        &self.by_connections
    }

    /// Whether there is room for one connection more, that will take `bytes` so.
    pub fn room_for_connection(&self, bytes: usize) -> ConnectionRoom {
        self.local.room_for_connection(bytes)
    }

    /// No connection goes for a new one, though there is little room: those whose peers stall or
    /// are slow are reset, until one goes again or there is room.
    pub fn set_crowded(&self, is_crowded: bool) {
        self.local.set_crowded(is_crowded);
    }

    /// Bytes that are held: its user counts them, on whichever thread.
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

    /// True while more may be held: others hold no more than half of the budget, and no connection
    /// waits for pages.
    pub fn has_room(&self) -> bool {
        self.local.has_memory()
    }

    /// Calls `give_back` in each turn that finds memory scarce, or somebody who waits for some:
    /// then nothing should be held that is not needed now.
    pub fn when_scarce(&self, give_back: Rc<dyn Fn()>) {
        self.local.memory().give_back.push(give_back);
    }

    /// How many wait until more may be held.
    pub fn waiting(&self) -> usize {
        self.local.memory().waiting.len()
    }

    /// Resolves when more may be held. Those who were polled first are woken first; one that is
    /// dropped has left the queue.
    pub fn room(&self) -> Room {
        Room { local: self.local.clone(), number: None }
    }
}

/// Waits until more memory may be held.
pub struct Room {
    local: Rc<Local>,
    /// Its place among those who wait, once it does.
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
    /// A part of this shard's memory for buffers, of which nothing is held yet.
    pub fn memory(&self) -> Memory {
        Memory::new(self.local.clone())
    }
}

/// What others hold, and who waits to hold more.
#[derive(Default)]
pub(crate) struct Budget {
    held: Vec<Arc<AtomicUsize>>,
    by_connections: Vec<Arc<AtomicUsize>>,
    /// By the number that each drew when it came.
    waiting: BTreeMap<u64, Waiter>,
    next_number: u64,
    /// What gives back what is not needed.
    give_back: Vec<Rc<dyn Fn()>>,
}

impl Budget {
    /// Tells `host` how much others hold.
    pub(super) fn charge(&self, host: &mut Host) {
        if !self.held.is_empty() {
            let sum =
                |all: &[Arc<AtomicUsize>]| all.iter().map(|a| a.load(Ordering::Relaxed)).sum();
            host.set_memory_elsewhere(sum(&self.held));
            host.set_memory_by_connections(sum(&self.by_connections));
        }
    }

    /// Lets `waiter` wait, in the place that `number` had before. Returns its number, and whoever
    /// waited there.
    fn wait(&mut self, number: Option<u64>, waiter: Waiter) -> (u64, Option<Waiter>) {
        let number = number.unwrap_or(self.next_number);
        self.next_number = self.next_number.max(number + 1);
        (number, self.waiting.insert(number, waiter))
    }

    /// What gives back what is not needed.
    pub(super) fn givers(&self) -> &[Rc<dyn Fn()>] {
        &self.give_back
    }

    /// True if somebody waits.
    pub(super) fn is_waited_for(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Those who are to be woken, if `host` has memory for them.
    pub(super) fn due(&mut self, host: &Host) -> impl Iterator<Item = Waiter> {
        let has_room = host.has_room_elsewhere();
        let count = if has_room { (host.pages_free() / PAGES_EACH).max(1) } else { 0 };
        std::iter::from_fn(|| self.waiting.pop_first().map(|(_, waiter)| waiter)).take(count)
    }
}
