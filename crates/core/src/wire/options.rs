//! TCP options (RFC 9293 §3.2): MSS, window scale and timestamps (RFC 7323), selective
//! acknowledgements (RFC 2018), and the experimental kinds (RFC 6994).
//!
//! ```text
//!   on a SYN    mss 4 │ sack permitted 2, timestamps 10 │ nop, scale 3 │ experimental ≤ 20
//!            or mss 4 │ nop, scale 3 │ sack permitted 2, timestamps 10 │ …  (Layout::ScaleFirst)
//!   later       nop nop timestamps 12 │ experimental │ nop nop sack 4 + 8·n
//! ```
//!
//! Every group is a multiple of four bytes. All but the SACK blocks fit in 40 bytes together by
//! their types alone; the blocks are cut to what is left.

use alloc::vec::Vec;

use super::{Malformed, u32_at};
use crate::flow::Seq;

/// Bytes of options that a header holds at most (RFC 9293 §3.1: data offset 15).
pub const MAX_OPTIONS_BYTES: usize = 40;

/// Most SACK blocks in a segment (RFC 2018 §3).
pub(crate) const MAX_SACK_BLOCKS: usize = 4;

/// Bytes of experimental options that are kept: what a SYN has left beside all the others.
pub(crate) const MAX_EXPERIMENTAL_BYTES: usize = 20;

/// Kinds, as IANA numbers them.
mod kind {
    pub(super) const END: u8 = 0;
    pub(super) const NOP: u8 = 1;
    pub(super) const MSS: u8 = 2;
    pub(super) const WINDOW_SCALE: u8 = 3;
    pub(super) const SACK_PERMITTED: u8 = 4;
    pub(super) const SACK: u8 = 5;
    pub(super) const TIMESTAMPS: u8 = 8;
}

/// The options that nearly every segment has, as big-endian words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OptionWords {
    /// Timestamps alone.
    Stamped([u32; 3]),
    /// All that a SYN offers, in the default layout.
    Syn([u32; 5]),
}

impl OptionWords {
    /// How timestamps begin where they are the only option: two fillers, kind and length.
    const STAMPS: u32 = u32::from_be_bytes([kind::NOP, kind::NOP, kind::TIMESTAMPS, 10]);
    const MSS: u32 = u32::from_be_bytes([kind::MSS, 4, 0, 0]);
    const PERMITTED: u32 = u32::from_be_bytes([kind::SACK_PERMITTED, 2, kind::TIMESTAMPS, 10]);
    const SCALE: u32 = u32::from_be_bytes([kind::NOP, kind::WINDOW_SCALE, 3, 0]);

    /// All that a SYN offers.
    pub(crate) fn of_syn(mss: u16, scale: u8, Timestamps { value, echo }: Timestamps) -> [u32; 5] {
        let (mss, scale) = (Self::MSS | u32::from(mss), Self::SCALE | u32::from(scale));
        [mss, Self::PERMITTED, value, echo, scale]
    }

    /// True if options that begin like this, in three words, are timestamps alone.
    pub(crate) fn are_stamps(first: u32) -> bool {
        first == Self::STAMPS
    }

    /// True if words that have arrived are such options.
    pub(crate) fn are_sound(&self) -> bool {
        match self {
            OptionWords::Stamped([first, ..]) => Self::are_stamps(*first),
            OptionWords::Syn([mss, permitted, _, _, scale]) => {
                mss >> 16 == Self::MSS >> 16
                    && *permitted == Self::PERMITTED
                    && scale >> 8 == Self::SCALE >> 8
            }
        }
    }

    /// The options.
    pub(crate) fn options(&self) -> Options {
        match *self {
            OptionWords::Stamped([_, value, echo]) => {
                Options { timestamps: Some(Timestamps { value, echo }), ..Options::NONE }
            }
            OptionWords::Syn([mss, _, value, echo, scale]) => Options {
                mss: Some(mss as u16),
                window_scale: Some(scale as u8),
                sack_permitted: true,
                timestamps: Some(Timestamps { value, echo }),
                ..Options::NONE
            },
        }
    }
}

/// The options of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Options {
    /// Maximum segment size: bytes of payload and options (RFC 6691).
    pub mss: Option<u16>,
    /// Window scale, in bits, as received: RFC 7323 §2.3 takes more than 14 as 14.
    pub window_scale: Option<u8>,
    /// Selective acknowledgements are permitted (RFC 2018 §2).
    pub sack_permitted: bool,
    /// Timestamps (RFC 7323 §3).
    pub timestamps: Option<Timestamps>,
    /// Selective acknowledgements (RFC 2018 §3), or a duplicate one first (RFC 2883).
    pub sack: SackBlocks,
    /// Options of kinds 253 and 254.
    pub experimental: Experimental,
    /// In which order a SYN's options are written; of parsed ones always the default.
    pub layout: Layout,
}

