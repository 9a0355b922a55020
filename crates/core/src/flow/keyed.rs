//! Hashes keyed with this process's secret.
//!
//! Addresses and ports are the attacker's to choose, so everything hashed from them is keyed.
//! SipHash (Aumasson & Bernstein 2012) serves ISNs, timestamp offsets, cookies, port order and all
//! else that a stranger can observe. The tables in which each segment is looked up use a quicker
//! hash ([`TupleHasher`](crate::flow::TupleHasher)). Each purpose derives its own key from
//! the one secret, so that what one of them shows says nothing about another.

use core::hash::{BuildHasher, Hasher};
use siphasher::sip::{SipHasher13, SipHasher24};

use crate::flow::Tuple;

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

    fn strong_hasher(&self) -> SipHasher24 {
        SipHasher24::new_with_keys(self.key.0, self.key.1)
    }

    /// SipHash-2-4 of `bytes`: for what a stranger sees.
    pub fn strong(&self, bytes: &[u8]) -> u64 {
        self.strong_hasher().hash(bytes)
    }

    /// SipHash-1-3 of `bytes`: for tables, which no stranger sees.
    pub fn quick(&self, bytes: &[u8]) -> u64 {
        self.build_hasher().hash(bytes)
    }

    /// The strong hash of a connection's two ends. Its halves are as good as two hashes.
    pub(crate) fn of_tuple(&self, tuple: &Tuple) -> u64 {
        let mut hasher = self.strong_hasher();
        tuple.write_to(&mut hasher);
        hasher.finish()
    }

    /// The strong hash of a connection's two ends, and of `more`.
    pub(crate) fn of_tuple_and(&self, tuple: &Tuple, more: u64) -> u64 {
        let mut hasher = self.strong_hasher();
        hasher.write_u64(more);
        tuple.write_to(&mut hasher);
        hasher.finish()
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

    use core::net::IpAddr;
    use std::vec::Vec;

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

    #[test]
    fn a_tuple_is_hashed_as_the_bytes_of_its_words() {
        let hash = KeyedHash::new(&[7; 32], "test");
        let four: IpAddr = [10, 0, 0, 1].into();
        let six: IpAddr = "fd00::1".parse().unwrap();
        for (address, words) in [(four, 1), (six, 4)] {
            let tuple = Tuple::new((address, 40_000), (address, 80));
            let words = tuple.words()[..words].iter().flat_map(|word| word.to_le_bytes());
            let bytes: Vec<u8> = words.chain(tuple.ports().to_le_bytes()).collect();
            assert_eq!(hash.of_tuple(&tuple), hash.strong(&bytes));
        }
    }
}
