//! Datagrams that wait: to be read by the application, or to be sent.
//!
//! Their bytes lie one behind the other in pages of the host's pool, as in a stream; the addresses
//! and lengths lie beside them. A run of datagrams of one size is one entry, and its last datagram
//! may be shorter: what a device joins, or is to cut, is one entry from the beginning.
//!
//! ```text
//!   pages     │······aaaa│aabbbbbbbb│bbbbcc····│
//!   entries    a: 6 bytes   b: 12 bytes, in datagrams of 5   c: 2 bytes
//! ```
//!
//! The queue is bounded in bytes. Each entry counts for [`ENTRY_BYTES`] besides its own, so that
//! empty datagrams are bounded, too.

use alloc::collections::VecDeque;

use crate::buffer::{PAGE_BYTES, Page, PagePool};

/// Bytes that an entry counts for beside those of its datagrams.
pub(crate) const ENTRY_BYTES: usize = 128;

/// Datagrams of one size that go together, and what is known of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry<M> {
    pub meta: M,
    /// Bytes of all of them.
    pub len: usize,
    /// Bytes of each but the last; at least one.
    pub segment: usize,
}

/// Why nothing was queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The queue holds as much as it may.
    Full,
    /// There are no pages left for datagrams.
    NoMemory,
}

/// Datagrams in the order in which they came.
#[derive(Debug)]
pub(crate) struct Queue<M> {
    pages: VecDeque<Page>,
    entries: VecDeque<Entry<M>>,
    /// Where the first entry's bytes begin in the first page.
    first: usize,
    /// Bytes of all entries.
    bytes: usize,
}

impl<M> Default for Queue<M> {
    fn default() -> Self {
        Queue { pages: VecDeque::new(), entries: VecDeque::new(), first: 0, bytes: 0 }
    }
}

impl<M> Queue<M> {
    /// True if nothing waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Bytes that it counts for.
    pub(crate) fn cost(&self) -> usize {
        self.bytes + self.entries.len() * ENTRY_BYTES
    }

    /// The entry that has waited longest.
    pub(crate) fn front(&self) -> Option<&Entry<M>> {
        self.entries.front()
    }

    /// The entry that came last.
    pub(crate) fn back(&self) -> Option<&Entry<M>> {
        self.entries.back()
    }

    /// True if an entry of `len` bytes more is within `limit`. An empty queue takes any.
    pub(crate) fn has_room(&self, len: usize, limit: usize) -> bool {
        self.is_empty() || self.cost() + ENTRY_BYTES + len <= limit
    }

    /// Adds `bytes` as datagrams of `segment` bytes, within `limit`.
    pub(crate) fn push(
        &mut self,
        pool: &mut PagePool,
        limit: usize,
        bytes: &[u8],
        segment: usize,
        meta: M,
    ) -> Result<(), Refusal> {
        if !self.has_room(bytes.len(), limit) {
            return Err(Refusal::Full);
        }
        self.append(pool, bytes)?;
        self.entries.push_back(Entry { meta, len: bytes.len(), segment: segment.max(1) });
        Ok(())
    }

    /// Adds a datagram to the last entry, which has the same meta, whose datagrams are all of its
    /// size, and which is longer than none.
    pub(crate) fn join(
        &mut self,
        pool: &mut PagePool,
        limit: usize,
        bytes: &[u8],
    ) -> Result<(), Refusal> {
        if self.cost() + bytes.len() > limit {
            return Err(Refusal::Full);
        }
        self.append(pool, bytes)?;
        if let Some(last) = self.entries.back_mut() {
            last.len += bytes.len();
        }
        Ok(())
    }

    /// Appends bytes behind those that are there; all or none.
    fn append(&mut self, pool: &mut PagePool, bytes: &[u8]) -> Result<(), Refusal> {
        let end = self.first + self.bytes;
        let wanted = (end + bytes.len()).div_ceil(PAGE_BYTES);
        let before = self.pages.len();
        while self.pages.len() < wanted {
            let Some(page) = pool.take_for_datagrams() else {
                self.pages.drain(before..).for_each(|page| pool.put_of_datagrams(page));
                return Err(Refusal::NoMemory);
            };
            self.pages.push_back(page);
        }
        let (mut at, mut left) = (end, bytes);
        while !left.is_empty() {
            let page = &mut self.pages[at / PAGE_BYTES].bytes_mut()[at % PAGE_BYTES..];
            let len = page.len().min(left.len());
            page[..len].copy_from_slice(&left[..len]);
            (at, left) = (at + len, &left[len..]);
        }
        self.bytes += bytes.len();
        Ok(())
    }

    /// Hands `len` bytes from `offset` on of the first entry to `visit`, piece by piece.
    pub(crate) fn visit(&self, offset: usize, len: usize, mut visit: impl FnMut(&[u8])) {
        debug_assert!(self.front().is_some_and(|entry| offset + len <= entry.len));
        let (mut at, mut left) = (self.first + offset, len);
        while left > 0 {
            let page = &self.pages[at / PAGE_BYTES].bytes()[at % PAGE_BYTES..];
            let len = page.len().min(left);
            visit(&page[..len]);
            (at, left) = (at + len, left - len);
        }
    }

    /// Copies as many bytes from `offset` on of the first entry as `out` has room for.
    pub(crate) fn copy(&self, offset: usize, out: &mut [u8]) {
        let mut out = out;
        self.visit(offset, out.len(), |piece| {
            let (to, rest) = core::mem::take(&mut out).split_at_mut(piece.len());
            to.copy_from_slice(piece);
            out = rest;
        });
    }

