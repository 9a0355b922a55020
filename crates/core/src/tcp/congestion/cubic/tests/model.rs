//! RFC 9438 in real numbers, segments and seconds, as its formulas say.

const C: f64 = 0.4;
const BETA: f64 = 0.7;
const ALPHA: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);

#[derive(Debug)]
pub(super) struct Model {
    pub(super) window: f64,
    threshold: f64,
    prior: f64,
    /// W_max, where it is known.
    max: Option<f64>,
    estimate: f64,
    k: f64,
    epoch: Option<f64>,
    /// When the last ACK came.
    last: f64,
    rtt: f64,
}

impl Model {
    pub(super) fn new(window: f64, rtt: f64) -> Model {
        Model {
            window,
            threshold: f64::INFINITY,
            prior: window,
            max: None,
            estimate: 0.0,
            k: 0.0,
            epoch: None,
            last: 0.0,
            rtt,
        }
    }

    /// §4.2 to §4.5. Where curve and Reno are so near that rounding says which is less, the window
    /// that is followed says it: `is_by_reno`.
    pub(super) fn on_ack(&mut self, segments: f64, now: f64, is_by_reno: bool) {
        self.last = now;
        // The window that is followed has whole bytes.
        if self.window + 1e-3 < self.threshold {
            self.window = (self.window + segments).min(self.threshold);
            return;
        }
        let epoch = self.epoch.unwrap_or_else(|| self.begin(now));
        let t = now - epoch;
        let alpha = if self.estimate >= self.prior { 1.0 } else { ALPHA };
        self.estimate += alpha * segments / self.window;
        let above = self.curve(t) - self.estimate;
        let is_near = above.abs() <= self.estimate / 1000.0;
        let follows_reno = if is_near { is_by_reno } else { above < 0.0 };
        if follows_reno {
            self.window = self.window.max(self.estimate);
            return;
        }
        let target = self.curve(t + self.rtt).clamp(self.window, 1.5 * self.window);
        self.window += (target - self.window) / self.window * segments;
    }

    fn begin(&mut self, now: f64) -> f64 {
        (self.epoch, self.estimate) = (Some(now), self.window);
        let max = self.max.unwrap_or(self.window).max(self.window);
        (self.max, self.k) = (Some(max), ((max - self.window) / C).cbrt());
        now
    }

    fn curve(&self, t: f64) -> f64 {
        C * (t - self.k).powi(3) + self.max.unwrap_or(self.window)
    }

    /// True if the window is so near W_max that rounding says which is less.
    pub(super) fn is_at_max(&self) -> bool {
        self.max.is_some_and(|max| (max - self.window).abs() <= 0.1 + max / 200.0)
    }

    /// Takes over on which side of W_max a loss was.
    pub(super) fn set_max(&mut self, max: f64) {
        self.max = Some(max);
    }

    /// §4.6, §4.7.
    pub(super) fn on_loss(&mut self) {
        let is_less = self.max.is_some_and(|max| self.window + 1e-3 < max);
        self.max = Some(if is_less { self.window * (1.0 + BETA) / 2.0 } else { self.window });
        self.reduce();
        self.window = self.threshold;
    }

    /// §4.8.
    pub(super) fn on_timeout(&mut self) {
        self.reduce();
        (self.max, self.window) = (None, 1.0);
    }

    fn reduce(&mut self) {
        (self.prior, self.threshold) = (self.window, (self.window * BETA).max(2.0));
        self.epoch = None;
    }

    /// §4.2: the time is not counted.
    pub(super) fn on_pause_until(&mut self, now: f64) {
        if let Some(epoch) = &mut self.epoch {
            *epoch += now - self.last;
        }
        self.last = now;
    }
}
