//! A host takes over what another has of closed connections, and that one ends the rest.

use super::fin_wait_2::{resting_of, stamped, states};
use super::peer::*;
use crate::host::{Host, Remains};
use crate::tcp::time_wait::Record;
use crate::tcp::{Seq, State, Tuple};
use crate::time::{Duration, Instant};
use proptest::prelude::*;
use std::vec::Vec;

/// A host that has closed first, and is in TIME-WAIT.
fn waiting() -> Peer {
    let syn = |say: Say| say.mss(1000).stamp(1000, 0).sack_permitted();
    let mut peer = Peer::established_with(super::pair::config("10.0.0.2"), syn);
    let (id, now) = (peer.id(), peer.now);
    peer.host.close(now, id);
    peer.hear();
    peer.exchange(stamped(Say::new(F | A, 1, 2)));
    assert_eq!((peer.host.time_wait_len(), peer.host.connections()), (1, 0));
    peer
}

/// The host of the process that takes over; what it has of the one before is put into it.
fn succeed(peer: &mut Peer) -> Vec<Remains> {
    let now = peer.now;
    let remains = peer.host.remains(now);
    let mut bytes = Vec::new();
    remains.iter().for_each(|it| it.encode(now, &mut bytes));
    assert_eq!(bytes.len(), Remains::BYTES[0] * remains.len());
    let mut new = Host::new(peer.host.config().clone()).unwrap();
    new.on_time(now);
    new.listen("10.0.0.2:80".parse().unwrap(), 8).unwrap();
    let mut rest = &bytes[..];
    while let Some((remains, len)) = Remains::decode(now, rest) {
        assert!(new.inherit(now, &remains));
        assert!(!new.inherit(now, &remains), "it has it already");
        rest = &rest[len..];
    }
    assert!(rest.is_empty());
    peer.host = new;
    remains
}

#[test]
fn an_heir_answers_from_time_wait_as_the_host_before() {
    let said = |takes_over: bool| {
        let mut peer = waiting();
        peer.wait(Duration::from_secs(10));
        if takes_over {
            assert_eq!(succeed(&mut peer).len(), 1);
            assert_eq!(peer.host.counters().time_wait_inherited, 1);
        }
        // The FIN again, a stray RST, and a SYN that is too old.
        let again = peer.exchange(stamped(Say::new(F | A, 1, 2)));
        let reset = peer.exchange(Say::new(R, 2, 0));
        let stale = peer.exchange(Say::new(S, 1, 0).mss(1000).stamp(900, 0));
        (again, reset, stale, peer.host.time_wait_len())
    };
    let old = said(false);
    assert_eq!(said(true), old);
    assert_eq!((old.0.len(), old.1.len(), old.2.len(), old.3), (1, 0, 1, 1));
}

#[test]
fn an_inherited_record_lasts_no_longer_than_it_would_have() {
    let mut peer = waiting();
    peer.wait(Duration::from_secs(40));
    succeed(&mut peer);
    peer.wait(Duration::from_secs(19));
    assert_eq!(peer.host.time_wait_len(), 1);
    peer.wait(Duration::from_secs(2));
    assert_eq!((peer.host.time_wait_len(), peer.host.counters().time_wait_expired), (0, 1));
}

#[test]
fn an_inherited_orphan_still_hears_its_peers_fin() {
    let mut peer = resting_of(super::pair::config("10.0.0.2"));
    let remains = succeed(&mut peer);
    assert!(remains[0].waits_for_fin && remains.len() == 1);
    assert_eq!(states(&peer), [State::Listen, State::FinWait2]);
    assert_eq!(peer.exchange(stamped(Say::new(F | A, 11, 22))).len(), 1);
    assert_eq!(peer.host.time_wait_len(), 1);
}

#[test]
fn an_inherited_orphan_waits_no_longer_than_it_would_have() {
    let mut peer = resting_of(super::pair::config("10.0.0.2"));
    peer.wait(Duration::from_secs(20));
    let remains = succeed(&mut peer);
    let left = remains[0].record.expires.since(peer.now);
    assert!(remains[0].waits_for_fin && left > Duration::from_secs(2));
    let kept = peer.host.remains(peer.now)[0].record;
    assert_eq!(kept.is_marked, remains[0].record.is_marked);
    peer.wait(left - Duration::from_secs(1));
    assert_eq!(peer.host.fin_wait_2_len(), 1);
    peer.wait(Duration::from_secs(2));
    assert_eq!((peer.host.fin_wait_2_len(), peer.host.counters().fin_wait_2_expired), (0, 1));
}

#[test]
fn inherited_orphans_beyond_the_limit_are_counted() {
    let mut config = super::pair::config("10.0.0.2");
    config.limits.time_wait = 1;
    let mut peer = resting_of(config);
    let (now, mut other) = (peer.now, peer.host.remains(peer.now)[0]);
    let (ours, theirs) = (other.record.tuple.local(), other.record.tuple.remote());
    let ends = ((ours.ip(), ours.port()), (theirs.ip(), theirs.port() + 1));
    other.record.tuple = Tuple::new(ends.0, ends.1);
    assert_eq!(peer.host.counters().fin_wait_2_evicted, 0);
    assert!(peer.host.inherit(now, &other));
    assert_eq!((peer.host.fin_wait_2_len(), peer.host.counters().fin_wait_2_evicted), (1, 1));
}

