//! Connections that come back: the kernel's way to the proxy, or to a destination without one,
//! leads into the tunnel itself. Carried on, each would make another, without end.
//!
//! What comes back has the address for its source that the kernel sends from on that way. So a
//! connection to the proxy is a loop if it comes from there. So is a flow to the relay that the
//! proxy has named for datagrams, which may be another host. Without a proxy every connection would
//! have to be looked at: one a second is, and for a second after a loop all are.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::rc::Rc;
use std::time::{Duration, Instant};

use crate::proxy::Proxy;

/// The pause between two looks, where every connection may be a loop.
const PAUSE: Duration = Duration::from_secs(1);

/// The relays of associations, each with how many use it.
type Relays = Rc<RefCell<HashMap<SocketAddr, usize>>>;

/// When was looked last, when a loop was seen, and where one may lead.
#[derive(Debug, Default)]
pub(crate) struct Loops {
    looked: Cell<Option<Instant>>,
    seen: Cell<Option<Instant>>,
    relays: Relays,
}

/// A relay that an association uses, until this is dropped.
#[derive(Debug)]
pub(crate) struct RelayInUse {
    address: SocketAddr,
    relays: Relays,
}

impl Drop for RelayInUse {
    fn drop(&mut self) {
        let mut relays = self.relays.borrow_mut();
        if let Some(users) = relays.get_mut(&self.address) {
            *users -= 1;
            if *users == 0 {
                relays.remove(&self.address);
            }
        }
    }
}

impl Loops {
    /// True if what comes from `peer` for `destination` is the tunnel's own.
    pub(crate) fn is_loop(&self, proxy: &Proxy, destination: SocketAddr, peer: SocketAddr) -> bool {
        let is_suspect = match proxy.address() {
            Some(address) => {
                address == destination || self.relays.borrow().contains_key(&destination)
            }
            None => self.looks_now(Instant::now()),
        };
        let is_loop = is_suspect && source_towards(destination) == Some(peer.ip());
        if is_loop {
            self.seen.set(Some(Instant::now()));
        }
        is_loop
    }

    /// Has what comes for a relay be suspect, as long as the result lives.
    pub(crate) fn suspect(&self, relay: SocketAddr) -> RelayInUse {
        *self.relays.borrow_mut().entry(relay).or_default() += 1;
        RelayInUse { address: relay, relays: self.relays.clone() }
    }

    /// True if it is time for a look at what may be a loop.
    fn looks_now(&self, now: Instant) -> bool {
        let within = |at: Option<Instant>| at.is_some_and(|at| now - at < PAUSE);
        if within(self.looked.get()) && !within(self.seen.get()) {
            return false;
        }
        self.looked.set(Some(now));
        true
    }
}

/// The address that the kernel sends from to `destination`. Nothing is sent.
fn source_towards(destination: SocketAddr) -> Option<IpAddr> {
    let any: IpAddr = match destination {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect(destination).ok()?;
    socket.local_addr().ok().map(|local| local.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn what_comes_to_the_proxy_from_our_own_address_is_a_loop() {
        let proxy: Proxy = "socks5://127.0.0.9:1080".parse().unwrap();
        let loops = Loops::default();
        // The kernel's own way there: from 127.0.0.1.
        assert!(loops.is_loop(&proxy, at("127.0.0.9:1080"), at("127.0.0.1:4000")));
        assert!(!loops.is_loop(&proxy, at("127.0.0.9:1080"), at("10.0.0.1:4000")), "a client's");
        assert!(!loops.is_loop(&proxy, at("127.0.0.9:80"), at("127.0.0.1:4000")), "elsewhere");
    }

    #[test]
    fn what_comes_to_a_relay_in_use_from_our_own_address_is_a_loop() {
        let proxy: Proxy = "socks5://127.0.0.9:1080".parse().unwrap();
        let loops = Loops::default();
        let (relay, ours) = (at("127.0.0.7:5000"), at("127.0.0.1:4000"));
        assert!(!loops.is_loop(&proxy, relay, ours), "nobody has named it");
        let [one, other] = [0; 2].map(|_| loops.suspect(relay));
        drop(one);
        assert!(loops.is_loop(&proxy, relay, ours), "the other association uses it");
        assert!(!loops.is_loop(&proxy, relay, at("10.0.0.1:4000")), "a client's");
        assert!(!loops.is_loop(&proxy, at("127.0.0.7:5001"), ours), "another port");
        drop(other);
        assert!(!loops.is_loop(&proxy, relay, ours) && loops.relays.borrow().is_empty());
    }

    #[test]
    fn without_a_proxy_one_a_second_is_looked_at_until_a_loop() {
        let loops = Loops::default();
        let now = Instant::now();
        assert!(loops.looks_now(now) && !loops.looks_now(now));
        assert!(loops.looks_now(now + PAUSE) && !loops.looks_now(now + PAUSE));
        assert!(Loops::default().is_loop(&Proxy::Direct, at("127.0.0.9:80"), at("127.0.0.1:1")));
        loops.seen.set(Some(now + PAUSE));
        assert!(loops.looks_now(now + PAUSE) && loops.looks_now(now + PAUSE));
    }
}
