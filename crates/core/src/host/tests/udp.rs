//! UDP between hosts on a cable, in virtual time.

mod errors;
mod flows;
mod fragments;
mod groups;
mod shards;

use alloc::vec::Vec;
use core::net::SocketAddr;

use super::link::{Cable, host};
use crate::config::Config;
use crate::error::Error;
use crate::event::{Event, Readiness, UdpId};
use crate::frame::{Capabilities, Medium, Outbox, RxFrame};
use crate::host::Host;
use crate::time::{Duration, Instant};
use crate::udp::{IPV4_PAYLOAD_MAX, IPV6_PAYLOAD_MAX, Received, Transmit, UdpOptions};

fn at(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

/// A socket of that host with the default options.
fn bind(cable: &mut Cable, host: usize, local: &str) -> UdpId {
    let options = cable.hosts[host].default_udp_options();
    cable.hosts[host].udp_bind(at(local), options).unwrap()
}

fn change(host: &mut Host, id: UdpId, change: impl FnOnce(&mut UdpOptions)) {
    let mut options = host.udp_options(id).unwrap();
    change(&mut options);
    host.udp_set_options(id, options).unwrap();
}

fn send(cable: &mut Cable, host: usize, id: UdpId, to: &str, bytes: &[u8]) -> Result<(), Error> {
    let now = cable.now;
    cable.hosts[host].udp_send(now, id, &Transmit::to(at(to)), bytes)
}

/// The next datagram, whole.
fn receive(cable: &mut Cable, host: usize, id: UdpId) -> Result<(Vec<u8>, Received), Error> {
    let mut out = std::vec![0; 70_000];
    let received = cable.hosts[host].udp_receive(id, &mut out)?;
    out.truncate(received.len);
    Ok((out, received))
}

fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|at| ((at * 31) ^ (at >> 8)) as u8).collect()
}

#[test]
fn datagrams_go_to_and_fro_with_both_addresses() {
    for (any, ours, theirs) in [
        ("0.0.0.0:53", "10.0.0.1", "10.0.0.2:53"),
        ("[::]:53", "fd00::1", "[fd00::2]:53"),
        ("[::]:53", "10.0.0.1", "10.0.0.2:53"),
    ] {
        let mut cable = Cable::two();
        let server = bind(&mut cable, 1, any);
        let client = bind(&mut cable, 0, if ours.contains(':') { "[::]:0" } else { "0.0.0.0:0" });
        send(&mut cable, 0, client, theirs, b"who is it?").unwrap();
        cable.settle();
        let (asked, received) = receive(&mut cable, 1, server).unwrap();
        assert_eq!(asked, b"who is it?");
        let port = cable.hosts[0].udp_local_address(client).unwrap().port();
        assert_eq!(received.from, SocketAddr::new(ours.parse().unwrap(), port));
        assert_eq!(received.to, at(theirs).ip());
        let now = cable.now;
        let answer = Transmit { from: Some(received.to), ..Transmit::to(received.from) };
        cable.hosts[1].udp_send(now, server, &answer, b"").unwrap();
        cable.settle();
        let (empty, received) = receive(&mut cable, 0, client).unwrap();
        assert_eq!((empty.len(), received.from), (0, at(theirs)));
        assert_eq!(receive(&mut cable, 0, client), Err(Error::WouldBlock));
    }
}

