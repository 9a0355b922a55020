//! A datagram, or an ICMP error about one, finds its socket.

use super::Host;
use super::flows::TooMany;
use crate::error::Error;
use crate::event::Readiness;
use crate::flow::Tuple;
use crate::frame::RxChecksum;
use crate::ip::Context;
use crate::ip::icmp::{Cause, IcmpError};
use crate::ip::input::Delivery;
use crate::ip::shards::{Content, Hop};
use crate::time::Instant;
use crate::udp::queue::{Entry, Refusal};
use crate::udp::socket::Arrival;
use crate::wire::udp::Datagram;

impl Host {
    /// Takes in a datagram. On a host of several shards it may be another's.
    pub(in crate::host) fn take_datagram(
        &mut self,
        now: Instant,
        delivery: &Delivery<'_>,
        hop: Hop,
    ) {
        let datagram = match Datagram::parse(delivery.bytes()) {
            Ok(datagram) => datagram,
            Err(reason) => return self.note_malformed(reason),
        };
        let is_verified = delivery.checksum == RxChecksum::Good;
        if !is_verified && !datagram.is_sound(delivery.source, delivery.destination) {
            self.shared.counters.checksum_errors += 1;
            return;
        }
        let remote = (delivery.source, datagram.source_port);
        let ends = Tuple::new((delivery.destination, datagram.destination_port), remote);
        if let Some((owner, hop)) = self.owner_of_datagram(&ends, hop) {
            let delivery = Delivery { checksum: RxChecksum::Good, ..delivery.clone() };
            self.shared.counters.handed_over += 1;
            self.ip.shards.send(owner, Content::Datagram(delivery.into_owned(), hop));
            self.shared.counters.messages_lost = self.ip.messages_lost();
            return;
        }
        self.shared.counters.datagrams_in += 1;
        match self.listener_to(&ends) {
            Some(index) => self.keep_delivery(index, &ends, delivery, datagram.payload),
            None => self.on_unheard(now, &ends, delivery, datagram.payload),
        }
    }

    /// No socket hears a datagram: it makes one, or its port is unreachable.
    fn on_unheard(&mut self, now: Instant, ends: &Tuple, delivery: &Delivery<'_>, payload: &[u8]) {
        match self.begin_flow(ends) {
            Ok(Some(index)) => return self.keep_delivery(index, ends, delivery, payload),
            Ok(None) => {}
            Err(TooMany) => return,
        }
        let cx = &mut Context { now, counters: &mut self.shared.counters };
        cx.counters.datagrams_unheard += 1;
        let addresses = (delivery.source, delivery.destination);
        self.ip.on_unheard_port(cx, addresses, &delivery.packet);
        self.after_ip(now);
    }

    /// Puts a datagram, or several that came joined, into the queue of the socket in that slot.
    fn keep_delivery(&mut self, index: u32, ends: &Tuple, from: &Delivery<'_>, payload: &[u8]) {
        let meta = Arrival {
            from: ends.remote(),
            to: ends.local_ip(),
            traffic_class: from.traffic_class,
            arrived: self.shared.arrived,
        };
        let segment = match usize::from(from.segment_size) {
            0 => payload.len(),
            size => size.min(payload.len()),
        };
        self.keep_datagram(index, meta, payload, segment);
    }

    /// Puts datagrams of `segment` bytes into the queue of the socket in that slot.
    pub(super) fn keep_datagram(
        &mut self,
        index: u32,
        meta: Arrival,
        payload: &[u8],
        segment: usize,
    ) {
        let Some(socket) = self.udp.sockets.get_mut(index) else { return };
        let (pool, limit) = (&mut self.shared.pool, socket.options.receive_bytes as usize);
        let was_empty = socket.incoming.is_empty();
        let joins = socket.options.joined
            && socket.incoming.back().is_some_and(|last| may_join(last, &meta, payload, segment));
        let kept = match joins {
            true => socket.incoming.join(pool, limit, payload),
            false => socket.incoming.push(pool, limit, payload, segment, meta),
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
fn may_join(last: &Entry<Arrival>, meta: &Arrival, payload: &[u8], segment: usize) -> bool {
    let is_alike = Arrival { arrived: last.meta.arrived, ..*meta } == last.meta;
    let is_whole = last.len > 0 && last.len.is_multiple_of(last.segment);
    let is_single = payload.len() == segment;
    let fits = segment == last.segment || is_single && segment < last.segment;
    is_alike && is_whole && fits && !payload.is_empty()
}
