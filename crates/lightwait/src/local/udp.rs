//! A UDP socket with the methods of tokio's `UdpSocket`, and calls that take many datagrams at
//! once, with what their packets say.

mod batches;
mod options;
mod readiness;

use std::cell::RefMut;
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
use crate::datagrams::datagram_calls;
use crate::lookup::{Addresses, addresses_for};
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
            match self.connect_to(remote) {
                Ok(()) => return Ok(()),
                Err(error) => failure = Some(error),
            }
        }
        Err(failure.unwrap_or_else(no_address))
    }

    pub(crate) fn connect_to(&self, remote: SocketAddr) -> io::Result<()> {
        let now = self.local.now();
        self.local.host_mut().udp_connect(now, self.id, Some(remote)).map_err(io_error)
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

    // ---- what the calls do

    async fn addresses_of<A: ToSocketAddrs>(&self, address: &A) -> io::Result<Addresses<A::Iter>> {
        addresses_for(&self.local, address).await
    }

    async fn receive(&self, out: &mut [u8], takes: bool) -> io::Result<Received> {
        poll_fn(|context| self.poll_read(context, out, takes)).await
    }

    fn try_read(&self, out: &mut [u8], takes: bool) -> io::Result<Received> {
        self.read(out, takes).map_err(io_error)
    }

    fn try_read_buf<B: BufMut>(&self, out: &mut B) -> io::Result<Received> {
        let mut scratch = self.scratch();
        let room = out.remaining_mut().min(scratch.len());
        let received = self.try_read(&mut scratch[..room], true)?;
        out.put_slice(&scratch[..received.len]);
        Ok(received)
    }

    pub(crate) fn read(&self, out: &mut [u8], takes: bool) -> Result<Received, Error> {
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
                self.wait_readable(context);
                Poll::Pending
            }
            result => Poll::Ready(result.map_err(io_error)),
        }
    }

    /// The shard's buffer, with room for any datagram.
    pub(crate) fn scratch(&self) -> RefMut<'_, Vec<u8>> {
        let mut scratch = self.local.scratch();
        if scratch.len() < LONGEST {
            scratch.resize(LONGEST, 0);
        }
        scratch
    }

    /// The error that the next call would fail with, once.
    pub(crate) fn error(&self) -> Option<Error> {
        self.local.host_mut().udp_take_error(self.id)
    }

    /// The oldest ICMP error that was kept.
    pub(crate) fn reported(&self) -> Option<(SocketAddr, Error)> {
        self.local.host_mut().udp_error(self.id)
    }

    pub(crate) fn send_now(&self, transmit: &Transmit, bytes: &[u8]) -> Result<(), Error> {
        let now = self.local.now();
        let sent = self.local.host_mut().udp_send(now, self.id, transmit, bytes);
        if sent.is_ok() {
            self.local.touch();
        }
        sent
    }

    pub(crate) fn wait_readable(&self, context: &Context<'_>) {
        self.local.wait_udp_readable(self.id, context);
    }

    pub(crate) fn wait_writable(&self, context: &Context<'_>) {
        self.local.wait_udp_writable(self.id, context);
    }
}

datagram_calls!();

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
