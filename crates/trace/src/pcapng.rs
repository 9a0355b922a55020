//! Reads the TCP connections of a capture (draft-ietf-opsawg-pcapng), such as `/capture` gives.
//!
//! A capture has segments alone: which of them were sent again follows from their numbers, and why
//! is not known.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use lightwait_core::wire::{ethernet, ip, tcp};

use crate::trace::{Entry, Kind, Segment, Trace};

/// The kinds of blocks, and the magic of a section's byte order.
const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const PACKET: u32 = 6;
const MAGIC: u32 = 0x1a2b_3c4d;
/// Options of an interface and of a packet.
const TIME_RESOLUTION: u16 = 9;
const PACKET_FLAGS: u16 = 2;
/// Link types.
const ETHERNET: u16 = 1;
const RAW_IP: u16 = 101;

/// True if the file begins as a capture does.
pub fn is_capture(bytes: &[u8]) -> bool {
    bytes.first_chunk() == Some(&SECTION.to_be_bytes())
}

/// The connections of a capture, in the order in which they appear. Our end is the one that the
/// capture says its frames left from, or else the one that sent the first segment.
///
/// # Errors
/// If a block is broken: says where.
pub fn read(bytes: &[u8]) -> Result<Vec<Trace>, String> {
    let mut reader = Reader { bytes, at: 0, is_big: false, interfaces: Vec::new() };
    let mut connections = Connections::default();
    while reader.at < bytes.len() {
        let begin = reader.at;
        let block = reader.block().ok_or_else(|| format!("byte {begin}: a broken block"))?;
        if let Some(packet) = block {
            connections.take(&packet);
        }
    }
    Ok(connections.list.into_iter().map(|it| it.trace).collect())
}

#[derive(Clone, Copy)]
struct Interface {
    link: u16,
    /// Units of a time stamp in a second.
    per_second: u64,
}

struct Packet<'a> {
    ms: f64,
    link: u16,
    bytes: &'a [u8],
    /// It left, if the capture says so.
    is_sent: Option<bool>,
    /// Bytes of the frame that were not captured.
    cut: usize,
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    is_big: bool,
    interfaces: Vec<Interface>,
}

impl<'a> Reader<'a> {
    fn u32_at(&self, at: usize) -> Option<u32> {
        let four = *self.bytes.get(at..)?.first_chunk()?;
        Some(if self.is_big { u32::from_be_bytes(four) } else { u32::from_le_bytes(four) })
    }

    fn u16_at(&self, at: usize) -> Option<u16> {
        let two = *self.bytes.get(at..)?.first_chunk()?;
        Some(if self.is_big { u16::from_be_bytes(two) } else { u16::from_le_bytes(two) })
    }

    /// The next block, if it is one of a packet. `None`: it is broken.
    fn block(&mut self) -> Option<Option<Packet<'a>>> {
        let begin = self.at;
        let kind = self.u32_at(begin)?;
        if kind == SECTION {
            self.is_big = false;
            self.is_big = match self.u32_at(begin + 8)? {
                MAGIC => false,
                other if other.swap_bytes() == MAGIC => true,
                _ => return None,
            };
            self.interfaces.clear();
        }
        let len = self.u32_at(begin + 4)? as usize;
        let end = begin.checked_add(len).filter(|end| *end <= self.bytes.len() && len >= 12)?;
        self.at = end;
        match kind {
            INTERFACE => {
                let link = self.u16_at(begin + 8)?;
                let resolution = self.option(TIME_RESOLUTION, begin + 16, end - 4);
                let exponent = resolution.and_then(|it| it.first().copied()).unwrap_or(6);
                let base: u64 = if exponent & 0x80 == 0 { 10 } else { 2 };
                let per_second = base.checked_pow(u32::from(exponent & 0x7f))?;
                self.interfaces.push(Interface { link, per_second });
                Some(None)
            }
            PACKET => self.packet(begin, end).map(Some),
            _ => Some(None),
        }
    }

    fn packet(&self, begin: usize, end: usize) -> Option<Packet<'a>> {
        let interface = *self.interfaces.get(self.u32_at(begin + 8)? as usize)?;
        let units = u64::from(self.u32_at(begin + 12)?) << 32 | u64::from(self.u32_at(begin + 16)?);
        let (captured, whole) = (self.u32_at(begin + 20)? as usize, self.u32_at(begin + 24)?);
        let bytes = self.bytes[..end - 4].get(begin + 28..)?.get(..captured)?;
        let options = begin + 28 + captured.next_multiple_of(4);
        let flags = self.option(PACKET_FLAGS, options, end - 4);
        let flags = flags.and_then(|it| it.first_chunk::<4>());
        let way = flags.map_or(0, |it| (if self.is_big { it[3] } else { it[0] }) & 3);
        let ms = u128::from(units) * 1_000_000_000 / u128::from(interface.per_second);
        Some(Packet {
            ms: ms as f64 / 1e6,
            link: interface.link,
            bytes,
            is_sent: (way != 0).then_some(way == 2),
            cut: (whole as usize).saturating_sub(captured),
        })
    }

    /// The value of an option, among those from `at` on.
    fn option(&self, wanted: u16, mut at: usize, end: usize) -> Option<&'a [u8]> {
        while at + 4 <= end {
            let (code, len) = (self.u16_at(at)?, usize::from(self.u16_at(at + 2)?));
            if code == wanted {
                return self.bytes[..end].get(at + 4..)?.get(..len);
            }
            if code == 0 {
                break;
            }
            at += 4 + len.next_multiple_of(4);
        }
        None
    }
}

