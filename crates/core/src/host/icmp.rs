//! ICMP for both versions: echo, errors about our segments, neighbours (RFC 1122 §3.2.2, RFC 4443,
//! RFC 5927).
//!
//! An error is believed only if it quotes a segment that is in flight now (RFC 5927 §4.1). Then a
//! soft one is remembered, and is the reason given if the connection fails; a hard one ends an
//! attempt to open, and is soft for a synchronized connection (RFC 5927 §5.2); a packet too big
//! lowers the path's MTU.

use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::Host;
use super::neighbour::Advertisement;
use super::output::Reply;
use crate::error::Error;
use crate::tcp::connection::Shape;
use crate::tcp::{Seq, State, Tuple};
use crate::time::Instant;
use crate::wire::ethernet::Mac;
use crate::wire::icmpv4::{self, Echo, unreachable_code as v4};
use crate::wire::icmpv6::{self, unreachable_code as v6};
use crate::wire::{ip, ndp};

/// What an ICMP error says about a segment of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Complaint {
    /// It may pass: network or host unreachable, time exceeded.
    Soft(Error),
    /// It will not: protocol or port unreachable.
    Hard(Error),
    /// The packet was too big; the next hop takes this many bytes (0: it did not say).
    TooBig(u32),
}

/// The segment that an ICMP error quotes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Quoted {
    tuple: Tuple,
    seq: Seq,
    /// Bytes of the packet, as its header says.
    packet_bytes: u32,
}

impl Host {
    pub(super) fn on_icmp(&mut self, now: Instant, packet: &ip::Packet<'_>, from: Option<Mac>) {
        match packet.source {
            IpAddr::V4(_) => match icmpv4::Message::parse(packet.payload) {
                Ok(message) => self.on_icmpv4(now, packet, &message),
                Err(reason) => self.note_malformed(reason),
            },
            IpAddr::V6(_) => match icmpv6::Message::parse(packet) {
                Ok(message) => self.on_icmpv6(now, packet, &message, from),
                Err(reason) => self.note_malformed(reason),
            },
        }
    }

    fn on_icmpv4(&mut self, now: Instant, packet: &ip::Packet<'_>, message: &icmpv4::Message<'_>) {
        use icmpv4::Message;
        let (complaint, quoted) = match *message {
            Message::EchoRequest(echo) => return self.on_echo(now, packet, echo),
            Message::Unreachable { code: v4::FRAGMENTATION_NEEDED, next_hop_mtu, quoted } => {
                (Complaint::TooBig(next_hop_mtu.into()), quoted)
            }
            Message::Unreachable { code: v4::PROTOCOL | v4::PORT, quoted, .. } => {
                (Complaint::Hard(Error::ConnectionRefused), quoted)
            }
            Message::Unreachable { code: v4::NETWORK, quoted, .. } => {
                (Complaint::Soft(Error::NetworkUnreachable), quoted)
            }
            Message::Unreachable { quoted, .. } | Message::TimeExceeded { quoted, .. } => {
                (Complaint::Soft(Error::HostUnreachable), quoted)
            }
            Message::ParameterProblem { quoted, .. } => {
                (Complaint::Soft(Error::HostUnreachable), quoted)
            }
            Message::EchoReply(_) | Message::Other { .. } => return,
        };
        self.on_complaint(now, complaint, quote_v4(quoted));
    }

    fn on_icmpv6(
        &mut self,
        now: Instant,
        packet: &ip::Packet<'_>,
        message: &icmpv6::Message<'_>,
        from: Option<Mac>,
    ) {
        use icmpv6::Message;
        let (complaint, quoted) = match *message {
            Message::EchoRequest(echo) => return self.on_echo(now, packet, echo),
            Message::Ndp(ref message) => return self.on_ndp(now, packet, message, from),
            Message::PacketTooBig { mtu, quoted } => (Complaint::TooBig(mtu), quoted),
            Message::Unreachable { code: v6::PORT, quoted } => {
                (Complaint::Hard(Error::ConnectionRefused), quoted)
            }
            Message::Unreachable { code: v6::NO_ROUTE, quoted } => {
                (Complaint::Soft(Error::NetworkUnreachable), quoted)
            }
            Message::Unreachable { quoted, .. }
            | Message::TimeExceeded { quoted, .. }
            | Message::ParameterProblem { quoted, .. } => {
                (Complaint::Soft(Error::HostUnreachable), quoted)
            }
            Message::EchoReply(_) | Message::Mld(_) | Message::Other { .. } => return,
        };
        self.on_complaint(now, complaint, quote_v6(quoted));
    }

