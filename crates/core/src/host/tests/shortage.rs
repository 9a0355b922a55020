//! Buffer memory that runs short: which connections wait, are served, or are reset.

use alloc::vec::Vec;

use bytes::Bytes;

use super::pair::{CLIENT, Pair, SERVER, Side, config};
use super::peer::{A, Peer, Say, plain};
use crate::buffer::{ConnectionRoom, PAGE_BYTES};
use crate::config::Config;
use crate::event::{ConnectionId, Event, ListenerId, Readiness};
use crate::tcp::{SocketOptions, State};
use crate::time::Duration;
use crate::{Error, WriteError};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

/// A connection: the client's name and the server's.
type Ends = (ConnectionId, ConnectionId);

/// A server of so many pages, and a client whose windows are small.
fn short_of_pages(pages: usize) -> (Pair, ListenerId) {
    let mut server = config(SERVER);
    server.limits.pages = pages;
    let mut client = config(CLIENT);
    client.tcp.buffers.receive = 4 * 1460;
    client.tcp.buffers.receive_max = 4 * 1460;
    listening(client, server)
}

fn listening(client: Config, server: Config) -> (Pair, ListenerId) {
    let mut pair = Pair::with(client, server);
    let listener = pair.server.listen("0.0.0.0:80".parse().unwrap(), 16).unwrap();
    (pair, listener)
}

/// Has the server write until it would block; how many bytes those are.
fn fill(pair: &mut Pair, id: ConnectionId) -> usize {
    let mut total = 0;
    while let Ok(taken) = pair.server.write(pair.now, id, &[7; 3000]) {
        total += taken;
    }
    total
}

/// Has the client read what there is.
fn drain(pair: &mut Pair, id: ConnectionId) -> usize {
    let (mut buffer, mut total) = ([0; 9000], 0);
    while let Ok(taken) = pair.client.read(pair.now, id, &mut buffer) {
        total += taken;
        if taken == 0 {
            break;
        }
    }
    total
}

/// The server's connections that were told they can write, in order; forgets them.
fn told(pair: &mut Pair) -> Vec<ConnectionId> {
    let told = pair.events.iter().filter_map(|(side, event)| match event {
        Event::Ready(id, ready) => {
            let is_told = *side == Side::Server && ready.contains(Readiness::WRITABLE);
            is_told.then_some(*id)
        }
        _ => None,
    });
    let told = told.collect();
    pair.events.clear();
    told
}

fn resets(pair: &Pair) -> [u64; 3] {
    let counters = pair.server.counters();
    [
        counters.reset_for_memory_closed_window,
        counters.reset_for_memory_orphan,
        counters.reset_for_memory_slow,
    ]
}

#[test]
fn who_found_all_pages_taken_is_told_when_they_come_back() {
    let write = |pair: &mut Pair, id, shared: bool| {
        let data = Bytes::from_static(&[7; 100]);
        match shared {
            true => pair.server.write_bytes(pair.now, id, &data),
            false => pair.server.write(pair.now, id, &data),
        }
    };
    for shared in [false, true] {
        let (mut pair, listener) = short_of_pages(1);
        let [a, b] = [(); 2].map(|()| pair.connect(listener).1);
        assert_eq!(pair.server.write(pair.now, a, &[7; 3000]), Ok(3000));
        pair.events.clear();
        assert_eq!(write(&mut pair, b, shared), Err(WriteError::WouldBlock));
        assert!(
            !pair.server.readiness(pair.now, b).contains(Readiness::WRITABLE),
            "or it would ask again"
        );
        pair.run_for(MS * 100);
        assert_eq!(told(&mut pair), [b]);
        assert!(pair.server.readiness(pair.now, b).contains(Readiness::WRITABLE));
        assert_eq!(write(&mut pair, b, shared), Ok(100));
        pair.run_for(SECOND);
        assert_eq!(
            (pair.server.pages_in_use(), pair.server.counters().writes_short_of_pages),
            (0, 1)
        );
    }
}

