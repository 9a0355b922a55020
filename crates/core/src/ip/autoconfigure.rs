//! IPv6 addresses: made, proved to be unique, kept for as long as they may be, and announced.
//!
//! - a link-local address, and with [`Setup::autoconfigure`] one for each prefix that a router
//!   advertises for it (RFC 4862), with stable interface identifiers that say nothing about the
//!   hardware (RFC 7217, keyed with this process's secret);
//! - optimistic duplicate address detection for these and for configured ones (RFC 4429), or for
//!   configured ones that of RFC 4862 §5.4, which does not use them before; with a nonce against
//!   our own probes looped back (RFC 7527);
//! - router solicitations with back-off until a router answers (RFC 7559);
//! - membership in the solicited-node groups, reported by MLD (RFC 3810, and RFC 2710 where a
//!   querier speaks only that).
//!
//! ```text
//!              1 s without objection             preferred lifetime
//!   OPTIMISTIC ────────────────────▶ PREFERRED ────────────────────▶ DEPRECATED
//!       │ another host has it             │ valid lifetime                │
//!       └──────────▶ WITHDRAWN ◀──────────┴───────────────────────────────┘
//! ```
//!
//! Inputs come in, a list of [`Output`]s goes out.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv6Addr};

use crate::address::Cidr;
use crate::flow::keyed::KeyedHash;
use crate::ip::route::{Standing, end_of, prefix_cidr};
use crate::time::{Duration, Instant};
use crate::wire::ethernet::Mac;
use crate::wire::icmpv6;
use crate::wire::mld::{self, Change, Version};
use crate::wire::ndp::{self, Prefix, RouterAdvertisement, solicited_node};

/// Addresses made from advertised prefixes; the next prefix's is not made.
pub(crate) const MAX_ADDRESSES: usize = 8;

/// How long others have to object to an address (RFC 4862 §5.1: one probe, RETRANS_TIMER).
pub(crate) const PROBE: Duration = Duration::from_secs(1);

/// Identifiers tried for a prefix before it is left alone (RFC 7217 §6: IDGEN_RETRIES).
pub(crate) const MAX_ATTEMPTS: u8 = 3;

/// The first pause between router solicitations, and the longest (RFC 7559 §2).
pub(crate) const SOLICIT_FIRST: Duration = Duration::from_secs(4);
/// See [`SOLICIT_FIRST`].
pub(crate) const SOLICIT_LONGEST: Duration = Duration::from_secs(3600);

/// A lifetime may not be cut below this by an advertisement (RFC 4862 §5.5.3 e).
const TWO_HOURS: Duration = Duration::from_secs(7200);

/// How long a version 1 query makes us speak version 1 (RFC 3810 §9.12).
const OLD_QUERIER: Duration = Duration::from_secs(260);

/// An action for the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Output {
    /// Send this IPv6 packet to that group.
    Packet {
        /// The group.
        destination: Ipv6Addr,
        /// The whole packet.
        bytes: Vec<u8>,
    },
    /// This address is ours from now on, or has another standing than before.
    Address(Cidr, Standing),
    /// This address is ours no more.
    Withdrawn(Ipv6Addr),
}

/// What autoconfiguration needs to know.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup<'a> {
    /// Our hardware address.
    pub hardware: Mac,
    /// Configured addresses; those of IPv4 are passed over.
    pub configured: &'a [Cidr],
    /// Ask for routers, and make addresses of the prefixes that they advertise.
    pub autoconfigure: bool,
    /// Configured addresses are used once no host has objected for so long, or for `PROBE` if that
    /// is shorter (RFC 4862 §5.4). Zero: they are used at once (RFC 4429).
    pub probe: Duration,
    /// This process's secret.
    pub secret: &'a [u8; 32],
}

/// Where an address comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    Configured,
    /// Made by us, with so many tries before it that were taken.
    Made {
        attempts: u8,
    },
}

#[derive(Clone, Copy, Debug)]
struct Own {
    cidr: Cidr,
    address: Ipv6Addr,
    origin: Origin,
    /// Until when others may object; then `None`.
    probing: Option<Instant>,
    preferred_until: Instant,
    valid_until: Instant,
    standing: Standing,
}

impl Own {
    /// When something next happens to it.
    fn deadline(&self) -> Instant {
        let preferred = match self.standing {
            Standing::Preferred => self.preferred_until,
            Standing::Reluctant => Instant::FAR_FUTURE,
        };
        self.probing.unwrap_or(preferred).min(self.valid_until)
    }

    /// The standing it should have.
    fn due_standing(&self, now: Instant) -> Standing {
        if self.probing.is_none() && now < self.preferred_until {
            Standing::Preferred
        } else {
            Standing::Reluctant
        }
    }
}

