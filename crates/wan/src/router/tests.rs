//! The loop in virtual time, with devices in memory.

mod threads;

use super::one_way::RELEASES;
use super::*;
use lightwait::device::MemoryDevice;
use lightwait::device::memory::Wire;
use lightwait::wrap::Plain;
use lightwait_core::frame::BURST;
use lightwait_core::wire::ip;
use lightwait_core::{Capabilities, Medium, Outbox, RxFrame};
use proptest::prelude::*;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

const START: Instant = Instant::from_millis(1000);

/// A handle on a device in memory.
struct Handle(Rc<RefCell<dyn Device>>);

impl Device for Handle {
    fn capabilities(&self) -> Capabilities {
        self.0.borrow().capabilities()
    }
    fn receive(
        &mut self,
        now: Instant,
        budget: usize,
        sink: &mut lightwait::device::Sink<'_>,
    ) -> io::Result<usize> {
        self.0.borrow_mut().receive(now, budget, sink)
    }
    fn transmit(&mut self, now: Instant, outbox: &mut Outbox) -> io::Result<()> {
        self.0.borrow_mut().transmit(now, outbox)
    }
    fn losses(&mut self) -> io::Result<Losses> {
        self.0.borrow_mut().losses()
    }
}

fn ends(device: impl Device + 'static) -> Ends<Handle> {
    let device: Rc<RefCell<dyn Device>> = Rc::new(RefCell::new(device));
    Ends { receiving: Handle(device.clone()), sending: Handle(device) }
}

/// A router between two wires, in virtual time.
struct World {
    router: Router<Handle>,
    wires: [Wire; 2],
    now: Cell<Instant>,
    /// Frames that came out at the end of each wire: the time, and the first bytes as a number.
    out: [Vec<(Instant, u32)>; 2],
}

impl World {
    fn new(links: [&str; 2], release: Release) -> World {
        World::with_steps(links, release, &Steps::default())
    }

    fn with_steps(links: [&str; 2], release: Release, steps: &Steps) -> World {
        let plain = Capabilities::plain(Medium::Ethernet, 1500);
        let [(a, wire_a), (b, wire_b)] = [(); 2].map(|()| MemoryDevice::with_wire(plain, 4096));
        let links = links.map(|link| link.parse().unwrap());
        let devices = [ends(a), ends(b)];
        World {
            router: Router::new(devices, links, release, steps, START),
            wires: [wire_a, wire_b],
            now: Cell::new(START),
            out: Default::default(),
        }
    }

    /// A frame arrives at a device.
    fn arrive(&mut self, device: usize, number: u32, len: usize) {
        let mut frame = vec![0; len.max(4)];
        frame[..4].copy_from_slice(&number.to_be_bytes());
        assert!(self.wires[device].inject(RxFrame::plain(&frame)));
    }

    /// Runs turns at that time, until there is nothing more to do.
    fn look(&mut self, at: Instant) {
        self.now.set(at);
        while self.router.turn(|| self.now.get()).unwrap() {}
        for (wire, out) in self.wires.iter_mut().zip(&mut self.out) {
            while let Some(frame) = wire.drain() {
                out.push((at, u32::from_be_bytes(frame.bytes[..4].try_into().unwrap())));
                wire.recycle(frame);
            }
        }
    }

    /// Runs turns every `step_us` until `until_us` after the start.
    fn look_until(&mut self, until_us: u64, step_us: u64) {
        let begin = self.now.get().nanos_since(START) / 1000;
        for us in (begin..=until_us).step_by(step_us as usize) {
            self.look(us_after(us));
        }
    }

    fn lateness(&mut self) -> Lateness {
        self.router.snapshot(self.now.get()).ways[0].lateness.clone()
    }
}

fn us_after(us: u64) -> Instant {
    START.plus_nanos(us * 1000)
}

#[test]
fn each_direction_has_a_link_of_its_own() {
    let mut world = World::new(["delay=30ms", "delay=5ms"], Release::Polling);
    world.arrive(0, 1, 100);
    world.arrive(1, 2, 100);
    world.look_until(40_000, 10);
    assert_eq!(world.out[1], [(us_after(30_000), 1)]);
    assert_eq!(world.out[0], [(us_after(5_000), 2)]);
}

#[test]
fn frames_of_any_kind_pass_unchanged() {
    let mut world = World::new(["", ""], Release::Polling);
    for len in [14, 60, 1514, 9014] {
        let frame: Vec<u8> = (0..len).map(|i| (i * 7) as u8).collect();
        assert!(world.wires[0].inject(RxFrame::plain(&frame)));
        world.router.turn(|| START).unwrap();
        assert_eq!(world.wires[1].drain().unwrap().bytes, frame);
    }
}

