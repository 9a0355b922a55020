//! TCP segments (RFC 9293 §3.1): a checked view of what arrives, and the headers of what leaves.
//!
//! ```text
//!    0      2      4          8          12   13    14     16         18
//!   ┌──────┬──────┬──────────┬──────────┬────┬─────┬──────┬──────────┬────────┬─────────┬─────────
//!   │source│ dest │ sequence │   ack    │ ×4 │flags│window│ checksum │ urgent │ options │ payload
//!   └──────┴──────┴──────────┴──────────┴────┴─────┴──────┴──────────┴────────┴─────────┴─────────
//! ```

use alloc::vec::Vec;
use core::fmt;
use core::net::IpAddr;
use core::ops::{BitOr, BitOrAssign};

use super::Malformed;
use super::checksum::{Sum, pseudo_header, sum};
use super::options::{Options, Timestamps};
use crate::flow::Seq;

/// TCP's number in the IP header.
pub const PROTOCOL: u8 = 6;

/// Bytes of a header without options.
pub const MIN_HEADER_BYTES: usize = 20;

/// Where the checksum field is, in bytes from the start of the header.
pub const CHECKSUM_OFFSET: usize = 16;

/// The control bits. A set.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Flags(pub u8);

#[allow(missing_docs, reason = "the names are RFC 9293's own")]
impl Flags {
    pub const EMPTY: Flags = Flags(0);
    pub const FIN: Flags = Flags(0x01);
    pub const SYN: Flags = Flags(0x02);
    pub const RST: Flags = Flags(0x04);
    pub const PSH: Flags = Flags(0x08);
    pub const ACK: Flags = Flags(0x10);
    pub const URG: Flags = Flags(0x20);
    pub const ECE: Flags = Flags(0x40);
    pub const CWR: Flags = Flags(0x80);
}

impl Flags {
    /// True if every bit of `other` is set here.
    pub const fn contains(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }

    /// True if any bit of `other` is set here.
    pub(crate) const fn intersects(self, other: Flags) -> bool {
        self.0 & other.0 != 0
    }

    /// These without those of `other`.
    #[must_use]
    pub const fn without(self, other: Flags) -> Flags {
        Flags(self.0 & !other.0)
    }

    /// True if no bit is set.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl BitOr for Flags {
    type Output = Flags;
    fn bitor(self, rhs: Flags) -> Flags {
        Flags(self.0 | rhs.0)
    }
}

impl BitOrAssign for Flags {
    fn bitor_assign(&mut self, rhs: Flags) {
        self.0 |= rhs.0;
    }
}

/// In tcpdump's letters: `S.` is SYN and ACK, `none` the empty set.
impl fmt::Display for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("none");
        }
        let letters = [
            (Flags::FIN, "F"),
            (Flags::SYN, "S"),
            (Flags::RST, "R"),
            (Flags::PSH, "P"),
            (Flags::URG, "U"),
            (Flags::ECE, "E"),
            (Flags::CWR, "W"),
            (Flags::ACK, "."),
        ];
        letters.iter().filter(|(bit, _)| self.contains(*bit)).try_for_each(|(_, l)| f.write_str(l))
    }
}

impl fmt::Debug for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A segment that has arrived: its header checked but for the checksum, its payload borrowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment<'a> {
    /// The sender's port.
    pub source_port: u16,
    /// The receiver's port.
    pub destination_port: u16,
    /// SEG.SEQ.
    pub seq: Seq,
    /// SEG.ACK; means something only beside ACK.
    pub ack: Seq,
    /// The control bits.
    pub flags: Flags,
    /// SEG.WND as it stands in the header, not scaled.
    pub window: u16,
    /// SEG.UP; means something only beside URG.
    pub urgent: u16,
    /// The options.
    pub options: Options,
    /// The text.
    pub payload: &'a [u8],
}

/// The fields of a segment as nearly all are: with no options but timestamps, and not urgent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PlainSegment<'a> {
    /// SEG.SEQ.
    pub seq: Seq,
    /// SEG.ACK; means something only beside ACK.
    pub ack: Seq,
    /// The control bits.
    pub flags: Flags,
    /// SEG.WND as it stands in the header, not scaled.
    pub window: u16,
    /// TSval and TSecr.
    pub stamps: Option<Timestamps>,
    /// The text.
    pub text: &'a [u8],
}

impl PlainSegment<'_> {
    /// SEG.LEN: the sequence numbers it occupies, SYN and FIN counted (RFC 9293 §3.4).
    pub(crate) fn sequence_len(&self) -> u32 {
        let controls =
            u32::from(self.flags.contains(Flags::SYN)) + u32::from(self.flags.contains(Flags::FIN));
        self.text.len() as u32 + controls
    }

    /// The sequence number after its last one.
    pub(crate) fn end(&self) -> Seq {
        self.seq + self.sequence_len()
    }
}

