use super::*;
use crate::buffer::PagePool;
use crate::tcp::congestion::{Congestion, Sent};
use crate::tcp::send::tests::synchronized;
use std::vec;

const NOW: Instant = Instant::from_millis(7);

/// A full window of that many packets. The first is a probe. No round trip was measured.
fn probing(packets: u32) -> SendHalf {
    let mut send = synchronized().send;
    send.on_path(500, &TcpConfig::default());
    send.congestion = Congestion::of_reno(packets * 500, packets * 500);
    send.on_path_probe_sent(send.una, send.una + 600, 640);
    send
}

fn wait(send: &SendHalf) -> Duration {
    send.narrow().unwrap().not_before.since(NOW)
}

#[test]
fn the_next_probe_waits_a_round_trip_for_each_packet() {
    for (packets, lost, by_timeout) in [(1, 1, 5), (7, 7, 35), (100, 100, 500)] {
        let mut send = probing(packets);
        send.suspect_probe(NOW, Mode::Fast);
        assert_eq!(wait(&send), Duration::from_secs(lost));
        assert_eq!(send.take_probed(), Some(Probed { size: 640, arrived: false }));
        let mut send = probing(packets);
        send.suspect_probe(NOW, Mode::Timeout);
        assert_eq!(wait(&send), Duration::from_secs(by_timeout));
    }
}

#[test]
fn no_probe_waits_for_longer_than_ten_minutes() {
    let mut send = probing(1_000_000);
    send.suspect_probe(NOW, Mode::Timeout);
    assert_eq!(wait(&send), LONGEST_WAIT);
}

#[test]
fn a_probe_sent_again_in_part_is_forgotten_and_no_other() {
    let edge = |start: u32, end: u32| {
        let mut send = probing(10);
        let una = send.una;
        send.forget_probe_in(una + start, una + end);
        send.probe().is_some()
    };
    assert!(edge(600, 700) && !edge(599, 700) && !edge(0, 1));
}

#[test]
fn a_wider_path_leaves_the_window_as_it_is_in_bytes() {
    let mut send = probing(10);
    send.on_path(1000, &TcpConfig::default());
    assert_eq!((send.mss, send.congestion.window()), (1000, 5000));
}

#[test]
fn a_loss_elsewhere_is_not_the_probes() {
    let mut send = probing(10);
    send.una = send.una - 1;
    send.suspect_probe(NOW, Mode::Fast);
    send.suspect_probe(NOW, Mode::Timeout);
    assert_eq!((wait(&send), send.take_probed()), (Duration::ZERO, None));
}

/// A path of 500 bytes to a peer that takes 1000, of no connection that has sent anything.
fn narrow() -> SendHalf {
    let mut send = synchronized().send;
    send.on_path(500, &TcpConfig::default());
    send
}

#[test]
fn a_path_as_wide_as_segments_are_is_not_narrow() {
    let mut send = synchronized().send;
    send.on_path(1000, &TcpConfig::default());
    assert!(send.narrow().is_none());
    assert_eq!(send.mss, 1000);
}

#[test]
fn the_initial_window_is_of_the_segments_that_the_path_takes() {
    let window = |window: u32, is_used: bool| {
        let mut send = synchronized().send;
        send.mss = 9000;
        send.congestion = Congestion::of_reno(window, u32::MAX);
        if is_used {
            let (una, nxt) = (send.una, send.una + 1);
            send.congestion.on_sent(Sent { now: NOW, una, nxt, was_idle: true });
        }
        send.on_path(1460, &TcpConfig::default());
        send.congestion.window()
    };
    assert_eq!(window(18_000, false), 14_600, "ten segments, though they are small");
    assert_eq!(window(9000, false), 1460, "one, after a loss in the handshake");
    assert_eq!(window(18_000, true), 2920, "as many as before");
}

#[test]
fn what_is_out_is_sent_again_in_smaller_segments_once() {
    let mode = |flight: u32, before: Mode| {
        let mut send = synchronized().send;
        send.nxt += flight;
        if before != Mode::Open {
            let (una, nxt) = (send.una, send.nxt);
            send.recovery_mut().enter(before, una, nxt);
        }
        send.on_path(500, &TcpConfig::default());
        send.mode()
    };
    assert_eq!((mode(0, Mode::Open), mode(1, Mode::Open)), (Mode::Open, Mode::Fast));
    assert_eq!(mode(1, Mode::Timeout), Mode::Timeout);
}

