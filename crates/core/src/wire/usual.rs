//! The segments that nearly all are: in an IPv4 packet without options or fragments, with
//! timestamps as the only TCP option, or those of a SYN as Linux and we write them. Read and
//! written as words, which are summed on the way.
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
//! Whatever else a segment may be, [`ip`](super::ip) and [`tcp`](super::tcp) know; what is wrong
//! with one they say. Both ways give the same for every frame.

use alloc::vec::Vec;
use core::net::Ipv4Addr;

use super::checksum::{Sum, of_words, sum, sum_of, word_sum};
use super::options::OptionWords;
use super::tcp::{Flags, Header, MIN_HEADER_BYTES, PROTOCOL, Segment};
use crate::tcp::{Seq, Tuple};

/// Words of both headers without TCP options.
const FIXED: usize = 10;
/// Words of both headers with timestamps.
const STAMPED: usize = FIXED + 3;
/// Words of both headers of a SYN.
const SYN: usize = FIXED + 5;
/// Bytes that all have.
const HEAD_BYTES: usize = 4 * STAMPED;
/// Bytes of an IP header.
const IP_BYTES: usize = 20;
/// Where the addresses begin in it: what the TCP checksum covers.
const ADDRESSES_AT: usize = 12;
/// Where the TCP checksum lies, in bytes from the start of the packet.
const CHECKSUM_AT: usize = 36;

/// IPv4, and five words of header.
const VERSION: u32 = 0x45;
const DF: u32 = 0x4000;
/// More fragments, and the fragment's offset.
const FRAGMENT: u32 = 0x3fff;

/// Such a segment that has arrived; its IP checksum is right, its TCP checksum was not looked at.
#[derive(Clone, Copy, Debug)]
pub struct Usual<'a> {
    /// The words up to the third of the options.
    head: &'a [u8; HEAD_BYTES],
    /// The other two that a SYN has.
    more: Option<&'a [u8; 8]>,
    payload: &'a [u8],
}

/// The packet around a segment that is to be sent.
#[derive(Clone, Copy, Debug)]
pub struct Envelope {
    /// From whom.
    pub source: Ipv4Addr,
    /// To whom.
    pub destination: Ipv4Addr,
    /// DSCP and ECN.
    pub traffic_class: u8,
    /// TTL.
    pub hop_limit: u8,
    /// Which packet a fragment belongs to.
    pub identification: u16,
    /// Routers must not cut it.
    pub dont_fragment: bool,
}

impl<'a> Usual<'a> {
    /// The segment in the IP packet `bytes`, if it is of this kind and sound so far.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Option<Usual<'a>> {
        let head = bytes.first_chunk::<HEAD_BYTES>()?;
        let word = |index| word_of(head, index);
        let unusual = (word(0) >> 24 ^ VERSION)
            | (word(1) & FRAGMENT)
            | (word(2) >> 16 & 0xff ^ u32::from(PROTOCOL));
        let has_ports = word(5) & 0xffff != 0 && word(5) >> 16 != 0;
        let ip = head.first_chunk::<IP_BYTES>()?;
        if unusual != 0 || !has_ports || !sum_of(ip).is_valid() {
            return None;
        }
        let (more, start) = match word(8) >> 28 {
            8 => (None, HEAD_BYTES),
            10 => (Some(bytes.get(HEAD_BYTES..)?.first_chunk()?), HEAD_BYTES + 8),
            _ => return None,
        };
        let payload = bytes.get(start..(word(0) & 0xffff) as usize)?;
        let usual = Usual { head, more, payload };
        usual.options().are_sound().then_some(usual)
    }

    #[inline]
    fn word(&self, index: usize) -> u32 {
        word_of(self.head, index)
    }

    /// The sender's address.
    #[inline]
    pub fn source(&self) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.word(3))
    }

    /// The receiver's address.
    #[inline]
    pub fn destination(&self) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.word(4))
    }

    /// DSCP and ECN.
    #[inline]
    pub fn traffic_class(&self) -> u8 {
        (self.word(0) >> 16) as u8
    }

    /// Sender and receiver, as the receiver sees them.
    #[inline]
    pub fn tuple(&self) -> Tuple {
        let [source, destination, ports] = [3, 4, 5].map(|index| self.word(index));
        let (ours, theirs) = ([0, destination.into()], [0, source.into()]);
        Tuple::from_words(ours, theirs, ports.rotate_left(16), false)
    }

    /// True if the TCP checksum is right (RFC 9293 MUST-3).
    #[inline]
    pub fn verify_checksum(&self) -> bool {
        // With 16 bits of length, less the IP header's, the protocol number has room.
        let len = (self.word(0) as u16).wrapping_sub(IP_BYTES as u16);
        let from_addresses = self.head.last_chunk::<{ HEAD_BYTES - ADDRESSES_AT }>();
        let mut all = from_addresses.map_or(Sum::ZERO, sum_of);
        all = all.then_u16(len.wrapping_add(PROTOCOL.into()));
        if let Some(more) = self.more {
            all = all.then(sum_of(more));
        }
        if self.payload.is_empty() { all } else { all.then(sum(self.payload)) }.is_valid()
    }

    /// The options.
    #[inline]
    fn options(&self) -> OptionWords {
        let [first, second, third] = [10, 11, 12].map(|index| self.word(index));
        match self.more.map(|more| [0, 1].map(|index| word_of(more, index))) {
            None => OptionWords::Stamped([first, second, third]),
            Some([fourth, fifth]) => OptionWords::Syn([first, second, third, fourth, fifth]),
        }
    }

    /// The segment.
    #[inline]
    pub fn segment(&self) -> Segment<'a> {
        let ports = self.word(5);
        Segment {
            source_port: (ports >> 16) as u16,
            destination_port: ports as u16,
            seq: Seq(self.word(6)),
            ack: Seq(self.word(7)),
            flags: Flags((self.word(8) >> 16) as u8),
            window: self.word(8) as u16,
            urgent: self.word(9) as u16,
            options: self.options().options(),
            payload: self.payload,
        }
    }
}

