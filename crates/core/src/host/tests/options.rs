//! Options of sockets and knobs of the host, each by what the peer sees of it.

use super::pair::config;
use super::peer::{A, Heard, Peer, R, S, Say, plain};
use crate::config::{Push, WindowProbe};
use crate::error::Error;
use crate::tcp::{SocketOptions, State};
use crate::time::Duration;
use crate::wire::options::Layout;
use crate::wire::tcp::Flags;
use std::string::ToString;
use std::vec::Vec;

/// An established connection of a listener whose options are changed.
fn accepted_with(change: impl Fn(&mut SocketOptions)) -> (Peer, Heard) {
    let mut peer = Peer::listening(config("10.0.0.2"));
    let mut options = peer.host.default_options();
    change(&mut options);
    peer.host.set_listener_options(peer.listener.unwrap(), options).unwrap();
    let mut syn = Say::new(S, 0, 0).mss(1460);
    syn.options.window_scale = Some(2);
    peer.say(syn);
    let syn_ack = peer.hear_one();
    peer.say(Say::new(A, 1, 1));
    peer.accept();
    (peer, syn_ack)
}

#[test]
fn a_receive_buffer_of_fixed_size_is_all_that_is_ever_offered() {
    let (mut peer, syn_ack) = accepted_with(|o| o.receive_buffer_bytes = Some(10_000));
    assert_eq!(syn_ack.window, 10_000);
    let mut seq = 1;
    for _ in 0..40 {
        peer.now = peer.now + Duration::from_millis(10);
        peer.say(Say::new(A, seq, 1).data(&[0; 5000]));
        seq += 5000;
        assert_eq!(peer.read(9000).unwrap().len(), 5000);
        peer.hear();
    }
    let id = peer.id();
    assert!(peer.host.info(id).unwrap().receive_window_bytes <= 10_000);
    // The twin: without the option the window follows what is read.
    let (mut peer, _) = accepted_with(|_| {});
    let first = peer.host.info(peer.id()).unwrap().receive_window_bytes;
    let mut seq = 1;
    for _ in 0..400 {
        peer.now = peer.now + Duration::from_millis(10);
        for _ in 0..10 {
            peer.say(Say::new(A, seq, 1).data(&[0; 5000]));
            seq += 5000;
        }
        while peer.read(50_000).is_ok_and(|data| !data.is_empty()) {}
        peer.hear();
    }
    assert!(peer.host.info(peer.id()).unwrap().receive_window_bytes > first);
}

#[test]
fn a_receive_buffer_changed_later_keeps_what_was_promised() {
    let mut peer = Peer::established(plain());
    let (id, now) = (peer.id(), peer.now);
    let offered = peer.host.info(id).unwrap().receive_window_bytes;
    let promised = peer.host.receive_window_promised();
    let options = peer.host.options(id).unwrap();
    let small = SocketOptions { receive_buffer_bytes: Some(1000), ..options };
    peer.host.set_options(now, id, small).unwrap();
    assert_eq!(peer.host.info(id).unwrap().receive_window_bytes, offered);
    assert_eq!(peer.host.receive_window_promised(), promised);
    let large = SocketOptions { receive_buffer_bytes: Some(offered + 5000), ..options };
    peer.host.set_options(now, id, large).unwrap();
    assert_eq!(peer.host.receive_window_promised(), promised + 5000);
    peer.host.abort(now, id);
    assert_eq!(peer.host.receive_window_promised(), 0);
}

#[test]
fn a_chosen_mss_is_announced_and_kept_to() {
    let (mut peer, syn_ack) = accepted_with(|o| o.mss_max = 700);
    assert_eq!(syn_ack.options.mss, Some(700));
    peer.write(2000);
    let lens: Vec<usize> = peer.hear().iter().map(|heard| heard.len).collect();
    assert_eq!(lens, [700, 700, 600]);
    let (_, syn_ack) = accepted_with(|o| o.mss_max = 9000);
    assert_eq!(syn_ack.options.mss, Some(1460), "no more than the device takes");
}

