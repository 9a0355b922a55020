//! Congestion control and the retransmission timer: RFC 5681, RFC 6298.

use crate::config::LossDetection;
use crate::config::TcpConfig;
use crate::host::tests::peer::{A, Peer, S, Say, plain, reno};
use crate::tcp::send::rtt::{Bounds, Rtt};
use crate::time::{Duration, Instant};
use crate::wire::icmpv4::Message;
use std::vec::Vec;

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn seqs(peer: &mut Peer) -> Vec<u32> {
    peer.hear().iter().map(|heard| heard.seq).collect()
}

fn window_and_threshold(peer: &Peer) -> (u32, u32) {
    let info = peer.host.info(peer.id()).unwrap();
    (info.cwnd_bytes, info.ssthresh_bytes)
}

// ---- RFC 5681

#[test]
fn the_handshake_does_not_open_the_congestion_window() {
    let (mut peer, _) = Peer::opening(plain());
    peer.say(Say::new(S | A, 0, 1).mss(1000));
    peer.hear();
    assert_eq!(window_and_threshold(&peer), (10_000, u32::MAX), "and the threshold is the highest");
    let peer = Peer::established(plain());
    assert_eq!(window_and_threshold(&peer), (10_000, u32::MAX));
}

#[test]
fn a_smaller_path_mtu_shrinks_the_window_in_proportion() {
    let mut peer = Peer::established_with(plain(), |syn| syn.mss(1460));
    peer.write(50_000);
    assert_eq!(peer.hear().len(), 10);
    assert_eq!(window_and_threshold(&peer).0, 14_600);
    let quoted = super::errors::quoted(&peer, 1, 1500);
    let too_big = Message::Unreachable { code: 4, next_hop_mtu: 770, quoted: &quoted };
    super::errors::complain(&mut peer, &too_big);
    let again = peer.hear();
    assert_eq!((again[0].seq, again[0].len), (1, 730));
    assert_eq!(window_and_threshold(&peer), (7300, u32::MAX), "ten of the smaller segments");
    assert_eq!(again.len(), 10);
}

#[test]
fn a_peers_larger_mss_gives_the_initial_window_of_the_path() {
    let mut peer = Peer::established_with(plain(), |syn| syn.mss(9000));
    peer.write(50_000);
    let lens: Vec<usize> = peer.hear().iter().map(|heard| heard.len).collect();
    assert_eq!(lens, [1460; 10]);
}

#[test]
fn what_limited_transmit_adds_does_not_raise_the_threshold() {
    let mut peer = Peer::established(reno());
    peer.write(20_000);
    assert_eq!(peer.hear().len(), 10);
    for _ in 0..2 {
        peer.say(Say::new(A, 1, 1));
        assert_eq!(peer.hear().len(), 1);
    }
    assert_eq!(window_and_threshold(&peer), (10_000, u32::MAX), "nor does it change cwnd");
    assert_eq!(peer.host.info(peer.id()).unwrap().in_flight_bytes, 12_000);
    peer.say(Say::new(A, 1, 1));
    assert_eq!(seqs(&mut peer), [1]);
    assert_eq!(window_and_threshold(&peer).1, 5000, "half of the ten from before");
}

#[test]
fn with_sack_a_duplicate_without_news_lets_nothing_go() {
    let mut config = plain();
    config.tcp.sack = true;
    config.tcp.congestion.detection = LossDetection::Count;
    let mut peer = Peer::established_with(config, |syn| syn.mss(1000).sack_permitted());
    peer.write(20_000);
    assert_eq!(peer.hear().len(), 10);
    for _ in 0..5 {
        peer.say(Say::new(A, 1, 1));
    }
    assert!(peer.hear().is_empty());
    let news = Say::new(A, 1, 1).sack(&peer, 1001, 2001);
    peer.say(news);
    assert_eq!(seqs(&mut peer), [10_001]);
}

#[test]
fn each_further_duplicate_sends_a_segment_and_the_end_deflates() {
    let mut peer = Peer::established(reno());
    peer.write(30_000);
    assert_eq!(peer.hear().len(), 10);
    for _ in 0..3 {
        peer.say(Say::new(A, 1, 1));
    }
    // 10 were out, 3 have left, one is sent again: the pipe holds 8 of the 5 allowed.
    assert_eq!(seqs(&mut peer), [1]);
    let mut sent = Vec::new();
    for _ in 3..9 {
        peer.say(Say::new(A, 1, 1));
        sent.extend(seqs(&mut peer));
    }
    assert_eq!(sent, [10_001, 11_001, 12_001, 13_001], "one for each once the pipe has room");
    peer.say(Say::new(A, 1, 14_001));
    let info = peer.host.info(peer.id()).unwrap();
    assert_eq!((info.cwnd_bytes, info.ssthresh_bytes), (5000, 5000));
    assert_eq!(peer.hear().len(), 5);
}

#[test]
fn the_loss_of_a_retransmission_lowers_the_window_twice() {
    let mut peer = Peer::established(reno());
    peer.write(10_000);
    peer.hear();
    for _ in 0..3 {
        peer.say(Say::new(A, 1, 1));
    }
    assert_eq!(seqs(&mut peer), [1]);
    assert_eq!(window_and_threshold(&peer), (5000, 5000));
    let again = peer.wait(Duration::from_secs(1));
    assert_eq!(again[0].seq, 1);
    assert_eq!(window_and_threshold(&peer), (1000, 2500));
}

