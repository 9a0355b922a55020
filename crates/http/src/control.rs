//! What a server asks of the transport beneath a byte stream, which the stream itself cannot do.

use std::task::{Context, Poll};
use std::time::Duration;

/// The transport of one connection.
pub trait Control: 'static {
    /// Resets the connection: drops what was written and not sent, and frees its memory at once.
    fn abort(&self);

    /// True if the connection is over: nothing that is written arrives.
    fn is_closed(&self) -> bool;

    /// Has whoever polls with `cx` woken when the connection is over, though they neither read nor
    /// write.
    fn wake_when_closed(&self, cx: &Context<'_>);

    /// How many bytes a write would take now; while that is none, whoever polls is woken when it
    /// is some.
    fn poll_room(&self, cx: &mut Context<'_>) -> Poll<usize>;

    /// Bytes that the next read of a source should bring, where the connection says so; `None`: as
    /// many as suit the reader.
    fn read_size(&self) -> Option<usize> {
        None
    }

    /// A read of the source takes so long, and there is more to come than what is written next.
    fn set_supply(&self, read_time: Duration, more: bool) {
        let _ = (read_time, more);
    }

    /// Bytes written that the peer has not acknowledged; `None` where nobody knows.
    fn undelivered_bytes(&self) -> Option<usize>;

    /// True if memory is short and the peer takes nothing, so that the connection may be reset:
    /// what was not sent should be taken back. Whoever reads or writes is woken when it becomes so.
    fn is_wanted_back(&self) -> bool {
        false
    }

    /// Drops what was written last and not sent, `most` bytes at most. Returns how many bytes: they
    /// are to be written again.
    fn take_back(&self, most: usize) -> usize {
        let _ = most;
        0
    }

    /// Ready once fewer than `kept` bytes are undelivered, or none. Until then whoever polls is
    /// woken when the peer has taken something, and there is room.
    fn poll_taken(&self, cx: &mut Context<'_>, kept: usize) -> Poll<()> {
        let _ = (cx, kept);
        Poll::Ready(())
    }
}

/// A transport of which nothing is known: it is closed in order, and a peer has taken what the
/// stream has.
impl Control for () {
    fn abort(&self) {}

    fn is_closed(&self) -> bool {
        false
    }

    fn wake_when_closed(&self, _cx: &Context<'_>) {}

    fn poll_room(&self, _cx: &mut Context<'_>) -> Poll<usize> {
        Poll::Ready(usize::MAX)
    }

    fn undelivered_bytes(&self) -> Option<usize> {
        None
    }
}
