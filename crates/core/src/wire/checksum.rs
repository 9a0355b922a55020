//! The Internet checksum (RFC 1071), in pieces that compose.
//!
//! A [`Sum`] is the one's complement sum of some bytes, together with whether their number was odd:
//! that is all one must know to put two pieces after each other. The payload's sum may be taken
//! while it is copied ([`append_and_sum`]), or cached, and the header's added later.
//!
//! ```
//! use lightwait_core::wire::checksum::{Sum, sum};
//! let whole = sum(b"Internet checksum");
//! assert_eq!(whole.fold(), sum(b"Int").then(sum(b"ernet checksum")).fold());
//! ```
//!
//! Sums are taken over native-endian words and turned at the end: the sum does not care
//! (RFC 1071 §2B).

use alloc::vec::Vec;
use core::net::IpAddr;

use lightwait_processor::add;

/// The one's complement sum of a piece of bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sum {
    /// The sum of the native-endian words, modulo 2^64 - 1: a multiple of 2^16 - 1, so that words
    /// of any size may be added. Zero only if all bytes are.
    value: u64,
    /// The piece has an odd number of bytes, so what follows starts in the middle of a word.
    odd: bool,
}

impl Sum {
    /// The sum of no bytes at all.
    pub const ZERO: Sum = Sum { value: 0, odd: false };

    /// The sum of big-endian words that were added as numbers, without overflow.
    #[must_use]
    pub(crate) const fn of_big_endian(sum: u64) -> Sum {
        Sum { value: sum.to_be(), odd: false }
    }

    /// The sum of pairs of big-endian words, each pair a number.
    #[must_use]
    pub(crate) fn of_pairs(pairs: &[u64]) -> Sum {
        Sum::of_big_endian(pairs.iter().fold(0, |sum, pair| add(sum, *pair)))
    }

    /// This piece followed by `next`.
    #[must_use]
    pub const fn then(self, next: Sum) -> Sum {
        // Half a word further on, a byte counts 2^8 times what it does here.
        let value = if self.odd { next.value.rotate_left(8) } else { next.value };
        Sum { value: add(self.value, value), odd: self.odd != next.odd }
    }

    /// This piece followed by the two bytes of a big-endian field.
    #[must_use]
    pub(crate) const fn then_u16(self, field: u16) -> Sum {
        self.then(Sum { value: field.to_be() as u64, odd: false })
    }

    /// The sum folded into 16 bits, not complemented. For the pseudo-header alone, this is what the
    /// checksum field holds when the checksum is left to the device
    /// ([`TxChecksum::Partial`](crate::frame::TxChecksum::Partial)).
    #[must_use]
    pub const fn fold(self) -> u16 {
        u16::from_be(fold(self.value))
    }

    /// The checksum: the folded sum's complement, as it stands in the checksum field.
    #[must_use]
    pub const fn checksum(self) -> u16 {
        !self.fold()
    }

    /// True if this is the sum of bytes that contain their own right checksum.
    #[must_use]
    pub(crate) const fn is_valid(self) -> bool {
        // What folds to ones is a multiple of them, but not zero. Times the inverse of ones, which
        // there is modulo 2^64, multiples are the numbers from 0 up; and no others are so small.
        const INVERSE: u64 = 0xfffe_fffe_fffe_ffff;
        self.value.wrapping_mul(INVERSE).wrapping_sub(1) < u64::MAX / 0xffff
    }
}

/// The sum of `data`.
#[must_use]
pub fn sum(data: &[u8]) -> Sum {
    Sum { value: lightwait_processor::sum(data), odd: data.len() % 2 == 1 }
}

/// The sum of a header without options, whose length the compiler knows.
#[must_use]
pub fn sum_of<const N: usize>(data: &[u8; N]) -> Sum {
    Sum { value: lightwait_processor::sum_of(data), odd: N % 2 == 1 }
}

/// The checksum of a header given as big-endian words, few enough not to overflow 64 bits.
#[must_use]
pub(crate) fn of_words(words: &[u32]) -> u16 {
    of_sum(word_sum(words))
}

/// The checksum of a header whose [`word_sum`] this is.
#[must_use]
pub(crate) const fn of_sum(word_sum: u64) -> u16 {
    !fold(word_sum)
}

