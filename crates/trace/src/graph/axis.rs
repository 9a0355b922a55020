//! A scale from values to places in the picture, and its labels.

/// About so many labels fit.
const LABELS: f64 = 8.0;

/// An axis.
#[derive(Clone, Debug)]
pub(super) struct Axis {
    low: f64,
    high: f64,
    begin: f64,
    end: f64,
    /// What its labels count.
    pub(super) unit: &'static str,
    /// How much of the value's own unit that is.
    size: f64,
}

impl Axis {
    /// From `first_ms` to `last_ms`, told from the first on.
    pub(super) fn of_time(first_ms: f64, last_ms: f64, begin: f64, end: f64) -> Axis {
        let span = (last_ms - first_ms).max(0.001);
        let (unit, size) = match span {
            2000.0.. => ("s", 1000.0),
            2.0.. => ("ms", 1.0),
            _ => ("µs", 0.001),
        };
        // What happened first and last stays off the frame.
        let margin = span * 0.01;
        Axis { low: first_ms - margin, high: last_ms + margin, begin, end, unit, size }
    }

    /// From 0 to `top` bytes.
    pub(super) fn of_bytes(top: i64, begin: f64, end: f64) -> Axis {
        let top = top.max(1) as f64;
        let (unit, size) = match top {
            2e6.. => ("MB", 1e6),
            2e3.. => ("kB", 1e3),
            _ => ("bytes", 1.0),
        };
        Axis { low: -0.02 * top, high: top, begin, end, unit, size }
    }

    /// The place of a value.
    pub(super) fn at(&self, value: f64) -> f64 {
        self.begin + (value - self.low) / (self.high - self.low) * (self.end - self.begin)
    }

    /// Round values in its unit, and their labels.
    pub(super) fn ticks(&self) -> Vec<(f64, String)> {
        let span = (self.high - self.low) / self.size;
        let rough = span / LABELS;
        let power = 10f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * power);
        let step = step.into_iter().find(|step| *step >= rough).unwrap_or(rough);
        let digits = (-step.log10().floor()).max(0.0) as usize;
        let first = (self.low / self.size / step).ceil() as i64;
        let last = (self.high / self.size / step).floor() as i64;
        let tick = |count: i64| {
            let value = count as f64 * step;
            (value * self.size, format!("{value:.digits$}"))
        };
        (first..=last).map(tick).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_round_and_their_unit_fits() {
        let labels = |axis: &Axis| axis.ticks().into_iter().map(|it| it.1).collect::<Vec<_>>();
        let axis = Axis::of_time(0.0, 7000.0, 0.0, 100.0);
        assert_eq!(axis.unit, "s");
        assert_eq!(labels(&axis), ["0", "1", "2", "3", "4", "5", "6", "7"]);
        let axis = Axis::of_bytes(1500, 100.0, 0.0);
        assert_eq!(axis.unit, "bytes");
        assert_eq!(labels(&axis), ["0", "200", "400", "600", "800", "1000", "1200", "1400"]);
        let axis = Axis::of_time(0.0, 0.5, 0.0, 100.0);
        assert_eq!((axis.unit, labels(&axis)[1].as_str()), ("µs", "100"));
        assert!(axis.at(0.0) > 0.0 && axis.at(0.5) < 100.0);
    }
}
