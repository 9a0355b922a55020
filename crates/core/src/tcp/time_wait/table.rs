//! The table of TIME-WAIT records.
//!
//! Records are found by the keyed hash of their tuple and expire in the order in which they
//! entered: one queue, so that expiry is popping its front, with no timer per record. A restarted
//! record gets its new expiry in place and is queued again only when its old entry comes up, so
//! that FINs repeated by a stranger cannot make the queue grow. A look-up judges by the record's
//! own expiry.

use alloc::collections::VecDeque;
use hashbrown::HashTable;

use super::Record;
use crate::counters::Counters;
use crate::tcp::Tuple;
use crate::tcp::connection::Residue;
use crate::time::{Duration, Instant};

/// A record and its place.
#[derive(Debug)]
struct Entry {
    record: Record,
    /// The expiry under which it stands in the queue: an entry under another is stale.
    queued: Instant,
    hash: u64,
}

/// Stale entries in the queue that are not worth a pass through it.
const STALE_MAX: usize = 1024;

/// All TIME-WAIT records of a host.
#[derive(Debug)]
pub struct TimeWait {
    records: HashTable<Entry>,
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
    pub fn iter(&self) -> impl Iterator<Item = Record> + '_ {
        self.records.iter().map(|entry| entry.record)
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
        if self.remove(hash, &tuple) {
            counters.time_wait_reused += 1;
        }
        while self.records.len() >= self.limit && self.evict_oldest() {
            counters.time_wait_evicted += 1;
        }
        let record = Record::new(tuple, residue, now, self.duration);
        let expires = record.expires;
        let entry = Entry { record, queued: expires, hash };
        self.records.insert_unique(hash, entry, |entry| entry.hash);
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
            records.find(*hash, |r| r.record.tuple == *tuple).is_some_and(|r| r.queued == *at)
        });
    }

    /// The record of `tuple`, if it has not expired.
    pub fn find(&self, hash: u64, tuple: &Tuple, now: Instant) -> Option<Record> {
        let entry = self.records.find(hash, |entry| entry.record.tuple == *tuple)?;
        (entry.record.expires > now).then_some(entry.record)
    }

    fn find_mut(&mut self, hash: u64, tuple: &Tuple) -> Option<&mut Entry> {
        self.records.find_mut(hash, |entry| entry.record.tuple == *tuple)
    }

    /// Ends a record before its time.
    pub fn remove(&mut self, hash: u64, tuple: &Tuple) -> bool {
        let found = self.records.find_entry(hash, |entry| entry.record.tuple == *tuple);
        found.map(hashbrown::hash_table::OccupiedEntry::remove).is_ok()
    }

    /// A new handshake has begun on the record's tuple, or has come to nothing: then the record is
    /// as before (RFC 9293 MAY-2).
    pub fn mark(&mut self, hash: u64, tuple: &Tuple, is_marked: bool) {
        if let Some(entry) = self.find_mut(hash, tuple) {
            entry.record.is_marked = is_marked;
        }
    }

    /// The peer has repeated its FIN: 2·MSL start over.
    pub fn restart(&mut self, hash: u64, tuple: &Tuple, now: Instant) {
        let expires = now + self.duration;
        if let Some(entry) = self.find_mut(hash, tuple) {
            entry.record.expires = expires;
            entry.record.entered = now;
        }
    }

    fn evict_oldest(&mut self) -> bool {
        while let Some((at, hash, tuple)) = self.queue.pop_front() {
            if self.find_mut(hash, &tuple).is_some_and(|entry| entry.queued == at) {
                return self.remove(hash, &tuple);
            }
        }
        false
    }

    /// Drops every record that is due.
    pub fn on_time(&mut self, now: Instant, counters: &mut Counters) {
        while let Some(&(at, hash, tuple)) = self.queue.front().filter(|entry| entry.0 <= now) {
            self.queue.pop_front();
            let Some(entry) = self.find_mut(hash, &tuple).filter(|e| e.queued == at) else {
                continue;
            };
            if entry.record.expires > now {
                entry.queued = entry.record.expires;
                let again = (entry.queued, hash, tuple);
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
    fn queue_len(&self) -> usize {
        self.queue.len()
    }

    /// When the oldest entry comes up.
    pub fn deadline(&self) -> Option<Instant> {
        self.queue.front().map(|entry| entry.0)
    }
}

#[cfg(test)]
mod tests;
