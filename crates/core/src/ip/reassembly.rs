//! Putting fragments together (RFC 791 §3.2, RFC 1122 §3.3.2, RFC 8200 §4.5).
//!
//! What we send is never fragmented, and what is sent to us hardly ever; so this is small and
//! strict. Bounds on packets, bytes, fragments and time hold whatever arrives. A fragment that
//! overlaps another ends its packet in both versions (RFC 5722), and what still arrives of it is
//! dropped until its time is over; only an exact copy, which networks make, is let pass.
//!
//! ```text
//!   fragments, by where they start:   0..1480 │ 1480..2960 │      ?      │ 4440..5000 (the last)
//! ```
//!
//! The result is a whole packet, without the options or extension headers that its fragments had,
//! to be parsed like any other.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::IpAddr;

use crate::time::{Duration, Instant};
use crate::wire::icmpv6;
use crate::wire::ip::{Fragment, Header, Packet};

/// How long a packet's fragments may take, from the first that arrived (RFC 8200 §4.5; RFC 1122
/// §3.3.2 allows 60 to 120 s).
pub(crate) const LIFETIME: Duration = Duration::from_secs(60);

/// Fragments of one packet: enough for 64 KiB in packets of 576 bytes.
pub(crate) const MAX_FRAGMENTS: usize = 128;

/// Packets in the making at most, whatever is configured: they are searched one by one.
pub(crate) const MAX_PACKETS: usize = 64;

/// Room for what an error message quotes of a first fragment.
const QUOTED_BYTES: usize = icmpv6::MAX_QUOTED_BYTES;

/// The outcome of a fragment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Others are missing.
    Pending,
    /// It was the last one missing: here is the packet, header and all. A packet that turns out to
    /// be a fragment once more is not to be handed in again.
    Complete(Vec<u8>),
    /// It was dropped, and with it perhaps the whole packet.
    Dropped(Reason),
}

/// Why a fragment was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// It was not a fragment.
    Whole,
    /// It is an exact copy of one that is there.
    Copy,
    /// It overlaps one that is there, or contradicts where the packet ends.
    Overlap,
    /// It belongs to a packet that was given up.
    Abandoned,
    /// The packet has too many.
    TooMany,
    /// There is no room for so many bytes.
    Bytes,
    /// Some fragments were marked for congestion and others said that marking means nothing
    /// (RFC 3168 §5.3).
    Ecn,
}

/// A packet whose fragments did not all arrive in time, although the first did: its sender gets an
/// error (time exceeded, code 1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Expired {
    /// The packet's sender.
    pub source: IpAddr,
    /// The address of ours that it was sent to.
    pub destination: IpAddr,
    /// The beginning of the first fragment, to be quoted.
    pub quoted: Vec<u8>,
}

/// Fragments of one packet share these (RFC 791 §3.2; IPv6 leaves out the protocol).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Key {
    source: IpAddr,
    destination: IpAddr,
    id: u32,
    /// IPv4's protocol; of IPv6 always 0.
    protocol: u8,
}

#[derive(Debug)]
struct Piece {
    start: u32,
    bytes: Vec<u8>,
}

impl Piece {
    fn end(&self) -> u32 {
        self.start + self.bytes.len() as u32
    }
}

/// The header fields of the result, from the first fragment.
#[derive(Clone, Copy, Debug)]
struct First {
    protocol: u8,
    hop_limit: u8,
    traffic_class: u8,
}

/// One packet in the making.
#[derive(Debug)]
struct Assembly {
    key: Key,
    until: Instant,
    /// In order, without overlaps.
    pieces: Vec<Piece>,
    /// The sum of their lengths, and of the quotation's.
    bytes: usize,
    /// The end of the packet, once the last fragment has said so.
    end: Option<u32>,
    first: Option<First>,
    quoted: Vec<u8>,
    /// Bit n: a fragment with ECN codepoint n has arrived.
    ecn_seen: u8,
    /// It was given up: what still arrives is dropped.
    abandoned: bool,
}

/// The packets in the making of one host.
#[derive(Debug)]
pub(crate) struct Reassembly {
    /// In the order in which they began, which is that of their ends.
    assemblies: VecDeque<Assembly>,
    limit: usize,
    bytes: usize,
    bytes_limit: usize,
    expired: VecDeque<Expired>,
    /// Packets that made room for others, and were not counted yet.
    evicted: u64,
}

