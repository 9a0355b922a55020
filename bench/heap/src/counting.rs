//! The counting allocator, and the counts of a thread.
#![allow(unsafe_code, reason = "an allocator is an unsafe trait")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static COUNTS: Cell<bool> = const { Cell::new(false) };
    static BYTES: Cell<isize> = const { Cell::new(0) };
    static BLOCKS: Cell<usize> = const { Cell::new(0) };
}

/// The system's allocator. It counts the bytes that were allocated and not freed, and the
/// allocations.
#[derive(Debug)]
pub struct Counting;

/// Counts the allocations of this thread from its creation until it is dropped. Use one at a time.
#[derive(Debug)]
pub struct Heap(());

impl Heap {
    /// Starts counting, from 0.
    pub fn new() -> Heap {
        BYTES.set(0);
        BLOCKS.set(0);
        COUNTS.set(true);
        Heap(())
    }

    /// Bytes allocated since then, minus bytes freed: negative if more was freed.
    pub fn bytes(&self) -> isize {
        BYTES.get()
    }

    /// The number of allocations and reallocations since then.
    pub fn allocations(&self) -> usize {
        BLOCKS.get()
    }
}

impl Default for Heap {
    fn default() -> Self {
        Heap::new()
    }
}

impl Drop for Heap {
    fn drop(&mut self) {
        COUNTS.set(false);
    }
}

fn count(bytes: isize, blocks: usize) {
    // None of the thread-locals has an initialiser or a destructor, so that they live as long as
    // the thread.
    if COUNTS.get() {
        BYTES.set(BYTES.get() + bytes);
        BLOCKS.set(BLOCKS.get() + blocks);
    }
}

// SAFETY: every call is handed on to the system's allocator as it is, which keeps the contract;
// counting allocates nothing and cannot panic.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize, 1);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize, 1);
        // SAFETY: the caller keeps the contract of `alloc_zeroed`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size as isize - layout.size() as isize, 1);
        // SAFETY: `block` came from the system's allocator, since all of them do; the rest is the
        // caller's.
        unsafe { System.realloc(block, layout, size) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        count(-(layout.size() as isize), 0);
        // SAFETY: as for `realloc`.
        unsafe { System.dealloc(block, layout) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[global_allocator]
    static ALLOCATOR: Counting = Counting;

    #[test]
    fn what_this_thread_asks_for_is_counted_while_it_counts() {
        let before: Vec<u8> = Vec::with_capacity(1 << 20);
        let heap = Heap::new();
        let mut some: Vec<u8> = Vec::with_capacity(1 << 21);
        assert_eq!(heap.bytes(), 1 << 21);
        some.reserve_exact(1 << 22);
        assert_eq!((heap.bytes(), heap.allocations()), (1 << 22, 2));
        drop((some, before));
        assert_eq!((heap.bytes(), heap.allocations()), (-(1 << 20), 2));
        let elsewhere = std::thread::spawn(|| vec![1u8; 1 << 20].len());
        assert_eq!(elsewhere.join().unwrap(), 1 << 20);
        assert!(heap.bytes() < 0);
        drop(heap);
        let _later: Vec<u8> = Vec::with_capacity(1 << 20);
        assert!(!COUNTS.get());
    }
}
