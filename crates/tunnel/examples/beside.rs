//! What a tunnel is measured with: a server, a SOCKS5 proxy and clients, one role a process.
//! `bench/tunnel.sh` starts them in namespaces, beside this tunnel and beside others.
//!
//! ```text
//!   beside server IP:PORT COUNT              listens on so many ports from PORT on
//!   beside proxy IP:PORT                     SOCKS5, CONNECT alone
//!   beside bulk IP:PORT STREAMS MIB          takes so many MiB over so many connections; prints
//!                                            seconds
//!   beside connect IP:PORT COUNT AT_ONCE SECONDS
//!                                            opens, asks for a byte, takes it, closes; prints how
//!                                            many have ended in that time, how many failed, the
//!                                            time, and the median and 99th percentile in µs of
//!                                            what one took
//!   beside idle IP:PORT COUNT CONNECTIONS    holds so many; prints how many are open, and ends
//!                                            with its standard input
//! ```

use std::cell::RefCell;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::{LocalSet, spawn_local};

/// Connections that wait to be accepted.
const BACKLOG: u32 = 4096;
const BLOCK_BYTES: usize = 64 << 10;
/// A connection that takes longer has failed.
const PATIENCE: Duration = Duration::from_secs(20);

fn main() -> io::Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    LocalSet::new().block_on(&runtime, async {
        match words[..] {
            ["server", at, count] => server(address(at), number(count) as u16).await,
            ["proxy", at] => proxy(address(at)).await,
            ["bulk", at, streams, mebibytes] => {
                bulk(address(at), number(streams), number(mebibytes)).await
            }
            ["connect", at, count, at_once, seconds] => {
                let time = Duration::from_secs(number(seconds));
                connect(address(at), number(count) as u16, number(at_once), time).await
            }
            ["idle", at, count, connections] => {
                idle(address(at), number(count) as u16, number(connections)).await
            }
            _ => panic!("see the head of this file"),
        }
    })
}

fn address(text: &str) -> SocketAddr {
    text.parse().expect("IP:PORT")
}

fn number(text: &str) -> u64 {
    text.parse().expect("a number")
}

fn listen(at: SocketAddr) -> io::Result<TcpListener> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.set_reuseport(true)?;
    socket.bind(at)?;
    socket.listen(BACKLOG)
}

async fn server(at: SocketAddr, count: u16) -> io::Result<()> {
    for port in at.port()..at.port() + count {
        let listener = listen(SocketAddr::new(at.ip(), port))?;
        spawn_local(async move {
            loop {
                if let Ok((stream, _)) = listener.accept().await {
                    spawn_local(serve(stream));
                }
            }
        });
    }
    std::future::pending().await
}

/// A connection asks for so many bytes, as a number of 8, and gets them, until it closes.
async fn serve(mut stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let block = vec![b'x'; BLOCK_BYTES];
    while let Ok(mut left) = stream.read_u64().await {
        while left > 0 {
            let len = left.min(BLOCK_BYTES as u64);
            stream.write_all(&block[..len as usize]).await?;
            left -= len;
        }
    }
    Ok(())
}

async fn proxy(at: SocketAddr) -> io::Result<()> {
    let listener = listen(at)?;
    loop {
        if let Ok((stream, _)) = listener.accept().await {
            spawn_local(relay(stream));
        }
    }
}

async fn relay(mut stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut head = [0; 2];
    stream.read_exact(&mut head).await?;
    let mut methods = vec![0; head[1].into()];
    stream.read_exact(&mut methods).await?;
    stream.write_all(&[5, 0]).await?;
    let mut request = [0; 10];
    stream.read_exact(&mut request).await?;
    let [5, 1, _, 1, a, b, c, d, port @ ..] = request else {
        return stream.write_all(&[5, 7, 0, 1, 0, 0, 0, 0, 0, 0]).await;
    };
    let to = (Ipv4Addr::new(a, b, c, d), u16::from_be_bytes(port));
    let Ok(mut far) = TcpStream::connect(to).await else {
        return stream.write_all(&[5, 5, 0, 1, 0, 0, 0, 0, 0, 0]).await;
    };
    far.set_nodelay(true)?;
    stream.write_all(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0]).await?;
    let block = BLOCK_BYTES;
    tokio::io::copy_bidirectional_with_sizes(&mut stream, &mut far, 1024, block).await.map(|_| ())
}

