//! The sending half by itself, where a whole connection would take gibibytes.

use super::*;
use crate::config::TcpConfig;
use crate::counters::Counters;
use crate::tcp::Settings;
use crate::tcp::challenge::Challenges;
use crate::tcp::connection::{Context, SynReceived, Synchronized, WindowUpdate};
use crate::tcp::recv::window::WindowBudget;
use crate::wire::options::Options;
use crate::wire::tcp::Flags;
use std::vec;

/// What a host of `pages` lends its connections.
pub(super) fn context(pages: usize) -> Context {
    Context {
        now: Instant::from_millis(5),
        arrived: Instant::FAR_FUTURE,
        config: Settings::new(TcpConfig::default()),
        pool: PagePool::new(pages),
        budget: WindowBudget::new(1 << 30, 7),
        challenges: Challenges::new(100, 1),
        counters: Counters::default(),
        path_news: None,
    }
}

pub(super) fn synchronized() -> Synchronized {
    let mut cx = context(1);
    let options = crate::tcp::SocketOptions::new(&cx.config);
    let syn = SynReceived {
        iss: Seq(100),
        irs: Seq(500),
        peer_mss: 1000,
        mss: 1000,
        offer: 65_535,
        peer_scale: None,
        sack: false,
        ecn: false,
        stamp: None,
        stamp_offset: 0,
        attempts: 1,
        names: None,
    };
    let told = WindowUpdate { window: 65_535, seq: Seq(501), ack: Seq(101) };
    syn.synchronize(&mut cx, &options, told)
}

fn ack(ack: Seq) -> Segment<'static> {
    Segment {
        source_port: 1,
        destination_port: 2,
        seq: Seq(501),
        ack,
        flags: Flags::ACK,
        window: 65_535,
        urgent: 0,
        options: Options::default(),
        payload: &[],
    }
}

/// So many bytes more are written, and leave at once.
fn send_at(send: &mut SendHalf, len: usize, now: Instant, pool: &mut PagePool) {
    send.buffer.write(&vec![0; len], pool);
    send.nxt += len as u32;
    send.max = send.nxt;
    send.sent.on_sent(send.una, send.nxt, now);
}

#[test]
fn what_is_kept_of_a_loss_goes_once_it_is_behind() {
    let mut pool = PagePool::new(1000);
    let mut send = synchronized().send;
    let now = Instant::from_millis(9);
    send_at(&mut send, 10_000, now, &mut pool);
    assert!(send.recovery.is_none());
    for bytes in [0, 0, 0, 8000] {
        send.on_ack(
            Times { now, heard: now },
            &ack(send.una + bytes),
            Evidence::default(),
            true,
            &mut pool,
        );
    }
    assert_eq!(send.mode(), Mode::Fast);
    send.on_ack(Times { now, heard: now }, &ack(send.nxt), Evidence::default(), true, &mut pool);
    let point = send.nxt;
    assert!(send.misses_nothing() && send.recovery.is_some(), "duplicates may still come");
    assert!(Recovery::after(point, send.una).is_some(), "at rest, too");
    send_at(&mut send, 10, now, &mut pool);
    send.on_ack(Times { now, heard: now }, &ack(send.nxt), Evidence::default(), true, &mut pool);
    assert!(send.recovery.is_none() && Recovery::after(point, send.una).is_none());
}

#[test]
fn a_retransmission_is_dated_back_but_not_beyond_another() {
    let mut pool = PagePool::new(1000);
    let mut send = synchronized().send;
    let at = Instant::from_millis;
    send.detection = Detection::Rack;
    send.reordering.on_sample(40_000_000, at(50));
    send_at(&mut send, 10_000, at(100), &mut pool);
    assert_eq!(send.stamped_again(at(200)), at(200), "nothing is late");
    send.reordering.seen = true;
    assert_eq!(send.stamped_again(at(200)), at(190), "a quarter of the least round trip");
    send.recovery_mut();
    send.on_sent_again(send.una, send.una + 1000, at(200));
    send.reordering.widen();
    assert_eq!(send.stamped_again(at(201)), at(190), "no older than the one before");
    assert_eq!(send.stamped_again(at(220)), at(200));
    send.last_sent = at(230);
    send.recover_all();
    assert_eq!(send.stamped_again(at(231)), at(230), "no older than what has just left");
}

