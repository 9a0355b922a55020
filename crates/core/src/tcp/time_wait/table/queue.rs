//! Records of one duration and one IP version, in order of expiry.
//!
//! ```text
//!   number of a record: │ chunk │ block: 6 bits │ row: 10 bits │        front ─▶        next ─▶
//!
//!   chunks ─▶ │ 64 blocks │ 64 blocks │ …       block: base in ms │ row │ row │ … up to 1024
//! ```
//!
//! Records get consecutive numbers and leave from the front. A number alone says whether its record
//! may still be there. A record that is late (restarted in its place, so that FINs repeated by a
//! stranger do not make the queue grow) is queued again when the front comes to it. When most
//! records are dead, a sweep from the back to the front moves those that live to the back of what
//! the dead have left, in their order.
//!
//! Invariants, which `Queue::check` checks after every operation of the property tests:
//!
//! 1. A record that is not dead has a number from `front` on, before `next`, or was passed in a
//!    block that the front has not left.
//! 2. `chunks` hold the numbers from `base`, a multiple of a chunk's, to `next`, and none beyond
//!    the chunk of `next`. Without chunks there is no record, and `front` is `next`.
//! 3. The front lies in the first chunk, or at the end of the last.
//! 4. `rows` counts the rows of all blocks, dead ones as well. A block has 1024 of them at most.
//! 5. While a block has rows, `live` counts those that are not dead. Only the block of the newest
//!    number may have rows without a living one: any other gives its memory back with its last
//!    record.
//! 6. The bases of blocks with living rows are in order, from the front to the back: a record
//!    that a sweep moves to a later block can tell its time there.
//! 7. A sweep's `read` is not behind its `write`, which is not behind `next`. Every record from
//!    `read` on, before `write`, is dead.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use super::index::Span;
use super::row::{Row, Scale};

const ROW_BITS: u32 = 10;
const ROWS: usize = 1 << ROW_BITS;
const CHUNK_BITS: u32 = 16;
const BLOCKS: usize = 1 << (CHUNK_BITS - ROW_BITS);
/// Rows that a queue keeps when it is empty, at most.
const ROWS_KEPT: u32 = 64;

#[derive(Debug)]
struct Block<R> {
    rows: Vec<R>,
    /// The time from which on its records expire, but for those that were moved.
    base_ms: u64,
    live: u32,
}

impl<R> Block<R> {
    const EMPTY: Block<R> = Block { rows: Vec::new(), base_ms: 0, live: 0 };
}

/// The place where a record lies, or has lain: nothing of it has been read.
#[derive(Debug)]
pub(super) struct Location<'a, R> {
    pub(super) row: &'a R,
    base_ms: u64,
}

/// A record where it lies.
#[derive(Clone, Copy, Debug)]
pub(super) struct Located<'a, R> {
    /// The record.
    pub(super) row: &'a R,
    /// When it expires.
    pub(super) expires_ms: u64,
}

/// The first record that is not dead.
#[derive(Clone, Copy, Debug)]
pub(super) struct First {
    number: u32,
    expires_ms: u64,
    is_late: bool,
    base_ms: u64,
}

impl First {
    /// When it would expire, in ms, had it not been restarted: about then, by its block, if it was.
    pub(super) fn turn_ms(&self) -> u64 {
        if self.is_late { self.expires_ms.min(self.base_ms) } else { self.expires_ms }
    }
}

/// What came to the front.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Front {
    /// Nothing that is due.
    Waiting,
    /// This record, which expires then; it is in the queue no more.
    Passed {
        /// Its number.
        number: u32,
        /// In ms.
        expires_ms: u64,
    },
}

/// How far a sweep is. Between both numbers all records are dead.
#[derive(Clone, Copy, Debug)]
struct Sweep {
    /// The number from which on rows have been looked at.
    read: u32,
    /// The number from which on moved records lie.
    write: u32,
}

/// The queue.
#[derive(Debug)]
pub(super) struct Queue<R> {
    #[expect(clippy::vec_box, reason = "when the queue grows no block is copied")]
    chunks: Vec<Box<[Block<R>; BLOCKS]>>,
    /// The number of the first record of the first chunk.
    base: u32,
    /// The oldest record that has not been passed.
    front: u32,
    /// The number of the next record.
    next: u32,
    /// Rows that take up memory.
    rows: u32,
    sweep: Option<Sweep>,
    scale: Scale,
}

impl<R: Row> Queue<R> {
    /// An empty one, for records that last `term_ms`.
    pub(super) fn new(term_ms: u64) -> Self {
        let scale = Scale::new(term_ms);
        Queue { chunks: Vec::new(), base: 0, front: 0, next: 0, rows: 0, sweep: None, scale }
    }

