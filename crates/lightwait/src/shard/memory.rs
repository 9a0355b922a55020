//! The budget of a shard's memory, for those who hold some of it beside the stack.

use std::collections::VecDeque;
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use lightwait_core::Host;
use lightwait_core::tcp::pool::Level;

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
}

impl Memory {
    pub(super) fn new(local: Rc<Local>) -> Memory {
        let held = Arc::default();
        local.memory().held.push(Arc::clone(&held));
        Memory { local, held }
    }

    /// Bytes that are held: its user counts them, on whichever thread.
    pub fn held(&self) -> &Arc<AtomicUsize> {
        &self.held
    }

    /// How much of the budget is used up, by all together.
    pub fn level(&self) -> Level {
        self.local.memory_level()
    }

    /// Ready while more may be held: others hold no more than half of the budget, and no connection
    /// waits for pages. Else whoever polls with `context` is woken when that is so again; those who
    /// came first are woken first.
    pub fn poll_room(&self, context: &mut Context<'_>) -> Poll<()> {
        if self.local.has_memory() {
            return Poll::Ready(());
        }
        let waiter = self.local.executor().waiter(context.waker());
        self.local.memory().waiting.push_back(waiter);
        Poll::Pending
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
#[derive(Debug, Default)]
pub(crate) struct Budget {
    held: Vec<Arc<AtomicUsize>>,
    waiting: VecDeque<Waiter>,
}

impl Budget {
    /// Tells `host` how much others hold.
    pub(super) fn charge(&self, host: &mut Host) {
        if !self.held.is_empty() {
            let bytes = self.held.iter().map(|held| held.load(Ordering::Relaxed)).sum();
            host.set_memory_elsewhere(bytes);
        }
    }

    /// True if somebody waits.
    pub(super) fn is_waited_for(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Those who are to be woken, if `host` has memory for them.
    pub(super) fn due(&mut self, host: &Host) -> impl Iterator<Item = Waiter> {
        let has_room = host.has_room_elsewhere();
        let count = if has_room { (host.pages_free() / PAGES_EACH).max(1) } else { 0 };
        self.waiting.drain(..count.min(self.waiting.len()))
    }
}
