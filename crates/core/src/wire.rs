//! Bytes on the wire: checked views of what arrives, headers of what leaves.
//!
//! Every protocol has two sides. `parse` borrows the bytes and returns a view whose fields are
//! already checked, or the one reason why the bytes are [`Malformed`]; it never panics, never
//! allocates, and costs at most a small constant number of steps beyond the checksum. `emit`
//! appends to a `Vec<u8>` what a header says; a header that can be built can be emitted.
//!
//! ```text
//!   ethernet ──▶ arp
//!       └──────▶ ip ──▶ ipv4 | ipv6 ──▶ tcp ──▶ options
//!                            ├─────────▶ udp
//!                            ├─────────▶ icmpv4
//!                            └─────────▶ icmpv6 ──▶ ndp | mld
//! ```
//!
//! [`checksum`] serves all of them. Beside them `fast` reads and writes the IP and TCP headers that
//! nearly all segments have in one go, `peek` guesses at ends and flags, and `parsed` holds a
//! segment in either layout.

#[doc(hidden)]
pub mod arp;
#[doc(hidden)]
pub mod checksum;
#[doc(hidden)]
pub mod ends;
pub mod ethernet;
#[doc(hidden)]
pub mod fast;
#[doc(hidden)]
pub mod icmpv4;
#[doc(hidden)]
pub mod icmpv6;
pub(crate) mod igmp;
pub mod ip;
pub(crate) mod ipv4;
#[doc(hidden)]
pub mod ipv6;
pub(crate) mod mld;
#[doc(hidden)]
pub mod ndp;
pub mod options;
pub(crate) mod parsed;
pub(crate) mod peek;
#[doc(hidden)]
pub mod quoted;
pub mod tcp;
pub mod udp;

use core::fmt;

/// Defines [`Malformed`] from its list of reasons, so that the list is written once.
macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)*) => {
        /// Why bytes are not what they claim to be. Each reason is counted by itself:
        /// [`Malformed::index`] is its place in a table of [`Malformed::COUNT`] counters.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Malformed {
            $($(#[$doc])* $name,)*
        }

        impl Malformed {
            /// Every reason, in the order of [`Malformed::index`].
            pub const ALL: &'static [Malformed] = &[$(Malformed::$name,)*];

            /// A short text for people and for the labels of counters.
            pub const fn text(self) -> &'static str {
                match self {
                    $(Malformed::$name => $text,)*
                }
            }
        }
    };
}

