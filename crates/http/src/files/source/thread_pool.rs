//! The machine's file system, read by a few threads, or by io_uring.
//!
//! Data in the kernel's caches is taken at once, without a thread (`openat2` with RESOLVE_CACHED,
//! `preadv2` with RWF_NOWAIT: neither waits for a disk), and so is a file on a file system in
//! memory. All else goes to the threads, and an ordinary waker brings the answer back. If the
//! caller asks for it, reads go to io_uring ([`Disk`]): then one thread has many in progress.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{Dir, fstatfs};
use rustix::io::{Errno, ReadWriteFlags, preadv2};
use tokio::sync::oneshot;

use super::beneath::{self, Effort};
use super::{Entries, Entry, FileSource, Kind, Metadata, OpenError, Opened, ReadBuffer};
use crate::Pending;
use crate::files::path::RelativePath;

mod ring;
mod threads;
mod uring;

use threads::Threads;
use uring::Uring;

/// How to read file data that the kernel's caches do not hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Disk {
    /// By threads, a read at a time each.
    #[default]
    Threads,
    /// By io_uring (Linux 5.6), many reads at a time.
    Uring,
}

/// A reader of file data that the kernel's caches do not hold.
trait Reads: Send + Sync + std::fmt::Debug {
    /// Fills a buffer from an offset on; `filled` bytes of it are there already. The offset is that
    /// of the buffer's first byte. The buffer is truncated if the file ends before.
    fn read(
        &self,
        file: Arc<OpenFile>,
        job: (u64, ReadBuffer, usize),
    ) -> oneshot::Receiver<io::Result<ReadBuffer>>;
}

/// A directory of the machine's file system. Clones share the threads and may serve other shards.
#[derive(Clone, Debug)]
pub struct ThreadPoolFiles {
    root: Arc<Root>,
    threads: Arc<Threads>,
    reads: Arc<dyn Reads>,
    /// A thread for what takes long, from when there is some: those that read must not wait for it.
    work: Arc<OnceLock<Option<Threads>>>,
}

/// An open file or directory, and where it was found.
#[derive(Clone, Debug)]
pub struct FileHandle {
    file: Arc<OpenFile>,
    path: RelativePath,
}

impl ThreadPoolFiles {
    /// Files under `root`, read by `threads` threads (at least one).
    ///
    /// # Errors
    /// If `root` cannot be opened, is no directory, or threads cannot be started.
    pub fn new(root: &Path, threads: usize) -> io::Result<Self> {
        let directory = Root::open(root)?;
        let threads = Arc::new(Threads::start("files", threads.max(1))?);
        let root = Arc::new(Root { directory, open: Arc::default() });
        let (reads, work) = (threads.clone(), Arc::default());
        Ok(ThreadPoolFiles { root, reads, threads, work })
    }

    /// Files under another directory, read by the same threads.
    ///
    /// # Errors
    /// If `root` cannot be opened, or is no directory.
    pub fn beside(&self, root: &Path) -> io::Result<Self> {
        let (directory, open) = (Root::open(root)?, self.root.open.clone());
        Ok(ThreadPoolFiles { root: Arc::new(Root { directory, open }), ..self.clone() })
    }

    /// Makes the source read by `disk`.
    ///
    /// # Errors
    /// If the kernel does not offer it, or does not permit it.
    pub fn by(self, disk: Disk) -> io::Result<Self> {
        let reads: Arc<dyn Reads> = match disk {
            Disk::Threads => self.threads.clone(),
            Disk::Uring => Arc::new(Uring::start()?),
        };
        Ok(ThreadPoolFiles { reads, ..self })
    }
}

/// The root directory, and the files that are open.
#[derive(Debug)]
struct Root {
    directory: OwnedFd,
    open: Arc<OpenFiles>,
}

impl Root {
    fn open(root: &Path) -> io::Result<OwnedFd> {
        let root = File::open(root)?;
        match root.metadata()?.is_dir() {
            true => Ok(root.into()),
            false => Err(io::Error::from(io::ErrorKind::NotADirectory)),
        }
    }
}

/// The regular files that are open, by device and inode. Responses that send the same file share
/// one descriptor, however many they are and however slow their peers.
#[derive(Debug, Default)]
struct OpenFiles(Mutex<HashMap<(u64, u64), Weak<OpenFile>>>);

