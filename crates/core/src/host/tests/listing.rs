//! What a host tells of all its sockets.

use alloc::vec::Vec;
use core::net::SocketAddr;

use super::pair::{Pair, Side};
use super::peer::{Peer, S, Say, plain};
use crate::config::Algorithm;
use crate::flow::Tuple;
use crate::host::{Socket, SocketPlace};
use crate::tcp::State;
use crate::tcp::timers::Timer;
use crate::time::Duration;

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// What a walk in pieces of so many places sees, if `change` happens between pieces.
fn walked(pair: &mut Pair, places: usize, mut change: impl FnMut(&mut Pair, &[Seen])) -> Vec<Seen> {
    let (mut seen, mut place) = (Vec::new(), Some(SocketPlace::default()));
    while let Some(first) = place {
        let mut steps = 0;
        for (following, found) in pair.server.sockets_from(first).take(places) {
            (place, steps) = (following, steps + 1);
            seen.extend(found.map(|it| (it.state(), it.remote())));
        }
        assert!(steps <= places);
        if let Some(place) = &mut place {
            *place = SocketPlace::from_bits(place.to_bits());
        }
        change(pair, &seen);
    }
    seen
}

type Seen = (State, Option<SocketAddr>);

#[test]
fn a_walk_in_pieces_sees_each_connection_that_stays() {
    let mut pair = Pair::new();
    let listener = pair.server.listen("0.0.0.0:80".parse().unwrap(), 16).unwrap();
    let all: Vec<_> = (0..100).map(|_| pair.connect(listener).1).collect();
    let remote = |pair: &Pair, id| pair.server.peer_address(id).unwrap();
    let all: Vec<_> = all.iter().map(|id| (*id, remote(&pair, *id))).collect();
    let mut gone = Vec::new();
    let seen = walked(&mut pair, 7, |pair, seen| {
        // One that was seen goes, and one that was not.
        let first = seen.iter().filter_map(|(_, remote)| *remote).next();
        let last = all.iter().rev().map(|(_, remote)| *remote).find(|it| !gone.contains(it));
        for remote in [first, last].into_iter().flatten() {
            if gone.len() < 40 && !gone.contains(&remote) {
                gone.push(remote);
                let (id, _) = all.iter().find(|(_, it)| *it == remote).unwrap();
                pair.server.abort(pair.now, *id);
            }
        }
    });
    assert!(gone.len() > 10);
    for (_, remote) in all.iter().filter(|(_, remote)| !gone.contains(remote)) {
        let count = seen.iter().filter(|(_, it)| *it == Some(*remote)).count();
        assert_eq!(count, 1, "{remote}");
    }
    assert_eq!(seen[0], (State::Listen, None));
}

#[test]
fn a_socket_is_named_as_its_user_names_it() {
    let mut pair = Pair::new();
    let (_, _, id) = pair.connected();
    let host = &pair.server;
    let found: Vec<_> = host.sockets().collect();
    assert_eq!(found.iter().map(Socket::id).collect::<Vec<_>>(), [None, Some(id)]);
    let Socket::Connection(connection) = found[1] else { panic!("{:?}", found[1]) };
    let detail = connection.detail(pair.now);
    assert_eq!(detail.info, host.info(id).unwrap());
    assert_eq!((detail.timer, detail.congestion), (None, Algorithm::Cubic));
    let info = host.send_info(pair.now, id).unwrap();
    assert_eq!(detail.send_limit_bytes, info.hiwat as u64);
    let Socket::Listener(listener) = found[0] else { panic!("{:?}", found[0]) };
    assert_eq!((listener.waiting, listener.backlog, listener.local.port()), (0, 16, 80));
    let now = pair.now;
    pair.server.write(now, id, b"hello").unwrap();
    pair.run_for(ms(1));
    let mut connections = pair.server.sockets().filter_map(|it| match it {
        Socket::Connection(connection) => Some(connection.detail(pair.now)),
        _ => None,
    });
    let (timer, at) = connections.next().unwrap().timer.unwrap();
    assert!(timer == Timer::Retransmit && at > pair.now, "{timer:?} {at:?}");
}

