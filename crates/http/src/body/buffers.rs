//! The memory of chunks: charged to a budget, and used again.
//!
//! ```text
//!   take ─▶ a read fills it ─▶ lend ─▶ shares, in send buffers and caches ─▶ the last is dropped
//!    ▲                                                                            │
//!    └──────────── spare, by size: never cleared, and no more than are out ◀──────┘
//! ```
//!
//! Sizes are rounded up to a few, so that a spare buffer fits the next read of about that length.
//! The allocator sees none of this in the steady state: it would give the top of the heap back to
//! the system and take it again, page by page.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use bytes::Bytes;

use crate::files::source::ReadBuffer;
use crate::limits::memory::{Charge, Memory};

/// Chunks that come back when the last share of them is dropped.
#[derive(Clone, Debug)]
pub(crate) struct Buffers {
    shelf: Arc<Shelf>,
    pub(crate) memory: Memory,
}

/// The buffers that are spare, and what is out.
#[derive(Debug)]
struct Shelf {
    spare: Mutex<Spare>,
    /// Bytes of the buffers that were lent and have not come back.
    out: AtomicUsize,
    /// Bytes of spare buffers that may always be kept.
    always: usize,
}

/// Spare buffers, by the number of their size.
#[derive(Debug, Default)]
struct Spare {
    by_size: Vec<Vec<ReadBuffer>>,
    bytes: usize,
}

/// So many bytes of spare buffers may always be kept, as of freed pages. More may be kept only
/// while as many are out: after a burst the memory goes back.
const SPARE_BYTES: usize = 4 << 20;

/// The part of the memory that they may be.
const SPARE_PART: usize = 16;

/// Shorter reads have a buffer of exactly their length, which is not kept: a spare one of the least
/// size would hold many times as much.
const LEAST_BYTES: usize = 4 << 10;

/// The number of the size that holds `length` bytes, and that size. There are four between a power
/// of two and the next: a fifth is wasted at most.
fn size_of(length: usize) -> (usize, usize) {
    let step = (length.next_power_of_two() / 8).max(LEAST_BYTES / 4);
    let size = length.next_multiple_of(step);
    let octave = (size.next_power_of_two() / LEAST_BYTES).trailing_zeros() as usize;
    // The sizes of an octave are 5, 6, 7 and 8 steps of an eighth of its largest.
    (octave * 4 + 8 - (size.next_power_of_two() - size) / step, size)
}

impl Buffers {
    pub(crate) fn new(memory: Memory) -> Self {
        let always = SPARE_BYTES.min(memory.bytes() / SPARE_PART);
        let (spare, out) = Default::default();
        Buffers { shelf: Arc::new(Shelf { spare, out, always }), memory }
    }

    /// A buffer of exactly `length` bytes, charged to the memory; what is in them is arbitrary.
    pub(crate) fn take(&self, length: usize) -> (ReadBuffer, Charge) {
        let mut buffer = self.shelf.take(length);
        buffer.set_len(length);
        let charge = self.memory.charge(buffer.capacity());
        (buffer, charge)
    }

    /// The buffer as shared bytes; it comes back when the last share is dropped.
    pub(crate) fn lend(&self, (buffer, charge): (ReadBuffer, Charge)) -> Chunk {
        self.shelf.out.fetch_add(buffer.capacity(), Ordering::Relaxed);
        let charge = Arc::new(charge);
        let lent = Lent { buffer, shelf: self.shelf.clone(), _charge: charge.clone() };
        Chunk { bytes: Bytes::from_owner(lent), charge: Some(charge) }
    }

    /// The buffer as a block, charged to the memory until its last share is dropped, however many
    /// there are.
    pub(crate) fn share(&self, (buffer, charge): (ReadBuffer, Charge)) -> Block {
        self.shelf.out.fetch_add(buffer.capacity(), Ordering::Relaxed);
        let charge = Arc::new(charge);
        Block(Arc::new(Lent { buffer, shelf: self.shelf.clone(), _charge: charge }))
    }

