//! Data that the send buffer shares whole.

use alloc::vec::Vec;
use bytes::Bytes;

use super::pair::{CLIENT, Pair, SERVER, config, pattern};
use crate::buffer::{LARGE_BYTES, PAGE_BYTES};
use crate::config::{PageSize, SendSize};
use crate::event::ConnectionId;
use crate::tcp::SocketOptions;
use crate::time::Duration;

/// A connection whose server has so many pages, of that size, and a send buffer of five pages: the
/// client's name and the server's.
fn connected(pages: usize, page: PageSize) -> (Pair, ConnectionId, ConnectionId) {
    let mut server = config(SERVER);
    (server.limits.pages, server.limits.page) = (pages, page);
    let mut pair = Pair::with(config(CLIENT), server);
    let (_, client, server) = pair.connected();
    let send_size = SendSize::Fixed(5 * PAGE_BYTES as u32);
    let options = SocketOptions { send_size, ..pair.server.default_options() };
    pair.server.set_options(pair.now, server, options).unwrap();
    (pair, client, server)
}

fn data(bytes: usize) -> Bytes {
    (0..bytes).map(pattern).collect()
}

#[test]
fn data_is_adopted_whole_while_there_is_room_for_some() {
    let (mut pair, client, server) = connected(100, PageSize::Auto);
    let data = data(3 * LARGE_BYTES);
    let mut adopt = |from: usize| {
        let part = data.slice(from * LARGE_BYTES..(from + 1) * LARGE_BYTES);
        (pair.server.adopt(pair.now, server, &part), pair.server.pages_in_use())
    };
    assert_eq!([adopt(0), adopt(1), adopt(2)], [(true, 4), (true, 8), (false, 8)]);
    // What is written behind it is copied.
    let mut sent = 2 * LARGE_BYTES;
    let mut received = Vec::new();
    while received.len() < data.len() {
        sent += pair.server.write(pair.now, server, &data[sent..]).unwrap_or(0);
        pair.run_for(Duration::from_millis(20));
        let mut part = [0; 9000];
        while let Ok(taken) = pair.client.read(pair.now, client, &mut part) {
            received.extend_from_slice(&part[..taken]);
        }
    }
    assert!(received == data);
    pair.run_for(Duration::from_secs(1));
    assert_eq!(pair.server.pages_in_use(), 0, "all is acknowledged");
}

#[test]
fn only_long_data_is_adopted_and_only_with_pages_for_all() {
    for (pages, page, bytes, is_adopted) in [
        (100, PageSize::Auto, LARGE_BYTES, true),
        (100, PageSize::Auto, LARGE_BYTES - 1, false),
        (4, PageSize::Auto, LARGE_BYTES, true),
        (4, PageSize::Auto, LARGE_BYTES + 1, false),
        // The last eighth is not for those that hold pages, nor for a chunk that is the first.
        (64, PageSize::Auto, 56 * PAGE_BYTES, true),
        (64, PageSize::Auto, 56 * PAGE_BYTES + 1, false),
        (800, PageSize::Segment, LARGE_BYTES, false),
    ] {
        let (mut pair, _, server) = connected(pages, page);
        let adopted = pair.server.adopt(pair.now, server, &data(bytes));
        assert_eq!(adopted, is_adopted, "{bytes} bytes, {pages} pages");
        let held = if is_adopted { bytes / PAGE_BYTES } else { 0 };
        assert_eq!(pair.server.pages_in_use(), held, "nothing is charged otherwise");
    }
}

#[test]
fn a_writer_that_waits_in_line_is_not_overtaken() {
    let (mut pair, _, server) = connected(100, PageSize::Auto);
    let hold = |pair: &mut Pair, bytes| pair.server.set_memory_elsewhere(bytes);
    hold(&mut pair, 100 * PAGE_BYTES);
    assert!(pair.server.write(pair.now, server, &[7; 100]).is_err(), "it waits for pages");
    hold(&mut pair, 0);
    assert!(!pair.server.adopt(pair.now, server, &data(LARGE_BYTES)));
    pair.turn();
    assert_eq!(pair.server.write(pair.now, server, &[7; 100]), Ok(100), "it is its turn");
    assert!(pair.server.adopt(pair.now, server, &data(LARGE_BYTES)));
}

#[test]
fn nothing_is_adopted_after_the_end() {
    let (mut pair, _, server) = connected(100, PageSize::Auto);
    pair.server.shutdown_write(pair.now, server).unwrap();
    assert!(!pair.server.adopt(pair.now, server, &data(LARGE_BYTES)));
}
