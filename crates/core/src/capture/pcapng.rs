//! Captures in the pcapng format (draft-ietf-opsawg-pcapng), which Wireshark and tshark read.
//!
//! A file is a section header, an interface description for each device, and a packet block for
//! each frame, all little-endian, with time in nanoseconds. The functions append to a `Vec<u8>`;
//! the owner of the file writes it out. [`Reader`] reads such files back, for tests and tools.
//!
//! ```text
//!   ┌──────┬───────────┬─────────────────────────┬───────────┐
//!   │ type │ total len │ body, padded to 4 bytes │ total len │
//!   └──────┴───────────┴─────────────────────────┴───────────┘
//! ```

use alloc::vec::Vec;
use core::fmt;

use crate::frame::Medium;
use crate::time::Instant;

/// Block types.
mod block {
    pub(super) const SECTION: u32 = 0x0a0d_0d0a;
    pub(super) const INTERFACE: u32 = 1;
    pub(super) const PACKET: u32 = 6;
}

/// Link types, as tcpdump.org numbers them.
mod link_type {
    pub(super) const ETHERNET: u16 = 1;
    pub(super) const RAW_IP: u16 = 101;
}

/// Option codes.
mod option {
    pub(super) const END: u16 = 0;
    pub(super) const INTERFACE_NAME: u16 = 2;
    pub(super) const INTERFACE_RESOLUTION: u16 = 9;
    pub(super) const PACKET_FLAGS: u16 = 2;
}

const BYTE_ORDER_MAGIC: u32 = 0x1a2b_3c4d;

/// Time stamps count 10^-9 s.
const NANOSECONDS: u8 = 9;

/// Longest interface name written, in bytes.
const MAX_NAME_BYTES: usize = 255;

/// Which way a frame went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// It arrived.
    Inbound,
    /// We sent it.
    Outbound,
}

/// Appends a section header: the beginning of a file.
pub fn section(out: &mut Vec<u8>) {
    block(block::SECTION, out, |out| {
        out.extend_from_slice(&BYTE_ORDER_MAGIC.to_le_bytes());
        out.extend_from_slice(&1u16.to_le_bytes());
        out.extend_from_slice(&0u16.to_le_bytes());
        out.extend_from_slice(&u64::MAX.to_le_bytes()); // Section length: not said.
    });
}

/// Appends the description of an interface. Interfaces are numbered in the order of their
/// descriptions, from 0. If the name is longer than 255 bytes, its beginning is written.
pub fn interface(medium: Medium, name: &str, out: &mut Vec<u8>) {
    let link_type = match medium {
        Medium::Ethernet => link_type::ETHERNET,
        Medium::Ip => link_type::RAW_IP,
    };
    let mut end = name.len().min(MAX_NAME_BYTES);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    block(block::INTERFACE, out, |out| {
        out.extend_from_slice(&link_type.to_le_bytes());
        out.extend_from_slice(&[0; 2]);
        out.extend_from_slice(&0u32.to_le_bytes()); // No limit on a packet's length.
        option_value(option::INTERFACE_NAME, &name.as_bytes()[..end], out);
        option_value(option::INTERFACE_RESOLUTION, &[NANOSECONDS], out);
        option_value(option::END, &[], out);
    });
}

/// Appends a frame that went through interface number `interface`. `time` counts from the epoch
/// that the file's reader should show: 1970 for wall time. A frame of 4 GiB or more is cut, as the
/// format asks; there is none.
pub fn packet(
    interface: u32,
    time: Instant,
    direction: Option<Direction>,
    frame: &[u8],
    out: &mut Vec<u8>,
) {
    cut_packet(interface, time, direction, frame, u32::MAX, out);
}

/// Appends a packet block as [`packet`] does, but with the first `most` bytes of the frame only,
/// and its whole length.
pub fn cut_packet(
    interface: u32,
    time: Instant,
    direction: Option<Direction>,
    frame: &[u8],
    most: u32,
    out: &mut Vec<u8>,
) {
    let original = u32::try_from(frame.len()).unwrap_or(u32::MAX);
    let len = original.min(most);
    let ns = time.as_nanos();
    block(block::PACKET, out, |out| {
        let high_and_low = [(ns >> 32) as u32, ns as u32];
        for field in [interface, high_and_low[0], high_and_low[1], len, original] {
            out.extend_from_slice(&field.to_le_bytes());
        }
        out.extend_from_slice(&frame[..len as usize]);
        pad(out, len as usize);
        if let Some(direction) = direction {
            let flags: u32 = match direction {
                Direction::Inbound => 1,
                Direction::Outbound => 2,
            };
            option_value(option::PACKET_FLAGS, &flags.to_le_bytes(), out);
            option_value(option::END, &[], out);
        }
    });
}

/// Appends a block around what `body` appends, which must be a multiple of 4 bytes.
fn block(kind: u32, out: &mut Vec<u8>, body: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&kind.to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    body(out);
    let len = (out.len() - start + 4) as u32;
    out[start + 4..start + 8].copy_from_slice(&len.to_le_bytes());
    out.extend_from_slice(&len.to_le_bytes());
}

/// Appends an option; its value is at most 65,535 bytes long.
fn option_value(code: u16, value: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&code.to_le_bytes());
    out.extend_from_slice(&(value.len() as u16).to_le_bytes());
    out.extend_from_slice(value);
    pad(out, value.len());
}

