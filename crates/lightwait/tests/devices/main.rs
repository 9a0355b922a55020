//! Tests devices that end in the Linux kernel against the kernel's own stack, in a network
//! namespace that the test makes.
#![cfg(target_os = "linux")]

#[cfg(feature = "tokio-driver")]
mod af_xdp;
#[cfg(feature = "tokio-driver")]
mod any_destination;
mod frames;
#[cfg(feature = "tokio-driver")]
mod kernel_dns;
#[cfg(feature = "tokio-driver")]
mod kernel_groups;
#[cfg(feature = "tokio-driver")]
mod kernel_quic;
#[cfg(feature = "tokio-driver")]
mod kernel_tcp;
#[cfg(feature = "tokio-driver")]
mod kernel_udp;
mod leases;
mod long_frames;
mod losses;
#[cfg(feature = "tokio-driver")]
mod macvtap;
mod namespace;
mod one_call;
mod packet_pair;
mod presence;
mod queues;
mod refusals;
#[cfg(feature = "tokio-driver")]
mod tun;
mod vlan;

use std::net::{Ipv4Addr, UdpSocket};
use std::time::{Duration, Instant as Moment};

use frames::{BROADCAST, OUR_MAC, TRANSPORT, arp, echo_request, udp_unfinished};
use lightwait::device::memory::MemoryFrame;
use lightwait::device::{AfPacket, Device, Tap, TapConfig};
use lightwait_core::frame::{RxChecksum, TxChecksum};
use lightwait_core::{Instant, Outbox};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

const KERNEL: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
const OURS: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);

/// Waits for a frame that `wanted` accepts, and returns it; drops others.
fn receive(device: &mut dyn Device, wanted: impl Fn(&[u8]) -> bool) -> MemoryFrame {
    receive_within(Duration::from_secs(10), device, wanted)
        .expect("the kernel sends a frame of the kind within 10 s")
}

fn receive_within(
    time: Duration,
    device: &mut dyn Device,
    wanted: impl Fn(&[u8]) -> bool,
) -> Option<MemoryFrame> {
    let end = Moment::now() + time;
    loop {
        let mut found = None;
        let mut sink = |frames: &[lightwait_core::RxFrame<'_>]| {
            let frame = frames[0];
            if found.is_none() && wanted(frame.bytes) {
                let bytes = frame.bytes.to_vec();
                let (checksum, segment_size) = (frame.checksum, frame.segment_size);
                found = Some(MemoryFrame { bytes, checksum, segment_size });
            }
        };
        // One at a time: the frames behind the wanted one are for later.
        device.receive(Instant::ZERO, 1, &mut sink).unwrap();
        if found.is_some() || Moment::now() > end {
            return found;
        }
        let fd = device.wait_on().expect("the device can be waited on");
        let timeout = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
        poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&timeout)).unwrap();
    }
}

fn send(device: &mut dyn Device, bytes: &[u8], checksum: TxChecksum) {
    let mut outbox = Outbox::new(1);
    let frame = outbox.push().unwrap();
    frame.head.extend_from_slice(bytes);
    frame.checksum = checksum;
    device.transmit(Instant::ZERO, &mut outbox).unwrap();
    assert!(outbox.is_empty(), "the kernel takes the frame at once");
}

/// Asks for the kernel's hardware address, which also announces ours. Repeats the request, since an
/// interface that has just come up loses frames until it has noticed its carrier.
fn resolve(device: &mut dyn Device) -> [u8; 6] {
    let mut ask = || {
        send(device, &arp(BROADCAST, 1, OURS, KERNEL), TxChecksum::Complete);
        let is_reply = |b: &[u8]| b[12..14] == [8, 6] && b[20..22] == [0, 2];
        receive_within(Duration::from_millis(200), device, is_reply)
    };
    let reply = (0..50).find_map(|_| ask()).expect("the kernel answers ARP").bytes;
    assert_eq!(reply[28..32], KERNEL.octets());
    assert_eq!(reply[32..38], OUR_MAC);
    reply[22..28].try_into().unwrap()
}

