//! Loss recovery: which bytes are lost, and which of them have been sent again.
//!
//! One picture serves fast recovery with SACK (RFC 6675), without it (NewReno, RFC 6582) and the
//! slow start after a timeout (RFC 6298 §5). What is not sacked below `lost_edge` is lost; below
//! `high_rxt` it has been sent again.
//!
//! ```text
//!   una        high_rxt        lost_edge            nxt
//!    │ sent again │ lost, waiting  │  still in flight │
//!    ▼            ▼                ▼                  ▼
//! ```
//!
//! A connection has one only from the first sign that something is missing (a block sacked, a
//! duplicate ACK, a timeout) until all of that is behind.

use alloc::boxed::Box;

use super::scoreboard::Scoreboard;
use crate::flow::Seq;

/// Why segments are being sent again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// They are not.
    #[default]
    Open,
    /// Duplicate ACKs or SACK blocks showed a hole.
    Fast,
    /// The retransmission timer fired.
    Timeout,
}

/// The recovery of one connection.
#[derive(Debug)]
pub(crate) struct Recovery {
    /// Why, if at all.
    pub mode: Mode,
    /// The first retransmission leaves whatever the window says (RFC 6675 §5 step 4.3).
    pub force: bool,
    /// The one rescue retransmission of a recovery is spent (RFC 6675 §4, NextSeg rule 4).
    rescued: bool,
    /// Recovery ends when this is acknowledged (RFC 6675's RecoveryPoint, RFC 6582's recover).
    pub point: Seq,
    /// Bytes below have been sent again, or are sacked.
    high_rxt: Seq,
    /// Bytes below are lost, unless sacked.
    pub lost_edge: Seq,
    /// The data that the receiver holds beyond SND.UNA.
    pub board: Scoreboard,
    /// Duplicate ACKs in a row.
    pub dup_acks: u32,
    /// What was in flight when the duplicates began: what limited transmit adds does not count
    /// towards the threshold (RFC 5681 §3.2 step 2).
    flight_before: u32,
}

impl Recovery {
    /// Nothing is missing yet; `una` is SND.UNA.
    pub(crate) fn new(una: Seq) -> Self {
        Recovery {
            mode: Mode::Open,
            force: false,
            rescued: false,
            point: una - 1,
            high_rxt: una,
            lost_edge: una,
            board: Scoreboard::default(),
            dup_acks: 0,
            flight_before: 0,
        }
    }

    /// What is kept with SND.UNA at `una` of the last recovery, which ended at `point`: nothing
    /// once more than that is acknowledged.
    pub(crate) fn after(point: Seq, una: Seq) -> Option<Box<Recovery>> {
        let is_behind = point.before(una);
        (!is_behind).then(|| Box::new(Recovery { point, ..Recovery::new(una) }))
    }

    /// True if nothing is missing, by what the receiver has reported.
    pub(crate) fn misses_nothing(&self) -> bool {
        self.mode == Mode::Open && self.board.is_empty() && self.dup_acks == 0
    }

    /// True if it says no more than a new one would.
    pub(crate) fn is_behind(&self, una: Seq) -> bool {
        self.misses_nothing() && self.point.before(una)
    }

    /// Starts recovering everything lost below `lost_edge`; ends when `nxt` is acknowledged.
    pub(crate) fn enter(&mut self, mode: Mode, una: Seq, lost_edge: Seq, nxt: Seq) {
        (self.mode, self.force, self.rescued) = (mode, true, false);
        (self.point, self.high_rxt, self.lost_edge) = (nxt, una, lost_edge);
    }

    /// True while segments are being sent again.
    pub(crate) fn is_active(&self) -> bool {
        self.mode != Mode::Open
    }

    /// A duplicate ACK has come, with `flight` bytes out.
    pub(crate) fn on_duplicate(&mut self, flight: u32) {
        if self.dup_acks == 0 {
            self.flight_before = flight;
        }
        self.dup_acks += 1;
    }

    /// What was in flight when the duplicates began, if there are any; else `flight`.
    pub(crate) fn flight_before(&self, flight: u32) -> u32 {
        if self.dup_acks > 0 { flight.min(self.flight_before) } else { flight }
    }

    /// SND.UNA has come to `una`. True if that ends the recovery.
    pub(crate) fn advance_to(&mut self, una: Seq) -> bool {
        if !self.is_active() {
            // The last recovery is behind; an old number would seem ahead after 2 GiB.
            (self.point, self.high_rxt, self.lost_edge) = (una - 1, una, una);
            return false;
        }
        self.high_rxt = self.high_rxt.max(una);
        self.lost_edge = self.lost_edge.max(una);
        let over = una.at_or_after(self.point);
        if over {
            self.mode = Mode::Open;
            self.force = false;
        }
        over
    }

    /// The next range to send again: the first hole not yet filled, `mss` bytes at most.
    pub(crate) fn next_lost(&self, una: Seq, mss: u32) -> Option<(Seq, u32)> {
        if !self.is_active() {
            return None;
        }
        let (start, end) = self.board.first_hole(self.high_rxt.max(una), self.lost_edge)?;
        Some((start, end.since(start).min(mss)))
    }

