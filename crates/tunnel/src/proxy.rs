//! Proxies: how one is named, and how a connection is opened through it.

mod http;
pub(crate) mod socks5;

use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::str::FromStr;
use std::time::Duration;

use lightwait::rt;
use percent_encoding::percent_decode_str;
use tokio::net::TcpStream;

/// Where connections and datagrams go.
#[derive(Clone, PartialEq, Eq)]
pub enum Proxy {
    /// To their destinations, by the kernel's routes.
    Direct,
    /// Through a SOCKS5 proxy (RFC 1928), with its UDP ASSOCIATE.
    Socks5(Server),
    /// Through an HTTP proxy by CONNECT (RFC 9110 §9.3.6). It carries no datagrams.
    Http(Server),
}

/// A proxy's address, and who we say we are.
#[derive(Clone, PartialEq, Eq)]
pub struct Server {
    address: SocketAddr,
    /// As it was written, without the password.
    name: String,
    credentials: Option<Credentials>,
}

#[derive(Clone, PartialEq, Eq)]
struct Credentials {
    user: String,
    password: String,
}

/// Why a text names no proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxyError(String);

impl fmt::Display for ProxyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ProxyError {}

/// How long a proxy may take to greet: it asks nobody for that.
const GREETING: Duration = Duration::from_millis(if cfg!(test) { 200 } else { 10_000 });

/// The forms that there are.
const FORMS: &str =
    "socks5://[USER:PASSWORD@]HOST:PORT, http://[USER:PASSWORD@]HOST:PORT or direct";

impl FromStr for Proxy {
    type Err = ProxyError;

    /// Reads `socks5://HOST:PORT`, `http://HOST:PORT` or `direct`. Before the host there may be
    /// `USER:PASSWORD@`, percent-encoded (RFC 3986 §3.2.1). A name is looked up at once.
    fn from_str(text: &str) -> Result<Proxy, ProxyError> {
        if text == "direct" {
            return Ok(Proxy::Direct);
        }
        let Some((scheme, rest)) = text.split_once("://") else {
            return Err(ProxyError(format!("expected {FORMS}")));
        };
        let make = match scheme {
            "socks5" | "socks5h" => Proxy::Socks5,
            "http" => Proxy::Http,
            _ => return Err(ProxyError(format!("no scheme `{scheme}`: expected {FORMS}"))),
        };
        let server = Server::parse(rest.strip_suffix('/').unwrap_or(rest))?;
        if scheme != "http" && server.credentials.as_ref().is_some_and(|it| !it.fit_in_bytes()) {
            let text = "SOCKS5 takes a user and a password of 1 to 255 bytes each (RFC 1929 §2)";
            return Err(ProxyError(text.to_owned()));
        }
        Ok(make(server))
    }
}

impl Server {
    fn parse(text: &str) -> Result<Server, ProxyError> {
        let (credentials, place) = match text.rsplit_once('@') {
            None => (None, text),
            Some((who, place)) => (Some(Credentials::parse(who)?), place),
        };
        let has_port = place.rsplit_once(':').is_some_and(|(host, port)| {
            !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0)
        });
        if !has_port {
            return Err(ProxyError(format!("`{place}` is no HOST:PORT, such as 127.0.0.1:1080")));
        }
        let found = place.to_socket_addrs();
        let found = found.map_err(|error| ProxyError(format!("`{place}`: {error}")))?;
        let address = found.into_iter().next();
        let address = address.ok_or_else(|| ProxyError(format!("`{place}` has no address")))?;
        Ok(Server { address, name: place.to_owned(), credentials })
    }
}

impl Credentials {
    fn parse(text: &str) -> Result<Credentials, ProxyError> {
        let Some((user, password)) = text.split_once(':') else {
            return Err(ProxyError("before the @ there is USER:PASSWORD".to_owned()));
        };
        let decode = |text| {
            let decoded = percent_decode_str(text).decode_utf8();
            decoded.map(Into::into).map_err(|_| ProxyError(format!("`{text}` is no UTF-8")))
        };
        Ok(Credentials { user: decode(user)?, password: decode(password)? })
    }

