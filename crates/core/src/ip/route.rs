//! Our addresses, and where packets go next.
//!
//! An address is ours if it is configured, lies in one of the ranges, or was made by
//! autoconfiguration. A packet goes to ourselves, to a group, to a neighbour with a prefix that is
//! on the link, or to a gateway: the longest matching prefix decides (RFC 1122 §3.3.1, RFC 4861
//! §5.2). What routers advertise (RFC 4861 §6.3.4) lives as long as they say, is bounded, and never
//! replaces what was configured.
//!
//! Beside our addresses there may be destinations that we take: prefixes of others' addresses,
//! which are ours as one end of what comes from the link, and nobody's source or next hop.

use alloc::vec::Vec;
use core::cmp::Reverse;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::address::Cidr;
use crate::time::{Duration, Instant};
use crate::wire::ethernet::{self, Mac};
use crate::wire::ndp::{self, RouterAdvertisement};
use crate::wire::{ip, ipv6};

/// Routers remembered from advertisements; the next one's is ignored.
pub(crate) const MAX_ROUTERS: usize = 4;
/// On-link prefixes remembered from advertisements; the next one is ignored.
pub(crate) const MAX_PREFIXES: usize = 16;

/// Where a packet goes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NextHop {
    /// The destination is ours.
    Ourselves,
    /// This neighbour: the destination, or a gateway.
    Neighbour(IpAddr),
    /// All hosts in the group with this hardware address.
    Group(Mac),
}

/// The kind of an address, seen from here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// An unspecified address: `0.0.0.0/8` or `::`.
    Unspecified,
    /// A loopback address: none of these belongs on a link.
    Loopback,
    /// One of ours.
    Ours,
    /// IPv4's limited broadcast, or the directed one of a prefix of ours.
    Broadcast,
    /// A multicast group.
    Multicast,
    /// Another host's address.
    Other,
}

/// How willingly an address of ours is used as a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Standing {
    /// Only if there is no better one: deprecated (RFC 4862 §5.5.4), or not yet proved to be
    /// unique (RFC 4429 §3.1).
    Reluctant,
    /// Like any other.
    Preferred,
}

#[derive(Clone, Copy, Debug)]
struct OwnAddress {
    cidr: Cidr,
    standing: Standing,
}

/// The route of packets with a prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Route {
    prefix: Cidr,
    /// `None`: to the destination itself.
    gateway: Option<IpAddr>,
    /// When it ends; configured ones never do.
    until: Instant,
}

impl Route {
    fn is_learnt(&self) -> bool {
        self.until != Instant::FAR_FUTURE
    }
}

/// The addresses and routes of one host.
#[derive(Clone, Debug)]
pub(crate) struct Routes {
    addresses: Vec<OwnAddress>,
    ranges: Vec<Cidr>,
    /// Prefixes whose addresses are taken for ours as destinations.
    destinations: Vec<Cidr>,
    /// The IPv4 addresses and ranges, as masks and what is left under them.
    ipv4: Vec<(u32, u32)>,
    /// The broadcast addresses of their links: IPv4's limited one and the directed ones.
    broadcasts: Vec<Ipv4Addr>,
    routes: Vec<Route>,
    /// The earliest end of a route.
    deadline: Option<Instant>,
    device_mtu: u16,
    /// The MTU and the hop limit that routers have advertised.
    ipv6_mtu: u16,
    ipv6_hop_limit: u8,
    /// How often any of this may have changed.
    changes: u64,
}

impl Routes {
    /// What is configured: our addresses with the prefixes that are on-link, ranges of addresses
    /// that are ours as well, gateways for everything else, and the device's MTU.
    pub(crate) fn new(
        addresses: &[Cidr],
        ranges: &[Cidr],
        gateways: &[IpAddr],
        device_mtu: u16,
    ) -> Self {
        let until = Instant::FAR_FUTURE;
        let on_link = addresses.iter().map(|&prefix| Route { prefix, gateway: None, until });
        let default = gateways.iter().filter_map(|&gateway| {
            Some(Route { prefix: everything(gateway)?, gateway: Some(gateway), until })
        });
        let own = |&cidr| OwnAddress { cidr, standing: Standing::Preferred };
        let mut all = Routes {
            addresses: addresses.iter().map(own).collect(),
            ranges: ranges.to_vec(),
            destinations: Vec::new(),
            ipv4: Vec::new(),
            broadcasts: Vec::new(),
            routes: on_link.chain(default).collect(),
            deadline: None,
            device_mtu,
            ipv6_mtu: device_mtu,
            ipv6_hop_limit: ip::DEFAULT_HOP_LIMIT,
            changes: 0,
        };
        all.note_ipv4();
        all
    }

