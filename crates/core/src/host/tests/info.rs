//! What a connection tells of itself.

use alloc::boxed::Box;

use super::ecn;
use super::pair::{Pair, Side};
use super::peer::{A, F, Peer, S, Say, plain};
use super::requirements::errors::{complain, quoted};
use crate::config::{Algorithm, LossDetection};
use crate::event::ConnectionId;
use crate::frame::RxFrame;
use crate::host::Host;
use crate::tcp::connection::{Shape, Synchronized};
use crate::tcp::{Account, ConnectionInfo, SocketOptions, State};
use crate::time::{Duration, Instant};
use crate::wire::icmpv4::Message;
use crate::wire::tcp::Flags;

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// A peer of SACK, with a round trip of 100 ms behind it.
fn with_sack() -> Peer {
    let mut config = plain();
    config.tcp.sack = true;
    let mut peer = Peer::established_with(config, |syn| syn.mss(1000).sack_permitted());
    write_and_answer(&mut peer, 4000, 4001);
    peer
}

/// So many bytes leave, and are acknowledged 100 ms later.
fn write_and_answer(peer: &mut Peer, len: usize, ack: u32) {
    peer.write(len);
    peer.hear();
    peer.wait(ms(100));
    peer.say(Say::new(A, 1, ack));
    peer.hear();
}

fn info(peer: &Peer) -> ConnectionInfo {
    peer.host.info(peer.id()).unwrap()
}

#[test]
fn bytes_are_counted_both_ways() {
    let mut pair = Pair::new();
    let (_, client, server) = pair.connected();
    pair.transfer((Side::Server, server), (Side::Client, client), 300_000);
    pair.transfer((Side::Client, client), (Side::Server, server), 50_000);
    pair.run_for(ms(500));
    let [client_info, server_info] =
        [pair.client.info(client).unwrap(), pair.server.info(server).unwrap()];
    let bytes = |info: ConnectionInfo| {
        (info.acknowledged_bytes, info.sent_bytes, info.retransmitted_bytes, info.received_bytes)
    };
    assert_eq!(bytes(client_info), (50_000, 50_000, 0, 300_000));
    assert_eq!(bytes(server_info), (300_000, 300_000, 0, 50_000));
    // A FIN has a number and is no byte, whichever end sends it.
    pair.close(Side::Server, server, ms(100));
    let info = pair.client.info(client).unwrap();
    assert_eq!((info.state, bytes(info)), (State::CloseWait, bytes(client_info)));
}

#[test]
fn what_was_not_read_is_told_after_the_end_too() {
    let mut peer = Peer::established(plain());
    peer.say(Say::new(A, 1, 1).data(&[7; 100]));
    assert_eq!(info(&peer).receive_buffered_bytes, 100);
    peer.say(Say::new(Flags::RST, 101, 1));
    assert_eq!((info(&peer).state, info(&peer).receive_buffered_bytes), (State::Closed, 100));
}

#[test]
fn the_least_round_trip_is_known_of_lone_segments_too() {
    let mut peer = Peer::established(plain());
    for (ms, seq) in [(80, 701), (60, 1401), (90, 2101)] {
        peer.write(700);
        peer.hear();
        peer.wait(Duration::from_millis(ms));
        peer.say(Say::new(A, 1, seq));
    }
    assert_eq!((info(&peer).min_rtt, info(&peer).latest_rtt), (ms(60), ms(90)));
}

#[test]
fn a_fin_that_is_acknowledged_is_no_byte() {
    let mut peer = Peer::established(plain());
    peer.write(700);
    let (id, now) = (peer.id(), peer.now);
    peer.host.shutdown_write(now, id).unwrap();
    peer.hear();
    assert_eq!((info(&peer).sent_bytes, info(&peer).acknowledged_bytes), (700, 0));
    peer.say(Say::new(A, 1, 702));
    assert_eq!(info(&peer).state, State::FinWait2);
    assert_eq!((info(&peer).sent_bytes, info(&peer).acknowledged_bytes), (700, 700));
}

