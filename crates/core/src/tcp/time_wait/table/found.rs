//! A record where it lies in its block, and what a reader can ask of it.

use super::handles::Handles;
use super::row::Common;
use crate::flow::Tuple;
use crate::tcp::time_wait::Record;
use crate::time::Instant;

/// A record that was looked up: what is asked of it is read where it lies.
#[derive(Clone, Copy, Debug)]
pub struct RecordRef<'a> {
    pub(super) tuple: &'a Tuple,
    pub(super) common: &'a Common,
    pub(super) handles: &'a Handles,
    pub(super) term_ms: u64,
    pub(super) expires_ms: u64,
}

impl RecordRef<'_> {
    /// True if its time is over.
    pub fn is_over(&self, now: Instant) -> bool {
        Instant::from_millis(self.expires_ms) <= now
    }

    /// The window field of our last ACK.
    pub fn window(&self) -> u16 {
        self.handles.meaning(self.common.handle()).1
    }

    /// All of it.
    pub fn record(&self) -> Record {
        let entered_ms = self.expires_ms.saturating_sub(self.term_ms);
        self.common.record(*self.tuple, self.window(), (entered_ms, self.expires_ms))
    }
}
