//! RFC 9293 §3.10.7.4: each state against each kind of segment.

use super::peer::{A, F, Peer, R, S, Say, plain};
use crate::error::Error;
use crate::tcp::State::{self, *};
use crate::time::Duration;
use std::string::String;
use std::vec::Vec;

/// A host in `state` with a peer whose next number is the first of the pair returned; the host's
/// SND.NXT is the second. (FIN of the peer, where it was sent, has number 1; so has the host's.)
fn in_state(state: State) -> (Peer, u32, u32) {
    if state == SynSent {
        let (mut peer, _) = Peer::opening(plain());
        peer.isn = crate::tcp::Seq(77);
        return (peer, 0, 1);
    }
    let mut peer = Peer::established(plain());
    let (id, now) = (peer.id(), peer.now);
    let close = |peer: &mut Peer| {
        peer.host.shutdown_write(now, id).unwrap();
        assert_eq!(peer.hear_text(), ["F 1:1(0) ack 1"]);
    };
    let (mut rcv, mut snd) = (1, 1);
    match state {
        Established => {}
        FinWait1 => {
            close(&mut peer);
            snd = 2;
        }
        FinWait2 => {
            close(&mut peer);
            assert!(peer.exchange(Say::new(A, 1, 2)).is_empty());
            snd = 2;
        }
        Closing => {
            close(&mut peer);
            assert_eq!(peer.exchange(Say::new(F | A, 1, 1)), [". 2:2(0) ack 2"]);
            (rcv, snd) = (2, 2);
        }
        CloseWait => {
            assert_eq!(peer.exchange(Say::new(F | A, 1, 1)), [". 1:1(0) ack 2"]);
            rcv = 2;
        }
        LastAck => {
            assert_eq!(peer.exchange(Say::new(F | A, 1, 1)), [". 1:1(0) ack 2"]);
            peer.host.shutdown_write(now, id).unwrap();
            assert_eq!(peer.hear_text(), ["F 1:1(0) ack 2"]);
            (rcv, snd) = (2, 2);
        }
        TimeWait => {
            close(&mut peer);
            assert_eq!(peer.exchange(Say::new(F | A, 1, 2)), [". 2:2(0) ack 2"]);
            (rcv, snd) = (2, 2);
        }
        Closed | Listen | SynSent | SynReceived => unreachable!("not set up here"),
    }
    assert_eq!(peer.state(), state);
    (peer, rcv, snd)
}

const SYNCHRONIZED: [State; 6] = [Established, FinWait1, FinWait2, Closing, CloseWait, LastAck];

/// What the host answers to a segment in a state, and the state afterwards.
fn reaction(state: State, say: impl Fn(u32, u32) -> Say) -> (Vec<String>, State) {
    let (mut peer, rcv, snd) = in_state(state);
    let heard = peer.exchange(say(rcv, snd));
    (heard, peer.state())
}

fn pure_ack(rcv: u32, snd: u32) -> Vec<String> {
    Vec::from([std::format!(". {snd}:{snd}(0) ack {rcv}")])
}

#[test]
fn first_step_a_segment_outside_the_window_gets_an_ack() {
    for state in SYNCHRONIZED {
        let (_, rcv, snd) = in_state(state);
        for beyond in [false, true] {
            let seq = |rcv: u32| if beyond { rcv + 70_000 } else { rcv - 1 };
            let (heard, after) = reaction(state, |rcv, snd| Say::new(A, seq(rcv), snd));
            assert_eq!((heard, after), (pure_ack(rcv, snd), state), "{state:?} {beyond}");
            let data = |rcv, snd| Say::new(A, seq(rcv), snd).data(b"x");
            let (heard, after) = reaction(state, data);
            assert_eq!((heard, after), (pure_ack(rcv, snd), state), "{state:?} {beyond}");
        }
        let (heard, after) = reaction(state, |rcv, snd| Say::new(R, rcv - 1, snd));
        assert_eq!((heard, after), (Vec::new(), state), "an RST outside is dropped");
    }
}

#[test]
fn second_step_a_reset_counts_exactly_at_rcv_nxt() {
    for state in SYNCHRONIZED {
        let (mut peer, rcv, snd) = in_state(state);
        assert_eq!(peer.exchange(Say::new(R, rcv + 1, 0)), pure_ack(rcv, snd), "challenged");
        assert_eq!(peer.state(), state);
        assert!(peer.exchange(Say::new(R, rcv, 0)).is_empty());
        assert_eq!(peer.state(), Closed);
        let expected = match state {
            Closing | LastAck => None,
            _ => Some(Error::ConnectionReset),
        };
        let id = peer.id();
        assert_eq!(peer.host.take_error(id), expected, "{state:?}");
    }
}

