//! The Internet layer: our addresses, routes, neighbours, path MTUs, ICMP, reassembly, and the
//! loopback.
//!
//! ```text
//!   packets ─▶ on_packet ─┬─▶ Packet: of TCP or UDP; IcmpError: an error about one of ours
//!   ARP     ─▶ on_arp    ─┼─▶ Outgoing: what IP sends of its own accord
//!   time    ─▶ on_time   ─┴─▶ news of our addresses, next hops that have answered or not
//!   TCP, UDP ▶ route     ───▶ Route: a Path to write packets along, or a next hop to wait for
//! ```
//!
//! TCP and UDP write a packet where the device takes it, so that nothing is copied on the way
//! through IP.

pub(crate) mod autoconfigure;
mod claim;
pub mod conflict;
pub(crate) mod groups;
pub(crate) mod icmp;
pub(crate) mod input;
pub(crate) mod limiter;
pub(crate) mod link;
mod membership;
mod ndp;
pub(crate) mod neighbour;
pub(crate) mod outgoing;
pub(crate) mod path;
pub(crate) mod pmtu;
pub(crate) mod reassembly;
pub(crate) mod route;
pub(crate) mod route_cache;
pub mod shards;

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::IpAddr;

use crate::address::Cidr;
use crate::config::Config;
use crate::counters::Counters;
use crate::flow::Tuple;
use crate::frame::{Medium, Outbox};
use crate::rng::Rng;
use crate::time::Instant;
use crate::wire::Malformed;
use autoconfigure::Autoconfigure;
use conflict::Claims;
use groups::Groups;
use icmp::IcmpError;
use limiter::TokenBucket;
use neighbour::Neighbours;
use outgoing::Outgoing;
use pmtu::PathMtus;
use reassembly::Reassembly;
use route::{Class, NextHop, Routes, Standing};
use route_cache::{CachedRoute, RouteCache, RouteIndex};
use shards::Shards;

/// Frames to ourselves that wait at most; beyond it they are lost, as on any full link.
const LOOPBACK_FRAMES: usize = 1024;

/// Bytes of fragments that wait for the rest of their packets, all together.
const REASSEMBLY_BYTES: usize = 256 << 10;

/// IP and the link of one host.
#[derive(Debug)]
pub(crate) struct Ip {
    config: Arc<Config>,
    routes: Routes,
    /// IPv6 addresses in the making; from the first call that tells the time.
    autoconfigure: Option<Autoconfigure>,
    /// The configured addresses, and how far each is ours.
    claims: Claims,
    /// Addresses are claimed and configured since the first call that tells the time.
    has_begun: bool,
    path_mtus: PathMtus,
    reassembly: Reassembly,
    /// Groups that sockets listen to.
    groups: Groups,
    neighbours: Neighbours,
    route_cache: RouteCache,
    /// What IP sends of its own accord; the questions for neighbours wait in their cache.
    outgoing: VecDeque<Outgoing>,
    /// Answers to strangers.
    strangers: TokenBucket,
    /// The source and destination of the last datagram from the link, and the changes of routes
    /// that there had been.
    last_heard: Option<((IpAddr, IpAddr), u64)>,
    /// The ICMP error that the last packet reported about a packet of ours.
    icmp_error: Option<IcmpError>,
    /// The packet that the last fragment has completed.
    reassembled: Option<Vec<u8>>,
    /// The other shards of this host.
    pub(crate) shards: Shards,
    /// Packets that we have sent to ourselves.
    pub(crate) loopback: Outbox,
    /// Frames dropped because they made no sense.
    malformed: [u64; Malformed::COUNT],
}

/// The time of a call, and the counters for what happens in it.
pub(crate) struct Context<'a> {
    pub now: Instant,
    pub counters: &'a mut Counters,
}

impl Ip {
    pub(crate) fn new(config: Arc<Config>) -> Ip {
        let (limits, secret) = (&config.limits, &config.secret);
        let Config { addresses, ranges, destinations, gateways, device, .. } = &*config;
        let mut routes = Routes::new(addresses, ranges, gateways, device.mtu);
        routes.take_destinations(destinations);
        if is_probing(&config) {
            addresses.iter().for_each(|cidr| routes.remove_address(cidr.address()));
        }
        Ip {
            routes,
            autoconfigure: None,
            claims: Claims::new(config.address_probe, config.address_announce, secret),
            has_begun: false,
            path_mtus: PathMtus::new(device.mtu, limits.path_mtus, secret),
            reassembly: Reassembly::new(limits.reassemblies, REASSEMBLY_BYTES),
            groups: Groups::new(&config),
            neighbours: Neighbours::new(limits.neighbours, limits.neighbour_queue, secret),
            route_cache: RouteCache::default(),
            outgoing: VecDeque::new(),
            strangers: TokenBucket::new(limits.replies_per_second, limits.replies_per_second),
            last_heard: None,
            icmp_error: None,
            reassembled: None,
            shards: Shards::new(&config),
            loopback: Outbox::new(LOOPBACK_FRAMES),
            malformed: [0; Malformed::COUNT],
            config,
        }
    }

    pub(crate) fn is_ours(&self, address: IpAddr) -> bool {
        self.routes.is_local(address)
    }

    /// True if the peer's address is ours as well.
    pub(crate) fn is_to_ourselves(&self, tuple: &Tuple) -> bool {
        self.is_ours(tuple.remote_ip())
    }

