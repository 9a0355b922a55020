//! Pages: the memory of send and receive buffers.
//!
//! A page is an owned, movable buffer on the heap, so that another thread or io_uring may fill it
//! in safe Rust. The pool keeps freed pages for reuse and counts what is out against a limit, which
//! is a shard's one budget for buffers: memory beside the buffers is charged to it as well.
//!
//! Senders cannot use all of it, or those that hold much would keep all other connections from
//! being served:
//!
//! ```text
//!   0                          3/4        7/8     15/16    limit
//!   ├───────────────────────────┼──────────┼─────────┼────────┤
//!   Purpose::More ─────────────────────────▶ a sender that holds pages
//!   Purpose::First ──────────────────────────────────▶ a sender that holds none
//!   Purpose::Receive ─────────────────────────────────────────▶ text received
//!   what lasts as long as a connection ▶ and new connections beyond that are refused
//!                               └ scarce: no text out of order is kept
//! ```
//!
//! Memory beside the buffers is mostly text on its way into a page, and the two must not keep each
//! other out. A part of what senders may have is the holders' elsewhere, and is kept for them as
//! long as they wait for it, even if senders wait in line. They may have half of it while no sender
//! waits. What they hold is never refused, so it may exceed that for a moment: then a sender that
//! holds no page may take what is kept for received text. So what is on its way always moves.
//!
//! Datagrams that wait, to be read or sent, have a part of their own ([`PART_OF_DATAGRAMS`]): they
//! may be dropped, and must not take the room of streams, which would stall.
//!
//! A short text, as most requests and answers are, goes into a page of a quarter of the size: each
//! of a great many connections holds some. Much of a long text goes into a page of four times the
//! size: the fewer ends of pages lie within segments, the fewer segments are copied in two pieces.
//! As an alternative, all that is sent lies in pages of one segment of 512 bytes, as in Cohen &
//! Cohen 2002 §4.

mod datagrams;
mod freed;
mod limits;
mod page;
mod purpose;

use alloc::sync::Arc;
use alloc::vec::Vec;

use freed::Freed;
use limits::{scarce_from, shares_of};

pub use datagrams::PART_OF_DATAGRAMS;
#[doc(hidden)]
pub use page::{CountedPage, LargePage, Page, SegmentPage, SharedPage, SmallPage};

pub use purpose::{ConnectionRoom, Level, Purpose, Side};

/// Bytes in a page.
pub const PAGE_BYTES: usize = 4096;

/// Bytes in a small page.
pub const SMALL_BYTES: usize = 1024;

/// Bytes in a large page.
pub const LARGE_BYTES: usize = 4 * PAGE_BYTES;

/// Bytes in a page of one segment.
pub const SEGMENT_BYTES: usize = 512;

/// The unit in which memory is counted, in bytes: every page is a whole number of them.
pub(crate) const UNIT_BYTES: usize = SEGMENT_BYTES;

/// Units in a page.
const PAGE: usize = PAGE_BYTES / UNIT_BYTES;

/// Units in a small page.
const SMALL: usize = SMALL_BYTES / UNIT_BYTES;

/// Units in a large page.
const LARGE: usize = LARGE_BYTES / UNIT_BYTES;

/// Bytes in freed pages kept for reuse in any case, of each size. A buffer that fills and empties
/// again and again should not go to the allocator each time.
const KEPT_BYTES: usize = 4 << 20;

/// The pages of one shard.
#[doc(hidden)]
#[derive(Debug)]
pub struct PagePool {
    free: Freed<PAGE_BYTES>,
    /// Freed small pages, by the use that they had.
    free_small: [Freed<SMALL_BYTES>; 2],
    free_large: Freed<LARGE_BYTES>,
    free_segments: Freed<SEGMENT_BYTES>,
    /// Units in what is called a page here: [`PAGE`], or one where all are of one segment.
    per_page: usize,
    /// The most bytes that go into a small page. 0 where all pages are of one segment.
    pub(crate) short_bytes: usize,
    /// Memory that is out, in units.
    in_use: usize,
    limit: usize,
    /// What may be in use once a page is given, by [`Purpose`], if connections took nothing.
    shares: [usize; 3],
    /// What may be in use once a page is given, by [`Purpose`], with what is set aside for
    /// connections.
    limits: [usize; 3],
    /// What senders that hold pages may have, with the part of it that holders elsewhere have.
    for_senders: usize,
    /// The limit of [`Purpose::More`] while no sender waits in line for pages: without what is kept
    /// for holders elsewhere.
    more: usize,
    /// Senders wait in line.
    has_line: bool,
    /// While some do, a sender that holds none gets no more either.
    has_one_line: bool,
    /// Memory held elsewhere that is charged here, in units; it is in use as well.
    elsewhere: usize,
    /// Memory that lasts as long as a connection; it is not in use, but set aside.
    by_connections: usize,
    set_aside: usize,
    /// From so many units in use on, pages are scarce: asked at each write.
    scarce_from: usize,
    /// A page was refused, and nothing done about it yet.
    was_refused: bool,
    /// The host looks after it each turn, refusal or not.
    is_scanned: bool,
    /// A holder of memory elsewhere waits for more.
    elsewhere_is_wanted: bool,
    /// New connections come, and no connection that needs nothing makes room for them.
    is_crowded: bool,
    /// What one send buffer may hold, in units, by policies that give each a share.
    share: usize,
    /// Slots of the connections that wait in line and whose standing may have changed.
    moved: Vec<u32>,
    /// What datagrams that wait have of what is in use, in units.
    by_datagrams: usize,
}

