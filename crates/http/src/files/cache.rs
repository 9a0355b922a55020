//! The cache of files that clients request often. It keeps the bytes of short files, an open
//! descriptor and the hot blocks of longer ones, and the fields that every response repeats.
//!
//! ```text
//!   asked for ─▶ checked less than `cache_age` ago? ─ yes ─▶ bytes: answered, no system call
//!                        │ no                          └───▶ descriptor: unchanged? ─ yes ─▶ read
//!                opened anew: the same version? ─ yes ─▶ kept for another `cache_age`
//!                        └─ no: what was opened takes its place
//! ```
//!
//! A file is opened anew by its whole path, so every rule of the source holds as without a cache. A
//! name that now leads out of the root is refused after `cache_age` at the latest.
//!
//! A block is a stretch of a longer file that a second request has asked for. All readers share it
//! ([`Blocks`](blocks::Blocks)), and it goes by its heat, as short files do: the two have one
//! budget. It belongs to a version of the file, and not to its descriptor, which may be closed and
//! opened again.
//!
//! No answer mixes two versions. The cache keeps a file only when its times are older than the
//! granule of a file system's clock, so that any change gives it other times. It keeps bytes if the
//! file was the same before and after the read. A file that is not in memory is checked again when
//! its last byte was read ([`Opening`]).
//!
//! [`Opening`]: crate::body::Opening

use std::cell::{Cell, RefCell};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::rc::Rc;
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use http::HeaderValue;
use quick_cache::unsync::Cache;
use quick_cache::{Equivalent, UnitWeighter, Weighter};

use crate::config::FilesConfig;
use crate::files::condition::Validators;
use crate::files::content_type;
use crate::files::path::RelativePath;
use crate::files::source::{Metadata, Version};

use super::blocks::{Blocks, Place};
use super::coding::Coding;
use crate::body::Block;

/// The memory of an entry beside the file's bytes, about: its path twice, its fields, its places.
const ENTRY_BYTES: u64 = 512;

/// The number of files that the tables have room for in the beginning.
const FIRST_ENTRIES: usize = 256;

/// A file, and the fields of its responses.
pub(super) struct Known<H> {
    pub(super) metadata: Metadata,
    /// Its times are old enough that a change gives it other times.
    pub(super) is_settled: bool,
    pub(super) validators: Validators,
    pub(super) etag: Option<HeaderValue>,
    pub(super) modified: Option<HeaderValue>,
    pub(super) content_type: HeaderValue,
    pub(super) coding: Option<HeaderValue>,
    pub(super) cache_control: Option<HeaderValue>,
    pub(super) content: Content<H>,
    /// The codings that no file beside it has, as bits.
    lacking: Cell<u8>,
    /// No coding makes it much shorter.
    is_dense: Cell<bool>,
    /// When it was last known to be the file that its path names.
    checked: Cell<Instant>,
    /// Responses that have had a part of it.
    responses: Cell<u64>,
}

/// Where the bytes of a file are.
pub(super) enum Content<H> {
    /// In memory.
    Bytes(Bytes),
    /// In the source.
    Open(H),
}

impl<H> Known<H> {
    /// A file that was found at `path`.
    pub(super) fn new(
        path: &RelativePath,
        (metadata, content): (Metadata, Content<H>),
        now: Instant,
        wall: SystemTime,
    ) -> Known<H> {
        let validators = Validators::of(&metadata, wall);
        let modified = validators.modified.map(httpdate::fmt_http_date);
        Known {
            is_settled: metadata.is_settled(wall),
            etag: HeaderValue::try_from(validators.etag.as_str()).ok(),
            modified: modified.and_then(|modified| HeaderValue::try_from(modified).ok()),
            content_type: content_type::of(path),
            coding: content_type::coding(path),
            cache_control: None,
            validators,
            metadata,
            content,
            lacking: Cell::new(0),
            is_dense: Cell::new(false),
            checked: Cell::new(now),
            responses: Cell::new(0),
        }
    }

    /// Counts a response that has a part of the file. True from the second on: what one response
    /// had, others want too.
    pub(super) fn is_wanted_again(&self) -> bool {
        self.responses.set(self.responses.get() + 1);
        self.responses.get() > 1
    }

    /// True if no file beside it had this coding when it was checked last.
    pub(super) fn lacks(&self, coding: Coding) -> bool {
        self.lacking.get() & coding.bit() != 0
    }

    /// Notes that no file beside it has this coding.
    pub(super) fn note_lack(&self, coding: Coding) {
        self.lacking.set(self.lacking.get() | coding.bit());
    }

    /// True if it was found that no coding makes it much shorter.
    pub(super) fn is_dense(&self) -> bool {
        self.is_dense.get()
    }

