//! Finds a segment's connection by its addresses and ports.
//!
//! ```text
//!   line, 64 bytes   │ link ─▶ line │ 12 tags of 8 bits │ 12 entries of 32 │
//!   entry            │ 1 of what the slot is │ 5 more bits of the tag │ 26 of the slot │
//! ```
//!
//! The hash is keyed ([`TupleHasher`](crate::flow::TupleHasher)), because the tuple is the
//! attacker's to choose: with a public hash he could put every connection into one chain.
//!
//! The table grows and shrinks a line at a time (linear hashing, Litwin 1980), so that it is never
//! copied and no segment waits for a copy. A line that is not yet its turn to be split may hold
//! more than fits; the rest lies in spare lines behind it. A tag is eight more bits of the hash,
//! and five are in the entry: where they differ, the slot, which is far away, is not looked at.

use alloc::boxed::Box;
use alloc::vec::Vec;

use lightwait_processor::{prefetch, which};

use crate::config::SLOTS_MAX;

/// Entries of a line.
const ENTRIES: usize = 12;
/// Bytes of its link.
const LINK: usize = size_of::<u32>();
/// Slots per line from which on one is split.
const SPLIT: usize = 4;
/// Slots per line from which on one is split while lines cost nothing: the first segment is there
/// whether it is used or not.
const SPLIT_EARLY: usize = 2;
/// Slots per line below which two are joined.
const JOIN: usize = 2;
/// Lines in a segment.
const SEGMENT: usize = 256;
/// No line, and no slot.
pub const NONE: u32 = u32::MAX;
/// The bits of an entry that hold bits of the hash.
const MORE: u32 = (1 << 31) - SLOTS_MAX as u32;

/// Entries with tag 0 are free.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub struct Bucket {
    /// The link, and behind it the tags.
    head: [u8; LINK + ENTRIES],
    entries: [u32; ENTRIES],
}

const _: () = assert!(size_of::<Bucket>() == 64);

