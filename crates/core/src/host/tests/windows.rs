//! Send and receive windows: zero windows, silly windows, Nagle, cork, and the bounds of a turn.

use super::pair::{Pair, Side, config};
use super::peer::{A, F, Peer, S, Say, plain};
use crate::config::{AckDelay, Config};
use crate::error::Error;
use crate::rng::Rng;
use crate::tcp::{SocketOptions, State};
use crate::time::Duration;
use std::string::ToString;
use std::vec::Vec;

fn set(peer: &mut Peer, change: impl FnOnce(&mut SocketOptions)) {
    let (id, now) = (peer.id(), peer.now);
    let mut options = peer.host.options(id).unwrap();
    change(&mut options);
    peer.host.set_options(now, id, options).unwrap();
}

// ---- the sender

#[test]
fn a_closed_window_is_probed_with_a_byte_and_back_off_for_ever() {
    let mut peer = Peer::established(plain());
    peer.say(Say::new(A, 1, 1).window(0));
    peer.write(3000);
    assert!(peer.hear().is_empty());
    let started = peer.now;
    let mut seconds = Vec::new();
    for _ in 0..9 {
        let probe = peer.wait_for_one();
        assert_eq!((probe.seq, probe.len), (1, 1), "one byte at SND.NXT");
        seconds.push(probe.at.since(started).as_secs());
        peer.say(Say::new(A, 1, 1).window(0));
        assert!(peer.hear().is_empty());
    }
    assert_eq!(seconds, [1, 3, 7, 15, 31, 63, 123, 183, 243]);
    assert_eq!(peer.state(), State::Established, "a peer that answers is alive");
    peer.say(Say::new(A, 1, 1).window(5000));
    let lens: Vec<usize> = peer.hear().iter().map(|heard| heard.len).collect();
    assert_eq!(lens, [1000, 1000, 1000]);
}

#[test]
fn a_probe_that_is_accepted_moves_on() {
    let mut peer = Peer::established(plain());
    peer.say(Say::new(A, 1, 1).window(0));
    peer.write(10);
    peer.wait(Duration::from_secs(1));
    peer.say(Say::new(A, 1, 2).window(9));
    assert_eq!(peer.hear_text(), ["P 2:11(9) ack 1"]);
}

#[test]
fn a_silent_peer_behind_a_closed_window_is_given_up() {
    let mut peer = Peer::established(plain());
    peer.say(Say::new(A, 1, 1).window(0));
    peer.write(10);
    let heard = peer.wait(Duration::from_secs(400));
    assert!(heard.len() > 5, "{}", heard.len());
    assert_eq!(peer.state(), State::Closed);
    let id = peer.id();
    assert_eq!(peer.host.take_error(id), Some(Error::TimedOut));
}

#[test]
fn an_answering_peer_stays_though_probes_lie_past_patience() {
    let mut peer = Peer::established(plain());
    set(&mut peer, |options| options.user_timeout = Duration::from_secs(3));
    peer.say(Say::new(A, 1, 1).window(0));
    peer.write(10);
    assert!(peer.hear().is_empty());
    for seconds in [1, 2, 4, 8] {
        let asked = peer.now;
        assert_eq!(peer.wait_for_one().at.since(asked).as_secs(), seconds);
        peer.say(Say::new(A, 1, 1).window(0));
        assert!(peer.hear().is_empty());
    }
    peer.wait(Duration::from_secs(16 + 2));
    assert_eq!(peer.state(), State::Established);
    peer.wait(Duration::from_secs(1));
    assert_eq!(peer.state(), State::Closed, "three seconds after the probe without an answer");
}

#[test]
fn fin_waits_for_a_closed_window_and_probes_it() {
    let mut peer = Peer::established(plain());
    peer.say(Say::new(A, 1, 1).window(0));
    let (id, now) = (peer.id(), peer.now);
    peer.host.shutdown_write(now, id).unwrap();
    assert!(peer.hear().is_empty());
    let probe = peer.wait(Duration::from_secs(1)).remove(0);
    assert_eq!((probe.flags, probe.seq), (F | A, 1));
    assert!(peer.exchange(Say::new(A, 1, 2).window(0)).is_empty());
    assert_eq!(peer.state(), State::FinWait2);
}

