//! Points in time. The engine owns no clock: every call carries the time, and the configuration
//! says how fine it is ([`Resolutions`]).

use core::fmt;
use core::ops::{Add, Sub};
pub use core::time::Duration;

/// A point in time, in nanoseconds since an origin that the platform chooses.
///
/// 64 bits of nanoseconds last 584 years; arithmetic saturates at both ends.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Instant(u64);

impl Instant {
    /// The origin.
    pub const ZERO: Instant = Instant(0);
    /// Later than anything that will happen.
    pub const FAR_FUTURE: Instant = Instant(u64::MAX);

    /// The instant `ns` nanoseconds after the origin.
    pub const fn from_nanos(ns: u64) -> Self {
        Instant(ns)
    }

    /// The instant `ms` milliseconds after the origin.
    pub const fn from_millis(ms: u64) -> Self {
        Instant(ms * 1_000_000)
    }

    /// Nanoseconds since the origin.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Whole milliseconds since the origin.
    pub const fn as_millis(self) -> u64 {
        self.0 / 1_000_000
    }

    /// `ns` nanoseconds after this.
    #[must_use]
    pub const fn plus_nanos(self, ns: u64) -> Instant {
        Instant(self.0.saturating_add(ns))
    }

    /// How many nanoseconds after `earlier` this is; zero if it is not after it.
    pub const fn nanos_since(self, earlier: Instant) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// How long after `earlier` this is; zero if it is not after it.
    pub const fn since(self, earlier: Instant) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// How finely a platform measures time and how often it looks for what is due: the resolutions of
/// the two services of the timer framework (Aron & Druschel 1999, §3), measuring and scheduling,
/// where BSD has one tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resolutions {
    /// How often the time that it tells changes, in Hz.
    pub measure_hz: u64,
    /// How often it calls [`Host::on_time`](crate::Host::on_time), if asked to, in Hz.
    pub schedule_hz: u64,
}

impl Resolutions {
    /// The resolutions of a platform that makes time: exact to the ns, and never late.
    pub const EXACT: Resolutions =
        Resolutions { measure_hz: 1_000_000_000, schedule_hz: 1_000_000_000 };
}

/// A duration in nanoseconds, saturating: the form in which the engine stores durations.
pub const fn as_nanos(duration: Duration) -> u64 {
    let ns = duration.as_nanos();
    if ns > u64::MAX as u128 { u64::MAX } else { ns as u64 }
}

impl Add<Duration> for Instant {
    type Output = Instant;
    fn add(self, rhs: Duration) -> Instant {
        Instant(self.0.saturating_add(as_nanos(rhs)))
    }
}

impl Sub<Duration> for Instant {
    type Output = Instant;
    fn sub(self, rhs: Duration) -> Instant {
        Instant(self.0.saturating_sub(as_nanos(rhs)))
    }
}

impl fmt::Debug for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:09}s", self.0 / 1_000_000_000, self.0 % 1_000_000_000)
    }
}

impl fmt::Display for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:06}", self.0 / 1_000_000_000, self.0 / 1_000 % 1_000_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates_at_both_ends() {
        assert_eq!(Instant::ZERO - Duration::from_secs(1), Instant::ZERO);
        assert_eq!(Instant::FAR_FUTURE + Duration::MAX, Instant::FAR_FUTURE);
        assert_eq!(Instant::ZERO.since(Instant::from_millis(1)), Duration::ZERO);
        assert_eq!(Instant::from_millis(3).since(Instant::from_millis(1)).as_millis(), 2);
    }
}
