//! The cycle of probing for bandwidth (draft-ietf-ccwg-bbr §5.3.3), and the search for the shortest
//! round trip (§5.3.4).

use super::{Acked, BETA, Bbr, Bounds, State, UNLIMITED, is_too_high};
use crate::time::Instant;

/// BBR.Headroom, in hundredths.
const HEADROOM: u64 = 15;
/// BBR.MinRTTFilterLen.
const MIN_RTT_FILTER_NS: u64 = 10_000_000_000;
/// BBR.ProbeRTTInterval.
const PROBE_RTT_INTERVAL_NS: u64 = 5_000_000_000;
/// BBR.ProbeRTTDuration.
const PROBE_RTT_NS: u64 = 200_000_000;
/// The least of BBR.bw_probe_wait, and what chance adds at most.
const PROBE_WAIT_NS: u64 = 2_000_000_000;
const PROBE_WAIT_MORE_NS: u64 = 1_000_000_000;
/// As many rounds Reno would take at most (T_reno).
const RENO_ROUNDS: u32 = 63;
const SLOPE_ROUNDS_MAX: u8 = 30;

/// BBR.ack_phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AckPhase {
    Init,
    Refilling,
    ProbeStarting,
    ProbeFeedback,
    ProbeStopping,
}

/// State of ProbeBW.
#[derive(Clone, Copy, Debug)]
pub(super) struct ProbeBw {
    ack_phase: AckPhase,
    /// BBR.is_bw_probe_sample.
    pub(super) is_sample: bool,
    /// BBR.bw_probe_up_acked.
    up_acked: u32,
    /// BBR.probe_up_acked_per_inc.
    up_acked_per_inc: u32,
    /// BBR.bw_probe_up_rounds.
    up_rounds: u8,
    /// BBR.rounds_since_probe_up.
    pub(super) rounds_since_up: u32,
    /// BBR.bw_probe_wait.
    wait_ns: u64,
    /// BBR.cycle_stamp.
    pub(super) since: Instant,
    /// BBR.prev_probe_too_high.
    was_too_high: bool,
    /// BBR.prev_probe_precautionary.
    was_precautionary: bool,
    /// Where the sequence of chance stands (xorshift): worlds replay from their seeds.
    chance: u32,
}

impl ProbeBw {
    pub(super) fn new(seed: u32) -> ProbeBw {
        ProbeBw {
            ack_phase: AckPhase::Init,
            is_sample: false,
            up_acked: 0,
            up_acked_per_inc: UNLIMITED,
            up_rounds: 0,
            rounds_since_up: 0,
            wait_ns: 0,
            since: Instant::ZERO,
            was_too_high: false,
            was_precautionary: false,
            chance: seed.max(1),
        }
    }

    fn draw(&mut self) -> u32 {
        self.chance ^= self.chance << 13;
        self.chance ^= self.chance >> 17;
        self.chance ^= self.chance << 5;
        self.chance
    }

    /// PickProbeWait().
    fn pick_wait(&mut self) {
        self.rounds_since_up = self.draw() & 1;
        self.wait_ns = PROBE_WAIT_NS + u64::from(self.draw()) % PROBE_WAIT_MORE_NS;
    }
}

/// The shortest round trip, and when it is looked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct ProbeRtt {
    /// BBR.min_rtt and BBR.min_rtt_stamp; `u64::MAX`: none was measured.
    min_rtt_ns: u64,
    min_rtt_at: Instant,
    /// BBR.probe_rtt_min_delay and BBR.probe_rtt_min_stamp.
    delay_ns: u64,
    delay_at: Instant,
    /// BBR.probe_rtt_expired.
    is_expired: bool,
    /// BBR.probe_rtt_done_stamp.
    pub(super) done_at: Option<Instant>,
    /// BBR.probe_rtt_round_done.
    is_round_done: bool,
}

impl ProbeRtt {
    pub(super) fn new(now: Instant) -> ProbeRtt {
        ProbeRtt {
            min_rtt_ns: u64::MAX,
            min_rtt_at: now,
            delay_ns: u64::MAX,
            delay_at: now,
            is_expired: false,
            done_at: None,
            is_round_done: false,
        }
    }

    /// BBR.min_rtt, if a round trip was measured.
    pub(super) fn min_rtt_ns(&self) -> Option<u64> {
        (self.min_rtt_ns != u64::MAX).then_some(self.min_rtt_ns)
    }
}

impl Bbr {
    /// BBR.min_rtt; 0 before the first sample.
    pub(crate) fn min_rtt_ns(&self) -> u64 {
        self.probe_rtt.min_rtt_ns().unwrap_or(0)
    }

    // ---- ProbeBW

