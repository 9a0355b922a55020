//! Tens of thousands of connections at one shard, each with a pace of its own: the schedule has an
//! entry for each at most, what leaves is spaced as it should be, and all of them go on.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use lightwait::local::{Control, TcpListener, TcpStream};
use lightwait::rt;
use lightwait::shard::Handle;
use lightwait_core::address::Cidr;
use lightwait_core::config::Algorithm;
use lightwait_core::tcp::Pace;
use lightwait_core::{Capabilities, Config, Host, Instant, Medium};
use lightwait_netem::{LinkConfig, Rate};
use lightwait_sim::{Cable, Side, World};
use tokio::io::AsyncReadExt;

/// Largest packet, and payload of a full segment beside timestamps.
const MTU: u16 = 576;
const SEGMENT: u64 = 524;
/// What the path of each connection carries, bytes of frames a second, and its round trip: five
/// segments.
const RATE: u64 = 6_000;
const ROUND_TRIP: Duration = Duration::from_millis(500);
/// Ports of the connections, from this on: twice as many as there are connections.
const FIRST_PORT: u16 = 10_000;
/// Connections that are opened together, and how long after those before.
const TOGETHER: usize = 100;
const APART: Duration = Duration::from_millis(10);
/// By then each has found its rate.
const WARM: Duration = Duration::from_secs(6);
const MEASURED: Duration = Duration::from_secs(2);

/// What the two ends know of the connections.
#[derive(Default)]
struct Board {
    controls: RefCell<Vec<Control>>,
    /// Bytes read, a place for each connection.
    read: RefCell<Vec<u64>>,
}

/// What was measured.
#[derive(Debug)]
struct Measured {
    /// The most entries of the schedule at once.
    scheduled: usize,
    /// Bursts that left, and how long the world took for each.
    bursts: u64,
    per_burst: Duration,
    /// The most bytes of payload that a connection sent at one instant.
    largest_burst: u64,
    paces: Vec<Pace>,
    /// Bytes that each connection delivered.
    delivered: Vec<u64>,
}

fn config(side: Side, connections: u16) -> Config {
    let number = side.index() as u8 + 1;
    let address = Cidr::new([10, 9, 0, number].into(), 24).unwrap();
    let mut config = Config::new(Capabilities::plain(Medium::Ethernet, MTU), address, [number; 32]);
    config.hardware = [2, 0, 0, 0, 0, number];
    config.ephemeral_ports = (FIRST_PORT, FIRST_PORT + 2 * connections - 1);
    config.tcp.congestion.algorithm = Algorithm::Bbr;
    config.tcp.buffers.send = 16 << 10;
    config
}

/// The port of the connection that a frame belongs to, if it carries TCP.
fn client_port(frame: &[u8]) -> Option<u16> {
    let port = |at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
    let is_tcp = frame.len() >= 54 && port(12) == 0x0800 && frame[23] == 6;
    is_tcp.then(|| port(34).max(port(36)))
}

/// A path for each connection.
fn world(connections: u16) -> (World, Rc<RefCell<Cable>>) {
    let delay = ROUND_TRIP / 2;
    let forth = LinkConfig { rate: Rate::BitsPerSecond(8 * RATE), delay, ..LinkConfig::default() };
    let back = LinkConfig { delay, ..LinkConfig::default() };
    let lanes = (0..2 * connections).map(|_| [forth.clone(), back.clone()]);
    let lane = |frame: &[u8]| client_port(frame).map_or(0, |port| (port - FIRST_PORT).into());
    let (cable, ports) = Cable::with_lanes(lanes, MTU, lane);
    let configs = [Side::A, Side::B].map(|side| config(side, connections));
    let ends = (cable.clone(), ports);
    (World::new(Instant::from_millis(1000), ends, configs).unwrap(), cable)
}

async fn accept_all(listener: TcpListener, board: Rc<Board>) -> io::Result<()> {
    loop {
        let (mut stream, _) = listener.accept().await?;
        let board = board.clone();
        Handle::current().spawn_local(async move {
            let place = board.read.borrow().len();
            board.read.borrow_mut().push(0);
            let mut chunk = vec![0; 4096];
            while let Ok(count @ 1..) = stream.read(&mut chunk).await {
                board.read.borrow_mut()[place] += count as u64;
            }
        });
    }
}

