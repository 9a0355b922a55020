//! Round-trip time and the retransmission timeout (RFC 6298), and the estimators it is compared
//! with.
//!
//! Samples are the age of a segment when its acknowledgement arrives, on the measurement clock,
//! taken only from segments sent once (Karn's rule). Many samples a round trip would make the gains
//! of RFC 6298 §2.3 forget too fast, so they are divided as RFC 7323 Appendix G says.
//!
//! `RTO = SRTT + max(G, 4·RTTVAR, floor)`: the floor is added and not compared with the sum, so
//! that it covers a receiver that delays the ACK of a lone tail segment whatever the RTT is.

mod scaled;

pub use scaled::{Scale, Scaled};

use alloc::boxed::Box;

use crate::config::{Estimator, TcpConfig};
use crate::time::{Duration, Instant, as_nanos};

/// What 4.4BSD's slow timer counts in (PR_SLOWHZ = 2).
const BSD_TICK_NS: u64 = 500_000_000;
/// 4.4BSD's least timeout, in ticks: one of them may be over at once.
const BSD_MIN_TICKS: u64 = 2;
/// What the fine estimator's arithmetic counts in: the table of Fig. 12 prints whole ms.
const FINE_TICK_NS: u64 = 1_000_000;

/// An estimator in scaled integers, and the clock that it counts on.
#[derive(Clone, Copy, Debug)]
struct Coarse {
    scaled: Scaled,
    tick_ns: u64,
    min_ticks: u64,
}

/// The bounds of the timeouts of all connections: durations of the configuration, in ns.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    estimator: Estimator,
    initial_ns: u64,
    floor_ns: u64,
    pub(crate) longest_ns: u64,
    /// The least that is added to SRTT: the floor, or G, which is the coarser of the two clocks
    /// that take part (RFC 6298 §2.3).
    least_ns: u64,
    /// No timeout is shorter, of whatever connection.
    shortest_ns: u64,
    /// A tick of the measurement clock, a second at most.
    measure_ns: u32,
}

impl Bounds {
    /// No timeout is shorter than this, in ns.
    pub(crate) fn shortest_ns(&self) -> u64 {
        self.shortest_ns
    }

    /// The timeout of a SYN that has been sent `attempts` times (RFC 6298 §5.5), in ns.
    pub(crate) fn syn_rto_ns(&self, attempts: u8) -> u64 {
        let doublings = attempts.saturating_sub(1).min(16);
        self.initial_ns.saturating_mul(1 << doublings).min(self.longest_ns)
    }

    /// The estimator that is configured.
    pub fn new(config: &TcpConfig) -> Self {
        let measure_ns = (1_000_000_000 / config.clock.measure_hz.max(1)).max(1) as u32;
        let floor_ns = as_nanos(config.rto.floor);
        let (initial_ns, longest_ns) = (as_nanos(config.rto.initial), as_nanos(config.rto.max));
        let least_ns = floor_ns.max(as_nanos(config.clock.tick)).max(measure_ns.into());
        let shortest_ns = match config.rto.estimator {
            Estimator::Rfc6298 => least_ns.min(initial_ns).min(longest_ns),
            // What they make of a sample is not looked into.
            _ => 0,
        };
        Bounds {
            estimator: config.rto.estimator,
            initial_ns,
            floor_ns,
            longest_ns,
            least_ns,
            shortest_ns,
            measure_ns,
        }
    }
}

/// The estimator of one connection. 40 bytes.
#[derive(Debug)]
pub struct Rtt {
    /// SRTT; 0 before the first sample, and by any estimator but the default.
    srtt_ns: u64,
    /// RTTVAR; before the first sample the RTO.
    rttvar_ns: u64,
    /// The latest sample and the least, which are only reported: 4.2 s stand for more. 0 and the
    /// largest value before the first.
    latest_ns: u32,
    least_ns: u32,
    /// An estimator that is not the default.
    coarse: Option<Box<Coarse>>,
    /// A tick of the measurement clock, a second at most.
    measure_ns: u32,
    /// Timeouts in a row.
    backoff: u8,
    /// Doublings of the RTO: they outlast the back-off until there is a sample.
    doublings: u8,
    /// A sample has come since the last loss probe.
    fresh: bool,
    /// A loss probe was answered by a D-SACK: the peer delays its ACKs longer than probes wait.
    late_acks: bool,
}

