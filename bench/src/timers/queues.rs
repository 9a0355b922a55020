//! Two collections of the standard library: a binary heap with lazy cancelling, and a B-tree.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

use lightwait_core::Instant;

use super::connection::Connection;
use super::scheme::{Scheme, When};

/// Cancelled entries of the heap stay until their time. A number in the connection names the valid
/// entry; zero means none.
#[derive(Debug)]
pub(super) struct Heap {
    entries: BinaryHeap<Reverse<(Instant, u32, u32)>>,
}

impl Scheme for Heap {
    type Key = u32;

    fn new(_: Instant) -> Self {
        Heap { entries: BinaryHeap::new() }
    }

    fn birth(&mut self, index: u32, connection: &mut Connection<u32>, when: When) {
        self.set(index, connection, when);
    }

    #[inline(always)]
    fn set(&mut self, index: u32, connection: &mut Connection<u32>, when: When) {
        // Odd numbers mean that the timer is set.
        connection.key = (connection.key + 1) | 1;
        self.entries.push(Reverse((when.at, index, connection.key)));
    }

    #[inline(always)]
    fn cancel(&mut self, _: u32, connection: &mut Connection<u32>) {
        connection.key += 1;
    }

    #[inline(always)]
    fn rearm(&mut self, index: u32, connection: &mut Connection<u32>, when: When) {
        self.set(index, connection, when);
    }

    fn death(&mut self, index: u32, connection: &mut Connection<u32>) {
        self.cancel(index, connection);
    }

    fn turn(
        &mut self,
        now: Instant,
        connections: &mut [Connection<u32>],
        mut fire: impl FnMut(u32, &mut Connection<u32>),
    ) {
        while let Some(&Reverse((at, index, key))) = self.entries.peek() {
            if at > now {
                return;
            }
            self.entries.pop();
            let connection = &mut connections[index as usize];
            if connection.key == key {
                connection.key += 1;
                fire(index, connection);
            }
        }
    }
}

/// Entries in order of time; cancelling removes them.
#[derive(Debug)]
pub(super) struct Tree {
    entries: BTreeSet<(Instant, u32)>,
}

impl Scheme for Tree {
    /// The deadline.
    type Key = Instant;

    fn new(_: Instant) -> Self {
        Tree { entries: BTreeSet::new() }
    }

    fn birth(&mut self, index: u32, connection: &mut Connection<Instant>, when: When) {
        self.set(index, connection, when);
    }

    #[inline(always)]
    fn set(&mut self, index: u32, connection: &mut Connection<Instant>, when: When) {
        connection.key = when.at;
        self.entries.insert((when.at, index));
    }

    #[inline(always)]
    fn cancel(&mut self, index: u32, connection: &mut Connection<Instant>) {
        self.entries.remove(&(connection.key, index));
    }

    #[inline(always)]
    fn rearm(&mut self, index: u32, connection: &mut Connection<Instant>, when: When) {
        self.cancel(index, connection);
        self.set(index, connection, when);
    }

    fn death(&mut self, index: u32, connection: &mut Connection<Instant>) {
        self.cancel(index, connection);
    }

    fn turn(
        &mut self,
        now: Instant,
        connections: &mut [Connection<Instant>],
        mut fire: impl FnMut(u32, &mut Connection<Instant>),
    ) {
        while self.entries.first().is_some_and(|(at, _)| *at <= now) {
            let Some((_, index)) = self.entries.pop_first() else { return };
            fire(index, &mut connections[index as usize]);
        }
    }
}
