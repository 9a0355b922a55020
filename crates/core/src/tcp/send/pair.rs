//! The rate of the narrowest link, from the spacing of acknowledgements: packet pair, which only a
//! fine measurement clock makes possible (Aron & Druschel 1999, §3; a clock of 1 ms cannot tell
//! apart rates above 4 Mbit/s with packets of 512 bytes).
//!
//! What leaves in one burst is spread by the narrowest link to its rate, and the acknowledgements
//! keep that spacing. Between two of them that belong to one burst, the bytes that the second
//! acknowledges, divided by the time between them, are that link's rate. Receivers that delay ACKs
//! do no harm: only what is really acknowledged counts, and the last segment of a burst, whose ACK
//! may have been delayed, does not. Nor does an ACK near a hole, since more has passed than it
//! covers while there is one, and less when it is filled; that the ACK just before it is such a one
//! only SACK blocks tell.

use alloc::boxed::Box;
use core::mem;

use crate::time::Instant;

/// The number of samples kept; the middle one counts.
const RECENT: usize = 3;

/// The estimator of one connection. 24 bytes.
#[derive(Clone, Debug)]
pub(crate) struct PacketPair {
    /// When the burst left to which the latest acknowledgement belongs.
    burst: Instant,
    acked_at: Instant,
    /// The rates that bursts have shown; not there before the first burst of several segments.
    rates: Option<Box<Rates>>,
}

/// In bytes a second.
#[derive(Clone, Copy, Debug, Default)]
struct Rates {
    /// 0: none yet.
    recent: [u64; RECENT],
    next: u8,
    estimate: u64,
}

impl Default for PacketPair {
    fn default() -> Self {
        PacketPair { burst: Instant::FAR_FUTURE, acked_at: Instant::ZERO, rates: None }
    }
}

impl PacketPair {
    /// True if it has no memory beside its own.
    pub(crate) fn owns_nothing(&self) -> bool {
        self.rates.is_none()
    }

    /// True if no rate has been seen yet.
    pub(crate) fn is_blank(&self) -> bool {
        self.rates.as_ref().is_none_or(|rates| rates.recent == [0; RECENT])
    }

    /// An acknowledgement arrived at `now`, by the device if it knows better, the newest of whose
    /// bytes left at `sent`, if they were sent once. When the one before it arrived, if that was of
    /// the same burst.
    pub(crate) fn on_ack(&mut self, sent: Option<Instant>, now: Instant) -> Option<Instant> {
        let previous = mem::replace(&mut self.acked_at, now);
        let burst = mem::replace(&mut self.burst, sent.unwrap_or(Instant::FAR_FUTURE));
        (sent == Some(burst)).then_some(previous)
    }

    /// `bytes` of one burst were acknowledged between `previous` and `now`, on a measurement clock
    /// with ticks of `tick_ns`. The caller reports only an ACK that was not delayed, and that
    /// covers all that has passed since the one before: more of the same burst is in flight, or two
    /// full segments were acknowledged, and nothing is missing.
    pub(crate) fn on_spaced(&mut self, bytes: u32, previous: Instant, now: Instant, tick_ns: u64) {
        let ticks = |at: Instant| at.as_nanos() / tick_ns.max(1);
        // A device's clock may have been set back in between.
        let spacing_ns = ticks(now).saturating_sub(ticks(previous)).saturating_mul(tick_ns);
        if spacing_ns == 0 {
            return;
        }
        self.rates.get_or_insert_default().add(u64::from(bytes) * 1_000_000_000 / spacing_ns);
    }

    /// Bytes a second through the narrowest link, payload alone; `None` before three samples.
    pub(crate) fn estimate(&self) -> Option<u64> {
        self.rates.as_ref().and_then(|rates| rates.estimate())
    }
}

impl Rates {
    fn add(&mut self, rate: u64) {
        self.recent[usize::from(self.next)] = rate;
        self.next = (self.next + 1) % RECENT as u8;
        let mut sorted = self.recent;
        sorted.sort_unstable();
        let middle = sorted[RECENT / 2];
        if self.estimate == 0 || middle == 0 {
            self.estimate = middle;
        } else {
            self.estimate = self.estimate - self.estimate / 8 + middle / 8;
        }
    }

    fn estimate(&self) -> Option<u64> {
        let enough = self.recent.iter().all(|rate| *rate > 0);
        (enough && self.estimate > 0).then_some(self.estimate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Duration;

    /// Two full segments, sent at `sent_ms`, are acknowledged at `at`.
    fn ack(pair: &mut PacketPair, sent_ms: u64, bytes: u32, at: Instant, tick_ns: u64) {
        if let Some(previous) = pair.on_ack(Some(Instant::from_millis(sent_ms)), at) {
            pair.on_spaced(bytes, previous, at, tick_ns);
        }
    }

    fn at(us: u64) -> Instant {
        Instant::ZERO + Duration::from_micros(us)
    }

    #[test]
    fn the_bytes_between_two_acks_of_a_burst_over_their_spacing() {
        let mut pair = PacketPair::default();
        for (number, us) in [100_000, 100_800, 101_600, 102_400].into_iter().enumerate() {
            assert_eq!(pair.estimate(), None, "after {number} ACKs");
            ack(&mut pair, 50, 1000, at(us), 1);
        }
        assert_eq!(pair.estimate(), Some(1_250_000));
    }

    #[test]
    fn segments_sent_apart_twice_or_acked_late_give_no_sample() {
        let mut pair = PacketPair::default();
        for number in 0..100 {
            ack(&mut pair, number, 1000, at(number * 1000), 1);
            assert_eq!(pair.on_ack(None, at(number * 1000 + 1)), None);
            // This one was late, and so it is not told.
            pair.on_ack(Some(Instant::from_millis(number)), at(number * 1000 + 2));
        }
        assert_eq!(pair.estimate(), None);
    }

    #[test]
    fn one_wild_sample_in_three_does_not_count() {
        let mut pair = PacketPair::default();
        let mut us = 0;
        for gap in [800, 800, 800, 8, 800, 800, 80_000, 800, 800, 800] {
            us += gap;
            ack(&mut pair, 1, 1000, at(us), 1);
        }
        assert_eq!(pair.estimate(), Some(1_250_000));
    }

    #[test]
    fn a_clock_of_a_millisecond_sees_whole_milliseconds() {
        let mut pair = PacketPair::default();
        for number in 0..100 {
            ack(&mut pair, 1, 1024, at(number * 819), 1_000_000);
        }
        // 10 Mbit/s: a pair of 512 bytes every 0.819 ms.
        let estimate = pair.estimate().unwrap();
        assert_eq!(estimate, 1_024_000, "a pair a tick, whatever the rate");
    }
}