#[test]
fn an_active_open_has_its_options_from_the_syn_on() {
    let mut peer = Peer::new(config("10.0.0.2"));
    let options = SocketOptions {
        mss_max: 500,
        receive_buffer_bytes: Some(3000),
        ..peer.host.default_options()
    };
    let (local, remote) = ("10.0.0.2:80".parse().unwrap(), "10.0.0.1:4000".parse().unwrap());
    let now = peer.now;
    let id = peer.host.connect_with(now, local, remote, options).unwrap();
    let syn = peer.hear_one();
    assert_eq!((syn.options.mss, syn.window), (Some(500), 3000));
    assert_eq!(peer.host.options(id), Ok(options));
}

#[test]
fn the_shift_count_and_the_layout_of_the_syn_can_be_chosen() {
    let mut config = config("10.0.0.2");
    config.tcp.quirks.window_shift = Some(6);
    config.tcp.quirks.syn_layout = Layout::ScaleFirst;
    config.tcp.buffers.receive = 65_700;
    config.tcp.buffers.receive_max = 65_700;
    let (mut peer, syn) = Peer::opening(config);
    assert_eq!((syn.options.window_scale, syn.window), (Some(6), 65_535));
    let mut answer = Say::new(S | A, 0, 1).mss(1460);
    answer.options.window_scale = Some(2);
    peer.say(answer);
    assert_eq!(peer.hear_one().window, 1026, "65,700 bytes in units of 64");
}

#[test]
fn push_marks_the_buffers_end_and_by_choice_each_bulk_hand_over() {
    let pushed = |push, len, large| {
        let mut config = plain();
        config.tcp.quirks.push = push;
        config.device.checksum = large;
        config.device.segmentation = if large { 65_535 } else { 0 };
        let mut peer = Peer::established(config);
        peer.write(len);
        let heard = peer.hear();
        heard.iter().map(|h| (h.flags.contains(Flags::PSH), h.len)).collect::<Vec<_>>()
    };
    assert_eq!(pushed(Push::Emptied, 2000, false), [(false, 1000), (true, 1000)]);
    assert_eq!(pushed(Push::Emptied, 12_000, true), [(false, 10_000)], "ten segments to begin");
    assert_eq!(pushed(Push::Burst, 12_000, true), [(true, 10_000)]);
    assert_eq!(pushed(Push::Burst, 2000, false), [(false, 1000), (true, 1000)]);
    assert!(pushed(Push::Burst, 12_000, false).iter().all(|(pushed, _)| !pushed));
}

#[test]
fn a_closed_window_is_probed_with_nothing_by_choice() {
    let mut config = plain();
    config.tcp.quirks.window_probe = WindowProbe::Empty;
    let mut peer = Peer::established(config);
    peer.say(Say::new(A, 1, 1).window(0));
    peer.write(3000);
    assert!(peer.hear().is_empty());
    let mut seconds = Vec::new();
    let started = peer.now;
    for _ in 0..4 {
        let probe = peer.wait_for_one();
        assert_eq!((probe.seq, probe.len), (0, 0), "a number that was acknowledged already");
        seconds.push(probe.at.since(started).as_secs());
        assert!(peer.exchange(Say::new(A, 1, 1).window(0)).is_empty());
    }
    assert_eq!(seconds, [1, 3, 7, 15]);
    peer.say(Say::new(A, 1, 1).window(5000));
    assert_eq!(peer.hear().len(), 3);
}

#[test]
fn a_segment_without_its_timestamp_drops_unless_allowed() {
    for taken in [false, true] {
        let mut config = config("10.0.0.2");
        config.tcp.quirks.missing_timestamps = taken;
        let mut peer = Peer::established_with(config, |syn| syn.mss(1000).stamp(1, 0));
        peer.say(Say::new(A, 1, 1).data(b"bare"));
        assert_eq!(peer.read(10).is_ok(), taken);
        assert_eq!(peer.host.counters().timestamp_missing, 1);
    }
}

