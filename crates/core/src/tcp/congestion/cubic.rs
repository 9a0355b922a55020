//! CUBIC (RFC 9438): after a loss the window grows back along a cubic curve of time, quickly far
//! from where the loss was and slowly near it, whatever the round trip; and never slower than Reno
//! would.
//!
//! Windows count in bytes; what is less than a byte is carried over. The increase for an ACK is in
//! proportion to the bytes that it acknowledges, where the RFC has segments.

mod curve;

use super::hystart::HyStart;
use super::{Ack, AckOutcome, Loss, Mode, Sent, WINDOW_MAX, is_used};
use crate::time::Instant;

/// β: a loss reduces the window to 7/10.
const BETA: (u32, u32) = (7, 10);
/// (1 + β)/2: fast convergence reduces W_max to 17/20.
const CONVERGENCE: (u32, u32) = (17, 20);
/// α = 3·(1 - β)/(1 + β) = 9/17.
const ALPHA: (u32, u32) = (9, 17);

/// State of the algorithm.
#[derive(Clone, Debug)]
pub(super) struct Cubic {
    /// cwnd.
    pub(super) window: u32,
    /// ssthresh.
    pub(super) threshold: u32,
    /// W_max: where the curve is flat; 0: not known.
    plateau: u32,
    /// cwnd_prior.
    prior: u32,
    /// W_est: what Reno would have.
    estimate: u32,
    /// What W_est lacks to a byte more, as a multiple of 1/(17·cwnd).
    estimate_part: u64,
    /// What cwnd lacks to a byte more, as a multiple of 1/cwnd.
    part: u64,
    /// t_epoch: when the present congestion avoidance began; [`Instant::FAR_FUTURE`]: it has not.
    epoch: Instant,
    /// Up to then the time counts towards t.
    counted: Instant,
    /// K, in units of the curve.
    k: u32,
    /// RTT, in units of the curve.
    rtt: u32,
    /// The first slow start.
    hystart: Option<HyStart>,
}

impl Cubic {
    /// Not in a first slow start.
    pub(super) fn new(window: u32, threshold: u32) -> Cubic {
        Cubic {
            window,
            threshold,
            plateau: 0,
            prior: window,
            estimate: 0,
            estimate_part: 0,
            part: 0,
            epoch: Instant::FAR_FUTURE,
            counted: Instant::ZERO,
            k: 0,
            rtt: 0,
            hystart: None,
        }
    }

    /// In a first slow start.
    pub(super) fn first(window: u32, hystart: HyStart) -> Cubic {
        Cubic { hystart: Some(hystart), ..Cubic::new(window, u32::MAX) }
    }

    /// What the window follows between two losses.
    #[cfg(test)]
    pub(super) fn curve(&self) -> (u32, u32, u32, Instant, u32) {
        (self.plateau, self.prior, self.k, self.epoch, self.estimate)
    }

    // ---- growth

    /// Text has left.
    pub(super) fn on_sent(&mut self, sent: &Sent) {
        if sent.was_idle {
            self.leave_out(sent.now);
        }
    }

    /// An ACK has come; `used`: the most that was in flight at once.
    pub(super) fn on_ack(&mut self, outcome: &AckOutcome, ack: Ack, used: u32, mss: u32) {
        self.rtt = curve::units(ack.srtt_ns) as u32;
        if ack.mode == Mode::Fast {
            return;
        }
        if !is_used(used, self.window, self.threshold, mss) {
            return self.leave_out(ack.now);
        }
        self.counted = ack.now;
        if !ack.may_grow {
            return;
        }
        if self.window < self.threshold {
            self.start_slowly(outcome, ack, mss);
        } else {
            self.avoid(outcome.delivered, ack.now, mss);
        }
    }