/// An open file. While it is open its inode is not used again.
#[derive(Debug)]
struct OpenFile {
    file: File,
    /// The table that it is in, and its key there.
    listed: Option<(Arc<OpenFiles>, (u64, u64))>,
}

impl OpenFiles {
    fn by_inode(&self) -> std::sync::MutexGuard<'_, HashMap<(u64, u64), Weak<OpenFile>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The file if it is open already, or else the one that was opened now.
    fn share(self: &Arc<Self>, file: File, metadata: &std::fs::Metadata) -> Arc<OpenFile> {
        if !metadata.is_file() {
            return Arc::new(OpenFile { file, listed: None });
        }
        let inode = (metadata.dev(), metadata.ino());
        let mut by_inode = self.by_inode();
        if let Some(open) = by_inode.get(&inode).and_then(Weak::upgrade) {
            return open;
        }
        let open = Arc::new(OpenFile { file, listed: Some((self.clone(), inode)) });
        by_inode.insert(inode, Arc::downgrade(&open));
        open
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        let Some((open, inode)) = self.listed.take() else { return };
        let mut by_inode = open.by_inode();
        // Another thread may have opened it again meanwhile.
        if by_inode.get(&inode).is_some_and(|file| file.strong_count() == 0) {
            by_inode.remove(&inode);
        }
    }
}

impl FileSource for ThreadPoolFiles {
    type Handle = FileHandle;

    fn open(&self, path: &RelativePath) -> Pending<Result<Opened<FileHandle>, OpenError>> {
        match open(&self.root, path, Effort::Cached) {
            Err(OpenError::Unavailable(why)) if why.kind() == io::ErrorKind::WouldBlock => {}
            known => return Box::pin(std::future::ready(known)),
        }
        let (root, path) = (self.root.clone(), path.clone());
        let opening = self.threads.run(move || open(&root, &path, Effort::Blocking));
        Box::pin(
            async move { opening.await.unwrap_or_else(|_| Err(OpenError::Unavailable(ended()))) },
        )
    }

    fn read_at(
        &self,
        handle: &FileHandle,
        offset: u64,
        mut buffer: ReadBuffer,
    ) -> Pending<io::Result<ReadBuffer>> {
        let start = match read_cached(&handle.file.file, offset, &mut buffer) {
            Ok(Cached::Complete(length)) => {
                buffer.truncate(length);
                return Box::pin(std::future::ready(Ok(buffer)));
            }
            Ok(Cached::UpTo(length)) => length,
            Err(why) => return Box::pin(std::future::ready(Err(why))),
        };
        let reading = self.reads.read(handle.file.clone(), (offset, buffer, start));
        Box::pin(async move { reading.await.unwrap_or_else(|_| Err(ended())) })
    }

    fn metadata(&self, handle: &FileHandle) -> io::Result<Metadata> {
        let found = handle.file.file.metadata()?;
        describe(&found).ok_or_else(|| io::ErrorKind::Unsupported.into())
    }

    fn list<T: Send + 'static>(
        &self,
        handle: &FileHandle,
        limit: usize,
        make: impl FnOnce(Entries) -> T + Send + 'static,
    ) -> Pending<io::Result<T>> {
        let (root, handle) = (self.root.clone(), handle.clone());
        let listing = self.threads.run(move || list(&root, &handle, limit).map(make));
        Box::pin(async move { listing.await.unwrap_or_else(|_| Err(ended())) })
    }

    fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Pending<Option<T>> {
        let own = self.work.get_or_init(|| Threads::start("work", 1).ok());
        let done = own.as_ref().unwrap_or(&self.threads).run(work);
        Box::pin(async move { done.await.ok() })
    }
}

/// A job was dropped unfinished: its thread is gone.
fn ended() -> io::Error {
    io::Error::other("the threads that read files have ended")
}

fn open(root: &Root, path: &RelativePath, effort: Effort) -> Result<Opened<FileHandle>, OpenError> {
    let opened = beneath::open(root.directory.as_fd(), path, effort).map_err(open_error)?;
    let file = File::from(opened);
    let found = file.metadata().map_err(OpenError::Unavailable)?;
    let metadata = describe(&found).ok_or(OpenError::Forbidden)?;
    let handle = FileHandle { file: root.open.share(file, &found), path: path.clone() };
    Ok(Opened { handle, metadata })
}

