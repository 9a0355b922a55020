//! Retransmission: timeouts, back-off and giving up; fast retransmit and recovery.

use super::peer::{A, Peer, S, Say, plain, reno};
use crate::config::{ClockConfig, Config, Estimator, LossDetection, Scheme, TcpConfig};
use crate::error::Error;
use crate::tcp::State;
use crate::time::Duration;
use std::vec::Vec;

const SCHEMES: [Scheme; 4] = [Scheme::Inline, Scheme::Wheel, Scheme::Scan, Scheme::OrderedList];

fn with_sack() -> Peer {
    let mut config = reno();
    config.tcp.sack = true;
    config.tcp.congestion.detection = LossDetection::Count;
    Peer::established_with(config, |syn| syn.mss(1000).sack_permitted())
}

/// Sequence numbers of what the host sends now.
fn seqs(peer: &mut Peer) -> Vec<u32> {
    peer.hear().iter().map(|heard| heard.seq).collect()
}

#[test]
fn the_initial_window_is_ten_segments() {
    let mut peer = Peer::established(plain());
    peer.write(50_000);
    assert_eq!(peer.hear().len(), 10);
}

#[test]
fn a_lost_segment_is_resent_with_back_off_and_given_up_at_last() {
    let mut peer = Peer::established(plain());
    peer.write(100);
    let first = peer.hear_one().at;
    let heard = peer.wait(Duration::from_secs(400));
    let seconds: Vec<u64> = heard.iter().map(|h| h.at.since(first).as_secs()).collect();
    assert_eq!(&seconds[..8], [1, 3, 7, 15, 31, 63, 123, 183]);
    assert!(heard[..8].iter().all(|h| (h.seq, h.len) == (1, 100)));
    assert_eq!(peer.state(), State::Closed);
    let id = peer.id();
    assert_eq!(peer.host.take_error(id), Some(Error::TimedOut));
    assert!(heard.last().unwrap().at.since(first) >= Duration::from_secs(100), "RFC 1122's R2");
}

#[test]
fn a_user_timeout_gives_up_sooner() {
    let mut peer = Peer::established(plain());
    let (id, now) = (peer.id(), peer.now);
    let mut options = peer.host.options(id).unwrap();
    options.user_timeout = Duration::from_secs(5);
    peer.host.set_options(now, id, options).unwrap();
    peer.write(100);
    peer.wait(Duration::from_millis(4_999));
    assert_eq!(peer.state(), State::Established);
    peer.wait(Duration::from_millis(1));
    assert_eq!(peer.state(), State::Closed);
}

#[test]
fn a_syn_backs_off_and_is_given_up_after_three_minutes() {
    let (mut peer, _) = Peer::opening(plain());
    let started = peer.now;
    let heard = peer.wait(Duration::from_secs(179));
    let seconds: Vec<u64> = heard.iter().map(|h| h.at.since(started).as_secs()).collect();
    assert_eq!(seconds, [1, 3, 7, 15, 31, 63, 123]);
    assert!(heard.iter().all(|h| h.flags == S));
    assert_eq!(peer.state(), State::SynSent);
    peer.wait(Duration::from_secs(1));
    let id = peer.id();
    assert_eq!(peer.host.take_error(id), Some(Error::TimedOut));
}

#[test]
fn after_a_lost_syn_the_window_is_one_mss_and_the_rto_3_s() {
    let (mut peer, _) = Peer::opening(plain());
    peer.wait(Duration::from_secs(1));
    peer.say(Say::new(S | A, 0, 1).mss(1000));
    peer.hear();
    peer.write(5000);
    assert_eq!(peer.hear_one().len, 1000);
    let sent = peer.now;
    let again = peer.wait(Duration::from_secs(4)).remove(0);
    assert_eq!(again.at.since(sent), Duration::from_secs(3));
}

#[test]
fn three_duplicate_acks_resend_the_lost_segment_and_two_do_not() {
    let mut peer = Peer::established(reno());
    peer.write(10_000);
    assert_eq!(peer.hear().len(), 10);
    for _ in 0..2 {
        peer.say(Say::new(A, 1, 1));
    }
    assert!(peer.hear().is_empty());
    peer.say(Say::new(A, 1, 1));
    assert_eq!(seqs(&mut peer), [1]);
    let info = peer.host.info(peer.id()).unwrap();
    assert_eq!((info.ssthresh_bytes, info.cwnd_bytes), (5000, 5000));
}

