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
use lightwait_core::tcp::{Keepalive, SocketOptions};

use super::stream::{TcpStream, any_address};
use super::{TcpListener, io_error};
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
        let bound = self.bound.get().unwrap_or(any_address(address));
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

    /// True if an idle connection is probed.
    pub fn keepalive(&self) -> io::Result<bool> {
        Ok(self.options().keepalive.is_some())
    }

    /// Probes an idle connection at the host's times ([`Keepalive::by_default`]), or never.
    pub fn set_keepalive(&self, keepalive: bool) -> io::Result<()> {
        let probes = Keepalive::by_default(&self.local.host().config().tcp);
        self.change(|options| options.keepalive = keepalive.then_some(probes))
    }

    /// Bytes of the send buffer, at most.
    pub fn send_buffer_size(&self) -> io::Result<u32> {
        Ok(self.options().send_buffer_bytes)
    }

    /// Sets the size of the send buffer, in bytes.
    pub fn set_send_buffer_size(&self, size: u32) -> io::Result<()> {
        self.change(|options| options.send_buffer_bytes = size)
    }

    /// Bytes of the receive window: the fixed size, or the largest size that the host grows it to.
    pub fn recv_buffer_size(&self) -> io::Result<u32> {
        let most = || self.local.host().config().tcp.buffers.receive_max;
        Ok(self.options().receive_buffer_bytes.unwrap_or_else(most))
    }

    /// Fixes the receive window, in bytes.
    pub fn set_recv_buffer_size(&self, size: u32) -> io::Result<()> {
        self.change(|options| options.receive_buffer_bytes = Some(size))
    }

    /// Treatment of unsent data at close.
    pub fn linger(&self) -> io::Result<Option<Duration>> {
        Ok(self.options().linger)
    }

    /// [`TcpStream::set_linger`] of the connection to be.
    pub fn set_linger(&self, linger: Option<Duration>) -> io::Result<()> {
        self.change(|options| options.linger = linger)
    }

    /// [`TcpStream::set_zero_linger`] of the connection to be.
    pub fn set_zero_linger(&self) -> io::Result<()> {
        self.set_linger(Some(Duration::ZERO))
    }

    /// True if small segments are sent at once.
    pub fn nodelay(&self) -> io::Result<bool> {
        Ok(self.options().nodelay)
    }

    /// Sends small segments at once, or not.
    pub fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
        self.change(|options| options.nodelay = nodelay)
    }

    /// The congestion control of the connection to be.
    pub fn congestion(&self) -> io::Result<Algorithm> {
        Ok(self.options().congestion)
    }

    /// Sets the congestion control of the connection to be.
    pub fn set_congestion(&self, congestion: Algorithm) -> io::Result<()> {
        self.change(|options| options.congestion = congestion)
    }

    /// The rate of what the connection to be sends, at most, in bytes of data a second.
    pub fn max_pacing_rate(&self) -> io::Result<Option<NonZeroU64>> {
        Ok(self.options().max_pacing_rate)
    }

    /// Bounds the rate of what the connection to be sends, in bytes of data a second, and paces it.
    pub fn set_max_pacing_rate(&self, max_pacing_rate: Option<NonZeroU64>) -> io::Result<()> {
        self.change(|options| options.max_pacing_rate = max_pacing_rate)
    }

    /// True if what the connection to be sends is spread over the round trip, whatever its
    /// congestion control.
    pub fn pacing(&self) -> io::Result<bool> {
        Ok(self.options().pacing)
    }

    /// Spreads what the connection to be sends over the round trip, or not. BBR is paced in any
    /// case.
    pub fn set_pacing(&self, pacing: bool) -> io::Result<()> {
        self.change(|options| options.pacing = pacing)
    }

    /// DSCP and ECN bits of an IPv4 socket's packets.
    pub fn tos_v4(&self) -> io::Result<u32> {
        self.traffic_class(false)
    }

    /// Sets the DSCP of an IPv4 socket's packets; the two ECN bits are TCP's own.
    pub fn set_tos_v4(&self, tos: u32) -> io::Result<()> {
        self.set_traffic_class(false, tos)
    }

    /// Traffic class of an IPv6 socket's packets.
    pub fn tclass_v6(&self) -> io::Result<u32> {
        self.traffic_class(true)
    }

    /// Sets the traffic class of an IPv6 socket's packets; the two ECN bits are TCP's own.
    pub fn set_tclass_v6(&self, tclass: u32) -> io::Result<()> {
        self.set_traffic_class(true, tclass)
    }

    fn traffic_class(&self, is_ipv6: bool) -> io::Result<u32> {
        if is_ipv6 != self.is_ipv6 {
            return Err(invalid("the socket is of the other IP version"));
        }
        Ok(self.options().traffic_class.into())
    }

    fn set_traffic_class(&self, is_ipv6: bool, class: u32) -> io::Result<()> {
        self.traffic_class(is_ipv6)?;
        let class = u8::try_from(class).map_err(|_| invalid("a traffic class is 0 to 255"))?;
        self.change(|options| options.traffic_class = class)
    }

    #[allow(clippy::unnecessary_wraps, reason = "tokio's signatures return one")]
    fn change(&self, change: impl FnOnce(&mut SocketOptions)) -> io::Result<()> {
        change(&mut self.options.borrow_mut());
        Ok(())
    }

    fn check_version(&self, address: SocketAddr) -> io::Result<()> {
        if address.is_ipv6() != self.is_ipv6 {
            return Err(invalid("the address is not of the socket's IP version"));
        }
        Ok(())
    }
}

impl fmt::Debug for TcpSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("TcpSocket");
        debug.field("is_ipv6", &self.is_ipv6).field("bound", &self.bound.get());
        debug.finish_non_exhaustive()
    }
}

fn invalid(text: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, text)
}
