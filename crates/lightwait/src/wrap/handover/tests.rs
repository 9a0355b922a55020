use super::*;
use crate::device::MemoryDevice;
use crate::device::memory::Wire;
use lightwait_core::time::Duration;

const OURS: &str = "10.0.0.2:80";

fn device(switch: &Switch) -> (Handover<MemoryDevice>, Wire) {
    let capabilities = Capabilities::plain(Medium::Ip, 1500);
    let (device, wire) = MemoryDevice::with_wire(capabilities, 8);
    (Handover::new(device, switch), wire)
}

/// A packet that seems to carry a segment to us from that port.
fn segment(port: u16) -> Vec<u8> {
    let mut packet = vec![0x45, 0, 0, 40, 0, 0, 0, 0, 64, TCP, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
    packet.extend(port.to_be_bytes());
    packet.extend(80_u16.to_be_bytes());
    packet.extend([0; 16]);
    packet
}

fn ends(port: u16) -> Ends {
    (OURS.parse().unwrap(), SocketAddr::new("10.0.0.1".parse().unwrap(), port))
}

fn received(device: &mut impl Device) -> Vec<Vec<u8>> {
    let mut got = Vec::new();
    let mut sink = |frames: &[RxFrame<'_>]| got.extend(frames.iter().map(|it| it.bytes.to_vec()));
    device.receive(Instant::ZERO, 8, &mut sink).unwrap();
    got
}

#[test]
fn each_process_gets_the_segments_of_its_connections() {
    let (to_old, from_new) = channel().unwrap();
    let (new_switch, old_switch) = (Switch::default(), Switch::default());
    let (mut new, mut wire) = device(&new_switch);
    let (mut old, mut old_wire) = device(&old_switch);
    let before = Arc::new(Predecessor::new(vec![to_old]));
    before.add([ends(1000), ends(1001)], 0);
    new_switch.set(Way::Shared(before.clone()));
    old_switch.set(Way::Given(from_new));
    assert_eq!(old.deadline(), Some(Instant::ZERO), "the driver does not wait for the device");
    for port in [1000, 2000] {
        assert!(wire.inject(RxFrame::plain(&segment(port))));
    }
    assert_eq!(received(&mut new), [segment(2000)]);
    assert_eq!(received(&mut old), [segment(1000)]);
    assert_eq!(before.frames(), (1, 0));
    // What comes to the old process's own device is not its any more.
    assert!(old_wire.inject(RxFrame::plain(&segment(1000))));
    assert_eq!(received(&mut old), [[0; 0]; 0]);
    before.remove([ends(1000)]);
    assert!(wire.inject(RxFrame::plain(&segment(1000))));
    assert_eq!(received(&mut new), [segment(1000)]);
    assert_eq!((before.connections(), before.end(), before.connections()), (1, 1, 0));
    // The new process is gone: the old one reads its device again.
    new_switch.set(Way::Straight);
    drop(before);
    received(&mut new);
    assert_eq!(received(&mut old), [segment(1000)]);
}

#[test]
fn what_is_held_waits_in_the_device() {
    let switch = Switch::default();
    let (mut device, mut wire) = device(&switch);
    switch.set(Way::Held);
    assert!(wire.inject(RxFrame::plain(&segment(1))));
    assert!(received(&mut device).is_empty() && device.wait_on().is_none());
    assert_eq!(device.deadline(), None);
    switch.set(Way::Straight);
    assert_eq!(received(&mut device), [segment(1)]);
}

#[test]
fn facts_about_a_frame_go_with_it_and_a_full_channel_loses() {
    let (to_old, from_new) = channel().unwrap();
    let switch = Switch::default();
    let (mut old, _wire) = device(&switch);
    let before = Predecessor::new(vec![to_old]);
    let bytes = vec![7; 65_000];
    let whole =
        RxFrame { checksum: RxChecksum::Good, segment_size: 1448, ..RxFrame::plain(&bytes) };
    before.pass(&whole, 0);
    switch.set(Way::Given(from_new));
    let mut got = Vec::new();
    let mut sink = |frames: &[RxFrame<'_>]| {
        got.extend(frames.iter().map(|it| (it.bytes.len(), it.checksum, it.segment_size)));
    };
    old.receive(Instant::ZERO + Duration::from_secs(1), 8, &mut sink).unwrap();
    assert_eq!(got, [(65_000, RxChecksum::Good, 1448)]);
    while before.frames().1 == 0 {
        before.pass(&whole, 0);
    }
    assert!(before.frames().0 < 200, "it is bounded");
    before.pass(&whole, 1);
}

#[test]
fn what_concerns_the_link_is_for_both() {
    let arp = |operation: u8| {
        let mut frame = [0; 42];
        frame[12..14].copy_from_slice(&ethernet::ethertype::ARP.to_be_bytes());
        frame[21] = operation;
        [0, 1, 2].map(|tags| owner(Medium::Ethernet, &tagged(&frame, tags)))
    };
    assert_eq!(arp(1), [Owner::New, Owner::New, Owner::New]);
    assert_eq!(arp(2), [Owner::Both, Owner::Both, Owner::Both]);
    let icmp = |kind: u8| {
        let mut packet = segment(1);
        (packet[9], packet[20]) = (ICMP, kind);
        owner(Medium::Ip, &packet)
    };
    assert_eq!((icmp(8), icmp(3)), (Owner::New, Owner::Both));
    let v6 = |protocol: u8, kind: u8| {
        let mut packet = [0; 60];
        (packet[0], packet[6], packet[40]) = (0x60, protocol, kind);
        owner(Medium::Ip, &packet)
    };
    assert_eq!(
        (v6(ICMPV6, 135), v6(ICMPV6, 136), v6(0, 0)),
        (Owner::New, Owner::Both, Owner::Both)
    );
    assert!(matches!(v6(TCP, 0), Owner::Connection(_)));
    let mut fragment = segment(1);
    fragment[6] = 0x20;
    assert_eq!(owner(Medium::Ip, &fragment), Owner::Both);
    for cut in 0..60 {
        owner(Medium::Ip, &segment(1)[..cut.min(40)]);
        owner(Medium::Ethernet, &[0x45; 60][..cut]);
    }
}

/// A frame with so many tags put into it, which give it a priority alone.
fn tagged(frame: &[u8], tags: usize) -> Vec<u8> {
    let tag = [0x81_u8, 0, 0x20, 0].repeat(tags);
    [&frame[..12], &tag, &frame[12..]].concat()
}

#[test]
fn a_segment_behind_tags_is_its_connections() {
    let mut frame = vec![2; 12];
    frame.extend(ethernet::ethertype::IPV4.to_be_bytes());
    frame.extend(segment(1000));
    for tags in 0..=ethernet::TAGS_MAX {
        let frame = tagged(&frame, tags);
        assert_eq!(owner(Medium::Ethernet, &frame), Owner::Connection(ends(1000)), "{tags}");
        for cut in 0..frame.len() {
            owner(Medium::Ethernet, &frame[..cut]);
        }
    }
    assert_eq!(owner(Medium::Ethernet, &tagged(&frame, ethernet::TAGS_MAX + 1)), Owner::New);
}

/// A packet of ours to that port.
fn answer(port: u16, flags: tcp::Flags) -> Vec<u8> {
    let mut packet = vec![0x45, 0, 0, 40, 0, 0, 0, 0, 64, TCP, 0, 0, 10, 0, 0, 2, 10, 0, 0, 1];
    let checksum = lightwait_core::wire::checksum::sum(&packet).checksum();
    packet[10..12].copy_from_slice(&checksum.to_be_bytes());
    packet.extend(80_u16.to_be_bytes());
    packet.extend(port.to_be_bytes());
    packet.extend([0; 8]);
    packet.extend([0x50, flags.0, 0, 0, 0, 0, 0, 0]);
    packet
}

#[test]
fn connections_of_the_process_before_are_not_reset() {
    let switch = Switch::default();
    let (mut new, mut wire) = device(&switch);
    let before = Arc::new(Predecessor::new(Vec::new()));
    before.add([ends(1000)], 0);
    let (reset, ack) = (tcp::Flags::RST, tcp::Flags::ACK);
    let packets =
        [answer(1, ack), answer(1000, reset), answer(1000, ack), answer(2000, reset | ack)];
    let mut sent = |new: &mut Handover<MemoryDevice>| {
        let mut outbox = Outbox::new(packets.len());
        packets.iter().for_each(|it| outbox.push().unwrap().head.extend_from_slice(it));
        new.transmit(Instant::ZERO, &mut outbox).unwrap();
        assert!(outbox.is_empty());
        std::iter::from_fn(|| wire.drain()).map(|frame| frame.bytes).collect::<Vec<_>>()
    };
    assert_eq!(sent(&mut new), packets);
    switch.set(Way::Shared(before.clone()));
    received(&mut new);
    let [first, _, second, third] = packets.clone();
    assert_eq!(sent(&mut new), [first, second, third], "in order");
    before.end();
    assert_eq!(sent(&mut new), packets);
}
