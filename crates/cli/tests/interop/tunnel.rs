//! The tunnel: programs of one namespace reach servers of another through proxies of every kind.

use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::net::sockopt;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::namespace::{self, Namespace, inside};
use crate::proxy::{self, Manners};
use crate::tools;

/// Patience with what may not come.
const PATIENCE: Duration = Duration::from_secs(20);

/// Addresses that servers have in the test's namespace, and that clients reach through the tunnel.
const FAR: [&str; 2] = ["203.0.113.5", "2001:db8::5"];

/// The ways that there are, each with a proxy that asks who we are, if it can.
fn ways() -> [String; 3] {
    let manners = Manners { asks: true, ..Manners::default() };
    let (socks5, http) = (proxy::socks5(manners), proxy::http(manners));
    [
        "direct".to_owned(),
        format!("socks5://me:p%40ss@{socks5}"),
        format!("http://me:p%40ss@{http}"),
    ]
}

/// A tunnel whose TUN is a client's namespace's only way out.
struct World {
    client: Namespace,
    tunnel: Child,
    lines: BufReader<ChildStderr>,
}

impl World {
    fn new(to: &str) -> World {
        World::with(to, &[])
    }

    fn with(to: &str, flags: &[&str]) -> World {
        let client = Namespace::new();
        let (tunnel, lines) = start(to, flags);
        client.take("lw0");
        client.ip("addr add 198.18.0.1/30 dev lw0");
        client.ip("addr add fd77::1/64 dev lw0 nodad");
        client.ip("link set lw0 up");
        client.ip("route add default dev lw0");
        client.ip("-6 route add default dev lw0");
        // Until the kernel has noticed its carrier, an interface loses what is sent.
        let is_up = || {
            let shown = tools::output(client.command("ip").args(["link", "show", "lw0"]));
            shown.contains("LOWER_UP") && !shown.contains("state DOWN")
        };
        let begun = Instant::now();
        while !is_up() {
            assert!(begun.elapsed() < PATIENCE);
            thread::sleep(Duration::from_millis(10));
        }
        World { client, tunnel, lines }
    }

    /// Runs `act` in the client's namespace.
    fn within<T: Send>(&self, act: impl FnOnce() -> T + Send) -> T {
        let namespace = File::open(format!("/proc/{}/ns/net", self.client.id())).unwrap();
        thread::scope(|scope| {
            let inside = scope.spawn(move || {
                move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
                    .unwrap();
                act()
            });
            inside.join().unwrap()
        })
    }

    /// Opens a connection from there.
    fn connect(&self, to: SocketAddr) -> Result<TcpStream, ErrorKind> {
        self.within(|| {
            let stream = TcpStream::connect_timeout(&to, PATIENCE).map_err(|e| e.kind())?;
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            Ok(stream)
        })
    }

    /// A connection from there to a server, and the server's end.
    fn joined(&self) -> [TcpStream; 2] {
        let listener = TcpListener::bind((FAR[0], 0)).unwrap();
        let client = self.connect(listener.local_addr().unwrap()).unwrap();
        let (server, _) = listener.accept().unwrap();
        server.set_read_timeout(Some(PATIENCE)).unwrap();
        [client, server]
    }

    /// Stops the tunnel as a user does. Returns what it said.
    fn stop(mut self) -> String {
        let id = self.tunnel.id().to_string();
        assert!(Command::new("kill").args(["-s", "INT", &id]).status().unwrap().success());
        let mut text = String::new();
        self.lines.read_to_string(&mut text).unwrap();
        assert!(self.tunnel.wait().unwrap().success(), "{text}");
        text
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = self.tunnel.kill();
        let _ = self.tunnel.wait();
    }
}

/// The namespace's own check wants to have seen something.
fn seen_on_loopback() {
    drop(TcpStream::connect(TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()));
}

/// Starts a tunnel, and returns it once it carries.
fn start(to: &str, flags: &[&str]) -> (Child, BufReader<ChildStderr>) {
    let mut tunnel = Command::new(env!("CARGO_BIN_EXE_lightwait"))
        .args(["tunnel", "--tun", "lw0", "--to", to])
        .args(flags)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(tunnel.stderr.take().unwrap());
    let mut line = String::new();
    lines.read_line(&mut line).unwrap();
    assert!(line.starts_with("TUN lw0 → ") && !line.contains("p%40ss"), "{line}");
    (tunnel, lines)
}

