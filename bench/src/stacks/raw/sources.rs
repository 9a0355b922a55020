//! The source addresses of connections.

use std::net::SocketAddr;

use crate::stacks::which::Ip;

/// The first host that is a source address.
pub const FIRST_SOURCE: u32 = 1 << 23;

/// Ephemeral ports of an address.
const PORTS: usize = 64_512;

/// The source addresses of connections, in turn; the host picks the ports.
#[derive(Debug)]
pub struct Sources {
    ip: Ip,
    first: u32,
    count: u32,
    next: u32,
}

impl Sources {
    /// Twice as many addresses as `connections` simultaneous ones need: the order in which the host
    /// picks ports lets two addresses share a step.
    pub fn new(first: u32, connections: usize) -> Sources {
        let count = u32::try_from(2 * connections.div_ceil(PORTS).max(1)).unwrap_or(u32::MAX);
        Sources { ip: Ip::V4, first, count, next: 0 }
    }

    /// Uses addresses of this version.
    pub fn over(self, ip: Ip) -> Sources {
        Sources { ip, ..self }
    }

    /// Uses at least `addresses` addresses.
    pub fn at_least(self, addresses: usize) -> Sources {
        Sources { count: self.count.max(u32::try_from(addresses).unwrap_or(u32::MAX)), ..self }
    }

    /// The number of addresses.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// The first address after these.
    pub fn end(&self) -> u32 {
        self.first + self.count
    }

    /// The next address.
    pub fn take(&mut self) -> SocketAddr {
        let number = self.next;
        self.next = if number + 1 == self.count { 0 } else { number + 1 };
        SocketAddr::new(self.ip.host(FIRST_SOURCE + self.first + number), 0)
    }
}
