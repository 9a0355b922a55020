//! TIME-WAIT of a whole host: the same whatever it keeps of a connection, and what happens without.

use super::fin_wait_2::resting_of;
use super::old::{enter, enter_others, tuple};
use super::pair::{Pair, config};
use super::peer::*;
use crate::config::{Config, Scheme, TimeWaitState};
use crate::counters::Counters;
use crate::error::ConnectError;
use crate::tcp::State;
use crate::time::Duration;
use std::vec::Vec;

const KEPT: [TimeWaitState; 2] = [TimeWaitState::Compact, TimeWaitState::Full];
const SCHEMES: [Scheme; 4] = [Scheme::Inline, Scheme::Wheel, Scheme::Scan, Scheme::OrderedList];

/// A host that keeps this.
fn keeping(state: TimeWaitState) -> Config {
    let mut config = plain();
    config.tcp.time_wait.state = state;
    config
}

/// Closes the connection at both ends, the host first.
fn close(peer: &mut Peer) {
    let (id, now) = (peer.id(), peer.now);
    peer.host.close(now, id);
    assert_eq!(peer.hear_text(), ["F 1:1(0) ack 1"]);
    assert_eq!(peer.exchange(Say::new(F | A, 1, 2)), [". 2:2(0) ack 2"]);
}

/// A host in TIME-WAIT, whose peer's next number is 2.
fn waiting(config: Config) -> Peer {
    let mut peer = Peer::established(config);
    close(&mut peer);
    assert_eq!((peer.host.time_wait_len(), peer.host.connections()), (1, 0));
    peer
}

/// Passes time and tells how long the record was there, looking every 10 ms.
fn lifetime(peer: &mut Peer) -> Duration {
    let began = peer.now;
    while peer.host.time_wait_len() > 0 {
        assert!(peer.wait(Duration::from_millis(10)).is_empty(), "TIME-WAIT sends nothing");
    }
    peer.now.since(began)
}

#[test]
fn a_whole_block_lasts_by_its_timers_and_leaves_nothing() {
    for scheme in SCHEMES {
        let mut config = keeping(TimeWaitState::Full);
        config.tcp.timers = scheme;
        let mut peer = waiting(config);
        let lasted = lifetime(&mut peer);
        // 4.4BSD counts half seconds: 120 of them are over within the last one.
        let ticks = matches!(scheme, Scheme::Scan | Scheme::OrderedList);
        let least = Duration::from_millis(if ticks { 59_500 } else { 60_000 });
        let most = Duration::from_millis(60_010);
        assert!(lasted >= least && lasted <= most, "{scheme:?}: {lasted:?}");
        let counters = peer.host.counters();
        assert_eq!((counters.time_wait_entered, counters.time_wait_expired), (1, 1));
        assert_eq!((peer.host.connections(), peer.host.deadline()), (0, None), "{scheme:?}");
    }
}

#[test]
fn the_rules_are_the_same_for_a_whole_block() {
    let told = |state: TimeWaitState, scheme: Scheme| {
        let mut config = keeping(state);
        config.tcp.timers = scheme;
        let mut peer = waiting(config);
        let mut heard = Vec::new();
        for say in [
            Say::new(R, 2, 0),
            Say::new(R | A, 2, 3),
            Say::new(A, 2, 2),
            Say::new(A, 1, 2),
            Say::new(S, 1, 0),
            Say::new(S | A, 2, 2),
            Say::new(F | A, 1, 2),
        ] {
            heard.push(peer.exchange(say));
        }
        peer.wait(Duration::from_secs(30));
        heard.push(peer.exchange(Say::new(F | A, 1, 2)));
        let restarted = lifetime(&mut peer);
        assert!(restarted > Duration::from_secs(59), "{state:?}, {scheme:?}: {restarted:?}");
        assert!(restarted < Duration::from_millis(60_050), "{state:?}, {scheme:?}: {restarted:?}");
        let mut peer = waiting(keeping(state));
        heard.push(peer.exchange(Say::new(R | A, 2, 2)));
        assert_eq!(peer.host.time_wait_len(), 0, "the peer has taken over");
        (heard, peer.host.counters().time_wait_taken_over)
    };
    let compact = told(TimeWaitState::Compact, Scheme::Inline);
    assert_eq!(compact.0.iter().filter(|heard| !heard.is_empty()).count(), 5);
    for scheme in SCHEMES {
        assert_eq!(told(TimeWaitState::Full, scheme), compact, "{scheme:?}");
    }
}

