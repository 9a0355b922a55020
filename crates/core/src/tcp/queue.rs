//! A queue that holds one element in place, and allocates for more.
//!
//! What a connection keeps in queues (chunks to send, pages received, segments in flight) is none
//! or one on most connections, most of the time. An empty queue owns no memory.

use alloc::boxed::Box;
use alloc::collections::VecDeque;

/// First in, first out.
#[derive(Debug)]
#[expect(clippy::box_collection, reason = "a word where nearly always nothing is")]
pub struct Queue<T> {
    /// The oldest; none if the queue is empty.
    first: Option<T>,
    /// The others; not there if there are none.
    more: Option<Box<VecDeque<T>>>,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Queue { first: None, more: None }
    }
}

impl<T> Queue<T> {
    /// Elements held.
    #[inline]
    pub fn len(&self) -> usize {
        usize::from(self.first.is_some()) + self.more.as_ref().map_or(0, |more| more.len())
    }

    /// True if there is none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    /// The oldest.
    #[inline]
    pub fn front(&self) -> Option<&T> {
        self.first.as_ref()
    }

    /// The newest, to be changed.
    #[inline]
    pub fn back_mut(&mut self) -> Option<&mut T> {
        match &mut self.more {
            Some(more) => more.back_mut(),
            None => self.first.as_mut(),
        }
    }

    /// The `index`th, counted from the oldest.
    #[inline]
    pub fn get(&self, index: usize) -> Option<&T> {
        match index {
            0 => self.first.as_ref(),
            _ => self.more.as_ref()?.get(index - 1),
        }
    }

    /// The `index`th, to be changed.
    #[inline]
    pub fn get_mut(&mut self, index: usize) -> Option<&mut T> {
        match index {
            0 => self.first.as_mut(),
            _ => self.more.as_mut()?.get_mut(index - 1),
        }
    }

    /// Adds one at the end.
    #[inline]
    pub fn push_back(&mut self, value: T) {
        if self.first.is_none() {
            self.first = Some(value);
        } else {
            self.push_behind(value);
        }
    }

    #[inline(never)]
    fn push_behind(&mut self, value: T) {
        self.more.get_or_insert_default().push_back(value);
    }

    /// Takes the oldest out.
    #[inline]
    pub fn pop_front(&mut self) -> Option<T> {
        let front = self.first.take();
        if self.more.is_some() {
            self.move_up();
        }
        front
    }

    /// The second becomes the oldest.
    #[inline(never)]
    fn move_up(&mut self) {
        self.first = self.more.as_mut().and_then(|more| more.pop_front());
        self.shrink();
    }

    /// Takes the newest out.
    pub fn pop_back(&mut self) -> Option<T> {
        let back = match &mut self.more {
            Some(more) => more.pop_back(),
            None => self.first.take(),
        };
        self.shrink();
        back
    }

    fn shrink(&mut self) {
        if self.more.as_ref().is_some_and(|more| more.is_empty()) {
            self.more = None;
        }
    }

    /// How many at the front `is_before` says yes of; it says so of none behind the first no.
    pub fn partition_point(&self, mut is_before: impl FnMut(&T) -> bool) -> usize {
        match &self.first {
            Some(first) if is_before(first) => {
                1 + self.more.as_ref().map_or(0, |more| more.partition_point(is_before))
            }
            _ => 0,
        }
    }

    /// All from the `index`th on.
    pub fn iter_from(&self, index: usize) -> impl Iterator<Item = &T> {
        let first = self.first.iter().skip(index);
        let others = self.more.as_ref().map(|more| more.iter().skip(index.saturating_sub(1)));
        first.chain(others.into_iter().flatten())
    }

    /// All from the `index`th on, to be changed.
    pub fn iter_mut_from(&mut self, index: usize) -> impl Iterator<Item = &mut T> {
        let first = self.first.iter_mut().skip(index);
        let others = self.more.as_mut().map(|more| more.iter_mut().skip(index.saturating_sub(1)));
        first.chain(others.into_iter().flatten())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    proptest! {
        #[test]
        fn behaves_like_a_deque_and_is_small_when_it_holds_one(
            steps in proptest::collection::vec((0u8..4, any::<u8>()), 1..60),
        ) {
            let (mut queue, mut model) = (Queue::default(), VecDeque::new());
            for (what, value) in steps {
                match what {
                    0 | 1 => {
                        queue.push_back(value);
                        model.push_back(value);
                    }
                    2 => prop_assert_eq!(queue.pop_front(), model.pop_front()),
                    _ => prop_assert_eq!(queue.pop_back(), model.pop_back()),
                }
                prop_assert_eq!((queue.len(), queue.is_empty()), (model.len(), model.is_empty()));
                prop_assert_eq!(queue.front(), model.front());
                prop_assert_eq!(queue.back_mut(), model.back_mut());
                for from in 0..=model.len() {
                    let rest: Vec<u8> = queue.iter_from(from).copied().collect();
                    prop_assert!(rest.iter().eq(model.iter().skip(from)));
                    let rest: Vec<u8> = queue.iter_mut_from(from).map(|v| *v).collect();
                    prop_assert!(rest.iter().eq(model.iter().skip(from)));
                    prop_assert_eq!(queue.get(from), model.get(from));
                    prop_assert_eq!(queue.get_mut(from), model.get_mut(from));
                }
                prop_assert_eq!(queue.more.is_some(), model.len() > 1);
            }
        }

        #[test]
        fn the_partition_point_is_where_the_first_no_is(count in 0usize..20, at in 0usize..20) {
            let mut queue = Queue::default();
            (0..count).for_each(|i| queue.push_back(i));
            prop_assert_eq!(queue.partition_point(|value| *value < at), at.min(count));
        }
    }
}
