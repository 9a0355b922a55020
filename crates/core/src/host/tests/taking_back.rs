//! What was never sent is taken back where memory is short, and written again; resets come last.

use alloc::vec::Vec;

use proptest::prelude::*;

use super::pair::{CLIENT, Pair, SERVER, Side, config, pattern};
use crate::buffer::PAGE_BYTES;
use crate::config::SendRule;
use crate::event::{ConnectionId, Event, ListenerId, Readiness};
use crate::tcp::{State, Supply};
use crate::time::Duration;

const MS: Duration = Duration::from_millis(1);
const PAGES: usize = 256;

/// A server's end of a connection whose source can be asked again, and what the client has read.
struct Download {
    client: ConnectionId,
    server: ConnectionId,
    /// What is written next.
    at: usize,
    read: usize,
    taken_back: usize,
    /// What the server held to be sent when it last took something back.
    kept: Option<usize>,
}

struct Downloads {
    pair: Pair,
    listener: ListenerId,
    all: Vec<Download>,
    bytes: usize,
    /// Chunks of so many bytes are adopted where that is possible; 0: none.
    chunk: Chunks,
}

/// The chunks that the server's buffers share; none of them if they have no bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Chunks {
    bytes: usize,
    is_borrowed: bool,
}

impl Downloads {
    /// So many of `bytes` each, to a client whose windows are small.
    fn new(count: usize, bytes: usize) -> Downloads {
        Downloads::with_window(count, bytes, 4 * 1460, SendRule::Round)
    }

    /// So many, to a client whose windows are so large, from send buffers by that rule.
    fn with_window(count: usize, bytes: usize, window: u32, rule: SendRule) -> Downloads {
        let (mut client, mut server) = (config(CLIENT), config(SERVER));
        server.limits.pages = PAGES;
        server.tcp.buffers.send_size = rule;
        server.tcp.buffers.send = 128 << 10;
        client.tcp.buffers.receive = window;
        client.tcp.buffers.receive_max = window;
        let mut pair = Pair::with(client, server);
        let listener = pair.server.listen("0.0.0.0:80".parse().unwrap(), 64).unwrap();
        let mut downloads =
            Downloads { pair, listener, all: Vec::new(), bytes, chunk: Chunks::default() };
        (0..count).for_each(|_| downloads.add());
        downloads
    }

    fn add(&mut self) {
        let (client, server) = self.pair.connect(self.listener);
        self.all.push(Download { client, server, at: 0, read: 0, taken_back: 0, kept: None });
    }

    /// Others hold all but so many pages, and one more comes, that reads and finds too few.
    fn squeeze(&mut self, pages: usize) {
        self.pair.server.set_memory_elsewhere((PAGES - pages) * PAGE_BYTES);
        self.add();
        for _ in 0..200 {
            self.run(1, usize::MAX);
            self.read(self.all.len() - 1, 9000);
        }
    }

    /// Time passes; connections that are asked take back `most` bytes, and others write. A step is
    /// shorter than what they have to answer.
    fn run(&mut self, steps: usize, most: usize) {
        for _ in 0..steps {
            self.pair.run_for(MS * 5);
            let Downloads { pair, all, bytes, chunk, .. } = self;
            let wanted = |(side, event): &(Side, Event)| match event {
                Event::Ready(id, ready) if *side == Side::Server => {
                    ready.contains(Readiness::WANTED_BACK).then_some(*id)
                }
                _ => None,
            };
            let wanted: Vec<_> = pair.events.iter().filter_map(wanted).collect();
            pair.events.clear();
            for one in all {
                if wanted.contains(&one.server) && pair.server.is_wanted_back(one.server) {
                    let taken = pair.server.take_back(pair.now, one.server, most);
                    assert!(taken <= most && !pair.server.is_wanted_back(one.server));
                    one.at -= taken;
                    one.taken_back += taken;
                    one.kept = held(pair, one);
                }
                // As a reader of a file does: it reads again only once the peer has taken
                // something.
                if held(pair, one).is_some_and(|held| held > 0 && Some(held) == one.kept) {
                    continue;
                }
                one.kept = None;
                adopt(pair, one, *bytes, *chunk);
                write(pair, one, *bytes);
            }
        }
    }

