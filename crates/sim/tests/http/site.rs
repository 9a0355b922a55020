//! A file server on one host, and its clients on the other.

use std::cell::RefCell;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use lightwait::local::TcpStream;
use lightwait::shard;
use lightwait_core::address::Cidr;
use lightwait_core::{Capabilities, Config, Instant, Medium};
use lightwait_http::{Access, Files, FilesConfig, Server, ServerConfig};
use lightwait_netem::{LinkConfig, Loss, Rate};
use lightwait_sim::disk::Disk;
use lightwait_sim::web::{self, FileServer};
use lightwait_sim::{Cable, Side, World};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

pub(crate) const LARGE: u64 = 3_000_000;

pub(crate) fn host(side: Side) -> IpAddr {
    Ipv4Addr::new(10, 9, 0, side.index() as u8 + 1).into()
}

/// A client's host at A, a server's at B, and the server's log.
pub(crate) struct Site {
    pub(crate) world: World,
    pub(crate) server: Rc<FileServer>,
    pub(crate) records: Rc<RefCell<Vec<Access>>>,
    /// The memory of files on their way.
    pub(crate) memory: shard::Memory,
}

pub(crate) fn site(loss: f64, seek: Duration) -> Site {
    site_with(loss, seek, |_| {})
}

/// Makes a [`site`]; `configure` changes the configuration of the server's host.
pub(crate) fn site_with(loss: f64, seek: Duration, configure: impl Fn(&mut Config)) -> Site {
    let link = LinkConfig {
        rate: Rate::BitsPerSecond(100_000_000),
        delay: Duration::from_millis(10),
        loss: Loss::Uniform(loss),
        ..LinkConfig::default()
    };
    let disk = Disk::new(&[("small", 1000, 1), ("large", LARGE, 2)], seek, 100_000_000);
    site_of(&link, disk, |side, config| {
        if side == Side::B {
            configure(config);
        }
    })
}

/// Makes a site of that disk behind that link; `configure` changes the hosts' configurations.
pub(crate) fn site_of(
    link: &LinkConfig,
    disk: Disk,
    configure: impl Fn(Side, &mut Config),
) -> Site {
    let configs = [Side::A, Side::B].map(|side| {
        let address = Cidr::new(host(side), 24).unwrap();
        let capabilities = Capabilities::plain(Medium::Ethernet, 1500);
        let mut config = Config::new(capabilities, address, [side.index() as u8; 32]);
        config.hardware = [2, 0, 0, 0, 0, side.index() as u8 + 1];
        configure(side, &mut config);
        config
    });
    let link = |seed| LinkConfig { seed, ..link.clone() };
    let cable = Cable::new(link(1), link(2), 1500);
    let world = World::new(Instant::from_millis(784_111_777_000), cable, configs).unwrap();
    let clock = web::clock(&world, Side::B);
    let records = Rc::new(RefCell::new(Vec::new()));
    let log = records.clone();
    let budget = web::memory(&world, Side::B);
    let files = Files::new(disk, FilesConfig::default(), clock.clone()).with_memory(budget.clone());
    let server = Server::new(files, ServerConfig::default(), clock)
        .with_memory(budget)
        .on_access(move |access| log.borrow_mut().push(access));
    let server = Rc::new(server);
    web::serve(&world, Side::B, (host(Side::B), 80).into(), &server).unwrap();
    let memory = world.handle(Side::B).memory();
    Site { world, server, records, memory }
}

pub(crate) async fn try_connect() -> io::Result<TcpStream> {
    TcpStream::connect(SocketAddr::new(host(Side::B), 80)).await
}

pub(crate) async fn connect() -> TcpStream {
    try_connect().await.unwrap()
}

/// Reads the head of an answer.
pub(crate) async fn read_head(stream: &mut TcpStream) -> io::Result<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    Ok(String::from_utf8(head).unwrap())
}

/// Requests a file on a kept connection. Returns the head and the body.
pub(crate) async fn try_get(stream: &mut TcpStream, target: &str) -> io::Result<(String, Vec<u8>)> {
    let request = format!("GET {target} HTTP/1.1\r\nHost: h\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let head = read_head(stream).await?;
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
    let mut body = vec![0; length.parse().unwrap()];
    stream.read_exact(&mut body).await?;
    Ok((head, body))
}

/// Requests a file like [`try_get`], and panics if that fails.
pub(crate) async fn get(stream: &mut TcpStream, target: &str) -> (String, Vec<u8>) {
    try_get(stream, target).await.unwrap()
}

/// Runs until `task` has ended. Returns its output.
pub(crate) fn run<T: 'static>(world: &mut World, task: impl Future<Output = T> + 'static) -> T {
    world.run(Side::A, Duration::from_secs(3600), task).unwrap()
}