#[test]
fn a_syn_that_reopens_leaves_the_record_until_established() {
    for state in KEPT {
        let mut peer = waiting(keeping(state));
        let old = (peer.isn, peer.host_isn);
        assert_eq!(peer.exchange(Say::new(S, 2, 0)), ["S 0:0(0) ack 3"]);
        assert!(peer.host_isn.since(old.1) >= 65_536);
        assert_eq!((peer.host.half_open(), peer.host.time_wait_len()), (1, 1), "{state:?}");
        let counted = |peer: &Peer| {
            let Counters { time_wait_reopened, time_wait_reused, .. } = *peer.host.counters();
            (time_wait_reopened, time_wait_reused)
        };
        assert_eq!(counted(&peer), (1, 0));
        // It was an old one: the peer knows nothing of it. The record is as before.
        assert!(peer.exchange(Say::new(R, 3, 0)).is_empty());
        assert_eq!((peer.host.half_open(), peer.host.time_wait_len()), (0, 1), "{state:?}");
        let new = std::mem::replace(&mut peer.host_isn, old.1);
        assert_eq!(peer.exchange(Say::new(F | A, 1, 2)), [". 2:2(0) ack 2"]);
        // This one is not.
        peer.host_isn = new;
        assert_eq!(peer.exchange(Say::new(S, 2, 0)), ["S 0:0(0) ack 3"]);
        peer.say(Say::new(A, 3, 1));
        peer.accept();
        assert_eq!((counted(&peer), peer.host.time_wait_len()), ((2, 1), 0), "{state:?}");
        assert_eq!(peer.state(), State::Established);
        peer.say(Say::new(A, 3, 1).data(b"new"));
        assert_eq!(peer.read(99).unwrap(), b"new");
    }
}

/// The user has not closed its end: what it has not read stays, TIME-WAIT or not.
#[test]
fn a_whole_block_in_use_is_a_connection_until_its_user_leaves() {
    let mut peer = Peer::established(keeping(TimeWaitState::Full));
    let (id, now) = (peer.id(), peer.now);
    peer.host.shutdown_write(now, id).unwrap();
    peer.hear();
    peer.exchange(Say::new(F | A, 1, 2).data(b"last words"));
    assert_eq!(peer.state(), State::TimeWait);
    assert_eq!((peer.host.connections(), peer.host.time_wait_len()), (1, 1));
    peer.wait(Duration::from_secs(30));
    let now = peer.now;
    let mut late = Peer::established(keeping(TimeWaitState::Full));
    let late_id = late.id();
    late.host.shutdown_write(late.now, late_id).unwrap();
    late.hear();
    late.exchange(Say::new(F | A, 1, 2));
    late.host.close(late.now, late_id);
    assert_eq!((late.host.connections(), late.host.time_wait_len()), (0, 1), "it has left");
    assert_eq!(peer.read(99).unwrap(), b"last words");
    peer.host.close(now, id);
    assert_eq!((peer.host.connections(), peer.host.time_wait_len()), (0, 1));
    peer.wait(Duration::from_secs(31));
    assert_eq!((peer.host.connections(), peer.host.time_wait_len()), (0, 0));
    // And the other way round.
    let mut peer = Peer::established(keeping(TimeWaitState::Full));
    let id = peer.id();
    peer.host.shutdown_write(peer.now, id).unwrap();
    peer.hear();
    peer.exchange(Say::new(F | A, 1, 2).data(b"last words"));
    peer.wait(Duration::from_secs(61));
    assert_eq!((peer.host.connections(), peer.host.time_wait_len()), (1, 0));
    assert_eq!(peer.read(99).unwrap(), b"last words");
    peer.host.close(peer.now, id);
    assert_eq!(peer.host.connections(), 0);
}

