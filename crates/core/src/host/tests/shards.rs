//! Several shards of one host on a cable: frames come to the right shard or to a wrong one, and the
//! host is one to its neighbours.

use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

use super::link::{Cable, host, icmp_frame};
use crate::config::Member;
use crate::counters::Counters;
use crate::error::ConnectError;
use crate::event::{ConnectionId, ListenerId};
use crate::flow::{Steering, Tuple};
use crate::ip::conflict::Claimed;
use crate::tcp::State;
use crate::time::Duration;
use crate::wire::icmpv4::{Echo, Message};
use crate::wire::{arp, ends, ethernet};

pub(super) const SHARDS: u16 = 4;
/// The host on the other end of the cable.
pub(super) const PEER: usize = SHARDS as usize;
pub(super) const SECOND: Duration = Duration::from_secs(1);

/// The owner of what a frame carries, as a good device finds it.
fn by_owner(bytes: &[u8], shards: u16) -> u16 {
    let steering = Steering::new(&[1; 32], shards);
    ends::of_packet(&bytes[14..]).map_or(0, |tuple| steering.owner(&tuple))
}

/// Always another shard than the owner.
fn wrong(bytes: &[u8], shards: u16) -> u16 {
    (by_owner(bytes, shards) + 1) % shards
}

/// Four shards of one host at 10.0.0.1 and fd00::1, and a peer at 10.0.0.2 and fd00::2.
fn cable(steer: fn(&[u8], u16) -> u16) -> Cable {
    let ours = host(&["10.0.0.1/24", "fd00::1/64"], 1);
    let shards = (0..SHARDS).map(|index| ours.member(Member { index, of: SHARDS }));
    let peer = host(&["10.0.0.2/24", "fd00::2/64"], 2);
    let mut cable = Cable::new(shards.chain([peer]).collect());
    cable.steer = |bytes, of| if of == 1 { 0 } else { by_owner(bytes, of) };
    cable.pass(SECOND * 2);
    cable.steer = steer;
    cable
}

fn shards(cable: &Cable) -> &[crate::Host] {
    &cable.hosts[..PEER]
}

fn sum(cable: &Cable, count: fn(&Counters) -> u64) -> u64 {
    shards(cable).iter().map(|host| count(host.counters())).sum()
}

/// Opens so many connections from one host to an address.
fn connect(cable: &mut Cable, from: usize, to: &str, number: usize) -> Vec<ConnectionId> {
    let (now, to): (_, SocketAddr) = (cable.now, to.parse().unwrap());
    let any = crate::host::any_local(&to);
    (0..number).map(|_| cable.hosts[from].connect(now, any, to).unwrap()).collect()
}

/// A steering for a peer alone leaves its frames to it.
fn to_one_too(steer: fn(&[u8], u16) -> u16, bytes: &[u8], of: u16) -> u16 {
    if of == 1 { 0 } else { steer(bytes, of) }
}

pub(super) fn right_way(bytes: &[u8], of: u16) -> u16 {
    to_one_too(by_owner, bytes, of)
}

fn wrong_way(bytes: &[u8], of: u16) -> u16 {
    to_one_too(wrong, bytes, of)
}

#[test]
fn a_client_reaches_every_shard_at_one_address() {
    for (steer, is_right) in [(right_way as fn(&[u8], u16) -> u16, true), (wrong_way, false)] {
        let mut cable = cable(steer);
        let at = "[::]:80".parse().unwrap();
        let hosts = cable.hosts[..PEER].iter_mut();
        let listeners: Vec<ListenerId> = hosts.map(|host| host.listen(at, 64).unwrap()).collect();
        let mut ids = Vec::new();
        for to in ["10.0.0.1:80", "[fd00::1]:80"] {
            ids.extend(connect(&mut cable, PEER, to, 100));
        }
        cable.pass(SECOND);
        assert!(ids.iter().all(|id| cable.hosts[PEER].state(*id) == State::Established));
        let each: Vec<usize> = shards(&cable).iter().map(crate::Host::connections).collect();
        assert!(each.iter().all(|n| (25..=75).contains(n)), "{each:?}");
        assert_eq!(each.iter().sum::<usize>(), 200);
        let handed = sum(&cable, |c| c.handed_over);
        assert_eq!(handed, sum(&cable, |c| c.taken_over));
        // Each connection sends a SYN and an ACK at least.
        assert!(if is_right { handed == 0 } else { handed >= 400 }, "{handed}");
        assert_eq!(sum(&cable, |c| c.resets_sent) + sum(&cable, |c| c.messages_lost), 0);
        echo(&mut cable, &listeners, &ids);
        assert_eq!(sum(&cable, |c| c.resets_sent), 0);
    }
}