#[test]
fn a_probe_is_larger_than_segments_and_within_the_peers_mss() {
    let mut pool = PagePool::new(1000);
    let mut send = narrow();
    send.buffer.write(&vec![0; 10_000], &mut pool);
    let probe = |wanted| send.path_probe(NOW, wanted, 12, 488);
    assert_eq!((probe(500), probe(501)), (None, Some(489)));
    assert_eq!((probe(1000), probe(1001)), (Some(988), None));
}

/// A probe of 988 bytes is followed by three segments of 488.
#[test]
fn a_probe_leaves_only_where_three_segments_follow_it() {
    const NEEDED: u32 = 988 + 3 * 488;
    let may = |queued: u32, window: u32, change: fn(&mut SendHalf)| {
        let mut pool = PagePool::new(1000);
        let mut send = narrow();
        send.buffer.write(&vec![0; queued as usize], &mut pool);
        send.window = window;
        change(&mut send);
        send.path_probe(NOW, 1000, 12, 488) == Some(988)
    };
    let (wide, same): (_, fn(&mut SendHalf)) = (65_535, |_| {});
    assert!(may(NEEDED, wide, same) && !may(NEEDED - 1, wide, same));
    assert!(may(NEEDED + 1, NEEDED, same) && !may(NEEDED + 1, NEEDED - 1, same));
    let sent: fn(&mut SendHalf) = |send| send.nxt += 1;
    assert!(may(NEEDED + 1, NEEDED + 1, sent), "beside what is out");
    assert!(!may(NEEDED, wide, sent) && !may(wide, NEEDED, sent));
    assert!(!may(wide, wide, |send| {
        send.recovery_mut();
    }));
    assert!(!may(wide, wide, |send| send.set_urgent(send.una + 1)));
}

#[test]
fn the_next_probe_leaves_once_the_wait_is_over_and_none_is_out() {
    let mut pool = PagePool::new(1000);
    let mut send = probing(10);
    send.buffer.write(&vec![0; 10_000], &mut pool);
    let at = |send: &SendHalf, now| send.path_probe(now, 1000, 0, 500).is_some();
    let later = NOW + LONGEST_WAIT;
    assert!(!at(&send, later), "one is out");
    send.suspect_probe(NOW, Mode::Fast);
    assert!(!at(&send, later), "nobody has taken note");
    send.take_probed();
    let due = NOW + Duration::from_secs(10);
    assert!(at(&send, due) && !at(&send, due - Duration::from_nanos(1)));
}

#[test]
fn a_probe_has_arrived_once_all_of_it_is_acknowledged() {
    let mut send = probing(10);
    send.una += 599;
    assert_eq!(send.take_probed(), None);
    send.una += 1;
    let arrived = Some(Probed { size: 640, arrived: true });
    assert_eq!((send.take_probed(), send.take_probed()), (arrived, None));
    let mut lost = probing(10);
    lost.suspect_probe(NOW, Mode::Fast);
    lost.una += 600;
    assert_eq!(lost.take_probed(), Some(Probed { size: 640, arrived: false }));
}

/// The probe, a segment as large, and one more.
#[test]
fn a_path_is_to_blame_only_if_the_probe_alone_is_lost() {
    let blames = |lost: &[(u32, u32)]| {
        let mut send = probing(10);
        let una = send.una;
        for (ms, end) in [(1, 600), (2, 1200), (3, 1600)] {
            send.sent.on_sent(una, una + end, Instant::from_millis(ms));
        }
        for (from, to) in lost {
            send.sent.lose(una, (una + *from, una + *to), una);
        }
        (send.blames_path(NOW), send.take_probed().is_some())
    };
    assert_eq!(blames(&[(0, 600)]), (true, true));
    for others in [&[][..], &[(0, 1200)], &[(0, 600), (1200, 1600)], &[(600, 1200)]] {
        assert_eq!(blames(others), (false, false), "{others:?}");
    }
}

#[test]
fn the_first_segment_out_has_no_more_than_is_out() {
    let first = |flight: u32| {
        let mut send = narrow();
        send.nxt += flight;
        send.first_payload()
    };
    assert_eq!([0, 300, 500, 501].map(first), [0, 300, 500, 500]);
}
