//! Listeners: who waits for connections on which address and port, and the queues between them.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

use super::slab::Slab;
use crate::event::ListenerId;
use crate::tcp::SocketOptions;

/// One listener.
#[derive(Debug)]
pub struct Listener {
    /// Where it listens; the unspecified address stands for all of ours of its version, `[::]` for
    /// both versions.
    pub local: SocketAddr,
    /// Established connections not yet accepted: the most there may be.
    pub backlog: usize,
    /// What its connections start with.
    pub options: Arc<SocketOptions>,
    /// Slots of established connections not yet accepted, oldest first.
    pub queue: VecDeque<u32>,
}

impl Listener {
    /// True if a further connection cannot wait: the peer's ACK, or SYN, is ignored.
    pub fn is_full(&self) -> bool {
        self.queue.len() >= self.backlog
    }

    fn hears(&self, address: IpAddr) -> bool {
        let ip = self.local.ip();
        let is_of_version = || ip.is_ipv6() || address.is_ipv4();
        ip == address || ip.is_unspecified() && is_of_version()
    }
}

/// All listeners of a host.
#[derive(Debug, Default)]
pub struct Listeners {
    slots: Slab<Listener>,
    /// Slots by port: what a SYN costs does not grow with the listeners of other ports.
    by_port: BTreeMap<u16, Vec<u32>>,
}

impl Listeners {
    /// Adds a listener; `None` if another has exactly that address and port.
    pub fn insert(
        &mut self,
        local: SocketAddr,
        backlog: usize,
        options: Arc<SocketOptions>,
    ) -> Option<ListenerId> {
        if self.on_port(local.port()).any(|(_, listener)| listener.local == local) {
            return None;
        }
        let queue = VecDeque::new();
        let (index, generation) =
            self.slots.insert(Listener { local, backlog: backlog.max(1), options, queue });
        self.by_port.entry(local.port()).or_default().push(index);
        Some(ListenerId { index, generation })
    }

    fn on_port(&self, port: u16) -> impl Iterator<Item = (u32, &Listener)> {
        let slots = self.by_port.get(&port).into_iter().flatten();
        slots.filter_map(|index| Some((*index, self.slots.get(*index)?)))
    }

    /// True if some listener has `port`.
    pub fn has_port(&self, port: u16) -> bool {
        self.by_port.contains_key(&port)
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Listener> {
        self.slots.iter().map(|(_, listener)| listener)
    }

    /// The listener for a SYN to `address` and `port`: the exact address before any.
    #[inline(always)]
    pub fn find(&self, address: IpAddr, port: u16) -> Option<(ListenerId, &Listener)> {
        // Nearly always there is one, and it hears.
        let [index] = self.by_port.get(&port)?[..] else { return self.find_best(address, port) };
        let (listener, generation) = self.slots.named(index)?;
        debug_assert_eq!(listener.local.port(), port);
        listener.hears(address).then_some((ListenerId { index, generation }, listener))
    }

    /// The same among several.
    #[cold]
    fn find_best(&self, address: IpAddr, port: u16) -> Option<(ListenerId, &Listener)> {
        let heard = self.on_port(port).filter(|(_, listener)| listener.hears(address));
        let best = heard.max_by_key(|(_, listener)| {
            let ip = listener.local.ip();
            (!ip.is_unspecified(), ip.is_ipv4() == address.is_ipv4())
        });
        let (index, listener) = best?;
        Some((ListenerId { index, generation: self.slots.generation(index) }, listener))
    }

    /// The listener of that name.
    pub fn get(&self, id: ListenerId) -> Option<&Listener> {
        let (listener, generation) = self.slots.named(id.index)?;
        (generation == id.generation).then_some(listener)
    }

    /// The listener of that name, to be changed.
    pub fn get_mut(&mut self, id: ListenerId) -> Option<&mut Listener> {
        let (listener, generation) = self.slots.named_mut(id.index)?;
        (generation == id.generation).then_some(listener)
    }

    /// Takes a listener out.
    pub fn remove(&mut self, id: ListenerId) -> Option<Listener> {
        let port = self.get(id)?.local.port();
        if let Some(slots) = self.by_port.get_mut(&port) {
            slots.retain(|index| *index != id.index);
            if slots.is_empty() {
                self.by_port.remove(&port);
            }
        }
        self.slots.take(id.index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::TcpConfig;

    fn options() -> Arc<SocketOptions> {
        Arc::new(SocketOptions::new(&TcpConfig::default()))
    }

    fn at(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn the_exact_address_comes_before_any() {
        let mut listeners = Listeners::default();
        let any = listeners.insert(at("0.0.0.0:80"), 1, options()).unwrap();
        let both = listeners.insert(at("[::]:80"), 1, options()).unwrap();
        let exact = listeners.insert(at("10.0.0.1:80"), 1, options()).unwrap();
        let find = |ip: &str, port| listeners.find(ip.parse().unwrap(), port).map(|found| found.0);
        assert_eq!(find("10.0.0.1", 80), Some(exact));
        assert_eq!(find("10.0.0.2", 80), Some(any));
        assert_eq!(find("fd00::1", 80), Some(both));
        assert_eq!(find("10.0.0.1", 81), None);
    }

    #[test]
    fn an_address_is_taken_once_and_free_when_its_listener_is_gone() {
        let mut listeners = Listeners::default();
        let id = listeners.insert(at("0.0.0.0:80"), 1, options()).unwrap();
        assert!(listeners.insert(at("0.0.0.0:80"), 1, options()).is_none());
        assert!(listeners.remove(id).is_some());
        assert!(listeners.remove(id).is_none());
        assert!(listeners.insert(at("0.0.0.0:80"), 1, options()).is_some());
        assert!(listeners.get(id).is_none(), "the old name is dead");
    }
}
