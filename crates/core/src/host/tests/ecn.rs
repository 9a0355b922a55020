//! Explicit congestion notification (RFC 3168): which end asks, marks, answers and slows down.

use std::vec;

use super::peer::{A, Peer, R, S, Say, reno};
use crate::config::{Algorithm, Config, Ecn};
use crate::time::Duration;
use crate::wire::tcp::Flags;

const E: Flags = Flags::ECE;
const W: Flags = Flags::CWR;
/// Traffic classes: may be marked, was marked.
const ECT0: u8 = 2;
const CE: u8 = 3;

fn with(ecn: Ecn) -> Config {
    let mut config = reno();
    config.tcp.ecn = ecn;
    config
}

/// A connection that the peer opened asking for ECN.
pub(super) fn agreed() -> Peer {
    agreed_by(with(Ecn::Passive))
}

fn agreed_by(config: Config) -> Peer {
    let mut peer = Peer::listening(config);
    peer.say(Say::new(S | E | W, 0, 0).mss(1000));
    assert_eq!(peer.hear_one().flags, S | A | E);
    assert_eq!(peer.marks.1, 0, "no SYN may be marked");
    peer.say(Say::new(A, 1, 1));
    peer.accept();
    peer
}

#[test]
fn a_syn_that_asks_for_ecn_gets_it_unless_it_is_off() {
    for (ecn, flags, agrees) in [
        (Ecn::Passive, S | E | W, true),
        (Ecn::Active, S | E | W, true),
        (Ecn::Off, S | E | W, false),
        (Ecn::Passive, S, false),
        (Ecn::Passive, S | E, false),
        (Ecn::Passive, S | W, false),
    ] {
        let mut peer = Peer::listening(with(ecn));
        peer.say(Say::new(flags, 0, 0));
        assert_eq!(peer.hear_one().flags.contains(E), agrees, "{ecn:?} {flags:?}");
    }
}

#[test]
fn an_active_open_asks_once_and_believes_only_a_plain_yes() {
    for (answer, agreed) in [(S | A | E, true), (S | A, false), (S | A | E | W, false)] {
        let (mut peer, syn) = Peer::opening(with(Ecn::Active));
        assert_eq!(syn.flags, S | E | W);
        peer.say(Say::new(answer, 0, 1).mss(1000));
        peer.hear();
        assert_eq!(peer.host.info(peer.id()).unwrap().ecn, agreed, "{answer:?}");
    }
    let (mut peer, _) = Peer::opening(with(Ecn::Active));
    assert_eq!(peer.wait_for_one().flags, S, "the second does not ask");
    peer.say(Say::new(S | A | E, 0, 1));
    peer.hear();
    assert!(!peer.host.info(peer.id()).unwrap().ecn);
    let (_, syn) = Peer::opening(with(Ecn::Passive));
    assert_eq!(syn.flags, S);
}

#[test]
fn new_data_may_be_marked_and_nothing_else() {
    let mut peer = agreed();
    peer.write(1000);
    peer.hear_one();
    assert_eq!(peer.marks.1, ECT0);
    let again = peer.wait_for_one();
    assert_eq!((again.seq, peer.marks.1), (1, 0), "not a retransmission");
    peer.say(Say::new(A, 1, 1001));
    peer.say(Say::new(A, 1, 1001).data(&[0; 1000]));
    peer.say(Say::new(A, 1001, 1001).data(&[0; 1000]));
    peer.hear_one();
    assert_eq!(peer.marks.1, 0, "not an ACK");
}

#[test]
fn marks_are_echoed_until_the_peer_says_that_it_heard() {
    let mut peer = agreed();
    let mut seq = 1;
    let mut echo = |peer: &mut Peer, flags, class| {
        for (flags, class) in [(flags, class), (Flags::default(), ECT0)] {
            peer.say(Say { class, ..Say::new(A | flags, seq, 1).data(&[0; 1000]) });
            seq += 1000;
        }
        peer.hear_one().flags.contains(E)
    };
    let none = Flags::default();
    assert!(!echo(&mut peer, none, ECT0));
    assert!(echo(&mut peer, none, CE));
    assert!(echo(&mut peer, none, ECT0), "and on");
    assert!(!echo(&mut peer, W, ECT0));
    assert!(echo(&mut peer, W, CE), "marked anew");
}

