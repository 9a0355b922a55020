//! The host against a peer whose every segment is written by hand: crossed opens above all.

use super::super::peer::*;
use super::*;
use crate::config::Disagreement;
use crate::error::Error;
use crate::tcp::time_wait::negotiate::Code;
use core::net::IpAddr;

const CODE: Code = Code { kind: 253, exid: 0x5457 };

fn negotiating(wish: Wish) -> Config {
    let mut config = plain();
    config.tcp.time_wait.negotiate = wish;
    config
}

impl Say {
    fn naming(mut self, address: IpAddr) -> Say {
        self.options.experimental = CODE.option(address);
        self
    }
}

/// The host's address, which is the larger one, and the peer's.
fn addresses(peer: &Peer) -> (IpAddr, IpAddr) {
    let (host, other) = peer.ends();
    (host.ip(), other.ip())
}

fn names(heard: &Heard) -> Option<IpAddr> {
    CODE.address(&heard.options)
}

#[test]
fn the_third_segment_repeats_the_choice_until_the_peer_speaks() {
    for ipv6 in [false, true] {
        let mut config = super::super::pair::config(HOSTS[usize::from(ipv6)]);
        config.tcp.time_wait.negotiate = Wish::Client;
        let (mut peer, syn) = Peer::opening(config);
        let (ours, _) = addresses(&peer);
        assert_eq!(names(&syn), Some(ours));
        assert_eq!(syn.options.len(), if ipv6 { 40 } else { 28 }, "all the rest is there as well");
        assert!(syn.options.sack_permitted && syn.options.window_scale.is_some());
        peer.say(Say::new(S | A, 0, 1).fast(500).naming(ours));
        assert_eq!(names(&peer.hear_one()), Some(ours));
        assert!(peer.write(3000) > 0);
        let sent = peer.hear();
        assert!(sent.len() >= 3 && sent.iter().all(|heard| names(heard) == Some(ours)));
        // The peer's MSS, less what the options take.
        let options = 12 + usize::from(Code::padded_len(ipv6));
        assert_eq!(sent[0].len, 1000 - options);
        // A SYN, ACK again is no sign that the ACK has come.
        peer.say(Say::new(S | A, 0, 1).fast(500).naming(ours));
        assert_eq!(names(&peer.hear_one()), Some(ours));
        peer.say(Say::new(A, 1, 3001).stamp(501, 0));
        peer.hear();
        assert!(peer.write(100) > 0);
        let after = peer.hear_one();
        assert_eq!((names(&after), after.options.len()), (None, 12));
    }
}

#[test]
fn a_sack_block_gives_way_to_the_option_where_both_do_not_fit() {
    for (ipv6, blocks) in [(false, 1), (true, 0)] {
        let mut config = super::super::pair::config(HOSTS[usize::from(ipv6)]);
        config.tcp.time_wait.negotiate = Wish::Client;
        let (mut peer, _) = Peer::opening(config);
        let (ours, _) = addresses(&peer);
        // Text on the SYN, ACK that comes again is a duplicate, which is reported (RFC 2883 §4).
        let syn_ack = || Say::new(S | A, 0, 1).fast(500).naming(ours).data(b"hello");
        peer.say(syn_ack());
        peer.hear();
        peer.say(syn_ack());
        assert!(peer.write(3000) > 0);
        let heard = peer.hear();
        assert_eq!(names(&heard[0]), Some(ours));
        assert_eq!(heard[0].options.sack.len(), blocks, "IPv6: {ipv6}");
        assert!(heard.iter().all(|heard| heard.len + heard.options.len() <= 1000));
    }
}