/// The order of a SYN's options, which no RFC prescribes; some middleboxes and some test suites
/// know a sender by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Layout {
    /// MSS, SACK permitted, timestamps, window scale: as Linux.
    #[default]
    ScaleLast,
    /// MSS, window scale, SACK permitted, timestamps, filled up at the end: as the BSDs.
    ScaleFirst,
}

/// TSval and TSecr.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Timestamps {
    /// TSval: the sender's timestamp clock.
    pub value: u32,
    /// TSecr: the timestamp echoed; means something only beside ACK.
    pub echo: u32,
}

impl Timestamps {
    fn from_bytes(bytes: &[u8; 8]) -> Timestamps {
        let both = u64::from_be_bytes(*bytes);
        Timestamps { value: (both >> 32) as u32, echo: both as u32 }
    }

    /// The words of a header that has them as its only option.
    pub(crate) fn words(self) -> [u32; 3] {
        [OptionWords::STAMPS, self.value, self.echo]
    }

    fn to_bytes(self) -> [u8; 8] {
        (u64::from(self.value) << 32 | u64::from(self.echo)).to_be_bytes()
    }
}

impl Options {
    /// None at all.
    pub const NONE: Options = Options {
        mss: None,
        window_scale: None,
        sack_permitted: false,
        timestamps: None,
        sack: SackBlocks::EMPTY,
        experimental: Experimental::EMPTY,
        layout: Layout::ScaleLast,
    };

    /// The options in a header's bytes after the first 20.
    ///
    /// A length that makes the walk impossible (0, 1, or beyond the header) makes the segment
    /// malformed (RFC 9293 MUST-7). The RFC suggests to reset the connection; dropping the segment,
    /// counted, does not let a stranger's forgery do that. An option of another length than its
    /// kind's is taken for one that we do not know and ignored (MUST-6). If an option comes
    /// twice, the last one counts.
    pub fn parse(bytes: &[u8]) -> Result<Options, Malformed> {
        // What nearly every segment carries, as RFC 7323 Appendix A recommends to lay it out.
        if let &[kind::NOP, kind::NOP, kind::TIMESTAMPS, 10, ref stamps @ ..] = bytes
            && let Ok(stamps) = <&[u8; 8]>::try_from(stamps)
        {
            let timestamps = Some(Timestamps::from_bytes(stamps));
            return Ok(Options { timestamps, ..Options::NONE });
        }
        if bytes.is_empty() { Ok(Options::NONE) } else { Options::parse_any(bytes) }
    }

    fn parse_any(mut bytes: &[u8]) -> Result<Options, Malformed> {
        let mut options = Options::NONE;
        while let Some((&kind, rest)) = bytes.split_first() {
            bytes = match kind {
                kind::END => break,
                kind::NOP => rest,
                _ => {
                    let len = usize::from(*rest.first().ok_or(Malformed::TcpOptionLength)?);
                    let value = bytes.get(2..len).ok_or(Malformed::TcpOptionLength)?;
                    options.take(kind, value);
                    &bytes[len..]
                }
            };
        }
        Ok(options)
    }

    /// Takes in one option of known shape; ignores any other.
    fn take(&mut self, kind: u8, value: &[u8]) {
        match (kind, value) {
            (kind::MSS, &[a, b]) => self.mss = Some(u16::from_be_bytes([a, b])),
            (kind::WINDOW_SCALE, &[shift]) => self.window_scale = Some(shift),
            (kind::SACK_PERMITTED, &[]) => self.sack_permitted = true,
            (kind::SACK, blocks) => {
                if let Some(blocks) = SackBlocks::parse(blocks) {
                    self.sack = blocks;
                }
            }
            (kind::TIMESTAMPS, value) => {
                if let Ok(stamps) = <&[u8; 8]>::try_from(value) {
                    self.timestamps = Some(Timestamps::from_bytes(stamps));
                }
            }
            (Experimental::KIND_253 | Experimental::KIND_254, data) => {
                self.experimental.push(kind, data);
            }
            _ => {}
        }
    }

    /// Bytes that [`Options::emit`] appends: a multiple of 4, at most [`MAX_OPTIONS_BYTES`].
    pub fn len(&self) -> usize {
        if self.lone_timestamps().is_some() { 12 } else { self.len_of_all() }
    }

