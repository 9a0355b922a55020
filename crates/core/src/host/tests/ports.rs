//! Active opens where ports run out: what they look at is bounded, and the port used longest ago
//! comes first.

use super::old::enter;
use super::pair::{Pair, config};
use crate::event::{ConnectionId, ListenerId};
use crate::flow::Tuple;
use crate::host::prefetch::MANY_LINES;
use crate::tcp::State;
use crate::time::Duration;
use std::net::SocketAddr;
use std::vec;
use std::vec::Vec;

const PORTS: u16 = 100;

/// A client with so few ports, and a server.
fn few_ports(stamps: bool) -> (Pair, ListenerId) {
    let mut client = config("10.0.0.1");
    client.ephemeral_ports = (40_000, 40_000 + PORTS - 1);
    client.tcp.timestamps = stamps;
    let mut pair = Pair::with(client, config("10.0.0.2"));
    let listener = pair.server.listen("0.0.0.0:80".parse().unwrap(), 64).unwrap();
    (pair, listener)
}

/// A connection that the client closes first; its port.
fn talk(pair: &mut Pair, listener: ListenerId) -> u16 {
    let (client, server) = pair.connect(listener);
    let port = pair.client.local_address(client).unwrap().port();
    pair.client.close(pair.now, client);
    pair.run_for(Duration::from_millis(20));
    pair.server.close(pair.now, server);
    pair.run_for(Duration::from_millis(20));
    port
}

fn open(pair: &mut Pair) -> Option<ConnectionId> {
    let (any, remote) =
        ("0.0.0.0:0".parse().unwrap(), "10.0.0.2:80".parse::<SocketAddr>().unwrap());
    pair.client.connect(pair.now, any, remote).ok()
}

#[test]
fn few_ports_in_time_wait_are_checked_and_the_oldest_is_taken() {
    let (mut pair, listener) = few_ports(true);
    let used: Vec<u16> = (0..PORTS).map(|_| talk(&mut pair, listener)).collect();
    assert_eq!(pair.client.counters().ports_in_time_wait, 0);
    for (number, port) in used.into_iter().take(40).enumerate() {
        let id = open(&mut pair).unwrap();
        assert_eq!(pair.client.local_address(id).unwrap().port(), port);
        assert_eq!(pair.client.counters().ports_in_time_wait, 32 * (number as u64 + 1));
        pair.run_for(Duration::from_millis(20));
        assert_eq!(pair.client.state(id), State::Established);
    }
}

#[test]
fn a_distant_free_port_is_taken_before_one_in_time_wait() {
    for stamps in [true, false] {
        let (mut pair, listener) = few_ports(stamps);
        let used: Vec<u16> = (0..PORTS).map(|_| talk(&mut pair, listener)).collect();
        // One behind half of the others is free again.
        let free = used[usize::from(PORTS) / 2];
        let is_it = |tuple: &Tuple| tuple.local_port() == free;
        let tuple =
            pair.client.closed.time_wait.iter().map(|record| record.tuple).find(is_it).unwrap();
        let hash = pair.client.live.hasher.hash(&tuple);
        pair.client.end_time_wait(hash, &tuple);
        let id = open(&mut pair).unwrap();
        let expected = if stamps { used[0] } else { free };
        assert_eq!(pair.client.local_address(id).unwrap().port(), expected, "{stamps}");
    }
}

#[test]
fn all_addresses_of_a_range_share_what_an_open_looks_at() {
    let mut client = config("10.0.0.1");
    client.ephemeral_ports = (40_000, 40_999);
    client.tcp.timestamps = false;
    client.ranges = vec!["10.0.0.16/28".parse().unwrap()];
    let mut pair = Pair::with(client, config("10.0.0.2"));
    let (server, now) = ("10.0.0.2".parse().unwrap(), pair.now);
    for host in 16..32 {
        for port in 40_000..41_000 {
            let tuple = Tuple::new(([10, 0, 0, host].into(), port), (server, 80));
            enter(&mut pair.client, now, &tuple);
        }
    }
    assert!(open(&mut pair).is_none());
    let counters = pair.client.counters();
    assert_eq!((counters.ports_in_time_wait, counters.ports_exhausted), (1024, 1));
}

/// Where there are many connections, an open prefetches what the next one will likely need, and
/// keeps the hash of its tuple.
#[test]
fn connections_whose_ports_are_foreseen_are_found() {
    let mut pair = Pair::with(config("10.0.0.1"), config("10.0.0.2"));
    let listener = pair.server.listen("0.0.0.0:80".parse().unwrap(), 64).unwrap();
    let mut all = Vec::new();
    while all.len() < MANY_LINES + 100 {
        all.extend((0..50).filter_map(|_| open(&mut pair)));
        pair.run_for(Duration::from_millis(20));
        while pair.server.accept(pair.now, listener).is_ok() {}
    }
    assert!(all.iter().all(|id| pair.client.state(*id) == State::Established));
}
