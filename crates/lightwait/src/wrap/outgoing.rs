//! Shows a wrapper each outgoing frame once, although a device is offered a frame again that it has
//! left in the outbox.

use lightwait_core::{Frame, Outbox};

/// Tells new frames from those that the device was offered before and left in the outbox.
#[derive(Debug, Default)]
pub(super) struct Offered {
    /// The number of frames at the outbox's front that were seen.
    seen: usize,
}

impl Offered {
    /// Hands the new frames to `look`; the device is offered the outbox right afterwards.
    pub(super) fn before(&mut self, outbox: &Outbox, look: impl FnMut(&Frame)) {
        outbox.frames().skip(self.seen).for_each(look);
    }

    /// Counts the frames that the device has left in the outbox.
    pub(super) fn after(&mut self, outbox: &Outbox) {
        self.seen = outbox.len();
    }
}
