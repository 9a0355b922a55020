//! The source of files: a small asynchronous interface, so that a shard never waits for a disk.
//!
//! [`thread_pool`] reads the machine's own file system; a simulator brings a disk of its own.

mod beneath;
mod read_buffer;
pub mod thread_pool;

use std::fmt;
use std::io;
use std::time::{Duration, SystemTime};

use crate::Pending;
use crate::files::path::RelativePath;

pub use read_buffer::ReadBuffer;

/// A place with files under a root.
pub trait FileSource: 'static {
    /// An open file or directory.
    type Handle: Clone + 'static;

    /// Opens what `path` names, without ever leaving the root: not through symbolic links either.
    fn open(&self, path: &RelativePath) -> Pending<Result<Opened<Self::Handle>, OpenError>>;

    /// Fills `buffer` from `offset` on and gives it back: truncated only if the file ends before.
    ///
    /// The reading starts with the call, not with the first poll: that is how a reader reads ahead.
    fn read_at(
        &self,
        handle: &Self::Handle,
        offset: u64,
        buffer: ReadBuffer,
    ) -> Pending<io::Result<ReadBuffer>>;

    /// The metadata of an open file by now. It does not wait for a disk.
    ///
    /// # Errors
    /// If the source cannot tell.
    fn metadata(&self, handle: &Self::Handle) -> io::Result<Metadata>;

    /// Applies `make` to at most `limit` entries of a directory, in any order: files and
    /// directories alone. Both steps take long for many entries, so a source that has threads does
    /// both there.
    fn list<T: Send + 'static>(
        &self,
        handle: &Self::Handle,
        limit: usize,
        make: impl FnOnce(Entries) -> T + Send + 'static,
    ) -> Pending<io::Result<T>>;

    /// Does work that takes long and waits for nothing, even if the future is dropped. A source
    /// that has threads does it there, but not on those that read. `None` if it was not done.
    fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Pending<Option<T>>;
}

/// The result of [`FileSource::open`].
#[derive(Clone, Debug)]
pub struct Opened<H> {
    /// The handle to read by.
    pub handle: H,
    /// The metadata at the time of the open.
    pub metadata: Metadata,
}

/// The metadata of a file or directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metadata {
    /// File or directory.
    pub kind: Kind,
    /// Its length; 0 for a directory.
    pub len_bytes: u64,
    /// When it was last modified, if known.
    pub modified: Option<SystemTime>,
    /// When its bytes, its names or its rights were changed last, if known. No program can set that
    /// back.
    pub changed: Option<SystemTime>,
    /// Differs between any two files at a time (an inode number). Clients never see it.
    pub identity: u64,
}

/// One version of a file, among all files at all times: any change of a settled file makes another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Version {
    identity: u64,
    modified: Option<SystemTime>,
    changed: Option<SystemTime>,
    len_bytes: u64,
}

impl Version {
    /// The file's length.
    pub(crate) fn len_bytes(&self) -> u64 {
        self.len_bytes
    }
}

impl Metadata {
    /// The version of the file that has this metadata, once it is settled.
    pub(crate) fn version(&self) -> Version {
        let Metadata { identity, modified, changed, len_bytes, .. } = *self;
        Version { identity, modified, changed, len_bytes }
    }

    /// True if `self` and `later` describe the same bytes of the same file.
    pub(crate) fn has_bytes_of(&self, later: &Metadata) -> bool {
        (self.identity, self.len_bytes, self.modified)
            == (later.identity, later.len_bytes, later.modified)
    }

    /// True if `later` describes the same file, which has more bytes now: something was appended,
    /// as to a log.
    pub(crate) fn has_grown_to(&self, later: &Metadata) -> bool {
        self.identity == later.identity && self.len_bytes < later.len_bytes
    }

    /// True if a change from `now` on gives it other times: a file system's clock has a granule.
    pub(crate) fn is_settled(&self, now: SystemTime) -> bool {
        let is_past = |time: SystemTime| time + GRANULE <= now;
        self.modified.is_some_and(is_past) && self.changed.is_none_or(is_past)
    }
}

/// The granule of the coarsest file system clock that counts: FAT's, two seconds.
pub(crate) const GRANULE: Duration = Duration::from_secs(2);

/// The kinds of file that can be served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
}

/// One entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its name, as the file system has it: any bytes but slash and NUL.
    pub name: Vec<u8>,
    /// Its kind; for a symbolic link, the kind of its target.
    pub metadata: Metadata,
}

impl Entry {
    /// Its place in a listing: directories first, then files, by name.
    pub(crate) fn order(&self) -> (bool, &[u8]) {
        (self.metadata.kind == Kind::File, &self.name)
    }
}

/// The result of [`FileSource::list`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entries {
    /// The entries.
    pub entries: Vec<Entry>,
    /// False if there are more.
    pub complete: bool,
    /// When the directory was last modified, taken before it was read.
    pub modified: Option<SystemTime>,
}

/// Why a path cannot be opened.
#[derive(Debug)]
pub enum OpenError {
    /// There is no file of that name.
    NotFound,
    /// There is one, but it may not be served: no permission, a symbolic link out of the root, or
    /// neither file nor directory.
    Forbidden,
    /// The source cannot serve now: out of file descriptors, or a failing disk.
    Unavailable(io::Error),
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenError::NotFound => f.write_str("no such file"),
            OpenError::Forbidden => f.write_str("not to be served"),
            OpenError::Unavailable(why) => write!(f, "cannot be opened now: {why}"),
        }
    }
}

impl std::error::Error for OpenError {}
