//! Who is let in: limits on connections, on those of one client, and on responses in flight.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::net::IpAddr;
use std::rc::Rc;

use crate::config::ServerConfig;

/// Bits of an IPv6 address that tell one client from another: whoever has one address has a /64
/// (RFC 6177), and could use a new one for each connection.
const CLIENT_BITS_V6: u32 = 64;

/// Why somebody was not let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// There are as many connections as there may be.
    Connections,
    /// That client has as many as one may have.
    Client,
}

/// What was denied since the server began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Connections refused, because there were too many.
    pub refused_connections: u64,
    /// Connections refused, because there were too many of one client.
    pub refused_client_connections: u64,
    /// Requests answered with 503, because too many responses were in flight.
    pub refused_responses: u64,
    /// Connections reset, because the peer took nothing of what was written.
    pub reset_stalled: u64,
    /// Connections reset, because the peer took too little of it.
    pub reset_slow: u64,
}

/// What is let in.
#[derive(Debug, Default)]
struct Inside {
    connections: Cell<usize>,
    clients: RefCell<HashMap<IpAddr, usize>>,
    responses: Cell<usize>,
    tally: Cell<Tally>,
}

/// The doorkeeper of a server. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Door {
    inside: Rc<Inside>,
    max_connections: usize,
    max_client_connections: usize,
    max_responses: usize,
}

impl Door {
    pub(crate) fn new(config: &ServerConfig) -> Door {
        Door {
            inside: Rc::default(),
            max_connections: config.max_connections,
            max_client_connections: config.max_client_connections,
            max_responses: config.max_responses,
        }
    }

    /// Lets a connection of `peer` in, for as long as the guard lives.
    pub(crate) fn admit(&self, peer: IpAddr) -> Result<Admission, Refusal> {
        let inside = &self.inside;
        if inside.connections.get() >= self.max_connections {
            self.count(|tally| tally.refused_connections += 1);
            return Err(Refusal::Connections);
        }
        let client = client_of(peer);
        if let Some(client) = client {
            let mut clients = inside.clients.borrow_mut();
            let connections = clients.entry(client).or_default();
            if *connections >= self.max_client_connections {
                self.count(|tally| tally.refused_client_connections += 1);
                return Err(Refusal::Client);
            }
            *connections += 1;
        }
        inside.connections.set(inside.connections.get() + 1);
        Ok(Admission { inside: inside.clone(), client })
    }

    /// Lets a response begin, for as long as the guard lives; `None` if too many are in flight.
    pub(crate) fn begin_response(&self) -> Option<InFlight> {
        let inside = &self.inside;
        if inside.responses.get() >= self.max_responses {
            self.count(|tally| tally.refused_responses += 1);
            return None;
        }
        inside.responses.set(inside.responses.get() + 1);
        Some(InFlight(inside.clone()))
    }

    pub(crate) fn tally(&self) -> Tally {
        self.inside.tally.get()
    }

    pub(crate) fn count(&self, count: impl FnOnce(&mut Tally)) {
        let mut tally = self.inside.tally.get();
        count(&mut tally);
        self.inside.tally.set(tally);
    }
}

/// Whom a connection counts for; nobody on this machine.
fn client_of(peer: IpAddr) -> Option<IpAddr> {
    match peer.to_canonical() {
        peer if peer.is_loopback() => None,
        IpAddr::V6(v6) => {
            let mask = u128::MAX << (128 - CLIENT_BITS_V6);
            Some(IpAddr::from((u128::from(v6) & mask).to_be_bytes()))
        }
        v4 @ IpAddr::V4(_) => Some(v4),
    }
}

/// A connection that was let in.
#[derive(Debug)]
pub struct Admission {
    inside: Rc<Inside>,
    client: Option<IpAddr>,
}

impl Drop for Admission {
    fn drop(&mut self) {
        let inside = &self.inside;
        inside.connections.set(inside.connections.get() - 1);
        let Some(client) = self.client else { return };
        let mut clients = inside.clients.borrow_mut();
        if let Some(connections) = clients.get_mut(&client) {
            *connections -= 1;
            if *connections == 0 {
                clients.remove(&client);
            }
        }
    }
}

/// A response on its way.
#[derive(Debug)]
pub(crate) struct InFlight(Rc<Inside>);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.responses.set(self.0.responses.get() - 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn door() -> Door {
        let limits = ServerConfig {
            max_connections: 4,
            max_client_connections: 2,
            max_responses: 2,
            ..ServerConfig::default()
        };
        Door::new(&limits)
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn as_many_as_the_limit_come_in_and_one_more_when_one_has_left() {
        let door = door();
        let [a, b, c] = ["192.0.2.1", "192.0.2.2", "192.0.2.3"].map(ip);
        let mut inside: Vec<Admission> =
            [a, b, a, b].into_iter().map(|peer| door.admit(peer).unwrap()).collect();
        assert_eq!(door.admit(c).err(), Some(Refusal::Connections));
        inside.pop();
        assert_eq!(door.admit(a).err(), Some(Refusal::Client));
        inside.push(door.admit(c).unwrap());
        let refused = (door.tally().refused_connections, door.tally().refused_client_connections);
        assert_eq!(refused, (1, 1));
        inside.clear();
        assert!(door.inside.clients.borrow().is_empty(), "those who left leave nothing behind");
    }

    #[test]
    fn a_client_is_an_ipv4_address_or_a_network_of_64_bits_and_nobody_on_the_loopback() {
        let door = door();
        let inside = ["2001:db8::1", "2001:db8::ffff:2"].map(|peer| door.admit(ip(peer)).unwrap());
        assert_eq!(door.admit(ip("2001:db8::3")).err(), Some(Refusal::Client));
        assert!(door.admit(ip("2001:db8:0:1::3")).is_ok());
        drop(inside);
        let mapped = ["::ffff:192.0.2.1", "192.0.2.1"].map(|peer| door.admit(ip(peer)).unwrap());
        assert_eq!(door.admit(ip("192.0.2.1")).err(), Some(Refusal::Client));
        drop(mapped);
        let local = ["127.0.0.1", "127.0.0.1", "::1", "127.0.0.1"].map(|p| door.admit(ip(p)));
        assert!(local.iter().all(Result::is_ok));
    }

    #[test]
    fn as_many_responses_as_the_limit_are_in_flight() {
        let door = door();
        let first = door.begin_response();
        let _second = door.begin_response().unwrap();
        assert!(door.begin_response().is_none());
        drop(first);
        assert!(door.begin_response().is_some());
        assert_eq!(door.tally().refused_responses, 1);
    }
}
