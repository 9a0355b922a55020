//! What is in flight: one record for each range whose bytes have the same history.
//!
//! ```text
//!    una                                                        nxt
//!     │ lost │ sacked  │ sent again │ sacked │  sent once         │
//!     ▼      ▼         ▼            ▼        ▼                    ▼
//!     ├──────┼─────────┼────────────┼────────┼─────────┼──────────┤
//!      at 5             at 9                  at 5      at 6
//! ```
//!
//! Records tile the sequence space from SND.UNA to SND.NXT. Each says when its bytes left last and
//! what became of them. Neighbours that agree are one record: what leaves in one turn is one, and a
//! range that the receiver holds is one however it came. Nothing here needs to know where a segment
//! ends.
//!
//! An ACK takes records off the front. A SACK block is a binary search, and a shift of the shorter
//! side of the queue. That is mostly the front: what is sacked has grown together, and what was
//! sent behind it lies in the way of nobody. Losses are found by cursors that only move forward. So
//! each record is looked at a few times in its life, however many ACKs come.

mod many;

use alloc::boxed::Box;
use core::mem;

use super::rack::{Departure, News};
use crate::flow::Seq;
use crate::time::Instant;
use many::Many;

/// What became of a range when it left last, as far as we know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It is on its way.
    InFlight,
    /// It is on its way twice: it was sent again on suspicion (RFC 6675 §4, NextSeg rule 3).
    Twice,
    /// It is lost, and waits to be sent again.
    Lost,
    /// The receiver holds it.
    Sacked,
}

/// A range that ends at `end` and begins where the one before it ends, or at SND.UNA. 16 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    /// When it left last; of no meaning once it is sacked.
    at: Instant,
    end: Seq,
    fate: Fate,
    /// It has left more than once.
    again: bool,
}

impl Record {
    fn departure(&self) -> Departure {
        Departure { at: self.at, end: self.end }
    }

    fn new(end: Seq, at: Instant) -> Record {
        Record { at, end, fate: Fate::InFlight, again: false }
    }

    /// When it left last, if that is still known.
    fn known_at(&self) -> Option<Instant> {
        (self.at != Instant::FAR_FUTURE).then_some(self.at)
    }

    /// True if it was sent again, at `at`, and nothing has been heard of that.
    fn is_in_flight_since(&self, at: Instant) -> bool {
        let is_out = matches!(self.fate, Fate::InFlight | Fate::Twice);
        is_out && self.again && self.at == at
    }

    /// True if it was sent once, and nothing is known of it.
    fn is_plain(&self) -> bool {
        self.fate == Fate::InFlight && !self.again
    }

    fn is_lost(&self) -> bool {
        self.fate == Fate::Lost
    }

    /// True if it was sent again together with what was delivered, and a part of it before that.
    fn is_late_in_part(&self, latest: Departure) -> bool {
        self.again && self.at == latest.at && self.end.after(latest.end)
    }

    /// True if the two say the same of their bytes.
    fn agrees(&self, other: &Record) -> bool {
        let Record { at, end: _, fate, again } = *self;
        (at, fate, again) == (other.at, other.fate, other.again)
    }
}

/// What an ACK takes off the front.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Taken {
    /// When the newest of it was sent, if that tells the RTT: it was sent once, or the echo shows
    /// that the last transmission arrived (RFC 6298 §3).
    pub sent: Option<Instant>,
    /// Bytes of it that the receiver had reported before.
    pub known: u32,
}

/// The ranges in flight, oldest first. 16 bytes, and no others while one range is all.
#[derive(Debug, Default)]
pub(crate) enum Flight {
    /// Nothing.
    #[default]
    Empty,
    /// One range, of which nothing is sacked.
    One(Record),
    /// Several.
    Many(Box<Many>),
}

const _: () = assert!(size_of::<Flight>() == 16);

impl Flight {
    /// True if it has no memory: nothing is in flight.
    pub(crate) fn owns_nothing(&self) -> bool {
        matches!(self, Flight::Empty)
    }

    /// New data up to `end` was sent at `at`; what is in flight begins at `una`.
    #[inline(always)]
    pub(crate) fn on_sent(&mut self, una: Seq, end: Seq, at: Instant) {
        match self {
            // Empty, it has nothing to drop, and a drop costs instructions.
            Flight::Empty => mem::forget(mem::replace(self, Flight::One(Record::new(end, at)))),
            Flight::One(one) if one.at == at && one.is_plain() => one.end = end,
            _ => self.many(una).push(Record::new(end, at)),
        }
    }

