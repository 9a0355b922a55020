//! The memory that responses hold, as a part of a budget that somebody else keeps.

use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use crate::Pending;

/// Who keeps the budget.
pub trait Keeper: 'static {
    /// Bytes that responses hold: counted here, on whichever thread the last of a chunk is dropped.
    fn held(&self) -> &Arc<AtomicUsize>;

    /// Bytes that connections take as long as they live.
    fn by_connections(&self) -> &Arc<AtomicUsize>;

    /// Bytes of the whole budget: what connections hold and take, and what responses may hold.
    fn bytes(&self) -> usize {
        usize::MAX
    }

    /// True if nothing should be held that is not needed now.
    fn is_scarce(&self) -> bool;

    /// True while responses may hold more.
    fn has_room(&self) -> bool;

    /// Resolves when responses may hold more. Whoever drops it waits no longer.
    fn room(&self) -> Pending<()>;

    /// Calls `give_back` again and again while nothing should be held that is not needed now.
    fn when_scarce(&self, give_back: Rc<dyn Fn()>) {
        let _ = give_back;
    }

    /// Whether a connection more can be had, that takes `bytes` as long as it lives.
    fn room_for_connection(&self, bytes: usize) -> ConnectionRoom;

    /// There is little room for new connections, and none that waits for its peer goes for them;
    /// or one goes.
    fn set_crowded(&self, is_crowded: bool);
}

/// Whether a connection more can be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionRoom {
    /// Yes.
    Enough,
    /// Yes, but one that waits for its peer should go.
    Little,
    /// No, unless one goes.
    None,
}

/// A budget for memory. Clones share it.
#[derive(Clone)]
pub struct Memory(Rc<dyn Keeper>);

/// A budget without an end.
#[derive(Debug, Default)]
struct Boundless {
    held: Arc<AtomicUsize>,
    by_connections: Arc<AtomicUsize>,
}

impl Keeper for Boundless {
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
    pub fn new(keeper: impl Keeper) -> Memory {
        Memory(Rc::new(keeper))
    }

    /// A budget without an end.
    pub fn boundless() -> Memory {
        Memory::new(Boundless::default())
    }

    /// Bytes of the whole budget.
    pub(crate) fn bytes(&self) -> usize {
        self.0.bytes()
    }

    /// True if nothing should be held that is not needed now.
    pub(crate) fn is_scarce(&self) -> bool {
        self.0.is_scarce()
    }

    /// Calls `give_back` again and again while memory is scarce.
    pub(crate) fn when_scarce(&self, give_back: impl Fn() + 'static) {
        self.0.when_scarce(Rc::new(give_back));
    }

    /// Ready while responses may hold more. Else `waiting` is who waits for that.
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

    /// Whether a connection more can be had, that takes `bytes` as long as it lives.
    pub(crate) fn room_for_connection(&self, bytes: usize) -> ConnectionRoom {
        self.0.room_for_connection(bytes)
    }

    /// There is little room for new connections, and none goes for them; or one goes.
    pub(crate) fn set_crowded(&self, is_crowded: bool) {
        self.0.set_crowded(is_crowded);
    }

    /// Charges `bytes` that a response holds, until the charge is dropped.
    pub(crate) fn charge(&self, bytes: usize) -> Charge {
        Charge::new(self.0.held(), bytes)
    }

    /// The same of bytes that a connection takes as long as it lives.
    pub(crate) fn charge_connection(&self, bytes: usize) -> Charge {
        Charge::new(self.0.by_connections(), bytes)
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").field("held", self.0.held()).finish_non_exhaustive()
    }
}

/// Bytes that count among those held while it lives.
#[derive(Debug)]
pub(crate) struct Charge {
    held: Arc<AtomicUsize>,
    bytes: usize,
}

impl Charge {
    fn new(held: &Arc<AtomicUsize>, bytes: usize) -> Charge {
        held.fetch_add(bytes, Ordering::Relaxed);
        Charge { held: held.clone(), bytes }
    }

    /// Bytes that are charged in all, to the same.
    pub(crate) fn total(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.held.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}