impl<'a> Segment<'a> {
    /// What it says, where nothing is said but by the fields of a plain one: without SACK blocks
    /// and experiments.
    /// Options that only a SYN may have mean nothing where a plain segment is waited for.
    pub(crate) fn plain(&self) -> Option<PlainSegment<'a>> {
        let is_plain = self.options.sack.is_empty() && self.options.experimental.is_empty();
        is_plain.then(|| self.head())
    }

    /// All but the options other than timestamps, and urgent data.
    pub(crate) fn head(&self) -> PlainSegment<'a> {
        let Segment { seq, ack, flags, window, ref options, payload: text, .. } = *self;
        PlainSegment { seq, ack, flags, window, stamps: options.timestamps, text }
    }

    /// The segment that `bytes`, an IP packet's whole payload, hold. The checksum is not looked at:
    /// see [`verify_checksum`].
    pub fn parse(bytes: &'a [u8]) -> Result<Segment<'a>, Malformed> {
        let header = bytes.first_chunk::<MIN_HEADER_BYTES>().ok_or(Malformed::TcpLength)?;
        let header_len = usize::from(header[12] >> 4) * 4;
        let options = bytes.get(MIN_HEADER_BYTES..header_len).ok_or(Malformed::TcpDataOffset)?;
        let u16_at = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
        let u32_at = |at: usize| u32::from(u16_at(at)) << 16 | u32::from(u16_at(at + 2));
        let (source_port, destination_port) = (u16_at(0), u16_at(2));
        if source_port == 0 || destination_port == 0 {
            return Err(Malformed::TcpPort);
        }
        Ok(Segment {
            source_port,
            destination_port,
            seq: Seq(u32_at(4)),
            ack: Seq(u32_at(8)),
            flags: Flags(header[13]),
            window: u16_at(14),
            urgent: u16_at(18),
            options: Options::parse(options)?,
            payload: &bytes[header_len..],
        })
    }

    /// SEG.LEN: the sequence numbers it occupies, SYN and FIN counted (RFC 9293 §3.4).
    pub fn sequence_len(&self) -> u32 {
        self.head().sequence_len()
    }

    /// The sequence number after its last one.
    pub fn end(&self) -> Seq {
        self.head().end()
    }
}

/// True if the checksum of `bytes`, an IP packet's whole payload, is right (RFC 9293 MUST-3).
pub fn verify_checksum(bytes: &[u8], source: IpAddr, destination: IpAddr) -> bool {
    pseudo_header(source, destination, PROTOCOL, bytes.len() as u32).then(sum(bytes)).is_valid()
}

/// A header to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Our port.
    pub source_port: u16,
    /// The peer's port.
    pub destination_port: u16,
    /// SEG.SEQ.
    pub seq: Seq,
    /// SEG.ACK; sent as it is even without ACK, so make it zero then.
    pub ack: Seq,
    /// The control bits.
    pub flags: Flags,
    /// SEG.WND, already scaled down.
    pub window: u16,
    /// SEG.UP.
    pub urgent: u16,
    /// The options; SACK blocks that do not fit beside the others are left out.
    pub options: Options,
}

impl Header {
    /// A header without options, with a closed window. `ports`: both, ours in the high half.
    pub(crate) fn new(ports: u32, seq: Seq, ack: Seq, flags: Flags) -> Header {
        Header {
            source_port: (ports >> 16) as u16,
            destination_port: ports as u16,
            seq,
            ack,
            flags,
            window: 0,
            urgent: 0,
            options: Options::NONE,
        }
    }

    /// Bytes that [`Header::emit`] appends: 20 to 60, a multiple of 4.
    pub fn header_len(&self) -> usize {
        MIN_HEADER_BYTES + self.options.len()
    }

    /// Appends the header. Its checksum field, [`CHECKSUM_OFFSET`] bytes from its start, is zero:
    /// store there [`checksum`] of it all, or the pseudo-header's folded sum for a device.
    pub fn emit(&self, out: &mut Vec<u8>) {
        let offset = self.header_len() as u32 / 4;
        let words = [
            u32::from(self.source_port) << 16 | u32::from(self.destination_port),
            self.seq.0,
            self.ack.0,
            offset << 28 | u32::from(self.flags.0) << 16 | u32::from(self.window),
            u32::from(self.urgent),
        ];
        let mut fixed = [0; MIN_HEADER_BYTES];
        for (bytes, word) in fixed.as_chunks_mut::<4>().0.iter_mut().zip(words) {
            *bytes = word.to_be_bytes();
        }
        out.extend_from_slice(&fixed);
        self.options.emit(out);
    }
}

