//! When to acknowledge (RFC 9293 §3.8.6.3, RFC 5681 §4.2).
//!
//! Arriving segments only ask; [`emit`](crate::tcp::emit) answers once, when the whole batch has
//! been handled (RFC 9293 MUST-58, MUST-59). At once: for every second full-sized segment, for the
//! first segments of a connection, for anything out of order, for what fills a hole, for FIN.
//! Otherwise after a delay, one plain timer per connection.

use crate::tcp::Seq;
use crate::tcp::timers::{Deadlines, Timer};
use crate::time::{Duration, Instant};

/// Duplicate ACKs owed at most between two turns.
const DUPLICATES_MAX: u8 = 64;

/// What this end owes the peer in acknowledgements.
#[derive(Clone, Copy, Debug)]
pub struct AckState {
    /// An ACK must leave at the end of this turn.
    pub now: bool,
    /// Further pure ACKs that must leave, one for each segment out of order.
    pub duplicates: u8,
    /// Segments to acknowledge at once before delaying begins.
    quick: u8,
    /// Bytes received in order since the last ACK left.
    unacked_bytes: u32,
    /// The largest segment seen: what "full-sized" means from this peer.
    full_bytes: u16,
    /// RCV.NXT as last sent (RFC 7323's Last.ACK.sent).
    pub last_sent: Seq,
}

impl AckState {
    /// At the start of a connection that has received nothing but the SYN.
    pub fn new(quick: u8, rcv_nxt: Seq) -> Self {
        AckState {
            now: false,
            duplicates: 0,
            quick,
            unacked_bytes: 0,
            full_bytes: 0,
            last_sent: rcv_nxt,
        }
    }

    /// The next `quick` segments are acknowledged at once, and what is owed now too, if any is.
    pub fn set_quick(&mut self, quick: u8) {
        self.quick = quick;
        self.now |= quick > 0 && self.is_owed();
    }

    /// In-order data of `len` bytes, in segments of `segment` bytes, has arrived.
    pub fn on_data(
        &mut self,
        len: u32,
        segment: u16,
        now: Instant,
        delay: Duration,
        deadlines: &mut Deadlines,
    ) {
        self.full_bytes = self.full_bytes.max(segment);
        self.unacked_bytes = self.unacked_bytes.saturating_add(len);
        if self.quick > 0 {
            self.quick -= 1;
            self.now = true;
        } else if self.unacked_bytes >= 2 * u32::from(self.full_bytes) || delay.is_zero() {
            self.now = true;
        } else if !deadlines.is_set(Timer::DelayedAck) {
            deadlines.set(Timer::DelayedAck, now + delay);
        }
    }

    /// A segment beyond RCV.NXT has arrived: a duplicate ACK for it, at once.
    pub fn on_out_of_order(&mut self) {
        self.duplicates = (self.duplicates + 1).min(DUPLICATES_MAX);
    }

    /// RCV.NXT has moved: duplicates owed for the hole would now repeat the wrong number.
    pub fn on_advance(&mut self) {
        if self.duplicates > 0 {
            self.duplicates = 0;
            self.now = true;
        }
    }

    /// True if an ACK is owed, now or later: one must not be forgotten when the timer fires.
    pub fn is_owed(&self) -> bool {
        self.now || self.duplicates > 0 || self.unacked_bytes > 0
    }

    /// The largest segment seen, in bytes of payload; 0 before the first.
    pub fn full_bytes(&self) -> u16 {
        self.full_bytes
    }

    /// A segment with ACK = `rcv_nxt` has left.
    pub fn on_sent(&mut self, rcv_nxt: Seq, deadlines: &mut Deadlines) {
        self.now = false;
        self.unacked_bytes = 0;
        self.last_sent = rcv_nxt;
        deadlines.cancel(Timer::DelayedAck);
    }
}
