//! What all sockets of a stack hold on the way between its thread and the application. It counts as
//! part of the stack's memory for buffers (`limits.pages`), and is bounded in sum: while that
//! memory is short each direction of a socket has room for a little only.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::shard::Memory;

/// Bytes that wait on the way, at most, in each direction: those of the largest segment.
pub(super) const BUDGET: usize = 64 << 10;

/// The same while memory is short. It is never less, so that every connection moves.
pub(super) const LEAST: usize = 4 << 10;

/// The account of a stack.
#[derive(Debug)]
pub(super) struct Ledger {
    held: Arc<AtomicUsize>,
    /// Bytes that all may hold, at most, whatever the shard says.
    limit: usize,
    /// The shard has said in its last turn that there is no room for more.
    is_short: AtomicBool,
}

impl Ledger {
    /// An account on a part of the stack's memory.
    pub(super) fn new(memory: &Memory) -> Arc<Ledger> {
        let (held, limit) = (memory.held().clone(), memory.bytes() / 2);
        Arc::new(Ledger { held, limit, is_short: AtomicBool::new(false) })
    }

    pub(super) fn set_short(&self, is_short: bool) {
        self.is_short.store(is_short, Ordering::Relaxed);
    }

    fn has_room(&self) -> bool {
        !self.is_short.load(Ordering::Relaxed) && self.held.load(Ordering::Relaxed) < self.limit
    }
}

/// What one holder has, on the stack's account.
#[derive(Debug)]
pub(super) struct Charge {
    ledger: Arc<Ledger>,
    bytes: usize,
}

impl Charge {
    pub(super) fn on(ledger: &Arc<Ledger>) -> Charge {
        Charge { ledger: ledger.clone(), bytes: 0 }
    }

    /// Bytes that may wait in one direction now.
    pub(super) fn budget(&self) -> usize {
        if self.ledger.has_room() { BUDGET } else { LEAST }
    }

    pub(super) fn add(&mut self, bytes: usize) {
        self.bytes += bytes;
        self.ledger.held.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn sub(&mut self, bytes: usize) {
        if bytes > 0 {
            self.bytes -= bytes;
            self.ledger.held.fetch_sub(bytes, Ordering::Relaxed);
        }
    }

    /// Takes over what another has of that.
    pub(super) fn take_over(&mut self, from: &mut Charge, bytes: usize) {
        from.bytes -= bytes;
        self.bytes += bytes;
    }

    pub(super) fn clear(&mut self) {
        self.sub(self.bytes);
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.clear();
    }
}
