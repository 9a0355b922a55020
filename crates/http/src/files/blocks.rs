//! The blocks of a file that is requested again: all its readers share one copy.
//!
//! ```text
//!   a reader at `offset` ─▶ its block is in the cache? ─ yes ─▶ a part of it, without a copy
//!                                  │ no
//!                           being read already? ─ yes ─▶ waits for that read
//!                                  └─ no ─▶ reads it, checks the version, keeps it by its heat
//! ```
//!
//! A block is charged to the memory once, until the last of its readers and the cache have dropped
//! it.

use std::collections::BTreeMap;
use std::io;
use std::rc::{Rc, Weak};

use bytes::Bytes;

use super::cache::FileCache;
use crate::Pending;
use crate::body::{Buffers, Opening, Shared, SharedRead};
use crate::flight::Flight;
use crate::source::FileSource;

/// The outcome of a read that several wait for.
type Outcome = Result<Bytes, Rc<io::Error>>;

/// The reads of blocks that are in progress, by the file's version and the block's place.
#[derive(Default)]
pub(super) struct Coming {
    reads: BTreeMap<(u64, u64), Weak<Flight<Outcome>>>,
    /// Those that nobody waits for any more are dropped when there are so many.
    swept_at: usize,
}

/// Reads in progress before the first sweep.
const SWEPT_FROM: usize = 64;

impl Coming {
    fn find(&self, key: (u64, u64)) -> Option<Rc<Flight<Outcome>>> {
        self.reads.get(&key)?.upgrade()
    }

    fn add(&mut self, key: (u64, u64), flight: &Rc<Flight<Outcome>>) {
        if self.reads.len() >= self.swept_at.max(SWEPT_FROM) {
            self.reads.retain(|_, flight| flight.strong_count() > 0);
            self.swept_at = 2 * self.reads.len();
        }
        self.reads.insert(key, Rc::downgrade(flight));
    }

    fn end(&mut self, key: (u64, u64)) {
        self.reads.remove(&key);
    }
}

/// One version of a file, in blocks.
pub(super) struct FileBlocks<S: FileSource> {
    pub(super) cache: Rc<FileCache<S::Handle>>,
    pub(super) buffers: Buffers,
    pub(super) opening: Rc<Opening<S>>,
    /// Of the version in the cache.
    pub(super) number: u64,
    pub(super) len_bytes: u64,
    pub(super) block_bytes: usize,
}

impl<S: FileSource> Shared for FileBlocks<S> {
    fn read(&self, offset: u64, most: usize) -> Option<SharedRead> {
        let block = self.block_bytes as u64;
        let (index, within) = (offset / block, (offset % block) as usize);
        let length = (self.len_bytes - index * block).min(block) as usize;
        let part = within..length.min(within.saturating_add(most));
        if let Some(bytes) = self.cache.block(self.number, index) {
            return Some(SharedRead::Here(bytes.slice(part)));
        }
        if self.buffers.memory.is_scarce() || !self.cache.takes_blocks(self.block_bytes) {
            return None;
        }
        let key = (self.number, index);
        let coming = self.cache.coming().find(key);
        let flight = coming.unwrap_or_else(|| {
            let flight = Flight::new(self.read_block(index, length));
            self.cache.coming().add(key, &flight);
            flight
        });
        let (join, length) = (flight.join(), part.len());
        let outcome = async move {
            let block = join.await.map_err(|why| io::Error::new(why.kind(), why.to_string()))?;
            Ok(block.slice(part))
        };
        Some(SharedRead::Coming(length, Box::pin(outcome)))
    }
}

impl<S: FileSource> FileBlocks<S> {
    /// Reads a block of `length` bytes, and keeps it.
    fn read_block(&self, index: u64, length: usize) -> Pending<Outcome> {
        let (cache, buffers) = (self.cache.clone(), self.buffers.clone());
        let (opening, number) = (self.opening.clone(), self.number);
        let (buffer, charge) = buffers.take(length);
        let offset = index * self.block_bytes as u64;
        let reading = opening.source.read_at(&opening.handle, offset, buffer);
        Box::pin(async move {
            let read = reading.await;
            cache.coming().end((number, index));
            let read = read.map_err(Rc::new)?;
            if read.len() != length {
                return Err(Rc::new(io::ErrorKind::UnexpectedEof.into()));
            }
            opening.check().map_err(Rc::new)?;
            let block = buffers.share((read, charge));
            cache.keep_block(number, index, &block);
            Ok(block)
        })
    }
}
