//! The serializer turns bytes into time: it gives the time at which a packet has left, by a rate or
//! a trace.

use lightwait_core::Instant;
use lightwait_core::time::Duration;

use crate::{Rate, Trace};

const NANOS_PER_SECOND: u128 = 1_000_000_000;

/// The time at which a link is free to send.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Serializer {
    free_at: Instant,
    /// Nanoseconds not yet charged, times the rate. The remainder of a division is carried to the
    /// next packet, so that a busy serializer never drifts from its rate.
    remainder: u128,
    /// The trace's beginning.
    base: Instant,
    /// The trace's next opportunity, and the bytes that the one before it still carries.
    next: u64,
    left_bytes: usize,
}

impl Serializer {
    /// A free serializer; a trace begins at `base`.
    pub(crate) fn new(base: Instant) -> Self {
        Serializer { free_at: base, remainder: 0, base, next: 0, left_bytes: 0 }
    }

    /// Goes on at another rate after the packet that is being sent; a trace begins now.
    pub(crate) fn begin_anew(&mut self, now: Instant) {
        *self = Serializer { free_at: self.free_at, ..Serializer::new(now) };
    }

    /// The time at which the packet that is being sent has left.
    pub(crate) fn free_at(&self) -> Instant {
        self.free_at
    }

    /// The time at which the last bit of a packet has left. The packet is handed over at `now`,
    /// which is not before [`Self::free_at`].
    pub(crate) fn send(&mut self, rate: &Rate, now: Instant, bytes: usize) -> Instant {
        match rate {
            Rate::Unlimited => now,
            Rate::BitsPerSecond(rate) => self.send_at((*rate).max(1), now, bytes),
            Rate::Trace(trace) => self.send_by(trace, now, bytes),
        }
    }

    fn send_at(&mut self, rate: u64, now: Instant, bytes: usize) -> Instant {
        if self.free_at < now {
            self.free_at = now;
            self.remainder = 0;
        }
        let scaled = bytes as u128 * 8 * NANOS_PER_SECOND + self.remainder;
        let ns = u64::try_from(scaled / u128::from(rate)).unwrap_or(u64::MAX);
        self.remainder = scaled % u128::from(rate);
        self.free_at = self.free_at + Duration::from_nanos(ns);
        self.free_at
    }

    fn send_by(&mut self, trace: &Trace, now: Instant, bytes: usize) -> Instant {
        let first = trace.first_at(now.nanos_since(self.base));
        if first >= self.next {
            (self.next, self.left_bytes) = (first, 0);
        }
        // Even an empty packet uses a byte.
        let mut bytes = bytes.max(1);
        while bytes > self.left_bytes {
            bytes -= self.left_bytes;
            self.left_bytes = trace.opportunity_bytes();
            self.next += 1;
        }
        self.left_bytes -= bytes;
        self.free_at = self.base.plus_nanos(trace.time_ns(self.next - 1));
        self.free_at
    }
}
