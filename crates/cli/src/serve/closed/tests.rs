//! What the log says of closed connections, and when.

use super::*;
use crate::log::{Form, Outputs};
use lightwait::device::MemoryDevice;
use lightwait::local::{TcpListener, TcpStream};
use lightwait::shard::Shard;
use lightwait_core::{Capabilities, Config, Instant, Medium};
use std::net::SocketAddr;
use tokio::io::AsyncReadExt;

const SERVER: &str = "10.0.0.2:80";

fn config(address: &str) -> Config {
    let device = Capabilities::plain(Medium::Ip, 1500);
    let mut config = Config::new(device, format!("{address}/24").parse().unwrap(), [7; 32]);
    config.limits.time_wait = 2;
    config
}

/// A server that closes each connection at once, and a client.
struct Fixture {
    shards: [Shard; 2],
    now: Instant,
}

impl Fixture {
    fn new() -> Fixture {
        Fixture::with(["10.0.0.1", "10.0.0.2"].map(config))
    }

    fn with(configs: [Config; 2]) -> Fixture {
        let (near, far) = MemoryDevice::pair(configs[0].device, 64);
        let [client, server] = configs;
        let client = Shard::in_made_time(client, Box::new(near)).unwrap();
        let server = Shard::in_made_time(server, Box::new(far)).unwrap();
        let address: SocketAddr = SERVER.parse().unwrap();
        let listener = TcpListener::bind_on(&server.handle(), address).unwrap();
        server.handle().spawn_local(async move {
            while let Ok((stream, _)) = listener.accept().await {
                drop(stream);
            }
        });
        Fixture { shards: [client, server], now: Instant::from_millis(1000) }
    }

    /// Opens and closes this many connections, within less than a second.
    fn talk(&mut self, count: usize) {
        self.open(count, async |mut stream| {
            // Wait until the server has closed: the end that closes first has TIME-WAIT.
            assert_eq!(stream.read(&mut [0]).await.unwrap(), 0);
        });
    }

    /// Opens this many connections, and runs `then` on each.
    fn open(&mut self, count: usize, then: impl AsyncFn(TcpStream) + Copy + 'static) {
        let [client, server] = &mut self.shards;
        for _ in 0..count {
            let shard = client.handle();
            client.handle().spawn_local(async move {
                let local: SocketAddr = "10.0.0.1:0".parse().unwrap();
                let peer: SocketAddr = SERVER.parse().unwrap();
                then(TcpStream::connect_from(&shard, local, peer).await.unwrap()).await;
            });
            for _ in 0..20 {
                self.now = self.now + Duration::from_micros(10);
                client.turn(self.now);
                server.turn(self.now);
            }
        }
    }

    fn pass(&mut self, time: Duration) {
        self.now = self.now + time;
        self.shards.iter_mut().for_each(|shard| {
            shard.turn(self.now);
        });
    }

    /// A step of time that is short enough for timers to fire in time.
    fn pass_in_steps(&mut self, time: Duration) {
        (0..100).for_each(|_| self.pass(time / 100));
    }
}

#[test]
fn each_level_is_told_when_it_is_new() {
    let told = |look: Look, last| look.concerns_since(last).collect::<Vec<_>>();
    let level = |held, evicted| Level { held, limit: 100, evicted };
    for (kind, look) in [
        (Kind::TimeWait, (|time_wait| Look { time_wait, ..Look::default() }) as fn(_) -> _),
        (Kind::FinWait2, |fin_wait_2| Look { fin_wait_2, ..Look::default() }),
    ] {
        let (quiet, high, full) = (look(level(79, 0)), look(level(80, 0)), look(level(100, 7)));
        assert_eq!(told(quiet, Look::default()), []);
        assert_eq!(told(high, quiet), [Concern::Filling { kind, held: 80, limit: 100 }]);
        assert_eq!(told(look(level(90, 0)), high), []);
        assert_eq!(told(full, quiet), [Concern::Full { kind, evicted: 7, held: 100 }]);
        assert_eq!(told(full, full), []);
    }
}

