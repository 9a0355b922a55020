//! Round-trip time and the retransmission timeout (RFC 6298).
//!
//! Samples are the age of a segment when its acknowledgement arrives, in nanoseconds, taken only
//! from segments sent once (Karn's rule). Many samples a round trip would make the gains of
//! RFC 6298 §2.3 forget too fast, so they are divided as RFC 7323 Appendix G says.
//!
//! `RTO = SRTT + max(G, 4·RTTVAR, floor)`: the floor is added and not compared with the sum, so
//! that it covers a receiver that delays the ACK of a lone tail segment whatever the RTT is.

use crate::config::TcpConfig;
use crate::time::{Duration, as_nanos};

/// Resolution G of the scheduling clock, in ns: a shard's turns are not finer than this.
const GRANULARITY_NS: u64 = 1_000_000;

/// The estimator of one connection.
#[derive(Clone, Copy, Debug)]
pub struct Rtt {
    srtt_ns: u64,
    rttvar_ns: u64,
    latest_ns: u64,
    initial_rto_ns: u64,
    backoff: u8,
}

impl Rtt {
    /// No sample yet: the RTO is the initial one.
    pub fn new(config: &TcpConfig) -> Self {
        Rtt {
            srtt_ns: 0,
            rttvar_ns: 0,
            latest_ns: 0,
            initial_rto_ns: as_nanos(config.initial_rto),
            backoff: 0,
        }
    }

    /// RFC 6298 §5.7: the SYN was retransmitted, so data starts with an RTO of 3 s.
    pub fn on_syn_retransmitted(&mut self) {
        self.initial_rto_ns = self.initial_rto_ns.max(3_000_000_000);
    }

    /// A segment sent once was acknowledged after `sample`, while `in_flight_segments` were out.
    pub fn on_sample(&mut self, sample: Duration, in_flight_segments: u32) {
        let sample = as_nanos(sample).max(1);
        self.latest_ns = sample;
        if self.srtt_ns == 0 {
            self.srtt_ns = sample;
            self.rttvar_ns = sample / 2;
            return;
        }
        // RFC 7323 Appendix G: ExpectedSamples = ceil(FlightSize / (2·SMSS)).
        let expected = u64::from(in_flight_segments.div_ceil(2).max(1));
        let deviation = self.srtt_ns.abs_diff(sample);
        let (beta, alpha) = (4 * expected, 8 * expected);
        self.rttvar_ns = self.rttvar_ns - self.rttvar_ns / beta + deviation / beta;
        self.srtt_ns = (self.srtt_ns - self.srtt_ns / alpha + sample / alpha).max(1);
    }

    /// New data was acknowledged: RFC 6298 §5.7 and Karn end the back-off.
    pub fn on_progress(&mut self) {
        self.backoff = 0;
    }

    /// The timer fired: double the RTO (RFC 6298 §5.5).
    pub fn back_off(&mut self) {
        self.backoff = self.backoff.saturating_add(1).min(30);
    }

    /// How often the timer has fired in a row.
    pub fn backoff(&self) -> u8 {
        self.backoff
    }

    /// The timeout in force, back-off included.
    pub fn rto(&self, config: &TcpConfig) -> Duration {
        let base = if self.srtt_ns == 0 {
            self.initial_rto_ns
        } else {
            let floor = as_nanos(config.rto_floor);
            self.srtt_ns.saturating_add((4 * self.rttvar_ns).max(floor).max(GRANULARITY_NS))
        };
        let backed_off = base.saturating_mul(1u64 << self.backoff);
        Duration::from_nanos(backed_off.min(as_nanos(config.rto_max)))
    }

    /// Smoothed round-trip time; zero before the first sample.
    pub fn srtt(&self) -> Duration {
        Duration::from_nanos(self.srtt_ns)
    }

    /// Round-trip time variation.
    pub fn rttvar(&self) -> Duration {
        Duration::from_nanos(self.rttvar_ns)
    }

    /// The latest sample; zero before the first.
    pub fn latest(&self) -> Duration {
        Duration::from_nanos(self.latest_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> TcpConfig {
        TcpConfig::default()
    }

    #[test]
    fn the_rto_is_one_second_before_a_sample_and_three_after_a_lost_syn() {
        let mut rtt = Rtt::new(&config());
        assert_eq!(rtt.rto(&config()), Duration::from_secs(1));
        rtt.on_syn_retransmitted();
        assert_eq!(rtt.rto(&config()), Duration::from_secs(3));
    }

    #[test]
    fn the_first_sample_sets_srtt_and_half_of_it_as_variation() {
        let mut rtt = Rtt::new(&config());
        rtt.on_sample(Duration::from_millis(100), 1);
        assert_eq!(rtt.srtt(), Duration::from_millis(100));
        assert_eq!(rtt.rttvar(), Duration::from_millis(50));
        assert_eq!(rtt.rto(&config()), Duration::from_millis(300));
    }

    #[test]
    fn a_steady_path_comes_down_to_srtt_plus_floor() {
        let mut rtt = Rtt::new(&config());
        for _ in 0..200 {
            rtt.on_sample(Duration::from_millis(60), 1);
        }
        let rto = rtt.rto(&config());
        assert!(rto >= Duration::from_millis(259) && rto <= Duration::from_millis(261), "{rto:?}");
    }

    #[test]
    fn back_off_doubles_to_the_maximum_and_progress_ends_it() {
        let mut rtt = Rtt::new(&config());
        rtt.back_off();
        rtt.back_off();
        assert_eq!(rtt.rto(&config()), Duration::from_secs(4));
        for _ in 0..40 {
            rtt.back_off();
        }
        assert_eq!(rtt.rto(&config()), Duration::from_secs(60));
        rtt.on_progress();
        assert_eq!(rtt.rto(&config()), Duration::from_secs(1));
    }

    #[test]
    fn many_samples_a_round_forget_no_faster_than_one() {
        let (mut one, mut many) = (Rtt::new(&config()), Rtt::new(&config()));
        one.on_sample(Duration::from_millis(100), 1);
        many.on_sample(Duration::from_millis(100), 1);
        one.on_sample(Duration::from_millis(200), 1);
        for _ in 0..10 {
            many.on_sample(Duration::from_millis(200), 20);
        }
        let difference = one.srtt().abs_diff(many.srtt());
        assert!(difference < Duration::from_millis(2), "{difference:?}");
    }
}
