//! By 256-bit units, where AVX2 is.
//!
//! `vpmaddwd` adds neighbouring words in pairs, but takes them for signed: each is moved down by
//! 2^15 before, and the sum up again. That is three instructions for 32 bytes, where adding with
//! carry takes four, one after the other.
#![allow(unsafe_code, reason = "the processor's features are promised to the compiler by `unsafe`")]

use core::arch::x86_64::{
    __m256i, _mm256_add_epi32, _mm256_loadu_si256, _mm256_madd_epi16, _mm256_set1_epi16,
    _mm256_setzero_si256, _mm256_storeu_si256, _mm256_xor_si256,
};

use super::BLOCK_BYTES;

cpufeatures::new!(avx2, "avx2");

type Block = [u8; BLOCK_BYTES];

/// Chains of additions beside one another, so that none waits for another.
const LANES: usize = 4;
/// Blocks whose pairs of words, eight of 2^16 at most, fit into 31 bits together.
const BLOCKS_MAX: usize = 1 << 11;
/// What all words of a block were moved down by.
const BLOCK_OFFSET: i64 = (BLOCK_BYTES as i64 / 2) << 15;

/// The sum of native-endian 16-bit words; `None` without AVX2.
#[inline]
pub(super) fn sum(blocks: &[Block]) -> Option<u64> {
    if !avx2::get() {
        return None;
    }
    if blocks.len() > BLOCKS_MAX {
        return sum_in_parts(blocks);
    }
    // SAFETY: the processor has AVX2, and the operating system keeps its registers.
    Some(unsafe { sum_part(blocks) })
}

#[inline(never)]
fn sum_in_parts(blocks: &[Block]) -> Option<u64> {
    blocks.chunks(BLOCKS_MAX).map(sum).sum()
}

/// The sum of the words of [`BLOCKS_MAX`] blocks at most.
#[target_feature(enable = "avx2")]
fn sum_part(blocks: &[Block]) -> u64 {
    (signed_sum(blocks) + blocks.len() as i64 * BLOCK_OFFSET) as u64
}

/// The same of the words moved down.
#[inline]
#[target_feature(enable = "avx2")]
fn signed_sum(blocks: &[Block]) -> i64 {
    let (groups, rest) = blocks.as_chunks::<LANES>();
    let mut sums = [_mm256_setzero_si256(); LANES];
    for group in groups {
        for (sum, block) in sums.iter_mut().zip(group) {
            *sum = _mm256_add_epi32(*sum, pairs(block));
        }
    }
    for (sum, block) in sums.iter_mut().zip(rest) {
        *sum = _mm256_add_epi32(*sum, pairs(block));
    }
    let [a, b, c, d] = sums;
    let all = _mm256_add_epi32(_mm256_add_epi32(a, b), _mm256_add_epi32(c, d));
    let mut lanes = [0i32; 8];
    // SAFETY: both have 32 bytes, and the store asks for no alignment.
    unsafe { _mm256_storeu_si256(lanes.as_mut_ptr().cast(), all) };
    lanes.iter().sum::<i32>().into()
}

/// The words of a block moved down, and added in pairs.
#[inline]
#[target_feature(enable = "avx2")]
fn pairs(block: &Block) -> __m256i {
    // SAFETY: a block has 32 bytes, and the load asks for no alignment.
    let words = unsafe { _mm256_loadu_si256(block.as_ptr().cast()) };
    let moved = _mm256_xor_si256(words, _mm256_set1_epi16(i16::MIN));
    _mm256_madd_epi16(moved, _mm256_set1_epi16(1))
}
