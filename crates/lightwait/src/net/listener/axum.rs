//! Lets `axum::serve` take the listener.

use std::io;
use std::net::SocketAddr;

use axum::serve::Listener;

use super::TcpListener;
use crate::net::TcpStream;

impl Listener for TcpListener {
    type Io = TcpStream;
    type Addr = SocketAddr;

    /// Accepts the next connection. Once the stack has ended there is none any more, and axum knows
    /// no error here: give [`StackHandle::ended`](crate::net::StackHandle::ended) to its
    /// `with_graceful_shutdown`.
    async fn accept(&mut self) -> (TcpStream, SocketAddr) {
        match TcpListener::accept(self).await {
            Ok(accepted) => accepted,
            Err(_) => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        TcpListener::local_addr(self)
    }
}
