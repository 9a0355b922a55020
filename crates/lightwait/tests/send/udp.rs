//! `UdpSocket` for any thread behaves as tokio's does.

use std::future::poll_fn;
use std::io::{ErrorKind, IoSliceMut};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use lightwait::net::{StackHandle, TcpListener, Transmit, UdpSocket};
use tokio::io::{Interest, ReadBuf};
use tokio::runtime::Builder;

use crate::world::{in_time, kind, run, stacks};

/// What waits on the way between the stack and the application, at most, in bytes.
const ON_THE_WAY: usize = 64 << 10;

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at % 251) as u8).collect()
}

fn service(server: &StackHandle) -> SocketAddr {
    (server.address(), 53).into()
}

async fn bound(server: &StackHandle, client: &StackHandle) -> (UdpSocket, UdpSocket) {
    let near = UdpSocket::bind_on(server, service(server)).await.unwrap();
    let far = UdpSocket::bind_on(client, "0.0.0.0:0").await.unwrap();
    (near, far)
}

async fn echo(socket: UdpSocket) {
    let mut buffer = vec![0; 1 << 16];
    loop {
        let (len, from) = socket.recv_from(&mut buffer).await.unwrap();
        socket.send_to(&buffer[..len], from).await.unwrap();
    }
}

/// Every call, against an echo.
async fn ask_by_every_call(socket: &UdpSocket, at: SocketAddr) {
    assert_ne!(socket.local_addr().unwrap().port(), 0);
    assert_eq!(kind(socket.peer_addr()), Some(ErrorKind::NotConnected));
    assert_eq!(kind(socket.send(b"x").await), Some(ErrorKind::NotConnected));
    let mut buffer = vec![0; 1 << 16];
    for len in [0, 1, 1000, 1473, 65_507] {
        socket.send_to(&pattern(len), at).await.unwrap();
        assert_eq!(socket.peek_sender().await.unwrap(), at);
        assert_eq!(socket.peek_from(&mut buffer).await.unwrap(), (len, at));
        assert_eq!(socket.recv_from(&mut buffer).await.unwrap(), (len, at));
        assert_eq!(buffer[..len], pattern(len));
    }
    socket.connect(at).await.unwrap();
    assert_eq!(socket.peer_addr().unwrap(), at);
    assert!(!socket.local_addr().unwrap().ip().is_unspecified(), "where it sends from");
    socket.try_send(b"by try").unwrap();
    socket.readable().await.unwrap();
    assert_eq!(socket.try_peek(&mut buffer).unwrap(), 6);
    assert_eq!(socket.try_recv(&mut buffer[..2]).unwrap(), 2, "the rest is lost");
    assert_eq!(kind(socket.try_recv(&mut buffer)), Some(ErrorKind::WouldBlock));
    socket.send(b"into a buffer").await.unwrap();
    let mut out = Vec::from(*b"-> ");
    assert_eq!(socket.recv_buf(&mut out).await.unwrap(), 13);
    assert_eq!(out, b"-> into a buffer");
    poll_fn(|context| socket.poll_send(context, b"polled")).await.unwrap();
    let mut space = [0; 100];
    let mut out = ReadBuf::new(&mut space);
    assert_eq!(poll_fn(|context| socket.poll_peek_sender(context)).await.unwrap(), at);
    poll_fn(|context| socket.poll_recv(context, &mut out)).await.unwrap();
    assert_eq!(out.filled(), b"polled");
    poll_fn(|context| socket.poll_send_to(context, b"by io", at)).await.unwrap();
    let read = socket.async_io(Interest::READABLE, || socket.try_recv_from(&mut buffer)).await;
    assert_eq!(read.unwrap(), (5, at));
    let read = socket.try_io(Interest::READABLE, || socket.try_recv(&mut buffer));
    assert_eq!(kind(read), Some(ErrorKind::WouldBlock));
}

#[test]
fn what_is_sent_comes_back_by_every_call_on_tokios_threads() {
    run(async {
        let (server, client) = stacks();
        let (near, far) = bound(&server, &client).await;
        let echoing = tokio::spawn(echo(near));
        let at = service(&server);
        tokio::spawn(async move { ask_by_every_call(&far, at).await }).await.unwrap();
        echoing.abort();
    });
}