    /// Notes that no coding makes it much shorter.
    pub(super) fn note_dense(&self) {
        self.is_dense.set(true);
    }

    /// What the file is in a coding: another representation, whose tag is its own and weak, as
    /// another version of the compressor may make other bytes (RFC 9110 §8.8.1).
    pub(super) fn coded(&self, bytes: Bytes, coding: Coding) -> Known<H> {
        let etag = self.validators.coded_etag(coding.name());
        let validators = Validators { etag: etag.clone(), weak: etag, ..self.validators.clone() };
        Known {
            metadata: Metadata { len_bytes: bytes.len() as u64, ..self.metadata.clone() },
            is_settled: self.is_settled,
            etag: HeaderValue::try_from(validators.etag.as_str()).ok(),
            modified: self.modified.clone(),
            content_type: self.content_type.clone(),
            coding: Some(coding.value()),
            cache_control: self.cache_control.clone(),
            validators,
            content: Content::Bytes(bytes),
            lacking: Cell::new(0),
            is_dense: Cell::new(true),
            checked: self.checked.clone(),
            responses: Cell::new(0),
        }
    }

    /// Replaces the content with bytes in memory.
    pub(super) fn with_bytes(self, bytes: Bytes) -> Known<H> {
        Known { content: Content::Bytes(bytes), ..self }
    }
}

/// The counts of the cache, and how much it holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheTally {
    /// Requests whose file was in memory.
    pub hits: u64,
    /// Requests whose file was open.
    pub open_hits: u64,
    /// Requests whose file had to be opened.
    pub misses: u64,
    /// Blocks of open files that were in memory.
    pub block_hits: u64,
    /// Blocks of open files that had to be read.
    pub block_misses: u64,
    /// Files that were checked and had not changed.
    pub revalidations: u64,
    /// Kept files that had changed or were gone when checked.
    pub outdated: u64,
    /// Bytes given back because connections needed the memory.
    pub given_back_bytes: u64,
    /// Responses that failed because their file changed during the transfer.
    pub changed_midway: u64,
    /// Files that were compressed.
    pub compressed: u64,
    /// Bytes in memory now.
    pub bytes: u64,
    /// Files open now.
    pub open: u64,
}

impl CacheTally {
    /// Adds the counts of another cache.
    pub fn add(&mut self, other: &CacheTally) {
        self.hits += other.hits;
        self.open_hits += other.open_hits;
        self.misses += other.misses;
        self.block_hits += other.block_hits;
        self.block_misses += other.block_misses;
        self.revalidations += other.revalidations;
        self.outdated += other.outdated;
        self.given_back_bytes += other.given_back_bytes;
        self.changed_midway += other.changed_midway;
        self.compressed += other.compressed;
        self.bytes += other.bytes;
        self.open += other.open;
    }
}

/// The result of a look-up.
pub(super) enum Found<H> {
    /// A file, known to be the one that the path names.
    Fresh(Rc<Known<H>>),
    /// A file that the path named at the last check, which is too long ago.
    Stale(Rc<Known<H>>),
    Nothing,
}

/// The names of what is in memory.
#[derive(Clone, PartialEq, Eq)]
enum Key {
    /// A short file, by its path.
    File(RelativePath),
    /// A file in a coding that was made of it.
    Coded(RelativePath, Coding),
    /// A block of a longer one.
    Block(Place),
}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        match self {
            // As the path itself, by which a file is found.
            Key::File(path) => path.hash(state),
            Key::Coded(path, coding) => (path, coding).hash(state),
            Key::Block(place) => place.hash(state),
        }
    }
}

impl Equivalent<Key> for RelativePath {
    fn equivalent(&self, key: &Key) -> bool {
        matches!(key, Key::File(path) if path == self)
    }
}

/// An entry in memory.
enum Hot<H> {
    File(Rc<Known<H>>),
    /// Its bytes, and how many its memory has.
    Block(Bytes, usize),
}

impl<H> Clone for Hot<H> {
    fn clone(&self) -> Self {
        match self {
            Hot::File(known) => Hot::File(known.clone()),
            Hot::Block(bytes, memory) => Hot::Block(bytes.clone(), *memory),
        }
    }
}

/// Everything weighs as much as its bytes.
#[derive(Clone)]
struct ByBytes;

impl<H> Weighter<Key, Hot<H>> for ByBytes {
    fn weight(&self, _key: &Key, hot: &Hot<H>) -> u64 {
        let bytes = match hot {
            Hot::Block(_, memory) => *memory,
            Hot::File(known) => match &known.content {
                Content::Bytes(bytes) => bytes.len(),
                Content::Open(_) => 0,
            },
        };
        bytes as u64 + ENTRY_BYTES
    }
}