/// The checksum of a header whose sum is that of two 16-bit numbers.
#[must_use]
pub(crate) const fn of_short_sum(sum: u32) -> u16 {
    !((sum & 0xffff) + (sum >> 16)) as u16
}

/// Big-endian words added as numbers, few enough not to overflow 64 bits: for
/// [`of_sum`], and [`Sum::of_big_endian`].
#[must_use]
pub(crate) fn word_sum(words: &[u32]) -> u64 {
    words.iter().map(|word| u64::from(*word)).sum()
}

/// Appends `src` to `out`, and returns its sum.
#[inline(always)]
pub fn append_and_sum(out: &mut Vec<u8>, src: &[u8]) -> Sum {
    Sum { value: lightwait_processor::append_and_sum(out, src), odd: src.len() % 2 == 1 }
}

/// Copies `src` to `out`, which must be as long, and returns its sum.
pub(crate) fn copy_and_sum(out: &mut [u8], src: &[u8]) -> Sum {
    Sum { value: lightwait_processor::copy_and_sum(out, src), odd: src.len() % 2 == 1 }
}

/// The sum of the pseudo-header of TCP, UDP and ICMPv6: the addresses, the protocol and the length
/// in bytes of the transport header and payload (RFC 9293 §3.1, RFC 8200 §8.1). The two versions
/// differ in the layout, which does not change the sum.
#[must_use]
pub fn pseudo_header(source: IpAddr, destination: IpAddr, protocol: u8, len: u32) -> Sum {
    let word = |bytes| u64::from(u32::from_ne_bytes(bytes));
    let addresses = match (source, destination) {
        (IpAddr::V4(a), IpAddr::V4(b)) => word(a.octets()) + word(b.octets()),
        (IpAddr::V6(a), IpAddr::V6(b)) => {
            let halves = [a.to_bits(), b.to_bits()].map(|bits| {
                let bits = u128::from_be(bits);
                add(bits as u64, (bits >> 64) as u64)
            });
            add(halves[0], halves[1])
        }
        (a, b) => panic!("a packet from {a} to {b}"),
    };
    let rest = word(len.to_be_bytes()) + u64::from(u16::from(protocol).to_be());
    Sum { value: add(addresses, rest), odd: false }
}

/// The checksum after the 16-bit field `old` under it has become `new` (RFC 1624, equation 3).
#[must_use]
pub const fn update(checksum: u16, old: u16, new: u16) -> u16 {
    !fold(!checksum as u64 + !old as u64 + new as u64)
}

/// Stores the checksum of `bytes[start..]`, with `pseudo` counted in, in its two bytes at
/// `start + offset`, which must be zero. For messages that we have just written.
pub(crate) fn fill(bytes: &mut [u8], start: usize, offset: usize, pseudo: Sum) {
    let checksum = pseudo.then(sum(&bytes[start..])).checksum();
    bytes[start + offset..start + offset + 2].copy_from_slice(&checksum.to_be_bytes());
}

