//! SYNs that wait for a verdict. A listener that asks answers no SYN before its user has admitted
//! it: a SYN, ACK says that somebody is there, and only the user knows.
//!
//! ```text
//!   SYN ─▶ waiting ─▶ told ─┬─ admitted ─▶ a connection in SYN-RECEIVED
//!             │        │    └─ refused  ─▶ RST, ICMP, or nothing
//!             └────────┴─▶ gone: reset by its sender, or kept in vain for too long
//! ```
//!
//! Nothing was sent for a held SYN, so that no cookie can stand for it. Their number is bounded.
//! When there is no room, the oldest of which the user was not told goes: its sender sends it
//! again, if there is one. Where the user was told of all, the new one is dropped.

use alloc::vec::Vec;
use hashbrown::HashTable;

use crate::event::{ListenerId, SynId};
use crate::flow::{Seq, Tuple};
use crate::slab::{Key, Slab};
use crate::tcp::connection::SynReceived;
use crate::time::{Duration, Instant};

/// No SYN.
const NONE: u32 = u32::MAX;

/// A SYN that waits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held {
    /// The two ends.
    pub tuple: Tuple,
    /// The tuple's keyed hash.
    pub hash: u64,
    /// The facts known of the peer, with our ISN.
    pub syn: SynReceived,
    /// The listener that it was for.
    pub listener: ListenerId,
    /// The peer's address is ours as well.
    pub is_ours: bool,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    held: Held,
    /// When it is given up.
    until: Instant,
    /// Its neighbours in the order in which they came.
    before: u32,
    behind: u32,
}

/// What has become of a SYN that was to be held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keeping {
    /// It is held.
    Kept,
    /// It is held, and the oldest of which the user was not told is no more.
    KeptForAnother,
    /// It is dropped: the user was told of as many as may be held.
    Dropped,
}

/// All SYNs of a host that wait for a verdict.
#[derive(Debug)]
pub(crate) struct HeldSyns {
    entries: Slab<Entry>,
    /// Slots by the hash of their tuples.
    index: HashTable<u32>,
    first: u32,
    last: u32,
    /// The oldest of which the user was not told; those behind it were not told either.
    untold: u32,
    limit: usize,
    patience: Duration,
}

impl HeldSyns {
    /// None yet, and so many at most, each for so long.
    pub(crate) fn new(limit: usize, patience: Duration) -> Self {
        HeldSyns {
            entries: Slab::default(),
            index: HashTable::new(),
            first: NONE,
            last: NONE,
            untold: NONE,
            limit,
            patience,
        }
    }

    /// How many wait.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// True if none waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn find(&self, hash: u64, tuple: &Tuple) -> Option<u32> {
        let is_it =
            |index: &u32| self.entries.get(*index).is_some_and(|it| it.held.tuple == *tuple);
        self.index.find(hash, is_it).copied()
    }

    /// True if a SYN of these ends waits.
    pub(crate) fn has(&self, hash: u64, tuple: &Tuple) -> bool {
        !self.is_empty() && self.find(hash, tuple).is_some()
    }

    /// Holds a SYN of whose ends none waits.
    pub(crate) fn insert(&mut self, held: Held, now: Instant) -> Keeping {
        let mut keeping = Keeping::Kept;
        if self.len() >= self.limit {
            if self.untold == NONE {
                return Keeping::Dropped;
            }
            self.remove(self.untold);
            keeping = Keeping::KeptForAnother;
        }
        let (until, before, hash) = (now + self.patience, self.last, held.hash);
        let entry = Entry { held, until, before, behind: NONE };
        let Key { index, .. } = self.entries.insert(entry);
        match self.entries.get_mut(before) {
            Some(before) => before.behind = index,
            None => self.first = index,
        }
        self.last = index;
        if self.untold == NONE {
            self.untold = index;
        }
        let entries = &self.entries;
        let hash_of = |index: &u32| entries.get(*index).map_or(0, |entry| entry.held.hash);
        self.index.insert_unique(hash, index, hash_of);
        keeping
    }

    /// The oldest SYN of which the user was not told, who is told now.
    pub(crate) fn tell(&mut self) -> Option<(SynId, Tuple)> {
        let index = self.untold;
        let (entry, generation) = self.entries.named(index)?;
        self.untold = entry.behind;
        Some((SynId { index, generation }, entry.held.tuple))
    }

    /// Takes out the SYN of that name.
    pub(crate) fn take(&mut self, id: SynId) -> Option<Held> {
        let (_, generation) = self.entries.named(id.index)?;
        if generation == id.generation { self.remove(id.index) } else { None }
    }

    /// True if the SYN of that name still waits.
    pub(crate) fn is_held(&self, id: SynId) -> bool {
        self.entries.named(id.index).is_some_and(|(_, generation)| generation == id.generation)
    }

    /// Its sender takes back the SYN of these ends, if `seq` is what follows it: who does not see
    /// it does not know that number.
    pub(crate) fn on_reset(&mut self, hash: u64, tuple: &Tuple, seq: Seq) -> bool {
        let Some(index) = self.find(hash, tuple) else { return false };
        let is_exact = self.entries.get(index).is_some_and(|it| it.held.syn.irs + 1 == seq);
        is_exact && self.remove(index).is_some()
    }

    fn remove(&mut self, index: u32) -> Option<Held> {
        let Entry { held, before, behind, .. } = self.entries.take(index)?;
        match self.entries.get_mut(before) {
            Some(before) => before.behind = behind,
            None => self.first = behind,
        }
        match self.entries.get_mut(behind) {
            Some(behind) => behind.before = before,
            None => self.last = before,
        }
        if self.untold == index {
            self.untold = behind;
        }
        if let Ok(place) = self.index.find_entry(held.hash, |other| *other == index) {
            place.remove();
        }
        Some(held)
    }

    /// Drops all that wait for `listener`.
    pub(crate) fn forget(&mut self, listener: ListenerId) {
        let of_it = self.entries.iter().filter(|(_, entry)| entry.held.listener == listener);
        let of_it: Vec<u32> = of_it.map(|(index, _)| index).collect();
        for index in of_it {
            self.remove(index);
        }
    }

    /// When the oldest is given up: the others later.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.entries.get(self.first).map(|entry| entry.until)
    }

    /// Gives up what has waited for too long. Returns how many.
    pub(crate) fn on_time(&mut self, now: Instant) -> u64 {
        let mut count = 0;
        while self.deadline().is_some_and(|until| until <= now) {
            self.remove(self.first);
            count += 1;
        }
        count
    }
}

#[cfg(test)]
mod tests;
