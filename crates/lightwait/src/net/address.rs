//! What may be given where an address and a port are wanted.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// An address and a port, in any of the forms that tokio takes. Names are not looked up: a host
/// name is an error of kind `InvalidInput`.
pub trait ToSocketAddrs {
    /// The address and the port.
    fn to_socket_addr(&self) -> io::Result<SocketAddr>;
}

macro_rules! convertible {
    ($($kind:ty),*) => {
        $(impl ToSocketAddrs for $kind {
            fn to_socket_addr(&self) -> io::Result<SocketAddr> {
                Ok((*self).into())
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
    fn to_socket_addr(&self) -> io::Result<SocketAddr> {
        self.parse().map_err(|_| not_an_address(self))
    }
}

impl ToSocketAddrs for (&str, u16) {
    fn to_socket_addr(&self) -> io::Result<SocketAddr> {
        let address: IpAddr = self.0.parse().map_err(|_| not_an_address(self.0))?;
        Ok((address, self.1).into())
    }
}

impl ToSocketAddrs for String {
    fn to_socket_addr(&self) -> io::Result<SocketAddr> {
        self.as_str().to_socket_addr()
    }
}

impl<T: ToSocketAddrs + ?Sized> ToSocketAddrs for &T {
    fn to_socket_addr(&self) -> io::Result<SocketAddr> {
        (**self).to_socket_addr()
    }
}

fn not_an_address(text: &str) -> io::Error {
    let text =
        format!("`{text}` is not an address with a port, such as 10.9.0.2:80 or [fd00::2]:80");
    io::Error::new(io::ErrorKind::InvalidInput, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn convert(address: impl ToSocketAddrs) -> io::Result<SocketAddr> {
        address.to_socket_addr()
    }

    #[test]
    fn every_form_gives_the_same_address() {
        let expected: SocketAddr = "10.9.0.2:80".parse().unwrap();
        assert_eq!(convert("10.9.0.2:80").unwrap(), expected);
        assert_eq!(convert(String::from("10.9.0.2:80")).unwrap(), expected);
        assert_eq!(convert(("10.9.0.2", 80)).unwrap(), expected);
        assert_eq!(convert((Ipv4Addr::new(10, 9, 0, 2), 80)).unwrap(), expected);
        assert_eq!(convert(expected).unwrap(), expected);
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
