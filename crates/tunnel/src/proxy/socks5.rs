//! A client of SOCKS5: RFC 1928, with user and password by RFC 1929. (The crates that there are
//! have no UDP ASSOCIATE, or take a password's length modulo 256 and a short write for a whole one;
//! and it is little.)

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::Refused;

/// The protocol's version, and that of the talk about user and password.
const VERSION: u8 = 5;
const PASSWORD_VERSION: u8 = 1;

/// Methods (RFC 1928 §3).
const NO_AUTHENTICATION: u8 = 0;
const USER_AND_PASSWORD: u8 = 2;
const NONE_ACCEPTABLE: u8 = 0xff;

/// Commands (RFC 1928 §4).
const CONNECT: u8 = 1;
const UDP_ASSOCIATE: u8 = 3;

/// Types of addresses (RFC 1928 §5).
const IPV4: u8 = 1;
const NAME: u8 = 3;
const IPV6: u8 = 4;

/// Where the address begins in an answer: behind version, reply, and a reserved byte.
const ADDRESS_AT: usize = 3;

/// Room for an answer: more than the longest.
const ANSWER_BYTES: usize = 512;

/// Bytes of a datagram's header before its address (RFC 1928 §7).
const DATAGRAM_PREFIX: usize = 3;
/// Bytes of a datagram's header with an IPv6 address.
pub(crate) const HEADER_MAX: usize = DATAGRAM_PREFIX + 1 + 16 + 2;

/// Has the proxy connect to `destination`, once it knows us. Returns what the far side has said
/// right behind the proxy's answer.
pub(super) async fn open(
    stream: &mut TcpStream,
    destination: SocketAddr,
) -> Result<Vec<u8>, Refused> {
    request(stream, CONNECT, destination).await.map(|(_, ahead)| ahead)
}

/// Has the proxy, which knows us, relay datagrams as long as `stream` is open. Returns where they
/// go to.
pub(crate) async fn associate(stream: &mut TcpStream) -> Result<SocketAddr, Refused> {
    // RFC 1928 §6: zeros, for we do not know from where we shall send.
    let any = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
    let (bound, _) = request(stream, UDP_ASSOCIATE, any).await?;
    // "Here", says one that does not know its own address.
    let proxy = stream.peer_addr().map_err(Refused::of_talk)?;
    match bound {
        Some(bound) if !bound.ip().is_unspecified() => Ok(bound),
        Some(bound) => Ok(SocketAddr::new(proxy.ip(), bound.port())),
        None => Err(Refused::NoProxy("it names its relay for datagrams by a name".to_owned())),
    }
}

/// Agrees on how we prove who we are, and does that.
pub(super) async fn greet(
    stream: &mut TcpStream,
    credentials: Option<(&str, &str)>,
) -> Result<(), Refused> {
    let methods: &[u8] = match credentials {
        None => &[VERSION, 1, NO_AUTHENTICATION],
        Some(_) => &[VERSION, 2, NO_AUTHENTICATION, USER_AND_PASSWORD],
    };
    stream.write_all(methods).await.map_err(Refused::of_talk)?;
    match (read_pair(stream).await?, credentials) {
        ([VERSION, NO_AUTHENTICATION], _) => Ok(()),
        ([VERSION, USER_AND_PASSWORD], Some((user, password))) => {
            log_in(stream, user, password).await
        }
        ([VERSION, NONE_ACCEPTABLE], None) => {
            Err(Refused::Unwilling("it wants a user and a password".to_owned()))
        }
        ([VERSION, method], _) => {
            Err(Refused::Unwilling(format!("it wants method {method:#04x} of authentication")))
        }
        ([version, _], _) => Err(Refused::NoProxy(strange(version))),
    }
}

/// RFC 1929.
async fn log_in(stream: &mut TcpStream, user: &str, password: &str) -> Result<(), Refused> {
    let mut message = vec![PASSWORD_VERSION];
    for part in [user, password] {
        // It was seen to that they fit.
        message.push(part.len() as u8);
        message.extend_from_slice(part.as_bytes());
    }
    stream.write_all(&message).await.map_err(Refused::of_talk)?;
    match read_pair(stream).await?[1] {
        0 => Ok(()),
        _ => Err(Refused::Unwilling("it refuses this user or password".to_owned())),
    }
}

/// Reads an answer of two bytes. Nothing can follow it, and so there is room for more: a read that
/// does not fill its buffer tells the runtime that nothing is left, and the next need not try.
async fn read_pair(stream: &mut TcpStream) -> Result<[u8; 2], Refused> {
    let mut answer = Vec::with_capacity(ANSWER_BYTES);
    while answer.len() < 2 {
        read_more(stream, &mut answer).await?;
    }
    match answer[..] {
        [one, other] => Ok([one, other]),
        [version, ..] => Err(Refused::NoProxy(strange(version))),
        [] => unreachable!("two have come"),
    }
}

