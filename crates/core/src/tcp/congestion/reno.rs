//! Reno: slow start, congestion avoidance, and what a loss does (RFC 5681).
//!
//! Growth counts acknowledged bytes (RFC 3465) without its limit of two segments an ACK outside
//! loss recovery: a receiver that joins segments, or that handles a batch before it acknowledges,
//! as this one does, sends one ACK for many segments, and the limit would make it crawl. RFC 9002
//! §7 does the same. After a timeout the limit of one segment an ACK holds, because then one ACK
//! can cover much that left the network long ago.

use super::{Ack, AckOutcome, Loss, Mode, WINDOW_MAX, is_used};

/// State of the algorithm, in bytes. It takes 11 of them.
#[derive(Clone, Copy, Debug)]
#[repr(C, packed)]
pub(crate) struct Reno {
    /// cwnd.
    pub(super) window: u32,
    /// ssthresh.
    pub(super) threshold: u32,
    /// Bytes acknowledged towards the next increase in congestion avoidance.
    acked: [u8; 3],
}

/// Below this window three bytes count what is acknowledged of it.
const STEP_MAX: u32 = 1 << 24;
/// A larger window grows by 2⁻⁶ of a segment for as much of it.
const STEP_SHIFT: u32 = 6;

impl Reno {
    pub(super) fn new(window: u32, threshold: u32) -> Self {
        Reno { window, threshold, acked: [0; 3] }
    }

    /// An ACK has come; `used`: the most that was in flight at once.
    pub(super) fn on_ack(&mut self, outcome: &AckOutcome, ack: Ack, used: u32, mss: u32) {
        let may_grow = ack.may_grow && is_used(used, self.window, self.threshold, mss);
        // In fast recovery the window stays as it is.
        if may_grow && ack.mode != Mode::Fast {
            self.grow(outcome.delivered, ack.mode == Mode::Timeout, mss);
        }
    }

    /// Nothing was sent for a while: the window is less, and the path has carried `sustained`.
    pub(super) fn on_idle(&mut self, window: u32, sustained: u32) {
        if window < self.window {
            (self.window, self.threshold) = (window, self.threshold.max(sustained));
        }
    }

    /// Slow start doubles the window, congestion avoidance adds a segment (RFC 5681 §3.1). The
    /// latter counts from whole segments, as the paper does.
    pub(super) fn next(&self, window: u32, mss: u32) -> u32 {
        if window < self.threshold {
            window.saturating_mul(2).min(self.threshold)
        } else {
            (window - window % mss).saturating_add(mss)
        }
        .min(WINDOW_MAX)
    }

    fn grow(&mut self, acked: u32, after_timeout: bool, mss: u32) {
        if self.window < self.threshold {
            let counted = if after_timeout { acked.min(mss) } else { acked };
            let grown = self.window.saturating_add(counted).min(WINDOW_MAX);
            if grown <= self.threshold {
                self.window = grown;
                return;
            }
            self.window = self.threshold;
            self.avoid(grown - self.threshold, mss);
        } else {
            self.avoid(self.acked().saturating_add(acked), mss);
        }
    }

    /// So much of the window is acknowledged since the last increase.
    fn avoid(&mut self, mut acked: u32, mss: u32) {
        let window = self.window;
        if window >= STEP_MAX {
            let step = window >> STEP_SHIFT;
            let grown = (u64::from(acked / step) * u64::from(mss)) >> STEP_SHIFT;
            self.window = (u64::from(window) + grown).min(WINDOW_MAX.into()) as u32;
            acked %= step;
        } else if acked >= window {
            acked -= window;
            self.window = window.saturating_add(mss).min(WINDOW_MAX);
        }
        let [a, b, c, _] = acked.min(STEP_MAX - 1).to_le_bytes();
        self.acked = [a, b, c];
    }

    fn acked(&self) -> u32 {
        let [a, b, c] = self.acked;
        u32::from_le_bytes([a, b, c, 0])
    }

    pub(super) fn on_loss(&mut self, loss: Loss, mss: u32) {
        self.reduce((loss.flight / 2).max(2 * mss));
    }

    /// Goes on in congestion avoidance from that window.
    pub(super) fn reduce(&mut self, window: u32) {
        (self.threshold, self.window, self.acked) = (window, window, [0; 3]);
    }

    /// A reduction was not needed, and the windows were so `before` it.
    pub(super) fn restore(&mut self, before: &Reno, window: u32) {
        (self.window, self.threshold) = (window, before.threshold.max(before.window));
    }

