//! Where segments leave: from a header and a range of the send buffer to a frame in the outbox.
//!
//! A frame whose checksum we must compute gets its payload summed and copied in. Where the device
//! completes the checksum, a short payload is copied too, and a frame with a long one refers to the
//! send buffer's own pages.

use alloc::vec::Vec;

use crate::flow::Seq;
use crate::frame::{Frame, Outbox, Segmentation, TxChecksum};
use crate::ip::path::{FastPath, PacketPath, Path};
use crate::tcp::send::buffer::{Cursor, SendBuffer};
use crate::wire::checksum::{Sum, append_and_sum, pseudo_header, sum};
use crate::wire::fast::{self, Stamped, Syn, Text};
use crate::wire::ip;
use crate::wire::tcp::{CHECKSUM_OFFSET, Flags, Header, PROTOCOL, checksum};

/// Payload up to here, a segment of Ethernet's at most, is copied even when the device does the
/// checksum. Counting the frames that share a page takes atomic operations, which pay only for what
/// the device cuts.
const COPY_BYTES: usize = 1500;

/// Text from here on is summed while it is copied. For less text two short passes cost no more, and
/// the headers are made before there is a place for them.
const SUM_WHILE_COPIED: usize = 256;

impl FastPath {
    /// Writes the frame of a segment around `text`. False if it is too long for one.
    pub(crate) fn write(&self, frame: &mut Frame, header: &Stamped, text: &[u8]) -> bool {
        if text.len() >= SUM_WHILE_COPIED {
            return self.write_around(frame, header, text.len(), |out| append_and_sum(out, text));
        }
        let summed =
            if text.is_empty() { Text::NONE } else { Text { len: text.len(), sum: sum(text) } };
        // Copied from the cache, since it has just been summed.
        self.write_stamped(frame, header, summed, text)
    }

    /// Writes one of several segments: around the next `len` bytes from where `text` is, which
    /// moves on. False if it is too long for one.
    fn write_piece(
        &self,
        frame: &mut Frame,
        header: &Stamped,
        text: &mut Cursor<'_>,
        len: usize,
    ) -> bool {
        self.write_around(frame, header, len, |out| {
            let mut total = Sum::ZERO;
            text.visit(len, |piece| total = total.then(append_and_sum(out, piece)));
            total
        })
    }

    fn write_link(&self, frame: &mut Frame) {
        if let Some(link) = &self.link {
            link.emit(&mut frame.head);
        }
    }

    /// Writes the headers, and behind them `len` bytes of text, which `append` appends and sums.
    fn write_around(
        &self,
        frame: &mut Frame,
        header: &Stamped,
        len: usize,
        append: impl FnOnce(&mut Vec<u8>) -> Sum,
    ) -> bool {
        self.write_link(frame);
        fast::emit_around(&self.template, header, len, append, &mut frame.head)
    }

    /// Writes the headers before `text`, and `body` behind them.
    #[inline(always)]
    fn write_stamped(&self, frame: &mut Frame, header: &Stamped, text: Text, body: &[u8]) -> bool {
        self.write_link(frame);
        fast::emit_stamped(&self.template, header, text, body, &mut frame.head)
    }

    /// Writes the frame of a SYN, if its options are all the usual ones; else nothing.
    pub(crate) fn write_syn(&self, frame: &mut Frame, header: &Syn) -> bool {
        self.write_link(frame);
        let written = fast::emit_syn(&self.template, header, &mut frame.head);
        if !written {
            frame.head.clear();
        }
        written
    }
}

/// The payload of a segment, or of several.
#[derive(Debug)]
pub(crate) struct Payload<'a> {
    /// Where the bytes are.
    pub buffer: &'a mut SendBuffer,
    /// The offset of the first byte, from SND.UNA.
    pub offset: usize,
    /// How many.
    pub len: usize,
    /// How many to a segment.
    pub segment: usize,
}

impl Payload<'_> {
    /// The bytes.
    fn span(&self) -> Span<'_> {
        debug_assert!(self.offset + self.len <= self.buffer.len());
        Span { begin: self.buffer.cursor(self.offset), len: self.len }
    }
}

/// Bytes of a send buffer.
#[derive(Clone, Copy, Debug)]
struct Span<'a> {
    begin: Cursor<'a>,
    len: usize,
}

impl Span<'_> {
    /// Its length and sum.
    fn text(mut self) -> Text {
        let mut total = Sum::ZERO;
        self.begin.visit(self.len, |piece| total = total.then(sum(piece)));
        Text { len: self.len, sum: total }
    }

    /// Appends the bytes to `out`.
    fn copy_to(mut self, out: &mut Vec<u8>) {
        self.begin.visit(self.len, |piece| out.extend_from_slice(piece));
    }
}

/// What one connection may send in one turn, and how.
#[derive(Debug)]
pub(crate) struct Egress<'a> {
    /// The device's batch.
    pub outbox: &'a mut Outbox,
    /// The path.
    pub path: PacketPath<'a>,
    /// Packets that this connection may still send in this turn. A large segment counts as many as
    /// the device will cut it into; the last may be larger than what is left.
    pub budget: usize,
    /// Frames sent.
    pub frames: usize,
}

