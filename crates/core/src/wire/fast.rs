//! The fast layout, which nearly all segments have: an IPv4 packet without options or fragments,
//! with timestamps as the only TCP option, or with those of a SYN as Linux and we write them. It is
//! read and written as words, which are summed on the way.
//!
//! ```text
//!    0 version, IHL, DSCP, total length     5 ports            10 nop nop timestamps 10
//!    1 identification, flags, offset        6 sequence number  11 TSval
//!    2 TTL, protocol, checksum              7 acknowledgement  12 TSecr
//!    3 source                               8 offset, flags, window
//!    4 destination                          9 checksum, urgent
//!                                                    of a SYN: 10 MSS 4, its value
//!                                                              11 SACK permitted 2, timestamps 10
//!                                                              12 TSval
//!                                                              13 TSecr
//!                                                              14 nop, window scale 3, its value
//! ```
//!
//! Any other segment is read by [`ip`](super::ip) and [`tcp`](super::tcp), which also say what is
//! wrong with one. Both ways give the same result for every frame.

use alloc::vec::Vec;
use core::net::Ipv4Addr;

use super::checksum::{Sum, of_short_sum, of_sum, sum, sum_of, word_sum};
use super::options::{Layout, OptionWords, Options, Timestamps};
use super::tcp::{Flags, Header, PROTOCOL, PlainSegment, Segment};
use crate::flow::{Seq, Tuple};

/// Bytes of an IP header.
const IP_BYTES: usize = 20;
/// Where the addresses begin in it: what the TCP checksum covers.
const ADDRESSES_AT: usize = 12;
/// Words of a TCP header with timestamps.
const STAMPED_OFFSET: u32 = 8;
/// Words of the TCP header of a SYN.
const SYN_OFFSET: u32 = 10;
/// Bytes of both headers with timestamps, which all have.
const HEAD_BYTES: usize = IP_BYTES + 4 * STAMPED_OFFSET as usize;
/// Words of options that only a SYN has.
const MORE_WORDS: usize = (SYN_OFFSET - STAMPED_OFFSET) as usize;
/// Bytes of both headers of a SYN.
const SYN_BYTES: usize = IP_BYTES + 4 * SYN_OFFSET as usize;

/// IPv4, and five words of header.
const VERSION: u32 = 0x45;
const DF: u32 = 0x4000;
/// More fragments, and the fragment's offset.
const FRAGMENT: u32 = 0x3fff;

/// A segment of the fast layout that has arrived. Its IP checksum is right; its TCP checksum was
/// not looked at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FastSegment<'a> {
    /// The words up to the third of the options.
    head: &'a [u8; HEAD_BYTES],
    /// The bytes that follow them: two more words of options in a SYN, then the payload.
    rest: &'a [u8],
}

/// The packet around a segment that is to be sent, and that no router must cut.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Envelope {
    /// The sender.
    pub source: Ipv4Addr,
    /// The receiver.
    pub destination: Ipv4Addr,
    /// DSCP and ECN.
    pub traffic_class: u8,
    /// TTL.
    pub hop_limit: u8,
}