#[test]
fn bytes_that_are_more_than_there_are_pages_are_taken_by_parts() {
    let (mut pair, listener) = short_of_pages(2);
    let (client, server) = pair.connect(listener);
    let data = Bytes::from(std::vec![7; 5 * PAGE_BYTES + 1]);
    let (mut sent, mut received) = (0, 0);
    for _ in 0..100 {
        match pair.server.write_bytes(pair.now, server, &data.slice(sent..)) {
            Ok(taken) => sent += taken,
            Err(error) => assert_eq!(error, WriteError::WouldBlock),
        }
        pair.run_for(MS * 20);
        received += drain(&mut pair, client);
    }
    assert_eq!((sent, received), (data.len(), data.len()));
}

/// Connections that have each filled what they may; the last of them found too few pages.
fn hoarders(pair: &mut Pair, listener: ListenerId) -> Vec<Ends> {
    let mut all = Vec::new();
    while pair.server.counters().writes_short_of_pages == 0 {
        let ends = pair.connect(listener);
        fill(pair, ends.1);
        all.push(ends);
    }
    all
}

#[test]
fn writers_are_served_in_the_order_in_which_they_came() {
    let mut server = config(SERVER);
    server.limits.pages = 35;
    // No connection is reset in this test.
    server.tcp.stall.after = Duration::from_secs(600);
    let mut client = config(CLIENT);
    client.tcp.buffers.receive = 2 * 1460;
    client.tcp.buffers.receive_max = 2 * 1460;
    let (mut pair, listener) = listening(client, server);
    let hoarder = pair.connect(listener);
    let waiting: Vec<Ends> = (0..3).map(|_| pair.connect(listener)).collect();
    for (_, server) in &waiting {
        // One page each: what follows is not their first.
        assert_eq!(pair.server.write(pair.now, *server, &[7; PAGE_BYTES]), Ok(PAGE_BYTES));
    }
    pair.filter = Some(std::boxed::Box::new(|side, _| side == Side::Server));
    fill(&mut pair, hoarder.1);
    pair.server.set_memory_elsewhere(35 * PAGE_BYTES);
    for (_, server) in waiting.iter().rev() {
        assert_eq!(
            pair.server.write(pair.now, *server, &[7; PAGE_BYTES]),
            Err(WriteError::WouldBlock)
        );
    }
    pair.filter = None;
    pair.server.set_memory_elsewhere(0);
    pair.events.clear();
    let mut order = Vec::new();
    for _ in 0..2000 {
        pair.run_for(MS * 10);
        drain(&mut pair, hoarder.0);
        for id in told(&mut pair) {
            if id != hoarder.1 {
                pair.server.write(pair.now, id, &[7; PAGE_BYTES]).unwrap();
            }
            order.push(id);
        }
    }
    order.retain(|id| *id != hoarder.1);
    let expected: Vec<ConnectionId> = waiting.iter().rev().map(|ends| ends.1).collect();
    assert_eq!(order[..3], expected);
    assert_eq!(resets(&pair), [0; 3]);
}

#[test]
fn a_waiter_that_holds_nothing_any_more_is_woken_at_once() {
    let (mut pair, listener) = short_of_pages(256);
    let waiting = pair.connect(listener);
    assert_eq!(pair.server.write(pair.now, waiting.1, &[7; PAGE_BYTES]), Ok(PAGE_BYTES));
    // The memory elsewhere holds all that is left, and no connection stalls for it.
    pair.server.set_memory_elsewhere(230 * PAGE_BYTES);
    assert_eq!(
        pair.server.write(pair.now, waiting.1, &[7; PAGE_BYTES]),
        Err(WriteError::WouldBlock)
    );
    pair.events.clear();
    pair.run_for(MS * 50);
    assert_eq!(drain(&mut pair, waiting.0), PAGE_BYTES);
    assert_eq!(told(&mut pair), [waiting.1]);
    assert_eq!(pair.server.write(pair.now, waiting.1, &[7; 100]), Ok(100), "its first page");
    pair.run_for(MS * 50);
    assert_eq!(drain(&mut pair, waiting.0), 100);
}

