//! TIME-WAIT records whose time is over and that no turn has dropped yet, as there are when more
//! are due than a turn drops. They count for nothing, and none is left beside a new connection.

use super::old::*;
use super::peer::*;
use crate::config::TimeWaitState;
use crate::error::ConnectError;
use crate::tcp::State;
use crate::time::Duration;
use std::vec::Vec;

/// More records than some turns drop.
const OTHERS: u32 = 20_000;
const TICK: Duration = Duration::from_millis(1);

/// A host with a record whose time is over, behind others that are due before it.
fn outlasted(old: Old) -> Peer {
    outlasted_of(old, usize::MAX)
}

/// The peer of `outlasted`, with as many half-open handshakes at most.
fn outlasted_of(old: Old, half_open: usize) -> Peer {
    let mut config = old.config();
    config.limits.syn_cache = half_open.min(config.limits.syn_cache);
    let is_compact = old.state == TimeWaitState::Compact;
    let mut peer = old.waiting_of(config, if is_compact { OTHERS } else { 0 });
    peer.now = peer.now + TERM;
    if is_compact {
        // A whole block is in no queue: what comes before its timer is looked at meets it.
        peer.host.on_time(peer.now);
    }
    assert!(left(&peer).is_some_and(|record| record.is_over(peer.now)), "{old:?}");
    peer
}

/// Asserts that no record is left of the connection before this one.
fn assert_ended(peer: &Peer, old: Old) {
    let reused = u64::from(old.state == TimeWaitState::Compact);
    assert_eq!((left(peer), counted(peer)), (None, (0, 0, reused)), "{old:?}");
}

#[test]
fn an_old_syn_opens_and_the_record_ends_with_the_handshake() {
    for old in Old::all() {
        for layout in LAYOUTS {
            let mut peer = outlasted(old);
            let syn = old.syn(layout, false);
            say_syn(&mut peer, layout, &syn);
            assert_eq!((peer.host.half_open(), counted(&peer)), (1, (0, 0, 0)), "{old:?}");
            let answer = peer.hear_one();
            assert_eq!((answer.flags, answer.ack), (S | A, syn.seq + 1), "{old:?}, {layout:?}");
            assert_eq!(peer.host_isn, clock_isn(&peer));
            let is_left = old.state == TimeWaitState::Compact;
            assert_eq!(left(&peer).is_some(), is_left, "its turn has not come");
            complete(&mut peer, &syn, &answer);
            assert_ended(&peer, old);
        }
    }
}

/// The twin: a tick before its time is over the record refuses the same SYN.
#[test]
fn an_old_syn_opens_nothing_before_the_record_s_time_is_over() {
    for old in Old::all() {
        for layout in LAYOUTS {
            let mut peer = old.waiting();
            peer.now = peer.now + (TERM - TICK);
            say_syn(&mut peer, layout, &old.syn(layout, false));
            assert_eq!(peer.hear_text(), [". 2:2(0) ack 2"], "{old:?}, {layout:?}");
            assert_eq!((peer.host.half_open(), counted(&peer)), (0, (0, 1, 0)));
        }
    }
}

/// Another's handshake takes the only place.
fn fill(peer: &mut Peer) {
    let isn = peer.host_isn;
    peer.port = 4001;
    peer.say(Say::new(S, 0, 0));
    peer.hear_one();
    (peer.port, peer.host_isn) = (4000, isn);
}

#[test]
fn a_syn_without_room_gets_a_cookie_and_an_ack_ends_the_record() {
    for old in Old::all() {
        for layout in LAYOUTS {
            let mut peer = outlasted_of(old, 1);
            fill(&mut peer);
            let syn = old.syn(layout, false);
            say_syn(&mut peer, layout, &syn);
            let answer = peer.hear_one();
            assert_eq!((answer.flags, answer.ack), (S | A, syn.seq + 1), "{old:?}, {layout:?}");
            assert_eq!((peer.host.counters().cookies_sent, peer.host.half_open()), (1, 1));
            let is_left = old.state == TimeWaitState::Compact;
            assert_eq!(left(&peer).is_some(), is_left, "its turn has not come");
            complete(&mut peer, &syn, &answer);
            assert_eq!(peer.host.counters().cookies_accepted, 1);
            assert_ended(&peer, old);
        }
    }
}

/// The twin: no cookie promises what TIME-WAIT asks of an ISN.
#[test]
fn a_syn_without_room_gets_an_entry_before_the_record_expires() {
    for old in Old::all() {
        for layout in LAYOUTS {
            let mut config = old.config();
            config.limits.syn_cache = 1;
            let mut peer = old.waiting_of(config, 0);
            fill(&mut peer);
            let syn = old.syn(layout, true);
            say_syn(&mut peer, layout, &syn);
            let answer = peer.hear_one();
            assert_eq!((answer.flags, peer.host.half_open()), (S | A, 2), "{old:?}, {layout:?}");
            let counters = peer.host.counters();
            assert_eq!((counters.cookies_sent, counters.syn_cache_over_limit), (0, 1));
            assert_eq!(counted(&peer), (1, 0, 0));
            complete(&mut peer, &syn, &answer);
            assert_eq!((left(&peer), counted(&peer)), (None, (1, 0, 1)), "{old:?}, {layout:?}");
        }
    }
}

