//! ICMP for IPv6 (RFC 4443), with the neighbour discovery and multicast listener messages that it
//! carries.

use alloc::vec::Vec;
use core::net::{IpAddr, Ipv6Addr};

use super::checksum::{fill, pseudo_header, sum};
use super::icmpv4::Echo;
use super::ip::{DEFAULT_HOP_LIMIT, Header, Packet, protocol};
use super::{Malformed, ipv6, mld, ndp, u16_at};

/// Bytes of a message before its data.
pub const HEADER_BYTES: usize = 8;

/// Bytes of the offending packet that we quote: the error is then at most as long as the least MTU
/// (RFC 4443 §2.4c).
pub const MAX_QUOTED_BYTES: usize = ipv6::MIN_MTU as usize - ipv6::HEADER_BYTES - HEADER_BYTES;

/// Codes of [`Message::Unreachable`].
pub mod unreachable_code {
    /// There is no route.
    pub(crate) const NO_ROUTE: u8 = 0;
    /// A firewall forbids it.
    pub(crate) const PROHIBITED: u8 = 1;
    /// The address does not answer.
    pub const ADDRESS: u8 = 3;
    /// No process has the port.
    pub const PORT: u8 = 4;
}

/// Message types.
mod kind {
    pub(super) const UNREACHABLE: u8 = 1;
    pub(super) const PACKET_TOO_BIG: u8 = 2;
    pub(super) const TIME_EXCEEDED: u8 = 3;
    pub(super) const PARAMETER_PROBLEM: u8 = 4;
    pub(super) const ECHO_REQUEST: u8 = 128;
    pub(super) const ECHO_REPLY: u8 = 129;
}