async fn bulk(at: SocketAddr, streams: u64, mebibytes: u64) -> io::Result<()> {
    let begun = Instant::now();
    let one = |bytes: u64| async move {
        let mut stream = TcpStream::connect(at).await?;
        stream.write_u64(bytes).await?;
        let (mut buffer, mut left) = (vec![0; 4 * BLOCK_BYTES], bytes);
        while left > 0 {
            let len = stream.read(&mut buffer).await?;
            assert!(len > 0, "the stream ended early");
            left -= len as u64;
        }
        io::Result::Ok(())
    };
    let tasks: Vec<_> =
        (0..streams).map(|_| spawn_local(one((mebibytes << 20) / streams))).collect();
    for task in tasks {
        task.await??;
    }
    println!("{:.3}", begun.elapsed().as_secs_f64());
    Ok(())
}

async fn connect(at: SocketAddr, count: u16, at_once: u64, time: Duration) -> io::Result<()> {
    let (begun, took) = (Instant::now(), Rc::new(RefCell::new((Vec::new(), 0))));
    let tasks: Vec<_> = (0..at_once)
        .map(|number| {
            let took = took.clone();
            spawn_local(async move {
                let mut turn = number;
                while begun.elapsed() < time {
                    let at = SocketAddr::new(at.ip(), at.port() + (turn % u64::from(count)) as u16);
                    turn += at_once + 1;
                    let from = Instant::now();
                    let done = tokio::time::timeout(PATIENCE, ask(at)).await;
                    let mut took = took.borrow_mut();
                    match done {
                        // One that ends after the time does not count: another waits for it.
                        Ok(Ok(())) if begun.elapsed() > time => {}
                        Ok(Ok(())) => took.0.push(from.elapsed().as_micros()),
                        Ok(Err(_)) | Err(_) => took.1 += 1,
                    }
                }
            })
        })
        .collect();
    for task in tasks {
        task.await?;
    }
    let seconds = time.as_secs_f64();
    let (mut took, failed) = took.take();
    took.sort_unstable();
    let at = |part: usize| took.get(took.len() * part / 100).copied().unwrap_or_default();
    println!("{} {failed} {seconds:.3} {} {}", took.len(), at(50), at(99));
    Ok(())
}

async fn ask(at: SocketAddr) -> io::Result<()> {
    let mut stream = TcpStream::connect(at).await?;
    stream.set_nodelay(true)?;
    stream.write_u64(1).await?;
    stream.read_u8().await?;
    stream.shutdown().await?;
    let ends = stream.read(&mut [0]).await?;
    if ends == 0 { Ok(()) } else { Err(io::ErrorKind::InvalidData.into()) }
}

async fn idle(at: SocketAddr, count: u16, connections: u64) -> io::Result<()> {
    let mut open = Vec::new();
    for turn in 0..connections {
        let at = SocketAddr::new(at.ip(), at.port() + (turn % u64::from(count)) as u16);
        let opened = async {
            let mut stream = TcpStream::connect(at).await?;
            stream.write_u64(1).await?;
            stream.read_u8().await?;
            io::Result::Ok(stream)
        };
        match tokio::time::timeout(PATIENCE, opened).await {
            Ok(Ok(stream)) => open.push(stream),
            Ok(Err(_)) | Err(_) => break,
        }
    }
    println!("{}", open.len());
    // What waits blocks the thread, which has nothing else to do.
    let _ = std::io::stdin().read_line(&mut String::new());
    Ok(())
}
