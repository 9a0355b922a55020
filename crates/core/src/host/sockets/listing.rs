//! What there is, for people who look.

use core::net::SocketAddr;

use super::Host;
use crate::event::ConnectionId;
use crate::flow::Tuple;
use crate::tcp::slot::Slot;
use crate::tcp::{ConnectionInfo, State};

/// A connection, as [`Host::connections_from`] finds it.
#[derive(Clone, Copy, Debug)]
pub struct LiveConnection<'a> {
    host: &'a Host,
    slot: &'a Slot,
    place: u32,
}

impl LiveConnection<'_> {
    /// Its place: where a walk goes on is one beyond.
    pub fn place(&self) -> u32 {
        self.place
    }

    /// Its name, as its user has it.
    pub fn id(&self) -> ConnectionId {
        let generation = self.host.slots.generation(self.place);
        ConnectionId { index: self.place, generation }
    }

    /// Our end.
    pub fn local(&self) -> SocketAddr {
        self.slot.tuple.local()
    }

    /// The peer's end.
    pub fn remote(&self) -> SocketAddr {
        self.slot.tuple.remote()
    }

    /// Its state.
    pub fn state(&self) -> State {
        self.slot.state()
    }

    /// True if its user has left it: [`Host::info`] knows it no more.
    pub fn is_orphan(&self) -> bool {
        self.slot.is_orphan()
    }

    /// The rest of its state.
    pub fn info(&self) -> ConnectionInfo {
        self.host.info_of(self.slot)
    }
}

impl Host {
    /// Every listener, half-open handshake, connection (closing ones without a user as well) and
    /// TIME-WAIT record: our end, the peer's, the state.
    pub fn sockets(&self) -> impl Iterator<Item = (SocketAddr, Option<SocketAddr>, State)> {
        let row = |tuple: &Tuple, state| (tuple.local(), Some(tuple.remote()), state);
        let listeners = self.opening.listeners.iter().map(|l| (l.local, None, State::Listen));
        let half_open = self.opening.syn_cache.iter();
        let half_open = half_open.map(move |entry| row(&entry.tuple, State::SynReceived));
        let live = self.connections_from(0);
        let live = live.map(|it| (it.local(), Some(it.remote()), it.state()));
        let ended = self.closed.time_wait.iter();
        let ended = ended.map(move |record| row(&record.tuple, State::TimeWait));
        let asleep = |tuple: &Tuple| {
            let hash = self.live.hasher.hash(tuple);
            self.find_connection(hash, tuple).is_none()
        };
        let awaiting_fin = self.closed.fin_wait_2.tuples().filter(asleep);
        let awaiting_fin = awaiting_fin.map(move |tuple| row(&tuple, State::FinWait2));
        listeners.chain(half_open).chain(live).chain(awaiting_fin).chain(ended)
    }

    /// The connections from the place `first` on, in the order of their places. Half-open
    /// handshakes and records are none. A walk over a million of them goes in pieces, so that it
    /// holds nobody up: from one beyond the [place](LiveConnection::place) of the last one. It then
    /// sees each connection that stays once.
    pub fn connections_from(&self, first: u32) -> impl Iterator<Item = LiveConnection<'_>> {
        let known = self.slots.iter_from(first).filter(|(_, slot)| slot.is_known());
        known.map(|(place, slot)| LiveConnection { host: self, slot, place })
    }
}
