//! Closing: what each end hears, and what is left behind.

use alloc::vec::Vec;

use super::pair::{Pair, Side, config};
use super::peer::{A, F, Heard, Peer, R, S, Say, plain};
use crate::error::{Error, WriteError};
use crate::event::ConnectionId;
use crate::tcp::State;
use crate::time::Duration;

#[test]
fn half_close_lets_the_other_half_go_on() {
    let mut pair = Pair::new();
    let (_, client, server) = pair.connected();
    let now = pair.now;
    pair.client.write(now, client, b"request").unwrap();
    pair.client.shutdown_write(now, client).unwrap();
    pair.run_for(Duration::from_secs(200));
    assert_eq!(pair.client.state(client), State::FinWait2, "a reader is not timed out");
    assert_eq!(pair.client.write(now, client, b"x"), Err(WriteError::BrokenPipe));
    let (mut out, now) = ([0; 20], pair.now);
    assert_eq!(pair.server.read(now, server, &mut out), Ok(7));
    assert_eq!(pair.server.read(now, server, &mut out), Ok(0));
    pair.transfer((Side::Server, server), (Side::Client, client), 50_000);
    pair.close(Side::Server, server, Duration::from_secs(1));
    assert_eq!(pair.client.state(client), State::TimeWait);
    let now = pair.now;
    assert_eq!(pair.client.read(now, client, &mut out), Ok(0));
}

#[test]
fn simultaneous_close_leaves_both_in_time_wait() {
    let mut pair = Pair::new();
    let (_, client, server) = pair.connected();
    let now = pair.now;
    pair.client.close(now, client);
    pair.server.close(now, server);
    pair.run_for(Duration::from_secs(1));
    assert_eq!((pair.client.time_wait_len(), pair.server.time_wait_len()), (1, 1));
    assert_eq!((pair.client.connections(), pair.server.connections()), (0, 0));
}

#[test]
fn data_received_before_time_wait_can_still_be_read() {
    let mut pair = Pair::new();
    let (_, client, server) = pair.connected();
    let now = pair.now;
    pair.client.shutdown_write(now, client).unwrap();
    pair.run_for(Duration::from_millis(50));
    let now = pair.now;
    pair.server.write(now, server, b"last words").unwrap();
    pair.server.close(now, server);
    pair.run_for(Duration::from_secs(1));
    assert_eq!(pair.client.state(client), State::TimeWait);
    let (mut out, now) = ([0; 20], pair.now);
    assert_eq!(pair.client.read(now, client, &mut out), Ok(10));
    assert_eq!(pair.client.read(now, client, &mut out), Ok(0));
    pair.client.close(now, client);
    assert_eq!((pair.client.connections(), pair.client.pages_in_use()), (0, 0));
    assert_eq!(pair.client.time_wait_len(), 1, "the record stays");
}

#[test]
fn closing_with_unread_data_resets() {
    let mut peer = Peer::established(plain());
    peer.say(Say::new(A, 1, 1).data(b"unread"));
    let (id, now) = (peer.id(), peer.now);
    peer.host.close(now, id);
    assert_eq!(peer.hear_text(), ["R 1:1(0) ack 7"]);
    assert_eq!((peer.host.connections(), peer.host.pages_in_use()), (0, 0));
}

#[test]
fn linger_zero_resets_and_drops_what_was_not_sent() {
    let mut peer = Peer::established(plain());
    let (id, now) = (peer.id(), peer.now);
    let mut options = peer.host.options(id).unwrap();
    options.linger = Some(Duration::ZERO);
    peer.host.set_options(now, id, options).unwrap();
    peer.write(100);
    peer.host.close(now, id);
    assert_eq!(peer.hear_text(), ["R 1:1(0) ack 1"]);
    assert_eq!((peer.host.connections(), peer.host.pages_in_use()), (0, 0));
}

#[test]
fn linger_with_a_limit_resets_when_it_is_over() {
    let mut peer = Peer::established(plain());
    let (id, now) = (peer.id(), peer.now);
    let mut options = peer.host.options(id).unwrap();
    options.linger = Some(Duration::from_millis(500));
    peer.host.set_options(now, id, options).unwrap();
    peer.write(100);
    peer.host.close(now, id);
    assert_eq!(peer.hear_text(), ["FP 1:101(100) ack 1"]);
    let last = peer.wait(Duration::from_millis(500)).pop().unwrap();
    assert_eq!((last.flags, last.at.since(now)), (R | A, Duration::from_millis(500)));
    assert_eq!(peer.host.connections(), 0);
}

