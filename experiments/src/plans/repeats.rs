//! Finds segments that were sent again in vain, by watching both ends of a cable; side B sends.

use std::collections::BTreeMap;

use lightwait_core::Instant;
use lightwait_core::tcp::Seq;
use lightwait_core::time::Duration;
use lightwait_core::wire::tcp::{Flags, Segment};
use lightwait_sim::{Passage, Side};

/// What one connection has brought so far; numbers count from the SYN of side B.
#[derive(Debug, Default)]
struct Flow {
    first: Option<Seq>,
    /// Bytes that side A has, as ranges in order with gaps between.
    arrived: Vec<(u32, u32)>,
    /// When side A first sent each acknowledgement.
    acked: BTreeMap<u32, Instant>,
    /// When each segment was last sent, by where it ends.
    sent: BTreeMap<u32, Instant>,
    /// Segments that were repeated: where they end, and when they left.
    repeated: Vec<(u32, Instant)>,
}

impl Flow {
    fn has(&self, begin: u32, end: u32) -> bool {
        self.arrived.iter().any(|(from, to)| *from <= begin && end <= *to)
    }

    /// When side A first sent an acknowledgement of what ends there.
    fn answered(&self, end: u32) -> Option<Instant> {
        self.acked.range(end..).map(|(_, at)| *at).min()
    }

    fn add(&mut self, begin: u32, end: u32) {
        let (mut begin, mut end) = (begin, end);
        self.arrived.retain(|(from, to)| {
            let apart = *to < begin || end < *from;
            if !apart {
                (begin, end) = (begin.min(*from), end.max(*to));
            }
            apart
        });
        self.arrived.push((begin, end));
    }
}

/// Counts segments of side B that were sent again in vain.
#[derive(Debug)]
pub(super) struct Repeats {
    /// How long a segment is on its way at most; what comes later was sent again.
    longest_way: Duration,
    flows: BTreeMap<u16, Flow>,
    /// Milliseconds from a segment's sending to when it was sent again.
    pub(super) sent_again_ms: Vec<f64>,
    /// Side A had all of it already.
    pub(super) repeated: u64,
    /// And its acknowledgement was not lost: whoever had waited for it would have seen it come.
    pub(super) spurious: u64,
    /// Or it was lost: nobody could have known, and no timer waits it out.
    pub(super) unanswered: u64,
    /// Or none could be sent, since something before it is missing.
    pub(super) held: u64,
}

impl Repeats {
    /// Over a path on which an acknowledgement is on its way so long at most.
    pub(super) fn new(longest_way: Duration) -> Repeats {
        Repeats {
            longest_way,
            flows: BTreeMap::new(),
            sent_again_ms: Vec::new(),
            repeated: 0,
            spurious: 0,
            unanswered: 0,
            held: 0,
        }
    }

    /// A segment goes in or comes out.
    pub(super) fn on_passage(&mut self, passage: Passage, segment: &Segment<'_>) {
        let from_b = (passage.side == Side::B) != passage.arrives;
        if from_b {
            self.on_data(passage, segment);
        } else {
            self.on_ack(passage, segment);
        }
    }

    fn on_data(&mut self, passage: Passage, segment: &Segment<'_>) {
        let flow = self.flows.entry(segment.destination_port).or_default();
        if segment.flags.contains(Flags::SYN) {
            flow.first = Some(segment.seq);
        }
        let Some(first) = flow.first.filter(|_| !segment.payload.is_empty()) else { return };
        let begin = segment.seq.since(first);
        let end = begin + segment.payload.len() as u32;
        if passage.arrives {
            return flow.add(begin, end);
        }
        let again = flow.sent.insert(end, passage.now);
        self.sent_again_ms.extend(again.map(|at| passage.now.since(at).as_secs_f64() * 1000.0));
        if flow.has(begin, end) {
            self.repeated += 1;
            flow.repeated.push((end, passage.now));
            let answered = flow.answered(end);
            let lost = answered.is_some_and(|at| passage.now.since(at) > self.longest_way);
            self.unanswered += u64::from(lost);
            self.held += u64::from(!flow.has(1, end));
        }
    }

