//! A listening socket with the methods of tokio's `TcpListener`. Accepted connections start with
//! its options.

use std::cell::Cell;
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::{Context, Poll};

use lightwait_core::tcp::SocketOptions;
use lightwait_core::{AcceptError, ListenerId};

use super::{TcpStream, ToSocketAddrs, io_error};
use crate::address::no_address;
use crate::lookup::addresses_for;
use crate::options::hop_limit;
use crate::shard::Handle;
use crate::shard::state::{self, Local};

/// The default number of connections that wait to be accepted: Linux's net.core.somaxconn.
pub(crate) const BACKLOG: usize = 4096;

/// Accepts connections to an address and port. Dropping it resets the connections not yet accepted.
pub struct TcpListener {
    local: Rc<Local>,
    id: ListenerId,
    /// Options that accepted connections start with.
    options: Cell<SocketOptions>,
}

impl TcpListener {
    /// Listens on the current shard. The unspecified address stands for all of the shard's
    /// addresses of that IP version (`[::]` for both versions). The host picks a port for port 0. A
    /// name is looked up, as by [`TcpStream::connect`].
    ///
    /// # Panics
    ///
    /// If no shard is current.
    pub async fn bind<A: ToSocketAddrs>(address: A) -> io::Result<TcpListener> {
        let shard = state::current();
        let addresses = addresses_for(&shard, &address).await?;
        TcpListener::bind_to_first(&shard, addresses, BACKLOG)
    }

    /// Listens on the shard of that handle. Names are not looked up.
    pub fn bind_on<A: ToSocketAddrs>(handle: &Handle, address: A) -> io::Result<TcpListener> {
        TcpListener::bind_to_first(&handle.local, address.to_socket_addrs()?, BACKLOG)
    }

    /// Listens on the shard of that handle, with room for `backlog` connections not yet accepted.
    /// Names are not looked up.
    pub fn bind_with_backlog<A: ToSocketAddrs>(
        handle: &Handle,
        address: A,
        backlog: usize,
    ) -> io::Result<TcpListener> {
        TcpListener::bind_to_first(&handle.local, address.to_socket_addrs()?, backlog)
    }

    /// Listens on the first of these addresses that is free. If none is, returns the last one's
    /// error.
    fn bind_to_first(
        shard: &Rc<Local>,
        addresses: impl Iterator<Item = SocketAddr>,
        backlog: usize,
    ) -> io::Result<TcpListener> {
        let options = shard.host().default_options();
        let mut failure = None;
        for address in addresses {
            match TcpListener::listen(shard, address, backlog, options) {
                Ok(listener) => return Ok(listener),
                Err(error) => failure = Some(error),
            }
        }
        Err(failure.unwrap_or_else(no_address))
    }

    /// Listens; accepted connections start with `options`.
    pub(crate) fn listen(
        shard: &Rc<Local>,
        address: SocketAddr,
        backlog: usize,
        options: SocketOptions,
    ) -> io::Result<TcpListener> {
        let id = shard.host_mut().listen_with(address, backlog, options).map_err(io_error)?;
        Ok(TcpListener::of(shard, id, options))
    }

    /// The listener of that name, which the host has just returned.
    pub(super) fn of(local: &Rc<Local>, id: ListenerId, options: SocketOptions) -> TcpListener {
        TcpListener { local: local.clone(), id, options: Cell::new(options) }
    }

    /// Waits for a connection, and returns it with the peer's address.
    pub async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        poll_fn(|context| self.poll_accept(context)).await
    }

    /// Polls for a connection that [`TcpListener::accept`] would return.
    pub fn poll_accept(
        &self,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<(TcpStream, SocketAddr)>> {
        loop {
            let accepted = self.local.host_mut().accept(self.local.now(), self.id);
            match accepted {
                Ok(id) => {
                    let stream = TcpStream::adopt(self.local.clone(), id);
                    // The connection may be over already, and have no peer any more: take the next
                    // one then.
                    if let Ok(peer) = self.local.host().peer_address(id) {
                        #[cfg(feature = "tracing")]
                        crate::edges::accepted(&self.local.host(), id, peer);
                        return Poll::Ready(Ok((stream, peer)));
                    }
                }
                Err(AcceptError::WouldBlock) => {
                    self.local.wait_acceptable(self.id, context);
                    return Poll::Pending;
                }
                Err(error) => return Poll::Ready(Err(io_error(error))),
            }
        }
    }

    /// The address and port of the listener.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.local.host().listener_address(self.id).map_err(io_error)
    }

    /// Options that accepted connections start with.
    pub fn options(&self) -> SocketOptions {
        self.options.get()
    }

    /// Sets the options of accepted connections whose handshake begins from now on.
    pub fn set_options(&self, options: SocketOptions) -> io::Result<()> {
        self.local.host_mut().set_listener_options(self.id, options).map_err(io_error)?;
        self.options.set(options);
        Ok(())
    }

    /// TTL, or hop limit, of the packets of accepted connections.
    pub fn ttl(&self) -> io::Result<u32> {
        let host = self.local.host();
        Ok(self.options().hop_limit.unwrap_or(host.config().hop_limit).into())
    }

    /// Sets the TTL, or hop limit, of the packets of connections accepted from now on.
    ///
    /// # Errors
    ///
    /// `InvalidInput` unless it is 1 to 255.
    pub fn set_ttl(&self, ttl: u32) -> io::Result<()> {
        let hop_limit = Some(hop_limit(ttl)?);
        self.set_options(SocketOptions { hop_limit, ..self.options() })
    }
}

impl Drop for TcpListener {
    fn drop(&mut self) {
        let now = self.local.now();
        self.local.host_mut().close_listener(now, self.id);
        self.local.touch();
        self.local.wake_acceptors(self.id);
    }
}

impl fmt::Debug for TcpListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TcpListener").field(&self.id).finish()
    }
}
