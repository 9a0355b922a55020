//! Slots with generations: an index that is used again makes another key.
//!
//! Slots lie in chunks that are never moved, so that growth costs no more than one of them, and a
//! value is built and changed where it lies. Chunks that are empty go back to the system, but for
//! the last: what a burst of values took is not kept when they are gone.
//!
//! A value may leave something in its slot, which the next one finds there.
//!
//! ```text
//!   open ─▶ chunk ─▶ chunk ─▶ …     those with a free slot, each with a list of them
//! ```

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::mem::offset_of;

use lightwait_processor::prefetch_first;

/// Slots in a chunk.
const CHUNK: usize = 64;

/// The end of a list.
const NONE: u32 = u32::MAX;

/// Values in numbered slots. What one leaves in its slot is an `L`.
#[derive(Debug)]
pub(crate) struct Slab<T, L = ()> {
    /// `None`: all of its slots are free, and there is no memory for them.
    chunks: Vec<Option<Box<Chunk<T, L>>>>,
    shares: Vec<Share>,
    /// The first chunk with a free slot.
    open: u32,
    /// The chunk that was the last to become empty.
    emptied: u32,
    len: u32,
}

type Chunk<T, L> = [Slot<T, L>; CHUNK];

/// What is asked for most comes first, and beside the beginning of the value.
#[derive(Debug)]
#[repr(C)]
struct Slot<T, L> {
    generation: u32,
    /// The next free slot of the chunk, while this one is free.
    next: u32,
    content: Content<T, L>,
}

#[derive(Debug)]
enum Content<T, L> {
    Value(T),
    /// The slot is free.
    Left(L),
}

impl<T, L> Content<T, L> {
    fn value(&self) -> Option<&T> {
        match self {
            Content::Value(value) => Some(value),
            Content::Left(_) => None,
        }
    }

    fn value_mut(&mut self) -> Option<&mut T> {
        match self {
            Content::Value(value) => Some(value),
            Content::Left(_) => None,
        }
    }
}

/// What is known of a chunk.
#[derive(Clone, Copy, Debug)]
struct Share {
    /// The next chunk with a free slot, while this one has a free slot.
    next: u32,
    /// The first free slot.
    free: u32,
    /// Slots that hold a value.
    live: u32,
    /// No slot has had this generation yet when there is memory for them again.
    generation: u32,
}

impl<T, L> Default for Slab<T, L> {
    fn default() -> Self {
        Slab { chunks: Vec::new(), shares: Vec::new(), open: NONE, emptied: NONE, len: 0 }
    }
}

/// A slot, and which of the values that have been in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    /// The number of the slot.
    pub index: u32,
    /// How often the slot had been left before.
    pub generation: u32,
}

impl<T, L: Copy + Default> Slab<T, L> {
    /// Puts `value` into a free slot; returns its key.
    pub(crate) fn insert(&mut self, value: T) -> Key {
        self.insert_with(|_| value)
    }

    /// Puts the value that `make` builds in place into a free slot; `make` receives what the slot's
    /// last value left.
    #[inline(always)]
    pub(crate) fn insert_with(&mut self, make: impl FnOnce(L) -> T) -> Key {
        let number = self.open as usize;
        let memory = (self.chunks.get_mut(number), self.shares.get_mut(number));
        let (Some(Some(chunk)), Some(share)) = memory else { return self.insert_grown(make) };
        let Share { next, free, live, .. } = share;
        let place = *free;
        let slot = &mut chunk[place as usize % CHUNK];
        (*free, *live) = (slot.next, *live + 1);
        if *free == NONE {
            self.open = *next;
        }
        self.len += 1;
        if let Content::Left(left) = slot.content {
            slot.content = Content::Value(make(left));
        }
        Key { index: (number * CHUNK) as u32 + place, generation: slot.generation }
    }