impl Reassembly {
    /// At most `packets` packets in the making (and at most [`MAX_PACKETS`]), with at most
    /// `bytes_limit` bytes in all of them.
    pub(crate) fn new(packets: usize, bytes_limit: usize) -> Self {
        Reassembly {
            assemblies: VecDeque::new(),
            limit: packets.clamp(1, MAX_PACKETS),
            bytes: 0,
            bytes_limit,
            expired: VecDeque::new(),
            evicted: 0,
        }
    }

    /// How many packets have made room for others since the last call.
    pub(crate) fn take_evicted(&mut self) -> u64 {
        core::mem::take(&mut self.evicted)
    }

    /// Takes in a fragment.
    pub(crate) fn on_fragment(&mut self, now: Instant, packet: &Packet<'_>) -> Outcome {
        let Some(fragment) = packet.fragment else { return Outcome::Dropped(Reason::Whole) };
        self.on_time(now);
        let key = Key {
            source: packet.source,
            destination: packet.destination,
            id: fragment.id,
            protocol: if packet.source.is_ipv4() { packet.protocol } else { 0 },
        };
        let found = self.assemblies.iter().position(|assembly| assembly.key == key);
        let at = found.unwrap_or_else(|| self.begin(now, key));
        let before = self.assemblies[at].bytes;
        let outcome = self.assemblies[at].take(packet, fragment);
        self.bytes = self.bytes - before + self.assemblies[at].bytes;
        match outcome {
            Err(Reason::Copy) => Outcome::Dropped(Reason::Copy),
            Err(Reason::Abandoned) => Outcome::Dropped(Reason::Abandoned),
            Err(reason) => self.abandon(at, reason),
            Ok(()) if self.bytes > self.bytes_limit && !self.make_room(&key) => {
                Outcome::Dropped(Reason::Bytes)
            }
            Ok(()) => self.complete(&key),
        }
    }

    /// Gives up what has not arrived by `now`.
    pub(crate) fn on_time(&mut self, now: Instant) {
        while self.assemblies.front().is_some_and(|assembly| assembly.until <= now) {
            let Some(assembly) = self.pop() else { return };
            if assembly.abandoned {
                continue;
            }
            if assembly.first.is_some() && self.expired.len() < self.limit {
                let Key { source, destination, .. } = assembly.key;
                self.expired.push_back(Expired { source, destination, quoted: assembly.quoted });
            }
        }
    }

    /// When [`Reassembly::on_time`] next has something to do.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.assemblies.front().map(|assembly| assembly.until)
    }

    /// True if [`Reassembly::expired`] has something.
    pub(crate) fn has_expired(&self) -> bool {
        !self.expired.is_empty()
    }

    /// The next packet that ran out of time and whose sender gets an error.
    pub(crate) fn expired(&mut self) -> Option<Expired> {
        self.expired.pop_front()
    }

    /// A new packet's place, the oldest one's if all are taken.
    fn begin(&mut self, now: Instant, key: Key) -> usize {
        if self.assemblies.len() >= self.limit {
            self.evict(&key);
        }
        self.assemblies.push_back(Assembly::new(key, now + LIFETIME));
        self.assemblies.len() - 1
    }

    /// Drops the oldest for the packet with that key, whose own end is told by its outcome. One
    /// that was given up is counted already.
    fn evict(&mut self, key: &Key) {
        let oldest = self.pop();
        let is_lost = |oldest: &Assembly| !oldest.abandoned && oldest.key != *key;
        self.evicted += u64::from(oldest.as_ref().is_some_and(is_lost));
    }

    fn pop(&mut self) -> Option<Assembly> {
        let assembly = self.assemblies.pop_front()?;
        self.bytes -= assembly.bytes;
        Some(assembly)
    }

    /// Evicts the oldest until the bytes are within their bound; false if the packet itself is gone
    /// by then.
    fn make_room(&mut self, key: &Key) -> bool {
        while self.bytes > self.bytes_limit {
            self.evict(key);
        }
        self.assemblies.iter().any(|assembly| assembly.key == *key)
    }

    fn abandon(&mut self, at: usize, reason: Reason) -> Outcome {
        let assembly = &mut self.assemblies[at];
        self.bytes -= assembly.bytes;
        let (key, until) = (assembly.key, assembly.until);
        *assembly = Assembly { abandoned: true, ..Assembly::new(key, until) };
        Outcome::Dropped(reason)
    }

    /// The packet, if nothing of it is missing.
    fn complete(&mut self, key: &Key) -> Outcome {
        let found = self.assemblies.iter().position(|assembly| assembly.key == *key);
        let Some(at) = found.filter(|at| self.assemblies[*at].is_complete()) else {
            return Outcome::Pending;
        };
        let assembly = &self.assemblies[at];
        match assembly.build() {
            Ok(packet) => {
                self.bytes -= assembly.bytes;
                self.assemblies.remove(at);
                Outcome::Complete(packet)
            }
            Err(reason) => self.abandon(at, reason),
        }
    }
}

