//! The receive window: what is promised to the peer (RFC 9293 §3.8.6).
//!
//! ```text
//!    RCV.NXT              edge                 limit
//!       │    promised       │  not yet promised  │
//!       ▼                   ▼                    ▼
//! ──────┼───────────────────┼────────────────────┤
//!   read position + size = limit; the edge only ever moves right
//! ```
//!
//! The size starts small and follows what the application really reads in a round trip (dynamic
//! right-sizing, Fisk & Feng 2001): twice that, up to the largest. Silly windows are avoided by
//! moving the edge in steps of a segment or half the buffer (§3.8.6.2.2). All windows of a shard
//! together are bounded by a `WindowBudget`.

use crate::flow::Seq;
use crate::time::{Duration, Instant};

/// The least window that a SYN offers when the budget is spent, in bytes.
const WINDOW_MIN: u32 = 2048;

/// Bytes of window that a shard may promise to all its peers together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WindowBudget {
    promised: u64,
    limit: u64,
    /// Our shift count, if we scale.
    shift: u8,
}

/// What a SYN offers of a window of `bytes`: as much of it as its field holds, and one unit of
/// `shift` at least, or the window could never open.
pub(crate) fn offer_of(bytes: u32, shift: u8) -> u16 {
    bytes.clamp(1 << shift, u16::MAX.into()) as u16
}

impl WindowBudget {
    /// A budget of `limit` bytes for connections that scale by `shift`.
    pub(crate) fn new(limit: u64, shift: u8) -> Self {
        WindowBudget { promised: 0, limit, shift }
    }

    /// Promises so many bytes at most from now on.
    pub(crate) fn set_limit(&mut self, limit: u64) {
        self.limit = limit;
    }

    /// Bytes that can still be promised.
    pub(crate) fn left(&self) -> u64 {
        self.limit.saturating_sub(self.promised)
    }

    /// Takes at most `wanted` bytes.
    fn take(&mut self, wanted: u32) -> u32 {
        let granted = u64::from(wanted).min(self.left());
        self.promised += granted;
        granted as u32
    }

    /// The window for a SYN whose connection wants to offer `wanted` bytes: at most what is left,
    /// but never so little that the connection could not live.
    pub(crate) fn offer(&self, wanted: u16) -> u16 {
        let left = self.left().max(WINDOW_MIN.into());
        if left < wanted.into() {
            // Whole units: what is scaled can say the same.
            offer_of(left as u32 >> self.shift << self.shift, self.shift)
        } else {
            wanted
        }
    }

    /// Bytes promised now.
    pub(crate) fn promised(&self) -> u64 {
        self.promised
    }
}

/// One connection's receive window.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecvWindow {
    /// Bytes the buffer may hold, taken from the budget.
    size: u32,
    /// Largest size it may grow to; smaller than `size` while what was promised once outlives a
    /// buffer that was made smaller.
    size_max: u32,
    /// One past the last byte promised.
    edge: Seq,
    /// Our shift count (RFC 7323 §2); 0 without scaling.
    scale: u8,
    /// Nothing has been announced but the SYN's window, which 16 bits may have cut.
    cut: bool,
    /// Right-sizing: bytes read by the application since `round_start`.
    read_bytes: u32,
    round_start: Instant,
    /// RTT as a receiver sees it: the time from an ACK to the data just beyond what it promised.
    rtt_ns: u64,
    /// When that ACK left, if the time is being measured; else [`Instant::FAR_FUTURE`].
    promised_at: Instant,
    /// The sequence number at which the awaited data begins.
    promised_to: Seq,
}

/// A window between data, of an RTT up to 4.2 s. 44 bytes.
#[derive(Clone, Copy, Debug)]
#[repr(Rust, packed(4))]
pub(crate) struct AtRest {
    size: u32,
    size_max: u32,
    edge: Seq,
    read_bytes: u32,
    round_start: Instant,
    rtt_ns: u32,
    promised_at: Instant,
    promised_to: Seq,
    scale: u8,
    cut: bool,
}

impl AtRest {
    /// The window again.
    pub(crate) fn window(&self) -> RecvWindow {
        let AtRest { size, size_max, edge, read_bytes, round_start, rtt_ns, scale, cut, .. } =
            *self;
        let AtRest { promised_at, promised_to, .. } = *self;
        RecvWindow {
            size,
            size_max,
            edge,
            scale,
            cut,
            read_bytes,
            round_start,
            rtt_ns: rtt_ns.into(),
            promised_at,
            promised_to,
        }
    }
}

