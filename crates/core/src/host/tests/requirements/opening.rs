//! OPEN, and the addresses that may be opened to: RFC 9293 §3.9.1.1, §3.9.2.3.

use crate::error::{ConnectError, Error};
use crate::host::Host;
use crate::host::tests::pair::{Pair, Side, config};
use crate::host::tests::peer::{A, F, Peer, R, S, Say, plain};
use crate::tcp::State;
use crate::time::Duration;
use core::net::SocketAddr;
use std::string::ToString;

fn at(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

#[test]
fn an_open_to_a_group_a_broadcast_or_nobody_is_an_error() {
    let mut host = Host::new(plain()).unwrap();
    let now = crate::Instant::from_millis(1000);
    for remote in
        ["224.0.0.1:80", "255.255.255.255:80", "10.0.0.255:80", "0.0.0.0:80", "0.1.2.3:80"]
            .into_iter()
            .chain(["127.0.0.1:80", "10.0.0.1:0"])
    {
        let opened = host.connect(now, at("0.0.0.0:0"), at(remote));
        assert!(matches!(opened, Err(ConnectError::InvalidInput(_))), "{remote}: {opened:?}");
    }
    assert!(host.connect(now, at("0.0.0.0:0"), at("10.0.0.1:80")).is_ok());
    assert!(host.connect(now, at("0.0.0.0:0"), at("10.0.0.2:80")).is_ok(), "ourselves");
}

#[test]
fn an_open_that_goes_nowhere_says_why() {
    let mut host = Host::new(plain()).unwrap();
    let now = crate::Instant::from_millis(1000);
    for (remote, why) in [
        ("10.0.0.1:0", "port is 0"),
        ("127.0.0.1:80", "loopback, which this stack cannot reach"),
        ("[::1]:80", "loopback, which this stack cannot reach"),
        ("0.0.0.0:80", "unspecified"),
        ("224.0.0.1:80", "a group's or a broadcast"),
        ("10.0.0.255:80", "a group's or a broadcast"),
    ] {
        let local = crate::host::any_local(&at(remote));
        let text = host.connect(now, local, at(remote)).unwrap_err().to_string();
        assert!(text.starts_with("invalid input: the remote ") && text.contains(why), "{text}");
    }
}

#[test]
fn a_syn_to_a_group_or_a_broadcast_is_dropped_in_silence() {
    let mut config = plain();
    config.addresses.push("10.0.1.2/24".parse().unwrap());
    let mut host = Host::new(config).unwrap();
    host.listen(at("0.0.0.0:80"), 4).unwrap();
    let now = crate::Instant::from_millis(1000);
    let mut outbox = crate::Outbox::new(8);
    for (destination, answers) in [
        ("224.0.0.1", 0),
        ("255.255.255.255", 0),
        ("10.0.0.255", 0),
        ("10.0.1.255", 0),
        ("10.0.0.2", 1),
    ] {
        use crate::wire::{checksum, ip};
        let (from, to) = ("10.0.0.1".parse().unwrap(), destination.parse().unwrap());
        let mut bytes = std::vec::Vec::new();
        ip::Header::new(from, to, ip::protocol::TCP, 20).unwrap().emit(&mut bytes);
        bytes.extend_from_slice(&[0, 9, 0, 80, 0, 0, 0, 1, 0, 0, 0, 0, 0x50, 2, 1, 0, 0, 0, 0, 0]);
        let sum = checksum::Sum::ZERO;
        let value = crate::wire::tcp::checksum(from, to, &bytes[20..], sum, 0);
        bytes[36..38].copy_from_slice(&value.to_be_bytes());
        host.on_frame(now, crate::RxFrame::plain(&bytes));
        host.emit(now, &mut outbox);
        assert_eq!(outbox.len(), answers, "{destination}");
    }
    assert_eq!(host.half_open(), 1);
}

#[test]
fn a_passive_open_disturbs_no_connection_and_no_other_listener() {
    let mut pair = Pair::new();
    let (listener, client, server) = pair.connected();
    assert_eq!(pair.server.listen(at("0.0.0.0:80"), 4), Err(Error::AddressInUse));
    let second = pair.server.listen(at("0.0.0.0:81"), 4).unwrap();
    let exact = pair.server.listen(at("10.0.0.2:80"), 4).unwrap();
    pair.transfer((Side::Client, client), (Side::Server, server), 10_000);
    pair.server.close_listener(pair.now, second);
    pair.server.close_listener(pair.now, exact);
    pair.connect(listener);
    assert_eq!(pair.server.state(server), State::Established);
}

#[test]
fn one_may_listen_on_the_port_of_an_opening_connection() {
    let (mut peer, _) = Peer::opening(plain());
    assert_eq!(peer.state(), State::SynSent);
    let opening = peer.id();
    let listener = peer.host.listen(at("10.0.0.2:80"), 4).unwrap();
    // Another host's SYN finds the listener, and the opening connection waits on.
    let mut other = Pair::new();
    core::mem::swap(&mut other.server, &mut peer.host);
    other.now = peer.now;
    other.connect(listener);
    assert_eq!(other.server.state(opening), State::SynSent);
    core::mem::swap(&mut other.server, &mut peer.host);
    // A SYN of the peer itself is for the connection: a simultaneous open.
    peer.say(Say::new(S, 0, 0));
    assert_eq!(peer.state(), State::SynReceived);
    assert!(peer.host.listen(at("0.0.0.0:80"), 4).is_ok(), "and in SYN-RECEIVED");
}

#[test]
fn the_local_address_is_the_one_asked_for_or_the_best_and_stays() {
    let mut client = config("10.0.0.1");
    client.addresses.push("10.0.0.7/24".parse().unwrap());
    let mut pair = Pair::with(client, config("10.0.0.2"));
    pair.server.listen(at("0.0.0.0:80"), 4).unwrap();
    let asked = pair.client.connect(pair.now, at("10.0.0.7:0"), at("10.0.0.2:80")).unwrap();
    let chosen = pair.client.connect(pair.now, at("0.0.0.0:0"), at("10.0.0.2:80")).unwrap();
    let foreign = pair.client.connect(pair.now, at("10.0.0.8:0"), at("10.0.0.2:80"));
    assert_eq!(foreign, Err(ConnectError::AddressNotAvailable));
    pair.run_for(Duration::from_millis(100));
    for (id, address) in [(asked, "10.0.0.7"), (chosen, "10.0.0.1")] {
        assert_eq!(pair.client.state(id), State::Established);
        let local = pair.client.local_address(id).unwrap();
        assert_eq!(local.ip().to_string(), address);
        let sent = pair.log.iter().filter_map(|(_, side, bytes)| {
            let packet = crate::wire::ip::Packet::parse(bytes).unwrap();
            let segment = crate::wire::tcp::Segment::parse(packet.payload).unwrap();
            let its = *side == Side::Client && segment.source_port == local.port();
            its.then_some(packet.source)
        });
        let sources: std::vec::Vec<_> = sent.collect();
        assert!(sources.len() >= 2 && sources.iter().all(|source| *source == local.ip()));
    }
}

#[test]
fn a_reset_may_carry_data_in_every_state_in_which_it_counts() {
    let mut peer = Peer::established(plain());
    peer.say(Say::new(R, 1, 0).data(b"go away"));
    assert_eq!(peer.state(), State::Closed);
    let (mut peer, _) = Peer::opening(plain());
    peer.say(Say::new(R | A, 0, 1).data(b"go away"));
    let id = peer.id();
    assert_eq!(peer.host.take_error(id), Some(Error::ConnectionRefused));
    let mut peer = Peer::listening(plain());
    peer.exchange(Say::new(S, 0, 0));
    peer.say(Say::new(R, 1, 0).data(b"go away"));
    assert_eq!(peer.host.half_open(), 0);
}

#[test]
fn a_close_and_an_abort_of_the_peer_are_told_apart() {
    let mut closed = Peer::established(plain());
    closed.say(Say::new(A | F, 1, 1).data(b"bye"));
    assert_eq!(closed.read(9).unwrap(), b"bye");
    assert_eq!(closed.read(9).unwrap(), b"", "the end of the stream");
    let mut aborted = Peer::established(plain());
    aborted.say(Say::new(A, 1, 1).data(b"bye"));
    aborted.say(Say::new(R, 4, 0));
    assert_eq!(aborted.read(9).unwrap(), b"bye");
    assert_eq!(aborted.read(9), Err(Error::ConnectionReset));
}
