//! Finds the next hop of a packet, writes link headers, and asks for neighbours (RFC 826, RFC
//! 4861).

use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{Context, Ip};
use crate::config::Config;
use crate::counters::Counters;
use crate::flow::Tuple;
use crate::frame::{Capabilities, Medium, Outbox};
use crate::ip::autoconfigure::Autoconfigure;
use crate::ip::neighbour::{Advertisement, Lookup, Output, Resolution, Waiting};
use crate::ip::outgoing::Outgoing;
use crate::ip::path::{IpFields, Path};
use crate::ip::pmtu::PathMtu;
use crate::ip::route::{Class, NextHop};
use crate::ip::route_cache::{CachedRoute, RouteIndex};
use crate::ip::shards::Content;
use crate::time::Instant;
use crate::wire::arp::{self, Operation};
use crate::wire::ethernet::{self, BROADCAST, Mac, ethertype};
use crate::wire::{icmpv6, ndp};

/// Whether a packet can leave.
pub(crate) enum Route {
    /// Along the route that is kept at this place.
    Open(RouteIndex),
    /// When the neighbour has answered.
    Waiting(IpAddr),
    /// Not at all.
    Closed,
}

impl Ip {
    /// How a packet between `ends` leaves.
    pub(crate) fn route(&mut self, now: Instant, ends: &Tuple) -> Route {
        self.kept_route(now, ends).map_or_else(|| self.find_route(now, ends), Route::Open)
    }

    /// Finds the route between `ends`, where none is kept.
    fn find_route(&mut self, now: Instant, ends: &Tuple) -> Route {
        let mut path = self.path(ends);
        let mut until = Instant::FAR_FUTURE;
        let destination = path.destination;
        let class = self.routes.class(destination);
        let local = class == Class::Ours;
        if local {
            // To ourselves nothing is checked, and nothing is cut.
            path.device.checksum = true;
            path.device.segmentation = 65_535;
            path.device.datagrams = 65_535;
        } else if path.device.medium == Medium::Ethernet {
            let to = match self.routes.next_hop_of(class, destination) {
                Some(NextHop::Neighbour(next_hop)) => match self.neighbours.lookup(now, next_hop) {
                    Lookup::Known(mac) => {
                        until = self.neighbours.trusted_until(next_hop);
                        mac
                    }
                    Lookup::Pending => return Route::Waiting(next_hop),
                    Lookup::Failed => return Route::Closed,
                },
                Some(NextHop::Group(mac)) => mac,
                Some(NextHop::Ourselves) | None => return Route::Closed,
            };
            path.link = Some(self.link_header(to, destination.is_ipv4()));
        }
        let plain = class == Class::Other && self.takes(path.source);
        let fast = path.marked(IpFields::default()).fast();
        let changes = self.route_changes();
        let route = CachedRoute { ends: *ends, changes, until, path, fast, local, plain };
        Route::Open(self.route_cache.keep(route))
    }

    /// The largest packet that the path to `destination` carries, as far as is known.
    pub(crate) fn path_mtu(&self, destination: IpAddr) -> u16 {
        self.path_mtus.path(destination).mtu.min(self.link_mtu(destination))
    }

    fn link_mtu(&self, destination: IpAddr) -> u16 {
        match destination {
            IpAddr::V4(_) => self.config.device.mtu,
            IpAddr::V6(_) => self.routes.ipv6_mtu(),
        }
    }

    /// The path between `ends`, without a link header.
    fn path(&self, ends: &Tuple) -> Path {
        let Config { device, hop_limit, autoconfigure, .. } = *self.config;
        let (source, destination) = (ends.local_ip(), ends.remote_ip());
        let PathMtu { mtu, dont_fragment, probe } = self.path_mtus.path(destination);
        let link_mtu = self.link_mtu(destination);
        let hop_limit = match destination {
            IpAddr::V6(_) if autoconfigure => self.routes.ipv6_hop_limit(),
            _ => hop_limit,
        };
        let mtu = mtu.min(link_mtu);
        let probe = if probe > link_mtu { 0 } else { probe };
        Path { source, destination, link: None, mtu, dont_fragment, probe, hop_limit, device }
    }

