//! How much work one turn does at most.

use core::net::SocketAddr;

use super::pair::{CLIENT, SERVER, config};
use crate::config::Scheme;
use crate::frame::Outbox;
use crate::host::Host;
use crate::time::{Duration, Instant};
use std::vec::Vec;

/// The driver of a host may hand it to another thread, with what it is about to send.
#[test]
fn a_host_and_its_frames_may_move_to_another_thread() {
    fn is_send<T: Send>(_: &T) {}
    is_send(&Host::new(config(CLIENT)).unwrap());
    is_send(&Outbox::new(1));
}

/// More than two turns' share of connections.
const OPENING: usize = 2500;

/// A host with that many connections in SYN-SENT, all of which wait so long before they ask again,
/// and the time.
fn opening(scheme: Scheme, initial_rto: Duration) -> (Host, Instant) {
    let mut config = config(CLIENT);
    (config.tcp.timers, config.tcp.rto.initial) = (scheme, initial_rto);
    let (mut host, now) = (Host::new(config).unwrap(), Instant::from_millis(1000));
    let to = SocketAddr::new(SERVER.parse().unwrap(), 80);
    let from = SocketAddr::new(CLIENT.parse().unwrap(), 0);
    for _ in 0..OPENING {
        host.connect(now, from, to).unwrap();
    }
    assert_eq!(said(&mut host, now), OPENING);
    (host, now)
}

/// Frames the host sends now.
fn said(host: &mut Host, now: Instant) -> usize {
    let (mut frames, mut outbox) = (0, Outbox::new(256));
    while host.wants_emit() {
        host.emit(now, &mut outbox);
        while let Some(frame) = outbox.take() {
            outbox.recycle(frame);
            frames += 1;
        }
    }
    frames
}

/// Frames sent in each turn of those that follow one another because something is still due.
fn turns(host: &mut Host, now: Instant) -> Vec<usize> {
    let mut turns = Vec::new();
    while host.deadline().is_some_and(|at| at <= now) {
        host.on_time(now);
        turns.push(said(host, now));
    }
    turns
}

#[test]
fn a_turn_runs_its_share_of_what_is_due_and_the_rest_stays_due() {
    for scheme in [Scheme::Inline, Scheme::Wheel] {
        let (mut host, begin) = opening(scheme, Duration::from_secs(1));
        // An entry is filed for the first deadline to be expected after the handshake.
        let mut early = host.deadline().unwrap();
        if scheme == Scheme::Inline {
            assert_eq!(early, begin + host.config().tcp.rto.floor);
            assert_eq!(turns(&mut host, early), [0; 3]);
            early = host.deadline().unwrap();
        }
        let at = begin + Duration::from_secs(1);
        assert_eq!(early, at);
        assert_eq!(turns(&mut host, at), [1024, 1024, OPENING - 2048], "{scheme:?}");
    }
}

#[test]
fn a_coarse_slot_reached_early_is_refiled_over_several_turns() {
    let (mut host, begin) = opening(Scheme::Inline, Duration::from_secs(10));
    let first = host.deadline().unwrap();
    assert_eq!(turns(&mut host, first), [0; 3]);
    let early = host.deadline().unwrap();
    assert!(first < early && early < begin + Duration::from_secs(10), "the slot is coarse");
    assert_eq!(turns(&mut host, early), [0; 3]);
    let at = host.deadline().unwrap();
    assert_eq!(at, begin + Duration::from_secs(10), "nobody is late");
    assert_eq!(turns(&mut host, at).iter().sum::<usize>(), OPENING);
}
