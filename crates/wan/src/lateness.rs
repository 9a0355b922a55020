//! The lateness of packets: the time at which the kernel took a packet, minus the time at which it
//! was due.

use std::time::Duration;

use hdrhistogram::Histogram;

/// The largest distinguishable lateness.
const MOST: Duration = Duration::from_secs(60);
/// Significant digits.
const DIGITS: u8 = 3;

/// The distribution of lateness, in ns.
#[derive(Clone, Debug)]
pub struct Lateness {
    histogram: Histogram<u64>,
}

impl Lateness {
    /// An empty distribution.
    pub(crate) fn new() -> Self {
        let most = MOST.as_nanos() as u64;
        let histogram = Histogram::new_with_bounds(1, most, DIGITS);
        Lateness { histogram: histogram.expect("bounds and digits are among those allowed") }
    }

    pub(crate) fn record(&mut self, ns: u64) {
        self.histogram.saturating_record(ns);
    }

    /// The number of packets that have left.
    pub fn packets(&self) -> u64 {
        self.histogram.len()
    }

    /// The number of packets that have left later than `time`.
    pub fn later_than(&self, time: Duration) -> u64 {
        let time_ns = time.as_nanos().min(MOST.as_nanos()) as u64;
        self.packets() - self.histogram.count_between(0, time_ns)
    }

    /// The lateness that `percent` of the packets do not exceed; zero without packets.
    pub fn percentile(&self, percent: f64) -> Duration {
        Duration::from_nanos(self.histogram.value_at_percentile(percent))
    }

    /// The greatest lateness.
    pub fn max(&self) -> Duration {
        Duration::from_nanos(self.histogram.max())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_exact_to_three_digits() {
        let mut lateness = Lateness::new();
        assert_eq!((lateness.packets(), lateness.percentile(99.0)), (0, Duration::ZERO));
        (1..=1000).for_each(|us| lateness.record(us * 1000));
        for (percent, us) in [(50.0, 500.0), (99.0, 990.0)] {
            let found = lateness.percentile(percent).as_secs_f64() * 1e6;
            assert!((found / us - 1.0).abs() < 0.002, "{found}");
        }
        assert_eq!(lateness.later_than(Duration::from_micros(900)), 100);
        lateness.record(u64::MAX);
        assert!(lateness.max() >= MOST, "beyond the bounds, and still counted");
        assert_eq!(lateness.packets(), 1001);
    }
}
