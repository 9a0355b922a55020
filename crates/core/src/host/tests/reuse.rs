//! Ends in TIME-WAIT that are taken into use again before its time is over: only where what is left
//! of the old connection can be told from the new one's segments, and with the way back to
//! TIME-WAIT until that is certain.

use super::pair::config;
use super::peer::*;
use crate::config::{Config, TimeWaitState};
use crate::error::Error;
use crate::event::ConnectionId;
use crate::flow::Seq;
use crate::tcp::State;
use crate::time::Duration;
use std::vec::Vec;

const KEPT: [TimeWaitState; 2] = [TimeWaitState::Compact, TimeWaitState::Full];

/// TSvals of the peer: its last one before the connection closed, and of the text that is sent
/// twice.
const LAST_STAMP: u32 = 1002;
const OLD_STAMP: u32 = 1001;

fn stamped(state: TimeWaitState) -> Config {
    let mut config = config("10.0.0.2");
    config.tcp.time_wait.state = state;
    config
}

/// A host in TIME-WAIT after a connection with timestamps. A segment of it is still under way, with
/// the second half of "OLD1OLD2". The peer's next number is 10.
fn waiting(state: TimeWaitState) -> Peer {
    let mut peer = Peer::established_with(stamped(state), |syn| syn.mss(1000).stamp(1000, 0));
    peer.exchange(Say::new(A, 1, 1).stamp(OLD_STAMP, 0).data(b"OLD1"));
    peer.exchange(old_duplicate());
    assert_eq!(peer.read(8).unwrap(), b"OLD1OLD2");
    let id = peer.id();
    peer.host.close(peer.now, id);
    peer.hear();
    peer.exchange(last_fin());
    assert_eq!((peer.host.connections(), peer.host.time_wait_len()), (0, 1));
    peer
}

fn old_duplicate() -> Say {
    Say::new(A, 5, 1).stamp(OLD_STAMP, 0).data(b"OLD2")
}

fn last_fin() -> Say {
    Say::new(F | A, 9, 2).stamp(LAST_STAMP, 0)
}

/// The host opens a connection between the same ends, five milliseconds later; its name, and the
/// ISN of the one before.
fn reopen(peer: &mut Peer) -> (ConnectionId, Seq) {
    peer.now = peer.now + Duration::from_millis(5);
    let ends = ("10.0.0.2:80".parse().unwrap(), "10.0.0.1:4000".parse().unwrap());
    let id = peer.host.connect(peer.now, ends.0, ends.1).unwrap();
    let old_isn = peer.host_isn;
    let syn = peer.hear_one();
    assert_eq!((syn.flags, peer.host.state(id)), (S, State::SynSent));
    peer.id = Some(id);
    (id, old_isn)
}

/// Asserts that all is as if no connection had been opened: the peer's FIN is acknowledged as the
/// old connection did, an old SYN begins nothing, and 2·MSL run.
fn assert_as_before(peer: &mut Peer, old_isn: Seq, state: TimeWaitState) {
    assert_eq!(peer.host.time_wait_len(), 1);
    assert_eq!(peer.host.counters().time_wait_reused, 0);
    peer.host_isn = old_isn;
    assert_eq!(peer.exchange(last_fin()), [". 2:2(0) ack 10"], "{state:?}");
    peer.now = peer.now + Duration::from_secs(1);
    let old_syn = Say::new(S, 0, 0).mss(1000).stamp(OLD_STAMP - 1, 0);
    assert_eq!(peer.exchange(old_syn), [". 2:2(0) ack 10"], "{state:?}");
    peer.wait(Duration::from_secs(61));
    assert_eq!((peer.host.connections(), peer.host.time_wait_len()), (0, 0), "{state:?}");
}

/// What the application reads of "new1new2" where the old segment comes between the two; nothing if
/// the connection does not begin.
fn figure_1(peer: &mut Peer, syn_ack: Say, stamp: Option<u32>) -> Option<Vec<u8>> {
    let heard = peer.exchange(syn_ack);
    if peer.state() != State::Established {
        return None;
    }
    assert_eq!((heard.len(), peer.host.time_wait_len()), (1, 0), "{heard:?}");
    assert_eq!(peer.host.counters().time_wait_reused, 1);
    let begin = peer.isn;
    let say = |peer: &mut Peer, seq, text| {
        let say = Say::new(A, seq, 1).data(text);
        peer.exchange(if let Some(stamp) = stamp { say.stamp(stamp, 0) } else { say });
    };
    // The old one has the numbers of the old connection.
    peer.isn = OLD_ISN;
    peer.exchange(old_duplicate());
    peer.isn = begin;
    say(peer, 1, b"new1");
    say(peer, 5, b"new2");
    Some(peer.read(8).unwrap())
}

