//! SYN-RECEIVED after a passive open: RFC 9293 §3.10.7.4 for that state, whose connections are
//! entries of the SYN cache, and the connection that the peer's ACK makes of one, or of a cookie.

use super::Host;
use super::inbound::{Begun, Incoming};
use super::reply::{Reply, bare_header};
use crate::event::{ConnectionId, Event, ListenerId};
use crate::flow::Seq;
use crate::tcp::Connection;
use crate::tcp::connection::{Identity, Meaning, SynReceived, WindowUpdate};
use crate::tcp::slot::{SlotFlags, take_seat};
use crate::tcp::syn_cache::{Due, HalfOpen};
use crate::time::Instant;
use crate::wire::tcp::{Flags, Plain};

impl Host {
    /// A segment has come for an entry of the SYN cache.
    pub(super) fn on_half_open(&mut self, now: Instant, entry: u32, incoming: &Incoming<'_>) {
        let Some(half_open) = self.opening.syn_cache.get(entry) else { return };
        let &HalfOpen { syn, listener, answered, in_time_wait, .. } = half_open;
        let segment = &incoming.head;
        let is_old = syn.is_stale(segment.stamps);
        match syn.judge(segment, is_old, &self.shared.config) {
            Meaning::Nothing => {}
            Meaning::Unacceptable => self.answer_half_open(now, incoming, &syn),
            Meaning::Reset => {
                self.shared.counters.resets_received += 1;
                self.drop_half_open(entry);
            }
            Meaning::Alien => self.refuse(now, incoming),
            Meaning::Completes => {
                let begun = Begun { entry: Some(entry), answered, in_time_wait };
                self.establish_passive(now, incoming, &syn, listener, begun);
            }
        }
    }

    /// A SYN repeated is answered as the first was; anything else that is unacceptable with an ACK,
    /// within the limit (RFC 9293 §3.10.7.4, RFC 5961 §3.2).
    ///
    /// While TIME-WAIT has a record of its ends, the record answers what is no SYN: the SYN may
    /// have been an old one, or a stranger's, and the peer of the old connection waits for the ACK
    /// of its FIN.
    fn answer_half_open(&mut self, now: Instant, incoming: &Incoming<'_>, syn: &SynReceived) {
        let (tuple, segment) = (incoming.tuple, &incoming.head);
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
        let half_open = *self.opening.syn_cache.get(entry)?;
        self.opening.syn_cache.remove(entry);
        self.live.demux.remove(half_open.hash, entry);
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
        incoming: &Incoming<'_>,
        syn: &SynReceived,
        listener: ListenerId,
        begun: Begun,
    ) {
        let &Incoming { tuple, hash, head, received, facts, is_ours } = incoming;
        let Begun { entry, answered, in_time_wait } = begun;
        let facts = self.with_named(tuple, received, facts);
        let has_room = self.connections() < self.config.limits.connections;
        let Some(waiting) = self.opening.listeners.get_mut(listener).filter(|it| !it.is_full())
        else {
            self.shared.counters.accept_overflows += 1;
            return;
        };
        if !has_room {
            self.shared.counters.connections_over_limit += 1;
            return;
        }
        if waiting.options.requires_agreement() && !facts.agree_with(syn.names) {
            return self.refuse_unwilling(now, incoming, entry);
        }
        let mut block = self.live.block_pool.take(|| Connection::block(&waiting.options));
        let cx = self.shared.at(now);
        let Plain { seq, ack, window, .. } = head;
        let window = u32::from(window) << syn.peer_scale.unwrap_or(0);
        let synchronized = syn.synchronize(cx, &waiting.options, WindowUpdate { window, seq, ack });
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
        // The listener's user hears nothing of it before `accept`.
        block.on_first(cx, received, facts);
        block.take_notices();
        let is_over = block.is_over();
        let seat = (tuple, SlotFlags::OURSELVES.only_if(is_ours), Some(listener));
        let ConnectionId { index, .. } =
            take_seat(&mut self.slots, &mut self.live.ready, block, seat);
        waiting.queue.push_back(index);
        self.events.push_back(Event::Acceptable(listener));
        match entry {
            Some(entry) => {
                self.live.demux.replace(hash, entry, index);
                self.opening.syn_cache.remove(entry);
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
            self.reap(now, index);
        }
    }

    /// The peer has not agreed to our choice, and there is to be no connection without: both ends
    /// forget the handshake.
    fn refuse_unwilling(&mut self, now: Instant, incoming: &Incoming<'_>, entry: Option<u32>) {
        self.shared.counters.negotiation_refused += 1;
        if let Some(entry) = entry {
            self.drop_half_open(entry);
        }
        if self.may_answer_stranger(now) {
            let (tuple, ack) = (incoming.tuple, incoming.head.ack);
            self.reply(Reply::segment(tuple, bare_header(tuple, ack, Seq(0), Flags::RST)));
            self.shared.counters.resets_sent += 1;
        }
    }

    pub(super) fn on_syn_cache_time(&mut self, now: Instant) {
        while let Some(due) = self.opening.syn_cache.due(now) {
            match due {
                Due::Answer(slot) => {
                    let Some(half_open) = self.opening.syn_cache.get(slot).copied() else {
                        continue;
                    };
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
