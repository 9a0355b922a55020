//! Where segments leave: from a header and a range of the send buffer to a frame in the outbox.
//!
//! A frame whose checksum we must compute gets its payload summed and copied in. A frame whose
//! checksum is left to the device refers to the send buffer's own pages.

use alloc::vec::Vec;
use core::net::IpAddr;

use crate::frame::{Capabilities, Frame, Outbox, Segmentation, TxChecksum};
use crate::tcp::send::buffer::SendBuffer;
use crate::tcp::{Marks, Seq};
use crate::wire::checksum::{Sum, pseudo_header, sum};
use crate::wire::tcp::{CHECKSUM_OFFSET, Flags, Header, PROTOCOL, checksum};
use crate::wire::usual::{self, Envelope, Stamped, Text};
use crate::wire::{ethernet, ip};

/// Payload up to here is copied even when the device does the checksum: cheaper than sharing.
const COPY_BYTES: usize = 256;

/// The largest IP packet there is, and so the largest we hand to a device to cut.
const PACKET_BYTES_MAX: usize = 65_535;

/// How a packet gets to the other end.
#[derive(Clone, Copy, Debug)]
pub struct Path {
    /// Our address.
    pub source: IpAddr,
    /// The other end's.
    pub destination: IpAddr,
    /// The link header, on a medium that has one.
    pub link: Option<ethernet::Header>,
    /// The largest IP packet on the way.
    pub mtu: u16,
    /// IPv4's DF: off only on a path narrower than we care to go.
    pub dont_fragment: bool,
    /// TTL or hop limit, where a packet has none of its own.
    pub hop_limit: u8,
    /// What the device can do.
    pub device: Capabilities,
}

impl Path {
    /// The largest TCP payload and options together in one packet.
    pub fn mss(&self) -> u16 {
        let headers = ip::header_len(self.source) + 20;
        self.mtu.saturating_sub(headers as u16)
    }

    /// The same for packets with `marks`.
    #[inline]
    #[must_use]
    pub fn marked(&self, marks: Marks) -> Marked<'_> {
        Marked {
            path: self,
            dont_fragment: self.dont_fragment,
            hop_limit: marks.hop_limit.unwrap_or(self.hop_limit),
            traffic_class: marks.traffic_class,
        }
    }

    /// True if its packets are of the usual kind: IPv4, with checksums of our own.
    #[inline]
    pub fn is_usual(&self) -> bool {
        self.source.is_ipv4() && self.destination.is_ipv4() && !self.device.checksum
    }

    /// Payload bytes that may be handed to the device at once, in segments of `segment` bytes,
    /// under a TCP header of `header` bytes: a multiple of `segment`.
    pub fn large_payload(&self, header: usize, segment: usize) -> usize {
        if !self.device.checksum {
            return segment;
        }
        let packet = PACKET_BYTES_MAX.min(self.device.segmentation as usize);
        let payload = packet.saturating_sub(ip::header_len(self.source) + header);
        (payload / segment.max(1)).max(1) * segment
    }
}

/// A path, and what the IP headers of packets on it say besides the addresses.
#[derive(Clone, Copy, Debug)]
pub struct Marked<'a> {
    /// The path.
    pub path: &'a Path,
    /// IPv4's DF.
    pub dont_fragment: bool,
    /// TTL or hop limit.
    pub hop_limit: u8,
    /// DSCP and ECN.
    pub traffic_class: u8,
}

impl Marked<'_> {
    /// The envelope of a segment that begins at `seq`, from `port`, if it is of the usual kind.
    #[inline]
    fn envelope(&self, seq: Seq, port: u16) -> Option<Envelope> {
        let &Marked { path, dont_fragment, hop_limit, traffic_class } = self;
        let (IpAddr::V4(source), IpAddr::V4(destination)) = (path.source, path.destination) else {
            return None;
        };
        let identification = if dont_fragment { 0 } else { identification(seq, port) };
        (!path.device.checksum).then_some(Envelope {
            source,
            destination,
            traffic_class,
            hop_limit,
            identification,
            dont_fragment,
        })
    }
}

