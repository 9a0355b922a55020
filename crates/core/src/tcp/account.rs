//! What a connection counts beside its bytes, where its socket asks for that
//! ([`SocketOptions::accounting`](crate::tcp::SocketOptions::accounting)): segments, for how long
//! its sender was held back, by what, and the rate of delivery.
//!
//! ```text
//!         a write      all is in flight     the window has closed    the last ACK
//!   ────────┼────────────────┼──────────────────────┼───────────────────┼──────▶ time
//!    idle   │    network     │ network, or buffer   │       window      │ idle
//!           ├──────────────────────── busy ────────────────────────────┤
//! ```
//!
//! Most connections have no memory for it, and each fast path asks with one branch: one that counts
//! takes every segment by the steps, in and out.

use alloc::boxed::Box;
use core::mem;

use crate::tcp::congestion::delivery::Sampler;
use crate::tcp::connection::Step;
use crate::tcp::send::SendHalf;
use crate::time::{Duration, Instant};
use crate::wire::tcp::{Flags, Segment};

/// What was counted of one connection since its socket asked for that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Account {
    /// Segments of the peer, its SYN, ACK among them if we opened. What the device has joined
    /// counts as what it was joined of.
    pub segments_in: u64,
    /// Those of them with data.
    pub data_segments_in: u64,
    /// Segments that left, new and again, our SYNs among them if we opened; but no reset. What the
    /// device cuts counts as what it is cut into.
    pub segments_out: u64,
    /// Those of them with data.
    pub data_segments_out: u64,
    /// Segments of ours that the peer has reported, in order or not. Our SYN is one of them, at
    /// either end. Those of one ACK are counted by their share of the bytes in flight: exact where
    /// they are of one size, and when nothing is in flight any more.
    pub segments_delivered: u64,
    /// Those of them that an ACK with ECE has reported (RFC 3168).
    pub segments_delivered_marked: u64,
    /// How long data waited to be sent or to be acknowledged.
    pub busy: Duration,
    /// The part of that in which the peer's window was too small for the next segment, and the
    /// congestion window was not.
    pub window_limited: Duration,
    /// The part of that in which nothing was left to send, the writer waited for room, and the
    /// congestion window had some.
    pub buffer_limited: Duration,
    /// When data last came in order. Before the first: when this account began.
    pub last_received: Instant,
}

/// What holds the sender back at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hold {
    /// It has nothing to send.
    Idle,
    /// The network: data is in flight.
    Network,
    /// The peer's window.
    Window,
    /// Room in the send buffer.
    Buffer,
}

/// What has left and the peer has not reported.
#[derive(Clone, Copy, Debug, Default)]
struct Undelivered {
    segments: u64,
    bytes: u32,
}

impl Undelivered {
    /// So many segments have left, behind which so many bytes are undelivered. Segments that were
    /// sent again do not make these more.
    fn on_sent(&mut self, segments: u64, bytes: u32) {
        if bytes > self.bytes {
            self.segments += segments;
        }
        self.bytes = bytes;
    }

    /// The peer has told that so many bytes are left. Returns how many segments have arrived.
    fn on_heard(&mut self, bytes: u32) -> u64 {
        let before = u64::from(mem::replace(&mut self.bytes, bytes));
        let arrived = before.saturating_sub(bytes.into());
        let segments = match bytes {
            _ if arrived == 0 => 0,
            0 => self.segments,
            // To the nearest.
            _ => ((self.segments * arrived + before / 2) / before).max(1).min(self.segments),
        };
        self.segments -= segments;
        segments
    }
}

/// An account that goes on.
#[derive(Clone, Debug)]
pub(crate) struct Ledger {
    /// Samples the rate of delivery, unless congestion control does.
    pub sampler: Sampler,
    account: Account,
    undelivered: Undelivered,
    hold: Hold,
    /// Since when that holds, and the account does not have it yet.
    since: Instant,
}

