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
//!
//! A short text waits in a small page, as long as it is alone. (Many of them would all begin where
//! a page begins, and of what lies at the same place of different pages, first-level caches hold
//! eight, second-level ones some hundred.)

use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

use crate::buffer::{PAGE_BYTES, Page, PagePool, Purpose, SMALL_BYTES, Side, SmallPage};
use crate::tcp::queue::Queue;
use crate::wire::checksum::{Sum, copy_and_sum};

/// Memory for so much of the stream as a page holds.
#[derive(Debug, Default)]
enum Memory {
    /// None: no byte of it has come.
    #[default]
    Hole,
    /// For its beginning: of the rest no byte has come.
    Small(SmallPage),
    /// For all of it.
    Whole(Page),
}

impl Memory {
    fn bytes(&self) -> &[u8] {
        match self {
            Memory::Hole => &[],
            Memory::Small(page) => page.bytes(),
            Memory::Whole(page) => page.bytes(),
        }
    }

    /// A whole page in its stead, with what is in it; false if it cannot be had.
    fn widen(&mut self, pool: &mut PagePool) -> bool {
        let Some(mut page) = pool.take(Purpose::Receive) else { return false };
        let narrow = self.bytes();
        page.bytes_mut()[..narrow.len()].copy_from_slice(narrow);
        core::mem::replace(self, Memory::Whole(page)).release(pool);
        true
    }

    #[inline(always)]
    fn release(self, pool: &mut PagePool) {
        match self {
            Memory::Hole => {}
            Memory::Small(page) => pool.put_small(Side::Receive, page),
            Memory::Whole(page) => pool.put(page),
        }
    }
}

/// Bytes received and not yet read.
#[derive(Default)]
pub(crate) struct RecvBuffer {
    pages: Queue<Memory>,
    /// Where in the first page the next unread byte is.
    head: usize,
    /// Bytes that can be read: from the read position to RCV.NXT.
    readable: usize,
}

impl RecvBuffer {
    /// Bytes that can be read.
    pub(crate) fn len(&self) -> usize {
        self.readable
    }

    /// True if nothing can be read.
    pub(crate) fn is_empty(&self) -> bool {
        self.readable == 0
    }

    /// True if it has no memory.
    pub(crate) fn owns_nothing(&self) -> bool {
        self.pages.is_empty()
    }

    /// Writes `data` at RCV.NXT when nothing lies beyond, and moves RCV.NXT over it. False, and
    /// nothing is written, if the pool cannot give the pages.
    #[inline(always)]
    pub(crate) fn append(&mut self, data: &[u8], pool: &mut PagePool) -> bool {
        // The usual case: what came before has been read.
        if !self.pages.is_empty() || data.len() > PAGE_BYTES {
            return self.append_behind(data, pool);
        }
        debug_assert_eq!((self.head, self.readable), (0, 0));
        let is_written = self.begin(0, data, pool);
        if is_written {
            self.readable = data.len();
        }
        is_written
    }

    /// Writes what is the first, into one page, `at` bytes from its beginning.
    #[inline(always)]
    fn begin(&mut self, at: usize, data: &[u8], pool: &mut PagePool) -> bool {
        let (begin, end) = (at, at + data.len());
        let place = if end <= SMALL_BYTES {
            let Some(mut page) = pool.take_small(Purpose::Receive) else { return false };
            page.bytes_mut()[begin..end].copy_from_slice(data);
            Memory::Small(page)
        } else {
            let Some(mut page) = pool.take(Purpose::Receive) else { return false };
            page.bytes_mut()[begin..end].copy_from_slice(data);
            Memory::Whole(page)
        };
        self.pages.push_back(place);
        true
    }

    fn append_behind(&mut self, data: &[u8], pool: &mut PagePool) -> bool {
        let is_written =
            self.write_next(data, pool, <[u8]>::copy_from_slice) || self.write(0, data, pool);
        if is_written {
            self.advance(data.len());
        }
        is_written
    }

    /// Writes `data` at RCV.NXT, which stays, when nothing lies beyond, and sums it on the way.
    /// [`RecvBuffer::truncate`] drops what is then found wrong. `None`, and nothing is written, if
    /// it would not begin in a whole page and end there or in another that can be had.
    pub(crate) fn write_and_sum(&mut self, data: &[u8], pool: &mut PagePool) -> Option<Sum> {
        let mut total = Sum::ZERO;
        let copy = |to: &mut [u8], from: &[u8]| total = total.then(copy_and_sum(to, from));
        self.write_next(data, pool, copy).then_some(total)
    }

