//! Opening, transferring and closing.

use core::net::SocketAddr;

use super::pair::{CLIENT, Pair, SERVER, Side, config};
use crate::error::Error;
use crate::tcp::State;
use crate::time::Duration;
use crate::wire::tcp::Flags;

#[test]
fn a_connection_opens_carries_data_both_ways_and_closes() {
    let mut pair = Pair::new();
    let (_, client, server) = pair.connected();
    assert_eq!(pair.client.state(client), State::Established);
    assert_eq!(pair.server.state(server), State::Established);
    pair.transfer((Side::Client, client), (Side::Server, server), 100_000);
    pair.transfer((Side::Server, server), (Side::Client, client), 1_000_000);
    pair.close(Side::Server, server, Duration::from_millis(100));
    assert_eq!(pair.client.read(pair.now, client, &mut [0; 10]), Ok(0));
    assert_eq!(pair.client.state(client), State::CloseWait);
    pair.close(Side::Client, client, Duration::from_secs(1));
    assert_eq!((pair.client.connections(), pair.server.connections()), (0, 0));
    assert_eq!((pair.client.time_wait_len(), pair.server.time_wait_len()), (0, 1));
    assert_eq!((pair.client.pages_in_use(), pair.server.pages_in_use()), (0, 0));
    assert_eq!(pair.client.receive_window_promised(), 0);
    pair.run_for(Duration::from_secs(60));
    assert_eq!(pair.server.time_wait_len(), 0);
}

#[test]
fn response_ack_and_fin_leave_in_one_frame() {
    let mut pair = Pair::new();
    let (_, client, server) = pair.connected();
    let now = pair.now;
    pair.client.write(now, client, &[1; 100]).unwrap();
    let mark = pair.log.len();
    // The request arrives, and the application answers and closes before the host speaks.
    pair.turn();
    pair.now = now + pair.delay;
    let now = pair.now;
    let mut request = [0; 200];
    let frames: std::vec::Vec<_> =
        pair.log[mark..].iter().map(|(_, _, bytes)| bytes.clone()).collect();
    for bytes in frames {
        pair.server.on_frame(now, crate::RxFrame::plain(&bytes));
    }
    assert_eq!(pair.server.read(now, server, &mut request), Ok(100));
    pair.server.write(now, server, &[2; 500]).unwrap();
    pair.server.close(now, server);
    let mark = pair.log.len();
    pair.turn();
    assert_eq!(pair.lines(mark)[0], "Server FP. 500", "{:?}", pair.lines(mark));
    assert_eq!(pair.lines(mark).len(), 1);
}

#[test]
fn nobody_listening_refuses() {
    let mut pair = Pair::new();
    let any = "0.0.0.0:0".parse().unwrap();
    let now = pair.now;
    let client = pair.client.connect(now, any, "10.0.0.2:81".parse().unwrap()).unwrap();
    pair.run_for(Duration::from_millis(50));
    assert_eq!(pair.client.take_error(client), Some(Error::ConnectionRefused));
}

/// Both directions lose `percent` of the packets, by a fixed sequence.
fn lossy(pair: &mut Pair, percent: u32, seed: u64) {
    let mut rng = crate::rng::Rng::from_seed(seed);
    pair.filter = Some(alloc::boxed::Box::new(move |_, _| rng.below(100) >= percent));
}

#[test]
fn everything_arrives_under_loss_with_sack_and_without() {
    for sack in [true, false] {
        for percent in [1, 5, 20] {
            let mut configs = [super::pair::config("10.0.0.1"), super::pair::config("10.0.0.2")];
            configs[1].tcp.sack = sack;
            let [client, server] = configs;
            let mut pair = Pair::with(client, server);
            let (_, client, server) = pair.connected();
            lossy(&mut pair, percent, 7 + u64::from(percent));
            let took = pair.transfer((Side::Server, server), (Side::Client, client), 2_000_000);
            let timeouts = pair.server.info(server).unwrap().timeouts;
            std::eprintln!("sack {sack} loss {percent}%: {took:?}, {timeouts} timeouts");
        }
    }
}

#[test]
fn a_connection_to_itself_ends_though_its_tuple_is_reused() {
    let mut pair = Pair::new();
    let here = SocketAddr::new(super::pair::CLIENT.parse().unwrap(), 80);
    pair.client.listen(here, 4).unwrap();
    let first = pair.client.connect(pair.now, here, here).unwrap();
    pair.run_for(Duration::ZERO);
    assert_eq!(pair.client.state(first), State::Established);
    // The reset of the first meets the SYN of the second; the SYN then meets the listener.
    pair.client.abort(pair.now, first);
    let second = pair.client.connect(pair.now, here, here).unwrap();
    pair.run_for(Duration::from_secs(10));
    assert_eq!(pair.client.take_error(second), Some(Error::ConnectionRefused));
    assert_eq!(pair.client.half_open(), 0);
    assert!(pair.client.counters().segments_out < 10);
}

/// Both ends have opened, asked, answered and closed.
fn conversation(timestamps: bool, syn_cache: usize) -> Pair {
    let with = |address| {
        let mut config = config(address);
        (config.tcp.timestamps, config.limits.syn_cache) = (timestamps, syn_cache);
        config
    };
    let mut pair = Pair::with(with(CLIENT), with(SERVER));
    let (_, client, server) = pair.connected();
    pair.transfer((Side::Client, client), (Side::Server, server), 100);
    pair.transfer((Side::Server, server), (Side::Client, client), 50_000);
    pair.close(Side::Server, server, Duration::from_secs(1));
    pair.close(Side::Client, client, Duration::from_secs(1));
    pair
}

#[test]
fn each_segment_is_counted_once_at_either_end() {
    for (timestamps, syn_cache) in [(true, 16), (false, 16), (true, 0), (false, 0)] {
        let pair = conversation(timestamps, syn_cache);
        let (client, server) = (pair.client.counters(), pair.server.counters());
        assert_eq!(client.segments_in, server.segments_out, "{timestamps} {syn_cache}");
        assert_eq!(server.segments_in, client.segments_out, "{timestamps} {syn_cache}");
        assert_eq!(client.segments_in, client.frames_in, "{timestamps} {syn_cache}");
        assert_eq!(server.segments_in, server.frames_in, "{timestamps} {syn_cache}");
    }
}

#[test]
fn each_segment_of_a_simultaneous_open_is_counted_once() {
    // Where one SYN is lost, the other end's ACK completes it, else both ends' SYN, ACK.
    for is_one_lost in [false, true] {
        let mut pair = Pair::new();
        pair.filter = Some(alloc::boxed::Box::new(move |from, segment| {
            !(is_one_lost && from == Side::Client && segment.flags == Flags::SYN)
        }));
        let ends = [CLIENT, SERVER].map(|address| SocketAddr::new(address.parse().unwrap(), 80));
        let client = pair.client.connect(pair.now, ends[0], ends[1]).unwrap();
        let server = pair.server.connect(pair.now, ends[1], ends[0]).unwrap();
        pair.run_for(Duration::from_millis(100));
        assert_eq!(pair.client.state(client), State::Established);
        assert_eq!(pair.server.state(server), State::Established);
        let (client, server) = (pair.client.counters(), pair.server.counters());
        assert_eq!(client.segments_in, server.segments_out, "{is_one_lost}");
        let lost = u64::from(is_one_lost);
        assert_eq!(server.segments_in, client.segments_out - lost, "{is_one_lost}");
    }
}