#[test]
fn what_is_taken_is_forgotten() {
    let mut peer = waiting();
    let (now, tuple) = (peer.now, peer.host.remains(peer.now)[0].record.tuple);
    assert!(peer.host.is_known(&tuple));
    assert_eq!(peer.host.take_remains(now).len(), 1);
    assert!(!peer.host.is_known(&tuple));
    assert_eq!((peer.host.time_wait_len(), peer.host.take_remains(now).len()), (0, 0));
    let mut orphan = resting_of(super::pair::config("10.0.0.2"));
    assert_eq!(orphan.host.take_remains(orphan.now).len(), 1);
    assert_eq!((orphan.host.fin_wait_2_len(), states(&orphan)), (0, [State::Listen].into()));
}

#[test]
fn a_record_stays_while_a_connection_opens_in_its_place() {
    let mut peer = waiting();
    peer.wait(Duration::from_secs(1));
    let newer = Say::new(S, 5000, 0).mss(1000).stamp(3000, 0);
    peer.say(newer);
    assert_eq!(peer.hear_one().flags, S | A);
    assert_eq!((peer.host.half_open(), peer.host.time_wait_len()), (1, 1));
    assert!(peer.host.take_remains(peer.now).is_empty());
    assert_eq!(peer.host.time_wait_len(), 1, "nor is it forgotten");
    // The peer gives up: nothing lives between the ends.
    peer.say(Say::new(R, 5001, 0));
    assert_eq!(peer.host.half_open(), 0);
    assert_eq!(peer.host.take_remains(peer.now).len(), 1);
}

#[test]
fn a_host_that_stepped_down_ends_its_connections_alone() {
    let mut peer = Peer::established(super::pair::config("10.0.0.2"));
    peer.host.step_down();
    // Another connection, and a stray segment of one that nobody knows: both are the heir's.
    peer.port = 4001;
    for say in [Say::new(S, 100, 0), Say::new(A, 5, 5), Say::new(F | A, 5, 5)] {
        assert!(peer.exchange(say).is_empty());
    }
    peer.port = 4000;
    peer.say(Say::new(A, 1, 1).data(b"ten bytes!"));
    assert_eq!(peer.read(100).unwrap(), b"ten bytes!");
    let (id, now) = (peer.id(), peer.now);
    peer.host.close(now, id);
    assert!(!peer.hear().is_empty());
    peer.exchange(Say::new(F | A, 11, 2));
    let (remains, now) = (peer.host.take_remains(peer.now), peer.now);
    assert_eq!((remains.len(), peer.host.connections()), (1, 0));
    assert!(remains[0].record.expires.since(now) > Duration::from_secs(59));
    // The peer's FIN again: the record that answers it is the heir's.
    assert!(peer.exchange(Say::new(F | A, 11, 2)).is_empty());
}

#[test]
fn a_handshake_that_has_begun_is_completed_by_the_old_host() {
    let mut peer = Peer::listening(super::pair::config("10.0.0.2"));
    peer.say(Say::new(S, 0, 0));
    assert_eq!(peer.hear_one().flags, S | A);
    peer.host.step_down();
    peer.say(Say::new(A, 1, 1));
    assert_eq!((peer.host.connections(), peer.host.half_open()), (1, 0));
}

#[test]
fn cookies_of_the_host_before_are_taken() {
    let peer = Peer::established(super::pair::config("10.0.0.2"));
    let mut host = peer.host;
    assert!(!host.awaits_cookies(peer.now));
    host.expect_cookies(peer.now);
    assert!(host.awaits_cookies(peer.now));
    assert!(!host.awaits_cookies(peer.now + Duration::from_secs(129)));
}

proptest! {
    #[test]
    fn a_record_is_the_same_as_bytes(
        words: [u32; 4],
        window: u16,
        flags in 0_u8..16,
        v6: bool,
        left_ms in 1_u32..200_000,
    ) {
        let now = Instant::from_millis(5_000);
        let ips = if v6 { ["fd00::2", "fd00::1:2"] } else { ["10.0.0.2", "192.0.2.7"] };
        let [ours, theirs] = ips.map(|ip| ip.parse().unwrap());
        let tuple = Tuple::new((ours, words[3] as u16), (theirs, (words[3] >> 16) as u16));
        let record = Record {
            tuple,
            snd_nxt: Seq(words[0]),
            rcv_nxt: Seq(words[1]),
            stamp: (flags & 1 != 0).then_some(words[2]),
            window,
            is_holder: flags & 2 != 0,
            is_marked: flags & 4 != 0,
            entered: now,
            expires: now + Duration::from_millis(left_ms.into()),
        };
        let remains = Remains { record, waits_for_fin: flags & 8 != 0 };
        let mut bytes = Vec::new();
        remains.encode(now, &mut bytes);
        prop_assert_eq!(Remains::decode(now, &bytes), Some((remains, bytes.len())));
        prop_assert_eq!(Remains::decode(now, &bytes[..bytes.len() - 1]), None);
        prop_assert_eq!(bytes.len(), Remains::BYTES[usize::from(v6)]);
    }

    #[test]
    fn any_bytes_are_a_record_or_none(bytes: Vec<u8>) {
        let now = Instant::from_millis(1);
        if let Some((remains, len)) = Remains::decode(now, &bytes) {
            let mut host = Host::new(super::pair::config("10.0.0.2")).unwrap();
            prop_assert!(len <= bytes.len());
            host.inherit(now, &remains);
        }
    }
}