#[test]
fn half_open_handshakes_tell_when_they_go_on() {
    let mut peer = Peer::listening(plain());
    peer.say(Say::new(S, 0, 0).mss(1000));
    peer.hear();
    let found = peer.host.sockets().find_map(|it| match it {
        Socket::HalfOpen(half_open) => Some(half_open),
        _ => None,
    });
    let found = found.unwrap();
    assert_eq!((found.attempts, found.remote), (1, peer.ends().1));
    assert!(found.due > peer.now && found.due <= peer.now + Duration::from_secs(2));
}

#[test]
fn records_tell_their_time_and_survive_a_walk() {
    let mut pair = Pair::new();
    let listener = pair.server.listen("0.0.0.0:80".parse().unwrap(), 16).unwrap();
    let closed = 50;
    for _ in 0..closed {
        let (client, server) = pair.connect(listener);
        pair.close(Side::Server, server, ms(5));
        pair.close(Side::Client, client, ms(100));
    }
    assert_eq!(pair.server.time_wait_len(), closed);
    for socket in pair.server.sockets() {
        if let Socket::Record(record) = socket {
            assert_eq!((record.state, record.is_agreed), (State::TimeWait, false));
            assert_eq!(record.expires, record.entered + Duration::from_secs(60));
            assert!(record.entered <= pair.now && record.expires > pair.now);
        }
    }
    // The time of some is over while it walks: those behind are seen all the same.
    let mut steps = 0;
    let seen = walked(&mut pair, 7, |pair, _| {
        steps += 1;
        if steps == 3 {
            pair.run_for(Duration::from_secs(57));
        }
    });
    let left = pair.server.time_wait_len();
    assert!(left > 5 && left < closed, "{left}");
    let staying: Vec<_> = pair.server.sockets().filter_map(|it| it.remote()).collect();
    for remote in staying {
        let count = seen.iter().filter(|(_, it)| *it == Some(remote)).count();
        assert_eq!(count, 1, "{remote}");
    }
    assert_eq!(walked(&mut pair, 1, |_, _| ()).len(), left + 1);
}

#[test]
fn a_place_that_is_none_ends_the_walk() {
    let mut pair = Pair::new();
    pair.connected();
    for bits in [u64::MAX, 99 << 32, (2 << 32) | 0xffff_ffff, (9 << 32) | 0xffff_fff0] {
        let place = SocketPlace::from_bits(bits);
        assert_eq!(pair.server.sockets_from(place).filter(|(_, it)| it.is_some()).count(), 0);
        assert!(pair.server.sockets_from(place).count() <= 13, "{bits:x}");
    }
}

#[test]
fn what_lies_between_two_ends_is_what_the_walk_finds() {
    let mut pair = Pair::new();
    let listener = pair.server.listen("0.0.0.0:80".parse().unwrap(), 16).unwrap();
    let (client, server) = pair.connect(listener);
    pair.close(Side::Server, server, ms(5));
    pair.close(Side::Client, client, ms(100));
    pair.connect(listener);
    let mut states = Vec::new();
    let mut half_open = Peer::listening(plain());
    half_open.say(Say::new(S, 0, 0).mss(1000));
    half_open.hear();
    for host in [&pair.server, &pair.client, &half_open.host] {
        for it in host.sockets() {
            let Some(remote) = it.remote() else { continue };
            let end = |at: SocketAddr| (at.ip(), at.port());
            let ends = Tuple::new(end(it.local()), end(remote));
            let found = host.socket_between(&ends).unwrap();
            assert_eq!((found.local(), found.remote()), (it.local(), it.remote()));
            assert_eq!((found.state(), found.id()), (it.state(), it.id()));
            states.push(found.state());
            let swapped = Tuple::new(end(remote), end(it.local()));
            assert!(host.socket_between(&swapped).is_none(), "the peer's view of it");
        }
    }
    states.sort_by_key(|state| *state as u8);
    let (open, half) = (State::Established, State::SynReceived);
    assert_eq!(states, [half, open, open, State::TimeWait]);
}
