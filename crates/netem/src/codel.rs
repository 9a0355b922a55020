//! CoDel decides which packets leave a queue and which are dropped, or marked, after too long a
//! wait (RFC 8289).
//!
//! The structure and the names are those of the RFC's pseudocode (§5), so that the two can be
//! compared line by line.

use lightwait_core::Instant;
use lightwait_core::time::as_nanos;

use crate::discipline::Judged;
use crate::queue::{Queue, Waiting};
use crate::{CodelConfig, frame};

/// CoDel's state.
#[derive(Clone, Debug)]
pub(crate) struct Codel {
    target_ns: u64,
    interval_ns: u64,
    /// Marks packets whose ends use ECN, in place of dropping them.
    ecn: bool,
    /// The time at which packets will have waited longer than the target for an interval; `None` if
    /// they do not.
    first_above_time: Option<Instant>,
    dropping: bool,
    drop_next: Instant,
    /// Packets dropped since it entered the dropping state.
    count: u32,
    /// `count` at the last entry.
    last_count: u32,
    /// Bytes of the largest packet so far.
    max_packet: usize,
}

/// The result of the RFC's `dodequeue`.
struct Dequeued {
    waiting: Option<Waiting>,
    ok_to_drop: bool,
}

impl Codel {
    pub(crate) fn new(config: CodelConfig) -> Self {
        Codel {
            target_ns: as_nanos(config.target),
            interval_ns: as_nanos(config.interval).max(1),
            ecn: config.ecn,
            first_above_time: None,
            dropping: false,
            drop_next: Instant::ZERO,
            count: 0,
            last_count: 0,
            max_packet: 0,
        }
    }

    /// Returns the next packet to send at `now`, and notes those that are dropped before it, or
    /// marked (`deque`, RFC 8289 §5.5).
    pub(crate) fn dequeue(
        &mut self,
        now: Instant,
        queue: &mut Queue,
        judged: &mut Judged,
    ) -> Option<Waiting> {
        let mut head = self.dodequeue(now, queue);
        if self.dropping {
            if !head.ok_to_drop {
                self.dropping = false;
            }
            while self.dropping && now >= self.drop_next {
                self.count += 1;
                if self.marks(&mut head, judged) {
                    self.drop_next = self.control_law(self.drop_next, self.count);
                    break;
                }
                judged.dropped.extend(head.waiting.map(|waiting| waiting.packet));
                head = self.dodequeue(now, queue);
                if head.ok_to_drop {
                    self.drop_next = self.control_law(self.drop_next, self.count);
                } else {
                    self.dropping = false;
                }
            }
        } else if head.ok_to_drop {
            if !self.marks(&mut head, judged) {
                judged.dropped.extend(head.waiting.map(|waiting| waiting.packet));
                head = self.dodequeue(now, queue);
            }
            self.dropping = true;
            // If the last dropping state is recent, start from the rate that held the queue down
            // then.
            let delta = self.count - self.last_count;
            let was_recent = now.nanos_since(self.drop_next) < 16 * self.interval_ns;
            self.count = if delta > 1 && was_recent { delta } else { 1 };
            self.drop_next = self.control_law(now, self.count);
            self.last_count = self.count;
        }
        head.waiting
    }

    /// Marks the packet that would be dropped, if its ends use ECN.
    fn marks(&self, head: &mut Dequeued, judged: &mut Judged) -> bool {
        let packet = head.waiting.as_mut().filter(|_| self.ecn);
        let is_marked = packet.is_some_and(|waiting| frame::mark(&mut waiting.packet));
        judged.marked += u64::from(is_marked);
        is_marked
    }

    /// Removes the next packet, and reports whether packets have waited too long for an interval
    /// (RFC 8289 §5.6).
    fn dodequeue(&mut self, now: Instant, queue: &mut Queue) -> Dequeued {
        let Some(waiting) = queue.pop() else {
            self.first_above_time = None;
            return Dequeued { waiting: None, ok_to_drop: false };
        };
        self.max_packet = self.max_packet.max(waiting.packet.len());
        let sojourn_ns = now.nanos_since(waiting.entered);
        let mut ok_to_drop = false;
        if sojourn_ns < self.target_ns || queue.bytes() <= self.max_packet {
            self.first_above_time = None;
        } else {
            let above = now.plus_nanos(self.interval_ns);
            ok_to_drop = now >= *self.first_above_time.get_or_insert(above);
        }
        Dequeued { waiting: Some(waiting), ok_to_drop }
    }

