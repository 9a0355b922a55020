//! journald, by its native protocol: a datagram for each line, with named fields
//! (<https://systemd.io/JOURNAL_NATIVE_PROTOCOL/>).

use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};

/// journald's socket.
pub(super) const SOCKET: &str = "/run/systemd/journal/socket";

/// Bytes of a line at most: longer ones would need a file to be passed, and no line of ours is one.
const LINE_BYTES: usize = 48 << 10;

/// A journal that takes lines of requests.
#[derive(Debug)]
pub(super) struct Journal {
    socket: UnixDatagram,
    path: PathBuf,
    datagram: Vec<u8>,
}

impl Journal {
    /// Looks for the journal at `path`.
    pub(super) fn open(path: &Path) -> io::Result<Journal> {
        let socket = UnixDatagram::unbound()?;
        // It may be started again: each line names it anew.
        path.metadata()?;
        Ok(Journal { socket, path: path.to_owned(), datagram: Vec::new() })
    }

    /// Sends a line. Waits while the journal has no room.
    pub(super) fn send(&mut self, line: &str) -> io::Result<()> {
        let end = line.floor_char_boundary(LINE_BYTES);
        self.datagram.clear();
        self.datagram.extend_from_slice(b"PRIORITY=6\nSYSLOG_IDENTIFIER=lightwait\nMESSAGE\n");
        // A value with its length may hold anything.
        self.datagram.extend_from_slice(&(end as u64).to_le_bytes());
        self.datagram.extend_from_slice(&line.as_bytes()[..end]);
        self.datagram.push(b'\n');
        self.socket.send_to(&self.datagram, &self.path).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_datagram_with_its_fields() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        assert_eq!(Journal::open(&path).unwrap_err().kind(), io::ErrorKind::NotFound);
        let server = UnixDatagram::bind(&path).unwrap();
        let mut journal = Journal::open(&path).unwrap();
        let head = b"PRIORITY=6\nSYSLOG_IDENTIFIER=lightwait\nMESSAGE\n";
        let long = "x".repeat(LINE_BYTES);
        for (line, wanted) in [("a\nb", "a\nb"), (&format!("{long}é"), &long)] {
            journal.send(line).unwrap();
            let mut datagram = vec![0; 100_000];
            let len = server.recv(&mut datagram).unwrap();
            let length = &(wanted.len() as u64).to_le_bytes()[..];
            assert_eq!(datagram[..len], [head, length, wanted.as_bytes(), b"\n"].concat());
        }
        drop(server);
        assert!(journal.send("x").is_err(), "nobody takes it");
    }
}
