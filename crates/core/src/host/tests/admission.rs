//! SYNs that wait for the verdict of their listener's user.

use alloc::vec::Vec;
use core::net::SocketAddr;

use super::link::{self, Cable};
use super::old::{LAYOUTS, Old};
use super::peer::{A, F, Heard, Peer, R, S, Say, plain, text};
use crate::config::Config;
use crate::error::Error;
use crate::event::{Event, ListenerId, SynId};
use crate::host::{HeldSyn, Host, Refusal};
use crate::tcp::State;
use crate::time::Duration;

fn at(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn asking(host: &mut Host) -> ListenerId {
    let options = host.default_options();
    host.listen_any_asking(options).unwrap()
}

/// A peer of a host that takes all addresses, and asks.
fn peer_with(change: impl FnOnce(&mut Config)) -> Peer {
    let mut config = plain();
    config.destinations = Vec::from(["0.0.0.0/0".parse().unwrap()]);
    change(&mut config);
    let mut peer = Peer::new(config);
    peer.host_ip = "93.184.216.34".parse().unwrap();
    peer.listener = Some(asking(&mut peer.host));
    peer
}

fn syn() -> Say {
    Say::new(S, 0, 0).mss(1000)
}

/// The peer's SYN comes, and is held.
fn knock(peer: &mut Peer) -> SynId {
    assert!(peer.exchange(syn()).is_empty(), "it is not answered");
    peer.host.next_syn().expect("it is held").id
}

/// Another peer's SYN comes.
fn from_port(peer: &mut Peer, port: u16) {
    peer.port = port;
    peer.say(syn());
}

fn texts(heard: &[Heard]) -> Vec<std::string::String> {
    heard.iter().map(text).collect()
}

#[test]
fn a_syn_is_answered_when_it_is_admitted_and_not_before() {
    let mut peer = peer_with(|_| {});
    assert!(peer.exchange(syn()).is_empty());
    let mut events = core::iter::from_fn(|| peer.host.event()).collect::<Vec<_>>();
    assert_eq!(events.pop(), Some(Event::Acceptable(peer.listener.unwrap())));
    let HeldSyn { id, local, remote } = peer.host.next_syn().unwrap();
    assert_eq!((local, remote), (at("93.184.216.34:80"), at("10.0.0.1:4000")));
    // Sent again it is the same.
    peer.now = peer.now + Duration::from_secs(1);
    assert!(peer.exchange(syn()).is_empty());
    assert!(peer.host.next_syn().is_none());
    assert_eq!((peer.host.held_syns(), peer.host.half_open()), (1, 0));
    assert_eq!(peer.host.event(), None);
    // Nothing else is answered but as if nobody listened.
    assert_eq!(peer.exchange(Say::new(A, 1, 7)), ["R 7:7(0)"]);

    let connection = peer.host.admit_syn(peer.now, id).unwrap();
    assert_eq!(texts(&peer.hear()), ["S 0:0(0) ack 1"]);
    assert_eq!(peer.host.state(connection), State::SynReceived);
    assert_eq!(peer.host.held_syns(), 0);
    assert!(!peer.host.readiness(peer.now, connection).contains(crate::Readiness::WRITABLE));
    peer.say(Say::new(A, 1, 1).data(b"hello"));
    assert_eq!(peer.host.state(connection), State::Established);
    assert!(peer.host.readiness(peer.now, connection).contains(crate::Readiness::WRITABLE));
    peer.id = Some(connection);
    assert_eq!(peer.read(9).unwrap(), b"hello");
    assert_eq!(peer.host.local_address(connection), Ok(local));
    assert_eq!(peer.write(3), 3);
    assert_eq!(peer.hear_one().len, 3);
    assert_eq!(peer.host.counters().passive_opens, 1);
    // A name serves once.
    assert_eq!(peer.host.admit_syn(peer.now, id), Err(Error::ConnectionAborted));
    peer.host.refuse_syn(peer.now, id, Refusal::Reset);
    assert!(peer.hear().is_empty());
}

#[test]
fn the_answer_to_an_admitted_syn_is_sent_until_acknowledged() {
    let mut peer = peer_with(|_| {});
    let id = knock(&mut peer);
    let connection = peer.host.admit_syn(peer.now, id).unwrap();
    assert_eq!(peer.hear_one().flags, S | A);
    let heard = peer.wait(Duration::from_millis(3_500));
    assert_eq!(texts(&heard), ["S 0:0(0) ack 1", "S 0:0(0) ack 1"], "after 1 s and 2 s more");
    let refused = peer.wait(Duration::from_secs(180));
    assert!(!refused.is_empty());
    assert_eq!(peer.host.state(connection), State::Closed);
    assert_eq!(peer.host.take_error(connection), Some(Error::TimedOut));
}

#[test]
fn an_admitted_peer_may_reset_and_so_may_the_user() {
    let mut peer = peer_with(|_| {});
    let id = knock(&mut peer);
    let connection = peer.host.admit_syn(peer.now, id).unwrap();
    peer.hear_one();
    assert!(peer.exchange(Say::new(R, 1, 0)).is_empty());
    assert_eq!(peer.host.take_error(connection), Some(Error::ConnectionRefused));
    peer.port += 1;
    let id = knock(&mut peer);
    let connection = peer.host.admit_syn(peer.now, id).unwrap();
    peer.hear_one();
    peer.host.close(peer.now, connection);
    assert_eq!(texts(&peer.hear()), ["R 1:1(0) ack 1"]);
}

#[test]
fn a_refused_syn_is_answered_with_rst() {
    let mut peer = peer_with(|config| config.limits.replies_per_second = 1);
    for port in 1..=20 {
        peer.port = port;
        let id = knock(&mut peer);
        peer.host.refuse_syn(peer.now, id, Refusal::Reset);
        assert_eq!(texts(&peer.hear()), ["R 0:0(0) ack 1"], "{port}: the limit is for strangers");
        assert!(!peer.host.is_held(id));
    }
    assert_eq!((peer.host.counters().syns_refused, peer.host.held_syns()), (20, 0));
}

#[test]
fn a_syn_that_is_ignored_comes_again_as_a_new_one() {
    let mut peer = peer_with(|_| {});
    let id = knock(&mut peer);
    peer.host.refuse_syn(peer.now, id, Refusal::Ignored);
    assert!(peer.hear().is_empty());
    let again = knock(&mut peer);
    assert!(again != id && peer.host.is_held(again) && !peer.host.is_held(id));
}

#[test]
fn a_refusal_by_icmp_fails_the_open() {
    for (refusal, error) in [
        (Refusal::NetworkUnreachable, Error::NetworkUnreachable),
        (Refusal::HostUnreachable, Error::HostUnreachable),
        (Refusal::Prohibited, Error::HostUnreachable),
    ] {
        for to in ["8.8.8.8:80", "[2001:db8::1]:80"] {
            let mut client = link::host(&["10.0.0.1/24", "fd00::1/64"], 1);
            client.gateways = ["10.0.0.2", "fd00::2"].map(|text| text.parse().unwrap()).into();
            let mut server = link::host(&["10.0.0.2/24", "fd00::2/64"], 2);
            server.destinations = ["0.0.0.0/0", "::/0"].map(|text| text.parse().unwrap()).into();
            let mut cable = Cable::new(Vec::from([client, server]));
            asking(&mut cable.hosts[1]);
            let id = cable.connect(to);
            cable.settle();
            let held = cable.hosts[1].next_syn().unwrap();
            assert_eq!(held.local, at(to));
            let now = cable.now;
            cable.hosts[1].refuse_syn(now, held.id, refusal);
            cable.settle();
            assert_eq!(cable.hosts[0].counters().icmp_accepted, 1, "{refusal:?} {to}");
            let soft = cable.hosts[0].soft_error(id);
            let hard = cable.hosts[0].take_error(id);
            assert_eq!(soft.or(hard), Some(error), "{refusal:?} {to}");
        }
    }
}

#[test]
fn its_sender_takes_a_syn_back_by_an_exact_reset() {
    let mut peer = peer_with(|_| {});
    let id = knock(&mut peer);
    for seq in [0, 2] {
        assert!(peer.exchange(Say::new(R, seq, 0)).is_empty());
        assert!(peer.host.is_held(id));
    }
    assert!(peer.exchange(Say::new(R, 1, 0)).is_empty());
    assert!(!peer.host.is_held(id));
    assert_eq!(peer.host.admit_syn(peer.now, id), Err(Error::ConnectionAborted));
    assert!(peer.hear().is_empty());
    assert_eq!(peer.host.counters().syns_held_ended, 1);
}

#[test]
fn a_syn_waits_for_no_longer_than_it_may() {
    let mut peer = peer_with(|_| {});
    let id = knock(&mut peer);
    assert!(peer.wait(Duration::from_millis(179_999)).is_empty());
    assert!(peer.host.is_held(id));
    assert!(peer.wait(Duration::from_millis(1)).is_empty());
    assert!(!peer.host.is_held(id));
    assert_eq!((peer.host.deadline(), peer.host.counters().syns_held_ended), (None, 1));
    assert_eq!(peer.host.admit_syn(peer.now, id), Err(Error::ConnectionAborted));
}

#[test]
fn where_too_many_wait_the_oldest_goes_of_which_nobody_was_told() {
    let mut peer = peer_with(|config| config.limits.held_syns = 3);
    for port in 1..=3 {
        from_port(&mut peer, port);
    }
    assert_eq!(peer.host.counters().syns_held_over_limit, 0, "three may wait");
    assert_eq!(peer.host.next_syn().unwrap().remote.port(), 1);
    from_port(&mut peer, 4);
    assert_eq!((peer.host.held_syns(), peer.host.counters().syns_held_over_limit), (3, 1));
    let told: Vec<_> = core::iter::from_fn(|| peer.host.next_syn()).collect();
    let ports: Vec<_> = told.iter().map(|held| held.remote.port()).collect();
    assert_eq!(ports, [3, 4], "the second went for the fourth");
    // The user was told of all: none goes.
    from_port(&mut peer, 5);
    assert_eq!((peer.host.next_syn(), peer.host.held_syns()), (None, 3));
    assert!(told.iter().all(|held| peer.host.is_held(held.id)));
    assert!(peer.hear().is_empty(), "no cookie stands for one");
    peer.host.refuse_syn(peer.now, told[0].id, Refusal::Ignored);
    from_port(&mut peer, 5);
    assert_eq!(peer.host.next_syn().unwrap().remote.port(), 5);
}

#[test]
fn a_flood_of_syns_that_wait_keeps_nobody_from_another_listener() {
    let mut peer = peer_with(|config| config.limits.held_syns = 8);
    peer.host.listen(at("10.0.0.2:80"), 4).unwrap();
    for port in 1..=10_000 {
        from_port(&mut peer, port);
    }
    assert_eq!((peer.host.held_syns(), peer.host.half_open()), (8, 0));
    (peer.host_ip, peer.port) = ("10.0.0.2".parse().unwrap(), 4000);
    assert_eq!(peer.exchange(syn()), ["S 0:0(0) ack 1"]);
    assert_eq!(peer.host.counters().cookies_sent, 0);
}

#[test]
fn no_more_are_admitted_than_connections_may_be() {
    let mut peer = peer_with(|config| config.limits.connections = 1);
    let first = knock(&mut peer);
    peer.port += 1;
    let second = knock(&mut peer);
    assert!(peer.host.admit_syn(peer.now, first).is_ok());
    assert_eq!(peer.host.admit_syn(peer.now, second), Err(Error::Limit("connections")));
    assert_eq!(peer.hear().len(), 1);
    assert_eq!(peer.host.counters().connections_over_limit, 1);
}

#[test]
fn what_waits_for_a_listener_ends_with_it() {
    let mut peer = peer_with(|_| {});
    let id = knock(&mut peer);
    let listener = peer.listener.unwrap();
    peer.host.close_listener(peer.now, listener);
    assert!(!peer.host.is_held(id));
    assert_eq!(peer.exchange(syn()), ["R 0:0(0) ack 1"]);
}

#[test]
fn a_cookie_of_another_listener_does_not_pass_the_one_that_asks() {
    for asks in [true, false] {
        let mut peer = peer_with(|config| config.limits.syn_cache = 0);
        let asking = peer.listener.unwrap();
        peer.host.close_listener(peer.now, asking);
        let options = peer.host.default_options();
        let first = peer.host.listen_any(4, options).unwrap();
        peer.say(syn());
        assert_eq!(peer.hear_one().flags, S | A);
        peer.host.close_listener(peer.now, first);
        let second = match asks {
            true => peer.host.listen_any_asking(options).unwrap(),
            false => peer.host.listen_any(4, options).unwrap(),
        };
        let answer = peer.exchange(Say::new(A, 1, 1));
        assert_eq!(answer.is_empty(), !asks, "{answer:?}");
        assert_eq!(peer.host.accept_queue_len(second), usize::from(!asks));
    }
}

#[test]
fn a_syn_that_time_wait_lets_through_is_held_and_ends_it() {
    for old in Old::all() {
        let layout = LAYOUTS[0];
        let mut peer = old.waiting();
        let (listener, old_isn) = (peer.listener.unwrap(), peer.host_isn);
        peer.host.close_listener(peer.now, listener);
        asking(&mut peer.host);
        peer.now = peer.now + Duration::from_millis(10);
        super::old::say_syn(&mut peer, layout, &old.syn(layout, true));
        assert!(peer.hear().is_empty());
        let held = peer.host.next_syn().expect("it is let through");
        assert_eq!(peer.host.time_wait_len() + peer.host.fin_wait_2_len(), 1, "{old:?}");
        let id = peer.host.admit_syn(peer.now, held.id).unwrap();
        assert_eq!(peer.hear_one().flags, S | A, "{old:?}");
        assert!(peer.host_isn.since(old_isn) > 2, "{old:?}");
        assert_eq!(peer.host.state(id), State::SynReceived);
        let counters = peer.host.counters();
        assert_eq!(counters.time_wait_reopened, 1, "{old:?}");
        // The peer gives up: the record is still there.
        assert_eq!(peer.host.time_wait_len(), 1, "{old:?}");
        let ack = old.syn(layout, true);
        let ack = Say { flags: A, seq: ack.seq + 1, ack: 1, ..ack };
        peer.say(ack);
        assert_eq!(peer.host.state(id), State::Established, "{old:?}");
        assert_eq!(peer.host.time_wait_len(), 0, "{old:?}");
    }
}

#[test]
fn fin_comes_right_behind_the_ack_of_an_admitted_syn() {
    let mut peer = peer_with(|_| {});
    let id = knock(&mut peer);
    let connection = peer.host.admit_syn(peer.now, id).unwrap();
    // The user is quicker than the peer's ACK.
    peer.host.shutdown_write(peer.now, connection).unwrap();
    assert_eq!(peer.hear_one().flags, S | A);
    assert_eq!(peer.exchange(Say::new(A | F, 1, 1)), ["F 1:1(0) ack 2"]);
    assert!(peer.host.is_at_end(connection));
}
