//! Orphans in FIN-WAIT-2: their user has left, everything is sent and acknowledged, and only the
//! peer's FIN is missing. A peer that keeps its end open can let a million of them wait for a
//! minute.
//!
//! Once an orphan has been quiet for as long as lets a connection rest, it becomes a record like
//! those of TIME-WAIT, of some 31 bytes, and nothing else. A segment for the record makes the
//! connection again, which then does what it always does: the rules are in one place.
//!
//! While the whole orphans are as many as half the limit on them, one becomes a record in the turn
//! in which its FIN is acknowledged: peers that never close shall not take the places of others.
//!
//! A record lasts as long as FIN-WAIT-2 would have by then, or up to [`SLACK`] less, since all of
//! them wait in one line. One that was made at once lasts that long without the time that it did
//! not wait. An orphan that asks something of its IP headers stays whole. There may be
//! as many of these records as of TIME-WAIT's, counted apart from them; beyond that the oldest
//! goes.
//!
//! The record of an orphan that is woken stays until the orphan ends. Once the orphan has spoken,
//! the record is all that is left again, in the same turn if nothing else is owed and nothing came
//! out of order. No peer gains time by speaking to an orphan, or keeps another's segments from
//! being heard. Orphans that are awake do not count towards the limit on orphans, or strangers
//! could have others' connections reset. When there are as many awake as the limit on orphans, or
//! no room for a connection, a segment for another record is not heard.

use alloc::vec::Vec;

use super::Host;
use super::lookup::UnmatchedSegment;
use crate::config::Config;
use crate::flow::Tuple;
use crate::tcp::connection::FinalState;
use crate::tcp::slot::{Seat, Slot, SlotFlags};
use crate::tcp::time_wait::{Distance, Record, TimeWait};
use crate::tcp::timers::Timer;
use crate::tcp::{Connection, State};
use crate::time::{Duration, Instant, as_nanos};

/// How much too early such an orphan may be given up: timers are late by a tick, and by many turns
/// if many are due.
const SLACK: Duration = Duration::from_secs(1);

/// Orphans that are nothing but records.
#[derive(Debug)]
pub(super) struct FinWait2 {
    /// Its mark says here that both ends use SACK, and its promise that the peer, and not we, is to
    /// hold TIME-WAIT.
    records: TimeWait,
    /// How long each of them stays, if any do.
    term: Option<Duration>,
    /// The number of records that have a connection as well.
    awake: usize,
    /// The slots of those woken since the last turn's end, and of those that shall become records
    /// at once.
    hurried: Vec<u32>,
}

impl FinWait2 {
    pub(super) fn new(config: &Config) -> FinWait2 {
        let tcp = &config.tcp;
        let rest_after = tcp.rest_after().unwrap_or_default();
        let term = tcp.timeout.fin_wait_2.checked_sub(rest_after.saturating_add(SLACK));
        // Where none may be kept they stay whole.
        let term = term.filter(|_| config.limits.time_wait > 0);
        let records = TimeWait::of(config, [term.unwrap_or_default(); 3]);
        FinWait2 { records, term, awake: 0, hurried: Vec::new() }
    }

    /// Keeps so many at most from now on.
    pub(super) fn set_limit(&mut self, limit: usize) {
        self.records.set_limit(limit);
    }

    /// The table of the records.
    pub(super) fn records(&self) -> &TimeWait {
        &self.records
    }

    /// How many there are, but for those awake.
    pub(super) fn len(&self) -> usize {
        self.records.len().saturating_sub(self.awake)
    }

    /// The number of records that have a connection as well.
    pub(super) fn awake(&self) -> usize {
        self.awake
    }

    /// True if any shall become records at the end of the turn.
    pub(super) fn has_hurried(&self) -> bool {
        !self.hurried.is_empty()
    }

    /// Keeps a record of the orphan of `tuple` and its hash; how many others go for want of room.
    pub(super) fn keep(
        &mut self,
        hash: u64,
        tuple: &Tuple,
        final_state: &FinalState,
        sack: bool,
        now: Instant,
    ) -> u64 {
        let evicted = self.records.enter(hash, tuple, final_state, Distance::Far, now);
        self.records.mark(hash, tuple, sack);
        evicted
    }

    /// Keeps a record of another host's orphan, with its hash and its tuple. It goes at `expires`,
    /// or earlier, when one that comes to rest now would. Returns how many others go for want of
    /// room.
    pub(super) fn adopt(
        &mut self,
        (hash, tuple): (u64, &Tuple),
        final_state: &FinalState,
        sack: bool,
        now: Instant,
        expires: Instant,
    ) -> u64 {
        let ends = (hash, tuple);
        let evicted = self.records.adopt(ends, final_state, Distance::Far, now, expires);
        self.records.mark(hash, tuple, sack);
        evicted
    }

    /// The connection of `tuple`, which was woken, is over.
    pub(super) fn end(&mut self, hash: u64, tuple: &Tuple) {
        self.awake -= 1;
        self.records.remove(hash, tuple);
    }

    /// Another host keeps the orphan of `tuple`, which sleeps.
    pub(super) fn forget(&mut self, hash: u64, tuple: &Tuple) {
        self.records.remove(hash, tuple);
    }

    /// The oldest are given up; how many.
    pub(super) fn on_time(&mut self, now: Instant) -> u64 {
        self.records.on_time(now)
    }

