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
    /// The first byte that was sent again, or SND.UNA: D-SACKs of what lies before have another
    /// reason.
    from: Seq,
    /// The timestamp's time of what was sent again first; [`Instant::FAR_FUTURE`]: nothing was.
    stamped: Instant,
    /// Bytes sent again of which no D-SACK has told.
    unproven: u32,
    /// Once this is acknowledged no proof will come.
    pub until: Seq,
}

impl Undo {
    /// A recovery begins at `from`, and ends at `point`.
    pub(crate) fn new(before: Kept, from: Seq, point: Seq) -> Undo {
        let stamped = Instant::FAR_FUTURE;
        Undo { before, from, stamped, unproven: 0, until: point }
    }

    /// The bytes from `start` to `end` were sent again, with the timestamp of the time `stamped`.
    pub(crate) fn on_sent_again(&mut self, start: Seq, end: Seq, stamped: Instant) {
        if self.stamped == Instant::FAR_FUTURE {
            (self.stamped, self.from) = (stamped, start);
        }
        self.unproven = self.unproven.saturating_add(end.since(start));
    }

    /// An ACK moves SND.UNA on from `una`: true if it was sent before anything that was sent again
    /// arrived. RFC 3522 takes for granted that the oldest segment left again first. If a hole lies
    /// before, which an earlier recovery has sent again, the ACK may answer that, and echo a time
    /// that proves nothing. Once that hole is filled, the next ACK answers the first again.
    pub(crate) fn is_answer_to_the_first(&self, evidence: Evidence, una: Seq) -> bool {
        una == self.from && evidence.shows_stamped(self.stamped) == Some(false)
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

    fn echoes(echo: Option<u32>) -> Evidence {
        Evidence { echo, ..Evidence::default() }
    }

    fn undo() -> Undo {
        let mut undo = Undo::new(Congestion::of_reno(10, 10).kept(), Seq(100), Seq(900));
        undo.on_sent_again(Seq(100), Seq(200), Instant::from_millis(50));
        undo.on_sent_again(Seq(300), Seq(400), Instant::from_millis(60));
        undo
    }

    #[test]
    fn an_echo_from_before_the_first_retransmission_is_a_proof() {
        let proves = |echo| undo().is_answer_to_the_first(echoes(echo), Seq(100));
        assert!(proves(Some(49)) && !proves(Some(50)) && !proves(None));
        let before = Undo::new(Congestion::of_reno(10, 10).kept(), Seq(100), Seq(900));
        assert!(!before.is_answer_to_the_first(echoes(Some(1)), Seq(100)));
    }

    #[test]
    fn an_echo_proves_nothing_behind_a_hole_sent_again_before() {
        let mut undo = Undo::new(Congestion::of_reno(10, 10).kept(), Seq(100), Seq(900));
        undo.on_sent_again(Seq(300), Seq(400), Instant::from_millis(50));
        let earlier = echoes(Some(40));
        assert!(!undo.is_answer_to_the_first(earlier, Seq(100)), "it fills the older hole");
        assert!(undo.is_answer_to_the_first(earlier, Seq(300)), "that was filled before");
        assert!(!undo.is_answer_to_the_first(earlier, Seq(400)), "the first was answered before");
        assert!(!undo.on_duplicate(Seq(100), Seq(200)), "of the older hole");
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
