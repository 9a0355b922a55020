//! The types that name an address and a port.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// Addresses with their ports, or the name of a host with a port, in any of the forms that tokio
/// takes.
pub trait ToSocketAddrs {
    /// An iterator over the addresses.
    type Iter: Iterator<Item = SocketAddr>;

    /// The addresses, in the order in which they are tried.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if this is no address; a name is none.
    fn to_socket_addrs(&self) -> io::Result<Self::Iter>;

    /// The name of a host, and a port, if they have to be looked up. Async calls look them up; the
    /// others fail.
    fn host_name(&self) -> Option<(&str, u16)> {
        None
    }
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

    fn host_name(&self) -> Option<(&str, u16)> {
        if self.parse::<SocketAddr>().is_ok() {
            return None;
        }
        let (name, port) = self.rsplit_once(':')?;
        Some((as_name(name)?, port.parse().ok()?))
    }
}

impl ToSocketAddrs for (&str, u16) {
    type Iter = One;

    fn to_socket_addrs(&self) -> io::Result<One> {
        let address: IpAddr = self.0.parse().map_err(|_| not_an_address(self.0))?;
        (address, self.1).to_socket_addrs()
    }

    fn host_name(&self) -> Option<(&str, u16)> {
        Some((as_name(self.0)?, self.1))
    }
}

impl ToSocketAddrs for (String, u16) {
    type Iter = One;

    fn to_socket_addrs(&self) -> io::Result<One> {
        (self.0.as_str(), self.1).to_socket_addrs()
    }

    fn host_name(&self) -> Option<(&str, u16)> {
        Some((as_name(&self.0)?, self.1))
    }
}

impl ToSocketAddrs for String {
    type Iter = One;

    fn to_socket_addrs(&self) -> io::Result<One> {
        self.as_str().to_socket_addrs()
    }

    fn host_name(&self) -> Option<(&str, u16)> {
        self.as_str().host_name()
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

    fn host_name(&self) -> Option<(&str, u16)> {
        (**self).host_name()
    }
}

/// The error where no address was given.
pub(crate) fn no_address() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "no address was given")
}

/// `text`, if it may be a host's name: it is neither an address nor part of one.
fn as_name(text: &str) -> Option<&str> {
    let is_name = !text.is_empty() && !text.contains([':', '[', ']', '/']);
    (is_name && text.parse::<IpAddr>().is_err()).then_some(text)
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
    fn nonsense_is_refused_with_advice() {
        for text in ["10.9.0.2", "10.9.0.2:65536", "", ":80", "localhost", "fd00::2:x", "[h]:80"] {
            assert_eq!(text.host_name(), None, "{text}");
            let error = convert(text).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
            assert!(error.to_string().contains("10.9.0.2:80"), "{error}");
        }
        assert!(convert("10.9.0.2:65535").is_ok());
    }

    #[test]
    fn only_names_are_looked_up() {
        for text in ["localhost:80", "a.example:0", "10.9.0:80", "host_1:65535"] {
            let (name, port) = text.rsplit_once(':').unwrap();
            let port: u16 = port.parse().unwrap();
            let expected = Some((name, port));
            assert_eq!(text.host_name(), expected);
            assert_eq!(String::from(text).host_name(), expected);
            assert_eq!((name, port).host_name(), expected);
            assert_eq!((name.to_owned(), port).host_name(), expected);
            assert!(convert(text).is_err(), "{text}");
        }
        for text in ["10.9.0.2:80", "[fd00::2]:80", "[fe80::1%2]:80", "localhost:65536", "h:"] {
            assert_eq!(text.host_name(), None, "{text}");
        }
        assert_eq!(("10.9.0.2", 80).host_name(), None);
        assert_eq!(("fd00::2", 80).host_name(), None);
        assert_eq!(SocketAddr::from(([10, 9, 0, 2], 80)).host_name(), None);
    }
}
