//! When to acknowledge (RFC 9293 §3.8.6.3, RFC 5681 §4.2).
//!
//! Arriving segments only ask; [`emit`](crate::tcp::emit) answers once, when the whole batch has
//! been handled (RFC 9293 MUST-58, MUST-59). At once: for every second full-sized segment, for the
//! first segments of a connection, for anything out of order, for what fills a hole, for FIN.
//! Otherwise the ACK is delayed; there are three kinds of delay ([`AckDelay`]).
//!
//! Buckets (Mansley 2004, §5): requests fall into the bucket of the present interval of a grid, and
//! each bucket is emptied `ack.bucket_min` after its interval has ended.
//!
//! ```text
//!   grid     │   interval k   │   interval k+1 │           an interval: max - min
//!   requests │  a      b      │         c      │
//!   emptied                   ├─ min ─▶ a, b   ├─ min ─▶ c
//! ```
//!
//! An ACK waits from min (asked for at an interval's end) to max (at its beginning). Only whether
//! a bucket's counter is zero matters, and any ACK that leaves zeroes both. The connection keeps
//! only the time at which its first non-empty bucket is emptied. Mansley switches
//! and empties lazily, each by its own clock, which may drift apart; here is one fixed grid, and so
//! both bounds hold. Its phase is hashed per connection, or a million of them would acknowledge in
//! lockstep.

use crate::config::{AckDelay, TcpConfig};
use crate::flow::Seq;
use crate::tcp::timers::{Deadlines, Timer};
use crate::time::{Instant, as_nanos};

/// Duplicate ACKs owed at most between two turns.
pub(crate) const DUPLICATES_MAX: u8 = 64;

/// The acknowledgements that this end owes the peer.
#[derive(Clone, Copy, Debug)]
pub struct AckState {
    /// An ACK must leave at the end of this turn.
    pub now: bool,
    /// Further pure ACKs that must leave, one for each segment out of order.
    pub duplicates: u8,
    /// Segments to acknowledge at once before delaying begins.
    quick: u8,
    /// Bytes received in order since the last ACK left.
    unacked_bytes: u32,
    /// The largest segment seen: what "full-sized" means from this peer.
    full_bytes: u16,
    /// The place in an interval at which this connection's grid begins, as a fraction of 2^32.
    phase: u32,
    /// With buckets: how long after its interval each is emptied.
    emptied_after_ns: u32,
    /// When the present interval of the grid ends; found anew only when it is past.
    interval_end: Instant,
    /// RCV.NXT as last sent (RFC 7323's Last.ACK.sent).
    pub last_sent: Seq,
}

/// What is kept while nothing is owed. 8 bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AtRest {
    phase: u32,
    full_bytes: u16,
    quick: u8,
}

impl AtRest {
    /// The state again, of an end whose last ACK was of everything before `rcv_nxt`.
    pub(crate) fn state(&self, rcv_nxt: Seq) -> AckState {
        let full_bytes = self.full_bytes;
        AckState { full_bytes, ..AckState::new(self.quick, rcv_nxt, self.phase) }
    }
}

impl AckState {
    /// What must be kept while nothing is owed; `None` if something is. The present interval of the
    /// grid is found again when an ACK is asked for.
    pub(crate) fn at_rest(&self, rcv_nxt: Seq) -> Option<AtRest> {
        let AckState { phase, full_bytes, quick, .. } = *self;
        let is_even = !self.is_owed() && self.last_sent == rcv_nxt;
        is_even.then_some(AtRest { phase, full_bytes, quick })
    }

    /// At the start of a connection that has received nothing but the SYN.
    /// `phase`: any number that differs from connection to connection.
    pub fn new(quick: u8, rcv_nxt: Seq, phase: u32) -> Self {
        AckState {
            now: false,
            duplicates: 0,
            quick,
            unacked_bytes: 0,
            full_bytes: 0,
            phase,
            emptied_after_ns: 0,
            interval_end: Instant::ZERO,
            last_sent: rcv_nxt,
        }
    }

    /// True if an ACK must leave in this turn.
    pub fn is_due(&self) -> bool {
        self.now || self.duplicates > 0
    }