/// In 16 bits, one's complement: zero only if it was.
const fn fold(value: u64) -> u16 {
    let (sum, carry) = (value as u32).overflowing_add((value >> 32) as u32);
    let sum = sum + carry as u32;
    // Its halves are added in the upper half, with the carry of the lower one.
    (sum.wrapping_add(sum.rotate_left(16)) >> 16) as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    /// RFC 1071 §1 word by word, as slow as it is plain.
    fn plain(data: &[u8]) -> u16 {
        let mut total = 0u32;
        for pair in data.chunks(2) {
            total += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
            total = (total & 0xffff) + (total >> 16);
        }
        total as u16
    }

    #[test]
    fn the_example_of_rfc_1071_section_3() {
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(sum(&bytes).fold(), 0xddf2);
        assert_eq!(sum(&bytes).checksum(), !0xddf2);
        // "Third": the same bytes split after an odd number of them.
        assert_eq!(sum(&bytes[..3]).then(sum(&bytes[3..])).fold(), 0xddf2);
    }

    #[test]
    fn the_example_of_rfc_1624_section_4() {
        // HC = 0xdd2f, m = 0x5555, m' = 0x3285: equation 2 gives 0xffff, equation 3 gives 0.
        assert_eq!(update(0xdd2f, 0x5555, 0x3285), 0x0000);
    }

    #[test]
    fn all_ones_and_all_zeros_keep_their_difference() {
        assert_eq!(sum(&[0; 64]).fold(), 0);
        assert_eq!(sum(&[0xff; 64]).fold(), 0xffff);
        assert_eq!(sum(&[0xff; 65_535]).fold(), plain(&[0xff; 65_535]));
        assert_eq!(Sum::ZERO.fold(), 0);
    }

    #[test]
    fn a_known_ipv4_header_is_valid() {
        let header = [
            0x45, 0x00, 0x00, 0x73, 0x00, 0x00, 0x40, 0x00, 0x40, 0x11, 0xb8, 0x61, 0xc0, 0xa8,
            0x00, 0x01, 0xc0, 0xa8, 0x00, 0xc7,
        ];
        assert!(sum(&header).is_valid());
        let mut broken = header;
        broken[8] ^= 1;
        assert!(!sum(&broken).is_valid());
    }

    #[test]
    fn the_pseudo_headers_are_the_sums_of_their_pictures() {
        let v4 = [10, 0, 0, 1, 10, 0, 0, 2, 0, 6, 0x12, 0x34];
        let (a, b) = ("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap());
        assert_eq!(pseudo_header(a, b, 6, 0x1234).fold(), plain(&v4));

        let (a, b): (IpAddr, IpAddr) = ("fd00::1".parse().unwrap(), "fd00::2".parse().unwrap());
        let mut v6 = Vec::new();
        for address in [a, b] {
            let IpAddr::V6(address) = address else { panic!() };
            v6.extend_from_slice(&address.octets());
        }
        v6.extend_from_slice(&[0, 1, 0x12, 0x34, 0, 0, 0, 58]);
        assert_eq!(pseudo_header(a, b, 58, 0x1_1234).fold(), plain(&v6));
    }

    proptest! {
        #[test]
        fn the_fast_sum_is_the_plain_one(data in vec(any::<u8>(), 0..3000)) {
            prop_assert_eq!(sum(&data).fold(), plain(&data));
        }

        #[test]
        fn pieces_compose(pieces in vec(vec(any::<u8>(), 0..9), 0..20)) {
            let joined = pieces.iter().fold(Sum::ZERO, |total, piece| total.then(sum(piece)));
            prop_assert_eq!(joined.fold(), plain(&pieces.concat()));
        }

        #[test]
        fn the_fused_copy_copies_and_sums(data in vec(any::<u8>(), 0..10_000), kept in 0usize..4) {
            let mut out = std::vec![7; kept];
            let fused = append_and_sum(&mut out, &data);
            prop_assert_eq!(&out[kept..], &data[..]);
            prop_assert_eq!(fused.fold(), sum(&data).fold());
            let copied = copy_and_sum(&mut out[kept..], &data);
            prop_assert_eq!((copied.value, copied.odd), (fused.value, fused.odd));
        }

        #[test]
        fn the_incremental_update_is_the_full_sum(
            mut data in vec(any::<u8>(), 4..64), at in any::<prop::sample::Index>(), new: u16,
        ) {
            let at = at.index(data.len() / 2) * 2;
            let old = u16::from_be_bytes([data[at], data[at + 1]]);
            let updated = update(sum(&data).checksum(), old, new);
            data[at..at + 2].copy_from_slice(&new.to_be_bytes());
            // One's complement has two zeros; a verifier takes either.
            let full = sum(&data).checksum();
            prop_assert_eq!(updated % 0xffff, full % 0xffff);
        }

        #[test]
        fn what_is_left_to_the_device_ends_in_a_valid_checksum(
            mut segment in vec(any::<u8>(), 20..100), a: [u8; 4], b: [u8; 4],
        ) {
            let pseudo = pseudo_header(a.into(), b.into(), 6, segment.len() as u32);
            segment[16..18].copy_from_slice(&pseudo.fold().to_be_bytes());
            let by_device = sum(&segment).checksum();
            segment[16..18].copy_from_slice(&by_device.to_be_bytes());
            prop_assert!(pseudo.then(sum(&segment)).is_valid());
        }

        #[test]
        fn a_filled_checksum_is_valid(mut data in vec(any::<u8>(), 4..64)) {
            data[2..4].fill(0);
            fill(&mut data, 0, 2, Sum::ZERO.then_u16(0x1234));
            prop_assert!(Sum::ZERO.then_u16(0x1234).then(sum(&data)).is_valid());
        }
    }
}
