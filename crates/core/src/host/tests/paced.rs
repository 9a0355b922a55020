//! Pacing of algorithms that have no model of the path, and its bound.

use core::num::NonZeroU64;

use super::pair::{CLIENT, Pair, SERVER, Side, config};
use super::peer::{A, Peer, S, Say, plain};
use crate::config::{Algorithm, Config};
use crate::tcp::SocketOptions;
use crate::time::Duration;

const ROUND_TRIP: Duration = Duration::from_millis(100);

fn paced(config: Config) -> Config {
    let mut config = config;
    config.tcp.congestion.pacing = true;
    config
}

fn change(peer: &mut Peer, by: impl Fn(&mut SocketOptions)) {
    let (now, id) = (peer.now, peer.id());
    let mut options = peer.host.options(id).unwrap();
    by(&mut options);
    peer.host.set_options(now, id, options).unwrap();
}

/// The initial window has left and was acknowledged a round trip later.
fn after_a_round_trip(config: Config) -> Peer {
    let mut peer = Peer::established(config);
    peer.write(200_000);
    assert_eq!(peer.hear().len(), 10, "at once: no answer has told how long a round trip takes");
    peer.wait(ROUND_TRIP);
    peer.say(Say::new(A, 1, 10_001));
    peer
}

/// When each of the next segments leaves, in ns, and how many of them leave together.
fn leaves(peer: &mut Peer, bursts: usize) -> (u64, usize) {
    let (mut at, mut most) = (std::vec::Vec::new(), 0);
    for _ in 0..bursts {
        most = most.max(peer.hear().len());
        at.push(peer.now);
        peer.now = peer.host.deadline().unwrap();
    }
    let mut between = at.windows(2).map(|pair| pair[1].nanos_since(pair[0]));
    let first = between.next().unwrap();
    assert!(between.all(|ns| ns.abs_diff(first) < 10));
    (first, most)
}

#[test]
fn two_windows_leave_in_a_round_trip_of_slow_start() {
    for algorithm in [Algorithm::Cubic, Algorithm::Reno, Algorithm::Dctcp] {
        let mut config = paced(plain());
        config.tcp.congestion.algorithm = algorithm;
        let mut peer = after_a_round_trip(config);
        // 20 segments of 1000 bytes in half a round trip.
        assert_eq!(leaves(&mut peer, 5), (5_000_000, 2), "{algorithm:?}");
        let info = peer.host.info(peer.id()).unwrap();
        assert_eq!((info.model, info.pace.unwrap().burst_bytes), (None, 2000));
        assert_eq!(info.pacing_bytes_per_second, 400_000);
    }
}

#[test]
fn later_a_fifth_more_than_the_window_leaves() {
    let mut config = paced(plain());
    config.tcp.congestion.algorithm = Algorithm::Reno;
    let mut peer = after_a_round_trip(config);
    leaves(&mut peer, 10);
    // A segment is lost, and all of them again: the window has halved.
    for _ in 0..4 {
        peer.say(Say::new(A, 1, 10_001));
    }
    peer.hear();
    peer.wait(ROUND_TRIP);
    peer.say(Say::new(A, 1, 30_001));
    let info = peer.host.info(peer.id()).unwrap();
    assert!(info.cwnd_bytes >= info.ssthresh_bytes / 2, "{info:?}");
    let srtt_ns = info.srtt.as_nanos() as u64;
    let rate = u64::from(info.cwnd_bytes) * 1_200_000_000 / srtt_ns;
    assert_eq!(info.pacing_bytes_per_second, rate);
}

#[test]
fn a_socket_bounds_the_rate_of_its_connection() {
    for algorithm in [Algorithm::Cubic, Algorithm::Bbr] {
        let mut pair = Pair::with(config(CLIENT), config(SERVER));
        let (_, client, server) = pair.connected();
        let mut options = pair.server.options(server).unwrap();
        options.congestion = algorithm;
        options.max_pacing_rate = NonZeroU64::new(100_000);
        pair.server.set_options(pair.now, server, options).unwrap();
        let began = pair.now;
        pair.transfer((Side::Server, server), (Side::Client, client), 200_000);
        let took = pair.now.since(began).as_millis();
        assert!((1900..2200).contains(&took), "{algorithm:?}: {took} ms for 2 s");
        let info = pair.server.info(server).unwrap();
        assert_eq!(info.pacing_bytes_per_second, 100_000, "{algorithm:?}");
    }
}

#[test]
fn a_paced_window_outlasts_five_minutes_of_silence() {
    for (seconds, segments) in [(299, 40), (301, 20), (601, 10), (6000, 10)] {
        let mut peer = Peer::established(paced(plain()));
        let mut acked = 1;
        for window in [10_000, 20_000] {
            peer.write(window);
            assert_eq!(peer.wait(ROUND_TRIP).len() * 1000, window);
            acked += window as u32;
            peer.say(Say::new(A, 1, acked));
        }
        peer.wait(Duration::from_secs(seconds));
        peer.write(100_000);
        assert_eq!(peer.wait(ROUND_TRIP).len(), segments, "{seconds} s");
    }
}

