//! Orphans in FIN-WAIT-2: their user has left, everything is sent and acknowledged, and only the
//! peer's FIN is missing. A peer that keeps its end open lets them wait for a minute, a million of
//! them if it likes.
//!
//! After as long as lets a connection rest, one is a record like those of TIME-WAIT, of some 31
//! bytes, and nothing else. What comes for it makes the connection again, which then does what it
//! always does: the rules are in one place.
//!
//! A record lasts as long as FIN-WAIT-2 would have by then, or up to [`SLACK`] less, since all of
//! them wait in one line. One that asks something of its IP headers stays whole, and so does one
//! that was woken. There may be as many as TIME-WAIT records, apart from them; beyond that the
//! oldest goes. When as many orphans are whole as may be, none is woken: who speaks to one is a
//! stranger.

use core::ops::RangeInclusive;

use super::Host;
use super::demux::TupleHasher;
use crate::config::Config;
use crate::tcp::time_wait::{Distance, Record, TimeWait};
use crate::tcp::timers::Timer;
use crate::tcp::{Connection, Tuple};
use crate::time::{Duration, Instant, as_nanos};

/// How much too early such an orphan may be given up: timers are late by a tick, and by many turns
/// if many are due.
const SLACK: Duration = Duration::from_secs(1);

/// Orphans that are nothing but records.
#[derive(Debug)]
pub(super) struct FinWait2 {
    /// Its mark says here that both ends use SACK.
    records: TimeWait,
    /// How long each of them stays, if any do.
    term: Option<Duration>,
}

impl FinWait2 {
    pub(super) fn new(config: &Config) -> FinWait2 {
        let tcp = &config.tcp;
        let term = tcp.fin_wait_2_timeout.checked_sub(tcp.rest_after + SLACK);
        let terms = [term.unwrap_or_default(); 3];
        let hasher = TupleHasher::new(&config.secret);
        FinWait2 { records: TimeWait::new(terms, config.limits.time_wait, hasher), term }
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.records.len()
    }

    /// The oldest are given up.
    pub(super) fn on_time(&mut self, now: Instant) {
        self.records.on_time(now);
    }

    /// When one of them is given up.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.records.deadline()
    }

    /// All of them.
    pub(super) fn tuples(&self) -> impl Iterator<Item = Tuple> {
        self.records.iter().map(|record| record.tuple)
    }

    /// The one of `tuple`, if there is one.
    #[inline]
    pub(super) fn find(&self, now: Instant, hash: u64, tuple: &Tuple) -> Option<Record> {
        self.records.find(hash, tuple, now)
    }

    /// From when to when an orphan that would be given up at `deadline` may become a record.
    fn turn_of(&self, deadline: Instant) -> Option<RangeInclusive<Instant>> {
        let before = |left| Instant::from_nanos(deadline.as_nanos().saturating_sub(as_nanos(left)));
        let term = self.term?;
        Some(before(term + SLACK)..=before(term))
    }
}

impl Host {
    /// The orphan in slot `index`, in FIN-WAIT-2, becomes a record. False if it is not its turn
    /// yet, for which its timer is set, or if more than that is to be kept of it.
    pub(super) fn becomes_record(&mut self, now: Instant, index: u32) -> bool {
        let Some(slot) = self.slots.get_mut(index).filter(|slot| !slot.is_waited_for()) else {
            return false;
        };
        let (hash, tuple) = (slot.tuple_hash, slot.tuple);
        let connection = slot.connection_mut();
        let turn = self.fin_wait_2.turn_of(connection.deadlines.at(Timer::FinWait2));
        let Some(turn) = turn.filter(|_| connection.options.asks_nothing_of_ip()) else {
            return false;
        };
        if now < *turn.start() {
            connection.deadlines.set(Timer::Rest, *turn.start());
        }
        if !turn.contains(&now) {
            return false;
        }
        let Some((residue, sack)) = connection.leave_for_record(&mut self.shared.budget) else {
            return false;
        };
        self.free_connection(index);
        let records = &mut self.fin_wait_2.records;
        let evicted = records.enter(hash, tuple, &residue, Distance::Far, now);
        self.shared.counters.orphans_over_limit += evicted;
        self.fin_wait_2.records.mark(hash, &tuple, sack);
        self.shared.counters.rested += 1;
        true
    }

    /// If `tuple` is that of an orphan of which a record is kept, makes the connection of it again:
    /// its slot. There is no record any more then, whether it could be woken or not.
    #[inline]
    pub(super) fn wake_orphan(&mut self, now: Instant, hash: u64, tuple: &Tuple) -> Option<u32> {
        let record = self.fin_wait_2.find(now, hash, tuple)?;
        self.restore_orphan(now, hash, &record)
    }

    #[cold]
    fn restore_orphan(&mut self, now: Instant, hash: u64, record: &Record) -> Option<u32> {
        self.fin_wait_2.records.remove(hash, &record.tuple);
        if self.orphans >= self.shared.limits.orphans {
            self.shared.counters.orphans_over_limit += 1;
            return None;
        }
        let (options, offset) = (self.default_options.clone(), self.stamp_offset(&record.tuple));
        let mut cx = self.shared.context(now);
        let connection = Connection::of_record(&mut cx, hash, options, record, offset);
        let mut block = self.take_block();
        *block = connection;
        self.orphans += 1;
        Some(self.add_connection(block, None).index)
    }
}
