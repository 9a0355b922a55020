//! BBR, version 3 (draft-ietf-ccwg-bbr): sends at the rate at which the path delivers, with as much
//! in flight as that rate and the shortest round trip call for, whatever is lost of it.
//!
//! ```text
//!   Startup ─▶ Drain ─▶ ProbeBW: Down ─▶ Cruise ─▶ Refill ─▶ Up ─┐     ProbeRTT: from any state,
//!                                 ▲                              │     5 s after the last short
//!                                 └──────────────────────────────┘     round trip
//! ```
//!
//! The names are the draft's. Rates are bytes a second, volumes bytes; infinite is the largest
//! value. `model` takes in ACKs and losses, and `probe` has the cycle of ProbeBW and ProbeRTT.

mod model;
mod probe;

use super::delivery::{LostSample, Sample, Sampler};
use super::pacer::{burst, volume};
use crate::tcp::PathModel;
use crate::time::Instant;
use probe::{ProbeBw, ProbeRtt};

const UNLIMITED_RATE: u64 = u64::MAX;
const UNLIMITED: u32 = u32::MAX;

/// BBR.StartupPacingGain, in hundredths, as all gains are.
const STARTUP_PACING_GAIN: u64 = 277;
const DRAIN_PACING_GAIN: u64 = 50;
const DEFAULT_CWND_GAIN: u64 = 200;
/// BBR.PacingMarginPercent.
const PACING_MARGIN: u64 = 1;
/// BBR.LossThresh, in hundredths.
const LOSS_THRESH: u64 = 2;
/// BBR.Beta, in tenths.
const BETA: u64 = 7;
/// BBRStartupFullLossCnt.
const STARTUP_LOSSES: u8 = 6;
/// Rounds without growth that show a full pipe.
const FULL_BW_ROUNDS: u8 = 3;
/// BBR.MinPipeCwnd, in segments.
const MIN_PIPE_SEGMENTS: u32 = 4;
/// Rounds after which Drain ends in any case.
const DRAIN_ROUNDS: u64 = 3;
/// Half of BBR.ExtraAckedFilterLen: the filter has two halves.
const EXTRA_ACKED_HALF: u64 = 5;

/// BBR.state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Startup,
    Drain,
    Down,
    Cruise,
    Refill,
    Up,
    ProbeRtt,
}

impl State {
    /// IsInAProbeBWState().
    fn is_probe_bw(self) -> bool {
        matches!(self, State::Down | State::Cruise | State::Refill | State::Up)
    }

    /// IsProbingBW().
    fn is_probing(self) -> bool {
        matches!(self, State::Startup | State::Refill | State::Up)
    }

    /// BBR.pacing_gain.
    fn pacing_gain(self) -> u64 {
        match self {
            State::Startup => STARTUP_PACING_GAIN,
            State::Drain => DRAIN_PACING_GAIN,
            State::Down => 90,
            State::Cruise | State::Refill | State::ProbeRtt => 100,
            State::Up => 125,
        }
    }

    /// BBR.cwnd_gain.
    fn cwnd_gain(self) -> u64 {
        match self {
            State::ProbeRtt => 50,
            State::Up => 225,
            _ => DEFAULT_CWND_GAIN,
        }
    }
}

/// What an ACK brings, once what is lost has been found.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Acked {
    /// When.
    pub now: Instant,
    /// RS.newly_acked, bytes.
    pub newly_acked: u32,
    /// The rate sample, if there is one.
    pub sample: Option<Sample>,
    /// C.inflight behind it, bytes.
    pub in_flight: u32,
    /// Something more was found lost by it.
    pub has_lost: bool,
    /// C.has_selective_acks.
    pub has_sack: bool,
}

/// BBR and what it steers.
#[derive(Clone, Debug)]
pub(crate) struct Bbr {
    /// Samples the rate.
    pub sampler: Sampler,
    /// C.pacing_rate, bytes a second.
    pacing_rate: u64,
    /// C.cwnd.
    cwnd: u32,
    /// C.InitialCwnd.
    initial_cwnd: u32,
    mss: u32,
    state: State,
    round: Round,
    full_bw: FullBw,
    /// BBR.max_bw_filter: the greatest of the last cycle and of this one.
    max_bw: [u64; 2],
    /// BBR.bw_shortterm and BBR.inflight_shortterm.
    short: Bounds,
    /// BBR.inflight_longterm.
    inflight_longterm: u32,
    signals: Signals,
    extra: ExtraAcked,
    probe_bw: ProbeBw,
    probe_rtt: ProbeRtt,
    /// BBR.drain_start_round.
    drain_start_round: u64,
    /// BBR.prior_cwnd.
    prior_cwnd: u32,
    /// The connection recovers from a loss.
    in_recovery: bool,
    /// BBR.idle_restart.
    idle_restart: bool,
    /// Something has left.
    has_begun: bool,
    /// The pacing rate follows from a round trip that was measured.
    has_rtt: bool,
    undo: Undo,
}