/// Bytes of a new window.
#[derive(Clone, Copy)]
pub(crate) struct Sizes {
    /// Its size to begin with.
    pub(crate) first: u32,
    /// The size up to which it grows.
    pub(crate) largest: u32,
}

impl RecvWindow {
    /// The window between data: all of it, in less room.
    pub(crate) fn at_rest(&self) -> Option<AtRest> {
        let RecvWindow { size, size_max, edge, scale, cut, .. } = *self;
        let RecvWindow { read_bytes, round_start, rtt_ns, promised_at, promised_to, .. } = *self;
        Some(AtRest {
            size,
            size_max,
            edge,
            read_bytes,
            round_start,
            rtt_ns: u32::try_from(rtt_ns).ok()?,
            promised_at,
            promised_to,
            scale,
            cut,
        })
    }

    /// A window of `size` bytes from `rcv_nxt`, or less if the budget has no more; but what our SYN
    /// has `offered` stays promised.
    pub(crate) fn new(
        rcv_nxt: Seq,
        offered: u16,
        Sizes { first: size, largest: size_max }: Sizes,
        scale: u8,
        now: Instant,
        budget: &mut WindowBudget,
    ) -> Self {
        let offered = u32::from(offered);
        budget.promised += u64::from(offered);
        // One unit of the field at least, or the window could never open.
        let size = size.max(1 << scale);
        let size = offered + budget.take(size.saturating_sub(offered));
        RecvWindow {
            size,
            size_max: size_max.max(size),
            edge: rcv_nxt + offered,
            scale,
            cut: true,
            read_bytes: 0,
            round_start: now,
            rtt_ns: 0,
            promised_at: Instant::FAR_FUTURE,
            promised_to: Seq::default(),
        }
    }

    /// Bytes from `rcv_nxt` that the peer may send.
    pub(crate) fn offered(&self, rcv_nxt: Seq) -> u32 {
        self.edge.distance(rcv_nxt).max(0) as u32
    }

    /// Our shift count; 0 without scaling.
    pub(crate) fn scale(&self) -> u8 {
        self.scale
    }

    /// Bytes the buffer may hold.
    pub(crate) fn size(&self) -> u32 {
        self.size.min(self.size_max)
    }

    /// The RTT by which it is sized; zero while that is not known.
    pub(crate) fn rtt(&self) -> Duration {
        Duration::from_nanos(self.rtt_ns)
    }

    /// The edge that is possible now, with `unread` bytes in order in the buffer.
    fn possible(&self, rcv_nxt: Seq, unread: u32) -> Seq {
        let free = self.size().saturating_sub(unread) >> self.scale << self.scale;
        self.edge.max(rcv_nxt + free)
    }

    /// Moves the edge if the step is worth it (a segment, or half the buffer; the first one always,
    /// from what a SYN could say; and any while the field is at its largest, since that is no silly
    /// window), and returns the value of the window field.
    pub(crate) fn announce(&mut self, rcv_nxt: Seq, unread: u32, mss: u16) -> u16 {
        let (size, unit) = (self.size(), 1u32 << self.scale);
        // From RCV.NXT, which may have passed the edge.
        let edge = self.edge.distance(rcv_nxt);
        let possible = edge.max((size.saturating_sub(unread) & !(unit - 1)) as i32);
        let is_step = (possible - edge) as u32 >= u32::from(mss).min(size / 2);
        let is_full = possible >= 65_535 << self.scale;
        let go = is_step || self.cut || is_full;
        let offered = if go { possible } else { edge.max(0) } as u32;
        self.cut = false;
        // The field must not promise less than the edge: round up, and keep that as the edge.
        let field = ((offered + (unit - 1)) >> self.scale).min(65_535);
        self.edge = rcv_nxt + offered.max(field << self.scale);
        field as u16
    }

    /// True if the application has read enough for an unsolicited window update: the window would
    /// at least double, by a segment or more.
    pub(crate) fn wants_update(&self, rcv_nxt: Seq, unread: u32, mss: u16) -> bool {
        let (offered, half) = (self.offered(rcv_nxt), self.size() / 2);
        // A size beyond half of the largest cannot double.
        if offered > half {
            return false;
        }
        let growth = self.possible(rcv_nxt, unread).since(self.edge);
        growth >= u32::from(mss).min(half).max(1) && growth >= offered
    }

