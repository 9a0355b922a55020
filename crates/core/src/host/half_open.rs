//! SYN-RECEIVED after a passive open: RFC 9293 §3.10.7.4 for that state, whose connections are
//! entries of the SYN cache, and the connection that the peer's ACK makes of one, or of a cookie.

use super::Host;
use super::output::Reply;
use super::tcp_input::{Incoming, bare_header};
use crate::event::{ConnectionId, Event, ListenerId};
use crate::flow::{Seq, Tuple};
use crate::tcp::Connection;
use crate::tcp::arrive::Facts;
use crate::tcp::connection::{Identity, SynReceived};
use crate::tcp::slot::{Detour, take_seat};
use crate::tcp::syn_cache::{Due, HalfOpen};
use crate::time::Instant;
use crate::wire::tcp::{Flags, Plain, Segment};
use crate::wire::usual::Usual;

/// A segment that completes a handshake, for which everything about it is found out.
pub(super) struct Completing<'a> {
    pub(super) tuple: &'a Tuple,
    pub(super) hash: u64,
    /// It plainly comes from another host.
    pub(super) is_foreign: bool,
    /// SEG.SEQ, SEG.ACK and SEG.WND.
    seq: Seq,
    ack: Seq,
    window: u16,
    whole: Whole<'a>,
}

/// All of it.
enum Whole<'a> {
    Usual(&'a Usual<'a>, u16),
    Any(&'a Segment<'a>, Facts),
}

impl<'a> Incoming<'a> {
    /// The same, which completes a handshake.
    pub(super) fn completing(&self) -> Completing<'a> {
        let &Incoming { tuple, hash, segment, facts, is_foreign } = self;
        let &Segment { seq, ack, window, .. } = segment;
        Completing { tuple, hash, is_foreign, seq, ack, window, whole: Whole::Any(segment, facts) }
    }
}

/// Whence a handshake is completed.
#[derive(Clone, Copy)]
pub(super) struct Begun {
    /// Its entry in the SYN cache; a cookie has none.
    pub(super) entry: Option<u32>,
    /// When the SYN, ACK was sent first.
    pub(super) answered: Instant,
    /// TIME-WAIT may have a record of its ends.
    pub(super) in_time_wait: bool,
}

impl Host {
    /// What is nearly always next of a connection that is half open: the ACK of our SYN, alone or
    /// with text. If it is not that, or needs a closer look, nothing has happened.
    pub(super) fn complete_usual(
        &mut self,
        now: Instant,
        entry: u32,
        usual: &Usual<'_>,
        piece: u16,
        (hash, tuple): (u64, &Tuple),
    ) -> bool {
        let (Some(plain), Some(half_open)) = (usual.plain(), self.syn_cache.get(entry)) else {
            return false;
        };
        let is_it = half_open.syn.is_completed_by(&plain);
        if !is_it || self.routes.is_local_ipv4(usual.source()) {
            return false;
        }
        debug_assert!(!self.fin_wait_2.has(now, hash, tuple), "its SYN would wake it");
        let &HalfOpen { syn, listener: (index, generation), answered, in_time_wait, .. } =
            half_open;
        self.shared.counters.segments_in += 1;
        let Plain { seq, ack, window, .. } = plain;
        let whole = Whole::Usual(usual, piece);
        let completing = Completing { tuple, hash, is_foreign: true, seq, ack, window, whole };
        let begun = Begun { entry: Some(entry), answered, in_time_wait };
        self.establish_passive(now, &completing, &syn, ListenerId { index, generation }, begun);
        true
    }

    pub(super) fn on_half_open(&mut self, now: Instant, entry: u32, incoming: &Incoming<'_>) {
        let Some(half_open) = self.syn_cache.get(entry) else { return };
        let &HalfOpen { syn, listener: (index, generation), answered, in_time_wait, .. } =
            half_open;
        let segment = incoming.segment;
        let rcv_nxt = syn.irs + 1;
        // First: sequence number, and PAWS.
        let is_next = segment.seq.within(rcv_nxt, syn.offer.into());
        if !is_next || syn.is_stale(segment.options.timestamps) {
            if !segment.flags.contains(Flags::RST) {
                self.answer_half_open(now, incoming, &syn);
            }
            return;
        }
        // Second: RST returns to LISTEN; RFC 5961 §3.2 wants it exactly at RCV.NXT.
        if segment.flags.contains(Flags::RST) {
            if segment.seq == rcv_nxt || self.shared.config.quirks.insecure_rst {
                self.drop_half_open(entry);
            } else {
                self.answer_half_open(now, incoming, &syn);
            }
            return;
        }
        // Fourth: SYN. Fifth: ACK.
        if segment.flags.contains(Flags::SYN) {
            return self.answer_half_open(now, incoming, &syn);
        }
        if !segment.flags.contains(Flags::ACK) {
            return;
        }
        if segment.ack != syn.iss + 1 {
            return self.refuse(now, incoming);
        }
        let listener = ListenerId { index, generation };
        let begun = Begun { entry: Some(entry), answered, in_time_wait };
        self.establish_passive(now, &incoming.completing(), &syn, listener, begun);
    }