impl Account {
    /// For so long that has held the sender back.
    fn add(&mut self, hold: Hold, passed: Duration) {
        self.busy += if hold == Hold::Idle { Duration::ZERO } else { passed };
        match hold {
            Hold::Idle | Hold::Network => {}
            Hold::Window => self.window_limited += passed,
            Hold::Buffer => self.buffer_limited += passed,
        }
    }
}

impl Ledger {
    /// Nothing has happened before `now`.
    pub(crate) fn new(now: Instant) -> Ledger {
        let account = Account {
            segments_in: 0,
            data_segments_in: 0,
            segments_out: 0,
            data_segments_out: 0,
            segments_delivered: 0,
            segments_delivered_marked: 0,
            busy: Duration::ZERO,
            window_limited: Duration::ZERO,
            buffer_limited: Duration::ZERO,
            last_received: now,
        };
        let mut sampler = Sampler::new(now);
        // Until the first write there is nothing to send.
        sampler.on_app_limited(0);
        let undelivered = Undelivered::default();
        Ledger { sampler, account, undelivered, hold: Hold::Idle, since: now }
    }

    /// The account at `now`.
    fn account(&self, now: Instant) -> Account {
        let mut account = self.account;
        account.add(self.hold, now.since(self.since));
        account
    }

    /// From `now` on that holds the sender back.
    fn turn_to(&mut self, hold: Hold, now: Instant) {
        self.account.add(self.hold, now.since(self.since));
        (self.hold, self.since) = (hold, now);
    }

    /// What is kept of it while the connection rests.
    pub(crate) fn rest(&mut self) {
        self.sampler.rest();
    }

    /// The connection is established: the peer has our SYN.
    pub(crate) fn on_established(&mut self) {
        self.account.segments_delivered += 1;
    }

    /// We have opened, by so many SYNs and the peer's answer.
    pub(crate) fn on_opened(&mut self, attempts: u8) {
        self.on_sent(attempts.into(), false);
        self.on_heard(1, false);
    }

    /// So many bytes are undelivered since these segments have left.
    fn on_departed(&mut self, segments: u64, bytes: u32) {
        self.undelivered.on_sent(segments, bytes);
    }

    /// So many bytes are undelivered since a segment has come, which `is_marked`: it has ECE.
    fn on_delivered(&mut self, bytes: u32, is_marked: bool) {
        let segments = self.undelivered.on_heard(bytes);
        self.account.segments_delivered += segments;
        self.account.segments_delivered_marked += if is_marked { segments } else { 0 };
    }

    /// So many segments have left.
    pub(crate) fn on_sent(&mut self, segments: u64, has_data: bool) {
        self.account.segments_out += segments;
        self.account.data_segments_out += if has_data { segments } else { 0 };
    }

    /// So many segments have come.
    pub(crate) fn on_heard(&mut self, segments: u64, has_data: bool) {
        self.account.segments_in += segments;
        self.account.data_segments_in += if has_data { segments } else { 0 };
    }

    /// Data has come in order.
    pub(crate) fn on_received(&mut self, now: Instant) {
        self.account.last_received = now;
    }
}

impl SendHalf {
    /// True if it counts.
    pub(crate) fn is_accounted(&self) -> bool {
        self.rare.as_deref().is_some_and(|rare| rare.ledger.is_some())
    }

    /// What it counts in, if it does.
    pub(crate) fn ledger_mut(&mut self) -> Option<&mut Ledger> {
        self.rare.as_mut()?.ledger.as_deref_mut()
    }

    /// What it counts in, if it does.
    pub(crate) fn ledger(&self) -> Option<&Ledger> {
        self.rare.as_ref()?.ledger.as_deref()
    }

    /// What it has counted by `now`, if it does.
    pub(crate) fn account(&self, now: Instant) -> Option<Account> {
        Some(self.ledger()?.account(now))
    }

    /// Bytes that have left and the peer has not reported. A window probe's byte is
    /// one of them.
    fn undelivered(&self) -> u32 {
        self.max.since(self.una).saturating_sub(self.sent.sacked())
    }

