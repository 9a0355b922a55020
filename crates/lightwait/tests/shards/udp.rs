//! `UdpSocket` behaves as tokio's does.

use std::future::poll_fn;
use std::io::{ErrorKind, IoSliceMut};
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use lightwait::bridge::SERVER_ADDRESS;
use lightwait::local::{Transmit, UdpSocket};
use lightwait::rt;
use tokio::io::{Interest, ReadBuf};

use crate::sockets::pattern;
use crate::world::World;

fn server() -> SocketAddr {
    (SERVER_ADDRESS, 53).into()
}

async fn echo() {
    let socket = UdpSocket::bind(server()).await.unwrap();
    let mut buffer = vec![0; 1 << 16];
    loop {
        let (len, from) = socket.recv_from(&mut buffer).await.unwrap();
        socket.send_to(&buffer[..len], from).await.unwrap();
    }
}

#[test]
fn what_is_sent_comes_back_by_every_call() {
    let mut world = World::new();
    let service = world.on_server(echo());
    let client = world.on_client(async {
        let socket = UdpSocket::bind("0.0.0.0:0").await.unwrap();
        assert_ne!(socket.local_addr().unwrap().port(), 0);
        assert_eq!(socket.peer_addr().unwrap_err().kind(), ErrorKind::NotConnected);
        assert_eq!(socket.send(b"x").await.unwrap_err().kind(), ErrorKind::NotConnected);
        let mut buffer = vec![0; 1 << 16];
        for len in [0, 1, 1000, 1473, 65_507] {
            socket.send_to(&pattern(len), server()).await.unwrap();
            assert_eq!(socket.peek_sender().await.unwrap(), server());
            assert_eq!(socket.peek_from(&mut buffer).await.unwrap(), (len, server()));
            assert_eq!(socket.recv_from(&mut buffer).await.unwrap(), (len, server()));
            assert_eq!(buffer[..len], pattern(len));
        }
        socket.connect(server()).await.unwrap();
        assert_eq!(socket.peer_addr().unwrap(), server());
        socket.try_send(b"by try").unwrap();
        assert_eq!(socket.try_recv(&mut buffer).unwrap_err().kind(), ErrorKind::WouldBlock);
        socket.readable().await.unwrap();
        assert_eq!(socket.try_peek(&mut buffer).unwrap(), 6);
        assert_eq!(socket.try_recv(&mut buffer[..2]).unwrap(), 2, "the rest is lost");
        assert_eq!(socket.try_recv(&mut buffer).unwrap_err().kind(), ErrorKind::WouldBlock);
        socket.send(b"into a buffer").await.unwrap();
        let mut out = Vec::from(*b"-> ");
        assert_eq!(socket.recv_buf(&mut out).await.unwrap(), 13);
        assert_eq!(out, b"-> into a buffer");
        poll_fn(|context| socket.poll_send(context, b"polled")).await.unwrap();
        let mut space = [0; 100];
        let mut out = ReadBuf::new(&mut space);
        poll_fn(|context| socket.poll_recv(context, &mut out)).await.unwrap();
        assert_eq!(out.filled(), b"polled");
    });
    world.finish(&client);
    drop(service);
}

#[test]
fn a_refusal_wakes_a_reader_and_is_told_once() {
    let mut world = World::new();
    let client = world.on_client(async {
        let socket = UdpSocket::bind("0.0.0.0:0").await.unwrap();
        socket.connect(server()).await.unwrap();
        socket.send(b"is there anybody?").await.unwrap();
        let refused = socket.recv(&mut [0; 10]).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
        assert!(socket.take_error().unwrap().is_none());
        socket.send(b"really not?").await.unwrap();
        socket.readable().await.unwrap();
        let refused = socket.take_error().unwrap().unwrap();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
        socket.set_report_errors(true).unwrap();
        socket.send(b"not at all?").await.unwrap();
        socket.readable().await.unwrap();
        assert_eq!(socket.take_reported().unwrap().0, server());
    });
    world.finish(&client);
}

#[test]
fn a_sender_waits_for_room_and_all_of_it_arrives() {
    let mut world = World::new();
    let service = world.on_server(async {
        let socket = UdpSocket::bind(server()).await.unwrap();
        socket.set_recv_buffer_size(1 << 20).unwrap();
        let mut buffer = [0; 1500];
        for number in 0..1000u32 {
            assert_eq!(socket.recv(&mut buffer).await.unwrap(), 1000);
            assert_eq!(buffer[..4], number.to_be_bytes());
        }
    });
    let client = world.on_client(async {
        let socket = UdpSocket::bind("0.0.0.0:0").await.unwrap();
        socket.set_send_buffer_size(5000).unwrap();
        let (mut blocked, mut bytes) = (0, [7; 1000]);
        for number in 0..1000u32 {
            bytes[..4].copy_from_slice(&number.to_be_bytes());
            match socket.try_send_to(&bytes, server()) {
                Ok(_) => continue,
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
            }
            blocked += 1;
            let ready = socket.ready(Interest::WRITABLE).await.unwrap();
            assert!(ready.is_writable());
            socket.try_send_to(&bytes, server()).unwrap();
        }
        blocked
    });
    world.finish(&service);
    assert!(client.is_finished());
    let mut blocked = pin!(client);
    let context = &mut std::task::Context::from_waker(std::task::Waker::noop());
    let Poll::Ready(blocked) = blocked.as_mut().poll(context) else { panic!("it has finished") };
    assert!(blocked.unwrap() > 100);
}

