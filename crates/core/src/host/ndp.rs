//! Neighbour discovery, router discovery and multicast listeners, as they meet the host (RFC 4861,
//! RFC 4862, RFC 3810). The state is kept by [`neighbour`](super::neighbour),
//! [`route`](super::route) and [`autoconfigure`](super::autoconfigure).

use alloc::vec::Vec;
use core::net::{IpAddr, Ipv6Addr};

use super::Host;
use crate::frame::Medium;
use crate::ip::autoconfigure::{Autoconfigure, Output, Setup};
use crate::ip::neighbour::Advertisement;
use crate::ip::outgoing::Outgoing;
use crate::ip::route::Standing;
use crate::time::Instant;
use crate::wire::ethernet::{self, Mac};
use crate::wire::{icmpv6, ip, mld, ndp};

impl Host {
    /// Claims our addresses at the first sign of time, on a medium that has neighbours.
    #[inline(always)]
    pub(super) fn begin_link(&mut self, now: Instant) {
        if !self.ip.link_begun {
            self.ip.link_begun = true;
            if self.config.device.medium == Medium::Ethernet {
                self.begin_claims(now);
                self.begin_autoconfigure(now);
            }
        }
    }

    /// Begins to configure IPv6, if an address is configured or asked for.
    fn begin_autoconfigure(&mut self, now: Instant) {
        let wanted = self.config.autoconfigure
            || self.config.addresses.iter().any(|cidr| cidr.address().is_ipv6());
        if wanted {
            let setup = Setup {
                hardware: self.config.hardware,
                configured: &self.config.addresses,
                autoconfigure: self.config.autoconfigure,
                probe: self.config.address_probe,
                secret: &self.config.secret,
            };
            self.ip.autoconfigure = Some(Autoconfigure::new(now, &setup));
            self.take_autoconfigured(now);
        }
    }

    /// Time has passed for what autoconfigures, if anything does.
    pub(super) fn on_autoconfigure_time(&mut self, now: Instant) {
        if let Some(own) = &mut self.ip.autoconfigure {
            own.on_time(now);
        }
        self.take_autoconfigured(now);
    }

    /// Does what autoconfiguration has decided.
    pub(super) fn take_autoconfigured(&mut self, now: Instant) {
        while let Some(output) = self.ip.autoconfigure.as_mut().and_then(Autoconfigure::output) {
            match output {
                Output::Address(cidr, standing) => {
                    self.ip.routes.set_address(cidr, standing);
                    if standing == Standing::Preferred {
                        self.ip.claims.on_verified(now, cidr.address());
                        self.take_claimed();
                    }
                }
                Output::Withdrawn(address) => self.ip.routes.remove_address(IpAddr::V6(address)),
                Output::Packet { destination, bytes } => {
                    let header = self.link_header(ethernet::ipv6_group(destination), false);
                    let mut frame = Vec::with_capacity(ethernet::HEADER_BYTES + bytes.len());
                    header.emit(&mut frame);
                    frame.extend_from_slice(&bytes);
                    self.reply(Outgoing::frame(frame).into());
                }
            }
        }
    }

    /// True if we listen to the group for the sake of an address that is not yet ours.
    pub(super) fn is_tentative_group(&self, group: IpAddr) -> bool {
        let IpAddr::V6(group) = group else { return false };
        self.ip.autoconfigure.as_ref().is_some_and(|own| own.listens_to(group))
    }

    fn is_optimistic(&self, address: Ipv6Addr) -> bool {
        self.ip.autoconfigure.as_ref().is_some_and(|own| own.is_optimistic(address))
    }

    pub(super) fn on_ndp(
        &mut self,
        now: Instant,
        packet: &ip::Packet<'_>,
        message: &ndp::Message,
        from: Option<Mac>,
    ) {
        // A medium without hardware addresses has no neighbours to discover.
        let (Some(sender), IpAddr::V6(source)) = (from, packet.source) else { return };
        if self.ip.is_ours(packet.source) {
            let (claimed, claimant) = match *message {
                ndp::Message::NeighbourAdvertisement { target, link_layer, .. } => {
                    (target, link_layer.unwrap_or(sender))
                }
                _ => (source, sender),
            };
            return self.on_address_advertised(now, claimed, claimant);
        }
        match *message {
            ndp::Message::NeighbourSolicit { target, link_layer, nonce } => {
                let own = self.ip.autoconfigure.as_mut();
                if own.is_some_and(|own| own.on_neighbour_solicit(now, source, target, nonce)) {
                    self.on_address_duplicated(target, sender);
                }
                self.take_autoconfigured(now);
                self.answer_solicit(now, source, target, link_layer);
            }
            ndp::Message::NeighbourAdvertisement {
                target,
                link_layer,
                solicited,
                overrides,
                ..
            } => {
                self.on_address_advertised(now, target, link_layer.unwrap_or(sender));
                let target = IpAddr::V6(target);
                self.ip.neighbours.on_advertisement(
                    now,
                    Advertisement { target, mac: link_layer, solicited, overrides },
                );
            }
            ndp::Message::RouterAdvertisement(ref advertisement) => {
                self.on_router_advertisement(now, source, advertisement);
            }
            // For routers.
            ndp::Message::RouterSolicit { .. } => {}
        }
        self.wake_for_neighbours(now);
    }

    /// A neighbour says that it has `target`: for an address of ours that is news, unless it is an
    /// echo of what we have said.
    fn on_address_advertised(&mut self, now: Instant, target: Ipv6Addr, claimant: Mac) {
        if claimant == self.config.hardware {
            return;
        }
        let own = self.ip.autoconfigure.as_mut();
        if own.is_some_and(|own| own.on_neighbour_advertisement(now, target)) {
            self.on_address_duplicated(target, claimant);
        } else {
            self.on_address_claimed(now, target.into(), claimant);
        }
        self.take_autoconfigured(now);
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
            self.ip.neighbours.on_heard(now, IpAddr::V6(router), mac);
        }
        self.ip.routes.on_router_advertisement(now, router, advertisement);
        if let Some(own) = &mut self.ip.autoconfigure {
            own.on_router_advertisement(now, advertisement);
        }
        self.take_autoconfigured(now);
    }

    pub(super) fn on_mld(&mut self, now: Instant, message: &mld::Message) {
        let mld::Message::Query { version, max_response_ms, group } = *message else { return };
        if let Some(own) = &mut self.ip.autoconfigure {
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
        if !self.ip.is_ours(IpAddr::V6(target)) {
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
            self.ip.neighbours.on_heard(now, IpAddr::V6(asker), mac);
        }
        let destination = if solicited { asker } else { ndp::ALL_NODES };
        let message = icmpv6::Message::Ndp(ndp::Message::NeighbourAdvertisement {
            target,
            link_layer: Some(self.config.hardware),
            router: false,
            solicited,
            overrides: !optimistic,
        });
        self.reply(Outgoing::icmpv6((target, destination), &message).into());
    }
}
