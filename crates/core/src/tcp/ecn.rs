//! Explicit congestion notification of one connection (RFC 3168 §6.1).
//!
//! ```text
//!   sender    data with ECT(0) ─▶ router marks CE ─▶ receiver   owes ECE
//!   halves, owes CWR ◀── every ACK carries ECE ───────────┘
//!      └── the next new data carries CWR ─▶ receiver   owes ECE no more
//! ```

use alloc::collections::VecDeque;

use crate::flow::Seq;
use crate::wire::tcp::Flags;

/// The codepoint of data that may be marked: ECT(0).
pub(crate) const ECT0: u8 = 0b10;
/// The codepoint of a packet that was marked.
pub(crate) const CE: u8 = 0b11;
/// The bits of the codepoint in a traffic class.
pub(crate) const MASK: u8 = 0b11;

/// What both halves of a connection that uses ECN remember.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EcnState {
    /// Our ACKs carry ECE: data came marked, and the peer has not said that it heard.
    pub echo: bool,
    /// Our next new data carries CWR: the window was reduced.
    pub cwr_due: bool,
    /// The window was last reduced when this was SND.NXT: once a round trip is enough.
    pub reduced_at: Seq,
}

/// ACKs owed at most of what arrived before a change of DCTCP.CE, between two turns.
const PAST_MAX: usize = 64;

/// The receiver's half of DCTCP (RFC 8257 §3.2), in place of [`EcnState::echo`]: ECE says whether
/// what an ACK acknowledges came marked, and CWR changes nothing.
///
/// ```text
///   arrived       ───── not marked ─────│───── marked ─────│─── not marked ───
///   acknowledged                        └ ACK              └ ACK, ECE         └ ACK
/// ```
#[derive(Clone, Debug, Default)]
pub(crate) struct Echo {
    /// DCTCP.CE: the newest data came marked.
    pub ce: bool,
    /// ACKs that leave before any other. A turn takes in many segments before it acknowledges, and
    /// one ACK for all would tell the sender the wrong number of marked bytes.
    past: VecDeque<PastEcho>,
}

/// An ACK of everything before `ack`, the last of which came marked or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PastEcho {
    pub ack: Seq,
    pub ce: bool,
}

impl Echo {
    /// Data has arrived, marked or not, when everything before `rcv_nxt` had arrived and everything
    /// before `last_sent` was acknowledged. Returns true if DCTCP.CE has changed: an ACK leaves at
    /// once.
    pub(crate) fn on_data(&mut self, marked: bool, rcv_nxt: Seq, last_sent: Seq) -> bool {
        if self.ce == marked {
            return false;
        }
        let acknowledged = self.past.back().map_or(last_sent, |past| past.ack);
        if rcv_nxt.after(acknowledged) && self.past.len() < PAST_MAX {
            self.past.push_back(PastEcho { ack: rcv_nxt, ce: self.ce });
        }
        self.ce = marked;
        true
    }

    /// The ACK that leaves before any other.
    pub(crate) fn past(&self) -> Option<PastEcho> {
        self.past.front().copied()
    }

    /// It has left.
    pub(crate) fn on_past_sent(&mut self) {
        self.past.pop_front();
    }
}

impl EcnState {
    /// At the start, with `next` the first number of our data; or with nothing to tell, and the
    /// window last reduced at `next`.
    pub(crate) fn new(next: Seq) -> Self {
        EcnState { echo: false, cwr_due: false, reduced_at: next }
    }

    /// Data has arrived, in a segment with `flags`, in a packet that was marked or not.
    pub(crate) fn on_data(&mut self, flags: Flags, marked: bool) {
        if flags.contains(Flags::CWR) {
            self.echo = false;
        }
        self.echo |= marked;
    }

    /// True if an ACK of everything before `ack`, with `flags`, asks for a reduction.
    pub(crate) fn asks_to_reduce(&self, ack: Seq, flags: Flags) -> bool {
        flags.contains(Flags::ECE) && ack.after(self.reduced_at)
    }

    /// The congestion window was reduced, for whatever reason, with SND.NXT at `nxt`.
    pub(crate) fn on_reduced(&mut self, nxt: Seq) {
        self.cwr_due = true;
        self.reduced_at = nxt;
    }
}
