//! From a hash to the numbers of the records that may have it.
//!
//! ```text
//!   entry      │ tag: high bits of the hash │ low bits of the record's number │
//!   line       │ 15 entries │ turn, link ─▶ half line │ 7 entries │ link ─▶ …
//! ```
//!
//! Linear hashing (Litwin 1980): the lines grow by one at a time, each insertion splits one at
//! most, and the table never stands still to be copied. A line that is not yet its turn to be split
//! holds more than fits; the rest lies in half lines behind it. Entries stay when records expire:
//! numbers before the queue's front are stale, and are written over where a place is needed. Since
//! records mostly expire in the order in which they entered, the places of a line take turns, and
//! whose turn it is holds its oldest entry: if that is not stale, mostly none is. A number so old
//! that it looks new again leads to a record of another tuple, and is dropped when its line is
//! split.
//!
//! The hash is the host's keyed one, so that no stranger can choose a line.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use lightwait_processor::{prefetch, which};

use super::halves::{HALF, Halves};

/// Entries of a line.
const LINE: usize = 15;
/// Records per line from which on it is split.
const SPLIT: u32 = 10;
/// Records per line below which two are joined.
const JOIN: u32 = 6;
/// Records that enter before it is seen to that there are as many lines as they need; fewer than
/// those for which a line is split.
const KEEP_UP: u32 = 8;
/// The bits of a line's last word where its turn begins; below them lies the link.
const TURN_SHIFT: u32 = 28;
/// The bits of the link.
const LINK: u32 = (1 << TURN_SHIFT) - 1;
/// A line's last word when each place has had its turn.
const TURNS: u32 = (LINE as u32) << TURN_SHIFT;
/// Lines in a segment.
const SEGMENT: usize = 128;
/// No fewer lines are joined, or given back when no record is left: they cost too little.
const LINES_KEPT: u32 = 16;

#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(super) struct Bucket([u32; LINE + 1]);

/// The numbers that records have.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    pub(super) first: u32,
    /// How many there are.
    pub(super) len: u32,
}

/// A walk over the entries of one line that have the tag wanted.
#[derive(Debug)]
pub(super) struct Probe<'a, const N: usize = { LINE + 1 }> {
    line: &'a [u32; N],
    /// The matches that are still to be looked at, a bit for each.
    pub(super) matches: u32,
    /// The half line that follows; 0: none.
    pub(super) link: u32,
}

/// The index.
#[derive(Debug)]
pub(super) struct Index {
    segments: Vec<Box<[Bucket; SEGMENT]>>,
    lines: u32,
    /// The lines' number rounded up to a power of two, less 1.
    mask: u32,
    halves: Halves,
    /// Which bits of an entry are the number's.
    numbers: u32,
    /// What is taken out of a line to be put elsewhere.
    scratch: Vec<u32>,
    /// What of it belongs to a new line.
    moved: Vec<u32>,
    /// Records that have entered.
    entered: u32,
}

impl Index {
    /// An empty one for so many records at most.
    pub(super) fn new(limit: usize) -> Index {
        // Numbers are spent on records that are dead, too, until the queue is made shorter.
        let numbers = (limit as u64 * 21 / 8 + (1 << 17)).next_power_of_two();
        Index {
            segments: Vec::new(),
            lines: 0,
            mask: 0,
            halves: Halves::new(),
            numbers: (numbers.min(1 << 30) - 1) as u32,
            scratch: Vec::new(),
            moved: Vec::new(),
            entered: 0,
        }
    }

    /// Numbers that the queue may span.
    pub(super) fn span_max(&self) -> u32 {
        self.numbers
    }

    fn entry(&self, hash: u64, number: u32) -> u32 {
        (hash >> 32) as u32 & !self.numbers | number & self.numbers
    }

    /// The number that an entry means, and whether a record may have it.
    fn number(&self, entry: u32, Span { first, len }: Span) -> Option<u32> {
        let offset = entry.wrapping_sub(first) & self.numbers;
        (offset < len).then(|| first.wrapping_add(offset))
    }