#[test]
fn a_rate_spaces_packets_and_a_queue_bounds_them() {
    // 8 Mbit/s: 1000 bytes in 1 ms. Five fit; the others are dropped.
    let mut world = World::new(["rate=8Mbit,queue=5packets", ""], Release::Polling);
    (0..8).for_each(|number| world.arrive(0, number, 1000));
    world.look_until(10_000, 10);
    let expected: Vec<_> = (0..5).map(|n| (us_after(1000 + n * 1000), n as u32)).collect();
    assert_eq!(world.out[1], expected);
    let snapshot = world.router.snapshot(world.now.get());
    assert_eq!(snapshot.ways[0].counters.overflowed, 3);
}

/// 100 Mbit/s of full packets, one every 120 µs, for 50 ms, through a delay of 20 ms.
fn full_packets(release: Release) -> World {
    let mut world = World::new(["delay=20ms", ""], release);
    for number in 0..417u32 {
        world.look(us_after(u64::from(number) * 120));
        world.arrive(0, number, 1500);
        world.look_until(u64::from(number) * 120 + 110, 10);
    }
    world.look_until(90_000, 10);
    world
}

/// The most packets that came out at one time.
fn largest_burst(out: &[(Instant, u32)]) -> usize {
    out.chunk_by(|one, other| one.0 == other.0).map(<[_]>::len).max().unwrap()
}

#[test]
fn an_interrupt_releases_all_that_came_due_since_the_last_one() {
    let polled = full_packets(Release::Polling);
    assert_eq!((polled.out[1].len(), largest_burst(&polled.out[1])), (417, 1));
    let mut ticking = full_packets(Release::Every(Duration::from_millis(10)));
    let out = &ticking.out[1];
    assert_eq!((out.len(), largest_burst(out)), (417, 84), "the paper's 84");
    assert!(out.iter().all(|(at, _)| at.nanos_since(START) % 10_000_000 == 0));
    assert!(out.iter().map(|(_, number)| *number).eq(0..417), "in order");
    let lateness = ticking.lateness();
    assert!(lateness.max() > Duration::from_millis(9), "{:?}", lateness.max());
    // On average a packet waits for half an interval.
    let median = lateness.percentile(50.0).as_millis();
    assert!((4..=6).contains(&median), "{median}");
}

#[test]
fn a_look_that_comes_late_is_told() {
    let mut world = World::new(["delay=1ms", ""], Release::Polling);
    world.arrive(0, 1, 100);
    world.look(START);
    world.look(us_after(1700));
    let max = world.lateness().max().as_micros();
    assert!((699..=701).contains(&max), "{max}");
    let snapshot = world.router.snapshot(world.now.get());
    assert_eq!(snapshot.longest_turn, Duration::from_micros(1700));
    let latest = |world: &mut World| world.router.live(us_after(1700))[0].latest.as_micros();
    assert_eq!((latest(&mut world), latest(&mut world)), (700, 0), "since it was asked for");
}

#[test]
fn steps_change_the_links_at_their_times() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("steps.toml");
    std::fs::write(&path, "[[step]]\nat = '10ms'\na-to-b = 'delay=5ms'\n").unwrap();
    let first = ["delay=1ms", "delay=2ms"];
    let steps = Steps::read(&path, &first.map(|text| text.parse().unwrap())).unwrap();
    let mut world = World::with_steps(first, Release::Polling, &steps);
    for (at_us, number) in [(0, 1), (9_990, 2), (10_000, 3)] {
        world.look_until(at_us, 10);
        world.arrive(0, number, 100);
        world.arrive(1, number, 100);
        world.look(us_after(at_us));
    }
    world.look_until(30_000, 10);
    let at = |us, number| (us_after(us), number);
    assert_eq!(world.out[1], [at(1_000, 1), at(10_990, 2), at(15_000, 3)]);
    assert_eq!(world.out[0], [at(2_000, 1), at(11_990, 2), at(12_000, 3)]);
    let [there, back] = world.router.snapshot(world.now.get()).ways;
    assert!(back.changes.is_empty(), "{:?}", back.changes);
    let [change] = &there.changes[..] else { panic!("{:?}", there.changes) };
    assert_eq!((change.at, &*change.link), (Duration::from_millis(10), "delay=5ms"));
    assert_eq!((change.before.pushed, change.before.delivered), (2, 1));
}

