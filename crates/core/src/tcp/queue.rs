//! A queue that holds one element in place, and allocates for more.
//!
//! What a connection keeps in queues (chunks to send, pages received, segments in flight) is none
//! or one on most connections, most of the time. An empty queue owns no memory; one that has held
//! more keeps its room until it is empty, so that nothing is moved while it is in use.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use core::{mem, slice};

/// First in, first out.
#[derive(Debug, Default)]
pub enum Queue<T> {
    /// Nothing.
    #[default]
    Empty,
    /// One element.
    One(T),
    /// Elements, at least one; there have been more since the queue was empty.
    More(Box<VecDeque<T>>),
}

impl<T> Queue<T> {
    /// Elements held.
    pub fn len(&self) -> usize {
        match self {
            Queue::Empty => 0,
            Queue::One(_) => 1,
            Queue::More(all) => all.len(),
        }
    }

    /// True if there is none.
    pub fn is_empty(&self) -> bool {
        matches!(self, Queue::Empty)
    }

    /// The oldest.
    pub fn front(&self) -> Option<&T> {
        match self {
            Queue::Empty => None,
            Queue::One(one) => Some(one),
            Queue::More(all) => all.front(),
        }
    }

    /// The newest.
    pub fn back(&self) -> Option<&T> {
        match self {
            Queue::Empty => None,
            Queue::One(one) => Some(one),
            Queue::More(all) => all.back(),
        }
    }

    /// The newest, to be changed.
    pub(crate) fn back_mut(&mut self) -> Option<&mut T> {
        match self {
            Queue::Empty => None,
            Queue::One(one) => Some(one),
            Queue::More(all) => all.back_mut(),
        }
    }

    /// The `index`th, counted from the oldest.
    pub fn get(&self, index: usize) -> Option<&T> {
        match self {
            Queue::One(one) if index == 0 => Some(one),
            Queue::Empty | Queue::One(_) => None,
            Queue::More(all) => all.get(index),
        }
    }

    /// The `index`th, to be changed.
    pub fn get_mut(&mut self, index: usize) -> Option<&mut T> {
        match self {
            Queue::One(one) if index == 0 => Some(one),
            Queue::Empty | Queue::One(_) => None,
            Queue::More(all) => all.get_mut(index),
        }
    }

    /// Adds one at the end.
    #[inline(always)]
    pub fn push_back(&mut self, value: T) {
        match self {
            Queue::Empty => {
                // Empty, it has nothing to drop: the assertion costs no instruction, a drop does.
                let empty = mem::replace(self, Queue::One(value));
                assert!(matches!(empty, Queue::Empty));
                mem::forget(empty);
            }
            Queue::One(_) => self.become_more(value),
            Queue::More(all) => all.push_back(value),
        }
    }

    fn become_more(&mut self, value: T) {
        let mut all = VecDeque::with_capacity(4);
        all.extend(self.take_one());
        all.push_back(value);
        *self = Queue::More(Box::new(all));
    }

    /// The only element of a queue that has not held more; it is empty then.
    #[inline(always)]
    fn take_one(&mut self) -> Option<T> {
        match mem::take(self) {
            Queue::One(one) => Some(one),
            Queue::Empty => None,
            Queue::More(_) => unreachable!("its caller has looked"),
        }
    }

    /// Takes out the one element, if there is one and was no more.
    pub(crate) fn take_only(&mut self) -> Option<T> {
        if matches!(self, Queue::One(_)) { self.take_one() } else { None }
    }

    /// Takes out the only element, if there never was a second one and `is_it` accepts it.
    #[inline(always)]
    pub(crate) fn take_only_if(&mut self, is_it: impl FnOnce(&T) -> bool) -> Option<T> {
        if matches!(self, Queue::One(one) if is_it(one)) { self.take_one() } else { None }
    }

    /// Takes the oldest out.
    pub fn pop_front(&mut self) -> Option<T> {
        let Queue::More(all) = self else { return self.take_one() };
        let front = all.pop_front();
        self.shrink();
        front
    }

    /// Takes the newest out.
    pub(crate) fn pop_back(&mut self) -> Option<T> {
        let Queue::More(all) = self else { return self.take_one() };
        let back = all.pop_back();
        self.shrink();
        back
    }

    fn shrink(&mut self) {
        if let Queue::More(all) = self
            && all.is_empty()
        {
            *self = Queue::Empty;
        }
    }

    /// How many at the front `is_before` says yes of; it says so of none behind the first no.
    pub fn partition_point(&self, is_before: impl FnMut(&T) -> bool) -> usize {
        match self {
            Queue::Empty => 0,
            Queue::One(one) => slice::from_ref(one).partition_point(is_before),
            Queue::More(all) => all.partition_point(is_before),
        }
    }

    /// All from the `index`th on.
    pub(crate) fn iter_from(&self, index: usize) -> impl Iterator<Item = &T> {
        let (one, all) = match self {
            Queue::Empty => (None, None),
            Queue::One(one) => (Some(one), None),
            Queue::More(all) => (None, Some(all)),
        };
        one.into_iter().chain(all.into_iter().flat_map(|all| all.iter())).skip(index)
    }

    /// All from the `index`th on, to be changed.
    pub(crate) fn iter_mut_from(&mut self, index: usize) -> impl Iterator<Item = &mut T> {
        let (one, all) = match self {
            Queue::Empty => (None, None),
            Queue::One(one) => (Some(one), None),
            Queue::More(all) => (None, Some(all)),
        };
        one.into_iter().chain(all.into_iter().flat_map(|all| all.iter_mut())).skip(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    proptest! {
        #[test]
        fn behaves_like_a_deque_and_owns_nothing_when_empty(
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
                prop_assert_eq!(matches!(queue, Queue::Empty), model.is_empty());
                prop_assert!(model.len() <= 1 || matches!(queue, Queue::More(_)));
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
