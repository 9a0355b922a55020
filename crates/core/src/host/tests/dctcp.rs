//! DCTCP (RFC 8257): an end that tells of every change of marks, and one that slows down by as much
//! as was marked.

use std::boxed::Box;
use std::vec::Vec;

use super::ecn::ignores_ecn;
use super::pair::{CLIENT, Pair, SERVER, Side, config};
use super::peer::{A, Peer, S, Say, plain};
use crate::config::{Algorithm, Config, Ecn};
use crate::tcp::ecn::{CE, ECT0};
use crate::time::Duration;
use crate::wire::ip;
use crate::wire::tcp::{Flags, Segment};

const E: Flags = Flags::ECE;
const W: Flags = Flags::CWR;
const SEGMENT: u32 = 1000;

fn dctcp() -> Config {
    let mut config = plain();
    config.tcp.congestion.algorithm = Algorithm::Dctcp;
    config
}

/// A connection that the peer opened asking for ECN.
fn agreed() -> Peer {
    let mut peer = Peer::listening(dctcp());
    peer.say(Say::new(S | E | W, 0, 0).mss(1000));
    assert_eq!(peer.hear_one().flags, S | A | E);
    assert_eq!(peer.marks.1, 0, "no SYN may be marked");
    peer.say(Say::new(A, 1, 1));
    peer.accept();
    peer
}

/// The peer sends segments from `seq` on, marked or not.
fn say(peer: &mut Peer, seq: &mut u32, marks: &[bool]) {
    for marked in marks {
        let class = if *marked { CE } else { ECT0 };
        peer.say(Say { class, ..Say::new(A, *seq, 1).data(&[0; SEGMENT as usize]) });
        *seq += SEGMENT;
    }
}

/// What the host acknowledges, in segments, and whether with ECE.
fn acks(peer: &mut Peer) -> Vec<(u32, bool)> {
    let heard = peer.hear();
    heard.iter().map(|ack| (ack.ack / SEGMENT, ack.flags.contains(E))).collect()
}

fn window(peer: &Peer) -> u32 {
    peer.host.info(peer.id()).unwrap().cwnd_bytes
}

#[test]
fn an_active_open_asks_for_ecn_unless_it_is_off() {
    for (ecn, asks) in [(Ecn::Passive, true), (Ecn::Active, true), (Ecn::Off, false)] {
        let mut config = dctcp();
        config.tcp.ecn = ecn;
        let (mut peer, syn) = Peer::opening(config);
        assert_eq!(syn.flags.contains(E | W), asks, "{ecn:?}");
        peer.say(Say::new(S | A | E, 0, 1).mss(1000));
        peer.hear();
        assert_eq!(peer.host.info(peer.id()).unwrap().ecn, asks);
    }
    let (mut peer, _) = Peer::opening(dctcp());
    assert_eq!(peer.wait_for_one().flags, S, "the second does not ask");
    peer.say(Say::new(S | A | E, 0, 1));
    peer.hear();
    assert!(!peer.host.info(peer.id()).unwrap().ecn);
}

/// RFC 8257 §3.2: the state machine, a segment a turn.
#[test]
fn a_change_of_marks_is_told_apart_from_what_came_before() {
    let (mut peer, mut seq) = (agreed(), 1);
    let mut turn = |mark| {
        say(&mut peer, &mut seq, &[mark]);
        acks(&mut peer)
    };
    assert_eq!(turn(false), [], "delayed");
    assert_eq!(turn(true), [(1, false), (2, true)]);
    assert_eq!(turn(true), [], "delayed");
    assert_eq!(turn(true), [(4, true)], "every second");
    assert_eq!(turn(false), [(5, false)], "nothing is owed of before");
    assert_eq!(turn(false), []);
    assert_eq!(turn(false), [(7, false)]);
}

/// One ACK for a whole turn would say that all of it was marked, or nothing.
#[test]
fn every_change_within_a_turn_is_told_of() {
    let (mut peer, mut seq) = (agreed(), 1);
    say(&mut peer, &mut seq, &[false, false, true, true, false, true]);
    assert_eq!(acks(&mut peer), [(2, false), (4, true), (5, false), (6, true)]);
    say(&mut peer, &mut seq, &[true, true]);
    assert_eq!(acks(&mut peer), [(8, true)]);
}

#[test]
fn what_is_told_of_before_takes_nothing_of_the_window_back() {
    let (mut peer, mut seq) = (agreed(), 1);
    say(&mut peer, &mut seq, &[false, true, false, true, false]);
    let edges: Vec<u32> =
        peer.hear().iter().map(|heard| heard.ack + u32::from(heard.window)).collect();
    assert_eq!(edges.len(), 5);
    assert!(edges.windows(2).all(|pair| pair[0] <= pair[1]), "{edges:?}");
    assert!(edges[4] <= 1 + 65_535, "{edges:?}");
}

/// RFC 8257 §3.2: ECE follows DCTCP.CE alone, on data as well.
#[test]
fn cwr_changes_nothing() {
    let (mut peer, mut seq) = (agreed(), 1);
    say(&mut peer, &mut seq, &[true]);
    assert_eq!(acks(&mut peer), [(1, true)]);
    for class in [CE, ECT0] {
        peer.say(Say { class, ..Say::new(A | W, seq, 1).data(&[0; SEGMENT as usize]) });
        seq += SEGMENT;
        peer.write(1000);
        let ece: Vec<bool> = peer.hear().iter().map(|heard| heard.flags.contains(E)).collect();
        assert_eq!(ece, [class == CE]);
    }
}

