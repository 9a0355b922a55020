//! The two ends of a connection.
//!
//! Every segment is looked up by its ends, so they are kept as words that are compared, hashed and
//! copied whole, and read as addresses only where a caller asks for one.

use core::fmt;
use core::hash::Hasher;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The two ends of a connection, ours first. Both addresses are of one IP version.
#[derive(Clone, Copy)]
pub struct Tuple {
    /// IPv4: our address in the high half of the first, the peer's in the low one, and zeros.
    /// IPv6: ours, then the peer's, the high half of each first.
    words: [u64; 4],
    /// Our port in the high half of the low 32 bits, the peer's in the low one; above them, whether
    /// the addresses are IPv6's: all are compared and copied as words.
    ports: u64,
}

/// The mark of IPv6, beside the ports.
const IPV6: u64 = 1 << 32;

impl PartialEq for Tuple {
    /// Next to the ports lies the IP version, and of IPv4 all words but the first are zero.
    fn eq(&self, other: &Tuple) -> bool {
        (self.ports, self.words[0]) == (other.ports, other.words[0])
            && (!self.is_ipv6() || self.words == other.words)
    }
}

impl Eq for Tuple {}

/// An address as two words.
fn halves(address: IpAddr) -> [u64; 2] {
    let bits = match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
        IpAddr::V6(address) => address.to_bits(),
    };
    [(bits >> 64) as u64, bits as u64]
}

fn from_halves(high: u64, low: u64) -> IpAddr {
    IpAddr::V6(Ipv6Addr::from_bits(u128::from(high) << 64 | u128::from(low)))
}

impl Tuple {
    /// The other end's view of the same.
    pub(crate) fn reversed(&self) -> Tuple {
        let (local, remote) = (self.local(), self.remote());
        Tuple::new((remote.ip(), remote.port()), (local.ip(), local.port()))
    }

    /// No ends at all.
    pub const NOBODY: Tuple = Tuple { words: [0; 4], ports: 0 };

    /// The ends of a connection between these sockets. If their versions differ, which no packet
    /// joins, the IPv4 address is taken for its IPv6-mapped one.
    pub fn new(local: (IpAddr, u16), remote: (IpAddr, u16)) -> Self {
        let ports = u64::from(local.1) << 16 | u64::from(remote.1);
        match (local.0, remote.0) {
            (IpAddr::V4(local), IpAddr::V4(remote)) => {
                let word = u64::from(local.to_bits()) << 32 | u64::from(remote.to_bits());
                Tuple { words: [word, 0, 0, 0], ports }
            }
            (local, remote) => {
                let ([a, b], [c, d]) = (halves(local), halves(remote));
                Tuple { words: [a, b, c, d], ports: ports | IPV6 }
            }
        }
    }

    /// This tuple with another port of ours.
    #[must_use]
    pub(crate) fn with_local_port(self, port: u16) -> Self {
        let others = self.ports & !(0xffff << 16);
        Tuple { ports: others | u64::from(port) << 16, ..self }
    }

    /// Our address.
    pub fn local_ip(&self) -> IpAddr {
        let [a, b, ..] = self.words;
        if self.is_ipv6() {
            return from_halves(a, b);
        }
        IpAddr::V4(Ipv4Addr::from_bits((a >> 32) as u32))
    }

    /// The peer's address.
    pub fn remote_ip(&self) -> IpAddr {
        let [a, _, c, d] = self.words;
        if self.is_ipv6() {
            return from_halves(c, d);
        }
        IpAddr::V4(Ipv4Addr::from_bits(a as u32))
    }

    /// Our port.
    pub fn local_port(&self) -> u16 {
        (self.ports >> 16) as u16
    }

    /// The peer's port.
    pub fn remote_port(&self) -> u16 {
        self.ports as u16
    }

    /// True if both ends are the same.
    pub(crate) fn is_loop(&self) -> bool {
        self.local_port() == self.remote_port() && self.local_words() == self.remote_words()
    }

    /// True if the addresses are IPv6's.
    pub fn is_ipv6(&self) -> bool {
        self.ports & IPV6 != 0
    }

    /// True if the addresses are those of `other`.
    pub(crate) fn has_addresses_of(&self, other: &Tuple) -> bool {
        // Both versions in one comparison: IPv4's is 0.
        let versions = (self.ports | other.ports) >> 32;
        let is_right = || self.is_ipv6() == other.is_ipv6() && self.words == other.words;
        self.words[0] == other.words[0] && (versions == 0 || is_right())
    }

