//! The memory that responses hold, as a part of a budget that somebody else keeps.

use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

/// Who keeps the budget.
pub trait Keeper: 'static {
    /// Bytes that responses hold: counted here, on whichever thread the last of a chunk is dropped.
    fn held(&self) -> &Arc<AtomicUsize>;

    /// True if nothing should be held that is not needed now.
    fn is_scarce(&self) -> bool;

    /// Ready while there is some left; else whoever polls is woken when there is.
    fn poll_room(&self, cx: &mut Context<'_>) -> Poll<()>;
}

/// A budget for memory. Clones share it.
#[derive(Clone)]
pub struct Memory(Rc<dyn Keeper>);

/// A budget without an end.
#[derive(Debug, Default)]
struct Boundless(Arc<AtomicUsize>);

impl Keeper for Boundless {
    fn held(&self) -> &Arc<AtomicUsize> {
        &self.0
    }

    fn is_scarce(&self) -> bool {
        false
    }

    fn poll_room(&self, _cx: &mut Context<'_>) -> Poll<()> {
        Poll::Ready(())
    }
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

    /// True if nothing should be held that is not needed now.
    pub(crate) fn is_scarce(&self) -> bool {
        self.0.is_scarce()
    }

    /// Ready while there is some left.
    pub(crate) fn poll_room(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.0.poll_room(cx)
    }

    /// Charges `bytes`, until the charge is dropped.
    pub(crate) fn charge(&self, bytes: usize) -> Charge {
        let held = self.0.held().clone();
        held.fetch_add(bytes, Ordering::Relaxed);
        Charge { held, bytes }
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

impl Drop for Charge {
    fn drop(&mut self) {
        self.held.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}