    /// The timestamps, if there is nothing else: what nearly every segment carries.
    pub(crate) fn lone_timestamps(&self) -> Option<Timestamps> {
        let others = self.mss.is_some()
            || self.window_scale.is_some()
            || self.sack_permitted
            || !self.sack.is_empty()
            || !self.experimental.is_empty();
        self.timestamps.filter(|_| !others)
    }

    fn len_of_all(&self) -> usize {
        let sack = self.sack_room().min(self.sack.len());
        self.len_without_sack() + if sack > 0 { 4 + 8 * sack } else { 0 }
    }

    /// True if there is no option.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many SACK blocks fit beside the other options; what is beyond is not emitted.
    pub fn sack_room(&self) -> usize {
        let room = MAX_OPTIONS_BYTES - self.len_without_sack();
        room.saturating_sub(4) / 8
    }

    fn len_without_sack(&self) -> usize {
        let mss = if self.mss.is_some() { 4 } else { 0 };
        let timestamps = match (self.timestamps, self.sack_permitted) {
            (Some(_), _) => 12,
            (None, true) => 4,
            (None, false) => 0,
        };
        let scale = if self.window_scale.is_some() { 4 } else { 0 };
        mss + timestamps + scale + self.experimental.padded_len()
    }

    /// Appends the options, padded to a multiple of 4 bytes.
    pub fn emit(&self, out: &mut Vec<u8>) {
        if let Some(timestamps) = self.lone_timestamps() {
            let mut bytes = [kind::NOP, kind::NOP, kind::TIMESTAMPS, 10, 0, 0, 0, 0, 0, 0, 0, 0];
            bytes[4..].copy_from_slice(&timestamps.to_bytes());
            return out.extend_from_slice(&bytes);
        }
        if let Some(mss) = self.mss {
            out.extend_from_slice(&[kind::MSS, 4]);
            out.extend_from_slice(&mss.to_be_bytes());
        }
        if self.layout == Layout::ScaleFirst {
            self.emit_scale(out);
        }
        self.emit_permitted(out);
        if let Some(timestamps) = self.timestamps {
            out.extend_from_slice(&[kind::TIMESTAMPS, 10]);
            out.extend_from_slice(&timestamps.to_bytes());
        }
        if self.layout == Layout::ScaleLast {
            self.emit_scale(out);
        }
        self.experimental.emit(out);
        self.sack.emit(self.sack_room(), out);
    }

    fn emit_scale(&self, out: &mut Vec<u8>) {
        if let Some(shift) = self.window_scale {
            out.extend_from_slice(&[kind::NOP, kind::WINDOW_SCALE, 3, shift]);
        }
    }

    /// SACK permitted, or what fills its place: with timestamps behind it two bytes, alone four.
    fn emit_permitted(&self, out: &mut Vec<u8>) {
        const PERMITTED: [u8; 2] = [kind::SACK_PERMITTED, 2];
        const FILLER: [u8; 2] = [kind::NOP; 2];
        let last = self.layout == Layout::ScaleFirst
            && self.experimental.is_empty()
            && self.sack.is_empty();
        match (self.sack_permitted, self.timestamps.is_some()) {
            (true, true) => out.extend_from_slice(&PERMITTED),
            (true, false) if last => {
                out.extend_from_slice(&PERMITTED);
                out.extend_from_slice(&[kind::END; 2]);
            }
            (true, false) => {
                out.extend_from_slice(&FILLER);
                out.extend_from_slice(&PERMITTED);
            }
            (false, true) => out.extend_from_slice(&FILLER),
            (false, false) => {}
        }
    }
}

/// A range of sequence space that has arrived: `start..end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct SackBlock {
    /// The first sequence number of the block.
    pub start: Seq,
    /// The one after its last.
    pub end: Seq,
}

/// At most `MAX_SACK_BLOCKS` blocks, in the order in which they stand in the option: the most
/// recent first (RFC 2018 §4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct SackBlocks {
    /// Blocks at `len` and beyond are the default.
    blocks: [SackBlock; MAX_SACK_BLOCKS],
    len: u8,
}

impl SackBlocks {
    /// No block.
    pub const EMPTY: SackBlocks =
        SackBlocks { blocks: [SackBlock { start: Seq(0), end: Seq(0) }; MAX_SACK_BLOCKS], len: 0 };

    /// Adds a block at the end; false if there is no room.
    pub fn push(&mut self, block: SackBlock) -> bool {
        match self.blocks.get_mut(usize::from(self.len)) {
            Some(place) => {
                *place = block;
                self.len += 1;
                true
            }
            None => false,
        }
    }

