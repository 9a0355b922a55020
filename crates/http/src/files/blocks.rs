//! The blocks of a file that is requested again: all its readers share one copy.
//!
//! ```text
//!   a reader at `offset` ─▶ its block is in the cache, or with a reader? ─ yes ─▶ a part of it
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
use crate::body::{Block, Buffers, Opening, Shared, SharedRead, WeakBlock};
use crate::files::flight::Flight;
use crate::files::source::{FileSource, Version};

/// The outcome of a read that several wait for.
type Outcome = Result<Bytes, Rc<io::Error>>;

/// The place of a block: the file's version, and the block's number in it.
pub(super) type Place = (Version, u64);

/// The blocks that somebody reads or waits for. So there is one copy of each, also of those that
/// the cache has dropped.
#[derive(Default)]
pub(super) struct Blocks {
    by_place: BTreeMap<Place, Held>,
    /// Those that are gone are dropped when there are so many.
    swept_at: usize,
}

/// A block that somebody holds.
enum Held {
    /// It is being read.
    Coming(Weak<Flight<Outcome>>),
    Read(WeakBlock),
}

impl Held {
    fn is_gone(&self) -> bool {
        match self {
            Held::Coming(flight) => flight.strong_count() == 0,
            Held::Read(block) => block.is_gone(),
        }
    }
}

/// Blocks before the first sweep.
const SWEPT_FROM: usize = 64;

impl Blocks {
    /// The block at that place, if somebody reads it.
    pub(super) fn read(&self, place: Place) -> Option<Block> {
        let Held::Read(block) = self.by_place.get(&place)? else { return None };
        block.upgrade()
    }

    /// The read of the block at that place, if somebody waits for it.
    fn coming(&self, place: Place) -> Option<Rc<Flight<Outcome>>> {
        let Held::Coming(flight) = self.by_place.get(&place)? else { return None };
        flight.upgrade()
    }

    fn insert(&mut self, place: Place, held: Held) {
        if self.by_place.len() >= self.swept_at.max(SWEPT_FROM) {
            self.by_place.retain(|_, held| !held.is_gone());
            self.swept_at = 2 * self.by_place.len();
        }
        self.by_place.insert(place, held);
    }

    /// Notes a block that was read.
    pub(super) fn on_read(&mut self, place: Place, block: &Block) {
        self.insert(place, Held::Read(block.downgrade()));
    }
}

/// One version of a file, in blocks.
pub(super) struct FileBlocks<S: FileSource> {
    pub(super) cache: Rc<FileCache<S::Handle>>,
    pub(super) buffers: Buffers,
    pub(super) opening: Rc<Opening<S>>,
    pub(super) version: Version,
    pub(super) block_bytes: usize,
    /// Blocks that nobody has are read whole and kept. Else only those are used that somebody has.
    pub(super) keeps: bool,
}

impl<S: FileSource> Shared for FileBlocks<S> {
    fn read(&self, offset: u64, most: usize) -> Option<SharedRead> {
        let block = self.block_bytes as u64;
        let (index, within) = (offset / block, (offset % block) as usize);
        let length = (self.version.len_bytes() - index * block).min(block) as usize;
        let part = within..length.min(within.saturating_add(most));
        let place = (self.version, index);
        let is_scarce = self.buffers.memory.is_scarce();
        if let Some(bytes) = self.cache.block(place, is_scarce) {
            return Some(SharedRead::Here(bytes.slice(part)));
        }
        if !self.keeps || is_scarce || !self.cache.takes_blocks(self.block_bytes) {
            return None;
        }
        let coming = self.cache.blocks().coming(place);
        let flight = coming.unwrap_or_else(|| {
            let flight = Flight::new(self.read_block(place, length));
            self.cache.blocks().insert(place, Held::Coming(Rc::downgrade(&flight)));
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
    /// Reads the block of `length` bytes at that place, and keeps it.
    fn read_block(&self, place: Place, length: usize) -> Pending<Outcome> {
        let (cache, buffers) = (self.cache.clone(), self.buffers.clone());
        let opening = self.opening.clone();
        let (buffer, charge) = buffers.take(length);
        let offset = place.1 * self.block_bytes as u64;
        let reading = opening.source.read_at(&opening.handle, offset, buffer);
        Box::pin(async move {
            let read = reading.await.map_err(Rc::new)?;
            if read.len() != length {
                return Err(Rc::new(io::ErrorKind::UnexpectedEof.into()));
            }
            opening.check().map_err(Rc::new)?;
            Ok(cache.keep_block(place, &buffers.share((read, charge))))
        })
    }
}
