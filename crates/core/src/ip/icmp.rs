//! ICMP for both versions: echo, and errors about our packets (RFC 1122 §3.2.2, RFC 4443,
//! RFC 5927).
//!
//! IP reads which segment or datagram an error quotes, and why that did not arrive. TCP and UDP
//! decide whether to believe the error, since they know what they have sent.

use alloc::vec::Vec;
use core::net::IpAddr;

use super::{Context, Ip};
use crate::error::Error;
use crate::flow::{Seq, Tuple};
use crate::ip::outgoing::Outgoing;
use crate::time::Instant;
use crate::wire::ethernet::Mac;
use crate::wire::icmpv4::{self, Echo, unreachable_code as v4};
use crate::wire::icmpv6::{self, unreachable_code as v6};
use crate::wire::ip::problem::{Flaw, Problem};
use crate::wire::quoted::Quoted;
use crate::wire::tcp::{Flags, Header};
use crate::wire::{Malformed, ip};

/// What an ICMP error quotes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QuotedPart {
    /// A segment with this SEG.SEQ.
    Segment(Seq),
    Datagram,
}

/// An ICMP error about a packet that is ours if the quotation is true.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IcmpError {
    /// The ends of the quoted segment or datagram, ours first.
    pub tuple: Tuple,
    pub part: QuotedPart,
    /// Bytes of its packet, as the header says.
    pub packet_bytes: u32,
    pub cause: Cause,
}

/// Why the packet did not arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// It may pass: network or host unreachable, time exceeded.
    Soft(Error),
    /// It will not: protocol or port unreachable.
    Hard(Error),
    /// The packet was too big; the next hop takes this many bytes (0: it did not say).
    TooBig(u32),
}

/// Why a SYN that we refuse does not reach its destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unreachable {
    Network,
    Host,
    Prohibited,
}

impl Unreachable {
    /// The codes of both versions.
    fn codes(self) -> (u8, u8) {
        match self {
            Unreachable::Network => (v4::NETWORK, v6::NO_ROUTE),
            Unreachable::Host => (v4::HOST, v6::ADDRESS),
            Unreachable::Prohibited => (v4::PROHIBITED, v6::PROHIBITED),
        }
    }
}

impl Ip {
    /// An ICMP message has arrived. Returns an error that quotes a segment or datagram, if the
    /// receiver of the message has sent that.
    pub(super) fn on_icmp(
        &mut self,
        cx: &mut Context<'_>,
        packet: &ip::Packet<'_>,
        from: Option<Mac>,
    ) -> Result<Option<IcmpError>, Malformed> {
        let reported = match packet.source {
            IpAddr::V4(_) => {
                let message = icmpv4::Message::parse(packet.payload)?;
                self.on_icmpv4(cx, packet, &message)
            }
            IpAddr::V6(_) => {
                let message = icmpv6::Message::parse(packet)?;
                self.on_icmpv6(cx, packet, &message, from)
            }
        };
        let Some((cause, quoted)) = reported else { return Ok(None) };
        let error = error_of(cause, packet.destination, &Quoted::parse(quoted)?);
        cx.counters.icmp_rejected += u64::from(error.is_none());
        Ok(error)
    }

