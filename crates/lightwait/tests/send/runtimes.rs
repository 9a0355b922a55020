//! The sockets under tokio's runtimes, under smol's, and without one.

use std::io;

use lightwait::net::{StackHandle, TcpListener, TcpSocket, TcpStream, UdpSocket};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::world::{PORT, in_time, run, stacks};

fn assert_send<T: Send + Sync + 'static>() {}

#[test]
fn every_type_can_move_to_another_thread() {
    assert_send::<StackHandle>();
    assert_send::<TcpListener>();
    assert_send::<TcpStream>();
    assert_send::<TcpSocket>();
    assert_send::<UdpSocket>();
    assert_send::<lightwait::net::OwnedReadHalf>();
    assert_send::<lightwait::net::OwnedWriteHalf>();
}

#[test]
fn every_device_can_move_to_the_thread_of_its_stack() {
    fn assert_device<D: lightwait::device::Device + Send + 'static>() {}
    assert_device::<lightwait::device::Tap>();
    assert_device::<lightwait::device::Tun>();
    assert_device::<lightwait::device::AfPacket>();
    assert_device::<lightwait::device::AfXdp>();
    assert_device::<lightwait::device::ThreadedMemory>();
}

/// Answers one connection with what it sends.
async fn echo(listener: TcpListener) -> io::Result<u64> {
    let (stream, _) = listener.accept().await?;
    let (mut reader, mut writer) = stream.into_split();
    let copied = tokio::io::copy(&mut reader, &mut writer).await?;
    writer.shutdown().await?;
    Ok(copied)
}

async fn ask(client: StackHandle, to: std::net::SocketAddr) -> io::Result<String> {
    let mut stream = TcpStream::connect_on(&client, to).await?;
    stream.write_all(b"hello").await?;
    stream.shutdown().await?;
    let mut heard = String::new();
    stream.read_to_string(&mut heard).await?;
    Ok(heard)
}

#[test]
fn tokios_threads_share_the_sockets() {
    run(async {
        let (server, client) = stacks();
        let listener = TcpListener::bind_on(&server, (server.address(), PORT)).await.unwrap();
        let at = listener.local_addr().unwrap();
        let echo = tokio::spawn(echo(listener));
        let heard = tokio::spawn(ask(client, at)).await.unwrap();
        assert_eq!(heard.unwrap(), "hello");
        assert_eq!(echo.await.unwrap().unwrap(), 5);
    });
}

#[test]
fn tokios_current_thread_runtime_has_both_ends() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(in_time(async {
        let (server, client) = stacks();
        let listener = TcpListener::bind_on(&server, (server.address(), PORT)).await.unwrap();
        let at = listener.local_addr().unwrap();
        let (echoed, heard) = tokio::join!(echo(listener), ask(client, at));
        assert_eq!((echoed.unwrap(), heard.unwrap().as_str()), (5, "hello"));
    }));
}

#[test]
fn smols_executor_runs_the_same_code() {
    let (server, client) = stacks();
    smol::block_on(async {
        let listener = TcpListener::bind_on(&server, (server.address(), PORT)).await.unwrap();
        let at = listener.local_addr().unwrap();
        let echo = smol::spawn(echo(listener));
        let heard = smol::spawn(ask(client, at)).await;
        assert_eq!(heard.unwrap(), "hello");
        assert_eq!(echo.await.unwrap(), 5);
    });
}

#[test]
fn sockets_without_a_stack_are_on_the_default_one() {
    run(async {
        let error = TcpListener::bind("0.0.0.0:80").await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotConnected);
        assert!(error.to_string().contains("set_default"), "{error}");
        assert!(UdpSocket::bind("0.0.0.0:53").await.is_err());
        assert!(TcpSocket::new_v4().is_err() && TcpStream::connect("10.0.0.1:80").await.is_err());
        let (server, client) = stacks();
        server.set_default();
        let listener = TcpListener::bind("0.0.0.0:80").await.unwrap();
        let echo = tokio::spawn(echo(listener));
        client.set_default();
        let mut stream = TcpStream::connect((server.address(), 80)).await.unwrap();
        assert_eq!(stream.local_addr().unwrap().ip(), client.address());
        stream.write_all(b"x").await.unwrap();
        assert_eq!(stream.read_u8().await.unwrap(), b'x');
        drop(stream);
        assert_eq!(echo.await.unwrap().unwrap(), 1);
    });
}
