//! ICMP for IPv4 (RFC 792; next-hop MTU RFC 1191 §4).

use alloc::vec::Vec;

use super::checksum::{Sum, fill, sum};
use super::{Malformed, ipv4, u16_at};

/// Bytes of a message before its data.
pub const HEADER_BYTES: usize = 8;

/// Bytes of the offending packet that we quote: the error is then at most 576 bytes long
/// (RFC 1812 §4.3.2.3), which every host takes (RFC 1122 §3.3.2).
pub const MAX_QUOTED_BYTES: usize = 576 - ipv4::MIN_HEADER_BYTES - HEADER_BYTES;

/// Codes of [`Message::Unreachable`].
pub mod unreachable_code {
    /// The network cannot be reached.
    pub(crate) const NETWORK: u8 = 0;
    /// The host cannot be reached.
    pub const HOST: u8 = 1;
    /// The host does not know the protocol.
    pub const PROTOCOL: u8 = 2;
    /// No process has the port.
    pub const PORT: u8 = 3;
    /// The packet is too large for a link and may not be fragmented.
    pub(crate) const FRAGMENTATION_NEEDED: u8 = 4;
    /// A source route goes on from here, and the packet does not.
    pub(crate) const SOURCE_ROUTE_FAILED: u8 = 5;
    /// A firewall forbids it (RFC 1812 §5.2.7.1).
    pub(crate) const PROHIBITED: u8 = 13;
}

/// Message types.
mod kind {
    pub(super) const ECHO_REPLY: u8 = 0;
    pub(super) const UNREACHABLE: u8 = 3;
    pub(super) const ECHO_REQUEST: u8 = 8;
    pub(super) const TIME_EXCEEDED: u8 = 11;
    pub(super) const PARAMETER_PROBLEM: u8 = 12;
}

/// An echo request or reply, of either version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Echo<'a> {
    /// The identifier of the ping's sender.
    pub id: u16,
    /// Which ping it is.
    pub seq: u16,
    /// The data that come back.
    pub data: &'a [u8],
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
        /// The MTU it did not fit, where the code is that; 0 from routers that do not say.
        next_hop_mtu: u16,
        /// The packet's beginning: see [`Quoted`](super::quoted::Quoted).
        quoted: &'a [u8],
    },
    /// A packet of ours lived too long (code 0), or its fragments did not all arrive (code 1).
    TimeExceeded {
        /// Which of the two.
        code: u8,
        /// The packet's beginning.
        quoted: &'a [u8],
    },
    /// A packet of ours had a header that a router or host did not like.
    ParameterProblem {
        /// The byte that was not liked.
        pointer: u8,
        /// The packet's beginning.
        quoted: &'a [u8],
    },
    /// Any other message: nothing to us. Source quench is among them (RFC 6633), and redirects.
    Other {
        /// The message's type.
        kind: u8,
        /// Its code.
        code: u8,
    },
}

