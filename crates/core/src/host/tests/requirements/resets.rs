//! Blind attacks: RFC 5961.

use crate::host::tests::peer::{A, Peer, R, S, Say, plain};
use crate::tcp::State;
use crate::time::Duration;

#[test]
fn what_is_challenged_is_dropped_whole() {
    for flags in [R, S] {
        let mut peer = Peer::established(plain());
        // Its text, its window, its acknowledgement: nothing of it counts.
        peer.write(100);
        peer.hear_one();
        peer.say(Say::new(flags | A, 2, 101).window(7).data(b"poison"));
        assert_eq!(peer.hear_text(), [". 101:101(0) ack 1"]);
        let info = peer.host.info(peer.id()).unwrap();
        assert_eq!((info.in_flight_bytes, info.peer_window_bytes), (100, 60_000));
        assert!(peer.read(9).is_err());
        // And what comes next is taken as ever.
        peer.say(Say::new(A, 1, 101).data(b"good"));
        assert_eq!(peer.read(9).unwrap(), b"good");
    }
}

#[test]
fn the_reset_that_answers_a_challenge_ends_the_connection() {
    let mut peer = Peer::established(plain());
    // The peer has restarted and opens anew from the same port.
    let challenge = {
        peer.say(Say::new(S, 777, 0));
        peer.hear_one()
    };
    assert_eq!((challenge.flags, challenge.ack), (A, 1));
    // It knows nothing of that ACK and resets with its number (RFC 9293 §3.10.7.1).
    peer.say(Say::new(R, challenge.ack, 0));
    assert_eq!(peer.state(), State::Closed);
}

#[test]
fn a_window_s_edges_decide_between_reset_challenge_and_silence() {
    // The window is 1..65,536.
    for (seq, challenged, state) in [
        (0, false, State::Established),
        (1, false, State::Closed),
        (2, true, State::Established),
        (65_535, true, State::Established),
        (65_536, false, State::Established),
    ] {
        let mut peer = Peer::established(plain());
        let offered = peer.host.info(peer.id()).unwrap().receive_window_bytes;
        assert_eq!(offered, 65_535);
        let heard = peer.exchange(Say::new(R, seq, 0));
        assert_eq!((!heard.is_empty(), peer.state()), (challenged, state), "{seq}");
    }
}

#[test]
fn an_ack_counts_from_one_max_window_before_una_up_to_snd_nxt() {
    let mut config = plain();
    config.tcp.congestion.initial_window = 1000;
    // 200 segments are sent and acknowledged: SND.UNA is 200,001, the largest window 60,000.
    let setup = || {
        let mut peer = Peer::established(config.clone());
        for _ in 0..200 {
            peer.write(1000);
            let heard = peer.hear_one();
            peer.say(Say::new(A, 1, heard.seq + 1000));
        }
        peer
    };
    for (ack, taken) in
        [(200_001 - 60_000, true), (200_001 - 60_001, false), (200_001, true), (200_002, false)]
    {
        let mut peer = setup();
        peer.say(Say::new(A, 1, ack).data(b"x"));
        assert_eq!(peer.read(9).is_ok(), taken, "{ack}");
        assert_eq!(peer.host.counters().unacceptable_acks, u64::from(!taken));
        let heard = peer.hear_text();
        assert_eq!(heard.is_empty(), taken, "one refused is answered at once: {heard:?}");
    }
}

#[test]
fn challenges_are_as_many_a_second_as_configured() {
    let mut config = plain();
    config.limits.challenge_acks_per_second = 0;
    let mut peer = Peer::established(config);
    peer.now = peer.now + Duration::from_secs(5);
    assert!(peer.exchange(Say::new(R, 2, 0)).is_empty());
    assert_eq!(peer.host.counters().challenges_suppressed, 1);
    let mut peer = Peer::established(plain());
    let answers = (0..100).filter(|_| !peer.exchange(Say::new(R, 2, 0)).is_empty()).count();
    assert_eq!(answers, 4, "one connection gets its burst");
}