#[test]
fn a_server_relies_on_the_client_once_that_has_named_itself() {
    let mut peer = Peer::listening(negotiating(Wish::Client));
    let (ours, theirs) = addresses(&peer);
    peer.say(Say::new(S, 0, 0).mss(1000).naming(theirs));
    assert_eq!(names(&peer.hear_one()), Some(theirs));
    peer.say(Say::new(A, 1, 1));
    peer.accept();
    let holder = |peer: &Peer| peer.host.info(peer.id()).unwrap().holder;
    assert_eq!(holder(&peer), Holder::Unproven);
    // Neither a segment that is not acceptable proves it, nor one that names us.
    peer.say(Say::new(A, 90_000, 1).naming(theirs));
    peer.say(Say::new(A, 1, 90_000).naming(theirs));
    peer.say(Say::new(A, 1, 1).naming(ours));
    assert_eq!(holder(&peer), Holder::Unproven);
    peer.say(Say::new(A, 1, 1).data(b"request").naming(theirs));
    assert_eq!(holder(&peer), Holder::Peer);
    assert_eq!(peer.host.counters().negotiation_agreed, 1);
}

#[test]
fn a_server_may_swap_with_a_client_that_is_unproven() {
    for swaps in [false, true] {
        let mut config = negotiating(Wish::Client);
        config.tcp.time_wait.close_swap = swaps;
        let mut peer = Peer::listening(config);
        let (_, theirs) = addresses(&peer);
        peer.say(Say::new(S, 0, 0).mss(1000).naming(theirs));
        peer.hear();
        peer.say(Say::new(A, 1, 1));
        peer.accept();
        peer.exchange(Say::new(F | A, 1, 1));
        let (id, now) = (peer.id(), peer.now);
        assert_eq!(peer.host.info(id).unwrap().holder, Holder::Unproven);
        peer.host.close(now, id);
        peer.hear();
        let reset = peer.exchange(Say::new(A, 2, 2));
        assert_eq!(reset, if swaps { ["R 2:2(0) ack 2"].to_vec() } else { Vec::new() });
        assert_eq!(peer.host.counters().time_wait_swapped, u64::from(swaps));
    }
}

#[test]
fn a_syn_again_without_the_option_is_answered_as_the_first_was() {
    let mut peer = Peer::listening(negotiating(Wish::Client));
    let (_, theirs) = addresses(&peer);
    peer.say(Say::new(S, 0, 0).mss(1000).naming(theirs));
    assert_eq!(names(&peer.hear_one()), Some(theirs));
    peer.say(Say::new(S, 0, 0).mss(1000));
    assert_eq!(names(&peer.hear_one()), Some(theirs));
    let again = peer.wait(SECOND + SOON);
    assert_eq!(names(&again[0]), Some(theirs));
    // And the other way around: an end that did not ask first has not asked.
    let mut peer = Peer::listening(negotiating(Wish::Client));
    peer.say(Say::new(S, 0, 0).mss(1000));
    assert_eq!(names(&peer.hear_one()), None);
    peer.say(Say::new(S, 0, 0).mss(1000).naming(theirs));
    assert_eq!(names(&peer.hear_one()), None);
}

/// The host has opened, and so has the peer, whose SYN names this.
fn crossed(config: Config, theirs: Option<IpAddr>) -> (Peer, Vec<Heard>) {
    let (mut peer, _) = Peer::opening(config);
    let syn = Say::new(S, 0, 0).mss(1000);
    peer.say(match theirs {
        Some(address) => syn.naming(address),
        None => syn,
    });
    let heard = peer.hear();
    (peer, heard)
}

#[test]
fn crossed_opens_take_the_value_of_table_1() {
    let (ours, theirs): (IpAddr, IpAddr) =
        ("10.0.0.2".parse().unwrap(), "10.0.0.1".parse().unwrap());
    for (wish, named, value) in [
        (Wish::Off, Some(theirs), None),
        (Wish::Ourselves, None, None),
        (Wish::Ourselves, Some(ours), Some(ours)),
        (Wish::Peer, Some(theirs), Some(theirs)),
        // Different: the larger address, which is ours.
        (Wish::Ourselves, Some(theirs), Some(ours)),
        (Wish::Client, Some(theirs), Some(ours)),
    ] {
        let (peer, heard) = crossed(negotiating(wish), named);
        assert_eq!(heard.len(), 1);
        assert_eq!((heard[0].flags, names(&heard[0])), (S | A, value), "{wish:?} {named:?}");
        assert_eq!(peer.state(), State::SynReceived);
    }
}