#[test]
fn the_sender_avoids_silly_windows() {
    let mut peer = Peer::established(plain());
    peer.say(Say::new(A, 1, 1).window(999));
    peer.write(3000);
    // The largest window was 60 000: 999 bytes are neither a segment, nor half of it, nor all.
    assert!(peer.hear().is_empty());
    let heard = peer.wait(Duration::from_millis(200));
    assert_eq!(heard.len(), 1);
    assert_eq!(heard[0].len, 999, "the override timer sends what fits");
    peer.say(Say::new(A, 1, 1000).window(1000));
    assert_eq!(peer.hear_one().len, 1000, "a full segment fits");
}

#[test]
fn half_of_the_largest_window_is_no_silly_one() {
    for (window, leaves) in [(449, false), (450, true)] {
        let mut peer = Peer::listening(plain());
        peer.say(Say::new(S, 0, 0).mss(1000).window(900));
        peer.hear();
        peer.say(Say::new(A, 1, 1).window(900));
        peer.accept();
        peer.say(Say::new(A, 1, 1).window(window));
        peer.write(3000);
        let lens: Vec<usize> = peer.hear().iter().map(|heard| heard.len).collect();
        assert_eq!(lens, if leaves { [usize::from(window)].to_vec() } else { Vec::new() });
    }
}

#[test]
fn after_a_probe_the_override_sends_what_fits() {
    let mut peer = Peer::established(plain());
    peer.say(Say::new(A, 1, 1).window(0));
    peer.write(3000);
    peer.wait(Duration::from_secs(1));
    // It takes no byte of the probe, and opens its window by less than is worth a segment.
    peer.say(Say::new(A, 1, 1).window(999));
    assert!(peer.hear().is_empty());
    let heard = peer.wait(Duration::from_millis(200));
    assert_eq!((heard.len(), heard[0].seq, heard[0].len), (1, 1, 999));
}

#[test]
fn a_shrunk_window_stops_new_data_only() {
    let mut peer = Peer::established(plain());
    peer.write(5000);
    assert_eq!(peer.hear().len(), 5);
    peer.say(Say::new(A, 1, 1).window(1000));
    peer.write(1000);
    assert!(peer.hear().is_empty());
    let again = peer.wait(Duration::from_secs(1)).remove(0);
    assert_eq!((again.seq, again.len), (1, 1000), "what was sent is sent again");
}

#[test]
fn an_old_number_with_a_new_ack_brings_its_window_along() {
    let mut peer = Peer::established(plain());
    peer.say(Say::new(A, 1, 1).window(2000));
    peer.write(5000);
    assert_eq!(peer.hear().len(), 2);
    // The peer's first ten bytes are lost; the next ten come with the window of then.
    peer.say(Say::new(A, 11, 1).window(2000).data(&[0; 10]));
    peer.hear();
    // The lost ones again: an old number, but the newest word on the window, whose edge stays.
    peer.say(Say::new(A, 1, 1001).window(1000).data(&[0; 10]));
    assert!(peer.hear().iter().all(|heard| heard.len == 0), "nothing fits before 2001");
    peer.say(Say::new(A, 21, 1001).window(2000));
    assert_eq!(peer.hear_one().len, 1000);
}

#[test]
fn nagle_holds_a_second_small_segment_until_the_first_is_acked() {
    let mut peer = Peer::established(plain());
    peer.write(10);
    assert_eq!(peer.hear_one().len, 10);
    peer.write(10);
    peer.write(10);
    assert!(peer.hear().is_empty());
    peer.write(990);
    assert_eq!(peer.hear_one().len, 1000, "a full segment need not wait");
    peer.say(Say::new(A, 1, 11));
    assert_eq!(peer.hear_one().len, 10);
    set(&mut peer, |options| options.nodelay = true);
    peer.write(5);
    assert_eq!(peer.hear_one().len, 5);
}