    /// The client of number `number` reads up to `most` bytes, which are what the source has.
    fn read(&mut self, number: usize, most: usize) {
        let (mut buffer, one) = (std::vec![0; most], &mut self.all[number]);
        if let Ok(len) = self.pair.client.read(self.pair.now, one.client, &mut buffer) {
            let expected = (one.read..one.read + len).map(pattern);
            assert!(buffer[..len].iter().copied().eq(expected), "{number} at {}", one.read);
            one.read += len;
        }
    }

    /// The clients of the first `count` read, one in each of so many steps.
    fn read_in_turns(&mut self, count: usize, steps: usize) {
        for step in 0..steps {
            self.run(1, usize::MAX);
            self.read(step % count, 9000);
        }
    }

    /// The server's application says that each has a source.
    fn name_sources(&mut self) {
        let supply = Supply { read_time: Duration::ZERO, more: true };
        for one in &self.all {
            self.pair.server.set_supply(self.pair.now, one.server, supply);
        }
    }

    /// What the server holds for each to send, in bytes.
    fn held(&self) -> Vec<usize> {
        self.all.iter().map(|one| held(&self.pair, one).unwrap()).collect()
    }

    fn resets(&self) -> u64 {
        let counters = self.pair.server.counters();
        counters.reset_for_memory_closed_window + counters.reset_for_memory_slow
    }

    fn taken_back(&self) -> u64 {
        let counters = self.pair.server.counters();
        counters.taken_back_closed_window_bytes + counters.taken_back_slow_bytes
    }
}

/// What the server holds to be sent, in bytes, unless the connection is over.
fn held(pair: &Pair, one: &Download) -> Option<usize> {
    pair.server.send_info(pair.now, one.server).map(|info| info.held_bytes)
}

fn adopt(pair: &mut Pair, one: &mut Download, bytes: usize, chunk: Chunks) {
    while chunk.bytes > 0 && one.at + chunk.bytes <= bytes {
        let data = (one.at..one.at + chunk.bytes).map(pattern).collect();
        let is_taken = match chunk.is_borrowed {
            true => pair.server.borrow(pair.now, one.server, &data),
            false => pair.server.adopt(pair.now, one.server, &data),
        };
        if !is_taken {
            break;
        }
        one.at += chunk.bytes;
    }
}

fn write(pair: &mut Pair, one: &mut Download, bytes: usize) {
    while one.at < bytes {
        let end = bytes.min(one.at + 3000);
        let part: Vec<u8> = (one.at..end).map(pattern).collect();
        match pair.server.write(pair.now, one.server, &part) {
            Ok(taken) => one.at += taken,
            Err(_) => break,
        }
    }
}

#[test]
fn what_was_never_sent_is_taken_back_before_anybody_is_reset() {
    let mut downloads = Downloads::new(10, 120_000);
    downloads.run(30, usize::MAX);
    assert_eq!(downloads.taken_back(), 0, "there is enough for these");
    downloads.squeeze(160);
    let by_them: usize = downloads.all.iter().map(|one| one.taken_back).sum();
    assert_eq!((downloads.taken_back(), downloads.resets()), (by_them as u64, 0));
    assert!(by_them > 10 * 10_000, "{by_them}");
    assert_eq!(downloads.all[10].read, 120_000, "one that reads is served");
    // They read on, and have all of it.
    downloads.pair.server.set_memory_elsewhere(0);
    downloads.read_in_turns(10, 2000);
    assert!(downloads.all.iter().all(|one| one.read == 120_000), "all of it is read");
    assert_eq!(downloads.resets(), 0);
}

#[test]
fn adopted_chunks_are_taken_back_behind_what_is_in_flight() {
    chunks_are_taken_back(false);
}

