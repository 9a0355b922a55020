//! The congestion window: how much may be in flight.
//!
//! The boundary behind which the algorithms stand. An algorithm hears of what is [`Sent`], of what
//! an ACK shows (`AckOutcome`) and in which state it comes ([`Ack`]), and of each [`Loss`], each
//! with its time; it uses what it needs, and decides itself whether its window may grow. An enum
//! and not a trait object: the call costs a predictable branch. Reno's state lies in line, and
//! CUBIC's until its first slow start is long or over. A larger one goes into a box of its own
//! variant, so that no connection grows by the state of an algorithm that it does not use.

mod bbr;
mod cubic;
mod dctcp;
pub(crate) mod delivery;
mod first;
mod hystart;
pub(crate) mod pacer;
pub(crate) mod reno;
mod tight;

use crate::config::{Algorithm as Kind, TcpConfig};
use crate::flow::Seq;
use crate::tcp::PathModel;
use crate::tcp::ecn::Echo;
use crate::time::Instant;
use crate::wire::options::SackBlock;
pub(crate) use bbr::Acked;
use bbr::Bbr;
use cubic::Cubic;
use dctcp::Dctcp;
use first::First;
use reno::Reno;
use tight::Tight;

/// Never more than a scaled window can express.
const WINDOW_MAX: u32 = 1 << 30;

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
    /// Nothing was in flight before.
    pub was_idle: bool,
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
    /// Bytes that it has shown to be lost. Congestion control hears of them as a [`Loss`].
    pub lost: u32,
    /// The round trip of the newest segment that it acknowledges and that was sent once; 0: there
    /// is none.
    pub rtt_ns: u64,
    /// What arrived twice, by its D-SACK (RFC 2883).
    pub duplicate: Option<SackBlock>,
    /// A loss showed, and the window is reduced.
    pub reduced: bool,
    /// A recovery began with it.
    pub entered: bool,
    /// It showed that a recovery was not needed, and the reduction is undone.
    pub undone: bool,
}

impl AckOutcome {
    /// Its sample of the round trip, in µs.
    fn rtt_us(&self) -> Option<u32> {
        (self.rtt_ns > 0).then(|| (self.rtt_ns / 1000).min(u32::MAX.into()) as u32)
    }
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
    /// SND.UNA behind it.
    pub una: Seq,
    /// SND.NXT.
    pub nxt: Seq,
    /// SRTT; 0 where it is not known in ns.
    pub srtt_ns: u64,
}

#[cfg(test)]
impl Ack {
    /// One of nothing special.
    pub(crate) fn at(now: Instant) -> Ack {
        let (mode, may_grow) = (Mode::Open, true);
        Ack { now, mode, may_grow, una: Seq(0), nxt: Seq(0), srtt_ns: 0 }
    }
}

/// Nothing was sent for a while.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Idle {
    /// How many RTOs it lasted; of a paced connection, how many times five minutes.
    pub spans: u32,
    /// Segments of the initial window.
    pub initial_segments: u32,
    /// Bytes of a segment.
    pub mss: u32,
}

/// Something is lost, or a router says that it is congested.
#[derive(Clone, Copy, Debug)]
pub struct Loss {
    /// When that was found out.
    pub now: Instant,
    /// Bytes that were in flight.
    pub flight: u32,
    /// Nothing is lost: a router has marked what it would have dropped (RFC 3168).
    pub is_marked: bool,
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
    /// CUBIC (RFC 9438) in its first slow start, as long as that is short.
    First(First),
    /// CUBIC.
    Cubic(Tight<Cubic>),
    /// BBR (draft-ietf-ccwg-bbr), which hears of what is sent, acknowledged and lost by
    /// [`Congestion::bbr_mut`].
    Bbr(Tight<Bbr>),
    /// DCTCP (RFC 8257), which hears of marks by [`Congestion::on_echo`], and keeps those that it
    /// tells the peer of.
    Dctcp(Tight<Dctcp>),
}

/// What an undo needs of congestion control as it was. In line: a recovery takes one block.
#[derive(Clone, Debug)]
pub(crate) struct Kept(State);

