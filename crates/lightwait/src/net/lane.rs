//! Bytes on their way, in order: pages, and small pieces together behind them.
//!
//! One end fills a lane under a lock. The other swaps it for its own empty one, and empties that
//! without the lock.

use std::collections::VecDeque;

use bytes::{Buf, Bytes};

/// Pieces of no more bytes than this are copied into one page.
pub(super) const SMALL: usize = 4096;

/// An empty lane keeps no more memory than this for small pieces.
const KEPT: usize = 1024;

#[derive(Debug, Default)]
pub(super) struct Lane {
    pages: VecDeque<Bytes>,
    /// Small pieces, behind the pages.
    tail: Vec<u8>,
    /// Bytes of `tail` that were taken.
    taken: usize,
}

impl Lane {
    pub(super) fn is_empty(&self) -> bool {
        self.pages.is_empty() && self.tail.is_empty()
    }

    /// The number of pages, small pieces not counted.
    pub(super) fn pages(&self) -> usize {
        self.pages.len()
    }

    /// Copies a piece, of [`SMALL`] bytes at most, behind the rest.
    pub(super) fn append(&mut self, piece: &[u8]) {
        if self.tail.len() + piece.len() > SMALL {
            self.close_tail();
        }
        self.tail.extend_from_slice(piece);
    }

    /// Puts a page behind the rest.
    pub(super) fn push(&mut self, page: Bytes) {
        self.close_tail();
        if !page.is_empty() {
            self.pages.push_back(page);
        }
    }

    fn close_tail(&mut self) {
        if !self.tail.is_empty() {
            let mut page = Bytes::from(std::mem::take(&mut self.tail));
            page.advance(std::mem::take(&mut self.taken));
            self.pages.push_back(page);
        }
    }

    /// The first piece, if it is a page.
    pub(super) fn first_page(&self) -> Option<&Bytes> {
        self.pages.front()
    }

    /// The first bytes, some at least if there are any.
    pub(super) fn first(&self) -> &[u8] {
        self.pages.front().map_or(&self.tail[self.taken..], |page| page)
    }

    /// Every piece, in order.
    pub(super) fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        let pages = self.pages.iter().map(|page| &page[..]);
        pages.chain(std::iter::once(&self.tail[self.taken..]))
    }

    /// Drops the first `len` bytes, which must be within [`Lane::first`].
    pub(super) fn advance(&mut self, len: usize) {
        if let Some(page) = self.pages.front_mut() {
            page.advance(len);
            if page.is_empty() {
                self.pages.pop_front();
            }
            return;
        }
        self.taken += len;
        if self.taken == self.tail.len() {
            self.taken = 0;
            self.tail.clear();
            if self.tail.capacity() > KEPT {
                self.tail = Vec::new();
            }
        }
    }

    /// Drops everything, and returns how many bytes that were.
    pub(super) fn clear(&mut self) -> usize {
        let len = self.pieces().map(<[u8]>::len).sum();
        *self = Lane::default();
        len
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes of a lane, which is empty afterwards, taken `step` at a time.
    fn emptied(lane: &mut Lane, step: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        while !lane.is_empty() {
            let len = lane.first().len().min(step);
            assert_ne!(len, 0);
            bytes.extend_from_slice(&lane.first()[..len]);
            lane.advance(len);
        }
        assert!(lane.first().is_empty());
        bytes
    }

    #[test]
    fn pieces_and_pages_keep_their_order() {
        for step in [1, 7, usize::MAX] {
            let (mut lane, mut expected) = (Lane::default(), Vec::new());
            for number in 0..200_u8 {
                let piece = vec![number; 1 + usize::from(number) * 7 % 300];
                expected.extend_from_slice(&piece);
                match number % 5 {
                    0 => lane.push(piece.into()),
                    _ => lane.append(&piece),
                }
                lane.push(Bytes::new());
            }
            assert_eq!(lane.pieces().flatten().copied().collect::<Vec<_>>(), expected);
            assert_eq!(emptied(&mut lane, step), expected);
        }
    }

    #[test]
    fn small_pieces_share_pages_and_an_empty_lane_keeps_little() {
        let mut lane = Lane::default();
        (0..SMALL).for_each(|_| lane.append(b"x"));
        assert_eq!(lane.pages(), 0);
        lane.append(b"y");
        assert_eq!(lane.pages(), 1);
        assert_eq!(emptied(&mut lane, 1000).len(), SMALL + 1);
        lane.append(&[1; KEPT + 1]);
        emptied(&mut lane, 1000);
        assert!(lane.tail.capacity() <= KEPT);
        lane.append(b"z");
        lane.append(b"z");
        lane.advance(1);
        lane.push(Bytes::from_static(b"page"));
        assert_eq!(lane.clear(), 5, "what was taken does not count");
        assert!(lane.is_empty());
    }
}
