//! A token bucket: so many a second on average, so many at once at most.
//!
//! It stores one instant, the moment at which the bucket would be full again, and uses integer
//! nanoseconds only (the "virtual scheduling" form of ITU-T I.371's generic cell rate algorithm):
//! ```text
//!   taking one puts the moment one interval further;
//!   it is refused when that would be more than `burst` intervals from now.
//! ```

#[cfg(test)]
use crate::time::Duration;
use crate::time::Instant;

const NS_PER_SECOND: u64 = 1_000_000_000;

/// A limit on how often something is done.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TokenBucket {
    /// Between two tokens, in ns, rounded up: the rate is never exceeded. `None`: no tokens at all.
    interval_ns: Option<u64>,
    /// The time from empty to full, in ns.
    burst_ns: u64,
    /// When it is full again, if nothing more is taken.
    full_at_ns: u64,
}

impl TokenBucket {
    /// A full bucket of `burst` tokens (at least one) that earns `per_second` of them a second;
    /// with a rate of zero it is and stays empty.
    pub(crate) fn new(per_second: u32, burst: u32) -> Self {
        let interval_ns = NS_PER_SECOND
            .checked_add(u64::from(per_second).saturating_sub(1))
            .and_then(|ns| ns.checked_div(u64::from(per_second)));
        let burst_ns = interval_ns.unwrap_or(0).saturating_mul(u64::from(burst.max(1)));
        TokenBucket { interval_ns, burst_ns, full_at_ns: 0 }
    }

    /// Takes a token; false if there is none.
    pub(crate) fn take(&mut self, now: Instant) -> bool {
        let Some(interval_ns) = self.interval_ns else { return false };
        let now_ns = now.as_nanos();
        let full_at_ns = self.full_at_ns.max(now_ns).saturating_add(interval_ns);
        if full_at_ns - now_ns > self.burst_ns {
            return false;
        }
        self.full_at_ns = full_at_ns;
        true
    }

    /// How long until [`TokenBucket::take`] succeeds; zero if it would now.
    #[cfg(test)]
    pub(crate) fn wait(&self, now: Instant) -> Duration {
        let Some(interval_ns) = self.interval_ns else { return Duration::MAX };
        let full_at_ns = self.full_at_ns.max(now.as_nanos()).saturating_add(interval_ns);
        Duration::from_nanos((full_at_ns - now.as_nanos()).saturating_sub(self.burst_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    #[test]
    fn the_burst_is_given_and_not_one_more() {
        let mut bucket = TokenBucket::new(10, 3);
        assert!((0..3).all(|_| bucket.take(Instant::ZERO)));
        assert!(!bucket.take(Instant::ZERO));
        assert_eq!(bucket.wait(Instant::ZERO), Duration::from_millis(100));
        assert!(!bucket.take(Instant::from_nanos(99_999_999)));
        assert!(bucket.take(Instant::from_millis(100)));
        assert!(!bucket.take(Instant::from_millis(100)));
    }

    #[test]
    fn a_long_rest_earns_no_more_than_the_burst() {
        let mut bucket = TokenBucket::new(1000, 2);
        let later = Instant::from_millis(3_600_000);
        assert_eq!((0..9).filter(|_| bucket.take(later)).count(), 2);
    }

    #[test]
    fn a_rate_of_zero_gives_nothing_and_a_burst_of_zero_is_one() {
        let mut never = TokenBucket::new(0, 5);
        assert!(!never.take(Instant::from_millis(1_000_000)));
        assert_eq!(never.wait(Instant::ZERO), Duration::MAX);
        let mut one = TokenBucket::new(1, 0);
        assert!(one.take(Instant::ZERO));
        assert!(!one.take(Instant::ZERO));
    }

    #[test]
    fn the_end_of_time_is_no_trouble() {
        let mut bucket = TokenBucket::new(1, 1);
        bucket.take(Instant::FAR_FUTURE);
        let _ = bucket.take(Instant::FAR_FUTURE);
        assert!(bucket.wait(Instant::FAR_FUTURE) <= Duration::from_secs(1));
    }

    proptest! {
        #[test]
        fn no_window_of_time_gives_more_than_burst_and_rate(
            per_second in 1u32..100_000, burst in 1u32..50,
            steps in vec(0u64..20_000_000, 1..200),
        ) {
            let mut bucket = TokenBucket::new(per_second, burst);
            let mut now_ns = 0u64;
            let mut taken = 0u64;
            for step in steps {
                now_ns += step;
                let free = bucket.wait(Instant::from_nanos(now_ns)).is_zero();
                let got = bucket.take(Instant::from_nanos(now_ns));
                prop_assert_eq!(free, got);
                taken += u64::from(got);
                let earned = now_ns * u64::from(per_second) / NS_PER_SECOND;
                prop_assert!(taken <= u64::from(burst) + earned);
            }
        }

        #[test]
        fn who_waits_as_told_is_served(per_second in 1u32..100_000, burst in 1u32..50) {
            let mut bucket = TokenBucket::new(per_second, burst);
            let mut now = Instant::ZERO;
            for _ in 0..100 {
                now = now + bucket.wait(now);
                prop_assert!(bucket.take(now));
            }
        }
    }
}
