//! Which bytes beyond RCV.NXT have arrived (RFC 9293 §3.10.7.4, RFC 2018 §4).
//!
//! Ranges are sorted and disjoint and at least one byte apart; their number is bounded. A segment
//! costs a binary search and at most one shift of a bounded array, whatever arrives.

use alloc::vec::Vec;

use crate::flow::Seq;
use crate::wire::options::{SackBlock, SackBlocks};

/// Out-of-order ranges kept at most; a segment that would make one more is dropped.
pub(crate) const RANGES_MAX: usize = 1024;

/// The ranges beyond RCV.NXT of one connection.
#[derive(Debug, Default)]
pub(crate) struct Assembler {
    ranges: Vec<(Seq, Seq)>,
    /// A byte of each of the ranges changed last, latest first.
    recent: [Option<Seq>; 4],
}

impl Assembler {
    /// True if there is nothing out of order.
    pub(crate) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// True if `start..end` may be inserted: it joins a range, or there is room for one more.
    pub(crate) fn accepts(&self, start: Seq, end: Seq) -> bool {
        self.ranges.len() < RANGES_MAX || {
            let (first, last) = self.touching(start, end);
            first < last
        }
    }

    fn touching(&self, start: Seq, end: Seq) -> (usize, usize) {
        (
            self.ranges.partition_point(|range| range.1.before(start)),
            self.ranges.partition_point(|range| range.0.at_or_before(end)),
        )
    }

    /// The bytes `start..end` (not empty, accepted, beyond RCV.NXT) have arrived.
    pub(crate) fn insert(&mut self, start: Seq, end: Seq) {
        let (first, last) = self.touching(start, end);
        let merged = self.ranges[first..last]
            .iter()
            .fold((start, end), |all, range| (all.0.min(range.0), all.1.max(range.1)));
        self.ranges.splice(first..last, [merged]);
        self.note_recent(merged.0, merged.1);
    }

    fn note_recent(&mut self, start: Seq, end: Seq) {
        let len = end.since(start);
        let mut kept = [Some(start), None, None, None];
        let older = self.recent.iter().flatten().filter(|seq| !seq.within(start, len));
        for (slot, seq) in kept[1..].iter_mut().zip(older) {
            *slot = Some(*seq);
        }
        self.recent = kept;
    }

    /// RCV.NXT has come to `next`: takes out the range that it meets, and returns that range's end
    /// (or `next`).
    pub(crate) fn advance(&mut self, next: Seq) -> Seq {
        if self.is_empty() { next } else { self.take_out(next) }
    }

    fn take_out(&mut self, next: Seq) -> Seq {
        let met = self.ranges.partition_point(|range| range.0.at_or_before(next));
        let end = self.ranges[..met].last().map_or(next, |range| range.1.max(next));
        self.ranges.drain(..met);
        for seq in &mut self.recent {
            // The ranges of the latest entries are in order by now.
            *seq = seq.filter(|seq| seq.at_or_after(end));
        }
        if self.ranges.is_empty() {
            self.recent = [None; 4];
            if self.ranges.capacity() > 16 {
                self.ranges = Vec::new();
            }
        }
        end
    }

    /// True if all of `start..end` has arrived out of order.
    pub(crate) fn holds(&self, start: Seq, end: Seq) -> bool {
        let index = self.ranges.partition_point(|range| range.1.before(end));
        self.ranges
            .get(index)
            .is_some_and(|range| range.0.at_or_before(start) && end.at_or_before(range.1))
    }

    /// The first bytes of `start..end` that have arrived out of order, as one block.
    pub(crate) fn overlap(&self, start: Seq, end: Seq) -> Option<SackBlock> {
        let index = self.ranges.partition_point(|range| range.1.at_or_before(start));
        let range = self.ranges.get(index).filter(|range| range.0.before(end))?;
        Some(SackBlock { start: range.0.max(start), end: range.1.min(end) })
    }

    /// SACK blocks: the ranges that hold `first`, then the range changed last and so on, none twice
    /// (RFC 2018 §4).
    pub(crate) fn sack_blocks(&self, first: [Option<Seq>; 2], blocks: &mut SackBlocks) {
        if !self.ranges.is_empty() {
            self.push_sack_blocks(first, blocks);
        }
    }

    fn push_sack_blocks(&self, first: [Option<Seq>; 2], blocks: &mut SackBlocks) {
        let mut told = [None; 6];
        for (i, seq) in first.iter().chain(&self.recent).flatten().enumerate() {
            let index = self.ranges.partition_point(|range| range.1.at_or_before(*seq));
            let range = self.ranges.get(index).filter(|range| range.0.at_or_before(*seq));
            if let Some(&(start, end)) = range.filter(|range| !told.contains(&Some(range.0))) {
                told[i] = Some(start);
                blocks.push(SackBlock { start, end });
            }
        }
    }

    /// Forgets what lies at `end` and beyond.
    pub(crate) fn cut(&mut self, end: Seq) {
        self.ranges.retain_mut(|range| {
            range.1 = range.1.min(end);
            range.0.before(end)
        });
        for seq in &mut self.recent {
            *seq = seq.filter(|seq| seq.before(end));
        }
    }

