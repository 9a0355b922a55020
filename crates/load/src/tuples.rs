//! Chooses the 4-tuple of the next connection: never one that may still be in TIME-WAIT.
//!
//! The server's address and port are fixed, so a tuple is a source address and a port.
//!
//! ```text
//!   fresh: address 0 port 0, address 1 port 0, … address 0 port 1, …   never used yet
//!     │ take                                        ▲
//!     ▼                                             │ only where nothing has rested
//!   in use ── release ──▶ resting: in order of release, each until its time is over
//! ```
//!
//! A rested tuple is preferred to a fresh one. The queue therefore remembers only as many tuples as
//! the connections of one TIME-WAIT period use, however many tuples exist. With a rest of zero the
//! tuples are taken in turn, like the ports of a kernel that chooses them so: then a client's new
//! SYN ends its old TIME-WAIT at the server.

use std::collections::VecDeque;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::rc::Rc;
use std::time::Duration;

use crate::sources::Sources;

/// A source address and a port, as [`Tuples`] hands them out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tuple {
    /// The number of the address.
    address: u32,
    port: u16,
}

/// No tuple is free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exhausted {
    /// The time at which the next tuple has rested; `None` if all are in use.
    pub until: Option<Duration>,
}

/// The tuples of one load. Each is handed out again only after it has rested for a given time.
/// Times count from a moment of the caller's choice, and never go back.
#[derive(Clone, Debug)]
pub struct Tuples {
    sources: Sources,
    ports: RangeInclusive<u16>,
    rest: Duration,
    /// Tuples that were handed out at least once.
    used: u64,
    total: u64,
    /// The place of the first fresh tuple in the round.
    start: u64,
    /// Released tuples in order of release, with the time at which each has rested.
    resting: VecDeque<(Duration, Tuple)>,
    /// The number of those, from the front, that have rested.
    rested: usize,
    /// Which of them are this load's; all, without it.
    owned: Owned,
}

/// A choice among tuples.
#[derive(Clone, Default)]
struct Owned(Option<Rc<dyn Fn(SocketAddr) -> bool>>);

impl fmt::Debug for Owned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Owned(some)" } else { "Owned(all)" })
    }
}

impl Tuples {
    /// All tuples of these addresses and ports, none used yet. Each rests for `rest` after its
    /// release. The round starts at place `start`, modulo the number of tuples. A process with a
    /// random start seldom meets TIME-WAITs of the process before it.
    ///
    /// # Panics
    /// If there is no port.
    pub fn new(sources: Sources, ports: RangeInclusive<u16>, rest: Duration, start: u64) -> Tuples {
        assert!(!ports.is_empty(), "a load needs a port");
        let total = sources.len() * ports.len() as u64;
        let (resting, rested, used, owned) = Default::default();
        let start = start % total;
        Tuples { sources, ports, rest, used, total, start, resting, rested, owned }
    }

    /// Those of them alone for which `is_owned` is true: the others are another thread's, which has
    /// the same addresses and ports.
    #[must_use]
    pub fn owned(self, is_owned: impl Fn(SocketAddr) -> bool + 'static) -> Tuples {
        Tuples { owned: Owned(Some(Rc::new(is_owned))), ..self }
    }

    /// A tuple that is not in use and was not released within the time of rest before `now`.
    ///
    /// # Errors
    /// If there is no such tuple.
    pub fn take(&mut self, now: Duration) -> Result<Tuple, Exhausted> {
        self.pass_time(now);
        // Without rest all tuples are taken in turn: the tuple just used comes again last.
        self.pass_over();
        let prefers_fresh = self.rest.is_zero() && self.used < self.total;
        if self.rested > 0 && !prefers_fresh {
            self.rested -= 1;
            let (_, tuple) = self.resting.pop_front().expect("those that have rested are in it");
            return Ok(tuple);
        }
        if self.is_exhausted(now) {
            return Err(Exhausted { until: self.resting.front().map(|(until, _)| *until) });
        }
        let tuple = self.fresh();
        self.used += 1;
        Ok(tuple)
    }

    /// The next tuple of the round.
    fn fresh(&self) -> Tuple {
        let place = (self.start + self.used) % self.total;
        let port = place / self.sources.len();
        Tuple {
            address: (place % self.sources.len()) as u32,
            port: self.ports.start() + port as u16,
        }
    }

    /// Passes over fresh tuples that are another thread's.
    fn pass_over(&mut self) {
        let Some(is_owned) = self.owned.0.clone() else { return };
        while self.used < self.total && !is_owned(self.address(self.fresh())) {
            self.used += 1;
        }
    }

    /// True if [`Tuples::take`] fails.
    pub fn is_exhausted(&mut self, now: Duration) -> bool {
        self.pass_time(now);
        self.pass_over();
        self.rested == 0 && self.used == self.total
    }

    /// Releases the tuple of a connection that ended at `now`.
    pub fn release(&mut self, tuple: Tuple, now: Duration) {
        let until = now + self.rest;
        debug_assert!(self.resting.back().is_none_or(|(last, _)| *last <= until));
        self.resting.push_back((until, tuple));
    }

    /// The number of tuples released less than the time of rest before `now`. That many connections
    /// are in TIME-WAIT, at either end.
    pub fn resting(&mut self, now: Duration) -> usize {
        self.pass_time(now);
        self.resting.len() - self.rested
    }

    /// The address and port to connect from.
    pub fn address(&self, tuple: Tuple) -> SocketAddr {
        let address: IpAddr = self.sources.nth(tuple.address.into());
        SocketAddr::new(address, tuple.port)
    }