#[test]
fn a_connected_socket_hears_its_remote_end_alone() {
    let mut cable = Cable::two();
    let server = bind(&mut cable, 1, "10.0.0.2:53");
    let other = bind(&mut cable, 1, "10.0.0.2:54");
    let client = bind(&mut cable, 0, "0.0.0.0:1234");
    let now = cable.now;
    assert_eq!(
        cable.hosts[0].udp_send(now, client, &Transmit::default(), b"x"),
        Err(Error::NotConnected)
    );
    cable.hosts[0].udp_connect(now, client, Some(at("10.0.0.2:53"))).unwrap();
    assert_eq!(cable.hosts[0].udp_local_address(client), Ok(at("10.0.0.1:1234")));
    assert_eq!(cable.hosts[0].udp_peer_address(client), Ok(at("10.0.0.2:53")));
    cable.hosts[0].udp_send(now, client, &Transmit::default(), b"x").unwrap();
    cable.settle();
    assert_eq!(receive(&mut cable, 1, server).unwrap().0, b"x");
    send(&mut cable, 1, other, "10.0.0.1:1234", b"a stranger").unwrap();
    send(&mut cable, 1, server, "10.0.0.1:1234", b"y").unwrap();
    cable.settle();
    assert_eq!(receive(&mut cable, 0, client).unwrap().0, b"y");
    assert_eq!(receive(&mut cable, 0, client), Err(Error::WouldBlock));
    cable.hosts[0].udp_connect(now, client, None).unwrap();
    assert_eq!(cable.hosts[0].udp_peer_address(client), Err(Error::NotConnected));
    send(&mut cable, 1, other, "10.0.0.1:1234", b"z").unwrap();
    cable.settle();
    assert_eq!(receive(&mut cable, 0, client).unwrap().0, b"z");
}

#[test]
fn the_socket_that_fits_best_hears() {
    let mut cable = Cable::two();
    let sockets: Vec<UdpId> =
        ["10.0.0.2:53", "[fd00::2]:53"].iter().map(|local| bind(&mut cable, 1, local)).collect();
    let host = &mut cable.hosts[1];
    let options = host.default_udp_options();
    for taken in ["10.0.0.2:53", "0.0.0.0:53", "[::]:53"] {
        assert_eq!(host.udp_bind(at(taken), options), Err(Error::AddressInUse), "{taken}");
    }
    let client = bind(&mut cable, 0, "[::]:0");
    for (to, socket) in ["10.0.0.2:53", "[fd00::2]:53"].iter().zip(&sockets) {
        send(&mut cable, 0, client, to, to.as_bytes()).unwrap();
        cable.settle();
        assert_eq!(receive(&mut cable, 1, *socket).unwrap().0, to.as_bytes());
    }
    sockets.iter().for_each(|id| cable.hosts[1].udp_close(*id));
    let only_ipv6 = UdpOptions { only_ipv6: true, ..options };
    let six = cable.hosts[1].udp_bind(at("[::]:53"), only_ipv6).unwrap();
    let four = bind(&mut cable, 1, "0.0.0.0:53");
    for (to, socket) in ["10.0.0.2:53", "[fd00::2]:53"].iter().zip([four, six]) {
        send(&mut cable, 0, client, to, b"again").unwrap();
        cable.settle();
        assert_eq!(receive(&mut cable, 1, socket).unwrap().0, b"again", "{to}");
    }
    let now = cable.now;
    let to = Transmit::to(at("10.0.0.1:9"));
    assert!(matches!(cable.hosts[1].udp_send(now, six, &to, b""), Err(Error::InvalidInput(_))));
}

#[test]
fn no_datagram_leaves_from_an_address_of_another_host() {
    let mut cable = Cable::two();
    let client = bind(&mut cable, 0, "[::]:0");
    let now = cable.now;
    for (from, refused) in [
        ("10.0.0.1", None),
        ("10.0.0.2", Some(Error::AddressNotAvailable)),
        ("10.0.0.255", Some(Error::AddressNotAvailable)),
        ("224.0.0.1", Some(Error::AddressNotAvailable)),
    ] {
        let from = Some(from.parse().unwrap());
        let transmit = Transmit { from, ..Transmit::to(at("10.0.0.2:53")) };
        let sent = cable.hosts[0].udp_send(now, client, &transmit, b"x");
        assert_eq!(sent.err(), refused, "{from:?}");
    }
    let from = Some("fd00::1".parse().unwrap());
    let transmit = Transmit { from, ..Transmit::to(at("10.0.0.2:53")) };
    let mixed = cable.hosts[0].udp_send(now, client, &transmit, b"x");
    assert!(matches!(mixed, Err(Error::InvalidInput(_))));
}

