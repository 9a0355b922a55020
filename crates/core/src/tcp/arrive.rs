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
//! A step either lets the segment pass on or ends its life ([`ControlFlow::Break`]). Nothing is
//! sent from here: steps only mark what is owed, and [`emit`](crate::tcp::emit) speaks once when
//! the whole batch has been taken in.

mod predicted;
mod syn_received;
pub(crate) mod syn_sent;

use core::ops::ControlFlow::{self, Break, Continue};

use crate::error::Error;
use crate::event::Readiness;
use crate::flow::Seq;
use crate::tcp::connection::{Blocked, Connection, Context, Early, Shape, Stamps, Synchronized};
use crate::tcp::recv::Text;
use crate::tcp::send::Acked;
use crate::tcp::send::recovery::Mode;
use crate::tcp::timers::{Deadlines, Timer};
use crate::tcp::{SocketOptions, State, ecn};
use crate::time::Instant;
use crate::wire::options::SackBlock;
use crate::wire::tcp::{Flags, Plain, Segment};
use crate::wire::usual::Usual;

/// What is known of a segment beside what it says.
#[derive(Clone, Copy, Debug, Default)]
pub struct Facts {
    /// Payload size of the segments that were joined into it; 0 if it is a single one.
    pub piece: u16,
    /// Its packet was marked: congestion experienced (RFC 3168 §5).
    pub marked: bool,
}

impl Facts {
    /// Of a packet of this traffic class.
    pub fn new(piece: u16, class: u8) -> Facts {
        Facts { piece, marked: class & ecn::MASK == ecn::CE }
    }
}

/// A segment on its way through the steps.
struct Arrival<'a> {
    segment: &'a Segment<'a>,
    /// Payload size of the segments joined into this one.
    piece: u16,
    /// The part of the payload inside the window, and where it starts.
    seq: Seq,
    text: &'a [u8],
    /// FIN is inside the window too.
    fin: bool,
}

type Step = ControlFlow<()>;

/// The time of the call, and when the segment arrived: by the device if it knows, else the same.
/// The second is to be compared with other such times alone.
fn times(cx: &Context) -> (Instant, Instant) {
    (cx.now, if cx.arrived == Instant::FAR_FUTURE { cx.now } else { cx.arrived })
}

impl Connection {
    /// Takes in one segment, verified and addressed to this connection.
    pub fn on_segment(&mut self, cx: &mut Context, segment: &Segment<'_>, facts: Facts) {
        cx.counters.segments_in += 1;
        self.on_first(cx, segment, facts);
    }

    /// The same of the first segment, which has completed the handshake and is counted.
    pub fn on_first(&mut self, cx: &mut Context, segment: &Segment<'_>, facts: Facts) {
        let plain = segment.plain();
        if !plain.is_some_and(|plain| self.take_plain(cx, &plain, facts.piece)) {
            self.take_by_steps(cx, segment, facts);
        }
    }

    /// As [`Connection::on_usual`], of the first segment, which has completed the handshake and is
    /// counted.
    pub fn on_first_usual(&mut self, cx: &mut Context, usual: &Usual<'_>, piece: u16) {
        let plain = usual.plain();
        if !plain.is_some_and(|plain| self.take_plain(cx, &plain, piece)) {
            self.take_usual_by_steps(cx, *usual, piece);
        }
    }

    /// As [`Connection::take_predicted`], for whoever is not on everybody's way.
    fn take_plain(&mut self, cx: &mut Context, plain: &Plain<'_>, piece: u16) -> bool {
        self.take_predicted(cx, plain, piece)
    }

    /// As [`Connection::on_segment`], of one of the usual layout, whose segments joined into it
    /// have `piece` bytes each.
    #[inline(always)]
    pub fn on_usual(&mut self, cx: &mut Context, usual: &Usual<'_>, piece: u16) {
        cx.counters.segments_in += 1;
        let plain = usual.plain();
        if !plain.is_some_and(|plain| self.take_predicted(cx, &plain, piece)) {
            self.take_usual_by_steps(cx, *usual, piece);
        }
    }

