//! Compares all entries of a short table at once.
#![allow(unsafe_code, reason = "instructions of one processor are `unsafe`, these as well")]

/// Bytes of the widest unit on every x86-64.
const WIDTH: usize = 16;

/// A bit for each of at most 16 `items`, from the lowest on: whether `is_it` is true for it. A few
/// instructions make the comparison in `is_it` for all of them.
#[must_use]
#[inline(always)]
pub fn which<T: Copy, const N: usize>(items: &[T; N], is_it: impl Fn(T) -> bool) -> u32 {
    const { assert!(N <= WIDTH) };
    top_bits(core::array::from_fn(|place| {
        if items.get(place).is_some_and(|item| is_it(*item)) { u8::MAX } else { 0 }
    }))
}

/// The highest bit of each byte.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn top_bits(bytes: [u8; WIDTH]) -> u32 {
    use core::arch::x86_64::{_mm_loadu_si128, _mm_movemask_epi8};
    // SAFETY: SSE2 is part of every x86-64, and the load asks for no alignment.
    unsafe { _mm_movemask_epi8(_mm_loadu_si128(bytes.as_ptr().cast())).cast_unsigned() }
}

#[cfg(not(target_arch = "x86_64"))]
use slow_top_bits as top_bits;

#[cfg(any(test, not(target_arch = "x86_64")))]
#[inline]
fn slow_top_bits(bytes: [u8; WIDTH]) -> u32 {
    bytes.into_iter().rev().fold(0, |bits, byte| bits << 1 | u32::from(byte >> 7))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn both_ways_give_the_top_bits(bytes: [u8; WIDTH]) {
            prop_assert_eq!(top_bits(bytes), slow_top_bits(bytes));
        }

        #[test]
        fn each_item_has_its_bit(words: [u32; 16], few: [u8; 5], mask: u32) {
            let is_it = |word: u32| word & mask == words[7] & mask;
            let bits = which(&words, is_it);
            for (place, word) in words.into_iter().enumerate() {
                prop_assert_eq!(bits >> place & 1 == 1, is_it(word));
            }
            prop_assert_eq!(bits >> 16, 0);
            let odd = which(&few, |byte| byte % 2 == 1);
            for (place, byte) in few.into_iter().enumerate() {
                prop_assert_eq!(odd >> place & 1 == 1, byte % 2 == 1);
            }
            prop_assert_eq!(odd >> 5, 0);
        }
    }
}
