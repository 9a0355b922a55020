//! The memory that a read fills.

use std::ops::{Deref, DerefMut};

/// Bytes to read into. The memory behind them stays initialised however short they are made, so
/// that it is not cleared before it is used again.
#[derive(Debug, Default)]
pub struct ReadBuffer {
    memory: Box<[u8]>,
    length: usize,
}

impl ReadBuffer {
    /// So many zeros.
    pub fn zeroed(length: usize) -> ReadBuffer {
        ReadBuffer { memory: vec![0; length].into_boxed_slice(), length }
    }

    /// Bytes of its memory.
    pub(crate) fn capacity(&self) -> usize {
        self.memory.len()
    }

    /// Makes it as long as that; what is in it is arbitrary.
    ///
    /// # Panics
    /// If it has too little memory.
    pub(crate) fn set_len(&mut self, length: usize) {
        assert!(length <= self.memory.len(), "{} bytes of memory", self.memory.len());
        self.length = length;
    }

    /// Keeps the first `length` bytes, if there are more.
    pub fn truncate(&mut self, length: usize) {
        self.length = self.length.min(length);
    }
}

impl From<Vec<u8>> for ReadBuffer {
    fn from(bytes: Vec<u8>) -> ReadBuffer {
        let memory = bytes.into_boxed_slice();
        ReadBuffer { length: memory.len(), memory }
    }
}

impl Deref for ReadBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.memory[..self.length]
    }
}

impl DerefMut for ReadBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.memory[..self.length]
    }
}