/// The payload of a segment.
#[derive(Clone, Copy, Debug)]
pub struct Payload<'a> {
    /// Where the bytes are.
    pub buffer: &'a SendBuffer,
    /// Of the first byte, from SND.UNA.
    pub offset: usize,
    /// How many.
    pub len: usize,
    /// How many to a segment.
    pub segment: usize,
}

impl<'a> Payload<'a> {
    /// The bytes, if they lie in two pieces at most.
    #[inline]
    fn halves(&self) -> Option<[&'a [u8]; 2]> {
        self.buffer.halves(self.offset, self.len)
    }

    /// Its length and sum.
    fn text(&self) -> Text {
        let mut total = Sum::ZERO;
        self.buffer.visit(self.offset, self.len, |piece| total = total.then(sum(piece)));
        Text { len: self.len, sum: total }
    }

    fn copy_to(&self, out: &mut Vec<u8>) {
        self.buffer.visit(self.offset, self.len, |piece| out.extend_from_slice(piece));
    }
}

/// The way out for one connection in one turn.
#[derive(Debug)]
pub struct Egress<'a> {
    /// The device's batch.
    pub outbox: &'a mut Outbox,
    /// The way.
    pub way: Marked<'a>,
    /// Packets that this connection may still send in this turn. A large segment counts as many as
    /// the device will cut it into; the last may be larger than what is left.
    pub budget: usize,
    /// Frames sent.
    pub frames: usize,
}

impl Egress<'_> {
    /// Frames that may still leave.
    #[inline]
    pub fn room(&self) -> usize {
        self.budget.min(self.outbox.room())
    }

    /// True if another frame may leave.
    pub fn has_room(&self) -> bool {
        self.budget > 0 && self.outbox.room() > 0
    }

    /// Sends text as one segment after the other, where the device does not cut it: PSH and FIN go
    /// with the last, CWR with the first. False, and nothing has happened, if there is no room.
    #[inline]
    pub fn send_text(&mut self, header: &Header, payload: Option<Payload<'_>>) -> bool {
        match payload {
            Some(text) if text.len > text.segment && !self.way.path.device.checksum => {
                self.send_pieces(header, text)
            }
            payload => self.send(header, payload),
        }
    }

    fn send_pieces(&mut self, header: &Header, text: Payload<'_>) -> bool {
        if text.len.div_ceil(text.segment) > self.room() {
            return false;
        }
        let mut header = *header;
        let last_flags = header.flags.without(Flags::CWR);
        header.flags = header.flags.without(Flags::PSH | Flags::FIN);
        let mut done = 0;
        while done < text.len {
            let len = text.segment.min(text.len - done);
            if done + len == text.len {
                header.flags = last_flags;
            }
            let piece = Payload { offset: text.offset + done, len, ..text };
            let sent = self.send(&header, Some(piece));
            debug_assert!(sent, "there was room for all of them");
            done += len;
            header.seq += len as u32;
            header.flags = header.flags.without(Flags::CWR);
        }
        true
    }

    /// Sends one segment. False, and nothing has happened, if there is no room.
    #[inline]
    pub fn send(&mut self, header: &Header, payload: Option<Payload<'_>>) -> bool {
        if !self.has_room() {
            return false;
        }
        let Some(frame) = self.outbox.push() else { return false };
        if !write(frame, &self.way, header, payload) {
            self.outbox.unpush();
            return false;
        }
        let packets = match payload {
            Some(payload) if payload.len > payload.segment => {
                payload.len.div_ceil(payload.segment.max(1))
            }
            _ => 1,
        };
        self.budget = self.budget.saturating_sub(packets);
        self.frames += 1;
        true
    }
}

