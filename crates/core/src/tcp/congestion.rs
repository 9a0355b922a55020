//! The congestion window: how much may be in flight.
//!
//! The boundary behind which the algorithms stand. An algorithm hears of what is [`Sent`], of what
//! an ACK shows ([`AckOutcome`]) and in which state it comes ([`Ack`]), and of each [`Loss`], each
//! with its time; it uses what it needs. An enum and not a trait object: the call costs a
//! predictable branch. Reno's state lies in line. A larger one goes into a box of its own variant,
//! so that no connection grows by the state of an algorithm that it does not use.

pub(crate) mod reno;

use crate::config::TcpConfig;
use crate::flow::Seq;
use crate::time::Instant;
use crate::wire::options::SackBlock;
use reno::Reno;

/// Why segments are being sent again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// They are not.
    #[default]
    Open,
    /// Duplicate ACKs or SACK blocks showed a hole.
    Fast,
    /// The retransmission timer fired.
    Timeout,
}

/// New text has left.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    /// When.
    pub now: Instant,
    /// SND.UNA.
    pub una: Seq,
    /// SND.NXT behind it.
    pub nxt: Seq,
}

/// What one acknowledgement has shown and done. Congestion control, the counters, ECN and what
/// sizes the buffers hear of an ACK by this alone.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AckOutcome {
    /// Bytes that were in flight before it.
    pub flight: u32,
    /// SND.UNA has moved.
    pub progress: bool,
    /// Bytes of the buffer that were freed.
    pub freed: usize,
    /// Our FIN is acknowledged.
    pub fin: bool,
    /// Bytes that left the network by it: acknowledged, and not reported before.
    pub delivered: u32,
    /// What arrived twice, by its D-SACK (RFC 2883).
    pub duplicate: Option<SackBlock>,
    /// A loss showed, and the window is reduced.
    pub reduced: bool,
    /// A recovery began with it.
    pub entered: bool,
    /// It showed that a recovery was not needed, and the reduction is undone.
    pub undone: bool,
}

/// The state in which an acknowledgement comes.
#[derive(Clone, Copy, Debug)]
pub struct Ack {
    /// When.
    pub now: Instant,
    /// Why segments are being sent again, if they are.
    pub mode: Mode,
    /// False if it tells of congestion (RFC 3168 §6.1.2): the window must not grow.
    pub may_grow: bool,
}

/// Something is lost, or a router says that it is congested.
#[derive(Clone, Copy, Debug)]
pub struct Loss {
    /// When that was found out.
    pub now: Instant,
    /// Bytes that were in flight.
    pub flight: u32,
}

/// The algorithm in use with its state, and what all of them have.
#[derive(Clone, Debug)]
pub struct Congestion {
    usage: Usage,
    algorithm: Algorithm,
}

/// The algorithm in use with its state.
#[derive(Clone, Debug)]
enum Algorithm {
    /// Reno (RFC 5681), the fast recovery of RFC 6582 and RFC 6675 driven by the sender.
    Reno(Reno),
}

/// How much of its window a connection uses: an application that sends little does not probe the
/// path (RFC 7661 §1), and an unused window must not grow.
#[derive(Clone, Copy, Debug)]
struct Usage {
    /// The most that was in flight at once in the current round.
    most: u32,
    /// Where that round ends.
    round_end: Seq,
}

impl Congestion {
    /// At the start of a connection with segments of `mss` bytes; `next` is the first sequence
    /// number.
    pub fn new(config: &TcpConfig, mss: u32, next: Seq) -> Self {
        Self::with(Reno::new(config.congestion.initial_window, mss), next)
    }

    /// Reno in the middle of its life.
    #[cfg(test)]
    pub(crate) fn of_reno(window: u32, threshold: u32) -> Self {
        Self::with(Reno::at(window, threshold), Seq(0))
    }

    fn with(reno: Reno, next: Seq) -> Self {
        let usage = Usage { most: 0, round_end: next };
        Congestion { usage, algorithm: Algorithm::Reno(reno) }
    }

    fn reno(&self) -> &Reno {
        let Algorithm::Reno(reno) = &self.algorithm;
        reno
    }

    fn reno_mut(&mut self) -> &mut Reno {
        let Algorithm::Reno(reno) = &mut self.algorithm;
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
        self.reno().window_after_idle(initial_window_segments, mss)
    }

    /// Slow-start threshold, bytes; `u32::MAX` before the first loss.
    pub fn threshold(&self) -> u32 {
        self.reno().threshold
    }

    /// True if nothing has been sent.
    pub fn is_unused(&self) -> bool {
        self.usage.most == 0
    }

