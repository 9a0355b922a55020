//! The server of a load: its name, addresses and path, from its URL.

use std::net::{SocketAddr, ToSocketAddrs};

use hyper::Uri;

use crate::failure::Failure;
use crate::zone;

/// The server, and the path of the requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    /// The URL, as typed.
    pub(crate) url: String,
    /// All addresses of the name.
    pub(crate) addresses: Vec<SocketAddr>,
    /// The connections use TLS.
    pub(crate) is_secured: bool,
    /// The name or address alone, to check the certificate.
    pub(crate) name: String,
    /// The value of the field Host.
    pub(crate) host: String,
    /// The path and the query.
    pub(crate) path: String,
}

impl Target {
    /// The path up to its last slash.
    pub(crate) fn directory(&self) -> &str {
        let path = self.path.split('?').next().unwrap_or_default();
        path.rfind('/').map_or("/", |slash| &path[..=slash])
    }

    /// Parses and resolves a URL.
    pub(crate) fn new(url: &str) -> Result<Target, Failure> {
        let usage = |why: &str| Failure::Usage(format!("{url}: {why}"));
        let (plain, zone) = without_zone(url);
        let Ok(uri) = plain.parse::<Uri>() else {
            return Err(usage("not a URL; give one such as http://10.9.0.2/"));
        };
        // Schemes and hosts are the same in capitals (RFC 3986 §3.1, §3.2.2).
        let is_scheme = |name| uri.scheme_str().is_some_and(|s| s.eq_ignore_ascii_case(name));
        let is_secured = is_scheme("https");
        if !is_secured && !is_scheme("http") {
            return Err(usage("give a URL that begins with http:// or https://"));
        }
        let Some(authority) = uri.authority() else {
            return Err(usage("there is no host in it"));
        };
        if authority.as_str().contains('@') {
            return Err(usage("give a user by --header 'Authorization: …'"));
        }
        let host = authority.host().trim_start_matches('[').trim_end_matches(']');
        // A port without digits is the scheme's (RFC 3986 §3.2.3).
        let named = authority.as_str().strip_suffix(':').unwrap_or(authority.as_str());
        let port = match authority.port_u16().filter(|port| *port > 0) {
            Some(port) => port,
            None if named != authority.host() => {
                return Err(usage("give a port from 1 to 65535, or none"));
            }
            None if is_secured => 443,
            None => 80,
        };
        let resolved = (host, port).to_socket_addrs();
        let mut addresses: Vec<SocketAddr> = match resolved {
            Ok(addresses) => addresses.collect(),
            Err(error) => return Err(Failure::Load(format!("{host}: {error}"))),
        };
        if let Some(name) = zone {
            let scope = zone::number_of(name).ok_or_else(|| usage("there is no such interface"))?;
            for address in &mut addresses {
                if let SocketAddr::V6(v6) = address {
                    v6.set_scope_id(scope);
                }
            }
        }
        if addresses.is_empty() {
            return Err(Failure::Load(format!("{host}: it has no address")));
        }
        // An empty path is the root's (RFC 9110 §4.2.3).
        let path = match uri.path_and_query().map_or("/", |path| path.as_str()) {
            query if query.starts_with('?') => format!("/{query}"),
            path => path.to_owned(),
        };
        Ok(Target {
            url: url.to_owned(),
            addresses,
            is_secured,
            name: host.to_owned(),
            host: named.to_ascii_lowercase(),
            path,
        })
    }
}

