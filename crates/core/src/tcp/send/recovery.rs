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

use super::scoreboard::Scoreboard;
use crate::tcp::Seq;

/// Why segments are being sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// They are not.
    Open,
    /// Duplicate ACKs or SACK blocks showed a hole.
    Fast,
    /// The retransmission timer fired.
    Timeout,
}

/// The recovery of one connection.
#[derive(Clone, Copy, Debug)]
pub struct Recovery {
    /// Why, if at all.
    pub mode: Mode,
    /// Recovery ends when this is acknowledged (RFC 6675's RecoveryPoint, RFC 6582's recover).
    pub point: Seq,
    /// Bytes below have been sent again, or are sacked.
    pub high_rxt: Seq,
    /// Bytes below are lost, unless sacked.
    pub lost_edge: Seq,
    /// The first retransmission leaves whatever the window says (RFC 6675 §5 step 4.3).
    pub force: bool,
    /// The one rescue retransmission of a recovery is spent (RFC 6675 §4, NextSeg rule 4).
    pub rescued: bool,
}

impl Recovery {
    /// Nothing lost; `una` is the first sequence number of data.
    pub fn new(una: Seq) -> Self {
        Recovery {
            mode: Mode::Open,
            point: una - 1,
            high_rxt: una,
            lost_edge: una,
            force: false,
            rescued: false,
        }
    }

    /// Starts recovering everything lost below `lost_edge`; ends when `nxt` is acknowledged.
    pub fn enter(&mut self, mode: Mode, una: Seq, lost_edge: Seq, nxt: Seq) {
        *self =
            Recovery { mode, point: nxt, high_rxt: una, lost_edge, force: true, rescued: false };
    }

    /// True while segments are being sent again.
    pub fn is_active(&self) -> bool {
        self.mode != Mode::Open
    }

    /// SND.UNA has come to `una`, while nothing is sent again.
    #[inline]
    pub fn on_calm_progress(&mut self, una: Seq) {
        // The last recovery is behind; an old number would seem ahead after 2 GiB.
        (self.point, self.high_rxt, self.lost_edge) = (una - 1, una, una);
    }

    /// SND.UNA has come to `una`. True if that ends the recovery.
    pub fn on_progress(&mut self, una: Seq) -> bool {
        if !self.is_active() {
            self.on_calm_progress(una);
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
    pub fn next_lost(&self, board: &Scoreboard, una: Seq, mss: u32) -> Option<(Seq, u32)> {
        if !self.is_active() {
            return None;
        }
        let (start, end) = board.first_hole(self.high_rxt.max(una), self.lost_edge)?;
        Some((start, end.since(start).min(mss)))
    }

    /// When nothing is known lost and nothing new can be sent: a hole under the highest sacked byte
    /// (RFC 6675 §4, NextSeg rule 3), or once the last segment of all (rule 4).
    pub fn next_speculative(
        &self,
        board: &Scoreboard,
        una: Seq,
        nxt: Seq,
        mss: u32,
    ) -> Option<(Seq, u32)> {
        if self.mode != Mode::Fast {
            return None;
        }
        let from = self.high_rxt.max(una);
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
    pub fn on_retransmitted(&mut self, board: &Scoreboard, start: Seq, len: u32) {
        let above = |edge: Seq| start.at_or_after(edge);
        if above(self.lost_edge) && board.highest().is_none_or(above) {
            self.rescued = true;
        } else {
            self.high_rxt = self.high_rxt.max(start + len);
        }
        self.force = false;
    }

    /// Bytes held lost that wait to be sent again, and bytes that were, in this recovery.
    pub fn lost_and_resent(&self, board: &Scoreboard, una: Seq, nxt: Seq) -> (u32, u32) {
        if !self.is_active() {
            return (0, 0);
        }
        let sent_again = self.high_rxt.max(una).min(nxt);
        let waiting = self.lost_edge.max(sent_again).min(nxt);
        (board.unsacked_bytes(sent_again, waiting), board.unsacked_bytes(una, sent_again))
    }

    /// Bytes believed to be in the network (RFC 6675 §4, SetPipe): what was sent again, and what
    /// was never lost. What was sent again without being known to be lost is there twice.
    pub fn pipe(&self, board: &Scoreboard, una: Seq, nxt: Seq) -> u32 {
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

    fn board(blocks: &[(u32, u32)]) -> Scoreboard {
        let mut board = Scoreboard::default();
        for &(start, end) in blocks {
            board.on_block(SackBlock { start: Seq(start), end: Seq(end) }, Seq(0), Seq(10_000));
        }
        board
    }

    #[test]
    fn holes_are_sent_again_in_order_up_to_the_lost_edge() {
        let board = board(&[(200, 400), (600, 900)]);
        let mut recovery = Recovery::new(Seq(0));
        recovery.enter(Mode::Fast, Seq(0), Seq(600), Seq(1000));
        let mut sent = std::vec::Vec::new();
        while let Some((start, len)) = recovery.next_lost(&board, Seq(0), MSS) {
            sent.push((start.0, len));
            recovery.on_retransmitted(&board, start, len);
        }
        assert_eq!(sent, [(0, 100), (100, 100), (400, 100), (500, 100)]);
        assert!(recovery.on_progress(Seq(1000)));
        assert!(!recovery.is_active());
    }

    #[test]
    fn the_pipe_counts_what_was_sent_again_and_what_was_never_lost() {
        let board = board(&[(200, 400), (600, 900)]);
        let mut recovery = Recovery::new(Seq(0));
        assert_eq!(recovery.pipe(&board, Seq(0), Seq(1000)), 500);
        recovery.enter(Mode::Fast, Seq(0), Seq(600), Seq(1000));
        assert_eq!(recovery.pipe(&board, Seq(0), Seq(1000)), 100);
        recovery.on_retransmitted(&board, Seq(0), 100);
        assert_eq!(recovery.pipe(&board, Seq(0), Seq(1000)), 200);
    }

    #[test]
    fn the_rescue_happens_once() {
        let board = board(&[(100, 500)]);
        let mut recovery = Recovery::new(Seq(0));
        recovery.enter(Mode::Fast, Seq(0), Seq(100), Seq(700));
        recovery.on_retransmitted(&board, Seq(0), 100);
        assert_eq!(recovery.next_lost(&board, Seq(0), MSS), None);
        let rescue = recovery.next_speculative(&board, Seq(0), Seq(700), MSS);
        assert_eq!(rescue, Some((Seq(600), 100)));
        recovery.on_retransmitted(&board, Seq(600), 100);
        assert_eq!(recovery.next_speculative(&board, Seq(0), Seq(700), MSS), None);
    }
}