    fn take_usual_by_steps(&mut self, cx: &mut Context, usual: Usual<'_>, piece: u16) {
        if let Shape::SynSent(syn) = &self.shape
            && usual.is_bare_syn()
        {
            // Nothing continues at the sixth step.
            return self.on_syn_sent(cx, *syn, &usual.segment());
        }
        let facts = Facts::new(piece, usual.traffic_class());
        self.take_by_steps(cx, &usual.segment(), facts);
    }

    fn take_by_steps(&mut self, cx: &mut Context, segment: &Segment<'_>, facts: Facts) {
        match &self.shape {
            // Break and Continue mean the same here: the segment is done with.
            Shape::SynSent(syn) => {
                self.on_syn_sent(cx, *syn, segment);
                let _done = self.take_rest_of_syn(cx, segment, facts);
            }
            Shape::SynReceived(syn, _) => self.on_syn_received(cx, *syn, segment, facts),
            Shape::Synchronized(_) => {
                let _done = self.on_synchronized(cx, segment, facts);
            }
            Shape::Ended(_) => {}
        }
    }

    fn on_synchronized(&mut self, cx: &mut Context, segment: &Segment<'_>, facts: Facts) -> Step {
        let whole = self.parts().recv.whole_piece(segment.payload.len());
        let piece = if facts.piece == 0 { whole } else { facts.piece };
        let mut arrival =
            Arrival { segment, piece, seq: segment.seq, text: segment.payload, fin: false };
        self.check_stamp(cx, segment)?;
        self.check_sequence(cx, &mut arrival)?;
        self.check_reset(cx, segment)?;
        self.check_syn(cx, segment)?;
        self.note_heard(cx.now);
        self.check_ack(cx, segment)?;
        if let Some(ecn) = self.parts().ecn.as_mut().filter(|_| !segment.payload.is_empty()) {
            ecn.on_data(segment.flags, facts.marked);
        }
        self.check_urgent(&arrival);
        self.take_text(cx, &arrival)?;
        self.take_fin(cx)
    }

    /// RFC 9293 §3.10.7.3, fourth: what came with SYN, ACK continues at the sixth step, as if it
    /// had come behind it.
    fn take_rest_of_syn(&mut self, cx: &mut Context, syn: &Segment<'_>, facts: Facts) -> Step {
        let urgent = syn.urgent.saturating_sub(1);
        let flags = syn.flags.without(Flags::SYN);
        self.take_rest(cx, &Segment { seq: syn.seq + 1, flags, urgent, ..*syn }, facts.piece)
    }

    /// The same: what came with the SYN of `irs`, of which `segment` completes the handshake.
    fn take_early(&mut self, cx: &mut Context, early: Early, irs: Seq, segment: &Segment<'_>) {
        let (text, flags, urgent) = early.take(&mut cx.pool);
        let (seq, payload) = (irs + 1, text.as_slice());
        let flags = flags | Flags::ACK;
        // Break and Continue mean the same here: what is queued is done with.
        let _done = self.take_rest(cx, &Segment { seq, flags, urgent, payload, ..*segment }, 0);
        if let Shape::Synchronized(s) = &mut self.shape {
            // It has waited long enough.
            s.recv.ack.now = true;
        }
    }

    fn take_rest(&mut self, cx: &mut Context, segment: &Segment<'_>, piece: u16) -> Step {
        let Shape::Synchronized(s) = &self.shape else { return Break(()) };
        let (seq, text) = (segment.seq, segment.payload);
        if text.is_empty() && !segment.flags.intersects(Flags::FIN | Flags::URG) {
            return Break(());
        }
        let piece = if piece == 0 { s.recv.whole_piece(text.len()) } else { piece };
        let mut arrival = Arrival { segment, piece, seq, text, fin: false };
        self.check_sequence(cx, &mut arrival)?;
        self.check_urgent(&arrival);
        self.take_text(cx, &arrival)?;
        self.take_fin(cx)
    }

