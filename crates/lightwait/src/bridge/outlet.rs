//! The outlet: a listener on our stack, joined to a server on the kernel's stack, without any
//! privileges.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::{fmt, io};

use tokio::net::TcpSocket;

use super::{ACCEPT_PAUSE, Relay};
use crate::executor::spawn_local;
use crate::local::TcpListener;
use crate::rt;

/// The reverse of [`Bridge`](super::Bridge). The outlet accepts connections on our stack and relays
/// them, byte stream for byte stream, to one address of the kernel's TCP.
///
/// ```text
///   client stack ──wire in memory──▶ server stack ══▶ Outlet ──kernel TCP──▶ server
///   100.65.0.0/16                    100.64.0.1:80                           127.0.0.1:8080
/// ```
///
/// Our stack accepts a connection before the kernel opens the other one. If the target refuses, the
/// client gets a reset after its handshake.
pub struct Outlet {
    listener: TcpListener,
    target: SocketAddr,
    source: Option<Box<Source>>,
    relay: Relay,
}

/// Maps the address of a client of our stack to the source address of the kernel's connection.
type Source = dyn Fn(SocketAddr) -> SocketAddr;

impl Outlet {
    /// Relays each connection that `listener` accepts to `target`. The kernel picks the source
    /// addresses.
    pub fn new(listener: TcpListener, target: SocketAddr) -> Outlet {
        Outlet { listener, target, source: None, relay: Relay::default() }
    }

    /// Connects from the address and port that `source` returns for the client's address. If
    /// another socket has that port, the kernel picks another port of that address.
    #[must_use]
    pub fn with_source(self, source: impl Fn(SocketAddr) -> SocketAddr + 'static) -> Outlet {
        Outlet { source: Some(Box::new(source)), ..self }
    }

    /// Accepts and relays connections until the future is dropped. Spawn it on the listener's shard
    /// ([`Handle::spawn_local`](crate::shard::Handle::spawn_local)), driven under a tokio runtime
    /// with I/O and time enabled ([`driver::drive`](crate::driver::drive)). Each relay is a task of
    /// its own there and outlives this future.
    pub async fn run(self) -> Infallible {
        loop {
            let Ok((stack, peer)) = self.listener.accept().await else {
                rt::sleep(ACCEPT_PAUSE).await;
                continue;
            };
            let (target, relay) = (self.target, self.relay.clone());
            let source = self.source.as_ref().map(|source| source(peer));
            spawn_local(async move {
                match connect(source, target).await {
                    Ok(kernel) => {
                        let _ = relay.join(&kernel, &stack).await;
                    }
                    Err(_) => stack.abort(),
                }
            });
        }
    }
}

impl fmt::Debug for Outlet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Outlet { listener, target, .. } = self;
        f.debug_struct("Outlet").field("listener", listener).field("target", target).finish()
    }
}

/// Opens a connection of the kernel's TCP.
async fn connect(
    source: Option<SocketAddr>,
    target: SocketAddr,
) -> io::Result<tokio::net::TcpStream> {
    let socket = if target.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    if let Some(source) = source {
        // Without this the kernel refuses the port while any tuple with it is in TIME-WAIT.
        socket.set_reuseaddr(true)?;
        match socket.bind(source) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                socket.bind(SocketAddr::new(source.ip(), 0))?;
            }
            bound => bound?,
        }
    }
    socket.connect(target).await
}
