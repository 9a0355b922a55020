//! A socket before it connects or listens, with the methods of tokio's `TcpSocket`. Its options
//! apply from the first segment on.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::num::NonZeroU64;
use std::rc::Rc;
use std::time::Duration;

use lightwait_core::config::Algorithm;
use lightwait_core::host::any_local;
use lightwait_core::tcp::{Keepalive, SocketOptions};

use super::{TcpListener, TcpStream, io_error};
use crate::options::{invalid, socket_options};
use crate::shard::Handle;
use crate::shard::state::{self, Local};

/// A socket that neither connects nor listens yet. Its options apply from the first segment on.
pub struct TcpSocket {
    local: Rc<Local>,
    is_ipv6: bool,
    bound: Cell<Option<SocketAddr>>,
    options: RefCell<SocketOptions>,
}

impl TcpSocket {
    /// A socket for IPv4 on the current shard.
    ///
    /// # Panics
    ///
    /// If no shard is current.
    #[allow(clippy::unnecessary_wraps, reason = "tokio's signature")]
    pub fn new_v4() -> io::Result<TcpSocket> {
        Ok(TcpSocket::new(state::current(), false))
    }

    /// A socket for IPv6 on the current shard.
    ///
    /// # Panics
    ///
    /// If no shard is current.
    #[allow(clippy::unnecessary_wraps, reason = "tokio's signature")]
    pub fn new_v6() -> io::Result<TcpSocket> {
        Ok(TcpSocket::new(state::current(), true))
    }

    /// A socket for IPv4 on the shard of that handle.
    pub fn new_v4_on(handle: &Handle) -> TcpSocket {
        TcpSocket::new(handle.local.clone(), false)
    }

    /// A socket for IPv6 on the shard of that handle.
    pub fn new_v6_on(handle: &Handle) -> TcpSocket {
        TcpSocket::new(handle.local.clone(), true)
    }

    fn new(local: Rc<Local>, is_ipv6: bool) -> TcpSocket {
        let options = RefCell::new(local.host().default_options());
        TcpSocket { local, is_ipv6, bound: Cell::new(None), options }
    }

    /// Sets the local address and port. The host picks a port for port 0, at connect or listen.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if the socket is bound already, or the address has the other IP version;
    /// `AddrNotAvailable` if it is no address of the stack. A port in use fails later, at connect
    /// or listen.
    pub fn bind(&self, address: SocketAddr) -> io::Result<()> {
        self.check_version(address)?;
        if self.bound.get().is_some() {
            return Err(invalid("the socket is bound already"));
        }
        let ip = address.ip();
        if !ip.is_unspecified() && !self.local.host().addresses().contains(&ip) {
            return Err(io_error(lightwait_core::Error::AddressNotAvailable));
        }
        self.bound.set(Some(address));
        Ok(())
    }

    /// Opens a connection and waits until it is established.
    pub async fn connect(self, address: SocketAddr) -> io::Result<TcpStream> {
        self.check_version(address)?;
        let bound = self.bound.get().unwrap_or_else(|| any_local(&address));
        let options = *self.options.borrow();
        TcpStream::open_with(&self.local, bound, address, options)?.established().await
    }

    /// Listens at the bound address, with room for `backlog` connections not yet accepted. An
    /// unbound socket listens on all addresses of its IP version, at a port that the host picks.
    pub fn listen(self, backlog: u32) -> io::Result<TcpListener> {
        let any: IpAddr =
            if self.is_ipv6 { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
        let address = self.bound.get().unwrap_or(SocketAddr::new(any, 0));
        TcpListener::listen(&self.local, address, backlog as usize, *self.options.borrow())
    }

    /// The address and port that the socket is bound to.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if the socket is not bound.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.bound.get().ok_or_else(|| invalid("the socket is not bound"))
    }

    /// Every option.
    pub fn options(&self) -> SocketOptions {
        *self.options.borrow()
    }

    /// Sets every option.
    pub fn set_options(&self, options: SocketOptions) {
        *self.options.borrow_mut() = options;
    }

    #[allow(clippy::unnecessary_wraps, reason = "tokio's signatures return one")]
    fn change(&self, change: impl FnOnce(&mut SocketOptions)) -> io::Result<()> {
        change(&mut self.options.borrow_mut());
        Ok(())
    }

    fn default_keepalive(&self) -> Keepalive {
        Keepalive::by_default(&self.local.host().config().tcp)
    }

    fn default_receive_max(&self) -> u32 {
        self.local.host().config().tcp.buffers.receive_max
    }
}

socket_options!();

impl fmt::Debug for TcpSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("TcpSocket");
        debug.field("is_ipv6", &self.is_ipv6).field("bound", &self.bound.get());
        debug.finish_non_exhaustive()
    }
}
