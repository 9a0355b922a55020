//! Our UDP against the kernel's, over devices that end in the kernel: both IP versions, both ways,
//! with and without offload; datagrams of every size, closed ports, and a path that is narrower
//! than the link.

use std::io::{ErrorKind, IoSliceMut};
use std::net::{SocketAddr, UdpSocket as KernelSocket};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use lightwait::device::{AfPacket, Device};
use lightwait::driver::{self, SPIN, Stop};
use lightwait::local::{Transmit, UdpSocket};
use lightwait::rt;
use lightwait::shard::{Handle, Shard};

use crate::kernel_tcp::config;
use crate::namespace;

/// Our address and the kernel's, in each IP version.
pub(crate) const PAIRS: [(&str, &str); 2] = [("10.77.0.2", "10.77.0.1"), ("fd77::2", "fd77::1")];

/// A port with an echo server, and one without.
const PORT: u16 = 7;
const CLOSED: u16 = 8;

/// Around what fits in a packet of 1480 and of 1500 bytes, and up to the largest.
const LENGTHS: [usize; 14] =
    [0, 1, 100, 1432, 1433, 1452, 1453, 1472, 1473, 2945, 9000, 30_001, 65_000, 65_507];

/// Patience with what may not come.
const PATIENCE: Duration = Duration::from_secs(10);

pub(crate) fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 + i / 251 + len) as u8).collect()
}

pub(crate) fn at(address: &str, port: u16) -> SocketAddr {
    SocketAddr::new(address.parse().unwrap(), port)
}

async fn serve() {
    let socket = UdpSocket::bind(("::", PORT)).await.unwrap();
    let mut buffer = vec![0; 70_000];
    loop {
        let (len, from) = socket.recv_from(&mut buffer).await.unwrap();
        socket.send_to(&buffer[..len], from).await.unwrap();
    }
}

/// Runs `client` on a shard of a thread of its own, an echo server beside it. When it is over,
/// `kernel` runs on this thread against that server.
pub(crate) fn exchange<F: Future<Output = ()> + 'static>(
    open: impl FnOnce() -> Box<dyn Device> + Send + 'static,
    client: impl FnOnce(Handle) -> F + Send + 'static,
    kernel: impl FnOnce(),
) {
    let (stop, (done, finished)) = (Stop::new(), mpsc::channel());
    let ended = stop.clone();
    let thread = thread::spawn(move || {
        let mut config = config();
        config.gateways = PAIRS.map(|(_, kernel)| kernel.parse().unwrap()).to_vec();
        let shard = Shard::new(config, open()).unwrap();
        let handle = shard.handle();
        handle.spawn_local(serve());
        shard.handle().spawn_local(async move {
            client(handle).await;
            done.send(()).unwrap();
        });
        driver::run(&mut [shard], &ended, SPIN).unwrap();
    });
    finished.recv_timeout(Duration::from_secs(120)).expect("our client finishes");
    kernel();
    stop.set();
    thread.join().unwrap();
}

/// The kernel sends every datagram back.
fn kernel_as_server(address: &str) -> SocketAddr {
    let socket = KernelSocket::bind((address, 0)).unwrap();
    let bound = socket.local_addr().unwrap();
    thread::spawn(move || {
        let mut buffer = vec![0; 70_000];
        while let Ok((len, from)) = socket.recv_from(&mut buffer) {
            socket.send_to(&buffer[..len], from).unwrap();
        }
    });
    bound
}

async fn ours_as_client(server: SocketAddr) {
    let socket = UdpSocket::bind((any(&server), 0)).await.unwrap();
    socket.connect(server).await.unwrap();
    let mut buffer = vec![0; 70_000];
    for len in LENGTHS {
        assert_eq!(socket.send(&pattern(len)).await.unwrap(), len);
        let back = rt::timeout(PATIENCE, socket.recv(&mut buffer)).await;
        let back = back.unwrap_or_else(|_| panic!("{len} bytes of {server} do not come back"));
        assert!(buffer[..back.unwrap()] == pattern(len), "{server}: {len} bytes");
    }
    many_at_once(server).await;
    let closed = UdpSocket::bind((any(&server), 0)).await.unwrap();
    closed.connect((server.ip(), CLOSED)).await.unwrap();
    closed.send(b"is there anybody?").await.unwrap();
    let refused = rt::timeout(PATIENCE, closed.recv(&mut buffer)).await.unwrap().unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused, "{server}");
}

/// Twenty datagrams leave with one call, and come back one by one.
async fn many_at_once(server: SocketAddr) {
    let socket = UdpSocket::bind((any(&server), 0)).await.unwrap();
    let sent = pattern(19 * 1200 + 50);
    let transmit = Transmit { segment: Some(1200), ..Transmit::to(server) };
    socket.transmit(&transmit, &sent).await.unwrap();
    let mut back = Vec::new();
    while back.len() < sent.len() {
        let mut buffers = vec![[0; 2000]; 32];
        let mut slices: Vec<IoSliceMut<'_>> =
            buffers.iter_mut().map(|buffer| IoSliceMut::new(buffer)).collect();
        let mut told = [None; 32];
        let read = socket.receive_many(&mut slices, &mut told);
        let count = rt::timeout(PATIENCE, read).await.expect("all come back").unwrap();
        for (buffer, told) in buffers.iter().zip(&told[..count]) {
            let told = told.unwrap();
            assert_eq!((told.from, told.segment), (server, told.len));
            back.extend_from_slice(&buffer[..told.len]);
        }
    }
    assert!(back == sent, "{server}: in order");
}