#[test]
fn data_for_an_orphan_is_answered_with_a_reset() {
    let mut peer = Peer::established(plain());
    let (id, now) = (peer.id(), peer.now);
    peer.host.close(now, id);
    assert_eq!(peer.hear_text(), ["F 1:1(0) ack 1"]);
    assert_eq!(peer.exchange(Say::new(A, 1, 2).data(b"too late")), ["R 2:2(0) ack 1"]);
    assert_eq!(peer.host.connections(), 0);
}

#[test]
fn an_orphan_in_fin_wait_2_is_given_up() {
    let mut peer = Peer::established(plain());
    let (id, now) = (peer.id(), peer.now);
    peer.host.close(now, id);
    peer.hear();
    peer.say(Say::new(A, 1, 2));
    peer.wait(Duration::from_millis(59_999));
    assert_eq!(peer.host.connections(), 1);
    peer.wait(Duration::from_millis(1));
    assert_eq!(peer.host.connections(), 0);
}

#[test]
fn an_orphan_at_a_closed_window_is_given_up_though_acks_come() {
    let mut peer = Peer::established(plain());
    peer.say(Say::new(A, 1, 1).window(0));
    peer.write(100);
    let (id, now) = (peer.id(), peer.now);
    peer.host.close(now, id);
    assert!(peer.hear().is_empty());
    for _ in 0..100 {
        let Some(at) = peer.host.deadline() else { break };
        peer.wait(at.since(peer.now));
        peer.say(Say::new(A, 1, 1).window(0));
    }
    peer.hear();
    assert_eq!((peer.host.connections(), peer.host.pages_in_use()), (0, 0));
}

/// A server with room for `limit` orphans, and `clients` connections to it: each client's name and
/// the server's. The answers are written, and no client has acknowledged one.
fn answered(limit: usize, clients: usize) -> (Pair, Vec<(ConnectionId, ConnectionId)>) {
    let mut limited = config("10.0.0.2");
    limited.limits.orphans = limit;
    let mut pair = Pair::with(config("10.0.0.1"), limited);
    let listener = pair.server.listen("0.0.0.0:80".parse().unwrap(), clients).unwrap();
    let ends: Vec<_> = (0..clients).map(|_| pair.connect(listener)).collect();
    for (_, server) in &ends {
        assert_eq!(pair.server.write(pair.now, *server, b"answer"), Ok(6));
    }
    (pair, ends)
}

fn close_all(pair: &mut Pair, ends: &[(ConnectionId, ConnectionId)]) {
    for (_, server) in ends {
        pair.server.close(pair.now, *server);
    }
}

#[test]
fn orphans_have_a_limit_and_those_that_left_first_go() {
    let (mut pair, ends) = answered(2, 5);
    close_all(&mut pair, &ends);
    pair.run_for(Duration::from_millis(20));
    assert_eq!(pair.server.counters().orphans_over_limit, 3);
    for (at, (client, _)) in ends.into_iter().enumerate() {
        let error = (at < 3).then_some(Error::ConnectionReset);
        assert_eq!(pair.client.take_error(client), error, "{at}");
        if error.is_none() {
            let mut answer = [0; 9];
            assert_eq!(pair.client.read(pair.now, client, &mut answer), Ok(6), "{at}");
        }
    }
}

/// Connects from `port`, and has the host write an answer and close. Returns what it sent then.
fn leave_unanswered(peer: &mut Peer, port: u16) -> Vec<Heard> {
    peer.port = port;
    peer.say(Say::new(S, 0, 0).mss(1000));
    peer.hear();
    peer.say(Say::new(A, 1, 1));
    peer.accept();
    peer.write(100);
    let (id, now) = (peer.id(), peer.now);
    peer.host.close(now, id);
    peer.hear()
}

/// A peer that takes nothing holds its place until another one needs it; those who take their
/// answers lose none, however many they are.
#[test]
fn stalled_orphans_make_room_for_those_who_take_their_answers() {
    const STALLED: u16 = 8;
    let mut limited = plain();
    limited.limits.orphans = usize::from(STALLED);
    let mut peer = Peer::listening(limited);
    for port in 5000..5000 + STALLED {
        leave_unanswered(&mut peer, port);
    }
    for port in 6000..6100 {
        peer.wait(Duration::from_millis(1));
        let heard = leave_unanswered(&mut peer, port);
        let answered = heard.iter().filter(|heard| heard.flags.contains(F)).count();
        let reset = heard.iter().filter(|heard| heard.flags.contains(R)).count();
        assert_eq!((answered, reset), (1, usize::from(port == 6000)), "{port}");
        assert_eq!(peer.exchange(Say::new(F | A, 1, 102)), [". 102:102(0) ack 2"], "{port}");
    }
    assert_eq!(peer.host.counters().orphans_over_limit, 1);
}