/// The link [`NONE`] before tags that are 0.
const FREE: Bucket = Bucket {
    head: [0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
    entries: [0; ENTRIES],
};

/// Lines that never move.
#[derive(Debug, Default)]
struct Lines {
    segments: Vec<Box<[Bucket; SEGMENT]>>,
    len: u32,
}

impl Lines {
    fn get(&self, line: u32) -> Option<&Bucket> {
        Some(&self.segments.get(line as usize / SEGMENT)?[line as usize % SEGMENT])
    }

    fn get_mut(&mut self, line: u32) -> Option<&mut Bucket> {
        Some(&mut self.segments.get_mut(line as usize / SEGMENT)?[line as usize % SEGMENT])
    }

    /// Adds a line at the end; returns its number.
    fn push(&mut self) -> u32 {
        let line = self.len;
        if line as usize == self.segments.len() * SEGMENT {
            self.segments.push(Box::new([FREE; SEGMENT]));
        }
        self.len += 1;
        line
    }

    /// The last one goes, and its segment with it if that is empty.
    fn pop(&mut self) {
        self.len -= 1;
        self.segments.truncate((self.len as usize).div_ceil(SEGMENT));
    }
}

/// Slots by tuple. The slots themselves hold the tuple and its hash.
#[derive(Debug)]
pub struct Demux {
    lines: Lines,
    spare: Lines,
    /// The first spare line that is free.
    free: u32,
    len: usize,
    /// The number of lines rounded up to a power of two, less 1.
    mask: u32,
}

impl Default for Demux {
    fn default() -> Self {
        Demux { lines: Lines::default(), spare: Lines::default(), free: NONE, len: 0, mask: 0 }
    }
}

/// Never 0: those of 0 are 1 as well.
fn tag_of(hash: u64) -> u8 {
    ((hash >> 56) as u8).max(1)
}

/// The bits of the hash that are in an entry.
fn more_of(hash: u64) -> u32 {
    (hash >> 25) as u32 & MORE
}

/// The entry of `slot` under this hash.
fn entry_of(hash: u64, slot: u32) -> u32 {
    debug_assert!(slot & MORE == 0, "slot {slot}");
    slot | more_of(hash)
}

/// The slot of an entry, if it may be one of this hash; else what no slot's number is.
fn number_of(hash: u64, entry: u32) -> u32 {
    entry ^ more_of(hash)
}

/// The slot of an entry, if it may be one of this hash.
fn slot_of(hash: u64, entry: u32) -> Option<u32> {
    let slot = number_of(hash, entry);
    (slot & MORE == 0).then_some(slot)
}

impl Bucket {
    /// A line that holds nothing.
    pub const NOTHING: &Bucket = &FREE;

    /// The line that lies behind.
    fn link(&self) -> u32 {
        let [a, b, c, d, ..] = self.head;
        u32::from_ne_bytes([a, b, c, d])
    }

    fn set_link(&mut self, link: u32) {
        let [a, b, c, d, ..] = &mut self.head;
        [*a, *b, *c, *d] = link.to_ne_bytes();
    }

    /// The places of this tag, a bit for each.
    fn places(&self, tag: u8) -> u32 {
        which(&self.head, |it| it == tag) >> LINK
    }

    /// The slot that may have this hash, at first sight. If there is none, some number.
    pub(crate) fn first_guess(&self, hash: u64) -> u32 {
        // No question is asked: where the tag is not, the first place will do, and a tag that must
        // not be 0 is not seen.
        let places = which(&self.head, |it| it == (hash >> 56) as u8) | 1 << LINK;
        number_of(hash, self.entries[places.ilog2() as usize - LINK])
    }

    /// The last place of this tag, where the newest mostly is, and the entry there.
    fn last(&self, tag: u8) -> Option<(usize, u32)> {
        let place = self.places(tag).checked_ilog2()? as usize;
        Some((place, *self.entries.get(place)?))
    }

    /// The tag at a place.
    fn tag_mut(&mut self, place: usize) -> &mut u8 {
        &mut self.head[LINK + place]
    }

    /// The first place of this tag that `is_it` accepts.
    fn find(&self, tag: u8, mut is_it: impl FnMut(usize) -> bool) -> Option<usize> {
        let mut left = self.places(tag);
        while left != 0 {
            let place = left.trailing_zeros() as usize;
            if is_it(place) {
                return Some(place);
            }
            left &= left - 1;
        }
        None
    }

    /// Puts an entry into a free place; false if there is none.
    #[inline(always)]
    fn put(&mut self, tag: u8, entry: u32) -> bool {
        let place = self.places(0).trailing_zeros() as usize;
        let has_room = place < ENTRIES;
        if has_room {
            (*self.tag_mut(place), self.entries[place]) = (tag, entry);
        }
        has_room
    }

    /// Takes an entry out; false if it is not in.
    fn take(&mut self, tag: u8, entry: u32) -> bool {
        let place = self.find(tag, |place| self.entries[place] == entry);
        let Some(place) = place else { return false };
        *self.tag_mut(place) = 0;
        true
    }

    /// Puts another entry into the place of one; false if that is not in.
    fn replace(&mut self, tag: u8, old: u32, new: u32) -> bool {
        let place = self.find(tag, |place| self.entries[place] == old);
        let Some(place) = place else { return false };
        self.entries[place] = new;
        true
    }

    /// All that it holds.
    fn entries(&self) -> impl Iterator<Item = (u8, u32)> {
        self.head.into_iter().skip(LINK).zip(self.entries).filter(|(tag, _)| *tag != 0)
    }
}

impl Demux {
    fn line_of(&self, hash: u64) -> u32 {
        let line = hash as u32 & self.mask;
        if line < self.lines.len { line } else { line & (self.mask >> 1) }
    }

    /// Fetches the line that a look-up of this hash will read, without waiting for it.
    pub fn prefetch(&self, hash: u64) -> &Bucket {
        match self.lines.get(self.line_of(hash)) {
            Some(line) => {
                prefetch(line);
                line
            }
            None => Bucket::NOTHING,
        }
    }

    /// The slot whose tuple has this `hash` and for which `is_it` says so.
    pub fn find(&self, hash: u64, mut is_it: impl FnMut(u32) -> bool) -> Option<u32> {
        let tag = tag_of(hash);
        let line = self.lines.get(self.line_of(hash))?;
        // Nearly always the last of the tag is it, or there is none.
        match line.last(tag) {
            Some((_, entry)) => match slot_of(hash, entry).filter(|slot| is_it(*slot)) {
                None => self.find_among_all(hash, is_it),
                found => found,
            },
            None if line.link() == NONE => None,
            None => self.find_among_all(hash, is_it),
        }
    }

    /// Finds a slot as `find` does, where a hit would be a surprise.
    #[inline(always)]
    pub(crate) fn find_unexpected(&self, hash: u64, is_it: impl FnMut(u32) -> bool) -> Option<u32> {
        let line = self.lines.get(self.line_of(hash))?;
        if line.places(tag_of(hash)) == 0 && line.link() == NONE {
            return None;
        }
        self.find_among_all(hash, is_it)
    }

    /// The slot that may have this hash; if there is none, some number.
    pub(crate) fn first_guess(&self, hash: u64) -> u32 {
        self.lines.get(self.line_of(hash)).map_or(NONE, |line| line.first_guess(hash))
    }

    fn find_among_all(&self, hash: u64, mut is_it: impl FnMut(u32) -> bool) -> Option<u32> {
        let tag = tag_of(hash);
        let mut line = self.lines.get(self.line_of(hash))?;
        loop {
            let slot_at = |place| slot_of(hash, line.entries[place]);
            if let Some(place) = line.find(tag, |place| slot_at(place).is_some_and(&mut is_it)) {
                return slot_at(place);
            }
            line = self.spare.get(line.link())?;
        }
    }

    /// Adds a slot under its tuple's hash. `hash_of`: the hash of the tuple of a slot that is in.
    pub fn insert(&mut self, hash: u64, slot: u32, hash_of: impl Fn(u32) -> u64) {
        self.len += 1;
        let lines = self.lines.len as usize;
        if self.len > lines * if lines < SEGMENT { SPLIT_EARLY } else { SPLIT } {
            self.split(hash_of);
        }
        self.put(self.line_of(hash), tag_of(hash), entry_of(hash, slot));
    }

    /// Puts a slot into the place of another, of the same tuple.
    pub fn replace(&mut self, hash: u64, old: u32, new: u32) {
        let (line, tag) = (self.line_of(hash), tag_of(hash));
        let (old, new) = (entry_of(hash, old), entry_of(hash, new));
        let Some(first) = self.lines.get_mut(line) else { return };
        let (mut replaced, mut link) = (first.replace(tag, old, new), first.link());
        while !replaced && let Some(next) = self.spare.get_mut(link) {
            (replaced, link) = (next.replace(tag, old, new), next.link());
        }
    }

    /// Takes a slot out; false if it was not in.
    pub fn remove(&mut self, hash: u64, slot: u32) -> bool {
        let (line, tag, entry) = (self.line_of(hash), tag_of(hash), entry_of(hash, slot));
        let Some(first) = self.lines.get_mut(line) else { return false };
        match first.last(tag) {
            Some((place, it)) if it == entry => *first.tag_mut(place) = 0,
            _ if self.remove_behind(line, tag, entry) => {}
            _ => return false,
        }
        self.len -= 1;
        // Nothing of the first segment would be given back.
        let lines = self.lines.len as usize;
        if lines > SEGMENT && self.len < JOIN * (lines - 1) {
            self.join();
        }
        true
    }

    /// Takes an entry out of a line, or from behind it.
    fn remove_behind(&mut self, line: u32, tag: u8, entry: u32) -> bool {
        let Some(first) = self.lines.get_mut(line) else { return false };
        let (mut taken, mut link) = (first.take(tag, entry), first.link());
        while !taken {
            let Some(next) = self.spare.get_mut(link) else { return false };
            (taken, link) = (next.take(tag, entry), next.link());
        }
        true
    }

    /// Puts an entry into a line, or behind it.
    #[inline(always)]
    fn put(&mut self, line: u32, tag: u8, entry: u32) {
        let Some(first) = self.lines.get_mut(line) else { return };
        if !first.put(tag, entry) {
            self.put_behind(line, tag, entry);
        }
    }

    fn put_behind(&mut self, line: u32, tag: u8, entry: u32) {
        let Some(first) = self.lines.get(line) else { return };
        let (behind, mut link) = (first.link(), first.link());
        while let Some(next) = self.spare.get_mut(link) {
            if next.put(tag, entry) {
                return;
            }
            link = next.link();
        }
        let at = self.take_spare();
        if let (Some(first), Some(spare)) = (self.lines.get_mut(line), self.spare.get_mut(at)) {
            first.set_link(at);
            *spare = FREE;
            spare.set_link(behind);
            spare.put(tag, entry);
        }
    }

    fn take_spare(&mut self) -> u32 {
        match self.spare.get(self.free) {
            Some(spare) => core::mem::replace(&mut self.free, spare.link()),
            None => self.spare.push(),
        }
    }

    /// Adds a line: the line that has held its entries so far is divided.
    fn split(&mut self, hash_of: impl Fn(u32) -> u64) {
        let new = self.lines.push();
        self.mask = self.lines.len.next_power_of_two() - 1;
        if new == 0 {
            return;
        }
        // Without its highest bit: the line in which hashes of the new one's have been.
        let taken = self.take_line(new & !(1 << new.ilog2()));
        self.put_again(taken, |demux, entry| demux.line_of(hash_of(entry & !MORE)));
    }

    /// Removes a line: its entries go where they would be if there had never been that line.
    fn join(&mut self) {
        let last = self.lines.len - 1;
        let taken = self.take_line(last);
        self.lines.pop();
        self.mask = self.lines.len.next_power_of_two() - 1;
        self.put_again(taken, |_, _| last & !(1 << last.ilog2()));
    }

    /// Takes everything out of a line; what lies behind it is linked to what was taken.
    fn take_line(&mut self, line: u32) -> Bucket {
        self.lines.get_mut(line).map_or(FREE, |line| core::mem::replace(line, FREE))
    }

    /// Puts all that was taken out, and what lies behind it, into the lines that `line_of` says.
    /// Each line is free before its entries are put, so that they may lie in it again.
    fn put_again(&mut self, mut taken: Bucket, line_of: impl Fn(&Demux, u32) -> u32) {
        loop {
            for (tag, entry) in taken.entries() {
                self.put(line_of(self, entry), tag, entry);
            }
            let next = taken.link();
            let Some(spare) = self.spare.get_mut(next) else { return };
            taken = *spare;
            spare.set_link(self.free);
            self.free = next;
        }
    }

    /// Slots in the table.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

#[cfg(test)]
mod tests;
