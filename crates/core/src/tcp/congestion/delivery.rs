//! Samples of the rate at which the path delivers (draft-ietf-ccwg-bbr §4.1).
//!
//! ```text
//!   delivered
//!      ▲                    ┌───  now: sample = (C - P) / the longer of the two intervals
//!    C │              ┌─────┘
//!    P │────▶ a range leaves ┄┄┄┄▶ it arrives
//!      └──────────────────────────▶ time
//! ```
//!
//! What was delivered when a range left is kept by the time at which it left: all that leaves in
//! one turn has one departure, as it has one record in flight. So the records stay as small as they
//! are. A connection has a sampler if its congestion control needs the rate, or its socket asks for
//! an account; others keep nothing.

use alloc::collections::VecDeque;
use core::mem;

use crate::tcp::DeliveryRate;
use crate::time::Instant;

/// Departures kept at most. When there are as many, every second one goes, and those to come are
/// kept at twice the distance: what left between two counts as if it had left with the first.
const DEPARTURES_MAX: usize = 1024;

/// What was so when something left.
#[derive(Clone, Copy, Debug)]
struct Departed {
    /// P.send_time.
    at: Instant,
    /// P.first_send_time.
    first_sent_at: Instant,
    /// P.delivered_time.
    delivered_at: Instant,
    /// P.delivered.
    delivered: u64,
    /// P.lost.
    lost: u64,
    /// P.tx_in_flight.
    in_flight: u32,
    /// P.is_app_limited.
    is_app_limited: bool,
}

/// The sampler of a connection.
#[derive(Clone, Debug)]
pub(crate) struct Sampler {
    /// C.delivered, bytes.
    delivered: u64,
    /// C.delivered_time.
    delivered_at: Instant,
    /// C.first_send_time.
    first_sent_at: Instant,
    /// C.lost, bytes.
    lost: u64,
    /// C.app_limited: the application sent too little until this is delivered; 0: it does not.
    app_limited: u64,
    /// The rate that `info()` tells.
    told: Option<DeliveryRate>,
    departures: VecDeque<Departed>,
    /// Two of them lie so far apart at least.
    apart_ns: u64,
}

/// A rate sample: RS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sample {
    /// RS.delivery_rate, bytes a second; 0: the sample tells none.
    pub rate: u64,
    /// RS.is_app_limited.
    pub is_app_limited: bool,
    /// RS.delivered, bytes.
    pub delivered: u32,
    /// RS.prior_delivered.
    pub prior_delivered: u64,
    /// RS.tx_in_flight, bytes.
    pub in_flight: u32,
    /// RS.lost, bytes.
    pub lost: u32,
    /// RS.rtt.
    pub rtt_ns: u64,
}

/// A range is lost that left when this was so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LostSample {
    /// P.tx_in_flight, bytes.
    pub in_flight: u32,
    /// Bytes that were lost since it left, its own among them.
    pub lost: u32,
    /// P.is_app_limited.
    pub is_app_limited: bool,
}

impl Sampler {
    /// The sampler of a connection whose first segment leaves at `now`.
    pub(crate) fn new(now: Instant) -> Sampler {
        Sampler {
            delivered: 0,
            delivered_at: now,
            first_sent_at: now,
            lost: 0,
            app_limited: 0,
            told: None,
            departures: VecDeque::new(),
            apart_ns: 1,
        }
    }

    /// C.delivered.
    pub(crate) fn delivered(&self) -> u64 {
        self.delivered
    }

    /// Takes it from where it is, and leaves a blank one.
    pub(crate) fn take(&mut self) -> Sampler {
        mem::replace(self, Sampler::new(Instant::ZERO))
    }

    /// True if nothing has left or arrived.
    pub(crate) fn is_blank(&self) -> bool {
        self.delivered == 0 && self.departures.is_empty()
    }

    /// The rate of the latest sample; `None` before the first. One that the application limited
    /// replaces another only if it is as high: it says no more than that the path carries it.
    pub(crate) fn told(&self) -> Option<DeliveryRate> {
        self.told
    }

    /// True if the application sends too little.
    pub(crate) fn is_app_limited(&self) -> bool {
        self.app_limited > 0
    }

