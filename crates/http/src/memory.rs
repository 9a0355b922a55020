//! The memory that responses hold, as a part of a budget that somebody else keeps.

use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How much of the budget is used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// There is enough: files are read ahead.
    Plenty,
    /// Nothing is read before it is needed.
    Scarce,
    /// What is needed is read in small pieces.
    Full,
}

/// A budget for memory. Clones share it.
#[derive(Clone)]
pub struct Memory {
    held: Arc<AtomicUsize>,
    level: Rc<dyn Fn() -> Level>,
}

impl Memory {
    /// A budget of which `level` says how much is used up. Whoever keeps it looks at
    /// [`Memory::held`].
    pub fn new(level: impl Fn() -> Level + 'static) -> Memory {
        Memory { held: Arc::default(), level: Rc::new(level) }
    }

    /// A budget without an end.
    pub fn boundless() -> Memory {
        Memory::new(|| Level::Plenty)
    }

    /// Bytes that responses hold, all together. Chunks come back from whichever thread drops them
    /// last; so it is an atomic, changed twice for each chunk.
    pub fn held(&self) -> &Arc<AtomicUsize> {
        &self.held
    }

    /// How much of the budget is used up.
    pub(crate) fn level(&self) -> Level {
        (self.level)()
    }

    /// Charges `bytes`, until the charge is dropped.
    pub(crate) fn charge(&self, bytes: usize) -> Charge {
        self.held.fetch_add(bytes, Ordering::Relaxed);
        Charge { held: self.held.clone(), bytes }
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").field("held", &self.held).finish_non_exhaustive()
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
