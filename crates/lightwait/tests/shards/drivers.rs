//! The drivers, in real time: a thread, a tokio runtime, and the bridge on it.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream as KernelStream};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use lightwait::bridge::{self, Bridge, SERVER_ADDRESS};
use lightwait::driver::{self, SPIN, Stop};
use lightwait::local::{TcpListener, TcpStream};
use lightwait::shard::Shard;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::sockets::{echo, echo_server, pattern};

pub(crate) fn shards() -> Vec<Shard> {
    let (server_end, client_end) = bridge::wire();
    vec![
        Shard::new(bridge::server_config([1; 32]), Box::new(server_end)).unwrap(),
        Shard::new(bridge::client_config([2; 32]), Box::new(client_end)).unwrap(),
    ]
}

/// Reads while it writes: no buffer holds all the data.
pub(crate) async fn echo_once(stream: TcpStream, data: &[u8]) {
    let (mut reader, mut writer) = tokio::io::split(stream);
    let writing = async {
        writer.write_all(data).await.unwrap();
        writer.shutdown().await.unwrap();
    };
    let mut back = Vec::new();
    let reading = async { reader.read_to_end(&mut back).await.unwrap() };
    tokio::join!(writing, reading);
    assert!(back == data);
}

#[test]
fn a_thread_drives_shards_until_it_is_stopped() {
    for spin in [Duration::ZERO, SPIN] {
        let mut shards = shards();
        let stop = Stop::new();
        let inner = stop.clone();
        shards[0].handle().spawn_local(echo_server());
        shards[1].handle().spawn_local(async move {
            for _ in 0..10 {
                let stream = TcpStream::connect((SERVER_ADDRESS, 7)).await.unwrap();
                echo_once(stream, &pattern(100_000)).await;
                lightwait::rt::sleep(Duration::from_micros(300)).await;
            }
            inner.set();
        });
        driver::run(&mut shards, &stop, spin).unwrap();
        assert!(stop.is_set());
    }
}

#[cfg(feature = "hyper")]
#[test]
fn within_a_turn_the_measured_time_goes_on_and_the_turns_stands() {
    let mut shards = shards();
    let stop = Stop::new();
    let inner = stop.clone();
    let measured = shards[0].handle().spawn_local(async move {
        let now = || (hyper::rt::Timer::now(&lightwait::rt::Timer), lightwait::rt::measure());
        let (turn, begin) = now();
        thread::sleep(Duration::from_millis(2));
        let (turn_after, end) = now();
        inner.set();
        (begin >= turn && turn_after == turn, end - begin)
    });
    driver::run(&mut shards, &stop, SPIN).unwrap();
    let (stands, passed) = now_or_never(measured);
    assert!(stands && passed >= Duration::from_millis(2), "{passed:?}");
}

/// The output of a task that has ended.
#[cfg(feature = "hyper")]
fn now_or_never<T>(task: lightwait::executor::JoinHandle<T>) -> T {
    let mut task = std::pin::pin!(task);
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match task.as_mut().poll(&mut context) {
        std::task::Poll::Ready(Ok(output)) => output,
        _ => panic!("it has not ended"),
    }
}

#[test]
fn a_sleeping_thread_is_roused_by_stop_and_by_remote_wakes() {
    let stop = Stop::new();
    let (sender, receiver) = tokio::sync::oneshot::channel();
    let (answered, answer) = mpsc::channel();
    let inner = stop.clone();
    let thread = thread::spawn(move || {
        let mut shards = shards();
        shards[0].handle().spawn_local(async move {
            let value: u32 = receiver.await.unwrap();
            answered.send(value + 1).unwrap();
        });
        driver::run(&mut shards, &inner, Duration::ZERO).unwrap();
    });
    thread::sleep(Duration::from_millis(30));
    sender.send(41).unwrap();
    assert_eq!(answer.recv_timeout(Duration::from_secs(10)).unwrap(), 42);
    thread::sleep(Duration::from_millis(30));
    let start = Instant::now();
    stop.set();
    thread.join().unwrap();
    assert!(start.elapsed() < Duration::from_secs(5));
}

pub(crate) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

#[test]
fn under_tokio_its_own_tasks_use_the_sockets() {
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime(), async {
        let shards = shards();
        let [server, client] = [shards[0].handle(), shards[1].handle()];
        let driver = tokio::task::spawn_local(driver::drive(shards));
        let listener = TcpListener::bind_on(&server, (SERVER_ADDRESS, 7)).unwrap();
        let service = tokio::task::spawn_local(async move {
            let (stream, _) = listener.accept().await.unwrap();
            echo(stream).await.unwrap()
        });
        let stream = TcpStream::connect_on(&client, (SERVER_ADDRESS, 7)).await.unwrap();
        echo_once(stream, &pattern(2_000_000)).await;
        assert_eq!(service.await.unwrap(), 2_000_000);
        assert!(!driver.is_finished());
    });
}