#[test]
fn a_burst_has_two_segments_also_when_they_are_larger_again() {
    let mut send = synchronized().send;
    let options = crate::tcp::SocketOptions {
        max_pacing_rate: core::num::NonZeroU64::new(1000),
        ..crate::tcp::SocketOptions::new(&TcpConfig::default())
    };
    send.set_pacing(Instant::ZERO, &options);
    for mss in [500, 1000] {
        send.on_path(mss, &TcpConfig::default());
        assert_eq!(send.pace().map(|pace| pace.burst_bytes), Some(2 * u32::from(mss)));
    }
}

#[test]
fn fast_retransmit_works_after_gibibytes_without_a_loss() {
    let mut pool = PagePool::new(1000);
    let mut send = synchronized().send;
    let now = Instant::from_millis(9);
    // 2.4 GiB pass, a MiB at a time, and nothing is lost.
    for _ in 0..2400 {
        let next = send.una + (1 << 20);
        (send.nxt, send.max) = (next, next);
        send.buffer.write(&[0; 1 << 20], &mut pool);
        send.sent.on_sent(send.una, next, now);
        send.on_ack(Times { now, heard: now }, &ack(next), Evidence::default(), true, &mut pool);
        assert_eq!(send.flight(), 0);
    }
    send_at(&mut send, 10_000, now, &mut pool);
    for count in 1..=3 {
        assert!(!(send.mode() != Mode::Open), "after {} duplicates", count - 1);
        send.on_ack(
            Times { now, heard: now },
            &ack(send.una),
            Evidence::default(),
            true,
            &mut pool,
        );
    }
    assert!((send.mode() != Mode::Open));
    assert!(send.small_end.at_or_after(send.una), "no old number seems ahead");
}

/// Segments of 1000 bytes leave together, 10 ms after the origin.
fn burst(segments: u32, pool: &mut PagePool) -> SendHalf {
    let mut send = synchronized().send;
    assert_eq!(send.mss, 1000);
    for _ in 0..segments {
        send.buffer.write(&[0; 1000], pool);
        send.nxt += 1000;
        send.sent.on_sent(send.una, send.nxt, Instant::from_millis(10));
    }
    send.max = send.nxt;
    send
}

/// The rate that its ACKs tell, each at so many ms and for so many segments.
fn rate_by(acks: &[(u64, u32)]) -> Option<u64> {
    rate_heard(acks, |at_ms| at_ms)
}

/// The rate, if the device got the ACKs then, and a turn takes them in at so many ms.
fn rate_heard(acks: &[(u64, u32)], turn: fn(u64) -> u64) -> Option<u64> {
    let mut pool = PagePool::new(1000);
    let mut send = burst(8, &mut pool);
    for &(at_ms, segments) in acks {
        let ack = ack(send.una + segments * 1000);
        let [now, heard] = [turn(at_ms), at_ms].map(Instant::from_millis);
        send.on_ack(Times { now, heard }, &ack, Evidence::default(), true, &mut pool);
    }
    send.pair.estimate()
}

#[test]
fn acks_of_one_turn_tell_the_rate_by_when_the_device_got_them() {
    let spaced = [(20, 2), (21, 2), (22, 2), (23, 2)];
    assert_eq!(rate_heard(&spaced, |_| 40), Some(2_000_000));
    let at_once = [(20, 2); 4];
    assert_eq!(rate_heard(&at_once, |_| 40), None, "no time lies between them");
    let set_back = [(23, 2), (22, 2), (21, 2), (20, 2)];
    assert_eq!(rate_heard(&set_back, |_| 40), None, "the device's clock was set back");
}

