//! What is left of closed connections does the same whether they were of IPv4 or IPv6, and where
//! both ends are the host's own.

use super::fin_wait_2::{resting_of, stamped, states};
use super::old::*;
use super::pair::config;
use super::peer::*;
use crate::error::ConnectError;
use crate::event::ConnectionId;
use crate::frame::{Outbox, RxFrame};
use crate::tcp::{Keepalive, State};
use crate::time::Duration;
use core::net::SocketAddr;
use std::vec::Vec;

#[test]
fn a_repeated_fin_is_answered_and_time_wait_starts_over() {
    for old in Old::all() {
        let mut peer = old.waiting();
        peer.wait(TERM / 2);
        assert_eq!(peer.exchange(old.last_fin()), [". 2:2(0) ack 2"], "{old:?}");
        peer.wait(TERM - Duration::from_millis(1));
        assert_eq!(peer.host.time_wait_len(), 1, "{old:?}");
        peer.wait(Duration::from_millis(60));
        assert_eq!((peer.host.time_wait_len(), left(&peer)), (0, None), "{old:?}");
        let counters = peer.host.counters();
        assert_eq!((counters.time_wait_restarted, counters.time_wait_expired), (1, 1));
    }
}

/// The twin: whatever else comes, answered or not.
#[test]
fn nothing_else_makes_time_wait_start_over() {
    for old in Old::all() {
        let mut peer = old.waiting();
        peer.wait(TERM / 2);
        let challenged: &[&str] = &[". 2:2(0) ack 2"];
        for (what, say, answers) in [
            ("an ACK", Say::new(A, 2, 2), &[][..]),
            ("a stray ACK", Say::new(A, 900_000, 2), challenged),
            ("a FIN beyond", Say::new(F | A, 2, 2), challenged),
            ("text", Say::new(A, 2, 2).data(b"late"), &[]),
            ("RST", Say::new(R, 2, 0), &[]),
            ("RST of another ACK", Say::new(R | A, 2, 1), &[]),
            ("SYN, ACK", Say::new(S | A, 2, 2), challenged),
            ("an old SYN", old.syn(Layout::Bare, false), challenged),
        ] {
            let say = if say.flags.contains(S) { say } else { old.say(say) };
            assert_eq!(peer.exchange(say), answers, "{old:?}: {what}");
            assert!(left(&peer).is_some(), "{old:?}: {what}");
        }
        peer.wait(TERM / 2);
        assert_eq!((peer.host.time_wait_len(), left(&peer)), (0, None), "{old:?}");
    }
}

#[test]
fn an_rst_with_both_numbers_exact_ends_the_record() {
    for old in Old::all() {
        let mut peer = old.waiting();
        assert!(peer.exchange(old.say(Say::new(R | A, 2, 2))).is_empty(), "{old:?}");
        assert_eq!((peer.host.time_wait_len(), left(&peer)), (0, None), "{old:?}");
        assert_eq!(peer.host.counters().time_wait_taken_over, 1);
        assert_eq!(peer.exchange(old.last_fin()), ["R 2:2(0)"], "nobody knows it any more");
    }
}

#[test]
fn what_comes_for_an_orphan_that_is_a_record_wakes_it() {
    let waits = [State::Listen, State::FinWait2];
    let gone = &waits[..1];
    let closed = [State::Listen, State::TimeWait];
    for address in HOSTS {
        for (what, say, answers, after) in [
            ("its FIN", stamped(Say::new(F | A, 11, 22)), &[". 22:22(0) ack 12"][..], &closed[..]),
            ("a probe", stamped(Say::new(A, 10, 22)), &[". 22:22(0) ack 11"], &waits),
            ("text", stamped(Say::new(A, 11, 22).data(b"nobody")), &["R 22:22(0) ack 11"], gone),
            ("RST", Say::new(R, 11, 0), &[], gone),
            ("RST outside", Say::new(R, 10, 0), &[], &waits),
        ] {
            let mut peer = resting_of(config(address));
            assert_eq!(peer.exchange(say.clone()), answers, "{address}: {what}");
            assert_eq!(states(&peer), after, "{address}: {what}");
            if after == closed {
                // The record of TIME-WAIT goes on from there.
                assert_eq!(peer.exchange(say), answers, "{address}: {what}");
                assert_eq!(peer.host.counters().time_wait_restarted, 1);
            }
            peer.wait(TERM + Duration::from_secs(1));
            assert_eq!((states(&peer), peer.host.connections()), (gone.to_vec(), 0), "{what}");
        }
    }
}

#[test]
fn an_open_takes_no_orphans_tuple_before_it_is_given_up() {
    for address in HOSTS {
        let mut config = config(address);
        config.ephemeral_ports = (80, 80);
        let mut peer = resting_of(config);
        let listener = peer.listener.unwrap();
        peer.host.close_listener(peer.now, listener);
        let (local, remote) = peer.ends();
        let any_port = SocketAddr::new(local.ip(), 0);
        let opened = [local, any_port].map(|local| peer.host.connect(peer.now, local, remote));
        let errors = [ConnectError::AddressInUse, ConnectError::AddressNotAvailable].map(Err);
        assert_eq!((opened, states(&peer)), (errors, [State::FinWait2].to_vec()), "{address}");
        peer.now = peer.now + TERM;
        assert!(peer.host.connect(peer.now, any_port, remote).is_ok(), "{address}");
    }
}

// ---- a host that talks to itself