impl<'a> FastSegment<'a> {
    /// The segment in the IP packet `bytes`, if it is of these kinds and sound so far.
    #[inline(always)]
    pub(crate) fn parse(bytes: &'a [u8]) -> Option<FastSegment<'a>> {
        let head = bytes.first_chunk::<HEAD_BYTES>()?;
        let word = |index| word_of(head, index);
        let unusual = (word(0) >> 24 ^ VERSION)
            | (word(1) & FRAGMENT)
            | (word(2) >> 16 & 0xff ^ u32::from(PROTOCOL));
        let has_ports = word(5) & 0xffff != 0 && word(5) >> 16 != 0;
        // In either order of bytes, a header whose checksum is right is a multiple of all ones.
        let ip = [0, 1, 2, 3, 4].map(|index| word(index).to_be());
        if unusual != 0 || !has_ports || !word_sum(&ip).is_multiple_of(0xffff) {
            return None;
        }
        let rest = bytes.get(HEAD_BYTES..(word(0) & 0xffff) as usize)?;
        let is_sound = if word(8) >> 28 == STAMPED_OFFSET {
            OptionWords::are_stamps(word(10))
        } else {
            options_of_syn(head, rest).is_some_and(|words| words.are_sound())
        };
        is_sound.then_some(FastSegment { head, rest })
    }

    /// The segment in a whole packet that was parsed before.
    pub(crate) fn of_parsed(packet: &'a [u8]) -> Option<FastSegment<'a>> {
        let (head, rest) = packet.split_first_chunk()?;
        Some(FastSegment { head, rest })
    }

    /// Bytes of the packet, from the IP header on.
    pub(crate) fn packet_len(&self) -> u32 {
        self.word(0) & 0xffff
    }

    /// Its only option is timestamps.
    fn is_stamped(&self) -> bool {
        self.word(8) >> 28 == STAMPED_OFFSET
    }

    fn word(&self, index: usize) -> u32 {
        word_of(self.head, index)
    }

    /// A copy of the whole packet.
    pub(crate) fn packet(&self) -> Vec<u8> {
        [&self.head[..], self.rest].concat()
    }

    /// DSCP and ECN.
    pub(crate) fn traffic_class(&self) -> u8 {
        (self.word(0) >> 16) as u8
    }

    /// Sender and receiver, as the receiver sees them.
    pub(crate) fn tuple(&self) -> Tuple {
        let [source, destination, ports] = [3, 4, 5].map(|index| self.word(index));
        let (ours, theirs) = ([0, destination.into()], [0, source.into()]);
        Tuple::from_words(ours, theirs, ports.rotate_left(16), false)
    }

    /// The control bits.
    pub(crate) fn flags(&self) -> Flags {
        Flags((self.word(8) >> 16) as u8)
    }

    /// True if the TCP checksum is right (RFC 9293 MUST-3).
    pub(crate) fn verify_checksum(&self) -> bool {
        self.is_right_with(if self.rest.is_empty() { Sum::ZERO } else { sum(self.rest) })
    }

    /// True if the checksum is right, given the sum of what follows the first 13 words: of the
    /// text, unless it is a SYN.
    pub(crate) fn is_right_with(&self, rest: Sum) -> bool {
        // With 16 bits of length, less the IP header's, the protocol number has room.
        let len = (self.word(0) as u16).wrapping_sub(IP_BYTES as u16);
        let from_addresses = self.head.last_chunk::<{ HEAD_BYTES - ADDRESSES_AT }>();
        let mut all = from_addresses.map_or(Sum::ZERO, sum_of);
        all = all.then_u16(len.wrapping_add(PROTOCOL.into()));
        all.then(rest).is_valid()
    }

    /// What a segment with timestamps alone says; `None` of a SYN.
    pub(crate) fn plain(&self) -> Option<PlainSegment<'a>> {
        let stamps = Timestamps { value: self.word(11), echo: self.word(12) };
        self.is_stamped().then(|| self.with(stamps, self.rest))
    }

    /// What any says, but for the options of a SYN other than timestamps.
    pub(crate) fn head(&self) -> PlainSegment<'a> {
        self.plain().unwrap_or_else(|| {
            let (echo, text) = self.rest.split_at_checked(4 * MORE_WORDS).unwrap_or_default();
            let echo = echo.first_chunk().map_or(0, |echo| u32::from_be_bytes(*echo));
            self.with(Timestamps { value: self.word(12), echo }, text)
        })
    }

    fn with(&self, stamps: Timestamps, text: &'a [u8]) -> PlainSegment<'a> {
        PlainSegment {
            seq: Seq(self.word(6)),
            ack: Seq(self.word(7)),
            flags: self.flags(),
            window: self.word(8) as u16,
            stamps: Some(stamps),
            text,
        }
    }

    /// The segment.
    #[inline(always)]
    pub(crate) fn segment(&self) -> Segment<'a> {
        let stamps = || OptionWords::Stamped([10, 11, 12].map(|index| self.word(index)));
        let of_syn = || options_of_syn(self.head, self.rest);
        let (options, payload) = match if self.is_stamped() { None } else { of_syn() } {
            Some(options) => (options, &self.rest[4 * MORE_WORDS..]),
            None => (stamps(), self.rest),
        };
        let ports = self.word(5);
        Segment {
            source_port: (ports >> 16) as u16,
            destination_port: ports as u16,
            seq: Seq(self.word(6)),
            ack: Seq(self.word(7)),
            flags: self.flags(),
            window: self.word(8) as u16,
            urgent: self.word(9) as u16,
            options: options.options(),
            payload,
        }
    }
}

/// The words of the options behind a header of the length of a SYN's.
fn options_of_syn(head: &[u8; HEAD_BYTES], rest: &[u8]) -> Option<OptionWords> {
    let is_as_long = word_of(head, 8) >> 28 == SYN_OFFSET;
    let more = rest.first_chunk::<{ 4 * MORE_WORDS }>().filter(|_| is_as_long)?;
    let [first, second, third] = [10, 11, 12].map(|index| word_of(head, index));
    let [fourth, fifth] = [0, 1].map(|index| word_of(more, index));
    Some(OptionWords::Syn([first, second, third, fourth, fifth]))
}