impl Egress<'_> {
    /// Sends one segment of the usual kind; its text, in two pieces, is no more than a packet
    /// holds. False, and nothing has happened, if there is no room, or the [path](Path::is_usual)
    /// is another.
    #[inline(always)]
    pub fn send_stamped(&mut self, header: &Stamped, text: [&[u8]; 2]) -> bool {
        let port = (header.ports >> 16) as u16;
        let Some(envelope) = self.way.envelope(header.seq, port) else { return false };
        let Some(frame) = self.outbox.push() else { return false };
        if let Some(link) = &self.way.path.link {
            link.emit(&mut frame.head);
        }
        if !usual::emit_stamped(&envelope, header, text_of(text), &mut frame.head) {
            self.outbox.unpush();
            return false;
        }
        copy_both(&mut frame.head, text);
        self.budget = self.budget.saturating_sub(1);
        self.frames += 1;
        true
    }
}

/// Writes a frame of one of the usual kinds: `headers` appends the headers around the text, which
/// was summed before and is copied behind them, from the cache. False, and nothing is written,
/// where it does not.
#[inline(always)]
fn write_usual(
    frame: &mut Frame,
    path: &Path,
    text: Text,
    headers: impl FnOnce(Text, &mut Vec<u8>) -> bool,
    copy: impl FnOnce(&mut Vec<u8>),
) -> bool {
    let start = frame.head.len();
    if let Some(link) = &path.link {
        link.emit(&mut frame.head);
    }
    if !headers(text, &mut frame.head) {
        frame.head.truncate(start);
        return false;
    }
    copy(&mut frame.head);
    true
}

/// The sum of text in two pieces.
#[inline(always)]
fn text_of([first, second]: [&[u8]; 2]) -> Text {
    match (first, second) {
        ([], _) => Text::NONE,
        (whole, []) => Text { len: whole.len(), sum: sum(whole) },
        _ => Text { len: first.len() + second.len(), sum: sum(first).then(sum(second)) },
    }
}

#[inline]
fn copy_both(out: &mut Vec<u8>, [first, second]: [&[u8]; 2]) {
    out.extend_from_slice(first);
    if !second.is_empty() {
        out.extend_from_slice(second);
    }
}

/// Writes the frame of a segment. False if the packet would be too long for its length field.
pub fn write(
    frame: &mut Frame,
    way: &Marked<'_>,
    header: &Header,
    payload: Option<Payload<'_>>,
) -> bool {
    // Nearly every segment: IPv4, the usual options, a checksum of our own.
    if let Some(envelope) = way.envelope(header.seq, header.source_port) {
        let headers = |text, out: &mut _| usual::emit(&envelope, header, text, out);
        let written = match payload.map(|payload| (payload, payload.halves())) {
            None => write_usual(frame, way.path, Text::NONE, headers, |_| ()),
            Some((_, Some(halves))) => {
                write_usual(frame, way.path, text_of(halves), headers, |out| copy_both(out, halves))
            }
            Some((payload, None)) => {
                write_usual(frame, way.path, payload.text(), headers, |out| payload.copy_to(out))
            }
        };
        if written {
            return true;
        }
    }
    write_any(frame, way, header, payload)
}

