//! What to send next: decided by a pure function, then built.
//!
//! ```text
//!   emit_predicted, or emit ─┬─ RST
//!                            ├─ not synchronized: SYN, or an answer        emit/handshake.rs
//!                            └─ loop { decide ─▶ Emission ─▶ build } while there is room
//! ```
//!
//! The order of `decide`: what DCTCP tells of marks, duplicate ACKs, what is lost, new data with
//! FIN and the ACK that rides on it, probes, and last an ACK alone. A response, the ACK of its
//! request and the FIN that follows leave in one frame.

mod build;
mod decide;
mod handshake;
mod predicted;
mod timeout;

use crate::config::TcpConfig;
use crate::flow::seq::Seq;
use crate::ip::path::Path;
use crate::tcp::Settings;
use crate::tcp::connection::{Common, Connection, Context, Step};
use crate::tcp::ecn::PastEcho;
use crate::tcp::egress::Egress;
use crate::tcp::send::SendHalf;
use crate::tcp::send::narrow::PathNews;
use crate::tcp::send::recovery::Pending;
use crate::tcp::time_wait::negotiate::Code;
use crate::tcp::timers::Timer;
use crate::time::{Duration, Instant};

/// One thing to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Emission {
    /// Data, FIN or both.
    Text(Run),
    /// A probe of an idle peer, or of a closed window: nothing, at SND.NXT - 1.
    EmptyProbe,
    /// An ACK of what arrived before the marks began or ended (RFC 8257 §3.2).
    PastEcho(PastEcho),
    /// A duplicate ACK for a segment out of order.
    DuplicateAck,
    /// An ACK alone.
    Ack,
}

/// Consecutive numbers to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// SEG.SEQ.
    pub seq: Seq,
    /// Bytes of data.
    pub len: u32,
    /// FIN follows them.
    pub fin: bool,
    /// Why now.
    pub why: Why,
}

impl Run {
    /// One past the last of them.
    fn end(&self) -> Seq {
        self.seq + self.len + u32::from(self.fin)
    }
}

/// Why a segment with text leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// It is new.
    New,
    /// It is new, and larger than others, to find out whether the path carries it (RFC 4821).
    PathProbe,
    /// It is lost.
    Lost,
    /// The peer's window is closed, and must be asked about (RFC 9293 §3.8.6.1).
    Probe,
}

/// How an `emit` ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flushed {
    /// Nothing is left to send.
    Done,
    /// The outbox or the budget ran out: come again.
    More,
}

impl Connection {
    /// Sends what the connection should, while there is room.
    pub(crate) fn emit(&mut self, cx: &mut Context, egress: &mut Egress<'_>) -> Flushed {
        self.note_route();
        let frames = egress.frames;
        let flushed = match self.step(cx) {
            Some(mut step) => step.emit(egress),
            None => self.emit_unsynchronized(cx, egress),
        };
        cx.counters.segments_out += (egress.frames - frames) as u64;
        flushed
    }

    /// True if it has ended and owes nothing: it will never send again, and needs no route.
    pub fn is_silent(&self) -> bool {
        self.is_over() && self.reset_due.is_none()
    }

    /// True if the user is gone and nothing is left to do: the host forgets it.
    pub fn is_finished(&self) -> bool {
        self.orphan && self.is_silent() && self.final_state().is_none()
    }
}

impl Step<'_> {
    fn emit(&mut self, egress: &mut Egress<'_>) -> Flushed {
        // The path may carry less than the peer accepts (RFC 1191, RFC 8201).
        let told;
        let mut path = egress.path.base;
        if let Some(probed) = self.s.send.take_probed() {
            self.cx.path_news = Some(PathNews::Probed(probed));
            // The path does not know that yet.
            told = Path { probe: 0, ..*path };
            path = &told;
        }
        self.s.send.on_path(path.mss(), &self.cx.config);
        if self.s.naming > 0 {
            self.s.naming = Code::padded_len(egress.path.base.source.is_ipv6());
        }
        if !self.common.send_reset(egress) {
            return Flushed::More;
        }
        let is_accounted = self.s.send.is_accounted();
        while let Some(emission) = self.decide(path, egress.room()) {
            let segments = is_accounted.then(|| self.segments_of(&emission));
            if !egress.has_room() || !self.build(egress, emission) {
                return Flushed::More;
            }
            if let Some((segments, has_data)) = segments {
                self.enter_sent(segments, has_data);
            }
        }
        if is_accounted {
            self.note_hold();
        }
        if self.s.send.takes_steps() {
            self.s.send.note_sent_all(self.cx.now);
        }
        self.common.arm(&mut self.s.send, self.cx.now, &self.cx.config);
        Flushed::Done
    }
}

impl Common {
    /// Sets the timers that what was sent, or could not be, calls for.
    fn arm(&mut self, send: &mut SendHalf, now: Instant, config: &Settings) {
        if send.flight() > 0 {
            self.arm_in_flight(send, now, config);
        } else {
            send.timer = Pending::Timeout;
            self.arm_idle(send, now, config);
        }
    }

    /// Sets the timers while something is in flight.
    #[inline(always)]
    fn arm_in_flight(&mut self, send: &mut SendHalf, now: Instant, config: &Settings) {
        let is_set = self.deadlines.is_set(Timer::Retransmit);
        if let Some((pending, at)) = send.pending(config) {
            self.set_retransmit(send, pending, at, config);
        } else if !is_set || send.timer != Pending::Timeout {
            // It has waited for something else since the peer was heard last.
            let rto_ns = send.rtt.rto_ns(&config.rto_bounds);
            let from =
                if is_set { send.silent_since } else { send.timeout_from(now, rto_ns, config) };
            // What is lost and waits for its pace has not left again yet.
            let again = send.awaited_pace().filter(|_| send.sent.lost(send.una) > 0);
            let from = again.map_or(from, |at| from.max(at));
            let at = from.plus_nanos(rto_ns);
            self.set_retransmit(send, Pending::Timeout, at, config);
        }
        self.deadlines.cancel(Timer::Persist);
    }

    fn set_retransmit(
        &mut self,
        send: &mut SendHalf,
        pending: Pending,
        at: Instant,
        config: &Settings,
    ) {
        let last = send.silent_since + self.patience(config);
        self.deadlines.set(Timer::Retransmit, at.min(last));
        send.timer = pending;
    }

    /// Sets the timers when nothing is in flight.
    fn arm_idle(&mut self, send: &SendHalf, now: Instant, config: &Settings) {
        self.deadlines.cancel(Timer::Retransmit);
        if send.queued_end() == send.nxt {
            self.deadlines.cancel(Timer::Persist);
            if self.may_rest(config) {
                self.deadlines.set(Timer::Rest, now + config.compact_after);
            }
        } else if send.awaited_pace().is_some() {
            self.deadlines.cancel(Timer::Persist);
        } else if !self.deadlines.is_set(Timer::Persist) {
            // Not later than when the user's patience ends.
            let last = send.silent_since + self.patience(config);
            self.deadlines.set(Timer::Persist, (now + persist_delay(send, config)).min(last));
        }
    }
}

/// RFC 9293 §3.8.6.1: probes are spaced like retransmissions. Data held back though the window
/// is open (§3.8.6.2.1, cork) waits 200 ms.
fn persist_delay(send: &SendHalf, config: &TcpConfig) -> Duration {
    if send.window > 0 && send.probes == 0 {
        return Duration::from_millis(200);
    }
    (send.rtt.rto(config) * (1 << send.probes.min(16))).min(config.rto.max)
}
