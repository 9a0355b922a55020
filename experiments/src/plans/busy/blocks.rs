//! The lists in which other systems look for a segment's connection. Each is driven by the segments
//! that arrive at a host of ours, and kept in step with that host's connections.
//!
//! ```text
//!   SunOS    cache of one ─▶ newest ─▶ … ─▶ oldest ─▶ listener        TIME-WAIT anywhere between
//!   BSDI     cache of one ─▶ newest live ─▶ … ─▶ listener │ TIME-WAIT …   ends most searches
//!   FreeBSD  512 chains, each newest first, TIME-WAIT anywhere between
//! ```
//!
//! A block has the size of an mbuf of 4.4BSD and lies anywhere in the pool, as after hours in which
//! connections came and went. On today's processors that makes a long list slower than blocks in
//! order. The counted value, blocks looked at, does not depend on it.
//!
//! The engine has its own table and none of these lists: a list would cost its fast path a branch,
//! and would not be used.

use std::collections::HashMap;

use lightwait_core::rng::Rng;

/// No block.
const NONE: u32 = u32::MAX;
/// Chains of FreeBSD 2.2 by default (`TCBHASHSIZE`).
const CHAINS: usize = 512;

/// A connection, seen from the server: remote address and port. The server has one address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub(crate) address: u32,
    pub(crate) port: u16,
    pub(crate) local_port: u16,
}

/// The system of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Search {
    /// SunOS 4.1.3: one list, newest first, and a cache of the block found last.
    Linear,
    /// BSDI: one list like SunOS, with TIME-WAIT behind all others.
    Terminated,
    /// FreeBSD 2.2: chains by a hash of addresses and ports.
    Hashed,
}

/// A block of a search: 128 bytes, an mbuf (MSIZE of 4.4BSD).
#[derive(Clone, Debug)]
#[repr(align(128))]
struct Block {
    next: u32,
    previous: u32,
    chain: u32,
    key: Key,
    waits: bool,
}

/// The ends of a chain.
#[derive(Clone, Copy, Debug)]
struct Chain {
    first: u32,
    last: u32,
}

/// The cost of searches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Work {
    pub(crate) searches: u64,
    /// Blocks looked at.
    pub(crate) blocks: u64,
    /// Searches that ended at the block found last.
    pub(crate) cached: u64,
}

impl Work {
    /// Blocks looked at in a search.
    pub(crate) fn each(self) -> f64 {
        self.blocks as f64 / self.searches.max(1) as f64
    }
}

/// A list, or a table of lists.
#[derive(Debug)]
pub(crate) struct Blocks {
    search: Search,
    blocks: Vec<Block>,
    free: Vec<u32>,
    chains: Vec<Chain>,
    /// The block found last, if the system remembers it.
    cached: u32,
    /// The place of each key's block, to keep in step; this is not measured.
    places: HashMap<Key, u32>,
    waiting: usize,
    pub(crate) work: Work,
}

impl Blocks {
    /// An empty list with room for `most` blocks, which lie in the order of `seed`.
    pub(crate) fn new(search: Search, most: usize, seed: u64) -> Blocks {
        let empty = Key { address: 0, port: 0, local_port: 0 };
        let block = Block { next: NONE, previous: NONE, chain: 0, key: empty, waits: false };
        let mut free: Vec<u32> = (0..most as u32).collect();
        let mut rng = Rng::from_seed(seed);
        for place in (1..free.len()).rev() {
            free.swap(place, rng.below(place as u32 + 1) as usize);
        }
        let chains = if search == Search::Hashed { CHAINS } else { 1 };
        Blocks {
            search,
            blocks: vec![block; most],
            free,
            chains: vec![Chain { first: NONE, last: NONE }; chains],
            cached: NONE,
            places: HashMap::new(),
            waiting: 0,
            work: Work::default(),
        }
    }

    /// The system of the list.
    pub(crate) fn search(&self) -> Search {
        self.search
    }