#[test]
fn what_is_sent_again_counts_each_time() {
    let mut peer = Peer::established(plain());
    peer.write(700);
    peer.hear();
    peer.wait(Duration::from_secs(4));
    let now = info(&peer);
    assert_eq!((now.retransmits, now.timeouts, now.retransmitted_bytes), (2, 2, 1400));
    assert_eq!((now.sent_bytes, now.acknowledged_bytes), (2100, 0));
}

#[test]
fn counts_outlast_a_rest() {
    let mut pair = Pair::new();
    let (_, client, server) = pair.connected();
    let mut left = 2;
    // The first segment with text is lost, and so is its probe.
    pair.filter = Some(Box::new(move |_, segment| {
        let is_lost = !segment.payload.is_empty() && left > 0;
        left -= u32::from(is_lost);
        !is_lost
    }));
    pair.transfer((Side::Client, client), (Side::Server, server), 700);
    pair.transfer((Side::Client, client), (Side::Server, server), 300);
    pair.transfer((Side::Server, server), (Side::Client, client), 50);
    pair.run_for(Duration::from_secs(10));
    assert_eq!((pair.client.counters().rested, pair.server.counters().rested), (1, 1));
    let now = pair.client.info(client).unwrap();
    assert_eq!((now.min_rtt, now.reordering_window), (ms(10), ms(10) / 4));
    assert_eq!((now.sent_bytes, now.acknowledged_bytes, now.received_bytes), (2400, 1000, 50));
    assert_eq!((now.retransmits, now.timeouts, now.retransmitted_bytes), (2, 1, 1400));
    let now = pair.server.info(server).unwrap();
    assert_eq!((now.sent_bytes, now.acknowledged_bytes, now.received_bytes), (50, 50, 1000));
}

fn synchronized(host: &mut Host, id: ConnectionId) -> &mut Synchronized {
    match &mut host.slots.get_mut(id.index).unwrap().connection_mut().shape {
        Shape::Synchronized(s) => s,
        _ => panic!("it is established"),
    }
}

#[test]
fn more_than_4_gib_are_counted_also_at_rest() {
    let mut pair = Pair::new();
    let (_, client, server) = pair.connected();
    let passed = &mut synchronized(&mut pair.client, client).passed;
    (passed.acknowledged, passed.received) = (9 << 30, (5 << 30) + 2);
    pair.transfer((Side::Client, client), (Side::Server, server), 300);
    pair.run_for(Duration::from_secs(10));
    assert_eq!(pair.client.counters().rested, 1);
    let now = pair.client.info(client).unwrap();
    assert_eq!((now.acknowledged_bytes, now.received_bytes), ((9 << 30) + 300, (5 << 30) + 2));
    assert_eq!(now.sent_bytes, (9 << 30) + 300);
}

#[test]
fn round_trips_and_the_reordering_window() {
    let mut peer = with_sack();
    let now = info(&peer);
    assert_eq!((now.min_rtt, now.srtt, now.latest_rtt), (ms(100), ms(100), ms(100)));
    assert_eq!((now.reordering_window, now.has_reordered), (ms(25), false));
    peer.write(4000);
    peer.hear();
    peer.wait(ms(100));
    let say = Say::new(A, 1, 4001).sack(&peer, 5001, 6001);
    peer.say(say);
    peer.say(Say::new(A, 1, 6001));
    let now = info(&peer);
    assert_eq!((now.reordering_window, now.has_reordered), (ms(25), true));
    let by_count = Peer::established(plain());
    assert_eq!(info(&by_count).reordering_window, Duration::ZERO, "without SACK");
}

#[test]
fn reorderings_are_counted_and_the_longest_is_kept() {
    let mut peer = with_sack();
    let reordered = |peer: &Peer| {
        let now = info(peer);
        (now.has_reordered, now.reorderings, now.overtaken_bytes)
    };
    peer.write(4000);
    peer.hear();
    peer.wait(ms(100));
    assert_eq!(reordered(&peer), (false, 0, 0));
    // Two segments overtake the first, and one of them the second.
    for (from, to) in [(6001, 7001), (5001, 7001)] {
        let say = Say::new(A, 1, 4001).sack(&peer, from, to);
        peer.say(say);
    }
    assert_eq!(reordered(&peer), (true, 1, 1000));
    peer.say(Say::new(A, 1, 7001));
    assert_eq!(reordered(&peer), (true, 2, 2000));
    peer.say(Say::new(A, 1, 8001));
    assert_eq!(reordered(&peer), (true, 2, 2000), "in order");
}

