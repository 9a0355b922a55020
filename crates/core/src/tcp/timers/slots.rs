//! A hierarchical wheel of slots (Varghese & Lauck 1987), without cascading: who is filed in a slot
//! is handed out when the slot is reached, and files again if that was early.
//!
//! ```text
//!   level 0   64 slots of 1 tick      exact
//!   level 1   64 slots of 64 ticks    the slot *at or before* the tick
//!   …                                 a tick is filed on the lowest level whose slots it shares
//!   level 6   64 slots of 2^36 ticks  with the present one no more
//! ```
//!
//! All of a level's occupied slots lie ahead of the present one, and all of a lower level's before
//! any of a higher one's. So the next slot is found by counting zeros in a word, whatever is filed.

use alloc::boxed::Box;
use alloc::vec::Vec;

const LEVELS: usize = 7;
const SLOTS: usize = 64;
const SLOT_BITS: u32 = 6;

/// No entry.
const NONE: u32 = u32::MAX;
/// The place of an entry that is not filed.
const FREE: u16 = u16::MAX;
/// The place of an entry whose slot has been reached.
const REACHED: u16 = u16::MAX - 1;

/// The latest tick there is: 2^42 of 1 ms are 139 years.
pub(super) const LAST_TICK: u64 = (1 << (SLOT_BITS * LEVELS as u32)) - 1;

/// Nodes in a chunk. Chunks are never moved, so that growth costs no more than one of them.
const CHUNK: usize = 1024;

/// An entry's links in the list of its slot.
#[derive(Clone, Copy, Debug)]
struct Node {
    next: u32,
    /// `NONE`: the first of its list.
    previous: u32,
    /// `level · SLOTS + slot`, or where else it is.
    place: u16,
}

const UNFILED: Node = Node { next: NONE, previous: NONE, place: FREE };

/// Entries, each with a number of its owner's choice (dense, from 0), filed by tick.
#[derive(Debug)]
pub(super) struct Slots {
    /// The present tick: every slot before it has been handed out.
    now: u64,
    /// A bit for each slot of a level that holds an entry.
    occupied: [u64; LEVELS],
    heads: Box<[u32; LEVELS * SLOTS]>,
    /// Entries whose slot has been reached and that were not handed out yet.
    reached: u32,
    nodes: Vec<Box<[Node; CHUNK]>>,
    len: usize,
}

impl Default for Slots {
    fn default() -> Self {
        Slots {
            now: 0,
            occupied: [0; LEVELS],
            heads: Box::new([NONE; LEVELS * SLOTS]),
            reached: NONE,
            nodes: Vec::new(),
            len: 0,
        }
    }
}

impl Slots {
    /// Entries filed.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Files `entry`, which is not filed, under `tick`; one that is past counts as the present.
    /// Returns the tick at which its slot is reached: `tick`, or earlier.
    pub(super) fn insert(&mut self, entry: u32, tick: u64) -> u64 {
        let tick = tick.clamp(self.now, LAST_TICK);
        let differing = (tick ^ self.now) | 1;
        let level = (63 - differing.leading_zeros()) / SLOT_BITS;
        let shift = level * SLOT_BITS;
        let slot = (tick >> shift) as usize % SLOTS;
        let place = level as usize * SLOTS + slot;
        self.occupied[level as usize] |= 1 << slot;
        let head = core::mem::replace(&mut self.heads[place], entry);
        self.grow_to(entry);
        *self.node(entry) = Node { next: head, previous: NONE, place: place as u16 };
        if head != NONE {
            self.node(head).previous = entry;
        }
        self.len += 1;
        tick >> shift << shift
    }

    /// Takes `entry` out, wherever it is; does nothing if it is not filed.
    pub(super) fn remove(&mut self, entry: u32) {
        let Some(&Node { next, previous, place }) = self.get(entry).filter(|n| n.place != FREE)
        else {
            return;
        };
        self.node(entry).place = FREE;
        self.len -= 1;
        if next != NONE {
            self.node(next).previous = previous;
        }
        if previous != NONE {
            self.node(previous).next = next;
        } else if place == REACHED {
            self.reached = next;
        } else {
            self.heads[usize::from(place)] = next;
            if next == NONE {
                let place = usize::from(place);
                self.occupied[place / SLOTS] &= !(1 << (place % SLOTS));
            }
        }
    }

    /// The tick at which the next slot is reached that holds an entry.
    pub(super) fn next(&self) -> Option<u64> {
        if self.reached != NONE {
            return Some(self.now);
        }
        let (level, slot) = self.next_slot()?;
        Some(self.tick_of(level, slot))
    }

    /// Hands out an entry whose slot has been reached at `tick`, in no order within a slot.
    pub(super) fn pop(&mut self, tick: u64) -> Option<u32> {
        while self.reached == NONE {
            let next =
                self.next_slot().map(|(level, slot)| (level, slot, self.tick_of(level, slot)));
            let Some((level, slot, at)) = next.filter(|(.., at)| *at <= tick) else {
                self.now = self.now.max(tick.min(LAST_TICK));
                return None;
            };
            self.now = at;
            self.reach(level, slot);
        }
        let entry = self.reached;
        let next = self.node(entry).next;
        *self.node(entry) = UNFILED;
        self.reached = next;
        if next != NONE {
            self.node(next).previous = NONE;
        }
        self.len -= 1;
        Some(entry)
    }

