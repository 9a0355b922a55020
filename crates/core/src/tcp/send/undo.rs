//! Gives back what a recovery has taken that was not needed: ACKs show that what was sent again had
//! arrived (RFC 3522 by timestamps, RFC 2883 by D-SACKs), and the window is restored as RFC 4015
//! says.

use super::rack::Evidence;
use crate::flow::Seq;
use crate::tcp::congestion::Kept;
use crate::time::Instant;

/// What is kept of the time before a recovery.
#[derive(Clone, Debug)]
pub(crate) struct Undo {
    /// Congestion control before the reduction.
    pub before: Kept,
    /// SND.UNA when it began: what lies before was sent again for another reason.
    from: Seq,
    /// When something was sent again first; [`Instant::FAR_FUTURE`]: nothing was.
    resent_at: Instant,
    /// Bytes sent again of which no D-SACK has told.
    unproven: u32,
    /// Once this is acknowledged no proof will come.
    pub until: Seq,
}

impl Undo {
    /// A recovery begins at `from`, and ends at `point`.
    pub(crate) fn new(before: Kept, from: Seq, point: Seq) -> Undo {
        Undo { before, from, resent_at: Instant::FAR_FUTURE, unproven: 0, until: point }
    }

    /// So many bytes were sent again.
    pub(crate) fn on_sent_again(&mut self, bytes: u32, now: Instant) {
        self.resent_at = self.resent_at.min(now);
        self.unproven = self.unproven.saturating_add(bytes);
    }

    /// An ACK advances: true if it was sent before anything that was sent again arrived.
    pub(crate) fn is_answer_to_the_first(&self, evidence: Evidence) -> bool {
        self.resent_at != Instant::FAR_FUTURE && evidence.shows(self.resent_at) == Some(false)
    }

    /// A D-SACK tells of these bytes. True if it has been told of all that was sent again.
    pub(crate) fn on_duplicate(&mut self, start: Seq, end: Seq) -> bool {
        if start.before(self.from) || self.unproven == 0 {
            return false;
        }
        self.unproven = self.unproven.saturating_sub(end.since(start));
        self.unproven == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp::congestion::Congestion;

    fn undo() -> Undo {
        let mut undo = Undo::new(Congestion::of_reno(10, 10).kept(), Seq(100), Seq(900));
        undo.on_sent_again(100, Instant::from_millis(50));
        undo.on_sent_again(100, Instant::from_millis(60));
        undo
    }

    #[test]
    fn an_echo_from_before_the_first_retransmission_is_a_proof() {
        let proves = |echo| undo().is_answer_to_the_first(Evidence { echo, offset: 0 });
        assert!(proves(Some(49)) && !proves(Some(50)) && !proves(None));
        let before = Undo::new(Congestion::of_reno(10, 10).kept(), Seq(100), Seq(900));
        assert!(!before.is_answer_to_the_first(Evidence { echo: Some(1), offset: 0 }));
    }

    #[test]
    fn d_sacks_of_all_that_was_sent_again_are_a_proof() {
        let mut undo = undo();
        assert!(!undo.on_duplicate(Seq(0), Seq(1000)), "from before the recovery");
        assert!(!undo.on_duplicate(Seq(100), Seq(200)));
        assert!(undo.on_duplicate(Seq(300), Seq(400)));
        assert!(!undo.on_duplicate(Seq(300), Seq(400)), "once");
    }
}