#[test]
fn borrowed_chunks_are_taken_back_though_the_pool_charges_none() {
    chunks_are_taken_back(true);
}

fn chunks_are_taken_back(is_borrowed: bool) {
    const CHUNK: usize = 128 << 10;
    let mut downloads = Downloads::with_window(4, 2 * CHUNK, 60 << 10, SendRule::Fixed);
    downloads.chunk = Chunks { bytes: CHUNK, is_borrowed };
    // These clients fall silent: what they are sent stays in flight.
    let ports: Vec<_> = (downloads.all.iter())
        .map(|one| downloads.pair.client.local_address(one.client).unwrap().port())
        .collect();
    downloads.pair.filter = Some(std::boxed::Box::new(move |side, segment| {
        side == Side::Server || !ports.contains(&segment.source_port)
    }));
    let after = downloads.pair.server.config().tcp.stall.after;
    downloads.run((after.as_millis() / 5) as usize, usize::MAX);
    assert_eq!(downloads.pair.server.counters().adopted_bytes, 4 * CHUNK as u64);
    let in_use = downloads.pair.server.pages_in_use();
    assert_eq!(in_use >= 4 * CHUNK / PAGE_BYTES, !is_borrowed, "{in_use}");
    if is_borrowed {
        // Their owner waits for memory, until it has some of them back.
        downloads.pair.server.set_memory_elsewhere((PAGES - 100) * PAGE_BYTES);
        downloads.pair.server.want_memory_elsewhere(true);
        for _ in 0..400 {
            if downloads.all.iter().any(|one| one.taken_back == 0) {
                downloads.run(1, usize::MAX);
            }
        }
        downloads.pair.server.want_memory_elsewhere(false);
    }
    downloads.squeeze(100);
    let in_flight = |one: &Download| {
        let info = downloads.pair.server.send_info(downloads.pair.now, one.server).unwrap();
        (info.outstanding > PAGE_BYTES, info.held_pages < 10)
    };
    let silent = &downloads.all[..4];
    assert!(silent.iter().all(|one| in_flight(one) == (true, true)), "memory came back");
    assert!(silent.iter().all(|one| one.taken_back > CHUNK / 2), "each gave some");
    assert_eq!((downloads.all[4].read, downloads.resets()), (2 * CHUNK, 0));
    downloads.pair.filter = None;
    downloads.pair.server.set_memory_elsewhere(0);
    downloads.read_in_turns(4, 2000);
    assert!(downloads.all.iter().all(|one| one.read == 2 * CHUNK), "all of it is read");
    assert_eq!(downloads.resets(), 0);
}

#[test]
fn resets_come_when_all_was_taken_back_that_could_be() {
    let mut downloads = Downloads::new(10, 60_000);
    // All have been seen to stall.
    downloads.run(400, usize::MAX);
    // What stays where all is taken back leaves no first page.
    downloads.squeeze(10);
    let taken_back = |one: &Download| one.taken_back > 0;
    assert!(downloads.resets() > 0, "{}", downloads.resets());
    assert!(downloads.all[..10].iter().all(taken_back), "each was asked before");
}

/// The writer that waits holds pages; the connections with closed windows hold next to nothing.
#[test]
fn one_that_holds_little_is_not_reset_for_one_that_holds_more() {
    let mut downloads = Downloads::new(10, 60_000);
    downloads.run(400, usize::MAX);
    downloads.squeeze(50);
    assert!(downloads.all[..10].iter().all(|one| one.taken_back > 0), "each was asked");
    let waits = downloads.pair.server.pool_info().waiting;
    assert_eq!((downloads.resets(), waits), (0, 1));
    assert!(downloads.all[10].read > 20_000, "{}", downloads.all[10].read);
    // They read again, and are asked again when they have been given more.
    downloads.pair.server.set_memory_elsewhere(0);
    downloads.read_in_turns(10, 20);
    let before: Vec<_> = downloads.all.iter().map(|one| one.taken_back).collect();
    downloads.run(100, usize::MAX);
    downloads.squeeze(60);
    let more = downloads.all.iter().zip(before).take(10).filter(|(one, b)| one.taken_back > *b);
    assert_eq!((downloads.resets(), more.count()), (0, 10));
}

