//! An axum `Router` behind our own TCP, on one thread.
//!
//! `cargo run --release -p lightwait --example axum`, then `curl http://127.0.0.1:8081/hello/you`.
//!
//! The sockets of one thread belong to their shard and are `!Send`. hyper's `serve_connection`
//! takes them, and so an axum `Router` through it; tasks are spawned on the shard, with
//! `spawn_local`. `axum::serve` asks for `Send`, and takes those of `lightwait::net`: see
//! `axum_serve`.
//!
//! With `--once` it makes one request to itself, prints the answer and ends.

use std::io;
use std::net::{SocketAddr, TcpListener as KernelListener};

use axum::Router;
use axum::extract::Path;
use axum::routing::get;
use hyper::server::conn::http1;
use hyper_util::service::TowerToHyperService;
use lightwait::bridge::{self, Bridge};
use lightwait::driver;
use lightwait::executor::spawn_local;
use lightwait::local::{TcpListener, TcpStream};
use lightwait::rt::Timer;
use lightwait::shard::Shard;
use lightwait::stack::secret;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

async fn hello(Path(name): Path<String>) -> String {
    format!("hello, {name}\n")
}

/// Answers every connection in a task of the shard.
async fn serve(listener: TcpListener, router: Router) -> io::Result<()> {
    loop {
        let (stream, _peer) = listener.accept().await?;
        let service = TowerToHyperService::new(router.clone());
        spawn_local(async move {
            let connection = http1::Builder::new().timer(Timer).serve_connection(stream, service);
            if let Err(error) = connection.await {
                eprintln!("a connection failed: {error}");
            }
        });
    }
}

/// A client on a stack of its own, on the other end of the wire.
async fn ask(server: SocketAddr) -> io::Result<String> {
    let mut stream = TcpStream::connect(server).await?;
    let request = b"GET /hello/you HTTP/1.1\r\nHost: example\r\nConnection: close\r\n\r\n";
    stream.write_all(request).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> io::Result<()> {
    let (server_end, client_end) = bridge::wire();
    let server = Shard::new(bridge::server_config(secret()?), Box::new(server_end))?;
    let client = Shard::new(bridge::client_config(secret()?), Box::new(client_end))?;
    let at = SocketAddr::from((bridge::SERVER_ADDRESS, 80));
    let listener = TcpListener::bind_on(&server.handle(), at)?;
    let router = Router::new().route("/hello/{name}", get(hello));
    server.handle().spawn_local(serve(listener, router));

    if std::env::args().any(|argument| argument == "--once") {
        let asked = client.handle().spawn_local(ask(at));
        tokio::select! {
            answer = asked => print!("{}", answer.map_err(io::Error::other)??),
            end = driver::drive(vec![server, client]) => match end? {},
        }
        return Ok(());
    }
    let bridge = Bridge::new(KernelListener::bind("127.0.0.1:8081")?, client.handle(), at)?;
    println!("http://{}/hello/you", bridge.local_addr()?);
    client.handle().spawn_local(async move { match bridge.run().await {} });
    match driver::drive(vec![server, client]).await? {}
}