fn the_kernel_answers_an_echo(device: &mut dyn Device) {
    let kernel_mac = resolve(device);
    let data: Vec<u8> = (0..1400).map(|i| i as u8).collect();
    send(device, &echo_request(kernel_mac, OURS, KERNEL, &data), TxChecksum::Complete);
    let reply = receive(device, |b| b[12..14] == [8, 0] && b[23] == 1).bytes;
    assert_eq!(reply[..6], OUR_MAC);
    assert_eq!(reply[TRANSPORT..TRANSPORT + 2], [0, 0], "an echo reply");
    assert_eq!(reply[TRANSPORT + 8..], data);
    assert_eq!(frames::sum(&reply[TRANSPORT..], 0), 0xffff);
}

/// The kernel completes or trusts an undone checksum, and leaves its own undone.
fn checksums_are_left_to_the_other_side(device: &mut dyn Device) {
    let socket = UdpSocket::bind((KERNEL, 0)).unwrap();
    an_undone_checksum_is_completed(device, &socket);

    socket.send_to(b"from the kernel", (OURS, 9000)).unwrap();
    let frame = receive(device, |b| b[12..14] == [8, 0] && b[23] == 17);
    assert_eq!(frame.checksum, RxChecksum::Good);
    assert_eq!(frame.bytes[TRANSPORT + 8..], *b"from the kernel");
}

/// The kernel's socket gets a datagram whose checksum is undone if it is marked so, and only then.
fn an_undone_checksum_is_completed(device: &mut dyn Device, socket: &UdpSocket) {
    let kernel_mac = resolve(device);
    socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let port = socket.local_addr().unwrap().port();
    let mut buffer = [0; 100];

    let datagram = udp_unfinished(kernel_mac, (OURS, 9000), (KERNEL, port), b"undone");
    send(device, &datagram, TxChecksum::Partial { start: TRANSPORT as u16, offset: 6 });
    let (len, from) = socket.recv_from(&mut buffer).unwrap();
    assert_eq!((&buffer[..len], from), (&b"undone"[..], (OURS, 9000).into()));

    // The contrast: marked complete, the same datagram is wrong, and the kernel drops it.
    send(device, &datagram, TxChecksum::Complete);
    socket.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    assert!(socket.recv_from(&mut buffer).is_err());
}

fn tap(offload: bool) -> Tap {
    let host_addresses = vec!["10.77.0.1/24".parse().unwrap(), "fd77::1/64".parse().unwrap()];
    let config = TapConfig { host_addresses, offload, mtu: 1480, ..TapConfig::new("lw0") };
    Tap::open(&config).unwrap()
}

#[test]
fn over_a_tap_the_kernel_answers() {
    namespace::inside("over_a_tap_the_kernel_answers", || {
        if namespace::can_make_tap() {
            let mut tap = tap(true);
            the_kernel_answers_an_echo(&mut tap);
            checksums_are_left_to_the_other_side(&mut tap);
            assert_eq!((tap.name(), tap.counters().transmit_errors), ("lw0", 0));
        }
    });
}

#[test]
fn over_a_tap_without_offload_the_kernel_answers() {
    namespace::inside("over_a_tap_without_offload_the_kernel_answers", || {
        if namespace::can_make_tap() {
            let mut tap = tap(false);
            assert!(!tap.capabilities().checksum);
            the_kernel_answers_an_echo(&mut tap);
        }
    });
}

#[test]
fn a_tap_is_set_up_as_configured() {
    namespace::inside("a_tap_is_set_up_as_configured", || {
        if namespace::can_make_tap() {
            let tap = tap(true);
            assert_eq!(tap.capabilities().mtu, 1480);
            let shown = std::process::Command::new("ip").args(["addr", "show", "lw0"]).output();
            let shown = String::from_utf8(shown.unwrap().stdout).unwrap();
            for wanted in ["mtu 1480", "UP", "10.77.0.1/24", "fd77::1/64"] {
                assert!(shown.contains(wanted), "{wanted} in {shown}");
            }
            assert!(!shown.contains("fd77::1/64 scope global tentative"), "{shown}");
            let busy = Tap::open(&TapConfig::new("lw0")).unwrap_err().to_string();
            assert!(busy.contains("in use by another program"), "{busy}");
            let wrong = Tap::open(&TapConfig::new("lo")).unwrap_err().to_string();
            assert!(wrong.contains("it is no TAP"), "{wrong}");
        }
    });
}

