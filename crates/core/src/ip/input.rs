//! Takes in packets: puts fragments together, answers ICMP and unknown protocols, and leaves those
//! of TCP and UDP to them.

use alloc::vec::Vec;
use core::net::IpAddr;

use super::{Context, Ip};
use crate::frame::RxFrame;
use crate::ip::icmp::IcmpError;
use crate::ip::outgoing::Outgoing;
use crate::ip::reassembly::{Outcome, Reason};
use crate::wire::ethernet::Mac;
use crate::wire::ip::{Packet, protocol};
use crate::wire::ipv6::next_header;
use crate::wire::{Malformed, icmpv4, icmpv6, ndp};

/// ICMP code "fragment reassembly time exceeded", in both versions.
const REASSEMBLY_TIME_EXCEEDED: u8 = 1;

/// Where a packet came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The link; a neighbour with this hardware address, if the medium has them.
    Link(Option<Mac>),
    /// Ourselves.
    Ourselves,
}

impl Ip {
    /// A packet has arrived in `frame`, without a link header. Returns it if it is whole and TCP or
    /// UDP is to have it. TCP judges the addresses, once for a connection; a datagram comes from a
    /// single other host or ourselves, and is for an address of ours, for a group that we listen
    /// to, or a broadcast. Else [`Ip::reassembled`] may have a packet, and [`Ip::icmp_error`] an
    /// error about one of ours.
    pub(crate) fn on_packet<'a>(
        &mut self,
        cx: &mut Context<'_>,
        frame: &RxFrame<'a>,
        origin: Origin,
    ) -> Result<Option<Packet<'a>>, Malformed> {
        let packet = match Packet::parse(frame.bytes) {
            Ok(packet) => packet,
            Err(reason) => {
                self.on_malformed(cx, frame.bytes);
                return Err(reason);
            }
        };
        if packet.protocol == protocol::TCP && packet.fragment.is_none() {
            return Ok(Some(packet));
        }
        if packet.protocol == protocol::UDP && packet.fragment.is_none() {
            // Each shard takes its own.
            if self.is_datagram_for_us(&packet, origin) {
                return Ok(Some(packet));
            }
            cx.counters.not_ours += 1;
            return Ok(None);
        }
        if self.shards.is_replica() {
            self.hand_to_first(cx, packet.bytes, frame, origin);
        } else if !self.is_for_us(packet.destination) {
            cx.counters.not_ours += 1;
        } else if packet.fragment.is_some() {
            self.on_fragment(cx, &packet);
        } else {
            self.take_packet(cx, &packet, origin)?;
        }
        Ok(None)
    }

    /// Takes in a packet that is for IP itself.
    fn take_packet(
        &mut self,
        cx: &mut Context<'_>,
        packet: &Packet<'_>,
        origin: Origin,
    ) -> Result<(), Malformed> {
        // IPv6 asks for neighbours from the unspecified address, and a host that has an address of
        // ours discovers neighbours from it.
        let sound = self.is_sound_source(packet.source, origin);
        let asking = packet.protocol == protocol::ICMPV6
            && (packet.source.is_unspecified()
                || self.is_ours(packet.source) && ndp::is_message(packet.payload))
            // A switch that asks has no address.
            || packet.protocol == protocol::IGMP && packet.source.is_unspecified();
        if !sound && !asking {
            cx.counters.not_ours += 1;
            return Ok(());
        }
        let from = match origin {
            Origin::Link(mac) => mac,
            Origin::Ourselves => None,
        };
        match (packet.protocol, packet.source) {
            (protocol::ICMPV4, IpAddr::V4(_)) | (protocol::ICMPV6, IpAddr::V6(_)) => {
                self.icmp_error = self.on_icmp(cx, packet, from)?;
            }
            (protocol::IGMP, IpAddr::V4(_)) => self.on_igmp(cx.now, packet)?,
            // It says that nothing follows (RFC 8200 §4.7).
            (next_header::NONE, IpAddr::V6(_)) => cx.counters.protocol_unknown += 1,
            _ => self.on_unknown_protocol(cx, packet),
        }
        Ok(())
    }

    /// True if a datagram has a sound source and is for us. The addresses of the last one are
    /// remembered, as long as ours do not change: mostly the next has the same.
    fn is_datagram_for_us(&mut self, packet: &Packet<'_>, origin: Origin) -> bool {
        let addresses = (packet.source, packet.destination);
        let is_from_link = origin != Origin::Ourselves;
        let changes = self.routes.changes();
        if is_from_link && self.last_heard == Some((addresses, changes)) {
            return true;
        }
        let is_for_us =
            self.is_sound_source(packet.source, origin) && self.is_for_us(packet.destination);
        // Which groups we listen to changes without our routes.
        if is_for_us && is_from_link && self.takes(packet.destination) {
            self.last_heard = Some((addresses, changes));
        }
        is_for_us
    }

    /// RFC 1122 §3.2.1.3, §4.1.3.6 and §4.2.3.10: an unspecified address, a group's, or our own
    /// address from outside is no source.
    fn is_sound_source(&self, source: IpAddr, origin: Origin) -> bool {
        origin == Origin::Ourselves || self.is_acceptable_source(source)
    }

    /// The ICMP error that the last packet reported about a packet of ours, once.
    pub(crate) fn icmp_error(&mut self) -> Option<IcmpError> {
        self.icmp_error.take()
    }

    pub(crate) fn note_malformed(&mut self, reason: Malformed) {
        self.malformed[reason.index()] += 1;
    }

    /// Frames dropped because they made no sense, with the reason of each.
    pub(crate) fn malformed(&self) -> impl Iterator<Item = (Malformed, u64)> {
        Malformed::ALL.iter().map(|reason| (*reason, self.malformed[reason.index()]))
    }

    // ---- fragments

    fn on_fragment(&mut self, cx: &mut Context<'_>, packet: &Packet<'_>) {
        let outcome = self.reassembly.on_fragment(cx.now, packet);
        cx.counters.reassembly_failed += self.reassembly.take_evicted();
        match outcome {
            Outcome::Pending | Outcome::Dropped(Reason::Copy) => {}
            Outcome::Dropped(_) => cx.counters.reassembly_failed += 1,
            Outcome::Complete(bytes) => {
                cx.counters.reassembled += 1;
                if Packet::parse(&bytes).is_ok_and(|whole| whole.fragment.is_some()) {
                    // A packet that is a fragment once more is malice.
                    cx.counters.reassembly_failed += 1;
                } else {
                    self.reassembled = Some(bytes);
                }
            }
        }
    }

    /// The packet that the last fragment has completed, once; it is to be taken in like any other.
    pub(crate) fn reassembled(&mut self) -> Option<Vec<u8>> {
        self.reassembled.take()
    }

    /// Gives up packets whose fragments did not all arrive, and tells their senders (RFC 1122
    /// §3.3.2, RFC 8200 §4.5).
    pub(super) fn on_reassembly_time(&mut self, cx: &mut Context<'_>) {
        self.reassembly.on_time(cx.now);
        while let Some(expired) = self.reassembly.expired() {
            cx.counters.reassembly_failed += 1;
            if !self.takes(expired.destination) || !self.may_answer_stranger(cx.now) {
                continue;
            }
            let (code, quoted) = (REASSEMBLY_TIME_EXCEEDED, &expired.quoted[..]);
            let v4 = icmpv4::Message::TimeExceeded { code, quoted };
            let v6 = icmpv6::Message::TimeExceeded { code, quoted };
            self.send(Outgoing::icmp(expired.destination, expired.source, &v4, &v6));
        }
    }
}
