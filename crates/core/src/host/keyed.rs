//! Hashes keyed with this process's secret.
//!
//! Addresses and ports are the attacker's to choose, so everything hashed from them is keyed: with
//! SipHash (Aumasson & Bernstein 2012) ISNs, timestamp offsets, cookies, port order, whatever a
//! stranger sees something of; the tables in which each segment is looked up by what is quicker
//! ([`TupleHasher`](super::demux::TupleHasher)). Each purpose derives its own key from the one
//! secret, so that what one of them shows says nothing about another.

use core::hash::{BuildHasher, Hasher};
use siphasher::sip::{SipHasher13, SipHasher24};

use crate::tcp::Tuple;

/// A hash function of one purpose.
#[derive(Clone, Copy)]
pub struct KeyedHash {
    key: (u64, u64),
}

impl KeyedHash {
    /// The hash function for `purpose`, a name that no other has.
    pub fn new(secret: &[u8; 32], purpose: &str) -> Self {
        let half = |at: usize| SipHasher24::new_with_key(&core::array::from_fn(|i| secret[at + i]));
        KeyedHash { key: (half(0).hash(purpose.as_bytes()), half(16).hash(purpose.as_bytes())) }
    }

    #[inline]
    fn strong_hasher(&self) -> SipHasher24 {
        SipHasher24::new_with_keys(self.key.0, self.key.1)
    }

    /// SipHash-2-4 of `bytes`: for what a stranger sees.
    #[inline]
    pub fn strong(&self, bytes: &[u8]) -> u64 {
        self.strong_hasher().hash(bytes)
    }

    /// SipHash-1-3 of `bytes`: for tables, which nobody sees.
    pub fn quick(&self, bytes: &[u8]) -> u64 {
        self.build_hasher().hash(bytes)
    }

    /// The strong hash of a connection's two ends. Its halves are as good as two hashes.
    #[inline]
    pub fn of_tuple(&self, tuple: &Tuple) -> u64 {
        if tuple.is_ipv6() {
            return tuple.with_bytes(|bytes| self.strong(bytes));
        }
        self.of_two_words(tuple.first_word(), IPV4_BYTES << 56 | u64::from(tuple.ports()))
    }

    /// SipHash-2-4 of so many bytes that they are two words, the last one with their number.
    #[inline(never)]
    fn of_two_words(&self, first: u64, last: u64) -> u64 {
        let mut state = Sip::new(self.key);
        state.take(first);
        state.take(last);
        state.finish()
    }

    /// The strong hash of a connection's two ends, and of `more`.
    pub fn of_tuple_and(&self, tuple: &Tuple, more: u64) -> u64 {
        let mut hasher = self.strong_hasher();
        hasher.write_u64(more);
        tuple.with_bytes(|bytes| hasher.write(bytes));
        hasher.finish()
    }
}

/// Bytes of both ends of IPv4.
const IPV4_BYTES: u64 = 12;

/// The state of SipHash-2-4, for what is all there in words: nothing is gathered byte by byte.
struct Sip([u64; 4]);

impl Sip {
    #[inline]
    fn new((k0, k1): (u64, u64)) -> Sip {
        // "somepseudorandomlygeneratedbytes", as the paper has it.
        Sip([
            k0 ^ 0x736f_6d65_7073_6575,
            k1 ^ 0x646f_7261_6e64_6f6d,
            k0 ^ 0x6c79_6765_6e65_7261,
            k1 ^ 0x7465_6462_7974_6573,
        ])
    }

    #[inline]
    fn round(&mut self) {
        let Sip([v0, v1, v2, v3]) = self;
        *v0 = v0.wrapping_add(*v1);
        *v2 = v2.wrapping_add(*v3);
        *v1 = v1.rotate_left(13) ^ *v0;
        *v3 = v3.rotate_left(16) ^ *v2;
        *v0 = v0.rotate_left(32);
        *v2 = v2.wrapping_add(*v1);
        *v0 = v0.wrapping_add(*v3);
        *v1 = v1.rotate_left(17) ^ *v2;
        *v3 = v3.rotate_left(21) ^ *v0;
        *v2 = v2.rotate_left(32);
    }

    #[inline]
    fn take(&mut self, word: u64) {
        self.0[3] ^= word;
        self.round();
        self.round();
        self.0[0] ^= word;
    }

    #[inline]
    fn finish(mut self) -> u64 {
        self.0[2] ^= 0xff;
        for _ in 0..4 {
            self.round();
        }
        self.0.into_iter().fold(0, |all, word| all ^ word)
    }
}

/// For hash tables: SipHash-1-3.
impl BuildHasher for KeyedHash {
    type Hasher = SipHasher13;
    fn build_hasher(&self) -> SipHasher13 {
        SipHasher13::new_with_keys(self.key.0, self.key.1)
    }
}

/// The key does not belong in a log.
impl core::fmt::Debug for KeyedHash {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("KeyedHash")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use core::net::{IpAddr, Ipv4Addr};
    use proptest::prelude::*;
    use std::vec::Vec;

    proptest! {
        #[test]
        fn ends_are_hashed_by_words_as_by_bytes(
            secret: [u8; 32], ends: [(u32, u16); 2], six: bool,
        ) {
            let hash = KeyedHash::new(&secret, "test");
            let [local, remote] = ends.map(|(address, port)| {
                let address = Ipv4Addr::from_bits(address);
                (if six { address.to_ipv6_mapped().into() } else { IpAddr::V4(address) }, port)
            });
            let tuple = Tuple::new(local, remote);
            prop_assert_eq!(hash.of_tuple(&tuple), tuple.with_bytes(|bytes| hash.strong(bytes)));
        }
    }

    #[test]
    fn purpose_and_every_byte_of_the_secret_matter() {
        let of = |secret: &[u8; 32], purpose| KeyedHash::new(secret, purpose).strong(b"x");
        let plain = of(&[0; 32], "isn");
        assert_eq!(plain, of(&[0; 32], "isn"));
        assert_ne!(plain, of(&[0; 32], "port"));
        for at in 0..32 {
            let mut secret = [0; 32];
            secret[at] = 1;
            assert_ne!(plain, of(&secret, "isn"), "byte {at}");
        }
    }

    #[test]
    fn every_part_of_the_tuple_matters() {
        let hash = KeyedHash::new(&[7; 32], "test");
        let a: IpAddr = [127, 0, 0, 1].into();
        let b: IpAddr = [127, 0, 0, 2].into();
        let six: IpAddr = "::1".parse().unwrap();
        let tuples = [
            Tuple::new((a, 1), (a, 1)),
            Tuple::new((a, 1), (b, 1)),
            Tuple::new((b, 1), (a, 1)),
            Tuple::new((a, 1), (a, 2)),
            Tuple::new((a, 2), (a, 1)),
            Tuple::new((six, 1), (six, 1)),
        ];
        let plain = tuples.iter().map(|tuple| hash.of_tuple(tuple));
        let more = tuples.iter().flat_map(|t| [hash.of_tuple_and(t, 0), hash.of_tuple_and(t, 1)]);
        let all: Vec<u64> = plain.chain(more).collect();
        for (i, x) in all.iter().enumerate() {
            assert!(all[..i].iter().all(|y| y != x), "{i}");
        }
        assert_ne!(hash.strong(b"x"), hash.quick(b"x"));
    }
}