    pub(super) fn on_timeout(&mut self, loss: Loss, again: bool, mss: u32) {
        if !again {
            self.threshold = (loss.flight / 2).max(2 * mss);
        }
        self.window = mss;
        self.acked = [0; 3];
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Instant;

    const MSS: u32 = 1000;

    fn ack(reno: &mut Reno, delivered: u32, mode: Mode) {
        let outcome = AckOutcome { delivered, ..AckOutcome::default() };
        let ack = Ack { mode, ..Ack::at(Instant::ZERO) };
        reno.on_ack(&outcome, ack, u32::MAX, MSS);
    }

    fn loss(flight: u32) -> Loss {
        Loss { now: Instant::ZERO, flight, is_marked: false }
    }

    fn first() -> Reno {
        Reno::new(10 * MSS, u32::MAX)
    }

    #[test]
    fn slow_start_doubles_a_round_and_stops_at_the_threshold() {
        let mut reno = first();
        ack(&mut reno, 10 * MSS, Mode::Open);
        assert_eq!({ reno.window }, 20 * MSS);
        reno.threshold = 25 * MSS;
        ack(&mut reno, 20 * MSS, Mode::Open);
        assert_eq!({ reno.window }, 25 * MSS);
    }

    #[test]
    fn avoidance_adds_one_segment_a_window() {
        let mut reno = Reno::new(10 * MSS, 10 * MSS);
        for _ in 0..9 {
            ack(&mut reno, MSS, Mode::Open);
        }
        assert_eq!({ reno.window }, 10 * MSS);
        ack(&mut reno, MSS, Mode::Open);
        assert_eq!({ reno.window }, 11 * MSS);
    }

    #[test]
    fn the_next_window_is_this_one_after_a_round_of_acks() {
        for (window, threshold) in [(1, 64), (10, 64), (40, 64), (64, 64), (70, 64), (2, u32::MAX)]
        {
            let threshold = threshold.min(1 << 20) * MSS;
            let mut reno = Reno::new(window * MSS, threshold);
            let next = reno.next(reno.window, MSS);
            for _ in 0..window {
                ack(&mut reno, MSS, Mode::Open);
            }
            assert_eq!({ reno.window }, next, "{window} segments, threshold {threshold}");
        }
        let between = Reno::new(2900, 2000);
        assert_eq!(between.next(between.window, MSS), 3000, "whole segments and one");
        let widest = Reno::new(WINDOW_MAX, u32::MAX);
        assert_eq!(widest.next(WINDOW_MAX, MSS), WINDOW_MAX);
    }

    #[test]
    fn the_window_does_not_grow_in_fast_recovery() {
        let mut reno = first();
        ack(&mut reno, 5 * MSS, Mode::Fast);
        assert_eq!({ reno.window }, 10 * MSS);
    }

    #[test]
    fn a_loss_halves_and_a_timeout_starts_again_from_one() {
        let mut reno = first();
        reno.on_loss(loss(40 * MSS), MSS);
        assert_eq!((reno.window, reno.threshold), (20 * MSS, 20 * MSS));
        reno.on_timeout(loss(20 * MSS), false, MSS);
        assert_eq!((reno.window, reno.threshold), (MSS, 10 * MSS));
        reno.on_timeout(loss(MSS), true, MSS);
        assert_eq!({ reno.threshold }, 10 * MSS, "the second timeout of the same data keeps it");
        ack(&mut reno, 5 * MSS, Mode::Timeout);
        assert_eq!({ reno.window }, 2 * MSS, "after a timeout one segment an ACK");
        reno.on_loss(loss(MSS), MSS);
        assert_eq!({ reno.threshold }, 2 * MSS, "never under two segments");
    }

    #[test]
    fn a_window_beyond_16_mib_grows_by_a_segment_a_window_as_well() {
        for window in [STEP_MAX - 500, STEP_MAX, 100_000_000] {
            let mut reno = Reno::new(window, window);
            let mut acked = 0;
            while acked < window {
                ack(&mut reno, 30_000, Mode::Open);
                acked += 30_000;
            }
            let grown = reno.window - window;
            assert!((MSS - MSS / 20..=MSS).contains(&grown), "{grown} of {window}");
        }
    }

    /// The windows after ACKs of so many bytes, in turn.
    fn windows<const N: usize>(mut reno: Reno, acked: [u32; N]) -> [u32; N] {
        acked.map(|acked| {
            ack(&mut reno, acked, Mode::Open);
            reno.window
        })
    }

    #[test]
    fn what_is_acknowledged_beyond_an_increase_is_kept() {
        let avoiding = Reno::new(10 * MSS, 10 * MSS);
        assert_eq!(windows(avoiding, [10 * MSS, MSS]), [11 * MSS, 11 * MSS]);
        assert_eq!(windows(avoiding, [15 * MSS, 6 * MSS]), [11 * MSS, 12 * MSS]);
        let starting = Reno::new(9 * MSS, 10 * MSS);
        assert_eq!(windows(starting, [2 * MSS, 9 * MSS]), [10 * MSS, 11 * MSS], "slow start's");
        // More than the count can hold is as much as it can.
        assert_eq!(windows(avoiding, [STEP_MAX + 20 * MSS, 0]), [11 * MSS, 12 * MSS]);
    }

    #[test]
    fn a_pause_that_takes_nothing_leaves_the_threshold() {
        let mut reno = Reno::new(10 * MSS, 5 * MSS);
        reno.on_idle(10 * MSS, 8 * MSS);
        assert_eq!((reno.window, reno.threshold), (10 * MSS, 5 * MSS));
        reno.on_idle(9 * MSS, 8 * MSS);
        assert_eq!((reno.window, reno.threshold), (9 * MSS, 8 * MSS));
    }

    #[test]
    fn a_timeout_of_little_leaves_a_threshold_of_two_segments() {
        let mut reno = first();
        reno.on_timeout(loss(MSS), false, MSS);
        assert_eq!({ reno.threshold }, 2 * MSS);
    }
}
