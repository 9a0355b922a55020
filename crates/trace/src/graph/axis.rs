//! A scale from values to places in the picture, and its labels.

/// About so many labels fit.
const LABELS: f64 = 8.0;

/// Digits of a label behind the point, at most.
const DIGITS: usize = 9;

/// An axis.
#[derive(Clone, Debug)]
pub(super) struct Axis {
    /// The value that its labels count from.
    origin: f64,
    /// Its ends, counted so.
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
        // What happened first and last stays off the frame. Beside a time since 1970 a short span
        // would be lost in rounding: so it is counted from the first.
        let margin = span * 0.01;
        Axis { origin: first_ms, low: -margin, high: span + margin, begin, end, unit, size }
    }

    /// From 0 to `top` bytes.
    pub(super) fn of_bytes(top: i64, begin: f64, end: f64) -> Axis {
        let top = top.max(1) as f64;
        let (unit, size) = match top {
            2e6.. => ("MB", 1e6),
            2e3.. => ("kB", 1e3),
            _ => ("bytes", 1.0),
        };
        Axis { origin: 0.0, low: -0.02 * top, high: top, begin, end, unit, size }
    }

    /// The place of a value.
    pub(super) fn at(&self, value: f64) -> f64 {
        self.place(value - self.origin)
    }

    /// The place of a value that is counted from the origin.
    fn place(&self, value: f64) -> f64 {
        self.begin + (value - self.low) / (self.high - self.low) * (self.end - self.begin)
    }

    /// The places of round values in its unit, and their labels. None if its ends are too far apart
    /// for a number.
    pub(super) fn ticks(&self) -> Vec<(f64, String)> {
        let span = (self.high - self.low) / self.size;
        let rough = span / LABELS;
        let power = 10f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * power);
        let step = step.into_iter().find(|step| *step >= rough).unwrap_or(rough);
        if !step.is_finite() || step <= 0.0 {
            return Vec::new();
        }
        let digits = ((-step.log10().floor()).max(0.0) as usize).min(DIGITS);
        let first = (self.low / self.size / step).ceil() as i64;
        let last = (self.high / self.size / step).floor() as i64;
        let tick = |count: i64| {
            let value = count as f64 * step;
            (self.place(value * self.size), format!("{value:.digits$}"))
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

    #[test]
    fn a_time_since_1970_has_labels_and_one_beyond_all_numbers_none() {
        let first = 1.79e12;
        for last in [first, first + 0.5, first + 7000.0] {
            let axis = Axis::of_time(first, last, 0.0, 100.0);
            let ticks = axis.ticks();
            assert!((2..20).contains(&ticks.len()), "{ticks:?}");
            assert_eq!(ticks[0].1.parse::<f64>(), Ok(0.0), "{ticks:?}");
            assert!((0.0..=100.0).contains(&axis.at(first)), "{axis:?}");
            assert_eq!(ticks[0].0, axis.at(first));
        }
        assert!(Axis::of_time(-1e308, 1e308, 0.0, 100.0).ticks().is_empty());
    }
}