#[test]
fn what_a_device_cannot_take_waits_and_keeps_its_place() {
    let plain = Capabilities::plain(Medium::Ethernet, 1500);
    let (a, mut wire_a) = MemoryDevice::with_wire(plain, 64);
    let (b, mut wire_b) = MemoryDevice::with_wire(plain, 2);
    let links = ["", ""].map(|link| link.parse().unwrap());
    let devices = [ends(a), ends(b)];
    let mut router = Router::new(devices, links, Release::Polling, &Steps::default(), START);
    (0..5).for_each(|n| assert!(wire_a.inject(RxFrame::plain(&[n; 20]))));
    let mut out = Vec::new();
    for ms in 0..5 {
        router.turn(|| START + Duration::from_millis(ms)).unwrap();
        out.extend(std::iter::from_fn(|| wire_b.drain()).map(|frame| frame.bytes[0]));
    }
    assert_eq!(out, [0, 1, 2, 3, 4]);
    assert_eq!(router.snapshot(START).ways[0].lateness.packets(), 5);
}

/// A segment of so many packets of 100 bytes of text, from which the device was to cut them.
fn large_segment(packets: usize) -> Vec<u8> {
    let addresses = ["10.0.0.1", "10.0.0.2"].map(|ip| ip.parse().unwrap());
    let mut bytes = [&[2; 12][..], &[8, 0]].concat();
    let len = 20 + packets * 100;
    let header = ip::Header::new(addresses[0], addresses[1], ip::protocol::TCP, len);
    header.unwrap().emit(&mut bytes);
    bytes.extend([0, 80, 0, 80, 0, 0, 0, 0, 0, 0, 0, 0, 0x50, 0x10, 1, 0, 0, 0, 0, 0]);
    bytes.resize(bytes.len() + packets * 100, 7);
    bytes
}

#[test]
fn packets_of_large_segments_do_not_pile_up_in_the_router() {
    const SEGMENTS: usize = 8 * BURST;
    const PACKETS: usize = 10;
    let plain = Capabilities::plain(Medium::Ethernet, 1500);
    let (a, mut wire_a) = MemoryDevice::with_wire(plain, SEGMENTS);
    let (b, mut wire_b) = MemoryDevice::with_wire(plain, SEGMENTS * PACKETS);
    let bytes = large_segment(PACKETS);
    let segment = RxFrame { segment_size: 100, ..RxFrame::plain(&bytes) };
    (0..SEGMENTS).for_each(|_| assert!(wire_a.inject(segment)));
    let links = ["", ""].map(|link| link.parse().unwrap());
    let devices = [ends(Plain::new(a)), ends(b)];
    let mut router = Router::new(devices, links, Release::Polling, &Steps::default(), START);
    let mut most = 0;
    for _ in 0..2 * SEGMENTS * PACKETS / RELEASES {
        // The other direction has its turn each time.
        assert!(wire_b.inject(RxFrame::plain(&[9; 60])));
        router.turn(|| START).unwrap();
        assert!(wire_a.drain().is_some());
        most = most.max(router.ways[0].link.in_flight());
    }
    let left = std::iter::from_fn(|| wire_b.drain()).count();
    assert_eq!(left, SEGMENTS * PACKETS, "none is lost");
    assert_eq!(most, BURST * PACKETS - RELEASES, "no more than one look finds");
}

/// A device in memory that reports arrival times, or whose losses are not known.
struct Reporting {
    device: MemoryDevice,
    /// Called with the turn's time before frames are read. Returns when they arrived, or
    /// [`Instant::FAR_FUTURE`] if the device does not know.
    arrived: Box<dyn FnMut(Instant) -> Instant>,
    knows_losses: bool,
}

impl Device for Reporting {
    fn capabilities(&self) -> Capabilities {
        self.device.capabilities()
    }
    fn receive(
        &mut self,
        now: Instant,
        budget: usize,
        sink: &mut lightwait::device::Sink<'_>,
    ) -> io::Result<usize> {
        let arrived = (self.arrived)(now);
        self.device.receive(now, budget, &mut |frames| {
            frames.iter().for_each(|frame| sink(&[RxFrame { arrived, ..*frame }]));
        })
    }
    fn transmit(&mut self, now: Instant, outbox: &mut Outbox) -> io::Result<()> {
        self.device.transmit(now, outbox)
    }
    fn losses(&mut self) -> io::Result<Losses> {
        if self.knows_losses { self.device.losses() } else { Err(io::ErrorKind::NotFound.into()) }
    }
}

