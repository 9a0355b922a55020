//! Takes in a TCP segment for us: it goes to a connection, to the SYN cache, to TIME-WAIT or to a
//! listener. A segment that belongs to none of them is refused.

use super::Host;
use super::after_input::publish;
use super::lookup::{Fault, Guess, Past, UnmatchedSegment, parse};
use super::negotiate::Unwilling;
use super::reply::Reply;
use crate::event::{ConnectionId, ListenerId};
use crate::flow::{Seq, Tuple};
use crate::frame::{RxChecksum, RxFrame};
use crate::ip::input::Origin;
use crate::ip::path::IpFields;
use crate::ip::shards::{HandedPacket, Hop};
use crate::tcp::arrive::Facts;
use crate::tcp::connection::{OurSyn, SynReceived};
use crate::tcp::isn::Beginning;
use crate::tcp::slot::{Slot, SlotFlags, guessed};
use crate::tcp::syn_cache::is_entry;
use crate::tcp::time_wait::Verdict;
use crate::time::Instant;
use crate::wire::fast::FastSegment;
use crate::wire::ip::Packet;
use crate::wire::parsed::ParsedSegment;
use crate::wire::tcp::{Flags, Header};

impl Host {
    /// A segment of the fast layout. A connection's addresses were judged when it began, and are
    /// not judged again.
    #[inline(always)]
    pub(super) fn take_fast_segment(
        &mut self,
        now: Instant,
        fast: FastSegment<'_>,
        guess: Guess,
        frame: &RxFrame<'_>,
        from: Origin,
    ) {
        if frame.checksum != RxChecksum::Good && !fast.verify_checksum() {
            return self.take_fast_elsewhere(now, fast, guess, false, frame, from);
        }
        // The guess is nearly always right.
        let Guess { index, .. } = guess;
        let is_from_ourselves = from == Origin::Ourselves;
        let found = guessed(&mut self.slots, index, &fast.tuple(), is_from_ourselves);
        let Some((slot, generation)) = found else {
            return self.take_fast_elsewhere(now, fast, guess, true, frame, from);
        };
        let facts = Facts::of_piece(frame.segment_size);
        let id = ConnectionId { index, generation };
        slot.connection_mut().on_segment(self.shared.at(now), ParsedSegment::Fast(fast), facts);
        if publish(slot, id, &mut self.live.ready, &mut self.events) {
            self.reap(now, index);
        }
    }

    /// A segment of the fast layout that is not for the connection its hash leads to, or whose
    /// checksum is wrong.
    fn take_fast_elsewhere(
        &mut self,
        now: Instant,
        fast: FastSegment<'_>,
        Guess { hash, .. }: Guess,
        is_right: bool,
        frame: &RxFrame<'_>,
        from: Origin,
    ) {
        let parsed = if is_right { Ok(ParsedSegment::Fast(fast)) } else { Err(Fault::Checksum) };
        let facts = Facts::of_piece(frame.segment_size);
        self.take_segment(now, (&fast.tuple(), hash), parsed, facts, from);
    }

    /// A segment of any layout, in a packet that came in `frame`.
    #[inline(always)]
    pub(super) fn take_any_segment(
        &mut self,
        now: Instant,
        packet: &Packet<'_>,
        frame: &RxFrame<'_>,
        from: Origin,
    ) {
        let &RxFrame { checksum, segment_size, .. } = frame;
        let segment = parse(packet, checksum);
        // A segment too short for ports belongs to no connection.
        let &[a, b, c, d] = packet.payload.first_chunk().unwrap_or(&[0; 4]);
        let local = (packet.destination, u16::from_be_bytes([c, d]));
        let tuple = Tuple::new(local, (packet.source, u16::from_be_bytes([a, b])));
        let handed = || {
            let (bytes, origin, hop) = (packet.bytes.to_vec(), from, Hop::First);
            HandedPacket { bytes, checksum, segment_size, origin, hop }
        };
        if !self.ip.shards.is_alone() && self.hand_over_segment(&tuple, handed) {
            return;
        }
        let hash = self.live.hasher.hash(&tuple);
        let parsed = segment.as_ref().map_err(|fault| *fault);
        let parsed = parsed.map(ParsedSegment::Fields);
        let facts = Facts::of_piece(segment_size).with_class(packet.traffic_class);
        self.take_segment(now, (&tuple, hash), parsed, facts, from);
    }

    /// A segment that either parser has read: finds the connection, or the half-open one, that it
    /// belongs to. Their addresses were judged when they began, and are not judged again.
    fn take_segment(
        &mut self,
        now: Instant,
        (tuple, hash): (&Tuple, u64),
        parsed: Result<ParsedSegment<'_>, Fault>,
        facts: Facts,
        from: Origin,
    ) {
        let known = self.find(hash, tuple);
        let may_be = match known {
            Some(_) => from == Origin::Ourselves || !self.ip.is_to_ourselves(tuple),
            None => self.is_between_us(now, tuple, from),
        };
        if !may_be {
            self.shared.counters.not_ours += 1;
            return;
        }
        let parsed = match parsed {
            Ok(parsed) => parsed,
            Err(fault) => return self.note_fault(fault),
        };
        match known {
            Some(index) if !is_entry(index) => self.deliver(now, index, parsed, facts),
            half_open => {
                let head = parsed.head();
                // From the link, no address of ours is a source.
                let is_ours = from == Origin::Ourselves && self.ip.is_to_ourselves(tuple);
                let unmatched = UnmatchedSegment { tuple, hash, head, parsed, facts, is_ours };
                self.dispatch(now, half_open, &unmatched);
            }
        }
    }

