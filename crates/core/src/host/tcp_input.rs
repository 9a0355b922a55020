//! A TCP segment for us: to a connection, to the SYN cache, to TIME-WAIT, to a listener, or nobody.

use super::Host;
use super::ahead::Sight;
use super::input::Origin;
use super::output::Reply;
use super::settle::pass_on;
use crate::tcp::isn::Beginning;
use crate::tcp::slot::{Detour, Slot};
use crate::tcp::syn_cache::is_entry;
use crate::tcp::terms::Terms;
use core::net::IpAddr;

use super::negotiate::Unwilling;
use crate::config::Ecn;
use crate::event::{ConnectionId, ListenerId};
use crate::flow::{Seq, Tuple};
use crate::frame::{RxChecksum, RxFrame};
use crate::tcp::Marks;
use crate::tcp::arrive::Facts;
use crate::tcp::arrive::syn_sent::peer_mss;
use crate::tcp::connection::SynReceived;
use crate::tcp::time_wait::Verdict;
use crate::time::Instant;
use crate::wire::ip;
use crate::wire::options::Options;
use crate::wire::tcp::{Flags, Header, Segment, verify_checksum};
use crate::wire::usual::Usual;

/// A segment with what the host has found out about it.
pub(super) struct Incoming<'a> {
    pub(super) tuple: &'a Tuple,
    pub(super) hash: u64,
    pub(super) segment: &'a Segment<'a>,
    pub(super) facts: Facts,
    /// It plainly comes from another host.
    pub(super) is_foreign: bool,
}

/// Between whom a segment travels.
#[derive(Clone, Copy)]
pub(super) struct Ends {
    tuple: Tuple,
    hash: u64,
}

/// What TIME-WAIT knows of the ends of a segment that may open a connection.
#[derive(Clone, Copy)]
pub(super) enum Past {
    /// Nothing.
    Unknown,
    /// That its time is over; the record is still there.
    Over,
    /// That it may be cut short: the new ISN lies at or beyond this.
    Living(Seq),
}

/// The ends of the TCP segment in `packet`, if it is long enough to have any.
fn tuple_of(packet: &ip::Packet<'_>) -> Option<Tuple> {
    let [a, b, c, d] = *packet.payload.first_chunk()?;
    let local = (packet.destination, u16::from_be_bytes([c, d]));
    Some(Tuple::new(local, (packet.source, u16::from_be_bytes([a, b]))))
}

impl Host {
    /// A whole TCP packet of a connection that we have. That its addresses are ours and the
    /// peer's was found out when the connection began, so they are not judged again. If it belongs
    /// to none nothing has happened, and its ends are returned.
    pub(super) fn take_known_tcp(
        &mut self,
        now: Instant,
        packet: &ip::Packet<'_>,
        frame: &RxFrame<'_>,
        from: Origin,
    ) -> Result<(), Option<Ends>> {
        let tuple = tuple_of(packet).ok_or(None)?;
        let hash = self.hasher.hash(&tuple);
        let index = self.find_connection(hash, &tuple).ok_or(Some(Ends { tuple, hash }))?;
        if from != Origin::Ourselves && self.is_ours(packet.source) {
            // To ourselves, but from outside: the long way says no.
            return Err(None);
        }
        let Some(segment) = self.parse_segment(packet, frame) else { return Ok(()) };
        let facts = Facts::new(frame.segment_size, packet.traffic_class);
        self.deliver(now, index, &segment, facts);
        Ok(())
    }