#[test]
fn nagle_lets_the_last_segment_go_with_fin() {
    let mut peer = Peer::established(plain());
    peer.write(10);
    peer.hear_one();
    peer.write(10);
    let (id, now) = (peer.id(), peer.now);
    peer.host.shutdown_write(now, id).unwrap();
    assert_eq!(peer.hear_text(), ["FP 11:21(10) ack 1"]);
}

/// Where a large segment is cut: by the device, or by the host.
fn cut_by_device(device: bool) -> Config {
    let mut config = plain();
    config.device.checksum = device;
    config.device.segmentation = if device { 65_535 } else { 0 };
    config
}

/// The bytes that the host sends now, from the first sequence number on.
fn sent(peer: &mut Peer) -> Option<(u32, usize)> {
    let heard = peer.hear();
    heard.first().map(|first| (first.seq, heard.iter().map(|each| each.len).sum()))
}

#[test]
fn nagle_holds_the_tail_of_a_write_cut_by_us_or_the_device() {
    for device in [false, true] {
        let mut peer = Peer::established(cut_by_device(device));
        peer.write(10);
        assert_eq!(sent(&mut peer), Some((1, 10)));
        peer.write(3100);
        assert_eq!(sent(&mut peer), Some((11, 3000)), "{device}");
        // What is short is acknowledged: nothing short is in flight any more.
        peer.say(Say::new(A, 1, 11));
        assert_eq!(sent(&mut peer), Some((3011, 100)), "{device}");
    }
}

#[test]
fn a_writes_short_tail_leaves_while_nothing_short_is_in_flight() {
    for device in [false, true] {
        let mut peer = Peer::established(cut_by_device(device));
        peer.write(3000);
        assert_eq!(sent(&mut peer), Some((1, 3000)));
        peer.write(3100);
        assert_eq!(sent(&mut peer), Some((3001, 3100)), "{device}");
        peer.write(2100);
        assert_eq!(sent(&mut peer), Some((6101, 2000)), "its tail was short");
    }
}

#[test]
fn nagle_is_off_for_a_tail_as_for_any_short_segment() {
    for device in [false, true] {
        let mut peer = Peer::established(cut_by_device(device));
        set(&mut peer, |options| options.nodelay = true);
        peer.write(10);
        assert_eq!(sent(&mut peer), Some((1, 10)));
        peer.write(3100);
        assert_eq!(sent(&mut peer), Some((11, 3100)), "{device}");
    }
}

#[test]
fn cork_holds_the_tail_of_a_write_cut_by_us_or_the_device() {
    for device in [false, true] {
        let mut peer = Peer::established(cut_by_device(device));
        set(&mut peer, |options| options.cork = true);
        peer.write(3100);
        assert_eq!(sent(&mut peer), Some((1, 3000)), "{device}");
        peer.say(Say::new(A, 1, 3001));
        assert_eq!(sent(&mut peer), None);
        set(&mut peer, |options| options.cork = false);
        assert_eq!(sent(&mut peer), Some((3001, 100)), "{device}");
    }
}

#[test]
fn cork_holds_all_but_full_segments_for_200_ms() {
    let mut peer = Peer::established(plain());
    set(&mut peer, |options| options.cork = true);
    peer.write(1010);
    assert_eq!(peer.hear_one().len, 1000);
    peer.say(Say::new(A, 1, 1001));
    assert!(peer.wait(Duration::from_millis(199)).is_empty());
    assert_eq!(peer.wait(Duration::from_millis(1))[0].len, 10);
    peer.say(Say::new(A, 1, 1011));
    peer.write(10);
    assert!(peer.hear().is_empty());
    set(&mut peer, |options| options.cork = false);
    assert_eq!(peer.hear_one().len, 10);
}

// ---- the receiver