    fn line_of(&self, hash: u64) -> u32 {
        let line = hash as u32 & self.mask;
        if line < self.lines { line } else { line & (self.mask >> 1) }
    }

    /// There are so many lines now.
    fn set_lines(&mut self, lines: u32) {
        (self.lines, self.mask) = (lines, lines.next_power_of_two() - 1);
    }

    /// The line of this hash; there is none where there are no records.
    pub(super) fn line(&self, hash: u64) -> Option<&Bucket> {
        let line = self.line_of(hash) as usize;
        Some(&self.segments.get(line / SEGMENT)?[line % SEGMENT])
    }

    /// Fetches the line of this hash, without waiting for it.
    pub(super) fn prefetch(&self, hash: u64) {
        if let Some(line) = self.line(hash) {
            prefetch(line);
        }
    }

    /// The entries under this hash, of its line, whose tag is right.
    pub(super) fn probe<'a>(&self, hash: u64, Bucket(line): &'a Bucket) -> Probe<'a> {
        let (wanted, tag) = (self.entry(hash, 0), !self.numbers);
        let matches = entries_of(line, |entry| entry & tag == wanted);
        Probe { line, matches, link: line[LINE] & LINK }
    }

    /// The entries under this hash of the half line that follows; `None` if none does.
    pub(super) fn probe_half(&self, hash: u64, link: u32) -> Option<Probe<'_, { HALF + 1 }>> {
        let (wanted, tag) = (self.entry(hash, 0), !self.numbers);
        let line = self.halves.get(link)?;
        let matches = entries_of(line, |entry| entry & tag == wanted);
        Some(Probe { line, matches, link: line[HALF] })
    }

    /// The number of the next entry, if a record may have it.
    pub(super) fn next<const N: usize>(&self, probe: &mut Probe<'_, N>, span: Span) -> Option<u32> {
        if probe.matches == 0 {
            return None;
        }
        let entry = probe.line[probe.matches.trailing_zeros() as usize % N];
        probe.matches &= probe.matches - 1;
        self.number(entry, span)
    }

    /// True if it is time to [`keep_up`](Self::keep_up), before a record is added.
    pub(super) fn is_due(&self) -> bool {
        self.entered.is_multiple_of(KEEP_UP)
    }

    /// Adds a record.
    #[inline(always)]
    pub(super) fn insert(&mut self, hash: u64, number: u32, span: Span) {
        self.entered = self.entered.wrapping_add(1);
        let (line, entry) = (self.line_of(hash), self.entry(hash, number));
        self.put(line, entry, span);
    }

    /// A line more where one is wanted. `live`: how many records there are; `hash_of` tells the
    /// hash of one that was added.
    pub(super) fn keep_up(&mut self, live: u32, span: Span, hash_of: impl Fn(u32) -> Option<u64>) {
        if self.lines == 0 {
            self.add_line(span.first);
        } else if live > SPLIT * self.lines {
            self.split(span, hash_of);
        }
    }

    /// Puts an entry into a line, at the place whose turn it is if that is stale.
    #[inline(always)]
    fn put(&mut self, line: u32, entry: u32, span: Span) {
        let Index { segments, halves, numbers, .. } = self;
        let Bucket(line) = &mut segments[line as usize / SEGMENT][line as usize % SEGMENT];
        let place = (line[LINE] >> TURN_SHIFT) as usize;
        if line[place].wrapping_sub(span.first) & *numbers < span.len {
            return put_elsewhere(line, halves, entry, span, *numbers);
        }
        line[place] = entry;
        line[LINE] = line[LINE].wrapping_add(1 << TURN_SHIFT);
        if line[LINE] >= TURNS {
            begin_anew(line, halves, span, *numbers);
        }
    }

    /// The record has another number now.
    pub(super) fn replace(&mut self, hash: u64, old: u32, new: u32, first: u32) {
        let (old, new) = (self.entry(hash, old), self.entry(hash, new));
        debug_assert!(new.wrapping_sub(first) & self.numbers < self.numbers);
        self.exchange(hash, old, new);
    }

    /// The record is gone, while others before it are still there.
    pub(super) fn remove(&mut self, hash: u64, number: u32, first: u32) {
        let (old, stale) = (self.entry(hash, number), self.entry(hash, first.wrapping_sub(1)));
        self.exchange(hash, old, stale);
    }

    fn exchange(&mut self, hash: u64, old: u32, new: u32) {
        if self.lines == 0 {
            return;
        }
        let line = self.line_of(hash);
        let Index { segments, halves, .. } = self;
        let Bucket(line) = &mut segments[line as usize / SEGMENT][line as usize % SEGMENT];
        if let Some(place) = line[..LINE].iter_mut().find(|entry| **entry == old) {
            *place = new;
            return;
        }
        let mut link = line[LINE] & LINK;
        while let Some(half) = halves.get_mut(link) {
            if let Some(place) = half[..HALF].iter_mut().find(|entry| **entry == old) {
                *place = new;
                return;
            }
            link = half[HALF];
        }
    }

    fn add_line(&mut self, first: u32) {
        let stale = first.wrapping_sub(1) & self.numbers;
        let mut line = Bucket([stale; LINE + 1]);
        line.0[LINE] = 0;
        let place = self.lines as usize % SEGMENT;
        if place == 0 {
            let segment: Result<Box<[Bucket; SEGMENT]>, _> = vec![line; SEGMENT].try_into();
            self.segments.extend(segment);
        }
        if let Some(segment) = self.segments.last_mut() {
            segment[place] = line;
            self.set_lines(self.lines + 1);
        }
    }

    /// One line more: it takes its share of the entries of another.
    fn split(&mut self, span: Span, hash_of: impl Fn(u32) -> Option<u64>) {
        let new = self.lines;
        let old = new ^ (1 << new.ilog2());
        self.take_out(old, span);
        self.add_line(span.first);
        let mut kept = core::mem::take(&mut self.scratch);
        let mut moved = core::mem::take(&mut self.moved);
        let home = |entry: u32| hash_of(self.number(entry, span)?).map(|hash| self.line_of(hash));
        kept.retain(|entry| {
            let home = home(*entry);
            if home == Some(new) {
                moved.push(*entry);
            }
            home == Some(old)
        });
        self.scratch = moved;
        self.put_back(new, span.first);
        self.moved = core::mem::replace(&mut self.scratch, kept);
        self.put_back(old, span.first);
    }

    /// True if it takes up no more than what the next records need at once.
    pub(super) fn is_small(&self) -> bool {
        self.lines <= LINES_KEPT
    }

    /// Gives all memory back; no record is left.
    pub(super) fn clear(&mut self) {
        *self = Index { numbers: self.numbers, ..Index::new(0) };
    }

    /// Joins lines while there are too many for so few records. No more than `most` at a time.
    pub(super) fn shrink(&mut self, live: u32, span: Span, most: u32) {
        for _ in 0..most {
            if self.lines <= LINES_KEPT || live / JOIN >= self.lines {
                return;
            }
            let last = self.lines - 1;
            let into = last ^ (1 << last.ilog2());
            self.take_out(last, span);
            let mut entries = core::mem::take(&mut self.scratch);
            self.take_out(into, span);
            self.scratch.append(&mut entries);
            self.set_lines(last);
            self.segments.truncate((last as usize).div_ceil(SEGMENT));
            self.put_back(into, span.first);
        }
    }

    /// Takes out of a line, into `scratch`, what is not stale, and frees its half lines.
    fn take_out(&mut self, line: u32, span: Span) {
        let Index { scratch, segments, halves, numbers, .. } = self;
        let is_live = |entry: &&u32| entry.wrapping_sub(span.first) & *numbers < span.len;
        scratch.clear();
        let Bucket(line) = &mut segments[line as usize / SEGMENT][line as usize % SEGMENT];
        let (newer, older) = line[..LINE].split_at((line[LINE] >> TURN_SHIFT) as usize % LINE);
        scratch.extend(older.iter().chain(newer).filter(is_live));
        let mut link = core::mem::take(&mut line[LINE]) & LINK;
        while let Some(half) = halves.get(link) {
            scratch.extend(half[..HALF].iter().filter(is_live));
            let next = half[HALF];
            halves.give_back(link);
            link = next;
        }
    }

    /// Writes what is in `scratch` into a line that has no half lines.
    fn put_back(&mut self, line: u32, first: u32) {
        let stale = first.wrapping_sub(1) & self.numbers;
        let Index { scratch, segments, halves, .. } = self;
        let Bucket(line) = &mut segments[line as usize / SEGMENT][line as usize % SEGMENT];
        let (here, beyond) = scratch.split_at(scratch.len().min(LINE));
        line[..LINE].fill(stale);
        line[..here.len()].copy_from_slice(here);
        for entries in beyond.chunks(HALF) {
            let link = halves.take(entries[0], stale, line[LINE]);
            if let Some(half) = halves.get_mut(link) {
                half[..entries.len()].copy_from_slice(entries);
            }
            line[LINE] = link;
        }
        line[LINE] |= turn(here.len());
        scratch.clear();
    }

    /// Lines, and half lines for which there is memory.
    #[cfg(test)]
    pub(super) fn sizes(&self) -> (usize, usize) {
        (self.lines as usize, self.halves.capacity())
    }

    /// Entries in the fullest line, with what is behind it.
    #[cfg(test)]
    pub(super) fn fullest(&mut self, span: Span) -> usize {
        let mut most = 0;
        for line in 0..self.lines {
            self.take_out(line, span);
            most = most.max(self.scratch.len());
            self.put_back(line, span.first);
        }
        most
    }
}

