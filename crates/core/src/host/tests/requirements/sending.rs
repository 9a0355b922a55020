//! The sender: windows that shrink, keepalives, probes: RFC 9293 §3.8.4, §3.8.6.

use crate::config::TcpConfig;
use crate::host::tests::peer::{A, Peer, Say, plain};
use crate::tcp::{Keepalive, State};
use crate::time::Duration;
use std::vec::Vec;

#[test]
fn what_lies_beyond_a_shrunk_window_may_be_sent_again() {
    let mut peer = Peer::established(plain());
    peer.write(5000);
    peer.hear();
    peer.say(Say::new(A, 1, 1).window(500));
    let again = peer.wait(Duration::from_secs(1)).remove(0);
    assert_eq!((again.seq, again.len), (1, 1000), "half of it beyond the edge");
}

#[test]
fn a_zero_window_is_probed_and_an_answering_peer_never_given_up() {
    let mut peer = Peer::established(plain());
    peer.write(5000);
    assert_eq!(peer.hear().len(), 5);
    peer.say(Say::new(A, 1, 1).window(0));
    let started = peer.now;
    let mut gaps = Vec::new();
    // The user's patience is 300 s.
    while peer.now.since(started) < Duration::from_secs(1000) {
        let asked = peer.now;
        let mut heard = std::vec![peer.wait_for_one()];
        assert_eq!(heard[0].seq, 1);
        gaps.push(peer.now.since(asked).as_secs());
        // Whatever comes is answered, and none of it taken.
        while !heard.is_empty() {
            peer.say(Say::new(A, 1, 1).window(0));
            heard = peer.hear();
        }
    }
    assert_eq!(&gaps[..7], [1, 2, 4, 8, 16, 32, 60]);
    assert_eq!(peer.state(), State::Established);
    peer.say(Say::new(A, 1, 1).window(5000));
    peer.hear();
    peer.say(Say::new(A, 1, 5001).window(5000));
    assert_eq!(peer.host.info(peer.id()).unwrap().in_flight_bytes, 0);
}

#[test]
fn keepalives_are_off_until_asked_for_and_off_again() {
    let mut peer = Peer::established(plain());
    assert!(peer.wait(Duration::from_secs(86_400)).is_empty());
    let id = peer.id();
    for (keepalive, probes) in [(Some(Keepalive::by_default(&TcpConfig::default())), 1), (None, 0)]
    {
        let mut options = peer.host.options(id).unwrap();
        options.keepalive = keepalive;
        peer.host.set_options(peer.now, id, options).unwrap();
        assert!(peer.wait(Duration::from_secs(2 * 3600 - 1)).is_empty(), "two hours by default");
        assert_eq!(peer.wait(Duration::from_secs(1)).len(), probes);
        peer.say(Say::new(A, 1, 1));
    }
}

#[test]
fn keepalives_are_for_silence_alone() {
    let mut peer = Peer::established(plain());
    let id = peer.id();
    let mut options = peer.host.options(id).unwrap();
    let (idle, interval) = (Duration::from_secs(10), Duration::from_secs(5));
    options.keepalive = Some(Keepalive { idle, interval, probes: 3 });
    peer.host.set_options(peer.now, id, options).unwrap();
    // Data and ACKs that arrive put the probe off.
    let mut seq = 1;
    for _ in 0..5 {
        assert!(peer.wait(Duration::from_secs(9)).iter().all(|heard| heard.seq == 1));
        peer.say(Say::new(A, seq, 1).data(b"x"));
        seq += 1;
        peer.wait(Duration::from_secs(9));
        peer.say(Say::new(A, seq, 1));
    }
    assert_eq!(peer.host.counters().keepalive_probes, 0);
    // While data is in flight the retransmissions ask, and no probe is sent.
    peer.write(10);
    peer.hear();
    let heard = peer.wait(Duration::from_secs(60));
    assert!(heard.len() > 3 && heard.iter().all(|heard| heard.len == 10), "{heard:?}");
    assert_eq!(peer.host.counters().keepalive_probes, 0);
    assert_eq!(peer.state(), State::Established);
}

#[test]
fn one_lost_answer_does_not_end_a_connection_that_is_kept_alive() {
    let mut peer = Peer::established(plain());
    let id = peer.id();
    let mut options = peer.host.options(id).unwrap();
    let (idle, interval) = (Duration::from_secs(10), Duration::from_secs(5));
    options.keepalive = Some(Keepalive { idle, interval, probes: 3 });
    peer.host.set_options(peer.now, id, options).unwrap();
    for _ in 0..10 {
        // Two of three probes, or their answers, are lost each time.
        assert_eq!(peer.wait(Duration::from_secs(20)).len(), 3);
        peer.say(Say::new(A, 1, 1));
    }
    assert_eq!(peer.state(), State::Established);
}
