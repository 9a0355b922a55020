//! The memory of responses and connections, charged to a budget that the caller keeps. The budget
//! says when memory is scarce, and the server then gives some back.

use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use crate::Pending;

/// The keeper of the budget.
pub trait MemoryBudget: 'static {
    /// Bytes that responses hold. They are counted here on the thread that drops the last share.
    fn held(&self) -> &Arc<AtomicUsize>;

    /// Bytes that connections use for their whole life.
    fn by_connections(&self) -> &Arc<AtomicUsize>;

    /// Bytes of the whole budget, for responses and connections together.
    fn bytes(&self) -> usize {
        usize::MAX
    }

    /// True if the server should hold only memory that it needs now.
    fn is_scarce(&self) -> bool;

    /// True while responses may hold more.
    fn has_room(&self) -> bool;

    /// Resolves when responses may hold more. Dropping it ends the wait.
    fn room(&self) -> Pending<()>;

    /// Calls `give_back` again and again while memory is scarce.
    fn when_scarce(&self, give_back: Rc<dyn Fn()>) {
        let _ = give_back;
    }

    /// Whether there is memory for another connection, which uses `bytes` for its whole life.
    fn room_for_connection(&self, bytes: usize) -> ConnectionRoom;

    /// Notes whether the server is crowded: there is little room for new connections, and none that
    /// waits for its peer frees some.
    fn set_crowded(&self, is_crowded: bool);
}

/// Whether there is memory for another connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionRoom {
    /// Yes.
    Enough,
    /// Yes, but a connection that waits for its peer should close.
    Little,
    /// No, unless a connection closes.
    None,
}

/// A budget for memory. Clones share it.
#[derive(Clone)]
pub struct Memory(Rc<dyn MemoryBudget>);

/// A budget without a limit.
#[derive(Debug, Default)]
struct Boundless {
    held: Arc<AtomicUsize>,
    by_connections: Arc<AtomicUsize>,
}

impl MemoryBudget for Boundless {
    fn held(&self) -> &Arc<AtomicUsize> {
        &self.held
    }

    fn by_connections(&self) -> &Arc<AtomicUsize> {
        &self.by_connections
    }

    fn is_scarce(&self) -> bool {
        false
    }

    fn has_room(&self) -> bool {
        true
    }

    fn room(&self) -> Pending<()> {
        Box::pin(std::future::ready(()))
    }

    fn room_for_connection(&self, _bytes: usize) -> ConnectionRoom {
        ConnectionRoom::Enough
    }

    fn set_crowded(&self, _is_crowded: bool) {}
}

impl Memory {
    /// A budget that `keeper` keeps.
    pub fn new(keeper: impl MemoryBudget) -> Memory {
        Memory(Rc::new(keeper))
    }

    /// A budget without a limit.
    pub fn boundless() -> Memory {
        Memory::new(Boundless::default())
    }

    /// Bytes of the whole budget.
    pub(crate) fn bytes(&self) -> usize {
        self.0.bytes()
    }

    /// True if the server should hold only memory that it needs now.
    pub(crate) fn is_scarce(&self) -> bool {
        self.0.is_scarce()
    }

    /// Calls `give_back` again and again while memory is scarce.
    pub(crate) fn when_scarce(&self, give_back: impl Fn() + 'static) {
        self.0.when_scarce(Rc::new(give_back));
    }

    /// Ready while responses may hold more. Else `waiting` holds the wait for that.
    pub(crate) fn poll_room(
        &self,
        cx: &mut Context<'_>,
        waiting: &mut Option<Pending<()>>,
    ) -> Poll<()> {
        if waiting.is_none() && self.0.has_room() {
            return Poll::Ready(());
        }
        ready!(waiting.get_or_insert_with(|| self.0.room()).as_mut().poll(cx));
        *waiting = None;
        Poll::Ready(())
    }

    /// Whether there is memory for another connection, which uses `bytes` for its whole life.
    pub(crate) fn room_for_connection(&self, bytes: usize) -> ConnectionRoom {
        self.0.room_for_connection(bytes)
    }

    /// Notes whether the server is crowded: there is little room for new connections, and none that
    /// waits frees some.
    pub(crate) fn set_crowded(&self, is_crowded: bool) {
        self.0.set_crowded(is_crowded);
    }

    /// Charges `bytes` that a response holds, until the charge is dropped.
    pub(crate) fn charge(&self, bytes: usize) -> Charge {
        Charge::new(self.0.held(), bytes)
    }

    /// Charges `bytes` that a connection uses for its whole life, until the charge is dropped.
    pub(crate) fn charge_connection(&self, bytes: usize) -> Charge {
        Charge::new(self.0.by_connections(), bytes)
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").field("held", self.0.held()).finish_non_exhaustive()
    }
}

/// Bytes that are charged while it lives.
#[derive(Debug)]
pub(crate) struct Charge {
    held: Arc<AtomicUsize>,
    bytes: AtomicUsize,
}

impl Charge {
    fn new(held: &Arc<AtomicUsize>, bytes: usize) -> Charge {
        held.fetch_add(bytes, Ordering::Relaxed);
        Charge { held: held.clone(), bytes: bytes.into() }
    }

    /// Charges `bytes` less, at most all: another charges them now.
    pub(crate) fn pass_on(&self, bytes: usize) {
        let before = self.bytes.load(Ordering::Relaxed);
        let passed = bytes.min(before);
        self.bytes.store(before - passed, Ordering::Relaxed);
        self.held.fetch_sub(passed, Ordering::Relaxed);
    }

    /// All bytes charged to the same counter.
    #[cfg(test)]
    pub(crate) fn total(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.held.fetch_sub(*self.bytes.get_mut(), Ordering::Relaxed);
    }
}