    pub(super) fn start_down(&mut self, now: Instant) {
        self.reset_congestion_signals();
        self.probe_bw.up_acked_per_inc = UNLIMITED;
        self.probe_bw.pick_wait();
        self.probe_bw.since = now;
        self.probe_bw.ack_phase = AckPhase::ProbeStopping;
        self.start_round();
        self.state = State::Down;
    }

    pub(super) fn start_refill(&mut self) {
        self.short = Bounds::NONE;
        self.probe_bw.up_rounds = 0;
        self.probe_bw.up_acked = 0;
        self.probe_bw.was_precautionary = false;
        self.probe_bw.ack_phase = AckPhase::Refilling;
        self.start_round();
        self.state = State::Refill;
    }

    fn start_up(&mut self, rate: u64) {
        self.probe_bw.ack_phase = AckPhase::ProbeStarting;
        self.start_round();
        self.full_bw.restart(rate);
        self.state = State::Up;
        self.raise_slope();
    }

    pub(super) fn update_probe_bw_cycle_phase(&mut self, acked: &Acked) {
        if !self.full_bw.is_reached || self.adapt_long_term_model(acked) {
            return;
        }
        let state = self.state;
        if matches!(state, State::Down | State::Cruise) && self.probes_now(acked.now) {
            return;
        }
        if state == State::Down && self.is_time_to_cruise(acked) {
            self.state = State::Cruise;
        } else if state == State::Refill && self.round.is_start {
            self.probe_bw.is_sample = true;
            self.start_up(acked.sample.map_or(0, |sample| sample.rate));
        } else if state == State::Up && self.is_time_to_go_down(acked) {
            self.probe_bw.was_too_high = false;
            self.start_down(acked.now);
        }
    }

    /// IsTimeToProbeBW(): begins if it is.
    fn probes_now(&mut self, now: Instant) -> bool {
        let has_waited = now > self.probe_bw.since.plus_nanos(self.probe_bw.wait_ns);
        let is_time = has_waited || self.is_reno_coexistence_time();
        if is_time {
            self.start_refill();
        }
        is_time
    }

    fn is_reno_coexistence_time(&self) -> bool {
        let rounds = (self.target_inflight() / self.mss.max(1)).min(RENO_ROUNDS);
        self.probe_bw.rounds_since_up >= rounds
    }

    /// TargetInflight().
    fn target_inflight(&self) -> u32 {
        self.bdp(100).min(self.cwnd)
    }

    fn is_time_to_cruise(&self, acked: &Acked) -> bool {
        let bdp = self.with_budget(self.bdp_at(self.max_bw(), 100));
        acked.in_flight <= self.inflight_with_headroom() && acked.in_flight <= bdp
    }

    fn is_time_to_go_down(&mut self, acked: &Acked) -> bool {
        // Before the ACK: behind it the window leaves room again, so that the bound is never met.
        let in_flight = acked.in_flight.saturating_add(acked.newly_acked);
        if self.probe_bw.was_too_high && in_flight >= self.inflight_longterm {
            self.probe_bw.was_precautionary = true;
            return true;
        }
        if self.is_cwnd_limited() && self.cwnd >= self.inflight_longterm {
            self.full_bw.restart(acked.sample.map_or(0, |sample| sample.rate));
            return false;
        }
        self.full_bw.is_now
    }

    /// InflightWithHeadroom().
    pub(super) fn inflight_with_headroom(&self) -> u32 {
        if self.inflight_longterm == UNLIMITED {
            return UNLIMITED;
        }
        let headroom = (u64::from(self.inflight_longterm) * HEADROOM / 100) as u32;
        let headroom = headroom.max(self.mss);
        self.inflight_longterm.saturating_sub(headroom).max(self.min_pipe())
    }

    /// RaiseInflightLongtermSlope().
    fn raise_slope(&mut self) {
        let growth = 1u32 << self.probe_bw.up_rounds;
        self.probe_bw.up_rounds = (self.probe_bw.up_rounds + 1).min(SLOPE_ROUNDS_MAX);
        self.probe_bw.up_acked_per_inc = (self.cwnd / growth).max(self.mss);
    }

    /// ProbeInflightLongtermUpward().
    fn probe_upward(&mut self, acked: &Acked) {
        if !self.is_cwnd_limited() || self.cwnd < self.inflight_longterm {
            return;
        }
        let probe = &mut self.probe_bw;
        probe.up_acked = probe.up_acked.saturating_add(acked.newly_acked);
        if probe.up_acked >= probe.up_acked_per_inc {
            let steps = probe.up_acked / probe.up_acked_per_inc;
            probe.up_acked -= steps * probe.up_acked_per_inc;
            let more = steps.saturating_mul(self.mss);
            self.inflight_longterm = self.inflight_longterm.saturating_add(more);
        }
        if self.round.is_start {
            self.raise_slope();
        }
    }

