//! The tasks that wait for a socket. The shard wakes them at the host's events.

use std::rc::Rc;
use std::task::Waker;

use lightwait_core::{ConnectionId, Event, ListenerId, Readiness, UdpId};

use crate::executor::Task;

/// A task that waits.
#[derive(Clone, Debug)]
pub(crate) enum Waiter {
    /// A task of this shard: it needs no waker.
    Task(Rc<Task>),
    /// A task of another runtime, by its waker.
    Other(Waker),
}

impl PartialEq for Waiter {
    fn eq(&self, other: &Waiter) -> bool {
        match (self, other) {
            (Waiter::Task(a), Waiter::Task(b)) => Rc::ptr_eq(a, b),
            (Waiter::Other(a), Waiter::Other(b)) => a.will_wake(b),
            _ => false,
        }
    }
}

/// The tasks that wait for one thing. Nearly always one, which needs no allocation.
#[derive(Debug, Default)]
pub(crate) enum Waiters {
    #[default]
    Nobody,
    One(Waiter),
    Many(Vec<Waiter>),
}

impl Waiters {
    /// Adds a task, unless it waits already.
    #[inline(always)]
    pub(crate) fn add(&mut self, waiter: Waiter) {
        match self {
            Waiters::Nobody => *self = Waiters::One(waiter),
            _ => self.add_another(waiter),
        }
    }

    fn add_another(&mut self, waiter: Waiter) {
        *self = match self.take() {
            Waiters::Nobody => Waiters::One(waiter),
            Waiters::One(first) if first == waiter => Waiters::One(first),
            Waiters::One(first) => Waiters::Many(vec![first, waiter]),
            Waiters::Many(mut all) => {
                if !all.contains(&waiter) {
                    all.push(waiter);
                }
                Waiters::Many(all)
            }
        };
    }

    /// True if a task waits.
    pub(crate) fn is_any(&self) -> bool {
        !matches!(self, Waiters::Nobody)
    }

    #[inline]
    pub(crate) fn take(&mut self) -> Waiters {
        std::mem::take(self)
    }

    #[inline]
    fn clear(&mut self) {
        if self.is_any() {
            *self = Waiters::Nobody;
        }
    }

    /// Hands each task to `wake`; none waits any more.
    #[inline]
    pub(crate) fn wake(&mut self, mut wake: impl FnMut(Waiter)) {
        match self.take() {
            Waiters::Nobody => (),
            Waiters::One(waiter) => wake(waiter),
            Waiters::Many(all) => {
                all.into_iter().for_each(wake);
            }
        }
    }
}

/// The waiting tasks of all sockets of a shard, beside the engine's own tables. Closing a socket
/// removes them: none waits for the next socket in its place.
#[derive(Debug, Default)]
pub(crate) struct WaiterTable {
    connections: Vec<Socket>,
    udp: Vec<Socket>,
    listeners: Vec<Waiters>,
    /// The tasks that wait for datagrams that no socket hears.
    flows: Waiters,
    /// The tasks that wait for news of our addresses.
    addresses: Waiters,
}

#[derive(Debug, Default)]
pub(crate) struct Socket {
    pub(crate) readers: Waiters,
    pub(crate) writers: Waiters,
}

impl WaiterTable {
    #[inline]
    pub(crate) fn readers(&mut self, id: ConnectionId) -> &mut Waiters {
        &mut at(&mut self.connections, id.index()).readers
    }

    #[inline]
    pub(crate) fn writers(&mut self, id: ConnectionId) -> &mut Waiters {
        &mut at(&mut self.connections, id.index()).writers
    }

    pub(crate) fn udp(&mut self, id: UdpId) -> &mut Socket {
        at(&mut self.udp, id.index())
    }

    pub(crate) fn acceptors(&mut self, id: ListenerId) -> &mut Waiters {
        at(&mut self.listeners, id.index())
    }

    pub(crate) fn flows(&mut self) -> &mut Waiters {
        &mut self.flows
    }

    pub(crate) fn addresses(&mut self) -> &mut Waiters {
        &mut self.addresses
    }

    /// Hands the tasks that an event concerns to `wake`; they no longer wait.
    #[inline]
    pub(crate) fn wake(&mut self, event: Event, mut wake: impl FnMut(Waiter)) {
        let (waiting, readiness) = match event {
            Event::Ready(id, readiness) => (self.connections.get_mut(id.index()), readiness),
            Event::Udp(id, readiness) => (self.udp.get_mut(id.index()), readiness),
            Event::Acceptable(id) => return self.acceptors(id).wake(wake),
            Event::Flow => return self.flows.wake(wake),
            Event::Addresses => return self.addresses.wake(wake),
        };
        let Some(waiting) = waiting else { return };
        let for_all = Readiness::CLOSED | Readiness::WANTED_BACK;
        let is_for_all = readiness.without(for_all) != readiness;
        let concerns = |what| is_for_all || readiness.contains(what);
        if concerns(Readiness::READABLE) {
            waiting.readers.wake(&mut wake);
        }
        if concerns(Readiness::WRITABLE) {
            waiting.writers.wake(&mut wake);
        }
    }

    /// Removes the tasks that wait for a connection that its user closes.
    #[inline]
    pub(crate) fn forget(&mut self, id: ConnectionId) {
        if let Some(waiting) = self.connections.get_mut(id.index()) {
            waiting.readers.clear();
            waiting.writers.clear();
        }
    }
}

/// The entry at that index. The table grows to hold it.
#[inline]
fn at<T: Default>(table: &mut Vec<T>, index: usize) -> &mut T {
    if index >= table.len() {
        table.resize_with(index + 1, T::default);
    }
    &mut table[index]
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct Count(AtomicU32);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn who_waits_twice_is_woken_once_and_everyone_who_waits_is() {
        let counts: [Arc<Count>; 3] = Default::default();
        let mut waiters = Waiters::default();
        for number in [0, 0, 1, 0, 1, 2, 2, 0] {
            waiters.add(Waiter::Other(Waker::from(counts[number].clone())));
        }
        let mut woken = 0;
        waiters.wake(|waiter| {
            let Waiter::Other(waker) = waiter else { unreachable!("no task was added") };
            waker.wake();
            woken += 1;
        });
        assert_eq!(woken, 3);
        assert!(counts.iter().all(|count| count.0.load(Ordering::Relaxed) == 1));
        assert!(matches!(waiters, Waiters::Nobody));
    }
}