/// The last word of a line without link whose turn `place` has; behind the last comes the first.
fn turn(place: usize) -> u32 {
    ((place % LINE) as u32) << TURN_SHIFT
}

/// Each place of a line has had its turn. What lies behind it and is stale is no longer needed.
fn begin_anew(line: &mut [u32; LINE + 1], halves: &mut Halves, span: Span, numbers: u32) {
    let mut link = line[LINE] & LINK;
    line[LINE] = 0;
    while let Some(half) = halves.get(link) {
        let is_stale = |entry: &u32| entry.wrapping_sub(span.first) & numbers >= span.len;
        let (is_empty, next) = (half[..HALF].iter().all(is_stale), half[HALF]);
        if is_empty {
            halves.give_back(link);
        } else {
            halves.set_next(link, line[LINE]);
            line[LINE] = link;
        }
        link = next;
    }
}

/// Puts an entry into a line whose turn has a place that is not stale, or behind it.
fn put_elsewhere(
    line: &mut [u32; LINE + 1],
    halves: &mut Halves,
    entry: u32,
    span: Span,
    numbers: u32,
) {
    // Both are below 2^31.
    let (first, last) = (span.first, span.len as i32 - 1);
    let is_stale = |entry: u32| (entry.wrapping_sub(first) & numbers) as i32 > last;
    if let Some(place) = put(line, entry, is_stale) {
        line[LINE] = line[LINE] & LINK | turn(place + 1);
        return;
    }
    let mut link = line[LINE] & LINK;
    while let Some(half) = halves.get_mut(link) {
        if put(half, entry, is_stale).is_some() {
            return;
        }
        link = half[HALF];
    }
    let link = halves.take(entry, first.wrapping_sub(1), line[LINE] & LINK);
    line[LINE] = line[LINE] & !LINK | link;
}

/// A bit for each entry of a line of that `is_it` says so: for all words but the last, the link.
fn entries_of<const N: usize>(words: &[u32; N], is_it: impl Fn(u32) -> bool) -> u32 {
    which(words, is_it) & !(1 << (N - 1))
}

/// Writes an entry into the first stale place, and says which; `None` if there is none.
fn put<const N: usize>(
    words: &mut [u32; N],
    entry: u32,
    is_stale: impl Fn(u32) -> bool,
) -> Option<usize> {
    let place = entries_of(words, is_stale).trailing_zeros() as usize;
    let has_room = place < N - 1;
    if has_room {
        words[place] = entry;
    }
    has_room.then_some(place)
}
