//! Loss processes: the state behind a [`Loss`].

use lightwait_core::rng::Rng;

use crate::Loss;

/// A running loss process.
#[derive(Clone, Debug)]
pub(crate) struct LossProcess {
    model: Loss,
    /// Gilbert–Elliott: the chain is in the bad state. Bursty: the last packet was lost.
    bad: bool,
}

impl LossProcess {
    pub(crate) fn new(model: Loss) -> Self {
        LossProcess { model, bad: false }
    }

    /// True if the next packet is lost.
    pub(crate) fn next_is_lost(&mut self, rng: &mut Rng) -> bool {
        match self.model {
            Loss::None => false,
            Loss::Uniform(p) => rng.chance(p),
            Loss::GilbertElliott { good_to_bad, bad_to_good, loss_in_bad, loss_in_good } => {
                let leaves = rng.chance(if self.bad { bad_to_good } else { good_to_bad });
                self.bad ^= leaves;
                rng.chance(if self.bad { loss_in_bad } else { loss_in_good })
            }
            Loss::Bursty { first, after_loss } => {
                self.bad = rng.chance(if self.bad { after_loss } else { first });
                self.bad
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Share of lost packets, and the mean length of a run of losses, over a million packets.
    fn measure(model: Loss) -> (f64, f64) {
        const PACKETS: u32 = 1_000_000;
        let (mut process, mut rng) = (LossProcess::new(model), Rng::from_seed(3));
        let (mut lost, mut runs, mut before) = (0u32, 0u32, false);
        for _ in 0..PACKETS {
            let now = process.next_is_lost(&mut rng);
            lost += u32::from(now);
            runs += u32::from(now && !before);
            before = now;
        }
        (f64::from(lost) / f64::from(PACKETS), f64::from(lost) / f64::from(runs.max(1)))
    }

    fn near(value: f64, expected: f64) -> bool {
        (value - expected).abs() < 0.05 * expected
    }

    #[test]
    fn uniform_loss_has_its_rate_and_no_bursts() {
        let (rate, run) = measure(Loss::Uniform(0.02));
        assert!(near(rate, 0.02), "{rate}");
        assert!(near(run, 1.0 / 0.98), "{run}");
        assert_eq!(measure(Loss::None).0, 0.0);
    }

    #[test]
    fn bursty_loss_has_the_mean_and_burst_length_of_its_chances() {
        let (rate, run) = measure(Loss::Bursty { first: 0.01, after_loss: 0.5 });
        assert!(near(rate, 0.01 / 0.51), "{rate}");
        assert!(near(run, 2.0), "{run}");
    }

    #[test]
    fn gilbert_elliott_loses_by_the_share_of_time_in_each_state() {
        let (rate, run) = measure(Loss::GilbertElliott {
            good_to_bad: 0.01,
            bad_to_good: 0.25,
            loss_in_bad: 1.0,
            loss_in_good: 0.0,
        });
        assert!(near(rate, 0.01 / 0.26), "{rate}");
        assert!(near(run, 4.0), "{run}");
        let (rate, _) = measure(Loss::GilbertElliott {
            good_to_bad: 0.01,
            bad_to_good: 0.25,
            loss_in_bad: 0.5,
            loss_in_good: 0.1,
        });
        assert!(near(rate, (0.01 * 0.5 + 0.25 * 0.1) / 0.26), "{rate}");
    }
}
