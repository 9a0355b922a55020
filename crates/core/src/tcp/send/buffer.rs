//! The send buffer: a chain of chunks from SND.UNA on.
//!
//! ```text
//!    SND.UNA                SND.NXT              end
//!      │   sent, unacked      │     not sent      │
//!      ▼                      ▼                   ▼
//!    [page ····][page ········][Bytes ·····][page ··    ]
//!     first                                   tail page: small writes share it
//! ```
//!
//! A chunk is a pool page, a small one where no more is held, a large one where many bytes are, or
//! the application's own `Bytes`; none is copied again before the frame, unless a frame should
//! share a small one. Each chunk knows where it starts in the stream, so that any offset is found
//! by binary search, however long the chain.
//!
//! Adopted `Bytes` are charged to the pool. Borrowed ones lie in many buffers at once, and their
//! owner charges them once: here they count as held, and the pool is charged nothing.

use alloc::boxed::Box;
use alloc::vec::Vec;
use bytes::Bytes;
use core::{fmt, mem};

use crate::buffer::{
    LARGE_BYTES, PAGE_BYTES, Page, PagePool, Purpose, SMALL_BYTES, SegmentPage, SharedPage, Side,
    SmallPage, UNIT_BYTES,
};
use crate::frame::Slice;
use crate::tcp::queue::Queue;

/// Bytes in the stream, from the chain's first to its last.
#[derive(Debug, Default)]
pub struct SendBuffer {
    chunks: Queue<Chunk>,
    /// Stream offset of the first byte held (SND.UNA).
    start: u64,
    /// Bytes held.
    len: u32,
    /// Memory held, in units, without a small page at the front: that is seen there.
    held: u32,
}

struct Chunk {
    /// Stream offset of the first byte.
    at: u64,
    len: u32,
    memory: Memory,
}

/// Two words: pages, which nearly all are, cost little to be moved.
#[derive(Debug, Default)]
enum Memory {
    Page(SharedPage),
    Small(SmallPage),
    /// Adopted.
    Bytes(Box<Bytes>),
    /// Others may read them too, and their owner charges them.
    Borrowed(Box<Bytes>),
    /// Nothing, while it passes from one kind to another.
    #[default]
    Passing,
}

impl Chunk {
    fn bytes(&self) -> &[u8] {
        match &self.memory {
            Memory::Page(page) => &page.bytes()[..self.len as usize],
            Memory::Small(page) => &page.bytes()[..self.len as usize],
            Memory::Bytes(bytes) | Memory::Borrowed(bytes) => bytes,
            Memory::Passing => &[],
        }
    }

    fn end(&self) -> u64 {
        self.at + u64::from(self.len)
    }

    /// Bytes `from..to`, for a frame.
    fn share(&mut self, from: usize, to: usize) -> Slice {
        match mem::take(&mut self.memory) {
            Memory::Page(page) => {
                let page = page.counted();
                self.memory = Memory::Page(SharedPage::Counted(page.clone()));
                Slice::Page { page, start: from as u16, end: to as u16 }
            }
            Memory::Small(page) => {
                let slice = Bytes::copy_from_slice(&page.bytes()[from..to]);
                self.memory = Memory::Small(page);
                Slice::Bytes(slice)
            }
            Memory::Bytes(bytes) => {
                let slice = bytes.slice(from..to);
                self.memory = Memory::Bytes(bytes);
                Slice::Bytes(slice)
            }
            Memory::Borrowed(bytes) => {
                let slice = bytes.slice(from..to);
                self.memory = Memory::Borrowed(bytes);
                Slice::Bytes(slice)
            }
            Memory::Passing => Slice::Bytes(Bytes::new()),
        }
    }

    fn is_small(&self) -> bool {
        matches!(self.memory, Memory::Small(_))
    }

    /// The memory that it takes, in units.
    fn held(&self) -> u32 {
        let bytes = match &self.memory {
            Memory::Page(page) => page.bytes().len(),
            Memory::Small(_) => SMALL_BYTES,
            Memory::Bytes(bytes) | Memory::Borrowed(bytes) => pages_of(bytes.len()) * PAGE_BYTES,
            Memory::Passing => 0,
        };
        (bytes / UNIT_BYTES) as u32
    }

    /// Bytes that its page has room for, if no frame shares it.
    fn room(&self) -> usize {
        let bytes = match &self.memory {
            Memory::Page(SharedPage::Counted(_)) => 0,
            Memory::Bytes(_) | Memory::Borrowed(_) | Memory::Passing => 0,
            Memory::Page(page) => page.bytes().len(),
            Memory::Small(_) => SMALL_BYTES,
        };
        bytes.saturating_sub(self.len as usize)
    }