/// What the peer writes comes to the shard that has accepted the connection, and back.
fn echo(cable: &mut Cable, listeners: &[ListenerId], ids: &[ConnectionId]) {
    let now = cable.now;
    for (index, id) in ids.iter().enumerate() {
        cable.hosts[PEER].write(now, *id, &(index as u32).to_be_bytes()).unwrap();
    }
    cable.pass(SECOND);
    let now = cable.now;
    for (host, listener) in cable.hosts.iter_mut().zip(listeners) {
        while let Ok(id) = host.accept(now, *listener) {
            let mut read = [0; 4];
            assert_eq!(host.read(now, id, &mut read), Ok(4));
            host.write(now, id, &read).unwrap();
        }
    }
    cable.pass(SECOND);
    for (index, id) in ids.iter().enumerate() {
        let mut read = [0; 4];
        assert_eq!(cable.hosts[PEER].read(cable.now, *id, &mut read), Ok(4));
        assert_eq!(u32::from_be_bytes(read), index as u32);
    }
}

#[test]
fn the_host_has_one_voice_on_the_link() {
    let mut cable = cable(|bytes, of| if of == 1 { 0 } else { u16::from(bytes[5]) % of });
    let request = arp::Packet {
        operation: arp::Operation::Request,
        sender_mac: [2, 0, 0, 0, 0, 2],
        sender: "10.0.0.2".parse().unwrap(),
        target_mac: [0; 6],
        target: "10.0.0.1".parse().unwrap(),
    };
    for shard in 0..PEER {
        let mut bytes = Vec::new();
        let (destination, source) = (ethernet::BROADCAST, request.sender_mac);
        ethernet::Header { destination, source, ethertype: 0x0806 }.emit(&mut bytes);
        request.emit(&mut bytes);
        let (now, before) = (cable.now, cable.seen.len());
        cable.hosts[shard].on_frame(now, crate::frame::RxFrame::plain(&bytes));
        cable.settle();
        cable.settle();
        let answers = cable.seen[before..].iter().filter(|bytes| bytes[12..14] == [8, 6]).count();
        assert_eq!(answers, 1, "asked at shard {shard}");
        let echo = icmp_frame(&Message::EchoRequest(Echo { id: 1, seq: 2, data: &[7; 10] }));
        cable.hosts[shard].on_frame(now, crate::frame::RxFrame::plain(&echo));
        cable.settle();
    }
    assert_eq!(cable.hosts[0].counters().echo_replies, 4);
    assert_eq!(sum(&cable, |c| c.echo_replies), 4);
}

#[test]
fn a_neighbour_is_asked_for_once_for_all_shards() {
    let mut cable = cable(right_way);
    cable.hosts[PEER].listen("[::]:80".parse().unwrap(), 64).unwrap();
    let mut ids = Vec::new();
    for shard in 0..PEER {
        for to in ["10.0.0.2:80", "[fd00::2]:80"] {
            ids.extend(connect(&mut cable, shard, to, 1).into_iter().map(|id| (shard, id)));
        }
    }
    let before = cable.seen.len();
    cable.pass(SECOND / 2);
    assert!(ids.iter().all(|(shard, id)| cable.hosts[*shard].state(*id) == State::Established));
    let ours = |bytes: &&Vec<u8>| bytes[6..12] == [2, 0, 0, 0, 0, 1];
    let requests = cable.seen[before..].iter().filter(ours).filter(|b| b[12..14] == [8, 6]).count();
    assert_eq!(requests, 1);
    // It moves to another hardware address, and says so: every shard follows.
    let moved = [2, 0, 0, 0, 0, 9];
    let mut config = host(&["10.0.0.2/24"], 2);
    config.hardware = moved;
    config.address_announce = true;
    cable.hosts[PEER] = crate::Host::new(config).unwrap();
    cable.hosts[PEER].listen("[::]:80".parse().unwrap(), 64).unwrap();
    cable.pass(SECOND);
    let again: Vec<(usize, ConnectionId)> = (0..PEER)
        .flat_map(|shard| {
            connect(&mut cable, shard, "10.0.0.2:80", 1).into_iter().map(move |id| (shard, id))
        })
        .collect();
    cable.pass(SECOND);
    assert!(again.iter().all(|(shard, id)| cable.hosts[*shard].state(*id) == State::Established));
}

#[test]
fn a_neighbour_that_is_silent_fails_the_attempt_of_a_replica() {
    let mut cable = cable(right_way);
    let id = connect(&mut cable, 2, "10.0.0.9:80", 1)[0];
    cable.pass(SECOND * 2);
    assert_eq!(cable.hosts[2].state(id), State::SynSent);
    cable.pass(SECOND * 2);
    assert_eq!(cable.hosts[2].take_error(id), Some(crate::Error::HostUnreachable));
}

