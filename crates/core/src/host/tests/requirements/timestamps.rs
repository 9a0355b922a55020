//! Window scaling and timestamps: RFC 7323.

use crate::Config;
use crate::flow::stamp::stamp_at;
use crate::host::tests::pair::{Pair, Side};
use crate::host::tests::peer::{A, F, Peer, R, S, Say, plain};
use crate::tcp::State;
use crate::time::{Duration, Instant};
use crate::wire::options::Timestamps;
use crate::wire::tcp::{Flags, Segment};

fn stamped() -> Config {
    let mut config = plain();
    config.tcp.timestamps = true;
    config
}

/// Established, with TS.Recent = 5000.
fn established() -> Peer {
    Peer::established_with(stamped(), |syn| syn.mss(1000).stamp(5000, 0))
}

fn scaled(largest: u32) -> Config {
    let mut config = plain();
    config.tcp.window_scaling = true;
    config.tcp.buffers.receive = largest.min(65_535);
    config.tcp.buffers.receive_max = largest;
    config
}

fn scale(syn: Say, shift: u8) -> Say {
    let mut syn = syn.mss(1000);
    syn.options.window_scale = Some(shift);
    syn
}

// ---- window scaling, §2

#[test]
fn scaling_is_offered_even_with_shift_0_and_answered_in_kind() {
    let (_, syn) = Peer::opening(scaled(65_535));
    assert_eq!(syn.options.window_scale, Some(0));
    let (_, syn) = Peer::opening(scaled(1 << 20));
    assert_eq!(syn.options.window_scale, Some(5));
    let mut peer = Peer::listening(scaled(1 << 20));
    peer.say(scale(Say::new(S, 0, 0), 3));
    assert_eq!(peer.hear_one().options.window_scale, Some(5));
}

#[test]
fn both_shifts_are_used_or_neither() {
    let shifts = |syn: fn(Say) -> Say| {
        let mut peer = Peer::established_with(scaled(1 << 20), syn);
        peer.say(Say::new(A, 1, 1).window(100).data(b"x"));
        let heard = peer.wait(Duration::from_secs(1)).remove(0);
        (peer.host.info(peer.id()).unwrap().peer_window_bytes, heard.window)
    };
    // 65,535 bytes promised, and one of them used: in units of 32 bytes, rounded up.
    assert_eq!(shifts(|syn| scale(syn, 3)), (100 << 3, 2048));
    assert_eq!(shifts(|syn| syn.mss(1000)), (100, 65_534));
}

#[test]
fn an_active_open_scales_only_if_the_answer_does() {
    for (shift, window) in [(Some(7), 100 << 7), (None, 100)] {
        let (mut peer, syn) = Peer::opening(scaled(1 << 20));
        assert_eq!(syn.window, 65_535, "never scaled on a SYN");
        let mut answer = Say::new(S | A, 0, 1).mss(1000).window(1000);
        answer.options.window_scale = shift;
        peer.say(answer);
        assert_eq!(peer.host.info(peer.id()).unwrap().peer_window_bytes, 1000, "as it stands");
        peer.say(Say::new(A, 1, 1).window(100));
        assert_eq!(peer.host.info(peer.id()).unwrap().peer_window_bytes, window);
    }
}

#[test]
fn a_shift_above_14_is_taken_as_14() {
    for (shift, taken) in [(14, 14), (15, 14), (255, 14), (13, 13)] {
        let mut peer = Peer::established_with(scaled(1 << 20), |syn| scale(syn, shift));
        peer.say(Say::new(A, 1, 1).window(2));
        assert_eq!(peer.host.info(peer.id()).unwrap().peer_window_bytes, 2 << taken);
    }
    let (_, syn) = Peer::opening(scaled(u32::MAX));
    assert_eq!(syn.options.window_scale, Some(14), "nor is a larger one sent");
}

