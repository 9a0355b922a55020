//! A stack on a TUN that takes every destination, against the kernel as its client.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream as KernelStream, UdpSocket as KernelSocket};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use lightwait::device::{TapConfig, Tun};
use lightwait::driver::{self, SPIN, Stop};
use lightwait::executor::spawn_local;
use lightwait::local::{Refusal, Request, Requests, TcpListener, UdpFlows};
use lightwait::rt;
use lightwait::shard::{Handle, Shard};
use lightwait_core::{Capabilities, Config, Medium};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::namespace::{can_make_tap, inside, ip};

/// Patience with what may not come.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long the stack thinks about a request.
const THOUGHT: Duration = Duration::from_millis(300);

fn at(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

/// Runs `server` on a stack without an address, to which the kernel's default routes lead, and
/// `client` on this thread.
fn through_a_tun<F: Future<Output = ()> + 'static>(
    server: impl FnOnce(Handle) -> F + Send + 'static,
    client: impl FnOnce(),
) {
    let host_addresses = vec!["10.77.0.1/24".parse().unwrap(), "fd77::1/64".parse().unwrap()];
    let tun = Tun::open(&TapConfig { host_addresses, ..TapConfig::new("lw0") }).unwrap();
    ip("route add default dev lw0");
    ip("-6 route add default dev lw0");
    let (stop, (ready, is_ready)) = (Stop::new(), mpsc::channel());
    let ended = stop.clone();
    let thread = thread::spawn(move || {
        let plain = Capabilities::plain(Medium::Ip, 1500);
        let config = Config::new(plain, "10.77.0.2/24".parse().unwrap(), [7; 32]);
        let all = ["0.0.0.0/0", "::/0"].map(|text| text.parse().unwrap());
        let config = Config { addresses: Vec::new(), destinations: all.to_vec(), ..config };
        let shard = Shard::new(config, Box::new(tun)).unwrap();
        let handle = shard.handle();
        handle.spawn_local(server(handle.clone()));
        ready.send(()).unwrap();
        driver::run(&mut [shard], &ended, SPIN).unwrap();
    });
    is_ready.recv_timeout(PATIENCE).unwrap();
    client();
    stop.set();
    thread.join().unwrap();
}

#[test]
fn the_kernel_reaches_every_destination_and_port() {
    inside("any_destination::the_kernel_reaches_every_destination_and_port", || {
        if !can_make_tap() {
            return;
        }
        let serve = |handle: Handle| {
            let listener = TcpListener::any_on(&handle).unwrap();
            async move {
                loop {
                    let (mut stream, destination, peer) = listener.accept().await.unwrap();
                    spawn_local(async move {
                        let told = format!("{destination} {peer}\n");
                        stream.write_all(told.as_bytes()).await.unwrap();
                        let mut said = Vec::new();
                        stream.read_to_end(&mut said).await.unwrap();
                        stream.write_all(&said).await.unwrap();
                    });
                }
            }
        };
        through_a_tun(serve, || {
            for to in ["93.184.216.34:443", "8.8.8.8:1", "[2001:db8::1]:65535"].map(at) {
                let mut stream = KernelStream::connect_timeout(&to, PATIENCE).unwrap();
                let said = vec![b'x'; 1 << 20];
                stream.write_all(&said).unwrap();
                stream.shutdown(std::net::Shutdown::Write).unwrap();
                let mut heard = String::new();
                stream.read_to_string(&mut heard).unwrap();
                let (told, back) = heard.split_once('\n').unwrap();
                assert_eq!(told, format!("{to} {}", stream.local_addr().unwrap()));
                assert!(back.as_bytes() == said);
            }
        });
    });
}

async fn judge(request: Request) {
    rt::sleep(THOUGHT).await;
    match request.destination().port() {
        1 => request.refuse(Refusal::Reset),
        2 => request.refuse(Refusal::HostUnreachable),
        3 => request.refuse(Refusal::NetworkUnreachable),
        _ => request.admit().await.unwrap().write_all(b"in").await.unwrap(),
    }
}

#[test]
fn the_kernel_waits_for_the_verdict_and_hears_it() {
    inside("any_destination::the_kernel_waits_for_the_verdict_and_hears_it", || {
        if !can_make_tap() {
            return;
        }
        let serve = |handle: Handle| {
            let requests = Requests::on(&handle).unwrap();
            async move {
                loop {
                    spawn_local(judge(requests.next().await.unwrap()));
                }
            }
        };
        through_a_tun(serve, || {
            for host in ["93.184.216.34", "[2001:db8::1]"] {
                for (port, expected) in [
                    (1, Err(ErrorKind::ConnectionRefused)),
                    (2, Err(ErrorKind::HostUnreachable)),
                    (3, Err(ErrorKind::NetworkUnreachable)),
                    (4, Ok(())),
                ] {
                    let begun = std::time::Instant::now();
                    let to = at(&format!("{host}:{port}"));
                    let opened = KernelStream::connect_timeout(&to, PATIENCE);
                    assert!(begun.elapsed() >= THOUGHT, "{to}: nothing is said before");
                    let result = opened.as_ref().map(|_| ()).map_err(std::io::Error::kind);
                    assert_eq!(result, expected, "{to}");
                    if let Ok(mut stream) = opened {
                        let mut heard = String::new();
                        stream.read_to_string(&mut heard).unwrap();
                        assert_eq!(heard, "in");
                    }
                }
            }
        });
    });
}

#[test]
fn the_kernels_datagrams_reach_every_destination() {
    inside("any_destination::the_kernels_datagrams_reach_every_destination", || {
        if !can_make_tap() {
            return;
        }
        let serve = |handle: Handle| {
            let flows = UdpFlows::on(&handle, Duration::from_secs(60)).unwrap();
            async move {
                loop {
                    let flow = flows.accept().await.unwrap();
                    spawn_local(async move {
                        let mut buffer = vec![0; 70_000];
                        while let Ok(len) = flow.recv(&mut buffer).await {
                            flow.send(&buffer[..len]).await.unwrap();
                        }
                    });
                }
            }
        };
        through_a_tun(serve, || {
            for to in ["8.8.8.8:53", "8.8.4.4:53", "[2001:db8::1]:53"].map(at) {
                let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
                let socket = KernelSocket::bind(any).unwrap();
                socket.set_read_timeout(Some(PATIENCE)).unwrap();
                socket.connect(to).unwrap();
                for len in [0, 1, 1472, 9000] {
                    let sent = vec![b'y'; len];
                    socket.send(&sent).unwrap();
                    let mut buffer = vec![0; 70_000];
                    let len = socket.recv(&mut buffer).unwrap();
                    assert!(buffer[..len] == sent, "{to}: {} bytes", sent.len());
                }
            }
        });
    });
}
