//! Limits move to the shard that needs them, and always add up to those of the host.

use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

use super::link::{Cable, host};
use crate::buffer::PAGE_BYTES;
use crate::config::lease::Leased;
use crate::config::{Limits, Member};
use crate::flow::{Steering, Tuple};
use crate::ip::shards::Content;
use crate::time::Duration;
use crate::wire::ends;

const SHARDS: u16 = 4;
const PEER: usize = SHARDS as usize;
const SECOND: Duration = Duration::from_secs(1);

/// The owner of what a frame carries; a host that is alone has all.
fn owner(bytes: &[u8], of: u16) -> u16 {
    let steering = Steering::new(&[1; 32], of);
    ends::of_packet(&bytes[14..]).map_or(0, |tuple| steering.owner(&tuple))
}

/// Four shards at 10.0.0.1 that listen, and a peer at 10.0.0.2.
fn cable(limit: impl Fn(&mut Limits)) -> Cable {
    let mut ours = host(&["10.0.0.1/24"], 1);
    limit(&mut ours.limits);
    let shards = (0..SHARDS).map(|index| ours.member(Member { index, of: SHARDS }));
    let mut cable = Cable::new(shards.chain([host(&["10.0.0.2/24"], 2)]).collect());
    cable.steer = owner;
    for shard in &mut cable.hosts {
        shard.listen("0.0.0.0:80".parse().unwrap(), 1024).unwrap();
    }
    cable.pass(SECOND);
    cable
}

/// The peer opens so many connections of shard `index`, or of any, one each 10 ms.
fn open(cable: &mut Cable, index: Option<u16>, count: usize) {
    let to: SocketAddr = "10.0.0.1:80".parse().unwrap();
    let peer: IpAddr = [10, 0, 0, 2].into();
    let steering = Steering::new(&[1; 32], SHARDS);
    let is_there = |port: &u16| {
        let tuple = Tuple::new((to.ip(), 80), (peer, *port));
        index.is_none_or(|index| steering.owner(&tuple) == index)
    };
    let ports: Vec<u16> = (20_000..).filter(is_there).take(count).collect();
    for port in ports {
        let now = cable.now;
        cable.hosts[PEER].connect(now, SocketAddr::new(peer, port), to).unwrap();
        cable.pass(SECOND / 100);
    }
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
        // What it has no more goes to another that needs it.
        if !loses_grants {
            cable.hosts[PEER] = crate::Host::new(host(&["10.0.0.2/24"], 2)).unwrap();
            let now = cable.now;
            let listener = crate::event::ListenerId { index: 0, generation: 0 };
            while let Ok(id) = cable.hosts[2].accept(now, listener) {
                cable.hosts[2].abort(now, id);
            }
            cable.pass(SECOND);
            assert_eq!(connections(&cable), [0; PEER]);
            open(&mut cable, Some(0), 97);
            cable.pass(SECOND * 20);
            assert!(connections(&cable)[0] >= 90, "{:?}", connections(&cable));
            check_sums(&cable);
        }
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
    let pages = 256;
    let mut cable = cable(|limits| {
        limits.pages = pages;
        limits.receive_window_bytes = (pages * PAGE_BYTES / 2) as u64;
    });
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
        check_sums(&cable);
    }
    let shard = &cable.hosts[1];
    let used = shard.pages_in_use();
    assert!(used > pages / 2 && used <= shard.limits().pages, "{used}");
    for shard in &cable.hosts[..PEER] {
        let limits = shard.limits();
        assert!(limits.receive_window_bytes <= (limits.pages * PAGE_BYTES / 2) as u64);
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
                cable.hosts[usize::from(to)].on_granted(grant);
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
