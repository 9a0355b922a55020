//! A client on the kernel's stack that downloads a file and notes what came when.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use lightwait_bench::live::Namespace;

use super::site::inside;
use crate::plan::Failure;

/// The width of an interval of [`Download::marks`].
pub(super) const MARK: Duration = Duration::from_millis(100);

/// What a download got, by the time it was cut or complete.
#[derive(Clone, Debug, Default)]
pub(super) struct Download {
    pub(super) bytes: u64,
    /// From before the connection was opened to the last byte, or to the limit.
    pub(super) took: Duration,
    pub(super) is_complete: bool,
    /// Bytes in each interval, from before the connection was opened.
    pub(super) marks: Vec<u64>,
}

impl Download {
    /// Goodput in Mbit/s.
    pub(super) fn mbit(&self) -> f64 {
        self.bytes as f64 * 8.0 / 1e6 / self.took.as_secs_f64()
    }

    /// Goodput in Mbit/s between two times, which are multiples of the interval.
    pub(super) fn mbit_between(&self, from: Duration, until: Duration) -> f64 {
        let place = |time: Duration| (time.as_millis() / MARK.as_millis()) as usize;
        let marks = self.marks.iter().take(place(until)).skip(place(from));
        marks.sum::<u64>() as f64 * 8.0 / 1e6 / (until - from).as_secs_f64()
    }
}

/// A connection to a server, for requests one after another.
pub(super) struct Client {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Client {
    /// Opens a connection from a namespace.
    pub(super) fn open(
        namespace: &Namespace,
        server: SocketAddr,
        limit: Duration,
    ) -> Result<Client, Failure> {
        let stream = inside(namespace, || TcpStream::connect_timeout(&server, limit))?;
        stream.set_nodelay(true)?;
        Ok(Client { stream, buffer: vec![0; 256 << 10] })
    }

    pub(super) fn port(&self) -> Result<u16, Failure> {
        Ok(self.stream.local_addr()?.port())
    }

    /// Requests a file of that length, and reads it until `limit` after `begun`.
    pub(super) fn get(
        &mut self,
        length: usize,
        begun: Instant,
        limit: Duration,
    ) -> Result<Download, Failure> {
        let request = format!("GET /{length} HTTP/1.1\r\nHost: lightwait\r\n\r\n");
        self.stream.write_all(request.as_bytes())?;
        let (mut head, mut found) = (Some(Vec::new()), Download::default());
        while found.bytes < length as u64 {
            let left = limit.saturating_sub(begun.elapsed());
            let count = match self.read(left)? {
                Some(0) => return Err("the server ended the connection".into()),
                Some(count) => count,
                None => break,
            };
            let text = match &mut head {
                None => count,
                Some(kept) => match text_after(kept, &self.buffer[..count], length)? {
                    Some(text) => {
                        head = None;
                        text
                    }
                    None => 0,
                },
            };
            found.bytes += text as u64;
            let place = (begun.elapsed().as_millis() / MARK.as_millis()) as usize;
            if found.marks.len() <= place {
                found.marks.resize(place + 1, 0);
            }
            found.marks[place] += text as u64;
        }
        found.is_complete = found.bytes == length as u64;
        found.took = begun.elapsed();
        Ok(found)
    }

    /// Reads what is there, within that time; `None` if nothing comes.
    fn read(&mut self, within: Duration) -> io::Result<Option<usize>> {
        if within.is_zero() {
            return Ok(None);
        }
        self.stream.set_read_timeout(Some(within))?;
        match self.stream.read(&mut self.buffer) {
            Ok(count) => Ok(Some(count)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Downloads a file over a connection of its own, for that time at most.
pub(super) fn download(
    namespace: &Namespace,
    server: SocketAddr,
    length: usize,
    limit: Duration,
) -> Result<Download, Failure> {
    let begun = Instant::now();
    Client::open(namespace, server, limit)?.get(length, begun, limit)
}

/// Adds to an answer's head. Returns the bytes of text after it, once it is whole.
fn text_after(head: &mut Vec<u8>, more: &[u8], length: usize) -> Result<Option<usize>, Failure> {
    let before = head.len();
    head.extend_from_slice(more);
    let Some(place) = head.windows(4).position(|four| four == b"\r\n\r\n") else {
        return Ok(None);
    };
    let whole = String::from_utf8_lossy(&head[..place]).to_lowercase();
    let told = whole.lines().find_map(|line| line.strip_prefix("content-length:"));
    if !whole.starts_with("http/1.1 200") || told.map(str::trim) != Some(&length.to_string()) {
        return Err(format!("an answer of another file: {whole}").into());
    }
    Ok(Some(before + more.len() - place - 4))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_counted_from_behind_its_head() {
        let mut head = Vec::new();
        assert_eq!(text_after(&mut head, b"HTTP/1.1 200 OK\r\nContent-", 5).unwrap(), None);
        assert_eq!(text_after(&mut head, b"Length: 5\r\n\r\nxxx", 5).unwrap(), Some(3));
        let other = b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\n";
        assert!(text_after(&mut Vec::new(), other, 5).is_err());
        assert!(text_after(&mut Vec::new(), b"HTTP/1.1 404 no\r\n\r\n", 5).is_err());
    }

    #[test]
    fn goodput_is_that_of_the_chosen_intervals() {
        let marks = vec![0, 125_000, 250_000, 0];
        let found = Download { marks, ..Download::default() };
        let between = |from, until| {
            found.mbit_between(Duration::from_millis(from), Duration::from_millis(until))
        };
        assert_eq!([between(0, 100), between(100, 200), between(100, 300)], [0.0, 10.0, 15.0]);
        assert_eq!(between(400, 500), 0.0);
    }
}