    /// True if the address may be our end of something: it is ours, or a destination that we take.
    /// A peer may have one of the latter.
    pub(crate) fn takes(&self, address: IpAddr) -> bool {
        self.routes.takes(address)
    }

    /// True if the address may be our end, or is configured and still to be proved.
    pub(crate) fn takes_or_will(&self, address: IpAddr) -> bool {
        let mut configured = self.config.addresses.iter();
        self.takes(address) || configured.any(|cidr| cidr.address() == address)
    }

    /// The kind of an address.
    pub(crate) fn class(&self, address: IpAddr) -> Class {
        self.routes.class(address)
    }

    /// True if the address is that of a single host: ours or another.
    pub(crate) fn is_host(&self, address: IpAddr) -> bool {
        matches!(self.routes.class(address), Class::Ours | Class::Other)
    }

    /// An address of ours to reach `remote` from: of the range, if there is one, a random one.
    pub(crate) fn source_for(&self, remote: IpAddr, random: &mut Rng) -> Option<IpAddr> {
        let Some(range) = self.routes.range_for(remote) else {
            return self.routes.source_for(remote);
        };
        // The first and last of an IPv4 range may be taken for broadcasts.
        let size = range.size();
        let inner = if size > 2 { size - 2 } else { size };
        let offset = u128::from(random.next_u64()) % inner;
        Some(range.nth(offset + u128::from(size > 2)))
    }

    /// The address of ours to reach `remote` from, the same each time: of a range only if there is
    /// no other.
    pub(crate) fn steady_source_for(&self, remote: IpAddr) -> Option<IpAddr> {
        self.routes.source_for(remote)
    }

    /// True if the limit on answers to strangers allows one now.
    pub(crate) fn may_answer_stranger(&mut self, now: Instant) -> bool {
        self.strangers.take(now)
    }

    /// Sets that limit.
    pub(crate) fn set_answers_to_strangers(&mut self, limit: TokenBucket) {
        self.strangers = limit;
    }

    /// True if a packet from the link may come from `source`: another single host.
    pub(crate) fn is_acceptable_source(&self, source: IpAddr) -> bool {
        self.routes.is_acceptable_source(source)
    }

    /// Where a packet to `destination` goes next.
    pub(crate) fn next_hop(&self, destination: IpAddr) -> Option<NextHop> {
        self.routes.next_hop(destination)
    }

    /// True if a packet to `destination` has a way. Where the medium has no neighbours, what is for
    /// another host needs no route.
    pub(crate) fn has_way(&self, destination: IpAddr) -> bool {
        let is_direct = self.config.device.medium == Medium::Ip
            && self.routes.class(destination) == Class::Other;
        is_direct || self.next_hop(destination).is_some()
    }

    /// Makes the address of `cidr` ours, as if it had been configured.
    pub(crate) fn add_address(&mut self, cidr: Cidr) {
        self.routes.set_address(cidr, Standing::Preferred);
    }

    /// Our addresses, those of ranges apart.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.routes.addresses()
    }

    // ---- to be sent

    fn send(&mut self, outgoing: Outgoing) {
        self.outgoing.push_back(outgoing);
    }

    /// Takes the oldest packet or frame that IP sends of its own accord.
    pub(crate) fn outgoing(&mut self) -> Option<Outgoing> {
        self.outgoing.pop_front()
    }

    /// True if [`Ip::emit`] has something to send.
    pub(crate) fn wants_emit(&self) -> bool {
        self.neighbours.has_output()
    }

    /// Frames that were dropped because they waited for a neighbour in vain.
    pub(crate) fn neighbour_drops(&self) -> u64 {
        self.neighbours.dropped()
    }

    // ---- routes that are kept

    /// The place of the route between `ends`, if it is kept and good.
    fn kept_route(&self, now: Instant, ends: &Tuple) -> Option<RouteIndex> {
        self.route_cache.find(ends, self.route_changes(), now)
    }

    /// The route between `ends`, if it is kept at `place` and good.
    pub(crate) fn good_route(
        &self,
        now: Instant,
        place: RouteIndex,
        ends: &Tuple,
    ) -> Option<&CachedRoute> {
        self.route_cache.good(place, ends, self.route_changes(), now)
    }

    /// True if the addresses of `ends` are known for one of ours and that of a single other host:
    /// something has lately gone there. If not they may be all the same.
    pub(crate) fn is_plain_route(&self, now: Instant, ends: &Tuple) -> bool {
        self.kept_route(now, ends).is_some_and(|place| self.route_cache.at(place).plain)
    }

    /// The route kept at `place`, and where its frames go: out, or back to ourselves.
    pub(crate) fn along<'a>(
        &'a mut self,
        place: RouteIndex,
        outbox: &'a mut Outbox,
    ) -> (&'a CachedRoute, &'a mut Outbox) {
        let route = self.route_cache.at(place);
        (route, if route.local { &mut self.loopback } else { outbox })
    }

    /// How often our addresses and routes have changed.
    pub(crate) fn address_changes(&self) -> u64 {
        self.routes.changes()
    }

    /// How often the things that decide on routes have changed.
    pub(crate) fn route_changes(&self) -> u64 {
        self.routes.changes() + self.neighbours.changes() + self.path_mtus.changes()
    }
}

/// True if the configured addresses are not ours before they were probed.
fn is_probing(config: &Config) -> bool {
    config.device.medium == Medium::Ethernet && !config.address_probe.is_zero()
}
