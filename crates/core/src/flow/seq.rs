//! Sequence numbers: 32 bits, compared modulo 2^32 (RFC 9293 §3.4).

use core::fmt;
use core::ops::{Add, AddAssign, Sub};

/// A sequence number. `a < b` means that `b` is ahead of `a` by less than 2^31.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Seq(pub u32);

impl Seq {
    /// How far `self` is ahead of `earlier`, modulo 2^32.
    pub const fn since(self, earlier: Seq) -> u32 {
        self.0.wrapping_sub(earlier.0)
    }

    /// How far `self` is ahead of `other`; negative if it is behind.
    pub const fn distance(self, other: Seq) -> i32 {
        self.0.wrapping_sub(other.0) as i32
    }

    /// `self < other`.
    pub const fn before(self, other: Seq) -> bool {
        self.distance(other) < 0
    }

    /// `self <= other`.
    pub const fn at_or_before(self, other: Seq) -> bool {
        self.distance(other) <= 0
    }

    /// `self > other`.
    pub const fn after(self, other: Seq) -> bool {
        self.distance(other) > 0
    }

    /// `self >= other`.
    pub const fn at_or_after(self, other: Seq) -> bool {
        self.distance(other) >= 0
    }

    /// True if `self` lies in `start..start + len`, modulo 2^32.
    pub const fn within(self, start: Seq, len: u32) -> bool {
        self.since(start) < len
    }

    /// The later of two.
    pub const fn max(self, other: Seq) -> Seq {
        if self.before(other) { other } else { self }
    }

    /// The earlier of two.
    pub const fn min(self, other: Seq) -> Seq {
        if self.before(other) { self } else { other }
    }
}

impl Add<u32> for Seq {
    type Output = Seq;
    fn add(self, rhs: u32) -> Seq {
        Seq(self.0.wrapping_add(rhs))
    }
}

impl AddAssign<u32> for Seq {
    fn add_assign(&mut self, rhs: u32) {
        *self = *self + rhs;
    }
}

impl Sub<u32> for Seq {
    type Output = Seq;
    fn sub(self, rhs: u32) -> Seq {
        Seq(self.0.wrapping_sub(rhs))
    }
}

impl fmt::Debug for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn order_survives_the_wrap(start: u32, a in 0u32..0x4000_0000, b in 0u32..0x4000_0000) {
            let (x, y) = (Seq(start) + a, Seq(start) + b);
            prop_assert_eq!(x.before(y), a < b);
            prop_assert_eq!(x.at_or_before(y), a <= b);
            prop_assert_eq!(x.after(y), a > b);
            prop_assert_eq!(x.at_or_after(y), a >= b);
            prop_assert_eq!(x.max(y), Seq(start) + a.max(b));
            prop_assert_eq!(x.min(y), Seq(start) + a.min(b));
        }

        #[test]
        fn since_undoes_add(start: u32, n: u32) {
            prop_assert_eq!((Seq(start) + n).since(Seq(start)), n);
            prop_assert_eq!((Seq(start) + n) - n, Seq(start));
        }

        #[test]
        fn within_is_half_open(start: u32, len in 1u32..0x4000_0000) {
            prop_assert!(Seq(start).within(Seq(start), len));
            prop_assert!((Seq(start) + (len - 1)).within(Seq(start), len));
            prop_assert!(!(Seq(start) + len).within(Seq(start), len));
            prop_assert!(!(Seq(start) - 1).within(Seq(start), len));
        }
    }
}