    /// A buffer of the caller's own as shared bytes, charged to the memory until the last share is
    /// dropped.
    pub(crate) fn keep(&self, buffer: ReadBuffer) -> Bytes {
        let charge = self.memory.charge(buffer.capacity());
        Bytes::from_owner(Kept { buffer, _charge: charge })
    }

    /// A function that drops all spare buffers. It does not keep the memory's budget alive.
    pub(crate) fn giver(&self) -> impl Fn() + use<> {
        let shelf = Arc::downgrade(&self.shelf);
        move || {
            let spare = shelf.upgrade().map(|shelf| std::mem::take(&mut *shelf.spare()));
            drop(spare);
        }
    }

    /// Bytes of the spare buffers.
    #[cfg(test)]
    pub(crate) fn spare_bytes(&self) -> usize {
        self.shelf.spare().bytes
    }
}

impl Shelf {
    fn spare(&self) -> std::sync::MutexGuard<'_, Spare> {
        self.spare.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A buffer of `length` bytes or a little more.
    fn take(&self, length: usize) -> ReadBuffer {
        if length < LEAST_BYTES {
            return ReadBuffer::zeroed(length);
        }
        let (number, size) = size_of(length);
        let mut spare = self.spare();
        let found = spare.by_size.get_mut(number).and_then(Vec::pop);
        spare.bytes -= found.as_ref().map_or(0, ReadBuffer::capacity);
        drop(spare);
        found.unwrap_or_else(|| ReadBuffer::zeroed(size))
    }

    /// Keeps a buffer that came back, if not too many are spare. Of one size the one that came last
    /// is taken first: caches may still have it.
    fn put(&self, buffer: ReadBuffer) {
        let bytes = buffer.capacity();
        let out = self.out.fetch_sub(bytes, Ordering::Relaxed) - bytes;
        if bytes < LEAST_BYTES {
            return;
        }
        let mut spare = self.spare();
        let number = size_of(bytes).0;
        if spare.by_size.len() <= number {
            spare.by_size.resize_with(number + 1, Vec::new);
        }
        spare.by_size[number].push(buffer);
        spare.bytes += bytes;
        let excess = spare.shed(out.max(self.always));
        drop(spare);
        drop(excess);
    }
}

impl Spare {
    /// Takes out buffers until no more than `most` bytes are left: those of the largest sizes
    /// first.
    fn shed(&mut self, most: usize) -> Vec<ReadBuffer> {
        let mut shed = Vec::new();
        for size in self.by_size.iter_mut().rev() {
            while self.bytes > most
                && let Some(buffer) = size.pop()
            {
                self.bytes -= buffer.capacity();
                shed.push(buffer);
            }
        }
        shed
    }
}

/// Bytes that were read.
#[derive(Clone, Debug)]
pub(crate) struct Chunk {
    pub(crate) bytes: Bytes,
    /// The charge for their memory, which another may take over. `None`: others read them too, and
    /// it stays charged where it is until the last share of them is dropped.
    pub(crate) charge: Option<Arc<Charge>>,
}

impl Chunk {
    /// Bytes that others read too.
    pub(crate) fn shared(bytes: Bytes) -> Chunk {
        Chunk { bytes, charge: None }
    }
}

/// Bytes that many read. It is found again as long as one of them has a share.
#[derive(Clone)]
pub(crate) struct Block(Arc<Lent>);

/// A block that may be gone.
pub(crate) struct WeakBlock(Weak<Lent>);

impl Block {
    /// A share of all of it.
    pub(crate) fn bytes(&self) -> Bytes {
        Bytes::from_owner(self.clone())
    }

    /// Bytes of its memory.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.0.buffer.capacity()
    }

    pub(crate) fn downgrade(&self) -> WeakBlock {
        WeakBlock(Arc::downgrade(&self.0))
    }
}

