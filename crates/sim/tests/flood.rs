//! Whole shards under a flood of forged SYNs that keeps the server's SYN cache full for a minute:
//! every client is served, also those that meet their own TIME-WAIT.

use std::cell::Cell;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use lightwait::device::memory::{MemoryDevice, Wire};
use lightwait::local::{TcpListener, TcpStream};
use lightwait::shard::Shard;
use lightwait_core::address::Cidr;
use lightwait_core::config::Wish;
use lightwait_core::flow::Seq;
use lightwait_core::frame::{RxChecksum, RxFrame};
use lightwait_core::tcp::time_wait::negotiate::Code;
use lightwait_core::wire::ip;
use lightwait_core::wire::options::{Options, Timestamps};
use lightwait_core::wire::tcp::{Flags, Header};
use lightwait_core::{Capabilities, Config, Host, Instant, Medium};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Places of the SYN cache: the default.
const PLACES: usize = 4096;
/// Forged SYNs a second.
const FORGED: u64 = 1000;
const MINUTE: Duration = Duration::from_secs(60);
/// A client begins so often.
const PACE: Duration = Duration::from_millis(20);
const PORT: u16 = 80;

/// What the clients have in common.
#[derive(Clone, Copy, Debug)]
struct Kind {
    ipv6: bool,
    stamped: bool,
    /// Ports of the clients. A hundred are used again each 2 s, in TIME-WAIT.
    ports: u16,
    /// Both ends require an agreement that the server holds TIME-WAIT.
    negotiates: bool,
}

impl Kind {
    fn addresses(self) -> [IpAddr; 2] {
        let texts = if self.ipv6 { ["fd00::1", "fd00::2"] } else { ["10.0.0.1", "10.0.0.2"] };
        texts.map(|text| text.parse().unwrap())
    }

    fn shard(self, address: IpAddr, change: impl FnOnce(&mut Config)) -> (Shard, Wire) {
        let capabilities = Capabilities::plain(Medium::Ip, 1500);
        let bits = if self.ipv6 { 64 } else { 8 };
        let mut config = Config::new(capabilities, Cidr::new(address, bits).unwrap(), [1; 32]);
        config.tcp.timestamps = self.stamped;
        if self.negotiates {
            config.tcp.time_wait.negotiate = Wish::Server;
            config.tcp.time_wait.require = true;
        }
        change(&mut config);
        let (device, wire) = MemoryDevice::with_wire(capabilities, 4096);
        (Shard::in_made_time(config, Box::new(device)).unwrap(), wire)
    }
}

/// Two shards on one wire without delay, and what is forged.
struct World {
    kind: Kind,
    now: Instant,
    shards: [Shard; 2],
    wires: [Wire; 2],
    forged: u32,
}

impl World {
    fn new(kind: Kind) -> World {
        let [client, server] = kind.addresses();
        let last_port = 20_000 + kind.ports - 1;
        let (client, to_client) =
            kind.shard(client, |config| config.ephemeral_ports = (20_000, last_port));
        let (server, to_server) = kind.shard(server, |config| {
            assert_eq!(config.limits.syn_cache, PLACES);
        });
        World {
            kind,
            now: Instant::from_millis(1_000),
            shards: [client, server],
            wires: [to_client, to_server],
            forged: 0,
        }
    }

    /// A SYN of an address that nobody has.
    fn forge(&mut self) {
        let number = self.forged;
        self.forged += 1;
        let source: IpAddr = if self.kind.ipv6 {
            [0xfd00, 0, 0, 0, 1, 0, (number >> 16) as u16, number as u16].into()
        } else {
            (0x0a40_0000 | number).to_be_bytes().into()
        };
        let [_, server] = self.kind.addresses();
        let mut options = Options { mss: Some(1460), ..Options::default() };
        options.timestamps = self.kind.stamped.then_some(Timestamps { value: number, echo: 0 });
        if self.kind.negotiates {
            let code = self.shards[1].handle().with_host(|host| Code::of(&host.config().tcp));
            options.experimental = code.option(server);
        }
        let header = Header {
            source_port: 1024 + (number % 50_000) as u16,
            destination_port: PORT,
            seq: Seq(number.wrapping_mul(0x9e37_79b9)),
            ack: Seq(0),
            flags: Flags::SYN,
            window: 60_000,
            urgent: 0,
            options,
        };
        let mut bytes = Vec::new();
        let len = header.header_len();
        ip::Header::new(source, server, ip::protocol::TCP, len).unwrap().emit(&mut bytes);
        header.emit(&mut bytes);
        let frame = RxFrame { checksum: RxChecksum::Good, ..RxFrame::plain(&bytes) };
        assert!(self.wires[1].inject(frame), "the ring has room");
    }

