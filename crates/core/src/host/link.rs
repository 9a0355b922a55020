//! Between the host and its link: next hops, neighbours, and the packets and connections that wait
//! for a neighbour.

use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::Host;
use super::output::Route;
use super::reply::write_reply;
use crate::flow::Tuple;
use crate::frame::{Frame, Medium, Outbox};
use crate::ip::autoconfigure::Autoconfigure;
use crate::ip::neighbour::{Advertisement, Lookup, Output, Resolution, Waiting};
use crate::ip::outgoing::Outgoing;
use crate::ip::path::IpFields;
use crate::ip::path::Path;
use crate::ip::route::{Class, NextHop};
use crate::ip::route_cache::CachedRoute;
use crate::tcp::connection::Shape;
use crate::tcp::timers::Timer;
use crate::time::{Duration, Instant};
use crate::wire::arp::{self, Operation};
use crate::wire::ethernet::{self, BROADCAST, Mac, ethertype};
use crate::wire::{icmpv6, ndp};

/// A connection whose neighbour does not answer tries again after this.
const RETRY: Duration = Duration::from_secs(1);

impl Host {
    /// True if a packet to `address` is for us: one of ours, a broadcast, or a group of ours.
    pub(super) fn is_for_us(&self, address: IpAddr) -> bool {
        match self.ip.routes.class(address) {
            Class::Ours | Class::Broadcast => true,
            Class::Multicast => {
                self.ip.routes.is_our_group(address) || self.is_tentative_group(address)
            }
            Class::Unspecified | Class::Loopback | Class::Other => false,
        }
    }

    /// How a packet between `ends` leaves, where no route is cached.
    pub(super) fn find_route(&mut self, now: Instant, ends: &Tuple) -> Route {
        let device = self.config.device;
        let (source, destination) = (ends.local_ip(), ends.remote_ip());
        let (mtu, dont_fragment) = self.path_mtu(destination);
        let hop_limit = self.hop_limit(destination);
        let mut path =
            Path { source, destination, link: None, mtu, dont_fragment, hop_limit, device };
        let mut until = Instant::FAR_FUTURE;
        let class = self.ip.routes.class(destination);
        let local = class == Class::Ours;
        if local {
            // To ourselves nothing is checked, and nothing is cut.
            path.device.checksum = true;
            path.device.segmentation = 65_535;
        } else if device.medium == Medium::Ethernet {
            let to = match self.ip.routes.next_hop_of(class, destination) {
                Some(NextHop::Neighbour(next_hop)) => {
                    match self.ip.neighbours.lookup(now, next_hop) {
                        Lookup::Known(mac) => {
                            until = self.ip.neighbours.trusted_until(next_hop);
                            mac
                        }
                        Lookup::Pending => return Route::Waiting(next_hop),
                        Lookup::Failed => return Route::Closed,
                    }
                }
                Some(NextHop::Group(mac)) => mac,
                Some(NextHop::Ourselves) | None => return Route::Closed,
            };
            path.link = Some(self.link_header(to, destination.is_ipv4()));
        }
        let plain = class == Class::Other && self.ip.is_ours(source);
        let usual = path.marked(IpFields::default()).usual();
        let changes = self.ip.route_changes();
        let route = CachedRoute { ends: *ends, changes, until, path, usual, local, plain };
        Route::Open(self.ip.route_cache.keep(route))
    }

    fn hop_limit(&self, destination: IpAddr) -> u8 {
        if self.config.autoconfigure && destination.is_ipv6() {
            self.ip.routes.ipv6_hop_limit()
        } else {
            self.config.hop_limit
        }
    }

    pub(super) fn link_header(&self, destination: Mac, ipv4: bool) -> ethernet::Header {
        let ethertype = if ipv4 { ethertype::IPV4 } else { ethertype::IPV6 };
        ethernet::Header { destination, source: self.config.hardware, ethertype }
    }

    // ---- what the link itself has to say

    /// Sends what the neighbour cache wants sent.
    pub(super) fn emit_link(&mut self, outbox: &mut Outbox) {
        while outbox.room() > 0 {
            let Some(output) = self.ip.neighbours.output() else { break };
            let Waiting { frame: bytes, is_segment } = match output {
                Output::Frame(waiting) => waiting,
                Output::Solicit { target, to } => {
                    Waiting { frame: self.solicitation(target, to), is_segment: false }
                }
            };
            if let Some(frame) = outbox.push() {
                frame.head.extend_from_slice(&bytes);
                self.shared.counters.frames_out += 1;
                self.shared.counters.segments_out += u64::from(is_segment);
            }
        }
    }

