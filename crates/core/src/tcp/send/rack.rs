//! RACK: what is lost follows from when it left (RFC 8985 §6).
//!
//! ```text
//!       left at 5 ms   at 6 ms     at 7 ms      at 8 ms
//!   una ├────────────┼─────────┼─────────────┼───────────┤ nxt
//!       │    late    │  late   │ has arrived │ in flight │
//! ```
//!
//! Once what left at 7 ms has arrived, what left before is late. It is lost a round trip and the
//! reordering window after it left. A range that was sent again has left anew, so a retransmission
//! that is lost is found like any other loss. How long the window must be, the path shows by what
//! arrives out of order, and the peer by D-SACKs (RFC 2883), which tell of what was sent again in
//! vain.

use crate::flow::Seq;
use crate::flow::stamp::{stamp_at, stamp_distance};
use crate::time::{Duration, Instant};
use crate::wire::options::Timestamps;

/// When a range left last, and where it ends: of two that left together the later bytes left later
/// (RFC 8985 §6.2, RACK_sent_after).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Departure {
    /// When it left.
    pub at: Instant,
    /// One past its last byte.
    pub end: Seq,
}

impl Departure {
    /// True if it left before `other`, or is the same.
    pub(crate) fn is_before(self, other: Departure) -> bool {
        self.at < other.at || (self.at == other.at && self.end.at_or_before(other.end))
    }
}

/// How an ACK shows which transmission it answers.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Evidence {
    /// The timestamp that it echoes.
    pub echo: Option<u32>,
    /// What our timestamps add to the clock.
    pub offset: u32,
    /// By how much a retransmission's timestamp is older than its departure.
    pub backdating_ns: u64,
}

impl Evidence {
    /// Of an ACK with these timestamps, where ours have this `offset`.
    pub(crate) fn of(offset: Option<u32>, stamps: Option<Timestamps>) -> Evidence {
        let echo = offset.and(stamps).map(|stamps| stamps.echo);
        Evidence { echo, offset: offset.unwrap_or(0), backdating_ns: 0 }
    }

    /// True if what left again at `at` had arrived when the peer sent the ACK; `None` if the ACK
    /// does not tell.
    pub(crate) fn shows(&self, at: Instant) -> Option<bool> {
        self.shows_stamped(at - Duration::from_nanos(self.backdating_ns))
    }

    /// The same of what carried the timestamp of the time `at`.
    pub(crate) fn shows_stamped(&self, at: Instant) -> Option<bool> {
        Some(stamp_distance(self.echo?, stamp_at(at, self.offset)) >= 0)
    }
}

/// What an ACK delivers, gathered from its blocks and its number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct News {
    /// Which transmission it answers.
    pub evidence: Evidence,
    now: Instant,
    min_rtt_ns: u64,
    /// RACK.fack: one past the highest byte delivered before.
    forward: Seq,
    /// The delivered range that left last.
    pub(crate) latest: Option<Departure>,
    /// Something that was sent once has arrived behind something that left later.
    pub(crate) is_reordered: bool,
    /// How far that ended below the highest byte delivered before, at most.
    pub(crate) overtaken_bytes: u32,
    /// It is a duplicate ACK, after a timeout.
    pub(crate) is_repeated: bool,
}

impl News {
    /// Of an ACK that is heard at `now`, when `forward` is one past the highest byte delivered.
    pub(crate) fn new(evidence: Evidence, now: Instant, min_rtt_ns: u64, forward: Seq) -> News {
        News {
            evidence,
            now,
            min_rtt_ns,
            forward,
            latest: None,
            is_reordered: false,
            overtaken_bytes: 0,
            is_repeated: false,
        }
    }

    /// A range is acknowledged that left then, `again` or not. An ACK that echoes an earlier time
    /// answers what left first (RFC 8985 §6.2, step 2).
    pub(crate) fn note_acked(&mut self, departure: Departure, again: bool) {
        if !(again && self.evidence.shows(departure.at) == Some(false)) {
            self.note_sacked(departure, again);
        }
    }

