//! What the sender of a packet hears of a header that cannot be processed: ICMP "parameter
//! problem" (RFC 1122 §3.2.2.5, RFC 4443 §3.4), or "source route failed" (RFC 1122 §3.3.5).

use core::net::IpAddr;

/// A packet whose sender is to hear what is wrong with a header of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Problem<'a> {
    pub source: IpAddr,
    pub destination: IpAddr,
    pub flaw: Flaw,
    /// The sender hears of it even if the packet went to a group.
    pub of_groups: bool,
    /// The whole packet, to be quoted.
    pub packet: &'a [u8],
}

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flaw {
    /// The byte at `pointer`, counted from the packet's start, by the ICMP code `code`.
    Field { code: u8, pointer: u16 },
    /// The packet was to go on from here.
    SourceRoute,
}
