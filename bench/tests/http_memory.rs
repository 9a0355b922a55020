//! Memory of an HTTP connection that waits for its next request, and of one whose client has
//! stopped to read: its task, its HTTP state, its TCP, and what waits to be sent.

use std::cell::RefCell;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::Mutex;
use std::time::Duration;

use lightwait::device::memory::MemoryDevice;
use lightwait::local::{TcpListener, TcpStream};
use lightwait::shard::{Handle, Shard};
use lightwait_core::address::Cidr;
use lightwait_core::buffer::PAGE_BYTES;
use lightwait_core::config::SendRule;
use lightwait_core::{Capabilities, Config, Instant, Medium};
use lightwait_heap::Heap;
use lightwait_http::{Files, FilesConfig, Server, ServerConfig};
use lightwait_sim::disk::Disk;
use lightwait_sim::web::{self, FileServer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

#[global_allocator]
static ALLOCATOR: lightwait_heap::Counting = lightwait_heap::Counting;

const CONNECTIONS: usize = 10_000;
const TOGETHER: usize = 100;
/// The limit for the task, HTTP's state, and TCP's.
const MOST_BYTES: usize = 2048;

/// One test at a time: the allocator counts for the whole program.
static COUNTING: Mutex<()> = Mutex::new(());

const CLIENT: u8 = 0;
const SERVER: u8 = 1;

fn host(side: u8) -> IpAddr {
    Ipv4Addr::new(10, 9, 0, side + 1).into()
}

async fn ask(stream: &mut TcpStream) {
    stream.write_all(b"GET /f HTTP/1.1\r\nHost: h\r\n\r\n").await.unwrap();
    let mut reply = [0; 2048];
    let mut length = 0;
    while !reply[..length].windows(4).any(|end| end == b"\r\n\r\n") {
        length += stream.read(&mut reply[length..]).await.unwrap();
    }
    let head = std::str::from_utf8(&reply[..length])
        .unwrap_or_else(|e| std::str::from_utf8(&reply[..e.valid_up_to()]).unwrap());
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    let body = length - head.find("\r\n\r\n").unwrap() - 4;
    let mut rest = vec![0; 500 - body];
    stream.read_exact(&mut rest).await.unwrap();
}

/// What a client does on its connection before it falls silent.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Then {
    Nothing,
    /// It requests a file of 500 bytes, and reads it.
    Asks,
    /// It requests a file of 1 GiB, reads so many bytes of it, and no more.
    Stalls(usize),
}

impl Then {
    async fn act(self, stream: &mut TcpStream) {
        match self {
            Then::Nothing => {}
            Then::Asks => ask(stream).await,
            Then::Stalls(bytes) => {
                stream.write_all(b"GET /large HTTP/1.1\r\nHost: h\r\n\r\n").await.unwrap();
                stream.read_exact(&mut vec![0; bytes]).await.unwrap();
            }
        }
    }
}

/// Two hosts and a wire, with nothing on it.
struct World {
    shards: [Shard; 2],
    now: Instant,
}

impl World {
    fn new() -> World {
        let capabilities = Capabilities::plain(Medium::Ip, 1500);
        let (a, b) = MemoryDevice::pair(capabilities, 256);
        let mut sides = 0..2;
        let shards = [a, b].map(|device| {
            let side = sides.next().unwrap();
            let address = Cidr::new(host(side), 24).unwrap();
            let mut config = Config::new(capabilities, address, [side; 32]);
            config.limits.connections = CONNECTIONS + 1;
            // As `serve` has it.
            config.tcp.buffers.send_size = SendRule::Los;
            if side == CLIENT {
                // It stands for clients of many machines.
                config.limits.pages *= 4;
                config.limits.receive_window_bytes *= 4;
            }
            Shard::in_made_time(config, Box::new(device)).unwrap()
        });
        World { shards, now: Instant::from_millis(784_111_790_000) }
    }

    fn handle(&self, side: u8) -> Handle {
        self.shards[usize::from(side)].handle()
    }

    fn run_until(&mut self, limit: Duration, done: impl Fn() -> bool) {
        let end = self.now + limit;
        while !done() {
            let due = self.shards.each_mut().map(|shard| shard.turn(self.now));
            let due = due.into_iter().chain(self.shards.each_ref().map(|s| s.deadline(self.now)));
            self.now = due.flatten().min().unwrap_or(end).clamp(self.now, end);
            assert!(self.now < end || done(), "it takes too long");
        }
    }

    fn run_for(&mut self, duration: Duration) {
        let end = self.now + duration;
        while self.now < end {
            let due = self.shards.each_mut().map(|shard| shard.turn(self.now));
            let due = due.into_iter().chain(self.shards.each_ref().map(|s| s.deadline(self.now)));
            self.now = due.flatten().min().unwrap_or(end).clamp(self.now, end);
        }
    }
}