    /// Any segment of the usual layout. As [`Host::take_known_tcp`]; but one that belongs to no
    /// connection is taken in as well, if it plainly comes from somebody else and is for us.
    #[inline(always)]
    pub(super) fn take_usual(
        &mut self,
        now: Instant,
        sight: &Sight<'_>,
        frame: &RxFrame<'_>,
        from: Origin,
    ) -> Result<(), Option<Ends>> {
        let usual = &sight.usual;
        if frame.checksum != RxChecksum::Good && !usual.verify_checksum() {
            // Whose it would be decides what it counts as.
            return Err(None);
        }
        let (hash, piece) = (sight.hash, frame.segment_size);
        // Nearly always the first that may be it is it.
        let index = sight.slot;
        let is_it = |slot: &Slot| slot.tuple == usual.tuple() && slot.listed;
        let Some((slot, generation)) = self.slots.named_mut(index).filter(|s| is_it(s.0)) else {
            return self.take_usual_of_any(now, *usual, piece, (hash, index), from);
        };
        let is_detour =
            slot.detour.is_any() && (slot.detour.is_opening() || from != Origin::Ourselves);
        if is_detour {
            return self.take_usual_of_any(now, *usual, piece, (hash, index), from);
        }
        let id = ConnectionId { index, generation };
        slot.connection_mut().on_usual(self.shared.at(now), usual, piece);
        if pass_on(slot, id, &mut self.ready, &mut self.events) {
            self.settle_over(now, index);
        }
        Ok(())
    }

    /// The same, wherever what it belongs to is found. `hint`: where that may be.
    fn take_usual_of_any(
        &mut self,
        now: Instant,
        usual: Usual<'_>,
        piece: u16,
        (hash, hint): (u64, u32),
        from: Origin,
    ) -> Result<(), Option<Ends>> {
        let tuple = &usual.tuple();
        let half_open = Some(hint).filter(|entry| self.syn_cache.has(*entry, tuple));
        if let Some(entry) = half_open
            && self.complete_usual(now, entry, &usual, piece, (hash, tuple))
        {
            return Ok(());
        }
        match half_open.or_else(|| self.find_unexpected(hash, tuple)) {
            Some(index) if !is_entry(index) => {
                if from != Origin::Ourselves && self.routes.is_local_ipv4(usual.source()) {
                    return Err(None);
                }
                let facts = Facts::new(piece, usual.traffic_class());
                self.deliver(now, index, &usual.segment(), facts);
                Ok(())
            }
            half_open => self.take_usual_stranger(now, usual, piece, (hash, tuple), half_open),
        }
    }

    fn take_usual_stranger(
        &mut self,
        now: Instant,
        usual: Usual<'_>,
        piece: u16,
        (hash, tuple): (u64, &Tuple),
        half_open: Option<u32>,
    ) -> Result<(), Option<Ends>> {
        let (source, destination) = (usual.source().into(), usual.destination().into());
        let is_plain = match half_open {
            // The rest was found out when the SYN came.
            Some(_) => !self.is_ours(source),
            None => self.is_plain_way(now, tuple) || self.is_plain_stranger(source, destination),
        };
        if !is_plain {
            return Err(Some(Ends { tuple: *tuple, hash }));
        }
        if half_open.is_some() || !self.answer_usual_syn(now, &usual.segment(), (hash, tuple)) {
            self.dispatch_usual(now, half_open, &usual, piece, (hash, tuple));
        }
        Ok(())
    }

    fn dispatch_usual(
        &mut self,
        now: Instant,
        half_open: Option<u32>,
        usual: &Usual<'_>,
        piece: u16,
        (hash, tuple): (u64, &Tuple),
    ) {
        let facts = Facts::new(piece, usual.traffic_class());
        let segment = &usual.segment();
        let incoming = Incoming { tuple, hash, segment, facts, is_foreign: true };
        self.dispatch(now, half_open, &incoming);
    }

