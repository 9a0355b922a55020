//! Limits move to the shard that needs them, and always add up to those of the host.

use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

use super::link::{Cable, host};
use super::shards::{PEER, SECOND, SHARDS, right_way};
use crate::buffer::PAGE_BYTES;
use crate::config::lease::Leased;
use crate::config::{Limits, Member};
use crate::event::{ConnectionId, ListenerId};
use crate::flow::{Steering, Tuple};
use crate::ip::shards::Content;

/// Four shards at 10.0.0.1 that listen, and a peer at 10.0.0.2.
fn cable(limit: impl Fn(&mut Limits)) -> Cable {
    let mut ours = host(&["10.0.0.1/24"], 1);
    limit(&mut ours.limits);
    let shards = (0..SHARDS).map(|index| ours.member(Member { index, of: SHARDS }));
    let mut cable = Cable::new(shards.chain([host(&["10.0.0.2/24"], 2)]).collect());
    cable.steer = right_way;
    for shard in &mut cable.hosts {
        shard.listen("0.0.0.0:80".parse().unwrap(), 1024).unwrap();
    }
    cable.pass(SECOND);
    cable
}

/// The peer opens so many connections of shard `index`, or of any, one each 10 ms.
fn open(cable: &mut Cable, index: Option<u16>, count: usize) -> Vec<ConnectionId> {
    let to: SocketAddr = "10.0.0.1:80".parse().unwrap();
    let peer: IpAddr = [10, 0, 0, 2].into();
    let steering = Steering::new(&[1; 32], SHARDS);
    let is_there = |port: &u16| {
        let tuple = Tuple::new((to.ip(), 80), (peer, *port));
        index.is_none_or(|index| steering.owner(&tuple) == index)
    };
    // Others each time: the last ones may be in TIME-WAIT.
    let first = 10_000 + (cable.now.as_nanos() / 1_000_000 % 40_000) as u16;
    let ports: Vec<u16> = (first..).filter(is_there).take(count).collect();
    let connect = |port| {
        let now = cable.now;
        let id = cable.hosts[PEER].connect(now, SocketAddr::new(peer, port), to).unwrap();
        cable.pass(SECOND / 100);
        id
    };
    ports.into_iter().map(connect).collect()
}

/// Checks that the limits of all shards add up to those of the host.
fn check_sums(cable: &Cable) {
    let sum = |which: fn(&Limits) -> u64| {
        let shards = &cable.hosts[..PEER];
        let now = shards.iter().map(|host| which(host.limits())).sum::<u64>();
        assert_eq!(now, shards.iter().map(|host| which(&host.config().limits)).sum::<u64>());
    };
    sum(|limits| limits.connections as u64);
    sum(|limits| limits.syn_cache as u64);
    sum(|limits| limits.time_wait as u64);
    sum(|limits| limits.pages as u64);
    sum(|limits| limits.receive_window_bytes);
}

fn connections(cable: &Cable) -> Vec<usize> {
    cable.hosts[..PEER].iter().map(crate::Host::connections).collect()
}

#[test]
fn a_busy_shard_uses_what_others_leave() {
    for (loses_grants, least) in [(false, 90), (true, 25)] {
        let mut cable = cable(|limits| limits.connections = 100);
        cable.loses_grants = loses_grants;
        open(&mut cable, Some(2), 97);
        cable.pass(SECOND * 20);
        let held = connections(&cable)[2];
        assert!(held >= least && (held == least || !loses_grants), "{held}");
        check_sums(&cable);
    }
}

/// Resets all connections; the peer forgets them.
fn forget(cable: &mut Cable) {
    cable.hosts[PEER] = crate::Host::new(host(&["10.0.0.2/24"], 2)).unwrap();
    let (now, listener) = (cable.now, ListenerId { index: 0, generation: 0 });
    for shard in &mut cable.hosts[..PEER] {
        while let Ok(id) = shard.accept(now, listener) {
            shard.abort(now, id);
        }
    }
    cable.pass(SECOND);
    assert_eq!(connections(cable), [0; PEER]);
}

#[test]
fn after_a_long_shortage_a_burst_is_served_at_once() {
    let mut cable = cable(|limits| limits.connections = 100);
    open(&mut cable, None, 200);
    // Nobody has anything left, and all ask seldom.
    cable.pass(SECOND * 20);
    assert_eq!(connections(&cable).iter().sum::<usize>(), 100);
    forget(&mut cable);
    let refused = |cable: &Cable| cable.hosts[0].counters().connections_over_limit;
    let before = refused(&cable);
    open(&mut cable, Some(0), 80);
    assert!(connections(&cable)[0] >= 79, "{:?}", connections(&cable));
    assert!(refused(&cable) - before <= 3, "{}", refused(&cable) - before);
    check_sums(&cable);
}

