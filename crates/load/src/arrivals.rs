//! The start times of requests in an open loop: a server that stalls does not stop them.
//!
//! The rate over time is a row of stages. In each it changes linearly from one rate to another.
//! Λ(t), the rate's integral, is the expected number of arrivals by t. Constant spacing puts
//! arrival k at Λ⁻¹(k). A Poisson process puts it where Λ has grown by a further exponential of
//! mean 1 (Lewis and Shedler 1979, time-scale transformation), which is exact on ramps, too.

use std::time::Duration;

use lightwait_core::rng::Rng;

/// A period in which the rate changes linearly from one value to another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stage {
    /// Its length.
    pub duration: Duration,
    /// Arrivals a second at its beginning.
    pub from: f64,
    /// Arrivals a second at its end.
    pub to: f64,
}

impl Stage {
    /// The expected number of arrivals in the stage.
    fn area(&self) -> f64 {
        (self.from + self.to) / 2.0 * self.duration.as_secs_f64()
    }

    /// The seconds after its beginning in which `area` arrivals are expected, at most its length.
    fn seconds_for(&self, area: f64) -> f64 {
        let slope = (self.to - self.from) / self.duration.as_secs_f64();
        // from·t + slope·t²/2 = area, solved without a difference of nearly equal numbers.
        let root = (self.from * self.from + 2.0 * slope * area).max(0.0).sqrt();
        let seconds = if area == 0.0 { 0.0 } else { 2.0 * area / (self.from + root) };
        seconds.min(self.duration.as_secs_f64())
    }
}

/// The distribution of arrivals around the rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spacing {
    /// At equal distances where the rate is constant.
    Constant,
    /// Independently of one another.
    Poisson,
}

/// The arrivals of a load, in order: each one's time since the load began.
#[derive(Clone, Debug)]
pub enum Arrivals {
    /// Arrivals at a rate.
    Rated(Rated),
    /// Arrivals at given times, in order.
    At(std::vec::IntoIter<Duration>),
}

impl Arrivals {
    /// Arrivals through these stages. They come `burst` at a time, with the rate unchanged. The
    /// seed selects a Poisson process.
    ///
    /// # Panics
    /// If `burst` is zero.
    pub fn new(stages: Vec<Stage>, spacing: Spacing, burst: u32, seed: u64) -> Arrivals {
        assert!(burst > 0, "a burst is one arrival at least");
        let mut rated = Rated {
            stages,
            spacing,
            burst,
            left_of_burst: 0,
            rng: Rng::from_seed(seed),
            area: 0.0,
            stage: 0,
            begin: Duration::ZERO,
            last: Duration::ZERO,
        };
        if spacing == Spacing::Poisson {
            rated.area = rated.step();
        }
        Arrivals::Rated(rated)
    }

    /// Delays the arrivals of a constant rate by that part of their distance. The arrivals of share
    /// k of n, shifted by k/n, lie evenly between the other shares' arrivals.
    #[must_use]
    pub fn shifted(mut self, part: f64) -> Arrivals {
        if let Arrivals::Rated(rated) = &mut self
            && rated.spacing == Spacing::Constant
        {
            rated.area += part * f64::from(rated.burst);
        }
        self
    }

    /// Arrivals at these times, which are in order.
    pub fn at(times: Vec<Duration>) -> Arrivals {
        Arrivals::At(times.into_iter())
    }
}

impl Iterator for Arrivals {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        match self {
            Arrivals::Rated(rated) => rated.next(),
            Arrivals::At(times) => times.next(),
        }
    }
}

/// Arrivals at a rate.
#[derive(Clone, Debug)]
pub struct Rated {
    stages: Vec<Stage>,
    spacing: Spacing,
    burst: u32,
    /// Further arrivals at the time of the last one.
    left_of_burst: u32,
    rng: Rng,
    /// Λ of the next burst, counted from the beginning of the stage it falls in.
    area: f64,
    /// The sum over the stages before.
    stage: usize,
    begin: Duration,
    last: Duration,
}

impl Rated {
    /// The growth of Λ from one burst to the next.
    fn step(&mut self) -> f64 {
        let bursts = match self.spacing {
            Spacing::Constant => 1.0,
            // In (0, 1], so that the logarithm is finite.
            Spacing::Poisson => -(1.0 - self.rng.unit()).ln(),
        };
        bursts * f64::from(self.burst)
    }
}