#[test]
fn the_state_of_marks_outlasts_a_rest() {
    let mut peer = agreed();
    let mut seq = 1;
    say(&mut peer, &mut seq, &[true]);
    assert_eq!(acks(&mut peer), [(1, true)]);
    peer.wait(Duration::from_secs(10));
    peer.write(1000);
    assert!(peer.hear_one().flags.contains(E));
}

/// RFC 8257 §3.3: α is 1 at first, and a mark then halves the window, once a round trip.
#[test]
fn a_marked_window_of_data_reduces_by_half_of_alpha() {
    let mut peer = agreed();
    peer.write(400_000);
    assert_eq!(peer.hear().len(), 10);
    peer.say(Say::new(A | E, 1, 1001));
    assert_eq!(window(&peer), 5000);
    peer.say(Say::new(A | E, 1, 6001));
    assert_eq!(window(&peer), 5000, "the same window");
    assert!(peer.hear()[0].flags.contains(W));
    // In these windows nothing is marked. α decays by a sixteenth each.
    let mut acked = 6001;
    for _ in 0..30 {
        acked = 6001.max(acked) + 1000;
        peer.say(Say::new(A, 1, acked));
        peer.hear();
    }
    let before = window(&peer);
    peer.say(Say::new(A | E, 1, acked + 1000));
    let less = before - window(&peer);
    assert!(less < before / 2 && less > 0, "{less} of {before}");
    assert_eq!(peer.host.counters().ecn_reductions, 2);
}

/// RFC 8257 §3.5.
#[test]
fn a_loss_halves_the_window_whatever_was_marked() {
    let mut peer = agreed();
    peer.write(60_000);
    assert_eq!(peer.hear().len(), 10);
    for _ in 0..3 {
        peer.say(Say::new(A, 1, 1));
    }
    assert_eq!(peer.hear_one().seq, 1);
    peer.say(Say::new(A, 1, 10_001));
    assert_eq!(window(&peer), 5000);
    peer.hear();
    peer.wait_for_one();
    assert_eq!(window(&peer), 1000, "a timeout");
}

#[test]
fn without_agreement_it_is_reno() {
    ignores_ecn(&mut Peer::established(dctcp()));
}

#[test]
fn a_socket_changes_over_in_the_middle() {
    let mut peer = Peer::listening(plain());
    peer.say(Say::new(S | E | W, 0, 0).mss(1000));
    peer.hear_one();
    peer.say(Say::new(A, 1, 1));
    peer.accept();
    let mut seq = 1;
    say(&mut peer, &mut seq, &[true, false]);
    assert_eq!(acks(&mut peer), [(2, true)], "as of RFC 3168");
    let (id, now) = (peer.id(), peer.now);
    let mut options = peer.host.options(id).unwrap();
    options.congestion = Algorithm::Dctcp;
    peer.host.set_options(now, id, options).unwrap();
    say(&mut peer, &mut seq, &[false, false]);
    assert_eq!(acks(&mut peer), [(4, false)]);
    say(&mut peer, &mut seq, &[true, false]);
    assert_eq!(acks(&mut peer), [(5, true), (6, false)]);
    options.congestion = Algorithm::Cubic;
    peer.host.set_options(now, id, options).unwrap();
    say(&mut peer, &mut seq, &[true, false]);
    assert_eq!(acks(&mut peer), [(8, true)]);
}

/// Two hosts, and a wire that marks: the sender hears of each marked byte, and of no other.
#[test]
fn what_is_acknowledged_with_ece_is_what_was_marked() {
    let [client, server] = [CLIENT, SERVER].map(|address| {
        let mut config = config(address);
        config.tcp.congestion.algorithm = Algorithm::Dctcp;
        config
    });
    let mut pair = Pair::with(client, server);
    let (_, a, b) = pair.connected();
    let mut count = 0;
    pair.mangle = Some(Box::new(move |side, bytes: &mut Vec<u8>| {
        if side == Side::Client && bytes[1] & ECT0 != 0 {
            count += 1;
            if is_marked(count) {
                change_class(bytes, CE);
            }
        }
    }));
    let start = pair.log.len();
    pair.transfer((Side::Client, a), (Side::Server, b), 1_000_000);
    pair.run_for(Duration::from_millis(500));
    let (mut marked, mut told, mut acked, mut count) = (0, 0, None, 0);
    for (_, side, bytes) in &pair.log[start..] {
        let packet = ip::Packet::parse(bytes).unwrap();
        let segment = Segment::parse(packet.payload).unwrap();
        if *side == Side::Client && !segment.payload.is_empty() {
            assert_eq!(packet.traffic_class, ECT0, "nothing is lost");
            count += 1;
            marked += if is_marked(count) { segment.payload.len() as u32 } else { 0 };
            acked.get_or_insert(segment.seq);
        } else if let Some(before) = acked.filter(|_| *side == Side::Server) {
            told += if segment.flags.contains(E) { segment.ack.since(before) } else { 0 };
            acked = Some(segment.ack);
        }
    }
    assert!(marked > 100_000);
    assert_eq!(told, marked);
}

/// A third of the packets, in runs of one, two and four.
fn is_marked(count: u32) -> bool {
    matches!(count % 21, 3 | 8 | 9 | 14..=17)
}

/// The checksum of the header is made right again.
fn change_class(bytes: &mut [u8], class: u8) {
    let old = u16::from_be_bytes([bytes[0], bytes[1]]);
    bytes[1] = bytes[1] & !CE | class;
    let new = u16::from_be_bytes([bytes[0], bytes[1]]);
    let sum = u16::from_be_bytes([bytes[10], bytes[11]]);
    let sum = crate::wire::checksum::update(sum, old, new);
    bytes[10..12].copy_from_slice(&sum.to_be_bytes());
}