/// Sends back what comes to that port.
fn echo_datagrams(port: u16) {
    let echo = UdpSocket::bind((FAR[0], port)).unwrap();
    thread::spawn(move || {
        let mut buffer = vec![0; 70_000];
        while let Ok((len, from)) = echo.recv_from(&mut buffer) {
            echo.send_to(&buffer[..len], from).unwrap();
        }
    });
}

/// Runs `body` in a namespace that has the servers' addresses.
fn tunnelled(test: &str, commands: &[&str], body: impl FnOnce()) {
    inside(test, commands, || {
        if !namespace::has_root() {
            eprintln!("left out: a TUN needs root");
            return seen_on_loopback();
        }
        namespace::ip(&format!("addr add {}/32 dev lo", FAR[0]));
        namespace::ip(&format!("addr add {}/128 dev lo nodad", FAR[1]));
        body();
    });
}

#[test]
fn curl_loads_a_file_through_every_kind_of_proxy() {
    let test = "tunnel::curl_loads_a_file_through_every_kind_of_proxy";
    tunnelled(test, &["curl", "sha256sum", "nsenter"], || {
        let directory = tools::directory();
        let path = directory.path().join("file");
        tools::write_file(&path, 8);
        let sum = tools::sha256_of_file(&path);
        for address in FAR {
            let listener = TcpListener::bind((address, 80)).unwrap();
            let path = path.clone();
            thread::spawn(move || {
                for mut stream in listener.incoming().map_while(Result::ok) {
                    let file = std::fs::read(&path).unwrap();
                    let _ = stream.read(&mut [0; 4096]).unwrap();
                    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", file.len());
                    stream.write_all(head.as_bytes()).unwrap();
                    stream.write_all(&file).unwrap();
                }
            });
        }
        for way in ways() {
            let world = World::new(&way);
            for url in ["http://203.0.113.5/file", "http://[2001:db8::5]/file"] {
                let mut curl = world.client.command("curl");
                curl.args(["--silent", "--show-error", "--fail", "--globoff"]);
                curl.args(["--max-time", "60", url]);
                assert_eq!(tools::sha256_of_output(&mut curl), sum, "{way}: {url}");
            }
            let told = world.stop();
            assert!(told.contains("2 connections: 2 carried, 0 refused"), "{way}: {told}");
        }
    });
}

#[test]
fn a_client_hears_why_it_was_refused() {
    tunnelled("tunnel::a_client_hears_why_it_was_refused", &["nsenter"], || {
        for (way, told) in ways().into_iter().zip([
            [ErrorKind::ConnectionRefused, ErrorKind::NetworkUnreachable],
            [ErrorKind::ConnectionRefused, ErrorKind::NetworkUnreachable],
            // Its gateway errors do not say.
            [ErrorKind::HostUnreachable, ErrorKind::HostUnreachable],
        ]) {
            let world = World::new(&way);
            // Nobody listens on port 81, and there is no way to that network.
            for (to, expected) in ["203.0.113.5:81", "198.51.100.1:80"].into_iter().zip(told) {
                let error = world.connect(to.parse().unwrap()).unwrap_err();
                assert_eq!(error, expected, "{way}: {to}");
            }
            let text = world.stop();
            assert!(text.contains("0 carried, 2 refused"), "{way}: {text}");
        }
    });
}

#[test]
fn a_client_is_answered_when_the_far_side_has_connected() {
    const DELAY: Duration = Duration::from_millis(1500);
    let test = "tunnel::a_client_is_answered_when_the_far_side_has_connected";
    tunnelled(test, &["nsenter"], || {
        let listener = TcpListener::bind((FAR[0], 0)).unwrap();
        let manners = Manners { delay: DELAY, ..Manners::default() };
        let ways = [
            format!("socks5://{}", proxy::socks5(manners)),
            format!("http://{}", proxy::http(manners)),
        ];
        for way in ways {
            let world = World::new(&way);
            let begun = Instant::now();
            world.connect(listener.local_addr().unwrap()).unwrap();
            // Its SYN was sent twice by then, which makes one connection.
            assert!(begun.elapsed() >= DELAY, "{way}");
            let told = world.stop();
            assert!(told.contains("1 connections: 1 carried"), "{way}: {told}");
        }
    });
}

