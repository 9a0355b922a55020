//! Remembers peers whose network seems to drop SYNs that ask: they answered only once a SYN came
//! without the option. For a while no SYN asks them again.

use alloc::collections::{BTreeMap, VecDeque};
use core::net::IpAddr;

use crate::time::{Duration, Instant};

/// Peers that are not asked, at most so many and for so long.
#[derive(Debug)]
pub struct Unheard {
    until: BTreeMap<IpAddr, Instant>,
    /// In the order in which they were noted, which is that in which their time is over.
    order: VecDeque<IpAddr>,
    limit: usize,
    lasts: Duration,
}

impl Unheard {
    /// None, of at most `limit` that are remembered for `lasts`.
    pub fn new(limit: usize, lasts: Duration) -> Unheard {
        Unheard { until: BTreeMap::new(), order: VecDeque::new(), limit, lasts }
    }

    /// True if `peer` is not to be asked at `now`.
    pub fn has(&self, peer: IpAddr, now: Instant) -> bool {
        self.until.get(&peer).is_some_and(|until| now < *until)
    }

    /// Remembers `peer` from `now` on; the oldest goes if there are too many.
    pub fn note(&mut self, peer: IpAddr, now: Instant) {
        if self.limit == 0 || self.has(peer, now) {
            return;
        }
        let is_over = |until: Option<&Instant>| until.is_none_or(|until| *until <= now);
        while let Some(oldest) = self.order.front()
            && (self.order.len() >= self.limit || is_over(self.until.get(oldest)))
        {
            self.until.remove(oldest);
            self.order.pop_front();
        }
        self.until.insert(peer, now + self.lasts);
        self.order.push_back(peer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::Ipv4Addr;

    const LASTS: Duration = Duration::from_secs(100);

    fn peer(number: u8) -> IpAddr {
        Ipv4Addr::new(10, 0, 0, number).into()
    }

    #[test]
    fn a_peer_is_remembered_for_its_time_and_no_longer() {
        let mut unheard = Unheard::new(4, LASTS);
        let at = Instant::from_millis;
        unheard.note(peer(1), at(0));
        assert!(unheard.has(peer(1), at(99_999)) && !unheard.has(peer(1), at(100_000)));
        assert!(!unheard.has(peer(2), at(1)));
        // Again, once it is over; and then it is there once.
        unheard.note(peer(1), at(100_000));
        assert!(unheard.has(peer(1), at(199_999)));
        assert_eq!((unheard.order.len(), unheard.until.len()), (1, 1));
    }

    #[test]
    fn the_oldest_goes_where_there_are_too_many() {
        let mut unheard = Unheard::new(2, LASTS);
        let at = Instant::from_millis;
        for (number, ms) in [(1, 0), (2, 1), (2, 2)] {
            unheard.note(peer(number), at(ms));
        }
        assert!(unheard.has(peer(1), at(3)), "two have room");
        unheard.note(peer(3), at(3));
        assert!(!unheard.has(peer(1), at(3)));
        assert!(unheard.has(peer(2), at(3)) && unheard.has(peer(3), at(3)));
        assert_eq!((unheard.order.len(), unheard.until.len()), (2, 2));
        let mut none = Unheard::new(0, LASTS);
        none.note(peer(1), at(0));
        assert!(none.order.is_empty() && !none.has(peer(1), at(0)));
    }
}
