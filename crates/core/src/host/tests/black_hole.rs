//! Paths on which large packets vanish, and nobody says so (RFC 4821, RFC 8899).

use super::link::{Cable, host};
use crate::event::ConnectionId;
use crate::tcp::SocketOptions;
use crate::time::Duration;
use core::net::SocketAddr;
use std::string::ToString;
use std::vec::Vec;

const SECOND: Duration = Duration::from_secs(1);
const ETHERNET: usize = 14;

/// A connection from host 0 to host 1, and its other end.
fn connected(cable: &mut Cable, remote: &str) -> (ConnectionId, ConnectionId) {
    let remote: SocketAddr = remote.parse().unwrap();
    let any = if remote.is_ipv6() { "[::]:80" } else { "0.0.0.0:80" };
    let listener = cable.hosts[1].listen(any.parse().unwrap(), 4).unwrap();
    let id = cable.connect(&remote.to_string());
    cable.pass(SECOND);
    let (now, server) = (cable.now, &mut cable.hosts[1]);
    let peer = server.accept(now, listener).unwrap();
    (id, peer)
}

/// Sends so many bytes, which the other end reads, within that time. Returns how many arrived.
fn send(
    cable: &mut Cable,
    (id, peer): (ConnectionId, ConnectionId),
    bytes: usize,
    time: Duration,
) -> usize {
    let (until, text) = (cable.now + time, [7; 40_000]);
    let (mut written, mut read, mut buffer) = (0, 0, [0; 40_000]);
    while cable.now < until && read < bytes {
        let now = cable.now;
        let most = text.len().min(bytes - written);
        written += cable.hosts[0].write(now, id, &text[..most]).unwrap_or(0);
        cable.pass(Duration::from_millis(1));
        let now = cable.now;
        while let Ok(len @ 1..) = cable.hosts[1].read(now, peer, &mut buffer) {
            read += len;
        }
    }
    read
}

fn mtu_of(cable: &Cable, id: ConnectionId, headers: u16) -> u16 {
    cable.hosts[0].info(id).unwrap().mss_bytes + headers
}

#[test]
fn a_black_hole_is_found_and_what_it_carries_by_probes() {
    for (remote, longest, headers, found) in [
        ("10.0.0.2:80", 1280, 40, 1280),
        ("10.0.0.2:80", 1300, 40, 1280),
        ("10.0.0.2:80", 1492, 40, 1492),
        ("10.0.0.2:80", 1000, 40, 600),
        ("[fd00::2]:80", 1280, 60, 1280),
        ("[fd00::2]:80", 1400, 60, 1400),
    ] {
        let mut cable = Cable::two();
        cable.longest = longest + ETHERNET;
        let ends = connected(&mut cable, remote);
        let arrived = send(&mut cable, ends, 3_000_000, SECOND * 60);
        assert_eq!(arrived, 3_000_000, "{remote} {longest}");
        assert_eq!(mtu_of(&cable, ends.0, headers), found, "{remote} {longest}");
        let counters = *cable.hosts[0].counters();
        assert!(counters.timeouts <= 4, "{} timeouts", counters.timeouts);
        assert!(counters.path_black_holes >= 1 && counters.path_mtu_lowered == 0);
        // What was found holds for the next connection to that host.
        let mark = cable.seen.len();
        let next = cable.connect(remote);
        cable.pass(SECOND);
        let now = cable.now;
        cable.hosts[0].write(now, next, &[1; 3000]).unwrap();
        cable.pass(SECOND);
        let most = cable.seen[mark..].iter().map(Vec::len).max().unwrap();
        assert_eq!(most, usize::from(found) + ETHERNET);
        assert_eq!(cable.hosts[0].counters().timeouts, counters.timeouts);
    }
}

#[test]
fn what_one_connection_finds_holds_for_another_that_is_open() {
    let mut cable = Cable::two();
    cable.longest = 1200 + ETHERNET;
    let ends = connected(&mut cable, "10.0.0.2:80");
    let other = cable.connect("10.0.0.2:80");
    cable.pass(SECOND);
    send(&mut cable, ends, 20_000, SECOND * 10);
    let (mark, now, timeouts) = (cable.seen.len(), cable.now, cable.hosts[0].counters().timeouts);
    cable.hosts[0].write(now, other, &[1; 3000]).unwrap();
    cable.pass(SECOND);
    assert_eq!(cable.seen[mark..].iter().map(Vec::len).max(), Some(1200 + ETHERNET));
    assert_eq!(cable.hosts[0].counters().timeouts, timeouts);
}

#[test]
fn a_lost_probe_is_no_congestion() {
    let mut cable = Cable::two();
    cable.longest = 1280 + ETHERNET;
    let ends = connected(&mut cable, "10.0.0.2:80");
    // Three probes that are lost, and the waits behind them.
    send(&mut cable, ends, 2_000_000, SECOND * 10);
    // From 1200 one probe has arrived, and the next ones are lost.
    let counters = *cable.hosts[0].counters();
    assert_eq!((counters.path_probes, counters.fast_recoveries), (4, 0));
    assert_eq!(counters.timeouts, 2, "those that found the black hole");
    let info = cable.hosts[0].info(ends.0).unwrap();
    assert!(info.ssthresh_bytes < 20_000, "that of the timeouts");
    let window = info.cwnd_bytes;
    send(&mut cable, ends, 200_000, SECOND * 10);
    let info = cable.hosts[0].info(ends.0).unwrap();
    assert!(info.cwnd_bytes >= window && cable.hosts[0].counters().path_probes == 4);
}

#[test]
fn a_path_that_was_down_is_searched_up_to_what_it_had() {
    let mut cable = Cable::two();
    let ends = connected(&mut cable, "10.0.0.2:80");
    cable.longest = 0;
    send(&mut cable, ends, 20_000, SECOND);
    assert_eq!(cable.hosts[0].counters().path_black_holes, 1);
    cable.longest = usize::MAX;
    send(&mut cable, ends, 2_000_000, SECOND * 30);
    assert_eq!(mtu_of(&cable, ends.0, 40), 1500);
    assert_eq!(cable.hosts[0].counters().path_probes, 9, "1280 to 1500");
}

/// Sends into a path that carries nothing. Returns the times that a hole was suspected.
fn suspected(cable: &mut Cable, change: fn(&mut SocketOptions)) -> u64 {
    let ends = connected(cable, "10.0.0.2:80");
    let (now, host) = (cable.now, &mut cable.hosts[0]);
    let mut options = host.options(ends.0).unwrap();
    change(&mut options);
    host.set_options(now, ends.0, options).unwrap();
    cable.longest = 0;
    send(cable, ends, 20_000, SECOND * 5);
    cable.hosts[0].counters().path_black_holes
}

#[test]
fn no_hole_is_suspected_where_routers_may_cut() {
    assert_eq!(suspected(&mut Cable::two(), |_| {}), 2);
    assert_eq!(suspected(&mut Cable::two(), |options| options.path_mtu_discovery = false), 0);
}

#[test]
fn no_hole_is_suspected_where_the_search_is_off() {
    let configs = [("10.0.0.1/24", 1), ("10.0.0.2/24", 2)].map(|(address, number)| {
        let mut config = host(&[address], number);
        config.tcp.path_mtu_search = false;
        config
    });
    let mut cable = Cable::new(Vec::from(configs));
    assert_eq!(suspected(&mut cable, |_| {}), 0);
}