    /// The numbers that there may be: the first, and how many.
    pub(super) fn span(&self) -> Span {
        Span { first: self.front, len: self.next.wrapping_sub(self.front) }
    }

    /// Rows that take up memory, of records that are dead as well.
    pub(super) fn rows(&self) -> u32 {
        self.rows
    }

    /// Appends a record that expires then; returns its number.
    #[inline(always)]
    pub(super) fn push(&mut self, mut row: R, expires_ms: u64) -> u32 {
        let (number, scale) = (self.next, self.scale);
        // A block that was begun has a row.
        if let Some(block) = self.block_mut(number)
            && !block.rows.is_empty()
            && row.common_mut().expire_in_order(expires_ms, block.base_ms, scale)
        {
            block.rows.push(row);
            block.live += 1;
            self.rows += 1;
            self.next = number.wrapping_add(1);
            return number;
        }
        self.push_elsewhere(row, expires_ms)
    }

    /// Appends a record where there is no block for it yet, or where it is out of the last block's
    /// order.
    fn push_elsewhere(&mut self, mut row: R, expires_ms: u64) -> u32 {
        let scale = self.scale;
        if self.next.is_multiple_of(ROWS as u32) || !self.fits(expires_ms) {
            self.open(expires_ms);
        }
        let number = self.next;
        let Some(block) = self.block_mut(number) else { return number };
        let common = row.common_mut();
        if !common.expire_in_order(expires_ms, block.base_ms, scale) {
            let told = common.expire_out_of_order(expires_ms, false, block.base_ms, scale);
            debug_assert!(told, "it lies less than 2·MSL before the newest");
        }
        block.rows.push(row);
        block.live += 1;
        self.rows += 1;
        self.next = number.wrapping_add(1);
        number
    }

    /// True if the last block can tell this time.
    fn fits(&self, expires_ms: u64) -> bool {
        let last = self.block(self.next.wrapping_sub(1));
        let reach_ms = self.scale.span_ms();
        last.is_some_and(|block| !block.rows.is_empty() && expires_ms <= block.base_ms + reach_ms)
    }

    /// When the newest record expires, or no later if it is dead; 0 if there is none.
    pub(super) fn last_ms(&self) -> u64 {
        let newest = self.row(self.next.wrapping_sub(1));
        newest.map_or(self.last_base_ms(), |seen| seen.expires_ms.max(self.last_base_ms()))
    }

    /// The time from which on records of the last block expire; 0 if there is none.
    fn last_base_ms(&self) -> u64 {
        self.block(self.next.wrapping_sub(1)).map_or(0, |last| last.base_ms)
    }

    /// Begins a new block, with a record that expires then. Bases are in order, also if the record
    /// is queued again behind others that expire later.
    fn open(&mut self, expires_ms: u64) {
        let last_ms = self.last_base_ms();
        let base_ms = self.scale.base(expires_ms).max(last_ms);
        let (was_empty, last) = (self.is_empty(), self.next.wrapping_sub(1));
        if let Some(block) = self.block_mut(last) {
            block.rows.shrink_to_fit();
            if block.live == 0 {
                self.free_rows(last);
            }
        }
        self.next = self.next.wrapping_add(ROWS as u32 - 1) & !(ROWS as u32 - 1);
        if self.chunks.is_empty() {
            // Nothing is left of what was.
            self.next = self.next.wrapping_add((1 << CHUNK_BITS) - 1) & !((1 << CHUNK_BITS) - 1);
            self.front = self.next;
            self.base = self.next;
        } else if was_empty {
            self.front = self.next;
            self.free_block(last);
        }
        if self.next.trailing_zeros() >= CHUNK_BITS {
            self.chunks.push(Box::new([const { Block::EMPTY }; BLOCKS]));
        }
        if let Some(block) = self.block_mut(self.next) {
            *block = Block { base_ms, ..Block::EMPTY };
        }
    }

    fn place(&self, number: u32) -> (usize, usize) {
        let place = number.wrapping_sub(self.base) as usize;
        (place >> CHUNK_BITS, (place >> ROW_BITS) % BLOCKS)
    }

    fn block(&self, number: u32) -> Option<&Block<R>> {
        let (chunk, block) = self.place(number);
        Some(&self.chunks.get(chunk)?[block])
    }

    fn block_mut(&mut self, number: u32) -> Option<&mut Block<R>> {
        let (chunk, block) = self.place(number);
        Some(&mut self.chunks.get_mut(chunk)?[block])
    }

