//! Half lines of the index, which hold the entries that do not fit into a line.
//!
//! They come in segments, and are taken from the first segment that has one, so that the last ones
//! fall empty and are given back when the table shrinks.

use alloc::vec::Vec;

/// Entries of a half line.
pub(super) const HALF: usize = 7;
/// Half lines in a segment.
const SEGMENT: usize = 512;

/// The entries and, at the end, the link to the next one; 0: none.
pub(super) type Half = [u32; HALF + 1];

#[derive(Clone, Copy, Debug)]
#[repr(align(32))]
struct Aligned(Half);

#[derive(Debug, Default)]
struct Segment {
    halves: Vec<Aligned>,
    /// The first free one, plus 1; the next is where its link would be.
    free: u32,
    used: u32,
}

/// All half lines. A link is a number from 1 on.
#[derive(Debug)]
pub(super) struct Halves {
    segments: Vec<Segment>,
    /// No segment before this has a free one.
    lowest: usize,
}

impl Halves {
    /// None yet.
    pub(super) fn new() -> Halves {
        Halves { segments: Vec::new(), lowest: 0 }
    }

    /// The half line of that link.
    pub(super) fn get(&self, link: u32) -> Option<&Half> {
        let place = link.checked_sub(1)? as usize;
        Some(&self.segments.get(place / SEGMENT)?.halves.get(place % SEGMENT)?.0)
    }

    /// The half line of that link, to be changed.
    pub(super) fn get_mut(&mut self, link: u32) -> Option<&mut Half> {
        let place = link.checked_sub(1)? as usize;
        Some(&mut self.segments.get_mut(place / SEGMENT)?.halves.get_mut(place % SEGMENT)?.0)
    }

    /// Behind the half line of that link lies another now.
    pub(super) fn set_next(&mut self, link: u32, next: u32) {
        if let Some(half) = self.get_mut(link) {
            half[HALF] = next;
        }
    }

    /// Takes a free one, with one entry in it, the others `stale`; returns its link.
    pub(super) fn take(&mut self, entry: u32, stale: u32, next: u32) -> u32 {
        while self.segments.get(self.lowest).is_some_and(Segment::is_full) {
            self.lowest += 1;
        }
        if self.lowest == self.segments.len() {
            self.segments.push(Segment::default());
        }
        let mut half = [stale; HALF + 1];
        half[0] = entry;
        half[HALF] = next;
        let place = self.segments[self.lowest].take(half);
        (self.lowest * SEGMENT + place) as u32 + 1
    }

    /// The half line of that link is needed no more.
    pub(super) fn give_back(&mut self, link: u32) {
        let Some(place) = link.checked_sub(1) else { return };
        let segment = place as usize / SEGMENT;
        self.lowest = self.lowest.min(segment);
        if let Some(segment) = self.segments.get_mut(segment) {
            segment.give_back(place % SEGMENT as u32);
        }
        while self.segments.last().is_some_and(|segment| segment.used == 0) {
            self.segments.pop();
        }
        self.lowest = self.lowest.min(self.segments.len());
    }

    /// Half lines for which there is memory.
    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.segments.iter().map(|segment| segment.halves.capacity()).sum()
    }
}

impl Segment {
    fn is_full(&self) -> bool {
        self.used as usize == SEGMENT
    }

    fn take(&mut self, half: Half) -> usize {
        self.used += 1;
        if let Some(place) = self.free.checked_sub(1) {
            let place = place as usize;
            self.free = core::mem::replace(&mut self.halves[place].0, half)[HALF];
            return place;
        }
        self.halves.push(Aligned(half));
        self.halves.len() - 1
    }

    fn give_back(&mut self, place: u32) {
        self.used -= 1;
        if self.used == 0 {
            *self = Segment::default();
            return;
        }
        self.halves[place as usize].0[HALF] = core::mem::replace(&mut self.free, place + 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_back_is_taken_again_and_empty_segments_go() {
        let mut halves = Halves::new();
        let links: Vec<u32> = (0..1200).map(|entry| halves.take(entry, 9, 0)).collect();
        assert_eq!(halves.get(links[700]), Some(&[700, 9, 9, 9, 9, 9, 9, 0]));
        assert_eq!(halves.get(0), None);
        halves.give_back(links[3]);
        assert_eq!(halves.take(5, 9, 77), links[3]);
        assert_eq!(halves.get(links[3]).map(|half| half[HALF]), Some(77));
        for link in &links[..1100] {
            halves.give_back(*link);
        }
        assert!(halves.capacity() <= 512, "{}", halves.capacity());
        assert_eq!(halves.get(links[1150]).map(|half| half[0]), Some(1150));
        for link in &links[1100..] {
            halves.give_back(*link);
        }
        assert_eq!(halves.capacity(), 0);
    }
}
