//! The random delay of packets. A crate without `std` has neither logarithm nor root, and needs
//! none: sums and maxima of uniform numbers have these distributions.

use lightwait_core::Instant;
use lightwait_core::rng::Rng;
use lightwait_core::time::as_nanos;

use crate::{Distribution, LinkConfig};

/// Standard deviations that the sum of twelve uniform numbers lies from its mean, at most.
const NORMAL_MOST: u64 = 6;

/// The arrival of a packet whose last bit leaves at `sent`, regardless of the order of packets.
pub(crate) fn arrival(config: &LinkConfig, sent: Instant, rng: &mut Rng) -> Instant {
    let (on_time, jitter_ns) = (sent + config.delay, as_nanos(config.jitter));
    if jitter_ns == 0 {
        return on_time;
    }
    let jitter = jitter_ns as f64;
    match config.jitter_distribution {
        Distribution::Uniform => on_time.plus_nanos((rng.unit() * jitter) as u64),
        Distribution::Normal => {
            let sum: f64 = (0..12).map(|_| rng.unit()).sum();
            let late = (sum - 6.0) * jitter;
            let ns = (as_nanos(config.delay) as f64 + late).max(0.0);
            sent.plus_nanos(ns as u64)
        }
        Distribution::Pareto => {
            // The greatest of three uniform numbers has the distribution of the cube root of one.
            let root = (0..3).map(|_| rng.unit()).fold(f64::MIN_POSITIVE, f64::max);
            on_time.plus_nanos((2.0 * jitter * (1.0 / root - 1.0)) as u64)
        }
    }
}

/// The earliest arrival of a packet that leaves at `sent`.
pub(crate) fn earliest(config: &LinkConfig, sent: Instant) -> Instant {
    let early_ns = match config.jitter_distribution {
        Distribution::Normal => as_nanos(config.jitter).saturating_mul(NORMAL_MOST),
        Distribution::Uniform | Distribution::Pareto => 0,
    };
    sent.plus_nanos(as_nanos(config.delay).saturating_sub(early_ns))
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::time::Duration;
    use std::vec::Vec;

    const COUNT: usize = 200_000;

    /// The delays of packets, in parts of the jitter, sorted.
    fn late(distribution: Distribution) -> Vec<f64> {
        let config = LinkConfig {
            delay: Duration::from_secs(1),
            jitter: Duration::from_millis(1),
            jitter_distribution: distribution,
            ..LinkConfig::default()
        };
        let mut rng = Rng::from_seed(5);
        let sent = Instant::from_millis(10);
        let late = |_| {
            let at = arrival(&config, sent, &mut rng);
            assert!(at >= earliest(&config, sent));
            at.as_nanos() as f64 / 1e6 - 1010.0
        };
        let mut all: Vec<f64> = (0..COUNT).map(late).collect();
        all.sort_by(f64::total_cmp);
        all
    }

    /// The value below which that share of the values lies.
    fn quantile(all: &[f64], share: f64) -> f64 {
        all[(share * COUNT as f64) as usize]
    }

    #[test]
    fn normal_jitter_has_the_quantiles_of_the_bell() {
        let all = late(Distribution::Normal);
        for (share, z) in [(0.5, 0.0), (0.8413, 1.0), (0.9772, 2.0), (0.0228, -2.0)] {
            assert!((quantile(&all, share) - z).abs() < 0.03, "{share}");
        }
        assert!(all[0] > -6.0 && all[COUNT - 1] < 6.0);
    }

    #[test]
    fn pareto_jitter_has_its_mean_and_its_tail() {
        let all = late(Distribution::Pareto);
        let mean = all.iter().sum::<f64>() / COUNT as f64;
        assert!((mean - 1.0).abs() < 0.03, "{mean}");
        for above in [0.5f64, 0.1, 0.01] {
            // P(late > x) = (1 + x/2)^-3
            let x = 2.0 * (above.powf(-1.0 / 3.0) - 1.0);
            assert!((quantile(&all, 1.0 - above) / x - 1.0).abs() < 0.05, "{above}");
        }
    }

    #[test]
    fn uniform_jitter_is_between_nothing_and_its_bound() {
        let all = late(Distribution::Uniform);
        assert!(all[0] >= 0.0 && all[COUNT - 1] < 1.0);
        assert!((quantile(&all, 0.25) - 0.25).abs() < 0.01);
    }

    #[test]
    fn nothing_arrives_before_it_was_sent() {
        let config = LinkConfig {
            delay: Duration::from_micros(1),
            jitter: Duration::from_millis(1),
            jitter_distribution: Distribution::Normal,
            ..LinkConfig::default()
        };
        let (mut rng, sent) = (Rng::from_seed(5), Instant::from_millis(10));
        assert!((0..1000).all(|_| arrival(&config, sent, &mut rng) >= sent));
        assert_eq!(earliest(&config, sent), sent);
    }
}