    /// What every step but the handshake's works on.
    fn parts(&mut self) -> &mut Synchronized {
        match &mut self.shape {
            Shape::Synchronized(synchronized) => synchronized,
            _ => unreachable!("a step past the first needs the synchronized shape"),
        }
    }

    /// RFC 7323 §3.2: a segment without the agreed timestamp is dropped (unless the configuration
    /// takes such); §5.3 R1: an old one is answered with an ACK and dropped. RST passes both.
    fn check_stamp(&mut self, cx: &mut Context, segment: &Segment<'_>) -> Step {
        let Some(stamps) = self.parts().stamps else { return Continue(()) };
        if segment.flags.contains(Flags::RST) {
            return Continue(());
        }
        let Some(stamp) = segment.options.timestamps else {
            cx.counters.timestamp_missing += 1;
            if cx.config.quirks.missing_timestamps {
                return Continue(());
            }
            // RFC 5961 §4.2: a SYN is challenged whatever it carries. It may be that of a peer that
            // has lost its state, which the answer lets find out.
            if segment.flags.contains(Flags::SYN) {
                cx.counters.challenged_syns += 1;
                self.challenge(cx);
            }
            return Break(());
        };
        if !stamps.is_old(stamp.value, cx.now) {
            return Continue(());
        }
        cx.counters.paws_rejected += 1;
        self.answer_unacceptable(cx, segment);
        Break(())
    }

    /// First step: is any of it in the window? Then cut it to the window.
    fn check_sequence(&mut self, cx: &mut Context, arrival: &mut Arrival<'_>) -> Step {
        let segment = arrival.segment;
        let parts = self.parts();
        let recv = &parts.recv;
        let at_closed_window = recv.offered() == 0 && segment.seq == recv.nxt;
        let window =
            if cx.config.quirks.unannounced_window { recv.possible() } else { recv.offered() };
        if !recv.accepts(segment.seq, segment.sequence_len(), window) && !at_closed_window {
            cx.counters.out_of_window += 1;
            if segment.flags.contains(Flags::RST) {
                return Break(());
            }
            self.note_duplicate(segment);
            self.answer_unacceptable(cx, segment);
            return Break(());
        }
        let edge = recv.nxt + recv.offered();
        // SYN inside the window never passes the fourth step, so it takes no number here.
        let end = segment.seq + segment.payload.len() as u32;
        arrival.fin = segment.flags.contains(Flags::FIN) && end.before(edge);
        let beyond = end.distance(edge).clamp(0, segment.payload.len() as i32) as usize;
        arrival.text = &segment.payload[..segment.payload.len() - beyond];
        // What did not fit must be heard of at once, a zero-window probe above all.
        if beyond > 0 || (at_closed_window && segment.sequence_len() > 0) {
            parts.recv.ack.now = true;
        }
        Continue(())
    }

    /// RFC 2883 §4: data that lies before the window is reported as a duplicate.
    fn note_duplicate(&mut self, segment: &Segment<'_>) {
        let recv = &mut self.parts().recv;
        let end = segment.seq + segment.payload.len() as u32;
        // Its beginning counts too: what starts half the space ahead seems to end behind.
        let behind = segment.seq.before(recv.nxt) && end.at_or_before(recv.nxt);
        if !segment.payload.is_empty() && behind {
            recv.note_duplicate(SackBlock { start: segment.seq, end });
        }
    }

    /// RFC 9293 §3.10.7.4: an unacceptable segment is answered with an ACK. One that carries
    /// nothing is itself perhaps such an answer, so it is answered within a limit.
    fn answer_unacceptable(&mut self, cx: &mut Context, segment: &Segment<'_>) {
        if segment.sequence_len() > 0 && !segment.flags.contains(Flags::SYN) {
            self.parts().recv.ack.now = true;
        } else {
            self.challenge(cx);
        }
    }

