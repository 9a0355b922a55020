//! ICMP for both versions: echo, and errors about our segments (RFC 1122 §3.2.2, RFC 4443,
//! RFC 5927).
//!
//! An error is believed only if it quotes a segment that is in flight now (RFC 5927 §4.1). Then a
//! soft one is remembered, and is the reason given if the connection fails; a hard one ends an
//! attempt to open, and is soft for a synchronized connection (RFC 5927 §5.2); a packet too big
//! lowers the path's MTU.

use core::net::IpAddr;

use super::Host;
use crate::error::Error;
use crate::flow::{Seq, Tuple};
use crate::ip::Context;
use crate::ip::outgoing::Outgoing;
use crate::tcp::State;
use crate::tcp::connection::Shape;
use crate::time::Instant;
use crate::wire::ethernet::Mac;
use crate::wire::icmpv4::{self, Echo, unreachable_code as v4};
use crate::wire::icmpv6::{self, unreachable_code as v6};
use crate::wire::ip;
use crate::wire::quoted::Quoted;

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
struct Quote {
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
        self.on_complaint(now, packet, complaint, quoted);
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
            Message::Ndp(ref message) => {
                let cx = &mut Context { now, counters: &mut self.shared.counters };
                self.ip.on_ndp(cx, packet, message, from);
                return self.after_ip(now);
            }
            Message::PacketTooBig { mtu, quoted } => (Complaint::TooBig(mtu), quoted),
            Message::Unreachable { code: v6::PORT, quoted } => {
                (Complaint::Hard(Error::ConnectionRefused), quoted)
            }
            // RFC 9293 §3.9.2.2 counts codes 0 and 3 as soft, RFC 5927 §5.1 this one as hard.
            Message::Unreachable { code: v6::PROHIBITED, quoted } => {
                (Complaint::Hard(Error::HostUnreachable), quoted)
            }
            Message::Unreachable { code: v6::NO_ROUTE, quoted } => {
                (Complaint::Soft(Error::NetworkUnreachable), quoted)
            }
            Message::Unreachable { quoted, .. }
            | Message::TimeExceeded { quoted, .. }
            | Message::ParameterProblem { quoted, .. } => {
                (Complaint::Soft(Error::HostUnreachable), quoted)
            }
            Message::Mld(ref message) => {
                self.ip.on_mld(now, message);
                return self.after_ip(now);
            }
            Message::EchoReply(_) | Message::Other { .. } => return,
        };
        self.on_complaint(now, packet, complaint, quoted);
    }

    // ---- echo

    /// RFC 1122 §3.2.2.6, RFC 4443 §4.2: an echo request is answered from the address it was sent
    /// to. One to a group is dropped, as RFC 1122 allows: it serves to amplify.
    fn on_echo(&mut self, now: Instant, packet: &ip::Packet<'_>, echo: Echo<'_>) {
        if !self.ip.is_ours(packet.destination) || !self.ip.may_answer_stranger(now) {
            self.shared.counters.replies_suppressed += 1;
            return;
        }
        self.shared.counters.echo_replies += 1;
        let (v4, v6) = (icmpv4::Message::EchoReply(echo), icmpv6::Message::EchoReply(echo));
        self.reply(Outgoing::icmp((packet.destination, packet.source), &v4, &v6).into());
    }

    // ---- errors about our segments

    /// Takes in an error about the quoted packet. The error must come to the address that sent the
    /// packet; else it is ignored.
    fn on_complaint(
        &mut self,
        now: Instant,
        packet: &ip::Packet<'_>,
        complaint: Complaint,
        quoted: &[u8],
    ) {
        let quoted = match Quoted::parse(quoted) {
            Ok(quoted) => quote(&quoted).filter(|_| quoted.source == packet.destination),
            Err(reason) => return self.note_malformed(reason),
        };
        let index = quoted.and_then(|quoted| {
            let hash = self.live.hasher.hash(&quoted.tuple);
            let index = self.find_connection(hash, &quoted.tuple)?;
            // One at rest has nothing in flight.
            let connection = self.slots.get(index)?.awake()?;
            // No router complains of what it may cut (RFC 1191 §3).
            let may_be = !matches!(complaint, Complaint::TooBig(_))
                || connection.options.path_mtu_discovery
                || quoted.tuple.is_ipv6();
            (may_be && connection.is_in_flight(quoted.seq)).then_some(index)
        });
        let (Some(index), Some(quoted)) = (index, quoted) else {
            self.shared.counters.icmp_rejected += 1;
            return;
        };
        self.shared.counters.icmp_accepted += 1;
        match complaint {
            Complaint::TooBig(mtu) => {
                let (peer, bytes) = (quoted.tuple.remote_ip(), quoted.packet_bytes);
                let is_lowered = self.ip.on_packet_too_big(now, peer, mtu, bytes);
                self.shared.counters.path_mtu_lowered += u64::from(is_lowered);
            }
            Complaint::Soft(error) => self.on_error(now, index, error, false),
            Complaint::Hard(error) => self.on_error(now, index, error, true),
        }
        self.after_input(now, index);
    }

    /// The connection in slot `index` hears of an error on the way: a hard one ends an attempt to
    /// open, and any other may pass.
    fn on_error(&mut self, now: Instant, index: u32, error: Error, is_hard: bool) {
        let Some(slot) = self.slots.get_mut(index) else { return };
        let connection = slot.connection_mut();
        if is_hard && matches!(connection.shape, Shape::SynSent(_)) {
            let cx = self.shared.at(now);
            cx.counters.failed_opens += 1;
            connection.end(State::Closed, Some(error), cx);
        } else {
            connection.note_soft_error(error);
        }
    }

    /// A protocol that we do not speak (RFC 1122 §3.2.2.1; RFC 8200 §4, RFC 4443 §3.4).
    pub(super) fn on_unknown_protocol(&mut self, now: Instant, packet: &ip::Packet<'_>) {
        self.shared.counters.protocol_unknown += 1;
        let answers = self.ip.is_ours(packet.destination)
            && self.ip.is_acceptable_source(packet.source)
            && self.ip.may_answer_stranger(now);
        if !answers {
            return;
        }
        let (is_udp, quoted) = (packet.protocol == ip::protocol::UDP, packet.bytes);
        let code = if is_udp { v4::PORT } else { v4::PROTOCOL };
        let by_v4 = icmpv4::Message::Unreachable { code, next_hop_mtu: 0, quoted };
        let by_v6 = if is_udp {
            icmpv6::Message::Unreachable { code: v6::PORT, quoted }
        } else {
            // Code 1, at the Next Header field of the fixed header.
            icmpv6::Message::ParameterProblem { code: 1, pointer: 6, quoted }
        };
        self.reply(Outgoing::icmp((packet.destination, packet.source), &by_v4, &by_v6).into());
    }
}

/// The segment of ours that an ICMP error quotes.
fn quote(packet: &Quoted<'_>) -> Option<Quote> {
    let segment = packet.tcp()?;
    let tuple = Tuple::new(
        (packet.source, segment.source_port),
        (packet.destination, segment.destination_port),
    );
    Some(Quote { tuple, seq: segment.seq, packet_bytes: packet.packet_len })
}