    /// AdaptLongTermModel(). True if it has decided on a transition.
    fn adapt_long_term_model(&mut self, acked: &Acked) -> bool {
        let sample = acked.sample.unwrap_or_default();
        if self.probe_bw.ack_phase == AckPhase::ProbeStarting && self.round.is_start {
            self.probe_bw.ack_phase = AckPhase::ProbeFeedback;
        }
        if self.probe_bw.ack_phase == AckPhase::ProbeStopping && self.round.is_start {
            self.probe_bw.is_sample = false;
            self.probe_bw.ack_phase = AckPhase::Init;
            if self.state.is_probe_bw() && !sample.is_app_limited {
                self.advance_max_bw_filter();
            }
            let is_safe = self.probe_bw.was_precautionary && !self.probe_bw.was_too_high;
            if self.state.is_probe_bw() && is_safe {
                self.start_refill();
                return true;
            }
        }
        let is_high =
            is_too_high(sample.lost, sample.in_flight) || (sample.lost > 0 && !acked.has_sack);
        if is_high || self.inflight_longterm == UNLIMITED {
            return false;
        }
        self.inflight_longterm = self.inflight_longterm.max(sample.in_flight);
        if self.state == State::Up {
            self.probe_upward(acked);
        }
        false
    }

    /// AdvanceMaxBwFilter(). A cycle without a sample keeps the last one's.
    fn advance_max_bw_filter(&mut self) {
        if self.max_bw[1] > 0 {
            self.max_bw = [self.max_bw[1], 0];
        }
    }

    /// HandleInflightTooHigh().
    pub(super) fn handle_inflight_too_high(
        &mut self,
        now: Instant,
        in_flight: u32,
        is_app_limited: bool,
    ) {
        self.probe_bw.was_too_high = true;
        self.probe_bw.is_sample = false;
        if !is_app_limited {
            let least = (u64::from(self.target_inflight()) * BETA / 10) as u32;
            self.inflight_longterm = in_flight.max(least);
        }
        if self.state == State::Up {
            self.undo.state = Some(State::Up);
            self.start_down(now);
        }
    }

    // ---- ProbeRTT

    pub(super) fn update_min_rtt(&mut self, acked: &Acked) {
        let (now, probe) = (acked.now, &mut self.probe_rtt);
        probe.is_expired = now > probe.delay_at.plus_nanos(PROBE_RTT_INTERVAL_NS);
        if let Some(sample) = acked.sample
            && (sample.rtt_ns < probe.delay_ns || probe.is_expired)
        {
            (probe.delay_ns, probe.delay_at) = (sample.rtt_ns, now);
        }
        let is_old = now > probe.min_rtt_at.plus_nanos(MIN_RTT_FILTER_NS);
        if probe.delay_ns < probe.min_rtt_ns || is_old {
            (probe.min_rtt_ns, probe.min_rtt_at) = (probe.delay_ns, probe.delay_at);
        }
    }

    pub(super) fn check_probe_rtt(&mut self, acked: &Acked) {
        if self.state != State::ProbeRtt && self.probe_rtt.is_expired && !self.idle_restart {
            self.save_cwnd();
            self.state = State::ProbeRtt;
            self.probe_rtt.done_at = None;
            self.probe_bw.ack_phase = AckPhase::ProbeStopping;
            self.start_round();
        }
        if self.state == State::ProbeRtt {
            self.handle_probe_rtt(acked);
        }
        if acked.sample.is_some_and(|sample| sample.delivered > 0) {
            self.idle_restart = false;
        }
    }

    fn handle_probe_rtt(&mut self, acked: &Acked) {
        self.sampler.on_app_limited(acked.in_flight);
        match self.probe_rtt.done_at {
            None if acked.in_flight <= self.probe_rtt_cwnd() => {
                self.probe_rtt.done_at = Some(acked.now.plus_nanos(PROBE_RTT_NS));
                self.probe_rtt.is_round_done = false;
                self.start_round();
            }
            None => {}
            Some(_) => {
                self.probe_rtt.is_round_done |= self.round.is_start;
                if self.probe_rtt.is_round_done {
                    self.check_probe_rtt_done(acked.now);
                }
            }
        }
    }

    pub(super) fn check_probe_rtt_done(&mut self, now: Instant) {
        if self.probe_rtt.done_at.is_none_or(|done_at| now <= done_at) {
            return;
        }
        self.probe_rtt.delay_at = now;
        self.restore_cwnd();
        self.short = Bounds::NONE;
        if self.full_bw.is_reached {
            self.start_down(now);
            self.state = State::Cruise;
        } else {
            self.state = State::Startup;
        }
    }

    /// ProbeRTTCwnd().
    pub(super) fn probe_rtt_cwnd(&self) -> u32 {
        self.bdp(State::ProbeRtt.cwnd_gain()).max(self.min_pipe())
    }
}
