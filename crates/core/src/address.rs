//! Addresses with a prefix length: interface addresses, and ranges of addresses.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::str::FromStr;

/// An address with a prefix length: an interface address, or a range of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cidr {
    address: IpAddr,
    prefix_len: u8,
}

impl Cidr {
    /// `address/prefix_len`, or `None` if the prefix is longer than the address.
    pub fn new(address: IpAddr, prefix_len: u8) -> Option<Cidr> {
        (prefix_len <= width(address)).then_some(Cidr { address, prefix_len })
    }

    /// The address, host bits and all.
    pub fn address(self) -> IpAddr {
        self.address
    }

    /// Bits in the prefix.
    pub fn prefix_len(self) -> u8 {
        self.prefix_len
    }

    /// The bits of an IPv4 address that are the prefix's.
    pub fn ipv4_mask(self) -> u32 {
        u32::MAX.checked_shl(32 - u32::from(self.prefix_len.min(32))).unwrap_or(0)
    }

    /// True if `address` has the same version and the same prefix.
    pub fn contains(self, address: IpAddr) -> bool {
        match (self.address, address) {
            (IpAddr::V4(a), IpAddr::V4(b)) => {
                let shift = 32 - self.prefix_len;
                (u64::from(a.to_bits()) >> shift) == (u64::from(b.to_bits()) >> shift)
            }
            (IpAddr::V6(a), IpAddr::V6(b)) => {
                let difference = a.to_bits() ^ b.to_bits();
                difference.leading_zeros() >= u32::from(self.prefix_len)
            }
            _ => false,
        }
    }

    /// How many addresses share the prefix, saturating.
    pub fn size(self) -> u128 {
        1u128.checked_shl(u32::from(width(self.address) - self.prefix_len)).unwrap_or(u128::MAX)
    }

    /// The `index`-th address of the prefix, counted from its all-zeros host part (`index` is
    /// taken modulo the size).
    pub fn nth(self, index: u128) -> IpAddr {
        let host_bits = u32::from(width(self.address) - self.prefix_len);
        let host_mask = 1u128.checked_shl(host_bits).map_or(u128::MAX, |size| size - 1);
        match self.address {
            IpAddr::V4(a) => {
                let bits = u128::from(a.to_bits()) & !host_mask | index & host_mask;
                IpAddr::V4(Ipv4Addr::from_bits(bits as u32))
            }
            IpAddr::V6(a) => {
                IpAddr::V6(Ipv6Addr::from_bits(a.to_bits() & !host_mask | index & host_mask))
            }
        }
    }

    /// IPv4's directed broadcast address of the prefix, where there is one (RFC 1122 §3.2.1.3).
    pub fn broadcast(self) -> Option<Ipv4Addr> {
        match self.address {
            IpAddr::V4(address) if self.prefix_len < 31 => {
                let host_bits = u32::MAX >> self.prefix_len;
                Some(Ipv4Addr::from_bits(address.to_bits() | host_bits))
            }
            _ => None,
        }
    }
}

fn width(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix_len)
    }
}

/// Why a text is no [`Cidr`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseCidrError;

impl fmt::Display for ParseCidrError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not an address with a prefix length, such as 10.9.0.2/24 or fd00::2/64")
    }
}

impl core::error::Error for ParseCidrError {}

impl FromStr for Cidr {
    type Err = ParseCidrError;
    fn from_str(text: &str) -> Result<Cidr, ParseCidrError> {
        let (address, prefix) = text.split_once('/').ok_or(ParseCidrError)?;
        let address = address.parse().map_err(|_| ParseCidrError)?;
        let prefix_len = prefix.parse().map_err(|_| ParseCidrError)?;
        Cidr::new(address, prefix_len).ok_or(ParseCidrError)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    fn cidr(text: &str) -> Cidr {
        text.parse().unwrap()
    }

    #[test]
    fn a_prefix_contains_its_addresses_and_no_others() {
        let net = cidr("10.9.0.2/16");
        assert!(net.contains("10.9.255.255".parse().unwrap()));
        assert!(!net.contains("10.10.0.0".parse().unwrap()));
        assert!(!net.contains("fd00::1".parse().unwrap()));
        assert!(cidr("0.0.0.0/0").contains("255.1.2.3".parse().unwrap()));
        assert!(cidr("::/0").contains("fd00::1".parse().unwrap()));
        assert!(cidr("fd00::/64").contains("fd00::ffff".parse().unwrap()));
        assert!(!cidr("fd00::/64").contains("fd00:0:0:1::".parse().unwrap()));
    }

    #[test]
    fn addresses_are_counted_from_the_start_of_the_prefix() {
        assert_eq!(cidr("10.9.0.2/24").nth(1).to_string(), "10.9.0.1");
        assert_eq!(cidr("10.9.0.2/24").nth(257).to_string(), "10.9.0.1");
        assert_eq!(cidr("fd00::9/64").nth(0x1_0002).to_string(), "fd00::1:2");
        assert_eq!(cidr("10.9.0.2/24").broadcast().unwrap().to_string(), "10.9.0.255");
        assert_eq!(cidr("10.9.0.2/31").broadcast(), None);
        assert_eq!(cidr("10.9.0.0/16").size(), 65536);
    }

    #[test]
    fn bad_texts_are_refused() {
        for text in ["10.9.0.2", "10.9.0.2/33", "fd00::/129", "x/24", "10.9.0.2/", "/24", ""] {
            assert!(text.parse::<Cidr>().is_err(), "{text}");
        }
    }
}