    /// True if all that is in flight left last at `at`, in one go.
    pub(crate) fn all_left_at(&self, at: Instant) -> bool {
        matches!(self, Flight::One(one) if one.at == at)
    }

    /// When the oldest of what is in flight was sent last.
    pub(crate) fn oldest(&self) -> Option<Instant> {
        match self {
            Flight::Empty => None,
            Flight::One(one) => Some(one.at),
            Flight::Many(many) => many.oldest(),
        }
    }

    /// Everything before `ack` is acknowledged, if all that is in flight left together, once: the
    /// usual case. `None`, and nothing has happened, in any other.
    #[inline(always)]
    pub(crate) fn on_ack_of_one(&mut self, ack: Seq) -> Option<Taken> {
        let Flight::One(one) = *self else { return None };
        if !one.is_plain() {
            return None;
        }
        if one.end.at_or_before(ack) {
            // One record has nothing to drop.
            mem::forget(mem::take(self));
        }
        Some(Taken { sent: Some(one.at), known: 0 })
    }

    /// Everything before `ack` is acknowledged. Notes in `news` what that delivers, unless all that
    /// is in flight left at once.
    pub(crate) fn on_ack(&mut self, ack: Seq, news: &mut News) -> Taken {
        self.on_ack_of_one(ack).unwrap_or_else(|| self.take_before(ack, news))
    }

    fn take_before(&mut self, ack: Seq, news: &mut News) -> Taken {
        match self {
            Flight::Empty => Taken::default(),
            Flight::One(one) => {
                let Record { at, end, again, .. } = *one;
                news.note_acked(Departure { at, end: end.min(ack) }, again);
                let is_told = !again || news.answers(at);
                if end.at_or_before(ack) {
                    *self = Flight::Empty;
                }
                Taken { sent: is_told.then_some(at), known: 0 }
            }
            Flight::Many(many) => {
                let taken = many.take_before(ack, news);
                if many.is_empty() {
                    *self = Flight::Empty;
                }
                taken
            }
        }
    }

    /// The receiver holds `start` to `end`, within what is in flight, which begins at `una`.
    /// Returns how many bytes of that are news.
    pub(crate) fn on_sacked(&mut self, una: Seq, (start, end): (Seq, Seq), news: &mut News) -> u32 {
        if self.owns_nothing() { 0 } else { self.many(una).on_sacked(start, end, news) }
    }

    /// The bytes from `start` to `end` were sent again at `at`; `twice`: on suspicion.
    pub(crate) fn on_sent_again(
        &mut self,
        una: Seq,
        (start, end): (Seq, Seq),
        at: Instant,
        twice: bool,
    ) {
        let fate = if twice { Fate::Twice } else { Fate::InFlight };
        match self {
            Flight::Empty => {}
            Flight::One(one) if start == una && one.end == end => {
                (one.at, one.fate, one.again) = (at, fate, true);
            }
            _ => self.many(una).on_sent_again(start, end, at, fate),
        }
    }

    /// What is on its way between `from` and `to` is lost; what was sent again before `resent` on
    /// suspicion is on its way once now. Returns how many bytes are lost.
    pub(crate) fn lose(&mut self, una: Seq, (from, to): (Seq, Seq), resent: Seq) -> u32 {
        match self {
            Flight::Empty => 0,
            Flight::One(one) if from.at_or_before(una) && one.end.at_or_before(to) => {
                let is_on_its_way = one.fate != Fate::Lost;
                if is_on_its_way {
                    one.fate = if una.before(resent) { Fate::InFlight } else { Fate::Lost };
                }
                if is_on_its_way && one.fate == Fate::Lost { one.end.since(una) } else { 0 }
            }
            _ => self.many(una).lose(from, to, resent),
        }
    }

    /// What left before `latest` is lost if it left longer than `wait_ns` ago, and never is looked
    /// at twice for that. Returns when the next range will be.
    pub(crate) fn lose_late(
        &mut self,
        una: Seq,
        latest: Departure,
        wait_ns: u64,
        now: Instant,
    ) -> Instant {
        match self {
            Flight::Empty => Instant::FAR_FUTURE,
            Flight::One(one) if !one.is_late_in_part(latest) => {
                let due = one.at.plus_nanos(wait_ns);
                if one.fate == Fate::Lost || !one.departure().is_before(latest) {
                    return Instant::FAR_FUTURE;
                }
                if due > now {
                    return due;
                }
                one.fate = Fate::Lost;
                Instant::FAR_FUTURE
            }
            _ => self.many(una).lose_late(latest, wait_ns, now),
        }
    }

