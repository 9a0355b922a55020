//! F-RTO: tells a timeout that was not needed by what arrives after it (RFC 5682).
//!
//! ```text
//!   timeout        the first ACK        the second ACK
//!   ──┬───────────────┬────────────────────┬──────────────▶
//!     │ the first     │ two new segments,  │ old data has arrived: spurious
//!     │ segment again │ nothing else again │ anything else: what is lost leaves again
//! ```
//!
//! If the ACK that follows the new segments tells of data which left once, before the timeout, that
//! data was on its way. Here is the state machine; the sender tells it what was sent and heard.
//!
//! Only connections without timestamps need it: an echo tells the same with the first ACK, and
//! holds nothing back (RFC 3522).

use crate::flow::Seq;

/// What tells that a timeout was spurious.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Proof {
    /// Nothing does.
    None,
    /// The time that an ACK echoes (RFC 3522). It comes with the first ACK.
    Echo,
    /// What arrives: F-RTO.
    Arrivals,
}

/// How far a timeout has been judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Frto {
    /// It is not in doubt.
    Off,
    /// Step 2: what lies below `end` was sent again, and its ACK is waited for.
    Resent {
        /// One past the last byte that was sent again.
        end: Seq,
    },
    /// Step 2b: new segments are due.
    Due,
    /// Step 3: they have left.
    Watching,
}

/// What an ACK tells of a timeout.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Heard {
    /// SND.UNA, behind the ACK.
    pub una: Seq,
    /// The highest number that the ACK or one of its blocks tells of.
    pub highest: Seq,
    /// SND.UNA has moved.
    pub advances: bool,
    /// A block tells of something new.
    pub sacks: bool,
    /// It is a duplicate ACK (RFC 5681 §2), with SACK or without.
    pub repeats: bool,
    /// The peer sends SACK blocks.
    pub by_sack: bool,
    /// There is something new, and the peer's window has room for it.
    pub can_send: bool,
}

impl Frto {
    /// True if new segments leave before what is lost does.
    pub(crate) fn prefers_new(self) -> bool {
        matches!(self, Frto::Due | Frto::Watching)
    }

    /// What ends at `end` was sent again. Behind step 2 nothing would be told by its ACK.
    pub(crate) fn on_sent_again(&mut self, end: Seq) {
        *self = match *self {
            Frto::Resent { end: before } => Frto::Resent { end: before.max(end) },
            _ => Frto::Off,
        };
    }

    /// Something new has left.
    pub(crate) fn on_new_sent(&mut self) {
        if *self == Frto::Due {
            *self = Frto::Watching;
        }
    }

    /// An ACK has come after a timeout; `point` is one past what had been sent before. True if it
    /// shows that the timeout was spurious.
    pub(crate) fn on_ack(&mut self, point: Seq, heard: Heard) -> bool {
        match *self {
            Frto::Off => false,
            Frto::Resent { end } => {
                self.on_first(end, point, heard);
                false
            }
            // The RFC waits for an ACK that advances, or for a duplicate.
            Frto::Due | Frto::Watching if !heard.advances && !heard.repeats => false,
            // Two ACKs may come before anything can leave between them.
            Frto::Due | Frto::Watching => {
                *self = Frto::Off;
                // Without SACK a duplicate does not tell what has arrived.
                heard.highest.at_or_before(point) && (heard.advances || heard.sacks)
            }
        }
    }

    /// Step 2. With SACK duplicates may come before the ACK of what was sent again (§3.1).
    fn on_first(&mut self, end: Seq, point: Seq, heard: Heard) {
        if heard.advances {
            let is_of_a_part = heard.una.before(end) || heard.una.at_or_after(point);
            *self = if heard.can_send && !is_of_a_part { Frto::Due } else { Frto::Off };
        } else if heard.repeats && !heard.by_sack {
            *self = Frto::Off;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ten segments of 100 bytes were in flight from 100 on.
    const POINT: Seq = Seq(1100);

    fn resent() -> Frto {
        let mut frto = Frto::Resent { end: Seq(100) };
        frto.on_sent_again(Seq(200));
        assert_eq!(frto, Frto::Resent { end: Seq(200) });
        frto
    }

    fn ack(una: u32) -> Heard {
        let una = Seq(una);
        Heard {
            una,
            highest: una,
            advances: true,
            sacks: false,
            repeats: false,
            by_sack: true,
            can_send: true,
        }
    }

    fn duplicate(una: u32, by_sack: bool) -> Heard {
        Heard { advances: false, repeats: true, by_sack, ..ack(una) }
    }

    fn block(una: u32, end: u32) -> Heard {
        Heard { sacks: true, highest: Seq(end), ..duplicate(una, true) }
    }

    fn after(mut frto: Frto, heard: Heard) -> (Frto, bool) {
        let is_spurious = frto.on_ack(POINT, heard);
        (frto, is_spurious)
    }

    fn watching() -> Frto {
        let (mut frto, _) = after(resent(), ack(200));
        assert!(frto == Frto::Due && frto.prefers_new());
        frto.on_new_sent();
        assert!(frto == Frto::Watching && frto.prefers_new());
        frto
    }

    #[test]
    fn the_first_ack_covers_what_was_sent_again_and_not_all() {
        assert_eq!(after(resent(), ack(199)), (Frto::Off, false), "a part of it");
        assert_eq!(after(resent(), ack(300)), (Frto::Due, false));
        assert_eq!(after(resent(), ack(1099)), (Frto::Due, false));
        assert_eq!(after(resent(), ack(1100)), (Frto::Off, false), "all that was in flight");
    }

    #[test]
    fn without_anything_new_to_send_nothing_is_told() {
        let stuck = Heard { can_send: false, ..ack(200) };
        assert_eq!(after(resent(), stuck), (Frto::Off, false));
    }

    #[test]
    fn a_duplicate_before_the_first_ack_counts_only_without_sack() {
        assert_eq!(after(resent(), duplicate(100, true)), (resent(), false));
        assert_eq!(after(resent(), block(100, 900)), (resent(), false));
        assert_eq!(after(resent(), duplicate(100, false)), (Frto::Off, false));
    }

    #[test]
    fn old_data_that_arrives_afterwards_proves_it() {
        assert_eq!(after(watching(), ack(300)), (Frto::Off, true));
        assert_eq!(after(watching(), ack(1100)), (Frto::Off, true));
        assert_eq!(after(watching(), block(200, 1100)), (Frto::Off, true));
        assert_eq!(after(Frto::Due, ack(300)), (Frto::Off, true), "before anything new left");
    }

    #[test]
    fn new_data_that_arrives_afterwards_does_not() {
        assert_eq!(after(watching(), ack(1101)), (Frto::Off, false));
        assert_eq!(after(watching(), block(200, 1101)), (Frto::Off, false));
        assert_eq!(after(watching(), duplicate(200, true)), (Frto::Off, false));
        assert_eq!(after(watching(), duplicate(200, false)), (Frto::Off, false));
    }

    #[test]
    fn an_ack_that_is_neither_changes_nothing() {
        let other = Heard { repeats: false, ..duplicate(200, true) };
        assert_eq!(after(watching(), other), (Frto::Watching, false));
        assert_eq!(after(resent(), Heard { by_sack: false, ..other }), (resent(), false));
    }

    #[test]
    fn what_is_sent_again_afterwards_ends_it() {
        let mut frto = watching();
        frto.on_sent_again(Seq(300));
        assert!(frto == Frto::Off && !frto.prefers_new());
        frto.on_new_sent();
        assert_eq!(frto, Frto::Off);
    }
}
