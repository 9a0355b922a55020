//! Once tables have their size, connections that come and go allocate only blocks of TIME-WAIT
//! records, and the index of the records allocates only the lines by which it grows.

use lightwait_bench::connections::{Pair, Plan};
use lightwait_bench::stacks::Variant;
use lightwait_bench::stacks::raw::Short;
use lightwait_core::tcp::demux::Demux;
use lightwait_heap::Heap;

#[global_allocator]
static ALLOCATOR: lightwait_heap::Counting = lightwait_heap::Counting;

const CONVERSATIONS: usize = 32 * RECORDS_IN_BLOCK;
/// TIME-WAIT records in a block, which grows by doubling from four.
const RECORDS_IN_BLOCK: usize = 1024;
const GROWTHS_OF_BLOCK: usize = 9;

/// The allocations of both ends while both open and close connections, `at_once` at a time, beside
/// idle ones.
fn allocations(variant: Variant, idle: usize, at_once: usize) -> usize {
    let plan = Plan { time_wait: 3000, idle, at_once, variant, ..Plan::default() };
    let mut pair = Short::new(&plan);
    pair.converse(Short::warm_up(&plan));
    let heap = Heap::new();
    pair.converse(CONVERSATIONS);
    let allocations = heap.allocations();
    drop(heap);
    pair.check();
    allocations
}

#[test]
fn churning_connections_allocate_only_blocks_of_records() {
    for (idle, at_once) in [(0, 1), (0, 16), (5000, 16)] {
        assert_eq!(allocations(Variant::Skip, idle, at_once), 0, "{idle} idle, {at_once} at once");
        let allocations = allocations(Variant::Default, idle, at_once);
        let blocks = CONVERSATIONS / RECORDS_IN_BLOCK + 1;
        assert!(allocations <= blocks * GROWTHS_OF_BLOCK, "{idle}, {at_once}: {allocations}");
        assert!(allocations > 0, "whoever counts sees blocks come");
    }
}

/// A hash that differs for each slot.
fn hash(slot: u32) -> u64 {
    let mixed = u64::from(slot).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

#[test]
fn the_index_grows_by_256_lines_and_splits_without_allocating() {
    const SLOTS: u32 = 100_000;
    const LINES: usize = 256 * 64;
    let mut demux = Demux::default();
    let heap = Heap::new();
    (0..SLOTS).for_each(|slot| demux.insert(hash(slot), slot, hash));
    let (allocations, pieces) = (heap.allocations(), heap.bytes() as usize / LINES);
    assert!(pieces > 90, "{pieces} times 256 lines");
    let lists_of_pieces = 16;
    assert!(allocations <= pieces + lists_of_pieces, "{allocations} for {pieces}");
    drop(heap);

    let heap = Heap::new();
    assert!((0..SLOTS).all(|slot| demux.remove(hash(slot), slot)));
    assert_eq!(heap.allocations(), 0);
    assert!(heap.bytes() < -((pieces * LINES / 2) as isize), "they are given back");
}