/// [`Peer::new`]'s.
const OLD_ISN: Seq = Seq(0xffff_fff0);

#[test]
fn an_ambiguous_peer_is_reset_and_time_wait_goes_on() {
    let syn_ack = Say::new(S | A, 0, 1).mss(1000);
    for state in KEPT {
        for (what, syn_ack) in [
            ("an older timestamp", syn_ack.clone().stamp(LAST_STAMP - 500, 0)),
            ("the same timestamp", syn_ack.clone().stamp(LAST_STAMP, 0)),
            ("no timestamp", syn_ack.clone()),
        ] {
            let mut peer = waiting(state);
            let (id, old_isn) = reopen(&mut peer);
            assert_eq!(peer.exchange(syn_ack), ["R 1:1(0)"], "{state:?}: {what}");
            assert_eq!(peer.state(), State::Closed);
            assert_eq!(peer.host.take_error(id), Some(Error::AddressInUse), "{what}");
            peer.host.close(peer.now, id);
            peer.hear();
            assert_as_before(&mut peer, old_isn, state);
        }
    }
}

/// The twin: what is left of the old connection is distinguished from the new one's by its
/// timestamp, or by its number.
#[test]
fn a_distinguishable_peer_opens_and_old_duplicates_stay_out() {
    for state in KEPT {
        let newer = LAST_STAMP + 1;
        let mut peer = waiting(state);
        reopen(&mut peer);
        let syn_ack = Say::new(S | A, 0, 1).mss(1000).stamp(newer, 0);
        let read = figure_1(&mut peer, syn_ack, Some(newer));
        assert_eq!(read.as_deref(), Some(&b"new1new2"[..]), "{state:?}");
        // Beyond the FIN's number the same timestamp will do, or none.
        for stamp in [Some(LAST_STAMP), None] {
            let mut peer = waiting(state);
            reopen(&mut peer);
            peer.isn = OLD_ISN + 10;
            let syn_ack = Say::new(S | A, 0, 1).mss(1000);
            let syn_ack = if let Some(stamp) = stamp { syn_ack.stamp(stamp, 0) } else { syn_ack };
            let read = figure_1(&mut peer, syn_ack, stamp);
            assert_eq!(read.as_deref(), Some(&b"new1new2"[..]), "{state:?}, {stamp:?}");
        }
    }
}

/// An open from outside (RFC 6191 §2), with timestamps.
#[test]
fn a_timestamp_tells_an_old_duplicate_where_the_peer_opens() {
    for state in KEPT {
        let mut peer = waiting(state);
        let newer = LAST_STAMP + 1;
        peer.exchange(Say::new(S, 0, 0).mss(1000).stamp(newer, 0));
        peer.say(Say::new(A, 1, 1).stamp(newer, 0));
        peer.accept();
        peer.exchange(old_duplicate());
        peer.exchange(Say::new(A, 1, 1).stamp(newer, 0).data(b"new1"));
        peer.exchange(Say::new(A, 5, 1).stamp(newer, 0).data(b"new2"));
        assert_eq!(peer.read(8).unwrap(), b"new1new2", "{state:?}");
    }
}

#[test]
fn an_open_that_comes_to_nothing_leaves_time_wait_as_it_was() {
    for state in KEPT {
        // Its user thinks better of it.
        let mut peer = waiting(state);
        let (id, old_isn) = reopen(&mut peer);
        peer.host.abort(peer.now, id);
        peer.hear();
        assert_as_before(&mut peer, old_isn, state);
        // The peer refuses.
        let mut peer = waiting(state);
        let (id, old_isn) = reopen(&mut peer);
        assert!(peer.exchange(Say::new(R | A, 0, 1)).is_empty());
        assert_eq!(peer.host.take_error(id), Some(Error::ConnectionRefused));
        peer.host.close(peer.now, id);
        assert_as_before(&mut peer, old_isn, state);
    }
}

#[test]
fn an_old_syn_that_crosses_ours_is_ignored_and_a_new_one_opens() {
    for state in KEPT {
        let mut peer = waiting(state);
        let (id, old_isn) = reopen(&mut peer);
        let syn = |stamp| Say::new(S, 0, 0).mss(1000).stamp(stamp, 0);
        assert!(peer.exchange(syn(OLD_STAMP)).is_empty(), "{state:?}");
        assert_eq!(peer.host.state(id), State::SynSent);
        peer.exchange(syn(LAST_STAMP + 1));
        assert_eq!((peer.host.state(id), peer.host.time_wait_len()), (State::SynReceived, 1));
        peer.exchange(Say::new(A, 1, 1).stamp(LAST_STAMP + 1, 0));
        assert_eq!((peer.host.state(id), peer.host.time_wait_len()), (State::Established, 0));
        assert_ne!(peer.host_isn, old_isn);
    }
}

