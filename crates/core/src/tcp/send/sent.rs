//! Remembers when each piece of what is in flight was sent: the source of RTT samples.

use core::mem;

use crate::flow::Seq;
use crate::flow::stamp::stamp_distance;
use crate::tcp::queue::Queue;
use crate::time::Instant;

/// Records kept at most; beyond it the newest two are one, and only sampling gets coarser.
const RECORDS_MAX: usize = 4096;

/// Segments that left together: everything up to `end` from the record before.
#[derive(Clone, Copy, Debug)]
struct Sent {
    /// The end of the first segment that is not acknowledged.
    first: Seq,
    /// The end of the last segment.
    end: Seq,
    /// How far apart their ends are.
    segment: u16,
    at: Instant,
    /// The timestamp it carried, once sent again, which is said of one segment alone: tells which
    /// of the two was acknowledged.
    stamp: u32,
    again: bool,
}

impl Sent {
    /// One segment.
    fn one(end: Seq, at: Instant) -> Sent {
        Sent { first: end, end, segment: 0, at, stamp: 0, again: false }
    }

    /// Its segments, a record each.
    fn each(self) -> impl Iterator<Item = Sent> {
        let count = self.end.since(self.first) / u32::from(self.segment).max(1);
        let ends = (0..=count).map(move |i| self.first + i * u32::from(self.segment));
        ends.map(move |end| Sent { first: end, end, ..self })
    }
}

/// The transmissions in flight, oldest first.
#[derive(Debug, Default)]
pub(crate) struct SentQueue {
    records: Queue<Sent>,
}

impl SentQueue {
    /// True if it has no memory: nothing is in flight.
    pub(crate) fn owns_nothing(&self) -> bool {
        self.records.is_empty()
    }

    /// New data up to `end` was sent at `at`.
    #[inline(always)]
    pub(crate) fn on_sent(&mut self, end: Seq, at: Instant) {
        if self.records.is_empty() {
            self.records.push_back(Sent::one(end, at));
        } else {
            self.push(Sent::one(end, at));
        }
    }

    /// Notes that so many segments of new data from `start` on, of `segment` bytes each, were sent
    /// at `at`.
    pub(crate) fn on_run_sent(&mut self, start: Seq, segment: u16, count: u32, at: Instant) {
        let (first, end) = (start + u32::from(segment), start + count * u32::from(segment));
        if count > 0 {
            self.push(Sent { first, segment, ..Sent::one(end, at) });
        }
    }

    fn push(&mut self, sent: Sent) {
        if self.records.len() >= RECORDS_MAX {
            self.records.pop_back();
        }
        self.records.push_back(sent);
    }

    /// The bytes from `start` up to `end` were sent again, with the timestamp `stamp`.
    pub(crate) fn on_sent_again(&mut self, start: Seq, end: Seq, at: Instant, stamp: u32) {
        self.divide(start, end);
        let first = self.records.partition_point(|sent| sent.end.at_or_before(start));
        let mut previous = start;
        for sent in self.records.iter_mut_from(first) {
            if previous.at_or_after(end) {
                break;
            }
            previous = sent.end;
            (sent.at, sent.stamp, sent.again) = (at, stamp, true);
        }
    }

    /// Gives each segment a record of its own, if not all between `start` and `end` have one.
    fn divide(&mut self, start: Seq, end: Seq) {
        let first = self.records.partition_point(|sent| sent.end.at_or_before(start));
        let mut begin = start;
        let overlapping = self.records.iter_from(first);
        let has_run = overlapping
            .take_while(|sent| mem::replace(&mut begin, sent.end).before(end))
            .any(|sent| sent.first != sent.end);
        if has_run {
            let records = mem::take(&mut self.records);
            records.iter_from(0).flat_map(|sent| sent.each()).for_each(|sent| self.push(sent));
        }
    }

    /// When the oldest of what is in flight was sent last.
    pub(crate) fn oldest(&self) -> Option<Instant> {
        self.records.front().map(|sent| sent.at)
    }

