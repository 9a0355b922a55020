//! Taking TIME-WAIT over from a peer that closed first (Faber, Touch & Yue 1999 §4.1).

use super::pair::{CLIENT, Pair, SERVER, Side, config};
use super::peer::*;
use crate::config::{Config, TimeWaitState};
use crate::event::ConnectionId;
use crate::tcp::{SocketOptions, State};
use crate::time::Duration;
use crate::wire::tcp::{Flags, Segment};

const KEPT: [TimeWaitState; 2] = [TimeWaitState::Compact, TimeWaitState::Full];
const SOON: Duration = Duration::from_millis(50);

/// A host that keeps this, and takes TIME-WAIT over by default.
fn swapping(state: TimeWaitState) -> Config {
    let mut config = plain();
    config.tcp.time_wait.state = state;
    config.tcp.time_wait.close_swap = true;
    config
}

/// The peer has closed, and the host behind it: its FIN is out.
fn in_last_ack(config: Config) -> Peer {
    let mut peer = Peer::established(config);
    assert_eq!(peer.exchange(Say::new(F | A, 1, 1)), [". 1:1(0) ack 2"]);
    let (id, now) = (peer.id(), peer.now);
    peer.host.shutdown_write(now, id).unwrap();
    assert_eq!(peer.hear_text(), ["F 1:1(0) ack 2"]);
    assert_eq!(peer.state(), State::LastAck);
    peer
}

#[test]
fn the_reset_follows_the_ack_of_our_fin_and_we_then_ignore_any() {
    for state in KEPT {
        let mut peer = in_last_ack(swapping(state));
        // Monitors see LAST-ACK.
        assert!(peer.host.sockets().any(|it| it.state() == State::LastAck));
        // Not before: an acknowledgement of less, and time, bring none.
        assert!(peer.exchange(Say::new(A, 2, 1)).is_empty());
        assert!(peer.wait(Duration::from_millis(500)).iter().all(|heard| heard.flags == F | A));
        assert_eq!(peer.exchange(Say::new(A, 2, 2)), ["R 2:2(0) ack 2"], "{state:?}");
        assert_eq!((peer.state(), peer.host.time_wait_len()), (State::TimeWait, 1));
        for reset in [Say::new(R | A, 2, 2), Say::new(R, 2, 0)] {
            assert!(peer.exchange(reset).is_empty());
        }
        assert_eq!(peer.host.time_wait_len(), 1, "{state:?}: the peer may have forgotten");
        let counters = peer.host.counters();
        assert_eq!((counters.time_wait_swapped, counters.time_wait_resets_ignored), (1, 2));
        let (id, now) = (peer.id(), peer.now);
        peer.host.close(now, id);
        peer.wait(Duration::from_secs(61));
        assert_eq!((peer.host.time_wait_len(), peer.host.connections()), (0, 0));
    }
}

#[test]
fn the_reset_has_the_timestamp_that_was_agreed_on() {
    let mut host = swapping(TimeWaitState::Compact);
    host.tcp.timestamps = true;
    let mut peer = Peer::established_with(host, |syn| syn.stamp(100, 0));
    peer.say(Say::new(F | A, 1, 1).stamp(101, 0));
    let (id, now) = (peer.id(), peer.now);
    peer.host.close(now, id);
    let fin = peer.hear_one();
    peer.say(Say::new(A, 2, 2).stamp(102, 0));
    let reset = peer.hear_one();
    assert_eq!((reset.flags, reset.seq, reset.ack), (R | A, 2, 2));
    let stamps = reset.options.timestamps.expect("they were agreed on");
    assert_eq!(stamps.echo, 102);
    assert!(stamps.value >= fin.options.timestamps.unwrap().value);
}

#[test]
fn who_closes_first_or_at_once_with_the_peer_waits_as_ever() {
    let host = || swapping(TimeWaitState::Compact);
    let mut first = Peer::established(host());
    let (id, now) = (first.id(), first.now);
    first.host.close_swap(now, id);
    assert_eq!(first.hear_text(), ["F 1:1(0) ack 1"]);
    assert_eq!(first.exchange(Say::new(F | A, 1, 2)), [". 2:2(0) ack 2"]);
    let mut crossed = Peer::established(host());
    let (id, now) = (crossed.id(), crossed.now);
    crossed.host.close_swap(now, id);
    assert_eq!(crossed.hear_text(), ["F 1:1(0) ack 1"]);
    assert_eq!(crossed.exchange(Say::new(F | A, 1, 1)), [". 2:2(0) ack 2"]);
    assert!(crossed.exchange(Say::new(A, 2, 2)).is_empty());
    for peer in [&first, &crossed] {
        let counters = peer.host.counters();
        assert_eq!((counters.time_wait_entered, counters.time_wait_swapped), (1, 0));
    }
    // They promised nothing: a peer that swaps may take over.
    assert!(first.exchange(Say::new(R | A, 2, 2)).is_empty());
    assert_eq!(first.host.time_wait_len(), 0);
}

