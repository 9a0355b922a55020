//! The serializer turns bytes into time: it gives the time at which a packet has left, by a rate or
//! a trace. A token bucket decides when it may begin.

use lightwait_core::Instant;
use lightwait_core::time::{Duration, as_nanos};

use crate::{Bucket, LinkConfig, Rate, Trace};

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
    /// When the bucket is full again, in ns times its rate.
    full_at: u128,
}

impl Serializer {
    /// A free serializer; a trace begins at `base`.
    pub(crate) fn new(base: Instant) -> Self {
        Serializer { free_at: base, remainder: 0, base, next: 0, left_bytes: 0, full_at: 0 }
    }

    /// Goes on at another rate after the packet that is being sent; a trace begins now.
    pub(crate) fn begin_anew(&mut self, now: Instant) {
        *self = Serializer { free_at: self.free_at, ..Serializer::new(now) };
    }

    /// The earliest time at which the next packet may begin: the one before it has left, and the
    /// bucket is not empty.
    pub(crate) fn ready_at(&self, config: &LinkConfig) -> Instant {
        let filled = config.bucket.map_or(Instant::ZERO, |bucket| self.filled_at(bucket));
        self.free_at.max(filled)
    }

    /// When the bucket holds a bit.
    fn filled_at(&self, bucket: Bucket) -> Instant {
        let burst = bucket.burst_bytes as u128 * 8 * NANOS_PER_SECOND;
        match self.full_at.checked_sub(burst) {
            None => Instant::ZERO,
            Some(empty_until) => {
                let ns = empty_until / u128::from(bucket.bits_per_second.max(1)) + 1;
                Instant::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX))
            }
        }
    }

    /// The time at which the last bit of a packet has left. The packet is handed over at `now`,
    /// which is not before [`Self::ready_at`].
    pub(crate) fn send(&mut self, config: &LinkConfig, now: Instant, bytes: usize) -> Instant {
        if let Some(bucket) = config.bucket {
            let now_ns = u128::from(as_nanos(now.since(Instant::ZERO)));
            let begin = now_ns * u128::from(bucket.bits_per_second.max(1));
            self.full_at = self.full_at.max(begin) + bytes as u128 * 8 * NANOS_PER_SECOND;
        }
        match &config.rate {
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