#[test]
fn a_devices_time_of_arrival_counts_if_it_is_possible() {
    // With a turn every 50 µs a frame may have waited 20 µs, and cannot have waited 70.
    for (waited_us, counted_us) in [(20, 20), (50, 50), (70, 50)] {
        let plain = Capabilities::plain(Medium::Ethernet, 1500);
        let (device, mut wire) = MemoryDevice::with_wire(plain, 8);
        let (b, _) = MemoryDevice::with_wire(plain, 8);
        let arrived = Box::new(move |now| now - Duration::from_micros(waited_us));
        let a = Reporting { device, arrived, knows_losses: true };
        let links = ["delay=1ms", ""].map(|link| link.parse().unwrap());
        let devices = [ends(a), ends(b)];
        let mut router = Router::new(devices, links, Release::Polling, &Steps::default(), START);
        router.turn(|| us_after(0)).unwrap();
        assert!(wire.inject(RxFrame::plain(&[0; 20])));
        router.turn(|| us_after(50)).unwrap();
        assert_eq!(router.deadline(), Some(us_after(1050 - counted_us)), "{waited_us}");
    }
}

#[test]
fn losses_that_are_not_known_leave_the_other_numbers() {
    let plain = Capabilities::plain(Medium::Ethernet, 1500);
    let [(device, mut wire), (b, _)] = [(); 2].map(|()| MemoryDevice::with_wire(plain, 8));
    // As of a TAP whose interface has gone to another network namespace.
    let arrived = Box::new(|_| Instant::FAR_FUTURE);
    let a = Reporting { device, arrived, knows_losses: false };
    let devices = [ends(a), ends(b)];
    let links = ["", ""].map(|link| link.parse().unwrap());
    let mut router = Router::new(devices, links, Release::Polling, &Steps::default(), START);
    assert!(wire.inject(RxFrame::plain(&[0; 20])));
    router.turn(|| START).unwrap();
    let [there, back] = router.snapshot(START).ways;
    assert_eq!((there.counters.delivered, there.missed, there.refused), (1, None, Some(0)));
    assert_eq!((back.missed, back.refused), (Some(0), None));
}

#[test]
fn a_frame_found_after_a_lost_processor_does_not_leave_early() {
    // The router reads its clock, and comes back to the device 8 ms later.
    let (told, found) = (us_after(5000), us_after(8000));
    for (arrived, counted) in [(told, told), (Instant::FAR_FUTURE, found)] {
        let plain = Capabilities::plain(Medium::Ethernet, 1500);
        let (device, mut wire) = MemoryDevice::with_wire(plain, 8);
        let (b, _) = MemoryDevice::with_wire(plain, 8);
        let now = Rc::new(Cell::new(START));
        let clock = now.clone();
        let arrives = Box::new(move |_| {
            clock.set(clock.get() + found.since(START));
            arrived
        });
        let a = Reporting { device, arrived: arrives, knows_losses: true };
        let links = ["delay=20ms", ""].map(|link| link.parse().unwrap());
        let devices = [ends(a), ends(b)];
        let mut router = Router::new(devices, links, Release::Polling, &Steps::default(), START);
        assert!(wire.inject(RxFrame::plain(&[0; 20])));
        router.turn(|| now.get()).unwrap();
        assert_eq!(router.deadline(), Some(counted + Duration::from_millis(20)));
    }
}

proptest! {
    /// With any arrivals and a constant delay, each packet leaves at the first turn after its
    /// arrival plus the delay, so that distances are accurate to within two turns.
    #[test]
    fn departures_are_arrivals_and_the_delay(
        gaps_us in prop::collection::vec(0u64..400, 1..60),
        delay_us in 0u64..2000,
        look_us in 1u64..50,
    ) {
        let link = format!("delay={delay_us}us");
        let mut world = World::new([&link, ""], Release::Polling);
        let (mut at_us, mut arrivals) = (0, Vec::new());
        for (number, gap_us) in gaps_us.iter().enumerate() {
            at_us += gap_us;
            world.look_until(at_us, look_us);
            world.arrive(0, number as u32, 60);
            world.look(us_after(at_us));
            arrivals.push(at_us);
        }
        world.look_until(at_us + delay_us + 100, look_us);
        prop_assert_eq!(world.out[1].len(), arrivals.len());
        for ((at, number), arrived_us) in world.out[1].iter().zip(&arrivals) {
            let late = at.nanos_since(us_after(arrived_us + delay_us)) / 1000;
            prop_assert!(*at >= us_after(arrived_us + delay_us) && late <= look_us, "{late}");
            prop_assert_eq!(arrivals[*number as usize], *arrived_us);
        }
        let lateness = world.lateness();
        prop_assert!(lateness.max().as_micros() as u64 <= look_us + 1);
    }
}