#[test]
fn the_receiver_closes_its_window_drops_the_rest_and_reopens() {
    let mut config = plain();
    config.tcp.buffers.receive = 4000;
    config.tcp.buffers.receive_max = 4000;
    let mut peer = Peer::established(config);
    for i in 0..4 {
        peer.say(Say::new(A, 1 + 1000 * i, 1).data(&[7; 1000]));
    }
    let ack = peer.hear_one();
    assert_eq!((ack.ack, ack.window), (4001, 0));
    peer.say(Say::new(A, 4001, 1).data(b"x"));
    let ack = peer.hear_one();
    assert_eq!((ack.ack, ack.window), (4001, 0), "a probe is answered and not taken");
    assert_eq!(peer.read(1459).unwrap().len(), 1459);
    assert!(peer.hear().is_empty(), "less than our MSS would be a silly window");
    assert_eq!(peer.read(1).unwrap().len(), 1);
    let update = peer.hear_one();
    assert_eq!((update.ack, update.window), (4001, 1460));
}

#[test]
fn a_segment_partly_beyond_the_window_is_cut() {
    let mut config = plain();
    config.tcp.buffers.receive = 2000;
    config.tcp.buffers.receive_max = 2000;
    let mut peer = Peer::established(config);
    peer.say(Say::new(A | F, 1, 1).data(&[7; 2500]));
    assert_eq!(peer.hear_one().ack, 2001);
    assert_eq!(peer.read(5000).unwrap().len(), 2000);
    assert_eq!(peer.state(), State::Established, "the FIN was beyond it too");
}

#[test]
fn acks_are_delayed_unless_every_second_segment() {
    let mut peer = Peer::established(plain());
    peer.say(Say::new(A, 1, 1).data(&[1; 1000]));
    assert!(peer.hear().is_empty());
    let asked = peer.now;
    let late = peer.wait(Duration::from_millis(151));
    assert_eq!((late.len(), late[0].ack), (1, 1001));
    assert!(late[0].at.since(asked) >= Duration::from_millis(50));
    peer.say(Say::new(A, 1001, 1).data(&[1; 1000]));
    peer.say(Say::new(A, 2001, 1).data(&[1; 1000]));
    assert_eq!(peer.hear_one().ack, 3001);
}

/// ACKs that cover a single segment of a steady one-way stream of `segments`, one every 2 to 12 ms:
/// each was sent only because a tick came between a segment and the next.
fn needless_acks(ack_delay: AckDelay, period_ms: u64, segments: u32) -> usize {
    let mut config = plain();
    config.tcp.ack.delay = ack_delay;
    config.tcp.ack.timer = Duration::from_millis(period_ms);
    let mut peer = Peer::established(config);
    let mut rng = Rng::from_seed(1);
    let (mut acked, mut needless) = (1, 0);
    for number in 0..segments {
        peer.say(Say::new(A, 1 + 1000 * number, 1).data(&[1; 1000]));
        let gap = Duration::from_micros(2000 + u64::from(rng.below(10_000)));
        for heard in peer.wait(gap) {
            needless += usize::from(heard.ack - acked == 1000);
            acked = heard.ack;
        }
        peer.read(10_000).unwrap();
    }
    needless
}

#[test]
fn ticks_ack_needlessly_every_other_time_and_buckets_never() {
    let segments = 2000;
    let ticks = |period_ms| (u64::from(segments) * 7 / period_ms) as usize;
    for period_ms in [200, 100, 50] {
        let needless = needless_acks(AckDelay::Tick, period_ms, segments);
        let every_other = ticks(period_ms) / 2;
        assert!(needless.abs_diff(every_other) <= every_other / 3, "{period_ms} ms: {needless}");
    }
    assert_eq!(needless_acks(AckDelay::Timer, 100, segments), 0);
    assert_eq!(needless_acks(AckDelay::Buckets, 100, segments), 0);
}

#[test]
fn quick_acks_answer_the_first_segments_at_once() {
    let mut config = plain();
    config.tcp.ack.quick = 2;
    let mut peer = Peer::established(config);
    for i in 0..2 {
        peer.say(Say::new(A, 1 + 1000 * i, 1).data(&[1; 1000]));
        assert_eq!(peer.hear().len(), 1);
    }
    peer.say(Say::new(A, 2001, 1).data(&[1; 1000]));
    assert!(peer.hear().is_empty(), "the third is delayed");
}

