//! Waits until a stream can be read or written, by tokio's methods.

use std::io;
use std::task::{Context, Poll};

use lightwait_core::Readiness;

use super::TcpStream;
use crate::net::waiting::Waitable;

impl TcpStream {
    /// Waits until there is data to read, the stream's end or an error. The read may still block:
    /// another task may have been first.
    pub async fn readable(&self) -> io::Result<()> {
        self.waiting(Readiness::READABLE).ready().await;
        Ok(())
    }

    /// Waits until there is room to write, or an error that a write reports.
    pub async fn writable(&self) -> io::Result<()> {
        self.waiting(Readiness::WRITABLE).ready().await;
        Ok(())
    }

    /// [`TcpStream::readable`] for callers that poll by hand. Of the tasks that poll for reading
    /// the last one waits.
    pub fn poll_read_ready(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.crossing().poll_ready(Readiness::READABLE, context)
    }

    /// [`TcpStream::writable`] for callers that poll by hand. Of the tasks that poll for writing
    /// the last one waits.
    pub fn poll_write_ready(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.crossing().poll_ready(Readiness::WRITABLE, context)
    }
}

#[cfg(feature = "tokio-driver")]
mod interest {
    use std::io;

    use lightwait_core::Readiness;
    use tokio::io::{Interest, Ready};

    use super::TcpStream;
    use crate::interest::{as_ready, wanted};
    use crate::net::waiting::Waitable;

    impl TcpStream {
        /// Waits until the stream has a readiness of `interest`, and returns it.
        pub async fn ready(&self, interest: Interest) -> io::Result<Ready> {
            let readiness = self.waiting(wanted(interest)).ready().await;
            Ok(self.as_ready(readiness, interest))
        }

        /// Calls `call` if the stream has a readiness of `interest`.
        ///
        /// # Errors
        ///
        /// `WouldBlock` if it is not ready; else the errors of `call`.
        pub fn try_io<R>(
            &self,
            interest: Interest,
            call: impl FnOnce() -> io::Result<R>,
        ) -> io::Result<R> {
            let readiness = self.crossing().look(|readiness, _, _| readiness);
            if self.as_ready(readiness, interest).is_empty() {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            call()
        }

        /// Calls `call` until it returns a result other than `WouldBlock`. Before each call it
        /// waits until the stream has a readiness of `interest`, and that has changed since the
        /// last one.
        pub async fn async_io<R>(
            &self,
            interest: Interest,
            call: impl FnMut() -> io::Result<R>,
        ) -> io::Result<R> {
            self.waiting(wanted(interest)).call(call).await
        }

        fn as_ready(&self, readiness: Readiness, interest: Interest) -> Ready {
            as_ready(readiness, interest, || self.crossing().is_at_end())
        }
    }
}