    /// A SYN repeated is answered as the first was; anything else that is unacceptable with an ACK,
    /// within the limit (RFC 9293 §3.10.7.4, RFC 5961 §3.2).
    ///
    /// While TIME-WAIT has a record of its ends, that is who answers what is no SYN: the SYN may
    /// have been an old one, or a stranger's, and the peer of the old connection waits for the ACK
    /// of its FIN.
    fn answer_half_open(&mut self, now: Instant, incoming: &Incoming<'_>, syn: &SynReceived) {
        let Incoming { tuple, segment, .. } = incoming;
        // With ACK it is an answer, and an answer to it would be answered in turn.
        let is_syn = segment.flags.contains(Flags::SYN) && !segment.flags.contains(Flags::ACK);
        if is_syn && segment.seq == syn.irs {
            self.repeat_syn_ack(now, tuple, syn);
        } else if !segment.flags.contains(Flags::SYN)
            && let Some(record) = self.time_wait_record(incoming.hash, tuple)
            && !record.is_over(now)
        {
            self.on_time_wait(now, &record, incoming);
        } else if self.shared.challenges.take(incoming.hash, now) {
            self.acknowledge_half_open(now, tuple, syn);
        } else {
            self.shared.counters.challenges_suppressed += 1;
        }
    }

    /// Forgets a handshake.
    pub(super) fn remove_half_open(&mut self, entry: u32) -> Option<HalfOpen> {
        let half_open = *self.syn_cache.get(entry)?;
        self.syn_cache.remove(entry);
        self.demux.remove(half_open.hash, entry);
        Some(half_open)
    }

    fn drop_half_open(&mut self, entry: u32) {
        if self.remove_half_open(entry).is_some() {
            self.shared.counters.failed_opens += 1;
        }
    }

    /// The handshake is complete: makes the connection and puts it into the accept queue. If that
    /// is full, the peer's ACK is as if it had been lost.
    pub(super) fn establish_passive(
        &mut self,
        now: Instant,
        completing: &Completing<'_>,
        syn: &SynReceived,
        listener: ListenerId,
        begun: Begun,
    ) {
        let &Completing { tuple, hash, is_foreign, seq, ack, window, ref whole } = completing;
        let Begun { entry, answered, in_time_wait } = begun;
        let facts = self.facts_of(completing);
        let has_room = self.connections() < self.config.limits.connections;
        let is_ours = !is_foreign && self.is_to_ourselves(tuple);
        let Some(waiting) = self.listeners.get_mut(listener).filter(|it| !it.is_full()) else {
            self.shared.counters.accept_overflows += 1;
            return;
        };
        if !has_room {
            self.shared.counters.connections_over_limit += 1;
            return;
        }
        if waiting.options.requires_agreement() && !facts.agree_with(syn.names) {
            return self.refuse_unwilling(now, completing, entry);
        }
        let mut block = self.spares.take(|| Connection::block(&waiting.options));
        let cx = self.shared.at(now);
        let window = u32::from(window) << syn.peer_scale.unwrap_or(0);
        let synchronized = syn.synchronize(cx, &waiting.options, window, seq, ack);
        cx.counters.established += 1;
        if syn.names_ourselves() && facts.agree_with(syn.names) {
            cx.counters.negotiation_agreed += 1;
        }
        let identity = Identity { hash, ports: tuple.ports() };
        block.accept(identity, &waiting.options, synchronized, now);
        if syn.attempts == 1
            && now > answered
            && let Some(s) = block.synchronized_mut()
        {
            s.send.rtt.on_sample(answered, now, 1);
        }
        // In place of a listener's user nobody hears of it before `accept`.
        match *whole {
            Whole::Usual(usual, piece) => block.on_first_usual(cx, usual, piece),
            Whole::Any(segment, _) => block.on_first(cx, segment, facts),
        }
        block.take_notices();
        let is_over = block.is_over();
        let seat = (tuple, Detour::OURSELVES.only_if(is_ours), Some(listener));
        let ConnectionId { index, .. } = take_seat(&mut self.slots, &mut self.ready, block, seat);
        waiting.queue.push_back(index);
        self.events.push_back(Event::Acceptable(listener));
        match entry {
            Some(entry) => {
                self.demux.replace(hash, entry, index);
                self.syn_cache.remove(entry);
            }
            None => {
                self.list(hash, index);
            }
        }
        if in_time_wait {
            self.end_time_wait(hash, tuple);
        }
        debug_assert!(self.time_wait_record(hash, tuple).is_none(), "a SYN cache entry knows");
        if is_over {
            self.settle_over(now, index);
        }
    }

    /// What is known of a segment that completes a handshake, beside what it says.
    fn facts_of(&self, completing: &Completing<'_>) -> Facts {
        match completing.whole {
            Whole::Any(segment, facts) => self.with_named(completing.tuple, segment, facts),
            // It has no other option than timestamps.
            Whole::Usual(..) => Facts::default(),
        }
    }

    /// The peer has not agreed to our choice, and there is to be no connection without: both ends
    /// forget the handshake.
    fn refuse_unwilling(&mut self, now: Instant, completing: &Completing<'_>, entry: Option<u32>) {
        self.shared.counters.negotiation_refused += 1;
        if let Some(entry) = entry {
            self.drop_half_open(entry);
        }
        if self.may_answer_stranger(now) {
            let &Completing { tuple, ack, .. } = completing;
            self.reply(Reply::segment(tuple, bare_header(tuple, ack, Seq(0), Flags::RST)));
            self.shared.counters.resets_sent += 1;
        }
    }

    pub(super) fn on_syn_cache_time(&mut self, now: Instant) {
        while let Some(due) = self.syn_cache.due(now) {
            match due {
                Due::Answer(slot) => {
                    let Some(half_open) = self.syn_cache.get(slot).copied() else { continue };
                    self.shared.counters.retransmits += 1;
                    self.repeat_syn_ack(now, &half_open.tuple, &half_open.syn);
                }
                Due::Expired(entry) => {
                    self.shared.counters.syn_cache_expired += 1;
                    self.drop_half_open(entry);
                }
            }
        }
    }
}
