//! A TCP connection with the methods of tokio's `TcpStream`. It also shares bytes with the send
//! buffer, resets the connection, and takes TIME-WAIT over from the peer.

mod control;
#[cfg(feature = "hyper")]
mod hyper;
mod io_traits;
mod options;
mod readiness;

use std::fmt;
use std::future::poll_fn;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::{BufMut, Bytes};
use lightwait_core::host::any_local;
use lightwait_core::tcp::{ConnectionInfo, SocketOptions};
use lightwait_core::{ConnectionId, Error, Host, Instant, ReadError, Readiness, WriteError};
use tokio::io::ReadBuf;

pub use control::Control;

use super::split::{self, OwnedReadHalf, OwnedWriteHalf, ReadHalf, WriteHalf};
use super::{ToSocketAddrs, io_error};
use crate::address::no_address;
use crate::lookup::{addresses_for, of_name};
use crate::shard::Handle;
use crate::shard::state::{self, Local};

/// Bytes of a read, at most, into uninitialised room of the caller. They pass through a buffer of
/// the shard, which stays in the cache.
const SCRATCH_BYTES: usize = 32 << 10;

/// A TCP connection. Dropping it closes the connection gracefully in the background: written data
/// is still sent, then FIN. With unread data in its receive buffer, or linger zero, it is reset
/// instead.
pub struct TcpStream {
    local: Rc<Local>,
    id: ConnectionId,
}

impl TcpStream {
    /// Opens a connection from the current shard and waits until it is established. A name is
    /// looked up, and its addresses are tried in order, like those of a slice; if none answers,
    /// returns the last one's error. In virtual time names are refused.
    ///
    /// # Panics
    ///
    /// If no shard is current.
    pub async fn connect<A: ToSocketAddrs>(address: A) -> io::Result<TcpStream> {
        TcpStream::connect_to_first(&state::current(), None, address).await
    }

    /// Opens a connection from the shard of that handle and waits until it is established.
    pub async fn connect_on<A: ToSocketAddrs>(
        handle: &Handle,
        address: A,
    ) -> io::Result<TcpStream> {
        TcpStream::connect_to_first(&handle.local, None, address).await
    }

    /// Opens a connection from a given local address. The host picks a port for port 0.
    pub async fn connect_from<A: ToSocketAddrs>(
        handle: &Handle,
        local: SocketAddr,
        address: A,
    ) -> io::Result<TcpStream> {
        TcpStream::connect_to_first(&handle.local, Some(local), address).await
    }

    /// Connects to the first of these addresses that answers. If none does, returns the last one's
    /// error.
    async fn connect_to_first<A: ToSocketAddrs>(
        shard: &Rc<Local>,
        local: Option<SocketAddr>,
        addresses: A,
    ) -> io::Result<TcpStream> {
        let (mut failure, name) = (None, addresses.host_name().map(|(name, _)| name));
        for remote in addresses_for(shard, &addresses).await? {
            let opened =
                TcpStream::open(shard, local.unwrap_or_else(|| any_local(&remote)), remote);
            let opened = opened.map_err(|error| of_name(name, remote, error));
            let connected = match opened {
                Ok(stream) => stream.established().await,
                Err(error) => Err(error),
            };
            match connected {
                Ok(stream) => return Ok(stream),
                Err(error) => failure = Some(error),
            }
        }
        Err(failure.unwrap_or_else(no_address))
    }

    /// Begins to open a connection. Its addresses are known at once.
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

    /// [`TcpStream::open`] with options that apply from the SYN on.
    pub(crate) fn open_with(
        shard: &Rc<Local>,
        local: SocketAddr,
        remote: SocketAddr,
        options: SocketOptions,
    ) -> io::Result<TcpStream> {
        let now = shard.now();
        let opened = shard.host_mut().connect_with(now, local, remote, options);
        let id = opened.map_err(io_error)?;
        shard.touch();
        Ok(TcpStream::adopt(shard.clone(), id))
    }

    /// Waits until the connection is established, or has failed.
    pub(crate) async fn established(self) -> io::Result<TcpStream> {
        let opened = poll_fn(|context| self.poll_established(context)).await;
        #[cfg(feature = "tracing")]
        if let Ok(peer) = self.peer_addr() {
            crate::edges::opened(peer, &opened);
        }
        opened.map(|()| self)
    }

    /// The stream of a connection that the host has just returned.
    pub(super) fn adopt(local: Rc<Local>, id: ConnectionId) -> TcpStream {
        TcpStream { local, id }
    }