    fn note_ipv4(&mut self) {
        let addresses = self.addresses.iter().map(|own| (own.cidr.address(), u32::MAX));
        let ranges = self.ranges.iter().map(|range| (range.address(), range.ipv4_mask()));
        let of_ipv4 = |(address, mask)| match address {
            IpAddr::V4(address) => Some((mask, address.to_bits() & mask)),
            IpAddr::V6(_) => None,
        };
        self.ipv4 = addresses.chain(ranges).filter_map(of_ipv4).collect();
        let directed = self.addresses.iter().filter_map(|own| own.cidr.broadcast());
        self.broadcasts = core::iter::once(Ipv4Addr::BROADCAST).chain(directed).collect();
    }

    /// True if the address is ours.
    pub(crate) fn is_local(&self, address: IpAddr) -> bool {
        match address {
            IpAddr::V4(address) => self.is_local_ipv4(address),
            IpAddr::V6(_) => {
                self.addresses.iter().any(|own| own.cidr.address() == address)
                    || self.ranges.iter().any(|range| range.contains(address))
            }
        }
    }

    /// True if an IPv4 address is ours: it is asked of most segments' sources.
    pub(crate) fn is_local_ipv4(&self, address: Ipv4Addr) -> bool {
        self.ipv4.iter().any(|(mask, prefix)| address.to_bits() & mask == *prefix)
    }

    /// Takes the addresses of these prefixes for ours as destinations, as if it had been
    /// configured.
    pub(crate) fn take_destinations(&mut self, prefixes: &[Cidr]) {
        self.destinations = prefixes.to_vec();
    }

    /// True if a packet to the address is for us: it is ours, or a single host's that we take.
    pub(crate) fn takes(&self, address: IpAddr) -> bool {
        self.is_local(address) || self.is_taken(address) && self.class(address) == Class::Other
    }

    /// True if the address lies in a prefix whose addresses we take.
    pub(crate) fn is_taken(&self, address: IpAddr) -> bool {
        self.destinations.iter().any(|prefix| prefix.contains(address))
    }

    /// True if we listen to the group: all hosts, all nodes, or the solicited-node group of one of
    /// our addresses.
    pub(crate) fn is_our_group(&self, group: IpAddr) -> bool {
        match group {
            IpAddr::V4(group) => group == Ipv4Addr::new(224, 0, 0, 1),
            IpAddr::V6(group) => {
                let solicited = self.addresses().any(|own| match own {
                    IpAddr::V6(own) => ndp::solicited_node(own) == group,
                    IpAddr::V4(_) => false,
                });
                group == ndp::ALL_NODES || solicited
            }
        }
    }

    /// The kind of address that it is.
    pub(crate) fn class(&self, address: IpAddr) -> Class {
        match address {
            IpAddr::V4(v4) => self.class_ipv4(v4),
            _ if self.is_local(address) => Class::Ours,
            _ if address.is_unspecified() => Class::Unspecified,
            _ if address.is_loopback() => Class::Loopback,
            _ if address.is_multicast() => Class::Multicast,
            _ => Class::Other,
        }
    }

    fn class_ipv4(&self, address: Ipv4Addr) -> Class {
        match address.octets()[0] {
            _ if self.is_local_ipv4(address) => Class::Ours,
            0 => Class::Unspecified,
            127 => Class::Loopback,
            224..=239 => Class::Multicast,
            _ if self.broadcasts.contains(&address) => Class::Broadcast,
            _ => Class::Other,
        }
    }

    /// True if a packet from the link may come from there (RFC 1122 §3.2.1.3, RFC 4291 §2.5): from
    /// a single other host, not from a group, the unspecified address or ourselves.
    pub(crate) fn is_acceptable_source(&self, source: IpAddr) -> bool {
        self.class(source) == Class::Other
    }

    /// Where a packet to `destination` goes next; `None` if there is no way.
    pub(crate) fn next_hop(&self, destination: IpAddr) -> Option<NextHop> {
        self.next_hop_of(self.class(destination), destination)
    }

