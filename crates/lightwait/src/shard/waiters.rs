//! Who waits for a socket.

use std::task::Waker;

use lightwait_core::{ConnectionId, ListenerId, Readiness};

/// Those who wait for one thing. Nearly always one, who needs no allocation.
#[derive(Debug, Default)]
#[expect(clippy::box_collection, reason = "a word where nearly always nothing is")]
pub(crate) struct Waiters {
    first: Option<Waker>,
    /// Not there if there are none.
    others: Option<Box<Vec<Waker>>>,
}

impl Waiters {
    /// Adds one, unless it waits already.
    pub(crate) fn add(&mut self, waker: &Waker) {
        match &self.first {
            None => self.first = Some(waker.clone()),
            Some(first) if first.will_wake(waker) => (),
            Some(_) => {
                let others = self.others.get_or_insert_default();
                if !others.iter().any(|other| other.will_wake(waker)) {
                    others.push(waker.clone());
                }
            }
        }
    }

    fn take(&mut self) -> Waiters {
        std::mem::take(self)
    }

    /// Wakes all. With nothing borrowed: a waker may call anything.
    pub(crate) fn wake(self) {
        let Waiters { first, others } = self;
        if let Some(first) = first {
            first.wake();
        }
        if let Some(others) = others {
            others.into_iter().for_each(Waker::wake);
        }
    }
}

/// The waiters of all sockets of a shard, beside the engine's own table.
#[derive(Debug, Default)]
pub(crate) struct WaiterTable {
    connections: Vec<Connection>,
    listeners: Vec<(Option<ListenerId>, Waiters)>,
}

#[derive(Debug, Default)]
struct Connection {
    id: Option<ConnectionId>,
    readers: Waiters,
    writers: Waiters,
}

impl WaiterTable {
    pub(crate) fn readers(&mut self, id: ConnectionId) -> &mut Waiters {
        &mut self.connection(id).readers
    }

    pub(crate) fn writers(&mut self, id: ConnectionId) -> &mut Waiters {
        &mut self.connection(id).writers
    }

    pub(crate) fn acceptors(&mut self, id: ListenerId) -> &mut Waiters {
        if self.listeners.len() <= id.index() {
            self.listeners.resize_with(id.index() + 1, Default::default);
        }
        let (known, waiters) = &mut self.listeners[id.index()];
        if *known != Some(id) {
            *known = Some(id);
            *waiters = Waiters::default();
        }
        waiters
    }

    /// Takes those whom `readiness` of the connection concerns: readers, and writers.
    pub(crate) fn take(&mut self, id: ConnectionId, readiness: Readiness) -> [Waiters; 2] {
        let Some(entry) = self.connections.get_mut(id.index()) else { return Default::default() };
        if entry.id != Some(id) {
            return Default::default();
        }
        let concerns = |what| readiness.contains(Readiness::CLOSED) || readiness.contains(what);
        let take = |waiters: &mut Waiters, concerned: bool| {
            if concerned { waiters.take() } else { Waiters::default() }
        };
        [
            take(&mut entry.readers, concerns(Readiness::READABLE)),
            take(&mut entry.writers, concerns(Readiness::WRITABLE)),
        ]
    }

    /// Takes those who wait to accept.
    pub(crate) fn take_acceptors(&mut self, id: ListenerId) -> Waiters {
        self.acceptors(id).take()
    }

    /// Forgets a connection that its user has closed.
    pub(crate) fn forget(&mut self, id: ConnectionId) {
        if let Some(entry) = self.connections.get_mut(id.index())
            && entry.id == Some(id)
        {
            *entry = Connection::default();
        }
    }

    fn connection(&mut self, id: ConnectionId) -> &mut Connection {
        if self.connections.len() <= id.index() {
            self.connections.resize_with(id.index() + 1, Default::default);
        }
        let entry = &mut self.connections[id.index()];
        if entry.id != Some(id) {
            *entry = Connection { id: Some(id), ..Connection::default() };
        }
        entry
    }
}
