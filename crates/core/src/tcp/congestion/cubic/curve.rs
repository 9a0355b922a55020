//! The cubic function (RFC 9438 §4.2) in whole numbers.
//!
//! ```text
//!   W_cubic(t) = C·(t - K)³ + W_max        C = 0.4 segments/s³
//!
//!   W_max ┤ · · · · · · · ___─────‾‾‾
//!         │         _.─‾         ┊       /
//!         │     .─‾              ┊
//!         │   /                  ┊
//!         ┼──────────────────────┼──────────▶ t
//!         0                      K
//! ```
//!
//! Time counts in units of 1024 ns, windows count in bytes.

/// One second in units, rounded down.
#[cfg(test)]
pub(super) const SECOND: u64 = 1_000_000_000 >> UNIT_SHIFT;

/// ns of a unit, as a power of two.
const UNIT_SHIFT: u32 = 10;
/// No time is longer: 18 minutes. A window of 2³⁰ bytes is reached in two.
const TIME_MAX: u64 = 1 << 30;
/// C, in segments per unit³: 0.4·1.024e-6³ = 16/5²⁸, as a multiple of 2⁻⁹³.
const C: u64 = ((16 * (1 << 93) + FIVE_28 / 2) / FIVE_28) as u64;
const FIVE_28: u128 = 5u128.pow(28);

/// So many ns in units.
pub(super) fn units(ns: u64) -> u64 {
    (ns >> UNIT_SHIFT).min(TIME_MAX)
}

/// What the curve rises in that time away from its plateau: C·time³, in bytes.
pub(super) fn rise(time: u64, mss: u32) -> u64 {
    let time = time.min(TIME_MAX);
    let cube = u128::from(time * time) * u128::from(time);
    // 58 bits times 48 bits.
    (((cube >> 32) * u128::from(C * u64::from(mss))) >> 61) as u64
}

/// How long the curve needs to rise by so many bytes: the cube root of bytes/(C·mss).
pub(super) fn time_to_rise(bytes: u32, mss: u32) -> u64 {
    cube_root(u128::from(bytes) * FIVE_28 / (16 * u128::from(mss.max(1))))
}

/// The largest number whose cube is not above `value`, up to [`TIME_MAX`], bit by bit.
fn cube_root(value: u128) -> u64 {
    let mut root: u128 = 0;
    for bit in (0..=TIME_MAX.ilog2()).rev() {
        let larger = root | 1 << bit;
        if larger * larger * larger <= value {
            root = larger;
        }
    }
    (root as u64).min(TIME_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MSS: u32 = 1460;

    #[test]
    fn a_second_from_the_plateau_is_0_4_segments() {
        assert_eq!(units(1_000_000_000), SECOND);
        assert_eq!((rise(0, MSS), rise(SECOND, 10_000)), (0, 3999));
        assert_eq!(rise(10 * SECOND, 1000), 399_999, "400 segments after ten");
        assert_eq!(rise(u64::MAX, 65_535), rise(TIME_MAX, 65_535));
        assert_eq!(units(u64::MAX), TIME_MAX);
    }

    proptest! {
        #[test]
        fn the_rise_is_that_of_the_formula(time in 0..=TIME_MAX, mss in 88u32..=65_535) {
            let seconds = time as f64 * 1.024e-6;
            let expected = 0.4 * seconds.powi(3) * f64::from(mss);
            let (found, slack) = (rise(time, mss) as f64, 1.0 + expected * 1e-6);
            prop_assert!((found - expected).abs() <= slack, "{found} for {expected}");
        }

        #[test]
        fn the_time_to_rise_is_the_cube_root(bytes in 0u32..1 << 30, mss in 88u32..=65_535) {
            let expected = (f64::from(bytes) / (0.4 * f64::from(mss))).cbrt() / 1.024e-6;
            let found = time_to_rise(bytes, mss) as f64;
            prop_assert!((found - expected).abs() <= 1.0 + expected * 1e-9);
        }

        #[test]
        fn a_cube_root_is_the_largest_that_fits(value in 0u128..1 << 90) {
            let root = u128::from(cube_root(value));
            prop_assert!(root.pow(3) <= value && (root + 1).pow(3) > value);
        }
    }
}
