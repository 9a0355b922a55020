//! A queue that is mostly emptied before more is put in.

use alloc::vec::Vec;

/// First in, first out. What is gone from the front is passed by, and its room is used again when
/// the queue is empty, or when there is no other and it is half of all.
#[derive(Debug)]
pub(super) struct Fifo<T> {
    items: Vec<T>,
    /// The first that is not gone.
    first: usize,
}

impl<T> Default for Fifo<T> {
    fn default() -> Self {
        Fifo { items: Vec::new(), first: 0 }
    }
}

impl<T> Fifo<T> {
    /// How many there are.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.items.len() - self.first
    }

    /// True if there are none.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.items.len() == self.first
    }

    /// One more, behind the others.
    #[inline]
    pub(super) fn push(&mut self, item: T) {
        if self.items.len() == self.items.capacity() {
            self.close_up();
        }
        self.items.push(item);
    }

    /// The one before which `ahead` others are.
    #[inline]
    pub(super) fn get(&self, ahead: usize) -> Option<&T> {
        self.items.get(self.first + ahead)
    }

    /// The same, to be changed.
    #[inline]
    pub(super) fn get_mut(&mut self, ahead: usize) -> Option<&mut T> {
        self.items.get_mut(self.first + ahead)
    }

    /// The first `count` go, or all.
    #[inline]
    pub(super) fn drop_first(&mut self, count: usize) {
        self.first += count;
        if self.first >= self.items.len() {
            self.items.clear();
            self.first = 0;
        }
    }

    /// What is passed by goes, if no more than that moves.
    #[cold]
    fn close_up(&mut self) {
        if self.first >= self.len() {
            self.items.drain(..self.first);
            self.first = 0;
        }
    }
}

impl<T: Copy> Fifo<T> {
    /// Takes the first.
    #[inline]
    pub(super) fn pop(&mut self) -> Option<T> {
        let first = *self.get(0)?;
        self.drop_first(1);
        Some(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    proptest! {
        #[test]
        fn it_is_a_queue(steps in prop::collection::vec((0u8..5, 0usize..9), 0..300)) {
            let (mut fifo, mut model, mut most) = (Fifo::default(), VecDeque::new(), 0);
            for (number, (what, count)) in steps.into_iter().enumerate() {
                match what {
                    0 => prop_assert_eq!(fifo.pop(), model.pop_front()),
                    1 => {
                        fifo.drop_first(count.min(model.len()));
                        model.drain(..count.min(model.len()));
                    }
                    _ => {
                        fifo.push(number);
                        model.push_back(number);
                    }
                }
                prop_assert_eq!((fifo.len(), fifo.is_empty()), (model.len(), model.is_empty()));
                prop_assert_eq!(fifo.get(count), model.get(count));
                prop_assert_eq!(fifo.get_mut(count), model.get_mut(count));
                most = most.max(model.len());
                prop_assert!(fifo.items.capacity() <= 4 * most.max(4));
            }
        }
    }
}