/// An estimator between samples, of an RTT up to 4.2 s. 20 bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AtRest {
    srtt_ns: u32,
    /// RTTVAR; before the first sample the RTO.
    rttvar_ns: u32,
    latest_ns: u32,
    least_ns: u32,
    /// A second at most, and in the highest bits what is known of loss probes.
    measure_ns: u32,
}

/// The peer's ACKs are late, in [`AtRest::measure_ns`].
const LATE_ACKS: u32 = 1 << 31;
/// No sample has come since the last loss probe.
const STALE: u32 = 1 << 30;

impl AtRest {
    /// The estimator again.
    pub(crate) fn estimator(&self) -> Rtt {
        let AtRest { srtt_ns, rttvar_ns, latest_ns, least_ns, measure_ns } = *self;
        let [srtt_ns, rttvar_ns] = [srtt_ns, rttvar_ns].map(u64::from);
        let (coarse, backoff, doublings) = (None, 0, 0);
        let (fresh, late_acks) = (measure_ns & STALE == 0, measure_ns & LATE_ACKS != 0);
        let measure_ns = measure_ns & !(LATE_ACKS | STALE);
        Rtt {
            srtt_ns,
            rttvar_ns,
            latest_ns,
            least_ns,
            coarse,
            measure_ns,
            backoff,
            doublings,
            fresh,
            late_acks,
        }
    }
}

impl Coarse {
    /// None for the default.
    fn boxed(estimator: Estimator) -> Option<Box<Self>> {
        let (scale, tick_ns, min_ticks) = match estimator {
            Estimator::Rfc6298 => return None,
            Estimator::Bsd => (Scale::Bsd, BSD_TICK_NS, BSD_MIN_TICKS),
            Estimator::BsdBrakmoPeterson => (Scale::BrakmoPeterson, BSD_TICK_NS, BSD_MIN_TICKS),
            Estimator::Fine => (Scale::Bsd, FINE_TICK_NS, 1),
        };
        Some(Box::new(Coarse { scaled: Scaled::new(scale), tick_ns, min_ticks }))
    }

    fn on_sample(&mut self, sent: Instant, now: Instant, sample_ns: u64) {
        let tick_ns = self.tick_ns;
        // A coarse clock counts its ticks between the two, wherever in one they lie.
        let is_coarse = tick_ns > FINE_TICK_NS;
        let ticks = if is_coarse { ticks_between(sent, now, tick_ns) } else { sample_ns / tick_ns };
        self.scaled.on_sample(ticks);
    }

    /// The timeout; `None` before the first sample.
    fn rto_ns(&self, floor_ns: u64) -> Option<u64> {
        let rto = self.scaled.rto().max(self.min_ticks).saturating_mul(self.tick_ns);
        let bounded = if self.tick_ns > FINE_TICK_NS { rto } else { rto.max(floor_ns) };
        self.scaled.has_sample().then_some(bounded)
    }
}

impl Rtt {
    /// True if it has no memory beside its own.
    pub(crate) fn owns_nothing(&self) -> bool {
        self.coarse.is_none()
    }

    /// What must be kept between samples; `None` for one that has backed off, is not the default,
    /// or knows a time of more than 4.2 s.
    pub(crate) fn at_rest(&self) -> Option<AtRest> {
        let narrow = |ns: u64| u32::try_from(ns).ok();
        let (srtt_ns, rttvar_ns) = (narrow(self.srtt_ns)?, narrow(self.rttvar_ns)?);
        let &Rtt { latest_ns, least_ns, .. } = self;
        let late = if self.late_acks { LATE_ACKS } else { 0 };
        let stale = if self.fresh { 0 } else { STALE };
        let measure_ns = self.measure_ns | late | stale;
        let is_plain = self.coarse.is_none() && (self.backoff, self.doublings) == (0, 0);
        is_plain.then_some(AtRest { srtt_ns, rttvar_ns, latest_ns, least_ns, measure_ns })
    }