/// A host that has written `text` and closed, and so has its peer, which has acknowledged as much
/// as `acked` of the host's numbers.
fn closing_with(state: State, text: &[u8], acked: u32) -> Peer {
    let mut peer = Peer::established(plain());
    let (id, now) = (peer.id(), peer.now);
    if state == LastAck {
        peer.exchange(Say::new(F | A, 1, 1));
    }
    peer.host.write(now, id, text).unwrap();
    peer.host.shutdown_write(now, id).unwrap();
    assert_eq!(peer.hear().len(), 1);
    if state == Closing {
        peer.exchange(Say::new(F | A, 1, 1));
    }
    peer.exchange(Say::new(A, 2, acked));
    assert_eq!(peer.state(), state);
    peer
}

#[test]
fn second_step_a_reset_behind_both_fins_reports_unacked_text() {
    for state in [Closing, LastAck] {
        for (acked, told) in [
            (1, Some(Error::ConnectionReset)),
            (4, Some(Error::ConnectionReset)),
            // Only our FIN is missing.
            (5, None),
        ] {
            let mut peer = closing_with(state, b"text", acked);
            assert!(peer.exchange(Say::new(R, 2, 0)).is_empty());
            assert_eq!(peer.state(), Closed);
            let read = told.map_or(Ok(std::vec![]), Err);
            assert_eq!(peer.read(9), read, "{state:?}, {acked}");
            assert_eq!(peer.read(9).unwrap(), b"", "told once");
        }
    }
}

#[test]
fn fourth_step_a_syn_is_challenged_wherever_it_lies() {
    for state in SYNCHRONIZED {
        for offset in [0, 5, 70_000] {
            for flags in [S, S | A] {
                let (_, rcv, snd) = in_state(state);
                let (heard, after) = reaction(state, |rcv, snd| Say::new(flags, rcv + offset, snd));
                assert_eq!((heard, after), (pure_ack(rcv, snd), state), "{state:?} {offset}");
            }
        }
    }
}

#[test]
fn fifth_step_without_ack_a_segment_is_dropped() {
    for state in SYNCHRONIZED {
        let (heard, after) = reaction(state, |rcv, _| Say::new(F, rcv, 0).data(b"x"));
        assert_eq!((heard, after), (Vec::new(), state), "{state:?}");
    }
}

#[test]
fn fifth_step_an_ack_of_unsent_text_is_answered_and_dropped() {
    for state in SYNCHRONIZED {
        let (_, rcv, snd) = in_state(state);
        let say = |rcv, snd| Say::new(A, rcv, snd + 1).data(b"x");
        let (heard, after) = reaction(state, say);
        assert_eq!((heard, after), (pure_ack(rcv, snd), state), "{state:?}");
        // RFC 5961 §5: so is one from before the largest window.
        let say = |rcv, snd: u32| Say::new(A, rcv, snd.wrapping_sub(70_000)).data(b"x");
        let (heard, after) = reaction(state, say);
        assert_eq!((heard, after), (pure_ack(rcv, snd), state), "{state:?}");
    }
}

#[test]
fn fifth_step_the_ack_of_our_fin_moves_on() {
    let moves = [(FinWait1, FinWait2), (Closing, TimeWait), (LastAck, Closed)];
    for (from, to) in moves {
        let (heard, after) = reaction(from, |rcv, snd| Say::new(A, rcv, snd));
        assert_eq!((heard, after), (Vec::new(), to));
    }
}

#[test]
fn seventh_step_text_is_taken_where_the_peer_may_still_send() {
    for state in [Established, FinWait1, FinWait2] {
        let (mut peer, rcv, snd) = in_state(state);
        peer.say(Say::new(A, rcv, snd).data(b"hello"));
        assert_eq!(peer.read(10).unwrap(), b"hello", "{state:?}");
    }
    for state in [CloseWait, Closing, LastAck] {
        let (mut peer, rcv, snd) = in_state(state);
        peer.say(Say::new(A, rcv, snd - 1).data(b"hello"));
        assert_eq!(peer.read(10), Ok(Vec::new()), "{state:?}: after FIN there is no text");
    }
}

