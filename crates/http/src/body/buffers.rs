//! The memory of chunks: charged to a budget, and used again.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

use crate::memory::{Charge, Memory};
use crate::source::ReadBuffer;

/// Chunks that come back when the connection has written them. In the steady state they need no
/// allocation and no clearing, whatever the lengths of reads.
#[derive(Clone, Debug)]
pub(crate) struct Buffers {
    /// By length, and of one length that first which came back last: caches may still have it.
    pub(crate) spare: Arc<Mutex<Vec<ReadBuffer>>>,
    /// Bytes of spare chunks that may always be kept.
    spare_bytes: usize,
    pub(crate) memory: Memory,
}

/// Chunks kept for reuse, at most.
pub(super) const SPARE_BUFFERS: usize = 64;

/// So many bytes of spare chunks may always be kept, as of freed pages. More may be kept only while
/// responses hold more.
const SPARE_BYTES: usize = 4 << 20;

/// The part of the memory that they may be.
const SPARE_PART: usize = 16;

impl Buffers {
    pub(crate) fn new(memory: Memory) -> Self {
        let spare_bytes = SPARE_BYTES.min(memory.bytes() / SPARE_PART);
        Buffers { spare: Arc::default(), spare_bytes, memory }
    }

    /// A buffer of exactly `length` bytes, charged to the memory; what is in them is arbitrary.
    pub(crate) fn take(&self, length: usize) -> (ReadBuffer, Charge) {
        let mut spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        let place = spare.partition_point(|buffer| buffer.capacity() < length);
        // A much longer buffer would be charged for bytes that it does not need.
        let fits = spare.get(place).is_some_and(|buffer| buffer.capacity() / 2 < length);
        let found = fits.then(|| spare.remove(place));
        drop(spare);
        let mut buffer = found.unwrap_or_else(|| ReadBuffer::zeroed(length));
        buffer.set_len(length);
        let charge = self.memory.charge(buffer.capacity());
        (buffer, charge)
    }

    /// Shared bytes, charged to the memory until the last share is dropped.
    pub(crate) fn keep(&self, buffer: ReadBuffer) -> Bytes {
        let charge = self.memory.charge(buffer.capacity());
        Bytes::from_owner(Kept { buffer, _charge: charge })
    }

    /// The buffer as shared bytes; it comes back when the last share is dropped.
    pub(crate) fn lend(&self, (buffer, charge): (ReadBuffer, Charge)) -> Chunk {
        let charge = Arc::new(charge);
        let (spare, spare_bytes) = (self.spare.clone(), self.spare_bytes);
        let lent = Lent { buffer, spare, spare_bytes, charge: charge.clone() };
        Chunk { bytes: Bytes::from_owner(lent), charge }
    }
}

/// Bytes that were read, and the charge for their memory until the last share of them is dropped.
#[derive(Clone, Debug)]
pub(crate) struct Chunk {
    pub(crate) bytes: Bytes,
    pub(crate) charge: Arc<Charge>,
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
    spare: Arc<Mutex<Vec<ReadBuffer>>>,
    spare_bytes: usize,
    charge: Arc<Charge>,
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.buffer
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let mut spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        let buffer = std::mem::take(&mut self.buffer);
        let place = spare.partition_point(|spare| spare.capacity() < buffer.capacity());
        spare.insert(place, buffer);
        if spare.len() > SPARE_BUFFERS {
            // The shortest takes the least to be made again.
            spare.remove(0);
        }
        let most = self.charge.total().max(self.spare_bytes);
        let mut kept: usize = spare.iter().map(ReadBuffer::capacity).sum();
        while kept > most
            && let Some(buffer) = spare.pop()
        {
            kept -= buffer.capacity();
        }
    }
}