fn pad(out: &mut Vec<u8>, len: usize) {
    out.resize(out.len() + (len.next_multiple_of(4) - len), 0);
}

/// A block read back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Block<'a> {
    /// The beginning of a file.
    Section,
    /// A device.
    Interface {
        /// What its frames start with; `None`: with something that we do not know.
        medium: Option<Medium>,
    },
    /// A frame.
    Packet {
        /// The number of its interface.
        interface: u32,
        /// When it went by.
        time: Instant,
        /// Which way, if that was said.
        direction: Option<Direction>,
        /// Its length on the wire, in bytes.
        original_len: u32,
        /// Its bytes, as many as were captured.
        bytes: &'a [u8],
    },
    /// Another block, of this type.
    Other(u32),
}

/// Why a capture cannot be read on: where, in bytes from its start, and what is wrong there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadError {
    /// Bytes before the block that cannot be read.
    pub offset: usize,
    /// The mistake in it.
    pub what: &'static str,
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "capture, byte {}: {}", self.offset, self.what)
    }
}

impl core::error::Error for ReadError {}

/// Reads the blocks of a little-endian capture whose time is in nanoseconds, such as ours. Ends
/// after the first error.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    offset: usize,
}

impl<'a> Reader<'a> {
    /// A reader of a whole file's bytes.
    pub fn new(bytes: &'a [u8]) -> Self {
        Reader { bytes, offset: 0 }
    }

    /// The block at the offset, and its length.
    fn read(&self) -> Result<(Block<'a>, usize), &'static str> {
        let rest = &self.bytes[self.offset..];
        let cut = "the block is cut short";
        let kind = u32_le(rest, 0).ok_or(cut)?;
        let len = u32_le(rest, 4).ok_or(cut)? as usize;
        if kind == block::SECTION && u32_le(rest, 8) != Some(BYTE_ORDER_MAGIC) {
            return Err("the section is not little-endian");
        }
        if len < 12 || !len.is_multiple_of(4) {
            return Err("the block's length is impossible");
        }
        let whole = rest.get(..len).ok_or(cut)?;
        if u32_le(whole, len - 4) != Some(len as u32) {
            return Err("the block's two lengths differ");
        }
        let body = &whole[8..len - 4];
        let block = match kind {
            block::SECTION => Block::Section,
            block::INTERFACE => read_interface(body)?,
            block::PACKET => read_packet(body).ok_or(cut)?,
            kind => Block::Other(kind),
        };
        Ok((block, len))
    }
}

impl<'a> Iterator for Reader<'a> {
    type Item = Result<Block<'a>, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.offset >= self.bytes.len() {
            return None;
        }
        let offset = self.offset;
        match self.read() {
            Ok((block, len)) => {
                self.offset += len;
                Some(Ok(block))
            }
            Err(what) => {
                self.offset = self.bytes.len();
                Some(Err(ReadError { offset, what }))
            }
        }
    }
}

fn read_interface(body: &[u8]) -> Result<Block<'_>, &'static str> {
    let cut = "the interface description is cut short";
    let medium = match u16_le(body, 0).ok_or(cut)? {
        link_type::ETHERNET => Some(Medium::Ethernet),
        link_type::RAW_IP => Some(Medium::Ip),
        _ => None,
    };
    let options = body.get(8..).ok_or(cut)?;
    match find_option(options, option::INTERFACE_RESOLUTION) {
        Some(&[NANOSECONDS]) => Ok(Block::Interface { medium }),
        _ => Err("the interface's time is not in nanoseconds"),
    }
}

fn read_packet(body: &[u8]) -> Option<Block<'_>> {
    let ns = u64::from(u32_le(body, 4)?) << 32 | u64::from(u32_le(body, 8)?);
    let len = u32_le(body, 12)? as usize;
    let rest = body.get(20..)?;
    let options = rest.get(len.checked_next_multiple_of(4)?..)?;
    let flags = find_option(options, option::PACKET_FLAGS).and_then(|value| u32_le(value, 0));
    let direction = match flags.map(|flags| flags & 3) {
        Some(1) => Some(Direction::Inbound),
        Some(2) => Some(Direction::Outbound),
        _ => None,
    };
    Some(Block::Packet {
        interface: u32_le(body, 0)?,
        time: Instant::from_nanos(ns),
        direction,
        original_len: u32_le(body, 16)?,
        bytes: &rest[..len],
    })
}

/// The value of the first option with this code.
fn find_option(mut options: &[u8], wanted: u16) -> Option<&[u8]> {
    loop {
        let (code, len) = (u16_le(options, 0)?, usize::from(u16_le(options, 2)?));
        if code == option::END {
            return None;
        }
        if code == wanted {
            return options.get(4..4 + len);
        }
        options = options.get(4 + len.next_multiple_of(4)..)?;
    }
}

fn u16_le(bytes: &[u8], offset: usize) -> Option<u16> {
    Some(u16::from_le_bytes(*bytes.get(offset..)?.first_chunk()?))
}

fn u32_le(bytes: &[u8], offset: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(offset..)?.first_chunk()?))
}

#[cfg(test)]
mod tests;