#[test]
fn batches_say_of_each_datagram_where_it_came_from() {
    let mut world = World::new();
    let service = world.on_server(echo());
    let client = world.on_client(async {
        let socket = UdpSocket::bind("0.0.0.0:0").await.unwrap();
        let sent = pattern(10 * 500);
        let ecn = Some(1);
        let transmit = Transmit { segment: Some(500), ecn, ..Transmit::to(server()) };
        socket.transmit(&transmit, &sent).await.unwrap();
        rt::sleep(Duration::from_millis(50)).await;
        let mut buffers = [[0; 600]; 16];
        let mut slices: Vec<IoSliceMut<'_>> =
            buffers.iter_mut().map(|buffer| IoSliceMut::new(buffer)).collect();
        let mut told = [None; 16];
        assert_eq!(socket.receive_many(&mut slices, &mut told).await.unwrap(), 10);
        for (number, told) in told[..10].iter().enumerate() {
            let told = told.unwrap();
            assert_eq!((told.len, told.from, told.ecn()), (500, server(), 0));
            assert_eq!(told.to, socket_address(&socket));
            assert_eq!(buffers[number][..500], sent[number * 500..][..500]);
        }
        socket.set_joined(true).unwrap();
        socket.transmit(&transmit, &sent).await.unwrap();
        rt::sleep(Duration::from_millis(50)).await;
        let mut large = vec![0; 6000];
        let mut slices = [IoSliceMut::new(&mut large)];
        assert_eq!(socket.try_receive_many(&mut slices, &mut told).unwrap(), 1);
        let told = told[0].unwrap();
        assert_eq!((told.len, told.segment), (5000, 500));
        assert_eq!(large[..5000], sent);
    });
    world.finish(&client);
    drop(service);
}

/// The address that a socket of any address is reached at.
fn socket_address(_: &UdpSocket) -> std::net::IpAddr {
    lightwait::bridge::client_config([2; 32]).addresses[0].address()
}

#[test]
fn options_are_as_they_were_set() {
    let mut world = World::new();
    let client = world.on_client(async {
        let socket = UdpSocket::bind("0.0.0.0:0").await.unwrap();
        assert_eq!((socket.ttl().unwrap(), socket.tos_v4().unwrap()), (64, 0));
        socket.set_ttl(3).unwrap();
        socket.set_tos_v4(0xb8).unwrap();
        socket.set_broadcast(true).unwrap();
        socket.set_multicast_ttl_v4(0).unwrap();
        assert_eq!((socket.ttl().unwrap(), socket.tclass_v6().unwrap()), (3, 0xb8));
        assert!(socket.broadcast().unwrap() && !socket.only_v6().unwrap());
        assert_eq!(socket.multicast_ttl_v4().unwrap(), 0);
        for refused in [socket.set_ttl(0), socket.set_ttl(256), socket.set_tos_v4(256)] {
            assert_eq!(refused.unwrap_err().kind(), ErrorKind::InvalidInput);
        }
        let taken = UdpSocket::bind(socket.local_addr().unwrap()).await.unwrap_err();
        assert_eq!(taken.kind(), ErrorKind::AddrInUse);
        let long = socket.send_to(&[0; 65_508], server()).await.unwrap_err();
        assert_eq!(long.raw_os_error(), Some(libc::EMSGSIZE));
    });
    world.finish(&client);
}

#[test]
fn groups_are_joined_and_left_by_tokio_s_calls() {
    let mut world = World::new();
    let service = world.on_server(async {
        let socket = UdpSocket::bind("0.0.0.0:5353").await.unwrap();
        let (group, any) = ([224, 0, 0, 251].into(), [0; 4].into());
        socket.join_multicast_v4(group, any).unwrap();
        let again = socket.join_multicast_v4(group, any).unwrap_err();
        assert_eq!(again.kind(), ErrorKind::AddrInUse);
        let host = socket.join_multicast_v4([10, 0, 0, 9].into(), any).unwrap_err();
        assert_eq!(host.kind(), ErrorKind::InvalidInput);
        let foreign = socket.join_multicast_v4([224, 9, 9, 9].into(), [9; 4].into()).unwrap_err();
        assert_eq!(foreign.kind(), ErrorKind::AddrNotAvailable);
        let version = socket.join_multicast_v6(&"ff02::fb".parse().unwrap(), 0).unwrap_err();
        assert_eq!(version.kind(), ErrorKind::InvalidInput);
        assert_eq!(
            socket.join_multicast_v6(&"ff02::fb".parse().unwrap(), 7).unwrap_err().kind(),
            ErrorKind::AddrNotAvailable
        );
        let mut buffer = [0; 100];
        let (len, from) = socket.recv_from(&mut buffer).await.unwrap();
        socket.send_to(&buffer[..len], from).await.unwrap();
        socket.leave_multicast_v4(group, any).unwrap();
        let gone = socket.leave_multicast_v4(group, any).unwrap_err();
        assert_eq!(gone.kind(), ErrorKind::AddrNotAvailable);
    });
    let client = world.on_client(async {
        let socket = UdpSocket::bind("0.0.0.0:0").await.unwrap();
        assert!(socket.multicast_loop_v4().unwrap() && socket.multicast_loop_v6().unwrap());
        socket.set_multicast_loop_v4(false).unwrap();
        socket.set_multicast_loop_v6(false).unwrap();
        assert!(!socket.multicast_loop_v4().unwrap() && !socket.multicast_loop_v6().unwrap());
        rt::sleep(Duration::from_millis(10)).await;
        socket.send_to(b"to all", (Ipv4Addr::new(224, 0, 0, 251), 5353)).await.unwrap();
        let mut buffer = [0; 100];
        assert_eq!(socket.recv(&mut buffer).await.unwrap(), 6);
    });
    world.finish(&service);
    world.finish(&client);
}
