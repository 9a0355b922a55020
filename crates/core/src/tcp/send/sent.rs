//! When each piece of what is in flight was sent: the source of RTT samples.

use crate::tcp::Seq;
use crate::tcp::queue::Queue;
use crate::time::Instant;

/// Records kept at most; beyond it the newest two are one, and only sampling gets coarser.
const RECORDS_MAX: usize = 4096;

/// One transmission: everything up to `end` from the record before.
#[derive(Clone, Copy, Debug)]
struct Sent {
    end: Seq,
    at: Instant,
    /// The timestamp it carried, once sent again: tells which of the two was acknowledged.
    stamp: u32,
    again: bool,
}

/// The transmissions in flight, oldest first.
#[derive(Debug, Default)]
pub struct SentQueue {
    records: Queue<Sent>,
}

impl SentQueue {
    /// New data up to `end` was sent at `at`.
    pub fn on_sent(&mut self, end: Seq, at: Instant) {
        if self.records.len() >= RECORDS_MAX {
            self.records.pop_back();
        }
        self.records.push_back(Sent { end, at, stamp: 0, again: false });
    }

    /// The bytes from `start` up to `end` were sent again, with the timestamp `stamp`.
    pub fn on_sent_again(&mut self, start: Seq, end: Seq, at: Instant, stamp: u32) {
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

    /// When the oldest of what is in flight was sent last.
    pub fn oldest(&self) -> Option<Instant> {
        self.records.front().map(|sent| sent.at)
    }

    /// Everything before `ack` is acknowledged by a segment that echoes the timestamp `echo`.
    /// Returns when the newest of it was sent, if that tells the RTT: it was sent once, or the echo
    /// shows that it was the last transmission that arrived (RFC 6298 §3).
    #[inline]
    pub fn on_ack(&mut self, ack: Seq, echo: Option<u32>) -> Option<Instant> {
        let oldest = *self.records.front().filter(|sent| sent.end.at_or_before(ack))?;
        if self.records.len() > 1 || oldest.again {
            return self.take_before(ack, echo);
        }
        self.records.pop_front();
        Some(oldest.at)
    }

    fn take_before(&mut self, ack: Seq, echo: Option<u32>) -> Option<Instant> {
        let mut newest = None;
        let mut again: Option<Sent> = None;
        while self.records.front().is_some_and(|sent| sent.end.at_or_before(ack)) {
            newest = self.records.pop_front();
            again = newest.filter(|sent| sent.again).or(again);
        }
        let sent = match again {
            None => newest?,
            Some(sent) => {
                let echo = echo?;
                (echo.wrapping_sub(sent.stamp) as i32 >= 0).then_some(sent)?
            }
        };
        Some(sent.at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
