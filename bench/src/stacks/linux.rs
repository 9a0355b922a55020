//! The kernel's stack over its loopback device: not a peer but the reference, since it has system
//! calls to pay that those in memory have not, and no checksum, no link and an MTU of 64 KiB.
//!
//! One thread serves both ends, and knows which socket is ready without asking: it never waits, and
//! pays for no epoll. The time is the real one, TIME-WAIT its 60 s; so the records that are to be
//! there are made by as many conversations just before, and those of earlier runs stay besides.

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

use rustix::net::sockopt::set_socket_reuseaddr;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with};

/// Connections that a process may have: each is two file descriptors of 20 000, the usual limit.
pub(super) const CONNECTIONS: usize = 9_900;
/// The client's ports on an address.
const PORTS: std::ops::Range<u16> = 10_000..60_000;

/// Whole runs of source addresses that were given out in this process.
static RUNS: AtomicU32 = AtomicU32::new(1);

/// A listener, and where the next connections to it come from.
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
        let server = listener.local_addr().expect("an address");
        // 65,536 addresses of 127/8 for each: none comes again while its TIME-WAITs stand.
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
        // The port may be in TIME-WAIT, of a connection that this end closed first.
        set_socket_reuseaddr(&socket, true).expect("an option that Linux has");
        bind(&socket, &source).expect("a free port");
        connect(&socket, &self.server).expect("the loopback device up");
        TcpStream::from(socket)
    }

    fn accept(&self) -> TcpStream {
        self.listener.accept().expect("a connection that waits").0
    }
}