#[test]
fn a_bursts_last_ack_gives_no_rate_where_it_may_be_delayed() {
    // Three are needed, and the first of a burst has none before it.
    assert_eq!(rate_by(&[(20, 2), (21, 2), (22, 2)]), None);
    assert_eq!(rate_by(&[(20, 2), (21, 2), (22, 2), (23, 2)]), Some(2_000_000));
    assert_eq!(rate_by(&[(20, 3), (21, 2), (22, 2), (122, 1)]), None, "it waited for another");
    assert_eq!(
        rate_by(&[(20, 1), (21, 1), (22, 1), (23, 1)]),
        Some(1_000_000),
        "more are on the way"
    );
}

#[test]
fn an_ack_that_fills_a_hole_tells_no_rate() {
    let spaced = [(20, 2), (21, 2), (22, 2), (23, 2)];
    assert_eq!(rate_by(&spaced), Some(2_000_000));
    let duplicates = [(23, 0); 3];
    let behind: std::vec::Vec<_> = [&spaced[..3], &duplicates, &spaced[3..]].concat();
    assert_eq!(rate_by(&behind), None);
}

/// Since when the timeout counts that is set 30 ms after the origin, if a segment left after 10 ms
/// and so many after 20.
fn restarted_after(change: impl FnOnce(&mut SendHalf), segments: usize, rto_ms: u64) -> Instant {
    let mut pool = PagePool::new(1000);
    let mut send = synchronized().send;
    send_at(&mut send, 1000, Instant::from_millis(10), &mut pool);
    send_at(&mut send, segments * 1000, Instant::from_millis(20), &mut pool);
    change(&mut send);
    let config = Settings::new(TcpConfig::default());
    send.timeout_from(Instant::from_millis(30), rto_ms * 1_000_000, &config)
}

#[test]
fn with_three_segments_out_the_timeout_counts_from_the_oldest() {
    let at = Instant::from_millis;
    assert_eq!(restarted_after(|_| (), 2, 200), at(10));
    assert_eq!(restarted_after(|_| (), 3, 200), at(30), "four are out");
    assert_eq!(restarted_after(|_| (), 2, 20), at(30), "it would be over");
    assert_eq!(restarted_after(|_| (), 2, 21), at(10));
    let queue = |send: &mut SendHalf| send.nxt = send.nxt - 1000;
    assert_eq!(restarted_after(queue, 3, 200), at(30), "three are out, and one is queued");
    let miss = |send: &mut SendHalf| _ = send.recovery_mut();
    assert_eq!(restarted_after(miss, 2, 200), at(30), "something is missing");
}

#[test]
fn by_count_the_timeout_counts_from_the_ack() {
    let mut tcp = TcpConfig::default();
    tcp.congestion.detection = crate::config::LossDetection::Count;
    let mut pool = PagePool::new(1000);
    let mut send = synchronized().send;
    send_at(&mut send, 1000, Instant::from_millis(10), &mut pool);
    let now = Instant::from_millis(30);
    assert_eq!(send.timeout_from(now, 1 << 30, &Settings::new(tcp)), now);
}

/// A sender that finds losses by time, and has sent all it had at `now`.
fn with_a_tail(now: Instant) -> SendHalf {
    let mut send = synchronized().send;
    send.detection = Detection::Rack;
    send_at(&mut send, 4000, now, &mut PagePool::new(1000));
    (send.silent_since, send.last_sent) = (now, now);
    send
}

#[test]
fn no_tail_is_probed_for_before_a_sample() {
    let config = Settings::new(TcpConfig::default());
    let now = Instant::from_millis(40);
    let mut send = with_a_tail(now);
    assert_eq!(send.pending(&config), None, "the timeout is a second, as the probe would be");
    send.rtt.on_sample(Instant::ZERO, now, 4);
    assert_eq!(send.pending(&config), Some((Pending::Tail, Instant::from_millis(40 + 80))));
}

#[test]
fn a_tail_on_a_short_path_is_given_longer_than_acks_are_delayed() {
    let config = Settings::new(TcpConfig::default());
    let mut send = with_a_tail(Instant::from_millis(9));
    send.rtt.on_sample(Instant::ZERO, Instant::from_millis(1), 4);
    assert_eq!(send.pending(&config), Some((Pending::Tail, Instant::from_millis(9 + 60))));
}
