//! The quick keyed hash of a flow's two ends, for the tables in which packets find their sockets.

use core::fmt;

use super::Tuple;
use super::keyed::KeyedHash;

/// The keyed hash of tuples, by which tables find connections and what is left of them.
///
/// NH (Black, Halevi, Krawczyk, Krovetz & Rogaway 1999) of the tuple's words gives 128 bits; NH of
/// these as two words, under other keys, 128 again; their halves are put together. Any two tuples
/// chosen without knowledge of the keys meet in the 128 bits with a probability of 2^-63 at most.
/// That is proven. The last step, which makes 64 bits of them, is not; but behind a second
/// multiplication no difference of tuples is worth more to an attacker than another. An attacker
/// that could watch where its tuples go would learn the keys sooner than SipHash's. No output is
/// shown: [`KeyedHash`] hashes all that a stranger sees. A stranger may find out, with patience,
/// which of its tuples share a bucket of challenge ACKs, and, by nanoseconds, which share a line.
#[derive(Clone)]
pub struct TupleHasher {
    keys: [u64; HASH_KEYS],
}

/// Keys of the hash: one for each word of the tuple, one for a word without a partner, and two for
/// the last step.
const HASH_KEYS: usize = 8;

/// A pair of words under a pair of keys.
fn nh(words: (u64, u64), keys: (u64, u64)) -> u128 {
    let sum = |word: u64, key| u128::from(word.wrapping_add(key));
    sum(words.0, keys.0) * sum(words.1, keys.1)
}

impl TupleHasher {
    /// The hash that belongs to this secret.
    pub fn new(secret: &[u8; 32]) -> Self {
        let key = KeyedHash::new(secret, "tuples");
        TupleHasher { keys: core::array::from_fn(|index| key.strong(&[index as u8])) }
    }

    /// The hash of `tuple`.
    pub fn hash(&self, tuple: &Tuple) -> u64 {
        let keys = &self.keys;
        let &[first, second, third, fourth] = tuple.words();
        let mut state = nh((first, tuple.ports().into()), (keys[0], keys[1]));
        if tuple.is_ipv6() {
            let others =
                [nh((second, third), (keys[2], keys[3])), nh((fourth, 0), (keys[4], keys[5]))];
            state = state.wrapping_add(others[0]).wrapping_add(others[1]);
        }
        let mixed = nh((state as u64, (state >> 64) as u64), (keys[6], keys[7]));
        mixed as u64 ^ (mixed >> 64) as u64
    }
}

/// The keys do not belong in a log.
impl fmt::Debug for TupleHasher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TupleHasher")
    }
}
