//! Pages: the memory of send and receive buffers.
//!
//! A page is an owned, movable buffer on the heap, so that another thread or io_uring may fill it
//! in safe Rust. The pool keeps freed pages for reuse and counts what is out against a limit.
//!
//! What is short, as most requests and answers are, goes into a page of a quarter of the size: it
//! stays until it is acknowledged, and of a great many connections each holds some. Of what is
//! long much goes into a page of four times the size: the fewer ends of pages lie within segments,
//! the fewer of these are copied in two pieces.

use crate::hint::unlikely;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::hint::cold_path;

/// Bytes in a page.
pub const PAGE_BYTES: usize = 4096;

/// Bytes in a small page.
pub const SMALL_BYTES: usize = 1024;

/// Bytes in a large page.
pub const LARGE_BYTES: usize = 4 * PAGE_BYTES;

/// Small pages in a page.
const SMALL: usize = PAGE_BYTES / SMALL_BYTES;

/// Small pages in a large one.
const LARGE: usize = LARGE_BYTES / SMALL_BYTES;

/// Bytes in freed pages kept for reuse in any case, of each size. A buffer that fills and empties
/// again and again should not go to the allocator each time.
const KEPT_BYTES: usize = 4 << 20;

/// One page of buffer memory.
pub struct Page<const BYTES: usize = PAGE_BYTES>(Box<[u8; BYTES]>);

/// A small page.
pub type SmallPage = Page<SMALL_BYTES>;

/// A large page.
pub type LargePage = Page<LARGE_BYTES>;

impl<const BYTES: usize> Page<BYTES> {
    fn new() -> Self {
        Page(Box::new([0; BYTES]))
    }

    /// All its bytes.
    #[inline]
    pub fn bytes(&self) -> &[u8; BYTES] {
        &self.0
    }

    /// All its bytes, to be written.
    #[inline]
    pub fn bytes_mut(&mut self) -> &mut [u8; BYTES] {
        &mut self.0
    }
}

/// Whoever has it knows which of its bytes mean something.
impl<const BYTES: usize> fmt::Debug for Page<BYTES> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Page").finish_non_exhaustive()
    }
}

/// A page, or a large one, that frames on their way to the device may share; while one does, the
/// page can be read and not written. It counts who shares it only once somebody has: what nobody
/// shares costs no atomic operation.
#[derive(Debug)]
pub enum SharedPage {
    /// Nobody shares it, nor did.
    Own(Page),
    /// The same of a large one.
    OwnLarge(LargePage),
    /// Frames may.
    Counted(CountedPage),
}

/// A page as frames hold it.
#[derive(Clone, Debug)]
pub enum CountedPage {
    /// One of the usual size.
    Page(Arc<Page>),
    /// A large one.
    Large(Arc<LargePage>),
}

impl SharedPage {
    /// All its bytes.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        match self {
            SharedPage::Own(page) => page.bytes(),
            SharedPage::OwnLarge(page) => page.bytes(),
            SharedPage::Counted(page) => page.bytes(),
        }
    }

    /// All its bytes to be written, or `None` while they are shared.
    #[inline]
    pub fn bytes_mut(&mut self) -> Option<&mut [u8]> {
        Some(match self {
            SharedPage::Own(page) => page.bytes_mut(),
            SharedPage::OwnLarge(page) => page.bytes_mut(),
            SharedPage::Counted(CountedPage::Page(page)) => Arc::get_mut(page)?.bytes_mut(),
            SharedPage::Counted(CountedPage::Large(page)) => Arc::get_mut(page)?.bytes_mut(),
        })
    }

    /// The page as frames hold it.
    pub fn counted(self) -> CountedPage {
        match self {
            SharedPage::Own(page) => CountedPage::Page(Arc::new(page)),
            SharedPage::OwnLarge(page) => CountedPage::Large(Arc::new(page)),
            SharedPage::Counted(page) => page,
        }
    }
}

impl CountedPage {
    /// All its bytes.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        match self {
            CountedPage::Page(page) => page.bytes(),
            CountedPage::Large(page) => page.bytes(),
        }
    }
}

/// Freed pages of one size.
#[derive(Debug, Default)]
struct Freed<const BYTES: usize> {
    /// The first `len` of them hold a page. (Places that are made once are filled and emptied by
    /// less than what it takes to push and pop.)
    places: Vec<Option<Page<BYTES>>>,
    len: usize,
}

