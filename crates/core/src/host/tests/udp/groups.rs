//! Sockets that listen to groups: what they hear, and what routers and switches are told.

use super::*;
use crate::buffer::PAGE_BYTES;
use crate::config::Member;
use crate::udp::GROUPS_MAX;
use crate::wire::ip::{Packet, protocol};
use core::net::IpAddr;

const GROUPS: [(&str, &str); 2] = [("0.0.0.0:5353", "224.0.0.251"), ("[::]:5353", "ff02::fb")];

fn group_at(group: &str) -> std::string::String {
    let at = SocketAddr::new(group.parse().unwrap(), 5353);
    std::format!("{at}")
}

fn join(cable: &mut Cable, host: usize, id: UdpId, group: &str) {
    cable.hosts[host].udp_join(id, group.parse().unwrap()).unwrap();
}

/// The reports of a host since, each by its message and with the hardware address it went to.
fn reports(cable: &Cable, host: u8, since: usize) -> Vec<(Vec<u8>, [u8; 6])> {
    let of_host = cable.seen[since..].iter().filter(|frame| frame[6..12] == [2, 0, 0, 0, 0, host]);
    let messages = of_host.filter_map(|frame| {
        let packet = Packet::parse(&frame[14..]).ok()?;
        let is_igmp = packet.protocol == protocol::IGMP;
        let is_mld = packet.protocol == protocol::ICMPV6
            && matches!(packet.payload[0], 131 | 132 | 143)
            && !packet.payload.windows(2).any(|bytes| bytes == [1, 0xff]);
        (is_igmp || is_mld).then(|| (packet.payload.to_vec(), *frame.first_chunk().unwrap()))
    });
    messages.collect()
}

#[test]
fn who_has_joined_hears_and_who_has_not_does_not() {
    for (any, group) in GROUPS {
        let mut cable = Cable::two();
        let member = bind(&mut cable, 1, any);
        let sender = bind(&mut cable, 0, any);
        let to = group_at(group);
        let say = |cable: &mut Cable, text: &[u8]| {
            send(cable, 0, sender, &to, text).unwrap();
            cable.settle();
        };
        say(&mut cable, b"before");
        assert_eq!(cable.hosts[1].counters().datagrams_in, 0, "not for us");
        assert_eq!(receive(&mut cable, 1, member), Err(Error::WouldBlock));
        join(&mut cable, 1, member, group);
        say(&mut cable, b"joined");
        let (bytes, received) = receive(&mut cable, 1, member).unwrap();
        assert_eq!((&bytes[..], received.to), (&b"joined"[..], group.parse::<IpAddr>().unwrap()));
        assert_eq!(received.from.port(), 5353);
        let sent = cable.seen.last().unwrap();
        assert!(sent[..3] == [1, 0, 0x5e] || sent[..2] == [0x33, 0x33]);
        // Another socket of that host, which has not joined, does not hear it.
        let other = bind(&mut cable, 1, &any.replace("5353", "5354"));
        send(&mut cable, 0, sender, &to.replace("5353", "5354"), b"x").unwrap();
        cable.settle();
        assert_eq!(receive(&mut cable, 1, other), Err(Error::WouldBlock));
        assert_eq!(cable.hosts[1].counters().datagrams_unheard, 1);
        assert_eq!(cable.hosts[1].counters().ports_unreachable, 0);
        cable.hosts[1].udp_leave(member, group.parse().unwrap()).unwrap();
        say(&mut cable, b"left");
        assert_eq!(receive(&mut cable, 1, member), Err(Error::WouldBlock));
    }
}

#[test]
fn datagrams_to_groups_are_cut_as_any_other() {
    for (any, group) in GROUPS {
        let mut cable = Cable::two();
        let member = bind(&mut cable, 1, any);
        let sender = bind(&mut cable, 0, any);
        join(&mut cable, 1, member, group);
        for len in [0, 1472, 9000] {
            send(&mut cable, 0, sender, &group_at(group), &bytes(len)).unwrap();
            cable.settle();
            assert_eq!(receive(&mut cable, 1, member).unwrap().0, bytes(len), "{group} {len}");
        }
    }
}

