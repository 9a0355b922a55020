//! Slots with generations: an index that is used again is not the same name.
//!
//! Slots lie in chunks that are never moved, so that growth costs no more than one of them, and a
//! value is built and changed where it lies.

use alloc::boxed::Box;
use alloc::vec::Vec;

/// Slots in a chunk.
const CHUNK: usize = 64;

/// The end of the list of free slots.
const NONE: u32 = u32::MAX;

/// Values in numbered slots.
#[derive(Debug)]
pub struct Slab<T> {
    chunks: Vec<Box<[Slot<T>; CHUNK]>>,
    /// The first free slot.
    free: u32,
    /// Slots that have ever been used: what lies beyond is free, and in no list.
    used: u32,
    len: u32,
}

/// What is asked for most comes first, and beside the beginning of the value.
#[derive(Debug)]
#[repr(C)]
struct Slot<T> {
    generation: u32,
    /// The next free slot, while this one is free.
    next: u32,
    value: Option<T>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Slab { chunks: Vec::new(), free: NONE, used: 0, len: 0 }
    }
}

impl<T> Slab<T> {
    /// Puts `value` into a free slot; returns its index and generation.
    #[inline(always)]
    pub fn insert(&mut self, value: T) -> (u32, u32) {
        self.insert_with(|| value)
    }

    /// As [`Slab::insert`], of a value that is made where it is to lie.
    #[inline(always)]
    pub fn insert_with(&mut self, make: impl FnOnce() -> T) -> (u32, u32) {
        let index = if self.free == NONE { self.extend() } else { self.free };
        let slot = &mut self.chunks[index as usize / CHUNK][index as usize % CHUNK];
        self.free = slot.next;
        self.len += 1;
        // It is empty. Told that, the compiler keeps no value aside while it drops what was there.
        if slot.value.is_none() {
            slot.value = Some(make());
        }
        (index, slot.generation)
    }

    /// A slot that was never used.
    #[cold]
    fn extend(&mut self) -> u32 {
        let index = self.used;
        if index as usize / CHUNK == self.chunks.len() {
            let slots = (0..CHUNK).map(|_| Slot { generation: 0, next: NONE, value: None });
            let chunk: Box<[Slot<T>]> = slots.collect();
            let chunk: Result<Box<[Slot<T>; CHUNK]>, _> = chunk.try_into();
            self.chunks.extend(chunk);
        }
        self.used += 1;
        index
    }

    /// Empties a slot; its next use is a new generation.
    pub fn take(&mut self, index: u32) -> Option<T> {
        self.empty(index, Option::take)
    }

    /// As [`Slab::take`], where the value is dropped.
    pub fn remove(&mut self, index: u32) {
        self.empty(index, |value| {
            *value = None;
            Some(())
        });
    }

    #[inline(always)]
    fn empty<R>(
        &mut self,
        index: u32,
        take: impl FnOnce(&mut Option<T>) -> Option<R>,
    ) -> Option<R> {
        let slot = self.chunks.get_mut(index as usize / CHUNK)?;
        let slot = &mut slot[index as usize % CHUNK];
        slot.value.as_ref()?;
        let taken = take(&mut slot.value)?;
        slot.generation = slot.generation.wrapping_add(1);
        slot.next = core::mem::replace(&mut self.free, index);
        self.len -= 1;
        Some(taken)
    }

    #[inline]
    fn slot(&self, index: u32) -> Option<&Slot<T>> {
        Some(&self.chunks.get(index as usize / CHUNK)?[index as usize % CHUNK])
    }

    #[inline]
    fn slot_mut(&mut self, index: u32) -> Option<&mut Slot<T>> {
        Some(&mut self.chunks.get_mut(index as usize / CHUNK)?[index as usize % CHUNK])
    }

    /// The value in slot `index`.
    #[inline]
    pub fn get(&self, index: u32) -> Option<&T> {
        self.slot(index)?.value.as_ref()
    }

    /// The value in slot `index`, to be changed.
    #[inline]
    pub fn get_mut(&mut self, index: u32) -> Option<&mut T> {
        self.slot_mut(index)?.value.as_mut()
    }

    /// The value in slot `index`, to be changed, and its generation.
    #[inline]
    pub fn named_mut(&mut self, index: u32) -> Option<(&mut T, u32)> {
        let slot = self.slot_mut(index)?;
        Some((slot.value.as_mut()?, slot.generation))
    }

    /// True if slot `index` holds a value of this generation.
    #[inline]
    pub fn is_current(&self, index: u32, generation: u32) -> bool {
        self.slot(index).is_some_and(|slot| slot.generation == generation && slot.value.is_some())
    }

    /// The generation of slot `index`.
    #[inline]
    pub fn generation(&self, index: u32) -> u32 {
        self.slot(index).map_or(0, |slot| slot.generation)
    }

    /// Values held.
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Every value with its index.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        let slots = self.chunks.iter().flat_map(|chunk| chunk.iter()).enumerate();
        slots.filter_map(|(i, slot)| slot.value.as_ref().map(|value| (i as u32, value)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_name_does_not_find_the_new_value() {
        let mut slab = Slab::default();
        let (index, generation) = slab.insert('a');
        assert!(slab.is_current(index, generation));
        assert!(slab.take(index).is_some());
        assert!(slab.take(index).is_none());
        let (again, newer) = slab.insert('b');
        assert_eq!(again, index);
        assert!(slab.is_current(again, newer));
        assert!(!slab.is_current(index, generation));
        assert_eq!((slab.len(), slab.is_empty()), (1, false));
    }

    #[test]
    fn slots_are_used_again_before_new_ones_and_none_twice() {
        let mut slab = Slab::default();
        let indices: Vec<u32> = (0..200).map(|i| slab.insert(i).0).collect();
        assert!((0..200).eq(indices.iter().copied()));
        for index in [7, 150] {
            assert!(slab.take(index).is_some());
        }
        for index in [63, 64, 64, 9999] {
            slab.remove(index);
        }
        assert_eq!(slab.len(), 196);
        assert!(slab.get(64).is_none() && slab.get(200).is_none() && slab.get(9999).is_none());
        let mut again: Vec<u32> = (0..5).map(|i| slab.insert(1000 + i).0).collect();
        assert_eq!(again.pop(), Some(200), "all free slots are taken");
        again.sort_unstable();
        assert_eq!(again, [7, 63, 64, 150]);
        assert_eq!((slab.len(), slab.iter().count()), (201, 201));
    }
}