    // ---- echo

    /// RFC 1122 §3.2.2.6, RFC 4443 §4.2: an echo request is answered from the address it was sent
    /// to. One to a group is dropped, as RFC 1122 allows: it serves to amplify.
    fn on_echo(&mut self, now: Instant, packet: &ip::Packet<'_>, echo: Echo<'_>) {
        if !self.is_ours(packet.destination) || !self.may_answer_stranger(now) {
            self.shared.counters.replies_suppressed += 1;
            return;
        }
        self.shared.counters.echo_replies += 1;
        let mut payload = Vec::new();
        let protocol = match (packet.destination, packet.source) {
            (IpAddr::V6(ours), IpAddr::V6(theirs)) => {
                icmpv6::Message::EchoReply(echo).emit(ours, theirs, &mut payload);
                ip::protocol::ICMPV6
            }
            _ => {
                icmpv4::Message::EchoReply(echo).emit(&mut payload);
                ip::protocol::ICMPV4
            }
        };
        let hop_limit = ip::DEFAULT_HOP_LIMIT;
        let (source, destination) = (packet.destination, packet.source);
        self.reply(Reply::packet(source, destination, protocol, hop_limit, payload));
    }

    // ---- errors about our segments

    fn on_complaint(&mut self, now: Instant, complaint: Complaint, quoted: Option<Quoted>) {
        let index = quoted.and_then(|quoted| {
            let hash = self.hasher.hash(&quoted.tuple);
            let index = self.find_connection(hash, &quoted.tuple)?;
            let connection = &self.slots.get(index)?.connection;
            connection.is_in_flight(quoted.seq).then_some(index)
        });
        let (Some(index), Some(quoted)) = (index, quoted) else {
            self.shared.counters.icmp_rejected += 1;
            return;
        };
        self.shared.counters.icmp_accepted += 1;
        match complaint {
            Complaint::TooBig(mtu) => self.on_too_big(now, &quoted, mtu),
            Complaint::Soft(error) => self.note_soft_error(index, error),
            Complaint::Hard(error) => self.on_hard_error(now, index, error),
        }
        self.settle(now, index);
    }

    fn on_too_big(&mut self, now: Instant, quoted: &Quoted, mtu: u32) {
        if self.lower_path_mtu(now, quoted.tuple.remote, mtu, quoted.packet_bytes) {
            self.shared.counters.path_mtu_lowered += 1;
        }
    }

    fn note_soft_error(&mut self, index: u32, error: Error) {
        if let Some(slot) = self.slots.get_mut(index) {
            slot.connection.soft_error = Some(error);
        }
    }

    fn on_hard_error(&mut self, now: Instant, index: u32, error: Error) {
        let Some(slot) = self.slots.get_mut(index) else { return };
        if matches!(slot.connection.shape, Shape::SynSent(_)) {
            let mut cx = self.shared.context(now);
            cx.counters.failed_opens += 1;
            slot.connection.end(State::Closed, Some(error), &mut cx);
        } else {
            slot.connection.soft_error = Some(error);
        }
    }

    /// A protocol that we do not speak (RFC 1122 §3.2.2.1; RFC 8200 §4, RFC 4443 §3.4).
    pub(super) fn on_unknown_protocol(&mut self, now: Instant, packet: &ip::Packet<'_>) {
        self.shared.counters.protocol_unknown += 1;
        let answers = self.is_ours(packet.destination)
            && self.routes.is_acceptable_source(packet.source)
            && self.may_answer_stranger(now);
        if !answers {
            return;
        }
        let is_udp = packet.protocol == ip::protocol::UDP;
        let (mut payload, quoted) = (Vec::new(), packet.bytes);
        let protocol = match (packet.destination, packet.source) {
            (IpAddr::V6(ours), IpAddr::V6(theirs)) => {
                let message = if is_udp {
                    icmpv6::Message::Unreachable { code: v6::PORT, quoted }
                } else {
                    // Code 1, at the Next Header field of the fixed header.
                    icmpv6::Message::ParameterProblem { code: 1, pointer: 6, quoted }
                };
                message.emit(ours, theirs, &mut payload);
                ip::protocol::ICMPV6
            }
            _ => {
                let code = if is_udp { v4::PORT } else { v4::PROTOCOL };
                let message = icmpv4::Message::Unreachable { code, next_hop_mtu: 0, quoted };
                message.emit(&mut payload);
                ip::protocol::ICMPV4
            }
        };
        let hop_limit = ip::DEFAULT_HOP_LIMIT;
        let (source, destination) = (packet.destination, packet.source);
        self.reply(Reply::packet(source, destination, protocol, hop_limit, payload));
    }

