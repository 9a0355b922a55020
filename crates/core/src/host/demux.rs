//! From a segment's addresses and ports to its connection.
//!
//! The hash is keyed (SipHash-1-3 under a secret of this process), because the tuple is the
//! attacker's to choose: with a public hash he could put every connection into one chain.

use hashbrown::HashTable;

use super::keyed::KeyedHash;
use crate::tcp::Tuple;

/// The keyed hash of tuples.
#[derive(Clone, Debug)]
pub struct TupleHasher(KeyedHash);

impl TupleHasher {
    /// The hash that belongs to this secret.
    pub fn new(secret: &[u8; 32]) -> Self {
        TupleHasher(KeyedHash::new(secret, "tuples"))
    }

    /// The hash of `tuple`.
    #[inline]
    pub fn hash(&self, tuple: &Tuple) -> u64 {
        self.0.quick_of_tuple(tuple)
    }
}

/// Slots by tuple. The slots themselves hold the tuple and its hash.
#[derive(Debug, Default)]
pub struct Demux {
    table: HashTable<(u64, u32)>,
}

impl Demux {
    /// The slot whose tuple has this `hash` and for which `is_it` says so.
    pub fn find(&self, hash: u64, mut is_it: impl FnMut(u32) -> bool) -> Option<u32> {
        self.table.find(hash, |entry| entry.0 == hash && is_it(entry.1)).map(|entry| entry.1)
    }

    /// Adds a slot under its tuple's hash.
    pub fn insert(&mut self, hash: u64, slot: u32) {
        self.table.insert_unique(hash, (hash, slot), |entry| entry.0);
    }

    /// Takes a slot out; false if it was not in.
    pub fn remove(&mut self, hash: u64, slot: u32) -> bool {
        self.table
            .find_entry(hash, |entry| *entry == (hash, slot))
            .map(hashbrown::hash_table::OccupiedEntry::remove)
            .is_ok()
    }

    /// Slots in the table.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tuple(local: &str, remote: &str, ports: (u16, u16)) -> Tuple {
        Tuple::new((local.parse().unwrap(), ports.0), (remote.parse().unwrap(), ports.1))
    }

    #[test]
    fn every_part_of_the_tuple_and_the_key_count() {
        let hasher = TupleHasher::new(&[1; 32]);
        let base = tuple("10.0.0.1", "10.0.0.2", (80, 1000));
        let others = [
            tuple("10.0.0.3", "10.0.0.2", (80, 1000)),
            tuple("10.0.0.1", "10.0.0.3", (80, 1000)),
            tuple("10.0.0.2", "10.0.0.1", (80, 1000)),
            tuple("10.0.0.1", "10.0.0.2", (81, 1000)),
            tuple("10.0.0.1", "10.0.0.2", (1000, 80)),
            tuple("fd00::1", "fd00::2", (80, 1000)),
        ];
        assert!(others.iter().all(|other| hasher.hash(other) != hasher.hash(&base)));
        assert_ne!(TupleHasher::new(&[2; 32]).hash(&base), hasher.hash(&base));
    }

    #[test]
    fn slots_are_found_until_they_are_removed() {
        let mut demux = Demux::default();
        demux.insert(7, 1);
        demux.insert(7, 2);
        assert_eq!(demux.find(7, |slot| slot == 2), Some(2));
        assert!(demux.remove(7, 2));
        assert!(!demux.remove(7, 2));
        assert_eq!(demux.find(7, |slot| slot == 2), None);
        assert_eq!(demux.len(), 1);
    }
}
