//! Proxies for the tests of the tunnel: SOCKS5 with UDP ASSOCIATE, and HTTP's CONNECT. Each passes
//! on half-closed connections and resets.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

/// How a proxy behaves.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Manners {
    /// Takes this long before it connects.
    pub(crate) delay: Duration,
    /// Asks for user and password: `me` and `p@ss`.
    pub(crate) asks: bool,
    /// Knows no UDP ASSOCIATE.
    pub(crate) only_tcp: bool,
    /// Counts the associations.
    pub(crate) associations: Option<&'static AtomicUsize>,
}

/// Serves SOCKS5 as long as the test lives. Returns where.
pub(crate) fn socks5(manners: Manners) -> SocketAddr {
    serve(move |stream| serve_socks5(stream, manners))
}

/// Serves HTTP's CONNECT as long as the test lives. Returns where.
pub(crate) fn http(manners: Manners) -> SocketAddr {
    serve(move |stream| serve_http(stream, manners))
}

fn serve(one: impl Fn(TcpStream) -> io::Result<()> + Copy + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            stream.set_nodelay(true).unwrap();
            // A client may go at any time.
            thread::spawn(move || one(stream));
        }
    });
    address
}

fn serve_socks5(mut stream: TcpStream, manners: Manners) -> io::Result<()> {
    let [_, count] = read::<2>(&mut stream)?;
    let mut methods = vec![0; count.into()];
    stream.read_exact(&mut methods)?;
    if manners.asks {
        assert!(methods.contains(&2), "{methods:?}");
        stream.write_all(&[5, 2])?;
        let said = read::<9>(&mut stream)?;
        let is_right = said == *b"\x01\x02me\x04p@ss";
        stream.write_all(&[1, u8::from(!is_right)])?;
        if !is_right {
            return Ok(());
        }
    } else {
        stream.write_all(&[5, 0])?;
    }
    let [_, command, _, kind] = read::<4>(&mut stream)?;
    let ip = match kind {
        1 => read::<4>(&mut stream)?.into(),
        _ => std::net::IpAddr::from(read::<16>(&mut stream)?),
    };
    let destination = SocketAddr::new(ip, u16::from_be_bytes(read::<2>(&mut stream)?));
    thread::sleep(manners.delay);
    match command {
        1 => match TcpStream::connect(destination) {
            Ok(far) => {
                stream.write_all(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0])?;
                join(stream, far);
            }
            Err(error) => {
                let reply = match error.kind() {
                    io::ErrorKind::ConnectionRefused => 5,
                    io::ErrorKind::NetworkUnreachable => 3,
                    _ => 4,
                };
                stream.write_all(&[5, reply, 0, 1, 0, 0, 0, 0, 0, 0])?;
            }
        },
        3 if !manners.only_tcp => {
            if let Some(count) = manners.associations {
                count.fetch_add(1, Ordering::Relaxed);
            }
            let relay = UdpSocket::bind("127.0.0.1:0")?;
            let port = relay.local_addr()?.port().to_be_bytes();
            // "Here": it names no address.
            stream.write_all(&[5, 0, 0, 1, 0, 0, 0, 0, port[0], port[1]])?;
            let far = UdpSocket::bind("[::]:0")?;
            let (relay_too, far_too) = (relay.try_clone()?, far.try_clone()?);
            thread::spawn(move || carry_datagrams(&relay_too, &far_too));
            // The association lasts as long as its connection.
            let _ = stream.read(&mut [0]);
        }
        _ => stream.write_all(&[5, 7, 0, 1, 0, 0, 0, 0, 0, 0])?,
    }
    Ok(())
}

/// Carries datagrams of one association, one there and its answers back. (IPv4 destinations are
/// reached by mapped addresses.)
fn carry_datagrams(relay: &UdpSocket, far: &UdpSocket) -> io::Result<()> {
    let mut buffer = vec![0; 70_000];
    let (len, client) = relay.recv_from(&mut buffer)?;
    relay.connect(client)?;
    let back = (relay.try_clone()?, far.try_clone()?);
    thread::spawn(move || -> io::Result<()> {
        let (relay, far) = back;
        let mut buffer = vec![0; 70_000];
        loop {
            let (len, from) = far.recv_from(&mut buffer)?;
            let mut whole = vec![0, 0, 0];
            match from.ip().to_canonical() {
                std::net::IpAddr::V4(ip) => {
                    whole.push(1);
                    whole.extend(ip.octets());
                }
                std::net::IpAddr::V6(ip) => {
                    whole.push(4);
                    whole.extend(ip.octets());
                }
            }
            whole.extend(from.port().to_be_bytes());
            whole.extend(&buffer[..len]);
            relay.send(&whole)?;
        }
    });
    let mut len = len;
    loop {
        let (ip, at) = match buffer[3] {
            1 => {
                let ip = std::net::Ipv4Addr::from(*buffer[4..].first_chunk::<4>().unwrap());
                (ip.to_ipv6_mapped(), 8)
            }
            _ => (std::net::Ipv6Addr::from(*buffer[4..].first_chunk::<16>().unwrap()), 20),
        };
        let port = u16::from_be_bytes([buffer[at], buffer[at + 1]]);
        far.send_to(&buffer[at + 2..len], (ip, port))?;
        len = relay.recv(&mut buffer)?;
    }
}

fn serve_http(mut stream: TcpStream, manners: Manners) -> io::Result<()> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        head.push(char::from(read::<1>(&mut stream)?[0]));
    }
    // bWU6cEBzcw== is me:p@ss.
    if manners.asks && !head.contains("\r\nProxy-Authorization: Basic bWU6cEBzcw==\r\n") {
        return stream.write_all(b"HTTP/1.1 407 Who are you?\r\n\r\n");
    }
    let destination = head.split(' ').nth(1).unwrap().to_owned();
    thread::sleep(manners.delay);
    match TcpStream::connect(destination) {
        Ok(far) => {
            stream.write_all(b"HTTP/1.1 200 Connected\r\n\r\n")?;
            join(stream, far);
            Ok(())
        }
        Err(_) => stream.write_all(b"HTTP/1.1 502 Bad Gateway\r\n\r\n"),
    }
}

fn read<const N: usize>(stream: &mut TcpStream) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    stream.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// Joins two connections until both directions have ended.
fn join(one: TcpStream, other: TcpStream) {
    let (one_too, other_too) = (one.try_clone().unwrap(), other.try_clone().unwrap());
    let back = thread::spawn(move || copy(other_too, one_too));
    copy(one, other);
    back.join().unwrap();
}

/// Copies until the end, which is passed on, or a reset, which is as well.
fn copy(mut from: TcpStream, mut to: TcpStream) {
    match io::copy(&mut from, &mut to) {
        Ok(_) => {
            let _ = to.shutdown(Shutdown::Write);
        }
        Err(_) => {
            for side in [&from, &to] {
                let _ = rustix::net::sockopt::set_socket_linger(side, Some(Duration::ZERO));
                // Ends the other direction, whose close is the last.
                let _ = side.shutdown(Shutdown::Read);
            }
        }
    }
}
