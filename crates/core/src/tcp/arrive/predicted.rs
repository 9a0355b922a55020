//! Header prediction (Jacobson 1990): on a connection where nothing is lost, the next segment can
//! be told beforehand. It begins at RCV.NXT, carries ACK and nothing unusual, and acknowledges
//! something or brings something: text, the peer's FIN, or both. What the numbered steps would do
//! with such a segment is done here without asking each of them; whatever is not of this kind goes
//! through the steps.

use crate::tcp::connection::{Connection, Context, Shape, Stamps, Synchronized};
use crate::wire::tcp::{Flags, Segment};

use super::Facts;

impl Connection {
    /// Takes `segment` in if it is the one predicted; else nothing has happened, and it is false.
    #[inline]
    pub(super) fn take_predicted(
        &mut self,
        cx: &mut Context<'_>,
        segment: &Segment<'_>,
        facts: Facts,
    ) -> bool {
        if !self.predicts(segment) {
            return false;
        }
        let Shape::Synchronized(s) = &mut self.shape else { return false };
        if let (Some(stamps), Some(stamp)) = (&mut s.stamps, segment.options.timestamps)
            && segment.seq.at_or_before(s.recv.ack.last_sent)
        {
            *stamps = Stamps::new(stamps.offset, stamp.value, cx.now);
        }
        let acked = s.send.on_predicted_ack(cx.now, segment, s.stamps.is_some(), cx.pool);
        self.note_heard(cx);
        if acked.progress {
            self.on_progress(&acked);
            if acked.fin && self.on_fin_acked(cx).is_break() {
                return true;
            }
        }
        let (text, has_fin) = (segment.payload, segment.flags.contains(Flags::FIN));
        if has_fin {
            self.parts().recv.fin = Some(segment.seq + text.len() as u32);
        }
        if !text.is_empty() {
            let taken = self.parts().recv.on_next_text(text, cx.pool, cx.counters);
            let piece = if facts.piece == 0 { self.whole_piece(text.len()) } else { facts.piece };
            self.acknowledge_text(cx, taken, false, piece);
        }
        if has_fin {
            // Break and Continue mean the same here: the segment is done with.
            let _done = self.take_fin(cx);
        }
        true
    }

    /// True if `segment` is the one predicted.
    #[inline]
    fn predicts(&self, segment: &Segment<'_>) -> bool {
        let Shape::Synchronized(s) = &self.shape else { return false };
        let is_heard = !(self.orphan || self.deaf);
        is_plain(s, segment) && is_next(s, segment, is_heard) && is_calm(s)
    }
}

/// Nothing but ACK, perhaps PSH or FIN, and timestamps in order.
#[inline]
fn is_plain(s: &Synchronized, segment: &Segment<'_>) -> bool {
    segment.flags.without(Flags::PSH | Flags::FIN) == Flags::ACK
        && segment.options.sack.is_empty()
        && match (s.stamps, segment.options.timestamps) {
            (Some(old), Some(new)) => new.value.wrapping_sub(old.recent) as i32 >= 0,
            (stamps, _) => stamps.is_none(),
        }
}

/// It goes on where the last one ended, and brings something that is wanted, or acknowledges
/// something. `is_heard`: there is somebody who wants text.
#[inline]
fn is_next(s: &Synchronized, segment: &Segment<'_>, is_heard: bool) -> bool {
    let (send, recv) = (&s.send, &s.recv);
    let len = segment.payload.len() as u32;
    let numbers = len + u32::from(segment.flags.contains(Flags::FIN));
    let acked = segment.ack.since(send.una);
    segment.seq == recv.nxt
        && acked <= send.max.since(send.una)
        && if numbers == 0 {
            acked > 0
        } else {
            // Nothing comes behind a FIN.
            numbers <= recv.offered() && recv.fin.is_none() && (is_heard || len == 0)
        }
}

/// Nothing is missing on either side, and nothing else is going on.
#[inline]
fn is_calm(s: &Synchronized) -> bool {
    let (send, recv) = (&s.send, &s.recv);
    send.recovery.is_none() && send.window > 0 && recv.disorder.is_none() && s.ecn.is_none()
}

#[cfg(test)]
mod tests;
