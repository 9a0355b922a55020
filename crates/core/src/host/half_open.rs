//! SYN-RECEIVED after a passive open: RFC 9293 §3.10.7.4 for that state, whose connections are
//! entries of the SYN cache, or cookies. Our SYN, ACKs are made here, and the connection that the
//! peer's ACK makes of an entry or a cookie.

use alloc::boxed::Box;

use super::Host;
use super::lookup::{Begun, UnmatchedSegment};
use super::reply::Reply;
use crate::event::{ConnectionId, Event, ListenerId};
use crate::flow::stamp::stamp_at;
use crate::flow::{Seq, Tuple};
use crate::ip::path::IpFields;
use crate::tcp::Connection;
use crate::tcp::connection::{Identity, Meaning, SynReceived, WindowUpdate};
use crate::tcp::slot::{Seat, SlotFlags, take_seat};
use crate::tcp::syn_cache::{Due, HalfOpen, Standing};
use crate::tcp::syn_cookie::CookieFacts;
use crate::tcp::terms::Terms;
use crate::tcp::time_wait::negotiate::{Code, End};
use crate::time::{Duration, Instant};
use crate::wire::fast::Syn;
use crate::wire::tcp::{Flags, Header, PlainSegment};

/// A cookie is believed only this long after one was sent (two steps of its clock).
pub(super) const COOKIES_VALID: Duration = Duration::from_secs(128);

impl Host {
    /// A segment has come for an entry of the SYN cache.
    pub(super) fn on_half_open(
        &mut self,
        now: Instant,
        entry: u32,
        unmatched: &UnmatchedSegment<'_>,
    ) {
        let Some(half_open) = self.opening.syn_cache.get(entry) else { return };
        let &HalfOpen { syn, listener, answered, standing, .. } = half_open;
        let segment = &unmatched.head;
        match syn.judge(segment, syn.paws(segment.stamps), &self.shared.config) {
            Meaning::Nothing => {}
            Meaning::Unacceptable => self.answer_half_open(now, unmatched, &syn),
            Meaning::Reset => {
                self.shared.counters.resets_received += 1;
                self.drop_half_open(entry);
            }
            Meaning::Alien => self.refuse(now, unmatched),
            Meaning::Completes => {
                let in_time_wait = standing != Standing::Unknown;
                let begun = Begun { entry: Some(entry), answered, in_time_wait };
                self.establish_passive(now, unmatched, &syn, listener, begun);
            }
        }
    }

    /// A SYN repeated is answered as the first was; anything else that is unacceptable with an ACK,
    /// within the limit (RFC 9293 §3.10.7.4, RFC 5961 §3.2).
    ///
    /// While TIME-WAIT has a record of its ends, the record answers what is no SYN: the SYN may
    /// have been an old one, or a stranger's, and the peer of the old connection waits for the ACK
    /// of its FIN.
    fn answer_half_open(
        &mut self,
        now: Instant,
        unmatched: &UnmatchedSegment<'_>,
        syn: &SynReceived,
    ) {
        let (tuple, segment) = (unmatched.tuple, &unmatched.head);
        // With ACK it is an answer, and an answer to it would be answered in turn.
        let is_syn = segment.flags.contains(Flags::SYN) && !segment.flags.contains(Flags::ACK);
        if is_syn && segment.seq == syn.irs {
            self.repeat_syn_ack(now, tuple, syn);
        } else if !segment.flags.contains(Flags::SYN)
            && let Some(record) = self.living_record(now, unmatched.hash, tuple)
        {
            self.on_time_wait(now, &record, unmatched);
        } else if self.shared.challenges.take(unmatched.hash, now) {
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
        unmatched: &UnmatchedSegment<'_>,
        syn: &SynReceived,
        listener: ListenerId,
        begun: Begun,
    ) {
        let &UnmatchedSegment { tuple, hash, head, parsed, facts, .. } = unmatched;
        let facts = self.with_named(tuple, parsed, facts);
        let has_room = self.connections() < self.limits().connections;
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
            return self.refuse_unwilling(now, unmatched, begun.entry);
        }
        let mut block = self.live.block_pool.take(|| Connection::block(&waiting.options));
        let cx = self.shared.at(now);
        let PlainSegment { seq, ack, window, .. } = head;
        let window = u32::from(window) << syn.peer_scale.unwrap_or(0);
        let synchronized = syn.synchronize(cx, &waiting.options, WindowUpdate { window, seq, ack });
        cx.counters.established += 1;
        if syn.names_ourselves() && facts.agree_with(syn.names) {
            cx.counters.negotiation_agreed += 1;
        }
        let identity = Identity { hash, ports: tuple.ports() };
        block.accept(identity, &waiting.options, synchronized, now);
        if syn.attempts == 1
            && now > begun.answered
            && let Some(s) = block.synchronized_mut()
        {
            s.send.rtt.on_sample(begun.answered, now, 1);
            s.send.begin_pacing();
        }
        // The listener's user hears nothing of it before `accept`.
        block.take_in(cx, parsed, facts);
        block.take_notices();
        self.queue_for_accept(now, unmatched, block, listener, begun);
    }

