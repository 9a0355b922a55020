//! Connections on which nothing moves, in the order in which that was seen: a list beside the
//! slots, so that one is added and taken out by a few stores, wherever it stands.

use alloc::vec::Vec;

use crate::flow::Seq;
use crate::time::Instant;

/// No link.
const NONE: u32 = u32::MAX;

/// A slot's place in the list.
#[derive(Clone, Copy, Debug)]
struct Link {
    previous: u32,
    next: u32,
    /// `None`: it is not in the list.
    mark: Option<Mark>,
}

const UNLISTED: Link = Link { previous: NONE, next: NONE, mark: None };

/// What progress is counted from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    /// Since when.
    pub(super) since: Instant,
    /// SND.UNA then.
    pub(super) una: Seq,
    /// Bytes that were not acknowledged then.
    pub(super) held: usize,
}

/// Slots in order of time. It grows to the highest slot that was ever in it.
#[derive(Debug)]
pub(super) struct Stalled {
    links: Vec<Link>,
    first: u32,
    last: u32,
}

impl Default for Stalled {
    fn default() -> Self {
        Stalled { links: Vec::new(), first: NONE, last: NONE }
    }
}

impl Stalled {
    /// True if none is listed.
    pub(super) fn is_empty(&self) -> bool {
        self.first == NONE
    }

    /// The slot that was added first, and its mark.
    pub(super) fn first(&self) -> Option<(u32, Mark)> {
        Some((self.first, self.mark(self.first)?))
    }

    /// The slot that was added after that one, and its mark.
    pub(super) fn after(&self, index: u32) -> Option<(u32, Mark)> {
        let next = self.links.get(index as usize)?.next;
        Some((next, self.mark(next)?))
    }

    /// The mark of that slot, if it is in the list.
    pub(super) fn mark(&self, index: u32) -> Option<Mark> {
        self.links.get(index as usize)?.mark
    }

    /// Adds a slot at the end, or moves it there. No mark in the list is later than `mark`.
    pub(super) fn push(&mut self, index: u32, mark: Mark) {
        self.remove(index);
        if self.links.len() <= index as usize {
            self.links.resize(index as usize + 1, UNLISTED);
        }
        self.links[index as usize] = Link { previous: self.last, next: NONE, mark: Some(mark) };
        match self.links.get_mut(self.last as usize) {
            Some(before) => before.next = index,
            None => self.first = index,
        }
        self.last = index;
    }

    /// Takes a slot out, if it is there.
    pub(super) fn remove(&mut self, index: u32) {
        let Some(link) = self.links.get_mut(index as usize) else { return };
        let Link { previous, next, mark } = core::mem::replace(link, UNLISTED);
        if mark.is_none() {
            return;
        }
        match self.links.get_mut(previous as usize) {
            Some(before) => before.next = next,
            None => self.first = next,
        }
        match self.links.get_mut(next as usize) {
            Some(behind) => behind.previous = previous,
            None => self.last = previous,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_is_a_queue_out_of_which_any_may_go(
            ops in prop::collection::vec((any::<bool>(), 0u32..9), 0..200),
        ) {
            let mut list = Stalled::default();
            let mut model: Vec<(u32, Mark)> = Vec::new();
            for (at, (is_added, index)) in ops.into_iter().enumerate() {
                let since = Instant::from_millis(at as u64);
                let mark = Mark { since, una: Seq(at as u32), held: at };
                model.retain(|(listed, _)| *listed != index);
                if is_added {
                    list.push(index, mark);
                    model.push((index, mark));
                } else {
                    list.remove(index);
                }
                prop_assert_eq!(list.first(), model.first().copied());
                prop_assert_eq!(list.is_empty(), model.is_empty());
                for index in 0..9 {
                    let listed = model.iter().find(|(listed, _)| *listed == index);
                    prop_assert_eq!(list.mark(index), listed.map(|(_, mark)| *mark));
                }
            }
            while let Some((index, _)) = list.first() {
                prop_assert_eq!(model.remove(0).0, index);
                list.remove(index);
            }
            prop_assert!(model.is_empty());
        }
    }
}
