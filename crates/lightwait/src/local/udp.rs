//! A UDP socket with the methods of tokio's `UdpSocket`, and calls that take many datagrams at
//! once, with what their packets say.

mod batches;
mod options;
mod readiness;

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::BufMut;
use lightwait_core::udp::{Received, Transmit};
use lightwait_core::{Error, Instant, UdpId};
use tokio::io::ReadBuf;

use super::{ToSocketAddrs, io_error};
use crate::address::no_address;
use crate::lookup::addresses_for;
use crate::shard::Handle;
use crate::shard::state::{self, Local};

/// The longest datagram there is, in bytes.
const LONGEST: usize = 1 << 16;

/// A UDP socket. It belongs to its shard and is `!Send`.
///
/// What a call sends leaves at the end of the shard's turn. Dropping the socket drops what was not
/// read; what was sent still leaves. A socket of `[::]` hears both IP versions, and shows IPv4
/// addresses as such and not as mapped ones.
///
/// ```
/// use lightwait::local::UdpSocket;
///
/// # fn main() -> std::io::Result<()> {
/// let (server, client) = lightwait::Stack::memory()?;
/// let at = (server.address(), 53);
/// let echo = UdpSocket::bind_on(&server.handle(), at)?;
/// server.spawn_local(async move {
///     let mut question = [0; 512];
///     let (len, from) = echo.recv_from(&mut question).await?;
///     echo.send_to(&question[..len], from).await
/// });
/// lightwait::run([client, server], async move {
///     let socket = UdpSocket::bind("0.0.0.0:0").await?;
///     socket.connect(at).await?;
///     socket.send(b"who is it?").await?;
///     let mut answer = [0; 512];
///     Ok(assert_eq!(socket.recv(&mut answer).await?, 10))
/// })?
/// # }
/// ```
pub struct UdpSocket {
    local: Rc<Local>,
    id: UdpId,
}

impl UdpSocket {
    /// A socket of the current shard at that address. The unspecified address stands for all of the
    /// shard's addresses of that IP version (`[::]` for both versions), and for broadcasts. Port 0
    /// picks one that no stranger can guess. A name is looked up, as by
    /// [`TcpStream::connect`](super::TcpStream::connect).
    ///
    /// # Errors
    ///
    /// `AddrInUse` if another socket has the address and port, `AddrNotAvailable` if the address is
    /// none of the stack's, `QuotaExceeded` if there are as many sockets as may be.
    ///
    /// # Panics
    ///
    /// If no shard is current.
    pub async fn bind<A: ToSocketAddrs>(address: A) -> io::Result<UdpSocket> {
        let shard = state::current();
        let addresses = addresses_for(&shard, &address).await?;
        UdpSocket::bind_to_first(&shard, addresses)
    }

    /// A socket of the shard of that handle. Names are not looked up.
    ///
    /// # Errors
    ///
    /// Those of [`UdpSocket::bind`].
    pub fn bind_on<A: ToSocketAddrs>(handle: &Handle, address: A) -> io::Result<UdpSocket> {
        UdpSocket::bind_to_first(&handle.local, address.to_socket_addrs()?)
    }

    /// The socket of that name, which the host has just returned.
    pub(super) fn of(local: Rc<Local>, id: UdpId) -> UdpSocket {
        UdpSocket { local, id }
    }

    /// Closes the socket of a flow, and tells its peer that the port is unreachable.
    pub(super) fn refuse(self) {
        let now = self.local.now();
        self.local.host_mut().udp_refuse(now, self.id);
        // Dropping it does the rest.
    }

    /// The shard's time.
    pub(super) fn now(&self) -> Instant {
        self.local.now()
    }

    fn bind_to_first(
        shard: &Rc<Local>,
        addresses: impl Iterator<Item = SocketAddr>,
    ) -> io::Result<UdpSocket> {
        let options = shard.host().default_udp_options();
        let mut failure = None;
        for address in addresses {
            match UdpSocket::bind_with(shard, address, options) {
                Ok(socket) => return Ok(socket),
                Err(error) => failure = Some(error),
            }
        }
        Err(failure.unwrap_or_else(no_address))
    }

    /// Connects to the first of these addresses that a datagram can be sent to: the socket sends
    /// there and hears nothing else. Nothing is sent.
    ///
    /// # Errors
    ///
    /// `NetworkUnreachable` if no address of the stack leads there.
    pub async fn connect<A: ToSocketAddrs>(&self, address: A) -> io::Result<()> {
        let mut failure = None;
        for remote in addresses_for(&self.local, &address).await? {
            let now = self.local.now();
            match self.local.host_mut().udp_connect(now, self.id, Some(remote)) {
                Ok(()) => return Ok(()),
                Err(error) => failure = Some(io_error(error)),
            }
        }
        Err(failure.unwrap_or_else(no_address))
    }