/// The IPv6 addresses of one host in the making.
#[derive(Debug)]
pub(crate) struct Autoconfigure {
    hardware: Mac,
    hash: KeyedHash,
    autoconfigure: bool,
    /// How long configured addresses are tentative.
    probe: Duration,
    addresses: Vec<Own>,
    /// When the next router solicitation goes out, and how long after the last.
    solicit: Option<(Instant, Duration)>,
    /// When a listener query is to be answered.
    report: Option<Instant>,
    /// Until when version 1 is spoken.
    version_1_until: Instant,
    deadline: Option<Instant>,
    outputs: VecDeque<Output>,
}

impl Autoconfigure {
    /// Begins: probes the configured addresses and a link-local one, and asks for routers.
    pub(crate) fn new(now: Instant, setup: &Setup<'_>) -> Self {
        let mut this = Autoconfigure {
            hardware: setup.hardware,
            hash: KeyedHash::new(setup.secret, "interface identifier"),
            autoconfigure: setup.autoconfigure,
            probe: setup.probe.min(PROBE),
            addresses: Vec::new(),
            solicit: setup.autoconfigure.then_some((now, SOLICIT_FIRST)),
            report: None,
            version_1_until: Instant::ZERO,
            deadline: None,
            outputs: VecDeque::new(),
        };
        let for_ever = Instant::FAR_FUTURE;
        if let Some(link_local) = Cidr::new(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0).into(), 64) {
            this.make(now, link_local, 0, for_ever, for_ever);
        }
        for &cidr in setup.configured {
            this.begin(now, cidr, Origin::Configured, for_ever, for_ever);
        }
        this.on_time(now);
        this
    }

    /// The next action, oldest first.
    pub(crate) fn output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// True if the address is ours but not yet proved to be unique: advertisements of it must not
    /// override, and what is sent from it must not tell our hardware address (RFC 4429 §3.2, §3.3).
    pub(crate) fn is_optimistic(&self, address: Ipv6Addr) -> bool {
        self.find(address).is_some_and(|own| own.probing.is_some())
    }

    /// Our link-local address, once it is proved to be unique.
    pub(crate) fn link_local(&self) -> Option<Ipv6Addr> {
        let mut proved = self.addresses.iter().filter(|own| own.probing.is_none());
        proved.find(|own| own.address.is_unicast_link_local()).map(|own| own.address)
    }

    /// True if the solicited-node group of one of our addresses is `group`.
    pub(crate) fn listens_to(&self, group: Ipv6Addr) -> bool {
        self.addresses.iter().any(|own| solicited_node(own.address) == group)
    }

    /// A host at `source` solicits `target`. From the unspecified address it is a probe: two hosts
    /// that probe the same address both leave it (RFC 4862 §5.4.3), unless the probe is our own,
    /// looped back. For an address that is proved to be ours, the host's answer is all that is
    /// needed. True if this has cost us the address.
    pub(crate) fn on_neighbour_solicit(
        &mut self,
        now: Instant,
        source: Ipv6Addr,
        target: Ipv6Addr,
        nonce: Option<[u8; 6]>,
    ) -> bool {
        let probe = source.is_unspecified() && nonce != Some(self.nonce(target));
        probe && self.on_neighbour_advertisement(now, target)
    }

    /// A host advertises `target` as its own (RFC 4862 §5.4.4). An address that we have proved to
    /// be ours stays ours: a mere claim must not take it away. True if this has cost us the
    /// address.
    pub(crate) fn on_neighbour_advertisement(&mut self, now: Instant, target: Ipv6Addr) -> bool {
        let Some(&own) = self.find(target).filter(|own| own.probing.is_some()) else {
            return false;
        };
        self.withdraw(now, target);
        if let Origin::Made { attempts } = own.origin
            && attempts + 1 < MAX_ATTEMPTS
        {
            let Own { cidr, preferred_until, valid_until, .. } = own;
            self.make(now, cidr, attempts + 1, preferred_until, valid_until);
        }
        self.refresh_deadline();
        true
    }

    /// A router speaks (RFC 4862 §5.5.3). Routes and the MTU are for
    /// [`Routes`](super::route::Routes) to learn.
    pub(crate) fn on_router_advertisement(
        &mut self,
        now: Instant,
        advertisement: &RouterAdvertisement,
    ) {
        if !self.autoconfigure {
            return;
        }
        if advertisement.router_lifetime_s > 0 {
            self.solicit = None;
        }
        for prefix in advertisement.prefixes.iter() {
            let usable = prefix.autonomous
                && prefix.prefix_len == 64
                && prefix.preferred_s <= prefix.valid_s;
            if let Some(cidr) = prefix_cidr(&prefix).filter(|_| usable) {
                self.on_prefix(now, cidr, &prefix);
            }
        }
        self.on_time(now);
    }

    /// A querier asks which hosts listen to `group`; if that is unspecified, which groups are
    /// listened to at all.
    pub(crate) fn on_listener_query(
        &mut self,
        now: Instant,
        version: Version,
        group: Ipv6Addr,
        max_response_ms: u32,
    ) {
        if !self.listens_to(group) && !group.is_unspecified() {
            return;
        }
        if version == Version::V1 {
            self.version_1_until = now + OLD_QUERIER;
        }
        // Hosts spread their answers, each at a time of its own.
        let spread = self.hash.quick(&now.as_nanos().to_be_bytes());
        let delay_ms = spread % (u64::from(max_response_ms) + 1);
        let at = now + Duration::from_millis(delay_ms);
        self.report = Some(self.report.map_or(at, |sooner| sooner.min(at)));
        self.refresh_deadline();
    }

    /// Does what is due at `now`.
    pub(crate) fn on_time(&mut self, now: Instant) {
        self.expire(now);
        let mut proved_link_local = false;
        for own in &mut self.addresses {
            if own.probing.is_some_and(|until| until <= now) {
                own.probing = None;
                proved_link_local |= own.address.is_unicast_link_local();
            }
            let standing = own.due_standing(now);
            if standing != own.standing {
                own.standing = standing;
                self.outputs.push_back(Output::Address(own.cidr, standing));
            }
        }
        // Reports that went out from the unspecified address are sent again (RFC 3590 §4).
        if proved_link_local || self.report.is_some_and(|at| at <= now) {
            self.report = None;
            let groups: Vec<_> = self.addresses.iter().map(|own| own.address).collect();
            self.report_groups(now, Change::Listening, &groups);
        }
        self.solicit_routers(now);
        self.refresh_deadline();
    }

    /// When [`Autoconfigure::on_time`] next has something to do.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    fn find(&self, address: Ipv6Addr) -> Option<&Own> {
        self.addresses.iter().find(|own| own.address == address)
    }

    /// A prefix to make an address of, or one that we have made one of.
    fn on_prefix(&mut self, now: Instant, cidr: Cidr, prefix: &Prefix) {
        let preferred_until = end_of(now, prefix.preferred_s);
        let valid_until = end_of(now, prefix.valid_s);
        let of_router =
            |own: &Own| own.origin != Origin::Configured && !own.address.is_unicast_link_local();
        let count = self.addresses.iter().filter(|own| of_router(own)).count();
        let mut known = self.addresses.iter_mut().filter(|own| of_router(own));
        if let Some(own) = known.find(|own| cidr.contains(own.address.into())) {
            own.preferred_until = preferred_until;
            own.valid_until = allowed_end(now, own.valid_until, valid_until);
        } else if prefix.valid_s > 0 && count < MAX_ADDRESSES {
            self.make(now, cidr, 0, preferred_until, valid_until);
        }
    }

    /// Makes an address of a prefix and begins to probe it.
    fn make(
        &mut self,
        now: Instant,
        prefix: Cidr,
        attempts: u8,
        preferred_until: Instant,
        valid_until: Instant,
    ) {
        let address = prefix.nth(u128::from(self.interface_id(prefix, attempts)));
        if let Some(cidr) = Cidr::new(address, prefix.prefix_len()) {
            self.begin(now, cidr, Origin::Made { attempts }, preferred_until, valid_until);
        }
    }

    /// Asks whether another host has an address; takes it for ours meanwhile, optimistically,
    /// unless it is to be tentative.
    fn begin(
        &mut self,
        now: Instant,
        cidr: Cidr,
        origin: Origin,
        preferred_until: Instant,
        valid_until: Instant,
    ) {
        let IpAddr::V6(address) = cidr.address() else { return };
        if self.find(address).is_some() {
            return;
        }
        let tentative = origin == Origin::Configured && !self.probe.is_zero();
        let wait = if tentative { self.probe } else { PROBE };
        self.addresses.push(Own {
            cidr,
            address,
            origin,
            probing: Some(now + wait),
            preferred_until,
            valid_until,
            standing: Standing::Reluctant,
        });
        if !tentative {
            self.outputs.push_back(Output::Address(cidr, Standing::Reluctant));
        }
        // Switches must know the group before the answer comes (RFC 4862 §5.4.2).
        self.report_groups(now, Change::Joined, &[address]);
        let nonce = Some(self.nonce(address));
        let probe = ndp::Message::NeighbourSolicit { target: address, link_layer: None, nonce };
        self.send(probe, Ipv6Addr::UNSPECIFIED, solicited_node(address));
    }

    fn withdraw(&mut self, now: Instant, address: Ipv6Addr) {
        self.addresses.retain(|own| own.address != address);
        self.outputs.push_back(Output::Withdrawn(address));
        let group = solicited_node(address);
        if !self.addresses.iter().any(|own| solicited_node(own.address) == group) {
            self.report_groups(now, Change::Left, &[address]);
        }
    }

    /// Withdraws what is valid no more.
    fn expire(&mut self, now: Instant) {
        while let Some(own) = self.addresses.iter().find(|own| own.valid_until <= now) {
            self.withdraw(now, own.address);
        }
    }

    fn solicit_routers(&mut self, now: Instant) {
        let Some((at, pause)) = self.solicit else { return };
        if at > now {
            return;
        }
        self.solicit = Some((now + pause, (pause * 2).min(SOLICIT_LONGEST)));
        let source = self.link_local();
        let link_layer = source.map(|_| self.hardware);
        let message = ndp::Message::RouterSolicit { link_layer };
        self.send(message, source.unwrap_or(Ipv6Addr::UNSPECIFIED), ndp::ALL_ROUTERS);
    }

    fn send(&mut self, message: ndp::Message, source: Ipv6Addr, destination: Ipv6Addr) {
        let mut bytes = Vec::new();
        icmpv6::Message::Ndp(message).emit_packet(source, destination, &mut bytes);
        self.outputs.push_back(Output::Packet { destination, bytes });
    }

    /// Tells about the solicited-node groups of these addresses.
    fn report_groups(&mut self, now: Instant, change: Change, addresses: &[Ipv6Addr]) {
        let source = self.link_local().unwrap_or(Ipv6Addr::UNSPECIFIED);
        let mut groups: Vec<_> = addresses.iter().map(|own| solicited_node(*own)).collect();
        groups.sort_unstable();
        groups.dedup();
        if now < self.version_1_until {
            for group in groups {
                let mut bytes = Vec::new();
                mld::emit_report_v1(source, change, group, &mut bytes);
                let left = change == Change::Left;
                let destination = if left { ndp::ALL_ROUTERS } else { group };
                self.outputs.push_back(Output::Packet { destination, bytes });
            }
            return;
        }
        let records: Vec<_> = groups.into_iter().map(|group| (change, group)).collect();
        for records in records.chunks(mld::MAX_RECORDS) {
            let mut bytes = Vec::new();
            mld::emit_report(source, records, &mut bytes);
            self.outputs.push_back(Output::Packet { destination: mld::ALL_MLDV2_ROUTERS, bytes });
        }
    }

    /// RFC 7217 §5: of the prefix, the interface, the tries before and the secret; reserved ones
    /// (RFC 5453) are passed over.
    fn interface_id(&self, prefix: Cidr, attempts: u8) -> u64 {
        let IpAddr::V6(network) = prefix.nth(0) else { return 0 };
        let mut input = [0; 24];
        input[..16].copy_from_slice(&network.octets());
        input[16..22].copy_from_slice(&self.hardware);
        input[22] = attempts;
        loop {
            let id = self.hash.strong(&input);
            let reserved = id == 0
                || (0x0200_5eff_fe00_0000..=0x0200_5eff_feff_ffff).contains(&id)
                || (0xfdff_ffff_ffff_ff80..=0xfdff_ffff_ffff_ffff).contains(&id);
            if !reserved {
                return id;
            }
            input[23] += 1;
        }
    }

    /// What marks our own probes for an address.
    fn nonce(&self, target: Ipv6Addr) -> [u8; 6] {
        let [a, b, c, d, e, f, ..] = self.hash.strong(&target.octets()).to_be_bytes();
        [a, b, c, d, e, f]
    }

    fn refresh_deadline(&mut self) {
        let own = self.addresses.iter().map(Own::deadline);
        let others = self.solicit.map(|(at, _)| at).into_iter().chain(self.report);
        let first = own.chain(others).min();
        self.deadline = first.filter(|at| *at != Instant::FAR_FUTURE);
    }
}

/// When an address ends that was to end at `known` and is now said to end at `told`: no host on the
/// link may end it at once (RFC 4862 §5.5.3 e).
fn allowed_end(now: Instant, known: Instant, told: Instant) -> Instant {
    let two_hours = now + TWO_HOURS;
    if told > two_hours || told > known { told } else { known.min(two_hours) }
}

#[cfg(test)]
mod tests;