    /// No sample yet: the RTO is the initial one.
    pub fn new(bounds: &Bounds) -> Self {
        let coarse = match bounds.estimator {
            Estimator::Rfc6298 => None,
            other => Coarse::boxed(other),
        };
        Rtt {
            srtt_ns: 0,
            rttvar_ns: bounds.initial_ns,
            latest_ns: 0,
            least_ns: u32::MAX,
            coarse,
            measure_ns: bounds.measure_ns,
            backoff: 0,
            doublings: 0,
            fresh: true,
            late_acks: false,
        }
    }

    /// RFC 6298 §5.7: the SYN was retransmitted, so data starts with an RTO of 3 s.
    pub(crate) fn on_syn_retransmitted(&mut self) {
        self.rttvar_ns = self.rttvar_ns.max(3_000_000_000);
    }

    /// A segment sent once, at `sent`, was acknowledged at `now`, while `flight` bytes were out, in
    /// segments of `mss`: [`Rtt::on_sample`], where its divisors are known beforehand.
    #[inline(always)]
    pub fn on_ack(&mut self, sent: Instant, now: Instant, flight: u32, mss: u32) {
        // It has an SRTT only by the default estimator.
        let is_usual = self.measure_ns == 1 && self.srtt_ns != 0;
        if !is_usual || flight > 2 * mss {
            return self.on_sample(sent, now, flight.div_ceil(mss.max(1)));
        }
        let sample = now.nanos_since(sent).max(1);
        self.report(sample);
        (self.doublings, self.fresh) = (0, true);
        move_mean(&mut self.rttvar_ns, self.srtt_ns.abs_diff(sample), 4);
        move_mean(&mut self.srtt_ns, sample, 8);
        self.srtt_ns = self.srtt_ns.max(1);
    }

    /// A segment sent once, at `sent`, was acknowledged at `now`, while `in_flight_segments` were
    /// out.
    pub fn on_sample(&mut self, sent: Instant, now: Instant, in_flight_segments: u32) {
        let measured_ns = match self.measure_ns {
            1 => now.nanos_since(sent),
            tick_ns => {
                let tick_ns = u64::from(tick_ns);
                ticks_between(sent, now, tick_ns) * tick_ns
            }
        };
        let sample = measured_ns.max(1);
        self.report(sample);
        (self.doublings, self.fresh) = (0, true);
        if let Some(coarse) = &mut self.coarse {
            return coarse.on_sample(sent, now, sample);
        }
        let Rtt { srtt_ns, rttvar_ns, .. } = self;
        if *srtt_ns == 0 {
            (*srtt_ns, *rttvar_ns) = (sample, sample / 2);
            return;
        }
        // RFC 7323 Appendix G: ExpectedSamples = ceil(FlightSize / (2·SMSS)).
        let expected = u64::from(in_flight_segments.div_ceil(2)).max(1);
        move_mean(rttvar_ns, srtt_ns.abs_diff(sample), 4 * expected);
        move_mean(srtt_ns, sample, 8 * expected);
        *srtt_ns = (*srtt_ns).max(1);
    }

    fn report(&mut self, sample_ns: u64) {
        self.latest_ns = sample_ns.min(u32::MAX.into()) as u32;
        self.least_ns = self.least_ns.min(self.latest_ns);
    }

    /// The least round trip since the connection began; zero before the first.
    pub(crate) fn least(&self) -> Duration {
        let least_ns = if self.latest_ns == 0 { 0 } else { self.least_ns };
        Duration::from_nanos(least_ns.into())
    }

    /// New data was acknowledged. The RTO stays as long as it is: what was sent again gives no
    /// sample, and only a sample shows that the longer time was not needed (RFC 6298 §5).
    pub(crate) fn end_back_off(&mut self) {
        self.backoff = 0;
    }

    /// True if a sample has come since the last loss probe, or none was sent.
    pub(crate) fn is_fresh(&self) -> bool {
        self.fresh
    }

    /// A loss probe is sent: another one needs a new sample (RFC 8985 §7.3).
    pub(crate) fn stale(&mut self) {
        self.fresh = false;
    }