    /// Writes `data` at RCV.NXT by `copy`, when nothing lies beyond, if the last page is a whole
    /// one and one more is enough. False, and nothing is written, if not.
    fn write_next(
        &mut self,
        data: &[u8],
        pool: &mut PagePool,
        mut copy: impl FnMut(&mut [u8], &[u8]),
    ) -> bool {
        let begin = self.head + self.readable + PAGE_BYTES;
        let begin = begin.wrapping_sub(self.pages.len() * PAGE_BYTES);
        let Some(Memory::Whole(last)) = self.pages.back_mut() else { return false };
        let Some(free) = last.bytes_mut().get_mut(begin..) else { return false };
        if let Some(place) = free.get_mut(..data.len()) {
            copy(place, data);
            return true;
        }
        let (here, behind) = data.split_at(free.len());
        if behind.len() > PAGE_BYTES {
            return false;
        }
        let Some(mut page) = pool.take(Purpose::Receive) else { return false };
        copy(free, here);
        copy(&mut page.bytes_mut()[..behind.len()], behind);
        self.pages.push_back(Memory::Whole(page));
        true
    }

    /// Writes `data` at `offset` bytes beyond RCV.NXT. False, and nothing is written, if the pool
    /// cannot give the pages.
    pub(crate) fn write(&mut self, offset: usize, data: &[u8], pool: &mut PagePool) -> bool {
        let at = self.head + self.readable + offset;
        // The usual case: it lies in one page, which is there.
        let (index, within) = (at / PAGE_BYTES, at % PAGE_BYTES);
        if let Some(Memory::Whole(page)) = self.pages.get_mut(index)
            && let Some(place) = page.bytes_mut().get_mut(within..within + data.len())
        {
            place.copy_from_slice(data);
            return true;
        }
        self.write_far(at, data, pool)
    }

    /// Writes `data` at `at` bytes from the start of the first page.
    fn write_far(&mut self, at: usize, mut data: &[u8], pool: &mut PagePool) -> bool {
        if data.is_empty() {
            return true;
        }
        let end = at + data.len();
        if self.pages.is_empty() && end <= PAGE_BYTES {
            return self.begin(at, data, pool);
        }
        if let Queue::One(Memory::Small(page)) = &mut self.pages
            && let Some(place) = page.bytes_mut().get_mut(at..end)
        {
            place.copy_from_slice(data);
            return true;
        }
        let (first, last) = (at / PAGE_BYTES, (end - 1) / PAGE_BYTES);
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

    /// Page `index`, a whole one, taken from the pool if it is not there. `None` if it cannot be
    /// had, or one before it is not there.
    fn page_mut(&mut self, index: usize, pool: &mut PagePool) -> Option<&mut Page> {
        if index == self.pages.len() {
            let page = pool.take(Purpose::Receive)?;
            self.pages.push_back(Memory::Whole(page));
        }
        let place = self.pages.get_mut(index)?;
        if !matches!(place, Memory::Whole(_)) && !place.widen(pool) {
            return None;
        }
        let Memory::Whole(page) = place else { return None };
        Some(page)
    }

    fn provide_pages(&mut self, first: usize, last: usize, pool: &mut PagePool) -> bool {
        let wanted = last + 1 - first;
        let is_whole = |place: &&Memory| matches!(place, Memory::Whole(_));
        let present = self.pages.iter_from(first).take(wanted).filter(is_whole).count();
        if pool.available() < wanted - present {
            return false;
        }
        for _ in self.pages.len()..=last {
            self.pages.push_back(Memory::Hole);
        }
        for place in self.pages.iter_mut_from(first).take(wanted) {
            if !matches!(place, Memory::Whole(_)) {
                place.widen(pool);
            }
        }
        true
    }

    /// RCV.NXT has moved over `n` bytes that were written: they can be read.
    pub(crate) fn advance(&mut self, n: usize) {
        self.readable += n;
    }

    /// Copies the first readable bytes to `out` and returns how many; they stay.
    pub(crate) fn peek(&self, out: &mut [u8]) -> usize {
        let wanted = out.len().min(self.readable);
        if wanted > 0
            && self.head + wanted <= PAGE_BYTES
            && let Some(place) = self.pages.front()
        {
            out[..wanted].copy_from_slice(&place.bytes()[self.head..self.head + wanted]);
            return wanted;
        }
        let (mut at, mut done) = (self.head, 0);
        while done < wanted {
            let within = at % PAGE_BYTES;
            let n = (wanted - done).min(PAGE_BYTES - within);
            let place = self.pages.get(at / PAGE_BYTES).expect("a readable byte has a page");
            out[done..done + n].copy_from_slice(&place.bytes()[within..within + n]);
            at += n;
            done += n;
        }
        done
    }

    /// Moves all that can be read to `out` and returns how many bytes that were, if they lie in one
    /// page, from its beginning, and are wanted all; else nothing has happened. Nothing may lie
    /// beyond RCV.NXT.
    pub(crate) fn take_all(&mut self, out: &mut [u8], pool: &mut PagePool) -> Option<usize> {
        let Queue::One(place) = &self.pages else { return None };
        let len = self.readable;
        if len == 0 || self.head > 0 {
            return None;
        }
        out.get_mut(..len)?.copy_from_slice(place.bytes().get(..len)?);
        self.readable = 0;
        if let Some(place) = self.pages.take_only() {
            place.release(pool);
        }
        Some(len)
    }

    /// Drops the first `n` readable bytes, and the pages that are read to their end.
    pub(crate) fn consume(&mut self, n: usize, pool: &mut PagePool) {
        debug_assert!(n <= self.readable);
        self.readable -= n;
        self.head += n;
        while self.head >= PAGE_BYTES {
            self.head -= PAGE_BYTES;
            self.release_front(pool);
        }
    }

    /// Drops what lies beyond RCV.NXT.
    pub(crate) fn truncate(&mut self, pool: &mut PagePool) {
        let kept = (self.head + self.readable).div_ceil(PAGE_BYTES);
        while self.pages.len() > kept {
            if let Some(place) = self.pages.pop_back() {
                place.release(pool);
            }
        }
    }

    /// Frees what holds nothing: call when nothing is out of order.
    pub(crate) fn trim(&mut self, pool: &mut PagePool) {
        if self.readable == 0 {
            self.clear(pool);
        }
    }

    /// Frees everything.
    pub(crate) fn clear(&mut self, pool: &mut PagePool) {
        while !self.pages.is_empty() {
            self.release_front(pool);
        }
        self.head = 0;
        self.readable = 0;
    }

    fn release_front(&mut self, pool: &mut PagePool) {
        if let Some(place) = self.pages.pop_front() {
            place.release(pool);
        }
    }
}

/// What can be read, and where; not the other bytes of its pages, which are arbitrary.
impl fmt::Debug for RecvBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut readable = vec![0; self.readable];
        self.peek(&mut readable);
        let places: Vec<_> = self.pages.iter_from(0).collect();
        f.debug_struct("RecvBuffer")
            .field("places", &places)
            .field("head", &self.head)
            .field("readable", &readable)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::checksum::sum;
    use proptest::prelude::*;

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

