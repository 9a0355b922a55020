//! The sum of 16-bit words, the base of the Internet checksum, with or without copying the bytes.
//!
//! Words of any size may be added, since only the sum modulo 2^16 - 1 matters. Here it is the sum
//! modulo 2^64 - 1, which is zero only if all bytes are.
#![allow(unsafe_code, reason = "only so can bytes be copied to where none are")]

use alloc::vec::Vec;
use core::mem::MaybeUninit;

#[cfg(target_arch = "x86_64")]
use crate::avx2;

/// Wide units are worth the call from this length on.
const LONG_BYTES: usize = 256;
/// The most bytes summed at once: an even number, and more than any packet has.
pub(crate) const PART_BYTES: usize = 1 << 16;

/// The sum of the native-endian 16-bit words of `data`; a last byte alone is followed by a zero.
#[must_use]
pub fn sum(data: &[u8]) -> u64 {
    if data.len() >= LONG_BYTES {
        return sum_long(data);
    }
    let (value, rest) = sum_blocks::<128>(0, data);
    let (value, rest) = sum_blocks::<32>(value, rest);
    with_rest(value, rest, data)
}

/// The [`sum`] of `N` bytes, a number that the compiler knows.
#[must_use]
#[inline]
pub fn sum_of<const N: usize>(data: &[u8; N]) -> u64 {
    let (words, rest) = data.as_chunks::<8>();
    let sum = words.iter().fold(0, |sum, word| add(sum, u64::from_ne_bytes(*word)));
    add(sum, last_word(rest))
}

/// Appends `from` to `out`, and returns its [`sum`].
#[inline]
pub fn append_and_sum(out: &mut Vec<u8>, from: &[u8]) -> u64 {
    out.reserve(from.len());
    let place = &mut out.spare_capacity_mut()[..from.len()];
    let sum = copy_to(place, from);
    // SAFETY: `from.len()` bytes have been written after the others.
    unsafe { out.set_len(out.len() + from.len()) };
    sum
}

/// Copies `from` to `to`, which must be as long, and returns its [`sum`].
///
/// # Panics
///
/// If it is shorter or longer.
#[inline]
pub fn copy_and_sum(to: &mut [u8], from: &[u8]) -> u64 {
    assert_eq!(to.len(), from.len());
    // SAFETY: only initialised bytes are written there.
    copy_to(unsafe { &mut *(core::ptr::from_mut(to) as *mut [MaybeUninit<u8>]) }, from)
}

/// Writes all of `to`, which has the same length as `from`.
#[inline]
fn copy_to(to: &mut [MaybeUninit<u8>], from: &[u8]) -> u64 {
    if from.len() >= LONG_BYTES {
        return copy_long(to, from);
    }
    to.write_copy_of_slice(from);
    sum(from)
}

#[inline(never)]
fn copy_long(to: &mut [MaybeUninit<u8>], from: &[u8]) -> u64 {
    if from.len() > PART_BYTES {
        return copy_in_parts(to, from);
    }
    #[cfg(target_arch = "x86_64")]
    if let Some(sum) = avx2::copy_and_sum(to, from) {
        return sum;
    }
    copy_plainly(to, from)
}

#[inline(never)]
fn copy_plainly(to: &mut [MaybeUninit<u8>], from: &[u8]) -> u64 {
    to.write_copy_of_slice(from);
    plain(from)
}

#[inline(never)]
fn copy_in_parts(to: &mut [MaybeUninit<u8>], from: &[u8]) -> u64 {
    let parts = to.chunks_mut(PART_BYTES).zip(from.chunks(PART_BYTES));
    parts.map(|(to, from)| copy_to(to, from)).fold(0, add)
}

#[inline(never)]
fn sum_long(data: &[u8]) -> u64 {
    if data.len() > PART_BYTES {
        return sum_in_parts(data);
    }
    #[cfg(target_arch = "x86_64")]
    if let Some(sum) = avx2::sum(data) {
        return sum;
    }
    plain(data)
}

#[inline(never)]
fn sum_in_parts(data: &[u8]) -> u64 {
    data.chunks(PART_BYTES).map(sum).fold(0, add)
}

/// Sums by a plain loop, which the compiler turns into 128-bit units on x86-64 and ARM.
#[inline(never)]
fn plain(data: &[u8]) -> u64 {
    let [mut all, mut high] = [0u64; 2];
    let (blocks, rest) = data.as_chunks::<32>();
    for word in blocks.as_flattened().as_chunks::<8>().0 {
        let word = u64::from_ne_bytes(*word);
        all = all.wrapping_add(word);
        high += word >> 32;
    }
    // The sum of the upper halves gives their share in the sum of whole words.
    with_rest(halves(all.wrapping_sub(high << 32)) + halves(high), rest, data)
}

