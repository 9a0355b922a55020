//! A socket before it connects or listens, with the methods of tokio's `TcpSocket`, for any thread.
//! Its options apply from the first segment on.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::num::NonZeroU64;
use std::sync::Mutex;
use std::time::Duration;

use lightwait_core::Error;
use lightwait_core::config::Algorithm;
use lightwait_core::host::any_local;
use lightwait_core::tcp::{Keepalive, SocketOptions};

use super::crossing::locked;
use super::{StackHandle, TcpListener, TcpStream};
use crate::error::io_error;
use crate::options::{invalid, socket_options};

/// A socket that neither connects nor listens yet. Its options apply from the first segment on.
pub struct TcpSocket {
    stack: StackHandle,
    is_ipv6: bool,
    bound: Mutex<Option<SocketAddr>>,
    options: Mutex<SocketOptions>,
}

impl TcpSocket {
    /// A socket for IPv4 on the default stack ([`StackHandle::set_default`]).
    ///
    /// # Errors
    /// `NotConnected` if there is no default stack.
    pub fn new_v4() -> io::Result<TcpSocket> {
        Ok(TcpSocket::new_v4_on(&StackHandle::default_stack()?))
    }

    /// A socket for IPv6 on the default stack ([`StackHandle::set_default`]).
    ///
    /// # Errors
    /// `NotConnected` if there is no default stack.
    pub fn new_v6() -> io::Result<TcpSocket> {
        Ok(TcpSocket::new_v6_on(&StackHandle::default_stack()?))
    }

    /// A socket for IPv4 on that stack.
    pub fn new_v4_on(stack: &StackHandle) -> TcpSocket {
        TcpSocket::new(stack, false)
    }

    /// A socket for IPv6 on that stack.
    pub fn new_v6_on(stack: &StackHandle) -> TcpSocket {
        TcpSocket::new(stack, true)
    }

    fn new(stack: &StackHandle, is_ipv6: bool) -> TcpSocket {
        let options = Mutex::new(stack.defaults().options);
        TcpSocket { stack: stack.clone(), is_ipv6, bound: Mutex::default(), options }
    }

    /// Sets the local address and port. The host picks a port for port 0, at connect or listen.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if the socket is bound already, or the address has the other IP version;
    /// `AddrNotAvailable` if it was no address of the stack at its start. A port in use fails
    /// later, at connect or listen.
    pub fn bind(&self, address: SocketAddr) -> io::Result<()> {
        self.check_version(address)?;
        let mut bound = locked(&self.bound);
        if bound.is_some() {
            return Err(invalid("the socket is bound already"));
        }
        let ip = address.ip();
        if !ip.is_unspecified() && !self.stack.defaults().addresses.contains(&ip) {
            return Err(io_error(Error::AddressNotAvailable));
        }
        *bound = Some(address);
        Ok(())
    }

    /// Opens a connection and waits until it is established.
    pub async fn connect(self, address: SocketAddr) -> io::Result<TcpStream> {
        self.check_version(address)?;
        let from = self.local_addr().unwrap_or_else(|_| any_local(&address));
        TcpStream::open(&self.stack, from, address, self.options()).await
    }

    /// Listens at the bound address, with room for `backlog` connections not yet accepted. An
    /// unbound socket listens on all addresses of its IP version, at a port that the host picks.
    /// The call blocks until the stack's next turn, as a system call does.
    pub fn listen(self, backlog: u32) -> io::Result<TcpListener> {
        let any: IpAddr =
            if self.is_ipv6 { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
        let address = self.local_addr().unwrap_or(SocketAddr::new(any, 0));
        TcpListener::listen(&self.stack, address, backlog as usize, self.options()).wait()
    }

    /// The address and port that the socket is bound to.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if the socket is not bound.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        locked(&self.bound).ok_or_else(|| invalid("the socket is not bound"))
    }

    /// Every option.
    pub fn options(&self) -> SocketOptions {
        *locked(&self.options)
    }

    /// Sets every option.
    pub fn set_options(&self, options: SocketOptions) {
        *locked(&self.options) = options;
    }

    #[allow(clippy::unnecessary_wraps, reason = "tokio's signatures return one")]
    fn change(&self, change: impl FnOnce(&mut SocketOptions)) -> io::Result<()> {
        change(&mut locked(&self.options));
        Ok(())
    }

    fn default_keepalive(&self) -> Keepalive {
        self.stack.defaults().keepalive
    }

    fn default_receive_max(&self) -> u32 {
        self.stack.defaults().receive_max
    }
}

socket_options!();

impl fmt::Debug for TcpSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("TcpSocket");
        debug.field("is_ipv6", &self.is_ipv6).field("bound", &locked(&self.bound));
        debug.finish_non_exhaustive()
    }
}
