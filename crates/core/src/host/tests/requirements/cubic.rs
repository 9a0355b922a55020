//! CUBIC as a host does it: RFC 9438.

use crate::config::Algorithm;
use crate::host::tests::peer::{A, Peer, Say, plain};
use crate::time::Duration;

fn window_and_threshold(peer: &Peer) -> (u32, u32) {
    let info = peer.host.info(peer.id()).unwrap();
    (info.cwnd_bytes, info.ssthresh_bytes)
}

/// Ten segments are out, and the first is lost.
fn after_a_loss(peer: &mut Peer) {
    peer.write(60_000);
    assert_eq!(peer.hear().len(), 10);
    for _ in 0..3 {
        peer.say(Say::new(A, 1, 1));
    }
    assert_eq!(peer.hear_one().seq, 1);
}

#[test]
fn a_loss_leaves_seven_tenths_of_the_window() {
    let mut peer = Peer::established(plain());
    after_a_loss(&mut peer);
    assert_eq!(window_and_threshold(&peer), (7000, 7000));
    peer.say(Say::new(A, 1, 10_001));
    assert_eq!(peer.hear().len(), 7, "nothing grew in the recovery");
}

#[test]
fn after_a_timeout_slow_start_ends_at_seven_tenths() {
    let mut peer = Peer::established(plain());
    peer.write(60_000);
    assert_eq!(peer.hear().len(), 10);
    peer.wait_for_one();
    assert_eq!(window_and_threshold(&peer), (1000, 7000));
}

#[test]
fn a_socket_chooses_the_algorithm_of_its_connection() {
    let mut peer = Peer::established(plain());
    let (id, now) = (peer.id(), peer.now);
    let mut options = peer.host.options(id).unwrap();
    assert_eq!(options.congestion, Algorithm::Cubic);
    options.congestion = Algorithm::Reno;
    peer.host.set_options(now, id, options).unwrap();
    after_a_loss(&mut peer);
    assert_eq!(window_and_threshold(&peer), (5000, 5000));
}

/// A connection that comes back from rest goes on as it was.
#[test]
fn the_curve_outlasts_a_rest() {
    let mut peer = Peer::established(plain());
    after_a_loss(&mut peer);
    peer.say(Say::new(A, 1, 10_001));
    let mut sent = 10_001 + 1000 * peer.hear().len() as u32;
    while sent < 60_001 {
        peer.say(Say::new(A, 1, sent));
        sent += 1000 * peer.hear().len() as u32;
    }
    peer.say(Say::new(A, 1, sent));
    let before = window_and_threshold(&peer);
    peer.wait(Duration::from_secs(10));
    assert_eq!(window_and_threshold(&peer), before);
    peer.write(1000);
    assert_eq!(peer.hear().len(), 1);
    let sustained = before.0 - before.0 / 4;
    assert_eq!(window_and_threshold(&peer).1, sustained, "RFC 2861 §3.1");
}
