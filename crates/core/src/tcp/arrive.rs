//! A segment arrives: RFC 9293 §3.10.7, one function per numbered step.
//!
//! ```text
//!   on_segment ─┬─ the predicted one         arrive/predicted.rs
//!               ├─ SYN-SENT      §3.10.7.3  arrive/syn_sent.rs
//!               ├─ SYN-RECEIVED  §3.10.7.4  arrive/syn_received.rs (simultaneous open)
//!               └─ synchronized  §3.10.7.4
//!                    check_stamp      RFC 7323 §5 (PAWS), before everything
//!                    check_sequence   first
//!                    check_reset      second
//!                    (third: security, not used)
//!                    check_syn        fourth
//!                    check_ack        fifth
//!                    check_urgent     sixth
//!                    take_text        seventh
//!                    take_fin         eighth
//! ```
//!
//! A step either passes the segment on or consumes it, and may end the connection ([`Passed`]).
//! Nothing is sent from here: steps only mark what is owed, and [`emit`](crate::tcp::emit) sends
//! once, when the whole batch has been taken in.

mod marks;
mod predicted;
mod syn_received;
mod syn_sent;

use core::ops::ControlFlow::{Break, Continue};

use crate::error::Error;
use crate::event::Readiness;
use crate::flow::Seq;
use crate::flow::stamp::Stamps;
use crate::tcp::connection::{
    Blocked, Common, Connection, Context, Early, Ending, Passed, Shape, Step, Synchronized,
};
use crate::tcp::recv::Text;
use crate::tcp::send::rack::Evidence;
use crate::tcp::send::recovery::Mode;
use crate::tcp::send::{SendHalf, Times};
use crate::tcp::time_wait::negotiate::{End, Holder, Holding};
use crate::tcp::timers::Timer;
use crate::tcp::{State, ecn};
use crate::time::Instant;
use crate::wire::options::{SackBlock, Timestamps};
use crate::wire::parsed::ParsedSegment;
use crate::wire::tcp::{Flags, Segment};

/// The facts about a segment that its header does not say.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Facts {
    /// Payload size of the segments that were joined into it; 0 if it is a single one.
    pub piece: u16,
    /// Its packet was marked: congestion experienced (RFC 3168 §5). Of the fast layout the segment
    /// itself says so.
    pub marked: bool,
    /// The end that it names as the holder of TIME-WAIT.
    pub named: Option<End>,
    /// Our address is the larger one; set where the segment names an end.
    pub are_larger: bool,
}

impl Facts {
    /// The facts of a segment that was joined from others of `piece` bytes each.
    pub(crate) fn of_piece(piece: u16) -> Facts {
        Facts { piece, ..Facts::default() }
    }

    /// These facts, of a segment in a packet of this traffic class.
    pub(crate) fn with_class(self, class: u8) -> Facts {
        Facts { marked: class & ecn::MASK == ecn::CE, ..self }
    }

    /// True if it repeats the end that our SYN, ACK names.
    pub(crate) fn agree_with(self, names: Option<End>) -> bool {
        names.is_some() && self.named == names
    }
}

/// A segment on its way through the steps, which trim it to the window.
struct Trimmed<'a> {
    segment: &'a Segment<'a>,
    /// Payload size of the segments joined into this one.
    piece: u16,
    /// The part of the payload inside the window, and where it starts.
    seq: Seq,
    text: &'a [u8],
    /// FIN is inside the window too.
    fin: bool,
}

/// The segment is done with.
const DONE: Passed = Break(None);

/// It is the connection's last.
const fn ends(ending: Ending) -> Passed {
    Break(Some(ending))
}

/// When the segment arrived: by the device if it knows, else now.
fn times(cx: &Context) -> Times {
    let now = cx.now;
    Times { now, heard: if cx.arrived == Instant::FAR_FUTURE { now } else { cx.arrived } }
}

impl Connection {
    /// A segment has come, verified and addressed to this connection: counts it and takes it in.
    #[inline(always)]
    pub(crate) fn on_segment(&mut self, cx: &mut Context, parsed: ParsedSegment<'_>, facts: Facts) {
        cx.counters.segments_in += 1;
        self.take_in(cx, parsed, facts);
    }

