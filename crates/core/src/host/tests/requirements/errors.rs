//! ICMP, retransmission in vain, and how the user hears of them: RFC 9293 §3.8.3, §3.9.1.8,
//! §3.9.2.2.

use crate::error::Error;
use crate::host::tests::peer::{A, Peer, S, Say, plain};
use crate::tcp::{SocketOptions, State};
use crate::time::Duration;
use crate::wire::icmpv4::Message;
use crate::wire::ip;
use std::vec::Vec;

/// The beginning of the host's packet of `packet_bytes` bytes whose segment began at `seq`, as a
/// router would quote it.
pub(in crate::host::tests) fn quoted(peer: &Peer, seq: u32, packet_bytes: usize) -> Vec<u8> {
    let (host, to) = ("10.0.0.2".parse().unwrap(), "10.0.0.1".parse().unwrap());
    let mut bytes = Vec::new();
    ip::Header::new(host, to, ip::protocol::TCP, packet_bytes - 20).unwrap().emit(&mut bytes);
    bytes.extend_from_slice(&80u16.to_be_bytes());
    bytes.extend_from_slice(&4000u16.to_be_bytes());
    bytes.extend_from_slice(&(peer.host_isn + seq).0.to_be_bytes());
    bytes
}

/// A router sends the host an ICMP message.
pub(in crate::host::tests) fn complain(peer: &mut Peer, message: &Message<'_>) {
    let (router, host) = ("10.0.0.9".parse().unwrap(), "10.0.0.2".parse().unwrap());
    let (mut bytes, mut payload) = (Vec::new(), Vec::new());
    message.emit(&mut payload);
    ip::Header::new(router, host, ip::protocol::ICMPV4, payload.len()).unwrap().emit(&mut bytes);
    bytes.extend_from_slice(&payload);
    peer.host.on_frame(peer.now, crate::RxFrame::plain(&bytes));
}

/// An established connection with 100 bytes in flight.
fn in_flight() -> Peer {
    let mut peer = Peer::established(plain());
    peer.write(100);
    peer.hear_one();
    peer
}

#[test]
fn no_icmp_error_ends_an_established_connection_but_is_readable() {
    for code in [0, 1, 2, 3, 5, 13] {
        let mut peer = in_flight();
        let (id, quoted) = (peer.id(), quoted(&peer, 1, 140));
        assert_eq!(peer.host.soft_error(id), None);
        complain(&mut peer, &Message::Unreachable { code, next_hop_mtu: 0, quoted: &quoted });
        assert_eq!(peer.state(), State::Established, "code {code}");
        let expected = match code {
            0 => Error::NetworkUnreachable,
            2 | 3 => Error::ConnectionRefused,
            _ => Error::HostUnreachable,
        };
        assert_eq!(peer.host.soft_error(id), Some(expected), "code {code}");
        // Only a call that asks for the soft error gets it.
        assert_eq!(peer.read(9), Err(Error::WouldBlock));
        assert_eq!((peer.write(1), peer.host.take_error(id)), (1, None));
        // What is acknowledged got through: nothing is in the way any more.
        peer.say(Say::new(A, 1, 101));
        assert_eq!(peer.host.soft_error(id), None);
    }
}

#[test]
fn time_exceeded_and_parameter_problems_end_nothing() {
    for code in [0, 1] {
        let mut peer = in_flight();
        let quoted = quoted(&peer, 1, 140);
        complain(&mut peer, &Message::TimeExceeded { code, quoted: &quoted });
        complain(&mut peer, &Message::ParameterProblem { pointer: code, quoted: &quoted });
        assert_eq!(peer.host.counters().icmp_accepted, 2);
        assert_eq!(peer.state(), State::Established);
    }
    let (mut opening, _) = Peer::opening(plain());
    let quoted = quoted(&opening, 0, 44);
    complain(&mut opening, &Message::TimeExceeded { code: 0, quoted: &quoted });
    complain(&mut opening, &Message::ParameterProblem { pointer: 0, quoted: &quoted });
    assert_eq!(opening.host.counters().icmp_accepted, 2);
    assert_eq!(opening.state(), State::SynSent);
}

