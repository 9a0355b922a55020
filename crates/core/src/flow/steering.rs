//! Which shard of a host owns a connection.
//!
//! Every shard, and a device that steers frames for them, computes the same hash of a connection's
//! ends: multilinear hashing (Carter & Wegman 1979; Lemire & Kaser 2014),
//!
//! ```text
//!   hash  = key[0] + Σ key[i] · word[i]   mod 2^64        word: 32 bits, key: 64
//!   owner = (hash ≫ 32) · shards ≫ 32
//! ```
//!
//! Its high 32 bits are strongly universal, so that a stranger who does not know the keys cannot
//! aim connections at one shard. It takes a multiplication a word, no table and no branch: a
//! program of eBPF computes it as well.
//!
//! The words are both ports, ours in the high half; then our address; then the peer's. Both
//! directions of a connection are hashed from our end's point of view, so they agree.

use core::fmt;

use super::Tuple;
use super::keyed::KeyedHash;

/// Keys: one that is added, and one for each word of an IPv6 connection.
pub const KEYS: usize = 10;

/// The rule by which connections are spread over shards.
#[derive(Clone, PartialEq, Eq)]
pub struct Steering {
    keys: [u64; KEYS],
    shards: u16,
}

impl Steering {
    /// The rule for so many shards of the host with this secret; at least one.
    pub fn new(secret: &[u8; 32], shards: u16) -> Self {
        let key = KeyedHash::new(secret, "steering");
        let keys = core::array::from_fn(|index| key.strong(&[index as u8]));
        Steering { keys, shards: shards.max(1) }
    }

    /// How many shards there are.
    pub fn shards(&self) -> u16 {
        self.shards
    }

    /// The keys, for a device that computes the hash itself. They are as secret as the secret.
    pub fn keys(&self) -> &[u64; KEYS] {
        &self.keys
    }

    /// The shard that owns the connection of `tuple`.
    pub fn owner(&self, tuple: &Tuple) -> u16 {
        let [add, ports, addresses @ ..] = &self.keys;
        let term = |key: &u64, word: u64| key.wrapping_mul(word & 0xffff_ffff);
        let mut hash = add.wrapping_add(term(ports, tuple.ports().into()));
        let words = if tuple.is_ipv6() { &tuple.words()[..] } else { &tuple.words()[..1] };
        for (word, keys) in words.iter().zip(addresses.as_chunks::<2>().0) {
            hash =
                hash.wrapping_add(term(&keys[0], word >> 32)).wrapping_add(term(&keys[1], *word));
        }
        (((hash >> 32) * u64::from(self.shards)) >> 32) as u16
    }
}

/// The keys do not belong in a log.
impl fmt::Debug for Steering {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Steering").field("shards", &self.shards).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::IpAddr;
    use proptest::prelude::*;
    use std::vec;

    fn tuple(ours: [u8; 4], theirs: [u8; 4], ports: (u16, u16)) -> Tuple {
        Tuple::new((ours.into(), ports.0), (theirs.into(), ports.1))
    }

    proptest! {
        #[test]
        fn the_owner_is_the_hash_of_the_words_in_order(
            secret: [u8; 32], shards in 1u16..65, ports: (u16, u16),
            v4: ([u8; 4], [u8; 4]), v6: ([u8; 16], [u8; 16]),
        ) {
            let steering = Steering::new(&secret, shards);
            let pairs: [(IpAddr, IpAddr); 2] =
                [(v4.0.into(), v4.1.into()), (v6.0.into(), v6.1.into())];
            for (ours, theirs) in pairs {
                let tuple = Tuple::new((ours, ports.0), (theirs, ports.1));
                // As a device would read it: the bytes on the wire, four at a time.
                let bytes = |address: IpAddr| match address {
                    IpAddr::V4(address) => address.octets().to_vec(),
                    IpAddr::V6(address) => address.octets().to_vec(),
                };
                let addresses = [bytes(ours), bytes(theirs)].concat();
                let words = addresses.chunks(4).map(|b| u32::from_be_bytes(b.try_into().unwrap()));
                let ports = u32::from(ports.0) << 16 | u32::from(ports.1);
                let words = core::iter::once(ports).chain(words);
                let keys = steering.keys();
                let hash = words.zip(&keys[1..]).fold(keys[0], |hash, (word, key)| {
                    hash.wrapping_add(key.wrapping_mul(word.into()))
                });
                let owner = (((hash >> 32) * u64::from(shards)) >> 32) as u16;
                prop_assert_eq!(steering.owner(&tuple), owner);
                prop_assert!(owner < shards);
            }
        }
    }

    #[test]
    fn connections_spread_evenly_over_shards() {
        for shards in [2u16, 3, 4, 8, 16] {
            let steering = Steering::new(&[7; 32], shards);
            let mut owned = vec![0u32; shards.into()];
            // One client, one service: the ports of the client alone differ.
            for port in 1024..=65_535 {
                let tuple = tuple([10, 0, 0, 2], [10, 0, 0, 1], (80, port));
                owned[usize::from(steering.owner(&tuple))] += 1;
            }
            let mean = 64_512 / u32::from(shards);
            assert!(owned.iter().all(|n| n.abs_diff(mean) < mean / 10), "{shards}: {owned:?}");
        }
    }

    #[test]
    fn another_secret_spreads_otherwise_and_one_shard_owns_all() {
        let [one, other] = [1, 2].map(|byte| Steering::new(&[byte; 32], 2));
        let alone = Steering::new(&[1; 32], 0);
        let all = (1..1000).map(|port| tuple([10, 0, 0, 2], [10, 0, 0, 1], (80, port)));
        let differ = all.clone().filter(|t| one.owner(t) != other.owner(t)).count();
        assert!((300..700).contains(&differ), "{differ}");
        assert!(all.into_iter().all(|tuple| alone.owner(&tuple) == 0) && alone.shards() == 1);
    }
}
