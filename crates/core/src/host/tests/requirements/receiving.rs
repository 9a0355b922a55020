//! The receiver: windows, urgent data, acknowledgements: RFC 9293 §3.8.5, §3.8.6, §3.10.7.4.

use crate::config::AckDelay;
use crate::event::{Event, Readiness};
use crate::flow::Seq;
use crate::host::Host;
use crate::host::tests::pair::config;
use crate::host::tests::peer::{A, Heard, Peer, R, Say, plain};
use crate::tcp::State;
use crate::time::Duration;
use std::vec::Vec;

/// A connection whose receive window is full.
fn with_closed_window() -> Peer {
    let mut config = plain();
    config.tcp.buffers.receive = 2000;
    config.tcp.buffers.receive_max = 2000;
    let mut peer = Peer::established(config);
    peer.say(Say::new(A, 1, 1).data(&[7; 1000]));
    peer.say(Say::new(A, 1001, 1).data(&[7; 1000]));
    let ack = peer.hear_one();
    assert_eq!((ack.ack, ack.window), (2001, 0));
    peer
}

/// The urgent notices that the host has for its user.
fn urgent_notices(peer: &mut Peer) -> usize {
    let events = core::iter::from_fn(|| peer.host.event());
    let readiness = events.filter_map(|event| match event {
        Event::Ready(_, readiness) => Some(readiness),
        Event::Acceptable(_) | Event::Udp(..) | Event::Flow | Event::Addresses => None,
    });
    readiness.filter(|readiness| readiness.contains(Readiness::URGENT)).count()
}

#[test]
fn behind_a_closed_window_rst_urg_and_ack_still_count() {
    let mut peer = with_closed_window();
    peer.write(100);
    assert_eq!(peer.hear_one().len, 100);
    urgent_notices(&mut peer);
    peer.say(Say::new(A, 2001, 101).data(b"!").urgent(1));
    assert_eq!(urgent_notices(&mut peer), 1);
    let id = peer.id();
    assert_eq!(peer.host.urgent_mark(id), Some(2001));
    assert_eq!(peer.host.info(id).unwrap().in_flight_bytes, 0, "its ACK counts");
    peer.say(Say::new(R, 2001, 0));
    assert_eq!(peer.state(), State::Closed);
}

#[test]
fn a_window_may_stay_closed_for_ever_and_each_probe_is_answered() {
    let mut peer = with_closed_window();
    for _ in 0..20 {
        assert!(peer.wait(Duration::from_secs(60)).is_empty());
        peer.say(Say::new(A, 2001, 1).data(b"x"));
        let answer = peer.hear_one();
        assert_eq!((answer.ack, answer.window), (2001, 0));
    }
    assert_eq!(peer.state(), State::Established);
}

#[test]
fn each_advance_of_the_urgent_pointer_is_reported_and_no_more() {
    let mut peer = Peer::established(plain());
    urgent_notices(&mut peer);
    let id = peer.id();
    let say = |seq: u32, urgent: u16| Say::new(A, seq, 1).data(&[7; 100]).urgent(urgent);
    peer.say(say(1, 50));
    assert_eq!((urgent_notices(&mut peer), peer.host.urgent_mark(id)), (1, Some(50)));
    peer.say(say(101, 20));
    assert_eq!((urgent_notices(&mut peer), peer.host.urgent_mark(id)), (1, Some(120)));
    // The pointer of before again, and an earlier one: neither is an advance.
    peer.say(say(101, 20));
    peer.say(say(1, 50));
    assert_eq!((urgent_notices(&mut peer), peer.host.urgent_mark(id)), (0, Some(120)));
    // Read, and gone; the next is news again.
    peer.read(200).unwrap();
    assert_eq!(peer.host.urgent_mark(id), None);
    peer.say(say(201, 1));
    assert_eq!((urgent_notices(&mut peer), peer.host.urgent_mark(id)), (1, Some(1)));
}

#[test]
fn urgent_data_has_any_length() {
    // More than the pointer's 16 bits can tell at once, in both directions.
    let mut peer = Peer::established(plain());
    let id = peer.id();
    let mut seq = 1;
    for _ in 0..70 {
        peer.say(Say::new(A, seq, 1).data(&[7; 1000]).urgent(60_000));
        peer.read(1000).unwrap();
        peer.hear();
        seq += 1000;
    }
    assert_eq!(peer.host.urgent_mark(id), Some(59_000), "60,000 beyond the last segment's start");
    let now = peer.now;
    peer.host.write_urgent(now, id, &[7; 100_000]).unwrap();
    let mut acked = 1;
    let mut last = None;
    while acked < 100_001 {
        for heard in peer.hear().into_iter().filter(|heard| heard.len > 0) {
            let ahead = 100_001 - heard.seq;
            assert_eq!(u32::from(heard.urgent), ahead.min(65_535), "at {}", heard.seq);
            acked = acked.max(heard.seq + heard.len as u32);
            last = Some(heard);
        }
        peer.say(Say::new(A, seq, acked));
    }
    assert_eq!(last.map(|heard| u32::from(heard.urgent)), Some(1000), "the octet after the last");
}

#[test]
fn an_ack_waits_under_half_a_second_whatever_is_configured() {
    let with = |delay: AckDelay, ms: u64| {
        let mut config = plain();
        config.tcp.ack.delay = delay;
        config.tcp.ack.timer = Duration::from_millis(ms);
        config.tcp.ack.bucket_max = Duration::from_millis(ms);
        config
    };
    for delay in [AckDelay::Buckets, AckDelay::Timer, AckDelay::Tick] {
        assert!(Host::new(with(delay, 500)).is_err());
        let mut peer = Peer::established(with(delay, 499));
        peer.say(Say::new(A, 1, 1).data(b"x"));
        let said = peer.now;
        let heard = peer.wait(Duration::from_secs(1));
        assert!(heard[0].at.since(said) <= Duration::from_millis(500), "{delay:?}");
    }
    assert!(Host::new(with(AckDelay::Buckets, 49)).is_err(), "less than the least delay");
}

#[test]
fn an_overlap_reports_its_first_duplicate_piece() {
    let mut peer = Peer::established_with(config("10.0.0.2"), |syn| syn.mss(1000).sack_permitted());
    let blocks = |heard: &Heard, isn: Seq| -> Vec<(u32, u32)> {
        let blocks = heard.options.sack.iter();
        blocks.map(|block| (block.start.since(isn), block.end.since(isn))).collect()
    };
    let isn = peer.isn;
    for (start, end) in [(1001, 3001), (4001, 5001), (7001, 8001)] {
        peer.say(Say::new(A, start, 1).data(&std::vec![7; (end - start) as usize]));
        peer.hear();
    }
    peer.say(Say::new(A, 1, 1).data(&[7; 6000]));
    assert_eq!(blocks(&peer.hear_one(), isn), [(1001, 3001), (7001, 8001)]);
    peer.say(Say::new(A, 6001, 1).data(&[7; 2000]));
    assert_eq!(blocks(&peer.hear_one(), isn), [(7001, 8001)]);
    peer.say(Say::new(A, 1, 1).data(&[7; 1000]));
    assert_eq!(blocks(&peer.hear_one(), isn), [(1, 1001)]);
}