    /// A loss probe was in vain: the ACK was only late.
    pub(crate) fn note_late_ack(&mut self) {
        self.late_acks = true;
    }

    /// How long after it was sent a lone segment is probed for, where its ACK may be delayed by
    /// `late_ns`: two round trips and that time. `None` if the timeout is sooner, or if ACKs of
    /// this peer have been later still.
    pub(crate) fn lone_probe_ns(&self, late_ns: u64, bounds: &Bounds) -> Option<u64> {
        let probe_ns = 2 * self.srtt_ns + late_ns;
        let is_sooner = probe_ns < self.base_ns(bounds).min(bounds.longest_ns);
        (is_sooner && self.srtt_ns != 0 && self.fresh && !self.late_acks).then_some(probe_ns)
    }

    /// A tick of the measurement clock, in ns.
    pub fn measure_ns(&self) -> u64 {
        self.measure_ns.into()
    }

    /// The timer fired: double the RTO (RFC 6298 §5.5).
    pub(crate) fn back_off(&mut self) {
        self.backoff = self.backoff.saturating_add(1).min(30);
        self.doublings = self.doublings.saturating_add(1).min(30);
    }

    /// How often the timer has fired in a row.
    pub fn backoff(&self) -> u8 {
        self.backoff
    }

    /// The timeout in force, back-off included.
    pub fn rto(&self, config: &TcpConfig) -> Duration {
        Duration::from_nanos(self.rto_ns(&Bounds::new(config)))
    }

    /// The timeout in force, back-off included, in ns.
    pub fn rto_ns(&self, bounds: &Bounds) -> u64 {
        if self.srtt_ns == 0 || self.doublings > 0 {
            return self.unusual_rto_ns(bounds);
        }
        self.base_ns(bounds).min(bounds.longest_ns)
    }

    /// SRTT, and what is added to it.
    fn base_ns(&self, bounds: &Bounds) -> u64 {
        self.srtt_ns.saturating_add((4 * self.rttvar_ns).max(bounds.least_ns))
    }

    /// The timeout before a sample, backed off, or by an estimator that is not the default.
    fn unusual_rto_ns(&self, bounds: &Bounds) -> u64 {
        let base = match self.coarse.as_ref().and_then(|coarse| coarse.rto_ns(bounds.floor_ns)) {
            Some(coarse) => coarse,
            None if self.srtt_ns == 0 => self.rttvar_ns,
            None => self.base_ns(bounds),
        };
        base.saturating_mul(1u64 << self.doublings).min(bounds.longest_ns)
    }

    /// Smoothed round-trip time; zero before the first sample.
    pub fn srtt(&self) -> Duration {
        Duration::from_nanos(self.srtt_ns())
    }

    /// Smoothed round-trip time, in ns; 0 before the first sample.
    pub(crate) fn srtt_ns(&self) -> u64 {
        if self.srtt_ns != 0 {
            return self.srtt_ns;
        }
        // Before the first sample, or by an estimator that is not the default.
        self.coarse
            .as_ref()
            .map_or(0, |coarse| coarse.scaled.srtt_eighths().saturating_mul(coarse.tick_ns) / 8)
    }

    /// Round-trip time variation.
    pub fn rttvar(&self) -> Duration {
        Duration::from_nanos(match &self.coarse {
            None if self.srtt_ns == 0 => 0,
            None => self.rttvar_ns,
            Some(coarse) => coarse.scaled.deviation_quarters().saturating_mul(coarse.tick_ns) / 4,
        })
    }

    /// The latest sample; zero before the first.
    pub fn latest(&self) -> Duration {
        Duration::from_nanos(self.latest_ns.into())
    }
}

/// Ticks of a clock from one instant to another: those that lie between them.
fn ticks_between(from: Instant, to: Instant, tick_ns: u64) -> u64 {
    (to.as_nanos() / tick_ns).saturating_sub(from.as_nanos() / tick_ns)
}

/// Takes one more value into a mean, in which it weighs 1/`weight`.
fn move_mean(mean: &mut u64, value: u64, weight: u64) {
    *mean = *mean - *mean / weight + value / weight;
}

#[cfg(test)]
mod tests;