#[test]
fn a_full_table_lets_the_oldest_go_whatever_it_keeps() {
    for state in KEPT {
        for (limit, evicted) in [(2, 1), (3, 0)] {
            let mut config = keeping(state);
            config.limits.time_wait = limit;
            let mut peer = Peer::listening(config);
            for port in [4001, 4002, 4003] {
                peer.port = port;
                peer.host_isn = crate::tcp::Seq(0);
                peer.exchange(Say::new(S, 0, 0));
                peer.say(Say::new(A, 1, 1));
                peer.accept();
                close(&mut peer);
                peer.wait(Duration::from_secs(1));
            }
            let waits: Vec<u16> =
                peer.host.sockets().filter_map(|it| it.remote()).map(|r| r.port()).collect();
            let mut sorted = waits.clone();
            sorted.sort_unstable();
            let expected: &[u16] = if limit == 2 { &[4002, 4003] } else { &[4001, 4002, 4003] };
            assert_eq!(sorted, expected, "{state:?}");
            assert_eq!(peer.host.counters().time_wait_evicted, evicted);
        }
    }
}

#[test]
fn an_active_open_waits_unless_timestamps_make_it_safe() {
    for state in KEPT {
        for stamps in [false, true] {
            let mut config = config("10.0.0.2");
            config.tcp.time_wait.state = state;
            config.tcp.timestamps = stamps;
            let mut peer = Peer::established_with(config, |syn| {
                if stamps { syn.mss(1000).stamp(7, 0) } else { syn.mss(1000) }
            });
            let stamped = |say: Say| if stamps { say.stamp(8, 0) } else { say };
            let (id, now) = (peer.id(), peer.now);
            peer.host.close(now, id);
            peer.hear();
            peer.say(stamped(Say::new(F | A, 1, 2)));
            peer.hear();
            let ends =
                (peer.host.sockets().last().unwrap().local(), "10.0.0.1:4000".parse().unwrap());
            assert_eq!(
                peer.host.connect(peer.now, ends.0, ends.1),
                Err(ConnectError::AddressInUse)
            );
            peer.now = peer.now + Duration::from_millis(1);
            let again = peer.host.connect(peer.now, ends.0, ends.1);
            assert_eq!(again.is_ok(), stamps, "{state:?}");
            if stamps {
                let old_nxt = peer.host_isn + 2;
                peer.hear_one();
                assert!(peer.host_isn.since(old_nxt) >= 65_536, "a duplicate may be under way");
            }
            assert_eq!(peer.host.time_wait_len(), 1, "it stays until the connection is open");
        }
    }
}

/// Faber, Touch & Yue 1999, Figure 1. A connection ends; one of its segments is still under way; a
/// second connection between the same ends begins at numbers that the first one used; and the
/// segment arrives. Returns what the application of the second one reads, if there is one.
fn figure_1(state: TimeWaitState, pause: Duration) -> Option<Vec<u8>> {
    let mut peer = Peer::established(keeping(state));
    // The first connection: its second half is sent twice, and one of the two is delayed.
    peer.exchange(Say::new(A, 1, 1).data(b"OLD1"));
    peer.exchange(Say::new(A, 5, 1).data(b"OLD2"));
    let old_duplicate = Say::new(A, 5, 1).data(b"OLD2");
    assert_eq!(peer.read(8).unwrap(), b"OLD1OLD2");
    let (id, old_isn) = (peer.id(), peer.isn);
    let now = peer.now;
    peer.host.close(now, id);
    peer.hear();
    peer.exchange(Say::new(F | A, 9, 2));
    peer.wait(pause);
    // The second: its peer has restarted, and does not know where the first one ended.
    let syn = peer.exchange(Say::new(S, 0, 0));
    if !syn.iter().all(|answer| answer.starts_with('S')) {
        assert_eq!(peer.host.counters().time_wait_refused, 1);
        return None;
    }
    peer.say(Say::new(A, 1, 1));
    peer.accept();
    assert_eq!(peer.isn, old_isn);
    peer.exchange(old_duplicate);
    peer.exchange(Say::new(A, 1, 1).data(b"new1"));
    peer.exchange(Say::new(A, 5, 1).data(b"new2"));
    Some(peer.read(8).unwrap())
}

#[test]
fn time_wait_keeps_an_old_duplicate_out_of_a_new_connection() {
    let at_once = Duration::from_millis(10);
    for state in KEPT {
        assert_eq!(figure_1(state, at_once), None, "{state:?} does not let it begin");
    }
    let spoilt = figure_1(TimeWaitState::Skip, at_once);
    assert_eq!(spoilt.as_deref(), Some(&b"new1OLD2"[..]), "without TIME-WAIT it is corrupted");
    // After 2·MSL the second connection may begin: the network has forgotten the segment by then,
    // and were it to come all the same, nothing would tell.
    for state in KEPT {
        let late = figure_1(state, Duration::from_secs(61));
        assert_eq!(late.as_deref(), Some(&b"new1OLD2"[..]));
    }
}

