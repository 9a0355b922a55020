//! Ephemeral ports: which one an active open takes (RFC 6056 §3.3.4, "double-hash").
//!
//! ```text
//!   port = first + (F(local, remote) + table[G(local, remote)]) mod size
//! ```
//!
//! F starts every destination at a place of its own that no stranger can guess. The counter walks
//! on from there, so that a port comes up again for the same destination only after all the others:
//! its TIME-WAIT has had the most time to end. Destinations that share a counter only make each
//! other's steps larger.

use alloc::boxed::Box;

use crate::flow::Tuple;
use crate::flow::keyed::KeyedHash;

/// Counters; a power of two.
const COUNTERS: usize = 1024;

/// Destinations whose hash is remembered; a power of two.
const RECENT: usize = 64;

/// Ports tried for one open, of all our addresses together. Beyond it the open fails, and the next
/// goes on where it stopped.
pub(crate) const MAX_ATTEMPTS: u32 = 1024;

/// The ephemeral ports of one shard.
#[derive(Clone, Debug)]
pub struct Ports {
    first: u16,
    /// How many there are: at least one.
    size: u32,
    /// Its low half is F, its high half G.
    destination: KeyedHash,
    counters: Box<[u32; COUNTERS]>,
    /// The last destination of each place: few are asked for in turn.
    recent: Box<[Recent; RECENT]>,
    /// The place of the last one asked for.
    last: u8,
    /// The last answer of [`Ports::foresee`].
    foreseen: Foreseen,
}

/// A tuple that is likely to be tried, by its destination's place and its port.
#[derive(Clone, Copy, Debug)]
struct Foreseen {
    place: u8,
    port: u16,
    hash: u64,
}

impl Foreseen {
    /// None: no destination has that place.
    const NOTHING: Foreseen = Foreseen { place: u8::MAX, port: 0, hash: 0 };
}

/// A destination that was asked for.
#[derive(Clone, Copy, Debug)]
struct Recent {
    destination: Tuple,
    /// Where the search for it begins.
    search: Search,
    /// The place of the one that was asked for after it.
    next: u8,
}

impl Recent {
    /// An entry that no search uses.
    const NOBODY: Recent = {
        let search = Search { start: 0, left: 0, counter: 0, place: 0 };
        Recent { destination: Tuple::NOBODY, search, next: 0 }
    };
}

/// A search for a port.
#[derive(Clone, Copy, Debug)]
pub struct Search {
    /// F, as a distance from the first port.
    start: u32,
    /// Ports that may still be tried.
    left: u16,
    /// G's counter.
    counter: u16,
    /// The place of its destination.
    place: u8,
}

/// A port to try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Candidate {
    /// The port.
    pub port: u16,
    /// The hash of the tuple that it makes, if [`Ports::foresee`] asked for that before.
    pub hash: Option<u64>,
}

impl Ports {
    /// The ports from `first` to `last`, inclusive. Port 0 is no port, and at least one is left
    /// even if `last` is before `first`.
    pub fn new(first: u16, last: u16, secret: &[u8; 32]) -> Self {
        let first = first.max(1);
        Ports {
            first,
            size: u32::from(last.saturating_sub(first)) + 1,
            destination: KeyedHash::new(secret, "ports"),
            counters: Box::new([0; COUNTERS]),
            recent: Box::new([Recent::NOBODY; RECENT]),
            last: 0,
            foreseen: Foreseen::NOTHING,
        }
    }

    /// Begins to look for a port of ours for `tuple`, whose own does not count.
    pub fn search(&mut self, tuple: &Tuple) -> Search {
        // Mostly it is the destination that came after the last one before.
        let place = self.recent[self.last as usize % RECENT].next;
        let Recent { destination, search, .. } = &self.recent[place as usize % RECENT];
        if *destination == tuple.with_local_port(0) {
            self.last = place;
            return *search;
        }
        self.search_anew(tuple)
    }

    /// Begins a search for any destination, remembered or not.
    fn search_anew(&mut self, tuple: &Tuple) -> Search {
        let destination = tuple.with_local_port(0);
        let ends = destination.addresses_folded() ^ u64::from(destination.ports());
        let place = (ends ^ ends >> 32) as u8 % RECENT as u8;
        self.recent[self.last as usize % RECENT].next = place;
        self.last = place;
        let recent = &mut self.recent[place as usize % RECENT];
        if recent.destination == destination {
            return recent.search;
        }
        self.foreseen = Foreseen::NOTHING;
        let search = search_for(&self.destination, &destination, self.size, place);
        *recent = Recent { destination, search, next: place };
        search
    }