/// Opens so many connections, does that on each, and lets them be.
fn crowd(world: &mut World, count: usize, then: Then) -> Rc<RefCell<Vec<TcpStream>>> {
    let address = SocketAddr::new(host(SERVER), 80);
    let silent = Rc::new(RefCell::new(Vec::with_capacity(count)));
    while silent.borrow().len() < count {
        for _ in 0..TOGETHER {
            let silent = silent.clone();
            world.handle(CLIENT).spawn_local(async move {
                let mut stream = TcpStream::connect(address).await.unwrap();
                then.act(&mut stream).await;
                silent.borrow_mut().push(stream);
            });
        }
        let most = silent.borrow().len() + TOGETHER;
        world.run_until(Duration::from_secs(60), || silent.borrow().len() == most);
    }
    world.run_for(Duration::from_secs(5));
    silent
}

/// Serves two files from a disk that takes so long to read.
fn serve(world: &World, read_time: Duration) -> Rc<FileServer> {
    let clock = web::clock_of(world.handle(SERVER));
    let disk = Disk::new(&[("f", 500, 1), ("large", 1 << 30, 2)], read_time, 1 << 40);
    let files = Files::new(disk.with_many_arms(), FilesConfig::default(), clock.clone());
    let patience = Duration::from_secs(3600);
    let config = ServerConfig { idle_timeout: patience, ..ServerConfig::default() };
    let server = Rc::new(Server::new(files, config, clock));
    web::serve_on(&world.handle(SERVER), SocketAddr::new(host(SERVER), 80), &server).unwrap();
    server
}

/// Bytes of one end of an idle connection without an application.
fn bare_end() -> usize {
    let mut world = World::new();
    let heap = Heap::new();
    let listener =
        TcpListener::bind_on(&world.handle(SERVER), SocketAddr::new(host(SERVER), 80)).unwrap();
    let accepted = Rc::new(RefCell::new(Vec::with_capacity(CONNECTIONS)));
    let keep = accepted.clone();
    world.handle(SERVER).spawn_local(async move {
        while let Ok((stream, _)) = listener.accept().await {
            keep.borrow_mut().push(stream);
        }
    });
    let _idle = crowd(&mut world, CONNECTIONS, Then::Nothing);
    let bytes = heap.bytes() as usize;
    assert_eq!(accepted.borrow().len(), CONNECTIONS);
    bytes / CONNECTIONS / 2
}

#[test]
fn ten_thousand_idle_connections_take_2_kib_each_and_no_page() {
    let _alone = COUNTING.lock();
    let bare = bare_end();
    let mut world = World::new();
    let heap = Heap::new();
    let server = serve(&world, Duration::ZERO);
    let idle = crowd(&mut world, CONNECTIONS, Then::Asks);
    assert_eq!(server.tally().rests, CONNECTIONS as u64);
    for side in [CLIENT, SERVER] {
        let pages = world.handle(side).with_host(lightwait_core::Host::pages_in_use);
        assert_eq!(pages, 0, "an idle connection holds no page");
    }
    let each = heap.bytes() as usize / CONNECTIONS - bare;
    println!("{each} bytes an idle connection; its client has {bare}");
    assert!(each <= MOST_BYTES, "{each} bytes");
    drop(heap);
    // They still answer.
    let mut last = idle.borrow_mut().pop().unwrap();
    let asking = world.handle(CLIENT).spawn_local(async move { ask(&mut last).await });
    world.run_until(Duration::from_secs(60), || asking.is_finished());
}

/// Bytes of the server's for each of so many stalled downloads.
fn stalled(read_time: Duration, bytes: usize) -> usize {
    const COUNT: usize = 1000;
    let mut world = World::new();
    let heap = Heap::new();
    let _server = serve(&world, read_time);
    let _stalled = crowd(&mut world, COUNT, Then::Stalls(bytes));
    let pages = world.handle(CLIENT).with_host(lightwait_core::Host::pages_in_use);
    // What the clients have not read is theirs. Of their connections nothing is taken off.
    (heap.bytes() as usize - pages * PAGE_BYTES) / COUNT
}

#[test]
fn a_stalled_download_takes_64_kib() {
    let _alone = COUNTING.lock();
    for (read_time, bytes) in [(0, 0), (0, 2_000_000), (2, 0), (2, 2_000_000)] {
        let each = stalled(Duration::from_millis(read_time), bytes);
        println!("{each} bytes: reads of {read_time} ms, stalled after {bytes} bytes");
        assert!(each <= 64 << 10, "{each} bytes: reads of {read_time} ms, after {bytes}");
    }
}
