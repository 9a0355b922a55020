//! Reading ahead: what a burst of frames will touch is fetched for all of them at once.
//!
//! ```text
//!   frames ─▶ hashes ─▶ lines of the indexes ─▶ slots ─▶ connections ─▶ the frames, one by one
//! ```
//!
//! With many connections about, each frame leads to memory that no cache holds: to a line of an
//! index, from there to a slot, and from there to the connection. Frame by frame, all of them would
//! be waited for in turn. Step by step for a whole burst, a dozen come in the time of one.
//!
//! It decides nothing. A frame may open, close or take the place of what a later one looks up; each
//! is looked up when its turn comes, as if nothing had been fetched before.

use super::Host;
use super::slot::{Slot, TOUCHED};
use crate::frame::{BURST, Medium, RxFrame};
use crate::tcp::Tuple;
use crate::wire::ethernet;
use crate::wire::glance::{self, Glance};

/// Entries of a table from which on it pays to read ahead: of fewer, the second cache holds most.
/// Tests have no more than some.
const MANY: usize = if cfg!(test) { 4 } else { 1 << 15 };

impl Host {
    /// Fetches what these frames will touch, [`BURST`] at most, if that is likely to lie far away.
    #[inline]
    pub(super) fn read_ahead(&self, frames: &[RxFrame<'_>]) {
        if self.is_crowded() {
            self.fetch(frames);
        }
    }

    /// True if some table is large.
    #[inline]
    pub(super) fn is_crowded(&self) -> bool {
        let records = self.time_wait.len().max(self.fin_wait_2.records().len());
        self.demux.len().max(records).max(self.lingering.len()) >= MANY
    }

    /// Fetches what is looked at first where a connection of `tuple` begins or ends.
    #[inline]
    pub(super) fn read_ahead_of(&self, hash: u64, tuple: &Tuple) {
        self.demux.read_ahead(hash);
        self.time_wait.read_ahead(hash, tuple);
        self.fin_wait_2.records().read_ahead(hash, tuple);
        self.lingering.read_ahead(hash);
    }

    #[inline(never)]
    fn fetch(&self, frames: &[RxFrame<'_>]) {
        let mut hashes = [0; BURST];
        let mut len = 0;
        for frame in frames.iter().take(BURST) {
            let Some(Glance { tuple, turns }) = self.glance(frame) else { continue };
            let hash = self.hasher.hash(&tuple);
            if turns {
                self.read_ahead_of(hash, &tuple);
            } else {
                self.demux.read_ahead(hash);
            }
            hashes[len] = hash;
            len += 1;
        }
        let mut slots = [u32::MAX; BURST];
        let found = hashes[..len].iter().filter_map(|hash| self.demux.glance(*hash));
        for (place, slot) in slots.iter_mut().zip(found) {
            self.slots.read_ahead(slot, TOUCHED);
            *place = slot;
        }
        let connections = slots.iter().filter_map(|slot| self.slots.get(*slot));
        connections.for_each(Slot::read_ahead);
    }

    /// What seems to be in a frame.
    #[inline]
    fn glance(&self, frame: &RxFrame<'_>) -> Option<Glance> {
        let packet = match self.config.device.medium {
            Medium::Ip => frame.bytes,
            Medium::Ethernet => frame.bytes.get(ethernet::HEADER_BYTES..)?,
        };
        glance::at(packet)
    }
}
