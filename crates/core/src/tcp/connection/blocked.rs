//! Why a write took less than it was given, and when its writer is told to come again.

use super::{Common, Context};
use crate::event::Readiness;
use crate::tcp::send::SendHalf;

/// What the writer of a connection waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blocked {
    /// Nothing.
    No,
    /// Room in the send buffer, which acknowledgements make.
    ForRoom,
    /// Pages, which others hold: it waits in the host's line.
    ForPages,
    /// As [`Blocked::ForRoom`], with a place in the line: since it came there, all that it had was
    /// acknowledged, and who holds nothing gets a page.
    Drained,
    /// Nothing any more: it has waited for pages, and the next write may take some.
    InTurn,
    /// Its source, which has more: whether something was fresh when it could be sent is noted.
    OnSource,
    /// The same, and something could be sent, and nothing is fresh.
    Lacking,
}

impl Blocked {
    /// True if it has a place in the host's line for pages.
    pub fn is_in_line(self) -> bool {
        matches!(self, Blocked::ForPages | Blocked::Drained)
    }

    /// True if nothing keeps it from writing but its source.
    pub fn is_on_source(self) -> bool {
        matches!(self, Blocked::OnSource | Blocked::Lacking)
    }
}

impl Common {
    /// Its writer comes, for which the windows have waited, in the same turn or longer.
    pub(super) fn on_supplied(&mut self, send: &mut SendHalf, cx: &mut Context) {
        self.blocked = Blocked::OnSource;
        send.end_lack(cx);
    }

    /// Bytes of the buffer are free, and its writer waits for something: tells it once there is
    /// much room, and not on every ACK.
    pub(in crate::tcp) fn on_freed(&mut self, send: &mut SendHalf, cx: &mut Context) {
        let lacks = send.note_lack(cx.now);
        self.blocked = match self.blocked {
            Blocked::OnSource if lacks => {
                self.blocked = Blocked::Lacking;
                return;
            }
            Blocked::ForRoom => {
                send.keep_size(&self.options);
                match send.has_much_room(&self.options, cx) {
                    true if lacks => Blocked::Lacking,
                    true if send.has_more_to_come() => Blocked::OnSource,
                    true => Blocked::No,
                    false => return,
                }
            }
            Blocked::ForPages if send.buffer.is_empty() => Blocked::Drained,
            Blocked::Drained if send.has_much_room(&self.options, cx) => Blocked::Drained,
            _ => return,
        };
        self.notices |= Readiness::WRITABLE;
        cx.counters.writers_woken += 1;
    }
}