/// Round trips counted by packets.
#[derive(Clone, Copy, Debug, Default)]
struct Round {
    /// BBR.round_count.
    count: u64,
    /// BBR.round_start.
    is_start: bool,
    /// BBR.next_round_delivered.
    next_delivered: u64,
    /// C.cwnd was fully used in this round, and in the one before.
    is_cwnd_limited: bool,
    was_cwnd_limited: bool,
}

/// Whether the pipe is full.
#[derive(Clone, Copy, Debug, Default)]
struct FullBw {
    /// BBR.full_bw_reached.
    is_reached: bool,
    /// BBR.full_bw_now.
    is_now: bool,
    /// BBR.full_bw.
    bw: u64,
    /// BBR.full_bw_count.
    count: u8,
}

impl FullBw {
    /// ResetFullBW(), with a baseline.
    fn restart(&mut self, bw: u64) {
        (self.bw, self.count, self.is_now) = (bw, 0, false);
    }
}

/// A rate and a volume that bound what is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Bounds {
    bw: u64,
    inflight: u32,
}

impl Bounds {
    const NONE: Bounds = Bounds { bw: UNLIMITED_RATE, inflight: UNLIMITED };
}

/// State for responding to congestion.
#[derive(Clone, Copy, Debug, Default)]
struct Signals {
    /// BBR.bw_latest.
    bw_latest: u64,
    /// BBR.inflight_latest.
    inflight_latest: u32,
    /// BBR.loss_round_delivered.
    round_delivered: u64,
    /// BBR.loss_round_start.
    round_start: bool,
    /// BBR.is_loss_in_round.
    is_loss_in_round: bool,
    /// Times in this round that something was found lost.
    losses: u8,
}

/// BBR.extra_acked and what it is estimated from.
#[derive(Clone, Copy, Debug)]
struct ExtraAcked {
    interval_start: Instant,
    delivered: u32,
    /// The greatest of this half of the window and of the half before.
    most: [u32; 2],
    /// The round in which this half began.
    since_round: u64,
}

/// What undoes a reduction.
#[derive(Clone, Copy, Debug)]
struct Undo {
    /// BBR.undo_state.
    state: Option<State>,
    short: Bounds,
    inflight_longterm: u32,
}

impl Bbr {
    /// OnInit(), but for the times, which begin with the first segment. `seed` decides when it
    /// probes.
    pub(crate) fn new(initial_cwnd: u32, mss: u32, seed: u32) -> Bbr {
        let (rate, now) = (initial_rate(initial_cwnd, 0), Instant::ZERO);
        Bbr {
            sampler: Sampler::new(now),
            pacing_rate: rate,
            cwnd: initial_cwnd,
            initial_cwnd,
            mss,
            state: State::Startup,
            round: Round::default(),
            full_bw: FullBw::default(),
            max_bw: [0; 2],
            short: Bounds::NONE,
            inflight_longterm: UNLIMITED,
            signals: Signals::default(),
            extra: ExtraAcked { interval_start: now, delivered: 0, most: [0; 2], since_round: 0 },
            probe_bw: ProbeBw::new(seed),
            probe_rtt: ProbeRtt::new(now),
            drain_start_round: 0,
            prior_cwnd: 0,
            in_recovery: false,
            idle_restart: false,
            has_begun: false,
            has_rtt: false,
            undo: Undo { state: None, short: Bounds::NONE, inflight_longterm: UNLIMITED },
        }
    }

    /// What is known of the path.
    pub(crate) fn info(&self) -> PathModel {
        PathModel { bandwidth_bytes_per_second: self.max_bw() }
    }

    /// C.cwnd.
    pub(crate) fn cwnd(&self) -> u32 {
        self.cwnd
    }

    /// C.pacing_rate, bytes a second.
    pub(crate) fn pacing_rate(&self) -> u64 {
        self.pacing_rate
    }

    /// BBR.max_bw.
    pub(crate) fn max_bw(&self) -> u64 {
        self.max_bw[0].max(self.max_bw[1])
    }

    /// BBR.bw.
    fn bw(&self) -> u64 {
        self.max_bw().min(self.short.bw)
    }

    /// The window one round trip on, if it is `window` now and nothing is lost.
    pub(crate) fn next(&self, window: u32) -> u32 {
        match self.full_bw.is_reached {
            true => self.max_inflight().max(window),
            false => window.saturating_mul(2),
        }
    }

