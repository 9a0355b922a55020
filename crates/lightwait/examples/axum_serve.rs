//! `axum::serve`, unmodified, on our own TCP.
//!
//! As root, `cargo run -p lightwait --example axum_serve`, then
//! `curl http://10.9.0.2/hello/you`. The stack is on the TAP `lw0`, on a thread of its own.
//!
//! With `--once` the stack is at the end of a wire in memory. The program makes one request to
//! itself, prints the answer and ends.

use std::io;

use axum::Router;
use axum::extract::Path;
use axum::routing::get;
use lightwait::Stack;
use lightwait::net::{StackHandle, TcpListener, TcpStream};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

async fn hello(Path(name): Path<String>) -> String {
    format!("hello, {name}\n")
}

/// Serves until the stack ends, and returns the failure that ended it.
async fn serve(stack: StackHandle) -> io::Result<()> {
    let listener = TcpListener::bind_on(&stack, "0.0.0.0:80").await?;
    let router = Router::new().route("/hello/{name}", get(hello));
    tokio::select! {
        served = axum::serve(listener, router).into_future() => served,
        ended = stack.ended() => ended,
    }
}

/// A client on the stack at the wire's other end.
async fn ask(client: &StackHandle, server: &StackHandle) -> io::Result<String> {
    let mut stream = TcpStream::connect_on(client, (server.address(), 80)).await?;
    let request = b"GET /hello/you HTTP/1.1\r\nHost: example\r\nConnection: close\r\n\r\n";
    stream.write_all(request).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}

#[tokio::main]
async fn main() -> io::Result<()> {
    if std::env::args().any(|argument| argument == "--once") {
        let (server, client) = Stack::memory()?;
        let (server, client) = (server.spawn()?, client.spawn()?);
        let serving = tokio::spawn(serve(server.clone()));
        // The listener is there once the connection is not refused.
        let answer = loop {
            match ask(&client, &server).await {
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => continue,
                answer => break answer?,
            }
        };
        print!("{answer}");
        server.shutdown();
        return serving.await?;
    }
    let stack = Stack::tap("lw0", "10.9.0.2/24")?.spawn()?;
    println!("http://{}/hello/you", stack.address());
    serve(stack).await
}
