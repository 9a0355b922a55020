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
use crate::wire::checksum::{Sum, append_and_sum, pseudo_header, sum, update};
use crate::wire::ip::{self, Fragment};
use crate::wire::udp::{CHECKSUM_OFFSET, HEADER_BYTES, Header, PROTOCOL};
use crate::wire::{ethernet, ipv6, udp};

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

/// What has left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sent {
    /// Frames, and how many of them were fragments.
    pub frames: usize,
    pub fragments: usize,
    /// Datagrams that are complete; those that the device cuts from one are one.
    pub datagrams: usize,
    /// Packets, counted as the device cuts them.
    pub packets: usize,
    /// All of the last entry has left.
    pub all: bool,
}

/// The way out of the entries of a socket that go to one host.
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
        let mut sent = Sent { all: true, ..Sent::default() };
        let Some(Entry { meta, .. }) = socket.outgoing.front() else { return sent };
        let mut meta = *meta;
        let mut template = Template::new(self.path, &meta);
        while let Some(entry) = socket.outgoing.front()
            && sent.all
            && sent.packets < self.budget
        {
            if entry.meta != meta {
                if !entry.meta.ends.has_addresses_of(&meta.ends) {
                    break;
                }
                meta = entry.meta;
                template = Template::new(self.path, &meta);
            }
            let len = entry.len;
            self.send_entry(socket, &template, &mut sent);
            if sent.all {
                socket.outgoing.consume(pool, len);
                socket.progress = Progress::default();
            }
        }
        sent
    }

    /// Sends as much as may be of the oldest entry.
    fn send_entry(&mut self, socket: &mut Socket, template: &Template, sent: &mut Sent) {
        let Socket { outgoing: queue, progress, .. } = socket;
        let Some(entry) = queue.front() else { return };
        let mut largest = 0;
        sent.all = false;
        while !sent.all && self.outbox.room() > 0 && sent.packets < self.budget {
            let one = (entry.len - progress.done).min(entry.segment);
            // A datagram that was begun in fragments is ended in fragments, though the path may
            // carry it whole by now.
            let packet = if progress.in_fragments > 0 || self.is_too_large(entry, one) {
                self.push_fragment(queue, entry, progress, one, sent)
            } else {
                self.push_whole(queue, entry, template, progress, sent)
            };
            largest = largest.max(packet);
            sent.all = progress.done >= entry.len && progress.in_fragments == 0;
        }
        if largest > SMALL_PACKET {
            let hash = self.hasher.hash(&entry.meta.ends);
            socket.note_sent(hash, largest);
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

    /// Pushes a frame with the next datagram, or several. Returns the bytes of its packets.
    fn push_whole(
        &mut self,
        queue: &Queue<Departure>,
        entry: &Entry<Departure>,
        template: &Template,
        progress: &mut Progress,
        sent: &mut Sent,
    ) -> usize {
        let len = self.payload_of_frame(entry, progress.done);
        let id = if template.may_be_cut { self.identifications.next(&entry.meta.ends) } else { 0 };
        let Some(frame) = self.outbox.push() else { return 0 };
        let is_partial = self.path.device.checksum;
        let sum = template.write(frame, len, id as u16, is_partial);
        let (head, mut total) = (&mut frame.head, sum);
        if is_partial {
            queue.visit(progress.done, len, |piece| head.extend_from_slice(piece));
        } else {
            queue.visit(progress.done, len, |piece| {
                total = total.then(append_and_sum(head, piece));
            });
            template.complete(head, total);
        }
        if len > entry.segment {
            frame.segmentation = Some(Segmentation {
                size: entry.segment as u16,
                header_len: (template.udp + HEADER_BYTES) as u16,
                ipv6: self.path.source.is_ipv6(),
                datagrams: true,
            });
        }
        progress.done += len;
        sent.frames += 1;
        sent.datagrams += 1;
        sent.packets += if len > entry.segment { len.div_ceil(entry.segment) } else { 1 };
        self.packet_bytes(len.min(entry.segment))
    }

    /// Pushes the next fragment of the next datagram, of `payload` bytes. Returns the bytes of its
    /// packet.
    fn push_fragment(
        &mut self,
        queue: &Queue<Departure>,
        entry: &Entry<Departure>,
        progress: &mut Progress,
        payload: usize,
        sent: &mut Sent,
    ) -> usize {
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
        let Some(frame) = self.outbox.push() else { return 0 };
        let mut header = header_of(&marked, end - begin);
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
        header.header_len() + end - begin
    }
}

/// The headers of a run of datagrams, all but what their lengths decide.
#[derive(Debug)]
struct Template {
    head: [u8; HEAD_BYTES_MAX],
    /// Where the IP header and the UDP header begin.
    ip: usize,
    udp: usize,
    ipv4: bool,
    /// The sum of the pseudo-header without the length, and that of both ports.
    pseudo: Sum,
    ports: Sum,
    /// Routers may cut the packets.
    may_be_cut: bool,
}

/// Bytes of an Ethernet header, the larger IP header and a UDP header.
const HEAD_BYTES_MAX: usize = ethernet::HEADER_BYTES + ipv6::HEADER_BYTES + HEADER_BYTES;

impl Template {
    fn new(path: &Path, departure: &Departure) -> Template {
        let marked = marked(path, departure);
        let mut frame = Frame::default();
        write_link(&mut frame, path);
        let ip = frame.head.len();
        header_of(&marked, 0).emit(&mut frame.head);
        let udp = frame.head.len();
        header_between(&departure.ends, 0).emit(0, &mut frame.head);
        let mut head = [0; HEAD_BYTES_MAX];
        head[..frame.head.len()].copy_from_slice(&frame.head);
        Template {
            head,
            ip,
            udp,
            ipv4: path.source.is_ipv4(),
            pseudo: pseudo_header(path.source, path.destination, PROTOCOL, 0),
            ports: sum(&head[udp..udp + HEADER_BYTES]),
            may_be_cut: !marked.dont_fragment,
        }
    }

    /// Writes the headers before `len` bytes, which fit in their length fields. Returns the sum of
    /// all that the checksum covers but these bytes; if the device completes it, nothing of use.
    fn write(&self, frame: &mut Frame, len: usize, id: u16, is_partial: bool) -> Sum {
        let datagram = (HEADER_BYTES + len) as u16;
        frame.head.extend_from_slice(&self.head[..self.udp + HEADER_BYTES]);
        let head = &mut frame.head[..];
        let mut put = |at: usize, value: u16| {
            head[at..at + 2].copy_from_slice(&value.to_be_bytes());
        };
        if self.ipv4 {
            let header = ip::MIN_IPV4_HEADER_BYTES as u16;
            let checksum = u16::from_be_bytes([self.head[self.ip + 10], self.head[self.ip + 11]]);
            put(self.ip + 2, header + datagram);
            put(self.ip + 4, id);
            put(self.ip + 10, update(update(checksum, header, header + datagram), 0, id));
        } else {
            put(self.ip + 4, datagram);
        }
        put(self.udp + 4, datagram);
        let pseudo = self.pseudo.then_u16(datagram);
        if is_partial {
            put(self.udp + CHECKSUM_OFFSET, pseudo.fold());
            let (start, offset) = (self.udp as u16, CHECKSUM_OFFSET as u16);
            frame.checksum = TxChecksum::Partial { start, offset };
        }
        pseudo.then(self.ports).then_u16(datagram)
    }

    /// Fills in the checksum, of this sum.
    fn complete(&self, head: &mut [u8], total: Sum) {
        let checksum = udp::checksum_of(total).to_be_bytes();
        head[self.udp + CHECKSUM_OFFSET..][..2].copy_from_slice(&checksum);
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

/// The IP header of a packet with so many bytes behind it, which fit in its length field.
fn header_of(path: &PacketPath<'_>, len: usize) -> ip::Header {
    let mut header = ip::Header::new(path.base.source, path.base.destination, PROTOCOL, len)
        .expect("a path has addresses of one version, and a fragment is no longer than its MTU");
    header.traffic_class = path.traffic_class;
    header.hop_limit = path.hop_limit;
    header.dont_fragment = path.dont_fragment;
    header
}

fn write_link(frame: &mut Frame, path: &Path) {
    if let Some(link) = &path.link {
        link.emit(&mut frame.head);
    }
}
