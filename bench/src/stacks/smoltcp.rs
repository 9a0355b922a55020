//! smoltcp, back to back in memory, as it does best:
//!
//! - only what is used is compiled in: IPv4 on a medium without link layer, TCP, Reno, no wakers;
//! - frames are kept for reuse, and move from end to end by swapping queues;
//! - a turn of an end takes in all that has come, lets the application look at the sockets that are
//!   in use (not at those in TIME-WAIT or idle), and passes once over all for what is to be sent
//!   (`Interface::poll` would pass twice, and acknowledge what an answer acknowledges anyhow);
//! - sockets are never added or removed on the way: one in TIME-WAIT whose time is over listens
//!   again where it stands. Its 10 s are not waited for: the oldest beyond as many as are wanted
//!   ends at once;
//! - buffers as large as the bench needs, and no larger.

mod bulk;
mod pingpong;
mod short;
mod wire;

pub use bulk::Bulk;
pub use pingpong::PingPong;
pub use short::Short;

use std::time::Duration;

use ::smoltcp::iface::{
    Config, Interface, PollIngressSingleResult, PollResult, SocketHandle, SocketSet,
};
use ::smoltcp::phy::ChecksumCapabilities;
use ::smoltcp::socket::tcp::{CongestionControl, Socket, SocketBuffer};
use ::smoltcp::time::Instant;
use ::smoltcp::wire::{HardwareAddress, IpAddress, IpCidr, IpEndpoint, IpListenEndpoint};

use super::watch::Watch;
use wire::Wire;

/// Where the server listens.
const SERVER: IpEndpoint = IpEndpoint { addr: IpAddress::v4(10, 0, 0, 2), port: 80 };
/// The client's addresses; as many as smoltcp takes.
const SOURCES: u16 = 8;
/// What a turn adds to the time by itself.
const TURN: Duration = Duration::from_micros(1);

/// One interface with its sockets.
pub struct End {
    interface: Interface,
    wire: Wire,
    sockets: SocketSet<'static>,
    /// There is one socket, with much to send.
    is_alone: bool,
}

impl End {
    fn new(addresses: &[IpAddress], mtu: u16, checksum: bool, seed: u64) -> End {
        let mut wire = Wire::new(mtu, if checksum { summed() } else { unsummed() });
        let mut config = Config::new(HardwareAddress::Ip);
        config.random_seed = seed;
        let mut interface = Interface::new(config, &mut wire, Instant::ZERO);
        interface.update_ip_addrs(|own| {
            for address in addresses {
                own.push(IpCidr::new(*address, 8)).expect("room for the address");
            }
        });
        End { interface, wire, sockets: SocketSet::new(Vec::new()), is_alone: false }
    }

    /// Room for so many sockets and no more, before there is one.
    fn make_room(&mut self, sockets: usize) {
        self.sockets = SocketSet::new(Vec::with_capacity(sockets));
    }

    fn socket(&mut self, handle: SocketHandle) -> &mut Socket<'static> {
        self.sockets.get_mut(handle)
    }

    /// Listens on a socket that is closed or in TIME-WAIT.
    fn listen(&mut self, handle: SocketHandle) {
        self.socket(handle).listen(SERVER.port).expect("a socket that is free");
    }

    /// Takes in what the other end has sent.
    fn receive(&mut self, now: Instant, from: &mut End) {
        self.wire.join(&mut from.wire);
        self.interface.poll_maintenance(now);
        loop {
            let (wire, sockets) = (&mut self.wire, &mut self.sockets);
            let result = self.interface.poll_ingress_single(now, wire, sockets);
            if result == PollIngressSingleResult::None {
                break;
            }
        }
    }

    /// Every socket sends a packet, if it has one; a socket that is alone sends all it has.
    fn send(&mut self, now: Instant) {
        loop {
            let (wire, sockets) = (&mut self.wire, &mut self.sockets);
            let result = self.interface.poll_egress(now, wire, sockets);
            if !self.is_alone || result == PollResult::None {
                break;
            }
        }
    }
}

/// TCP's checksum is computed and verified.
fn summed() -> ChecksumCapabilities {
    ChecksumCapabilities::default()
}

/// TCP's checksum is left to the device.
fn unsummed() -> ChecksumCapabilities {
    let mut capabilities = ChecksumCapabilities::default();
    capabilities.tcp = ::smoltcp::phy::Checksum::None;
    capabilities
}

/// What uses the sockets: asked once a turn, between what came and what goes.
trait Application {
    fn on_client(&mut self, client: &mut End);
    fn on_server(&mut self, server: &mut End);
}

/// Two interfaces and the wire between them.
pub struct Ends {
    client: End,
    server: End,
    now: Duration,
    watch: Watch,
}

impl Ends {
    fn new(mtu: u16, checksum: bool) -> Ends {
        let sources: Vec<_> = (0..SOURCES).map(source).collect();
        Ends {
            client: End::new(&sources, mtu, checksum, 1),
            server: End::new(&[SERVER.addr], mtu, checksum, 2),
            now: Duration::from_secs(1),
            watch: Watch::new(),
        }
    }

    /// A turn of each end, at `now` or a little after the last one.
    fn turn(&mut self, application: &mut impl Application, now: Duration) {
        self.now = now.max(self.now + TURN);
        let now = Instant::from_micros(self.now.as_micros() as i64);
        let begin = self.watch.read();
        self.server.receive(now, &mut self.client);
        application.on_server(&mut self.server);
        self.server.send(now);
        let between = self.watch.read();
        self.client.receive(now, &mut self.server);
        application.on_client(&mut self.client);
        self.client.send(now);
        self.watch.turn_over(begin, between);
    }

    /// Packets that went either way.
    fn packets(&self) -> u64 {
        self.client.wire.sent() + self.server.wire.sent()
    }
}

fn source(number: u16) -> IpAddress {
    IpAddress::v4(10, 1, 0, 1 + number as u8)
}

/// The ends of the client's connections, in turn: every port of every address.
#[derive(Debug, Default)]
struct Sources {
    next: u32,
}

impl Sources {
    fn take(&mut self) -> IpListenEndpoint {
        let (number, port) = (self.next % u32::from(SOURCES), self.next / u32::from(SOURCES));
        self.next = (self.next + 1) % (u32::from(SOURCES) * 60_000);
        // Both terms are below 2^16.
        let port = 1024 + port as u16;
        IpListenEndpoint { addr: Some(source(number as u16)), port }
    }
}

/// A socket with buffers of so many bytes.
fn new_socket(bytes: usize) -> Socket<'static> {
    let buffer = || SocketBuffer::new(vec![0; bytes]);
    let mut socket = Socket::new(buffer(), buffer());
    socket.set_congestion_control(CongestionControl::Reno);
    socket
}
