//! Messages of neighbours and routers: ARP, neighbour discovery, listener discovery.

use std::net::{IpAddr, Ipv6Addr};

use lightwait_core::frame::Medium;
use lightwait_core::wire::arp::{self, Operation};
use lightwait_core::wire::ethernet::{self, BROADCAST, Mac, ethertype};
use lightwait_core::wire::icmpv6::Message;
use lightwait_core::wire::ip::protocol;
use lightwait_core::wire::ndp::{self, Prefix, RouterAdvertisement};

use super::World;
use super::setup::{self, IPV4, IPV6};
use crate::seal::packet as sealed_packet;
use crate::source::Source;

const MACS: [Mac; 5] =
    [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2], [2, 0, 0, 0, 0, 9], BROADCAST, [0; 6]];

impl World {
    pub(super) fn forge_link_message(&mut self, to: usize, source: &mut Source<'_>) {
        let kind = source.below(8);
        if kind < 3 {
            return self.forge_arp(to, source);
        }
        let link_layer = Some(source.pick(&MACS)).filter(|_| source.flag());
        let target = source.pick(&IPV6);
        let flags = source.u8();
        let message = match kind {
            3 => ndp::Message::NeighbourSolicit { target, link_layer, nonce: None },
            4 | 5 => ndp::Message::NeighbourAdvertisement {
                target,
                link_layer,
                router: flags & 1 != 0,
                solicited: flags & 2 == 0,
                overrides: flags & 4 == 0,
            },
            6 => ndp::Message::RouterAdvertisement(advertisement(link_layer, source)),
            _ if flags & 1 == 0 => ndp::Message::RouterSolicit { link_layer },
            _ => return self.forge_query(to, source),
        };
        let from = source.pick(&IPV6);
        let destination =
            [IPV6[to], IPV6[to + 2], ndp::ALL_NODES, ndp::solicited_node(target)][source.below(4)];
        let mut payload = Vec::new();
        Message::Ndp(message).emit(from, destination, &mut payload);
        let hop_limit = if source.u8() > 250 { 64 } else { 255 };
        self.inject_icmpv6(to, (from, destination), hop_limit, &payload, source);
    }

    fn inject_icmpv6(
        &mut self,
        to: usize,
        (from, destination): (Ipv6Addr, Ipv6Addr),
        hop_limit: u8,
        payload: &[u8],
        source: &mut Source<'_>,
    ) {
        let (from, destination) = (IpAddr::V6(from), IpAddr::V6(destination));
        let packet = sealed_packet(from, destination, protocol::ICMPV6, hop_limit, payload);
        if let Some(packet) = packet {
            let frame = self.frame(to, packet);
            self.inject(to, frame, source);
        }
    }

    /// A listener query (RFC 3810 §5.1).
    fn forge_query(&mut self, to: usize, source: &mut Source<'_>) {
        let mut payload = vec![130, 0, 0, 0];
        payload.extend_from_slice(&source.u16().to_be_bytes());
        payload.extend_from_slice(&[0, 0]);
        payload.extend_from_slice(&source.pick(&IPV6).octets());
        payload.resize(source.pick(&[28, 24, 26]), 0);
        self.inject_icmpv6(to, (IPV6[4], ndp::ALL_NODES), 1, &payload, source);
    }

    fn forge_arp(&mut self, to: usize, source: &mut Source<'_>) {
        if self.medium == Medium::Ip {
            return;
        }
        let operation = if source.flag() { Operation::Request } else { Operation::Reply };
        let sender_mac = source.pick(&MACS);
        let packet = arp::Packet {
            operation,
            sender_mac,
            sender: source.pick(&IPV4),
            target_mac: setup::mac(to),
            target: if source.u8() > 200 { source.pick(&IPV4) } else { IPV4[to] },
        };
        let mut frame = Vec::new();
        let destination = if source.flag() { BROADCAST } else { setup::mac(to) };
        let ethertype = ethertype::ARP;
        ethernet::Header { destination, source: sender_mac, ethertype }.emit(&mut frame);
        packet.emit(&mut frame);
        self.inject(to, frame, source);
    }
}

fn advertisement(link_layer: Option<Mac>, source: &mut Source<'_>) -> RouterAdvertisement {
    let mut advertisement = RouterAdvertisement {
        hop_limit: source.pick(&[0, 64, 1]),
        router_lifetime_s: source.pick(&[1800, 0, 1, 65_535]),
        link_layer,
        mtu: [None, Some(1280), Some(1400), Some(10)][source.below(4)],
        ..RouterAdvertisement::default()
    };
    for n in 0..source.below(4) {
        let bits = source.u8();
        advertisement.prefixes.push(Prefix {
            prefix: Ipv6Addr::new(0xfd01, u16::from(bits & 3), 0, n as u16, 0, 0, 0, 0),
            prefix_len: source.pick(&[64, 0, 128, 48]),
            on_link: bits & 4 == 0,
            autonomous: bits & 8 == 0,
            valid_s: source.pick(&[7200, 0, 1, u32::MAX]),
            preferred_s: source.pick(&[3600, 0, u32::MAX]),
        });
    }
    advertisement
}
