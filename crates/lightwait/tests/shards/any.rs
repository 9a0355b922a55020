//! Sockets for every address and port.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use lightwait::bridge;
use lightwait::executor::{JoinHandle, spawn_local};
use lightwait::local::{Refusal, Requests, TcpListener, TcpStream, UdpFlows, UdpSocket};
use lightwait::rt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::world::World;

const FAR: &str = "93.184.216.34:443";

fn far() -> SocketAddr {
    FAR.parse().unwrap()
}

/// The output of a task that has ended.
fn result<T>(mut task: JoinHandle<T>) -> T {
    let context = &mut Context::from_waker(Waker::noop());
    match Pin::new(&mut task).poll(context) {
        Poll::Ready(output) => output.unwrap(),
        Poll::Pending => panic!("the task has not ended"),
    }
}

/// A server that takes all IPv4 addresses.
fn world() -> World {
    let mut config = bridge::server_config([1; 32]);
    config.destinations = vec!["0.0.0.0/0".parse().unwrap()];
    World::with(config)
}

#[test]
fn any_accepts_where_its_peer_meant_to_go() {
    let mut world = world();
    let server = world.on_server(async {
        let listener = TcpListener::any().unwrap();
        let error = TcpListener::any().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AddrInUse);
        assert_eq!(Requests::new().unwrap_err().kind(), ErrorKind::AddrInUse);
        for port in [443, 1, 65_535] {
            let (mut stream, destination, peer) = listener.accept().await.unwrap();
            assert_eq!(destination, SocketAddr::new(far().ip(), port));
            assert_eq!(stream.peer_addr().unwrap(), peer);
            stream.write_all(b"hello").await.unwrap();
        }
    });
    let client = world.on_client(async {
        for port in [443, 1, 65_535] {
            let mut stream = TcpStream::connect((far().ip(), port)).await.unwrap();
            let mut heard = String::new();
            stream.read_to_string(&mut heard).await.unwrap();
            assert_eq!(heard, "hello");
        }
    });
    world.finish(&client);
    world.finish(&server);
}

#[test]
fn a_request_is_answered_when_it_is_admitted() {
    const THOUGHT: Duration = Duration::from_millis(2500);
    let mut world = world();
    let server = world.on_server(async {
        let requests = Requests::new().unwrap();
        let request = requests.next().await.unwrap();
        assert_eq!(request.destination(), far());
        rt::sleep(THOUGHT).await;
        assert!(request.is_waiting());
        let peer = request.peer();
        let mut stream = request.admit().await.unwrap();
        assert_eq!((stream.local_addr().unwrap(), stream.peer_addr().unwrap()), (far(), peer));
        stream.write_all(b"hello").await.unwrap();
    });
    let begun = world.now();
    let client = world.on_client(async {
        let mut stream = TcpStream::connect(far()).await.unwrap();
        let opened = rt::measure();
        let mut heard = String::new();
        stream.read_to_string(&mut heard).await.unwrap();
        assert_eq!(heard, "hello");
        opened
    });
    world.finish(&client);
    world.finish(&server);
    let now = world.now();
    assert!(now.since(begun) >= THOUGHT, "not before");
    assert!(now.since(begun) < THOUGHT + Duration::from_millis(50), "and at once then");
}

#[test]
fn a_refused_request_fails_as_it_is_told() {
    let told = [
        (Some(Refusal::Reset), ErrorKind::ConnectionRefused),
        (None, ErrorKind::ConnectionRefused),
    ];
    for (refusal, expected) in told {
        let mut world = world();
        let server = world.on_server(async move {
            let requests = Requests::new().unwrap();
            let request = requests.next().await.unwrap();
            match refusal {
                Some(refusal) => request.refuse(refusal),
                None => drop(request),
            }
            // The listener is there until the answer has left.
            rt::sleep(Duration::from_secs(1)).await;
        });
        let client = world.on_client(async move {
            let error = TcpStream::connect(far()).await.unwrap_err();
            assert_eq!(error.kind(), expected);
        });
        world.finish(&client);
        world.finish(&server);
    }
}

#[test]
fn a_client_that_gives_up_fails_its_admission() {
    let mut world = world();
    let server = world.on_server(async {
        let requests = Requests::new().unwrap();
        let request = requests.next().await.unwrap();
        rt::sleep(Duration::from_secs(5)).await;
        // The client's port answers with RST: nobody is there any more.
        let error = request.admit().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
        let request = requests.next().await.unwrap();
        drop(requests);
        assert!(!request.is_waiting(), "it ends with its listener");
        let error = request.admit().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionAborted);
    });
    let client = world.on_client(async {
        let opened = rt::timeout(Duration::from_secs(2), TcpStream::connect(far())).await;
        assert!(opened.is_err());
        rt::sleep(Duration::from_secs(5)).await;
        TcpStream::connect(far()).await.unwrap_err().kind()
    });
    world.finish(&client);
    world.finish(&server);
}

#[test]
fn flows_carry_datagrams_to_and_fro_and_end_when_they_are_idle() {
    const IDLE: Duration = Duration::from_secs(60);
    let mut world = world();
    let server = world.on_server(async {
        let flows = UdpFlows::new(IDLE).unwrap();
        assert_eq!(UdpFlows::new(IDLE).unwrap_err().kind(), ErrorKind::AddrInUse);
        let mut tasks = Vec::new();
        for _ in 0..2 {
            let flow = flows.accept().await.unwrap();
            assert_eq!(flow.destination().ip(), far().ip());
            tasks.push(spawn_local(async move {
                let mut buffer = [0; 100];
                let begun = rt::measure();
                loop {
                    match flow.recv(&mut buffer).await {
                        Ok(len) => flow.send(&buffer[..len]).await.unwrap(),
                        Err(error) => break assert_eq!(error.kind(), ErrorKind::TimedOut),
                    };
                }
                (flow.destination().port(), rt::measure() - begun)
            }));
        }
        let mut lasted = Vec::new();
        for task in tasks {
            lasted.push(task.await.unwrap());
        }
        lasted
    });
    let client = world.on_client(async {
        let socket = UdpSocket::bind("0.0.0.0:0").await.unwrap();
        let mut buffer = [0; 100];
        for (port, pause) in [(53, 0), (54, 50), (53, 5), (53, 0)] {
            rt::sleep(Duration::from_secs(pause)).await;
            let to = SocketAddr::new(far().ip(), port);
            socket.send_to(b"who?", to).await.unwrap();
            assert_eq!(socket.recv_from(&mut buffer).await.unwrap(), (4, to));
        }
        // One that hears no more is unreachable in turn, and no flow lasts for ever.
        rt::sleep(Duration::from_secs(100)).await;
    });
    world.finish(&client);
    world.finish(&server);
    // From its first datagram the flow of port 53 lasted 55 s longer than it may be idle, and
    // 10 ms at most for the way to and fro.
    let (lasted, slack) = (result(server), Duration::from_millis(10));
    for ((port, lasted), expected) in lasted.into_iter().zip([(53, 115), (54, 60)]) {
        let least = Duration::from_secs(expected.1);
        assert!(port == expected.0 && (least..=least + slack).contains(&lasted), "{lasted:?}");
    }
}