    /// Takes in a segment that is counted: the predicted one in one pass, any other by the steps.
    #[inline(always)]
    pub(crate) fn take_in(&mut self, cx: &mut Context, parsed: ParsedSegment<'_>, facts: Facts) {
        let plain = parsed.plain();
        if !plain.is_some_and(|plain| self.take_predicted(cx, &plain, facts.piece)) {
            self.take_any(cx, parsed, facts);
        }
    }

    fn take_any(&mut self, cx: &mut Context, parsed: ParsedSegment<'_>, facts: Facts) {
        if let Shape::SynSent(syn) = &self.shape {
            let (syn, segment) = (*syn, parsed.segment());
            self.on_syn_sent(cx, syn, &segment, facts);
            return self.take_rest_of_syn(cx, &segment, facts);
        }
        match parsed {
            ParsedSegment::Fast(fast) => {
                let facts = facts.with_class(fast.traffic_class());
                self.take_by_steps(cx, &fast.segment(), facts);
            }
            ParsedSegment::Fields(segment) => self.take_by_steps(cx, segment, facts),
        }
    }

    fn take_by_steps(&mut self, cx: &mut Context, segment: &Segment<'_>, facts: Facts) {
        match &mut self.shape {
            Shape::SynReceived(syn, _) => {
                let syn = *syn;
                self.on_syn_received(cx, syn, segment, facts);
            }
            Shape::Synchronized(s) => {
                let mut step = Step { cx, common: &mut self.common, s };
                let received = step.s.passed.received;
                let passed = step.on_synchronized(segment, facts);
                step.enter_heard(segment, facts.piece, received);
                self.conclude(passed, cx);
            }
            Shape::SynSent(_) | Shape::Ended(_) => {}
        }
    }

    /// RFC 9293 §3.10.7.3, fourth: what came with SYN, ACK continues at the sixth step, as if it
    /// had come behind it. Mostly nothing has.
    fn take_rest_of_syn(&mut self, cx: &mut Context, syn: &Segment<'_>, facts: Facts) {
        if syn.payload.is_empty() && !syn.flags.intersects(Flags::FIN | Flags::URG) {
            return;
        }
        let urgent = syn.urgent.saturating_sub(1);
        let flags = syn.flags.without(Flags::SYN);
        self.take_rest(cx, &Segment { seq: syn.seq + 1, flags, urgent, ..*syn }, facts.piece);
    }

    /// Takes in the text that came with the SYN of `irs`; `segment` completes the handshake.
    fn take_early(&mut self, cx: &mut Context, early: Early, irs: Seq, segment: &Segment<'_>) {
        let (text, flags, urgent) = early.take(&mut cx.pool);
        let (seq, payload) = (irs + 1, text.as_slice());
        let flags = flags | Flags::ACK;
        self.take_rest(cx, &Segment { seq, flags, urgent, payload, ..*segment }, 0);
        if let Some(step) = self.step(cx) {
            // It has waited long enough.
            step.s.recv.ack.now = true;
        }
    }

    fn take_rest(&mut self, cx: &mut Context, segment: &Segment<'_>, piece: u16) {
        if let Some(mut step) = self.step(cx) {
            let passed = step.take_rest(segment, piece);
            self.conclude(passed, cx);
        }
    }
}

