//! A hierarchical wheel of slots (Varghese & Lauck 1987), without cascading: an entry is handed out
//! when its slot is reached, and is filed again if that was early.
//!
//! ```text
//!   level 0   4096 slots of 1 tick         exact; for what is less than 4096 ticks ahead
//!   level 1   4096 slots of 2^9 ticks      the slot *at or before* the tick
//!   level 2   4096 slots of 2^18 ticks     the same; what is further ahead goes into the last
//! ```
//!
//! Each level is a ring that turns with the time, so that a tick's level depends on its distance
//! alone: with ticks of 1 ms every delayed ACK and retransmission is filed once, where it is due,
//! a minute's limit comes up once half a second early, two hours of keepalive also once some
//! minutes early.
//!
//! A slot's first entry lies in its head, where it costs no block: with few connections most slots
//! hold no other. The rest lie in blocks of one cache line, so that reaching a slot reads an array:
//! a list of the entries themselves would wait for memory once for each. The caller that files an
//! entry keeps its [`Position`], and takes it out by clearing a bit. A block that is empty is free
//! again at once, so that there are never more of them than entries.
//!
//! ```text
//!   │ entry first │ ─▶ │ next previous slot live │ entry entry … 13 of them │ ─▶ block ─▶ block
//! ```

use alloc::boxed::Box;
use alloc::vec::Vec;

mod occupancy;

use occupancy::Occupancy;

const LEVELS: usize = 3;
/// Slots of a level.
const SLOTS: usize = 4096;
/// How much wider the slots of the next level are: two to the power of this.
const LEVEL_SHIFT: u32 = 9;

/// No block, or no entry.
const NONE: u32 = u32::MAX;

/// No entry is filed further ahead, but handed out early and filed again.
const HORIZON: u64 = (SLOTS as u64 - 2) << (2 * LEVEL_SHIFT);

/// Entries of a block.
const ENTRIES: usize = 13;
const FULL: u16 = (1 << ENTRIES) - 1;
/// Bits of a [`Position`] that say where in its block an entry is.
const PLACE_BITS: u32 = 4;
/// The place of an entry in the head of its slot; the slot's number then stands for a block's.
const IN_HEAD: u32 = (1 << PLACE_BITS) - 1;

/// Blocks in a chunk. Chunks are never moved, so that growth costs no more than one of them.
const CHUNK: usize = 256;

/// The place where an entry is filed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Position(u32);

impl Position {
    /// Nowhere.
    pub(super) const NOWHERE: Position = Position(u32::MAX);

    /// This position as a number.
    pub(super) const fn bits(self) -> u32 {
        self.0
    }

    /// The position of a number from [`bits`](Self::bits).
    pub(super) const fn from_bits(bits: u32) -> Position {
        Position(bits)
    }
}

/// A slot. It holds an entry if either is not `NONE`.
#[derive(Clone, Copy, Debug)]
struct Head {
    entry: u32,
    /// The first block of its other entries.
    first: u32,
}

/// Entries of one slot: a cache line.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
struct Block {
    next: u32,
    /// `NONE`: the first of its slot.
    previous: u32,
    slot: u16,
    /// A bit for each entry that is filed here.
    live: u16,
    entries: [u32; ENTRIES],
}

/// Entries, each a number of its owner's choice, filed by tick.
#[derive(Debug)]
pub(super) struct Slots {
    /// The present tick: every slot before it has been handed out.
    now: u64,
    /// The tick at which the next slot is reached that holds an entry; `u64::MAX` if none does.
    next: u64,
    /// The number of that slot.
    next_slot: usize,
    occupancy: [Occupancy; LEVELS],
    /// Each slot, level by level.
    heads: Box<[Head; LEVELS * SLOTS]>,
    /// The first block that is free.
    free: u32,
    blocks: Vec<Box<[Block; CHUNK]>>,
}

impl Default for Slots {
    fn default() -> Self {
        Slots {
            now: 0,
            next: u64::MAX,
            next_slot: 0,
            occupancy: core::array::from_fn(|_| Occupancy::default()),
            heads: Box::new([Head { entry: NONE, first: NONE }; LEVELS * SLOTS]),
            free: NONE,
            blocks: Vec::new(),
        }
    }
}