#[test]
fn records_of_time_wait_move_and_fill_the_limit_exactly() {
    let mut cable = cable(|limits| limits.time_wait = 40);
    for (index, least) in [(Some(1), 34), (None, 40)] {
        let theirs = open(&mut cable, index, 90);
        for shard in 0..PEER {
            let (now, listener) = (cable.now, ListenerId { index: 0, generation: 0 });
            while let Ok(id) = cable.hosts[shard].accept(now, listener) {
                cable.hosts[shard].close(now, id);
            }
        }
        cable.pass(SECOND / 10);
        for id in theirs {
            let now = cable.now;
            cable.hosts[PEER].close(now, id);
            cable.pass(SECOND / 100);
        }
        check_sums(&cable);
        let shards = &cable.hosts[..PEER];
        let held: Vec<usize> = shards.iter().map(crate::Host::time_wait_len).collect();
        let sum: usize = held.iter().sum();
        assert!((least..=40).contains(&sum), "{index:?}: {held:?}");
    }
}

#[test]
fn all_shards_at_once_reach_the_limit_and_no_more() {
    let mut cable = cable(|limits| limits.connections = 43);
    open(&mut cable, None, 90);
    cable.pass(SECOND * 30);
    let held = connections(&cable);
    assert_eq!(held.iter().sum::<usize>(), 43, "{held:?}");
    check_sums(&cable);
    for shard in &cable.hosts[..PEER] {
        assert_eq!(shard.connections(), shard.limits().connections);
    }
}

#[test]
fn pages_move_with_the_windows_that_they_take_in() {
    // What connections take as long as they live, as in a server, leaves less to senders.
    for by_connections in [0, PAGE_BYTES] {
        let pages = 256;
        let mut cable = cable(|limits| {
            limits.pages = pages;
            // So many that they are not what is short.
            limits.receive_window_bytes = (pages * 1000 * PAGE_BYTES) as u64;
        });
        cable.hosts[1].set_memory_by_connections(by_connections);
        fill(&mut cable);
        let shard = &cable.hosts[1];
        let used = shard.pages_in_use();
        assert!(used > 96 && used <= shard.limits().pages, "{by_connections}: {used}");
        assert!(shard.limits().pages > 128, "{by_connections}: {}", shard.limits().pages);
        for shard in &cable.hosts[..PEER] {
            let limits = shard.limits();
            assert_eq!(limits.receive_window_bytes, (limits.pages * 1000 * PAGE_BYTES) as u64);
        }
    }
}

/// Connections of the second shard fill their send buffers, of which nothing is acknowledged.
fn fill(cable: &mut Cable) {
    let (now, to): (_, SocketAddr) = (cable.now, "10.0.0.2:80".parse().unwrap());
    let any = crate::host::any_local(&to);
    let ids: Vec<_> = (0..20).map(|_| cable.hosts[1].connect(now, any, to).unwrap()).collect();
    cable.pass(SECOND);
    // The peer's ACKs are lost: what is written stays.
    cable.muted = Some(PEER);
    for _ in 0..50 {
        for id in &ids {
            let _ = cable.hosts[1].write(cable.now, *id, &[7; 20_000]);
        }
        cable.pass(SECOND / 50);
        check_sums(cable);
    }
}

#[test]
fn nothing_is_asked_for_where_nothing_is_short() {
    let mut cable = cable(|_| ());
    open(&mut cable, None, 40);
    cable.pass(SECOND * 5);
    assert_eq!(connections(&cable).iter().sum::<usize>(), 40);
    assert!(cable.hosts[..PEER].iter().all(|host| host.counters().limits_moved == 0));
}

#[test]
fn a_shard_gives_an_equal_part_of_what_it_has_more() {
    let mut cable = cable(|limits| limits.time_wait = 400);
    let amount = |cable: &mut Cable, left: usize| {
        cable.hosts[0].on_wanted(1, Leased::TimeWait, left);
        let message = cable.hosts[0].message();
        message.map(|(to, message)| match message.content {
            Content::Grant(grant) => {
                let now = cable.now;
                cable.hosts[usize::from(to)].on_granted(now, grant);
                (to, grant.amount)
            }
            other => panic!("{other:?}"),
        })
    };
    assert_eq!(amount(&mut cable, 20), Some((1, 20)), "(100 - 20) / 4");
    assert_eq!(amount(&mut cable, 78), Some((1, 1)), "a quarter of 2, and one at least");
    assert_eq!(amount(&mut cable, 78), None, "it has as good as the same");
    assert_eq!(amount(&mut cable, 500), None);
    let limits: Vec<usize> =
        cable.hosts[..PEER].iter().map(|host| host.limits().time_wait).collect();
    assert_eq!(limits, [79, 121, 100, 100]);
    assert_eq!(cable.hosts[0].counters().limits_moved, 2);
}