#[test]
fn an_address_that_was_asked_for_holds_for_one_datagram() {
    let ours = host(&["10.0.0.1/24", "10.0.0.7/24"], 1);
    let mut cable = Cable::new(Vec::from([ours, host(&["10.0.0.2/24"], 2)]));
    let server = bind(&mut cable, 1, "0.0.0.0:53");
    let client = bind(&mut cable, 0, "0.0.0.0:0");
    for from in [None, Some("10.0.0.7"), None, Some("10.0.0.7"), None] {
        let now = cable.now;
        let asked = from.map(|it| it.parse().unwrap());
        let transmit = Transmit { from: asked, ..Transmit::to(at("10.0.0.2:53")) };
        cable.hosts[0].udp_send(now, client, &transmit, b"x").unwrap();
        cable.settle();
        let seen = receive(&mut cable, 1, server).unwrap().1.from.ip();
        assert_eq!(seen, from.unwrap_or("10.0.0.1").parse::<core::net::IpAddr>().unwrap());
    }
}

#[test]
fn a_full_queue_drops_what_comes_and_counts_it() {
    let mut cable = Cable::two();
    let server = bind(&mut cable, 1, "0.0.0.0:53");
    let client = bind(&mut cable, 0, "0.0.0.0:0");
    // Three datagrams of 100 bytes. Each counts for 128 more.
    change(&mut cable.hosts[1], server, |options| options.receive_bytes = 3 * 228);
    for number in 0..5 {
        send(&mut cable, 0, client, "10.0.0.2:53", &[number; 100]).unwrap();
    }
    cable.settle();
    for number in 0..3 {
        assert_eq!(receive(&mut cable, 1, server).unwrap().0, [number; 100]);
    }
    assert_eq!(receive(&mut cable, 1, server), Err(Error::WouldBlock));
    assert_eq!(cable.hosts[1].udp_dropped(server), 2);
    assert_eq!(cable.hosts[1].counters().datagrams_over_limit, 2);
    assert_eq!(cable.hosts[1].pages_in_use(), 0);
}

#[test]
fn a_sender_without_room_waits_and_is_told() {
    let mut host = Host::new(host(&["10.0.0.1/24"], 1)).unwrap();
    let now = Instant::from_millis(1);
    let id = host.udp_bind(at("0.0.0.0:9"), host.default_udp_options()).unwrap();
    change(&mut host, id, |options| options.send_bytes = 3 * 228);
    let to = Transmit::to(at("10.0.0.2:9"));
    for _ in 0..3 {
        host.udp_send(now, id, &to, &[0; 100]).unwrap();
    }
    assert!(host.udp_readiness(id).contains(Readiness::WRITABLE));
    assert_eq!(host.udp_send(now, id, &to, &[0; 100]), Err(Error::WouldBlock));
    assert!(!host.udp_readiness(id).contains(Readiness::WRITABLE));
    // They wait for the neighbour as frames, and the socket goes on.
    host.emit(now, &mut Outbox::new(8));
    assert_eq!(host.event(), Some(Event::Udp(id, Readiness::WRITABLE)));
    assert_eq!(host.udp_send(now, id, &to, &[0; 100]), Ok(()));
    assert_eq!(host.event(), None);
}

#[test]
fn arrival_is_told_once_until_all_is_read() {
    let mut cable = Cable::two();
    let server = bind(&mut cable, 1, "0.0.0.0:53");
    let client = bind(&mut cable, 0, "0.0.0.0:0");
    send(&mut cable, 0, client, "10.0.0.2:53", b"first").unwrap();
    cable.settle();
    let mut frames = Outbox::new(8);
    for text in [b"a", b"b"] {
        send(&mut cable, 0, client, "10.0.0.2:53", text).unwrap();
    }
    let now = cable.now;
    assert_eq!(receive(&mut cable, 1, server).unwrap().0, b"first");
    cable.hosts[0].emit(now, &mut frames);
    while cable.hosts[1].event().is_some() {}
    for frame in frames.frames() {
        cable.hosts[1].on_frame(now, RxFrame::plain(&frame.head));
    }
    let host = &mut cable.hosts[1];
    assert_eq!(host.event(), Some(Event::Udp(server, Readiness::READABLE)));
    assert_eq!(host.event(), None);
    assert!(host.udp_readiness(server).contains(Readiness::READABLE));
    let mut out = [0; 1];
    assert_eq!(host.udp_peek(server, &mut out).map(|it| it.len), Ok(1));
    assert_eq!(host.udp_receive(server, &mut out).map(|it| it.len), Ok(1));
    assert_eq!(host.udp_receive(server, &mut out).map(|it| it.len), Ok(1));
    assert!(!host.udp_readiness(server).contains(Readiness::READABLE));
}