/// The state of an algorithm, as far as an undo needs it.
#[derive(Clone, Debug)]
enum State {
    /// The windows of Reno, or of an algorithm that remembers the rest itself.
    Windows(Reno),
    /// All of CUBIC in its first slow start.
    First(First),
    /// All of CUBIC.
    Cubic(Cubic),
}

impl Kept {
    /// Congestion window, bytes.
    fn window(&self) -> u32 {
        match &self.0 {
            State::Windows(reno) => reno.window,
            State::First(first) => first.window,
            State::Cubic(cubic) => cubic.window,
        }
    }
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

/// True if the window alone held the sender back: `used` bytes of it were in flight at once. An
/// unused window does not grow. In congestion avoidance three segments may wait for their
/// neighbours.
fn is_used(used: u32, window: u32, threshold: u32, mss: u32) -> bool {
    if window < threshold {
        used.saturating_mul(2) > window
    } else {
        used.saturating_add(3 * mss) >= window
    }
}

/// IW = min(segments·MSS, max(2·MSS, 14600)) for ten segments (RFC 6928 §2).
fn initial_window(segments: u32, mss: u32) -> u32 {
    (segments * mss).min((2 * mss).max(segments * 1460))
}

fn dctcp(window: u32, threshold: u32, next: Seq) -> Algorithm {
    Algorithm::Dctcp(Tight::new(Dctcp::new(Reno::new(window, threshold), next)))
}

impl Congestion {
    /// By the algorithm of that `kind`, at the start of a connection with segments of `mss` bytes;
    /// `next` is the first sequence number.
    pub fn new(kind: Kind, config: &TcpConfig, mss: u32, next: Seq) -> Self {
        let window = initial_window(config.congestion.initial_window, mss);
        let algorithm = match kind {
            Kind::Reno => Algorithm::Reno(Reno::new(window, u32::MAX)),
            Kind::Cubic => Algorithm::First(First::new(window, next)),
            Kind::Bbr => Algorithm::Bbr(Tight::new(Bbr::new(window, mss, next.0))),
            Kind::Dctcp => dctcp(window, u32::MAX, next),
        };
        Congestion { usage: Usage { most: 0, round_end: next }, algorithm }
    }

    /// Reno in the middle of its life.
    #[cfg(test)]
    pub(crate) fn of_reno(window: u32, threshold: u32) -> Self {
        let usage = Usage { most: 0, round_end: Seq(0) };
        Congestion { usage, algorithm: Algorithm::Reno(Reno::new(window, threshold)) }
    }

    /// The algorithm in use.
    fn kind(&self) -> Kind {
        match &self.algorithm {
            Algorithm::Reno(_) => Kind::Reno,
            Algorithm::First(_) | Algorithm::Cubic(_) => Kind::Cubic,
            Algorithm::Bbr(_) => Kind::Bbr,
            Algorithm::Dctcp(_) => Kind::Dctcp,
        }
    }

    /// Goes on by the algorithm of that `kind`, with the window as it is.
    pub(crate) fn switch(&mut self, kind: Kind, mss: u32, nxt: Seq) {
        if kind == self.kind() {
            return;
        }
        let (window, threshold) = (self.window(), self.threshold());
        self.algorithm = match kind {
            Kind::Reno => Algorithm::Reno(Reno::new(window, threshold)),
            Kind::Cubic if threshold == u32::MAX => Algorithm::First(First::new(window, nxt)),
            Kind::Cubic => Algorithm::Cubic(Tight::new(Cubic::new(window, threshold))),
            Kind::Bbr => Algorithm::Bbr(Tight::new(Bbr::new(window, mss, nxt.0))),
            Kind::Dctcp => dctcp(window, threshold, nxt),
        };
    }

