//! Half-open passive connections: SYN-RECEIVED in a few tens of bytes (RFC 4987 §3.3).
//!
//! An entry is made when a SYN is answered, and ends when the peer's ACK makes a connection of it,
//! when the peer resets it, or when its SYN, ACK has been sent in vain for too long. The cache is
//! bounded; what comes beyond the bound gets a SYN cookie, and no entry.

use hashbrown::HashTable;

use super::slab::Slab;
use crate::tcp::Tuple;
use crate::tcp::connection::SynReceived;
use crate::tcp::timers::{Filed, Inline, Ticks};
use crate::time::{Duration, Instant};

/// SYN, ACKs sent at most: with an initial RTO of 1 s the entry lives for 63 s.
const ATTEMPTS_MAX: u8 = 6;

/// One half-open connection.
#[derive(Clone, Copy, Debug)]
pub struct HalfOpen {
    /// The two ends.
    pub tuple: Tuple,
    /// The tuple's keyed hash.
    pub hash: u64,
    /// What is known of the peer.
    pub syn: SynReceived,
    /// The slot of the listener, and its generation.
    pub listener: (u32, u32),
    /// When the SYN, ACK was sent first, for an RTT sample.
    pub answered: Instant,
    due: Instant,
    filed: Filed,
}

/// All half-open connections of a host.
#[derive(Debug)]
pub struct SynCache {
    entries: Slab<HalfOpen>,
    index: HashTable<u32>,
    timers: Inline,
    limit: usize,
}

/// What a due entry wants.
#[derive(Clone, Copy, Debug)]
pub enum Due {
    /// Its SYN, ACK again.
    Answer(u32),
    /// Nothing more: it is gone.
    Expired(HalfOpen),
}

impl SynCache {
    /// An empty cache of at most `limit` entries.
    pub fn new(limit: usize, ticks: Ticks) -> Self {
        SynCache {
            entries: Slab::default(),
            index: HashTable::new(),
            timers: Inline::new(ticks),
            limit,
        }
    }

    /// Entries held.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// True if a new SYN must get a cookie.
    pub fn is_full(&self) -> bool {
        self.len() >= self.limit
    }

    /// Adds an entry whose SYN, ACK is about to be sent for the first time.
    pub fn insert(
        &mut self,
        (tuple, hash): (Tuple, u64),
        syn: SynReceived,
        listener: (u32, u32),
        now: Instant,
        initial_rto: Duration,
    ) -> u32 {
        let due = now + initial_rto;
        let filed = Filed::default();
        let entry = HalfOpen { tuple, hash, syn, listener, answered: now, due, filed };
        let (slot, _) = self.entries.insert(entry);
        let entries = &self.entries;
        self.index.insert_unique(hash, slot, |&i| entries.get(i).map_or(0, |e| e.hash));
        if let Some(entry) = self.entries.get_mut(slot) {
            self.timers.touched(slot, &mut entry.filed, due);
        }
        slot
    }

    /// The entry of `tuple`.
    pub fn find(&self, hash: u64, tuple: &Tuple) -> Option<u32> {
        let entries = &self.entries;
        let is_it = |slot: &u32| entries.get(*slot).is_some_and(|entry| entry.tuple == *tuple);
        self.index.find(hash, is_it).copied()
    }

    /// All entries.
    pub fn iter(&self) -> impl Iterator<Item = &HalfOpen> {
        self.entries.iter().map(|(_, entry)| entry)
    }

    /// The entry in `slot`.
    pub fn get(&self, slot: u32) -> Option<&HalfOpen> {
        self.entries.get(slot)
    }

    /// Takes the entry in `slot` out.
    pub fn remove(&mut self, slot: u32) -> Option<HalfOpen> {
        let mut entry = self.entries.take(slot)?;
        if let Ok(found) = self.index.find_entry(entry.hash, |&i| i == slot) {
            found.remove();
        }
        self.timers.forget(slot, &mut entry.filed);
        Some(entry)
    }

    /// The next entry that is due at `now`.
    pub fn due(&mut self, now: Instant, initial_rto: Duration) -> Option<Due> {
        let (slot, entry) = loop {
            let slot = self.timers.due(now)?;
            let Some(entry) = self.entries.get_mut(slot) else { continue };
            entry.filed = Filed::default();
            if entry.due <= now {
                break (slot, entry);
            }
            self.timers.touched(slot, &mut entry.filed, entry.due);
        };
        if entry.syn.attempts >= ATTEMPTS_MAX {
            return self.remove(slot).map(Due::Expired);
        }
        entry.syn.attempts += 1;
        entry.due = now + initial_rto * (1 << (entry.syn.attempts - 1).min(16));
        self.timers.touched(slot, &mut entry.filed, entry.due);
        Some(Due::Answer(slot))
    }

    /// When the next entry is due.
    pub fn deadline(&self) -> Option<Instant> {
        self.timers.deadline()
    }

    /// The slots of all entries that wait for `listener`.
    pub fn waiting_for(&self, listener: (u32, u32)) -> alloc::vec::Vec<u32> {
        let entries = self.entries.iter();
        entries.filter(|entry| entry.1.listener == listener).map(|entry| entry.0).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp::Seq;

    const RTO: Duration = Duration::from_secs(1);

    fn ticks() -> Ticks {
        Ticks::new(Duration::from_millis(1))
    }

    fn tuple(port: u16) -> Tuple {
        let address = "10.0.0.1".parse().unwrap();
        Tuple::new((address, 80), (address, port))
    }

    fn syn() -> SynReceived {
        SynReceived {
            iss: Seq(1),
            irs: Seq(2),
            peer_mss: 1460,
            mss: 1460,
            offer: 100,
            peer_scale: None,
            sack: false,
            ecn: false,
            stamp: None,
            stamp_offset: 0,
            attempts: 1,
        }
    }

    #[test]
    fn the_bound_is_reached_with_its_last_entry() {
        let mut cache = SynCache::new(2, ticks());
        cache.insert((tuple(1), 1), syn(), (0, 0), Instant::ZERO, RTO);
        assert!(!cache.is_full());
        let slot = cache.insert((tuple(2), 1), syn(), (0, 0), Instant::ZERO, RTO);
        assert!(cache.is_full());
        assert_eq!(cache.find(1, &tuple(2)), Some(slot));
        cache.remove(slot);
        assert_eq!(cache.find(1, &tuple(2)), None);
        assert!(!cache.is_full());
    }

    #[test]
    fn answers_back_off_and_the_entry_goes_after_the_last() {
        let mut cache = SynCache::new(2, ticks());
        cache.insert((tuple(1), 1), syn(), (0, 0), Instant::ZERO, RTO);
        let (mut times, mut expired) = (std::vec::Vec::new(), None);
        while let Some(at) = cache.deadline() {
            match cache.due(at, RTO) {
                Some(Due::Answer(_)) => times.push(at.as_millis() / 1000),
                Some(Due::Expired(_)) => expired = Some(at.as_millis() / 1000),
                None => {}
            }
        }
        assert_eq!(times, [1, 3, 7, 15, 31]);
        assert_eq!(expired, Some(63));
        assert!(cache.is_empty());
    }
}