#[test]
fn a_descriptor_handed_over_serves_as_a_tap() {
    namespace::inside("a_descriptor_handed_over_serves_as_a_tap", || {
        if namespace::can_make_tap() {
            let first = tap(true);
            let fd = first.wait_on().unwrap().try_clone_to_owned().unwrap();
            drop(first);
            let mut tap = Tap::from_fd(fd).unwrap();
            assert_eq!((tap.name(), tap.capabilities().mtu), ("lw0", 1480));
            the_kernel_answers_an_echo(&mut tap);
            checksums_are_left_to_the_other_side(&mut tap);
            let file = std::fs::File::open("/dev/null").unwrap();
            let error = Tap::from_fd(file.into()).unwrap_err().to_string();
            assert!(error.contains("not attached to a TAP"), "{error}");
        }
    });
}

#[test]
fn an_interface_name_may_have_fifteen_bytes_and_not_sixteen() {
    let test = "an_interface_name_may_have_fifteen_bytes_and_not_sixteen";
    namespace::inside(test, || {
        let open = |name: &str| Tap::open(&TapConfig::new(name));
        if namespace::can_make_tap() {
            assert_eq!(open("abcdefghijklmno").unwrap().name(), "abcdefghijklmno");
        }
        let error = open("abcdefghijklmnop").unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
    });
}

fn veth() {
    namespace::ip("link add lw0 type veth peer name lw1");
    namespace::ip("addr add 10.77.0.1/24 dev lw1");
    namespace::ip("addr add fd77::1/64 dev lw1 nodad");
    namespace::ip("link set lw1 up");
}

#[test]
fn over_a_packet_socket_the_kernel_answers() {
    namespace::inside("over_a_packet_socket_the_kernel_answers", || {
        veth();
        let mut device = AfPacket::open("lw0", true).unwrap();
        assert_ne!(device.hardware(), OUR_MAC);
        the_kernel_answers_an_echo(&mut device);
        checksums_are_left_to_the_other_side(&mut device);
        assert_eq!(device.counters().transmit_errors, 0);
    });
}

#[test]
fn over_a_packet_socket_without_offload_the_kernel_answers() {
    namespace::inside("over_a_packet_socket_without_offload_the_kernel_answers", || {
        veth();
        let mut device = AfPacket::open("lw0", false).unwrap();
        assert!(!device.capabilities().checksum);
        the_kernel_answers_an_echo(&mut device);
        let socket = UdpSocket::bind((KERNEL, 0)).unwrap();
        socket.send_to(b"undone", (OURS, 9000)).unwrap();
        let frame = receive(&mut device, |b| b[12..14] == [8, 0] && b[23] == 17);
        assert_eq!(frame.checksum, RxChecksum::Good, "the kernel leaves it undone, and says so");
        let error = AfPacket::open("nosuchthing", true).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
    });
}

#[test]
fn a_packet_socket_outlives_its_interface_going_down_and_up() {
    namespace::inside("a_packet_socket_outlives_its_interface_going_down_and_up", || {
        veth();
        let mut device = AfPacket::open("lw0", true).unwrap();
        resolve(&mut device);
        namespace::ip("link set lw0 down");
        send(&mut device, &arp(BROADCAST, 1, OURS, KERNEL), TxChecksum::Complete);
        assert_eq!(device.counters().transmit_errors, 1);
        namespace::ip("link set lw0 up");
        while device.receive(Instant::ZERO, 64, &mut |_| ()).unwrap() > 0 {}
        the_kernel_answers_an_echo(&mut device);
    });
}