/// The kept files of one shard. A path is in at most one of the two tables.
pub(super) struct FileCache<H> {
    hot: RefCell<Cache<Key, Hot<H>, ByBytes>>,
    open: RefCell<Cache<RelativePath, Rc<Known<H>>, UnitWeighter>>,
    blocks: RefCell<Blocks>,
    age: Duration,
    most_bytes: Cell<u64>,
    most_file_bytes: u64,
    block_bytes: u64,
    most_open: usize,
    tally: Cell<CacheTally>,
    changed: Rc<Cell<u64>>,
}

impl<H> FileCache<H> {
    pub(super) fn new(config: &FilesConfig) -> FileCache<H> {
        let FilesConfig { cache_bytes, cache_file_bytes, cache_open, cache_age, .. } = *config;
        let [most_bytes, most_file_bytes] = [cache_bytes, cache_file_bytes].map(|n| n as u64);
        // With an age of zero a look-up never finds anything.
        let most_open = if cache_age.is_zero() { 0 } else { cache_open };
        let cache = FileCache {
            hot: RefCell::new(Cache::with_weighter(FIRST_ENTRIES, most_bytes, ByBytes)),
            open: RefCell::new(Cache::new(most_open)),
            blocks: RefCell::default(),
            age: cache_age,
            most_bytes: Cell::new(most_bytes),
            most_file_bytes,
            block_bytes: config.chunk_bytes.max(1) as u64,
            most_open,
            tally: Cell::default(),
            changed: Rc::default(),
        };
        cache.set_most_bytes(most_bytes);
        cache
    }

    /// Looks a path up.
    pub(super) fn find(&self, path: &RelativePath, now: Instant) -> Found<H> {
        if self.age.is_zero() {
            return Found::Nothing;
        }
        let known = match self.hot.borrow().get(path) {
            Some(Hot::File(known)) => Some(known.clone()),
            Some(Hot::Block(..)) | None => self.open.borrow().get(path).cloned(),
        };
        match known {
            Some(known) if now < known.checked.get() + self.age => Found::Fresh(known),
            Some(known) => Found::Stale(known),
            None => Found::Nothing,
        }
    }

    /// Counts a file whose bytes were in memory.
    pub(super) fn on_hit(&self) {
        self.count(|tally| tally.hits += 1);
    }

    /// Counts a file that was open.
    pub(super) fn on_open_hit(&self) {
        self.count(|tally| tally.open_hits += 1);
    }

    /// Counts a file that had to be opened.
    pub(super) fn on_miss(&self) {
        self.count(|tally| tally.misses += 1);
    }

    /// Notes that a file is still the one that its path names.
    pub(super) fn revalidate(&self, known: &Known<H>, now: Instant) {
        known.checked.set(now);
        known.lacking.set(0);
        self.count(|tally| tally.revalidations += 1);
    }

    /// Notes that a path names another file by now, or none.
    pub(super) fn forget(&self, path: &RelativePath) {
        let was_hot = self.hot.borrow_mut().remove(path).is_some();
        let open = self.open.borrow_mut().remove(path);
        if was_hot || open.is_some() {
            self.count(|tally| tally.outdated += 1);
        }
        if let Some((_, known)) = open {
            self.forget_blocks(&known.metadata.version());
        }
    }

    /// Drops the blocks of a version that nobody asks for any more: they would keep their part of
    /// the budget until they were the coldest.
    fn forget_blocks(&self, version: &Version) {
        let mut hot = self.hot.borrow_mut();
        let blocks = version.len_bytes().div_ceil(self.block_bytes);
        if blocks <= hot.len() as u64 {
            for index in 0..blocks {
                hot.remove(&Key::Block((*version, index)));
            }
        } else {
            hot.retain(|key, _| !matches!(key, Key::Block((of, _)) if of == version));
        }
    }

    /// True if anything is kept in memory.
    pub(super) fn keeps_bytes(&self) -> bool {
        self.most_bytes.get() > 0
    }

    /// True if a file of that length is kept in memory.
    pub(super) fn takes_bytes(&self, metadata: &Metadata) -> bool {
        metadata.len_bytes <= self.most_file_bytes
            && metadata.len_bytes + ENTRY_BYTES <= self.most_bytes.get()
    }

    /// Keeps a file that was found at `path`, if its times are old enough.
    pub(super) fn keep(&self, path: &RelativePath, known: &Rc<Known<H>>) {
        if !known.is_settled {
            return;
        }
        match &known.content {
            Content::Bytes(_) => {
                self.open.borrow_mut().remove(path);
                self.insert(Key::File(path.clone()), Hot::File(known.clone()));
            }
            Content::Open(_) if self.most_open > 0 => {
                self.open.borrow_mut().insert(path.clone(), known.clone());
            }
            Content::Open(_) => {}
        }
    }