    fn on_ack(&mut self, passage: Passage, segment: &Segment<'_>) {
        if segment.flags.contains(Flags::SYN) {
            if !passage.arrives {
                self.flows.insert(segment.source_port, Flow::default());
            }
            return;
        }
        let Some(flow) = self.flows.get_mut(&segment.source_port) else { return };
        let Some(first) = flow.first else { return };
        let acked = segment.ack.since(first);
        if !passage.arrives {
            flow.acked.entry(acked).or_insert(passage.now);
            return;
        }
        let Flow { acked: sent, repeated, .. } = flow;
        let before = repeated.len();
        repeated.retain(|(end, left)| {
            let first = sent.range(end..).map(|(_, at)| *at).min();
            let is_first = first.is_some_and(|at| passage.now.since(at) <= self.longest_way);
            !(*end <= acked && is_first && *left < passage.now)
        });
        self.spurious += (before - flow.repeated.len()) as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lightwait_core::wire::options::Options;

    /// One connection, passage by passage.
    struct Story {
        repeats: Repeats,
    }

    impl Story {
        fn new() -> Story {
            let mut story = Story { repeats: Repeats::new(Duration::from_millis(40)) };
            story.pass(0, Side::A, false, Flags::SYN, 0, 0);
            story.pass(0, Side::B, false, Flags::SYN | Flags::ACK, 0, 0);
            story
        }

        fn pass(&mut self, ms: u64, side: Side, arrives: bool, flags: Flags, at: u32, len: usize) {
            let passage = Passage { now: Instant::from_millis(ms), side, arrives };
            let from_b = (side == Side::B) != arrives;
            let (source_port, destination_port) = if from_b { (80, 9) } else { (9, 80) };
            let segment = Segment {
                source_port,
                destination_port,
                seq: Seq(if from_b { at } else { 0 }),
                ack: Seq(if from_b { 0 } else { at }),
                flags,
                window: 100,
                urgent: 0,
                options: Options::default(),
                payload: &[0; 1000][..len],
            };
            self.repeats.on_passage(passage, &segment);
        }

        fn data(&mut self, ms: u64, arrives: bool) {
            let side = if arrives { Side::A } else { Side::B };
            self.pass(ms, side, arrives, Flags::ACK, 1, 1000);
        }

        fn ack(&mut self, ms: u64, arrives: bool) {
            let side = if arrives { Side::B } else { Side::A };
            self.pass(ms, side, arrives, Flags::ACK, 1001, 0);
        }

        fn found(&self) -> (u64, u64) {
            (self.repeats.repeated, self.repeats.spurious)
        }
    }

    #[test]
    fn sending_lost_data_again_is_neither() {
        let mut story = Story::new();
        story.data(1, false);
        story.data(300, false);
        story.data(330, true);
        assert_eq!(story.found(), (0, 0));
        assert_eq!(story.repeats.sent_again_ms, [299.0]);
    }

    #[test]
    fn sending_again_while_the_acknowledgement_is_on_its_way_is_spurious() {
        let mut story = Story::new();
        story.data(1, false);
        story.data(31, true);
        story.ack(180, false);
        story.data(200, false);
        story.ack(210, true);
        assert_eq!(story.found(), (1, 1));
        assert_eq!((story.repeats.unanswered, story.repeats.held), (0, 0));
    }

    #[test]
    fn sending_again_because_the_acknowledgement_was_lost_is_not() {
        let mut story = Story::new();
        story.data(1, false);
        story.data(31, true);
        story.ack(31, false);
        story.data(200, false);
        story.data(230, true);
        story.ack(230, false);
        story.ack(260, true);
        assert_eq!(story.found(), (1, 0));
        assert_eq!((story.repeats.unanswered, story.repeats.held), (1, 0));
    }

    #[test]
    fn sending_again_while_the_acknowledgement_is_delayed_is_spurious_when_it_comes() {
        let mut story = Story::new();
        story.data(1, false);
        story.data(31, true);
        story.data(150, false);
        story.ack(180, false);
        story.ack(210, true);
        assert_eq!(story.found(), (1, 1));
        assert_eq!((story.repeats.unanswered, story.repeats.held), (0, 0));
    }

    #[test]
    fn what_lies_behind_a_hole_is_held_and_nothing_can_acknowledge_it() {
        let mut story = Story::new();
        for (ms, arrives) in [(1, false), (31, true), (300, false)] {
            let side = if arrives { Side::A } else { Side::B };
            story.pass(ms, side, arrives, Flags::ACK, 1001, 1000);
        }
        assert_eq!(story.found(), (1, 0));
        assert_eq!((story.repeats.unanswered, story.repeats.held), (0, 1));
    }

    #[test]
    fn ranges_join_where_they_meet() {
        let mut flow = Flow::default();
        flow.add(1, 100);
        flow.add(200, 300);
        assert!(flow.has(1, 100) && !flow.has(50, 150) && !flow.has(100, 200));
        flow.add(100, 200);
        assert!(flow.has(1, 300));
        assert_eq!(flow.arrived, [(1, 300)]);
    }
}