#[test]
fn what_a_shard_opens_is_answered_to_itself() {
    let mut cable = cable(right_way);
    cable.hosts[PEER].listen("[::]:80".parse().unwrap(), 512).unwrap();
    for shard in 0..PEER {
        for to in ["10.0.0.2:80", "[fd00::2]:80"] {
            let ids = connect(&mut cable, shard, to, 16);
            cable.pass(SECOND);
            let host = &cable.hosts[shard];
            assert!(ids.iter().all(|id| host.state(*id) == State::Established), "{shard} {to}");
        }
    }
    assert_eq!(sum(&cable, |c| c.handed_over), 0);
    // A port that belongs to another shard cannot be had.
    let (now, remote) = (cable.now, "10.0.0.2:80".parse().unwrap());
    let local = |port: u16| SocketAddr::new(IpAddr::from([10, 0, 0, 1]), port);
    let steering = Steering::new(&[1; 32], SHARDS);
    let owner = |port: u16| {
        let tuple = Tuple::new((local(port).ip(), port), ([10, 0, 0, 2].into(), 80));
        usize::from(steering.owner(&tuple))
    };
    let port = (50_000..60_000).find(|port| owner(*port) == 3).unwrap();
    let refused = cable.hosts[1].connect(now, local(port), remote).unwrap_err();
    assert_eq!(refused, ConnectError::AddressNotAvailable);
    assert!(cable.hosts[3].connect(now, local(port), remote).is_ok());
}

#[test]
fn shards_share_all_ports_without_overlap() {
    let mut ours = host(&["10.0.0.1/24"], 1);
    ours.ephemeral_ports = (10_000, 10_399);
    let shards = (0..SHARDS).map(|index| ours.member(Member { index, of: SHARDS }));
    let mut cable = Cable::new(shards.chain([host(&["10.0.0.2/24"], 2)]).collect());
    let (now, to): (_, SocketAddr) = (cable.now, "10.0.0.2:80".parse().unwrap());
    let mut ports = Vec::new();
    for host in &mut cable.hosts[..PEER] {
        while let Ok(id) = host.connect(now, "0.0.0.0:0".parse().unwrap(), to) {
            ports.push(host.local_address(id).unwrap().port());
        }
    }
    ports.sort_unstable();
    assert_eq!(ports, (10_000..10_400).collect::<Vec<u16>>());
}

#[test]
fn replicas_know_an_address_once_the_first_has_claimed_it() {
    let mut ours = host(&["10.0.0.1/24"], 1);
    ours.address_probe = SECOND;
    let shards = (0..SHARDS).map(|index| ours.member(Member { index, of: SHARDS }));
    let mut cable = Cable::new(shards.chain([host(&["10.0.0.2/24"], 2)]).collect());
    cable.steer = right_way;
    let claimed = |cable: &Cable| shards_claimed(cable);
    cable.pass(SECOND / 10);
    assert_eq!(claimed(&cable), [Claimed::Pending; PEER]);
    cable.pass(SECOND * 2);
    assert_eq!(claimed(&cable), [Claimed::All; PEER]);
    let probes = cable.seen.iter().filter(|b| b[12..14] == [8, 6] && b[28..32] == [0; 4]).count();
    assert_eq!(probes, 3, "asked by one shard alone");
}

fn shards_claimed(cable: &Cable) -> [Claimed; PEER] {
    core::array::from_fn(|shard| cable.hosts[shard].claimed())
}

#[test]
fn errors_and_fragments_find_the_owner() {
    let mut cable = cable(right_way);
    let listener = cable.hosts[PEER].listen("0.0.0.0:80".parse().unwrap(), 4).unwrap();
    let id = connect(&mut cable, 2, "10.0.0.2:80", 1)[0];
    cable.pass(SECOND);
    let now = cable.now;
    let theirs = cable.hosts[PEER].accept(now, listener).unwrap();
    cable.muted = Some(PEER);
    cable.hosts[2].write(now, id, &[7; 4000]).unwrap();
    cable.settle();
    let packet = cable.seen.iter().rev().find(|bytes| bytes.len() == 1514).unwrap()[14..].to_vec();
    // The error comes to the first shard, whose connection it is not.
    cable.icmp(&Message::Unreachable { code: 4, next_hop_mtu: 1000, quoted: &packet });
    assert_eq!(cable.hosts[2].counters().path_mtu_lowered, 1);
    assert_eq!(cable.hosts[0].counters().handed_over, 1);
    // Every shard learns how long a packet to that peer may be.
    let peer: IpAddr = [10, 0, 0, 2].into();
    assert_eq!([0, 1, 2, 3].map(|shard| cable.hosts[shard].ip.path_mtu(peer)), [1000; 4]);
    cable.muted = None;
    cable.pass(SECOND * 2);
    // A segment of the peer comes in two fragments: the first shard puts them together.
    cable.muted = Some(PEER);
    cable.hosts[PEER].write(cable.now, theirs, &[9; 600]).unwrap();
    cable.settle();
    let theirs = |bytes: &&Vec<u8>| bytes[6..12] == [2, 0, 0, 0, 0, 2] && bytes.len() > 600;
    let frame = cable.seen.iter().rev().find(theirs).unwrap().clone();
    for fragment in cut(&frame, 320) {
        cable.hosts[0].on_frame(cable.now, crate::frame::RxFrame::plain(&fragment));
    }
    cable.settle();
    let mut read = [0; 1000];
    assert_eq!(cable.hosts[2].read(cable.now, id, &mut read), Ok(600));
    assert_eq!(cable.hosts[0].counters().reassembled, 1);
}