/// The twin of that: an old SYN takes no place.
#[test]
fn an_old_syn_without_room_is_answered_by_the_record() {
    for old in Old::all() {
        for layout in LAYOUTS {
            let mut config = old.config();
            config.limits.syn_cache = 1;
            let mut peer = old.waiting_of(config, 0);
            fill(&mut peer);
            say_syn(&mut peer, layout, &old.syn(layout, false));
            assert_eq!(peer.hear_text(), [". 2:2(0) ack 2"], "{old:?}, {layout:?}");
            assert_eq!((peer.host.half_open(), counted(&peer)), (1, (0, 1, 0)));
        }
    }
}

#[test]
fn what_is_no_syn_comes_for_nobody() {
    for old in Old::all() {
        for (what, say, answer) in [
            ("its last FIN", Say::new(F | A, 1, 2), Some("R 2:2(0)")),
            ("an ACK", Say::new(A, 2, 2), Some("R 2:2(0)")),
            ("a stray ACK", Say::new(A, 900_000, 2), Some("R 2:2(0)")),
            ("the RST that ends a record", Say::new(R | A, 2, 2), None),
        ] {
            for say in [say.clone(), say.stamp(LAST_STAMP, 0)] {
                let mut peer = outlasted(old);
                peer.say(say);
                let is_compact = old.state == TimeWaitState::Compact;
                let expected: Vec<_> = answer.into_iter().collect();
                assert_eq!(peer.hear_text(), expected, "{old:?}: {what}");
                assert_eq!(left(&peer).is_some(), is_compact, "{old:?}: {what}");
                let counters = peer.host.counters();
                let heard = (counters.time_wait_restarted, counters.time_wait_taken_over);
                assert_eq!(heard, (0, 0), "{old:?}: {what}");
            }
        }
    }
}

/// Its handshake began while TIME-WAIT had a record, which then answered for the old connection.
#[test]
fn a_handshake_answers_for_itself_once_the_record_expires() {
    for old in Old::all() {
        for layout in LAYOUTS {
            let mut peer = old.waiting();
            let old_isn = peer.host_isn;
            peer.now = peer.now + (TERM - TICK);
            let syn = old.syn(layout, true);
            say_syn(&mut peer, layout, &syn);
            let answer = peer.hear_one();
            assert_eq!((answer.flags, left(&peer).is_some()), (S | A, true), "{old:?}");
            peer.now = peer.now + TICK;
            let new_isn = core::mem::replace(&mut peer.host_isn, old_isn);
            peer.say(old.last_fin());
            peer.host_isn = new_isn;
            let answers: Vec<_> = peer.hear_text();
            assert_eq!(answers, [std::format!(". 1:1(0) ack {}", syn.seq + 1)], "{old:?}");
            complete(&mut peer, &syn, &answer);
            assert_eq!((left(&peer), peer.host.time_wait_len()), (None, 0), "{old:?}");
        }
    }
}

#[test]
fn an_open_from_here_takes_its_place_at_once() {
    for old in Old::all() {
        for picks in [false, true] {
            let mut config = old.config();
            config.ephemeral_ports = (80, 80);
            let others = if old.state == TimeWaitState::Compact { OTHERS } else { 0 };
            let mut peer = old.waiting_of(config, others);
            let listener = peer.listener.unwrap();
            peer.host.close_listener(peer.now, listener);
            let (mut local, remote) = peer.ends();
            if picks {
                local.set_port(0);
            }
            peer.now = peer.now + TERM;
            if others > 0 {
                peer.host.on_time(peer.now);
            }
            assert!(left(&peer).is_some_and(|record| record.is_over(peer.now)), "{old:?}");
            let id = peer.host.connect(peer.now, local, remote).unwrap();
            assert_eq!((left(&peer), counted(&peer)), (None, (0, 0, 1)), "{old:?}");
            assert_eq!(peer.host.counters().ports_in_time_wait, 0);
            peer.id = Some(id);
            assert_eq!(peer.hear_one().flags, S);
            assert_eq!(peer.host_isn, clock_isn(&peer));
            // Nothing of the old connection can be under way, so its numbers are as good as any.
            assert_eq!(peer.exchange(old.say(Say::new(S | A, 0, 1))), [". 1:1(0) ack 1"]);
            assert_eq!(peer.state(), State::Established, "{old:?}");
        }
    }
}

/// The twin: a tick before its time is over the end is in use, or is taken with the way back.
#[test]
fn an_open_from_here_finds_the_record_before_its_time_is_over() {
    for old in Old::all() {
        for picks in [false, true] {
            let mut config = old.config();
            config.ephemeral_ports = (80, 80);
            let mut peer = old.waiting_of(config, 0);
            let listener = peer.listener.unwrap();
            peer.host.close_listener(peer.now, listener);
            let (mut local, remote) = peer.ends();
            if picks {
                local.set_port(0);
            }
            peer.now = peer.now + (TERM - TICK);
            let opened = peer.host.connect(peer.now, local, remote);
            assert!(left(&peer).is_some(), "{old:?}");
            assert_eq!(peer.host.counters().ports_in_time_wait > 0, picks);
            if old.stamped {
                peer.id = opened.ok();
                assert_eq!(peer.hear_one().flags, S);
                assert_eq!(peer.exchange(old.say(Say::new(S | A, 0, 1))), ["R 1:1(0)"]);
                assert_eq!((peer.state(), left(&peer).is_some()), (State::Closed, true));
            } else {
                let error = if picks {
                    ConnectError::AddressNotAvailable
                } else {
                    ConnectError::AddressInUse
                };
                assert_eq!(opened, Err(error), "{old:?}");
            }
        }
    }
}