    /// Inserts where there is no free slot, or no memory for it.
    fn insert_grown(&mut self, make: impl FnOnce(L) -> T) -> Key {
        self.grow();
        self.insert_with(make)
    }

    /// Memory for the first chunk with a free slot; a new chunk if there is none.
    fn grow(&mut self) {
        if self.open == NONE {
            self.open = self.chunks.len() as u32;
            self.chunks.push(None);
            self.shares.push(Share { next: NONE, free: 0, live: 0, generation: 0 });
        }
        let number = self.open as usize;
        let generation = self.shares[number].generation;
        let next = |place| if place + 1 < CHUNK { place as u32 + 1 } else { NONE };
        let left = || Content::Left(L::default());
        let slots = (0..CHUNK).map(|place| Slot { generation, next: next(place), content: left() });
        let slots: Box<[Slot<T, L>]> = slots.collect();
        self.chunks[number] = slots.try_into().ok();
        self.shares[number].free = 0;
    }

    /// Empties a slot; its next use is a new generation.
    pub(crate) fn take(&mut self, index: u32) -> Option<T> {
        let empty = |content: &mut Content<T, L>, (): &mut ()| {
            content.value()?;
            match core::mem::replace(content, Content::Left(L::default())) {
                Content::Value(value) => Some(value),
                Content::Left(_) => None,
            }
        };
        self.empty(index, &mut (), empty, |_, _, ()| {})
    }

    /// Empties a slot and drops its value.
    #[cfg(test)]
    pub(crate) fn remove(&mut self, index: u32) {
        self.take(index);
    }

    /// Empties a slot: the value leaves what `leave` returns, and stays if that is nothing.
    /// `forget` hears of each slot that loses its memory, and of what was left there. Both may
    /// change `context`.
    pub(crate) fn leave<C>(
        &mut self,
        index: u32,
        context: &mut C,
        leave: impl FnOnce(&mut T, &mut C) -> Option<L>,
        forget: impl FnMut(u32, L, &mut C),
    ) {
        let empty = |content: &mut Content<T, L>, context: &mut C| {
            let left = leave(content.value_mut()?, context)?;
            *content = Content::Left(left);
            Some(())
        };
        self.empty(index, context, empty, forget);
    }

    fn empty<R, C>(
        &mut self,
        index: u32,
        context: &mut C,
        empty: impl FnOnce(&mut Content<T, L>, &mut C) -> Option<R>,
        forget: impl FnMut(u32, L, &mut C),
    ) -> Option<R> {
        let (number, place) = (index as usize / CHUNK, index as usize % CHUNK);
        let slot = &mut self.chunks.get_mut(number)?.as_mut()?[place];
        let result = empty(&mut slot.content, context)?;
        slot.generation = slot.generation.wrapping_add(1);
        let Share { next, free, live, .. } = &mut self.shares[number];
        slot.next = core::mem::replace(free, place as u32);
        if slot.next == NONE {
            *next = core::mem::replace(&mut self.open, number as u32);
        }
        *live -= 1;
        self.len -= 1;
        if *live == 0 && self.emptied != number as u32 {
            self.shrink(number as u32, context, forget);
        }
        Some(result)
    }

    /// This chunk is empty: it is kept, and the one that was kept so far is not, if it is still so.
    fn shrink<C>(&mut self, emptied: u32, context: &mut C, mut forget: impl FnMut(u32, L, &mut C)) {
        let number = core::mem::replace(&mut self.emptied, emptied) as usize;
        let Some(share) = self.shares.get_mut(number).filter(|share| share.live == 0) else {
            return;
        };
        let Some(chunk) = self.chunks[number].take() else { return };
        share.generation = chunk.iter().map(|slot| slot.generation).max().unwrap_or_default();
        for (index, slot) in ((number * CHUNK) as u32..).zip(chunk.iter()) {
            if let Content::Left(left) = slot.content {
                forget(index, left, context);
            }
        }
    }