    /// When nothing is known lost and nothing new can be sent: a hole under the highest sacked byte
    /// (RFC 6675 §4, NextSeg rule 3), or once the last segment of all (rule 4).
    pub(crate) fn next_speculative(&self, una: Seq, nxt: Seq, mss: u32) -> Option<(Seq, u32)> {
        if self.mode != Mode::Fast {
            return None;
        }
        let (board, from) = (&self.board, self.high_rxt.max(una));
        if let Some((start, end)) =
            board.highest().and_then(|highest| board.first_hole(from, highest))
        {
            return Some((start, end.since(start).min(mss)));
        }
        let tail = from.max(nxt - mss.min(nxt.since(una)));
        let (start, end) = board.first_hole(tail, nxt).filter(|_| !self.rescued)?;
        Some((start, end.since(start)))
    }

    /// `len` bytes from `start` were sent again. The rescue, which lies above all that is lost or
    /// sacked, says nothing of what lies below it (RFC 6675 §4, NextSeg rule 4).
    pub(crate) fn on_retransmitted(&mut self, start: Seq, len: u32) {
        let above = |edge: Seq| start.at_or_after(edge);
        if above(self.lost_edge) && self.board.highest().is_none_or(above) {
            self.rescued = true;
        } else {
            self.high_rxt = self.high_rxt.max(start + len);
        }
        self.force = false;
    }

    /// Bytes held lost that wait to be sent again, and bytes that were, in this recovery.
    pub(crate) fn lost_and_resent(&self, una: Seq, nxt: Seq) -> (u32, u32) {
        if !self.is_active() {
            return (0, 0);
        }
        let sent_again = self.high_rxt.max(una).min(nxt);
        let waiting = self.lost_edge.max(sent_again).min(nxt);
        let board = &self.board;
        (board.unsacked_bytes(sent_again, waiting), board.unsacked_bytes(una, sent_again))
    }

    /// Bytes believed to be in the network (RFC 6675 §4, SetPipe): what was sent again, and what
    /// was never lost. What was sent again without being known to be lost is there twice.
    pub(crate) fn pipe(&self, una: Seq, nxt: Seq) -> u32 {
        let board = &self.board;
        if !self.is_active() {
            return nxt.since(una) - board.sacked_bytes();
        }
        let sent_again = self.high_rxt.max(una).min(nxt);
        let never_lost = self.lost_edge.max(una).min(nxt);
        board.unsacked_bytes(una, sent_again) + board.unsacked_bytes(never_lost, nxt)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::options::SackBlock;

    const MSS: u32 = 100;

    fn recovery(blocks: &[(u32, u32)]) -> Recovery {
        let mut recovery = Recovery::new(Seq(0));
        for &(start, end) in blocks {
            let block = SackBlock { start: Seq(start), end: Seq(end) };
            recovery.board.on_block(block, Seq(0), Seq(10_000));
        }
        recovery
    }

    #[test]
    fn holes_are_sent_again_in_order_up_to_the_lost_edge() {
        let mut recovery = recovery(&[(200, 400), (600, 900)]);
        recovery.enter(Mode::Fast, Seq(0), Seq(600), Seq(1000));
        let mut sent = std::vec::Vec::new();
        while let Some((start, len)) = recovery.next_lost(Seq(0), MSS) {
            sent.push((start.0, len));
            recovery.on_retransmitted(start, len);
        }
        assert_eq!(sent, [(0, 100), (100, 100), (400, 100), (500, 100)]);
        assert!(recovery.advance_to(Seq(1000)));
        assert!(!recovery.is_active());
    }

    #[test]
    fn the_pipe_counts_what_was_sent_again_and_what_was_never_lost() {
        let mut recovery = recovery(&[(200, 400), (600, 900)]);
        assert_eq!(recovery.pipe(Seq(0), Seq(1000)), 500);
        recovery.enter(Mode::Fast, Seq(0), Seq(600), Seq(1000));
        assert_eq!(recovery.pipe(Seq(0), Seq(1000)), 100);
        recovery.on_retransmitted(Seq(0), 100);
        assert_eq!(recovery.pipe(Seq(0), Seq(1000)), 200);
    }

    #[test]
    fn the_rescue_happens_once() {
        let mut recovery = recovery(&[(100, 500)]);
        recovery.enter(Mode::Fast, Seq(0), Seq(100), Seq(700));
        recovery.on_retransmitted(Seq(0), 100);
        assert_eq!(recovery.next_lost(Seq(0), MSS), None);
        let rescue = recovery.next_speculative(Seq(0), Seq(700), MSS);
        assert_eq!(rescue, Some((Seq(600), 100)));
        recovery.on_retransmitted(Seq(600), 100);
        assert_eq!(recovery.next_speculative(Seq(0), Seq(700), MSS), None);
    }
}
