//! One direction of a connection, as seen on the wire.
//!
//! ```text
//!   isn        arrived          limit
//!    │ SYN │ data … │  sent, not   │ may be sent │
//!    ├─────┼────────┼──────────────┼─────────────┤
//!                   (sent) next ─────────▲ never beyond `limit`, never with a hole
//! ```

use lightwait_core::flow::Seq;
use lightwait_core::wire::tcp::{Flags, Segment};

/// RFC 7323 §2.3: a larger shift counts as this.
const MAX_SHIFT: u8 = 14;

/// The incarnations that are remembered, including the current one: stray segments may belong to an
/// older one.
const INCARNATIONS: usize = 4;

/// The data that one end of a connection has sent, incarnation by incarnation.
#[derive(Debug, Default)]
pub(super) struct Half {
    /// The last one is the current incarnation.
    sent: Vec<Sent>,
}

/// The distance in which numbers are distinct: a quarter of their space, beyond every window.
const REACH: u32 = 1 << 30;

/// One incarnation.
#[derive(Debug)]
pub(super) struct Sent {
    isn: Seq,
    /// The oldest valid number: the ISN, until that is out of reach.
    floor: Seq,
    /// One beyond the last number sent.
    next: Seq,
    /// One beyond the last number that arrived at the other end.
    arrived: Seq,
    /// The right edge that has arrived from the receiver.
    limit: Option<Seq>,
    /// One beyond the FIN.
    fin: Option<Seq>,
    /// The window shift offered in the SYN.
    shift: Option<u8>,
    /// The highest acknowledgement sent.
    acked: Option<Seq>,
    /// The right edge of the window offered last.
    edge: Option<Seq>,
}

impl Half {
    /// Checks a sent segment that is no reset. Returns its incarnation, or the broken rule.
    pub(super) fn on_sent(&mut self, segment: &Segment<'_>) -> Result<&mut Sent, &'static str> {
        if segment.flags.contains(Flags::SYN) {
            if self.sent.last().is_none_or(|last| last.isn != segment.seq) {
                self.begin(segment);
            }
            let last = self.sent.len() - 1;
            return Ok(&mut self.sent[last]);
        }
        let sent = self.incarnation(segment.seq).ok_or("sends outside its sequence space")?;
        sent.check_data(segment)?;
        Ok(sent)
    }

    fn begin(&mut self, segment: &Segment<'_>) {
        if self.sent.len() == INCARNATIONS {
            self.sent.remove(0);
        }
        self.sent.push(Sent {
            isn: segment.seq,
            floor: segment.seq,
            next: segment.end(),
            arrived: segment.seq,
            limit: None,
            fin: None,
            shift: segment.options.window_scale.map(|shift| shift.min(MAX_SHIFT)),
            acked: None,
            edge: None,
        });
    }

    /// The latest incarnation that has sent data up to `seq`.
    fn incarnation(&mut self, seq: Seq) -> Option<&mut Sent> {
        self.sent.iter_mut().rev().find(|sent| sent.spans(seq))
    }

    /// A segment of this half arrives at the other end.
    pub(super) fn on_arrival(&mut self, segment: &Segment<'_>) {
        let Some(sent) = self.incarnation(segment.seq) else { return };
        let end = segment.end();
        if sent.spans(end) {
            sent.arrived = sent.arrived.max(end);
        }
    }

    /// The receiver of this half acknowledges `ack`, and allows data up to `edge`.
    pub(super) fn on_edge(&mut self, ack: Seq, edge: Seq) {
        if let Some(sent) = self.incarnation(ack) {
            sent.limit = Some(sent.limit.map_or(edge, |limit| limit.max(edge)));
        }
    }

    /// The right edge of the window in a segment of this half. It is scaled if both ends offered
    /// scaling, and never in a SYN (RFC 7323 §2.2).
    pub(super) fn edge_of(&self, segment: &Segment<'_>, peer_scales: bool) -> Seq {
        let shift = self.sent.last().map_or(0, |sent| sent.shift_of(segment, peer_scales));
        segment.ack + (u32::from(segment.window) << shift)
    }

    /// True if the current incarnation's SYN offered window scaling.
    pub(super) fn offers_scale(&self) -> bool {
        self.sent.last().is_some_and(|sent| sent.shift.is_some())
    }

    /// True if everything before `ack`, the SYN included, has arrived at the other end.
    pub(super) fn has_arrived(&self, ack: Seq) -> bool {
        self.sent.iter().any(|sent| sent.covers(ack))
    }

    pub(super) fn incarnations(&self) -> usize {
        self.sent.len()
    }
}

impl Sent {
    fn spans(&self, seq: Seq) -> bool {
        seq.at_or_after(self.floor) && seq.at_or_before(self.next)
    }

    /// True if `ack` acknowledges arrived data, or at least the SYN.
    fn covers(&self, ack: Seq) -> bool {
        let beyond_syn = ack != self.isn || self.floor != self.isn;
        beyond_syn && ack.at_or_after(self.floor) && ack.at_or_before(self.arrived)
    }

    fn shift_of(&self, segment: &Segment<'_>, peer_scales: bool) -> u8 {
        match self.shift {
            Some(shift) if peer_scales && !segment.flags.contains(Flags::SYN) => shift,
            _ => 0,
        }
    }

    /// Checks the rules for data and FIN.
    fn check_data(&mut self, segment: &Segment<'_>) -> Result<(), &'static str> {
        let data_end = segment.seq + segment.payload.len() as u32;
        let end = segment.end();
        if let Some(fin) = self.fin {
            if end.after(fin) {
                return Err("sends beyond its FIN");
            }
            if segment.flags.contains(Flags::FIN) && end != fin {
                return Err("moves its FIN");
            }
        }
        if data_end.after(self.next) && !segment.payload.is_empty() {
            let limit = self.limit.ok_or("sends data before a window is known")?;
            let is_probe = segment.payload.len() == 1 && segment.seq == limit;
            if data_end.after(limit) && !is_probe {
                return Err("sends beyond the edge of the window");
            }
        }
        if segment.flags.contains(Flags::FIN) {
            if end.before(self.next) {
                return Err("sends a FIN before data that it has sent");
            }
            self.fin = Some(end);
        }
        self.next = self.next.max(end);
        if self.next.since(self.floor) > REACH {
            self.floor = self.next - REACH;
        }
        Ok(())
    }

    /// Acknowledgements and right edges never go back.
    pub(super) fn check_progress(
        &mut self,
        segment: &Segment<'_>,
        peer_scales: bool,
    ) -> Result<(), &'static str> {
        if self.acked.is_some_and(|acked| segment.ack.before(acked)) {
            return Err("takes an acknowledgement back");
        }
        self.acked = Some(segment.ack);
        let shift = self.shift_of(segment, peer_scales);
        let edge = segment.ack + (u32::from(segment.window) << shift);
        let rounding = (1 << shift) - 1;
        // After the peer's FIN a window has nothing to admit, and after ours a record without a
        // window may answer.
        let matters = self.fin.is_none();
        if matters && self.edge.is_some_and(|old| (edge + rounding).before(old)) {
            return Err("takes its window's edge back");
        }
        self.edge = Some(self.edge.map_or(edge, |old| old.max(edge)));
        Ok(())
    }

    /// The peer has a new incarnation: earlier acknowledgements do not apply.
    pub(super) fn forget_progress(&mut self) {
        self.acked = None;
        self.edge = None;
    }
}