    /// Turns both shards until neither has work now; what one sends reaches the other at once, and
    /// what is for the forged addresses nobody.
    fn settle(&mut self) {
        for _ in 0..10_000 {
            let now = self.now;
            let next = self.shards.iter_mut().filter_map(|shard| shard.turn(now)).min();
            let mut passed = 0;
            for (from, to) in [(0, 1), (1, 0)] {
                while let Some(frame) = self.wires[from].drain() {
                    self.wires[to].inject(frame.as_rx());
                    self.wires[from].recycle(frame);
                    passed += 1;
                }
            }
            if passed == 0 && next.is_none_or(|next| next > now) {
                return;
            }
        }
        panic!("the world does not come to rest");
    }

    fn half_open(&self) -> usize {
        self.shards[1].handle().with_host(Host::half_open)
    }
}

/// The server answers a word with another, and closes first.
fn serve(world: &World) {
    let handle = world.shards[1].handle();
    let listener = TcpListener::bind_on(&handle, (world.kind.addresses()[1], PORT)).unwrap();
    handle.clone().spawn_local(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            handle.spawn_local(async move {
                let mut word = [0; 3];
                let is_whole = stream.read_exact(&mut word).await.is_ok();
                if is_whole && stream.write_all(b"answer").await.is_ok() {
                    let _ = stream.shutdown().await;
                    let _ = stream.read(&mut word).await;
                }
            });
        }
    });
}

/// A client asks a word and reads to the end.
fn ask(world: &World, served: Rc<Cell<u32>>) {
    let handle = world.shards[0].handle();
    let server = SocketAddr::new(world.kind.addresses()[1], PORT);
    handle.clone().spawn_local(async move {
        let Ok(mut stream) = TcpStream::connect_on(&handle, server).await else { return };
        let mut answer = Vec::new();
        if stream.write_all(b"ask").await.is_ok()
            && stream.read_to_end(&mut answer).await.is_ok()
            && answer == b"answer"
        {
            served.set(served.get() + 1);
        }
    });
}

/// How many clients asked and how many were served in a minute, each before the next one began: a
/// SYN that had to be sent again came too late.
fn flooded(kind: Kind) -> (u32, u32) {
    let mut world = World::new(kind);
    serve(&world);
    world.settle();
    for _ in 0..PLACES {
        world.forge();
        world.settle();
    }
    let (served, mut asked, mut in_time) = (Rc::new(Cell::new(0)), 0, 0);
    let end = world.now + MINUTE;
    while world.now < end {
        for _ in 0..FORGED * PACE.as_millis() as u64 / 1000 {
            world.forge();
        }
        world.settle();
        assert!(world.half_open() >= PLACES, "{kind:?}: the flood fills the cache");
        let before = served.get();
        ask(&world, served.clone());
        asked += 1;
        world.settle();
        in_time += u32::from(served.get() > before);
        world.now = world.now + PACE;
        world.settle();
    }
    (asked, in_time)
}

fn all_are_served(kinds: impl Fn(bool, bool) -> Kind) {
    for ipv6 in [false, true] {
        for stamped in [false, true] {
            let kind = kinds(ipv6, stamped);
            let (asked, served) = flooded(kind);
            assert!(served * 100 >= asked * 99, "{kind:?}: {served} of {asked}");
        }
    }
}

#[test]
fn fresh_clients_are_served() {
    all_are_served(|ipv6, stamped| Kind { ipv6, stamped, ports: 40_000, negotiates: false });
}

#[test]
fn clients_that_meet_their_own_time_wait_are_served() {
    all_are_served(|ipv6, stamped| Kind { ipv6, stamped, ports: 100, negotiates: false });
}

#[test]
fn clients_that_negotiate_are_served() {
    for ports in [100, 40_000] {
        all_are_served(|ipv6, stamped| Kind { ipv6, stamped, ports, negotiates: true });
    }
}
