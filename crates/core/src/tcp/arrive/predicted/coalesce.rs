//! Takes in a run of segments at once: each brings the connection's next text and nothing else, and
//! all arrive at the same time. A change that differs from segment to segment is made once per
//! segment. A change that all of them would make alike is made once, at the end.

use super::may_predict;
use crate::flow::Seq;
use crate::tcp::connection::{Connection, Context, Step, Synchronized};
use crate::wire::fast::FastSegment;
use crate::wire::tcp::{Flags, PlainSegment};

/// A connection that takes in one text after the other. [`Coalesced::end`] must follow.
pub(crate) struct Coalesced<'a> {
    step: Step<'a>,
    /// How many there were, and SEG.SEQ and SEG.WND of the last one.
    count: usize,
    last: (Seq, u16),
}

impl Connection {
    /// The connection, if it may take in texts in a row.
    pub(crate) fn coalesced<'a>(&'a mut self, cx: &'a mut Context) -> Option<Coalesced<'a>> {
        let step = self.step(cx)?;
        let is_read = !step.common.orphan && !step.common.read_shut;
        let may_take = is_read && may_predict(step.s);
        may_take.then_some(Coalesced { step, count: 0, last: (Seq(0), 0) })
    }
}

impl Coalesced<'_> {
    /// Takes in `fast` if it brings the next text, and nothing else; else nothing has happened,
    /// and it is false. `trusted`: its checksum is known to be right. `piece`: payload size of the
    /// segments joined into it; 0 if it is a single one.
    pub(crate) fn take(&mut self, fast: &FastSegment<'_>, trusted: bool, piece: u16) -> bool {
        let Some(segment) = fast.plain().filter(|segment| is_text_alone(self.step.s, segment))
        else {
            return false;
        };
        if !self.step.s.predicts(&segment) {
            return false;
        }
        let Step { cx, common, s } = &mut self.step;
        let (recv, pool) = (&mut s.recv, &mut cx.pool);
        let is_taken = if trusted {
            recv.on_next_text(segment.text, pool)
        } else {
            recv.on_next_text_if(segment.text, pool, |text| fast.is_right_with(text))
        };
        if !is_taken {
            return false;
        }
        s.note_stamp(segment.seq, segment.stamps, cx.now);
        s.note_received(cx, common, segment.text.len(), piece);
        self.count += 1;
        self.last = (segment.seq, segment.window);
        true
    }

    /// No more of them; how many there were.
    pub(crate) fn end(self) -> usize {
        let Coalesced { step: Step { cx, common, s }, count, last: (seq, window) } = self;
        if count > 0 {
            s.note_heard(common, cx.now);
            s.send.update_window(seq, s.send.una, window);
            cx.counters.segments_in += count as u64;
        }
        count
    }
}

/// It brings text and no FIN, acknowledges nothing new, and leaves the peer's window as it is.
fn is_text_alone(s: &Synchronized, segment: &PlainSegment<'_>) -> bool {
    let send = &s.send;
    !segment.text.is_empty()
        && !segment.flags.contains(Flags::FIN)
        && segment.ack == send.una
        && u32::from(segment.window) << send.scale == send.window
}