#[test]
fn quick_acks_can_be_asked_for_and_refused() {
    let mut peer = Peer::established(plain());
    let (id, now) = (peer.id(), peer.now);
    assert!(peer.exchange(Say::new(A, 1, 1).data(b"delayed")).is_empty());
    peer.host.set_quick_ack(now, id, true).unwrap();
    assert_eq!(peer.hear_text(), [". 1:1(0) ack 8"], "what is owed leaves at once");
    assert_eq!(peer.exchange(Say::new(A, 8, 1).data(b"x")), [". 1:1(0) ack 9"]);
    peer.host.set_quick_ack(now, id, false).unwrap();
    assert!(peer.exchange(Say::new(A, 9, 1).data(b"y")).is_empty());
}

#[test]
fn a_reset_in_the_window_is_challenged_unless_by_the_old_rule() {
    for insecure in [false, true] {
        let mut config = plain();
        config.tcp.quirks.insecure_rst = insecure;
        let mut peer = Peer::established(config);
        let answer = peer.exchange(Say::new(R, 500, 0));
        if insecure {
            assert_eq!((answer.len(), peer.state()), (0, State::Closed));
        } else {
            assert_eq!(answer, [". 1:1(0) ack 1"]);
            assert_eq!(peer.state(), State::Established);
        }
    }
}

#[test]
fn a_half_open_reset_in_the_window_works_by_the_old_rule_only() {
    for insecure in [false, true] {
        let mut config = plain();
        config.tcp.quirks.insecure_rst = insecure;
        let mut peer = Peer::listening(config.clone());
        peer.say(Say::new(S, 0, 0));
        peer.hear();
        assert_eq!(peer.exchange(Say::new(R, 500, 0)).len(), usize::from(!insecure));
        assert_eq!(peer.host.half_open(), usize::from(!insecure));
        // And after a simultaneous open.
        let (mut peer, _) = Peer::opening(config);
        peer.say(Say::new(S, 0, 0));
        assert_eq!(peer.hear_text(), ["S 0:0(0) ack 1"]);
        let answer = peer.exchange(Say::new(R, 500, 0));
        if insecure {
            assert_eq!((answer.len(), peer.state()), (0, State::Closed));
        } else {
            assert_eq!(answer, [". 1:1(0) ack 1"]);
        }
    }
}

#[test]
fn a_syn_in_the_window_is_challenged_unless_by_the_old_rule() {
    for insecure in [false, true] {
        let mut config = plain();
        config.tcp.quirks.insecure_syn = insecure;
        let mut peer = Peer::established(config);
        let answer = peer.exchange(Say::new(S, 500, 0));
        if insecure {
            assert_eq!(answer, ["R 1:1(0) ack 1"]);
            let id = peer.id();
            assert_eq!(peer.host.take_error(id), Some(Error::ConnectionReset));
        } else {
            assert_eq!(answer, [". 1:1(0) ack 1"]);
        }
    }
}

#[test]
fn every_socket_is_listed_with_its_state() {
    let mut peer = Peer::listening(plain());
    let listed = |peer: &Peer| -> Vec<_> {
        let ends = peer.host.sockets();
        ends.map(|it| (it.local().port(), it.remote().map(|remote| remote.to_string()), it.state()))
            .collect()
    };
    let remote = Some("10.0.0.1:4000".to_string());
    assert_eq!(listed(&peer), [(80, None, State::Listen)]);
    peer.say(Say::new(S, 0, 0));
    peer.hear();
    assert_eq!(listed(&peer)[1..], [(80, remote.clone(), State::SynReceived)]);
    peer.say(Say::new(A, 1, 1));
    peer.accept();
    assert_eq!(listed(&peer)[1..], [(80, remote.clone(), State::Established)]);
    let (id, now) = (peer.id(), peer.now);
    peer.host.close(now, id);
    peer.hear();
    assert_eq!(listed(&peer)[1..], [(80, remote.clone(), State::FinWait1)]);
    peer.say(Say::new(super::peer::F | A, 1, 2));
    peer.hear();
    assert_eq!(listed(&peer)[1..], [(80, remote, State::TimeWait)]);
}

