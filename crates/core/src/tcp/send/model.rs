//! Feeds a congestion control that models the path, and asks it when the next burst may leave.
//! Where the algorithm has no model, all of it does nothing, for one comparison: what is in flight
//! is only counted behind it.

use super::SendHalf;
use super::recovery::Detection;
use crate::tcp::congestion::{AckOutcome, Acked};
use crate::time::Instant;

impl SendHalf {
    /// So many bytes have left, new or again, and count as in flight.
    pub(crate) fn note_departure(&mut self, now: Instant, bytes: u32) {
        if !self.congestion.has_model() {
            return;
        }
        let before = self.pipe().saturating_sub(bytes);
        if let Some(bbr) = self.congestion.bbr_mut() {
            bbr.on_sent(now, bytes, before);
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
        if !self.congestion.has_model() {
            return;
        }
        self.note_lost(now, outcome.lost);
        let (in_flight, has_sack) = (self.pipe(), self.has_sack());
        let Some(bbr) = self.congestion.bbr_mut() else { return };
        let (newly_acked, min_rtt_ns) = (outcome.delivered, bbr.min_rtt_ns());
        let sample = bbr.sampler.on_delivered(now, newly_acked, latest, min_rtt_ns);
        let has_lost = outcome.lost > 0;
        bbr.on_ack(&Acked { now, newly_acked, sample, in_flight, has_lost, has_sack });
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
        if !self.congestion.has_model() {
            return;
        }
        let unsent = self.queued_end().distance(self.nxt) > 0;
        let waits = self.sent.lost(self.una) > 0;
        let may_leave = waits || (unsent && self.window_edge().after(self.nxt));
        let in_flight = self.pipe();
        let Some(bbr) = self.congestion.bbr_mut() else { return };
        bbr.pacer.set_waiting(may_leave && bbr.pacer.due(now).is_some());
        if !unsent && !waits {
            bbr.on_app_limited(in_flight);
        }
    }

    /// When the next burst may leave, if something waits for that and the schedule has not heard of
    /// it.
    pub(crate) fn take_pace(&mut self) -> Option<Instant> {
        self.congestion.bbr_mut()?.pacer.take_entry()
    }

    /// The schedule has come to the connection.
    pub(crate) fn on_pace(&mut self) {
        if let Some(bbr) = self.congestion.bbr_mut() {
            bbr.pacer.on_due();
        }
    }

    /// Bytes of `room` that the pace lets out now, in segments of `segment` bytes.
    pub(super) fn paced(&self, now: Instant, room: u32, segment: u32) -> u32 {
        let Some(bbr) = self.congestion.bbr() else { return room };
        let allowed = bbr.pacer.allowed(now);
        if allowed < segment { 0 } else { room.min(allowed) }
    }

    /// True if losses are found by time and a recovery is paced by proportional rate reduction.
    pub(super) fn reduces_in_proportion(&self) -> bool {
        self.detection == Detection::Rack && !self.congestion.has_model()
    }
}
