//! The facts that IP packets of both versions have in common: addresses, protocol and marks.

use core::net::IpAddr;

use crate::wire::Malformed;

/// A packet that has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// The sender; the destination is of the same version.
    pub source: IpAddr,
    /// The receiver.
    pub destination: IpAddr,
    /// The payload's protocol: of IPv6, after the extension headers. In a fragment other than the
    /// first it is what the first says it is.
    pub protocol: u8,
    /// TTL or hop limit.
    pub hop_limit: u8,
    /// DSCP and ECN (RFC 2474, RFC 3168): the type of service or traffic class octet.
    pub traffic_class: u8,
    /// It may not be fragmented: DF in IPv4, always in IPv6.
    pub dont_fragment: bool,
    /// It is a piece of a packet, not a whole one.
    pub fragment: Option<Fragment>,
    /// The bytes behind the headers, without the link's padding.
    pub payload: &'a [u8],
    /// The whole packet, its headers too: the link's padding cut off.
    pub bytes: &'a [u8],
}

/// Where a fragment belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fragment {
    /// The identification that all fragments of a packet share; 16 bits in IPv4.
    pub id: u32,
    /// Where the payload belongs in the whole packet's, in bytes: a multiple of 8.
    pub offset: u16,
    /// More fragments follow; then the payload's length is a multiple of 8, and not zero.
    pub more: bool,
}

impl Fragment {
    /// The checks that both versions share: `len` payload bytes at this place, in a packet that
    /// has `header_len` bytes of header inside its 65,535.
    pub(in crate::wire) fn check(
        self,
        len: usize,
        header_len: usize,
    ) -> Result<Fragment, Malformed> {
        if self.more && (len == 0 || !len.is_multiple_of(8)) {
            return Err(Malformed::FragmentLength);
        }
        if header_len + usize::from(self.offset) + len > MAX_BYTES {
            return Err(Malformed::FragmentEnd);
        }
        Ok(self)
    }
}

/// The largest number a 16-bit length field holds.
pub(in crate::wire) const MAX_BYTES: usize = 0xffff;

/// A header to send: without options, and without extension headers but a fragment's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    pub(in crate::wire) source: IpAddr,
    pub(in crate::wire) destination: IpAddr,
    pub(in crate::wire) payload_len: u16,
    /// The payload's protocol.
    pub protocol: u8,
    /// TTL or hop limit.
    pub hop_limit: u8,
    /// DSCP and ECN.
    pub traffic_class: u8,
    /// DF; IPv4 only.
    pub dont_fragment: bool,
    /// IPv4's identification: arbitrary as long as the packet may not be fragmented
    /// (RFC 6864 §4.1).
    pub identification: u16,
    /// IPv6's flow label, 20 bits (RFC 6437).
    pub flow_label: u32,
    /// The packet is a piece of a larger one. IPv6 says so in a header of its own, of
    /// [`FRAGMENT_BYTES`](crate::wire::ipv6::FRAGMENT_BYTES); in IPv4 its identification stands in
    /// for the packet's.
    pub fragment: Option<Fragment>,
}