#[test]
fn switching_nagle_off_releases_what_waits_even_under_a_cork() {
    let mut peer = Peer::established(plain());
    let (id, now) = (peer.id(), peer.now);
    let corked = SocketOptions { cork: true, ..peer.host.options(id).unwrap() };
    peer.host.set_options(now, id, corked).unwrap();
    peer.write(40);
    assert!(peer.hear().is_empty());
    let released = SocketOptions { nodelay: true, ..corked };
    peer.host.set_options(now, id, released).unwrap();
    assert_eq!(peer.hear_text(), ["P 1:41(40) ack 1"]);
    peer.write(40);
    assert!(peer.hear().is_empty(), "the cork is still in");
}

#[test]
fn a_fin_not_acknowledged_is_repeated_with_every_ack_by_choice() {
    for repeated in [false, true] {
        let mut config = plain();
        config.tcp.quirks.repeat_fin = repeated;
        let mut peer = Peer::established(config);
        let (id, now) = (peer.id(), peer.now);
        peer.host.shutdown_write(now, id).unwrap();
        assert_eq!(peer.hear_text(), ["F 1:1(0) ack 1"]);
        let answer = peer.exchange(Say::new(super::peer::F | A, 1, 1));
        assert_eq!(answer, [if repeated { "F 1:1(0) ack 2" } else { ". 2:2(0) ack 2" }]);
        peer.say(Say::new(A, 2, 2));
        assert_eq!((peer.hear().len(), peer.state()), (0, State::TimeWait));
    }
}

#[test]
fn text_past_the_window_is_refused_unless_the_buffer_counts() {
    for lenient in [false, true] {
        let mut config = plain();
        config.tcp.quirks.unannounced_window = lenient;
        config.tcp.buffers.receive = 65_700;
        config.tcp.buffers.receive_max = 65_700;
        let reset_at = |peer: &mut Peer, seq| peer.exchange(Say::new(R, seq, 0)).len();
        let mut peer = Peer::established(config);
        let edge = peer.host.info(peer.id()).unwrap().receive_window_bytes;
        assert_eq!(edge, 65_535, "the field has no more without scaling");
        assert_eq!(reset_at(&mut peer, edge), 1, "the last number announced is challenged");
        assert_eq!(reset_at(&mut peer, edge + 1), usize::from(lenient));
        assert_eq!(reset_at(&mut peer, edge + 2 + 165), 0, "beyond the buffer it is nothing");
    }
}

#[test]
fn a_window_at_the_largest_value_of_its_field_stays_there() {
    let mut config = plain();
    config.tcp.buffers.receive = 70_000;
    config.tcp.buffers.receive_max = 70_000;
    let mut peer = Peer::established(config);
    let (id, now) = (peer.id(), peer.now);
    let options = peer.host.options(id).unwrap();
    let larger = SocketOptions { receive_buffer_bytes: Some(70_000), ..options };
    peer.host.set_options(now, id, larger).unwrap();
    peer.host.set_quick_ack(now, id, true).unwrap();
    peer.say(Say::new(A, 1, 1).data(b"x"));
    assert_eq!(peer.hear_one().window, 65_535);
}

#[test]
fn a_chosen_hop_limit_is_on_every_packet_from_the_syn_ack_on() {
    let mut peer = Peer::listening(plain());
    let listener = peer.listener.unwrap();
    let own =
        SocketOptions { hop_limit: Some(4), traffic_class: 0x48, ..peer.host.default_options() };
    peer.host.set_listener_options(listener, own).unwrap();
    peer.say(Say::new(S, 0, 0));
    peer.hear();
    assert_eq!(peer.marks, (4, 0x48));
    peer.say(Say::new(A, 1, 1));
    peer.accept();
    peer.write(1);
    peer.hear();
    assert_eq!(peer.marks, (4, 0x48));
    let (mut other, _) = Peer::opening(plain());
    other.hear();
    assert_eq!(other.marks, (64, 0));
}

