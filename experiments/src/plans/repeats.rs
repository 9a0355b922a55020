//! Finds needless retransmissions, by watching both ends of a cable; side B sends.

use std::collections::BTreeMap;

use lightwait_core::Instant;
use lightwait_core::flow::Seq;
use lightwait_core::wire::tcp::{Flags, Segment};
use lightwait_sim::{Passage, Side};

/// The data of one connection so far; numbers count from the SYN of side B.
#[derive(Debug, Default)]
struct Flow {
    first: Option<Seq>,
    /// Bytes that side A has, as ordered ranges with gaps between.
    arrived: Vec<(u32, u32)>,
    /// For each number, whether its first acknowledgement is lost.
    acked: BTreeMap<u32, bool>,
    /// The highest acknowledgement that has reached side B.
    told: u32,
    /// The last sending time of each segment, by its end.
    sent: BTreeMap<u32, Instant>,
    /// The ends of segments that were repeated before side A had sent their acknowledgement.
    awaited: Vec<u32>,
}

impl Flow {
    fn has(&self, begin: u32, end: u32) -> bool {
        self.arrived.iter().any(|(from, to)| *from <= begin && end <= *to)
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

/// Counts needless retransmissions of side B.
#[derive(Debug, Default)]
pub(super) struct Repeats {
    flows: BTreeMap<u16, Flow>,
    /// Milliseconds from a segment's sending to its retransmission.
    pub(super) sent_again_ms: Vec<f64>,
    /// Retransmissions of data that side A had.
    pub(super) repeated: u64,
    /// Those whose acknowledgement was not lost: a longer timeout would have seen it arrive.
    pub(super) spurious: u64,
    /// Those whose acknowledgement was lost: side B could not know better with any timeout.
    pub(super) unanswered: u64,
    /// Those that could not be acknowledged, since data before them was missing.
    pub(super) held: u64,
    /// Those whose acknowledgement had arrived already: no explanation for these.
    pub(super) needless: u64,
}

impl Repeats {
    /// A segment enters or leaves the cable.
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
        if !flow.has(begin, end) {
            return;
        }
        self.repeated += 1;
        if flow.told >= end {
            self.needless += 1;
        } else if !flow.has(1, end) {
            self.held += 1;
        } else if let Some((_, &is_lost)) = flow.acked.range(end..).next() {
            self.on_acked(is_lost);
        } else {
            flow.awaited.push(end);
        }
    }

    /// The fate of the first acknowledgement explains a repeat.
    fn on_acked(&mut self, is_lost: bool) {
        self.unanswered += u64::from(is_lost);
        self.spurious += u64::from(!is_lost);
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
        if passage.arrives {
            flow.told = flow.told.max(acked);
            return;
        }
        flow.acked.entry(acked).or_insert(passage.is_lost);
        let before = flow.awaited.len();
        flow.awaited.retain(|end| *end > acked);
        for _ in flow.awaited.len()..before {
            self.on_acked(passage.is_lost);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lightwait_core::wire::options::Options;

    const GOES_IN: Passage =
        Passage { now: Instant::ZERO, side: Side::A, arrives: false, is_lost: false };
    const COMES_OUT: Passage = Passage { arrives: true, ..GOES_IN };
    const LOST: Passage = Passage { is_lost: true, ..GOES_IN };

    /// One connection, passage by passage.
    struct Story {
        repeats: Repeats,
    }

    impl Story {
        fn new() -> Story {
            let mut story = Story { repeats: Repeats::default() };
            story.pass(0, Side::A, GOES_IN, Flags::SYN, 0, 0);
            story.pass(0, Side::B, GOES_IN, Flags::SYN | Flags::ACK, 0, 0);
            story
        }

        /// A segment from `from`; `at` is its number if side B sends it, else its acknowledgement.
        fn pass(&mut self, ms: u64, from: Side, how: Passage, flags: Flags, at: u32, len: usize) {
            let side = if how.arrives { from.other() } else { from };
            let passage = Passage { now: Instant::from_millis(ms), side, ..how };
            let from_b = from == Side::B;
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

        fn data(&mut self, ms: u64, how: Passage) {
            self.pass(ms, Side::B, how, Flags::ACK, 1, 1000);
        }

        fn ack(&mut self, ms: u64, how: Passage) {
            self.pass(ms, Side::A, how, Flags::ACK, 1001, 0);
        }

        /// The number of repeats, and of the spurious, unanswered, held and needless ones among
        /// them.
        fn found(&self) -> (u64, [u64; 4]) {
            let Repeats { repeated, spurious, unanswered, held, needless, .. } = self.repeats;
            (repeated, [spurious, unanswered, held, needless])
        }
    }

    #[test]
    fn sending_lost_data_again_is_not_in_vain() {
        let mut story = Story::new();
        story.data(1, LOST);
        story.data(300, GOES_IN);
        story.data(330, COMES_OUT);
        assert_eq!(story.found(), (0, [0; 4]));
        assert_eq!(story.repeats.sent_again_ms, [299.0]);
    }

    #[test]
    fn a_retransmission_while_its_ack_is_on_its_way_is_spurious() {
        let mut story = Story::new();
        story.data(1, GOES_IN);
        story.data(31, COMES_OUT);
        story.ack(180, GOES_IN);
        story.data(200, GOES_IN);
        story.ack(210, COMES_OUT);
        assert_eq!(story.found(), (1, [1, 0, 0, 0]));
    }

    #[test]
    fn sending_again_because_the_acknowledgement_was_lost_is_not() {
        let mut story = Story::new();
        story.data(1, GOES_IN);
        story.data(31, COMES_OUT);
        story.ack(31, LOST);
        story.data(200, GOES_IN);
        story.data(230, COMES_OUT);
        story.ack(230, GOES_IN);
        story.ack(260, COMES_OUT);
        assert_eq!(story.found(), (1, [0, 1, 0, 0]));
    }

    #[test]
    fn an_ack_lost_while_it_could_still_be_on_its_way_is_lost() {
        let mut story = Story::new();
        story.data(1, GOES_IN);
        story.data(31, COMES_OUT);
        story.ack(180, LOST);
        story.data(190, GOES_IN);
        assert_eq!(story.found(), (1, [0, 1, 0, 0]));
    }

    #[test]
    fn a_resend_during_a_delayed_ack_is_judged_by_the_outcome() {
        for (how, kinds) in [(GOES_IN, [1, 0, 0, 0]), (LOST, [0, 1, 0, 0])] {
            let mut story = Story::new();
            story.data(1, GOES_IN);
            story.data(31, COMES_OUT);
            story.data(150, GOES_IN);
            assert_eq!(story.found(), (1, [0; 4]));
            story.ack(180, how);
            story.ack(200, GOES_IN);
            assert_eq!(story.found(), (1, kinds));
        }
    }

    #[test]
    fn text_behind_a_hole_is_held_and_nothing_acknowledges_it() {
        let mut story = Story::new();
        for (ms, how) in [(1, GOES_IN), (31, COMES_OUT), (300, GOES_IN)] {
            story.pass(ms, Side::B, how, Flags::ACK, 1001, 1000);
        }
        assert_eq!(story.found(), (1, [0, 0, 1, 0]));
    }

    #[test]
    fn sending_again_what_was_acknowledged_is_explained_by_nothing() {
        let mut story = Story::new();
        story.data(1, GOES_IN);
        story.data(31, COMES_OUT);
        story.ack(31, LOST);
        story.ack(100, GOES_IN);
        story.ack(130, COMES_OUT);
        story.data(200, GOES_IN);
        assert_eq!(story.found(), (1, [0, 0, 0, 1]));
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
