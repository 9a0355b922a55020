//! Text, FIN and urgent data that come with a SYN: queued where both ends open (RFC 9293
//! §3.10.7.3), dropped where we listen.

use super::peer::{A, F, Peer, R, S, Say, plain};
use crate::buffer::PAGE_BYTES;
use crate::config::Config;
use crate::error::Error;
use crate::tcp::State;
use crate::time::Duration;
use crate::wire::tcp::Flags;
use std::vec;
use std::vec::Vec;

/// A host whose SYN has met one that carries `say`.
fn crossed(config: Config, say: Say) -> Peer {
    let (mut peer, _) = Peer::opening(config);
    peer.isn = crate::tcp::Seq(0xffff_fffe);
    let answer = peer.exchange(say);
    assert_eq!(answer, ["S 0:0(0) ack 1"], "the SYN alone is acknowledged");
    assert_eq!(peer.state(), State::SynReceived);
    peer
}

#[test]
fn early_text_is_read_once_the_connection_is_established() {
    let mut peer = crossed(plain(), Say::new(S, 0, 0).data(b"early"));
    assert_eq!(peer.read(9), Err(Error::WouldBlock));
    assert_eq!(peer.host.readable_bytes(peer.id()), 0);
    assert_eq!(peer.exchange(Say::new(A, 6, 1)), [". 1:1(0) ack 6"]);
    assert_eq!(peer.state(), State::Established);
    assert_eq!(peer.read(9).unwrap(), b"early");
    assert_eq!(peer.exchange(Say::new(A, 6, 1).data(b"er")), Vec::<&str>::new());
    assert_eq!(peer.read(9).unwrap(), b"er");
}

#[test]
fn the_fin_behind_it_counts_too() {
    for text in [&b"early"[..], b""] {
        let end = 2 + text.len() as u32;
        let mut peer = crossed(plain(), Say::new(S | F, 0, 0).data(text));
        assert_eq!(peer.exchange(Say::new(A, end, 1)), [std::format!(". 1:1(0) ack {end}")]);
        assert_eq!(peer.state(), State::CloseWait);
        assert_eq!(peer.read(9).unwrap(), text);
        assert_eq!(peer.read(9).unwrap(), b"", "the end of the stream");
    }
}

#[test]
fn urgent_text_is_told_at_its_place() {
    // The pointer counts from the SYN, which has a number.
    let mut peer = crossed(plain(), Say::new(S, 0, 0).data(b"early").urgent(4));
    assert_eq!(peer.host.urgent_mark(peer.id()), None);
    peer.exchange(Say::new(A, 6, 1));
    assert_eq!(peer.host.urgent_mark(peer.id()), Some(3));
}

#[test]
fn a_peer_that_sends_it_again_loses_nothing() {
    // With the ACK, and with a SYN, ACK.
    for (flags, seq) in [(A, 1), (S | A, 0)] {
        let mut peer = crossed(plain(), Say::new(S, 0, 0).data(b"early"));
        let heard = peer.exchange(Say::new(flags, seq, 1).data(b"early bird"));
        assert_eq!(heard, [". 1:1(0) ack 11"]);
        assert_eq!(peer.read(20).unwrap(), b"early bird");
    }
}

#[test]
fn what_comes_with_the_syn_ack_of_a_simultaneous_open_is_taken() {
    let mut peer = crossed(plain(), Say::new(S, 0, 0));
    let heard = peer.exchange(Say::new(S | A | F, 0, 1).data(b"late"));
    assert_eq!(heard, [". 1:1(0) ack 6"]);
    assert_eq!((peer.state(), peer.read(9).unwrap()), (State::CloseWait, b"late".to_vec()));
}

#[test]
fn no_more_is_queued_than_was_offered() {
    let mut config = plain();
    config.tcp.buffers.receive = 2000;
    config.tcp.buffers.receive_max = 2000;
    for (len, kept, fin) in [(1999, 1999, true), (2000, 2000, false), (2001, 2000, false)] {
        let text = vec![7; len];
        let mut peer = crossed(config.clone(), Say::new(S | F, 0, 0).data(&text));
        assert_eq!(peer.host.pages_in_use(), 1);
        peer.exchange(Say::new(A, 1, 1));
        assert_eq!(peer.read(4000).unwrap().len(), kept);
        assert_eq!(peer.host.is_at_end(peer.id()), fin, "{len}");
    }
}

#[test]
fn what_there_is_no_memory_for_comes_again() {
    let mut config = plain();
    config.limits.pages = 2;
    for (len, is_queued) in [(2 * PAGE_BYTES, true), (2 * PAGE_BYTES + 1, false)] {
        let text = vec![7; len];
        let mut peer = crossed(config.clone(), Say::new(S | F, 0, 0).data(&text));
        assert_eq!(peer.host.pages_in_use(), if is_queued { 2 } else { 0 });
        assert_eq!(peer.host.counters().receive_pool_empty, u64::from(!is_queued));
        peer.exchange(Say::new(A, 1, 1));
        assert_eq!(peer.host.readable_bytes(peer.id()), if is_queued { len } else { 0 });
        let state = if is_queued { State::CloseWait } else { State::Established };
        assert_eq!(peer.state(), state, "neither text nor FIN");
        peer.exchange(Say::new(A | F, 1, 1).data(&text[..10]));
        assert_eq!(peer.state(), State::CloseWait);
    }
}

#[test]
fn an_open_that_fails_gives_its_memory_back() {
    let reset = |peer: &mut Peer| peer.say(Say::new(R, 1, 0));
    let time_out = |peer: &mut Peer| {
        peer.wait(Duration::from_secs(400));
    };
    let abort = |peer: &mut Peer| peer.host.abort(peer.now, peer.id());
    let close = |peer: &mut Peer| peer.host.close(peer.now, peer.id());
    let ends: [&dyn Fn(&mut Peer); 4] = [&reset, &time_out, &abort, &close];
    for (i, end) in ends.iter().enumerate() {
        let mut peer = crossed(plain(), Say::new(S, 0, 0).data(&vec![1; 5000]));
        assert_eq!(peer.host.pages_in_use(), 2);
        end(&mut peer);
        peer.hear();
        peer.wait(Duration::from_secs(400));
        assert_eq!(peer.host.pages_in_use(), 0, "{i}");
    }
}

#[test]
fn what_nobody_will_read_resets_the_connection() {
    let mut peer = crossed(plain(), Say::new(S, 0, 0).data(b"early"));
    peer.host.close(peer.now, peer.id());
    let heard = peer.exchange(Say::new(A, 6, 1));
    assert!(heard.iter().all(|text| text.starts_with('R')) && !heard.is_empty(), "{heard:?}");
    assert_eq!((peer.host.connections(), peer.host.pages_in_use()), (0, 0));
}

/// The exception `syn-text`: a listener keeps nothing of it, and acknowledges the SYN alone.
#[test]
fn a_listener_drops_what_comes_with_a_syn_and_it_comes_again() {
    let mut peer = Peer::listening(plain());
    let syn = Say::new(S | F | Flags::PSH, 0, 0).data(b"early").urgent(3);
    assert_eq!(peer.exchange(syn), ["S 0:0(0) ack 1"]);
    assert_eq!(peer.host.pages_in_use(), 0);
    peer.say(Say::new(A | F, 1, 1).data(b"early"));
    peer.id = peer.host.accept(peer.now, peer.listener.unwrap()).ok();
    assert_eq!(peer.hear_text(), [". 1:1(0) ack 7"]);
    assert_eq!(peer.read(9).unwrap(), b"early");
}