#[test]
fn a_call_and_an_option_ask_for_it_one_connection_at_a_time() {
    let closed = |how: fn(&mut Peer)| {
        let mut peer = Peer::established(plain());
        peer.exchange(Say::new(F | A, 1, 1));
        how(&mut peer);
        assert_eq!(peer.hear_text(), ["F 1:1(0) ack 2"]);
        peer.exchange(Say::new(A, 2, 2))
    };
    let set = |peer: &mut Peer, close_swap| {
        let (id, now) = (peer.id(), peer.now);
        let options = SocketOptions { close_swap, ..peer.host.options(id).unwrap() };
        peer.host.set_options(now, id, options).unwrap();
        peer.host.close(now, id);
    };
    assert_eq!(closed(|peer| peer.host.close_swap(peer.now, peer.id())), ["R 2:2(0) ack 2"]);
    assert!(closed(|peer| peer.host.close(peer.now, peer.id())).is_empty());
    let mut on = Peer::established(plain());
    on.exchange(Say::new(F | A, 1, 1));
    set(&mut on, true);
    on.hear();
    assert_eq!(on.exchange(Say::new(A, 2, 2)), ["R 2:2(0) ack 2"]);
    let mut off = Peer::established(swapping(TimeWaitState::Compact));
    off.exchange(Say::new(F | A, 1, 1));
    set(&mut off, false);
    off.hear();
    assert!(off.exchange(Say::new(A, 2, 2)).is_empty());
}

#[test]
fn without_a_record_of_ours_the_peer_is_not_told_to_forget() {
    let unsafe_one = |change: fn(&mut Config)| {
        let mut config = swapping(TimeWaitState::Compact);
        change(&mut config);
        let mut peer = in_last_ack(config);
        assert!(peer.exchange(Say::new(A, 2, 2)).is_empty(), "an RST would leave no record at all");
        let counters = peer.host.counters();
        assert_eq!((counters.time_wait_swapped, counters.time_wait_swaps_failed), (0, 1));
    };
    unsafe_one(|config| config.limits.time_wait = 0);
    unsafe_one(|config| config.tcp.time_wait.state = TimeWaitState::Skip);
    unsafe_one(|config| {
        config.tcp.time_wait.state = TimeWaitState::Full;
        config.limits.time_wait = 0;
    });
}

#[test]
fn a_reset_in_last_ack_is_no_acknowledgement_and_ends_it() {
    let mut peer = in_last_ack(swapping(TimeWaitState::Compact));
    assert!(peer.exchange(Say::new(R, 2, 0)).is_empty());
    assert_eq!((peer.state(), peer.host.time_wait_len()), (State::Closed, 0));
}

/// A pair whose client takes TIME-WAIT over; its connection, in which the server closes first.
fn closing_pair() -> (Pair, ConnectionId) {
    let mut client = config(CLIENT);
    client.tcp.time_wait.close_swap = true;
    let mut pair = Pair::with(client, config(SERVER));
    let (_, client, server) = pair.connected();
    pair.transfer((Side::Server, server), (Side::Client, client), 10_000);
    pair.close(Side::Server, server, SOON);
    (pair, client)
}

#[test]
fn of_two_hosts_the_client_waits_and_the_server_has_forgotten() {
    let (mut pair, client) = closing_pair();
    let from = pair.log.len();
    pair.close(Side::Client, client, SOON);
    assert_eq!(pair.lines(from), ["Client F. 0", "Server . 0", "Client R. 0"]);
    assert_eq!((pair.client.time_wait_len(), pair.server.time_wait_len()), (1, 0));
    assert_eq!(pair.server.counters().time_wait_taken_over, 1);
    pair.run_for(Duration::from_secs(61));
    assert_eq!(pair.client.time_wait_len(), 0);
}

#[test]
fn where_the_reset_is_lost_both_ends_wait() {
    let (mut pair, client) = closing_pair();
    pair.filter = Some(std::boxed::Box::new(|_, s: &Segment<'_>| !s.flags.contains(Flags::RST)));
    pair.close(Side::Client, client, SOON);
    assert_eq!((pair.client.time_wait_len(), pair.server.time_wait_len()), (1, 1));
    assert_eq!(pair.client.counters().time_wait_swapped, 1);
    pair.run_for(Duration::from_secs(61));
    assert_eq!((pair.client.time_wait_len(), pair.server.time_wait_len()), (0, 0));
}

#[test]
fn where_the_ack_of_our_fin_is_lost_the_swap_waits_for_the_next() {
    let (mut pair, client) = closing_pair();
    let mut lost = false;
    pair.filter = Some(std::boxed::Box::new(move |from, _| {
        let drop = from == Side::Server && !lost;
        lost |= drop;
        !drop
    }));
    pair.close(Side::Client, client, SOON);
    assert_eq!((pair.client.time_wait_len(), pair.server.time_wait_len()), (0, 1));
    pair.run_for(Duration::from_secs(2));
    assert_eq!((pair.client.time_wait_len(), pair.server.time_wait_len()), (1, 0));
}

#[test]
fn two_hosts_that_both_swap_leave_one_record() {
    let swap = |address| {
        let mut config = config(address);
        config.tcp.time_wait.close_swap = true;
        config
    };
    let mut pair = Pair::with(swap(CLIENT), swap(SERVER));
    let (_, client, server) = pair.connected();
    pair.close(Side::Client, client, SOON);
    pair.close(Side::Server, server, SOON);
    assert_eq!((pair.client.time_wait_len(), pair.server.time_wait_len()), (0, 1));
}