impl<const BYTES: usize> Freed<BYTES> {
    /// The one that was freed last; without one, what `other` gives.
    #[inline(always)]
    fn take_or(&mut self, other: impl FnOnce() -> Page<BYTES>) -> Page<BYTES> {
        let last = self.len.wrapping_sub(1);
        let Some(page) = self.places.get_mut(last).and_then(Option::take) else {
            cold_path();
            return other();
        };
        self.len = last;
        page
    }

    /// One for something else if more are kept than in any case; else a new one.
    #[inline(never)]
    fn lend(&mut self) -> Page<BYTES> {
        if self.is_full() { self.take_or(Page::new) } else { Page::new() }
    }

    /// Keeps `page`, unless there are many, and more than are out of the pool.
    #[inline(always)]
    fn put(&mut self, page: Page<BYTES>, bytes_out: usize) {
        if unlikely(self.is_full() && self.is_plenty(bytes_out)) {
            return;
        }
        match self.places.get_mut(self.len) {
            // It is empty. Told that, the compiler drops nothing.
            Some(place) if place.is_none() => *place = Some(page),
            _ => {
                cold_path();
                self.places.push(Some(page));
            }
        }
        self.len += 1;
    }

    /// As many are kept as in any case.
    #[inline(always)]
    fn is_full(&self) -> bool {
        self.len >= KEPT_BYTES / BYTES
    }

    #[inline(never)]
    fn is_plenty(&self, bytes_out: usize) -> bool {
        self.len * BYTES >= bytes_out
    }
}

/// What a small page is for. They are kept apart when they are free: one that text was received in
/// has just been read, and the next text that arrives is written where the processor's caches are;
/// one that text was sent from has waited for an acknowledgement, among those of thousands of
/// connections, and is in none of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Text received.
    Receive,
    /// Text to be sent.
    Send,
}

/// The pages of one shard.
#[derive(Debug)]
pub struct PagePool {
    free: Freed<PAGE_BYTES>,
    /// By what they were for.
    free_small: [Freed<SMALL_BYTES>; 2],
    free_large: Freed<LARGE_BYTES>,
    /// What is out, and what may be, in small pages.
    in_use: usize,
    limit: usize,
}

impl PagePool {
    /// A pool that hands out at most `limit` pages at a time; it allocates them as they are asked
    /// for.
    pub fn new(limit: usize) -> Self {
        let limit = limit.saturating_mul(SMALL);
        let (free, free_small, free_large) = Default::default();
        PagePool { free, free_small, free_large, in_use: 0, limit }
    }

    /// A page, or `None` when the limit is reached. Its content is arbitrary.
    #[inline(always)]
    pub fn take(&mut self) -> Option<Page> {
        if unlikely(self.in_use + SMALL > self.limit) {
            return None;
        }
        self.in_use += SMALL;
        Some(self.free.take_or(Page::new))
    }

    /// A small page, or `None` when the limit is reached. Its content is arbitrary.
    #[inline(always)]
    pub fn take_small(&mut self, side: Side) -> Option<SmallPage> {
        if unlikely(self.in_use >= self.limit) {
            return None;
        }
        self.in_use += 1;
        let [received, sent] = &mut self.free_small;
        let (own, other) = match side {
            Side::Receive => (received, sent),
            Side::Send => (sent, received),
        };
        Some(own.take_or(|| other.lend()))
    }

    /// A large page, or `None` when the limit is reached. Its content is arbitrary.
    #[inline]
    pub fn take_large(&mut self) -> Option<LargePage> {
        if unlikely(self.in_use + LARGE > self.limit) {
            return None;
        }
        self.in_use += LARGE;
        Some(self.free_large.take_or(Page::new))
    }

    /// Gives a page back.
    #[inline(always)]
    pub fn put(&mut self, page: Page) {
        self.discharge(1);
        self.free.put(page, self.in_use * SMALL_BYTES);
    }

    /// Gives a small page back.
    #[inline(always)]
    pub fn put_small(&mut self, side: Side, page: SmallPage) {
        self.release(1);
        self.free_small[side as usize].put(page, self.in_use * SMALL_BYTES);
    }

    /// Gives a large page back.
    #[inline]
    fn put_large(&mut self, page: LargePage) {
        self.release(LARGE);
        self.free_large.put(page, self.in_use * SMALL_BYTES);
    }

    /// Gives a page back. One that a frame still shares is freed with the frame.
    pub fn put_shared(&mut self, page: SharedPage) {
        match page {
            SharedPage::Own(page) => self.put(page),
            SharedPage::OwnLarge(page) => self.put_large(page),
            SharedPage::Counted(page) => self.put_counted(page),
        }
    }

