//! The parts that a host consists of, beside the connections' slots and what connections share.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::IpAddr;

use super::claim;
use super::fin_wait_2::FinWait2;
use super::prefetch::Notes;
use super::reply::Reply;
use super::time_wait::WholeBlocks;
use crate::config::Config;
use crate::flow::Tuple;
use crate::flow::keyed::KeyedHash;
use crate::frame::Outbox;
use crate::ip::autoconfigure::Autoconfigure;
use crate::ip::conflict::Claims;
use crate::ip::limiter::TokenBucket;
use crate::ip::neighbour::Neighbours;
use crate::ip::pmtu::PathMtus;
use crate::ip::reassembly::Reassembly;
use crate::ip::route::Routes;
use crate::ip::route_cache::RouteCache;
use crate::rng::Rng;
use crate::tcp::SocketOptions;
use crate::tcp::block_pool::BlockPool;
use crate::tcp::demux::{Demux, TupleHasher};
use crate::tcp::fifo::Fifo;
use crate::tcp::isn::IsnSource;
use crate::tcp::listen::Listeners;
use crate::tcp::port::Ports;
use crate::tcp::syn_cache::SynCache;
use crate::tcp::syn_cookie::SynCookies;
use crate::tcp::terms::Terms;
use crate::tcp::time_wait::TimeWait;
use crate::tcp::time_wait::negotiate::Unheard;
use crate::tcp::timers::{Ticks, Timers};
use crate::time::Instant;
use crate::wire::Malformed;

/// Frames to ourselves that wait at most; beyond it they are lost, as on any full link.
const LOOPBACK_FRAMES: usize = 1024;

/// Bytes of fragments that wait for the rest of their packets, all together.
const REASSEMBLY_BYTES: usize = 256 << 10;

/// Finds live connections and keeps their timers and lists. Apart from their slots, so that both
/// can be borrowed at once.
#[derive(Debug)]
pub(super) struct Live {
    pub(super) hasher: TupleHasher,
    pub(super) demux: Demux,
    /// Blocks of connections that are gone, for those to come.
    pub(super) block_pool: BlockPool,
    /// The notes about frames that are read ahead, once there were any.
    pub(super) notes: Option<Box<Notes>>,
    pub(super) timers: Timers,
    /// The scheduling clock.
    pub(super) ticks: Ticks,
    /// Connections whose timers are being run; empty between calls.
    pub(super) due: Vec<u32>,
    /// Connections to be flushed, in their order.
    pub(super) ready: Fifo<u32>,
    /// Connections whose user has left.
    pub(super) orphans: usize,
    /// No segment is taken for one of the usual layout: what it does must be the same.
    #[cfg(test)]
    pub(super) knows_no_usual: bool,
}

/// How connections begin.
#[derive(Debug)]
pub(super) struct Opening {
    /// What a new connection starts with.
    pub(super) options: Arc<SocketOptions>,
    pub(super) terms: Terms,
    pub(super) listeners: Listeners,
    pub(super) syn_cache: SynCache,
    pub(super) isns: IsnSource,
    pub(super) cookies: SynCookies,
    /// When a cookie was sent last; the origin if never.
    pub(super) cookie_sent: Instant,
    pub(super) ports: Ports,
    /// Peers that are not asked which end shall hold TIME-WAIT.
    pub(super) unheard: Unheard,
}

/// What is left of connections that are closed, or closing.
#[derive(Debug)]
pub(super) struct Closed {
    pub(super) time_wait: TimeWait,
    /// Orphans in FIN-WAIT-2 on which nothing moves.
    pub(super) fin_wait_2: FinWait2,
    /// Control blocks in TIME-WAIT, where they are kept whole.
    pub(super) whole_blocks: WholeBlocks,
}

/// IP and the link: our addresses, the routes to others, and what arrives in pieces.
#[derive(Debug)]
pub(super) struct Ip {
    pub(super) routes: Routes,
    /// IPv6 addresses in the making; from the first call that tells the time.
    pub(super) autoconfigure: Option<Autoconfigure>,
    /// The configured addresses, and how far each is ours.
    pub(super) claims: Claims,
    /// Addresses are claimed and configured since the first call that tells the time.
    pub(super) link_begun: bool,
    pub(super) path_mtus: PathMtus,
    pub(super) reassembly: Reassembly,
    pub(super) neighbours: Neighbours,
    pub(super) route_cache: RouteCache,
    /// Connections that wait for a neighbour.
    pub(super) awaiting: BTreeMap<IpAddr, Vec<u32>>,
    pub(super) rng: Rng,
    /// Frames dropped because they made no sense.
    pub(super) malformed: [u64; Malformed::COUNT],
}

