//! Recovery without selective acknowledgements: RFC 6582 §3.2.

use crate::host::tests::peer::{A, Peer, Say, reno};
use crate::time::Duration;
use std::vec::Vec;

fn seqs(peer: &mut Peer) -> Vec<u32> {
    peer.hear().iter().map(|heard| heard.seq).collect()
}

/// The peer says ACK `ack` so many times, and the host sends these.
fn acks(peer: &mut Peer, ack: u32, times: usize) -> Vec<u32> {
    let mut sent = Vec::new();
    for _ in 0..times {
        peer.say(Say::new(A, 1, ack));
        sent.extend(seqs(peer));
    }
    sent
}

/// Ten segments are out.
fn in_flight() -> Peer {
    let mut peer = Peer::established(reno());
    peer.write(10_000);
    assert_eq!(peer.hear().len(), 10);
    peer
}

fn recoveries(peer: &Peer) -> u64 {
    peer.host.counters().fast_recoveries
}

#[test]
fn duplicates_from_before_the_last_recovery_start_no_other() {
    let mut peer = in_flight();
    assert_eq!(acks(&mut peer, 1, 3), [1]);
    acks(&mut peer, 10_001, 1);
    peer.write(5000);
    assert_eq!(seqs(&mut peer), [10_001, 11_001, 12_001, 13_001, 14_001]);
    // What was sent again may have arrived twice: nothing beyond it is known to be missing.
    assert_eq!(acks(&mut peer, 10_001, 5), []);
    assert_eq!(recoveries(&peer), 1);
    assert_eq!(acks(&mut peer, 11_001, 4), [11_001], "one byte beyond, and it is");
    assert_eq!(recoveries(&peer), 2);
}

#[test]
fn a_partial_ack_lets_as_much_go_as_has_arrived_and_no_more() {
    let mut peer = in_flight();
    assert_eq!(acks(&mut peer, 1, 3), [1]);
    peer.write(20_000);
    assert_eq!(acks(&mut peer, 1, 6), [10_001, 11_001, 12_001, 13_001]);
    // Five segments are acknowledged of fourteen: cwnd falls by five and grows by one, which is
    // room for the next hole and one segment more.
    assert_eq!(acks(&mut peer, 5001, 1), [5001, 14_001]);
    assert_eq!(recoveries(&peer), 1, "it goes on");
    acks(&mut peer, 15_001, 1);
    let info = peer.host.info(peer.id()).unwrap();
    assert_eq!((info.cwnd_bytes, info.in_flight_bytes), (5000, 5000));
}

#[test]
fn after_a_timeout_no_recovery_starts_before_all_is_acked() {
    let mut peer = in_flight();
    let again = peer.wait(Duration::from_secs(1));
    assert_eq!(again[0].seq, 1);
    let threshold = peer.host.info(peer.id()).unwrap().ssthresh_bytes;
    acks(&mut peer, 1, 9);
    acks(&mut peer, 4001, 5);
    acks(&mut peer, 10_001, 1);
    peer.write(5000);
    assert!(!seqs(&mut peer).is_empty());
    acks(&mut peer, 10_001, 5);
    let info = peer.host.info(peer.id()).unwrap();
    assert_eq!((recoveries(&peer), info.ssthresh_bytes), (0, threshold));
    assert_eq!(acks(&mut peer, 11_001, 4).first(), Some(&11_001));
    assert_eq!(recoveries(&peer), 1);
}
