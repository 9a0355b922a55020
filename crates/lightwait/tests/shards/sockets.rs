//! `TcpListener` and `TcpStream` behave as tokio's do.

use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use lightwait::bridge::SERVER_ADDRESS;
use lightwait::local::{TcpListener, TcpStream};
use lightwait::rt;
use lightwait::shard::Handle;
use lightwait_core::Host;
use lightwait_core::buffer::{Level, PAGE_BYTES};
use lightwait_core::tcp::State;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::world::World;

pub(crate) const PORT: u16 = 7;

pub(crate) fn server() -> SocketAddr {
    (SERVER_ADDRESS, PORT).into()
}

/// Bytes that show whether one of them was lost, doubled or moved.
pub(crate) fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 + i / 251 + i / 65_537) as u8).collect()
}

/// Sends received data back until the end, then FIN.
pub(crate) async fn echo(mut stream: TcpStream) -> io::Result<u64> {
    let mut buffer = vec![0; 16 << 10];
    let mut total = 0;
    loop {
        let len = stream.read(&mut buffer).await?;
        if len == 0 {
            stream.shutdown().await?;
            return Ok(total);
        }
        stream.write_all(&buffer[..len]).await?;
        total += len as u64;
    }
}

pub(crate) async fn echo_server() {
    let listener = TcpListener::bind(server()).await.unwrap();
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        lightwait::executor::spawn_local(echo(stream));
    }
}

#[test]
fn what_is_sent_comes_back_and_nothing_is_left() {
    let mut world = World::new();
    let service = world.on_server(echo_server());
    let data = pattern(3_000_000);
    let sent = data.clone();
    let task = world.on_client(async move {
        let stream = TcpStream::connect(server()).await.unwrap();
        assert_eq!(stream.peer_addr().unwrap(), server());
        let (mut reader, mut writer) = stream.into_split();
        let sending = lightwait::executor::spawn_local(async move {
            writer.write_all(&sent).await.unwrap();
        });
        let mut back = Vec::new();
        reader.read_to_end(&mut back).await.unwrap();
        assert!(sending.is_finished(), "dropping the write half has sent FIN");
        assert!(back == data);
    });
    world.finish(&task);
    service.abort();
    world.run_until(|world| world.handles().iter().all(|h| h.with_host(Host::connections) == 0));
    let pages: Vec<_> =
        world.handles().iter().map(|handle| handle.with_host(Host::pages_in_use)).collect();
    assert_eq!(pages, [0, 0]);
}

#[test]
fn a_hundred_connections_at_once_are_served() {
    let mut world = World::new();
    let _service = world.on_server(echo_server());
    let tasks: Vec<_> = (0..100)
        .map(|number| {
            world.on_client(async move {
                let data = pattern(10_000 + number);
                let mut stream = TcpStream::connect(server()).await.unwrap();
                stream.write_all(&data).await.unwrap();
                stream.shutdown().await.unwrap();
                let mut back = Vec::new();
                stream.read_to_end(&mut back).await.unwrap();
                assert_eq!(back, data);
            })
        })
        .collect();
    world.run_until(|_| tasks.iter().all(lightwait::executor::JoinHandle::is_finished));
}

#[test]
fn a_closed_port_refuses_and_a_taken_one_is_in_use() {
    let mut world = World::new();
    let task = world.on_client(async { TcpStream::connect(server()).await.map(drop) });
    let check = world.on_client(async {
        let error = task.await.unwrap().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    });
    world.finish(&check);
    let [handle, _] = world.handles();
    let first = TcpListener::bind_on(&handle, server()).unwrap();
    assert_eq!(first.local_addr().unwrap(), server());
    let error = TcpListener::bind_on(&handle, server()).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    drop(first);
    assert!(TcpListener::bind_on(&handle, server()).is_ok());
    let error = TcpListener::bind_on(&handle, "100.64.0.9:7").unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::AddrNotAvailable);
}

/// Runs `serve` on the accepted stream and `use_it` on the connected one, to their ends.
pub(crate) fn converse<S, C, FS, FC>(serve: S, use_it: C)
where
    S: FnOnce(TcpStream) -> FS + 'static,
    C: FnOnce(TcpStream) -> FC + 'static,
    FS: Future<Output = ()> + 'static,
    FC: Future<Output = ()> + 'static,
{
    let mut world = World::new();
    let served = world.on_server(async move {
        let listener = TcpListener::bind(server()).await.unwrap();
        let (stream, peer) = listener.accept().await.unwrap();
        assert_eq!(stream.peer_addr().unwrap(), peer);
        serve(stream).await;
    });
    let used = world.on_client(async move {
        use_it(TcpStream::connect(server()).await.unwrap()).await;
    });
    world.run_until(|_| served.is_finished() && used.is_finished());
}

#[test]
fn dropping_a_stream_with_unread_data_resets_it() {
    converse(
        |stream| async move {
            stream.readable().await.unwrap();
            drop(stream);
        },
        |mut stream| async move {
            stream.write_all(b"nobody reads this").await.unwrap();
            let error = stream.read(&mut [0; 8]).await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
        },
    );
}