#[test]
fn those_that_have_stalled_longest_make_room_and_no_others() {
    let (mut pair, listener) = short_of_pages(256);
    let all = hoarders(&mut pair, listener);
    let last = all.len() - 1;
    assert!(last >= 5, "{last}");
    pair.run_for(SECOND * 3);
    let is_reset = |pair: &Pair| -> Vec<bool> {
        all.iter().map(|(_, server)| pair.server.state(*server) == State::Closed).collect()
    };
    let reset = is_reset(&pair);
    assert!(reset[0] && !reset[1] && !reset[last], "{reset:?}");
    assert_eq!(resets(&pair), [1, 0, 0]);
    assert_eq!(pair.client.state(all[0].0), State::Closed, "it was told by RST");
    assert!(told(&mut pair).contains(&all[last].1));
    // There are pages again: no other connection goes, however long it stalls.
    pair.run_for(SECOND * 100);
    assert_eq!(is_reset(&pair), reset);
}

#[test]
fn a_reader_is_kept_and_one_that_rarely_reads_a_little_is_not() {
    let (mut pair, listener) = short_of_pages(256);
    let [reader, trickler] = [(); 2].map(|()| pair.connect(listener));
    fill(&mut pair, reader.1);
    fill(&mut pair, trickler.1);
    // Both have been seen to stall.
    pair.run_for(SECOND * 5);
    let mut buffer = [0; 2 * 1460];
    for step in 0..60 {
        drain(&mut pair, reader.0);
        fill(&mut pair, reader.1);
        if step % 20 == 0 {
            pair.client.read(pair.now, trickler.0, &mut buffer).unwrap();
        }
        pair.run_for(SECOND);
    }
    let others = hoarders(&mut pair, listener);
    assert!(others.len() > 1);
    pair.run_for(MS * 900);
    assert_eq!(pair.server.state(trickler.1), State::Closed);
    assert_eq!(pair.server.state(reader.1), State::Established);
    assert_eq!(resets(&pair).iter().sum::<u64>(), 1);
}

#[test]
fn who_holds_nothing_is_served_while_others_hold_all_they_may() {
    let (mut pair, listener) = short_of_pages(256);
    let all = hoarders(&mut pair, listener);
    assert!(!all.is_empty());
    let (client, server) = pair.connect(listener);
    assert_eq!(pair.server.write(pair.now, server, &[7; 500]), Ok(500));
    assert_eq!(pair.server.write(pair.now, server, &[7; 5000]), Ok(524), "the page is filled");
    assert_eq!(pair.client.write(pair.now, client, &[7; 20_000]), Ok(20_000));
    pair.run_for(MS * 100);
    assert_eq!(drain(&mut pair, client), 1024);
    assert_eq!(pair.server.readable_bytes(server), 20_000, "what arrives has a reserve of its own");
    assert_eq!(resets(&pair), [0; 3], "and nobody had to go for it");
}

#[test]
fn an_orphan_whose_peer_takes_nothing_is_reset_in_time() {
    for (is_scarce, seconds) in [(false, 30), (true, 7)] {
        let (mut pair, listener) = short_of_pages(256);
        let (client, server) = pair.connect(listener);
        fill(&mut pair, server);
        if is_scarce {
            pair.server.set_memory_elsewhere(200 * PAGE_BYTES);
        }
        pair.close(Side::Server, server, SECOND * seconds);
        assert_eq!((pair.server.connections(), pair.server.counters().orphans_timed_out), (1, 0));
        pair.run_for(SECOND * 2);
        assert_eq!((pair.server.connections(), pair.server.counters().orphans_timed_out), (0, 1));
        assert_eq!(pair.client.take_error(client), Some(Error::ConnectionReset));
        pair.server.set_memory_elsewhere(0);
        assert_eq!(pair.server.pages_in_use(), 0);
    }
}

