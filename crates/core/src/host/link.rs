//! Between the host and its link: next hops and neighbours.

use core::net::IpAddr;

use super::Host;
use super::output::{Reply, Way};
use crate::frame::{Outbox, RxFrame};
use crate::tcp::egress::Path;
use crate::time::Instant;
use crate::wire::ethernet::Mac;
use crate::wire::{arp, ip};

impl Host {
    pub(super) fn is_ours(&self, address: IpAddr) -> bool {
        self.config.addresses.iter().any(|cidr| cidr.address() == address)
            || self.config.ranges.iter().any(|range| range.contains(address))
    }

    pub(super) fn is_for_us(&self, address: IpAddr) -> bool {
        self.is_ours(address)
    }

    pub(super) fn routes_source(&self, remote: IpAddr) -> Option<IpAddr> {
        let mut ours = self.config.addresses.iter().map(|cidr| cidr.address());
        ours.find(|address| address.is_ipv4() == remote.is_ipv4())
    }

    pub(super) fn way(
        &mut self,
        _now: Instant,
        source: IpAddr,
        destination: IpAddr,
        class: u8,
    ) -> Way {
        let local = self.is_ours(destination);
        let device = self.config.device;
        let path = Path { source, destination, link: None, mtu: device.mtu, traffic_class: class, device };
        Way::Open { path, local }
    }

    pub(super) fn emit_link(&mut self, _now: Instant, _outbox: &mut Outbox) {}
    pub(super) fn queue_for_neighbour(&mut self, _now: Instant, _next_hop: IpAddr, _reply: &Reply) {}
    pub(super) fn stall(&mut self, _next_hop: IpAddr, _index: u32) {}
    pub(super) fn give_up_unreachable(&mut self, _now: Instant, _index: u32) {}
    pub(super) fn on_arp(&mut self, _now: Instant, _packet: &arp::Packet) {}
    pub(super) fn on_fragment(&mut self, _now: Instant, _packet: &ip::Packet<'_>, _from: Option<Mac>) {}
    pub(super) fn on_icmp(&mut self, _now: Instant, _packet: &ip::Packet<'_>, _from: Option<Mac>) {}
    pub(super) fn on_unknown_protocol(&mut self, _now: Instant, _packet: &ip::Packet<'_>) {
        let _ = RxFrame::plain;
    }
}