/// Our last ACK was lost. The peer repeats its FIN, or challenges our SYN: an RST would tell it
/// that something was lost.
#[test]
fn a_peer_in_last_ack_hears_of_its_fin_and_the_open_goes_on() {
    for state in KEPT {
        let challenge = Say::new(A, 10, 2).stamp(LAST_STAMP, 0);
        for old in [last_fin(), challenge] {
            let mut peer = waiting(state);
            let (id, old_isn) = reopen(&mut peer);
            let new_isn = core::mem::replace(&mut peer.host_isn, old_isn);
            assert_eq!(peer.exchange(old.clone()), [". 2:2(0) ack 10"], "{state:?}: {old:?}");
            peer.host_isn = new_isn;
            assert_eq!((peer.host.state(id), peer.host.time_wait_len()), (State::SynSent, 1));
            let syn_ack = Say::new(S | A, 0, 1).mss(1000).stamp(LAST_STAMP + 1, 0);
            assert_eq!(peer.exchange(syn_ack), [". 1:1(0) ack 1"], "{state:?}");
            assert_eq!((peer.host.state(id), peer.host.time_wait_len()), (State::Established, 0));
        }
    }
}

#[test]
fn an_open_after_an_answer_from_time_wait_has_a_newer_timestamp() {
    for state in KEPT {
        let mut peer = waiting(state);
        peer.now = peer.now + Duration::from_secs(1);
        let stray = Say::new(A, 50_000_000, 2).stamp(LAST_STAMP + 7, 0);
        peer.say(stray);
        let answer = peer.hear_one().options.timestamps.unwrap().value;
        let ends = ("10.0.0.2:80".parse().unwrap(), "10.0.0.1:4000".parse().unwrap());
        peer.host.connect(peer.now, ends.0, ends.1).unwrap();
        let syn = peer.hear_one().options.timestamps.unwrap().value;
        assert!((syn.wrapping_sub(answer) as i32) > 0, "{state:?}: {answer}, {syn}");
    }
}

/// The peer waits for the ACK of its FIN, and a stranger's SYN is taken for its next one.
#[test]
fn a_strangers_syn_does_not_keep_the_peer_from_its_last_ack() {
    for state in KEPT {
        let mut peer = waiting(state);
        let old_isn = peer.host_isn;
        let strange = Say::new(S, 5000, 0).mss(1000).stamp(LAST_STAMP + 1, 0);
        assert_eq!(peer.exchange(strange), ["S 0:0(0) ack 5001"]);
        assert_eq!((peer.host.half_open(), peer.host.time_wait_len()), (1, 1));
        let new_isn = core::mem::replace(&mut peer.host_isn, old_isn);
        for _ in 0..3 {
            peer.now = peer.now + Duration::from_millis(10);
            assert_eq!(peer.exchange(last_fin()), [". 2:2(0) ack 10"], "{state:?}");
        }
        // The handshake is where it was.
        peer.host_isn = new_isn;
        peer.say(Say::new(A, 5001, 1).stamp(LAST_STAMP + 1, 0));
        peer.accept();
        assert_eq!((peer.state(), peer.host.time_wait_len()), (State::Established, 0));
    }
}

#[test]
fn a_repeated_fin_brings_the_timestamp_that_counts_from_then_on() {
    for state in KEPT {
        let mut peer = waiting(state);
        let later = LAST_STAMP + 30_000;
        peer.say(Say::new(F | A, 9, 2).stamp(later, 0));
        assert_eq!(peer.hear_one().options.timestamps.unwrap().echo, later, "{state:?}");
        peer.now = peer.now + Duration::from_secs(1);
        let syn = |stamp| Say::new(S, 0, 0).mss(1000).stamp(stamp, 0);
        assert_eq!(peer.exchange(syn(later)), [". 2:2(0) ack 10"], "{state:?}");
        assert_eq!(peer.exchange(syn(later + 1)), ["S 0:0(0) ack 1"], "{state:?}");
    }
}

#[test]
fn a_fin_without_the_agreed_timestamp_restarts_nothing() {
    for state in KEPT {
        let mut peer = waiting(state);
        peer.wait(Duration::from_secs(30));
        assert!(peer.exchange(Say::new(F | A, 9, 2)).is_empty(), "{state:?}");
        peer.wait(Duration::from_secs(31));
        assert_eq!(peer.host.time_wait_len(), 0, "{state:?}");
    }
}
