//! Looking for a byte among several at once.
#![allow(unsafe_code, reason = "instructions of one processor are `unsafe`, these as well")]

/// Which of `bytes` are `byte`: bit n for the n-th.
#[must_use]
#[inline(always)]
pub fn places_of(byte: u8, bytes: &[u8; 16]) -> u16 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: SSE2 is part of every x86-64.
    let places = unsafe { by_sse2(byte, bytes) };
    #[cfg(not(target_arch = "x86_64"))]
    let places = one_by_one(byte, bytes);
    places
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse2")]
#[inline]
fn by_sse2(byte: u8, bytes: &[u8; 16]) -> u16 {
    use core::arch::x86_64::{_mm_cmpeq_epi8, _mm_movemask_epi8, _mm_set_epi64x, _mm_set1_epi8};
    let (low, high) = bytes.split_at(8);
    let word = |half: &[u8]| i64::from_le_bytes(half.try_into().unwrap_or_default());
    let equal =
        _mm_cmpeq_epi8(_mm_set_epi64x(word(high), word(low)), _mm_set1_epi8(byte.cast_signed()));
    _mm_movemask_epi8(equal) as u16
}

#[cfg(any(test, not(target_arch = "x86_64")))]
fn one_by_one(byte: u8, bytes: &[u8; 16]) -> u16 {
    let places = bytes.iter().enumerate().map(|(n, it)| u16::from(*it == byte) << n);
    places.fold(0, |all, place| all | place)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn both_ways_find_the_same(byte: u8, bytes: [u8; 16], others: [bool; 16]) {
            let at = |n: usize| if others[n] { bytes[n] } else { byte };
            let bytes = core::array::from_fn(at);
            for byte in [byte, !byte, byte ^ 1, byte ^ 0x80] {
                prop_assert_eq!(places_of(byte, &bytes), one_by_one(byte, &bytes));
            }
        }
    }

    #[test]
    fn every_place_has_its_bit() {
        for n in 0..16 {
            let mut bytes = [0x80; 16];
            bytes[n] = 0x7f;
            assert_eq!(places_of(0x7f, &bytes), 1 << n);
            assert_eq!(places_of(0x80, &bytes), !(1 << n));
            assert_eq!(places_of(0xff, &bytes), 0);
        }
    }
}