#[test]
fn a_socket_of_the_group_s_address_hears_nothing_else() {
    for (_, group) in GROUPS {
        let mut cable = Cable::two();
        let member = bind(&mut cable, 1, &group_at(group));
        join(&mut cable, 1, member, group);
        let any = if group.contains(':') { "[::]:0" } else { "0.0.0.0:0" };
        let sender = bind(&mut cable, 0, any);
        send(&mut cable, 0, sender, &group_at(group), b"group").unwrap();
        let ours = if group.contains(':') { "[fd00::2]:5353" } else { "10.0.0.2:5353" };
        send(&mut cable, 0, sender, ours, b"host").unwrap();
        cable.settle();
        assert_eq!(receive(&mut cable, 1, member).unwrap().0, b"group");
        assert_eq!(receive(&mut cable, 1, member), Err(Error::WouldBlock));
        // It answers from an address of the host's.
        let port = cable.hosts[0].udp_local_address(sender).unwrap().port();
        let back = if group.contains(':') { "[fd00::1]" } else { "10.0.0.1" };
        send(&mut cable, 1, member, &std::format!("{back}:{port}"), b"answer").unwrap();
        cable.settle();
        assert!(!receive(&mut cable, 0, sender).unwrap().1.from.ip().is_multicast());
    }
}

#[test]
fn what_is_sent_to_a_group_is_heard_here_unless_that_is_off() {
    for (any, group) in GROUPS {
        let mut cable = Cable::two();
        let id = bind(&mut cable, 0, any);
        join(&mut cable, 0, id, group);
        send(&mut cable, 0, id, &group_at(group), b"mine").unwrap();
        let (heard, received) = receive(&mut cable, 0, id).unwrap();
        assert_eq!((&heard[..], received.from.port()), (&b"mine"[..], 5353));
        cable.settle();
        change(&mut cable.hosts[0], id, |options| options.multicast_hop_limit = 0);
        let before = cable.seen.len();
        send(&mut cable, 0, id, &group_at(group), b"here alone").unwrap();
        cable.settle();
        assert_eq!(receive(&mut cable, 0, id).unwrap().0, b"here alone");
        let is_datagram = |frame: &Vec<u8>| {
            Packet::parse(&frame[14..]).is_ok_and(|packet| packet.protocol == protocol::UDP)
        };
        assert!(!cable.seen[before..].iter().any(is_datagram), "a hop limit of 0");
        change(&mut cable.hosts[0], id, |options| {
            (options.multicast_loop_v4, options.multicast_loop_v6) = (false, false);
        });
        send(&mut cable, 0, id, &group_at(group), b"others").unwrap();
        assert_eq!(receive(&mut cable, 0, id), Err(Error::WouldBlock));
        // What comes back from the link is our own, and is dropped.
        assert_eq!(cable.hosts[0].pages_in_use() * PAGE_BYTES, 0);
    }
}

#[test]
fn routers_are_told_of_joining_and_leaving_and_when_they_ask() {
    for (any, group) in GROUPS {
        let mut cable = Cable::two();
        cable.pass(Duration::from_secs(3));
        let id = bind(&mut cable, 0, any);
        let is_ipv4 = !any.starts_with('[');
        let (kind, routers): (u8, [u8; 6]) = match is_ipv4 {
            true => (0x22, [1, 0, 0x5e, 0, 0, 22]),
            false => (143, [0x33, 0x33, 0, 0, 0, 0x16]),
        };
        // The type of a record, and the group behind it.
        let told = |cable: &mut Cable, record: u8, times: usize| {
            let since = cable.seen.len();
            cable.pass(Duration::from_secs(3));
            let sent = reports(cable, 1, since);
            assert_eq!(sent.len(), times, "{group} {record} {sent:?}");
            for (message, mac) in sent {
                assert_eq!((message[0], mac, message[8]), (kind, routers, record));
                assert_eq!(message[7], 1, "records");
            }
        };
        join(&mut cable, 0, id, group);
        told(&mut cable, 4, 2);
        query(&mut cable, is_ipv4);
        told(&mut cable, 2, 1);
        cable.hosts[0].udp_close(id);
        told(&mut cable, 3, 2);
        query(&mut cable, is_ipv4);
        told(&mut cable, 2, 0);
    }
}