/// An orphan whose peer acknowledges a byte outlives one that left later and hears nothing.
#[test]
fn an_orphan_that_moves_goes_after_those_that_do_not() {
    let mut limited = plain();
    limited.limits.orphans = 2;
    let mut peer = Peer::listening(limited);
    let mut isns = Vec::new();
    for port in 5000..5002 {
        leave_unanswered(&mut peer, port);
        isns.push(peer.host_isn);
    }
    (peer.port, peer.host_isn) = (5000, isns[0]);
    peer.say(Say::new(A, 1, 2));
    leave_unanswered(&mut peer, 6000);
    assert_eq!(peer.host.counters().orphans_over_limit, 1);
    let left = |peer: &Peer| -> Vec<u16> {
        let mut ports: Vec<_> =
            peer.host.sockets().filter_map(|it| Some(it.remote()?.port())).collect();
        ports.sort_unstable();
        ports
    };
    assert_eq!(left(&peer), [5000, 6000]);
}

#[test]
fn dropping_a_listener_resets_what_was_not_accepted() {
    let mut peer = Peer::listening(plain());
    peer.exchange(Say::new(S, 0, 0));
    peer.say(Say::new(A, 1, 1));
    let (listener, now) = (peer.listener.unwrap(), peer.now);
    peer.host.close_listener(now, listener);
    assert_eq!(peer.hear_text(), ["R 1:1(0) ack 1"]);
    assert_eq!(peer.host.connections(), 0);
    assert!(peer.host.accept(now, listener).is_err());
}

#[test]
fn a_full_accept_queue_ignores_the_last_ack_and_new_syns() {
    let mut pair = Pair::new();
    let listener = pair.server.listen("0.0.0.0:80".parse().unwrap(), 1).unwrap();
    let any = "0.0.0.0:0".parse().unwrap();
    let remote = "10.0.0.2:80".parse().unwrap();
    let now = pair.now;
    let first = pair.client.connect(now, any, remote).unwrap();
    let second = pair.client.connect(now, any, remote).unwrap();
    pair.run_for(Duration::from_millis(100));
    assert_eq!(pair.server.counters().accept_overflows, 1);
    assert_eq!(pair.server.half_open(), 1, "it waits as if the ACK had been lost");
    let now = pair.now;
    pair.server.accept(now, listener).unwrap();
    pair.run_for(Duration::from_secs(2));
    let now = pair.now;
    assert!(pair.server.accept(now, listener).is_ok(), "the repeated SYN, ACK completes it");
    assert_eq!(pair.client.state(first), State::Established);
    assert_eq!(pair.client.state(second), State::Established);
}

#[test]
fn a_full_syn_cache_answers_with_cookies_that_make_connections() {
    let mut limited = config("10.0.0.2");
    limited.limits.syn_cache = 0;
    let mut pair = Pair::with(config("10.0.0.1"), limited);
    let (_, client, server) = pair.connected();
    let counters = *pair.server.counters();
    assert_eq!((counters.cookies_sent, counters.cookies_accepted), (1, 1));
    pair.transfer((Side::Client, client), (Side::Server, server), 300_000);
    pair.transfer((Side::Server, server), (Side::Client, client), 300_000);
}

#[test]
fn a_forged_cookie_is_refused() {
    let mut limited = plain();
    limited.limits.syn_cache = 0;
    let mut peer = Peer::listening(limited);
    peer.exchange(Say::new(S, 0, 0));
    assert_eq!(peer.exchange(Say::new(A, 1, 2)), ["R 2:2(0)"]);
    assert_eq!(peer.host.counters().cookies_rejected, 1);
    assert!(peer.exchange(Say::new(A, 1, 1)).is_empty());
    assert_eq!(peer.host.counters().cookies_accepted, 1);
}

#[test]
fn a_write_after_a_reset_fails_with_it_once_then_with_epipe() {
    let mut peer = Peer::established(plain());
    peer.say(Say::new(A, 1, 1).data(b"parting words"));
    peer.say(Say::new(R, 14, 0));
    let (id, now) = (peer.id(), peer.now);
    assert_eq!(peer.read(99).unwrap(), b"parting words", "what was acknowledged is kept");
    assert_eq!(peer.read(99), Err(Error::ConnectionReset));
    assert_eq!(peer.host.write(now, id, b"x"), Err(WriteError::BrokenPipe));
}

