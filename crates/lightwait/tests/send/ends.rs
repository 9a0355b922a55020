//! The ends of stacks, runtimes and tasks: errors, never a call that hangs.

use std::io;
use std::thread;
use std::time::Duration;

use lightwait::device::{Device, Sink, ThreadedMemory};
use lightwait::net::{StackHandle, TcpListener, TcpStream};
use lightwait::{Config, Stack};
use lightwait_core::{Capabilities, Host, Instant, Medium, Outbox};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::runtime::Builder;

use crate::world::{PORT, connected, kind, pair, run, stacks};

const ENDED: Option<io::ErrorKind> = Some(io::ErrorKind::ConnectionAborted);

/// Calls of every kind that wait on a stack. Each returns how it failed.
async fn waiting_calls(
    stack: &StackHandle,
    other: &StackHandle,
) -> Vec<tokio::task::JoinHandle<Option<io::ErrorKind>>> {
    let listener = TcpListener::bind_on(stack, (stack.address(), PORT)).await.unwrap();
    let (mut reader, far) = pair(&listener, other).await;
    let (mut writer, still) = pair(&listener, other).await;
    let (watcher, idle) = pair(&listener, other).await;
    let connecting = stack.clone();
    // The other ends stay, and do nothing.
    tokio::spawn(async move {
        let _kept = (far, still, idle);
        std::future::pending::<()>().await;
    });
    vec![
        tokio::spawn(async move { kind(reader.read(&mut [0; 1]).await) }),
        tokio::spawn(async move {
            let chunk = [0; 16 << 10];
            loop {
                if let Err(error) = writer.write_all(&chunk).await {
                    return Some(error.kind());
                }
            }
        }),
        tokio::spawn(async move {
            watcher.readable().await.unwrap();
            kind(watcher.try_read(&mut [0; 1]))
        }),
        tokio::spawn(async move { kind(listener.accept().await) }),
        tokio::spawn(
            async move { kind(TcpStream::connect_on(&connecting, ("10.0.0.77", 80)).await) },
        ),
    ]
}

#[test]
fn a_stack_that_is_shut_down_fails_every_waiting_call() {
    run(async {
        let (server, client) = stacks();
        let calls = waiting_calls(&server, &client).await;
        let ending = server.clone();
        let ended = tokio::spawn(async move { ending.ended().await });
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert!(!ended.is_finished());
        server.shutdown();
        ended.await.unwrap().unwrap();
        server.ended().await.unwrap();
        for call in calls {
            assert_eq!(call.await.unwrap(), ENDED);
        }
        // And every later one.
        let at = (server.address(), PORT + 1);
        assert_eq!(kind(TcpListener::bind_on(&server, at).await), ENDED);
        assert_eq!(kind(TcpStream::connect_on(&server, (client.address(), 1)).await), ENDED);
        assert_eq!(kind(server.with_host(Host::connections).await), ENDED);
        let socket = lightwait::net::TcpSocket::new_v4_on(&server);
        assert_eq!(kind(socket.listen(1)), ENDED);
        tokio::task::spawn_blocking(|| server.join()).await.unwrap().unwrap();
    });
}

#[test]
fn streams_of_an_ended_stack_fail_again_and_again() {
    run(async {
        let (mut near, mut far, server, _client) = connected().await;
        far.write_all(b"last words").await.unwrap();
        near.readable().await.unwrap();
        server.shutdown();
        server.join().unwrap();
        let mut heard = [0; 10];
        near.read_exact(&mut heard).await.unwrap();
        assert_eq!(&heard, b"last words", "what has crossed is read");
        for _ in 0..2 {
            assert_eq!(kind(near.read(&mut heard).await), ENDED);
            assert_eq!(kind(near.write(b"x").await), ENDED);
            assert_eq!(kind(near.shutdown().await), ENDED);
            assert_eq!(near.take_error().unwrap().unwrap().kind(), ENDED.unwrap());
            assert_eq!(kind(near.set_nodelay(true)), ENDED);
            assert_eq!(kind(near.info().await), ENDED);
        }
    });
}

/// A device that fails, or panics, once it is told to.
struct Dying {
    device: ThreadedMemory,
    dies: std::sync::mpsc::Receiver<bool>,
}

impl Device for Dying {
    fn capabilities(&self) -> Capabilities {
        self.device.capabilities()
    }
    fn receive(&mut self, now: Instant, budget: usize, sink: &mut Sink<'_>) -> io::Result<usize> {
        match self.dies.try_recv() {
            Ok(true) => panic!("a device's bug"),
            Ok(false) => Err(io::Error::other("the cable is cut")),
            Err(_) => self.device.receive(now, budget, sink),
        }
    }
    fn transmit(&mut self, now: Instant, outbox: &mut Outbox) -> io::Result<()> {
        self.device.transmit(now, outbox)
    }
    fn deadline(&self) -> Option<Instant> {
        self.device.deadline()
    }
    fn wait_on(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        self.device.wait_on()
    }
}