    /// What was left in slot `index`, if that is free.
    pub(crate) fn left_mut(&mut self, index: u32) -> Option<&mut L> {
        match &mut self.slot_mut(index)?.content {
            Content::Value(_) => None,
            Content::Left(left) => Some(left),
        }
    }

    fn slot(&self, index: u32) -> Option<&Slot<T, L>> {
        let chunk = self.chunks.get(index as usize / CHUNK)?.as_ref()?;
        Some(&chunk[index as usize % CHUNK])
    }

    fn slot_mut(&mut self, index: u32) -> Option<&mut Slot<T, L>> {
        let chunk = self.chunks.get_mut(index as usize / CHUNK)?.as_mut()?;
        Some(&mut chunk[index as usize % CHUNK])
    }

    /// Fetches the first `bytes` of the value in slot `index`, without waiting for them.
    pub(crate) fn prefetch(&self, index: u32, bytes: usize) {
        if let Some(slot) = self.slot(index) {
            prefetch_first(slot, offset_of!(Slot<T, L>, content) + bytes);
        }
    }

    /// The value in slot `index`.
    pub(crate) fn get(&self, index: u32) -> Option<&T> {
        self.slot(index)?.content.value()
    }

    /// The value in slot `index`, to be changed.
    pub(crate) fn get_mut(&mut self, index: u32) -> Option<&mut T> {
        self.slot_mut(index)?.content.value_mut()
    }

    /// The value in slot `index`, and its generation.
    pub(crate) fn named(&self, index: u32) -> Option<(&T, u32)> {
        let slot = self.slot(index)?;
        Some((slot.content.value()?, slot.generation))
    }

    /// The value in slot `index`, to be changed, and its generation.
    pub(crate) fn named_mut(&mut self, index: u32) -> Option<(&mut T, u32)> {
        let slot = self.slot_mut(index)?;
        Some((slot.content.value_mut()?, slot.generation))
    }

    /// True if slot `index` holds a value of this generation.
    pub(crate) fn is_current(&self, index: u32, generation: u32) -> bool {
        self.slot(index)
            .is_some_and(|slot| slot.generation == generation && slot.content.value().is_some())
    }

    /// The generation of slot `index`.
    pub(crate) fn generation(&self, index: u32) -> u32 {
        self.slot(index).map_or(0, |slot| slot.generation)
    }

    /// Changes every value.
    pub(crate) fn for_each(&mut self, change: impl FnMut(&mut T)) {
        let slots = self.chunks.iter_mut().flatten().flat_map(|chunk| chunk.iter_mut());
        slots.filter_map(|slot| slot.content.value_mut()).for_each(change);
    }

    /// Values held.
    pub(crate) fn len(&self) -> usize {
        self.len as usize
    }

    /// One past the highest index that a value has had.
    pub(crate) fn end(&self) -> u32 {
        (self.chunks.len() * CHUNK) as u32
    }