#[test]
fn an_orphan_that_nobody_answers_is_sent_again_for_longer() {
    for (is_scarce, seconds) in [(false, 299), (true, 74)] {
        let (mut pair, listener) = listening(config(CLIENT), config(SERVER));
        let (_, server) = pair.connect(listener);
        pair.filter = Some(std::boxed::Box::new(|side, _| side == Side::Client));
        fill(&mut pair, server);
        if is_scarce {
            let limit = pair.server.config().limits.pages;
            pair.server.set_memory_elsewhere(limit / 8 * 7 * PAGE_BYTES);
        }
        pair.close(Side::Server, server, SECOND * seconds);
        assert_eq!(pair.server.connections(), 1);
        pair.run_for(SECOND * 3);
        assert_eq!(pair.server.connections(), 0);
    }
}

#[test]
fn an_orphan_whose_peer_reads_slowly_sends_all_it_has() {
    let (mut pair, listener) = short_of_pages(256);
    let (client, server) = pair.connect(listener);
    let sent = fill(&mut pair, server);
    pair.close(Side::Server, server, SECOND);
    let (mut received, mut buffer) = (0, [0; 2 * 1460]);
    // 1.46 kB/s: for 128 KiB it takes a minute and a half.
    while received < sent {
        pair.run_for(SECOND * 2);
        received += pair.client.read(pair.now, client, &mut buffer).unwrap();
        assert!(pair.now.as_millis() < 600_000);
    }
    assert!(pair.now.as_millis() > 60_000);
    assert_eq!(pair.server.counters().orphans_timed_out, 0);
}

#[test]
fn a_short_orphan_is_slow_only_if_its_peer_takes_almost_none() {
    // Four bytes in five seconds are less than the rate, and in the end all of them.
    for (taken, is_reset) in [(400, false), (1, true)] {
        let mut client = config(CLIENT);
        client.tcp.buffers.receive_max = 2 * 1460;
        client.tcp.buffers.receive = 2 * 1460;
        let (mut pair, listener) = listening(client, config(SERVER));
        let (client, server) = pair.connect(listener);
        fill(&mut pair, server);
        pair.run_for(SECOND * 2);
        while pair.server.unacknowledged_bytes(server) > 6000 {
            drain(&mut pair, client);
            pair.run_for(MS * 10);
        }
        pair.close(Side::Server, server, SECOND);
        let mut buffer = [0; 400];
        for _ in 0..100 {
            pair.run_for(SECOND * 5);
            // Over at either end.
            let _ = pair.client.read(pair.now, client, &mut buffer[..taken]);
        }
        assert_eq!(pair.server.counters().orphans_timed_out, u64::from(is_reset), "{taken}");
    }
}

#[test]
fn a_linger_ends_an_orphan_when_its_user_said() {
    let (mut pair, listener) = short_of_pages(256);
    let (_, server) = pair.connect(listener);
    let options =
        SocketOptions { linger: Some(SECOND * 100), ..pair.server.options(server).unwrap() };
    pair.server.set_options(pair.now, server, options).unwrap();
    fill(&mut pair, server);
    pair.close(Side::Server, server, SECOND * 99);
    assert_eq!(pair.server.connections(), 1);
    pair.run_for(SECOND * 2);
    assert_eq!(pair.server.connections(), 0);
}

/// Where memory is scarce a connection holds what its peer and the path take, not a buffer full.
#[test]
fn what_a_peer_does_not_take_is_not_held_where_memory_is_scarce() {
    let (mut pair, listener) = short_of_pages(1000);
    let ends: Vec<Ends> = (0..3).map(|_| pair.connect(listener)).collect();
    let held = |pair: &Pair, id| pair.server.unacknowledged_bytes(id);
    assert!(fill(&mut pair, ends[0].1) > 100_000, "there is plenty");
    pair.server.set_memory_elsewhere(760 * PAGE_BYTES);
    // The window is four segments.
    assert_eq!(fill(&mut pair, ends[1].1), 2 * 4 * 1460);
    assert!(!pair.server.readiness(pair.now, ends[1].1).contains(Readiness::WRITABLE));
    pair.run_for(SECOND);
    assert!(held(&pair, ends[1].1) <= 4 * 1460, "the rest waits for a window");
    assert_eq!(fill(&mut pair, ends[1].1), 0);
    pair.events.clear();
    // Its writer hears when the peer has taken some, and a writer whose peer reads gets all
    // through.
    drain(&mut pair, ends[1].0);
    pair.run_for(MS * 100);
    assert_eq!(told(&mut pair), [ends[1].1]);
    let (mut sent, mut received) = (0, 0);
    for _ in 0..200 {
        sent += fill(&mut pair, ends[2].1);
        pair.run_for(MS * 10);
        received += drain(&mut pair, ends[2].0);
    }
    assert!(received > 500_000 && sent - received <= 2 * 4 * 1460, "{received} of {sent}");
}

