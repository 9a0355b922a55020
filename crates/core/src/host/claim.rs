//! Address conflict detection, as the host meets it. The claims themselves are kept by
//! [`conflict`](super::conflict), and for IPv6 by [`autoconfigure`](super::autoconfigure).

use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::Host;
use crate::event::Event;
use crate::ip::conflict::{Claimed, Conflict, Output};
use crate::ip::is_probing;
use crate::ip::outgoing::Outgoing;
use crate::ip::route::Standing;
use crate::time::Instant;
use crate::wire::ethernet::{self, BROADCAST, Mac};
use crate::wire::{arp, icmpv6, ndp};

impl Host {
    /// How it stands with the configured addresses. [`Event::Addresses`] tells that it has changed.
    pub fn claimed(&self) -> Claimed {
        let begins = !self.ip.link_begun && is_probing(&self.config);
        if begins { Claimed::Pending } else { self.ip.claims.claimed() }
    }

    /// The link has come up again: probes our IPv4 addresses once more, if they are probed, while
    /// they stay in use (RFC 5227 §2.1), and then announces ours, if they are announced. A host
    /// that has one of them by now objects, and [`Host::conflict`] reports it.
    pub fn on_link_up(&mut self, now: Instant) {
        self.ip.claims.on_link_up(now);
        self.take_claimed();
    }

    /// A conflict over an address of ours that was found, the oldest first: each address that was
    /// lost, and each time that one was defended. [`Event::Addresses`] tells that there is one.
    pub fn conflict(&mut self) -> Option<Conflict> {
        self.ip.claims.conflict()
    }

    /// Claims the configured addresses.
    pub(super) fn begin_claims(&mut self, now: Instant) {
        for index in 0..self.config.addresses.len() {
            self.ip.claims.begin(now, self.config.addresses[index].address());
        }
        self.take_claimed();
    }

    /// Time has passed for claims.
    pub(super) fn on_claims_time(&mut self, now: Instant) {
        self.ip.claims.on_time(now);
        self.take_claimed();
    }

    /// An ARP packet may say that another host has an address of ours, or wants it (RFC 5227
    /// §2.1.1, §2.4). A packet from our own hardware address is an echo of ours.
    pub(super) fn look_for_conflict(&mut self, now: Instant, packet: &arp::Packet) {
        if packet.sender_mac == self.config.hardware {
            return;
        }
        if packet.sender.is_unspecified() {
            self.ip.claims.on_probe(packet.target.into(), packet.sender_mac);
            self.take_claimed();
        } else {
            self.on_address_claimed(now, packet.sender.into(), packet.sender_mac);
        }
    }

    /// A host with another hardware address than ours says that it has `address`.
    pub(super) fn on_address_claimed(&mut self, now: Instant, address: IpAddr, claimant: Mac) {
        let counters = &mut self.shared.counters;
        counters.address_conflicts += u64::from(self.ip.routes.is_local(address));
        counters.address_defences += u64::from(self.ip.claims.on_claim(now, address, claimant));
        self.take_claimed();
    }

    /// Duplicate address detection has found that `claimant` has `address`.
    pub(super) fn on_address_duplicated(&mut self, address: Ipv6Addr, claimant: Mac) {
        self.ip.claims.on_lost(address.into(), claimant);
        self.take_claimed();
    }

    /// Does what claims have decided.
    pub(super) fn take_claimed(&mut self) {
        while let Some(output) = self.ip.claims.output() {
            match output {
                // Both ask the same question: without a sender's address, or with ours.
                Output::Probe(address) => self.ask_all(Ipv4Addr::UNSPECIFIED, address),
                Output::Announce(IpAddr::V4(address)) => self.ask_all(address, address),
                Output::Announce(IpAddr::V6(address)) => self.advertise(address),
                Output::Use(address) => {
                    let mut all = self.config.addresses.iter();
                    if let Some(&cidr) = all.find(|cidr| cidr.address() == address) {
                        self.ip.routes.set_address(cidr, Standing::Preferred);
                    }
                }
            }
        }
        if self.ip.claims.take_news() {
            self.events.push_back(Event::Addresses);
        }
    }

    /// Broadcasts an ARP request.
    fn ask_all(&mut self, sender: Ipv4Addr, target: Ipv4Addr) {
        let mut frame = Vec::new();
        self.arp_request(sender, target, BROADCAST, &mut frame);
        self.reply(Outgoing::frame(frame).into());
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
        let mut frame = Vec::new();
        self.link_header(ethernet::ipv6_group(ndp::ALL_NODES), false).emit(&mut frame);
        icmpv6::Message::Ndp(message).emit_packet(address, ndp::ALL_NODES, &mut frame);
        self.reply(Outgoing::frame(frame).into());
    }
}