    /// Everything before `ack` is acknowledged by a segment that echoes the timestamp `echo`.
    /// Returns when the newest of it was sent, if that tells the RTT: it was sent once, or the echo
    /// shows that it was the last transmission that arrived (RFC 6298 §3).
    #[inline(always)]
    pub(crate) fn on_ack(&mut self, ack: Seq, echo: Option<u32>) -> Option<Instant> {
        // The usual case: all that is in flight left together, once.
        if let Queue::One(Sent { end, again: false, .. }) = self.records
            && end.at_or_before(ack)
        {
            return self.records.take_only().map(|sent| sent.at);
        }
        self.take_before(ack, echo)
    }

    fn take_before(&mut self, ack: Seq, echo: Option<u32>) -> Option<Instant> {
        let mut newest = None;
        let mut again: Option<Sent> = None;
        while let Some(sent) = self.records.get_mut(0).filter(|sent| sent.first.at_or_before(ack)) {
            newest = Some(*sent);
            again = newest.filter(|sent| sent.again).or(again);
            if sent.end.after(ack) {
                let more = ack.since(sent.first) / u32::from(sent.segment) + 1;
                sent.first += more * u32::from(sent.segment);
                break;
            }
            self.records.pop_front();
        }
        let sent = match again {
            None => newest?,
            Some(sent) => {
                let echo = echo?;
                (stamp_distance(echo, sent.stamp) >= 0).then_some(sent)?
            }
        };
        Some(sent.at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(ms: u64) -> Instant {
        Instant::from_millis(ms)
    }

    #[test]
    fn the_newest_segment_acknowledged_gives_the_sample() {
        let mut queue = SentQueue::default();
        queue.on_sent(Seq(100), at(0));
        queue.on_sent(Seq(200), at(5));
        assert_eq!(queue.on_ack(Seq(99), None), None);
        assert_eq!(queue.on_ack(Seq(200), None), Some(at(5)));
    }

    #[test]
    fn a_segment_sent_again_gives_none_unless_the_echo_tells_which() {
        let mut queue = SentQueue::default();
        let fill = |queue: &mut SentQueue| {
            queue.on_sent(Seq(100), at(0));
            queue.on_sent(Seq(200), at(0));
            queue.on_sent_again(Seq(0), Seq(100), at(50), 1050);
        };
        fill(&mut queue);
        assert_eq!(queue.on_ack(Seq(200), None), None, "Karn's rule");
        let mut queue = SentQueue::default();
        fill(&mut queue);
        assert_eq!(queue.on_ack(Seq(200), Some(1049)), None, "the first one arrived");
        let mut queue = SentQueue::default();
        fill(&mut queue);
        let sample = queue.on_ack(Seq(200), Some(1050));
        assert_eq!(sample, Some(at(50)));
    }

    #[test]
    fn the_number_of_records_is_bounded() {
        let mut queue = SentQueue::default();
        for i in 1..=RECORDS_MAX as u32 + 10 {
            queue.on_sent(Seq(i), at(u64::from(i)));
        }
        assert_eq!(queue.records.len(), RECORDS_MAX);
        assert!(queue.on_ack(Seq(RECORDS_MAX as u32 + 10), None).is_some());
    }

    proptest! {
        /// What happens, and when the stamps and times of sending again are later ones.
        #[test]
        fn a_run_is_as_good_as_a_record_for_each_segment(
            runs in proptest::collection::vec((1u32..6, 1u16..4), 1..6),
            steps in proptest::collection::vec((any::<bool>(), 0u32..40, 1u32..12), 0..12),
        ) {
            let (mut queue, mut plain) = (SentQueue::default(), SentQueue::default());
            let mut end = Seq(u32::MAX - 20);
            for (turn, (count, segment)) in runs.into_iter().enumerate() {
                queue.on_run_sent(end, segment, count, at(turn as u64));
                for _ in 0..count {
                    end += u32::from(segment);
                    plain.on_sent(end, at(turn as u64));
                }
            }
            let (mut una, mut now) = (Seq(u32::MAX - 20), 100);
            for (is_ack, by, len) in steps {
                now += 1;
                let to = una + by.min(end.since(una));
                if is_ack {
                    let echo = Some(now - len);
                    prop_assert_eq!(queue.on_ack(to, echo), plain.on_ack(to, echo));
                    prop_assert_eq!(queue.oldest(), plain.oldest());
                    una = to;
                } else {
                    let until = to + len.min(end.since(to));
                    queue.on_sent_again(to, until, at(now.into()), now);
                    plain.on_sent_again(to, until, at(now.into()), now);
                }
            }
        }
    }
}
