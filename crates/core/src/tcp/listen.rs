//! Listeners: the sockets that wait for connections on an address and port, and their queues.
//!
//! One listener may hear what no other does: every address and port that packets for us may have.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::{Ipv6Addr, SocketAddr};

use crate::event::ListenerId;
use crate::flow::Tuple;
use crate::slab::{Key, Slab};
use crate::tcp::SocketOptions;
use crate::tcp::terms::Terms;

/// One listener.
#[derive(Debug)]
pub struct Listener {
    /// Where it listens; the unspecified address stands for all of ours of its version, `[::]` for
    /// both versions. Port 0 stands for every port.
    pub local: SocketAddr,
    /// Its user judges each SYN before it is answered.
    pub asks: bool,
    /// Established connections not yet accepted: the most there may be.
    pub backlog: usize,
    /// The options that its connections start with.
    pub options: Arc<SocketOptions>,
    /// The terms that our SYNs announce with these options.
    pub(crate) terms: Terms,
    /// Slots of established connections not yet accepted, oldest first.
    pub queue: VecDeque<u32>,
    /// The address, as [`Tuple::local_words`] has it, and if it is IPv6's.
    words: [u64; 2],
    is_ipv6: bool,
}

impl Listener {
    fn new(local: SocketAddr, backlog: usize, options: Arc<SocketOptions>, terms: Terms) -> Self {
        let end = (local.ip(), local.port());
        let (words, is_ipv6) = (Tuple::new(end, end).local_words(), local.is_ipv6());
        let (backlog, queue) = (backlog.max(1), VecDeque::new());
        Listener { local, asks: false, backlog, options, terms, queue, words, is_ipv6 }
    }

    /// True if a further connection cannot wait: the peer's ACK, or SYN, is ignored.
    pub fn is_full(&self) -> bool {
        self.queue.len() >= self.backlog
    }

    /// True if what comes to our end of `tuple`, which has its port, is for it.
    fn hears(&self, tuple: &Tuple) -> bool {
        let (words, is_ipv6) = (tuple.local_words(), tuple.is_ipv6());
        self.words == words && self.is_ipv6 == is_ipv6
            || self.words == [0; 2] && (self.is_ipv6 || !is_ipv6)
    }
}

/// All listeners of a host.
#[derive(Debug, Default)]
pub(crate) struct Listeners {
    slots: Slab<Listener>,
    /// Ports in order, each with its slots: what a SYN costs hardly grows with the listeners of
    /// other ports.
    by_port: Vec<(u16, Vec<u32>)>,
    /// The one that hears what no other does.
    any: Option<u32>,
}

impl Listeners {
    /// Adds a listener; `None` if another has exactly that address and port.
    pub(crate) fn insert(
        &mut self,
        local: SocketAddr,
        backlog: usize,
        options: Arc<SocketOptions>,
        terms: Terms,
    ) -> Option<ListenerId> {
        if self.on_port(local.port()).any(|(_, listener)| listener.local == local) {
            return None;
        }
        let Key { index, generation } =
            self.slots.insert(Listener::new(local, backlog, options, terms));
        match self.place_of(local.port()) {
            Ok(place) => self.by_port[place].1.push(index),
            Err(place) => self.by_port.insert(place, (local.port(), Vec::from([index]))),
        }
        Some(ListenerId { index, generation })
    }

