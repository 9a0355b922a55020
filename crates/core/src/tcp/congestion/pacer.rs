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
    /// No rate is higher than this.
    most: u64,
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
    /// Marks hold the sender back at the least window: `most` is due to them.
    is_held: bool,
    /// Bytes that may leave beside all bursts: the initial window.
    credit: u32,
}

impl Pacer {
    /// The first burst may leave at once. No rate is to be higher than `most`.
    pub(crate) fn new(rate: u64, most: u64, mss: u32) -> Pacer {
        let mut pacer = Pacer {
            rate: 0,
            most,
            burst: 0,
            next: Instant::ZERO,
            began: Instant::FAR_FUTURE,
            left: 0,
            late_ns: 0,
            waits: false,
            is_filed: false,
            is_held: false,
            credit: 0,
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

    /// So many bytes may leave beside all bursts.
    pub(crate) fn set_credit(&mut self, bytes: u32) {
        self.credit = bytes;
    }

    /// From `now` on no rate is to be higher than `most`, and the rate is `rate`. If it is higher
    /// than before, the next burst does not wait as long as it had to.
    pub(crate) fn restart(&mut self, now: Instant, most: u64, rate: u64, mss: u32) {
        (self.most, self.is_held) = (most, false);
        self.set_rate(rate, mss);
        let latest = now.plus_nanos(span_ns(self.rate, self.burst));
        if latest < self.next {
            (self.next, self.is_filed) = (latest, false);
        }
    }

    /// The connection rests: the schedule may come to its entry meanwhile, and finds nobody.
    pub(crate) fn rest(&mut self) {
        self.is_filed = false;
    }

    /// A mark has come at a window of one segment, at `now`. The next segment leaves `rto_ns`
    /// later; each further mark doubles that, up to `longest_ns`.
    pub(crate) fn hold_back(&mut self, now: Instant, mss: u32, rto_ns: u64, longest_ns: u64) {
        let rate = |ns: u64| (u64::from(mss) * 1_000_000_000 / ns.max(1)).max(1);
        let next = if self.is_held { self.most / 2 } else { rate(rto_ns) };
        (self.most, self.is_held) = (next.max(rate(longest_ns)).min(self.most), true);
        self.set_rate(self.most, mss);
        (self.waits, self.began, self.left, self.credit) = (false, now, 0, 0);
        (self.next, self.is_filed) = (now.plus_nanos(span_ns(self.rate, mss)), false);
    }

    /// True if marks hold the sender back.
    pub(crate) fn is_held(&self) -> bool {
        self.is_held
    }

    /// The rate is another, in bytes a second.
    pub(crate) fn set_rate(&mut self, rate: u64, mss: u32) {
        self.rate = rate.min(self.most).max(1);
        self.burst = burst(self.rate, mss);
    }

    /// Bytes that may leave now.
    pub(crate) fn allowed(&self, now: Instant) -> u32 {
        let of_burst = if now == self.began {
            self.left
        } else if self.next <= now {
            self.burst.saturating_add(self.missed(now))
        } else {
            0
        };
        of_burst.saturating_add(self.credit)
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
        let on_credit = bytes.min(self.credit);
        self.credit -= on_credit;
        let bytes = bytes - on_credit;
        if bytes == 0 {
            return;
        }
        // However high the rate is, time must pass: it is what the next burst waits for.
        let span_ns = span_ns(self.rate, bytes).max(1);
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

/// Bytes of a burst at a rate, in bytes a second: C.send_quantum.
pub(super) fn burst(rate: u64, mss: u32) -> u32 {
    (rate / 1000).min(BURST_MAX).max(2 * u64::from(mss)) as u32
}

/// How long a rate takes for so many bytes.
fn span_ns(rate: u64, bytes: u32) -> u64 {
    (u128::from(bytes) * 1_000_000_000 / u128::from(rate)) as u64
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
        let burst = |rate| Pacer::new(rate, u64::MAX, MSS).burst();
        assert_eq!(burst(100_000), 2 * MSS);
        assert_eq!(burst(10_000_000), 10_000);
        assert_eq!(burst(1_000_000_000), 64 << 10);
    }

    #[test]
    fn no_rate_is_higher_than_the_most() {
        let mut pacer = Pacer::new(10_000_000, 4_000_000, MSS);
        assert_eq!((pacer.rate(), pacer.burst()), (4_000_000, 4000));
        pacer.restart(at(0), u64::MAX, 5_000_000, MSS);
        assert_eq!((pacer.rate(), pacer.burst()), (5_000_000, 5000));
        pacer.set_rate(0, MSS);
        assert_eq!(pacer.rate(), 1, "it goes on at any rate");
    }

    #[test]
    fn a_higher_rate_shortens_the_wait_for_the_next_burst() {
        let mut pacer = Pacer::new(1000, u64::MAX, MSS);
        pacer.on_sent(at(0), 2000);
        pacer.set_waiting(true);
        assert_eq!(pacer.take_entry(), Some(at(2_000_000)));
        pacer.restart(at(1000), u64::MAX, 1_000_000, MSS);
        assert_eq!(pacer.take_entry(), Some(at(3000)), "filed again");
        pacer.restart(at(1000), u64::MAX, 10, MSS);
        assert_eq!((pacer.due(at(1000)), pacer.take_entry()), (Some(at(3000)), None));
    }

    #[test]
    fn time_passes_between_bursts_at_any_rate() {
        let mut pacer = Pacer::new(u64::MAX, u64::MAX, MSS);
        let allowed = pacer.allowed(at(1));
        pacer.on_sent(at(1), allowed);
        assert_eq!((pacer.allowed(at(1)), pacer.due(at(1))), (0, Some(at(1).plus_nanos(1))));
    }

    #[test]
    fn a_mark_at_the_least_window_takes_the_burst_that_has_begun() {
        let mut pacer = Pacer::new(1_000_000, u64::MAX, MSS);
        pacer.on_sent(at(5), 1000);
        for timeouts in [1, 2, 4, 4] {
            pacer.hold_back(at(5), MSS, 100_000_000, 400_000_000);
            let due = at(5).plus_nanos(timeouts * 100_000_000);
            assert_eq!((pacer.allowed(at(5)), pacer.due(at(5))), (0, Some(due)));
        }
    }

    #[test]
    fn the_credit_leaves_beside_the_bursts() {
        let mut pacer = Pacer::new(1_000_000, u64::MAX, MSS);
        pacer.set_credit(10_000);
        assert_eq!(pacer.allowed(at(0)), 12_000);
        pacer.on_sent(at(0), 10_000);
        assert_eq!((pacer.allowed(at(0)), pacer.due(at(0))), (2000, None));
        pacer.on_sent(at(0), 2000);
        assert_eq!((pacer.allowed(at(0)), pacer.due(at(0))), (0, Some(at(2000))));
    }

    #[test]
    fn the_next_burst_leaves_when_the_rate_has_carried_this_one() {
        let mut pacer = Pacer::new(10_000_000, u64::MAX, MSS);
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
        let mut pacer = Pacer::new(10_000_000, u64::MAX, MSS);
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
        let mut pacer = Pacer::new(10_000_000, u64::MAX, MSS);
        pacer.on_sent(at(0), 10_000);
        let (none, next) = (None, Some(at(1000)));
        assert_eq!((pacer.awaited(), pacer.take_entry(), pacer.is_filed), (none, none, false));
        pacer.set_waiting(true);
        assert_eq!((pacer.awaited(), pacer.is_filed), (next, false));
        assert_eq!((pacer.take_entry(), pacer.is_filed), (next, true));
        assert_eq!((pacer.awaited(), pacer.take_entry()), (next, none), "it has one");
        pacer.set_waiting(false);
        assert_eq!((pacer.take_entry(), pacer.is_filed), (none, true), "it comes all the same");
        pacer.on_due();
        assert!(!pacer.is_filed);
    }

    #[test]
    fn a_sender_that_always_wakes_late_keeps_its_rate() {
        for (rate, late_us) in [(100_000, 1000), (6_250_000, 3000), (100_000_000, 4900)] {
            let mut pacer = Pacer::new(rate, u64::MAX, MSS);
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
