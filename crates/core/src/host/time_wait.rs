//! Applies the rules of TIME-WAIT in the host: it carries out the verdict on a record that a
//! segment has met, and answers from the record.

mod whole;

pub(super) use whole::WholeBlocks;

use alloc::collections::VecDeque;

use super::Host;
use super::lookup::{Past, UnmatchedSegment};
use super::reply::{self, Reply};
use crate::config::{TcpConfig, TimeWaitState};
use crate::counters::Counters;
use crate::flow::stamp::{STAMP_TICK, stamp_at};
use crate::flow::{Seq, Tuple};
use crate::ip::Ip;
use crate::ip::route::NextHop;
use crate::tcp::connection::{Context, FinalState};
use crate::tcp::isn::IsnSource;
use crate::tcp::slot::Slot;
use crate::tcp::time_wait::{Distance, Holding, Record, TimeWait, Verdict};
use crate::time::Instant;
use crate::wire::fast::Stamped;
use crate::wire::options::Timestamps;
use crate::wire::tcp::{Flags, Header};

/// What an ACK from TIME-WAIT says.
#[derive(Clone, Copy)]
struct LastAck {
    seq: Seq,
    ack: Seq,
    window: u16,
    /// TS.Recent, and what is added to our timestamp clock.
    stamp: Option<u32>,
    offset: u32,
}

impl LastAck {
    /// The last ACK of a connection, by what is left of it.
    fn of(final_state: &FinalState) -> LastAck {
        let &FinalState { snd_nxt: seq, rcv_nxt: ack, window, stamp, .. } = final_state;
        LastAck { seq, ack, window, stamp, offset: final_state.stamp_offset.unwrap_or(0) }
    }

    fn reply(self, now: Instant, tuple: &Tuple) -> Reply {
        let LastAck { seq, ack, window, stamp, offset } = self;
        let Some(echo) = stamp else { return self.unstamped(tuple) };
        let stamps = Timestamps { value: stamp_at(now, offset), echo };
        let (ports, flags) = (tuple.ports(), Flags::ACK);
        Reply::stamped(tuple, Stamped { ports, seq, ack, flags, window, stamps })
    }

    /// The RST by which the peer's TIME-WAIT is taken over: both numbers are exactly what the peer
    /// expects, and it has ACK, which no RST has that a stray segment draws (Faber, Touch & Yue
    /// 1999 §4.1). It passes RFC 5961 §3.2, and can be told from others where RFC 1337 is heeded.
    fn reset(self, now: Instant, tuple: &Tuple) -> Reply {
        let LastAck { seq, ack, stamp, offset, .. } = self;
        let mut header = Header::new(tuple.ports(), seq, ack, Flags::RST | Flags::ACK);
        // RFC 7323 §5.2: with a timestamp, if they were agreed on.
        let stamped = |echo| Timestamps { value: stamp_at(now, offset), echo };
        header.options.timestamps = stamp.map(stamped);
        Reply::segment(tuple, header)
    }

    fn unstamped(self, tuple: &Tuple) -> Reply {
        let header = Header::new(tuple.ports(), self.seq, self.ack, Flags::ACK);
        Reply::segment(tuple, Header { window: self.window, ..header })
    }
}

/// The parts of a host that a connection needs to enter TIME-WAIT from where it lies.
pub(super) struct Entrance<'a> {
    pub(super) shared: &'a mut Context,
    pub(super) ip: &'a Ip,
    pub(super) isns: &'a IsnSource,
    pub(super) records: &'a mut TimeWait,
    pub(super) replies: &'a mut VecDeque<Reply>,
}