#[test]
fn reordering_shows_where_losses_are_counted_too() {
    let mut config = plain();
    (config.tcp.sack, config.tcp.congestion.detection) = (true, LossDetection::Count);
    let mut peer = Peer::established_with(config, |syn| syn.mss(1000).sack_permitted());
    write_and_answer(&mut peer, 4000, 4001);
    peer.write(4000);
    peer.hear();
    let say = Say::new(A, 1, 4001).sack(&peer, 5001, 6001);
    peer.say(say);
    peer.say(Say::new(A, 1, 6001));
    let now = info(&peer);
    assert_eq!((now.has_reordered, now.reorderings, now.overtaken_bytes), (true, 1, 1000));
}

#[test]
fn duplicates_and_what_was_not_needed() {
    let mut peer = with_sack();
    peer.write(4000);
    peer.hear();
    peer.wait(ms(100));
    let say = Say::new(A, 1, 4001).sack(&peer, 5001, 8001);
    peer.say(say);
    assert_eq!(peer.hear().len(), 1);
    peer.wait(ms(10));
    peer.say(Say::new(A, 1, 8001));
    peer.wait(ms(90));
    let say = Say::new(A, 1, 8001).sack(&peer, 4001, 5001);
    peer.say(say);
    let now = info(&peer);
    assert_eq!((now.duplicate_sacks, now.recoveries_undone), (1, 1));
    assert_eq!((now.has_reordered, now.reorderings, now.overtaken_bytes), (true, 1, 0));
    assert_eq!((now.retransmits, now.retransmitted_bytes), (1, 1000));
}

#[test]
fn segments_out_of_order_are_counted() {
    let mut peer = Peer::established(plain());
    peer.say(Say::new(A, 101, 1).data(&[1; 100]));
    peer.say(Say::new(A, 201, 1).data(&[1; 100]));
    assert_eq!((info(&peer).out_of_order, info(&peer).received_bytes), (2, 0));
    peer.say(Say::new(A, 1, 1).data(&[1; 100]));
    assert_eq!((info(&peer).out_of_order, info(&peer).received_bytes), (2, 300));
}

#[test]
fn the_last_times_of_both_directions() {
    let mut peer = with_sack();
    let heard: Instant = peer.now;
    peer.wait(ms(40));
    peer.write(100);
    peer.hear();
    let sent = peer.now;
    peer.wait(ms(7));
    assert_eq!((info(&peer).last_sent, info(&peer).last_heard), (sent, heard));
}

#[test]
fn the_receive_buffer_and_the_round_trip_it_is_sized_by() {
    let mut peer = with_sack();
    let now = info(&peer);
    assert!(now.receive_limit_bytes >= now.receive_window_bytes, "{now:?}");
    assert_eq!(now.receiver_rtt, Duration::ZERO, "nothing has come");
    peer.say(Say::new(A, 1, 4001).data(&[1; 100]));
    assert_eq!(info(&peer).receiver_rtt, ms(100));
}

/// A peer of a connection that counts from its establishment on, with an account that is empty.
fn accounted() -> Peer {
    let mut peer = Peer::established(plain());
    set_accounting(&mut peer, true);
    peer
}

fn set_accounting(peer: &mut Peer, accounting: bool) {
    let (now, id) = (peer.now, peer.id());
    let options = peer.host.options(id).unwrap();
    peer.host.set_options(now, id, SocketOptions { accounting, ..options }).unwrap();
}

fn account(peer: &Peer) -> Account {
    peer.host.account(peer.now, peer.id()).expect("it counts")
}