    /// Owes a challenge ACK, if the limit allows one.
    fn challenge(&mut self, cx: &mut Context) {
        if cx.challenges.take(self.tuple_hash, cx.now) {
            self.parts().recv.ack.now = true;
        } else {
            cx.counters.challenges_suppressed += 1;
        }
    }

    /// RFC 7323 §4.3: TS.Recent follows segments that cover Last.ACK.sent, so that a delayed ACK
    /// echoes the first of the segments it acknowledges. Only once the ACK was found acceptable:
    /// a stranger who guesses a number in the window must not move TS.Recent, or PAWS would then
    /// drop what the peer sends.
    fn note_stamp(&mut self, cx: &Context, segment: &Segment<'_>) {
        let parts = self.parts();
        let last_ack_sent = parts.recv.ack.last_sent;
        let Some(stamps) = &mut parts.stamps else { return };
        let Some(stamp) = segment.options.timestamps else { return };
        let current = !stamps.is_old(stamp.value, cx.now);
        if current && segment.seq.at_or_before(last_ack_sent) {
            *stamps = Stamps::new(stamps.offset, stamp.value, cx.now);
        }
    }

    /// Second step, as RFC 5961 §3.2 has it: exactly at RCV.NXT it resets; elsewhere in the window
    /// it is challenged (`quirks.insecure_rst`: it resets, as RFC 793 had it).
    fn check_reset(&mut self, cx: &mut Context, segment: &Segment<'_>) -> Step {
        if !segment.flags.contains(Flags::RST) {
            return Continue(());
        }
        if segment.seq != self.parts().recv.nxt && !cx.config.quirks.insecure_rst {
            cx.counters.challenged_resets += 1;
            self.challenge(cx);
            return Break(());
        }
        cx.counters.resets_received += 1;
        let error = match self.state() {
            // Both ends have closed, and each has all that the other sent.
            State::Closing | State::LastAck if self.parts().send.buffer.is_empty() => None,
            // MUST-12: what we sent may be lost.
            _ => Some(Error::ConnectionReset),
        };
        self.end(State::Closed, error, cx);
        Break(())
    }

    /// Fourth step, as RFC 5961 §4.2 has it: a SYN is challenged wherever it lies. With
    /// `quirks.insecure_syn` it resets the connection, as RFC 793 had it.
    fn check_syn(&mut self, cx: &mut Context, segment: &Segment<'_>) -> Step {
        if !segment.flags.contains(Flags::SYN) {
            return Continue(());
        }
        if cx.config.quirks.insecure_syn {
            self.abort(Error::ConnectionReset, cx);
            return Break(());
        }
        cx.counters.challenged_syns += 1;
        self.challenge(cx);
        Break(())
    }

    fn note_heard(&mut self, now: Instant) {
        let Shape::Synchronized(s) = &mut self.shape else { return };
        s.note_heard(&self.options, now, &mut self.deadlines);
    }