#[test]
fn eighth_step_fin_moves_on_and_is_acknowledged() {
    let moves = [(Established, CloseWait), (FinWait1, Closing), (FinWait2, TimeWait)];
    for (from, to) in moves {
        let (_, _, snd) = in_state(from);
        let acked = if from == FinWait1 { snd - 1 } else { snd };
        let (heard, after) = reaction(from, |rcv, _| Say::new(F | A, rcv, acked));
        assert_eq!((heard, after), (pure_ack(2, snd), to), "{from:?}");
    }
    let (heard, after) = reaction(FinWait1, |rcv, snd| Say::new(F | A, rcv, snd));
    assert_eq!((heard, after), (pure_ack(2, 2), TimeWait), "FIN and the ACK of ours in one");
}

#[test]
fn eighth_step_a_repeated_fin_is_acknowledged_again() {
    for state in [CloseWait, Closing, LastAck, TimeWait] {
        let (_, rcv, snd) = in_state(state);
        let (heard, after) = reaction(state, |rcv, snd| Say::new(F | A, rcv - 1, snd - 1));
        assert_eq!((heard, after), (pure_ack(rcv, snd), state), "{state:?}");
    }
}

// ---- LISTEN: §3.10.7.2

#[test]
fn listen_ignores_resets_refuses_acks_and_answers_a_syn() {
    let mut peer = Peer::listening(plain());
    assert!(peer.exchange(Say::new(R, 5, 0)).is_empty());
    assert!(peer.exchange(Say::new(Flags::EMPTY, 5, 0).data(b"x")).is_empty());
    assert_eq!(peer.exchange(Say::new(A, 5, 9)), ["R 9:9(0)"]);
    assert_eq!(peer.exchange(Say::new(S, 0, 0)), ["S 0:0(0) ack 1"]);
}

use crate::wire::tcp::Flags;

#[test]
fn a_closed_port_answers_with_the_number_the_peer_expects() {
    let mut peer = Peer::new(plain());
    assert!(peer.exchange(Say::new(R, 5, 0)).is_empty());
    assert_eq!(peer.exchange(Say::new(A, 5, 9).data(b"abc")), ["R 9:9(0)"]);
    peer.host_isn = crate::tcp::Seq(0);
    assert_eq!(peer.exchange(Say::new(S, 5, 0)), ["R 0:0(0) ack 6"]);
    assert_eq!(peer.exchange(Say::new(F, 5, 0).data(b"abc")), ["R 0:0(0) ack 9"]);
}

// ---- SYN-SENT: §3.10.7.3

#[test]
fn syn_sent_first_step_a_wrong_ack_is_reset() {
    for ack in [0, 2] {
        let (mut peer, _, _) = in_state(SynSent);
        let expected = std::format!("R {ack}:{ack}(0)");
        assert_eq!(peer.exchange(Say::new(S | A, 0, ack)), [expected]);
        assert_eq!(peer.state(), SynSent);
        assert!(peer.exchange(Say::new(R | A, 0, ack)).is_empty());
        assert_eq!(peer.state(), SynSent);
    }
}

#[test]
fn syn_sent_second_step_a_reset_needs_the_right_ack() {
    let (mut peer, _, _) = in_state(SynSent);
    peer.say(Say::new(R, 0, 1));
    assert_eq!(peer.state(), SynSent, "without ACK it is dropped");
    peer.say(Say::new(R | A, 0, 1));
    let id = peer.id();
    assert_eq!(peer.host.take_error(id), Some(Error::ConnectionRefused));
    assert_eq!(peer.state(), Closed);
}

#[test]
fn syn_sent_fourth_step_takes_text_and_fin_of_the_answer() {
    let (mut peer, _, _) = in_state(SynSent);
    let heard = peer.exchange(Say::new(S | A | F, 0, 1).data(b"hello"));
    assert_eq!(heard, [". 1:1(0) ack 7"]);
    assert_eq!(peer.state(), CloseWait);
    let mut read = [0; 9];
    let (now, id) = (peer.now, peer.id());
    assert_eq!(peer.host.read(now, id, &mut read), Ok(5));
    assert_eq!(&read[..5], b"hello");
}

#[test]
fn syn_sent_fourth_step_establishes() {
    let (mut peer, _, _) = in_state(SynSent);
    assert!(peer.exchange(Say::new(A, 0, 1)).is_empty(), "neither SYN nor RST: dropped");
    assert_eq!(peer.exchange(Say::new(S | A, 0, 1)), [". 1:1(0) ack 1"]);
    assert_eq!(peer.state(), Established);
}

