//! Slots with generations: an index that is used again is not the same name.

use alloc::vec::Vec;

/// Values in numbered slots.
#[derive(Debug)]
pub struct Slab<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
}

#[derive(Debug)]
struct Slot<T> {
    generation: u32,
    value: Option<T>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Slab { slots: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slab<T> {
    /// Puts `value` into a free slot; returns its index and generation.
    pub fn insert(&mut self, value: T) -> (u32, u32) {
        if let Some(index) = self.free.pop() {
            let slot = &mut self.slots[index as usize];
            slot.value = Some(value);
            return (index, slot.generation);
        }
        self.slots.push(Slot { generation: 0, value: Some(value) });
        (self.slots.len() as u32 - 1, 0)
    }

    /// Empties a slot; its next use is a new generation.
    pub fn remove(&mut self, index: u32) -> Option<T> {
        let slot = self.slots.get_mut(index as usize)?;
        let value = slot.value.take()?;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(index);
        Some(value)
    }

    /// The value in slot `index`.
    pub fn get(&self, index: u32) -> Option<&T> {
        self.slots.get(index as usize)?.value.as_ref()
    }

    /// The value in slot `index`, to be changed.
    pub fn get_mut(&mut self, index: u32) -> Option<&mut T> {
        self.slots.get_mut(index as usize)?.value.as_mut()
    }

    /// True if slot `index` holds a value of this generation.
    pub fn is_current(&self, index: u32, generation: u32) -> bool {
        self.slots
            .get(index as usize)
            .is_some_and(|slot| slot.generation == generation && slot.value.is_some())
    }

    /// The generation of slot `index`.
    pub fn generation(&self, index: u32) -> u32 {
        self.slots.get(index as usize).map_or(0, |slot| slot.generation)
    }

    /// Values held.
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Every value with its index.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        let values = self.slots.iter().enumerate();
        values.filter_map(|(i, slot)| slot.value.as_ref().map(|value| (i as u32, value)))
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
        assert_eq!(slab.remove(index), Some('a'));
        assert_eq!(slab.remove(index), None);
        let (again, newer) = slab.insert('b');
        assert_eq!(again, index);
        assert!(slab.is_current(again, newer));
        assert!(!slab.is_current(index, generation));
        assert_eq!((slab.len(), slab.is_empty()), (1, false));
    }
}