#[test]
fn tokios_current_thread_runtime_has_both_ends() {
    let runtime = Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(in_time(async {
        let (server, client) = stacks();
        let (near, far) = bound(&server, &client).await;
        tokio::select! {
            () = echo(near) => unreachable!(),
            () = ask_by_every_call(&far, service(&server)) => (),
        }
    }));
}

#[test]
fn smols_executor_runs_the_same_code() {
    let (server, client) = stacks();
    smol::block_on(async {
        let (near, far) = bound(&server, &client).await;
        let echo = smol::spawn(echo(near));
        let at = service(&server);
        smol::spawn(async move { ask_by_every_call(&far, at).await }).await;
        drop(echo);
    });
}

#[test]
fn a_refusal_wakes_a_reader_and_is_told_once() {
    run(async {
        let (server, client) = stacks();
        let at = service(&server);
        let socket = UdpSocket::bind_on(&client, "0.0.0.0:0").await.unwrap();
        socket.connect(at).await.unwrap();
        socket.send(b"is there anybody?").await.unwrap();
        let refused = socket.recv(&mut [0; 10]).await;
        assert_eq!(kind(refused), Some(ErrorKind::ConnectionRefused));
        assert!(socket.take_error().unwrap().is_none());
        socket.send(b"really not?").await.unwrap();
        socket.readable().await.unwrap();
        let refused = socket.take_error().unwrap().unwrap();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
        socket.set_report_errors(true).unwrap();
        socket.send(b"not at all?").await.unwrap();
        let reported = loop {
            socket.readable().await.unwrap();
            if let Some(reported) = socket.take_reported() {
                break reported;
            }
        };
        assert_eq!((reported.0, reported.1.kind()), (at, ErrorKind::ConnectionRefused));
    });
}

#[test]
fn what_the_stack_refuses_is_told_to_who_sends_and_to_no_reader() {
    run(async {
        let (server, client) = stacks();
        let (near, far) = bound(&server, &client).await;
        // A broadcast, which the socket has not asked for.
        let all: SocketAddr = "255.255.255.255:9".parse().unwrap();
        far.send_to(b"x", all).await.unwrap();
        far.payload_max(server.address()).await.unwrap();
        near.send_to(b"for a reader", (client.address(), far.local_addr().unwrap().port()))
            .await
            .unwrap();
        assert_eq!(far.recv(&mut [0; 20]).await.unwrap(), 12);
        // The stack finds it out while others go on.
        let mut others = 0;
        let refused = loop {
            match far.send_to(b"y", service(&server)).await {
                Err(error) => break error,
                Ok(_) => others += 1,
            }
            assert!(others < 10_000, "it is never told");
            std::thread::sleep(std::time::Duration::from_millis(1));
        };
        assert_eq!(refused.kind(), ErrorKind::PermissionDenied, "of the first");
        far.send_to(b"z", service(&server)).await.unwrap();
        let mut byte = [0];
        for expected in std::iter::repeat_n(b'y', others).chain([b'z']) {
            near.recv(&mut byte).await.unwrap();
            assert_eq!(byte[0], expected, "nothing else has left");
        }
        // What needs no stack to know fails at once.
        let long = far.send_to(&[0; 65_508], service(&server)).await.unwrap_err();
        assert_eq!(long.raw_os_error(), Some(libc::EMSGSIZE));
        let many = Transmit { segment: Some(1), ..Transmit::to(service(&server)) };
        far.try_transmit(&many, &[0; 64]).unwrap();
        assert_eq!(kind(far.try_transmit(&many, &[0; 65])), Some(ErrorKind::InvalidInput));
    });
}