#[test]
fn simultaneous_open_establishes_both_ways() {
    let (mut peer, _, _) = in_state(SynSent);
    assert_eq!(peer.exchange(Say::new(S, 0, 0)), ["S 0:0(0) ack 1"]);
    assert_eq!(peer.state(), SynReceived);
    assert_eq!(peer.exchange(Say::new(S | A, 0, 1)), [". 1:1(0) ack 1"]);
    assert_eq!(peer.state(), Established);
    let (mut peer, _, _) = in_state(SynSent);
    peer.exchange(Say::new(S, 0, 0));
    assert!(peer.exchange(Say::new(A, 1, 1)).is_empty());
    assert_eq!(peer.state(), Established);
}

#[test]
fn simultaneous_open_can_be_reset_and_wants_the_right_ack() {
    let (mut peer, _, _) = in_state(SynSent);
    peer.exchange(Say::new(S, 0, 0));
    assert_eq!(peer.exchange(Say::new(A, 1, 2)), ["R 2:2(0)"]);
    assert_eq!(peer.state(), SynReceived);
    peer.say(Say::new(R, 1, 0));
    let id = peer.id();
    assert_eq!((peer.state(), peer.host.take_error(id)), (Closed, Some(Error::ConnectionRefused)));
}

// ---- SYN-RECEIVED, passive

#[test]
fn half_open_answers_a_repeated_syn_and_listens_again_on_reset() {
    let mut peer = Peer::listening(plain());
    peer.exchange(Say::new(S, 0, 0));
    assert_eq!(peer.exchange(Say::new(S, 0, 0)), ["S 0:0(0) ack 1"]);
    assert_eq!(peer.exchange(Say::new(A, 1, 2)), ["R 2:2(0)"], "a wrong ACK");
    assert_eq!(peer.host.half_open(), 1);
    assert!(peer.exchange(Say::new(R, 1, 0)).is_empty());
    assert_eq!(peer.host.half_open(), 0);
    assert_eq!(peer.exchange(Say::new(S, 0, 0)), ["S 0:0(0) ack 1"], "listening again");
}

#[test]
fn half_open_takes_data_and_fin_with_the_ack() {
    let mut peer = Peer::listening(plain());
    peer.exchange(Say::new(S, 0, 0));
    peer.say(Say::new(F | A, 1, 1).data(b"hi"));
    peer.id = Some(peer.host.accept(peer.now, peer.listener.unwrap()).unwrap());
    assert_eq!(peer.hear_text(), [". 1:1(0) ack 4"]);
    assert_eq!(peer.read(9).unwrap(), b"hi");
    assert_eq!(peer.read(9).unwrap(), b"");
    assert_eq!(peer.state(), CloseWait);
}

#[test]
fn half_open_is_given_up_after_a_minute() {
    let mut peer = Peer::listening(plain());
    peer.exchange(Say::new(S, 0, 0));
    let started = peer.now;
    let again: Vec<u64> =
        peer.wait(Duration::from_secs(70)).iter().map(|h| h.at.since(started).as_secs()).collect();
    assert_eq!(again, [1, 3, 7, 15, 31]);
    assert_eq!(peer.host.half_open(), 0);
}

// ---- TIME-WAIT

#[test]
fn time_wait_ignores_resets_answers_and_restarts_on_fin_alone() {
    let (mut peer, rcv, snd) = in_state(TimeWait);
    peer.say(Say::new(R, rcv, 0));
    assert!(peer.hear().is_empty());
    assert_eq!(peer.host.time_wait_len(), 1);
    assert!(peer.exchange(Say::new(A, rcv, snd)).is_empty(), "acceptable, and carries nothing");
    assert!(peer.exchange(Say::new(A, rcv + 9, snd)).is_empty());
    assert_eq!(peer.exchange(Say::new(A, rcv - 1, snd)), pure_ack(rcv, snd));
    assert_eq!(peer.exchange(Say::new(A, rcv, snd + 1)), pure_ack(rcv, snd));
    peer.wait(Duration::from_secs(59));
    assert_eq!(peer.exchange(Say::new(F | A, rcv - 1, snd)), pure_ack(rcv, snd));
    peer.wait(Duration::from_secs(59));
    assert_eq!(peer.host.time_wait_len(), 1);
    peer.wait(Duration::from_secs(2));
    assert_eq!(peer.host.time_wait_len(), 0);
}