    /// The time up to now does not count: the application, and not the window, has held the sender
    /// back (RFC 9438 §4.2, §5.8).
    fn leave_out(&mut self, now: Instant) {
        if self.epoch != Instant::FAR_FUTURE {
            self.epoch = self.epoch.plus_nanos(now.nanos_since(self.counted));
        }
        self.counted = now;
    }

    /// Slow start: the first one by HyStart++, others as Reno's (RFC 9438 §4.10). All of them count
    /// what is acknowledged as Reno's does.
    fn start_slowly(&mut self, outcome: &AckOutcome, ack: Ack, mss: u32) {
        let limit = if ack.mode == Mode::Timeout { mss } else { u32::MAX };
        let acked = outcome.delivered.min(limit);
        let growth = self.hystart.as_ref().map_or(acked, |hystart| hystart.growth(acked));
        self.window = self.window.saturating_add(growth).min(self.threshold).min(WINDOW_MAX);
        let Some(hystart) = &mut self.hystart else { return };
        if hystart.on_ack(outcome.rtt_us(), ack.una, ack.nxt) {
            self.hystart = None;
            (self.threshold, self.prior, self.plateau) = (self.window, self.window, 0);
        }
    }

    /// Congestion avoidance (RFC 9438 §4.2–4.5).
    fn avoid(&mut self, delivered: u32, now: Instant, mss: u32) {
        if self.epoch == Instant::FAR_FUTURE {
            self.begin(now, mss);
        }
        let t = curve::units(now.nanos_since(self.epoch));
        self.estimate_reno(delivered, mss);
        if self.on_curve(t, mss) < self.estimate {
            self.window = self.window.max(self.estimate);
            return;
        }
        let target = self.target(t, self.window, mss);
        self.part += u64::from(target - self.window) * u64::from(delivered.min(self.window));
        self.window = (self.window + take_whole(&mut self.part, self.window)).min(WINDOW_MAX);
    }

    /// A congestion avoidance begins. Where no loss was the reason, or the window is beyond W_max,
    /// the curve is flat here (RFC 9438 §4.8, §4.10).
    fn begin(&mut self, now: Instant, mss: u32) {
        self.epoch = now;
        (self.estimate, self.estimate_part, self.part) = (self.window, 0, 0);
        self.plateau = self.plateau.max(self.window);
        self.k = curve::time_to_rise(self.plateau - self.window, mss) as u32;
    }

    /// W_est grows by α segments a window; by a whole one where Reno's would be beyond the loss
    /// (RFC 9438 §4.3).
    fn estimate_reno(&mut self, delivered: u32, mss: u32) {
        let window = u64::from(self.window);
        let bytes = u64::from(self.alpha(self.estimate, mss)) * u64::from(delivered);
        self.estimate_part = self.estimate_part.saturating_add(bytes);
        let grown = take_whole_of(&mut self.estimate_part, window * u64::from(ALPHA.1));
        self.estimate = self.estimate.saturating_add(grown).min(WINDOW_MAX);
    }

    /// α·MSS of a Reno that is at `window`, as a multiple of 1/17.
    fn alpha(&self, window: u32, mss: u32) -> u32 {
        mss * if window < self.prior { ALPHA.0 } else { ALPHA.1 }
    }

    /// W_cubic(t), bytes.
    fn on_curve(&self, t: u64, mss: u32) -> u32 {
        let (k, plateau) = (u64::from(self.k), u64::from(self.plateau));
        let rise = curve::rise(t.abs_diff(k), mss);
        let window = if t < k { plateau.saturating_sub(rise) } else { plateau + rise };
        window.min(WINDOW_MAX.into()) as u32
    }

    /// The window a round trip after t, if it is `window` now.
    fn target(&self, t: u64, window: u32, mss: u32) -> u32 {
        let most = window.saturating_add(window / 2);
        self.on_curve(t + u64::from(self.rtt), mss).clamp(window, most)
    }