#[test]
fn options_hold_for_what_is_sent_behind_them() {
    run(async {
        let (server, client) = stacks();
        let (near, far) = bound(&server, &client).await;
        assert_eq!((far.ttl().unwrap(), far.tos_v4().unwrap()), (64, 0));
        let at = service(&server);
        for tos in [0, 0x20, 0x40, 0xb8] {
            far.set_tos_v4(1).unwrap();
            far.set_tos_v4(tos).unwrap();
            far.try_send_to(&[tos as u8], at).unwrap();
        }
        for tos in [0, 0x20, 0x40, 0xb8] {
            let mut byte = [0];
            let mut told = [None];
            let mut out = [IoSliceMut::new(&mut byte)];
            assert_eq!(near.receive_many(&mut out, &mut told).await.unwrap(), 1);
            assert_eq!((byte[0], told[0].unwrap().traffic_class), (tos as u8, tos as u8));
        }
        far.set_ttl(3).unwrap();
        far.set_broadcast(true).unwrap();
        far.set_multicast_ttl_v4(0).unwrap();
        assert_eq!((far.ttl().unwrap(), far.tclass_v6().unwrap()), (3, 0xb8));
        assert!(far.broadcast().unwrap() && !far.only_v6().unwrap());
        assert_eq!(far.multicast_ttl_v4().unwrap(), 0);
        for refused in [far.set_ttl(0), far.set_ttl(256), far.set_tos_v4(256)] {
            assert_eq!(kind(refused), Some(ErrorKind::InvalidInput));
        }
        let taken = UdpSocket::bind_on(&server, at).await;
        assert_eq!(kind(taken), Some(ErrorKind::AddrInUse));
        let elsewhere = UdpSocket::bind_on(&server, "192.0.2.1:9").await;
        assert_eq!(kind(elsewhere), Some(ErrorKind::AddrNotAvailable));
    });
}

#[test]
fn batches_say_where_each_came_from_and_are_cut_or_joined() {
    run(async {
        let (server, client) = stacks();
        let (near, far) = bound(&server, &client).await;
        let sent = pattern(10 * 500);
        let transmit =
            Transmit { segment: Some(500), ecn: Some(1), ..Transmit::to(service(&server)) };
        far.transmit(&transmit, &sent).await.unwrap();
        let mut told = [None; 16];
        let mut count = 0;
        while count < 10 {
            let mut buffers = [[0; 600]; 16];
            let mut slices = buffers.each_mut().map(|buffer| IoSliceMut::new(buffer));
            let read = near.receive_many(&mut slices, &mut told).await.unwrap();
            for (told, buffer) in told[..read].iter().zip(&buffers) {
                let told = told.unwrap();
                assert_eq!((told.len, told.ecn(), told.to), (500, 1, server.address()));
                assert_eq!(told.from.ip(), client.address());
                assert_eq!(buffer[..500], sent[count * 500..][..500]);
                count += 1;
            }
        }
        near.set_joined(true).unwrap();
        far.transmit(&transmit, &sent).await.unwrap();
        let (mut heard, mut reads) = (Vec::new(), 0);
        while heard.len() < sent.len() {
            // Room for four and a half.
            let mut large = [0; 2250];
            let mut slices = [IoSliceMut::new(&mut large)];
            assert_eq!(near.receive_many(&mut slices, &mut told).await.unwrap(), 1);
            let told = told[0].unwrap();
            assert!(told.segment == 500 && told.len % 500 == 0, "{told:?}");
            heard.extend_from_slice(&large[..told.len]);
            reads += 1;
        }
        assert!(heard == sent && (3..10).contains(&reads), "{reads} reads");
    });
}

#[test]
fn a_sender_waits_for_room_and_all_of_it_arrives() {
    const COUNT: u32 = 3000;
    run(async {
        let (server, client) = stacks();
        let (near, far) = bound(&server, &client).await;
        near.set_recv_buffer_size(8 << 20).unwrap();
        far.set_send_buffer_size(5000).unwrap();
        assert_eq!(near.dropped().await.unwrap(), 0, "the stack has heard of it");
        let reader = tokio::spawn(async move {
            let mut buffer = [0; 1500];
            for number in 0..COUNT {
                assert_eq!(near.recv(&mut buffer).await.unwrap(), 1000);
                assert_eq!(buffer[..4], number.to_be_bytes());
            }
        });
        let (mut blocked, mut bytes) = (0, [7; 1000]);
        far.connect(service(&server)).await.unwrap();
        for number in 0..COUNT {
            bytes[..4].copy_from_slice(&number.to_be_bytes());
            while let Err(error) = far.try_send(&bytes) {
                assert_eq!(error.kind(), ErrorKind::WouldBlock);
                blocked += 1;
                assert!(far.ready(Interest::WRITABLE).await.unwrap().is_writable());
            }
        }
        reader.await.unwrap();
        assert!(blocked > 10, "{blocked}");
    });
}