impl Step<'_> {
    /// Every step.
    fn on_synchronized(&mut self, segment: &Segment<'_>, facts: Facts) -> Passed {
        let mut trimmed = self.untrimmed(segment, facts.piece);
        self.check_stamp(segment)?;
        self.check_sequence(&mut trimmed)?;
        self.check_reset(segment)?;
        self.check_syn(segment)?;
        self.s.note_heard(self.common, self.cx.now);
        self.check_ack(segment)?;
        self.hear_naming(facts.named);
        if !segment.payload.is_empty() {
            self.s.note_mark(segment.flags, facts.marked);
        }
        self.check_urgent(&trimmed);
        self.take_text(&trimmed)?;
        self.take_fin()
    }

    /// The steps behind the fifth.
    fn take_rest(&mut self, segment: &Segment<'_>, piece: u16) -> Passed {
        let mut trimmed = self.untrimmed(segment, piece);
        self.check_sequence(&mut trimmed)?;
        self.check_urgent(&trimmed);
        self.take_text(&trimmed)?;
        self.take_fin()
    }

    fn untrimmed<'s>(&self, segment: &'s Segment<'s>, piece: u16) -> Trimmed<'s> {
        let (seq, text) = (segment.seq, segment.payload);
        let piece = if piece == 0 { self.s.recv.whole_piece(text.len()) } else { piece };
        Trimmed { segment, piece, seq, text, fin: false }
    }

    /// RFC 7323 §3.2: a segment without the agreed timestamp is dropped (unless the configuration
    /// takes such); §5.3 R1: an old one is answered with an ACK and dropped. RST passes both.
    fn check_stamp(&mut self, segment: &Segment<'_>) -> Passed {
        let Some(stamps) = self.s.stamps else { return Continue(()) };
        if segment.flags.contains(Flags::RST) {
            return Continue(());
        }
        let Some(stamp) = segment.options.timestamps else {
            self.cx.counters.timestamp_missing += 1;
            if self.cx.config.quirks.missing_timestamps {
                return Continue(());
            }
            // RFC 5961 §4.2: a SYN is challenged whatever it carries. It may be that of a peer that
            // has lost its state, which the answer lets find out.
            if segment.flags.contains(Flags::SYN) {
                self.cx.counters.challenged_syns += 1;
                self.challenge();
            }
            return DONE;
        };
        if !stamps.is_old(stamp.value, self.cx.now) {
            return Continue(());
        }
        self.cx.counters.paws_rejected += 1;
        // What was sent again in vain and came late is old as well, and its sender should hear so.
        self.note_duplicate(segment);
        self.answer_unacceptable(segment);
        DONE
    }

    /// First step: is any of it in the window? Then cut it to the window.
    fn check_sequence(&mut self, trimmed: &mut Trimmed<'_>) -> Passed {
        let segment = trimmed.segment;
        let recv = &self.s.recv;
        let at_closed_window = recv.offered() == 0 && segment.seq == recv.nxt;
        let window =
            if self.cx.config.quirks.unannounced_window { recv.possible() } else { recv.offered() };
        if !recv.accepts(segment.seq, segment.sequence_len(), window) && !at_closed_window {
            self.cx.counters.out_of_window += 1;
            if segment.flags.contains(Flags::RST) {
                return DONE;
            }
            self.note_duplicate(segment);
            self.answer_unacceptable(segment);
            return DONE;
        }
        let edge = recv.nxt + recv.offered();
        // SYN inside the window never passes the fourth step, so it takes no number here.
        let end = segment.seq + segment.payload.len() as u32;
        trimmed.fin = segment.flags.contains(Flags::FIN) && end.before(edge);
        let beyond = end.distance(edge).clamp(0, segment.payload.len() as i32) as usize;
        trimmed.text = &segment.payload[..segment.payload.len() - beyond];
        // What did not fit must be heard of at once, a zero-window probe above all.
        if beyond > 0 || (at_closed_window && segment.sequence_len() > 0) {
            self.s.recv.ack.now = true;
        }
        Continue(())
    }

    /// RFC 2883 §4: data that lies before the window is reported as a duplicate.
    fn note_duplicate(&mut self, segment: &Segment<'_>) {
        let recv = &mut self.s.recv;
        let end = segment.seq + segment.payload.len() as u32;
        // Its beginning counts too: what starts half the space ahead seems to end behind.
        let behind = segment.seq.before(recv.nxt) && end.at_or_before(recv.nxt);
        if !segment.payload.is_empty() && behind {
            recv.note_duplicate(SackBlock { start: segment.seq, end });
        }
    }

    /// RFC 9293 §3.10.7.4: an unacceptable segment is answered with an ACK. One that carries
    /// nothing is itself perhaps such an answer, so it is answered within a limit.
    fn answer_unacceptable(&mut self, segment: &Segment<'_>) {
        if segment.sequence_len() > 0 && !segment.flags.contains(Flags::SYN) {
            self.s.recv.ack.now = true;
        } else {
            self.challenge();
        }
    }

    /// Owes a challenge ACK, if the limit allows one.
    fn challenge(&mut self) {
        if self.cx.challenges.take(self.common.identity.hash, self.cx.now) {
            self.s.recv.ack.now = true;
        } else {
            self.cx.counters.challenges_suppressed += 1;
        }
    }

    /// Second step, as RFC 5961 §3.2 has it: exactly at RCV.NXT it resets; elsewhere in the window
    /// it is challenged (`quirks.insecure_rst`: it resets, as RFC 793 had it).
    fn check_reset(&mut self, segment: &Segment<'_>) -> Passed {
        if !segment.flags.contains(Flags::RST) {
            return Continue(());
        }
        if segment.seq != self.s.recv.nxt && !self.cx.config.quirks.insecure_rst {
            self.cx.counters.challenged_resets += 1;
            self.challenge();
            return DONE;
        }
        self.cx.counters.resets_received += 1;
        let error = match self.common.state() {
            // By an agreement we hold TIME-WAIT: the peer has closed, and the RST stands for the
            // ACK of our FIN. An RST at another number in the window is no answer to that FIN.
            State::Closing | State::LastAck
                if self.s.holder == Holder::Ourselves
                    && segment.seq == self.s.recv.nxt
                    && self.s.send.only_fin_in_flight() =>
            {
                return ends(Ending::TimeWait(Holding::Agreed));
            }
            // Both ends have closed, and each has all that the other sent.
            State::Closing | State::LastAck if self.s.send.buffer.is_empty() => None,
            // MUST-12: what we sent may be lost.
            _ => Some(Error::ConnectionReset),
        };
        ends(Ending::Closed(error))
    }

    /// Fourth step, as RFC 5961 §4.2 has it: a SYN is challenged wherever it lies. With
    /// `quirks.insecure_syn` it resets the connection, as RFC 793 had it.
    fn check_syn(&mut self, segment: &Segment<'_>) -> Passed {
        if !segment.flags.contains(Flags::SYN) {
            return Continue(());
        }
        if self.cx.config.quirks.insecure_syn {
            return ends(Ending::Aborted(Error::ConnectionReset));
        }
        self.cx.counters.challenged_syns += 1;
        self.challenge();
        DONE
    }

    /// Fifth step.
    fn check_ack(&mut self, segment: &Segment<'_>) -> Passed {
        if !segment.flags.contains(Flags::ACK) {
            return DONE;
        }
        if !self.s.send.accepts(segment.ack) {
            self.cx.counters.unacceptable_acks += 1;
            self.challenge();
            return DONE;
        }
        let was_closed = self.s.send.window == 0;
        self.s.note_stamp(segment.seq, segment.options.timestamps, self.cx.now);
        let offset = self.s.stamps.map(|stamps| stamps.offset);
        let evidence = Evidence::of(offset, segment.options.timestamps);
        let Step { cx, s, .. } = self;
        let flight = s.send.flight();
        let asks = s.ecn.is_some() && segment.flags.contains(Flags::ECE);
        let is_congested = asks && s.send.mode() == Mode::Open;
        let outcome = s.send.on_ack(times(cx), segment, evidence, !is_congested, &mut cx.pool);
        cx.counters.fast_recoveries += u64::from(outcome.entered);
        cx.counters.duplicate_sacks += u64::from(outcome.duplicate.is_some());
        cx.counters.recoveries_undone += u64::from(outcome.undone);
        if outcome.undone || outcome.duplicate.is_some() {
            let tally = s.send.tally_mut();
            tally.duplicate_sacks += u32::from(outcome.duplicate.is_some());
            tally.undone += u32::from(outcome.undone);
        }
        if s.ecn.is_some() {
            self.heed_marks(segment, &outcome, flight, is_congested);
        }
        let Step { cx, common, s } = self;
        if was_closed {
            // A peer that keeps its window shut and answers is alive (RFC 9293 MUST-37), and is
            // asked again an interval later; but it must not keep an orphan for ever.
            let answers = !common.orphan && s.send.stop_waiting();
            if answers || s.send.window > 0 {
                common.deadlines.cancel(Timer::Persist);
            }
            if answers {
                common.deadlines.cancel(Timer::Retransmit);
            }
        }
        if outcome.progress {
            s.passed.acknowledged += outcome.freed as u64;
            common.on_una_moved(&mut s.send, outcome.freed, cx);
        }
        if outcome.fin { self.on_fin_acked() } else { Continue(()) }
    }

    /// A segment that is no SYN has come and is sound: the peer is established, and so has heard
    /// which end we name. If it names itself, that is the proof that lets us leave TIME-WAIT to it.
    fn hear_naming(&mut self, named: Option<End>) {
        self.s.naming = 0;
        if self.s.holder.hear(named) {
            self.cx.counters.negotiation_agreed += 1;
        }
    }

    /// Our FIN is acknowledged: FIN-WAIT-1, CLOSING and LAST-ACK move on.
    fn on_fin_acked(&mut self) -> Passed {
        let Step { cx, common, s } = self;
        match common.state() {
            State::FinWait1 => {
                common.state.transition(State::FinWait2);
                if common.orphan {
                    common.end_patience_of_orphan();
                    let limit = common.options.fin_wait_2_timeout;
                    common.deadlines.set(Timer::FinWait2, cx.now + limit);
                }
                Continue(())
            }
            State::Closing => ends(Ending::TimeWait(s.holder.holding())),
            State::LastAck => match s.holder {
                Holder::Ourselves => ends(Ending::TimeWait(Holding::Agreed)),
                Holder::Closer | Holder::Unproven if common.options.close_swap => {
                    ends(Ending::TimeWait(Holding::Swapped))
                }
                _ => ends(Ending::LastAck),
            },
            _ => Continue(()),
        }
    }

    /// Sixth step: RCV.UP only moves forward, and the user hears of it (RFC 9293 MUST-32, 33). The
    /// pointer is taken as the number after the last urgent byte, as RFC 6093 §4 recommends.
    fn check_urgent(&mut self, trimmed: &Trimmed<'_>) {
        let segment = trimmed.segment;
        if !segment.flags.contains(Flags::URG) || segment.urgent == 0 {
            return;
        }
        if !self.common.state().can_receive() {
            return;
        }
        let up = segment.seq + u32::from(segment.urgent);
        let recv = &mut self.s.recv;
        if up.after(recv.nxt) && recv.urgent().is_none_or(|urgent| up.after(urgent)) {
            recv.note_urgent(up);
            self.common.notices |= Readiness::URGENT;
        }
    }

    /// Seventh step. Data for an orphan cannot be delivered, and the peer must hear it
    /// (RFC 9293 §3.6.1, RFC 2525 §2.17).
    fn take_text(&mut self, trimmed: &Trimmed<'_>) -> Passed {
        let state = self.common.state();
        let unheard = self.common.orphan || (self.common.read_shut && state != State::Established);
        if !state.can_receive() {
            return DONE;
        }
        if trimmed.fin {
            let fin = trimmed.seq + trimmed.segment.payload.len() as u32;
            self.s.recv.on_fin(fin);
        }
        let (seq, text) = (trimmed.seq, cut_at(trimmed, self.s.recv.fin));
        if text.is_empty() {
            if trimmed.fin && trimmed.seq.after(self.s.recv.nxt) {
                self.s.recv.on_out_of_order(trimmed.seq);
            }
            return Continue(());
        }
        if unheard && (seq + text.len() as u32).after(self.s.recv.nxt) {
            return ends(Ending::Aborted(Error::ConnectionReset));
        }
        let had_holes = self.s.recv.has_holes();
        let taken = self.s.recv.on_text(seq, text, &mut self.cx.pool, &mut self.cx.counters);
        self.acknowledge_text(taken, had_holes, trimmed.piece);
        Continue(())
    }

    fn acknowledge_text(&mut self, taken: Text, had_holes: bool, piece: u16) {
        let Step { cx, common, s } = self;
        match taken {
            Text::InOrder(advanced) => {
                s.passed.received += u64::from(advanced);
                s.recv.on_advance();
                let ack = &mut s.recv.ack;
                ack.on_data(advanced, piece, cx.now, &cx.config, &mut common.deadlines);
                // RFC 5681 §4.2: what fills a hole, wholly or in part, is acknowledged at once.
                ack.now |= had_holes;
                s.recv.window.on_data(s.recv.nxt, s.send.rtt.srtt_ns(), cx.now);
                common.notices |= Readiness::READABLE;
            }
            Text::OutOfOrder(seq) => {
                s.send.tally_mut().out_of_order += 1;
                s.recv.on_out_of_order(seq);
            }
            Text::Duplicate | Text::Dropped => s.recv.ack.now = true,
        }
    }

    /// Eighth step: FIN counts when everything before it has arrived.
    #[inline(always)]
    fn take_fin(&mut self) -> Passed {
        let state = self.common.state();
        let recv = &mut self.s.recv;
        if recv.fin != Some(recv.nxt) {
            return Continue(());
        }
        if self.s.holder == Holder::Peer
            && matches!(state, State::FinWait1 | State::FinWait2)
            && self.s.send.told_by_fin != recv.nxt
        {
            // Text came behind our FIN, and the peer may wait for more than the ACK of its own. If
            // ours are lost, an RST would not tell it that the text was received; a record of our
            // own does.
            self.s.holder = Holder::Closer;
        }
        recv.nxt += 1;
        recv.on_advance();
        recv.ack.now = true;
        self.common.notices |= Readiness::READABLE;
        match state {
            State::Established => self.common.state.transition(State::CloseWait),
            State::FinWait1 => {
                self.common.state.transition(State::Closing);
                self.s.send.fin_again = self.cx.config.quirks.repeat_fin;
            }
            State::FinWait2 => {
                self.s.recv.window.pass_fin();
                return ends(Ending::TimeWait(self.s.holder.holding()));
            }
            _ => {}
        }
        Continue(())
    }
}

