//! A UDP socket with the methods of tokio's `UdpSocket`, for any thread, and calls that take many
//! datagrams at once.

mod batches;
mod crossing;
mod options;
mod pump;
mod queue;
mod readiness;

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::BufMut;
use lightwait_core::udp::{Received, Transmit, UdpOptions};
use lightwait_core::{Error, Readiness};
use tokio::io::ReadBuf;

use super::crossing::stack_ended;
use super::waiting::{Waiting, pending_if_it_would_block};
use super::{StackHandle, ToSocketAddrs};
use crate::address::no_address;
use crate::answer::answer;
use crate::datagrams::datagram_calls;
use crate::error::io_error;
use crate::local;
use crate::lookup::{Addresses, addresses_of};
use crossing::{Crossing, Ends, Owner};

/// A UDP socket. Dropping it drops what was not read; what was sent still leaves.
///
/// 64 KiB wait on the way between the stack's thread and the application, at most, in each
/// direction, where each datagram counts for 128 bytes more; and one more datagram. What the
/// application does not read fills the stack's own queue then, and what comes beyond that is
/// dropped. What finds no room to be sent waits.
///
/// A datagram is sent once the stack has it. What only the stack finds out is the error of the next
/// call that sends: that no address leads there, that it is a broadcast, or is too long for the
/// path of a socket that lets none be cut.
///
/// ```
/// use lightwait::net::UdpSocket;
///
/// # fn main() -> std::io::Result<()> {
/// # tokio::runtime::Builder::new_multi_thread().worker_threads(1).build()?.block_on(async {
/// let (server, client) = lightwait::Stack::memory()?;
/// let (server, client) = (server.spawn()?, client.spawn()?);
/// let at = (server.address(), 53);
/// let echo = UdpSocket::bind_on(&server, at).await?;
/// tokio::spawn(async move {
///     let mut question = [0; 512];
///     let (len, from) = echo.recv_from(&mut question).await?;
///     echo.send_to(&question[..len], from).await
/// });
/// let socket = UdpSocket::bind_on(&client, "0.0.0.0:0").await?;
/// socket.connect(at).await?;
/// socket.send(b"who is it?").await?;
/// let mut answer = [0; 512];
/// assert_eq!(socket.recv(&mut answer).await?, 10);
/// # Ok(()) }) }
/// ```
pub struct UdpSocket {
    owner: Owner,
    stack: StackHandle,
}

impl UdpSocket {
    /// A socket of the default stack ([`StackHandle::set_default`]) at that address. The
    /// unspecified address stands for all of the stack's addresses of that IP version (`[::]` for
    /// both versions), and for broadcasts. Port 0 picks one that no stranger can guess. A name is
    /// looked up, as by [`TcpStream::connect`](super::TcpStream::connect).
    ///
    /// # Errors
    ///
    /// `NotConnected` if there is no default stack, and those of [`UdpSocket::bind_on`].
    pub async fn bind<A: ToSocketAddrs>(address: A) -> io::Result<UdpSocket> {
        UdpSocket::bind_on(&StackHandle::default_stack()?, address).await
    }

    /// A socket of that stack.
    ///
    /// # Errors
    ///
    /// `AddrInUse` if another socket has the address and port, `AddrNotAvailable` if the address is
    /// none of the stack's, `QuotaExceeded` if there are as many sockets as may be;
    /// `ConnectionAborted` if the stack has ended.
    pub async fn bind_on<A: ToSocketAddrs>(
        stack: &StackHandle,
        address: A,
    ) -> io::Result<UdpSocket> {
        let mut failure = None;
        for address in addresses_of(&address).await? {
            match UdpSocket::bind_with(stack, address, None).await {
                Ok(socket) => return Ok(socket),
                Err(error) => failure = Some(error),
            }
        }
        Err(failure.unwrap_or_else(no_address))
    }

