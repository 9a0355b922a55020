//! A line of waiting connections: a queue that is nearly always emptied before it is filled again,
//! so that its end need not meet its beginning. Nothing wraps around, and adding and taking cost a
//! few instructions less than in a ring.

use alloc::vec::Vec;

/// First in, first out.
#[derive(Debug)]
pub(crate) struct Fifo<T> {
    /// The elements that wait, behind the first `gone`, which wait no more. Empty if none waits.
    all: Vec<T>,
    gone: usize,
}

impl<T> Default for Fifo<T> {
    fn default() -> Self {
        Fifo { all: Vec::new(), gone: 0 }
    }
}

impl<T: Copy> Fifo<T> {
    /// How many wait.
    pub(crate) fn len(&self) -> usize {
        self.all.len() - self.gone
    }

    /// True if the line is empty.
    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Adds one at the end.
    #[inline(always)]
    pub(crate) fn push_back(&mut self, item: T) {
        if self.all.len() == self.all.capacity() {
            self.move_up();
        }
        self.all.push(item);
    }

    /// Makes room at the end, if at least half of all are gone: so each is moved once at most for
    /// one that has gone. Else the line becomes longer.
    fn move_up(&mut self) {
        if self.gone >= self.all.len().div_ceil(2) {
            self.all.drain(..self.gone);
            self.gone = 0;
        }
    }

    /// The element that has `ahead` others before it.
    pub(crate) fn get(&self, ahead: usize) -> Option<T> {
        self.all.get(self.gone + ahead).copied()
    }

    /// Takes out the oldest.
    pub(crate) fn pop_front(&mut self) -> Option<T> {
        let front = self.get(0)?;
        self.drop_first(1);
        Some(front)
    }

    /// The `count` oldest, no more than wait, are gone.
    pub(crate) fn drop_first(&mut self, count: usize) {
        self.gone += count;
        if self.gone >= self.all.len() {
            self.all.clear();
            self.gone = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::VecDeque;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn behaves_like_a_deque_and_does_not_grow_with_what_is_gone(
            steps in proptest::collection::vec((0usize..6, 1usize..20), 1..200),
        ) {
            let (mut line, mut model, mut longest) = (Fifo::default(), VecDeque::new(), 0);
            for (number, (what, count)) in steps.into_iter().enumerate() {
                match what {
                    0..3 => (0..count).for_each(|more| {
                        line.push_back((number, more));
                        model.push_back((number, more));
                    }),
                    3 => prop_assert_eq!(line.pop_front(), model.pop_front()),
                    _ => {
                        let count = count.min(model.len());
                        line.drop_first(count);
                        model.drain(..count);
                    }
                }
                longest = longest.max(model.len());
                prop_assert_eq!((line.len(), line.is_empty()), (model.len(), model.is_empty()));
                let alike = |ahead| line.get(ahead).as_ref() == model.get(ahead);
                prop_assert!((0..=model.len()).all(alike));
                prop_assert!(line.all.capacity() <= (4 * longest).max(4));
            }
        }
    }
}