    /// Begins to count at `now`, or ends.
    pub(crate) fn set_accounting(&mut self, is_on: bool, now: Instant) {
        if is_on || self.rare.is_some() {
            self.rare_mut().ledger = is_on.then(|| Box::new(Ledger::new(now)));
        }
    }

    /// Something has been sent, heard or written. `waits`: for room, its writer does.
    pub(crate) fn note_hold(&mut self, waits: bool, now: Instant) {
        let hold = self.hold(waits);
        if let Some(ledger) = self.ledger_mut() {
            ledger.turn_to(hold, now);
        }
    }

    fn hold(&self, waits: bool) -> Hold {
        let (flight, unsent) = (self.flight(), self.data_end().distance(self.nxt).max(0) as u32);
        let (next, window) = (flight + unsent.min(self.mss.into()), self.congestion.window());
        match (unsent, flight) {
            (0, 0) => Hold::Idle,
            (0, _) if waits && flight < window => Hold::Buffer,
            (1.., _) if next > self.window && next <= window => Hold::Window,
            _ => Hold::Network,
        }
    }
}

impl Step<'_> {
    /// Notes in the account what holds the sender back from here on.
    pub(crate) fn note_hold(&mut self) {
        let waits = self.common.blocked.waits_for_room();
        self.s.send.note_hold(waits, self.cx.now);
    }

    /// Enters so many segments that have left in the account.
    pub(crate) fn enter_sent(&mut self, segments: u64, has_data: bool) {
        let bytes = self.s.send.undelivered();
        if let Some(ledger) = self.s.send.ledger_mut() {
            ledger.on_sent(segments, has_data);
            ledger.on_departed(segments, bytes);
        }
        self.note_hold();
    }

    /// Enters a segment in the account, if there is one. `piece`: payload size of the segments
    /// joined into it; 0 if it is a single one. So much data had been `received` before.
    pub(crate) fn enter_heard(&mut self, segment: &Segment<'_>, piece: u16, received: u64) {
        if !self.s.send.is_accounted() {
            return;
        }
        let (now, has_more) = (self.cx.now, self.s.passed.received != received);
        let is_marked = self.s.ecn.is_some() && segment.flags.contains(Flags::ECE);
        let bytes = self.s.send.undelivered();
        let Some(ledger) = self.s.send.ledger_mut() else { return };
        ledger.on_delivered(bytes, is_marked);
        let len = segment.payload.len();
        let segments = if piece == 0 { 1 } else { len.div_ceil(piece.into()).max(1) };
        ledger.on_heard(segments as u64, len > 0);
        if has_more {
            ledger.on_received(now);
        }
        self.note_hold();
    }
}

#[cfg(test)]
mod tests {
    use super::Undelivered;

    #[test]
    fn segments_of_one_size_arrive_as_they_left() {
        let mut undelivered = Undelivered::default();
        undelivered.on_sent(10, 10_000);
        assert_eq!([9000, 9000, 3000].map(|left| undelivered.on_heard(left)), [1, 0, 6]);
        undelivered.on_sent(2, 3000);
        assert_eq!(undelivered.on_heard(0), 3, "what was sent again is not more");
    }

    #[test]
    fn segments_of_two_sizes_are_right_in_the_end() {
        let mut undelivered = Undelivered::default();
        undelivered.on_sent(5, 7300);
        undelivered.on_sent(5, 7350);
        let arrived = [5890, 50, 20, 0].map(|left| undelivered.on_heard(left));
        assert_eq!(arrived.iter().sum::<u64>(), 10);
        assert_eq!(arrived[0], 2, "a fifth of the bytes, though one segment");
    }

    #[test]
    fn a_receiver_that_takes_back_what_it_held_is_no_news() {
        let mut undelivered = Undelivered::default();
        undelivered.on_sent(4, 4000);
        assert_eq!([2000, 4000, 0].map(|left| undelivered.on_heard(left)), [2, 0, 2]);
    }
}
