//! The receive buffer: pages from the first unread byte on.
//!
//! ```text
//!   read position     RCV.NXT
//!      │  in order      │   out of order: written at its place
//!      ▼                ▼
//!   [··██████████][██████······██][ none ][··██········]
//!    page 0         page 1                  page 3
//! ```
//!
//! A byte beyond RCV.NXT goes where it will be read from, so nothing is moved when a hole is
//! filled. A page exists only where a byte has been written: an idle connection has none.

use crate::tcp::pool::{PAGE_BYTES, Page, PagePool};
use crate::tcp::queue::Queue;

/// Bytes received and not yet read.
#[derive(Debug, Default)]
pub struct RecvBuffer {
    pages: Queue<Option<Page>>,
    /// Where in the first page the next unread byte is.
    head: usize,
    /// Bytes that can be read: from the read position to RCV.NXT.
    readable: usize,
}

impl RecvBuffer {
    /// Bytes that can be read.
    pub fn len(&self) -> usize {
        self.readable
    }

    /// True if nothing can be read.
    pub fn is_empty(&self) -> bool {
        self.readable == 0
    }

    /// Writes `data` at RCV.NXT when nothing lies beyond, and moves RCV.NXT over it. False, and
    /// nothing is written, if the pool cannot give the pages.
    #[inline(always)]
    pub fn append(&mut self, data: &[u8], pool: &mut PagePool) -> bool {
        // The usual case: what came before has been read.
        if self.pages.is_empty() && data.len() <= PAGE_BYTES {
            debug_assert_eq!((self.head, self.readable), (0, 0));
            let Some(mut page) = pool.take() else { return false };
            page.bytes_mut()[..data.len()].copy_from_slice(data);
            self.pages.push_back(Some(page));
            self.readable = data.len();
            return true;
        }
        self.append_behind(data, pool)
    }

    #[inline(never)]
    fn append_behind(&mut self, data: &[u8], pool: &mut PagePool) -> bool {
        let is_written = self.write(0, data, pool);
        if is_written {
            self.advance(data.len());
        }
        is_written
    }

    /// Writes `data` at `offset` bytes beyond RCV.NXT. False, and nothing is written, if the pool
    /// cannot give the pages.
    #[inline(always)]
    pub fn write(&mut self, offset: usize, data: &[u8], pool: &mut PagePool) -> bool {
        let at = self.head + self.readable + offset;
        // The usual case: it lies in one page, which is there or is the next.
        let (index, within) = (at / PAGE_BYTES, at % PAGE_BYTES);
        if within + data.len() <= PAGE_BYTES
            && !data.is_empty()
            && let Some(page) = self.page_mut(index, pool)
        {
            page.bytes_mut()[within..within + data.len()].copy_from_slice(data);
            return true;
        }
        self.write_far(at, data, pool)
    }

    /// Writes `data` at `at` bytes from the start of the first page.
    #[inline(never)]
    fn write_far(&mut self, at: usize, mut data: &[u8], pool: &mut PagePool) -> bool {
        if data.is_empty() {
            return true;
        }
        let (first, last) = (at / PAGE_BYTES, (at + data.len() - 1) / PAGE_BYTES);
        // The usual case: what is new goes behind what is there, and the pool has pages.
        let is_next = first <= self.pages.len() && pool.available() > last - first;
        if !is_next && !self.provide_pages(first, last, pool) {
            return false;
        }
        let mut within = at % PAGE_BYTES;
        for index in first..=last {
            let (here, rest) = data.split_at(data.len().min(PAGE_BYTES - within));
            let Some(page) = self.page_mut(index, pool) else { return false };
            page.bytes_mut()[within..within + here.len()].copy_from_slice(here);
            (data, within) = (rest, 0);
        }
        true
    }

    /// Page `index`, taken from the pool if it is not there. `None` if it cannot be had, or one
    /// before it is not there.
    #[inline(always)]
    fn page_mut(&mut self, index: usize, pool: &mut PagePool) -> Option<&mut Page> {
        if index == self.pages.len() {
            let page = pool.take()?;
            self.pages.push_back(Some(page));
        }
        let page = self.pages.get_mut(index)?;
        if page.is_none() {
            *page = pool.take();
        }
        page.as_mut()
    }

    fn provide_pages(&mut self, first: usize, last: usize, pool: &mut PagePool) -> bool {
        let wanted = last + 1 - first;
        let present = self.pages.iter_from(first).take(wanted).filter(|p| p.is_some()).count();
        if pool.available() < wanted - present {
            return false;
        }
        for _ in self.pages.len()..=last {
            self.pages.push_back(None);
        }
        for slot in self.pages.iter_mut_from(first).take(wanted) {
            if slot.is_none() {
                *slot = pool.take();
            }
        }
        true
    }

    /// RCV.NXT has moved over `n` bytes that were written: they can be read.
    pub fn advance(&mut self, n: usize) {
        self.readable += n;
    }