    /// The window one round trip on, if it is `window` now: by the curve the time follows from the
    /// window.
    pub(super) fn next(&self, window: u32, mss: u32) -> u32 {
        if window < self.threshold {
            let doubled = || window.saturating_mul(2);
            let grown = self.hystart.as_ref().map_or_else(doubled, |hystart| hystart.next(window));
            return grown.min(self.threshold).min(WINDOW_MAX);
        }
        let by_reno = window.saturating_add(self.alpha(window, mss) / ALPHA.1);
        let next = if self.epoch == Instant::FAR_FUTURE {
            let mut stage = Cubic { window, ..self.clone() };
            stage.begin(Instant::ZERO, mss);
            stage.by_curve(window, mss)
        } else if self.estimate >= self.window {
            by_reno
        } else {
            self.by_curve(window, mss)
        };
        next.min(WINDOW_MAX)
    }

    fn by_curve(&self, window: u32, mss: u32) -> u32 {
        let away = curve::time_to_rise(self.plateau.abs_diff(window), mss);
        let k = u64::from(self.k);
        let t = if window < self.plateau { k.saturating_sub(away) } else { k + away };
        self.target(t, window, mss)
    }

    // ---- reduction

    /// RFC 9438 §4.6, §4.7.
    pub(super) fn on_loss(&mut self, loss: Loss, mss: u32) {
        // Fast convergence: a window that has not come back leaves room to others.
        let is_less = self.window < self.plateau;
        self.plateau = if is_less { part_of(self.window, CONVERGENCE) } else { self.window };
        let reduced = part_of(loss.flight, BETA);
        self.reduce(reduced, mss);
        self.window = if loss.is_marked { reduced.max(mss) } else { self.threshold };
    }

    /// RFC 9438 §4.8: the curve of the congestion avoidance that follows is flat at its start.
    pub(super) fn on_timeout(&mut self, loss: Loss, again: bool, mss: u32) {
        if !again {
            self.reduce(part_of(loss.flight, BETA), mss);
        }
        (self.plateau, self.window, self.epoch) = (0, mss, Instant::FAR_FUTURE);
        self.hystart = None;
    }

    fn reduce(&mut self, threshold: u32, mss: u32) {
        self.prior = self.window;
        self.threshold = threshold.max(2 * mss);
        self.epoch = Instant::FAR_FUTURE;
        self.hystart = None;
    }

    /// The state is again what it was `before` a reduction that was not needed, but for the window
    /// (RFC 9438 §4.9).
    pub(super) fn restore(&mut self, before: &Cubic, window: u32) {
        let threshold = before.threshold.max(before.window);
        *self = Cubic { window, threshold, counted: self.counted, rtt: self.rtt, ..before.clone() };
    }

    /// Nothing was sent for a while: what the curve says is old, the window is less, and the path
    /// has carried `sustained`.
    pub(super) fn on_idle(&mut self, window: u32, sustained: u32) {
        if window < self.window {
            (self.window, self.epoch) = (window, Instant::FAR_FUTURE);
            self.threshold = self.threshold.max(sustained);
        }
    }

    /// Scales what is in segments of the old size.
    pub(super) fn scale(&mut self, by: impl Fn(u32) -> u32) {
        for bytes in [&mut self.window, &mut self.plateau, &mut self.prior, &mut self.estimate] {
            *bytes = by(*bytes);
        }
    }
}

fn part_of(bytes: u32, (of, all): (u32, u32)) -> u32 {
    (u64::from(bytes) * u64::from(of) / u64::from(all)) as u32
}

/// Takes the whole bytes out of `part`, which counts in parts of a `window`.
fn take_whole(part: &mut u64, window: u32) -> u32 {
    take_whole_of(part, window.into())
}

fn take_whole_of(part: &mut u64, one: u64) -> u32 {
    let whole = *part / one.max(1);
    *part -= whole * one;
    whole.min(u32::MAX.into()) as u32
}

const _: () = assert!(size_of::<Cubic>() == 88);

#[cfg(test)]
mod tests;
