//! Which slots of a ring hold an entry: a bit for each, and a bit for each word of them, so that
//! the next one is found by counting zeros three times, whatever is filed.

use super::SLOTS;

const WORD: usize = u64::BITS as usize;
const WORDS: usize = SLOTS / WORD;

/// A set of the slots of one level.
#[derive(Clone, Debug)]
pub(super) struct Occupancy {
    /// A bit for each word that is not zero.
    words: u64,
    slots: [u64; WORDS],
}

// One word says which words are not zero.
const _: () = assert!(WORDS == WORD);

impl Default for Occupancy {
    fn default() -> Self {
        Occupancy { words: 0, slots: [0; WORDS] }
    }
}

impl Occupancy {
    /// `slot` holds an entry.
    pub(super) fn insert(&mut self, slot: usize) {
        self.slots[slot / WORD] |= 1 << (slot % WORD);
        self.words |= 1 << (slot / WORD);
    }

    /// `slot` holds none any more.
    pub(super) fn remove(&mut self, slot: usize) {
        let word = &mut self.slots[slot / WORD];
        *word &= !(1 << (slot % WORD));
        if *word == 0 {
            self.words &= !(1 << (slot / WORD));
        }
    }

    /// The first slot that holds an entry, from `slot` on and round the ring.
    pub(super) fn first_from(&self, slot: usize) -> Option<usize> {
        if self.words == 0 {
            return None;
        }
        let (word, bit) = (slot / WORD, slot % WORD);
        let here = self.slots[word] & (u64::MAX << bit);
        if here != 0 {
            return Some(word * WORD + here.trailing_zeros() as usize);
        }
        // The word of `slot` itself comes last: what it holds lies before `slot`.
        let after = self.words.rotate_right(word as u32 + 1).trailing_zeros() as usize;
        let word = (word + 1 + after) % WORDS;
        Some(word * WORD + self.slots[word].trailing_zeros() as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        /// Against a sorted set.
        #[test]
        fn the_first_from_anywhere_is_the_one_of_a_sorted_set(
            steps in proptest::collection::vec((any::<bool>(), 0..SLOTS, 0..SLOTS), 1..100)
        ) {
            let (mut occupancy, mut set) = (Occupancy::default(), BTreeSet::new());
            for (occupied, slot, from) in steps {
                if occupied {
                    occupancy.insert(slot);
                    set.insert(slot);
                } else {
                    occupancy.remove(slot);
                    set.remove(&slot);
                }
                for from in [from, slot, (slot + 1) % SLOTS, 0, SLOTS - 1] {
                    let first = set.range(from..).next().or_else(|| set.first()).copied();
                    prop_assert_eq!(occupancy.first_from(from), first);
                }
            }
        }
    }
}
