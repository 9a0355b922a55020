//! An echo server and its client: two stacks, one wire in memory, one thread, no runtime.
//!
//! `cargo run --release -p lightwait --example echo`

use std::io;
use std::net::SocketAddr;

use lightwait::bridge;
use lightwait::driver::{self, Stop};
use lightwait::executor::spawn_local;
use lightwait::net::{TcpListener, TcpStream};
use lightwait::shard::Shard;
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
    let (server_end, client_end) = bridge::wire();
    let server = Shard::new(bridge::server_config([1; 32]), Box::new(server_end))?;
    let client = Shard::new(bridge::client_config([2; 32]), Box::new(client_end))?;
    let at = SocketAddr::from((bridge::SERVER_ADDRESS, 7));
    let listener = TcpListener::bind_on(&server.handle(), at)?;
    server.handle().spawn_local(serve(listener));

    let stop = Stop::new();
    let done = stop.clone();
    client.handle().spawn_local(async move {
        if let Err(error) = talk(at).await {
            eprintln!("client: {error}");
        }
        done.set();
    });
    driver::run(&mut [server, client], &stop, driver::SPIN)
}