    /// The next hop to a destination whose class is known.
    pub(crate) fn next_hop_of(&self, class: Class, destination: IpAddr) -> Option<NextHop> {
        match (class, destination) {
            (Class::Ours, _) => Some(NextHop::Ourselves),
            (Class::Broadcast, _) => Some(NextHop::Group(ethernet::BROADCAST)),
            (Class::Multicast, IpAddr::V4(group)) => {
                Some(NextHop::Group(ethernet::ipv4_group(group)))
            }
            (Class::Multicast, IpAddr::V6(group)) => {
                Some(NextHop::Group(ethernet::ipv6_group(group)))
            }
            (Class::Unspecified | Class::Loopback, _) => None,
            (Class::Other, IpAddr::V6(v6)) if v6.is_unicast_link_local() => {
                Some(NextHop::Neighbour(destination))
            }
            (Class::Other, _) => {
                let matching =
                    self.routes.iter().filter(|route| route.prefix.contains(destination));
                // If several are equal, the first: `min_by_key` keeps it.
                let route = matching.min_by_key(|route| Reverse(route.prefix.prefix_len()))?;
                Some(NextHop::Neighbour(route.gateway.unwrap_or(destination)))
            }
        }
    }

    /// How often an answer that is given here may have changed.
    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }

    /// Takes over all that another shard of this host knows.
    pub(crate) fn adopt(&mut self, published: &Routes) {
        // Neither count may come again: what was found with it is kept elsewhere.
        let changes = self.changes.max(published.changes) + 1;
        *self = Routes { changes, ..published.clone() };
    }

    /// The address of ours to send from to `destination` (RFC 6724 §5, rules 1, 2, 3 and 8); of a
    /// range only if there is no other of the version.
    pub(crate) fn source_for(&self, destination: IpAddr) -> Option<IpAddr> {
        let same_version = |cidr: Cidr| cidr.address().is_ipv4() == destination.is_ipv4();
        let candidates = self.addresses.iter().filter(|own| same_version(own.cidr));
        let best = candidates.min_by_key(|own| Reverse(fitness(own, destination)));
        match best {
            Some(own) => Some(own.cidr.address()),
            None => Some(self.range_for(destination)?.nth(1)),
        }
    }

    /// The range of addresses of ours to send from to `destination`.
    pub(crate) fn range_for(&self, destination: IpAddr) -> Option<&Cidr> {
        self.ranges.iter().find(|range| range.address().is_ipv4() == destination.is_ipv4())
    }

    /// Our addresses, those of ranges apart.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = IpAddr> + '_ {
        self.addresses.iter().map(|own| own.cidr.address())
    }

    /// Gives us an address, or a known one another standing. Its prefix does not become on-link:
    /// that is for the router to say.
    pub(crate) fn set_address(&mut self, cidr: Cidr, standing: Standing) {
        self.changes += 1;
        let known = self.addresses.iter_mut().find(|own| own.cidr.address() == cidr.address());
        match known {
            Some(own) => *own = OwnAddress { cidr, standing },
            None => self.addresses.push(OwnAddress { cidr, standing }),
        }
        self.note_ipv4();
    }

    /// Takes an address away.
    pub(crate) fn remove_address(&mut self, address: IpAddr) {
        self.changes += 1;
        self.addresses.retain(|own| own.cidr.address() != address);
        self.note_ipv4();
    }

    /// The largest IPv6 packet for the link: the device's MTU, or less if a router says so.
    pub(crate) fn ipv6_mtu(&self) -> u16 {
        self.ipv6_mtu
    }

    /// The hop limit of our IPv6 packets.
    pub(crate) fn ipv6_hop_limit(&self) -> u8 {
        self.ipv6_hop_limit
    }

    /// Learns what the router at `router` says of itself and of the link (RFC 4861 §6.3.4).
    pub(crate) fn on_router_advertisement(
        &mut self,
        now: Instant,
        router: Ipv6Addr,
        advertisement: &RouterAdvertisement,
    ) {
        self.changes += 1;
        let gateway = IpAddr::V6(router);
        if let Some(prefix) = everything(gateway) {
            let lifetime_s = u32::from(advertisement.router_lifetime_s);
            self.learn(now, prefix, Some(gateway), lifetime_s);
        }
        for prefix in advertisement.prefixes.iter().filter(|prefix| prefix.on_link) {
            if let Some(cidr) = prefix_cidr(&prefix) {
                self.learn(now, cidr, None, prefix.valid_s);
            }
        }
        if advertisement.hop_limit != 0 {
            self.ipv6_hop_limit = advertisement.hop_limit;
        }
        if let Some(mtu) = advertisement.mtu.and_then(|mtu| u16::try_from(mtu).ok())
            && (ipv6::MIN_MTU..=self.device_mtu).contains(&mtu)
        {
            self.ipv6_mtu = mtu;
        }
    }

    /// Puts a learnt gateway that does not answer behind the others (RFC 4861 §6.3.6).
    pub(crate) fn on_gateway_failed(&mut self, gateway: IpAddr) {
        self.changes += 1;
        let (failed, mut others): (Vec<Route>, Vec<Route>) =
            self.routes.iter().partition(|route| route.gateway == Some(gateway));
        others.extend(failed);
        self.routes = others;
    }

    /// Forgets what has ended by `now`.
    pub(crate) fn on_time(&mut self, now: Instant) {
        if self.deadline.is_some_and(|deadline| deadline <= now) {
            self.changes += 1;
            self.routes.retain(|route| route.until > now);
            self.refresh_deadline();
        }
    }

    /// When [`Routes::on_time`] next has something to do.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Sets, prolongs, shortens or (with no lifetime) ends a learnt route.
    fn learn(&mut self, now: Instant, prefix: Cidr, gateway: Option<IpAddr>, lifetime_s: u32) {
        let until = end_of(now, lifetime_s);
        let same = |route: &Route| route.prefix == prefix && route.gateway == gateway;
        if let Some(at) = self.routes.iter().position(|route| route.is_learnt() && same(route)) {
            if lifetime_s == 0 {
                self.routes.remove(at);
            } else {
                self.routes[at].until = until;
            }
        } else {
            let limit = if gateway.is_some() { MAX_ROUTERS } else { MAX_PREFIXES };
            let alike =
                |route: &&Route| route.is_learnt() && route.gateway.is_some() == gateway.is_some();
            let room = self.routes.iter().filter(alike).count() < limit;
            let known = self.routes.iter().any(same);
            if lifetime_s > 0 && room && !known {
                self.routes.push(Route { prefix, gateway, until });
            }
        }
        self.refresh_deadline();
    }

    fn refresh_deadline(&mut self) {
        let ends = self.routes.iter().filter(|route| route.is_learnt()).map(|route| route.until);
        self.deadline = ends.min();
    }
}

