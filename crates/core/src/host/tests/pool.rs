//! The policies by which pages are shared where they are short.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::pair::{CLIENT, Pair, SERVER, Side, config};
use crate::WriteError;
use crate::config::{Config, PageSize, PoolPolicy, SendRule};
use crate::event::{ConnectionId, Event, Readiness};
use crate::time::Duration;

const MS: Duration = Duration::from_millis(1);

const POLICIES: [PoolPolicy; 5] = [
    PoolPolicy::Line,
    PoolPolicy::Naive,
    PoolPolicy::RoundRobin,
    PoolPolicy::Priority,
    PoolPolicy::Psc,
];

/// A server of so many pages of that size, by that policy.
fn server(policy: PoolPolicy, page: PageSize, pages: usize) -> Config {
    let mut server = config(SERVER);
    (server.limits.pages, server.limits.page) = (pages, page);
    server.tcp.pool.policy = policy;
    server.tcp.pool.most_connections = 8;
    server.tcp.buffers.send_size = SendRule::Los;
    server
}

/// One download: both names, bytes written and bytes read.
struct Download {
    client: ConnectionId,
    server: ConnectionId,
    written: usize,
    read: usize,
}

/// Downloads of `bytes` each, from a server as configured.
struct Downloads {
    pair: Pair,
    all: Vec<Download>,
    bytes: usize,
}

impl Downloads {
    fn new(server: Config, count: usize, bytes: usize) -> Downloads {
        let mut pair = Pair::with(config(CLIENT), server);
        let listener = pair.server.listen("0.0.0.0:80".parse().unwrap(), 16).unwrap();
        let all = (0..count).map(|_| {
            let (client, server) = pair.connect(listener);
            Download { client, server, written: 0, read: 0 }
        });
        let all = all.collect();
        Downloads { pair, all, bytes }
    }

    /// Ends that may write do, and ends that may read do.
    fn turn(&mut self) {
        self.pair.turn();
        let Downloads { pair, all, bytes } = self;
        pair.events.clear();
        let mut buffer = [0; 4000];
        for one in all {
            while one.written < *bytes {
                let part = &[7; 3000][..(*bytes - one.written).min(3000)];
                match pair.server.write(pair.now, one.server, part) {
                    Ok(taken) => one.written += taken,
                    Err(error) => {
                        assert_eq!(error, WriteError::WouldBlock);
                        break;
                    }
                }
            }
            while let Ok(read) = pair.client.read(pair.now, one.client, &mut buffer) {
                one.read += read;
            }
        }
        pair.now = pair.now + MS;
    }

    fn are_over(&self) -> bool {
        self.all.iter().all(|one| one.read == self.bytes)
    }
}

#[test]
fn no_connection_is_forgotten_by_any_policy_however_few_pages() {
    for policy in POLICIES {
        for (page, pages) in [(PageSize::Auto, 3), (PageSize::Segment, 9), (PageSize::Segment, 70)]
        {
            for newcomers_first in [true, false] {
                let mut server = server(policy, page, pages);
                server.tcp.pool.newcomers_first = newcomers_first;
                let mut downloads = Downloads::new(server, 8, 30_000);
                let mut count = 0;
                downloads.pair.filter = Some(Box::new(move |from, segment| {
                    count += u32::from(from == Side::Server && !segment.payload.is_empty());
                    count % 23 != 5 || segment.payload.is_empty()
                }));
                for _ in 0..200_000 {
                    downloads.turn();
                    if downloads.are_over() {
                        break;
                    }
                }
                let info = downloads.pair.server.pool_info();
                assert!(downloads.are_over(), "{policy:?}, {pages} of {page:?}: {info:?}");
                downloads.pair.run_for(MS * 2000);
                assert_eq!(downloads.pair.server.pages_in_use(), 0, "{policy:?}, {page:?}");
            }
        }
    }
}

#[test]
fn by_naive_none_holds_more_than_its_share_though_others_idle() {
    let mut downloads =
        Downloads::new(server(PoolPolicy::Naive, PageSize::Segment, 80), 2, 1 << 20);
    for _ in 0..100 {
        downloads.turn();
        for one in &downloads.all {
            let held =
                downloads.pair.server.send_info(downloads.pair.now, one.server).unwrap().held_pages;
            assert!(held <= 10, "{held}");
        }
    }
    assert_eq!(downloads.pair.server.pool_info().share, Some(10));
    assert!(downloads.all.iter().all(|one| one.read > 20_000));
    assert_eq!(downloads.pair.server.counters().writes_short_of_pages, 0);
}

