//! Spaces what a connection sends by a rate (draft-ietf-ccwg-bbr §5.6.2 and §5.6.3).
//!
//! What leaves at once is a burst: what the rate carries in 1 ms, two segments at least. The next
//! one is due once the rate would have carried it. A sender that wakes late makes up for what it
//! missed, within bounds: else its rate would be too low by what the clock is late. It measures no
//! more of the path than it sends, so that it would take its own lateness for the path's rate, and
//! slow down further.

use crate::time::Instant;

/// The largest burst: what a device cuts in one go.
const BURST_MAX: u64 = 64 << 10;
/// So much lateness is made up for at most: a process may wait for the slice of another, of 3 ms in
/// Linux.
const LATE_MAX_NS: u64 = 5_000_000;

/// When the next burst may leave.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pacer {
    /// C.pacing_rate, bytes a second.
    rate: u64,
    /// C.send_quantum, bytes.
    burst: u32,
    /// C.next_send_time.
    next: Instant,
    /// When the burst began that may go on, and what is left of it.
    began: Instant,
    left: u32,
    /// How late bursts that were waited for have been: the mean, 1/8 for each.
    late_ns: u32,
    /// Something waits for the next burst.
    waits: bool,
    /// The shard's schedule has an entry for it.
    is_filed: bool,
}

impl Pacer {
    /// The first burst may leave at once.
    pub(crate) fn new(rate: u64, mss: u32) -> Pacer {
        let mut pacer = Pacer {
            rate: 0,
            burst: 0,
            next: Instant::ZERO,
            began: Instant::FAR_FUTURE,
            left: 0,
            late_ns: 0,
            waits: false,
            is_filed: false,
        };
        pacer.set_rate(rate, mss);
        pacer
    }

    /// Bytes a second.
    pub(crate) fn rate(&self) -> u64 {
        self.rate
    }

    /// Bytes of a burst.
    pub(crate) fn burst(&self) -> u32 {
        self.burst
    }

    /// How late bursts are in the mean.
    pub(crate) fn late_ns(&self) -> u32 {
        self.late_ns
    }

    /// The rate is another, in bytes a second.
    pub(crate) fn set_rate(&mut self, rate: u64, mss: u32) {
        self.rate = rate.max(1);
        self.burst = (self.rate / 1000).min(BURST_MAX).max(2 * u64::from(mss)) as u32;
    }

    /// Bytes that may leave now.
    pub(crate) fn allowed(&self, now: Instant) -> u32 {
        if now == self.began {
            self.left
        } else if self.next <= now {
            self.burst.saturating_add(self.missed(now))
        } else {
            0
        }
    }

    /// Bytes that the rate has carried since a burst was due that is waited for.
    fn missed(&self, now: Instant) -> u32 {
        let late_ns = if self.waits { now.nanos_since(self.next).min(LATE_MAX_NS) } else { 0 };
        volume(self.rate, late_ns)
    }

    /// When the next burst may leave, if that is later than `now`.
    pub(crate) fn due(&self, now: Instant) -> Option<Instant> {
        (self.next > now).then_some(self.next)
    }

    /// Whether something waits until the next burst may leave.
    pub(crate) fn set_waiting(&mut self, waits: bool) {
        self.waits = waits;
    }

    /// When the next burst may leave, if something waits for it.
    pub(crate) fn awaited(&self) -> Option<Instant> {
        self.waits.then_some(self.next)
    }

    /// True if the shard's schedule has an entry for it.
    pub(crate) fn is_filed(&self) -> bool {
        self.is_filed
    }

    /// When the next burst may leave, if something waits for it and no entry is filed: now one is.
    pub(crate) fn take_entry(&mut self) -> Option<Instant> {
        let is_new = self.waits && !self.is_filed;
        self.is_filed |= self.waits;
        is_new.then_some(self.next)
    }

    /// The schedule has come to the entry.
    pub(crate) fn on_due(&mut self) {
        self.is_filed = false;
    }

    /// So many bytes leave.
    pub(crate) fn on_sent(&mut self, now: Instant, bytes: u32) {
        let span_ns = (u128::from(bytes) * 1_000_000_000 / u128::from(self.rate)) as u64;
        if now == self.began {
            self.left = self.left.saturating_sub(bytes);
            self.next = self.next.plus_nanos(span_ns);
            return;
        }
        self.left = self.allowed(now).saturating_sub(bytes);
        let mut from = now.max(self.next);
        if self.waits {
            let late_ns = now.nanos_since(self.next);
            let late = late_ns.min(u64::from(u32::MAX)) as u32;
            self.late_ns = self.late_ns - self.late_ns / 8 + late / 8;
            self.waits = false;
            from = self.next.plus_nanos(late_ns.saturating_sub(LATE_MAX_NS));
        }
        self.began = now;
        self.next = from.plus_nanos(span_ns);
    }
}