    /// Makes the entries of a slot those that were reached.
    fn reach(&mut self, level: usize, slot: usize) {
        let head = core::mem::replace(&mut self.heads[level * SLOTS + slot], NONE);
        self.occupied[level] &= !(1 << slot);
        self.reached = head;
        let mut entry = head;
        while entry != NONE {
            let node = self.node(entry);
            node.place = REACHED;
            entry = node.next;
        }
    }

    fn next_slot(&self) -> Option<(usize, usize)> {
        let level = self.occupied.iter().position(|slots| *slots != 0)?;
        Some((level, self.occupied[level].trailing_zeros() as usize))
    }

    /// The first tick of a slot ahead, or the present one's.
    fn tick_of(&self, level: usize, slot: usize) -> u64 {
        let shift = level as u32 * SLOT_BITS;
        let above = shift + SLOT_BITS;
        (self.now >> above << above) | ((slot as u64) << shift)
    }

    fn grow_to(&mut self, entry: u32) {
        while entry as usize / CHUNK >= self.nodes.len() {
            self.nodes.push(Box::new([UNFILED; CHUNK]));
        }
    }

    fn get(&self, entry: u32) -> Option<&Node> {
        Some(&self.nodes.get(entry as usize / CHUNK)?[entry as usize % CHUNK])
    }

    fn node(&mut self, entry: u32) -> &mut Node {
        &mut self.nodes[entry as usize / CHUNK][entry as usize % CHUNK]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    /// All entries handed out at `tick`, each with the tick at which it should have been.
    fn drain(slots: &mut Slots, tick: u64, wanted: &mut BTreeMap<u32, u64>) -> Vec<(u32, u64)> {
        let mut due = Vec::new();
        while let Some(entry) = slots.pop(tick) {
            let at = wanted[&entry];
            if at <= tick {
                wanted.remove(&entry);
                due.push((entry, at));
            } else {
                assert!(slots.insert(entry, at) > slots.now, "an early entry would spin");
            }
        }
        due
    }

    #[test]
    fn an_entry_far_ahead_is_handed_out_early_a_few_times_and_then_in_time() {
        let mut slots = Slots::default();
        let tick = 7_200_123;
        let mut at = slots.insert(3, tick);
        let mut early = 0;
        while at < tick {
            assert_eq!((slots.next(), slots.pop(at - 1)), (Some(at), None));
            assert_eq!(slots.pop(at), Some(3));
            at = slots.insert(3, tick);
            early += 1;
        }
        assert_eq!(early, 3);
        assert_eq!(slots.pop(tick), Some(3));
        assert_eq!((slots.next(), slots.len()), (None, 0));
    }

    #[test]
    fn what_is_past_comes_at_once_and_what_is_too_far_at_the_end() {
        let mut slots = Slots::default();
        assert_eq!(slots.pop(1000), None);
        assert_eq!(slots.insert(0, 5), 1000);
        assert_eq!(slots.pop(1000), Some(0));
        assert!(slots.insert(1, u64::MAX) <= LAST_TICK);
        slots.remove(1);
        slots.remove(1);
        slots.remove(77_777);
        assert_eq!((slots.next(), slots.len()), (None, 0));
    }

    proptest! {
        /// Against a sorted map: nothing is late or lost, and `next` never sleeps too long.
        #[test]
        fn agrees_with_a_sorted_map(
            steps in proptest::collection::vec((0u8..4, 0u32..40, 0u32..26, any::<u32>()), 1..200)
        ) {
            let mut slots = Slots::default();
            let mut wanted: BTreeMap<u32, u64> = BTreeMap::new();
            let mut now = 0;
            for (what, entry, magnitude, random) in steps {
                let ahead = u64::from(random) >> (32 - magnitude.max(1));
                match what {
                    0 | 1 => {
                        slots.remove(entry);
                        wanted.insert(entry, now + ahead);
                        prop_assert!(slots.insert(entry, now + ahead) <= now + ahead);
                    }
                    2 => {
                        slots.remove(entry);
                        wanted.remove(&entry);
                    }
                    _ => {
                        now += ahead;
                        let due: Vec<u32> =
                            drain(&mut slots, now, &mut wanted).into_iter().map(|d| d.0).collect();
                        let late: Vec<&u32> =
                            wanted.iter().filter(|(_, at)| **at <= now).map(|(e, _)| e).collect();
                        prop_assert!(late.is_empty(), "{late:?} after {due:?}");
                    }
                }
                prop_assert_eq!(slots.len(), wanted.len());
                let first = wanted.values().min().copied();
                prop_assert_eq!(slots.next().is_some(), first.is_some());
                prop_assert!(slots.next().unwrap_or(0) <= first.unwrap_or(u64::MAX).max(now));
            }
        }
    }
}