#[test]
fn what_there_is_no_room_for_is_cut_off_and_said() {
    let mut cable = Cable::two();
    let server = bind(&mut cable, 1, "0.0.0.0:53");
    let client = bind(&mut cable, 0, "0.0.0.0:0");
    send(&mut cable, 0, client, "10.0.0.2:53", &bytes(10)).unwrap();
    send(&mut cable, 0, client, "10.0.0.2:53", b"next").unwrap();
    cable.settle();
    let mut out = [0; 4];
    let received = cable.hosts[1].udp_receive(server, &mut out).unwrap();
    assert_eq!((received.len, received.segment, &out[..]), (4, 10, &bytes(4)[..]));
    assert_eq!(receive(&mut cable, 1, server).unwrap().0, b"next");
}

#[test]
fn marks_and_limits_of_hops_are_those_asked_for() {
    let mut cable = Cable::two();
    let server = bind(&mut cable, 1, "[::]:53");
    let client = bind(&mut cable, 0, "[::]:0");
    change(&mut cable.hosts[0], client, |options| {
        (options.traffic_class, options.hop_limit) = (0xb9, Some(7));
    });
    for to in ["10.0.0.2:53", "[fd00::2]:53"] {
        for (ecn, expected) in [(None, 0xb9), (Some(2), 0xba), (Some(0), 0xb8)] {
            let now = cable.now;
            let transmit = Transmit { ecn, ..Transmit::to(at(to)) };
            cable.hosts[0].udp_send(now, client, &transmit, b"x").unwrap();
            cable.settle();
            let received = receive(&mut cable, 1, server).unwrap().1;
            assert_eq!((received.traffic_class, received.ecn()), (expected, expected & 3));
            let packet = crate::wire::ip::Packet::parse(&cable.seen.last().unwrap()[14..]).unwrap();
            assert_eq!(packet.hop_limit, 7);
        }
    }
}

#[test]
fn several_datagrams_leave_with_one_call_and_are_read_as_one() {
    let mut cable = Cable::two();
    let server = bind(&mut cable, 1, "0.0.0.0:53");
    let client = bind(&mut cable, 0, "0.0.0.0:0");
    for joined in [false, true] {
        change(&mut cable.hosts[1], server, |options| options.joined = joined);
        let now = cable.now;
        let sent = bytes(5 * 1200 + 7);
        let transmit = Transmit { segment: Some(1200), ..Transmit::to(at("10.0.0.2:53")) };
        cable.hosts[0].udp_send(now, client, &transmit, &sent).unwrap();
        cable.settle();
        let mut read = Vec::new();
        while let Ok((more, received)) = receive(&mut cable, 1, server) {
            read.push((received.len, received.segment));
            let place = read[..read.len() - 1].iter().map(|one| one.0).sum::<usize>();
            assert_eq!(more, sent[place..place + more.len()]);
        }
        let each = if joined { &[(6007, 1200)][..] } else { &[(1200, 1200); 5][..] };
        assert_eq!(&read[..each.len()], each);
        assert_eq!(read.iter().map(|one| one.0).sum::<usize>(), sent.len());
    }
    let now = cable.now;
    let many = Transmit { segment: Some(1), ..Transmit::to(at("10.0.0.2:53")) };
    assert_eq!(cable.hosts[0].udp_send(now, client, &many, &[0; 64]), Ok(()));
    let refused = cable.hosts[0].udp_send(now, client, &many, &[0; 65]);
    assert!(matches!(refused, Err(Error::InvalidInput(_))));
}

