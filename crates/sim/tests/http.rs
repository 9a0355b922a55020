//! The HTTP server, unmodified, in virtual time: its disk is slow, its link loses, its clients
//! dawdle.

use std::cell::{Cell, RefCell};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::time::{Duration, UNIX_EPOCH};

use lightwait::net::{TcpListener, TcpStream};
use lightwait::rt::{Timer, sleep};
use lightwait::shard::Handle;
use lightwait_core::host::address::Cidr;
use lightwait_core::{Capabilities, Config, Host, Instant, Medium};
use lightwait_http::{Access, Clock, Files, FilesConfig, Server, ServerConfig};
use lightwait_netem::{LinkConfig, Loss};
use lightwait_sim::disk::Disk;
use lightwait_sim::pattern::Pattern;
use lightwait_sim::{Cable, Side, World};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const LARGE: u64 = 3_000_000;

type FileServer = Server<Files<Disk>>;

fn host(side: Side) -> IpAddr {
    Ipv4Addr::new(10, 9, 0, side.index() as u8 + 1).into()
}

/// A client's host at A, a server's at B, and what the server logs.
struct Site {
    world: World,
    server: Rc<FileServer>,
    records: Rc<RefCell<Vec<Access>>>,
}

fn site(loss: f64, seek: Duration) -> Site {
    let link = |seed| LinkConfig {
        rate_bits_per_second: Some(100_000_000),
        delay: Duration::from_millis(10),
        loss: Loss::Uniform(loss),
        seed,
        ..LinkConfig::default()
    };
    let configs = [Side::A, Side::B].map(|side| {
        let address = Cidr::new(host(side), 24).unwrap();
        let capabilities = Capabilities::plain(Medium::Ethernet, 1500);
        let mut config = Config::new(capabilities, address, [side.index() as u8; 32]);
        config.hardware = [2, 0, 0, 0, 0, side.index() as u8 + 1];
        config
    });
    let cable = Cable::new(link(1), link(2), 1500);
    let world = World::new(Instant::from_millis(784_111_777_000), cable, configs).unwrap();
    let disk = Disk::new(&[("small", 1000, 1), ("large", LARGE, 2)], seek, 100_000_000);
    // The time of day is the world's, too.
    let at = world.handle(Side::B);
    let wall = move || UNIX_EPOCH + Duration::from_nanos(at.now().as_nanos());
    let clock = Clock {
        timer: Rc::new(Timer),
        measure: Rc::new(lightwait::rt::measure),
        wall: Rc::new(wall),
    };
    let records = Rc::new(RefCell::new(Vec::new()));
    let log = records.clone();
    let files = Files::new(disk, FilesConfig::default(), clock.clone());
    let server = Server::new(files, ServerConfig::default(), clock)
        .on_access(move |access| log.borrow_mut().push(access.clone()));
    let server = Rc::new(server);
    let listener = TcpListener::bind_on(&world.handle(Side::B), (host(Side::B), 80)).unwrap();
    let serving = server.clone();
    world.spawn(Side::B, async move {
        while let Ok((stream, peer)) = listener.accept().await {
            Handle::current().spawn_local(serving.clone().serve(stream, peer));
        }
    });
    Site { world, server, records }
}

async fn connect() -> TcpStream {
    TcpStream::connect(SocketAddr::new(host(Side::B), 80)).await.unwrap()
}

/// Asks for a file on a kept connection, and gives the head and the body.
async fn get(stream: &mut TcpStream, target: &str) -> (String, Vec<u8>) {
    let request = format!("GET {target} HTTP/1.1\r\nHost: h\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    let head = String::from_utf8(head).unwrap();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
    let mut body = vec![0; length.parse().unwrap()];
    stream.read_exact(&mut body).await.unwrap();
    (head, body)
}

/// Runs until `task` has ended, and gives what it returned.
fn run<T: 'static>(world: &mut World, task: impl Future<Output = T> + 'static) -> T {
    let outcome = Rc::new(Cell::new(None));
    let note = outcome.clone();
    let running = world.spawn(Side::A, async move { note.set(Some(task.await)) });
    world.run_until(Duration::from_secs(3600), |_| running.is_finished()).unwrap();
    outcome.take().expect("the task has ended")
}

