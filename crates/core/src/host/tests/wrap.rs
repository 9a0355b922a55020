//! Sequence numbers and timestamps wrap in the middle of things.

use super::pair::{Pair, Side, config};
use crate::rng::Rng;
use crate::time::{Duration, Instant};
use crate::wire::tcp::Flags;

/// A pair whose server's ISN lies `before` bytes before the wrap: the ISN moves with the clock, one
/// step every 4 µs (RFC 6528), so the right moment is waited for.
fn at_the_wrap(side: Side, before: u32) -> (Pair, crate::ConnectionId, crate::ConnectionId) {
    let start = Instant::from_millis(1_000_000);
    let isn_at = |start: Instant| {
        let mut pair = Pair::new();
        pair.now = start;
        let ids = pair.connected();
        let isn = pair.log.iter().find_map(|(_, from, bytes)| {
            let packet = crate::wire::ip::Packet::parse(bytes).unwrap();
            let s = crate::wire::tcp::Segment::parse(packet.payload).unwrap();
            (*from == side && s.flags.contains(Flags::SYN)).then_some(s.seq)
        });
        (isn.unwrap(), pair, ids)
    };
    let (isn, _, _) = isn_at(start);
    let steps = 0u32.wrapping_sub(before).wrapping_sub(isn.0);
    let (isn, pair, (_, client, server)) = isn_at(start + Duration::from_micros(4) * steps);
    // The ports follow counters and not the clock, so it is the same tuple.
    assert!(0u32.wrapping_sub(isn.0).abs_diff(before) < 10, "{isn:?}");
    (pair, client, server)
}

#[test]
fn streams_survive_the_wrap_of_sequence_numbers_under_loss() {
    for before in [1, 2, 1000, 100_000] {
        let (mut pair, client, server) = at_the_wrap(Side::Server, before);
        let mut rng = Rng::from_seed(u64::from(before));
        pair.filter = Some(alloc::boxed::Box::new(move |_, _| rng.below(100) >= 3));
        pair.transfer((Side::Server, server), (Side::Client, client), 300_000);
        pair.transfer((Side::Client, client), (Side::Server, server), 50_000);
        pair.close(Side::Server, server, Duration::from_secs(30));
        pair.close(Side::Client, client, Duration::from_secs(100));
        assert_eq!((pair.client.connections(), pair.server.connections()), (0, 0));
    }
}

#[test]
fn fin_and_its_ack_may_be_what_wraps() {
    for before in 1..4 {
        let (mut pair, client, server) = at_the_wrap(Side::Client, before);
        pair.close(Side::Client, client, Duration::from_millis(50));
        pair.close(Side::Server, server, Duration::from_secs(1));
        assert_eq!((pair.client.connections(), pair.server.connections()), (0, 0));
        assert_eq!(pair.client.time_wait_len(), 1);
    }
}

#[test]
fn timestamps_wrap_without_a_segment_being_taken_for_old() {
    // The clock is milliseconds plus an offset: some moment within 50 days wraps it.
    let first_stamp = |start: Instant| {
        let mut pair = Pair::with(config("10.0.0.1"), config("10.0.0.2"));
        pair.now = start;
        let ids = pair.connected();
        let (_, _, bytes) = &pair.log[0];
        let packet = crate::wire::ip::Packet::parse(bytes).unwrap();
        let segment = crate::wire::tcp::Segment::parse(packet.payload).unwrap();
        (segment.options.timestamps.unwrap().value, pair, ids)
    };
    let start = Instant::from_millis(1000);
    let (stamp, _, _) = first_stamp(start);
    let wait = 0u32.wrapping_sub(stamp).wrapping_sub(60);
    let (stamp, mut pair, (_, client, server)) =
        first_stamp(start + Duration::from_millis(u64::from(wait)));
    assert!(stamp > u32::MAX - 100, "{stamp}");
    pair.delay = Duration::from_millis(20);
    pair.transfer((Side::Client, client), (Side::Server, server), 500_000);
    assert_eq!(pair.server.counters().paws_rejected, 0);
    assert_eq!(pair.client.info(client).unwrap().timeouts, 0);
}
