use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

/// What is filed, and under which tick.
#[derive(Debug, Default)]
struct Filing {
    slots: Slots,
    wanted: BTreeMap<u32, (Position, u64)>,
}

impl Filing {
    fn insert(&mut self, entry: u32, tick: u64) -> u64 {
        self.remove(entry);
        let (place, at) = self.slots.insert(entry, tick);
        self.wanted.insert(entry, (place, tick));
        at
    }

    fn remove(&mut self, entry: u32) {
        if let Some((place, _)) = self.wanted.remove(&entry) {
            self.slots.remove(entry, place);
        }
    }

    /// All entries due at `tick`; those that come up early are filed again.
    fn drain(&mut self, tick: u64) -> Vec<u32> {
        let mut due = Vec::new();
        while self.slots.next().is_some_and(|next| next <= tick) {
            let entry = self.slots.pop().unwrap();
            let (_, at) = self.wanted.remove(&entry).unwrap();
            if at <= tick {
                due.push(entry);
            } else {
                assert!(self.insert(entry, at) > self.slots.now, "an early entry would spin");
            }
        }
        self.slots.advance(tick);
        due
    }

    /// Blocks that are not free.
    fn blocks(&self) -> usize {
        let mut free = 0;
        let mut number = self.slots.free;
        while number != NONE {
            free += 1;
            number = self.slots.blocks[number as usize / CHUNK][number as usize % CHUNK].next;
        }
        self.slots.blocks.len() * CHUNK - free
    }
}

#[test]
fn four_thousand_ticks_are_filed_exactly_and_one_more_early() {
    for now in [0, 1, 511, 512, 4_095, 1_000_003] {
        let mut slots = Slots::default();
        slots.advance(now);
        assert_eq!(slots.insert(1, now + 4_095).1, now + 4_095);
        let early = slots.insert(2, now + 4_096).1;
        assert_eq!(early, (now + 4_096) / 512 * 512);
    }
}

#[test]
fn an_entry_two_hours_ahead_comes_early_twice_and_then_in_time() {
    let mut filing = Filing::default();
    let tick = 7_200_123;
    let mut at = filing.insert(3, tick);
    let mut early = 0;
    while at < tick {
        assert_eq!(filing.slots.next(), Some(at));
        assert_eq!(filing.drain(at), []);
        at = filing.slots.next().unwrap();
        early += 1;
    }
    assert_eq!(early, 2);
    assert_eq!(filing.drain(tick), [3]);
    assert_eq!((filing.slots.next(), filing.slots.len()), (None, 0));
}

#[test]
fn the_past_comes_at_once_and_the_too_distant_at_the_horizon() {
    let mut slots = Slots::default();
    slots.advance(1000);
    assert_eq!(slots.insert(0, 5).1, 1000);
    assert_eq!(slots.pop(), Some(0));
    for now in [1000, u64::MAX - 1] {
        slots.advance(now);
        let (place, at) = slots.insert(1, u64::MAX);
        assert!(now.saturating_sub(1 << 18) <= at && at <= now.saturating_add(HORIZON), "{at}");
        slots.remove(1, place);
        assert_eq!((slots.next(), slots.len()), (None, 0));
    }
}

#[test]
#[should_panic(expected = "is not filed")]
fn an_entry_cannot_be_taken_out_twice() {
    let mut slots = Slots::default();
    for entry in 1..4 {
        slots.insert(entry, 10);
    }
    let (place, _) = slots.insert(4, 10);
    slots.remove(4, place);
    slots.remove(4, place);
}

#[test]
#[should_panic(expected = "is not filed")]
fn nor_one_that_was_alone() {
    let mut slots = Slots::default();
    slots.insert(2, 20);
    let (place, _) = slots.insert(1, 10);
    slots.remove(1, place);
    slots.remove(1, place);
}

#[test]
fn an_entry_alone_in_its_slot_costs_no_block() {
    let mut filing = Filing::default();
    for entry in 0..1000 {
        filing.insert(entry, u64::from(entry));
    }
    assert_eq!((filing.slots.blocks.len(), filing.slots.len()), (0, 1000));
    assert_eq!(filing.drain(998).len(), 999);
    filing.remove(999);
    assert_eq!((filing.slots.len(), filing.slots.next()), (0, None));
}

#[test]
fn a_full_slot_hands_out_each_once_and_leaves_no_block() {
    let mut filing = Filing::default();
    for entry in 0..10_000 {
        filing.insert(entry, 77);
    }
    assert_eq!(filing.blocks(), 9_999_usize.div_ceil(ENTRIES), "and one in the head");
    for entry in (0..10_000).step_by(3) {
        filing.remove(entry);
    }
    let mut due = filing.drain(77);
    due.sort_unstable();
    assert!(due.into_iter().eq((0..10_000).filter(|entry| entry % 3 != 0)));
    assert_eq!((filing.blocks(), filing.slots.len(), filing.slots.next()), (0, 0, None));
}

#[test]
fn blocks_are_used_again_however_long_entries_come_and_go() {
    let mut filing = Filing::default();
    for round in 0..2_000 {
        for entry in 0..100 {
            filing.insert(entry, filing.slots.now + 50 + u64::from(entry * 31 % 9));
        }
        filing.drain(round);
    }
    assert_eq!(filing.slots.blocks.len(), 1, "a hundred entries never need more");
}

proptest! {
    /// Against a sorted map: nothing is late or lost, `next` never sleeps too long, and there are
    /// never more blocks than entries.
    #[test]
    fn agrees_with_a_sorted_map(
        steps in proptest::collection::vec((0u8..4, 0u32..40, 0u32..33, any::<u32>()), 1..200)
    ) {
        let mut filing = Filing::default();
        let mut now = 0;
        for (what, entry, magnitude, random) in steps {
            let ahead = u64::from(random) >> (32 - magnitude.max(1));
            match what {
                0 | 1 => prop_assert!(filing.insert(entry, now + ahead) <= now + ahead),
                2 => filing.remove(entry),
                _ => {
                    now += ahead;
                    let due = filing.drain(now);
                    let late = filing.wanted.values().filter(|(_, at)| *at <= now).count();
                    prop_assert_eq!(late, 0, "after {:?}", due);
                }
            }
            prop_assert_eq!(filing.slots.len(), filing.wanted.len());
            prop_assert!(filing.blocks() <= filing.wanted.len());
            let first = filing.wanted.values().map(|(_, at)| *at).min();
            let next = filing.slots.next();
            prop_assert_eq!(next.is_some(), first.is_some());
            prop_assert!(next.unwrap_or(0) <= first.unwrap_or(u64::MAX).max(now));
        }
    }
}