    /// True if a byte each can say how long they are.
    fn fit_in_bytes(&self) -> bool {
        [&self.user, &self.password].iter().all(|it| (1..=255).contains(&it.len()))
    }
}

impl fmt::Display for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Proxy::Direct => f.write_str("direct"),
            Proxy::Socks5(server) => write!(f, "socks5://{}", server.name),
            Proxy::Http(server) => write!(f, "http://{}", server.name),
        }
    }
}

/// Passwords are shown nowhere.
impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// Why a connection was not opened.
#[derive(Debug)]
pub(crate) enum Refused {
    /// The destination has nobody on that port.
    ByHost,
    /// The destination does not answer.
    NoHost,
    /// There is no way to its network.
    NoNetwork,
    /// It may not be reached.
    Forbidden,
    /// It has taken too long.
    Late,
    /// The proxy cannot be reached, or does not say what it should.
    NoProxy(String),
    /// The proxy lets us not in.
    Unwilling(String),
    /// The way to the proxy, or to the destination, leads back into the tunnel.
    Loop,
    /// Something is short here.
    NoRoom(io::Error),
}

impl Refused {
    /// What is wrong, if that is more than one destination's affair.
    pub(crate) fn trouble(&self) -> Option<String> {
        match self {
            Refused::NoProxy(text) | Refused::Unwilling(text) => Some(text.clone()),
            Refused::Loop => Some(
                "the way there leads back into the tunnel: give it a route past the TUN".to_owned(),
            ),
            Refused::NoRoom(error) => Some(error.to_string()),
            Refused::ByHost
            | Refused::NoHost
            | Refused::NoNetwork
            | Refused::Forbidden
            | Refused::Late => None,
        }
    }

    /// Why a connection to the destination itself fails.
    fn of_destination(error: io::Error) -> Refused {
        match error.kind() {
            io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionReset => Refused::ByHost,
            io::ErrorKind::NetworkUnreachable => Refused::NoNetwork,
            io::ErrorKind::HostUnreachable | io::ErrorKind::TimedOut => Refused::NoHost,
            io::ErrorKind::PermissionDenied => Refused::Forbidden,
            _ => Refused::NoRoom(error),
        }
    }

    /// Why a connection to the proxy fails.
    fn of_proxy(error: io::Error) -> Refused {
        match error.kind() {
            io::ErrorKind::ConnectionRefused
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::NetworkUnreachable
            | io::ErrorKind::HostUnreachable
            | io::ErrorKind::TimedOut
            | io::ErrorKind::PermissionDenied => Refused::NoProxy(error.to_string()),
            _ => Refused::NoRoom(error),
        }
    }

    /// Why talking to the proxy fails.
    fn of_talk(error: io::Error) -> Refused {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => {
                Refused::NoProxy("it has closed the connection midway".to_owned())
            }
            _ => Refused::of_proxy(error),
        }
    }
}

impl Proxy {
    /// The proxy's address.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        match self {
            Proxy::Direct => None,
            Proxy::Socks5(server) | Proxy::Http(server) => Some(server.address),
        }
    }

    /// True if it carries datagrams.
    pub(crate) fn carries_datagrams(&self) -> bool {
        !matches!(self, Proxy::Http(_))
    }

    /// Opens a connection to `destination`: the far side has connected. Returns what it has said by
    /// then as well.
    pub(crate) async fn connect(
        &self,
        destination: SocketAddr,
    ) -> Result<(TcpStream, Vec<u8>), Refused> {
        let nothing = Vec::new();
        match self {
            Proxy::Direct => {
                let stream = TcpStream::connect(destination).await;
                Ok((stream.map_err(Refused::of_destination)?, nothing))
            }
            Proxy::Socks5(server) => {
                let mut stream = server.greeted().await?;
                let ahead = socks5::open(&mut stream, destination).await?;
                Ok((stream, ahead))
            }
            Proxy::Http(server) => {
                let mut stream = server.reach().await?;
                http::open(&mut stream, server.credentials(), destination).await?;
                Ok((stream, nothing))
            }
        }
    }
}