    /// What nearly always comes from nobody we know: a SYN to a listener who has room, about whose
    /// ends nothing is remembered that counts. If it is not that nothing has happened. As
    /// [`Host::dispatch`] and [`Host::on_listen`] would take it in.
    fn answer_usual_syn(
        &mut self,
        now: Instant,
        segment: &Segment<'_>,
        (hash, tuple): (u64, &Tuple),
    ) -> bool {
        let asked = Flags::SYN | Flags::ACK | Flags::RST;
        if segment.flags.0 & asked.0 != Flags::SYN.0
            || tuple.is_loop()
            || self.fin_wait_2.has(now, hash, tuple)
        {
            return false;
        }
        let past = match self.time_wait_record(hash, tuple) {
            None => Past::Unknown,
            Some(record) if record.is_over(now) => Past::Over,
            Some(_) => return false,
        };
        let Some((name, listener)) = self.listeners.find(tuple) else { return false };
        if listener.is_full() || self.syn_cache.is_full() || listener.options.requires_agreement() {
            return false;
        }
        let begin = self.begin(now, tuple);
        let syn = self.negotiate(segment, tuple.is_ipv6(), begin, &listener.terms);
        let marks = listener.options.marks();
        self.shared.counters.segments_in += 1;
        self.answer_syn(now, (hash, tuple), (name, marks), syn, past);
        true
    }

    /// True if a packet plainly comes from another host, and is for one of our addresses.
    fn is_plain_stranger(&self, source: IpAddr, destination: IpAddr) -> bool {
        self.is_ours(destination) && self.routes.is_acceptable_source(source)
    }

