//! The one limit on every challenge ACK (RFC 5961 §7, and RFC 9293's ACKs to unacceptable
//! segments).
//!
//! A small hashed table of token buckets, by connection: two ends that answer each other's
//! unacceptable ACKs, or two TIME-WAITs, fall silent after a few. A stranger's segments spend the
//! tokens of their own bucket. Over all of them there is one more limit, which must not be counted
//! from outside (CVE-2016-5696 learnt of connections that way): what it allows in a second is drawn
//! anew each time.

use crate::rng::Rng;
use crate::time::Instant;

/// Buckets; a power of two.
const BUCKETS: usize = 1024;
/// Challenge ACKs a bucket allows in a row.
const BURST: u8 = 4;
/// One more after this long.
const REFILL_NS: u64 = 250_000_000;

#[derive(Clone, Copy, Debug)]
struct Bucket {
    tokens: u8,
    refilled: Instant,
}

/// Limits which connections may still be challenged.
#[derive(Debug)]
pub(crate) struct Challenges {
    buckets: alloc::boxed::Box<[Bucket]>,
    window_start: Instant,
    /// Challenge ACKs left in this second.
    window_left: u32,
    per_second: u32,
    rng: Rng,
}

impl Challenges {
    /// On average `per_second` challenge ACKs over all connections, and never more than half as
    /// many again; `seed` decides how many in which second.
    pub(crate) fn new(per_second: u32, seed: u64) -> Self {
        let full = Bucket { tokens: BURST, refilled: Instant::ZERO };
        Challenges {
            buckets: alloc::vec![full; BUCKETS].into_boxed_slice(),
            window_start: Instant::ZERO,
            window_left: per_second,
            per_second,
            rng: Rng::from_seed(seed),
        }
    }

    /// True if a challenge ACK may go now to the connection whose tuple hashes to `hash`.
    pub(crate) fn take(&mut self, hash: u64, now: Instant) -> bool {
        let index = hash as usize % BUCKETS;
        let bucket = &mut self.buckets[index];
        let earned = now.since(bucket.refilled).as_nanos() as u64 / REFILL_NS;
        if earned > 0 {
            bucket.tokens = u64::from(bucket.tokens).saturating_add(earned).min(BURST.into()) as u8;
            bucket.refilled = now;
        }
        if bucket.tokens == 0 || !self.take_global(now) {
            return false;
        }
        self.buckets[index].tokens -= 1;
        true
    }

    fn take_global(&mut self, now: Instant) -> bool {
        if now.since(self.window_start).as_secs() >= 1 {
            self.window_start = now;
            let spread = self.rng.below(self.per_second.saturating_add(1));
            self.window_left = (self.per_second / 2).saturating_add(spread);
        }
        let allowed = self.window_left > 0;
        self.window_left -= u32::from(allowed);
        allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Duration;

    #[test]
    fn a_connection_gets_its_burst_and_not_one_more() {
        let mut challenges = Challenges::new(1000, 1);
        let now = Instant::from_millis(10_000);
        assert!((0..BURST).all(|_| challenges.take(5, now)));
        assert!(!challenges.take(5, now));
        assert!(challenges.take(6, now), "another bucket has its own");
        assert!(!challenges.take(5, now + Duration::from_millis(249)));
        assert!(challenges.take(5, now + Duration::from_millis(250)));
    }

    #[test]
    fn all_together_get_a_share_that_differs_from_second_to_second() {
        let mut challenges = Challenges::new(100, 1);
        let mut shares = alloc::collections::BTreeSet::new();
        let mut total = 0;
        for second in 10..60 {
            let now = Instant::from_millis(1000 * second);
            let share = (0..400).filter(|i| challenges.take(*i, now)).count();
            assert!((50..=150).contains(&share), "{share}");
            shares.insert(share);
            total += share;
        }
        assert!(shares.len() > 10, "{shares:?}");
        assert!((4000..6000).contains(&total), "{total}");
    }
}