    /// The peer's FIN has arrived, and nothing will any more. It takes no room in the buffer: the
    /// window that TIME-WAIT announces is the one before it, which is all that a record knows.
    pub(crate) fn pass_fin(&mut self) {
        self.edge += 1;
    }

    /// Data up to `rcv_nxt` has arrived: measures a round trip as the time in which a window's
    /// worth of new data came. `srtt_ns` is better where the sender half has one; 0: it has none.
    #[inline(always)]
    pub(crate) fn on_data(&mut self, rcv_nxt: Seq, srtt_ns: u64, now: Instant) {
        if srtt_ns > 0 {
            self.rtt_ns = srtt_ns;
        } else {
            self.measure(rcv_nxt, now);
        }
    }

    fn measure(&mut self, rcv_nxt: Seq, now: Instant) {
        if self.promised_at != Instant::FAR_FUTURE {
            if rcv_nxt.before(self.promised_to) {
                return;
            }
            let sample_ns = now.nanos_since(self.promised_at);
            let first = self.rtt_ns == 0;
            self.rtt_ns = if first { sample_ns } else { (self.rtt_ns * 7 + sample_ns) / 8 };
        }
        (self.promised_to, self.promised_at) = (self.edge, now);
    }

    /// The application has read `n` bytes: once a round trip, the size follows what it reads.
    pub(crate) fn on_read(&mut self, n: u32, now: Instant, budget: &mut WindowBudget) {
        self.read_bytes = self.read_bytes.saturating_add(n);
        if now.nanos_since(self.round_start) < self.rtt_ns || self.rtt_ns == 0 {
            return;
        }
        let wanted = self.read_bytes.saturating_mul(2).min(self.size_max);
        if wanted > self.size {
            self.size += budget.take(wanted - self.size);
        }
        self.read_bytes = 0;
        self.round_start = now;
    }

    /// The size is `bytes` from now on and does not follow the application any more. What has been
    /// promised stays so.
    pub(crate) fn fix(&mut self, bytes: u32, rcv_nxt: Seq, budget: &mut WindowBudget) {
        // One unit of the field at least, or the window would never open again.
        let bytes = bytes.max(1 << self.scale);
        let wanted = bytes.max(self.offered(rcv_nxt));
        if wanted > self.size {
            self.size += budget.take(wanted - self.size);
        } else {
            budget.promised -= u64::from(self.size - wanted);
            self.size = wanted;
        }
        self.size_max = self.size.min(bytes);
    }

