//! HyStart++: the first slow start ends before it overfills the path (RFC 9406).
//!
//! ```text
//!              RTT has risen              5 rounds
//!   slow start ─────────────▶ conservative ───────▶ congestion avoidance
//!              ◀───────────── slow start
//!              RTT has fallen
//! ```
//!
//! A round ends once all that was in flight at its start is acknowledged. The least RTT of a round
//! is compared with that of the round before. Times count in µs.

use crate::flow::Seq;

/// MIN_RTT_THRESH, MAX_RTT_THRESH: by how much the RTT must rise.
const RISE_MIN_US: u32 = 4_000;
const RISE_MAX_US: u32 = 16_000;
/// MIN_RTT_DIVISOR.
const RISE_DIVISOR: u32 = 8;
/// N_RTT_SAMPLE: so many samples make a round tell something.
const SAMPLES: u8 = 8;
/// CSS_GROWTH_DIVISOR.
const GROWTH_DIVISOR: u32 = 4;
/// CSS_ROUNDS.
const ROUNDS: u8 = 5;
/// No sample.
const NONE: u32 = u32::MAX;

/// The state of a first slow start.
#[derive(Clone, Copy, Debug)]
pub(super) struct HyStart {
    /// windowEnd.
    round_end: Seq,
    /// lastRoundMinRTT.
    last_us: u32,
    /// currentRoundMinRTT.
    current_us: u32,
    /// cssBaselineMinRtt; [`NONE`] in slow start.
    baseline_us: u32,
    /// rttSampleCount, as far as it matters.
    samples: u8,
    /// Rounds of the conservative slow start, the one in which it began included.
    rounds: u8,
}

impl HyStart {
    /// A round begins, with SND.NXT at `nxt`, after one whose least RTT was `last_us`, if it had a
    /// sample.
    pub(super) fn new(nxt: Seq, last_us: Option<u32>) -> HyStart {
        HyStart {
            round_end: nxt,
            last_us: last_us.unwrap_or(NONE),
            current_us: NONE,
            baseline_us: NONE,
            samples: 0,
            rounds: 0,
        }
    }

    /// How much the window may grow by an ACK of `acked` bytes (RFC 9406 §4.2).
    pub(super) fn growth(&self, acked: u32) -> u32 {
        if self.is_conservative() { acked / GROWTH_DIVISOR } else { acked }
    }

    /// The window a round on, all of it used.
    pub(super) fn next(&self, window: u32) -> u32 {
        window.saturating_add(self.growth(window))
    }

    /// True in conservative slow start (CSS).
    pub(super) fn is_conservative(&self) -> bool {
        self.baseline_us != NONE
    }

    /// An ACK has come, with a sample of the RTT or without: SND.UNA is `una`, and SND.NXT `nxt`.
    /// True if slow start is over.
    pub(super) fn on_ack(&mut self, rtt_us: Option<u32>, una: Seq, nxt: Seq) -> bool {
        if let Some(rtt_us) = rtt_us {
            self.current_us = self.current_us.min(rtt_us);
            self.samples = self.samples.saturating_add(1);
        }
        if self.samples >= SAMPLES {
            self.judge();
        }
        una.at_or_after(self.round_end) && self.end_round(nxt)
    }

    fn judge(&mut self) {
        if self.is_conservative() {
            if self.current_us < self.baseline_us {
                // What had risen was jitter.
                self.baseline_us = NONE;
            }
        } else if self.last_us != NONE {
            let rise_us = (self.last_us / RISE_DIVISOR).clamp(RISE_MIN_US, RISE_MAX_US);
            if self.current_us >= self.last_us.saturating_add(rise_us) {
                (self.baseline_us, self.rounds) = (self.current_us, 0);
            }
        }
    }

    fn end_round(&mut self, nxt: Seq) -> bool {
        if self.is_conservative() {
            self.rounds += 1;
        }
        (self.round_end, self.last_us) = (nxt, self.current_us);
        (self.current_us, self.samples) = (NONE, 0);
        self.is_conservative() && self.rounds >= ROUNDS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u32 = 1000;

    /// Sends and hears rounds of ten segments of a byte.
    struct Path {
        hystart: HyStart,
        una: Seq,
    }

    impl Path {
        fn new() -> Path {
            Path { hystart: HyStart::new(Seq(10), None), una: Seq(0) }
        }

        /// A round with so many samples, all of `rtt_us`. True if slow start is over.
        fn round(&mut self, rtt_us: u32, samples: u32) -> bool {
            (0..10).fold(false, |over, index| {
                self.una += 1;
                let sample = (index < samples).then_some(rtt_us);
                self.hystart.on_ack(sample, self.una, self.una + 10) || over
            })
        }

        fn is_conservative(&self) -> bool {
            self.hystart.is_conservative()
        }
    }

    /// By how many µs the RTT must rise above `last_us`.
    fn rise(last_us: u32) -> u32 {
        (1..20_000)
            .find(|rise| {
                let mut path = Path::new();
                path.round(last_us, 10);
                path.round(last_us + rise, 10);
                path.is_conservative()
            })
            .unwrap()
    }

    #[test]
    fn the_rtt_must_rise_by_an_eighth_and_by_4_to_16_ms() {
        assert_eq!((rise(100), rise(32 * MS), rise(40 * MS)), (4 * MS, 4 * MS, 5 * MS));
        assert_eq!((rise(128 * MS), rise(500 * MS)), (16 * MS, 16 * MS));
    }

    #[test]
    fn a_round_of_fewer_than_eight_samples_tells_nothing_by_itself() {
        for (samples, tells) in [(7, false), (8, true)] {
            let mut path = Path::new();
            path.round(10 * MS, 1);
            path.round(50 * MS, samples);
            assert_eq!(path.is_conservative(), tells, "{samples}");
        }
        let mut path = Path::new();
        path.round(50 * MS, 0);
        path.round(50 * MS, 10);
        assert!(!path.is_conservative(), "without a round before there is no rise");
    }

    #[test]
    fn conservative_slow_start_adds_a_quarter_for_five_rounds() {
        let mut path = Path::new();
        assert_eq!(path.hystart.growth(1000), 1000);
        path.round(10 * MS, 10);
        let over: std::vec::Vec<bool> = (0..5).map(|_| path.round(20 * MS, 10)).collect();
        assert_eq!(path.hystart.growth(1000), 250);
        assert_eq!(over, [false, false, false, false, true], "the first of them counts");
    }

    #[test]
    fn an_rtt_that_falls_again_brings_slow_start_back() {
        let mut path = Path::new();
        path.round(10 * MS, 10);
        path.round(20 * MS, 10);
        path.round(20 * MS, 10);
        assert!(path.is_conservative(), "the same is not less");
        path.round(20 * MS - 1, 7);
        assert!(path.is_conservative(), "too few samples");
        path.round(20 * MS - 1, 8);
        assert!(!path.is_conservative());
        path.round(30 * MS, 10);
        let over: std::vec::Vec<bool> = (0..4).map(|_| path.round(30 * MS, 10)).collect();
        assert_eq!(over, [false, false, false, true], "it counts five rounds anew");
    }
}