impl Common {
    /// SND.UNA has moved, and so many bytes of the buffer are free.
    #[inline(always)]
    fn on_una_moved(&mut self, send: &mut SendHalf, freed: usize, cx: &mut Context) {
        self.go_on();
        self.deadlines.cancel(Timer::Retransmit);
        if freed > 0 && self.blocked != Blocked::No {
            self.on_freed(send, cx);
        }
    }
}

impl Synchronized {
    /// RFC 7323 §4.3: TS.Recent follows segments that cover Last.ACK.sent, so that a delayed ACK
    /// echoes the first of the segments it acknowledges. Only once the segment has passed PAWS, and
    /// the ACK was found acceptable: a stranger that guesses a number in the window must not move
    /// TS.Recent, or PAWS would then drop what the peer sends.
    fn note_stamp(&mut self, seq: Seq, stamps: Option<Timestamps>, now: Instant) {
        if let (Some(recent), Some(stamp)) = (&mut self.stamps, stamps)
            && seq.at_or_before(self.recv.ack.last_sent)
        {
            *recent = Stamps::new(recent.offset, stamp.value, now);
        }
    }

    /// Data has arrived, in a segment with `flags`, in a packet that was marked or not.
    fn note_mark(&mut self, flags: Flags, marked: bool) {
        let Some(ecn) = &mut self.ecn else { return };
        let Some(echo) = self.send.congestion.echo_mut() else { return ecn.on_data(flags, marked) };
        let recv = &mut self.recv;
        recv.ack.now |= echo.on_data(marked, recv.nxt, recv.ack.last_sent);
    }

    /// The peer is alive: keepalive starts over.
    #[inline(always)]
    fn note_heard(&mut self, common: &mut Common, now: Instant) {
        self.last_heard = now;
        self.keepalive_probes = 0;
        if let Some(keepalive) = &common.options.keepalive {
            common.deadlines.set(Timer::KeepAlive, now + keepalive.idle);
        }
    }
}

/// The text before the stream's end: nothing counts beyond a FIN that has been seen.
fn cut_at<'a>(trimmed: &Trimmed<'a>, fin: Option<Seq>) -> &'a [u8] {
    let text = trimmed.text;
    let keep = fin.map_or(text.len(), |fin| fin.distance(trimmed.seq).max(0) as usize);
    &text[..keep.min(text.len())]
}
