//! smoltcp, back to back in memory, in its best configuration:
//!
//! - only the parts in use are compiled in: IPv4 on a medium without link layer, TCP, Reno, UDP, no
//!   wakers;
//! - frames are reused, and move from end to end by swapping queues;
//! - a turn of an end receives all frames, lets the application look at the sockets in use (not at
//!   those in TIME-WAIT or idle), and passes once over all sockets to send (`Interface::poll` would
//!   pass twice, and send an acknowledgement that an answer carries anyway);
//! - the bench never adds or removes a socket during the run: a socket whose TIME-WAIT is over
//!   listens again in its place. The bench does not wait for its 10 s: the oldest one beyond the
//!   wanted number ends at once;
//! - buffers are as large as the bench needs, and no larger.

mod bulk;
mod datagrams;
mod pingpong;
mod short;
mod wire;

pub use bulk::Bulk;
pub use datagrams::Datagrams;
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

/// The server's address and port.
const SERVER: IpEndpoint = IpEndpoint { addr: IpAddress::v4(10, 0, 0, 2), port: 80 };
/// The client's addresses: as many as smoltcp allows.
const SOURCES: u16 = 8;
/// The time that a turn takes by itself.
const TURN: Duration = Duration::from_micros(1);

/// One interface with its sockets.
pub struct End {
    interface: Interface,
    wire: Wire,
    sockets: SocketSet<'static>,
    /// There is only one socket, with much to send.
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

    /// Makes room for exactly `sockets` sockets, before the first one.
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

    /// Receives the frames that the other end has sent.
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

    /// Every socket sends a packet, if it has one; a single socket sends all it has.
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

/// The application, which is called once a turn, after receiving and before sending.
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

    /// Runs a turn of each end, at `now` or a little after the last one.
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

    /// Packets in both directions.
    fn packets(&self) -> u64 {
        self.client.wire.sent() + self.server.wire.sent()
    }
}

fn source(number: u16) -> IpAddress {
    IpAddress::v4(10, 1, 0, 1 + number as u8)
}

/// The client's addresses and ports, in turn: every port of every address.
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

/// A socket with buffers of `bytes` bytes.
fn new_socket(bytes: usize) -> Socket<'static> {
    let buffer = || SocketBuffer::new(vec![0; bytes]);
    let mut socket = Socket::new(buffer(), buffer());
    socket.set_congestion_control(CongestionControl::Reno);
    socket
}
