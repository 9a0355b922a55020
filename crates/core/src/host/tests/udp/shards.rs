//! UDP sockets on a host of several shards: datagrams come to the right shard or to a wrong one.

use super::*;
use crate::config::Member;
use crate::flow::{Steering, Tuple};
use crate::host::tests::shards::{PEER, SHARDS, right_way};
use crate::wire::ends;

/// Always another shard than that of both ends.
fn wrong_way(bytes: &[u8], of: u16) -> u16 {
    if of == 1 {
        return 0;
    }
    let owner =
        ends::of_packet(&bytes[14..]).map(|tuple| Steering::new(&[1; 32], of).owner(&tuple));
    owner.map_or(0, |owner| (owner + 1) % of)
}

fn cable(steer: fn(&[u8], u16) -> u16) -> Cable {
    let ours = host(&["10.0.0.1/24", "fd00::1/64"], 1);
    let shards = (0..SHARDS).map(|index| ours.member(Member { index, of: SHARDS }));
    let peer = host(&["10.0.0.2/24", "fd00::2/64"], 2);
    let mut cable = Cable::new(shards.chain([peer]).collect());
    cable.steer = right_way;
    cable.pass(Duration::from_secs(2));
    cable.steer = steer;
    cable
}

#[test]
fn a_service_on_every_shard_hears_what_is_its_own() {
    for steer in [right_way as fn(&[u8], u16) -> u16, wrong_way] {
        let mut cable = cable(steer);
        let servers: Vec<UdpId> =
            (0..PEER).map(|shard| bind(&mut cable, shard, "[::]:53")).collect();
        let steering = Steering::new(&[1; 32], SHARDS);
        let mut heard = [0; PEER];
        for to in ["10.0.0.1:53", "[fd00::1]:53"] {
            for _ in 0..50 {
                let client = bind(&mut cable, PEER, "[::]:0");
                // One in fragments, which the first shard puts together.
                for len in [10, 3000] {
                    send(&mut cable, PEER, client, to, &bytes(len)).unwrap();
                    cable.settle();
                    let port = cable.hosts[PEER].udp_local_address(client).unwrap().port();
                    let peer = if to.starts_with('[') { "fd00::2" } else { "10.0.0.2" };
                    let local = (at(to).ip(), 53);
                    let ends = Tuple::new(local, (peer.parse().unwrap(), port));
                    let owner = usize::from(steering.owner(&ends));
                    let (read, _) = receive(&mut cable, owner, servers[owner]).unwrap();
                    assert_eq!(read, bytes(len));
                    heard[owner] += 1;
                }
            }
        }
        assert!(heard.iter().all(|count| *count > 20), "{heard:?}");
        let refused = cable.hosts[..PEER].iter().map(|host| host.counters().ports_unreachable);
        assert_eq!(refused.sum::<u64>(), 0);
    }
}

#[test]
fn answers_come_back_to_the_shard_that_asked() {
    for steer in [right_way as fn(&[u8], u16) -> u16, wrong_way] {
        let mut cable = cable(steer);
        let server = bind(&mut cable, PEER, "[::]:53");
        for shard in 0..PEER {
            for to in ["10.0.0.2:53", "[fd00::2]:53"] {
                let client = bind(&mut cable, shard, "[::]:0");
                for len in [10, 3000] {
                    send(&mut cable, shard, client, to, &bytes(len)).unwrap();
                    cable.pass(Duration::from_millis(100));
                    let (read, received) = receive(&mut cable, PEER, server).unwrap();
                    let back = std::format!("{}", received.from);
                    send(&mut cable, PEER, server, &back, &read).unwrap();
                    cable.pass(Duration::from_millis(100));
                    assert_eq!(receive(&mut cable, shard, client).unwrap().0, bytes(len));
                }
                let now = cable.now;
                cable.hosts[shard].udp_connect(now, client, Some(at("10.0.0.2:7"))).unwrap();
                send(&mut cable, shard, client, "10.0.0.2:7", b"x").unwrap();
                cable.settle();
                let refused = receive(&mut cable, shard, client);
                assert_eq!(refused, Err(Error::ConnectionRefused), "{shard}");
            }
        }
    }
}

#[test]
fn a_port_that_no_shard_has_is_refused_once() {
    for steer in [right_way as fn(&[u8], u16) -> u16, wrong_way] {
        let mut cable = cable(steer);
        let client = bind(&mut cable, PEER, "0.0.0.0:0");
        let now = cable.now;
        for port in 1..=20 {
            let to = std::format!("10.0.0.1:{port}");
            cable.hosts[PEER].udp_connect(now, client, Some(at(&to))).unwrap();
            send(&mut cable, PEER, client, &to, b"x").unwrap();
            cable.settle();
            assert_eq!(receive(&mut cable, PEER, client), Err(Error::ConnectionRefused));
        }
        let refused = cable.hosts[..PEER].iter().map(|host| host.counters().ports_unreachable);
        assert_eq!(refused.sum::<u64>(), 20);
    }
}