    /// The path between `ends` of a reply that waits until its neighbour is known.
    pub(crate) fn path_of_waiting(&self, ends: &Tuple) -> Path {
        let path = self.path(ends);
        Path {
            link: Some(self.link_header([0; 6], ends.remote_ip().is_ipv4())),
            // A segment that waits is a header: no router has to cut it.
            dont_fragment: true,
            probe: 0,
            // What waits is bytes: no device will complete it.
            device: Capabilities { checksum: false, ..path.device },
            ..path
        }
    }

    pub(super) fn link_header(&self, destination: Mac, ipv4: bool) -> ethernet::Header {
        let ethertype = if ipv4 { ethertype::IPV4 } else { ethertype::IPV6 };
        ethernet::Header { destination, source: self.config.hardware, ethertype }
    }

    /// Appends the link header of a packet to a group, on a medium that has one.
    pub(super) fn write_group_link(&self, group: IpAddr, out: &mut Vec<u8>) {
        if self.config.device.medium != Medium::Ethernet {
            return;
        }
        let mac = match group {
            IpAddr::V4(group) => ethernet::ipv4_group(group),
            IpAddr::V6(group) => ethernet::ipv6_group(group),
        };
        self.link_header(mac, group.is_ipv4()).emit(out);
    }

    /// Sends what the neighbour cache wants sent.
    pub(crate) fn emit(&mut self, outbox: &mut Outbox, counters: &mut Counters) {
        while outbox.room() > 0 {
            let Some(output) = self.neighbours.output() else { break };
            let Waiting { frame: bytes, is_segment } = match output {
                Output::Frame(waiting) => waiting,
                Output::Solicit { target, .. } if self.shards.is_replica() => {
                    self.shards.send(0, Content::Ask(target));
                    continue;
                }
                Output::Solicit { target, to } => {
                    Waiting { frame: self.solicitation(target, to), is_segment: false }
                }
            };
            if let Some(frame) = outbox.push() {
                frame.head.extend_from_slice(&bytes);
                counters.frames_out += 1;
                counters.segments_out += u64::from(is_segment);
            }
        }
    }

    /// The frame that asks for `target`; to a single host if its address is to be verified.
    fn solicitation(&self, target: IpAddr, to: Option<Mac>) -> Vec<u8> {
        match target {
            IpAddr::V4(target) => {
                let sender = self.address_for(target);
                self.arp_request(sender, target, to.unwrap_or(BROADCAST))
            }
            IpAddr::V6(target) => self.neighbour_solicitation(target, to),
        }
    }

    fn address_for(&self, target: Ipv4Addr) -> Ipv4Addr {
        match self.routes.source_for(IpAddr::V4(target)) {
            Some(IpAddr::V4(address)) => address,
            _ => Ipv4Addr::UNSPECIFIED,
        }
    }

    /// The frame that asks `to`, in the name of `sender`, for the hardware address of `target`.
    pub(super) fn arp_request(&self, sender: Ipv4Addr, target: Ipv4Addr, to: Mac) -> Vec<u8> {
        let packet = arp::Packet {
            operation: Operation::Request,
            sender_mac: self.config.hardware,
            sender,
            target_mac: [0; 6],
            target,
        };
        self.arp_frame(&packet, to)
    }

    pub(super) fn arp_frame(&self, packet: &arp::Packet, to: Mac) -> Vec<u8> {
        let mut frame = Vec::new();
        let source = self.config.hardware;
        ethernet::Header { destination: to, source, ethertype: ethertype::ARP }.emit(&mut frame);
        packet.emit(&mut frame);
        frame
    }

    /// Empty if we have no address to ask from.
    fn neighbour_solicitation(&self, target: Ipv6Addr, to: Option<Mac>) -> Vec<u8> {
        let Some(IpAddr::V6(source)) = self.routes.source_for(IpAddr::V6(target)) else {
            return Vec::new();
        };
        let group = ndp::solicited_node(target);
        let destination = if to.is_some() { target } else { group };
        let mac = to.unwrap_or(ethernet::ipv6_group(group));
        let message = ndp::Message::NeighbourSolicit {
            target,
            link_layer: Some(self.config.hardware),
            nonce: None,
        };
        self.ndp_frame(message, source, destination, mac)
    }