    /// When one of them is given up.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.records.deadline()
    }

    /// The one of `tuple`, if there is one.
    pub(super) fn find(&self, now: Instant, hash: u64, tuple: &Tuple) -> Option<Record> {
        if self.records.is_empty() {
            return None;
        }
        self.records.find(hash, tuple, now).map(|found| found.record())
    }

    /// True if there is one of `tuple`.
    pub(super) fn has(&self, now: Instant, hash: u64, tuple: &Tuple) -> bool {
        self.find(now, hash, tuple).is_some()
    }

    /// True if `connection` may become a record now; if it may later, its timer is set for that.
    /// `at_once`: it need not have been quiet before.
    fn is_turn_of(&self, connection: &mut Connection, at_once: bool, now: Instant) -> bool {
        let Some(term) = self.term.filter(|_| connection.options.asks_nothing_of_ip()) else {
            return false;
        };
        let deadline = connection.deadlines.at(Timer::FinWait2).as_nanos();
        let before = |left| Instant::from_nanos(deadline.saturating_sub(as_nanos(left)));
        let (first, last) = (before(term + SLACK), before(term));
        if now < first && !at_once {
            connection.deadlines.set(Timer::Rest, first);
        }
        (first <= now || at_once) && now <= last
    }
}

impl Host {
    /// Whole orphans, but for those that are records as well.
    pub(super) fn whole_orphans(&self) -> usize {
        self.live.orphans - self.closed.fin_wait_2.awake()
    }

    /// True if the whole orphans are so many that each that may becomes a record at once. (None
    /// does where connections never rest.)
    fn are_orphans_hurried(&self) -> bool {
        self.are_orphans_many() && self.shared.config.rest_after().is_some()
    }

    /// The connection in slot `index` has said what it had to say: an orphan in FIN-WAIT-2 becomes
    /// a record at the end of the turn, if orphans are hurried.
    pub(super) fn hurry_orphan(&mut self, index: u32) {
        if self.are_orphans_hurried()
            && self.slots.get(index).is_some_and(|slot| !slot.woken && waits_for_fin(slot))
        {
            self.closed.fin_wait_2.hurried.push(index);
        }
    }

    /// The orphan in slot `index`, in FIN-WAIT-2, becomes a record. False if it is not its turn
    /// yet, for which its timer is set, or if more than that is to be kept of it.
    pub(super) fn becomes_record(&mut self, now: Instant, index: u32) -> bool {
        let at_once = self.are_orphans_hurried();
        let Some(slot) = self.slots.get_mut(index).filter(|slot| !slot.is_waited_for()) else {
            return false;
        };
        let (hash, tuple, woken) = (slot.tuple_hash, slot.tuple, slot.woken);
        let connection = slot.connection_mut();
        let is_its_turn = if woken {
            self.closed.fin_wait_2.find(now, hash, &tuple).is_some()
        } else {
            self.closed.fin_wait_2.is_turn_of(connection, at_once, now)
        };
        if !is_its_turn {
            return false;
        }
        let Some((final_state, sack)) = connection.leave_for_record(&mut self.shared.budget) else {
            return false;
        };
        self.free_connection(index);
        self.shared.counters.rested += 1;
        if woken {
            self.closed.fin_wait_2.awake -= 1;
        } else {
            let evicted = self.closed.fin_wait_2.keep(hash, &tuple, &final_state, sack, now);
            self.shared.counters.fin_wait_2_evicted += evicted;
        }
        true
    }

    /// The orphans woken in this turn have spoken: each one that owes nothing becomes a record
    /// again, and so does each one that is hurried. The others do when nothing has moved for a
    /// while.
    pub(super) fn make_records(&mut self, now: Instant) {
        let mut hurried = core::mem::take(&mut self.closed.fin_wait_2.hurried);
        for index in hurried.drain(..) {
            let Some(slot) = self.slots.get(index).filter(|slot| waits_for_fin(slot)) else {
                continue;
            };
            let is_early = !slot.woken;
            if self.becomes_record(now, index) {
                self.shared.counters.fin_wait_2_hurried += u64::from(is_early);
            }
        }
        self.closed.fin_wait_2.hurried = hurried;
    }

    /// A segment has come for an orphan that is kept as a record: the orphan is made again, and
    /// takes the segment in.
    pub(super) fn on_orphan(
        &mut self,
        now: Instant,
        record: &Record,
        unmatched: &UnmatchedSegment<'_>,
    ) {
        let limits = self.limits();
        let is_full = self.connections() >= limits.connections;
        if is_full || self.closed.fin_wait_2.awake >= limits.orphans {
            self.shared.counters.fin_wait_2_unheard += 1;
            return;
        }
        let (options, offset) = (self.opening.options.clone(), self.stamp_offset(&record.tuple));
        let cx = self.shared.at(now);
        let connection = Connection::of_record(cx, unmatched.hash, options, record, offset);
        let mut block = self.take_block();
        *block = connection;
        let flags = SlotFlags::OURSELVES.only_if(self.ip.is_ours(record.tuple.remote_ip()));
        let seat = Seat { tuple: &record.tuple, flags, accepting: None };
        let index = self.add_connection(block, seat).index;
        if let Some(slot) = self.slots.get_mut(index) {
            slot.woken = true;
        }
        self.live.orphans += 1;
        self.closed.fin_wait_2.awake += 1;
        self.closed.fin_wait_2.hurried.push(index);
        self.deliver(now, index, unmatched.parsed, unmatched.facts);
    }
}

/// True if the connection in `slot` is an orphan that waits for nothing but its peer's FIN.
fn waits_for_fin(slot: &Slot) -> bool {
    slot.is_orphan() && slot.state() == State::FinWait2
}
