//! The bounds of the cache, and the order in which its entries are due.

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
        names: None,
    }
}

const LISTENER: ListenerId = ListenerId { index: 0, generation: 0 };

const fn limits(unproven: usize, proven: usize) -> SynLimits {
    SynLimits { unproven, proven }
}

fn insert_of(cache: &mut SynCache, number: u16, standing: Standing, now: Instant) -> u32 {
    assert!(cache.has_room(standing));
    cache.insert(1, &tuple(number), syn(), LISTENER, standing, now)
}

fn insert(cache: &mut SynCache, number: u16, now: Instant) -> u32 {
    insert_of(cache, number, Standing::Unknown, now)
}

#[test]
fn the_bound_is_reached_with_its_last_entry() {
    let mut cache = SynCache::new(limits(2, 0), RTO, ticks());
    insert(&mut cache, 1, Instant::ZERO);
    assert!(!cache.is_full());
    let entry = insert(&mut cache, 2, Instant::ZERO);
    assert!(cache.is_full() && is_entry(entry));
    assert_eq!(cache.get(entry).map(|entry| entry.tuple), Some(tuple(2)));
    assert!(cache.waiting_for(LISTENER).contains(&entry));
    assert!(cache.remove(entry));
    assert!(cache.get(entry).is_none() && !cache.remove(entry));
    assert!(!cache.is_full());
}

#[test]
fn what_is_due_first_comes_first_whichever_were_removed() {
    let mut cache = SynCache::new(limits(9, 0), RTO, ticks());
    let at = |ms| Instant::from_millis(ms);
    let slots: std::vec::Vec<u32> =
        (0..6u16).map(|i| insert(&mut cache, i, at(u64::from(i) * 600))).collect();
    // The first has its second answer out, which waits for longer.
    assert!(matches!(cache.due(at(1000)), Some(Due::Answer(slot)) if slot == slots[0]));
    assert!(cache.due(at(1000)).is_none());
    for gone in [1, 3, 5] {
        assert!(cache.remove(slots[gone]));
    }
    let mut order = std::vec::Vec::new();
    while let Some(due) = cache.due(at(3600)) {
        let Due::Answer(slot) = due else { panic!("none has been answered so often") };
        order.push(slot);
    }
    assert_eq!(order, [slots[2], slots[0], slots[4]]);
}

#[test]
fn answers_back_off_and_the_entry_goes_after_the_last() {
    let mut cache = SynCache::new(limits(2, 0), RTO, ticks());
    insert(&mut cache, 1, Instant::ZERO);
    let (mut times, mut expired) = (std::vec::Vec::new(), None);
    while let Some(at) = cache.deadline() {
        match cache.due(at) {
            Some(Due::Answer(_)) => times.push(at.as_millis() / 1000),
            Some(Due::Expired(entry)) => {
                expired = Some(at.as_millis() / 1000);
                cache.remove(entry);
            }
            Some(Due::ExpiredEarly(_)) | None => {}
        }
    }
    assert_eq!(times, [1, 3, 7, 15, 31]);
    assert_eq!(expired, Some(63));
    assert!(cache.is_empty());
}

#[test]
fn a_proven_sender_has_a_bound_of_its_own() {
    let mut cache = SynCache::new(limits(1, 2), RTO, ticks());
    let first = insert_of(&mut cache, 1, Standing::Proven, Instant::ZERO);
    assert!(!cache.is_full(), "it takes no other's place");
    insert(&mut cache, 2, Instant::ZERO);
    assert!(!cache.has_room(Standing::Unknown) && !cache.has_room(Standing::Remembered));
    insert_of(&mut cache, 3, Standing::Proven, Instant::ZERO);
    assert!(!cache.has_room(Standing::Proven), "one beyond");
    cache.remove(first);
    assert!(cache.has_room(Standing::Proven) && !cache.has_room(Standing::Unknown));
}

/// When the entries are given up, in seconds, and if that is early.
fn ends(cache: &mut SynCache) -> std::vec::Vec<(u64, u32, bool)> {
    let mut ends = std::vec::Vec::new();
    while let Some(at) = cache.deadline() {
        let (entry, is_early) = match cache.due(at) {
            Some(Due::Expired(entry)) => (entry, false),
            Some(Due::ExpiredEarly(entry)) => (entry, true),
            _ => continue,
        };
        ends.push((at.as_millis() / 1000, entry, is_early));
        cache.remove(entry);
    }
    ends
}

#[test]
fn only_unproven_entries_of_a_full_cache_go_early() {
    let mut cache = SynCache::new(limits(2, 9), RTO, ticks());
    let unproven = [1, 2].map(|number| insert(&mut cache, number, Instant::ZERO));
    let proven = insert_of(&mut cache, 3, Standing::Proven, Instant::ZERO);
    // The first that goes makes room, and the other one waits on.
    let expected = [(7, unproven[0], true), (63, unproven[1], false), (63, proven, false)];
    let mut found = ends(&mut cache);
    found.sort_unstable_by_key(|&(at, entry, _)| (at, entry != unproven[1]));
    assert_eq!(found, expected);
}
