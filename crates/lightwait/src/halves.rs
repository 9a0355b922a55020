//! Halves of a stream, for both kinds of streams: the code of each is this, with another pointer.

/// The halves of the `TcpStream` in scope, whose owned halves share it by `$Shared`.
macro_rules! halves {
    ($Shared:ident) => {
        /// The reading half of a borrowed stream.
        #[derive(Debug)]
        pub struct ReadHalf<'a>(&'a TcpStream);

        /// The writing half of a borrowed stream.
        #[derive(Debug)]
        pub struct WriteHalf<'a>(&'a TcpStream);

        /// The reading half of a stream.
        #[derive(Debug)]
        pub struct OwnedReadHalf($Shared<TcpStream>);

        /// The writing half of a stream. Dropping it sends FIN after what was written.
        #[derive(Debug)]
        pub struct OwnedWriteHalf {
            stream: $Shared<TcpStream>,
            shutdown_on_drop: bool,
        }

        pub(super) fn split(stream: &mut TcpStream) -> (ReadHalf<'_>, WriteHalf<'_>) {
            (ReadHalf(stream), WriteHalf(stream))
        }

        pub(super) fn into_split(stream: TcpStream) -> (OwnedReadHalf, OwnedWriteHalf) {
            let stream = $Shared::new(stream);
            (OwnedReadHalf(stream.clone()), OwnedWriteHalf { stream, shutdown_on_drop: true })
        }

        impl OwnedReadHalf {
            /// Joins the two halves again, if both belong to one stream.
            pub fn reunite(self, other: OwnedWriteHalf) -> Result<TcpStream, ReuniteError> {
                if !$Shared::ptr_eq(&self.0, &other.stream) {
                    return Err(ReuniteError(self, other));
                }
                other.forget();
                Ok($Shared::into_inner(self.0).expect("a stream has two halves, and one is gone"))
            }
        }

        impl OwnedWriteHalf {
            /// Joins the two halves again, if both belong to one stream.
            pub fn reunite(self, other: OwnedReadHalf) -> Result<TcpStream, ReuniteError> {
                other.reunite(self)
            }

            /// Drops the half without sending FIN; the other half goes on.
            pub fn forget(mut self) {
                self.shutdown_on_drop = false;
            }
        }

        impl Drop for OwnedWriteHalf {
            fn drop(&mut self) {
                if self.shutdown_on_drop {
                    // A connection that is over has nothing to shut down.
                    let _ = self.stream.shutdown_write();
                }
            }
        }

        impl AsRef<TcpStream> for ReadHalf<'_> {
            fn as_ref(&self) -> &TcpStream {
                self.0
            }
        }

        impl AsRef<TcpStream> for WriteHalf<'_> {
            fn as_ref(&self) -> &TcpStream {
                self.0
            }
        }

        impl AsRef<TcpStream> for OwnedReadHalf {
            fn as_ref(&self) -> &TcpStream {
                &self.0
            }
        }

        impl AsRef<TcpStream> for OwnedWriteHalf {
            fn as_ref(&self) -> &TcpStream {
                &self.stream
            }
        }

        half!(ReadHalf<'_>, WriteHalf<'_>, OwnedReadHalf, OwnedWriteHalf);
        reads!(ReadHalf<'_>, OwnedReadHalf);
        writes!(WriteHalf<'_>, OwnedWriteHalf);

        /// The two halves belong to different streams; the error returns them.
        #[derive(Debug)]
        pub struct ReuniteError(pub OwnedReadHalf, pub OwnedWriteHalf);

        impl fmt::Display for ReuniteError {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the two halves are not of the same stream")
            }
        }

        impl Error for ReuniteError {}
    };
}

/// The methods that both halves share with the stream.
macro_rules! half {
    ($($half:ty),*) => {
        $(impl $half {
            /// The peer's address and port.
            pub fn peer_addr(&self) -> io::Result<SocketAddr> {
                self.as_ref().peer_addr()
            }

            /// Our address and port.
            pub fn local_addr(&self) -> io::Result<SocketAddr> {
                self.as_ref().local_addr()
            }

            /// [`TcpStream::ready`].
            #[cfg(feature = "tokio-driver")]
            pub async fn ready(&self, interest: Interest) -> io::Result<Ready> {
                self.as_ref().ready(interest).await
            }
        })*
    };
}

macro_rules! reads {
    ($($half:ty),*) => {
        $(impl $half {
            /// [`TcpStream::peek`].
            pub async fn peek(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                self.as_ref().peek(buffer).await
            }

            /// [`TcpStream::poll_peek`].
            pub fn poll_peek(
                &mut self,
                context: &mut Context<'_>,
                buffer: &mut ReadBuf<'_>,
            ) -> Poll<io::Result<usize>> {
                self.as_ref().poll_peek(context, buffer)
            }

            /// [`TcpStream::readable`].
            pub async fn readable(&self) -> io::Result<()> {
                self.as_ref().readable().await
            }

            /// [`TcpStream::try_read`].
            pub fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
                self.as_ref().try_read(buffer)
            }

            /// [`TcpStream::try_read_vectored`].
            pub fn try_read_vectored(&self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
                self.as_ref().try_read_vectored(buffers)
            }

            /// [`TcpStream::try_read_buf`].
            pub fn try_read_buf<B: BufMut>(&self, buffer: &mut B) -> io::Result<usize> {
                self.as_ref().try_read_buf(buffer)
            }
        }

        impl AsyncRead for $half {
            fn poll_read(
                self: Pin<&mut Self>,
                context: &mut Context<'_>,
                buffer: &mut ReadBuf<'_>,
            ) -> Poll<io::Result<()>> {
                (*self).as_ref().poll_read_buf(context, buffer)
            }
        })*
    };
}

macro_rules! writes {
    ($($half:ty),*) => {
        $(impl $half {
            /// [`TcpStream::writable`].
            pub async fn writable(&self) -> io::Result<()> {
                self.as_ref().writable().await
            }

            /// [`TcpStream::try_write`].
            pub fn try_write(&self, data: &[u8]) -> io::Result<usize> {
                self.as_ref().try_write(data)
            }

            /// [`TcpStream::try_write_vectored`].
            pub fn try_write_vectored(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
                self.as_ref().try_write_vectored(slices)
            }
        }

        impl AsyncWrite for $half {
            fn poll_write(
                self: Pin<&mut Self>,
                context: &mut Context<'_>,
                data: &[u8],
            ) -> Poll<io::Result<usize>> {
                (*self).as_ref().poll_write_slice(context, data)
            }

            fn poll_write_vectored(
                self: Pin<&mut Self>,
                context: &mut Context<'_>,
                slices: &[IoSlice<'_>],
            ) -> Poll<io::Result<usize>> {
                (*self).as_ref().poll_write_slices(context, slices)
            }

            fn is_write_vectored(&self) -> bool {
                true
            }

            fn poll_flush(
                self: Pin<&mut Self>,
                _context: &mut Context<'_>,
            ) -> Poll<io::Result<()>> {
                Poll::Ready(Ok(()))
            }

            fn poll_shutdown(
                self: Pin<&mut Self>,
                _context: &mut Context<'_>,
            ) -> Poll<io::Result<()>> {
                Poll::Ready((*self).as_ref().shutdown_write())
            }
        })*
    };
}

pub(crate) use {half, halves, reads, writes};
