//! Our TCP against the kernel's, over devices that end in the kernel: both IP versions, both as
//! client and as server, with and without offload, and over a bad link.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener as KernelListener, TcpStream as KernelStream};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use lightwait::device::{AfPacket, Device};
use lightwait::driver::{self, SPIN, Stop};
use lightwait::executor::spawn_local;
use lightwait::local::{TcpListener, TcpStream};
use lightwait::shard::{Handle, Shard};
use lightwait::wrap::Link;
use lightwait_core::{Capabilities, Config, Medium};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::frames::OUR_MAC;
use crate::namespace;

/// Our address and the kernel's, in each IP version.
const PAIRS: [(&str, &str); 2] = [("10.77.0.2", "10.77.0.1"), ("fd77::2", "fd77::1")];

const PORT: u16 = 7;

/// The amount of data that is exchanged.
#[derive(Clone, Copy)]
pub(crate) struct Amount {
    bulk_bytes: usize,
    short_connections: usize,
}

pub(crate) const MUCH: Amount = Amount { bulk_bytes: 20_000_000, short_connections: 300 };
const LITTLE: Amount = Amount { bulk_bytes: 500_000, short_connections: 5 };

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 + i / 251 + i / 65_537) as u8).collect()
}

pub(crate) fn config() -> Config {
    let plain = Capabilities::plain(Medium::Ethernet, 1500);
    Config {
        hardware: OUR_MAC,
        addresses: vec!["10.77.0.2/24".parse().unwrap(), "fd77::2/64".parse().unwrap()],
        ..Config::new(plain, "10.77.0.2/24".parse().unwrap(), [3; 32])
    }
}

async fn echo(mut stream: TcpStream) -> std::io::Result<()> {
    let mut buffer = vec![0; 64 << 10];
    loop {
        match stream.read(&mut buffer).await? {
            0 => return stream.shutdown().await,
            len => stream.write_all(&buffer[..len]).await?,
        }
    }
}

async fn serve() {
    let listener = TcpListener::bind(("::", PORT)).await.unwrap();
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        spawn_local(echo(stream));
    }
}

/// Runs `body` on a shard of a thread of its own, an echo server beside it, until `stop`.
fn shard(
    open: impl FnOnce() -> Box<dyn Device> + Send + 'static,
    stop: &Stop,
    body: impl FnOnce(Handle) + Send + 'static,
) -> thread::JoinHandle<()> {
    let stop = stop.clone();
    thread::spawn(move || {
        let shard = Shard::new(config(), open()).unwrap();
        shard.handle().spawn_local(serve());
        body(shard.handle());
        driver::run(&mut [shard], &stop, SPIN).unwrap();
    })
}

/// The kernel's data comes back whole.
fn kernel_as_client(server: SocketAddr, data: &[u8]) {
    let mut stream = KernelStream::connect_timeout(&server, Duration::from_secs(20)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut writer = stream.try_clone().unwrap();
    let sent = data.to_vec();
    let sending = thread::spawn(move || {
        writer.write_all(&sent).unwrap();
        writer.shutdown(Shutdown::Write).unwrap();
    });
    let mut back = Vec::new();
    stream.read_to_end(&mut back).unwrap();
    sending.join().unwrap();
    assert!(back == data, "{} of {} bytes came back", back.len(), data.len());
}

/// The kernel sends back one connection's bytes.
fn kernel_as_server(address: &str) -> SocketAddr {
    let ip: std::net::IpAddr = address.parse().unwrap();
    let listener = KernelListener::bind((ip, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        std::io::copy(&mut stream.try_clone().unwrap(), &mut stream).unwrap();
    });
    address
}

/// Our data to the kernel comes back whole.
async fn ours_as_client(server: SocketAddr, data: Vec<u8>) {
    let (mut reader, mut writer) = TcpStream::connect(server).await.unwrap().into_split();
    let sent = data.clone();
    spawn_local(async move { writer.write_all(&sent).await.unwrap() });
    let mut back = Vec::new();
    reader.read_to_end(&mut back).await.unwrap();
    assert!(back == data, "{} of {} bytes came back", back.len(), data.len());
}

pub(crate) fn exchange(open: impl FnOnce() -> Box<dyn Device> + Send + 'static, amount: Amount) {
    let stop = Stop::new();
    let targets = PAIRS.map(|(_, kernel)| kernel_as_server(kernel));
    let (done, finished) = mpsc::channel();
    let thread = shard(open, &stop, move |handle| {
        for target in targets {
            let done = done.clone();
            handle.spawn_local(async move {
                ours_as_client(target, pattern(amount.bulk_bytes)).await;
                done.send(()).unwrap();
            });
        }
    });
    for _ in PAIRS {
        finished.recv_timeout(Duration::from_secs(120)).expect("our client finishes");
    }
    for (ours, _) in PAIRS {
        let server = SocketAddr::new(ours.parse().unwrap(), PORT);
        kernel_as_client(server, &pattern(amount.bulk_bytes));
        for number in 0..amount.short_connections {
            kernel_as_client(server, &pattern(number + 1));
        }
    }
    stop.set();
    thread.join().unwrap();
}

fn over_tap(test: &str, offload: bool) {
    namespace::inside(test, || {
        if namespace::can_make_tap() {
            // Opened here: the kernel's end must have its addresses before a server listens on
            // them.
            let tap = crate::tap(offload);
            exchange(move || Box::new(tap), MUCH);
        }
    });
}

#[test]
fn tcp_over_a_tap() {
    over_tap("kernel_tcp::tcp_over_a_tap", true);
}

#[test]
fn tcp_over_a_tap_without_offload() {
    over_tap("kernel_tcp::tcp_over_a_tap_without_offload", false);
}

#[test]
fn tcp_over_a_packet_socket() {
    namespace::inside("kernel_tcp::tcp_over_a_packet_socket", || {
        crate::veth();
        exchange(|| Box::new(AfPacket::open("lw0", true).unwrap()), MUCH);
    });
}

#[test]
fn tcp_over_a_packet_socket_without_offload() {
    namespace::inside("kernel_tcp::tcp_over_a_packet_socket_without_offload", || {
        crate::veth();
        namespace::run("ethtool", "-K lw1 tx off tso off gso off");
        exchange(|| Box::new(AfPacket::open("lw0", false).unwrap()), MUCH);
    });
}

#[test]
fn tcp_over_a_bad_link() {
    namespace::inside("kernel_tcp::tcp_over_a_bad_link", || {
        crate::veth();
        let bad = "delay=5ms,loss=1%,reorder=5%:1ms,duplicate=1%,corrupt=0.1%,seed=5";
        exchange(
            move || {
                let device = AfPacket::open("lw0", true).unwrap();
                Box::new(Link::both_ways(device, &bad.parse().unwrap()))
            },
            LITTLE,
        );
    });
}