#[test]
fn what_is_skipped_sends_its_last_ack_and_is_forgotten() {
    let mut peer = Peer::established(keeping(TimeWaitState::Skip));
    close(&mut peer);
    assert_eq!((peer.host.connections(), peer.host.time_wait_len()), (0, 0));
    let counters = peer.host.counters();
    assert_eq!((counters.time_wait_entered, counters.time_wait_skipped), (1, 1));
    assert_eq!(peer.exchange(Say::new(F | A, 1, 2)), ["R 2:2(0)"], "the peer is reset");
}

#[test]
fn near_peers_wait_less_if_that_is_configured() {
    for state in KEPT {
        for (on_link, lasts) in [(Duration::ZERO, 60_000), (Duration::from_secs(2), 2_000)] {
            let mut config = keeping(state);
            config.tcp.time_wait.length_on_link = on_link;
            let lasted = lifetime(&mut waiting(config));
            let expected = Duration::from_millis(lasts);
            assert!(lasted >= expected && lasted <= expected + Duration::from_millis(10));
        }
    }
}

/// Has the peer at `address` open another connection, and closes it at both ends.
fn enter_from(peer: &mut Peer, address: &str) {
    peer.ip = address.parse().unwrap();
    assert_eq!(peer.exchange(Say::new(S, 0, 0)), ["S 0:0(0) ack 1"]);
    peer.say(Say::new(A, 1, 1));
    peer.accept();
    close(peer);
}

#[test]
fn a_near_peer_does_not_wait_behind_a_far_one() {
    for scheme in SCHEMES {
        for order in [["10.9.0.1", "10.0.0.1"], ["10.0.0.1", "10.9.0.1"]] {
            let mut config = keeping(TimeWaitState::Full);
            config.tcp.timers = scheme;
            config.gateways = Vec::from(["10.0.0.3".parse().unwrap()]);
            config.tcp.time_wait.length_on_link = Duration::from_secs(1);
            let mut peer = Peer::listening(config);
            order.iter().for_each(|address| enter_from(&mut peer, address));
            assert_eq!(peer.host.time_wait_len(), 2);
            peer.wait(Duration::from_millis(1010));
            assert_eq!(peer.host.time_wait_len(), 1, "{scheme:?}, {order:?}");
            let lasted = lifetime(&mut peer);
            assert!(lasted >= Duration::from_millis(58_400), "{scheme:?}: {lasted:?}");
        }
    }
}

/// The twin of the one above: its segments may be under way for long.
#[test]
fn who_is_behind_a_gateway_waits_the_whole_time() {
    for state in KEPT {
        let mut config = keeping(state);
        config.addresses = Vec::from(["10.0.0.2/31".parse().unwrap()]);
        config.gateways = Vec::from(["10.0.0.3".parse().unwrap()]);
        config.tcp.time_wait.length_on_link = Duration::from_secs(2);
        config.tcp.time_wait.length_on_host = Duration::from_secs(1);
        let lasted = lifetime(&mut waiting(config));
        assert!(lasted >= Duration::from_secs(60), "{state:?}: {lasted:?}");
    }
}

#[test]
fn a_host_that_talks_to_itself_waits_the_least() {
    for state in KEPT {
        let mut config = keeping(state);
        config.tcp.time_wait.length_on_link = Duration::from_secs(4);
        config.tcp.time_wait.length_on_host = Duration::from_secs(1);
        let mut peer = Peer::listening(config);
        let at = "10.0.0.2:80".parse().unwrap();
        let opened = peer.host.connect(peer.now, crate::host::any_local(&at), at).unwrap();
        let settle = |peer: &mut Peer| {
            while peer.host.wants_emit() {
                peer.hear();
            }
        };
        settle(&mut peer);
        peer.accept();
        for id in [opened, peer.id()] {
            peer.host.close(peer.now, id);
            settle(&mut peer);
        }
        assert_eq!(peer.host.time_wait_len(), 1, "{state:?}");
        let lasted = lifetime(&mut peer);
        assert!(lasted <= Duration::from_millis(1010), "{state:?}: {lasted:?}");
    }
}

