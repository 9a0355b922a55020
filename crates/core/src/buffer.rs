//! Pages: the memory of send and receive buffers.
//!
//! A page is an owned, movable buffer on the heap, so that another thread or io_uring may fill it
//! in safe Rust. The pool keeps freed pages for reuse and counts what is out against a limit, which
//! is a shard's one budget for buffers: memory of others is charged to it as well.
//!
//! Senders cannot use all of it, or those that hold much would keep others from being served:
//!
//! ```text
//!   0                          3/4        7/8     15/16    limit
//!   ├───────────────────────────┼──────────┼─────────┼────────┤
//!   Claim::More ───────────────────────────▶ a sender that holds pages
//!   Claim::First ────────────────────────────────────▶ a sender that holds none
//!   Claim::Receive ───────────────────────────────────────────▶ text received
//!   what lasts as long as a connection ▶ and new connections beyond that are refused
//!                               └ scarce: no text out of order is kept
//! ```
//!
//! What is short, as most requests and answers are, goes into a page of a quarter of the size: of a
//! great many connections each holds some. Of what is long much goes into a page of four times the
//! size: the fewer ends of pages lie within segments, the fewer are copied in two pieces.

mod claim;

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

pub use claim::{Claim, ConnectionRoom, Level, Side};

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
    pub fn bytes(&self) -> &[u8; BYTES] {
        &self.0
    }

    /// All its bytes, to be written.
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
    pub fn bytes(&self) -> &[u8] {
        match self {
            SharedPage::Own(page) => page.bytes(),
            SharedPage::OwnLarge(page) => page.bytes(),
            SharedPage::Counted(page) => page.bytes(),
        }
    }

    /// All its bytes to be written, or `None` while they are shared.
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
    /// The one that was freed last.
    fn pop(&mut self) -> Option<Page<BYTES>> {
        let last = self.len.wrapping_sub(1);
        let page = self.places.get_mut(last).and_then(Option::take);
        if page.is_some() {
            self.len = last;
        }
        page
    }

    /// One for something else, if more are kept than in any case.
    fn lend(&mut self) -> Option<Page<BYTES>> {
        if self.is_full() { self.pop() } else { None }
    }

    /// Keeps `page`, unless there are many, and more than are out of the pool. Then one that is
    /// kept goes as well: after a burst the memory is given back, and not only no more is kept.
    #[inline(always)]
    fn put(&mut self, page: Page<BYTES>, bytes_out: usize) {
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

    /// As many are kept as in any case.
    fn is_full(&self) -> bool {
        self.len >= KEPT_BYTES / BYTES
    }

    fn is_plenty(&self, bytes_out: usize) -> bool {
        self.bytes() >= bytes_out
    }

    /// Bytes that are kept.
    fn bytes(&self) -> usize {
        self.len * BYTES
    }

    /// Drops pages until `bytes` less are kept, or none is. Returns what is still to be dropped.
    fn shed(&mut self, mut bytes: usize) -> usize {
        while bytes > 0 && self.pop().is_some() {
            bytes = bytes.saturating_sub(BYTES);
        }
        bytes
    }
}

/// The pages of one shard.
#[derive(Debug)]
pub struct PagePool {
    free: Freed<PAGE_BYTES>,
    /// By what they were for.
    free_small: [Freed<SMALL_BYTES>; 2],
    free_large: Freed<LARGE_BYTES>,
    /// What is out, in small pages.
    in_use: usize,
    limit: usize,
    /// What may be in use once a page is given, by [`Claim`], if connections took nothing.
    shares: [usize; 3],
    /// The same with what is set aside for connections.
    limits: [usize; 3],
    /// The limit of [`Claim::More`] while nobody waits in line for pages.
    more: usize,
    /// What others hold that is charged here, in small pages; they are in use as well.
    elsewhere: usize,
    /// What lasts as long as a connection; it is not in use, but set aside.
    by_connections: usize,
    set_aside: usize,
    /// From so many in use on they are scarce: asked at each write.
    scarce_from: usize,
    /// A claim was refused, and nothing done about it yet.
    was_refused: bool,
    /// Somebody waits to hold more elsewhere.
    elsewhere_is_wanted: bool,
    /// New connections come, and nobody who needs nothing goes for them.
    is_crowded: bool,
}

/// Pools of fewer pages than this keep no reserve: an eighth of them would be next to nothing.
const RESERVED_FROM: usize = 64;

/// How many are in use where less than a quarter of `limit` is left, with so many set aside.
fn scarce_from(limit: usize, set_aside: usize) -> usize {
    (limit - limit / 4 + 1).saturating_sub(set_aside)
}