#[test]
fn an_ack_with_another_window_is_no_duplicate() {
    let mut peer = Peer::established(plain());
    peer.write(5000);
    peer.hear();
    for window in [50_000, 40_000, 50_000, 40_000, 50_000] {
        peer.say(Say::new(A, 1, 1).window(window));
        assert!(peer.hear().is_empty(), "{window}");
    }
    for _ in 0..2 {
        peer.say(Say::new(A, 1, 1).window(50_000));
        assert!(peer.hear().is_empty());
    }
    peer.say(Say::new(A, 1, 1).window(50_000));
    assert_eq!(peer.hear_one().seq, 1);
}

#[test]
fn limited_transmit_sends_new_data_on_the_first_two_duplicates() {
    let mut peer = Peer::established(plain());
    peer.write(20_000);
    assert_eq!(peer.hear().len(), 10);
    peer.say(Say::new(A, 1, 1));
    assert_eq!(seqs(&mut peer), [10_001]);
    peer.say(Say::new(A, 1, 1));
    assert_eq!(seqs(&mut peer), [11_001]);
    peer.say(Say::new(A, 1, 1));
    assert_eq!(seqs(&mut peer), [1]);
}

#[test]
fn new_reno_sends_the_next_hole_on_a_partial_ack() {
    let mut peer = Peer::established(reno());
    peer.write(10_000);
    peer.hear();
    for _ in 0..3 {
        peer.say(Say::new(A, 1, 1));
    }
    assert_eq!(seqs(&mut peer), [1]);
    peer.say(Say::new(A, 1, 3001));
    assert_eq!(seqs(&mut peer), [3001], "a partial ACK shows the next hole");
    peer.say(Say::new(A, 1, 10_001));
    assert!(peer.hear().is_empty());
    let info = peer.host.info(peer.id()).unwrap();
    assert_eq!((info.in_flight_bytes, info.cwnd_bytes), (0, 5000));
}

#[test]
fn sack_sends_every_hole_and_nothing_twice() {
    let mut peer = with_sack();
    peer.write(10_000);
    peer.hear();
    // Segments 1 and 4 (bytes 1..1001 and 3001..4001) are lost.
    let say = Say::new(A, 1, 1).sack(&peer, 1001, 3001);
    peer.say(say);
    assert!(peer.hear().is_empty());
    let say = Say::new(A, 1, 1).sack(&peer, 4001, 10_001).sack(&peer, 1001, 3001);
    peer.say(say);
    assert_eq!(seqs(&mut peer), [1, 3001]);
    let say = Say::new(A, 1, 3001).sack(&peer, 4001, 10_001);
    peer.say(say);
    assert!(peer.hear().is_empty());
    peer.say(Say::new(A, 1, 10_001));
    assert_eq!(peer.host.info(peer.id()).unwrap().in_flight_bytes, 0);
}

#[test]
fn a_timeout_forgets_what_was_sacked_and_starts_slowly() {
    let mut peer = with_sack();
    peer.write(10_000);
    peer.hear();
    let say = Say::new(A, 1, 1).sack(&peer, 1001, 2001);
    peer.say(say);
    let heard = peer.wait(Duration::from_secs(1));
    assert_eq!(heard.iter().map(|h| h.seq).collect::<Vec<_>>(), [1]);
    assert_eq!(peer.host.info(peer.id()).unwrap().cwnd_bytes, 1000);
    peer.say(Say::new(A, 1, 2001));
    assert_eq!(seqs(&mut peer), [2001, 3001], "slow start: one more than acknowledged");
}