#[test]
fn every_segment_out_of_order_gets_its_duplicate_ack() {
    let mut peer = Peer::established(plain());
    for i in 1..4 {
        peer.say(Say::new(A, 1 + 1000 * i, 1).data(&[1; 1000]));
    }
    assert_eq!(peer.hear_text(), [". 1:1(0) ack 1"; 3]);
    peer.say(Say::new(A, 1, 1).data(&[1; 1000]));
    assert_eq!(peer.hear_text(), [". 1:1(0) ack 4001"], "the hole is filled");
}

#[test]
fn what_fills_a_hole_in_the_same_batch_leaves_one_ack() {
    let mut peer = Peer::established(plain());
    peer.say(Say::new(A, 1001, 1).data(&[1; 1000]));
    peer.say(Say::new(A, 2001, 1).data(&[1; 1000]));
    peer.say(Say::new(A, 1, 1).data(&[1; 1000]));
    assert_eq!(peer.hear_text(), [". 1:1(0) ack 3001"]);
}

#[test]
fn a_fin_out_of_order_waits_for_what_comes_before() {
    let mut peer = Peer::established(plain());
    peer.say(Say::new(A | F, 1001, 1).data(&[2; 500]));
    peer.hear();
    assert_eq!(peer.state(), State::Established);
    peer.say(Say::new(A, 1, 1).data(&[1; 1000]));
    assert_eq!(peer.hear_one().ack, 1502);
    assert_eq!(peer.state(), State::CloseWait);
    assert_eq!(peer.read(9000).unwrap().len(), 1500);
}

#[test]
fn what_is_held_beyond_a_fin_does_not_count() {
    let mut peer = Peer::established(plain());
    peer.exchange(Say::new(A, 11, 1).data(&[3; 10]));
    peer.exchange(Say::new(A | F, 6, 1).data(&[2; 5]));
    assert_eq!(peer.exchange(Say::new(A, 1, 1).data(&[1; 5])), [". 1:1(0) ack 12"]);
    assert_eq!(peer.state(), State::CloseWait);
    let mut read = [0; 20];
    let (now, id) = (peer.now, peer.id());
    assert_eq!(peer.host.read(now, id, &mut read), Ok(10));
    assert_eq!(read[..10], [1, 1, 1, 1, 1, 2, 2, 2, 2, 2]);
    assert_eq!(peer.host.read(now, id, &mut read), Ok(0));
}

#[test]
fn overlapping_segments_keep_the_bytes_that_came_first_in_order() {
    let mut peer = Peer::established(plain());
    peer.say(Say::new(A, 1, 1).data(b"abcdef"));
    peer.say(Say::new(A, 4, 1).data(b"XXXghi"));
    peer.say(Say::new(A, 1, 1).data(b"YYYYYYYYYjkl"));
    assert_eq!(peer.read(99).unwrap(), b"abcdefghijkl");
}

#[test]
fn when_the_page_pool_is_empty_data_is_dropped_and_comes_again() {
    let mut config = plain();
    config.limits.pages = 1;
    let mut peer = Peer::established(config);
    peer.say(Say::new(A, 1, 1).data(&[1; 1000]));
    peer.say(Say::new(A, 1001, 1).data(&[1; 4000]));
    assert_eq!(peer.hear_one().ack, 1001);
    assert_eq!(peer.host.counters().receive_pool_empty, 1);
    assert_eq!(peer.read(2000).unwrap().len(), 1000);
    peer.say(Say::new(A, 1001, 1).data(&[1; 3000]));
    peer.wait(Duration::from_millis(40));
    assert_eq!(peer.read(9000).unwrap().len(), 3000);
}

// ---- urgent data