    /// Segments that are acknowledged at once from now on.
    pub fn quick(&self) -> u8 {
        self.quick
    }

    /// The next `quick` segments are acknowledged at once, and what is owed now too, if any is.
    pub(crate) fn set_quick(&mut self, quick: u8) {
        self.quick = quick;
        self.now |= quick > 0 && self.is_owed();
    }

    /// In-order data of `len` bytes, in segments of `segment` bytes, has arrived.
    #[inline(always)]
    pub fn on_data(
        &mut self,
        len: u32,
        segment: u16,
        now: Instant,
        config: &TcpConfig,
        deadlines: &mut Deadlines,
    ) {
        self.full_bytes = self.full_bytes.max(segment);
        self.unacked_bytes = self.unacked_bytes.saturating_add(len);
        if self.quick > 0 {
            self.quick -= 1;
            self.now = true;
        } else if self.unacked_bytes >= 2 * u32::from(self.full_bytes) {
            self.now = true;
        } else {
            self.request(now, config, deadlines);
        }
    }

    /// An ACK may wait: it leaves with the first segment that does, or when its delay is over.
    #[inline(always)]
    pub fn request(&mut self, now: Instant, config: &TcpConfig, deadlines: &mut Deadlines) {
        if deadlines.is_set(Timer::DelayedAck) {
            return;
        }
        if now < self.interval_end {
            let after_ns = u64::from(self.emptied_after_ns);
            let at = Instant::from_nanos(self.interval_end.as_nanos() + after_ns);
            return deadlines.set(Timer::DelayedAck, at);
        }
        self.request_first(now, config, deadlines);
    }

    /// The first request in an interval of the grid; and every one, without a grid.
    fn request_first(&mut self, now: Instant, config: &TcpConfig, deadlines: &mut Deadlines) {
        let at = match config.ack.delay {
            AckDelay::Buckets => self.switch(now, config) + config.ack.bucket_min,
            AckDelay::Timer => now + config.ack.timer,
            AckDelay::Tick => {
                let period = as_nanos(config.ack.timer).max(1);
                Instant::from_nanos((now.as_nanos() / period + 1).saturating_mul(period))
            }
        };
        if at > now {
            deadlines.set(Timer::DelayedAck, at);
        } else {
            self.now = true;
        }
    }

    /// Finds the interval of the grid that `now` lies in; returns when it ends.
    fn switch(&mut self, now: Instant, config: &TcpConfig) -> Instant {
        let length = as_nanos(config.ack.bucket_max.saturating_sub(config.ack.bucket_min)).max(1);
        let phase = ((u128::from(self.phase) * u128::from(length)) >> 32) as u64;
        let into = (now.as_nanos() + (length - phase)) % length;
        let end = Instant::from_nanos(now.as_nanos() + (length - into));
        // Four seconds fit. Longer delays are found anew for each request.
        if let Ok(after_ns) = u32::try_from(as_nanos(config.ack.bucket_min)) {
            (self.interval_end, self.emptied_after_ns) = (end, after_ns);
        }
        end
    }

    /// A segment beyond RCV.NXT has arrived: a duplicate ACK for it, at once.
    pub(crate) fn on_out_of_order(&mut self) {
        self.duplicates = (self.duplicates + 1).min(DUPLICATES_MAX);
    }

    /// RCV.NXT has moved: duplicates owed for the hole would now repeat the wrong number.
    pub(crate) fn on_advance(&mut self) {
        if self.duplicates > 0 {
            self.duplicates = 0;
            self.now = true;
        }
    }

    /// True if an ACK is owed, now or later: one must not be forgotten when the timer fires.
    pub(crate) fn is_owed(&self) -> bool {
        self.now || self.duplicates > 0 || self.unacked_bytes > 0
    }

    /// The largest segment seen, in bytes of payload; 0 before the first.
    pub(crate) fn full_bytes(&self) -> u16 {
        self.full_bytes
    }