    /// The frame to `mac` with an NDP message.
    pub(super) fn ndp_frame(
        &self,
        message: ndp::Message,
        source: Ipv6Addr,
        destination: Ipv6Addr,
        mac: Mac,
    ) -> Vec<u8> {
        let mut frame = Vec::new();
        self.link_header(mac, false).emit(&mut frame);
        icmpv6::Message::Ndp(message).emit_packet(source, destination, &mut frame);
        frame
    }

    // ---- ARP

    pub(crate) fn on_arp(&mut self, cx: &mut Context<'_>, packet: &arp::Packet) {
        if self.shards.is_replica() {
            return self.shards.hand_over_rare(cx, 0, Content::Arp(*packet));
        }
        let sender = IpAddr::V4(packet.sender);
        let for_us = self.is_ours(IpAddr::V4(packet.target));
        self.look_for_conflict(cx, packet);
        if self.is_ours(sender) {
            // Nothing is learnt from a host that claims an address of ours.
            return;
        }
        if packet.operation == Operation::Request && for_us {
            self.neighbours.on_heard(cx.now, sender, packet.sender_mac);
            let reply = arp::Packet {
                operation: Operation::Reply,
                sender_mac: self.config.hardware,
                sender: packet.target,
                target_mac: packet.sender_mac,
                target: packet.sender,
            };
            let frame = self.arp_frame(&reply, packet.sender_mac);
            self.send(Outgoing::frame(frame));
            return;
        }
        let solicited = packet.operation == Operation::Reply && for_us;
        self.neighbours.on_advertisement(
            cx.now,
            Advertisement {
                target: sender,
                mac: Some(packet.sender_mac),
                solicited,
                overrides: true,
            },
        );
    }

    // ---- what waits for a neighbour

    /// Lets a frame wait for the neighbour at `next_hop`.
    pub(crate) fn wait(&mut self, next_hop: IpAddr, waiting: Waiting) {
        self.neighbours.wait(next_hop, waiting);
    }

    /// The oldest next hop that has answered, or failed to. A gateway that failed goes behind the
    /// others.
    pub(crate) fn resolved(&mut self) -> Option<(IpAddr, Resolution)> {
        let (next_hop, resolution) = self.neighbours.resolved()?;
        self.answer_replicas(next_hop, resolution);
        if resolution == Resolution::Failed {
            self.routes.on_gateway_failed(next_hop);
        }
        Some((next_hop, resolution))
    }

    // ---- time

    /// True if [`Ip::on_time`] has a deadline, or news.
    pub(crate) fn has_time(&self) -> bool {
        self.neighbours.has_deadline()
            || self.neighbours.has_resolved()
            || self.claims.deadline().is_some()
            || self.routes.deadline().is_some()
            || self.path_mtus.deadline().is_some()
            || self.reassembly.deadline().is_some()
            || self.reassembly.has_expired()
            || self.groups.deadline() != Instant::FAR_FUTURE
    }

    /// When the first deadline of IP is due.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let all = [
            self.neighbours.deadline(),
            self.claims.deadline(),
            self.routes.deadline(),
            self.path_mtus.deadline(),
            self.autoconfigure.as_ref().and_then(Autoconfigure::deadline),
            self.reassembly.deadline(),
            Some(self.groups.deadline()).filter(|at| *at != Instant::FAR_FUTURE),
        ];
        all.into_iter().flatten().min()
    }

    /// Time has passed for everything but autoconfiguration.
    pub(crate) fn on_time(&mut self, cx: &mut Context<'_>) {
        let is_due = |deadline: Option<Instant>| deadline.is_some_and(|at| at <= cx.now);
        if is_due(self.neighbours.deadline()) {
            self.neighbours.on_time(cx.now);
        }
        if is_due(self.claims.deadline()) {
            self.claims.on_time(cx.now);
            self.take_claimed();
        }
        if is_due(self.routes.deadline()) {
            self.routes.on_time(cx.now);
        }
        if is_due(self.path_mtus.deadline()) {
            self.path_mtus.on_time(cx.now);
        }
        if is_due(self.reassembly.deadline()) || self.reassembly.has_expired() {
            self.on_reassembly_time(cx);
        }
        if self.groups.deadline() <= cx.now {
            self.report_groups(cx.now);
        }
    }
}
