//! An echo server and its client: two stacks, one wire in memory, one thread, no runtime.
//!
//! `cargo run --release -p lightwait --example echo`

use std::io;
use std::net::SocketAddr;

use lightwait::Stack;
use lightwait::executor::spawn_local;
use lightwait::local::{TcpListener, TcpStream};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

async fn serve(listener: TcpListener) -> io::Result<()> {
    loop {
        let (stream, peer) = listener.accept().await?;
        println!("server: {peer} has connected");
        spawn_local(async move {
            let (mut reader, mut writer) = stream.into_split();
            tokio::io::copy(&mut reader, &mut writer).await
        });
    }
}

async fn talk(server: SocketAddr) -> io::Result<()> {
    let mut stream = TcpStream::connect(server).await?;
    stream.write_all(b"hello, stack").await?;
    stream.shutdown().await?;
    let mut back = String::new();
    stream.read_to_string(&mut back).await?;
    println!("client: {back:?} came back; {:?}", stream.info()?.state);
    assert_eq!(back, "hello, stack");
    Ok(())
}

fn main() -> io::Result<()> {
    let (server, client) = Stack::memory()?;
    let at = SocketAddr::from((server.address(), 7));
    let listener = TcpListener::bind_on(&server.handle(), at)?;
    server.spawn_local(serve(listener));
    lightwait::run([client, server], talk(at))?
}