    /// Every value with its index.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        self.iter_from(0)
    }

    /// Every value whose index is `first` or higher, with its index.
    pub(crate) fn iter_from(&self, first: u32) -> impl Iterator<Item = (u32, &T)> {
        let chunks = self.chunks.iter().enumerate().skip(first as usize / CHUNK);
        let slots = chunks.flat_map(|(number, chunk)| {
            let first = number * CHUNK;
            (first..).zip(chunk.iter().flat_map(|chunk| chunk.iter()))
        });
        let values =
            slots.filter_map(|(i, slot)| slot.content.value().map(|value| (i as u32, value)));
        values.skip_while(move |(index, _)| *index < first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_name_does_not_find_the_new_value() {
        let mut slab: Slab<_> = Slab::default();
        let Key { index, generation } = slab.insert('a');
        assert!(slab.is_current(index, generation));
        assert!(slab.take(index).is_some());
        assert!(slab.take(index).is_none());
        let Key { index: again, generation: newer } = slab.insert('b');
        assert_eq!(again, index);
        assert!(slab.is_current(again, newer));
        assert!(!slab.is_current(index, generation));
        assert_eq!(slab.len(), 1);
    }

    #[test]
    fn slots_are_used_again_before_new_ones_and_none_twice() {
        let mut slab: Slab<_> = Slab::default();
        let indices: Vec<u32> = (0..200).map(|i| slab.insert(i).index).collect();
        assert!((0..200).eq(indices.iter().copied()));
        for index in [7, 150] {
            assert!(slab.take(index).is_some());
        }
        for index in [63, 64, 64, 9999] {
            slab.remove(index);
        }
        assert_eq!(slab.len(), 196);
        assert!(slab.get(64).is_none() && slab.get(200).is_none() && slab.get(9999).is_none());
        let mut again: Vec<u32> = (0..5).map(|i| slab.insert(1000 + i).index).collect();
        assert_eq!(again.pop(), Some(200), "all free slots are taken");
        again.sort_unstable();
        assert_eq!(again, [7, 63, 64, 150]);
        assert_eq!((slab.len(), slab.iter().count()), (201, 201));
    }

    #[test]
    fn a_values_remains_pass_to_the_next_or_go_with_their_slot() {
        let mut slab: Slab<u32, u32> = Slab::default();
        let mut forgotten = Vec::new();
        for number in 0..150 {
            assert_eq!(slab.insert_with(|left| left + number).index, number);
        }
        let forget = |_, _, (): &mut ()| panic!("its chunk is there");
        slab.leave(7, &mut (), |_, ()| None, forget);
        assert_eq!(slab.get(7), Some(&7), "it stays");
        slab.leave(7, &mut (), |value, ()| Some(*value + 993), forget);
        assert!(slab.get(7).is_none() && slab.left_mut(8).is_none());
        assert_eq!(slab.left_mut(7), Some(&mut 1000));
        let index = slab.insert_with(|left| left).index;
        assert_eq!((index, slab.get(7)), (7, Some(&1000)));
        for index in 0..150 {
            let forget = |index, left, forgotten: &mut Vec<_>| forgotten.push((index, left));
            slab.leave(index, &mut forgotten, |_, _| Some(index + 1), forget);
        }
        assert!(forgotten.into_iter().eq((0..128).map(|index| (index, index + 1))));
        assert!(slab.left_mut(0).is_none());
        assert_eq!(slab.left_mut(149), Some(&mut 150));
        let index = slab.insert_with(|left| left).index;
        assert_eq!((index, slab.get(index)), (64, Some(&0)), "its chunk is a new one");
    }

    #[test]
    fn one_empty_chunk_is_kept_and_freed_chunks_have_no_old_names() {
        let mut slab: Slab<_> = Slab::default();
        let chunks = |slab: &Slab<u8>| slab.chunks.iter().flatten().count();
        let names: Vec<_> = (0..1000).map(|_| slab.insert(0)).collect();
        let (stays, go) = names.split_last().unwrap();
        assert_eq!(chunks(&slab), 16);
        go.iter().for_each(|key| slab.remove(key.index));
        assert_eq!(chunks(&slab), 2, "that of the one that stays, and an empty one");
        // One at a time: no memory comes and goes.
        for _ in 0..10 {
            let Key { index, .. } = slab.insert(1);
            assert_eq!(chunks(&slab), 2);
            slab.remove(index);
            assert_eq!(chunks(&slab), 2);
        }
        let again: Vec<_> = (0..999).map(|_| slab.insert(2)).collect();
        assert_eq!((chunks(&slab), slab.len()), (16, 1000));
        assert!(slab.is_current(stays.index, stays.generation));
        assert!(go.iter().all(|key| !slab.is_current(key.index, key.generation)));
        let distinct: std::collections::BTreeSet<_> = again.iter().map(|key| key.index).collect();
        assert_eq!(distinct.len(), 999);
        assert!(!distinct.contains(&stays.index));
    }
}
