//! Readiness, peeking and options.

use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use lightwait::net::{TcpListener, TcpSocket};
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest, ReadBuf, Ready};

use crate::world::{PORT, connected, kind, pair, run, stacks};

#[test]
fn a_stream_is_ready_when_bytes_or_its_end_have_come() {
    run(async {
        let (near, mut far, ..) = connected().await;
        let both = Interest::READABLE | Interest::WRITABLE;
        assert_eq!(near.ready(both).await.unwrap(), Ready::WRITABLE);
        assert_eq!(kind(near.try_read(&mut [0; 1])), Some(io::ErrorKind::WouldBlock));
        let blocked = near.try_io(Interest::READABLE, || Ok(()));
        assert_eq!(kind(blocked), Some(io::ErrorKind::WouldBlock));
        assert!(near.try_io(Interest::WRITABLE, || Ok(())).is_ok());
        far.write_all(b"ab").await.unwrap();
        near.readable().await.unwrap();
        assert_eq!(near.ready(Interest::READABLE).await.unwrap(), Ready::READABLE);
        let mut byte = [0; 1];
        let read = near.async_io(Interest::READABLE, || near.try_read(&mut byte)).await;
        assert_eq!((read.unwrap(), &byte), (1, b"a"));
        assert_eq!(near.try_io(Interest::READABLE, || near.try_read(&mut byte)).unwrap(), 1);
        far.shutdown().await.unwrap();
        let ready = near.ready(Interest::READABLE).await.unwrap();
        assert!(ready.is_read_closed() && ready.is_readable());
        assert_eq!(near.try_read(&mut byte).unwrap(), 0);
    });
}

#[test]
fn an_io_call_that_blocks_is_called_again_after_a_change() {
    run(async {
        let (near, mut far, ..) = connected().await;
        far.write_all(b"a").await.unwrap();
        near.readable().await.unwrap();
        let mut calls = 0;
        let waiting = near.async_io(Interest::READABLE, || {
            calls += 1;
            let mut buffer = [0; 2];
            // It wants two bytes, and leaves one where it is.
            let peeked = near.try_io(Interest::READABLE, || {
                let peek = std::pin::pin!(near.peek(&mut buffer));
                match std::future::Future::poll(peek, &mut Context::from_waker(Waker::noop())) {
                    Poll::Ready(len) => len,
                    Poll::Pending => Ok(0),
                }
            })?;
            if peeked < 2 { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(peeked) }
        });
        let writer = async {
            tokio::time::sleep(Duration::from_millis(50)).await;
            far.write_all(b"b").await.unwrap();
        };
        let (peeked, ()) = tokio::join!(waiting, writer);
        assert_eq!((peeked.unwrap(), calls), (2, 2), "it does not spin");
    });
}

#[test]
fn peeked_bytes_are_read_again() {
    run(async {
        let (mut near, mut far, ..) = connected().await;
        far.write_all(b"peeked").await.unwrap();
        let mut buffer = [0; 4];
        assert_eq!(near.peek(&mut buffer).await.unwrap(), 4);
        assert_eq!(near.peek(&mut []).await.unwrap(), 0);
        let mut room = ReadBuf::new(&mut buffer);
        assert_eq!(poll_fn(|context| near.poll_peek(context, &mut room)).await.unwrap(), 4);
        assert_eq!(room.filled(), b"peek");
        let mut heard = [0; 6];
        near.read_exact(&mut heard).await.unwrap();
        assert_eq!(&heard, b"peeked");
        drop(far);
        assert_eq!(near.peek(&mut buffer).await.unwrap(), 0, "the end");
    });
}

#[test]
fn each_task_that_waits_is_woken_and_one_that_gave_up_is_not() {
    run(async {
        let (near, mut far, ..) = connected().await;
        let near = Arc::new(near);
        let waiting: Vec<_> = (0..10)
            .map(|_| {
                let near = near.clone();
                tokio::spawn(async move { near.readable().await })
            })
            .collect();
        for _ in 0..1000 {
            let short = tokio::time::timeout(Duration::from_micros(1), near.readable()).await;
            assert!(short.is_err());
        }
        far.write_all(b"x").await.unwrap();
        for task in waiting {
            task.await.unwrap().unwrap();
        }
    });
}

#[test]
fn options_reach_the_connection_before_what_is_written_later() {
    run(async {
        let (near, _far, ..) = connected().await;
        assert!(!near.nodelay().unwrap() && near.quickack().unwrap());
        near.set_nodelay(true).unwrap();
        near.set_ttl(9).unwrap();
        near.set_quickack(false).unwrap();
        near.set_linger(Some(Duration::from_secs(3))).unwrap();
        assert_eq!(kind(near.set_ttl(0)), Some(io::ErrorKind::InvalidInput));
        assert!(near.nodelay().unwrap() && !near.quickack().unwrap());
        let (ttl, linger) = (near.ttl().unwrap(), near.linger().unwrap());
        assert_eq!((ttl, linger), (9, Some(Duration::from_secs(3))));
        let info = near.info().await.unwrap();
        assert_eq!(info.quick_acks, 0, "the stack has heard of it");
    });
}

#[test]
fn sockets_take_their_options_along() {
    run(async {
        let (server, client) = stacks();
        let socket = TcpSocket::new_v4_on(&server);
        socket.set_keepalive(true).unwrap();
        socket.set_nodelay(true).unwrap();
        socket.set_tos_v4(0x20).unwrap();
        assert!(socket.set_tclass_v6(1).is_err(), "the other version's");
        assert!(socket.bind("[fd00::1]:80".parse().unwrap()).is_err());
        let elsewhere = socket.bind("10.0.0.9:80".parse().unwrap());
        assert_eq!(kind(elsewhere), Some(io::ErrorKind::AddrNotAvailable));
        socket.bind((server.address(), 0).into()).unwrap();
        assert!(socket.bind((server.address(), 0).into()).is_err(), "twice");
        let listener = socket.listen(8).unwrap();
        assert_ne!(listener.local_addr().unwrap().port(), 0);
        let (near, far) = pair(&listener, &client).await;
        let options = near.options().unwrap();
        assert!(options.keepalive.is_some() && options.nodelay && options.traffic_class == 0x20);
        assert!(far.options().unwrap().keepalive.is_none());
        assert_eq!(near.peer_addr().unwrap(), far.local_addr().unwrap());
        listener.set_ttl(5).unwrap();
        let ttl = loop {
            // The listener hears of it in a turn.
            let (near, _far) = pair(&listener, &client).await;
            if near.ttl().unwrap() == 5 {
                break listener.ttl().unwrap();
            }
        };
        assert_eq!(ttl, 5);
        let from = TcpSocket::new_v4_on(&client);
        from.bind((client.address(), 4000).into()).unwrap();
        let far = from.connect(listener.local_addr().unwrap()).await.unwrap();
        assert_eq!(far.local_addr().unwrap().port(), 4000);
    });
}

#[test]
fn a_listener_polled_by_hand_wakes_its_task() {
    run(async {
        let (server, client) = stacks();
        let listener = TcpListener::bind_on(&server, (server.address(), PORT)).await.unwrap();
        let at = listener.local_addr().unwrap();
        let accepted = tokio::spawn(async move {
            poll_fn(|context| listener.poll_accept(context)).await.unwrap().1
        });
        let far = lightwait::net::TcpStream::connect_on(&client, at).await.unwrap();
        assert_eq!(accepted.await.unwrap(), far.local_addr().unwrap());
    });
}