/// In, in with data, out, out with data.
fn segments(account: &Account) -> [u64; 4] {
    let Account { segments_in, data_segments_in, segments_out, data_segments_out, .. } = account;
    [*segments_in, *data_segments_in, *segments_out, *data_segments_out]
}

/// Busy, limited by the window, limited by the buffer.
fn times(account: &Account) -> [Duration; 3] {
    [account.busy, account.window_limited, account.buffer_limited]
}

#[test]
fn segments_are_counted_where_the_socket_asks_for_that() {
    let mut peer = Peer::established(plain());
    assert_eq!(peer.host.account(peer.now, peer.id()), None);
    set_accounting(&mut peer, true);
    assert_eq!(segments(&account(&peer)), [0; 4]);
    peer.write(2500);
    peer.hear();
    assert_eq!(segments(&account(&peer)), [0, 0, 3, 3]);
    peer.say(Say::new(A, 1, 2001));
    peer.hear();
    assert_eq!(segments(&account(&peer)), [1, 0, 3, 3]);
    peer.wait(ms(1500));
    assert!(segments(&account(&peer))[3] > 3, "again");
    peer.say(Say::new(A, 1, 2501));
    let [_, _, _, sent] = segments(&account(&peer));
    peer.say(Say::new(A, 1, 2501).data(&[1; 100]));
    peer.wait(ms(500));
    assert_eq!(segments(&account(&peer)), [3, 1, sent + 1, sent], "an ACK");
    peer.say(Say::new(A | F, 101, 2501));
    let (now, id) = (peer.now, peer.id());
    peer.host.shutdown_write(now, id).unwrap();
    peer.hear();
    assert_eq!(segments(&account(&peer)), [4, 1, sent + 2, sent], "a FIN is no data");
    set_accounting(&mut peer, false);
    assert_eq!(peer.host.account(now, id), None);
}

#[test]
fn an_account_begins_with_our_syn() {
    let mut peer = Peer::new(plain());
    let (local, remote) = peer.ends();
    let (now, options) = (peer.now, peer.host.default_options());
    let options = SocketOptions { accounting: true, ..options };
    peer.id = Some(peer.host.connect_with(now, local, remote, options).unwrap());
    peer.hear();
    peer.wait_for_one();
    assert_eq!(peer.host.account(peer.now, peer.id()), None, "not before it is open");
    peer.say(Say::new(S | A, 0, 1).mss(1000));
    peer.hear();
    assert_eq!(segments(&account(&peer)), [1, 0, 3, 0], "two SYNs and an ACK");
    assert_eq!(delivered(&peer), [1, 0], "one of the SYNs");
}

#[test]
fn an_account_of_a_listener_begins_with_the_last_ack() {
    let mut peer = Peer::listening(plain());
    let listener = peer.listener.unwrap();
    let options = SocketOptions { accounting: true, ..peer.host.default_options() };
    peer.host.set_listener_options(listener, options).unwrap();
    peer.say(Say::new(S, 0, 0).mss(1000));
    peer.hear();
    peer.say(Say::new(A, 1, 1));
    peer.accept();
    assert_eq!(segments(&account(&peer)), [1, 0, 0, 0]);
    assert_eq!(delivered(&peer), [1, 0], "our SYN");
}

/// Delivered, and reported with ECE.
fn delivered(peer: &Peer) -> [u64; 2] {
    let account = account(peer);
    [account.segments_delivered, account.segments_delivered_marked]
}

#[test]
fn segments_that_arrived_are_counted_once_each() {
    let mut peer = accounted();
    peer.write(2500);
    peer.hear();
    peer.say(Say::new(A, 1, 2001));
    assert_eq!(delivered(&peer), [2, 0]);
    peer.say(Say::new(A, 1, 2001));
    peer.wait(ms(1500));
    assert!(segments(&account(&peer))[3] > 3, "again");
    peer.say(Say::new(A, 1, 2501));
    assert_eq!(delivered(&peer), [3, 0]);
}