/// The `index`th big-endian word of a header.
#[inline(always)]
fn word_of<const N: usize>(header: &[u8; N], index: usize) -> u32 {
    u32::from_be_bytes(header.as_chunks::<4>().0[index])
}

/// Appends the packet of `header` up to its payload, which `append` appends and sums;
/// `payload_len`: how many bytes that will be. False, and nothing appended, if its options are not
/// of this kind, or the packet would be too long for its length field.
#[inline]
pub fn emit(
    envelope: &Envelope,
    header: &Header,
    payload_len: usize,
    out: &mut Vec<u8>,
    append: impl FnOnce(&mut Vec<u8>) -> Sum,
) -> bool {
    match header.options.words() {
        Some(OptionWords::Stamped(words)) => {
            emit_words::<3, STAMPED>(envelope, header, words, payload_len, out, append)
        }
        Some(OptionWords::Syn(words)) => {
            emit_words::<5, SYN>(envelope, header, words, payload_len, out, append)
        }
        None => false,
    }
}

#[inline]
fn emit_words<const OPTIONS: usize, const ALL: usize>(
    envelope: &Envelope,
    header: &Header,
    options: [u32; OPTIONS],
    payload_len: usize,
    out: &mut Vec<u8>,
    append: impl FnOnce(&mut Vec<u8>) -> Sum,
) -> bool {
    let Ok(total_len) = u16::try_from(4 * ALL + payload_len) else { return false };
    let tcp_len = u64::from(total_len) - IP_BYTES as u64;
    let header_words = (MIN_HEADER_BYTES / 4 + OPTIONS) as u32;
    let [ports, seq, ack, flags, urgent] = header.fixed_words(header_words);
    let mut words = [0; ALL];
    words[..FIXED].copy_from_slice(&[
        VERSION << 24 | u32::from(envelope.traffic_class) << 16 | u32::from(total_len),
        (u32::from(envelope.identification) << 16) | (u32::from(envelope.dont_fragment) * DF),
        u32::from(envelope.hop_limit) << 24 | u32::from(PROTOCOL) << 16,
        envelope.source.to_bits(),
        envelope.destination.to_bits(),
        ports,
        seq,
        ack,
        flags,
        urgent,
    ]);
    words[FIXED..].copy_from_slice(&options);
    words[2] |= u32::from(of_words(&words[..5]));
    let head = Sum::of_big_endian(word_sum(&words[3..]) + u64::from(PROTOCOL) + tcp_len);
    let field = out.len() + CHECKSUM_AT;
    let bytes = words.map(u32::to_be_bytes);
    out.extend_from_slice(bytes.as_flattened());
    let checksum = if payload_len == 0 { head } else { head.then(append(out)) }.checksum();
    out[field..field + 2].copy_from_slice(&checksum.to_be_bytes());
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::options::{Options, Timestamps};
    use crate::wire::tcp::checksum;
    use crate::wire::{ip, tcp};
    use proptest::collection::vec;
    use proptest::prelude::*;

    /// The same packet as the other modules write it.
    fn plain(envelope: &Envelope, header: &Header, payload: &[u8]) -> Vec<u8> {
        let (source, destination) = (envelope.source.into(), envelope.destination.into());
        let len = header.header_len() + payload.len();
        let mut ip = ip::Header::new(source, destination, PROTOCOL, len).unwrap();
        ip.traffic_class = envelope.traffic_class;
        ip.hop_limit = envelope.hop_limit;
        ip.identification = envelope.identification;
        ip.dont_fragment = envelope.dont_fragment;
        let mut bytes = Vec::new();
        ip.emit(&mut bytes);
        header.emit(&mut bytes);
        let value = checksum(source, destination, &bytes[20..], sum(payload), payload.len());
        bytes[CHECKSUM_AT..][..2].copy_from_slice(&value.to_be_bytes());
        bytes.extend_from_slice(payload);
        bytes
    }

    fn any_envelope() -> impl Strategy<Value = Envelope> {
        any::<([u8; 8], u8, u8, u16, bool)>().prop_map(|(addresses, class, hops, id, df)| {
            let [a, b, c, d, e, f, g, h] = addresses;
            Envelope {
                source: Ipv4Addr::new(a, b, c, d),
                destination: Ipv4Addr::new(e, f, g, h),
                traffic_class: class,
                hop_limit: hops,
                identification: id,
                dont_fragment: df,
            }
        })
    }

    fn any_header() -> impl Strategy<Value = Header> {
        any::<((u16, u16), (u32, u32), u8, (u16, u16), (u32, u32), Option<(u16, u8)>)>().prop_map(
            |(ports, numbers, flags, words, stamps, syn)| Header {
                source_port: ports.0.max(1),
                destination_port: ports.1.max(1),
                seq: Seq(numbers.0),
                ack: Seq(numbers.1),
                flags: Flags(flags),
                window: words.0,
                urgent: words.1,
                options: Options {
                    timestamps: Some(Timestamps { value: stamps.0, echo: stamps.1 }),
                    mss: syn.map(|syn| syn.0),
                    window_scale: syn.map(|syn| syn.1),
                    sack_permitted: syn.is_some(),
                    ..Options::NONE
                },
            },
        )
    }

    proptest! {
        #[test]
        fn it_is_written_and_read_as_by_the_others(
            envelope in any_envelope(), header in any_header(), payload in vec(any::<u8>(), 0..200),
            padding in 0usize..4,
        ) {
            let mut bytes = Vec::new();
            let append = |out: &mut Vec<u8>| {
                out.extend_from_slice(&payload);
                sum(&payload)
            };
            let len = payload.len();
            prop_assert!(emit(&envelope, &header, len, &mut bytes, append));
            prop_assert_eq!(&bytes, &plain(&envelope, &header, &payload));
            bytes.resize(bytes.len() + padding, 0xee);
            let usual = Usual::parse(&bytes).unwrap();
            prop_assert!(usual.verify_checksum());
            prop_assert_eq!(usual.traffic_class(), envelope.traffic_class);
            prop_assert_eq!((usual.source(), usual.destination()),
                (envelope.source, envelope.destination));
            let packet = ip::Packet::parse(&bytes).unwrap();
            prop_assert_eq!(usual.segment(), Segment::parse(packet.payload).unwrap());
        }

        /// Whatever one flipped bit makes of it: what is taken for usual is read the same way, and
        /// what is not sound is left to the others.
        #[test]
        fn a_damaged_one_is_read_as_the_others_read_it(
            envelope in any_envelope(), header in any_header(), payload in vec(any::<u8>(), 0..50),
            flip in 0usize..8 * 100, cut in 0usize..60,
        ) {
            let mut bytes = plain(&envelope, &header, &payload);
            let at = flip / 8 % bytes.len();
            bytes[at] ^= 1 << (flip % 8);
            bytes.truncate(bytes.len() - cut.saturating_sub(30).min(bytes.len()));
            if let Some(usual) = Usual::parse(&bytes) {
                let packet = ip::Packet::parse(&bytes).unwrap();
                prop_assert_eq!(Segment::parse(packet.payload), Ok(usual.segment()));
                let good = tcp::verify_checksum(packet.payload, packet.source, packet.destination);
                prop_assert_eq!(usual.verify_checksum(), good);
                prop_assert!(packet.fragment.is_none() && packet.protocol == PROTOCOL);
            }
        }
    }

    #[test]
    fn a_packet_one_byte_too_long_is_not_written() {
        let envelope = Envelope {
            source: Ipv4Addr::LOCALHOST,
            destination: Ipv4Addr::LOCALHOST,
            traffic_class: 0,
            hop_limit: 1,
            identification: 0,
            dont_fragment: true,
        };
        let header = Header {
            source_port: 1,
            destination_port: 2,
            seq: Seq(0),
            ack: Seq(0),
            flags: Flags::ACK,
            window: 0,
            urgent: 0,
            options: Options { timestamps: Some(Timestamps::default()), ..Options::NONE },
        };
        let fits = 65_535 - 4 * STAMPED;
        for (len, written) in [(fits, true), (fits + 1, false)] {
            let mut out = Vec::new();
            let done = emit(&envelope, &header, len, &mut out, |out| {
                out.resize(out.len() + len, 0);
                Sum::ZERO
            });
            assert_eq!((done, out.is_empty()), (written, !written));
        }
    }
}