#[test]
fn what_nobody_reads_is_bounded_and_counted() {
    run(async {
        let (server, client) = stacks();
        let (near, far) = bound(&server, &client).await;
        let queue = near.recv_buffer_size().unwrap();
        let count = 4 * (queue + ON_THE_WAY) / 1000;
        for _ in 0..count {
            far.send_to(&[1; 1000], service(&server)).await.unwrap();
        }
        // The last has come once what is read between two looks is all that came.
        let mut dropped = near.dropped().await.unwrap();
        loop {
            tokio::time::sleep(Duration::from_millis(300)).await;
            let now = near.dropped().await.unwrap();
            if dropped > 0 && now == dropped {
                break;
            }
            dropped = now;
        }
        let mut read = 0;
        while near.try_recv(&mut [0; 1000]).is_ok() || waits(&near).await {
            read += 1;
        }
        // And what was read last, as many datagrams as came in a row.
        assert!(read * 1000 <= queue + 2 * ON_THE_WAY, "{read}");
        assert!(read * 1128 >= queue, "{read}");
        assert!(read + dropped as usize <= count && dropped > 0, "{read}, {dropped}");
    });
}

/// Takes one more, if one comes soon.
async fn waits(socket: &UdpSocket) -> bool {
    let mut buffer = [0; 1000];
    let read = tokio::time::timeout(Duration::from_millis(200), socket.recv(&mut buffer));
    read.await.is_ok()
}

#[test]
fn many_tasks_wait_for_one_socket_and_each_is_served() {
    run(async {
        let (server, client) = stacks();
        let (near, far) = bound(&server, &client).await;
        let near = std::sync::Arc::new(near);
        let readers: Vec<_> = (0..8)
            .map(|_| {
                let near = near.clone();
                tokio::spawn(async move { near.recv(&mut [0; 9]).await.unwrap() })
            })
            .collect();
        for _ in &readers {
            far.send_to(b"datagram", service(&server)).await.unwrap();
        }
        for reader in readers {
            assert_eq!(reader.await.unwrap(), 8);
        }
    });
}

#[test]
fn calls_on_an_ended_stack_fail_after_what_has_crossed() {
    const ENDED: Option<ErrorKind> = Some(ErrorKind::ConnectionAborted);
    run(async {
        let (server, client) = stacks();
        let (near, far) = bound(&server, &client).await;
        let other = UdpSocket::bind_on(&server, (server.address(), 54)).await.unwrap();
        let waiting = tokio::spawn(async move { kind(other.recv(&mut [0; 1]).await) });
        far.send_to(b"last words", service(&server)).await.unwrap();
        near.readable().await.unwrap();
        assert!(!waiting.is_finished());
        server.shutdown();
        assert_eq!(waiting.await.unwrap(), ENDED);
        let at = service(&server);
        tokio::task::spawn_blocking(|| server.join()).await.unwrap().unwrap();
        assert_eq!(near.recv(&mut [0; 20]).await.unwrap(), 10);
        for _ in 0..2 {
            assert_eq!(kind(near.recv(&mut [0; 1]).await), ENDED);
            assert_eq!(kind(near.send_to(b"x", at).await), ENDED);
            assert_eq!(kind(near.connect(at).await), ENDED);
            assert_eq!(kind(near.set_ttl(3)), ENDED);
            assert_eq!(kind(near.dropped().await), ENDED);
            assert_eq!(near.take_error().unwrap().unwrap().kind(), ENDED.unwrap());
            near.writable().await.unwrap();
        }
    });
}

