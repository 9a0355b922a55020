//! Which writer is next in the line for pages: one trait, and an implementation for each order.

mod buckets;

use alloc::collections::VecDeque;

use crate::config::{PoolConfig, PoolPolicy};
use crate::event::ConnectionId;
use crate::time::Instant;
use buckets::Buckets;

/// A connection that waits for pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Waiter {
    pub(super) id: ConnectionId,
    pub(super) since: Instant,
}

/// How one that waits stands, in pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Standing {
    /// What it needs: the size of its send buffer.
    pub(super) needs: usize,
    /// What it holds.
    pub(super) holds: usize,
}

/// An order in which connections wait. Every call takes as long however many do.
pub(super) trait Order {
    /// Adds a waiter that is not in the order yet.
    fn push(&mut self, waiter: Waiter, standing: Standing);

    /// Moves the waiter in that slot, if it is in the order, to its new standing.
    fn restand(&mut self, slot: u32, standing: Standing);

    /// Takes out the one that is next. It may be gone by then.
    fn pop(&mut self) -> Option<Waiter>;

    /// How many there are, those that are gone among them.
    fn len(&self) -> usize;

    /// When the longest wait began, among the waiters that are next, one of each kind.
    fn waits_since(&self) -> Option<Instant>;
}

/// First come, first served.
#[derive(Debug, Default)]
pub(super) struct Fifo(VecDeque<Waiter>);

impl Fifo {
    /// Drops those that are gone.
    pub(super) fn retain(&mut self, is_there: impl Fn(ConnectionId) -> bool) {
        self.0.retain(|waiter| is_there(waiter.id));
    }
}

impl Order for Fifo {
    fn push(&mut self, waiter: Waiter, _standing: Standing) {
        self.0.push_back(waiter);
    }

    fn restand(&mut self, _slot: u32, _standing: Standing) {}

    fn pop(&mut self) -> Option<Waiter> {
        self.0.pop_front()
    }

    fn len(&self) -> usize {
        self.0.len()
    }

    fn waits_since(&self) -> Option<Instant> {
        self.0.front().map(|waiter| waiter.since)
    }
}

/// The order of a policy.
#[derive(Debug)]
pub(super) enum Line {
    Fifo(Fifo),
    Priority(Buckets),
}

impl Line {
    /// The line of that policy.
    pub(super) fn new(config: &PoolConfig) -> Line {
        match config.policy {
            PoolPolicy::Priority => Line::Priority(Buckets::new(config)),
            _ => Line::Fifo(Fifo::default()),
        }
    }

    /// True if it matters how one stands.
    pub(super) fn heeds_standing(&self) -> bool {
        matches!(self, Line::Priority(_))
    }

    /// True if no writer waits.
    pub(super) fn is_empty(&self) -> bool {
        self.order().len() == 0
    }

    /// Drops those that are gone, where they are not known by their slots.
    pub(super) fn retain(&mut self, is_there: impl Fn(ConnectionId) -> bool) {
        if let Line::Fifo(fifo) = self {
            fifo.retain(is_there);
        }
    }

    fn order(&self) -> &dyn Order {
        match self {
            Line::Fifo(order) => order,
            Line::Priority(order) => order,
        }
    }

    fn order_mut(&mut self) -> &mut dyn Order {
        match self {
            Line::Fifo(order) => order,
            Line::Priority(order) => order,
        }
    }
}

impl Order for Line {
    fn push(&mut self, waiter: Waiter, standing: Standing) {
        self.order_mut().push(waiter, standing);
    }

    fn restand(&mut self, slot: u32, standing: Standing) {
        self.order_mut().restand(slot, standing);
    }

    fn pop(&mut self) -> Option<Waiter> {
        self.order_mut().pop()
    }

    fn len(&self) -> usize {
        self.order().len()
    }

    fn waits_since(&self) -> Option<Instant> {
        self.order().waits_since()
    }
}