/// A querier asks host 0 for all groups, to be answered within a second.
fn query(cable: &mut Cable, is_ipv4: bool) {
    let mut frame = std::vec![1, 0, 0x5e, 0, 0, 1, 2, 0, 0, 0, 0, 9];
    if is_ipv4 {
        frame.extend([8, 0, 0x46, 0xc0, 0, 36, 0, 0, 0x40, 0, 1, 2, 0, 0]);
        // A switch that has no address.
        frame.extend([0, 0, 0, 0, 224, 0, 0, 1, 0x94, 4, 0, 0]);
        crate::wire::checksum::fill(&mut frame[14..], 0, 10, crate::wire::checksum::Sum::ZERO);
        let message = frame.len();
        frame.extend([0x11, 10, 0, 0, 0, 0, 0, 0, 2, 125, 0, 0]);
        crate::wire::checksum::fill(&mut frame, message, 2, crate::wire::checksum::Sum::ZERO);
    } else {
        frame[..6].copy_from_slice(&[0x33, 0x33, 0, 0, 0, 1]);
        frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 36, 0, 1]);
        let (source, all): (core::net::Ipv6Addr, core::net::Ipv6Addr) =
            ("fe80::9".parse().unwrap(), "ff02::1".parse().unwrap());
        frame.extend(source.octets());
        frame.extend(all.octets());
        frame.extend([58, 0, 5, 2, 0, 0, 1, 0]);
        let message = frame.len();
        frame.extend([130, 0, 0, 0, 3, 0xe8, 0, 0]);
        frame.extend([0; 16]);
        frame.extend([2, 125, 0, 0]);
        let pseudo = crate::wire::checksum::pseudo_header(source.into(), all.into(), 58, 28);
        crate::wire::checksum::fill(&mut frame, message, 2, pseudo);
    }
    let now = cable.now;
    cable.hosts[0].on_frame(now, RxFrame::plain(&frame));
}

#[test]
fn strange_groups_and_too_many_are_refused() {
    let mut cable = Cable::two();
    let id = bind(&mut cable, 0, "0.0.0.0:5353");
    let host = &mut cable.hosts[0];
    for strange in ["10.0.0.1", "255.255.255.255", "ff02::fb"] {
        let refused = host.udp_join(id, strange.parse().unwrap());
        assert!(matches!(refused, Err(Error::InvalidInput(_))), "{strange}");
    }
    let group = |number: usize| IpAddr::from([239, 0, 0, number as u8]);
    assert_eq!(host.udp_leave(id, group(0)), Err(Error::AddressNotAvailable));
    for number in 0..GROUPS_MAX {
        host.udp_join(id, group(number)).unwrap();
        assert_eq!(host.udp_join(id, group(number)), Err(Error::AddressInUse));
    }
    assert!(matches!(host.udp_join(id, group(GROUPS_MAX)), Err(Error::Limit(_))));
    // As many sockets with as many groups as the host may have, and one group more.
    let ids: Vec<UdpId> = (0..13).map(|_| bind(&mut cable, 0, "0.0.0.0:0")).collect();
    let host = &mut cable.hosts[0];
    let mut joined = GROUPS_MAX;
    for (which, id) in ids.iter().enumerate() {
        for number in 0..GROUPS_MAX {
            let group = IpAddr::from([239, 1, which as u8, number as u8]);
            match host.udp_join(*id, group) {
                Ok(()) => joined += 1,
                Err(error) => assert_eq!(error, Error::Limit("groups")),
            }
        }
    }
    assert_eq!(joined, crate::ip::groups::GROUPS_MAX);
    assert!(matches!(host.udp_join(ids[12], group(0)), Ok(())), "one that the host has");
}

#[test]
fn the_first_shard_reports_for_all() {
    let ours = host(&["10.0.0.1/24", "fd00::1/64"], 1);
    let shards = (0..3).map(|index| ours.member(Member { index, of: 3 }));
    let mut cable = Cable::new(shards.collect());
    cable.pass(Duration::from_secs(3));
    let sockets: Vec<UdpId> = (0..3).map(|shard| bind(&mut cable, shard, "[::]:5353")).collect();
    let since = cable.seen.len();
    for group in ["224.0.0.251", "ff02::fb"] {
        (1..3).for_each(|shard| join(&mut cable, shard, sockets[shard], group));
    }
    cable.pass(Duration::from_secs(4));
    assert_eq!(reports(&cable, 1, since).len(), 4, "two of each version, of one host");
    cable.hosts[1].udp_close(sockets[1]);
    let since = cable.seen.len();
    cable.pass(Duration::from_secs(4));
    assert_eq!(reports(&cable, 1, since).len(), 0, "the other shard listens");
    cable.hosts[2].udp_close(sockets[2]);
    cable.pass(Duration::from_secs(4));
    let left = reports(&cable, 1, since);
    assert_eq!(left.len(), 4);
    assert!(left.iter().all(|(message, _)| message[8] == 3), "{left:?}");
}
