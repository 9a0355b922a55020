//! Frames that no read fetches in time are counted.

use lightwait::device::{AfPacket, Device, Losses, Tap, TapConfig};
use lightwait_core::Instant;
use lightwait_core::frame::TxChecksum;

use crate::frames::{BROADCAST, arp};
use crate::namespace::{can_make_tap, inside, ip};
use crate::{KERNEL, OURS, receive, send};

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

/// How many small frames wait at a socket with that room, at most.
fn waiting(room: Option<usize>) -> u64 {
    const SENT: u64 = 20_000;
    let [mut from, to] = ["lw0", "lw1"].map(|name| AfPacket::open(name, true).unwrap());
    let mut to = match room {
        Some(bytes) => to.with_receive_buffer(bytes).unwrap(),
        None => to,
    };
    let frame = [arp(BROADCAST, 1, OURS, KERNEL), vec![0; 18]].concat();
    (0..SENT).for_each(|_| send(&mut from, &frame, TxChecksum::Complete));
    let waited = to.receive(Instant::ZERO, usize::MAX, &mut |_| ()).unwrap() as u64;
    let missed = to.losses().unwrap().missed;
    // A veth may drop some before the socket.
    assert!(waited + missed < SENT + 20, "{waited} {missed}");
    waited
}

#[test]
fn the_room_of_a_packet_socket_bounds_what_waits() {
    inside("losses::the_room_of_a_packet_socket_bounds_what_waits", || {
        ip("link add lw0 type veth peer name lw1");
        let [unset, set] = [None, Some(64 << 10)].map(waiting);
        // Twice as many bytes, 768 for each by the kernel's count.
        assert!((100..260).contains(&set), "{set}");
        // An ordinary user gets less than 8 MiB, by the kernel's limit of 208 KiB or more.
        assert!(unset > 2 * set, "{unset} {set}");
    });
}

/// Two handles know of the losses together, whichever was asked first.
fn handles_share_losses<D: Device>(from: &mut dyn Device, to: [D; 2]) {
    const SENT: u64 = 20_000;
    let [mut receiving, mut sending] = to;
    let frame = [arp(BROADCAST, 1, OURS, KERNEL), vec![0; 1400]].concat();
    (0..SENT).for_each(|_| send(from, &frame, TxChecksum::Complete));
    let first = sending.losses().unwrap().missed;
    let fetched = receiving.receive(Instant::ZERO, usize::MAX, &mut |_| ()).unwrap() as u64;
    (0..SENT).for_each(|_| send(from, &frame, TxChecksum::Complete));
    let fetched =
        fetched + receiving.receive(Instant::ZERO, usize::MAX, &mut |_| ()).unwrap() as u64;
    let [one, other] = [&mut receiving, &mut sending].map(|handle| handle.losses().unwrap().missed);
    assert!(other >= first && one + other > 0, "{first} {one} {other}");
    // The kernel sends a few frames of its own; a veth may drop some before the socket.
    assert!((one + other + fetched).abs_diff(2 * SENT) < 40, "{one} {other} {fetched}");
}

#[test]
fn two_handles_on_a_device_know_its_losses_together() {
    inside("losses::two_handles_on_a_device_know_its_losses_together", || {
        ip("link add lw0 type veth peer name lw1");
        let [mut from, to] = ["lw0", "lw1"].map(|name| AfPacket::open(name, true).unwrap());
        // A ring has one handle.
        assert_eq!(to.try_clone().unwrap_err().kind(), std::io::ErrorKind::Unsupported);
        let to = to.with_receive_buffer(8 << 20).unwrap();
        handles_share_losses(&mut from, [to.try_clone().unwrap(), to]);
        if can_make_tap() {
            let tap = Tap::open(&TapConfig::new("lw2")).unwrap();
            let mut from = AfPacket::open("lw2", true).unwrap();
            handles_share_losses(&mut from, [tap.try_clone().unwrap(), tap]);
        }
    });
}

#[test]
fn one_handle_receives_what_the_other_is_answered() {
    inside("losses::one_handle_receives_what_the_other_is_answered", || {
        if !can_make_tap() {
            return;
        }
        let config = TapConfig { offload: false, ..TapConfig::new("lw0") };
        let config = TapConfig { host_addresses: vec!["10.77.0.1/24".parse().unwrap()], ..config };
        let mut sending = Tap::open(&config).unwrap();
        let mut receiving = sending.try_clone().unwrap();
        std::thread::scope(|scope| {
            let answered = scope.spawn(move || {
                let is_answer = |bytes: &[u8]| bytes.get(20..22) == Some(&[0, 2]);
                receive(&mut receiving, is_answer);
                receiving.counters()
            });
            let question = arp(BROADCAST, 1, OURS, KERNEL);
            while !answered.is_finished() {
                send(&mut sending, &question, TxChecksum::Complete);
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            assert_eq!(answered.join().unwrap().transmitted, 0);
        });
        assert_eq!(sending.counters().received, 0);
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
