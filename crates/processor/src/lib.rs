//! What a processor does better than portable code can ask for: the sum of 16-bit words, which the
//! Internet checksum is made of, by its widest units; reading ahead of what is needed soon; and
//! looking at all entries of a line of a hash table at once.
//!
//! Text is summed twice on its way, where it is sent and where it arrives; done by 64-bit units
//! this takes a third of all the time of a bulk transfer. What the compiler may assume of every
//! x86-64 processor is older than what nearly all of them have: AVX2 is looked for when the program
//! runs, and that a processor has it must be promised to the compiler by `unsafe`. It stays in this
//! crate, so that the engine has none.
//!
//! Of a million connections none lies in a cache. Whoever knows which one is next can fetch it
//! while there is other work to do.
#![no_std]
#![deny(unsafe_code)]

#[cfg(target_arch = "x86_64")]
mod avx2;
mod prefetch;
mod which;

pub use prefetch::{prefetch, prefetch_first};
pub use which::which;

/// Bytes that are summed together.
pub const BLOCK_BYTES: usize = 32;

/// The sum of native-endian 16-bit words, or what is the same modulo 2^16 - 1; zero only if all
/// bytes are.
#[must_use]
#[inline]
pub fn sum(blocks: &[[u8; BLOCK_BYTES]]) -> u64 {
    #[cfg(target_arch = "x86_64")]
    if let Some(sum) = avx2::sum(blocks) {
        return sum;
    }
    plain(blocks)
}

/// The same, by what the compiler makes of a plain loop: 128-bit units on x86-64 and ARM.
#[inline(never)]
fn plain(blocks: &[[u8; BLOCK_BYTES]]) -> u64 {
    let [mut all, mut high] = [0u64; 2];
    for word in blocks.as_flattened().as_chunks::<8>().0 {
        let word = u64::from_ne_bytes(*word);
        all = all.wrapping_add(word);
        high += word >> 32;
    }
    // The sum of the upper halves tells what all of them took from the lower ones.
    halves(all.wrapping_sub(high << 32)) + halves(high)
}

/// Both halves added.
const fn halves(sum: u64) -> u64 {
    (sum & 0xffff_ffff) + (sum >> 32)
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use proptest::prelude::*;
    use std::vec;

    /// Word by word.
    fn slow(blocks: &[[u8; BLOCK_BYTES]]) -> u64 {
        let words = blocks.as_flattened().as_chunks::<2>().0;
        words.iter().map(|word| u64::from(u16::from_ne_bytes(*word))).sum()
    }

    fn assert_right(blocks: &[[u8; BLOCK_BYTES]]) {
        let slow = slow(blocks);
        for fast in [sum(blocks), plain(blocks)] {
            assert_eq!((fast % 0xffff, fast == 0), (slow % 0xffff, slow == 0));
        }
    }

    #[test]
    fn neither_zeros_nor_ones_overflow() {
        for count in [0, 1, 3, 4, 5, 2047, 40_000] {
            assert_right(&vec![[0; BLOCK_BYTES]; count]);
            assert_right(&vec![[0xff; BLOCK_BYTES]; count]);
        }
    }

    proptest! {
        #[test]
        fn both_ways_give_the_sum(
            blocks in proptest::collection::vec(any::<[u8; BLOCK_BYTES]>(), 0..70),
        ) {
            assert_right(&blocks);
        }
    }
}
