//! Where datagrams leave: from the outgoing queue to frames in the outbox.
//!
//! ```text
//!   one entry   │ datagram │ datagram │ dat… │
//!                fits in the path's MTU ─▶ a frame
//!                the device cuts        ─▶ a frame of many, of 64 KiB at most
//!                larger than the MTU    ─▶ fragments (RFC 791 §3.2, RFC 8200 §4.5)
//! ```
//!
//! What found no room goes on where it stopped, in the middle of a datagram if need be.

use alloc::boxed::Box;

use super::SEGMENTS_MAX;
use super::queue::{Entry, Queue};
use super::socket::{Departure, Progress, Socket};
use crate::buffer::PagePool;
use crate::config::Config;
use crate::flow::keyed::KeyedHash;
use crate::flow::{Tuple, TupleHasher};
use crate::frame::{Frame, Outbox, Segmentation, TxChecksum};
use crate::ip::path::{PacketPath, Path};
use crate::wire::checksum::{Sum, append_and_sum, sum};
use crate::wire::ip::{self, Fragment};
use crate::wire::udp::{CHECKSUM_OFFSET, HEADER_BYTES, Header, PROTOCOL};
use crate::wire::{ipv6, udp};

/// The largest IP packet there is.
const PACKET_BYTES_MAX: usize = 65_535;

/// The largest packet that any path carries: none is said to be too big.
const SMALL_PACKET: usize = ipv6::MIN_MTU as usize / 2;

/// Counters of identifications; a power of two.
const COUNTERS: usize = 256;

/// The identifications of packets that are sent in fragments, or that a router may cut: the same
/// comes again to one destination after all others (RFC 6864 §4.3), and tells a stranger nothing of
/// what others are sent (RFC 7739 §5.3).
#[derive(Debug)]
pub(crate) struct Identifications {
    hash: KeyedHash,
    counters: Box<[u32; COUNTERS]>,
    /// Each shard of a host has the numbers that leave its index when divided by their number.
    index: u32,
    of: u32,
}

impl Identifications {
    pub(crate) fn new(config: &Config) -> Self {
        let hash = KeyedHash::new(&config.secret, "identifications");
        let (index, of) = (config.member.index.into(), config.member.of.into());
        Identifications { hash, counters: Box::new([0; COUNTERS]), index, of }
    }

    /// The next one of a packet between these addresses.
    fn next(&mut self, ends: &Tuple) -> u32 {
        let addresses = Tuple::new((ends.local_ip(), 0), (ends.remote_ip(), 0));
        let hash = self.hash.of_tuple(&addresses);
        let counter = &mut self.counters[hash as usize % COUNTERS];
        *counter = counter.wrapping_add(1);
        let place = ((hash >> 32) as u32).wrapping_add(*counter);
        place.wrapping_mul(self.of).wrapping_add(self.index)
    }
}

/// What has left of an entry, or of several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sent {
    /// Frames, and how many of them were fragments.
    pub frames: usize,
    pub fragments: usize,
    /// Datagrams that are complete; those that the device cuts from one are one.
    pub datagrams: usize,
    /// Packets, counted as the device cuts them.
    pub packets: usize,
    /// Bytes of the largest packet.
    pub largest: usize,
    /// All of the last entry has left.
    pub all: bool,
}

impl Sent {
    /// Adds what has left of the next entry.
    fn add(&mut self, next: Sent) {
        self.frames += next.frames;
        self.fragments += next.fragments;
        self.datagrams += next.datagrams;
        self.packets += next.packets;
        self.all = next.all;
    }
}

/// The way out of one entry of a queue.
#[derive(Debug)]
pub(crate) struct Egress<'a> {
    pub path: &'a Path,
    /// The largest packet that need not be cut: the path's MTU, or any to ourselves.
    pub mtu: usize,
    pub outbox: &'a mut Outbox,
    /// Packets that may still leave in this turn.
    pub budget: usize,
    pub identifications: &'a mut Identifications,
    pub hasher: &'a TupleHasher,
}

