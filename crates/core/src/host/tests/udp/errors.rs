//! ICMP errors: those that we send, and those that come.

use super::*;
use crate::wire::icmpv4::Message;

/// The bytes of the last IP packet that host 0 sent.
fn last_sent(cable: &Cable) -> Vec<u8> {
    let sent = cable.seen.iter().rev();
    let mut ours = sent.filter(|frame| frame[6..12] == [2, 0, 0, 0, 0, 1] && frame[12] != 6);
    ours.find(|frame| frame[12..14] != [8, 6]).unwrap()[14..].to_vec()
}

/// A router's link takes 1000 bytes, and not the packet that begins so.
fn too_big(quoted: &[u8]) -> Message<'_> {
    Message::Unreachable { code: 4, next_hop_mtu: 1000, quoted }
}

#[test]
fn a_closed_port_refuses_a_connected_socket() {
    for to in ["10.0.0.2:7", "[fd00::2]:7"] {
        let mut cable = Cable::two();
        let client = bind(&mut cable, 0, "[::]:0");
        let now = cable.now;
        send(&mut cable, 0, client, to, b"x").unwrap();
        cable.settle();
        // Unconnected, it does not hear of it.
        assert_eq!(cable.hosts[1].counters().ports_unreachable, 1);
        assert_eq!(receive(&mut cable, 0, client), Err(Error::WouldBlock));
        cable.hosts[0].udp_connect(now, client, Some(at(to))).unwrap();
        send(&mut cable, 0, client, to, b"x").unwrap();
        cable.settle();
        assert!(cable.hosts[0].udp_readiness(client).contains(Readiness::READABLE));
        assert_eq!(receive(&mut cable, 0, client), Err(Error::ConnectionRefused));
        assert_eq!(receive(&mut cable, 0, client), Err(Error::WouldBlock), "once");
        send(&mut cable, 0, client, to, b"x").unwrap();
        cable.settle();
        assert_eq!(send(&mut cable, 0, client, to, b"y"), Err(Error::ConnectionRefused));
    }
}

#[test]
fn a_socket_that_asks_hears_of_every_destination() {
    let mut cable = Cable::two();
    let client = bind(&mut cable, 0, "0.0.0.0:0");
    change(&mut cable.hosts[0], client, |options| options.report_errors = true);
    for port in 1..=10 {
        send(&mut cable, 0, client, &std::format!("10.0.0.2:{port}"), b"x").unwrap();
    }
    cable.settle();
    assert!(cable.hosts[0].udp_readiness(client).contains(Readiness::READABLE));
    let told: Vec<_> = core::iter::from_fn(|| cable.hosts[0].udp_error(client)).collect();
    let first = (at("10.0.0.2:1"), Error::ConnectionRefused);
    assert_eq!((told.len(), told[0]), (8, first), "no more are kept");
    assert_eq!(receive(&mut cable, 0, client), Err(Error::WouldBlock));
}

#[test]
fn strangers_are_answered_at_a_limited_rate_and_groups_never() {
    let mut config = host(&["10.0.0.2/24"], 2);
    config.limits.replies_per_second = 3;
    let mut cable = Cable::new(Vec::from([host(&["10.0.0.1/24"], 1), config]));
    let client = bind(&mut cable, 0, "0.0.0.0:0");
    change(&mut cable.hosts[0], client, |options| options.broadcast = true);
    for to in ["224.0.0.1:7", "10.0.0.255:7", "255.255.255.255:7"] {
        send(&mut cable, 0, client, to, b"x").unwrap();
    }
    cable.settle();
    let counters = cable.hosts[1].counters();
    assert_eq!((counters.datagrams_unheard, counters.ports_unreachable), (3, 0));
    for _ in 0..5 {
        send(&mut cable, 0, client, "10.0.0.2:7", b"x").unwrap();
    }
    cable.settle();
    let counters = cable.hosts[1].counters();
    assert_eq!((counters.ports_unreachable, counters.replies_suppressed), (3, 2));
}