/// Appends what has come, or fails at the end.
async fn read_more(stream: &mut TcpStream, answer: &mut Vec<u8>) -> Result<(), Refused> {
    match stream.read_buf(answer).await.map_err(Refused::of_talk)? {
        0 => Err(Refused::of_talk(io::ErrorKind::UnexpectedEof.into())),
        _ => Ok(()),
    }
}

/// Makes a request. Returns the address in the answer, unless that is a name, and what came behind
/// the answer.
async fn request(
    stream: &mut TcpStream,
    command: u8,
    destination: SocketAddr,
) -> Result<(Option<SocketAddr>, Vec<u8>), Refused> {
    let mut message = vec![VERSION, command, 0];
    write_address(&mut message, destination);
    stream.write_all(&message).await.map_err(Refused::of_talk)?;
    let mut answer = Vec::with_capacity(ANSWER_BYTES);
    loop {
        read_more(stream, &mut answer).await?;
        if let Some(len) = len_of(&answer)?
            && answer.len() >= len
        {
            let ahead = answer.split_off(len);
            return Ok((read_address(&answer[ADDRESS_AT..]).map(|(address, _)| address), ahead));
        }
    }
}

/// How long the answer is that begins so, once it says that.
fn len_of(answer: &[u8]) -> Result<Option<usize>, Refused> {
    match *answer {
        [version, ..] if version != VERSION => Err(Refused::NoProxy(strange(version))),
        // What follows a refusal is of no use.
        [_, reply, ..] if reply != 0 => Err(refused(reply)),
        [_, _, _, IPV4, ..] => Ok(Some(ADDRESS_AT + 1 + 4 + 2)),
        [_, _, _, IPV6, ..] => Ok(Some(ADDRESS_AT + 1 + 16 + 2)),
        [_, _, _, NAME, len, ..] => Ok(Some(ADDRESS_AT + 2 + usize::from(len) + 2)),
        [_, _, _, kind, ..] if kind != NAME => {
            Err(Refused::NoProxy(format!("its answer has an address of type {kind}")))
        }
        _ => Ok(None),
    }
}

/// The meaning of a reply (RFC 1928 §6).
fn refused(reply: u8) -> Refused {
    match reply {
        2 => Refused::Forbidden,
        3 => Refused::NoNetwork,
        1 | 4 | 6 => Refused::NoHost,
        5 => Refused::ByHost,
        7 => Refused::Unwilling("it does not know this command".to_owned()),
        8 => Refused::NoNetwork,
        _ => Refused::NoProxy(format!("its answer is {reply}, which RFC 1928 does not have")),
    }
}

fn strange(version: u8) -> String {
    format!("it speaks version {version} and not SOCKS5: is it another kind of proxy?")
}

/// Appends type, address and port.
fn write_address(out: &mut Vec<u8>, address: SocketAddr) {
    match address.ip() {
        IpAddr::V4(ip) => {
            out.push(IPV4);
            out.extend_from_slice(&ip.octets());
        }
        IpAddr::V6(ip) => {
            out.push(IPV6);
            out.extend_from_slice(&ip.octets());
        }
    }
    out.extend_from_slice(&address.port().to_be_bytes());
}

/// Reads type, address and port, and how long they are. `None` if they are cut off, or a name.
fn read_address(bytes: &[u8]) -> Option<(SocketAddr, usize)> {
    let (kind, rest) = bytes.split_first()?;
    let (ip, rest): (IpAddr, &[u8]) = match *kind {
        IPV4 => rest.split_first_chunk::<4>().map(|(ip, rest)| (Ipv4Addr::from(*ip).into(), rest)),
        IPV6 => rest.split_first_chunk::<16>().map(|(ip, rest)| (Ipv6Addr::from(*ip).into(), rest)),
        _ => None,
    }?;
    let (port, rest) = rest.split_first_chunk::<2>()?;
    Some((SocketAddr::new(ip, u16::from_be_bytes(*port)), bytes.len() - rest.len()))
}

/// Puts the header of a datagram to `destination` into `out` (RFC 1928 §7).
pub(crate) fn write_header(out: &mut Vec<u8>, destination: SocketAddr) {
    out.extend_from_slice(&[0; DATAGRAM_PREFIX]);
    write_address(out, destination);
}

/// Where a datagram came from, and its payload. `None` if it is none, or a fragment, which we do
/// not put together (RFC 1928 §7 lets us drop it).
pub(crate) fn read_datagram(bytes: &[u8]) -> Option<(SocketAddr, &[u8])> {
    let (&[_, _, fragment], rest) = bytes.split_first_chunk::<DATAGRAM_PREFIX>()?;
    let (from, len) = read_address(rest).filter(|_| fragment == 0)?;
    Some((from, &rest[len..]))
}

#[cfg(test)]
mod tests;