impl Entrance<'_> {
    /// A connection has entered TIME-WAIT, and no more of it stays than a record; it is in the
    /// demultiplexing table no more. Or it is closed and the peer holds TIME-WAIT: nothing stays,
    /// but an ACK may be owed.
    pub(super) fn enter(
        &mut self,
        now: Instant,
        hash: u64,
        tuple: &Tuple,
        final_state: &FinalState,
    ) {
        debug_assert!(
            final_state
                .stamp_offset
                .is_none_or(|offset| offset == self.isns.timestamp_offset(tuple)),
            "the record does not store it"
        );
        if final_state.holding == Holding::ByPeer {
            self.shared.counters.time_wait_by_peer += 1;
        } else {
            self.keep(now, hash, tuple, final_state);
        }
        if final_state.ack_due {
            let last = LastAck::of(final_state).reply(now, tuple);
            reply::owe(self.replies, last, &mut self.shared.counters);
        }
        if final_state.holding.is_promised() {
            self.promise(now, hash, tuple, final_state);
        }
    }

    /// A record is kept, if any is.
    fn keep(&mut self, now: Instant, hash: u64, tuple: &Tuple, final_state: &FinalState) {
        let Context { config, counters, .. } = &mut *self.shared;
        counters.time_wait_entered += 1;
        if config.time_wait.state == TimeWaitState::Skip {
            counters.time_wait_skipped += 1;
        } else {
            let distance = distance(config, self.ip, tuple);
            let evicted = self.records.enter(hash, tuple, final_state, distance, now);
            counters.time_wait_evicted += evicted;
        }
    }

    /// The peer relies on the record, or is about to.
    fn promise(&mut self, now: Instant, hash: u64, tuple: &Tuple, final_state: &FinalState) {
        let counters = &mut self.shared.counters;
        if final_state.holding == Holding::Swapped {
            let is_kept = self.records.get(hash, tuple).is_some();
            swap(self.replies, now, tuple, final_state, is_kept, counters);
        } else {
            counters.time_wait_agreed += 1;
        }
    }
}

/// The peer's TIME-WAIT is taken over, if there is a record of ours in its place (`is_kept`): else
/// both ends would forget. Where the RST does not leave, or is lost, both wait.
fn swap(
    replies: &mut VecDeque<Reply>,
    now: Instant,
    tuple: &Tuple,
    final_state: &FinalState,
    is_kept: bool,
    counters: &mut Counters,
) {
    let reset = || LastAck::of(final_state).reset(now, tuple);
    if is_kept && reply::owe(replies, reset(), counters) {
        counters.time_wait_swapped += 1;
    } else {
        counters.time_wait_swaps_failed += 1;
    }
}

/// How near the peer is, if that matters.
#[inline(always)]
fn distance(config: &TcpConfig, ip: &Ip, tuple: &Tuple) -> Distance {
    let is_all_the_same =
        config.time_wait.length_on_link.is_zero() && config.time_wait.length_on_host.is_zero();
    if is_all_the_same {
        return Distance::Far;
    }
    match ip.next_hop(tuple.remote_ip()) {
        Some(NextHop::Ourselves) => Distance::OnHost,
        Some(NextHop::Neighbour(hop)) if hop == tuple.remote_ip() => Distance::OnLink,
        _ => Distance::Far,
    }
}

impl Host {
    /// The connection in slot `index` has entered TIME-WAIT, and stays whole; it is in the
    /// demultiplexing table no more.
    pub(super) fn enter_whole(&mut self, now: Instant, index: u32, final_state: &FinalState) {
        let Some(tuple) = self.slots.get(index).map(|slot| slot.tuple) else { return };
        self.keep_whole(now, index, final_state);
        if final_state.ack_due {
            self.reply(LastAck::of(final_state).reply(now, &tuple));
        }
        if final_state.holding == Holding::Swapped {
            let is_kept = self.slots.get(index).is_some_and(Slot::is_in_time_wait);
            let counters = &mut self.shared.counters;
            swap(&mut self.replies, now, &tuple, final_state, is_kept, counters);
        }
    }

    /// A segment has met a record: RFC 9293 §3.10.7.4 for TIME-WAIT.
    pub(super) fn on_time_wait(
        &mut self,
        now: Instant,
        record: &Record,
        unmatched: &UnmatchedSegment<'_>,
    ) {
        let tuple = unmatched.tuple;
        let mut segment = unmatched.parsed.segment();
        if !self.shared.config.timestamps && segment.flags.contains(Flags::SYN) {
            // The connection to come would not use them: RFC 6191 §2 asks for that.
            segment.options.timestamps = None;
        }
        let mut verdict = record.judge(&segment);
        if matches!(verdict, Verdict::Reopen(_)) && !self.is_heard(tuple) {
            // No listener waits for a connection, so there is none to begin; the record is not to
            // blame.
            verdict = Verdict::Challenge;
        }
        self.do_as_judged(now, record, unmatched, verdict);
    }