/// What is to be sent and belongs to no connection.
#[derive(Debug)]
pub(super) struct Out {
    /// Answers, in their order.
    pub(super) replies: VecDeque<Reply>,
    /// What we have sent to ourselves.
    pub(super) loopback: Outbox,
    /// Answers to strangers.
    pub(super) strangers: TokenBucket,
}

impl Live {
    pub(super) fn new(config: &Config) -> Live {
        let ticks = Ticks::new(config.tcp.clock.tick);
        Live {
            hasher: TupleHasher::new(&config.secret),
            demux: Demux::default(),
            block_pool: BlockPool::default(),
            notes: None,
            timers: Timers::new(config.tcp.timers, ticks).with_estimator(config.tcp.rto.estimator),
            ticks,
            due: Vec::new(),
            ready: Fifo::default(),
            orphans: 0,
            #[cfg(test)]
            knows_no_usual: false,
        }
    }
}

impl Opening {
    /// `options`: what a new connection starts with.
    pub(super) fn new(config: &Config, options: SocketOptions) -> Opening {
        let (limits, rto, secret) = (&config.limits, &config.tcp.rto, &config.secret);
        let ticks = Ticks::new(config.tcp.clock.tick);
        let (first, last) = config.ephemeral_ports;
        Opening {
            terms: Terms::announced(config, &options),
            options: Arc::new(options),
            listeners: Listeners::default(),
            syn_cache: SynCache::new(limits.syn_cache, rto.initial, ticks),
            isns: IsnSource::new(secret),
            cookies: SynCookies::new(secret),
            cookie_sent: Instant::ZERO,
            ports: Ports::new(first, last, secret),
            unheard: Unheard::new(limits.unheard_peers, config.tcp.time_wait.ask_again),
        }
    }
}

impl Closed {
    pub(super) fn new(config: &Config) -> Closed {
        let hasher = TupleHasher::new(&config.secret);
        let terms = config.tcp.time_wait_terms();
        Closed {
            time_wait: TimeWait::new(terms, config.limits.time_wait, hasher),
            fin_wait_2: FinWait2::new(config),
            whole_blocks: WholeBlocks::default(),
        }
    }
}

impl Ip {
    pub(super) fn new(config: &Config) -> Ip {
        let (limits, secret) = (&config.limits, &config.secret);
        Ip {
            routes: claim::routes(config),
            autoconfigure: None,
            claims: Claims::new(config.address_probe, config.address_announce, secret),
            link_begun: false,
            path_mtus: PathMtus::new(config.device.mtu, limits.path_mtus, secret),
            reassembly: Reassembly::new(limits.reassemblies, REASSEMBLY_BYTES),
            neighbours: Neighbours::new(limits.neighbours, limits.neighbour_queue, secret),
            route_cache: RouteCache::default(),
            awaiting: BTreeMap::new(),
            rng: Rng::from_seed(KeyedHash::new(secret, "spread").quick(&[])),
            malformed: [0; Malformed::COUNT],
        }
    }

    pub(super) fn is_ours(&self, address: IpAddr) -> bool {
        self.routes.is_local(address)
    }

    /// True if the peer's address is ours as well.
    pub(super) fn is_to_ourselves(&self, tuple: &Tuple) -> bool {
        self.is_ours(tuple.remote_ip())
    }

    /// True if the addresses of `ends` are known for one of ours and that of a single other host:
    /// something has lately gone there. If not they may be all the same.
    pub(super) fn is_plain_route(&self, now: Instant, ends: &Tuple) -> bool {
        let place = self.route_cache.find(ends, self.route_changes(), now);
        place.is_some_and(|place| self.route_cache.at(place).plain)
    }

    /// How often what decides on routes has changed.
    pub(super) fn route_changes(&self) -> u64 {
        self.routes.changes() + self.neighbours.changes() + self.path_mtus.changes()
    }
}

impl Out {
    pub(super) fn new(config: &Config) -> Out {
        let per_second = config.limits.replies_per_second;
        Out {
            replies: VecDeque::new(),
            loopback: Outbox::new(LOOPBACK_FRAMES),
            strangers: TokenBucket::new(per_second, per_second),
        }
    }
}