    /// What `file`, which `path` names, is in a coding, if that is in memory.
    pub(super) fn coded(
        &self,
        path: &RelativePath,
        file: &Known<H>,
        coding: Coding,
    ) -> Option<Rc<Known<H>>> {
        let hot = self.hot.borrow().get(&Key::Coded(path.clone(), coding)).cloned();
        let Some(Hot::File(coded)) = hot else { return None };
        let (then, now) = (&coded.metadata, &file.metadata);
        let is_of_same = coded.cache_control == file.cache_control
            && (then.identity, then.modified, then.changed)
                == (now.identity, now.modified, now.changed)
            && coded.validators.etag == file.validators.coded_etag(coding.name());
        is_of_same.then_some(coded)
    }

    /// Keeps what the file that `path` names is in a coding.
    pub(super) fn keep_coded(&self, path: &RelativePath, coding: Coding, coded: &Rc<Known<H>>) {
        self.count(|tally| tally.compressed += 1);
        self.insert(Key::Coded(path.clone(), coding), Hot::File(coded.clone()));
    }

    fn insert(&self, key: Key, hot: Hot<H>) {
        let mut table = self.hot.borrow_mut();
        // It may have been made smaller.
        table.set_capacity(self.most_bytes.get());
        table.insert(key, hot);
    }

    /// True if blocks of so many bytes are kept: the cache holds several of them.
    pub(super) fn takes_blocks(&self, block_bytes: usize) -> bool {
        4 * (block_bytes as u64 + ENTRY_BYTES) <= self.most_bytes.get()
    }

    /// The block at that place, if it is in memory. One that a reader has still is kept again,
    /// unless memory `is_scarce`.
    pub(super) fn block(&self, place: Place, is_scarce: bool) -> Option<Bytes> {
        let hot = self.hot.borrow().get(&Key::Block(place)).cloned();
        let bytes = match hot {
            Some(Hot::Block(bytes, _)) => bytes,
            Some(Hot::File(_)) | None => {
                let block = self.blocks.borrow().read(place)?;
                if is_scarce { block.bytes() } else { self.insert_block(place, &block) }
            }
        };
        self.count(|tally| tally.block_hits += 1);
        Some(bytes)
    }

    /// Keeps a block that was read. Returns a share of it.
    pub(super) fn keep_block(&self, place: Place, block: &Block) -> Bytes {
        self.count(|tally| tally.block_misses += 1);
        self.blocks.borrow_mut().on_read(place, block);
        self.insert_block(place, block)
    }

    fn insert_block(&self, place: Place, block: &Block) -> Bytes {
        let bytes = block.bytes();
        let hot = Hot::Block(bytes.clone(), block.memory_bytes());
        self.insert(Key::Block(place), hot);
        bytes
    }

    /// The blocks that somebody reads or waits for.
    pub(super) fn blocks(&self) -> std::cell::RefMut<'_, Blocks> {
        self.blocks.borrow_mut()
    }

    /// Gives back half of the bytes, or all where they are few.
    pub(super) fn give_back(&self) {
        let mut hot = self.hot.borrow_mut();
        let before = hot.weight();
        let rest = if before > FEW_BYTES { before / 2 } else { 0 };
        hot.set_capacity(rest);
        let given = before - hot.weight();
        drop(hot);
        self.count(|tally| tally.given_back_bytes += given);
    }

    /// Sets how many bytes the cache keeps at most from here on, and drops what is more.
    pub(super) fn set_most_bytes(&self, bytes: u64) {
        // With an age of zero a look-up never finds anything.
        let bytes = if self.age.is_zero() { 0 } else { bytes };
        self.most_bytes.set(bytes);
        self.hot.borrow_mut().set_capacity(bytes);
    }

    /// Closes all descriptors. False if there were none.
    pub(super) fn close_all(&self) -> bool {
        let mut open = self.open.borrow_mut();
        let has_some = !open.is_empty();
        open.clear();
        has_some
    }

    /// Forgets every file, though none has changed.
    pub(super) fn forget_all(&self) {
        self.close_all();
        self.hot.borrow_mut().clear();
    }

    /// The counter of files that change while they are sent.
    pub(super) fn changed(&self) -> &Rc<Cell<u64>> {
        &self.changed
    }

    pub(super) fn tally(&self) -> CacheTally {
        CacheTally {
            bytes: self.hot.borrow().weight(),
            open: self.open.borrow().len() as u64,
            changed_midway: self.changed.get(),
            ..self.tally.get()
        }
    }

    fn count(&self, count: impl FnOnce(&mut CacheTally)) {
        let mut tally = self.tally.get();
        count(&mut tally);
        self.tally.set(tally);
    }
}

/// Below this the cache gives back everything at once.
const FEW_BYTES: u64 = 64 << 10;

impl<H> fmt::Debug for FileCache<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileCache").field("tally", &self.tally()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