/// A message, arrived or to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message<'a> {
    /// Answer with the same data.
    EchoRequest(Echo<'a>),
    /// The answer.
    EchoReply(Echo<'a>),
    /// A packet of ours did not arrive.
    Unreachable {
        /// Why: see [`unreachable_code`].
        code: u8,
        /// The packet's beginning: see [`Quoted`](super::quoted::Quoted).
        quoted: &'a [u8],
    },
    /// A packet of ours was larger than a link's MTU.
    PacketTooBig {
        /// The MTU of that link, in bytes.
        mtu: u32,
        /// The packet's beginning.
        quoted: &'a [u8],
    },
    /// A packet of ours lived too long (code 0), or its fragments did not all arrive (code 1).
    TimeExceeded {
        /// Which of the two.
        code: u8,
        /// The packet's beginning.
        quoted: &'a [u8],
    },
    /// A packet of ours had something that a router or host did not understand.
    ParameterProblem {
        /// 0: a field; 1: a next header; 2: an option.
        code: u8,
        /// Where, in bytes from the packet's start.
        pointer: u32,
        /// The packet's beginning.
        quoted: &'a [u8],
    },
    /// Neighbour discovery.
    Ndp(ndp::Message),
    /// Multicast listener discovery: only arrives. What we send of it are whole packets, by
    /// `mld::emit_report`.
    Mld(mld::Message),
    /// Any other message: nothing to us.
    Other {
        /// The message's type.
        kind: u8,
        /// Its code.
        code: u8,
    },
}

impl<'a> Message<'a> {
    /// The message that an IPv6 packet carries: its checksum is right, and so is what neighbour and
    /// listener discovery ask of its addresses and hop limit.
    pub fn parse(packet: &Packet<'a>) -> Result<Message<'a>, Malformed> {
        let (IpAddr::V6(source), IpAddr::V6(destination)) = (packet.source, packet.destination)
        else {
            return Err(Malformed::IpVersion);
        };
        let bytes = packet.payload;
        let [kind, code, _, _, body @ ..] = bytes else { return Err(Malformed::Icmpv6Length) };
        let pseudo =
            pseudo_header(packet.source, packet.destination, protocol::ICMPV6, bytes.len() as u32);
        if !pseudo.then(sum(bytes)).is_valid() {
            return Err(Malformed::Icmpv6Checksum);
        }
        let envelope = ndp::Envelope { source, destination, hop_limit: packet.hop_limit };
        if let Some(message) = ndp::Message::parse(*kind, *code, body, envelope) {
            return message.map(Message::Ndp);
        }
        if let Some(message) = mld::Message::parse(*kind, body, envelope) {
            return message.map(Message::Mld);
        }
        Self::parse_plain(*kind, *code, body)
    }

    /// The messages of RFC 4443 itself.
    fn parse_plain(kind: u8, code: u8, body: &'a [u8]) -> Result<Message<'a>, Malformed> {
        let (word, data) = body.split_first_chunk::<4>().ok_or(Malformed::Icmpv6Length)?;
        let value = u32::from_be_bytes(*word);
        let field = |offset| u16_at(word, offset).ok_or(Malformed::Icmpv6Length);
        let echo = Echo { id: field(0)?, seq: field(2)?, data };
        Ok(match kind {
            kind::ECHO_REQUEST => Message::EchoRequest(echo),
            kind::ECHO_REPLY => Message::EchoReply(echo),
            kind::UNREACHABLE => Message::Unreachable { code, quoted: data },
            kind::PACKET_TOO_BIG => Message::PacketTooBig { mtu: value, quoted: data },
            kind::TIME_EXCEEDED => Message::TimeExceeded { code, quoted: data },
            kind::PARAMETER_PROBLEM => {
                Message::ParameterProblem { code, pointer: value, quoted: data }
            }
            kind => Message::Other { kind, code },
        })
    }

    /// Appends the message, its checksum filled in; of a quoted packet at most
    /// [`MAX_QUOTED_BYTES`].
    pub fn emit(&self, source: Ipv6Addr, destination: Ipv6Addr, out: &mut Vec<u8>) {
        let start = out.len();
        if let Message::Ndp(message) = self {
            out.extend_from_slice(&[message.kind(), 0, 0, 0]);
            message.emit(out);
        } else {
            let (kind, code, word, data) = self.parts();
            out.extend_from_slice(&[kind, code, 0, 0]);
            out.extend_from_slice(&word);
            out.extend_from_slice(data);
        }
        let len = (out.len() - start) as u32;
        let pseudo = pseudo_header(source.into(), destination.into(), protocol::ICMPV6, len);
        fill(out, start, 2, pseudo);
    }

    /// The hop limit of its packet: 255 if it is neighbour discovery's.
    pub(crate) fn hop_limit(&self) -> u8 {
        if matches!(self, Message::Ndp(_)) { ndp::HOP_LIMIT } else { DEFAULT_HOP_LIMIT }
    }

    /// Appends a whole IPv6 packet with the message. False, and nothing appended, if it does not
    /// fit in a packet.
    pub fn emit_packet(&self, source: Ipv6Addr, destination: Ipv6Addr, out: &mut Vec<u8>) -> bool {
        let mut message = Vec::new();
        self.emit(source, destination, &mut message);
        let (from, to) = (source.into(), destination.into());
        let Some(mut header) = Header::new(from, to, protocol::ICMPV6, message.len()) else {
            return false;
        };
        header.hop_limit = self.hop_limit();
        header.emit(out);
        out.extend_from_slice(&message);
        true
    }

    /// Type, code, the header's last four bytes, and the data.
    fn parts(&self) -> (u8, u8, [u8; 4], &'a [u8]) {
        let cut = |quoted: &'a [u8]| &quoted[..quoted.len().min(MAX_QUOTED_BYTES)];
        match *self {
            Message::EchoRequest(echo) => (kind::ECHO_REQUEST, 0, echo.fields(), echo.data),
            Message::EchoReply(echo) => (kind::ECHO_REPLY, 0, echo.fields(), echo.data),
            Message::Unreachable { code, quoted } => (kind::UNREACHABLE, code, [0; 4], cut(quoted)),
            Message::PacketTooBig { mtu, quoted } => {
                (kind::PACKET_TOO_BIG, 0, mtu.to_be_bytes(), cut(quoted))
            }
            Message::TimeExceeded { code, quoted } => {
                (kind::TIME_EXCEEDED, code, [0; 4], cut(quoted))
            }
            Message::ParameterProblem { code, pointer, quoted } => {
                (kind::PARAMETER_PROBLEM, code, pointer.to_be_bytes(), cut(quoted))
            }
            Message::Other { kind, code } => (kind, code, [0; 4], &[]),
            Message::Ndp(_) => unreachable!("`emit` asks the message itself"),
            Message::Mld(_) => panic!("listener messages are sent as whole packets"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    const A: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);
    const B: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2);

    fn packet(message: &Message<'_>) -> Vec<u8> {
        let mut bytes = Vec::new();
        assert!(message.emit_packet(A, B, &mut bytes));
        bytes
    }

    fn parsed(bytes: &[u8]) -> Result<Message<'_>, Malformed> {
        Message::parse(&Packet::parse(bytes).unwrap())
    }

    /// Cuts `cut` bytes off the end and makes the checksum right again.
    fn shortened(mut bytes: Vec<u8>, cut: usize) -> Vec<u8> {
        bytes.truncate(bytes.len() - cut);
        let len = (bytes.len() - ipv6::HEADER_BYTES) as u16;
        bytes[4..6].copy_from_slice(&len.to_be_bytes());
        if len >= 4 {
            bytes[42..44].fill(0);
            let pseudo = pseudo_header(A.into(), B.into(), protocol::ICMPV6, u32::from(len));
            fill(&mut bytes, ipv6::HEADER_BYTES, 2, pseudo);
        }
        bytes
    }

    #[test]
    fn a_short_or_broken_message_is_malformed() {
        let echo = packet(&Message::EchoRequest(Echo { id: 1, seq: 2, data: b"" }));
        assert!(parsed(&echo).is_ok());
        assert_eq!(parsed(&shortened(echo.clone(), 1)), Err(Malformed::Icmpv6Length));
        assert_eq!(parsed(&shortened(echo.clone(), 5)), Err(Malformed::Icmpv6Length));
        let mut broken = echo;
        broken[47] ^= 1;
        assert_eq!(parsed(&broken), Err(Malformed::Icmpv6Checksum));
    }

    #[test]
    fn an_error_quotes_what_fits_in_the_least_mtu() {
        for (len, total) in [(1231, 1279), (1232, 1280), (1233, 1280)] {
            let quoted = std::vec![1; len];
            assert_eq!(packet(&Message::PacketTooBig { mtu: 1, quoted: &quoted }).len(), total);
        }
    }

    #[test]
    fn an_echo_that_fits_in_no_packet_is_not_sent() {
        for (len, fits) in [(65_527, true), (65_528, false)] {
            let data = std::vec![0; len];
            let message = Message::EchoReply(Echo { id: 0, seq: 0, data: &data });
            let mut out = Vec::new();
            assert_eq!(message.emit_packet(A, B, &mut out), fits);
            assert_eq!(out.is_empty(), !fits);
        }
    }

    #[test]
    fn neighbour_discovery_goes_out_with_hop_limit_255_and_returns() {
        let message = Message::Ndp(ndp::Message::RouterSolicit { link_layer: Some([2; 6]) });
        let bytes = packet(&message);
        assert_eq!(bytes[7], 255);
        assert_eq!(parsed(&bytes), Ok(message));
        let mut forwarded = bytes;
        forwarded[7] = 254;
        assert_eq!(parsed(&forwarded), Err(Malformed::NdpHopLimit));
    }

    proptest! {
        #[test]
        fn what_is_emitted_is_parsed(
            which in 0..7, word: u32, code: u8, data in vec(any::<u8>(), 0..100),
        ) {
            let echo = Echo { id: word as u16, seq: (word >> 16) as u16, data: &data };
            let message = match which {
                0 => Message::EchoRequest(echo),
                1 => Message::EchoReply(echo),
                2 => Message::Unreachable { code, quoted: &data },
                3 => Message::PacketTooBig { mtu: word, quoted: &data },
                4 => Message::TimeExceeded { code, quoted: &data },
                5 => Message::ParameterProblem { code, pointer: word, quoted: &data },
                _ => Message::Other { kind: 200, code },
            };
            let bytes = packet(&message);
            prop_assert_eq!(parsed(&bytes), Ok(message));
        }
    }
}