/// A connection that is read.
struct Reading {
    trace: Trace,
    local: SocketAddr,
    /// Shift counts of their windows, ours first, and whether each has told one.
    shifts: [Option<u8>; 2],
    /// One past the highest number of each.
    ends: [Option<u32>; 2],
}

#[derive(Default)]
struct Connections {
    list: Vec<Reading>,
    places: BTreeMap<(SocketAddr, SocketAddr), usize>,
    first_ms: Option<f64>,
}

impl Connections {
    /// What is no TCP, or makes no sense, is left out.
    fn take(&mut self, packet: &Packet<'_>) -> Option<()> {
        let (ends, segment, len) = segment(packet)?;
        let first_ms = *self.first_ms.get_or_insert(packet.ms);
        let key = (ends.0.min(ends.1), ends.0.max(ends.1));
        let place = *self.places.entry(key).or_insert_with(|| {
            let is_sent = packet.is_sent.unwrap_or(true);
            let (local, remote) = if is_sent { ends } else { (ends.1, ends.0) };
            let trace = Trace { name: format!("{local}-{remote}"), entries: Vec::new() };
            self.list.push(Reading { trace, local, shifts: [None; 2], ends: [None; 2] });
            self.list.len() - 1
        });
        let reading = &mut self.list[place];
        let is_sent = ends.0 == reading.local;
        let side = usize::from(!is_sent);
        let is_syn = segment.flags.contains(tcp::Flags::SYN);
        if is_syn {
            reading.shifts[side] = segment.options.window_scale;
            reading.ends[side] = None;
        }
        let shift = match reading.shifts {
            [Some(ours), Some(theirs)] if !is_syn => [ours, theirs][side].min(14),
            _ => 0,
        };
        let mut it = Segment {
            is_sent,
            seq: segment.seq.0,
            ack: segment.flags.contains(tcp::Flags::ACK).then_some(segment.ack.0),
            len,
            flags: segment.flags.to_string(),
            window: u32::from(segment.window) << shift,
            sack: segment.options.sack.iter().map(|it| (it.start.0, it.end.0)).collect(),
            segments: 1,
            again: None,
        };
        if it.numbers() > 0 {
            let end = it.seq.wrapping_add(it.numbers());
            let after = |one: u32, other: u32| one.wrapping_sub(other) as i32 > 0;
            let seen = &mut reading.ends[side];
            if seen.is_some_and(|seen| after(seen, it.seq)) {
                it.again = Some("seen before".to_owned());
            }
            if seen.is_none_or(|seen| after(end, seen)) {
                *seen = Some(end);
            }
        }
        let entry = Entry { ms: packet.ms - first_ms, kind: Kind::Segment(it) };
        reading.trace.entries.push(entry);
        Some(())
    }
}

/// The segment of a frame, its ends, the sender's first, and bytes of its text.
fn segment<'a>(packet: &Packet<'a>) -> Option<((SocketAddr, SocketAddr), tcp::Segment<'a>, u32)> {
    let bytes = match packet.link {
        RAW_IP => packet.bytes,
        ETHERNET => {
            let mut frame = ethernet::Frame::parse(packet.bytes).ok()?;
            while let Some((_, inner)) = frame.behind_tag().ok()? {
                frame = inner;
            }
            frame.payload
        }
        _ => return None,
    };
    let (source, destination, start, len) = packet_of(bytes, packet.cut)?;
    let payload = bytes.get(start..)?;
    let payload = &payload[..payload.len().min(len)];
    let segment = tcp::Segment::parse(payload).ok()?;
    let text = len.saturating_sub(payload.len()) + segment.payload.len();
    let from = SocketAddr::new(source, segment.source_port);
    let to = SocketAddr::new(destination, segment.destination_port);
    Some(((from, to), segment, text as u32))
}