#[test]
fn dropping_a_stream_sends_what_was_written_and_then_the_end() {
    converse(
        |mut stream| async move { stream.write_all(&pattern(500_000)).await.unwrap() },
        |mut stream| async move {
            let mut all = Vec::new();
            stream.read_to_end(&mut all).await.unwrap();
            assert_eq!(all, pattern(500_000));
        },
    );
}

#[test]
fn linger_zero_resets() {
    converse(
        |stream| async move {
            stream.set_linger(Some(Duration::ZERO)).unwrap();
            assert_eq!(stream.linger().unwrap(), Some(Duration::ZERO));
        },
        |mut stream| async move {
            let error = stream.read(&mut [0; 8]).await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
        },
    );
}

#[test]
fn aborting_drops_what_is_not_sent_and_resets() {
    for by_control in [false, true] {
        converse(
            move |mut stream| async move {
                stream.write_all(&pattern(100_000)).await.unwrap();
                let (control, shard) = (stream.control(), Handle::current());
                assert_eq!(control.unacknowledged_bytes(), 100_000);
                if by_control {
                    control.abort();
                    assert!(stream.write_all(b"more").await.is_err());
                } else {
                    stream.abort();
                }
                assert_eq!(
                    (control.unacknowledged_bytes(), shard.with_host(Host::pages_in_use)),
                    (0, 0)
                );
                // The control does nothing to the next connection in that place.
                control.abort();
            },
            |mut stream| async move {
                let error = stream.read_to_end(&mut Vec::new()).await.unwrap_err();
                assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
            },
        );
    }
}

#[test]
fn memory_of_others_counts_against_buffers_and_is_waited_for() {
    let mut world = World::new();
    let shard = world.server.handle();
    let (memory, other) = (shard.memory(), shard.memory());
    let limit = shard.with_host(|host| host.config().limits.pages) * PAGE_BYTES;
    let level_at = |bytes| {
        memory.held().store(bytes, Ordering::Relaxed);
        memory.level()
    };
    assert_eq!(level_at(limit / 2), Level::Plenty);
    assert_eq!(level_at(limit / 16 * 13), Level::Scarce);
    assert_eq!(level_at(limit), Level::Full);
    other.held().store(limit / 4, Ordering::Relaxed);
    let order = Rc::new(RefCell::new(Vec::new()));
    for number in 0..3 {
        let (memory, order) = (memory.clone(), order.clone());
        world.on_server(async move {
            memory.room().await;
            order.borrow_mut().push(number);
        });
    }
    let shut = order.clone();
    // A future that is dropped, or polled again and again, takes no further place.
    let (once, twice) = (memory.clone(), order.clone());
    world.on_server(async move {
        let _ = rt::timeout(Duration::from_secs(1), once.room()).await;
        let mut again = Box::pin(once.room());
        for _ in 0..10 {
            let _ = rt::timeout(Duration::from_millis(1), again.as_mut()).await;
        }
        assert_eq!(once.waiting(), 4);
        again.await;
        twice.borrow_mut().push(3);
    });
    let until = world.now() + Duration::from_secs(10);
    world.on_server(async { rt::sleep(Duration::from_secs(11)).await });
    world.run_until(|world| world.now() >= until);
    assert!(shut.borrow().is_empty(), "there is none");
    memory.held().store(limit / 8, Ordering::Relaxed);
    world.run_until(|_| shut.borrow().len() == 4);
    assert_eq!(*shut.borrow(), [0, 1, 2, 3]);
    assert_eq!(memory.waiting(), 0);
}

#[test]
fn after_the_peers_fin_writes_work_and_after_ours_they_do_not() {
    converse(
        |mut stream| async move {
            let mut got = Vec::new();
            stream.read_to_end(&mut got).await.unwrap();
            assert_eq!(got, b"question");
            stream.write_all(b"answer").await.unwrap();
        },
        |mut stream| async move {
            stream.write_all(b"question").await.unwrap();
            stream.shutdown().await.unwrap();
            let error = stream.write(b"more").await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
            let mut got = Vec::new();
            stream.read_to_end(&mut got).await.unwrap();
            assert_eq!(got, b"answer");
        },
    );
}

#[test]
fn peeking_leaves_the_bytes_and_trying_does_not_wait() {
    converse(
        |mut stream| async move {
            stream.write_all(b"hello").await.unwrap();
            rt::sleep(Duration::from_secs(1)).await;
        },
        |stream| async move {
            let mut buffer = [0; 8];
            let error = stream.try_read(&mut buffer).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
            assert_eq!(stream.peek(&mut buffer).await.unwrap(), 5);
            assert_eq!(stream.try_read(&mut buffer[..2]).unwrap(), 2);
            stream.readable().await.unwrap();
            assert_eq!(stream.try_read(&mut buffer).unwrap(), 3);
            assert_eq!(&buffer[..3], b"llo");
        },
    );
}

