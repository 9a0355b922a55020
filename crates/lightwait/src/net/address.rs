//! The types that name an address and a port.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// Addresses with their ports, in any of the forms that tokio takes. Names are not looked up: a
/// host name is an error of kind `InvalidInput`.
pub trait ToSocketAddrs {
    /// An iterator over the addresses.
    type Iter: Iterator<Item = SocketAddr>;

    /// The addresses, in the order in which they are tried.
    fn to_socket_addrs(&self) -> io::Result<Self::Iter>;
}

/// One address.
type One = std::option::IntoIter<SocketAddr>;

macro_rules! convertible {
    ($($kind:ty),*) => {
        $(impl ToSocketAddrs for $kind {
            type Iter = One;

            fn to_socket_addrs(&self) -> io::Result<One> {
                Ok(Some((*self).into()).into_iter())
            }
        })*
    };
}

convertible!(
    SocketAddr,
    SocketAddrV4,
    SocketAddrV6,
    (IpAddr, u16),
    (Ipv4Addr, u16),
    (Ipv6Addr, u16)
);

impl ToSocketAddrs for str {
    type Iter = One;

    fn to_socket_addrs(&self) -> io::Result<One> {
        let address: SocketAddr = self.parse().map_err(|_| not_an_address(self))?;
        Ok(Some(address).into_iter())
    }
}

impl ToSocketAddrs for (&str, u16) {
    type Iter = One;

    fn to_socket_addrs(&self) -> io::Result<One> {
        let address: IpAddr = self.0.parse().map_err(|_| not_an_address(self.0))?;
        (address, self.1).to_socket_addrs()
    }
}

impl ToSocketAddrs for (String, u16) {
    type Iter = One;

    fn to_socket_addrs(&self) -> io::Result<One> {
        (self.0.as_str(), self.1).to_socket_addrs()
    }
}

impl ToSocketAddrs for String {
    type Iter = One;

    fn to_socket_addrs(&self) -> io::Result<One> {
        self.as_str().to_socket_addrs()
    }
}

impl<'a> ToSocketAddrs for &'a [SocketAddr] {
    type Iter = std::iter::Copied<std::slice::Iter<'a, SocketAddr>>;

    fn to_socket_addrs(&self) -> io::Result<Self::Iter> {
        Ok(self.iter().copied())
    }
}

impl<T: ToSocketAddrs + ?Sized> ToSocketAddrs for &T {
    type Iter = T::Iter;

    fn to_socket_addrs(&self) -> io::Result<T::Iter> {
        (**self).to_socket_addrs()
    }
}

/// The error where no address was given.
pub(super) fn no_address() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "no address was given")
}

fn not_an_address(text: &str) -> io::Error {
    let text =
        format!("`{text}` is not an address with a port, such as 10.9.0.2:80 or [fd00::2]:80");
    io::Error::new(io::ErrorKind::InvalidInput, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn convert(address: impl ToSocketAddrs) -> io::Result<Vec<SocketAddr>> {
        Ok(address.to_socket_addrs()?.collect())
    }

    #[test]
    fn every_form_gives_the_same_address() {
        let expected: SocketAddr = "10.9.0.2:80".parse().unwrap();
        assert_eq!(convert("10.9.0.2:80").unwrap(), [expected]);
        assert_eq!(convert(String::from("10.9.0.2:80")).unwrap(), [expected]);
        assert_eq!(convert(("10.9.0.2", 80)).unwrap(), [expected]);
        assert_eq!(convert((String::from("10.9.0.2"), 80)).unwrap(), [expected]);
        assert_eq!(convert((Ipv4Addr::new(10, 9, 0, 2), 80)).unwrap(), [expected]);
        assert_eq!(convert(expected).unwrap(), [expected]);
        assert_eq!(convert(&[expected; 2][..]).unwrap(), [expected; 2]);
    }

    #[test]
    fn names_and_nonsense_are_refused_with_advice() {
        for text in ["localhost:80", "10.9.0.2", "10.9.0.2:65536", ""] {
            let error = convert(text).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
            assert!(error.to_string().contains("10.9.0.2:80"), "{error}");
        }
        assert!(convert("10.9.0.2:65535").is_ok());
    }
}
