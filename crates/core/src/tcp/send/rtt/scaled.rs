//! The estimator of 4.4BSD in its scaled integers, on whatever clock (Aron & Druschel 1999,
//! Appendix I and Fig. 12).
//!
//! A = smoothed RTT and D = mean deviation, with gains of 1/8 and 1/4:
//! `Err = M - A; A += Err/8; D += (|Err| - D)/4; RTO = A + 4·D`. Kept as SA = 8·A and SD = 4·D, so
//! that every operation is a shift; Brakmo and Peterson's fixes keep four times more of each.

/// How much of the fraction is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// 4.4BSD's: SD never decays below 3, so that at 100 ms of RTT the timeout is hardly ever
    /// under 3 ticks.
    Bsd,
    /// Four times finer (Brakmo & Peterson 1995).
    BrakmoPeterson,
}

/// Smoothed RTT and deviation, in scaled clock ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scaled {
    scale: Scale,
    sa: i64,
    sd: i64,
}

impl Scaled {
    /// No sample yet.
    pub fn new(scale: Scale) -> Self {
        Scaled { scale, sa: 0, sd: 0 }
    }

    /// An RTT of `m` ticks was measured. BSD passes the measurement plus one, so that zero means
    /// that there is none; only the first sample uses that undiminished.
    pub fn on_sample(&mut self, m: u64) {
        let r = i64::try_from(m).unwrap_or(i64::MAX >> 8).min(i64::MAX >> 8) + 1;
        match (self.scale, self.has_sample()) {
            (Scale::Bsd, false) => (self.sa, self.sd) = (r << 3, r << 1),
            (Scale::BrakmoPeterson, false) => (self.sa, self.sd) = (r << 5, r << 3),
            (Scale::Bsd, true) => {
                let delta = r - 1 - (self.sa >> 3);
                self.sa = (self.sa + delta).max(1);
                self.sd = (self.sd + delta.abs() - (self.sd >> 2)).max(1);
            }
            (Scale::BrakmoPeterson, true) => {
                let delta = ((r - 1) << 2) - (self.sa >> 3);
                self.sa = (self.sa + delta).max(1);
                self.sd += delta.abs() - (self.sd >> 2);
            }
        }
    }

    /// True once there was a sample.
    pub(crate) fn has_sample(&self) -> bool {
        self.sa > 0
    }

    /// A + 4·D, in whole ticks.
    pub fn rto(&self) -> u64 {
        let rto = match self.scale {
            Scale::Bsd => (self.sa >> 3) + self.sd,
            Scale::BrakmoPeterson => ((self.sa >> 3) + self.sd) >> 2,
        };
        rto.max(0) as u64
    }

    /// A in eighths of a tick.
    pub(crate) fn srtt_eighths(&self) -> u64 {
        let fraction = if self.scale == Scale::Bsd { 0 } else { 2 };
        (self.sa >> fraction).max(0) as u64
    }

    /// D in quarters of a tick.
    pub fn deviation_quarters(&self) -> u64 {
        let fraction = if self.scale == Scale::Bsd { 0 } else { 2 };
        (self.sd >> fraction).max(0) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fig. 12: RTT in 500 ms ticks and RTO in ticks, BSD's and with Brakmo and Peterson's fixes;
    /// RTT and RTO in ms on the fine clock.
    const FIG_12: [[u64; 5]; 12] = [
        [0, 3, 3, 60, 183],
        [0, 3, 3, 150, 253],
        [1, 5, 3, 60, 218],
        [0, 4, 3, 60, 190],
        [0, 3, 3, 61, 167],
        [0, 3, 3, 60, 150],
        [0, 3, 3, 61, 135],
        [0, 3, 3, 60, 123],
        [0, 3, 3, 60, 114],
        [0, 3, 2, 61, 105],
        [0, 3, 2, 60, 99],
        [1, 5, 3, 61, 93],
    ];

    #[test]
    fn every_rto_of_figure_12_comes_out() {
        let mut bsd = Scaled::new(Scale::Bsd);
        let mut fixed = Scaled::new(Scale::BrakmoPeterson);
        let mut fine = Scaled::new(Scale::Bsd);
        for [coarse, rto_bsd, rto_fixed, m, rto_fine] in FIG_12 {
            bsd.on_sample(coarse);
            fixed.on_sample(coarse);
            fine.on_sample(m);
            assert_eq!(
                [bsd.rto().max(2), fixed.rto().max(2), fine.rto()],
                [rto_bsd, rto_fixed, rto_fine]
            );
        }
    }

    #[test]
    fn bsds_deviation_never_decays_below_three_quarters_of_a_tick() {
        let mut bsd = Scaled::new(Scale::Bsd);
        bsd.on_sample(3);
        for _ in 0..1000 {
            bsd.on_sample(0);
        }
        assert_eq!(bsd.deviation_quarters(), 3);
        let mut fixed = Scaled::new(Scale::BrakmoPeterson);
        fixed.on_sample(3);
        for _ in 0..1000 {
            fixed.on_sample(0);
        }
        assert_eq!(fixed.deviation_quarters(), 0);
    }

    #[test]
    fn no_sample_however_long_overflows() {
        for scale in [Scale::Bsd, Scale::BrakmoPeterson] {
            let mut scaled = Scaled::new(scale);
            for m in [u64::MAX, 0, u64::MAX, u64::MAX] {
                scaled.on_sample(m);
            }
            assert!(scaled.rto() > 0);
        }
    }
}
