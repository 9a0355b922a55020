//! A connection.

mod control;
mod io_traits;

use std::fmt;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use lightwait_core::tcp::{ConnectionInfo, SocketOptions};
use lightwait_core::{ConnectionId, Error, Host, Instant, Readiness};

pub use control::Control;

use super::split::{self, OwnedReadHalf, OwnedWriteHalf, ReadHalf, WriteHalf};
use super::{ToSocketAddrs, io_error};
use crate::shard::Handle;
use crate::shard::local::{self, Local};

/// A TCP connection. Dropping it closes it gracefully in the background: what was written is still
/// sent, then FIN. With unread data in its receive buffer, or linger zero, it is reset instead.
pub struct TcpStream {
    local: Rc<Local>,
    id: ConnectionId,
}

impl TcpStream {
    /// Opens a connection from the current shard and waits until it is established.
    ///
    /// # Panics
    ///
    /// If no shard is current.
    pub async fn connect<A: ToSocketAddrs>(address: A) -> io::Result<TcpStream> {
        let remote = address.to_socket_addr()?;
        TcpStream::open(&local::current(), any_address(remote), remote)?.established().await
    }

    /// As [`TcpStream::connect`], on the shard of that handle.
    pub async fn connect_on<A: ToSocketAddrs>(
        handle: &Handle,
        address: A,
    ) -> io::Result<TcpStream> {
        let remote = address.to_socket_addr()?;
        TcpStream::open(&handle.local, any_address(remote), remote)?.established().await
    }

    /// As [`TcpStream::connect_on`], from a local address of one's choice; a port of 0 is picked.
    pub async fn connect_from<A: ToSocketAddrs>(
        handle: &Handle,
        local: SocketAddr,
        address: A,
    ) -> io::Result<TcpStream> {
        TcpStream::open(&handle.local, local, address.to_socket_addr()?)?.established().await
    }

    /// Begins to open a connection: its addresses are known at once.
    pub(crate) fn open(
        shard: &Rc<Local>,
        local: SocketAddr,
        remote: SocketAddr,
    ) -> io::Result<TcpStream> {
        let now = shard.now();
        let id = shard.host_mut().connect(now, local, remote).map_err(io_error)?;
        shard.touch();
        Ok(TcpStream::adopt(shard.clone(), id))
    }

    /// Waits until the connection is established, or has failed.
    pub(crate) async fn established(self) -> io::Result<TcpStream> {
        poll_fn(|context| self.poll_established(context)).await?;
        Ok(self)
    }

    /// The stream of a connection that the host has just handed out.
    pub(super) fn adopt(local: Rc<Local>, id: ConnectionId) -> TcpStream {
        TcpStream { local, id }
    }

    fn poll_established(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let readiness = self.local.host().readiness(self.id);
        if readiness.contains(Readiness::CLOSED) {
            let error = self.local.host_mut().take_error(self.id);
            return Poll::Ready(Err(io_error(error.unwrap_or(Error::NotConnected))));
        }
        if readiness.contains(Readiness::WRITABLE) {
            return Poll::Ready(Ok(()));
        }
        self.local.wait_writable(self.id, context);
        Poll::Pending
    }

    /// Makes a call on the host that may leave work.
    #[inline]
    fn call<R>(
        &self,
        call: impl FnOnce(&mut Host, Instant, ConnectionId) -> Result<R, Error>,
    ) -> Result<R, Error> {
        let result = call(&mut self.local.host_mut(), self.local.now(), self.id);
        if result.is_ok() {
            self.local.touch();
        }
        result
    }

    /// `result`, or `Pending` with the task among the readers if it would block.
    #[inline]
    fn or_wait_readable<R>(
        &self,
        context: &Context<'_>,
        result: Result<R, Error>,
    ) -> Poll<io::Result<R>> {
        if let Err(Error::WouldBlock) = result {
            self.local.wait_readable(self.id, context);
            return Poll::Pending;
        }
        Poll::Ready(result.map_err(io_error))
    }