    /// The source addresses of the tuples.
    pub fn sources(&self) -> &Sources {
        &self.sources
    }

    fn pass_time(&mut self, now: Duration) {
        while self.resting.get(self.rested).is_some_and(|(until, _)| *until <= now) {
            self.rested += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    const REST: Duration = Duration::from_secs(60);
    const S: Duration = Duration::from_secs(1);

    fn tuples(prefix: &str, ports: RangeInclusive<u16>, start: u64) -> Tuples {
        let sources = Sources::new(&[prefix.parse().unwrap()]).unwrap();
        Tuples::new(sources, ports, REST, start)
    }

    #[test]
    fn addresses_are_taken_in_round_robin_and_then_the_next_port() {
        let mut tuples = tuples("10.1.0.0/30", 5000..=5001, 1);
        let all = [(); 4].map(|()| tuples.take(Duration::ZERO).unwrap());
        let all = all.map(|tuple| tuples.address(tuple).to_string());
        assert_eq!(all, ["10.1.0.2:5000", "10.1.0.1:5001", "10.1.0.2:5001", "10.1.0.1:5000"]);
        assert_eq!(tuples.take(S), Err(Exhausted { until: None }));
    }

    #[test]
    fn a_tuple_comes_again_exactly_when_it_has_rested() {
        let mut tuples = tuples("10.1.0.1/32", 5000..=5000, 0);
        let tuple = tuples.take(Duration::ZERO).unwrap();
        tuples.release(tuple, S);
        let over = S + REST;
        let just_before = over - Duration::from_nanos(1);
        assert_eq!(tuples.resting(just_before), 1);
        assert_eq!(tuples.take(just_before), Err(Exhausted { until: Some(over) }));
        assert_eq!(tuples.resting(over), 0);
        assert_eq!(tuples.take(over), Ok(tuple));
    }

    #[test]
    fn without_a_rest_all_tuples_come_in_turn() {
        let sources = Sources::new(&["10.1.0.0/30".parse().unwrap()]).unwrap();
        let mut tuples = Tuples::new(sources, 5000..=5002, Duration::ZERO, 0);
        let round = |tuples: &mut Tuples| {
            [(); 6].map(|()| {
                let tuple = tuples.take(S).unwrap();
                tuples.release(tuple, S);
                assert_eq!(tuples.resting(S), 0);
                tuples.address(tuple)
            })
        };
        let first = round(&mut tuples);
        assert_eq!(std::collections::HashSet::from(first).len(), 6);
        assert_eq!(round(&mut tuples), first);
    }

    #[test]
    fn what_is_remembered_is_bounded_by_what_one_time_of_rest_uses() {
        let mut tuples = tuples("10.0.0.0/8", 1024..=65_535, 7);
        for second in 0..1000 {
            for _ in 0..10 {
                let tuple = tuples.take(S * second).unwrap();
                tuples.release(tuple, S * second);
            }
            assert!(tuples.resting.len() <= 600, "{}", tuples.resting.len());
        }
        assert_eq!(tuples.used, 600);
    }

    proptest! {
        /// Compares the tuples with a model that remembers every tuple's last release.
        #[test]
        fn no_tuple_is_had_twice_or_comes_again_within_its_time_of_rest(
            start: u64,
            ports in 1u16..5,
            steps in prop::collection::vec(
                (0u64..20_000, any::<bool>(), any::<prop::sample::Index>()),
                0..400,
            ),
        ) {
            let mut tuples = tuples("10.1.0.0/29", 5000..=4999 + ports, start);
            let total = 6 * usize::from(ports);
            let (mut now, mut in_use) = (Duration::ZERO, Vec::new());
            let mut released: HashMap<Tuple, Duration> = HashMap::new();
            for (wait, takes, which) in steps {
                now += Duration::from_millis(wait);
                if takes || in_use.is_empty() {
                    let is_resting = |at: &&Duration| **at + REST > now;
                    let resting = released.values().filter(is_resting).count();
                    prop_assert_eq!(tuples.resting(now), resting);
                    prop_assert_eq!(tuples.is_exhausted(now), in_use.len() + resting == total);
                    match tuples.take(now) {
                        Ok(tuple) => {
                            prop_assert!(!in_use.contains(&tuple));
                            let last = released.remove(&tuple);
                            prop_assert!(last.is_none_or(|at| at + REST <= now));
                            in_use.push(tuple);
                        }
                        Err(Exhausted { until }) => {
                            prop_assert_eq!(in_use.len() + resting, total);
                            prop_assert_eq!(until, released.values().min().map(|at| *at + REST));
                        }
                    }
                } else {
                    let tuple = in_use.swap_remove(which.index(in_use.len()));
                    tuples.release(tuple, now);
                    released.insert(tuple, now);
                }
            }
        }
    }

    #[test]
    fn threads_divide_tuples_by_who_owns_them() {
        let mut seen = Vec::new();
        for thread in 0..3 {
            let all = tuples("10.0.0.0/30", 1000..=1010, 5);
            let mut tuples = all.owned(move |at| at.port() % 3 == thread);
            while let Ok(tuple) = tuples.take(S) {
                let address = tuples.address(tuple);
                assert_eq!(address.port() % 3, thread);
                seen.push(address);
            }
            assert!(tuples.is_exhausted(S));
        }
        let count = seen.len();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!((count, seen.len() % 11), (seen.len(), 0), "each once");
    }
}