#[test]
fn a_writer_waits_for_the_reader_and_goes_on_when_it_reads() {
    const LEN: usize = 20_000_000;
    let reading = Rc::new(std::cell::Cell::new(false));
    let is_reading = reading.clone();
    converse(
        move |mut stream| async move {
            rt::sleep(Duration::from_secs(10)).await;
            reading.set(true);
            let mut all = Vec::new();
            stream.read_to_end(&mut all).await.unwrap();
            assert!(all == pattern(LEN));
        },
        move |mut stream| async move {
            let data = pattern(LEN);
            while stream.try_write(&data[..1]).is_err() {
                stream.writable().await.unwrap();
            }
            stream.write_all(&data[1..]).await.unwrap();
            assert!(is_reading.get(), "buffers do not hold that much");
        },
    );
}

#[test]
fn options_and_facts_of_a_connection_can_be_asked() {
    converse(
        |stream| async move {
            assert!(!stream.nodelay().unwrap());
            stream.set_nodelay(true).unwrap();
            assert!(stream.nodelay().unwrap());
            assert_eq!(stream.local_addr().unwrap(), server());
        },
        |mut stream| async move {
            let info = stream.info().unwrap();
            assert_eq!(info.state, State::Established);
            assert!(info.mss_bytes > 1000 && info.cwnd_bytes > 0, "{info:?}");
            assert_eq!(stream.read(&mut [0; 8]).await.unwrap(), 0);
            assert_eq!(stream.info().unwrap().state, State::CloseWait);
            assert!(stream.take_error().unwrap().is_none());
        },
    );
}

#[test]
fn vectored_and_shared_bytes_arrive_in_order() {
    converse(
        |mut stream| async move {
            let slices = [&b"one "[..], b"", b"two "].map(io::IoSlice::new);
            assert_eq!(stream.write_vectored(&slices).await.unwrap(), 8);
            stream.write_all_bytes(pattern(300_000).into()).await.unwrap();
        },
        |mut stream| async move {
            let mut all = Vec::new();
            stream.read_to_end(&mut all).await.unwrap();
            assert_eq!(&all[..8], b"one two ");
            assert!(all[8..] == pattern(300_000));
        },
    );
}

#[test]
fn halves_are_reunited_only_with_their_own() {
    let mut world = World::new();
    let _service = world.on_server(echo_server());
    let task = world.on_client(async {
        let (reader, writer) = TcpStream::connect(server()).await.unwrap().into_split();
        let (other_reader, other_writer) = TcpStream::connect(server()).await.unwrap().into_split();
        let error = reader.reunite(other_writer).unwrap_err();
        let mut stream = error.0.reunite(writer).unwrap();
        assert!(other_reader.reunite(error.1).is_ok());
        stream.write_all(b"the write side was not shut down").await.unwrap();
        assert_eq!(stream.read(&mut [0; 3]).await.unwrap(), 3);
    });
    world.finish(&task);
}

#[test]
fn a_silent_peer_is_waited_for_no_longer_than_asked() {
    let mut world = World::new();
    let start = world.now();
    let silent: SocketAddr = "100.64.0.77:7".parse().unwrap();
    let task = world.on_client(async move {
        let connect = TcpStream::connect(silent);
        rt::timeout(Duration::from_secs(5), connect).await.map(drop).unwrap_err()
    });
    world.finish(&task);
    assert_eq!(world.now().since(start), Duration::from_secs(5));
}

#[test]
fn a_record_is_written_whole_or_ends_later() {
    let mut world = World::new();
    let service = world.on_server(async {
        let listener = TcpListener::bind(server()).await.unwrap();
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut all = Vec::new();
        stream.read_to_end(&mut all).await.unwrap();
        assert_eq!(all, b"one two");
    });
    let task = world.on_client(async {
        let mut stream = TcpStream::connect(server()).await.unwrap();
        assert_eq!(stream.try_write_record(b"one ").unwrap(), 4);
        stream.write_all(b"two").await.unwrap();
        stream.shutdown().await.unwrap();
        let error = stream.try_write_record(b"three").unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::BrokenPipe);
    });
    world.finish(&task);
    world.finish(&service);
}

#[test]
fn urgent_data_stays_in_line_and_its_mark_is_told() {
    let mut world = World::new();
    let service = world.on_server(async {
        let listener = TcpListener::bind(server()).await.unwrap();
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.readable().await.unwrap();
        assert_eq!(stream.urgent_mark().unwrap(), Some(3));
        let mut first = [0; 3];
        stream.read_exact(&mut first).await.unwrap();
        assert_eq!((&first, stream.urgent_mark().unwrap()), (b"abc", None));
        let mut all = Vec::new();
        stream.read_to_end(&mut all).await.unwrap();
        assert_eq!(all, b"def");
    });
    let task = world.on_client(async {
        let mut stream = TcpStream::connect(server()).await.unwrap();
        assert_eq!(stream.try_write_urgent(b"abc").unwrap(), 3);
        stream.write_all(b"def").await.unwrap();
        stream.shutdown().await.unwrap();
    });
    world.finish(&task);
    world.finish(&service);
}
