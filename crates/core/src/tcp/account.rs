//! What a connection counts beside its bytes, where its socket asks for that
//! ([`SocketOptions::accounting`](crate::tcp::SocketOptions::accounting)): segments, and for how
//! long its sender was held back, by what.
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

use crate::tcp::connection::Step;
use crate::tcp::send::SendHalf;
use crate::time::{Duration, Instant};
use crate::wire::tcp::Segment;

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

/// An account that goes on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ledger {
    account: Account,
    hold: Hold,
    /// Since when that holds, and the account does not have it yet.
    since: Instant,
}

impl Ledger {
    /// Nothing has happened before `now`.
    pub(crate) fn new(now: Instant) -> Ledger {
        let account = Account {
            segments_in: 0,
            data_segments_in: 0,
            segments_out: 0,
            data_segments_out: 0,
            busy: Duration::ZERO,
            window_limited: Duration::ZERO,
            buffer_limited: Duration::ZERO,
            last_received: now,
        };
        Ledger { account, hold: Hold::Idle, since: now }
    }

    /// The account at `now`.
    fn account(mut self, now: Instant) -> Account {
        self.turn_to(self.hold, now);
        self.account
    }

    /// From `now` on that holds the sender back.
    fn turn_to(&mut self, hold: Hold, now: Instant) {
        let passed = now.since(self.since);
        let account = &mut self.account;
        match self.hold {
            Hold::Idle => {}
            Hold::Network => account.busy += passed,
            Hold::Window => {
                account.busy += passed;
                account.window_limited += passed;
            }
            Hold::Buffer => {
                account.busy += passed;
                account.buffer_limited += passed;
            }
        }
        (self.hold, self.since) = (hold, now);
    }

    /// We have opened, by so many SYNs and the peer's answer.
    pub(crate) fn on_opened(&mut self, attempts: u8) {
        self.on_sent(attempts.into(), false);
        self.on_heard(1, false);
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

    /// What it has counted by `now`, if it does.
    pub(crate) fn account(&self, now: Instant) -> Option<Account> {
        Some(self.rare.as_ref()?.ledger.as_ref()?.account(now))
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
    /// Notes what holds the sender back from here on, if there is an account of that.
    pub(crate) fn note_hold(&mut self) {
        if self.s.send.is_accounted() {
            let waits = self.common.blocked.waits_for_room();
            self.s.send.note_hold(waits, self.cx.now);
        }
    }

    /// Enters so many segments that have left in the account.
    pub(crate) fn enter_sent(&mut self, segments: u64, has_data: bool) {
        if let Some(ledger) = self.s.send.ledger_mut() {
            ledger.on_sent(segments, has_data);
        }
        self.note_hold();
    }

    /// Enters a segment in the account, if there is one. `piece`: payload size of the segments
    /// joined into it; 0 if it is a single one. So much data had been `received` before.
    pub(crate) fn enter_heard(&mut self, segment: &Segment<'_>, piece: u16, received: u64) {
        let (now, has_more) = (self.cx.now, self.s.passed.received != received);
        let Some(ledger) = self.s.send.ledger_mut() else { return };
        let len = segment.payload.len();
        let segments = if piece == 0 { 1 } else { len.div_ceil(piece.into()).max(1) };
        ledger.on_heard(segments as u64, len > 0);
        if has_more {
            ledger.on_received(now);
        }
        self.note_hold();
    }
}