    /// `result`, or `Pending` with the task among the writers if it would block.
    #[inline]
    fn or_wait_writable<R>(
        &self,
        context: &Context<'_>,
        result: Result<R, Error>,
    ) -> Poll<io::Result<R>> {
        if let Err(Error::WouldBlock) = result {
            self.local.wait_writable(self.id, context);
            return Poll::Pending;
        }
        Poll::Ready(result.map_err(io_error))
    }

    #[inline]
    fn read(&self, buffer: &mut [u8]) -> Result<usize, Error> {
        self.call(|host, now, id| host.read(now, id, buffer))
    }

    #[inline]
    fn write(&self, data: &[u8]) -> Result<usize, Error> {
        self.call(|host, now, id| host.write(now, id, data))
    }

    fn write_slices(&self, slices: &[IoSlice<'_>]) -> Result<usize, Error> {
        let mut written = 0;
        for slice in slices.iter().filter(|slice| !slice.is_empty()) {
            match self.write(slice) {
                Ok(len) => {
                    written += len;
                    if len < slice.len() {
                        break;
                    }
                }
                // What was written counts; the next call tells the error.
                Err(_) if written > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(written)
    }

    fn write_bytes(&self, data: &Bytes) -> Result<usize, Error> {
        self.call(|host, now, id| host.write_bytes(now, id, data))
    }

    // ---- reading and writing without a mutable borrow

    /// Reads what there is, or fails with `WouldBlock`. Zero bytes are the stream's end.
    pub fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.read(buffer).map_err(io_error)
    }

    /// Writes what the send buffer takes, or fails with `WouldBlock`.
    pub fn try_write(&self, data: &[u8]) -> io::Result<usize> {
        self.write(data).map_err(io_error)
    }

    /// As [`TcpStream::try_write`], slice after slice.
    pub fn try_write_vectored(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.write_slices(slices).map_err(io_error)
    }

    /// As [`TcpStream::try_write`], but the send buffer shares the bytes instead of copying them.
    pub fn try_write_bytes(&self, data: &Bytes) -> io::Result<usize> {
        self.write_bytes(data).map_err(io_error)
    }

    /// Writes all of `data`, sharing the bytes with the send buffer.
    pub async fn write_all_bytes(&self, mut data: Bytes) -> io::Result<()> {
        while !data.is_empty() {
            let written =
                poll_fn(|context| self.or_wait_writable(context, self.write_bytes(&data))).await?;
            bytes::Buf::advance(&mut data, written);
        }
        Ok(())
    }

    /// Waits until there is something to read, the stream's end or an error included. As with any
    /// such promise, the read may block all the same.
    pub async fn readable(&self) -> io::Result<()> {
        self.ready(Readiness::READABLE).await
    }

    /// Waits until there is room to write, or an error to be told by writing.
    pub async fn writable(&self) -> io::Result<()> {
        self.ready(Readiness::WRITABLE).await
    }

    async fn ready(&self, wanted: Readiness) -> io::Result<()> {
        poll_fn(|context| {
            let readiness = self.local.host().readiness(self.id);
            if readiness.contains(wanted) || readiness.contains(Readiness::CLOSED) {
                return Poll::Ready(Ok(()));
            }
            let blocked = Err(Error::WouldBlock);
            if wanted == Readiness::READABLE {
                self.or_wait_readable(context, blocked)
            } else {
                self.or_wait_writable(context, blocked)
            }
        })
        .await
    }

    /// Reads without taking: the same bytes come again.
    pub async fn peek(&self, buffer: &mut [u8]) -> io::Result<usize> {
        poll_fn(|context| {
            let result = self.local.host().peek(self.id, buffer);
            self.or_wait_readable(context, result)
        })
        .await
    }

    #[inline]
    pub(super) fn poll_read_slice(
        &self,
        context: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        self.or_wait_readable(context, self.read(buffer))
    }

    #[inline]
    pub(super) fn poll_write_slice(
        &self,
        context: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.or_wait_writable(context, self.write(data))
    }

    pub(super) fn poll_write_slices(
        &self,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.or_wait_writable(context, self.write_slices(slices))
    }

    /// Sends FIN after what was written.
    pub(crate) fn shutdown_write(&self) -> io::Result<()> {
        self.call(Host::shutdown_write).map_err(io_error)
    }

    /// Resets the connection: what was written and not yet sent is dropped, its memory is free at
    /// once, and the peer gets an RST. As dropping the stream with linger zero.
    pub fn abort(self) {
        self.control().abort();
    }

    /// What can be done to the connection while something else owns the stream.
    pub fn control(&self) -> Control {
        Control::new(self.local.clone(), self.id)
    }

    // ---- urgent data

    /// As [`TcpStream::try_write`], with the last byte taken marked urgent. The byte stays in line
    /// (RFC 9293 §3.8.5); RFC 6093 advises new applications against it.
    ///
    /// # Errors
    /// As those of [`TcpStream::try_write`].
    pub fn try_write_urgent(&self, data: &[u8]) -> io::Result<usize> {
        self.call(|host, now, id| host.write_urgent(now, id, data)).map_err(io_error)
    }

    /// How many of the bytes next to be read lie up to and with the peer's last urgent one; `None`
    /// if there is no urgent data ahead (RFC 9293 MUST-32, MUST-33).
    ///
    /// # Errors
    /// If the connection is gone.
    pub fn urgent_mark(&self) -> io::Result<Option<u32>> {
        self.call(|host, _, id| host.info(id).map(|_| host.urgent_mark(id))).map_err(io_error)
    }

    // ---- halves

    /// Two halves that borrow the stream.
    pub fn split(&mut self) -> (ReadHalf<'_>, WriteHalf<'_>) {
        split::split(self)
    }

    /// Two halves that own the stream together. Dropping the write half sends FIN; the connection
    /// is closed when both are gone.
    pub fn into_split(self) -> (OwnedReadHalf, OwnedWriteHalf) {
        split::into_split(self)
    }

    // ---- what it is and how it behaves

    /// Our address and port.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.local.host().local_address(self.id).map_err(io_error)
    }

    /// The peer's address and port.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.local.host().peer_address(self.id).map_err(io_error)
    }

