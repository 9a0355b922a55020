//! Means over seeds with their confidence, and quantiles.

use std::fmt;

/// Student's t for a two-sided 95 %, by degrees of freedom.
const T: [f64; 31] = [
    f64::NAN,
    12.71,
    4.30,
    3.18,
    2.78,
    2.57,
    2.45,
    2.36,
    2.31,
    2.26,
    2.23,
    2.20,
    2.18,
    2.16,
    2.14,
    2.13,
    2.12,
    2.11,
    2.10,
    2.09,
    2.09,
    2.08,
    2.07,
    2.07,
    2.06,
    2.06,
    2.06,
    2.05,
    2.05,
    2.05,
    2.04,
];

/// A mean with the half of its 95 % confidence interval.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Mean {
    pub(crate) mean: f64,
    /// NaN for a single value.
    pub(crate) half: f64,
}

impl Mean {
    /// The mean of independent values, such as one for each seed.
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Mean {
        let values: Vec<f64> = values.into_iter().collect();
        let (mean, deviation) = mean_and_deviation(&values);
        let t = T.get(values.len().saturating_sub(1)).copied().unwrap_or(1.96);
        Mean { mean, half: t * deviation / (values.len() as f64).sqrt() }
    }

    /// The mean over pairs, such as of two worlds of the same seed.
    pub(crate) fn of_pairs<'a, T: 'a>(
        ours: impl IntoIterator<Item = &'a T>,
        theirs: impl IntoIterator<Item = &'a T>,
        of: impl Fn(&T, &T) -> f64,
    ) -> Mean {
        Mean::of(ours.into_iter().zip(theirs).map(|(ours, theirs)| of(ours, theirs)))
    }

    /// The ends of the confidence interval. NaN for a single value: nothing is sure.
    pub(crate) fn least(self) -> f64 {
        self.mean - self.half
    }

    pub(crate) fn most(self) -> f64 {
        self.mean + self.half
    }
}

/// The mean of `values`, and their standard deviation.
pub(crate) fn mean_and_deviation(values: &[f64]) -> (f64, f64) {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (mean, (squares / (count - 1.0).max(1.0)).sqrt())
}

/// The value below which `part` of the sorted values lie: 0.5 gives the upper median, 1 the
/// greatest. NaN without values.
pub(crate) fn quantile(sorted: &[f64], part: f64) -> f64 {
    let place = (sorted.len() as f64 * part) as usize;
    let place = place.min(sorted.len().saturating_sub(1));
    sorted.get(place).copied().unwrap_or(f64::NAN)
}

/// Prints with the requested number of decimals; two by default.
impl fmt::Display for Mean {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let decimals = f.precision().unwrap_or(2);
        write!(f, "{:.decimals$}±{:.decimals$}", self.mean, self.half)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mean_tells_how_sure_it_is() {
        let few = Mean::of([1.0, 2.0, 3.0, 4.0]);
        assert_eq!(format!("{few:.1}"), "2.5±2.1");
        assert_eq!(format!("{:.1} {:.1}", few.least(), few.most()), "0.4 4.6");
        let many = Mean::of((0..400).map(|number| f64::from(number % 2)));
        assert_eq!(format!("{many:.3}"), "0.500±0.049");
        assert!(Mean::of([1.0]).half.is_nan());
    }

    #[test]
    fn the_deviation_is_that_of_a_sample() {
        let (mean, deviation) = mean_and_deviation(&[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]);
        assert_eq!(mean, 5.0);
        assert!((deviation - f64::sqrt(32.0 / 7.0)).abs() < 1e-12, "{deviation}");
        assert_eq!(mean_and_deviation(&[3.0]), (3.0, 0.0));
    }

    #[test]
    fn a_quantile_is_one_of_the_values() {
        let sorted = [1.0, 2.0, 3.0, 4.0];
        let found = [0.0, 0.5, 0.99, 1.0].map(|part| quantile(&sorted, part));
        assert_eq!(found, [1.0, 3.0, 4.0, 4.0]);
        assert!(quantile(&[], 0.5).is_nan());
    }
}