    /// The place of the record of that number.
    pub(super) fn location(&self, number: u32) -> Option<Location<'_, R>> {
        let block = self.block(number)?;
        let row = block.rows.get(number as usize % ROWS)?;
        Some(Location { row, base_ms: block.base_ms })
    }

    /// The record that lies there, unless it is dead.
    pub(super) fn locate<'a>(&self, location: &Location<'a, R>) -> Option<Located<'a, R>> {
        let expires_ms = location.row.common().expires_ms(location.base_ms, self.scale)?;
        Some(Located { row: location.row, expires_ms })
    }

    /// The record of that number, unless it is dead.
    pub(super) fn row(&self, number: u32) -> Option<Located<'_, R>> {
        self.locate(&self.location(number)?)
    }

    /// The record of that number, to be changed.
    pub(super) fn row_mut(&mut self, number: u32) -> Option<&mut R> {
        self.block_mut(number)?.rows.get_mut(number as usize % ROWS)
    }

    /// Lets the record of that number expire later; false if its place cannot hold that time.
    pub(super) fn restart(&mut self, number: u32, expires_ms: u64) -> bool {
        let scale = self.scale;
        let Some(block) = self.block_mut(number) else { return false };
        let base_ms = block.base_ms;
        let row = block.rows.get_mut(number as usize % ROWS);
        row.is_some_and(|row| {
            row.common_mut().expire_out_of_order(expires_ms, true, base_ms, scale)
        })
    }

    /// Takes the record of that number out of its place.
    pub(super) fn kill(&mut self, number: u32) {
        let is_last = self.next.wrapping_sub(1) >> ROW_BITS == number >> ROW_BITS;
        let Some(block) = self.block_mut(number) else { return };
        if let Some(row) = block.rows.get_mut(number as usize % ROWS) {
            row.common_mut().kill();
        }
        block.live -= 1;
        if block.live == 0 && !is_last {
            self.free_rows(number);
        }
    }

    /// When the record at the front expires, in ms; never if there is none. If it is dead, which it
    /// is only until the front moves, this is when its block begins.
    pub(super) fn front_ms(&self) -> u64 {
        let Some(block) = self.block(self.front).filter(|_| !self.is_empty()) else {
            return u64::MAX;
        };
        self.row(self.front).map_or(block.base_ms, |seen| seen.expires_ms)
    }

    /// Passes the record at the front if it is due, or late, or if `any`.
    /// What is dead on the way is passed as well.
    pub(super) fn pass(&mut self, now_ms: u64, any: bool) -> Front {
        let Some(First { number, expires_ms, is_late, .. }) = self.first() else {
            return Front::Waiting;
        };
        if expires_ms > now_ms && !is_late && !any {
            return Front::Waiting;
        }
        self.front = number.wrapping_add(1);
        Front::Passed { number, expires_ms }
    }

    /// The record at the front, where what is dead has been passed; `None` if no other is left.
    pub(super) fn first(&mut self) -> Option<First> {
        while !self.is_empty() {
            let (number, scale) = (self.front, self.scale);
            let block = self.block(number)?;
            let Some(row) = block.rows.get(number as usize % ROWS) else {
                self.leave_block();
                continue;
            };
            let (common, base_ms) = (row.common(), block.base_ms);
            if let Some(expires_ms) = common.expires_ms(base_ms, scale) {
                let is_late = common.is_late();
                return Some(First { number, expires_ms, is_late, base_ms });
            }
            self.front = number.wrapping_add(1);
            self.release(number);
        }
        None
    }

    /// Passes the records at the front whose time is over, as far as they lie in one block in their
    /// order, and shows them to `look`. Returns how many there were.
    pub(super) fn pass_due(&mut self, now_ms: u64, mut look: impl FnMut(&R)) -> u32 {
        let (front, scale) = (self.front, self.scale);
        let Some(block) = self.block(front) else { return 0 };
        let rows = block.rows.get(front as usize % ROWS..).unwrap_or_default();
        let (mut due, mut passed) = (0, 0);
        for row in rows {
            let common = row.common();
            if let Some(expires_ms) = common.expires_ms(block.base_ms, scale) {
                if expires_ms > now_ms {
                    break;
                }
                look(row);
                due += 1;
            }
            passed += 1;
        }
        if passed > 0 {
            self.front = front.wrapping_add(passed);
            self.release(front);
        }
        due
    }

    /// The record of that number was passed, and its row is not needed any more.
    pub(super) fn release(&mut self, number: u32) {
        if self.front.is_multiple_of(ROWS as u32) && self.front != number {
            self.free_block(number);
        }
    }

    /// True if no record is left.
    pub(super) fn is_empty(&self) -> bool {
        self.front == self.next
    }

    /// True if it takes up no more than what the next records need at once.
    pub(super) fn is_small(&self) -> bool {
        self.rows <= ROWS_KEPT
    }

    /// Gives all memory back; no record is left.
    pub(super) fn clear(&mut self) {
        debug_assert!(self.is_empty());
        self.chunks = Vec::new();
        self.rows = 0;
        self.sweep = None;
    }

    /// True if a sweep has begun and is not done.
    pub(super) fn is_sweeping(&self) -> bool {
        self.sweep.is_some()
    }

    /// Begins a sweep, or goes on with it: looks at so many rows and moves so many records at most.
    /// `tell` hears of each record that was moved, with its old number and its new one.
    pub(super) fn sweep(&mut self, rows: u32, mut moves: u32, mut tell: impl FnMut(&R, u32, u32)) {
        let all = Sweep { read: self.next, write: self.next };
        let Sweep { mut read, mut write } = self.sweep.unwrap_or(all);
        for _ in 0..rows {
            debug_assert!(write.wrapping_sub(read) as i32 >= 0);
            // The front may have come towards it, or gone past it.
            if read.wrapping_sub(self.front) as i32 <= 0 {
                self.sweep = None;
                if write.wrapping_sub(self.front) as i32 > 0 {
                    self.skip_to(write);
                }
                return;
            }
            let number = read.wrapping_sub(1);
            let Some(location) = self.location(number) else {
                read = self.end_of_rows(number);
                continue;
            };
            let base_ms = location.base_ms;
            let Some(Located { row, expires_ms }) = self.locate(&location) else {
                read = number;
                continue;
            };
            if read == write {
                (read, write) = (number, number);
                continue;
            }
            if moves == 0 {
                break;
            }
            let (mut row, place) = (*row, write.wrapping_sub(1));
            let end = self.end_of_rows(place);
            if end == place & !(ROWS as u32 - 1) {
                self.take_back(place, row, base_ms);
            } else if place.wrapping_sub(end) < ROWS as u32 {
                // No record ever had that number.
                write = end;
                continue;
            }
            self.put(place, &mut row, expires_ms);
            self.kill(number);
            tell(&row, number, place);
            (read, write, moves) = (number, place, moves - 1);
        }
        self.sweep = Some(Sweep { read, write });
    }

    /// Rows for a block that was given back, all dead. Its base is that of the block from which
    /// its last record comes, so that bases are in order as before.
    fn take_back(&mut self, number: u32, mut row: R, base_ms: u64) {
        row.common_mut().kill();
        if let Some(block) = self.block_mut(number) {
            *block = Block { rows: vec![row; ROWS], base_ms, live: 0 };
            self.rows += ROWS as u32;
        }
    }

    /// The end of the rows of the block of that number.
    fn end_of_rows(&self, number: u32) -> u32 {
        let rows = self.block(number).map_or(0, |block| block.rows.len() as u32);
        (number & !(ROWS as u32 - 1)).wrapping_add(rows)
    }

    /// Puts a record in the place of one that is dead, in a block whose base is no earlier than
    /// that of its own: so it can tell its time there.
    fn put(&mut self, place: u32, row: &mut R, expires_ms: u64) {
        let scale = self.scale;
        let Some(block) = self.block_mut(place) else { return };
        let (common, base_ms) = (row.common_mut(), block.base_ms);
        let is_late = common.is_late();
        let told = !is_late && common.expire_in_order(expires_ms, base_ms, scale)
            || common.expire_out_of_order(expires_ms, is_late, base_ms, scale);
        debug_assert!(told, "{expires_ms} after {base_ms}");
        if let Some(place) = block.rows.get_mut(place as usize % ROWS) {
            *place = *row;
            block.live += 1;
        }
    }

    /// The front goes on to that number: all before it are dead.
    fn skip_to(&mut self, number: u32) {
        let mut past = core::mem::replace(&mut self.front, number);
        while past >> ROW_BITS != number >> ROW_BITS {
            self.free_rows(past);
            past = (past | (ROWS as u32 - 1)).wrapping_add(1);
        }
        let chunks = self.place(number).0;
        self.chunks.drain(..chunks);
        self.base = self.base.wrapping_add((chunks as u32) << CHUNK_BITS);
    }

    /// Gives the rows of the block of that number back.
    fn free_rows(&mut self, number: u32) {
        if let Some(block) = self.block_mut(number) {
            let freed = core::mem::take(&mut block.rows).len() as u32;
            self.rows -= freed;
        }
    }

    /// The front goes on to the next block.
    fn leave_block(&mut self) {
        let number = self.front;
        self.front = (number | (ROWS as u32 - 1)).wrapping_add(1);
        self.free_block(number);
    }

    /// Frees the block of `number`, and its chunk if that was its last.
    fn free_block(&mut self, number: u32) {
        self.free_rows(number);
        if number >> CHUNK_BITS != self.front >> CHUNK_BITS {
            debug_assert_eq!(self.place(number).0, 0, "freed once");
            // A few hundred words to move, once in 65,536 records.
            self.chunks.remove(0);
            self.base = self.base.wrapping_add(1 << CHUNK_BITS);
        }
    }

    /// What lies at that number, or at the front if that is behind it, unless it is dead; and the
    /// next number, beyond what has no memory. `None` at the end.
    pub(super) fn look_at(&self, number: u32) -> Option<(Option<Located<'_, R>>, u32)> {
        let Span { first: front, len } = self.span();
        let is_passed = front.wrapping_sub(number).cast_signed() > 0;
        let number = if is_passed { front } else { number };
        if number.wrapping_sub(front) >= len {
            return None;
        }
        match self.location(number) {
            Some(location) => Some((self.locate(&location), number.wrapping_add(1))),
            None => Some((None, (number | (ROWS as u32 - 1)).wrapping_add(1))),
        }
    }

    /// Every record that is not dead.
    #[cfg(test)]
    pub(super) fn iter(&self) -> impl Iterator<Item = Located<'_, R>> {
        let Span { first: front, len } = self.span();
        (0..len).filter_map(move |offset| self.row(front.wrapping_add(offset)))
    }

    /// Rows for which there is memory.
    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        let blocks = self.chunks.iter().flat_map(|chunk| chunk.iter());
        blocks.map(|block| block.rows.capacity()).sum()
    }

    /// The invariants, by their numbers.
    #[cfg(test)]
    pub(super) fn check(&self) {
        let len = self.next.wrapping_sub(self.front);
        let reach = self.next.wrapping_sub(self.base);
        assert!(len < 1 << 31, "1: {} to {}", self.front, self.next);
        if self.chunks.is_empty() {
            assert_eq!((len, self.rows), (0, 0), "2");
            return;
        }
        let most = (self.chunks.len() as u32) << CHUNK_BITS;
        assert!(self.base.trailing_zeros() >= CHUNK_BITS, "2: {}", self.base);
        assert!(reach <= most && reach + (1 << CHUNK_BITS) > most, "2: {reach} in {most}");
        let front = self.front.wrapping_sub(self.base);
        assert!(front < 1 << CHUNK_BITS || front == reach, "3: {front}");
        let blocks = || self.chunks.iter().flat_map(|chunk| chunk.iter());
        let newest = (reach.wrapping_sub(1) >> ROW_BITS) as usize;
        let mut rows = 0;
        for (index, block) in blocks().enumerate() {
            let is_alive = |row: &&R| row.common().expires_ms(block.base_ms, self.scale).is_some();
            let live = block.rows.iter().filter(is_alive).count();
            let is_there = !block.rows.is_empty();
            assert!(!is_there || block.live as usize == live, "5: block {index}");
            assert!(!is_there || live > 0 || index == newest, "5: block {index}");
            assert!(block.rows.len() <= ROWS, "4: block {index}");
            assert!(live == 0 || index <= newest, "1: block {index}");
            rows += block.rows.len() as u32;
        }
        assert_eq!(self.rows, rows, "4");
        let bases = blocks().filter(|block| block.live > 0).map(|block| block.base_ms);
        assert!(bases.is_sorted(), "6");
        if let Some(Sweep { read, write }) = self.sweep {
            let (read, write) = (read.wrapping_sub(self.base), write.wrapping_sub(self.base));
            let is_past = |number: u32| number > 1 << 31 || number < front;
            assert!(is_past(write) || write <= reach && (is_past(read) || read <= write), "7");
            let first = if is_past(read) { front } else { read };
            let end = if is_past(write) { front } else { write };
            let dead = |number: u32| self.row(self.base.wrapping_add(number)).is_none();
            assert!((first..end).all(dead), "7: {first} to {end}");
        }
    }

    /// An empty queue whose next record is near this number.
    #[cfg(test)]
    pub(super) fn start_at(&mut self, number: u32) {
        assert!(self.chunks.is_empty());
        (self.front, self.next) = (number, number);
    }
}