impl Egress<'_> {
    /// Sends as much as may be of what the socket has for this path, oldest first.
    pub(crate) fn send(&mut self, socket: &mut Socket, pool: &mut PagePool) -> Sent {
        let mut total = Sent { all: true, ..Sent::default() };
        while total.all && self.budget > 0 {
            let Some(Entry { meta, len, .. }) = socket.outgoing.front() else { break };
            let (ends, len) = (meta.ends, *len);
            if (ends.local_ip(), ends.remote_ip()) != (self.path.source, self.path.destination) {
                break;
            }
            let sent = self.send_entry(&socket.outgoing, &mut socket.progress);
            if sent.largest > SMALL_PACKET {
                socket.note_sent(self.hasher.hash(&ends), sent.largest);
            }
            if sent.all {
                socket.outgoing.consume(pool, len);
                socket.progress = Progress::default();
            }
            self.budget = self.budget.saturating_sub(sent.packets);
            total.add(sent);
        }
        total
    }

    /// Sends as much as may be of the oldest entry.
    fn send_entry(&mut self, queue: &Queue<Departure>, progress: &mut Progress) -> Sent {
        let mut sent = Sent::default();
        let Some(entry) = queue.front() else { return sent };
        loop {
            if self.outbox.room() == 0 || sent.packets >= self.budget {
                return sent;
            }
            let left = entry.len - progress.done;
            let one = left.min(entry.segment);
            let is_written = if self.is_too_large(entry, one) {
                self.push_fragment(queue, entry, progress, one, &mut sent)
            } else {
                self.push_whole(queue, entry, progress, &mut sent)
            };
            if !is_written || progress.done >= entry.len && progress.in_fragments == 0 {
                sent.all = true;
                return sent;
            }
        }
    }

    /// Bytes of a packet with a datagram of `payload` bytes.
    fn packet_bytes(&self, payload: usize) -> usize {
        ip::header_len(self.path.source) + HEADER_BYTES + payload
    }

    fn is_too_large(&self, entry: &Entry<Departure>, payload: usize) -> bool {
        !entry.meta.dont_fragment && self.packet_bytes(payload) > self.mtu
    }

    /// Payload of the next frame: of one datagram, or of as many as the device will cut.
    fn payload_of_frame(&self, entry: &Entry<Departure>, done: usize) -> usize {
        let left = entry.len - done;
        let one = left.min(entry.segment);
        let device = &self.path.device;
        if left == one || !device.checksum || device.datagrams == 0 {
            return one;
        }
        let most = PACKET_BYTES_MAX.min(device.datagrams as usize);
        let most = most.saturating_sub(self.packet_bytes(0)).min(entry.segment * SEGMENTS_MAX);
        left.min((most / entry.segment).max(1) * entry.segment)
    }

    /// Pushes a frame with the next datagram, or several. False if it cannot be written.
    fn push_whole(
        &mut self,
        queue: &Queue<Departure>,
        entry: &Entry<Departure>,
        progress: &mut Progress,
        sent: &mut Sent,
    ) -> bool {
        let len = self.payload_of_frame(entry, progress.done);
        let marked = marked(self.path, &entry.meta);
        let id = if marked.dont_fragment { 0 } else { self.identifications.next(&entry.meta.ends) };
        let Some(frame) = self.outbox.push() else { return true };
        let whole = Whole { ports: entry.meta.ends, offset: progress.done, len, id };
        if !whole.write(frame, &marked, queue, entry.segment) {
            self.outbox.unpush();
            return false;
        }
        let one = len.min(entry.segment);
        progress.done += len;
        sent.frames += 1;
        sent.datagrams += 1;
        sent.packets += if len > entry.segment { len.div_ceil(entry.segment) } else { 1 };
        sent.largest = sent.largest.max(self.packet_bytes(one));
        true
    }

    /// Pushes the next fragment of the next datagram, of `payload` bytes. False if it cannot be
    /// written.
    fn push_fragment(
        &mut self,
        queue: &Queue<Departure>,
        entry: &Entry<Departure>,
        progress: &mut Progress,
        payload: usize,
        sent: &mut Sent,
    ) -> bool {
        if progress.in_fragments == 0 {
            progress.id = self.identifications.next(&entry.meta.ends);
        }
        let (begin, all) = (progress.in_fragments, HEADER_BYTES + payload);
        let extension = if self.path.source.is_ipv6() { ipv6::FRAGMENT_BYTES } else { 0 };
        let room = self.mtu - ip::header_len(self.path.source) - extension;
        let end = (begin + (room & !7)).min(all);
        let fragment = Fragment { id: progress.id, offset: begin as u16, more: end < all };
        let mut marked = marked(self.path, &entry.meta);
        // A fragment may be cut further on its way (RFC 791 §3.2).
        marked.dont_fragment = false;
        let Some(frame) = self.outbox.push() else { return true };
        let Some(mut header) = header_of(&marked, end - begin) else {
            self.outbox.unpush();
            return false;
        };
        header.fragment = Some(fragment);
        write_link(frame, self.path);
        header.emit(&mut frame.head);
        if begin == 0 {
            let mut total = Sum::ZERO;
            queue.visit(progress.done, payload, |piece| total = total.then(sum(piece)));
            let udp = header_between(&entry.meta.ends, all);
            let checksum = udp.checksum(self.path.source, self.path.destination, total);
            udp.emit(checksum, &mut frame.head);
        }
        let from = begin.max(HEADER_BYTES) - HEADER_BYTES;
        queue.visit(progress.done + from, end - HEADER_BYTES - from, |piece| {
            frame.head.extend_from_slice(piece);
        });
        sent.largest = sent.largest.max(header.header_len() + end - begin);
        sent.frames += 1;
        sent.fragments += 1;
        sent.packets += 1;
        if end < all {
            progress.in_fragments = end;
        } else {
            progress.in_fragments = 0;
            progress.done += payload;
            sent.datagrams += 1;
        }
        true
    }
}

