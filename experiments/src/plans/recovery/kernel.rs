//! A server on the kernel's stack, which sends by a congestion control of choice.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use lightwait_bench::live::Namespace;
use rustix::net::sockopt::{set_tcp_congestion, tcp_congestion};
use rustix::net::{Shutdown, shutdown};

use super::site::inside;
use crate::plan::Failure;

/// Bytes of a write.
const PIECE_BYTES: usize = 256 << 10;

/// A running server: it answers each request with so many bytes as its path says (`/10240`), on
/// connections that it keeps. Dropping it ends it; connections end with their clients.
#[derive(Debug)]
pub(super) struct KernelServer {
    listener: Arc<TcpListener>,
    thread: Option<JoinHandle<()>>,
}

impl KernelServer {
    /// Listens in a namespace, with that congestion control.
    pub(super) fn start(
        namespace: &Namespace,
        address: SocketAddr,
        congestion: &str,
    ) -> Result<KernelServer, Failure> {
        let listener = inside(namespace, || {
            let listener = TcpListener::bind(address)?;
            // What is accepted inherits it.
            set_tcp_congestion(&listener, congestion)?;
            Ok(listener)
        })?;
        let set = tcp_congestion(&listener)?;
        if set != congestion {
            return Err(format!("the kernel took {set} for {congestion}").into());
        }
        let listener = Arc::new(listener);
        let (accepts, congestion) = (listener.clone(), congestion.to_owned());
        let thread = thread::spawn(move || accept(&accepts, &congestion));
        Ok(KernelServer { listener, thread: Some(thread) })
    }
}

impl Drop for KernelServer {
    fn drop(&mut self) {
        // This wakes the thread that accepts.
        let _ = shutdown(&self.listener, Shutdown::Both);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn accept(listener: &TcpListener, congestion: &str) {
    while let Ok((stream, _)) = listener.accept() {
        let is_set = tcp_congestion(&stream).is_ok_and(|set| set == congestion);
        assert!(is_set, "an accepted socket has another congestion control");
        // A client that goes away ends its connection with an error, which is no fault.
        thread::spawn(move || answer(&stream));
    }
}

/// Answers requests until the client ends.
fn answer(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let piece = vec![b'x'; PIECE_BYTES];
    let mut lines = BufReader::new(stream).lines();
    let mut length = 0;
    while let Some(line) = lines.next().transpose()? {
        if let Some(path) = line.strip_prefix("GET /") {
            let number = path.split(' ').next().and_then(|number| number.parse().ok());
            length = number.ok_or(io::ErrorKind::InvalidData)?;
        } else if line.is_empty() {
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n");
            send(stream, head.into_bytes(), length, &piece)?;
        }
    }
    Ok(())
}

/// Sends the head together with the first piece, as ours does.
fn send(mut stream: &TcpStream, head: Vec<u8>, length: usize, piece: &[u8]) -> io::Result<()> {
    let mut first = head;
    let with_it = length.min(piece.len());
    first.extend_from_slice(&piece[..with_it]);
    stream.write_all(&first)?;
    let mut left = length - with_it;
    while left > 0 {
        let count = left.min(piece.len());
        stream.write_all(&piece[..count])?;
        left -= count;
    }
    Ok(())
}
