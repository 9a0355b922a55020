//! TIME-WAIT: what a closed connection leaves behind for 2·MSL, and how it answers.
//!
//! The rules are a pure judgement of a segment by a [`Record`], wherever that lies: in the
//! [`table`], or in the control block that was kept whole. Its holder does what the [`Verdict`]
//! says.
//!
//! The first row that fits says what is done:
//!
//! | segment | verdict |
//! |---|---|
//! | RST | ignored (RFC 1337 fix F1), but for one |
//! | SYN | RFC 6191's table, below; the record stays until the new handshake completes |
//! | SYN with ACK | an ACK |
//! | of an old timestamp | an ACK (RFC 7323 §5.3) |
//! | without a timestamp, where they were used | ignored (RFC 7323 §3.2) |
//! | FIN at RCV.NXT - 1 | the peer missed our last ACK: acknowledged, and 2·MSL start over |
//! | FIN in the window, with ACK | no FIN of this peer's: an ACK, and 2·MSL go on |
//! | anything else in the window | ignored, unless it acknowledges what was never sent |
//! | anything else | an ACK |
//!
//! Each of these ACKs but that of a repeated FIN passes the one limit on challenge ACKs, so that
//! two records that answer each other fall silent; a record sends no FIN.
//!
//! The one RST: with ACK, exactly at RCV.NXT and SND.NXT, it ends the record. It comes from a peer
//! that has taken TIME-WAIT over (Faber, Touch & Yue 1999, §4.2). An RST that our own ACK draws
//! from a peer that knows nothing of us never carries ACK. An end that has promised to hold
//! TIME-WAIT in the peer's stead ignores that one as well.
//!
//! RFC 6191 §2, with "used" meaning that the old connection, or the new SYN, carries timestamps:
//!
//! | old used | new used | |
//! |---|---|---|
//! | yes | yes | accepted if TSval is newer; if equal, only with a number beyond the FIN's |
//! | no | no | accepted if the sequence number is beyond the FIN's |
//! | no | yes | accepted |
//! | yes | no | accepted if the sequence number is beyond the FIN's |
//!
//! What is not accepted is answered with a challenge ACK, as RFC 9293 §3.10.7.4 has it for what is
//! not acceptable (RFC 6191 would drop it in silence).

pub mod negotiate;
pub mod table;

pub use negotiate::Holding;
pub use table::{Distance, RecordRef, TimeWait};

use crate::counters::Counters;
use crate::flow::stamp::stamp_distance;
use crate::flow::{Seq, Tuple};
use crate::tcp::connection::FinalState;
use crate::time::{Duration, Instant};
use crate::wire::tcp::{Flags, Segment};

/// The new ISN lies at least this far beyond the old SND.NXT (RFC 6191 §2 asks "greater"; a window
/// without scaling is the classic step, RFC 1122 §4.2.2.13).
pub const ISN_STEP: u32 = 65_536;

/// The record of a closed connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// The ends of the connection that has closed.
    pub tuple: Tuple,
    /// SND.NXT, beyond our FIN.
    pub snd_nxt: Seq,
    /// RCV.NXT, beyond the peer's FIN.
    pub rcv_nxt: Seq,
    /// TS.Recent, if timestamps were used.
    pub stamp: Option<u32>,
    /// The window field of our last ACK.
    pub window: u16,
    /// We have promised to hold TIME-WAIT: the peer keeps nothing, and no RST may end this. For an
    /// orphan in FIN-WAIT-2: the peer has promised that.
    pub is_holder: bool,
    /// The record's owner has marked it: for an orphan in FIN-WAIT-2, both ends use SACK.
    pub is_marked: bool,
    /// When it entered, or was last restarted; never before that.
    pub entered: Instant,
    /// When it is over.
    pub expires: Instant,
}

/// The facts about a connection in TIME-WAIT that are kept by the one opened from here in its
/// place, until its handshake is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Predecessor {
    snd_nxt: Seq,
    rcv_nxt: Seq,
    stamp: Option<u32>,
}

impl Predecessor {
    /// The least ISN of a connection that takes its place.
    pub(crate) fn isn_floor(&self) -> Seq {
        self.snd_nxt + ISN_STEP
    }

    /// RFC 6191 §2, for a SYN or SYN, ACK of the peer: true if old segments that may still be under
    /// way can be told from the new connection's.
    pub(crate) fn is_followed_by(&self, syn: &Segment<'_>) -> bool {
        let beyond_fin = syn.seq.at_or_after(self.rcv_nxt);
        match (self.stamp, syn.options.timestamps) {
            (Some(old), Some(new)) => match stamp_distance(new.value, old) {
                0 => beyond_fin,
                newer => newer > 0,
            },
            (None, Some(_)) => true,
            (_, None) => beyond_fin,
        }
    }
}

/// The effect of a segment on the record that it met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing.
    Ignore,
    /// An RST that ends nothing (RFC 1337).
    IgnoreReset,
    /// The peer has taken TIME-WAIT over: the record goes.
    End,
    /// A new connection may begin, with an ISN at or beyond this. The record stays until the
    /// handshake completes; if it does not, the SYN was an old one, and all is as before (RFC 9293
    /// MAY-2).
    Reopen(Seq),
    /// A SYN that begins nothing: answered.
    Refuse,
    /// It has an old timestamp: answered.
    Stale,
    /// The peer's FIN again: answered, and 2·MSL start over.
    Restart,
    /// Unacceptable: answered.
    Challenge,
}