    /// The connection is over: gives its promise back.
    pub(crate) fn release(&mut self, budget: &mut WindowBudget) {
        budget.promised -= u64::from(self.size);
        self.size = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::options::shift_for;

    const MSS: u16 = 1000;

    fn window(size: u32, size_max: u32) -> (RecvWindow, WindowBudget) {
        let scale = shift_for(size_max);
        let mut budget = WindowBudget::new(1 << 20, scale);
        let offered = budget.offer(offer_of(size, scale));
        let sizes = Sizes { first: size, largest: size_max };
        let window = RecvWindow::new(Seq(100), offered, sizes, scale, Instant::ZERO, &mut budget);
        (window, budget)
    }

    #[test]
    fn the_scale_is_the_smallest_that_expresses_the_largest_window() {
        assert_eq!(shift_for(65_535), 0);
        assert_eq!(shift_for(65_536), 1);
        assert_eq!(shift_for(4 << 20), 7);
        assert_eq!(shift_for(u32::MAX), 14);
    }

    #[test]
    fn the_edge_never_moves_left_and_moves_right_by_segments() {
        let (mut w, _) = window(10_000, 10_000);
        assert_eq!(w.announce(Seq(100), 0, MSS), 10_000);
        assert_eq!(w.announce(Seq(5100), 5000, MSS), 5000);
        assert_eq!(w.announce(Seq(5100), 4001, MSS), 5000, "999 bytes are a silly step");
        assert_eq!(w.announce(Seq(5100), 4000, MSS), 6000);
        assert_eq!(w.announce(Seq(5100), 10_000, MSS), 6000, "what was promised stays promised");
    }

    #[test]
    fn a_smaller_buffer_keeps_its_promise_and_promises_no_more() {
        let (mut w, mut budget) = window(4000, 4000);
        w.announce(Seq(100), 0, MSS);
        w.fix(1000, Seq(100), &mut budget);
        assert_eq!((w.offered(Seq(100)), w.size(), budget.promised()), (4000, 1000, 4000));
        assert_eq!(w.announce(Seq(4100), 4000, MSS), 0);
        assert_eq!(w.announce(Seq(4100), 501, MSS), 0);
        assert_eq!(w.announce(Seq(4100), 500, MSS), 500);
        assert_eq!(w.announce(Seq(4100), 0, MSS), 1000);
        w.release(&mut budget);
        assert_eq!(budget.promised(), 0);
    }

    #[test]
    fn an_update_is_sent_when_the_window_doubles() {
        let (mut w, _) = window(10_000, 10_000);
        w.announce(Seq(8100), 8000, MSS);
        assert_eq!(w.offered(Seq(8100)), 2000);
        assert!(!w.wants_update(Seq(8100), 6001, MSS));
        assert!(w.wants_update(Seq(8100), 6000, MSS));
    }

    #[test]
    fn a_closed_window_opens_by_a_segment() {
        let (mut w, _) = window(4000, 4000);
        assert_eq!(w.announce(Seq(4100), 4000, MSS), 0);
        assert!(!w.wants_update(Seq(4100), 3001, MSS));
        assert!(w.wants_update(Seq(4100), 3000, MSS));
    }

    #[test]
    fn the_size_follows_what_is_read_and_stops_at_its_maximum() {
        let (mut w, mut budget) = window(10_000, 30_000);
        w.on_data(Seq(10_100), 10_000_000, Instant::ZERO);
        w.on_read(10_000, Instant::from_millis(5), &mut budget);
        assert_eq!(w.size(), 10_000, "no round trip has passed");
        w.on_read(2000, Instant::from_millis(10), &mut budget);
        assert_eq!(w.size(), 24_000);
        w.on_read(20_000, Instant::from_millis(20), &mut budget);
        assert_eq!(w.size(), 30_000);
        assert_eq!(budget.promised(), 30_000);
        w.release(&mut budget);
        assert_eq!(budget.promised(), 0);
    }

    #[test]
    fn the_budget_bounds_all_windows_together() {
        let mut budget = WindowBudget::new(15_000, 0);
        let mut open = |expected: u32| {
            let offered = budget.offer(offer_of(10_000, 0));
            let sizes = Sizes { first: 10_000, largest: 10_000 };
            let w = RecvWindow::new(Seq(0), offered, sizes, 0, Instant::ZERO, &mut budget);
            assert_eq!((w.size(), w.offered(Seq(0))), (expected, expected));
        };
        open(10_000);
        open(5000);
        open(WINDOW_MIN);
        assert_eq!(budget.promised(), 15_000 + u64::from(WINDOW_MIN));
    }

    #[test]
    fn a_syn_offers_at_least_a_unit_and_at_most_its_field() {
        let offers = |bytes| [0, 7, 14].map(|shift| offer_of(bytes, shift));
        assert_eq!(offers(4 << 20), [65_535; 3]);
        assert_eq!(offers(65_534), [65_534; 3]);
        assert_eq!(offers(2192), [2192, 2192, 1 << 14]);
        assert_eq!(offers(0), [1, 1 << 7, 1 << 14]);
    }

    #[test]
    fn what_the_budget_leaves_is_offered_in_whole_units() {
        for (shift, left, expected) in [
            (0, 5000, 5000),
            (7, 5000, 39 << 7),
            (7, 0, 2048),
            (13, 0, 8192),
            (7, 65_534, 511 << 7),
        ] {
            let budget = WindowBudget::new(left, shift);
            assert_eq!(budget.offer(65_535), expected, "{shift}, {left}");
        }
        assert_eq!(WindowBudget::new(4096, 7).offer(4096), 4096);
        assert_eq!(WindowBudget::new(4095, 7).offer(4096), 31 << 7);
    }

    #[test]
    fn a_syns_offer_stays_promised_when_the_budget_runs_out() {
        let mut budget = WindowBudget::new(10_000, 0);
        let offered = budget.offer(10_000);
        budget.take(10_000);
        let sizes = Sizes { first: 20_000, largest: 20_000 };
        let w = RecvWindow::new(Seq(0), offered, sizes, 0, Instant::ZERO, &mut budget);
        assert_eq!(w.offered(Seq(0)), 10_000);
    }
}