impl AsRef<[u8]> for Block {
    fn as_ref(&self) -> &[u8] {
        &self.0.buffer
    }
}

impl WeakBlock {
    /// The block, if anybody has a share of it.
    pub(crate) fn upgrade(&self) -> Option<Block> {
        self.0.upgrade().map(Block)
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.0.strong_count() == 0
    }
}

/// A buffer that is freed when dropped.
struct Kept {
    buffer: ReadBuffer,
    _charge: Charge,
}

impl AsRef<[u8]> for Kept {
    fn as_ref(&self) -> &[u8] {
        &self.buffer
    }
}

/// A buffer that goes home when dropped.
struct Lent {
    buffer: ReadBuffer,
    shelf: Arc<Shelf>,
    _charge: Arc<Charge>,
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.buffer
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.shelf.put(std::mem::take(&mut self.buffer));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn buffers() -> Buffers {
        Buffers::new(Memory::boundless())
    }

    proptest! {
        #[test]
        fn a_size_holds_its_length_and_little_more(length in LEAST_BYTES..64_usize << 20) {
            let (number, size) = size_of(length);
            prop_assert!(length <= size && size < length + length / 4 + LEAST_BYTES / 4);
            prop_assert_eq!(size_of(size), (number, size), "a buffer finds its own shelf");
            prop_assert!(size_of(size + 1).0 > number);
        }
    }

    #[test]
    fn a_buffer_comes_home_when_the_last_share_is_dropped() {
        let buffers = buffers();
        let bytes = buffers.lend(buffers.take(10_000)).bytes;
        let share = bytes.slice(10..20);
        drop(bytes);
        assert_eq!(buffers.spare_bytes(), 0);
        drop(share);
        assert_eq!(buffers.spare_bytes(), 10_240);
        assert_eq!(buffers.take(8000).0.len(), 8000);
        assert_eq!(buffers.spare_bytes(), 10_240, "another size is a new one");
        assert_eq!(buffers.take(9500).0.len(), 9500);
        assert_eq!(buffers.spare_bytes(), 0, "and is taken again");
    }

    #[test]
    fn a_buffer_is_not_cleared_before_it_is_used_again() {
        let buffers = buffers();
        let fill = |length: usize, byte| {
            let (mut buffer, charge) = buffers.take(length);
            buffer.fill(byte);
            buffers.lend((buffer, charge))
        };
        drop([fill(5000, 1), fill(100_000, 2)]);
        for (length, byte) in [(4800, 1), (99_000, 2)] {
            assert!(buffers.take(length).0.iter().all(|found| *found == byte), "{length}");
        }
    }

    #[test]
    fn no_more_is_spare_than_is_out_beyond_what_may_always_be() {
        let buffers = buffers();
        const EACH: usize = 1 << 20;
        let mut out: Vec<Chunk> = (0..16).map(|_| buffers.lend(buffers.take(EACH))).collect();
        out.truncate(8);
        assert_eq!(buffers.spare_bytes(), 8 * EACH);
        out.truncate(7);
        assert_eq!(buffers.spare_bytes(), 7 * EACH);
        out.clear();
        assert_eq!(buffers.spare_bytes(), SPARE_BYTES);
        buffers.giver()();
        assert_eq!(buffers.spare_bytes(), 0);
    }

    #[test]
    fn short_reads_are_charged_for_their_length_and_not_kept() {
        let buffers = buffers();
        let (buffer, charge) = buffers.take(LEAST_BYTES - 1);
        assert_eq!(charge.total(), LEAST_BYTES - 1);
        drop(buffers.lend((buffer, charge)));
        assert_eq!(buffers.spare_bytes(), 0);
        let (buffer, charge) = buffers.take(LEAST_BYTES);
        assert_eq!(charge.total(), LEAST_BYTES);
        drop(buffers.lend((buffer, charge)));
        assert_eq!(buffers.spare_bytes(), LEAST_BYTES);
    }
}