impl<'a> Message<'a> {
    /// The message that `bytes`, an IP packet's whole payload, hold; its checksum is right.
    pub fn parse(bytes: &'a [u8]) -> Result<Message<'a>, Malformed> {
        let (header, data) =
            bytes.split_first_chunk::<HEADER_BYTES>().ok_or(Malformed::Icmpv4Length)?;
        if !sum(bytes).is_valid() {
            return Err(Malformed::Icmpv4Checksum);
        }
        let field = |offset| u16_at(header, offset).ok_or(Malformed::Icmpv4Length);
        let (code, echo) = (header[1], Echo { id: field(4)?, seq: field(6)?, data });
        Ok(match header[0] {
            kind::ECHO_REQUEST => Message::EchoRequest(echo),
            kind::ECHO_REPLY => Message::EchoReply(echo),
            kind::UNREACHABLE => {
                Message::Unreachable { code, next_hop_mtu: field(6)?, quoted: data }
            }
            kind::TIME_EXCEEDED => Message::TimeExceeded { code, quoted: data },
            kind::PARAMETER_PROBLEM => {
                Message::ParameterProblem { pointer: header[4], quoted: data }
            }
            kind => Message::Other { kind, code },
        })
    }

    /// Appends the message, its checksum filled in; of a quoted packet at most
    /// [`MAX_QUOTED_BYTES`].
    pub fn emit(&self, out: &mut Vec<u8>) {
        let (kind, code, rest, data) = self.parts();
        let start = out.len();
        out.extend_from_slice(&[kind, code, 0, 0]);
        out.extend_from_slice(&rest);
        out.extend_from_slice(data);
        fill(out, start, 2, Sum::ZERO);
    }

    /// Type, code, the header's last four bytes, and the data.
    fn parts(&self) -> (u8, u8, [u8; 4], &'a [u8]) {
        let cut = |quoted: &'a [u8]| &quoted[..quoted.len().min(MAX_QUOTED_BYTES)];
        match *self {
            Message::EchoRequest(echo) => (kind::ECHO_REQUEST, 0, echo.fields(), echo.data),
            Message::EchoReply(echo) => (kind::ECHO_REPLY, 0, echo.fields(), echo.data),
            Message::Unreachable { code, next_hop_mtu, quoted } => {
                let [high, low] = next_hop_mtu.to_be_bytes();
                (kind::UNREACHABLE, code, [0, 0, high, low], cut(quoted))
            }
            Message::TimeExceeded { code, quoted } => {
                (kind::TIME_EXCEEDED, code, [0; 4], cut(quoted))
            }
            Message::ParameterProblem { pointer, quoted } => {
                (kind::PARAMETER_PROBLEM, 0, [pointer, 0, 0, 0], cut(quoted))
            }
            Message::Other { kind, code } => (kind, code, [0; 4], &[]),
        }
    }
}

impl Echo<'_> {
    /// Identifier and sequence number as they stand in the header.
    pub(super) fn fields(&self) -> [u8; 4] {
        let ([a, b], [c, d]) = (self.id.to_be_bytes(), self.seq.to_be_bytes());
        [a, b, c, d]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn emitted(message: &Message<'_>) -> Vec<u8> {
        let mut out = std::vec![7];
        message.emit(&mut out);
        out.split_off(1)
    }

    #[test]
    fn a_short_or_broken_message_is_malformed() {
        let mut bytes = emitted(&Message::EchoRequest(Echo { id: 1, seq: 2, data: b"" }));
        assert_eq!(bytes, [8, 0, 0xf7, 0xfc, 0, 1, 0, 2]);
        assert_eq!(Message::parse(&bytes[..7]), Err(Malformed::Icmpv4Length));
        bytes[7] ^= 1;
        assert_eq!(Message::parse(&bytes), Err(Malformed::Icmpv4Checksum));
    }

    #[test]
    fn an_error_quotes_what_fits_in_576_bytes() {
        for (len, quoted) in [(548, 548), (549, 548)] {
            let packet = std::vec![1; len];
            let message = Message::TimeExceeded { code: 1, quoted: &packet };
            assert_eq!(emitted(&message).len(), 8 + quoted);
        }
    }

    proptest! {
        #[test]
        fn what_is_emitted_is_parsed(
            which in 0..6, words: (u16, u16), code: u8, data in vec(any::<u8>(), 0..548),
        ) {
            let echo = Echo { id: words.0, seq: words.1, data: &data };
            let message = match which {
                0 => Message::EchoRequest(echo),
                1 => Message::EchoReply(echo),
                2 => Message::Unreachable { code, next_hop_mtu: words.0, quoted: &data },
                3 => Message::TimeExceeded { code, quoted: &data },
                4 => Message::ParameterProblem { pointer: code, quoted: &data },
                _ => Message::Other { kind: 4, code },
            };
            let bytes = emitted(&message);
            prop_assert_eq!(Message::parse(&bytes), Ok(message));
        }
    }
}
