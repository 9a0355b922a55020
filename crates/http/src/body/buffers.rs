//! The memory of chunks: charged to a budget, and used again.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

use crate::memory::{Charge, Memory};

/// Chunks that come back when the connection has written them. In the steady state they need no
/// allocation and no clearing.
#[derive(Clone, Debug)]
pub(crate) struct Buffers {
    pub(super) spare: Arc<Mutex<Vec<Vec<u8>>>>,
    pub(crate) memory: Memory,
}

/// Chunks kept for reuse, at most.
pub(super) const SPARE_BUFFERS: usize = 64;

/// Bytes of spare chunks that may always be kept; beyond it, no more than responses hold.
const SPARE_BYTES: usize = 1 << 20;

impl Buffers {
    pub(crate) fn new(memory: Memory) -> Self {
        Buffers { spare: Arc::default(), memory }
    }

    /// A buffer of exactly `length` bytes, charged to the memory; what is in them is arbitrary.
    pub(crate) fn take(&self, length: usize) -> (Vec<u8>, Charge) {
        let mut spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        // A much longer buffer would be charged for bytes that it does not need.
        let fits = |buffer: &Vec<u8>| buffer.capacity() / 2 < length;
        let mut buffer = if spare.last().is_some_and(fits) { spare.pop() } else { None }
            .unwrap_or_else(|| Vec::with_capacity(length));
        drop(spare);
        buffer.resize(length, 0);
        let charge = self.memory.charge(buffer.capacity());
        (buffer, charge)
    }

    /// Shared bytes, charged to the memory until the last share is dropped.
    pub(crate) fn keep(&self, buffer: Vec<u8>) -> Bytes {
        let charge = self.memory.charge(buffer.capacity());
        Bytes::from_owner(Kept { buffer, _charge: charge })
    }

    /// The buffer as shared bytes; it comes back when the last share is dropped.
    pub(crate) fn lend(&self, (buffer, charge): (Vec<u8>, Charge)) -> Bytes {
        Bytes::from_owner(Lent { buffer, spare: self.spare.clone(), charge })
    }
}

/// A buffer that is freed when dropped.
struct Kept {
    buffer: Vec<u8>,
    _charge: Charge,
}

impl AsRef<[u8]> for Kept {
    fn as_ref(&self) -> &[u8] {
        &self.buffer
    }
}

/// A buffer that goes home when dropped.
struct Lent {
    buffer: Vec<u8>,
    spare: Arc<Mutex<Vec<Vec<u8>>>>,
    charge: Charge,
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.buffer
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let mut spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        if spare.len() < SPARE_BUFFERS {
            spare.push(std::mem::take(&mut self.buffer));
        }
        let most = self.charge.total().max(SPARE_BYTES);
        let mut kept: usize = spare.iter().map(Vec::capacity).sum();
        while kept > most
            && let Some(buffer) = spare.pop()
        {
            kept -= buffer.capacity();
        }
    }
}