#[test]
fn a_port_that_is_free_is_taken_before_one_in_time_wait() {
    let mut client = config("10.0.0.1");
    client.ephemeral_ports = (5000, 5001);
    let mut pair = Pair::with(client, config("10.0.0.2"));
    let listener = pair.server.listen("0.0.0.0:80".parse().unwrap(), 16).unwrap();
    let ends = ("10.0.0.1:0".parse().unwrap(), "10.0.0.2:80".parse().unwrap());
    let open = |pair: &mut Pair| {
        let id = pair.client.connect(pair.now, ends.0, ends.1).unwrap();
        pair.run_for(Duration::from_millis(50));
        let theirs = pair.server.accept(pair.now, listener).unwrap();
        (id, theirs, pair.client.local_address(id).unwrap().port())
    };
    let (closed, theirs, waits) = open(&mut pair);
    pair.client.close(pair.now, closed);
    pair.run_for(Duration::from_millis(50));
    pair.server.close(pair.now, theirs);
    pair.run_for(Duration::from_millis(50));
    assert_eq!(pair.client.time_wait_len(), 1);
    let (aborted, _, free) = open(&mut pair);
    assert_ne!(free, waits);
    pair.client.abort(pair.now, aborted);
    pair.run_for(Duration::from_millis(50));
    // It is the turn of the one in TIME-WAIT, which could be cut short; and then it is.
    assert_eq!(open(&mut pair).2, free);
    assert_eq!((pair.client.time_wait_len(), pair.client.counters().time_wait_reused), (1, 0));
    assert_eq!(open(&mut pair).2, waits);
    assert_eq!((pair.client.time_wait_len(), pair.client.counters().time_wait_reused), (0, 1));
}

#[test]
fn an_old_syn_with_a_timestamp_is_refused_if_we_use_none() {
    for state in KEPT {
        let mut config = keeping(state);
        config.tcp.timestamps = false;
        let mut peer = Peer::established_with(config, |say| say.stamp(1000, 0));
        close(&mut peer);
        peer.exchange(Say::new(S, 0, 0).stamp(1000, 0));
        let counters = peer.host.counters();
        assert_eq!((counters.time_wait_reopened, counters.time_wait_refused), (0, 1), "{state:?}");
    }
}

/// Those that were refused, and those that were challenged.
fn refused_and_challenged(peer: &Peer) -> (u64, u64) {
    let counters = peer.host.counters();
    (counters.time_wait_refused, counters.time_wait_challenged)
}

#[test]
fn only_a_syn_without_ack_counts_as_refused() {
    for state in KEPT {
        let mut peer = waiting(keeping(state));
        for seq in [1, 2] {
            assert_eq!(peer.exchange(Say::new(S | A, seq, 2)), [". 2:2(0) ack 2"], "{state:?}");
        }
        assert_eq!(refused_and_challenged(&peer), (0, 2), "{state:?}");
        assert_eq!(peer.exchange(Say::new(S, 1, 0)), [". 2:2(0) ack 2"], "{state:?}");
        assert_eq!(refused_and_challenged(&peer), (1, 2), "{state:?}");
    }
}

#[test]
fn a_syn_that_no_listener_hears_is_challenged_and_not_refused() {
    for state in KEPT {
        let mut peer = waiting(keeping(state));
        let (listener, now) = (peer.listener.unwrap(), peer.now);
        peer.host.close_listener(now, listener);
        assert_eq!(peer.exchange(Say::new(S, 2, 0)), [". 2:2(0) ack 2"], "{state:?}");
        assert_eq!(refused_and_challenged(&peer), (0, 1), "{state:?}");
        // Its twin: a SYN that the record would let through to no listener.
        peer.exchange(Say::new(S, 1, 0));
        assert_eq!(refused_and_challenged(&peer), (1, 1), "{state:?}");
        assert_eq!((peer.host.half_open(), peer.host.time_wait_len()), (0, 1), "{state:?}");
    }
}

#[test]
fn a_syn_at_a_full_accept_queue_is_not_refused_by_the_record() {
    let mut peer = waiting(keeping(TimeWaitState::Compact));
    let (listener, now) = (peer.listener.unwrap(), peer.now);
    peer.host.close_listener(now, listener);
    peer.host.listen("10.0.0.2:80".parse().unwrap(), 1).unwrap();
    peer.port = 4001;
    peer.exchange(Say::new(S, 0, 0));
    peer.say(Say::new(A, 1, 1));
    peer.port = 4000;
    assert!(peer.exchange(Say::new(S, 2, 0)).is_empty());
    assert_eq!((peer.host.counters().accept_overflows, peer.host.time_wait_len()), (1, 1));
    assert_eq!(refused_and_challenged(&peer), (0, 0));
}

