//! The queue of packets before the serializer.

use alloc::collections::VecDeque;

use lightwait_core::Instant;

use crate::Packet;

/// A packet in the queue.
#[derive(Clone, Debug)]
pub(crate) struct Waiting {
    /// The time of its push.
    pub(crate) entered: Instant,
    pub(crate) packet: Packet,
}

/// The packets in the queue, in order, and the sum of their bytes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Queue {
    packets: VecDeque<Waiting>,
    bytes: usize,
}

impl Queue {
    pub(crate) fn push(&mut self, waiting: Waiting) {
        self.bytes += waiting.packet.len();
        self.packets.push_back(waiting);
    }

    pub(crate) fn pop(&mut self) -> Option<Waiting> {
        let waiting = self.packets.pop_front()?;
        self.bytes -= waiting.packet.len();
        Some(waiting)
    }

    /// The packet that has waited longest.
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