#[test]
fn the_window_is_halved_once_a_round_trip_and_cwr_follows() {
    let mut peer = agreed();
    peer.write(40_000);
    assert_eq!(peer.hear().len(), 10);
    let window = |peer: &Peer| peer.host.info(peer.id()).unwrap().cwnd_bytes;
    peer.say(Say::new(A | E, 1, 2001));
    assert_eq!(window(&peer), 5000);
    assert!(peer.hear().is_empty(), "eight are out, five may be");
    peer.say(Say::new(A | E, 1, 6001));
    assert_eq!(window(&peer), 5000, "the same round trip");
    let sent = peer.hear();
    assert_eq!(sent.len(), 1);
    assert!(sent[0].flags.contains(W));
    peer.say(Say::new(A, 1, 11_001));
    assert!(peer.hear().iter().all(|heard| !heard.flags.contains(W)), "once");
    let before = window(&peer);
    peer.say(Say::new(A | E, 1, 12_001));
    assert!(window(&peer) < before, "the next round trip");
    assert_eq!(peer.host.counters().ecn_reductions, 2);
}

#[test]
fn marks_at_a_window_of_one_segment_slow_the_sender_further() {
    let mut config = with(Ecn::Passive);
    config.tcp.congestion.algorithm = Algorithm::Cubic;
    let mut peer = agreed_by(config);
    let info = |peer: &Peer| peer.host.info(peer.id()).unwrap();
    peer.write(100_000);
    let mut heard = peer.hear();
    // All of it is marked, each time.
    while info(&peer).cwnd_bytes > 1000 {
        peer.wait(Duration::from_millis(20));
        let last = heard.last().unwrap();
        peer.say(Say::new(A | E, 1, last.seq + last.len as u32));
        heard = peer.hear();
    }
    for timeouts in [1, 2, 4, 8] {
        assert_eq!(heard.len(), 1);
        peer.say(Say::new(A | E, 1, heard[0].seq + 1000));
        assert!(peer.hear().is_empty(), "not in the turn in which the mark came");
        let (rto, from) = (info(&peer).rto, peer.now);
        heard = vec![peer.wait_for_one()];
        let waited = peer.now.since(from).as_millis();
        assert!(waited.abs_diff(timeouts * rto.as_millis()) <= 100, "{timeouts}: {waited} ms");
    }
    peer.say(Say::new(A, 1, heard[0].seq + 1000));
    assert_eq!(peer.hear().len(), 2, "not marked any more");
    assert_eq!(info(&peer).pace, None);
}

#[test]
fn a_timeout_is_told_of_too() {
    let mut peer = agreed();
    peer.write(1000);
    peer.hear();
    peer.wait_for_one();
    peer.say(Say::new(A, 1, 1001));
    peer.write(1000);
    assert!(peer.hear_one().flags.contains(W));
}

/// Marks and echoes mean nothing to the host, which has not agreed on ECN with `peer`.
pub(super) fn ignores_ecn(peer: &mut Peer) {
    peer.say(Say { class: CE, ..Say::new(A, 1, 1).data(&[0; 1000]) });
    peer.say(Say { class: CE, ..Say::new(A, 1001, 1).data(&[0; 1000]) });
    assert!(!peer.hear_one().flags.contains(E));
    peer.write(10_000);
    peer.hear();
    assert_eq!(peer.marks.1, 0);
    peer.say(Say::new(A | E, 2001, 10_001));
    assert!(peer.host.info(peer.id()).unwrap().cwnd_bytes > 10_000);
}

#[test]
fn without_agreement_marks_and_echoes_mean_nothing() {
    let mut peer = Peer::established(with(Ecn::Passive));
    ignores_ecn(&mut peer);
    peer.say(Say::new(R, 2001, 0));
    peer.wait(Duration::from_millis(1));
}