    /// A segment with ACK = `rcv_nxt` has left.
    pub fn on_sent(&mut self, rcv_nxt: Seq, deadlines: &mut Deadlines) {
        self.now = false;
        self.unacked_bytes = 0;
        self.last_sent = rcv_nxt;
        deadlines.cancel(Timer::DelayedAck);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Duration;
    use proptest::prelude::*;

    /// When an ACK asked for at `now` leaves.
    fn due(ack: &mut AckState, now: Instant, config: &TcpConfig) -> Instant {
        let mut deadlines = Deadlines::default();
        ack.request(now, config, &mut deadlines);
        let due = deadlines.at(Timer::DelayedAck);
        ack.on_sent(Seq(0), &mut deadlines);
        due
    }

    fn config(delay: AckDelay) -> TcpConfig {
        TcpConfig::default().with(|tcp| tcp.ack.delay = delay)
    }

    #[test]
    fn a_timer_delays_all_alike_and_a_tick_by_its_periods_rest() {
        let mut ack = AckState::new(0, Seq(1), 7);
        let timer = config(AckDelay::Timer);
        assert_eq!(due(&mut ack, Instant::from_millis(130), &timer), Instant::from_millis(230));
        let tick = config(AckDelay::Tick).with(|tcp| tcp.ack.timer = Duration::from_millis(200));
        for (asked, leaves) in [(1, 200), (199, 200), (200, 400), (201, 400)] {
            let due = due(&mut ack, Instant::from_millis(asked), &tick);
            assert_eq!(due, Instant::from_millis(leaves));
        }
    }

    #[test]
    fn a_buckets_first_request_sets_the_time_and_later_ones_do_not() {
        let config = config(AckDelay::Buckets);
        let (mut ack, mut deadlines) = (AckState::new(0, Seq(1), 0), Deadlines::default());
        ack.request(Instant::from_millis(1010), &config, &mut deadlines);
        assert_eq!(deadlines.at(Timer::DelayedAck), Instant::from_millis(1150));
        ack.request(Instant::from_millis(1140), &config, &mut deadlines);
        assert_eq!(deadlines.at(Timer::DelayedAck), Instant::from_millis(1150));
        ack.on_sent(Seq(9), &mut deadlines);
        ack.request(Instant::from_millis(1140), &config, &mut deadlines);
        assert_eq!(deadlines.at(Timer::DelayedAck), Instant::from_millis(1250));
    }

    #[test]
    fn connections_are_spread_over_the_grid() {
        let config = config(AckDelay::Buckets);
        let now = Instant::from_millis(5000);
        let dues: std::collections::BTreeSet<Instant> = (0..100u32)
            .map(|n| due(&mut AckState::new(0, Seq(1), n * 42_949_672), now, &config))
            .collect();
        assert_eq!(dues.len(), 100);
    }

    #[test]
    fn the_mean_delay_under_random_arrivals_is_the_middle() {
        let config = config(AckDelay::Buckets);
        let mut rng = crate::rng::Rng::from_seed(3);
        let mut ack = AckState::new(0, Seq(1), 99);
        let (mut now, mut total) = (Instant::ZERO, Duration::ZERO);
        for _ in 0..20_000 {
            now = now + Duration::from_micros(u64::from(rng.below(400_000)));
            total += due(&mut ack, now, &config).since(now);
        }
        let mean = total / 20_000;
        assert!(mean.abs_diff(Duration::from_millis(100)) < Duration::from_millis(1), "{mean:?}");
    }

    proptest! {
        #[test]
        fn an_ack_in_a_bucket_waits_from_the_least_to_the_longest_delay(
            phase: u32,
            // Some longer than what is kept of them has room for.
            least in prop_oneof![0u64..200, 4_000u64..5_000],
            spread in 1u64..200,
            gaps in proptest::collection::vec(0u64..1_000_000_000, 1..50),
        ) {
            let (min, max) = (Duration::from_millis(least), Duration::from_millis(least + spread));
            let config = config(AckDelay::Buckets).with(|tcp| {
                (tcp.ack.bucket_min, tcp.ack.bucket_max) = (min, max);
            });
            let mut ack = AckState::new(0, Seq(1), phase);
            let mut now = Instant::ZERO;
            for gap in gaps {
                now = now + Duration::from_nanos(gap);
                let delay = due(&mut ack, now, &config).since(now);
                prop_assert!(min <= delay && delay <= max, "{delay:?}");
            }
        }
    }
}
