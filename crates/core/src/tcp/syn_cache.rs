//! Half-open passive connections: SYN-RECEIVED in a few tens of bytes (RFC 4987 §3.3).
//!
//! An entry is made when a SYN is answered, and ends when the peer's ACK makes a connection of it,
//! when the peer resets it, or when its SYN, ACK has been sent in vain for too long. The cache is
//! bounded; what comes beyond the bound gets a SYN cookie, and no entry.
//!
//! A SYN that a TIME-WAIT record lets through (RFC 6191) can get no cookie, since its ISN has to
//! lie beyond the old connection's. Its entry does not count towards the bound: the sender has had
//! a connection here within the length of TIME-WAIT, and no more such entries may exist than
//! TIME-WAIT records.
//!
//! While the cache is full, entries of unproven senders are given up after three SYN, ACKs.
//!
//! ```text
//!   SYN, ACK sent   1 ─▶ entry ⇄ entry ⇄ entry      each queue waits for as long, so that its
//!                   2 ─▶ entry ⇄ entry              first is due first
//!                   …
//! ```
//!
//! An entry's number is one that no connection's slot has: the same index finds both.

use crate::event::ListenerId;
use crate::flow::Tuple;
use crate::slab::{Key, Slab};
use crate::tcp::connection::SynReceived;
use crate::tcp::timers::Ticks;
use crate::time::{Duration, Instant, as_nanos};

/// SYN, ACKs sent at most: with an initial RTO of 1 s the entry lives for 63 s.
const ATTEMPTS_MAX: u8 = 6;

/// SYN, ACKs sent at most to an unproven sender while the cache is full: its entry lives for 7 s
/// (Linux, `reqsk_timer_handler`: two repetitions at least).
const ATTEMPTS_WHEN_FULL: u8 = 3;

/// No entry.
const NONE: u32 = u32::MAX;

/// The bit that tells an entry's number from a connection's.
const ENTRY: u32 = 1 << 31;

/// True if `number` is that of an entry, and not of a connection's slot.
pub(crate) fn is_entry(number: u32) -> bool {
    number & ENTRY != 0
}

/// What TIME-WAIT knew of the two ends when the SYN came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Nothing.
    Unknown,
    /// It had a record whose time was over.
    Remembered,
    /// It had a living record, which let the SYN through (RFC 6191).
    Proven,
}

/// One half-open connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HalfOpen {
    /// The two ends.
    pub tuple: Tuple,
    /// The tuple's keyed hash.
    pub hash: u64,
    /// The facts known of the peer.
    pub syn: SynReceived,
    /// The listener that its SYN was for.
    pub listener: ListenerId,
    /// When the SYN, ACK was sent first, for an RTT sample.
    pub answered: Instant,
    /// The record of TIME-WAIT for these ends when the SYN came.
    pub standing: Standing,
    /// A whole tick.
    due: Instant,
    /// Its neighbours in the queue.
    before: u32,
    behind: u32,
}

impl HalfOpen {
    /// When its SYN, ACK is sent again, or it is given up.
    pub(crate) fn due(&self) -> Instant {
        self.due
    }
}

/// Entries as many of whose SYN, ACKs have been sent, in the order in which they are due.
#[derive(Clone, Copy, Debug)]
struct Queue {
    first: u32,
    last: u32,
}

/// All half-open connections of a host.
#[derive(Debug)]
pub(crate) struct SynCache {
    entries: Slab<HalfOpen>,
    queues: [Queue; ATTEMPTS_MAX as usize],
    /// No entry is due before this.
    earliest: Instant,
    /// How long the first SYN, ACK waits for an answer.
    first_wait_ns: u64,
    ticks: Ticks,
    /// Entries of proven senders.
    proven: usize,
    limits: SynLimits,
}

/// How many entries there may be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SynLimits {
    /// Entries of senders that are not proven.
    pub unproven: usize,
    /// Entries of proven senders, beside those.
    pub proven: usize,
}

/// What a due entry wants.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Due {
    /// Its SYN, ACK again.
    Answer(u32),
    /// Nothing more: it is to be removed.
    Expired(u32),
    /// Nothing more, though it would wait for longer if the cache were not full: it is to be
    /// removed.
    ExpiredEarly(u32),
}

impl SynCache {
    /// An empty cache of at most so many entries; their first answers wait for `rto.initial`.
    pub(crate) fn new(limits: SynLimits, initial_rto: Duration, ticks: Ticks) -> Self {
        SynCache {
            entries: Slab::default(),
            queues: [Queue { first: NONE, last: NONE }; ATTEMPTS_MAX as usize],
            earliest: Instant::FAR_FUTURE,
            first_wait_ns: as_nanos(initial_rto),
            ticks,
            proven: 0,
            limits,
        }
    }

    /// Entries held.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// True if there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Keeps so many at most from now on.
    pub(crate) fn set_limits(&mut self, limits: SynLimits) {
        self.limits = limits;
    }

    /// Entries of senders that are not proven.
    pub(crate) fn unproven(&self) -> usize {
        self.len() - self.proven
    }

    /// True if the SYN of a sender that is not proven must get a cookie.
    pub(crate) fn is_full(&self) -> bool {
        self.unproven() >= self.limits.unproven
    }

    /// True if there is room for an entry of such a sender.
    pub(crate) fn has_room(&self, standing: Standing) -> bool {
        !self.is_full() || standing == Standing::Proven && self.proven < self.limits.proven
    }