    fn release(self, pool: &mut PagePool) {
        match self.memory {
            Memory::Page(SharedPage::Own(page)) => pool.put(page),
            Memory::Page(page) => pool.put_shared(page),
            Memory::Small(page) => pool.put_small(Side::Send, page),
            Memory::Bytes(bytes) => pool.discharge(pages_of(bytes.len())),
            Memory::Borrowed(_) | Memory::Passing => {}
        }
    }
}

impl fmt::Debug for Chunk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Chunk").field("at", &self.at).field("bytes", &self.bytes()).finish()
    }
}

fn pages_of(len: usize) -> usize {
    len.div_ceil(PAGE_BYTES)
}

impl SendBuffer {
    /// Bytes held, sent or not.
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Bytes held that the pool is charged for: those that are not borrowed.
    pub fn charged_bytes(&self) -> usize {
        let charged = |chunk: &&Chunk| !matches!(chunk.memory, Memory::Borrowed(_));
        self.chunks.iter_from(0).filter(charged).map(|chunk| chunk.len as usize).sum()
    }

    /// True if nothing is held.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Stream offset one past the last byte held.
    fn end(&self) -> u64 {
        self.start + u64::from(self.len)
    }

    /// Memory held, in units.
    pub fn units(&self) -> usize {
        let small = self.chunks.front().is_some_and(Chunk::is_small);
        self.held as usize + if small { SMALL_BYTES / UNIT_BYTES } else { 0 }
    }

    /// Memory held, in the pages of `pool`; what is small counts as a part, rounded up.
    pub fn pages(&self, pool: &PagePool) -> usize {
        (self.units() * UNIT_BYTES).div_ceil(pool.page_bytes())
    }

    /// Bytes that may be written before it holds its share of `pool`.
    pub fn room_in_share(&self, pool: &PagePool) -> u32 {
        if pool.share() == usize::MAX {
            return u32::MAX;
        }
        let units = pool.share().saturating_sub(self.units());
        let pages = units.saturating_mul(UNIT_BYTES) / pool.page_bytes() * pool.page_bytes();
        let tail = self.chunks.back().map_or(0, Chunk::room);
        u32::try_from(pages.saturating_add(tail)).unwrap_or(u32::MAX)
    }

    /// Copies `data` behind the last byte, into the tail page first, while the pool has pages;
    /// returns how many bytes it took.
    #[inline(always)]
    pub fn write(&mut self, data: &[u8], pool: &mut PagePool) -> usize {
        // Nearly always nothing waits, and a small page holds all.
        if self.chunks.is_empty() && !data.is_empty() && data.len() <= pool.short_bytes {
            return self.write_small(data, pool);
        }
        self.write_pages(data, pool)
    }

    /// Copies `data`, which a small page holds, into a new one.
    #[inline(always)]
    fn write_small(&mut self, data: &[u8], pool: &mut PagePool) -> usize {
        let Some(mut page) = pool.take_small(Purpose::First) else { return 0 };
        page.bytes_mut()[..data.len()].copy_from_slice(data);
        // It is the first: nothing is held.
        let (len, memory) = (data.len() as u32, Memory::Small(page));
        self.chunks.push_back(Chunk { at: self.start, len, memory });
        self.len = len;
        data.len()
    }

    /// Writes into pages: large ones where much is waiting, or is written.
    fn write_pages(&mut self, data: &[u8], pool: &mut PagePool) -> usize {
        let mut done = self.fill_tail_page(data);
        while done < data.len() {
            let rest = &data[done..];
            let is_much = self.len().max(rest.len()) >= LARGE_BYTES;
            let purpose = self.purpose();
            if pool.short_bytes == 0 {
                let Some(page) = self.take_segment(purpose, pool) else { break };
                done += self.write_page(rest, page, SharedPage::OwnSegment);
                continue;
            }
            if self.units() + PAGE_BYTES / UNIT_BYTES > pool.share() {
                break;
            }
            let is_much = is_much && self.units() + LARGE_BYTES / UNIT_BYTES <= pool.share();
            done += if let Some(page) = is_much.then(|| pool.take_large(purpose)).flatten() {
                self.write_page(rest, page, SharedPage::OwnLarge)
            } else if let Some(page) = pool.take(purpose) {
                self.write_page(rest, page, SharedPage::Own)
            } else {
                break;
            };
        }
        done
    }

    /// A page of one segment, unless all there are, or its share, are taken.
    fn take_segment(&self, purpose: Purpose, pool: &mut PagePool) -> Option<SegmentPage> {
        if self.units() < pool.share() { pool.take_segment(purpose) } else { None }
    }