    /// The blocks.
    pub fn as_slice(&self) -> &[SackBlock] {
        &self.blocks[..usize::from(self.len)]
    }

    /// The blocks, in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = SackBlock> + '_ {
        self.as_slice().iter().copied()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        usize::from(self.len)
    }

    /// True if there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The blocks in an option's value, or `None` if it holds no whole number of them from 1 to 4.
    fn parse(value: &[u8]) -> Option<SackBlocks> {
        let (raw, rest) = value.as_chunks::<8>();
        if raw.is_empty() || raw.len() > MAX_SACK_BLOCKS || !rest.is_empty() {
            return None;
        }
        let mut blocks = SackBlocks::EMPTY;
        for block in raw {
            let (start, end) = (u32_at(block, 0)?, u32_at(block, 4)?);
            blocks.push(SackBlock { start: Seq(start), end: Seq(end) });
        }
        Some(blocks)
    }

    fn emit(&self, room: usize, out: &mut Vec<u8>) {
        let blocks = &self.as_slice()[..room.min(self.len())];
        if blocks.is_empty() {
            return;
        }
        out.extend_from_slice(&[kind::NOP, kind::NOP, kind::SACK, 2 + 8 * blocks.len() as u8]);
        for block in blocks {
            out.extend_from_slice(&block.start.0.to_be_bytes());
            out.extend_from_slice(&block.end.0.to_be_bytes());
        }
    }
}

/// Options of the experimental kinds (RFC 6994), kept as bytes: their data begins with the 16- or
/// 32-bit experiment identifier. They are kept in order for as long as they fit; those beyond
/// `MAX_EXPERIMENTAL_BYTES` are dropped, as an option that we do not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Experimental {
    /// The options one after the other, each with its kind and length. Zeros beyond `len`.
    bytes: [u8; MAX_EXPERIMENTAL_BYTES],
    len: u8,
}

impl Experimental {
    /// None.
    pub const EMPTY: Experimental = Experimental { bytes: [0; MAX_EXPERIMENTAL_BYTES], len: 0 };

    /// The first of the experimental kinds.
    pub(crate) const KIND_253: u8 = 253;
    /// The second of the experimental kinds.
    pub(crate) const KIND_254: u8 = 254;

    /// Adds an option of `kind` (253 or 254) with `data` after its kind and length; false, and
    /// nothing added, if it does not fit or the kind is another.
    pub fn push(&mut self, kind: u8, data: &[u8]) -> bool {
        let start = usize::from(self.len);
        let len = 2 + data.len();
        let known = matches!(kind, Self::KIND_253 | Self::KIND_254);
        if !known || start + len > MAX_EXPERIMENTAL_BYTES {
            return false;
        }
        self.bytes[start] = kind;
        self.bytes[start + 1] = len as u8;
        self.bytes[start + 2..start + len].copy_from_slice(data);
        self.len += len as u8;
        true
    }

    /// The options, each as its kind and data.
    pub fn iter(&self) -> impl Iterator<Item = (u8, &[u8])> {
        let mut rest = &self.bytes[..usize::from(self.len)];
        core::iter::from_fn(move || {
            // Only `push` writes the bytes, so every option is whole.
            let (&kind, len) = (rest.first()?, usize::from(*rest.get(1)?));
            let (option, after) = rest.split_at_checked(len)?;
            rest = after;
            Some((kind, option.get(2..)?))
        })
    }

    /// True if there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    fn padded_len(&self) -> usize {
        usize::from(self.len).next_multiple_of(4)
    }

    fn emit(&self, out: &mut Vec<u8>) {
        let bytes = &self.bytes[..usize::from(self.len)];
        // Filler in front: an end-of-list behind would hide the SACK option.
        out.resize(out.len() + self.padded_len() - bytes.len(), kind::NOP);
        out.extend_from_slice(bytes);
    }
}

/// The MSS to put on a SYN for a largest IP packet of `mtu` bytes: without IP and TCP options
/// (RFC 6691 §2).
pub(crate) const fn mss_for_mtu(mtu: u16, ipv6: bool) -> u16 {
    mtu.saturating_sub(if ipv6 { 60 } else { 40 })
}

/// The smallest shift by which 16 bits express a window of `bytes` (RFC 7323 §2.3: 14 at most).
pub(crate) fn shift_for(bytes: u32) -> u8 {
    16u8.saturating_sub(bytes.leading_zeros() as u8).min(14)
}

#[cfg(test)]
pub(crate) mod tests;
