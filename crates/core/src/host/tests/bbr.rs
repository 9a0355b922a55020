//! BBR and its pace as a host does them.

use super::pair::{CLIENT, Pair, SERVER, Side, config};
use super::peer::{A, Peer, Say, plain};
use crate::config::{Algorithm, Config};
use crate::host::Host;
use crate::time::Duration;

const ROUND_TRIP: Duration = Duration::from_millis(100);
/// What 277,000 bytes a second take for two segments of 1000 bytes.
const SPACING_NS: u64 = 2000 * 1_000_000_000 / 277_000;

fn by_bbr(config: Config) -> Config {
    let mut config = config;
    config.tcp.congestion.algorithm = Algorithm::Bbr;
    config
}

/// The initial window has left at once and was acknowledged a round trip later.
fn after_a_round_trip() -> Peer {
    let mut peer = Peer::established(by_bbr(plain()));
    peer.write(200_000);
    assert_eq!(peer.hear().len(), 10, "no round trip is known that they could be spread over");
    peer.wait(ROUND_TRIP);
    peer.say(Say::new(A, 1, 10_001));
    peer.write(200_000);
    peer
}

#[test]
fn what_the_rate_carries_in_a_millisecond_leaves_at_once() {
    let mut peer = after_a_round_trip();
    // 2.77 windows in a round trip (BBR.StartupPacingGain) are 277 bytes in a millisecond.
    let info = peer.host.info(peer.id()).unwrap();
    assert_eq!((info.pacing_bytes_per_second, info.pace.unwrap().burst_bytes), (277_000, 2000));
    assert_eq!(info.delivery.unwrap().bytes_per_second, 100_000);
    let mut at = std::vec::Vec::new();
    for _ in 0..4 {
        peer.write(10_000);
        let burst = peer.hear();
        assert_eq!(burst.iter().map(|heard| heard.len).sum::<usize>(), 2000, "two segments");
        at.push(peer.now);
        peer.now = peer.host.deadline().unwrap();
    }
    let mut between = at.windows(2).map(|pair| pair[1].nanos_since(pair[0]));
    assert!(between.all(|ns| ns.abs_diff(SPACING_NS) < 10));
}

#[test]
fn a_host_that_wakes_late_keeps_the_rate_and_tells_the_error() {
    let mut peer = after_a_round_trip();
    peer.hear();
    let begin = peer.now;
    for _ in 0..8 {
        peer.write(10_000);
        peer.now = peer.host.deadline().unwrap() + Duration::from_millis(1);
        assert_eq!(peer.hear().len(), 2);
    }
    // Eight bursts, the last a millisecond late.
    let took = peer.now.nanos_since(begin);
    assert!(took.abs_diff(8 * SPACING_NS + 1_000_000) < 100, "{took}");
    let late = peer.host.info(peer.id()).unwrap().pace.unwrap().late;
    assert!((500..=1000).contains(&late.as_micros()), "{late:?}");
}

#[test]
fn an_ack_waits_for_no_pace() {
    let mut peer = after_a_round_trip();
    peer.hear();
    let (sent, now) = (peer.host.counters().segments_out, peer.now);
    // Two full segments are acknowledged at once, and the next burst is 7 ms away.
    for start in [1, 1001] {
        peer.say(Say::new(A, start, 10_001).data(&[1; 1000]));
    }
    let heard = peer.hear();
    assert_eq!((peer.now, heard.len(), heard[0].len), (now, 1, 0));
    assert_eq!(peer.host.counters().segments_out, sent + 1);
}

#[test]
fn other_algorithms_have_no_model_and_no_schedule() {
    let mut peer = Peer::established(plain());
    peer.write(200_000);
    assert_eq!(peer.hear().len(), 10);
    let info = peer.host.info(peer.id()).unwrap();
    assert_eq!((info.model, info.pace), (None, None));
    assert_eq!(peer.host.live.paces.first(), None);
}

#[test]
fn a_connection_that_goes_leaves_nothing_in_the_schedule() {
    let mut peer = after_a_round_trip();
    peer.hear();
    assert!(peer.host.live.paces.first().is_some());
    let (id, now) = (peer.id(), peer.now);
    peer.host.abort(now, id);
    peer.hear();
    peer.wait(Duration::from_secs(1));
    assert_eq!(peer.host.live.paces.first(), None);
}

#[test]
fn a_transfer_and_a_rest_by_bbr_are_whole() {
    let mut pair = Pair::with(by_bbr(config(CLIENT)), by_bbr(config(SERVER)));
    let (_, client, server) = pair.connected();
    for _ in 0..3 {
        pair.transfer((Side::Server, server), (Side::Client, client), 1_000_000);
        // Longer than it takes to rest.
        pair.run_for(Duration::from_secs(30));
        assert!(pair.server.counters().rested > 0);
        let model = |host: &Host| host.info(server).unwrap().model;
        assert!(model(&pair.server).is_some_and(|model| model.bandwidth_bytes_per_second > 0));
    }
}