impl PagePool {
    /// A pool that hands out at most `limit` pages at a time; it allocates them as they are asked
    /// for.
    pub fn new(limit: usize) -> Self {
        PagePool::of_size(limit, PAGE)
    }

    /// A pool of at most `limit` pages of one segment each, where all that is sent lies in such
    /// pages.
    pub fn of_segments(limit: usize) -> Self {
        PagePool { short_bytes: 0, ..PagePool::of_size(limit, 1) }
    }

    fn of_size(limit: usize, per_page: usize) -> Self {
        let limit = limit.saturating_mul(per_page);
        let shares = shares_of(limit, per_page);
        let (free, free_small, free_large, free_segments) = Default::default();
        PagePool {
            free,
            free_small,
            free_large,
            free_segments,
            per_page,
            short_bytes: SMALL_BYTES,
            in_use: 0,
            limit,
            shares,
            limits: shares,
            for_senders: shares[0],
            more: shares[0],
            has_line: false,
            has_one_line: false,
            elsewhere: 0,
            by_connections: 0,
            set_aside: 0,
            scarce_from: scarce_from(limit, 0),
            was_refused: false,
            is_scanned: false,
            elsewhere_is_wanted: false,
            is_crowded: false,
            share: usize::MAX,
            moved: Vec::new(),
            by_datagrams: 0,
        }
    }

    /// Charges `units` to the limit of `purpose`. False, and nothing is charged, beyond it.
    fn charge_units(&mut self, units: usize, purpose: Purpose) -> bool {
        if self.in_use + units > self.limits[purpose as usize] {
            self.was_refused = true;
            return false;
        }
        self.in_use += units;
        true
    }

    /// A page, or `None` when the limit is reached. Its content is arbitrary.
    pub fn take(&mut self, purpose: Purpose) -> Option<Page> {
        self.charge_units(PAGE, purpose).then(|| self.take_charged())
    }

    /// A page that is charged already: it takes over the charge of one page of
    /// [`PagePool::charge`]. Its content is arbitrary.
    pub fn take_charged(&mut self) -> Page {
        match self.free.pop() {
            Some(page) => page,
            None => self.make(),
        }
    }