impl Slots {
    /// Counts the entries filed.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        let blocks = self.blocks.iter().flat_map(|chunk| chunk.iter());
        self.heads.iter().filter(|head| head.entry != NONE).count()
            + blocks.map(|block| block.live.count_ones() as usize).sum::<usize>()
    }

    /// The tick at which the next slot is reached that holds an entry.
    pub(super) fn next(&self) -> Option<u64> {
        (self.next != u64::MAX).then_some(self.next)
    }

    /// Files `entry` under `tick`; one that is past counts as the present. Returns where, and the
    /// tick at which its slot is reached: `tick`, or earlier.
    pub(super) fn insert(&mut self, entry: u32, tick: u64) -> (Position, u64) {
        let (slot, at) = self.slot_of(tick);
        if at < self.next {
            (self.next, self.next_slot) = (at, slot);
        }
        let head = &mut self.heads[slot];
        if head.entry != NONE {
            return (self.insert_into_block(entry, slot), at);
        }
        head.entry = entry;
        if head.first == NONE {
            self.occupancy[slot / SLOTS].insert(slot % SLOTS);
        }
        (Position((slot as u32) << PLACE_BITS | IN_HEAD), at)
    }

    /// Files `entry` in a slot whose head is taken.
    fn insert_into_block(&mut self, entry: u32, slot: usize) -> Position {
        let mut number = self.heads[slot].first;
        let chunk = self.blocks.get_mut(number as usize / CHUNK);
        let block = match chunk.map(|chunk| &mut chunk[number as usize % CHUNK]) {
            Some(block) if block.live != FULL => block,
            _ => {
                number = self.open(slot);
                self.block(number)
            }
        };
        let position = block.live.trailing_ones();
        block.live |= 1 << position;
        block.entries[position as usize] = entry;
        Position(number << PLACE_BITS | position)
    }

    /// In which slot `tick` is filed, and when that is reached.
    fn slot_of(&self, tick: u64) -> (usize, u64) {
        let ahead = tick.saturating_sub(self.now);
        if ahead < SLOTS as u64 {
            let tick = tick.max(self.now);
            return (tick as usize % SLOTS, tick);
        }
        let ahead = ahead.min(HORIZON);
        let level = level_of(ahead);
        let shift = level as u32 * LEVEL_SHIFT;
        let counted = self.now.saturating_add(ahead) >> shift;
        (level * SLOTS + counted as usize % SLOTS, counted << shift)
    }

    /// Takes `entry` out, which is filed at `place`.
    pub(super) fn remove(&mut self, entry: u32, place: Position) {
        let (number, position) = (place.0 >> PLACE_BITS, place.0 & ((1 << PLACE_BITS) - 1));
        if position == IN_HEAD {
            let slot = number as usize;
            assert!(self.heads[slot].entry == entry, "{entry} is not filed at {place:?}");
            return self.empty_head(slot);
        }
        let block = self.block(number);
        let bit = 1u16 << position;
        let is_there = block.live & bit != 0 && block.entries[position as usize] == entry;
        assert!(is_there, "{entry} is not filed at {place:?}");
        block.live &= !bit;
        if block.live == 0 {
            self.close(number);
        }
    }

    /// Hands out an entry of the next slot, which is reached now; in no order within a slot.
    pub(super) fn pop(&mut self) -> Option<u32> {
        self.now = self.next()?;
        let Head { entry, first: number } = self.heads[self.next_slot];
        if entry != NONE {
            self.empty_head(self.next_slot);
            return Some(entry);
        }
        let block = self.block(number);
        let entry = block.entries[block.live.trailing_zeros() as usize];
        block.live &= block.live - 1;
        if block.live == 0 {
            self.close(number);
        }
        Some(entry)
    }

    /// It is `tick` now; no further than the next slot, which must be handed out first.
    pub(super) fn advance(&mut self, tick: u64) {
        self.now = self.now.max(tick.min(self.next));
    }

    /// The entry in the head of `slot` is gone.
    fn empty_head(&mut self, slot: usize) {
        let head = &mut self.heads[slot];
        head.entry = NONE;
        if head.first == NONE {
            self.empty(slot);
        }
    }

    /// `slot` holds no entry any more.
    fn empty(&mut self, slot: usize) {
        self.occupancy[slot / SLOTS].remove(slot % SLOTS);
        if slot == self.next_slot {
            self.find_next();
        }
    }

    /// Puts a block with no entry before the others of `slot`, which is not empty.
    fn open(&mut self, slot: usize) -> u32 {
        if self.free == NONE {
            self.grow();
        }
        let number = self.free;
        let head = core::mem::replace(&mut self.heads[slot].first, number);
        let block = self.block(number);
        let free = block.next;
        (block.next, block.previous, block.slot) = (head, NONE, slot as u16);
        self.free = free;
        if head != NONE {
            self.block(head).previous = number;
        }
        number
    }

    /// Frees a block whose entries are all gone.
    fn close(&mut self, number: u32) {
        let free = core::mem::replace(&mut self.free, number);
        let block = self.block(number);
        let (next, previous, slot) = (block.next, block.previous, usize::from(block.slot));
        block.next = free;
        if next != NONE {
            self.block(next).previous = previous;
        }
        if previous != NONE {
            self.block(previous).next = next;
            return;
        }
        let head = &mut self.heads[slot];
        head.first = next;
        if next == NONE && head.entry == NONE {
            self.empty(slot);
        }
    }

    /// Finds the next slot that holds an entry; on the lowest level, if several are reached at
    /// once.
    fn find_next(&mut self) {
        (self.next, self.next_slot) = (u64::MAX, 0);
        for (level, occupancy) in self.occupancy.iter().enumerate() {
            let shift = level as u32 * LEVEL_SHIFT;
            let present = self.now >> shift;
            let Some(slot) = occupancy.first_from(present as usize % SLOTS) else { continue };
            let ahead = slot.wrapping_sub(present as usize) % SLOTS;
            let at = (present + ahead as u64) << shift;
            if at < self.next {
                (self.next, self.next_slot) = (at, level * SLOTS + slot);
            }
        }
    }

    /// One more chunk of blocks, all free.
    fn grow(&mut self) {
        let first = (self.blocks.len() * CHUNK) as u32;
        let block = Block { next: NONE, previous: NONE, slot: 0, live: 0, entries: [0; ENTRIES] };
        let mut chunk = Box::new([block; CHUNK]);
        for (number, block) in (first + 1..).zip(&mut chunk[..CHUNK - 1]) {
            block.next = number;
        }
        self.blocks.push(chunk);
        self.free = first;
    }

    fn block(&mut self, number: u32) -> &mut Block {
        &mut self.blocks[number as usize / CHUNK][number as usize % CHUNK]
    }
}

/// The lowest level but the first on whose ring there is room for what is so many ticks ahead,
/// whatever the present tick's place in its slot.
fn level_of(ahead: u64) -> usize {
    1 + usize::from(ahead >= (SLOTS as u64 - 1) << LEVEL_SHIFT)
}

#[cfg(test)]
mod tests;
