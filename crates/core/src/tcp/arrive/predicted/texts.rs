//! Texts in a row: segments that bring a connection's next text, and nothing else, one after the
//! other at the same time. What each of them would change is changed as if they came one by one;
//! what they would all change to the same is changed once, in the end.

use super::{is_calm, is_next, is_plain, note_stamp, note_text};
use crate::event::Readiness;
use crate::flow::Seq;
use crate::tcp::SocketOptions;
use crate::tcp::connection::{Connection, Context, Shape, Synchronized};
use crate::tcp::timers::Deadlines;
use crate::wire::tcp::{Flags, Plain};
use crate::wire::usual::Usual;

/// A connection that takes in one text after the other. [`Texts::end`] must follow.
pub struct Texts<'a> {
    cx: &'a mut Context,
    s: &'a mut Synchronized,
    deadlines: &'a mut Deadlines,
    notices: &'a mut Readiness,
    options: &'a SocketOptions,
    /// How many there were, and SEG.SEQ and SEG.WND of the last one.
    count: usize,
    last: (Seq, u16),
}

impl Connection {
    /// The connection, if it may take in texts in a row.
    pub fn texts<'a>(&'a mut self, cx: &'a mut Context) -> Option<Texts<'a>> {
        if self.orphan || self.deaf {
            return None;
        }
        let Connection { shape, deadlines, notices, options, .. } = self;
        let Shape::Synchronized(s) = shape else { return None };
        let (count, last) = (0, (Seq(0), 0));
        is_calm(s).then_some(Texts { cx, s, deadlines, notices, options, count, last })
    }
}

impl Texts<'_> {
    /// Takes in `usual` if it brings the next text, and nothing else; else nothing has happened,
    /// and it is false. `trusted`: its checksum is known to be right. `piece`: payload size of the
    /// segments joined into it; 0 if it is a single one.
    #[inline(always)]
    pub fn take(&mut self, usual: &Usual<'_>, trusted: bool, piece: u16) -> bool {
        let Some(segment) = usual.plain().filter(|segment| is_text_alone(self.s, segment)) else {
            return false;
        };
        if !(is_plain(self.s, &segment) && is_next(self.s, &segment)) {
            return false;
        }
        let (recv, pool) = (&mut self.s.recv, &mut self.cx.pool);
        let is_taken = if trusted {
            recv.on_next_text(segment.text, pool)
        } else {
            recv.on_next_text_if(segment.text, pool, |text| usual.is_right_with(text))
        };
        if !is_taken {
            return false;
        }
        note_stamp(self.s, &segment, self.cx.now);
        note_text(self.s, self.cx, segment.text.len(), piece, self.deadlines);
        *self.notices |= Readiness::READABLE;
        self.count += 1;
        self.last = (segment.seq, segment.window);
        true
    }

    /// No more of them; how many there were.
    pub fn end(self) -> usize {
        let Texts { cx, s, deadlines, options, count, last: (seq, window), .. } = self;
        if count > 0 {
            s.note_heard(options, cx.now, deadlines);
            s.send.update_window(seq, s.send.una, window);
            cx.counters.segments_in += count as u64;
        }
        count
    }
}

/// It brings text and no FIN, acknowledges nothing new, and leaves the peer's window as it is.
fn is_text_alone(s: &Synchronized, segment: &Plain<'_>) -> bool {
    let send = &s.send;
    !segment.text.is_empty()
        && !segment.flags.contains(Flags::FIN)
        && segment.ack == send.una
        && u32::from(segment.window) << send.scale == send.window
}
