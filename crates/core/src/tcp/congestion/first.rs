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