    /// The tuple that is likely to be tried next, and its hash by `hash_of`, which the search will
    /// need. An application that opens connections to some destinations in turn goes on so, and one
    /// that has opened a connection mostly opens another.
    #[inline(always)]
    pub(crate) fn foresee(&mut self, hash_of: impl FnOnce(&Tuple) -> u64) -> (Tuple, u64) {
        let place = self.recent[self.last as usize % RECENT].next;
        let Recent { destination, search, .. } = &self.recent[place as usize % RECENT];
        let port = self.peek(search);
        let tuple = destination.with_local_port(port);
        let hash = hash_of(&tuple);
        self.foreseen = Foreseen { place, port, hash };
        (tuple, hash)
    }

    /// The next port to try; `None` after [`MAX_ATTEMPTS`], or when all have been tried.
    pub(crate) fn next(&mut self, search: &mut Search) -> Option<Candidate> {
        search.left = search.left.checked_sub(1)?;
        let port = self.peek(search);
        let step = &mut self.counters[usize::from(search.counter) % COUNTERS];
        *step = if *step + 1 < self.size { *step + 1 } else { 0 };
        let Foreseen { place, port: foreseen, hash } = self.foreseen;
        let hash = ((place, foreseen) == (search.place, port)).then_some(hash);
        Some(Candidate { port, hash })
    }

    /// The next search goes on behind `port`, which this one has tried.
    pub(crate) fn go_on_behind(&mut self, search: &Search, port: u16) {
        let offset = u32::from(port - self.first);
        let ahead = offset + self.size - search.start;
        self.counters[usize::from(search.counter) % COUNTERS] = (ahead + 1) % self.size;
    }

    /// The port that is tried next for the destination of `search`, by this search or another.
    fn peek(&self, search: &Search) -> u16 {
        let offset = search.start + self.counters[usize::from(search.counter) % COUNTERS];
        let offset = if offset < self.size { offset } else { offset - self.size };
        // Below 2^16, as is their sum.
        self.first + offset as u16
    }
}