#[test]
fn each_event_is_told_when_it_is_new() {
    let told = |look: Look, last| look.concerns_since(last).collect::<Vec<_>>();
    let quiet = Look { opened: 1000, passed: 10, ..Look::default() };
    let busy = Look { unheard: 4, refused: 3, without_port: 2, ..quiet };
    let all = [
        Concern::Unheard { segments: 4 },
        Concern::Refused { syns: 3 },
        Concern::NoPort { opens: 2 },
    ];
    assert_eq!(told(busy, quiet), all);
    assert_eq!(told(busy, busy), []);
    // One in five of the ports that were looked at, and one less.
    let scarce = Look { opened: 1040, passed: 20, ..quiet };
    assert_eq!(told(scarce, quiet), [Concern::PortsScarce { passed: 10, opens: 40 }]);
    assert_eq!(told(Look { opened: 1041, ..scarce }, quiet), []);
    assert_eq!(told(scarce, scarce), []);
    // None could be opened at all.
    let none = Look { passed: 11, without_port: 1, ..quiet };
    let both = [Concern::PortsScarce { passed: 1, opens: 0 }, Concern::NoPort { opens: 1 }];
    assert_eq!(told(none, quiet), both);
}

#[test]
fn ports_that_are_passed_over_are_told_before_none_is_left() {
    let mut configs = ["10.0.0.1", "10.0.0.2"].map(config);
    configs[0].ephemeral_ports = (5000, 5002);
    configs[0].limits.time_wait = 10;
    let mut fixture = Fixture::with(configs);
    let client = fixture.shards[0].handle();
    let look = || client.with_host(|host: &Host| Look::at(host));
    // The client closes first.
    fixture.open(2, async |stream| drop(stream));
    let free = look();
    assert_eq!((free.time_wait.held, free.opened, free.passed), (2, 2, 0));
    fixture.pass(Duration::from_millis(10));
    fixture.open(2, async |stream| drop(stream));
    let scarce = look();
    let told: Vec<_> = scarce.concerns_since(free).collect();
    assert!(told.contains(&Concern::PortsScarce { passed: scarce.passed, opens: 2 }), "{told:?}");
    assert_eq!(scarce.without_port, 0, "by their timestamps they are opened all the same");
}

#[test]
fn orphans_that_peers_keep_open_are_a_level_of_their_own() {
    let mut fixture = Fixture::new();
    let server = fixture.shards[1].handle();
    let look = || server.with_host(|host: &Host| Look::at(host));
    let keep = async |stream| {
        std::future::pending::<()>().await;
        drop(stream);
    };
    fixture.open(2, keep);
    fixture.pass_in_steps(Duration::from_secs(10));
    let held = look();
    assert_eq!((held.time_wait.held, held.fin_wait_2.held), (0, 2));
    let filling = Concern::Filling { kind: Kind::FinWait2, held: 2, limit: 2 };
    assert_eq!(held.concerns_since(Look::default()).collect::<Vec<_>>(), [filling]);
    fixture.open(3, keep);
    fixture.pass_in_steps(Duration::from_secs(10));
    let full = Concern::Full { kind: Kind::FinWait2, evicted: 3, held: 2 };
    assert_eq!(look().concerns_since(held).collect::<Vec<_>>(), [full]);
}

#[test]
fn records_evicted_are_one_line_an_interval_with_their_number() {
    let page = crate::log::Page::default();
    let (log, writer) =
        Log::start(Form::COMBINED, Outputs::new(page.clone(), std::io::sink())).unwrap();
    let mut fixture = Fixture::new();
    let server = fixture.shards[1].handle();
    server.spawn_local(watch(server.clone(), Tally::default, log));
    fixture.pass(Duration::ZERO);
    // Two fit; then eight too many, in one interval; none in the next two; three; none again.
    fixture.talk(2);
    fixture.pass(INTERVAL);
    fixture.talk(8);
    for evicted in [0, 0, 3, 0] {
        fixture.pass(INTERVAL);
        fixture.talk(evicted);
    }
    fixture.pass(INTERVAL);
    drop((server, fixture));
    writer.finish();
    let text = page.text();
    let lines: Vec<&str> = text.lines().collect();
    let told = lines.iter().map(|line| line.split(' ').find_map(|word| word.parse().ok()));
    assert_eq!(told.collect::<Vec<Option<u64>>>(), [2, 8, 3].map(Some), "{text}");
    assert!(lines[0].ends_with("Z TIME-WAIT fills up: it holds 2 records, and may hold 2."));
    assert!(lines[1].ends_with("8 records went before their time, and it holds 2."), "{text}");
}