    /// Handles a message that is no error; returns the cause and the quotation of an error.
    fn on_icmpv4<'a>(
        &mut self,
        cx: &mut Context<'_>,
        packet: &ip::Packet<'_>,
        message: &icmpv4::Message<'a>,
    ) -> Option<(Cause, &'a [u8])> {
        use icmpv4::Message;
        Some(match *message {
            Message::EchoRequest(echo) => {
                self.on_echo(cx, packet, echo);
                return None;
            }
            Message::Unreachable { code: v4::FRAGMENTATION_NEEDED, next_hop_mtu, quoted } => {
                (Cause::TooBig(next_hop_mtu.into()), quoted)
            }
            Message::Unreachable { code: v4::PROTOCOL | v4::PORT, quoted, .. } => {
                (Cause::Hard(Error::ConnectionRefused), quoted)
            }
            Message::Unreachable { code: v4::NETWORK, quoted, .. } => {
                (Cause::Soft(Error::NetworkUnreachable), quoted)
            }
            Message::Unreachable { quoted, .. }
            | Message::TimeExceeded { quoted, .. }
            | Message::ParameterProblem { quoted, .. } => {
                (Cause::Soft(Error::HostUnreachable), quoted)
            }
            Message::EchoReply(_) | Message::Other { .. } => return None,
        })
    }

    /// Does the same for RFC 4443, where neighbour discovery and listener queries are ICMP, too.
    fn on_icmpv6<'a>(
        &mut self,
        cx: &mut Context<'_>,
        packet: &ip::Packet<'_>,
        message: &icmpv6::Message<'a>,
        from: Option<Mac>,
    ) -> Option<(Cause, &'a [u8])> {
        use icmpv6::Message;
        match *message {
            Message::EchoRequest(echo) => self.on_echo(cx, packet, echo),
            Message::Ndp(ref message) => self.on_ndp(cx, packet, message, from),
            Message::Mld(ref message) => self.on_mld(cx.now, message),
            Message::EchoReply(_) | Message::Other { .. } => {}
            Message::PacketTooBig { mtu, quoted } => return Some((Cause::TooBig(mtu), quoted)),
            Message::Unreachable { code, quoted } => return Some((unreachable(code), quoted)),
            Message::TimeExceeded { quoted, .. } | Message::ParameterProblem { quoted, .. } => {
                return Some((Cause::Soft(Error::HostUnreachable), quoted));
            }
        }
        None
    }

    /// TCP or UDP believes that the quoted packet was too big, and that the next hop takes `mtu`
    /// bytes. Returns whether the path's MTU is lower now.
    pub(crate) fn on_too_big(&mut self, now: Instant, error: &IcmpError, mtu: u32) -> bool {
        let (peer, bytes) = (error.tuple.remote_ip(), error.packet_bytes);
        self.path_mtus.on_too_big(now, peer, mtu, bytes).is_some()
    }

    /// Segments with so much payload to that destination vanish, for a long time if `again`.
    /// Returns whether the path's MTU is lower now.
    pub(crate) fn on_black_hole(
        &mut self,
        now: Instant,
        to: IpAddr,
        payload: u16,
        again: bool,
    ) -> bool {
        let headers = ip::header_len(to) + 20;
        self.path_mtus.on_black_hole(now, to, payload.saturating_add(headers as u16), again)
    }

    /// A probe of the path to that destination has arrived, or not.
    pub(crate) fn on_probed(&mut self, now: Instant, to: IpAddr, size: u16, arrived: bool) {
        self.path_mtus.on_probed(now, to, size, arrived);
    }

    // ---- echo

    /// RFC 1122 §3.2.2.6, RFC 4443 §4.2: an echo request is answered from the address it was sent
    /// to. One to a group is dropped, as RFC 1122 allows: it serves to amplify. So is one to
    /// another host's address that we take: whether that host is there, only that host can say.
    fn on_echo(&mut self, cx: &mut Context<'_>, packet: &ip::Packet<'_>, echo: Echo<'_>) {
        if !self.is_ours(packet.destination) || !self.may_answer_stranger(cx.now) {
            cx.counters.replies_suppressed += 1;
            return;
        }
        cx.counters.echo_replies += 1;
        let (v4, v6) = (icmpv4::Message::EchoReply(echo), icmpv6::Message::EchoReply(echo));
        self.send(Outgoing::icmp(packet.destination, packet.source, &v4, &v6));
    }

    /// A protocol that we do not speak (RFC 1122 §3.2.2.1; RFC 8200 §4, RFC 4443 §3.4).
    pub(super) fn on_unknown_protocol(&mut self, cx: &mut Context<'_>, packet: &ip::Packet<'_>) {
        cx.counters.protocol_unknown += 1;
        if !self.takes(packet.destination) || !self.is_acceptable_source(packet.source) {
            return;
        }
        if !self.may_answer_stranger(cx.now) {
            cx.counters.replies_suppressed += 1;
            return;
        }
        cx.counters.header_problems += 1;
        let (code, quoted) = (v4::PROTOCOL, packet.bytes);
        let by_v4 = icmpv4::Message::Unreachable { code, next_hop_mtu: 0, quoted };
        let pointer = ip::next_header_at(packet.bytes) as u32;
        let by_v6 = icmpv6::Message::ParameterProblem { code: 1, pointer, quoted };
        self.send(Outgoing::icmp(packet.destination, packet.source, &by_v4, &by_v6));
    }

    /// The packet that `bytes` begin with makes no sense: if that is because of an option or an
    /// extension header, its sender hears of it (RFC 1122 §3.2.2.5, RFC 4443 §3.4). A packet to a
    /// group is answered only where its option asks for that, from an address of ours.
    pub(super) fn on_malformed(&mut self, cx: &mut Context<'_>, bytes: &[u8]) {
        let Some(problem) = ip::problem(bytes) else { return };
        let Problem { source, destination, flaw, of_groups, packet: quoted } = problem;
        let from = if self.takes(destination) {
            Some(destination)
        } else {
            let is_heard = of_groups && destination.is_multicast() && self.is_for_us(destination);
            self.steady_source_for(source).filter(|_| is_heard)
        };
        let Some(from) = from.filter(|_| self.is_acceptable_source(source)) else { return };
        if !self.may_answer_stranger(cx.now) {
            cx.counters.replies_suppressed += 1;
            return;
        }
        cx.counters.header_problems += 1;
        let (by_v4, by_v6) = match flaw {
            Flaw::Field { code, pointer } => (
                icmpv4::Message::ParameterProblem { pointer: pointer as u8, quoted },
                icmpv6::Message::ParameterProblem { code, pointer: pointer.into(), quoted },
            ),
            Flaw::SourceRoute => {
                let code = v4::SOURCE_ROUTE_FAILED;
                let by_v4 = icmpv4::Message::Unreachable { code, next_hop_mtu: 0, quoted };
                (by_v4, icmpv6::Message::Unreachable { code: v6::NO_ROUTE, quoted })
            }
        };
        self.send(Outgoing::icmp(from, source, &by_v4, &by_v6));
    }

    /// A SYN between `ends`, ours first, is refused, whose SEG.SEQ was `seq`. The packet is gone,
    /// and so the error quotes one that is like it: its addresses, ports and number are what the
    /// receiver looks at.
    pub(crate) fn on_refused(&mut self, ends: &Tuple, seq: Seq, why: Unreachable) {
        let (ours, theirs) = (ends.local_ip(), ends.remote_ip());
        let syn = Header::new(ends.ports().rotate_left(16), seq, Seq(0), Flags::SYN);
        let mut bytes = Vec::new();
        syn.emit(&mut bytes);
        let quoted = packet_from_peer(ends, ip::protocol::TCP, &bytes);
        let (v4_code, v6_code) = why.codes();
        let quoted = &quoted[..];
        let by_v4 = icmpv4::Message::Unreachable { code: v4_code, next_hop_mtu: 0, quoted };
        let by_v6 = icmpv6::Message::Unreachable { code: v6_code, quoted };
        // A router would say so: from an address of our own, if we have one.
        let from = self.steady_source_for(theirs).unwrap_or(ours);
        self.send(Outgoing::icmp(from, theirs, &by_v4, &by_v6));
    }

    /// The peer of `ends`, ours first, sends datagrams to a port that nobody has after all. The
    /// error quotes one that is like them.
    pub(crate) fn on_refused_flow(&mut self, cx: &mut Context<'_>, ends: &Tuple) {
        let mut datagram = [0; 8];
        datagram[..4].copy_from_slice(&ends.ports().rotate_left(16).to_be_bytes());
        datagram[5] = 8;
        let quoted = packet_from_peer(ends, ip::protocol::UDP, &datagram);
        self.on_unheard_port(cx, (ends.remote_ip(), ends.local_ip()), &quoted);
    }

    /// The packet that begins with `quoted` has brought a datagram to a port without a socket
    /// (RFC 1122 §4.1.3.1, RFC 4443 §3.1). One to a group or a broadcast is not answered (RFC 1122
    /// §3.2.2).
    pub(crate) fn on_unheard_port(
        &mut self,
        cx: &mut Context<'_>,
        (source, destination): (IpAddr, IpAddr),
        quoted: &[u8],
    ) {
        if !self.takes(destination) {
            return;
        }
        if !self.may_answer_stranger(cx.now) {
            cx.counters.replies_suppressed += 1;
            return;
        }
        cx.counters.ports_unreachable += 1;
        let by_v4 = icmpv4::Message::Unreachable { code: v4::PORT, next_hop_mtu: 0, quoted };
        let by_v6 = icmpv6::Message::Unreachable { code: v6::PORT, quoted };
        self.send(Outgoing::icmp(destination, source, &by_v4, &by_v6));
    }
}