#[test]
fn an_end_that_rejects_table_1_resets_whatever_the_peer_heard() {
    let ours = "10.0.0.2".parse().unwrap();
    // The peer wishes us, we wish the peer: the larger is ours.
    let (mut peer, heard) = crossed(negotiating(Wish::Peer), Some(ours));
    assert_eq!(text(&heard[0]), "R 1:1(0) ack 1");
    assert_eq!(peer.host.take_error(peer.id()), Some(Error::ConnectionAborted));
    let mut lenient = negotiating(Wish::Peer);
    lenient.tcp.time_wait.disagreement = Disagreement::FallBack;
    let (_, heard) = crossed(lenient, Some(ours));
    assert_eq!((heard[0].flags, names(&heard[0])), (S | A, None));
}

#[test]
fn after_crossed_opens_a_self_named_end_needs_no_proof_to_hold() {
    let (ours, theirs): (IpAddr, IpAddr) =
        ("10.0.0.2".parse().unwrap(), "10.0.0.1".parse().unwrap());
    let holder = |peer: &Peer| peer.host.info(peer.id()).unwrap().holder;
    // We named ourselves in the SYN, ACK, and the peer may have taken that for the proof: we hold,
    // though its own SYN, ACK says nothing.
    let (mut peer, _) = crossed(negotiating(Wish::Ourselves), Some(ours));
    peer.say(Say::new(S | A, 0, 1).mss(1000));
    assert_eq!(names(&peer.hear_one()), Some(ours));
    assert_eq!(holder(&peer), Holder::Ourselves);
    for (proof, expected) in [(None, Holder::Unproven), (Some(theirs), Holder::Peer)] {
        for flags in [S | A, A] {
            let (mut peer, _) = crossed(negotiating(Wish::Peer), Some(theirs));
            let seq = u32::from(flags == A);
            let say = Say::new(flags, seq, 1);
            peer.say(proof.map_or(say.clone(), |address| say.clone().naming(address)));
            assert_eq!(holder(&peer), expected, "{flags:?}");
            // The peer hears it again, in case it has not yet.
            assert!(peer.hear().iter().all(|heard| names(heard) == Some(theirs)));
        }
    }
}

#[test]
fn a_holder_takes_no_other_reset_for_an_ack() {
    let in_last_ack = |text: usize| {
        let (mut peer, _) = Peer::opening(negotiating(Wish::Client));
        let (ours, _) = addresses(&peer);
        peer.say(Say::new(S | A, 0, 1).mss(1000).naming(ours));
        peer.hear();
        peer.say(Say::new(F | A, 1, 1));
        peer.hear();
        if text > 0 {
            peer.write(text);
        }
        let (id, now) = (peer.id(), peer.now);
        peer.host.shutdown_write(now, id).unwrap();
        peer.hear();
        assert_eq!(peer.state(), State::LastAck);
        peer
    };
    let mut peer = in_last_ack(0);
    // Elsewhere in the window it is challenged.
    assert_eq!(peer.exchange(Say::new(R, 5, 0)).len(), 1);
    assert_eq!(peer.state(), State::LastAck);
    peer.say(Say::new(R, 2, 0));
    assert_eq!((peer.state(), peer.host.time_wait_len()), (State::TimeWait, 1));
    peer.say(Say::new(R | A, 2, 2));
    assert_eq!(peer.host.time_wait_len(), 1, "the peer keeps nothing: it is deaf");
    // With text that was not acknowledged, it may be lost, and the user hears of that (RFC 9293
    // MUST-12).
    let mut peer = in_last_ack(100);
    peer.say(Say::new(R, 2, 0));
    assert_eq!(peer.state(), State::Closed);
    assert_eq!(peer.host.take_error(peer.id()), Some(Error::ConnectionReset));
}