/// The `index`th big-endian word of a header.
fn word_of<const N: usize>(header: &[u8; N], index: usize) -> u32 {
    u32::from_be_bytes(header.as_chunks::<4>().0[index])
}

/// The payload that is to follow the headers.
#[derive(Clone, Copy, Debug)]
pub struct Text {
    /// How many bytes.
    pub len: usize,
    /// Their sum.
    pub sum: Sum,
}

impl Text {
    /// None.
    pub const NONE: Text = Text { len: 0, sum: Sum::ZERO };
}

/// The TCP header of a segment with timestamps as the only option.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stamped {
    /// Both ports, the sender's in the high half.
    pub ports: u32,
    /// SEG.SEQ.
    pub seq: Seq,
    /// SEG.ACK.
    pub ack: Seq,
    /// The control bits.
    pub flags: Flags,
    /// SEG.WND as it stands in the header.
    pub window: u16,
    /// TSval and TSecr.
    pub stamps: Timestamps,
}

impl Stamped {
    /// `header`, if timestamps are its only option and nothing is urgent.
    pub(crate) fn of(header: &Header) -> Option<Stamped> {
        let stamps = header.options.lone_timestamps().filter(|_| header.urgent == 0)?;
        let &Header { source_port, destination_port, seq, ack, flags, window, .. } = header;
        let ports = u32::from(source_port) << 16 | u32::from(destination_port);
        Some(Stamped { ports, seq, ack, flags, window, stamps })
    }

    /// The header in the general form, for writers of all kinds of segments.
    pub(crate) fn header(&self) -> Header {
        let Stamped { ports, seq, ack, flags, window, stamps } = *self;
        let options = Options { timestamps: Some(stamps), ..Options::NONE };
        Header { window, options, ..Header::new(ports, seq, ack, flags) }
    }

    fn words(&self) -> Words<1> {
        let flags = u32::from(self.flags.0) << 16 | u32::from(self.window);
        let [kind, value, echo] = self.stamps.words();
        let fixed = [self.ports, self.seq.0, self.ack.0, STAMPED_OFFSET << 28 | flags, 0];
        Words { fixed, options: [pair(kind, value)], last: echo }
    }
}

/// The TCP header of a SYN, whatever it offers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Syn {
    /// Both ports, the sender's in the high half.
    pub ports: u32,
    /// SEG.SEQ.
    pub seq: Seq,
    /// SEG.ACK.
    pub ack: Seq,
    /// The control bits.
    pub flags: Flags,
    /// SEG.WND as it stands in the header.
    pub window: u16,
    /// The MSS that is announced.
    pub mss: u16,
    /// The sender's shift count, if it scales.
    pub scale: Option<u8>,
    /// SACK is permitted.
    pub sack: bool,
    /// TSval and TSecr, if there are any.
    pub stamps: Option<Timestamps>,
    /// In which order the options are written.
    pub layout: Layout,
}

impl Syn {
    /// The header in the general form, for writers of all kinds of segments.
    pub(crate) fn header(&self) -> Header {
        let Syn { ports, seq, ack, flags, window, mss, scale, sack, stamps, layout } = *self;
        let options = Options {
            mss: Some(mss),
            window_scale: scale,
            sack_permitted: sack,
            timestamps: stamps,
            layout,
            ..Options::NONE
        };
        Header { window, options, ..Header::new(ports, seq, ack, flags) }
    }
}

/// Appends the headers of the packet that carries a SYN and nothing else. False, and nothing
/// appended, if its options are not all the usual ones.
#[inline(always)]
pub(crate) fn emit_syn(around: &Template, header: &Syn, out: &mut Vec<u8>) -> bool {
    let (true, Layout::ScaleLast, Some(scale), Some(stamps)) =
        (header.sack, header.layout, header.scale, header.stamps)
    else {
        return false;
    };
    let flags = u32::from(header.flags.0) << 16 | u32::from(header.window);
    let (seq, ack) = (header.seq.0, header.ack.0);
    let fixed = [header.ports, seq, ack, SYN_OFFSET << 28 | flags, 0];
    let [mss, permitted, value, echo, scale] = OptionWords::of_syn(header.mss, scale, stamps);
    let options = [pair(mss, permitted), pair(value, echo)];
    let words = Words { fixed, options, last: scale };
    emit_words::<2, SYN_BYTES>(around, words, Text::NONE, &[], out)
}

/// Appends the headers of the packet that carries `header` and then `text`, and `body`: as much of
/// the text as lies in one piece, from its beginning. False, and nothing appended, if the packet
/// would be too long for its length field.
#[inline(always)]
pub(crate) fn emit_stamped(
    around: &Template,
    header: &Stamped,
    text: Text,
    body: &[u8],
    out: &mut Vec<u8>,
) -> bool {
    emit_words::<1, HEAD_BYTES>(around, header.words(), text, body, out)
}

