//! Frames that no read fetches in time are counted.

use lightwait::device::{AfPacket, Device, Losses, Tap, TapConfig};
use lightwait_core::Instant;
use lightwait_core::frame::TxChecksum;

use crate::frames::{BROADCAST, arp};
use crate::namespace::{can_make_tap, inside, ip};
use crate::{KERNEL, OURS, send};

/// Sends more frames from `from` than the kernel's queue holds, and fetches those that `to` has
/// only afterwards. Then sends as many with a fetch after each. Returns how many were missed each
/// time.
fn missed(from: &mut dyn Device, to: &mut dyn Device, count: u64) -> [u64; 2] {
    let frame = [arp(BROADCAST, 1, OURS, KERNEL), vec![0; 1400]].concat();
    let fetch = |to: &mut dyn Device| to.receive(Instant::ZERO, usize::MAX, &mut |_| ()).unwrap();
    fetch(to);
    let before = to.losses().unwrap().missed;
    (0..count).for_each(|_| send(from, &frame, TxChecksum::Complete));
    let fetched = fetch(to) as u64;
    let late = to.losses().unwrap().missed - before;
    // The kernel sends a few frames of its own; a veth may drop some before the socket.
    assert!(fetched + late < count + 20, "{fetched} and {late} of {count}");
    for _ in 0..count {
        send(from, &frame, TxChecksum::Complete);
        fetch(to);
    }
    [late, to.losses().unwrap().missed - before - late]
}

#[test]
fn a_packet_socket_counts_frames_that_found_no_room() {
    inside("losses::a_packet_socket_counts_frames_that_found_no_room", || {
        ip("link add lw0 type veth peer name lw1");
        let [mut from, mut to] = ["lw0", "lw1"].map(|name| AfPacket::open(name, true).unwrap());
        assert_eq!(to.losses().unwrap(), Losses::default());
        let [late, in_time] = missed(&mut from, &mut to, 20_000);
        assert!(late > 0 && in_time == 0, "{late} {in_time}");
    });
}

#[test]
fn a_tap_counts_frames_that_found_no_room() {
    inside("losses::a_tap_counts_frames_that_found_no_room", || {
        if !can_make_tap() {
            return;
        }
        let mut to = Tap::open(&TapConfig::new("lw0")).unwrap();
        let mut from = AfPacket::open("lw0", true).unwrap();
        let [late, in_time] = missed(&mut from, &mut to, 5000);
        assert!(late > 0 && in_time == 0, "{late} {in_time}");
    });
}