/// Those whose peers take nothing do not stand in the line before those whose peers do.
#[test]
fn only_who_could_send_more_waits_in_line() {
    let (mut pair, listener) = short_of_pages(1000);
    let (closed, open) = (pair.connect(listener).1, pair.connect(listener));
    fill(&mut pair, closed);
    pair.run_for(SECOND);
    pair.server.set_memory_elsewhere(1000 * PAGE_BYTES);
    assert_eq!(pair.server.write(pair.now, closed, &[7; 100]), Err(WriteError::WouldBlock));
    assert_eq!(pair.server.write(pair.now, open.1, &[7; 100]), Err(WriteError::WouldBlock));
    assert_eq!(pair.server.counters().writes_short_of_pages, 1);
    pair.events.clear();
    pair.server.set_memory_elsewhere(800 * PAGE_BYTES);
    pair.run_for(MS * 10);
    assert_eq!(told(&mut pair), [open.1]);
}

#[test]
fn connections_that_end_in_the_line_leave_no_trace() {
    let (mut pair, listener) = short_of_pages(64);
    let hoarder = pair.connect(listener);
    fill(&mut pair, hoarder.1);
    for _ in 0..20 {
        let (_, server) = pair.connect(listener);
        fill(&mut pair, server);
        pair.server.abort(pair.now, server);
        pair.run_for(MS * 10);
    }
    let (now, id) = (pair.now, hoarder.1);
    pair.server.abort(now, id);
    pair.run_for(SECOND);
    let (client, server) = pair.connect(listener);
    assert!(fill(&mut pair, server) > 100_000, "nobody is before it in line");
    pair.run_for(MS * 50);
    assert!(drain(&mut pair, client) > 0);
}

/// The window of such a peer never closes, and each acknowledgement starts the timer anew: only a
/// look at all connections finds it.
#[test]
fn a_peer_that_acks_a_byte_before_each_timer_is_found() {
    let mut config = plain();
    config.limits.pages = 24;
    let mut peer = Peer::established(config);
    let id = peer.id();
    while peer.host.write(peer.now, id, &[7; 3000]).is_ok() {}
    peer.hear();
    // Others have the rest, and ask for more.
    peer.host.set_memory_elsewhere(8 * PAGE_BYTES);
    let mut acked = 1;
    while peer.state() == State::Established && acked < 100 {
        peer.host.want_memory_elsewhere(true);
        peer.wait(MS * 150);
        acked += 1;
        peer.say(Say::new(A, 1, acked));
        peer.hear();
    }
    let counters = peer.host.counters();
    assert_eq!((counters.reset_for_memory_slow, counters.retransmits), (1, 0));
    assert!((20..40).contains(&acked), "{acked}");
}

/// A page that comes back to a host whose writers hold all they may goes to one that holds none.
#[test]
fn a_waiter_for_a_first_page_is_woken_before_holders() {
    let (mut pair, listener) = short_of_pages(256);
    let all = hoarders(&mut pair, listener);
    let late = [(); 2].map(|()| pair.connect(listener).1);
    // Others take what is kept for first pages.
    let taken = pair.server.pages_in_use();
    pair.server.set_memory_elsewhere((240 - taken) * PAGE_BYTES);
    for id in late {
        assert_eq!(pair.server.write(pair.now, id, &[7; 100]), Err(WriteError::WouldBlock));
    }
    pair.events.clear();
    pair.run_for(MS * 10);
    assert_eq!(told(&mut pair), []);
    pair.server.set_memory_elsewhere((238 - taken) * PAGE_BYTES);
    pair.run_for(MS * 10);
    assert_eq!(told(&mut pair)[..2], late);
    assert_eq!(resets(&pair), [0; 3]);
    assert!(!all.is_empty());
}

