//! Orders the line by the part of its need that each writer holds (Cohen & Cohen 2002 §4): min(p, i
//! / k), in eighths.
//!
//! ```text
//!   levels in use, a bit each   0 0 1 0 … 1 0
//!                                   │     │
//!                                   ▼     ▼
//!                        first ─▶ slot ⇄ slot ◀─ last     a list each, in order of arrival
//! ```
//!
//! The links lie beside the slots, so that a writer is added, moved or taken out by a few stores. A
//! writer whose connection is gone stays until it is next, or its slot waits again: there are never
//! more of them than slots.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::{Order, Standing, Waiter};
use crate::config::PoolConfig;
use crate::time::Instant;

/// Levels in one step of i / k.
const STEPS: usize = 8;

/// Levels: a bit of a word each.
const LEVELS: usize = 128;

/// No link.
const NONE: u32 = u32::MAX;

/// A slot's place.
#[derive(Clone, Copy, Debug)]
struct Place {
    /// `None`: it does not wait.
    waiter: Option<Waiter>,
    level: u8,
    previous: u32,
    next: u32,
}

const NOWHERE: Place = Place { waiter: None, level: 0, previous: NONE, next: NONE };

/// A level's first and last slot.
#[derive(Clone, Copy, Debug)]
struct Ends {
    first: u32,
    last: u32,
}

/// The writers that wait, by level.
#[derive(Debug)]
pub(in super::super) struct Buckets {
    cap: u8,
    /// One that holds nothing has a level of its own, above the cap.
    sets_none_above: bool,
    used: u128,
    levels: Box<[Ends; LEVELS]>,
    /// The places, by slot. It grows to the highest slot that ever waited.
    places: Vec<Place>,
    len: usize,
}

impl Buckets {
    /// The buckets for a cap p, which is 14 at most.
    pub(super) fn new(config: &PoolConfig) -> Self {
        let levels = Box::new([Ends { first: NONE, last: NONE }; LEVELS]);
        let (cap, sets_none_above) = (config.priority_cap, config.priority_of_none);
        Buckets { cap, sets_none_above, used: 0, levels, places: Vec::new(), len: 0 }
    }

    /// p + 1 for one that holds nothing; else min(p, i / k).
    fn level(&self, standing: Standing) -> u8 {
        let cap = usize::from(self.cap) * STEPS;
        let holds = standing.holds.max(usize::from(!self.sets_none_above));
        let parts = standing.needs.saturating_mul(STEPS).checked_div(holds);
        let level = parts.map_or(cap + STEPS, |parts| parts.min(cap));
        level.min(LEVELS - 1) as u8
    }

    fn link(&mut self, slot: u32, waiter: Waiter, level: u8) {
        let ends = &mut self.levels[usize::from(level)];
        let previous = core::mem::replace(&mut ends.last, slot);
        match self.places.get_mut(previous as usize) {
            Some(before) => before.next = slot,
            None => ends.first = slot,
        }
        self.places[slot as usize] = Place { waiter: Some(waiter), level, previous, next: NONE };
        self.used |= 1 << level;
        self.len += 1;
    }

    /// Takes a slot out, if it is there.
    fn unlink(&mut self, slot: u32) -> Option<Waiter> {
        let place = core::mem::replace(self.places.get_mut(slot as usize)?, NOWHERE);
        let waiter = place.waiter?;
        let ends = &mut self.levels[usize::from(place.level)];
        match self.places.get_mut(place.previous as usize) {
            Some(before) => before.next = place.next,
            None => ends.first = place.next,
        }
        match self.places.get_mut(place.next as usize) {
            Some(behind) => behind.previous = place.previous,
            None => ends.last = place.previous,
        }
        if ends.first == NONE {
            self.used &= !(1 << place.level);
        }
        self.len -= 1;
        Some(waiter)
    }
}

impl Order for Buckets {
    fn push(&mut self, waiter: Waiter, standing: Standing) {
        let slot = waiter.id.index;
        // It may still be in a connection's name that is gone.
        self.unlink(slot);
        if self.places.len() <= slot as usize {
            self.places.resize(slot as usize + 1, NOWHERE);
        }
        self.link(slot, waiter, self.level(standing));
    }

    fn restand(&mut self, slot: u32, standing: Standing) {
        let level = self.level(standing);
        let place = self.places.get(slot as usize);
        if place.is_some_and(|place| place.waiter.is_some() && place.level != level)
            && let Some(waiter) = self.unlink(slot)
        {
            self.link(slot, waiter, level);
        }
    }