    /// True if the ACK tells that it answers what left again at `at`. A retransmission dated
    /// back has the time of others: such an echo tells only if it comes late enough.
    pub(crate) fn answers(&self, at: Instant) -> bool {
        let is_doubtful = self.evidence.backdating_ns > 0 && self.is_too_soon(at);
        self.evidence.shows(at) == Some(true) && !is_doubtful
    }

    /// True if it cannot answer what left at `at`. The least RTT is a sample's, and may have a
    /// queue in it or a tick of a timer.
    fn is_too_soon(&self, at: Instant) -> bool {
        self.now.nanos_since(at) < self.min_rtt_ns - self.min_rtt_ns / 8
    }

    /// A range is delivered that left then, `again` or not. What left again tells nothing if its
    /// answer cannot have come so soon. The echo of a block's ACK is of what came in order before
    /// (RFC 7323 §4.3 (B)), and tells nothing of it; RFC 8985's pseudocode asks it all the same,
    /// and would learn of no retransmission before the hole below it is filled.
    pub(crate) fn note_sacked(&mut self, departure: Departure, again: bool) {
        let Departure { at, end } = departure;
        if at == Instant::FAR_FUTURE {
            return;
        }
        if !again && end.before(self.forward) {
            self.is_reordered = true;
            self.overtaken_bytes = self.overtaken_bytes.max(self.forward.since(end));
        }
        if again && self.is_too_soon(at) {
            return;
        }
        if self.latest.is_none_or(|latest| latest.is_before(departure)) {
            self.latest = Some(departure);
        }
    }
}

/// What is known of the latest delivery while something is missing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rack {
    /// RACK.xmit_ts and RACK.end_seq.
    latest: Option<Departure>,
    /// RACK.rtt: the round trip of what was delivered by the newest ACK.
    rtt_ns: u64,
    /// RACK.dsack_round: the round in which a D-SACK came ends here.
    dsack_round: Option<Seq>,
    /// When the next range is lost, if nothing is heard of it; [`Instant::FAR_FUTURE`]: none is
    /// late.
    pub due: Instant,
}

impl Default for Rack {
    fn default() -> Self {
        Rack { latest: None, rtt_ns: 0, dsack_round: None, due: Instant::FAR_FUTURE }
    }
}

impl Rack {
    /// Takes in what an ACK has delivered. Returns the round trip of that.
    pub(crate) fn on_news(&mut self, news: &News) -> Option<u64> {
        let latest = news.latest?;
        self.rtt_ns = news.now.nanos_since(latest.at);
        if self.latest.is_none_or(|before| before.is_before(latest)) {
            self.latest = Some(latest);
        }
        Some(self.rtt_ns)
    }

    /// A timeout was spurious, as an ACK with these `news` shows: what seemed the delivery of the
    /// retransmission was that of the first.
    pub(crate) fn on_spurious(&mut self, news: &News) {
        (self.latest, self.due) = (news.latest, Instant::FAR_FUTURE);
    }

    /// The latest delivery, and how long after its departure a range that left before it is lost.
    pub(crate) fn judgement(&self, window_ns: u64) -> Option<(Departure, u64)> {
        Some((self.latest?, self.rtt_ns.saturating_add(window_ns)))
    }

    /// How long after it left a range is taken for lost by a timeout (RFC 8985 §6.3), if nothing
    /// has been delivered lately that tells better than `srtt_ns`.
    pub(crate) fn wait_ns(&self, srtt_ns: u64, window_ns: u64) -> u64 {
        let rtt_ns = if self.rtt_ns == 0 { srtt_ns } else { self.rtt_ns };
        rtt_ns.saturating_add(window_ns)
    }

    /// An ACK with a D-SACK has come. True if it is the first of its round.
    pub(crate) fn on_dsack(&mut self, una: Seq, nxt: Seq) -> bool {
        let is_first = !self.has_dsack_round(una);
        if is_first {
            self.dsack_round = Some(nxt);
        }
        is_first
    }

    /// True if a D-SACK came in the round that is not over at `una`.
    pub(crate) fn has_dsack_round(&self, una: Seq) -> bool {
        self.dsack_round.is_some_and(|end| una.before(end))
    }
}

