//! Datagrams on their way between a socket's task and the application, in order, one behind the
//! other in a ring that grows and shrinks.

use std::collections::VecDeque;

/// What a datagram counts for besides its bytes, as in the engine's queues.
const EACH: usize = 128;

/// An empty queue keeps no more memory than this for bytes, and no more entries than [`ENTRIES`].
const KEPT: usize = 2048;

const ENTRIES: usize = 8;

/// Entries of any length, each with what is to be said of it.
#[derive(Debug)]
pub(super) struct Queue<M> {
    entries: VecDeque<(M, usize)>,
    bytes: VecDeque<u8>,
}

impl<M> Default for Queue<M> {
    fn default() -> Self {
        Queue { entries: VecDeque::new(), bytes: VecDeque::new() }
    }
}

/// What an entry of so many bytes counts for.
pub(super) fn cost_of(len: usize) -> usize {
    len + EACH
}

impl<M> Queue<M> {
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// What all entries count for.
    pub(super) fn cost(&self) -> usize {
        self.bytes.len() + self.entries.len() * EACH
    }

    pub(super) fn push(&mut self, meta: M, bytes: &[u8]) {
        self.bytes.extend(bytes);
        self.entries.push_back((meta, bytes.len()));
    }

    /// What is said of the newest entry.
    pub(super) fn newest(&mut self) -> Option<&mut M> {
        self.entries.back_mut().map(|(meta, _)| meta)
    }

    /// The oldest entry, and its length.
    pub(super) fn oldest(&self) -> Option<(&M, usize)> {
        self.entries.front().map(|(meta, len)| (meta, *len))
    }

    /// Hands the first `len` bytes of the oldest entry to `sink`, in one piece or two.
    pub(super) fn copy(&self, len: usize, mut sink: impl FnMut(&[u8])) {
        let (first, second) = self.bytes.as_slices();
        let of_first = len.min(first.len());
        sink(&first[..of_first]);
        if of_first < len {
            sink(&second[..len - of_first]);
        }
    }

    /// Drops the first `len` bytes of the oldest entry, and the entry with its last one.
    pub(super) fn consume(&mut self, len: usize) {
        let Some(oldest) = self.entries.front_mut() else { return };
        oldest.1 -= len;
        let is_over = oldest.1 == 0;
        self.bytes.drain(..len);
        if is_over {
            self.entries.pop_front();
            self.shrink();
        }
    }

    /// Gives `with` the bytes of the oldest entry, in one piece.
    pub(super) fn with_oldest<R>(&mut self, with: impl FnOnce(&[u8]) -> R) -> R {
        let len = self.oldest().map_or(0, |(_, len)| len);
        if self.bytes.as_slices().0.len() < len {
            self.bytes.make_contiguous();
        }
        with(&self.bytes.as_slices().0[..len])
    }

    /// Takes the oldest entry, without its bytes.
    pub(super) fn pop(&mut self) -> Option<M> {
        let (meta, len) = self.entries.pop_front()?;
        self.bytes.drain(..len);
        self.shrink();
        Some(meta)
    }

    fn shrink(&mut self) {
        if !self.entries.is_empty() {
            return;
        }
        if self.bytes.capacity() > KEPT {
            self.bytes = VecDeque::new();
        }
        if self.entries.capacity() > ENTRIES {
            self.entries = VecDeque::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_keep_their_order_and_bytes_over_the_rings_end() {
        let mut queue = Queue::default();
        let (mut pushed, mut taken) = (0_usize, 0_usize);
        let bytes = |number: usize| vec![number as u8; number * 37 % 301];
        for round in 0..400 {
            for _ in 0..1 + round % 3 {
                queue.push(pushed, &bytes(pushed));
                pushed += 1;
            }
            let expected = bytes(taken);
            let len = queue.oldest().unwrap().1;
            assert_eq!((queue.oldest().unwrap().0, len), (&taken, expected.len()));
            let mut copied = Vec::new();
            queue.copy(len, |piece| copied.extend_from_slice(piece));
            assert_eq!(copied, expected);
            match round % 2 {
                0 => queue.consume(len),
                _ => {
                    queue.with_oldest(|bytes| assert_eq!(bytes, expected));
                    assert_eq!(queue.pop(), Some(taken));
                }
            }
            taken += 1;
        }
        let left: usize = (taken..pushed).map(|number| cost_of(bytes(number).len())).sum();
        assert_eq!(queue.cost(), left);
    }

    #[test]
    fn an_entry_goes_with_its_last_byte_and_little_is_kept() {
        let mut queue = Queue::default();
        queue.push('a', b"abcde");
        queue.consume(2);
        assert_eq!(queue.oldest(), Some((&'a', 3)));
        queue.push('b', b"");
        *queue.newest().unwrap() = 'c';
        queue.consume(3);
        assert_eq!(queue.oldest(), Some((&'c', 0)));
        queue.consume(0);
        assert!(queue.is_empty() && queue.cost() == 0);
        assert_eq!(queue.pop(), None);
        (0..100).for_each(|_| queue.push('d', &[0; 100]));
        (0..100).for_each(|_| queue.consume(100));
        assert!(queue.bytes.capacity() <= KEPT && queue.entries.capacity() <= ENTRIES);
    }
}
