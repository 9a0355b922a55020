//! The interface to the transport beneath a byte stream: what a server needs and a stream cannot
//! do. A transport that offers none of it is `()`.

use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;

/// The transport of one connection.
///
/// The stream must hand on every byte at once and unchanged: `adopt`, `borrow` and `take_back` pass
/// it by. A wrapper that encrypts or buffers must return false and 0.
pub trait Control: 'static {
    /// Resets the connection: drops what was written and not sent, and frees its memory at once.
    /// `delivery` may return nothing from then on.
    fn abort(&self);

    /// True if the connection is over: written data no longer arrives.
    fn is_closed(&self) -> bool;

    /// Wakes the task of `cx` when the connection is over, though the task neither reads nor
    /// writes.
    fn wake_when_closed(&self, cx: &Context<'_>);

    /// How many bytes a write would accept now. While that is none, the calling task is woken when
    /// it is some.
    fn poll_room(&self, cx: &mut Context<'_>) -> Poll<usize>;

    /// Bytes that the next read of a source should return, if the connection says so; `None`: as
    /// many as suit the reader.
    fn read_size(&self) -> Option<usize> {
        None
    }

    /// Reports how long a read of the source takes, and whether more follows after the next write.
    fn set_supply(&self, read_time: Duration, more: bool) {
        let _ = (read_time, more);
    }

    /// Writes all of `chunk` without a copy. The transport shares it, and charges its memory from
    /// then on. If false, nothing is written.
    fn adopt(&self, chunk: &Bytes) -> bool {
        let _ = chunk;
        false
    }

    /// Writes all of `chunk` without a copy, as `adopt` does, but many connections share it: the
    /// caller charges its memory until the last of them has dropped it. If false, nothing is
    /// written.
    fn borrow(&self, chunk: &Bytes) -> bool {
        let _ = chunk;
        false
    }

    /// Written bytes that the peer has not acknowledged; `None` if the transport cannot tell.
    fn undelivered_bytes(&self) -> Option<usize>;

    /// True if the transport may give written bytes back ([`Control::take_back`]), so that they
    /// must be kept at hand.
    fn gives_back(&self) -> bool {
        self.undelivered_bytes().is_some()
    }

    /// Timeouts in a row, of retransmissions or of probes of a closed window, since the peer last
    /// took data.
    fn timeouts(&self) -> u32 {
        0
    }

    /// True if the peer takes nothing: the caller should take unsent data back. Where memory is
    /// short, the connection may be reset otherwise. The task that reads or writes is woken when it
    /// becomes true.
    fn is_wanted_back(&self) -> bool {
        false
    }

    /// Drops the latest written and unsent bytes, `most` at most. Returns how many: the caller must
    /// write them again.
    fn take_back(&self, most: usize) -> usize {
        let _ = most;
        0
    }

    /// Ready once fewer than `kept` bytes are undelivered, or none. Until then the calling task is
    /// woken when the peer has taken data and there is room.
    fn poll_taken(&self, cx: &mut Context<'_>, kept: usize) -> Poll<()> {
        let _ = (cx, kept);
        Poll::Ready(())
    }

    /// Ready once the peer has acknowledged all written data, or the connection is over. Until then
    /// the calling task is woken when that is so.
    fn poll_acknowledged(&self, cx: &mut Context<'_>) -> Poll<()> {
        let _ = cx;
        Poll::Ready(())
    }

    /// The transport's knowledge of the delivery of written data, also after the connection's end,
    /// except by `abort`; `None` if it cannot tell.
    fn delivery(&self) -> Option<Delivery> {
        None
    }
}

/// A transport's knowledge of the delivery of written data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delivery {
    /// Written bytes that the peer has not acknowledged. After the connection's end: those that it
    /// had not acknowledged then.
    pub unacknowledged: u64,
    /// Smoothed round-trip time; zero before the first sample.
    pub srtt: Duration,
    /// Segments retransmitted since the connection began.
    pub retransmits: u64,
}

/// A transport without control: it closes in order, and the peer counts as having taken what the
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