#[test]
fn a_panicking_task_frees_its_port_and_what_it_sent_leaves() {
    run(async {
        let (server, client) = stacks();
        let (near, far) = bound(&server, &client).await;
        let at = service(&server);
        let (to, mut heard) = ((client.address(), far.local_addr().unwrap().port()), [0; 10]);
        let task = tokio::spawn(async move {
            near.send_to(b"before", to).await.unwrap();
            panic!("on purpose");
        });
        assert!(task.await.unwrap_err().is_panic());
        assert_eq!(far.recv_from(&mut heard).await.unwrap(), (6, at));
        let near = UdpSocket::bind_on(&server, at).await.unwrap();
        far.send_to(b"x", at).await.unwrap();
        assert_eq!(near.recv(&mut heard).await.unwrap(), 1);
    });
}

#[test]
fn an_address_is_free_once_its_socket_is_dropped() {
    run(async {
        let (server, _client) = stacks();
        for _ in 0..5000 {
            drop(UdpSocket::bind_on(&server, service(&server)).await.unwrap());
        }
        for _ in 0..200 {
            drop(TcpListener::bind_on(&server, service(&server)).await.unwrap());
        }
        let _socket = UdpSocket::bind_on(&server, service(&server)).await.unwrap();
        let taken = UdpSocket::bind_on(&server, service(&server)).await;
        assert_eq!(kind(taken), Some(ErrorKind::AddrInUse));
    });
}

#[test]
fn a_stack_ends_once_its_last_socket_is_dropped() {
    run(async {
        let (server, client) = stacks();
        let (near, far) = bound(&server, &client).await;
        let ended = tokio::task::spawn_blocking(|| client.join());
        far.send_to(b"x", service(&server)).await.unwrap();
        assert_eq!(near.recv(&mut [0; 1]).await.unwrap(), 1);
        assert!(!ended.is_finished(), "the socket lives");
        for _ in 0..50 {
            far.send_to(&[1; 1000], service(&server)).await.unwrap();
        }
        drop(far);
        ended.await.unwrap().unwrap();
        for _ in 0..50 {
            assert_eq!(near.recv(&mut [0; 1000]).await.unwrap(), 1000, "all that was sent");
        }
    });
}

#[test]
fn groups_are_joined_and_left_from_any_thread() {
    run(async {
        let (server, client) = stacks();
        let (near, far) = bound(&server, &client).await;
        drop(near);
        let near = UdpSocket::bind_on(&server, "0.0.0.0:5353").await.unwrap();
        let (group, any) = ([224, 0, 0, 251].into(), [0; 4].into());
        near.join_multicast_v4(group, any).unwrap();
        assert_eq!(kind(near.join_multicast_v4(group, any)), Some(ErrorKind::AddrInUse));
        let host = near.join_multicast_v4([10, 0, 0, 9].into(), any);
        assert_eq!(kind(host), Some(ErrorKind::InvalidInput));
        let six = "ff02::fb".parse().unwrap();
        assert_eq!(kind(near.join_multicast_v6(&six, 0)), Some(ErrorKind::InvalidInput));
        assert_eq!(kind(near.join_multicast_v6(&six, 3)), Some(ErrorKind::AddrNotAvailable));
        for number in 1..20 {
            near.join_multicast_v4([239, 0, 0, number].into(), any).unwrap();
        }
        let beyond = near.join_multicast_v4([239, 0, 0, 20].into(), any);
        assert_eq!(kind(beyond), Some(ErrorKind::QuotaExceeded));
        // The stack has joined once it has answered something later.
        near.payload_max(server.address()).await.unwrap();
        far.send_to(b"to all", (Ipv4Addr::new(224, 0, 0, 251), 5353)).await.unwrap();
        let mut buffer = [0; 100];
        assert_eq!(in_time(near.recv(&mut buffer)).await.unwrap(), 6);
        near.leave_multicast_v4(group, any).unwrap();
        assert_eq!(kind(near.leave_multicast_v4(group, any)), Some(ErrorKind::AddrNotAvailable));
    });
}
