//! Packets that wait before the serializer.

use alloc::collections::VecDeque;

use lightwait_core::Instant;

use crate::Packet;

/// A packet that waits.
#[derive(Clone, Debug)]
pub(crate) struct Waiting {
    /// Since when.
    pub(crate) entered: Instant,
    pub(crate) packet: Packet,
}

/// Packets that wait, in order, and how many bytes they have.
#[derive(Clone, Debug, Default)]
pub(crate) struct Queue {
    packets: VecDeque<Waiting>,
    bytes: usize,
}

impl Queue {
    pub(crate) fn push(&mut self, entered: Instant, packet: Packet) {
        self.bytes += packet.len();
        self.packets.push_back(Waiting { entered, packet });
    }

    pub(crate) fn pop(&mut self) -> Option<Waiting> {
        let waiting = self.packets.pop_front()?;
        self.bytes -= waiting.packet.len();
        Some(waiting)
    }

    /// The one that has waited longest.
    pub(crate) fn front(&self) -> Option<&Waiting> {
        self.packets.front()
    }

    pub(crate) fn len(&self) -> usize {
        self.packets.len()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}