    /// True if our end of `tuple` is one of our addresses or is taken for one, and a packet from
    /// the other may come from there.
    fn is_between_us(&self, now: Instant, tuple: &Tuple, from: Origin) -> bool {
        let is_source_acceptable =
            || from == Origin::Ourselves || self.ip.is_acceptable_source(tuple.remote_ip());
        self.ip.is_plain_route(now, tuple)
            || self.ip.takes(tuple.local_ip()) && is_source_acceptable()
    }

    /// A segment that belongs to no connection, but perhaps to one that is half open.
    fn dispatch(&mut self, now: Instant, half_open: Option<u32>, unmatched: &UnmatchedSegment<'_>) {
        let (hash, tuple) = (unmatched.hash, unmatched.tuple);
        if let Some(record) = self.closed.fin_wait_2.find(now, hash, tuple) {
            return self.on_orphan(now, &record, unmatched);
        }
        self.shared.counters.segments_in += 1;
        if let Some(entry) = half_open {
            return self.on_half_open(now, entry, unmatched);
        }
        let past = match self.time_wait_record(hash, tuple) {
            Some(record) if record.is_over(now) => Past::Over,
            Some(record) => return self.on_time_wait(now, &record, unmatched),
            None => Past::Unknown,
        };
        self.on_listen(now, unmatched, past);
    }

    /// A segment for the connection in slot `index`. While that opens in the place of one in
    /// TIME-WAIT, the record may have to answer instead, and it ends once the connection is open.
    /// While it asks which end shall hold TIME-WAIT, the answer is noted.
    pub(super) fn deliver(
        &mut self,
        now: Instant,
        index: u32,
        parsed: ParsedSegment<'_>,
        mut facts: Facts,
    ) {
        if self.answer_for_predecessor(now, index, parsed, facts) {
            return;
        }
        let names = parsed.has_experiments();
        if let Some(tuple) = self.slots.get(index).filter(|_| names).map(|slot| slot.tuple) {
            facts = self.with_named(&tuple, parsed, facts);
        }
        let asked = self.asked(index);
        self.change(now, index, |connection, cx| connection.on_segment(cx, parsed, facts));
        self.note_opened(index);
        if let Some(syns) = asked {
            self.note_answered(now, index, syns);
        }
    }

    /// While a connection is opened in the place of one in TIME-WAIT, a segment that is no SYN and
    /// does not acknowledge ours is for the record. A peer that still waits for its last ACK
    /// repeats its FIN, or challenges our SYN (RFC 5961 §4.2): in both cases the answer says that
    /// all was received, which an RST would not say. False if the segment is not of this kind.
    fn answer_for_predecessor(
        &mut self,
        now: Instant,
        index: u32,
        parsed: ParsedSegment<'_>,
        facts: Facts,
    ) -> bool {
        let reuse = self.slots.get(index).filter(|slot| slot.flags.has(SlotFlags::REUSE));
        let Some(slot) = reuse else { return false };
        let (hash, tuple) = (slot.tuple_hash, slot.tuple);
        let is_ours = slot.flags.has(SlotFlags::OURSELVES);
        let segment = parsed.head();
        let is_old = segment.flags.contains(Flags::ACK)
            && segment.flags.0 & (Flags::SYN | Flags::RST).0 == 0
            && slot.awake().is_some_and(|c| c.is_unanswered_by(segment.ack));
        if !is_old {
            return false;
        }
        let Some(record) = self.living_record(now, hash, &tuple) else { return false };
        self.shared.counters.segments_in += 1;
        let (tuple, head) = (&tuple, segment);
        let unmatched = UnmatchedSegment { tuple, hash, head, parsed, facts, is_ours };
        let verdict = match record.judge(&parsed.segment()) {
            Verdict::Ignore => Verdict::Challenge,
            verdict => verdict,
        };
        self.do_as_judged(now, &record, &unmatched, verdict);
        true
    }

    /// If the connection in slot `index` was opened in the place of one in TIME-WAIT, and now is
    /// open, that one's record ends.
    fn note_opened(&mut self, index: u32) {
        let Some(slot) = self.slots.get_mut(index) else { return };
        let is_open = |slot: &Slot| slot.awake().is_some_and(|c| c.synchronized().is_some());
        if slot.flags.has(SlotFlags::REUSE) && is_open(slot) {
            slot.flags = slot.flags.with(SlotFlags::REUSE, false);
            let (hash, tuple) = (slot.tuple_hash, slot.tuple);
            self.end_time_wait(hash, &tuple);
        }
    }