    #[test]
    fn a_short_text_waits_in_a_small_page_until_more_comes() {
        let mut pool = PagePool::new(2);
        let mut buffers: [RecvBuffer; 5] = Default::default();
        for buffer in &mut buffers {
            assert!(buffer.append(&[1; 600], &mut pool));
        }
        assert_eq!(pool.in_use(), 2, "five quarters");
        assert!(buffers[0].append(&[2; 424], &mut pool), "it has room");
        assert!(!buffers[0].append(&[3], &mut pool), "no whole page is left");
        buffers[1].clear(&mut pool);
        assert!(buffers[0].append(&[3], &mut pool));
        let mut out = [0; 2000];
        assert_eq!(buffers[0].take_all(&mut out, &mut pool), Some(1025));
        assert_eq!((out[599], out[600], out[1023], out[1024]), (1, 2, 2, 3));
        assert_eq!(pool.in_use(), 1);
    }

    proptest! {
        #[test]
        fn gives_back_what_was_written(
            chunks in proptest::collection::vec(
                prop_oneof![1usize..900, 1usize..5000].prop_flat_map(|len| {
                    proptest::collection::vec(any::<u8>(), len)
                }), 1..20),
            reads in proptest::collection::vec(1usize..9000, 1..20),
        ) {
            let mut pool = PagePool::new(1000);
            let mut buffer = RecvBuffer::default();
            let (mut written, mut read) = (Vec::new(), Vec::new());
            let mut reads = reads.into_iter().cycle();
            for group in chunks.chunks(3) {
                // Half of what is summed on the way is found wrong, and comes once more.
                let first = &group[0];
                let total = buffer.write_and_sum(first, &mut pool);
                if let Some(total) = total {
                    prop_assert_eq!(total.fold(), sum(first).fold());
                }
                if total.is_some() && first.len() % 2 == 0 {
                    buffer.advance(first.len());
                } else {
                    buffer.truncate(&mut pool);
                    prop_assert!(buffer.append(first, &mut pool));
                }
                // The third of each group arrives before the second.
                if let [_, second, third] = group {
                    prop_assert!(buffer.write(second.len(), third, &mut pool));
                    prop_assert!(buffer.write(0, second, &mut pool));
                    buffer.advance(second.len() + third.len());
                    written.extend(group.concat());
                } else {
                    written.extend_from_slice(&group[0]);
                }
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
