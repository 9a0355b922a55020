//! The congestion window: how much may be in flight.
//!
//! The boundary behind which the algorithms stand. An enum and not a trait object: a connection
//! carries its state in line, and the call costs a predictable branch.

pub mod reno;

use crate::config::TcpConfig;
use reno::Reno;

/// The algorithm in use with its state.
#[derive(Clone, Copy, Debug)]
pub enum Congestion {
    /// Reno (RFC 5681), the fast recovery of RFC 6582 and RFC 6675 driven by the sender.
    Reno(Reno),
}

impl Congestion {
    /// At the start of a connection with segments of `mss` bytes.
    pub fn new(config: &TcpConfig, mss: u32) -> Self {
        Congestion::Reno(Reno::new(config.congestion.initial_window, mss))
    }

    /// Reno in the middle of its life.
    #[cfg(test)]
    pub(crate) fn of_reno(window: u32, threshold: u32) -> Self {
        Congestion::Reno(Reno::at(window, threshold))
    }

    fn reno(&self) -> &Reno {
        let Congestion::Reno(reno) = self;
        reno
    }

    fn reno_mut(&mut self) -> &mut Reno {
        let Congestion::Reno(reno) = self;
        reno
    }

    /// Congestion window, bytes.
    pub fn window(&self) -> u32 {
        self.reno().window
    }

    /// The window one round trip on, bytes, if it is `window` now, all of it is used, and nothing
    /// is lost: `next(cwnd)` of Cohen & Cohen 2002 §3.3.
    pub fn next(&self, window: u32, mss: u32) -> u32 {
        self.reno().next(window, mss)
    }

    /// The window with which a connection goes on that has sent nothing for an RTO, bytes
    /// (RFC 5681 §4.1).
    pub fn window_after_idle(&self, initial_window_segments: u32, mss: u32) -> u32 {
        let mut after = *self;
        after.on_idle(initial_window_segments, mss);
        after.window()
    }

    /// Slow-start threshold, bytes; `u32::MAX` before the first loss.
    pub fn threshold(&self) -> u32 {
        self.reno().threshold
    }

    /// `acked` new bytes were acknowledged outside fast recovery; `limited` says that the window,
    /// and nothing else, was what held the sender back (RFC 7661's concern: an unused window must
    /// not grow).
    #[inline(always)]
    pub fn on_ack(&mut self, acked: u32, limited: bool, after_timeout: bool, mss: u32) {
        self.reno_mut().on_ack(acked, limited, after_timeout, mss);
    }

    /// Fast recovery begins with `flight` bytes out.
    pub fn on_loss(&mut self, flight: u32, mss: u32) {
        self.reno_mut().on_loss(flight, mss);
    }

    /// The retransmission timer fired with `flight` bytes out; `again` for the same data.
    pub fn on_timeout(&mut self, flight: u32, again: bool, mss: u32) {
        self.reno_mut().on_timeout(flight, again, mss);
    }

    /// Nothing was sent for an RTO (RFC 5681 §4.1).
    pub fn on_idle(&mut self, initial_window_segments: u32, mss: u32) {
        self.reno_mut().on_idle(initial_window_segments, mss);
    }

    /// The SYN or its acknowledgement was lost: start with one segment (RFC 5681 §3.1).
    pub fn on_handshake_loss(&mut self, mss: u32) {
        self.reno_mut().window = mss;
    }

    /// The largest segment has become smaller with the path: the window shrinks in proportion, or
    /// it would let a burst of small segments go (RFC 5681 §3.1); but it holds one at least.
    pub fn on_mss(&mut self, old_mss: u32, mss: u32) {
        let reno = self.reno_mut();
        let scaled = u64::from(reno.window) * u64::from(mss) / u64::from(old_mss.max(1));
        reno.window = (scaled as u32).max(mss);
    }
}
