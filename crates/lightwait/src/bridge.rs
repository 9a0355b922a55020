//! The bridge: an ordinary listening socket of the kernel, joined to a server on our stack, without
//! any privileges.
//!
//! ```text
//!   browser ──kernel TCP──▶ Bridge ══▶ client stack ──wire in memory──▶ server stack ──▶ HTTP
//!            127.0.0.1:8080        100.65.0.0/16                    100.64.0.1:80
//! ```
//!
//! Each connection is relayed byte stream for byte stream, with half-close, resets and
//! back-pressure. The client stack has 65,536 addresses and takes the next one for each connection,
//! so that a port in TIME-WAIT is met only after as many connections as addresses times ports.
//!
//! Both shards and the bridge live on one thread, under a tokio runtime. One driver task turns both
//! shards ([`driver::drive`](crate::driver::drive)). The kernel's sockets belong to the runtime.
//!
//! [`Outlet`] is the opposite: it joins a client on our stack to a server on the kernel's.

mod client;
mod kernel;
mod outlet;
mod relay;

pub use client::{Client, ClientInfo, Clients};
pub use outlet::Outlet;
pub use relay::Relay;

use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use lightwait_core::address::Cidr;
use lightwait_core::{Capabilities, Config, Medium};
use tokio::sync::Notify;

use crate::device::{LARGEST_PACKET, MemoryDevice};
use crate::local::TcpStream;
use crate::rt;
use crate::shard::Handle;

/// The server stack's address. The network is the one that RFC 6598 sets aside between a provider
/// and its customers: nothing on this machine's own networks has such an address by rights.
pub const SERVER_ADDRESS: Ipv4Addr = Ipv4Addr::new(100, 64, 0, 1);

/// The client stack's own address, and the first of the range that it connects from.
const CLIENT_ADDRESS: Ipv4Addr = Ipv4Addr::new(100, 64, 0, 2);
const CLIENT_RANGE: Ipv4Addr = Ipv4Addr::new(100, 65, 0, 0);
const CLIENT_RANGE_PREFIX_LEN: u8 = 16;
const NETWORK_PREFIX_LEN: u8 = 10;

/// MTU of the wire, in bytes. Checksums stay undone and segments stay large on the wire, so that
/// small packets cost nothing. Congestion control and ACKs work as on a real wire.
const WIRE_MTU: u16 = 1500;

/// Frames that the wire holds each way.
const WIRE_FRAMES: usize = 256;

/// Pause after the kernel refuses to hand over a connection (no file descriptor is left, say).
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The two ends of the wire between the stacks: the server's and the client's.
pub fn wire() -> (MemoryDevice, MemoryDevice) {
    MemoryDevice::pair(wire_capabilities(), WIRE_FRAMES)
}

/// The server stack's configuration, all else at its default.
pub fn server_config(secret: [u8; 32]) -> Config {
    Config::new(wire_capabilities(), cidr(SERVER_ADDRESS, NETWORK_PREFIX_LEN), secret)
}

/// The client stack's configuration, all else at its default.
pub fn client_config(secret: [u8; 32]) -> Config {
    let address = cidr(CLIENT_ADDRESS, NETWORK_PREFIX_LEN);
    let ranges = vec![client_range()];
    Config { ranges, ..Config::new(wire_capabilities(), address, secret) }
}

fn wire_capabilities() -> Capabilities {
    let plain = Capabilities::plain(Medium::Ip, WIRE_MTU);
    Capabilities { checksum: true, segmentation: LARGEST_PACKET, ..plain }
}

/// The addresses that the client stack connects from.
pub fn client_range() -> Cidr {
    cidr(CLIENT_RANGE, CLIENT_RANGE_PREFIX_LEN)
}

fn cidr(address: Ipv4Addr, prefix_len: u8) -> Cidr {
    Cidr::new(IpAddr::V4(address), prefix_len).expect("the prefix is shorter than the address")
}

/// A kernel socket that listens for a server on our stack.
#[derive(Debug)]
pub struct Bridge {
    listener: tokio::net::TcpListener,
    client: Handle,
    server: SocketAddr,
    clients: Clients,
    connections: Cell<u128>,
    /// One buffer for all relays. Each relay empties it before it waits.
    scratch: Rc<RefCell<Vec<u8>>>,
    /// Tells relays that wait for their client's end alone that descriptors are needed.
    scarcity: Rc<Notify>,
}

impl Bridge {
    /// Relays each connection to `listener` to `server`, through the client stack of that handle.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime with I/O enabled.
    pub fn new(
        listener: std::net::TcpListener,
        client: Handle,
        server: SocketAddr,
    ) -> io::Result<Bridge> {
        listener.set_nonblocking(true)?;
        Ok(Bridge {
            listener: tokio::net::TcpListener::from_std(listener)?,
            client,
            server,
            clients: Clients::default(),
            connections: Cell::new(0),
            scratch: Rc::new(RefCell::new(vec![0; relay::BLOCK_BYTES])),
            scarcity: Rc::default(),
        })
    }

    /// The kernel's address that the bridge listens on.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// The clients behind the server's connections.
    pub fn clients(&self) -> Clients {
        self.clients.clone()
    }

    /// Accepts and relays connections until the future is dropped. Spawn it on the client stack's
    /// shard ([`Handle::spawn_local`]). Each relay is a task of its own there and outlives this
    /// future.
    pub async fn run(self) -> Infallible {
        loop {
            match self.listener.accept().await {
                Ok((kernel, peer)) => self.relay(kernel, peer),
                // A client that gave up before the bridge accepted it is no reason to pause.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => (),
                Err(_) => {
                    self.scarcity.notify_waiters();
                    rt::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    fn relay(&self, kernel: tokio::net::TcpStream, peer: SocketAddr) {
        let number = self.connections.get();
        self.connections.set(number + 1);
        let source = SocketAddr::new(client_range().nth(number), 0);
        let Ok(stack) = TcpStream::open(&self.client.local, source, self.server) else {
            // A limit of the stack is reached: the client on the kernel's side gets a reset.
            return relay::reset(&kernel);
        };
        let kernel = Rc::new(kernel);
        let client = Rc::new(Client::new(peer, stack.control(), &kernel));
        let entry = stack.local_addr().ok().map(|at| self.clients.enter(at, client.clone()));
        let (scratch, scarcity) = (self.scratch.clone(), self.scarcity.clone());
        self.client.spawn_local(async move {
            match stack.established().await {
                Ok(stack) => {
                    // What was scarce before the stack's side has ended does not count: a
                    // `Notified` hears of it from when it is made.
                    let (unwritten, scarce) = (&client.unwritten, async {
                        scarcity.notified().await;
                    });
                    let outcome = relay::relay(&kernel, &stack, &scratch, unwritten, scarce).await;
                    client.settle(outcome.is_ok()).await;
                }
                Err(_) => relay::reset(&*kernel),
            }
            drop(entry);
        });
    }
}
