//! Explicit congestion notification of one connection (RFC 3168 §6.1).
//!
//! ```text
//!   sender    data with ECT(0) ─▶ router marks CE ─▶ receiver   owes ECE
//!   halves, owes CWR ◀── every ACK carries ECE ───────────┘
//!      └── the next new data carries CWR ─▶ receiver   owes ECE no more
//! ```

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
