//! What BBR takes in of an ACK and of a loss (draft-ietf-ccwg-bbr §5.5 and §5.3.1).

use super::{
    Acked, BETA, Bbr, DRAIN_ROUNDS, EXTRA_ACKED_HALF, FULL_BW_ROUNDS, STARTUP_LOSSES, State,
    UNLIMITED, UNLIMITED_RATE, Undo, initial_rate, is_too_high, volume,
};

impl Bbr {
    pub(super) fn note_rtt(&mut self, acked: &Acked) {
        if self.has_rtt {
            return;
        }
        if let Some(sample) = acked.sample {
            self.has_rtt = true;
            self.pacing_rate = initial_rate(self.initial_cwnd, sample.rtt_ns);
        }
    }

    pub(super) fn update_latest_delivery_signals(&mut self, acked: &Acked) {
        self.signals.round_start = false;
        let Some(sample) = acked.sample else { return };
        let signals = &mut self.signals;
        signals.bw_latest = signals.bw_latest.max(sample.rate);
        signals.inflight_latest = signals.inflight_latest.max(sample.delivered);
        if sample.prior_delivered >= signals.round_delivered {
            signals.round_delivered = self.sampler.delivered();
            signals.round_start = true;
        }
    }

    pub(super) fn advance_latest_delivery_signals(&mut self, acked: &Acked) {
        if let Some(sample) = acked.sample.filter(|_| self.signals.round_start) {
            self.signals.bw_latest = sample.rate;
            self.signals.inflight_latest = sample.delivered;
        }
    }

    pub(super) fn update_congestion_signals(&mut self, acked: &Acked) {
        self.update_round(acked);
        if let Some(sample) = acked.sample
            && (sample.rate >= self.max_bw() || !sample.is_app_limited)
        {
            self.max_bw[1] = self.max_bw[1].max(sample.rate);
        }
        if !self.signals.round_start {
            return;
        }
        if !self.state.is_probing() && self.signals.is_loss_in_round {
            self.adapt_lower_bounds();
        }
        self.signals.is_loss_in_round = false;
    }

    /// UpdateRound().
    pub(super) fn update_round(&mut self, acked: &Acked) {
        let next = self.round.next_delivered;
        self.round.is_start = acked.sample.is_some_and(|sample| sample.prior_delivered >= next);
        if self.round.is_start {
            self.start_round();
            self.round.count += 1;
            self.probe_bw.rounds_since_up = self.probe_bw.rounds_since_up.saturating_add(1);
            self.round.was_cwnd_limited = self.round.is_cwnd_limited;
            self.round.is_cwnd_limited = false;
        }
    }

    /// StartRound().
    pub(super) fn start_round(&mut self) {
        self.round.next_delivered = self.sampler.delivered();
    }

    /// C.is_cwnd_limited.
    pub(super) fn is_cwnd_limited(&self) -> bool {
        self.round.is_cwnd_limited || self.round.was_cwnd_limited
    }

    /// InitLowerBounds() and LossLowerBounds().
    pub(super) fn adapt_lower_bounds(&mut self) {
        if self.short.bw == UNLIMITED_RATE {
            self.short.bw = self.max_bw();
        }
        if self.short.inflight == UNLIMITED {
            self.short.inflight = self.cwnd;
        }
        let bw = self.short.bw / 10 * BETA;
        let inflight = (u64::from(self.short.inflight) * BETA / 10) as u32;
        self.short.bw = self.signals.bw_latest.max(bw);
        self.short.inflight = self.signals.inflight_latest.max(inflight);
    }

    pub(super) fn update_ack_aggregation(&mut self, acked: &Acked) {
        let mut expected = volume(self.bw(), acked.now.nanos_since(self.extra.interval_start));
        if self.extra.delivered <= expected {
            (self.extra.delivered, self.extra.interval_start) = (0, acked.now);
            expected = 0;
        }
        self.extra.delivered = self.extra.delivered.saturating_add(acked.newly_acked);
        let extra = (self.extra.delivered - expected).min(self.cwnd);
        let half = if self.full_bw.is_reached { EXTRA_ACKED_HALF } else { 1 };
        if self.round.count >= self.extra.since_round + half {
            let before = if self.full_bw.is_reached { self.extra.most[1] } else { 0 };
            (self.extra.most, self.extra.since_round) = ([before, 0], self.round.count);
        }
        self.extra.most[1] = self.extra.most[1].max(extra);
    }

    pub(super) fn check_full_bw_reached(&mut self, acked: &Acked) {
        let Some(sample) = acked.sample else { return };
        if self.full_bw.is_now || !self.round.is_start || sample.is_app_limited {
            return;
        }
        if u128::from(sample.rate) * 4 >= u128::from(self.full_bw.bw) * 5 {
            return self.full_bw.restart(sample.rate);
        }
        self.full_bw.count += 1;
        self.full_bw.is_now = self.full_bw.count >= FULL_BW_ROUNDS;
        self.full_bw.is_reached |= self.full_bw.is_now;
    }

    pub(super) fn check_startup_done(&mut self, acked: &Acked) {
        self.check_startup_high_loss(acked);
        if self.state == State::Startup && self.full_bw.is_reached {
            self.state = State::Drain;
            self.drain_start_round = self.round.count;
        }
    }

    /// CheckStartupHighLoss().
    pub(super) fn check_startup_high_loss(&mut self, acked: &Acked) {
        if self.full_bw.is_reached || self.state != State::Startup {
            return;
        }
        let is_too_high = match acked.has_sack {
            false => self.in_recovery && acked.has_lost,
            true => {
                self.signals.round_start
                    && self.in_recovery
                    && self.signals.losses >= STARTUP_LOSSES
                    && acked.sample.is_some_and(|rs| is_too_high(rs.lost, rs.in_flight))
            }
        };
        if is_too_high {
            self.undo.state = Some(State::Startup);
            self.full_bw.is_reached = true;
            self.inflight_longterm = self.bdp(100).max(self.signals.inflight_latest);
        } else if self.signals.round_start {
            self.signals.losses = 0;
        }
    }

    pub(super) fn check_drain_done(&mut self, acked: &Acked) {
        if self.state == State::Drain
            && (acked.in_flight <= self.inflight(100)
                || self.round.count > self.drain_start_round + DRAIN_ROUNDS)
        {
            self.start_down(acked.now);
        }
    }

    /// NoteLoss().
    pub(super) fn note_loss(&mut self) {
        if !self.signals.is_loss_in_round {
            self.signals.round_delivered = self.sampler.delivered();
            self.save_state();
        }
        self.signals.is_loss_in_round = true;
    }

    /// SaveStateUponLoss(). What a recovery kept at its beginning is what its undo gives back.
    pub(super) fn save_state(&mut self) {
        if self.in_recovery {
            return;
        }
        self.undo =
            Undo { state: None, short: self.short, inflight_longterm: self.inflight_longterm };
    }

    /// ResetCongestionSignals().
    pub(super) fn reset_congestion_signals(&mut self) {
        self.signals.is_loss_in_round = false;
        (self.signals.bw_latest, self.signals.inflight_latest) = (0, 0);
    }
}