#[test]
fn a_hop_limit_that_changes_is_on_the_next_packet() {
    let mut config = plain();
    config.tcp.timestamps = true;
    let mut peer = Peer::established_with(config, |say| say.stamp(500, 0));
    let (id, now) = (peer.id(), peer.now);
    let everybodys = SocketOptions { nodelay: true, ..peer.host.options(id).unwrap() };
    let marks = |peer: &mut Peer, options| {
        peer.host.set_options(now, id, options).unwrap();
        peer.write(1);
        assert_eq!(peer.hear().len(), 1);
        peer.marks
    };
    let own = SocketOptions { hop_limit: Some(4), ..everybodys };
    for (options, expected) in [(everybodys, (64, 0)), (own, (4, 0)), (everybodys, (64, 0))] {
        assert_eq!(marks(&mut peer, options), expected);
    }
}

#[test]
fn who_reads_no_more_resets_what_comes_after_the_fin() {
    let mut peer = Peer::established(plain());
    let (id, now) = (peer.id(), peer.now);
    peer.host.shutdown_read(id).unwrap();
    assert!(peer.exchange(Say::new(A, 1, 1).data(b"kept")).is_empty(), "before our FIN");
    assert_eq!(peer.read(10).unwrap(), b"kept");
    peer.host.shutdown_write(now, id).unwrap();
    peer.hear();
    let answer = peer.exchange(Say::new(A, 5, 2).data(b"for nobody"));
    assert_eq!((answer.as_slice(), peer.state()), (&["R 2:2(0) ack 5".into()][..], State::Closed));
}

#[test]
fn an_active_open_gives_up_after_its_own_time() {
    let mut peer = Peer::new(plain());
    let options =
        SocketOptions { open_timeout: Duration::from_secs(7), ..peer.host.default_options() };
    let (local, remote) = ("10.0.0.2:80".parse().unwrap(), "10.0.0.1:4000".parse().unwrap());
    let now = peer.now;
    peer.id = Some(peer.host.connect_with(now, local, remote, options).unwrap());
    let syns = peer.wait(Duration::from_secs(100));
    let at: Vec<u64> = syns.iter().map(|syn| syn.at.since(now).as_secs()).collect();
    assert_eq!((at, peer.state()), (std::vec![0, 1, 3], State::Closed));
}

#[test]
fn a_window_in_whole_segments_is_rounded_up() {
    let mut config = plain();
    config.tcp.quirks.window_in_segments = true;
    config.tcp.buffers.receive = 9_500;
    let peer = Peer::established(config);
    assert_eq!(peer.host.receive_window_promised(), 10_000);
}

#[test]
fn a_restart_after_idle_can_be_switched_off() {
    for restart in [true, false] {
        let mut config = plain();
        config.tcp.congestion.restart_after_idle = restart;
        let mut peer = Peer::established(config);
        peer.write(10_000);
        peer.hear();
        peer.say(Say::new(A, 1, 10_001));
        peer.wait(Duration::from_secs(10));
        peer.write(30_000);
        assert_eq!(peer.hear().len(), if restart { 10 } else { 20 });
    }
}

#[test]
fn a_receive_buffer_of_nothing_still_lets_data_through() {
    let (mut peer, syn_ack) = accepted_with(|o| o.receive_buffer_bytes = Some(0));
    let unit = 1 << syn_ack.options.window_scale.unwrap();
    assert_eq!(syn_ack.window, unit, "one unit of the field");
    for seq in 1..100 {
        peer.say(Say::new(A, seq, 1).data(&[0; 1]));
        assert_eq!(peer.read(1000).unwrap().len(), 1);
        peer.hear();
    }
}

