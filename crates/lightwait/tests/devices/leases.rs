//! Limits that move between shards on threads of their own, while the kernel connects.

use std::io::{self, Write};
use std::net::{SocketAddrV4, TcpStream as KernelStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant as Moment};

use lightwait::device::{Device, Tap, TapConfig};
use lightwait::executor::spawn_local;
use lightwait::local::{TcpListener, TcpStream};
use lightwait::rt;
use lightwait::shard::Shard;
use lightwait::shards::{self, Cores, Seat};
use lightwait_core::Config;
use lightwait_core::flow::{Steering, Tuple};
use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
use tokio::io::AsyncReadExt;

use crate::namespace::{can_make_tap, inside};
use crate::{KERNEL, OURS};

const SHARDS: u16 = 3;
/// Connections of the host: 40 for each shard at first.
const CONNECTIONS: usize = 120;
const PORT: u16 = 80;
const SECRET: [u8; 32] = [9; 32];
/// The kernel is connected with the SYN,ACK. Where no room is left for its ACK, the connection
/// begins with a later segment: the kernel's retransmissions double from 0.2 s on.
const PATIENCE: Duration = Duration::from_secs(20);
const LOOK: Duration = Duration::from_millis(5);

/// What a shard has at a moment.
#[derive(Clone, Copy, Debug, Default)]
struct Part {
    connections: usize,
    limit: usize,
}

/// Three shards on three threads, as seen by the clients.
#[derive(Default)]
struct Server {
    parts: Mutex<[Part; SHARDS as usize]>,
    stop: AtomicBool,
}

impl Server {
    fn parts(&self) -> [Part; SHARDS as usize] {
        *self.parts.lock().unwrap()
    }

    fn connections(&self) -> usize {
        self.parts().iter().map(|part| part.connections).sum()
    }

    /// Waits until `is_so`, and returns what the shards have then, or after all patience.
    fn wait_until(&self, is_so: impl Fn() -> bool) -> [Part; SHARDS as usize] {
        let end = Moment::now() + PATIENCE;
        while !is_so() && Moment::now() < end {
            thread::sleep(LOOK);
        }
        self.parts()
    }
}

/// Ends the shards, though a client's assertion fails.
struct Stop(Arc<Server>);

impl Drop for Stop {
    fn drop(&mut self) {
        self.0.stop.store(true, Ordering::Relaxed);
    }
}

/// Connects from ports whose connections the shard `index` owns, and writes a byte on each.
fn connect_to(index: u16, count: usize) -> Vec<KernelStream> {
    let steering = Steering::new(&SECRET, SHARDS);
    let is_own = |port: &u16| {
        steering.owner(&Tuple::new((OURS.into(), PORT), (KERNEL.into(), *port))) == index
    };
    let open = |port| {
        let stream = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        bind(&stream, &SocketAddrV4::new(KERNEL, port)).unwrap();
        connect(&stream, &SocketAddrV4::new(OURS, PORT)).unwrap();
        let mut stream = KernelStream::from(stream);
        stream.write_all(b"!").unwrap();
        stream
    };
    (20_000..).filter(is_own).take(count).map(open).collect()
}

/// Runs `clients` beside three shards that hold what they accept until its peer closes.
fn serve(clients: impl FnOnce(&Server) + Send) {
    let host_addresses = vec!["10.77.0.1/24".parse().unwrap()];
    let tap = TapConfig { host_addresses, ..TapConfig::new("lw0") };
    let queues = Tap::open_queues(&tap, SHARDS.into()).unwrap();
    let mut host = Config::new(queues[0].capabilities(), "10.77.0.2/24".parse().unwrap(), SECRET);
    host.limits.connections = CONNECTIONS;
    let server = Arc::new(Server::default());
    thread::scope(|scope| {
        let stop = Stop(server.clone());
        scope.spawn(move || clients(&stop.0));
        let begin = |seat, queue| begin(&host, seat, queue, server.clone());
        shards::run(queues, Cores::Any, begin).unwrap();
    });
}

/// A shard that accepts, and the task that says what it has.
fn begin(
    host: &Config,
    seat: Seat,
    queue: Tap,
    server: Arc<Server>,
) -> io::Result<(Shard, impl Future<Output = ()> + use<>)> {
    let member = seat.member();
    let shard = Shard::new(host.member(member), Box::new(queue))?.seated(seat);
    let handle = shard.handle();
    let listener = TcpListener::bind_on(&handle, (OURS, PORT))?;
    handle.spawn_local(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            spawn_local(hold(stream));
        }
    });
    let main = async move {
        while !server.stop.load(Ordering::Relaxed) {
            let part = handle.with_host(|host| Part {
                connections: host.connections(),
                limit: host.limits().connections,
            });
            server.parts.lock().unwrap()[usize::from(member.index)] = part;
            rt::sleep(LOOK).await;
        }
    };
    Ok((shard, main))
}

/// Keeps a connection until its peer closes it.
async fn hold(mut stream: TcpStream) {
    let mut byte = [0];
    while stream.read(&mut byte).await.is_ok_and(|len| len > 0) {}
}

#[test]
fn one_shard_takes_the_connections_of_all() {
    inside("leases::one_shard_takes_the_connections_of_all", || {
        if !can_make_tap() {
            return;
        }
        serve(|server| {
            // 2.5 times its part.
            let clients = connect_to(1, 100);
            let parts = server.wait_until(|| server.parts()[1].connections == 100);
            assert_eq!(parts.map(|part| part.connections), [0, 100, 0], "{parts:?}");
            assert!(parts[1].limit >= 100, "{parts:?}");
            // What was on its way has come, and all parts add up.
            let sum = || server.parts().iter().map(|part| part.limit).sum::<usize>();
            let parts = server.wait_until(|| sum() == CONNECTIONS);
            assert_eq!(sum(), CONNECTIONS, "{parts:?}");
            drop(clients);
        });
    });
}

#[test]
fn all_shards_at_once_come_to_the_limit_and_no_further() {
    inside("leases::all_shards_at_once_come_to_the_limit_and_no_further", || {
        if !can_make_tap() {
            return;
        }
        serve(|server| {
            // Together they ask for a third more than there is, the first for most of it.
            let clients = [(0, 100), (1, 40), (2, 20)]
                .map(|(index, count)| thread::spawn(move || connect_to(index, count)));
            let clients = clients.map(|thread| thread.join().unwrap());
            // A shard that has one more than another keeps it. None closes, so that the sum never
            // falls: what was read was there at once.
            let least = CONNECTIONS - usize::from(SHARDS - 1);
            let parts = server.wait_until(|| server.connections() >= least);
            assert!((least..=CONNECTIONS).contains(&server.connections()), "{parts:?}");
            assert!(parts[0].connections > CONNECTIONS / 3, "{parts:?}");
            // The others go, and those that the limit refused find room.
            let [first, second, third] = clients;
            drop((second, third));
            let parts = server.wait_until(|| server.parts()[0].connections == 100);
            assert_eq!(parts.map(|part| part.connections), [100, 0, 0], "{parts:?}");
            drop(first);
        });
    });
}
