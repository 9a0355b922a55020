//! The table of TIME-WAIT records.
//!
//! Records are found by the keyed hash of their tuple and expire in the order in which they
//! entered: one queue, so that expiry is popping its front, with no timer per record. A restarted
//! record gets its new expiry in place and is queued again only when its old entry comes up, so
//! that FINs repeated by a stranger cannot make the queue grow. A look-up judges by the record's
//! own expiry.

use alloc::collections::VecDeque;
use hashbrown::HashTable;

use crate::counters::Counters;
use crate::tcp::Seq;
use crate::tcp::connection::{Residue, Tuple};
use crate::time::{Duration, Instant};

/// What is kept of a closed connection.
#[derive(Clone, Copy, Debug)]
pub struct Record {
    /// Whose it was.
    pub tuple: Tuple,
    /// SND.NXT, beyond our FIN.
    pub snd_nxt: Seq,
    /// RCV.NXT, beyond the peer's FIN.
    pub rcv_nxt: Seq,
    /// TS.Recent, if timestamps were used.
    pub stamp: Option<u32>,
    /// The window field of our last ACK.
    pub window: u16,
    /// A new handshake is under way on its tuple.
    pub is_marked: bool,
    entered: Instant,
    expires: Instant,
    /// The expiry under which it stands in the queue: an entry under another is stale.
    queued: Instant,
    hash: u64,
}

impl Record {
    /// When it entered, or was last restarted.
    pub fn entered(&self) -> Instant {
        self.entered
    }
}

/// Stale entries in the queue that are not worth a pass through it.
const STALE_MAX: usize = 1024;

/// All TIME-WAIT records of a host.
#[derive(Debug)]
pub struct TimeWait {
    records: HashTable<Record>,
    /// In order of entry.
    queue: VecDeque<(Instant, u64, Tuple)>,
    duration: Duration,
    limit: usize,
}

impl TimeWait {
    /// An empty table of at most `limit` records, each kept for `duration` (2·MSL).
    pub fn new(duration: Duration, limit: usize) -> Self {
        TimeWait { records: HashTable::new(), queue: VecDeque::new(), duration, limit }
    }

    /// Records held, whether expired yet or not.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// All records, in no order.
    pub fn iter(&self) -> impl Iterator<Item = &Record> {
        self.records.iter()
    }

    /// True if it holds none.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// A connection has entered TIME-WAIT. When the table is full the oldest record goes.
    pub fn enter(
        &mut self,
        hash: u64,
        tuple: Tuple,
        residue: &Residue,
        now: Instant,
        counters: &mut Counters,
    ) {
        counters.time_wait_entered += 1;
        if self.limit == 0 {
            counters.time_wait_evicted += 1;
            return;
        }
        self.remove(hash, &tuple);
        while self.records.len() >= self.limit && self.evict_oldest() {
            counters.time_wait_evicted += 1;
        }
        let expires = now + self.duration;
        let record = Record {
            tuple,
            snd_nxt: residue.snd_nxt,
            rcv_nxt: residue.rcv_nxt,
            stamp: residue.stamp,
            window: residue.window,
            is_marked: false,
            entered: now,
            expires,
            queued: expires,
            hash,
        };
        self.records.insert_unique(hash, record, |record| record.hash);
        self.queue.push_back((expires, hash, tuple));
        self.drop_stale_entries();
    }

    /// Records that ended early leave their entries in the queue. When these outnumber the live
    /// ones they are dropped, so that a peer that opens its tuple again and again cannot make it
    /// grow.
    fn drop_stale_entries(&mut self) {
        if self.queue.len() <= 2 * self.records.len() + STALE_MAX {
            return;
        }
        let records = &self.records;
        self.queue.retain(|(at, hash, tuple)| {
            records.find(*hash, |r| r.tuple == *tuple).is_some_and(|r| r.queued == *at)
        });
    }

    /// The record of `tuple`, if it has not expired.
    pub fn find(&self, hash: u64, tuple: &Tuple, now: Instant) -> Option<Record> {
        let record = self.records.find(hash, |record| record.tuple == *tuple)?;
        (record.expires > now).then_some(*record)
    }

    fn find_mut(&mut self, hash: u64, tuple: &Tuple) -> Option<&mut Record> {
        self.records.find_mut(hash, |record| record.tuple == *tuple)
    }

    /// Ends a record before its time.
    pub fn remove(&mut self, hash: u64, tuple: &Tuple) -> bool {
        let found = self.records.find_entry(hash, |record| record.tuple == *tuple);
        found.map(hashbrown::hash_table::OccupiedEntry::remove).is_ok()
    }

    /// A new handshake has begun on the record's tuple.
    pub(super) fn mark(&mut self, hash: u64, record: &Record) {
        if let Some(record) = self.find_mut(hash, &record.tuple) {
            record.is_marked = true;
        }
    }

    /// The new handshake came to nothing: the record is as before (RFC 9293 MAY-2).
    pub fn unmark(&mut self, hash: u64, tuple: &Tuple) {
        if let Some(record) = self.find_mut(hash, tuple) {
            record.is_marked = false;
        }
    }

    /// The peer has repeated its FIN: 2·MSL start over.
    pub(super) fn restart(&mut self, hash: u64, record: &Record, now: Instant) {
        let expires = now + self.duration;
        if let Some(record) = self.find_mut(hash, &record.tuple) {
            record.expires = expires;
            record.entered = now;
        }
    }

    fn evict_oldest(&mut self) -> bool {
        while let Some((at, hash, tuple)) = self.queue.pop_front() {
            if self.find_mut(hash, &tuple).is_some_and(|record| record.queued == at) {
                return self.remove(hash, &tuple);
            }
        }
        false
    }

    /// Drops every record that is due.
    pub fn on_time(&mut self, now: Instant, counters: &mut Counters) {
        while let Some(&(at, hash, tuple)) = self.queue.front().filter(|entry| entry.0 <= now) {
            self.queue.pop_front();
            let Some(record) = self.find_mut(hash, &tuple).filter(|r| r.queued == at) else {
                continue;
            };
            if record.expires > now {
                record.queued = record.expires;
                let again = (record.expires, hash, tuple);
                self.queue.push_back(again);
            } else {
                self.remove(hash, &tuple);
                counters.time_wait_expired += 1;
            }
        }
        if self.queue.is_empty() && self.queue.capacity() > 1024 {
            self.queue = VecDeque::new();
            self.records = HashTable::new();
        }
    }

    #[cfg(test)]
    pub(super) fn queue_len(&self) -> usize {
        self.queue.len()
    }

    /// When the oldest entry comes up.
    pub fn deadline(&self) -> Option<Instant> {
        self.queue.front().map(|entry| entry.0)
    }
}