    /// Copies the first readable bytes to `out` and returns how many; they stay.
    pub fn peek(&self, out: &mut [u8]) -> usize {
        let wanted = out.len().min(self.readable);
        if wanted > 0
            && self.head + wanted <= PAGE_BYTES
            && let Some(Some(page)) = self.pages.front()
        {
            out[..wanted].copy_from_slice(&page.bytes()[self.head..self.head + wanted]);
            return wanted;
        }
        let (mut at, mut done) = (self.head, 0);
        while done < wanted {
            let within = at % PAGE_BYTES;
            let n = (wanted - done).min(PAGE_BYTES - within);
            let page = self.pages.get(at / PAGE_BYTES).and_then(Option::as_ref);
            let page = page.expect("a readable byte has a page");
            out[done..done + n].copy_from_slice(&page.bytes()[within..within + n]);
            at += n;
            done += n;
        }
        done
    }

    /// Moves all that can be read to `out` and returns how many bytes that were, if they lie in one
    /// page, from its beginning, and are wanted all; else nothing has happened. Nothing may lie
    /// beyond RCV.NXT.
    #[inline]
    pub fn take_all(&mut self, out: &mut [u8], pool: &mut PagePool) -> Option<usize> {
        let Queue::One(Some(page)) = &self.pages else { return None };
        let len = self.readable;
        if len == 0 || self.head > 0 {
            return None;
        }
        out.get_mut(..len)?.copy_from_slice(page.bytes().get(..len)?);
        self.readable = 0;
        if let Some(Some(page)) = self.pages.take_only() {
            pool.put(page);
        }
        Some(len)
    }

    /// Drops the first `n` readable bytes, and the pages that are read to their end.
    #[inline]
    pub fn consume(&mut self, n: usize, pool: &mut PagePool) {
        debug_assert!(n <= self.readable);
        self.readable -= n;
        self.head += n;
        while self.head >= PAGE_BYTES {
            self.head -= PAGE_BYTES;
            self.release_front(pool);
        }
    }

    /// Drops what lies beyond RCV.NXT.
    pub fn truncate(&mut self, pool: &mut PagePool) {
        let kept = (self.head + self.readable).div_ceil(PAGE_BYTES);
        while self.pages.len() > kept {
            if let Some(Some(page)) = self.pages.pop_back() {
                pool.put(page);
            }
        }
    }

    /// Frees what holds nothing: call when nothing is out of order.
    pub fn trim(&mut self, pool: &mut PagePool) {
        if self.readable == 0 {
            self.clear(pool);
        }
    }

    /// Frees everything.
    pub fn clear(&mut self, pool: &mut PagePool) {
        while !self.pages.is_empty() {
            self.release_front(pool);
        }
        self.head = 0;
        self.readable = 0;
    }

    fn release_front(&mut self, pool: &mut PagePool) {
        if let Some(Some(page)) = self.pages.pop_front() {
            pool.put(page);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec;
    use std::vec::Vec;

    #[test]
    fn an_empty_buffer_holds_no_page() {
        let mut pool = PagePool::new(4);
        let mut buffer = RecvBuffer::default();
        assert!(buffer.write(0, b"hello", &mut pool));
        buffer.advance(5);
        let mut out = [0; 8];
        assert_eq!(buffer.peek(&mut out), 5);
        assert_eq!(&out[..5], b"hello");
        buffer.consume(5, &mut pool);
        buffer.trim(&mut pool);
        assert_eq!(pool.in_use(), 0);
    }

    #[test]
    fn when_the_pool_cannot_give_nothing_is_written() {
        let mut pool = PagePool::new(2);
        let mut buffer = RecvBuffer::default();
        assert!(!buffer.write(0, &vec![1; 2 * PAGE_BYTES + 1], &mut pool));
        assert_eq!(pool.in_use(), 0);
        assert!(buffer.write(0, &vec![1; 2 * PAGE_BYTES], &mut pool));
        assert!(!buffer.write(2 * PAGE_BYTES, &[1], &mut pool));
    }

    #[test]
    fn a_far_byte_costs_one_page() {
        let mut pool = PagePool::new(2);
        let mut buffer = RecvBuffer::default();
        assert!(buffer.write(100 * PAGE_BYTES, b"x", &mut pool));
        assert_eq!(pool.in_use(), 1);
        buffer.clear(&mut pool);
        assert_eq!(pool.in_use(), 0);
    }

    proptest! {
        #[test]
        fn gives_back_what_was_written(
            chunks in proptest::collection::vec(
                proptest::collection::vec(any::<u8>(), 1..5000), 1..20),
            reads in proptest::collection::vec(1usize..9000, 1..20),
        ) {
            let mut pool = PagePool::new(1000);
            let mut buffer = RecvBuffer::default();
            let (mut written, mut read) = (Vec::new(), Vec::new());
            let mut reads = reads.into_iter().cycle();
            for pair in chunks.chunks(2) {
                // The second chunk of each pair arrives first.
                if let [first, second] = pair {
                    prop_assert!(buffer.write(first.len(), second, &mut pool));
                }
                prop_assert!(buffer.write(0, &pair[0], &mut pool));
                let total: usize = pair.iter().map(Vec::len).sum();
                buffer.advance(total);
                written.extend(pair.concat());
                let mut out = vec![0; reads.next().unwrap_or(1)];
                let n = buffer.peek(&mut out);
                read.extend_from_slice(&out[..n]);
                buffer.consume(n, &mut pool);
            }
            let mut out = vec![0; buffer.len()];
            let n = buffer.peek(&mut out);
            read.extend_from_slice(&out[..n]);
            buffer.consume(n, &mut pool);
            buffer.trim(&mut pool);
            prop_assert_eq!(read, written);
            prop_assert_eq!(pool.in_use(), 0);
        }
    }
}