#[test]
fn a_pace_ends_when_the_socket_says_so() {
    let mut peer = after_a_round_trip(plain());
    assert_eq!(peer.hear().len(), 20, "not paced");
    change(&mut peer, |options| options.pacing = true);
    peer.wait(ROUND_TRIP);
    peer.say(Say::new(A, 1, 30_001));
    assert_eq!(peer.hear().len(), 2);
    assert!(peer.host.live.paces.first().is_some());
    change(&mut peer, |options| options.pacing = false);
    assert_eq!(peer.hear().len(), 38, "the rest of the window");
    peer.wait(ROUND_TRIP);
    assert_eq!(peer.host.live.paces.first(), None);
}

#[test]
fn a_burst_is_two_segments_at_the_lowest_rate() {
    let mut peer = after_a_round_trip(paced(plain()));
    peer.hear();
    change(&mut peer, |options| options.max_pacing_rate = NonZeroU64::new(1));
    let pace = |peer: &Peer| peer.host.info(peer.id()).unwrap().pace.unwrap();
    assert_eq!(pace(&peer).burst_bytes, 2000, "however low the rate is");
}

#[test]
fn paced_transfers_and_rests_are_whole() {
    let mut pair = Pair::with(paced(config(CLIENT)), paced(config(SERVER)));
    let (_, client, server) = pair.connected();
    for _ in 0..3 {
        pair.transfer((Side::Server, server), (Side::Client, client), 1_000_000);
        pair.run_for(Duration::from_secs(30));
        assert!(pair.server.counters().rested > 0);
        assert!(pair.server.info(server).unwrap().pace.is_some());
    }
}

fn bound(peer: &mut Peer, bytes_per_second: u64) {
    change(peer, |options| options.max_pacing_rate = NonZeroU64::new(bytes_per_second));
}

#[test]
fn a_higher_rate_counts_at_once() {
    let mut peer = after_a_round_trip(paced(plain()));
    bound(&mut peer, 1);
    assert_eq!(peer.wait(ROUND_TRIP).len(), 2);
    bound(&mut peer, 0);
    assert_eq!(peer.wait(ROUND_TRIP).len(), 18, "the rest of the window");
}

#[test]
fn what_waits_for_its_pace_times_out_when_it_has_left() {
    let mut peer = after_a_round_trip(plain());
    bound(&mut peer, 500);
    // Two segments leave and are lost; the next two may leave four seconds later.
    peer.wait(Duration::from_secs(30));
    let (info, counters) = (peer.host.info(peer.id()).unwrap(), peer.host.counters());
    assert!(info.timeouts > 1 && info.timeouts <= info.retransmits, "{info:?}");
    assert_eq!((counters.path_black_holes, info.mss_bytes), (0, 1000));
}

#[test]
fn a_connection_that_waits_for_its_pace_wakes_for_nothing_else() {
    let mut peer = after_a_round_trip(plain());
    bound(&mut peer, 10);
    assert_eq!(peer.hear().len(), 2);
    peer.say(Say::new(A, 1, 12_001));
    let (mut wakes, until) = (0, peer.now + Duration::from_secs(190));
    while let Some(at) = peer.host.deadline().filter(|at| *at < until) {
        (peer.now, wakes) = (at, wakes + 1);
        peer.hear();
    }
    assert!(wakes < 5, "{wakes} wakes");
}

#[test]
fn after_a_rest_the_schedule_is_heard_again() {
    let mut config = Config { addresses: plain().addresses, ..config(SERVER) };
    config.tcp.timestamps = false;
    let mut peer = Peer::established_with(config, |syn| syn.mss(1000).sack_permitted());
    // A peer that has sent something, with an ACK's delay of its own.
    peer.say(Say::new(A, 1, 1).data(b"hello"));
    peer.read(5).unwrap();
    peer.write(10_000);
    peer.hear();
    peer.wait(ROUND_TRIP);
    peer.say(Say::new(A, 6, 10_001));
    peer.hear();
    bound(&mut peer, 200);
    peer.write(3000);
    // The third segment waits. A loss probe takes it along, and its entry stays.
    peer.wait(Duration::from_millis(250));
    peer.say(Say::new(A, 6, 13_001));
    peer.wait(Duration::from_millis(1));
    while peer.host.event().is_some() {}
    peer.wait(Duration::from_secs(40));
    assert_eq!(peer.host.counters().rested, 1);
    bound(&mut peer, 100_000);
    peer.write(20_000);
    assert_eq!(peer.wait(Duration::from_millis(190)).len(), 20);
}

#[test]
fn a_round_trip_of_nothing_is_no_reason_to_wait() {
    let config = |address| {
        let mut config = paced(config(address));
        config.tcp.congestion.algorithm = Algorithm::Reno;
        config
    };
    let mut pair = Pair::with(config(CLIENT), config(SERVER));
    pair.delay = Duration::ZERO;
    let (_, client, server) = pair.connected();
    let began = pair.now;
    pair.transfer((Side::Server, server), (Side::Client, client), 1_000_000);
    let took = pair.now.since(began);
    assert!(took < Duration::from_millis(1), "{took:?}");
}

#[test]
fn the_handshake_tells_over_which_time_to_spread() {
    let mut peer = Peer::listening(paced(plain()));
    peer.say(Say::new(S, 0, 0).mss(1000));
    peer.hear_one();
    peer.wait(Duration::from_millis(150));
    peer.say(Say::new(A, 1, 1));
    peer.accept();
    let rate = peer.host.info(peer.id()).unwrap().pacing_bytes_per_second;
    assert_eq!(rate, 2 * 10_000 * 1000 / 150);
    peer.write(20_000);
    assert_eq!(peer.hear().len(), 10, "the initial window leaves at once");
}