    // ---- LISTEN: RFC 9293 §3.10.7.2

    pub(super) fn on_listen(&mut self, now: Instant, unmatched: &UnmatchedSegment<'_>, past: Past) {
        // Nothing here knows its ends: they may be another shard's.
        if !self.ip.shards.is_alone() && self.hand_over_unknown(unmatched) {
            return;
        }
        let segment = &unmatched.head;
        if segment.flags.contains(Flags::RST) {
            return self.on_held_reset(unmatched);
        }
        let tuple = unmatched.tuple;
        let listener = self.opening.listeners.find(tuple);
        let Some((name, listener)) = listener else { return self.refuse(now, unmatched) };
        if segment.flags.contains(Flags::ACK) {
            if listener.asks || !self.accept_cookie(now, unmatched, name) {
                self.refuse(now, unmatched);
            }
            return;
        }
        if !segment.flags.contains(Flags::SYN) || tuple.is_loop() {
            // Or it is our own SYN come back, and the connection that sent it is gone.
            return;
        }
        if listener.asks && self.opening.held.has(unmatched.hash, tuple) {
            // Sent again.
            return;
        }
        if listener.is_full() {
            self.shared.counters.accept_overflows += 1;
            return;
        }
        let Beginning { isn, stamp_offset } = self.choose_isn(now, tuple);
        let iss = if let Past::Living(floor) = past { isn.max(floor) } else { isn };
        let names = match self.choose_holder(&listener.options, tuple, unmatched.parsed) {
            Ok(names) => names,
            Err(Unwilling) => {
                self.shared.counters.negotiation_refused += 1;
                return self.refuse(now, unmatched);
            }
        };
        let (mss, ipv6) = (listener.terms.mss(tuple.is_ipv6()), tuple.is_ipv6());
        let offer = self.shared.budget.offer(listener.terms.offer);
        let ours = OurSyn { iss, stamp_offset, mss, offer, attempts: 1, ipv6, asks_ecn: false };
        let syn = SynReceived {
            names,
            ..ours.negotiate(&unmatched.parsed.segment(), &self.shared.config)
        };
        let marks = listener.options.ip_fields();
        if listener.asks {
            return self.hold_syn(now, unmatched, name, syn);
        }
        if !self.opening.syn_cache.has_room(past.standing()) {
            let offer = listener.terms.offer;
            return self.answer_without_state(now, unmatched, syn, offer, marks, past);
        }
        self.answer_syn(now, unmatched, name, syn, marks, past);
    }

    /// The SYN cache has no room. A SYN that meets a TIME-WAIT record needs an ISN that a cookie
    /// cannot promise. It finds no room only where as many such SYNs wait already as there may be
    /// records, and is not answered.
    fn answer_without_state(
        &mut self,
        now: Instant,
        unmatched: &UnmatchedSegment<'_>,
        syn: SynReceived,
        offer: u16,
        marks: IpFields,
        past: Past,
    ) {
        if let Past::Living(_) = past {
            self.shared.counters.time_wait_refused += 1;
        } else {
            self.send_cookie(now, unmatched, syn, offer, marks);
        }
    }

    /// With state: the handshake has an entry in the SYN cache.
    #[inline(always)]
    fn answer_syn(
        &mut self,
        now: Instant,
        &UnmatchedSegment { hash, tuple, .. }: &UnmatchedSegment<'_>,
        listener: ListenerId,
        syn: SynReceived,
        marks: IpFields,
        past: Past,
    ) {
        if let Past::Living(_) = past {
            self.shared.counters.time_wait_reopened += 1;
            let is_over_limit = self.opening.syn_cache.is_full();
            self.shared.counters.syn_cache_over_limit += u64::from(is_over_limit);
        }
        let standing = past.standing();
        let entry = self.opening.syn_cache.insert(hash, tuple, syn, listener, standing, now);
        self.list(hash, entry);
        self.shared.counters.syn_cache_added += 1;
        self.shared.counters.passive_opens += 1;
        self.reply_syn_ack(now, tuple, &syn, marks);
    }

    /// RFC 9293 §3.10.7.1: a segment that belongs to no connection is answered with RST, unless it
    /// is an RST itself.
    pub(super) fn refuse(&mut self, now: Instant, unmatched: &UnmatchedSegment<'_>) {
        let segment = &unmatched.head;
        if segment.flags.contains(Flags::RST) {
            return;
        }
        if !self.ip.may_answer_stranger(now) {
            self.shared.counters.replies_suppressed += 1;
            return;
        }
        // An elicited RST never carries ACK with an acceptable number of its own: where the
        // segment had ACK, RST takes its number from there (and that is what TIME-WAIT ignores).
        let header = if segment.flags.contains(Flags::ACK) {
            Header::new(unmatched.tuple.ports(), segment.ack, Seq(0), Flags::RST)
        } else {
            Header::new(unmatched.tuple.ports(), Seq(0), segment.end(), Flags::RST | Flags::ACK)
        };
        self.shared.counters.resets_to_strangers += 1;
        self.reply(Reply::segment(unmatched.tuple, header));
    }
}