#[test]
fn a_packet_too_big_is_believed_if_such_a_one_was_sent() {
    let mut cable = Cable::two();
    let server = bind(&mut cable, 1, "0.0.0.0:53");
    let client = bind(&mut cable, 0, "0.0.0.0:0");
    send(&mut cable, 0, client, "10.0.0.2:53", &bytes(1400)).unwrap();
    cable.settle();
    let sent = last_sent(&cable);
    for forged in [[2, 5, 0x95], [20, 0, 9]] {
        // Another length, and another port of ours.
        let mut quoted = sent.clone();
        quoted[usize::from(forged[0])] = forged[1];
        quoted[usize::from(forged[0]) + 1] = forged[2];
        cable.icmp(&too_big(&quoted[..28]));
    }
    assert_eq!(cable.hosts[0].udp_payload_max(at("10.0.0.2:53").ip()), 1472);
    assert_eq!(cable.hosts[0].counters().path_mtu_lowered, 0);
    cable.icmp(&too_big(&sent[..28]));
    assert_eq!(cable.hosts[0].udp_payload_max(at("10.0.0.2:53").ip()), 972);
    cable.longest = 14 + 1000;
    receive(&mut cable, 1, server).unwrap();
    send(&mut cable, 0, client, "10.0.0.2:53", &bytes(1400)).unwrap();
    cable.settle();
    assert_eq!(receive(&mut cable, 1, server).unwrap().0, bytes(1400), "in fragments");
    change(&mut cable.hosts[0], client, |options| options.dont_fragment = true);
    let refused = send(&mut cable, 0, client, "10.0.0.2:53", &bytes(1400));
    assert_eq!(refused, Err(Error::MessageTooLong));
}

#[test]
fn a_datagram_begun_in_fragments_is_ended_in_fragments() {
    let mut cable = Cable::two();
    let server = bind(&mut cable, 1, "0.0.0.0:53");
    let client = bind(&mut cable, 0, "0.0.0.0:0");
    send(&mut cable, 0, client, "10.0.0.2:53", &bytes(1400)).unwrap();
    cable.settle();
    receive(&mut cable, 1, server).unwrap();
    let sent = last_sent(&cable);
    cable.icmp(&too_big(&sent[..28]));
    send(&mut cable, 0, client, "10.0.0.2:53", &bytes(1400)).unwrap();
    let mut frames = Vec::new();
    let mut emit = |cable: &mut Cable| {
        let mut outbox = Outbox::new(1);
        cable.hosts[0].emit(cable.now, &mut outbox);
        frames.extend(outbox.frames().map(|frame| frame.head.clone()));
    };
    emit(&mut cable);
    // What the router said is forgotten meanwhile, and the whole datagram would fit.
    cable.now = cable.now + Duration::from_secs(3600);
    let now = cable.now;
    cable.hosts[0].on_time(now);
    assert_eq!(cable.hosts[0].udp_payload_max(at("10.0.0.2:53").ip()), 1472);
    for _ in 0..4 {
        emit(&mut cable);
    }
    let is_ip = |frame: &&Vec<u8>| frame[12..14] == [8, 0];
    let ours: Vec<&Vec<u8>> = frames.iter().filter(is_ip).collect();
    ours.iter().for_each(|frame| cable.hosts[1].on_frame(now, RxFrame::plain(frame)));
    assert_eq!(receive(&mut cable, 1, server).unwrap().0, bytes(1400));
    assert_eq!(ours.len(), 2, "and nothing follows");
}

#[test]
fn a_neighbour_that_does_not_answer_is_unreachable() {
    let mut cable = Cable::two();
    let client = bind(&mut cable, 0, "0.0.0.0:0");
    let now = cable.now;
    cable.hosts[0].udp_connect(now, client, Some(at("10.0.0.9:9"))).unwrap();
    send(&mut cable, 0, client, "10.0.0.9:9", b"x").unwrap();
    cable.pass(Duration::from_secs(4));
    assert_eq!(cable.hosts[0].counters().neighbour_drops, 1);
    send(&mut cable, 0, client, "10.0.0.9:9", b"x").unwrap();
    cable.settle();
    assert_eq!(receive(&mut cable, 0, client), Err(Error::HostUnreachable));
    let unreachable = send(&mut cable, 0, client, "192.0.2.1:9", b"x");
    assert_eq!(unreachable, Err(Error::NetworkUnreachable));
}

#[test]
fn a_wrong_checksum_is_dropped_and_none_is_taken_over_ipv4() {
    let mut cable = Cable::two();
    let server = bind(&mut cable, 1, "[::]:53");
    let client = bind(&mut cable, 0, "[::]:0");
    for (to, checksum) in [("10.0.0.2:53", 14 + 26), ("[fd00::2]:53", 14 + 46)] {
        send(&mut cable, 0, client, to, b"right").unwrap();
        cable.settle();
        assert_eq!(receive(&mut cable, 1, server).unwrap().0, b"right");
        let now = cable.now;
        let mut frame = cable.seen.last().unwrap().clone();
        let before = cable.hosts[1].counters().checksum_errors;
        frame[checksum] ^= 0x55;
        cable.hosts[1].on_frame(now, RxFrame::plain(&frame));
        assert_eq!(cable.hosts[1].counters().checksum_errors, before + 1);
        assert_eq!(receive(&mut cable, 1, server), Err(Error::WouldBlock));
        frame[checksum..checksum + 2].fill(0);
        cable.hosts[1].on_frame(now, RxFrame::plain(&frame));
        assert_eq!(receive(&mut cable, 1, server).is_ok(), to.starts_with("10."), "{to}");
    }
}
