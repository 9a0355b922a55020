//! Protocol numbers, as IANA gives them to both versions.

/// ICMP for IPv4.
pub const ICMPV4: u8 = 1;
/// Group management for IPv4.
pub(crate) const IGMP: u8 = 2;
/// TCP.
pub const TCP: u8 = 6;
/// UDP.
pub const UDP: u8 = 17;
/// ICMP for IPv6.
pub const ICMPV6: u8 = 58;
