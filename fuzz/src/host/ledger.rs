//! The bytes written and read on every stream, counted apart from the hosts' own accounts.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use lightwait_core::Error;

/// The direction of a stream: from one end to the other.
pub(super) type Way = (SocketAddr, SocketAddr);

/// All streams.
#[derive(Debug)]
pub(super) struct Ledger {
    /// No frame was forged or damaged yet, so the bytes read must be the bytes written.
    pub(super) honest: bool,
    written: BTreeMap<Way, u64>,
    read: BTreeMap<Way, u64>,
    /// Directions that a second connection has used: bytes of the two cannot be told apart.
    reused: BTreeSet<Way>,
    opened: BTreeSet<Way>,
    /// Directions whose reader has got an error: after that the stream ends anywhere.
    failed: BTreeSet<Way>,
}

impl Default for Ledger {
    fn default() -> Self {
        Ledger {
            honest: true,
            written: BTreeMap::new(),
            read: BTreeMap::new(),
            reused: BTreeSet::new(),
            opened: BTreeSet::new(),
            failed: BTreeSet::new(),
        }
    }
}

/// The byte at `offset` of a stream.
fn pattern((from, to): Way, offset: u64) -> u8 {
    let seed = u64::from(from.port()).wrapping_mul(31) ^ u64::from(to.port()).wrapping_mul(7);
    (offset.wrapping_mul(167) ^ (offset >> 8) ^ seed) as u8
}

impl Ledger {
    /// Notes that a connection with these ends exists now, at the first end.
    pub(super) fn on_open(&mut self, way: Way) {
        if !self.opened.insert(way) {
            self.reused.insert(way);
            self.reused.insert((way.1, way.0));
        }
    }

    /// Checks what was read of a UDP socket: every datagram was sent as one byte over and over.
    pub(super) fn check_datagrams(&self, bytes: &[u8], segment: usize) {
        for datagram in bytes.chunks(segment.max(1)).filter(|_| self.honest) {
            let is_whole = datagram.iter().all(|byte| *byte == datagram[0]);
            assert!(is_whole, "a datagram that nobody sent: {datagram:?}");
        }
    }

    /// The next `len` bytes to write.
    pub(super) fn next_bytes(&self, way: Way, len: usize) -> Vec<u8> {
        let start = self.written.get(&way).copied().unwrap_or(0);
        (start..start + len as u64).map(|offset| pattern(way, offset)).collect()
    }

    /// Notes that the connection took `n` of them.
    pub(super) fn on_written(&mut self, way: Way, n: usize) {
        *self.written.entry(way).or_default() += n as u64;
    }

    /// Whether the streams between these ends can still be judged.
    fn is_judged(&self, way: Way) -> bool {
        self.honest && !self.reused.contains(&way)
    }

    /// Checks bytes that were read at the end of `way`. With `peeked` they stay unread.
    pub(super) fn on_read(&mut self, way: Way, bytes: &[u8], peeked: bool) {
        let start = self.read.get(&way).copied().unwrap_or(0);
        let end = start + bytes.len() as u64;
        if self.is_judged(way) {
            let written = self.written.get(&way).copied().unwrap_or(0);
            assert!(end <= written, "{way:?}: {end} bytes read, {written} written");
            for (offset, byte) in (start..).zip(bytes) {
                assert_eq!(*byte, pattern(way, offset), "{way:?}: wrong byte at {offset}");
            }
        }
        if !peeked {
            self.read.insert(way, end);
        }
    }

    /// Notes that the connection reported this to its user at the end of `way`.
    pub(super) fn on_error(&mut self, way: Way, error: Error) {
        use Error::{BrokenPipe, InvalidInput, NotConnected, WouldBlock};
        if !matches!(error, WouldBlock | BrokenPipe | NotConnected | InvalidInput(_)) {
            self.failed.insert(way);
        }
    }

    /// Checks the end of the stream, which the user has read.
    pub(super) fn on_end(&self, way: Way) {
        if self.is_judged(way) && !self.failed.contains(&way) {
            let (read, written) = (self.read.get(&way), self.written.get(&way));
            let count = |n: Option<&u64>| n.copied().unwrap_or(0);
            assert_eq!(count(read), count(written), "{way:?}: the stream ended early");
        }
    }

    /// The directions between two of these ends whose bytes have not all arrived, though nothing
    /// has failed.
    fn incomplete<'a>(&'a self, ways: &'a [Way]) -> impl Iterator<Item = (Way, u64, u64)> + 'a {
        let count = |of: &BTreeMap<Way, u64>, way| of.get(&way).copied().unwrap_or(0);
        let held = ways.iter().copied().filter(|way| ways.contains(&(way.1, way.0)));
        held.filter(|way| {
            let failed = self.failed.contains(way) || self.failed.contains(&(way.1, way.0));
            self.is_judged(*way) && !failed
        })
        .map(move |way| (way, count(&self.read, way), count(&self.written, way)))
        .filter(|(_, read, written)| read < written)
    }

    /// True if all data written between two of these ends has been read.
    pub(super) fn is_complete(&self, ways: &[Way]) -> bool {
        self.incomplete(ways).next().is_none()
    }

    /// Fails unless all data written between two of these ends has been read.
    pub(super) fn assert_complete(&self, ways: &[Way]) {
        if let Some((way, read, written)) = self.incomplete(ways).next() {
            panic!("{way:?}: {written} bytes written, {read} read, and nothing moves any more");
        }
    }
}
