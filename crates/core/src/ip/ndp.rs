//! Neighbour discovery, router discovery and multicast listeners, as they meet the rest of IP (RFC
//! 4861, RFC 4862, RFC 3810). The state is kept by [`neighbour`](super::neighbour),
//! [`route`](super::route) and [`autoconfigure`](super::autoconfigure).

use alloc::vec::Vec;
use core::net::{IpAddr, Ipv6Addr};

use super::{Context, Ip};
use crate::config::Config;
use crate::frame::Medium;
use crate::ip::autoconfigure::{Autoconfigure, Output, Setup};
use crate::ip::neighbour::Advertisement;
use crate::ip::outgoing::Outgoing;
use crate::ip::route::{Class, Standing};
use crate::time::Instant;
use crate::wire::ethernet::{self, Mac};
use crate::wire::{icmpv6, ip, mld, ndp};

impl Ip {
    /// True once addresses are claimed and configured.
    pub(crate) fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// Claims our addresses, on a medium that has neighbours, and begins to configure IPv6, if an
    /// address is configured or asked for.
    pub(crate) fn begin(&mut self, now: Instant) {
        self.has_begun = true;
        if self.config.device.medium != Medium::Ethernet || self.shards.is_replica() {
            return;
        }
        self.begin_claims(now);
        let Config { hardware, ref addresses, autoconfigure, ref secret, .. } = *self.config;
        if autoconfigure || addresses.iter().any(|cidr| cidr.address().is_ipv6()) {
            let (configured, probe) = (addresses, self.config.address_probe);
            let setup = Setup { hardware, configured, autoconfigure, probe, secret };
            self.autoconfigure = Some(Autoconfigure::new(now, &setup));
            self.take_autoconfigured(now);
        }
    }

    /// True if autoconfiguration has begun.
    pub(crate) fn is_autoconfigured(&self) -> bool {
        self.autoconfigure.is_some()
    }

    /// Time has passed for autoconfiguration.
    pub(crate) fn on_autoconfigure_time(&mut self, now: Instant) {
        if let Some(own) = &mut self.autoconfigure {
            own.on_time(now);
        }
        self.take_autoconfigured(now);
    }

    /// Does what autoconfiguration has decided.
    fn take_autoconfigured(&mut self, now: Instant) {
        while let Some(output) = self.autoconfigure.as_mut().and_then(Autoconfigure::output) {
            match output {
                Output::Address(cidr, standing) => {
                    self.routes.set_address(cidr, standing);
                    if standing == Standing::Preferred {
                        self.claims.on_verified(now, cidr.address());
                        self.take_claimed();
                    }
                }
                Output::Withdrawn(address) => self.routes.remove_address(IpAddr::V6(address)),
                Output::Packet { destination, bytes } => {
                    let mut frame = Vec::with_capacity(ethernet::HEADER_BYTES + bytes.len());
                    self.write_group_link(destination.into(), &mut frame);
                    frame.extend_from_slice(&bytes);
                    self.send(Outgoing::frame(frame));
                }
            }
        }
    }

    /// True if a packet to `address` is for us: one of ours, a broadcast, or a group of ours.
    pub(super) fn is_for_us(&self, address: IpAddr) -> bool {
        match self.routes.class(address) {
            Class::Ours | Class::Broadcast => true,
            Class::Multicast => {
                self.routes.is_our_group(address)
                    || self.groups.has(address)
                    || self.is_tentative_group(address)
            }
            Class::Other => self.routes.is_taken(address),
            Class::Unspecified | Class::Loopback => false,
        }
    }

    /// True if we listen to the group for the sake of an address that is not yet ours.
    fn is_tentative_group(&self, group: IpAddr) -> bool {
        let IpAddr::V6(group) = group else { return false };
        self.autoconfigure.as_ref().is_some_and(|own| own.listens_to(group))
    }

    fn is_optimistic(&self, address: Ipv6Addr) -> bool {
        self.autoconfigure.as_ref().is_some_and(|own| own.is_optimistic(address))
    }