impl PagePool {
    /// A pool that hands out at most `limit` pages at a time; it allocates them as they are asked
    /// for.
    pub fn new(limit: usize) -> Self {
        let sixteenth = if limit < RESERVED_FROM { 0 } else { limit.saturating_mul(SMALL) / 16 };
        let limit = limit.saturating_mul(SMALL);
        let (free, free_small, free_large) = Default::default();
        PagePool {
            free,
            free_small,
            free_large,
            in_use: 0,
            limit,
            shares: [limit - 2 * sixteenth, limit - sixteenth, limit],
            limits: [limit - 2 * sixteenth, limit - sixteenth, limit],
            more: limit - 2 * sixteenth,
            elsewhere: 0,
            by_connections: 0,
            set_aside: 0,
            scarce_from: scarce_from(limit, 0),
            was_refused: false,
            elsewhere_is_wanted: false,
            is_crowded: false,
        }
    }

    /// Charges `small` pages to the limit of `claim`. False, and nothing is charged, beyond it.
    fn claim(&mut self, small: usize, claim: Claim) -> bool {
        if self.in_use + small > self.limits[claim as usize] {
            self.was_refused = true;
            return false;
        }
        self.in_use += small;
        true
    }

    /// A page, or `None` when the limit is reached. Its content is arbitrary.
    pub fn take(&mut self, claim: Claim) -> Option<Page> {
        self.claim(SMALL, claim).then(|| match self.free.pop() {
            Some(page) => page,
            None => self.make(),
        })
    }

    /// A small page, or `None` when the limit is reached. Its content is arbitrary.
    #[inline(always)]
    pub fn take_small(&mut self, claim: Claim) -> Option<SmallPage> {
        if !self.claim(1, claim) {
            return None;
        }
        let [received, sent] = &mut self.free_small;
        let (own, other) = match claim {
            Claim::Receive => (received, sent),
            Claim::First | Claim::More => (sent, received),
        };
        Some(match own.pop() {
            Some(page) => page,
            None => match other.lend() {
                Some(page) => page,
                None => self.make(),
            },
        })
    }

    /// A large page, or `None` when the limit is reached. Its content is arbitrary.
    pub fn take_large(&mut self, claim: Claim) -> Option<LargePage> {
        self.claim(LARGE, claim).then(|| match self.free_large.pop() {
            Some(page) => page,
            None => self.make(),
        })
    }

    /// A new page.
    fn make<const BYTES: usize>(&mut self) -> Page<BYTES> {
        self.shed_excess();
        Page::new()
    }

    /// What is out and what is kept are no more than the limit together: kept pages of one size do
    /// not come on top of others that are out, or of what others hold.
    fn shed_excess(&mut self) {
        let [received, sent] = &mut self.free_small;
        let kept = self.free.bytes() + self.free_large.bytes() + received.bytes() + sent.bytes();
        let out = (self.in_use + self.by_connections).saturating_mul(SMALL_BYTES);
        let mut excess = (out + kept).saturating_sub(self.limit.saturating_mul(SMALL_BYTES));
        excess = self.free_large.shed(excess.min(kept));
        excess = self.free.shed(excess);
        excess = received.shed(excess);
        sent.shed(excess);
    }

    /// Gives a page back.
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
    pub fn charge(&mut self, pages: usize, claim: Claim) -> bool {
        self.claim(pages.saturating_mul(SMALL), claim)
    }

    /// Others hold so many bytes now that count here: no claim of theirs is refused, but what they
    /// hold the connections cannot have.
    pub fn set_elsewhere(&mut self, bytes: usize) {
        let small = bytes.div_ceil(SMALL_BYTES);
        let has_grown = small > self.elsewhere;
        self.in_use = self.in_use - self.elsewhere + small;
        self.elsewhere = small;
        if has_grown {
            self.shed_excess();
        }
    }

    /// Connections take so many bytes now for as long as they live, and pages cannot have them. If
    /// there are any, a quarter of the limit is set aside for more: those that fill pages must not
    /// keep others out until they have been seen to stall.
    pub fn set_by_connections(&mut self, bytes: usize) {
        let small = bytes.div_ceil(SMALL_BYTES);
        if small == self.by_connections {
            return;
        }
        let has_grown = small > self.by_connections;
        self.by_connections = small;
        self.set_aside = if small == 0 { 0 } else { small.max(self.limit / 4) };
        self.scarce_from = scarce_from(self.limit, self.set_aside);
        let waits = self.has_line();
        self.limits = self.shares.map(|share| share.saturating_sub(self.set_aside));
        self.more = self.limits[Claim::More as usize];
        self.keep_line(waits);
        if has_grown {
            self.shed_excess();
        }
    }

    /// One of so many connections is about to go: what it takes is as good as free from now on.
    pub fn expect_end_of_connection(&mut self, connections: usize) {
        let each = self.by_connections / connections.max(1);
        self.set_by_connections((self.by_connections - each) * SMALL_BYTES);
    }

    /// Small pages that connections can still take for as long as they live. Three quarters of the
    /// limit are theirs, so that an eighth is left for what they send, however many they are; and
    /// whoever is let in must find a first page.
    fn left_for_connections(&self) -> usize {
        let share = self.limit / 4 * 3;
        let unused = self.shares[Claim::First as usize].saturating_sub(self.in_use);
        share.min(unused).saturating_sub(self.by_connections)
    }