/// The checksum of a segment whose header bytes are `header`, with a zero in the checksum field,
/// and whose payload's sum is `payload` (of `payload_len` bytes) (RFC 9293 MUST-2).
pub fn checksum(
    source: IpAddr,
    destination: IpAddr,
    header: &[u8],
    payload: Sum,
    payload_len: usize,
) -> u16 {
    let len = (header.len() + payload_len) as u32;
    pseudo_header(source, destination, PROTOCOL, len).then(sum(header)).then(payload).checksum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::checksum::append_and_sum;
    use crate::wire::options::tests::any_options;
    use proptest::collection::vec;
    use proptest::prelude::*;

    const A: IpAddr = IpAddr::V4(core::net::Ipv4Addr::new(10, 0, 0, 1));
    const B: IpAddr = IpAddr::V4(core::net::Ipv4Addr::new(10, 0, 0, 2));

    fn header() -> Header {
        Header {
            source_port: 1,
            destination_port: 2,
            seq: Seq(3),
            ack: Seq(4),
            flags: Flags::ACK,
            window: 5,
            urgent: 0,
            options: Options::default(),
        }
    }

    fn emitted(header: &Header) -> Vec<u8> {
        let mut out = Vec::new();
        header.emit(&mut out);
        out
    }

    #[test]
    fn a_header_is_laid_out_as_the_rfc_draws_it() {
        let fixed = [0, 1, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4, 0x50, 0x10, 0, 5, 0, 0, 0, 0];
        assert_eq!(emitted(&header()), fixed);
    }

    #[test]
    fn short_segments_and_bad_offsets_are_malformed() {
        let mut bytes = emitted(&header());
        assert!(Segment::parse(&bytes).is_ok());
        assert_eq!(Segment::parse(&bytes[..19]), Err(Malformed::TcpLength));
        bytes[12] = 0x40;
        assert_eq!(Segment::parse(&bytes), Err(Malformed::TcpDataOffset));
        bytes[12] = 0x60;
        assert_eq!(Segment::parse(&bytes), Err(Malformed::TcpDataOffset));
        bytes.extend_from_slice(&[1, 1, 1, 1]);
        assert!(Segment::parse(&bytes).is_ok());
        bytes[20..].copy_from_slice(&[1, 1, 2, 3]);
        assert_eq!(Segment::parse(&bytes), Err(Malformed::TcpOptionLength));
    }

    #[test]
    fn port_zero_is_malformed() {
        for port_byte in [1, 3] {
            let mut bytes = emitted(&header());
            bytes[port_byte] = 0;
            assert_eq!(Segment::parse(&bytes), Err(Malformed::TcpPort));
        }
    }

    #[test]
    fn reserved_bits_are_ignored() {
        let mut bytes = emitted(&header());
        bytes[12] |= 0x0f;
        assert_eq!(Segment::parse(&bytes).unwrap().flags, Flags::ACK);
    }

    #[test]
    fn syn_and_fin_occupy_sequence_space() {
        let mut segment = emitted(&Header { flags: Flags::SYN | Flags::FIN, ..header() });
        segment.extend_from_slice(b"abc");
        let segment = Segment::parse(&segment).unwrap();
        assert_eq!((segment.sequence_len(), segment.end()), (5, Seq(8)));
    }

    #[test]
    fn flags_are_a_set() {
        let flags = Flags::SYN | Flags::ACK;
        assert!(flags.contains(Flags::SYN) && !flags.contains(Flags::SYN | Flags::FIN));
        assert!(flags.intersects(Flags::SYN | Flags::FIN) && !flags.intersects(Flags::RST));
        assert_eq!(flags.without(Flags::ACK), Flags::SYN);
        assert_eq!(std::format!("{flags} {}", Flags::EMPTY), "S. none");
    }

    proptest! {
        #[test]
        fn what_is_emitted_is_parsed_and_its_checksum_verifies(
            ports in (1u16.., 1u16..), numbers: (u32, u32), flags: u8, words: (u16, u16),
            options in any_options(), payload in vec(any::<u8>(), 0..100), flip in 0usize..160,
        ) {
            let header = Header {
                source_port: ports.0,
                destination_port: ports.1,
                seq: Seq(numbers.0),
                ack: Seq(numbers.1),
                flags: Flags(flags),
                window: words.0,
                urgent: words.1,
                options,
            };
            let mut bytes = emitted(&header);
            prop_assert_eq!(bytes.len(), header.header_len());
            let payload_sum = {
                let head = bytes.len();
                let payload_sum = append_and_sum(&mut bytes, &payload);
                let checksum = checksum(A, B, &bytes[..head], payload_sum, payload.len());
                bytes[CHECKSUM_OFFSET..][..2].copy_from_slice(&checksum.to_be_bytes());
                payload_sum
            };
            prop_assert_eq!(payload_sum.fold(), sum(&payload).fold());
            prop_assert!(verify_checksum(&bytes, A, B));
            let segment = Segment::parse(&bytes).unwrap();
            let Segment { source_port, destination_port, seq, ack, window, urgent, .. } = segment;
            let flags = segment.flags;
            let options = segment.options;
            let parsed =
                Header { source_port, destination_port, seq, ack, flags, window, urgent, options };
            prop_assert_eq!(parsed, header);
            prop_assert_eq!(segment.payload, &payload[..]);
            // One flipped bit anywhere is found.
            let at = flip % bytes.len();
            bytes[at] ^= 0x10;
            prop_assert!(!verify_checksum(&bytes, A, B));
        }

        #[test]
        fn any_bytes_are_a_segment_or_malformed(bytes in vec(any::<u8>(), 0..100)) {
            if let Ok(segment) = Segment::parse(&bytes) {
                prop_assert!(segment.payload.len() <= bytes.len() - MIN_HEADER_BYTES);
            }
        }
    }
}