/// Runs `client` on a thread of its own against an echo server behind the bridge.
fn behind_the_bridge(client: impl FnOnce(SocketAddr) + Send + 'static) {
    runtime().block_on(async {
        let shards = shards();
        let [server, stack] = [shards[0].handle(), shards[1].handle()];
        server.spawn_local(echo_server());
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let target = (SERVER_ADDRESS, 7).into();
        let bridge = Bridge::new(listener, stack.clone(), target).unwrap();
        let address = bridge.local_addr().unwrap();
        stack.spawn_local(bridge.run());
        let (done, finished) = tokio::sync::oneshot::channel::<()>();
        let thread = thread::spawn(move || {
            client(address);
            drop(done);
        });
        tokio::select! {
            failure = driver::drive(shards) => panic!("{failure:?}"),
            _ = finished => (),
        }
        thread.join().unwrap();
    });
}

#[test]
fn the_bridge_relays_streams_and_their_ends() {
    behind_the_bridge(|address| {
        let data = pattern(8_000_000);
        let mut stream = KernelStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let mut writer = stream.try_clone().unwrap();
        let sent = data.clone();
        let sending = thread::spawn(move || {
            writer.write_all(&sent).unwrap();
            writer.shutdown(Shutdown::Write).unwrap();
        });
        let mut back = Vec::new();
        stream.read_to_end(&mut back).unwrap();
        sending.join().unwrap();
        assert!(back == data);
    });
}

#[test]
fn the_bridge_relays_many_short_connections() {
    behind_the_bridge(|address| {
        for number in 0..2000u32 {
            let mut stream = KernelStream::connect(address).unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
            stream.write_all(&number.to_be_bytes()).unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
            let mut back = Vec::new();
            stream.read_to_end(&mut back).unwrap();
            assert_eq!(back, number.to_be_bytes());
        }
    });
}

#[test]
fn a_reader_that_stops_holds_up_the_writer_behind_the_bridge() {
    behind_the_bridge(|address| {
        let mut stream = KernelStream::connect(address).unwrap();
        stream.set_nonblocking(true).unwrap();
        let (block, mut sent, mut idle) = (vec![7; 1 << 16], 0u64, 0);
        // The client reads nothing: its data comes back and fills every buffer on the way.
        while idle < 20 {
            match stream.write(&block) {
                Ok(len) => (sent, idle) = (sent + len as u64, 0),
                Err(_) => {
                    idle += 1;
                    thread::sleep(Duration::from_millis(10));
                }
            }
            assert!(sent < 1 << 28, "nothing holds the writer back");
        }
        stream.set_nonblocking(false).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let back = std::io::copy(&mut stream, &mut std::io::sink()).unwrap();
        assert_eq!(back, sent);
    });
}

#[test]
fn the_server_learns_who_is_behind_the_bridge() {
    runtime().block_on(async {
        let shards = shards();
        let [server, stack] = [shards[0].handle(), shards[1].handle()];
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let bridge = Bridge::new(listener, stack.clone(), (SERVER_ADDRESS, 7).into()).unwrap();
        let (address, clients) = (bridge.local_addr().unwrap(), bridge.clients());
        stack.spawn_local(bridge.run());
        let kernel = KernelStream::connect(address).unwrap();
        let service = server.spawn_local(async move {
            let listener = TcpListener::bind((SERVER_ADDRESS, 7)).await.unwrap();
            let (_stream, peer) = listener.accept().await.unwrap();
            (peer, clients.behind(peer).map(|client| client.address()), clients)
        });
        let (peer, real, clients) = tokio::select! {
            failure = driver::drive(shards) => panic!("{failure:?}"),
            result = service => result.unwrap(),
        };
        assert_eq!(real, Some(kernel.local_addr().unwrap()));
        assert!(peer.to_string().starts_with("100.65."), "{peer}");
        assert!(clients.behind("100.65.9.9:1".parse().unwrap()).is_none());
    });
}

#[test]
fn a_refused_connection_behind_the_bridge_is_reset() {
    runtime().block_on(async {
        let shards = shards();
        let stack = shards[1].handle();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let bridge = Bridge::new(listener, stack.clone(), (SERVER_ADDRESS, 9).into()).unwrap();
        let address = bridge.local_addr().unwrap();
        stack.spawn_local(bridge.run());
        let client = thread::spawn(move || {
            let mut stream = KernelStream::connect(address).unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
            stream.read(&mut [0; 1]).unwrap_err().kind()
        });
        let driving = driver::drive(shards);
        let _ = tokio::time::timeout(Duration::from_millis(300), driving).await;
        assert_eq!(client.join().unwrap(), std::io::ErrorKind::ConnectionReset);
    });
}