    /// What the next page is for.
    fn purpose(&self) -> Purpose {
        if self.chunks.is_empty() { Purpose::First } else { Purpose::More }
    }

    /// Copies what it holds of `data` into `page`, which is new; how many bytes that were.
    fn write_page<const BYTES: usize>(
        &mut self,
        data: &[u8],
        mut page: Page<BYTES>,
        own: fn(Page<BYTES>) -> SharedPage,
    ) -> usize {
        let len = data.len().min(BYTES);
        page.bytes_mut()[..len].copy_from_slice(&data[..len]);
        self.held += (BYTES / UNIT_BYTES) as u32;
        self.append(Memory::Page(own(page)), len as u32);
        len
    }

    #[inline(always)]
    fn append(&mut self, memory: Memory, len: u32) {
        self.chunks.push_back(Chunk { at: self.end(), len, memory });
        self.len += len;
    }

    /// Fills what is left of the tail page, unless a frame still shares it.
    fn fill_tail_page(&mut self, data: &[u8]) -> usize {
        let Some(Chunk { len, memory, .. }) = self.chunks.back_mut() else { return 0 };
        let bytes = match memory {
            Memory::Page(page) => page.bytes_mut(),
            Memory::Small(page) => Some(page.bytes_mut().as_mut_slice()),
            Memory::Bytes(_) | Memory::Borrowed(_) | Memory::Passing => None,
        };
        let Some(free) = bytes.and_then(|bytes| bytes.get_mut(*len as usize..)) else { return 0 };
        let room = data.len().min(free.len());
        free[..room].copy_from_slice(&data[..room]);
        *len += room as u32;
        self.len += room as u32;
        room
    }

    /// Puts `data` into the chain as it is, charged to the pool, if the pool lets it take all for
    /// that purpose.
    pub fn adopt(&mut self, data: &Bytes, purpose: Purpose, pool: &mut PagePool) -> bool {
        if !self.is_in_share(data, pool) || !pool.charge(pages_of(data.len()), purpose) {
            return false;
        }
        self.append_bytes(data, Memory::Bytes);
        true
    }

    /// Puts `data` into the chain as it is, if it is in its share of the pool. Its owner charges
    /// it, as long as anybody shares it.
    pub fn borrow(&mut self, data: &Bytes, pool: &PagePool) -> bool {
        let is_in_share = self.is_in_share(data, pool);
        if is_in_share {
            self.append_bytes(data, Memory::Borrowed);
        }
        is_in_share
    }

    /// True if the buffer holds no more than its share with `data`.
    fn is_in_share(&self, data: &Bytes, pool: &PagePool) -> bool {
        self.units() + pages_of(data.len()) * PAGE_BYTES / UNIT_BYTES <= pool.share()
    }

    fn append_bytes(&mut self, data: &Bytes, own: fn(Box<Bytes>) -> Memory) {
        self.held += (pages_of(data.len()) * PAGE_BYTES / UNIT_BYTES) as u32;
        self.append(own(Box::new(data.clone())), data.len() as u32);
    }

    /// Adopts `data`, or as many whole pages of it as the pool lets it take. Returns how many bytes
    /// those are.
    pub fn push(&mut self, data: &Bytes, pool: &mut PagePool) -> usize {
        let purpose = self.purpose();
        if data.is_empty() || self.adopt(data, purpose, pool) {
            return data.len();
        }
        let share = pool.share().saturating_sub(self.units()) / (PAGE_BYTES / UNIT_BYTES);
        let pages = pool.available_pages(purpose).min(data.len() / PAGE_BYTES).min(share);
        let part = data.slice(..pages * PAGE_BYTES);
        if pages > 0 && self.adopt(&part, purpose, pool) { part.len() } else { 0 }
    }

    /// The first `n` bytes were acknowledged. A chunk is freed when all of it is.
    #[inline(always)]
    pub fn advance(&mut self, n: usize, pool: &mut PagePool) {
        debug_assert!(n <= self.len());
        self.start += n as u64;
        self.len -= n as u32;
        // The usual case: all are, and they lie in one small page.
        if self.len == 0
            && let Some(Chunk { memory: Memory::Small(page), .. }) =
                self.chunks.take_only_if(Chunk::is_small)
        {
            return pool.put_small(Side::Send, page);
        }
        while self.chunks.front().is_some_and(|chunk| chunk.end() <= self.start) {
            self.release_front(pool);
        }
    }