    // ---- what happens

    fn begin(&mut self, now: Instant) {
        self.has_begun = true;
        if self.sampler.is_blank() {
            self.sampler = Sampler::new(now);
        }
        self.extra.interval_start = now;
        self.probe_rtt = ProbeRtt::new(now);
    }

    /// OnTransmit(), before anything leaves with `in_flight` bytes in the network.
    fn on_transmit(&mut self, now: Instant, in_flight: u32) {
        if in_flight > 0 || !self.sampler.is_app_limited() {
            return;
        }
        self.idle_restart = true;
        self.extra.interval_start = now;
        if self.state.is_probe_bw() {
            self.set_pacing_rate(100);
        } else if self.state == State::ProbeRtt {
            self.check_probe_rtt_done(now);
        }
    }

    /// So many bytes leave, new or again, with `in_flight` in the network before them.
    pub(crate) fn on_sent(&mut self, now: Instant, bytes: u32, in_flight: u32) {
        if !self.has_begun {
            self.begin(now);
        }
        self.on_transmit(now, in_flight);
        let behind = in_flight.saturating_add(bytes);
        self.sampler.on_sent(now, behind, in_flight == 0);
        if behind.saturating_add(self.mss) > self.cwnd {
            self.round.is_cwnd_limited = true;
        }
    }

    /// UpdateOnACK().
    pub(crate) fn on_ack(&mut self, acked: &Acked) {
        // The ACK that opens the connection comes before its clocks begin.
        if !self.has_begun {
            return;
        }
        self.note_rtt(acked);
        self.update_latest_delivery_signals(acked);
        self.update_congestion_signals(acked);
        self.update_ack_aggregation(acked);
        self.check_full_bw_reached(acked);
        self.check_startup_done(acked);
        self.check_drain_done(acked);
        self.update_probe_bw_cycle_phase(acked);
        self.update_min_rtt(acked);
        self.check_probe_rtt(acked);
        self.advance_latest_delivery_signals(acked);
        self.set_pacing_rate(self.state.pacing_gain());
        self.set_cwnd(acked);
    }

    /// HandleLostPacket(): `bytes` are lost, which left when `lost` was so.
    pub(crate) fn on_lost(&mut self, now: Instant, bytes: u32, lost: Option<LostSample>) {
        self.note_loss();
        self.signals.losses = self.signals.losses.saturating_add(1);
        let Some(lost) = lost.filter(|_| self.probe_bw.is_sample) else { return };
        if is_too_high(lost.lost, lost.in_flight) {
            let in_flight = inflight_at_loss(lost, bytes, self.mss);
            self.handle_inflight_too_high(now, in_flight, lost.is_app_limited);
        }
    }

    /// OnEnterFastRecovery(), and the beginning of OnEnterRTO(): before it hears of what is lost,
    /// so that an undo gives that back as well.
    pub(crate) fn on_recovery(&mut self) {
        self.save_cwnd();
        self.save_state();
        self.in_recovery = true;
    }

    /// The rest of OnEnterRTO(), with so much in flight once it has heard of what is lost.
    pub(crate) fn on_timeout(&mut self, in_flight: u32) {
        self.cwnd = in_flight.saturating_add(self.mss);
    }

    /// All that was lost has been repaired.
    pub(crate) fn on_recovered(&mut self) {
        if self.in_recovery {
            self.in_recovery = false;
            self.restore_cwnd();
        }
    }

    /// HandleSpuriousLossDetection().
    pub(crate) fn on_spurious(&mut self) {
        self.in_recovery = false;
        self.restore_cwnd();
        self.signals.is_loss_in_round = false;
        self.full_bw.restart(0);
        self.short.bw = self.short.bw.max(self.undo.short.bw);
        self.short.inflight = self.short.inflight.max(self.undo.short.inflight);
        self.inflight_longterm = self.inflight_longterm.max(self.undo.inflight_longterm);
        match self.undo.state.take() {
            Some(State::Startup) if self.state != State::Startup => {
                self.full_bw.is_reached = false;
                if self.state != State::ProbeRtt {
                    self.state = State::Startup;
                }
            }
            Some(State::Up) if self.state != State::Up && self.state != State::ProbeRtt => {
                self.start_refill();
            }
            _ => {}
        }
    }

    /// The SYN was lost: the connection starts with one segment (RFC 5681 §3.1).
    pub(crate) fn on_handshake_loss(&mut self) {
        self.cwnd = self.mss;
    }

    /// The largest segment has another size.
    pub(crate) fn on_mss(&mut self, mss: u32) {
        self.mss = mss;
        self.cwnd = self.cwnd.max(mss);
    }

    // ---- what follows from the model