    /// Bytes have left, and with them so many are in flight; none were if it was `idle`.
    pub(crate) fn on_sent(&mut self, now: Instant, in_flight: u32, idle: bool) {
        if idle {
            (self.first_sent_at, self.delivered_at) = (now, now);
        }
        let apart_ns = self.apart_ns;
        let is_near = |last: &&mut Departed| now.nanos_since(last.at) < apart_ns;
        if let Some(last) = self.departures.back_mut().filter(is_near) {
            last.in_flight = in_flight;
            return;
        }
        if self.departures.len() >= DEPARTURES_MAX {
            self.thin_out();
        }
        self.departures.push_back(Departed {
            at: now,
            first_sent_at: self.first_sent_at,
            delivered_at: self.delivered_at,
            delivered: self.delivered,
            lost: self.lost,
            in_flight,
            is_app_limited: self.is_app_limited(),
        });
    }

    /// There was nothing more to send, with `in_flight` bytes in the network.
    pub(crate) fn on_app_limited(&mut self, in_flight: u32) {
        self.app_limited = (self.delivered + u64::from(in_flight)).max(1);
    }

    /// An ACK has delivered `bytes`. Of these, what left at `latest` left last; `None` if that
    /// is not known.
    pub(crate) fn on_delivered(
        &mut self,
        now: Instant,
        bytes: u32,
        latest: Option<Instant>,
        min_rtt_ns: u64,
    ) -> Option<Sample> {
        if bytes == 0 {
            return None;
        }
        self.delivered += u64::from(bytes);
        self.delivered_at = now;
        let left = latest.and_then(|latest| Some((latest, self.departure(latest)?)));
        if self.delivered > self.app_limited {
            self.app_limited = 0;
        }
        let (latest, left) = left?;
        self.first_sent_at = latest;
        let sending_ns = left.at.nanos_since(left.first_sent_at);
        let interval_ns = sending_ns.max(now.nanos_since(left.delivered_at));
        let delivered = self.delivered - left.delivered;
        // So short an interval is of an ACK of what was sent again in vain.
        let is_reliable = interval_ns > 0 && interval_ns >= min_rtt_ns;
        let rate = u128::from(delivered) * 1_000_000_000 / u128::from(interval_ns.max(1));
        let rtt_ns = now.nanos_since(latest);
        // What is lost of the rest will be found so within three round trips.
        self.forget_before(now, rtt_ns.saturating_mul(3));
        let rate = if is_reliable { u64::try_from(rate).unwrap_or(u64::MAX) } else { 0 };
        self.tell(rate, left.is_app_limited);
        Some(Sample {
            rate,
            is_app_limited: left.is_app_limited,
            delivered: clamp(delivered),
            prior_delivered: left.delivered,
            in_flight: left.in_flight,
            lost: clamp(self.lost - left.lost),
            rtt_ns,
        })
    }

    fn tell(&mut self, bytes_per_second: u64, is_app_limited: bool) {
        let least = self.told.filter(|_| is_app_limited).map_or(1, |told| told.bytes_per_second);
        if bytes_per_second >= least {
            self.told = Some(DeliveryRate { bytes_per_second, is_app_limited });
        }
    }

    /// So many bytes are lost that left at `at`.
    pub(crate) fn on_lost(&mut self, bytes: u32, at: Instant) -> Option<LostSample> {
        self.lost += u64::from(bytes);
        let left = self.departure(at)?;
        Some(LostSample {
            in_flight: left.in_flight,
            lost: clamp(self.lost - left.lost),
            is_app_limited: left.is_app_limited,
        })
    }

    fn thin_out(&mut self) {
        let mut keeps = false;
        self.departures.retain(|_| {
            keeps = !keeps;
            keeps
        });
        if let (Some(first), Some(last)) = (self.departures.front(), self.departures.back()) {
            let all_ns = last.at.nanos_since(first.at);
            self.apart_ns = (all_ns / self.departures.len() as u64).max(self.apart_ns);
        }
    }

    /// What was so when that left, or what left last before it.
    fn departure(&self, at: Instant) -> Option<Departed> {
        let behind = self.departures.partition_point(|left| left.at <= at);
        behind.checked_sub(1).and_then(|index| self.departures.get(index)).copied()
    }

    /// Forgets what left longer ago than `age_ns`, but for the newest of it.
    fn forget_before(&mut self, now: Instant, age_ns: u64) {
        while self.departures.get(1).is_some_and(|next| now.nanos_since(next.at) > age_ns) {
            self.departures.pop_front();
        }
        if self.departures.len() < DEPARTURES_MAX / 8 {
            self.apart_ns = 1;
        }
    }

    /// Nothing is in flight, and the connection rests: what is kept for samples goes.
    pub(crate) fn rest(&mut self) {
        self.departures = VecDeque::new();
    }
}

fn clamp(bytes: u64) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