/// The metadata in our form; `None` for a file that is neither regular nor a directory.
fn describe(metadata: &std::fs::Metadata) -> Option<Metadata> {
    let kind = match () {
        () if metadata.is_file() => Kind::File,
        () if metadata.is_dir() => Kind::Directory,
        () => return None,
    };
    let len_bytes = if kind == Kind::File { metadata.len() } else { 0 };
    let identity = metadata.ino() ^ metadata.dev().rotate_left(40);
    let changed = time_of(metadata.ctime(), metadata.ctime_nsec());
    Some(Metadata { kind, len_bytes, modified: metadata.modified().ok(), changed, identity })
}

/// A time of the file system; `None` before 1970.
fn time_of(seconds: i64, nanos: i64) -> Option<SystemTime> {
    let (seconds, nanos) = (u64::try_from(seconds).ok()?, u32::try_from(nanos).ok()?);
    UNIX_EPOCH.checked_add(Duration::new(seconds, nanos))
}

fn open_error(errno: Errno) -> OpenError {
    match errno {
        Errno::NOENT | Errno::NOTDIR | Errno::NAMETOOLONG => OpenError::NotFound,
        // XDEV: out of the root. NXIO: a socket, or a FIFO's other end.
        Errno::ACCESS | Errno::PERM | Errno::XDEV | Errno::LOOP | Errno::NXIO => {
            OpenError::Forbidden
        }
        other => OpenError::Unavailable(other.into()),
    }
}

/// The data that the page cache had.
enum Cached {
    /// All requested bytes, or all until the end of the file: this many.
    Complete(usize),
    /// This many bytes; the rest must be fetched.
    UpTo(usize),
}

/// Reads from the page cache alone.
fn read_cached(file: &File, offset: u64, buffer: &mut [u8]) -> io::Result<Cached> {
    let mut length = 0;
    while length < buffer.len() {
        let mut slices = [IoSliceMut::new(&mut buffer[length..])];
        match preadv2(file, &mut slices, offset + length as u64, ReadWriteFlags::NOWAIT) {
            Ok(0) => break,
            Ok(n) => length += n,
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Ok(Cached::UpTo(length)),
            // File systems that cannot promise that they do not wait.
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {
                if !is_in_memory(file) {
                    return Ok(Cached::UpTo(length));
                }
                let rest = read_blocking(file, offset + length as u64, &mut buffer[length..])?;
                return Ok(Cached::Complete(length + rest));
            }
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(Cached::Complete(length))
}

/// True on a file system without a disk: a read never waits, though tmpfs does not promise that.
fn is_in_memory(file: &File) -> bool {
    const TMPFS: u32 = 0x0102_1994;
    const RAMFS: u32 = 0x8584_58f6;
    fstatfs(file).is_ok_and(|found| [TMPFS, RAMFS].contains(&(found.f_type as u32)))
}

/// Reads until the buffer is full or the file ends.
fn read_blocking(file: &File, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
    let mut length = 0;
    while length < buffer.len() {
        match file.read_at(&mut buffer[length..], offset + length as u64) {
            Ok(0) => break,
            Ok(n) => length += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(length)
}

fn list(root: &Root, handle: &FileHandle, limit: usize) -> io::Result<Entries> {
    let modified = handle.file.file.metadata()?.modified().ok();
    // The first in the order of the listing, and not the first that the directory gives.
    let (mut first, mut complete) = (BTreeMap::new(), true);
    for entry in Dir::read_from(&handle.file.file)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        // `.`, `..` and names that no request can contain (with a backslash) are left out.
        let Some(path) = handle.path.join(name) else { continue };
        // Opened rather than asked by name, so that a link out of the root tells nothing.
        let Ok(opened) = open(root, &path, Effort::Blocking) else { continue };
        let entry = Entry { name: name.to_owned(), metadata: opened.metadata };
        let (is_file, name) = entry.order();
        first.insert((is_file, name.to_owned()), entry);
        if first.len() > limit {
            first.pop_last();
            complete = false;
        }
    }
    Ok(Entries { entries: first.into_values().collect(), complete, modified })
}

#[cfg(test)]
mod tests;
