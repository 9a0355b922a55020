//! What to send next: decided by a pure function, then built.
//!
//! ```text
//!   emit_predicted, or emit: loop { decide ─▶ Emission ─▶ build } while there is room and budget
//! ```
//!
//! The order of `decide`: what ends the connection, the handshake, duplicate ACKs, what is lost,
//! new data with FIN and the ACK that rides on it, probes, and last an ACK alone. So a response,
//! the ACK of its request and the FIN that follows leave in one frame.

mod build;
mod decide;
mod predicted;
mod timeout;

use crate::tcp::Settings;

use crate::config::TcpConfig;
use crate::flow::seq::Seq;
use crate::tcp::connection::{Connection, Context, Reset, Shape, patience};
use crate::tcp::egress::Egress;
use crate::tcp::send::SendHalf;
use crate::tcp::send::recovery::Mode;
use crate::tcp::timers::{Deadlines, Timer};
use crate::time::{Duration, Instant};

/// One thing to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Emission {
    /// Nothing, now.
    Nothing,
    /// RST; the connection is over.
    Reset(Reset),
    /// SYN, or SYN, ACK.
    Syn,
    /// Data, FIN or both: `len` bytes from `seq`.
    Text {
        /// SEG.SEQ.
        seq: Seq,
        /// Bytes of data.
        len: u32,
        /// FIN follows them.
        fin: bool,
        /// Why now.
        why: Why,
    },
    /// A probe of an idle peer, or of a closed window: nothing, at SND.NXT - 1.
    EmptyProbe,
    /// A duplicate ACK for a segment out of order.
    DuplicateAck,
    /// An ACK alone.
    Ack,
}

/// Why a segment with text leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// It is new.
    New,
    /// It is lost.
    Lost,
    /// The peer's window is closed, and must be asked about (RFC 9293 §3.8.6.1).
    Probe,
}

/// How an `emit` ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flushed {
    /// Nothing is left to send.
    Done,
    /// The outbox or the budget ran out: come again.
    More,
}

impl Connection {
    /// Sends what the connection should, while there is room.
    pub fn emit(&mut self, cx: &mut Context, egress: &mut Egress<'_>) -> Flushed {
        self.adopt_path(&cx.config, egress);
        self.note_way();
        if self.emit_by_steps(cx, egress) == Flushed::More {
            return Flushed::More;
        }
        self.arm(cx.now, &cx.config);
        Flushed::Done
    }

    /// Decides and builds until nothing is left, or nothing more may leave.
    fn emit_by_steps(&mut self, cx: &mut Context, egress: &mut Egress<'_>) -> Flushed {
        while !self.is_quiet() {
            let emission = self.decide(cx, egress.way.path, egress.room());
            if matches!(emission, Emission::Nothing) {
                break;
            }
            let frames = egress.frames;
            if !egress.has_room() || !self.build(cx, egress, emission) {
                return Flushed::More;
            }
            cx.counters.segments_out += (egress.frames - frames) as u64;
        }
        Flushed::Done
    }

    /// True if it plainly has nothing to send; else [`Connection::decide`] finds out.
    fn is_quiet(&self) -> bool {
        let Shape::Synchronized(s) = &self.shape else { return false };
        let has_text = s.send.queued_end() != s.send.nxt || s.send.mode() != Mode::Open;
        let has_ack = s.recv.ack.is_due() || s.wants_window_update();
        let has_probe = s.probe_due || s.keepalive_due;
        !has_text && !has_ack && !has_probe && self.reset_due.is_none()
    }

    /// The path may carry less than the peer accepts (RFC 1191, RFC 8201).
    fn adopt_path(&mut self, config: &TcpConfig, egress: &Egress<'_>) {
        let path_mss = egress.way.path.mss();
        if let Shape::Synchronized(s) = &mut self.shape {
            s.send.on_path(path_mss, config);
        }
    }

    /// Sets the timers that what was sent, or could not be, calls for.
    fn arm(&mut self, now: Instant, config: &Settings) {
        let Shape::Synchronized(s) = &self.shape else { return };
        if s.send.flight() > 0 {
            let patience = || patience(&self.options, self.orphan, config);
            arm_in_flight(&s.send, &mut self.deadlines, patience, now, config);
        } else {
            self.arm_idle(now, config);
        }
    }

    /// The same when nothing is.
    fn arm_idle(&mut self, now: Instant, config: &Settings) {
        let Shape::Synchronized(s) = &self.shape else { return };
        self.deadlines.cancel(Timer::Retransmit);
        let waits = s.send.queued_end() != s.send.nxt;
        if !waits {
            self.deadlines.cancel(Timer::Persist);
            if self.may_rest(config) {
                self.deadlines.set(Timer::Rest, now + config.compact_after);
            }
        } else if !self.deadlines.is_set(Timer::Persist) {
            let delay = self.persist_delay(s.send.rtt.rto(config), config.rto.max);
            // Not later than when the user's patience ends.
            let at = (now + delay).min(s.send.silent_since + self.patience(config));
            self.deadlines.set(Timer::Persist, at);
        }
    }

    /// RFC 9293 §3.8.6.1: probes are spaced like retransmissions. What is held back though the
    /// window is open (§3.8.6.2.1, cork) waits 200 ms.
    fn persist_delay(&self, rto: Duration, longest: Duration) -> Duration {
        match &self.shape {
            Shape::Synchronized(s) if s.send.window == 0 || s.send.probes > 0 => {
                (rto * (1 << s.send.probes.min(16))).min(longest)
            }
            _ => Duration::from_millis(200),
        }
    }

    /// True if it has ended and owes nothing: it will never send again, and needs no way.
    pub fn is_silent(&self) -> bool {
        self.is_over() && self.reset_due.is_none()
    }

    /// True if the user is gone and nothing is left to do: the host forgets it.
    pub fn is_finished(&self) -> bool {
        self.orphan && self.is_silent() && self.residue().is_none()
    }
}

/// Sets the timers that what is in flight calls for. `patience`: how long to wait for an answer.
fn arm_in_flight(
    send: &SendHalf,
    deadlines: &mut Deadlines,
    patience: impl FnOnce() -> Duration,
    now: Instant,
    config: &Settings,
) {
    if !deadlines.is_set(Timer::Retransmit) {
        let at = now.plus_nanos(send.rtt.rto_ns(&config.rto_bounds));
        deadlines.set(Timer::Retransmit, at.min(send.silent_since + patience()));
    }
    deadlines.cancel(Timer::Persist);
}
