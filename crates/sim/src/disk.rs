//! A disk in virtual time, for the file server: one arm or many, a seek for each read, a transfer
//! rate.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::io;
use std::rc::Rc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lightwait::rt;
use lightwait::shard::Handle;
use lightwait_core::Instant;
use lightwait_http::Pending;
use lightwait_http::path::RelativePath;
use lightwait_http::source::{
    Entries, Entry, FileSource, Kind, Metadata, OpenError, Opened, ReadBuffer,
};

use crate::pattern::Pattern;

/// Files made of patterns: a name, and the length and seed of its content.
#[derive(Clone, Debug)]
pub struct Disk {
    files: Rc<BTreeMap<String, (u64, Pattern)>>,
    seek: Duration,
    bytes_per_second: u64,
    /// The time at which the arm is free; `None`: there is one for each operation.
    free: Option<Rc<Cell<Instant>>>,
    /// Reads bring the files' content.
    has_content: bool,
}

impl Disk {
    /// A disk with these files (no directories but the root), each with its length and the seed of
    /// its content.
    pub fn new(files: &[(&str, u64, u64)], seek: Duration, bytes_per_second: u64) -> Disk {
        let files = files
            .iter()
            .map(|(name, length, seed)| ((*name).to_owned(), (*length, Pattern::new(*seed))));
        Disk {
            files: Rc::new(files.collect()),
            seek,
            bytes_per_second: bytes_per_second.max(1),
            free: Some(Rc::new(Cell::new(Instant::ZERO))),
            has_content: true,
        }
    }

    /// This disk without content. Its reads leave the buffer as it is: to make content takes more
    /// instructions than to send it, which a measurement should not count.
    pub fn without_content(self) -> Disk {
        Disk { has_content: false, ..self }
    }

    /// This disk with an arm for each operation: none waits for another.
    pub fn with_many_arms(self) -> Disk {
        Disk { free: None, ..self }
    }

    /// Takes an arm for an operation that moves `bytes`; after those before it, if there is one.
    fn operation(&self, bytes: usize) -> rt::Sleep {
        let transfer = bytes as u64 * 1_000_000_000 / self.bytes_per_second;
        let free = self.free.as_ref().map_or(Instant::ZERO, |free| free.get());
        let start = free.max(Handle::current().now());
        let end = start + self.seek + Duration::from_nanos(transfer);
        if let Some(free) = &self.free {
            free.set(end);
        }
        rt::sleep_until(end)
    }

    fn describe(kind: Kind, len_bytes: u64, identity: u64) -> Metadata {
        Metadata { kind, len_bytes, modified: Some(date()), changed: Some(date()), identity }
    }
}

/// The identity of a file: its first bytes.
fn identity_of(pattern: &Pattern) -> u64 {
    let mut identity = [0; 8];
    pattern.fill(0, &mut identity);
    u64::from_le_bytes(identity)
}

/// The modification time of every file: 1994-11-06 08:49:37, the example of RFC 9110 §5.6.7.
fn date() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(784_111_777)
}

impl FileSource for Disk {
    type Handle = String;

    fn open(&self, path: &RelativePath) -> Pending<Result<Opened<String>, OpenError>> {
        let name = String::from_utf8_lossy(path.as_bytes()).into_owned();
        let metadata = match self.files.get(&name) {
            Some((length, pattern)) => {
                Ok(Self::describe(Kind::File, *length, identity_of(pattern)))
            }
            None if name.is_empty() => Ok(Self::describe(Kind::Directory, 0, 0)),
            None => Err(OpenError::NotFound),
        };
        let operation = self.operation(0);
        Box::pin(async move {
            operation.await;
            metadata.map(|metadata| Opened { handle: name, metadata })
        })
    }

    fn read_at(
        &self,
        handle: &String,
        offset: u64,
        mut buffer: ReadBuffer,
    ) -> Pending<io::Result<ReadBuffer>> {
        let Some((length, pattern)) = self.files.get(handle).copied() else {
            return Box::pin(std::future::ready(Err(io::ErrorKind::IsADirectory.into())));
        };
        let rest = length.saturating_sub(offset);
        buffer.truncate(usize::try_from(rest).unwrap_or(usize::MAX));
        let (operation, has_content) = (self.operation(buffer.len()), self.has_content);
        Box::pin(async move {
            operation.await;
            if has_content {
                pattern.fill(offset, &mut buffer);
            }
            Ok(buffer)
        })
    }

    fn metadata(&self, handle: &String) -> io::Result<Metadata> {
        let (length, pattern) = self.files.get(handle).ok_or(io::ErrorKind::NotFound)?;
        Ok(Self::describe(Kind::File, *length, identity_of(pattern)))
    }

    fn list<T: Send + 'static>(
        &self,
        _handle: &String,
        limit: usize,
        make: impl FnOnce(Entries) -> T + Send + 'static,
    ) -> Pending<io::Result<T>> {
        let entry = |(name, (length, _)): (&String, &(u64, Pattern))| Entry {
            name: name.clone().into_bytes(),
            metadata: Self::describe(Kind::File, *length, 0),
        };
        let entries = self.files.iter().take(limit).map(entry).collect();
        let complete = self.files.len() <= limit;
        let listed = Entries { entries, complete, modified: Some(date()) };
        let operation = self.operation(0);
        Box::pin(async move {
            operation.await;
            Ok(make(listed))
        })
    }

    fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Pending<Option<T>> {
        Box::pin(std::future::ready(Some(work())))
    }
}