    /// The first `len` bytes of the first entry are done with, and the entry itself if they are
    /// all of it.
    pub(crate) fn consume(&mut self, pool: &mut PagePool, len: usize) {
        let Some(entry) = self.entries.front_mut() else { return };
        let len = len.min(entry.len);
        entry.len -= len;
        if entry.len == 0 {
            self.entries.pop_front();
        }
        self.bytes -= len;
        self.first += len;
        // The page that is being filled stays while anything waits.
        while self.bytes == 0 || self.first >= PAGE_BYTES {
            let Some(page) = self.pages.pop_front() else { break };
            pool.put_of_datagrams(page);
            self.first = self.first.saturating_sub(PAGE_BYTES);
        }
        if self.bytes == 0 {
            self.first = 0;
        }
    }

    /// Drops everything.
    pub(crate) fn clear(&mut self, pool: &mut PagePool) {
        self.pages.drain(..).for_each(|page| pool.put_of_datagrams(page));
        self.entries.clear();
        (self.first, self.bytes) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::collection::vec;
    use proptest::prelude::*;

    /// What the queue is to be like: entries as plain bytes.
    #[derive(Default)]
    struct Model(VecDeque<(u32, usize, Vec<u8>)>);

    impl Model {
        fn cost(&self) -> usize {
            self.0.iter().map(|(_, _, bytes)| bytes.len() + ENTRY_BYTES).sum()
        }
    }

    fn all_of(queue: &Queue<u32>, len: usize) -> Vec<u8> {
        let mut out = std::vec![0; len];
        queue.copy(0, &mut out);
        out
    }

    #[test]
    fn an_empty_queue_takes_any_datagram_and_others_keep_a_limit() {
        let mut pool = PagePool::new(64);
        let mut queue = Queue::default();
        assert_eq!(queue.push(&mut pool, 10, &[7; 11], 11, ()), Ok(()));
        assert_eq!(queue.push(&mut pool, 10, &[], 1, ()), Err(Refusal::Full));
        let limit = queue.cost() + ENTRY_BYTES + 5;
        assert_eq!(queue.push(&mut pool, limit, &[7; 6], 6, ()), Err(Refusal::Full));
        assert_eq!(queue.push(&mut pool, limit, &[7; 5], 5, ()), Ok(()));
    }

    #[test]
    fn a_datagram_for_which_pages_are_missing_takes_none() {
        let mut pool = PagePool::new(8);
        let mut queue = Queue::default();
        let three_pages = [7; 2 * PAGE_BYTES + 1];
        let refused = queue.push(&mut pool, usize::MAX, &three_pages, 1, ());
        assert_eq!((refused, pool.in_use()), (Err(Refusal::NoMemory), 0));
        assert_eq!(queue.push(&mut pool, usize::MAX, &three_pages[..PAGE_BYTES], 1, ()), Ok(()));
        queue.clear(&mut pool);
        assert_eq!((queue.is_empty(), pool.in_use()), (true, 0));
    }

    proptest! {
        #[test]
        fn behaves_like_a_list_of_bytes_and_gives_all_pages_back(
            steps in vec((0u8..4, 0usize..9000, 1usize..3000), 1..60), limit in 1usize..40_000,
        ) {
            let mut pool = PagePool::new(1 << 10);
            let (mut queue, mut model) = (Queue::default(), Model::default());
            for (number, (what, len, segment)) in steps.into_iter().enumerate() {
                let meta = number as u32;
                let bytes: Vec<u8> = (0..len).map(|at| (at * 7 + number) as u8).collect();
                match what {
                    0 | 1 => {
                        let fits = model.0.is_empty() || model.cost() + ENTRY_BYTES + len <= limit;
                        let pushed = queue.push(&mut pool, limit, &bytes, segment, meta);
                        prop_assert_eq!(pushed.is_ok(), fits);
                        if fits {
                            model.0.push_back((meta, segment, bytes));
                        }
                    }
                    2 if !model.0.is_empty() => {
                        let fits = model.cost() + len <= limit;
                        prop_assert_eq!(queue.join(&mut pool, limit, &bytes).is_ok(), fits);
                        if fits {
                            model.0.back_mut().unwrap().2.extend(bytes);
                        }
                    }
                    _ => {
                        queue.consume(&mut pool, len);
                        if let Some((_, _, front)) = model.0.front_mut() {
                            front.drain(..len.min(front.len()));
                            if front.is_empty() {
                                model.0.pop_front();
                            }
                        }
                    }
                }
                prop_assert_eq!(queue.cost(), model.cost());
                prop_assert_eq!(queue.is_empty(), model.0.is_empty());
                if let Some((meta, segment, bytes)) = model.0.front() {
                    let front = queue.front().unwrap();
                    let told = (front.meta, front.segment, front.len);
                    prop_assert_eq!(told, (*meta, *segment, bytes.len()));
                    prop_assert_eq!(&all_of(&queue, bytes.len()), bytes);
                }
                let most = queue.bytes.div_ceil(PAGE_BYTES) + 1;
                prop_assert!(pool.in_use() <= most && (!queue.is_empty() || pool.in_use() == 0));
            }
            queue.clear(&mut pool);
            prop_assert_eq!(pool.in_use(), 0);
        }
    }
}