    /// The segment, if it is sound; else it has been counted.
    fn parse_segment<'a>(
        &mut self,
        packet: &ip::Packet<'a>,
        frame: &RxFrame<'_>,
    ) -> Option<Segment<'a>> {
        let trusted = frame.checksum == RxChecksum::Good;
        if !trusted && !verify_checksum(packet.payload, packet.source, packet.destination) {
            self.shared.counters.checksum_errors += 1;
            return None;
        }
        match Segment::parse(packet.payload) {
            Ok(segment) => Some(segment),
            Err(reason) => {
                self.note_malformed(reason);
                None
            }
        }
    }

    /// Any segment to us. `stranger`: its ends, if it is known to belong to no connection.
    pub(super) fn on_tcp(
        &mut self,
        now: Instant,
        packet: &ip::Packet<'_>,
        frame: &RxFrame<'_>,
        stranger: Option<Ends>,
    ) {
        let Some(segment) = &self.parse_segment(packet, frame) else { return };
        let facts = Facts::new(frame.segment_size, packet.traffic_class);
        let ends_of = |tuple| Ends { tuple, hash: self.hasher.hash(&tuple) };
        let ends = stranger.or_else(|| tuple_of(packet).map(ends_of));
        let Some(Ends { tuple, hash }) = ends else { return };
        let half_open = match self.find(hash, &tuple) {
            Some(index) if !is_entry(index) => return self.deliver(now, index, segment, facts),
            half_open => half_open,
        };
        let tuple = &tuple;
        let incoming = Incoming { tuple, hash, segment, facts, is_foreign: false };
        self.dispatch(now, half_open, &incoming);
    }

    /// A segment that belongs to no connection, but perhaps to one that is half open.
    fn dispatch(&mut self, now: Instant, half_open: Option<u32>, incoming: &Incoming<'_>) {
        let (hash, tuple) = (incoming.hash, incoming.tuple);
        if let Some(record) = self.fin_wait_2.find(now, hash, tuple) {
            return self.on_orphan(now, &record, incoming);
        }
        self.shared.counters.segments_in += 1;
        if let Some(entry) = half_open {
            return self.on_half_open(now, entry, incoming);
        }
        let past = match self.time_wait_record(hash, tuple) {
            Some(record) if record.is_over(now) => Past::Over,
            Some(record) => return self.on_time_wait(now, &record, incoming),
            None => Past::Unknown,
        };
        self.on_listen(now, incoming, past);
    }

    pub(super) fn deliver(
        &mut self,
        now: Instant,
        index: u32,
        segment: &Segment<'_>,
        mut facts: Facts,
    ) {
        if self.answer_for_predecessor(now, index, segment, facts) {
            return;
        }
        let names = !segment.options.experimental.is_empty();
        if let Some(tuple) = self.slots.get(index).filter(|_| names).map(|slot| slot.tuple) {
            facts = self.with_named(&tuple, segment, facts);
        }
        let asked = self.asked(index);
        self.change(now, index, |connection, cx| connection.on_segment(cx, segment, facts));
        self.note_opened(index);
        if let Some(syns) = asked {
            self.note_answered(now, index, syns);
        }
    }

    /// While a connection is opened in the place of one in TIME-WAIT, what is no SYN and does not
    /// acknowledge ours is for the record. A peer that still waits for its last ACK repeats its
    /// FIN, or challenges our SYN (RFC 5961 §4.2): either is told that all was received, which an
    /// RST would not tell. False if `segment` is not of this kind.
    fn answer_for_predecessor(
        &mut self,
        now: Instant,
        index: u32,
        segment: &Segment<'_>,
        facts: Facts,
    ) -> bool {
        let reuse = self.slots.get(index).filter(|slot| slot.detour.has(Detour::REUSE));
        let Some(slot) = reuse else { return false };
        let (hash, tuple) = (slot.tuple_hash, slot.tuple);
        let is_old = segment.flags.contains(Flags::ACK)
            && segment.flags.0 & (Flags::SYN | Flags::RST).0 == 0
            && slot.awake().is_some_and(|c| c.is_unanswered_by(segment.ack));
        if !is_old {
            return false;
        }
        let record = self.time_wait_record(hash, &tuple).filter(|record| !record.is_over(now));
        let Some(record) = record else { return false };
        self.shared.counters.segments_in += 1;
        let incoming = Incoming { tuple: &tuple, hash, segment, facts, is_foreign: false };
        let verdict = match record.judge(segment) {
            Verdict::Ignore => Verdict::Challenge,
            verdict => verdict,
        };
        self.do_as_judged(now, &record, &incoming, verdict);
        true
    }

    /// If the connection in slot `index` was opened in the place of one in TIME-WAIT, and now is
    /// open, that one's record ends.
    fn note_opened(&mut self, index: u32) {
        let Some(slot) = self.slots.get_mut(index) else { return };
        let is_open = |slot: &Slot| slot.awake().is_some_and(|c| c.synchronized().is_some());
        if slot.detour.has(Detour::REUSE) && is_open(slot) {
            slot.detour = slot.detour.with(Detour::REUSE, false);
            let (hash, tuple) = (slot.tuple_hash, slot.tuple);
            self.end_time_wait(hash, &tuple);
        }
    }

    // ---- LISTEN: RFC 9293 §3.10.7.2

    pub(super) fn on_listen(&mut self, now: Instant, incoming: &Incoming<'_>, past: Past) {
        let segment = incoming.segment;
        if segment.flags.contains(Flags::RST) {
            return;
        }
        let tuple = incoming.tuple;
        let listener = self.listeners.find(tuple);
        let Some((name, listener)) = listener else { return self.refuse(now, incoming) };
        if segment.flags.contains(Flags::ACK) {
            if !self.accept_cookie(now, incoming, name) {
                self.refuse(now, incoming);
            }
            return;
        }
        if !segment.flags.contains(Flags::SYN) || tuple.is_loop() {
            // Or it is our own SYN come back, and the connection that sent it is gone.
            return;
        }
        if listener.is_full() {
            self.shared.counters.accept_overflows += 1;
            return;
        }
        let mut begin = self.begin(now, tuple);
        if let Past::Living(isn_floor) = past {
            begin.isn = begin.isn.max(isn_floor);
        }
        let names = match self.choose_holder(&listener.options, tuple, segment) {
            Ok(names) => names,
            Err(Unwilling) => {
                self.shared.counters.negotiation_refused += 1;
                return self.refuse(now, incoming);
            }
        };
        let syn = self.negotiate(segment, tuple.is_ipv6(), begin, &listener.terms);
        let (syn, marks) = (SynReceived { names, ..syn }, listener.options.marks());
        if self.syn_cache.is_full() {
            let terms = (listener.terms.offer, marks);
            return self.answer_without_state(now, incoming, syn, terms, past);
        }
        self.answer_syn(now, (incoming.hash, tuple), (name, marks), syn, past);
    }

    /// State or cookie: it is decided before, and never both. A SYN that meets a TIME-WAIT record
    /// needs an ISN that a cookie cannot promise, so it gets state or nothing.
    fn answer_without_state(
        &mut self,
        now: Instant,
        incoming: &Incoming<'_>,
        syn: SynReceived,
        terms: (u16, Marks),
        past: Past,
    ) {
        if let Past::Living(_) = past {
            self.shared.counters.time_wait_refused += 1;
        } else {
            self.send_cookie(now, incoming, syn, terms);
        }
    }

    /// With state: the handshake has an entry in the SYN cache.
    #[inline(always)]
    fn answer_syn(
        &mut self,
        now: Instant,
        (hash, tuple): (u64, &Tuple),
        (listener, marks): (ListenerId, Marks),
        syn: SynReceived,
        past: Past,
    ) {
        if let Past::Living(_) = past {
            self.shared.counters.time_wait_reopened += 1;
        }
        let in_time_wait = !matches!(past, Past::Unknown);
        let name = (listener.index, listener.generation);
        let entry = self.syn_cache.insert((tuple, hash), syn, name, in_time_wait, now);
        self.list(hash, entry);
        self.shared.counters.syn_cache_added += 1;
        self.shared.counters.passive_opens += 1;
        self.reply_syn_ack(now, tuple, &syn, marks);
    }

    #[inline(always)]
    pub(super) fn negotiate(
        &self,
        segment: &Segment<'_>,
        ipv6: bool,
        begin: Beginning,
        terms: &Terms,
    ) -> SynReceived {
        let (options, config) = (&segment.options, &self.shared.config);
        SynReceived {
            iss: begin.isn,
            irs: segment.seq,
            peer_mss: peer_mss(options, ipv6, config.mss_min),
            mss: terms.mss(ipv6),
            offer: self.shared.budget.offer(terms.offer),
            peer_scale: options.window_scale.filter(|_| config.window_scaling).map(|s| s.min(14)),
            sack: config.sack && options.sack_permitted,
            ecn: config.ecn != Ecn::Off && segment.flags.contains(Flags::ECE | Flags::CWR),
            stamp: options.timestamps.filter(|_| config.timestamps).map(|stamps| stamps.value),
            stamp_offset: begin.stamp_offset,
            attempts: 1,
            names: None,
        }
    }

    /// RFC 9293 §3.10.7.1: a segment for nobody is answered with RST, unless it is one.
    pub(super) fn refuse(&mut self, now: Instant, incoming: &Incoming<'_>) {
        let segment = incoming.segment;
        if segment.flags.contains(Flags::RST) {
            return;
        }
        if !self.may_answer_stranger(now) {
            self.shared.counters.replies_suppressed += 1;
            return;
        }
        // An elicited RST never carries ACK with an acceptable number of its own: where the
        // segment had ACK, RST takes its number from there (and that is what TIME-WAIT ignores).
        let header = if segment.flags.contains(Flags::ACK) {
            bare_header(incoming.tuple, segment.ack, Seq(0), Flags::RST)
        } else {
            bare_header(incoming.tuple, Seq(0), segment.end(), Flags::RST | Flags::ACK)
        };
        self.shared.counters.resets_to_strangers += 1;
        self.reply(Reply::segment(incoming.tuple, header));
    }
}

/// A header between the ends of `tuple`, without options, and with a closed window.
pub(super) fn bare_header(tuple: &Tuple, seq: Seq, ack: Seq, flags: Flags) -> Header {
    Header {
        source_port: tuple.local_port(),
        destination_port: tuple.remote_port(),
        seq,
        ack,
        flags,
        window: 0,
        urgent: 0,
        options: Options::default(),
    }
}