async fn send(server: (std::net::IpAddr, u16), board: Rc<Board>) -> io::Result<()> {
    let stream = TcpStream::connect(server).await?;
    board.controls.borrow_mut().push(stream.control());
    let chunk = Bytes::from_static(&[0; 8192]);
    loop {
        stream.write_all_bytes(chunk.clone()).await?;
    }
}

fn start(world: &World, connections: u16, board: &Rc<Board>) {
    let server = (world.address(Side::B), 80);
    let listener = TcpListener::bind_on(&world.handle(Side::B), server).unwrap();
    world.spawn(Side::B, accept_all(listener, board.clone()));
    let board = board.clone();
    world.spawn(Side::A, async move {
        for number in 0..usize::from(connections) {
            if number.is_multiple_of(TOGETHER) {
                rt::sleep(APART).await;
            }
            Handle::current().spawn_local(send(server, board.clone()));
        }
    });
}

/// Counts what each connection sends at one instant.
fn watch(cable: &RefCell<Cable>) -> Rc<(Cell<u64>, Cell<u64>)> {
    let seen = Rc::new((Cell::new(0), Cell::new(0)));
    let noted = seen.clone();
    let mut bursts: HashMap<u16, (Instant, u64)> = HashMap::new();
    cable.borrow_mut().watch(move |passage, frame| {
        let is_data = frame.len() > 200 && passage.side == Side::A && !passage.arrives;
        let Some(port) = client_port(frame).filter(|_| is_data) else { return };
        let (bursts_seen, largest) = &*noted;
        let (at, bytes) = bursts.entry(port).or_insert((Instant::ZERO, 0));
        if *at != passage.now {
            (*at, *bytes) = (passage.now, 0);
            bursts_seen.set(bursts_seen.get() + 1);
        }
        *bytes += SEGMENT;
        largest.set(largest.get().max(*bytes));
    });
    seen
}

fn measure(connections: u16) -> Measured {
    let board = Rc::<Board>::default();
    let (mut world, cable) = world(connections);
    start(&world, connections, &board);
    let mut scheduled = 0;
    let mut pass = |world: &mut World, time: Duration| {
        let steps = time.as_millis() / 10;
        for _ in 0..steps {
            world.run_for(Duration::from_millis(10)).unwrap();
            scheduled = scheduled.max(world.host(Side::A, Host::paced_len));
        }
    };
    pass(&mut world, WARM);
    let before = board.read.borrow().clone();
    let seen = watch(&cable);
    let began = std::time::Instant::now();
    pass(&mut world, MEASURED);
    let took = began.elapsed();
    let after = board.read.borrow();
    let infos = board.controls.borrow();
    let paces = infos.iter().map(|control| control.info().unwrap().pace.unwrap()).collect();
    let bursts = seen.0.get();
    Measured {
        scheduled,
        bursts,
        per_burst: took / bursts.max(1) as u32,
        largest_burst: seen.1.get(),
        paces,
        delivered: after.iter().zip(&before).map(|(after, before)| after - before).collect(),
    }
}

impl Measured {
    fn print(&self, connections: u16) {
        let Measured { scheduled, bursts, per_burst, largest_burst, .. } = self;
        println!(
            "{connections} connections: {scheduled} scheduled, {bursts} bursts of {largest_burst} \
             bytes at most, {per_burst:?} each"
        );
    }

    fn check(&self, connections: u16) {
        assert!((1..=connections.into()).contains(&self.scheduled), "{}", self.scheduled);
        assert_eq!(self.largest_burst, 2 * SEGMENT);
        assert_eq!([self.paces.len(), self.delivered.len()], [connections.into(); 2]);
        let latest = self.paces.iter().map(|pace| pace.late).max();
        assert!(latest < Some(Duration::from_millis(1)), "{latest:?}");
        // The path carries frames of 590 bytes, each with a segment of payload.
        let most = RATE * MEASURED.as_secs() * SEGMENT / (u64::from(MTU) + 14);
        let total: u64 = self.delivered.iter().sum();
        let filled = total as f64 / (most * u64::from(connections)) as f64;
        assert!((0.75..=1.02).contains(&filled), "{filled:.3} of what the paths carry");
        let least = self.delivered.iter().min();
        assert!(least >= Some(&(most / 2)), "a connection stalls: {least:?} of {most}");
    }
}

#[test]
#[cfg_attr(debug_assertions, ignore = "millions of segments: with --release")]
fn twenty_thousand_connections_keep_their_paces() {
    for connections in [1250, 20_000] {
        let measured = measure(connections);
        measured.print(connections);
        measured.check(connections);
    }
}