impl Egress<'_> {
    /// Frames that may still leave.
    pub(crate) fn room(&self) -> usize {
        self.budget.min(self.outbox.room())
    }

    /// True if another frame may leave.
    pub(crate) fn has_room(&self) -> bool {
        self.budget > 0 && self.outbox.room() > 0
    }

    /// Sends text as one segment after the other, where the device does not cut it: PSH and FIN go
    /// with the last, CWR with the first. False, and nothing has happened, if there is no room.
    pub(crate) fn send_text(&mut self, header: &Header, payload: Option<Payload<'_>>) -> bool {
        match payload {
            Some(text) if text.len > text.segment && !self.path.base.device.checksum => {
                self.send_pieces(header, &text)
            }
            payload => self.send(header, payload),
        }
    }

    fn send_pieces(&mut self, header: &Header, text: &Payload<'_>) -> bool {
        if text.len.div_ceil(text.segment) > self.room() {
            return false;
        }
        let mut header = *header;
        let last_flags = header.flags.without(Flags::CWR);
        header.flags = header.flags.without(Flags::PSH | Flags::FIN);
        let fast = Stamped::of(&header).and_then(|stamped| Some((stamped, self.path.fast()?)));
        let Span { begin: mut cursor, len: mut left } = text.span();
        while left > 0 {
            let len = left.min(text.segment);
            left -= len;
            if left == 0 {
                header.flags = last_flags;
            }
            let (seq, flags) = (header.seq, header.flags);
            let sent = self.put(1, |frame, path| match &fast {
                Some((stamped, path)) => {
                    path.write_piece(frame, &Stamped { seq, flags, ..*stamped }, &mut cursor, len)
                }
                None => {
                    let piece = Span { begin: cursor, len };
                    cursor.visit(len, |_| ());
                    write_complete(frame, path, &header, Some(piece))
                }
            });
            debug_assert!(sent, "there was room for all of them");
            header.seq += len as u32;
            header.flags = header.flags.without(Flags::CWR);
        }
        true
    }

    /// Sends one segment. False, and nothing has happened, if there is no room.
    pub(crate) fn send(&mut self, header: &Header, payload: Option<Payload<'_>>) -> bool {
        let packets = match &payload {
            Some(payload) if payload.len > payload.segment => {
                payload.len.div_ceil(payload.segment.max(1))
            }
            _ => 1,
        };
        self.has_room() && self.put(packets, |frame, path| write(frame, path, header, payload))
    }

    /// Sends the frame that `write` writes, of so many packets; nothing if that says no, or if the
    /// outbox is full.
    fn put(
        &mut self,
        packets: usize,
        write: impl FnOnce(&mut Frame, &PacketPath<'_>) -> bool,
    ) -> bool {
        let Some(frame) = self.outbox.push() else { return false };
        if !write(frame, &self.path) {
            self.outbox.unpush();
            return false;
        }
        self.budget = self.budget.saturating_sub(packets);
        self.frames += 1;
        true
    }
}

/// Writes the frame of a segment. False if the packet would be too long for its length field.
pub(crate) fn write(
    frame: &mut Frame,
    path: &PacketPath<'_>,
    header: &Header,
    payload: Option<Payload<'_>>,
) -> bool {
    if path.base.device.checksum {
        write_partial(frame, path, header, payload)
    } else {
        write_complete(frame, path, header, payload.as_ref().map(Payload::span))
    }
}

/// Writes a frame whose checksum is ours.
fn write_complete(
    frame: &mut Frame,
    path: &PacketPath<'_>,
    header: &Header,
    text: Option<Span<'_>>,
) -> bool {
    let summed = text.map_or(Text::NONE, Span::text);
    let Some(start) = write_headers(frame, path, header, summed.len) else { return false };
    let written = &frame.head[start..];
    let value = checksum(path.base.source, path.base.destination, written, summed.sum, summed.len);
    store_checksum(frame, start, value);
    if let Some(text) = text {
        text.copy_to(&mut frame.head);
    }
    true
}

/// Writes a frame whose checksum the device completes.
fn write_partial(
    frame: &mut Frame,
    path: &PacketPath<'_>,
    header: &Header,
    payload: Option<Payload<'_>>,
) -> bool {
    let payload_len = payload.as_ref().map_or(0, |payload| payload.len);
    let Some(start) = write_headers(frame, path, header, payload_len) else { return false };
    let tcp_len = header.header_len() + payload_len;
    let pseudo = pseudo_header(path.base.source, path.base.destination, PROTOCOL, tcp_len as u32);
    store_checksum(frame, start, pseudo.fold());
    frame.checksum = TxChecksum::Partial { start: start as u16, offset: CHECKSUM_OFFSET as u16 };
    share(frame, path.base, payload);
    true
}

fn store_checksum(frame: &mut Frame, start: usize, value: u16) {
    let field = start + CHECKSUM_OFFSET;
    frame.head[field..field + 2].copy_from_slice(&value.to_be_bytes());
}

/// Writes all headers before so many bytes of text, the TCP checksum zero; where in the frame the
/// TCP header starts. `None` if the packet would be too long for its length field.
fn write_headers(
    frame: &mut Frame,
    path: &PacketPath<'_>,
    header: &Header,
    text_len: usize,
) -> Option<usize> {
    let tcp_len = header.header_len() + text_len;
    let mut ip = ip::Header::new(path.base.source, path.base.destination, PROTOCOL, tcp_len)?;
    ip.traffic_class = path.traffic_class;
    ip.hop_limit = path.hop_limit;
    ip.dont_fragment = path.dont_fragment;
    if !path.dont_fragment {
        ip.identification = identification(header.seq, header.source_port);
    }
    if let Some(link) = &path.base.link {
        link.emit(&mut frame.head);
    }
    ip.emit(&mut frame.head);
    let start = frame.head.len();
    header.emit(&mut frame.head);
    Some(start)
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
            datagrams: false,
        });
    }
    if payload.len <= COPY_BYTES {
        payload.span().copy_to(&mut frame.head);
    } else {
        payload.buffer.share(payload.offset, payload.len, &mut frame.tail);
    }
}

#[cfg(test)]
mod tests;
