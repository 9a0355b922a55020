//! Reno: slow start, congestion avoidance, and what a loss does (RFC 5681).
//!
//! Growth counts acknowledged bytes (RFC 3465) without its limit of two segments an ACK outside
//! loss recovery: a receiver that joins segments, or that handles a batch before it acknowledges,
//! as this one does, sends one ACK for many segments, and the limit would make it crawl. RFC 9002
//! §7 does the same. After a timeout the limit of one segment an ACK holds, because then one ACK
//! can cover much that left the network long ago.

use super::{Ack, AckOutcome, Loss, Mode};

/// State of the algorithm, in bytes.
#[derive(Clone, Debug)]
pub(crate) struct Reno {
    /// cwnd.
    pub(super) window: u32,
    /// ssthresh.
    pub(super) threshold: u32,
    /// Bytes acknowledged towards the next increase in congestion avoidance.
    acked: u32,
}

/// Never more than a scaled window can express.
const WINDOW_MAX: u32 = 1 << 30;

impl Reno {
    /// IW = min(segments·MSS, max(2·MSS, 14600)) for ten segments (RFC 6928 §2).
    pub(super) fn new(initial_segments: u32, mss: u32) -> Self {
        Reno { window: initial_window(initial_segments, mss), threshold: u32::MAX, acked: 0 }
    }

    #[cfg(test)]
    pub(super) fn at(window: u32, threshold: u32) -> Self {
        Reno { window, threshold, acked: 0 }
    }

    #[inline(always)]
    pub(super) fn on_ack(&mut self, outcome: &AckOutcome, ack: Ack, mss: u32) {
        // In fast recovery the window stays as it is.
        if ack.mode != Mode::Fast {
            self.grow(outcome.delivered, ack.mode == Mode::Timeout, mss);
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
            self.acked = grown - self.threshold;
            self.window = self.threshold;
        } else {
            self.acked = self.acked.saturating_add(acked);
        }
        if self.acked >= self.window {
            self.acked -= self.window;
            self.window = self.window.saturating_add(mss).min(WINDOW_MAX);
        }
    }

    pub(super) fn on_loss(&mut self, loss: Loss, mss: u32) {
        self.threshold = (loss.flight / 2).max(2 * mss);
        self.window = self.threshold;
        self.acked = 0;
    }

    pub(super) fn on_timeout(&mut self, loss: Loss, again: bool, mss: u32) {
        if !again {
            self.threshold = (loss.flight / 2).max(2 * mss);
        }
        self.window = mss;
        self.acked = 0;
    }

    pub(super) fn on_idle(&mut self, initial_segments: u32, mss: u32) {
        self.window = self.window_after_idle(initial_segments, mss);
    }

    pub(super) fn window_after_idle(&self, initial_segments: u32, mss: u32) -> u32 {
        self.window.min(initial_window(initial_segments, mss))
    }
}

fn initial_window(segments: u32, mss: u32) -> u32 {
    (segments * mss).min((2 * mss).max(segments * 1460))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Instant;

    const MSS: u32 = 1000;

    fn ack(reno: &mut Reno, delivered: u32, mode: Mode) {
        let outcome = AckOutcome { delivered, ..AckOutcome::default() };
        let (now, may_grow) = (Instant::ZERO, true);
        reno.on_ack(&outcome, Ack { now, mode, may_grow }, MSS);
    }

    fn loss(flight: u32) -> Loss {
        Loss { now: Instant::ZERO, flight }
    }

    #[test]
    fn the_initial_window_follows_rfc_6928() {
        assert_eq!(Reno::new(10, 1460).window, 14_600);
        assert_eq!(Reno::new(10, 9000).window, 18_000);
        assert_eq!(Reno::new(10, 536).window, 5360);
        assert_eq!(Reno::new(1, 1460).window, 1460);
    }

    #[test]
    fn slow_start_doubles_a_round_and_stops_at_the_threshold() {
        let mut reno = Reno::new(10, MSS);
        ack(&mut reno, 10 * MSS, Mode::Open);
        assert_eq!(reno.window, 20 * MSS);
        reno.threshold = 25 * MSS;
        ack(&mut reno, 20 * MSS, Mode::Open);
        assert_eq!(reno.window, 25 * MSS);
    }

    #[test]
    fn avoidance_adds_one_segment_a_window() {
        let mut reno = Reno { window: 10 * MSS, threshold: 10 * MSS, acked: 0 };
        for _ in 0..9 {
            ack(&mut reno, MSS, Mode::Open);
        }
        assert_eq!(reno.window, 10 * MSS);
        ack(&mut reno, MSS, Mode::Open);
        assert_eq!(reno.window, 11 * MSS);
    }

    #[test]
    fn the_next_window_is_this_one_after_a_round_of_acks() {
        for (window, threshold) in [(1, 64), (10, 64), (40, 64), (64, 64), (70, 64), (2, u32::MAX)]
        {
            let threshold = threshold.min(1 << 20) * MSS;
            let mut reno = Reno { window: window * MSS, threshold, acked: 0 };
            let next = reno.next(reno.window, MSS);
            for _ in 0..window {
                ack(&mut reno, MSS, Mode::Open);
            }
            assert_eq!(reno.window, next, "{window} segments, threshold {threshold}");
        }
        let between = Reno { window: 2900, threshold: 2000, acked: 0 };
        assert_eq!(between.next(between.window, MSS), 3000, "whole segments and one");
        let widest = Reno { window: WINDOW_MAX, threshold: u32::MAX, acked: 0 };
        assert_eq!(widest.next(WINDOW_MAX, MSS), WINDOW_MAX);
    }

    #[test]
    fn the_window_does_not_grow_in_fast_recovery() {
        let mut reno = Reno::new(10, MSS);
        ack(&mut reno, 5 * MSS, Mode::Fast);
        assert_eq!(reno.window, 10 * MSS);
    }

    #[test]
    fn a_loss_halves_and_a_timeout_starts_again_from_one() {
        let mut reno = Reno::new(10, MSS);
        reno.on_loss(loss(40 * MSS), MSS);
        assert_eq!((reno.window, reno.threshold), (20 * MSS, 20 * MSS));
        reno.on_timeout(loss(20 * MSS), false, MSS);
        assert_eq!((reno.window, reno.threshold), (MSS, 10 * MSS));
        reno.on_timeout(loss(MSS), true, MSS);
        assert_eq!(reno.threshold, 10 * MSS, "the second timeout of the same data keeps it");
        ack(&mut reno, 5 * MSS, Mode::Timeout);
        assert_eq!(reno.window, 2 * MSS, "after a timeout one segment an ACK");
        reno.on_loss(loss(MSS), MSS);
        assert_eq!(reno.threshold, 2 * MSS, "never under two segments");
    }
}
