//! DCTCP (RFC 8257): the share of the bytes that came marked decides by how much the window is
//! reduced. Classic ECN halves the window for one mark (RFC 3168). Where routers mark early, queues
//! stay short.
//!
//! ```text
//!   peer    every ACK says whether what it acknowledges came marked  ([`Echo`], §3.2)
//!             │
//!   sender    each window of data:  α ← α + (share of marked bytes - α)/16
//!             each marked window:   cwnd ← cwnd·(1 - α/2)
//! ```
//!
//! Growth, losses and timeouts are Reno's (§3.4, §3.5). Without ECN nothing is ever marked, and
//! Reno is all there is.

use super::reno::Reno;
use super::{AckOutcome, Loss};
use crate::flow::Seq;
use crate::tcp::ecn::Echo;

/// α = 1.
const ONE: u32 = 1 << 16;
/// g = 2⁻⁴ (§4.2).
const GAIN_SHIFT: u32 = 4;

/// What a connection has because it uses DCTCP: both halves of it.
#[derive(Clone, Debug)]
pub(crate) struct Dctcp {
    /// The windows.
    pub(super) reno: Reno,
    /// DCTCP.Alpha, in 2⁻¹⁶.
    alpha: u32,
    /// DCTCP.WindowEnd.
    window_end: Seq,
    /// DCTCP.BytesAcked.
    acked: u32,
    /// DCTCP.BytesMarked.
    marked: u32,
    /// The receiver's half.
    pub(super) echo: Echo,
}

impl Dctcp {
    /// The first observation ends beyond `window_end`.
    pub(super) fn new(reno: Reno, window_end: Seq) -> Dctcp {
        Dctcp { reno, alpha: ONE, window_end, acked: 0, marked: 0, echo: Echo::default() }
    }

    /// An ACK up to `una` has come, which says `marked` of what it acknowledges; SND.NXT is `nxt`
    /// (§3.3, steps 1 to 8). SACK blocks do not count.
    pub(super) fn on_echo(&mut self, outcome: &AckOutcome, marked: bool, una: Seq, nxt: Seq) {
        let bytes = outcome.freed as u32;
        self.acked = self.acked.saturating_add(bytes);
        self.marked = self.marked.saturating_add(if marked { bytes } else { 0 });
        if !una.after(self.window_end) {
            return;
        }
        if self.acked > 0 {
            self.alpha = updated(self.alpha, self.marked, self.acked);
        }
        (self.window_end, self.acked, self.marked) = (nxt, 0, 0);
    }

    /// A window of data came marked (§3.3, step 9), or something is lost (§3.5).
    ///
    /// The first mark of a window reduces, as in RFC 3168, and not the end of the observation: a
    /// queue that begins to grow is answered a round trip sooner.
    pub(super) fn on_loss(&mut self, loss: Loss, mss: u32) {
        if !loss.is_marked {
            return self.reno.on_loss(loss, mss);
        }
        let window = self.reno.window;
        let less = (u64::from(window) * u64::from(self.alpha) / u64::from(2 * ONE)) as u32;
        self.reno.reduce((window - less).max(2 * mss));
    }
}