    /// The error that ended the connection, once.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        Ok(self.local.host_mut().take_error(self.id).map(io_error))
    }

    /// State, windows, round-trip times, buffers.
    pub fn info(&self) -> io::Result<ConnectionInfo> {
        self.local.host().info(self.id).map_err(io_error)
    }

    /// Every option.
    pub fn options(&self) -> io::Result<SocketOptions> {
        self.local.host().options(self.id).map_err(io_error)
    }

    /// Sets every option.
    pub fn set_options(&self, options: SocketOptions) -> io::Result<()> {
        self.call(|host, now, id| host.set_options(now, id, options)).map_err(io_error)
    }

    /// True if small segments are sent at once (Nagle's algorithm off).
    pub fn nodelay(&self) -> io::Result<bool> {
        Ok(self.options()?.nodelay)
    }

    /// Sends small segments at once, or not.
    pub fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
        self.set_options(SocketOptions { nodelay, ..self.options()? })
    }

    /// What closing means for data not yet sent.
    pub fn linger(&self) -> io::Result<Option<Duration>> {
        Ok(self.options()?.linger)
    }

    /// `None`: data not yet sent when the stream is dropped is sent in the background; zero: it is
    /// dropped and the connection reset; else it is sent for at most that long.
    pub fn set_linger(&self, linger: Option<Duration>) -> io::Result<()> {
        self.set_options(SocketOptions { linger, ..self.options()? })
    }
}

impl Drop for TcpStream {
    fn drop(&mut self) {
        let now = self.local.now();
        self.local.forget(self.id);
        self.local.host_mut().close(now, self.id);
        self.local.touch();
    }
}

impl fmt::Debug for TcpStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TcpStream").field(&self.id).finish()
    }
}

/// Any address of ours, of the peer's IP version, and any port.
fn any_address(remote: SocketAddr) -> SocketAddr {
    let address = match remote {
        SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    SocketAddr::new(address, 0)
}
