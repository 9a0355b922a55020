//! Histograms of latencies: one of the recorded part, and one of each second.

use std::time::Duration;

use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer, Serializer, V2Serializer};

use super::Second;

/// Significant digits of a latency.
const DIGITS: u8 = 3;
/// Significant digits of a latency in the histogram of one second.
const SECOND_DIGITS: u8 = 2;
/// The longest distinguishable latency, in ns: an hour.
const LONGEST_NS: u64 = 3_600_000_000_000;

/// Latencies in ns, exact to three digits from 1 ns to an hour; longer ones count as an hour.
#[derive(Clone, Debug, PartialEq)]
pub struct Latencies(Histogram<u64>);

impl Default for Latencies {
    fn default() -> Self {
        Latencies(histogram(DIGITS))
    }
}

impl Latencies {
    /// Counts a latency.
    pub fn record(&mut self, latency: Duration) {
        record(&mut self.0, latency);
    }

    /// Adds the latencies of another load.
    pub fn add(&mut self, other: &Latencies) {
        self.0.add(&other.0).expect("all have the same range");
    }

    /// The number of latencies.
    pub fn len(&self) -> u64 {
        self.0.len()
    }

    /// True if there are no latencies.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The latency that `percent` of all do not exceed; zero if there are none.
    pub fn percentile(&self, percent: f64) -> Duration {
        Duration::from_nanos(self.0.value_at_percentile(percent))
    }

    /// The shortest, the mean and the longest latency.
    pub fn min_mean_max(&self) -> [Duration; 3] {
        let mean = Duration::from_secs_f64(self.0.mean() / 1e9);
        [Duration::from_nanos(self.0.min()), mean, Duration::from_nanos(self.0.max())]
    }

    /// The whole histogram in HdrHistogram's V2 encoding.
    pub fn encoded(&self) -> Vec<u8> {
        encode(&self.0)
    }

    /// Decodes a histogram.
    ///
    /// # Errors
    /// If the bytes are no histogram, or one of another range.
    pub fn decode(bytes: &[u8]) -> Result<Latencies, String> {
        decode(bytes, DIGITS).map(Latencies)
    }
}

/// The latencies of one second that is over, exact to two digits, in HdrHistogram's V2 encoding:
/// most of them fit some 200 bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecondLatencies(Vec<u8>);

impl Default for SecondLatencies {
    fn default() -> Self {
        SecondLatencies(encode(&histogram(SECOND_DIGITS)))
    }
}

impl SecondLatencies {
    /// Encodes the histogram of a second.
    pub(super) fn new(histogram: &Histogram<u64>) -> SecondLatencies {
        SecondLatencies(encode(histogram))
    }

    /// The encoded bytes.
    pub fn encoded(&self) -> &[u8] {
        &self.0
    }

    /// Decodes a histogram of a second.
    ///
    /// # Errors
    /// If the bytes are no histogram, or one of another range.
    pub fn decode(bytes: &[u8]) -> Result<SecondLatencies, String> {
        decode(bytes, SECOND_DIGITS)?;
        Ok(SecondLatencies(bytes.to_vec()))
    }

    /// Adds the latencies of the same second in another process.
    pub fn add(&mut self, other: &SecondLatencies) {
        let mut sum = self.histogram();
        sum.add(other.histogram()).expect("all have the same range");
        *self = SecondLatencies::new(&sum);
    }

    /// Fills in the three latencies of the second.
    pub fn complete(&self, second: Second) -> Second {
        complete(&self.histogram(), second)
    }

    fn histogram(&self) -> Histogram<u64> {
        decode(&self.0, SECOND_DIGITS).expect("it was encoded here, or decoded before")
    }
}

/// An empty histogram of a second.
pub(super) fn of_a_second() -> Histogram<u64> {
    histogram(SECOND_DIGITS)
}

/// Fills in the three latencies of the second from its histogram.
pub(super) fn complete(histogram: &Histogram<u64>, second: Second) -> Second {
    let at = |percent| Duration::from_nanos(histogram.value_at_percentile(percent));
    let longest = Duration::from_nanos(histogram.max());
    Second { median: at(50.0), p99: at(99.0), longest, ..second }
}

fn histogram(digits: u8) -> Histogram<u64> {
    Histogram::new_with_bounds(1, LONGEST_NS, digits).expect("the bounds are in order")
}

pub(super) fn record(histogram: &mut Histogram<u64>, latency: Duration) {
    histogram.saturating_record(u64::try_from(latency.as_nanos()).unwrap_or(LONGEST_NS));
}

fn encode(histogram: &Histogram<u64>) -> Vec<u8> {
    let mut bytes = Vec::new();
    V2Serializer::new()
        .serialize(histogram, &mut bytes)
        .expect("a vector takes all, and no count is over 2^63");
    bytes
}

fn decode(mut bytes: &[u8], digits: u8) -> Result<Histogram<u64>, String> {
    let decoded = Deserializer::new().deserialize::<u64, _>(&mut bytes);
    let decoded = decoded.map_err(|error| format!("histogram_v2 is none: {error}"))?;
    if (decoded.low(), decoded.high(), decoded.sigfig()) != (1, LONGEST_NS, digits) {
        return Err("histogram_v2 is of another range".to_owned());
    }
    Ok(decoded)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn an_hour_is_the_longest_that_is_told_apart() {
        let mut latencies = Latencies::default();
        latencies.record(Duration::MAX);
        let hour = MS * 3_600_000;
        assert!(latencies.percentile(100.0).abs_diff(hour) <= hour / 1000);
        assert_eq!(latencies.len(), 1);
    }

    #[test]
    fn an_encoded_record_decodes_to_itself_and_others_are_refused() {
        let mut latencies = Latencies::default();
        (1..5000).for_each(|number| latencies.record(MS * number / 7));
        let bytes = latencies.encoded();
        assert_eq!(Latencies::decode(&bytes), Ok(latencies));
        assert!(Latencies::decode(&bytes[..bytes.len() / 2]).is_err());
        let other = SecondLatencies::decode(&bytes).unwrap_err();
        assert!(other.contains("another range"), "{other}");
    }

    #[test]
    fn the_sum_of_two_seconds_is_as_if_all_were_in_one() {
        let mut histograms = [of_a_second(), of_a_second(), of_a_second()];
        for number in 1..2000 {
            record(&mut histograms[2], MS * number);
            record(&mut histograms[(number % 2) as usize], MS * number);
        }
        let [mut sum, other, all] = histograms.map(|one| SecondLatencies::new(&one));
        sum.add(&other);
        sum.add(&SecondLatencies::default());
        assert_eq!(sum, all);
        let second = sum.complete(Second { answered: 5, ..Second::default() });
        assert!(second.median.abs_diff(MS * 1000) <= MS * 10 && second.answered == 5);
        assert!(all.encoded().len() < 1000, "{}", all.encoded().len());
    }
}
