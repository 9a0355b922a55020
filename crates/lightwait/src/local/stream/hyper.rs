//! Implements hyper's `Read` and `Write` for a stream.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use ::hyper::rt::{Read, ReadBufCursor, Write};
use tokio::io::AsyncWrite;

use super::{SCRATCH_BYTES, TcpStream};

impl Read for TcpStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        mut buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let mut scratch = self.local.scratch();
        scratch.resize(SCRATCH_BYTES, 0);
        let room = buffer.remaining().min(SCRATCH_BYTES);
        let len = ready!(self.poll_read_slice(context, &mut scratch[..room]))?;
        buffer.put_slice(&scratch[..len]);
        Poll::Ready(Ok(()))
    }
}

impl Write for TcpStream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_slice(context, data)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_slices(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        AsyncWrite::poll_flush(self, context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        AsyncWrite::poll_shutdown(self, context)
    }
}