    /// The timer fired: what left longer than `wait_ns` ago is lost.
    pub(crate) fn lose_old(&mut self, wait_ns: u64, now: Instant) {
        match self {
            Flight::Empty => {}
            Flight::One(one) => {
                if one.at.plus_nanos(wait_ns) <= now {
                    one.fate = Fate::Lost;
                }
            }
            Flight::Many(many) => many.lose_old(wait_ns, now),
        }
    }

    /// When that left which has been found lost since this was asked last, the earliest of it. Of a
    /// lone range it is not remembered whether this was asked.
    pub(crate) fn take_first_lost(&mut self) -> Option<Instant> {
        match self {
            Flight::Empty => None,
            Flight::One(one) => one.is_lost().then_some(one.at),
            Flight::Many(many) => many.take_first_lost(),
        }
    }

    /// True if the receiver has reported the first byte that it does not acknowledge: it has
    /// discarded what it had (RFC 2018 §8).
    pub(crate) fn is_reneged(&self) -> bool {
        self.marked().is_some_and(Many::is_reneged)
    }

    /// Nothing is held lost any more.
    pub(crate) fn forget_lost(&mut self) {
        match self {
            Flight::Empty => {}
            Flight::One(one) => one.fate = Fate::InFlight,
            Flight::Many(many) => many.forget_lost(),
        }
    }

    /// The receiver may have discarded what it held (RFC 2018 §8).
    pub(crate) fn forget_sacked(&mut self) {
        if let Flight::Many(many) = self {
            many.forget_sacked();
        }
    }

    /// The first lost range, `most` bytes at most.
    pub(crate) fn next_lost(&self, una: Seq, most: u32) -> Option<(Seq, u32)> {
        match self {
            Flight::Many(many) => many.next_lost(most),
            _ => Some((una, self.of_one(una, Record::is_lost).min(most))).filter(|lost| lost.1 > 0),
        }
    }

    /// The first range of bytes from `from` to `to` that the receiver is not known to hold.
    pub(crate) fn next_hole(&self, from: Seq, to: Seq) -> Option<(Seq, Seq)> {
        match self {
            Flight::Many(many) => many.next_hole(from, to),
            _ => from.before(to).then_some((from, to)),
        }
    }

    /// Bytes that have left the network, known to be there or known to be lost, less those that are
    /// in it twice: what the pipe lacks of all that is in flight.
    pub(crate) fn out_of_network(&self, una: Seq) -> u32 {
        match self {
            Flight::Many(many) => many.out_of_network(),
            _ => self.of_one(una, Record::is_lost),
        }
    }

    /// Bytes that the receiver holds.
    pub(crate) fn sacked(&self) -> u32 {
        self.marked().map_or(0, Many::sacked)
    }

    /// Bytes that are lost and wait to be sent again.
    pub(crate) fn lost(&self, una: Seq) -> u32 {
        match self {
            Flight::Many(many) => many.lost(),
            _ => self.of_one(una, Record::is_lost),
        }
    }

    /// Bytes on their way that were sent again.
    pub(crate) fn resent(&self, una: Seq) -> u32 {
        match self {
            Flight::Many(many) => many.resent(),
            _ => self.of_one(una, |one| one.again && !one.is_lost()),
        }
    }

    /// One past the highest byte that the receiver holds beyond SND.UNA.
    pub(crate) fn highest_sacked(&self) -> Option<Seq> {
        self.marked().and_then(Many::highest_sacked)
    }

    /// RFC 6675 §4 IsLost, as an edge: what is not sacked below it is lost, because three
    /// discontiguous ranges, or more than two segments' bytes, are sacked above. `None` if nothing
    /// is.
    pub(crate) fn lost_edge(&self, mss: u32) -> Option<Seq> {
        self.marked().and_then(|many| many.lost_edge(mss))
    }

    /// Bytes of the one range, if that is all, and so.
    fn of_one(&self, una: Seq, is_so: impl Fn(&Record) -> bool) -> u32 {
        match self {
            Flight::One(one) if is_so(one) => one.end.since(una),
            _ => 0,
        }
    }

    /// The records, where there are several.
    fn marked(&self) -> Option<&Many> {
        match self {
            Flight::Many(many) => Some(many),
            Flight::Empty | Flight::One(_) => None,
        }
    }

    /// The records in a queue. Only of one that has some.
    fn many(&mut self, una: Seq) -> &mut Many {
        if let Flight::One(one) = *self {
            *self = Flight::Many(Box::new(Many::new(una, one)));
        }
        match self {
            Flight::Many(many) => many,
            Flight::Empty | Flight::One(_) => unreachable!("its caller has looked"),
        }
    }
}

#[cfg(test)]
mod tests;