    /// A number that differs from address to address, mostly.
    pub(crate) fn addresses_folded(&self) -> u64 {
        let [a, b, c, d] = self.words;
        if self.is_ipv6() { a ^ b.rotate_left(32) ^ c ^ d } else { a }
    }

    /// Both ports: ours in the high half.
    pub fn ports(&self) -> u32 {
        self.ports as u32
    }

    /// Both addresses, ours first: of IPv4 in the halves of the first word, and zeros; of IPv6 in
    /// two words each.
    pub fn words(&self) -> &[u64; 4] {
        &self.words
    }

    /// The first word: of IPv4 both addresses, ours in the high half.
    pub(crate) fn first_word(&self) -> u64 {
        self.words[0]
    }

    /// Our address as two words, the high half first; IPv4's is the last 32 bits.
    pub(crate) fn local_words(&self) -> [u64; 2] {
        let [a, b, ..] = self.words;
        if self.is_ipv6() { [a, b] } else { [0, a >> 32] }
    }

    /// The peer's address as two words.
    pub(crate) fn remote_words(&self) -> [u64; 2] {
        let [a, _, c, d] = self.words;
        if self.is_ipv6() { [c, d] } else { [0, a & 0xffff_ffff] }
    }

    /// The tuple of these words, as [`local_words`](Self::local_words),
    /// [`remote_words`](Self::remote_words) and [`ports`](Self::ports) give them.
    pub(crate) fn from_words(local: [u64; 2], remote: [u64; 2], ports: u32, ipv6: bool) -> Self {
        let words = if ipv6 {
            [local[0], local[1], remote[0], remote[1]]
        } else {
            [local[1] << 32 | remote[1] & 0xffff_ffff, 0, 0, 0]
        };
        Tuple { words, ports: u64::from(ports) | if ipv6 { IPV6 } else { 0 } }
    }

    /// Our end.
    pub fn local(&self) -> SocketAddr {
        SocketAddr::new(self.local_ip(), self.local_port())
    }

    /// The peer's end.
    pub fn remote(&self) -> SocketAddr {
        SocketAddr::new(self.remote_ip(), self.remote_port())
    }

    /// Writes what differs between connections, both addresses and both ports, to `hasher`: 12
    /// bytes of IPv4, 36 of IPv6, as words, which it need not put together.
    #[inline(always)]
    pub(crate) fn write_to(&self, hasher: &mut impl Hasher) {
        hasher.write_u64(self.words[0]);
        if self.is_ipv6() {
            self.words[1..].iter().for_each(|word| hasher.write_u64(*word));
        }
        hasher.write_u32(self.ports());
    }
}

impl fmt::Debug for Tuple {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} - {}", self.local(), self.remote())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_went_in_comes_out(
            v4: ([u8; 4], [u8; 4]), v6: ([u8; 16], [u8; 16]), ports: (u16, u16), other: u16,
        ) {
            let pairs: [(IpAddr, IpAddr); 2] =
                [(v4.0.into(), v4.1.into()), (v6.0.into(), v6.1.into())];
            for (local, remote) in pairs {
                let tuple = Tuple::new((local, ports.0), (remote, ports.1));
                prop_assert_eq!((tuple.local_ip(), tuple.local_port()), (local, ports.0));
                prop_assert_eq!((tuple.remote_ip(), tuple.remote_port()), (remote, ports.1));
                prop_assert_eq!(tuple.is_ipv6(), local.is_ipv6());
                let moved = tuple.with_local_port(other);
                prop_assert_eq!(moved, Tuple::new((local, other), (remote, ports.1)));
                prop_assert_eq!(moved == tuple, other == ports.0);
                let turned = Tuple::new((remote, ports.1), (local, ports.0));
                prop_assert_eq!(turned == tuple, local == remote && ports.0 == ports.1);
                prop_assert_eq!(tuple.is_loop(), tuple.local() == tuple.remote());
                prop_assert!(Tuple::new((local, other), (local, other)).is_loop());
            }
        }
    }

    #[test]
    fn a_mapped_address_is_not_the_ipv4_one() {
        let four = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let mapped = IpAddr::V6(Ipv4Addr::LOCALHOST.to_ipv6_mapped());
        let tuple = |address| Tuple::new((address, 1), (address, 2));
        assert_ne!(tuple(four), tuple(mapped));
    }
}