#[test]
fn time_wait_without_a_listener_acks_a_syn_and_stays() {
    let (mut peer, _) = Peer::opening(plain());
    peer.say(Say::new(S | A, 0, 1));
    peer.hear();
    let (id, now) = (peer.id(), peer.now);
    peer.host.shutdown_write(now, id).unwrap();
    peer.hear();
    peer.say(Say::new(F | A, 1, 2));
    peer.hear();
    assert_eq!(peer.state(), TimeWait);
    assert_eq!(peer.exchange(Say::new(S, 2, 0)), pure_ack(2, 2));
    assert_eq!(peer.exchange(Say::new(S, 90_000, 0)), pure_ack(2, 2));
    assert_eq!(peer.host.time_wait_len(), 1);
}

#[test]
fn time_wait_is_reopened_by_a_newer_syn_with_a_higher_isn() {
    let (mut peer, rcv, snd) = in_state(TimeWait);
    let old = peer.host_isn + snd;
    assert_eq!(peer.exchange(Say::new(S, rcv, 0)), ["S 0:0(0) ack 3"]);
    assert!(peer.host_isn.since(old) >= 65_536 && peer.host_isn.after(old));
    assert_eq!(peer.host.time_wait_len(), 1, "until the handshake completes");
    assert!(peer.exchange(Say::new(A, rcv + 1, 1)).is_empty());
    assert_eq!(peer.host.time_wait_len(), 0);
}

#[test]
fn time_wait_is_taken_up_again_when_the_syn_was_an_old_one() {
    let (mut peer, rcv, snd) = in_state(TimeWait);
    let old_isn = peer.host_isn;
    peer.exchange(Say::new(S, rcv, 0));
    // The peer knows nothing of it and resets; then its repeated FIN meets TIME-WAIT.
    assert!(peer.exchange(Say::new(R, rcv + 1, 0)).is_empty());
    assert_eq!((peer.host.half_open(), peer.host.time_wait_len()), (0, 1));
    peer.host_isn = old_isn;
    assert_eq!(peer.exchange(Say::new(F | A, rcv - 1, snd)), pure_ack(rcv, snd));
}

#[test]
fn half_open_acks_the_unacceptable_and_repeats_its_syn_ack() {
    let mut peer = Peer::listening(plain());
    peer.say(Say::new(S, 0, 0));
    assert_eq!(peer.hear_text(), ["S 0:0(0) ack 1"]);
    assert_eq!(peer.exchange(Say::new(S, 0, 0)), ["S 0:0(0) ack 1"]);
    assert_eq!(peer.exchange(Say::new(R, 500, 0)), [". 1:1(0) ack 1"], "RFC 5961 §3.2");
    assert!(peer.exchange(Say::new(R, 500_000, 0)).is_empty());
    assert_eq!(peer.exchange(Say::new(A, 500_000, 1).data(b"far")), [". 1:1(0) ack 1"]);
    peer.say(Say::new(A, 1, 1));
    peer.accept();
    assert_eq!(peer.state(), Established, "none of it did any harm");
}

/// Windows and budgets, and what a SYN offers of them: of a budget in units of 32 bytes.
const OFFERS: [(u32, u64, u16); 4] =
    [(2047, 1 << 20, 2047), (65_536, 2200, 2176), (65_536, 0, 2048), (65_536, 1 << 20, 65_535)];

/// RFC 7323 §2.3: in what has no SYN the window is scaled, in SYN-RECEIVED too. Its edge is not
/// beyond that of the SYN, ACK, which comes again and would take it back.
#[test]
fn half_open_an_answer_offers_no_more_than_the_syn_did() {
    for (window, budget, offer) in OFFERS {
        for (scale, field) in [(None, offer), (Some(3), offer >> 5)] {
            let mut config = plain();
            config.tcp.buffers.receive = window;
            config.limits.receive_window_bytes = budget;
            config.tcp.quirks.window_shift = Some(5);
            config.tcp.window_scaling = true;
            let scaled = |mut syn: Say| {
                syn.options.window_scale = scale;
                syn
            };
            let mut peer = Peer::listening(config.clone());
            peer.say(scaled(Say::new(S, 0, 0)));
            assert_eq!(peer.hear_one().window, offer, "never scaled in a SYN");
            peer.say(Say::new(A, 500_000, 1).data(b"far"));
            assert_eq!(peer.hear_one().window, field);
            assert_eq!(peer.wait(Duration::from_secs(1))[0].window, offer, "the SYN, ACK again");
            // Both ends open at once.
            let (mut peer, syn) = Peer::opening(config);
            assert_eq!(syn.window, offer);
            peer.say(scaled(Say::new(S, 0, 0)));
            assert_eq!(peer.hear_one().window, offer);
            peer.say(Say::new(A, 500_000, 1).data(b"far"));
            assert_eq!(peer.hear_one().window, field);
        }
    }
}
