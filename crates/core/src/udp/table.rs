//! All UDP sockets of a host, and how a datagram finds its own.
//!
//! A datagram is for the socket that is connected to its ends; else for the one that has its
//! destination's address and port; else for the one that has the port of any address, of its IP
//! version before of both. One socket has an address and port: there are never two to choose from.
//!
//! A host of several shards spreads datagrams as it does segments, by both ends
//! ([`Steering`]). Where the shard of both ends has no socket, the datagram is for the shard that
//! owns the port: an ephemeral port is one of its own shard's.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use hashbrown::HashTable;

use super::UdpOptions;
use super::socket::{Socket, our_end};
use crate::config::{Config, Member};
use crate::event::UdpId;
use crate::flow::keyed::KeyedHash;
use crate::flow::{Steering, Tuple, TupleHasher};
use crate::slab::{Key, Slab};

/// The sockets.
#[derive(Debug)]
pub(crate) struct Table {
    slots: Slab<Box<Socket>>,
    /// Slots by the hash of their [keys](Socket::key).
    index: HashTable<u32>,
    hasher: TupleHasher,
    /// Sockets that are connected, and those that are not and have an address.
    connected: usize,
    addressed: usize,
    /// Sockets of flows.
    flows: usize,
    by_port: BTreeMap<u16, Vec<u32>>,
    /// The ends of the last datagram, and its socket: mostly the next one has the same.
    last: Option<(Tuple, u32)>,
    ports: Ports,
}

/// The ephemeral ports.
#[derive(Debug)]
struct Ports {
    first: u16,
    size: u32,
    /// A port is the hash of how many were asked for before: no stranger can guess it, whatever
    /// others it has seen (RFC 6056 §3.3.1; RFC 5452 §4.5).
    hash: KeyedHash,
    asked: u64,
    steering: Steering,
    member: Member,
}

/// The unspecified address.
fn any_address(ipv6: bool) -> IpAddr {
    if ipv6 { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() }
}

impl Table {
    pub(crate) fn new(config: &Config) -> Table {
        let (first, last) = config.ephemeral_ports;
        Table {
            slots: Slab::default(),
            index: HashTable::new(),
            hasher: TupleHasher::new(&config.secret),
            connected: 0,
            addressed: 0,
            flows: 0,
            by_port: BTreeMap::new(),
            last: None,
            ports: Ports {
                first,
                size: u32::from(last - first) + 1,
                hash: KeyedHash::new(&config.secret, "udp ports"),
                asked: 0,
                steering: Steering::new(&config.secret, config.member.of),
                member: config.member,
            },
        }
    }

    /// How many there are, those that still have something to send with them.
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// The shard that owns the port of our end of `ends`, if it is another one.
    pub(crate) fn port_elsewhere(&self, ends: &Tuple) -> Option<u16> {
        let owner = self.ports.owner(ends.local_port());
        (owner != self.ports.member.index).then_some(owner)
    }

    // ---- making and unmaking

    /// An ephemeral port that is free at that address; `None` if there is none.
    pub(crate) fn free_port(&mut self, address: IpAddr, only_ipv6: bool) -> Option<u16> {
        let Ports { first, size, .. } = self.ports;
        let start = self.ports.next();
        // Both terms of the sum are below 2^16.
        let mut ports = (0..size).map(|i| first + ((start + i) % size) as u16);
        ports.find(|port| {
            self.ports.owner(*port) == self.ports.member.index
                && self.is_free(SocketAddr::new(address, *port), only_ipv6)
        })
    }

    /// True if no socket has that end, or one that it is a part of.
    pub(crate) fn is_free(&self, local: SocketAddr, only_ipv6: bool) -> bool {
        let Some(slots) = self.by_port.get(&local.port()) else { return true };
        let others = slots.iter().filter_map(|index| self.slots.get(*index));
        let speaks = |ipv4: bool| {
            let is_any_ipv6 = local.is_ipv6() && local.ip().is_unspecified();
            local.is_ipv4() == ipv4 || ipv4 && is_any_ipv6 && !only_ipv6
        };
        !others.into_iter().any(|other| {
            let meets = [true, false].iter().any(|ipv4| speaks(*ipv4) && other.speaks(*ipv4));
            let (one, two) = (local.ip(), other.local.ip());
            meets && (one == two || one.is_unspecified() || two.is_unspecified())
        })
    }

    /// Adds a socket, whose end is free.
    pub(crate) fn insert(&mut self, socket: Socket) -> UdpId {
        let port = socket.local.port();
        let Key { index, generation } = self.slots.insert(Box::new(socket));
        self.by_port.entry(port).or_default().push(index);
        self.list(index);
        UdpId { index, generation }
    }

