//! Header prediction (Jacobson 1990): on a connection where nothing is lost, the next segment can
//! be predicted. It begins at RCV.NXT, carries ACK and nothing unusual, and acknowledges something
//! or brings something: text, the peer's FIN, or both. What the numbered steps would do with such a
//! segment is done here in one pass; any other segment goes through the steps.

mod coalesce;

use super::{DONE, times};
use crate::event::Readiness;
use crate::flow::Seq;
use crate::flow::stamp::stamp_distance;
use crate::tcp::State;
use crate::tcp::connection::{Common, Connection, Context, Passed, Shape, Step, Synchronized};
use crate::wire::tcp::{Flags, PlainSegment};

impl Connection {
    /// Takes `segment` in if it is the one predicted; else nothing has happened, and it is false.
    /// `piece`: payload size of the segments joined into it; 0 if it is a single one.
    pub(super) fn take_predicted(
        &mut self,
        cx: &mut Context,
        segment: &PlainSegment<'_>,
        piece: u16,
    ) -> bool {
        let Connection { common, shape } = self;
        let Shape::Synchronized(s) = shape else { return false };
        if !(s.predicts(segment) && may_predict(s)) {
            return false;
        }
        if !segment.text.is_empty() && (common.orphan || common.read_shut) {
            // No reader wants the text.
            return false;
        }
        s.note_stamp(segment.seq, segment.stamps, cx.now);
        s.note_heard(common, cx.now);
        let times = times(cx);
        let offset = s.stamps.map(|stamps| stamps.offset);
        let outcome = s.send.on_predicted_ack(times, segment, offset, &mut cx.pool);
        if outcome.progress {
            s.passed.acknowledged += outcome.freed as u64;
            common.on_una_moved(&mut s.send, outcome.freed, cx);
        }
        if !segment.text.is_empty() {
            s.take_next_text(cx, common, segment.text, piece);
        }
        let has_fin = segment.flags.contains(Flags::FIN);
        if outcome.fin || has_fin {
            let fin = has_fin.then(|| segment.seq + segment.text.len() as u32);
            self.take_predicted_fin(cx, outcome.fin, fin);
        }
        true
    }

    /// Our FIN is acknowledged, or the peer's, of this number, has come, or both.
    fn take_predicted_fin(&mut self, cx: &mut Context, is_acked: bool, fin: Option<Seq>) {
        if let Some(mut step) = self.step(cx) {
            let passed = step.take_predicted_fin(is_acked, fin);
            self.conclude(passed, cx);
        }
    }
}

impl Step<'_> {
    fn take_predicted_fin(&mut self, is_acked: bool, fin: Option<Seq>) -> Passed {
        if is_acked {
            let is_next = fin == Some(self.s.recv.nxt);
            if is_next && self.common.state() == State::FinWait1 {
                // It does not wait in FIN-WAIT-2.
                self.common.state.transition(State::FinWait2);
            } else {
                // If it is over, nothing else came.
                self.on_fin_acked()?;
            }
        }
        if fin.is_none() {
            return DONE;
        }
        self.s.recv.fin = fin;
        self.take_fin()
    }
}

impl Synchronized {
    /// True if `segment` goes on where the last one ended, in order and with nothing unusual.
    fn predicts(&self, segment: &PlainSegment<'_>) -> bool {
        is_plain(self, segment) && is_next(self, segment)
    }

    /// Text has come, at RCV.NXT, with nothing beyond it.
    #[inline(always)]
    fn take_next_text(&mut self, cx: &mut Context, common: &mut Common, text: &[u8], piece: u16) {
        if self.recv.on_next_text(text, &mut cx.pool) {
            self.note_received(cx, common, text.len(), piece);
        } else {
            cx.counters.receive_pool_empty += 1;
            self.recv.ack.now = true;
        }
    }

    /// Notes that so much text has been taken in.
    #[inline(always)]
    fn note_received(&mut self, cx: &Context, common: &mut Common, len: usize, piece: u16) {
        self.passed.received += len as u64;
        let recv = &mut self.recv;
        let piece = if piece == 0 { recv.whole_piece(len) } else { piece };
        recv.ack.on_data(len as u32, piece, cx.now, &cx.config, &mut common.deadlines);
        recv.window.on_data(recv.nxt, self.send.rtt.srtt_ns(), cx.now);
        common.notices |= Readiness::READABLE;
    }
}

/// Nothing but ACK, perhaps PSH or FIN, and timestamps in order.
fn is_plain(s: &Synchronized, segment: &PlainSegment<'_>) -> bool {
    segment.flags.without(Flags::PSH | Flags::FIN) == Flags::ACK
        && match (s.stamps, segment.stamps) {
            (Some(old), Some(new)) => stamp_distance(new.value, old.recent) >= 0,
            (stamps, _) => stamps.is_none(),
        }
}

/// It goes on where the last one ended, and brings something, or acknowledges something.
#[inline(always)]
fn is_next(s: &Synchronized, segment: &PlainSegment<'_>) -> bool {
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

/// Nothing is missing on either side, the peer's window is open, and segments are not counted.
fn may_predict(s: &Synchronized) -> bool {
    s.is_calm() && s.send.window > 0 && !s.send.takes_steps()
}

#[cfg(test)]
mod tests;