#[test]
fn ports_in_time_wait_are_not_reused_and_ranges_give_more() {
    let mut client = config("10.0.0.1");
    client.ephemeral_ports = (40_000, 40_001);
    client.ranges = std::vec!["10.64.0.0/28".parse().unwrap()];
    let mut pair = Pair::with(client, config("10.0.0.2"));
    let listener = pair.server.listen("0.0.0.0:80".parse().unwrap(), 16).unwrap();
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..20 {
        let (client, server) = pair.connect(listener);
        assert!(seen.insert(pair.client.local_address(client).unwrap()), "a tuple came again");
        pair.close(Side::Client, client, Duration::from_millis(20));
        pair.close(Side::Server, server, Duration::from_millis(20));
    }
    assert_eq!(pair.client.time_wait_len(), 20);
}

#[test]
fn a_host_talks_to_itself() {
    let mut pair = Pair::new();
    let now = pair.now;
    let listener = pair.server.listen("0.0.0.0:80".parse().unwrap(), 16).unwrap();
    let any = "0.0.0.0:0".parse().unwrap();
    let client = pair.server.connect(now, any, "10.0.0.2:80".parse().unwrap()).unwrap();
    pair.run_for(Duration::from_millis(10));
    let now = pair.now;
    let server = pair.server.accept(now, listener).unwrap();
    pair.transfer((Side::Server, client), (Side::Server, server), 200_000);
    assert!(pair.log.is_empty(), "nothing went over the wire");
}

#[test]
fn a_lost_last_ack_is_made_good_by_time_wait() {
    let mut pair = Pair::new();
    let (_, client, server) = pair.connected();
    pair.close(Side::Client, client, Duration::from_millis(50));
    let mut acks = 0;
    pair.filter = Some(alloc::boxed::Box::new(move |side, segment| {
        let last_ack = side == Side::Client && segment.flags == A;
        acks += u32::from(last_ack);
        !last_ack || acks > 1
    }));
    pair.close(Side::Server, server, Duration::from_secs(5));
    assert_eq!((pair.server.connections(), pair.server.counters().loss_probes), (0, 1));
    assert_eq!(pair.client.counters().time_wait_restarted, 1);
}

#[test]
fn a_reset_of_a_connection_with_timestamps_carries_them() {
    let mut peer = Peer::established_with(config("10.0.0.2"), |syn| syn.mss(1000).stamp(7, 0));
    peer.say(Say::new(A, 1, 1).data(b"unread").stamp(8, 0));
    peer.hear();
    let (id, now) = (peer.id(), peer.now);
    peer.host.close(now, id);
    let reset = peer.hear_one();
    assert_eq!(reset.flags, R | A);
    assert_eq!(reset.options.timestamps.map(|stamps| stamps.echo), Some(8));
}

#[test]
fn an_unacceptable_ack_does_not_move_the_timestamp_to_echo() {
    let mut peer = Peer::established_with(config("10.0.0.2"), |syn| syn.mss(1000).stamp(100, 0));
    peer.say(Say::new(A, 1, 9999).data(b"forged").stamp(200_000, 0));
    assert_eq!(peer.hear_one().options.timestamps.map(|stamps| stamps.echo), Some(100));
    peer.say(Say::new(A, 1, 1).data(b"honest").stamp(101, 0));
    assert_eq!(peer.read(100).unwrap(), b"honest", "PAWS does not stand in the way");
}

#[test]
fn when_all_ports_wait_only_one_that_may_be_cut_short_is_taken() {
    for stamps in [true, false] {
        let mut client = config("10.0.0.1");
        client.ephemeral_ports = (40_000, 40_001);
        client.tcp.timestamps = stamps;
        let mut pair = Pair::with(client, config("10.0.0.2"));
        let listener = pair.server.listen("0.0.0.0:80".parse().unwrap(), 16).unwrap();
        for _ in 0..2 {
            let (client, server) = pair.connect(listener);
            pair.close(Side::Client, client, Duration::from_millis(20));
            pair.close(Side::Server, server, Duration::from_millis(20));
        }
        let now = pair.now;
        let any = "0.0.0.0:0".parse().unwrap();
        let third = pair.client.connect(now, any, "10.0.0.2:80".parse().unwrap());
        let counters = *pair.client.counters();
        assert_eq!(counters.ports_in_time_wait, 2);
        assert_eq!((third.is_ok(), counters.ports_exhausted), (stamps, u64::from(!stamps)));
        assert_eq!(counters.time_wait_reused, 0, "the record stays until the connection is open");
        pair.run_for(Duration::from_millis(20));
        assert_eq!(pair.client.counters().time_wait_reused, u64::from(stamps));
        assert_eq!(third.is_ok_and(|id| pair.client.state(id) == State::Established), stamps);
    }
}
