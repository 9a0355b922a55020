//! What a server asks of the transport beneath a byte stream, which the stream itself cannot do.

use std::task::Context;

/// The transport of one connection.
pub trait Control: 'static {
    /// Resets the connection: drops what was written and not sent, and frees its memory at once.
    fn abort(&self);

    /// True if the connection is over: nothing that is written arrives.
    fn is_closed(&self) -> bool;

    /// Has whoever polls with `cx` woken when the connection is over, though they neither read nor
    /// write.
    fn wake_when_closed(&self, cx: &Context<'_>);

    /// Bytes written that the peer has not acknowledged; `None` where nobody knows.
    fn undelivered_bytes(&self) -> Option<usize>;
}

/// A transport of which nothing is known: it is closed in order, and a peer has taken what the
/// stream has.
impl Control for () {
    fn abort(&self) {}

    fn is_closed(&self) -> bool {
        false
    }

    fn wake_when_closed(&self, _cx: &Context<'_>) {}

    fn undelivered_bytes(&self) -> Option<usize> {
        None
    }
}