/// What a rate carries in a time, bytes.
pub(super) fn volume(rate: u64, ns: u64) -> u32 {
    let bytes = u128::from(rate) * u128::from(ns) / 1_000_000_000;
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MSS: u32 = 1000;

    fn at(us: u64) -> Instant {
        Instant::from_nanos(us * 1000)
    }

    #[test]
    fn a_burst_is_a_millisecond_of_the_rate_two_segments_at_least() {
        let burst = |rate| Pacer::new(rate, MSS).burst();
        assert_eq!(burst(100_000), 2 * MSS);
        assert_eq!(burst(10_000_000), 10_000);
        assert_eq!(burst(1_000_000_000), 64 << 10);
    }

    #[test]
    fn the_next_burst_leaves_when_the_rate_has_carried_this_one() {
        let mut pacer = Pacer::new(10_000_000, MSS);
        assert_eq!(pacer.allowed(at(5)), 10_000);
        pacer.on_sent(at(5), 4000);
        assert_eq!(pacer.allowed(at(5)), 6000, "the burst goes on");
        pacer.on_sent(at(5), 6000);
        assert_eq!((pacer.allowed(at(5)), pacer.due(at(5))), (0, Some(at(1005))));
        assert_eq!((pacer.allowed(at(1004)), pacer.allowed(at(1005))), (0, 10_000));
        assert_eq!(pacer.due(at(1005)), None);
    }

    #[test]
    fn what_was_missed_is_made_up_for_if_the_sender_wakes_late() {
        let mut pacer = Pacer::new(10_000_000, MSS);
        pacer.on_sent(at(0), 10_000);
        pacer.set_waiting(true);
        assert_eq!(pacer.allowed(at(1200)), 12_000);
        pacer.on_sent(at(1200), 2000);
        pacer.on_sent(at(1200), 10_000);
        assert_eq!((pacer.allowed(at(1200)), pacer.due(at(1200))), (0, Some(at(2200))));
        assert_eq!(pacer.late_ns(), 200_000 / 8);
        pacer.set_waiting(true);
        assert_eq!(pacer.allowed(at(22_200)), 60_000, "of 5 ms at most");
        pacer.on_sent(at(22_200), 60_000);
        assert_eq!(pacer.due(at(22_200)), Some(at(23_200)));
        assert_eq!(pacer.late_ns(), 25_000 - 25_000 / 8 + 20_000_000 / 8);
        assert_eq!(pacer.take_entry(), None);
        // Nothing waited: there is nothing to make up for.
        assert_eq!(pacer.allowed(at(29_000)), 10_000);
        pacer.on_sent(at(29_000), 10_000);
        assert_eq!(pacer.due(at(29_000)), Some(at(30_000)));
    }

    #[test]
    fn one_entry_is_filed_for_a_burst_that_is_waited_for() {
        let mut pacer = Pacer::new(10_000_000, MSS);
        pacer.on_sent(at(0), 10_000);
        let (none, next) = (None, Some(at(1000)));
        assert_eq!((pacer.awaited(), pacer.take_entry(), pacer.is_filed()), (none, none, false));
        pacer.set_waiting(true);
        assert_eq!((pacer.awaited(), pacer.is_filed()), (next, false));
        assert_eq!((pacer.take_entry(), pacer.is_filed()), (next, true));
        assert_eq!((pacer.awaited(), pacer.take_entry()), (next, none), "it has one");
        pacer.set_waiting(false);
        assert_eq!((pacer.take_entry(), pacer.is_filed()), (none, true), "it comes all the same");
        pacer.on_due();
        assert!(!pacer.is_filed());
    }

    #[test]
    fn a_sender_that_always_wakes_late_keeps_its_rate() {
        for (rate, late_us) in [(100_000, 1000), (6_250_000, 3000), (100_000_000, 4900)] {
            let mut pacer = Pacer::new(rate, MSS);
            let (mut now, mut sent) = (at(0), 0);
            while now < at(10_000_000) {
                let allowed = pacer.allowed(now);
                pacer.on_sent(now, allowed);
                sent += u64::from(allowed);
                pacer.set_waiting(true);
                now = pacer.due(now).unwrap().plus_nanos(late_us * 1000);
            }
            let mean = sent as f64 / 10.0 / rate as f64;
            assert!((0.98..1.05).contains(&mean), "{rate} late by {late_us} us: {mean:.3}");
        }
    }
}