/// A frame of one datagram, or of several that the device cuts.
struct Whole {
    ports: Tuple,
    /// Where its payload is in the entry.
    offset: usize,
    len: usize,
    id: u32,
}

impl Whole {
    /// Writes it. False if it is too long for its length fields.
    fn write(
        &self,
        frame: &mut Frame,
        path: &PacketPath<'_>,
        queue: &Queue<Departure>,
        segment: usize,
    ) -> bool {
        let base = path.base;
        let Some(mut header) = header_of(path, HEADER_BYTES + self.len) else { return false };
        header.identification = self.id as u16;
        write_link(frame, base);
        header.emit(&mut frame.head);
        let (start, udp) = (frame.head.len(), header_between(&self.ports, HEADER_BYTES + self.len));
        if base.device.checksum {
            udp.emit(udp.partial_checksum(base.source, base.destination), &mut frame.head);
            let offset = CHECKSUM_OFFSET as u16;
            frame.checksum = TxChecksum::Partial { start: start as u16, offset };
            if self.len > segment {
                frame.segmentation = Some(Segmentation {
                    size: segment as u16,
                    header_len: frame.head.len() as u16,
                    ipv6: base.source.is_ipv6(),
                    datagrams: true,
                });
            }
            let head = &mut frame.head;
            queue.visit(self.offset, self.len, |piece| head.extend_from_slice(piece));
            return true;
        }
        udp.emit(0, &mut frame.head);
        let (head, mut total) = (&mut frame.head, Sum::ZERO);
        queue.visit(self.offset, self.len, |piece| total = total.then(append_and_sum(head, piece)));
        let checksum = udp.checksum(base.source, base.destination, total);
        head[start + CHECKSUM_OFFSET..][..2].copy_from_slice(&checksum.to_be_bytes());
        true
    }
}

/// The UDP header of a datagram of `len` bytes, header included, which fit in its length field.
fn header_between(ends: &Tuple, len: usize) -> udp::Header {
    Header { source_port: ends.local_port(), destination_port: ends.remote_port(), len: len as u16 }
}

/// The path of a datagram's packets.
fn marked<'a>(path: &'a Path, departure: &Departure) -> PacketPath<'a> {
    let mut marked = path.marked(departure.fields);
    marked.dont_fragment |= departure.dont_fragment;
    marked
}

/// The IP header of a packet with so many bytes behind it.
fn header_of(path: &PacketPath<'_>, len: usize) -> Option<ip::Header> {
    let mut header = ip::Header::new(path.base.source, path.base.destination, PROTOCOL, len)?;
    header.traffic_class = path.traffic_class;
    header.hop_limit = path.hop_limit;
    header.dont_fragment = path.dont_fragment;
    Some(header)
}

fn write_link(frame: &mut Frame, path: &Path) {
    if let Some(link) = &path.link {
        link.emit(&mut frame.head);
    }
}
