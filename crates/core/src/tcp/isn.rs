//! Initial sequence numbers and timestamp offsets (RFC 6528 §3; RFC 7323 §5.4).
//!
//! ```text
//!   ISN = M + F(local, remote, secret)        M: one tick every 4 µs
//! ```
//!
//! A stranger that does not know the secret cannot guess an ISN. For one pair of ends they only
//! grow, so that a new connection's numbers lie beyond those of the last. A timestamp offset is a
//! second such F and nothing else, so that it need not be remembered: a TIME-WAIT record asks
//! again.

use crate::flow::keyed::KeyedHash;
use crate::flow::{Seq, Tuple};
use crate::time::Instant;

/// M's tick, in ns (RFC 9293 §3.4.1).
const TICK_NS: u64 = 4_000;

/// The source of ISNs and timestamp offsets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IsnSource {
    /// Its low half is the F of the ISN, its high half the timestamp offset.
    ends: KeyedHash,
}

/// What a connection begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Beginning {
    /// Its ISN (RFC 9293 MUST-8, SHLD-1).
    pub isn: Seq,
    /// The offset of the timestamp clock.
    pub stamp_offset: u32,
}

impl IsnSource {
    /// The source that belongs to this secret.
    pub(crate) fn new(secret: &[u8; 32]) -> Self {
        IsnSource { ends: KeyedHash::new(secret, "isn and timestamp offset") }
    }

    /// What a connection between these ends that begins now begins with.
    pub(crate) fn begin(&self, now: Instant, tuple: &Tuple) -> Beginning {
        let ticks = (now.as_nanos() / TICK_NS) as u32;
        let ends = self.ends.of_tuple(tuple);
        Beginning { isn: Seq(ends as u32) + ticks, stamp_offset: (ends >> 32) as u32 }
    }

    /// What is added to the timestamp clock on connections between these ends. Always the same.
    pub(crate) fn timestamp_offset(&self, tuple: &Tuple) -> u32 {
        (self.ends.of_tuple(tuple) >> 32) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ends(port: u16) -> Tuple {
        Tuple::new(([10, 0, 0, 1].into(), 80), ([10, 0, 0, 2].into(), port))
    }

    #[test]
    fn ends_and_secrets_have_unrelated_numbers() {
        let (source, other) = (IsnSource::new(&[1; 32]), IsnSource::new(&[2; 32]));
        let now = Instant::from_millis(5);
        let (tuple, next) = (ends(1000), ends(1001));
        let turned = Tuple::new(
            (tuple.remote_ip(), tuple.remote_port()),
            (tuple.local_ip(), tuple.local_port()),
        );
        let isn = source.begin(now, &tuple).isn;
        assert_ne!(isn, source.begin(now, &next).isn);
        assert_ne!(isn, source.begin(now, &turned).isn);
        assert_ne!(isn, other.begin(now, &tuple).isn);
        let offset = source.timestamp_offset(&tuple);
        assert_ne!(offset, source.timestamp_offset(&next));
        assert_ne!(offset, other.timestamp_offset(&tuple));
        assert_ne!(offset, source.begin(Instant::ZERO, &tuple).isn.0);
        assert_eq!(offset, source.timestamp_offset(&tuple));
    }

    #[test]
    fn numbers_spread_over_the_whole_space() {
        let source = IsnSource::new(&[1; 32]);
        let mut seen = [0; 16];
        for port in 1..=1600 {
            let tuple = ends(port);
            seen[(source.begin(Instant::ZERO, &tuple).isn.0 >> 28) as usize] += 1;
        }
        assert!(seen.iter().all(|n| (50..150).contains(n)), "{seen:?}");
    }

    proptest! {
        #[test]
        fn one_pair_of_ends_sees_a_clock_of_4_us(ns in 0u64..1 << 50, later in 0u64..1 << 40) {
            let source = IsnSource::new(&[1; 32]);
            let tuple = ends(1);
            let at = |ns| source.begin(Instant::from_nanos(ns), &tuple).isn;
            let ticks = (ns + later) / TICK_NS - ns / TICK_NS;
            prop_assert_eq!(at(ns + later).since(at(ns)), ticks as u32);
        }
    }
}