#[test]
fn behind_a_queued_fin_nothing_is_written_or_taken_back() {
    let mut downloads = Downloads::new(10, 60_000);
    downloads.run(3, usize::MAX);
    let pair = &mut downloads.pair;
    for one in &downloads.all {
        pair.server.shutdown_write(pair.now, one.server).unwrap();
    }
    downloads.squeeze(160);
    assert_eq!(downloads.pair.server.counters().asked_back_for_memory, 0);
    assert!(downloads.resets() > 0);
}

/// How long a window is closed before its first probe.
const FIRST_PROBE: usize = 220;

#[test]
fn before_a_closed_window_two_segments_wait_by_los() {
    const WINDOW: u32 = 60 << 10;
    let mut downloads = Downloads::with_window(4, 400_000, WINDOW, SendRule::Los);
    downloads.name_sources();
    downloads.run(20, usize::MAX);
    let counters = downloads.pair.server.counters();
    assert_eq!(counters.asked_back_for_stall, 0, "no probe is due yet");
    assert!(downloads.held().iter().all(|held| *held > 3 * 1460), "{:?}", downloads.held());
    downloads.run(FIRST_PROBE, usize::MAX);
    assert!(downloads.held().iter().all(|held| *held <= PAGE_BYTES), "{:?}", downloads.held());
    // They are asked once for each time that their windows close.
    downloads.run(20 * FIRST_PROBE, usize::MAX);
    assert_eq!(downloads.pair.server.counters().asked_back_for_stall, 4);
    downloads.read_in_turns(4, 1000);
    assert!(downloads.all.iter().all(|one| one.read == 400_000), "all of it is read");
    assert_eq!(downloads.resets(), 0);
}

#[test]
fn a_buffer_of_another_rule_keeps_what_it_may_hold() {
    let mut downloads = Downloads::with_window(4, 400_000, 8 << 10, SendRule::Fixed);
    downloads.name_sources();
    downloads.run(FIRST_PROBE, usize::MAX);
    assert_eq!(downloads.pair.server.counters().asked_back_for_stall, 4);
    assert_eq!((downloads.taken_back(), downloads.held()), (0, std::vec![128 << 10; 4]));
}

#[test]
fn one_whose_source_nobody_named_is_not_asked() {
    let mut downloads = Downloads::with_window(4, 400_000, 60 << 10, SendRule::Los);
    downloads.run(FIRST_PROBE, usize::MAX);
    assert_eq!(downloads.pair.server.counters().asked_back_for_stall, 0);
}

#[test]
fn a_connection_that_was_not_asked_takes_nothing_back() {
    let mut downloads = Downloads::new(1, 120_000);
    downloads.run(100, usize::MAX);
    let server = downloads.all[0].server;
    assert!(!downloads.pair.server.is_wanted_back(server));
    assert_eq!(downloads.pair.server.take_back(downloads.pair.now, server, usize::MAX), 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn whatever_is_taken_back_the_client_reads_what_the_source_has(
        steps in prop::collection::vec(
            (0usize..4, 0usize..9000, 0usize..300, any::<bool>()), 1..60,
        ),
    ) {
        let mut downloads = Downloads::new(4, 150_000);
        for (number, bytes, elsewhere, reads) in steps {
            let most = if bytes % 3 == 0 { bytes } else { usize::MAX };
            downloads.pair.server.set_memory_elsewhere(elsewhere.min(PAGES) * PAGE_BYTES);
            downloads.run(25, most);
            if reads {
                downloads.read(number, bytes);
            }
        }
        downloads.pair.server.set_memory_elsewhere(0);
        downloads.read_in_turns(4, 1200);
        for one in &downloads.all {
            let is_over = downloads.pair.server.state(one.server) == State::Closed;
            prop_assert!(one.read == 150_000 || is_over, "{} of 150,000", one.read);
        }
    }
}
