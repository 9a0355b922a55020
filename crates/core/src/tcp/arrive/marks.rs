//! The sender's part of ECN in an acknowledgement (RFC 3168 §6.1.2, RFC 8257 §3.3).

use crate::tcp::congestion::{AckOutcome, Loss};
use crate::tcp::connection::Step;
use crate::wire::tcp::{Flags, Segment};

impl Step<'_> {
    /// An ACK says whether what it acknowledges came marked, and `outcome` what else it shows;
    /// `flight` bytes were out before. `is_congested`: it tells of marks, and nothing is lost. The
    /// window is reduced once a round trip, for whatever reason.
    pub(super) fn heed_marks(
        &mut self,
        segment: &Segment<'_>,
        outcome: &AckOutcome,
        flight: u32,
        is_congested: bool,
    ) {
        let Step { cx, common, s } = self;
        let Some(ecn) = &mut s.ecn else { return };
        let (send, asks) = (&mut s.send, segment.flags.contains(Flags::ECE));
        // What DCTCP measures comes before what it reduces by.
        send.congestion.on_echo(outcome, asks, send.una, send.nxt);
        if outcome.reduced {
            ecn.on_reduced(send.nxt);
        } else if is_congested && ecn.asks_to_reduce(segment.ack, segment.flags) {
            let loss = Loss { now: cx.now, flight, is_marked: true };
            let is_least = send.congestion.window() <= send.mss.into();
            send.congestion.on_loss(loss, send.mss.into());
            if is_least {
                send.hold_back(cx.now, &common.options, &cx.config);
            }
            ecn.on_reduced(send.nxt);
            cx.counters.ecn_reductions += 1;
        } else if outcome.progress && !asks {
            send.go_on(cx.now, &common.options);
        }
    }
}