    /// The rate at which what is sent should leave, bytes a second, where a round trip takes
    /// `srtt_ns`; 0: none is known. Algorithms without a model have that of Linux: it carries two
    /// windows in a round trip while the window doubles, and later 1.2. What it takes for a round
    /// trip before the first one, a millisecond, lets the initial window leave at once.
    pub(crate) fn pacing_rate(&self, srtt_ns: u64) -> u64 {
        if let Some(bbr) = self.bbr() {
            return bbr.pacing_rate();
        }
        let (window, srtt_ns) = (self.window(), if srtt_ns == 0 { 1_000_000 } else { srtt_ns });
        let hundredths = if window < self.threshold() / 2 { 200 } else { 120 };
        let rate = u128::from(window) * hundredths * 10_000_000 / u128::from(srtt_ns);
        u64::try_from(rate).unwrap_or(u64::MAX)
    }

    /// True if the algorithm models the path: it samples the delivery rate, and is paced.
    pub(crate) fn has_model(&self) -> bool {
        matches!(self.algorithm, Algorithm::Bbr(_))
    }

    /// The algorithm, if it models the path.
    pub(crate) fn bbr(&self) -> Option<&Bbr> {
        match &self.algorithm {
            Algorithm::Bbr(bbr) => Some(bbr),
            _ => None,
        }
    }

    /// What it knows of the path.
    pub(crate) fn model(&self) -> Option<PathModel> {
        self.bbr().map(Bbr::info)
    }

    pub(crate) fn bbr_mut(&mut self) -> Option<&mut Bbr> {
        match &mut self.algorithm {
            Algorithm::Bbr(bbr) => Some(bbr),
            _ => None,
        }
    }

    /// What the peer is to hear of marks, with DCTCP.
    pub(crate) fn echo(&self) -> Option<&Echo> {
        match &self.algorithm {
            Algorithm::Dctcp(dctcp) => Some(&dctcp.echo),
            _ => None,
        }
    }

    pub(crate) fn echo_mut(&mut self) -> Option<&mut Echo> {
        match &mut self.algorithm {
            Algorithm::Dctcp(dctcp) => Some(&mut dctcp.echo),
            _ => None,
        }
    }

    /// An ACK up to `una` says whether what it acknowledges came `marked`; SND.NXT is `nxt`.
    pub(crate) fn on_echo(&mut self, outcome: &AckOutcome, marked: bool, una: Seq, nxt: Seq) {
        if let Algorithm::Dctcp(dctcp) = &mut self.algorithm {
            dctcp.on_echo(outcome, marked, una, nxt);
        }
    }

    /// A recovery has begun, by a loss or by a timeout.
    pub(crate) fn on_recovery(&mut self) {
        if let Some(bbr) = self.bbr_mut() {
            bbr.on_recovery();
        }
    }

    /// All that was lost has been repaired.
    pub(crate) fn on_recovered(&mut self) {
        if let Some(bbr) = self.bbr_mut() {
            bbr.on_recovered();
        }
    }

    /// What an undo needs of it.
    pub(crate) fn kept(&self) -> Kept {
        Kept(match &self.algorithm {
            Algorithm::Reno(reno) => State::Windows(*reno),
            Algorithm::First(first) => State::First(*first),
            Algorithm::Cubic(cubic) => State::Cubic(Cubic::clone(cubic)),
            Algorithm::Bbr(bbr) => State::Windows(Reno::new(bbr.cwnd(), u32::MAX)),
            // What it has measured stays, whatever a loss meant.
            Algorithm::Dctcp(dctcp) => State::Windows(dctcp.reno),
        })
    }

    /// What is kept of it while the connection rests and nothing is in flight.
    pub(crate) fn at_rest(&self) -> Congestion {
        let mut rest = self.clone();
        if let Some(bbr) = rest.bbr_mut() {
            bbr.sampler.rest();
        }
        rest
    }

    /// Congestion window, bytes.
    pub fn window(&self) -> u32 {
        match &self.algorithm {
            Algorithm::Reno(reno) => reno.window,
            Algorithm::First(first) => first.window,
            Algorithm::Cubic(cubic) => cubic.window,
            Algorithm::Bbr(bbr) => bbr.cwnd(),
            Algorithm::Dctcp(dctcp) => dctcp.reno.window,
        }
    }

