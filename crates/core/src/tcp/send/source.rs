//! What the application says about the source of its bytes, and what it learns about its send
//! buffer.

use crate::time::{Duration, Instant};

/// The application's description of its source: a file, or another connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Supply {
    /// ReadTime: how long it takes from the asking for bytes until they are there to be written,
    /// smoothed; zero: not known (Cohen & Cohen 2002 §3.2).
    pub read_time: Duration,
    /// There is more to come than was written.
    pub more: bool,
}

/// The demand of a connection, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Demand {
    /// The bytes that fit into the send buffer now, as the socket's
    /// [`SendSize`](crate::config::SendSize) says.
    pub room: usize,
    /// What the next read of the source should bring. By [`SendSize::Los`], what is sent while the
    /// one after it is under way; while nothing waits, what the buffer should hold, three segments
    /// at least (Cohen & Cohen 2002 §3.3, Procedure 3.1). Else the same as the room.
    ///
    /// [`SendSize::Los`]: crate::config::SendSize::Los
    pub read: usize,
}

/// The state of a connection's send buffer. The paper's *pending* bytes, which were read and do
/// not fit yet, are not among it: they are the application's, and the connection never sees them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct SendInfo {
    /// Its limit now, in bytes: `sb_hiwat`.
    pub hiwat: usize,
    /// The bytes that it holds: fresh and outstanding.
    pub held_bytes: usize,
    /// The memory that takes, in pages; what is small counts as a part, rounded up.
    pub held_pages: usize,
    /// Bytes that were never sent.
    pub fresh: usize,
    /// Bytes that were sent, and are not acknowledged.
    pub outstanding: usize,
    /// Buffer misses: times that the windows allowed a segment and nothing was fresh, though there
    /// was [more](Supply::more) to come.
    pub misses: u64,
    /// T_fact: round trips that a read takes.
    pub factor: u32,
}

/// The record of a source, of a buffer that only grows, and of one that waits for pages.
#[derive(Clone, Copy, Debug, Default)]
pub struct Source {
    /// What was said last.
    pub(super) supply: Supply,
    /// Since when nothing has been fresh, if the source is late.
    pub(super) lacks_since: Option<Instant>,
    /// Buffer misses.
    pub(super) misses: u64,
    /// The slot of a connection that waits in a line where it matters what it holds.
    pub(super) place: Option<u32>,
    /// The largest size so far, in bytes, of a buffer that only grows.
    pub(super) size: u32,
    /// The peer takes nothing: the application was asked to take back what is beyond the buffer's
    /// size, and has not answered.
    pub(super) is_wanted_back: bool,
}

impl Source {
    /// Bytes are written at `now`. True if the source was late. What follows in the same turn is
    /// not: nothing was sent meanwhile.
    pub(crate) fn end_lack(&mut self, now: Instant) -> bool {
        let is_miss = self.lacks_since.take().is_some_and(|since| since < now);
        self.misses += u64::from(is_miss);
        is_miss
    }
}