#[test]
fn joined_datagrams_are_read_as_far_as_there_is_room() {
    let mut cable = Cable::two();
    let server = bind(&mut cable, 1, "0.0.0.0:53");
    let client = bind(&mut cable, 0, "0.0.0.0:0");
    change(&mut cable.hosts[1], server, |options| options.joined = true);
    for len in [100, 100, 100, 40, 100, 0, 100] {
        send(&mut cable, 0, client, "10.0.0.2:53", &bytes(len)).unwrap();
    }
    cable.settle();
    let mut out = [0; 250];
    let mut read = || {
        let received = cable.hosts[1].udp_receive(server, &mut out).unwrap();
        (received.len, received.segment)
    };
    assert_eq!((read(), read()), ((200, 100), (140, 100)));
    assert_eq!((read(), read(), read()), ((100, 100), (0, 0), (100, 100)));
}

/// A device that cuts datagrams and completes checksums, as the frames it is handed say.
#[test]
fn the_device_is_handed_many_datagrams_in_one_frame() {
    let device =
        Capabilities { checksum: true, datagrams: 65_535, ..Capabilities::plain(Medium::Ip, 1500) };
    let config = |number: u8| {
        let address = std::format!("10.0.0.{number}/24").parse().unwrap();
        Config::new(device, address, [number; 32])
    };
    let [mut one, mut two] = [1, 2].map(|number| Host::new(config(number)).unwrap());
    let now = Instant::from_millis(1);
    let from = one.udp_bind(at("0.0.0.0:9"), one.default_udp_options()).unwrap();
    let to = two.udp_bind(at("0.0.0.0:9"), two.default_udp_options()).unwrap();
    let sent = bytes(60_000);
    let transmit = Transmit { segment: Some(1000), ..Transmit::to(at("10.0.0.2:9")) };
    one.udp_send(now, from, &transmit, &sent).unwrap();
    let mut outbox = Outbox::new(8);
    one.emit(now, &mut outbox);
    assert_eq!(outbox.len(), 1);
    let frame = outbox.front().unwrap();
    let told = frame.segmentation.unwrap();
    assert_eq!((told.size, told.header_len, told.datagrams), (1000, 28, true));
    let mut whole = Vec::new();
    frame.complete_to(&mut whole);
    let arrived = RxFrame { segment_size: told.size, ..RxFrame::plain(&whole) };
    two.on_frame(now, arrived);
    let mut out = [0; 2000];
    for piece in sent.chunks(1000) {
        let received = two.udp_receive(to, &mut out).unwrap();
        assert_eq!((received.len, &out[..received.len]), (1000, piece));
    }
    assert_eq!(two.udp_receive(to, &mut out), Err(Error::WouldBlock));
}

#[test]
fn broadcasts_are_heard_and_sent_only_if_allowed() {
    let mut cable = Cable::two();
    let server = bind(&mut cable, 1, "0.0.0.0:67");
    let client = bind(&mut cable, 0, "0.0.0.0:68");
    for to in ["255.255.255.255:67", "10.0.0.255:67"] {
        assert_eq!(send(&mut cable, 0, client, to, b"x"), Err(Error::PermissionDenied));
        change(&mut cable.hosts[0], client, |options| options.broadcast = true);
        send(&mut cable, 0, client, to, b"x").unwrap();
        change(&mut cable.hosts[0], client, |options| options.broadcast = false);
        cable.settle();
        let received = receive(&mut cable, 1, server).unwrap().1;
        assert_eq!((received.from, received.to), (at("10.0.0.1:68"), at(to).ip()));
    }
}

#[test]
fn a_host_sends_to_itself() {
    let mut cable = Cable::two();
    let server = bind(&mut cable, 0, "[::]:53");
    let client = bind(&mut cable, 0, "[::]:0");
    for to in ["10.0.0.1:53", "[fd00::1]:53"] {
        for len in [0, 1, 1472, 1473, IPV4_PAYLOAD_MAX] {
            send(&mut cable, 0, client, to, &bytes(len)).unwrap();
            cable.settle();
            assert_eq!(receive(&mut cable, 0, server).unwrap().0, bytes(len));
        }
    }
    assert_eq!(cable.hosts[0].counters().fragments_out, 0, "nothing is cut");
}

