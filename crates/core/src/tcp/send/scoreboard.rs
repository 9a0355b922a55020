//! What the receiver has said it holds beyond SND.UNA (RFC 2018, RFC 6675 §3–4).
//!
//! ```text
//!   una                 lost_edge        highest
//!    │  lost   ####  lost  │   ####         │
//!    ▼         sacked      ▼  sacked        ▼
//!    ├─────────────────────┼────────────────┤ · · · nxt
//! ```
//!
//! Ranges are sorted and disjoint, so a block costs a binary search and a merge; their number is
//! bounded, and information beyond the bound is dropped, which is always safe (RFC 2018 §8).

use alloc::vec::Vec;

use crate::flow::Seq;
use crate::wire::options::SackBlock;

/// Ranges kept at most. A loss pattern that makes more is retransmitted a little too eagerly.
const RANGES_MAX: usize = 1024;

/// RFC 6675 §2: discontiguous SACKed ranges, or segments, above a hole that make it lost.
const DUP_THRESH: u32 = 3;

/// The sacked ranges of one connection.
#[derive(Debug, Default)]
pub(crate) struct Scoreboard {
    ranges: Vec<(Seq, Seq)>,
    sacked_bytes: u32,
}

impl Scoreboard {
    /// True if nothing is sacked.
    pub(crate) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Bytes sacked.
    pub(crate) fn sacked_bytes(&self) -> u32 {
        self.sacked_bytes
    }

    /// One past the highest byte sacked.
    pub(crate) fn highest(&self) -> Option<Seq> {
        self.ranges.last().map(|range| range.1)
    }

    /// Adds a block that lies within `una..nxt`; anything else is ignored (a D-SACK, RFC 2883, or
    /// nonsense). Returns how many bytes are newly sacked.
    pub(crate) fn on_block(&mut self, block: SackBlock, una: Seq, nxt: Seq) -> u32 {
        let (start, end) = (block.start, block.end);
        // Offsets from `una`: a block longer than half the space would pass for one behind it.
        let (from, to) = (start.since(una), end.since(una));
        // An ACK of a window probe's byte leaves `una` ahead of `nxt` for a moment.
        let flight = nxt.distance(una).max(0) as u32;
        if from == 0 || from >= to || to > flight {
            return 0;
        }
        let first = self.ranges.partition_point(|range| range.1.before(start));
        let last = self.ranges.partition_point(|range| range.0.at_or_before(end));
        if first == last && self.ranges.len() >= RANGES_MAX {
            return 0;
        }
        let touched = &self.ranges[first..last];
        let held: u32 = touched.iter().map(|range| range.1.since(range.0)).sum();
        let merged = match (touched.first(), touched.last()) {
            (Some(a), Some(b)) => (a.0.min(start), b.1.max(end)),
            _ => (start, end),
        };
        self.ranges.splice(first..last, [merged]);
        let gained = merged.1.since(merged.0) - held;
        self.sacked_bytes += gained;
        gained
    }

    /// Everything before `una` is acknowledged.
    pub(crate) fn advance(&mut self, una: Seq) {
        if !self.ranges.is_empty() {
            self.drop_before(una);
        }
    }

    fn drop_before(&mut self, una: Seq) {
        let gone = self.ranges.partition_point(|range| range.1.at_or_before(una));
        for range in self.ranges.drain(..gone) {
            self.sacked_bytes -= range.1.since(range.0);
        }
        if let Some(first) = self.ranges.first_mut().filter(|range| range.0.before(una)) {
            self.sacked_bytes -= una.since(first.0);
            first.0 = una;
        }
        if self.ranges.is_empty() {
            self.ranges = Vec::new();
        }
    }

    /// Forgets everything: after a timeout the receiver may have reneged (RFC 2018 §8).
    pub(crate) fn clear(&mut self) {
        self.ranges = Vec::new();
        self.sacked_bytes = 0;
    }

    /// RFC 6675 §4 IsLost, as an edge: what is not sacked below it is lost, because three
    /// discontiguous ranges, or more than two segments' bytes, are sacked above. `una` if nothing
    /// is.
    pub(crate) fn lost_edge(&self, una: Seq, mss: u32) -> Seq {
        let (mut ranges, mut bytes) = (0, 0u32);
        for range in self.ranges.iter().rev() {
            ranges += 1;
            bytes = bytes.saturating_add(range.1.since(range.0));
            if ranges >= DUP_THRESH || bytes > (DUP_THRESH - 1) * mss {
                return range.0;
            }
        }
        una
    }

    /// The first range of bytes at or after `from` and before `to` that is not sacked.
    pub(crate) fn first_hole(&self, from: Seq, to: Seq) -> Option<(Seq, Seq)> {
        let mut start = from;
        let index = self.ranges.partition_point(|range| range.1.at_or_before(from));
        let mut rest = self.ranges[index..].iter();
        let mut next = rest.next();
        if let Some(range) = next.filter(|range| range.0.at_or_before(start)) {
            start = range.1;
            next = rest.next();
        }
        let end = next.map_or(to, |range| range.0.min(to));
        start.before(end).then_some((start, end))
    }