/// A frame cut in two, the first with so many bytes of payload.
fn cut(frame: &[u8], at: usize) -> [Vec<u8>; 2] {
    let (head, payload) = frame.split_at(14 + 20);
    [(0, &payload[..at], 0x2000), (at, &payload[at..], 0)].map(|(offset, part, more)| {
        let mut bytes = [head, part].concat();
        let packet = &mut bytes[14..];
        let len = 20 + part.len() as u16;
        packet[2..4].copy_from_slice(&len.to_be_bytes());
        packet[6..8].copy_from_slice(&((offset / 8) as u16 | more).to_be_bytes());
        packet[10..12].copy_from_slice(&[0, 0]);
        let value = crate::wire::checksum::sum(&packet[..20]).checksum();
        packet[10..12].copy_from_slice(&value.to_be_bytes());
        bytes
    })
}

#[test]
fn routes_that_were_lost_are_published_again() {
    let mut cable = cable(right_way);
    cable.hosts[0].add_address("10.0.0.7/24".parse().unwrap());
    let mut lost = 0;
    while let Some((to, message)) = cable.hosts[0].message() {
        cable.hosts[0].on_message_lost(to, &message);
        lost += 1;
    }
    assert_eq!((lost, cable.hosts[0].counters().messages_lost), (3, 3));
    let seventh: IpAddr = [10, 0, 0, 7].into();
    assert!(shards(&cable)[1..].iter().all(|host| !host.addresses().contains(&seventh)));
    cable.settle();
    cable.settle();
    assert!(shards(&cable).iter().all(|host| host.addresses().contains(&seventh)));
}

#[test]
fn a_host_reaches_itself_across_shards() {
    let mut cable = cable(right_way);
    let at = "0.0.0.0:80".parse().unwrap();
    cable.hosts[..PEER].iter_mut().for_each(|host| {
        host.listen(at, 64).unwrap();
    });
    let ids = connect(&mut cable, 1, "10.0.0.1:80", 20);
    cable.pass(SECOND);
    assert!(ids.iter().all(|id| cable.hosts[1].state(*id) == State::Established));
    let others = shards(&cable).iter().map(|host| host.counters().passive_opens);
    assert!(
        others.clone().filter(|opens| *opens > 0).count() > 1,
        "{:?}",
        others.collect::<Vec<_>>()
    );
}

#[test]
fn a_flood_of_what_is_rare_stays_with_the_shard_it_comes_to() {
    let mut cable = cable(right_way);
    connect(&mut cable, 2, "10.0.0.2:80", 1);
    cable.settle();
    let ours = |bytes: &&Vec<u8>| bytes[6..14] == [2, 0, 0, 0, 0, 1, 8, 0];
    let syn = cable.seen.iter().rev().find(ours).unwrap()[14..].to_vec();
    let error = icmp_frame(&Message::Unreachable { code: 1, next_hop_mtu: 0, quoted: &syn });
    let echo = icmp_frame(&Message::EchoRequest(Echo { id: 1, seq: 2, data: &[7; 10] }));
    // Errors about the connection of the third come to the second, and echoes.
    for _ in 0..20_000 {
        cable.hosts[1].on_frame(cable.now, crate::frame::RxFrame::plain(&error));
        cable.hosts[1].on_frame(cable.now, crate::frame::RxFrame::plain(&echo));
        cable.settle();
    }
    let counters = cable.hosts[1].counters();
    assert_eq!((counters.handed_over, counters.messages_lost), (1000, 39_000));
    // The first answers echoes, and finds the owners of what is reported.
    assert_eq!([0, 2].map(|shard| cable.hosts[shard].counters().taken_over), [1000, 500]);
    // Later some may pass again.
    cable.pass(SECOND / 100);
    cable.hosts[1].on_frame(cable.now, crate::frame::RxFrame::plain(&error));
    assert_eq!(cable.hosts[1].counters().handed_over, 1001);
}