    /// Adds an entry whose SYN, ACK is about to be sent for the first time; returns its number.
    /// [`has_room`](SynCache::has_room) must have been true.
    #[inline(always)]
    pub(crate) fn insert(
        &mut self,
        hash: u64,
        tuple: &Tuple,
        syn: SynReceived,
        listener: ListenerId,
        standing: Standing,
        now: Instant,
    ) -> u32 {
        self.proven += usize::from(standing == Standing::Proven);
        let (due, before) = (self.due_after(now, self.first_wait_ns), self.queues[0].last);
        let Key { index: slot, .. } = self.entries.insert_with(move |()| HalfOpen {
            tuple: *tuple,
            hash,
            syn,
            listener,
            answered: now,
            standing,
            due,
            before,
            behind: NONE,
        });
        self.put_behind(slot, 0, before);
        slot ^ ENTRY
    }

    /// When an entry whose SYN, ACK is sent at `now` is due if it waits for so long.
    #[inline(always)]
    fn due_after(&mut self, now: Instant, wait_ns: u64) -> Instant {
        let due = self.ticks.instant(self.ticks.at_or_after(now.plus_nanos(wait_ns)));
        self.earliest = self.earliest.min(due);
        due
    }

    /// An entry whose SYN, ACK has been sent `sent` times more is the last of its queue, behind
    /// `before`.
    fn put_behind(&mut self, slot: u32, sent: u8, before: u32) {
        let queue = &mut self.queues[usize::from(sent)];
        queue.last = slot;
        match self.entries.get_mut(before) {
            Some(before) => before.behind = slot,
            None => queue.first = slot,
        }
    }

    /// Its SYN, ACK is sent again at `now`: it waits in the queue of those sent as often.
    fn enqueue(&mut self, slot: u32, now: Instant) {
        let Some(entry) = self.entries.get(slot) else { return };
        let sent = entry.syn.attempts.clamp(1, ATTEMPTS_MAX) - 1;
        let due = self.due_after(now, self.first_wait_ns.saturating_mul(1 << sent));
        let before = self.queues[usize::from(sent)].last;
        if let Some(entry) = self.entries.get_mut(slot) {
            (entry.due, entry.before, entry.behind) = (due, before, NONE);
        }
        self.put_behind(slot, sent, before);
    }

    /// Takes an entry, which was sent so often, from between its neighbours.
    fn unlink(&mut self, attempts: u8, before: u32, behind: u32) {
        let sent = attempts.clamp(1, ATTEMPTS_MAX) - 1;
        let queue = &mut self.queues[usize::from(sent)];
        match self.entries.get_mut(before) {
            Some(before) => before.behind = behind,
            None => queue.first = behind,
        }
        match self.entries.get_mut(behind) {
            Some(behind) => behind.before = before,
            None => queue.last = before,
        }
    }

    /// The entry at that index, for those who look at all.
    pub(crate) fn at(&self, index: u32) -> Option<&HalfOpen> {
        self.entries.get(index)
    }

    /// No index of an entry is as high.
    pub(crate) fn end(&self) -> u32 {
        self.entries.end()
    }

    /// The entry of that number.
    pub(crate) fn get(&self, number: u32) -> Option<&HalfOpen> {
        self.entries.get(number ^ ENTRY)
    }

    /// True if the entry of that number is of `tuple`.
    pub(crate) fn has(&self, number: u32, tuple: &Tuple) -> bool {
        self.get(number).is_some_and(|entry| entry.tuple == *tuple)
    }

    /// Takes the entry of that number out; false if there is none.
    pub(crate) fn remove(&mut self, number: u32) -> bool {
        let mut link = None;
        let leave = |entry: &mut HalfOpen, link: &mut Option<_>| {
            *link = Some((entry.syn.attempts, entry.before, entry.behind, entry.standing));
            Some(())
        };
        self.entries.leave(number ^ ENTRY, &mut link, leave, |_, (), _| {});
        let Some((attempts, before, behind, standing)) = link else { return false };
        self.proven -= usize::from(standing == Standing::Proven);
        self.unlink(attempts, before, behind);
        true
    }

    /// True if [`SynCache::due`] may have an entry at `now`.
    pub(crate) fn may_be_due(&self, now: Instant) -> bool {
        self.earliest <= now
    }

    /// The next entry that is due at `now`.
    pub(crate) fn due(&mut self, now: Instant) -> Option<Due> {
        let next = self.next();
        self.earliest = next.map_or(Instant::FAR_FUTURE, |(due, _)| due);
        let (_, slot) = next.filter(|(due, _)| *due <= now)?;
        let entry = *self.entries.get(slot)?;
        if entry.syn.attempts >= ATTEMPTS_MAX {
            return Some(Due::Expired(slot ^ ENTRY));
        }
        let is_proven = entry.standing == Standing::Proven;
        if entry.syn.attempts >= ATTEMPTS_WHEN_FULL && !is_proven && self.is_full() {
            return Some(Due::ExpiredEarly(slot ^ ENTRY));
        }
        self.unlink(entry.syn.attempts, entry.before, entry.behind);
        self.entries.get_mut(slot)?.syn.attempts += 1;
        self.enqueue(slot, now);
        Some(Due::Answer(slot ^ ENTRY))
    }

    /// When the next entry is due.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        if self.is_empty() {
            return None;
        }
        self.next().map(|(due, _)| due)
    }

    /// The next entry that is due, and when.
    fn next(&self) -> Option<(Instant, u32)> {
        let due = |queue: &Queue| Some((self.entries.get(queue.first)?.due, queue.first));
        self.queues.iter().filter_map(due).min_by_key(|(due, _)| *due)
    }

    /// The numbers of all entries that wait for `listener`.
    pub(crate) fn waiting_for(&self, listener: ListenerId) -> alloc::vec::Vec<u32> {
        let entries = self.entries.iter();
        entries.filter(|entry| entry.1.listener == listener).map(|entry| entry.0 ^ ENTRY).collect()
    }
}

#[cfg(test)]
mod tests;