    pub(super) fn on_ndp(
        &mut self,
        cx: &mut Context<'_>,
        packet: &ip::Packet<'_>,
        message: &ndp::Message,
        from: Option<Mac>,
    ) {
        // A medium without hardware addresses has no neighbours to discover.
        let (Some(sender), IpAddr::V6(source)) = (from, packet.source) else { return };
        if self.is_ours(packet.source) {
            let (claimed, claimant) = match *message {
                ndp::Message::NeighbourAdvertisement { target, link_layer, .. } => {
                    (target, link_layer.unwrap_or(sender))
                }
                _ => (source, sender),
            };
            return self.on_address_advertised(cx, claimed, claimant);
        }
        match *message {
            ndp::Message::NeighbourSolicit { target, link_layer, nonce } => {
                let own = self.autoconfigure.as_mut();
                if own.is_some_and(|own| own.on_neighbour_solicit(cx.now, source, target, nonce)) {
                    self.on_address_duplicated(target, sender);
                }
                self.take_autoconfigured(cx.now);
                self.answer_solicit(cx.now, source, target, link_layer);
            }
            ndp::Message::NeighbourAdvertisement {
                target,
                link_layer,
                solicited,
                overrides,
                ..
            } => {
                let claimant = link_layer.unwrap_or(sender);
                self.on_address_advertised(cx, target, claimant);
                let target = IpAddr::V6(target);
                self.neighbours.on_advertisement(
                    cx.now,
                    Advertisement { target, mac: link_layer, solicited, overrides },
                );
            }
            ndp::Message::RouterAdvertisement(ref advertisement) => {
                self.on_router_advertisement(cx.now, source, advertisement);
            }
            // For routers.
            ndp::Message::RouterSolicit { .. } => {}
        }
    }

    /// A neighbour says that it has `target`: for an address of ours that is news, unless it is an
    /// echo of what we have said.
    fn on_address_advertised(&mut self, cx: &mut Context<'_>, target: Ipv6Addr, claimant: Mac) {
        if claimant == self.config.hardware {
            return;
        }
        let own = self.autoconfigure.as_mut();
        if own.is_some_and(|own| own.on_neighbour_advertisement(cx.now, target)) {
            self.on_address_duplicated(target, claimant);
        } else {
            self.on_address_claimed(cx, target.into(), claimant);
        }
        self.take_autoconfigured(cx.now);
    }

    /// A router is believed only where autoconfiguration is asked for.
    fn on_router_advertisement(
        &mut self,
        now: Instant,
        router: Ipv6Addr,
        advertisement: &ndp::RouterAdvertisement,
    ) {
        if !self.config.autoconfigure {
            return;
        }
        if let Some(mac) = advertisement.link_layer {
            self.neighbours.on_heard(now, IpAddr::V6(router), mac);
        }
        self.routes.on_router_advertisement(now, router, advertisement);
        if let Some(own) = &mut self.autoconfigure {
            own.on_router_advertisement(now, advertisement);
        }
        self.take_autoconfigured(now);
    }

    pub(super) fn on_mld(&mut self, now: Instant, message: &mld::Message) {
        let mld::Message::Query { version, max_response_ms, group } = *message else { return };
        self.groups.on_mld_query(now, (version, group), max_response_ms);
        if let Some(own) = &mut self.autoconfigure {
            own.on_listener_query(now, version, group, max_response_ms);
        }
        self.take_autoconfigured(now);
    }

    /// RFC 4861 §7.2.3–7.2.4; an address not yet proved unique does not override (RFC 4429 §3.3).
    fn answer_solicit(
        &mut self,
        now: Instant,
        asker: Ipv6Addr,
        target: Ipv6Addr,
        link_layer: Option<Mac>,
    ) {
        if !self.is_ours(IpAddr::V6(target)) {
            return;
        }
        // An unspecified source asks whether the address is taken: the answer goes to all nodes
        // (§7.2.4).
        let solicited = !asker.is_unspecified();
        let optimistic = self.is_optimistic(target);
        if !solicited && optimistic {
            return;
        }
        if let Some(mac) = link_layer.filter(|_| solicited) {
            self.neighbours.on_heard(now, IpAddr::V6(asker), mac);
        }
        let destination = if solicited { asker } else { ndp::ALL_NODES };
        let message = icmpv6::Message::Ndp(ndp::Message::NeighbourAdvertisement {
            target,
            link_layer: Some(self.config.hardware),
            router: false,
            solicited,
            overrides: !optimistic,
        });
        self.send(Outgoing::icmpv6(target, destination, &message));
    }
}