fn dying() -> (StackHandle, StackHandle, std::sync::mpsc::Sender<bool>) {
    let wire = Capabilities::plain(Medium::Ip, 1500);
    let (device, other) = ThreadedMemory::pair(wire, 64).unwrap();
    let (die, dies) = std::sync::mpsc::channel();
    let on = |device: Box<dyn Device + Send>, address: &str| {
        let stack = Stack::on(device, address.parse().unwrap(), |_: &mut Config| ());
        stack.unwrap().spawn().unwrap()
    };
    let stack = on(Box::new(Dying { device, dies }), "10.0.0.1/24");
    (stack, on(Box::new(other), "10.0.0.2/24"), die)
}

#[test]
fn a_device_that_fails_ends_the_stack_and_join_says_why() {
    run(async {
        let (stack, other, die) = dying();
        let calls = waiting_calls(&stack, &other).await;
        die.send(false).unwrap();
        for call in calls {
            assert_eq!(call.await.unwrap(), ENDED);
        }
        let failure = tokio::task::spawn_blocking(|| stack.join()).await.unwrap();
        assert_eq!(failure.unwrap_err().to_string(), "the cable is cut");
    });
}

#[test]
fn a_panic_of_the_stacks_thread_reaches_join_and_every_call() {
    run(async {
        let (stack, other, die) = dying();
        let calls = waiting_calls(&stack, &other).await;
        die.send(true).unwrap();
        for call in calls {
            assert_eq!(call.await.unwrap(), ENDED);
        }
        let panic = tokio::task::spawn_blocking(|| stack.join()).await.unwrap_err();
        assert_eq!(*panic.into_panic().downcast::<&str>().unwrap(), "a device's bug");
    });
}

#[test]
fn a_panicking_task_closes_its_connection_and_no_other() {
    run(async {
        let (server, client) = stacks();
        let listener = TcpListener::bind_on(&server, (server.address(), PORT)).await.unwrap();
        let (mut near, mut far) = pair(&listener, &client).await;
        let (mut other, mut kept) = pair(&listener, &client).await;
        let task = tokio::spawn(async move {
            near.write_all(b"before").await.unwrap();
            panic!("on purpose");
        });
        let mut heard = String::new();
        far.read_to_string(&mut heard).await.unwrap();
        assert_eq!(heard, "before", "and then FIN");
        assert!(task.await.unwrap_err().is_panic());
        other.write_all(b"x").await.unwrap();
        assert_eq!(kept.read_u8().await.unwrap(), b'x');
    });
}

#[test]
fn a_dropped_runtime_closes_its_connections() {
    let (server, client) = stacks();
    let serving = Builder::new_multi_thread().worker_threads(1).build().unwrap();
    let listener = TcpListener::bind_on(&server, (server.address(), PORT));
    let listener = serving.block_on(listener).unwrap();
    let at = listener.local_addr().unwrap();
    serving.spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.write_all(b"x").await.unwrap();
        std::future::pending::<()>().await;
    });
    run(async {
        let mut far = TcpStream::connect_on(&client, at).await.unwrap();
        assert_eq!(far.read_u8().await.unwrap(), b'x');
        tokio::task::spawn_blocking(|| drop(serving)).await.unwrap();
        assert_eq!(far.read(&mut [0; 1]).await.unwrap(), 0, "FIN");
        let refused = TcpStream::connect_on(&client, at).await;
        assert_eq!(kind(refused), Some(io::ErrorKind::ConnectionRefused));
    });
}

#[test]
fn a_stack_ends_once_its_last_socket_is_closed() {
    let (server, client) = stacks();
    let runtime = Builder::new_current_thread().enable_time().build().unwrap();
    let (near, mut far) = runtime.block_on(async {
        let listener = TcpListener::bind_on(&server, (server.address(), PORT)).await.unwrap();
        pair(&listener, &client).await
    });
    let joined = thread::spawn(move || client.join());
    runtime.block_on(async {
        far.write_all(&[5; 100_000]).await.unwrap();
        assert!(!joined.is_finished(), "the stream lives");
        drop(far);
        let mut heard = Vec::new();
        let mut near = near;
        near.read_to_end(&mut heard).await.unwrap();
        assert_eq!(heard.len(), 100_000, "what was written was sent first");
    });
    joined.join().unwrap().unwrap();
}

#[test]
fn a_stack_used_on_this_thread_is_not_spawned() {
    let (server, _client) = Stack::memory().unwrap();
    let _handle = server.handle();
    assert_eq!(kind(server.spawn()), Some(io::ErrorKind::InvalidInput));
    let wire = Capabilities::plain(Medium::Ip, 100);
    let (device, _) = ThreadedMemory::pair(wire, 4).unwrap();
    let invalid = Stack::on(Box::new(device), "10.0.0.1/24".parse().unwrap(), |_| ());
    assert_eq!(kind(invalid), Some(io::ErrorKind::InvalidInput), "told before a thread starts");
}