    /// New text has left.
    pub fn on_sent(&mut self, sent: Sent) {
        let flight = sent.nxt.since(sent.una);
        if sent.una.at_or_after(self.usage.round_end) || flight > self.usage.most {
            self.usage = Usage { most: flight, round_end: sent.nxt };
        }
    }

    /// Something new is acknowledged. The window grows only if it, and nothing else, was what held
    /// the sender back.
    #[inline(always)]
    pub(crate) fn on_ack(&mut self, outcome: &AckOutcome, ack: Ack, mss: u32) {
        let used = self.usage.most.max(outcome.flight);
        let window = self.window();
        let limited = if window < self.threshold() {
            used.saturating_mul(2) > window
        } else {
            used.saturating_add(3 * mss) >= window
        };
        if limited && ack.may_grow {
            self.reno_mut().on_ack(outcome, ack, mss);
        }
    }

    /// Fast recovery begins, or a router has marked what it would have dropped.
    pub fn on_loss(&mut self, loss: Loss, mss: u32) {
        self.reno_mut().on_loss(loss, mss);
    }

    /// The retransmission timer fired; `again` for the same data.
    pub fn on_timeout(&mut self, loss: Loss, again: bool, mss: u32) {
        self.reno_mut().on_timeout(loss, again, mss);
    }

    /// The reduction was not needed, since which this was `before` it, and `pipe` bytes are in the
    /// network. The window opens to where it was by slow start, so that no burst leaves (RFC 4015
    /// §3.2).
    pub(crate) fn on_undo(&mut self, before: &Congestion, pipe: u32, initial_window: u32) {
        let (window, threshold) = (before.window(), before.threshold());
        let reno = self.reno_mut();
        reno.threshold = threshold.max(window);
        reno.window = pipe.saturating_add(initial_window).min(window).max(reno.window);
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

// All connections, busy or idle, carry this: what is larger goes into a box.
const _: () = assert!(size_of::<Congestion>() == 20);

#[cfg(test)]
mod tests {
    use super::*;

    const MSS: u32 = 1000;

    fn grown(flight: u32, may_grow: bool) -> u32 {
        let mut congestion = Congestion::new(&TcpConfig::default(), MSS, Seq(1));
        let (now, mode) = (Instant::ZERO, Mode::Open);
        congestion.on_sent(Sent { now, una: Seq(1), nxt: Seq(1) + flight });
        let outcome = AckOutcome { delivered: MSS, flight: MSS, ..AckOutcome::default() };
        congestion.on_ack(&outcome, Ack { now, mode, may_grow }, MSS);
        congestion.window()
    }

    #[test]
    fn the_window_grows_only_if_used_and_free_of_congestion() {
        assert_eq!(grown(6 * MSS, true), 11 * MSS);
        assert_eq!(grown(5 * MSS, true), 10 * MSS, "half of it was used");
        assert_eq!(grown(6 * MSS, false), 10 * MSS, "ECE");
    }

    #[test]
    fn in_congestion_avoidance_an_unused_window_stays() {
        let grown = |flight: u32| {
            let mut congestion = Congestion::of_reno(10 * MSS, 5 * MSS);
            let (now, mode) = (Instant::ZERO, Mode::Open);
            congestion.on_sent(Sent { now, una: Seq(1), nxt: Seq(1) + flight });
            let outcome = AckOutcome { delivered: 10 * MSS, flight: MSS, ..AckOutcome::default() };
            congestion.on_ack(&outcome, Ack { now, mode, may_grow: true }, MSS);
            congestion.window()
        };
        // Three segments that wait for their neighbours do not make it unused.
        assert_eq!((grown(7 * MSS - 1), grown(7 * MSS)), (10 * MSS, 11 * MSS));
    }

    #[test]
    fn what_was_in_flight_counts_until_the_round_is_over() {
        let mut congestion = Congestion::new(&TcpConfig::default(), MSS, Seq(1));
        assert!(congestion.is_unused());
        let now = Instant::ZERO;
        congestion.on_sent(Sent { now, una: Seq(1), nxt: Seq(1) + 9 * MSS });
        congestion.on_sent(Sent { now, una: Seq(1) + 8 * MSS, nxt: Seq(1) + 10 * MSS });
        assert_eq!(congestion.usage.most, 9 * MSS, "the round is not over");
        congestion.on_sent(Sent { now, una: Seq(1) + 10 * MSS, nxt: Seq(1) + 11 * MSS });
        assert_eq!(congestion.usage.most, MSS);
    }
}
