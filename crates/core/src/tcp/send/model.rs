//! Feeds what samples the rate of delivery, a congestion control that models the path by it, and
//! the pacer. There is one sampler: that of the model, or that of an account where there is no
//! model. What models the path is paced. Where segments are neither counted nor paced, all of it
//! does nothing, for one comparison: what is in flight is only counted behind that.

use super::SendHalf;
use super::recovery::Detection;
use crate::config::Algorithm;
use crate::tcp::DeliveryRate;
use crate::tcp::congestion::delivery::Sampler;
use crate::tcp::congestion::{AckOutcome, Acked};
use crate::time::Instant;

impl SendHalf {
    fn sampler(&self) -> Option<&Sampler> {
        let of_model = self.congestion.bbr().map(|bbr| &bbr.sampler);
        of_model.or_else(|| Some(&self.ledger()?.sampler))
    }

    fn sampler_mut(&mut self) -> Option<&mut Sampler> {
        if self.congestion.has_model() {
            return Some(&mut self.congestion.bbr_mut()?.sampler);
        }
        Some(&mut self.ledger_mut()?.sampler)
    }

    /// The rate at which the path delivered lately, if that is sampled.
    pub(crate) fn delivery(&self) -> Option<DeliveryRate> {
        self.sampler()?.told()
    }

    /// Goes on by another algorithm. What was sampled goes with it.
    pub(crate) fn switch_congestion(&mut self, algorithm: Algorithm) {
        let sampler = self.sampler_mut().map(Sampler::take);
        self.congestion.switch(algorithm, self.mss.into(), self.nxt);
        if let (Some(sampler), Some(place)) = (sampler, self.sampler_mut()) {
            *place = sampler;
        }
    }

    /// So many bytes have left, new or again, and count as in flight.
    pub(crate) fn note_departure(&mut self, now: Instant, bytes: u32) {
        if !self.takes_steps() {
            return;
        }
        let before = self.pipe().saturating_sub(bytes);
        if let Some(bbr) = self.congestion.bbr_mut() {
            bbr.on_sent(now, bytes, before);
            self.update_pace();
        } else if let Some(sampler) = self.sampler_mut() {
            sampler.on_sent(now, before.saturating_add(bytes), before == 0);
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
        if !self.takes_steps() {
            return;
        }
        self.note_lost(now, outcome.lost);
        let (newly_acked, min_rtt_ns) = (outcome.delivered, self.least_rtt_ns(outcome));
        let sampler = self.sampler_mut();
        let sample =
            sampler.and_then(|sampler| sampler.on_delivered(now, newly_acked, latest, min_rtt_ns));
        let (in_flight, has_sack, has_lost) = (self.pipe(), self.has_sack(), outcome.lost > 0);
        if let Some(bbr) = self.congestion.bbr_mut() {
            bbr.on_ack(&Acked { now, newly_acked, sample, in_flight, has_lost, has_sack });
        }
        // The ACK that opens the connection delivers nothing, and tells a round trip all the same.
        if self.congestion.has_model() || newly_acked > 0 {
            self.update_pace();
        }
    }

    /// The least round trip known, by which a sample of the rate is judged: the model's before this
    /// ACK, or what is known otherwise, with this ACK. 0: none is.
    fn least_rtt_ns(&self, outcome: &AckOutcome) -> u64 {
        let least_ns = self.reordering.min_rtt_ns();
        match self.congestion.bbr() {
            Some(bbr) => bbr.min_rtt_ns(),
            None if outcome.rtt_ns > 0 => least_ns.min(outcome.rtt_ns),
            None => least_ns,
        }
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
    /// (draft-ietf-ccwg-bbr, "Considerations Related to Receiver Flow Control Limits"). Only
    /// where segments are counted or paced.
    pub(crate) fn note_sent_all(&mut self, now: Instant) {
        let unsent = self.queued_end().distance(self.nxt) > 0;
        let waits = self.sent.lost(self.una) > 0;
        let may_leave = waits || (unsent && self.window_edge().after(self.nxt));
        let in_flight = self.pipe();
        if let Some(pacer) = self.pacer_mut() {
            pacer.set_waiting(may_leave && pacer.due(now).is_some());
        }
        let is_limited = !unsent && !waits && in_flight < self.congestion.window();
        if let Some(sampler) = self.sampler_mut().filter(|_| is_limited) {
            sampler.on_app_limited(in_flight);
        }
    }

    /// True if losses are found by time and a recovery is paced by proportional rate reduction.
    pub(super) fn reduces_in_proportion(&self) -> bool {
        self.detection == Detection::Rack && !self.congestion.has_model()
    }
}
