//! Connections on which nothing moves: what they keep, when they rest and what wakes them.

use std::format;
use std::string::String;
use std::vec::Vec;

use super::pair::{CLIENT, Pair, SERVER, Side, config};
use crate::config::Config;
use crate::event::ConnectionId;
use crate::frame::{Outbox, RxFrame};
use crate::tcp::Keepalive;
use crate::tcp::slot::Slots;
use crate::tcp::timers::Timer;
use crate::time::Duration;

const REST_AFTER: Duration = Duration::from_secs(2);

/// Two ends that have said something to one another.
fn conversed(adjust: impl Fn(&mut Config)) -> (Pair, [(Side, ConnectionId); 2]) {
    let [mut client, mut server] = [CLIENT, SERVER].map(config);
    adjust(&mut client);
    adjust(&mut server);
    let mut pair = Pair::with(client, server);
    let (_, a, b) = pair.connected();
    let now = pair.now;
    pair.client.write(now, a, &[7; 5000]).unwrap();
    pair.run_for(Duration::from_millis(100));
    let mut out = [0; 9000];
    let now = pair.now;
    assert_eq!(pair.server.read(now, b, &mut out), Ok(5000));
    pair.server.write(now, b, b"heard").unwrap();
    pair.run_for(Duration::from_millis(500));
    let now = pair.now;
    assert_eq!(pair.client.read(now, a, &mut out), Ok(5));
    (pair, [(Side::Client, a), (Side::Server, b)])
}

/// All that is known of a connection, but for what is found again when it is asked for.
fn all_of(pair: &mut Pair, side: Side, id: ConnectionId) -> String {
    let slots: &mut Slots = &mut pair.host(side).slots;
    let connection = slots.get_mut(id.index).unwrap().connection_mut();
    connection.deadlines.cancel(Timer::Rest);
    connection.deadlines.tighten();
    let all = format!("{connection:#?}");
    let is_found_again = |line: &&str| {
        ["interval_end", "emptied_after_ns", "burst", "acked_at", "initial_rto_ns", "start", "end"]
            .iter()
            .any(|name| line.trim_start().starts_with(&format!("{name}:")))
    };
    all.lines().filter(|line| !is_found_again(line)).collect()
}

#[test]
fn a_connection_comes_back_from_rest_as_it_went() {
    let keepalive = |config: &mut Config| config.tcp.keepalive.idle = Duration::from_secs(7200);
    let (mut resting, ids) = conversed(keepalive);
    let (mut wakeful, _) = conversed(|config| {
        keepalive(config);
        config.tcp.compact_after = Duration::ZERO;
    });
    resting.run_for(2 * REST_AFTER);
    wakeful.run_for(2 * REST_AFTER);
    for (side, id) in ids {
        assert_eq!(resting.host(side).counters().rested, 1, "{side:?}");
        assert!(resting.host(side).slots.get(id.index).unwrap().awake().is_none());
        assert_eq!(all_of(&mut resting, side, id), all_of(&mut wakeful, side, id), "{side:?}");
    }
}

#[test]
fn what_can_be_asked_is_the_same_at_rest() {
    let (mut pair, ids) = conversed(|_| ());
    let ask = |pair: &mut Pair| {
        ids.map(|(side, id)| {
            let now = pair.now;
            let host = pair.host(side);
            let info = host.info(id);
            let options = host.options(id);
            let ends = (host.local_address(id), host.peer_address(id), host.state(id));
            let mut byte = [0];
            let read = (host.readable_bytes(id), host.is_at_end(id), host.peek(id, &mut byte));
            let sockets = host.sockets().count();
            format!(
                "{info:?} {options:?} {ends:?} {read:?} {:?} {sockets}",
                host.readiness(now, id)
            )
        })
    };
    let before = ask(&mut pair);
    pair.run_for(2 * REST_AFTER);
    assert!(ids.iter().all(|(side, _)| pair.host(*side).counters().rested == 1));
    assert_eq!(ask(&mut pair), before);
    assert!(ids.iter().all(|(side, _)| pair.host(*side).counters().rested == 1), "nobody woke");
}

#[test]
fn a_host_whose_connections_rest_waits_for_nothing() {
    let (mut pair, _) = conversed(|_| ());
    pair.run_for(2 * REST_AFTER);
    assert_eq!((pair.client.deadline(), pair.server.deadline()), (None, None));
}

#[test]
fn a_compact_connection_probes_and_is_compact_again() {
    let (mut pair, [(_, a), _]) = conversed(|_| ());
    let idle = Duration::from_secs(100);
    let keepalive = Keepalive { idle, interval: Duration::from_secs(10), probes: 3 };
    let options =
        crate::tcp::SocketOptions { keepalive: Some(keepalive), ..pair.client.options(a).unwrap() };
    let now = pair.now;
    pair.client.set_options(now, a, options).unwrap();
    pair.run_for(Duration::from_secs(350));
    assert_eq!(pair.client.counters().keepalive_probes, 3);
    assert_eq!((pair.client.counters().rested, pair.server.counters().rested), (4, 4));
    // The blocks in which it woke are free.
    assert_eq!(
        (pair.client.live.block_pool.in_use(), pair.server.live.block_pool.in_use()),
        (0, 0)
    );
    let now = pair.now;
    pair.client.abort(now, a);
    pair.run_for(REST_AFTER);
    assert_eq!((pair.client.connections(), pair.server.connections()), (0, 1));
    assert_eq!(
        (pair.client.live.block_pool.in_use(), pair.server.live.block_pool.in_use()),
        (0, 0)
    );
}

