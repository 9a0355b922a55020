//! Feeds a congestion control that models the path, and asks the pacer when the next burst may
//! leave. Where the connection is not paced, all of it does nothing, for one comparison: what is in
//! flight is only counted behind it. What models the path is paced.

use super::SendHalf;
use super::recovery::Detection;
use crate::tcp::congestion::{AckOutcome, Acked};
use crate::time::Instant;

impl SendHalf {
    /// So many bytes have left, new or again, and count as in flight.
    pub(crate) fn note_departure(&mut self, now: Instant, bytes: u32) {
        if self.pacer().is_none() {
            return;
        }
        let before = self.pipe().saturating_sub(bytes);
        if let Some(bbr) = self.congestion.bbr_mut() {
            bbr.on_sent(now, bytes, before);
            self.update_pace();
        }
        if let Some(pacer) = self.pacer_mut() {
            pacer.on_sent(now, bytes);
        }
    }

    /// An ACK has been taken in, and what is lost has been marked. Of what it has delivered, what
    /// left at `latest` left last.
    pub(super) fn note_acked(
        &mut self,
        now: Instant,
        latest: Option<Instant>,
        outcome: &AckOutcome,
    ) {
        if self.pacer().is_none() || outcome.delivered == 0 && !self.congestion.has_model() {
            return;
        }
        self.note_lost(now, outcome.lost);
        let (in_flight, has_sack) = (self.pipe(), self.has_sack());
        let Some(bbr) = self.congestion.bbr_mut() else { return self.update_pace() };
        let (newly_acked, min_rtt_ns) = (outcome.delivered, bbr.min_rtt_ns());
        let sample = bbr.sampler.on_delivered(now, newly_acked, latest, min_rtt_ns);
        let has_lost = outcome.lost > 0;
        bbr.on_ack(&Acked { now, newly_acked, sample, in_flight, has_lost, has_sack });
        self.update_pace();
    }

    /// So many bytes have been found lost.
    pub(super) fn note_lost(&mut self, now: Instant, bytes: u32) {
        if !self.congestion.has_model() {
            return;
        }
        let first = self.sent.take_first_lost();
        if let Some(bbr) = self.congestion.bbr_mut().filter(|_| bytes > 0) {
            let left = bbr.sampler.on_lost(bytes, first.unwrap_or(now));
            bbr.on_lost(now, bytes, left);
        }
    }

    /// The retransmission timer fired, and by that so many bytes are lost.
    pub(super) fn note_timed_out(&mut self, now: Instant, lost: u32) {
        if !self.congestion.has_model() {
            return;
        }
        self.congestion.on_recovery();
        self.note_lost(now, lost);
        let in_flight = self.pipe();
        if let Some(bbr) = self.congestion.bbr_mut() {
            bbr.on_timeout(in_flight);
        }
    }

    /// All that may leave has left: notes whether the application or the pace holds the sender
    /// back. The latter is [waited](Self::take_pace) for. A peer's window bounds as the path does
    /// (draft-ietf-ccwg-bbr, "Considerations Related to Receiver Flow Control Limits").
    pub(crate) fn note_sent_all(&mut self, now: Instant) {
        if self.pacer().is_none() {
            return;
        }
        let unsent = self.queued_end().distance(self.nxt) > 0;
        let waits = self.sent.lost(self.una) > 0;
        let may_leave = waits || (unsent && self.window_edge().after(self.nxt));
        let in_flight = self.pipe();
        if let Some(pacer) = self.pacer_mut() {
            pacer.set_waiting(may_leave && pacer.due(now).is_some());
        }
        if let Some(bbr) = self.congestion.bbr_mut().filter(|_| !unsent && !waits) {
            bbr.on_app_limited(in_flight);
        }
    }

    /// True if losses are found by time and a recovery is paced by proportional rate reduction.
    pub(super) fn reduces_in_proportion(&self) -> bool {
        self.detection == Detection::Rack && !self.congestion.has_model()
    }
}
