//! A client on our TCP: fetches a page from a server on the kernel's TCP, over a TAP device.
//!
//! `cargo build --release -p lightwait --example client`, then, with a server such as
//! `python3 -m http.server --bind 0.0.0.0 8000` running:
//! `sudo target/release/examples/client lwc0 10.9.1.2/24 10.9.1.1:8000 /`
//!
//! The TAP is made with the first address, 10.9.1.1, at the kernel's end of it. Without arguments
//! the server is a stack of ours on the other end of a wire in memory.

use std::error::Error;
use std::io;
use std::net::SocketAddr;

use lightwait::Stack;
use lightwait::local::{TcpListener, TcpStream};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// A server for the run without arguments: it sends the same page to every client.
async fn serve(listener: TcpListener) -> io::Result<()> {
    loop {
        let (mut stream, _peer) = listener.accept().await?;
        let mut request = [0; 1024];
        let _ = stream.read(&mut request).await?;
        stream.write_all(b"HTTP/1.0 200 OK\r\n\r\nhello from the other stack\n").await?;
    }
}

async fn fetch(server: SocketAddr, path: &str) -> io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(server).await?;
    let request = format!("GET {path} HTTP/1.0\r\nHost: {server}\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut page = Vec::new();
    stream.read_to_end(&mut page).await?;
    let info = stream.info()?;
    eprintln!("{} bytes; round trip {:?}, {} sent again", page.len(), info.srtt, info.retransmits);
    Ok(page)
}

/// A client's and a server's stack on a wire in memory, the client's first, and the address and
/// port of the server.
fn in_memory() -> io::Result<(Vec<Stack>, SocketAddr)> {
    let (server, client) = Stack::memory()?;
    let at = SocketAddr::from((server.address(), 80));
    server.spawn_local(serve(TcpListener::bind_on(&server.handle(), at)?));
    Ok((vec![client, server], at))
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let texts: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (stacks, server, path) = match texts[..] {
        [] => {
            let (stacks, server) = in_memory()?;
            (stacks, server, "/".to_owned())
        }
        [name, ours, server, path] => {
            (vec![Stack::tap(name, ours)?], server.parse()?, path.to_owned())
        }
        _ => return Err("usage: client [TAP OUR-ADDRESS/PREFIX SERVER:PORT PATH]".into()),
    };
    let page = lightwait::run(stacks, async move { fetch(server, &path).await })??;
    print!("{}", String::from_utf8_lossy(&page));
    Ok(())
}