    /// The window one round trip on, bytes, if it is `window` now, all of it is used, and nothing
    /// is lost: `next(cwnd)` of Cohen & Cohen 2002 §3.3.
    pub fn next(&self, window: u32, mss: u32) -> u32 {
        match &self.algorithm {
            Algorithm::Reno(reno) => reno.next(window, mss),
            Algorithm::First(_) => window.saturating_mul(2).min(WINDOW_MAX),
            Algorithm::Cubic(cubic) => cubic.next(window, mss),
            Algorithm::Bbr(bbr) => bbr.next(window).min(WINDOW_MAX),
            Algorithm::Dctcp(dctcp) => dctcp.reno.next(window, mss),
        }
    }

    /// The window after a silence: halved for each span that it lasted, but not below the initial
    /// one (RFC 2861 §3.1, RFC 7661 §4.4.3).
    pub(crate) fn window_after_idle(&self, idle: Idle) -> u32 {
        if self.has_model() {
            return self.window();
        }
        let halved = self.window().checked_shr(idle.spans).unwrap_or(0);
        self.window().min(halved.max(initial_window(idle.initial_segments, idle.mss)))
    }

    /// Slow-start threshold, bytes; `u32::MAX` before the first loss.
    pub fn threshold(&self) -> u32 {
        match &self.algorithm {
            Algorithm::Reno(reno) => reno.threshold,
            Algorithm::First(_) | Algorithm::Bbr(_) => u32::MAX,
            Algorithm::Cubic(cubic) => cubic.threshold,
            Algorithm::Dctcp(dctcp) => dctcp.reno.threshold,
        }
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
        if let Algorithm::Cubic(cubic) = &mut self.algorithm {
            cubic.on_sent(&sent);
        }
    }

    /// Something new is acknowledged.
    #[inline(always)]
    pub(crate) fn on_ack(&mut self, outcome: &AckOutcome, ack: Ack, mss: u32) {
        let used = self.usage.most.max(outcome.flight);
        match &mut self.algorithm {
            Algorithm::Reno(reno) => reno.on_ack(outcome, ack, used, mss),
            Algorithm::First(first) => {
                if let Some(cubic) = first.on_ack(outcome, ack, used, mss) {
                    self.algorithm = Algorithm::Cubic(Tight::new(cubic));
                }
            }
            Algorithm::Cubic(cubic) => cubic.on_ack(outcome, ack, used, mss),
            Algorithm::Bbr(_) => {}
            Algorithm::Dctcp(dctcp) => dctcp.reno.on_ack(outcome, ack, used, mss),
        }
    }

    /// Fast recovery begins, or a router has marked what it would have dropped.
    pub fn on_loss(&mut self, loss: Loss, mss: u32) {
        // While an old hole is open, what lies behind it counts as in flight, whatever is sacked.
        let loss = Loss { flight: loss.flight.min(self.window()), ..loss };
        match &mut self.algorithm {
            Algorithm::Reno(reno) => reno.on_loss(loss, mss),
            Algorithm::First(first) => {
                let cubic = first.end();
                self.algorithm = Algorithm::Cubic(Tight::new(cubic));
                self.on_loss(loss, mss);
            }
            Algorithm::Cubic(cubic) => cubic.on_loss(loss, mss),
            // It hears of what is lost; a mark is taken for a loss like others.
            Algorithm::Bbr(bbr) if loss.is_marked => bbr.on_lost(loss.now, 0, None),
            Algorithm::Bbr(_) => {}
            Algorithm::Dctcp(dctcp) => dctcp.on_loss(loss, mss),
        }
    }

    /// The retransmission timer fired; `again` for the same data.
    pub fn on_timeout(&mut self, loss: Loss, again: bool, mss: u32) {
        match &mut self.algorithm {
            Algorithm::Reno(reno) => reno.on_timeout(loss, again, mss),
            Algorithm::First(first) => {
                let cubic = first.end();
                self.algorithm = Algorithm::Cubic(Tight::new(cubic));
                self.on_timeout(loss, again, mss);
            }
            Algorithm::Cubic(cubic) => cubic.on_timeout(loss, again, mss),
            Algorithm::Bbr(_) => {}
            Algorithm::Dctcp(dctcp) => dctcp.reno.on_timeout(loss, again, mss),
        }
    }

