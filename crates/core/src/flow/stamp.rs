//! Timestamps of segments: 32 bits of a millisecond clock, compared modulo 2^32 (RFC 7323 §5).

use core::num::NonZeroU64;

use crate::time::{Duration, Instant};

/// RFC 7323: the clock we send and the one we echo. 16 bytes, whether there is one or not.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stamps {
    /// Added to the millisecond clock; a keyed function of the tuple.
    pub(crate) offset: u32,
    /// TS.Recent.
    pub(crate) recent: u32,
    /// The time in nanoseconds from which on TS.Recent says nothing.
    void_at: NonZeroU64,
}

/// How long TS.Recent says something (RFC 7323 §5.5: 24 days), in nanoseconds.
const STAMP_LIFE: NonZeroU64 = NonZeroU64::MIN.saturating_add(24 * 86_400_000_000_000 - 1);

/// The tick of our timestamp clock (RFC 7323 §5.4).
pub(crate) const STAMP_TICK: Duration = Duration::from_millis(1);

/// What that clock says, offset per connection.
pub(crate) fn stamp_at(now: Instant, offset: u32) -> u32 {
    (now.as_millis() as u32).wrapping_add(offset)
}

/// How far a timestamp is ahead of an earlier one, modulo 2^32; negative if it is older (RFC 7323
/// §5.2).
pub(crate) const fn stamp_distance(stamp: u32, earlier: u32) -> i32 {
    stamp.wrapping_sub(earlier) as i32
}

impl Stamps {
    /// TS.Recent is `recent`, as of `now`.
    pub(crate) fn new(offset: u32, recent: u32, now: Instant) -> Self {
        Stamps { offset, recent, void_at: STAMP_LIFE.saturating_add(now.as_nanos()) }
    }

    /// RFC 7323 §5.3 R1: true if `value` is older than what was seen, and that still counts.
    pub(crate) fn is_old(&self, value: u32, now: Instant) -> bool {
        stamp_distance(value, self.recent) < 0 && now.as_nanos() < self.void_at.get()
    }
}

const _: () = assert!(size_of::<Option<Stamps>>() == 16);