#[test]
fn source_quench_is_dropped_in_silence() {
    let mut peer = in_flight();
    let before = (peer.host.info(peer.id()).unwrap(), *peer.host.counters());
    let mut message = Vec::from([4u8, 0, 0, 0, 0, 0, 0, 0]);
    message.extend(quoted(&peer, 1, 140));
    let value = crate::wire::checksum::sum(&message).checksum();
    message[2..4].copy_from_slice(&value.to_be_bytes());
    let (router, host) = ("10.0.0.9".parse().unwrap(), "10.0.0.2".parse().unwrap());
    let mut bytes = Vec::new();
    let len = message.len();
    ip::Header::new(router, host, ip::protocol::ICMPV4, len).unwrap().emit(&mut bytes);
    bytes.extend(message);
    peer.host.on_frame(peer.now, crate::RxFrame::plain(&bytes));
    assert!(peer.hear().is_empty());
    let mut counters = *peer.host.counters();
    counters.frames_in -= 1;
    assert_eq!((peer.host.info(peer.id()).unwrap(), counters), before);
    assert_eq!(peer.host.soft_error(peer.id()), None);
}

#[test]
fn three_retransmissions_in_vain_are_reported_before_the_end() {
    let mut peer = in_flight();
    let id = peer.id();
    // Sent again after 1, 3 and 7 s; at 15 s the third has been in vain.
    peer.wait(Duration::from_millis(14_999));
    assert_eq!(peer.host.soft_error(id), None);
    peer.wait(Duration::from_millis(1));
    assert_eq!(peer.host.soft_error(id), Some(Error::TimedOut));
    assert_eq!(peer.state(), State::Established);
    peer.say(Say::new(A, 1, 101));
    assert_eq!(peer.host.soft_error(id), None);
}

#[test]
fn the_same_holds_for_a_syn() {
    let (mut peer, _) = Peer::opening(plain());
    let id = peer.id();
    peer.wait(Duration::from_millis(14_999));
    assert_eq!(peer.host.soft_error(id), None);
    peer.wait(Duration::from_millis(1));
    assert_eq!(peer.host.soft_error(id), Some(Error::TimedOut));
    peer.say(Say::new(S | A, 0, 1));
    assert_eq!((peer.state(), peer.host.soft_error(id)), (State::Established, None));
}

#[test]
fn the_traffic_class_may_change_on_the_way_and_passes_unchanged() {
    let mut peer = Peer::established(plain());
    let (id, now) = (peer.id(), peer.now);
    let mut outbox = crate::Outbox::new(8);
    for class in [0u8, 0x28, 0xb8] {
        let mut options = peer.host.options(id).unwrap();
        options.traffic_class = class;
        options.nodelay = true;
        peer.host.set_options(now, id, options).unwrap();
        peer.write(10);
        peer.host.emit(now, &mut outbox);
        let (frame, mut bytes) = (outbox.take().unwrap(), Vec::new());
        frame.copy_to(&mut bytes);
        assert_eq!(ip::Packet::parse(&bytes).unwrap().traffic_class, class);
    }
}

#[test]
fn without_discovery_no_packet_is_too_big() {
    for discovery in [true, false] {
        let mut peer = Peer::established(plain());
        let (id, now) = (peer.id(), peer.now);
        let options = peer.host.options(id).unwrap();
        let options = SocketOptions { path_mtu_discovery: discovery, ..options };
        peer.host.set_options(now, id, options).unwrap();
        peer.write(1000);
        peer.hear_one();
        let quoted = quoted(&peer, 1, 1040);
        complain(&mut peer, &Message::Unreachable { code: 4, next_hop_mtu: 800, quoted: &quoted });
        assert_eq!(peer.hear().len(), if discovery { 2 } else { 0 });
    }
}