/// How much reordering the path has shown; it outlives the recoveries. 8 bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reordering {
    /// RACK.min_RTT: the least RTT of this epoch.
    min_rtt_ns: u32,
    /// RACK.reo_wnd_mult: quarters of the least RTT that the window has.
    quarters: u8,
    /// RACK.reo_wnd_persist: recoveries without a D-SACK until it has one quarter again.
    persist: u8,
    /// In which epoch the least RTT was found.
    epoch: u8,
    /// RACK.reordering_seen.
    pub seen: bool,
}

/// RFC 8985 §6.2, step 4.
const PERSIST_RECOVERIES: u8 = 16;
/// The least RTT is that of 2^38 ns, or 4.6 minutes: a path may become longer.
const EPOCH_SHIFT: u32 = 38;

impl Reordering {
    /// Nothing is known but whether there was any.
    pub(crate) fn new(seen: bool) -> Reordering {
        Reordering { min_rtt_ns: u32::MAX, quarters: 1, persist: 0, epoch: 0, seen }
    }

    /// A sample of the RTT has come.
    pub(crate) fn on_sample(&mut self, rtt_ns: u64, now: Instant) {
        let (rtt_ns, epoch) = (rtt_ns.min(u32::MAX.into()) as u32, epoch(now));
        if rtt_ns < self.min_rtt_ns || epoch != self.epoch {
            (self.min_rtt_ns, self.epoch) = (rtt_ns, epoch);
        }
    }

    /// The least RTT; 0 before the first sample.
    pub(crate) fn min_rtt_ns(&self) -> u64 {
        if self.min_rtt_ns == u32::MAX { 0 } else { self.min_rtt_ns.into() }
    }

    /// RACK.reo_wnd, where one is waited for; at most `srtt_ns`, if that is known.
    pub(crate) fn window_ns(&self, srtt_ns: u64) -> u64 {
        let most = if srtt_ns == 0 { u64::MAX } else { srtt_ns };
        (self.min_rtt_ns() * u64::from(self.quarters) / 4).min(most)
    }

    /// A round trip has brought a D-SACK: something was sent again too early.
    pub(crate) fn widen(&mut self) {
        self.quarters = self.quarters.saturating_add(1);
        self.persist = PERSIST_RECOVERIES;
    }

    /// A recovery is over.
    pub(crate) fn on_recovered(&mut self) {
        self.persist = self.persist.saturating_sub(1);
        if self.persist == 0 {
            self.quarters = 1;
        }
    }
}

fn epoch(now: Instant) -> u8 {
    (now.as_nanos() >> EPOCH_SHIFT) as u8
}

