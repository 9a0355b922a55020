//! A datagram, or an ICMP error about one, finds its socket.

use super::Host;
use super::flows::TooMany;
use crate::error::Error;
use crate::event::Readiness;
use crate::flow::Tuple;
use crate::frame::{RxChecksum, RxFrame};
use crate::ip::Context;
use crate::ip::icmp::{Cause, IcmpError};
use crate::ip::input::Origin;
use crate::ip::shards::{HandedPacket, Hop};
use crate::time::Instant;
use crate::udp::queue::{Entry, Refusal};
use crate::udp::socket::Arrival;
use crate::wire::ip::Packet;
use crate::wire::udp::Datagram;

impl Host {
    /// Takes in a datagram, in a packet that came in `frame`. On a host of several shards it may be
    /// another's.
    pub(in crate::host) fn take_datagram(
        &mut self,
        now: Instant,
        packet: &Packet<'_>,
        frame: &RxFrame<'_>,
        origin: Origin,
        hop: Hop,
    ) {
        let &RxFrame { checksum, segment_size, .. } = frame;
        let datagram = match Datagram::parse(packet.payload) {
            Ok(datagram) => datagram,
            Err(reason) => return self.note_malformed(reason),
        };
        let is_verified = checksum == RxChecksum::Good;
        if !is_verified && !datagram.is_sound(packet.source, packet.destination) {
            self.shared.counters.checksum_errors += 1;
            return;
        }
        let remote = (packet.source, datagram.source_port);
        let ends = Tuple::new((packet.destination, datagram.destination_port), remote);
        if let Some((owner, hop)) = self.owner_of_datagram(&ends, hop) {
            let (bytes, checksum) = (packet.bytes.to_vec(), RxChecksum::Good);
            let packet = HandedPacket { bytes, checksum, segment_size, origin, hop };
            return self.hand_over(owner, packet);
        }
        self.shared.counters.datagrams_in += 1;
        let index = match self.listener_to(&ends) {
            Some(index) => index,
            None => match self.begin_flow(&ends) {
                Ok(Some(index)) => index,
                Ok(None) => return self.on_unheard(now, packet),
                Err(TooMany) => return,
            },
        };
        let arrival = Arrival {
            from: ends.remote(),
            to: ends.local_ip(),
            traffic_class: packet.traffic_class,
            arrived: self.shared.arrived,
        };
        // It may be several that came joined.
        let segment = match usize::from(segment_size) {
            0 => datagram.payload.len(),
            size => size.min(datagram.payload.len()),
        };
        self.keep_datagram(index, arrival, datagram.payload, segment);
    }

    /// No socket hears the datagram in `packet`, and it makes none: its port is unreachable.
    fn on_unheard(&mut self, now: Instant, packet: &Packet<'_>) {
        let cx = &mut Context { now, counters: &mut self.shared.counters };
        cx.counters.datagrams_unheard += 1;
        self.ip.on_unheard_port(cx, (packet.source, packet.destination), packet.bytes);
        self.after_ip(now);
    }

    /// Puts datagrams of `segment` bytes into the queue of the socket in that slot.
    pub(super) fn keep_datagram(
        &mut self,
        index: u32,
        arrival: Arrival,
        payload: &[u8],
        segment: usize,
    ) {
        let Some(socket) = self.udp.sockets.get_mut(index) else { return };
        let (pool, limit) = (&mut self.shared.pool, socket.options.receive_bytes as usize);
        let was_empty = socket.incoming.is_empty();
        let joins = socket.options.joined
            && socket
                .incoming
                .back()
                .is_some_and(|last| may_join(last, &arrival, payload, segment));
        let kept = match joins {
            true => socket.incoming.join(pool, limit, payload),
            false => socket.incoming.push(pool, limit, payload, segment, arrival),
        };
        let counters = &mut self.shared.counters;
        match kept {
            Ok(()) if was_empty => self.tell_of_udp(index, Readiness::READABLE),
            Ok(()) => {}
            Err(Refusal::Full) => {
                counters.datagrams_over_limit += 1;
                socket.dropped += 1;
            }
            Err(Refusal::NoMemory) => {
                counters.datagrams_without_page += 1;
                socket.dropped += 1;
            }
        }
    }

    /// An ICMP error has come about a datagram (RFC 1122 §4.1.3.3). A connected socket that has
    /// sent it hears of it, and so does any that asks for reports. A packet that was too big is
    /// believed if one of its size has lately gone there: a stranger that knows the ports does not
    /// know that (RFC 5927 §7).
    pub(in crate::host) fn on_datagram_error(&mut self, now: Instant, error: &IcmpError) {
        let Some(index) = self.udp.sockets.find(&error.tuple) else {
            self.shared.counters.icmp_rejected += 1;
            return;
        };
        let hash = self.udp.hasher.hash(&error.tuple);
        let Some(socket) = self.udp.sockets.get_mut(index) else { return };
        let (reported, is_hard) = match error.cause {
            Cause::TooBig(_) if !socket.has_sent(hash, error.packet_bytes as usize) => {
                self.shared.counters.icmp_rejected += 1;
                return;
            }
            Cause::TooBig(_) => (Error::MessageTooLong, false),
            Cause::Soft(reported) => (reported, false),
            Cause::Hard(reported) => (reported, true),
        };
        self.shared.counters.icmp_accepted += 1;
        if socket.on_error(error.tuple.remote(), reported, is_hard) {
            self.tell_of_udp(index, Readiness::READABLE | Readiness::WRITABLE);
        }
        if let Cause::TooBig(mtu) = error.cause {
            self.lower_path_mtu(now, error, mtu);
        }
    }
}

/// True if a datagram, alone or joined to others of `segment` bytes, goes on where the last entry
/// ends: all but the last datagram of an entry have one size, and none is empty.
fn may_join(last: &Entry<Arrival>, arrival: &Arrival, payload: &[u8], segment: usize) -> bool {
    let is_alike = Arrival { arrived: last.meta.arrived, ..*arrival } == last.meta;
    let is_whole = last.len > 0 && last.len.is_multiple_of(last.segment);
    let is_single = payload.len() == segment;
    let fits = segment == last.segment || is_single && segment < last.segment;
    is_alike && is_whole && fits && !payload.is_empty()
}
