//! The server of a load: its name, addresses and path, from its URL.

use std::net::{SocketAddr, ToSocketAddrs};

use hyper::Uri;

use crate::failure::Failure;

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
        let Ok(uri) = url.parse::<Uri>() else {
            return Err(usage("not a URL; give one such as http://10.9.0.2/"));
        };
        match uri.scheme_str() {
            Some("http" | "https") => {}
            _ => return Err(usage("give a URL that begins with http:// or https://")),
        }
        let is_secured = uri.scheme_str() == Some("https");
        let Some(authority) = uri.authority() else {
            return Err(usage("there is no host in it"));
        };
        if authority.as_str().contains('@') {
            return Err(usage("give a user by --header 'Authorization: …'"));
        }
        let host = authority.host().trim_start_matches('[').trim_end_matches(']');
        let port = match authority.port_u16().filter(|port| *port > 0) {
            Some(port) => port,
            None if authority.as_str() != authority.host() => {
                return Err(usage("give a port from 1 to 65535, or none"));
            }
            None => {
                if is_secured {
                    443
                } else {
                    80
                }
            }
        };
        let resolved = (host, port).to_socket_addrs();
        let addresses: Vec<SocketAddr> = match resolved {
            Ok(addresses) => addresses.collect(),
            Err(error) => return Err(Failure::Load(format!("{host}: {error}"))),
        };
        if addresses.is_empty() {
            return Err(Failure::Load(format!("{host}: it has no address")));
        }
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        Ok(Target {
            url: url.to_owned(),
            addresses,
            is_secured,
            name: host.to_owned(),
            host: authority.as_str().to_owned(),
            path: path.to_owned(),
        })
    }
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
            ("https://10.9.0.2/", "10.9.0.2:443", "10.9.0.2", "/"),
            ("https://[fd00::2]:81/", "[fd00::2]:81", "[fd00::2]:81", "/"),
        ] {
            let target = Target::new(url).unwrap();
            assert_eq!(target.addresses, [address.parse().unwrap()], "{url}");
            assert_eq!((&*target.host, &*target.path), (host, path), "{url}");
            assert_eq!(target.is_secured, url.starts_with("https"));
            assert!(!target.name.contains(['[', ']']), "{}", target.name);
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