#[test]
fn a_configuration_that_could_not_work_makes_no_host() {
    let refused = |change: fn(&mut crate::config::Config)| {
        let mut config = plain();
        change(&mut config);
        crate::host::Host::new(config).is_err()
    };
    assert!(!refused(|_| {}));
    const MOST: usize = 1 << 25;
    assert!(
        refused(|c| c.limits.connections = MOST + 1) && !refused(|c| c.limits.connections = MOST)
    );
    assert!(
        refused(|c| c.limits.syn_cache = MOST + 1) && !refused(|c| c.limits.time_wait = MOST + 1)
    );
    assert!(refused(|c| {
        c.tcp.time_wait.state = crate::config::TimeWaitState::Full;
        c.limits.time_wait = MOST + 1;
    }));
    assert!(refused(|c| c.hop_limit = 0) && !refused(|c| c.hop_limit = 1));
    assert!(refused(|c| c.tcp.congestion.initial_window = 0));
    assert!(refused(|c| c.tcp.congestion.initial_window = 65_536));
    assert!(!refused(|c| c.tcp.congestion.initial_window = 65_535));
    assert!(refused(|c| c.tcp.quirks.window_shift = Some(15)));
    assert!(!refused(|c| c.tcp.quirks.window_shift = Some(14)));
    assert!(refused(|c| c.tcp.rto.max = Duration::from_millis(999)));
    assert!(!refused(|c| c.tcp.rto.max = Duration::from_secs(1)));
    assert!(refused(|c| c.limits.connections = 0));
    assert!(refused(|c| c.limits.pages = 0) && !refused(|c| c.limits.pages = 1));
    assert!(refused(|c| c.limits.frames_per_turn = 0));
    assert!(!refused(|c| c.limits.frames_per_turn = 1));
    assert!(refused(|c| c.tcp.buffers.send = 0) && !refused(|c| c.tcp.buffers.send = 1));
    assert!(refused(|c| c.tcp.buffers.receive_max = 0));
    assert!(!refused(|c| c.tcp.buffers.receive_max = 1));
}

#[test]
fn a_syn_without_the_agreed_timestamp_is_challenged() {
    let mut peer = Peer::established_with(config("10.0.0.2"), |syn| syn.mss(1000).stamp(7, 0));
    let answer = peer.exchange(Say::new(S, 1, 0));
    assert_eq!(answer, [". 1:1(0) ack 1"], "RFC 5961 §4.2");
    assert!(peer.exchange(Say::new(A, 1, 1).data(b"bare")).is_empty());
}

#[test]
fn a_simultaneous_open_echoes_the_timestamp_of_the_syn_ack() {
    let (mut peer, _) = Peer::opening(config("10.0.0.2"));
    peer.say(Say::new(S, 0, 0).mss(1000).stamp(500, 0));
    assert_eq!(peer.hear_one().options.timestamps.map(|stamps| stamps.echo), Some(500));
    peer.say(Say::new(S | A, 0, 1).mss(1000).stamp(520, 0));
    assert_eq!(peer.hear_one().options.timestamps.map(|stamps| stamps.echo), Some(520));
}

#[test]
fn a_receive_buffer_made_nothing_later_still_lets_data_through() {
    let mut config = plain();
    config.tcp.buffers.receive = 2000;
    config.tcp.buffers.receive_max = 2000;
    let mut peer = Peer::established(config);
    let (id, now) = (peer.id(), peer.now);
    let none = SocketOptions { receive_buffer_bytes: Some(0), ..peer.host.options(id).unwrap() };
    peer.host.set_options(now, id, none).unwrap();
    let offered = peer.host.info(id).unwrap().receive_window_bytes;
    peer.say(Say::new(A, 1, 1).data(&std::vec![0; offered as usize]));
    peer.hear();
    while peer.read(60_000).is_ok_and(|data| !data.is_empty()) {}
    let windows: Vec<u16> = peer.wait(Duration::from_secs(1)).iter().map(|h| h.window).collect();
    assert_eq!(windows.last(), Some(&1), "a byte at a time");
}