/// A URL without the zone of its IPv6 address, and the zone: `[fe80::1%eth0]`, and as RFC 6874
/// writes it, `[fe80::1%25eth0]`. A server never sees the zone (RFC 6874 §3).
fn without_zone(url: &str) -> (String, Option<&str>) {
    let zone = url.find('[').and_then(|open| {
        let close = open + url[open..].find(']')?;
        let percent = open + url[open..close].find('%')?;
        Some((percent, close))
    });
    let Some((percent, close)) = zone else { return (url.to_owned(), None) };
    let name = &url[percent + 1..close];
    let name = name.strip_prefix("25").filter(|rest| !rest.is_empty()).unwrap_or(name);
    (format!("{}{}", &url[..percent], &url[close..]), Some(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_says_whom_to_ask_for_what() {
        for (url, address, host, path) in [
            ("http://10.9.0.2", "10.9.0.2:80", "10.9.0.2", "/"),
            ("http://10.9.0.2:8080/a/b?c=d", "10.9.0.2:8080", "10.9.0.2:8080", "/a/b?c=d"),
            ("http://[fd00::2]:81/", "[fd00::2]:81", "[fd00::2]:81", "/"),
            ("http://127.0.0.1/?x", "127.0.0.1:80", "127.0.0.1", "/?x"),
            ("http://127.0.0.1?x=/y", "127.0.0.1:80", "127.0.0.1", "/?x=/y"),
            ("http://127.0.0.1/a#b?c", "127.0.0.1:80", "127.0.0.1", "/a"),
            ("http://127.0.0.1:/a", "127.0.0.1:80", "127.0.0.1", "/a"),
            ("https://[fd00::2]:/", "[fd00::2]:443", "[fd00::2]", "/"),
            ("HTTP://127.0.0.1:81/A", "127.0.0.1:81", "127.0.0.1:81", "/A"),
            ("HttpS://127.0.0.1", "127.0.0.1:443", "127.0.0.1", "/"),
            ("http://[FD00::2]/", "[fd00::2]:80", "[fd00::2]", "/"),
            ("https://10.9.0.2/", "10.9.0.2:443", "10.9.0.2", "/"),
            ("https://[fd00::2]:81/", "[fd00::2]:81", "[fd00::2]:81", "/"),
        ] {
            let target = Target::new(url).unwrap();
            assert_eq!(target.addresses, [address.parse().unwrap()], "{url}");
            assert_eq!((&*target.host, &*target.path), (host, path), "{url}");
            assert_eq!(target.is_secured, url.to_ascii_lowercase().starts_with("https"));
            assert!(!target.name.contains(['[', ']']), "{}", target.name);
        }
    }

    #[test]
    fn a_zone_is_an_interface_and_no_part_of_the_host() {
        let index = std::fs::read_to_string("/sys/class/net/lo/ifindex").unwrap();
        let scope: u32 = index.trim().parse().unwrap();
        for zone in ["lo", "25lo", index.trim()] {
            let target = Target::new(&format!("http://[fe80::1%{zone}]:81/")).unwrap();
            let SocketAddr::V6(address) = target.addresses[0] else { panic!("{target:?}") };
            assert_eq!((address.scope_id(), address.port()), (scope, 81), "{zone}");
            assert_eq!(target.host, "[fe80::1]:81");
        }
        for zone in ["no-such", "../lo", "0"] {
            let refused = Target::new(&format!("http://[fe80::1%{zone}]/")).unwrap_err();
            assert!(refused.to_string().contains("no such interface"), "{zone}: {refused}");
        }
    }

    #[test]
    fn a_url_that_cannot_be_asked_is_refused_with_the_reason() {
        for (url, why) in [
            ("10.9.0.2", "begins with http://"),
            ("/path", "begins with http://"),
            ("ftp://10.9.0.2/", "begins with http://"),
            ("http://user:word@10.9.0.2/", "Authorization"),
            ("http://a b/", "not a URL"),
            ("http://127.0.0.1:65536/", "a port from 1 to 65535"),
            ("http://[::1]:0/", "a port from 1 to 65535"),
            ("http://no-such-host.invalid/", "no-such-host.invalid"),
        ] {
            let text = Target::new(url).unwrap_err().to_string();
            assert!(text.contains(why), "{url}: {text}");
        }
    }
}
