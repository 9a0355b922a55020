//! A median over seeds with its interval.

use std::fmt;

/// Coverage that an interval must have.
const COVERAGE: f64 = 0.95;

/// A median, and an interval that contains the true one with 95 %, whatever the distribution: two
/// of the sorted values. With fewer than six values there is none, and it has the least and the
/// greatest value instead.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Median {
    pub(super) median: f64,
    pub(super) least: f64,
    pub(super) most: f64,
}

impl Median {
    /// The median of independent values. All is NaN without any.
    pub(super) fn of(values: impl IntoIterator<Item = f64>) -> Median {
        let mut sorted: Vec<f64> = values.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let count = sorted.len();
        let at = |place: usize| sorted.get(place).copied().unwrap_or(f64::NAN);
        let outside = values_outside(count);
        Median {
            median: (at(count.saturating_sub(1) / 2) + at(count / 2)) / 2.0,
            least: at(outside),
            most: at(count.saturating_sub(1 + outside)),
        }
    }

    /// The median of ratios of pairs, such as of two runs with the same seed.
    pub(super) fn of_ratios(ours: &[f64], theirs: &[f64]) -> Median {
        Median::of(ours.iter().zip(theirs).map(|(ours, theirs)| ours / theirs))
    }
}

/// How many values at each end the interval leaves out. Of `count` values fewer than k lie below
/// the median with the probability of fewer than k heads in `count` throws.
fn values_outside(count: usize) -> usize {
    let (mut below, mut ways, mut outside) = (0.0, 1.0, 0);
    let all = 2_f64.powi(count.try_into().unwrap_or(i32::MAX));
    for k in 0..count / 2 {
        below += ways / all;
        if 1.0 - 2.0 * below < COVERAGE {
            break;
        }
        outside = k;
        ways *= (count - k) as f64 / (k + 1) as f64;
    }
    outside
}

/// Prints with the requested number of decimals; two by default.
impl fmt::Display for Median {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let decimals = f.precision().unwrap_or(2);
        let Median { median, least, most } = self;
        write!(f, "{median:.decimals$} [{least:.decimals$}, {most:.decimals$}]")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_of_ten_leaves_out_one_at_each_end() {
        // A table of the sign test: 97.9 % between the second and the ninth of ten.
        let ten = Median::of((1..=10).rev().map(f64::from));
        assert_eq!(format!("{ten:.1}"), "5.5 [2.0, 9.0]");
        assert_eq!(values_outside(6), 0);
        assert_eq!(values_outside(20), 5);
    }

    #[test]
    fn few_values_give_their_extremes() {
        assert_eq!(Median::of([3.0, 1.0, 2.0]), Median { median: 2.0, least: 1.0, most: 3.0 });
        assert_eq!(Median::of([4.0]), Median { median: 4.0, least: 4.0, most: 4.0 });
        assert!(Median::of([]).median.is_nan());
    }
}