#[inline(never)]
fn write_any(
    frame: &mut Frame,
    way: &Marked<'_>,
    header: &Header,
    payload: Option<Payload<'_>>,
) -> bool {
    let path = way.path;
    let payload_len = payload.map_or(0, |payload| payload.len);
    let tcp_len = header.header_len() + payload_len;
    let Some(mut ip) = ip::Header::new(path.source, path.destination, PROTOCOL, tcp_len) else {
        return false;
    };
    ip.traffic_class = way.traffic_class;
    ip.hop_limit = way.hop_limit;
    ip.dont_fragment = way.dont_fragment;
    if !way.dont_fragment {
        ip.identification = identification(header.seq, header.source_port);
    }
    if let Some(link) = &path.link {
        link.emit(&mut frame.head);
    }
    ip.emit(&mut frame.head);
    let start = frame.head.len();
    header.emit(&mut frame.head);
    let field = start + CHECKSUM_OFFSET;
    if path.device.checksum {
        let pseudo = pseudo_header(path.source, path.destination, PROTOCOL, tcp_len as u32);
        frame.head[field..field + 2].copy_from_slice(&pseudo.fold().to_be_bytes());
        frame.checksum =
            TxChecksum::Partial { start: start as u16, offset: CHECKSUM_OFFSET as u16 };
        share(frame, path, payload);
    } else {
        let text = payload.map_or(Text::NONE, |payload| payload.text());
        let header = &frame.head[start..];
        let value = checksum(path.source, path.destination, header, text.sum, text.len);
        frame.head[field..field + 2].copy_from_slice(&value.to_be_bytes());
        if let Some(payload) = payload {
            payload.copy_to(&mut frame.head);
        }
    }
    true
}

/// Fragments of different packets must not be taken for parts of one (RFC 6864 §4.3): the number
/// follows SEG.SEQ, so that what is sent again may have it again (RFC 9293 MAY-4), and the port.
fn identification(seq: Seq, port: u16) -> u16 {
    (seq.0 as u16) ^ ((seq.0 >> 16) as u16).rotate_left(7) ^ port.rotate_left(3)
}

/// Lets the frame refer to the payload, and says how to cut it.
fn share(frame: &mut Frame, path: &Path, payload: Option<Payload<'_>>) {
    let Some(payload) = payload else { return };
    if payload.len > payload.segment {
        frame.segmentation = Some(Segmentation {
            size: payload.segment as u16,
            header_len: frame.head.len() as u16,
            ipv6: path.source.is_ipv6(),
        });
    }
    if payload.len <= COPY_BYTES {
        payload.copy_to(&mut frame.head);
    } else {
        payload.buffer.share(payload.offset, payload.len, &mut frame.tail);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::Medium;
    use crate::tcp::pool::PagePool;
    use crate::wire::options::Options;
    use crate::wire::tcp::Flags;
    use core::net::Ipv4Addr;

    const PATH: Path = Path {
        source: IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)),
        destination: IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2)),
        link: None,
        mtu: 1500,
        dont_fragment: true,
        hop_limit: 64,
        device: Capabilities {
            medium: Medium::Ip,
            mtu: 1500,
            checksum: true,
            segmentation: 65_535,
        },
    };

    /// How many segments of `len` bytes leave within a budget of 8 packets of 1000 bytes.
    fn sent(len: usize) -> usize {
        let mut pool = PagePool::new(4);
        let mut buffer = SendBuffer::default();
        buffer.write(&[7; 10_000], &mut pool);
        let header = Header {
            source_port: 1,
            destination_port: 2,
            seq: Seq(0),
            ack: Seq(0),
            flags: Flags::ACK,
            window: 0,
            urgent: 0,
            options: Options::default(),
        };
        let payload = Payload { buffer: &buffer, offset: 0, len, segment: 1000 };
        let mut outbox = Outbox::new(100);
        let way = PATH.marked(Marks::default());
        let mut egress = Egress { outbox: &mut outbox, way, budget: 8, frames: 0 };
        while egress.send(&header, (len > 0).then_some(payload)) {}
        assert_eq!(
            outbox.frames().filter(|frame| frame.segmentation.is_some()).count() > 0,
            len > 1000
        );
        outbox.len()
    }

    #[test]
    fn a_large_segment_counts_as_the_packets_it_will_be_cut_into() {
        assert_eq!((sent(0), sent(1), sent(1000)), (8, 8, 8));
        assert_eq!((sent(1001), sent(2000), sent(2001)), (4, 4, 3), "3 + 3 + the last of 3");
        assert_eq!((sent(8000), sent(8001)), (1, 1), "one leaves, however large");
    }
}
