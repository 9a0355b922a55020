//! Send buffers by each rule, and what the application hears and says about their source.

use alloc::boxed::Box;

use super::pair::{CLIENT, Pair, SERVER, Side, config};
use super::peer::{A, Peer, Say, plain};
use crate::WriteError;
use crate::config::{PoolPolicy, SendRule, SendSize};
use crate::event::{ConnectionId, Event, Readiness};
use crate::tcp::{SendInfo, SocketOptions, Supply};
use crate::time::Duration;

const MS: Duration = Duration::from_millis(1);

const RULES: [SendSize; 5] = [
    SendSize::Round,
    SendSize::Los,
    SendSize::Fixed(8 << 10),
    SendSize::Linux { lowat: None },
    SendSize::Linux { lowat: Some(8 << 10) },
];

/// A connection whose server's end has a buffer by that rule: the client's name and the server's.
fn connected(send_size: SendSize) -> (Pair, ConnectionId, ConnectionId) {
    let mut pair = Pair::with(config(CLIENT), config(SERVER));
    let (_, client, server) = pair.connected();
    let options = SocketOptions { send_size, ..pair.server.default_options() };
    pair.server.set_options(pair.now, server, options).unwrap();
    (pair, client, server)
}

fn info(pair: &Pair, id: ConnectionId) -> SendInfo {
    pair.server.send_info(pair.now, id).unwrap()
}

/// Says that there is more, and that a read takes so many ms.
fn supply(pair: &mut Pair, id: ConnectionId, read_ms: u64) {
    let supply = Supply { read_time: Duration::from_millis(read_ms), more: true };
    pair.server.set_supply(pair.now, id, supply);
}

/// Writes as much as fits, and returns how much that is.
fn fill(pair: &mut Pair, id: ConnectionId) -> usize {
    let mut total = 0;
    loop {
        match pair.server.write(pair.now, id, &[7; 1000]) {
            Ok(taken) => total += taken,
            Err(error) => {
                assert_eq!(error, WriteError::WouldBlock);
                return total;
            }
        }
    }
}

#[test]
fn by_every_rule_a_stream_arrives_whole_through_losses() {
    for rule in RULES {
        let (mut pair, client, server) = connected(rule);
        supply(&mut pair, server, 3);
        let mut count = 0;
        pair.filter = Some(Box::new(move |from, segment| {
            count += u32::from(from == Side::Server && !segment.payload.is_empty());
            count % 29 != 7 || segment.payload.is_empty()
        }));
        pair.transfer((Side::Server, server), (Side::Client, client), 400_000);
        pair.run_for(MS * 1000);
        let info = info(&pair, server);
        assert_eq!((info.held_bytes, info.held_pages, info.outstanding), (0, 0, 0), "{rule:?}");
    }
}

#[test]
fn a_writer_is_told_some_times_a_round_trip_and_not_at_each_ack() {
    for rule in RULES {
        let mut peer = Peer::established_with(plain(), |say| say.mss(1000));
        let options = SocketOptions { send_size: rule, ..peer.host.default_options() };
        peer.host.set_options(peer.now, peer.id(), options).unwrap();
        let mut acks = 0;
        peer.write(1 << 20);
        while acks < 1000 {
            let heard = peer.hear();
            assert!(!heard.is_empty(), "{rule:?}: nobody has told the writer");
            peer.now = peer.now + MS;
            for segment in heard {
                peer.say(Say::new(A, 1, segment.seq + segment.len as u32));
                acks += 1;
            }
            while let Some(event) = peer.host.event() {
                if matches!(event, Event::Ready(_, ready) if ready.contains(Readiness::WRITABLE)) {
                    peer.write(1 << 20);
                }
            }
        }
        let woken = peer.host.counters().writers_woken;
        // A buffer of eight segments has room for one at a time.
        let least = if matches!(rule, SendSize::Fixed(_)) { 1 } else { 3 };
        assert!(woken > 0 && woken * least <= acks, "{rule:?}: {woken} of {acks}");
    }
}

#[test]
fn by_los_a_peer_that_reads_nothing_leaves_64_kib_in_the_buffer() {
    let (mut pair, _, server) = connected(SendSize::Los);
    for _ in 0..100 {
        fill(&mut pair, server);
        pair.run_for(MS * 10);
    }
    let held = info(&pair, server);
    assert_eq!(held.outstanding, 0, "its window is closed");
    assert!(held.hiwat < 10_000 && held.held_bytes <= 64 << 10, "{held:?}");
    // The first page and the last may be large ones.
    let pages = held.held_bytes.div_ceil(4096);
    assert!((pages..=pages + 8).contains(&held.held_pages), "{held:?}");
}

#[test]
fn a_source_that_is_late_misses_once_an_occasion() {
    for rule in [SendSize::Los, SendSize::Round] {
        let (mut pair, _, server) = connected(rule);
        supply(&mut pair, server, 30);
        assert_eq!(pair.server.write(pair.now, server, &[7; 4000]), Ok(4000));
        pair.run_for(MS * 50);
        assert_eq!(info(&pair, server).misses, 0, "it is counted when it comes");
        supply(&mut pair, server, 30);
        pair.server.write(pair.now, server, &[7; 2000]).unwrap();
        pair.server.write(pair.now, server, &[7; 2000]).unwrap();
        assert_eq!(info(&pair, server).misses, 1);
        // The next comes before the last is acknowledged.
        pair.run_for(MS * 2);
        pair.server.write(pair.now, server, &[7; 20_000]).unwrap();
        pair.run_for(MS * 50);
        pair.server.set_supply(pair.now, server, Supply::default());
        assert_eq!(info(&pair, server).misses, 2, "and so was the end");
        pair.run_for(MS * 50);
        pair.server.write(pair.now, server, &[7; 2000]).unwrap();
        let counted = pair.server.counters().buffer_misses;
        assert_eq!((info(&pair, server).misses, counted), (2, 2), "nobody had said more");
    }
}