    /// A small page, or `None` when the limit is reached. Its content is arbitrary.
    #[inline(always)]
    pub fn take_small(&mut self, purpose: Purpose) -> Option<SmallPage> {
        if !self.charge_units(SMALL, purpose) {
            return None;
        }
        let [received, sent] = &mut self.free_small;
        let (own, other) = match purpose {
            Purpose::Receive => (received, sent),
            Purpose::First | Purpose::More => (sent, received),
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
    pub fn take_large(&mut self, purpose: Purpose) -> Option<LargePage> {
        self.charge_units(LARGE, purpose).then(|| match self.free_large.pop() {
            Some(page) => page,
            None => self.make(),
        })
    }

    /// A page of one segment, or `None` when the limit is reached. Its content is arbitrary.
    pub fn take_segment(&mut self, purpose: Purpose) -> Option<SegmentPage> {
        self.charge_units(1, purpose).then(|| match self.free_segments.pop() {
            Some(page) => page,
            None => self.make(),
        })
    }

    /// A new page.
    fn make<const BYTES: usize>(&mut self) -> Page<BYTES> {
        self.shed_excess();
        Page::new()
    }

    /// Keeps the memory that is out and the memory that is kept within the limit together: kept
    /// pages of one size do not come on top of others that are out, or of memory held elsewhere.
    fn shed_excess(&mut self) {
        let [received, sent] = &mut self.free_small;
        let kept = self.free.bytes() + self.free_large.bytes() + received.bytes() + sent.bytes();
        let kept = kept + self.free_segments.bytes();
        let out = (self.in_use + self.by_connections).saturating_mul(UNIT_BYTES);
        let mut excess = (out + kept).saturating_sub(self.limit.saturating_mul(UNIT_BYTES));
        excess = self.free_large.shed(excess.min(kept));
        excess = self.free.shed(excess);
        excess = received.shed(excess);
        excess = self.free_segments.shed(excess);
        sent.shed(excess);
    }

    /// Gives a page back.
    pub fn put(&mut self, page: Page) {
        self.discharge(1);
        self.free.put(page, self.in_use * UNIT_BYTES);
    }

    /// Gives a small page back.
    #[inline(always)]
    pub fn put_small(&mut self, side: Side, page: SmallPage) {
        self.release(SMALL);
        self.free_small[side as usize].put(page, self.in_use * UNIT_BYTES);
    }

    /// Gives a large page back.
    fn put_large(&mut self, page: LargePage) {
        self.release(LARGE);
        self.free_large.put(page, self.in_use * UNIT_BYTES);
    }

    /// Gives a page of one segment back.
    fn put_segment(&mut self, page: SegmentPage) {
        self.release(1);
        self.free_segments.put(page, self.in_use * UNIT_BYTES);
    }

    /// Gives a page back. One that a frame still shares is freed with the frame.
    pub fn put_shared(&mut self, page: SharedPage) {
        match page {
            SharedPage::Own(page) => self.put(page),
            SharedPage::OwnLarge(page) => self.put_large(page),
            SharedPage::OwnSegment(page) => self.put_segment(page),
            SharedPage::Counted(page) => self.put_counted(page),
        }
    }

    fn put_counted(&mut self, page: CountedPage) {
        match page {
            CountedPage::Page(page) => match Arc::try_unwrap(page) {
                Ok(page) => self.put(page),
                Err(_) => self.release(PAGE),
            },
            CountedPage::Large(page) => match Arc::try_unwrap(page) {
                Ok(page) => self.put_large(page),
                Err(_) => self.release(LARGE),
            },
            CountedPage::Segment(page) => match Arc::try_unwrap(page) {
                Ok(page) => self.put_segment(page),
                Err(_) => self.release(1),
            },
        }
    }

    /// Charges memory that is not the pool's own (an application's `Bytes`), in pages of 4 KiB.
    /// False if that would pass the limit; then nothing is charged.
    pub fn charge(&mut self, pages: usize, purpose: Purpose) -> bool {
        self.charge_units(pages.saturating_mul(PAGE), purpose)
    }

    /// Others hold so many bytes now that count here: none of theirs is refused, but what they
    /// hold the connections cannot have.
    pub fn set_elsewhere(&mut self, bytes: usize) {
        let units = bytes.div_ceil(UNIT_BYTES);
        let has_grown = units > self.elsewhere;
        self.in_use = self.in_use - self.elsewhere + units;
        self.elsewhere = units;
        self.set_limits();
        if has_grown {
            self.shed_excess();
        }
    }

    /// Connections take so many bytes now for as long as they live, and pages cannot have them. If
    /// there are any, a quarter of the limit is set aside for more: those that fill pages must not
    /// keep others out until they have been seen to stall.
    pub fn set_by_connections(&mut self, bytes: usize) {
        let units = bytes.div_ceil(UNIT_BYTES);
        if units == self.by_connections {
            return;
        }
        let has_grown = units > self.by_connections;
        self.by_connections = units;
        self.set_aside_for_connections();
        if has_grown {
            self.shed_excess();
        }
    }

    /// What `some` of so many connections take for as long as they live, in units.
    pub fn units_of_connections(&self, some: usize, connections: usize) -> usize {
        self.by_connections / connections.max(1) * some
    }

    /// True if so many units are more than half of the limit.
    pub fn is_most(&self, units: usize) -> bool {
        units > self.limit / 2
    }

    /// Notes that one of so many connections is about to go: the memory that it takes is as good as
    /// free from now on.
    pub fn expect_end_of_connection(&mut self, connections: usize) {
        let each = self.by_connections / connections.max(1);
        self.set_by_connections((self.by_connections - each) * UNIT_BYTES);
    }

    /// Units that connections can still take for as long as they live. Three quarters of the limit
    /// are theirs, so that an eighth is left for what they send, however many they are; and a
    /// connection that is let in must find a first page.
    fn left_for_connections(&self) -> usize {
        let share = self.limit / 4 * 3;
        let unused = self.shares[Purpose::First as usize].saturating_sub(self.in_use);
        share.min(unused).saturating_sub(self.by_connections)
    }

    /// New connections find little room, and none that needs nothing goes for them.
    pub fn set_crowded(&mut self, is_crowded: bool) {
        self.is_crowded = is_crowded;
        self.was_refused |= is_crowded;
    }

    /// Notes whether a holder of memory elsewhere waits for more.
    pub fn want_elsewhere(&mut self, is_wanted: bool) {
        self.was_refused |= is_wanted;
        if is_wanted != self.elsewhere_is_wanted {
            self.elsewhere_is_wanted = is_wanted;
            self.set_limits();
        }
    }

    /// True if a holder of memory elsewhere waits for more, where these holders have what they may.
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
        if left < bytes.div_ceil(UNIT_BYTES) {
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
        let first = self.limits[Purpose::First as usize].saturating_sub(self.in_use);
        self.by_connections > 0 && first.min(self.left_for_connections()) < self.limit / 32
    }

    /// Undoes [`PagePool::charge`].
    pub fn discharge(&mut self, pages: usize) {
        self.release(pages * PAGE);
    }

    fn release(&mut self, units: usize) {
        assert!(self.in_use >= units, "more pages given back than taken");
        self.in_use -= units;
    }

    /// True if less than a quarter of the pages can still be taken.
    pub fn is_scarce(&self) -> bool {
        self.in_use >= self.scarce_from
    }

    /// Lets senders that hold no page wait in one line with the others.
    pub fn set_one_line(&mut self) {
        self.has_one_line = true;
    }

    /// Has `act` take so many pages, at most, for a sender that has waited in line.
    pub fn in_turn<R>(&mut self, pages: usize, act: impl FnOnce(&mut PagePool) -> R) -> R {
        let turn = self.in_use.saturating_add(pages.saturating_mul(self.per_page));
        let limits = self.limits;
        self.limits[Purpose::More as usize] = self.more.min(turn);
        if self.has_one_line {
            self.limits[Purpose::First as usize] = self.more.min(turn);
        }
        let result = act(self);
        self.limits = limits;
        result
    }

    /// Limits each send buffer to so many pages, at least one; `None`: no limit.
    pub fn set_share(&mut self, pages: Option<usize>) {
        let units = |pages: usize| pages.max(1).saturating_mul(self.per_page);
        self.share = pages.map_or(usize::MAX, units);
    }

    /// Units that one send buffer may hold.
    pub(crate) fn share(&self) -> usize {
        self.share
    }

    /// The greatest length of one send buffer, in pages; `None`: no limit.
    pub fn share_pages(&self) -> Option<usize> {
        (self.share != usize::MAX).then(|| self.share / self.per_page)
    }

    /// Bytes in what is called a page here.
    pub fn page_bytes(&self) -> usize {
        self.per_page * UNIT_BYTES
    }

    /// The one in that slot waits in line, and holds less than it did, or needs more.
    pub(crate) fn note_moved(&mut self, slot: u32) {
        self.moved.push(slot);
    }

    /// The next of the slots that have moved, until there is none.
    pub(crate) fn next_moved(&mut self) -> Option<u32> {
        self.moved.pop()
    }

    /// Pages that can be given to senders that wait in line.
    pub fn available_in_line(&self) -> usize {
        self.more.saturating_sub(self.in_use) / self.per_page
    }

    /// Pages that the senders that hold some may have together.
    pub fn limit_in_line(&self) -> usize {
        self.for_senders / self.per_page
    }

    /// True if holders elsewhere may have more: there is some, and they hold no more than half of
    /// what senders may have, or no more than their part while senders wait in line. Else they
    /// could hold all that there is, and every page that comes back be taken for what waits to be
    /// written into pages.
    pub fn has_room_elsewhere(&self) -> bool {
        let most = if self.has_line { self.part_elsewhere() } else { self.for_senders / 2 };
        self.elsewhere < most && self.in_use + self.per_page <= self.for_senders
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

    /// True if a page was refused since [`PagePool::forget_refusal`].
    pub fn was_refused(&self) -> bool {
        self.was_refused
    }

    /// The host is to look after it each turn, as if something were refused.
    pub fn set_scanned(&mut self) {
        (self.is_scanned, self.was_refused) = (true, true);
    }

    /// Forgets a refusal: all that could be done about it has been done.
    pub fn forget_refusal(&mut self) {
        self.was_refused = self.is_scanned;
    }

    /// Pages out of the pool, or charged to it; what is small counts together.
    pub fn in_use(&self) -> usize {
        (self.in_use + self.by_connections).div_ceil(self.per_page)
    }

    /// Pages of 4 KiB that can still be taken.
    pub fn available(&self) -> usize {
        self.available_pages(Purpose::Receive)
    }

    /// Pages of 4 KiB that can still be taken for that.
    pub fn available_pages(&self, purpose: Purpose) -> usize {
        self.limits[purpose as usize].saturating_sub(self.in_use) / PAGE
    }

    /// Pages that can still be taken for that.
    pub fn available_to(&self, purpose: Purpose) -> usize {
        self.limits[purpose as usize].saturating_sub(self.in_use) / self.per_page
    }
}

#[cfg(test)]
mod tests;