#[test]
fn half_closed_connections_and_resets_pass_both_ways() {
    tunnelled("tunnel::half_closed_connections_and_resets_pass_both_ways", &["nsenter"], || {
        for way in ways() {
            let world = World::new(&way);
            for turned in [false, true] {
                let mut ends = world.joined();
                ends.rotate_left(usize::from(turned));
                let [mut one, mut other] = ends;
                one.write_all(b"question").unwrap();
                one.shutdown(Shutdown::Write).unwrap();
                let mut heard = String::new();
                other.read_to_string(&mut heard).unwrap();
                assert_eq!(heard, "question", "{way}");
                other.write_all(b"answer").unwrap();
                drop(other);
                heard.clear();
                one.read_to_string(&mut heard).unwrap();
                assert_eq!(heard, "answer", "{way}");

                let mut ends = world.joined();
                ends.rotate_left(usize::from(turned));
                let [mut one, mut other] = ends;
                one.write_all(b"x").unwrap();
                other.read_exact(&mut [0]).unwrap();
                sockopt::set_socket_linger(&one, Some(Duration::ZERO)).unwrap();
                drop(one);
                let error = other.read(&mut [0]).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{way}, turned: {turned}");
            }
        }
    });
}

#[test]
fn datagrams_pass_or_are_refused() {
    tunnelled("tunnel::datagrams_pass_or_are_refused", &["nsenter"], || {
        for address in FAR {
            let echo = UdpSocket::bind((address, 53)).unwrap();
            thread::spawn(move || {
                let mut buffer = vec![0; 70_000];
                while let Ok((len, from)) = echo.recv_from(&mut buffer) {
                    echo.send_to(&buffer[..len], from).unwrap();
                }
            });
        }
        let only_tcp = Manners { only_tcp: true, ..Manners::default() };
        let [direct, socks5, http] = ways();
        let without = format!("socks5://{}", proxy::socks5(only_tcp));
        for (way, passes) in [(direct, true), (socks5, true), (http, false), (without, false)] {
            let world = World::new(&way);
            for address in FAR {
                let any = if address.contains(':') { "[::]:0" } else { "0.0.0.0:0" };
                let socket = world.within(|| UdpSocket::bind(any).unwrap());
                socket.set_read_timeout(Some(PATIENCE)).unwrap();
                socket.connect((address, 53)).unwrap();
                for len in [0, 1, 1400, 8000] {
                    let sent = vec![b'x'; len];
                    socket.send(&sent).unwrap();
                    let mut buffer = vec![0; 70_000];
                    let heard = socket.recv(&mut buffer);
                    let heard = heard.map(|len| &buffer[..len]).map_err(|error| error.kind());
                    let refused = Err(ErrorKind::ConnectionRefused);
                    let expected = if passes { Ok(&sent[..]) } else { refused };
                    assert!(heard == expected, "{way}: {address}, {len} bytes: {:?}", heard.err());
                }
            }
            let told = world.stop();
            // The log names a SOCKS proxy without UDP. Through HTTP no flow begins.
            let is_told = told.contains("no datagram passes: it does not know this command");
            assert_eq!(is_told, way.starts_with("socks5") && !passes, "{way}: {told}");
        }
        let world = World::new("direct");
        let socket = world.within(|| UdpSocket::bind("0.0.0.0:0").unwrap());
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.connect((FAR[0], 54)).unwrap();
        socket.send(b"is there anybody?").unwrap();
        assert_eq!(socket.recv(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionRefused);
    });
}

#[test]
fn a_proxy_that_is_down_or_unwilling_is_told_of() {
    tunnelled("tunnel::a_proxy_that_is_down_or_unwilling_is_told_of", &["nsenter"], || {
        let asking = proxy::socks5(Manners { asks: true, ..Manners::default() });
        for (way, expected, text) in [
            (
                "socks5://127.0.0.1:9".to_owned(),
                ErrorKind::NetworkUnreachable,
                "Connection refused",
            ),
            ("http://127.0.0.1:9".to_owned(), ErrorKind::NetworkUnreachable, "Connection refused"),
            (
                format!("socks5://me:other@{asking}"),
                ErrorKind::HostUnreachable,
                "it refuses this user or password",
            ),
        ] {
            let world = World::new(&way);
            for _ in 0..3 {
                let error = world.connect("203.0.113.5:80".parse().unwrap()).unwrap_err();
                assert_eq!(error, expected, "{way}");
            }
            let told = world.stop();
            assert_eq!(told.matches(text).count(), 1, "{way}: {told}");
        }
    });
}

#[test]
fn several_shards_carry_what_one_does() {
    tunnelled("tunnel::several_shards_carry_what_one_does", &["nsenter"], || {
        echo_datagrams(53);
        let socks5 = format!("socks5://{}", proxy::socks5(Manners::default()));
        for way in ["direct", &socks5] {
            let world = World::with(way, &["--shards", "3"]);
            for _ in 0..20 {
                let [mut one, mut other] = world.joined();
                one.write_all(b"there").unwrap();
                other.read_exact(&mut [0; 5]).unwrap();
                other.write_all(b"back").unwrap();
                one.read_exact(&mut [0; 4]).unwrap();
                let socket = world.within(|| UdpSocket::bind("0.0.0.0:0").unwrap());
                socket.set_read_timeout(Some(PATIENCE)).unwrap();
                socket.send_to(b"hello", (FAR[0], 53)).unwrap();
                assert_eq!(socket.recv(&mut [0; 10]).unwrap(), 5, "{way}");
            }
            let told = world.stop();
            assert!(told.contains("20 connections: 20 carried, 0 refused"), "{way}: {told}");
            assert!(told.contains("20 UDP flows, 0 refused"), "{way}: {told}");
        }
    });
}

#[test]
fn all_flows_of_a_client_share_an_association() {
    tunnelled("tunnel::all_flows_of_a_client_share_an_association", &["nsenter"], || {
        let associations: &AtomicUsize = Box::leak(Box::default());
        let manners = Manners { associations: Some(associations), ..Manners::default() };
        (53..56).for_each(echo_datagrams);
        let world = World::new(&format!("socks5://{}", proxy::socks5(manners)));
        for clients in 1..=2 {
            let socket = world.within(|| UdpSocket::bind("0.0.0.0:0").unwrap());
            socket.set_read_timeout(Some(PATIENCE)).unwrap();
            for round in 0..2 {
                for port in 53..56 {
                    socket.send_to(&[round; 9], (FAR[0], port)).unwrap();
                }
                let mut from = Vec::new();
                for _ in 0..3 {
                    from.push(socket.recv_from(&mut [0; 10]).unwrap().1.port());
                }
                from.sort_unstable();
                assert_eq!(from, [53, 54, 55], "each from where it was sent to");
            }
            assert_eq!(associations.load(Ordering::Relaxed), clients);
        }
        let told = world.stop();
        assert!(told.contains("6 UDP flows, 0 refused"), "{told}");
    });
}

#[test]
fn a_way_that_leads_back_into_the_tunnel_is_told_of() {
    tunnelled("tunnel::a_way_that_leads_back_into_the_tunnel_is_told_of", &[], || {
        seen_on_loopback();
        for way in ["socks5://198.51.100.9:1080", "http://198.51.100.9:3128", "direct"] {
            let (mut tunnel, mut lines) = start(way, &[]);
            namespace::ip("route add 198.51.100.0/24 dev lw0");
            let to = "198.51.100.77:80".parse().unwrap();
            let error = TcpStream::connect_timeout(&to, PATIENCE).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::NetworkUnreachable, "{way}");
            let id = tunnel.id().to_string();
            assert!(Command::new("kill").args(["-s", "INT", &id]).status().unwrap().success());
            let mut text = String::new();
            lines.read_to_string(&mut text).unwrap();
            assert!(tunnel.wait().unwrap().success());
            assert!(text.contains("leads back into the tunnel"), "{way}: {text}");
            let requested: u32 =
                text.lines().last().unwrap().split(' ').next().unwrap().parse().unwrap();
            assert!(requested < 10, "{way}: {text}");
        }
    });
}