#[test]
fn promised_bytes_are_taken_though_the_field_cannot_repeat_it() {
    // Units of 32 bytes: after a few odd bytes the edge cannot be told exactly.
    let mut peer = Peer::established_with(scaled(1 << 20), |syn| scale(syn, 0));
    let promised = 65_535;
    let mut seq = 1;
    for len in [1000, 7, 999, 13] {
        peer.say(Say::new(A, seq, 1).data(&std::vec![7; len]));
        seq += len as u32;
        peer.wait(Duration::from_millis(100));
    }
    let last = promised - 500;
    peer.say(Say::new(A, 1 + last, 1).data(&[7; 500]));
    let ack = peer.hear_one();
    assert_eq!(ack.ack, seq);
    assert_eq!(peer.host.counters().out_of_order, 1, "its last byte is the last one promised");
}

// ---- timestamps, §3 and §4

#[test]
fn every_segment_but_a_reset_has_the_agreed_timestamps() {
    let mut pair = Pair::new();
    let (_, client, server) = pair.connected();
    pair.transfer((Side::Client, client), (Side::Server, server), 100_000);
    pair.close(Side::Server, server, Duration::from_millis(100));
    pair.close(Side::Client, client, Duration::from_secs(1));
    for (_, _, bytes) in &pair.log {
        let packet = crate::wire::ip::Packet::parse(bytes).unwrap();
        let segment = Segment::parse(packet.payload).unwrap();
        let stamps = segment.options.timestamps;
        assert!(stamps.is_some(), "{segment:?}");
        // Without ACK there is nothing to echo.
        let is_first = !segment.flags.contains(Flags::ACK);
        assert_eq!(stamps.is_some_and(|stamps| stamps.echo == 0), is_first);
    }
}

#[test]
fn an_echo_without_ack_means_nothing() {
    let (mut peer, syn) = Peer::opening(stamped());
    let sent = syn.options.timestamps.unwrap().value;
    peer.now = peer.now + Duration::from_millis(100);
    // A crossing SYN that seems to echo ours, a while ago.
    peer.say(Say::new(S, 0, 0).mss(1000).stamp(5000, sent.wrapping_sub(60_000)));
    peer.hear_one();
    peer.say(Say::new(A, 1, 1).stamp(5000, 1));
    assert_eq!(peer.state(), State::Established);
    assert_eq!(peer.host.info(peer.id()).unwrap().srtt, Duration::ZERO);
}

#[test]
fn the_timestamp_clock_follows_time_by_milliseconds() {
    let at = Instant::from_millis(7_000);
    let later = |pass| stamp_at(at + pass, 0xffff_fff0).wrapping_sub(stamp_at(at, 0xffff_fff0));
    assert_eq!(later(Duration::from_secs(1)), 1000);
    assert_eq!(later(Duration::from_millis(1)), 1);
    // It comes round in 49.7 days: longer than any segment lives, shorter than PAWS' 24 days twice.
    assert_eq!(later(Duration::from_millis(1 << 32)), 0);
    let mut peer = established();
    let mut last = None;
    for _ in 0..3 {
        peer.write(10);
        let heard = peer.hear().pop().unwrap();
        let stamp = heard.options.timestamps.unwrap().value;
        if let Some(last) = last.replace(stamp) {
            assert_eq!(stamp.wrapping_sub(last), 250);
        }
        peer.say(Say::new(A, 1, heard.seq + 10).stamp(5001, stamp));
        peer.now = peer.now + Duration::from_millis(250);
    }
}

#[test]
fn what_fills_a_hole_is_echoed() {
    let mut peer = established();
    peer.say(Say::new(A, 1001, 1).stamp(5002, 0).data(&[1; 1000]));
    assert_eq!(
        peer.hear_one().options.timestamps.unwrap().echo,
        5000,
        "out of order: the one before"
    );
    peer.say(Say::new(A, 1, 1).stamp(5003, 0).data(&[1; 1000]));
    let ack = peer.hear_one();
    assert_eq!((ack.ack, ack.options.timestamps.unwrap().echo), (2001, 5003));
}