    /// Fifth step.
    fn check_ack(&mut self, cx: &mut Context, segment: &Segment<'_>) -> Step {
        if !segment.flags.contains(Flags::ACK) {
            return Break(());
        }
        let orphan = self.orphan;
        let parts = self.parts();
        if !parts.send.accepts(segment.ack) {
            cx.counters.unacceptable_acks += 1;
            self.challenge(cx);
            return Break(());
        }
        let was_closed = parts.send.window == 0;
        self.note_stamp(cx, segment);
        let parts = self.parts();
        let echo = parts.stamps.and(segment.options.timestamps).map(|stamps| stamps.echo);
        let mode = parts.send.mode();
        let (congestion, flight) = (parts.send.congestion, parts.send.flight());
        let acked = parts.send.on_ack(times(cx), segment, echo, &mut cx.pool);
        let recovers = ![mode, Mode::Open].contains(&parts.send.mode());
        cx.counters.fast_recoveries += u64::from(recovers);
        if let Some(ecn) = &mut parts.ecn {
            // RFC 3168 §6.1.2: reduced once a round trip, for whatever reason, and not grown by an
            // ACK that asks for it.
            if recovers {
                ecn.on_reduced(parts.send.nxt);
            } else if segment.flags.contains(Flags::ECE) && mode == Mode::Open {
                parts.send.congestion = congestion;
                if ecn.asks_to_reduce(segment.ack, segment.flags) {
                    parts.send.congestion.on_loss(flight, parts.send.mss.into());
                    ecn.on_reduced(parts.send.nxt);
                    cx.counters.ecn_reductions += 1;
                }
            }
        }
        if was_closed {
            // A peer that keeps its window shut and answers is alive (RFC 9293 MUST-37), and is
            // asked again an interval later; but it must not keep an orphan for ever.
            let answers = !orphan && parts.send.stop_waiting();
            if answers || parts.send.window > 0 {
                self.deadlines.cancel(Timer::Persist);
            }
            if answers {
                self.deadlines.cancel(Timer::Retransmit);
            }
        }
        if acked.progress {
            self.on_progress(&acked);
        }
        if acked.fin { self.on_fin_acked(cx) } else { Continue(()) }
    }

    /// SND.UNA has moved.
    #[inline(always)]
    fn on_progress(&mut self, acked: &Acked) {
        self.go_on();
        self.deadlines.cancel(Timer::Retransmit);
        self.notify_room(acked.freed);
    }

    /// Tells a blocked writer once there is much room, and not on every ACK.
    #[inline(always)]
    fn notify_room(&mut self, freed: usize) {
        if freed == 0 || self.blocked == Blocked::No {
            return;
        }
        let limit = self.options.send_buffer_bytes;
        let send = &self.parts().send;
        let (has_much_room, is_drained) = (send.has_much_room(limit), send.buffer.is_empty());
        self.blocked = match self.blocked {
            Blocked::ForRoom if has_much_room => Blocked::No,
            Blocked::ForPages if is_drained => Blocked::Drained,
            Blocked::Drained if has_much_room => Blocked::Drained,
            _ => return,
        };
        self.notices |= Readiness::WRITABLE;
    }

    /// Our FIN is acknowledged: FIN-WAIT-1, CLOSING and LAST-ACK move on.
    fn on_fin_acked(&mut self, cx: &mut Context) -> Step {
        match self.state() {
            State::FinWait1 => {
                self.state.transition(State::FinWait2);
                if self.orphan {
                    self.end_patience_of_orphan();
                    self.deadlines.set(Timer::FinWait2, cx.now + self.options.fin_wait_2_timeout);
                }
                Continue(())
            }
            State::Closing => {
                self.enter_time_wait(cx);
                Break(())
            }
            State::LastAck => {
                self.close_last(cx);
                Break(())
            }
            _ => Continue(()),
        }
    }

    /// Sixth step: RCV.UP only moves forward, and the user is told (RFC 9293 MUST-32, 33). The
    /// pointer is taken as the number after the last urgent byte, as RFC 6093 §4 recommends.
    fn check_urgent(&mut self, arrival: &Arrival<'_>) {
        let segment = arrival.segment;
        if !segment.flags.contains(Flags::URG) || segment.urgent == 0 {
            return;
        }
        if !self.state().can_receive() {
            return;
        }
        let up = segment.seq + u32::from(segment.urgent);
        let recv = &mut self.parts().recv;
        if up.after(recv.nxt) && recv.urgent().is_none_or(|urgent| up.after(urgent)) {
            recv.note_urgent(up);
            self.notices |= Readiness::URGENT;
        }
    }