/// Where the search among `size` ports for `destination` begins.
fn search_for(hash: &KeyedHash, destination: &Tuple, size: u32, place: u8) -> Search {
    let hash = hash.of_tuple(destination);
    let (start, counter) = (hash as u32 % size, (hash >> 32) as u16 % COUNTERS as u16);
    Search { start, left: size.min(MAX_ATTEMPTS) as u16, counter, place }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    /// The first port tried for `tuple` that is not in use.
    fn pick(ports: &mut Ports, tuple: &Tuple, mut in_use: impl FnMut(u16) -> bool) -> Option<u16> {
        let mut search = ports.search(tuple);
        loop {
            let port = ports.next(&mut search)?.port;
            if !in_use(port) {
                return Some(port);
            }
        }
    }

    fn has(ports: &Ports, port: u16) -> bool {
        port.checked_sub(ports.first).is_some_and(|offset| u32::from(offset) < ports.size)
    }

    fn to(port: u16) -> Tuple {
        Tuple::new(([10, 0, 0, 1].into(), 0), ([10, 0, 0, 2].into(), port))
    }

    #[test]
    fn every_port_comes_up_once_before_any_comes_again() {
        let mut ports = Ports::new(50_000, 50_099, &[1; 32]);
        let picked: BTreeSet<u16> =
            (0..100).map(|_| pick(&mut ports, &to(80), |_| false).unwrap()).collect();
        assert_eq!(picked.len(), 100);
        assert!(picked.iter().all(|port| has(&ports, *port)));
        assert_eq!((picked.first(), picked.last()), (Some(&50_000), Some(&50_099)));
        assert!(!has(&ports, 49_999) && !has(&ports, 50_100));
    }

    #[test]
    fn the_only_free_port_is_found_and_none_is_not() {
        let mut ports = Ports::new(1024, 1024 + MAX_ATTEMPTS as u16 - 1, &[1; 32]);
        assert_eq!(pick(&mut ports, &to(80), |port| port != 1500), Some(1500));
        assert_eq!(pick(&mut ports, &to(80), |_| true), None);
    }

    #[test]
    fn attempts_are_bounded_and_the_next_open_goes_on() {
        let mut ports = Ports::new(1024, 65_535, &[1; 32]);
        let mut tried = BTreeSet::new();
        for round in 1..=2 {
            let refuse = |port| {
                tried.insert(port);
                true
            };
            assert_eq!(pick(&mut ports, &to(80), refuse), None);
            assert_eq!(tried.len(), round * MAX_ATTEMPTS as usize);
        }
    }

    #[test]
    fn the_port_that_comes_next_is_known_before() {
        let mut ports = Ports::new(50_000, 50_002, &[1; 32]);
        for _ in 0..7 {
            let mut search = ports.search(&to(80));
            let expected = ports.peek(&search);
            let Candidate { port, hash } = ports.next(&mut search).unwrap();
            assert_eq!((port, hash), (expected, None));
        }
    }

    #[test]
    fn the_order_of_destinations_is_expected_to_come_again() {
        let mut ports = Ports::new(1024, 65_535, &[1; 32]);
        let (mut asked, mut likely) = (0, None);
        let orders: [&[u16]; 4] = [&[80], &[80, 81], &[80, 443, 8081], &[7, 9, 13, 17, 19]];
        for order in orders {
            for (turn, port) in (0..3).flat_map(|turn| order.iter().map(move |port| (turn, *port)))
            {
                let mut search = ports.search(&to(port));
                let Candidate { port: ours, hash } = ports.next(&mut search).unwrap();
                let tuple = to(port).with_local_port(ours);
                assert!(turn < 2 || likely == Some(tuple), "{order:?}: {likely:?}, not {tuple:?}");
                assert_eq!(hash, likely.filter(|it| *it == tuple).map(|_| asked));
                asked += 1;
                likely = Some(ports.foresee(|_| asked).0);
            }
        }
    }

    #[test]
    fn a_hash_is_not_taken_for_that_of_another_tuple() {
        let mut ports = Ports::new(50_000, 50_000, &[1; 32]);
        let mut next = |port| {
            let mut search = ports.search(&to(port));
            let before = ports.next(&mut search).unwrap().hash;
            (before, ports.foresee(|tuple| tuple.ports().into()).1)
        };
        // All have the same port of ours, and many the same place.
        let mut foreseen = None;
        for port in (1..=2 * RECENT as u16).flat_map(|port| [port, port + 7, port]) {
            let (before, after) = next(port);
            let ports = u64::from(to(port).with_local_port(50_000).ports());
            assert!(before.is_none_or(|hash| hash == ports && foreseen == Some(hash)));
            foreseen = Some(after);
        }
    }

    #[test]
    fn destinations_and_secrets_start_elsewhere() {
        let first = |secret: u8, port| {
            let mut ports = Ports::new(1024, 65_535, &[secret; 32]);
            pick(&mut ports, &to(port), |_| false).unwrap()
        };
        let starts: BTreeSet<u16> =
            (1..=50).flat_map(|port| [first(1, port), first(2, port)]).collect();
        assert!(starts.len() > 95, "{}", starts.len());
        assert_eq!(first(1, 80), first(1, 80));
    }

    #[test]
    fn a_range_of_one_port_and_a_reversed_one_work() {
        for (first, last) in [(5000, 5000), (5000, 4000)] {
            let mut ports = Ports::new(first, last, &[1; 32]);
            for _ in 0..3 {
                assert_eq!(pick(&mut ports, &to(80), |_| false), Some(5000));
            }
        }
        let mut all = Ports::new(0, 65_535, &[1; 32]);
        assert!(!has(&all, 0) && has(&all, 1) && has(&all, 65_535));
        assert!((0..1000).all(|_| pick(&mut all, &to(80), |_| false) != Some(0)));
    }

    proptest! {
        #[test]
        fn what_is_picked_is_free_and_in_range(
            range: (u16, u16), port: u16, secret: u8, busy_below: u16,
        ) {
            let mut ports = Ports::new(range.0, range.1, &[secret; 32]);
            for _ in 0..20 {
                if let Some(picked) = pick(&mut ports, &to(port), |port| port < busy_below) {
                    prop_assert!(has(&ports, picked) && picked >= busy_below);
                }
            }
        }
    }
}