    /// Forgets everything: the bytes are dropped (RFC 2018 §8 allows that).
    pub(crate) fn clear(&mut self) {
        *self = Assembler::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec;

    fn blocks(assembler: &Assembler) -> Vec<(u32, u32)> {
        let mut blocks = SackBlocks::default();
        assembler.sack_blocks([None; 2], &mut blocks);
        blocks.iter().map(|b| (b.start.0, b.end.0)).collect()
    }

    #[test]
    fn behind_a_cut_nothing_is_left_and_before_it_everything() {
        let mut assembler = Assembler::default();
        for start in [10u32, 30, 50] {
            assembler.insert(Seq(start), Seq(start + 10));
        }
        assembler.cut(Seq(60));
        assert_eq!(blocks(&assembler), [(50, 60), (30, 40), (10, 20)]);
        assembler.cut(Seq(35));
        assert_eq!(blocks(&assembler), [(30, 35), (10, 20)]);
        assembler.cut(Seq(30));
        assert_eq!(blocks(&assembler), [(10, 20)]);
        assert_eq!(assembler.advance(Seq(10)), Seq(20));
        assert!(assembler.is_empty());
    }

    #[test]
    fn the_first_block_holds_the_latest_segment() {
        let mut assembler = Assembler::default();
        for start in [10u32, 30, 50] {
            assembler.insert(Seq(start), Seq(start + 5));
        }
        assert_eq!(blocks(&assembler), [(50, 55), (30, 35), (10, 15)]);
        assembler.insert(Seq(15), Seq(20));
        assert_eq!(blocks(&assembler), [(10, 20), (50, 55), (30, 35)]);
        assembler.insert(Seq(20), Seq(50));
        assert_eq!(blocks(&assembler), [(10, 55)]);
    }

    #[test]
    fn what_is_asked_for_comes_first_and_none_comes_twice() {
        let mut assembler = Assembler::default();
        for start in [10u32, 30, 50] {
            assembler.insert(Seq(start), Seq(start + 5));
        }
        for (first, expected) in [
            ([None, Some(Seq(12))], [(10, 15), (50, 55), (30, 35)]),
            ([Some(Seq(30)), Some(Seq(12))], [(30, 35), (10, 15), (50, 55)]),
            ([Some(Seq(34)), Some(Seq(30))], [(30, 35), (50, 55), (10, 15)]),
            ([Some(Seq(9)), Some(Seq(15))], [(50, 55), (30, 35), (10, 15)]),
        ] {
            let mut blocks = SackBlocks::default();
            assembler.sack_blocks(first, &mut blocks);
            let told: Vec<_> = blocks.iter().map(|b| (b.start.0, b.end.0)).collect();
            assert_eq!(told, expected, "{first:?}");
        }
    }

    #[test]
    fn a_range_that_has_become_in_order_is_not_told_as_another() {
        let mut assembler = Assembler::default();
        assembler.insert(Seq(30), Seq(40));
        assembler.insert(Seq(10), Seq(20));
        assert_eq!(assembler.advance(Seq(10)), Seq(20));
        assert_eq!(blocks(&assembler), [(30, 40)]);
    }

    #[test]
    fn one_range_too_many_is_refused_and_a_join_is_not() {
        let mut assembler = Assembler::default();
        for i in 0..RANGES_MAX as u32 {
            let start = Seq(10 * i + 10);
            assert!(assembler.accepts(start, start + 5));
            assembler.insert(start, start + 5);
        }
        assert!(!assembler.accepts(Seq(100_000), Seq(100_005)));
        assert!(assembler.accepts(Seq(15), Seq(20)));
    }

    proptest! {
        #[test]
        fn agrees_with_a_bitmap(
            base: u32,
            inserts in proptest::collection::vec((1u32..300, 1u32..40), 1..60),
            next in 0u32..300,
        ) {
            let nxt = Seq(base);
            let mut assembler = Assembler::default();
            let mut bits = vec![false; 400];
            for (start, len) in inserts {
                let (a, b) = (nxt + start, nxt + start + len);
                let held = bits[start as usize..(start + len) as usize].iter().all(|b| *b);
                prop_assert_eq!(assembler.holds(a, b), held);
                assembler.insert(a, b);
                bits[start as usize..(start + len) as usize].fill(true);
            }
            let ranges = assembler.ranges.clone();
            prop_assert!(ranges.windows(2).all(|pair| pair[0].1.before(pair[1].0)));
            let total: u32 = ranges.iter().map(|r| r.1.since(r.0)).sum();
            prop_assert_eq!(total as usize, bits.iter().filter(|b| **b).count());
            for (start, end) in blocks(&assembler) {
                let covered = start.wrapping_sub(base) as usize..end.wrapping_sub(base) as usize;
                prop_assert!(bits[covered].iter().all(|b| *b));
            }
            let end = assembler.advance(nxt + next);
            let run = bits[next as usize..].iter().take_while(|b| **b).count();
            // A range that ended before `next` is passed over; one that meets it is taken.
            prop_assert_eq!(end, nxt + next + run as u32);
            prop_assert!(assembler.ranges.iter().all(|r| r.0.after(end)));
            let mut told = blocks(&assembler);
            prop_assert!(told.iter().all(|b| assembler.ranges.contains(&(Seq(b.0), Seq(b.1)))));
            told.sort_unstable();
            told.dedup();
            prop_assert_eq!(told.len(), blocks(&assembler).len(), "a block twice");
        }
    }
}