#[test]
fn what_is_held_out_of_order_counts_as_delivered() {
    let mut peer = with_sack();
    set_accounting(&mut peer, true);
    peer.write(10_000);
    peer.hear();
    peer.wait(ms(100));
    let sacks = Say::new(A, 1, 4001).sack(&peer, 8001, 14_001);
    peer.say(sacks);
    assert_eq!((delivered(&peer), rate(&peer)), ([6, 0], Some((60_000, true))));
    peer.hear();
    peer.wait(ms(100));
    peer.say(Say::new(A, 1, 14_001));
    assert_eq!(delivered(&peer), [10, 0]);
}

#[test]
fn what_arrived_by_a_congested_path_is_counted_apart() {
    let mut peer = ecn::agreed();
    set_accounting(&mut peer, true);
    peer.write(5000);
    peer.hear();
    for (flags, ack, expected) in [
        (Flags::ECE, 2001, [2, 2]),
        (Flags::ECE, 2001, [2, 2]),
        (Flags::default(), 4001, [4, 2]),
        (Flags::ECE, 5001, [5, 3]),
    ] {
        peer.say(Say::new(A | flags, 1, ack));
        assert_eq!(delivered(&peer), expected);
    }
}

/// Bytes a second at which the path has delivered, and whether the application was the limit.
fn rate(peer: &Peer) -> Option<(u64, bool)> {
    info(peer).delivery.map(|told| (told.bytes_per_second, told.is_app_limited))
}

fn by(algorithm: Algorithm) -> Peer {
    let mut config = plain();
    config.tcp.congestion.algorithm = algorithm;
    Peer::established(config)
}

#[test]
fn the_rate_of_delivery_is_sampled_by_every_algorithm() {
    for algorithm in [Algorithm::Reno, Algorithm::Cubic, Algorithm::Dctcp, Algorithm::Bbr] {
        let mut peer = by(algorithm);
        write_and_answer(&mut peer, 10_000, 10_001);
        let model = (algorithm == Algorithm::Bbr).then_some((100_000, false));
        assert_eq!(rate(&peer), model, "{algorithm:?} without an account");
        set_accounting(&mut peer, true);
        write_and_answer(&mut peer, 10_000, 20_001);
        assert_eq!(rate(&peer), Some((100_000, true)), "{algorithm:?}");
    }
}

/// What is in flight is acknowledged after 100 ms. Returns how much that was.
fn answer_all(peer: &mut Peer) -> u64 {
    peer.hear();
    let ConnectionInfo { in_flight_bytes, acknowledged_bytes, .. } = info(peer);
    peer.wait(ms(100));
    peer.say(Say::new(A, 1, 1 + acknowledged_bytes as u32 + in_flight_bytes));
    in_flight_bytes.into()
}

#[test]
fn a_rate_says_whether_the_application_was_its_limit() {
    let mut peer = by(Algorithm::Reno);
    set_accounting(&mut peer, true);
    write_and_answer(&mut peer, 6000, 6001);
    assert_eq!(rate(&peer), Some((60_000, true)), "it had no more");
    write_and_answer(&mut peer, 1000, 7001);
    assert_eq!(rate(&peer), Some((60_000, true)), "less says nothing of the path");
    peer.write(50_000);
    let [first, second] = [(); 2].map(|()| answer_all(&mut peer));
    assert!(second > first && info(&peer).unsent_bytes > 0);
    assert_eq!(rate(&peer), Some((10 * second, false)), "the window was the limit");
}

#[test]
fn a_rate_outlasts_a_change_of_the_algorithm() {
    let mut peer = by(Algorithm::Cubic);
    set_accounting(&mut peer, true);
    write_and_answer(&mut peer, 10_000, 10_001);
    let (now, id) = (peer.now, peer.id());
    for (congestion, ack) in [(Algorithm::Bbr, 11_001), (Algorithm::Reno, 12_001)] {
        let options = peer.host.options(id).unwrap();
        peer.host.set_options(now, id, SocketOptions { congestion, ..options }).unwrap();
        write_and_answer(&mut peer, 1000, ack);
        assert_eq!(rate(&peer), Some((100_000, true)), "{congestion:?}");
    }
    set_accounting(&mut peer, false);
    assert_eq!(rate(&peer), None);
}

