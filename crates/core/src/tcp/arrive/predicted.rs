//! Header prediction (Jacobson 1990): on a connection where nothing is lost, the next segment can
//! be told beforehand. It begins at RCV.NXT, carries ACK and nothing unusual, and acknowledges
//! something or brings something: text, the peer's FIN, or both. What the numbered steps would do
//! with such a segment is done here without asking each of them; whatever is not of this kind goes
//! through the steps.

mod texts;

use crate::event::Readiness;
use crate::flow::Seq;
use crate::tcp::State;
use crate::tcp::connection::{Connection, Context, Shape, Stamps, Synchronized, stamp_distance};
use crate::tcp::timers::Deadlines;
use crate::time::Instant;
use crate::wire::tcp::{Flags, Plain};

impl Connection {
    /// Takes `segment` in if it is the one predicted; else nothing has happened, and it is false.
    /// `piece`: payload size of the segments joined into it; 0 if it is a single one.
    #[inline(always)]
    pub(super) fn take_predicted(
        &mut self,
        cx: &mut Context,
        segment: &Plain<'_>,
        piece: u16,
    ) -> bool {
        let Shape::Synchronized(s) = &mut self.shape else { return false };
        if !(is_plain(s, segment) && is_next(s, segment) && is_calm(s)) {
            return false;
        }
        if !segment.text.is_empty() && (self.orphan || self.deaf) {
            // There is nobody who wants it.
            return false;
        }
        note_stamp(s, segment, cx.now);
        s.note_heard(&self.options, cx.now, &mut self.deadlines);
        let times = super::times(cx);
        let acked = s.send.on_predicted_ack(times, segment, s.stamps.is_some(), &mut cx.pool);
        if acked.progress {
            self.on_progress(&acked);
        }
        if !segment.text.is_empty() {
            self.take_next_text(cx, segment.text, piece);
        }
        let has_fin = segment.flags.contains(Flags::FIN);
        if acked.fin || has_fin {
            let fin = has_fin.then(|| segment.seq + segment.text.len() as u32);
            self.take_predicted_fin(cx, acked.fin, fin);
        }
        true
    }

    #[inline(always)]
    fn take_next_text(&mut self, cx: &mut Context, text: &[u8], piece: u16) {
        let Shape::Synchronized(s) = &mut self.shape else { return };
        if take_next_text(s, cx, text, piece, &mut self.deadlines) {
            self.notices |= Readiness::READABLE;
        }
    }

    /// Our FIN is acknowledged, or the peer's, of this number, has come, or both.
    fn take_predicted_fin(&mut self, cx: &mut Context, is_acked: bool, fin: Option<Seq>) {
        if is_acked {
            let is_next = fin == Some(self.parts().recv.nxt);
            if is_next && self.state() == State::FinWait1 {
                // It does not wait in FIN-WAIT-2.
                self.state.transition(State::FinWait2);
            } else if self.on_fin_acked(cx).is_break() {
                // It is over, and so nothing else came.
                return;
            }
        }
        if fin.is_some() {
            self.parts().recv.fin = fin;
            // Break and Continue mean the same here: the segment is done with.
            let _done = self.take_fin(cx);
        }
    }
}

/// RFC 7323 §4.3: the timestamp to be echoed is that of what is acknowledged next.
fn note_stamp(s: &mut Synchronized, segment: &Plain<'_>, now: Instant) {
    if let (Some(stamps), Some(stamp)) = (&mut s.stamps, segment.stamps)
        && segment.seq.at_or_before(s.recv.ack.last_sent)
    {
        *stamps = Stamps::new(stamps.offset, stamp.value, now);
    }
}

/// Text has come, at RCV.NXT, with nothing beyond it.
#[inline(always)]
fn take_next_text(
    s: &mut Synchronized,
    cx: &mut Context,
    text: &[u8],
    piece: u16,
    deadlines: &mut Deadlines,
) -> bool {
    if !s.recv.on_next_text(text, &mut cx.pool) {
        cx.counters.receive_pool_empty += 1;
        s.recv.ack.now = true;
        return false;
    }
    note_text(s, cx, text.len(), piece, deadlines);
    true
}

/// So much text has been taken in.
#[inline(always)]
fn note_text(
    s: &mut Synchronized,
    cx: &mut Context,
    len: usize,
    piece: u16,
    deadlines: &mut Deadlines,
) {
    let recv = &mut s.recv;
    let piece = if piece == 0 { recv.whole_piece(len) } else { piece };
    recv.ack.on_data(len as u32, piece, cx.now, &cx.config, deadlines);
    recv.window.on_data(recv.nxt, s.send.rtt.srtt_ns(), cx.now);
}

/// Nothing but ACK, perhaps PSH or FIN, and timestamps in order.
fn is_plain(s: &Synchronized, segment: &Plain<'_>) -> bool {
    segment.flags.without(Flags::PSH | Flags::FIN) == Flags::ACK
        && match (s.stamps, segment.stamps) {
            (Some(old), Some(new)) => stamp_distance(new.value, old.recent) >= 0,
            (stamps, _) => stamps.is_none(),
        }
}

/// It goes on where the last one ended, and brings something, or acknowledges something.
#[inline(always)]
fn is_next(s: &Synchronized, segment: &Plain<'_>) -> bool {
    let (send, recv) = (&s.send, &s.recv);
    let numbers = segment.text.len() as u32 + u32::from(segment.flags.contains(Flags::FIN));
    let acked = segment.ack.since(send.una);
    if segment.seq != recv.nxt || acked > send.max.since(send.una) {
        return false;
    }
    if numbers == 0 {
        return acked > 0;
    }
    // Nothing comes behind a FIN.
    numbers <= recv.offered() && recv.fin.is_none()
}

/// Nothing is missing on either side, and nothing else is going on.
fn is_calm(s: &Synchronized) -> bool {
    let (send, recv) = (&s.send, &s.recv);
    send.recovery.is_none() && send.window > 0 && recv.disorder.is_none() && s.ecn.is_none()
}

#[cfg(test)]
mod tests;