    /// The frame that asks for `target`; to a single host if its address is to be verified.
    fn solicitation(&self, target: IpAddr, to: Option<Mac>) -> Vec<u8> {
        let mut frame = Vec::new();
        match target {
            IpAddr::V4(target) => {
                let sender = self.address_for(target);
                self.arp_request(sender, target, to.unwrap_or(BROADCAST), &mut frame);
            }
            IpAddr::V6(target) => self.neighbour_solicitation(target, to, &mut frame),
        }
        frame
    }

    fn address_for(&self, target: Ipv4Addr) -> Ipv4Addr {
        match self.ip.routes.source_for(IpAddr::V4(target)) {
            Some(IpAddr::V4(address)) => address,
            _ => Ipv4Addr::UNSPECIFIED,
        }
    }

    /// The frame that asks `to`, in the name of `sender`, for the hardware address of `target`.
    pub(super) fn arp_request(
        &self,
        sender: Ipv4Addr,
        target: Ipv4Addr,
        to: Mac,
        frame: &mut Vec<u8>,
    ) {
        let packet = arp::Packet {
            operation: Operation::Request,
            sender_mac: self.config.hardware,
            sender,
            target_mac: [0; 6],
            target,
        };
        self.arp_frame(&packet, to, frame);
    }

    fn arp_frame(&self, packet: &arp::Packet, to: Mac, frame: &mut Vec<u8>) {
        let source = self.config.hardware;
        ethernet::Header { destination: to, source, ethertype: ethertype::ARP }.emit(frame);
        packet.emit(frame);
    }

    fn neighbour_solicitation(&self, target: Ipv6Addr, to: Option<Mac>, frame: &mut Vec<u8>) {
        let Some(IpAddr::V6(source)) = self.ip.routes.source_for(IpAddr::V6(target)) else {
            return;
        };
        let group = ndp::solicited_node(target);
        let destination = if to.is_some() { target } else { group };
        let mac = to.unwrap_or(ethernet::ipv6_group(group));
        let message = ndp::Message::NeighbourSolicit {
            target,
            link_layer: Some(self.config.hardware),
            nonce: None,
        };
        self.link_header(mac, false).emit(frame);
        icmpv6::Message::Ndp(message).emit_packet(source, destination, frame);
    }

    pub(super) fn on_arp(&mut self, now: Instant, packet: &arp::Packet) {
        let sender = IpAddr::V4(packet.sender);
        let for_us = self.ip.is_ours(IpAddr::V4(packet.target));
        self.look_for_conflict(now, packet);
        if self.ip.is_ours(sender) {
            // Nothing is learnt from a host that claims an address of ours.
            return;
        }
        if packet.operation == Operation::Request && for_us {
            self.ip.neighbours.on_heard(now, sender, packet.sender_mac);
            self.wake_for_neighbours(now);
            let reply = arp::Packet {
                operation: Operation::Reply,
                sender_mac: self.config.hardware,
                sender: packet.target,
                target_mac: packet.sender_mac,
                target: packet.sender,
            };
            let mut frame = Vec::new();
            self.arp_frame(&reply, packet.sender_mac, &mut frame);
            self.reply(Outgoing::frame(frame).into());
            return;
        }
        let solicited = packet.operation == Operation::Reply && for_us;
        self.ip.neighbours.on_advertisement(
            now,
            Advertisement {
                target: sender,
                mac: Some(packet.sender_mac),
                solicited,
                overrides: true,
            },
        );
        self.wake_for_neighbours(now);
    }

    // ---- time

    /// True if something of the link or the network has a deadline.
    pub(super) fn has_link_time(&self) -> bool {
        self.ip.neighbours.has_deadline()
            || self.ip.neighbours.has_resolved()
            || self.ip.claims.deadline().is_some()
            || self.ip.routes.deadline().is_some()
            || self.ip.path_mtus.deadline().is_some()
            || self.ip.reassembly.deadline().is_some()
            || self.ip.reassembly.has_expired()
    }

    /// When the first of those is due, or what configures our addresses.
    pub(super) fn link_deadline(&self) -> Option<Instant> {
        let all = [
            self.ip.neighbours.deadline(),
            self.ip.claims.deadline(),
            self.ip.routes.deadline(),
            self.ip.path_mtus.deadline(),
            self.ip.autoconfigure.as_ref().and_then(Autoconfigure::deadline),
            self.ip.reassembly.deadline(),
        ];
        all.into_iter().flatten().min()
    }