/// α after an observation (§4.2): rounded so that it can reach 0, and never beyond 1.
fn updated(alpha: u32, marked: u32, acked: u32) -> u32 {
    let share = (u64::from(ONE) * u64::from(marked) / u64::from(acked)) as u32;
    let decay = alpha >> GAIN_SHIFT;
    let rest = if decay == 0 { 0 } else { alpha - decay };
    (rest + (share >> GAIN_SHIFT)).min(ONE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp::congestion::{Ack, Mode};
    use crate::time::Instant;

    const MSS: u32 = 1000;
    const MARK: Loss = Loss { now: Instant::ZERO, flight: 0, is_marked: true };

    fn fresh() -> Dctcp {
        Dctcp::new(Reno::new(100 * MSS, u32::MAX), Seq(0))
    }

    /// An ACK of `bytes` more, behind which `window` bytes are out.
    fn echo(dctcp: &mut Dctcp, una: &mut Seq, bytes: u32, marked: bool, window: u32) {
        *una += bytes;
        let outcome = AckOutcome { freed: bytes as usize, ..AckOutcome::default() };
        dctcp.on_echo(&outcome, marked, *una, *una + window);
    }

    /// RFC 8257 §3.3: α begins at 1, and follows the share of marked bytes of each window.
    #[test]
    fn alpha_follows_the_marked_share_by_a_sixteenth_a_window() {
        let (mut dctcp, mut una) = (fresh(), Seq(0));
        let mut expected = 1.0;
        let window = 10 * MSS - MSS / 2;
        echo(&mut dctcp, &mut una, MSS, true, window);
        assert_eq!(dctcp.alpha, ONE, "all of it");
        for _ in 0..100 {
            for n in 0..10 {
                let before = dctcp.alpha;
                echo(&mut dctcp, &mut una, MSS, n < 3, window);
                assert!(dctcp.alpha == before || n == 9, "once a window");
            }
            expected = expected * 15.0 / 16.0 + 0.3 / 16.0;
        }
        let alpha = f64::from(dctcp.alpha) / f64::from(ONE);
        assert!((alpha - expected).abs() < 0.01, "{alpha}, not {expected}");
    }

    /// RFC 8257 §3.3, step 4: the observation goes on up to WindowEnd, and that included.
    #[test]
    fn an_observation_ends_beyond_its_end() {
        let (mut dctcp, mut una) = (fresh(), Seq(0));
        echo(&mut dctcp, &mut una, 1, false, 2 * MSS);
        let before = dctcp.alpha;
        echo(&mut dctcp, &mut una, 2 * MSS, true, 2 * MSS);
        assert_eq!((dctcp.alpha, dctcp.acked, dctcp.marked), (before, 2 * MSS, 2 * MSS));
        echo(&mut dctcp, &mut una, MSS, true, 2 * MSS);
        assert_ne!(dctcp.alpha, before);
        assert_eq!((dctcp.acked, dctcp.marked, dctcp.window_end), (0, 0, una + 2 * MSS));
    }

    /// RFC 8257 §4.2.
    #[test]
    fn alpha_reaches_zero_and_never_exceeds_one() {
        let mut alpha = ONE;
        let windows = (0..).take_while(|_| {
            alpha = updated(alpha, 0, MSS);
            alpha > 0
        });
        assert!(windows.count() < 200);
        for alpha in [0, 15, 16, ONE / 2, ONE - 1, ONE] {
            for marked in [0, 1, MSS / 2, MSS] {
                assert!(updated(alpha, marked, MSS) <= ONE);
            }
        }
        assert_eq!(updated(ONE, u32::MAX, u32::MAX), ONE);
    }

    /// RFC 8257 §3.3, step 9.
    #[test]
    fn a_mark_reduces_the_window_by_half_of_alpha() {
        for (alpha, window) in [(ONE, 50), (ONE / 2, 75), (0, 100)] {
            let mut dctcp = Dctcp { alpha, ..fresh() };
            dctcp.on_loss(MARK, MSS);
            assert_eq!((dctcp.reno.window, dctcp.reno.threshold), (window * MSS, window * MSS));
        }
        let mut least = Dctcp::new(Reno::new(3 * MSS, u32::MAX), Seq(0));
        least.on_loss(MARK, MSS);
        assert_eq!({ least.reno.window }, 2 * MSS);
    }

    /// An ACK of FIN alone ends it.
    #[test]
    fn an_observation_without_data_tells_nothing() {
        let mut dctcp = fresh();
        dctcp.on_echo(&AckOutcome::default(), true, Seq(1), Seq(9));
        assert_eq!((dctcp.alpha, dctcp.window_end), (ONE, Seq(9)));
    }

    /// RFC 8257 §3.4, §3.5.
    #[test]
    fn growth_and_losses_are_renos() {
        let (mut dctcp, mut reno) = (fresh(), fresh().reno);
        let outcome = AckOutcome { delivered: 10 * MSS, ..AckOutcome::default() };
        let lost = Loss { now: Instant::ZERO, flight: 80 * MSS, is_marked: false };
        let both = |dctcp: &Dctcp, reno: &Reno| {
            assert_eq!((dctcp.reno.window, dctcp.reno.threshold), (reno.window, reno.threshold));
        };
        for mode in [Mode::Open, Mode::Fast, Mode::Timeout] {
            for _ in 0..20 {
                dctcp.reno.on_ack(&outcome, Ack { mode, ..Ack::at(Instant::ZERO) }, u32::MAX, MSS);
                reno.on_ack(&outcome, Ack { mode, ..Ack::at(Instant::ZERO) }, u32::MAX, MSS);
            }
            dctcp.on_loss(lost, MSS);
            reno.on_loss(lost, MSS);
            both(&dctcp, &reno);
        }
        assert_eq!({ reno.window }, 40 * MSS);
    }
}