/// Writes a header of this kind and all of the text, `len` bytes, which `append` appends; it
/// returns their sum.
pub(crate) fn emit_around(
    around: &Template,
    header: &Stamped,
    len: usize,
    append: impl FnOnce(&mut Vec<u8>) -> Sum,
    out: &mut Vec<u8>,
) -> bool {
    let start = out.len();
    out.reserve(HEAD_BYTES + len);
    out.extend_from_slice(&[0; HEAD_BYTES]);
    let text = Text { len, sum: append(out) };
    let headers = headers::<1, HEAD_BYTES>(around, header.words(), text);
    let place = out.get_mut(start..).and_then(<[u8]>::first_chunk_mut);
    let (Some(headers), Some(place)) = (headers, place) else {
        out.truncate(start);
        return false;
    };
    *place = headers;
    true
}

/// A TCP header of an odd number of words.
struct Words<const OPTIONS: usize> {
    /// The first five.
    fixed: [u32; 5],
    /// The options, in pairs of words.
    options: [u64; OPTIONS],
    /// The last word of the options.
    last: u32,
}

/// Two words, one after the other.
fn pair(first: u32, second: u32) -> u64 {
    u64::from(first) << 32 | u64::from(second)
}

/// Appends the headers, and behind them `body`.
#[inline(always)]
fn emit_words<const OPTIONS: usize, const BYTES: usize>(
    around: &Template,
    words: Words<OPTIONS>,
    text: Text,
    body: &[u8],
    out: &mut Vec<u8>,
) -> bool {
    let Some(bytes) = headers::<OPTIONS, BYTES>(around, words, text) else { return false };
    // Made and appended in one function, they go from registers to where they are to lie.
    out.extend_from_slice(&bytes);
    out.extend_from_slice(body);
    true
}

/// The IP header and the TCP header. `None` if the packet would be too long for its length field.
#[inline(always)]
fn headers<const OPTIONS: usize, const BYTES: usize>(
    around: &Template,
    Words { fixed: [ports, seq, ack, flags, urgent], options, last }: Words<OPTIONS>,
    text: Text,
) -> Option<[u8; BYTES]> {
    let total_len = u16::try_from(BYTES + text.len).ok()?;
    let ip_sum = u32::from(around.ip_sum) + u32::from(total_len);
    let total_len = u64::from(total_len);
    let mut fixed = [
        around.length | total_len << 32,
        around.protocol | u64::from(of_short_sum(ip_sum)) << 32,
        around.destination | u64::from(ports),
        pair(seq, ack),
        pair(flags, urgent),
    ];
    let pseudo = around.pseudo_sum + (total_len - IP_BYTES as u64);
    let head = [pseudo, last.into(), fixed[2], fixed[3], fixed[4]];
    let sum = Sum::of_pairs(&head).then(Sum::of_pairs(&options)).then(text.sum);
    fixed[4] |= u64::from(sum.checksum()) << 16;
    let mut bytes = [0; BYTES];
    let (chunks, rest) = bytes.as_chunks_mut::<8>();
    for (chunk, pair) in chunks.iter_mut().zip(fixed.iter().chain(&options)) {
        *chunk = pair.to_be_bytes();
    }
    rest.copy_from_slice(&last.to_be_bytes());
    Some(bytes)
}

/// An [`Envelope`] as it is written: pairs of words without the length and the checksum, and the
/// sums of the words.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Template {
    /// Version, DSCP, total length; identification, fragments.
    length: u64,
    /// TTL, protocol, checksum; source.
    protocol: u64,
    /// Destination; then the ports.
    destination: u64,
    /// The sum of the IP header.
    ip_sum: u16,
    /// The sum of the pseudo-header, without the destination, which is summed with the ports.
    pseudo_sum: u64,
}

impl Envelope {
    /// What packets in it have in common.
    pub(crate) fn template(&self) -> Template {
        let (source, destination) = (self.source.to_bits(), self.destination.to_bits());
        let first = VERSION << 24 | u32::from(self.traffic_class) << 16;
        let protocol = u32::from(self.hop_limit) << 24 | u32::from(PROTOCOL) << 16;
        Template {
            length: pair(first, DF),
            protocol: pair(protocol, source),
            destination: pair(destination, 0),
            ip_sum: !of_sum(word_sum(&[first, DF, protocol, source, destination])),
            pseudo_sum: u64::from(source) + u64::from(PROTOCOL),
        }
    }
}

#[cfg(test)]
mod tests;
