//! A client on our TCP: fetches a page from a server on the kernel's TCP, over a TAP device.
//!
//! `cargo build --release -p lightwait --example client`, then, with a server such as
//! `python3 -m http.server --bind 0.0.0.0 8000` running:
//! `sudo target/release/examples/client lwc0 10.9.1.2/24 10.9.1.1:8000 /`
//!
//! The TAP is made with the first address, 10.9.1.1, at the kernel's end of it. Without arguments
//! the server is a stack of ours on the other end of a wire in memory.

use std::cell::RefCell;
use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;

use lightwait::bridge;
use lightwait::device::{Device, Tap, TapConfig};
use lightwait::driver::{self, SPIN, Stop};
use lightwait::net::{TcpListener, TcpStream};
use lightwait::shard::Shard;
use lightwait_core::Config;
use lightwait_core::host::address::Cidr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// A server for the run without arguments: the same page for everybody.
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

/// A shard on a TAP named `name`, with our address; the subnet's first one is the kernel's.
fn on_tap(name: &str, ours: Cidr) -> io::Result<Shard> {
    let mut tap = TapConfig::new(name);
    tap.host_addresses = Cidr::new(ours.nth(1), ours.prefix_len()).into_iter().collect();
    let tap = Tap::open(&tap)?;
    // A program takes its secret and its hardware address from a random source.
    let config = Config::new(tap.capabilities(), ours, [7; 32]);
    Shard::new(config, Box::new(tap))
}

/// A client's and a server's shard on a wire.
fn in_memory(server: SocketAddr) -> io::Result<Vec<Shard>> {
    let (server_end, client_end) = bridge::wire();
    let serving = Shard::new(bridge::server_config([1; 32]), Box::new(server_end))?;
    let client = Shard::new(bridge::client_config([2; 32]), Box::new(client_end))?;
    let listener = TcpListener::bind_on(&serving.handle(), server)?;
    serving.handle().spawn_local(serve(listener));
    Ok(vec![client, serving])
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let texts: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (mut shards, server, path) = match texts[..] {
        [] => {
            let server = SocketAddr::from((bridge::SERVER_ADDRESS, 80));
            (in_memory(server)?, server, "/".to_owned())
        }
        [name, ours, server, path] => {
            (vec![on_tap(name, ours.parse()?)?], server.parse()?, path.to_owned())
        }
        _ => return Err("usage: client [TAP OUR-ADDRESS/PREFIX SERVER:PORT PATH]".into()),
    };
    let stop = Stop::new();
    let (done, page) = (stop.clone(), Rc::new(RefCell::new(None)));
    let fetched = page.clone();
    shards[0].handle().spawn_local(async move {
        *fetched.borrow_mut() = Some(fetch(server, &path).await);
        done.set();
    });
    driver::run(&mut shards, &stop, SPIN)?;
    let page = page.take().ok_or("nothing was fetched")??;
    print!("{}", String::from_utf8_lossy(&page));
    Ok(())
}
