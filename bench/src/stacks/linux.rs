//! The kernel's stack over its loopback device. It is a reference and not a peer: it pays for
//! system calls, which the stacks in memory do not, and has no checksum, no link and an MTU of 64
//! KiB. Its congestion control is CUBIC.
//!
//! One thread serves both ends, and knows without asking which socket is ready: it never waits, and
//! pays for no epoll. Time is real time, and TIME-WAIT lasts 60 s. As many conversations as there
//! should be records therefore run just before, and records of earlier runs stay besides.

mod bulk;
mod memory;
mod pingpong;
mod short;

pub use bulk::Bulk;
pub use memory::memory;
pub use pingpong::PingPong;
pub use short::Short;

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::net::sockopt::{set_socket_reuseaddr, set_tcp_congestion};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with};

/// The most connections of a process: each has two of the usual limit of 20 000 file descriptors.
pub(super) const CONNECTIONS: usize = 9_900;
/// The client's ports on an address.
const PORTS: std::ops::Range<u16> = 10_000..60_000;

/// Ranges of source addresses that this process has used.
static RUNS: AtomicU32 = AtomicU32::new(1);

/// The kernel's congestion control here.
const CONGESTION: &str = "cubic";

/// A listener, and the source of the next connections to it.
#[derive(Debug)]
struct Loopback {
    listener: TcpListener,
    server: SocketAddr,
    address: u32,
    port: u16,
}

impl Loopback {
    fn new() -> Loopback {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        // Accepted connections have it from the listener. The system's default may be another.
        set_tcp_congestion(&listener, CONGESTION).expect("a congestion control that Linux has");
        let server = listener.local_addr().expect("an address");
        // 65,536 addresses of 127/8 for each range: none is used again while its TIME-WAITs last.
        let address = u32::from(Ipv4Addr::LOCALHOST) + (RUNS.fetch_add(1, Ordering::Relaxed) << 16);
        Loopback { listener, server, address, port: PORTS.start }
    }

    /// A connection's two ends, the client's first.
    fn open(&mut self) -> [TcpStream; 2] {
        let client = self.connect();
        [client, self.accept()]
    }

    fn connect(&mut self) -> TcpStream {
        let source = SocketAddr::from((Ipv4Addr::from(self.address), self.port));
        self.port += 1;
        if self.port == PORTS.end {
            (self.address, self.port) = (self.address + 1, PORTS.start);
        }
        let flags = SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None);
        let socket = socket.expect("a free file descriptor");
        // The port may be in TIME-WAIT after a connection that this end closed first.
        set_socket_reuseaddr(&socket, true).expect("an option that Linux has");
        set_tcp_congestion(&socket, CONGESTION).expect("a congestion control that Linux has");
        bind(&socket, &source).expect("a free port");
        connect(&socket, &self.server).expect("the loopback device up");
        TcpStream::from(socket)
    }

    fn accept(&self) -> TcpStream {
        self.listener.accept().expect("a connection that waits").0
    }
}
