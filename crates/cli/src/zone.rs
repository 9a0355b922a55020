//! The zone of an IPv6 address (RFC 4007): an interface, which people name and the kernel numbers.

use std::fmt;
use std::fs;
use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6};

/// What the kernel says of its interfaces.
const INTERFACES: &str = "/sys/class/net";

/// The number of an interface, by its name or as it stands.
pub(crate) fn number_of(zone: &str) -> Option<u32> {
    let is_name = !zone.contains('/') && !zone.starts_with('.');
    let named = Some(zone).filter(|_| is_name).and_then(named);
    named.or_else(|| zone.parse().ok().filter(|number| *number > 0))
}

/// The number of the interface of that name.
fn named(name: &str) -> Option<u32> {
    let number = fs::read_to_string(format!("{INTERFACES}/{name}/ifindex")).ok()?;
    number.trim().parse().ok()
}

/// The name of the interface of that number, or the number if there is none.
fn name_of(number: u32) -> String {
    let all = fs::read_dir(INTERFACES).into_iter().flatten().flatten();
    let mut names = all.filter_map(|entry| entry.file_name().into_string().ok());
    names.find(|name| named(name) == Some(number)).unwrap_or_else(|| number.to_string())
}

/// The zone of an address, by name, if it has one.
pub(crate) fn zone_of(address: SocketAddr) -> Option<String> {
    match address {
        SocketAddr::V6(v6) if v6.scope_id() > 0 => Some(name_of(v6.scope_id())),
        _ => None,
    }
}

/// An address and a port for people: with the name of the zone.
pub(crate) struct Named(pub(crate) SocketAddr);

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match zone_of(self.0) {
            Some(zone) => write!(f, "[{}%{zone}]:{}", self.0.ip(), self.0.port()),
            None => self.0.fmt(f),
        }
    }
}

/// An address and a port, such as `[fe80::1%eth0]:80`.
pub(crate) fn parse(text: &str) -> Result<SocketAddr, String> {
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    let Some((address, zone, port)) = zoned(text) else {
        return Err("give an address and a port, such as 127.0.0.1:8080 or [::1]:8080".to_owned());
    };
    let number = number_of(zone).ok_or_else(|| format!("there is no interface {zone}"))?;
    Ok(SocketAddrV6::new(address, port, 0, number).into())
}

/// The parts of an address with a zone.
fn zoned(text: &str) -> Option<(Ipv6Addr, &str, u16)> {
    let (host, port) = text.strip_prefix('[')?.split_once("]:")?;
    let (address, zone) = host.split_once('%')?;
    Some((address.parse().ok()?, zone, port.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zone_is_told_by_its_name_however_it_was_given() {
        let number = number_of("lo").unwrap();
        for text in ["[fe80::1%lo]:80".to_owned(), format!("[fe80::1%{number}]:80")] {
            let address = parse(&text).unwrap();
            assert_eq!(
                address,
                SocketAddrV6::new("fe80::1".parse().unwrap(), 80, 0, number).into()
            );
            assert_eq!(Named(address).to_string(), "[fe80::1%lo]:80");
        }
        let gone = SocketAddrV6::new("fe80::1".parse().unwrap(), 80, 0, u32::MAX);
        assert_eq!(Named(gone.into()).to_string(), format!("[fe80::1%{}]:80", u32::MAX));
        for text in ["127.0.0.1:80", "[::1]:80"] {
            assert_eq!(Named(parse(text).unwrap()).to_string(), text);
        }
    }

    #[test]
    fn an_address_that_is_none_is_refused_in_our_words() {
        for text in ["localhost:80", "8080", "::1", "[::1]", "127.0.0.1", "[::1%lo]", "x%lo]:1"] {
            assert!(parse(text).unwrap_err().contains("such as 127.0.0.1:8080"), "{text}");
        }
        assert_eq!(parse("[::1%no-such]:80"), Err("there is no interface no-such".to_owned()));
        assert!(number_of("../lo").is_none() && number_of("0").is_none());
    }
}