impl Assembly {
    fn new(key: Key, until: Instant) -> Self {
        Assembly {
            key,
            until,
            pieces: Vec::new(),
            bytes: 0,
            end: None,
            first: None,
            quoted: Vec::new(),
            ecn_seen: 0,
            abandoned: false,
        }
    }

    fn take(&mut self, packet: &Packet<'_>, fragment: Fragment) -> Result<(), Reason> {
        if self.abandoned {
            return Err(Reason::Abandoned);
        }
        let start = u32::from(fragment.offset);
        let end = start + packet.payload.len() as u32;
        let place = self.pieces.partition_point(|piece| piece.start < start);
        self.check(place, start, end, fragment.more, packet.payload)?;
        if !fragment.more {
            self.end = Some(end);
        }
        if start == 0 {
            self.first = Some(First {
                protocol: packet.protocol,
                hop_limit: packet.hop_limit,
                traffic_class: packet.traffic_class,
            });
            self.quoted = packet.bytes[..packet.bytes.len().min(QUOTED_BYTES)].to_vec();
            self.bytes += self.quoted.len();
        }
        self.ecn_seen |= 1 << (packet.traffic_class & 3);
        self.bytes += packet.payload.len();
        self.pieces.insert(place, Piece { start, bytes: packet.payload.to_vec() });
        Ok(())
    }

    /// Whether `start..end` fits at `place` among the pieces, and with what is known of the end.
    fn check(
        &self,
        place: usize,
        start: u32,
        end: u32,
        more: bool,
        payload: &[u8],
    ) -> Result<(), Reason> {
        let (before, after) =
            (place.checked_sub(1).map(|i| &self.pieces[i]), self.pieces.get(place));
        if after.is_some_and(|piece| piece.start == start && piece.bytes == payload)
            && more == (self.end != Some(end))
        {
            return Err(Reason::Copy);
        }
        let into_before = before.is_some_and(|piece| piece.end() > start);
        let into_after = after.is_some_and(|piece| piece.start < end || piece.start == start);
        let beyond = match (self.end, more) {
            (Some(known), true) => end > known,
            (Some(known), false) => end != known,
            (None, true) => false,
            (None, false) => self.pieces.last().is_some_and(|piece| piece.end() > end),
        };
        if into_before || into_after || beyond {
            return Err(Reason::Overlap);
        }
        if self.pieces.len() >= MAX_FRAGMENTS {
            return Err(Reason::TooMany);
        }
        Ok(())
    }

    /// Without overlaps, all is there when the lengths add up to the end.
    fn is_complete(&self) -> bool {
        let arrived: usize = self.bytes - self.quoted.len();
        self.end.is_some_and(|end| arrived == end as usize) && self.first.is_some()
    }

    fn build(&self) -> Result<Vec<u8>, Reason> {
        let first = self.first.ok_or(Reason::Abandoned)?;
        let len = self.bytes - self.quoted.len();
        let Key { source, destination, .. } = self.key;
        let header = Header::new(source, destination, first.protocol, len);
        let mut header = header.ok_or(Reason::Bytes)?;
        header.hop_limit = first.hop_limit;
        header.traffic_class = self.traffic_class(first.traffic_class)?;
        header.dont_fragment = false;
        let mut packet = Vec::with_capacity(header.header_len() + len);
        header.emit(&mut packet);
        for piece in &self.pieces {
            packet.extend_from_slice(&piece.bytes);
        }
        Ok(packet)
    }

    /// The first fragment's class, marked if any fragment was (RFC 3168 §5.3).
    fn traffic_class(&self, first: u8) -> Result<u8, Reason> {
        const NOT_ECT: u8 = 1;
        const CONGESTION: u8 = 1 << 3;
        match (self.ecn_seen & CONGESTION != 0, self.ecn_seen & NOT_ECT != 0) {
            (true, true) => Err(Reason::Ecn),
            (true, false) => Ok(first | 3),
            (false, _) => Ok(first),
        }
    }
}

#[cfg(test)]
mod tests;