    /// Adds the socket of a flow between `ends`, for which no socket was found. It takes no port
    /// from others.
    pub(crate) fn insert_flow(&mut self, ends: &Tuple, options: UdpOptions) -> UdpId {
        let socket = Box::new(Socket::of_flow(ends, options));
        let Key { index, generation } = self.slots.insert(socket);
        self.flows += 1;
        self.list(index);
        UdpId { index, generation }
    }

    /// How many are of flows.
    pub(crate) fn flows(&self) -> usize {
        self.flows
    }

    /// Lets no datagram find the socket any more, and frees its port.
    pub(crate) fn withdraw(&mut self, index: u32) {
        let Some(port) = self.get(index).map(|socket| socket.local.port()) else { return };
        self.unlist(index);
        if let Some(slots) = self.by_port.get_mut(&port) {
            slots.retain(|slot| *slot != index);
            if slots.is_empty() {
                self.by_port.remove(&port);
            }
        }
    }

    /// Drops a socket that was withdrawn.
    pub(crate) fn remove(&mut self, index: u32) {
        let removed = self.slots.take(index);
        self.flows -= usize::from(removed.is_some_and(|socket| socket.is_flow));
    }

    /// Connects the socket to the remote end of `ends`, or to none. False, and nothing has changed,
    /// if another is connected so.
    pub(crate) fn connect(&mut self, index: u32, ends: Option<Tuple>) -> bool {
        if ends.is_some_and(|ends| self.find_key(&ends).is_some_and(|found| found != index)) {
            return false;
        }
        self.unlist(index);
        if let Some(socket) = self.slots.get_mut(index) {
            socket.connected = ends;
            socket.recent = (Tuple::NOBODY, 0);
            socket.key = ends.unwrap_or_else(|| our_end(socket.local));
        }
        self.list(index);
        true
    }

    fn count(&mut self, index: u32) -> Option<&mut usize> {
        let socket = self.slots.get(index)?;
        match socket.connected {
            Some(_) => Some(&mut self.connected),
            None if !socket.local.ip().is_unspecified() => Some(&mut self.addressed),
            None => None,
        }
    }

    fn list(&mut self, index: u32) {
        self.last = None;
        if let Some(count) = self.count(index) {
            *count += 1;
        }
        let Table { slots, index: table, hasher, .. } = self;
        let hash_of = |index: &u32| slots.get(*index).map_or(0, |socket| hasher.hash(&socket.key));
        table.insert_unique(hash_of(&index), index, hash_of);
    }

    fn unlist(&mut self, index: u32) {
        self.last = None;
        if let Some(count) = self.count(index) {
            *count -= 1;
        }
        let Some(socket) = self.slots.get(index) else { return };
        let hash = self.hasher.hash(&socket.key);
        if let Ok(entry) = self.index.find_entry(hash, |other| *other == index) {
            entry.remove();
        }
    }

    // ---- finding

    fn find_key(&self, wanted: &Tuple) -> Option<u32> {
        let is_it = |index: &u32| self.slots.get(*index).is_some_and(|it| it.key == *wanted);
        self.index.find(self.hasher.hash(wanted), is_it).copied()
    }

    /// The slot of the socket that is connected to the remote end of `ends`.
    pub(crate) fn find_connected(&self, ends: &Tuple) -> Option<u32> {
        if self.connected > 0 { self.find_key(ends) } else { None }
    }

    /// The slot of the socket that a datagram between `ends`, ours first, is for, which the next
    /// one with these ends finds at once.
    pub(crate) fn find_and_note(&mut self, ends: &Tuple) -> Option<u32> {
        if let Some((last, index)) = &self.last
            && last == ends
        {
            return Some(*index);
        }
        let found = self.find(ends)?;
        self.last = Some((*ends, found));
        Some(found)
    }

    /// The slot of the socket that a datagram between `ends`, ours first, is for.
    pub(crate) fn find(&self, ends: &Tuple) -> Option<u32> {
        if let Some(found) = self.find_connected(ends) {
            return Some(found);
        }
        let (port, ipv6) = (ends.local_port(), ends.is_ipv6());
        if self.addressed > 0
            && let Some(found) = self.find_key(&our_end(ends.local()))
        {
            return Some(found);
        }
        let of_version = |ipv6| self.find_key(&our_end(SocketAddr::new(any_address(ipv6), port)));
        of_version(ipv6).or_else(|| {
            let both = if ipv6 { None } else { of_version(true) };
            both.filter(|index| self.get(*index).is_some_and(|it| it.speaks(true)))
        })
    }

    /// The socket in that slot.
    pub(crate) fn get(&self, index: u32) -> Option<&Socket> {
        self.slots.get(index).map(|socket| &**socket)
    }

    /// The socket in that slot, to be changed.
    pub(crate) fn get_mut(&mut self, index: u32) -> Option<&mut Socket> {
        self.slots.get_mut(index).map(|socket| &mut **socket)
    }

