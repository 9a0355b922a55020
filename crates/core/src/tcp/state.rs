//! The eleven states of RFC 9293 §3.3.2 and the arcs between them.
//!
//! [`ARCS`] is Figure 5 of the RFC as a table, and one arc more: an end that closed second may hold
//! TIME-WAIT, because it takes that over from the peer (Faber, Touch & Yue 1999, Figure 3, whose
//! LAST-ACK-SWAP is LAST-ACK here and to monitors: what differs is how it ends), or because both
//! have agreed on it. Nothing changes a connection's state but
//! `StateCell::transition`, which checks it. The graph under `docs/states.md` is made from it.

use State::{
    CloseWait, Closed, Closing, Established, FinWait1, FinWait2, LastAck, Listen, SynReceived,
    SynSent, TimeWait,
};

/// A connection's state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names are RFC 9293's own")]
pub enum State {
    #[default]
    Closed,
    Listen,
    SynSent,
    SynReceived,
    Established,
    FinWait1,
    FinWait2,
    CloseWait,
    Closing,
    LastAck,
    TimeWait,
}

/// Every arc there is: from, to, and what causes it.
pub const ARCS: &[(State, State, &str)] = &[
    (Closed, Listen, "passive open"),
    (Closed, SynSent, "active open: send SYN"),
    (Listen, SynReceived, "receive SYN: send SYN, ACK"),
    (Listen, Closed, "close"),
    (SynSent, SynReceived, "receive SYN: send SYN, ACK (simultaneous open)"),
    (SynSent, Established, "receive SYN, ACK: send ACK"),
    (SynSent, Closed, "close, reset or timeout"),
    (SynReceived, Established, "receive ACK of SYN"),
    (SynReceived, FinWait1, "close: send FIN"),
    (SynReceived, Closed, "reset or timeout"),
    (Established, FinWait1, "close: send FIN"),
    (Established, CloseWait, "receive FIN"),
    (Established, Closed, "reset or timeout"),
    (FinWait1, FinWait2, "receive ACK of FIN"),
    (FinWait1, Closing, "receive FIN"),
    (FinWait1, TimeWait, "receive FIN and ACK of FIN"),
    (FinWait1, Closed, "reset or timeout"),
    (FinWait2, TimeWait, "receive FIN"),
    (FinWait2, Closed, "reset or timeout, or receive FIN where the peer holds TIME-WAIT"),
    (CloseWait, LastAck, "close: send FIN"),
    (CloseWait, Closed, "reset or timeout"),
    (Closing, TimeWait, "receive ACK of FIN"),
    (Closing, Closed, "reset or timeout, or receive ACK of FIN where the peer holds TIME-WAIT"),
    (LastAck, Closed, "receive ACK of FIN, reset or timeout"),
    (
        LastAck,
        TimeWait,
        "receive ACK of FIN where we hold TIME-WAIT, or (close_swap) send RST, ACK",
    ),
    (TimeWait, Closed, "2 MSL have passed"),
];

/// [`ARCS`] as a matrix: of each state, a bit for each that may follow.
const FOLLOWERS: [u16; TimeWait as usize + 1] = {
    let mut followers = [0; TimeWait as usize + 1];
    let mut arcs = ARCS;
    while let [(from, to, _), rest @ ..] = arcs {
        followers[*from as usize] |= 1 << *to as u32;
        arcs = rest;
    }
    followers
};

impl State {
    /// Every state, in the order of RFC 9293 §3.3.2, CLOSED first.
    pub const ALL: [State; 11] = [
        State::Closed,
        State::Listen,
        State::SynSent,
        State::SynReceived,
        State::Established,
        State::FinWait1,
        State::FinWait2,
        State::CloseWait,
        State::Closing,
        State::LastAck,
        State::TimeWait,
    ];

    /// Its name in RFC 9293.
    pub const fn name(self) -> &'static str {
        match self {
            State::Closed => "CLOSED",
            State::Listen => "LISTEN",
            State::SynSent => "SYN-SENT",
            State::SynReceived => "SYN-RECEIVED",
            State::Established => "ESTABLISHED",
            State::FinWait1 => "FIN-WAIT-1",
            State::FinWait2 => "FIN-WAIT-2",
            State::CloseWait => "CLOSE-WAIT",
            State::Closing => "CLOSING",
            State::LastAck => "LAST-ACK",
            State::TimeWait => "TIME-WAIT",
        }
    }

    /// True if Figure 5 has an arc from here to `to`.
    pub(crate) const fn may_become(self, to: State) -> bool {
        FOLLOWERS[self as usize] >> to as u32 & 1 == 1
    }

    /// True if our side may still send new data.
    pub fn can_send(self) -> bool {
        matches!(self, Established | CloseWait)
    }

    /// True if the peer may still send data.
    pub fn can_receive(self) -> bool {
        matches!(self, Established | FinWait1 | FinWait2)
    }
}

/// A state that can only move along an arc.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StateCell(State);

impl StateCell {
    /// A connection begins CLOSED.
    pub(crate) fn new() -> Self {
        StateCell(Closed)
    }

    /// The present state.
    pub(crate) fn get(self) -> State {
        self.0
    }

    /// Moves to `to`. Panics if there is no such arc: that is a fault of this engine, not of any
    /// byte from the network.
    pub(crate) fn transition(&mut self, to: State) {
        assert!(self.0.may_become(to), "no arc from {:?} to {to:?}", self.0);
        self.0 = to;
    }
}

impl Default for StateCell {
    fn default() -> Self {
        StateCell::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [State; 11] = [
        Closed,
        Listen,
        SynSent,
        SynReceived,
        Established,
        FinWait1,
        FinWait2,
        CloseWait,
        Closing,
        LastAck,
        TimeWait,
    ];

    #[test]
    fn no_arc_stands_twice_and_none_leads_to_itself() {
        for (i, arc) in ARCS.iter().enumerate() {
            assert_ne!(arc.0, arc.1);
            assert!(!ARCS[..i].iter().any(|other| (other.0, other.1) == (arc.0, arc.1)), "{arc:?}");
        }
    }

    #[test]
    #[should_panic(expected = "no arc from TimeWait to Established")]
    fn a_state_moves_along_arcs_only() {
        let mut state = StateCell(TimeWait);
        state.transition(Established);
    }

    #[test]
    fn the_matrix_has_the_arcs_of_the_table_and_no_others() {
        for from in ALL {
            for to in ALL {
                let is_arc = ARCS.iter().any(|arc| (arc.0, arc.1) == (from, to));
                assert_eq!(from.may_become(to), is_arc, "{from:?} to {to:?}");
            }
        }
    }

    #[test]
    fn every_state_is_reached_and_left() {
        for state in ALL {
            assert!(ARCS.iter().any(|arc| arc.0 == state), "{state:?} is never left");
            assert!(ARCS.iter().any(|arc| arc.1 == state), "{state:?} is never reached");
        }
    }
}