#[test]
fn the_receiver_reports_duplicates_first_and_the_latest_block() {
    let mut peer = with_sack();
    let blocks = |heard: &super::peer::Heard, peer: &Peer| -> Vec<(u32, u32)> {
        let blocks = heard.options.sack.iter();
        blocks.map(|b| (b.start.since(peer.isn), b.end.since(peer.isn))).collect()
    };
    peer.say(Say::new(A, 2001, 1).data(&[1; 100]));
    let heard = peer.hear_one();
    assert_eq!(blocks(&heard, &peer), [(2001, 2101)]);
    peer.say(Say::new(A, 4001, 1).data(&[1; 100]));
    let heard = peer.hear_one();
    assert_eq!(blocks(&heard, &peer), [(4001, 4101), (2001, 2101)]);
    peer.say(Say::new(A, 2001, 1).data(&[1; 100]));
    let heard = peer.hear_one();
    assert_eq!(blocks(&heard, &peer)[0], (2001, 2101), "D-SACK, RFC 2883");
    peer.say(Say::new(A, 1, 1).data(&[1; 100]));
    peer.hear();
    peer.say(Say::new(A, 1, 1).data(&[1; 100]));
    let heard = peer.hear_one();
    assert_eq!(blocks(&heard, &peer)[0], (1, 101), "below RCV.NXT too");
    peer.say(Say::new(A, (1 << 31) + 90, 1).data(&[1; 1000]));
    let heard = peer.hear_one();
    assert_eq!(blocks(&heard, &peer)[0], (4001, 4101), "half the space ahead is no duplicate");
}

#[test]
fn after_idleness_the_window_starts_again_from_the_initial_one() {
    let mut peer = Peer::established(plain());
    for _ in 0..3 {
        peer.write(20_000);
        let heard = peer.hear();
        let end = heard.last().unwrap().seq + 1000;
        peer.now = peer.now + Duration::from_millis(10);
        peer.say(Say::new(A, 1, end));
    }
    let grown = peer.host.info(peer.id()).unwrap().cwnd_bytes;
    assert!(grown > 20_000, "{grown}");
    while let Some(last) = peer.hear().last().cloned() {
        peer.now = peer.now + Duration::from_millis(10);
        peer.say(Say::new(A, 1, last.seq + last.len as u32));
    }
    peer.wait(Duration::from_secs(5));
    peer.write(100_000);
    assert_eq!(peer.hear().len(), 10);
}

#[test]
fn after_idleness_large_segments_are_as_few_as_at_the_start() {
    let mut config = plain();
    config.device.mtu = 9000;
    let mut peer = Peer::established_with(config, |syn| syn.mss(3000));
    let mut sent = Vec::new();
    for _ in 0..2 {
        // RFC 6928 §2: 14,600 bytes, which whole segments do not fill.
        peer.write(50_000);
        let mut heard = peer.hear();
        sent.push(heard.iter().map(|heard| heard.len).sum::<usize>());
        while let Some(last) = heard.pop() {
            peer.now = peer.now + Duration::from_millis(10);
            peer.say(Say::new(A, 1, last.seq + last.len as u32));
            heard = peer.hear();
        }
        peer.wait(Duration::from_secs(5));
    }
    assert_eq!(sent, [12_000; 2]);
}

#[test]
fn what_is_lost_and_then_acknowledged_lets_nothing_new_go() {
    let mut peer = with_sack();
    peer.write(10_000);
    assert_eq!(peer.hear().len(), 10);
    // Three blocks begin a recovery, and before anything is sent the hole is acknowledged.
    for end in [2001, 3001, 4001] {
        peer.say(Say::new(A, 1, 1).sack(&peer, 1001, end));
    }
    peer.say(Say::new(A, 1, 4001));
    peer.write(40_000);
    let info = peer.host.info(peer.id()).unwrap();
    assert_eq!((info.cwnd_bytes, info.in_flight_bytes), (5000, 6000));
    assert_eq!(seqs(&mut peer), Vec::<u32>::new(), "the window is full");
    peer.say(Say::new(A, 1, 8001));
    assert_eq!(seqs(&mut peer), [10_001, 11_001, 12_001]);
}

#[test]
fn keepalive_probes_an_idle_peer_and_gives_up_a_silent_one() {
    let mut peer = Peer::established(plain());
    let (id, now) = (peer.id(), peer.now);
    let mut options = peer.host.options(id).unwrap();
    options.keepalive = Some(crate::tcp::Keepalive {
        idle: Duration::from_secs(60),
        interval: Duration::from_secs(10),
        probes: 3,
    });
    peer.host.set_options(now, id, options).unwrap();
    let probe = peer.wait(Duration::from_secs(60)).remove(0);
    assert_eq!((probe.seq, probe.len), (0, 0), "SND.NXT - 1");
    peer.say(Say::new(A, 1, 1));
    let started = peer.now;
    let heard = peer.wait(Duration::from_secs(100));
    let seconds: Vec<u64> = heard.iter().map(|h| h.at.since(started).as_secs()).collect();
    assert_eq!(seconds, [60, 70, 80, 90], "three probes, and then the reset");
    assert_eq!(peer.host.take_error(id), Some(Error::TimedOut));
}

