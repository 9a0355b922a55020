//! Options of sockets, and sockets that are set up before they connect or listen.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroU64;
use std::time::Duration;

use lightwait::bridge::SERVER_ADDRESS;
use lightwait::local::{TcpListener, TcpSocket, TcpStream};
use lightwait::rt;
use lightwait::shard::Handle;
use lightwait_core::Host;
use lightwait_core::config::Algorithm;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::sockets::{PORT, converse, server};
use crate::world::World;

/// The client's address in `bridge::client_config`.
const CLIENT_ADDRESS: Ipv4Addr = Ipv4Addr::new(100, 64, 0, 2);

#[test]
fn a_connection_takes_its_options_one_by_one() {
    converse(
        |stream| async move {
            rt::sleep(Duration::from_millis(50)).await;
            stream.set_zero_linger().unwrap();
        },
        |mut stream| async move {
            assert_eq!(stream.ttl().unwrap(), 64);
            stream.set_ttl(7).unwrap();
            assert_eq!((stream.ttl().unwrap(), stream.options().unwrap().hop_limit), (7, Some(7)));
            for wrong in [0, 256] {
                let error = stream.set_ttl(wrong).unwrap_err();
                assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
            }
            assert!(stream.quickack().unwrap(), "a connection begins so");
            stream.set_quickack(false).unwrap();
            assert!(!stream.quickack().unwrap());
            stream.set_quickack(true).unwrap();
            assert!(stream.quickack().unwrap());
            let error = stream.read(&mut [0; 1]).await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
        },
    );
}

#[test]
fn a_socket_hands_its_options_to_its_connection() {
    let mut world = World::new();
    let served = world.on_server(async {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_nodelay(false).unwrap();
        socket.set_keepalive(true).unwrap();
        socket.bind(server()).unwrap();
        let listener = socket.listen(16).unwrap();
        assert_eq!(listener.local_addr().unwrap(), server());
        listener.set_ttl(9).unwrap();
        assert_eq!(listener.ttl().unwrap(), 9);
        let (mut stream, peer) = listener.accept().await.unwrap();
        assert_eq!(peer, SocketAddr::from((CLIENT_ADDRESS, 4321)));
        let options = stream.options().unwrap();
        assert!(!options.nodelay && options.keepalive.is_some());
        assert_eq!(stream.ttl().unwrap(), 9);
        stream.write_all(b"x").await.unwrap();
    });
    let rate = NonZeroU64::new(100_000);
    let used = world.on_client(async move {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_send_buffer_size(100_000).unwrap();
        socket.set_recv_buffer_size(50_000).unwrap();
        socket.set_linger(Some(Duration::from_secs(1))).unwrap();
        socket.set_tos_v4(0x10).unwrap();
        socket.set_congestion(Algorithm::Reno).unwrap();
        socket.set_max_pacing_rate(rate).unwrap();
        socket.set_pacing(true).unwrap();
        assert_eq!(socket.max_pacing_rate().unwrap(), rate);
        socket.bind((CLIENT_ADDRESS, 4321).into()).unwrap();
        assert_eq!(socket.local_addr().unwrap().port(), 4321);
        let mut stream = socket.connect(server()).await.unwrap();
        let options = stream.options().unwrap();
        assert_eq!(options.send_buffer_bytes, 100_000);
        assert_eq!(options.receive_buffer_bytes, Some(50_000));
        assert_eq!((options.linger, options.traffic_class), (Some(Duration::from_secs(1)), 0x10));
        assert_eq!(stream.congestion().unwrap(), Algorithm::Reno);
        assert_eq!((stream.max_pacing_rate().unwrap(), stream.pacing().unwrap()), (rate, true));
        assert_eq!(stream.info().unwrap().pacing_bytes_per_second, 100_000);
        stream.set_max_pacing_rate(None).unwrap();
        assert!(stream.info().unwrap().pacing_bytes_per_second > 100_000);
        stream.set_pacing(false).unwrap();
        assert_eq!(stream.info().unwrap().pace, None);
        assert_eq!(stream.read(&mut [0; 8]).await.unwrap(), 1);
    });
    world.run_until(|_| served.is_finished() && used.is_finished());
}

#[test]
fn a_socket_refuses_what_makes_no_sense() {
    let mut world = World::new();
    let tried = world.on_client(async {
        let v4 = TcpSocket::new_v4().unwrap();
        let kind = |result: io::Result<()>| result.unwrap_err().kind();
        assert_eq!(kind(v4.bind("[::1]:80".parse().unwrap())), io::ErrorKind::InvalidInput);
        assert_eq!(kind(v4.bind(server())), io::ErrorKind::AddrNotAvailable);
        assert_eq!(kind(v4.set_tclass_v6(0)), io::ErrorKind::InvalidInput);
        assert_eq!(kind(v4.set_tos_v4(256)), io::ErrorKind::InvalidInput);
        assert_eq!(kind(v4.local_addr().map(drop)), io::ErrorKind::InvalidInput);
        v4.bind((CLIENT_ADDRESS, 0).into()).unwrap();
        assert_eq!(kind(v4.bind((CLIENT_ADDRESS, 0).into())), io::ErrorKind::InvalidInput);
        let v6 = TcpSocket::new_v6().unwrap();
        assert_eq!(v6.tclass_v6().unwrap(), 0);
        let error = v6.connect(server()).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    });
    world.finish(&tried);
}

#[test]
fn the_first_address_that_answers_is_connected_to() {
    let mut world = World::new();
    let served = world.on_server(async {
        // The first address is taken: it is the client's.
        let addresses = [SocketAddr::from((CLIENT_ADDRESS, PORT)), server()];
        let listener = TcpListener::bind(&addresses[..]).await.unwrap();
        listener.accept().await.unwrap().1
    });
    let used = world.on_client(async {
        let nobody = SocketAddr::from((SERVER_ADDRESS, PORT + 1));
        let error = TcpStream::connect(&[nobody; 2][..]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        let error = TcpStream::connect(&[][..]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        let stream = TcpStream::connect(&[nobody, server()][..]).await.unwrap();
        assert_eq!(stream.peer_addr().unwrap(), server());
    });
    world.run_until(|_| served.is_finished() && used.is_finished());
}

#[test]
fn a_stream_that_swaps_waits_for_the_server_that_closed_first() {
    for (swaps, held) in [(true, (0, 1)), (false, (1, 0))] {
        let mut world = World::new();
        let served = world.on_server(async {
            let listener = TcpListener::bind(server()).await.unwrap();
            drop(listener.accept().await.unwrap());
        });
        let used = world.on_client(async move {
            let mut stream = TcpStream::connect(server()).await.unwrap();
            assert_eq!(stream.read(&mut [0; 1]).await.unwrap(), 0);
            if swaps {
                stream.close_swap();
            }
        });
        world.run_until(|world| {
            let is_idle = |handle: &Handle| handle.with_host(|host| host.connections() == 0);
            served.is_finished() && used.is_finished() && world.handles().iter().all(is_idle)
        });
        // The RST is still on its way.
        let waited = world.on_client(async { rt::sleep(Duration::from_secs(1)).await });
        world.finish(&waited);
        let [server, client] = world.handles().map(|handle| handle.with_host(Host::time_wait_len));
        assert_eq!((server, client), held, "swaps: {swaps}");
    }
}
