//! When what a connection sends may leave, where it is paced: by the rate that congestion control
//! asks for, or less if the socket says so.

use alloc::boxed::Box;
use core::num::NonZeroU64;

use super::SendHalf;
use crate::tcp::congestion::pacer::Pacer;
use crate::tcp::{Pace, Settings, SocketOptions};
use crate::time::{Duration, Instant};

impl SendHalf {
    /// Paces from here on, or does not, as the congestion control and the socket ask for.
    pub(crate) fn set_pacing(&mut self, now: Instant, options: &SocketOptions) {
        if !options.is_paced() && !self.congestion.has_model() {
            if let Some(rare) = &mut self.rare {
                rare.pacer = None;
            }
            return;
        }
        self.start_pacing(now, options);
    }

    fn start_pacing(&mut self, now: Instant, options: &SocketOptions) {
        let most = options.max_pacing_rate.map_or(u64::MAX, NonZeroU64::get);
        let (rate, mss) = (self.modelled_rate(), self.mss.into());
        let new = || Box::new(Pacer::new(rate, most, mss));
        let pacer = self.rare_mut().pacer.get_or_insert_with(new);
        pacer.restart(now, most, rate, mss);
    }

    /// A mark has come, and the window had one segment before it: the next segment leaves no sooner
    /// than a timeout would (RFC 3168 §6.1.2, RFC 9438 §4.6).
    pub(crate) fn hold_back(&mut self, now: Instant, options: &SocketOptions, config: &Settings) {
        let bounds = &config.rto_bounds;
        let (mss, rto_ns) = (self.mss.into(), self.rtt.rto_ns(bounds));
        if self.pacer().is_none() {
            self.start_pacing(now, options);
        }
        if let Some(pacer) = self.pacer_mut() {
            pacer.hold_back(now, mss, rto_ns, bounds.longest_ns);
        }
    }

    /// Something was delivered and not marked: marks hold the sender back no more.
    pub(crate) fn go_on(&mut self, now: Instant, options: &SocketOptions) {
        if self.pacer().is_some_and(Pacer::is_held) {
            self.set_pacing(now, options);
        }
    }

    /// The connection begins, and the handshake has taken its round trip. The initial window leaves
    /// at once, as in Linux: spread over the round trip, a short answer would end later.
    pub(crate) fn begin_pacing(&mut self) {
        let window = self.congestion.window();
        // BBR's own first rate carries it in a millisecond.
        if let Some(pacer) = self.rare.as_mut().and_then(|rare| rare.pacer.as_deref_mut())
            && !self.congestion.has_model()
        {
            pacer.set_credit(window);
            self.update_pace();
        }
    }

    /// Until when the next burst is waited for, if one is.
    pub(crate) fn awaited_pace(&self) -> Option<Instant> {
        self.pacer()?.awaited()
    }

    /// The rate of the congestion control, a segment a second at least: where the peer took nothing
    /// for minutes, BBR's model would let the next burst wait for as long.
    fn modelled_rate(&self) -> u64 {
        self.congestion.pacing_rate(self.rtt.srtt_ns()).max(self.mss.into())
    }

    /// The congestion window, the round trip or the size of segments is another.
    pub(super) fn update_pace(&mut self) {
        let (rate, mss) = (self.modelled_rate(), self.mss.into());
        if let Some(pacer) = self.pacer_mut() {
            pacer.set_rate(rate, mss);
        }
    }

    /// Spaces what it sends, if it is paced.
    pub(crate) fn pacer(&self) -> Option<&Pacer> {
        self.rare.as_ref()?.pacer.as_deref()
    }

    pub(super) fn pacer_mut(&mut self) -> Option<&mut Pacer> {
        self.rare.as_mut()?.pacer.as_deref_mut()
    }

    /// The rate at which it sends, or would, if it were paced.
    pub(crate) fn pacing_rate(&self) -> u64 {
        self.pacer().map_or_else(|| self.congestion.pacing_rate(self.rtt.srtt_ns()), Pacer::rate)
    }

    /// How it paces, if it does.
    pub(crate) fn pace(&self) -> Option<Pace> {
        let late = |pacer: &Pacer| Duration::from_nanos(pacer.late_ns().into());
        self.pacer().map(|pacer| Pace { burst_bytes: pacer.burst(), late: late(pacer) })
    }

    /// When the next burst may leave, if something waits for that and the schedule has not heard of
    /// it.
    pub(crate) fn take_pace(&mut self) -> Option<Instant> {
        self.pacer_mut()?.take_entry()
    }

    /// The schedule has come to the connection.
    pub(crate) fn on_pace(&mut self) {
        if let Some(pacer) = self.pacer_mut() {
            pacer.on_due();
        }
    }

    /// Bytes of `room` that the pace lets out now, in segments of `segment` bytes.
    pub(super) fn paced(&self, now: Instant, room: u32, segment: u32) -> u32 {
        let Some(pacer) = self.pacer() else { return room };
        let allowed = pacer.allowed(now);
        if allowed < segment { 0 } else { room.min(allowed) }
    }
}
