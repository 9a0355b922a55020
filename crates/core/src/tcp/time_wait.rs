//! TIME-WAIT: what a closed connection leaves behind for 2·MSL, and how it answers.
//!
//! The rules, one function per kind of segment:
//!
//! | segment | answer |
//! |---|---|
//! | RST | ignored (RFC 1337 fix F1), but for one |
//! | SYN | RFC 6191's table, below; the record stays, marked, until the new handshake completes |
//! | FIN at RCV.NXT - 1 | the peer missed our last ACK: acknowledged, and 2·MSL start over |
//! | of an old timestamp | an ACK (RFC 7323 §5.3), within the one limit of [`Challenges`] |
//! | anything else in the window | ignored, unless it acknowledges what was never sent |
//! | anything else | a challenge ACK |
//!
//! The one: an RST with ACK, exactly at RCV.NXT and SND.NXT, ends the record. It comes from a peer
//! that has taken TIME-WAIT over (Faber, Touch & Yue 1999, §4.2).
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

pub mod table;

pub use table::{Record, TimeWait};

use super::Seq;
use super::challenge::Challenges;
use crate::counters::Counters;
use crate::time::Instant;
use crate::wire::tcp::{Flags, Segment};

/// The new ISN lies at least this far beyond the old SND.NXT (RFC 6191 §2 asks "greater"; a window
/// without scaling is the classic step, RFC 1122 §4.2.2.13).
pub const ISN_STEP: u32 = 65_536;

/// What to do about a segment that met a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing.
    Ignore,
    /// Send the record's ACK.
    Acknowledge,
    /// A new connection may begin, with an ISN at or beyond this. The record is marked; it stays
    /// until [`TimeWait::remove`], or is taken up again by [`TimeWait::unmark`].
    Reopen(Seq),
    /// The record is gone.
    Ended,
}

impl TimeWait {
    /// A segment has met the record of its tuple (whose keyed hash is `hash`).
    pub fn on_segment(
        &mut self,
        hash: u64,
        record: Record,
        segment: &Segment<'_>,
        now: Instant,
        challenges: &mut Challenges,
        counters: &mut Counters,
    ) -> Verdict {
        let mut challenge = |counters: &mut Counters| {
            if challenges.take(hash, now) {
                return Verdict::Acknowledge;
            }
            counters.challenges_suppressed += 1;
            Verdict::Ignore
        };
        if segment.flags.contains(Flags::RST) {
            return self.on_reset(hash, &record, segment, counters);
        }
        if segment.flags.contains(Flags::SYN) {
            if !segment.flags.contains(Flags::ACK) && record.may_reopen(segment) {
                self.mark(hash, &record);
                return Verdict::Reopen(record.snd_nxt + ISN_STEP);
            }
            counters.time_wait_refused += 1;
            return challenge(counters);
        }
        if record.is_stale(segment) {
            counters.paws_rejected += 1;
            return challenge(counters);
        }
        if record.is_ignored(segment) {
            return Verdict::Ignore;
        }
        if record.is_repeated_fin(segment) {
            self.restart(hash, &record, now);
            counters.time_wait_restarted += 1;
        }
        challenge(counters)
    }

    fn on_reset(
        &mut self,
        hash: u64,
        record: &Record,
        segment: &Segment<'_>,
        counters: &mut Counters,
    ) -> Verdict {
        let swap = segment.flags.contains(Flags::ACK)
            && segment.seq == record.rcv_nxt
            && segment.ack == record.snd_nxt;
        if !swap {
            counters.time_wait_resets_ignored += 1;
            return Verdict::Ignore;
        }
        self.remove(hash, &record.tuple);
        Verdict::Ended
    }
}

impl Record {
    /// RFC 6191 §2.
    pub fn may_reopen(&self, syn: &Segment<'_>) -> bool {
        let beyond_fin = syn.seq.at_or_after(self.rcv_nxt);
        match (self.stamp, syn.options.timestamps) {
            (Some(old), Some(new)) => match new.value.wrapping_sub(old) as i32 {
                0 => beyond_fin,
                newer => newer > 0,
            },
            (None, Some(_)) => true,
            (_, None) => beyond_fin,
        }
    }

    /// RFC 7323 §5.3 R1. 2·MSL are far shorter than what makes TS.Recent void.
    fn is_stale(&self, segment: &Segment<'_>) -> bool {
        matches!((self.stamp, segment.options.timestamps),
            (Some(old), Some(new)) if (new.value.wrapping_sub(old) as i32) < 0)
    }

    /// An acceptable segment tells nothing after the peer's FIN: without ACK it is dropped, its
    /// text is ignored, and there is nothing left to acknowledge (RFC 9293 §3.10.7.4).
    fn is_ignored(&self, segment: &Segment<'_>) -> bool {
        segment.seq.within(self.rcv_nxt, u32::from(self.window).max(1))
            && (!segment.flags.contains(Flags::ACK) || segment.ack.at_or_before(self.snd_nxt))
    }

    /// The peer's FIN again, and nothing that lies elsewhere.
    fn is_repeated_fin(&self, segment: &Segment<'_>) -> bool {
        segment.flags.contains(Flags::FIN) && segment.end() == self.rcv_nxt
    }
}

#[cfg(test)]
mod tests;