pub(crate) fn any(server: &SocketAddr) -> &'static str {
    if server.is_ipv4() { "0.0.0.0" } else { "::" }
}

fn kernel_as_client(ours: &str) {
    let any = if ours.contains(':') { "::" } else { "0.0.0.0" };
    let socket = KernelSocket::bind((any, 0)).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.connect(at(ours, PORT)).unwrap();
    let mut buffer = vec![0; 70_000];
    for len in LENGTHS {
        socket.send(&pattern(len)).unwrap();
        let back = socket.recv(&mut buffer).unwrap_or_else(|e| panic!("{ours}: {len}: {e}"));
        assert!(buffer[..back] == pattern(len), "{ours}: {len} bytes");
    }
    let closed = KernelSocket::bind((any, 0)).unwrap();
    closed.set_read_timeout(Some(PATIENCE)).unwrap();
    closed.connect(at(ours, CLOSED)).unwrap();
    closed.send(b"is there anybody?").unwrap();
    assert_eq!(closed.recv(&mut buffer).unwrap_err().kind(), ErrorKind::ConnectionRefused);
}

fn echoes(open: impl FnOnce() -> Box<dyn Device> + Send + 'static) {
    let servers = PAIRS.map(|(_, kernel)| kernel_as_server(kernel));
    let client = move |_| async move {
        for server in servers {
            ours_as_client(server).await;
        }
    };
    exchange(open, client, || PAIRS.iter().for_each(|(ours, _)| kernel_as_client(ours)));
}

fn over_tap(test: &str, offload: bool) {
    namespace::inside(test, || {
        if namespace::can_make_tap() {
            let tap = crate::tap(offload);
            echoes(move || Box::new(tap));
        }
    });
}

#[test]
fn udp_over_a_tap() {
    over_tap("kernel_udp::udp_over_a_tap", true);
}

#[test]
fn udp_over_a_tap_without_offload() {
    over_tap("kernel_udp::udp_over_a_tap_without_offload", false);
}

#[test]
fn udp_over_a_packet_socket() {
    namespace::inside("kernel_udp::udp_over_a_packet_socket", || {
        crate::veth();
        echoes(|| Box::new(AfPacket::open("lw0", true).unwrap()));
    });
}

#[test]
fn udp_over_a_packet_socket_without_offload() {
    namespace::inside("kernel_udp::udp_over_a_packet_socket_without_offload", || {
        crate::veth();
        namespace::run("ethtool", "-K lw1 tx off tso off gso off");
        echoes(|| Box::new(AfPacket::open("lw0", false).unwrap()));
    });
}

/// A datagram crosses the kernel to a link of 1280 bytes: the kernel says that it is too big.
async fn cross(handle: Handle, to: SocketAddr) {
    let headers = if to.is_ipv4() { 28 } else { 48 };
    let socket = UdpSocket::bind_on(&handle, (any(&to), 0)).unwrap();
    socket.set_dont_fragment(true).unwrap();
    assert_eq!(socket.payload_max(to.ip()), 1500 - headers);
    for _ in 0..50 {
        match socket.send_to(&pattern(1400), to).await {
            Ok(_) => rt::sleep(Duration::from_millis(100)).await,
            Err(error) => {
                assert_eq!(error.raw_os_error(), Some(libc::EMSGSIZE));
                break;
            }
        }
    }
    assert_eq!(socket.payload_max(to.ip()), 1280 - headers, "{to}");
    assert!(socket.send_to(&pattern(1280 - headers), to).await.is_ok());
    // The kernel forwards fragments of what may be cut.
    socket.set_dont_fragment(false).unwrap();
    socket.send_to(&pattern(1400), to).await.unwrap();
}

#[test]
fn a_narrow_path_is_found_by_what_a_router_says() {
    namespace::inside("kernel_udp::a_narrow_path_is_found_by_what_a_router_says", || {
        crate::veth();
        for what in ["ipv4/ip_forward", "ipv6/conf/all/forwarding"] {
            std::fs::write(format!("/proc/sys/net/{what}"), "1").unwrap();
        }
        namespace::ip("link add narrow mtu 1280 type veth peer name beyond mtu 1280");
        namespace::ip("link set narrow up");
        namespace::ip("link set beyond up");
        namespace::ip("addr add 10.88.0.1/24 dev narrow");
        namespace::ip("addr add fd88::1/64 dev narrow nodad");
        namespace::ip("neigh add 10.88.0.2 lladdr 02:00:00:00:00:77 dev narrow");
        namespace::ip("neigh add fd88::2 lladdr 02:00:00:00:00:77 dev narrow");
        let client = |handle: Handle| async move {
            for to in ["10.88.0.2", "fd88::2"] {
                cross(handle.clone(), at(to, 9)).await;
            }
        };
        let open = || Box::new(AfPacket::open("lw0", false).unwrap()) as Box<dyn Device>;
        exchange(open, client, || {});
    });
}
