//! The parts that a host consists of, beside the connections' slots and what connections share.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::IpAddr;

use super::fin_wait_2::FinWait2;
use super::pace::Paces;
use super::prefetch::Guesses;
use super::shortage::stalled::Stalled;
use super::time_wait::WholeBlocks;
use crate::config::{Config, Limits, SLOTS_MAX};
use crate::fifo::Fifo;
use crate::flow::TupleHasher;
use crate::flow::keyed::KeyedHash;
use crate::rng::Rng;
use crate::tcp::SocketOptions;
use crate::tcp::block_pool::BlockPool;
use crate::tcp::demux::Demux;
use crate::tcp::held::HeldSyns;
use crate::tcp::isn::IsnSource;
use crate::tcp::listen::Listeners;
use crate::tcp::port::Ports;
use crate::tcp::syn_cache::{SynCache, SynLimits};
use crate::tcp::syn_cookie::SynCookies;
use crate::tcp::terms::Terms;
use crate::tcp::time_wait::TimeWait;
use crate::tcp::time_wait::negotiate::Unheard;
use crate::tcp::timers::{Ticks, Timers};
use crate::time::Instant;

/// Finds live connections and keeps their timers and lists. Apart from their slots, so that both
/// can be borrowed at once.
#[derive(Debug)]
pub(super) struct Live {
    pub(super) hasher: TupleHasher,
    pub(super) demux: Demux,
    /// Blocks of connections that are gone, for those to come.
    pub(super) block_pool: BlockPool,
    /// The guesses about frames that are read ahead, once there were any.
    pub(super) guesses: Option<Box<Guesses>>,
    pub(super) timers: Timers,
    /// The scheduling clock.
    pub(super) ticks: Ticks,
    /// Connections whose timers are being run; empty between calls.
    pub(super) due: Vec<u32>,
    /// Connections to be flushed, in their order.
    pub(super) ready: Fifo<u32>,
    /// Connections that wait for their next burst.
    pub(super) paces: Paces,
    /// Connections that wait for a neighbour, by its address.
    pub(super) awaiting: BTreeMap<IpAddr, Vec<u32>>,
    /// Connections whose user has left.
    pub(super) orphans: usize,
    /// Those of them that left while there were many, in the order in which they last moved.
    pub(super) listed_orphans: Stalled,
}

/// How connections begin.
#[derive(Debug)]
pub(super) struct Opening {
    /// The options that a new connection starts with.
    pub(super) options: Arc<SocketOptions>,
    pub(super) terms: Terms,
    pub(super) listeners: Listeners,
    pub(super) syn_cache: SynCache,
    /// SYNs that wait for a verdict.
    pub(super) held: HeldSyns,
    pub(super) isns: IsnSource,
    pub(super) cookies: SynCookies,
    /// When a cookie was sent last; the origin if never.
    pub(super) cookie_sent: Instant,
    pub(super) ports: Ports,
    /// Spreads what is opened over sources and ports.
    pub(super) rng: Rng,
    /// Peers that are not asked which end shall hold TIME-WAIT.
    pub(super) unheard: Unheard,
}

/// The records of connections that are closed, or closing.
#[derive(Debug)]
pub(super) struct Closed {
    pub(super) time_wait: TimeWait,
    /// Orphans in FIN-WAIT-2 on which nothing moves.
    pub(super) fin_wait_2: FinWait2,
    /// Control blocks in TIME-WAIT, where they are kept whole.
    pub(super) whole_blocks: WholeBlocks,
}

impl Live {
    pub(super) fn new(config: &Config) -> Live {
        let ticks = Ticks::new(config.tcp.clock.tick);
        Live {
            hasher: TupleHasher::new(&config.secret),
            demux: Demux::default(),
            block_pool: BlockPool::default(),
            guesses: None,
            timers: Timers::new(config.tcp.timers, ticks).with_estimator(config.tcp.rto.estimator),
            ticks,
            due: Vec::new(),
            ready: Fifo::default(),
            paces: Paces::default(),
            awaiting: BTreeMap::new(),
            orphans: 0,
            listed_orphans: Stalled::default(),
        }
    }
}

impl Opening {
    /// `options`: what a new connection starts with.
    pub(super) fn new(config: &Config, options: SocketOptions) -> Opening {
        let (limits, rto, secret) = (&config.limits, &config.tcp.rto, &config.secret);
        let ticks = Ticks::new(config.tcp.clock.tick);
        let (first, last) = config.ephemeral_ports;
        let seat = config.member.index.to_le_bytes();
        let seat = if config.member.is_replica() { &seat[..] } else { &[] };
        Opening {
            terms: Terms::announced(config, &options),
            options: Arc::new(options),
            listeners: Listeners::default(),
            syn_cache: SynCache::new(half_open(limits), rto.initial, ticks),
            held: HeldSyns::new(limits.held_syns, config.tcp.timeout.verdict),
            isns: IsnSource::new(secret),
            cookies: SynCookies::new(secret),
            cookie_sent: Instant::ZERO,
            ports: Ports::new(first, last, secret),
            // Each shard draws other sources.
            rng: Rng::from_seed(KeyedHash::new(secret, "spread").quick(seat)),
            unheard: Unheard::new(limits.unheard_peers, config.tcp.time_wait.ask_again),
        }
    }
}

/// How many handshakes the SYN cache may keep. Those that a TIME-WAIT record has let through have
/// places of their own, as many as there may be records: a cookie cannot promise their ISN.
pub(super) fn half_open(limits: &Limits) -> SynLimits {
    let proven = limits.time_wait.min((SLOTS_MAX / 2).saturating_sub(limits.syn_cache));
    SynLimits { unproven: limits.syn_cache, proven }
}

impl Closed {
    pub(super) fn new(config: &Config) -> Closed {
        let terms = config.tcp.time_wait_terms();
        Closed {
            time_wait: TimeWait::of(config, terms),
            fin_wait_2: FinWait2::new(config),
            whole_blocks: WholeBlocks::default(),
        }
    }
}
