//! Keeps the routes that were found lately. Most packets go where others have just gone. The route
//! of each is looked up among routes, neighbours and path MTUs, and kept until one of these
//! changes.
//!
//! Each of them counts its changes; a route is good while their sum has not changed. A cached route
//! never differs from the one that a search would find, and neighbours are doubted, asked and
//! thrown out as they would be without the cache.

use alloc::boxed::Box;
use core::net::{IpAddr, Ipv4Addr};

use crate::flow::Tuple;
use crate::frame::{Capabilities, Medium};
use crate::ip::path::{FastPath, Path};
use crate::time::Instant;

/// Routes kept. Two that share a place push each other out, which costs a search each time.
pub(crate) const ROUTES: usize = 64;

/// The place of a route in the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RouteIndex(pub(crate) u8);

impl RouteIndex {
    /// The place that means no route.
    pub(crate) const NOWHERE: RouteIndex = RouteIndex(ROUTES as u8);

    /// The place of the route between `ends`.
    pub(crate) fn of(ends: &Tuple) -> RouteIndex {
        let folded = ends.addresses_folded();
        // Each half holds one of the two IPv4 addresses: the fold depends on both.
        let short = (folded ^ folded >> 32) as u32;
        RouteIndex((short.wrapping_mul(SPREAD) >> (u32::BITS - ROUTES.ilog2())) as u8)
    }
}

/// A route that is open.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CachedRoute {
    /// Between these addresses; of any ports.
    pub(crate) ends: Tuple,
    /// Good while the changes that were counted are so many, and before this time: after it the
    /// neighbour is in doubt.
    pub(crate) changes: u64,
    pub(crate) until: Instant,
    /// The path of a packet without IP fields of its own.
    pub(crate) path: Path,
    /// The path for the fast layout, if its packets may have it.
    pub(crate) fast: Option<FastPath>,
    /// It leads to ourselves.
    pub(crate) local: bool,
    /// It leads from one of our addresses to a single other host.
    pub(crate) plain: bool,
}

/// An entry between no ends, which is never good.
const NOWHERE: CachedRoute = CachedRoute {
    ends: Tuple::NOBODY,
    changes: u64::MAX,
    until: Instant::ZERO,
    path: Path {
        source: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        destination: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        link: None,
        mtu: 0,
        dont_fragment: true,
        probe: 0,
        hop_limit: 0,
        device: Capabilities::plain(Medium::Ip, 0),
    },
    fast: None,
    local: false,
    plain: false,
};

/// Routes, each at a place by its addresses.
#[derive(Debug)]
pub(crate) struct RouteCache {
    routes: Box<[CachedRoute; ROUTES]>,
}

impl Default for RouteCache {
    fn default() -> Self {
        RouteCache { routes: Box::new([NOWHERE; ROUTES]) }
    }
}

impl RouteCache {
    /// The place of the route between `ends`, if it is good at `now`, when there have been so many
    /// `changes`.
    pub(crate) fn find(&self, ends: &Tuple, changes: u64, now: Instant) -> Option<RouteIndex> {
        let place = RouteIndex::of(ends);
        self.good(place, ends, changes, now).map(|_| place)
    }

    /// The route between `ends`, whose place is `place`, if it is kept and good at `now`.
    pub(crate) fn good(
        &self,
        place: RouteIndex,
        ends: &Tuple,
        changes: u64,
        now: Instant,
    ) -> Option<&CachedRoute> {
        let route = self.routes.get(usize::from(place.0))?;
        let is_good =
            route.changes == changes && now < route.until && route.ends.has_addresses_of(ends);
        is_good.then_some(route)
    }

    /// The route kept at `place`.
    pub(crate) fn at(&self, place: RouteIndex) -> &CachedRoute {
        &self.routes[usize::from(place.0) % ROUTES]
    }

    /// Keeps a route; returns where.
    pub(crate) fn keep(&mut self, route: CachedRoute) -> RouteIndex {
        let place = RouteIndex::of(&route.ends);
        self.routes[usize::from(place.0) % ROUTES] = route;
        place
    }
}

/// 2^32 by the golden ratio: multiplied by it, neighbouring addresses lie apart.
const SPREAD: u32 = 0x9e37_79b9;

#[cfg(test)]
mod tests;
