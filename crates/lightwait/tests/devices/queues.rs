//! Devices with several queues, one for each shard.

use std::net::{IpAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use lightwait::device::{AfPacket, Device, Losses, Tap, TapConfig};
use lightwait_core::Instant;
use lightwait_core::flow::{Steering, Tuple};
use lightwait_core::frame::TxChecksum;
use lightwait_core::wire::ends;
use rustix::net::{AddressFamily, SocketType, connect, socket};

use crate::frames::{BROADCAST, TRANSPORT, arp, udp_unfinished};
use crate::namespace::{can_make_tap, inside, inside_as_user, ip};
use crate::{KERNEL, OURS, receive, resolve, send};

/// Connections that the kernel opens to each of our addresses.
pub(crate) const CONNECTIONS: u16 = 64;

fn config() -> TapConfig {
    TapConfig { host_addresses: vec!["10.77.0.1/24".parse().unwrap()], ..TapConfig::new("lw0") }
}

/// Hands over what waits in each queue, and returns what `wanted` makes of it, by queue.
pub(crate) fn drain<D: Device, T>(
    queues: &mut [D],
    wanted: impl Fn(&[u8]) -> Option<T>,
) -> Vec<Vec<T>> {
    let drained = queues.iter_mut().map(|queue| {
        let mut found = Vec::new();
        let mut sink = |frames: &[lightwait_core::RxFrame<'_>]| {
            found.extend(frames.iter().filter_map(|frame| wanted(frame.bytes)));
        };
        queue.receive(Instant::ZERO, usize::MAX, &mut sink).unwrap();
        found
    });
    drained.collect()
}

#[test]
fn the_queues_of_a_tap_share_its_frames() {
    inside("queues::the_queues_of_a_tap_share_its_frames", || {
        if !can_make_tap() {
            return;
        }
        let mut queues = Tap::open_queues(&config(), 4).unwrap();
        assert_eq!(queues.iter().map(Tap::name).collect::<Vec<_>>(), ["lw0"; 4]);
        let offload = queues[0].capabilities();
        assert!(queues.iter().all(|queue| queue.capabilities() == offload && offload.checksum));
        // What comes out of any queue arrives, and the answer goes to one of them.
        let mac = resolve(&mut queues[0]);
        let socket = UdpSocket::bind((KERNEL, 0)).unwrap();
        let port = socket.local_addr().unwrap().port();
        let mut buffer = [0; 8];
        for (number, queue) in queues.iter_mut().enumerate() {
            let text = [b'0' + number as u8];
            let datagram = udp_unfinished(mac, (OURS, 9000), (KERNEL, port), &text);
            let checksum = TxChecksum::Partial { start: TRANSPORT as u16, offset: 6 };
            send(queue, &datagram, checksum);
            assert_eq!(socket.recv_from(&mut buffer).unwrap(), (1, (OURS, 9000).into()));
            assert_eq!(buffer[0], text[0]);
        }
        drain(&mut queues, |_| None::<()>);
        for port in 0..64 {
            socket.send_to(&[port], (OURS, 9000 + u16::from(port))).unwrap();
        }
        let text = |b: &[u8]| (b[12..14] == [8, 0] && b[23] == 17).then(|| b[TRANSPORT + 8]);
        let mut all = drain(&mut queues, text).concat();
        all.sort_unstable();
        assert_eq!(all, (0..64).collect::<Vec<u8>>(), "each frame comes once");
    });
}

#[test]
fn a_frame_that_is_missed_is_counted_once() {
    inside("queues::a_frame_that_is_missed_is_counted_once", || {
        if !can_make_tap() {
            return;
        }
        let mut queues = Tap::open_queues(&config(), 2).unwrap();
        resolve(&mut queues[0]);
        let socket = UdpSocket::bind((KERNEL, 0)).unwrap();
        // One flow goes to one queue, which holds 1000 frames.
        for _ in 0..3000 {
            let _ = socket.send_to(b"late", (OURS, 9000));
        }
        let [first, second] = [0, 1].map(|number| queues[number].losses().unwrap());
        assert!(first.missed > 1000, "{first:?}");
        assert_eq!(second, Losses::default());
    });
}

#[test]
fn a_tap_for_several_queues_is_another_than_for_one() {
    inside("queues::a_tap_for_several_queues_is_another_than_for_one", || {
        if !can_make_tap() {
            return;
        }
        let refused = |queues| Tap::open_queues(&config(), queues).unwrap_err().to_string();
        ip("tuntap add dev lw0 mode tap");
        let error = refused(2);
        assert!(error.contains("ip tuntap add dev lw0 mode tap multi_queue"), "{error}");
        let mut one = Tap::open_queues(&config(), 1).unwrap();
        assert_eq!(one.len(), 1);
        let is_reply = |b: &[u8]| b[12..14] == [8, 6] && b[20..22] == [0, 2];
        send(&mut one[0], &arp(BROADCAST, 1, OURS, KERNEL), TxChecksum::Complete);
        receive(&mut one[0], is_reply);
        assert!(refused(2).contains("in use by another program"), "{}", refused(2));
        drop(one);
        ip("tuntap del dev lw0 mode tap");
        ip("tuntap add dev lw0 mode tap multi_queue");
        assert!(Tap::open(&config()).is_err());
        let several = Tap::open_queues(&config(), 3).unwrap();
        assert!(refused(2).contains("in use by another program"), "{}", refused(2));
        drop(several);
        assert_eq!(Tap::open_queues(&config(), 2).unwrap().len(), 2);
        assert!(refused(257).contains("256 queues at most"), "{}", refused(257));
        // The kernel chooses the name.
        let mut unnamed = config();
        unnamed.name = String::new();
        let unnamed = Tap::open_queues(&unnamed, 2).unwrap();
        assert!(unnamed[0].name() == "tap0" && unnamed[1].name() == "tap0");
    });
}

/// Has the kernel send a SYN to each of so many ports of `ours`.
pub(crate) fn knock(ours: IpAddr) {
    for port in 1..=CONNECTIONS {
        let family = if ours.is_ipv6() { AddressFamily::INET6 } else { AddressFamily::INET };
        let socket = socket(family, SocketType::STREAM, None).unwrap();
        rustix::io::ioctl_fionbio(&socket, true).unwrap();
        let begun = connect(&socket, &std::net::SocketAddr::new(ours, port));
        assert_eq!(begun, Err(rustix::io::Errno::INPROGRESS));
    }
}

/// The ends of the connection whose SYN this frame is, ours first.
pub(crate) fn syn(frame: &[u8]) -> Option<Tuple> {
    let word = |at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
    let ends = |from: IpAddr, to: IpAddr, at: usize| {
        (frame[at + 13] == 2).then(|| Tuple::new((to, word(at + 2)), (from, word(at))))
    };
    match (&frame[12..14], frame[23], frame[20]) {
        ([8, 0], 6, _) => {
            let address = |at: usize| IpAddr::from(*frame[at..].first_chunk::<4>().unwrap());
            ends(address(26), address(30), 34)
        }
        ([0x86, 0xdd], _, 6) => {
            let address = |at: usize| IpAddr::from(*frame[at..].first_chunk::<16>().unwrap());
            ends(address(22), address(38), 54)
        }
        _ => None,
    }
}

/// Each SYN of the kernel's comes to the queue that owns it, and all queues have some.
fn syns_come_to_their_owner<D: Device>(queues: &mut [D], interface: &str, steering: &Steering) {
    // With fixed neighbours the SYN leaves at once.
    ip(&format!("neigh replace 10.77.0.2 lladdr 02:00:00:00:00:42 dev {interface}"));
    ip(&format!("neigh replace fd77::2 lladdr 02:00:00:00:00:42 dev {interface}"));
    for ours in ["10.77.0.2", "fd77::2"] {
        drain(queues, |_| None::<()>);
        knock(ours.parse().unwrap());
        let found = drain(queues, syn);
        for (queue, tuples) in found.iter().enumerate() {
            assert!(!tuples.is_empty(), "{ours}: queue {queue} has none");
            let owned = tuples.iter().all(|tuple| usize::from(steering.owner(tuple)) == queue);
            assert!(owned, "{ours}: {queue} {tuples:?}");
        }
        assert_eq!(found.concat().len(), CONNECTIONS.into(), "{ours}");
    }
}

/// True if the kernel lets us load a program; an error names the capability.
pub(crate) fn is_steered(result: std::io::Result<()>) -> bool {
    let Err(error) = result else { return true };
    assert!(error.to_string().contains("needs CAP_BPF or CAP_SYS_ADMIN"), "{error}");
    eprintln!("skipped: {error}");
    false
}

#[test]
fn a_tap_steers_a_connection_to_its_owner() {
    inside("queues::a_tap_steers_a_connection_to_its_owner", || {
        if !can_make_tap() {
            return;
        }
        let mut config = config();
        config.host_addresses.push("fd77::1/64".parse().unwrap());
        let mut queues = Tap::open_queues(&config, 4).unwrap();
        let steering = Steering::new(&[5; 32], 4);
        if !is_steered(queues[2].steer(&steering)) {
            return;
        }
        syns_come_to_their_owner(&mut queues, "lw0", &steering);
        // Datagrams come to their owner, and TCP with a tag to the first.
        let socket = UdpSocket::bind((KERNEL, 0)).unwrap();
        for port in 9000..9032 {
            socket.send_to(b"", (OURS, port)).unwrap();
        }
        let ends_of = |b: &[u8]| ends::of_packet(&b[14..]);
        let is_datagram = |b: &[u8]| b[12..14] == [8, 0] && b[23] == 17;
        let found = drain(&mut queues, |b| is_datagram(b).then(|| ends_of(b)).flatten());
        for (queue, tuples) in found.iter().enumerate() {
            assert!(tuples.iter().all(|tuple| usize::from(steering.owner(tuple)) == queue));
        }
        assert_eq!(found.concat().len(), 32);
        // A SYN whose owner is another comes to it again, and with a tag to the first.
        knock(OURS.into());
        let whole = |b: &[u8]| syn(b).map(|_| b.to_vec());
        let frame = drain(&mut queues, whole)[3][0].clone();
        let tagged = [&frame[..12], &[0x81, 0, 0, 5], &frame[12..]].concat();
        let mut sender = AfPacket::open("lw0", false).unwrap();
        for (frame, queue) in [(frame, 3), (tagged, 0)] {
            send(&mut sender, &frame, TxChecksum::Complete);
            let found = drain(&mut queues, |b| (b == frame).then_some(()));
            assert_eq!(found.iter().position(|one| !one.is_empty()), Some(queue));
        }
    });
}

#[test]
fn packet_sockets_steer_a_connection_to_its_owner() {
    inside("queues::packet_sockets_steer_a_connection_to_its_owner", || {
        crate::veth();
        let mut queues = AfPacket::open_queues("lw0", true, 4).unwrap();
        assert!(queues.iter().all(|queue| queue.capabilities().checksum));
        let steering = Steering::new(&[6; 32], 4);
        if !is_steered(queues[3].steer(&steering)) {
            return;
        }
        resolve(&mut queues[0]);
        syns_come_to_their_owner(&mut queues, "lw1", &steering);
        // The order of the sockets outlives the interface's going down.
        ip("link set lw0 down");
        ip("link set lw0 up");
        resolve(&mut queues[0]);
        drain(&mut queues, |_| None::<()>);
        knock(OURS.into());
        for (queue, tuples) in drain(&mut queues, syn).iter().enumerate() {
            assert!(tuples.iter().all(|tuple| usize::from(steering.owner(tuple)) == queue));
        }
    });
}

#[test]
fn packet_sockets_share_frames_without_a_program() {
    let test = "queues::packet_sockets_share_frames_without_a_program";
    inside_as_user(test, || {
        crate::veth();
        let mut queues = AfPacket::open_queues("lw0", true, 3).unwrap();
        if is_steered(queues[0].steer(&Steering::new(&[6; 32], 3))) {
            return;
        }
        ip("neigh add 10.77.0.2 lladdr 02:00:00:00:00:42 dev lw1");
        // An interface that has just come up loses frames until it has noticed its carrier.
        thread::sleep(Duration::from_millis(300));
        drain(&mut queues, |_| None::<()>);
        knock(OURS.into());
        let found = drain(&mut queues, syn);
        assert!(found.iter().all(|queue| !queue.is_empty()), "all have some");
        assert_eq!(found.concat().len(), CONNECTIONS.into(), "each comes once");
    });
}

#[test]
fn sockets_that_share_an_interface_open_on_a_busy_one() {
    inside("queues::sockets_that_share_an_interface_open_on_a_busy_one", || {
        crate::veth();
        ip("neigh add 10.77.0.2 lladdr 02:00:00:00:00:42 dev lw1");
        let first = AfPacket::open_queues("lw0", true, 2).unwrap();
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                let socket = UdpSocket::bind((KERNEL, 0)).unwrap();
                for number in 0_u32.. {
                    let _ = socket.send_to(&number.to_be_bytes(), (OURS, 9000));
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                }
            });
            // Another group shares frames of its own.
            let mut found = 0;
            for _ in 0..20 {
                let mut queues = AfPacket::open_queues("lw0", true, 4).unwrap();
                thread::sleep(Duration::from_millis(5));
                let number = |b: &[u8]| {
                    (b[12..14] == [8, 0] && b[23] == 17).then(|| b[TRANSPORT + 8..].to_vec())
                };
                let mut all = drain(&mut queues, number).concat();
                let count = all.len();
                all.sort_unstable();
                all.dedup();
                assert_eq!(all.len(), count, "no frame comes to two sockets");
                found += count;
            }
            assert!(found > 0, "frames come");
            stop.store(true, Ordering::Relaxed);
        });
        drop(first);
    });
}
