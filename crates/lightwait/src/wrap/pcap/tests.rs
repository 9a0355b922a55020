use super::*;
use crate::device::MemoryDevice;
use crate::device::memory::Wire;
use lightwait_core::capture::pcapng::{Block, Reader};
use lightwait_core::frame::TxChecksum;
use lightwait_core::wire::checksum::pseudo_header;
use lightwait_core::wire::{ip, tcp};

/// A file in memory, full beyond `limit` bytes.
#[derive(Clone)]
struct Memory {
    bytes: Arc<Mutex<Vec<u8>>>,
    limit: usize,
}

impl Memory {
    fn new(limit: usize) -> Self {
        Memory { bytes: Arc::default(), limit }
    }
}

impl Write for Memory {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        if self.bytes.lock().unwrap().len() + data.len() > self.limit {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.bytes.lock().unwrap().extend_from_slice(data);
        Ok(data.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn recording(file: &Memory) -> Recording {
    Recording::new(file.clone(), Medium::Ip, &["test0"])
}

fn captured(file: &Memory) -> (Pcap<MemoryDevice>, Wire) {
    captured_in(&recording(file), 0)
}

fn captured_in(recording: &Recording, interface: usize) -> (Pcap<MemoryDevice>, Wire) {
    let plain = Capabilities { checksum: true, ..Capabilities::plain(Medium::Ip, 1500) };
    let (device, wire) = MemoryDevice::with_wire(plain, 2);
    (Pcap::new(device, recording, interface), wire)
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
    let bytes = file.bytes.lock().unwrap();
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
fn both_directions_are_captured_with_checksums_and_unchanged() {
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
    // A checksum that the device has not verified is captured as it came.
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
fn a_reader_finds_the_header_at_once() {
    let file = Memory::new(usize::MAX);
    let (_device, _wire) = captured(&file);
    assert!(packets_in(&file).is_empty());
}

#[test]
fn a_frame_is_in_the_file_in_time_though_nothing_follows() {
    let file = Memory::new(usize::MAX);
    let (mut device, _wire) = captured(&file);
    assert_eq!(device.deadline(), None);
    let mut outbox = Outbox::new(1);
    push(&mut outbox, b"x", TxChecksum::Complete);
    device.transmit(Instant::from_millis(500), &mut outbox).unwrap();
    let due = Instant::from_millis(500) + INTERVAL;
    assert_eq!(device.deadline(), Some(due), "it asks to be called");
    device.receive(Instant::from_millis(599), 1, &mut |_| ()).unwrap();
    assert!(packets_in(&file).is_empty());
    device.receive(due, 1, &mut |_| ()).unwrap();
    assert_eq!((packets_in(&file).len(), device.deadline()), (1, None));
}

#[test]
fn a_frame_is_cut_and_its_length_is_told() {
    let file = Memory::new(usize::MAX);
    let (mut device, _wire) = captured_in(&recording(&file).snaplen(30), 0);
    let mut outbox = Outbox::new(2);
    push(&mut outbox, &[7; 31], TxChecksum::Complete);
    push(&mut outbox, &[8; 30], TxChecksum::Complete);
    device.transmit(Instant::ZERO, &mut outbox).unwrap();
    drop(device);
    let bytes = file.bytes.lock().unwrap();
    let lengths = Reader::new(&bytes).filter_map(|block| match block.unwrap() {
        Block::Packet { original_len, bytes, .. } => Some((original_len, bytes.len())),
        _ => None,
    });
    assert_eq!(lengths.collect::<Vec<_>>(), [(31, 30), (30, 30)]);
}

/// The numbers of frames and bytes in a file.
fn frames_of(path: &Path) -> (usize, u64) {
    let bytes = std::fs::read(path).unwrap();
    let blocks: Vec<_> = Reader::new(&bytes).map(Result::unwrap).collect();
    assert_eq!(blocks[..2], [Block::Section, Block::Interface { medium: Some(Medium::Ip) }]);
    (blocks.len() - 2, bytes.len() as u64)
}

/// Captures `frames` frames of 1000 bytes within the least bound; returns how many frames, and how
/// many bytes, each of the two files has then.
fn within_the_least_bound(frames: u64) -> [Option<(usize, u64)>; 2] {
    let directory = std::env::temp_dir().join(format!("pcap-{}-{frames}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let paths = ["c.pcapng", "c.pcapng.1"].map(|name| directory.join(name));
    let recording = Recording::create_within(&paths[0], Medium::Ip, &["test0"], LEAST_LIMIT);
    let (mut device, mut wire) = captured_in(&recording.unwrap(), 0);
    let mut outbox = Outbox::new(1);
    for number in 0..frames {
        push(&mut outbox, &[number as u8; 1000], TxChecksum::Complete);
        device.transmit(Instant::from_millis(number), &mut outbox).unwrap();
        assert!(wire.drain().is_some());
    }
    drop(device);
    let found = paths.map(|path| path.exists().then(|| frames_of(&path)));
    std::fs::remove_dir_all(directory).unwrap();
    found
}

#[test]
fn a_bounded_capture_is_two_whole_files_with_the_latest_frames() {
    let [newer, older] = within_the_least_bound(100);
    assert_eq!((newer.unwrap().0, older), (100, None), "100,000 bytes fit in half of the bound");
    let [newer, older] = within_the_least_bound(1000).map(Option::unwrap);
    assert!(newer.1 + older.1 <= LEAST_LIMIT, "{newer:?} {older:?}");
    assert!(older.1 > LEAST_LIMIT / 4, "{older:?}");
    let [newer, older] = within_the_least_bound(150).map(Option::unwrap);
    assert_eq!(newer.0 + older.0, 150, "nothing is lost between the two");
}

#[test]
fn a_full_disk_ends_the_capture_and_not_the_traffic() {
    let told = Arc::new(Mutex::new(Vec::new()));
    let tell = told.clone();
    let recording = recording(&Memory::new(10));
    let recording = recording.on_error(move |error| tell.lock().unwrap().push(error.kind()));
    let (mut device, mut wire) = captured_in(&recording, 0);
    let mut outbox = Outbox::new(1);
    for seconds in 1..4 {
        push(&mut outbox, b"x", TxChecksum::Complete);
        device.transmit(Instant::from_millis(seconds * 1000), &mut outbox).unwrap();
        device.receive(Instant::from_millis(seconds * 1000), 1, &mut |_| ()).unwrap();
        assert!(wire.drain().is_some());
    }
    drop(device);
    assert_eq!(*told.lock().unwrap(), [io::ErrorKind::StorageFull], "told once");
}

#[test]
fn a_file_that_cannot_be_made_is_an_error() {
    let path = Path::new("/nosuchdir/x.pcapng");
    let error = Recording::create(path, Medium::Ip, &["test0"]).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::NotFound);
}

#[test]
fn several_devices_are_interfaces_of_one_file() {
    let file = Memory::new(usize::MAX);
    let recording = Recording::new(file.clone(), Medium::Ip, &["one", "other"]);
    let wires = [0, 1].map(|number| captured_in(&recording, number));
    drop(recording);
    let mut outbox = Outbox::new(1);
    let mut devices = wires.map(|(device, _)| device);
    for (number, byte) in [(0, 1), (1, 2), (0, 3)] {
        push(&mut outbox, &[byte], TxChecksum::Complete);
        devices[number].transmit(Instant::from_millis(byte.into()), &mut outbox).unwrap();
    }
    // The first asks for all that is gathered to be written.
    devices[0].receive(Instant::from_millis(1) + INTERVAL, 1, &mut |_| ()).unwrap();
    let bytes = file.bytes.lock().unwrap().clone();
    let blocks: Vec<_> = Reader::new(&bytes).map(Result::unwrap).collect();
    let interface = Block::Interface { medium: Some(Medium::Ip) };
    assert_eq!(blocks[..3], [Block::Section, interface, interface]);
    let packets = blocks[3..].iter().map(|block| match block {
        Block::Packet { interface, bytes, .. } => (*interface, bytes[0]),
        other => panic!("{other:?}"),
    });
    assert_eq!(packets.collect::<Vec<_>>(), [(0, 1), (1, 2), (0, 3)]);
}

#[test]
fn devices_of_other_threads_write_whole_blocks() {
    const FRAMES: u64 = 5000;
    let file = Memory::new(usize::MAX);
    let recording = Recording::new(file.clone(), Medium::Ip, &["one", "other"]);
    std::thread::scope(|scope| {
        for interface in 0..2 {
            let recording = &recording;
            scope.spawn(move || {
                let (mut device, mut wire) = captured_in(recording, interface);
                let mut outbox = Outbox::new(1);
                for number in 0..FRAMES {
                    push(&mut outbox, &number.to_be_bytes(), TxChecksum::Complete);
                    device.transmit(Instant::from_millis(number), &mut outbox).unwrap();
                    assert!(wire.drain().is_some());
                }
            });
        }
    });
    drop(recording);
    let bytes = file.bytes.lock().unwrap();
    let mut seen = [Vec::new(), Vec::new()];
    for block in Reader::new(&bytes) {
        if let Block::Packet { interface, bytes, .. } = block.unwrap() {
            seen[interface as usize].push(u64::from_be_bytes(bytes.try_into().unwrap()));
        }
    }
    assert!(seen.iter().all(|numbers| numbers.iter().copied().eq(0..FRAMES)));
}

#[test]
fn a_capture_begins_and_ends_while_devices_run() {
    let file = Memory::new(usize::MAX);
    let captures = Captures::new(Medium::Ip, &["test0"]);
    let (device, mut wire) = MemoryDevice::with_wire(Capabilities::plain(Medium::Ip, 1500), 2);
    let mut device = Pcap::on_demand(device, &captures, 0);
    let mut turn = |device: &mut Pcap<MemoryDevice>| {
        device.receive(Instant::ZERO, 1, &mut |_| ()).unwrap();
        let mut outbox = Outbox::new(1);
        push(&mut outbox, &segment(), TxChecksum::Complete);
        device.transmit(Instant::ZERO, &mut outbox).unwrap();
        assert!(outbox.is_empty() && wire.drain().is_some());
    };
    turn(&mut device);
    assert_eq!(device.deadline(), None);
    let asked = Arc::new(Mutex::new(Vec::new()));
    let seen = asked.clone();
    let keep: Keep = Arc::new(move |ends| {
        let mut seen = seen.lock().unwrap();
        seen.push(ends.unwrap());
        seen.len() <= 2
    });
    let begun = captures.begin(file.clone(), keep.clone()).unwrap().unwrap();
    assert!(captures.begin(file.clone(), keep.clone()).unwrap().is_none(), "one at a time");
    (0..3).for_each(|_| turn(&mut device));
    let rest = begun.end();
    turn(&mut device);
    drop(rest);
    assert_eq!(packets_in(&file).len(), 2, "of three, two were wanted");
    let ends = Ends { from: "10.0.0.1:80".parse().unwrap(), to: "10.0.0.2:81".parse().unwrap() };
    assert_eq!(*asked.lock().unwrap(), [ends; 3]);
    assert!(captures.begin(file.clone(), keep).unwrap().is_some(), "the next may begin");
}
