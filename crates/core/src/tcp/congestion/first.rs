//! The first slow start of CUBIC while it is short: what a connection needs that sends little.
//!
//! HyStart++ decides nothing in a round of fewer than eight ACKs, and a receiver sends one for two
//! segments. Until a round begins with sixteen segments in flight, the least RTT of the round
//! before is all that it may ask for. So a short transfer allocates nothing.

use super::cubic::Cubic;
use super::hystart::HyStart;
use super::{Ack, AckOutcome, WINDOW_MAX, is_used};
use crate::flow::Seq;

/// With so many segments in flight a round begins that may end slow start.
const SEGMENTS: u32 = 16;
/// No sample, or 16.7 s.
const NONE: u32 = (1 << 24) - 1;

/// A first slow start, in 11 bytes; the window lies where Reno's does.
#[derive(Clone, Copy, Debug)]
#[repr(C, packed)]
pub(super) struct First {
    /// cwnd.
    pub(super) window: u32,
    /// Where the round ends.
    round_end: Seq,
    /// The least RTT of the round, in µs.
    least_us: [u8; 3],
}

impl First {
    /// With SND.NXT at `next`.
    pub(super) fn new(window: u32, next: Seq) -> First {
        First { window, round_end: next, least_us: small(NONE) }
    }

    /// An ACK has come; `used`: the most that was in flight at once. Returns what goes on once this
    /// is outgrown.
    #[inline(always)]
    pub(super) fn on_ack(
        &mut self,
        outcome: &AckOutcome,
        ack: Ack,
        used: u32,
        mss: u32,
    ) -> Option<Cubic> {
        if !is_used(used, self.window, u32::MAX, mss) || !ack.may_grow {
            return None;
        }
        self.grow(outcome, ack, mss)
    }

    fn grow(&mut self, outcome: &AckOutcome, ack: Ack, mss: u32) -> Option<Cubic> {
        self.window = self.window.saturating_add(outcome.delivered).min(WINDOW_MAX);
        if let Some(rtt_us) = outcome.rtt_us() {
            self.least_us = small(self.least_us().min(rtt_us));
        }
        if ack.una.before(self.round_end) {
            return None;
        }
        if ack.nxt.distance(ack.una) >= (SEGMENTS * mss) as i32 {
            let least_us = Some(self.least_us()).filter(|least_us| *least_us != NONE);
            return Some(Cubic::first(self.window, HyStart::new(ack.nxt, least_us)));
        }
        (self.round_end, self.least_us) = (ack.nxt, small(NONE));
        None
    }

    /// The same with another window.
    pub(super) fn with(self, window: u32) -> First {
        First { window, ..self }
    }

    /// The algorithm at its first loss.
    pub(super) fn end(&self) -> Cubic {
        Cubic::new(self.window, u32::MAX)
    }

    fn least_us(&self) -> u32 {
        let [a, b, c] = self.least_us;
        u32::from_le_bytes([a, b, c, 0])
    }
}

fn small(us: u32) -> [u8; 3] {
    let [a, b, c, _] = us.min(NONE).to_le_bytes();
    [a, b, c]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Instant;

    const MSS: u32 = 1000;
    /// SND.NXT at the start of the round that ends, and of the next one, of sixteen segments.
    const ROUND: [u32; 2] = [5 * MSS, 21 * MSS];

    /// An ACK of one segment, with a round trip of so many µs; 0: without a sample.
    fn ack(una: u32, rtt_us: u64) -> (AckOutcome, Ack) {
        let (delivered, rtt_ns) = (MSS, rtt_us * 1000);
        let outcome = AckOutcome { delivered, rtt_ns, ..AckOutcome::default() };
        (outcome, Ack { una: Seq(una), nxt: Seq(ROUND[1]), ..Ack::at(Instant::ZERO) })
    }

    /// True if slow start is conservative after a round of short flights with those round trips,
    /// and eight samples of a long one.
    fn is_slowed(before: [u64; 5], after: u64) -> bool {
        let mut first = First::new(20 * MSS, Seq(ROUND[0]));
        let ends = before.iter().zip(1..).map(|(rtt_us, segments)| {
            let (outcome, ack) = ack(segments * MSS, *rtt_us);
            first.on_ack(&outcome, ack, u32::MAX, MSS)
        });
        let mut cubic = ends.last().flatten().expect("the round is over");
        for segments in 6..14 {
            let (outcome, ack) = ack(segments * MSS, after);
            cubic.on_ack(&outcome, ack, u32::MAX, MSS);
        }
        let next = cubic.next(cubic.window, MSS);
        assert!(next == cubic.window * 2 || next == cubic.window / 4 * 5, "{next}");
        next < cubic.window * 2
    }

    #[test]
    fn hystart_compares_with_the_least_rtt_of_its_last_round() {
        let before = [30_000, 0, 20_000, 25_000, 21_000];
        assert!(is_slowed(before, 24_000), "4 ms more (RFC 9406 §4.2)");
        assert!(!is_slowed(before, 23_999));
        assert!(!is_slowed([0; 5], 17_000_000), "nothing is known of that round");
    }
}