    /// Adds the listener for what no other hears, if there is none. `asks`: its user judges each
    /// SYN before it is answered.
    pub(crate) fn insert_any(
        &mut self,
        asks: bool,
        backlog: usize,
        options: Arc<SocketOptions>,
        terms: Terms,
    ) -> Option<ListenerId> {
        if self.any.is_some() {
            return None;
        }
        let local = SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), 0);
        let listener = Listener { asks, ..Listener::new(local, backlog, options, terms) };
        let Key { index, generation } = self.slots.insert(listener);
        self.any = Some(index);
        Some(ListenerId { index, generation })
    }

    /// Where the slots of `port` are, or would be.
    fn place_of(&self, port: u16) -> Result<usize, usize> {
        self.by_port.binary_search_by_key(&port, |(port, _)| *port)
    }

    fn slots_of(&self, port: u16) -> &[u32] {
        self.place_of(port).map_or(&[], |place| &self.by_port[place].1)
    }

    fn on_port(&self, port: u16) -> impl Iterator<Item = (u32, &Listener)> {
        let slots = self.slots_of(port).iter();
        slots.filter_map(|index| Some((*index, self.slots.get(*index)?)))
    }

    /// True if some listener has `port`.
    pub(crate) fn has_port(&self, port: u16) -> bool {
        self.place_of(port).is_ok()
    }

    /// The one of that number.
    pub(crate) fn at(&self, number: u32) -> Option<&Listener> {
        self.slots.get(number)
    }

    /// No number of one is as high.
    pub(crate) fn end(&self) -> u32 {
        self.slots.end()
    }

    /// The listener for a SYN to our end of `tuple`: the exact address before any, and a port
    /// before every port.
    #[inline(always)]
    pub(crate) fn find(&self, tuple: &Tuple) -> Option<(ListenerId, &Listener)> {
        // Nearly always there is one, and it hears.
        let &[index] = self.slots_of(tuple.local_port()) else { return self.find_best(tuple) };
        let (listener, generation) = self.slots.named(index)?;
        debug_assert_eq!(listener.local.port(), tuple.local_port());
        if !listener.hears(tuple) {
            return self.find_any();
        }
        Some((ListenerId { index, generation }, listener))
    }

    /// The listener for what no other hears.
    fn find_any(&self) -> Option<(ListenerId, &Listener)> {
        let index = self.any?;
        let (listener, generation) = self.slots.named(index)?;
        Some((ListenerId { index, generation }, listener))
    }

    /// Finds the best listener among several on one port, or none.
    fn find_best(&self, tuple: &Tuple) -> Option<(ListenerId, &Listener)> {
        let on_port = self.on_port(tuple.local_port());
        let best = on_port.filter(|(_, listener)| listener.hears(tuple)).max_by_key(|(_, it)| {
            let ip = it.local.ip();
            (!ip.is_unspecified(), ip.is_ipv6() == tuple.is_ipv6())
        });
        let Some((index, listener)) = best else { return self.find_any() };
        Some((ListenerId { index, generation: self.slots.generation(index) }, listener))
    }

    /// The listener of that name.
    pub(crate) fn get(&self, id: ListenerId) -> Option<&Listener> {
        let (listener, generation) = self.slots.named(id.index)?;
        (generation == id.generation).then_some(listener)
    }

    /// The listener of that name, to be changed.
    pub(crate) fn get_mut(&mut self, id: ListenerId) -> Option<&mut Listener> {
        let (listener, generation) = self.slots.named_mut(id.index)?;
        (generation == id.generation).then_some(listener)
    }

    /// No SYN finds a listener any more. Each stays for the handshakes that have begun, and for the
    /// connections that wait.
    pub(crate) fn hear_nothing(&mut self) {
        self.by_port.clear();
        self.any = None;
    }

    /// Takes a listener out.
    pub(crate) fn remove(&mut self, id: ListenerId) -> Option<Listener> {
        let port = self.get(id)?.local.port();
        self.any = self.any.filter(|index| *index != id.index);
        if let Ok(place) = self.place_of(port) {
            let slots = &mut self.by_port[place].1;
            slots.retain(|index| *index != id.index);
            if slots.is_empty() {
                self.by_port.remove(place);
            }
        }
        self.slots.take(id.index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::TcpConfig;

    fn insert(listeners: &mut Listeners, local: SocketAddr) -> Option<ListenerId> {
        let options = Arc::new(SocketOptions::new(&TcpConfig::default()));
        listeners.insert(local, 1, options, Terms::default())
    }

    fn at(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn the_exact_address_comes_before_any() {
        let mut listeners = Listeners::default();
        let any = insert(&mut listeners, at("0.0.0.0:80")).unwrap();
        let both = insert(&mut listeners, at("[::]:80")).unwrap();
        let exact = insert(&mut listeners, at("10.0.0.1:80")).unwrap();
        let find = |ip: &str, port| {
            let end = (ip.parse().unwrap(), port);
            listeners.find(&Tuple::new(end, end)).map(|found| found.0)
        };
        assert_eq!(find("10.0.0.1", 80), Some(exact));
        assert_eq!(find("10.0.0.2", 80), Some(any));
        assert_eq!(find("fd00::1", 80), Some(both));
        assert_eq!(find("10.0.0.1", 81), None);
    }

    #[test]
    fn what_no_other_hears_is_for_the_listener_of_every_port() {
        let mut listeners = Listeners::default();
        let port = insert(&mut listeners, at("10.0.0.1:80")).unwrap();
        let mut every = || {
            let options = Arc::new(SocketOptions::new(&TcpConfig::default()));
            listeners.insert_any(true, 1, options, Terms::default())
        };
        let any = every().unwrap();
        assert_eq!(every(), None, "there is one");
        let find = |listeners: &Listeners, ip: &str, port| {
            let end = (ip.parse().unwrap(), port);
            listeners.find(&Tuple::new(end, end)).map(|found| found.0)
        };
        assert_eq!(find(&listeners, "10.0.0.1", 80), Some(port));
        for (ip, port) in [("10.0.0.2", 80), ("10.0.0.1", 81), ("fd00::1", 80), ("8.8.8.8", 53)] {
            assert_eq!(find(&listeners, ip, port), Some(any));
        }
        assert!(listeners.get(any).unwrap().asks && !listeners.get(port).unwrap().asks);
        listeners.remove(any);
        assert_eq!(find(&listeners, "10.0.0.2", 80), None);
        assert_eq!(find(&listeners, "10.0.0.1", 81), None);
    }

    #[test]
    fn an_address_is_taken_once_and_free_when_its_listener_is_gone() {
        let mut listeners = Listeners::default();
        let id = insert(&mut listeners, at("0.0.0.0:80")).unwrap();
        assert!(insert(&mut listeners, at("0.0.0.0:80")).is_none());
        assert!(listeners.remove(id).is_some());
        assert!(listeners.remove(id).is_none());
        assert!(insert(&mut listeners, at("0.0.0.0:80")).is_some());
        assert!(listeners.get(id).is_none(), "the old name is dead");
    }
}