// ---- PAWS, §5

#[test]
fn ts_recent_never_goes_back() {
    let mut peer = established();
    let (id, now) = (peer.id(), peer.now);
    let mut options = peer.host.options(id).unwrap();
    options.nodelay = true;
    peer.host.set_options(now, id, options).unwrap();
    for (stamp, kept) in [(5010, 5010), (5005, 5010), (5010, 5010), (5011, 5011), (1, 5011)] {
        peer.say(Say::new(A, 1, 1).stamp(stamp, 0));
        peer.write(1);
        let echo = peer.hear().pop().unwrap().options.timestamps.unwrap().echo;
        assert_eq!(echo, kept);
    }
}

#[test]
fn paws_comes_before_the_window() {
    let mut peer = established();
    peer.say(Say::new(A, 70_000, 1).stamp(4999, 0).data(b"x"));
    assert_eq!(peer.hear_one().ack, 1);
    let counters = peer.host.counters();
    assert_eq!((counters.paws_rejected, counters.out_of_window), (1, 0));
}

#[test]
fn a_timestamp_is_judged_when_its_segment_comes_and_never_again() {
    let mut peer = established();
    peer.say(Say::new(A | F, 1001, 1).stamp(5001, 0).data(&[1; 1000]));
    peer.hear();
    // Meanwhile the clock has moved on: what waits is older than TS.Recent, and is taken.
    peer.say(Say::new(A, 1, 1).stamp(6000, 0).data(&[1; 1000]));
    assert_eq!(peer.hear_one().ack, 2002);
    assert_eq!(peer.read(9000).unwrap().len(), 2000);
    assert_eq!((peer.state(), peer.host.counters().paws_rejected), (State::CloseWait, 0));
}

#[test]
fn a_reset_is_not_judged_by_its_timestamp_and_teaches_none() {
    let mut peer = established();
    // Challenged, since it is not at RCV.NXT; its timestamp is not kept.
    peer.say(Say::new(R, 2, 0).stamp(9000, 0));
    assert_eq!(peer.hear_one().options.timestamps.unwrap().echo, 5000);
    peer.say(Say::new(A, 1, 1).stamp(5001, 0).data(b"x"));
    assert_eq!(peer.read(9).unwrap(), b"x");
    peer.say(Say::new(R, 2, 0).stamp(1, 0));
    assert_eq!(peer.state(), State::Closed, "old, and believed");
}

#[test]
fn a_reset_of_a_half_open_connection_ignores_its_timestamp() {
    let mut peer = Peer::listening(stamped());
    peer.say(Say::new(S, 0, 0).stamp(5000, 0));
    peer.hear_one();
    peer.say(Say::new(A, 1, 1).stamp(4999, 0));
    assert_eq!((peer.host.half_open(), peer.host.connections()), (1, 0), "an old ACK is none");
    peer.hear();
    // RFC 7323 §5.2 has resets carry 0 where nothing better is known.
    peer.say(Say::new(R, 1, 0).stamp(0, 0));
    assert_eq!(peer.host.half_open(), 0);
    assert_eq!(peer.host.counters().resets_received, 1);
}

#[test]
fn an_abort_carries_timestamps_if_they_were_agreed_on() {
    for agreed in [true, false] {
        let mut peer = if agreed { established() } else { Peer::established(plain()) };
        peer.now = peer.now + Duration::from_millis(10);
        peer.say(if agreed { Say::new(A, 1, 1).stamp(5007, 0) } else { Say::new(A, 1, 1) });
        peer.write(1);
        let before = peer.hear().pop().unwrap().options.timestamps;
        let (id, now) = (peer.id(), peer.now);
        peer.host.abort(now, id);
        let reset = peer.hear_one();
        assert!(reset.flags.contains(R));
        assert_eq!(reset.options.timestamps, before);
        assert_eq!(before.map(|Timestamps { echo, .. }| echo), agreed.then_some(5007));
    }
}