    /// The name of the socket in that slot.
    pub(crate) fn name(&self, index: u32) -> UdpId {
        UdpId { index, generation: self.slots.generation(index) }
    }

    /// The socket of that name, if its user has not closed it.
    pub(crate) fn named(&self, id: UdpId) -> Option<&Socket> {
        let (socket, generation) = self.slots.named(id.index)?;
        (generation == id.generation && !socket.is_closed).then_some(&**socket)
    }

    /// The socket of that name, to be changed.
    pub(crate) fn named_mut(&mut self, id: UdpId) -> Option<&mut Socket> {
        let (socket, generation) = self.slots.named_mut(id.index)?;
        (generation == id.generation && !socket.is_closed).then_some(&mut **socket)
    }

    /// Every socket that its user has not closed.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Socket> {
        self.slots.iter().map(|(_, socket)| &**socket).filter(|socket| !socket.is_closed)
    }
}

impl Ports {
    /// Where the next search for a free port begins, as a distance from the first.
    fn next(&mut self) -> u32 {
        self.asked += 1;
        let mut input = [0; 10];
        input[..8].copy_from_slice(&self.asked.to_le_bytes());
        input[8..].copy_from_slice(&self.member.index.to_le_bytes());
        (self.hash.strong(&input) % u64::from(self.size)) as u32
    }

    /// The shard that owns a port.
    fn owner(&self, port: u16) -> u16 {
        let end = (Ipv4Addr::UNSPECIFIED.into(), port);
        self.steering.owner(&Tuple::new(end, (end.0, 0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{Capabilities, Medium};
    use proptest::collection::vec;
    use proptest::prelude::*;

    const ADDRESSES: [&str; 6] = ["0.0.0.0", "10.0.0.1", "10.0.0.2", "::", "fd00::1", "fd00::2"];

    fn table() -> (Table, UdpOptions) {
        let device = Capabilities::plain(Medium::Ip, 1500);
        let config = Config::new(device, "10.0.0.1/24".parse().unwrap(), [7; 32]);
        (Table::new(&config), UdpOptions::new(&config.udp))
    }

    fn address(index: usize) -> IpAddr {
        ADDRESSES[index].parse().unwrap()
    }

    /// How well a socket fits a datagram between `ends`, by the rule in words; `None`: not at all.
    fn fitness(socket: &Socket, ends: &Tuple) -> Option<u8> {
        if let Some(connected) = socket.connected {
            return (connected == *ends).then_some(3);
        }
        if socket.local.port() != ends.local_port() {
            return None;
        }
        match socket.local.ip() {
            ip if ip == ends.local_ip() => Some(2),
            ip if ip.is_unspecified() && ip.is_ipv6() == ends.is_ipv6() => Some(1),
            ip if ip.is_unspecified() && ip.is_ipv6() && !socket.options.only_ipv6 => Some(0),
            _ => None,
        }
    }

    proptest! {
        #[test]
        fn the_socket_that_is_found_is_the_one_that_fits_best(
            steps in vec((0u8..8, 0usize..6, 1u16..4, any::<bool>(), 1usize..6), 1..60),
        ) {
            let (mut table, options) = table();
            let mut ids: Vec<UdpId> = Vec::new();
            for (what, local, port, flag, remote) in steps {
                let end = SocketAddr::new(address(local), port);
                match what {
                    0..=2 if table.is_free(end, flag) => {
                        let options = UdpOptions { only_ipv6: flag, ..options };
                        ids.push(table.insert(Socket::new(end, options)));
                    }
                    3 if !ids.is_empty() => {
                        let id = ids[local % ids.len()];
                        let port = table.named(id).unwrap().local.port();
                        let ours = if address(remote).is_ipv6() { 4 } else { 1 };
                        let ends = Tuple::new((address(ours), port), (address(remote), 9));
                        table.connect(id.index, flag.then_some(ends));
                    }
                    4 if !ids.is_empty() => {
                        let id = ids.swap_remove(local % ids.len());
                        table.withdraw(id.index);
                        table.remove(id.index);
                        prop_assert!(table.named(id).is_none());
                    }
                    _ => {
                        let theirs = if address(local).is_ipv6() { 5 } else { 2 };
                        let ends = Tuple::new((address(local), port), (address(theirs), 9));
                        let best = ids.iter().filter_map(|id| {
                            Some((fitness(table.named(*id)?, &ends)?, id.index))
                        });
                        let best = best.max().map(|(_, index)| index);
                        prop_assert_eq!(table.find(&ends), best);
                        prop_assert_eq!(table.find_and_note(&ends), best);
                    }
                }
                prop_assert_eq!(table.len(), ids.len());
            }
        }
    }
}