    /// Bytes in `from..to` that are not sacked.
    pub(crate) fn unsacked_bytes(&self, from: Seq, to: Seq) -> u32 {
        if !from.before(to) {
            return 0;
        }
        let first = self.ranges.partition_point(|range| range.1.at_or_before(from));
        let sacked: u32 = self.ranges[first..]
            .iter()
            .take_while(|range| range.0.before(to))
            .map(|range| range.1.min(to).since(range.0.max(from)))
            .sum();
        to.since(from) - sacked
    }

    /// True if the byte at `seq` is sacked.
    pub(crate) fn contains(&self, seq: Seq) -> bool {
        let index = self.ranges.partition_point(|range| range.1.at_or_before(seq));
        self.ranges.get(index).is_some_and(|range| range.0.at_or_before(seq))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec;

    const MSS: u32 = 100;

    fn block(start: u32, end: u32) -> SackBlock {
        SackBlock { start: Seq(start), end: Seq(end) }
    }

    #[test]
    fn blocks_outside_the_flight_are_ignored() {
        let mut board = Scoreboard::default();
        let (una, nxt) = (Seq(1000), Seq(2000));
        let half = 1 << 31;
        for bad in [
            block(900, 1100),
            block(1000, 1100),
            block(1900, 2001),
            block(1500, 1500),
            block(1000 + half - 3, 1000 + half + 4000),
            block(1900, 1900 + half + 10),
            block(1900, 1800),
        ] {
            assert_eq!(board.on_block(bad, una, nxt), 0, "{bad:?}");
        }
        assert_eq!(board.on_block(block(2100, 2200), nxt + 1, nxt), 0, "a probe is acknowledged");
        assert_eq!(board.on_block(block(1001, 2000), una, nxt), 999);
    }

    #[test]
    fn a_hole_is_lost_under_three_ranges_or_more_than_two_segments() {
        let (una, nxt) = (Seq(0), Seq(10_000));
        let mut board = Scoreboard::default();
        board.on_block(block(100, 200), una, nxt);
        board.on_block(block(300, 400), una, nxt);
        assert_eq!(board.lost_edge(una, MSS), una);
        board.on_block(block(500, 501), una, nxt);
        assert_eq!(board.lost_edge(una, MSS), Seq(100));
        let mut board = Scoreboard::default();
        board.on_block(block(100, 300), una, nxt);
        assert_eq!(board.lost_edge(una, MSS), una, "two segments are not enough");
        board.on_block(block(300, 301), una, nxt);
        assert_eq!(board.lost_edge(una, MSS), Seq(100));
    }

    #[test]
    fn the_number_of_ranges_is_bounded() {
        let mut board = Scoreboard::default();
        for i in 0..RANGES_MAX as u32 {
            assert_eq!(board.on_block(block(i * 2 + 1, i * 2 + 2), Seq(0), Seq(1 << 20)), 1);
        }
        assert_eq!(board.on_block(block(9000, 9001), Seq(0), Seq(1 << 20)), 0);
        assert_eq!(board.on_block(block(1, 9001), Seq(0), Seq(1 << 20)), 9000 - 1024);
    }

    proptest! {
        #[test]
        fn agrees_with_a_bitmap(
            base: u32,
            blocks in proptest::collection::vec((1u32..400, 1u32..60), 0..40),
            advance in 0u32..400,
            from in 0u32..500,
            len in 0u32..500,
        ) {
            let (una, nxt) = (Seq(base), Seq(base) + 500);
            let mut board = Scoreboard::default();
            let mut bits = vec![false; 500];
            for (start, length) in blocks {
                let range = start as usize..(start + length) as usize;
                let fresh = bits[range.clone()].iter().filter(|b| !**b).count() as u32;
                let block = SackBlock { start: una + start, end: una + start + length };
                prop_assert_eq!(board.on_block(block, una, nxt), fresh);
                bits[range].fill(true);
            }
            board.advance(una + advance);
            bits[..advance as usize].fill(false);
            let count = |bits: &[bool]| bits.iter().filter(|b| **b).count() as u32;
            prop_assert_eq!(board.sacked_bytes(), count(&bits));
            let from = from.max(advance);
            let to = (from + len).min(500);
            let window = &bits[from as usize..to.max(from) as usize];
            prop_assert_eq!(
                board.unsacked_bytes(una + from, una + to),
                window.len() as u32 - count(window)
            );
            let hole = window.iter().position(|b| !b).map(|start| {
                let filled = window[start..].iter().position(|b| *b);
                let end = filled.map_or(window.len(), |n| start + n);
                (una + from + start as u32, una + from + end as u32)
            });
            prop_assert_eq!(board.first_hole(una + from, una + to), hole);
            if from < 500 {
                prop_assert_eq!(board.contains(una + from), bits[from as usize]);
            }
        }
    }
}
