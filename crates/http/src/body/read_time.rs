//! The time that a source takes to read: ReadTime of Cohen & Cohen 2002.

use std::cell::Cell;
use std::fmt;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// How long a response waits for a read of one source, smoothed. Reads that are at hand at once are
/// no samples: they would hide how long the others take.
pub(crate) struct ReadTime {
    clock: Rc<dyn Fn() -> Instant>,
    smoothed: Cell<Option<Duration>>,
}

impl ReadTime {
    /// Not known yet, by that clock.
    pub(crate) fn new(clock: Rc<dyn Fn() -> Instant>) -> Self {
        ReadTime { clock, smoothed: Cell::new(None) }
    }

    /// The time by its clock.
    pub(super) fn now(&self) -> Instant {
        (self.clock)()
    }

    /// Adds a read whose bytes are taken now; `was_awaited`: as soon as they came. The others came
    /// earlier: they count only if even so they took less than is known. A new sample counts an
    /// eighth, as for RTTs (RFC 6298 §2.3).
    pub(super) fn on_read(&self, begun: Instant, was_awaited: bool) {
        let taken = self.now().saturating_duration_since(begun);
        let smoothed = match self.smoothed.get() {
            None => taken,
            Some(smoothed) if was_awaited || taken < smoothed => (smoothed * 7 + taken) / 8,
            Some(smoothed) => smoothed,
        };
        self.smoothed.set(Some(smoothed));
    }

    /// Zero before the first.
    pub(super) fn get(&self) -> Duration {
        self.smoothed.get().unwrap_or_default()
    }
}

impl fmt::Debug for ReadTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ReadTime").field(&self.smoothed.get()).finish()
    }
}
