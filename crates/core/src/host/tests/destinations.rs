//! A host that takes others' addresses for its own where they are the destination.

use alloc::vec::Vec;
use core::net::SocketAddr;

use super::link::{self, Cable};
use super::pair::{Pair, Side, config};
use super::peer::{A, Peer, R, S, Say, plain};
use crate::config::Config;
use crate::error::{ConnectError, Error};
use crate::event::ListenerId;
use crate::host::Host;
use crate::tcp::State;
use crate::time::Duration;
use crate::udp::Transmit;
use crate::wire::ethernet;
use crate::wire::icmpv4::{Echo, Message};
use crate::wire::ip;

/// A host without an address that takes these prefixes.
fn taking(prefixes: &[&str]) -> Config {
    let destinations = prefixes.iter().map(|text| text.parse().unwrap()).collect();
    Config { addresses: Vec::new(), destinations, ..config("10.0.0.2") }
}

const ALL: [&str; 2] = ["0.0.0.0/0", "::/0"];

fn at(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn listen(host: &mut Host) -> ListenerId {
    let options = host.default_options();
    host.listen_any(16, options).unwrap()
}

/// A client of the version of `remote`, and a host that takes all addresses.
fn pair_to(remote: SocketAddr) -> Pair {
    let mut client = config("10.0.0.1");
    if remote.is_ipv6() {
        client.addresses = Vec::from(["fd00::1/64".parse().unwrap()]);
    }
    Pair::with(client, taking(&ALL))
}

#[test]
fn every_address_and_port_is_answered_from_where_it_was_asked() {
    for remote in ["93.184.216.34:443", "10.0.0.77:1", "[2001:db8::1]:65535"].map(at) {
        let mut pair = pair_to(remote);
        let listener = listen(&mut pair.server);
        let any = crate::host::any_local(&remote);
        let client = pair.client.connect(pair.now, any, remote).unwrap();
        pair.run_for(Duration::from_millis(50));
        let server = pair.server.accept(pair.now, listener).expect("it is taken");
        assert_eq!(pair.server.local_address(server), Ok(remote));
        assert_eq!(pair.server.peer_address(server), pair.client.local_address(client));
        pair.transfer((Side::Client, client), (Side::Server, server), 100_000);
        pair.transfer((Side::Server, server), (Side::Client, client), 100_000);
        // The side that closes first holds TIME-WAIT, between these ends.
        pair.close(Side::Server, server, Duration::from_millis(50));
        pair.close(Side::Client, client, Duration::from_millis(50));
        assert_eq!((pair.server.time_wait_len(), pair.server.connections()), (1, 0));
        pair.run_for(Duration::from_secs(61));
        assert_eq!(pair.server.time_wait_len(), 0);
    }
}

#[test]
fn a_prefix_takes_its_addresses_and_no_others() {
    for (to, is_taken) in [
        ("198.51.100.0:80", true),
        ("198.51.100.255:80", true),
        ("198.51.101.0:80", false),
        ("198.51.99.255:80", false),
    ] {
        let mut pair = Pair::with(config("10.0.0.1"), taking(&["198.51.100.0/24"]));
        listen(&mut pair.server);
        let id = pair.client.connect(pair.now, at("0.0.0.0:0"), at(to)).unwrap();
        pair.run_for(Duration::from_millis(50));
        let expected = if is_taken { State::Established } else { State::SynSent };
        assert_eq!(pair.client.state(id), expected, "{to}");
        assert_eq!(pair.server.counters().not_ours, u64::from(!is_taken), "{to}");
    }
}

#[test]
fn only_single_hosts_addresses_are_taken() {
    let mut config = plain();
    config.destinations = ALL.map(|text| text.parse().unwrap()).into();
    let mut peer = Peer::new(config);
    listen(&mut peer.host);
    let strange = ["224.0.0.5", "255.255.255.255", "10.0.0.255", "127.0.0.1", "0.0.0.0"];
    for address in strange {
        peer.host_ip = address.parse().unwrap();
        assert!(peer.exchange(Say::new(S, 0, 0)).is_empty(), "{address}");
    }
    peer.host_ip = "8.8.8.8".parse().unwrap();
    for address in strange.into_iter().chain(["10.0.0.2"]) {
        peer.ip = address.parse().unwrap();
        assert!(peer.exchange(Say::new(S, 0, 0)).is_empty(), "from {address}");
    }
    assert_eq!(peer.host.counters().not_ours, 11);
    // A peer may have an address that is taken.
    peer.ip = "8.8.4.4".parse().unwrap();
    assert_eq!(peer.exchange(Say::new(S, 0, 0)), ["S 0:0(0) ack 1"]);
}

#[test]
fn what_has_a_listener_of_its_own_goes_there() {
    let mut peer = Peer::listening(Config { destinations: taking(&ALL).destinations, ..plain() });
    let any = listen(&mut peer.host);
    let options = peer.host.default_options();
    assert_eq!(peer.host.listen_any(1, options), Err(Error::AddressInUse), "there is one");
    for (port, ip) in [(80, "10.0.0.2"), (81, "10.0.0.2"), (80, "8.8.8.8")] {
        (peer.host_port, peer.host_ip, peer.port) = (port, ip.parse().unwrap(), peer.port + 1);
        peer.say(Say::new(S, 0, 0));
        peer.hear_one();
        peer.say(Say::new(A, 1, 1));
    }
    assert_eq!(peer.host.accept_queue_len(any), 2);
    assert_eq!(peer.host.accept_queue_len(peer.listener.unwrap()), 1);
    // Without it a port has nobody again.
    peer.host.close_listener(peer.now, any);
    peer.hear();
    peer.port += 1;
    peer.say(Say::new(S, 0, 0));
    assert_eq!(peer.hear_one().flags, R | A);
}

#[test]
fn a_cookie_serves_a_destination_that_is_taken() {
    let mut config = Config { destinations: taking(&ALL).destinations, ..plain() };
    config.limits.syn_cache = 0;
    let mut peer = Peer::new(config);
    peer.host_ip = "8.8.8.8".parse().unwrap();
    peer.listener = Some(listen(&mut peer.host));
    peer.say(Say::new(S, 0, 0).mss(1000));
    assert_eq!(peer.hear_one().flags, S | A);
    peer.say(Say::new(A, 1, 1));
    peer.accept();
    let counters = *peer.host.counters();
    assert_eq!((counters.cookies_sent, counters.cookies_accepted), (1, 1));
    assert_eq!(peer.host.local_address(peer.id()), Ok(at("8.8.8.8:80")));
}

/// The client's gateway is a host that takes all addresses.
fn behind_a_gateway() -> Cable {
    let mut client = link::host(&["10.0.0.1/24"], 1);
    client.gateways = Vec::from(["10.0.0.2".parse().unwrap()]);
    let mut server = link::host(&["10.0.0.2/24"], 2);
    server.destinations = ALL.map(|text| text.parse().unwrap()).into();
    Cable::new(Vec::from([client, server]))
}

#[test]
fn a_port_that_nobody_hears_is_refused_from_its_own_address() {
    let mut cable = behind_a_gateway();
    let options = cable.hosts[0].default_udp_options();
    let client = cable.hosts[0].udp_bind(at("0.0.0.0:0"), options).unwrap();
    let now = cable.now;
    cable.hosts[0].udp_connect(now, client, Some(at("8.8.8.8:53"))).unwrap();
    cable.hosts[0].udp_send(now, client, &Transmit::default(), b"x").unwrap();
    cable.settle();
    assert_eq!(cable.hosts[0].udp_take_error(client), Some(Error::ConnectionRefused));
    let id = cable.connect("8.8.8.8:80");
    cable.settle();
    assert_eq!(cable.hosts[0].take_error(id), Some(Error::ConnectionRefused));
}

#[test]
fn no_echo_is_answered_and_no_hardware_address_told_for_others() {
    let mut cable = behind_a_gateway();
    for (to, answers) in [("10.0.0.2", 1), ("8.8.8.8", 1), ("10.0.0.9", 1)] {
        let mut payload = Vec::new();
        Message::EchoRequest(Echo { id: 1, seq: 1, data: b"x" }).emit(&mut payload);
        let (from, to) = ("10.0.0.1".parse().unwrap(), to.parse().unwrap());
        let mut bytes = Vec::new();
        let (destination, source) = ([2, 0, 0, 0, 0, 2], [2, 0, 0, 0, 0, 1]);
        ethernet::Header { destination, source, ethertype: 0x0800 }.emit(&mut bytes);
        ip::Header::new(from, to, ip::protocol::ICMPV4, payload.len()).unwrap().emit(&mut bytes);
        bytes.extend(payload);
        let now = cable.now;
        cable.hosts[1].on_frame(now, crate::frame::RxFrame::plain(&bytes));
        cable.settle();
        assert_eq!(cable.hosts[1].counters().echo_replies, answers, "{to}");
    }
    assert_eq!(cable.hosts[1].counters().replies_suppressed, 2);
    // 10.0.0.9 lies on the link, and is asked for there.
    let id = cable.connect("10.0.0.9:80");
    cable.pass(Duration::from_secs(5));
    assert_eq!(cable.hosts[0].take_error(id), Some(Error::HostUnreachable));
}

#[test]
fn a_connection_may_be_opened_from_an_address_that_is_taken() {
    let mut pair = Pair::with(taking(&["198.51.100.0/24"]), config("10.0.0.2"));
    let listener = pair.server.listen(at("0.0.0.0:80"), 1).unwrap();
    let to = at("10.0.0.2:80");
    let opened = pair.client.connect(pair.now, at("198.51.101.1:7"), to);
    assert_eq!(opened, Err(ConnectError::AddressNotAvailable));
    pair.client.connect(pair.now, at("198.51.100.1:7"), to).unwrap();
    pair.run_for(Duration::from_millis(50));
    let server = pair.server.accept(pair.now, listener).unwrap();
    assert_eq!(pair.server.peer_address(server), Ok(at("198.51.100.1:7")));
    // Of none that it takes does the host think by itself.
    let chosen = pair.client.connect(pair.now, at("0.0.0.0:0"), to);
    assert_eq!(chosen, Err(ConnectError::AddressNotAvailable));
    assert!(pair.client.addresses().is_empty());
}

#[test]
fn an_icmp_error_about_what_left_from_such_an_address_is_heard() {
    let mut peer = Peer::new(Config { destinations: taking(&ALL).destinations, ..plain() });
    peer.host_ip = "8.8.8.8".parse().unwrap();
    listen(&mut peer.host);
    peer.say(Say::new(S, 0, 0));
    peer.hear_one();
    assert_eq!(peer.exchange(Say::new(R, 1, 0)), Vec::<std::string::String>::new());
    assert_eq!((peer.host.half_open(), peer.host.counters().resets_received), (0, 1));
}