/// When an advertised lifetime ends. For ever is 500 years, so that what is learnt stays apart from
/// what is configured.
pub(crate) fn end_of(now: Instant, lifetime_s: u32) -> Instant {
    const FOR_EVER: Instant = Instant::from_nanos(u64::MAX / 8 * 7);
    let end = now + Duration::from_secs(lifetime_s.into());
    if lifetime_s == u32::MAX { FOR_EVER } else { end.min(FOR_EVER) }
}

/// An advertised prefix, if it may be taken: link-local ones may not (RFC 4861 §6.3.4).
pub(crate) fn prefix_cidr(prefix: &ndp::Prefix) -> Option<Cidr> {
    if prefix.prefix.is_unicast_link_local() || prefix.prefix.is_multicast() {
        return None;
    }
    let cidr = Cidr::new(prefix.prefix.into(), prefix.prefix_len)?;
    // Bits beyond the prefix are to be ignored, so that the same prefix is the same.
    Cidr::new(cidr.nth(0), prefix.prefix_len)
}

/// The prefix that contains every address of this one's version.
fn everything(version: IpAddr) -> Option<Cidr> {
    let unspecified: IpAddr = match version {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    Cidr::new(unspecified, 0)
}

/// How well an address serves as the source to `destination`: the greatest is the best.
fn fitness(own: &OwnAddress, destination: IpAddr) -> impl Ord + use<> {
    let source = own.cidr.address();
    let (from, to) = (scope(source), scope(destination));
    // Rule 2: the smallest scope that reaches, else the largest.
    let reach = if from >= to { (true, u8::MAX - from) } else { (false, from) };
    let common = common_prefix_len(source, destination).min(own.cidr.prefix_len());
    (source == destination, reach, own.standing, common)
}

/// RFC 6724 §3.1 and §3.2: 2 link-local, 14 global, and of groups what they say.
fn scope(address: IpAddr) -> u8 {
    const LINK_LOCAL: u8 = 2;
    const GLOBAL: u8 = 14;
    match address {
        IpAddr::V6(v6) if v6.is_multicast() => v6.octets()[1] & 0x0f,
        IpAddr::V6(v6) if v6.is_unicast_link_local() || v6.is_loopback() => LINK_LOCAL,
        IpAddr::V4(v4) if v4.is_link_local() || v4.is_loopback() => LINK_LOCAL,
        _ => GLOBAL,
    }
}

fn common_prefix_len(a: IpAddr, b: IpAddr) -> u8 {
    let len = match (a, b) {
        (IpAddr::V4(a), IpAddr::V4(b)) => (a.to_bits() ^ b.to_bits()).leading_zeros(),
        (IpAddr::V6(a), IpAddr::V6(b)) => (a.to_bits() ^ b.to_bits()).leading_zeros(),
        _ => 0,
    };
    len as u8
}

#[cfg(test)]
mod tests;