    #[inline]
    pub(crate) fn poll_established(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let readiness = self.local.host().readiness(self.local.now(), self.id);
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

    /// Calls the host. A successful call may leave work for the next turn.
    #[inline]
    fn call<R, E>(
        &self,
        call: impl FnOnce(&mut Host, Instant, ConnectionId) -> Result<R, E>,
    ) -> Result<R, E> {
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
        result: Result<R, ReadError>,
    ) -> Poll<io::Result<R>> {
        if let Err(ReadError::WouldBlock) = result {
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
        result: Result<R, WriteError>,
    ) -> Poll<io::Result<R>> {
        if let Err(WriteError::WouldBlock) = result {
            self.local.wait_writable(self.id, context);
            return Poll::Pending;
        }
        Poll::Ready(result.map_err(io_error))
    }

    #[inline]
    fn read(&self, buffer: &mut [u8]) -> Result<usize, ReadError> {
        self.call(|host, now, id| host.read(now, id, buffer))
    }

    #[inline]
    fn write(&self, data: &[u8]) -> Result<usize, WriteError> {
        self.call(|host, now, id| host.write(now, id, data))
    }

    fn write_slices(&self, slices: &[IoSlice<'_>]) -> Result<usize, WriteError> {
        let mut written = 0;
        for slice in slices.iter().filter(|slice| !slice.is_empty()) {
            match self.write(slice) {
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

    fn write_bytes(&self, data: &Bytes) -> Result<usize, WriteError> {
        self.call(|host, now, id| host.write_bytes(now, id, data))
    }

    // ---- reading and writing without a mutable borrow

    /// Reads the available bytes, or fails with `WouldBlock`. Zero bytes mean the stream's end.
    pub fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.read(buffer).map_err(io_error)
    }

    /// Reads the available bytes into one buffer after the other, or fails with `WouldBlock`.
    pub fn try_read_vectored(&self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let mut read = 0;
        for buffer in buffers.iter_mut().filter(|buffer| !buffer.is_empty()) {
            match self.read(buffer) {
                Ok(len) => {
                    read += len;
                    if len < buffer.len() {
                        break;
                    }
                }
                // The bytes read count; the next call reports the error.
                Err(_) if read > 0 => break,
                Err(error) => return Err(io_error(error)),
            }
        }
        Ok(read)
    }

    /// Reads the available bytes into the buffer's spare room, 32 KiB at most, or fails with
    /// `WouldBlock`.
    pub fn try_read_buf<B: BufMut>(&self, buffer: &mut B) -> io::Result<usize> {
        // Spare room is not initialised, and cannot be read into without `unsafe`.
        let mut scratch = self.local.scratch();
        let room = buffer.chunk_mut().len().min(SCRATCH_BYTES);
        scratch.resize(SCRATCH_BYTES, 0);
        let len = self.try_read(&mut scratch[..room])?;
        buffer.put_slice(&scratch[..len]);
        Ok(len)
    }

    /// Writes as much as the send buffer takes, or fails with `WouldBlock`.
    pub fn try_write(&self, data: &[u8]) -> io::Result<usize> {
        self.write(data).map_err(io_error)
    }

    /// Writes one slice after the other, as [`TcpStream::try_write`] does.
    pub fn try_write_vectored(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.write_slices(slices).map_err(io_error)
    }

    /// Writes like [`TcpStream::try_write`], but the send buffer shares the bytes instead of
    /// copying.
    pub fn try_write_bytes(&self, data: &Bytes) -> io::Result<usize> {
        self.write_bytes(data).map_err(io_error)
    }

    /// Writes all of `data`, sharing the bytes with the send buffer.
    pub async fn write_all_bytes(&self, mut data: Bytes) -> io::Result<()> {
        while !data.is_empty() {
            let written = poll_fn(|context| self.poll_write_bytes(context, &data)).await?;
            bytes::Buf::advance(&mut data, written);
        }
        Ok(())
    }

    /// Reads without consuming: the next read returns the same bytes.
    pub async fn peek(&self, buffer: &mut [u8]) -> io::Result<usize> {
        poll_fn(|context| self.poll_peek_slice(context, buffer)).await
    }

    /// [`TcpStream::peek`] for callers that poll by hand. Returns the number of bytes read.
    pub fn poll_peek(
        &self,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<usize>> {
        let len = ready!(self.poll_peek_slice(context, buffer.initialize_unfilled()))?;
        buffer.advance(len);
        Poll::Ready(Ok(len))
    }

    fn poll_peek_slice(
        &self,
        context: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let result = self.local.host().peek(self.id, buffer);
        self.or_wait_readable(context, result)
    }

    #[inline]
    pub(crate) fn poll_read_slice(
        &self,
        context: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        self.or_wait_readable(context, self.read(buffer))
    }

    #[inline]
    pub(super) fn poll_read_buf(
        &self,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let len = ready!(self.poll_read_slice(context, buffer.initialize_unfilled()))?;
        buffer.advance(len);
        Poll::Ready(Ok(()))
    }

    #[inline]
    pub(crate) fn poll_write_slice(
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

    pub(crate) fn poll_write_bytes(
        &self,
        context: &mut Context<'_>,
        data: &Bytes,
    ) -> Poll<io::Result<usize>> {
        self.or_wait_writable(context, self.write_bytes(data))
    }

    /// Bytes that a read would return at once, given room for them.
    pub(crate) fn readable_bytes(&self) -> usize {
        self.local.host().readable_bytes(self.id)
    }

    /// True if a task waits for something to read, its end included.
    pub(crate) fn is_awaited(&self) -> bool {
        self.local.is_awaited(self.id)
    }

    /// How long a connection that its user has dropped may hold data that the peer does not take.
    pub(crate) fn orphan_timeout(&self) -> std::time::Duration {
        self.local.host().config().tcp.timeout.orphan
    }

    /// Sends FIN after the written data.
    pub(crate) fn shutdown_write(&self) -> io::Result<()> {
        self.call(Host::shutdown_write).map_err(io_error)
    }

    /// Resets the connection, like dropping the stream with linger zero. Unsent data is dropped,
    /// its memory is free at once, and the peer gets an RST.
    pub fn abort(self) {
        self.control().abort();
    }

    /// Drops the stream. If the peer has closed first, we take TIME-WAIT over from it: once our FIN
    /// is acknowledged we wait in its stead, and an RST makes it forget the connection (Faber,
    /// Touch & Yue 1999 §4.1). The peer needs no support for this; a peer that heeds RFC 1337 still
    /// waits. The option [`SocketOptions::close_swap`] gives every drop this meaning.
    ///
    /// [`SocketOptions::close_swap`]: lightwait_core::tcp::SocketOptions::close_swap
    pub fn close_swap(self) {
        // A connection that is gone has nothing to swap.
        if let Ok(options) = self.options() {
            let _ = self.set_options(SocketOptions { close_swap: true, ..options });
        }
    }

    /// A handle on the connection for code that does not own the stream.
    pub fn control(&self) -> Control {
        Control::new(self.local.clone(), self.id)
    }

    // ---- urgent data, records

    /// Writes like [`TcpStream::try_write`], and marks the last byte written as urgent. The byte
    /// stays in line (RFC 9293 §3.8.5); RFC 6093 advises new applications against urgent data.
    ///
    /// # Errors
    /// Those of [`TcpStream::try_write`].
    pub fn try_write_urgent(&self, data: &[u8]) -> io::Result<usize> {
        self.call(|host, now, id| host.write_urgent(now, id, data)).map_err(io_error)
    }

    /// Writes like [`TcpStream::try_write`], and if all of `data` is written, its last byte ends a
    /// record: it ends its segment, and what is written later goes into another one. The peer sees
    /// a stream all the same.
    ///
    /// # Errors
    /// Those of [`TcpStream::try_write`]; `WouldBlock` also if the peer has not acknowledged 4096
    /// records.
    pub fn try_write_record(&self, data: &[u8]) -> io::Result<usize> {
        self.call(|host, now, id| host.write_record(now, id, data)).map_err(io_error)
    }

    /// The number of unread bytes up to and including the peer's last urgent byte; `None` if no
    /// urgent data is ahead (RFC 9293 MUST-32, MUST-33).
    ///
    /// # Errors
    /// If the connection is gone.
    pub fn urgent_mark(&self) -> io::Result<Option<u32>> {
        self.call(|host, _, id| host.info(id).map(|_| host.urgent_mark(id))).map_err(io_error)
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
        self.local.host().local_address(self.id).map_err(io_error)
    }

    /// The peer's address and port.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.local.host().peer_address(self.id).map_err(io_error)
    }

    /// Takes the error that ended the connection.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        Ok(self.local.host_mut().take_error(self.id).map(io_error))
    }

    /// State, windows, round-trip times, buffers.
    pub fn info(&self) -> io::Result<ConnectionInfo> {
        self.local.host().info(self.id).map_err(io_error)
    }
}

impl Drop for TcpStream {
    fn drop(&mut self) {
        let now = self.local.now();
        self.local.forget(self.id);
        #[cfg(feature = "tracing")]
        crate::edges::left(&mut self.local.host_mut(), self.id);
        self.local.host_mut().close(now, self.id);
        self.local.touch();
    }
}

impl fmt::Debug for TcpStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TcpStream").field(&self.id).finish()
    }
}