    /// `t + interval / sqrt(count)` (RFC 8289 §5.3).
    fn control_law(&self, t: Instant, count: u32) -> Instant {
        let squared = u128::from(self.interval_ns).pow(2) / u128::from(count.max(1));
        t.plus_nanos(squared.isqrt() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Packet;
    use crate::frame::tests::ipv4;
    use alloc::vec::Vec;
    use lightwait_core::time::Duration;

    const MS: u64 = 1_000_000;

    fn at_ms(ms: u64) -> Instant {
        Instant::from_millis(ms)
    }

    #[test]
    fn drops_come_closer_by_the_square_root_of_their_number() {
        let codel = Codel::new(CodelConfig::default());
        for (count, ns) in [(1, 100 * MS), (4, 50 * MS), (100, 10 * MS), (2, 70_710_678)] {
            assert_eq!(codel.control_law(at_ms(7), count), at_ms(7).plus_nanos(ns), "{count}");
        }
    }

    /// The times of the drops, in ms, in a standing queue: each packet has waited 20 ms, and one is
    /// sent each ms.
    fn drops(until_ms: u64, standing: impl Fn(u64) -> bool) -> Vec<u64> {
        let (mut codel, mut queue) = (Codel::new(CodelConfig::default()), Queue::default());
        let mut drops = Vec::new();
        for ms in 20..until_ms {
            let waits = if standing(ms) { 20 } else { 1 };
            if !standing(ms) {
                queue = Queue::default();
            }
            while queue.len() < 20 {
                let entered = at_ms(ms) - Duration::from_millis(waits);
                queue.push(Waiting { entered, packet: Packet::from([0; 1000]) });
            }
            let mut judged = Judged::default();
            assert!(codel.dequeue(at_ms(ms), &mut queue, &mut judged).is_some());
            drops.extend(judged.dropped.iter().map(|_| ms));
            if !standing(ms) {
                queue = Queue::default();
            }
        }
        drops
    }

    #[test]
    fn codel_drops_from_a_standing_queue_after_an_interval() {
        let drops = drops(600, |_| true);
        // The first packet is above the target at 20 ms; then one drop each 100/√1, 100/√2, 100/√3,
        // … ms.
        let mut expected = alloc::vec![120.0f64];
        let mut next = 220.0;
        for count in 2..20 {
            expected.push(next);
            next += 100.0 / f64::from(count).sqrt();
        }
        assert!(drops.len() > 6, "{drops:?}");
        for (found, expected) in drops.iter().zip(&expected) {
            assert_eq!(*found, expected.ceil() as u64, "{drops:?}");
        }
    }

    #[test]
    fn a_queue_that_empties_within_an_interval_loses_nothing() {
        // 90 ms of standing queue, then a packet that has waited less than the target.
        assert_eq!(drops(2000, |ms| ms % 91 != 0), []);
        assert_ne!(drops(2000, |ms| ms % 131 != 0), [], "longer than an interval");
    }

    #[test]
    fn dropping_goes_on_where_it_left_off_if_that_was_not_long_ago() {
        // A pause of 30 ms after a second of dropping, and of two seconds.
        let rate_after = |pause: u64| {
            let drops = drops(1500 + pause, |ms| !(1000..1000 + pause).contains(&ms));
            drops.iter().filter(|ms| **ms > 1000 + pause).count()
        };
        assert!(rate_after(30) > rate_after(2000), "{} {}", rate_after(30), rate_after(2000));
    }

    #[test]
    fn the_last_packet_is_never_dropped() {
        let (mut codel, mut queue) = (Codel::new(CodelConfig::default()), Queue::default());
        for ms in 0..1000 {
            queue.push(Waiting { entered: at_ms(ms), packet: Packet::from([0; 1000]) });
            let mut judged = Judged::default();
            assert!(codel.dequeue(at_ms(ms + 500), &mut queue, &mut judged).is_some());
            assert!(judged.dropped.is_empty());
        }
        assert!(codel.dequeue(at_ms(2000), &mut queue, &mut Judged::default()).is_none());
    }

    /// A standing queue of packets whose ends use ECN: each that would be dropped is marked, and
    /// leaves.
    #[test]
    fn what_would_be_dropped_is_marked_if_its_ends_use_ecn() {
        let run = |ecn, field| {
            let config = CodelConfig { ecn, ..CodelConfig::default() };
            let (mut codel, mut queue) = (Codel::new(config), Queue::default());
            let (mut judged, mut marked_at) = (Judged::default(), Vec::new());
            for ms in 20..600 {
                while queue.len() < 20 {
                    let entered = at_ms(ms) - Duration::from_millis(20);
                    queue.push(Waiting { entered, packet: ipv4(1, field, 1000) });
                }
                let before = judged.dropped.len() as u64 + judged.marked;
                assert!(codel.dequeue(at_ms(ms), &mut queue, &mut judged).is_some());
                if judged.dropped.len() as u64 + judged.marked > before {
                    marked_at.push(ms);
                }
            }
            (judged.dropped.len(), judged.marked as usize, marked_at)
        };
        let dropped = run(false, 2);
        assert_eq!((dropped.0 > 6, dropped.1), (true, 0));
        assert_eq!(run(true, 0), dropped, "ends that do not use it");
        let marked = run(true, 2);
        assert_eq!((marked.0, marked.1), (0, dropped.0));
        assert_eq!(marked.2, dropped.2, "at the same times");
    }
}
