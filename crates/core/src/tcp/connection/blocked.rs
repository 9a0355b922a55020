//! Why a write took less than it was given, and when its writer shall try again.

use super::{Common, Connection, Context};
use crate::config::SendSize;
use crate::event::Readiness;
use crate::tcp::send::SendHalf;

/// The condition that the writer of a connection waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Blocked {
    /// Nothing, and its buffer is [`SendSize::Round`]: a write, or an ACK, has nothing more to ask.
    No,
    /// Room in the send buffer, which acknowledgements make.
    ForRoom,
    /// Nothing in order to write: its user waits until the peer has acknowledged all.
    ForAll,
    /// Pages, which others hold: it waits in the host's line.
    ForPages,
    /// Waits for room, as `ForRoom`, with a place in the line: since it came there, all that it
    /// held was acknowledged, and a sender that holds nothing gets a page.
    Drained,
    /// Nothing any more: it has waited for pages, and the next write may take some.
    InTurn,
    /// Nothing, or its source, which has more: the size of its buffer is asked for at each write,
    /// or it is noted whether something was fresh when it could be sent.
    OnSource,
    /// What `OnSource` says holds, and something could be sent, and nothing is fresh.
    Lacking,
}

impl Blocked {
    /// What a connection that may write waits for: its buffer is `size`, and its source `has_more`.
    pub(crate) fn free(size: SendSize, has_more: bool) -> Blocked {
        if size == SendSize::Round && !has_more { Blocked::No } else { Blocked::OnSource }
    }

    /// True if it has a place in the host's line for pages.
    pub(crate) fn is_in_line(self) -> bool {
        matches!(self, Blocked::ForPages | Blocked::Drained)
    }

    /// True if its writer waits for room or memory.
    pub(crate) fn waits_for_room(self) -> bool {
        self == Blocked::ForRoom || self.is_in_line()
    }

    /// True if it may write, and is not [`Blocked::No`].
    pub(crate) fn is_on_source(self) -> bool {
        matches!(self, Blocked::OnSource | Blocked::Lacking)
    }
}

impl Connection {
    /// Its writer comes at `cx.now`. If the windows have waited for it, that was a buffer miss,
    /// unless it comes in the same turn.
    pub(crate) fn end_lack(&mut self, cx: &mut Context) {
        if self.blocked == Blocked::Lacking
            && let Some(s) = self.synchronized_mut()
        {
            s.send.end_lack(cx);
            self.blocked = Blocked::OnSource;
        }
    }
}

impl Common {
    /// Bytes of the buffer are free, or it may hold more, and its writer waits for something: tells
    /// it once there is much room, and not on every ACK.
    pub(crate) fn on_freed(&mut self, send: &mut SendHalf, cx: &mut Context) {
        let lacks = send.note_lack(cx.now, &cx.config);
        if self.blocked.is_in_line() {
            send.note_moved(&mut cx.pool);
        }
        self.blocked = match self.blocked {
            Blocked::OnSource if lacks => {
                self.blocked = Blocked::Lacking;
                return;
            }
            Blocked::ForRoom => {
                send.keep_size(&self.options);
                match send.has_much_room(&self.options, cx.sizing(cx.now)) {
                    true if lacks => Blocked::Lacking,
                    true => Blocked::free(self.options.send_size, send.has_more_to_come()),
                    false => return,
                }
            }
            Blocked::ForAll if send.buffer.is_empty() => {
                Blocked::free(self.options.send_size, send.has_more_to_come())
            }
            Blocked::ForPages if send.buffer.is_empty() => Blocked::Drained,
            Blocked::Drained if send.has_much_room(&self.options, cx.sizing(cx.now)) => {
                Blocked::Drained
            }
            _ => return,
        };
        self.notices |= Readiness::WRITABLE;
        cx.counters.writers_woken += 1;
    }
}
