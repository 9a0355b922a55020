//! A capture in two files: the older one is deleted when the newer one is full.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// `FILE`, and `FILE.1` with the frames before it. Each is a whole capture.
pub(super) struct Rotating {
    path: PathBuf,
    /// The first blocks of each file.
    header: Vec<u8>,
    file: File,
    written: u64,
    /// Bytes in each of the two, at most.
    most: u64,
}

impl Rotating {
    /// Begins `path` anew. Each file has the header and `limit / 2` bytes at most.
    pub(super) fn create(path: &Path, header: Vec<u8>, limit: u64) -> io::Result<Rotating> {
        let file = File::create(path)?;
        Ok(Rotating { path: path.to_owned(), header, file, written: 0, most: limit / 2 })
    }

    fn rotate(&mut self) -> io::Result<()> {
        let mut older = OsString::from(&self.path);
        older.push(".1");
        fs::rename(&self.path, older)?;
        self.file = File::create(&self.path)?;
        self.file.write_all(&self.header)?;
        self.written = self.header.len() as u64;
        Ok(())
    }
}

impl Write for Rotating {
    /// Writes `blocks`, which are whole ones, into one file.
    fn write(&mut self, blocks: &[u8]) -> io::Result<usize> {
        if self.written > 0 && self.written + blocks.len() as u64 > self.most {
            self.rotate()?;
        }
        self.file.write_all(blocks)?;
        self.written += blocks.len() as u64;
        Ok(blocks.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}