    /// Blocks in use.
    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    /// Blocks in TIME-WAIT.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting
    }

    /// True if the connection has a block.
    pub(crate) fn has(&self, key: Key) -> bool {
        self.places.contains_key(&key)
    }

    /// True if the connection is in TIME-WAIT.
    pub(crate) fn is_waiting(&self, key: Key) -> bool {
        self.places.get(&key).is_some_and(|place| self.blocks[*place as usize].waits)
    }

    /// Free blocks.
    pub(crate) fn free(&self) -> usize {
        self.free.len()
    }

    /// Adds a connection. Returns false if there is no block for it.
    pub(crate) fn insert(&mut self, key: Key) -> bool {
        let Some(place) = self.free.pop() else { return false };
        let chain = self.chain_of(key);
        self.blocks[place as usize] =
            Block { next: NONE, previous: NONE, chain: chain as u32, key, waits: false };
        self.link_first(place);
        self.places.insert(key, place);
        true
    }

    /// Moves a connection to TIME-WAIT. Returns true if it was not there before.
    pub(crate) fn wait(&mut self, key: Key) -> bool {
        let Some(&place) = self.places.get(&key) else { return false };
        if std::mem::replace(&mut self.blocks[place as usize].waits, true) {
            return false;
        }
        self.waiting += 1;
        if self.search == Search::Terminated {
            self.unlink(place);
            self.link_last(place);
        }
        true
    }

    /// Removes a connection.
    pub(crate) fn remove(&mut self, key: Key) {
        let Some(place) = self.places.remove(&key) else { return };
        self.waiting -= usize::from(self.blocks[place as usize].waits);
        self.unlink(place);
        if self.cached == place {
            self.cached = NONE;
        }
        self.free.push(place);
    }

    /// Looks for a segment's connection as the system does. Returns true if there is one, and not
    /// only a listener.
    pub(crate) fn find(&mut self, key: Key) -> bool {
        self.work.searches += 1;
        if self.cached != NONE && self.blocks[self.cached as usize].key == key {
            self.work.cached += 1;
            return true;
        }
        let mut at = self.chains[self.chain_of(key)].first;
        let mut hears = false;
        while at != NONE {
            let block = &self.blocks[at as usize];
            // Live blocks end here. A listener among them takes a segment without a better match.
            if hears && self.search == Search::Terminated && block.waits {
                break;
            }
            self.work.blocks += 1;
            // As in `in_pcblookup`: the local port first, then the best match; an exact match ends
            // the search.
            if block.key.local_port == key.local_port {
                if block.key.port == key.port && block.key.address == key.address {
                    if self.search != Search::Hashed {
                        self.cached = at;
                    }
                    return true;
                }
                hears |= block.key.port == 0;
            }
            at = block.next;
        }
        false
    }

    /// FreeBSD 2.2's `INP_PCBHASH`; all other systems have one chain.
    fn chain_of(&self, key: Key) -> usize {
        let Key { address, port, local_port } = key;
        let hash = address ^ (address >> 16) ^ u32::from(port) ^ u32::from(local_port);
        hash as usize & (self.chains.len() - 1)
    }

    fn link_first(&mut self, place: u32) {
        let chain = self.blocks[place as usize].chain as usize;
        let first = std::mem::replace(&mut self.chains[chain].first, place);
        let block = &mut self.blocks[place as usize];
        (block.previous, block.next) = (NONE, first);
        match first {
            NONE => self.chains[chain].last = place,
            first => self.blocks[first as usize].previous = place,
        }
    }

    fn link_last(&mut self, place: u32) {
        let chain = self.blocks[place as usize].chain as usize;
        let last = std::mem::replace(&mut self.chains[chain].last, place);
        let block = &mut self.blocks[place as usize];
        (block.previous, block.next) = (last, NONE);
        match last {
            NONE => self.chains[chain].first = place,
            last => self.blocks[last as usize].next = place,
        }
    }

    fn unlink(&mut self, place: u32) {
        let Block { next, previous, chain, .. } = self.blocks[place as usize];
        let chain = &mut self.chains[chain as usize];
        match previous {
            NONE => chain.first = next,
            previous => self.blocks[previous as usize].next = next,
        }
        match next {
            NONE => self.chains[self.blocks[place as usize].chain as usize].last = previous,
            next => self.blocks[next as usize].previous = previous,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LISTENER: Key = Key { address: 0, port: 0, local_port: 80 };

    fn key(number: u32) -> Key {
        Key { address: 10 << 24 | number, port: 5000, local_port: 80 }
    }

    /// A list with a listener and `count` connections, opened in order.
    fn of(search: Search, count: u32) -> Blocks {
        let mut blocks = Blocks::new(search, count as usize + 1, 3);
        assert!(blocks.insert(LISTENER) && (0..count).all(|number| blocks.insert(key(number))));
        assert!(blocks.free() == 0 && !blocks.insert(key(count)), "one too many");
        blocks
    }

    /// Blocks looked at for this key.
    fn looked_at(blocks: &mut Blocks, key: Key) -> u64 {
        let before = blocks.work.blocks;
        blocks.find(key);
        blocks.work.blocks - before
    }

    #[test]
    fn the_oldest_connection_is_found_last_and_then_at_once() {
        let mut blocks = of(Search::Linear, 100);
        assert_eq!([99, 0].map(|number| looked_at(&mut blocks, key(number))), [1, 100]);
        assert_eq!(looked_at(&mut blocks, key(0)), 0, "the one found last");
        // Two connections in turn miss the cache each time.
        assert_eq!([1, 0, 1].map(|number| looked_at(&mut blocks, key(number))), [99, 100, 99]);
        assert_eq!(looked_at(&mut blocks, key(100)), 101, "nobody, but a listener");
        assert!(!blocks.find(key(100)) && blocks.find(key(1)));
    }

    #[test]
    fn time_wait_at_the_end_ends_a_search_and_is_still_found() {
        let mut blocks = of(Search::Terminated, 100);
        assert!((10..100).all(|number| blocks.wait(key(number))));
        assert_eq!(blocks.waiting(), 90);
        assert_eq!(looked_at(&mut blocks, key(0)), 10);
        assert_eq!(looked_at(&mut blocks, key(200)), 11, "the live ones and the listener");
        let mut linear = of(Search::Linear, 100);
        assert!((10..100).all(|number| linear.wait(key(number))));
        assert_eq!(looked_at(&mut linear, key(0)), 100, "TIME-WAIT is searched like all");
    }

    #[test]
    fn chains_share_the_connections_and_lists_stay_whole() {
        for search in [Search::Linear, Search::Terminated, Search::Hashed] {
            let mut blocks = of(search, 1000);
            assert!((0..1000).step_by(3).all(|number| blocks.wait(key(number))));
            (0..1000).step_by(2).for_each(|number| blocks.remove(key(number)));
            assert_eq!((blocks.len(), blocks.waiting()), (501, 167));
            for number in 0..1000 {
                let found = blocks.find(key(number));
                // A listener matches before TIME-WAIT is searched.
                let is_hidden = search == Search::Terminated && number % 3 == 0;
                assert_eq!(found, number % 2 == 1 && !is_hidden, "{search:?} {number}");
            }
            assert!(blocks.insert(key(0)) && blocks.find(key(0)));
        }
        let mut hashed = of(Search::Hashed, 5120);
        assert!(looked_at(&mut hashed, key(0)) <= 11, "of ten or eleven in a chain");
    }
}
