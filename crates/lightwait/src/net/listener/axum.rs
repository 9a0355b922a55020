//! Lets `axum::serve` take the listener.

use std::io;
use std::net::SocketAddr;

use axum::extract::connect_info::Connected;
use axum::serve::{IncomingStream, Listener};

use super::TcpListener;
use crate::net::TcpStream;

impl Listener for TcpListener {
    type Io = TcpStream;
    type Addr = SocketAddr;

    /// Accepts the next connection. Once the stack has ended there is none any more, and axum knows
    /// no error here: wait for [`StackHandle::ended`](crate::net::StackHandle::ended) beside it.
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

/// The peer's address in a handler: `ConnectInfo<PeerAddr>`, of a service that was made by
/// `into_make_service_with_connect_info::<PeerAddr>()`. For tokio's listener it is `SocketAddr`,
/// which only axum could make of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerAddr(pub SocketAddr);

impl Connected<IncomingStream<'_, TcpListener>> for PeerAddr {
    fn connect_info(stream: IncomingStream<'_, TcpListener>) -> PeerAddr {
        PeerAddr(*stream.remote_addr())
    }
}