#[test]
fn syns_that_records_let_through_are_as_many_as_records_at_most() {
    let mut config = keeping(TimeWaitState::Compact);
    (config.limits.syn_cache, config.limits.time_wait) = (0, 2);
    let mut peer = waiting(config);
    let ask = |peer: &mut Peer, port: u16| {
        peer.port = port;
        let ends = tuple(peer);
        enter(&mut peer.host, peer.now, &ends);
        // Beyond what the record has of the peer.
        peer.say(Say::new(S, 0x20, 0));
        let answers = peer.hear_text().len();
        let counters = peer.host.counters();
        let counted = (counters.time_wait_reopened, counters.time_wait_refused);
        (answers, counted, counters.syn_cache_over_limit, peer.host.half_open())
    };
    // A record makes room for another one, but the entry stays.
    assert_eq!(ask(&mut peer, 4001), (1, (1, 0), 1, 1));
    assert_eq!(ask(&mut peer, 4002), (1, (2, 0), 2, 2));
    assert_eq!(ask(&mut peer, 4003), (0, (2, 1), 2, 2), "one beyond");
}

#[test]
fn a_repeated_fin_is_answered_whatever_is_challenged_besides() {
    let mut config = plain();
    config.limits.challenge_acks_per_second = 0;
    let mut peer = Peer::established(config.clone());
    peer.exchange(Say::new(F | A, 1, 1));
    assert_eq!(peer.exchange(Say::new(F | A, 1, 1)).len(), 1, "CLOSE-WAIT");
    let mut peer = waiting(config);
    assert_eq!(peer.exchange(Say::new(F | A, 1, 2)).len(), 1, "TIME-WAIT");
    assert_eq!(peer.exchange(Say::new(A, 1, 2)).len(), 0, "a challenge");
}

/// Data leaves in the same turn, whether two records expire or so many that they are dropped in
/// several.
#[test]
fn records_that_expire_at_once_do_not_hold_up_data() {
    const TURN_MAX: u64 = 2048;
    for (records, leaves_rest) in [(2, false), (100_000, true)] {
        let mut config = keeping(TimeWaitState::Compact);
        config.limits.time_wait = 100_000;
        let mut peer = Peer::established_with(config, |say| say);
        enter_others(&mut peer, records);
        peer.now = peer.now + Duration::from_secs(61);
        peer.write(20);
        let heard = peer.hear_text();
        assert_eq!(heard.len(), 1, "{heard:?}");
        let expired = peer.host.counters().time_wait_expired;
        assert!(expired > 0 && expired <= TURN_MAX, "{expired}");
        let is_due = peer.host.deadline().is_some_and(|at| at <= peer.now);
        assert_eq!((peer.host.time_wait_len() > 0, is_due), (leaves_rest, leaves_rest));
        while peer.host.time_wait_len() > 0 {
            peer.hear();
        }
        assert_eq!(peer.host.counters().time_wait_expired, records.into());
    }
}

#[test]
fn the_state_between_two_ends_is_told_from_syn_to_nothing() {
    for state in KEPT {
        let mut peer = Peer::listening(keeping(state));
        let (local, remote) = peer.ends();
        let between = |peer: &Peer| peer.host.state_between(local, remote);
        assert_eq!(between(&peer), State::Closed);
        peer.host_isn = crate::tcp::Seq(0);
        peer.exchange(Say::new(S, 0, 0));
        assert_eq!(between(&peer), State::SynReceived);
        peer.say(Say::new(A, 1, 1));
        peer.accept();
        assert_eq!(between(&peer), State::Established);
        close(&mut peer);
        assert_eq!(between(&peer), State::TimeWait, "{state:?}");
        assert_eq!(peer.host.state_between(remote, local), State::Closed, "the other way round");
        lifetime(&mut peer);
        assert_eq!(between(&peer), State::Closed);
    }
    let peer = resting_of(config("10.0.0.2"));
    let (local, remote) = peer.ends();
    assert_eq!(peer.host.fin_wait_2_len(), 1, "a record");
    assert_eq!(peer.host.state_between(local, remote), State::FinWait2);
}
