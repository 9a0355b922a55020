//! What the host does about TIME-WAIT: applies the rules' verdicts to the record that a segment has
//! met, and answers from it.

mod lingering;

pub(super) use lingering::Lingering;

use super::Host;
use super::output::Reply;
use super::route::NextHop;
use super::tcp_input::{Incoming, Past, bare_header};
use crate::config::TimeWaitState;
use crate::tcp::connection::{Residue, stamp_at};
use crate::tcp::time_wait::{Distance, Record, Verdict};
use crate::tcp::{Seq, Tuple};
use crate::time::{Duration, Instant};
use crate::wire::options::Timestamps;
use crate::wire::tcp::{Flags, Header};
use crate::wire::usual::Stamped;

/// The tick of our timestamp clock.
const TICK: Duration = Duration::from_millis(1);

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

impl Host {
    /// A segment has met a record: RFC 9293 §3.10.7.4 for TIME-WAIT.
    pub(super) fn on_time_wait(&mut self, now: Instant, record: &Record, incoming: &Incoming<'_>) {
        let (hash, tuple) = (incoming.hash, incoming.tuple);
        let mut segment = *incoming.segment;
        if !self.shared.config.timestamps && segment.flags.contains(Flags::SYN) {
            // The connection to come would not use them: RFC 6191 §2 asks for that.
            segment.options.timestamps = None;
        }
        let mut record = *record;
        let mut verdict = record.judge(&segment);
        if matches!(verdict, Verdict::Reopen(_)) && !self.is_heard(tuple) {
            // Nobody waits for a connection, so there is none to begin; the record is not to blame.
            verdict = Verdict::Challenge;
        }
        verdict.count(&mut self.shared.counters);
        match verdict {
            // The record stays until the handshake is complete: if that comes to nothing, TIME-WAIT
            // goes on as before (RFC 9293 MAY-2).
            Verdict::Reopen(isn_floor) => {
                return self.on_listen(now, incoming, Past::Living(isn_floor));
            }
            Verdict::Restart => {
                // It comes at or before the last ACK sent: TS.Recent is its timestamp now (RFC 7323
                // §4.3).
                let stamp = segment.options.timestamps.map(|stamps| stamps.value);
                record.stamp = record.stamp.and(stamp);
                match self.lingering_at(hash, tuple) {
                    Some(index) => self.linger_anew(now, index, stamp),
                    None => self.time_wait.restart(hash, tuple, stamp, now),
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
            let at = if verdict == Verdict::Restart { now } else { now - TICK };
            let last = LastAck { seq, ack, window, stamp, offset };
            self.acknowledge_time_wait(at, &tuple, last);
        } else {
            self.shared.counters.challenges_suppressed += 1;
        }
    }

    /// True if a listener hears what comes to our end of `tuple`.
    fn is_heard(&self, tuple: &Tuple) -> bool {
        self.listeners.find(tuple).is_some()
    }

    #[inline(always)]
    fn acknowledge_time_wait(&mut self, now: Instant, tuple: &Tuple, last: LastAck) {
        let LastAck { seq, ack, window, stamp, offset } = last;
        let Some(echo) = stamp else { return self.acknowledge_unstamped(tuple, last) };
        let stamps = Timestamps { value: stamp_at(now, offset), echo };
        let (ports, flags) = (tuple.ports(), Flags::ACK);
        self.owe(Reply::stamped(tuple, Stamped { ports, seq, ack, flags, window, stamps }));
    }

    #[cold]
    fn acknowledge_unstamped(&mut self, tuple: &Tuple, last: LastAck) {
        let header = bare_header(tuple, last.seq, last.ack, Flags::ACK);
        self.reply(Reply::segment(tuple, Header { window: last.window, ..header }));
    }

    /// The connection in slot `index` has entered TIME-WAIT; it is in the demultiplexing table no
    /// more.
    pub(super) fn enter_time_wait(
        &mut self,
        now: Instant,
        index: u32,
        (hash, tuple): (u64, &Tuple),
        residue: &Residue,
    ) {
        debug_assert!(
            residue.stamp_offset.is_none_or(|offset| offset == self.stamp_offset(tuple)),
            "the record does not store it"
        );
        let distance = self.distance(tuple);
        let counters = &mut self.shared.counters;
        match self.shared.config.time_wait_state {
            TimeWaitState::Compact => {
                counters.time_wait_entered += 1;
                counters.time_wait_evicted +=
                    self.time_wait.enter(hash, tuple, residue, distance, now);
            }
            TimeWaitState::Full => self.linger(now, index, residue),
            TimeWaitState::Skip => {
                counters.time_wait_entered += 1;
                counters.time_wait_skipped += 1;
            }
        }
        if residue.ack_due {
            let &Residue { snd_nxt: seq, rcv_nxt: ack, window, stamp, .. } = residue;
            let offset = residue.stamp_offset.unwrap_or(0);
            self.acknowledge_time_wait(now, tuple, LastAck { seq, ack, window, stamp, offset });
        }
    }

    /// How near the peer is, if that matters.
    #[inline(always)]
    fn distance(&self, tuple: &Tuple) -> Distance {
        let tcp = &self.shared.config;
        let is_all_the_same = tcp.time_wait_on_link.is_zero() && tcp.time_wait_on_host.is_zero();
        if is_all_the_same { Distance::Far } else { self.distance_by_route(tuple) }
    }

    #[inline(never)]
    fn distance_by_route(&self, tuple: &Tuple) -> Distance {
        match self.routes.next_hop(tuple.remote_ip()) {
            Some(NextHop::Ourselves) => Distance::OnHost,
            Some(NextHop::Neighbour(hop)) if hop == tuple.remote_ip() => Distance::OnLink,
            _ => Distance::Far,
        }
    }

    /// The record of `tuple`, its time over or not.
    #[inline(always)]
    pub(super) fn time_wait_record(&self, hash: u64, tuple: &Tuple) -> Option<Record> {
        let is_empty = self.time_wait.is_empty() && self.lingering.is_empty();
        if is_empty { None } else { self.any_time_wait_record(hash, tuple) }
    }

    #[inline(never)]
    fn any_time_wait_record(&self, hash: u64, tuple: &Tuple) -> Option<Record> {
        if self.lingering.is_empty() {
            return self.time_wait.get(hash, tuple).map(|found| found.record());
        }
        self.lingering_record(hash, tuple)
    }

    /// A new connection takes the place of the record of `tuple`, if there is one.
    pub(super) fn end_time_wait(&mut self, hash: u64, tuple: &Tuple) {
        let ended = self.remove_time_wait(hash, tuple);
        self.shared.counters.time_wait_reused += u64::from(ended);
    }

    fn remove_time_wait(&mut self, hash: u64, tuple: &Tuple) -> bool {
        let Some(index) = self.lingering_at(hash, tuple) else {
            return self.time_wait.remove(hash, tuple);
        };
        self.end_lingering(index);
        true
    }
}