    #[inline(never)]
    fn put_counted(&mut self, page: CountedPage) {
        match page {
            CountedPage::Page(page) => match Arc::try_unwrap(page) {
                Ok(page) => self.put(page),
                Err(_) => self.release(SMALL),
            },
            CountedPage::Large(page) => match Arc::try_unwrap(page) {
                Ok(page) => self.put_large(page),
                Err(_) => self.release(LARGE),
            },
        }
    }

    /// Charges memory that is not the pool's own (an application's `Bytes`), in pages. False if
    /// that would pass the limit; then nothing is charged.
    pub fn charge(&mut self, pages: usize) -> bool {
        let fits = self.available() >= pages;
        if fits {
            self.in_use += pages * SMALL;
        }
        fits
    }

    /// Undoes [`PagePool::charge`].
    #[inline]
    pub fn discharge(&mut self, pages: usize) {
        self.release(pages * SMALL);
    }

    #[inline]
    fn release(&mut self, small: usize) {
        assert!(self.in_use >= small, "more pages given back than taken");
        self.in_use -= small;
    }

    /// True if less than a quarter of the pages can still be taken.
    pub fn is_scarce(&self) -> bool {
        self.limit - self.in_use < self.limit / 4
    }

    /// Pages out of the pool, or charged to it; what is small counts together.
    pub fn in_use(&self) -> usize {
        self.in_use.div_ceil(SMALL)
    }

    /// Pages that can still be taken.
    pub fn available(&self) -> usize {
        (self.limit - self.in_use) / SMALL
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pool_gives_its_limit_and_not_one_more() {
        let mut pool = PagePool::new(2);
        let (a, _b) = (pool.take().unwrap(), pool.take().unwrap());
        assert!(pool.take().is_none());
        assert!(!pool.charge(1));
        pool.put(a);
        assert!(pool.charge(1));
        assert!(pool.take().is_none());
        pool.discharge(1);
        assert_eq!((pool.in_use(), pool.available()), (1, 1));
    }

    #[test]
    fn small_pages_count_for_a_quarter() {
        let mut pool = PagePool::new(2);
        let small: Vec<SmallPage> =
            (0..SMALL + 1).map(|_| pool.take_small(Side::Send).unwrap()).collect();
        assert_eq!((pool.in_use(), pool.available()), (2, 0));
        assert!(pool.take().is_none() && !pool.charge(1));
        let others: Vec<SmallPage> =
            core::iter::from_fn(|| pool.take_small(Side::Receive)).collect();
        assert_eq!(others.len(), SMALL - 1);
        small.into_iter().for_each(|page| pool.put_small(Side::Send, page));
        assert_eq!((pool.in_use(), pool.available()), (1, 1));
        others.into_iter().for_each(|page| pool.put_small(Side::Receive, page));
        assert_eq!((pool.in_use(), pool.available()), (0, 2));
    }

    #[test]
    fn text_is_not_sent_from_what_text_was_received_in_unless_much_of_that_is_free() {
        let place = |page: &SmallPage| core::ptr::from_ref(page.bytes()).addr();
        let kept = KEPT_BYTES / SMALL_BYTES;
        for (received, is_shared) in [(kept - 1, false), (kept, true)] {
            let mut pool = PagePool::new(2 * kept);
            let pages: Vec<SmallPage> =
                (0..received).map(|_| pool.take_small(Side::Receive).unwrap()).collect();
            let places: Vec<usize> = pages.iter().map(place).collect();
            let sent = pool.take_small(Side::Send).unwrap();
            pages.into_iter().for_each(|page| pool.put_small(Side::Receive, page));
            let other = pool.take_small(Side::Send).unwrap();
            assert_eq!(places.contains(&place(&other)), is_shared, "{received} are free");
            let sent_from = place(&sent);
            pool.put_small(Side::Send, sent);
            let last = pool.take_small(Side::Receive).unwrap();
            assert_ne!(place(&last), sent_from, "though that was freed last");
            assert_eq!(place(&pool.take_small(Side::Send).unwrap()), sent_from);
        }
    }

    #[test]
    fn large_pages_count_for_four() {
        let mut pool = PagePool::new(9);
        let [own, counted] = [(); 2].map(|()| SharedPage::OwnLarge(pool.take_large().unwrap()));
        assert!(pool.take_large().is_none());
        assert_eq!((pool.in_use(), pool.available()), (8, 1));
        pool.put_shared(own);
        let counted = counted.counted();
        let frames = counted.clone();
        pool.put_shared(SharedPage::Counted(counted));
        assert_eq!((pool.in_use(), frames.bytes().len()), (0, LARGE_BYTES));
    }
}
