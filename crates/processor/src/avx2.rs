//! Sums by 256-bit units, where the processor has AVX2.
//!
//! `vpmaddwd` adds neighbouring words in pairs, but treats them as signed. Each word is therefore
//! moved down by 2^15 first, and the sum up again. That takes three instructions for 32 bytes;
//! adding with carry takes four, one after the other. Copying at the same time takes two more, and
//! a pass of its own would take three.
#![allow(unsafe_code, reason = "the processor's features are promised to the compiler by `unsafe`")]

use core::arch::x86_64::{
    __m256i, _mm_add_epi32, _mm_cvtsi128_si32, _mm_shuffle_epi32, _mm_unpackhi_epi64,
    _mm256_add_epi32, _mm256_and_si256, _mm256_castsi256_si128, _mm256_extracti128_si256,
    _mm256_loadu_si256, _mm256_madd_epi16, _mm256_set1_epi16, _mm256_setzero_si256,
    _mm256_storeu_si256, _mm256_xor_si256,
};
use core::mem::MaybeUninit;

use crate::sum::PART_BYTES;

cpufeatures::new!(avx2, "avx2");

/// Parallel chains of additions, so that none waits for another.
const LANES: usize = 4;
/// Bytes of a round, 32 in each chain.
const ROUND_BYTES: usize = LANES * 32;
/// The sum of what all words of a round were moved down by.
const ROUND_OFFSET: i64 = (ROUND_BYTES as i64 / 2) << 15;
// Pairs of words moved down are 2^16 at most, and all of them together fit into 31 bits.
const _: () = assert!((PART_BYTES + ROUND_BYTES) / 4 <= (i32::MAX >> 16) as usize);

/// A mask: 128 bytes of it, read from offset `n` on, keep the last `n` bytes of a round.
static KEPT: [u8; 2 * ROUND_BYTES] = {
    let mut kept = [0; 2 * ROUND_BYTES];
    kept.split_at_mut(ROUND_BYTES).1.copy_from_slice(&[u8::MAX; ROUND_BYTES]);
    kept
};

/// Shorter data is not summed here.
const LONG: &str = "a round at least";

type Round = [__m256i; LANES];

/// The sum of native-endian 16-bit words of `data`; `None` without AVX2. `data` has at least a
/// round and at most [`PART_BYTES`].
#[inline]
pub(crate) fn sum(data: &[u8]) -> Option<u64> {
    // SAFETY: the processor has AVX2, and the operating system keeps its registers.
    if avx2::get() { Some(unsafe { sum_bytes(data) }) } else { None }
}

/// Copies `from` to `to`, which has the same length, and returns its [`sum`]. Does nothing and
/// returns `None` without AVX2.
#[inline]
pub(crate) fn copy_and_sum(to: &mut [MaybeUninit<u8>], from: &[u8]) -> Option<u64> {
    // SAFETY: as above.
    if avx2::get() { Some(unsafe { copy_and_sum_bytes(to, from) }) } else { None }
}

#[target_feature(enable = "avx2")]
fn sum_bytes(data: &[u8]) -> u64 {
    let (words, odd) = data.split_at(data.len() & !1);
    let last = words.last_chunk().expect(LONG);
    let (rounds, rest) = words.as_chunks();
    let mut sums = Sums::new();
    for round in rounds {
        sums.add(load(round));
    }
    sums.add(end_of(load(last), rest.len()));
    sums.total(rounds.len() + 1) + last_word(odd)
}

#[target_feature(enable = "avx2")]
fn copy_and_sum_bytes(to: &mut [MaybeUninit<u8>], from: &[u8]) -> u64 {
    let (words, odd) = from.split_at(from.len() & !1);
    let (to, to_odd) = to[..from.len()].split_at_mut(words.len());
    let last = words.last_chunk().expect(LONG);
    let (rounds, rest) = words.as_chunks();
    let mut sums = Sums::new();
    for (to, round) in to.as_chunks_mut().0.iter_mut().zip(rounds) {
        let round = load(round);
        store(to, round);
        sums.add(round);
    }
    // The last bytes are copied together with bytes before them.
    let last = load(last);
    store(to.last_chunk_mut().expect(LONG), last);
    sums.add(end_of(last, rest.len()));
    if let (Some(to), Some(byte)) = (to_odd.first_mut(), odd.first()) {
        to.write(*byte);
    }
    sums.total(rounds.len() + 1) + last_word(odd)
}

/// The value of one byte at most, followed by a zero.
#[inline]
fn last_word(odd: &[u8]) -> u64 {
    odd.first().map_or(0, |byte| u16::from_ne_bytes([*byte, 0]).into())
}

/// Sums of words that were moved down.
struct Sums(Round);

impl Sums {
    #[inline]
    #[target_feature(enable = "avx2")]
    fn new() -> Sums {
        Sums([_mm256_setzero_si256(); LANES])
    }

    /// Adds words in pairs.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn add(&mut self, round: Round) {
        for (sum, words) in self.0.iter_mut().zip(round) {
            let moved = _mm256_xor_si256(words, _mm256_set1_epi16(i16::MIN));
            *sum = _mm256_add_epi32(*sum, _mm256_madd_epi16(moved, _mm256_set1_epi16(1)));
        }
    }

    /// The sum of all words in that many rounds.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn total(self, rounds: usize) -> u64 {
        let [a, b, c, d] = self.0;
        let all = _mm256_add_epi32(_mm256_add_epi32(a, b), _mm256_add_epi32(c, d));
        let half = _mm_add_epi32(_mm256_castsi256_si128(all), _mm256_extracti128_si256::<1>(all));
        let quarter = _mm_add_epi32(half, _mm_unpackhi_epi64(half, half));
        let sum = _mm_add_epi32(quarter, _mm_shuffle_epi32::<1>(quarter));
        (i64::from(_mm_cvtsi128_si32(sum)) + rounds as i64 * ROUND_OFFSET) as u64
    }
}

/// Zeros, except for the last `bytes` bytes of `round`; fewer than all.
#[inline]
#[target_feature(enable = "avx2")]
fn end_of(round: Round, bytes: usize) -> Round {
    let Some(kept) = KEPT[bytes..].first_chunk() else { return round };
    let [a, b, c, d] = round;
    let [e, f, g, h] = load(kept);
    [_mm256_and_si256(a, e), _mm256_and_si256(b, f), _mm256_and_si256(c, g), _mm256_and_si256(d, h)]
}

// No loops here: where a loop reads and writes a block, the compiler first copies all blocks
// elsewhere, and that is the second pass that this code avoids.

#[inline]
#[target_feature(enable = "avx2")]
fn load(from: &[u8; ROUND_BYTES]) -> Round {
    let from = from.as_ptr().cast::<__m256i>();
    // SAFETY: these are four times 32 bytes, and the loads ask for no alignment.
    unsafe {
        [
            _mm256_loadu_si256(from),
            _mm256_loadu_si256(from.add(1)),
            _mm256_loadu_si256(from.add(2)),
            _mm256_loadu_si256(from.add(3)),
        ]
    }
}

#[inline]
#[target_feature(enable = "avx2")]
fn store(to: &mut [MaybeUninit<u8>; ROUND_BYTES], [a, b, c, d]: Round) {
    let to = to.as_mut_ptr().cast::<__m256i>();
    // SAFETY: as above.
    unsafe {
        _mm256_storeu_si256(to, a);
        _mm256_storeu_si256(to.add(1), b);
        _mm256_storeu_si256(to.add(2), c);
        _mm256_storeu_si256(to.add(3), d);
    }
}