// ---- timestamps

fn stamped() -> Config {
    let mut config = plain();
    config.tcp.timestamps = true;
    config
}

#[test]
fn an_old_timestamp_is_answered_and_dropped() {
    let mut peer = Peer::established_with(stamped(), |syn| syn.mss(1000).stamp(5000, 0));
    peer.say(Say::new(A, 1, 1).stamp(4999, 0).data(b"x"));
    assert_eq!(peer.hear_one().ack, 1);
    assert_eq!(peer.host.counters().paws_rejected, 1);
    peer.say(Say::new(A, 1, 1).stamp(5000, 0).data(b"x"));
    assert_eq!(peer.read(9).unwrap(), b"x");
}

#[test]
fn an_unstamped_segment_is_dropped_unless_it_is_a_reset() {
    let mut peer = Peer::established_with(stamped(), |syn| syn.mss(1000).stamp(5000, 0));
    peer.say(Say::new(A, 1, 1).data(b"x"));
    assert!(peer.hear().is_empty());
    assert_eq!(peer.host.counters().timestamp_missing, 1);
    peer.say(Say::new(super::peer::R, 1, 0));
    assert_eq!(peer.state(), State::Closed);
}

#[test]
fn the_echo_is_of_the_first_segment_that_a_delayed_ack_covers() {
    let mut peer = Peer::established_with(stamped(), |syn| syn.mss(1000).stamp(5000, 0));
    peer.say(Say::new(A, 1, 1).stamp(5001, 0).data(&[1; 500]));
    peer.say(Say::new(A, 501, 1).stamp(5002, 0).data(&[1; 500]));
    let ack = peer.hear_one();
    assert_eq!((ack.ack, ack.options.timestamps.unwrap().echo), (1001, 5001));
    peer.say(Say::new(A, 1501, 1).stamp(5009, 0).data(&[1; 500]));
    assert_eq!(peer.hear_one().options.timestamps.unwrap().echo, 5001, "out of order");
}

#[test]
fn after_24_days_a_timestamp_says_nothing() {
    let mut peer = Peer::established_with(stamped(), |syn| syn.mss(1000).stamp(5000, 0));
    peer.now = peer.now + Duration::from_secs(24 * 86_400);
    peer.say(Say::new(A, 1, 1).stamp(10, 0).data(b"x"));
    assert_eq!(peer.read(9).unwrap(), b"x");
}

#[test]
fn with_sack_three_small_duplicates_start_recovery_too() {
    let mut peer = with_sack();
    let (id, now) = (peer.id(), peer.now);
    let mut options = peer.host.options(id).unwrap();
    options.nodelay = true;
    peer.host.set_options(now, id, options).unwrap();
    for _ in 0..6 {
        peer.write(100);
        peer.hear_one();
    }
    for end in [201, 301] {
        let say = Say::new(A, 1, 1).sack(&peer, 101, end);
        peer.say(say);
        assert!(peer.hear().is_empty());
    }
    let say = Say::new(A, 1, 1).sack(&peer, 101, 401);
    peer.say(say);
    assert_eq!(seqs(&mut peer), [1, 401], "the hole, and RFC 6675's rescue of the tail");
}

#[test]
fn blocks_beside_the_ack_of_a_zero_window_probe_are_nothing() {
    let mut peer = with_sack();
    peer.say(Say::new(A, 1, 1).window(0));
    peer.write(10);
    peer.wait(Duration::from_secs(1));
    // The probe's byte is accepted; what the blocks tell of was never sent.
    let say = Say::new(A, 1, 2).window(0).sack(&peer, 3, 1000);
    peer.say(say);
    assert!(peer.hear().is_empty());
    peer.say(Say::new(A, 1, 2).window(100));
    assert_eq!(peer.hear_one().len, 9);
    assert_eq!(peer.host.info(peer.id()).unwrap().in_flight_bytes, 9);
}