#[test]
fn what_comes_in_the_turn_in_which_its_room_was_told_is_no_miss() {
    let (mut pair, client, server) = connected(SendSize::Fixed(4000));
    supply(&mut pair, server, 0);
    let (mut written, mut buffer) = (0, [0; 9000]);
    for _ in 0..1000 {
        pair.turn();
        written += fill(&mut pair, server);
        while pair.client.read(pair.now, client, &mut buffer).is_ok() {}
        pair.now = pair.now + MS;
    }
    assert!(written > 100_000, "{written}");
    assert_eq!(info(&pair, server).misses, 0);
}

#[test]
fn a_demand_is_room_and_what_the_next_read_should_bring() {
    let (mut pair, _, server) = connected(SendSize::Los);
    let mss = pair.server.info(server).unwrap().mss_bytes as usize;
    let first = pair.server.send_demand(pair.now, server);
    assert_eq!((first.room, first.read), (30 * mss, 30 * mss), "ten segments, and twenty");
    assert_eq!(fill(&mut pair, server), 30 * mss);
    let next = pair.server.send_demand(pair.now, server);
    assert_eq!((next.room, next.read), (0, 40 * mss));
    let options = pair.server.options(server).unwrap();
    let options = SocketOptions { send_size: SendSize::Round, ..options };
    pair.server.set_options(pair.now, server, options).unwrap();
    let round = pair.server.send_demand(pair.now, server);
    assert_eq!((round.room, round.read), ((128 << 10) - 30 * mss, (128 << 10) - 30 * mss));
    pair.server.shutdown_write(pair.now, server).unwrap();
    assert_eq!(pair.server.send_demand(pair.now, server).room, usize::MAX, "a write would fail");
}

/// No call comes between the pause and the question, whose time alone can tell.
#[test]
fn a_demand_after_a_pause_counts_from_the_window_after_idling() {
    let (mut pair, client, server) = connected(SendSize::Los);
    pair.transfer((Side::Server, server), (Side::Client, client), 500_000);
    pair.run_for(MS * 100);
    let (now, later) = (pair.now, pair.now + MS * 1900);
    let mss = pair.server.info(server).unwrap().mss_bytes as usize;
    let ask = |pair: &Pair, now| {
        let (demand, info) =
            (pair.server.send_demand(now, server), pair.server.send_info(now, server));
        (demand.room, demand.read, info.unwrap().hiwat)
    };
    let at_once = ask(&pair, now);
    assert!(at_once.0 > 60 * mss, "{at_once:?}");
    assert_eq!(ask(&pair, later), (30 * mss, 30 * mss, 30 * mss), "ten segments, and twenty");
    assert_eq!(ask(&pair, now), at_once);
    assert_eq!(pair.server.send_room(later, server), 30 * mss);
    // A call at that time changes nothing.
    pair.server.on_time(later);
    assert_eq!(ask(&pair, later), (30 * mss, 30 * mss, 30 * mss));
}

#[test]
fn a_read_brings_no_more_than_the_share_of_a_connection() {
    let mut config_of_server = config(SERVER);
    config_of_server.limits.pages = 4096;
    config_of_server.tcp.pool.policy = PoolPolicy::Naive;
    config_of_server.tcp.pool.most_connections = 512;
    config_of_server.tcp.buffers.send_size = SendRule::Los;
    let mut pair = Pair::with(config(CLIENT), config_of_server);
    let (_, _, server) = pair.connected();
    // Eight pages, and not thirty segments.
    let first = pair.server.send_demand(pair.now, server);
    assert!((1..=32 << 10).contains(&first.read), "{first:?}");
    fill(&mut pair, server);
    let next = pair.server.send_demand(pair.now, server);
    assert!(next.room == 0 && (1..=32 << 10).contains(&next.read), "{next:?}");
}

#[test]
fn a_late_source_forbids_rest_and_its_word_outlasts_one() {
    let (mut pair, _, server) = connected(SendSize::Linux { lowat: None });
    supply(&mut pair, server, 7);
    pair.run_for(MS * 10_000);
    assert_eq!(pair.server.counters().rested, 0);
    let rested = Supply { read_time: MS * 7, more: false };
    pair.server.set_supply(pair.now, server, rested);
    pair.server.write(pair.now, server, &[7; 100]).unwrap();
    pair.run_for(MS * 10_000);
    assert_eq!(pair.server.counters().rested, 1);
    let before = info(&pair, server);
    assert!(pair.server.readiness(pair.now, server).contains(Readiness::WRITABLE));
    pair.server.write(pair.now, server, &[7; 100]).unwrap();
    let after = info(&pair, server);
    assert_eq!((before.hiwat, before.factor), (after.hiwat, after.factor));
    assert_eq!(after.held_bytes, 100);
}