#[test]
fn urgent_data_stays_in_line_and_its_mark_is_told() {
    let mut peer = Peer::established(plain());
    peer.say(Say::new(A, 1, 1).data(b"abcdef").urgent(3));
    let id = peer.id();
    assert_eq!(peer.host.urgent_mark(id), Some(3));
    assert!(peer.host.readiness(peer.now, id).contains(crate::Readiness::URGENT));
    assert_eq!(peer.read(2).unwrap(), b"ab");
    assert_eq!(peer.host.urgent_mark(id), Some(1));
    assert_eq!(peer.read(9).unwrap(), b"cdef");
    assert_eq!(peer.host.urgent_mark(id), None);
    let now = peer.now;
    peer.host.write_urgent(now, id, b"stop").unwrap();
    let heard = peer.hear_one();
    assert_eq!((heard.urgent, super::peer::text(&heard)), (4, "PU 1:5(4) ack 7".to_string()));
}

// ---- the bounds of a turn

#[test]
fn a_huge_window_update_floods_no_outbox_and_starves_nobody() {
    let mut server = config("10.0.0.2");
    server.limits.frames_per_turn = 8;
    server.tcp.congestion.initial_window = 1000;
    let mut pair = Pair::with(config("10.0.0.1"), server);
    let (listener, _, first) = pair.connected();
    let (_, second) = pair.connect(listener);
    let now = pair.now;
    pair.server.write(now, first, &std::vec![1; 500_000]).unwrap();
    pair.server.write(now, second, b"small").unwrap();
    let mut outbox = crate::Outbox::new(32);
    pair.server.emit(now, &mut outbox);
    assert_eq!(outbox.len(), 9, "eight frames of the first, one of the second");
    assert!(pair.server.wants_emit(), "the first comes again");
    pair.server.emit(now, &mut outbox);
    pair.server.emit(now, &mut outbox);
    pair.server.emit(now, &mut outbox);
    assert_eq!(outbox.len(), 32, "the outbox is full");
    pair.server.emit(now, &mut outbox);
    assert_eq!(outbox.len(), 32);
}

#[test]
fn the_window_grows_with_what_the_application_reads() {
    let mut pair = Pair::new();
    let (_, client, server) = pair.connected();
    let before = pair.client.receive_window_promised();
    pair.delay = Duration::from_millis(50);
    pair.transfer((Side::Server, server), (Side::Client, client), 4_000_000);
    let after = pair.client.receive_window_promised();
    assert!(before == 65_536 && after > 500_000, "{before} {after}");
}

#[test]
fn syn_options_follow_the_configuration() {
    let mut configured = plain();
    configured.tcp.window_scaling = true;
    configured.tcp.sack = true;
    configured.tcp.timestamps = true;
    configured.tcp.buffers.receive_max = 1 << 20;
    let (_, syn) = Peer::opening(configured.clone());
    assert_eq!(syn.options.mss, Some(1460));
    assert_eq!(syn.options.window_scale, Some(5));
    assert!(syn.options.sack_permitted && syn.options.timestamps.is_some());
    let (_, syn) = Peer::opening(plain());
    assert_eq!(syn.options.window_scale, None);
    assert!(!syn.options.sack_permitted && syn.options.timestamps.is_none());
    // A SYN, ACK offers only what the SYN did.
    let mut peer = Peer::listening(configured);
    peer.say(Say::new(S, 0, 0).mss(1000).sack_permitted());
    let syn_ack = peer.hear_one();
    assert!(syn_ack.options.sack_permitted);
    assert_eq!((syn_ack.options.window_scale, syn_ack.options.timestamps), (None, None));
}

#[test]
fn data_in_order_takes_scarce_pages_from_data_out_of_order() {
    let mut config = plain();
    config.limits.pages = 8;
    let mut peer = Peer::established(config);
    // One byte in each page: the last quarter of the pool is not for these.
    for page in 3..12 {
        peer.say(Say::new(A, 1 + 4096 * page, 1).data(b"x"));
    }
    assert_eq!(peer.host.pages_in_use(), 7);
    peer.say(Say::new(A, 1, 1).data(&[1; 12_000]));
    assert!(peer.hear().last().unwrap().ack == 12_001);
    assert_eq!(peer.host.pages_in_use(), 3);
    assert_eq!(peer.read(20_000).unwrap().len(), 12_000);
    assert_eq!(peer.host.pages_in_use(), 0);
}