#[test]
fn what_was_told_of_before_does_not_open_the_window_again() {
    for sack in [true, false] {
        let mut config = plain();
        config.tcp.sack = sack;
        config.tcp.congestion.detection = LossDetection::Count;
        let mut peer = Peer::established_with(config, |syn| syn.mss(1000).sack_permitted());
        peer.write(15_000);
        assert_eq!(peer.hear().len(), 10);
        // Limited transmit: a new segment for each of two duplicates.
        for end in [2001, 3001] {
            let mut duplicate = Say::new(A, 1, 1);
            if sack {
                duplicate = duplicate.sack(&peer, 1001, end);
            }
            peer.say(duplicate);
            assert_eq!(peer.hear().len(), 1);
        }
        // It was reordering. Three segments are acknowledged, one of them is news: eleven may be
        // out, and nine are.
        peer.say(Say::new(A, 1, 3001));
        assert_eq!(peer.hear().len(), 2, "sack {sack}");
    }
}

/// How long a lone lost tail, sent `phase` after a slow tick of 4.4BSD, waits for its
/// retransmission after 40 round trips of 60 ms.
fn tail_waits(change: impl Fn(&mut TcpConfig), phase: Duration) -> Duration {
    let mut config = plain();
    change(&mut config.tcp);
    let mut peer = Peer::established(config);
    let mut acked = 1;
    for _ in 0..40 {
        peer.write(100);
        assert_eq!(peer.hear().len(), 1);
        acked += 100;
        peer.wait(Duration::from_millis(60));
        peer.say(Say::new(A, 1, acked));
        peer.hear();
    }
    let slow = 500_000_000;
    let into = Duration::from_nanos(peer.now.as_nanos() % slow);
    assert!(peer.wait(Duration::from_nanos(slow) + phase - into).is_empty());
    peer.write(100);
    assert_eq!(peer.hear().len(), 1);
    let sent = peer.now;
    peer.wait_for_one().at.since(sent)
}

/// Estimators on a fine clock, the paper's with and without its floor, and on Linux's clock of
/// 1 ms; each with what a steady path of 60 ms comes to, in ms: without a floor, the integers of
/// 4.4BSD never let the deviation go below 3.
fn timed() -> [(&'static str, TcpConfig, u64); 4] {
    let with = |estimator, floor_ms, measure_hz| {
        plain().tcp.with(|tcp| {
            tcp.rto.estimator = estimator;
            tcp.rto.floor = Duration::from_millis(floor_ms);
            tcp.clock = ClockConfig { measure_hz, tick: Duration::from_millis(1) };
        })
    };
    [
        ("rfc6298", with(Estimator::Rfc6298, 200, 1_000_000_000), 260),
        ("fine", with(Estimator::Fine, 200, 1_000_000_000), 200),
        ("fine, no floor", with(Estimator::Fine, 0, 1_000_000_000), 63),
        ("1 ms", with(Estimator::Rfc6298, 200, 1000), 260),
    ]
}

#[test]
fn a_lost_tail_on_a_path_of_60_ms_waits_as_each_estimator_says() {
    for (name, tcp, rto_ms) in timed() {
        for phase_ms in [0, 1, 250, 499] {
            for scheme in SCHEMES {
                let change = |config: &mut TcpConfig| {
                    *config = tcp.clone();
                    config.timers = scheme;
                };
                let waited = tail_waits(change, Duration::from_millis(phase_ms)).as_millis();
                // Two slow ticks at least.
                let expected = match scheme {
                    Scheme::Inline | Scheme::Wheel => u128::from(rto_ms),
                    Scheme::Scan | Scheme::OrderedList => u128::from(1000 - phase_ms),
                };
                assert_eq!(waited, expected, "{name}, {scheme:?}, {phase_ms} ms into a tick");
            }
        }
    }
}

#[test]
fn a_lost_tail_on_a_path_of_60_ms_waits_as_many_ticks_as_in_bsd() {
    for (estimator, rto_ms) in [(Estimator::Bsd, 1500), (Estimator::BsdBrakmoPeterson, 1000)] {
        for phase_ms in [0, 1, 250, 499] {
            for scheme in SCHEMES {
                let change = |config: &mut TcpConfig| {
                    (config.rto.estimator, config.timers) = (estimator, scheme);
                };
                let waited = tail_waits(change, Duration::from_millis(phase_ms)).as_millis();
                // By BSD's own ticks a part of the first is over already.
                let expected = match scheme {
                    Scheme::Inline | Scheme::Wheel => rto_ms,
                    Scheme::Scan | Scheme::OrderedList => rto_ms - u128::from(phase_ms),
                };
                assert_eq!(waited, expected, "{estimator:?}, {scheme:?}, {phase_ms} ms");
            }
        }
    }
}