#[test]
fn files_arrive_whole_over_a_link_that_loses() {
    let mut site = site(0.02, Duration::from_millis(5));
    run(&mut site.world, async {
        let mut stream = connect().await;
        for (target, length, seed) in
            [("/small", 1000, 1), ("/large", LARGE, 2), ("/small", 1000, 1)]
        {
            let (head, body) = get(&mut stream, target).await;
            assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
            assert_eq!(body.len() as u64, length);
            assert_eq!(Pattern::new(seed).first_difference(0, &body), None, "{target}");
        }
    });
    assert!(site.records.borrow().iter().all(|record| record.complete));
    assert_eq!(site.records.borrow().len(), 3);
}

#[test]
fn dates_are_the_worlds() {
    let mut site = site(0.0, Duration::ZERO);
    let (head, _) = run(&mut site.world, async { get(&mut connect().await, "/small").await });
    assert!(head.contains("date: Sun, 06 Nov 1994 08:49:37 GMT"), "{head}");
    assert!(head.contains("last-modified: Sun, 06 Nov 1994 08:49:37 GMT"), "{head}");
}

#[test]
fn a_slow_disk_holds_nobody_but_those_who_read_it() {
    let mut site = site(0.0, Duration::from_secs(2));
    let took = run(&mut site.world, async {
        let begin = Handle::current().now();
        let mut waiting = connect().await;
        waiting.write_all(b"GET /large HTTP/1.1\r\nHost: h\r\n\r\n").await.unwrap();
        let mut refused = connect().await;
        refused
            .write_all(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n")
            .await
            .unwrap();
        let mut first = [0; 12];
        refused.read_exact(&mut first).await.unwrap();
        assert_eq!(&first, b"HTTP/1.1 405");
        Handle::current().now().since(begin)
    });
    assert!(took < Duration::from_millis(200), "{took:?}");
}

#[test]
fn reading_ahead_hides_the_disk_behind_the_link() {
    // Three million bytes: 240 ms of link, 23 chunks of 128 KiB with 5 ms of seek and 1.3 of
    // transfer each: 145 ms of disk. One after the other would be 385 ms.
    let mut site = site(0.0, Duration::from_millis(5));
    let took = run(&mut site.world, async {
        let mut stream = connect().await;
        // Slow start is over, and the window open.
        get(&mut stream, "/large").await;
        let begin = Handle::current().now();
        get(&mut stream, "/large").await;
        Handle::current().now().since(begin)
    });
    assert!(took < Duration::from_millis(330), "{took:?}");
}

#[test]
fn who_dawdles_is_let_go_in_time() {
    for (text, seconds) in [("", 60), ("GET / HT", 15)] {
        let mut site = site(0.0, Duration::ZERO);
        let took = run(&mut site.world, async move {
            let mut stream = connect().await;
            stream.write_all(text.as_bytes()).await.unwrap();
            let begin = Handle::current().now();
            let mut rest = Vec::new();
            // Closed or reset: over either way.
            let _ = stream.read_to_end(&mut rest).await;
            Handle::current().now().since(begin)
        });
        assert_eq!(took.as_secs(), seconds, "{text:?}");
    }
}

#[test]
fn a_stop_lets_the_response_finish_and_leaves_nothing() {
    let mut site = site(0.01, Duration::from_millis(5));
    let stop = site.server.stop().clone();
    let body = run(&mut site.world, async move {
        let mut stream = connect().await;
        let stopper = async {
            sleep(Duration::from_millis(50)).await;
            stop.request();
        };
        let ((_, body), ()) = tokio::join!(get(&mut stream, "/large"), stopper);
        body
    });
    assert_eq!(body.len() as u64, LARGE);
    assert_eq!(Pattern::new(2).first_difference(0, &body), None);
    let gone = |world: &World| {
        [Side::A, Side::B].iter().all(|side| world.host(*side, Host::connections) == 0)
    };
    site.world.run_until(Duration::from_secs(60), gone).unwrap();
    assert_eq!(site.server.stop().tracked(), 0);
    assert_eq!(site.world.host(Side::B, Host::pages_in_use), 0);
}