    // ---- neighbours

    fn on_ndp(
        &mut self,
        now: Instant,
        packet: &ip::Packet<'_>,
        message: &ndp::Message,
        from: Option<Mac>,
    ) {
        if from.is_none() {
            // A medium without hardware addresses has no neighbours to discover.
            return;
        }
        match *message {
            ndp::Message::NeighbourSolicit { target, link_layer, .. } => {
                self.on_solicit(now, packet.source, target, link_layer);
            }
            ndp::Message::NeighbourAdvertisement {
                target,
                link_layer,
                solicited,
                overrides,
                ..
            } => {
                let target = IpAddr::V6(target);
                self.neighbours.on_advertisement(
                    now,
                    Advertisement { target, mac: link_layer, solicited, overrides },
                );
            }
            ndp::Message::RouterAdvertisement(_) | ndp::Message::RouterSolicit { .. } => {}
        }
    }

    /// RFC 4861 §7.2.3–7.2.4.
    fn on_solicit(
        &mut self,
        now: Instant,
        source: IpAddr,
        target: Ipv6Addr,
        link_layer: Option<Mac>,
    ) {
        if !self.is_ours(IpAddr::V6(target)) {
            return;
        }
        let IpAddr::V6(asker) = source else { return };
        // An unspecified source asks whether the address is taken: everybody is told (§7.2.4).
        let solicited = !asker.is_unspecified();
        if let Some(mac) = link_layer.filter(|_| solicited) {
            self.neighbours.on_heard(now, source, mac);
        }
        let destination = if solicited { asker } else { ndp::ALL_NODES };
        let message = icmpv6::Message::Ndp(ndp::Message::NeighbourAdvertisement {
            target,
            link_layer: Some(self.config.hardware),
            router: false,
            solicited,
            overrides: true,
        });
        let mut payload = Vec::new();
        message.emit(target, destination, &mut payload);
        self.reply(Reply::packet(
            IpAddr::V6(target),
            IpAddr::V6(destination),
            ip::protocol::ICMPV6,
            ndp::HOP_LIMIT,
            payload,
        ));
    }
}

/// The TCP segment that an ICMPv4 error quotes: at least the IP header and eight bytes.
fn quote_v4(quoted: &[u8]) -> Option<Quoted> {
    let header_len = usize::from(quoted.first()? & 0x0f) * 4;
    if quoted.first()? >> 4 != 4 || header_len < 20 || *quoted.get(9)? != ip::protocol::TCP {
        return None;
    }
    let address = |at: usize| -> Option<IpAddr> {
        Some(IpAddr::V4(Ipv4Addr::from(*quoted.get(at..)?.first_chunk::<4>()?)))
    };
    let packet_bytes = u16::from_be_bytes(*quoted.get(2..)?.first_chunk()?);
    quote(quoted.get(header_len..)?, address(12)?, address(16)?, packet_bytes.into())
}

/// The TCP segment that an ICMPv6 error quotes, right behind the fixed header as we send it.
fn quote_v6(quoted: &[u8]) -> Option<Quoted> {
    if quoted.first()? >> 4 != 6 || *quoted.get(6)? != ip::protocol::TCP {
        return None;
    }
    let address = |at: usize| -> Option<IpAddr> {
        Some(IpAddr::V6(Ipv6Addr::from(*quoted.get(at..)?.first_chunk::<16>()?)))
    };
    let payload_bytes = u16::from_be_bytes(*quoted.get(4..)?.first_chunk()?);
    quote(quoted.get(40..)?, address(8)?, address(24)?, u32::from(payload_bytes) + 40)
}

fn quote(segment: &[u8], local: IpAddr, remote: IpAddr, packet_bytes: u32) -> Option<Quoted> {
    let [a, b, c, d, e, f, g, h] = *segment.first_chunk::<8>()?;
    let tuple = Tuple {
        local,
        local_port: u16::from_be_bytes([a, b]),
        remote,
        remote_port: u16::from_be_bytes([c, d]),
    };
    Some(Quoted { tuple, seq: Seq(u32::from_be_bytes([e, f, g, h])), packet_bytes })
}