/// The sum of both halves.
const fn halves(sum: u64) -> u64 {
    (sum & 0xffff_ffff) + (sum >> 32)
}

/// Adds all whole blocks of `BYTES` bytes to `value`. Returns the sum, and the remaining bytes.
#[inline]
fn sum_blocks<const BYTES: usize>(mut value: u64, data: &[u8]) -> (u64, &[u8]) {
    let (blocks, rest) = data.as_chunks::<BYTES>();
    for block in blocks {
        // Each word takes in the carry of the one before: one instruction for eight bytes.
        let mut carry = false;
        for word in block.as_chunks::<8>().0 {
            (value, carry) = value.carrying_add(u64::from_ne_bytes(*word), carry);
        }
        value = add(value, carry.into());
    }
    (value, rest)
}

/// The sum of `data`: `value` is the sum of its beginning, and `rest` is the remainder.
#[inline(always)]
fn with_rest(value: u64, rest: &[u8], data: &[u8]) -> u64 {
    let (words, rest) = rest.as_chunks::<8>();
    let value = words.iter().fold(value, |value, word| add(value, u64::from_ne_bytes(*word)));
    let last = match data.last_chunk::<8>() {
        // The bytes before the rest are shifted out; a shift by 64 takes two steps.
        Some(last) => {
            let last = u64::from_le_bytes(*last) >> (8 * (7 - rest.len() % 8)) >> 8;
            u64::from_ne_bytes(last.to_le_bytes())
        }
        None => last_word(rest),
    };
    add(value, last)
}

/// The 16-bit words' sum of seven bytes at most.
#[inline]
fn last_word(mut rest: &[u8]) -> u64 {
    let mut value = 0;
    if let Some((word, more)) = rest.split_first_chunk::<4>() {
        value += u64::from(u32::from_ne_bytes(*word));
        rest = more;
    }
    if let Some((word, more)) = rest.split_first_chunk::<2>() {
        value += u64::from(u16::from_ne_bytes(*word));
        rest = more;
    }
    value + rest.first().map_or(0, |byte| u64::from(u16::from_ne_bytes([*byte, 0])))
}

/// Addition modulo 2^64 - 1.
#[must_use]
#[inline]
pub const fn add(a: u64, b: u64) -> u64 {
    let (sum, carry) = a.overflowing_add(b);
    sum + carry as u64
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    /// The sum, word by word.
    fn slow(data: &[u8]) -> u64 {
        let word = |pair: &[u8]| u16::from_ne_bytes([pair[0], *pair.get(1).unwrap_or(&0)]);
        data.chunks(2).map(|pair| u64::from(word(pair))).sum()
    }

    fn assert_right(data: &[u8]) {
        let slow = slow(data);
        let mut appended = std::vec![7; 3];
        let mut copied = std::vec![7; data.len()];
        let sums = [
            sum(data),
            plain(data),
            append_and_sum(&mut appended, data),
            copy_and_sum(&mut copied, data),
        ];
        for fast in sums {
            assert_eq!((fast % 0xffff, fast == 0), (slow % 0xffff, slow == 0));
        }
        assert_eq!((&appended[..3], &appended[3..], &copied[..]), (&[7; 3][..], data, data));
    }

    #[test]
    fn neither_zeros_nor_ones_overflow() {
        // Around the ends of a block, of a round, of long data, and of a lane's range.
        let rounds = [0, 1, 31, 32, 33, 255, 256, 257, 287, 288, 65_535, 65_536, 65_537, 1_280_000];
        for len in rounds {
            for byte in [0, 1, 0x7f, 0x80, 0xff] {
                assert_right(&std::vec![byte; len]);
            }
        }
    }

    #[test]
    fn neither_length_nor_alignment_matters() {
        let data: Vec<u8> = (0..700u32).map(|at| ((at * at) >> 3) as u8).collect();
        for start in 0..64 {
            for len in (0..600).step_by(7).chain(250..300) {
                assert_right(&data[start..start + len]);
            }
        }
    }

    #[test]
    #[should_panic(expected = "left == right")]
    fn what_is_copied_must_have_room() {
        copy_and_sum(&mut [0; 299], &[0; 300]);
    }

    proptest! {
        #[test]
        fn all_ways_give_the_sum(data in vec(any::<u8>(), 0..3000)) {
            assert_right(&data);
        }

        #[test]
        fn what_the_compiler_measured_has_the_same_sum(data: [u8; 20]) {
            prop_assert_eq!(sum_of(&data) % 0xffff, sum(&data) % 0xffff);
        }
    }
}