#[test]
fn by_naive_a_buffer_without_a_rule_is_as_large_as_the_share() {
    let mut server = server(PoolPolicy::Naive, PageSize::Segment, 80);
    server.tcp.buffers.send_size = SendRule::Round;
    let downloads = Downloads::new(server, 1, 0);
    let info =
        downloads.pair.server.send_info(downloads.pair.now, downloads.all[0].server).unwrap();
    assert_eq!(info.hiwat, 10 * 512);
}

#[test]
fn by_psc_a_scan_gives_a_fair_share_and_more_when_others_go() {
    let mut downloads = Downloads::new(server(PoolPolicy::Psc, PageSize::Segment, 63), 4, 1 << 20);
    for _ in 0..300 {
        downloads.turn();
    }
    let pool = |downloads: &Downloads| downloads.pair.server.pool_info();
    assert_eq!(pool(&downloads).share, Some(63 / 4), "all need more");
    for one in downloads.all.split_off(1) {
        downloads.pair.server.abort(downloads.pair.now, one.server);
    }
    for _ in 0..300 {
        downloads.turn();
    }
    assert!(pool(&downloads).share.is_none_or(|share| share == 63), "one is left");
    assert!(downloads.pair.server.counters().share_scans >= 10);
}

/// Which of two waiting connections hears first: one that holds `held[0]` bytes, and one that holds
/// `held[1]` and has come later.
fn told_first(policy: PoolPolicy, held: [usize; 2]) -> Option<usize> {
    let mut server = server(policy, PageSize::Segment, 40);
    server.tcp.pool.newcomers_first = false;
    let mut downloads = Downloads::new(server, 3, 0);
    let names: Vec<ConnectionId> = downloads.all.iter().map(|one| one.server).collect();
    let pair = &mut downloads.pair;
    // Nothing leaves: the third holds all that is left.
    let fill = |pair: &mut Pair, id, bytes: usize| {
        let data = std::vec![7; bytes];
        pair.server.write(pair.now, id, &data).unwrap_or(0)
    };
    for (id, held) in names.iter().zip(held) {
        assert_eq!(fill(pair, *id, held), held);
    }
    while fill(pair, names[2], 512) > 0 {}
    for id in &names[..2] {
        assert_eq!(fill(pair, *id, 512), 0);
    }
    pair.run_for(MS);
    pair.events.clear();
    // The third is gone: pages come back, and both hear of them, one after the other.
    pair.server.abort(pair.now, names[2]);
    pair.turn();
    pair.events.iter().find_map(|(side, event)| match event {
        Event::Ready(id, ready) if ready.contains(Readiness::WRITABLE) => {
            names.iter().position(|name| name == id).filter(|_| *side == Side::Server)
        }
        _ => None,
    })
}

#[test]
fn by_priority_who_holds_less_of_what_it_needs_is_told_first() {
    assert_eq!(told_first(PoolPolicy::Priority, [8192, 1024]), Some(1));
    assert_eq!(told_first(PoolPolicy::RoundRobin, [8192, 1024]), Some(0));
    assert_eq!(told_first(PoolPolicy::Priority, [1024, 8192]), Some(0));
    assert_eq!(told_first(PoolPolicy::Priority, [1024, 1024]), Some(0), "who came first");
    assert_eq!(told_first(PoolPolicy::Priority, [512, 0]), Some(1), "who holds nothing");
}

#[test]
fn a_turn_is_of_one_page_while_others_wait() {
    for policy in [PoolPolicy::RoundRobin, PoolPolicy::Priority] {
        let mut downloads = Downloads::new(server(policy, PageSize::Segment, 9), 4, 0);
        let names: Vec<ConnectionId> = downloads.all.iter().map(|one| one.server).collect();
        let pair = &mut downloads.pair;
        let write =
            |pair: &mut Pair, id, pages| pair.server.write(pair.now, id, &[7; 4096][..pages * 512]);
        for (id, pages) in names.iter().zip([3, 4, 1, 1]) {
            assert_eq!(write(pair, *id, pages), Ok(pages * 512));
        }
        for id in &names[..2] {
            assert_eq!(write(pair, *id, 3), Err(WriteError::WouldBlock));
        }
        pair.server.abort(pair.now, names[2]);
        pair.turn();
        assert_eq!(pair.server.counters().page_turns, 1, "{policy:?}");
        assert_eq!(write(pair, names[1], 3), Err(WriteError::WouldBlock), "it is not its turn");
        assert_eq!(write(pair, names[0], 3), Ok(512), "{policy:?}");
        assert_eq!(write(pair, names[0], 2), Err(WriteError::WouldBlock));
        assert_eq!(pair.server.pool_info().waiting, 2);
        // What was promised has been taken: the next page is the next one's at once.
        pair.server.abort(pair.now, names[3]);
        pair.turn();
        assert_eq!(pair.server.counters().page_turns, 2, "{policy:?}");
        assert_eq!(write(pair, names[1], 3), Ok(512), "{policy:?}");
    }
}