#[test]
fn loss_in_two_windows_lowers_it_twice_and_avoidance_follows() {
    let mut peer = Peer::established(reno());
    peer.write(60_000);
    peer.hear();
    for _ in 0..3 {
        peer.say(Say::new(A, 1, 1));
    }
    peer.hear();
    peer.say(Say::new(A, 1, 10_001));
    assert_eq!(window_and_threshold(&peer), (5000, 5000));
    assert_eq!(peer.hear().len(), 5);
    // A window later it has grown by one segment, not doubled.
    for n in 1..=5 {
        peer.say(Say::new(A, 1, 10_001 + 1000 * n));
    }
    assert_eq!(window_and_threshold(&peer), (6000, 5000));
    assert_eq!(peer.hear().len(), 6);
    for _ in 0..3 {
        peer.say(Say::new(A, 1, 15_001));
    }
    assert_eq!(window_and_threshold(&peer), (3000, 3000));
}

#[test]
fn no_segment_gets_more_than_one_ack() {
    let mut config = plain();
    config.tcp.ack.quick = 16;
    let mut peer = Peer::established(config);
    for seq in [1, 501, 2001, 1001, 1001, 3001, 2501, 1501] {
        let heard = peer.exchange(Say::new(A, seq, 1).data(&[1; 500]));
        assert_eq!(heard.len(), 1, "{heard:?}");
    }
    // An ACK is none for an ACK, either.
    assert!(peer.exchange(Say::new(A, 3501, 1)).is_empty());
}

// ---- RFC 6298

/// A lone segment is acknowledged after `age`.
fn sample(rtt: &mut Rtt, age: Duration) {
    let sent = Instant::from_millis(1000);
    rtt.on_sample(sent, sent + age, 1);
}

#[test]
fn the_variation_is_updated_before_the_mean_with_the_rfcs_gains() {
    let config = TcpConfig::default().with(|tcp| tcp.rto.floor = ms(0));
    let mut rtt = Rtt::new(&Bounds::new(&config));
    sample(&mut rtt, ms(100));
    assert_eq!((rtt.srtt(), rtt.rttvar()), (ms(100), ms(50)));
    assert_eq!(rtt.rto(&config), ms(300), "SRTT + 4 RTTVAR");
    sample(&mut rtt, ms(200));
    // 3/4 50 + 1/4 |100 - 200|, and then 7/8 100 + 1/8 200.
    assert_eq!((rtt.srtt(), rtt.rttvar()), (Duration::from_micros(112_500), ms(62) + ms(1) / 2));
}

#[test]
fn a_variation_of_nothing_counts_as_the_clock_s_grain() {
    let config = TcpConfig::default().with(|tcp| tcp.rto.floor = ms(0));
    let mut rtt = Rtt::new(&Bounds::new(&config));
    for _ in 0..1000 {
        sample(&mut rtt, ms(100));
    }
    assert_eq!(rtt.rto(&config), ms(101));
}

#[test]
fn the_timer_starts_over_with_each_acknowledgement_of_new_data() {
    // By time, with so few out, it would count from when the oldest left (RFC 7765).
    let mut config = plain();
    config.tcp.congestion.detection = LossDetection::Count;
    let mut peer = Peer::established(config);
    peer.write(3000);
    assert_eq!(peer.hear().len(), 3);
    // The RTO is 1 s: nothing is sent again as long as something new is acknowledged in time.
    for ack in [1001, 2001] {
        assert!(peer.wait(ms(900)).is_empty());
        peer.say(Say::new(A, 1, ack));
        peer.hear();
    }
    let acked = peer.now;
    let rto = peer.host.info(peer.id()).unwrap().rto;
    let again = peer.wait(Duration::from_secs(10)).remove(0);
    // The timers' slots are a millisecond wide: it comes no earlier, and at most so much later.
    let waited = again.at.since(acked);
    assert!(again.seq == 2001 && waited >= rto && waited <= rto + ms(1), "{waited:?} of {rto:?}");
    // With everything acknowledged it stops.
    peer.say(Say::new(A, 1, 3001));
    peer.hear();
    assert!(peer.wait(Duration::from_secs(100)).is_empty());
}

#[test]
fn a_later_segment_is_not_resent_before_its_own_timeout() {
    let mut peer = Peer::established(plain());
    peer.write(1000);
    peer.hear_one();
    peer.now = peer.now + ms(900);
    peer.write(1000);
    let second = peer.hear_one();
    let heard = peer.wait(ms(999));
    assert_eq!(heard.iter().map(|h| h.seq).collect::<Vec<_>>(), [1], "{second:?}");
}

#[test]
fn each_round_trip_gives_a_sample() {
    let mut peer = Peer::established(plain());
    for round in 1..=20 {
        peer.write(1000);
        let heard = peer.hear_one();
        peer.now = peer.now + ms(10 * round);
        peer.say(Say::new(A, 1, heard.seq + 1000));
        let info = peer.host.info(peer.id()).unwrap();
        assert_eq!(info.latest_rtt, ms(10 * round));
    }
}
