//! This shard and the others of the host: what came to the wrong one is handed over, and what the
//! first learns of the link is published ([`ip::shards`](crate::ip::shards)).

use super::Host;
use super::lookup::UnmatchedSegment;
use crate::event::Event;
use crate::flow::Tuple;
use crate::frame::RxChecksum;
use crate::ip::Context;
use crate::ip::icmp::{IcmpError, QuotedPart};
use crate::ip::input::Origin;
use crate::ip::shards::{Content, HandedPacket, Hop, Message};
use crate::time::Instant;
use crate::wire::parsed::ParsedSegment;

impl Host {
    /// The oldest message for another shard of this host, and the index of that shard.
    pub fn message(&mut self) -> Option<(u16, Message)> {
        self.ip.message()
    }

    /// True if [`Host::message`] has one.
    #[cfg(test)]
    pub(crate) fn has_message(&self) -> bool {
        self.ip.has_message()
    }

    /// A message has found no room on its way to shard `to`.
    pub fn on_message_lost(&mut self, to: u16, message: &Message) {
        if let Content::Grant(grant) = message.content {
            self.take_grant(grant);
        }
        self.ip.on_message_lost(to, message);
        self.shared.counters.messages_lost = self.ip.messages_lost();
    }

    /// A message of shard `from` has arrived.
    pub fn on_message(&mut self, now: Instant, from: u16, message: Message) {
        self.begin_link(now);
        let is_frame = match message.content {
            Content::Packet(packet) => {
                let HandedPacket { origin, hop, .. } = packet;
                self.take_packet_within::<true>(now, &packet.frame(), origin, hop);
                true
            }
            Content::Error(error, hop) => {
                self.on_error_about(now, error, hop);
                true
            }
            Content::Arp(packet) => {
                let cx = &mut Context { now, counters: &mut self.shared.counters };
                self.ip.on_arp(cx, &packet);
                true
            }
            Content::Ask(address) => {
                self.ip.on_asked(now, from, address);
                false
            }
            Content::Neighbour(told) => {
                self.ip.on_told(now, told);
                false
            }
            Content::Listens { group, listens } => {
                self.ip.on_group_told(from, group, listens);
                false
            }
            Content::Routes(routes) => {
                self.ip.adopt_routes(&routes);
                self.note_addresses();
                self.events.push_back(Event::Addresses);
                false
            }
            Content::TooBig(error, mtu) => {
                self.ip.on_too_big(now, &error, mtu);
                false
            }
            Content::Want { what, left } => {
                self.on_wanted(from, what, left);
                false
            }
            Content::Grant(grant) => {
                self.on_granted(now, grant);
                false
            }
        };
        self.shared.counters.taken_over += u64::from(is_frame);
        self.after_ip(now);
    }

    /// Hands a packet over to the shard `owner`.
    pub(super) fn hand_over(&mut self, owner: u16, packet: HandedPacket) {
        self.shared.counters.handed_over += 1;
        self.ip.shards.send(owner, Content::Packet(packet));
        self.shared.counters.messages_lost = self.ip.messages_lost();
    }

    /// Hands a segment of the connection `tuple` over to its owner, if that is another shard.
    pub(super) fn hand_over_segment(
        &mut self,
        tuple: &Tuple,
        packet: impl FnOnce() -> HandedPacket,
    ) -> bool {
        let Some(owner) = self.ip.shards.elsewhere(tuple) else { return false };
        self.hand_over(owner, packet());
        true
    }

    /// Does the same with a segment that nothing here knows, if it is of the fast layout. Of any
    /// other the owner was found before.
    pub(super) fn hand_over_unknown(&mut self, unmatched: &UnmatchedSegment<'_>) -> bool {
        let ParsedSegment::Fast(fast) = unmatched.parsed else { return false };
        let is_elsewhere = self.hand_over_segment(unmatched.tuple, || HandedPacket {
            bytes: fast.packet(),
            // It was found right.
            checksum: RxChecksum::Good,
            segment_size: unmatched.facts.piece,
            origin: if unmatched.is_ours { Origin::Ourselves } else { Origin::Link(None) },
            hop: Hop::First,
        });
        // The owner counts it.
        self.shared.counters.segments_in -= u64::from(is_elsewhere);
        is_elsewhere
    }

    /// An ICMP error has come about a packet of a connection or UDP socket, which may be another
    /// shard's.
    pub(super) fn on_error_about(&mut self, now: Instant, error: IcmpError, hop: Hop) {
        let owner = match (error.part, hop) {
            (QuotedPart::Segment(_), _) => {
                self.ip.shards.elsewhere(&error.tuple).map(|owner| (owner, Hop::First))
            }
            (QuotedPart::Datagram, hop) => self.owner_of_datagram(&error.tuple, hop),
        };
        match (owner, error.part) {
            (Some((owner, hop)), _) => {
                let cx = &mut Context { now, counters: &mut self.shared.counters };
                self.ip.shards.hand_over_rare(cx, owner, Content::Error(error, hop));
            }
            (None, QuotedPart::Segment(seq)) => self.on_icmp_error(now, &error, seq),
            (None, QuotedPart::Datagram) => self.on_datagram_error(now, &error),
        }
    }

    /// The shard that a datagram between `ends` is to be handed over to, and how far that is.
    pub(super) fn owner_of_datagram(&self, ends: &Tuple, hop: Hop) -> Option<(u16, Hop)> {
        if hop == Hop::Last || self.ip.shards.is_alone() {
            return None;
        }
        if let Some(owner) = self.ip.shards.elsewhere(ends) {
            return Some((owner, Hop::First));
        }
        let sockets = &self.udp.sockets;
        let is_known = sockets.find(ends).is_some();
        if is_known { None } else { sockets.port_elsewhere(ends).map(|owner| (owner, Hop::Last)) }
    }
}