#[test]
fn a_socket_that_is_closed_sends_what_it_had() {
    let mut cable = Cable::two();
    let server = bind(&mut cable, 1, "0.0.0.0:53");
    let client = bind(&mut cable, 0, "0.0.0.0:1234");
    send(&mut cable, 0, client, "10.0.0.2:53", b"last words").unwrap();
    cable.hosts[0].udp_close(client);
    let again = bind(&mut cable, 0, "0.0.0.0:1234");
    assert_ne!(again, client);
    let now = cable.now;
    let dead = cable.hosts[0].udp_send(now, client, &Transmit::to(at("10.0.0.2:53")), b"");
    assert!(matches!(dead, Err(Error::InvalidInput(_))));
    cable.pass(Duration::from_millis(10));
    assert_eq!(receive(&mut cable, 1, server).unwrap().0, b"last words");
    assert_eq!(cable.hosts[0].udp_sockets().count(), 1);
    assert_eq!(cable.hosts[0].pages_in_use(), 0);
}

#[test]
fn sockets_are_limited_and_so_is_what_all_of_them_hold() {
    let mut config = host(&["10.0.0.2/24"], 2);
    config.limits.udp_sockets = 3;
    config.limits.pages = 64;
    let mut cable = Cable::new(Vec::from([host(&["10.0.0.1/24"], 1), config]));
    let ids: Vec<UdpId> =
        (1..=3).map(|port| bind(&mut cable, 1, &std::format!("0.0.0.0:{port}"))).collect();
    let options = cable.hosts[1].default_udp_options();
    assert_eq!(cable.hosts[1].udp_bind(at("0.0.0.0:4"), options), Err(Error::Limit("UDP sockets")));
    let client = bind(&mut cable, 0, "0.0.0.0:0");
    // A quarter of 64 pages: 16 datagrams of a page each.
    for number in 0..20 {
        let to = std::format!("10.0.0.2:{}", number % 3 + 1);
        send(&mut cable, 0, client, &to, &bytes(4096)).unwrap();
        cable.settle();
    }
    assert_eq!(
        (cable.hosts[1].pages_in_use(), cable.hosts[1].counters().datagrams_without_page),
        (16, 4)
    );
    ids.into_iter().for_each(|id| cable.hosts[1].udp_close(id));
    assert_eq!(cable.hosts[1].pages_in_use(), 0);
}

#[test]
fn picked_ports_tell_nothing_of_each_other() {
    let mut hosts = [1, 2].map(|number| Host::new(host(&["10.0.0.1/24"], number)).unwrap());
    let mut pick = |which: usize| {
        let host = &mut hosts[which];
        let id = host.udp_bind(at("0.0.0.0:0"), host.default_udp_options()).unwrap();
        host.udp_local_address(id).unwrap().port()
    };
    let ports: Vec<u16> = (0..200).map(|number| pick(number % 2)).collect();
    assert!(ports.iter().all(|port| *port >= 1024));
    let near = ports.windows(3).filter(|w| w[0].abs_diff(w[2]) < 100).count();
    assert!(near < 5, "{near}");
    assert_ne!(ports[0], ports[1], "another secret");
}

#[test]
fn the_longest_datagram_is_sent_and_one_longer_is_not() {
    let mut cable = Cable::two();
    let client = bind(&mut cable, 0, "[::]:0");
    for (to, most) in [("10.0.0.2:9", IPV4_PAYLOAD_MAX), ("[fd00::2]:9", IPV6_PAYLOAD_MAX)] {
        assert_eq!(send(&mut cable, 0, client, to, &bytes(most)), Ok(()));
        cable.settle();
        let refused = send(&mut cable, 0, client, to, &bytes(most + 1));
        assert_eq!(refused, Err(Error::MessageTooLong));
    }
}