    fn pop(&mut self) -> Option<Waiter> {
        let level = self.used.checked_ilog2()?;
        self.unlink(self.levels[level as usize].first)
    }

    fn len(&self) -> usize {
        self.len
    }

    fn waits_since(&self) -> Option<Instant> {
        let firsts = self.levels.iter().filter_map(|ends| self.places.get(ends.first as usize));
        firsts.filter_map(|place| Some(place.waiter?.since)).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::ConnectionId;
    use proptest::prelude::*;
    use std::vec::Vec;

    fn waiter(index: u32, since: u64) -> Waiter {
        let id = ConnectionId { index, generation: 1 };
        Waiter { id, since: Instant::from_millis(since) }
    }

    fn standing(needs: usize, holds: usize) -> Standing {
        Standing { needs, holds }
    }

    fn buckets(priority_cap: u8) -> Buckets {
        Buckets::new(&PoolConfig { priority_cap, ..PoolConfig::default() })
    }

    fn order(buckets: &mut Buckets) -> Vec<u32> {
        core::iter::from_fn(|| buckets.pop()).map(|waiter| waiter.id.index).collect()
    }

    #[test]
    fn the_least_supplied_is_next_and_the_empty_before_all() {
        let mut buckets = buckets(4);
        let all = [(10, 10), (40, 10), (400, 10), (5, 0), (15, 10), (90, 20)];
        for (slot, (needs, holds)) in (0..).zip(all) {
            buckets.push(waiter(slot, 0), standing(needs, holds));
        }
        assert_eq!(order(&mut buckets), [3, 1, 2, 5, 4, 0], "beyond the cap all are alike");
        assert_eq!((buckets.len(), buckets.waits_since()), (0, None));
    }

    #[test]
    fn the_empty_one_has_no_level_of_its_own_if_it_is_so_set() {
        let config = PoolConfig { priority_of_none: false, ..PoolConfig::default() };
        let mut buckets = Buckets::new(&config);
        for (slot, (needs, holds)) in (0..).zip([(40, 10), (3, 0), (400, 10), (3, 1)]) {
            buckets.push(waiter(slot, 0), standing(needs, holds));
        }
        assert_eq!(order(&mut buckets), [2, 0, 1, 3]);
    }

    #[test]
    fn a_change_of_share_moves_one_up_and_keeps_no_other_waiting() {
        let mut buckets = buckets(8);
        for slot in 0..3 {
            buckets.push(waiter(slot, slot.into()), standing(20, 10));
        }
        buckets.restand(2, standing(20, 5));
        buckets.restand(1, standing(20, 10));
        buckets.restand(9, standing(20, 1));
        assert_eq!(buckets.waits_since(), Some(Instant::from_millis(0)));
        assert_eq!(order(&mut buckets), [2, 0, 1]);
    }

    #[test]
    fn a_slot_whose_connection_is_gone_waits_once() {
        let mut buckets = buckets(8);
        buckets.push(waiter(3, 1), standing(20, 10));
        buckets.push(waiter(3, 2), standing(20, 5));
        assert_eq!((buckets.len(), buckets.pop()), (1, Some(waiter(3, 2))));
    }

    proptest! {
        #[test]
        fn it_is_a_sorted_list(
            ops in prop::collection::vec((0u32..9, 0usize..40, 0usize..12, 0u8..4), 0..200),
        ) {
            let mut buckets = buckets(3);
            let mut model: Vec<(u8, u32)> = Vec::new();
            for (slot, needs, holds, op) in ops {
                let standing = standing(needs, holds);
                let level = buckets.level(standing);
                let at = model.iter().position(|(_, listed)| *listed == slot);
                match (op, at) {
                    (0, _) => {
                        let best = model.iter().map(|(level, _)| *level).max();
                        let at = model.iter().position(|(level, _)| Some(*level) == best);
                        let next = at.map(|at| model.remove(at).1);
                        prop_assert_eq!(buckets.pop().map(|waiter| waiter.id.index), next);
                    }
                    (1, Some(at)) if model[at].0 != level => {
                        model.remove(at);
                        model.push((level, slot));
                        buckets.restand(slot, standing);
                    }
                    (1, _) => buckets.restand(slot, standing),
                    _ => {
                        at.map(|at| model.remove(at));
                        model.push((level, slot));
                        buckets.push(waiter(slot, 0), standing);
                    }
                }
                prop_assert_eq!(buckets.len(), model.len());
            }
        }
    }
}