#[test]
fn who_woke_and_stays_awake_is_at_work_until_he_rests_again() {
    let (mut pair, [(_, a), (_, b)]) = conversed(|_| ());
    let at_work =
        |pair: &Pair| (pair.client.live.block_pool.in_use(), pair.server.live.block_pool.in_use());
    assert_eq!(at_work(&pair), (1, 1));
    pair.run_for(2 * REST_AFTER);
    assert_eq!(at_work(&pair), (0, 0));
    for _ in 0..5 {
        let now = pair.now;
        pair.client.write(now, a, b"still here").unwrap();
        pair.run_for(REST_AFTER / 2);
        let now = pair.now;
        assert_eq!(pair.server.read(now, b, &mut [0; 100]), Ok(10));
    }
    assert_eq!(at_work(&pair), (1, 1));
    pair.run_for(2 * REST_AFTER);
    assert_eq!(at_work(&pair), (0, 0));
    assert_eq!((pair.client.counters().rested, pair.server.counters().rested), (2, 2));
}

#[test]
fn what_is_not_read_keeps_a_connection_awake_until_it_is() {
    let (mut pair, [(_, a), (_, b)]) = conversed(|_| ());
    let now = pair.now;
    pair.client.write(now, a, b"more").unwrap();
    pair.run_for(5 * REST_AFTER);
    assert_eq!((pair.client.counters().rested, pair.server.counters().rested), (1, 0));
    let now = pair.now;
    assert_eq!(pair.server.read(now, b, &mut [0; 10]), Ok(4));
    pair.run_for(5 * REST_AFTER);
    assert_eq!((pair.client.counters().rested, pair.server.counters().rested), (1, 1));
}

#[test]
fn the_timers_of_bsd_let_nobody_rest() {
    for timers in [crate::config::Scheme::Scan, crate::config::Scheme::OrderedList] {
        let (mut pair, _) = conversed(|config| config.tcp.timers = timers);
        pair.run_for(5 * REST_AFTER);
        assert_eq!((pair.client.counters().rested, pair.server.counters().rested), (0, 0));
    }
}

#[test]
fn an_orphan_that_waits_for_a_fin_is_a_record_and_ends_in_time() {
    let (mut pair, [a, (_, b)]) = conversed(|_| ());
    pair.close(a.0, a.1, 5 * REST_AFTER);
    assert_eq!((pair.client.counters().rested, pair.server.counters().rested), (1, 0));
    assert_eq!((pair.client.fin_wait_2_len(), pair.client.sockets().count()), (1, 1));
    let state = pair.client.sockets().next().unwrap().state();
    assert_eq!(state, crate::tcp::State::FinWait2);
    let now = pair.now;
    pair.server.write(now, b, b"nobody hears").unwrap();
    pair.run_for(REST_AFTER);
    assert_eq!(pair.client.sockets().count(), 0, "reset: there is nobody to read it");

    let (mut pair, [a, _]) = conversed(|_| ());
    pair.close(a.0, a.1, Duration::from_secs(59));
    assert_eq!((pair.client.counters().rested, pair.client.fin_wait_2_len()), (1, 1));
    pair.run_for(Duration::from_secs(2));
    assert_eq!((pair.client.connections(), pair.client.fin_wait_2_len()), (0, 0));
}

#[test]
fn trouble_keeps_a_connection_awake_until_it_is_over() {
    let (mut pair, [(_, a), (_, b)]) = conversed(|_| ());
    let slot = pair.client.slots.get_mut(a.index).unwrap();
    slot.connection_mut().note_soft_error(crate::Error::HostUnreachable);
    pair.run_for(5 * REST_AFTER);
    assert_eq!((pair.client.counters().rested, pair.server.counters().rested), (0, 1));
    let now = pair.now;
    pair.client.write(now, a, b"heard?").unwrap();
    pair.run_for(Duration::from_millis(500));
    let now = pair.now;
    assert_eq!(pair.server.read(now, b, &mut [0; 10]), Ok(6));
    pair.run_for(5 * REST_AFTER);
    assert_eq!((pair.client.counters().rested, pair.server.counters().rested), (1, 2));
}

#[test]
fn what_is_broken_wakes_nobody() {
    let (mut pair, [(_, a), (_, b)]) = conversed(|_| {});
    pair.run_for(2 * REST_AFTER);
    let now = pair.now;
    pair.client.write(now, a, &[7; 5000]).unwrap();
    let mut outbox = Outbox::new(10);
    pair.client.emit(now, &mut outbox);
    let mut frames: Vec<Vec<u8>> = outbox.frames().map(|frame| frame.head.clone()).collect();
    frames.iter_mut().for_each(|frame| frame[100] ^= 1);
    let burst: Vec<RxFrame<'_>> = frames.iter().map(|frame| RxFrame::plain(frame)).collect();
    pair.server.on_frames(now, &burst);
    assert_eq!(pair.server.counters().checksum_errors, frames.len() as u64);
    assert!(pair.server.slots.get(b.index).unwrap().awake().is_none());
}