    /// The reduction was not needed, since which this was `before` it, and `pipe` bytes are in the
    /// network. The window opens to where it was by slow start, so that no burst leaves (RFC 4015
    /// §3.2), and an algorithm remembers again what it did.
    pub(crate) fn on_undo(&mut self, before: &Kept, pipe: u32, initial_window: u32) {
        let old = before.window();
        let window = pipe.saturating_add(initial_window).min(old).max(self.window());
        match (&mut self.algorithm, &before.0) {
            (Algorithm::Reno(reno), State::Windows(before)) => reno.restore(before, window),
            (Algorithm::Dctcp(dctcp), State::Windows(before)) => {
                dctcp.reno.restore(before, window);
            }
            // Beyond where it was, it goes on from where it is (RFC 9438 §4.9.2).
            (Algorithm::Cubic(cubic), _) if cubic.window >= old => {}
            (Algorithm::Cubic(cubic), State::Cubic(before)) => cubic.restore(before, window),
            (algorithm @ Algorithm::Cubic(_), State::First(before)) => {
                *algorithm = Algorithm::First(before.with(window));
            }
            (Algorithm::Bbr(bbr), _) => bbr.on_spurious(),
            // Another algorithm was chosen meanwhile.
            _ => {}
        }
    }

    /// A silence is over. Slow start comes back to three quarters of what the path has carried
    /// (RFC 2861 §3.1, RFC 7661 §4.4.3).
    pub(crate) fn on_idle(&mut self, idle: Idle) {
        let sustained = self.window() - self.window() / 4;
        let window = self.window_after_idle(idle);
        match &mut self.algorithm {
            Algorithm::Reno(reno) => reno.on_idle(window, sustained),
            Algorithm::First(first) => first.window = window,
            Algorithm::Cubic(cubic) => cubic.on_idle(window, sustained),
            Algorithm::Bbr(_) => {}
            Algorithm::Dctcp(dctcp) => dctcp.reno.on_idle(window, sustained),
        }
    }

    /// Nothing was sent yet, and the segments are smaller than was thought: the window is the
    /// initial one of such.
    pub fn restart(&mut self, initial_segments: u32, mss: u32) {
        let initial = initial_window(initial_segments, mss);
        self.scale(|window| window.min(initial));
    }

    /// The SYN or its acknowledgement was lost: start with one segment (RFC 5681 §3.1).
    pub fn on_handshake_loss(&mut self, mss: u32) {
        if let Some(bbr) = self.bbr_mut() {
            return bbr.on_handshake_loss();
        }
        self.scale(|_| mss);
    }

    /// The largest segment has become smaller with the path: the window shrinks in proportion, or
    /// it would let a burst of small segments go (RFC 5681 §3.1); but it holds one at least.
    pub fn on_mss(&mut self, old_mss: u32, mss: u32) {
        self.set_mss(mss);
        let scaled = |bytes: u32| u64::from(bytes) * u64::from(mss) / u64::from(old_mss.max(1));
        self.scale(|bytes| (scaled(bytes) as u32).max(mss));
    }

    /// Segments have another size; the window, in bytes, stays.
    pub(crate) fn set_mss(&mut self, mss: u32) {
        if let Some(bbr) = self.bbr_mut() {
            bbr.on_mss(mss);
        }
    }

    fn scale(&mut self, by: impl Fn(u32) -> u32) {
        match &mut self.algorithm {
            Algorithm::Reno(reno) => reno.window = by(reno.window),
            Algorithm::First(first) => first.window = by(first.window),
            Algorithm::Cubic(cubic) => cubic.scale(by),
            Algorithm::Bbr(_) => {}
            Algorithm::Dctcp(dctcp) => dctcp.reno.window = by(dctcp.reno.window),
        }
    }
}

// All connections, busy or idle, carry this: what is larger goes into a box.
const _: () = assert!(size_of::<Congestion>() == 20);

#[cfg(test)]
mod tests;
