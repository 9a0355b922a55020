use crate::flow::{Tuple, TupleHasher};
use crate::tcp::demux::*;
use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::BTreeSet;

fn tuple(local: &str, remote: &str, ports: (u16, u16)) -> Tuple {
    Tuple::new((local.parse().unwrap(), ports.0), (remote.parse().unwrap(), ports.1))
}

#[test]
fn every_part_of_the_tuple_and_the_key_count() {
    let hasher = TupleHasher::new(&[1; 32]);
    let base = tuple("10.0.0.1", "10.0.0.2", (80, 1000));
    let others = [
        tuple("10.0.0.3", "10.0.0.2", (80, 1000)),
        tuple("10.0.0.1", "10.0.0.3", (80, 1000)),
        tuple("10.0.0.2", "10.0.0.1", (80, 1000)),
        tuple("10.0.0.1", "10.0.0.2", (81, 1000)),
        tuple("10.0.0.1", "10.0.0.2", (1000, 80)),
        tuple("fd00::1", "fd00::2", (80, 1000)),
    ];
    assert!(others.iter().all(|other| hasher.hash(other) != hasher.hash(&base)));
    assert_ne!(TupleHasher::new(&[2; 32]).hash(&base), hasher.hash(&base));
}

#[test]
fn slots_are_found_until_they_are_removed() {
    let mut demux = Demux::default();
    demux.insert(7, 1, |_| 7);
    demux.insert(7, 2, |_| 7);
    assert_eq!(demux.find(7, |slot| slot == 2), Some(2));
    assert!(demux.remove(7, 2));
    assert!(!demux.remove(7, 2));
    assert_eq!(demux.find(7, |slot| slot == 2), None);
    assert_eq!(demux.len(), 1);
}

#[test]
fn only_slots_with_all_bits_of_the_tag_are_looked_at() {
    let mut demux = Demux::default();
    // Alike in their lines and in the first eight bits, and in the others not.
    let hash = |slot: u32| 7 << 56 | u64::from(slot) << 51;
    for slot in 0..32 {
        demux.insert(hash(slot), slot | 1 << 31, |_| 0);
    }
    for slot in 0..32 {
        let mut seen = Vec::new();
        demux.find(hash(slot), |it| {
            seen.push(it);
            false
        });
        seen.dedup();
        assert_eq!(seen, [slot | 1 << 31]);
    }
    // At a glance only the last one in the line is seen, and no wrong one.
    let seen = |slot: &u32| demux.first_guess(hash(*slot)) == *slot | 1 << 31;
    assert_eq!((0..32).filter(seen).count(), 1);
    assert!((0..32).all(|slot| seen(&slot) || demux.first_guess(hash(slot)) & MORE != 0));
    assert!(demux.remove(hash(9), 9 | 1 << 31) && demux.find(hash(9), |_| true).is_none());
}

/// A hash of few or many different values for a slot.
fn hash_of(slot: u32, spread: u64) -> u64 {
    let mixed = u64::from(slot).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 8;
    (mixed % spread).wrapping_mul(0x0101_0001_0000_0001)
}

proptest! {
    /// However hashes collide, and whether the table grows or shrinks.
    #[test]
    fn it_holds_what_a_set_would(
        steps in vec((0u32..600, 0u8..4), 0..2000), spread in 1u64..2000,
    ) {
        let (mut demux, mut model) = (Demux::default(), BTreeSet::new());
        for (slot, what) in steps {
            let hash = hash_of(slot, spread);
            if what > 0 && model.insert(slot) {
                demux.insert(hash, slot, |slot| hash_of(slot, spread));
            } else if what == 0 {
                prop_assert_eq!(demux.remove(hash, slot), model.remove(&slot));
            } else if what == 3 {
                // By one that was not in, of the same tuple, and back.
                demux.replace(hash, slot, slot + 600);
                prop_assert!(demux.find(hash, |it| it == slot).is_none());
                prop_assert!(demux.find(hash, |it| it == slot + 600).is_some());
                demux.replace(hash, slot + 600, slot);
            }
            prop_assert_eq!(demux.len(), model.len());
            prop_assert_eq!(demux.find(hash, |it| it == slot).is_some(), model.contains(&slot));
        }
        for slot in 0..600 {
            let hash = hash_of(slot, spread);
            prop_assert_eq!(demux.find(hash, |it| it == slot).is_some(), model.contains(&slot));
        }
    }
}

#[test]
fn it_grows_and_shrinks_by_lines_and_gives_its_memory_back() {
    let hash = |slot| hash_of(slot, u64::MAX);
    let mut demux = Demux::default();
    for slot in 0..100_000 {
        demux.insert(hash(slot), slot, hash);
    }
    let bytes = |lines: &Lines| lines.segments.len() * size_of::<[Bucket; SEGMENT]>();
    let all = bytes(&demux.lines) + bytes(&demux.spare);
    assert!(all <= 100_000 * 17, "{all} bytes");
    let long = (0..demux.lines.len).filter(|line| demux.lines.get(*line).unwrap().link() != NONE);
    assert!(long.count() < demux.lines.len as usize / 16, "few lines overflow");
    for slot in 0..99_990 {
        assert!(demux.remove(hash(slot), slot));
    }
    assert_eq!((demux.len(), demux.lines.segments.len()), (10, 1));
    assert!((99_990..100_000).all(|slot| demux.find(hash(slot), |it| it == slot).is_some()));
}

#[test]
fn tags_are_found_wherever_they_are_and_no_others() {
    for tag in [0, 1, 0x7f, 0x80, 0x81, 0xff] {
        for other in [0, 1, 2, 0x7f, 0x80, 0x81, 0xfe, 0xff] {
            for place in 0..ENTRIES {
                let mut line = FREE;
                line.head[LINK..].fill(other);
                *line.tag_mut(place) = tag;
                line.entries = core::array::from_fn(|place| place as u32);
                // A link that looks like tags.
                line.set_link(u32::from_ne_bytes([tag; 4]));
                let mut found = Vec::new();
                line.find(tag, |place| {
                    found.push(place);
                    false
                });
                let all: Vec<usize> = (0..ENTRIES).collect();
                assert_eq!(found, if other == tag { all } else { std::vec![place] });
                assert_eq!(line.first_guess(u64::from(tag) << 56), *found.last().unwrap() as u32);
            }
        }
    }
}