/// A connection that takes nothing goes as soon as others have waited a sixteenth of the time that
/// it has else.
#[test]
fn while_others_wait_for_memory_a_window_closes_only_briefly() {
    let (mut pair, listener) = short_of_pages(256);
    let all = hoarders(&mut pair, listener);
    pair.run_for(MS * 120);
    assert_eq!(resets(&pair), [0; 3]);
    pair.run_for(MS * 300);
    assert!(resets(&pair)[0] > 0);
    let (_, last) = all[all.len() - 1];
    assert!(told(&mut pair).contains(&last));
}

/// What 16 connections of such a kind take is the whole share of them.
const CONNECTION_BYTES: usize = 12 * PAGE_BYTES;

/// A server of 256 pages, 16 connections that all hold text, and what they take beside.
fn crowd() -> (Pair, ListenerId, Vec<Ends>) {
    let (mut pair, listener) = short_of_pages(256);
    let all: Vec<Ends> = (0..16).map(|_| pair.connect(listener)).collect();
    for (_, server) in &all {
        pair.server.write(pair.now, *server, &[7; 16_000]).unwrap();
    }
    pair.server.set_memory_by_connections(all.len() * CONNECTION_BYTES);
    (pair, listener, all)
}

#[test]
fn without_room_for_connections_one_just_stalled_goes() {
    let (mut pair, _, all) = crowd();
    // Where there is room no connection goes, however long it stalls.
    pair.server.set_memory_by_connections(all.len() * PAGE_BYTES);
    assert_eq!(pair.server.room_for_connection(CONNECTION_BYTES), ConnectionRoom::Enough);
    pair.run_for(SECOND);
    assert_eq!(resets(&pair), [0; 3]);
    pair.server.set_memory_by_connections(all.len() * CONNECTION_BYTES);
    assert_eq!(pair.server.room_for_connection(CONNECTION_BYTES), ConnectionRoom::None);
    pair.run_for(MS * 300);
    // One is enough.
    assert_eq!(resets(&pair), [1, 0, 0]);
    pair.server.set_memory_by_connections(15 * CONNECTION_BYTES);
    assert_eq!(pair.server.room_for_connection(CONNECTION_BYTES), ConnectionRoom::Enough);
}

#[test]
fn without_room_for_connections_the_slow_go_and_the_fast_stay() {
    for is_crowded in [false, true] {
        let (mut pair, _, all) = crowd();
        let mut buffer = [0; 60_000];
        let mut room = ConnectionRoom::Enough;
        for step in 0..80 {
            for (number, (client, server)) in all.iter().enumerate() {
                // The first takes all there is, the others 2,900 bytes a second.
                let most = if number == 0 { 60_000 } else { 1450 };
                if number == 0 || step % 5 == 0 {
                    let _ = pair.client.read(pair.now, *client, &mut buffer[..most]);
                }
                if pair.server.unacknowledged_bytes(*server) < 8000 {
                    let _ = pair.server.write(pair.now, *server, &[7; 3000]);
                }
            }
            let living = all.iter().filter(|a| pair.server.state(a.1) == State::Established);
            let each = if is_crowded { CONNECTION_BYTES } else { PAGE_BYTES };
            pair.server.set_memory_by_connections(living.count() * each);
            room = pair.server.room_for_connection(CONNECTION_BYTES);
            pair.server.set_crowded(room != ConnectionRoom::Enough);
            pair.run_for(MS * 100);
        }
        assert_eq!(room, ConnectionRoom::Enough);
        let gone: u64 = resets(&pair).iter().sum();
        assert_eq!(gone > 0, is_crowded, "{gone}");
        assert!(gone < 5, "{gone}: no more than it takes");
        assert_eq!(pair.server.state(all[0].1), State::Established);
    }
}
