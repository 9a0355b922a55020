//! A TCP connection with the methods of tokio's `TcpStream`, for any thread.

mod io_traits;
mod options;
mod readiness;

use std::fmt;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::task::{Context, Poll};

use bytes::{BufMut, Bytes};
use lightwait_core::tcp::{ConnectionInfo, SocketOptions};
use lightwait_core::{Error, Readiness, host::any_local};
use tokio::io::ReadBuf;

use super::crossing::{Close, Crossing, Owner, stack_ended};
use super::pump;
use super::split::{self, OwnedReadHalf, OwnedWriteHalf, ReadHalf, WriteHalf};
use super::waiting::{Waiting, pending_if_it_would_block};
use super::{StackHandle, ToSocketAddrs};
use crate::address::no_address;
use crate::answer::answer;
use crate::error::io_error;
use crate::local;
use crate::lookup::{addresses_of, of_name};

/// A TCP connection. Dropping it closes the connection gracefully in the background: written data
/// is still sent, then FIN. With unread data, or linger zero, it is reset instead.
///
/// 64 KiB wait on the way between the stack's thread and the application, at most, in each
/// direction, and as many more that a reader has begun to read. What the application does not read
/// fills the stack's own buffer then, and closes the window. These bytes count as the stack's
/// memory for buffers; while that is short it is 4 KiB.
pub struct TcpStream {
    owner: Owner,
    stack: StackHandle,
}

impl TcpStream {
    /// Opens a connection from the default stack ([`StackHandle::set_default`]) and waits until it
    /// is established. A name is looked up, and its addresses are tried in order, like those of a
    /// slice; if none answers, returns the last one's error.
    ///
    /// # Errors
    /// `NotConnected` if there is no default stack, and those of [`TcpStream::connect_on`].
    pub async fn connect<A: ToSocketAddrs>(address: A) -> io::Result<TcpStream> {
        TcpStream::connect_on(&StackHandle::default_stack()?, address).await
    }

    /// Opens a connection from that stack and waits until it is established.
    ///
    /// # Errors
    /// Those of the connection, such as `ConnectionRefused`; `ConnectionAborted` if the stack has
    /// ended; those of the look-up of a name.
    pub async fn connect_on<A: ToSocketAddrs>(
        stack: &StackHandle,
        address: A,
    ) -> io::Result<TcpStream> {
        TcpStream::connect_to_first(stack, None, address).await
    }

    /// Opens a connection from a given local address. The host picks a port for port 0.
    ///
    /// # Errors
    /// Those of [`TcpStream::connect_on`].
    pub async fn connect_from<A: ToSocketAddrs>(
        stack: &StackHandle,
        local: SocketAddr,
        address: A,
    ) -> io::Result<TcpStream> {
        TcpStream::connect_to_first(stack, Some(local), address).await
    }

    /// Connects to the first of these addresses that answers. If none does, returns the last one's
    /// error.
    async fn connect_to_first<A: ToSocketAddrs>(
        stack: &StackHandle,
        local: Option<SocketAddr>,
        addresses: A,
    ) -> io::Result<TcpStream> {
        let (mut failure, name) = (None, addresses.host_name().map(|(name, _)| name));
        for remote in addresses_of(&addresses).await? {
            let from = local.unwrap_or_else(|| any_local(&remote));
            match TcpStream::open(stack, from, remote, stack.defaults().options).await {
                Ok(stream) => return Ok(stream),
                Err(error) => failure = Some(of_name(name, remote, error)),
            }
        }
        Err(failure.unwrap_or_else(no_address))
    }

    /// Opens a connection whose options apply from the SYN on, and waits until it is established.
    pub(super) async fn open(
        stack: &StackHandle,
        from: SocketAddr,
        remote: SocketAddr,
        options: SocketOptions,
    ) -> io::Result<TcpStream> {
        let ledger = stack.ledger().clone();
        let asked = stack.ask(move |shard| {
            let stream = local::TcpStream::open_with(&shard.local, from, remote, options)?;
            pump::begin(shard, stream, Crossing::opening(options, &ledger))
        });
        let owner = asked.await.ok_or_else(stack_ended)??;
        let stream = TcpStream::new(owner, stack.clone());
        let readiness = stream.waiting(Readiness::WRITABLE).ready().await;
        if readiness.contains(Readiness::CLOSED) {
            let error = stream.crossing().take_error();
            return Err(error.unwrap_or_else(|| io_error(Error::NotConnected)));
        }
        Ok(stream)
    }

    pub(super) fn new(owner: Owner, stack: StackHandle) -> TcpStream {
        TcpStream { owner, stack }
    }

    fn crossing(&self) -> &Crossing {
        &self.owner.crossing
    }

