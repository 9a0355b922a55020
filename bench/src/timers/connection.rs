//! The bench's connection: a block of two cache lines that the handling of a segment fetches
//! anyway.

use std::hint::black_box;

use lightwait_core::Instant;
use lightwait_core::rng::Rng;
use lightwait_core::tcp::timers::{Deadlines, Filed, Timer};

/// Deadlines are at least this far ahead, and at most [`SPREAD_MS`] more.
pub(super) const LEAST_MS: u64 = 200;
/// The spread of deadlines.
pub(super) const SPREAD_MS: u32 = 1000;

/// A connection. `K` is a scheme's key of its entry.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(super) struct Connection<K> {
    /// Segments handled, in the cache line that any segment touches.
    segments: u64,
    /// The distance of its deadlines.
    rto_ns: u64,
    spare: u64,
    /// The scheme's key of its entry.
    pub(super) key: K,
    pub(super) filed: Filed,
    /// The engine's fields for timers, which fill nearly all of the second line.
    pub(super) deadlines: Deadlines,
}

impl<K: Default> Connection<K> {
    fn new(rto_ns: u64) -> Self {
        Connection {
            segments: 0,
            rto_ns,
            spare: 0,
            key: K::default(),
            filed: Filed::default(),
            deadlines: Deadlines::default(),
        }
    }

    /// The work of a segment on a connection without timers: both lines are fetched, one is
    /// written, and the deadline is computed. This is subtracted.
    #[inline(always)]
    pub(super) fn touch(&mut self, now: Instant) -> Instant {
        self.segments += 1;
        black_box(self.deadlines.at(Timer::KeepAlive));
        Instant::from_nanos(black_box(now.as_nanos() + self.rto_ns))
    }
}

/// `count` connections, with deadlines spread evenly.
pub(super) fn connections<K: Default>(count: usize) -> Vec<Connection<K>> {
    let mut rng = Rng::from_seed(1);
    let mut rto_ns = || {
        let us = LEAST_MS * 1000 + u64::from(rng.below(SPREAD_MS * 1000));
        us * 1000
    };
    (0..count).map(|_| Connection::new(rto_ns())).collect()
}

/// All indices, in random order.
pub(super) fn random_order(count: usize) -> Vec<u32> {
    let mut rng = Rng::from_seed(2);
    let mut order: Vec<u32> = (0..count as u32).collect();
    for place in (1..count).rev() {
        order.swap(place, rng.below(place as u32 + 1) as usize);
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_two_cache_lines_whatever_its_key() {
        assert_eq!(size_of::<Connection<()>>(), 128);
        assert_eq!(size_of::<Connection<Option<tokio_util::time::delay_queue::Key>>>(), 128);
    }

    #[test]
    fn the_order_is_a_permutation_and_not_sorted() {
        let mut order = random_order(1000);
        assert!(!order.is_sorted());
        order.sort_unstable();
        assert!(order.iter().copied().eq(0..1000));
    }
}