    /// What the `verdict` on a segment asks for.
    pub(super) fn do_as_judged(
        &mut self,
        now: Instant,
        record: &Record,
        unmatched: &UnmatchedSegment<'_>,
        verdict: Verdict,
    ) {
        let UnmatchedSegment { hash, tuple, ref head, .. } = *unmatched;
        let mut record = *record;
        verdict.count(&mut self.shared.counters);
        match verdict {
            // The record stays until the handshake is complete: if that comes to nothing, TIME-WAIT
            // goes on as before (RFC 9293 MAY-2).
            Verdict::Reopen(isn_floor) => {
                return self.on_listen(now, unmatched, Past::Living(isn_floor));
            }
            Verdict::Restart => {
                // It comes at or before the last ACK sent: TS.Recent is its timestamp now (RFC 7323
                // §4.3).
                let stamp = head.stamps.map(|stamps| stamps.value);
                record.stamp = record.stamp.and(stamp);
                match self.whole_block_of(hash, tuple) {
                    Some(index) => self.restart_whole_block(now, index, stamp),
                    None => self.closed.time_wait.restart(hash, tuple, stamp, now),
                }
            }
            Verdict::End => {
                self.remove_time_wait(hash, tuple);
            }
            _ => {}
        }
        if !verdict.is_answered() {
            return;
        }
        // A repeated FIN is answered each time, as an open connection does: nothing else lets the
        // peer end, and no record sends one.
        if verdict == Verdict::Restart || self.shared.challenges.take(hash, now) {
            let Record { tuple, snd_nxt: seq, rcv_nxt: ack, window, stamp, .. } = record;
            let offset = self.stamp_offset(&tuple);
            // A tick behind, but for what begins the record's time anew: the next connection
            // between these ends, if it is opened in this tick, has a newer TSval (RFC 6191 §3).
            let at = if verdict == Verdict::Restart { now } else { now - STAMP_TICK };
            let last = LastAck { seq, ack, window, stamp, offset };
            self.reply(last.reply(at, &tuple));
        } else {
            self.shared.counters.challenges_suppressed += 1;
        }
    }

    /// True if a listener hears what comes to our end of `tuple`.
    fn is_heard(&self, tuple: &Tuple) -> bool {
        self.opening.listeners.find(tuple).is_some()
    }

    /// How near the peer is, if that matters.
    pub(super) fn distance(&self, tuple: &Tuple) -> Distance {
        distance(&self.shared.config, &self.ip, tuple)
    }

    /// The record of `tuple`, its time over or not.
    #[inline(always)]
    pub(super) fn time_wait_record(&self, hash: u64, tuple: &Tuple) -> Option<Record> {
        if !self.closed.whole_blocks.is_empty() {
            return self.whole_block_record(hash, tuple);
        }
        if self.closed.time_wait.is_empty() {
            return None;
        }
        self.closed.time_wait.get(hash, tuple).map(|found| found.record())
    }

    /// The record of `tuple`, if its time is not over.
    pub(super) fn living_record(&self, now: Instant, hash: u64, tuple: &Tuple) -> Option<Record> {
        self.time_wait_record(hash, tuple).filter(|record| !record.is_over(now))
    }

    /// A new connection takes the place of the record of `tuple`, if there is one.
    pub(super) fn end_time_wait(&mut self, hash: u64, tuple: &Tuple) {
        let ended = self.remove_time_wait(hash, tuple);
        self.shared.counters.time_wait_reused += u64::from(ended);
    }

    fn remove_time_wait(&mut self, hash: u64, tuple: &Tuple) -> bool {
        let Some(index) = self.whole_block_of(hash, tuple) else {
            return self.closed.time_wait.remove(hash, tuple);
        };
        self.end_whole_block(index);
        true
    }
}
