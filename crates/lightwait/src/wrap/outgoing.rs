//! Frames on their way out, each seen once.

use lightwait_core::{Frame, Outbox};

/// Tells frames that a device has been offered before, and has left in the outbox, from new ones.
#[derive(Debug, Default)]
pub(super) struct Offered {
    /// So many frames at the outbox's front were seen.
    seen: usize,
}

impl Offered {
    /// Hands the new frames to `look`; the device is offered the outbox right afterwards.
    pub(super) fn before(&mut self, outbox: &Outbox, look: impl FnMut(&Frame)) {
        outbox.frames().skip(self.seen).for_each(look);
    }

    /// The device has taken what it could.
    pub(super) fn after(&mut self, outbox: &Outbox) {
        self.seen = outbox.len();
    }
}