    /// Puts the connection in `block` into the accept queue and the tables, in the place of its
    /// half-open entry.
    fn queue_for_accept(
        &mut self,
        now: Instant,
        &UnmatchedSegment { tuple, hash, is_ours, .. }: &UnmatchedSegment<'_>,
        block: Box<Connection>,
        listener: ListenerId,
        Begun { entry, in_time_wait, .. }: Begun,
    ) {
        let is_over = block.is_over();
        let flags = SlotFlags::OURSELVES.only_if(is_ours);
        let seat = Seat { tuple, flags, accepting: Some(listener) };
        let ConnectionId { index, .. } =
            take_seat(&mut self.slots, &mut self.live.ready, block, seat);
        if let Some(waiting) = self.opening.listeners.get_mut(listener) {
            waiting.queue.push_back(index);
        }
        self.events.push_back(Event::Acceptable(listener));
        match entry {
            Some(entry) => {
                self.live.demux.replace(hash, entry, index);
                self.opening.syn_cache.remove(entry);
            }
            None => self.list(hash, index),
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
    fn refuse_unwilling(
        &mut self,
        now: Instant,
        unmatched: &UnmatchedSegment<'_>,
        entry: Option<u32>,
    ) {
        self.shared.counters.negotiation_refused += 1;
        if let Some(entry) = entry {
            self.drop_half_open(entry);
        }
        if self.ip.may_answer_stranger(now) {
            let (tuple, ack) = (unmatched.tuple, unmatched.head.ack);
            self.reply(Reply::segment(tuple, Header::new(tuple.ports(), ack, Seq(0), Flags::RST)));
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
                Due::ExpiredEarly(entry) => {
                    self.shared.counters.syn_cache_expired_early += 1;
                    self.drop_half_open(entry);
                }
            }
        }
    }

    // ---- SYN cookies

    /// Answers a SYN without remembering it (RFC 4987 §3.6).
    pub(super) fn send_cookie(
        &mut self,
        now: Instant,
        unmatched: &UnmatchedSegment<'_>,
        received: SynReceived,
        offer: u16,
        marks: IpFields,
    ) {
        let facts = CookieFacts {
            mss: received.peer_mss,
            window_scale: received.peer_scale,
            sack: received.sack,
            timestamps: received.stamp.is_some(),
            names_us: received.names_ourselves(),
        };
        let tuple = unmatched.tuple;
        let iss = self.opening.cookies.encode(now, tuple, received.irs, facts);
        let carried = facts.carried();
        let syn = SynReceived {
            iss,
            peer_scale: carried.window_scale,
            sack: carried.sack,
            ecn: false,
            stamp: received.stamp.filter(|_| carried.timestamps),
            offer,
            ..received
        };
        let clock = stamp_at(now, syn.stamp_offset);
        self.opening.cookie_sent = now;
        self.shared.counters.cookies_sent += 1;
        let header = syn.header_stamped(tuple.ports(), facts.stamp(clock), &self.shared.config);
        self.reply_syn(tuple, header, syn.names, marks);
    }

    /// An ACK that belongs to nothing may bring a cookie back.
    pub(super) fn accept_cookie(
        &mut self,
        now: Instant,
        unmatched: &UnmatchedSegment<'_>,
        listener: ListenerId,
    ) -> bool {
        if self.opening.cookie_sent == Instant::ZERO
            || now.since(self.opening.cookie_sent) > COOKIES_VALID
        {
            return false;
        }
        let (segment, tuple) = (&unmatched.head, unmatched.tuple);
        let echo = segment.stamps.map(|stamps| stamps.echo);
        let (irs, iss) = (segment.seq - 1, segment.ack - 1);
        let options = self.opening.listeners.get(listener).map(|listener| listener.options.clone());
        let may_name_us = options.as_ref().is_some_and(|options| self.may_name_us(options));
        let facts = self.opening.cookies.check(now, tuple, irs, iss, (echo, may_name_us));
        let Some(facts) = facts else {
            self.shared.counters.cookies_rejected += 1;
            return false;
        };
        let terms = self.listener_terms(listener);
        let chosen = options
            .and_then(|options| self.choose_holder(&options, tuple, unmatched.parsed).ok()?);
        let syn = SynReceived {
            iss,
            irs,
            peer_mss: facts.mss.max(self.shared.config.mss_min),
            mss: terms.mss(tuple.is_ipv6()),
            // What the SYN, ACK with the cookie offered, whatever the budget allows now.
            offer: terms.offer,
            peer_scale: facts.window_scale,
            sack: facts.sack,
            ecn: false,
            stamp: segment.stamps.filter(|_| facts.timestamps).map(|s| s.value),
            stamp_offset: self.stamp_offset(tuple),
            attempts: 1,
            // The cookie proves that we named ourselves, and the peer may rely on it. That we named
            // the peer, its ACK says again, and so proves that it knows.
            names: if facts.names_us {
                Some(End::Ourselves)
            } else {
                chosen.filter(|end| *end == End::Peer)
            },
        };
        self.shared.counters.cookies_accepted += 1;
        // Where the accept queue is full the ACK is as if lost, and no RST must answer it.
        let begun = Begun { entry: None, answered: now, in_time_wait: true };
        self.establish_passive(now, unmatched, &syn, listener, begun);
        true
    }

    /// RFC 9293 §3.10.7.4 in SYN-RECEIVED: what is unacceptable is answered with an ACK.
    pub(super) fn acknowledge_half_open(&mut self, now: Instant, tuple: &Tuple, syn: &SynReceived) {
        let bare = Header::new(tuple.ports(), Seq(0), Seq(0), Flags::ACK);
        let header = syn.answer(bare, now, &self.shared.config);
        self.reply(Reply::segment(tuple, header));
    }

    /// Owes the SYN, ACK of `syn`.
    #[inline(always)]
    pub(super) fn reply_syn_ack(
        &mut self,
        now: Instant,
        tuple: &Tuple,
        syn: &SynReceived,
        marks: IpFields,
    ) {
        let header = syn.header(tuple.ports(), now, &self.shared.config);
        self.reply_syn(tuple, header, syn.names, marks);
    }

    /// Owes a SYN, ACK that names `names` as the holder of TIME-WAIT.
    #[inline(always)]
    fn reply_syn(&mut self, tuple: &Tuple, header: Syn, names: Option<End>, marks: IpFields) {
        let reply = match names {
            None => Reply::syn(tuple, header, marks),
            Some(end) => self.syn_naming(tuple, header.header(), end, marks),
        };
        self.reply(reply);
    }

    fn syn_naming(&self, tuple: &Tuple, mut header: Header, end: End, marks: IpFields) -> Reply {
        let address = match end {
            End::Ourselves => tuple.local_ip(),
            End::Peer => tuple.remote_ip(),
        };
        header.options.experimental = Code::of(&self.shared.config).option(address);
        Reply::marked(tuple, header, marks)
    }

    /// Sends the SYN, ACK once more, with the IP fields that the listener asks for now.
    pub(super) fn repeat_syn_ack(&mut self, now: Instant, tuple: &Tuple, syn: &SynReceived) {
        let listener = self.opening.listeners.find(tuple);
        let marks = listener.map(|(_, listener)| listener.options.ip_fields());
        self.reply_syn_ack(now, tuple, syn, marks.unwrap_or_default());
    }

    /// The terms that our SYN, ACKs for `listener` announce.
    fn listener_terms(&self, listener: ListenerId) -> Terms {
        self.opening.listeners.get(listener).map_or(self.opening.terms, |listener| listener.terms)
    }
}