/// Addresses of a packet, where its segment begins, and how long that is. A packet that was cut by
/// the capture has only its beginning.
fn packet_of(bytes: &[u8], cut: usize) -> Option<(IpAddr, IpAddr, usize, usize)> {
    if cut == 0 {
        let packet = ip::Packet::parse(bytes).ok()?;
        let is_whole = packet.fragment.is_none() && packet.protocol == ip::protocol::TCP;
        let start = packet.bytes.len() - packet.payload.len();
        return is_whole.then_some((
            packet.source,
            packet.destination,
            start,
            packet.payload.len(),
        ));
    }
    let half = |at: usize| Some(usize::from(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?)));
    match bytes.first()? >> 4 {
        4 if *bytes.get(9)? == ip::protocol::TCP => {
            let address = |at: usize| Some(IpAddr::from(*bytes.get(at..)?.first_chunk::<4>()?));
            let start = usize::from(bytes[0] & 15) * 4;
            Some((address(12)?, address(16)?, start, half(2)?.saturating_sub(start)))
        }
        6 if *bytes.get(6)? == ip::protocol::TCP => {
            let address = |at: usize| Some(IpAddr::from(*bytes.get(at..)?.first_chunk::<16>()?));
            Some((address(8)?, address(24)?, 40, half(4)?))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use lightwait_core::capture::pcapng::{self, Direction};
    use lightwait_core::flow::Seq;
    use lightwait_core::wire::options::Options;
    use lightwait_core::wire::tcp::{Flags, Header};
    use lightwait_core::{Instant, Medium};

    use super::*;

    /// A packet from one end or the other.
    fn packet(is_ours: bool, seq: u32, flags: Flags, scale: Option<u8>, text: &[u8]) -> Vec<u8> {
        let ends = [([10, 0, 0, 1], 80), ([10, 0, 0, 2], 4000)];
        let (from, to) = if is_ours { (ends[0], ends[1]) } else { (ends[1], ends[0]) };
        let header = Header {
            source_port: from.1,
            destination_port: to.1,
            seq: Seq(seq),
            ack: Seq(7),
            flags,
            window: 100,
            urgent: 0,
            options: Options { window_scale: scale, ..Options::NONE },
        };
        let len = header.header_len() + text.len();
        let mut bytes = Vec::new();
        ip::Header::new(from.0.into(), to.0.into(), ip::protocol::TCP, len)
            .unwrap()
            .emit(&mut bytes);
        header.emit(&mut bytes);
        bytes.extend_from_slice(text);
        bytes
    }

    fn capture(snaplen: u32) -> Vec<u8> {
        let (syn, ack) = (Flags::SYN, Flags::ACK);
        let mut out = Vec::new();
        pcapng::section(&mut out);
        pcapng::interface(Medium::Ip, "x", &mut out);
        for (ms, way, bytes) in [
            (5, Direction::Inbound, packet(false, 6, syn, Some(2), &[])),
            (6, Direction::Outbound, packet(true, 99, syn | ack, Some(3), &[])),
            (7, Direction::Outbound, packet(true, 100, ack, None, &[1; 500])),
            (8, Direction::Outbound, packet(true, 100, ack, None, &[1; 500])),
            (9, Direction::Inbound, packet(false, 7, ack, None, &[])),
        ] {
            let time = Instant::from_millis(ms);
            pcapng::cut_packet(0, time, Some(way), &bytes, snaplen, &mut out);
        }
        out
    }

    #[test]
    fn a_capture_tells_ends_windows_and_what_was_sent_again() {
        for snaplen in [u32::MAX, 100] {
            let capture = capture(snaplen);
            assert!(is_capture(&capture));
            let traces = read(&capture).unwrap();
            assert_eq!(traces.len(), 1);
            assert_eq!(traces[0].name, "10.0.0.1:80-10.0.0.2:4000");
            let told = traces[0].segments();
            let told: Vec<_> = told
                .map(|(ms, it)| (ms, it.is_sent, it.len, it.window, it.again.is_some()))
                .collect();
            assert_eq!(
                told,
                [
                    (0.0, false, 0, 100, false),
                    (1.0, true, 0, 100, false),
                    (2.0, true, 500, 800, false),
                    (3.0, true, 500, 800, true),
                    (4.0, false, 0, 400, false),
                ]
            );
        }
    }

    #[test]
    fn no_capture_makes_the_reader_panic() {
        let whole = capture(u32::MAX);
        for end in 0..whole.len() {
            let _ = read(&whole[..end]);
        }
        for at in 0..whole.len() {
            for value in [0, 0x7f, 0xff] {
                let mut broken = whole.clone();
                broken[at] = value;
                let _ = read(&broken);
            }
        }
        assert!(read(&whole[..whole.len() - 1]).unwrap_err().starts_with("byte "));
    }
}