    /// New connections find little room, and none that needs nothing goes for them.
    pub fn set_crowded(&mut self, is_crowded: bool) {
        self.is_crowded = is_crowded;
        self.was_refused |= is_crowded;
    }

    /// Somebody waits to hold more elsewhere, or nobody does.
    pub fn want_elsewhere(&mut self, is_wanted: bool) {
        self.elsewhere_is_wanted = is_wanted;
        self.was_refused |= is_wanted;
    }

    /// True if somebody waits to hold more elsewhere, where others hold what they may.
    pub fn is_short_elsewhere(&self) -> bool {
        self.elsewhere_is_wanted && !self.has_room_elsewhere()
    }

    /// Whether there is room for one connection more, that takes `bytes` as long as it lives.
    /// Little room counts as a refusal: others should go.
    pub fn room_for_connection(&mut self, bytes: usize) -> ConnectionRoom {
        let left = self.left_for_connections();
        if left >= self.limit / 32 {
            self.is_crowded = false;
            return ConnectionRoom::Enough;
        }
        self.was_refused = true;
        if left < bytes.div_ceil(SMALL_BYTES) {
            ConnectionRoom::None
        } else if left < self.limit / 64 {
            ConnectionRoom::Little
        } else {
            ConnectionRoom::Enough
        }
    }

    /// True if there is little room for new connections, and none that needs nothing goes for them.
    pub fn is_crowded(&self) -> bool {
        self.is_crowded && self.is_short_for_connections()
    }

    /// True if there is little room for more connections.
    pub fn is_short_for_connections(&self) -> bool {
        self.by_connections > 0 && self.left_for_connections() < self.limit / 32
    }

    /// True if there is little room for more connections, or for their first pages.
    pub fn is_short_for_newcomers(&self) -> bool {
        let first = self.limits[Claim::First as usize].saturating_sub(self.in_use);
        self.by_connections > 0 && first.min(self.left_for_connections()) < self.limit / 32
    }

    /// Undoes [`PagePool::charge`].
    pub fn discharge(&mut self, pages: usize) {
        self.release(pages * SMALL);
    }

    fn release(&mut self, small: usize) {
        assert!(self.in_use >= small, "more pages given back than taken");
        self.in_use -= small;
    }

    /// True if less than a quarter of the pages can still be taken.
    pub fn is_scarce(&self) -> bool {
        self.in_use >= self.scarce_from
    }

    /// Some wait in line for pages, or nobody does: a sender that holds pages and has not waited
    /// gets no more while some do.
    pub fn keep_line(&mut self, waits: bool) {
        self.limits[Claim::More as usize] = if waits { 0 } else { self.more };
    }

    /// True if some wait in line, and pages could be had else.
    fn has_line(&self) -> bool {
        self.limits[Claim::More as usize] < self.more
    }

    /// Has `act` claim pages for a sender that has waited in line.
    pub fn in_turn<R>(&mut self, act: impl FnOnce(&mut PagePool) -> R) -> R {
        let limit = core::mem::replace(&mut self.limits[Claim::More as usize], self.more);
        let result = act(self);
        self.limits[Claim::More as usize] = limit;
        result
    }

    /// Pages that can be given to senders that wait in line.
    pub fn available_in_line(&self) -> usize {
        self.more.saturating_sub(self.in_use) / SMALL
    }

    /// True if others may hold more: what they hold is no more than half of the limit, and nobody
    /// waits in line. Else it could be all that there is, and every page that comes back be taken
    /// for what waits to be written into pages.
    pub fn has_room_elsewhere(&self) -> bool {
        !self.has_line() && self.elsewhere <= self.limit / 2 && self.level() < Level::Full
    }

    /// How much is used up.
    pub fn level(&self) -> Level {
        if !self.is_scarce() {
            Level::Plenty
        } else if self.available_in_line() > 0 {
            Level::Scarce
        } else {
            Level::Full
        }
    }

    /// True if a claim was refused since [`PagePool::forget_refusal`].
    pub fn was_refused(&self) -> bool {
        self.was_refused
    }

    /// What could be done about a refusal has been.
    pub fn forget_refusal(&mut self) {
        self.was_refused = false;
    }

    /// Pages out of the pool, or charged to it; what is small counts together.
    pub fn in_use(&self) -> usize {
        (self.in_use + self.by_connections).div_ceil(SMALL)
    }

    /// Pages that there may be.
    pub fn limit(&self) -> usize {
        self.limit / SMALL
    }

    /// Pages that can still be taken.
    pub fn available(&self) -> usize {
        self.available_to(Claim::Receive)
    }

    /// Pages that can still be taken for that.
    pub fn available_to(&self, claim: Claim) -> usize {
        self.limits[claim as usize].saturating_sub(self.in_use) / SMALL
    }
}

#[cfg(test)]
mod tests;