reasons! {
    /// An Ethernet frame shorter than its 14-byte header (RFC 894).
    EthernetLength = "ethernet: frame too short",
    /// An ARP packet shorter than the 28 bytes of Ethernet and IPv4 (RFC 826).
    ArpLength = "arp: packet too short",
    /// An ARP packet for other hardware or another protocol, or of an unknown operation.
    ArpKind = "arp: not ethernet and ipv4",
    /// An IP packet of neither version 4 nor 6, or without any byte.
    IpVersion = "ip: unknown version",
    /// An IPv4 packet shorter than 20 bytes (RFC 791 §3.1).
    Ipv4Length = "ipv4: packet too short",
    /// An IPv4 header length below 20 bytes or beyond the packet.
    Ipv4HeaderLength = "ipv4: bad header length",
    /// An IPv4 total length below the header's or beyond the packet.
    Ipv4TotalLength = "ipv4: bad total length",
    /// An IPv4 option whose length is 0 or 1, or goes beyond the header (RFC 1122 §3.2.1.8).
    Ipv4Option = "ipv4: illegal option length",
    /// An IPv4 source route: we follow none, and answer along none (RFC 7126 §4.3, §4.4).
    Ipv4SourceRoute = "ipv4: source route",
    /// An IPv4 header whose checksum is wrong.
    Ipv4Checksum = "ipv4: bad header checksum",
    /// An IPv6 packet shorter than 40 bytes (RFC 8200 §3).
    Ipv6Length = "ipv6: packet too short",
    /// An IPv6 payload length beyond the packet.
    Ipv6PayloadLength = "ipv6: bad payload length",
    /// A jumbogram (RFC 2675): not supported.
    Ipv6Jumbo = "ipv6: jumbogram",
    /// An extension header or option that goes beyond what contains it.
    Ipv6Extension = "ipv6: extension header cut short",
    /// More extension headers, or options in them, than the walk's limit.
    Ipv6ExtensionLimit = "ipv6: too many extension headers",
    /// An extension header out of place: hop-by-hop options anywhere but first (RFC 8200 §4.1).
    Ipv6ExtensionOrder = "ipv6: extension header out of place",
    /// An option that we do not know and whose type asks to discard the packet (RFC 8200 §4.2).
    Ipv6Option = "ipv6: unknown option, discard",
    /// A routing header with segments left: we forward nothing (RFC 8200 §4.4, RFC 5095).
    Ipv6Routing = "ipv6: routing header with segments left",
    /// A first fragment that ends before the upper layer's header does (RFC 8200 §4.5).
    Ipv6FirstFragment = "ipv6: first fragment without all headers",
    /// A fragment, not the last, whose length is not a multiple of 8 (RFC 8200 §4.5).
    FragmentLength = "ip: fragment length not a multiple of 8",
    /// A fragment that reaches beyond 65,535 bytes.
    FragmentEnd = "ip: fragment beyond the largest packet",
    /// An ICMPv4 message shorter than its type needs (RFC 792).
    Icmpv4Length = "icmpv4: message too short",
    /// An ICMPv4 message whose checksum is wrong.
    Icmpv4Checksum = "icmpv4: bad checksum",
    /// An ICMP error that quotes less than an IP header and 8 bytes (RFC 792).
    QuotedLength = "icmp: quoted packet too short",
    /// An ICMPv6 message shorter than its type needs (RFC 4443).
    Icmpv6Length = "icmpv6: message too short",
    /// An ICMPv6 message whose checksum is wrong.
    Icmpv6Checksum = "icmpv6: bad checksum",
    /// A neighbour discovery message shorter than its type needs (RFC 4861 §4).
    NdpLength = "ndp: message too short",
    /// A neighbour discovery message that was forwarded: its hop limit is not 255.
    NdpHopLimit = "ndp: hop limit not 255",
    /// A neighbour discovery option of length zero or beyond the message.
    NdpOption = "ndp: bad option length",
    /// More neighbour discovery options than the walk's limit.
    NdpOptionLimit = "ndp: too many options",
    /// A neighbour discovery message that breaks another rule of RFC 4861 §6.1 or §7.1: its code,
    /// its source, its target, or flags that contradict its destination.
    NdpRule = "ndp: contradicts the protocol",
    /// An MLD message shorter than its type needs (RFC 3810 §5).
    MldLength = "mld: message too short",
    /// An MLD message that was forwarded or does not come from a link-local address.
    MldRule = "mld: contradicts the protocol",
    /// An IGMP message shorter than 8 bytes, or a query of no version's length (RFC 3376 §7.1).
    IgmpLength = "igmp: bad length",
    /// An IGMP message whose checksum is wrong.
    IgmpChecksum = "igmp: bad checksum",
    /// A TCP segment shorter than 20 bytes (RFC 9293 §3.1).
    TcpLength = "tcp: segment too short",
    /// A TCP data offset below 5 or beyond the segment.
    TcpDataOffset = "tcp: bad data offset",
    /// A TCP option whose length is 0 or 1, or goes beyond the header (RFC 9293 MUST-7).
    TcpOptionLength = "tcp: illegal option length",
    /// A TCP segment whose checksum is wrong.
    TcpChecksum = "tcp: bad checksum",
    /// A TCP segment from or to port zero.
    TcpPort = "tcp: port zero",
    /// A UDP datagram shorter than 8 bytes, or whose length is less or goes beyond the packet.
    UdpLength = "udp: bad length",
    /// A UDP datagram to port zero.
    UdpPort = "udp: port zero",
}

impl Malformed {
    /// How many reasons there are.
    pub const COUNT: usize = Self::ALL.len();

    /// The reason's place in a table of [`Malformed::COUNT`] counters.
    pub const fn index(self) -> usize {
        self as usize
    }
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl core::error::Error for Malformed {}

/// The two bytes at `offset`, big-endian; `None` beyond the end.
pub(crate) fn u16_at(bytes: &[u8], offset: usize) -> Option<u16> {
    let field = bytes.get(offset..)?.first_chunk()?;
    Some(u16::from_be_bytes(*field))
}

/// The four bytes at `offset`, big-endian; `None` beyond the end.
pub(crate) fn u32_at(bytes: &[u8], offset: usize) -> Option<u32> {
    let field = bytes.get(offset..)?.first_chunk()?;
    Some(u32::from_be_bytes(*field))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_has_its_own_counter_and_text() {
        for (place, reason) in Malformed::ALL.iter().enumerate() {
            assert_eq!(reason.index(), place);
            assert!(Malformed::ALL[..place].iter().all(|other| other.text() != reason.text()));
        }
    }

    #[test]
    fn fields_end_where_the_bytes_end() {
        assert_eq!(u16_at(&[0, 1, 2], 1), Some(0x0102));
        assert_eq!(u16_at(&[0, 1, 2], 2), None);
        assert_eq!(u32_at(&[0, 1, 2, 3], 0), Some(0x0001_0203));
        assert_eq!(u32_at(&[0, 1, 2, 3], 1), None);
        assert_eq!(u32_at(&[0], 9), None);
    }
}
