//! The transport of a connection, as the bodies of its responses see it.

use std::fmt;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use super::access_log::Wire;
use crate::body::{Chunk, Sink};
use crate::connection::replay::Origin;
use crate::connection::timeouts::Phase;
use crate::control::{Control, Delivery};
use crate::limits::eviction::Answers;

/// A peer is stalled after so many timeouts in a row: after 1.4 s on a short path, where the first
/// comes after 200 ms, and later on a longer one.
const STALLED_TIMEOUTS: u32 = 3;

/// The transport of responses. Its phase remembers whether a response waits for room.
pub(super) struct ResponseSink<C> {
    transport: C,
    phase: Phase,
}

impl<C> ResponseSink<C> {
    pub(super) fn new(transport: C, phase: Phase) -> Self {
        ResponseSink { transport, phase }
    }
}

impl<C: Control> Wire for ResponseSink<C> {
    fn delivery(&self) -> Option<Delivery> {
        let last = self.phase.last_delivery();
        let mut delivery = last.or_else(|| self.transport.delivery())?;
        delivery.unacknowledged += self.phase.taken_back() as u64;
        Some(delivery)
    }

    fn poll_acknowledged(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.transport.poll_acknowledged(cx)
    }
}

impl<C: Control> Answers for ResponseSink<C> {
    fn are_under_way(&self) -> bool {
        self.transport.undelivered_bytes().is_some_and(|bytes| bytes > 0)
    }

    fn are_stalled(&self) -> bool {
        self.are_under_way() && self.transport.timeouts() >= STALLED_TIMEOUTS
    }
}

impl<C> fmt::Debug for ResponseSink<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseSink").field("phase", &self.phase).finish_non_exhaustive()
    }
}

impl<C: Control> Sink for ResponseSink<C> {
    fn poll_room(&self, cx: &mut Context<'_>) -> Poll<usize> {
        let room = self.transport.poll_room(cx);
        self.phase.set_waits_for_room(room.is_pending());
        room
    }

    fn read_size(&self) -> Option<usize> {
        self.transport.read_size()
    }

    fn set_supply(&self, read_time: Duration, more: bool) {
        self.transport.set_supply(read_time, more);
    }

    fn is_held_back(&self) -> bool {
        self.phase.record_mut().as_ref().is_some_and(|record| record.is_held_back())
    }

    fn hand_over(&self, chunk: Chunk, origin: &Rc<dyn Origin>, offset: u64) {
        if self.transport.gives_back() {
            self.phase.record_mut().get_or_insert_default().hand_over(chunk, origin, offset);
        }
    }
}
