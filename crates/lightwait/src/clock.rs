//! What time it is: the monotonic clock of a shard.
//!
//! A shard reads it once a batch, not once a packet, and hands the instant down; nothing below the
//! shard reads a clock of its own.

use std::time::Instant as StdInstant;

use lightwait_core::Instant;
use lightwait_core::time::Duration;

/// A monotonic clock with an origin of its own: the moment it was made.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: StdInstant,
}

impl Clock {
    /// A clock that stands at [`Instant::ZERO`] now.
    #[allow(clippy::new_without_default, reason = "a default has no side effect; this reads time")]
    pub fn new() -> Self {
        Clock { origin: StdInstant::now() }
    }

    /// The time now, in nanoseconds since the origin.
    pub fn now(&self) -> Instant {
        Instant::ZERO + self.origin.elapsed()
    }

    /// What this clock calls that instant of the standard library's.
    pub fn at_std(&self, instant: StdInstant) -> Instant {
        Instant::ZERO + instant.saturating_duration_since(self.origin)
    }

    /// The standard library's name for an instant of this clock; `None` if it is too far away to
    /// have one.
    pub fn to_std(&self, instant: Instant) -> Option<StdInstant> {
        self.origin.checked_add(Duration::from_nanos(instant.as_nanos()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_goes_forward_as_fast_as_the_systems() {
        let (clock, start) = (Clock::new(), StdInstant::now());
        let first = clock.now();
        std::thread::sleep(Duration::from_millis(5));
        let second = clock.now();
        let passed = second.since(first);
        assert!(passed >= Duration::from_millis(5) && passed <= start.elapsed(), "{passed:?}");
        let named = clock.to_std(second).unwrap();
        assert!(named >= start && named <= StdInstant::now());
        assert_eq!(clock.at_std(named), second);
    }
}