    /// True if [`SendBuffer::cut`] would drop something, could it drop as much as it liked.
    pub fn can_cut(&self, keep: usize) -> bool {
        self.chunks.back().is_some_and(|chunk| self.lies_behind(keep, chunk))
            || self.can_shrink(keep)
            || self.trimmed(keep).is_some()
    }

    /// True if a page holds the first `keep` bytes, there are more, and they take more memory: more
    /// than the segments of a page and one, which is how many pages of one segment those lie in.
    fn can_shrink(&self, keep: usize) -> bool {
        (1..=PAGE_BYTES.min(self.len().saturating_sub(1))).contains(&keep)
            && self.units() > PAGE_BYTES / UNIT_BYTES + 1
    }

    /// True if `chunk` has none of the first `keep` bytes; the first chunk always has some.
    fn lies_behind(&self, keep: usize, chunk: &Chunk) -> bool {
        chunk.at > self.start && chunk.at >= self.start + keep as u64
    }

    /// What stays of the last chunk if no more than the first `keep` bytes do. `None` unless that
    /// chunk was adopted or borrowed and loses some, and what stays fits into fewer pages.
    fn trimmed(&self, keep: usize) -> Option<Bytes> {
        let chunk = self.chunks.back()?;
        let (Memory::Bytes(bytes) | Memory::Borrowed(bytes)) = &chunk.memory else { return None };
        let from = self.start.max(chunk.at);
        let to = from.max(self.start + keep as u64);
        if to >= chunk.end() {
            return None;
        }
        let head = bytes.slice((from - chunk.at) as usize..(to - chunk.at) as usize);
        (pages_of(head.len()) < pages_of(bytes.len())).then_some(head)
    }

    /// Drops bytes at the end, `most` at most, and none of the first `keep`. Returns how many. It
    /// drops whole chunks, since a part of a page gives no memory back. What stays moves into one
    /// page if it fits there. If not, an adopted chunk is still cut.
    pub fn cut(&mut self, keep: usize, most: usize, pool: &mut PagePool) -> usize {
        let mut cut = SendBuffer::default();
        while let Some(last) = self.chunks.back()
            && self.lies_behind(keep, last)
            && cut.len() + last.len as usize <= most
            && let Some(chunk) = self.chunks.pop_back()
        {
            cut.len += chunk.len;
            cut.held += chunk.held();
            cut.chunks.push_back(chunk);
        }
        self.len -= cut.len;
        self.held -= cut.held;
        // All of it lies before where the cut piece would go on.
        let bytes = cut.len();
        cut.start = self.end();
        cut.advance(bytes, pool);
        match self.shrink(keep, most - bytes, pool) {
            0 => bytes + self.trim(keep, most - bytes, pool),
            shrunk => bytes + shrunk,
        }
    }

    /// Copies what stays of an adopted or borrowed last chunk into pages, if these are fewer, and
    /// drops the other bytes: `most` at most, and none of the first `keep`. Returns how many. The
    /// pages take over a part of an adopted chunk's charge: memory is short when this is asked for,
    /// and a new charge would be refused. Where it is refused, a borrowed chunk is cut and stays
    /// borrowed.
    fn trim(&mut self, keep: usize, most: usize, pool: &mut PagePool) -> usize {
        let before = self.len();
        let Some(head) = self.trimmed(keep.max(before.saturating_sub(most))) else { return 0 };
        let Some(chunk) = self.chunks.pop_back() else { return 0 };
        self.len -= (chunk.end() - chunk.at.max(self.start)) as u32;
        self.held -= chunk.held();
        let pages = pages_of(head.len());
        if let Memory::Bytes(_) = chunk.memory {
            pool.discharge(pages_of(chunk.len as usize) - pages);
        } else if !pool.charge(pages, Purpose::First) {
            self.append_bytes(&head, Memory::Borrowed);
            return before - self.len();
        }
        for part in head.chunks(PAGE_BYTES) {
            let page = pool.take_charged();
            self.write_page(part, page, SharedPage::Own);
        }
        before - self.len()
    }

    /// Moves the first `keep` bytes into a page, if that gives memory back, and drops the others,
    /// `most` at most. Returns how many.
    fn shrink(&mut self, keep: usize, most: usize, pool: &mut PagePool) -> usize {
        let dropped = self.len().saturating_sub(keep);
        if dropped > most || !self.can_shrink(keep) {
            return 0;
        }
        let Some(mut page) = pool.take(Purpose::First) else { return 0 };
        let mut free = page.bytes_mut().as_mut_slice();
        self.visit(0, keep, |bytes| {
            let (filled, rest) = mem::take(&mut free).split_at_mut(bytes.len());
            filled.copy_from_slice(bytes);
            free = rest;
        });
        let start = self.start;
        self.clear(pool);
        self.start = start;
        self.held = (PAGE_BYTES / UNIT_BYTES) as u32;
        self.append(Memory::Page(SharedPage::Own(page)), keep as u32);
        dropped
    }