impl Server {
    /// User and password.
    pub(crate) fn credentials(&self) -> Option<(&str, &str)> {
        self.credentials.as_ref().map(|it| (&*it.user, &*it.password))
    }

    /// Connects to it.
    async fn reach(&self) -> Result<TcpStream, Refused> {
        TcpStream::connect(self.address).await.map_err(Refused::of_proxy)
    }

    /// Connects to a SOCKS5 proxy, which then knows us.
    pub(crate) async fn greeted(&self) -> Result<TcpStream, Refused> {
        let mut stream = self.reach().await?;
        let greeting = Box::pin(socks5::greet(&mut stream, self.credentials()));
        let silent = || format!("it does not greet in {GREETING:?}: it is no SOCKS5");
        let greeted = rt::timeout(GREETING, greeting).await;
        greeted.unwrap_or_else(|_| Err(Refused::NoProxy(silent())))?;
        Ok(stream)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Proxy, String> {
        text.parse::<Proxy>().map_err(|error| error.to_string())
    }

    #[test]
    fn a_proxy_has_a_scheme_a_host_and_a_port() {
        assert_eq!(parse("direct"), Ok(Proxy::Direct));
        for text in ["socks5://127.0.0.1:1080", "http://[::1]:8080", "socks5://localhost:1"] {
            assert_eq!(parse(text).unwrap().to_string(), text);
            assert_eq!(parse(&format!("{text}/")).unwrap().to_string(), text);
        }
        let Proxy::Socks5(server) = parse("socks5://127.0.0.1:1080").unwrap() else { panic!() };
        assert_eq!(server.address, "127.0.0.1:1080".parse().unwrap());
        for (text, part) in [
            ("", "expected socks5://"),
            ("127.0.0.1:1080", "expected socks5://"),
            ("socks4://127.0.0.1:1080", "no scheme `socks4`"),
            ("socks5://127.0.0.1", "`127.0.0.1` is no HOST:PORT"),
            ("socks5://127.0.0.1:0", "is no HOST:PORT"),
            ("socks5://127.0.0.1:65536", "is no HOST:PORT"),
            ("socks5://:1080", "is no HOST:PORT"),
            ("http://me@127.0.0.1:1080", "USER:PASSWORD"),
            ("http://a:%ff@127.0.0.1:1080", "is no UTF-8"),
            ("socks5://no-such-host.invalid:1080", "`no-such-host.invalid:1080`: "),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn a_proxy_that_does_not_greet_is_none() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let refused = runtime.block_on(async {
            let mute = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let proxy = parse(&format!("socks5://{}", mute.local_addr().unwrap())).unwrap();
            let Proxy::Socks5(server) = proxy else { panic!() };
            let (stack, _other_end) = lightwait::Stack::memory().unwrap();
            let greeted = stack.spawn_local(async move { server.greeted().await });
            let driving = lightwait::driver::drive(vec![stack.into_shard()]);
            tokio::select! {
                failure = driving => panic!("{failure:?}"),
                greeted = greeted => greeted.unwrap().unwrap_err(),
            }
        });
        let text = refused.trouble().unwrap();
        assert!(text.contains("does not greet in 200ms"), "{text}");
    }

    #[test]
    fn credentials_are_percent_encoded_and_shown_nowhere() {
        let proxy = parse("socks5://me:p%40ss%3A@127.0.0.1:1080").unwrap();
        let Proxy::Socks5(server) = &proxy else { panic!() };
        assert_eq!(server.credentials(), Some(("me", "p@ss:")));
        assert_eq!(format!("{proxy} {proxy:?}"), ["socks5://127.0.0.1:1080"; 2].join(" "));
        let of = |user: usize, scheme: &str| {
            parse(&format!("{scheme}://{}:x@127.0.0.1:1080", "u".repeat(user))).is_ok()
        };
        assert!(of(255, "socks5") && !of(256, "socks5") && !of(0, "socks5") && of(256, "http"));
    }
}
