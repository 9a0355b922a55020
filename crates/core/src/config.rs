//! Every knob of a host: its default, its unit, and where the default comes from.

mod check;
mod group;
mod hardware;
mod knob;
pub(crate) mod lease;
mod limits;
mod member;
mod tcp;
mod udp;
mod value;

pub use group::Knob;
pub use hardware::hardware_address;
pub use knob::{KnobError, parse_time};
pub use limits::{Limits, SLOTS_MAX};
pub use member::{Member, SHARDS_MAX};
pub use tcp::{
    AckConfig, AckDelay, Algorithm, BufferConfig, ClockConfig, CongestionConfig, Disagreement, Ecn,
    Estimator, KeepaliveConfig, LossDetection, PageSize, PoolConfig, PoolPolicy, Push, Quirks,
    RtoConfig, Scheme, SendRule, SendSize, StallConfig, TcpConfig, TimeWaitConfig, TimeWaitState,
    TimeoutConfig, WindowProbe, Wish,
};

pub use udp::UdpConfig;

use alloc::vec::Vec;
use core::net::IpAddr;

use crate::address::Cidr;
use crate::frame::Capabilities;
use crate::time::Duration;

/// The configuration of one host, or of one of its shards ([`Config::member`]).
#[derive(Clone, Debug)]
pub struct Config {
    /// The device's capabilities.
    pub device: Capabilities,
    /// Our hardware address (ignored on a medium without one). One that follows from the secret.
    pub hardware: [u8; 6],
    /// Our addresses, each with the prefix that is on-link.
    pub addresses: Vec<Cidr>,
    /// Ranges of addresses that are ours as well: answered, and used for active opens, but not
    /// announced one by one; the peer needs a route to them through one of `addresses`.
    pub ranges: Vec<Cidr>,
    /// Prefixes of destinations that the host takes as its own: `0.0.0.0/0` and `::/0` take all.
    /// Another host may have the address. The host takes no group, broadcast, loopback or
    /// unspecified address. It announces none of them on the link, and answers no echo for them. A
    /// listener of any address and port ([`Host::listen_any`](crate::Host::listen_any)) hears what
    /// comes for them.
    pub destinations: Vec<Cidr>,
    /// Gateways: the next hop for what is not on-link, at most one an IP version.
    pub gateways: Vec<IpAddr>,
    /// Take addresses, prefix and default route from router advertisements (RFC 4862).
    pub autoconfigure: bool,
    /// How long it may take to ask, on a medium with neighbours, whether another host has our
    /// `addresses` before they are used; [`Host::claimed`](crate::Host::claimed) tells when all are
    /// ours. RFC 5227 §1.1 gives IPv4 [7 s](crate::ip::conflict::PROBE_LONGEST), RFC 4862 §5.4 IPv6
    /// 1 s. In a shorter time the probes keep the RFC's proportions: its constants are for any link
    /// of IEEE 802, and neighbours mostly answer within a millisecond. Zero: no host is asked about
    /// IPv4 addresses, and IPv6 addresses are used while hosts are asked about them (RFC 4429).
    pub address_probe: Duration,
    /// Announce our `addresses` when they begin to be used, so that neighbours do not keep what
    /// they knew of the host that had them before (RFC 5227 §2.3, RFC 4861 §7.2.6).
    pub address_announce: bool,
    /// TTL or hop limit of our packets (RFC 9293 MUST-49); with `autoconfigure` a router may give
    /// another for IPv6.
    pub hop_limit: u8,
    /// The ephemeral ports: first and last, inclusive. RFC 6335 §6 gives
    /// 49152–65535; we use RFC 6056 §3.2's wider 1024–65535 with randomised order.
    pub ephemeral_ports: (u16, u16),
    /// TCP.
    pub tcp: TcpConfig,
    /// UDP.
    pub udp: UdpConfig,
    /// Bounds on memory and on work.
    pub limits: Limits,
    /// This shard's place among the shards of the host; [`Config::member`] sets it.
    pub member: Member,
    /// Secret of this process: keys of ISNs, cookies, timestamps, hashes and port order. The
    /// platform draws it from its random source; a simulator from its seed.
    pub secret: [u8; 32],
}

impl Config {
    /// A host on `device` with one address, every other knob at its default. The secret must be
    /// random and no other host's: sequence numbers and the hardware address follow from it.
    pub fn new(device: Capabilities, address: Cidr, secret: [u8; 32]) -> Self {
        Config {
            device,
            hardware: hardware::of_secret(&secret),
            addresses: Vec::from([address]),
            ranges: Vec::new(),
            destinations: Vec::new(),
            gateways: Vec::new(),
            autoconfigure: false,
            address_probe: Duration::ZERO,
            address_announce: false,
            hop_limit: crate::wire::ip::DEFAULT_HOP_LIMIT,
            ephemeral_ports: (1024, 65535),
            tcp: TcpConfig::default(),
            udp: UdpConfig::default(),
            limits: Limits::default(),
            member: Member::ALONE,
            secret,
        }
    }
}