    /// Time has passed for those.
    pub(super) fn on_link_time(&mut self, now: Instant) {
        let is_due = |deadline: Option<Instant>| deadline.is_some_and(|at| at <= now);
        if is_due(self.ip.neighbours.deadline()) {
            self.ip.neighbours.on_time(now);
        }
        if self.ip.neighbours.has_resolved() {
            self.wake_for_neighbours(now);
        }
        if is_due(self.ip.claims.deadline()) {
            self.on_claims_time(now);
        }
        if is_due(self.ip.routes.deadline()) {
            self.ip.routes.on_time(now);
        }
        if is_due(self.ip.path_mtus.deadline()) {
            self.ip.path_mtus.on_time(now);
        }
        if is_due(self.ip.reassembly.deadline()) || self.ip.reassembly.has_expired() {
            self.on_reassembly_time(now);
        }
    }

    // ---- what waits for a neighbour

    /// Lets the reply at `index` wait for its neighbour.
    pub(super) fn queue_for_neighbour(&mut self, now: Instant, next_hop: IpAddr, index: usize) {
        let Some(reply) = self.replies.get(index) else { return };
        let (source, destination) = (reply.ends.local_ip(), reply.ends.remote_ip());
        let device = self.config.device;
        let link = Some(self.link_header([0; 6], destination.is_ipv4()));
        let path = Path {
            source,
            destination,
            link,
            mtu: device.mtu,
            dont_fragment: true,
            hop_limit: self.hop_limit(destination),
            // What waits is bytes: no device will complete it.
            device: crate::frame::Capabilities { checksum: false, ..device },
        };
        let mut frame = Frame::default();
        if write_reply(&mut frame, &path.marked(IpFields::default()), reply) {
            let is_segment = reply.is_segment();
            self.ip.neighbours.wait(next_hop, Waiting { frame: frame.head, is_segment });
        }
        self.wake_for_neighbours(now);
    }

    /// Lets a connection wait for its neighbour: it keeps what it has to send.
    pub(super) fn wait_for_neighbour(&mut self, now: Instant, next_hop: IpAddr, index: u32) {
        if let Some(slot) = self.slots.get_mut(index).filter(|slot| !slot.awaits_neighbour) {
            slot.awaits_neighbour = true;
            self.live.awaiting.entry(next_hop).or_default().push(index);
        }
        self.rearm(now, index);
        self.wake_for_neighbours(now);
    }

    /// Neighbours have answered, or have failed to: the connections that waited for them are ready
    /// again. Asking may push another neighbour out of the cache, so this follows every question,
    /// too.
    pub(super) fn wake_for_neighbours(&mut self, now: Instant) {
        while let Some((next_hop, resolution)) = self.ip.neighbours.resolved() {
            if resolution == Resolution::Failed {
                self.ip.routes.on_gateway_failed(next_hop);
            }
            for index in self.live.awaiting.remove(&next_hop).unwrap_or_default() {
                if let Some(slot) = self.slots.get_mut(index) {
                    slot.awaits_neighbour = false;
                }
                match resolution {
                    Resolution::Forgotten => self.retry_later(now, index),
                    Resolution::Resolved | Resolution::Failed => self.make_ready(index),
                }
            }
        }
        self.shared.counters.neighbour_drops = self.ip.neighbours.dropped();
    }

    /// The cache is too small for all that are asked for at once. At once would push out another,
    /// and so on in a circle.
    fn retry_later(&mut self, now: Instant, index: u32) {
        let Some(slot) = self.slots.get_mut(index).filter(|slot| !slot.ready) else { return };
        let connection = slot.connection_mut();
        if connection.is_over() {
            return self.on_unreachable(now, index);
        }
        if !connection.deadlines.is_set(Timer::Retransmit) {
            connection.deadlines.set(Timer::Retransmit, now + RETRY);
        }
        self.rearm(now, index);
    }

    /// There is no route to the peer. An attempt to open fails; an established connection tries
    /// again until its user timeout.
    pub(super) fn on_unreachable(&mut self, now: Instant, index: u32) {
        self.shared.counters.unreachable += 1;
        let Some(slot) = self.slots.get_mut(index) else { return };
        let connection = slot.connection_mut();
        let cx = self.shared.at(now);
        match &connection.shape {
            Shape::SynSent(_) | Shape::SynReceived(..) => {
                cx.counters.failed_opens += 1;
                connection.end(crate::tcp::State::Closed, Some(crate::Error::HostUnreachable), cx);
            }
            Shape::Ended(_) => connection.reset_due = None,
            Shape::Synchronized(_) => {
                if connection.is_given_up_unreachable(now, &cx.config) {
                    connection.abort(crate::Error::HostUnreachable, cx);
                    connection.reset_due = None;
                } else {
                    connection.deadlines.set(Timer::Retransmit, now + RETRY);
                }
            }
        }
        let over = connection.is_over();
        if over {
            self.after_input(now, index);
            self.retire(index);
        } else {
            self.rearm(now, index);
        }
    }
}