    /// SaveCwnd().
    fn save_cwnd(&mut self) {
        self.prior_cwnd = match self.in_recovery || self.state == State::ProbeRtt {
            true => self.prior_cwnd.max(self.cwnd),
            false => self.cwnd,
        };
    }

    /// RestoreCwnd().
    fn restore_cwnd(&mut self) {
        self.cwnd = self.cwnd.max(self.prior_cwnd);
    }

    /// SetPacingRateWithGain().
    fn set_pacing_rate(&mut self, gain: u64) {
        let rate = u128::from(self.bw()) * u128::from(gain * (100 - PACING_MARGIN)) / 10_000;
        let rate = u64::try_from(rate).unwrap_or(u64::MAX);
        if rate > 0 && (self.full_bw.is_reached || rate > self.pacing_rate) {
            self.pacing_rate = rate;
        }
    }

    /// BBR.bdp times `gain` hundredths: BDPMultiple().
    fn bdp(&self, gain: u64) -> u32 {
        self.bdp_at(self.bw(), gain)
    }

    fn bdp_at(&self, bw: u64, gain: u64) -> u32 {
        match self.probe_rtt.min_rtt_ns() {
            None => self.initial_cwnd,
            Some(ns) => (u64::from(volume(bw, ns)) * gain / 100).min(UNLIMITED.into()) as u32,
        }
    }

    /// BBR.MinPipeCwnd.
    fn min_pipe(&self) -> u32 {
        MIN_PIPE_SEGMENTS * self.mss
    }

    /// QuantizationBudget().
    fn with_budget(&self, inflight: u32) -> u32 {
        let most = inflight.max(3 * burst(self.pacing_rate, self.mss)).max(self.min_pipe());
        if self.state == State::Up { most.saturating_add(2 * self.mss) } else { most }
    }

    /// Inflight(gain).
    fn inflight(&self, gain: u64) -> u32 {
        self.with_budget(self.bdp(gain))
    }

    /// BBR.max_inflight.
    fn max_inflight(&self) -> u32 {
        let extra = self.extra.most[0].max(self.extra.most[1]);
        self.with_budget(self.bdp(self.state.cwnd_gain()).saturating_add(extra))
    }

    fn set_cwnd(&mut self, acked: &Acked) {
        let most = self.max_inflight();
        let grown = self.cwnd.saturating_add(acked.newly_acked);
        if self.full_bw.is_reached {
            self.cwnd = grown.min(most);
        } else if self.cwnd < most || self.sampler.delivered() < self.initial_cwnd.into() {
            self.cwnd = grown;
        }
        self.cwnd = self.cwnd.max(self.min_pipe());
        if self.state == State::ProbeRtt {
            self.cwnd = self.cwnd.min(self.probe_rtt_cwnd());
        }
        self.bound_cwnd_for_model();
    }

    fn bound_cwnd_for_model(&mut self) {
        let cap = match self.state {
            State::Cruise | State::ProbeRtt => self.inflight_with_headroom(),
            State::Down | State::Refill | State::Up => self.inflight_longterm,
            State::Startup | State::Drain => UNLIMITED,
        };
        let cap = cap.min(self.short.inflight).max(self.min_pipe());
        self.cwnd = self.cwnd.min(cap);
    }
}

/// IsInflightTooHigh().
fn is_too_high(lost: u32, in_flight: u32) -> bool {
    u64::from(lost) * 100 > u64::from(in_flight) * LOSS_THRESH
}

/// InflightAtLoss(): what was in flight when the losses crossed the threshold. The last `bytes`
/// were found lost together. The draft hears of them packet by packet, and looks at the one that
/// crosses.
fn inflight_at_loss(lost: LostSample, bytes: u32, mss: u32) -> u32 {
    let (in_flight, mss) = (u64::from(lost.in_flight), u64::from(mss));
    let lost_before = u64::from(lost.lost.saturating_sub(bytes));
    let borne = (in_flight * LOSS_THRESH / 100).saturating_sub(lost_before);
    let before = in_flight.saturating_sub(mss);
    let lost_before = lost_before + borne / mss * mss;
    let prefix = (before * LOSS_THRESH).saturating_sub(lost_before * 100) / (100 - LOSS_THRESH);
    (before + prefix).min(UNLIMITED.into()) as u32
}

/// InitPacingRate().
fn initial_rate(initial_cwnd: u32, srtt_ns: u64) -> u64 {
    let srtt_ns = if srtt_ns == 0 { 1_000_000 } else { srtt_ns };
    let nominal = u128::from(initial_cwnd) * 1_000_000_000 / u128::from(srtt_ns);
    u64::try_from(nominal * u128::from(STARTUP_PACING_GAIN) / 100).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
