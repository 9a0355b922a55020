//! Socket addresses as bytes: `struct sockaddr_in` and `sockaddr_in6` of Linux.
//!
//! A socket of the IPv6 family uses mapped addresses for IPv4 peers (RFC 4291 §2.5.5.2), and the
//! engine plain ones.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::errno::Errno;

/// The address family of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// `AF_INET`.
    Inet,
    /// `AF_INET6`; mapped IPv4 addresses too.
    Inet6,
}

/// `struct sockaddr_in`: family, port, address, padding.
const INET_LEN: usize = 16;
/// `struct sockaddr_in6`: family, port, flow label, address, scope.
const INET6_LEN: usize = 28;
/// The least length of an IPv6 address that Linux takes: without the scope.
const INET6_LEN_MIN: usize = 24;

impl Family {
    /// The address that stands for all of ours.
    pub fn unspecified(self) -> SocketAddr {
        match self {
            Family::Inet => SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0),
            Family::Inet6 => SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), 0),
        }
    }

    /// The bytes of `address` as a socket of this family reports it.
    pub fn encode(self, address: SocketAddr) -> Vec<u8> {
        match (self, address.ip()) {
            (Family::Inet, IpAddr::V4(ip)) => encode_inet(ip, address.port()),
            (Family::Inet, IpAddr::V6(_)) => encode_inet(Ipv4Addr::UNSPECIFIED, address.port()),
            (Family::Inet6, IpAddr::V6(ip)) => encode_inet6(ip, address.port()),
            (Family::Inet6, IpAddr::V4(ip)) => encode_inet6(ip.to_ipv6_mapped(), address.port()),
        }
    }

    /// Reads an address given to a socket of this family. Mapped addresses come back as IPv4.
    ///
    /// # Errors
    /// `EINVAL` if it is too short, `EAFNOSUPPORT` if its family is another.
    pub fn decode(self, bytes: &[u8]) -> Result<SocketAddr, Errno> {
        let family = family_of(bytes)?;
        let port = |bytes: &[u8]| u16::from_be_bytes([bytes[2], bytes[3]]);
        match (self, family) {
            (Family::Inet, libc::AF_INET) => {
                if bytes.len() < INET_LEN {
                    return Err(Errno::EINVAL);
                }
                let ip = Ipv4Addr::new(bytes[4], bytes[5], bytes[6], bytes[7]);
                Ok(SocketAddr::new(IpAddr::V4(ip), port(bytes)))
            }
            (Family::Inet6, libc::AF_INET6) => {
                if bytes.len() < INET6_LEN_MIN {
                    return Err(Errno::EINVAL);
                }
                let mut ip = [0; 16];
                ip.copy_from_slice(&bytes[8..24]);
                let ip = Ipv6Addr::from(ip);
                let ip = ip.to_ipv4_mapped().map_or(IpAddr::V6(ip), IpAddr::V4);
                Ok(SocketAddr::new(ip, port(bytes)))
            }
            _ => Err(Errno::EAFNOSUPPORT),
        }
    }
}

/// The family that an address claims.
///
/// # Errors
/// `EINVAL` if there is not even that.
pub fn family_of(bytes: &[u8]) -> Result<libc::c_int, Errno> {
    match bytes {
        [a, b, ..] => Ok(u16::from_ne_bytes([*a, *b]).into()),
        _ => Err(Errno::EINVAL),
    }
}

fn encode_inet(ip: Ipv4Addr, port: u16) -> Vec<u8> {
    let mut bytes = vec![0; INET_LEN];
    bytes[..2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
    bytes[2..4].copy_from_slice(&port.to_be_bytes());
    bytes[4..8].copy_from_slice(&ip.octets());
    bytes
}

fn encode_inet6(ip: Ipv6Addr, port: u16) -> Vec<u8> {
    let mut bytes = vec![0; INET6_LEN];
    bytes[..2].copy_from_slice(&(libc::AF_INET6 as u16).to_ne_bytes());
    bytes[2..4].copy_from_slice(&port.to_be_bytes());
    bytes[8..24].copy_from_slice(&ip.octets());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn addresses_come_back_as_they_went() {
        for (family, address) in [
            (Family::Inet, "192.168.0.1:8080"),
            (Family::Inet6, "[fd3d:fa7b:d17d::1]:8080"),
            (Family::Inet6, "192.168.0.1:8080"),
        ] {
            let bytes = family.encode(at(address));
            assert_eq!(family.decode(&bytes), Ok(at(address)));
        }
        assert_eq!(Family::Inet6.encode(at("192.168.0.1:80"))[18..20], [0xff, 0xff]);
    }

    #[test]
    fn short_and_foreign_ones_are_refused() {
        let four = Family::Inet.encode(at("192.168.0.1:8080"));
        let six = Family::Inet6.encode(at("[::1]:8080"));
        assert_eq!(Family::Inet.decode(&four[..15]), Err(Errno::EINVAL));
        assert!(Family::Inet6.decode(&six[..24]).is_ok());
        assert_eq!(Family::Inet6.decode(&six[..23]), Err(Errno::EINVAL));
        assert_eq!(Family::Inet.decode(&six), Err(Errno::EAFNOSUPPORT));
        assert_eq!(Family::Inet6.decode(&four), Err(Errno::EAFNOSUPPORT));
        assert_eq!(Family::Inet.decode(&[2]), Err(Errno::EINVAL));
    }
}