    /// The address and port of the socket. A connected one has the address that it sends from.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.local.host().udp_local_address(self.id).map_err(io_error)
    }

    /// The remote end of a connected socket.
    ///
    /// # Errors
    ///
    /// `NotConnected` if it is not.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.local.host().udp_peer_address(self.id).map_err(io_error)
    }

    // ---- sending

    /// Sends a datagram to the remote end of a connected socket, once there is room for it.
    ///
    /// # Errors
    ///
    /// `NotConnected` if it is not; `EMSGSIZE` if the datagram is too long; `ConnectionRefused` if
    /// the remote end's host has said so of an earlier one.
    pub async fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        poll_fn(|context| self.poll_send(context, bytes)).await
    }

    /// [`UdpSocket::send`] for callers that poll by hand.
    pub fn poll_send(&self, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_transmit(context, &Transmit::default(), bytes).map_ok(|()| bytes.len())
    }

    /// Sends at once, or fails with `WouldBlock` if there is no room.
    pub fn try_send(&self, bytes: &[u8]) -> io::Result<usize> {
        self.try_transmit(&Transmit::default(), bytes).map(|()| bytes.len())
    }

    /// Sends a datagram to the first of these addresses, once there is room for it.
    ///
    /// # Errors
    ///
    /// `PermissionDenied` if that is a broadcast ([`UdpSocket::set_broadcast`]),
    /// `NetworkUnreachable` if no address of the stack leads there; else those of
    /// [`UdpSocket::send`].
    pub async fn send_to<A: ToSocketAddrs>(&self, bytes: &[u8], address: A) -> io::Result<usize> {
        let to = addresses_for(&self.local, &address).await?.next().ok_or_else(no_address)?;
        poll_fn(|context| self.poll_send_to(context, bytes, to)).await
    }

    /// [`UdpSocket::send_to`] for callers that poll by hand.
    pub fn poll_send_to(
        &self,
        context: &mut Context<'_>,
        bytes: &[u8],
        to: SocketAddr,
    ) -> Poll<io::Result<usize>> {
        self.poll_transmit(context, &Transmit::to(to), bytes).map_ok(|()| bytes.len())
    }

    /// Sends at once, or fails with `WouldBlock` if there is no room.
    pub fn try_send_to(&self, bytes: &[u8], to: SocketAddr) -> io::Result<usize> {
        self.try_transmit(&Transmit::to(to), bytes).map(|()| bytes.len())
    }

    // ---- receiving

    /// Waits for a datagram and returns its length. What there is no room for is lost.
    pub async fn recv(&self, out: &mut [u8]) -> io::Result<usize> {
        self.receive(out, true).await.map(|received| received.len)
    }

    /// [`UdpSocket::recv`] for callers that poll by hand.
    pub fn poll_recv(
        &self,
        context: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.poll_into(context, out, true).map_ok(|_| ())
    }

    /// Takes a datagram that has come, or fails with `WouldBlock`.
    pub fn try_recv(&self, out: &mut [u8]) -> io::Result<usize> {
        self.try_read(out, true).map(|received| received.len)
    }

    /// Waits for a datagram and returns its length and its sender.
    pub async fn recv_from(&self, out: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.receive(out, true).await.map(|received| (received.len, received.from))
    }

    /// [`UdpSocket::recv_from`] for callers that poll by hand.
    pub fn poll_recv_from(
        &self,
        context: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<SocketAddr>> {
        self.poll_into(context, out, true).map_ok(|received| received.from)
    }

    /// Takes a datagram that has come, or fails with `WouldBlock`.
    pub fn try_recv_from(&self, out: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.try_read(out, true).map(|received| (received.len, received.from))
    }

    /// Waits for a datagram and appends it to `out`, as far as that has room.
    pub async fn recv_buf<B: BufMut>(&self, out: &mut B) -> io::Result<usize> {
        self.recv_buf_from(out).await.map(|(len, _)| len)
    }

    /// Appends a datagram that has come to `out`, or fails with `WouldBlock`.
    pub fn try_recv_buf<B: BufMut>(&self, out: &mut B) -> io::Result<usize> {
        self.try_recv_buf_from(out).map(|(len, _)| len)
    }

    /// Waits for a datagram, appends it to `out`, as far as that has room, and returns its sender.
    pub async fn recv_buf_from<B: BufMut>(&self, out: &mut B) -> io::Result<(usize, SocketAddr)> {
        loop {
            self.readable().await?;
            match self.try_recv_buf_from(out) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                result => return result,
            }
        }
    }

    /// Appends a datagram that has come to `out`, or fails with `WouldBlock`.
    pub fn try_recv_buf_from<B: BufMut>(&self, out: &mut B) -> io::Result<(usize, SocketAddr)> {
        let mut scratch = self.local.scratch();
        let room = out.remaining_mut().min(LONGEST);
        if scratch.len() < room {
            scratch.resize(room, 0);
        }
        let received = self.try_read(&mut scratch[..room], true)?;
        out.put_slice(&scratch[..received.len]);
        Ok((received.len, received.from))
    }

    // ---- peeking

    /// Waits for a datagram and copies it, but leaves it to be read.
    pub async fn peek(&self, out: &mut [u8]) -> io::Result<usize> {
        self.receive(out, false).await.map(|received| received.len)
    }

    /// [`UdpSocket::peek`] for callers that poll by hand.
    pub fn poll_peek(
        &self,
        context: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.poll_into(context, out, false).map_ok(|_| ())
    }

    /// Copies a datagram that has come, or fails with `WouldBlock`.
    pub fn try_peek(&self, out: &mut [u8]) -> io::Result<usize> {
        self.try_read(out, false).map(|received| received.len)
    }

    /// Waits for a datagram and copies it, but leaves it to be read; returns its sender as well.
    pub async fn peek_from(&self, out: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.receive(out, false).await.map(|received| (received.len, received.from))
    }

    /// [`UdpSocket::peek_from`] for callers that poll by hand.
    pub fn poll_peek_from(
        &self,
        context: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<SocketAddr>> {
        self.poll_into(context, out, false).map_ok(|received| received.from)
    }

    /// Copies a datagram that has come, or fails with `WouldBlock`.
    pub fn try_peek_from(&self, out: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.try_read(out, false).map(|received| (received.len, received.from))
    }

    /// Waits for a datagram and returns its sender.
    pub async fn peek_sender(&self) -> io::Result<SocketAddr> {
        self.peek_from(&mut []).await.map(|(_, from)| from)
    }

    /// [`UdpSocket::peek_sender`] for callers that poll by hand.
    pub fn poll_peek_sender(&self, context: &mut Context<'_>) -> Poll<io::Result<SocketAddr>> {
        self.poll_read(context, &mut [], false).map_ok(|received| received.from)
    }

    /// The sender of a datagram that has come, or `WouldBlock`.
    pub fn try_peek_sender(&self) -> io::Result<SocketAddr> {
        self.try_peek_from(&mut []).map(|(_, from)| from)
    }

    // ---- what all of these do

    async fn receive(&self, out: &mut [u8], takes: bool) -> io::Result<Received> {
        poll_fn(|context| self.poll_read(context, out, takes)).await
    }

    fn try_read(&self, out: &mut [u8], takes: bool) -> io::Result<Received> {
        self.read(out, takes).map_err(io_error)
    }

    fn read(&self, out: &mut [u8], takes: bool) -> Result<Received, Error> {
        let mut host = self.local.host_mut();
        if takes { host.udp_receive(self.id, out) } else { host.udp_peek(self.id, out) }
    }

    fn poll_read(
        &self,
        context: &Context<'_>,
        out: &mut [u8],
        takes: bool,
    ) -> Poll<io::Result<Received>> {
        match self.read(out, takes) {
            Err(Error::WouldBlock) => {
                self.local.wait_udp_readable(self.id, context);
                Poll::Pending
            }
            result => Poll::Ready(result.map_err(io_error)),
        }
    }

    fn poll_into(
        &self,
        context: &Context<'_>,
        out: &mut ReadBuf<'_>,
        takes: bool,
    ) -> Poll<io::Result<Received>> {
        let read = self.poll_read(context, out.initialize_unfilled(), takes);
        if let Poll::Ready(Ok(received)) = &read {
            out.advance(received.len);
        }
        read
    }
}

impl Drop for UdpSocket {
    fn drop(&mut self) {
        self.local.host_mut().udp_close(self.id);
        self.local.touch();
        self.local.forget_udp(self.id);
    }
}

impl fmt::Debug for UdpSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("UdpSocket").field(&self.id).finish()
    }
}