    async fn bind_with(
        stack: &StackHandle,
        address: SocketAddr,
        options: Option<UdpOptions>,
    ) -> io::Result<UdpSocket> {
        let bound = UdpSocket::try_bind(stack, address, options).await;
        match bound {
            // A socket that was dropped just now has the address until the turn's end.
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                UdpSocket::try_bind(stack, address, options).await
            }
            bound => bound,
        }
    }

    async fn try_bind(
        stack: &StackHandle,
        address: SocketAddr,
        options: Option<UdpOptions>,
    ) -> io::Result<UdpSocket> {
        let ledger = stack.ledger().clone();
        let asked = stack.ask(move |shard| pump::begin(shard, address, options, &ledger));
        let owner = asked.await.ok_or_else(stack_ended)??;
        Ok(UdpSocket { owner, stack: stack.clone() })
    }

    /// Connects to the first of these addresses that a datagram can be sent to: the socket sends
    /// there and hears nothing else. Nothing is sent.
    ///
    /// # Errors
    ///
    /// `NetworkUnreachable` if no address of the stack leads there; `ConnectionAborted` if the
    /// stack has ended.
    pub async fn connect<A: ToSocketAddrs>(&self, address: A) -> io::Result<()> {
        let mut failure = None;
        for remote in self.addresses_of(&address).await? {
            let crossing = self.owner.crossing.clone();
            let connected = self.ask(move |socket| {
                socket.connect_to(remote)?;
                let ends = Ends { local: socket.local_addr()?, peer: Some(socket.peer_addr()?) };
                crossing.set_ends(ends);
                Ok(())
            });
            match connected.await? {
                Ok(()) => return Ok(()),
                Err(error) => failure = Some(error),
            }
        }
        Err(failure.unwrap_or_else(no_address))
    }

    /// Asks the socket on the shard, behind all that was sent before.
    async fn ask<R: Send + 'static>(
        &self,
        ask: impl FnOnce(&local::UdpSocket) -> R + Send + 'static,
    ) -> io::Result<R> {
        let (answerer, wanted) = answer();
        self.crossing().call(Box::new(move |socket| answerer.give(ask(socket))))?;
        wanted.await.ok_or_else(stack_ended)
    }

    /// The address and port of the socket. A connected one has the address that it sends from.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.crossing().ends().local)
    }

    /// The remote end of a connected socket.
    ///
    /// # Errors
    ///
    /// `NotConnected` if it is not.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.crossing().ends().peer.ok_or_else(|| io_error(Error::NotConnected))
    }

    fn crossing(&self) -> &Arc<Crossing> {
        &self.owner.crossing
    }

    fn waiting(&self, wanted: Readiness) -> Waiting<'_, Crossing> {
        Waiting::new(self.crossing(), wanted)
    }

    // ---- what the calls do

    async fn addresses_of<A: ToSocketAddrs>(&self, address: &A) -> io::Result<Addresses<A::Iter>> {
        addresses_of(address).await
    }

    async fn receive(&self, out: &mut [u8], takes: bool) -> io::Result<Received> {
        self.waiting(Readiness::READABLE).call(|| self.try_read(out, takes)).await
    }

    fn try_read(&self, out: &mut [u8], takes: bool) -> io::Result<Received> {
        self.read(out, takes, None)
    }

    fn try_read_buf<B: BufMut>(&self, out: &mut B) -> io::Result<Received> {
        let room = out.remaining_mut();
        self.crossing().read(room, true, None, |piece| out.put_slice(piece))
    }

    fn read(
        &self,
        out: &mut [u8],
        takes: bool,
        context: Option<&Context<'_>>,
    ) -> io::Result<Received> {
        let mut filled = 0;
        self.crossing().read(out.len(), takes, context, |piece| {
            out[filled..filled + piece.len()].copy_from_slice(piece);
            filled += piece.len();
        })
    }

    fn poll_read(
        &self,
        context: &Context<'_>,
        out: &mut [u8],
        takes: bool,
    ) -> Poll<io::Result<Received>> {
        pending_if_it_would_block(self.read(out, takes, Some(context)))
    }
}

datagram_calls!();

impl fmt::Debug for UdpSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("UdpSocket").field(self.crossing()).finish()
    }
}
