//! Header prediction (Jacobson 1990): on a connection where nothing is lost, the next segment can
//! be told beforehand. It begins at RCV.NXT, carries ACK and nothing unusual, and acknowledges
//! something or brings something. What the numbered steps would do with such a segment is done here
//! without asking each of them; whatever is not of this kind goes through the steps.

use crate::tcp::State;
use crate::tcp::connection::{Connection, Context, Shape, Synchronized};
use crate::tcp::send::recovery::Mode;
use crate::tcp::timers::Timer;
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
        let Shape::Synchronized(s) = &mut self.shape else { return false };
        if self.state.get() != State::Established || !is_predicted(s, segment) {
            return false;
        }
        if let (Some(stamps), Some(stamp)) = (&mut s.stamps, segment.options.timestamps)
            && segment.seq.at_or_before(s.recv.ack.last_sent)
        {
            (stamps.recent, stamps.recent_at) = (stamp.value, cx.now);
        }
        let freed = s.send.on_predicted_ack(cx.now, segment, s.stamps.is_some(), cx.pool);
        let text = segment.payload;
        let taken = (!text.is_empty()).then(|| s.recv.on_next_text(text, cx.pool, cx.counters));
        self.note_heard(cx);
        if let Some(freed) = freed {
            self.go_on();
            self.deadlines.cancel(Timer::Retransmit);
            self.notify_room(freed);
        }
        if let Some(taken) = taken {
            let piece = if facts.piece == 0 { self.whole_piece(text.len()) } else { facts.piece };
            self.acknowledge_text(cx, taken, false, piece);
        }
        true
    }
}

fn is_predicted(s: &Synchronized, segment: &Segment<'_>) -> bool {
    let (send, recv) = (&s.send, &s.recv);
    let acked = segment.ack.since(send.una);
    let len = segment.payload.len() as u32;
    let is_plain = segment.flags.without(Flags::PSH) == Flags::ACK
        && segment.options.sack.is_empty()
        && match (s.stamps, segment.options.timestamps) {
            (Some(old), Some(new)) => new.value.wrapping_sub(old.recent) as i32 >= 0,
            (stamps, _) => stamps.is_none(),
        };
    let is_next = segment.seq == recv.nxt && len <= recv.offered();
    let is_news = acked <= send.max.since(send.una) && (acked > 0 || len > 0);
    let is_calm = send.recovery.mode == Mode::Open
        && send.scoreboard.is_empty()
        && send.dup_acks == 0
        && send.window > 0
        && recv.assembler.is_empty()
        && recv.fin.is_none()
        && s.ecn.is_none();
    is_plain && is_next && is_news && is_calm
}

#[cfg(test)]
mod tests;
