//! Our addresses and windows, by handles of 16 bits.
//!
//! Records have few addresses of ours and few windows between them, so a record has one small
//! number for both. Handles are counted, and go with their last record.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// Handles there are at most.
const HANDLES_MAX: usize = 1 << 16;
/// From so many handles on, windows are no longer told apart: a record's window is then 0, which
/// only narrows what it leaves unanswered.
const WINDOWS_MAX: usize = 4096;
/// The address of a handle that is not in use: no address of ours is a group's.
const NOBODY: Address = [u64::MAX; 2];
/// Handles that are found without a search; a power of two.
const RECENT: usize = 64;

/// An address of ours as words. Those of both IP versions share the numbers; whose it is is known.
pub(super) type Address = [u64; 2];

#[derive(Clone, Copy, Debug)]
struct Entry {
    address: Address,
    window: u16,
    records: u32,
}

/// All handles in use.
#[derive(Debug)]
pub(super) struct Handles {
    entries: Vec<Entry>,
    free: Vec<u16>,
    numbers: BTreeMap<(Address, u16), u16>,
    /// The last one found, by a few bits of address and window.
    recent: [u16; RECENT],
}

impl Handles {
    /// None in use.
    pub(super) fn new() -> Handles {
        let (entries, free, numbers) = (Vec::new(), Vec::new(), BTreeMap::new());
        Handles { entries, free, numbers, recent: [0; RECENT] }
    }

    /// A handle for `address` and `window`, for one more record; `None` if there are too many.
    pub(super) fn take(&mut self, address: Address, window: u16) -> Option<u16> {
        let place = place(address, window);
        let recent = self.recent[place];
        if let Some(entry) = self.entries.get_mut(usize::from(recent))
            && (entry.address, entry.window) == (address, window)
        {
            entry.records += 1;
            return Some(recent);
        }
        self.take_another(place, address, window)
    }

    /// A handle for a pair that was not found at `place` lately.
    fn take_another(&mut self, place: usize, address: Address, window: u16) -> Option<u16> {
        let handle = self.search(address, window)?;
        self.entries[usize::from(handle)].records += 1;
        self.recent[place] = handle;
        Some(handle)
    }

    fn search(&mut self, address: Address, window: u16) -> Option<u16> {
        if let Some(handle) = self.numbers.get(&(address, window)) {
            return Some(*handle);
        }
        if self.numbers.len() >= WINDOWS_MAX && window > 0 {
            return self.search(address, 0);
        }
        if self.numbers.len() >= HANDLES_MAX {
            return None;
        }
        let entry = Entry { address, window, records: 0 };
        let handle = self.free.pop().unwrap_or(self.entries.len() as u16);
        match self.entries.get_mut(usize::from(handle)) {
            Some(old) => *old = entry,
            None => self.entries.push(entry),
        }
        self.numbers.insert((address, window), handle);
        Some(handle)
    }

    /// One record fewer has this handle.
    #[inline(always)]
    pub(super) fn give_back(&mut self, handle: u16) {
        let Some(entry) = self.entries.get_mut(usize::from(handle)) else { return };
        entry.records -= 1;
        if entry.records == 0 {
            self.release(handle);
        }
    }

    /// No record has this handle any more.
    fn release(&mut self, handle: u16) {
        let Some(entry) = self.entries.get_mut(usize::from(handle)) else { return };
        let address = core::mem::replace(&mut entry.address, NOBODY);
        self.numbers.remove(&(address, entry.window));
        self.free.push(handle);
        if self.numbers.is_empty() {
            *self = Handles::new();
        }
    }

    /// How many are in use.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.numbers.len()
    }

    /// What a handle that is in use stands for.
    pub(super) fn meaning(&self, handle: u16) -> (Address, u16) {
        let entry = self.entries.get(usize::from(handle));
        entry.map_or(([0; 2], 0), |entry| (entry.address, entry.window))
    }
}

fn place(address: Address, window: u16) -> usize {
    (address[1] as u16 ^ window) as usize % RECENT
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(number: u32) -> Address {
        [0, number.into()]
    }

    #[test]
    fn a_handle_is_shared_and_goes_with_its_last_record() {
        let mut handles = Handles::new();
        let one = handles.take(address(1), 500).unwrap();
        assert_eq!(handles.take(address(1), 500), Some(one));
        let other = handles.take(address(1), 501).unwrap();
        assert_ne!(one, other);
        assert_eq!(handles.meaning(one), (address(1), 500));
        handles.give_back(one);
        assert_eq!(handles.meaning(one), (address(1), 500));
        handles.give_back(one);
        assert_eq!(handles.take(address(2), 9), Some(one), "it is used again");
        assert_eq!(handles.meaning(other), (address(1), 501));
    }

    #[test]
    fn a_gone_handle_is_not_found_where_it_was_found_lately() {
        let mut handles = Handles::new();
        let (gone, other) = (handles.take(address(1), 500), handles.take(address(1), 501));
        handles.give_back(gone.unwrap());
        let again = handles.take(address(1), 500).unwrap();
        let next = handles.take(address(2), 9).unwrap();
        assert_ne!(again, next, "each has its own");
        assert_eq!(handles.meaning(again), (address(1), 500));
        assert_eq!(handles.meaning(other.unwrap()), (address(1), 501));
    }

    #[test]
    fn windows_are_distinct_to_one_bound_and_addresses_to_another() {
        let mut handles = Handles::new();
        for window in 1..=WINDOWS_MAX as u16 {
            let handle = handles.take(address(1), window).unwrap();
            assert_eq!(handles.meaning(handle), (address(1), window));
        }
        let beyond = handles.take(address(1), WINDOWS_MAX as u16 + 1).unwrap();
        assert_eq!(handles.meaning(beyond), (address(1), 0));
        for number in 0..(HANDLES_MAX - WINDOWS_MAX - 1) as u32 {
            assert!(handles.take(address(2 + number), 7).is_some());
        }
        assert_eq!(handles.take(address(1 << 20), 7), None);
        assert!(handles.take(address(2), 8).is_some(), "an address that has one");
        handles.give_back(1);
        assert!(handles.take(address(1 << 20), 7).is_some(), "one is free again");
    }
}