impl Iterator for Rated {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        if self.left_of_burst > 0 {
            self.left_of_burst -= 1;
            return Some(self.last);
        }
        loop {
            let stage = *self.stages.get(self.stage)?;
            if self.area < stage.area() {
                let seconds = stage.seconds_for(self.area);
                // Rounding must not make time go back where two arrivals are a nanosecond apart.
                self.last = self.last.max(self.begin + Duration::from_secs_f64(seconds));
                self.area += self.step();
                self.left_of_burst = self.burst - 1;
                return Some(self.last);
            }
            self.area -= stage.area();
            self.begin += stage.duration;
            self.stage += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const S: Duration = Duration::from_secs(1);

    fn stage(seconds: u32, from: f64, to: f64) -> Stage {
        Stage { duration: S * seconds, from, to }
    }

    fn constant(stages: &[Stage]) -> Vec<Duration> {
        Arrivals::new(stages.to_vec(), Spacing::Constant, 1, 0).collect()
    }

    #[test]
    fn a_constant_rate_has_equal_distances() {
        let arrivals = constant(&[stage(2, 4.0, 4.0)]);
        assert_eq!(arrivals, (0..8).map(|k| S / 4 * k).collect::<Vec<_>>());
    }

    #[test]
    fn a_million_constant_arrivals_do_not_drift() {
        let arrivals = constant(&[stage(10, 123_456.7, 123_456.7)]);
        assert_eq!(arrivals.len(), 1_234_567);
        for (k, at) in arrivals.iter().enumerate().step_by(1000) {
            let exact = k as f64 / 123_456.7;
            assert!((at.as_secs_f64() - exact).abs() < 1e-8, "{k}: {at:?}");
        }
    }

    #[test]
    fn a_ramp_has_arrivals_equal_to_its_rates_area_at_any_moment() {
        // 0 to 100 a second and back, a pause, and 50 a second.
        let stages = [
            stage(10, 0.0, 100.0),
            stage(10, 100.0, 0.0),
            stage(5, 0.0, 0.0),
            stage(2, 50.0, 50.0),
        ];
        let arrivals = constant(&stages);
        assert_eq!(arrivals.len(), 1100);
        let by = |seconds: f64| {
            arrivals.iter().filter(|at| at.as_secs_f64() < seconds - 1e-9).count() as f64
        };
        for (seconds, area) in [
            (5.0, 125.0),
            (10.0, 500.0),
            (15.0, 875.0),
            (20.0, 1000.0),
            (25.0, 1000.0),
            (26.0, 1050.0),
        ] {
            assert!((by(seconds) - area).abs() <= 1.0, "{seconds} s: {}", by(seconds));
        }
    }

    #[test]
    fn shares_of_a_constant_rate_lie_evenly_between_each_other() {
        let stages = vec![stage(2, 10.0, 10.0)];
        let share = |part| {
            Arrivals::new(stages.clone(), Spacing::Constant, 1, 0).shifted(f64::from(part) / 4.0)
        };
        let mut all: Vec<Duration> = (0..4).flat_map(share).collect();
        all.sort();
        assert_eq!(all, constant(&[stage(2, 40.0, 40.0)]));
    }

    #[test]
    fn bursts_keep_the_rate() {
        let all = Arrivals::new(vec![stage(10, 40.0, 40.0)], Spacing::Constant, 20, 0);
        let all: Vec<Duration> = all.collect();
        assert_eq!(all.len(), 400);
        assert!(all.chunks(20).enumerate().all(|(k, burst)| burst == [S / 2 * k as u32; 20]));
    }

    #[test]
    fn poisson_arrivals_have_the_rate_and_variance_of_their_kind() {
        let arrivals = Arrivals::new(vec![stage(2000, 50.0, 50.0)], Spacing::Poisson, 1, 9);
        let mut counts = vec![0u32; 2000];
        arrivals.for_each(|at| counts[at.as_secs() as usize] += 1);
        let mean = f64::from(counts.iter().sum::<u32>()) / 2000.0;
        let variance =
            counts.iter().map(|count| (f64::from(*count) - mean).powi(2)).sum::<f64>() / 2000.0;
        // Standard errors: 0.16 of the mean, 1.6 of the variance.
        assert!((mean - 50.0).abs() < 0.8, "{mean}");
        assert!((variance - 50.0).abs() < 8.0, "{variance}");
    }

    proptest! {
        #[test]
        fn arrivals_come_in_order_within_stages_and_match_the_area(
            shape in prop::collection::vec((0u32..5, 0.0f64..200.0, 0.0f64..200.0), 0..5),
        ) {
            let stages: Vec<Stage> =
                shape.iter().map(|(seconds, from, to)| stage(*seconds, *from, *to)).collect();
            let area: f64 = stages.iter().map(Stage::area).sum();
            let all: Duration = stages.iter().map(|stage| stage.duration).sum();
            let arrivals = constant(&stages);
            prop_assert!(arrivals.is_sorted());
            prop_assert!(arrivals.last().is_none_or(|last| *last <= all));
            prop_assert!((arrivals.len() as f64 - area).abs() <= 1.0);
        }
    }
}