    /// Gives the first chunk's memory back. False if there is none.
    fn release_front(&mut self, pool: &mut PagePool) -> bool {
        let Some(chunk) = self.chunks.pop_front() else { return false };
        if !chunk.is_small() {
            self.held -= chunk.held();
        }
        chunk.release(pool);
        true
    }

    /// True if it has no memory.
    pub fn owns_nothing(&self) -> bool {
        self.chunks.is_empty()
    }

    /// Frees everything.
    pub fn clear(&mut self, pool: &mut PagePool) {
        self.start = self.end();
        self.len = 0;
        // Nearly always nothing is left.
        if self.chunks.is_empty() {
            return;
        }
        while self.release_front(pool) {}
    }

    /// Which chunk holds the byte at the stream offset `at`. Where all of them are as long as the
    /// first, that is known without a search.
    fn index_of(&self, at: u64) -> usize {
        let holds = |chunk: &Chunk| chunk.at <= at && at < chunk.end();
        let Some(first) = self.chunks.front() else { return 0 };
        let guess = (at.saturating_sub(first.at) / u64::from(first.len.max(1))) as usize;
        if self.chunks.get(guess).is_some_and(holds) {
            return guess;
        }
        self.chunks.partition_point(|chunk| chunk.end() <= at)
    }

    /// The place of the byte `offset`, counted from the first byte held.
    pub fn cursor(&self, offset: usize) -> Cursor<'_> {
        let at = self.start + offset as u64;
        let index = self.index_of(at);
        let chunk = self.chunks.get(index);
        let rest = chunk.and_then(|chunk| chunk.bytes().get((at - chunk.at) as usize..));
        Cursor { rest: rest.unwrap_or_default(), chunks: &self.chunks, next: index + 1 }
    }

    /// The bytes `offset..offset + len`, counted from the first byte held, which are there, if they
    /// lie in the first chunk, as those of nearly every short answer do.
    pub fn whole(&self, offset: usize, len: usize) -> Option<&[u8]> {
        if len == 0 {
            return Some(&[]);
        }
        debug_assert!(offset + len <= self.len());
        // Nearly always it is the only one, and a small page.
        if let Queue::One(Chunk { at, memory: Memory::Small(page), .. }) = &self.chunks {
            let within = offset + (self.start - at) as usize;
            return page.bytes().get(within..within + len);
        }
        let front = self.chunks.front()?;
        let within = offset + (self.start - front.at) as usize;
        front.bytes().get(within..within + len)
    }

    /// Visits the bytes `offset..offset + len`, counted from the first byte held, in pieces.
    pub fn visit(&self, offset: usize, len: usize, visit: impl FnMut(&[u8])) {
        debug_assert!(offset + len <= self.len());
        self.cursor(offset).visit(len, visit);
    }

    /// Appends to `out` slices that share the bytes `offset..offset + len`.
    pub fn share(&mut self, offset: usize, len: usize, out: &mut Vec<Slice>) {
        debug_assert!(offset + len <= self.len());
        let (mut at, to) = (self.start + offset as u64, self.start + (offset + len) as u64);
        let first = self.index_of(at);
        for chunk in self.chunks.iter_mut_from(first) {
            if at >= to {
                break;
            }
            let until = to.min(chunk.end());
            let (from, to) = ((at - chunk.at) as usize, (until - chunk.at) as usize);
            out.push(chunk.share(from, to));
            at = until;
        }
    }
}

/// A place in the chain.
#[derive(Clone, Copy, Debug)]
pub struct Cursor<'a> {
    /// What is left of its chunk.
    rest: &'a [u8],
    chunks: &'a Queue<Chunk>,
    /// The chunk behind it.
    next: usize,
}

impl Cursor<'_> {
    /// Moves on by `len` bytes, which are there, and visits them in pieces.
    pub fn visit(&mut self, mut len: usize, mut visit: impl FnMut(&[u8])) {
        while let Some(more) = len.checked_sub(self.rest.len()).filter(|more| *more > 0) {
            visit(self.rest);
            let Some(chunk) = self.chunks.get(self.next) else { return };
            (self.rest, self.next, len) = (chunk.bytes(), self.next + 1, more);
        }
        let (piece, rest) = self.rest.split_at(len);
        self.rest = rest;
        visit(piece);
    }
}

#[cfg(test)]
mod tests;
