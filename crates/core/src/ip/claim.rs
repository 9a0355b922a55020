//! Address conflict detection, as it meets the rest of IP. The claims themselves are kept by
//! [`conflict`](super::conflict), and for IPv6 by [`autoconfigure`](super::autoconfigure).

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{Context, Ip, is_probing};
use crate::ip::conflict::{Claimed, Conflict, Output};
use crate::ip::outgoing::Outgoing;
use crate::ip::route::Standing;
use crate::time::Instant;
use crate::wire::ethernet::{self, BROADCAST, Mac};
use crate::wire::{arp, ndp};

impl Ip {
    /// Whether the configured addresses are ours. A replica knows what was published.
    pub(crate) fn claimed(&self) -> Claimed {
        if self.shards.is_replica() {
            let all = self.config.addresses.iter().all(|cidr| self.is_ours(cidr.address()));
            return if all { Claimed::All } else { Claimed::Pending };
        }
        let begins = !self.has_begun && is_probing(&self.config);
        if begins { Claimed::Pending } else { self.claims.claimed() }
    }

    /// The link has come up again: another host may have taken an address of ours meanwhile.
    pub(crate) fn on_link_up(&mut self, now: Instant) {
        self.claims.on_link_up(now);
        self.take_claimed();
    }

    /// The next conflict over an address of ours, the oldest first.
    pub(crate) fn conflict(&mut self) -> Option<Conflict> {
        self.claims.conflict()
    }

    /// True if a conflict was found, or [`Ip::claimed`] has changed, since the last call.
    pub(crate) fn take_news(&mut self) -> bool {
        self.claims.take_news()
    }

    /// Claims the configured addresses.
    pub(super) fn begin_claims(&mut self, now: Instant) {
        for cidr in &self.config.addresses {
            self.claims.begin(now, cidr.address());
        }
        self.take_claimed();
    }

    /// An ARP packet may say that another host has an address of ours, or wants it (RFC 5227
    /// §2.1.1, §2.4). A packet from our own hardware address is an echo of ours.
    pub(super) fn look_for_conflict(&mut self, cx: &mut Context<'_>, packet: &arp::Packet) {
        if packet.sender_mac == self.config.hardware {
            return;
        }
        if packet.sender.is_unspecified() {
            self.claims.on_probe(packet.target.into(), packet.sender_mac);
            self.take_claimed();
        } else {
            self.on_address_claimed(cx, packet.sender.into(), packet.sender_mac);
        }
    }

    /// A host with another hardware address than ours says that it has `address`.
    pub(super) fn on_address_claimed(
        &mut self,
        cx: &mut Context<'_>,
        address: IpAddr,
        claimant: Mac,
    ) {
        cx.counters.address_conflicts += u64::from(self.is_ours(address));
        cx.counters.address_defences += u64::from(self.claims.on_claim(cx.now, address, claimant));
        self.take_claimed();
    }

    /// Duplicate address detection has found that `claimant` has `address`.
    pub(super) fn on_address_duplicated(&mut self, address: Ipv6Addr, claimant: Mac) {
        self.claims.on_lost(address.into(), claimant);
        self.take_claimed();
    }

    /// Does what claims have decided.
    pub(super) fn take_claimed(&mut self) {
        while let Some(output) = self.claims.output() {
            match output {
                // Both ask the same question: without a sender's address, or with ours.
                Output::Probe(address) => self.ask_all(Ipv4Addr::UNSPECIFIED, address),
                Output::Announce(IpAddr::V4(address)) => self.ask_all(address, address),
                Output::Announce(IpAddr::V6(address)) => self.advertise(address),
                Output::Use(address) => {
                    let mut all = self.config.addresses.iter();
                    if let Some(&cidr) = all.find(|cidr| cidr.address() == address) {
                        self.routes.set_address(cidr, Standing::Preferred);
                    }
                }
            }
        }
    }

    /// Broadcasts an ARP request.
    fn ask_all(&mut self, sender: Ipv4Addr, target: Ipv4Addr) {
        let frame = self.arp_request(sender, target, BROADCAST);
        self.send(Outgoing::frame(frame));
    }

    /// An unsolicited neighbour advertisement (RFC 4861 §7.2.6).
    fn advertise(&mut self, address: Ipv6Addr) {
        let message = ndp::Message::NeighbourAdvertisement {
            target: address,
            link_layer: Some(self.config.hardware),
            router: false,
            solicited: false,
            overrides: true,
        };
        let mac = ethernet::ipv6_group(ndp::ALL_NODES);
        let frame = self.ndp_frame(message, address, ndp::ALL_NODES, mac);
        self.send(Outgoing::frame(frame));
    }
}