/// A packet from the peer of `ends`, ours first, with this payload.
fn packet_from_peer(ends: &Tuple, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let mut packet = Vec::new();
    let (ours, theirs) = (ends.local_ip(), ends.remote_ip());
    if let Some(header) = ip::Header::new(theirs, ours, protocol, payload.len()) {
        header.emit(&mut packet);
    }
    packet.extend_from_slice(payload);
    packet
}

/// The cause in an ICMPv6 "destination unreachable" of this code.
fn unreachable(code: u8) -> Cause {
    match code {
        v6::PORT => Cause::Hard(Error::ConnectionRefused),
        // RFC 9293 §3.9.2.2 counts codes 0 and 3 as soft, RFC 5927 §5.1 this one as hard.
        v6::PROHIBITED => Cause::Hard(Error::HostUnreachable),
        v6::NO_ROUTE => Cause::Soft(Error::NetworkUnreachable),
        _ => Cause::Soft(Error::HostUnreachable),
    }
}

/// The error that came to `receiver`, if `receiver` has sent the quoted packet.
fn error_of(cause: Cause, receiver: IpAddr, quoted: &Quoted<'_>) -> Option<IcmpError> {
    if quoted.source != receiver {
        return None;
    }
    let (ours, theirs, part) = match quoted.tcp() {
        Some(it) => (it.source_port, it.destination_port, QuotedPart::Segment(it.seq)),
        None => quoted.udp().map(|(ours, theirs)| (ours, theirs, QuotedPart::Datagram))?,
    };
    let tuple = Tuple::new((quoted.source, ours), (quoted.destination, theirs));
    Some(IcmpError { tuple, part, packet_bytes: quoted.packet_len, cause })
}
