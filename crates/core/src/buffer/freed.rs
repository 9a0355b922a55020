//! Freed pages that are kept for reuse.

use alloc::vec::Vec;

use super::{KEPT_BYTES, Page};

/// Freed pages of one size.
#[derive(Debug, Default)]
pub(super) struct Freed<const BYTES: usize> {
    /// The first `len` of them hold a page. (Places that are made once are filled and emptied by
    /// less than what it takes to push and pop.)
    places: Vec<Option<Page<BYTES>>>,
    len: usize,
}

impl<const BYTES: usize> Freed<BYTES> {
    /// The one that was freed last.
    pub(super) fn pop(&mut self) -> Option<Page<BYTES>> {
        let last = self.len.wrapping_sub(1);
        let page = self.places.get_mut(last).and_then(Option::take);
        if page.is_some() {
            self.len = last;
        }
        page
    }

    /// A page for another use, if more are kept than are always kept.
    pub(super) fn lend(&mut self) -> Option<Page<BYTES>> {
        if self.is_full() { self.pop() } else { None }
    }

    /// Keeps `page`, unless there are many, and more than are out of the pool. Then one that is
    /// kept goes as well: after a burst the memory is given back, and not only no more is kept.
    #[inline(always)]
    pub(super) fn put(&mut self, page: Page<BYTES>, bytes_out: usize) {
        if self.is_full() && self.is_plenty(bytes_out) {
            drop(self.pop());
            return;
        }
        match self.places.get_mut(self.len) {
            // It is empty. Told that, the compiler drops nothing.
            Some(place) if place.is_none() => *place = Some(page),
            _ => {
                self.places.push(Some(page));
            }
        }
        self.len += 1;
    }

    /// True if as many pages are kept as are always kept.
    fn is_full(&self) -> bool {
        self.len >= KEPT_BYTES / BYTES
    }

    fn is_plenty(&self, bytes_out: usize) -> bool {
        self.bytes() >= bytes_out
    }

    /// Bytes that are kept.
    pub(super) fn bytes(&self) -> usize {
        self.len * BYTES
    }

    /// Drops pages until `bytes` less are kept, or none is. Returns what is still to be dropped.
    pub(super) fn shed(&mut self, mut bytes: usize) -> usize {
        while bytes > 0 && self.pop().is_some() {
            bytes = bytes.saturating_sub(BYTES);
        }
        bytes
    }
}
