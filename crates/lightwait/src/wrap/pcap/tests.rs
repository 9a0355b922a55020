use super::*;
use crate::device::MemoryDevice;
use crate::device::memory::Wire;
use lightwait_core::frame::TxChecksum;
use lightwait_core::wire::checksum::pseudo_header;
use lightwait_core::wire::pcapng::{Block, Reader};
use lightwait_core::wire::{ip, tcp};
use std::cell::RefCell;
use std::rc::Rc;

/// A file in memory, full beyond `limit` bytes.
#[derive(Clone)]
struct Memory {
    bytes: Rc<RefCell<Vec<u8>>>,
    limit: usize,
}

impl Memory {
    fn new(limit: usize) -> Self {
        Memory { bytes: Rc::default(), limit }
    }
}

impl Write for Memory {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        if self.bytes.borrow().len() + data.len() > self.limit {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.bytes.borrow_mut().extend_from_slice(data);
        Ok(data.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn captured(file: &Memory) -> (Pcap<MemoryDevice>, Wire) {
    let plain = Capabilities { checksum: true, ..Capabilities::plain(Medium::Ip, 1500) };
    let (device, wire) = MemoryDevice::with_wire(plain, 2);
    (Pcap::new(device, file.clone(), "test0"), wire)
}

/// A TCP segment whose checksum is left to the device: the field holds the pseudo-header's sum.
fn segment() -> Vec<u8> {
    let [source, destination] = ["10.0.0.1", "10.0.0.2"].map(|a| a.parse().unwrap());
    let mut bytes = Vec::new();
    ip::Header::new(source, destination, ip::protocol::TCP, 24).unwrap().emit(&mut bytes);
    bytes.extend([0, 80, 0, 81, 0, 0, 0, 0, 0, 0, 0, 0, 0x50, 0x10, 1, 1, 0, 0, 0, 0]);
    bytes.extend(b"data");
    let pseudo = pseudo_header(source, destination, ip::protocol::TCP, 24).fold();
    bytes[36..38].copy_from_slice(&pseudo.to_be_bytes());
    bytes
}

fn checksum_is_right(packet: &[u8]) -> bool {
    let ip = ip::Packet::parse(packet).unwrap();
    tcp::verify_checksum(ip.payload, ip.source, ip.destination)
}

fn packets_in(file: &Memory) -> Vec<(Instant, Option<Direction>, Vec<u8>)> {
    let bytes = file.bytes.borrow();
    let blocks: Vec<_> = Reader::new(&bytes).map(Result::unwrap).collect();
    assert_eq!(blocks[..2], [Block::Section, Block::Interface { medium: Some(Medium::Ip) }]);
    let packet = |block: &Block<'_>| match block {
        Block::Packet { time, direction, bytes, .. } => (*time, *direction, bytes.to_vec()),
        other => panic!("{other:?}"),
    };
    blocks[2..].iter().map(packet).collect()
}

fn push(outbox: &mut Outbox, bytes: &[u8], checksum: TxChecksum) {
    let frame = outbox.push().unwrap();
    frame.head.extend_from_slice(bytes);
    frame.checksum = checksum;
}

const UNDONE: TxChecksum = TxChecksum::Partial { start: 20, offset: 16 };

#[test]
fn both_directions_are_captured_with_right_checksums_and_pass_unchanged() {
    let file = Memory::new(usize::MAX);
    let (mut device, mut wire) = captured(&file);
    let mut outbox = Outbox::new(4);
    push(&mut outbox, &segment(), UNDONE);
    device.transmit(Instant::from_millis(1), &mut outbox).unwrap();
    assert_eq!(wire.drain().unwrap().bytes, segment(), "the device gets it undone");
    let arrived = segment();
    let good = RxFrame { checksum: RxChecksum::Good, ..RxFrame::plain(&arrived) };
    assert!(wire.inject(good) && wire.inject(RxFrame::plain(&arrived)));
    let mut seen = 0;
    let mut sink = |frames: &[RxFrame<'_>]| {
        assert!(frames.iter().all(|frame| frame.bytes == arrived));
        seen += frames.len();
    };
    assert_eq!(device.receive(Instant::from_millis(2), 9, &mut sink).unwrap(), 2);
    assert_eq!(seen, 2);
    drop(device);
    let packets = packets_in(&file);
    let facts: Vec<_> =
        packets.iter().map(|(t, d, b)| (t.as_millis(), d.unwrap(), checksum_is_right(b))).collect();
    // What the device does not vouch for is captured as it came.
    let (sent, received) = (Direction::Outbound, Direction::Inbound);
    assert_eq!(facts, [(1, sent, true), (2, received, true), (2, received, false)]);
}

#[test]
fn a_frame_that_waits_in_the_outbox_is_captured_once() {
    let file = Memory::new(usize::MAX);
    let (mut device, mut wire) = captured(&file);
    let mut outbox = Outbox::new(4);
    for n in 0..3 {
        push(&mut outbox, &[n], TxChecksum::Complete);
    }
    device.transmit(Instant::ZERO, &mut outbox).unwrap();
    assert_eq!(outbox.len(), 1, "the ring holds two");
    push(&mut outbox, &[3], TxChecksum::Complete);
    while wire.drain().is_some() {}
    device.transmit(Instant::ZERO, &mut outbox).unwrap();
    drop(device);
    let bytes: Vec<_> = packets_in(&file).into_iter().map(|(_, _, bytes)| bytes).collect();
    assert_eq!(bytes, [[0], [1], [2], [3]]);
}

#[test]
fn the_file_grows_at_intervals_without_waiting_for_the_end() {
    let file = Memory::new(usize::MAX);
    let (mut device, _wire) = captured(&file);
    let mut outbox = Outbox::new(1);
    push(&mut outbox, b"x", TxChecksum::Complete);
    device.transmit(Instant::from_millis(500), &mut outbox).unwrap();
    device.receive(Instant::from_millis(999), 1, &mut |_| ()).unwrap();
    assert!(file.bytes.borrow().is_empty());
    device.receive(Instant::from_millis(1000), 1, &mut |_| ()).unwrap();
    assert_eq!(packets_in(&file).len(), 1);
}

#[test]
fn a_full_disk_ends_the_capture_and_not_the_traffic() {
    let (file, told) = (Memory::new(10), Rc::new(RefCell::new(Vec::new())));
    let (device, mut wire) = captured(&file);
    let tell = told.clone();
    let mut device = device.on_error(move |error| tell.borrow_mut().push(error.kind()));
    let mut outbox = Outbox::new(1);
    for seconds in 1..4 {
        push(&mut outbox, b"x", TxChecksum::Complete);
        device.transmit(Instant::from_millis(seconds * 1000), &mut outbox).unwrap();
        device.receive(Instant::from_millis(seconds * 1000), 1, &mut |_| ()).unwrap();
        assert!(wire.drain().is_some());
    }
    drop(device);
    assert_eq!(*told.borrow(), [io::ErrorKind::StorageFull], "told once");
}

#[test]
fn a_file_that_cannot_be_made_is_named() {
    let plain = Capabilities::plain(Medium::Ip, 1500);
    let (device, _wire) = MemoryDevice::with_wire(plain, 1);
    let error = Pcap::create(device, Path::new("/nosuchdir/x.pcapng"), "test0").unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::NotFound);
    assert!(error.to_string().contains("/nosuchdir/x.pcapng"));
}