    fn waiting(&self, wanted: Readiness) -> Waiting<'_, Crossing> {
        Waiting::new(self.crossing(), wanted)
    }

    // ---- reading and writing without a mutable borrow

    /// Reads the available bytes, or fails with `WouldBlock`. Zero bytes mean the stream's end.
    pub fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.read(buffer, None)
    }

    /// Reads the available bytes into one buffer after the other, or fails with `WouldBlock`.
    pub fn try_read_vectored(&self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let room = buffers.iter().map(|buffer| buffer.len()).sum();
        let mut place = (0, 0);
        self.crossing().read(room, None, |mut data| {
            while !data.is_empty() {
                let (index, at) = place;
                let rest = &mut buffers[index][at..];
                let len = rest.len().min(data.len());
                rest[..len].copy_from_slice(&data[..len]);
                place = if len == rest.len() { (index + 1, 0) } else { (index, at + len) };
                data = &data[len..];
            }
        })
    }

    /// Reads the available bytes into the buffer's spare room, or fails with `WouldBlock`.
    pub fn try_read_buf<B: BufMut>(&self, buffer: &mut B) -> io::Result<usize> {
        let room = buffer.chunk_mut().len();
        self.crossing().read(room, None, |data| buffer.put_slice(data))
    }

    /// Writes as much as there is room for, or fails with `WouldBlock`.
    pub fn try_write(&self, data: &[u8]) -> io::Result<usize> {
        self.crossing().write(data, None)
    }

    /// Writes one slice after the other, as [`TcpStream::try_write`] does.
    pub fn try_write_vectored(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.write_slices(slices, None)
    }

    /// Writes like [`TcpStream::try_write`], but the stack shares the bytes instead of copying
    /// them.
    pub fn try_write_bytes(&self, data: &Bytes) -> io::Result<usize> {
        self.crossing().write_bytes(data)
    }

    /// Writes all of `data`, sharing the bytes with the stack.
    pub async fn write_all_bytes(&self, mut data: Bytes) -> io::Result<()> {
        while !data.is_empty() {
            match self.try_write_bytes(&data) {
                Ok(written) => bytes::Buf::advance(&mut data, written),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.writable().await?,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Reads without consuming: the next read returns the same bytes.
    pub async fn peek(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut waiting = self.waiting(Readiness::READABLE);
        loop {
            match self.crossing().peek(buffer, None) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => waiting.ready().await,
                result => return result,
            };
        }
    }

    /// [`TcpStream::peek`] for callers that poll by hand. Returns the number of bytes read.
    pub fn poll_peek(
        &self,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<usize>> {
        let peeked = self.crossing().peek(buffer.initialize_unfilled(), Some(context));
        let peeked = pending_if_it_would_block(peeked);
        if let Poll::Ready(Ok(len)) = peeked {
            buffer.advance(len);
        }
        peeked
    }

    fn read(&self, buffer: &mut [u8], context: Option<&Context<'_>>) -> io::Result<usize> {
        let mut filled = 0;
        self.crossing().read(buffer.len(), context, |data| {
            buffer[filled..filled + data.len()].copy_from_slice(data);
            filled += data.len();
        })
    }

    fn write_slices(
        &self,
        slices: &[IoSlice<'_>],
        context: Option<&Context<'_>>,
    ) -> io::Result<usize> {
        let mut written = 0;
        for slice in slices.iter().filter(|slice| !slice.is_empty()) {
            match self.crossing().write(slice, context.filter(|_| written == 0)) {
                Ok(len) => {
                    written += len;
                    if len < slice.len() {
                        break;
                    }
                }
                // The written bytes count; the next call reports the error.
                Err(_) if written > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(written)
    }

    pub(super) fn poll_read_buf(
        &self,
        context: &Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let room = buffer.remaining();
        let read = self.crossing().read(room, Some(context), |data| buffer.put_slice(data));
        pending_if_it_would_block(read).map_ok(|_| ())
    }

    pub(super) fn poll_write_slice(
        &self,
        context: &Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        pending_if_it_would_block(self.crossing().write(data, Some(context)))
    }

    pub(super) fn poll_write_slices(
        &self,
        context: &Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        pending_if_it_would_block(self.write_slices(slices, Some(context)))
    }

    /// Sends FIN after the written data.
    pub(super) fn shutdown_write(&self) -> io::Result<()> {
        self.crossing().shut_down()
    }

    /// Resets the connection, like dropping the stream with linger zero. Unsent data is dropped,
    /// and the peer gets an RST.
    pub fn abort(self) {
        self.crossing().close(Close::Reset);
    }

    // ---- halves

    /// Splits the stream into two halves that borrow it.
    pub fn split(&mut self) -> (ReadHalf<'_>, WriteHalf<'_>) {
        split::split(self)
    }

    /// Splits the stream into two halves that own it together. Dropping the write half sends FIN;
    /// the connection is closed when both are gone.
    pub fn into_split(self) -> (OwnedReadHalf, OwnedWriteHalf) {
        split::into_split(self)
    }

    // ---- state

    /// Our address and port.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.crossing().addresses()?.local)
    }

    /// The peer's address and port.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.crossing().addresses()?.peer)
    }

    /// Takes the error that ended the connection.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        Ok(self.crossing().take_error())
    }

    /// State, windows, round-trip times, buffers, as of the stack's next turn.
    ///
    /// # Errors
    /// `ConnectionAborted` if the stack has ended.
    pub async fn info(&self) -> io::Result<ConnectionInfo> {
        let (answerer, wanted) = answer();
        self.crossing().call(Box::new(move |stream| answerer.give(stream.info())))?;
        wanted.await.unwrap_or_else(|| Err(stack_ended()))
    }
}

impl fmt::Debug for TcpStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TcpStream").field(self.crossing()).finish()
    }
}