const _: () = assert!(size_of::<Reordering>() == 8);

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::from_millis(ms)
    }

    fn left(ms: u64, end: u32) -> Departure {
        Departure { at: at(ms), end: Seq(end) }
    }

    fn news(echo: Option<u32>) -> News {
        News::new(Evidence { echo, ..Evidence::default() }, at(100), 20_000_000, Seq(500))
    }

    #[test]
    fn the_delivery_that_left_last_counts_and_of_two_the_higher() {
        let mut news = news(None);
        for (ms, end) in [(50, 800), (60, 600), (60, 700), (60, 650), (10, 900)] {
            news.note_sacked(left(ms, end), false);
        }
        assert_eq!(news.latest, Some(left(60, 700)));
        let mut rack = Rack::default();
        assert_eq!((rack.judgement(5), rack.wait_ns(7, 5)), (None, 12), "nothing is delivered");
        assert_eq!(rack.on_news(&news), Some(40_000_000));
        assert_eq!(rack.judgement(5), Some((left(60, 700), 40_000_005)));
        assert_eq!(rack.wait_ns(7, 5), 40_000_005);
    }

    #[test]
    fn after_a_spurious_timeout_the_retransmission_has_not_arrived() {
        let mut rack = Rack::default();
        let mut again = news(None);
        again.note_acked(left(70, 600), true);
        rack.on_news(&again);
        let mut first = news(None);
        first.note_acked(left(10, 700), false);
        rack.on_news(&first);
        assert_eq!(rack.judgement(0), Some((left(70, 600), 90_000_000)));
        rack.on_spurious(&first);
        assert_eq!(rack.judgement(0), Some((left(10, 700), 90_000_000)));
    }

    #[test]
    fn what_left_again_tells_nothing_if_the_first_was_answered() {
        let latest = |ms, echo| {
            let [mut acked, mut sacked] = [news(echo); 2];
            acked.note_acked(left(ms, 600), true);
            sacked.note_sacked(left(ms, 600), true);
            [acked, sacked].map(|news| news.latest.is_some())
        };
        assert_eq!(latest(83, None), [false; 2], "the least RTT is 20 ms");
        assert_eq!(latest(82, None), [true; 2], "or a little less");
        let mut soonest = news(None);
        let at = at(82).plus_nanos(500_000);
        soonest.note_sacked(Departure { at, end: Seq(600) }, true);
        assert!(soonest.latest.is_some(), "by an eighth");
        assert_eq!(latest(50, Some(49)), [false, true], "what the ACK echoes");
        assert_eq!(latest(50, Some(50)), [true; 2]);
    }

    #[test]
    fn an_echo_is_of_our_clock_and_its_offset() {
        let stamps = Some(Timestamps { value: 9, echo: 1050 });
        let shows = |offset, ms| Evidence::of(offset, stamps).shows_stamped(at(ms));
        assert_eq!((shows(Some(1000), 50), shows(Some(1000), 51)), (Some(true), Some(false)));
        assert_eq!(shows(None, 50), None, "without timestamps of ours");
        assert_eq!(Evidence::of(Some(1000), None).shows(at(50)), None);
    }

    #[test]
    fn an_echo_of_what_was_dated_back_may_come_too_soon() {
        // The least RTT is 20 ms, and it is 100 ms.
        let answers = |ms, echo, backdating_ms: u64| {
            let mut news = news(echo);
            news.evidence.backdating_ns = backdating_ms * 1_000_000;
            news.answers(at(ms))
        };
        assert!(answers(50, Some(45), 5) && !answers(50, Some(44), 5));
        assert!(!answers(90, Some(90), 5), "the first may have had that time");
        assert!(answers(90, Some(90), 0) && !answers(90, Some(89), 0));
        assert!(!answers(50, None, 0) && !answers(50, None, 5));
    }

    #[test]
    fn only_what_was_sent_once_shows_reordering() {
        let seen = |end, again| {
            let mut news = news(None);
            news.note_acked(left(1, end), again);
            news.is_reordered
        };
        assert!(seen(499, false) && !seen(500, false) && !seen(499, true));
    }

    #[test]
    fn each_round_with_a_dsack_widens_the_window_up_to_srtt() {
        let mut reordering = Reordering::new(true);
        assert_eq!(reordering.window_ns(1_000_000), 0, "nothing is known of the RTT");
        reordering.on_sample(8000, at(1));
        reordering.on_sample(9000, at(2));
        assert_eq!(reordering.window_ns(10_000), 2000);
        reordering.widen();
        reordering.widen();
        assert_eq!((reordering.window_ns(10_000), reordering.window_ns(5000)), (6000, 5000));
        for _ in 1..PERSIST_RECOVERIES {
            reordering.on_recovered();
        }
        assert_eq!(reordering.window_ns(10_000), 6000, "15 recoveries later");
        reordering.on_recovered();
        assert_eq!(reordering.window_ns(10_000), 2000, "16 recoveries later");
    }

    #[test]
    fn the_least_rtt_is_that_of_the_last_minutes() {
        let mut reordering = Reordering::new(false);
        reordering.on_sample(10_000, at(1));
        reordering.on_sample(90_000, at(250_000));
        assert_eq!(reordering.min_rtt_ns(), 10_000);
        reordering.on_sample(90_000, at(280_000));
        assert_eq!(reordering.min_rtt_ns(), 90_000);
        reordering.on_sample(u64::MAX, at(600_000));
        assert_eq!(reordering.min_rtt_ns(), 0, "so long that it is not known");
    }

    #[test]
    fn a_round_of_dsacks_ends_with_what_was_in_flight() {
        let mut rack = Rack::default();
        assert!(rack.on_dsack(Seq(10), Seq(100)));
        assert!(!rack.on_dsack(Seq(99), Seq(300)));
        assert!(rack.on_dsack(Seq(100), Seq(300)));
    }
}
