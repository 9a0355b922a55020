//! Measurements of repeated batches, and their medians.

use std::collections::BTreeMap;

/// The middle of `values`; NaN if there are none.
pub fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => values[n / 2],
        n => f64::midpoint(values[n / 2 - 1], values[n / 2]),
    }
}

/// What an operation takes, by its name, batch by batch.
#[derive(Debug, Default)]
pub struct Samples {
    whole: BTreeMap<&'static str, Vec<f64>>,
    net: BTreeMap<&'static str, Vec<f64>>,
}

impl Samples {
    /// In one batch an operation took `value`.
    pub fn add(&mut self, name: &'static str, value: f64) {
        self.whole.entry(name).or_default().push(value);
    }

    /// In one batch an operation took `value` more than what surrounds it.
    pub fn add_net(&mut self, name: &'static str, value: f64) {
        self.net.entry(name).or_default().push(value);
    }

    /// The median over all batches of that name.
    pub fn whole(&self, name: &str) -> Option<f64> {
        self.whole.get(name).map(|values| median(&mut values.clone()))
    }

    /// The median of what it took more than what surrounds it.
    pub fn net(&self, name: &str) -> Option<f64> {
        self.net.get(name).map(|values| median(&mut values.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_or_between_the_two_middles() {
        assert_eq!(median(&mut [9.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&mut [9.0, 1.0, 2.0, 4.0]), 3.0);
        assert!(median(&mut []).is_nan());
    }

    #[test]
    fn whole_and_net_are_medians_of_their_own() {
        let mut samples = Samples::default();
        for (whole, net) in [(9.0, 1.0), (5.0, 3.0), (7.0, 2.0)] {
            samples.add("set", whole);
            samples.add_net("set", net);
        }
        assert_eq!((samples.whole("set"), samples.net("set")), (Some(7.0), Some(2.0)));
        assert_eq!((samples.whole("cancel"), samples.net("cancel")), (None, None));
    }
}