    /// Seventh step. Data for an orphan cannot be delivered, and the peer must hear it
    /// (RFC 9293 §3.6.1, RFC 2525 §2.17).
    fn take_text(&mut self, cx: &mut Context, arrival: &Arrival<'_>) -> Step {
        let state = self.state();
        let unheard = self.orphan || (self.deaf && state != State::Established);
        let parts = self.parts();
        if !state.can_receive() {
            return Break(());
        }
        if arrival.fin {
            let fin = arrival.seq + arrival.segment.payload.len() as u32;
            parts.recv.on_fin(fin);
        }
        let (seq, text) = (arrival.seq, cut_at(arrival, parts.recv.fin));
        if text.is_empty() {
            if arrival.fin && arrival.seq.after(parts.recv.nxt) {
                parts.recv.on_out_of_order(arrival.seq);
            }
            return Continue(());
        }
        if unheard && (seq + text.len() as u32).after(parts.recv.nxt) {
            let reset = parts.reset(cx.now);
            self.end(State::Closed, Some(Error::ConnectionReset), cx);
            self.owe_reset(reset, cx);
            return Break(());
        }
        let had_holes = parts.recv.has_holes();
        let taken = parts.recv.on_text(seq, text, &mut cx.pool, &mut cx.counters);
        self.acknowledge_text(cx, taken, had_holes, arrival.piece);
        Continue(())
    }

    fn acknowledge_text(&mut self, cx: &Context, taken: Text, had_holes: bool, piece: u16) {
        let Shape::Synchronized(parts) = &mut self.shape else { return };
        match taken {
            Text::InOrder(advanced) => {
                parts.recv.on_advance();
                let ack = &mut parts.recv.ack;
                ack.on_data(advanced, piece, cx.now, &cx.config, &mut self.deadlines);
                // RFC 5681 §4.2: what fills a hole, wholly or in part, is acknowledged at once.
                ack.now |= had_holes;
                parts.recv.window.on_data(parts.recv.nxt, parts.send.rtt.srtt_ns(), cx.now);
                self.notices |= Readiness::READABLE;
            }
            Text::OutOfOrder(seq) => parts.recv.on_out_of_order(seq),
            Text::Duplicate | Text::Dropped => parts.recv.ack.now = true,
        }
    }

    /// Eighth step: FIN counts when everything before it has arrived.
    #[inline(always)]
    fn take_fin(&mut self, cx: &mut Context) -> Step {
        let state = self.state();
        let recv = &mut self.parts().recv;
        if recv.fin != Some(recv.nxt) {
            return Continue(());
        }
        recv.nxt += 1;
        recv.on_advance();
        recv.ack.now = true;
        self.notices |= Readiness::READABLE;
        match state {
            State::Established => self.state.transition(State::CloseWait),
            State::FinWait1 => {
                self.state.transition(State::Closing);
                self.parts().send.fin_again = cx.config.quirks.repeat_fin;
            }
            State::FinWait2 => {
                self.parts().recv.window.pass_fin();
                self.enter_time_wait(cx);
            }
            _ => {}
        }
        Continue(())
    }
}

impl Synchronized {
    /// The peer is alive: keepalive starts over.
    #[inline(always)]
    fn note_heard(&mut self, options: &SocketOptions, now: Instant, deadlines: &mut Deadlines) {
        self.last_heard = now;
        self.keepalive_probes = 0;
        if let Some(keepalive) = &options.keepalive {
            deadlines.set(Timer::KeepAlive, now + keepalive.idle);
        }
    }
}

/// The text before the stream's end: nothing counts beyond a FIN that has been seen.
fn cut_at<'a>(arrival: &Arrival<'a>, fin: Option<Seq>) -> &'a [u8] {
    let text = arrival.text;
    let keep = fin.map_or(text.len(), |fin| fin.distance(arrival.seq).max(0) as usize);
    &text[..keep.min(text.len())]
}