/// Opens a connection from port 5000 to the listener on the same host; both ends.
fn open_to_itself(peer: &mut Peer) -> (ConnectionId, ConnectionId) {
    let (at, _) = peer.ends();
    let opened = peer.host.connect(peer.now, SocketAddr::new(at.ip(), 5000), at).unwrap();
    run(peer);
    let accepted = peer.host.accept(peer.now, peer.listener.unwrap()).unwrap();
    run(peer);
    (opened, accepted)
}

/// Lets the two ends talk; nothing leaves.
fn run(peer: &mut Peer) {
    while peer.host.wants_emit() {
        assert!(peer.hear().is_empty());
    }
    while peer.host.event().is_some() {}
}

fn close(peer: &mut Peer, id: ConnectionId) {
    peer.host.close(peer.now, id);
    run(peer);
}

#[test]
fn ends_of_one_host_are_used_again_whichever_is_in_time_wait() {
    for old in Old::all() {
        for opener_first in [true, false] {
            let mut peer = Peer::listening(old.config());
            let (opened, accepted) = open_to_itself(&mut peer);
            let (first, last) = if opener_first { (opened, accepted) } else { (accepted, opened) };
            close(&mut peer, first);
            close(&mut peer, last);
            assert_eq!((peer.host.time_wait_len(), peer.host.connections()), (1, 0), "{old:?}");
            peer.now = peer.now + Duration::from_millis(5);
            if opener_first && !old.stamped {
                let (at, _) = peer.ends();
                let again = peer.host.connect(peer.now, SocketAddr::new(at.ip(), 5000), at);
                assert_eq!(again, Err(ConnectError::AddressInUse), "{old:?}");
                continue;
            }
            let (opened, accepted) = open_to_itself(&mut peer);
            assert_eq!((peer.host.time_wait_len(), peer.host.connections()), (0, 2), "{old:?}");
            assert_eq!(counted(&peer), (u64::from(!opener_first), 0, 1), "{old:?}");
            for (from, to) in [(opened, accepted), (accepted, opened)] {
                assert_eq!(peer.host.write(peer.now, from, b"again"), Ok(5));
                run(&mut peer);
                let mut text = [0; 9];
                assert_eq!(peer.host.read(peer.now, to, &mut text), Ok(5));
                assert_eq!(&text[..5], b"again");
            }
        }
    }
}

/// The first to close is an orphan that the other end, which stays open, wakes by its probes. No
/// stranger does that claims to be the host itself.
#[test]
fn an_orphan_wakes_by_its_peer_on_our_host_not_by_a_forgery() {
    for address in HOSTS {
        let mut peer = Peer::listening(config(address));
        let (opened, accepted) = open_to_itself(&mut peer);
        let mut options = peer.host.options(accepted).unwrap();
        let (idle, interval) = (Duration::from_secs(10), Duration::from_secs(10));
        options.keepalive = Some(Keepalive { idle, interval, probes: 3 });
        peer.host.set_options(peer.now, accepted, options).unwrap();
        close(&mut peer, opened);
        peer.wait(Duration::from_secs(5));
        assert_eq!((peer.host.fin_wait_2_len(), peer.host.closed.fin_wait_2.awake()), (1, 0));
        let record = peer.host.closed.fin_wait_2.records().iter().next().unwrap();
        assert_eq!((record.tuple.local_port(), record.tuple.remote_port()), (5000, 80));
        // From here on every peer that speaks to it claims to be its peer, and knows its numbers.
        (peer.ip, peer.port, peer.host_port) = (peer.ends().0.ip(), 80, 5000);
        (peer.isn, peer.host_isn) = (record.rcv_nxt, record.snd_nxt);
        let stamp = record.stamp.unwrap();
        let claims: Vec<Say> = [R, R | A, F | A, A, S]
            .into_iter()
            .map(|flags| Say::new(flags, 0, 0))
            .flat_map(|say| [say.clone(), say.stamp(stamp, 0)])
            .chain([Say::new(S, 0, 0).fast(stamp)])
            .collect();
        let assert_unheard = |peer: &mut Peer| {
            let counts = |peer: &Peer| (states(peer), peer.host.closed.fin_wait_2.awake());
            for claim in &claims {
                let (before, unheard) = (counts(peer), peer.host.counters().not_ours);
                let packet = peer.packet(claim.clone());
                peer.host.on_frame(peer.now, RxFrame::plain(&packet));
                assert!(peer.hear().is_empty(), "{address}: {claim:?}");
                assert_eq!(counts(peer), before, "{address}: {claim:?}");
                assert_eq!(peer.host.counters().not_ours, unheard + 1, "{address}: {claim:?}");
            }
        };
        assert_unheard(&mut peer);
        // It would be a record again at once, had it room to answer.
        let (mut free, mut full) = (Outbox::new(8), Outbox::new(1));
        full.push();
        let is_woken = (0..200).any(|_| {
            peer.now = peer.now + Duration::from_millis(100);
            peer.host.on_time(peer.now);
            peer.host.emit(peer.now, &mut free);
            peer.host.emit(peer.now, &mut full);
            peer.host.closed.fin_wait_2.awake() == 1
        });
        assert!(is_woken && free.is_empty(), "{address}");
        assert_unheard(&mut peer);
        // It rests again, and hears the other end's FIN.
        peer.wait(Duration::from_secs(5));
        assert_eq!((peer.host.fin_wait_2_len(), peer.host.closed.fin_wait_2.awake()), (1, 0));
        close(&mut peer, accepted);
        assert_eq!((peer.host.time_wait_len(), peer.host.connections()), (1, 0), "{address}");
        assert_eq!(peer.host.fin_wait_2_len(), 0);
    }
}