#[test]
fn the_path_mtu_is_the_one_that_was_found() {
    let mut peer = Peer::established_with(plain(), |syn| syn.mss(1460));
    assert_eq!(info(&peer).path_mtu_bytes, 1500, "the device's");
    peer.write(1460);
    peer.hear();
    let quoted = quoted(&peer, 1, 1500);
    complain(&mut peer, &Message::Unreachable { code: 4, next_hop_mtu: 770, quoted: &quoted });
    assert_eq!(info(&peer).path_mtu_bytes, 770);
    peer.say(Say::new(A, 1, 1461));
    peer.wait(Duration::from_secs(601));
    assert_eq!(info(&peer).path_mtu_bytes, 1500, "tried again after ten minutes");
}

#[test]
fn what_the_device_joined_is_counted_apart() {
    let mut peer = accounted();
    let bytes = peer.packet(Say::new(A, 1, 1).data(&[1; 2500]));
    let now = peer.now;
    peer.host.on_frame(now, RxFrame { segment_size: 1000, ..RxFrame::plain(&bytes) });
    assert_eq!(segments(&account(&peer))[..2], [3, 3]);
    assert_eq!(info(&peer).received_bytes, 2500);
}

#[test]
fn what_holds_the_sender_back_is_timed() {
    let mut peer = accounted();
    peer.wait(ms(5));
    assert_eq!(times(&account(&peer)), [ms(0); 3]);
    peer.write(3000);
    peer.say(Say::new(A, 1, 1).window(2000));
    peer.hear();
    peer.wait(ms(10));
    assert_eq!(times(&account(&peer)), [ms(10), ms(10), ms(0)], "also before it has passed");
    peer.say(Say::new(A, 1, 2001).window(5000));
    peer.hear();
    peer.wait(ms(7));
    assert_eq!(times(&account(&peer)), [ms(17), ms(10), ms(0)]);
    peer.say(Say::new(A, 1, 3001));
    peer.wait(ms(100));
    assert_eq!(times(&account(&peer)), [ms(17), ms(10), ms(0)], "it has nothing to send");
}

#[test]
fn a_buffer_that_is_too_small_is_timed() {
    let mut config = plain();
    config.tcp.buffers.send = 2000;
    let mut peer = Peer::established(config);
    set_accounting(&mut peer, true);
    assert_eq!(peer.write(3000), 2000);
    peer.hear();
    peer.wait(ms(10));
    assert_eq!(times(&account(&peer)), [ms(10), ms(0), ms(10)]);
    peer.say(Say::new(A, 1, 2001));
    assert_eq!(peer.write(1000), 1000);
    peer.hear();
    peer.wait(ms(10));
    assert_eq!(times(&account(&peer)), [ms(20), ms(0), ms(10)], "all of it was taken");
}

#[test]
fn the_time_of_the_last_data() {
    let mut peer = accounted();
    let began = peer.now;
    peer.wait(ms(5));
    peer.say(Say::new(A, 101, 1).data(&[1; 100]));
    assert_eq!(account(&peer).last_received, began, "out of order");
    peer.say(Say::new(A, 1, 1).data(&[1; 100]));
    assert_eq!(account(&peer).last_received, peer.now);
}

#[test]
fn an_account_outlasts_a_rest() {
    let mut pair = Pair::new();
    let (_, client, server) = pair.connected();
    let options = pair.client.options(client).unwrap();
    let options = SocketOptions { accounting: true, ..options };
    pair.client.set_options(pair.now, client, options).unwrap();
    pair.transfer((Side::Client, client), (Side::Server, server), 300);
    pair.run_for(ms(500));
    let rate = pair.client.info(client).unwrap().delivery;
    assert!(rate.is_some_and(|rate| rate.bytes_per_second > 0), "{rate:?}");
    pair.run_for(Duration::from_secs(10));
    assert_eq!(pair.client.counters().rested, 1);
    let account = pair.client.account(pair.now, client).unwrap();
    assert_eq!((segments(&account)[2], account.segments_delivered), (1, 1));
    assert_eq!(pair.client.info(client).unwrap().delivery, rate);
}