impl Verdict {
    /// True if the record's ACK answers the segment, within the limit on challenge ACKs.
    pub fn is_answered(self) -> bool {
        matches!(self, Verdict::Refuse | Verdict::Stale | Verdict::Restart | Verdict::Challenge)
    }

    /// Counts what has happened.
    pub fn count(self, counters: &mut Counters) {
        match self {
            Verdict::Ignore => counters.time_wait_ignored += 1,
            Verdict::IgnoreReset => counters.time_wait_resets_ignored += 1,
            Verdict::End => counters.time_wait_taken_over += 1,
            // When its handshake begins, or does not for want of room.
            Verdict::Reopen(_) => {}
            Verdict::Refuse => counters.time_wait_refused += 1,
            Verdict::Stale => counters.paws_rejected += 1,
            Verdict::Restart => counters.time_wait_restarted += 1,
            Verdict::Challenge => counters.time_wait_challenged += 1,
        }
    }
}

impl Record {
    /// The record of the connection between the ends of `tuple`, which enters at `now` for
    /// `duration`.
    pub fn new(tuple: Tuple, final_state: &FinalState, now: Instant, duration: Duration) -> Record {
        Record {
            tuple,
            snd_nxt: final_state.snd_nxt,
            rcv_nxt: final_state.rcv_nxt,
            stamp: final_state.stamp,
            window: final_state.window,
            is_holder: final_state.holding.is_promised(),
            is_marked: false,
            entered: now,
            expires: now + duration,
        }
    }

    /// RFC 9293 §3.10.7.4 in TIME-WAIT, with RFC 1337 and RFC 6191.
    pub fn judge(&self, segment: &Segment<'_>) -> Verdict {
        if segment.flags.contains(Flags::RST) {
            return if self.is_taken_over(segment) { Verdict::End } else { Verdict::IgnoreReset };
        }
        if segment.flags.contains(Flags::SYN) {
            return if segment.flags.contains(Flags::ACK) {
                Verdict::Challenge
            } else if self.may_reopen(segment) {
                Verdict::Reopen(self.isn_floor())
            } else {
                Verdict::Refuse
            };
        }
        if self.is_stale(segment) {
            Verdict::Stale
        } else if self.lacks_stamp(segment) || self.is_ignored(segment) {
            Verdict::Ignore
        } else if self.is_repeated_fin(segment) {
            Verdict::Restart
        } else {
            Verdict::Challenge
        }
    }

    /// True if its time is over.
    pub fn is_over(&self, now: Instant) -> bool {
        self.expires <= now
    }

    /// What a connection that takes its place must know.
    pub(crate) fn predecessor(&self) -> Predecessor {
        Predecessor { snd_nxt: self.snd_nxt, rcv_nxt: self.rcv_nxt, stamp: self.stamp }
    }

    /// The least ISN of a connection that takes its place.
    pub(crate) fn isn_floor(&self) -> Seq {
        self.predecessor().isn_floor()
    }

    /// True if an active open from here may take its place at `now` (RFC 6191 §3): the peer, if it
    /// remembers anything, tells the new connection's segments from the old one's by timestamps,
    /// and our clock has moved on since the last that it saw. Whether we can tell the peer's is
    /// known when its SYN, ACK comes: see [`Predecessor::is_followed_by`].
    pub(crate) fn may_open(&self, now: Instant) -> bool {
        self.stamp.is_some() && now.as_millis() > self.entered.as_millis()
    }

    /// RFC 6191 §2.
    pub(crate) fn may_reopen(&self, syn: &Segment<'_>) -> bool {
        self.predecessor().is_followed_by(syn)
    }

    /// Faber, Touch & Yue 1999, §4.2: RST with ACK and both numbers exact.
    fn is_taken_over(&self, reset: &Segment<'_>) -> bool {
        !self.is_holder
            && reset.flags.contains(Flags::ACK)
            && reset.seq == self.rcv_nxt
            && reset.ack == self.snd_nxt
    }

    /// RFC 7323 §5.3 R1. 2·MSL are far shorter than what makes TS.Recent void.
    fn is_stale(&self, segment: &Segment<'_>) -> bool {
        matches!((self.stamp, segment.options.timestamps),
            (Some(old), Some(new)) if stamp_distance(new.value, old) < 0)
    }

    /// RFC 7323 §3.2: where timestamps were agreed upon, a segment without one is dropped.
    fn lacks_stamp(&self, segment: &Segment<'_>) -> bool {
        self.stamp.is_some() && segment.options.timestamps.is_none()
    }

    /// An acceptable segment tells nothing after the peer's FIN: without ACK it is dropped, and its
    /// text is ignored (RFC 9293 §3.10.7.4). Another FIN is acknowledged (eighth step): a peer that
    /// sends one has not heard where its stream ended.
    fn is_ignored(&self, segment: &Segment<'_>) -> bool {
        let is_acceptable = segment.seq.within(self.rcv_nxt, u32::from(self.window).max(1));
        let tells_nothing = match segment.flags.contains(Flags::ACK) {
            true => segment.ack.at_or_before(self.snd_nxt) && !segment.flags.contains(Flags::FIN),
            false => true,
        };
        is_acceptable && tells_nothing
    }

    /// The peer's FIN again, and nothing that lies elsewhere.
    fn is_repeated_fin(&self, segment: &Segment<'_>) -> bool {
        segment.flags.contains(Flags::FIN) && segment.end() == self.rcv_nxt
    }
}

#[cfg(test)]
mod tests;
