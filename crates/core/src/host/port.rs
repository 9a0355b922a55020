//! Ephemeral ports: which one an active open takes (RFC 6056 §3.3.4, "double-hash").
//!
//! ```text
//!   port = first + (F(local, remote) + table[G(local, remote)]) mod size
//! ```
//!
//! F starts every destination at a place of its own that nobody outside can guess; the counter
//! walks on from there, so that a port comes up again for the same destination only after all the
//! others: its TIME-WAIT has had the most time to end. Destinations that share a counter only make
//! each other's steps larger.

use alloc::boxed::Box;

use super::keyed::KeyedHash;
use crate::tcp::Tuple;

/// Counters; a power of two.
const COUNTERS: usize = 1024;

/// Destinations whose hash is remembered; a power of two.
const RECENT: usize = 8;

/// Ports tried for one open. Beyond it the open fails, and the next goes on where it stopped.
pub const MAX_ATTEMPTS: u32 = 1024;

/// The ephemeral ports of one shard.
#[derive(Clone, Debug)]
pub struct Ports {
    first: u16,
    /// How many there are: at least one.
    size: u32,
    /// Its low half is F, its high half G.
    destination: KeyedHash,
    counters: Box<[u32; COUNTERS]>,
    /// Destinations and their hashes, the last one of each place: few are asked for in turn.
    recent: Box<[Option<(Tuple, u64)>; RECENT]>,
}

impl Ports {
    /// The ports from `first` to `last`, inclusive. Port 0 is no port, and at least one is left
    /// even if `last` is before `first`.
    pub fn new(first: u16, last: u16, secret: &[u8; 32]) -> Self {
        let first = first.max(1);
        Ports {
            first,
            size: u32::from(last.saturating_sub(first)) + 1,
            destination: KeyedHash::new(secret, "ports"),
            counters: Box::new([0; COUNTERS]),
            recent: Box::new([None; RECENT]),
        }
    }

    fn hash(&mut self, destination: Tuple) -> u64 {
        let ends = destination.local_words()[1] ^ destination.remote_words()[1];
        let recent = &mut self.recent[(ends ^ u64::from(destination.ports())) as usize % RECENT];
        match recent {
            Some((known, hash)) if *known == destination => *hash,
            _ => recent.insert((destination, self.destination.of_tuple(&destination))).1,
        }
    }

    /// A port of ours for `tuple`, whose own does not count, such that `in_use` says no of it;
    /// `None` if none was found in [`MAX_ATTEMPTS`].
    pub fn pick(&mut self, tuple: &Tuple, mut in_use: impl FnMut(u16) -> bool) -> Option<u16> {
        let hash = self.hash(tuple.with_local_port(0));
        let start = hash as u32 % self.size;
        let counter = (hash >> 32) as usize % COUNTERS;
        for _ in 0..self.size.min(MAX_ATTEMPTS) {
            let step = self.counters[counter];
            self.counters[counter] = (step + 1) % self.size;
            // Both terms are below 2^16.
            let port = self.first + ((start + step) % self.size) as u16;
            if !in_use(port) {
                return Some(port);
            }
        }
        None
    }

    /// True if the port is one of these.
    pub fn contains(&self, port: u16) -> bool {
        port.checked_sub(self.first).is_some_and(|offset| u32::from(offset) < self.size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn to(port: u16) -> Tuple {
        Tuple::new(([10, 0, 0, 1].into(), 0), ([10, 0, 0, 2].into(), port))
    }

    #[test]
    fn every_port_comes_up_once_before_any_comes_again() {
        let mut ports = Ports::new(50_000, 50_099, &[1; 32]);
        let picked: BTreeSet<u16> =
            (0..100).map(|_| ports.pick(&to(80), |_| false).unwrap()).collect();
        assert_eq!(picked.len(), 100);
        assert!(picked.iter().all(|port| ports.contains(*port)));
        assert_eq!((picked.first(), picked.last()), (Some(&50_000), Some(&50_099)));
        assert!(!ports.contains(49_999) && !ports.contains(50_100));
    }

    #[test]
    fn the_only_free_port_is_found_and_none_is_not() {
        let mut ports = Ports::new(1024, 1024 + MAX_ATTEMPTS as u16 - 1, &[1; 32]);
        assert_eq!(ports.pick(&to(80), |port| port != 1500), Some(1500));
        assert_eq!(ports.pick(&to(80), |_| true), None);
    }

    #[test]
    fn attempts_are_bounded_and_the_next_open_goes_on() {
        let mut ports = Ports::new(1024, 65_535, &[1; 32]);
        let mut tried = BTreeSet::new();
        for round in 1..=2 {
            let refuse = |port| {
                tried.insert(port);
                true
            };
            assert_eq!(ports.pick(&to(80), refuse), None);
            assert_eq!(tried.len(), round * MAX_ATTEMPTS as usize);
        }
    }

    #[test]
    fn destinations_and_secrets_start_elsewhere() {
        let first = |secret: u8, port| {
            let mut ports = Ports::new(1024, 65_535, &[secret; 32]);
            ports.pick(&to(port), |_| false).unwrap()
        };
        let starts: BTreeSet<u16> =
            (1..=50).flat_map(|port| [first(1, port), first(2, port)]).collect();
        assert!(starts.len() > 95, "{}", starts.len());
        assert_eq!(first(1, 80), first(1, 80));
    }

    #[test]
    fn a_range_of_one_port_and_a_reversed_one_work() {
        for (first, last) in [(5000, 5000), (5000, 4000)] {
            let mut ports = Ports::new(first, last, &[1; 32]);
            for _ in 0..3 {
                assert_eq!(ports.pick(&to(80), |_| false), Some(5000));
            }
        }
        let mut all = Ports::new(0, 65_535, &[1; 32]);
        assert!(!all.contains(0) && all.contains(1) && all.contains(65_535));
        assert!((0..1000).all(|_| all.pick(&to(80), |_| false) != Some(0)));
    }

    proptest! {
        #[test]
        fn what_is_picked_is_free_and_in_range(
            range: (u16, u16), port: u16, secret: u8, busy_below: u16,
        ) {
            let mut ports = Ports::new(range.0, range.1, &[secret; 32]);
            for _ in 0..20 {
                if let Some(picked) = ports.pick(&to(port), |port| port < busy_below) {
                    prop_assert!(ports.contains(picked) && picked >= busy_below);
                }
            }
        }
    }
}
